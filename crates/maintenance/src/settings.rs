//! From a configuration to settings and events, with a finding for everything that is wrong.
//!
//! One bad event never takes another with it. What a line may say is [`crate::event`]'s business, files and macros
//! are the crate `config`'s, and zone data comes from the caller: looking it up would be IO.

use classad::{ClassAd, Expr, Value};
use config::settings::Origin;
use config::{Config, Diagnostic, Place};
use jiff::tz::TimeZone;

use crate::event::{self, Event};
use crate::limits;

/// Everything the core is configured with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Valid events in the order of EVENT_LIST.
    pub events: Vec<Event>,
    /// The zone in which days and times are meant.
    pub zone: TimeZone,
    /// EVENTD_INTERVAL: seconds between looks at the pool.
    pub interval_s: i64,
    /// EVENTD_MAX_PREPARATION: no look earlier than this before a start; 0 is no such limit.
    pub max_preparation_s: i64,
    /// EVENTD_SHUTDOWN_SLOW_START_INTERVAL: seconds between the ends of two machines.
    pub slow_start_s: i64,
    /// EVENTD_SHUTDOWN_CLEANUP_INTERVAL: seconds between searches for stale overrides.
    pub cleanup_s: i64,
    /// EVENTD_WARNING: how long before a start jobs without a checkpoint are warned; 0 is only just before.
    pub warning_s: i64,
    /// EVENTD_SIMULATE_SHUTDOWNS: decide and log, command nothing.
    pub dry_run: bool,
    /// EVENTD_LOG: for the driver.
    pub log: String,
    /// EVENTD_DEBUG: for the driver.
    pub debug: String,
    /// EVENTD_DRAIN_MANAGERS: other managers that start nothing new while an event is active, for the driver.
    pub managers: Vec<Manager>,
    /// What is wrong with settings that all events share: with another zone or without a drain than was meant no window may be carried
    /// out. What is wrong with one event costs that one only, and is not in here.
    pub unusable: Vec<Diagnostic>,
}

/// As configuration text, from which [`Settings::load`] makes the same settings (what is only for the driver is left out). A zone
/// without a name is left out too: its reader takes the local one.
impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.events.iter().map(|e| e.name.as_str()).collect();
        writeln!(f, "EVENT_LIST = {}", names.join(", "))?;
        writeln!(f, "EVENTD_INTERVAL = {}", self.interval_s)?;
        writeln!(f, "EVENTD_MAX_PREPARATION = {}", self.max_preparation_s)?;
        writeln!(f, "EVENTD_SHUTDOWN_SLOW_START_INTERVAL = {}", self.slow_start_s)?;
        writeln!(f, "EVENTD_SHUTDOWN_CLEANUP_INTERVAL = {}", self.cleanup_s)?;
        writeln!(f, "EVENTD_WARNING = {}", self.warning_s)?;
        writeln!(f, "EVENTD_SIMULATE_SHUTDOWNS = {}", self.dry_run)?;
        if let Some(zone) = self.zone.iana_name() {
            writeln!(f, "EVENTD_TIME_ZONE = {zone}")?;
        }
        for event in &self.events {
            writeln!(f, "{} = {}", event.name, event.line)?;
            writeln!(f, "{} = {}", event.line.constraint.1, event.constraint)?;
            writeln!(f, "{} = {}", event.line.rank.1, event.rank)?;
        }
        Ok(())
    }
}

/// Another manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// `HOST:PORT`, or the path of a Unix socket.
    pub address: String,
    /// The file with the token for it; empty for a Unix socket.
    pub token_file: String,
}

impl std::str::FromStr for Manager {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} names no manager: write HOST:PORT=TOKENFILE, or the path of a socket");
        if text.starts_with('/') {
            return Ok(Self { address: text.to_owned(), token_file: String::new() });
        }
        let (address, file) = text.split_once('=').ok_or_else(bad)?;
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || file.is_empty() {
            return Err(bad());
        }
        Ok(Self { address: address.to_owned(), token_file: file.to_owned() })
    }
}

/// What is said of a configuration without events.
pub const NO_EVENTS: &str = "EVENT_LIST is empty: there is nothing to do";

