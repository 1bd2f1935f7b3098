//! A run on a pool of its own, which lives as long as the command does.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::agent::OnStop;
use client::Client;
use manager::Sharing;
use model::JobTemplate;

use super::follow::{Ending, Follower, Machines, Manner};
use super::record::Record;
use super::{Args, conclude, logs, neighbours, refused};
use crate::cmd::{Failure, Interrupts};
use crate::embed::{Options, PATIENCE, Pool};
use crate::numbers::Numbers;

/// How long the logs of a run that is over may take to be written.
const LOGS: Duration = Duration::from_secs(3_600);
/// How long the machine may take to be in contact.
const CONTACT: Duration = Duration::from_secs(10);

pub(crate) async fn run(
    record: Record,
    args: &Args,
    state: &Path,
    (is_resumed, mut interrupts): (bool, Interrupts),
) -> Result<ExitCode, Failure> {
    let templates = record.templates()?;
    let first_cluster = match take_numbers(&record, state, templates.len() as u32) {
        Ok(first) => first,
        Err(failure) => {
            if !is_resumed {
                record.remove();
            }
            return Err(failure);
        }
    };
    record.check_own_pool()?;
    record.note_own_pool()?;
    let (_mark, notice) = neighbours::mark(args.jobs);
    if let Some(notice) = notice {
        errln!("updraft: {notice}");
    }
    let pool = Pool::start(options(&record, args, first_cluster)).await?;
    record.note_pool_made()?;
    let manner = args.manner(1, Machines::Fixed, is_resumed);
    let result = tokio::select! {
        biased;
        signal = interrupts.heard() => Ok((Ending::Interrupted(signal), Vec::new().into())),
        result = with_pool(&pool, &record, manner, templates) => result,
    };
    // Whatever happened: nothing runs on.
    // Of jobs that are over the logs are looked at below, so they are written to their end; nobody starts this pool again.
    let patience = match &result {
        Ok((Ending::Done { .. }, _)) => LOGS,
        _ => PATIENCE,
    };
    let stopped = pool.stop(OnStop::Kill, patience).await;
    let (ending, clusters) = match result {
        Ok(done) => done,
        Err(Stopped::Refused(error)) => return Err(refused(error, record, is_resumed)),
        Err(Stopped::Failed(failure)) => return Err(failure),
    };
    stopped?;
    if matches!(ending, Ending::Done { .. }) {
        logs::check(&clusters, &record)?;
    }
    conclude(ending, record, true)
}

fn options(record: &Record, args: &Args, first_cluster: u32) -> Options {
    Options {
        manager: manager::Options {
            state: record.dir().join("pool"),
            sharing: Sharing::Private,
            listen: None,
            health: None,
            // If this process is killed, its jobs may finish, and are not lost; but not for long.
            settings: scheduler::Settings {
                lease_ms: 60_000,
                first_cluster,
                ..scheduler::Settings::in_zone(jiff::tz::TimeZone::system())
            },
            store: store::Settings::default(),
            beat_ms: 2_000,
            reload: None,
        },
        cpus: args.jobs,
        config: Vec::new(),
        script: None,
    }
}

/// Numbers that no run and no pool of this state directory has used; those of a resumed run are the ones it has.
fn take_numbers(record: &Record, state: &Path, count: u32) -> Result<u32, Failure> {
    if let Some(first) = record.first_cluster() {
        return Ok(first);
    }
    let numbers = Numbers::lock(state)?;
    if manager::is_in_use(state) {
        return Err(Failure::new(format!(
            "a pool has just been started in {}; run this again to use it",
            state.display()
        )));
    }
    let of_pool = manager::next_cluster(state).map_err(|error| {
        Failure::new(format!(
            "which cluster numbers the pool in {} has used cannot be read, and none may be used twice: {error}; or use another \
             --state-dir",
            state.display()
        ))
    })?;
    let first = numbers.take(count, of_pool.unwrap_or(1))?;
    record.note_cluster(first)?;
    Ok(first)
}

/// Why there is no ending.
enum Stopped {
    Refused(client::Error),
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for Stopped {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

async fn with_pool(
    pool: &Pool,
    record: &Record,
    manner: Manner,
    templates: Vec<JobTemplate>,
) -> Result<(Ending, super::echo::Clusters), Stopped> {
    let socket = client::Endpoint::Unix(record.dir().join("pool/manager.sock"));
    let client = Client::connect(&socket, None).await?;
    wait_for_machine(&client, &templates).await?;
    let follower = Follower::start(&client, record, templates, manner).await.map_err(Stopped::Refused)?;
    let clusters = follower.clusters();
    let ending = tokio::select! {
        ending = follower.follow(&client) => ending?,
        () = failed(pool) => {
            return Err(Failure::new("the private pool had to stop; see above, then use --resume").into());
        }
    };
    Ok((ending, clusters))
}

/// What a machine must offer can be asked only of one that is there; other jobs need not wait for it.
async fn wait_for_machine(client: &Client, templates: &[JobTemplate]) -> Result<(), Failure> {
    let is_plain = |t: &JobTemplate| {
        let wants = |name| t.shared(name).is_some() || t.varying.iter().any(|v| v.name == name);
        let asks = ["WantDocker", "WantContainer", "WantTransferPluginMethods"].into_iter().any(wants);
        t.shared("JobUniverse").is_some_and(|n| n != "10") && !asks
    };
    let began = Instant::now();
    while !templates.iter().all(is_plain) && began.elapsed() < CONTACT {
        if client.status(None, false).await?.machines.iter().any(|m| m.connected) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn failed(pool: &Pool) {
    while !pool.has_failed() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
