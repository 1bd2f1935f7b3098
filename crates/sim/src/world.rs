//! A random lab with simulated machines whose reports come late, twice or never, whose desk crashes and is replayed, and
//! whose every step is checked against the invariants.
//!
//! In lockstep a second desk makes the full pass where the first makes the incremental one; they must agree. At the end
//! all faults stop, everything is repaired, and every set must come to an end (L1).

use std::collections::{BTreeMap, BTreeSet};

use scheduler::gang::check::{self, Watch};
use scheduler::gang::desk::{Desk, Effect, Event, RecipeSpec, SetSpec, Settings, Step, SystemSpec};
use scheduler::gang::host::Host;
use scheduler::gang::planner::Rules;
use scheduler::gang::words::Condition;
use scheduler::gang::{Class, FOREVER, Time};

use crate::random::Random;
use crate::run::{Logged, show_sets, show_systems};

/// Sets that wait or run at once.
const OPEN_MAX: usize = 12;

/// How bad the world is, in percent unless said.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Reports come up to this many minutes late.
    pub delay: Time,
    /// Reports that never come.
    pub loss: u64,
    /// Reports that come twice.
    pub twice: u64,
    /// Starts that end in a power failure.
    pub power: u64,
    /// Machines that never say that they are done.
    pub hang: u64,
    /// Crashes of the desk over the whole run.
    pub crashes: u64,
}

impl Faults {
    /// None at all.
    pub fn none() -> Self {
        Self { delay: 0, loss: 0, twice: 0, power: 0, hang: 0, crashes: 0 }
    }

    /// A bad day.
    pub fn many() -> Self {
        Self { delay: 20, loss: 8, twice: 15, power: 6, hang: 5, crashes: 2 }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Events handled.
    pub events: u64,
    /// Sets that were submitted.
    pub sets: u64,
    /// Starts.
    pub starts: u64,
    /// Of which before their turn.
    pub backfilled: u64,
    /// Sets put back into the queue.
    pub requeued: u64,
    /// What the sweep put right.
    pub repairs: u64,
    /// The end of the world.
    pub ended: Time,
}

struct World {
    random: Random,
    faults: Faults,
    logged: Logged,
    twin: Desk,
    watch: Watch,
    queue: BTreeMap<(Time, u64), Event>,
    number: u64,
    outcome: Outcome,
    names: Vec<String>,
}

/// Runs a world of about so many events. The error says what was wrong, where.
pub fn storm(seed: u64, events: u64, faults: Faults) -> Result<Outcome, String> {
    let mut world = World::new(seed, faults);
    world.build().and_then(|()| world.live(events)).and_then(|()| world.drain()).map_err(|what| {
        let desk = &world.logged.desk;
        let last: Vec<String> =
            world.logged.log.iter().rev().take(4).rev().map(|(t, e)| format!("{t}: {e:?}")).collect();
        format!(
            "seed {seed}: {what}\n{}\n{}\n{}",
            last.join("\n"),
            show_sets(desk, &finished(desk)),
            show_systems(desk)
        )
    })?;
    world.outcome.repairs = world.logged.desk.repairs();
    Ok(world.outcome)
}

fn finished(desk: &Desk) -> BTreeSet<String> {
    desk.sets().filter(|s| s.is_final()).map(|s| s.name.clone()).collect()
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings {
            rules: Rules {
                depth: 1 + random.below(3) as u32,
                quantum: (!random.percent(30)).then_some(100),
                ..Rules::default()
            },
            grace: 500,
            retry: 2,
            exclusion: if random.percent(50) { FOREVER } else { 120 },
            run_max: 300,
            hold_max: 200,
            release: random.percent(30).then_some(10),
            keep_final: 8,
            alarm: true,
            ..Settings::default()
        };
        let twin = Desk::new(Settings { full_pass: true, ..settings.clone() });
        Self {
            random,
            faults,
            logged: Logged::new(settings),
            twin,
            watch: Watch::default(),
            queue: BTreeMap::new(),
            number: 0,
            outcome: Outcome::default(),
            names: Vec::new(),
        }
    }

    fn build(&mut self) -> Result<(), String> {
        for lab in ["L1", "L2"] {
            let trees = BTreeSet::from(["T".to_owned(), "N".to_owned()]);
            self.step(0, Event::LabAdded { lab: lab.to_owned(), trees })?;
        }
        let systems = 3 + self.random.below(6);
        for _ in 0..systems {
            self.add_system(0)?;
        }
        Ok(())
    }

    fn add_system(&mut self, now: Time) -> Result<(), String> {
        // Names in no order, so that numbers shift.
        let name = format!("{}{}", char::from(b'a' + self.random.below(26) as u8), self.names.len());
        let tags =
            ["p", "q", "r"].iter().filter(|_| self.random.percent(60)).map(|t| (*t).to_owned()).collect();
        let lab = if self.random.percent(65) { "L1" } else { "L2" }.to_owned();
        self.names.push(name.clone());
        self.step(now, Event::SystemAdded(SystemSpec { name, lab, tags, ..SystemSpec::default() }))
    }

