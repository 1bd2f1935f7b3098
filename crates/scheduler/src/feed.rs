//! Claims, once it is decided whose: how they are made, fed with jobs, and ended.

use std::sync::Arc;

use model::agent::BETTER;
use model::event::{ClaimEnded, ClaimMade, JobsAssigned, Kind, Resources};
use model::report::{SeatAnswer, SeatSaid};
use model::{ClaimId, ClaimKey, JobId};

use crate::books::Books;
use crate::gangs::Gangs;
use crate::pass::{Best, Candidate};
use crate::pool::{Claim, Pool, Reserved, fits, host_of, plus, slot_of};
use crate::seats::{Estate, Seat};
use crate::shape::{Ready, ShapeId};
use crate::{
    Core, Effect, Settings, Turn, admission, ended, gangs, preempt, provision, reserve, room, seats,
};

/// How a claim is cut from its machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// Of so much instead of what its jobs ask for; then also from a static slot.
    pub(crate) of: Option<Resources>,
    /// Under the number of the slot that it takes over, where that is free.
    pub(crate) slot: Option<u32>,
}

impl Core {
    /// The first in line among one user's jobs that a claim can go on with: what it holds is what they want.
    fn next_for(&mut self, id: ClaimId, now_ms: u64) -> Option<Candidate> {
        let claim = self.books.pool.claims().get(&id)?;
        let machine = self.books.pool.machines().get(&claim.machine)?;
        for (_, shape) in self.books.accounts.get(claim.user).waiting() {
            let Some(s) = self.books.shapes.all().get(&shape) else { continue };
            let fit = if machine.whole && s.request != Resources::default() {
                fits(s.request, claim.resources)
            } else {
                s.request == claim.resources
            };
            // Most of a user's shapes end here, before anything is looked up.
            if !fit
                || lease_ms(&self.books.settings, s.lease_ms) != claim.lease_ms
                || s.limits != claim.limits
            {
                continue;
            }
            let cores = f64::from(claim.resources.cpus);
            if admission::kept_for_older(&self.books.accounts, &self.gangs, None, s.user, cores, &s.limits)
                .is_some()
            {
                continue;
            }
            let Some(ready) = provision::first_for(&self.books, machine, shape) else { continue };
            let same_owner =
                self.books.queue.clusters().get(&ready.cluster).is_some_and(|c| c.owner == claim.owner);
            if same_owner
                && room::may_take(&self.books, &self.gangs, machine, shape, now_ms)
                && self.books.shapes.can_run(shape, machine)
            {
                return Some(Candidate { shape, ready });
            }
        }
        None
    }

    /// Gives a claim its next jobs: enough that its starter need not wait for the disk between two short ones, never
    /// more than its part of what is left. A claim that nobody waits for ends.
    pub(crate) fn feed(&mut self, turn: &mut Turn<'_>, id: ClaimId) {
        self.feed_first(turn, id, None);
    }

    /// The same, beginning with the job that the claim was made for, whatever else its user has in line.
    pub(crate) fn feed_first(&mut self, turn: &mut Turn<'_>, id: ClaimId, mut first: Option<Candidate>) {
        loop {
            let Some(claim) = self.books.pool.claims().get(&id).filter(|c| !c.ending && c.reserved.is_none())
            else {
                return;
            };
            let held = claim.jobs.len() as u32;
            if held > 0 && self.is_busy_for_long(claim, turn.now) {
                return;
            }
            let Some(machine) = self.books.pool.machines().get(&claim.machine) else { return };
            let Some(session) = machine.session else { return };
            let (closed, rival, is_seat) = (machine.shut.is_some(), claim.rival, claim.seat.is_some());
            // A claim goes on with its own user for a while; then it is everybody's turn again.
            let old = claim.made_ms + self.books.settings.claim_worklife_ms < turn.now.wall_ms;
            let candidate = if closed || rival.is_some() || is_seat {
                None
            } else if first.is_some() {
                first.take()
            } else {
                let next = self.next_for(id, turn.now.wall_ms);
                next.filter(|next| !old || held > 0 || self.is_still_their_turn(id, *next, turn.now.wall_ms))
            };
            let Some(candidate) = candidate else {
                if held == 0 {
                    self.drop_claim(turn, id, "no more jobs for it");
                }
                return;
            };
            let depth = self.depth(candidate.shape);
            if held > 0 && held > depth / 2 {
                return;
            }
            let Ready { cluster: cluster_id, part, .. } = candidate.ready;
            let Some(cluster) = self.books.queue.clusters().get(&cluster_id) else { return };
            let idle = &cluster.parts[part as usize].idle;
            let fair = u32::try_from(idle.len().div_ceil(self.seats())).unwrap_or(u32::MAX);
            let count = (depth - held.min(depth)).min(fair).max(u32::from(held == 0));
            if count == 0 {
                return;
            }
            let assigned = JobsAssigned { claim: id.0, cluster: cluster_id, procs: idle.peek(count) };
            let procs: Vec<u32> = assigned.procs.iter().flat_map(|s| s.procs()).collect();
            self.books.record(turn, Kind::JobsAssigned(assigned));
            let live = &self.books.queue.clusters()[&cluster_id].live;
            let jobs = procs.iter().map(|p| (*p, live[p].attempt)).collect();
            turn.out.effects.push(Effect::Assign {
                session,
                claim: id,
                cluster: cluster_id,
                jobs,
                waits: false,
            });
        }
    }

