//! What each request means in each standing. Every pair is written down; no arm hides a new standing.
//!
//! Requests never override the owner: a claim needs START, and an operator cannot wake a job that SUSPEND wants asleep.

use classad::{ClassAd, Value};
use model::id::ClaimId;

use crate::evaluate::Eviction;
use crate::expressions::Expression;
use crate::input::{Action, CheckpointWhy};
use crate::machine::Machine;
use crate::slot::{Claim, Running, Slot, SlotId, can_checkpoint};
use crate::slots::{Resources, SlotKind};
use crate::state::Standing;
use crate::transition::{Cause, Record};

/// Why nothing is cut from a slot.
const TOO_SMALL: &str = "what is left of the slot is too small for this job";

/// What was found of a claim of an earlier agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) runs: bool,
    pub(crate) suspended: bool,
    pub(crate) leaving_ms: Option<u64>,
}

impl Machine {
    pub(crate) fn on_match(
        &mut self,
        slot: SlotId,
        claim: ClaimId,
        room: Option<Resources>,
        out: &mut Vec<Action>,
    ) {
        if self.slots.iter().any(|s| !s.gone && s.matched == Some(claim)) || self.holding(claim).is_some() {
            // The same notice again, or one that the claim has overtaken.
            return;
        }
        // A notice may name the slot that is to be cut for its claim.
        let whole = if self.position(slot).is_none() { SlotId::new(slot.number) } else { slot };
        let Some(at) = self.position(whole) else { return refuse(slot, claim, "there is no such slot", out) };
        match self.slots[at].standing {
            Standing::UnclaimedIdle | Standing::Benchmarking
                if self.slots[at].kind == SlotKind::Partitionable =>
            {
                let Some(room) = room else {
                    return refuse(slot, claim, "a notice for a partitionable slot says how much of it", out);
                };
                match self.cut(at, slot.child, room, Cause::Event("cut for a match"), out) {
                    Some(cut) => self.promise(cut, claim, out),
                    None => refuse(slot, claim, TOO_SMALL, out),
                }
            }
            Standing::UnclaimedIdle | Standing::Benchmarking => self.promise(at, claim, out),
            standing @ (Standing::Owner
            | Standing::Matched
            | Standing::ClaimedIdle
            | Standing::Busy
            | Standing::Suspended
            | Standing::Vacating
            | Standing::Killing) => refuse(slot, claim, &format!("the slot is {standing}"), out),
        }
    }

    /// Unclaimed to Matched.
    fn promise(&mut self, at: usize, claim: ClaimId, out: &mut Vec<Action>) {
        self.go(at, Standing::Matched, Cause::Event("match notice"), out);
        self.slots[at].matched = Some(claim);
        self.slots[at].deadline_ms = Some(self.now_ms + self.policy.timers.match_ms);
    }

    /// The claim of a better match that waits, or has the slot already, has its own number now.
    pub(crate) fn on_confirm(&mut self, waiting: ClaimId, claim: ClaimId) {
        for slot in self.slots.iter_mut().filter(|s| !s.gone) {
            let claims = slot.claim.iter_mut().chain(slot.rival.iter_mut());
            for held in claims.filter(|c| c.id == waiting) {
                held.id = claim;
            }
        }
    }

