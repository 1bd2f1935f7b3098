//! The machine: inputs to actions, and the timers.
//!
//! Two timers run beside each other. The update timer never stops; its phase is the start of the machine. The poll
//! timer runs while any slot is in use, on a grid with the same phase. When both are due there are two evaluations.
//! In one call: first the input, then deadlines, then evaluations, so that a job which ends at the second of a poll has
//! ended when the poll looks.

use classad::{ClassAd, Name, Value};
use model::id::ClaimId;

use crate::expressions::Policy;
use crate::input::{Action, Input, Readings};
use crate::slot::{Slot, SlotId};
use crate::slots::Layout;
use crate::state::Standing;
use crate::transition::{Cause, Record};

/// A machine with its slots.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) host: String,
    pub(crate) policy: Policy,
    pub(crate) readings: ClassAd,
    pub(crate) slots: Vec<Slot>,
    pub(crate) see_console: Option<u32>,
    pub(crate) see_keyboard: Option<u32>,
    pub(crate) now_ms: u64,
    pub(crate) benchmark_runs: bool,
    /// One run is due beside what RunBenchmarks says.
    pub(crate) benchmark_due: bool,
    /// A run gave way to jobs: the next try is when they are gone, or at the next update.
    pub(crate) benchmark_waits: bool,
    pub(crate) start_ms: u64,
    pub(crate) next_update_ms: u64,
    pub(crate) next_poll_ms: Option<u64>,
    /// Rests are not as they were when they were last asked for.
    pub(crate) rests_changed: bool,
}

impl Machine {
    /// A machine that starts now: every slot is in Owner, and leaves it at once if START allows.
    pub fn start(
        host: &str,
        policy: Policy,
        layout: &Layout,
        readings: Readings,
        now_ms: u64,
    ) -> (Self, Vec<Action>) {
        let slots = layout.plans.iter();
        let slots = slots.map(|p| Slot::planned(p, now_ms)).collect();
        let mut machine = Self {
            host: host.to_owned(),
            next_update_ms: now_ms + policy.timers.update_ms,
            policy,
            readings: ClassAd::new(),
            slots,
            see_console: layout.see_console,
            see_keyboard: layout.see_keyboard,
            now_ms,
            benchmark_runs: false,
            benchmark_due: false,
            benchmark_waits: false,
            start_ms: now_ms,
            next_poll_ms: None,
            rests_changed: false,
        };
        let mut out = Vec::new();
        machine.on_sensors(readings);
        for at in 0..machine.slots.len() {
            let cause = Cause::Event("start");
            let (slot, to) = (machine.slots[at].id, Standing::Owner);
            out.push(Action::Trace(Record { at_ms: now_ms, slot, from: None, to, transition: None, cause }));
            machine.slots[at].changed = true;
            machine.leave_owner_if_allowed(at, &mut out);
        }
        machine.finish(&mut out);
        (machine, out)
    }

