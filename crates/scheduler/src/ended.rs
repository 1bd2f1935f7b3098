//! What becomes of jobs whose attempts are over, and of the claims that had them: held, removed or idle again as it was asked for,
//! back to the queue when nobody asked. What jobs' own expressions decide at an exit is in `lifecycle`, what is kept after it in
//! `reserve`.

use std::collections::BTreeMap;

use model::event::{Afterwards, JobsHeld, JobsRemoved, JobsRequeued, Kind};
use model::{ClaimId, JobId, ProcSet, Span};

use crate::books::Books;
use crate::queue::Stop;
use crate::{Turn, feed};

/// The attempts of jobs that were asked to stop have ended.
pub(crate) fn after_stop(books: &mut Books, turn: &mut Turn<'_>, id: ClaimId, jobs: &[JobId], stop: &Stop) {
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
        books.record(turn, kind);
    }
}

/// Attempts ended without their jobs having finished.
pub(crate) fn requeue(
    books: &mut Books,
    turn: &mut Turn<'_>,
    id: ClaimId,
    jobs: &[JobId],
    reason: &str,
    code: u32,
) {
    for (cluster, procs) in by_cluster(jobs) {
        let reason = reason.to_owned();
        let requeued = JobsRequeued { claim: id.0, cluster, procs, reason, code, exit: None };
        books.record(turn, Kind::JobsRequeued(requeued));
    }
}

/// A claim is known to be dead: its jobs go where they belong, and it is over.
pub(crate) fn lose_claim(books: &mut Books, turn: &mut Turn<'_>, id: ClaimId, reason: &str, code: u32) {
    let Some(claim) = books.pool.claims().get(&id) else { return };
    let jobs = claim.jobs.clone();
    end_attempts_at(books, turn, id, jobs, reason, code);
    feed::end_claim(books, turn, id, reason);
}

/// Jobs of a claim are known not to be alive: they go where they belong.
pub(crate) fn end_attempts_at(
    books: &mut Books,
    turn: &mut Turn<'_>,
    id: ClaimId,
    jobs: Vec<JobId>,
    reason: &str,
    code: u32,
) {
    let mut plain = Vec::new();
    for job in jobs {
        let live = books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
        match live.and_then(|l| l.stop.clone()) {
            Some(stop) => after_stop(books, turn, id, &[job], &stop),
            None => plain.push(job),
        }
    }
    requeue(books, turn, id, &plain, reason, code);
}

/// Jobs grouped by cluster, procs as spans.
pub(crate) fn by_cluster(jobs: &[JobId]) -> Vec<(u32, Vec<Span>)> {
    let mut sets: BTreeMap<u32, ProcSet> = BTreeMap::new();
    for job in jobs {
        sets.entry(job.cluster).or_default().insert(job.proc);
    }
    sets.into_iter().map(|(cluster, set)| (cluster, set.spans())).collect()
}
