//! A lab in virtual time: the pool's own core, and machines that do at once what they are told and say how far they are when the
//! script says so.
//!
//! A recipe set is a gang that is submitted like any other, a system a machine with one core, and each word of a script
//! becomes what a person, an administrator or an agent would send (decision 036). Nothing is decided here.

mod ads;
mod machines;

use std::collections::{BTreeMap, VecDeque};

use model::event::Kind;
use model::{ClaimId, ClaimKey, Class, Event, JobId, JobName, Now};
use scheduler::{
    Act, Actor, Core, Effect, LabChange, Out, Refusal, Session, Settings, StandingChange, Submission, Turn,
    Which,
};

use self::ads::{machine_ad, template_of};
use crate::script::{Command, Minutes, RecipeSpec, SetSpec, SystemSpec};

/// When the time of a script begins, in Unix milliseconds.
const BEGIN_MS: u64 = 1_700_000_040_000;
/// A minute, in milliseconds.
const MINUTE_MS: u64 = 60_000;
/// Messages that one step may lead to.
const MESSAGES: usize = 1_000_000;

/// The hash of a claim key. Keys are numbers here, so nothing need be hidden.
pub(crate) fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

/// A claim, as its machine has it.
#[derive(Debug, Clone)]
struct Claim {
    key: ClaimKey,
    jobs: Vec<model::report::Attempt>,
    /// Those whose process was started, and when.
    started: BTreeMap<JobId, u64>,
    /// It is over, and the machine is being put in order.
    ending: bool,
    /// How far it is on its way to its first job.
    stage: model::agent::Stage,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct System {
    /// What it is.
    pub spec: SystemSpec,
    session: Session,
    claims: BTreeMap<ClaimId, Claim>,
}

/// A set that was submitted.
#[derive(Debug, Clone)]
pub struct Set {
    /// Its name in the script.
    pub name: String,
    /// Its number in the pool.
    pub cluster: u32,
    /// Machine recipes, then guests; each is the job of its place.
    pub recipes: Vec<RecipeSpec>,
    /// The last claim and attempt of each job, for reports that come twice.
    last: BTreeMap<u32, (ClaimId, u32, String)>,
}

/// The lab.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The pool's brain.
    pub core: Core,
    settings: Settings,
    /// The time.
    pub now: Now,
    /// All that was recorded since the beginning, unless nobody wants it.
    pub journal: Vec<Event>,
    keeps_journal: bool,
    systems: BTreeMap<String, System>,
    sets: Vec<Set>,
    /// How jobs ended that are no longer in the queue: completed or cancelled.
    over: BTreeMap<JobId, &'static str>,
    effects: VecDeque<Effect>,
    /// What was recorded in this step.
    pub(crate) recorded: Vec<Event>,
    /// What is said about this step.
    pub(crate) remarks: Vec<String>,
    /// Where a power command failed in this step.
    pub(crate) failed_on: Option<String>,
    next_session: u64,
    next_key: u64,
    /// How long machines take to be put in order is the script's business.
    slow_release: bool,
    /// What a set of one recipe is.
    singles: Singles,
}

/// What a set of one recipe is to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Singles {
    /// A gang of one.
    #[default]
    Gangs,
    /// A plain job: it stands in its user's line, and the planner does not know it.
    Plain,
}

impl Lab {
    /// An empty pool. With a slow release, machines are in order again when the script says so.
    pub fn new(settings: Settings, slow_release: bool, keeps_journal: bool) -> Self {
        Self {
            core: Core::new(settings.clone()),
            settings,
            now: Now { mono_ms: 1, wall_ms: BEGIN_MS },
            journal: Vec::new(),
            keeps_journal,
            systems: BTreeMap::new(),
            sets: Vec::new(),
            over: BTreeMap::new(),
            effects: VecDeque::new(),
            recorded: Vec::new(),
            remarks: Vec::new(),
            failed_on: None,
            next_session: 1,
            next_key: 1,
            slow_release,
            singles: Singles::default(),
        }
    }

    /// The same, with sets of one recipe as something else.
    #[must_use]
    pub fn with_singles(mut self, singles: Singles) -> Self {
        self.singles = singles;
        self
    }