impl Default for Settings {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            zone: TimeZone::UTC,
            interval_s: 900,
            max_preparation_s: 0,
            slow_start_s: 0,
            cleanup_s: 3_600,
            warning_s: 3_600,
            dry_run: false,
            log: String::new(),
            debug: "D_ALWAYS".to_owned(),
            managers: Vec::new(),
            unusable: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads a configuration. `local` is the zone of this machine, `find` looks up the zone that EVENTD_TIME_ZONE
    /// names. Findings are errors (that part is left out or keeps its default) and warnings.
    pub fn load(
        config: &Config<'_>,
        local: TimeZone,
        find: &dyn Fn(&str) -> Option<TimeZone>,
    ) -> (Self, Vec<Diagnostic>) {
        let mut findings = Vec::new();
        let mut seconds = |name: &str, least: i64, default: i64| match config.integer(name) {
            Ok(Some(value)) if (least..=limits::INTERVAL_SECONDS).contains(&value) => value,
            Ok(Some(value)) => {
                let message =
                    format!("{name} is {value}; it must be {least} to {}", limits::INTERVAL_SECONDS);
                findings.push(placed(config, name, Diagnostic::error(message)));
                default
            }
            Ok(None) => default,
            Err(finding) => {
                findings.push(finding);
                default
            }
        };
        let mut settings = Self {
            interval_s: seconds("EVENTD_INTERVAL", 1, 900),
            max_preparation_s: seconds("EVENTD_MAX_PREPARATION", 0, 0),
            slow_start_s: seconds("EVENTD_SHUTDOWN_SLOW_START_INTERVAL", 0, 0),
            cleanup_s: seconds("EVENTD_SHUTDOWN_CLEANUP_INTERVAL", 1, 3_600),
            warning_s: seconds("EVENTD_WARNING", 0, 3_600),
            zone: local,
            ..Self::default()
        };
        let mut text = |name: &str| {
            config.text(name).unwrap_or_else(|finding| {
                findings.push(finding);
                String::new()
            })
        };
        settings.log = text("EVENTD_LOG");
        settings.debug = text("EVENTD_DEBUG");
        let managers = text("EVENTD_DRAIN_MANAGERS");
        let zone = text("EVENTD_TIME_ZONE").trim().to_owned();
        let domain = text("EVENTD_BANDWIDTH_DOMAIN").trim().to_owned();
        settings.dry_run = config.boolean("EVENTD_SIMULATE_SHUTDOWNS").unwrap_or_else(|finding| {
            findings.push(finding);
            None
        }) == Some(true);
        for one in managers.split([',', ' ', '\t']).filter(|m| !m.is_empty()) {
            match one.parse() {
                Ok(manager) => settings.managers.push(manager),
                Err(why) => {
                    findings.push(placed(config, "EVENTD_DRAIN_MANAGERS", Diagnostic::error(why)));
                }
            }
        }
        // Not for us, but for the machines; whoever writes them here by hand had better know.
        findings.extend(config::WINDOW_MOMENTS.iter().filter_map(|name| config.integer(name).err()));
        if !zone.is_empty() {
            match find(&zone) {
                Some(found) => settings.zone = found,
                None => findings.push(placed(
                    config,
                    "EVENTD_TIME_ZONE",
                    Diagnostic::error(format!("no time zone is called {zone:?}"))
                        .hint("a name such as Europe/Berlin; without one the zone of this machine counts"),
                )),
            }
        }
        if !domain.is_empty() && !config::names::is_name(&domain) {
            let message = format!("EVENTD_BANDWIDTH_DOMAIN must name one machine attribute, not {domain:?}");
            findings.push(placed(config, "EVENTD_BANDWIDTH_DOMAIN", Diagnostic::error(message)));
        }
        settings.unusable = findings.iter().filter(|finding| finding.is_error()).cloned().collect();
        let domain = Some(domain).filter(|d| config::names::is_name(d));
        settings.read_events(config, domain.as_deref(), &mut findings);
        (settings, findings)
    }

    fn read_events(&mut self, config: &Config<'_>, domain: Option<&str>, findings: &mut Vec<Diagnostic>) {
        let list = config.text("EVENT_LIST").unwrap_or_else(|finding| {
            findings.push(finding);
            String::new()
        });
        let mut seen: Vec<String> = Vec::new();
        let names = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|n| !n.is_empty());
        for (index, name) in names.enumerate() {
            if index >= limits::EVENTS {
                let message =
                    format!("EVENT_LIST has more than {} events; the rest is ignored", limits::EVENTS);
                findings.push(placed(config, "EVENT_LIST", Diagnostic::error(message)));
                break;
            }
            if seen.contains(&name.to_ascii_lowercase()) {
                let message = format!("event {name} is listed twice; it counts once");
                findings.push(listed(config, name, Diagnostic::warning(message)));
                continue;
            }
            seen.push(name.to_ascii_lowercase());
            match read_event(config, name, domain) {
                Ok(mut event) => {
                    // Attribute names have no case; one spelling, so that events share the lanes of a domain.
                    if let Some(mine) = &mut event.line.domain {
                        let known = self.events.iter().filter_map(|e| e.line.domain.as_ref());
                        if let Some(same) = known.into_iter().find(|d| d.eq_ignore_ascii_case(mine)) {
                            mine.clone_from(same);
                        }
                    }
                    // As with any other rank that is no number for a machine: everybody is equal by it.
                    findings.extend(no_number(&event.rank).map(|value| {
                        let rank = &event.line.rank.1;
                        let message = format!(
                            "event {name}: {rank} is always {value}, which is no number: nobody goes before others by it"
                        );
                        placed(config, rank, Diagnostic::warning(message))
                    }));
                    self.events.push(event);
                }
                Err(wrong) => findings.extend(wrong),
            }
        }
        if seen.is_empty() {
            findings.push(
                Diagnostic::warning(NO_EVENTS)
                    .hint("EVENT_LIST = Weekly, and Weekly = SHUTDOWN W 16:00 3600 2 Constraint Rank"),
            );
        }
    }

    /// The event of a name, without regard to case.
    pub fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|e| e.name.eq_ignore_ascii_case(name))
    }
}

