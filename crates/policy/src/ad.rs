//! The ads: what expressions see of a slot, and what is said about it to the pool.
//!
//! Nothing is decided here beyond what Requirements says. Measurements are the agent's; this only puts them together
//! with what the automaton knows.

use classad::{ClassAd, EvalContext, Name, Scope, Value};

use crate::expressions::{Expression, Policy, Verdict};
use crate::machine::Machine;
use crate::slot::{Claim, Requirements, Slot};
use crate::slots::{SlotKind, share_owner_load};
use crate::state::{Standing, State};

/// What a slot sees that is not connected to keyboard or console.
const NEVER_TOUCHED_SECONDS: i64 = 1_000_000_000;

/// Whom an expression is asked about.
#[derive(Clone, Copy)]
pub(crate) enum About<'a> {
    /// Nobody: what the machine itself says ("locally").
    Nobody,
    /// The job that is here.
    Present,
    /// A job that would like to be here. What the present job put into the machine ad must not be taken for its own.
    Candidate(&'a ClassAd),
}

/// The world as the expressions of one slot see it.
pub(crate) struct Scene {
    pub(crate) my: ClassAd,
    pub(crate) job: Option<ClassAd>,
    is_vanilla: bool,
    now_s: i64,
}

impl Scene {
    pub(crate) fn scope(&self) -> Scope<'_> {
        let scope = Scope::of(&self.my).context(EvalContext::at(self.now_s));
        match &self.job {
            Some(job) => scope.target(job),
            None => scope,
        }
    }

    pub(crate) fn ask(&self, policy: &Policy, expression: Expression) -> Verdict {
        policy.ask(expression, &self.scope(), self.is_vanilla)
    }
}

impl Machine {
    pub(crate) fn scene(&self, at: usize, about: About<'_>) -> Scene {
        let slot = &self.slots[at];
        let (job, is_vanilla) = match about {
            About::Nobody => (None, false),
            About::Present => (
                slot.claim.as_ref().map(|c| c.job.clone()),
                slot.claim.as_ref().is_some_and(Claim::is_vanilla),
            ),
            About::Candidate(job) => (Some(job.clone()), crate::slot::is_vanilla(job)),
        };
        let mut my = self.measured(at);
        for (name, expr) in self.policy_at(at).named(is_vanilla) {
            my.insert(name, expr.clone());
        }
        if matches!(about, About::Present) {
            self.put_job(slot, &mut my);
        }
        Scene { my, job, is_vanilla, now_s: self.now_s() }
    }

    /// The policy that a slot follows.
    pub(crate) fn policy_at(&self, at: usize) -> &Policy {
        self.policy.of_slot(self.slots[at].id.number)
    }

    /// The machine's attributes as one slot has them, without policy and job.
    fn measured(&self, at: usize) -> ClassAd {
        let mut my = self.measured_alone(at);
        for name in &self.policy.slot_attributes {
            for other in 0..self.slots.len() {
                let mut its = self.measured_alone(other);
                self.put_job(&self.slots[other], &mut its);
                match its.eval(name.as_str()) {
                    Value::Undefined | Value::Error => {}
                    value => my.set(Name::new(&format!("{}_{name}", self.slots[other].id)), value),
                }
            }
        }
        my
    }

    fn measured_alone(&self, at: usize) -> ClassAd {
        let slot = &self.slots[at];
        let mut my = self.readings.clone();
        if !my.contains("LastBenchmark") {
            my.insert_int("LastBenchmark", 0);
        }
        if !my.contains("LoadAvg")
            && let Some(total) = my.eval_number("TotalLoadAvg")
        {
            let ours = my.eval_number("TotalCondorLoadAvg").unwrap_or(0.0);
            let in_use: Vec<bool> = self.slots.iter().map(|s| s.standing.is_in_use()).collect();
            let share = share_owner_load(total - ours, &in_use).get(at).copied().unwrap_or(0.0);
            let slot_ours = slot.readings.eval_number("CondorLoadAvg").unwrap_or(0.0);
            my.insert_real("CondorLoadAvg", slot_ours);
            my.insert_real("LoadAvg", share + slot_ours);
        }
        self.hide_console(slot, &mut my);
        my.update(&slot.readings);
        for (name, expr) in &self.policy_at(at).attributes {
            my.insert(name, expr.clone());
        }
        self.put_slot(slot, &mut my);
        my
    }

