//! A world in virtual time that misbehaves: the pool's own core, the agents' own pure half, the machines' own policies, and between
//! them clocks that run wrong and are set, lines that are slow and are cut, processes that die, a disk that refuses. After every step
//! the invariants of `truth` must hold, by true time; at the end all faults stop, and everything must come to an end.
//!
//! The same seed gives the same world.
//!
//! - `faults`: how bad it is, and what came of it; `clocks`: what a host takes for the time; `truth`: what is really the case, and what must hold of it
//! - `manager`: the core, its journal and sessions; `host`: an agent, its disk and starters; `starter`: one of these
//!
//! Lines are those of the pool: within a session words come in order, late, some of them twice, and a cut takes a tail of both
//! directions with it. What a machine had said before the cut may still arrive after it has connected anew.

mod clocks;
mod faults;
mod host;
mod manager;
mod starter;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use model::agent::{Down, Up};
use model::event::Exit;
use model::report::Attempt;
use model::starter::{Report, Word};
use model::{JobName, JobTemplate};
use scheduler::{Act, Actor, Group, Limits, Quota, Session, Settings, Shares, Submission, Which};

pub use self::faults::{Faults, Outcome};

use self::clocks::{Clocks, True};
use self::host::Host;
use self::manager::Manager;
use self::starter::Nature;
use self::truth::{Check, LICENCES, Truth};
use crate::random::Random;

/// How often machines say that they live.
const BEAT_MS: u64 = 5_000;
/// Jobs that wait or run at once.
const OPEN_MAX: usize = 40;
/// Everything must be over so much later than the last fault.
const DRAIN_MS: u64 = 3 * 3_600_000;
/// What is still held so much after the last fault is removed.
const LET_GO_MS: u64 = 1_200_000;

/// Something that happens.
#[derive(Debug)]
enum Step {
    ManagerTick,
    ManagerStarts,
    DiskMends,
    Up {
        session: Session,
        up: Box<Up>,
    },
    Down {
        host: usize,
        session: Session,
        down: Box<Down>,
        wall_ms: Option<u64>,
    },
    /// The manager notices the end of a session.
    Closed(Session),
    /// An agent does.
    Lost {
        host: usize,
        session: Session,
    },
    AgentStarts {
        host: usize,
    },
    Connect {
        host: usize,
        life: u64,
    },
    Beat {
        host: usize,
        life: u64,
    },
    Look {
        host: usize,
        life: u64,
    },
    AskStarters {
        host: usize,
        life: u64,
    },
    Starter {
        host: usize,
        claim: u64,
    },
    Word {
        host: usize,
        life: u64,
        claim: u64,
        word: Box<Word>,
    },
    Gone {
        host: usize,
        life: u64,
        claim: u64,
    },
    Released {
        host: usize,
        life: u64,
        claim: u64,
        left: Vec<Report>,
        why: String,
    },
    Fault,
    Work,
}

/// How the jobs of this world behave.
#[derive(Debug)]
struct Jobs {
    random: Random,
}

impl Nature for Jobs {
    fn run(&mut self, _: Attempt) -> (u64, Exit, u64) {
        let long = if self.random.percent(15) { 90_000 } else { 3_000 };
        let exit = Exit { code: Some(u32::from(self.random.percent(10))), ..Exit::default() };
        (1 + self.random.below(long), exit, self.random.below(15_000))
    }
}

/// What everybody in the world has in common.
struct Context {
    at: True,
    queue: BTreeMap<(True, u64), Step>,
    number: u64,
    random: Random,
    faults: Faults,
    /// No more faults, and nothing new.
    calm: bool,
    /// The power fails when this step is over.
    power_fails: bool,
    truth: Truth,
    nature: Jobs,
    outcome: Outcome,
    /// When the last word of a line or of a host's starters comes: they do not overtake each other.
    last_up: BTreeMap<Session, True>,
    last_down: BTreeMap<Session, True>,
    last_word: BTreeMap<usize, True>,
    /// Who wants to know of everything that happens.
    trace: Option<Listener>,
    /// Sessions whose line is cut: nothing more comes down it.
    cut: BTreeSet<Session>,
}

