//! What machines say: that they are here, what became of jobs, that they are gone; and what silence means.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use classad::ClassAd;
use model::agent::{BETTER, Report, Stage};
use model::codes::{hold, vacate};
use model::event::{
    Afterwards, JobCheckpointed, JobContinued, JobFilesMoved, JobNotSaved, JobStarted, JobSuspended,
    JobWarned, JobsHeld, Kind,
};
use model::report::{
    Attempt, CannotStart, Checkpointed, Evicted, Exited, Happening, Hold, MACHINE_FAILED, Moved, NotSaved,
    ProvisionFailed, Suspended, Warned,
};
use model::{ClaimId, Event, JobId, Now, Span, WallMs};

use crate::accounts::Accounts;
use crate::changes::Changes;
use crate::pool::{Pool, SlotState, host_of, place_of};
use crate::queue::{Live, Queue};
use crate::{
    AgentHello, Core, Effect, HeldClaim, Out, Session, Turn, aborts, books, ended, gangs, lifecycle, places,
    preempt, provision, reserve, seats, undone, view,
};

/// Hold codes: inputs or results could not be moved, or are too large.
const FILES_HELD: [u32; 4] = [hold::OUTPUT, hold::INPUT, hold::INPUT_TOO_LARGE, hold::OUTPUT_TOO_LARGE];

/// No machine is believed that it has a claim with a higher number than this: numbers must never run out.
const HIGHEST_BELIEVED: u64 = 1 << 52;

impl Core {
    /// An agent connected: its word about what it holds settles every difference.
    pub fn agent_up(&mut self, turn: &mut Turn<'_>, hello: AgentHello) {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        let name: Arc<str> = Arc::from(hello.machine.as_str());
        // A journal that was put back to an earlier day does not know every number that it gave away. What a machine still
        // has under one is ended, and that takes a while: no new claim may have the same.
        let numbers =
            hello.claims.iter().map(|held| held.claim.0).filter(|number| *number < HIGHEST_BELIEVED);
        self.books.pool.skip_to(numbers.map(|number| number + 1).max().unwrap_or(0));
        let claims = places::seat(&mut self.books, &mut self.undone, turn, &name, &hello);
        count_cores(&self.books.pool, &mut self.books.accounts, &mut self.books.changes);

        let mut held: HashMap<ClaimId, &HeldClaim> = HashMap::new();
        for claim in &hello.claims {
            let ours = self.books.pool.claims().get(&claim.claim);
            if ours.is_some_and(|c| {
                host_of(&c.machine) == &*name && equal(&c.key_digest, &(turn.digest)(&claim.key))
            }) {
                held.insert(claim.claim, claim);
            } else if !seats::is_announced(&self.books.pool, claim, &hello.claims)
                && !seats::take_up_announcement(
                    &self.books.queue,
                    &mut self.books.pool,
                    &name,
                    claim,
                    &hello.claims,
                    turn.digest,
                )
            {
                turn.out.effects.push(Effect::Drop { session: hello.session, claim: claim.claim });
            }
        }
        for id in claims {
            match held.get(&id) {
                None => ended::lose_claim(
                    &mut self.books,
                    turn,
                    id,
                    "the machine no longer has it",
                    vacate::MACHINE_FAILED,
                ),
                Some(claim) => {
                    // What it does not have, it never got: the message was lost on the way.
                    let has: HashSet<Attempt> = claim.jobs.iter().copied().collect();
                    let jobs = self.books.pool.claims()[&id].jobs.iter().copied();
                    let (withheld, lost): (Vec<JobId>, Vec<JobId>) =
                        jobs.filter(|j| !self.attempt(*j).is_some_and(|a| has.contains(&a))).partition(|j| {
                            claim.stage == Stage::Matched || gangs::guests::is_withheld(&self.books.queue, *j)
                        });
                    // Of a claim that is over there the machine may not know what it had: how its jobs ended, or that they died
                    // with their starter, comes with its last reports.
                    let lost = if claim.ending { Vec::new() } else { lost };
                    for job in &withheld {
                        self.books.changes.note_gang(job.cluster);
                    }
                    let (withheld, ending, stage) = (!withheld.is_empty(), claim.ending, claim.stage);
                    let listed = hello.claims.iter().any(|other| other.claim.0 == id.0 | BETTER);
                    let last = lost.last().copied();
                    ended::end_attempts_at(&mut self.books, turn, id, lost, "the machine never got it", 0);
                    self.repeat_stops(id, hello.session, turn.out);
                    self.books.pool.settle_claim(id, ending, withheld);
                    seats::note_stage(&mut self.books.pool, &mut self.books.changes, turn.now, id, stage);
                    seats::announce_again(&mut self.books, &mut self.keys, turn, id, listed);
                    match last {
                        // What was kept when the last word of it came may be so in vain by now.
                        None if reserve::is_reserved_in_vain(
                            &self.books.queue,
                            &self.books.pool,
                            &self.books.shapes,
                            id,
                        ) =>
                        {
                            self.drop_claim(turn, id, "its gang is over")
                        }
                        None => self.feed(turn, id),
                        Some(last) => self.go_on(turn, id, last),
                    }
                }
            }
        }
        self.gang_pass(turn);
        for place in self.books.pool.places(&name) {
            self.offer_machine(turn, &place);
        }
        self.gang_pass(turn);
    }

