//! The machine's configuration: where it is read from, what the agent takes from it, and what may be set from afar.
//!
//! Overrides are named sets of macros that an administrator put here through the manager. They survive restarts, are
//! read after everything else, and may only name what is on a list: expressions and timers of the policy, never paths,
//! users or commands.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::settings::Origin;
use config::{Config, Diagnostic, Diagnostics, Host, Loader};
use model::event::Resources;
use policy::slots::Layout;
use policy::{Expression, Policy};
use submit::args::{self, Form};

use crate::{criu, hooks, plugins, sensors};

/// Names that may be set from afar beside the policy's expressions.
const SETTABLE: &[&str] = &[
    "UPDATE_INTERVAL",
    "POLLING_INTERVAL",
    "MATCH_TIMEOUT",
    "KILLING_TIMEOUT",
    "JOB_RENICE_INCREMENT",
    "MachineMaxVacateTime",
    "CKPT_BANDWIDTH",
    "STARTD_EXPRS",
    "STARTD_ATTRS",
    "EndDownTime",
    "NextDownTime",
    "Shutdown",
];

/// Where a machine's configuration comes from.
#[derive(Clone)]
pub struct ConfigSource {
    /// Files, environment, commands.
    pub host: &'static (dyn Host + Sync),
    /// Files that must exist, in order.
    pub files: Vec<String>,
    /// What relative names are relative to.
    pub directory: String,
    /// What the machine knows of itself (DETECTED_CPUS ...).
    pub detected: String,
}

impl std::fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigSource").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What the agent takes from a configuration.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    /// How the machine is divided.
    pub(crate) layout: Layout,
    /// JOB_RENICE_INCREMENT.
    pub(crate) nice: u32,
    /// How long a job that must leave may take, at most.
    pub(crate) max_vacate_ms: u64,
    /// CKPT_BANDWIDTH in bytes per second; 0 for no cap.
    pub(crate) bandwidth: u64,
    pub(crate) sensors: sensors::Settings,
    /// JOB_START_TIMEOUT.
    pub(crate) start_ms: u64,
    /// NOT_RESPONDING_TIMEOUT.
    pub(crate) silence_ms: u64,
    /// SCRATCH_LIMIT and CHECKPOINT_LIMIT in bytes; 0 for none.
    pub(crate) scratch_bytes: u64,
    pub(crate) checkpoint_bytes: u64,
    /// CACHE_LIMIT in bytes: what jobs' inputs may take on this machine.
    pub(crate) cache_bytes: u64,
    /// FILESYSTEM_DOMAIN; empty for the host itself.
    pub(crate) filesystem_domain: String,
    /// CGROUP_MEMORY_LIMIT_POLICY.
    pub(crate) limits_memory: bool,
    /// PROVISION_COMMAND and RELEASE_COMMAND.
    pub(crate) hooks: hooks::Settings,
    /// PEER_ADDRESS: where other machines of the lab find this one; empty for nowhere.
    pub(crate) peer_address: String,
    /// FILETRANSFER_PLUGINS and MAX_FILE_TRANSFER_PLUGIN_LIFETIME.
    pub(crate) plugins: plugins::Settings,
    /// CRIU and CHECKPOINT_DOMAIN.
    pub(crate) criu: criu::Settings,
    /// UID_DOMAIN; empty for the host itself.
    pub(crate) uid_domain: String,
    /// MACHINE_OWNER: who may vacate, drain and reconfigure this machine beside administrators; empty for nobody.
    pub(crate) machine_owner: String,
    /// Every setting with value and source, for people.
    pub(crate) listing: String,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Overrides by the name of their set.
pub(crate) type Overrides = BTreeMap<String, String>;

