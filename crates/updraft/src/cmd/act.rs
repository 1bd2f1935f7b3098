//! `updraft rm`, `hold`, `release`, `extend`, `prio`, `return`, and `vacate`, `suspend`, `continue`, `checkpoint` for jobs or for whole machines.

use std::process::ExitCode;

use api::rest::{Act, ActRequest, ControlRequest, MachineVerb};

use crate::cmd::{Failure, print, print_json, seconds, small_runtime, usage};
use crate::place::Place;
use crate::table;

/// Which jobs, and why
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Jobs: CLUSTER (17) or CLUSTER.PROC (17.3)
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    /// All your jobs (everybody's, for an administrator)
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// All jobs of a user
    #[arg(long, conflicts_with_all = ["jobs", "all"], value_name = "USER")]
    user: Option<String>,
    /// Why; shown to whoever looks at the job
    #[arg(long, default_value = "")]
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which jobs, or which machine, and why
#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    jobs: Args,
    /// Everything that runs on this machine (for administrators)
    #[arg(long, conflicts_with_all = ["jobs", "all", "user"], value_name = "HOST")]
    machine: Option<String>,
    /// Only this slot of the machine, and what is cut from it: slot2, slot1_3
    #[arg(long, requires = "machine", value_name = "SLOT")]
    slot: Option<String>,
}

/// Vacate: like the others, with a choice of haste.
#[derive(Debug, clap::Args)]
pub(crate) struct VacateArgs {
    #[command(flatten)]
    which: MachineArgs,
    /// Kill at once, without time to save work (with --machine)
    #[arg(long, requires = "machine")]
    fast: bool,
}

pub(crate) fn vacate(args: VacateArgs, place: &Place) -> Result<ExitCode, Failure> {
    let verb = if args.fast { MachineVerb::Kill } else { MachineVerb::Vacate };
    run_here_or_there(args.which, Act::Vacate, verb, place)
}

/// Jobs by name, or everything on a machine.
pub(crate) fn run_here_or_there(
    args: MachineArgs,
    act: Act,
    verb: MachineVerb,
    place: &Place,
) -> Result<ExitCode, Failure> {
    let Some(machine) = args.machine else { return run(args.jobs, act, place) };
    let request = ControlRequest {
        verb,
        reason: args.jobs.reason,
        claim: None,
        slot: args.slot.unwrap_or_default(),
        remaining_s: 0,
        bytes_per_second: 0,
    };
    let reply = small_runtime()?.block_on(async {
        place.connect().await?.control(&machine, &request).await.map_err(Failure::from)
    })?;
    if args.jobs.json { print_json(&reply) } else { print(&format!("{}\n", reply.text)) }
}

pub(crate) fn run(args: Args, act: Act, place: &Place) -> Result<ExitCode, Failure> {
    run_for(args, act, Details::default(), place)
}

/// What some acts need besides.
#[derive(Debug, Default)]
struct Details {
    seconds: u64,
    priority: Option<i32>,
    class: Option<String>,
}

/// `prio`: which jobs, and where they stand from now on
#[derive(Debug, clap::Args)]
pub(crate) struct PrioArgs {
    /// The jobs: CLUSTER (17)
    #[arg(value_name = "JOB")]
    job: String,
    /// Their priority among your own jobs; higher goes first
    #[arg(value_name = "N", required_unless_present = "class", allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Their class among all jobs of the pool (for administrators): Low, Medium, Normal, High, Urgent
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn prio(args: PrioArgs, place: &Place) -> Result<ExitCode, Failure> {
    let jobs = Args { jobs: vec![args.job], all: false, user: None, reason: String::new(), json: args.json };
    run_for(jobs, Act::Prio, Details { seconds: 0, priority: args.priority, class: args.class }, place)
}

/// `extend`: which job, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// The job: CLUSTER (17) or CLUSTER.PROC (17.3)
    #[arg(value_name = "JOB")]
    job: String,
    /// How much more: 90s, 30m, 12h, 7d
    #[arg(value_name = "TIME")]
    time: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn extend(args: ExtendArgs, place: &Place) -> Result<ExitCode, Failure> {
    let time = seconds(&args.time)?;
    let jobs = Args { jobs: vec![args.job], all: false, user: None, reason: String::new(), json: args.json };
    run_for(jobs, Act::Extend, Details { seconds: time, ..Details::default() }, place)
}

fn run_for(args: Args, act: Act, details: Details, place: &Place) -> Result<ExitCode, Failure> {
    let jobs = match (args.all, args.user) {
        (true, _) => vec!["all".to_owned()],
        (false, Some(user)) => vec![format!("user:{user}")],
        (false, None) if args.jobs.is_empty() => return Err(usage("which jobs? Name some, or say --all")),
        (false, None) => args.jobs,
    };
    for job in &jobs {
        if job != "all" && !job.starts_with("user:") {
            job.parse::<model::JobName>().map_err(|e| usage(e.to_string()))?;
        }
    }
    let Details { seconds, priority, class } = details;
    let request = ActRequest { act, jobs, reason: args.reason, seconds, priority, class };
    let reply = small_runtime()?
        .block_on(async { place.connect().await?.act(&request).await.map_err(Failure::from) })?;
    let (verb, unsuitable) = match act {
        Act::Remove => ("removed", "cannot be removed"),
        Act::Hold => ("held", "cannot be held"),
        Act::Release => ("released", "not on hold"),
        Act::Vacate => ("vacated", "not running"),
        Act::Suspend => ("asked to stand still", "not running"),
        Act::Continue => ("asked to go on", "not running"),
        Act::Checkpoint => ("asked for a checkpoint", "not running"),
        Act::Extend => ("extended", "not running"),
        Act::Return => ("returned", "no machine is kept for it"),
        Act::Prio => ("have another place", "over"),
    };
    let mut failed = false;
    let mut text = String::new();
    for result in &reply.results {
        let what = if result.jobs.contains('.') { "job" } else { "jobs of" };
        match &result.error {
            Some(error) => {
                failed = true;
                errln!("updraft: {error}");
            }
            None if result.changed == 0 => {
                failed = true;
                let none = result.unsuitable == 0 && act != Act::Return;
                let why = if none { "there are none" } else { unsuitable };
                errln!("updraft: {what} {}: {why}", result.jobs);
            }
            None if what == "job" => text.push_str(&format!("job {} {verb}\n", result.jobs)),
            None if result.jobs == "all" => {
                text.push_str(&format!("{} {verb}\n", table::count(result.changed, "job")))
            }
            None => {
                text.push_str(&format!(
                    "{} of {} {verb}\n",
                    table::count(result.changed, "job"),
                    result.jobs
                ));
            }
        }
    }
    if args.json {
        print_json(&reply)?;
    } else {
        print(&text)?;
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