    /// The live attempt at a job.
    fn attempt(&self, job: JobId) -> Option<Attempt> {
        let live = self.books.queue.clusters().get(&job.cluster)?.live.get(&job.proc)?;
        Some(Attempt::at(job, live.attempt))
    }

    /// Stops that were asked for while the machine was away, or whose message was lost.
    fn repeat_stops(&self, id: ClaimId, session: Session, out: &mut Out) {
        for job in &self.books.pool.claims()[&id].jobs {
            let live = self.books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
            let Some(live) = live else { continue };
            if let Some(stop) = &live.stop {
                let (attempt, vacate) = (live.attempt, stop.afterwards == Afterwards::Idle);
                out.effects.push(Effect::Stop { session, claim: id, job: *job, attempt, vacate });
            }
        }
    }

    /// A machine has changed: what it says of itself, and of its claimed slots.
    pub fn machine_changed(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        session: Session,
        ads: Vec<(u32, ClassAd)>,
        slots: Vec<(ClaimId, SlotState)>,
    ) {
        if !self.agent_heard(turn.now, name, session) {
            return;
        }
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        for (id, mut state) in slots {
            state.since_ms = turn.now.wall_ms.saturating_sub(state.age_ms);
            self.books.pool.note_slot(name, id, state);
        }
        let mut changed = Vec::new();
        for (slot, ad) in ads {
            let place = place_of(name, &format!("slot{slot}"));
            if !self.books.pool.machines().contains_key(&place) {
                continue;
            }
            let number = self.books.pool.number(&place);
            if self.books.shapes.put_machine(number, &ad, &mut self.books.changes) {
                books::resort::reshape(&mut self.books, &mut self.undone, turn.now.wall_ms, turn.out);
            }
            self.books.pool.set_ad(&place, ad);
            // It may have changed its lab, or what a drain is about.
            self.books.note_standing(&place);
            changed.push(place);
        }
        self.wake_machines(turn, &changed);
    }

    /// An agent's connection ended. Its claims live on until their lease runs out.
    pub fn agent_down(&mut self, session: Session) {
        let Some(name) = self.books.pool.machine_of(session).cloned() else { return };
        for place in self.books.pool.places(&name) {
            self.books.pool.disconnect(&place, &mut self.books.changes);
        }
        places::forget_empty(&mut self.books, &name);
        count_cores(&self.books.pool, &mut self.books.accounts, &mut self.books.changes);
    }

    /// Word from an agent: its leases begin anew. False when the session is not the machine's current one.
    pub fn agent_heard(&mut self, now: Now, machine: &str, session: Session) -> bool {
        self.books.pool.hear(machine, session, now)
    }

    /// A report from a machine's current session.
    pub fn agent_report(&mut self, turn: &mut Turn<'_>, machine: &str, session: Session, report: Report) {
        if !self.agent_heard(turn.now, machine, session) {
            return;
        }
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        let id = ClaimId(report.claim);
        if self.books.pool.claims().get(&id).is_some_and(|c| host_of(&c.machine) == machine) {
            // The machine says how long ago; when that was is for our own clock to say.
            let happened = report.age_ms.map(|age_ms| turn.now.wall().ago(age_ms));
            if let Some(happening) = report.happening {
                self.take_report(turn, id, happening, happened);
            }
        } else {
            // A late word about a claim that is over: nothing to learn, and it must not live on.
            turn.out.effects.push(Effect::Drop { session, claim: id });
        }
        if report.seq > 0 {
            turn.out.effects.push(Effect::Ack { session, claim: id, seq: report.seq });
        }
        self.gang_pass(turn);
    }

