//! The whole of it: words, readings and time in, [`Action`]s out. Between the ledger and the owner: jobs are offered to the policy,
//! and what it wants of them is carried out.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use classad::ClassAd;
use model::agent::{BETTER, Control, Down, Object, Up, Verb};
use model::attributes::GUEST_OF;
use model::report::{Attempt, Happening, Hold};
use model::starter::{self as wire, Eviction, Job, Landed, Order, Outputs, Packed, Standing, Warn, Word};
use model::{Now, WallMs};
use policy::{Attributes, Input};

use crate::answers::Answers;
use crate::clock::{ClockOffset, Seen};
use crate::ledger::{Ledger, ended};
use crate::owner::{Found, Owner, Whom, Wish};
use crate::record::Record;
use crate::unfed::Unfed;

/// The manager hears of what does not matter for matching no more often than this.
const TELL_MS: u64 = 1_000;

/// Jobs, each with the values that are its own.
pub type Jobs = Vec<(Job, Vec<String>)>;

/// Something to do.
#[derive(Debug)]
pub enum Action {
    /// Tell the manager (nobody, when there is no session).
    Say(Up),
    /// Begin a claim: write its record, take a starter, tell it. When that fails, say [`Core::cannot_begin`].
    Begin {
        /// What must survive the agent.
        record: Record,
        /// What is left of its first lease.
        lease_ms: u64,
    },
    /// Tell a claim's starter.
    Order(u64, Order),
    /// Kill a claim's starter.
    Kill(u64),
    /// A claim is over and acknowledged: remove its files.
    Forget(u64),
    /// Jobs want to run: make the machine ready for them, then [`Core::offer`] them.
    Provision {
        /// Whose.
        claim: u64,
        /// In this order.
        jobs: Jobs,
    },
    /// A claim's starter is gone: put the machine in order, then say [`Core::released`].
    Release {
        /// Which.
        claim: u64,
        /// What its starter left.
        left: Vec<wire::Report>,
        /// Why it ended.
        why: String,
    },
    /// Bring a job's checkpoint here, then say [`Core::fetched`] or [`Core::missing`].
    Fetch {
        /// Whose.
        claim: u64,
        /// The job as it will start.
        job: Box<Job>,
        /// The values that are its own.
        values: Vec<String>,
        /// What to bring.
        object: Object,
    },
    /// Bring a job's inputs here, and its checkpoint if it has one, then say [`Core::fetched`], [`Core::refused`] or
    /// [`Core::unfetched`].
    Inputs {
        /// Whose.
        claim: u64,
        /// The job as it will start.
        job: Box<Job>,
        /// The values that are its own.
        values: Vec<String>,
        /// Where it begins, when not at its beginning.
        checkpoint: Option<Object>,
    },
    /// Carry a job's results to the store and have them put where they belong, then say [`Core::landed`].
    Land {
        /// Whose.
        claim: u64,
        /// What its starter collected.
        outputs: Outputs,
    },
    /// Carry a checkpoint to the store.
    Store {
        /// Whose.
        claim: u64,
        /// What its starter packed.
        packed: Packed,
    },
    /// Save the ad of a claim's job for the next agent. Without it that one only knows less.
    SaveAd {
        /// Whose.
        claim: u64,
        /// The ad.
        ad: ClassAd,
    },
    /// Save what the slots rest from for the next agent, which says [`crate::owner::Owner::take_up_rests`]; nothing when it is empty.
    SaveRests(String),
    /// Measure how fast the machine is, then say [`Core::benchmarked`].
    Benchmark,
    /// Tell the machine's owner.
    Warn(String),
}

/// What a configuration says besides the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a job that must leave may take, at most.
    pub max_vacate_ms: u64,
    /// A starter that is silent for so long is killed.
    pub silence_ms: u64,
    /// The machine is put in order after each claim.
    pub releases: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_vacate_ms: 600_000, silence_ms: 60_000, releases: false }
    }
}

/// Jobs of a claim that are not over, the running one first, with their ads while the policy may ask for them.
type Line = VecDeque<(Attempt, Option<ClassAd>)>;

