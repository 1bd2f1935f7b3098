//! A large pool for a virtual day, to see what it costs: users with kinds of jobs, gangs, machines whose owners come and go.
//!
//! The scheduler is the pool's own core, each machine's policy the agent's own; what lies between them is as quick as can be
//! (`drive`). The same size and seed give the same day.

mod work;

use classad::{Name, Value};
use config::{Loader, Nothing};
use model::event::Resources;
use policy::Policy;
use policy::slots::Layout;
use scheduler::{Core, Settings};
use serde::Serialize;

use self::work::Work;
use crate::desk::{Desk, Hours, Looks};
use crate::drive::{BEGIN_MS, Call, Drive};
use crate::random::Random;
use crate::spread::Spread;

/// Part of the cores' time that jobs ask for.
const LOAD: f64 = 0.85;
const HOUR_MS: u64 = 3_600_000;

/// A machine that its owner comes back to.
const DESK: &str = "START = KeyboardIdle > 900\nSUSPEND = KeyboardIdle < 60\nCONTINUE = KeyboardIdle > 300\n\
    PREEMPT = Activity == \"Suspended\" && CurrentTime - EnteredCurrentActivity > 600\n\
    KILL = CurrentTime - EnteredCurrentActivity > 60\nWANT_SUSPEND = True\nWANT_VACATE = True\nRANK = 0\nRunBenchmarks = False\n";

/// A machine that nobody sits at.
const RACK: &str = "START = True\nSUSPEND = False\nCONTINUE = True\nPREEMPT = False\nKILL = False\n\
    WANT_SUSPEND = False\nWANT_VACATE = True\nRANK = 0\nRunBenchmarks = False\n";

/// How large a day is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Machines.
    pub machines: u32,
    /// Jobs that are submitted.
    pub jobs: u64,
    /// How long the virtual day is.
    pub hours: u64,
    /// The same seed gives the same day.
    pub seed: u64,
    /// How often machines' policies are asked.
    pub looks: Looks,
}

/// How long calls of a kind took, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What they were about.
    pub what: String,
    /// How many.
    pub calls: u64,
    /// Half took no longer.
    pub p50_us: f64,
    /// One in a hundred took longer.
    pub p99_us: f64,
    /// The longest.
    pub worst_us: f64,
    /// All together, in seconds.
    pub total_s: f64,
}

impl Figure {
    fn of(what: &str, spread: &Spread) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            what: what.to_owned(),
            calls: spread.len(),
            p50_us: us(spread.percentile(50.0)),
            p99_us: us(spread.percentile(99.0)),
            worst_us: us(spread.largest()),
            total_s: spread.sum() / 1e9,
        }
    }
}

/// What came of a day.
#[derive(Debug, Clone, Serialize)]
pub struct Day {
    /// Machines.
    pub machines: u32,
    /// Their cores.
    pub cores: u64,
    /// Jobs that were submitted.
    pub jobs: u64,
    /// Clusters that they came in, and how many of these were gangs.
    pub clusters: u64,
    /// See `clusters`.
    pub gangs: u64,
    /// Attempts that began.
    pub starts: u64,
    /// Jobs that ended.
    pub ended: u64,
    /// Attempts that went back to the queue.
    pub requeued: u64,
    /// Gangs that began.
    pub gangs_begun: u64,
    /// Jobs that wait at the end.
    pub left_waiting: u64,
    /// Part of the cores' time that jobs had.
    pub utilisation: f64,
    /// Half of the plain jobs waited no longer, in seconds.
    pub wait_p50_s: f64,
    /// One in a hundred waited longer.
    pub wait_p99_s: f64,
    /// The same of gangs' jobs.
    pub gang_wait_p50_s: f64,
    /// See `gang_wait_p50_s`.
    pub gang_wait_p99_s: f64,
    /// Looks of machines' policies that no input asked for.
    pub looks: u64,
    /// What the consistency pass found.
    pub findings: u64,
    /// All calls to the core, then by what they were about.
    pub decisions: Vec<Figure>,
}

fn read_policy(text: &str, total: Resources) -> Policy {
    let config = Loader::new(&Nothing, "STARTD").text("fleet", text).load();
    let config = config.unwrap_or_else(|e| unreachable!("{e}"));
    let layout = Layout::partitionable(policy::slots::Resources {
        cpus: total.cpus.into(),
        memory_mib: total.memory_mib,
        disk_kib: total.disk_kib,
        ..Default::default()
    });
    Policy::of_machine(&config, &layout).unwrap_or_else(|e| unreachable!("{e}"))
}

/// What a machine is.
struct Model {
    total: Resources,
    is_desk: bool,
    fixed: Vec<(Name, Value)>,
}

