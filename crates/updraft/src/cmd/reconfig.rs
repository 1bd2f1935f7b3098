//! `updraft reconfig`: have configurations read again, from afar.

use std::collections::BTreeSet;
use std::process::ExitCode;

use client::Client;

use crate::cmd::{Failure, print_json, small_runtime};
use crate::place::Place;

/// Have the manager and the machines of a pool read their configuration again
///
/// What runs goes on. A configuration that cannot be used is refused with the reason, and the old one stays in force there;
/// what takes effect only after a restart is said. On the machine itself SIGHUP to `updraft up`, `updraft agent` or
/// `updraft eventd` does the same.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this machine; may be repeated. Default: the manager and every machine in contact
    #[arg(long = "machine", value_name = "HOST")]
    machines: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one of them answered.
#[derive(Debug, serde::Serialize)]
struct Line {
    of: String,
    done: bool,
    text: String,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let lines = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        ask(&client, &args.machines).await
    })?;
    let code = if lines.iter().all(|line| line.done) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if args.json {
        print_json(&lines)?;
        return Ok(code);
    }
    for Line { of, done, text } in &lines {
        let text = text.trim_end().replace('\n', "\n    ");
        if *done {
            outln!("{of}: {text}");
        } else {
            errln!("{of}: {text}");
        }
    }
    Ok(code)
}

async fn ask(client: &Client, named: &[String]) -> Result<Vec<Line>, Failure> {
    let line = |of: &str, reply: Result<api::rest::MachineReply, client::Error>| match reply {
        Ok(reply) => Line { of: of.to_owned(), done: true, text: reply.text },
        Err(error) => Line { of: of.to_owned(), done: false, text: Failure::from(error).message },
    };
    let mut lines = Vec::new();
    let mut machines: BTreeSet<String> = named.iter().cloned().collect();
    if named.is_empty() {
        // Asked first: machines are out of contact for a moment after the manager has read its files.
        let status = client.status(None, false).await?;
        let connected = status.machines.iter().filter(|m| m.connected);
        // A machine that is divided is there with each of its slots.
        machines.extend(connected.map(|m| m.name.rsplit('@').next().unwrap_or(&m.name).to_owned()));
        lines.push(line("manager", client.reconfigure_manager().await));
    }
    for machine in machines {
        lines.push(line(&machine, client.reconfigure(&machine).await));
    }
    Ok(lines)
}
