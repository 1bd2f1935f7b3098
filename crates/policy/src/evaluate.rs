//! What is tested at a poll, in which order, and the steps from one standing to another with what they entail.
//!
//! The first expression that holds wins, and a slot takes one transition per evaluation; only what has no duration
//! follows at once (a Preempting without a job, an Owner whose START allows jobs). When evaluations happen is in
//! `machine`; what requests do is in `requests`.

use classad::{ClassAd, Value};

use crate::ad::About;
use crate::expressions::{Expression, Verdict};
use crate::input::{Action, CheckpointWhy, Warning};
use crate::machine::Machine;
use crate::slot::SlotId;
use crate::slots::SlotKind;
use crate::state::Standing;
use crate::transition::{Cause, Record, Transition};

/// How a claim is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The job is asked to leave.
    Polite,
    /// The job is killed.
    Fast,
}

impl Machine {
    /// Looks at one slot.
    pub(crate) fn evaluate(&mut self, at: usize, out: &mut Vec<Action>) {
        if self.slots[at].gone {
            return;
        }
        match self.slots[at].standing {
            Standing::Owner => self.leave_owner_if_allowed(at, out),
            Standing::UnclaimedIdle | Standing::Benchmarking => self.evaluate_unclaimed(at, out),
            Standing::Matched => {
                if let Some(cause) = self.start_forbids(at) {
                    self.break_match(at, cause, out);
                }
            }
            Standing::ClaimedIdle => {
                // The book asks START only. But a machine may be kept for hours after its job, and an owner who says
                // that a job must leave does not want it kept either.
                let kept = self.slots[at].claim.as_ref().is_some_and(|c| c.has_run);
                let mut cause = self.start_forbids(at);
                if cause.is_none() && kept {
                    cause = self.holds(at, Expression::Preempt, out);
                }
                if let Some(cause) = cause {
                    self.preempt(at, Eviction::Polite, cause, out);
                }
            }
            Standing::Busy => self.evaluate_busy(at, out),
            Standing::Suspended => {
                if let Some(cause) = self.holds(at, Expression::Preempt, out) {
                    self.preempt_by_policy(at, cause, out);
                } else if !self.is_stopped_by_operator(at)
                    && let Some(cause) = self.holds(at, Expression::Continue, out)
                {
                    self.resume(at, cause, out);
                }
            }
            Standing::Vacating => {
                if let Some(cause) = self.holds(at, Expression::Kill, out) {
                    self.kill(at, cause, out);
                }
            }
            // Only its timer and the end of its starter count.
            Standing::Killing => {}
        }
    }

    fn evaluate_unclaimed(&mut self, at: usize, out: &mut Vec<Action>) {
        if let Some(cause) = self.start_forbids(at) {
            self.enter_owner(at, cause, out);
        } else {
            self.benchmark_if_wanted(at, out);
        }
    }

    /// One run measures the machine, not the slot. Jobs and a run would disturb each other: with jobs anywhere on the machine it is
    /// not begun.
    pub(crate) fn benchmark_if_wanted(&mut self, at: usize, out: &mut Vec<Action>) {
        if self.slots[at].standing != Standing::UnclaimedIdle
            || self.benchmark_runs
            || self.benchmark_waits
            || self.slots.iter().any(|s| s.standing.is_in_use())
        {
            return;
        }
        let due = self.benchmark_due.then_some(Cause::Event("the agent started"));
        let Some(cause) = due.or_else(|| self.holds(at, Expression::RunBenchmarks, out)) else { return };
        self.benchmark_runs = true;
        self.go(at, Standing::Benchmarking, cause, out);
        out.push(Action::StartBenchmark);
    }