/// The pure half of an agent.
#[derive(Debug)]
pub struct Core {
    /// The claims.
    pub ledger: Ledger,
    /// Whether, how and how long jobs may run here.
    pub owner: Owner,
    settings: Settings,
    lines: HashMap<u64, Line>,
    /// Claims that have a starter, as far as we know.
    employed: BTreeSet<u64>,
    /// Claims that were told to quit.
    quitting: BTreeSet<u64>,
    /// Claims that the owner does not want, and why; the manager is told when nothing of them is left.
    losing: BTreeMap<u64, String>,
    answers: Answers,
    pub(crate) unfed: Unfed,
    clock: ClockOffset,
    /// A session is open.
    pub(crate) connected: bool,
    /// When the manager was last told of the machine.
    told_ms: u64,
    pub(crate) pending: Vec<Action>,
}

impl Core {
    /// A machine that holds nothing.
    pub fn new(now: Now, ledger: Ledger, owner: Owner, settings: Settings) -> Self {
        Self {
            ledger,
            owner,
            settings,
            lines: HashMap::new(),
            employed: BTreeSet::new(),
            quitting: BTreeSet::new(),
            losing: BTreeMap::new(),
            answers: Answers::default(),
            unfed: Unfed::default(),
            clock: ClockOffset::default(),
            connected: false,
            told_ms: now.mono_ms,
            pending: Vec::new(),
        }
    }

    /// The configuration has changed.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    // Sessions.

    /// A session is open: the machine says who it is, and everything that was not acknowledged.
    pub fn session_opened(&mut self, now: Now) {
        self.connected = true;
        self.say_hello(now, 0);
    }

    fn say_hello(&mut self, now: Now, again: u64) {
        self.owner.tell_again();
        let (total, ad, more) = self.owner.slots();
        self.ledger.set_machine(total, ad, more);
        self.ledger.say_hello(now.mono(), again, &mut self.pending);
    }

    /// The session is over.
    pub fn session_closed(&mut self) {
        self.connected = false;
    }

    /// Time for a beat.
    pub fn beat(&mut self, now: Now) {
        self.ledger.beat(now.mono(), &mut self.pending);
    }

    /// What the manager's wall clock showed when it answered a beat, or the hello. Before the word itself.
    pub fn hear_clock(&mut self, now: Now, down: &Down, theirs: WallMs) {
        let beat = match down {
            Down::Welcome(_) => 0,
            Down::Beat(n) => *n,
            _ => return,
        };
        let Some(asked) = self.ledger.beat_sent(beat) else { return };
        let seen = Seen { asked, heard: now.mono(), ours: now.wall(), theirs };
        if let Some(offset_s) = self.clock.measure(seen) {
            self.owner.set_fixed("ClockOffset", &offset_s.to_string());
            self.pending.extend(ClockOffset::warning(offset_s).map(Action::Warn));
        }
    }

    /// A word from the manager.
    pub fn hear_manager(&mut self, now: Now, down: Down) {
        match down {
            Down::Claim(claim) => self.hear_claim(now, claim),
            Down::Assign(assign) if assign.waits => self.hear_request(now, assign),
            Down::Activate(claim) => self.ledger.activate(claim, &mut self.pending),
            Down::Better(better) => self.hear_better(now, better),
            Down::Keep(claim) => self.unfed.keep(claim, now.mono_ms),
            Down::Drop(claim) if claim & BETTER > 0 => self.drop_better(now, claim),
            Down::Drop(claim) if self.ledger.is_matched(claim) => {
                self.owner.end(now, claim);
                self.ledger.hear_manager(now.mono(), Down::Drop(claim), &mut self.pending);
            }
            Down::Stop(stop) if self.ledger.is_waiting(stop.claim, stop.job) => {
                self.ledger.withdraw(stop.claim, stop.job, &mut self.pending);
            }
            Down::Stop(stop)
                if stop.vacate
                    && self.ledger.is_alive(stop.claim)
                    && !self.ledger.is_fetching(stop.claim, stop.job) =>
            {
                self.vacate(now, stop.claim, stop.job);
            }
            Down::Again(n) => self.say_hello(now, n),
            down => self.ledger.hear_manager(now.mono(), down, &mut self.pending),
        }
    }

