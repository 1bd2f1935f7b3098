//! How fast the pool brain decides: `scheduler::Core` driven directly, without any IO.
//!
//! Every figure is of single calls, each timed by itself; nothing is averaged before it is sorted. Each size runs in a
//! process of its own, so that memory is the growth of a fresh process. Slots are machines with one core each: the
//! hardest way to have so many slots.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use model::agent::Report;
use model::event::{Exit, Resources};
use model::report::{Attempt, Exited, Happening, Started};
use model::{ClaimId, ClaimKey, JobTemplate, Now};
use planner::bits::Bits;
use planner::{Class, Decision, FOREVER, Planner, Rules, Seat, SetId, Standing, System, Want};
use scheduler::{AgentHello, Core, Effect, Out, Session, Settings, Submission, Turn};
use serde_json::{Value, json};

use super::classad::{Variety, machine};

/// The bars of the design, in microseconds at the 99th percentile.
const BAR_US: f64 = 1_000.0;
const AIM_US: f64 = 50.0;
/// Kinds of jobs, and users, at every size.
const AUTOCLUSTERS: u32 = 1_000;
const USERS: u32 = 200;
/// Time between submits whose evaluations count: at one moment the core would put most of them off (decision 054).
const APART_MS: u64 = 20;
/// How long jobs run, in virtual time.
const RUN_MS: u64 = 60_000;

/// Runs all sizes and returns a Markdown section.
pub(crate) fn run(quick: bool) -> Result<String, String> {
    let mut out = String::from(
        "## Scheduler\n\nOne thread, no IO, single calls timed one by one; a slot is a machine with one core, and about a \
         third of them suit none of the jobs; 1,000 autoclusters, 200 users; jobs are separate clusters unless said otherwise. Bars: a decision in < 1 ms p99, aim \
         < 50 us, judged by processor time because the machine is shared; times on the wall stand beside.\n",
    );
    // n, 10n, 100n; the last with ten procs to a cluster.
    let sizes: &[(u32, u32, u32)] = if quick {
        &[(100, 1_000, 1), (1_000, 10_000, 1), (10_000, 100_000, 1)]
    } else {
        &[(1_000, 10_000, 1), (10_000, 100_000, 1), (100_000, 1_000_000, 10)]
    };
    let mut found = Vec::new();
    for (slots, jobs, procs) in sizes {
        let figures = child(&["pool", &slots.to_string(), &jobs.to_string(), &procs.to_string()])?;
        let _ = writeln!(
            out,
            "\n### {slots} slots x {jobs} queued jobs{}\n\n| what | p50 us | p99 us | worst us | CPU p50 us | CPU p99 us | calls | bar |\n|---|---|---|---|---|---|---|---|",
            if *procs > 1 { format!(" (clusters of {procs})") } else { String::new() }
        );
        for (what, figure) in figures["calls"].as_object().into_iter().flatten() {
            let what = what.split_once(' ').map_or(what.as_str(), |(_, rest)| rest);
            let _ = writeln!(out, "{}", line(what, figure));
        }
        for (what, figure) in figures["facts"].as_object().into_iter().flatten() {
            let what = what.split_once(' ').map_or(what.as_str(), |(_, rest)| rest);
            let _ = writeln!(out, "\n{what}: {}", figure.as_str().unwrap_or_default());
        }
        found.push(figures);
    }
    growth(&mut out, &found);
    memory(&mut out, if quick { 20_000 } else { 100_000 })?;
    gangs(&mut out, quick);
    Ok(out)
}

fn line(what: &str, figure: &Value) -> String {
    let us = |name: &str| figure[name].as_f64().unwrap_or(0.0) / 1e3;
    let names = ["p50", "p99", "worst", "cpu_p50", "cpu_p99"];
    let cells: Vec<String> = names.iter().map(|name| format!("{:.1}", us(name))).collect();
    format!("| {what} | {} | {} | {} |", cells.join(" | "), figure["calls"], bar(us("cpu_p99")))
}

fn bar(p99_us: f64) -> &'static str {
    match p99_us {
        us if us < AIM_US => "aim met",
        us if us < BAR_US => "bar met",
        _ => "ABOVE THE BAR",
    }
}

