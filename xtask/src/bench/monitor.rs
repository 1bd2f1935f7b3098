//! The job state monitor: events through parse, look-up and call, registrations in full books, and what foreign jobs cost.
//! Each part is a process of its own, so that memory is its own.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bridge::monitor::core::{Core, Outcome, Registering};
use bridge::monitor::line::{Cutter, Line, read_line};
use bridge::monitor::spool::NoSpool;
use bridge::monitor::{Change, Command, Key, Limits, Listener, Monitor, Reply, Settings};
use serde_json::{Value, json};

const IDS: u64 = 100_000;

fn id(n: u64) -> String {
    format!("{n}.svr01.example.org")
}

fn key(n: u64) -> Key {
    format!("resource-{n}").into()
}

fn line(out: &mut Vec<u8>, n: u64, ids: u64) {
    let state = if (n / ids).is_multiple_of(2) { 2 } else { 16 };
    let _ = writeln!(out, "001;{};{};{state};0", 1_714_521_600 + n / 500, id(n % ids));
}

/// KiB of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Feeds lines to a core, as the monitor's reading thread does.
fn feed(core: &mut Core, lines: &[u8]) {
    let mut cutter = Cutter::default();
    cutter.feed(lines, &mut |line| {
        if let Line::Event(event) = read_line(line) {
            core.take_event(0, &event);
        }
    });
}

fn registered_core() -> Core {
    let mut core = Core::new(Limits::default(), 1, Box::new(NoSpool));
    core.begin_round();
    for n in 0..IDS {
        let _ = core.register(0, &[id(n).as_bytes()], &key(n), &Registering::default());
    }
    core
}

/// Parse, look-up and delivery in one thread, for 100,000 registered ids.
fn core_speed(events: u64) -> Value {
    let before = resident();
    let mut core = registered_core();
    let registered = resident() - before;
    let mut called = 0;
    let mut time = Duration::ZERO;
    for start in (0..events).step_by(2_000) {
        let mut text = Vec::new();
        (start..start + 2_000).for_each(|n| line(&mut text, n, IDS));
        let begin = Instant::now();
        feed(&mut core, &text);
        while let Some(delivery) = core.next_delivery(0) {
            called += 1;
            core.finish_call(0, &delivery, Outcome::Handled);
        }
        text.clear();
        core.fetch_handled(&mut text);
        core.tick(0, i64::MAX);
        time += begin.elapsed();
    }
    json!({ "registered_kib": registered, "called": called, "per_second": events as f64 / time.as_secs_f64() })
}

struct Counting(AtomicU64);

impl Listener for Counting {
    fn job_changed(&self, _: &Change) -> Result<Reply, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Reply::Handled)
    }
}

/// The whole monitor with files and threads; the generator is `cat`.
fn monitor_speed(events: u64) -> Result<Value, String> {
    let place = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (log, gate) = (place.path().join("log"), place.path().join("gate"));
    let mut text = Vec::new();
    (0..events).for_each(|n| line(&mut text, n, IDS));
    std::fs::write(&log, &text).map_err(|e| e.to_string())?;
    drop(text);
    let script =
        format!("while [ ! -e {} ]; do sleep 0.01; done; cat {}; cat", gate.display(), log.display());
    let mut settings =
        Settings::new(Command::new(["sh", "-c", &script, "x"].map(Into::into).to_vec(), "bench"));
    settings.datum = Some(place.path().join("datum"));
    settings.start = Some(1);
    settings.grace = Duration::from_millis(100);
    let counting = Arc::new(Counting(AtomicU64::new(0)));
    let monitor = Monitor::start(settings, counting.clone()).map_err(|e| e.to_string())?;
    let mut times = Vec::new();
    for n in 0..IDS {
        let (id, key) = (id(n), key(n));
        let begin = Instant::now();
        monitor.register(id.as_bytes(), &key).map_err(|e| e.to_string())?;
        times.push(begin.elapsed());
    }
    std::fs::write(&gate, "").map_err(|e| e.to_string())?;
    while monitor.status().counters.read == 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
    let begin = Instant::now();
    while counting.0.load(Ordering::Relaxed) < events {
        std::thread::sleep(Duration::from_micros(500));
    }
    let time = begin.elapsed();
    let spooled = monitor.status().counters.spooled;
    monitor.stop();
    times.sort_unstable();
    Ok(json!({
        "per_second": events as f64 / time.as_secs_f64(),
        "spooled": spooled,
        "register_us": times[times.len() / 2].as_secs_f64() * 1e6,
        "register_p99_us": times[times.len() * 99 / 100].as_secs_f64() * 1e6,
    }))
}

