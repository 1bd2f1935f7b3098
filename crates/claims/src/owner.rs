//! The owner's word: gives the policy its time, readings and requests, and turns what it wants into wishes that the core carries
//! out. Also keeps what is to be told about the machine: its ad, its slots, the trace.

mod promises;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use classad::{ClassAd, Value};
use model::agent::{MachineNow, Slot, SlotNow, Trace, Transition};
use model::attributes::REQUEST_CPUS;
use model::codes::vacate;
use model::event::Resources;
use model::report::{Attempt, Hold};
use model::starter::Use;
use model::template::Attribute;
use model::{ClaimId, Now};
use policy::slots::{Layout, Plan};
use policy::{Action, Attributes, Cause, Input, Machine, Policy, Readings, Record, SlotId, Standing};

pub(crate) use self::promises::Refusal;
use crate::load::PoolLoad;

/// Records of the trace that are sent in a second, at most.
const TRACE_PER_SECOND: usize = 200;

/// Whom an operator's command is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Whom {
    /// Everything on the machine.
    All,
    /// One slot, and what is cut from it.
    Slot(SlotId),
    /// One claim.
    Claim(u64),
}

/// Something that the loop must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Let the claim's jobs start.
    Run(u64),
    /// The claim is not welcome.
    Refuse {
        /// Which.
        claim: u64,
        /// In words.
        reason: String,
    },
    /// The claim is over.
    Lose {
        /// Which.
        claim: u64,
        /// In words.
        reason: String,
    },
    /// Stop the claim's job where it is, or let it go on.
    Suspend(u64, bool),
    /// Make the claim's job leave: politely, or at once.
    Evict {
        /// Whose job.
        claim: u64,
        /// At once.
        hard: bool,
        /// In words.
        reason: String,
        /// Vacate code.
        code: u32,
        /// It is to be held then.
        hold: Option<Hold>,
    },
    /// Kill the claim's starter, which did not manage.
    KillStarter(u64),
    /// Ask the claim's job for a checkpoint.
    Checkpoint(u64),
    /// Measure how fast the machine is.
    Benchmark,
}

/// How the job of an earlier agent's claim is found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// It stands still.
    pub suspended: bool,
    /// It has been leaving for so long.
    pub leaving_ms: Option<u64>,
}

/// What is known of a claim.
#[derive(Debug, Default)]
struct Seat {
    /// The job that the policy believes to run.
    job: Option<Attempt>,
    used: Option<Use>,
    load: Option<PoolLoad>,
    /// Since when its job's CPU time is known, and what it was then.
    cpu_since: Option<(u64, u64)>,
    /// Why its job must leave.
    cause: Option<(String, u32)>,
    /// The policy wants the job held when it has left.
    hold: Option<Hold>,
}

/// The owner.
#[derive(Debug)]
pub struct Owner {
    machine: Machine,
    seats: BTreeMap<u64, Seat>,
    /// What jobs that are gone have left in the machine's load.
    gone_load: PoolLoad,
    /// The slots that are not cut from others.
    plans: Vec<Plan>,
    fixed: Vec<Attribute>,
    /// Each with the time when it happened, by the policy's clock.
    trace: Vec<(u64, Transition)>,
    left_out: u64,
    /// When the second began whose records were counted, and their number.
    trace_window: (u64, usize),
    ads: HashMap<SlotId, ClassAd>,
    /// Numbers of slots whose ad matters for matching, has changed and was not told.
    changed: BTreeSet<u32>,
    /// Slots have changed and were not told.
    stirred: bool,
    wishes: Vec<Wish>,
    /// The policy looks at jobs one by one.
    pub is_watchful: bool,
    refusals: Vec<String>,
    /// Why an operator gives the command that is being carried out.
    said: Option<String>,
    warnings: Vec<String>,
}