/// Reads everything; any error refuses the whole, with every place named. Later overrides win. A machine that runs
/// already stays divided as it is: slots with jobs in them cannot be cut anew.
pub(crate) fn load<'a>(
    source: &ConfigSource,
    overrides: impl IntoIterator<Item = (&'a String, &'a String)>,
    total: Resources,
    running: Option<&Layout>,
) -> Result<Rules, String> {
    let mut loader =
        Loader::new(source.host, "STARTD").text("detected", &source.detected).directory(&source.directory);
    for file in &source.files {
        loader = loader.file(file);
    }
    for (name, text) in overrides {
        loader = loader.runtime(&format!("override {name}"), text);
    }
    let now = jiff::Timestamp::now().as_second();
    let config = loader.seed(u64::from(std::process::id())).now(now).load().map_err(|e| e.to_string())?;
    read(&config, total, running).map_err(|e| e.to_string())
}

/// What the agent of a machine of this size would refuse when it starts. Returns what it would only warn of.
pub fn check(config: &Config<'_>, total: Resources) -> Result<Vec<Diagnostic>, Diagnostics> {
    read(config, total, None).map(|rules| rules.warnings)
}

fn read(config: &Config<'_>, total: Resources, running: Option<&Layout>) -> Result<Rules, Diagnostics> {
    let mut layout = Layout::of_machine(config, slot_resources(total))?;
    let mut warnings = config.warnings.clone();
    // What goes round in a circle costs only what uses it, and nothing here does.
    warnings.extend(config.broken.iter().map(Diagnostic::as_warning));
    if let Some(running) = running {
        if layout.plans != running.plans {
            warnings.push(Diagnostic::warning(
                "the machine is divided anew (NUM_SLOTS, SLOT_TYPE_N) when its agent starts next",
            ));
        }
        layout = running.clone();
    }
    let policy = Policy::of_machine(config, &layout)?;
    warnings.extend(policy.warnings.iter().cloned());
    let text = |name: &str| config.text(name);
    let number = |name: &str| -> Result<Option<f64>, Diagnostic> {
        let text = text(name)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        if config::scalar::is_beyond_numbers(&text) {
            return Err(wrong(config, name, format!("{name} is too large: {text}")));
        }
        let value = config::scalar::evaluate(&text).ok().and_then(|v| v.as_real());
        match value {
            Some(value) if value >= 0.0 => Ok(Some(value)),
            Some(_) => Err(wrong(config, name, format!("{name} must not be below 0, as {text} is"))),
            None => Err(wrong(config, name, format!("{name} must be a number, not {text}"))),
        }
    };
    let whole = |name: &str| Ok::<u64, Diagnostic>(number(name)?.unwrap_or(0.0) as u64);
    let nice = whole("JOB_RENICE_INCREMENT")?;
    if nice > 19 {
        let message = format!("JOB_RENICE_INCREMENT must be between 0 and 19, not {nice}");
        return Err(wrong(config, "JOB_RENICE_INCREMENT", message).into());
    }
    let words = |list: String| -> Vec<String> {
        list.split([',', ' ']).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let hook = |what: &str| -> Result<Option<hooks::Hook>, Diagnostic> {
        let name = format!("{what}_COMMAND");
        let words = args::split(Form::New, text(&name)?.trim())
            .map_err(|e| wrong(config, &name, format!("{name}: {e}")))?;
        let seconds = number(&format!("{what}_TIMEOUT"))?.unwrap_or(600.0).clamp(0.01, 86_400.0);
        let tries = whole(&format!("{what}_RETRIES"))?.min(100) as u32 + 1;
        let time = Duration::from_secs_f64(seconds);
        Ok((!words.is_empty()).then_some(hooks::Hook { words, time, tries }))
    };
    let hooks = hooks::Settings { provision: hook("PROVISION")?, release: hook("RELEASE")? };
    let lifetime =
        number("MAX_FILE_TRANSFER_PLUGIN_LIFETIME")?.unwrap_or(72_000.0).clamp(1.0, 864_000.0) as u64;
    let plugins = plugins::Settings::new(&text("FILETRANSFER_PLUGINS")?, lifetime)
        .map_err(|message| wrong(config, "FILETRANSFER_PLUGINS", message))?;
    let peer_address = text("PEER_ADDRESS")?.trim().trim_matches('"').to_owned();
    let is_address = |text: &str| {
        text.rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
    };
    if !peer_address.is_empty() && !is_address(&peer_address) {
        let message = format!("PEER_ADDRESS must be HOST:PORT, not {peer_address}");
        return Err(wrong(config, "PEER_ADDRESS", message).into());
    }
    Ok(Rules {
        peer_address,
        plugins,
        nice: nice as u32,
        max_vacate_ms: (number("MachineMaxVacateTime")?.unwrap_or(600.0) * 1000.0) as u64,
        // Megabits, as networks are sold; 128 KiB each, as the seed counts them.
        bandwidth: (number("CKPT_BANDWIDTH")?.unwrap_or(0.0) * 131_072.0) as u64,
        sensors: sensors::Settings {
            reserved_disk_mib: whole("RESERVED_DISK")?,
            reserved_memory_mib: whole("RESERVED_MEMORY")?,
            console_devices: words(text("CONSOLE_DEVICES")?),
            xidle_helper: Some(text("XIDLE_HELPER")?).filter(|c| !c.trim().is_empty()),
            ..sensors::Settings::default()
        },
        start_ms: (number("JOB_START_TIMEOUT")?.unwrap_or(60.0).clamp(0.1, 86_400.0) * 1000.0) as u64,
        silence_ms: (number("NOT_RESPONDING_TIMEOUT")?.unwrap_or(30.0).clamp(1.0, 86_400.0) * 1000.0) as u64,
        scratch_bytes: whole("SCRATCH_LIMIT")? << 20,
        checkpoint_bytes: whole("CHECKPOINT_LIMIT")? << 20,
        cache_bytes: (number("CACHE_LIMIT")?.unwrap_or(10_240.0).max(0.0) as u64) << 20,
        filesystem_domain: text("FILESYSTEM_DOMAIN")?.trim().trim_matches('"').to_owned(),
        limits_memory: match text("CGROUP_MEMORY_LIMIT_POLICY")?.trim().to_ascii_lowercase().as_str() {
            "" | "hard" => true,
            "none" => false,
            other => {
                let message = format!("CGROUP_MEMORY_LIMIT_POLICY must be hard or none, not {other}");
                return Err(wrong(config, "CGROUP_MEMORY_LIMIT_POLICY", message).into());
            }
        },
        hooks,
        uid_domain: text("UID_DOMAIN")?.trim().trim_matches('"').to_owned(),
        machine_owner: text("MACHINE_OWNER")?.trim().trim_matches('"').to_owned(),
        criu: criu::Settings {
            program: text("CRIU")?,
            domain: text("CHECKPOINT_DOMAIN")?,
            shared: text("CHECKPOINT_IN_SHARED_POOL")?.trim().eq_ignore_ascii_case("true"),
        },
        listing: listing(config),
        warnings,
        layout,
        policy,
    })
}

/// What is wrong with a setting, at its place.
fn wrong(config: &Config<'_>, name: &str, message: String) -> Diagnostic {
    let finding = Diagnostic::error(message);
    match config.origin(name) {
        Some(Origin::Definition(d)) => finding.at(d.span.place(0, d.raw.len().max(1))),
        _ => finding,
    }
}

/// A machine's size as the policy counts it.
fn slot_resources(total: Resources) -> policy::slots::Resources {
    policy::slots::Resources {
        cpus: u64::from(total.cpus),
        memory_mib: total.memory_mib,
        disk_kib: total.disk_kib,
        swap_kib: 0,
        gpus: u64::from(total.gpus),
    }
}

/// One line per setting: name, value, where it comes from.
fn listing(config: &Config<'_>) -> String {
    let mut lines: Vec<String> = config
        .definitions()
        .filter(|d| &**d.span.file() != "detected")
        .map(|d| {
            let value = config.text(&d.name).unwrap_or_else(|_| d.raw.clone());
            format!("{} = {value}\n  # {}, line {}\n", d.name, d.span.file(), d.span.line())
        })
        .collect();
    lines.sort_by_key(|line| line.to_ascii_lowercase());
    lines.concat()
}

/// Why a text may not be an override; `None` when it may.
fn forbidden(text: &str) -> Option<String> {
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = at + 1;
        let Some((name, value)) = line.split_once(['=', ':']) else {
            return Some(format!("line {number}: write NAME = value"));
        };
        let name = name.trim();
        // A slot's own word is as good as the machine's.
        let name = without_slot(name);
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        let expression = |e: Expression| is(e.name()) || e.vanilla_name().is_some_and(is);
        if !SETTABLE.iter().any(|known| is(known)) && !Expression::ALL.into_iter().any(expression) {
            return Some(format!(
                "line {number}: {name} may not be set from afar; only the policy's expressions and timers may"
            ));
        }
        // Macro functions can read files and the environment of whoever expands them.
        let mut rest = value;
        while let Some(at) = rest.find('$') {
            rest = &rest[at + 1..];
            if !rest.starts_with('(') && !rest.starts_with('$') {
                return Some(format!("line {number}: only $(NAME) is allowed here, no macro functions"));
            }
        }
    }
    None
}