fn model(random: &mut Random) -> Model {
    let is_desk = random.percent(25);
    let cpus = if is_desk { 2 } else { [1, 2, 4, 4, 8][random.below(5) as usize] };
    let total = Resources { cpus, memory_mib: 4_096 * u64::from(cpus), disk_kib: 1 << 26, gpus: 0 };
    let arch = if random.percent(90) { "X86_64" } else { "AARCH64" };
    let fixed = vec![
        (Name::new("Arch"), Value::from(arch)),
        (Name::new("OpSys"), Value::from("LINUX")),
        (Name::new("Generation"), Value::from(random.below(8) as i64)),
    ];
    Model { total, is_desk, fixed }
}

/// Somebody's working day: a few times at the desk.
fn hours(random: &mut Random, hours: u64) -> Hours {
    let (mut at, end) = (BEGIN_MS + random.below(6 * HOUR_MS), BEGIN_MS + hours * HOUR_MS);
    let mut turns = Vec::new();
    while at < end {
        let until = at + 300_000 + random.below(90 * 60_000);
        turns.push((at, until));
        let away = if random.percent(20) { 10 } else { 2 };
        at = until + 300_000 + random.below(away * HOUR_MS);
    }
    turns
}

/// Plays a day. `stopwatch` is a clock of the real world, in nanoseconds.
pub fn play(size: &Size, settings: Settings, stopwatch: fn() -> u64) -> Day {
    let mut random = Random::new(size.seed);
    let models: Vec<Model> = (0..size.machines).map(|_| model(&mut random)).collect();
    let cores: u64 = models.iter().map(|m| u64::from(m.total.cpus)).sum();
    let span_ms = size.hours * HOUR_MS;
    let work = Work::new(&mut random, size.jobs, span_ms, LOAD * cores as f64 * span_ms as f64);
    let clusters = work.clusters();
    let mut drive = Drive::new(Core::new(settings), work, BEGIN_MS, stopwatch);
    let policies = [RACK, DESK]
        .map(|text| read_policy(text, Resources { cpus: 8, memory_mib: 1, disk_kib: 1, gpus: 0 }));
    for (number, model) in models.into_iter().enumerate() {
        let name = format!("m{number:06}");
        let policy = &policies[usize::from(model.is_desk)];
        let turns = if model.is_desk { hours(&mut random, size.hours) } else { Hours::new() };
        let now_ms = drive.now.wall_ms;
        let desk = Desk::new(&name, policy, model.total, model.fixed, turns, now_ms, size.looks);
        let ad = desk.ad();
        drive.connect(&name, model.total, ad, Some(Box::new(desk)));
    }
    for number in 0..clusters {
        drive.call_back(BEGIN_MS + drive.story.submitted_after_ms(number), number);
    }
    while let Some(number) = drive.advance(BEGIN_MS + span_ms) {
        let submission = drive.story.submission(number);
        drive.story.begins(number);
        let refused = drive.submit(submission).is_err();
        drive.story.refused += u64::from(refused);
    }
    tell(size, cores, span_ms, &drive)
}

fn tell(size: &Size, cores: u64, span_ms: u64, drive: &Drive<Work>) -> Day {
    let work = &drive.story;
    let mut all = Spread::default();
    drive.times.values().for_each(|spread| all.add_all(spread));
    let mut decisions = vec![Figure::of("all", &all)];
    let kinds = [
        (Call::Submit, "submit"),
        (Call::Report, "report of a machine"),
        (Call::Machine, "machine comes or changes"),
        (Call::Tick, "tick"),
    ];
    for (call, what) in kinds {
        decisions.extend(drive.times.get(&call).map(|spread| Figure::of(what, spread)));
    }
    let seconds = |spread: &Spread, percent: f64| spread.percentile(percent) as f64 / 1e3;
    Day {
        machines: size.machines,
        cores,
        jobs: work.submitted,
        clusters: work.clusters(),
        gangs: work.gangs,
        starts: work.starts,
        ended: work.ended,
        requeued: work.requeued,
        gangs_begun: work.gangs_begun,
        left_waiting: drive.core.totals().idle,
        utilisation: work.busy_ms(drive.now.wall_ms) / (cores as f64 * span_ms as f64),
        wait_p50_s: seconds(&work.waits, 50.0),
        wait_p99_s: seconds(&work.waits, 99.0),
        gang_wait_p50_s: seconds(&work.gang_waits, 50.0),
        gang_wait_p99_s: seconds(&work.gang_waits, 99.0),
        looks: drive.looks,
        findings: drive.core.findings().total(),
        decisions,
    }
}