impl Owner {
    /// How long the job of a claim wants to have for leaving, if it says so (job_max_vacate_time).
    pub(crate) fn vacate_ms(&self, claim: u64) -> Option<u64> {
        let seconds = self.machine.job_of(ClaimId(claim))?.eval_int("JobMaxVacateTime")?;
        Some(u64::try_from(seconds).unwrap_or(0).min(86_400) * 1_000)
    }

    /// A machine that starts now, with what its sensors see. `fixed` is what the pool says of the machine itself; it wins over
    /// what is measured.
    pub fn new(
        now: Now,
        host: &str,
        policy: &Policy,
        layout: &Layout,
        fixed: Vec<Attribute>,
        machine: Attributes,
    ) -> Self {
        let readings = Readings { machine, slots: Vec::new() };
        let (machine, actions) = Machine::start(host, policy.clone(), layout, readings, now.wall_ms);
        let mut owner = Self {
            machine,
            seats: BTreeMap::new(),
            gone_load: PoolLoad::new(now.wall_ms, 0.0),
            plans: layout.plans.clone(),
            fixed,
            trace: Vec::new(),
            left_out: 0,
            trace_window: (now.mono_ms, 0),
            ads: HashMap::new(),
            changed: layout.plans.iter().map(|p| p.id.number).collect(),
            stirred: true,
            wishes: Vec::new(),
            is_watchful: is_watchful(policy),
            refusals: Vec::new(),
            said: None,
            warnings: Vec::new(),
        };
        owner.take(now, actions);
        owner
    }

    /// What slots rest from, when that has changed, for [`Owner::take_up_rests`] of the next agent.
    pub fn changed_rests(&mut self) -> Option<String> {
        self.machine.changed_rests()
    }

    /// Takes up what slots rested from under an earlier agent.
    pub fn take_up_rests(&mut self, now: Now, text: &str) {
        let actions = self.machine.take_up_rests(now.wall_ms, text);
        self.take(now, actions);
    }

    /// When the policy wants to look again, by its own clock.
    pub fn next_look_ms(&self) -> u64 {
        self.machine.next_wake_ms()
    }

    /// What its owner should know of his expressions.
    pub fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The machine is to be measured, when it has nothing else to do.
    pub fn want_benchmark(&mut self, now: Now) {
        self.handle(now, Input::Benchmark);
    }

    /// Something is to be done.
    pub fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// Something is to be told.
    pub fn has_news(&self) -> bool {
        !self.changed.is_empty() || self.stirred
    }

    /// The claim was just refused.
    pub fn wishes_against(&self, claim: u64) -> bool {
        self.wishes.iter().any(|w| matches!(w, Wish::Refuse { claim: c, .. } if *c == claim))
    }

    /// What the loop must do.
    pub fn wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    fn handle(&mut self, now: Now, input: Input) {
        let actions = self.machine.handle(now.wall_ms, input);
        self.take(now, actions);
    }

    /// The load that the claims' jobs make, and what is left of the load of those that are gone.
    pub fn load(&self, now: Now) -> f64 {
        let loads = self.seats.values().filter_map(|seat| seat.load.as_ref());
        loads.fold(self.gone_load.at(now.wall_ms), |sum, load| sum + load.at(now.wall_ms))
    }

    /// What the sensors see now.
    pub fn look(&mut self, now: Now, machine: Attributes) {
        let mut slots = Vec::new();
        for (claim, seat) in &self.seats {
            let Some(slot) = self.machine.slot_of(ClaimId(*claim)) else { continue };
            let load = seat.load.as_ref().map_or(0.0, |l| l.at(now.wall_ms));
            let attributes = vec![(classad::Name::new("CondorLoadAvg"), Some(Value::Real(load)))];
            slots.push((slot, attributes));
        }
        self.handle(now, Input::Sensors(Readings { machine, slots }));
    }

    /// Time has passed. What the sensors see was said before.
    pub fn tick(&mut self, now: Now) {
        self.handle(now, Input::Tick);
    }

    /// The owner touched the machine, or something else makes a look worth while. What the sensors see was said before.
    pub fn reconsider(&mut self, now: Now) {
        self.handle(now, Input::Look);
    }