    pub(crate) fn on_claim(&mut self, slot: SlotId, claim: ClaimId, job: ClassAd, out: &mut Vec<Action>) {
        if let Some(at) = self.holding(claim) {
            // The answer was lost on the way.
            return out.push(Action::ClaimAccepted { slot: self.slots[at].id, claim });
        }
        let is_promised =
            |s: &Slot| s.matched == Some(claim) || s.rival.as_ref().is_some_and(|r| r.id == claim);
        if self.slots.iter().any(|s| s.id != slot && is_promised(s)) {
            return refuse(slot, claim, "the claim was promised another slot", out);
        }
        // A claim may name the slot that is to be cut for it.
        let whole = if self.position(slot).is_none() { SlotId::new(slot.number) } else { slot };
        let Some(at) = self.position(whole) else { return refuse(slot, claim, "there is no such slot", out) };
        if is_guest(&job) {
            return self.on_guest(at, slot.child, claim, job, out);
        }
        match self.slots[at].standing {
            Standing::UnclaimedIdle | Standing::Benchmarking
                if self.slots[at].kind == SlotKind::Partitionable =>
            {
                match self.unwelcome(at, &job) {
                    None => self.carve(at, slot.child, claim, job, out),
                    Some(reason) => refuse(slot, claim, &reason, out),
                }
            }
            Standing::UnclaimedIdle | Standing::Benchmarking => match self.unwelcome(at, &job) {
                None => {
                    self.take(at, Claim::new(claim, job, self.now_ms), Cause::Event("claim request"), out)
                }
                Some(reason) => {
                    refuse(slot, claim, &reason, out);
                    self.enter_owner(at, Cause::Event("claim request refused"), out);
                }
            },
            Standing::Matched if self.slots[at].matched == Some(claim) => match self.unwelcome(at, &job) {
                None => {
                    self.take(at, Claim::new(claim, job, self.now_ms), Cause::Event("claim request"), out)
                }
                Some(reason) => {
                    refuse(slot, claim, &reason, out);
                    self.slots[at].matched = None;
                    self.enter_owner(at, Cause::Event("claim request refused"), out);
                }
            },
            Standing::Matched => refuse(slot, claim, "the slot is matched to another claim", out),
            Standing::ClaimedIdle | Standing::Busy | Standing::Suspended => {
                self.on_rival(at, claim, job, out)
            }
            // What it leaves for was forgotten with the agent before, and is told again.
            Standing::Vacating | Standing::Killing if self.may_leave_for_another(at) => {
                self.on_rival(at, claim, job, out);
            }
            Standing::Vacating | Standing::Killing
                if self.slots[at].rival.as_ref().is_some_and(|r| r.id == claim) =>
            {
                out.push(Action::ClaimWaits { slot, claim });
            }
            standing @ (Standing::Owner | Standing::Vacating | Standing::Killing) => {
                refuse(slot, claim, &format!("the slot is {standing}"), out);
            }
        }
    }

    /// A guest runs inside what its host has: it gets a slot of nothing beside it, also where the host has a static slot.
    fn on_guest(&mut self, at: usize, child: u32, claim: ClaimId, job: ClassAd, out: &mut Vec<Action>) {
        let slot = self.slots[at].id;
        let cut = self.slots[at].kind == SlotKind::Partitionable;
        match self.slots[at].standing {
            Standing::UnclaimedIdle | Standing::Benchmarking if !cut => {
                refuse(slot, claim, "its host is not here", out);
            }
            Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::ClaimedIdle
            | Standing::Busy
            | Standing::Suspended => match self.unwelcome(at, &job) {
                None => self.carve(at, child, claim, job, out),
                Some(reason) => refuse(slot, claim, &reason, out),
            },
            standing @ (Standing::Owner | Standing::Matched | Standing::Vacating | Standing::Killing) => {
                refuse(slot, claim, &format!("the slot is {standing}"), out);
            }
        }
    }

    /// A claim asks for a slot that another holds. Refused, it changes nothing.
    fn on_rival(&mut self, at: usize, claim: ClaimId, job: ClassAd, out: &mut Vec<Action>) {
        let slot = self.slots[at].id;
        if let Some(reason) = self.unwelcome(at, &job) {
            return refuse(slot, claim, &reason, out);
        }
        let (rank, current) = (self.rank_of(at, &job), self.slots[at].current_rank);
        if rank < current {
            return refuse(slot, claim, &format!("its rank {rank} is below the present {current}"), out);
        }
        let user = job.eval_str("User").or_else(|| job.eval_str("Owner"));
        let user = user.unwrap_or_else(|| "another user".to_owned());
        let cause = if rank > current {
            Cause::Better(format!("RANK is {rank} for a claim of {user}, over {current}"))
        } else {
            Cause::Better(format!("a claim of {user} goes first at the same RANK ({rank})"))
        };
        self.slots[at].rival = Some(Claim { rank, ..Claim::new(claim, job, self.now_ms) });
        if self.slots[at].running().is_some() {
            out.push(Action::ClaimWaits { slot, claim });
        }
        self.slots[at].changed = true;
        if !matches!(self.slots[at].standing, Standing::Vacating | Standing::Killing) {
            self.preempt(at, Eviction::Polite, cause, out);
        }
    }

    /// A slot whose job was leaving when the agent began takes a better claim for it, as nobody knows any more for whom it leaves.
    pub(crate) fn may_leave_for_another(&self, at: usize) -> bool {
        let slot = &self.slots[at];
        slot.rival.is_none() && slot.claim.as_ref().is_some_and(|claim| claim.was_leaving)
    }

    /// Why a job may not come here.
    fn unwelcome(&self, at: usize, job: &ClassAd) -> Option<String> {
        let verdict = self.start_for(at, job);
        let refused = (!verdict.value.is_true()).then(|| format!("START is {} for this job", verdict.value));
        refused.or_else(|| self.rest_forbids_job(at, job))
    }

