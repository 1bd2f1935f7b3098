//! How fast the ClassAd language is: parsing, evaluating, matching one by one, and the match engine.

use classad::engine::Engine;
use classad::{ClassAd, Matcher, Name, Scope, symmetric_match};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What the official C++ library does on one core of the machine the vectors were recorded on.
const PEER_MATCHES_PER_SECOND: f64 = 137_000.0;

/// Runs all measurements and returns a Markdown section.
pub(crate) fn run(quick: bool) -> String {
    let budget = Duration::from_millis(if quick { 150 } else { 1500 });
    let mut out =
        String::from("## ClassAds\n\nProcessor time of one core.\n\n| what | figure |\n|---|---|\n");
    let machine_text = machine(1, Variety::Models).to_string();
    let job = job(1);
    let row = |out: &mut String, what: &str, figure: String| {
        let _ = writeln!(out, "| {what} | {figure} |");
    };

    let per = time(budget, || {
        black_box(ClassAd::parse_new(black_box(&machine_text)).expect("a typical ad parses"));
    });
    let megabytes = machine_text.len() as f64 / per.as_secs_f64() / 1e6;
    row(&mut out, "parse a machine ad", format!("{} us, {megabytes:.0} MB/s", micros(per)));

    let slot = ClassAd::parse_new(&machine_text).expect("a typical ad parses");
    let requirements = Name::new("Requirements");
    let per = time(budget, || {
        black_box(Scope::of(black_box(&job)).target(black_box(&slot)).holds(&requirements));
    });
    row(&mut out, "evaluate a job's Requirements", format!("{} ns", per.as_nanos()));

    row(
        &mut out,
        &format!("memory of a machine ad ({} attributes), 100,000 of them parsed", slot.len()),
        format!("{} B", bytes_per_ad()),
    );

    let machines: Vec<ClassAd> = (0..10_000).map(|n| machine(n, Variety::Unique)).collect();
    let matcher = Matcher::new(&job);
    let plain = one_by_one(&machines, budget, |machine| symmetric_match(black_box(&job), machine));
    let one_by_one = one_by_one(&machines, budget, |machine| matcher.matches(machine));
    for (how, rate) in [("each pair from scratch", plain), ("the job prepared once", one_by_one)] {
        let times = rate / PEER_MATCHES_PER_SECOND;
        row(
            &mut out,
            &format!("symmetric matches of a job with 10,000 different machines one by one, {how}"),
            format!("{:.2} M/s ({times:.1}x the C++ library's {PEER_MATCHES_PER_SECOND:.0}/s)", rate / 1e6),
        );
    }

    let (slots, clusters) = if quick { (10_000, 100) } else { (100_000, 1_000) };
    for (variety, name) in
        [(Variety::Models, "machines of 500 models"), (Variety::Unique, "every slot different")]
    {
        let found = through_engine(slots, clusters, variety);
        row(
            &mut out,
            &format!("engine: load {slots} slots, {name} ({} classes)", found.classes),
            format!("{} ms", found.load.as_millis()),
        );
        let rate = f64::from(slots) * f64::from(clusters) / found.viable.as_secs_f64();
        row(
            &mut out,
            &format!("engine: all viable of {slots} slots for {clusters} autoclusters, {name}"),
            format!(
                "{} ms, {:.0} M pairs/s ({:.0}x one by one), {} pairs match",
                found.viable.as_millis(),
                rate / 1e6,
                rate / one_by_one,
                found.matches
            ),
        );
        row(
            &mut out,
            &format!("engine: one slot changes, one autocluster asks again, {name}"),
            format!("{} us", micros(found.update)),
        );
    }
    out
}

/// What the process grows by, per ad.
fn bytes_per_ad() -> usize {
    const ADS: u32 = 100_000;
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        text.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
    };
    let before = resident();
    let parse =
        |n| ClassAd::parse_new(&machine(n, Variety::Unique).to_string()).expect("a typical ad parses");
    let ads: Vec<ClassAd> = (0..ADS).map(parse).collect();
    let grown = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    // Where the kernel does not say, the ads themselves do.
    grown.unwrap_or_else(|| ads.iter().map(ClassAd::memory_bytes).sum()) / ADS as usize
}

fn micros(per: Duration) -> String {
    format!("{:.1}", per.as_secs_f64() * 1e6)
}

/// Processor time this thread has used: on a machine shared with others the clock on the wall says nothing.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = stat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Runs the body once and returns the processor time it took.
fn measure<T>(body: impl FnOnce() -> T) -> (T, Duration) {
    let start = processor_time();
    let value = body();
    (value, processor_time().saturating_sub(start))
}

/// Processor time per call, the best of three rounds.
fn time(budget: Duration, mut body: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut calls = 0_u32;
    while start.elapsed() < budget / 10 {
        body();
        calls += 1;
    }
    let round = |body: &mut dyn FnMut()| measure(|| (0..calls * 3).for_each(|_| body())).1 / (calls * 3);
    (0..3).map(|_| round(&mut body)).min().unwrap_or_default()
}

fn one_by_one(machines: &[ClassAd], budget: Duration, matches: impl Fn(&ClassAd) -> bool) -> f64 {
    let mut found = 0;
    let per = time(budget, || found = machines.iter().filter(|machine| matches(machine)).count());
    assert!(found > 0 && found < machines.len(), "the match must be worth computing");
    machines.len() as f64 / per.as_secs_f64()
}

struct EngineFigures {
    load: Duration,
    viable: Duration,
    update: Duration,
    classes: usize,
    matches: usize,
}

