//! `updraft eventd` and `updraft maintenance`: windows in which machines are empty.

use std::path::PathBuf;
use std::process::ExitCode;

use api::rest::DrainRequest;
use clap::Subcommand;
use jiff::Timestamp;
use maintenance::simulate::{Scenario, SimJob, SimMachine};
use maintenance::{Override, Window};

use crate::cmd::{Failure, full_runtime, print, print_json, small_runtime, stop_signal, usage};
use crate::configuration;
use crate::eventd::{self, Changes};
use crate::place::Place;
use crate::table::Table;

/// Carry out maintenance windows on a pool that runs elsewhere
///
/// Reads EVENT_LIST and its kin (docs/maintenance.md). `updraft up` does the same by itself when its configuration lists
/// events.
#[derive(Debug, clap::Args)]
pub(crate) struct EventdArgs {
    /// Configuration; may be repeated. Default: $UPDRAFT_CONFIG, /etc/updraft/updraft.conf
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// Show, try and change maintenance windows
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Configuration; may be repeated. Default: $UPDRAFT_CONFIG, /etc/updraft/updraft.conf
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
    let (settings, findings) = eventd::settings(&configuration::files(&args.config))?;
    for finding in &findings {
        errln!("{finding}");
    }
    if settings.events.is_empty() {
        return Err(usage(
            "EVENT_LIST names no usable event, so there is nothing to do; see docs/maintenance.md",
        ));
    }
    let changes = Changes::new(&place.state()?);
    full_runtime()?.block_on(async {
        let client = place.connect().await?;
        tokio::select! {
            result = eventd::drive(client, settings, changes) => result.map(|()| ExitCode::SUCCESS),
            signal = stop_signal() => {
                tracing::info!(signal, "stopping");
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let (settings, findings) = eventd::settings(&configuration::files(&args.config))?;
    for finding in &findings {
        errln!("{finding}");
    }
    let changes = Changes::new(&place.state()?);
    let overrides = changes.read()?;
    let now = Timestamp::now().as_second();
    match &args.command {
        Command::List => list(args, &settings, &overrides, now, place),
        Command::Drain { name, long, machines, reason } => {
            let request = DrainRequest {
                name: name.clone(),
                until_s: (now + long) as u64,
                constraint: machines.clone(),
                reason: reason.clone(),
                machine: String::new(),
            };
            told(place, &request)?;
            print(&format!("{name}: nothing new starts until {}\n", shown(&settings.zone, now + long)))
        }
        Command::Resume { name } => {
            if !machines(place)?.drains.iter().any(|d| d.name == *name) {
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
        Command::Plan { svg, rows } => {
            let ads = eventd::ads(&machines(place)?);
            let plan = maintenance::plan(now, &settings, &overrides, &ads);
            if let Some(path) = svg {
                std::fs::write(path, plan.svg())
                    .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
            }
            print(&plan.text(*rows))
        }
        Command::Simulate { hours } => {
            let status = machines(place)?;
            let scenario = Scenario::new(settings, simulated(&status), now, i64::from(*hours) * 3600);
            print(&maintenance::simulate::simulate(scenario).text())
        }
        Command::Start { event, wait, duration } => {
            known(&settings, event)?;
            if *duration == 0 {
                return Err(usage("a window lasts longer than nothing"));
            }
            let start = now + wait;
            let window = Window { start, end: start + duration };
            let mut overrides = overrides;
            overrides.push(Override::Added { event: event.clone(), window });
            changes.write(&overrides)?;
            print(&format!("{event}: a window of {duration} s begins {}\n", shown(&settings.zone, start)))
        }
        Command::Cancel { event } => {
            let found = known(&settings, event)?;
            let Some(window) = maintenance::occurrence(found, &settings.zone, &overrides, now) else {
                return Err(Failure::new(format!("{event} has no window to cancel")));
            };
            let mut overrides = overrides;
            let added = |o: &Override| matches!(o, Override::Added { event: e, window: w } if e == event && *w == window);
            if overrides.iter().any(added) {
                overrides.retain(|o| !added(o));
            } else {
                let Window { start, end } = window;
                overrides.push(Override::Cancelled { event: event.clone(), start, end });
            }
            changes.write(&overrides)?;
            print(&format!("{event}: the window of {} is cancelled\n", shown(&settings.zone, window.start)))
        }
    }
}

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

fn known<'a>(settings: &'a maintenance::Settings, event: &str) -> Result<&'a maintenance::Event, Failure> {
    let found = settings.event(event).map(|index| &settings.events[index]);
    found.ok_or_else(|| {
        let names: Vec<&str> = settings.events.iter().map(|e| e.name.as_str()).collect();
        usage(format!("there is no event {event}; there are: {}", names.join(", ")))
    })
}

fn told(place: &Place, request: &DrainRequest) -> Result<(), Failure> {
    small_runtime()?.block_on(async { place.connect().await?.drain(request).await.map_err(Failure::from) })
}

fn machines(place: &Place) -> Result<api::rest::StatusReply, Failure> {
    small_runtime()?
        .block_on(async { place.connect().await?.status(None, true).await.map_err(Failure::from) })
}

fn shown(zone: &jiff::tz::TimeZone, at: i64) -> String {
    Timestamp::from_second(at)
        .map_or_else(|_| at.to_string(), |t| t.to_zoned(zone.clone()).strftime("%a %F %T %Z").to_string())
}

fn list(
    args: &Args,
    settings: &maintenance::Settings,
    overrides: &[Override],
    now: i64,
    place: &Place,
) -> Result<ExitCode, Failure> {
    let windows: Vec<_> = settings
        .events
        .iter()
        .map(|e| (e, maintenance::occurrence(e, &settings.zone, overrides, now)))
        .collect();
    if args.json {
        let lines: Vec<serde_json::Value> = windows
            .iter()
            .map(|(e, w)| {
                serde_json::json!({ "event": e.name, "start": w.map(|w| w.start), "end": w.map(|w| w.end) })
            })
            .collect();
        return print_json(&lines);
    }
    let mut t = Table::new(&["EVENT", "BEGINS", "ENDS", "NOW"], &[]);
    for (event, window) in windows {
        let cell = |at: Option<i64>| at.map_or_else(|| "never".to_owned(), |at| shown(&settings.zone, at));
        let state = match window {
            Some(w) if w.start <= now => "on",
            Some(_) => "waiting",
            None => "over",
        };
        t.row(vec![
            event.name.clone(),
            cell(window.map(|w| w.start)),
            cell(window.map(|w| w.end)),
            state.to_owned(),
        ]);
    }
    let mut text = t.render();
    // The windows are known without the pool; what it does about them is told when it can be asked.
    if let Ok(status) = machines(place) {
        text.extend(status.drains.iter().map(crate::cmd::status::drain_line));
    }
    print(&text)
}

/// The machines and jobs of now, as the simulation has them.
fn simulated(status: &api::rest::StatusReply) -> Vec<SimMachine> {
    let machine = |m: &api::rest::Machine| SimMachine {
        name: m.name.clone(),
        attributes: m.ad.clone(),
        slots: m
            .claims
            .iter()
            .map(|c| {
                c.job.as_ref().map(|job| SimJob {
                    id: job.clone(),
                    image_kb: c.image_kib as i64,
                    checkpointable: c.checkpointable,
                    gang: c.gang.then(|| job.split('.').next().unwrap_or(job).to_owned()),
                })
            })
            .collect(),
        appears_ms: 0,
        vanishes_ms: None,
        refuses: false,
        unreachable_ms: None,
        restarts_ms: Vec::new(),
        respawns: true,
    };
    status.machines.iter().filter(|m| m.connected).map(machine).collect()
}