/// 100,000 cached events of as many jobs, then registrations of them.
fn cache_cost() -> Value {
    let before = resident();
    let mut core = registered_core();
    let registered = resident();
    for start in (0..IDS).step_by(1_000) {
        let mut text = Vec::new();
        for n in start..start + 1_000 {
            let _ = writeln!(text, "001;{};f{};1;0", 1_714_521_600 + n / 500, id(n));
        }
        feed(&mut core, &text);
    }
    let cached = resident();
    let mut times = Vec::new();
    for n in (0..IDS).step_by(97) {
        let (id, key) = (format!("f{}", id(n)), key(IDS + n));
        let begin = Instant::now();
        let _ = core.register(0, &[id.as_bytes()], &key, &Registering::default());
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    json!({
        "registered_kib": registered - before,
        "cached_kib": cached - registered,
        "register_us": times[times.len() / 2],
        "register_max_us": times[times.len() - 1],
    })
}

/// Memory after so many events of jobs that are nobody's.
fn foreign(events: u64) -> Value {
    let mut core = Core::new(Limits::default(), 1, Box::new(NoSpool));
    core.begin_round();
    for start in (0..events).step_by(3_000) {
        let mut text = Vec::new();
        for n in start..start + 3_000 {
            let state = [1, 2, 8][(n % 3) as usize];
            // All ids of one length: longer ones would be counted as growth.
            let _ = writeln!(text, "001;{};{:08}.svr01;{state};0", 1_714_521_600 + n / 500, n / 3);
        }
        feed(&mut core, &text);
    }
    json!({ "kib": resident(), "cached": core.held().cached, "evicted": core.counters().evicted })
}

/// One part, in a process of its own.
pub(crate) fn part(words: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| e.to_string());
    let value = match words {
        ["core", events] => core_speed(number(events)?),
        ["whole", events] => monitor_speed(number(events)?)?,
        ["cache"] => cache_cost(),
        ["foreign", events] => foreign(number(events)?),
        _ => return Err("no such part".into()),
    };
    println!("{value}");
    Ok(())
}

fn ask(words: &[&str]) -> Result<Value, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Process::new(own).args(["bench", "monitor-part"]).args(words).output();
    let out = out.map_err(|e| e.to_string())?;
    if !out.status.success() {
        return Err(format!("monitor {words:?}: {}", String::from_utf8_lossy(&out.stderr)));
    }
    serde_json::from_slice(&out.stdout).map_err(|e| e.to_string())
}

/// Runs all measurements and returns a Markdown section.
pub(crate) fn run(quick: bool) -> Result<String, String> {
    let events = if quick { "400000" } else { "4000000" };
    let core = ask(&["core", events])?;
    let whole = ask(&["whole", events])?;
    let cache = ask(&["cache"])?;
    let (one, ten) = (ask(&["foreign", "1000000"])?, ask(&["foreign", "10000000"])?);
    let figure = |value: &Value, name: &str| value[name].as_f64().unwrap_or(0.0);
    let mut out = String::from(
        "## Job state monitor\n\n100,000 registered ids of as many keys; every second 500 events.\n\n| what | figure |\n|---|---|\n",
    );
    let mut row = |what: &str, text: String| {
        let _ = writeln!(out, "| {what} | {text} |");
    };
    row(
        &format!("{events} events through parse, look-up and call, one thread"),
        format!("{:.0} events/s", figure(&core, "per_second")),
    );
    row(
        "the same through a process, its pipe, four calling threads and the files",
        format!("{:.0} events/s ({:.0} spooled)", figure(&whole, "per_second"), figure(&whole, "spooled")),
    );
    row(
        "one registration while 100,000 are made",
        format!(
            "p50 {:.1} us, p99 {:.1} us",
            figure(&whole, "register_us"),
            figure(&whole, "register_p99_us")
        ),
    );
    row(
        "one registration with 100,000 registered and 100,000 cached",
        format!(
            "p50 {:.1} us, most {:.1} us",
            figure(&cache, "register_us"),
            figure(&cache, "register_max_us")
        ),
    );
    row("memory of 100,000 registered ids", format!("{:.1} MiB", figure(&cache, "registered_kib") / 1_024.0));
    row(
        "memory of 100,000 cached events of as many jobs",
        format!("{:.1} MiB", figure(&cache, "cached_kib") / 1_024.0),
    );
    let (first, last) = (figure(&one, "kib") / 1_024.0, figure(&ten, "kib") / 1_024.0);
    row(
        "memory after 1,000,000 and 10,000,000 events of foreign jobs",
        format!(
            "{first:.0} MiB and {last:.0} MiB ({:+.1}%); {:.0} are cached",
            (last / first - 1.0) * 100.0,
            figure(&ten, "cached")
        ),
    );
    Ok(out)
}
