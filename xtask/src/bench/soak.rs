//! A long run: jobs without end, a reader from the beginning and `usage` each round, a follower that never stops, and restarts in
//! between, orderly and by SIGKILL. What is printed must stay flat from round to round.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::pool::{fail, program};

type Result<T> = std::result::Result<T, String>;

/// Jobs of one round.
const ROUND: u64 = 100_000;

/// A process that ends with this one.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Soak {
    dir: tempfile::TempDir,
    manager: Running,
}

impl Soak {
    fn command(dir: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).env("UPDRAFT_STATE_DIR", dir.join("state")).current_dir(dir).stdin(Stdio::null());
        command
    }

    fn start(dir: &Path) -> Result<Running> {
        let mut up = Self::command(dir, &["--log", "error", "up", "--lease", "30"]);
        let mut child = Running(up.stdout(Stdio::piped()).spawn().map_err(fail("updraft up"))?);
        // It says one line when it is up.
        let mut line = String::new();
        let out = child.0.stdout.take().ok_or("updraft up has no output")?;
        BufReader::new(out).read_line(&mut line).map_err(fail("updraft up"))?;
        if line.is_empty() {
            return Err("updraft up did not come up".into());
        }
        Ok(child)
    }

    /// Runs a command to its end; how long it took, and what it printed.
    fn run(&self, words: &[&str]) -> Result<(f64, Vec<u8>)> {
        let begin = Instant::now();
        let out = Self::command(self.dir.path(), words).output().map_err(fail("updraft"))?;
        if !out.status.success() {
            return Err(format!("updraft {words:?}: {}", String::from_utf8_lossy(&out.stderr)));
        }
        Ok((begin.elapsed().as_secs_f64(), out.stdout))
    }

    /// Reads all events from the beginning: how long that took, and how many there are.
    fn count_events(&self) -> Result<(f64, u64)> {
        let begin = Instant::now();
        let mut command = Self::command(self.dir.path(), &["events", "--json", "--from", "0"]);
        let mut child = Running(command.stdout(Stdio::piped()).spawn().map_err(fail("updraft events"))?);
        let out = child.0.stdout.take().ok_or("updraft events has no output")?;
        let events = BufReader::with_capacity(1 << 20, out).split(b'\n').count();
        Ok((begin.elapsed().as_secs_f64(), events as u64))
    }

    fn restart(&mut self, orderly: bool) -> Result<f64> {
        let begin = Instant::now();
        if orderly {
            let pid = self.manager.0.id().to_string();
            Command::new("kill").args(["-TERM", &pid]).status().map_err(fail("kill"))?;
        } else {
            self.manager.0.kill().map_err(fail("kill"))?;
        }
        self.manager.0.wait().map_err(fail("updraft up"))?;
        self.manager = Self::start(self.dir.path())?;
        Ok(begin.elapsed().as_secs_f64())
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.manager.0.id())).unwrap_or_default()
    }

    fn rss_mib(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.manager.0.id())).map_or(0, Iterator::count)
    }

    fn journal_mib(&self) -> u64 {
        let entries = std::fs::read_dir(self.dir.path().join("state/manager/journal"));
        let sizes =
            entries.into_iter().flatten().flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len());
        sizes.sum::<u64>() >> 20
    }
}

/// A follower of all events from the beginning on, which takes up where it was after each restart of the manager.
fn follow(dir: std::path::PathBuf, seen: Arc<AtomicU64>, gaps: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        while dir.exists() {
            let from = (seen.load(Ordering::Relaxed) + 1).to_string();
            let mut command = Soak::command(&dir, &["events", "--json", "--follow", "--from", &from]);
            let Ok(child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else { return };
            let mut child = Running(child);
            let Some(out) = child.0.stdout.take() else { return };
            for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
                let number = line
                    .strip_prefix("{\"position\":")
                    .and_then(|l| l.split(',').next()?.parse::<u64>().ok());
                let Some(position) = number else { continue };
                gaps.fetch_add(u64::from(position != seen.load(Ordering::Relaxed) + 1), Ordering::Relaxed);
                seen.store(position, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

/// Runs so many jobs in rounds.
pub(crate) fn run(jobs: u64) -> Result<String> {
    let dir = tempfile::tempdir().map_err(fail("a directory"))?;
    let manager = Soak::start(dir.path())?;
    let mut soak = Soak { dir, manager };
    let (seen, gaps) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    follow(soak.dir.path().to_owned(), seen.clone(), gaps.clone());
    let mut text = format!(
        "## Soak\n\n{jobs} no-op jobs in rounds of {ROUND}, with a follower from the first event on; after each round a reader from the \
         beginning and `usage`, then a restart, orderly and by SIGKILL in turns.\n\n\
         | jobs | jobs/s | RSS MiB | descriptors | journal MiB | usage s | usage --since 1m s | reader events/s | restart s | follower behind |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for round in 1..=jobs.div_ceil(ROUND) {
        let begin = Instant::now();
        let (_, said) = soak.run(&[
            "submit",
            "--set",
            "output=/dev/null",
            "--count",
            &ROUND.to_string(),
            "--",
            "/bin/true",
        ])?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let number = said.split("cluster ").nth(1).unwrap_or_default();
        let cluster: String = number.chars().take_while(char::is_ascii_digit).collect();
        // A manager that is killed in the middle of the wait is part of the test, not here.
        soak.run(&["wait", &cluster])?;
        let rate = ROUND as f64 / begin.elapsed().as_secs_f64();
        let (usage, _) = soak.run(&["usage"])?;
        let (since, _) = soak.run(&["usage", "--since", "1m"])?;
        let (reading, events) = soak.count_events()?;
        let behind = events - seen.load(Ordering::Relaxed).min(events);
        let (rss, descriptors, journal) = (soak.rss_mib(), soak.descriptors(), soak.journal_mib());
        let restart = soak.restart(round % 2 == 0)?;
        let row = format!(
            "| {} | {rate:.0} | {rss} | {descriptors} | {journal} | {usage:.2} | {since:.2} | {:.0} | {restart:.2} | {behind} |\n",
            round * ROUND,
            events as f64 / reading
        );
        print!("{row}");
        text.push_str(&row);
    }
    let _ = writeln!(text, "\nGaps that the follower saw: {}.", gaps.load(Ordering::Relaxed));
    Ok(text)
}