    /// A job is to leave: by way of the policy when it runs, at once when it has not begun.
    fn vacate(&mut self, now: Now, claim: u64, job: Attempt) {
        if self.owner.job_of(claim) == Some(job) {
            let leave = |slot| Input::Vacate { slot, fast: false };
            let _ = self.owner.command(now, Whom::Claim(claim), "", leave);
        } else {
            let stop = wire::Stop { id: job, hard: false, evict: None };
            self.pending.push(Action::Order(claim, Order::Stop(stop)));
        }
    }

    /// What people want of claims or slots; says how many jobs are concerned, or why nothing is done.
    pub fn control(&mut self, now: Now, control: &Control) -> Result<String, String> {
        let verb = Verb::try_from(control.verb).map_err(|_| "unknown order".to_owned())?;
        let whom = if control.claim > 0 {
            Whom::Claim(control.claim)
        } else if control.slot.is_empty() {
            Whom::All
        } else {
            Whom::Slot(control.slot.parse().map_err(|e: policy::BadSlotId| e.to_string())?)
        };
        if verb == Verb::Warn {
            let claims = self.owner.claims_of(whom);
            for claim in &claims {
                let warn = Warn { remaining_s: control.remaining_s, reason: control.reason.clone() };
                self.pending.push(Action::Order(*claim, Order::Warn(warn)));
            }
            return Ok(format!("{} jobs concerned", claims.len()));
        }
        self.owner.command(now, whom, &control.reason, |slot| match verb {
            Verb::Vacate => Input::Vacate { slot, fast: false },
            Verb::Kill => Input::Vacate { slot, fast: true },
            Verb::Suspend => Input::Suspend { slot },
            Verb::Continue => Input::Continue { slot },
            Verb::Checkpoint | Verb::Warn => Input::Checkpoint { slot },
        })
    }

    // Claims and their starters.

    /// A claim of an earlier agent. Its starter lives, or [`Core::starter_gone`] follows.
    pub fn adopt(&mut self, record: Record) {
        self.employed.insert(record.claim);
        self.ledger.adopt(record);
    }

    /// Where the starter of an adopted claim stands, with the ad of its job as it was last saved.
    pub fn adopt_job(&mut self, now: Now, claim: u64, standing: &Standing, saved: Option<ClassAd>) {
        let mut ad = saved.unwrap_or_default();
        // One whose job it has not heard of yet has no ad, and takes nothing all the same.
        if self.ledger.record(claim).is_some_and(|r| r.guest) && !ad.contains(GUEST_OF) {
            ad.insert_int(GUEST_OF, 0);
        }
        // One whose work is being packed, or waits to be stored, has no process, and is there all the same.
        let runs = standing.running_since_ms.is_some() || standing.leaving_since_ms.is_some();
        let job = standing.jobs.first().copied().filter(|_| runs);
        self.lines.insert(claim, standing.jobs.iter().map(|id| (*id, None)).collect());
        let leaving_ms = standing.leaving_since_ms.map(|since_ms| now.mono_ms.saturating_sub(since_ms));
        let found = Found { suspended: standing.suspended, leaving_ms };
        self.owner.adopt(now, claim, self.ledger.slot_of(claim), job, ad, &found);
        if !standing.ending.is_empty() && standing.jobs.is_empty() {
            self.owner.give_up(claim, &standing.ending);
        }
        for report in &standing.unacknowledged {
            if let Some(happening) = &report.happening {
                self.end_with_eviction(claim, happening);
            }
        }
    }

    /// A claim could not be begun: its record could not be written, or there is no starter.
    pub fn cannot_begin(&mut self, claim: u64) {
        self.employed.remove(&claim);
        self.answers.leave(claim);
        self.losing.insert(claim, "the machine cannot begin it".to_owned());
    }

