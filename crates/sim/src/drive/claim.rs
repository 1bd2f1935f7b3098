//! Claims on their machines: jobs begin, stand still, leave and end, and the machine's owner has a word in it.

use std::collections::VecDeque;

use model::ClaimId;
use model::agent::Notice;
use model::codes::vacate;
use model::event::Exit;
use model::report::{
    Attempt, Evicted, Exited, Happening, Returned, SeatAnswer, SeatSaid, Started, Suspended,
};
use policy::{Action, Input, SlotId};
use scheduler::Effect;

use super::{Drive, Due, Story};

/// A process.
#[derive(Debug)]
pub(super) struct Running {
    job: Attempt,
    exit: Exit,
    /// How long it has run, without the time that it stood still, up to `since_ms`.
    ran_ms: u64,
    since_ms: u64,
    /// How long it takes altogether.
    run_ms: u64,
    stands: bool,
    leaves: bool,
}

impl Running {
    fn ends_ms(&self) -> Option<u64> {
        (!self.stands && !self.leaves).then(|| self.since_ms + self.run_ms.saturating_sub(self.ran_ms))
    }
}

/// A claim, as its machine has it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) place: u32,
    slot: SlotId,
    jobs: VecDeque<Attempt>,
    pub(super) running: Option<Running>,
    pub(super) seq: u64,
}