    /// The policy has a slot for the claim.
    pub fn has_slot(&self, claim: u64) -> bool {
        self.machine.slot_of(ClaimId(claim)).is_some()
    }

    /// A claim brings its first job, or another while none runs. `room` is what the notice that came with the claim promises.
    pub fn offer(
        &mut self,
        now: Now,
        claim: u64,
        slot: SlotId,
        room: Option<Resources>,
        job: Attempt,
        ad: ClassAd,
    ) {
        let seat = self.seats.entry(claim).or_default();
        if seat.job.is_some() {
            self.wishes.push(Wish::Run(claim));
            return;
        }
        seat.job = Some(job);
        self.expect_load(now, claim, &ad);
        if self.machine.slot_of(ClaimId(claim)).is_none() {
            let slot = self.free_name(slot);
            if let Some(room) = room {
                self.notice(now, claim, slot, room);
            }
            let promised = self.machine.slot_promised(ClaimId(claim));
            if let Some(slot) = promised.or_else(|| room.is_none().then_some(slot)) {
                self.handle(now, Input::Claim { slot, claim: ClaimId(claim), job: ad.clone() });
            }
        }
        if self.machine.slot_of(ClaimId(claim)).is_some() {
            self.handle(now, Input::Activate { claim: ClaimId(claim), job: ad });
        }
    }

    /// A claim of an earlier agent, with the job that runs.
    pub fn adopt(
        &mut self,
        now: Now,
        claim: u64,
        slot: SlotId,
        job: Option<Attempt>,
        ad: ClassAd,
        standing: &Found,
    ) {
        self.seats.entry(claim).or_default().job = job;
        if job.is_some()
            && let Some(seat) = self.seats.get_mut(&claim)
        {
            seat.load = Some(PoolLoad::of_old_job(now.wall_ms, cores_of(&ad)));
        }
        let Found { suspended, leaving_ms } = *standing;
        let (claim, runs) = (ClaimId(claim), job.is_some());
        self.handle(now, Input::Adopt { slot, claim, job: ad, runs, suspended, leaving_ms });
    }

    /// The claim's next job started: the policy sees one go and the other come.
    pub fn next_job(&mut self, now: Now, claim: u64, job: Attempt, ad: ClassAd) {
        let Some(seat) = self.seats.get_mut(&claim).filter(|s| s.job != Some(job)) else { return };
        seat.job = Some(job);
        seat.used = None;
        self.expect_load(now, claim, &ad);
        self.handle(now, Input::StarterGone { claim: ClaimId(claim) });
        if self.machine.slot_of(ClaimId(claim)).is_some() {
            self.handle(now, Input::Activate { claim: ClaimId(claim), job: ad });
        }
        // The job runs already; it needs nobody's leave.
        self.wishes.retain(|w| *w != Wish::Run(claim));
    }

    /// The claim has no more jobs.
    pub fn idle(&mut self, now: Now, claim: u64) {
        let Some(seat) = self.seats.get_mut(&claim) else { return };
        if seat.job.take().is_some() {
            seat.used = None;
            self.forget_load(now, claim);
            self.handle(now, Input::StarterGone { claim: ClaimId(claim) });
        }
    }

    /// The manager gives a claim back, or its starter is gone.
    pub fn end(&mut self, now: Now, claim: u64) {
        self.handle(now, Input::Release { claim: ClaimId(claim) });
        self.handle(now, Input::StarterGone { claim: ClaimId(claim) });
        self.forget_load(now, claim);
        self.seats.remove(&claim);
        self.wishes.retain(
            |w| !matches!(w, Wish::Lose { claim: c, .. } | Wish::Evict { claim: c, .. } if *c == claim),
        );
    }

    /// A claim has no place here any more, whatever the policy knows of that: it may have been told to an earlier agent.
    pub fn give_up(&mut self, claim: u64, reason: &str) {
        if !self.wishes.iter().any(|w| matches!(w, Wish::Lose { claim: c, .. } if *c == claim)) {
            self.wishes.push(Wish::Lose { claim, reason: reason.to_owned() });
        }
    }

