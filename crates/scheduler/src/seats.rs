//! Claims on their way to their first jobs, and slots on their way from one claim to a better one (decision 053).
//!
//! A gang's claims are made in one record. Its machines are told in three steps, each when all have answered the one before: the slot is
//! promised, the claim is asked for with a job that waits, the jobs begin. How far a seat is is not recorded: a machine says so when it
//! connects. A seat that is refused or lost calls the others back, as the end of any of a gang's jobs does.
//!
//! A job that is to leave for a better one is not stopped by the manager: its machine is told of the better match, and agrees or does not.
//! When its claim is gone the one that waits takes the slot over, if the room still goes to such a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::agent::{BETTER, Notice, Stage};
use model::codes::vacate;
use model::event::Afterwards;
use model::{ClaimId, ClaimKey, JobId, Now};

use crate::agents::equal;
use crate::books::Books;
use crate::changes::Changes;
use crate::keys::Keys;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::shape::ShapeId;
use crate::{Effect, HeldClaim, Out, Turn, orders, preempt, provision};

/// So long a machine that did not prefer a job is not asked again for the same claim.
const REFUSED_MS: u64 = 30_000;

/// How far a seat of a gang is on its way. As long as it is, its claim takes no other job: its machine has no starter for it yet, or
/// waits for a word about the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seat {
    /// Its machine was told of the match.
    Noticed,
    /// The slot is promised to it.
    Matched,
    /// Its machine was asked, with its job.
    Asked,
    /// It has the slot, and its job waits.
    Accepted,
}

/// A better match that a machine was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) shape: ShapeId,
    /// What the claim to come will be proven with.
    pub(crate) key: ClaimKey,
    /// Why, for the job that leaves.
    why: Arc<str>,
}

/// What is left of a claim that ended for a better match.
#[derive(Debug)]
pub(crate) struct Estate {
    pub(crate) of: ClaimId,
    pub(crate) slot_number: u32,
    pub(crate) announced: Announced,
}

/// Seats on their way, and since when, by the monotonic clock.
pub(crate) type Seating = BTreeMap<ClaimId, u64>;

/// A claim of a gang was made: its machine is told of the match.
pub(crate) fn notice(
    pool: &mut Pool,
    changes: &mut Changes,
    turn: &mut Turn<'_>,
    id: ClaimId,
    effect: Effect,
) {
    let Effect::Claim { session, claim, key, slot, owner, resources, lease_ms, instead_of, .. } = effect
    else {
        return;
    };
    let notice = Notice::Before;
    turn.out.effects.push(Effect::Claim {
        session,
        claim,
        key,
        slot,
        owner,
        resources,
        lease_ms,
        notice,
        instead_of,
    });
    set_seat(pool, changes, turn.now, id, Some(Seat::Noticed));
}

/// Says how far a seat is. As long as its machine has not heard of its job nobody can be asked to stop that.
pub(crate) fn set_seat(pool: &mut Pool, changes: &mut Changes, now: Now, id: ClaimId, seat: Option<Seat>) {
    pool.set_seat(id, seat, now.mono_ms);
    let claim = pool.claims().get(&id);
    if let Some(cluster) = claim.and_then(|c| c.jobs.first()).map(|job| job.cluster) {
        changes.note_gang(cluster);
    }
}

/// A machine that connected says how far a claim is.
pub(crate) fn note_stage(pool: &mut Pool, changes: &mut Changes, now: Now, id: ClaimId, stage: Stage) {
    let seat = match stage {
        Stage::Active => None,
        Stage::Matched => Some(Seat::Matched),
        Stage::Accepted => Some(Seat::Accepted),
    };
    if seat.is_some() || pool.claims().get(&id).is_some_and(|c| c.seat.is_some()) {
        set_seat(pool, changes, now, id, seat);
    }
}

/// Gangs whose machines did not all take their seats in time wait again.
pub(crate) fn end_seating(books: &mut Books, turn: &mut Turn<'_>) {
    let patience_ms = books.settings.match_ms;
    let late = books.pool.seating().iter().filter(|(_, since)| turn.now.mono_ms >= *since + patience_ms);
    let late: Vec<ClaimId> = late.map(|(id, _)| *id).collect();
    for id in late {
        // Once is enough; those that do not hear of it have their leases.
        books.pool.give_seat_time(id, turn.now.mono_ms);
        let Some(job) = books.pool.claims().get(&id).and_then(|c| c.jobs.first().copied()) else {
            continue;
        };
        let cluster = job.cluster;
        let live = books.queue.clusters().get(&cluster).and_then(|c| c.live.get(&job.proc));
        if live.is_none_or(|l| l.stop.is_some()) {
            continue;
        }
        let why = "not every machine took its seat of the gang in time (MATCH_TIMEOUT)";
        orders::stop_live(books, turn, cluster, None, Afterwards::Idle, why, (vacate::FOR_ANOTHER, 0));
        books.changes.note_gang(cluster);
    }
}

