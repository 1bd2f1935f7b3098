//! The scheduler event generator: a whole PBS log, a followed one, and a replay of its last minute.
//!
//! The packaged original takes its log path from a file below /etc only, so it is not run here; its figures are those that
//! were recorded with the vectors, on two busy cores.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::root;

/// The first second of the log's day.
const START: u64 = 1_714_521_600;
/// Lines of one job, and how many of them make an event.
const LINES: u64 = 5;
const EVENTS: u64 = 3;

fn fail(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// A server log of one day with so many lines.
fn write_log(path: &Path, lines: u64) -> Result<(), String> {
    let jobs = lines / LINES;
    let mut out = BufWriter::new(File::create(path).map_err(fail("log"))?);
    for job in 0..jobs {
        let s = job * 86_399 / jobs;
        let at = format!("05/01/2024 {:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60);
        let head = |kind: &str| format!("{at};{kind};PBS_Server;Job;{job}.svr01.example.org;");
        let (job_event, other, usage) = (head("0008"), head("0100"), head("0010"));
        write!(
            out,
            "{other}enqueuing into batch, state 1 hop 1\n\
             {job_event}Job Queued at request of a@login1, owner = a@login1, job name = STDIN, queue = batch\n\
             {job_event}Job Modified at request of Scheduler@svr01.example.org\n\
             {job_event}Job Run at request of Scheduler@svr01.example.org\n\
             {usage}Exit_status=0 resources_used.cput=00:00:43 resources_used.mem=1824kb \
             resources_used.vmem=3278kb resources_used.walltime=00:00:47\n"
        )
        .map_err(fail("log"))?;
    }
    out.flush().map_err(fail("log"))
}

/// A generator that follows the log in a directory.
struct Generator {
    child: Child,
    lines: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Generator {
    fn start(directory: &Path, from: u64) -> Result<Self, String> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let mut child = Command::new(target.join("release/updraft"))
            .args(["seg", "-s", "pbs", "-t", &from.to_string(), "--log-path"])
            .arg(directory)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail("updraft seg"))?;
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
        self.child.wait().map_err(fail("updraft seg"))?;
        Ok(start.elapsed())
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

/// Runs all measurements and returns a Markdown section.
pub(crate) fn run(quick: bool) -> Result<String, String> {
    let place = tempfile::tempdir().map_err(fail("temporary directory"))?;
    let log = place.path().join("20240501");
    let lines = if quick { 200_000 } else { 1_000_000 };
    let mut out = String::from(
        "## Scheduler event generator\n\nPBS server log. The original's figures were recorded elsewhere, with a million \
         lines.\n\n| what | figure | original |\n|---|---|---|\n",
    );
    let row = |out: &mut String, what: &str, figure: String, original: &str| {
        let _ = writeln!(out, "| {what} | {figure} | {original} |");
    };

    write_log(&log, lines)?;
    let start = Instant::now();
    let mut generator = Generator::start(place.path(), START)?;
    for _ in 0..lines / LINES * EVENTS {
        generator.next()?;
    }
    let wall = start.elapsed();
    row(
        &mut out,
        &format!("{lines} lines, start to last event"),
        format!("{:.2} s, {:.2} s of processor", wall.as_secs_f64(), generator.cpu()),
        "3.7 to 4.0 s, 1.2 to 1.35 s of processor",
    );
    row(&mut out, "peak memory", format!("{} KiB", generator.peak_kib()), "2,700 to 2,900 KiB");

    let mut append = OpenOptions::new().append(true).open(&log).map_err(fail("log"))?;
    let mut latencies = Vec::new();
    for n in 0..if quick { 100 } else { 1_000 } {
        std::thread::sleep(Duration::from_millis(2 + n % 5));
        let line = format!("05/01/2024 23:59:59;0008;PBS_Server;Job;x{n}.s;Job Run at request of s\n");
        let start = Instant::now();
        append.write_all(line.as_bytes()).map_err(fail("log"))?;
        generator.next()?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    let part = |p: usize| latencies[(latencies.len() - 1) * p / 100];
    row(
        &mut out,
        "append to event",
        format!("p50 {}, p99 {}", millis(part(50)), millis(part(99))),
        "p50 1,050 ms, p90 1,850 ms",
    );
    row(&mut out, "end of input to exit", millis(generator.end()?), "2,000 ms");

    for lines in [lines, lines * 10] {
        write_log(&log, lines)?;
        let size = log.metadata().map_err(fail("log"))?.len() >> 20;
        let start = Instant::now();
        let mut generator = Generator::start(place.path(), START + 86_340)?;
        generator.next()?;
        let wall = start.elapsed();
        row(&mut out, &format!("replay of the last minute of {size} MiB, first event"), millis(wall), "");
        generator.end()?;
    }
    Ok(out)
}