/// How costs grow: 0 for not at all, 1 for in proportion.
fn growth(out: &mut String, found: &[Value]) {
    let _ = writeln!(
        out,
        "\n### Growth\n\nExponents from n to 10n and from 10n to 100n slots and jobs (0: no growth, 1: in proportion).\n\n\
         | what | CPU p50 | CPU p99 |\n|---|---|---|"
    );
    let names = found[0]["calls"].as_object().into_iter().flatten().map(|(name, _)| name);
    for name in names {
        let exponents = |which: &str| {
            let at = |i: usize| found.get(i).and_then(|f| f["calls"][name][which].as_f64());
            let pair = |i: usize| Some((at(i + 1)? / at(i)?.max(1.0)).log10());
            let texts: Vec<String> =
                (0..2).map(|i| pair(i).map_or_else(|| "-".into(), |e| format!("{e:.2}"))).collect();
            texts.join(", ")
        };
        let what = name.split_once(' ').map_or(name.as_str(), |(_, rest)| rest);
        let _ = writeln!(out, "| {what} | {} | {} |", exponents("cpu_p50"), exponents("cpu_p99"));
    }
}

fn memory(out: &mut String, jobs: u32) -> Result<(), String> {
    let found = child(&["memory", &jobs.to_string()])?;
    let bytes = |name: &str| found[name].as_f64().unwrap_or(0.0);
    let _ = writeln!(
        out,
        "\n### Memory\n\nGrowth of the resident set of a fresh process: {jobs} separate one-proc clusters of {} attributes as \
         `updraft submit` makes them, with arguments and a 36-character idempotency key of their own.\n\n\
         | what | bytes | bar |\n|---|---|---|\n| a separate queued job | {:.0} | {} |\n\
         | a proc of a cluster of 1,000,000 | {:.2} | <= 100, aim 16 |",
        found["attributes"],
        bytes("separate"),
        if bytes("separate") <= 300.0 {
            "aim of 300 met"
        } else if bytes("separate") <= 1_024.0 {
            "bar of 1,024 met"
        } else {
            "ABOVE THE BAR of 1,024"
        },
        bytes("array"),
    );
    Ok(())
}

/// Runs a part in a process of its own.
fn child(words: &[&str]) -> Result<Value, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new(exe)
        .args(["bench", "scheduler-part"])
        .args(words)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).map_err(|e| format!("part {words:?} said {text:?}: {e}"))
}

/// The part that a child process runs.
pub(crate) fn part(words: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|e| e.to_string());
    let value = match words {
        ["pool", slots, jobs, procs] => pool(number(slots)?, number(jobs)?, number(procs)?),
        ["memory", jobs] => resident_queue(number(jobs)?),
        _ => return Err("no such part".into()),
    };
    println!("{value}");
    Ok(())
}

/// Times of single calls.
#[derive(Default)]
struct Times {
    wall: Vec<u64>,
    cpu: Vec<u64>,
}

impl Times {
    fn add<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let cpu = processor();
        let start = Instant::now();
        let value = body();
        self.wall.push(start.elapsed().as_nanos() as u64);
        self.cpu.push(processor().saturating_sub(cpu));
        value
    }

    fn figure(&mut self) -> Value {
        self.wall.sort_unstable();
        self.cpu.sort_unstable();
        let at = |times: &[u64], part: f64| {
            times.get((times.len() as f64 * part) as usize).or(times.last()).copied().unwrap_or(0)
        };
        json!({
            "p50": at(&self.wall, 0.5), "p99": at(&self.wall, 0.99), "worst": at(&self.wall, 1.0),
            "cpu_p50": at(&self.cpu, 0.5), "cpu_p99": at(&self.cpu, 0.99), "calls": self.wall.len(),
        })
    }

    fn per_second(&self) -> f64 {
        self.wall.len() as f64 * 1e9 / self.wall.iter().sum::<u64>().max(1) as f64
    }
}

/// Processor time of this thread in nanoseconds.
fn processor() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A generator of numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

/// The core and the machines that it believes to have.
struct Pool {
    core: Core,
    now: Now,
    templates: Vec<JobTemplate>,
    machines: Vec<String>,
    /// Jobs that run: claim, machine, job.
    running: Vec<(ClaimId, usize, Attempt)>,
    place: HashMap<ClaimId, (usize, usize)>,
    sessions: HashMap<Session, usize>,
    next_job: u32,
    dice: Dice,
    kinds: HashSet<String>,
    /// The first job of each kind is timed apart: its requirements are worked out.
    first_of_kind: Times,
}