impl<S: Story> Drive<S> {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Claim { session, claim, slot, notice, .. } => {
                let Some(&place) = self.by_session.get(&session) else { return };
                let slot = slot.parse().unwrap_or(SlotId::new(1));
                let jobs = VecDeque::new();
                self.claims.insert(claim.0, Claim { place, slot, jobs, running: None, seq: 0 });
                if notice == Notice::Before {
                    self.report(claim.0, Happening::Seat(SeatSaid::new(SeatAnswer::Matched)));
                }
            }
            Effect::Assign { claim, cluster, jobs, waits, .. } => {
                let Some(held) = self.claims.get_mut(&claim.0) else { return };
                held.jobs.extend(jobs.into_iter().map(|(proc, attempt)| Attempt { cluster, proc, attempt }));
                if waits {
                    self.report(claim.0, Happening::Seat(SeatSaid::new(SeatAnswer::Accepted)));
                } else {
                    self.offer_next(claim.0);
                }
            }
            Effect::Activate { claim, .. } => self.offer_next(claim.0),
            Effect::Better { claim, reason, .. } => self.make_way(claim.0, &reason),
            Effect::Stop { claim, job, attempt, .. } => self.stop(claim.0, Attempt::at(job, attempt)),
            Effect::Recall { claim, count, .. } => {
                let Some(held) = self.claims.get_mut(&claim.0) else { return };
                let keep = held.jobs.len().saturating_sub(count as usize);
                let jobs: Vec<Attempt> = held.jobs.split_off(keep).into();
                self.report(claim.0, Happening::Returned(Returned { jobs }));
            }
            Effect::Drop { claim, .. } => self.bury(claim),
            Effect::Control { .. } | Effect::Ack { .. } | Effect::Keep { .. } => {}
        }
    }

    /// A claim that runs nothing goes on with its next job, if its machine's owner lets it.
    fn offer_next(&mut self, claim: u64) {
        let Some(held) = self.claims.get(&claim).filter(|c| c.running.is_none()) else { return };
        let Some(&job) = held.jobs.front() else { return };
        let (at, slot) = (held.place, held.slot);
        if self.places[at as usize].desk.is_none() {
            return self.begin(claim);
        }
        let (ad, id) = (self.story.ad(job), ClaimId(claim));
        let has_slot = self.places[at as usize].desk.as_ref().is_some_and(|d| d.has_slot(id));
        if !has_slot {
            self.ask_policy(at, Input::Claim { slot, claim: id, job: ad.clone() });
        }
        if self.claims.contains_key(&claim) {
            self.ask_policy(at, Input::Activate { claim: id, job: ad });
        }
    }

    fn begin(&mut self, claim: u64) {
        let now_ms = self.now.wall_ms;
        let Some(held) = self.claims.get_mut(&claim).filter(|c| c.running.is_none()) else { return };
        let Some(job) = held.jobs.pop_front() else { return };
        let (run_ms, exit) = self.story.run(job);
        let (ran_ms, since_ms, stands, leaves) = (0, now_ms, false, false);
        held.running = Some(Running { job, exit, ran_ms, since_ms, run_ms, stands, leaves });
        self.push(now_ms + run_ms, Due::Ends(claim));
        self.report(claim, Happening::Started(Started { job }));
    }

    /// A job has run as long as it does, unless it stood still meanwhile.
    pub(super) fn end(&mut self, claim: u64) {
        let now_ms = self.now.wall_ms;
        let Some(held) = self.claims.get_mut(&claim) else { return };
        let Some(running) = held.running.take_if(|r| r.ends_ms() == Some(now_ms)) else { return };
        let (at, wall_us) = (held.place, running.run_ms * 1_000);
        let exit = Exit { wall_us, user_us: wall_us, ..running.exit };
        self.starter_gone(at, claim);
        self.report(claim, Happening::Exited(Exited { job: running.job, exit }));
        self.offer_next(claim);
    }

    /// The manager wants a job stopped: it ends at once.
    fn stop(&mut self, claim: u64, job: Attempt) {
        let now_ms = self.now.wall_ms;
        let Some(held) = self.claims.get_mut(&claim) else { return };
        let at = held.place;
        if let Some(running) = held.running.take_if(|r| r.job == job) {
            let ran_ms = running.ran_ms + if running.stands { 0 } else { now_ms - running.since_ms };
            let exit = Exit { signal: Some(15), wall_us: ran_ms * 1_000, ..Exit::default() };
            self.starter_gone(at, claim);
            self.report(claim, Happening::Exited(Exited { job, exit }));
            self.offer_next(claim);
        } else if held.jobs.contains(&job) {
            held.jobs.retain(|j| *j != job);
            self.report(claim, Happening::Returned(Returned { jobs: vec![job] }));
        }
    }

    /// A job that its machine's owner asked to leave has left, and the claim with it.
    pub(super) fn leave(&mut self, claim: u64) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        let Some(job) = held.running.as_ref().filter(|r| r.leaves).map(|r| r.job) else { return };
        let (at, waiting) = (held.place, held.jobs.drain(..).collect::<Vec<_>>());
        if !waiting.is_empty() {
            self.report(claim, Happening::Returned(Returned { jobs: waiting }));
        }
        // What the machine is goes before what became of its claims; that the policy gives the claim up is told below.
        self.starter_gone(at, claim);
        let reason = || "the machine's policy".to_owned();
        self.report(
            claim,
            Happening::Evicted(Evicted { job, reason: reason(), code: vacate::BY_OWNER, hold: None }),
        );
        self.report(claim, Happening::Gone(reason()));
        self.claims.remove(&claim);
    }

    /// A better job is to have the slot: who is there leaves at once, and the claim with it.
    fn make_way(&mut self, claim: u64, reason: &str) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        let (at, running) = (held.place, held.running.take());
        let waiting: Vec<Attempt> = held.jobs.drain(..).collect();
        if !waiting.is_empty() {
            self.report(claim, Happening::Returned(Returned { jobs: waiting }));
        }
        self.starter_gone(at, claim);
        if let Some(running) = running {
            let (job, reason) = (running.job, reason.to_owned());
            self.report(
                claim,
                Happening::Evicted(Evicted { job, reason, code: vacate::FOR_ANOTHER, hold: None }),
            );
        }
        self.bury(ClaimId(claim));
        self.report(claim, Happening::Gone(reason.to_owned()));
    }

    /// The manager ends a claim.
    fn bury(&mut self, claim: ClaimId) {
        let Some(held) = self.claims.remove(&claim.0) else { return };
        for input in [Input::Release { claim }, Input::StarterGone { claim }] {
            if self.places[held.place as usize].desk.as_ref().is_some_and(|d| d.has_slot(claim)) {
                self.ask_policy(held.place, input);
            }
        }
    }

    fn starter_gone(&mut self, at: u32, claim: u64) {
        if self.places[at as usize].desk.is_some() {
            self.ask_policy(at, Input::StarterGone { claim: ClaimId(claim) });
        }
    }

    /// Tells a machine's policy something, and does what it wants done.
    fn ask_policy(&mut self, at: u32, input: Input) {
        let now_ms = self.now.wall_ms;
        let Some(desk) = &mut self.places[at as usize].desk else { return };
        let actions = desk.hear(now_ms, input);
        self.obey(at, actions);
        self.plan_look(at);
    }

    /// A machine's policy looks, if that is still due.
    pub(super) fn look(&mut self, at: u32) {
        let now_ms = self.now.wall_ms;
        let Some(desk) = &mut self.places[at as usize].desk else { return };
        if !desk.is_due(now_ms) {
            return;
        }
        self.looks += 1;
        let actions = desk.look(now_ms);
        self.obey(at, actions);
        self.plan_look(at);
    }

    pub(super) fn plan_look(&mut self, at: u32) {
        let now_ms = self.now.wall_ms;
        let next = self.places[at as usize].desk.as_mut().and_then(|desk| desk.plan_look(now_ms));
        if let Some(at_ms) = next {
            self.push(at_ms, Due::Look(at));
        }
    }

    /// A machine's owner sits down, or gets up.
    pub(super) fn turn_owner(&mut self, at: u32) {
        let now_ms = self.now.wall_ms;
        let Some(desk) = &mut self.places[at as usize].desk else { return };
        let actions = desk.turn_owner(now_ms);
        let next = desk.owner_turns_ms();
        self.obey(at, actions);
        self.plan_look(at);
        if let Some(at_ms) = next {
            self.push(at_ms, Due::Owner(at));
        }
    }

    /// Does what a machine's policy wants done.
    fn obey(&mut self, at: u32, actions: Vec<Action>) {
        self.tell_machine(at);
        for action in actions {
            match action {
                Action::Activate { claim, .. } => self.begin(claim.0),
                Action::ClaimRefused { claim, reason, .. }
                | Action::ActivationRefused { claim, reason }
                | Action::ClaimLost { claim, reason, .. } => self.lose(claim.0, reason),
                Action::Suspend { claim, .. } => self.halt(claim.0, true),
                Action::Continue { claim, .. } => self.halt(claim.0, false),
                Action::SoftKill { claim, .. } => self.send_away(claim.0, None),
                Action::HardKill { claim, .. } | Action::KillStarter { claim, .. } => {
                    self.send_away(claim.0, Some(1));
                }
                _ => {}
            }
        }
    }

    /// A claim that has no job has no place here.
    fn lose(&mut self, claim: u64, reason: String) {
        if self.claims.get(&claim).is_some_and(|c| c.running.is_none()) {
            self.report(claim, Happening::Gone(reason));
            self.claims.remove(&claim);
        }
    }

    /// A job stands still, or goes on.
    fn halt(&mut self, claim: u64, stands: bool) {
        let now_ms = self.now.wall_ms;
        let held = self.claims.get_mut(&claim).and_then(|c| c.running.as_mut());
        let Some(running) = held.filter(|r| r.stands != stands) else { return };
        if stands {
            running.ran_ms += now_ms - running.since_ms;
        }
        (running.since_ms, running.stands) = (now_ms, stands);
        let (job, ends_ms) = (running.job, running.ends_ms());
        if let Some(at_ms) = ends_ms {
            self.push(at_ms, Due::Ends(claim));
        }
        let said = if stands {
            Happening::Suspended(Suspended { job, processes: 1 })
        } else {
            Happening::Continued(job)
        };
        self.report(claim, said);
    }

    /// A job must leave: as soon as it can, or within so many milliseconds.
    fn send_away(&mut self, claim: u64, within_ms: Option<u64>) {
        let Some(running) = self.claims.get_mut(&claim).and_then(|c| c.running.as_mut()) else { return };
        running.leaves = true;
        let wait = within_ms.unwrap_or_else(|| self.story.leaves_ms(running.job));
        self.push(self.now.wall_ms + wait, Due::Leaves(claim));
    }
}
