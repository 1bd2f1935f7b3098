//! `updraft machine`: what people decide about a machine: condition, loan, hold.

use std::process::ExitCode;

use api::rest::{DrainRequest, Machine, RevokeRequest, StandingRequest};
use model::MachineName;
use model::event::{Condition, MachineStanding};

use crate::cmd::{Failure, print, print_json, seconds, small_runtime, usage};
use crate::place::Place;
use crate::table;

/// Show or set a machine's condition, who it is lent to and who holds it
///
/// A condition and a loan are an administrator's to set. Everybody may hold a machine for themselves that is in condition
/// manual, or on loan to them, for a week at most; jobs that are there stay to their end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The machine
    #[arg(value_name = "HOST")]
    machine: String,
    /// automated: the pool uses it; manual: people only; broken: nobody; removed: it has left the pool
    #[arg(long, value_name = "CONDITION")]
    condition: Option<Condition>,
    /// Only this user's jobs start there
    #[arg(long, value_name = "USER", conflicts_with = "return_loan")]
    loan: Option<String>,
    /// Everybody's jobs start there again
    #[arg(long)]
    return_loan: bool,
    /// Only jobs of these users and groups start there, separated by commas (for administrators)
    #[arg(long, value_name = "USER,GROUP", value_delimiter = ',', conflicts_with = "allow_all")]
    allow: Option<Vec<String>>,
    /// Everybody's jobs start there again, whatever was allowed
    #[arg(long)]
    allow_all: bool,
    /// Have it for yourself, or (administrators) for USER: no job starts there
    #[arg(long, value_name = "USER", num_args = 0..=1, default_missing_value = "", conflicts_with = "release")]
    reserve: Option<String>,
    /// For so long: 90s, 30m, 12h, 7d [default: a day; for administrators: until it is given back]
    #[arg(long = "for", value_name = "TIME", requires = "reserve")]
    span: Option<String>,
    /// Give it back
    #[arg(long)]
    release: bool,
    /// How far a machine that somebody holds is: waiting (its installation was asked for), installing, running; for the holder
    /// and administrators, and what installs it
    #[arg(long, value_name = "STAGE", value_parser = ["waiting", "installing", "running"], conflicts_with_all = ["reserve", "release"])]
    stage: Option<String>,
    /// Nothing new starts there for so long: 90s, 30m, 12h, 7d (for administrators and the machine's owner)
    #[arg(long, value_name = "TIME", conflicts_with_all = ["undrain", "condition", "loan", "return_loan", "allow", "allow_all", "reserve", "release"])]
    drain: Option<String>,
    /// End such a drain
    #[arg(long, conflicts_with_all = ["condition", "loan", "return_loan", "allow", "allow_all", "reserve", "release"])]
    undrain: bool,
    /// Deny the machine: it is disconnected, and comes back only with a token made for it (for administrators)
    #[arg(long, conflicts_with_all = ["drain", "undrain", "condition", "loan", "return_loan", "allow", "allow_all", "reserve", "release"])]
    revoke: bool,
    /// Why; shown to whoever looks at the machine
    #[arg(long, default_value = "")]
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(mut args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let held_seconds = args.span.as_deref().map(seconds).transpose()?.unwrap_or(0);
    args.machine = args.machine.parse::<MachineName>().map_err(|e| usage(e.to_string()))?.to_string();
    if args.loan.as_deref() == Some("") {
        return Err(usage("to whom? --return-loan takes a loan back"));
    }
    if args.drain.is_some() || args.undrain {
        return drain(&args, place);
    }
    if args.revoke {
        let request = RevokeRequest { reason: args.reason };
        let name = args.machine;
        small_runtime()?.block_on(async {
            place.connect().await?.revoke_machine(&name, &request).await.map_err(Failure::from)
        })?;
        return print(&format!("{name}: revoked; what runs there ends with its lease at the latest\n"));
    }
    let request = StandingRequest {
        condition: args.condition.map(|c| c.word().to_owned()),
        loaned_to: if args.return_loan { Some(String::new()) } else { args.loan },
        allow: if args.allow_all { Some(Vec::new()) } else { args.allow },
        hold: if args.release { Some(false) } else { args.reserve.as_ref().map(|_| true) },
        held_by: args.reserve.unwrap_or_default(),
        held_seconds,
        stage: args.stage,
        reason: args.reason,
    };
    let name = args.machine;
    let asks = request.condition.is_none()
        && request.loaned_to.is_none()
        && request.hold.is_none()
        && request.stage.is_none()
        && request.allow.is_none();
    let standing = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        if !asks {
            return client.stand(&name, &request).await.map_err(Failure::from);
        }
        let found = client.status(Some(&name), false).await?.machines.into_iter().next();
        let found = found.ok_or_else(|| Failure::new(format!("the pool has no machine {name}")))?;
        let usual = MachineStanding { machine: name.clone(), ..MachineStanding::default() };
        Ok(found.standing.unwrap_or(usual))
    })?;
    if args.json {
        return print_json(&standing);
    }
    let why = if standing.reason.is_empty() { String::new() } else { format!(": {}", standing.reason) };
    let by = if standing.by.is_empty() { String::new() } else { format!(" (by {}{why})", standing.by) };
    print(&format!("{name}: {}{by}\n", words(&standing)))
}

fn drain(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let span = args.drain.as_deref().map(seconds).transpose()?;
    let until_s = span.map_or(0, |span| jiff::Timestamp::now().as_second().unsigned_abs() + span);
    let request = DrainRequest {
        name: String::new(),
        until_s,
        constraint: String::new(),
        reason: args.reason.clone(),
        machine: args.machine.clone(),
    };
    small_runtime()?
        .block_on(async { place.connect().await?.drain(&request).await.map_err(Failure::from) })?;
    let name = &args.machine;
    print(&match until_s {
        0 => format!("{name}: jobs start there again\n"),
        until_s => format!("{name}: nothing new starts there until {}\n", table::time(until_s * 1000)),
    })
}

/// A machine's standing in words.
fn words(standing: &MachineStanding) -> String {
    let mut words = standing.condition().word().to_owned();
    if !standing.loaned_to.is_empty() {
        words.push_str(&format!(", on loan to {}", standing.loaned_to));
    }
    if !standing.allow.is_empty() {
        words.push_str(&format!(", for jobs of {} only", standing.allow.join(", ")));
    }
    if !standing.held_by.is_empty() {
        words.push_str(&format!(", held by {}", standing.held_by));
        if !standing.held_stage.is_empty() {
            words.push_str(&format!(" ({})", standing.held_stage));
        }
        if standing.held_until_ms > 0 {
            words.push_str(&format!(" until {}", table::time(standing.held_until_ms)));
        }
    }
    words
}

/// What stands of a machine that is not as usual, for tables; empty when all is.
pub(crate) fn notes(machine: &Machine) -> String {
    let mut notes = match &machine.standing {
        Some(standing) => words(standing),
        None => String::new(),
    };
    if machine.shut == "lab_disabled" {
        let and = if notes.is_empty() { "" } else { ", " };
        notes.push_str(&format!("{and}lab {} is disabled", machine.lab));
    }
    notes
}
