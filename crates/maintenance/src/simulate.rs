//! The core in virtual time against simulated agents: transfers that take time, messages that get lost, agents that
//! appear, vanish, restart and refuse, clocks that jump, a core that is restarted.
//!
//! Deterministic: the same scenario gives the same report. Used by the tests and by `updraft maintenance simulate`.
//! What the agents do here is the contract that real ones must keep.

mod world;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use classad::ClassAd;
use model::Now;

use self::world::World;
use crate::calendar::{self, Override, Window};
use crate::core::{Begun, Command, Core, Input, Outcome, Output};
use crate::estimate;
use crate::machine::Slot;
use crate::record::Record;
use crate::settings::Settings;

/// A job of the simulation.
#[derive(Debug, Clone, Default)]
pub struct SimJob {
    /// Its name.
    pub id: String,
    /// Size of its checkpoint.
    pub image_kb: i64,
    /// It can checkpoint.
    pub checkpointable: bool,
    /// How long it writes what it saves before anything can be sent.
    pub saving_ms: u64,
    /// Its ad says so.
    pub tells_saving: bool,
    /// Its gang.
    pub gang: Option<String>,
    /// It is on its way out at the beginning, and has so many milliseconds to go, if anybody knows.
    pub leaving: Option<Option<u64>>,
}

/// A machine of the simulation.
#[derive(Debug, Clone, Default)]
pub struct SimMachine {
    /// Its name.
    pub name: String,
    /// Attributes of its ads, as expressions.
    pub attributes: Vec<(String, String)>,
    /// The jobs, one per slot; `None` is an idle slot.
    pub slots: Vec<Option<SimJob>>,
    /// The ads that the slots have without what changes in the simulation, with their names; none: made up from `attributes`.
    pub ads: Vec<ClassAd>,
    /// The override that it has at the beginning.
    pub end_down_time: Option<i64>,
    /// When it appears, in milliseconds from the beginning.
    pub appears_ms: u64,
    /// When it is gone for good.
    pub vanishes_ms: Option<u64>,
    /// It says no to every configuration.
    pub refuses: bool,
    /// It does not answer between these two moments.
    pub unreachable_ms: Option<(u64, u64)>,
    /// It restarts then: overrides that are not persistent are lost, jobs go on.
    pub restarts_ms: Vec<u64>,
    /// A slot whose job left takes another one like it five seconds later, if its START allows.
    pub respawns: bool,
}

/// What the ads of a pool's slots amount to: its machines with the jobs of now, which others like them follow.
pub fn machines_of(ads: &[ClassAd], now: i64) -> Vec<SimMachine> {
    let mut machines: Vec<SimMachine> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for ad in ads {
        let Some(slot) = Slot::read(ad, now) else { continue };
        let at = *known.entry(slot.machine.clone()).or_insert_with(|| {
            let name = slot.machine.clone();
            machines.push(SimMachine { name, respawns: true, ..SimMachine::default() });
            machines.len() - 1
        });
        let machine = &mut machines[at];
        machine.end_down_time = machine.end_down_time.max(slot.end_down_time);
        machine.slots.push(slot.job.map(|job| SimJob {
            image_kb: job.image_kb.unwrap_or(0),
            checkpointable: job.checkpointable,
            saving_ms: estimate::saving_ms(&job),
            tells_saving: job.saving_ms.is_some(),
            leaving: job.preempting.then(|| job.remaining_s.map(|s| s.max(0) as u64 * 1_000)),
            id: job.id,
            gang: job.gang,
        }));
        let mut base = ad.clone();
        for name in world::CHANGING {
            base.remove(name);
        }
        base.insert_str("Name", &slot.name);
        base.insert_str("Machine", &slot.machine);
        machine.ads.push(base);
    }
    machines
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Settings of the core.
    pub settings: Settings,
    /// What operators have changed before.
    pub overrides: Vec<Override>,
    /// Windows that are under way at the beginning.
    pub begun: Vec<Begun>,
    /// The agents.
    pub machines: Vec<SimMachine>,
    /// The wall clock at the beginning.
    pub begin_wall_ms: u64,
    /// How long it runs.
    pub length_ms: u64,
    /// From sending to arrival of every message.
    pub latency_ms: u64,
    /// How many of a thousand messages are lost.
    pub loss_permille: u32,
    /// Decides which.
    pub seed: u64,
    /// The core is restarted after these inputs, counted from 1.
    pub restarts_after: BTreeSet<u64>,
    /// The wall clock jumps by so many milliseconds at these moments.
    pub jumps: Vec<(u64, i64)>,
    /// Operators' wishes.
    pub wishes: Vec<(u64, Command)>,
    /// Ads of leaving slots say how long their checkpoint still takes.
    pub tells_remaining: bool,
}

