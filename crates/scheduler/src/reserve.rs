//! Longer than declared: more time for running jobs, and machines that are kept after the run.
//!
//! A claim is kept though its job is over, for one of two reasons. A job with ReserveAfter (seconds), and ReserveWhen
//! ("always" or "failed"), leaves its claim to its owner for so long. A job of a gang leaves it to its gang: the machines of a
//! set go back to the pool together, when the last of its jobs is over or when all are called back, unless the job says
//! EarlyRelease and none of its guests is alive. Either way the job is over for everybody who waits for it, and the machine is not free before its time is
//! over or the owner returns it. A claim that waits so takes nothing of named limits: nothing runs.
//!
//! Extensions move the hard end of a running job, which promises to gangs are made by; so only an administrator gives them
//! where a gang has been promised the machine.

use classad::{ClassAd, Value};
use model::attributes::{EARLY_RELEASE, RESERVE_AFTER};
use model::event::{Afterwards, Exit, JobReserved, JobsExtended, Kind};
use model::{ClaimId, JobId, JobName, ProcSet};

use crate::books::Books;
use crate::gangs::Gangs;
use crate::pool::{Pool, Reserved};
use crate::queue::{Cluster, Queue};
use crate::shape::Shapes;
use crate::{Actor, Outcome, Refusal, Turn, gangs, preempt};

/// The longest reservation, and the most that a job can be extended by: 30 days.
pub(crate) const MOST_S: u64 = 30 * 86_400;

/// How long the owner of a job may keep its machine after the run, in seconds.
pub(crate) fn reserve_after(ad: &ClassAd) -> u64 {
    let seconds = ad.eval_int(RESERVE_AFTER).and_then(|s| u64::try_from(s).ok());
    seconds.unwrap_or(0).min(MOST_S)
}

impl Cluster {
    /// A gang that has begun and goes on: what its ended jobs had is kept for it. One that is called back begins anew, with
    /// machines that it is given then.
    fn is_going_on(&self) -> bool {
        let stays = |afterwards: Afterwards| afterwards != Afterwards::Idle;
        self.gang
            && !self.is_broken()
            && self.live.values().any(|l| l.stop.as_ref().is_none_or(|s| stays(s.afterwards)))
    }

    /// Neither waiting nor held nor in the hands of a claim.
    pub(crate) fn is_over(&self, proc: u32) -> bool {
        !self.live.contains_key(&proc) && !self.held.contains(proc) && !self.is_idle(proc)
    }
}

/// How long the owner of a job keeps its machine after this end of it, in seconds; 0 for not at all.
pub(crate) fn reservation(queue: &Queue, shapes: &Shapes, job: JobId, exit: &Exit) -> u64 {
    let Some(ad) = preempt::shape_of(queue, job).and_then(|s| shapes.ad(s)) else { return 0 };
    let seconds = reserve_after(ad);
    let failed_only =
        seconds > 0 && matches!(ad.eval("ReserveWhen"), Value::Str(when) if when.to_string() == "failed");
    if failed_only && exit.success() { 0 } else { seconds }
}

/// A job has ended, and its owner keeps the claim.
pub(crate) fn reserve(books: &mut Books, turn: &mut Turn<'_>, id: ClaimId, job: JobId, seconds: u64) {
    keep(books, turn, id, Reserved { job, until_ms: Some(turn.now.wall_ms + seconds * 1000) });
}

pub(crate) fn keep(books: &mut Books, turn: &mut Turn<'_>, id: ClaimId, kept: Reserved) {
    let JobId { cluster, proc } = kept.job;
    let (until_ms, for_gang) = (kept.until_ms.unwrap_or(0), kept.until_ms.is_none());
    let kind = JobReserved { claim: id.0, cluster, proc, until_ms, for_gang };
    books.record(turn, Kind::JobReserved(kind));
}

/// Does the machine of a job that is over stay with its gang?
pub(crate) fn is_reserved_for_gang(queue: &Queue, shapes: &Shapes, job: JobId) -> bool {
    let Some(cluster) = queue.clusters().get(&job.cluster) else { return false };
    // A guest has no machine of its own; a host's is there as long as its guests are.
    let has_guests = || cluster.guests_of(job.proc).any(|g| cluster.live.contains_key(&g));
    cluster.is_going_on()
        && cluster.host_of(job.proc).is_none()
        && (!is_released_early(queue, shapes, job) || has_guests())
}

fn is_released_early(queue: &Queue, shapes: &Shapes, job: JobId) -> bool {
    let ad = preempt::shape_of(queue, job).and_then(|s| shapes.ad(s));
    ad.is_some_and(|ad| ad.eval_bool(EARLY_RELEASE) == Some(true))
}

/// Is a claim kept for a gang that needs it no more?
pub(crate) fn is_reserved_in_vain(queue: &Queue, pool: &Pool, shapes: &Shapes, id: ClaimId) -> bool {
    let Some(claim) = pool.claims().get(&id).filter(|c| !c.ending) else { return false };
    claim.reserved.is_some_and(|k| k.until_ms.is_none() && !is_reserved_for_gang(queue, shapes, k.job))
}

pub(crate) fn reservations(pool: &Pool) -> impl Iterator<Item = (ClaimId, Reserved)> + '_ {
    let claims = pool.reserved().iter().filter_map(|(_, id)| Some((*id, pool.claims().get(id)?)));
    claims.filter(|(_, claim)| !claim.ending).filter_map(|(id, claim)| Some((id, claim.reserved?)))
}

/// Running jobs get more time.
pub(crate) fn extend(
    books: &mut Books,
    gangs: &Gangs,
    turn: &mut Turn<'_>,
    actor: &Actor,
    cluster: u32,
    procs: Option<&ProcSet>,
    seconds: u64,
) -> Result<Outcome, Refusal> {
    let Some(found) = books.queue.clusters().get(&cluster) else { return Ok(Outcome::default()) };
    let live = found.live.iter().filter(|(proc, _)| procs.is_none_or(|p| p.contains(**proc)));
    let mut chosen = ProcSet::default();
    for (&proc, live) in live {
        let machine = books.pool.claims().get(&live.claim).map(|c| &c.machine);
        let number = machine.and_then(|m| books.pool.machines().get(m)).map(|m| m.number);
        let promised = number.and_then(|n| gangs::kept_for(books, gangs, n, turn.now.wall_ms));
        let end_s = gangs::ends::end_of(&books.settings, &books.shapes, found, proc, turn.now.wall_ms)
            .unwrap_or(0)
            .saturating_add(seconds);
        let late = promised.filter(|(_, until_s)| end_s > *until_s);
        if let Some((gang, _)) = late.filter(|_| !actor.any_owner) {
            let job = JobName::Job(JobId { cluster, proc });
            return Err(Refusal::Promised { job, gang });
        }
        chosen.insert(proc);
    }
    let changed = chosen.len();
    if changed > 0 {
        let (procs, seconds) = (chosen.spans(), seconds.min(MOST_S));
        let by = actor.user.clone();
        books.record(turn, Kind::JobsExtended(JobsExtended { cluster, procs, seconds, by }));
    }
    Ok(Outcome { changed, unsuitable: procs.map_or(0, ProcSet::len).saturating_sub(changed) })
}