    /// A claim without jobs is over: its room goes to whom it was made for, or to who is next.
    pub(crate) fn drop_claim(&mut self, turn: &mut Turn<'_>, id: ClaimId, why: &str) {
        let Some(claim) = self.books.pool.claims().get(&id) else { return };
        let (name, rival) = (claim.machine.clone(), claim.rival);
        let Some(machine) = self.books.pool.machines().get(&name) else { return };
        // Nothing is known of a machine that is away: it is settled when it is back, or when the lease is over.
        let Some(session) = machine.session else { return };
        turn.out.effects.push(Effect::Drop { session, claim: id });
        // What was only promised leaves nothing behind.
        if machine.releases && claim.seat.is_none_or(|seat| seat >= Seat::Asked) {
            // It is over when its machine says that it is in order again.
            self.books.pool.let_end(id);
            return;
        }
        let estate = seats::estate(&self.books.pool, id);
        end_claim(&mut self.books, turn, id, why);
        if let Some(shape) = rival {
            self.replace(turn, &name, shape, estate);
        }
        self.offer_machine(turn, &name);
    }

    /// Would the room of this claim go to the same jobs if it were free?
    fn is_still_their_turn(&mut self, id: ClaimId, next: Candidate, now_ms: u64) -> bool {
        let Some(claim) = self.books.pool.claims().get(&id) else { return false };
        let Some(machine) = self.books.pool.machines().get(&claim.machine) else { return false };
        let (name, user) = (claim.machine.clone(), claim.user);
        let room = plus(machine.free, claim.resources);
        // Its own cores must not count against its user.
        let cores = f64::from(claim.resources.cpus);
        self.books.accounts.lend(user, cores);
        let best = self.best(&name, room, now_ms);
        self.books.accounts.lend(user, -cores);
        match best {
            Best::Found(best) => best == next,
            Best::Nobody | Best::Unknown => true,
        }
    }

    /// How many jobs of a shape a claim may hold.
    fn depth(&self, shape: ShapeId) -> u32 {
        let mean_us = self.books.shapes.all().get(&shape).and_then(|s| s.mean_us);
        // Until one such job has finished nobody knows how long they take.
        mean_us.map_or(1, |mean| {
            ((self.books.settings.ahead_us as f64 / mean.max(100.0)) as u32)
                .clamp(1, self.books.settings.ahead_jobs)
        })
    }

    /// How many jobs can run at once in the pool.
    fn seats(&self) -> u64 {
        self.books.pool.cores().max(1)
    }