    /// Slots that belong to no console do not notice who sits there.
    fn hide_console(&self, slot: &Slot, my: &mut ClassAd) {
        let sees = |count: Option<u32>| count.is_none_or(|n| slot.id.number <= n);
        if !sees(self.see_console) {
            my.insert_int("ConsoleIdle", NEVER_TOUCHED_SECONDS);
        }
        if !sees(self.see_keyboard) {
            let console = my.eval_int("ConsoleIdle").filter(|_| sees(self.see_console));
            my.insert_int("KeyboardIdle", console.unwrap_or(NEVER_TOUCHED_SECONDS));
        }
    }

    fn put_slot(&self, slot: &Slot, my: &mut ClassAd) {
        let name = if self.slots.len() == 1 && slot.kind == SlotKind::Static {
            self.host.clone()
        } else {
            format!("{}@{}", slot.id, self.host)
        };
        my.insert_str("MyType", "Machine");
        my.insert_str("TargetType", "Job");
        my.insert_str("Name", &name);
        my.insert_str("Machine", &self.host);
        my.insert_int("SlotID", i64::from(slot.id.number));
        let has = slot.resources;
        my.insert_int("Cpus", has.cpus as i64);
        my.insert_int("Memory", has.memory_mib as i64);
        let whole_disk = self.whole_disk_kib(slot);
        my.insert_int("TotalSlotDisk", whole_disk as i64);
        let cut: u64 = self.cut_from(slot).map(|s| s.resources.disk_kib).sum();
        my.insert_int("Disk", whole_disk.saturating_sub(cut) as i64);
        my.insert_int("VirtualMemory", self.virtual_memory_kib(slot) as i64);
        my.insert_int("GPUs", has.gpus as i64);
        match slot.kind {
            SlotKind::Static => my.insert_str("SlotType", "Static"),
            SlotKind::Partitionable => {
                my.insert_str("SlotType", "Partitionable");
                my.insert_bool("PartitionableSlot", true);
                my.insert_int("NumDynamicSlots", self.cut_from(slot).count() as i64);
            }
            SlotKind::Dynamic => {
                my.insert_str("SlotType", "Dynamic");
                my.insert_bool("DynamicSlot", true);
                my.insert_int("SlotDynamicID", i64::from(slot.id.child));
            }
        }
        my.insert_str("State", slot.standing.state().name());
        my.insert_str("Activity", slot.standing.activity().name());
        my.insert_int("EnteredCurrentState", (slot.entered_state_ms / 1_000) as i64);
        my.insert_int("EnteredCurrentActivity", (slot.entered_activity_ms / 1_000) as i64);
        my.insert_real("CurrentRank", slot.current_rank);
    }

    /// The slots that were cut from one.
    fn cut_from(&self, slot: &Slot) -> impl Iterator<Item = &Slot> {
        let of = slot.id;
        self.slots
            .iter()
            .filter(move |s| of.child == 0 && s.id.number == of.number && s.id.child > 0 && !s.gone)
    }

    /// What a slot has of the machine's disk as it is now, whatever was cut from it. A slot that was cut has what it was given.
    fn whole_disk_kib(&self, slot: &Slot) -> u64 {
        match (slot.shares, self.reading("TotalDisk")) {
            (Some((disk, _)), Some(free)) => steady(disk.of(free)),
            // What the slot itself has left; nobody measures the disk.
            _ => slot.resources.disk_kib + self.cut_from(slot).map(|s| s.resources.disk_kib).sum::<u64>(),
        }
    }