    /// A job starts: the kernel counts it from now on, so it is taken to use what it asked for until it is measured.
    fn expect_load(&mut self, now: Now, claim: u64, ad: &ClassAd) {
        self.forget_load(now, claim);
        if let Some(seat) = self.seats.get_mut(&claim) {
            seat.load = Some(PoolLoad::new(now.wall_ms, cores_of(ad)));
            seat.cpu_since = Some((now.mono_ms, 0));
        }
    }

    /// A job is gone; the machine's load shows it for a while yet.
    fn forget_load(&mut self, now: Now, claim: u64) {
        if let Some(mut load) = self.seats.get_mut(&claim).and_then(|seat| seat.load.take()) {
            load.end(now.wall_ms);
            self.gone_load.add(now.wall_ms, &load);
        }
    }

    /// What a claim's job uses.
    pub fn uses(&mut self, now: Now, claim: u64, used: Use) {
        let Some(seat) = self.seats.get_mut(&claim) else { return };
        if let Some(load) = &mut seat.load {
            load.measure(now.wall_ms, used.cpu_us / 1000);
        }
        let (since_ms, before_us) = *seat.cpu_since.get_or_insert((now.mono_ms, used.cpu_us));
        seat.used = Some(used);
        let mut changes = ClassAd::new();
        changes.set("ImageSize", used.image_kib as i64);
        changes.set("ResidentSetSize", used.rss_kib as i64);
        changes.set("MemoryUsage", used.rss_kib.div_ceil(1024) as i64);
        changes.set("RemoteUserCpu", used.cpu_us as f64 / 1e6);
        let passed_us = now.mono_ms.saturating_sub(since_ms) * 1_000;
        if passed_us > 0 {
            let cores = used.cpu_us.saturating_sub(before_us) as f64 / passed_us as f64;
            changes.set("CpusUsage", cores);
        }
        self.handle(now, Input::JobChanged { claim: ClaimId(claim), changes });
        self.stirred = true;
    }

    /// Claims whose jobs are worth measuring.
    pub fn running(&self) -> Vec<u64> {
        self.seats.iter().filter(|(_, s)| s.job.is_some()).map(|(claim, _)| *claim).collect()
    }

    /// The claims that a command is for and that have a job.
    pub fn claims_of(&self, whom: Whom) -> Vec<u64> {
        let meant = |claim: u64| match whom {
            Whom::All => true,
            Whom::Claim(c) => c == claim,
            Whom::Slot(slot) => self
                .machine
                .slot_of(ClaimId(claim))
                .is_some_and(|s| s == slot || (slot.child == 0 && s.number == slot.number)),
        };
        self.running().into_iter().filter(|claim| meant(*claim)).collect()
    }

    /// The job that the policy believes to run under a claim.
    pub fn job_of(&self, claim: u64) -> Option<Attempt> {
        self.seats.get(&claim)?.job
    }

    /// An operator's command, and why; what could not be done is said.
    pub fn command(
        &mut self,
        now: Now,
        whom: Whom,
        reason: &str,
        input: impl Fn(Option<SlotId>) -> Input,
    ) -> Result<String, String> {
        let slots: Vec<Option<SlotId>> = match whom {
            Whom::All => vec![None],
            Whom::Slot(slot) => {
                self.machine.standing(slot).ok_or("there is no such slot on this machine")?;
                let cut =
                    |(id, _): (SlotId, Standing)| (id.number == slot.number && id.child > 0).then_some(id);
                let cut: Vec<_> = self.machine.slots().filter_map(cut).filter(|_| slot.child == 0).collect();
                if cut.is_empty() { vec![Some(slot)] } else { cut.into_iter().map(Some).collect() }
            }
            Whom::Claim(claim) => {
                let slot = self.machine.slot_of(ClaimId(claim));
                vec![Some(slot.ok_or("there is no such claim on this machine")?)]
            }
        };
        self.refusals.clear();
        let before = self.wishes.len();
        self.said = Some(reason.trim().to_owned()).filter(|r| !r.is_empty());
        for slot in slots {
            self.handle(now, input(slot));
        }
        self.said = None;
        let concerned = self.wishes.len() - before;
        match self.refusals.first() {
            Some(why) if concerned == 0 => Err(why.clone()),
            _ => Ok(format!("{concerned} jobs concerned")),
        }
    }