    /// One event on both desks, and everything that must hold afterwards.
    fn step(&mut self, now: Time, event: Event) -> Result<(), String> {
        let before_time = self.logged.desk.now();
        let before = (show_sets(&self.logged.desk, &BTreeSet::new()), show_systems(&self.logged.desk));
        let effects = self.logged.handle(now, event.clone());
        let twin_effects = self.twin.handle(now, &event);
        self.outcome.events += 1;
        let desk = &self.logged.desk;
        let after = (show_sets(desk, &BTreeSet::new()), show_systems(desk));
        if effects != twin_effects {
            return Err(format!("the passes disagree: {effects:?}, the full one: {twin_effects:?}"));
        }
        if after != (show_sets(&self.twin, &BTreeSet::new()), show_systems(&self.twin)) {
            return Err("the passes lead to different states".to_owned());
        }
        let ignored = !effects.is_empty() && effects.iter().all(|e| matches!(e, Effect::Ignored { .. }));
        let recorded = matches!(event, Event::Priority { .. });
        if ignored && !recorded && now == before_time && before != after {
            return Err(format!("I13: an event that was ignored changed {before:?} to {after:?}"));
        }
        let mut wrong = check::check(desk);
        wrong.extend(self.watch.after(desk, &event, &effects));
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        for effect in effects {
            self.react(now, &effect);
        }
        Ok(())
    }

