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

use config::{Config, Host, Loader};
use policy::{Expression, Policy};
use submit::args::{self, Form};

use crate::{hooks, sensors};

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
    /// JOB_RENICE_INCREMENT.
    pub(crate) nice: u32,
    /// How long a job that must leave may take, at most.
    pub(crate) max_vacate_ms: u64,
    /// CKPT_BANDWIDTH in bytes per second; 0 for no cap.
    pub(crate) bandwidth: u64,
    pub(crate) sensors: sensors::Settings,
    /// PROVISION_COMMAND and RELEASE_COMMAND.
    pub(crate) hooks: hooks::Settings,
    /// Every setting with value and source, for people.
    pub(crate) listing: String,
    pub(crate) warnings: Vec<String>,
}

/// Overrides by the name of their set.
pub(crate) type Overrides = BTreeMap<String, String>;

/// Reads everything; any error refuses the whole, with every place named. Later overrides win.
pub(crate) fn load<'a>(
    source: &ConfigSource,
    overrides: impl IntoIterator<Item = (&'a String, &'a String)>,
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
    let policy = Policy::from_config(&config).map_err(|e| e.to_string())?;
    let warnings = config.warnings.iter().chain(&policy.warnings).map(ToString::to_string).collect();
    let number = |name: &str| -> Result<Option<f64>, String> {
        let text = config.text(name).map_err(|e| e.to_string())?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let value = config::scalar::evaluate(&text).ok().and_then(|v| v.as_real());
        value.map(Some).ok_or_else(|| format!("{name} must be a number, not {text}"))
    };
    let whole = |name: &str| Ok::<u64, String>(number(name)?.unwrap_or(0.0).max(0.0) as u64);
    let text = |name: &str| config.text(name).map_err(|e| e.to_string());
    let words = |list: String| -> Vec<String> {
        list.split([',', ' ']).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let poll_seconds = (policy.timers.poll_ms / 1000).max(1);
    let hook = |what: &str| -> Result<Option<hooks::Hook>, String> {
        let name = format!("{what}_COMMAND");
        let words = args::split(Form::New, text(&name)?.trim()).map_err(|e| format!("{name}: {e}"))?;
        let seconds = number(&format!("{what}_TIMEOUT"))?.unwrap_or(600.0).clamp(0.01, 86_400.0);
        let tries = whole(&format!("{what}_RETRIES"))?.min(100) as u32 + 1;
        let time = Duration::from_secs_f64(seconds);
        Ok((!words.is_empty()).then_some(hooks::Hook { words, time, tries }))
    };
    let hooks = hooks::Settings { provision: hook("PROVISION")?, release: hook("RELEASE")? };
    Ok(Rules {
        nice: whole("JOB_RENICE_INCREMENT")?.min(19) as u32,
        max_vacate_ms: (number("MachineMaxVacateTime")?.unwrap_or(600.0).max(0.0) * 1000.0) as u64,
        // Megabits, as networks are sold; 128 KiB each, as the seed counts them.
        bandwidth: (number("CKPT_BANDWIDTH")?.unwrap_or(0.0).max(0.0) * 131_072.0) as u64,
        sensors: sensors::Settings {
            reserved_disk_mib: whole("RESERVED_DISK")?,
            reserved_memory_mib: whole("RESERVED_MEMORY")?,
            console_devices: words(text("CONSOLE_DEVICES")?),
            xidle_helper: Some(text("XIDLE_HELPER")?).filter(|c| !c.trim().is_empty()),
            poll_seconds,
            ..sensors::Settings::default()
        },
        hooks,
        listing: listing(&config),
        warnings,
        policy,
    })
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