    /// Cuts a slot for a claim out of a partitionable one: the one it names if it names one, else the next.
    fn carve(&mut self, at: usize, child: u32, claim: ClaimId, job: ClassAd, out: &mut Vec<Action>) {
        let wanted = self.request(at, &job);
        let Some(cut) = self.cut(at, child, wanted, Cause::Event("cut for a claim"), out) else {
            return refuse(self.slots[at].id, claim, TOO_SMALL, out);
        };
        self.take(cut, Claim::new(claim, job, self.now_ms), Cause::Event("claim request"), out);
    }

    /// Cuts a slot out of a partitionable one, Unclaimed as yet; none when there is too little left.
    fn cut(
        &mut self,
        at: usize,
        child: u32,
        wanted: Resources,
        cause: Cause,
        out: &mut Vec<Action>,
    ) -> Option<usize> {
        let slot = self.slots[at].id;
        self.slots[at].resources = self.slots[at].resources.less(wanted)?;
        self.slots[at].changed = true;
        let named = SlotId { child, ..slot };
        let id = if child > 0 && self.position(named).is_none() {
            named
        } else {
            SlotId { child: self.slots[at].children + 1, ..slot }
        };
        self.slots[at].children = self.slots[at].children.max(id.child);
        let child = Slot::new(id, SlotKind::Dynamic, wanted, Standing::UnclaimedIdle, self.now_ms);
        out.push(Action::Trace(Record {
            at_ms: self.now_ms,
            slot: id,
            from: None,
            to: Standing::UnclaimedIdle,
            transition: None,
            cause,
        }));
        self.slots.push(child);
        Some(self.slots.len() - 1)
    }

    /// A claim that was here before the agent was started again. It was welcome once; what the policy makes of it now is
    /// for the next evaluation.
    pub(crate) fn on_adopt(
        &mut self,
        slot: SlotId,
        claim: ClaimId,
        job: ClassAd,
        found: Found,
        out: &mut Vec<Action>,
    ) {
        if self.holding(claim).is_some() {
            return;
        }
        let whole = SlotId::new(slot.number);
        let Some(at) = self.position(whole) else { return refuse(slot, claim, "there is no such slot", out) };
        if self.slots[at].kind == SlotKind::Partitionable || is_guest(&job) {
            self.carve(at, slot.child, claim, job.clone(), out);
        } else if self.slots[at].claim.is_some() {
            return refuse(slot, claim, "another claim holds the slot", out);
        } else {
            if self.slots[at].standing == Standing::Owner {
                self.go(at, Standing::UnclaimedIdle, Cause::Event("a claim was here before"), out);
            }
            let adopted = Claim::new(claim, job.clone(), self.now_ms);
            self.take(at, adopted, Cause::Event("a claim was here before"), out);
        }
        let Some(at) = self.holding(claim) else { return };
        if !found.runs {
            if let Some(held) = &mut self.slots[at].claim {
                held.has_run = true;
            }
            return;
        }
        self.activate(at, job, out);
        if let Some(leaving_ms) = found.leaving_ms {
            // Nobody is asked to leave twice: KILL counts from when it was first.
            self.go(at, Standing::Vacating, Cause::Event("it was leaving before"), out);
            let since_ms = self.now_ms.saturating_sub(leaving_ms);
            let slot = &mut self.slots[at];
            (slot.entered_state_ms, slot.entered_activity_ms) = (since_ms, since_ms);
            if let Some(held) = &mut slot.claim {
                held.was_leaving = true;
            }
        } else if found.suspended {
            self.go(at, Standing::Suspended, Cause::Event("it was suspended before"), out);
        }
    }

    /// What a job asks for. Nothing is rounded: the manager counts what it gave, and both must agree.
    pub(crate) fn request(&self, at: usize, job: &ClassAd) -> Resources {
        if is_guest(job) || job.eval_int("JobUniverse") == Some(SCHEDULER_UNIVERSE) {
            return Resources::default();
        }
        let scene = self.scene(at, crate::ad::About::Nobody);
        let asked = |name: &str, otherwise: u64| {
            let value = classad::Scope::of(job).target(&scene.my).now(self.now_s()).attribute(name);
            match value {
                Value::Int(n) => n.max(0) as u64,
                Value::Real(r) => r.max(0.0).ceil() as u64,
                _ => otherwise,
            }
        };
        Resources {
            cpus: asked("RequestCpus", 1).max(1),
            memory_mib: asked("RequestMemory", 1),
            disk_kib: asked("RequestDisk", 1),
            swap_kib: 0,
            gpus: asked("RequestGPUs", 0),
        }
    }

