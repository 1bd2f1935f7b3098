//! Job state monitors in the configuration: `MONITORS` lists schedulers, `MONITOR_NAME_...` is the section of one.

use std::time::Duration;

use bridge::monitor::{Command, Settings};
use config::{Config, Diagnostic, Diagnostics, names};

/// What a section may set, with what it is for the check.
const KEYS: [(&str, Kind); 13] = [
    ("COMMAND", Kind::Text),
    ("USER", Kind::Text),
    ("LOG_PATH", Kind::Path),
    ("DATUM", Kind::Path),
    ("DISCARD", Kind::Number),
    ("CACHE_EVENTS", Kind::Number),
    ("CACHE_BYTES", Kind::Number),
    ("QUEUE_EVENTS", Kind::Number),
    ("KEEP", Kind::Number),
    ("SLACK", Kind::Number),
    ("PATIENCE", Kind::Number),
    ("THREADS", Kind::Number),
    ("RAW", Kind::Boolean),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Path,
    Number,
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
    Ok(list.split([',', ' ', '\t', '\n']).filter(|s| !s.is_empty()).map(str::to_owned).collect())
}

/// Checks all sections.
pub(crate) fn check(config: &Config<'_>) -> Result<(), Diagnostics> {
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
    for section in &sections {
        if let Err(Diagnostics(found)) = read(config, section) {
            findings.extend(found);
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(Diagnostics(findings)) }
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
            Kind::Number => config.integer(&name).map(|v| numbers[at] = v),
            Kind::Boolean => config.boolean(&name).map(|v| numbers[at] = v.map(i64::from)),
        };
        if let Err(finding) = outcome {
            findings.push(finding);
        }
        let complaint = match (kind, &texts[at], numbers[at]) {
            (Kind::Number, _, Some(n)) if n < 0 => Some(format!("{name} = {n} is negative")),
            (Kind::Path, Some(path), _) if !path.starts_with('/') => {
                Some(format!("{name} = {path} is not a whole path; begin it with /"))
            }
            _ => None,
        };
        findings.extend(complaint.map(Diagnostic::error));
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
