//! `updraft sim`: scenarios, traces, journals and large pools in virtual time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ::sim::replay::Recording;
use clap::Subcommand;
use scheduler::Settings;

use super::usage::when;
use super::{Failure, print};
use crate::configuration;

/// Events that are read in one go.
const CHUNK: usize = 10_000;

/// Arguments of `updraft sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a scenario and compare it with what it expects
    Run {
        /// The scenario (TOML)
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Write a picture of systems over time
        #[arg(long, value_name = "OUT")]
        svg: Option<PathBuf>,
    },
    /// Play a trace in the Standard Workload Format
    Swf {
        /// The trace
        file: PathBuf,
        /// The pool's configuration; groups of a trace are g1, g2 ... in GROUP_NAMES
        #[arg(long, value_name = "FILE")]
        config: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Play a pool's journal again under another configuration, and compare
    Replay {
        /// The pool's directory (`--state-dir` of its `updraft up`)
        #[arg(long, value_name = "DIR")]
        state: PathBuf,
        /// The other configuration
        #[arg(long, value_name = "FILE", required = true)]
        config: Vec<String>,
        /// Only what was submitted from then on (`7d` ago, `2026-11-16T02:00:00Z`)
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write a picture of the cores in use
        #[arg(long, value_name = "OUT")]
        svg: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Play a day of a large pool and say what it costs, at sizes from 1,000 machines up
    Fleet {
        /// Machines of the largest pool
        #[arg(long, value_name = "N")]
        machines: u32,
        /// Jobs that are submitted there
        #[arg(long, value_name = "M")]
        jobs: u64,
        /// How long the day is
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        hours: u64,
        /// Another day
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        seed: u64,
        /// Play the largest pool only
        #[arg(long)]
        alone: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let said = match &args.command {
        Command::Run { file, json, svg } => ::sim::cli::run(file, *json, svg.as_deref()),
        Command::Swf { file, config, json } => ::sim::cli::swf(file, settings(config)?, *json),
        Command::Replay { state, config, since, svg, json } => {
            let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
            let since_ms = since.as_deref().map(|text| when(text, now_ms)).transpose()?.unwrap_or(0);
            let recording = record(state, since_ms)?;
            ::sim::cli::replay(recording, settings(config)?, svg.as_deref(), *json)
        }
        Command::Fleet { machines, jobs, hours, seed, alone, json } => {
            let wanted = ::sim::cli::Wanted {
                machines: *machines,
                jobs: *jobs,
                hours: *hours,
                seed: *seed,
                alone: *alone,
            };
            ::sim::cli::fleet(&wanted, *json)
        }
    }
    .map_err(Failure::new)?;
    print(&said.text)?;
    if said.holds { Ok(ExitCode::SUCCESS) } else { Err(Failure::silent(1)) }
}

/// What a pool would make of these files.
fn settings(files: &[String]) -> Result<Settings, Failure> {
    let settings = Settings::in_zone(jiff::tz::TimeZone::system());
    if files.is_empty() {
        return Ok(settings);
    }
    let settings = configuration::load("MANAGER", None, files).and_then(|c| settings.configured(&c));
    let (settings, warnings) =
        settings.map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    for warning in warnings {
        errln!("{warning}");
    }
    Ok(settings)
}

/// A pool's journal, whether the pool runs or not.
fn record(state: &Path, since_ms: u64) -> Result<Recording, Failure> {
    let manager = state.join("manager");
    let failed = |error: journal::Error| Failure::new(format!("{}: {error}", state.display()));
    if !journal::is_in(&manager).map_err(failed)? {
        return Err(Failure::new(format!("there is no pool's journal in {}", state.display())));
    }
    let mut recording = Recording::since(since_ms);
    let mut reader = journal::Reader::open(&manager).map_err(failed)?;
    let mut next = reader.oldest().map_err(failed)?;
    loop {
        let events = reader.read(next, CHUNK).map_err(failed)?;
        let Some((last, _)) = events.last() else { return Ok(recording) };
        next = last + 1;
        for (_, event) in &events {
            recording.note(event);
        }
    }
}
