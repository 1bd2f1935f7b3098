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
use model::report::{SeatAnswer, SeatSaid};
use model::{ClaimId, ClaimKey, JobId, Now};

use crate::agents::equal;
use crate::feed::Cut;
use crate::pass::Candidate;
use crate::shape::ShapeId;
use crate::{Core, Effect, HeldClaim, Out, Turn};

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

impl Core {
    /// A claim of a gang was made: its machine is told of the match.
    pub(crate) fn notice(&mut self, turn: &mut Turn<'_>, id: ClaimId, effect: Effect) {
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
        self.set_seat(turn.now, id, Some(Seat::Noticed));
    }

    /// Says how far a seat is. As long as its machine has not heard of its job nobody can be asked to stop that.
    fn set_seat(&mut self, now: Now, id: ClaimId, seat: Option<Seat>) {
        self.pool.set_seat(id, seat, now.mono_ms);
        let claim = self.pool.claims().get(&id);
        if let Some(cluster) = claim.and_then(|c| c.jobs.first()).map(|job| job.cluster) {
            self.changes.note_gang(cluster);
        }
    }

    /// A machine that connected says how far a claim is.
    pub(crate) fn note_stage(&mut self, now: Now, id: ClaimId, stage: Stage) {
        let seat = match stage {
            Stage::Active => None,
            Stage::Matched => Some(Seat::Matched),
            Stage::Accepted => Some(Seat::Accepted),
        };
        if seat.is_some() || self.pool.claims().get(&id).is_some_and(|c| c.seat.is_some()) {
            self.set_seat(now, id, seat);
        }
    }

    /// What a machine says of a claim itself.
    pub(crate) fn take_seat(&mut self, turn: &mut Turn<'_>, id: ClaimId, said: &SeatSaid) {
        let Some(claim) = self.pool.claims().get(&id) else { return };
        match SeatAnswer::try_from(said.answer) {
            Ok(SeatAnswer::Matched) if claim.seat == Some(Seat::Noticed) => {
                self.set_seat(turn.now, id, Some(Seat::Matched));
            }
            Ok(SeatAnswer::Accepted) if claim.seat == Some(Seat::Asked) => {
                self.set_seat(turn.now, id, Some(Seat::Accepted));
            }
            Ok(SeatAnswer::BetterRefused) => self.forget_announcement(turn.now, id),
            // Its job leaves all the same, and its room goes to who is best then.
            Ok(SeatAnswer::BetterLate) => self.pool.set_better(id, None),
            Ok(SeatAnswer::Unfed) => self.answer_unfed(turn, id),
            Ok(SeatAnswer::Matched | SeatAnswer::Accepted | SeatAnswer::BetterWaits) | Err(_) => {}
        }
    }

    /// A machine asks whether a claim without jobs is still wanted.
    fn answer_unfed(&mut self, turn: &mut Turn<'_>, id: ClaimId) {
        let Some(claim) = self.pool.claims().get(&id) else { return };
        let idle = claim.jobs.is_empty() && claim.reserved.is_none() && !claim.withheld && !claim.ending;
        if idle {
            return self.feed(turn, id);
        }
        let session = self.pool.machines().get(&claim.machine).and_then(|m| m.session);
        turn.out.effects.extend(session.map(|session| Effect::Keep { session, claim: id }));
    }