    /// An attempt is over: its claim waits for the rest of its gang, goes on with other jobs, or ends.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>, id: ClaimId, job: JobId) {
        let over = self.books.queue.clusters().get(&job.cluster).is_some_and(|c| c.is_over(job.proc));
        let free = |c: &Claim| c.jobs.is_empty() && c.reserved.is_none() && !c.ending;
        if over
            && self.books.pool.claims().get(&id).is_some_and(free)
            && reserve::is_reserved_for_gang(&self.books.queue, &self.books.shapes, job)
        {
            reserve::keep(&mut self.books, turn, id, Reserved { job, until_ms: None });
        }
        self.feed(turn, id);
    }

    /// A victim is gone: its room goes to the job that its machine likes best by now; to whom it made room for, if it
    /// likes no other more.
    pub(crate) fn replace(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        rival: ShapeId,
        estate: Option<Estate>,
    ) {
        let Some(number) = self.books.pool.machines().get(name).map(|m| m.number) else { return };
        let mut best: Option<(f64, Candidate)> = None;
        for shape in std::iter::once(rival).chain(preempt::kinds_in_line(&self.books.accounts, None)) {
            let ready = self
                .books
                .pool
                .machines()
                .get(name)
                .and_then(|m| provision::first_for(&self.books, m, shape));
            let Some(ready) = ready.filter(|_| admission::may_have_more(&self.books, &self.gangs, shape))
            else {
                continue;
            };
            let rank = self.books.shapes.machine_rank(number, shape).unwrap_or(0.0);
            let better = best.as_ref().is_none_or(|(most, _)| rank > *most);
            let machine = self.books.pool.machines().get(name);
            let given =
                machine.is_some_and(|m| room::may_take(&self.books, &self.gangs, m, shape, turn.now.wall_ms));
            if better && given && room::obstacle(&mut self.books, shape, name).is_none() {
                best = Some((rank, Candidate { shape, ready }));
            }
        }
        self.start_heir(turn, name, best.map(|(_, candidate)| candidate), estate);
    }

    /// Something happened to a gang: when it needs what is kept for it no more, all of that goes back in this step.
    pub(crate) fn release_reserved(&mut self, turn: &mut Turn<'_>, cluster: u32) {
        let of_gang = self.books.pool.reserved_of(cluster);
        let over: Vec<ClaimId> = of_gang
            .filter(|id| {
                reserve::is_reserved_in_vain(&self.books.queue, &self.books.pool, &self.books.shapes, *id)
            })
            .collect();
        for id in over {
            self.drop_claim(turn, id, "its gang is over");
        }
    }

    /// A machine asks whether a claim without jobs is still wanted.
    fn answer_unfed(&mut self, turn: &mut Turn<'_>, id: ClaimId) {
        let Some(claim) = self.books.pool.claims().get(&id) else { return };
        let idle = claim.jobs.is_empty() && claim.reserved.is_none() && !claim.withheld && !claim.ending;
        if idle {
            return self.feed(turn, id);
        }
        let session = self.books.pool.machines().get(&claim.machine).and_then(|m| m.session);
        turn.out.effects.extend(session.map(|session| Effect::Keep { session, claim: id }));
    }

    /// Something happened to a gang: its seats go on together.
    pub(crate) fn settle_seats(&mut self, turn: &mut Turn<'_>, id: u32) {
        if self.books.pool.seating().is_empty() {
            return;
        }
        let Some(cluster) = self.books.queue.clusters().get(&id).filter(|c| c.gang) else { return };
        let seat_of = |claim: ClaimId| self.books.pool.claims().get(&claim).and_then(|c| c.seat);
        let mut stopped = Vec::new();
        let mut seats = Vec::new();
        let mut slowest: Option<Seat> = None;
        let mut together = true;
        for (&proc, live) in cluster.live.iter().filter(|(proc, _)| cluster.host_of(**proc).is_none()) {
            let seat = seat_of(live.claim);
            let machine = self
                .books
                .pool
                .claims()
                .get(&live.claim)
                .and_then(|c| self.books.pool.machines().get(&c.machine));
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
            ended::after_stop(&mut self.books, turn, claim, &[job], &stop);
            self.drop_claim(turn, claim, "its gang was called back");
        }
        if !together {
            return;
        }
        for (proc, claim, attempt, seat) in seats {
            let machine = self.books.pool.claims().get(&claim).map(|c| c.machine.clone());
            let session = machine.and_then(|m| self.books.pool.machines().get(&m)).and_then(|m| m.session);
            let Some(session) = session else { continue };
            if slowest == Some(Seat::Accepted) {
                seats::set_seat(&mut self.books.pool, &mut self.books.changes, turn.now, claim, None);
                turn.out.effects.push(Effect::Activate { session, claim });
            } else if seat == Seat::Matched && slowest >= Some(Seat::Matched) {
                seats::set_seat(
                    &mut self.books.pool,
                    &mut self.books.changes,
                    turn.now,
                    claim,
                    Some(Seat::Asked),
                );
                let jobs = vec![(proc, attempt)];
                turn.out.effects.push(Effect::Assign { session, claim, cluster: id, jobs, waits: true });
            }
        }
    }

    /// The room of a victim goes to a job: by way of the match that waits when it is one of its kind.
    pub(crate) fn start_heir(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        candidate: Option<Candidate>,
        estate: Option<Estate>,
    ) {
        let Some(session) = self.books.pool.machines().get(name).and_then(|m| m.session) else { return };
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
        let made = make_claim(&mut self.books, &self.gangs, turn, name, candidate, cut, &key);
        let Some(claim) = made else { return };
        let mut effect = claim_effect(&self.books.pool, session, claim, key);
        if let Effect::Claim { instead_of, .. } = &mut effect {
            *instead_of = heir.map(|e| e.of);
        }
        turn.out.effects.push(effect);
        // Whom it replaces may be before it in its own user's line, and would come back in its place.
        self.feed_first(turn, claim, Some(candidate));
    }

    /// What a machine says of a claim itself.
    pub(crate) fn take_seat(&mut self, turn: &mut Turn<'_>, id: ClaimId, said: &SeatSaid) {
        let Some(claim) = self.books.pool.claims().get(&id) else { return };
        match SeatAnswer::try_from(said.answer) {
            Ok(SeatAnswer::Matched) if claim.seat == Some(Seat::Noticed) => {
                seats::set_seat(
                    &mut self.books.pool,
                    &mut self.books.changes,
                    turn.now,
                    id,
                    Some(Seat::Matched),
                );
            }
            Ok(SeatAnswer::Accepted) if claim.seat == Some(Seat::Asked) => {
                seats::set_seat(
                    &mut self.books.pool,
                    &mut self.books.changes,
                    turn.now,
                    id,
                    Some(Seat::Accepted),
                );
            }
            Ok(SeatAnswer::BetterRefused) => {
                seats::forget_announcement(&self.books.queue, &mut self.books.pool, turn.now, id)
            }
            // Its job leaves all the same, and its room goes to who is best then.
            Ok(SeatAnswer::BetterLate) => self.books.pool.set_better(id, None),
            Ok(SeatAnswer::Unfed) => self.answer_unfed(turn, id),
            Ok(SeatAnswer::Matched | SeatAnswer::Accepted | SeatAnswer::BetterWaits) | Err(_) => {}
        }
    }
}

