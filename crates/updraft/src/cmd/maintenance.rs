//! `updraft eventd` and `updraft maintenance`: windows in which machines are empty.

use std::path::PathBuf;
use std::process::ExitCode;

use api::rest::{DrainRequest, MaintenanceReport};
use clap::Subcommand;
use eventd::{Carrier, Changes, MachineSeen, Remote};
use jiff::Timestamp;
use maintenance::simulate::{self, Scenario};
use maintenance::{Begun, Override, Settings, Window};

use crate::cmd::{
    Failure, Hangup, Hangups, full_runtime, print, print_json, small_runtime, stop_signal, usage,
};
use crate::configuration;
use crate::place::Place;
use crate::table::Table;

/// Carry out maintenance windows on a pool that runs elsewhere
///
/// Reads EVENT_LIST and its kin (docs/maintenance.md). `updraft up` does the same by itself when its configuration lists
/// events. Waits for a manager that is not up yet, and connects again when one was started anew.
#[derive(Debug, clap::Args)]
pub(crate) struct EventdArgs {
    /// Configuration; may be repeated. Default: $UPDRAFT_CONFIG, /etc/updraft/updraft.conf
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// Show, try and change maintenance windows
///
/// Of the running pool, as whoever carries its windows out tells the manager; with --config of a file. When no pool answers, of
/// $UPDRAFT_CONFIG or /etc/updraft/updraft.conf.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// The windows of this configuration instead of the running pool's; may be repeated
    #[arg(long, value_name = "FILE", global = true)]
    config: Vec<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every event with its next window
    List,
    /// Who would leave when, with which bandwidth, and what is at risk
    Plan {
        /// Draw the timeline into this file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Rows to print at most
        #[arg(long, default_value_t = 50)]
        rows: usize,
    },
    /// Play the next windows in virtual time against the machines and jobs of now
    Simulate {
        /// Hours to play
        #[arg(long, default_value_t = 24)]
        hours: u32,
    },
    /// Add a window of an event
    Start {
        /// The event
        event: String,
        /// How long until it begins: 90s, 15m, 2h
        #[arg(long = "in", value_name = "TIME", default_value = "0s", value_parser = span)]
        wait: i64,
        /// How long it lasts: 90s, 15m, 2h
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span)]
        duration: i64,
    },
    /// Have nothing new start for a while; jobs queue on, and what runs is left alone
    Drain {
        /// A name for it
        name: String,
        /// For how long at most: 90s, 15m, 2h
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = span)]
        long: i64,
        /// Only on machines for whose ads this expression is true
        #[arg(long, value_name = "EXPRESSION", default_value = "")]
        machines: String,
        /// Why
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// End a drain
    Resume {
        /// Its name
        name: String,
    },
    /// Cancel the current or next window of an event
    Cancel {
        /// The event
        event: String,
    },
}

