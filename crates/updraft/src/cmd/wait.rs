//! `updraft wait`: until jobs are over.

use std::process::ExitCode;
use std::time::Duration;

use client::Client;
use model::JobName;

use crate::cmd::{Failure, small_runtime};
use crate::place::Place;

/// Wait until jobs are over
///
/// Exit code 0 when all of them succeeded, 1 when one failed, was removed, or the time ran out.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Clusters or jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobName>,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
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
        if !reply.active {
            let c = reply.counts;
            println!(
                "cluster {cluster}: {} succeeded, {} failed, {} removed",
                c.succeeded, c.failed, c.removed
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
    let mut events = client.events(Some(1), Some(job.cluster), true).await?;
    // An unknown cluster is an error at once, not an endless wait.
    client.cluster(job.cluster, 0).await?;
    while let Some(line) = events.next().await? {
        match line.event.kind {
            Some(Kind::ClusterSubmitted(e)) if job.proc >= e.template.procs => {
                return Err(Failure::new(format!(
                    "cluster {} has only {} jobs",
                    job.cluster, e.template.procs
                )));
            }
            Some(Kind::JobExited(e)) if e.proc == job.proc => {
                println!("job {job}: {}", crate::cmd::run::outcome(&e.exit));
                return Ok(e.exit.success());
            }
            Some(Kind::JobsRemoved(e)) if e.procs.iter().any(|s| s.procs().contains(&job.proc)) => {
                println!("job {job}: removed ({})", e.reason);
                return Ok(false);
            }
            _ => {}
        }
    }
    Err(Failure::new("the manager is gone"))
}
