//! The pool end to end: spawn rate, throughput, submit rates, latency, memory, restart; each beside its raw limit.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{Client, Endpoint};
use model::JobTemplate;
use model::event::Kind;

use crate::root;

type Result<T> = std::result::Result<T, String>;

pub(super) fn fail(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

pub(super) fn program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("release/updraft")
}

/// A running `updraft up`, killed with its starters at the end.
pub(super) struct Pool {
    child: Stopped,
    pub(super) dir: tempfile::TempDir,
}

impl Pool {
    fn start(dir: tempfile::TempDir, cpus: &str) -> Result<Self> {
        Self::start_with(dir, &["--cpus", cpus])
    }

    pub(super) fn start_with(dir: tempfile::TempDir, more: &[&str]) -> Result<Self> {
        let child = Command::new(program())
            .args(["--log", "error", "up", "--lease", "30", "--state-dir"])
            .arg(dir.path().join("state"))
            .args(more)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(fail("updraft up"))?;
        Ok(Self { child: Stopped(child), dir })
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.dir.path().join("state/manager.sock"))
    }

    pub(super) async fn client(&self) -> Result<Client> {
        let start = Instant::now();
        loop {
            match Client::connect(&self.endpoint(), None).await {
                Ok(client) if client.status(None, false).await.is_ok() => return Ok(client),
                _ if start.elapsed() > Duration::from_secs(60) => {
                    return Err("the pool does not answer".into());
                }
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    fn rss_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    fn cpu_seconds(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.0.id())).unwrap_or_default();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    fn kill(self) -> tempfile::TempDir {
        let Self { mut child, dir } = self;
        let _ = child.0.kill();
        let _ = child.0.wait();
        dir
    }
}

pub(super) fn tempdir() -> Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("updraft-bench-").tempdir().map_err(fail("temporary directory"))
}

pub(super) fn job(procs: u32) -> JobTemplate {
    let mut template = JobTemplate::of(procs);
    for (name, expr) in [
        ("Cmd", "\"/bin/true\""),
        ("Iwd", "\"/\""),
        ("In", "\"/dev/null\""),
        ("Out", "\"/dev/null\""),
        ("Err", "\"/dev/null\""),
        ("Arguments", "\"\""),
        ("RequestCpus", "1"),
        ("RequestMemory", "16"),
        ("Requirements", "TARGET.OpSys == \"LINUX\" && TARGET.Memory >= RequestMemory"),
        ("JobPrio", "0"),
    ] {
        template.set(name, expr);
    }
    template
}

pub(crate) fn run(quick: bool) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(fail("runtime"))?.block_on(measure(quick))
}