    /// Jobs want to run, and the machine is ready for them. The owner hears of them; for the first ones of a claim what the
    /// sensors see is looked at.
    pub fn offer(&mut self, now: Now, claim: u64, jobs: Jobs, sensors: impl FnOnce(&Owner) -> Attributes) {
        let line = self.lines.entry(claim).or_default();
        let first = line.is_empty();
        for (job, values) in &jobs {
            let ad = self.owner.is_watchful.then(|| self.ledger.ad(job.id, values));
            line.push_back((job.id, ad));
        }
        if first && let Some((job, values)) = jobs.first() {
            let ad = self.ledger.ad(job.id, values);
            if self.owner.is_watchful {
                self.pending.push(Action::SaveAd { claim, ad: ad.clone() });
            }
            if !self.owner.has_slot(claim) {
                let readings = sensors(&self.owner);
                self.owner.look(now, readings);
            }
            let (slot, room) = (self.ledger.slot_of(claim), self.ledger.room_of(claim));
            self.owner.offer(now, claim, slot, room, job.id, ad);
        }
        if !self.owner.wishes_against(claim) {
            let jobs = jobs.into_iter().map(|(job, _)| job).collect();
            self.pending.push(Action::Order(claim, Order::Run(wire::Run { jobs })));
        }
    }

    /// A word from a claim's starter.
    pub fn hear_starter(&mut self, now: Now, claim: u64, word: Word) {
        match &word {
            Word::Here(number) => self.answers.hear(claim, *number),
            Word::Standing(standing) if standing.answers => self.answers.join(claim),
            Word::Use(used) => self.owner.uses(now, claim, *used),
            Word::Report(wire::Report { happening: Some(happening), .. }) => {
                self.note_report(now, claim, happening);
            }
            _ => {}
        }
        self.ledger.hear_starter(now.mono(), claim, word, &mut self.pending);
    }

    /// The owner hears what became of jobs.
    fn note_report(&mut self, now: Now, claim: u64, happening: &Happening) {
        if let Happening::Started(started) = happening
            && let Some((_, ad)) =
                self.lines.get(&claim).and_then(|l| l.iter().find(|(id, _)| *id == started.job))
            && let Some(ad) = ad.clone()
        {
            self.owner.next_job(now, claim, started.job, ad);
        }
        let over = ended(happening);
        if let Some(line) = self.lines.get_mut(&claim).filter(|_| !over.is_empty()) {
            line.retain(|(id, _)| !over.contains(id));
            if line.is_empty() {
                self.owner.idle(now, claim);
            }
        }
        self.end_with_eviction(claim, happening);
    }

    /// The claim of a job that was made to leave ends. The policy sees to that itself, unless it was an earlier agent's that wanted it.
    fn end_with_eviction(&mut self, claim: u64, happening: &Happening) {
        if let Happening::Evicted(evicted) = happening
            && evicted.ends_claim()
        {
            self.owner.give_up(claim, &evicted.reason);
        }
    }

    /// A claim's starter is gone and nothing of the claim is alive; this is what it left. `orderly`: it ended of its own accord.
    pub fn starter_gone(&mut self, now: Now, claim: u64, left: Vec<wire::Report>, orderly: bool) {
        self.employed.remove(&claim);
        self.lines.remove(&claim);
        self.answers.leave(claim);
        self.owner.end(now, claim);
        let quit = self.quitting.remove(&claim);
        let why = match (self.losing.remove(&claim), quit, orderly) {
            (_, true, _) => "no more jobs for it".to_owned(),
            (Some(why), ..) => why,
            (None, false, true) => "its lease ran out".to_owned(),
            (None, false, false) => "its starter died".to_owned(),
        };
        if self.settings.releases {
            self.ledger.releasing(claim);
            let left = if quit { Vec::new() } else { left };
            self.pending.push(Action::Release { claim, left, why });
        } else if quit {
            self.ledger.starter_quit(claim, &mut self.pending);
        } else {
            self.ledger.starter_gone(now.mono(), claim, left, &why, &mut self.pending);
        }
    }

    /// The machine is in order after a claim, or is not.
    pub fn released(
        &mut self,
        now: Now,
        claim: u64,
        left: Vec<wire::Report>,
        why: &str,
        failure: Option<String>,
    ) {
        self.ledger.released(now.mono(), claim, left, why, failure, &mut self.pending);
    }

    /// The machine is made ready for a job.
    pub fn provisioning(&mut self, claim: u64, job: Attempt, installing: bool) {
        self.ledger.provisioning(claim, job, installing, &mut self.pending);
    }