    /// Minutes since the beginning.
    pub fn minute(&self) -> Minutes {
        (self.now.wall_ms - BEGIN_MS) / MINUTE_MS
    }

    /// The time is this, at least.
    pub fn set_minute(&mut self, minute: Minutes) {
        let wall_ms = (BEGIN_MS + minute.saturating_mul(MINUTE_MS)).max(self.now.wall_ms);
        self.now.mono_ms += wall_ms - self.now.wall_ms;
        self.now.wall_ms = wall_ms;
    }

    /// Systems, by name.
    pub fn systems(&self) -> impl Iterator<Item = &System> {
        self.systems.values()
    }

    /// Sets, in the order of submission.
    pub fn sets(&self) -> impl Iterator<Item = &Set> {
        self.sets.iter()
    }

    /// A set by its name.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().rev().find(|s| s.name == name)
    }

    /// The name of a set by its number in the pool.
    pub fn name_of(&self, cluster: u32) -> &str {
        self.sets.iter().find(|s| s.cluster == cluster).map_or("?", |s| &s.name)
    }

    /// How a job ended that is no longer in the queue.
    pub fn how_over(&self, job: JobId) -> &'static str {
        self.over.get(&job).copied().unwrap_or("completed")
    }

    /// Sets that are over and nobody looks at any more, for searches that go on for ever.
    pub fn forget_finished(&mut self) {
        let core = &self.core;
        self.sets.retain(|s| core.cluster(s.cluster).is_some());
        self.over.clear();
    }

    /// Does what a step of a script asks for, and all that follows at once.
    pub fn handle(&mut self, command: Command) {
        self.recorded.clear();
        self.remarks.clear();
        self.failed_on = None;
        self.now.mono_ms += 1;
        match command {
            Command::Submit(spec) => self.submit(*spec),
            Command::Progress { who, step } => self.progress(&who, step),
            Command::PowerFailure(who) => self.power_failure(&who),
            Command::Cancel(set) => self.cancel(&set),
            Command::Priority(set, class) => self.prioritise(&set, class),
            Command::Extend(set, minutes) => self.extend(&set, minutes),
            Command::ReservationOver(set) => {
                let _ = self.act(&set, Act::Return, None);
            }
            Command::Add(spec) => self.add(spec),
            Command::Condition(system, condition) => {
                self.stand(
                    &system,
                    None,
                    StandingChange { condition: Some(condition), ..StandingChange::default() },
                );
            }
            Command::Moved(system, lab) => self.edit(&system, |spec| spec.lab = lab),
            Command::Tags(system, tags) => self.edit(&system, |spec| spec.tags = tags),
            Command::Users(system, users) => {
                let allow = Some(users.into_iter().collect());
                self.stand(&system, None, StandingChange { allow, ..StandingChange::default() });
            }
            Command::Lent(system, to) => {
                self.stand(
                    &system,
                    None,
                    StandingChange { loaned_to: Some(to), ..StandingChange::default() },
                );
            }
            Command::Reserve(system, user, span) => {
                let held_ms = span.unwrap_or(0) * MINUTE_MS;
                let held_by = Some(user.clone());
                self.stand(
                    &system,
                    Some(user),
                    StandingChange { held_by, held_ms, ..StandingChange::default() },
                );
            }
            Command::Stage(system, stage) => {
                if let Some(system) = system.or_else(|| self.held_system()) {
                    let change = StandingChange { stage: Some(stage), ..StandingChange::default() };
                    self.stand(&system, None, change);
                }
            }
            Command::Returned(system) => {
                let held_by = Some(String::new());
                self.stand(&system, None, StandingChange { held_by, ..StandingChange::default() });
            }
            Command::Released(system) => self.release(&system),
            Command::Trees { lab, add, remove } => {
                self.set_lab(LabChange { lab, add_trees: add, remove_trees: remove, ..LabChange::default() });
            }
            Command::Enabled(lab, on) => {
                self.set_lab(LabChange { lab, disabled: Some(!on), ..LabChange::default() });
            }
            Command::LabRemoved(lab) => self.set_lab(LabChange { lab, remove: true, ..LabChange::default() }),
            Command::Until(minute) => {
                self.set_minute(minute);
                self.with_core(Core::resume);
            }
            Command::Sweep => self.sweep(),
            Command::Crash => self.crash(),
            Command::Corrupt(system) => self.core.spoil_books(&system),
        }
        self.settle();
    }

    /// One call of the core, with what it leads to on its way.
    fn with_core<T>(&mut self, call: impl FnOnce(&mut Core, &mut Turn<'_>) -> T) -> T {
        while self.core.keys_left() < 64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&self.next_key.to_le_bytes());
            self.next_key += 1;
            self.core.give_keys([ClaimKey(key)]);
        }
        let mut out = Out::default();
        let answer = call(&mut self.core, &mut Turn { now: self.now, digest, out: &mut out });
        for event in &out.events {
            self.note_end(event);
        }
        if self.keeps_journal {
            self.journal.extend(out.events.iter().cloned());
        }
        self.recorded.extend(out.events);
        self.effects.extend(out.effects);
        answer
    }

    fn note_end(&mut self, event: &Event) {
        match &event.kind {
            Some(Kind::JobExited(e)) => {
                self.over.insert(JobId { cluster: e.cluster, proc: e.proc }, "completed");
            }
            Some(Kind::JobsRemoved(e)) => {
                for proc in e.procs.iter().flat_map(|s| s.procs()) {
                    self.over.insert(JobId { cluster: e.cluster, proc }, "cancelled");
                }
            }
            _ => {}
        }
    }

    /// Machines do what they are told, until nobody has anything more to say.
    fn settle(&mut self) {
        for _ in 0..MESSAGES {
            let Some(effect) = self.effects.pop_front() else { return };
            self.deliver(effect);
        }
    }

    fn add(&mut self, spec: SystemSpec) {
        let name = spec.name.clone();
        let claims = self.systems.remove(&name).map(|s| s.claims).unwrap_or_default();
        self.systems.insert(name.clone(), System { spec, session: Session(0), claims });
        self.connect(&name);
        let condition = Some(model::event::Condition::Automated);
        self.stand(&name, None, StandingChange { condition, ..StandingChange::default() });
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut SystemSpec)) {
        let Some(system) = self.systems.get_mut(name) else { return };
        change(&mut system.spec);
        let (ad, session) = (machine_ad(&system.spec), system.session);
        self.with_core(|core, turn| {
            core.machine_changed(turn, name, session, vec![(1, ad)], Vec::new());
        });
    }

    /// What a user, or an administrator, decides about a machine.
    fn stand(&mut self, system: &str, user: Option<String>, change: StandingChange) {
        let actor = Actor { any_owner: user.is_none(), user: user.unwrap_or_else(|| "root".to_owned()) };
        let result = self.with_core(|core, turn| core.set_machine(turn, &actor, system, change));
        if let Err(why) = result {
            self.remarks.push(format!("refused: {why}"));
        }
    }

    fn set_lab(&mut self, change: LabChange) {
        if let Err(why) = self.with_core(|core, turn| core.set_lab(turn, change)) {
            self.remarks.push(format!("refused: {why}"));
        }
    }

    fn held_system(&self) -> Option<String> {
        self.core.machines().find(|m| !m.standing.held_by.is_empty()).map(|m| m.name.to_string())
    }

    fn submit(&mut self, spec: SetSpec) {
        if self.set(&spec.name).is_some() {
            self.remarks.push("duplicate ignored".to_owned());
            return;
        }
        // Whoever is not of the usual class waits until an administrator has said so.
        let held = spec.class != Class::Normal;
        let mut template = template_of(&spec, held);
        if self.singles == Singles::Plain && spec.recipes.len() == 1 && spec.recipes[0].force.is_none() {
            template.remove("Gang");
        }
        let submission = Submission { owner: spec.owner.clone(), template, idempotency_key: String::new() };
        let result = self.with_core(|core, turn| core.submit(turn, submission));
        let cluster = match result {
            Ok(cluster) => cluster,
            Err(why) => {
                self.remarks.push(format!("refused: {why}"));
                return;
            }
        };
        let (name, class) = (spec.name, spec.class);
        self.sets.push(Set { name: name.clone(), cluster, recipes: spec.recipes, last: BTreeMap::new() });
        if held {
            let _ = self.act(&name, Act::Reorder { priority: None, class: Some(class) }, None);
            let _ = self.act(&name, Act::Release, None);
        }
    }

    /// What an administrator, or a user, does with a set.
    fn act(&mut self, set: &str, act: Act, user: Option<&str>) -> Result<(), Refusal> {
        let Some(cluster) = self.set(set).map(|s| s.cluster) else { return Ok(()) };
        let actor = Actor { user: user.unwrap_or("root").to_owned(), any_owner: user.is_none() };
        let which = Which::Named(JobName::Cluster(cluster));
        let outcome = self.with_core(|core, turn| core.act(turn, &actor, act, &which, ""));
        outcome.map(|_| ())
    }

    fn cancel(&mut self, set: &str) {
        if self.set(set).is_none() {
            self.remarks.push("no-op: no such set".to_owned());
        } else if self.act(set, Act::Remove, None).is_err() {
            self.remarks.push("no-op: already finished".to_owned());
        }
    }

    fn prioritise(&mut self, set: &str, class: Class) {
        let Some(cluster) = self.set(set).map(|s| s.cluster) else {
            self.remarks.push("no-op: no such set".to_owned());
            return;
        };
        let waits = self.core.cluster(cluster).is_some_and(|c| c.idle > 0)
            && self.core.job(JobId { cluster, proc: 0 }).is_some_and(|j| j.machine.is_none());
        if self.act(set, Act::Reorder { priority: None, class: Some(class) }, None).is_err() {
            self.remarks.push("no-op: already finished".to_owned());
        } else if !waits {
            self.remarks.push("recorded; no effect after scheduled".to_owned());
        }
    }

    fn extend(&mut self, set: &str, minutes: Minutes) {
        let owner = self.set(set).and_then(|s| self.core.cluster(s.cluster)).map(|c| c.owner.to_string());
        let remark = match self.act(set, Act::Extend(minutes * 60), owner.as_deref()) {
            Ok(()) => "granted".to_owned(),
            Err(Refusal::Promised { gang, .. }) => format!("refused: would delay {}", self.name_of(gang)),
            Err(why) => format!("refused: {why}"),
        };
        self.remarks.push(remark);
    }

    /// Jobs that a script means by the name of a set, of a recipe or of both. Names of sets may have dots.
    fn meant(&self, who: &str) -> Vec<JobId> {
        if let Some(set) = self.set(who) {
            let hosts = set.recipes.iter().enumerate().filter(|(_, r)| r.guest_of.is_none());
            return hosts.map(|(at, _)| JobId { cluster: set.cluster, proc: at as u32 }).collect();
        }
        let in_set = |set: &Set, recipe: &str| {
            let at = set.recipes.iter().position(|r| r.name == recipe)?;
            Some(JobId { cluster: set.cluster, proc: at as u32 })
        };
        let found = match who.rsplit_once('.').and_then(|(set, recipe)| Some((self.set(set)?, recipe))) {
            Some((set, recipe)) => in_set(set, recipe),
            None => self
                .sets
                .iter()
                .filter(|s| self.core.cluster(s.cluster).is_some())
                .find_map(|s| in_set(s, who)),
        };
        found.into_iter().collect()
    }

    fn sweep(&mut self) {
        // Once a second at most, most of what a tick looks at.
        self.now.mono_ms += 1_000;
        self.with_core(Core::tick);
        while self.core.is_checking() {
            self.now.mono_ms += 1;
            self.with_core(Core::tick);
        }
    }

    /// The manager is lost; another one has its journal, and machines connect to it.
    fn crash(&mut self) {
        let mut again = Core::new(self.settings.clone());
        for event in &self.journal {
            if let Some(kind) = &event.kind {
                again.apply(kind, event.time_ms);
            }
        }
        if again.picture() != self.core.picture() {
            self.remarks.push("the journal gives another state".to_owned());
        }
        self.core = again;
        self.core.recovered(self.now);
        self.effects.clear();
        for name in self.systems.keys().cloned().collect::<Vec<_>>() {
            self.connect(&name);
            self.settle();
        }
    }
}