impl Context {
    fn push(&mut self, wait: u64, step: Step) {
        self.push_at(self.at + wait.max(1), step);
    }

    fn push_at(&mut self, at: True, step: Step) {
        self.number += 1;
        self.queue.insert((at.max(self.at + 1), self.number), step);
    }

    /// A word of a starter, after those before it.
    fn push_in_order(&mut self, host: usize, step: Step) {
        let soon = self.at + 1 + self.random.below(30);
        let at = self.last_word.get(&host).map_or(soon, |last| soon.max(*last));
        self.last_word.insert(host, at);
        self.push_at(at, step);
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace(&format!("{}: {}", self.at, what()));
        }
    }

    fn has_fault(&mut self, percent: u64) -> bool {
        !self.calm && self.random.percent(percent)
    }

    fn delay(&mut self) -> u64 {
        let most = if self.calm { 20 } else { self.faults.delay_ms };
        // Mostly quick.
        if self.random.percent(90) {
            1 + self.random.below(most.min(20))
        } else {
            1 + self.random.below(most)
        }
    }

    fn send_up(&mut self, _host: usize, session: Session, up: Up) {
        if self.cut.contains(&session) {
            return;
        }
        let at = (self.at + self.delay()).max(self.last_up.get(&session).copied().unwrap_or(0));
        self.last_up.insert(session, at);
        let twice = Host::may_double(&up) && self.has_fault(self.faults.twice);
        if twice {
            self.push_at(at, Step::Up { session, up: Box::new(up.clone()) });
        }
        self.push_at(at, Step::Up { session, up: Box::new(up) });
    }

    fn send_down(&mut self, host: usize, session: Session, down: Down, wall_ms: Option<u64>) {
        if self.cut.contains(&session) {
            return;
        }
        let at = (self.at + self.delay()).max(self.last_down.get(&session).copied().unwrap_or(0));
        self.last_down.insert(session, at);
        if self.has_fault(self.faults.twice) {
            self.push_at(at, Step::Down { host, session, down: Box::new(down.clone()), wall_ms });
        }
        self.push_at(at, Step::Down { host, session, down: Box::new(down), wall_ms });
    }

    /// A line is cut: what is on its way down is lost, what is on its way up may be; each end notices when it does.
    fn cut(&mut self, host: usize, session: Session) {
        self.cut.insert(session);
        let lost_up = self.random.percent(50);
        self.queue.retain(|_, step| match step {
            Step::Down { session: of, .. } => *of != session,
            Step::Up { session: of, .. } => !lost_up || *of != session,
            _ => true,
        });
        let (manager, agent) = (self.random.below(20_000), self.random.below(20_000));
        self.push(manager, Step::Closed(session));
        self.push(agent, Step::Lost { host, session });
    }

    /// One end is gone: the other notices.
    fn lose_link(&mut self, host: usize, session: Session) {
        self.cut(host, session);
    }

    fn close(&mut self, session: Session) {
        self.cut.insert(session);
        self.push(1, Step::Closed(session));
    }
}

struct World {
    context: Context,
    hosts: Vec<Host>,
    manager: Manager,
    /// What each wall clock shows more than it should; the manager's is the last.
    skews: Vec<i64>,
}

/// Runs a world of about so many steps, and then until everything is over. The error says what was wrong, where.
pub fn storm(seed: u64, events: u64, faults: &Faults) -> Result<Outcome, String> {
    play(seed, events, faults, None)
}

/// The same, and somebody hears of everything that happens.
pub fn trace(seed: u64, events: u64, faults: &Faults, listener: Listener) -> Result<Outcome, String> {
    play(seed, events, faults, Some(listener))
}

/// Hears of everything that happens, a line at a time.
pub type Listener = Box<dyn FnMut(&str)>;

