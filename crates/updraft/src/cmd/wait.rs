//! `updraft wait`: until jobs are over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::joblog::event::Exit;
use ::joblog::{Body, Event, Item};
use client::Client;
use model::JobName;

use crate::cmd::joblog::{Followed, POLL};
use crate::cmd::{Failure, small_runtime};
use crate::place::Place;

/// Wait until jobs are over
///
/// Exit code 0 when all of them succeeded, 1 when one failed, was removed, or the time ran out.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Clusters or jobs
    #[arg(required_unless_present = "log", value_name = "JOB")]
    jobs: Vec<JobName>,
    /// Look at this job event log instead of asking the pool; without JOB: until every job in it is over
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    if let Some(log) = &args.log {
        let good = wait_log(log, &args.jobs, args.timeout)?;
        return Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let all = wait_all(&client, &args.jobs);
        let good = match args.timeout {
            None => all.await?,
            Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), all)
                .await
                .map_err(|_| Failure::new(format!("not over after {seconds} s")))??,
        };
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(1) })
    })
}

async fn wait_all(client: &Client, jobs: &[JobName]) -> Result<bool, Failure> {
    let mut good = true;
    for job in jobs {
        good &= match job {
            JobName::Cluster(cluster) => wait_cluster(client, *cluster).await?,
            JobName::Job(job) => wait_job(client, *job).await?,
        };
    }
    Ok(good)
}

async fn wait_cluster(client: &Client, cluster: u32) -> Result<bool, Failure> {
    // Subscribed before asking, so that the end cannot slip through in between.
    let mut events = client.events(None, Some(cluster), true).await?;
    loop {
        let reply = client.cluster(cluster, 0).await?;
        let c = reply.counts;
        // Jobs that only stay to be looked at are over.
        if !reply.active || c.idle + c.running + c.held == 0 {
            outln!(
                "cluster {cluster}: {} succeeded, {} failed, {} removed",
                c.succeeded,
                c.failed,
                c.removed
            );
            return Ok(c.failed == 0 && c.removed == 0);
        }
        if events.next().await?.is_none() {
            return Err(Failure::new("the manager is gone"));
        }
        // Whatever else happened meanwhile is one question, not many.
        while let Ok(Ok(Some(_))) = tokio::time::timeout(Duration::from_millis(20), events.next()).await {}
    }
}

async fn wait_job(client: &Client, job: model::JobId) -> Result<bool, Failure> {
    use model::event::Kind;
    let mut events = client.events(Some(0), Some(job.cluster), true).await?;
    // An unknown cluster is an error at once, not an endless wait.
    client.cluster(job.cluster, 0).await?;
    while let Some(line) = events.next().await? {
        match line.event.kind {
            Some(Kind::ClusterSubmitted(e)) if job.proc >= e.template.procs => {
                return Err(Failure::new(format!(
                    "cluster {} has only {}",
                    job.cluster,
                    crate::table::count(e.template.procs.into(), "job")
                )));
            }
            Some(Kind::JobExited(e)) if e.proc == job.proc => {
                outln!("job {job}: {}", crate::cmd::run::outcome(&e.exit));
                return Ok(e.exit.success());
            }
            Some(Kind::JobsRemoved(e)) if e.procs.iter().any(|s| s.procs().contains(&job.proc)) => {
                outln!("job {job}: removed ({})", e.reason);
                return Ok(false);
            }
            _ => {}
        }
    }
    Err(Failure::new("the manager is gone"))
}

/// Follows a log until the jobs in it are over; no pool is needed.
fn wait_log(file: &Path, jobs: &[JobName], timeout: Option<u64>) -> Result<bool, Failure> {
    let fail = |error: std::io::Error| Failure::new(error.to_string());
    let deadline = timeout.map(|seconds| (Instant::now() + Duration::from_secs(seconds), seconds));
    let mut followed = Followed::new(file);
    let mut tally = Tally::default();
    loop {
        let idle = followed.look().map_err(fail)?;
        while let Some(item) = followed.item() {
            match item {
                Item::Event(event) => tally.take(&event),
                Item::Bad(bad) => errln!("updraft: {}: {bad}", file.display()),
                // What was there before counts no more: the log is read anew.
                Item::Truncated | Item::Rotated { .. } => tally = Tally::default(),
            }
        }
        if idle {
            if tally.is_over(jobs) {
                return Ok(tally.report(jobs));
            }
            if let Some((at, seconds)) = deadline
                && Instant::now() >= at
            {
                return Err(Failure::new(format!("not over after {seconds} s")));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Where the jobs of a log stand: `None` while a job is not over.
#[derive(Debug, Default)]
struct Tally(BTreeMap<(i32, i32), Option<End>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Succeeded,
    Failed,
    Removed,
}

impl Tally {
    fn take(&mut self, event: &Event) {
        let end = match &event.body {
            Body::Submit { .. } | Body::Execute(_) => None,
            Body::Terminated(t) if t.exit == Exit::Code(0) => Some(End::Succeeded),
            Body::Terminated(_) => Some(End::Failed),
            Body::Aborted { .. } => Some(End::Removed),
            _ => return,
        };
        let job = self.0.entry((event.cluster, event.proc)).or_default();
        // Cluster ids are not used again, so an end is an end, whatever a confused writer adds.
        *job = job.or(end);
    }

    fn of<'a>(&'a self, jobs: &'a [JobName]) -> impl Iterator<Item = Option<End>> + 'a {
        let is = |(cluster, proc): (i32, i32), job: &JobName| match job {
            JobName::Cluster(id) => *id as i32 == cluster,
            JobName::Job(job) => (job.cluster as i32, job.proc as i32) == (cluster, proc),
        };
        let chosen = move |id| jobs.is_empty() || jobs.iter().any(|job| is(id, job));
        self.0.iter().filter(move |(id, _)| chosen(**id)).map(|(_, end)| *end)
    }

    /// Every job that is waited for is in the log, and over.
    fn is_over(&self, jobs: &[JobName]) -> bool {
        let all = jobs.iter().all(|job| self.of(std::slice::from_ref(job)).next().is_some());
        all && !self.0.is_empty() && self.of(jobs).all(|end| end.is_some())
    }

    fn report(&self, jobs: &[JobName]) -> bool {
        let count = |end: End| self.of(jobs).filter(|e| *e == Some(end)).count();
        let (failed, removed) = (count(End::Failed), count(End::Removed));
        outln!("{} succeeded, {failed} failed, {removed} removed", count(End::Succeeded));
        failed == 0 && removed == 0
    }
}