impl Scenario {
    /// A quiet one: no delay, no faults.
    pub fn new(settings: Settings, machines: Vec<SimMachine>, begin_wall_s: i64, length_s: i64) -> Self {
        Self {
            settings,
            overrides: Vec::new(),
            begun: Vec::new(),
            machines,
            begin_wall_ms: begin_wall_s.max(0) as u64 * 1_000,
            length_ms: length_s.max(0) as u64 * 1_000,
            latency_ms: 0,
            loss_permille: 0,
            seed: 1,
            restarts_after: BTreeSet::new(),
            jumps: Vec::new(),
            wishes: Vec::new(),
            tells_remaining: true,
        }
    }
}

impl Scenario {
    /// The ads that the agents have at the beginning.
    pub fn ads(&self) -> Vec<ClassAd> {
        World::new(self).ads(0, self.tells_remaining)
    }
}

/// One window that began during the simulation.
#[derive(Debug, Clone)]
pub struct Began {
    /// The event.
    pub event: String,
    /// The window.
    pub window: Window,
    /// Slots of matching machines that still ran a job at its start.
    pub still_running: Vec<String>,
}

/// One checkpoint on its way.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The slot.
    pub slot: String,
    /// Value of the domain attribute.
    pub domain: String,
    /// The command that caused it; members of a gang share one.
    pub command: u64,
    /// When it began and ended, milliseconds from the beginning.
    pub from_ms: u64,
    /// See `from_ms`.
    pub to_ms: u64,
    /// Its rate.
    pub bytes_per_second: f64,
}

/// What came of it. Moments are seconds of the wall clock.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Windows that began.
    pub began: Vec<Began>,
    /// Vacates in the order in which agents obeyed them.
    pub vacated: Vec<(i64, String)>,
    /// Slots whose jobs have left, in order: milliseconds of the wall clock.
    pub left: Vec<(u64, String)>,
    /// Overrides in the order in which agents took them: machine and end.
    pub configured: Vec<(i64, String, i64)>,
    /// Overrides removed.
    pub unconfigured: Vec<(i64, String)>,
    /// Warnings: slot and seconds left.
    pub warned: Vec<(i64, String, i64)>,
    /// Questions asked.
    pub queries: Vec<i64>,
    /// Everything for the log.
    pub log: Vec<(i64, Record)>,
    /// Checkpoints sent.
    pub transfers: Vec<Transfer>,
    /// Vacates on machines of an event that could still start jobs; none is right.
    pub vacated_unconfigured: Vec<String>,
    /// Jobs that began: moment and slot.
    pub respawned: Vec<(i64, String)>,
    /// Inputs the core was given.
    pub steps: u64,
    /// Operator changes the core ended with.
    pub overrides: Vec<Override>,
}

impl Report {
    /// True if every window that began found its machines empty.
    pub fn all_empty(&self) -> bool {
        self.began.iter().all(|b| b.still_running.is_empty())
    }

    /// Highest rate over any whole second, for each domain, in bytes per second.
    pub fn peak_bytes_per_second(&self) -> BTreeMap<String, f64> {
        let mut peaks = BTreeMap::new();
        for transfer in &self.transfers {
            // The sum over a sliding second has its maxima where a transfer begins or ends.
            for from in [transfer.from_ms, transfer.to_ms.saturating_sub(1_000)] {
                let in_second = |t: &Transfer| {
                    let overlap = t.to_ms.min(from + 1_000).saturating_sub(t.from_ms.max(from));
                    t.bytes_per_second * overlap as f64 / 1_000.0
                };
                let same = self.transfers.iter().filter(|t| t.domain == transfer.domain);
                let sum: f64 = same.map(in_second).sum();
                let peak = peaks.entry(transfer.domain.clone()).or_insert(0.0_f64);
                *peak = peak.max(sum);
            }
        }
        peaks
    }

    /// Most costly vacates under way at one moment, for each domain; a gang counts once.
    pub fn most_in_flight(&self) -> BTreeMap<String, usize> {
        let mut most = BTreeMap::new();
        for transfer in &self.transfers {
            let at = transfer.from_ms;
            let same = self.transfers.iter().filter(|t| t.domain == transfer.domain);
            let under_way: BTreeSet<u64> =
                same.filter(|t| t.from_ms <= at && at < t.to_ms).map(|t| t.command).collect();
            let count = most.entry(transfer.domain.clone()).or_insert(0);
            *count = under_way.len().max(*count);
        }
        most
    }

    /// When an event was activated.
    pub fn activations(&self, event: &str) -> Vec<i64> {
        let mine = |record: &Record| matches!(record, Record::Activated { event: e, .. } if e == event);
        self.log.iter().filter(|(_, record)| mine(record)).map(|(at, _)| *at).collect()
    }