/// A name without the slot or slot type that it is for: `SLOT2_START`, `SLOT_TYPE_1_START`.
fn without_slot(name: &str) -> &str {
    let after = |prefix: &str| {
        let (head, rest) = name.split_at_checked(prefix.len())?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let bare = rest[digits..].strip_prefix('_').filter(|_| digits > 0)?;
        head.eq_ignore_ascii_case(prefix).then_some(bare)
    };
    after("SLOT_TYPE_").or_else(|| after("SLOT")).unwrap_or(name)
}

/// The overrides that are kept in a directory.
#[derive(Debug)]
pub(crate) struct OverrideFiles {
    dir: PathBuf,
}

impl OverrideFiles {
    pub(crate) fn new(state: &Path) -> Self {
        Self { dir: state.join("overrides") }
    }

    pub(crate) fn read(&self) -> Overrides {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let read =
            |e: fs::DirEntry| Some((e.file_name().into_string().ok()?, fs::read_to_string(e.path()).ok()?));
        entries.filter_map(read).filter(|(name, _)| is_set_name(name)).collect()
    }

    /// Keeps a set, or removes it when its text is empty; whole or not at all.
    pub(crate) fn write(&self, set: &str, text: &str) -> Result<(), String> {
        let path = self.dir.join(set);
        let fail = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
        if text.is_empty() {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(fail(e)),
                _ => Ok(()),
            };
        }
        fs::create_dir_all(&self.dir).map_err(fail)?;
        let temporary = self.dir.join(format!(".{set}"));
        let mut file = fs::File::create(&temporary).map_err(fail)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
        fs::rename(&temporary, &path).map_err(fail)
    }
}

