//! `updraft journal`: looks after the journal of a pool that does not run, or is not to be trusted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use journal::{Finding, Report, Salvaged};
use serde_json::json;

use crate::cmd::{Failure, print, print_json};
use crate::place::Place;

/// Check a pool's journal for damage, or keep what can be read of a damaged one
///
/// The journal is where everything that happened stands; a manager that finds it damaged does not start. `check` reads all of
/// it and may run beside a manager. `salvage` needs the manager stopped: it puts a journal of what can be read in the
/// place of the damaged one, keeps the damaged one beside it, and says what was lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Read every event and snapshot; exit code 1 when something is damaged
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace a damaged journal by what can be read of it
    Salvage {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let state = place.state()?;
    let manager = state.join("manager");
    match journal::is_in(&manager) {
        Ok(true) => {}
        Ok(false) => {
            let message = if manager::has_journal(&state) {
                format!("the journal of {} is gone; put it back from a backup", state.display())
            } else {
                format!("there is no pool's journal in {}; say where with --state-dir", state.display())
            };
            return Err(Failure::new(message));
        }
        Err(error) => {
            // Whose it is, if it is somebody else's.
            manager::check_owner(&state).map_err(manager::Error::from)?;
            return Err(Failure::new(error.to_string()));
        }
    }
    match args.verb {
        Verb::Check { json } => check(&manager, &state, json),
        Verb::Salvage { json } => {
            // What another user could not write to any more would be lost to that user.
            manager::check_owner(&state).map_err(manager::Error::from)?;
            salvage(&manager, json)
        }
    }
}

fn check(manager: &Path, state: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let report = journal::check(manager).map_err(failure)?;
    if as_json {
        print_json(&json!({
            "oldest": report.oldest, "head": report.head, "files": report.segments, "batches": report.batches,
            "events": report.events, "snapshots": report.snapshots, "unknown": report.unknown,
            "first_unknown": report.first_unknown, "version": report.version,
            "damage": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
        }))?;
    } else {
        print(&describe(&report, &journal::directory(manager)))?;
    }
    if report.findings.is_empty() && report.unknown > 0 {
        let hint = format!("use updraft {}, which wrote the journal last", report.version);
        return Err(Failure::new(hint));
    }
    if report.findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let hint = format!(
        "the journal is damaged; restore a backup, or keep what can be read (with the manager stopped): \
         updraft journal salvage --state-dir {}",
        state.display()
    );
    Err(Failure::new(hint))
}

fn describe(report: &Report, directory: &Path) -> String {
    let snapshots: Vec<String> = report.snapshots.iter().map(u64::to_string).collect();
    let snapshots = if snapshots.is_empty() { "none".to_owned() } else { snapshots.join(", ") };
    let positions = if report.head < report.oldest {
        "no positions".to_owned()
    } else {
        format!("positions {} to {}", report.oldest, report.head)
    };
    let mut text = format!(
        "{}: {positions}, {} events in {} batches and {} files, snapshots at: {snapshots}\n",
        directory.display(),
        report.events,
        report.batches,
        report.segments
    );
    if report.findings.is_empty() {
        text.push_str("Every event and snapshot is as it was written.\n");
    }
    if let Some(first) = report.first_unknown {
        text.push_str(&format!(
            "{} of them, from position {first} on, are of kinds that updraft {} does not know: it does not start with what it cannot \
             read.\n",
            report.unknown,
            env!("CARGO_PKG_VERSION")
        ));
    }
    if report.end_unknown {
        text.push_str("How far the journal went is known to nobody.\n");
    }
    for finding in &report.findings {
        text.push_str(&format!("damaged: {}\n", describe_finding(finding)));
    }
    text
}

fn describe_finding(finding: &Finding) -> String {
    let lost = match finding.lost {
        None => String::new(),
        Some((first, last)) if first == last => format!("; position {first} is lost"),
        Some((first, last)) => format!("; positions {first} to {last} are lost"),
    };
    format!("{}: {}{lost}", finding.path.display(), finding.what)
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({ "file": finding.path, "what": finding.what, "lost": finding.lost })
}

fn salvage(manager: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let salvaged = journal::salvage(manager).map_err(failure)?;
    if as_json {
        return print_json(&salvaged.as_ref().map_or(json!({ "damaged": false }), salvaged_json));
    }
    match salvaged {
        None => print("Nothing is damaged; nothing was changed.\n"),
        Some(salvaged) => print(&describe_salvaged(&salvaged)),
    }
}

fn salvaged_json(salvaged: &Salvaged) -> serde_json::Value {
    json!({
        "damaged": true, "kept": salvaged.kept, "snapshot": salvaged.snapshot, "head": salvaged.head,
        "put_back": salvaged.put_back, "left_out": salvaged.left_out, "left_out_file": salvaged.left_out_file, "damaged_journal": salvaged.damaged,
        "damage": salvaged.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn describe_salvaged(salvaged: &Salvaged) -> String {
    let mut text: String =
        salvaged.findings.iter().map(|f| format!("damaged: {}\n", describe_finding(f))).collect();
    let (first, last) = salvaged.kept;
    if last < first {
        text.push_str("No event could be kept.\n");
    } else {
        text.push_str(&format!("Kept: positions {first} to {last}.\n"));
    }
    if first > salvaged.oldest {
        let before = first - 1;
        text.push_str(&format!(
            "Events before that ({} to {before}) are history that the queue does not need; they are in the damaged journal only.\n",
            salvaged.oldest
        ));
    }
    if salvaged.put_back {
        text.push_str("This journal had been put back from an earlier day: what the pool did since is in no file here.\n");
    }
    if last < salvaged.head || salvaged.end_unknown || salvaged.put_back {
        let upto = if salvaged.end_unknown {
            "the end, which nobody knows".to_owned()
        } else if salvaged.put_back {
            format!("{} or more", salvaged.head)
        } else {
            salvaged.head.to_string()
        };
        text.push_str(&format!(
            "Lost: positions {} to {upto}. The queue is as it was at position {last}: what was submitted, started or finished \
             after that is not known to it. Jobs that run now and whose start is lost are ended by the next manager and begin \
             again if the queue knows them. Numbers of clusters go on behind those that were used.\n",
            last + 1
        ));
    } else {
        text.push_str("The queue has lost nothing.\n");
    }
    if salvaged.left_out > 0 {
        text.push_str(&format!(
            "{} of the lost events can be read and are listed in {}.\n",
            salvaged.left_out,
            salvaged.left_out_file.display()
        ));
    }
    text.push_str(&format!("The damaged journal is now {}.\n", salvaged.damaged.display()));
    text
}

fn failure(error: journal::Error) -> Failure {
    match error {
        journal::Error::Locked { path } => {
            let path: PathBuf = path;
            Failure::new(format!("a manager runs on {}; stop it first", path.display()))
        }
        error => Failure::new(error.to_string()),
    }
}
