//! `updraft events`: the journal, from any position.

use std::io::Write as _;
use std::process::ExitCode;

use crate::cmd::{Failure, small_runtime};
use crate::place::Place;
use crate::table;

/// Show what happened, and what happens
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Start at this position; 0 is the oldest that is kept [default: 0, or the present with --follow]
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Only events about this cluster
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<u32>,
    /// Instead, what the policy of this machine did: state changes with their numbers and causes
    #[arg(long, value_name = "HOST", conflicts_with_all = ["from", "cluster"])]
    machine: Option<String>,
    /// Go on as things happen
    #[arg(short, long)]
    follow: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    if let Some(machine) = &args.machine {
        return transitions(args, machine, place);
    }
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let from = args.from.or(if args.follow { None } else { Some(0) });
        let mut events = client.events(from, args.cluster, args.follow).await?;
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let mut last = 0;
        while let Some(line) = events.next().await? {
            last = line.position;
            let text = if args.json { serde_json::to_string(&line)? } else { describe(&line)? };
            let written =
                writeln!(out, "{text}").and_then(|()| if args.follow { out.flush() } else { Ok(()) });
            match written {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                other => other?,
            }
        }
        match out.flush() {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
            Ok(()) if args.follow => Err(Failure::new(format!(
                "the manager has stopped; its next start has what follows (--from {})",
                last.saturating_add(1)
            ))),
            _ => Ok(ExitCode::SUCCESS),
        }
    })
}

/// The trace of a machine's policy.
fn transitions(args: &Args, machine: &str, place: &Place) -> Result<ExitCode, Failure> {
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let mut after = 0;
        loop {
            let lines = client.transitions(machine, after).await?;
            let mut out = std::io::stdout().lock();
            for line in &lines {
                after = line.position;
                let text = if args.json {
                    serde_json::to_string(line)?
                } else {
                    let from =
                        if line.from.is_empty() { String::new() } else { format!("{} -> ", line.from) };
                    let number =
                        if line.transition > 0 { format!(" ({})", line.transition) } else { String::new() };
                    let time = table::time(line.time_ms);
                    format!("{time} {} {from}{}{number}: {}", line.slot, line.to, line.cause)
                };
                match writeln!(out, "{text}") {
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                    other => other?,
                }
            }
            drop(out);
            if !args.follow {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
}

/// One line for people: position, time, name, and the rest as it is in JSON, templates left out.
fn describe(line: &api::rest::EventLine) -> Result<String, Failure> {
    let mut value = serde_json::to_value(line)?;
    let mut rest = String::new();
    let mut name = String::new();
    if let Some(object) = value.as_object_mut() {
        name = object.remove("event").and_then(|n| n.as_str().map(str::to_owned)).unwrap_or_default();
        for (key, value) in object.iter().filter(|(k, _)| !matches!(k.as_str(), "position" | "time_ms")) {
            let text = match (key.as_str(), value) {
                ("template", value) => format!("{} procs", value["procs"]),
                // Nearly always so, and then not worth a word.
                ("backfill", serde_json::Value::Bool(false)) => continue,
                ("promise_s", value) => match value.as_u64().unwrap_or(0) {
                    0 => "none".to_owned(),
                    at => table::time(at.saturating_mul(1_000)),
                },
                (_, serde_json::Value::Array(names)) if names.iter().all(serde_json::Value::is_string) => {
                    names.iter().filter_map(|n| n.as_str()).collect::<Vec<_>>().join(",")
                }
                (_, serde_json::Value::String(text)) => text.clone(),
                (_, value) => value.to_string(),
            };
            let key = if key == "promise_s" { "promise" } else { key };
            rest.push_str(&format!(" {key}={text}"));
        }
    }
    Ok(format!("{:>8} {} {name}{rest}", line.position, table::time(line.event.time_ms)))
}

#[cfg(test)]
mod tests {
    use model::Event;
    use model::event::{ClaimMade, GangPlanned, Kind};

    use super::*;

    fn line(kind: Kind) -> String {
        let event = Event { time_ms: 1_000, kind: Some(kind) };
        describe(&api::rest::EventLine { position: 7, event }).unwrap_or_default()
    }

    #[test]
    fn plans_are_printed_with_names_and_times() {
        let machines = vec!["a".to_owned(), "b".to_owned()];
        let told = line(Kind::GangPlanned(GangPlanned { cluster: 5, machines, promise_s: 3_600 }));
        let by = table::time(3_600_000);
        assert!(told.ends_with(&format!("GangPlanned cluster=5 machines=a,b promise={by}")), "{told}");
        let gone = line(Kind::GangPlanned(GangPlanned { cluster: 5, ..GangPlanned::default() }));
        assert!(gone.ends_with("GangPlanned cluster=5 promise=none"), "{gone}");
        let plain = line(Kind::ClaimMade(ClaimMade::default()));
        let backfill = line(Kind::ClaimMade(ClaimMade { backfill: true, ..ClaimMade::default() }));
        assert!(!plain.contains("backfill") && backfill.contains("backfill=true"));
    }
}