impl Pool {
    fn new(settings: Settings) -> Self {
        Self {
            core: Core::new(settings),
            now: Now { mono_ms: 1_000, wall_ms: 1_790_000_000_000 },
            templates: (0..AUTOCLUSTERS).map(template).collect(),
            machines: Vec::new(),
            running: Vec::new(),
            place: HashMap::new(),
            sessions: HashMap::new(),
            next_job: 0,
            kinds: HashSet::new(),
            first_of_kind: Times::default(),
            dice: Dice(88_172_645_463_325_252),
        }
    }

    fn keys(&mut self) {
        while self.core.keys_left() < 64 {
            self.core.give_keys([ClaimKey([7; 32])]);
        }
    }

    fn hello(&self, number: usize, ranks: bool) -> AgentHello {
        let mut ad = machine(number as u32, Variety::Models);
        if !ranks {
            ad.set("Rank", 0);
        }
        let total = Resources { cpus: 1, memory_mib: 65_536, disk_kib: 1 << 30, gpus: 0 };
        AgentHello {
            machine: self.machines[number].clone(),
            session: Session(number as u64 + 1),
            total,
            ad,
            more: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn add_machine(&mut self, times: &mut Times, ranks: bool) {
        let number = self.machines.len();
        self.machines.push(format!("node{number}.pool.example.org"));
        self.sessions.insert(Session(number as u64 + 1), number);
        self.keys();
        let hello = self.hello(number, ranks);
        let mut out = Out::default();
        times.add(|| self.core.agent_up(&mut Turn { now: self.now, digest, out: &mut out }, hello));
        self.carry_out(out);
    }

    fn submission(&mut self, procs: u32) -> Submission {
        let n = self.next_job;
        self.next_job += 1;
        let kind = self.dice.below(AUTOCLUSTERS as usize);
        let mut template = self.templates[kind].clone();
        template.procs = procs;
        template.per_row = procs;
        template.set("Args", format!("\"--seed {n} --out result.{n}\""));
        // Jobs that are submitted one by one differ in that, too.
        template.set("QDate", (1_790_000_000 + n / 10).to_string());
        let owner = format!("user{}", kind as u32 % USERS);
        Submission { owner, template, idempotency_key: format!("{n:034x}.0") }
    }

    fn submit(&mut self, procs: u32, times: &mut Times) -> usize {
        let submission = self.submission(procs);
        self.keys();
        let mut out = Out::default();
        let new = self.kinds.insert(
            submission.owner.clone()
                + submission.template.shared("RequestMemory").unwrap_or("")
                + submission.template.shared("RequestDisk").unwrap_or(""),
        );
        let mut first = std::mem::take(&mut self.first_of_kind);
        let times = if new { &mut first } else { times };
        let result =
            times.add(|| self.core.submit(&mut Turn { now: self.now, digest, out: &mut out }, submission));
        self.first_of_kind = first;
        assert!(result.is_ok(), "{result:?}");
        self.carry_out(out)
    }

    /// Does what the core wants done; returns how many jobs were given to claims.
    fn carry_out(&mut self, out: Out) -> usize {
        let mut given = 0;
        let mut started = Vec::new();
        for effect in out.effects {
            match effect {
                Effect::Claim { session, claim, .. } => {
                    let machine = self.sessions[&session];
                    self.place.insert(claim, (machine, usize::MAX));
                }
                Effect::Assign { claim, cluster, jobs, .. } => {
                    given += jobs.len();
                    for (proc, attempt) in jobs {
                        let held = Attempt { cluster, proc, attempt };
                        let machine = self.place[&claim].0;
                        self.place.insert(claim, (machine, self.running.len()));
                        self.running.push((claim, machine, held));
                        started.push((claim, machine, held));
                    }
                }
                Effect::Drop { claim, .. } => {
                    self.place.remove(&claim);
                }
                _ => {}
            }
        }
        for (claim, machine, job) in started {
            self.report(claim, machine, Happening::Started(Started { job }));
        }
        given
    }

    fn report(&mut self, claim: ClaimId, machine: usize, happening: Happening) {
        let (session, mut out) = (Session(machine as u64 + 1), Out::default());
        let report = Report { claim: claim.0, seq: 1, happening: Some(happening), age_ms: Some(0) };
        self.core.agent_report(
            &mut Turn { now: self.now, digest, out: &mut out },
            &self.machines[machine],
            session,
            report,
        );
    }

    /// A random job ends; its machine is free, which leads to the next decision.
    fn finish_one(&mut self, times: &mut Times) -> usize {
        let at = self.dice.below(self.running.len());
        let (claim, machine, job) = self.running.swap_remove(at);
        if let Some((moved, _, _)) = self.running.get(at)
            && let Some(place) = self.place.get_mut(moved)
        {
            place.1 = at;
        }
        self.keys();
        let exit = Exit { code: Some(0), wall_us: RUN_MS * 1000, ..Exit::default() };
        let happening = Happening::Exited(Exited { job, exit });
        let (session, mut out) = (Session(machine as u64 + 1), Out::default());
        let report = Report { claim: claim.0, seq: 2, happening: Some(happening), age_ms: Some(0) };
        let name = self.machines[machine].clone();
        times.add(|| {
            self.core.agent_report(&mut Turn { now: self.now, digest, out: &mut out }, &name, session, report)
        });
        self.carry_out(out)
    }

    fn pass_time(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
    }
}

fn pool(slots: u32, jobs: u32, procs: u32) -> Value {
    let mut calls = serde_json::Map::new();
    let mut facts = serde_json::Map::new();
    let mut pool = Pool::new(Settings::default());
    let before = resident();
    let mut joins = Times::default();
    let start = Instant::now();
    for _ in 0..slots {
        pool.add_machine(&mut joins, false);
    }
    facts.insert(
        "1 memory of a slot".into(),
        format!("{} B (its ad of 80 attributes included)", grown(before) / slots as usize).into(),
    );
    facts.insert("2 all machines join".into(), format!("{:.2} s", start.elapsed().as_secs_f64()).into());

    // An empty pool: every job starts at once.
    let mut starts = Times::default();
    while pool.running.len() < slots as usize * 9 / 10 {
        // Most slots fill up; what nobody wants stays free.
        let given = pool.submit(1, &mut starts);
        if given == 0 && starts.wall.len() > 2 * slots as usize {
            break;
        }
    }
    let busy = pool.running.len();
    facts.insert("3 slots busy after the first wave".into(), busy.to_string().into());
    let before = resident();
    let mut arrivals = Times::default();
    for _ in 0..jobs / procs {
        pool.submit(procs, &mut arrivals);
    }
    let grown = grown(before) as f64;
    facts.insert(
        "4 memory of a queued job, a claim for some included".into(),
        format!("{:.0} B", grown / f64::from(jobs)).into(),
    );

    // Steady state: jobs end on random slots, others arrive.
    let steps = 20_000.min(slots * 5).max(2_000);
    let (mut freed, mut news, mut ticks) = (Times::default(), Times::default(), Times::default());
    let mut given = 0;
    let mut clock = 0.0;
    let mut ticked = pool.now.mono_ms;
    for step in 0..steps {
        clock += RUN_MS as f64 / f64::from(slots);
        if clock >= 1.0 {
            pool.pass_time(clock as u64);
            clock = clock.fract();
        }
        given += pool.finish_one(&mut freed);
        if step % procs == 0 {
            pool.submit(procs, &mut news);
        }
        if pool.now.mono_ms - ticked >= 1_000 {
            ticked = pool.now.mono_ms;
            let (now, mut out) = (pool.now, Out::default());
            ticks.add(|| {
                pool.core.tick(&mut Turn { now, digest, out: &mut out });
                black_box(pool.core.next_tick_ms(now))
            });
            pool.carry_out(out);
        }
    }
    facts.insert("5 jobs given to freed slots".into(), format!("{given} in {steps} exits").into());
    facts.insert("6 decisions per second".into(), format!("{:.0}", freed.per_second()).into());
    // The consistency pass is due: a whole round of it, one step with each tick.
    let mut checks = Times::default();
    pool.pass_time(30_000);
    while checks.wall.len() < 1_000 && (checks.wall.is_empty() || pool.core.is_checking()) {
        let (now, mut out) = (pool.now, Out::default());
        pool.keys();
        checks.add(|| pool.core.tick(&mut Turn { now, digest, out: &mut out }));
        pool.carry_out(out);
        pool.pass_time(100);
    }
    facts.insert("7 ticks of a round of the consistency pass".into(), checks.wall.len().to_string().into());
    let found = pool.core.findings().total();
    facts.insert("8 what it found (must be 0)".into(), found.to_string().into());
    // A machine loses its connection and comes back (its job is lost).
    let (mut downs, mut ups) = (Times::default(), Times::default());
    for _ in 0..200 {
        let number = pool.dice.below(slots as usize);
        let hello = pool.hello(number, false);
        let session = hello.session;
        pool.running.retain(|(_, machine, _)| *machine != number);
        let (now, mut out) = (pool.now, Out::default());
        pool.keys();
        downs.add(|| pool.core.agent_down(session));
        ups.add(|| pool.core.agent_up(&mut Turn { now, digest, out: &mut out }, hello));
        pool.carry_out(out);
    }
    calls.insert("1 freed slot -> next job on it (the decision)".into(), freed.figure());
    calls.insert("2 new job, no slot free".into(), news.figure());
    calls.insert("3 new job, starts at once".into(), starts.figure());
    calls.insert("B first job of a new kind".into(), pool.first_of_kind.figure());
    calls.insert("4 filling the queue".into(), arrivals.figure());
    calls.insert("5 machine joins an idle pool".into(), joins.figure());
    calls.insert("6 machine lost".into(), downs.figure());
    calls.insert("7 machine is back, gets a job".into(), ups.figure());
    calls.insert("8 tick (once a second)".into(), ticks.figure());
    calls.insert("C tick with a step of the consistency pass".into(), checks.figure());
    if slots <= 10_000 {
        calls.insert("9 new job, no slot free, machines rank jobs".into(), ranking(slots, jobs));
    }
    calls.insert("A new job with a Rank, all slots free".into(), picky(slots));
    json!({ "calls": calls, "facts": facts })
}

/// New jobs in a full pool whose machines like some jobs better: somebody may have to go.
fn ranking(slots: u32, jobs: u32) -> Value {
    let mut pool = Pool::new(Settings::default());
    let mut times = Times::default();
    for _ in 0..slots {
        pool.add_machine(&mut times, true);
    }
    for _ in 0..slots + jobs / 100 {
        pool.submit(1, &mut times);
    }
    let mut times = Times::default();
    for _ in 0..1_000 {
        pool.pass_time(APART_MS);
        pool.submit(1, &mut times);
    }
    times.figure()
}

/// Jobs that like some machines better than others, when all are free.
fn picky(slots: u32) -> Value {
    let mut pool = Pool::new(Settings::default());
    let mut times = Times::default();
    for _ in 0..slots {
        pool.add_machine(&mut times, false);
    }
    for template in &mut pool.templates {
        template.set("Rank", "TARGET.KFlops + 1000 * TARGET.Memory");
    }
    let mut times = Times::default();
    for _ in 0..500.min(slots / 2) {
        pool.pass_time(APART_MS);
        pool.submit(1, &mut times);
    }
    times.figure()
}

/// Memory of queued jobs, and of nothing else.
fn resident_queue(jobs: u32) -> Value {
    let mut pool = Pool::new(Settings::default());
    let mut times = Times {
        wall: Vec::with_capacity(jobs as usize + 3_000),
        cpu: Vec::with_capacity(jobs as usize + 3_000),
    };
    // Every kind once: what kinds cost is not what jobs cost.
    for _ in 0..2_000 {
        pool.submit(1, &mut times);
    }
    let attributes = pool.templates[0].shared.len() + 1;
    let before = resident();
    for _ in 0..jobs {
        pool.submit(1, &mut times);
    }
    let separate = grown(before) as f64 / f64::from(jobs);
    let before = resident();
    pool.submit(1_000_000, &mut times);
    json!({ "separate": separate, "array": grown(before) as f64 / 1e6, "attributes": attributes })
}

/// Gangs: one set of 64 seats among many waiting.
fn gangs(out: &mut String, quick: bool) {
    let _ = writeln!(
        out,
        "\n### A gang of 64 seats\n\nThe planner alone; each seat may use a quarter of the systems.\n\n\
         | what | p50 us | p99 us | worst us | CPU p50 us | CPU p99 us | calls | bar |\n|---|---|---|---|---|---|---|---|"
    );
    let sizes: &[usize] = if quick { &[1_000] } else { &[1_000, 10_000] };
    for &systems in sizes {
        let all: Arc<Bits> = Arc::new(bits((0..systems).filter(|n| n % 4 == 1)));
        let mut row = |what: &str, mut times: Times| {
            let _ = writeln!(out, "{}", line(&format!("{what}, {systems} systems"), &times.figure()));
        };
        let mut planner = Planner::new(Rules::default());
        let system = |free: u32| System { lab: 0, free, size: 1, hard_end: FOREVER };
        for n in 0..systems {
            planner.set_system(n, system(1));
        }
        planner.pass(0);
        let want = |id: u64, seats: usize| Want {
            id: SetId(id),
            class: Class::Normal,
            standing: Standing::Age,
            ages: true,
            submitted: id,
            run: 3_600_000,
            may_backfill: true,
            seats: vec![Seat { viable: all.clone(), prefer: Vec::new() }; seats],
            fits: None,
        };
        let mut starts = Times::default();
        for id in 0..200 {
            let decisions = starts.add(|| {
                planner.put(want(id, 64), id);
                planner.pass(id)
            });
            let [Decision::Start(start)] = decisions.as_slice() else { unreachable!("{decisions:?}") };
            for &place in &start.systems {
                planner.set_system(place, system(1));
            }
            planner.pass(id);
        }
        row("arrives, starts at once", starts);
        // All busy, many wait: what one freed system costs, and one more gang.
        for n in 0..systems {
            planner.set_system(n, system(0));
        }
        planner.pass(1_000);
        for id in 1_000..1_100 {
            planner.put(want(id, 64), id);
            planner.pass(id);
        }
        let (mut arrives, mut frees) = (Times::default(), Times::default());
        for id in 2_000..2_200 {
            arrives.add(|| {
                planner.put(want(id, 64), id);
                planner.pass(id)
            });
            planner.remove(SetId(id));
            planner.pass(id);
        }
        row("arrives behind 100 others, all busy", arrives);
        let mut dice = Dice(4_711);
        for time in 3_000..3_200 {
            let n = dice.below(systems / 4) * 4 + 1;
            frees.add(|| {
                planner.set_system(n, system(1));
                planner.pass(time)
            });
            planner.set_system(n, system(0));
            planner.pass(time);
        }
        row("a system frees while 100 gangs wait", frees);
    }
}

fn bits(ones: impl Iterator<Item = usize>) -> Bits {
    let mut bits = Bits::default();
    for one in ones {
        bits.set(one);
    }
    bits
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn grown(before: usize) -> usize {
    resident().saturating_sub(before)
}

/// A job of one of the kinds, as `updraft submit` makes it.
fn template(kind: u32) -> JobTemplate {
    let text = format!(
        "executable = /home/lab/bin/simulate\narguments = --seed 1\noutput = out.$(Cluster)\nerror = err.$(Cluster)\n\
         log = jobs.log\nrequest_memory = {}\nrequest_disk = {}\nrequest_cpus = 1\n\
         should_transfer_files = IF_NEEDED\ntransfer_input_files = data.bin\nenvironment = \"OMP_NUM_THREADS=1 LANG=C\"\nqueue\n",
        256 + 8 * (kind % 250),
        1_000 * (kind / 250 + 1),
    );
    let context = submit::Context {
        owner: format!("user{}", kind % USERS),
        cluster: None,
        arch: "X86_64".into(),
        opsys: "LINUX".into(),
        uid_domain: "pool.example.org".into(),
        filesystem_domain: "pool.example.org".into(),
        directory: "/home/lab/run".into(),
        now: 1_790_000_000,
        utc_offset: 0,
        version: "updraft".into(),
        platform: "X86_64-LINUX".into(),
        seed: 1,
    };
    let submission = submit::parse(&text, "bench.sub", &context, &NoFiles).expect("a plain description");
    submission.templates.into_iter().next().expect("one cluster")
}

/// Files that are there, and of no interest.
struct NoFiles;

impl config::Host for NoFiles {
    fn read(&self, _: &str) -> Result<String, config::HostError> {
        Err(config::HostError::NotFound)
    }

    fn run(&self, _: &str) -> Result<String, config::HostError> {
        Err(config::HostError::NotFound)
    }

    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

impl submit::Files for NoFiles {
    fn entries(&self, _: &str) -> Result<Vec<submit::Entry>, config::HostError> {
        Ok(Vec::new())
    }

    fn size(&self, _: &str) -> Result<u64, config::HostError> {
        Ok(10_000)
    }

    fn is_directory(&self, _: &str) -> bool {
        false
    }
}