/// Tells the machine of a claim that a better job waits for its slot.
pub(crate) fn announce(
    books: &mut Books,
    keys: &mut Keys,
    id: ClaimId,
    shape: ShapeId,
    why: &str,
    out: &mut Out,
) -> bool {
    let Some(claim) = books.pool.claims().get(&id) else { return false };
    let Some(machine) = books.pool.machines().get(&claim.machine) else { return false };
    let (Some(session), Some(ready)) = (machine.session, provision::first_for(books, machine, shape)) else {
        return false;
    };
    let cluster = books.queue.clusters().get(&ready.cluster);
    let part = cluster.and_then(|c| c.parts.get(ready.part as usize));
    let Some(proc) = part.and_then(|p| p.idle.peek(1).first().map(|s| s.first)) else { return false };
    let Some(key) = keys.take() else { return false };
    let announced = Announced { shape, key: key.clone(), why: Arc::from(why) };
    books.pool.set_better(id, Some(announced));
    let (job, reason) = (JobId { cluster: ready.cluster, proc }, why.to_owned());
    out.effects.push(Effect::Better { session, claim: id, key, job, reason });
    true
}

/// A machine that connected knows nothing of a better match that it was told of: its agent was started anew.
pub(crate) fn announce_again(
    books: &mut Books,
    keys: &mut Keys,
    turn: &mut Turn<'_>,
    id: ClaimId,
    listed: bool,
) {
    let announced = books.pool.claims().get(&id).and_then(|c| c.better.clone()).filter(|_| !listed);
    if let Some(Announced { shape, why, .. }) = announced
        && !announce(books, keys, id, shape, &why, turn.out)
    {
        forget_announcement(&books.queue, &mut books.pool, turn.now, id);
    }
}

/// Is this the better match that a claim's machine was told of?
pub(crate) fn is_announced(pool: &Pool, held: &HeldClaim, hello: &[HeldClaim]) -> bool {
    let of = ClaimId(held.claim.0 & !BETTER);
    let better = pool.claims().get(&of).and_then(|c| c.better.as_ref());
    held.claim.0 & BETTER > 0
        && better.is_some_and(|b| b.key == held.key)
        && hello.iter().any(|other| other.claim == of)
}

/// A machine has a better match that an earlier manager told it of: it is taken up again, if its job still waits, so that the slot
/// is handed over as it was meant to be.
pub(crate) fn take_up_announcement(
    queue: &Queue,
    pool: &mut Pool,
    name: &str,
    held: &HeldClaim,
    hello: &[HeldClaim],
    digest: crate::Digest,
) -> bool {
    let of = ClaimId(held.claim.0 & !BETTER);
    let Some(claim) = pool.claims().get(&of).filter(|_| held.claim.0 & BETTER > 0) else {
        return false;
    };
    let is_proven = |other: &HeldClaim| other.claim == of && equal(&claim.key_digest, &digest(&other.key));
    let is_theirs = crate::pool::host_of(&claim.machine) == name && hello.iter().any(is_proven);
    if !is_theirs || claim.better.is_some() || claim.rival.is_some() {
        return false;
    }
    let job = held.jobs.first().map(|attempt| attempt.job());
    let waits =
        |job: &JobId| queue.clusters().get(&job.cluster).is_some_and(|c| !c.gang && c.is_idle(job.proc));
    let Some(shape) = job.filter(waits).and_then(|job| preempt::shape_of(queue, job)) else { return false };
    let why =
        Arc::from("preempted: its machine was told of a better match before the manager was started anew");
    let announced = Announced { shape, key: held.key.clone(), why };
    pool.set_better(of, Some(announced));
    pool.set_rival(of, shape);
    true
}

/// The machine does not prefer what it was told of: nobody leaves for it. Of a gang all leave.
pub(crate) fn forget_announcement(queue: &Queue, pool: &mut Pool, now: Now, id: ClaimId) {
    pool.refuse_better(id, now.mono_ms);
    let Some(claim) = pool.claims().get(&id) else { return };
    let stopped = |job: &JobId| {
        let live = queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
        live.is_some_and(|l| l.stop.is_some())
    };
    if !claim.jobs.iter().any(stopped) {
        pool.drop_rival(id);
    }
}

/// A machine said a moment ago that it does not prefer another job to this claim's.
pub(crate) fn was_refused(pool: &Pool, now: Now, id: ClaimId) -> bool {
    let refused_ms = pool.claims().get(&id).and_then(|c| c.refused_ms);
    refused_ms.is_some_and(|at| now.mono_ms < at + REFUSED_MS)
}

/// What a claim that is about to end leaves to the better match that its machine was told of.
pub(crate) fn estate(pool: &Pool, id: ClaimId) -> Option<Estate> {
    let claim = pool.claims().get(&id)?;
    Some(Estate { of: id, slot_number: claim.slot_number, announced: claim.better.clone()? })
}