    fn evaluate_busy(&mut self, at: usize, out: &mut Vec<Action>) {
        // With WANT_SUSPEND true PREEMPT is not looked at before the job is suspended.
        if self.holds(at, Expression::WantSuspend, out).is_none() {
            if let Some(cause) = self.holds(at, Expression::Preempt, out) {
                return self.preempt_by_policy(at, cause, out);
            }
        } else if let Some(cause) = self.holds(at, Expression::Suspend, out) {
            return self.suspend(at, cause, out);
        }
        let can = self.slots[at].running().is_some_and(|(_, r)| r.can_checkpoint);
        if can && self.holds(at, Expression::PeriodicCheckpoint, out).is_some() {
            self.checkpoint(at, CheckpointWhy::Periodic, out);
        }
    }

    /// Asks about the job that is here.
    fn ask(&mut self, at: usize, expression: Expression, out: &mut Vec<Action>) -> Verdict {
        let verdict = self.scene(at, About::Present).ask(self.policy_at(at), expression);
        let slot = &mut self.slots[at];
        if !verdict.odd {
            slot.warned.remove(verdict.name);
        } else if slot.warned.get(verdict.name) != Some(&verdict.value) {
            slot.warned.insert(verdict.name, verdict.value.clone());
            let (name, value, counts_as) = (verdict.name, verdict.value.clone(), verdict.holds);
            out.push(Action::Warn(Warning { slot: slot.id, name, value, counts_as }));
        }
        verdict
    }

    /// The cause to write down if an expression holds.
    pub(crate) fn holds(
        &mut self,
        at: usize,
        expression: Expression,
        out: &mut Vec<Action>,
    ) -> Option<Cause> {
        let verdict = self.ask(at, expression, out);
        verdict.holds.then(|| self.cause(at, &verdict))
    }

    fn cause(&self, at: usize, verdict: &Verdict) -> Cause {
        let text = self.policy_at(at).text(verdict.name);
        Cause::Expression { name: verdict.name, text, value: verdict.value.to_string() }
    }

    /// Is the slot its owner's? IS_OWNER says so, and where it says nothing START does: locally False is yes. Undefined
    /// and error are not False, as some job may fit.
    pub(crate) fn is_owners(&self, at: usize) -> (bool, Verdict) {
        let (scene, policy) = (self.scene(at, About::Nobody), self.policy_at(at));
        let said = scene.ask(policy, Expression::IsOwner);
        if let Some(is) = said.value.truth() {
            return (is, said);
        }
        let start = scene.ask(policy, Expression::Start);
        (start.value.truth() == Some(false), start)
    }

    /// The cause to write down if the slot is its owner's.
    pub(crate) fn start_forbids(&self, at: usize) -> Option<Cause> {
        let (is_owners, verdict) = self.is_owners(at);
        if is_owners { Some(self.cause(at, &verdict)) } else { self.rest_forbids(at) }
    }

    /// What START says about a job: only True is yes.
    pub(crate) fn start_for(&self, at: usize, job: &ClassAd) -> Verdict {
        self.scene(at, About::Candidate(job)).ask(self.policy_at(at), Expression::Start)
    }

    /// RANK of a job; what is no number counts as 0.
    pub(crate) fn rank_of(&self, at: usize, job: &ClassAd) -> f64 {
        let scene = self.scene(at, About::Candidate(job));
        let rank = scene.scope().eval(self.policy_at(at).get(Expression::Rank)).rank();
        if rank.is_nan() { 0.0 } else { rank }
    }

    fn is_stopped_by_operator(&self, at: usize) -> bool {
        self.slots[at].claim.as_ref().is_some_and(|c| c.stopped_by_operator)
    }

    /// Takes one numbered transition.
    pub(crate) fn go(&mut self, at: usize, to: Standing, cause: Cause, out: &mut Vec<Action>) {
        let now_ms = self.now_ms;
        let slot = &mut self.slots[at];
        let from = slot.standing;
        let transition = Transition::between(from, to);
        debug_assert!(transition.is_some(), "no transition leads from {from} to {to}");
        if from.is_in_use() && !to.is_in_use() {
            self.benchmark_waits = false;
        }
        slot.standing = to;
        slot.entered_activity_ms = now_ms;
        if from.state() != to.state() {
            slot.entered_state_ms = now_ms;
        }
        slot.deadline_ms = None;
        slot.changed = true;
        out.push(Action::Trace(Record {
            at_ms: now_ms,
            slot: slot.id,
            from: Some(from),
            to,
            transition,
            cause,
        }));
    }