    /// The machine cannot be made ready for these jobs.
    pub fn unprovisioned(&mut self, claim: u64, jobs: &[Attempt], reason: String) {
        self.ledger.unprovisioned(claim, jobs, reason, &mut self.pending);
    }

    /// Jobs go back that no starter has seen.
    pub fn returned(&mut self, claim: u64, jobs: &[Attempt]) {
        self.ledger.returned(claim, jobs, &mut self.pending);
    }

    /// A job's checkpoint is here: it can start.
    pub fn fetched(&mut self, claim: u64, job: Job, values: Vec<String>) {
        self.ledger.fetched(claim, job, values, &mut self.pending);
    }

    /// A job's checkpoint cannot be had.
    pub fn missing(&mut self, claim: u64, job: &Job, why: &str) {
        self.ledger.missing(claim, job, why, &mut self.pending);
    }

    /// A job's inputs cannot be had, which holds it.
    pub fn refused(&mut self, claim: u64, job: Attempt, hold: Hold) {
        self.ledger.refused(claim, job, hold, &mut self.pending);
    }

    /// A job's inputs cannot be brought to this machine.
    pub fn unfetched(&mut self, claim: u64, job: Attempt, reason: String) {
        self.ledger.unfetched(claim, job, reason, &mut self.pending);
    }

    /// A job's results are where they belong, or cannot be.
    pub fn landed(&mut self, claim: u64, landed: Landed) {
        self.pending.push(Action::Order(claim, Order::Landed(landed)));
    }

    /// A checkpoint is in the store, or will never be.
    pub fn stored(&mut self, claim: u64, stored: wire::Stored) {
        self.pending.push(Action::Order(claim, Order::Stored(stored)));
    }

    /// The machine was measured, or was not.
    pub fn benchmarked(&mut self, now: Now, figures: Option<(i64, i64)>) {
        self.owner.benchmarked(now, figures);
    }

    // Time.

    /// How long until there is something to look at or to tell, in milliseconds of the policy's clock.
    pub fn next_look_ms(&self, now: Now) -> u64 {
        self.owner.next_look_ms().saturating_sub(now.wall_ms)
    }

    /// How long until there is something to tell that can wait, in milliseconds.
    pub fn next_word_ms(&self, now: Now) -> Option<u64> {
        let left = (self.told_ms + TELL_MS).saturating_sub(now.mono_ms);
        (self.connected && self.owner.has_news()).then_some(left)
    }

    /// The policy's time has come: `machine` is what the sensors see.
    pub fn look(&mut self, now: Now, machine: Attributes) {
        for claim in self.owner.running() {
            self.pending.push(Action::Order(claim, Order::Measure(true)));
        }
        self.owner.look(now, machine);
        self.owner.tick(now);
    }

    /// Starters are asked whether they are there, and those are killed that have not answered for too long.
    pub fn ask_starters(&mut self, now: Now) {
        self.end_unfed(now);
        let due = self.answers.look(now.mono_ms, self.settings.silence_ms);
        for (claim, number) in due.ask {
            self.pending.push(Action::Order(claim, Order::Ask(number)));
        }
        for claim in due.kill {
            let why = format!("its starter did not answer for {} s", self.settings.silence_ms / 1000);
            self.pending.push(Action::Warn(format!("claim {claim}: {why}: killing it")));
            self.losing.entry(claim).or_insert(why);
            self.pending.push(Action::Kill(claim));
        }
    }

    /// What is to be done now. Doing it may give cause for more.
    pub fn settle(&mut self, now: Now) -> Vec<Action> {
        // Before the job is told that a slot rests from: an agent that dies over it must not have forgotten why.
        let mut out: Vec<Action> = self.owner.changed_rests().map(Action::SaveRests).into_iter().collect();
        while !self.pending.is_empty() || self.owner.has_wishes() {
            for wish in self.owner.wishes() {
                self.carry_out(now, wish, &mut out);
            }
            for action in std::mem::take(&mut self.pending) {
                // What the machine is now goes before what became of its claims, so that nobody asks it in vain.
                self.tell(now, &mut out);
                self.pass(now, action, &mut out);
            }
        }
        self.tell(now, &mut out);
        out.extend(self.owner.changed_rests().map(Action::SaveRests));
        out.extend(self.owner.warnings().into_iter().map(Action::Warn));
        out
    }