fn is_set_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// The overrides with one set changed, when that may be.
pub(crate) fn changed(overrides: &Overrides, set: &str, text: &str, by: &str) -> Result<Overrides, String> {
    if !is_set_name(set) {
        return Err(format!(
            "{set:?} cannot name a set: letters, digits, dashes and underscores, at most 64"
        ));
    }
    if let Some(why) = forbidden(text) {
        return Err(why);
    }
    let mut overrides = overrides.clone();
    if text.trim().is_empty() {
        overrides.remove(set);
    } else {
        let by = model::text::one_line(by, model::limits::NAME_BYTES);
        overrides.insert(set.to_owned(), format!("# set by {by}\n{}\n", text.trim_end()));
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policy_may_be_set_from_afar() {
        let none = Overrides::new();
        let set = |text: &str| changed(&none, "set", text, "root");
        assert!(set("START = ($(START)) && ($(Shutdown) == False)\nEndDownTime = 123\nShutdown = CurrentTime < EndDownTime").is_ok());
        assert!(set("suspend_vanilla : False").is_ok());
        for bad in [
            "EXECUTE = /etc",
            "XIDLE_HELPER = rm -rf /",
            "START = $ENV(SECRET)",
            "include : /etc/passwd",
            "use POLICY : Desktop",
            "START",
            "STARTD.START = True",
        ] {
            assert!(set(bad).is_err(), "{bad}");
        }
        assert!(changed(&none, "../x", "START = True", "root").is_err());
        let one = set("START = False").unwrap();
        assert!(one["set"].starts_with("# set by root\n"));
        assert!(changed(&one, "set", "", "root").unwrap().is_empty());
    }

    struct Nowhere;

    impl Host for Nowhere {
        fn read(&self, _: &str) -> Result<String, config::HostError> {
            Err(config::HostError::NotFound)
        }
        fn run(&self, _: &str) -> Result<String, config::HostError> {
            Err(config::HostError::NotFound)
        }
        fn env(&self, _: &str) -> Option<String> {
            None
        }
    }

    const TOTAL: Resources = Resources { cpus: 4, memory_mib: 4_000, disk_kib: 4_000, gpus: 0 };
    const DIVIDED: &str = "SLOT_TYPE_1 = cpus=1, memory=25%\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_2 = auto\n\
                           NUM_SLOTS_TYPE_2 = 1\nSLOT_TYPE_2_PARTITIONABLE = True\nSLOT1_START = False\n";

    fn read(text: &str, running: Option<&Layout>) -> Result<Rules, String> {
        let source = ConfigSource {
            host: &Nowhere,
            files: Vec::new(),
            directory: String::new(),
            detected: text.to_owned(),
        };
        load(&source, &Overrides::new(), TOTAL, running)
    }

    #[test]
    fn a_slots_own_policy_may_be_set_from_afar_and_nothing_else_of_it() {
        let none = Overrides::new();
        assert!(changed(&none, "set", "SLOT2_START = False\nslot_type_1_suspend = True", "root").is_ok());
        for bad in ["SLOT2_EXECUTE = /etc", "SLOT_START = True", "SLOT_TYPE_1 = 50%", "NUM_SLOTS = 2"] {
            assert!(changed(&none, "set", bad, "root").is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_that_mean_nothing_and_words_for_slots_that_are_not_there_are_not_passed_over() {
        for (text, why) in [
            ("JOB_RENICE_INCREMENT = 99\n", "between 0 and 19, not 99"),
            ("CKPT_BANDWIDTH = -1\n", "CKPT_BANDWIDTH must not be below 0"),
            ("RESERVED_DISK = -5\n", "RESERVED_DISK must not be below 0"),
            ("SLOT7_START = 3+\n", "SLOT7_START"),
            ("SLOT_TYPE_3_START = 3+\n", "SLOT_TYPE_3_START"),
            (
                "KILLING_TIMEOUT = 99999999999999999999\n",
                "KILLING_TIMEOUT is too large: 99999999999999999999",
            ),
            ("CKPT_BANDWIDTH = 99999999999999999999\n", "CKPT_BANDWIDTH is too large"),
            ("START = $(A)\nA = $(B)\nB = $(A)\n", "circular definition"),
        ] {
            let error = read(text, None).map(|_| ()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let warned = read("SLOT7_START = False\n", None).unwrap().warnings;
        assert!(warned.iter().any(|w| w.message == "SLOT7_START: this machine has no slot7"), "{warned:?}");
        // What goes round in a circle and is used by nobody is told, and refuses nothing.
        let warned = read("A = $(B)\nB = $(A)\n", None).unwrap().warnings;
        assert!(
            warned.iter().any(|w| !w.is_error() && w.message.contains("circular definition")),
            "{warned:?}"
        );
        let warned = read("SLOT_TYPE_3_START = False\n", None).unwrap().warnings;
        assert!(warned.iter().any(|w| w.message.contains("no slot of type 3")), "{warned:?}");
        assert!(read("JOB_RENICE_INCREMENT = 19\nSLOT1_START = True\n", None).unwrap().warnings.is_empty());
    }

    #[test]
    fn a_machine_that_runs_stays_divided_as_it_is() {
        let before = read(DIVIDED, None).unwrap();
        assert_eq!(before.layout.plans.len(), 2);
        let after = read("NUM_SLOTS = 4\nSLOT1_START = True\n", Some(&before.layout)).unwrap();
        assert_eq!(after.layout.plans, before.layout.plans);
        assert!(after.warnings.iter().any(|w| w.message.contains("divided anew")), "{:?}", after.warnings);
        assert!(
            read("SLOT_TYPE_1 = cpus=5\nNUM_SLOTS_TYPE_1 = 1\n", None)
                .unwrap_err()
                .contains("only 4 are left")
        );
    }

    #[test]
    fn the_owner_tells_of_every_slot_and_keeps_claims_in_theirs() {
        use claims::owner::{Owner, Whom, Wish};
        use policy::{Input, SlotId};
        let rules = read(DIVIDED, None).unwrap();
        let now = model::Now { mono_ms: 1, wall_ms: 1_700_000_000_000 };
        let mut owner = Owner::new(now, "desk", &rules.policy, &rules.layout, Vec::new(), Vec::new());
        let (total, ad, more) = owner.slots();
        let kind = |ad: &[model::template::Attribute]| {
            ad.iter().find(|a| a.name.eq_ignore_ascii_case("SlotType")).map(|a| a.expr.clone())
        };
        assert_eq!((total.cpus, total.memory_mib, kind(&ad).as_deref()), (1, 1_000, Some("\"Static\"")));
        assert_eq!((more.len(), more[0].number, more[0].total.cpus), (1, 2, 3));
        assert_eq!(kind(&more[0].ad).as_deref(), Some("\"Partitionable\""));
        let job = model::report::Attempt { cluster: 1, proc: 0, attempt: 1 };
        let wants =
            classad::ClassAd::parse_new("[RequestCpus = 2; RequestMemory = 10; RequestDisk = 0]").unwrap();
        owner.offer(now, 5, SlotId { number: 2, child: 1 }, None, job, wants.clone());
        assert!(owner.wishes().contains(&Wish::Run(5)));
        owner.offer(now, 6, SlotId::new(1), None, job, wants);
        assert!(owner.wishes_against(6), "START is false in the first slot");
        assert_eq!(owner.claims_of(Whom::Slot(SlotId::new(2))), [5]);
        assert!(owner.claims_of(Whom::Slot(SlotId::new(1))).is_empty());
        owner.wishes();
        let vacate = |slot| Input::Vacate { slot, fast: false };
        assert!(owner.command(now, Whom::Slot(SlotId::new(1)), "", vacate).is_err(), "nothing is there");
        assert!(owner.command(now, Whom::Slot(SlotId::new(9)), "", vacate).is_err());
        owner.command(now, Whom::Slot(SlotId::new(2)), "the rack moves", vacate).unwrap();
        let evicted = owner.wishes().into_iter().find_map(|w| match w {
            Wish::Evict { claim: 5, reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(evicted.as_deref(), Some("the rack moves"));
    }

    #[test]
    fn sets_survive_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let files = OverrideFiles::new(dir.path());
        assert!(files.read().is_empty());
        files.write("a", "START = False\n").unwrap();
        files.write("b", "KILL = True\n").unwrap();
        files.write("b", "").unwrap();
        files.write("b", "").unwrap();
        assert_eq!(files.read().into_iter().collect::<Vec<_>>(), [("a".into(), "START = False\n".into())]);
    }
}
