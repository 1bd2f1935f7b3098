//! The owner's comfort: how fast a job stands still when somebody touches the machine, and what the agent itself takes.
//!
//! The job is three processes, one of them in a session of its own, that write down the time five thousand times a
//! second and note every gap of half a second. A touch is a line that script(1) types into a pseudo-terminal on which
//! a program reads: the real sensors see it. The figure is from just before it is typed to the last sign of life of
//! the last process, which is up to 0.2 ms and the scheduling of the machine too early.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::pool::{fail, program, quantiles, tempdir};

type Result<T> = std::result::Result<T, String>;

/// A pause of this length is no scheduling.
const GAP_MS: f64 = 500.0;
const PROCESSES: usize = 3;

pub(super) fn wall_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}

/// What the job's processes do: `xtask tick FILE`. Ends when the file is gone.
pub(crate) fn tick(file: &str) -> Result<()> {
    let mut out = std::fs::File::options().append(true).create(true).open(file).map_err(fail("tick"))?;
    let mut last = wall_ms();
    for round in 0u64.. {
        std::thread::sleep(Duration::from_micros(200));
        let now = wall_ms();
        if now - last > GAP_MS {
            writeln!(out, "{last:.3}").map_err(fail("tick"))?;
        }
        last = now;
        if round % 1000 == 0 && !Path::new(file).exists() {
            break;
        }
    }
    Ok(())
}

/// A pool with one machine.
pub(super) struct Desk {
    pool: Child,
    pub(super) dir: tempfile::TempDir,
    name: String,
}