    /// True when a claim has so many jobs before it that nobody need hurry to hear of the one that ended.
    pub fn has_plenty(&self, claim: ClaimId) -> bool {
        self.books.pool.claims().get(&claim).is_some_and(|c| c.jobs.len() >= 8)
    }

    fn take_report(
        &mut self,
        turn: &mut Turn<'_>,
        id: ClaimId,
        happening: Happening,
        happened: Option<WallMs>,
    ) {
        // Of what nobody can date only that is known: it was not later than now.
        let happened = happened.unwrap_or(turn.now.wall());
        match happening {
            Happening::Started(e) => self.note_start(turn, id, e.job, happened),
            Happening::Exited(Exited { job, exit }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let stop = live.stop.clone();
                // How long it ran is measured by a clock that nobody sets; when it began follows from that.
                let began = happened.ago(exit.wall_us / 1000);
                let started_ms =
                    live.started_ms.unwrap_or_else(|| self.date_start(turn.now, id, job.job(), began).0);
                let began = WallMs(started_ms);
                self.note_start(turn, id, job, began);
                if let Some(stop) = stop {
                    ended::after_stop(&mut self.books, turn, id, &[job.job()], &stop);
                } else {
                    if let Some(machine) = self.books.pool.claims().get(&id).map(|c| c.machine.clone()) {
                        aborts::clear_aborts(&mut self.aborts, host_of(&machine));
                    }
                    let reserved =
                        reserve::reservation(&self.books.queue, &self.books.shapes, job.job(), &exit);
                    let kept = lifecycle::take_exit(
                        &mut self.books,
                        &mut self.round,
                        turn,
                        id,
                        job,
                        exit,
                        started_ms,
                    );
                    let over =
                        matches!(turn.out.events.last(), Some(Event { kind: Some(Kind::JobExited(_)), .. }));
                    if over && reserved > 0 {
                        reserve::reserve(&mut self.books, turn, id, job.job(), reserved);
                    }
                    self.go_on(turn, id, job.job());
                    if kept {
                        self.offer_jobs(turn, job.job().cluster);
                    }
                    return;
                }
                self.go_on(turn, id, job.job());
            }
            Happening::CannotStart(CannotStart { job, reason, code, subcode }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let stop = live.stop.clone();
                if let Some(stop) = stop {
                    ended::after_stop(&mut self.books, turn, id, &[job.job()], &stop);
                } else {
                    // That files cannot be moved is seldom the machine's fault.
                    if !FILES_HELD.contains(&code) {
                        self.note_abort_of(turn, id, job.job(), &reason);
                    }
                    let JobId { cluster, proc } = job.job();
                    let procs = vec![Span { first: proc, count: 1 }];
                    let held = JobsHeld { cluster, procs, reason, code, subcode, exit: None };
                    self.books.record(turn, Kind::JobsHeld(held));
                }
                self.go_on(turn, id, job.job());
            }
            Happening::Evicted(evicted) => {
                let stays = !evicted.ends_claim();
                let Evicted { job, reason, code, hold } = evicted;
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let stop = live.stop.clone();
                match (stop, hold) {
                    (Some(stop), _) => ended::after_stop(&mut self.books, turn, id, &[job.job()], &stop),
                    (None, Some(Hold { reason, subcode, code })) => {
                        let JobId { cluster, proc } = job.job();
                        let procs = vec![Span { first: proc, count: 1 }];
                        // A machine says no more than what it can know: what a job took, and that there was no room for what it wrote.
                        let known = matches!(code, hold::OUT_OF_RESOURCES | hold::OUTPUT);
                        let code = if known { code } else { hold::BY_OWNER };
                        let held = JobsHeld { cluster, procs, reason, code, subcode, exit: None };
                        self.books.record(turn, Kind::JobsHeld(held));
                    }
                    (None, None) => {
                        if code == MACHINE_FAILED {
                            self.note_abort_of(turn, id, job.job(), &reason);
                        }
                        ended::requeue(&mut self.books, turn, id, &[job.job()], &reason, code);
                    }
                }
                // What makes a job leave takes its claim too, and says so in a moment; a job that was given to it meanwhile
                // would come back unseen.
                if stays {
                    self.go_on(turn, id, job.job());
                } else {
                    self.books.pool.let_end(id);
                }
                self.offer_jobs(turn, job.job().cluster);
            }
            Happening::Suspended(Suspended { job, processes }) => {
                let Some(live) = live_of(&self.books.queue, id, job).filter(|l| !l.suspended) else { return };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = job.job();
                let kind = JobSuspended { claim, cluster, proc, attempt, processes };
                self.books.record(turn, Kind::JobSuspended(kind));
            }
            Happening::Continued(job) => {
                let Some(live) = live_of(&self.books.queue, id, job).filter(|l| l.suspended) else { return };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = job.job();
                self.books.record(turn, Kind::JobContinued(JobContinued { claim, cluster, proc, attempt }));
            }
            Happening::Checkpointed(e) => {
                let (Some(live), Some(object)) = (live_of(&self.books.queue, id, e.job), e.object()) else {
                    return;
                };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = e.job.job();
                let Checkpointed { bytes, transfer_ms, cap, platform, saving_ms, .. } = e;
                if view::checkpoint(&self.books.queue, e.job.job()).is_none_or(|c| *c.object != *object) {
                    self.books.record(
                        turn,
                        Kind::JobCheckpointed(JobCheckpointed {
                            claim,
                            cluster,
                            proc,
                            attempt,
                            object,
                            bytes,
                            transfer_ms,
                            cap,
                            platform,
                            saving_ms,
                        }),
                    );
                }
            }
            Happening::NotSaved(NotSaved { job, reason, missed }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = job.job();
                let kind = JobNotSaved { claim, cluster, proc, attempt, reason, missed };
                self.books.record(turn, Kind::JobNotSaved(kind));
            }
            Happening::Moved(Moved { job, stage, bytes, files, names, notes }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = job.job();
                let kind = JobFilesMoved { claim, cluster, proc, attempt, stage, bytes, files, names, notes };
                self.books.record(turn, Kind::JobFilesMoved(kind));
            }
            Happening::Warned(Warned { job, remaining_s, signal, reason }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                let (claim, attempt) = (id.0, live.attempt);
                let JobId { cluster, proc } = job.job();
                let kind = JobWarned { claim, cluster, proc, attempt, remaining_s, signal, reason };
                self.books.record(turn, Kind::JobWarned(kind));
            }
            Happening::Provisioning(e) => {
                provision::note_provisioning(&mut self.books, turn, id, e.job, e.installing);
            }
            Happening::ProvisionFailed(ProvisionFailed { job, reason }) => {
                let Some(live) = live_of(&self.books.queue, id, job) else { return };
                if let Some(stop) = live.stop.clone() {
                    ended::after_stop(&mut self.books, turn, id, &[job.job()], &stop);
                } else {
                    self.note_abort_of(turn, id, job.job(), &reason);
                    provision::provision_failed(&mut self.books, turn, id, job.job(), &reason);
                }
                self.go_on(turn, id, job.job());
                self.offer_jobs(turn, job.job().cluster);
            }
            Happening::ReleaseFailed(reason) => {
                let machine = self.books.pool.claims()[&id].machine.clone();
                provision::release_failed(&mut self.books, turn, host_of(&machine), &reason);
            }
            Happening::Seat(said) => self.take_seat(turn, id, &said),
            Happening::Returned(e) => self.take_back(turn, id, &e.jobs),
            Happening::Gone(reason) => {
                let claim = &self.books.pool.claims()[&id];
                let (machine, rival) = (claim.machine.clone(), claim.rival);
                let estate = seats::estate(&self.books.pool, id);
                self.note_refusal_of(turn.now, id);
                ended::lose_claim(&mut self.books, turn, id, &reason, vacate::MACHINE_FAILED);
                if let Some(shape) = rival {
                    self.replace(turn, &machine, shape, estate);
                }
                self.offer_machine(turn, &machine);
            }
        }
    }