async fn measure(quick: bool) -> Result<String> {
    let scale = if quick { 1 } else { 4 };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut out = String::from(
        "## Pool\n\n| what | figure | raw limit or peer, same minute | share |\n|---|---|---|---|\n",
    );
    let mut row = |what: &str, figure: String, limit: String, share: String| {
        let _ = writeln!(out, "| {what} | {figure} | {limit} | {share} |");
    };

    let raw = raw_spawn_rate(cores, Duration::from_secs(2 * u64::from(scale)));
    row(
        "processes started and waited for, nothing else",
        format!("{raw:.0}/s"),
        format!("{cores} threads"),
        String::new(),
    );
    let sync = raw_sync_rate()?;
    row("4 KiB appended and synced", format!("{sync:.0}/s"), "one file".into(), String::new());

    let jobs = 5_000 * scale;
    let xargs = xargs_rate(jobs, cores)?;
    row(
        "no-op jobs, xargs -P (keeps no record)",
        format!("{xargs:.0}/s"),
        format!("{raw:.0}/s spawn"),
        percent(xargs, raw),
    );
    let (rate, cpu_ms) = throughput(jobs, &cores.to_string()).await?;
    // The machine may be shared: the raw rate of just before and just after.
    let raw = f64::midpoint(raw, raw_spawn_rate(cores, Duration::from_secs(2 * u64::from(scale))));
    row(
        "no-op jobs end to end, every step durable",
        format!("{rate:.0}/s"),
        format!("{raw:.0}/s spawn, before and after"),
        percent(rate, raw),
    );
    row(
        "manager and agent CPU per array job, in one process",
        format!("{cpu_ms:.3} ms"),
        String::new(),
        String::new(),
    );
    let (rate, cpu_ms) = throughput_by_network(jobs, cores).await?;
    row(
        "the same with an agent of its own, over TLS",
        format!("{rate:.0}/s"),
        format!("{raw:.0}/s spawn"),
        percent(rate, raw),
    );
    row(
        "manager CPU per array job, all steps durable",
        format!("{cpu_ms:.3} ms"),
        "bar 0.10 ms".into(),
        String::new(),
    );

    let pool = Pool::start(tempdir()?, "0")?;
    let client = pool.client().await?;
    let single = single_submits(&client, 5_000 * scale).await?;
    row(
        "single submits, one connection, durable",
        format!("{single:.0}/s"),
        format!("{sync:.0} syncs/s"),
        format!("{:.1} a sync", single / sync),
    );
    drop(pool);

    let pool = Pool::start(tempdir()?, "0")?;
    let client = pool.client().await?;
    let before = pool.rss_kib();
    let start = Instant::now();
    client.submit(&job(1_000_000), "").await.map_err(|e| e.to_string())?;
    row(
        "submit of one cluster of 1,000,000 procs",
        ms(start.elapsed()),
        ms(Duration::from_secs_f64(1.0 / sync)) + " a sync",
        String::new(),
    );
    let array = pool.rss_kib().saturating_sub(before);
    let queued = 100_000;
    let before = pool.rss_kib();
    single_submits(&client, queued).await?;
    let separate = (pool.rss_kib().saturating_sub(before)) as f64 * 1024.0 / f64::from(queued);
    row(
        "memory per queued array proc",
        format!("{:.2} B", array as f64 * 1024.0 / 1e6),
        "bar 100 B".into(),
        String::new(),
    );
    row("memory per queued separate job", format!("{separate:.0} B"), "bar 1024 B".into(), String::new());
    row(
        "manager RSS with 1,000,000 array procs and 100,000 separate jobs",
        format!("{} MiB", pool.rss_kib() / 1024),
        String::new(),
        String::new(),
    );
    let dir = pool.kill();
    let start = Instant::now();
    let pool = Pool::start(dir, "0")?;
    let client = pool.client().await?;
    row(
        "kill -9 and restart with those in the queue, to the first answer",
        ms(start.elapsed()),
        "bar 2 s".into(),
        String::new(),
    );
    row("manager RSS after that", format!("{} MiB", pool.rss_kib() / 1024), String::new(), String::new());
    let queue = client.queue(None).await.map_err(|e| e.to_string())?;
    if queue.clusters.len() != queued as usize + 1 {
        return Err(format!("{} clusters after the restart", queue.clusters.len()));
    }
    drop(pool);

    let (open, command) = latency(100 * scale as usize).await?;
    row(
        "submit to start, idle pool, over an open connection, p50 / p99",
        quantiles(open),
        "aim 2 / 4 ms".into(),
        String::new(),
    );
    row("the same with the command's own start", quantiles(command), "bar 8 / 15 ms".into(), String::new());
    Ok(out)
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.0}%", 100.0 * part / whole)
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

pub(super) fn quantiles(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let at =
        |q: f64| times.get((times.len().saturating_sub(1) as f64 * q) as usize).copied().unwrap_or(f64::NAN);
    format!("{:.1} / {:.1} ms", at(0.5), at(0.99))
}

fn raw_spawn_rate(threads: usize, time: Duration) -> f64 {
    let spawn = move || {
        let start = Instant::now();
        let mut count = 0u64;
        while start.elapsed() < time {
            let child = Command::new("/bin/true")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            if child.and_then(|mut c| c.wait()).is_ok() {
                count += 1;
            }
        }
        count as f64 / start.elapsed().as_secs_f64()
    };
    let handles: Vec<_> = (0..threads).map(|_| std::thread::spawn(spawn)).collect();
    handles.into_iter().map(|h| h.join().unwrap_or(0.0)).sum()
}

fn raw_sync_rate() -> Result<f64> {
    let mut file = tempfile::NamedTempFile::new().map_err(fail("temporary file"))?;
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&[0; 4096]).and_then(|()| file.as_file().sync_data()).map_err(fail("sync"))?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn xargs_rate(jobs: u32, threads: usize) -> Result<f64> {
    let start = Instant::now();
    let script = format!("seq {jobs} | xargs -P {threads} -n 1 /bin/true");
    let status = Command::new("sh").args(["-c", &script]).status().map_err(fail("xargs"))?;
    if !status.success() {
        return Err("xargs failed".into());
    }
    Ok(f64::from(jobs) / start.elapsed().as_secs_f64())
}