fn read_event(config: &Config<'_>, name: &str, domain: Option<&str>) -> Result<Event, Vec<Diagnostic>> {
    let text = match config.get(name) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let finding = Diagnostic::error(format!("event {name} is listed but not defined"));
            let near = config::names::suggest(name, config.definitions().map(|d| d.name.as_str()));
            return Err(vec![listed(
                config,
                name,
                match near {
                    Some(near) => finding.hint(format!("did you mean {near}?")),
                    None => finding.hint(format!("write {name} = SHUTDOWN W 16:00 3600 2 Constraint Rank")),
                },
            )]);
        }
        Err(finding) => return Err(vec![finding]),
    };
    let mut line = event::parse(&text).map_err(|faults| {
        faults
            .into_iter()
            .map(|fault| {
                let mut finding = Diagnostic::error(format!("event {name}: {}", fault.message));
                finding.hint = fault.hint;
                in_line(config, name, &text, fault.offset, fault.length, finding)
            })
            .collect::<Vec<_>>()
    })?;
    let mut wrong = Vec::new();
    let constraint = named_expression(config, name, &text, &line.constraint, &mut wrong);
    let rank = named_expression(config, name, &text, &line.rank, &mut wrong);
    if let Some(expr) = &constraint {
        wrong.extend(never_true(expr).map(|value| {
            let message =
                format!("event {name}: {} is always {value}: no machine can match it", line.constraint.1);
            placed(config, &line.constraint.1, Diagnostic::error(message))
        }));
    }
    match (constraint, rank) {
        (Some(constraint), Some(rank)) if wrong.is_empty() => {
            line.domain = line.domain.take().or_else(|| domain.map(str::to_owned));
            Ok(Event {
                name: name.to_owned(),
                place: place(config, name, 0, text.len()),
                line,
                constraint,
                rank,
            })
        }
        _ => Err(wrong),
    }
}

/// The value of a constraint that is the same for every machine and not true.
fn never_true(expr: &Expr) -> Option<String> {
    let flat = ClassAd::new().flatten(expr);
    flat.as_literal().filter(|value| !value.is_true()).map(|_| flat.to_string())
}

/// The value of a rank that is the same for every machine and no number.
fn no_number(expr: &Expr) -> Option<String> {
    let flat = ClassAd::new().flatten(expr);
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Real(_) | Value::Bool(_));
    flat.as_literal().filter(|value| !is_number(value)).map(|_| flat.to_string())
}

fn named_expression(
    config: &Config<'_>,
    event: &str,
    text: &str,
    (offset, macro_name): &(usize, String),
    wrong: &mut Vec<Diagnostic>,
) -> Option<Expr> {
    match config.expression(macro_name) {
        Ok(Some(expr)) => Some(expr),
        Ok(None) => {
            let finding = Diagnostic::error(format!("event {event}: macro {macro_name} is not defined"));
            let near = config::names::suggest(macro_name, config.definitions().map(|d| d.name.as_str()));
            let finding = match near {
                Some(near) => finding.hint(format!("did you mean {near}?")),
                None => finding.hint(format!("define {macro_name} = <expression over machine ads>")),
            };
            wrong.push(in_line(config, event, text, *offset, macro_name.len(), finding));
            None
        }
        Err(mut finding) => {
            finding.message = format!("event {event}: {}", finding.message);
            wrong.push(finding);
            None
        }
    }
}

fn place(config: &Config<'_>, name: &str, offset: usize, length: usize) -> Option<Place> {
    match config.origin(name) {
        Some(Origin::Definition(d)) => Some(d.span.place(offset, length.max(1))),
        _ => None,
    }
}

/// At the value of a setting as a whole.
fn placed(config: &Config<'_>, name: &str, finding: Diagnostic) -> Diagnostic {
    let length = match config.origin(name) {
        Some(Origin::Definition(d)) => d.raw.len(),
        _ => 1,
    };
    match place(config, name, 0, length) {
        Some(place) => finding.at(place),
        None => finding,
    }
}

/// At a part of an event's line; macros in it shift the text, then the whole value is shown.
fn in_line(
    config: &Config<'_>,
    name: &str,
    text: &str,
    offset: usize,
    length: usize,
    finding: Diagnostic,
) -> Diagnostic {
    match config.origin(name) {
        Some(Origin::Definition(d)) if d.raw == text => finding.at(d.span.place(offset, length)),
        _ => placed(config, name, finding),
    }
}

/// At a name inside EVENT_LIST.
fn listed(config: &Config<'_>, name: &str, finding: Diagnostic) -> Diagnostic {
    match config.origin("EVENT_LIST") {
        Some(Origin::Definition(d)) => match d.raw.rfind(name) {
            Some(at) => finding.at(d.span.place(at, name.len())),
            None => placed(config, "EVENT_LIST", finding),
        },
        _ => finding,
    }
}