    /// To Owner, and on to Unclaimed at once if START allows it; a dynamic slot vanishes instead.
    pub(crate) fn enter_owner(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        self.go(at, Standing::Owner, cause, out);
        let slot = &mut self.slots[at];
        slot.matched = None;
        slot.claim = None;
        slot.rival = None;
        slot.current_rank = 0.0;
        slot.warned.clear();
        if slot.kind == SlotKind::Dynamic {
            slot.gone = true;
            let (number, freed) = (slot.id.number, slot.resources);
            out.push(Action::SlotGone { slot: slot.id });
            if let Some(parent) = self.slots.iter_mut().find(|s| s.id.number == number && s.id.child == 0) {
                parent.resources.give(freed);
                parent.changed = true;
            }
            if let Some(whole) = self.position(SlotId::new(number)) {
                self.rest_if_due(whole, out);
            }
            return;
        }
        self.leave_owner_if_allowed(at, out);
    }

    pub(crate) fn leave_owner_if_allowed(&mut self, at: usize, out: &mut Vec<Action>) {
        let (is_owners, verdict) = self.is_owners(at);
        if !is_owners && self.rest_forbids(at).is_none() {
            let cause = self.cause(at, &verdict);
            self.go(at, Standing::UnclaimedIdle, cause, out);
        }
    }

    /// Matched to Owner.
    pub(crate) fn break_match(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        if let Some(claim) = self.slots[at].matched.take() {
            let slot = self.slots[at].id;
            out.push(Action::ClaimLost {
                slot,
                claim,
                reason: format!("the match was given up: {cause}"),
                tell: true,
            });
        }
        self.enter_owner(at, cause, out);
    }

    pub(crate) fn suspend(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        self.go(at, Standing::Suspended, cause, out);
        if let Some((slot, claim)) = self.who(at) {
            out.push(Action::Suspend { slot, claim });
        }
    }

    pub(crate) fn resume(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        self.go(at, Standing::Busy, cause, out);
        if let Some(claim) = &mut self.slots[at].claim {
            claim.stopped_by_operator = false;
        }
        if let Some((slot, claim)) = self.who(at) {
            out.push(Action::Continue { slot, claim });
        }
    }

    pub(crate) fn checkpoint(&mut self, at: usize, why: CheckpointWhy, out: &mut Vec<Action>) {
        let now_ms = self.now_ms;
        let Some((slot, claim)) = self.who(at) else { return };
        if let Some(running) = self.slots[at].claim.as_mut().and_then(|c| c.running.as_mut()) {
            running.last_checkpoint_ms = now_ms;
        }
        out.push(Action::Checkpoint { slot, claim, why });
    }

    /// The owner wants the job to leave; WANT_VACATE says how, and is read this once.
    fn preempt_by_policy(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        let polite = self.ask(at, Expression::WantVacate, out).holds;
        let held = self.hold_if_wanted(at, &cause, out);
        self.note_preemption(at, held);
        self.preempt(at, if polite { Eviction::Polite } else { Eviction::Fast }, cause, out);
    }

    /// The owner may want the job looked at by its user before it runs again; true if so.
    fn hold_if_wanted(&mut self, at: usize, cause: &Cause, out: &mut Vec<Action>) -> bool {
        if !self.ask(at, Expression::WantHold, out).holds {
            return false;
        }
        let reason = match self.ask(at, Expression::WantHoldReason, out).value {
            Value::Str(text) => text.to_string(),
            _ => format!("the machine's policy wants it held: {cause}"),
        };
        let subcode = match self.ask(at, Expression::WantHoldSubcode, out).value {
            Value::Int(n) => u32::try_from(n).unwrap_or(0),
            _ => 0,
        };
        if let Some((slot, claim)) = self.who(at) {
            out.push(Action::Hold { slot, claim, reason, subcode });
        }
        true
    }