    /// What each slot has of the machine's disk.
    pub(crate) fn disks_kib(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| self.whole_disk_kib(slot)).collect()
    }

    /// Nobody reserves virtual memory: a slot that was cut may use what the one that it was cut from may.
    fn virtual_memory_kib(&self, slot: &Slot) -> u64 {
        let whole = self.slots.iter().find(|s| s.id.number == slot.id.number && s.id.child == 0);
        match (whole.and_then(|s| s.shares), self.reading("TotalVirtualMemory")) {
            (Some((_, swap)), Some(free)) => swap.of(free),
            _ => slot.resources.swap_kib,
        }
    }

    fn reading(&self, name: &str) -> Option<u64> {
        self.readings.eval_int(name).and_then(|n| u64::try_from(n).ok())
    }

    /// What the job puts into the machine ad; gone when the slot leaves Preempting, because its claim is.
    fn put_job(&self, slot: &Slot, my: &mut ClassAd) {
        if let Some(rival) = &slot.rival {
            for (from, to) in [("User", "PreemptingUser"), ("Owner", "PreemptingOwner")] {
                if let Some(name) = rival.job.eval_str(from) {
                    my.insert_str(to, &name);
                }
            }
            my.insert_real("PreemptingRank", rival.rank);
        }
        let Some(claim) = &slot.claim else { return };
        let copy = |my: &mut ClassAd, from: &str, to: &Name| match claim.job.eval(from) {
            Value::Undefined | Value::Error => {}
            value => my.set(to, value),
        };
        copy(my, "User", &Name::new("RemoteUser"));
        copy(my, "Owner", &Name::new("RemoteOwner"));
        my.insert_int("TotalClaimRunTime", (self.now_ms.saturating_sub(claim.since_ms) / 1_000) as i64);
        let Some(running) = claim.running else { return };
        my.insert_int("JobStart", (running.started_ms / 1_000) as i64);
        my.insert_int("TotalJobRunTime", (self.now_ms.saturating_sub(running.started_ms) / 1_000) as i64);
        if running.can_checkpoint {
            my.insert_int("LastPeriodicCheckpoint", (running.last_checkpoint_ms / 1_000) as i64);
        }
        if let (Some(cluster), Some(proc)) = (claim.job.eval_int("ClusterId"), claim.job.eval_int("ProcId")) {
            my.insert_str("JobId", &format!("{cluster}.{proc}"));
        }
        for name in ["ImageSize", "JobUniverse"] {
            copy(my, name, &Name::new(name));
        }
        for name in &self.policy.job_attributes {
            copy(my, name.as_str(), name);
        }
    }

    /// What START says about no job in particular, in the words of Requirements.
    pub(crate) fn requirements(&self, at: usize) -> Requirements {
        match self.slots[at].standing.state() {
            // Matched and Preempting lie: the slot is promised, whatever START says.
            State::Owner | State::Matched | State::Preempting => Requirements::False,
            State::Unclaimed | State::Claimed => {
                let verdict = self.scene(at, About::Nobody).ask(self.policy_at(at), Expression::Start);
                match verdict.value.truth() {
                    Some(true) => Requirements::True,
                    Some(false) => Requirements::False,
                    None => Requirements::Start,
                }
            }
        }
    }

    /// The ad of a slot as the pool sees it.
    pub(crate) fn published(&self, at: usize, requirements: Requirements) -> ClassAd {
        let slot = &self.slots[at];
        let mut ad = self.measured(at);
        self.put_job(slot, &mut ad);
        let policy = self.policy_at(at);
        ad.insert("Rank", policy.get(Expression::Rank).clone());
        match requirements {
            Requirements::True => ad.insert_bool("Requirements", true),
            Requirements::False => ad.insert_bool("Requirements", false),
            Requirements::Start => {
                let start = policy.get(Expression::Start);
                ad.insert("Requirements", classad::Expr::attribute("START"));
                ad.insert("START", start.clone());
                // START may build on other expressions of the policy, which are not published otherwise.
                let mentioned = start.references();
                for (name, expr) in policy.named(false) {
                    if mentioned.contains(&Name::new(name)) && !ad.contains(name) {
                        ad.insert(name, expr.clone());
                    }
                }
            }
        }
        let start = if requirements == Requirements::Start { "START" } else { "true" };
        if requirements != Requirements::False
            && let Some(narrower) = self.requirements_in_rests(at, start)
        {
            ad.insert("Requirements", narrower);
        }
        self.put_rests(at, &mut ad);
        ad
    }

    /// The ad of a slot now.
    pub fn ad(&self, slot: crate::SlotId) -> Option<ClassAd> {
        let at = self.position(slot)?;
        Some(self.published(at, self.requirements(at)))
    }

    /// Where a slot stands.
    pub fn standing(&self, slot: crate::SlotId) -> Option<Standing> {
        Some(self.slots[self.position(slot)?].standing)
    }
}

/// An amount with its first seven binary digits, never more than there is: nearly every job asks for disk, and what each is matched
/// against must not change with every file that somebody writes.
fn steady(kib: u64) -> u64 {
    kib & (u64::MAX << (u64::BITS - kib.leading_zeros()).saturating_sub(7))
}