fn through_engine(slots: u32, clusters: u32, variety: Variety) -> EngineFigures {
    let ads: Vec<ClassAd> = (0..slots).map(|n| machine(n, variety)).collect();
    let jobs: Vec<ClassAd> = (0..clusters).map(job).collect();
    let mut engine = Engine::new();
    let (first, load) = measure(|| {
        for (key, ad) in ads.iter().enumerate() {
            engine.put_slot(key as u32, ad.clone()).expect("keys are small");
        }
        // The first job decides which columns there are; that belongs to loading.
        let first = engine.intern(&jobs[0]);
        engine.viable(first);
        first
    });
    let (matches, viable) = measure(|| {
        let ids: Vec<_> = jobs.iter().map(|job| engine.intern(job)).collect();
        ids.iter().map(|id| engine.viable(*id).len()).sum()
    });
    let mut next = 0;
    let update = time(Duration::from_millis(100), || {
        next = (next + 7919) % slots;
        let mut ad = ads[next as usize].clone();
        ad.set("Memory", 4096 + i64::from(next % 7));
        engine.put_slot(next, ad).expect("keys are small");
        black_box(engine.viable(first).words().len());
    });
    EngineFigures { load, viable, update, classes: engine.class_count(), matches }
}

/// How much slots differ.
#[derive(Clone, Copy)]
pub(super) enum Variety {
    /// As in a pool bought in batches: 500 kinds of machines.
    Models,
    /// Disk and load are different on every slot, and policies look at both.
    Unique,
}

/// A machine ad of the usual size.
pub(super) fn machine(n: u32, variety: Variety) -> ClassAd {
    let model = n % 500;
    let mut ad = ClassAd::new();
    let (disk, load) = match variety {
        Variety::Models => (i64::from(model % 40) * 1_000_000, f64::from(model % 10) / 10.0),
        Variety::Unique => (i64::from(n) * 977 % 40_000_000, f64::from(n % 99_991) / 99_991.0),
    };
    ad.set("Arch", if model.is_multiple_of(10) { "aarch64" } else { "X86_64" });
    ad.set("OpSys", if model.is_multiple_of(17) { "WINDOWS" } else { "LINUX" });
    ad.set("OpSysAndVer", "AlmaLinux9");
    ad.set("Memory", [2048_i64, 4096, 8192, 16384, 65536][model as usize % 5]);
    ad.set("Cpus", [1_i64, 2, 4, 8][model as usize % 4]);
    ad.set("Disk", disk);
    ad.set("LoadAvg", load);
    ad.set("GPUs", i64::from(model.is_multiple_of(25)));
    ad.set("KFlops", 1_000_000 + i64::from(model));
    ad.set("Mips", 20_000 + i64::from(model));
    ad.set("State", "Unclaimed");
    ad.set("Activity", "Idle");
    ad.set("HasFileTransfer", true);
    ad.set("HasDocker", model.is_multiple_of(3));
    ad.set("Machine", format!("node{}.pool.example.org", n / 8));
    ad.set("Name", format!("slot{}@node{}.pool.example.org", n % 8, n / 8));
    ad.set("SlotID", i64::from(n % 8));
    ad.set("KeyboardIdle", 3600);
    ad.set("MyType", "Machine");
    for filler in 0..60 {
        match filler % 3 {
            0 => ad.set(&format!("CapabilityNumber{filler}"), i64::from(filler)),
            1 => ad.set(&format!("DetectedThing{filler}"), format!("value {filler}")),
            _ => ad.set(&format!("HasFeature{filler}"), true),
        }
    }
    let policy = [
        ("START", "(KeyboardIdle > 15 * 60) && (LoadAvg < 0.8) && (TARGET.Owner =!= \"mallory\")"),
        (
            "WithinResourceLimits",
            "MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && MY.Memory > 0 && \
             TARGET.RequestMemory <= MY.Memory && TARGET.RequestDisk <= MY.Disk && \
             (TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0)",
        ),
        ("Requirements", "START && WithinResourceLimits"),
        ("Rank", "TARGET.JobPrio"),
    ];
    for (name, text) in policy {
        ad.insert_text(name, text).expect("the policy parses");
    }
    ad.compact();
    ad
}

/// A job ad of the usual size; different numbers give different autoclusters.
fn job(n: u32) -> ClassAd {
    let mut ad = ClassAd::new();
    ad.set("Owner", format!("user{}", n % 50));
    ad.set("RequestMemory", 512 * i64::from(n % 20 + 1));
    ad.set("RequestCpus", [1_i64, 1, 1, 2, 4][n as usize % 5]);
    ad.set("RequestDisk", 100_000 * i64::from(n % 31 + 1));
    ad.set("JobPrio", i64::from(n / 50));
    ad.set("ClusterId", i64::from(n));
    ad.set("Cmd", "/usr/bin/simulate");
    ad.set("JobUniverse", 5);
    for filler in 0..40 {
        ad.set(&format!("JobDetail{filler}"), format!("text {filler} of {n}"));
    }
    let policy = [
        (
            "Requirements",
            "(TARGET.Arch == \"X86_64\") && (TARGET.OpSys == \"LINUX\") && (TARGET.Disk >= RequestDisk) && \
             (TARGET.Memory >= RequestMemory) && (TARGET.Cpus >= RequestCpus) && TARGET.HasFileTransfer",
        ),
        ("Rank", "TARGET.KFlops + 1000 * TARGET.Memory"),
    ];
    for (name, text) in policy {
        ad.insert_text(name, text).expect("the policy parses");
    }
    ad
}