pub(crate) fn eventd(args: &EventdArgs, place: &Place) -> Result<ExitCode, Failure> {
    let mut settings = of_files(&args.config)?;
    let changes = Changes::new(&place.state()?, Carrier::Daemon);
    if settings.events.is_empty() && changes.read_begun().is_ok_and(|begun| begun.is_empty()) {
        return Err(usage(
            "EVENT_LIST names no usable event, so there is nothing to do; see docs/maintenance.md",
        ));
    }
    let (endpoint, token) = place.endpoint()?;
    let by = format!("eventd on {}", agent::host_name());
    tracing::info!(target: "eventd", manager = %endpoint, events = settings.events.len(), "carrying windows out");
    full_runtime()?.block_on(async {
        let mut hangups = Hangups::listen()?;
        let stop_signal = stop_signal();
        tokio::pin!(stop_signal);
        loop {
            let pool = Remote::new(endpoint.clone(), token.clone());
            let driving = eventd::drive(pool, settings.clone(), changes.clone(), by.clone());
            tokio::pin!(driving);
            // Until other windows are to be carried out.
            let signal = loop {
                tokio::select! {
                    result = &mut driving => {
                        return result.map(|()| ExitCode::SUCCESS).map_err(|e| Failure::new(e.to_string()));
                    }
                    signal = &mut stop_signal => break Some(signal),
                    hangup = hangups.heard() => match (hangup, of_files(&args.config)) {
                        (Hangup::Stop, _) => break Some("SIGHUP"),
                        (Hangup::Reload, Ok(read)) => {
                            tracing::info!(target: "eventd", events = read.events.len(), "the configuration was read again");
                            settings = read;
                            break None;
                        }
                        (Hangup::Reload, Err(why)) => {
                            tracing::error!(target: "eventd", "{}; the old windows stay in force", why.message);
                        }
                    },
                }
            };
            if let Some(signal) = signal {
                tracing::info!(signal, "stopping");
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

/// The windows of configuration files; what is wrong with some is said.
fn of_files(named: &[PathBuf]) -> Result<Settings, Failure> {
    let (settings, findings) = configuration::windows(&configuration::files(named))
        .map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    for finding in &findings {
        errln!("{finding}");
    }
    Ok(settings)
}

/// Windows that are spoken of, and what their carrier says of them.
struct Spoken {
    settings: Settings,
    overrides: Vec<Override>,
    report: Option<MaintenanceReport>,
}

impl Spoken {
    /// Windows that are under way.
    fn begun(&self) -> Vec<Begun> {
        let active = self.report.iter().flat_map(|r| &r.events).filter(|e| e.is_active);
        let begun = active.filter_map(|e| {
            let window = Window { start: e.start_s?, end: e.end_s? };
            Some(Begun { event: e.event.clone(), window })
        });
        begun.collect()
    }
}

/// The running pool's windows, those of the files that were named, or, when no pool answers, of the usual files.
fn spoken_of(args: &Args, place: &Place) -> Result<Vec<Spoken>, Failure> {
    if args.config.is_empty() {
        let asked = small_runtime()?.block_on(async {
            let client = place.connect().await?;
            client.maintenance().await.map_err(Failure::from)
        });
        match asked {
            Ok(reports) => return reports.into_iter().map(reported).collect(),
            Err(failure) if place.pool.is_some() => return Err(failure),
            Err(failure) => errln!(
                "updraft: {}; these are the windows of the configuration on this machine",
                failure.message
            ),
        }
    }
    let settings = of_files(&args.config)?;
    let overrides = changed(place)?;
    Ok(vec![Spoken { settings, overrides, report: None }])
}

fn reported(report: MaintenanceReport) -> Result<Spoken, Failure> {
    let damaged = |why: String| Failure::new(format!("what {} says cannot be read: {why}", report.by));
    let settings = configuration::reported_windows(&report.config).map_err(|e| damaged(e.to_string()))?;
    let overrides = if report.changes.is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&report.changes).map_err(|e| damaged(e.to_string()))?
    };
    Ok(Spoken { settings, overrides, report: Some(report) })
}

fn changed(place: &Place) -> Result<Vec<Override>, Failure> {
    Changes::new(&place.state()?, Carrier::Daemon).read().map_err(|e| Failure::new(e.to_string()))
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let now = Timestamp::now().as_second();
    match &args.command {
        Command::List => list(args, &spoken_of(args, place)?, now, place),
        Command::Drain { name, long, machines, reason } => {
            let request = DrainRequest {
                name: name.clone(),
                until_s: (now + long) as u64,
                constraint: machines.clone(),
                reason: reason.clone(),
                machine: String::new(),
            };
            told(place, &request)?;
            let zone = jiff::tz::TimeZone::system();
            print(&format!("{name}: nothing new starts until {}\n", shown(&zone, now + long)))
        }
        Command::Resume { name } => {
            if !asked(place)?.drains.iter().any(|d| d.name == *name) {
                return Err(Failure::new(format!(
                    "there is no drain {name}; `updraft status` names those in force"
                )));
            }
            let (constraint, reason) = (String::new(), String::new());
            told(
                place,
                &DrainRequest { name: name.clone(), until_s: 0, constraint, reason, machine: String::new() },
            )?;
            print(&format!("{name}: over\n"))
        }
        Command::Plan { svg, rows } => plan(args, place, svg.as_ref(), *rows, now),
        Command::Simulate { hours } => {
            let ads = eventd::slot_ads(&machines(place)?);
            let mut text = String::new();
            for spoken in some(spoken_of(args, place)?)? {
                let begun = spoken.begun();
                let Spoken { settings, overrides, .. } = spoken;
                let length = i64::from(*hours) * 3600;
                let scenario = Scenario::new(settings, simulate::machines_of(&ads, now), now, length);
                text += &simulate::simulate(Scenario { overrides, begun, ..scenario }).text();
            }
            print(&text)
        }
        Command::Start { event, wait, duration } => {
            let Spoken { settings, .. } = with_event(args, place, event)?;
            if *duration == 0 {
                return Err(usage("a window lasts longer than nothing"));
            }
            let start = now + wait;
            let window = Window { start, end: start + duration };
            let mut overrides = changed(place)?;
            overrides.push(Override::Added { event: event.clone(), window });
            change(place, &overrides)?;
            print(&format!("{event}: a window of {duration} s begins {}\n", shown(&settings.zone, start)))
        }
        Command::Cancel { event } => cancel(args, place, event, now),
    }
}

fn plan(
    args: &Args,
    place: &Place,
    svg: Option<&PathBuf>,
    rows: usize,
    now: i64,
) -> Result<ExitCode, Failure> {
    let ads = eventd::slot_ads(&machines(place)?);
    let spoken = some(spoken_of(args, place)?)?;
    if svg.is_some() && spoken.len() > 1 {
        return Err(usage("several carry windows out in this pool; name one configuration with --config"));
    }
    let mut text = String::new();
    let mut plans = Vec::new();
    for spoken in &spoken {
        let Spoken { settings, overrides, .. } = spoken;
        let plan = maintenance::plan(now, settings, overrides, &spoken.begun(), &ads);
        if let Some(path) = svg {
            std::fs::write(path, plan.svg())
                .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
        }
        text += &plan.text(rows);
        plans.push(plan);
    }
    if args.json { print_json(&plans) } else { print(&text) }
}

fn cancel(args: &Args, place: &Place, event: &str, now: i64) -> Result<ExitCode, Failure> {
    let Spoken { settings, .. } = with_event(args, place, event)?;
    let mut overrides = changed(place)?;
    let found = known(&settings, event)?;
    let Some(window) = maintenance::occurrence(found, &settings.zone, &overrides, now) else {
        return Err(Failure::new(format!("{event} has no window to cancel")));
    };
    let added =
        |o: &Override| matches!(o, Override::Added { event: e, window: w } if e == event && *w == window);
    if overrides.iter().any(added) {
        overrides.retain(|o| !added(o));
    } else {
        let Window { start, end } = window;
        overrides.push(Override::Cancelled { event: event.to_owned(), start, end });
    }
    change(place, &overrides)?;
    print(&format!("{event}: the window of {} is cancelled\n", shown(&settings.zone, window.start)))
}

/// Operators' changes are a file of the state directory of whoever carries windows out.
fn change(place: &Place, overrides: &[Override]) -> Result<(), Failure> {
    Changes::new(&place.state()?, Carrier::Daemon).write(overrides).map_err(|e| Failure::new(e.to_string()))
}

/// The windows with an event of this name, which can be changed from here.
fn with_event(args: &Args, place: &Place, event: &str) -> Result<Spoken, Failure> {
    if place.pool.is_some() {
        return Err(usage(
            "windows are changed on the machine where they are carried out, with its --state-dir: not through --pool",
        ));
    }
    let mut all = some(spoken_of(args, place)?)?;
    if let Some(at) = all.iter().position(|s| s.settings.event(event).is_some()) {
        return Ok(all.swap_remove(at));
    }
    let names: Vec<&str> = all.iter().flat_map(|s| &s.settings.events).map(|e| e.name.as_str()).collect();
    Err(usage(format!("there is no event {event}; there are: {}", names.join(", "))))
}

/// Windows, or why there are none.
fn some(spoken: Vec<Spoken>) -> Result<Vec<Spoken>, Failure> {
    if spoken.iter().all(|s| s.settings.events.is_empty()) {
        return Err(Failure::new(NOBODY));
    }
    Ok(spoken)
}

const NOBODY: &str = "nobody carries out maintenance windows in this pool: EVENT_LIST names none, and no updraft eventd \
                      has said anything; --config FILE speaks of a file's";

/// Seconds of a span such as `90s`, `15m`, `2h`.
fn span(text: &str) -> Result<i64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let number = number.parse::<u32>().map_err(|_| format!("{text:?} is no time; write 90s, 15m or 2h"))?;
    Ok(i64::from(number) * unit)
}

fn known<'a>(settings: &'a Settings, event: &str) -> Result<&'a maintenance::Event, Failure> {
    let found = settings.event(event).map(|index| &settings.events[index]);
    found.ok_or_else(|| usage(format!("there is no event {event}")))
}