    pub(crate) fn on_activate(&mut self, claim: ClaimId, job: ClassAd, out: &mut Vec<Action>) {
        let refuse =
            |reason: String, out: &mut Vec<Action>| out.push(Action::ActivationRefused { claim, reason });
        let Some(at) = self.holding(claim) else { return refuse("the claim holds no slot here".into(), out) };
        match self.slots[at].standing {
            Standing::ClaimedIdle => {
                if let Some(reason) = self.unwelcome(at, &job) {
                    return refuse(reason, out);
                }
                self.activate(at, job, out);
                let slot = self.slots[at].id;
                out.push(Action::Activate { slot, claim });
            }
            standing @ (Standing::Busy | Standing::Suspended | Standing::Vacating | Standing::Killing) => {
                refuse(format!("the slot is {standing}"), out);
            }
            // Nobody holds a claim in these.
            Standing::Owner | Standing::UnclaimedIdle | Standing::Benchmarking | Standing::Matched => {}
        }
    }

    /// The claim's job is there.
    fn activate(&mut self, at: usize, job: ClassAd, out: &mut Vec<Action>) {
        let now_ms = self.now_ms;
        let can_checkpoint = can_checkpoint(&job);
        let rank = self.rank_of(at, &job);
        let slot = &mut self.slots[at];
        slot.current_rank = rank;
        if let Some(held) = &mut slot.claim {
            held.job = job;
            held.stopped_by_operator = false;
            held.running = Some(Running { started_ms: now_ms, last_checkpoint_ms: now_ms, can_checkpoint });
        }
        self.go(at, Standing::Busy, Cause::Event("activation"), out);
    }

    pub(crate) fn on_job_changed(&mut self, claim: ClaimId, changes: &ClassAd) {
        if let Some(at) = self.holding(claim)
            && let Some(held) = &mut self.slots[at].claim
        {
            held.job.update(changes);
        }
    }

    pub(crate) fn on_starter_gone(&mut self, claim: ClaimId, out: &mut Vec<Action>) {
        let Some(at) = self.holding(claim) else { return };
        if let Some(held) = &mut self.slots[at].claim {
            held.has_run |= held.running.take().is_some();
            held.stopped_by_operator = false;
        }
        let cause = Cause::Event("starter gone");
        match self.slots[at].standing {
            Standing::Busy => self.go(at, Standing::ClaimedIdle, cause, out),
            Standing::Suspended => {
                // Somebody killed the stopped job. There is no arrow to Claimed/Idle but by way of Busy.
                self.go(at, Standing::Busy, cause.clone(), out);
                self.go(at, Standing::ClaimedIdle, cause, out);
            }
            Standing::Vacating | Standing::Killing => self.leave_preempting(at, "starter gone", out),
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched
            | Standing::ClaimedIdle => {}
        }
    }

    /// Release by the holder, or its lease ran out.
    pub(crate) fn on_release(&mut self, claim: ClaimId, expired: bool, out: &mut Vec<Action>) {
        let cause = if expired { Cause::Timer("claim lease") } else { Cause::Command("release") };
        if let Some(at) =
            self.slots.iter().position(|s| !s.gone && s.rival.as_ref().is_some_and(|r| r.id == claim))
        {
            // The present job keeps leaving: a vacate cannot be taken back.
            self.slots[at].rival = None;
            return;
        }
        if let Some(at) = self.slots.iter().position(|s| !s.gone && s.matched == Some(claim)) {
            self.slots[at].matched = None;
            return self.enter_owner(at, cause, out);
        }
        let Some(at) = self.holding(claim) else { return };
        if let Some(held) = &mut self.slots[at].claim {
            held.lease_expired |= expired;
        }
        match self.slots[at].standing {
            Standing::ClaimedIdle | Standing::Busy | Standing::Suspended => {
                self.preempt(at, Eviction::Polite, cause, out);
            }
            Standing::Vacating
            | Standing::Killing
            | Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched => {}
        }
    }