    /// A summary for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for began in &self.began {
            let state = if began.still_running.is_empty() {
                "all machines empty at the start".to_owned()
            } else {
                format!("{} slots still busy: {}", began.still_running.len(), began.still_running.join(" "))
            };
            text.push_str(&format!("{}: {state}\n", began.event));
        }
        for (domain, peak) in self.peak_bytes_per_second() {
            let megabits = peak / crate::event::BYTES_PER_MEGABIT;
            let name = if domain.is_empty() { "(one domain)" } else { &domain };
            text.push_str(&format!("peak over any second, {name}: {megabits:.3} Mb/s\n"));
        }
        let names: Vec<&str> = self.vacated.iter().map(|(_, slot)| slot.as_str()).collect();
        text.push_str(&format!("vacated in this order: {}\n", names.join(" ")));
        text
    }
}

/// Something under way.
enum Item {
    ToCore(Input),
    ToAgents(Output),
    Gone { machine: usize, slot: usize, job: u64 },
    Respawn { machine: usize, slot: usize },
    Jump(i64),
    Restart(usize),
}

struct Simulation {
    scenario: Scenario,
    core: Core,
    world: World,
    items: BTreeMap<u64, Item>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    next_item: u64,
    mono: u64,
    wall_offset: i64,
    random: u64,
    report: Report,
    upcoming: Vec<(usize, Window)>,
}

/// More inputs than any sensible scenario needs; a core that spins must not hang the caller.
const STEPS: u64 = 2_000_000;

/// Runs a scenario to its end.
pub fn simulate(scenario: Scenario) -> Report {
    let now = Now { mono_ms: 0, wall_ms: scenario.begin_wall_ms };
    let mut simulation = Simulation {
        core: Core::new(now, scenario.settings.clone(), scenario.overrides.clone()),
        world: World::new(&scenario),
        items: BTreeMap::new(),
        queue: BinaryHeap::new(),
        next_item: 0,
        mono: 0,
        wall_offset: scenario.begin_wall_ms as i64,
        random: scenario.seed,
        report: Report::default(),
        upcoming: Vec::new(),
        scenario,
    };
    simulation.core.take_up(now, simulation.scenario.begun.clone());
    simulation.run();
    simulation.report
}

impl Simulation {
    fn now(&self) -> Now {
        let wall = (self.mono as i64).saturating_add(self.wall_offset).max(0);
        Now { mono_ms: self.mono, wall_ms: wall as u64 }
    }

    fn wall_s(&self) -> i64 {
        (self.now().wall_ms / 1_000) as i64
    }

    fn push(&mut self, at: u64, item: Item) {
        self.next_item += 1;
        self.items.insert(self.next_item, item);
        self.queue.push(Reverse((at, self.next_item)));
    }

    fn lost(&mut self) -> bool {
        let (next, drawn) = config::settings::draw(self.random);
        self.random = next;
        drawn % 1_000 < u64::from(self.scenario.loss_permille)
    }

    fn expect_windows(&mut self) {
        let now = self.wall_s();
        let events = self.core.settings().events.iter().enumerate();
        self.upcoming = events
            .filter_map(|(i, event)| {
                let zone = &self.core.settings().zone;
                let all = calendar::all(event, zone, self.core.overrides(), now);
                all.into_iter().find(|w| w.start > now).map(|w| (i, w))
            })
            .collect();
    }

    fn run(&mut self) {
        for (at, by) in self.scenario.jumps.clone() {
            self.push(at, Item::Jump(by));
        }
        for (at, wish) in self.scenario.wishes.clone() {
            self.push(at, Item::ToCore(Input::Operator(wish)));
        }
        for index in 0..self.scenario.machines.len() {
            for at in self.scenario.machines[index].restarts_ms.clone() {
                self.push(at, Item::Restart(index));
            }
        }
        for (machine, slot, at) in self.world.leaving() {
            self.push(at, Item::Gone { machine, slot, job: 0 });
        }
        self.push(0, Item::ToCore(Input::Tick));
        self.expect_windows();
        while self.report.steps < STEPS {
            let item_at = self.queue.peek().map(|Reverse((at, _))| *at);
            let wake_at = self.core.next_wake().map(|at| at.max(self.mono));
            let Some(next) = item_at.into_iter().chain(wake_at).min() else { break };
            if next > self.scenario.length_ms {
                break;
            }
            self.mono = next;
            self.note_starts();
            if item_at == Some(next) {
                let Some(Reverse((_, id))) = self.queue.pop() else { break };
                if let Some(item) = self.items.remove(&id) {
                    self.perform(item);
                }
            } else {
                self.step(Input::Tick);
            }
        }
        self.report.overrides = self.core.overrides().to_vec();
    }

