//! Job state monitors in the configuration: `MONITORS` lists schedulers, `MONITOR_NAME_...` is the section of one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge::monitor::{Command, Settings};
use config::{Config, Diagnostic, Diagnostics, names};

/// Ten years: who wants to wait longer has made a mistake.
const LONG_S: i64 = 10 * 366 * 86_400;

/// What a section may set, with what it is for the check.
const KEYS: [(&str, Kind); 13] = [
    ("COMMAND", Kind::Text),
    ("USER", Kind::Text),
    ("LOG_PATH", Kind::Path),
    ("DATUM", Kind::Path),
    ("DISCARD", Kind::Number(0, LONG_S)),
    ("CACHE_EVENTS", Kind::Number(1, 1_000_000_000)),
    ("CACHE_BYTES", Kind::Number(1_024, 1 << 40)),
    ("QUEUE_EVENTS", Kind::Number(1, 1_000_000_000)),
    ("KEEP", Kind::Number(0, LONG_S)),
    ("SLACK", Kind::Number(0, LONG_S)),
    ("PATIENCE", Kind::Number(0, 86_400)),
    ("THREADS", Kind::Number(1, 256)),
    ("RAW", Kind::Boolean),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Path,
    /// Not below the first and not above the second.
    Number(i64, i64),
    Boolean,
}

/// `pbs` to `MONITOR_PBS_`.
fn prefix(scheduler: &str) -> String {
    let name: String = scheduler
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("MONITOR_{name}_")
}

/// The schedulers that have a section.
fn sections(config: &Config<'_>) -> Result<Vec<String>, Diagnostic> {
    let list = config.get("MONITORS")?.unwrap_or_default();
    let mut sections: Vec<String> = Vec::new();
    for name in list.split([',', ' ', '\t', '\n']).filter(|s| !s.is_empty()) {
        if !sections.iter().any(|section| section == name) {
            sections.push(name.to_owned());
        }
    }
    Ok(sections)
}

/// Checks all sections. Returns what is wrong and what is doubtful.
pub(crate) fn check(config: &Config<'_>) -> Result<Vec<Diagnostic>, Diagnostics> {
    let sections = sections(config)?;
    let mut findings = Vec::new();
    for definition in config.definitions() {
        let name = definition.name.to_ascii_uppercase();
        if !name.starts_with("MONITOR_") || &**definition.span.file() == "detected" {
            continue;
        }
        let known: Vec<String> =
            sections.iter().flat_map(|s| KEYS.iter().map(|(key, _)| prefix(s) + key)).collect();
        if known.contains(&name) {
            continue;
        }
        let finding = Diagnostic::error(format!("{name} is no setting of a monitor"))
            .at(definition.span.place(0, definition.raw.len()));
        findings.push(match names::suggest(&name, known.iter().map(String::as_str)) {
            Some(near) => finding.hint(format!("did you mean {near}?")),
            None => finding.hint("MONITORS lists the schedulers that have settings MONITOR_NAME_..."),
        });
    }
    let mut datums: Vec<(PathBuf, &str)> = Vec::new();
    for section in &sections {
        let settings = match read(config, section) {
            Ok(settings) => settings,
            Err(Diagnostics(found)) => {
                findings.extend(found);
                continue;
            }
        };
        findings.extend(check_world(&settings, section));
        let Some(datum) = settings.datum.as_deref().map(real_path) else { continue };
        match datums.iter().find(|(other, _)| *other == datum) {
            Some((_, other)) => findings.push(
                Diagnostic::error(format!(
                    "the monitors of {other} and {section} have the same datum, {}",
                    datum.display()
                ))
                .hint("give each a file of its own: only one of them would start"),
            ),
            None => datums.push((datum, section)),
        }
    }
    Ok(findings)
}

/// The same for every way to write the path of a file that need not be there yet.
fn real_path(path: &Path) -> PathBuf {
    let whole = path.canonicalize().ok();
    whole.unwrap_or_else(|| {
        match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
            (Some(parent), Some(name)) => parent.join(name),
            _ => path.to_owned(),
        }
    })
}