    pub(crate) fn on_vacate(&mut self, at: usize, fast: bool, out: &mut Vec<Action>) -> Option<&'static str> {
        let (how, cause) = if fast {
            (Eviction::Fast, Cause::Command("vacate fast"))
        } else {
            (Eviction::Polite, Cause::Command("vacate"))
        };
        match self.slots[at].standing {
            Standing::ClaimedIdle | Standing::Busy | Standing::Suspended => self.preempt(at, how, cause, out),
            Standing::Matched => self.break_match(at, cause, out),
            Standing::Vacating if fast => self.kill(at, cause, out),
            Standing::Vacating | Standing::Killing => return Some("the job is leaving already"),
            Standing::Owner | Standing::UnclaimedIdle | Standing::Benchmarking => {
                return Some("no claim holds it");
            }
        }
        None
    }

    pub(crate) fn on_checkpoint(&mut self, at: usize, out: &mut Vec<Action>) -> Option<&'static str> {
        match self.slots[at].standing {
            Standing::Busy if self.slots[at].running().is_some_and(|(_, r)| r.can_checkpoint) => {
                self.checkpoint(at, CheckpointWhy::Command, out);
                None
            }
            Standing::Busy => Some("its job cannot be checkpointed"),
            Standing::Suspended => Some("its job is suspended"),
            Standing::Vacating | Standing::Killing => Some("its job is leaving"),
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched
            | Standing::ClaimedIdle => Some("no job runs on it"),
        }
    }

    pub(crate) fn on_suspend(&mut self, at: usize, out: &mut Vec<Action>) -> Option<&'static str> {
        match self.slots[at].standing {
            Standing::Busy => self.suspend(at, Cause::Command("suspend"), out),
            // Suspended by the policy: it shall not go on by the policy alone.
            Standing::Suspended => {}
            Standing::Vacating | Standing::Killing => return Some("its job is leaving"),
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched
            | Standing::ClaimedIdle => return Some("no job runs on it"),
        }
        if let Some(held) = &mut self.slots[at].claim {
            held.stopped_by_operator = true;
        }
        None
    }

    pub(crate) fn on_continue(&mut self, at: usize, out: &mut Vec<Action>) -> Option<&'static str> {
        match self.slots[at].standing {
            Standing::Suspended => {
                let stopped =
                    self.slots[at].claim.as_mut().is_some_and(|c| std::mem::take(&mut c.stopped_by_operator));
                if !stopped {
                    return Some("the owner's policy suspended it, and only CONTINUE lets it go on");
                }
                if self.holds(at, Expression::WantSuspend, out).is_some()
                    && self.holds(at, Expression::Suspend, out).is_some()
                {
                    return Some("SUSPEND is true now; it goes on when CONTINUE is");
                }
                self.resume(at, Cause::Command("continue"), out);
                None
            }
            Standing::Busy => Some("its job is running"),
            Standing::Vacating | Standing::Killing => Some("its job is leaving"),
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched
            | Standing::ClaimedIdle => Some("no job runs on it"),
        }
    }

    pub(crate) fn on_benchmark(&mut self, out: &mut Vec<Action>) {
        self.benchmark_due = true;
        for at in 0..self.slots.len() {
            self.benchmark_if_wanted(at, out);
        }
    }

    pub(crate) fn on_benchmark_finished(&mut self, mips: i64, kflops: i64, out: &mut Vec<Action>) {
        self.benchmark_runs = false;
        self.benchmark_due = false;
        self.readings.insert_int("Mips", mips);
        self.readings.insert_int("KFlops", kflops);
        self.readings.insert_int("LastBenchmark", self.now_s());
        for at in 0..self.slots.len() {
            self.slots[at].changed = true;
        }
        self.leave_benchmarking("benchmark finished", out);
    }

    /// Nothing was measured: RunBenchmarks is asked again when the machine is idle, not at every poll.
    pub(crate) fn on_benchmark_stopped(&mut self, out: &mut Vec<Action>) {
        self.benchmark_runs = false;
        self.benchmark_waits = true;
        self.leave_benchmarking("benchmark gave way to a job", out);
    }

    fn leave_benchmarking(&mut self, why: &'static str, out: &mut Vec<Action>) {
        for at in 0..self.slots.len() {
            if self.slots[at].standing == Standing::Benchmarking {
                self.go(at, Standing::UnclaimedIdle, Cause::Event(why), out);
            }
        }
    }
}

/// JobUniverse of jobs that run beside the queue and take nothing of the machine.
const SCHEDULER_UNIVERSE: i64 = 7;

/// A job that runs inside what another one has. The manager lets nobody else say so.
fn is_guest(job: &ClassAd) -> bool {
    job.eval_int("GuestOf").is_some()
}

fn refuse(slot: SlotId, claim: ClaimId, reason: &str, out: &mut Vec<Action>) {
    out.push(Action::ClaimRefused { slot, claim, reason: reason.to_owned() });
}