/// Makes a claim of what jobs of a shape ask for, or of something else: then it is cut also from a static slot.
pub(crate) fn make_claim(
    books: &mut Books,
    gangs: &Gangs,
    turn: &mut Turn<'_>,
    name: &Arc<str>,
    candidate: Candidate,
    cut: Cut,
    key: &ClaimKey,
) -> Option<ClaimId> {
    let shape = books.shapes.all().get(&candidate.shape)?;
    let owner = books.queue.clusters().get(&candidate.ready.cluster)?.owner.to_string();
    let submitter = books.accounts.get(shape.user).name.to_string();
    let submitter = if submitter == owner { String::new() } else { submitter };
    let machine = books.pool.machines().get(name)?;
    let heir = cut.slot.filter(|n| !machine.slots.contains(n));
    let number = heir.or_else(|| (1..=u32::MAX).find(|n| !machine.slots.contains(n)))?;
    let claim = books.pool.next_claim().max(1);
    let backfill = gangs::plans::is_backfill(books, gangs, machine, candidate, turn.now.wall_ms);
    let whole = machine.whole && cut.of.is_none();
    let made = ClaimMade {
        claim,
        machine: host_of(name).to_owned(),
        slot: if whole { slot_of(name).to_owned() } else { format!("{}_{number}", slot_of(name)) },
        owner,
        resources: if whole { machine.total } else { cut.of.unwrap_or(shape.request) },
        key_digest: (turn.digest)(key).to_vec(),
        lease_ms: lease_ms(&books.settings, shape.lease_ms),
        submitter,
        backfill,
        lab: machine.lab.to_string(),
        swept: books.swept,
    };
    let limits = shape.limits.clone();
    books.record(turn, Kind::ClaimMade(made));
    if books.pool.claims().contains_key(&ClaimId(claim)) {
        books.in_use.take(&limits);
        books.pool.set_limits(ClaimId(claim), limits);
    }
    Some(ClaimId(claim))
}

pub(crate) fn claim_effect(pool: &Pool, session: crate::Session, id: ClaimId, key: ClaimKey) -> Effect {
    let claim = &pool.claims()[&id];
    Effect::Claim {
        session,
        claim: id,
        key,
        slot: claim.slot.clone(),
        owner: claim.owner.to_string(),
        resources: claim.resources,
        lease_ms: claim.lease_ms,
        notice: model::agent::Notice::Together,
        instead_of: None,
    }
}

/// A job may ask for a shorter lease than the pool's, not for a longer one: the pool's says how long a lost machine
/// may keep its jobs from running elsewhere.
fn lease_ms(settings: &Settings, asked: Option<u64>) -> u64 {
    asked.map_or(settings.lease_ms, |ms| ms.min(settings.lease_ms))
}

/// Records that a claim is over. Its jobs must have been dealt with before.
pub(crate) fn end_claim(books: &mut Books, turn: &mut Turn<'_>, id: ClaimId, reason: &str) {
    books.record(turn, Kind::ClaimEnded(ClaimEnded { claim: id.0, reason: reason.to_owned() }));
}