    /// Nothing changes between two items, so the state now is the state at the start that just passed.
    fn note_starts(&mut self) {
        let now = self.wall_s();
        if self.upcoming.iter().all(|(_, w)| w.start > now) {
            return;
        }
        for (index, window) in std::mem::take(&mut self.upcoming) {
            if window.start <= now {
                let event = &self.core.settings().events[index];
                let still_running = self.world.running(event, self.mono, now);
                self.report.began.push(Began { event: event.name.clone(), window, still_running });
            }
        }
        self.expect_windows();
    }

    fn step(&mut self, input: Input) {
        self.report.steps += 1;
        let refresh = matches!(input, Input::Operator(_));
        let now = self.now();
        let outputs = self.core.handle(now, input);
        for output in outputs {
            self.send(output);
        }
        if refresh {
            self.expect_windows();
        }
        if self.scenario.restarts_after.contains(&self.report.steps) {
            let (overrides, begun) = (self.core.overrides().to_vec(), self.core.begun().to_vec());
            self.core = Core::new(self.now(), self.scenario.settings.clone(), overrides);
            self.core.take_up(self.now(), begun);
        }
    }

    fn send(&mut self, output: Output) {
        let at = self.wall_s();
        match output {
            Output::Log(record) => self.report.log.push((at, record)),
            Output::Warn { slot, remaining_s, .. } => self.report.warned.push((at, slot, remaining_s)),
            other => {
                if let Output::Query { .. } = &other {
                    self.report.queries.push(at);
                }
                if !self.lost() {
                    self.push(self.mono + self.scenario.latency_ms, Item::ToAgents(other));
                }
            }
        }
    }

    fn answer(&mut self, input: Input) {
        if !self.lost() {
            self.push(self.mono + self.scenario.latency_ms, Item::ToCore(input));
        }
    }

    fn perform(&mut self, item: Item) {
        match item {
            Item::ToCore(input) => self.step(input),
            Item::Jump(by) => {
                self.wall_offset += by;
                self.note_starts();
            }
            Item::Restart(machine) => self.world.restart(machine),
            Item::Gone { machine, slot, job } => {
                let Some(name) = self.world.leave(machine, slot, job) else { return };
                self.report.left.push((self.now().wall_ms, name));
                if self.scenario.machines[machine].respawns {
                    self.push(self.mono + 5_000, Item::Respawn { machine, slot });
                }
            }
            Item::Respawn { machine, slot } => {
                let now = self.wall_s();
                match self.world.respawn(machine, slot, now) {
                    Some(name) => self.report.respawned.push((now, name)),
                    None => self.push(self.mono + 5_000, Item::Respawn { machine, slot }),
                }
            }
            Item::ToAgents(output) => self.obey(output),
        }
    }

    fn obey(&mut self, output: Output) {
        let wall = self.wall_s();
        match output {
            Output::Query { query, .. } => {
                let answer = Ok(self.world.ads(self.mono, self.scenario.tells_remaining));
                self.answer(Input::Machines { query, answer });
            }
            Output::Configure { command, machine, persistent, end_down_time, .. } => {
                let outcome = self.world.configure(&machine, self.mono, Some((end_down_time, persistent)));
                if outcome == Outcome::Ok {
                    self.report.configured.push((wall, machine, end_down_time));
                }
                self.answer(Input::Done { command, outcome });
            }
            Output::Unconfigure { command, machine, .. } => {
                let outcome = self.world.configure(&machine, self.mono, None);
                if outcome == Outcome::Ok {
                    self.report.unconfigured.push((wall, machine));
                }
                self.answer(Input::Done { command, outcome });
            }
            Output::Vacate { command, slots, .. } => {
                let mut outcome = Outcome::Ok;
                for order in &slots {
                    match self.world.vacate(&order.slot, self.mono, wall, order.bytes_per_second) {
                        Err(failed) => outcome = failed,
                        Ok(None) => {}
                        Ok(Some(left)) => {
                            self.report.vacated.push((wall, order.slot.clone()));
                            let judged = self.core.settings();
                            if left.could_start && self.world.is_meant(judged, left.machine, wall) {
                                self.report.vacated_unconfigured.push(order.slot.clone());
                            }
                            let (machine, slot, job) = (left.machine, left.slot, left.job);
                            self.push(left.to_ms, Item::Gone { machine, slot, job });
                            if left.to_ms > left.from_ms {
                                self.report.transfers.push(Transfer {
                                    slot: order.slot.clone(),
                                    domain: left.domain,
                                    command,
                                    from_ms: left.from_ms,
                                    to_ms: left.carried_ms,
                                    bytes_per_second: left.bytes_per_second,
                                });
                            }
                        }
                    }
                }
                self.answer(Input::Done { command, outcome });
            }
            Output::Warn { .. } | Output::Log(_) => {}
        }
    }
}
