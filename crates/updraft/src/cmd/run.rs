//! `updraft run`: many jobs, one command, from submit to summary.

mod follow;
mod record;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::agent::OnStop;
use client::Client;
use manager::Sharing;
use model::JobTemplate;
use model::event::Exit;
use model::template::PieceKind;

use crate::cmd::submit::{What, templates};
use crate::cmd::{Failure, full_runtime, stop_signal, usage};
use crate::embed::{Options, Pool};
use crate::place::Place;
use follow::{Ending, Follower};
use record::Record;

/// Run many jobs and wait for them, on a private pool if none is running
///
/// Give a submit file, or a command after -- with {} for the item. What jobs print, unless it goes to a file, is shown in
/// the order of their numbers. An interrupted run is taken up with --resume; a job that has finished is never run again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Jobs at a time on a private pool [default: one per core]
    #[arg(short, long, value_name = "N")]
    jobs: Option<u32>,
    /// Take up the newest interrupted run, or the one named
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
    /// No progress, no output of jobs: only failures and the summary
    #[arg(short, long)]
    quiet: bool,
    /// Show the output of jobs as they finish, not in the order of their numbers
    #[arg(long)]
    unordered: bool,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let runs = place.state()?.join("runs");
    let record = match &args.resume {
        Some(name) => {
            if args.what.file.is_some() || !args.what.command.is_empty() {
                return Err(usage("--resume takes up an earlier run; leave the submit file or command out"));
            }
            Record::find(&runs, name)?
        }
        None => new_record(&args, &runs)?,
    };
    if args.jobs == Some(0) {
        return Err(usage("--jobs 0 runs nothing"));
    }
    full_runtime()?.block_on(async {
        // A resumed run goes on where it was; a new one uses the user's pool if there is one.
        let found = if record.is_embedded() == Some(true) { None } else { find_pool(place).await };
        if record.is_embedded() == Some(false) && found.is_none() {
            return Err(Failure::new(
                "the pool that this run was given to does not answer; start it with: updraft up",
            ));
        }
        match found {
            Some(client) => on_pool(client, record, &args).await,
            None => embedded(record, &args).await,
        }
    })
}

fn new_record(args: &Args, runs: &Path) -> Result<Record, Failure> {
    let mut templates = templates(&args.what)?;
    let record = Record::create(runs)?;
    if !args.quiet {
        for (i, template) in templates.iter_mut().enumerate() {
            capture(template, i, &record.output());
        }
    }
    record.save(&templates)?;
    Ok(record)
}

/// Output that goes nowhere is kept, to be shown.
fn capture(template: &mut JobTemplate, index: usize, dir: &Path) {
    for (name, suffix) in [("Out", "out"), ("Err", "err")] {
        let nowhere = template.shared(name).is_none_or(|text| text == "\"/dev/null\"" || text == "\"\"");
        if nowhere && !template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(name)) {
            let quoted = model::text::quote(&format!("{}/{index}-", dir.display()));
            let open = quoted.trim_end_matches('"').to_owned();
            let close = format!(".{suffix}\"");
            let pieces = vec![PieceKind::Text(open), PieceKind::Proc(true), PieceKind::Text(close)];
            template.set_varying(name, pieces);
        }
    }
}

/// The user's running pool, if there is one.
async fn find_pool(place: &Place) -> Option<Client> {
    let (endpoint, token) = place.endpoint().ok()?;
    let client = Client::connect(&endpoint, token.as_ref()).await.ok()?;
    // Somebody else's private pool is not ours to use, and one without machines would never run anything.
    let status = client.status(None, false).await.ok()?;
    status.machines.iter().any(|m| m.connected).then_some(client)
}

/// On a pool of our own, which lives as long as this command does.
async fn embedded(record: Record, args: &Args) -> Result<ExitCode, Failure> {
    record.note_pool(None)?;
    let state: PathBuf = record.dir().join("pool");
    let options = Options {
        manager: manager::Options {
            state: state.clone(),
            sharing: Sharing::Private,
            listen: None,
            health: None,
            // If this process is killed, its jobs may finish, and are not lost; but not for long.
            settings: scheduler::Settings { lease_ms: 60_000, ..scheduler::Settings::of_this_machine() },
            beat_ms: 2_000,
        },
        cpus: args.jobs,
        config: Vec::new(),
        script: None,
    };
    let pool = Pool::start(options).await?;
    let client = Client::connect(&client::Endpoint::Unix(state.join("manager.sock")), None).await?;
    let follower = Follower::start(&client, &record, 1, args.quiet, args.unordered).await?;
    let ending = tokio::select! {
        ending = follower.follow(&client) => ending?,
        signal = stop_signal() => Ending::Interrupted(signal),
        () = failed(&pool) => return Err(Failure::new("the private pool had to stop; see above, then use --resume")),
    };
    drop(client);
    pool.stop(OnStop::Kill).await?;
    conclude(ending, record, true)
}

async fn failed(pool: &Pool) {
    while !pool.has_failed() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// On a pool that was there before us and stays.
async fn on_pool(client: Client, record: Record, args: &Args) -> Result<ExitCode, Failure> {
    let from = if let Some(position) = record.pool_position() {
        position
    } else {
        let position = client.status(None, false).await?.position;
        record.note_pool(Some(position))?;
        position
    };
    let follower = Follower::start(&client, &record, from + 1, args.quiet, args.unordered).await?;
    let ending = tokio::select! {
        ending = follower.follow(&client) => ending?,
        signal = stop_signal() => Ending::Interrupted(signal),
    };
    conclude(ending, record, false)
}

fn conclude(ending: Ending, record: Record, embedded: bool) -> Result<ExitCode, Failure> {
    match ending {
        Ending::Done { good: true } => {
            record.remove();
            Ok(ExitCode::SUCCESS)
        }
        Ending::Done { good: false } => {
            record.finish();
            Err(Failure::silent(1))
        }
        Ending::Stuck => {
            eprintln!("updraft: mend what is wrong, then: updraft run --resume {}", record.id());
            Err(Failure::silent(1))
        }
        Ending::Interrupted(signal) => {
            let what = if embedded { "Nothing runs any more" } else { "The jobs go on in the pool" };
            eprintln!(
                "\nupdraft: interrupted ({signal}). {what}; take it up with: updraft run --resume {}",
                record.id()
            );
            Err(Failure::silent(130))
        }
    }
}

/// How a process ended, in words.
pub(crate) fn outcome(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(0), _) => "succeeded".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
