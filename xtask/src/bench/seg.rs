//! The scheduler event generator beside the packaged original, in one run: a whole PBS log, a followed one, and a replay of
//! the last minute of a short and of a long one.

mod original;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use self::original::Original;
use crate::root;

/// The first second of the log's day.
const START: u64 = 1_714_521_600;
/// Lines of one job, and how many of them make an event.
const LINES: u64 = 5;
const EVENTS: u64 = 3;

fn fail(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// The lines of a job, all in one second of the day.
fn job_lines(job: u64, second: u64) -> String {
    let s = second;
    let at = format!("05/01/2024 {:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60);
    let head = |kind: &str| format!("{at};{kind};PBS_Server;Job;{job}.svr01.example.org;");
    let (job_event, other, usage) = (head("0008"), head("0100"), head("0010"));
    format!(
        "{other}enqueuing into batch, state 1 hop 1\n\
         {job_event}Job Queued at request of a@login1, owner = a@login1, job name = STDIN, queue = batch\n\
         {job_event}Job Modified at request of Scheduler@svr01.example.org\n\
         {job_event}Job Run at request of Scheduler@svr01.example.org\n\
         {usage}Exit_status=0 resources_used.cput=00:00:43 resources_used.mem=1824kb \
         resources_used.vmem=3278kb resources_used.walltime=00:00:47\n"
    )
}

/// A server log of one day with so many jobs.
fn write_log(path: &Path, jobs: u64) -> Result<(), String> {
    let mut out = BufWriter::new(File::create(path).map_err(fail("log"))?);
    for job in 0..jobs {
        out.write_all(job_lines(job, job * 86_399 / jobs).as_bytes()).map_err(fail("log"))?;
    }
    out.flush().map_err(fail("log"))
}

/// The end of a day's log, about so many bytes of a whole that is so long: both have as many lines a second. The lines of
/// one second are of one job, again and again, so that it is soon written.
fn write_long_log(path: &Path, bytes: u64, whole: u64) -> Result<(), String> {
    let mut out = File::create(path).map_err(fail("log"))?;
    for second in 86_400 - 86_400 * bytes / whole..86_400 {
        let lines = job_lines(second, second);
        let times = (whole / 86_400).div_ceil(lines.len() as u64);
        out.write_all(lines.repeat(times as usize).as_bytes()).map_err(fail("log"))?;
    }
    Ok(())
}

/// A generator that follows the log in a directory.
struct Generator {
    child: Child,
    lines: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Generator {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fail("generator"))?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, lines, line: Vec::new() })
    }

    fn next(&mut self) -> Result<(), String> {
        self.line.clear();
        match self.lines.read_until(b'\n', &mut self.line).map_err(fail("events"))? {
            0 => Err("the generator ended".into()),
            _ => Ok(()),
        }
    }

    /// Seconds of processor so far.
    fn cpu(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    fn peak_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Closes its input; how long it takes to leave.
    fn end(mut self) -> Result<Duration, String> {
        let start = Instant::now();
        drop(self.child.stdin.take());
        self.child.wait().map_err(fail("generator"))?;
        Ok(start.elapsed())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed; the others must not outlive a bench that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our binary on a directory of logs.
fn ours(directory: &Path, from: u64) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut command = Command::new(target.join("release/updraft"));
    command.args(["seg", "-s", "pbs", "-t", &from.to_string(), "--log-path"]).arg(directory);
    command
}

/// What one program did.
struct Figures {
    wall: Duration,
    cpu: f64,
    peak_kib: u64,
    latencies: Vec<Duration>,
    end: Duration,
}

impl Figures {
    fn latency(&self, percent: usize) -> Duration {
        self.latencies[(self.latencies.len() - 1) * percent / 100]
    }
}

/// Reads a whole log, then follows it through some appends.
fn measure(
    command: Command,
    log: &Path,
    jobs: u64,
    appends: u32,
    spread: Duration,
) -> Result<Figures, String> {
    let start = Instant::now();
    let mut generator = Generator::start(command)?;
    for _ in 0..jobs * EVENTS {
        generator.next()?;
    }
    let (wall, cpu, peak_kib) = (start.elapsed(), generator.cpu(), generator.peak_kib());
    let mut append = OpenOptions::new().append(true).open(log).map_err(fail("log"))?;
    let mut latencies = Vec::new();
    for n in 0..appends {
        // At any moment of somebody's interval, if that is as long as `spread`.
        std::thread::sleep(spread.mul_f64(f64::from(n * 37 % 100) / 100.0));
        let line = format!("05/01/2024 23:59:59;0008;PBS_Server;Job;x{n}.s;Job Run at request of s\n");
        let start = Instant::now();
        append.write_all(line.as_bytes()).map_err(fail("log"))?;
        generator.next()?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    Ok(Figures { wall, cpu, peak_kib, latencies, end: generator.end()? })
}

/// From the start to the first event of the last minute.
fn replay(command: Command) -> Result<(Duration, f64), String> {
    let start = Instant::now();
    let mut generator = Generator::start(command)?;
    generator.next()?;
    // Dropped, not ended: the original does not leave before somebody has read all it has to say.
    Ok((start.elapsed(), generator.cpu()))
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

fn seconds((wall, cpu): (Duration, f64)) -> String {
    format!("{:.2} s, {cpu:.2} s of processor", wall.as_secs_f64())
}

/// Runs all measurements and returns a Markdown section.
pub(crate) fn run(quick: bool) -> Result<String, String> {
    let place = tempfile::tempdir().map_err(fail("temporary directory"))?;
    let logs = place.path().join("logs");
    std::fs::create_dir(&logs).map_err(fail("logs"))?;
    let log = logs.join("20240501");
    let lines: u64 = if quick { 200_000 } else { 1_000_000 };
    let jobs = lines / LINES;
    let original = Original::find(place.path(), &logs);
    let mut out = String::from(
        "## Scheduler event generator\n\nPBS server log, TZ=UTC, output a pipe that is read at once.",
    );
    if let Err(reason) = &original {
        println!("seg: the packaged original is not measured: {reason}");
        let _ = write!(out, " The packaged original is not measured: {reason}.");
    }
    out.push_str("\n\n| what | here | the packaged original | ratio |\n|---|---|---|---|\n");
    let mut row = |what: &str, here: String, there: Option<String>, ratio: Option<f64>| {
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}"));
        let _ = writeln!(out, "| {what} | {here} | {} | {ratio} |", there.unwrap_or_default());
    };

    write_log(&log, jobs)?;
    let appends = if quick { 100 } else { 1_000 };
    let us = measure(ours(&logs, START), &log, jobs, appends, Duration::from_millis(5))?;
    // Fresh again: the appends were ours.
    write_log(&log, jobs)?;
    let appends = if quick { 5 } else { 24 };
    // It looks every two seconds.
    let spread = Duration::from_secs(2);
    let them =
        original.as_ref().ok().map(|o| measure(o.command(START), &log, jobs, appends, spread)).transpose()?;
    let them = them.as_ref();
    row(
        &format!("{lines} lines, start to last event"),
        seconds((us.wall, us.cpu)),
        them.map(|t| seconds((t.wall, t.cpu))),
        them.map(|t| t.cpu / us.cpu),
    );
    row("peak memory", format!("{} KiB", us.peak_kib), them.map(|t| format!("{} KiB", t.peak_kib)), None);
    let latency = |f: &Figures| format!("p50 {}, p99 {}", millis(f.latency(50)), millis(f.latency(99)));
    let half = |f: &Figures| f.latency(50).as_secs_f64();
    row("append to event", latency(&us), them.map(latency), them.map(|t| half(t) / half(&us)));
    row("end of input to exit", millis(us.end), them.map(|t| millis(t.end)), None);

    let mut times = Vec::new();
    let whole = if quick { 1_000_000_000 } else { 10_000_000_000 };
    for bytes in [whole / 50, whole] {
        write_long_log(&log, bytes, whole)?;
        let size = log.metadata().map_err(fail("log"))?.len() >> 20;
        // The first run finds the log in memory as its writer left it; the quickest of three is the program's part.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(replay(ours(&logs, START + 86_340))?.0);
        }
        times.push((size, best));
        let there = original.as_ref().ok().map(|o| replay(o.command(START + 86_340))).transpose()?;
        row(
            &format!(
                "replay of the last minute of {size} MiB, {} KiB/s, first event",
                (whole / 86_400) >> 10
            ),
            millis(best),
            there.map(seconds),
            there.map(|t| t.0.as_secs_f64() / best.as_secs_f64()),
        );
    }
    if let [(small, short), (large, long)] = times[..] {
        let (growth, ratio) = (large as f64 / small.max(1) as f64, long.as_secs_f64() / short.as_secs_f64());
        row(
            "the same, how it grows",
            format!("log {growth:.0} times as long, time {ratio:.1} times"),
            None,
            None,
        );
    }
    Ok(out)
}
