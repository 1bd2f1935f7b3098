//! Run limits end jobs at their second: each run that declares one has a timer. What is promised to gangs relies on it.
//!
//! The timers follow from what is durable (when a run began, what it declared, what it was granted), and are made anew by
//! recovery. One too many is harmless: when its time comes the expressions are asked as always.

use model::{JobId, Now, ProcSet};

use super::asked::Asked;
use super::{Look, Verdict};
use crate::Turn;
use crate::lifecycle::Round;
use crate::queue::{Cluster, Queue};

impl Cluster {
    /// When a run is over at the latest, in Unix milliseconds; `None` for one without a limit, or that has not begun.
    fn run_limit_ms(&self, id: u32, proc: u32) -> Option<u64> {
        let started_ms = self.live.get(&proc)?.started_ms.filter(|_| self.policies.limited)?;
        let began = Now { mono_ms: 0, wall_ms: started_ms };
        let ad = self.policy_ad(id, proc, began, None);
        let seconds = Asked::new(&ad, began).allowed_s()?;
        Some(started_ms.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)))
    }
}

/// A run has begun, or may last for another time than before.
pub(crate) fn watch_limit(queue: &mut Queue, job: JobId) {
    let cluster = queue.clusters().get(&job.cluster);
    let due = cluster.and_then(|c| c.run_limit_ms(job.cluster, job.proc));
    if let Some(due_ms) = due {
        queue.watch_limit(due_ms, job);
    }
}

/// The same of every run of a cluster: limits of a gang are those of the whole, so that each depends on the others.
pub(crate) fn watch_limits(queue: &mut Queue, cluster: u32) {
    let live = queue.clusters().get(&cluster).filter(|c| c.policies.limited);
    let procs: Vec<u32> = live.into_iter().flat_map(|c| c.live.keys().copied()).collect();
    for proc in procs {
        watch_limit(queue, JobId { cluster, proc });
    }
}

/// When [`judge_next_overrun`] has something to do next.
pub(crate) fn next_limit_ms(queue: &Queue) -> Option<u64> {
    queue.limits().first().map(|(due_ms, _)| *due_ms)
}

/// The next cluster with a run that has lasted as long as it may, and what becomes of its jobs.
pub(crate) fn judge_next_overrun(
    queue: &mut Queue,
    round: &mut Round,
    turn: &mut Turn<'_>,
) -> Option<(u32, Vec<(ProcSet, Verdict)>)> {
    while let Some(job) = queue.take_overrun(turn.now.wall_ms) {
        let id = job.cluster;
        let Some(cluster) = queue.clusters().get(&id) else { continue };
        let later = cluster.run_limit_ms(id, job.proc).filter(|due| *due > turn.now.wall_ms);
        if let Some(due_ms) = later {
            queue.watch_limit(due_ms, job);
            continue;
        }
        let patient = cluster.is_within_limits(id, None, turn.now);
        let mut look = Look { cluster, id, now: turn.now, patient, verdicts: Vec::new(), doubts: Vec::new() };
        let procs: Vec<u32> = if cluster.policies.together {
            cluster.live.keys().copied().collect()
        } else {
            cluster.live.contains_key(&job.proc).then_some(job.proc).into_iter().collect()
        };
        let mut verdicts: Vec<(ProcSet, Verdict)> = Vec::new();
        for proc in procs {
            verdicts.extend(look.ask(proc).map(|verdict| ([proc].into_iter().collect(), verdict)));
        }
        for (proc, doubts) in look.doubts {
            round.tell(JobId { cluster: id, proc }, doubts, turn.out);
        }
        return Some((id, verdicts));
    }
    None
}