impl Desk {
    pub(super) fn up(policy: &str, sensors: Option<&str>) -> Result<Self> {
        let dir = tempdir()?;
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).map_err(fail(name))?;
            Ok::<PathBuf, String>(dir.path().join(name))
        };
        let mut command = Command::new(program());
        command.args(["--log", "error", "up", "--cpus", "1", "--lease", "60", "--config"]);
        command.arg(write("policy.conf", policy)?).arg("--state-dir").arg(dir.path().join("state"));
        if let Some(sensors) = sensors {
            command.arg("--sensors").arg(write("sensors", sensors)?);
        }
        let pool = command.stdout(Stdio::null()).spawn().map_err(fail("updraft up"))?;
        let mut desk = Self { pool, dir, name: String::new() };
        let start = Instant::now();
        while desk.name.is_empty() {
            let status = desk.ask(&["status", "--json"]).unwrap_or_default();
            let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
            status["machines"][0]["name"].as_str().unwrap_or_default().clone_into(&mut desk.name);
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the pool does not answer".into());
            }
        }
        Ok(desk)
    }

    /// One with a job that ticks.
    fn start(policy: &str, sensors: Option<&str>) -> Result<Self> {
        let desk = Self::up(policy, sensors)?;
        let start = Instant::now();
        let own = std::env::current_exe().map_err(fail("own program"))?;
        let tick = |n: usize| format!("'{}' tick {}", own.display(), desk.file(n).display());
        let script = format!("setsid {} & {} & exec {}", tick(0), tick(1), tick(2));
        desk.ask(&[
            "submit",
            "--set",
            "output=/dev/null",
            "--set",
            "error=/dev/null",
            "--",
            "sh",
            "-c",
            &script,
        ])?;
        while (0..PROCESSES).any(|n| !desk.file(n).exists()) {
            std::thread::sleep(Duration::from_millis(20));
            if start.elapsed() > Duration::from_secs(60) {
                return Err("the job does not start".into());
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        Ok(desk)
    }

    pub(super) fn file(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("tick-{number}"))
    }

    pub(super) fn ask(&self, words: &[&str]) -> Result<String> {
        let out = Command::new(program())
            .args(words)
            .env("UPDRAFT_STATE_DIR", self.dir.path().join("state"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .output()
            .map_err(fail("updraft"))?;
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            Err(format!("updraft {words:?}: {}", String::from_utf8_lossy(&out.stderr)))
        }
    }

    /// Beginnings of the gaps of each process, in order.
    fn gaps(&self) -> Vec<Vec<f64>> {
        let read = |n| std::fs::read_to_string(self.file(n)).unwrap_or_default();
        (0..PROCESSES).map(|n| read(n).lines().filter_map(|l| l.parse().ok()).collect()).collect()
    }

    /// When everything stood still after each of these moments, and before the next; None where something did not.
    fn stops(&self, moments: &[f64]) -> Vec<Option<f64>> {
        let gaps = self.gaps();
        let stop = |at: f64, next: f64| {
            let of_process = |gaps: &Vec<f64>| gaps.iter().copied().find(|g| *g >= at - 1.0 && *g < next);
            gaps.iter().map(of_process).try_fold(0.0, |latest: f64, gap| gap.map(|g| latest.max(g)))
        };
        let next = moments.iter().skip(1).copied().chain([f64::MAX]);
        moments.iter().zip(next).map(|(at, next)| stop(*at, next)).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.ask(&["rm", "--all"]);
        for n in 0..PROCESSES {
            let _ = std::fs::remove_file(self.file(n));
        }
        std::thread::sleep(Duration::from_millis(500));
        let _ = Command::new("kill").arg(self.pool.id().to_string()).status();
        let _ = self.pool.wait();
    }
}

/// A terminal at which somebody can type.
struct Terminal(Child);

impl Terminal {
    fn open() -> Result<Self> {
        let mut command = Command::new("script");
        command
            .args(["-q", "-c", "cat > /dev/null", "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command.spawn().map(Self).map_err(fail("script(1)"))
    }

    fn hit(&mut self) -> Result<f64> {
        let keys = self.0.stdin.as_mut().ok_or("no keyboard")?;
        let before = wall_ms();
        keys.write_all(b"x\n").and_then(|()| keys.flush()).map_err(fail("script(1)"))?;
        Ok(before)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Milliseconds from a key to the stop, sensed at once. The poll of each second is there to let the job go on; that it
/// finds the key before the watch does is rare.
fn sensed(trials: usize) -> Result<(Vec<f64>, usize)> {
    let policy = "START = True\nWANT_SUSPEND = True\nSUSPEND = KeyboardIdle < 1\nCONTINUE = KeyboardIdle >= 1\n\
                  PREEMPT = False\nKILL = False\nPOLLING_INTERVAL = 1\nRunBenchmarks = False\n";
    let desk = Desk::start(policy, None)?;
    let mut terminal = Terminal::open()?;
    std::thread::sleep(Duration::from_millis(3000));
    let mut moments = Vec::new();
    for trial in 0..trials {
        moments.push(terminal.hit()?);
        std::thread::sleep(Duration::from_millis(2700 + (trial as u64 * 137) % 1000));
    }
    let stops = desk.stops(&moments);
    let took: Vec<f64> = moments.iter().zip(&stops).filter_map(|(at, stop)| Some((*stop)? - at)).collect();
    println!("policy: {} touches measured", took.len());
    Ok((took, trials))
}

/// The same by polls of a second and a scripted owner, from the poll that sees him; and when those polls were.
fn polled(trials: usize) -> Result<(Vec<f64>, Vec<f64>, usize)> {
    let policy = "START = True\nWANT_SUSPEND = True\nSUSPEND = KeyboardIdle < 1\nCONTINUE = KeyboardIdle > 100\n\
                  PREEMPT = False\nKILL = False\nPOLLING_INTERVAL = 1\nRunBenchmarks = False\n";
    // The owner comes every four seconds and stays for two.
    let (first, every, stay) = (4, 4, 2);
    let mut script = String::from("scale 1\n0 KeyboardIdle = 1000; LoadAvg = 0.0; CondorLoadAvg = 0.0\n");
    for trial in 0..trials {
        let at = first + trial * every;
        let _ = writeln!(script, "{at} KeyboardIdle = 0\n{} KeyboardIdle = 1000", at + stay);
    }
    let desk = Desk::start(policy, Some(&script))?;
    std::thread::sleep(Duration::from_secs((first + trials * every) as u64));
    let lines = desk.ask(&["events", "--machine", &desk.name, "--json"])?;
    let of = |line: &str| -> Option<f64> {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["transition"] == 13).then(|| line["time_ms"].as_f64())?
    };
    let decided: Vec<f64> = lines.lines().filter_map(of).collect();
    let stops = desk.stops(&decided);
    let beyond = decided.iter().zip(&stops).filter_map(|(at, stop)| Some(((*stop)? - at).max(0.0))).collect();
    Ok((beyond, decided, trials))
}

/// An agent of its own with nothing to do: its share of a core, and its memory and that of its waiting starter in KiB.
fn idle(seconds: u64) -> Result<(f64, u64, u64)> {
    let dir = tempdir()?;
    let command = |words: &[&str], state: &str| {
        let mut command = Command::new(program());
        command.args(words).env("UPDRAFT_STATE_DIR", dir.path().join(state)).stdin(Stdio::null());
        command.env("UPDRAFT_LOG", "error");
        command
    };
    let log = std::fs::File::create(dir.path().join("up.log")).map_err(fail("up.log"))?;
    let up = command(&["up", "--cpus", "0", "--listen", "127.0.0.1:0"], "manager").stdout(log).spawn();
    let _manager = Ended(up.map_err(fail("updraft up"))?);
    let start = Instant::now();
    let address = loop {
        let said = std::fs::read_to_string(dir.path().join("up.log")).unwrap_or_default();
        let address = said.split("listening on ").nth(1).and_then(|a| a.split([',', '\n']).next());
        if let Some(address) = address {
            break address.to_owned();
        }
        if start.elapsed() > Duration::from_secs(30) {
            return Err("the pool does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let token =
        command(&["token", "create", "--role", "agent"], "manager").output().map_err(fail("token"))?;
    let join = format!("{}@{address}", String::from_utf8_lossy(&token.stdout).trim());
    std::fs::write(dir.path().join("policy.conf"), "use POLICY : Desktop\n").map_err(fail("policy"))?;
    let config = dir.path().join("policy.conf").display().to_string();
    let words = ["agent", "--name", "idle", "--join", &join, "--config", &config];
    let agent = command(&words, "agent").stdout(Stdio::null()).spawn();
    let agent = Ended(agent.map_err(fail("updraft agent"))?);
    // It measures the machine when it starts, and the thread that did so stays for a while.
    std::thread::sleep(Duration::from_secs(15));
    let pid = agent.0.id();
    let before = cpu_ns(pid);
    std::thread::sleep(Duration::from_secs(seconds));
    let used = |(thread, ns): (String, u64)| ns.saturating_sub(before.get(&thread).copied().unwrap_or(0));
    let share = cpu_ns(pid).into_iter().map(used).sum::<u64>() as f64 / (seconds as f64 * 1e9);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let all = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let starters: String =
        all.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok()).collect();
    let starter = starters.split_whitespace().chain(children.split_whitespace()).next();
    Ok((share, rss_kib(pid), starter.and_then(|s| s.parse().ok()).map_or(0, rss_kib)))
}

/// A process that ends with us.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Nanoseconds on a processor, by thread.
fn cpu_ns(pid: u32) -> HashMap<String, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |t: std::fs::DirEntry| {
        let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
        Some((t.file_name().into_string().ok()?, text.split_whitespace().next()?.parse().ok()?))
    };
    threads.filter_map(of).collect()
}

fn rss_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

pub(crate) fn run(quick: bool) -> Result<String> {
    let trials = if quick { 20 } else { 100 };
    let mut out = String::from(
        "## Machine policy\n\nA job of three processes, one in a session of its own; frozen as one control group \
         where the host offers that. Touches are lines typed into a pseudo-terminal through script(1).\n\n\
         | what | figure | aim |\n|---|---|---|\n",
    );
    let (share, rss, starter) = idle(20)?;
    println!("policy: idle measured: {share:.6} of a core, {rss} KiB");
    let _ = writeln!(
        out,
        "| agent with nothing to do, 20 s, share of a core | {:.3}% | below 0.1% |",
        share * 100.0
    );
    let _ = writeln!(
        out,
        "| its memory (RSS), and its waiting starter's | {:.1} MB, {:.1} MB | below 20 MB |",
        rss as f64 / 1000.0 * 1.024,
        starter as f64 / 1000.0 * 1.024
    );
    // Side by side, each in a pool of its own: both mostly wait.
    let (sensed, polled) = std::thread::scope(|scope| {
        let polled = scope.spawn(|| polled(trials));
        (sensed(trials), polled.join().unwrap_or_else(|_| Err("a measurement broke off".into())))
    });
    let (took, of) = sensed?;
    let _ = writeln!(
        out,
        "| key typed to the last process stopped, sensed at once, {} of {of} trials, p50 / p99 | {} | |",
        took.len(),
        quantiles(took)
    );
    let (beyond, decided, of) = polled?;
    let _ = writeln!(
        out,
        "| poll that sees the owner (scripted, each second) to the last process stopped, {} of {of} trials ({} \
         suspensions), p50 / p99 | {} | |",
        beyond.len(),
        decided.len(),
        quantiles(beyond)
    );
    out.push_str(&super::saving::rows(quick)?);
    Ok(out)
}