    /// Something happened to a gang: its seats go on together.
    pub(crate) fn settle_seats(&mut self, turn: &mut Turn<'_>, id: u32) {
        if self.pool.seating().is_empty() {
            return;
        }
        let Some(cluster) = self.queue.clusters().get(&id).filter(|c| c.gang) else { return };
        let seat_of = |claim: ClaimId| self.pool.claims().get(&claim).and_then(|c| c.seat);
        let mut stopped = Vec::new();
        let mut seats = Vec::new();
        let mut slowest: Option<Seat> = None;
        let mut together = true;
        for (&proc, live) in cluster.live.iter().filter(|(proc, _)| cluster.host_of(**proc).is_none()) {
            let seat = seat_of(live.claim);
            let machine =
                self.pool.claims().get(&live.claim).and_then(|c| self.pool.machines().get(&c.machine));
            // Of a machine that is out of contact nobody knows how far it is.
            let known = live.started_ms.is_some() || machine.is_some_and(|m| m.session.is_some());
            together &= known && live.stop.is_none();
            if let Some(seat) = seat {
                match &live.stop {
                    Some(stop) if seat < Seat::Asked => stopped.push((proc, live.claim, stop.clone())),
                    _ => seats.push((proc, live.claim, live.attempt, seat)),
                }
                slowest = Some(slowest.map_or(seat, |s| s.min(seat)));
            }
        }
        for (proc, claim, stop) in stopped {
            let job = JobId { cluster: id, proc };
            self.after_stop(turn, claim, &[job], &stop);
            self.drop_claim(turn, claim, "its gang was called back");
        }
        if !together {
            return;
        }
        for (proc, claim, attempt, seat) in seats {
            let machine = self.pool.claims().get(&claim).map(|c| c.machine.clone());
            let session = machine.and_then(|m| self.pool.machines().get(&m)).and_then(|m| m.session);
            let Some(session) = session else { continue };
            if slowest == Some(Seat::Accepted) {
                self.set_seat(turn.now, claim, None);
                turn.out.effects.push(Effect::Activate { session, claim });
            } else if seat == Seat::Matched && slowest >= Some(Seat::Matched) {
                self.set_seat(turn.now, claim, Some(Seat::Asked));
                let jobs = vec![(proc, attempt)];
                turn.out.effects.push(Effect::Assign { session, claim, cluster: id, jobs, waits: true });
            }
        }
    }

    /// Gangs whose machines did not all take their seats in time wait again.
    pub(crate) fn end_seating(&mut self, turn: &mut Turn<'_>) {
        let patience_ms = self.settings.match_ms;
        let late = self.pool.seating().iter().filter(|(_, since)| turn.now.mono_ms >= *since + patience_ms);
        let late: Vec<ClaimId> = late.map(|(id, _)| *id).collect();
        for id in late {
            // Once is enough; those that do not hear of it have their leases.
            self.pool.give_seat_time(id, turn.now.mono_ms);
            let Some(job) = self.pool.claims().get(&id).and_then(|c| c.jobs.first().copied()) else {
                continue;
            };
            let cluster = job.cluster;
            let live = self.queue.clusters().get(&cluster).and_then(|c| c.live.get(&job.proc));
            if live.is_none_or(|l| l.stop.is_some()) {
                continue;
            }
            let why = "not every machine took its seat of the gang in time (MATCH_TIMEOUT)";
            self.stop_live(turn, cluster, None, Afterwards::Idle, why, (vacate::FOR_ANOTHER, 0));
            self.changes.note_gang(cluster);
        }
    }

    // Better matches.

    /// Tells the machine of a claim that a better job waits for its slot.
    pub(crate) fn announce(&mut self, id: ClaimId, shape: ShapeId, why: &str, out: &mut Out) -> bool {
        let Some(claim) = self.pool.claims().get(&id) else { return false };
        let Some(machine) = self.pool.machines().get(&claim.machine) else { return false };
        let (Some(session), Some(ready)) = (machine.session, self.first_for(machine, shape)) else {
            return false;
        };
        let cluster = self.queue.clusters().get(&ready.cluster);
        let part = cluster.and_then(|c| c.parts.get(ready.part as usize));
        let Some(proc) = part.and_then(|p| p.idle.peek(1).first().map(|s| s.first)) else { return false };
        let Some(key) = self.keys.take() else { return false };
        let announced = Announced { shape, key: key.clone(), why: Arc::from(why) };
        self.pool.set_better(id, Some(announced));
        let (job, reason) = (JobId { cluster: ready.cluster, proc }, why.to_owned());
        out.effects.push(Effect::Better { session, claim: id, key, job, reason });
        true
    }

    /// A machine that connected knows nothing of a better match that it was told of: its agent was started anew.
    pub(crate) fn announce_again(&mut self, turn: &mut Turn<'_>, id: ClaimId, listed: bool) {
        let announced = self.pool.claims().get(&id).and_then(|c| c.better.clone()).filter(|_| !listed);
        if let Some(Announced { shape, why, .. }) = announced
            && !self.announce(id, shape, &why, turn.out)
        {
            self.forget_announcement(turn.now, id);
        }
    }

    /// Is this the better match that a claim's machine was told of?
    pub(crate) fn is_announced(&self, held: &HeldClaim, hello: &[HeldClaim]) -> bool {
        let of = ClaimId(held.claim.0 & !BETTER);
        let better = self.pool.claims().get(&of).and_then(|c| c.better.as_ref());
        held.claim.0 & BETTER > 0
            && better.is_some_and(|b| b.key == held.key)
            && hello.iter().any(|other| other.claim == of)
    }