    /// The machine was measured (Dhrystone and Linpack figures), or was not.
    pub fn benchmarked(&mut self, now: Now, figures: Option<(i64, i64)>) {
        let input = match figures {
            Some((mips, kflops)) => Input::BenchmarkFinished { mips, kflops },
            None => Input::BenchmarkStopped,
        };
        self.handle(now, input);
    }

    /// A new policy takes effect.
    pub fn set_policy(&mut self, now: Now, policy: &Policy, machine: Attributes) {
        self.is_watchful = is_watchful(policy);
        self.handle(now, Input::Policy(Box::new(policy.clone())));
        self.look(now, machine);
        self.handle(now, Input::Look);
        self.all_changed();
    }

    /// Says something of the machine itself.
    pub fn set_fixed(&mut self, name: &str, expr: &str) {
        let attribute = Attribute { name: name.to_owned(), expr: expr.to_owned() };
        match self.fixed.iter_mut().find(|a| a.name == name) {
            Some(known) => *known = attribute,
            None => self.fixed.push(attribute),
        }
        self.all_changed();
    }

    /// Why the machine and its slots are as they are, in words.
    pub fn why(&self) -> String {
        let ids: Vec<SlotId> = self.machine.slots().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.machine.why(id)).map(|why| format!("{why}\n")).collect()
    }

    fn take(&mut self, now: Now, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Trace(record) => self.note(now, &record),
                Action::StartBenchmark => self.wishes.push(Wish::Benchmark),
                Action::ClaimAccepted { .. } | Action::ClaimWaits { .. } => {}
                Action::ClaimRefused { claim, reason, .. } | Action::ActivationRefused { claim, reason } => {
                    self.seats.remove(&claim.0);
                    // The manager saw another machine than we are: it must see this one before it tries again.
                    self.all_changed();
                    self.wishes.push(Wish::Refuse { claim: claim.0, reason });
                }
                Action::ClaimLost { claim, reason, .. } => {
                    self.wishes.push(Wish::Lose { claim: claim.0, reason });
                }
                Action::Activate { claim, .. } => self.wishes.push(Wish::Run(claim.0)),
                Action::Suspend { claim, .. } => self.wishes.push(Wish::Suspend(claim.0, true)),
                Action::Continue { claim, .. } => self.wishes.push(Wish::Suspend(claim.0, false)),
                Action::Hold { claim, reason, subcode, .. } => {
                    if let Some(seat) = self.seats.get_mut(&claim.0) {
                        seat.hold = Some(Hold { reason, subcode, code: 0 });
                    }
                }
                Action::SoftKill { claim, .. } => self.evict(claim.0, false),
                Action::HardKill { claim, .. } => self.evict(claim.0, true),
                Action::KillStarter { claim, .. } => self.wishes.push(Wish::KillStarter(claim.0)),
                Action::Checkpoint { claim, .. } => self.wishes.push(Wish::Checkpoint(claim.0)),
                Action::CommandRefused { reason, .. } => self.refusals.push(reason),
                Action::Advertise { slot, ad, .. } => self.advertise(slot, ad),
                Action::SlotGone { slot } => {
                    self.ads.remove(&slot);
                    self.stirred = true;
                }
                Action::Warn(warning) => self.warnings.push(format!(
                    "{}: {} gives {}, which counts as {}",
                    warning.slot, warning.name, warning.value, warning.counts_as
                )),
            }
        }
    }

    fn evict(&mut self, claim: u64, hard: bool) {
        let cause = self.seats.get(&claim).and_then(|s| s.cause.clone());
        let (reason, code) = cause.unwrap_or_else(|| ("the machine's policy".to_owned(), vacate::BY_OWNER));
        let hold = self.seats.get(&claim).and_then(|s| s.hold.clone());
        self.wishes.push(Wish::Evict { claim, hard, reason, code, hold });
    }

    fn note(&mut self, now: Now, record: &Record) {
        if matches!(record.to, Standing::Vacating | Standing::Killing)
            && let Some(claim) = self.machine.claim_of(record.slot)
            && let Some(seat) = self.seats.get_mut(&claim.0)
        {
            // The first cause counts: a kill only finishes what it began.
            let code = match &record.cause {
                Cause::Expression { .. } => vacate::BY_OWNER,
                Cause::Command(_) => vacate::BY_COMMAND,
                Cause::Better(_) | Cause::Timer(_) | Cause::Event(_) => vacate::FOR_ANOTHER,
            };
            let said = self.said.clone();
            let said = said.filter(|_| matches!(record.cause, Cause::Command(_) | Cause::Better(_)));
            seat.cause.get_or_insert_with(|| (said.unwrap_or_else(|| record.cause.to_string()), code));
        }
        self.stirred = true;
        let (since, count) = &mut self.trace_window;
        if now.mono_ms > *since + 1_000 {
            (*since, *count) = (now.mono_ms, 0);
        }
        *count += 1;
        if *count > TRACE_PER_SECOND {
            self.left_out += 1;
            return;
        }
        let transition = Transition {
            age_ms: 0,
            slot: record.slot.to_string(),
            from: record.from.map(|s| s.to_string()).unwrap_or_default(),
            to: record.to.to_string(),
            number: u32::from(record.number()),
            cause: record.cause.to_string(),
        };
        self.trace.push((record.at_ms, transition));
    }

    fn advertise(&mut self, slot: SlotId, ad: ClassAd) {
        if slot.child == 0 {
            let matters = |ad: &ClassAd| {
                ["Requirements", "START", "Rank", "State"].map(|n| ad.get(n).map(ToString::to_string))
            };
            if self.ads.get(&slot).is_none_or(|old| matters(old) != matters(&ad)) {
                self.changed.insert(slot.number);
            }
        }
        self.stirred = true;
        self.ads.insert(slot, ad);
    }

    /// What is to be told of the trace.
    pub fn trace(&mut self, now: Now) -> Option<Trace> {
        if self.trace.is_empty() && self.left_out == 0 {
            return None;
        }
        let left_out = std::mem::take(&mut self.left_out);
        let told = std::mem::take(&mut self.trace).into_iter();
        let aged = |(at_ms, told): (u64, Transition)| Transition {
            age_ms: now.wall_ms.saturating_sub(at_ms),
            ..told
        };
        Some(Trace { transitions: told.map(aged).collect(), left_out })
    }

    /// What is to be told of the machine: at once when it matters for matching, otherwise now and then.
    pub fn news(&mut self, now: Now, now_and_then: bool) -> Option<MachineNow> {
        if self.changed.is_empty() && !(now_and_then && self.stirred) {
            return None;
        }
        let changed = std::mem::take(&mut self.changed);
        self.stirred = false;
        let slots = self.seats.iter().filter_map(|(&claim, seat)| self.slot_now(now, claim, seat)).collect();
        let mut told =
            self.plans.iter().filter(|p| now_and_then || changed.contains(&p.id.number)).peekable();
        let ad = told.next_if(|p| p.id.number == 1).map(|p| self.ad(p)).unwrap_or_default();
        Some(MachineNow { ad, slots, more: told.map(|p| self.further(p)).collect() })
    }

    /// Everything is to be told again: a new session.
    pub fn tell_again(&mut self) {
        self.all_changed();
        self.stirred = true;
    }

    /// Something of a slot is worth telling, though nothing of its standing has changed.
    pub fn stir(&mut self) {
        self.stirred = true;
    }

    fn all_changed(&mut self) {
        self.changed = self.plans.iter().map(|p| p.id.number).collect();
    }

    /// Size and ad of the first slot, and the others.
    pub fn slots(&self) -> (Resources, Vec<Attribute>, Vec<Slot>) {
        let more = self.plans.iter().skip(1).map(|p| self.further(p)).collect();
        self.plans.first().map(|p| (size(p), self.ad(p), more)).unwrap_or_default()
    }

    fn further(&self, plan: &Plan) -> Slot {
        Slot { number: plan.id.number, total: size(plan), ad: self.ad(plan) }
    }

    fn slot_now(&self, now: Now, claim: u64, seat: &Seat) -> Option<SlotNow> {
        let id = ClaimId(claim);
        let slot = self.machine.slot_of(id).or_else(|| self.machine.slot_promised(id))?;
        let standing = self.machine.standing(slot)?;
        let number = |name: &str| self.ads.get(&slot).and_then(|ad| ad.eval_number(name)).unwrap_or(0.0);
        let used = seat.used.unwrap_or_default();
        Some(SlotNow {
            claim,
            state: standing.state().name().to_owned(),
            activity: standing.activity().name().to_owned(),
            image_kib: used.image_kib,
            rss_kib: used.rss_kib,
            cpu_us: used.cpu_us,
            rank: number("CurrentRank"),
            transfer: None,
            age_ms: now.wall_ms.saturating_sub(number("EnteredCurrentActivity") as u64 * 1_000),
        })
    }

    /// The ad of a slot: as policy and sensors have it, sizes whole, because the manager itself cuts claims from it.
    fn ad(&self, plan: &Plan) -> Vec<Attribute> {
        let mut ad = self.ads.get(&plan.id).cloned().or_else(|| self.machine.ad(plan.id)).unwrap_or_default();
        let total = size(plan);
        let disk = ad.eval_int("TotalSlotDisk").unwrap_or(total.disk_kib as i64);
        for attribute in &self.fixed {
            let _ = ad.insert_text(attribute.name.as_str(), &attribute.expr);
        }
        for (name, value) in [
            ("Cpus", i64::from(total.cpus)),
            ("TotalSlotCpus", i64::from(total.cpus)),
            ("Memory", total.memory_mib as i64),
            ("TotalSlotMemory", total.memory_mib as i64),
            ("Disk", disk),
            ("GPUs", i64::from(total.gpus)),
        ] {
            ad.set(name, value);
        }
        ad.iter()
            .map(|(name, expr)| Attribute { name: name.to_string(), expr: expr.to_exact_string() })
            .collect()
    }
}

/// What a job that was not measured yet is taken to use.
fn cores_of(ad: &ClassAd) -> f64 {
    ad.eval_number(REQUEST_CPUS).unwrap_or(1.0)
}

/// A slot's size as the pool counts it.
fn size(plan: &Plan) -> Resources {
    Resources {
        cpus: u32::try_from(plan.resources.cpus).unwrap_or(u32::MAX),
        memory_mib: plan.resources.memory_mib,
        disk_kib: plan.resources.disk_kib,
        gpus: u32::try_from(plan.resources.gpus).unwrap_or(u32::MAX),
    }
}

/// False when every expression is a constant: then it is enough to know which claims have jobs, not which jobs.
fn is_watchful(policy: &Policy) -> bool {
    use policy::Expression;
    let constant = |policy: &Policy, e: &Expression| {
        policy.get(*e).as_literal().is_some() && policy.vanilla(*e).is_none_or(|v| v.as_literal().is_some())
    };
    let all = |p: &Policy| {
        Expression::ALL.iter().filter(|e| **e != Expression::RunBenchmarks).all(|e| constant(p, e))
    };
    !policy.all().all(all)
}

#[cfg(test)]
mod tests;