    /// A claim ends whose first job was given to it and has not begun: its machine wants no such jobs, whatever its ad says.
    fn note_refusal_of(&mut self, now: Now, id: ClaimId) {
        let Some(claim) = self.books.pool.claims().get(&id) else { return };
        let Some(job) = claim.jobs.first().copied() else { return };
        let live = self.books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
        let number = self.books.pool.machines().get(&claim.machine).map(|m| m.number);
        let waits = live.is_some_and(|l| l.started_ms.is_none() && l.stop.is_none());
        if let (true, Some(number), Some(shape)) = (waits, number, preempt::shape_of(&self.books.queue, job))
        {
            let next_claim = self.books.pool.next_claim();
            let changes = &mut self.books.changes;
            self.books.refusals.note((number, shape), id, next_claim, now.mono_ms, changes);
        }
    }

    fn note_abort_of(&mut self, turn: &mut Turn<'_>, id: ClaimId, job: JobId, why: &str) {
        if let Some(machine) = self.books.pool.claims().get(&id).map(|c| c.machine.clone()) {
            aborts::note_abort(&mut self.books, &mut self.aborts, turn, host_of(&machine), job, why);
        }
    }

    fn take_back(&mut self, turn: &mut Turn<'_>, id: ClaimId, jobs: &[Attempt]) {
        self.books.pool.set_recalled(id, false);
        let mut back = Vec::new();
        let mut clusters = BTreeSet::new();
        for job in jobs {
            let Some(live) = live_of(&self.books.queue, id, *job) else { continue };
            if let Some(stop) = live.stop.clone() {
                ended::after_stop(&mut self.books, turn, id, &[job.job()], &stop);
            } else {
                back.push(job.job());
                clusters.insert(job.cluster);
            }
        }
        ended::requeue(&mut self.books, turn, id, &back, "given back before it started", 0);
        for cluster in clusters {
            self.offer_jobs(turn, cluster);
        }
        match jobs.last() {
            Some(last) => self.go_on(turn, id, last.job()),
            None => self.feed(turn, id),
        }
    }