/// Jobs per second from submit to the last end on disk, and CPU of the daemon per job.
async fn throughput(jobs: u32, cpus: &str) -> Result<(f64, f64)> {
    let pool = Pool::start(tempdir()?, cpus)?;
    run_jobs(&pool, jobs).await
}

/// The same with manager and agent apart, as on two machines: the CPU is the manager's alone.
async fn throughput_by_network(jobs: u32, cores: usize) -> Result<(f64, f64)> {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(fail("port"))?;
    let address = port.to_string();
    let pool = Pool::start_with(tempdir()?, &["--cpus", "0", "--listen", &address])?;
    pool.client().await?;
    let state = pool.dir.path().join("state");
    let token = Command::new(program())
        .args(["token", "create", "--role", "agent", "--state-dir"])
        .arg(&state)
        .output()
        .map_err(fail("updraft token"))?;
    let join = format!("{}@{address}", String::from_utf8_lossy(&token.stdout).trim());
    let agent = Command::new(program())
        .args(["--log", "error", "agent", "--join", &join, "--cpus", &cores.to_string(), "--state-dir"])
        .arg(pool.dir.path().join("agent"))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(fail("updraft agent"))?;
    let _agent = Stopped(agent);
    run_jobs(&pool, jobs).await
}

/// A process that is told to stop at the end.
pub(super) struct Stopped(pub(super) Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

async fn run_jobs(pool: &Pool, jobs: u32) -> Result<(f64, f64)> {
    let client = pool.client().await?;
    wait_for_machine(&client).await?;
    let cpu = pool.cpu_seconds();
    let start = Instant::now();
    let reply = client.submit(&job(jobs), "").await.map_err(|e| e.to_string())?;
    loop {
        let cluster = client.cluster(reply.cluster, 0).await.map_err(|e| e.to_string())?;
        if !cluster.active {
            if cluster.counts.succeeded != u64::from(jobs) {
                return Err(format!("{:?}", cluster.counts));
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = f64::from(jobs) / start.elapsed().as_secs_f64();
    Ok((rate, (pool.cpu_seconds() - cpu) * 1000.0 / f64::from(jobs)))
}

pub(super) async fn wait_for_machine(client: &Client) -> Result<()> {
    for _ in 0..1000 {
        let status = client.status(None, false).await.map_err(|e| e.to_string())?;
        if status.machines.iter().any(|m| m.connected) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err("no machine joined".into())
}

/// Submits per second over one connection, 256 of them under way at a time.
async fn single_submits(client: &Client, count: u32) -> Result<f64> {
    let start = Instant::now();
    let mut under_way = tokio::task::JoinSet::new();
    for _ in 0..count {
        if under_way.len() >= 256 {
            under_way.join_next().await.unwrap_or(Ok(Ok(()))).map_err(|e| e.to_string())??;
        }
        let client = client.clone();
        under_way.spawn(async move { client.submit(&job(1), "").await.map(drop).map_err(|e| e.to_string()) });
    }
    while let Some(done) = under_way.join_next().await {
        done.map_err(|e| e.to_string())??;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn wall_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}

/// Milliseconds from submit to the job's first moment, one at a time on an idle pool: over an open connection, and by a
/// command of its own.
async fn latency(rounds: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let pool = Pool::start(tempdir()?, "2")?;
    let client = pool.client().await?;
    wait_for_machine(&client).await?;
    let mut open = Vec::new();
    let mut command = Vec::new();
    let state = pool.dir.path().join("state");
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let by_command = round % 2 == 1;
        let mut events = client.events(None, None, true).await.map_err(|e| e.to_string())?;
        let before = wall_ms();
        if by_command {
            submit_by_command(&state)?;
        } else {
            client.submit(&job(1), "").await.map_err(|e| e.to_string())?;
        }
        loop {
            let line = events.next().await.map_err(|e| e.to_string())?.ok_or("the events ended")?;
            if let Some(Kind::JobStarted(started)) = line.event.kind {
                let took = (started.started_ms as f64 + 0.5 - before).max(0.0);
                if by_command {
                    command.push(took)
                } else {
                    open.push(took)
                }
                break;
            }
        }
    }
    Ok((open, command))
}

fn submit_by_command(state: &Path) -> Result<()> {
    let status = Command::new(program())
        .args(["submit", "--state-dir"])
        .arg(state)
        .args(["--set", "output=/dev/null", "--set", "error=/dev/null", "--", "/bin/true"])
        .stdout(Stdio::null())
        .status()
        .map_err(fail("updraft submit"))?;
    if status.success() { Ok(()) } else { Err("updraft submit failed".into()) }
}