fn play(seed: u64, events: u64, faults: &Faults, trace: Option<Listener>) -> Result<Outcome, String> {
    let mut world = World::new(seed, faults.clone());
    world.context.trace = trace;
    let result = world.live(events).and_then(|()| world.drain());
    let outcome = &mut world.context.outcome;
    (outcome.starts, outcome.requeued) = (world.context.truth.starts, world.context.truth.requeued);
    outcome.ended_ms = world.context.at;
    match result {
        Ok(()) => Ok(world.context.outcome),
        Err(what) => {
            let hosts: Vec<String> = world.hosts.iter().map(Host::describe).collect();
            let totals = world.manager.core.as_ref().map(scheduler::Core::totals);
            let (at, outcome) = (world.context.at, &world.context.outcome);
            Err(format!("seed {seed}, {at} ms: {what}\n{outcome:?}\n{totals:?}\n{}", hosts.join("\n")))
        }
    }
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(4) as usize;
        let mut skews = Vec::new();
        let mut clocks = |random: &mut Random, n: usize| {
            let (drift, skew) = (faults.drift_ppm, faults.skew_ms);
            let drift_ppm = random.below(2 * drift + 1) as i64 - drift as i64;
            let skew = random.below(2 * skew + 1) as i64 - skew as i64;
            skews.push(skew);
            Clocks::new(1_000 * (n as u64 + 1), drift_ppm, skew)
        };
        let hosts: Vec<Host> = (0..count)
            .map(|n| {
                let (cpus, is_desk) = (1 + random.below(4) as u32, n > 0 && random.percent(50));
                Host::new(n, cpus, is_desk, clocks(&mut random, n))
            })
            .collect();
        let lab = Group { name: "lab".into(), quota: Quota::Part(0.5), surplus: true, users: None };
        let settings = Settings {
            lease_ms: [20_000, 60_000, 300_000][random.below(3) as usize],
            limits: Limits { named: [("licence".to_owned(), LICENCES as f64)].into(), default: 3.0 },
            shares: Shares { groups: vec![lab], ..Shares::default() },
            claim_worklife_ms: [0, 2_000, 60_000][random.below(3) as usize],
            sweep_ms: 5_000,
            grace_ms: 3_600_000,
            ..Settings::default()
        };
        let manager = Manager::new(settings, clocks(&mut random, count));
        let truth = Truth::new(hosts.iter().map(|h| h.cpus).collect());
        let nature = Jobs { random: Random::new(seed ^ 0x5eed) };
        let mut context = Context {
            at: 0,
            queue: BTreeMap::new(),
            number: 0,
            random,
            calm: false,
            power_fails: false,
            truth,
            nature,
            outcome: Outcome::default(),
            last_up: BTreeMap::new(),
            last_down: BTreeMap::new(),
            last_word: BTreeMap::new(),
            trace: None,
            cut: BTreeSet::new(),
            faults,
        };
        context.push(1, Step::ManagerTick);
        context.push(1, Step::Work);
        for host in 0..count {
            let wait = context.random.below(5_000);
            context.push(wait, Step::AgentStarts { host });
        }
        if context.faults.every_ms > 0 {
            context.push(5_000, Step::Fault);
        }
        Self { context, hosts, manager, skews }
    }

    fn step(&mut self) -> Check {
        let Some(((at, _), step)) = self.context.queue.pop_first() else {
            return Err("nothing happens any more".into());
        };
        self.context.at = at;
        self.context.outcome.events += 1;
        self.context.note(|| format!("{step:?}"));
        let (context, hosts) = (&mut self.context, &mut self.hosts);
        match step {
            Step::ManagerTick => self.manager.tick(context),
            Step::ManagerStarts if self.manager.core.is_none() => self.manager.start(context),
            Step::DiskMends => self.manager.mend_disk(context),
            Step::Up { session, up } => self.manager.hear(context, session, *up),
            Step::Down { host, session, down, wall_ms } => {
                hosts[host].hear_manager(context, session, *down, wall_ms)
            }
            Step::Closed(session) => {
                self.manager.close(session);
                Ok(())
            }
            Step::Lost { host, session } => {
                hosts[host].lose_link(context, session);
                Ok(())
            }
            Step::AgentStarts { host } => hosts[host].start_agent(context),
            Step::Connect { host, life } if hosts[host].wants_link(life) => {
                let session = self.manager.open(host);
                hosts[host].connect(context, life, session)
            }
            Step::Connect { .. } | Step::ManagerStarts => Ok(()),
            Step::Beat { host, life } => hosts[host].beat(context, life),
            Step::Look { host, life } => hosts[host].look(context, life),
            Step::AskStarters { host, life } => hosts[host].ask_starters(context, life),
            Step::Starter { host, claim } => hosts[host].call_starter(context, claim),
            Step::Word { host, life, claim, word } => hosts[host].hear_starter(context, life, claim, *word),
            Step::Gone { host, life, claim } => hosts[host].notice_gone(context, life, claim),
            Step::Released { host, life, claim, left, why } => {
                hosts[host].released(context, life, claim, left, &why)
            }
            Step::Fault => self.fault(),
            Step::Work => self.work(),
        }
    }

    fn live(&mut self, events: u64) -> Check {
        while self.context.outcome.events < events {
            self.step()?;
            if std::mem::take(&mut self.context.power_fails) {
                self.cut_power();
            }
        }
        // Whoever was to fail in the next batch does so no more.
        self.manager.fails_in_batch = false;
        Ok(())
    }

    /// The power fails: nobody has the time to say or write anything. It comes back to each host at another moment.
    fn cut_power(&mut self) {
        let context = &mut self.context;
        context.outcome.power_cuts += 1;
        context.note(|| "the power fails".to_owned());
        self.manager.lose_power(context);
        let wait = context.random.below(120_000);
        context.push(wait, Step::ManagerStarts);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.lose_power(context);
            let wait = 5_000 + context.random.below(400_000);
            context.push(wait, Step::AgentStarts { host: number });
        }
    }

    /// Faults stop; whatever is held is let go, and in the end removed.
    fn drain(&mut self) -> Check {
        self.context.calm = true;
        self.manager.mend_disk(&mut self.context)?;
        self.context.push(1, Step::ManagerStarts);
        for host in 0..self.hosts.len() {
            self.context.push(2, Step::AgentStarts { host });
        }
        let from = self.context.at;
        let mut next = from;
        while self.context.truth.open() > 0
            || self.manager.core.as_ref().is_none_or(|core| core.totals().claims > 0)
        {
            if self.context.at > from + DRAIN_MS {
                self.context.truth.everything_came_to_an_end()?;
                return Err("claims without jobs never end".to_owned());
            }
            if self.context.at >= next {
                next = self.context.at + 300_000;
                let act = if self.context.at < from + LET_GO_MS { Act::Release } else { Act::Remove };
                let admin = Actor { user: "admin".into(), any_owner: true };
                self.manager.decide(&mut self.context, |core, turn| {
                    let _ = core.act(turn, &admin, act, &Which::All, "the end");
                })?;
            }
            self.step()?;
        }
        // What is acknowledged takes a moment to be forgotten.
        let until = self.context.at + 120_000;
        while self.context.at < until {
            self.step()?;
        }
        self.context.truth.everything_came_to_an_end()?;
        self.hosts.iter().try_for_each(Host::holds_nothing)
    }

    /// People submit, and change their minds.
    fn work(&mut self) -> Check {
        if self.context.calm {
            return Ok(());
        }
        let wait = 100 + self.context.random.below(2_500);
        self.context.push(wait, Step::Work);
        let random = &mut self.context.random;
        if random.percent(25) {
            return self.change_minds();
        }
        if self.context.truth.open() > OPEN_MAX {
            return Ok(());
        }
        let random = &mut self.context.random;
        let gang = random.percent(25);
        let procs = if gang { 2 + random.below(3) } else { 1 + random.below(8) } as u32;
        let mut template = JobTemplate::of(procs);
        template.set("Cmd", "\"/bin/true\"");
        template.set("RequestCpus", if random.percent(80) { "1" } else { "2" });
        template.set("Requirements", "TARGET.Memory > 10");
        if gang {
            template.set("Gang", "true");
        }
        if random.percent(20) {
            template.set("ConcurrencyLimits", "\"licence\"");
        }
        if random.percent(30) {
            template.set("AllowedExecuteDuration", (1 + random.below(90)).to_string());
        }
        if random.percent(20) {
            template.set("AccountingGroup", "\"lab.u1\"");
        }
        if random.percent(10) {
            template.set("OnExitRemove", "ExitCode =?= 0 || NumJobCompletions > 2");
        }
        let owner = format!("u{}", random.below(3));
        let submission = Submission { owner, template, idempotency_key: String::new() };
        let mut accepted = None;
        let committed = self.manager.decide(&mut self.context, |core, turn| {
            accepted = core.submit(turn, submission).ok();
        })?;
        if let Some(cluster) = accepted.filter(|_| committed) {
            self.context.outcome.jobs += u64::from(procs);
            self.context.truth.acknowledge(cluster);
        }
        Ok(())
    }

    fn change_minds(&mut self) -> Check {
        let random = &mut self.context.random;
        let act = [Act::Hold, Act::Release, Act::Release, Act::Remove, Act::Vacate][random.below(5) as usize];
        let Some(core) = &self.manager.core else { return Ok(()) };
        let open: Vec<u32> = core.clusters().map(|c| c.cluster).collect();
        let Some(&cluster) = open.get(random.below(open.len() as u64) as usize) else { return Ok(()) };
        let admin = Actor { user: "admin".into(), any_owner: true };
        let which = Which::Named(JobName::Cluster(cluster));
        self.manager.decide(&mut self.context, |core, turn| {
            // A refusal changes nothing.
            let _ = core.act(turn, &admin, act, &which, "because");
        })?;
        Ok(())
    }

    /// Something goes wrong.
    fn fault(&mut self) -> Check {
        if self.context.calm {
            return Ok(());
        }
        let wait = self.context.random.below(2 * self.context.faults.every_ms) + 1;
        self.context.push(wait, Step::Fault);
        let context = &mut self.context;
        if context.faults.power > 0 && context.random.percent(context.faults.power) {
            // Half of them while a batch is written.
            self.manager.fails_in_batch = context.random.percent(50);
            context.power_fails = !self.manager.fails_in_batch;
            return Ok(());
        }
        let host = context.random.below(self.hosts.len() as u64) as usize;
        match context.random.below(16) {
            0 => {
                context.outcome.kills[0] += 1;
                self.manager.kill(context);
                let wait = context.random.below(30_000);
                context.push(wait, Step::ManagerStarts);
                Ok(())
            }
            1 | 2 => {
                context.outcome.kills[1] += 1;
                self.hosts[host].kill_agent(context);
                let wait = context.random.below(40_000);
                context.push(wait, Step::AgentStarts { host });
                Ok(())
            }
            3 | 4 => {
                context.outcome.kills[2] += 1;
                let nth = context.random.next_number();
                self.hosts[host].kill_starter(context, nth)
            }
            5 => {
                context.outcome.kills[3] += 1;
                self.hosts[host].reboot(context);
                let wait = 5_000 + context.random.below(400_000);
                context.push(wait, Step::AgentStarts { host });
                Ok(())
            }
            6..=8 => {
                if let Some(session) = self.hosts[host].session() {
                    context.outcome.cuts += 1;
                    context.cut(host, session);
                }
                Ok(())
            }
            9 | 10 => self.hosts[host].touch(context),
            11 | 12 => {
                context.outcome.steps += 1;
                let most = 2 * context.faults.skew_ms + 1;
                let wall_ms = context.random.below(most) as i64 - context.faults.skew_ms as i64;
                let who = context.random.below(self.skews.len() as u64) as usize;
                let before_ms = std::mem::replace(&mut self.skews[who], wall_ms);
                match self.hosts.get_mut(who) {
                    Some(host) => host.clocks.set(wall_ms),
                    None => return self.manager.set_clock(context, before_ms, wall_ms),
                }
                Ok(())
            }
            13 => {
                self.manager.refuses = true;
                let wait = context.random.below(30_000);
                context.push(wait, Step::DiskMends);
                Ok(())
            }
            _ => {
                self.manager.save();
                Ok(())
            }
        }
    }
}