    fn note_start(&mut self, turn: &mut Turn<'_>, id: ClaimId, held: Attempt, began: WallMs) {
        let JobId { cluster, proc } = held.job();
        let live = self.books.queue.clusters().get(&cluster).and_then(|c| c.live.get(&proc));
        if live.is_some_and(|l| l.claim == id && l.attempt == held.attempt && l.started_ms.is_none()) {
            let WallMs(started_ms) = self.date_start(turn.now, id, held.job(), began);
            let started = JobStarted { claim: id.0, cluster, proc, attempt: held.attempt, started_ms };
            self.books.record(turn, Kind::JobStarted(started));
            let machine =
                self.books.pool.claims().get(&id).and_then(|c| self.books.pool.machines().get(&c.machine));
            if let Some((number, shape)) =
                machine.map(|m| m.number).zip(preempt::shape_of(&self.books.queue, held.job()))
            {
                self.books.refusals.forgive(number, shape, &mut self.books.changes);
            }
        }
    }

    /// When a run began, by our own clock: not before the job was given to its machine, whatever that says, and not after now.
    fn date_start(&self, now: Now, id: ClaimId, job: JobId, began: WallMs) -> WallMs {
        let live = self.books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
        let made_ms = self.books.pool.claims().get(&id).map_or(0, |c| c.made_ms);
        let given_ms = live.map_or(0, |l| l.assigned_ms).max(made_ms).min(now.wall_ms);
        began.clamp(WallMs(given_ms), now.wall())
    }
}

/// Quotas that are parts of the pool follow its size.
pub(crate) fn count_cores(pool: &Pool, accounts: &mut Accounts, changes: &mut Changes) {
    accounts.set_cores(pool.cores() as f64);
    changes.release();
}

/// The record of an attempt, when it is the live one of this claim.
pub(crate) fn live_of(queue: &Queue, id: ClaimId, held: Attempt) -> Option<&Live> {
    let live = queue.clusters().get(&held.cluster)?.live.get(&held.proc)?;
    (live.claim == id && live.attempt == held.attempt).then_some(live)
}

/// Equal, in a time that does not depend on where they differ.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}