/// A log path that our own generator would not read. A log may come later, where its directory is; one that must not be looked at by
/// whoever checks is not doubted.
fn check_log(path: &Path, scheduler: &str, prefix: &str) -> Option<Diagnostic> {
    use bridge::seg::Module;
    let name = format!("{prefix}LOG_PATH = {}", path.display());
    let module = Module::by_name(scheduler)?;
    let wants_directory =
        matches!(module, Module::Pbs | Module::PbsAccounting | Module::Lsf | Module::JobManager);
    let wrong = |text: &str| Some(Diagnostic::error(format!("{name}: {text}")));
    match path.metadata() {
        Ok(meta) if meta.is_dir() && (wants_directory || module == Module::Condor) => None,
        Ok(meta) if meta.is_file() && !wants_directory => None,
        Ok(_) if wants_directory => wrong("this is no directory, and the log of this scheduler is one"),
        Ok(meta) if meta.is_dir() => wrong("this is a directory, and the log of this scheduler is a file"),
        Ok(_) => wrong("this is no file"),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => None,
        Err(_) if wants_directory => wrong("there is no such directory"),
        Err(_) if path.parent().is_some_and(Path::is_dir) => {
            Some(Diagnostic::warning(format!("{name}: there is no such file; it is waited for")))
        }
        Err(_) => wrong("there is no such file, nor its directory"),
    }
}

/// What a section says about this machine: the scheduler, the user, the program, the place of the datum.
fn check_world(settings: &Settings, scheduler: &str) -> Vec<Diagnostic> {
    let prefix = prefix(scheduler);
    let command = &settings.command;
    let mut complaints = Vec::new();
    let is_ours = command.words.is_empty() || command.is_ours;
    let is_built_in =
        bridge::seg::Module::by_name(scheduler).is_some() || ["poll", "updraft"].contains(&scheduler);
    let is_name = scheduler.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && scheduler.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !is_name {
        complaints.push(format!("MONITORS lists {scheduler:?}, which is no name of a scheduler"));
    } else if is_ours && !is_built_in && !is_module(scheduler) {
        complaints.push(format!(
            "MONITORS lists {scheduler}, for which `updraft seg` has no module, nor is libupdraft_seg_{scheduler}.so to be found; {prefix}COMMAND may name another generator"
        ));
    }
    if let Some(user) = &command.user
        && !user_exists(user)
    {
        complaints.push(format!("{prefix}USER = {user}: there is no such user"));
    }
    let sudo = Path::new(&command.sudo);
    if command.user.is_some() && !is_program(sudo) {
        complaints.push(format!(
            "{prefix}USER: {} is not to be found, and only by way of it can a generator run as another user; install it, or leave {prefix}USER out",
            sudo.display()
        ));
    }
    if let Some(program) = command.words.first().map(Path::new)
        && !is_program(program)
    {
        complaints.push(format!("{prefix}COMMAND: {} is no program that can be run", program.display()));
    }
    if let Some(datum) = &settings.datum {
        let place = datum.parent().filter(|_| datum.file_name().is_some());
        if datum.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
            complaints.push(format!(
                "{prefix}DATUM = {} is a symbolic link; name the file itself",
                datum.display()
            ));
        } else if datum.is_dir() || place.is_none() {
            complaints.push(format!("{prefix}DATUM = {} is a directory; name a file in it", datum.display()));
        } else if let Some(place) = place.filter(|place| !place.is_dir()) {
            complaints.push(format!("{prefix}DATUM: there is no directory {}", place.display()));
        }
    }
    let mut findings: Vec<_> = complaints.into_iter().map(Diagnostic::error).collect();
    let log = command.log_path.as_deref().filter(|_| is_ours);
    findings.extend(log.and_then(|log| check_log(log, scheduler, &prefix)));
    findings
}

/// Is there such a user? As the system's own list of them says; where it cannot be asked nobody is refused.
fn user_exists(user: &str) -> bool {
    let asked = std::process::Command::new("getent")
        .args(["passwd", "--", user])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    // 2: it is not there.
    asked.map_or(true, |status| status.code() != Some(2))
}

fn is_too_great(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<i64>().is_err()
}

fn is_program(path: &Path) -> bool {
    let can_run =
        |file: &Path| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    if path.as_os_str().as_encoded_bytes().contains(&b'/') {
        return can_run(path);
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).any(|place| can_run(&place.join(path)))
}