    /// Takes one input. `now_ms` is Unix time in milliseconds and should come from a clock that does not jump back;
    /// a time before the last one counts as the last one.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        self.now_ms = self.now_ms.max(now_ms);
        match input {
            Input::Sensors(readings) => self.on_sensors(readings),
            Input::Tick => self.on_tick(&mut out),
            Input::Look => self.evaluate_all(&mut out),
            Input::Match { slot, claim, room } => self.on_match(slot, claim, room, &mut out),
            Input::Confirm { waiting, claim } => self.on_confirm(waiting, claim),
            Input::Claim { slot, claim, job } => self.on_claim(slot, claim, job, &mut out),
            Input::Adopt { slot, claim, job, runs, suspended, leaving_ms } => {
                let found = crate::requests::Found { runs, suspended, leaving_ms };
                self.on_adopt(slot, claim, job, found, &mut out);
            }
            Input::Activate { claim, job } => self.on_activate(claim, job, &mut out),
            Input::JobChanged { claim, changes } => self.on_job_changed(claim, &changes),
            Input::StarterGone { claim } => self.on_starter_gone(claim, &mut out),
            Input::Release { claim } => self.on_release(claim, false, &mut out),
            Input::LeaseExpired { claim } => self.on_release(claim, true, &mut out),
            Input::Vacate { slot, fast } => {
                self.command(slot, &mut out, |m, at, out| m.on_vacate(at, fast, out))
            }
            Input::Checkpoint { slot } => self.command(slot, &mut out, Self::on_checkpoint),
            Input::Suspend { slot } => self.command(slot, &mut out, Self::on_suspend),
            Input::Continue { slot } => self.command(slot, &mut out, Self::on_continue),
            Input::Benchmark => self.on_benchmark(&mut out),
            Input::BenchmarkFinished { mips, kflops } => self.on_benchmark_finished(mips, kflops, &mut out),
            Input::BenchmarkStopped => self.on_benchmark_stopped(&mut out),
            Input::Policy(policy) => self.on_policy(*policy),
        }
        self.finish(&mut out);
        out
    }

    /// When to send [`Input::Tick`] at the latest.
    pub fn next_wake_ms(&self) -> u64 {
        let deadlines = self.slots.iter().filter_map(|s| s.deadline_ms).chain(self.next_end_of_rest_ms());
        deadlines.chain(self.next_poll_ms).fold(self.next_update_ms, u64::min)
    }

    /// The slots that there are.
    pub fn slots(&self) -> impl Iterator<Item = (SlotId, Standing)> {
        self.slots.iter().map(|s| (s.id, s.standing))
    }

    /// The job of a claim, as its ad says.
    pub fn job_of(&self, claim: ClaimId) -> Option<&classad::ClassAd> {
        Some(&self.slots[self.holding(claim)?].claim.as_ref()?.job)
    }

    /// The slot that a claim holds.
    pub fn slot_of(&self, claim: ClaimId) -> Option<SlotId> {
        self.holding(claim).map(|at| self.slots[at].id)
    }

    /// The slot that a claim was promised and has not come for yet.
    pub fn slot_promised(&self, claim: ClaimId) -> Option<SlotId> {
        self.slots.iter().find(|s| !s.gone && s.matched == Some(claim)).map(|s| s.id)
    }

    /// The slot that a better claim waits for.
    pub fn slot_awaited(&self, claim: ClaimId) -> Option<SlotId> {
        let waits = |s: &&Slot| !s.gone && s.rival.as_ref().is_some_and(|r| r.id == claim);
        self.slots.iter().find(waits).map(|s| s.id)
    }

    /// True if the job of a slot leaves, and not for anybody that is known.
    pub fn leaves_for_nobody(&self, slot: SlotId) -> bool {
        self.position(slot).is_some_and(|at| self.may_leave_for_another(at))
    }

    /// The claim that holds a slot.
    pub fn claim_of(&self, slot: SlotId) -> Option<ClaimId> {
        self.holder(self.position(slot)?)
    }

    /// A job has been started on the slot and is not gone yet.
    pub fn has_job(&self, slot: SlotId) -> bool {
        self.position(slot).is_some_and(|at| self.slots[at].running().is_some())
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn now_s(&self) -> i64 {
        (self.now_ms / 1_000) as i64
    }

    pub(crate) fn position(&self, slot: SlotId) -> Option<usize> {
        self.slots.iter().position(|s| s.id == slot && !s.gone)
    }

    pub(crate) fn holding(&self, claim: ClaimId) -> Option<usize> {
        self.slots.iter().position(|s| !s.gone && s.claim.as_ref().is_some_and(|c| c.id == claim))
    }

    pub(crate) fn holder(&self, at: usize) -> Option<ClaimId> {
        self.slots[at].claim.as_ref().map(|c| c.id)
    }

    pub(crate) fn who(&self, at: usize) -> Option<(SlotId, ClaimId)> {
        Some((self.slots[at].id, self.holder(at)?))
    }

    fn on_sensors(&mut self, readings: Readings) {
        let disks = self.disks_kib();
        put(&mut self.readings, readings.machine);
        // Jobs are matched by it: a disk that was full for a moment must not keep them away until the next update. Small changes,
        // which there are at every look, wait for that.
        for (at, (before, after)) in disks.into_iter().zip(self.disks_kib()).enumerate() {
            self.slots[at].changed |= before.abs_diff(after) > before.max(after) / 10;
        }
        for (slot, attributes) in readings.slots {
            if let Some(at) = self.position(slot) {
                put(&mut self.slots[at].readings, attributes);
            }
        }
    }

    fn on_policy(&mut self, policy: Policy) {
        // Read again and nothing in it is new: what came of it still counts.
        if self.policy.is_same_as(&policy) {
            return;
        }
        self.policy = policy;
        self.forget_rests();
        self.next_update_ms = self.after_now(self.policy.timers.update_ms);
        self.next_poll_ms = self.next_poll_ms.map(|_| self.after_now(self.policy.timers.poll_ms));
        for slot in &mut self.slots {
            slot.warned.clear();
            slot.changed = true;
        }
    }

    fn on_tick(&mut self, out: &mut Vec<Action>) {
        self.pass_deadlines(out);
        self.end_rests(out);
        if self.next_update_ms <= self.now_ms {
            self.next_update_ms = self.after_now(self.policy.timers.update_ms);
            self.benchmark_waits = false;
            self.evaluate_all(out);
            for slot in &mut self.slots {
                slot.changed = true;
            }
        }
        if self.next_poll_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
            // A tick with no slot in use is the last one; `finish` starts the timer again.
            self.next_poll_ms = None;
            self.evaluate_all(out);
        }
    }

    fn pass_deadlines(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.slots.len() {
            if self.slots[at].gone || self.slots[at].deadline_ms.is_none_or(|d| d > self.now_ms) {
                continue;
            }
            match self.slots[at].standing {
                Standing::Matched => self.break_match(at, Cause::Timer("MATCH_TIMEOUT"), out),
                Standing::Killing => {
                    // Again after another interval, should the starter still be there.
                    self.slots[at].deadline_ms = Some(self.now_ms + self.policy.timers.killing_ms);
                    if let Some((slot, claim)) = self.who(at) {
                        out.push(Action::KillStarter { slot, claim });
                    }
                }
                // Every transition takes the deadline of the standing it leaves with it.
                Standing::Owner
                | Standing::UnclaimedIdle
                | Standing::Benchmarking
                | Standing::ClaimedIdle
                | Standing::Busy
                | Standing::Suspended
                | Standing::Vacating => self.slots[at].deadline_ms = None,
            }
        }
    }

    fn evaluate_all(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.slots.len() {
            self.evaluate(at, out);
        }
    }

    /// An operator's command to one slot or all; only who names a slot hears why nothing was done there.
    fn command(
        &mut self,
        slot: Option<SlotId>,
        out: &mut Vec<Action>,
        run: impl Fn(&mut Self, usize, &mut Vec<Action>) -> Option<&'static str>,
    ) {
        let Some(slot) = slot else {
            for at in 0..self.slots.len() {
                if !self.slots[at].gone {
                    run(self, at, out);
                }
            }
            return;
        };
        let refused = match self.position(slot) {
            Some(at) => run(self, at, out),
            None => Some("there is no such slot"),
        };
        if let Some(reason) = refused {
            out.push(Action::CommandRefused { slot, reason: reason.to_owned() });
        }
    }

    /// The next time after now on the grid that began with the machine.
    fn after_now(&self, interval_ms: u64) -> u64 {
        let passed = (self.now_ms - self.start_ms) / interval_ms + 1;
        self.start_ms + passed * interval_ms
    }

    /// Ends every call: slots that are no more go, ads that changed are sent, the poll timer runs if it must.
    pub(crate) fn finish(&mut self, out: &mut Vec<Action>) {
        self.slots.retain(|s| !s.gone);
        for at in 0..self.slots.len() {
            let requirements = self.requirements(at);
            let slot = &mut self.slots[at];
            if std::mem::take(&mut slot.changed) || slot.advertised != Some(requirements) {
                slot.advertised = Some(requirements);
                let (slot, standing) = (slot.id, slot.standing);
                out.push(Action::Advertise { slot, standing, ad: self.published(at, requirements) });
            }
        }
        if self.next_poll_ms.is_none() && self.slots.iter().any(|s| s.standing.is_in_use()) {
            self.next_poll_ms = Some(self.after_now(self.policy.timers.poll_ms));
        }
    }
}

fn put(ad: &mut ClassAd, attributes: Vec<(Name, Option<Value>)>) {
    for (name, value) in attributes {
        match value {
            Some(value) => ad.set(name, value),
            None => {
                ad.remove(name.as_str());
            }
        }
    }
}
