//! `updraft queue`: what waits, what runs.

use std::process::ExitCode;

use model::JobName;

use crate::cmd::{Failure, print, print_json, small_runtime};
use crate::place::Place;
use crate::table::{self, Table};

/// Show what is in the queue
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Clusters whose jobs to list one by one
    #[arg(value_name = "CLUSTER")]
    jobs: Vec<JobName>,
    /// Only this user's jobs
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// At most so many jobs of a cluster
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        if args.jobs.is_empty() {
            let reply = client.queue(args.user.as_deref()).await?;
            return if args.json { print_json(&reply) } else { print(&clusters(&reply)) };
        }
        let mut text = String::new();
        let mut replies = Vec::new();
        for name in &args.jobs {
            let (cluster, reply) = match name {
                JobName::Cluster(cluster) => (*cluster, client.cluster(*cluster, args.limit).await?),
                JobName::Job(job) => (job.cluster, client.job(job.cluster, job.proc).await?),
            };
            text.push_str(&jobs(cluster, &reply));
            replies.push(reply);
        }
        if args.json { print_json(&replies) } else { print(&text) }
    })
}

fn clusters(reply: &api::rest::QueueReply) -> String {
    if reply.clusters.is_empty() {
        return "The queue is empty.\n".to_owned();
    }
    let mut t = Table::new(
        &["CLUSTER", "OWNER", "SUBMITTED", "TOTAL", "IDLE", "RUN", "HELD", "DONE", "FAILED", "COMMAND"],
        &[0, 3, 4, 5, 6, 7, 8],
    );
    for c in &reply.clusters {
        let name = if c.batch_name.is_empty() { &c.command } else { &c.batch_name };
        t.row(vec![
            c.cluster.to_string(),
            c.owner.clone(),
            table::time(c.submitted_ms),
            c.total.to_string(),
            c.idle.to_string(),
            c.running.to_string(),
            c.held.to_string(),
            (c.succeeded + c.failed + c.removed).to_string(),
            c.failed.to_string(),
            name.clone(),
        ]);
    }
    t.render()
}

fn jobs(cluster: u32, reply: &api::rest::ClusterReply) -> String {
    let c = reply.counts;
    if !reply.active {
        return format!(
            "Cluster {cluster} is over: {} succeeded, {} failed, {} removed.\n",
            c.succeeded, c.failed, c.removed
        );
    }
    let now = model_now();
    let mut t = Table::new(&["JOB", "STATE", "SINCE", "TRIES", "WHERE", "WHY"], &[3]);
    for j in &reply.jobs {
        let since =
            j.started_ms.map_or_else(String::new, |ms| table::duration(now.saturating_sub(ms) / 1000));
        let place = match (&j.slot, &j.machine) {
            (Some(slot), Some(machine)) => format!("{slot}@{machine}"),
            _ => String::new(),
        };
        let guest = || j.guest_of.as_ref().map(|host| format!("guest of {host}"));
        let why = j.hold_reason.clone().or_else(guest).unwrap_or_default();
        t.row(vec![j.job.clone(), j.state.clone(), since, j.attempts.to_string(), place, why]);
    }
    let shown = reply.jobs.len() as u64;
    let all = c.idle + c.running + c.held + c.completed;
    let rest = if shown < all { format!("and {} more\n", all - shown) } else { String::new() };
    format!(
        "{}{rest}Cluster {cluster}: {} idle, {} running, {} held, {} succeeded, {} failed, {} removed{}.\n",
        t.render(),
        c.idle,
        c.running,
        c.held,
        c.succeeded,
        c.failed,
        c.removed,
        if c.completed > 0 {
            format!("; {} of them stay to be looked at", c.completed)
        } else {
            String::new()
        }
    )
}

fn model_now() -> u64 {
    jiff::Timestamp::now().as_millisecond() as u64
}