fn told(place: &Place, request: &DrainRequest) -> Result<(), Failure> {
    small_runtime()?.block_on(async { place.connect().await?.drain(request).await.map_err(Failure::from) })
}

fn asked(place: &Place) -> Result<api::rest::StatusReply, Failure> {
    small_runtime()?
        .block_on(async { place.connect().await?.status(None, true).await.map_err(Failure::from) })
}

fn machines(place: &Place) -> Result<Vec<MachineSeen>, Failure> {
    Ok(asked(place)?.machines.into_iter().map(MachineSeen::from).collect())
}

fn shown(zone: &jiff::tz::TimeZone, at: i64) -> String {
    Timestamp::from_second(at)
        .map_or_else(|_| at.to_string(), |t| t.to_zoned(zone.clone()).strftime("%a %F %T %Z").to_string())
}

/// One line of the list.
struct Line<'a> {
    event: &'a str,
    window: Option<Window>,
    state: &'static str,
    report: Option<&'a api::rest::MaintenanceEvent>,
}

fn lines(spoken: &Spoken, now: i64) -> Vec<Line<'_>> {
    let line_of = |event| line_of(spoken, event, now);
    spoken.settings.events.iter().map(line_of).collect()
}

fn line_of<'a>(spoken: &'a Spoken, event: &'a maintenance::Event, now: i64) -> Line<'a> {
    let Spoken { settings, overrides, report } = spoken;
    let report = report.iter().flat_map(|r| &r.events).find(|e| e.event == event.name);
    let window = match report {
        Some(e) => e.start_s.zip(e.end_s).map(|(start, end)| Window { start, end }),
        None => maintenance::occurrence(event, &settings.zone, overrides, now),
    };
    let state = match window {
        None => "over",
        Some(w) if w.start <= now => "on",
        Some(_) if report.is_some_and(|e| e.is_active) => "emptying",
        Some(_) => "waiting",
    };
    Line { event: &event.name, window, state, report }
}