    /// A machine has a better match that an earlier manager told it of: it is taken up again, if its job still waits, so that the slot
    /// is handed over as it was meant to be.
    pub(crate) fn take_up_announcement(
        &mut self,
        name: &str,
        held: &HeldClaim,
        hello: &[HeldClaim],
        digest: crate::Digest,
    ) -> bool {
        let of = ClaimId(held.claim.0 & !BETTER);
        let Some(claim) = self.pool.claims().get(&of).filter(|_| held.claim.0 & BETTER > 0) else {
            return false;
        };
        let is_proven =
            |other: &HeldClaim| other.claim == of && equal(&claim.key_digest, &digest(&other.key));
        let is_theirs = crate::pool::host_of(&claim.machine) == name && hello.iter().any(is_proven);
        if !is_theirs || claim.better.is_some() || claim.rival.is_some() {
            return false;
        }
        let job = held.jobs.first().map(|attempt| attempt.job());
        let waits = |job: &JobId| {
            self.queue.clusters().get(&job.cluster).is_some_and(|c| !c.gang && c.is_idle(job.proc))
        };
        let Some(shape) = job.filter(waits).and_then(|job| self.shape_of(job)) else { return false };
        let why = Arc::from(
            "preempted: its machine was told of a better match before the manager was started anew",
        );
        let announced = Announced { shape, key: held.key.clone(), why };
        self.pool.set_better(of, Some(announced));
        self.pool.set_rival(of, shape);
        true
    }

    /// The machine does not prefer what it was told of: nobody leaves for it. Of a gang all leave.
    fn forget_announcement(&mut self, now: Now, id: ClaimId) {
        self.pool.refuse_better(id, now.mono_ms);
        let Some(claim) = self.pool.claims().get(&id) else { return };
        let stopped = |job: &JobId| {
            let live = self.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
            live.is_some_and(|l| l.stop.is_some())
        };
        if !claim.jobs.iter().any(stopped) {
            self.pool.drop_rival(id);
        }
    }

    /// A machine said a moment ago that it does not prefer another job to this claim's.
    pub(crate) fn was_refused(&self, now: Now, id: ClaimId) -> bool {
        let refused_ms = self.pool.claims().get(&id).and_then(|c| c.refused_ms);
        refused_ms.is_some_and(|at| now.mono_ms < at + REFUSED_MS)
    }

    /// What a claim that is about to end leaves to the better match that its machine was told of.
    pub(crate) fn estate(&self, id: ClaimId) -> Option<Estate> {
        let claim = self.pool.claims().get(&id)?;
        Some(Estate { of: id, slot_number: claim.slot_number, announced: claim.better.clone()? })
    }

    /// The room of a victim goes to a job: by way of the match that waits when it is one of its kind.
    pub(crate) fn start_heir(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        candidate: Option<Candidate>,
        estate: Option<Estate>,
    ) {
        let Some(session) = self.pool.machines().get(name).and_then(|m| m.session) else { return };
        // A slot that changes hands is not held up: somebody worse would have it meanwhile. It counts as a start all the same.
        if candidate.is_some() {
            self.throttle.may_start(turn.now.mono_ms);
        }
        let is_heir = |e: &Estate| candidate.is_some_and(|c| c.shape == e.announced.shape);
        let (heir, other) =
            if estate.as_ref().is_some_and(is_heir) { (estate, None) } else { (None, estate) };
        if let Some(estate) = other {
            turn.out.effects.push(Effect::Drop { session, claim: ClaimId(BETTER | estate.of.0) });
        }
        let Some(candidate) = candidate else { return };
        let Some(key) = heir.as_ref().map(|e| e.announced.key.clone()).or_else(|| self.keys.take()) else {
            return;
        };
        let cut = Cut { slot: heir.as_ref().map(|e| e.slot_number), ..Cut::default() };
        let made = self.make_claim(turn, name, candidate, cut, &key);
        let Some(claim) = made else { return };
        let mut effect = self.claim_effect(session, claim, key);
        if let Effect::Claim { instead_of, .. } = &mut effect {
            *instead_of = heir.map(|e| e.of);
        }
        turn.out.effects.push(effect);
        // Whom it replaces may be before it in its own user's line, and would come back in its place.
        self.feed_first(turn, claim, Some(candidate));
    }
}