/// A module of others, where the loader looks first.
fn is_module(scheduler: &str) -> bool {
    let name = format!("libupdraft_seg_{scheduler}.so");
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64"].map(PathBuf::from);
    std::env::split_paths(&own).chain(usual).any(|place| place.join(&name).exists())
}

/// The settings of one scheduler. The command is empty where the section names none.
pub(crate) fn read(config: &Config<'_>, scheduler: &str) -> Result<Settings, Diagnostics> {
    let prefix = prefix(scheduler);
    let mut findings = Vec::new();
    let mut numbers = [None; KEYS.len()];
    let mut texts: [Option<String>; KEYS.len()] = Default::default();
    for (at, (key, kind)) in KEYS.iter().enumerate() {
        let name = format!("{prefix}{key}");
        let outcome = match kind {
            Kind::Text | Kind::Path => {
                config.get(&name).map(|v| texts[at] = v.filter(|t| !t.trim().is_empty()))
            }
            Kind::Number(..) => config.integer(&name).map(|v| numbers[at] = v),
            Kind::Boolean => config.boolean(&name).map(|v| numbers[at] = v.map(i64::from)),
        };
        if let Err(finding) = outcome {
            findings.push(finding);
        }
        // A number that is too great is another one by now.
        let is_too_great = matches!(kind, Kind::Number(..))
            && config.get(&name).ok().flatten().is_some_and(|text| is_too_great(text.trim()));
        let complaint = match (kind, &texts[at], numbers[at]) {
            _ if is_too_great => Some(format!("{name} is too great a number")),
            (Kind::Number(..), _, Some(n)) if n < 0 => Some(format!("{name} = {n} is negative")),
            (Kind::Number(lowest, highest), _, Some(n)) if !(*lowest..=*highest).contains(&n) => {
                Some(format!("{name} = {n} is not between {lowest} and {highest}"))
            }
            (Kind::Path, Some(path), _) if !path.starts_with('/') => {
                Some(format!("{name} = {path} is not a whole path; begin it with /"))
            }
            _ => None,
        };
        findings.extend(complaint.map(Diagnostic::error));
        let is_set = config.definitions().any(|definition| definition.name.eq_ignore_ascii_case(&name));
        if *key == "COMMAND" && is_set && texts[at].is_none() {
            findings
                .push(Diagnostic::error(format!("{name} is set to nothing; leave it out for `updraft seg`")));
        }
    }
    let position = |key: &str| KEYS.iter().position(|(k, _)| *k == key).unwrap_or(0);
    let text = |key: &str| texts[position(key)].clone();
    let number = |key: &str| numbers[position(key)].and_then(|n| u64::try_from(n).ok());
    let words = text("COMMAND").map(|c| c.split_whitespace().map(Into::into).collect()).unwrap_or_default();
    let mut command = Command::new(words, scheduler);
    command.user = text("USER");
    command.log_path = text("LOG_PATH").map(Into::into);
    if command.log_path.is_some() && !command.words.is_empty() && !command.is_ours {
        findings.push(Diagnostic::error(format!(
            "{prefix}LOG_PATH has no effect: {prefix}COMMAND is not `updraft seg`, and only that takes a log path"
        )));
    }
    let mut settings = Settings::new(command);
    settings.datum = text("DATUM").map(Into::into);
    let limits = &mut settings.limits;
    limits.discard_ms = number("DISCARD").map_or(limits.discard_ms, |s| s.saturating_mul(1_000));
    limits.cache_events = number("CACHE_EVENTS").map_or(limits.cache_events, |n| n as usize);
    limits.cache_bytes = number("CACHE_BYTES").map_or(limits.cache_bytes, |n| n as usize);
    limits.queue_events = number("QUEUE_EVENTS").map_or(limits.queue_events, |n| n as usize);
    limits.keep_s = number("KEEP").map_or(limits.keep_s, |n| n as i64);
    limits.slack_s = number("SLACK").map_or(limits.slack_s, |n| n as i64);
    limits.raw = number("RAW").is_some_and(|n| n > 0);
    settings.threads = number("THREADS").map_or(settings.threads, |n| n.clamp(1, 256) as usize);
    settings.patience = number("PATIENCE").map_or(settings.patience, Duration::from_secs);
    if findings.is_empty() { Ok(settings) } else { Err(Diagnostics(findings)) }
}
