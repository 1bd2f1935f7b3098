//! What becomes of jobs whose attempts are over, and of the claims that had them: held, removed or idle again as it was asked for,
//! back to the queue when nobody asked. What jobs' own expressions decide at an exit is in `lifecycle`, what is kept after it in
//! `reserve`.

use std::collections::BTreeMap;

use model::event::{Afterwards, JobsHeld, JobsRemoved, JobsRequeued, Kind};
use model::{ClaimId, JobId, ProcSet, Span};

use crate::pool::{Claim, Reserved};
use crate::queue::Stop;
use crate::{Core, Turn};

impl Core {
    /// The attempts of jobs that were asked to stop have ended.
    pub(crate) fn after_stop(&mut self, turn: &mut Turn<'_>, id: ClaimId, jobs: &[JobId], stop: &Stop) {
        for (cluster, procs) in by_cluster(jobs) {
            let reason = stop.reason.clone();
            let kind = match stop.afterwards {
                Afterwards::Removed => Kind::JobsRemoved(JobsRemoved { cluster, procs, reason }),
                Afterwards::Held => {
                    let (code, subcode) = (stop.code, stop.subcode);
                    Kind::JobsHeld(JobsHeld { cluster, procs, reason, code, subcode, exit: None })
                }
                Afterwards::Idle => {
                    let (claim, code) = (id.0, stop.code);
                    Kind::JobsRequeued(JobsRequeued { claim, cluster, procs, reason, code, exit: None })
                }
            };
            self.record(turn, kind);
        }
    }

    /// Attempts ended without their jobs having finished.
    pub(crate) fn requeue(
        &mut self,
        turn: &mut Turn<'_>,
        id: ClaimId,
        jobs: &[JobId],
        reason: &str,
        code: u32,
    ) {
        for (cluster, procs) in by_cluster(jobs) {
            let reason = reason.to_owned();
            let requeued = JobsRequeued { claim: id.0, cluster, procs, reason, code, exit: None };
            self.record(turn, Kind::JobsRequeued(requeued));
        }
    }

    /// A claim is known to be dead: its jobs go where they belong, and it is over.
    pub(crate) fn lose_claim(&mut self, turn: &mut Turn<'_>, id: ClaimId, reason: &str, code: u32) {
        let Some(claim) = self.pool.claims().get(&id) else { return };
        let jobs = claim.jobs.clone();
        self.end_attempts_at(turn, id, jobs, reason, code);
        self.end_claim(turn, id, reason);
    }

    /// Jobs of a claim are known not to be alive: they go where they belong.
    pub(crate) fn end_attempts_at(
        &mut self,
        turn: &mut Turn<'_>,
        id: ClaimId,
        jobs: Vec<JobId>,
        reason: &str,
        code: u32,
    ) {
        let mut plain = Vec::new();
        for job in jobs {
            let live = self.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
            match live.and_then(|l| l.stop.clone()) {
                Some(stop) => self.after_stop(turn, id, &[job], &stop),
                None => plain.push(job),
            }
        }
        self.requeue(turn, id, &plain, reason, code);
    }

    /// An attempt is over: its claim waits for the rest of its gang, goes on with other jobs, or ends.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>, id: ClaimId, job: JobId) {
        let over = self.queue.clusters().get(&job.cluster).is_some_and(|c| c.is_over(job.proc));
        let free = |c: &Claim| c.jobs.is_empty() && c.reserved.is_none() && !c.ending;
        if over && self.pool.claims().get(&id).is_some_and(free) && self.is_reserved_for_gang(job) {
            self.keep(turn, id, Reserved { job, until_ms: None });
        }
        self.feed(turn, id);
    }
}

/// Jobs grouped by cluster, procs as spans.
pub(crate) fn by_cluster(jobs: &[JobId]) -> Vec<(u32, Vec<Span>)> {
    let mut sets: BTreeMap<u32, ProcSet> = BTreeMap::new();
    for job in jobs {
        sets.entry(job.cluster).or_default().insert(job.proc);
    }
    sets.into_iter().map(|(cluster, set)| (cluster, set.spans())).collect()
}