    fn post(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    /// A report on its way: late, twice, or never.
    fn report(&mut self, at: Time, event: Event) {
        if self.random.percent(self.faults.loss) {
            return;
        }
        let late = self.random.below(self.faults.delay + 1);
        if self.random.percent(self.faults.twice) {
            let later = self.random.below(self.faults.delay * 2 + 1);
            self.post(at + later, event.clone());
        }
        self.post(at + late, event);
    }

    /// What machines do when they are told to.
    fn react(&mut self, now: Time, effect: &Effect) {
        match effect {
            Effect::Started { set, attempt, systems, crossed, .. } => {
                self.outcome.starts += 1;
                self.outcome.backfilled += u64::from(!crossed.is_empty());
                let hangs = self.random.percent(self.faults.hang);
                for index in 0..systems.len() {
                    let recipe = format!("x{index}");
                    if self.random.percent(self.faults.power) {
                        let at = now + self.random.below(10);
                        let (set, attempt) = (set.clone(), Some(*attempt));
                        self.report(at, Event::PowerFailure { set, recipe: recipe.clone(), attempt });
                    }
                    let mut at = now;
                    for step in [Step::Waiting, Step::Installing, Step::Running, Step::Done] {
                        at += 1 + self.random.below(if step == Step::Done { 60 } else { 6 });
                        let bad = step == Step::Done && self.random.percent(15);
                        let step = if bad { Step::Aborted { suspicious: true } } else { step };
                        if hangs && matches!(step, Step::Done | Step::Aborted { .. }) {
                            continue;
                        }
                        let recipe = Some(recipe.clone());
                        self.report(
                            at,
                            Event::Progress { set: set.clone(), recipe, attempt: Some(*attempt), step },
                        );
                    }
                }
            }
            Effect::Release { system } => {
                let at = now + 1 + self.random.below(8);
                self.report(at, Event::Released { system: system.clone() });
            }
            Effect::Requeued { .. } => self.outcome.requeued += 1,
            _ => {}
        }
    }

    fn live(&mut self, events: u64) -> Result<(), String> {
        let mut now = 0;
        let mut crash_in = events / (self.faults.crashes + 1) + 1;
        let mut sweep_at = 30;
        while self.outcome.events < events {
            now += self.random.below(8);
            self.until(now)?;
            if now >= sweep_at {
                self.step(now, Event::Sweep)?;
                sweep_at = now + 30;
            }
            let event = self.whim();
            match event {
                Some(event) => self.step(now, event)?,
                None if self.names.len() < 12 => self.add_system(now)?,
                None => {}
            }
            if self.faults.crashes > 0 && self.outcome.events >= crash_in {
                crash_in += events / (self.faults.crashes + 1) + 1;
                if !self.logged.crash() {
                    return Err("I14: the log gives another state".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Reports that are due, and the clock when the desk asked for it.
    fn until(&mut self, now: Time) -> Result<(), String> {
        loop {
            let report = self.queue.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= now);
            let wake = self.logged.desk.next_wake().map(|w| w.max(self.logged.desk.now()));
            match (report, wake.filter(|w| *w <= now)) {
                (None, None) => return Ok(()),
                (report, Some(wake)) if report.is_none_or(|r| wake < r) => {
                    let before = self.logged.desk.next_wake();
                    self.step(wake, Event::Clock)?;
                    if self.logged.desk.next_wake() == before {
                        return Err(format!("waking at {wake} changed nothing"));
                    }
                }
                _ => {
                    let Some(((at, _), event)) = self.queue.pop_first() else { return Ok(()) };
                    self.step(at.max(self.logged.desk.now()), event)?;
                }
            }
        }
    }

    fn some_system(&mut self) -> String {
        let at = self.random.below(self.names.len() as u64) as usize;
        self.names[at].clone()
    }

    fn some_set(&mut self) -> Option<String> {
        let open: Vec<&str> =
            self.logged.desk.sets().filter(|s| !s.is_final()).map(|s| s.name.as_str()).collect();
        let at = self.random.below(open.len() as u64) as usize;
        open.get(at).map(|s| (*s).to_owned())
    }

    /// What people do. `None` is a new system.
    fn whim(&mut self) -> Option<Event> {
        let class = Class::ALL[self.random.below(5) as usize];
        let system = self.some_system();
        let set = self.some_set().unwrap_or_default();
        let lab = if self.random.percent(50) { "L1" } else { "L2" }.to_owned();
        Some(match self.random.below(100) {
            0..=49 if self.logged.desk.sets().filter(|s| !s.is_final()).count() >= OPEN_MAX => Event::Clock,
            0..=49 => self.submit(class),
            50..=56 => Event::Condition { system, condition: Condition::Automated },
            57..=60 => {
                let bad = [Condition::Broken, Condition::Broken, Condition::Manual, Condition::Removed];
                Event::Condition { system, condition: bad[self.random.below(4) as usize] }
            }
            61..=65 => Event::Cancel { set },
            66..=72 => Event::Priority { set, class },
            73..=76 => Event::Extend { set, by: 1 + self.random.below(60), request: None },
            77 | 78 => Event::LabEnabled { lab, enabled: false },
            79..=82 => Event::LabEnabled { lab, enabled: true },
            83 => Event::Tree { lab, tree: "N".to_owned(), present: false },
            84 | 85 => Event::Tree { lab, tree: "N".to_owned(), present: true },
            86 => Event::Loan { system, to: Some("v".to_owned()) },
            87 | 88 => Event::Loan { system, to: None },
            89 | 90 => Event::Reserve { system, user: "v".to_owned(), span: Some(50) },
            91 | 92 => Event::Returned { system },
            93 => Event::Moved { system, lab },
            94 => Event::Access { system, users: Some(BTreeSet::from(["v".to_owned()])) },
            95 => Event::Access { system, users: None },
            96 | 97 => Event::ReservationOver { set, recipe: None },
            98 => Event::Clock,
            _ => return None,
        })
    }

    fn submit(&mut self, class: Class) -> Event {
        self.outcome.sets += 1;
        let name = format!("s{}", self.outcome.sets);
        let seats = [1, 1, 1, 2, 2, 3][self.random.below(6) as usize];
        let hosts = ["p", "q", "r", "p or q", "p and q", "q or r", "not p"];
        let force = self.random.percent(4).then(|| self.some_system());
        let recipe = |index: usize, random: &mut Random| RecipeSpec {
            name: format!("x{index}"),
            host: Host::parse(hosts[random.below(7) as usize]).unwrap_or(Host::All(Vec::new())),
            tree: if random.percent(20) { "N" } else { "T" }.to_owned(),
            own_tree: false,
            force: force.clone().filter(|_| index == 0),
            prefer: if random.percent(20) { vec!["r".to_owned()] } else { Vec::new() },
            guests: Vec::new(),
        };
        let recipes = (0..seats).map(|i| recipe(i, &mut self.random)).collect();
        let run = [Some(10), Some(30), Some(80), None][self.random.below(4) as usize];
        Event::Submit(Box::new(SetSpec {
            name,
            owner: if self.random.percent(80) { "u" } else { "v" }.to_owned(),
            class,
            run,
            reserve: if self.random.percent(10) { 20 } else { 0 },
            retry: None,
            penalty: 0,
            early_release: self.random.percent(10),
            strict_watchdog: self.random.percent(10),
            labs: if self.random.percent(10) { vec!["L2".to_owned()] } else { Vec::new() },
            recipes,
        }))
    }

    /// No more faults, everything repaired: every set comes to its end.
    fn drain(&mut self) -> Result<(), String> {
        self.faults = Faults::none();
        let mut now = self.logged.desk.now();
        for lab in ["L1", "L2"] {
            self.step(now, Event::LabEnabled { lab: lab.to_owned(), enabled: true })?;
            self.step(now, Event::Tree { lab: lab.to_owned(), tree: "N".to_owned(), present: true })?;
        }
        for system in self.names.clone() {
            self.step(now, Event::Loan { system: system.clone(), to: None })?;
            self.step(now, Event::Access { system: system.clone(), users: None })?;
            self.step(now, Event::Condition { system, condition: Condition::Automated })?;
        }
        let waiting = self.logged.desk.sets().filter(|s| !s.is_final()).count() as u64;
        // L2, generously: each set that is ahead takes at most the longest run, its extensions and the release.
        let bound = now + 1_000 + (waiting + 2) * (300 * 3 + 100);
        while self.logged.desk.sets().any(|s| !s.is_final()) {
            now += 30;
            if now > bound {
                return Err("L1: a set does not come to its end".to_owned());
            }
            self.until(now)?;
            self.step(now, Event::Sweep)?;
        }
        self.outcome.ended = now;
        let wrong = check::check_rows(&self.logged.desk);
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}