fn list(args: &Args, spoken: &[Spoken], now: i64, place: &Place) -> Result<ExitCode, Failure> {
    if args.json {
        let rows: Vec<serde_json::Value> = spoken
            .iter()
            .flat_map(|s| lines(s, now).into_iter().map(move |line| (s, line)))
            .map(|(spoken, Line { event, window, state, report })| {
                serde_json::json!({
                    "event": event, "start": window.map(|w| w.start), "end": window.map(|w| w.end),
                    "state": state, "by": spoken.report.as_ref().map(|r| &r.by),
                    "needed_s": report.and_then(|r| r.needed_s), "late_s": report.map(|r| r.late_s),
                })
            })
            .collect();
        return print_json(&rows);
    }
    let mut text = String::new();
    for spoken in spoken.iter().filter(|s| !s.settings.events.is_empty()) {
        let zone = &spoken.settings.zone;
        let mut t = Table::new(&["EVENT", "BEGINS", "ENDS", "NOW", "TAKES"], &[]);
        for Line { event, window, state, report } in lines(spoken, now) {
            let cell = |at: Option<i64>| at.map_or_else(|| "never".to_owned(), |at| shown(zone, at));
            let takes = match report.map(|r| (r.needed_s, r.late_s)) {
                Some((_, late_s)) if late_s > 0 => format!("{late_s} s LATE"),
                Some((Some(needed_s), _)) => format!("{needed_s} s"),
                _ => "-".to_owned(),
            };
            let (begins, ends) = (cell(window.map(|w| w.start)), cell(window.map(|w| w.end)));
            t.row(vec![event.to_owned(), begins, ends, state.to_owned(), takes]);
        }
        text += &t.render();
        if let Some(report) = &spoken.report {
            let ago_s = now - (report.heard_ms / 1000) as i64;
            if ago_s > STALE_S {
                text += &format!("{} was last heard of {ago_s} s ago\n", report.by);
            }
        }
    }
    if text.is_empty() {
        text = format!("{NOBODY}\n");
    }
    // Drains are told when the pool can be asked.
    if let Ok(status) = asked(place) {
        text.extend(status.drains.iter().map(crate::cmd::status::drain_line));
    }
    print(&text)
}

/// Whoever carries windows out says so every minute.
const STALE_S: i64 = 180;