    /// Claimed to Preempting, and on at once when there is no job.
    pub(crate) fn preempt(&mut self, at: usize, how: Eviction, cause: Cause, out: &mut Vec<Action>) {
        let was_suspended = self.slots[at].standing == Standing::Suspended;
        let has_job = self.slots[at].running().is_some();
        let to = match how {
            Eviction::Fast if has_job => Standing::Killing,
            Eviction::Polite | Eviction::Fast => Standing::Vacating,
        };
        self.go(at, to, cause, out);
        let Some((slot, claim)) = self.who(at).filter(|_| has_job) else {
            return self.leave_preempting(at, "there was no job", out);
        };
        if was_suspended {
            // A stopped process cannot handle a signal.
            out.push(Action::Continue { slot, claim });
        }
        if to == Standing::Killing {
            self.order_kill(at, out);
        } else {
            out.push(Action::SoftKill { slot, claim });
        }
    }

    /// Vacating to Killing.
    pub(crate) fn kill(&mut self, at: usize, cause: Cause, out: &mut Vec<Action>) {
        self.go(at, Standing::Killing, cause, out);
        self.order_kill(at, out);
    }

    fn order_kill(&mut self, at: usize, out: &mut Vec<Action>) {
        self.slots[at].deadline_ms = Some(self.now_ms + self.policy.timers.killing_ms);
        if let Some((slot, claim)) = self.who(at) {
            out.push(Action::HardKill { slot, claim });
        }
    }

    /// The job has left: the waiting claim takes over if START does not forbid its job, else Owner.
    pub(crate) fn leave_preempting(&mut self, at: usize, why: &'static str, out: &mut Vec<Action>) {
        let slot = self.slots[at].id;
        if let Some(claim) = self.slots[at].claim.take() {
            let reason = format!("the claim was broken; {why}");
            out.push(Action::ClaimLost { slot, claim: claim.id, reason, tell: !claim.lease_expired });
        }
        let Some(rival) = self.slots[at].rival.take() else {
            return self.enter_owner(at, Cause::Event(why), out);
        };
        if self.start_for(at, &rival.job).value.truth() == Some(false) {
            let reason = "START became false for its job while it waited".to_owned();
            out.push(Action::ClaimLost { slot, claim: rival.id, reason, tell: true });
            return self.enter_owner(at, Cause::Event(why), out);
        }
        if !self.recut(at, &rival.job) {
            let reason = "what was cut from its slot meanwhile leaves too little for its job".to_owned();
            out.push(Action::ClaimLost { slot, claim: rival.id, reason, tell: true });
            return self.enter_owner(at, Cause::Event(why), out);
        }
        self.take(at, rival, Cause::Event("a better claim was waiting"), out);
    }

    /// Gives a slot that was cut for one claim the size that another one wants. False when there is too little.
    fn recut(&mut self, at: usize, job: &ClassAd) -> bool {
        if self.slots[at].kind != SlotKind::Dynamic {
            return true;
        }
        let (had, wanted) = (self.slots[at].resources, crate::requests::request(job));
        let Some(whole) = self.position(SlotId::new(self.slots[at].id.number)) else { return true };
        if self.slots[whole].kind != SlotKind::Partitionable {
            return true;
        }
        let mut room = self.slots[whole].resources;
        room.give(had);
        let Some(left) = room.less(wanted) else { return false };
        self.slots[whole].resources = left;
        self.slots[whole].changed = true;
        self.slots[at].resources = wanted;
        true
    }

    /// A claim gets the slot.
    pub(crate) fn take(&mut self, at: usize, claim: crate::slot::Claim, cause: Cause, out: &mut Vec<Action>) {
        self.go(at, Standing::ClaimedIdle, cause, out);
        let (slot, id) = (self.slots[at].id, claim.id);
        self.slots[at].current_rank = self.rank_of(at, &claim.job);
        self.slots[at].matched = None;
        self.slots[at].claim = Some(claim);
        out.push(Action::ClaimAccepted { slot, claim: id });
    }
}