    fn pass(&mut self, now: Now, action: Action, out: &mut Vec<Action>) {
        match &action {
            Action::Say(_) if !self.connected => return,
            Action::Begin { record, .. } => {
                self.employed.insert(record.claim);
                self.answers.join(record.claim);
            }
            Action::Order(claim, _) if !self.employed.contains(claim) => return,
            Action::Order(claim, Order::Quit(_)) => {
                self.quitting.insert(*claim);
                self.losing.remove(claim);
                self.owner.end(now, *claim);
                self.lines.remove(claim);
            }
            _ => {}
        }
        out.push(action);
    }

    /// Tells the manager of the machine: at once when that matters for matching.
    fn tell(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.connected {
            return;
        }
        if let Some(trace) = self.owner.trace(now) {
            out.push(Action::Say(Up::Trace(trace)));
        }
        let due = now.mono_ms >= self.told_ms + TELL_MS;
        if let Some(news) = self.owner.news(now, due) {
            self.told_ms = now.mono_ms;
            out.push(Action::Say(Up::Machine(news)));
        }
    }

    /// Carries out what the owner wants.
    fn carry_out(&mut self, now: Now, wish: Wish, out: &mut Vec<Action>) {
        match wish {
            // Jobs are given to the starter where they are offered.
            Wish::Run(_) => {}
            Wish::Lose { claim, .. } if claim & BETTER > 0 => {
                self.ledger.better.remove(&(claim & !BETTER));
            }
            Wish::Lose { claim, reason } if self.ledger.is_matched(claim) => {
                self.owner.end(now, claim);
                self.ledger.unmatch(now.mono(), claim, &reason, &mut self.pending);
            }
            Wish::Refuse { claim, reason } | Wish::Lose { claim, reason } => self.lose(claim, reason, out),
            Wish::Suspend(claim, suspend) => self.order(claim, Order::Suspend(suspend), out),
            Wish::Checkpoint(claim) => self.order(claim, Order::Checkpoint(true), out),
            Wish::Evict { claim, hard, reason, code, hold } => {
                self.order(claim, Order::Recall(u32::MAX), out);
                if let Some(id) = self.lines.get(&claim).and_then(|l| l.front()).map(|(id, _)| *id) {
                    // What the job asks for is its own business, as long as the machine has more patience.
                    let asked_ms = self.owner.vacate_ms(claim).unwrap_or(u64::MAX);
                    let patience_ms = self.settings.max_vacate_ms.min(asked_ms).max(1);
                    let evict = Some(Eviction { reason, code, patience_ms, hold });
                    self.order(claim, Order::Stop(wire::Stop { id, hard, evict }), out);
                }
            }
            Wish::KillStarter(claim) => {
                let why = format!("claim {claim}: killing a starter that did not end its job in time");
                out.extend([Action::Warn(why), Action::Kill(claim)]);
            }
            // Jobs and a benchmark would disturb each other.
            Wish::Benchmark if !self.employed.is_empty() => self.owner.benchmarked(now, None),
            Wish::Benchmark => out.push(Action::Benchmark),
        }
    }

    fn order(&self, claim: u64, order: Order, out: &mut Vec<Action>) {
        if self.employed.contains(&claim) {
            out.push(Action::Order(claim, order));
        }
    }

    /// A claim has no place here: end it, then tell the manager.
    fn lose(&mut self, claim: u64, reason: String, out: &mut Vec<Action>) {
        let known = self.losing.contains_key(&claim) || self.quitting.contains(&claim);
        if self.employed.contains(&claim) && !known {
            self.losing.insert(claim, reason);
            self.order(claim, Order::Quit(false), out);
        }
    }

    /// Claims that have a starter.
    pub fn employed(&self) -> impl Iterator<Item = u64> {
        self.employed.iter().copied()
    }

    /// Every claim is told to end, for a pool that is going away; says which.
    pub fn kill_all(&mut self) -> Vec<u64> {
        let live = self.ledger.live_claims();
        for claim in &live {
            self.quitting.insert(*claim);
            self.pending.push(Action::Order(*claim, Order::Quit(true)));
        }
        live
    }
}

#[cfg(test)]
mod tests;
