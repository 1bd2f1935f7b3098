//! What an innocent user of a shared pool notices while another attacks its doors: submit to start, with the attacker on one core,
//! against the same with a busy loop in the attacker's place.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Endpoint};
use model::JobTemplate;
use model::event::Kind;
use trust::token::Token;

use super::pool::{Pool, Stopped, fail, job, program, tempdir, wait_for_machine};
use crate::is_root;

type Result<T> = std::result::Result<T, String>;

/// Users who are not each other.
const INNOCENT: &str = "65534";
const ATTACKER: &str = "1";

/// What attackers do, and for people.
const ATTACKS: [(&str, &str); 7] = [
    ("submits", "3 submits of 60 MiB at a time, of empty columns"),
    ("tables", "2 submits of 30 MiB at a time, which are right but for their last column"),
    ("reads", "40 reads at a time of a cluster of a million jobs"),
    ("streams", "1,200 event streams that nobody reads"),
    ("silent", "4,200 connections that say nothing, at each door"),
    ("bodies", "30 submits of 60 MiB at a time, without a credential"),
    ("tokens", "64 wrong tokens at a time"),
];

pub(crate) fn run(quick: bool) -> Result<String> {
    if !is_root() {
        return Err("the attacker and the attacked are different users: this needs root".into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(fail("runtime"))?.block_on(measure(if quick { 30 } else { 200 }))
}

async fn measure(jobs: usize) -> Result<String> {
    let mut out = format!(
        "## Attacks\n\nSubmit to start of a user's jobs, one after another ({jobs} each), while another user attacks on one core; \
         beside it the same with a busy loop on that core, measured just before. The bar: ten times as long.\n\n\
         | attack | p50 / p99 | with a busy loop | p50, p99 as long |\n|---|---|---|---|\n"
    );
    for (name, what) in ATTACKS {
        let busy = measure_one("busy", jobs).await?;
        let attacked = measure_one(name, jobs).await?;
        let times = |part: f64| at(&attacked, part) / at(&busy, part);
        let shown = |all: &[f64]| format!("{:.1} / {:.1} ms", at(all, 0.5), at(all, 0.99));
        let (p50, p99) = (times(0.5), times(0.99));
        let row = format!("| {what} | {} | {} | {p50:.1}, {p99:.1} |", shown(&attacked), shown(&busy));
        println!("{row}");
        let _ = writeln!(out, "{row}");
    }
    Ok(out)
}

fn at(sorted: &[f64], part: f64) -> f64 {
    sorted.get((sorted.len().saturating_sub(1) as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

/// A pool of its own, an attacker, and how long the innocent user waits; sorted.
async fn measure_one(attack: &str, jobs: usize) -> Result<Vec<f64>> {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir()?;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).map_err(fail("temporary directory"))?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(fail("a port"))?.port();
    let address = format!("127.0.0.1:{port}");
    let pool = Pool::start_with(dir, &["--shared", "--cpus", "2", "--listen", &address])?;
    wait_for_machine(&pool.client().await?).await?;
    let socket = pool.dir.path().join("state/manager.sock");
    let token = Command::new(program())
        .args(["token", "create", "--role", "READ", "--user", "eve", "--state-dir"])
        .arg(pool.dir.path().join("state"))
        .output()
        .map_err(fail("updraft token"))?;
    let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
    let attacker = as_user(ATTACKER, Some("0"), &["attack", attack], &[&socket.to_string_lossy(), &address])?
        // Not an argument: those can be seen by everybody on this machine.
        .env(TOKEN, token)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail("the attacker"))?;
    let mut attacker = Stopped(attacker);
    // It says when it has begun.
    if let Some(told) = &mut attacker.0.stdout {
        told.read_exact(&mut [0]).map_err(fail("the attacker"))?;
    }
    let innocent =
        as_user(INNOCENT, None, &["attack", "innocent"], &[&socket.to_string_lossy(), &jobs.to_string()])?
            .output()
            .map_err(fail("the innocent user"))?;
    drop(attacker);
    let told = String::from_utf8_lossy(&innocent.stdout);
    let mut times: Vec<f64> = told.lines().filter_map(|line| line.parse().ok()).collect();
    if times.len() != jobs {
        let why = String::from_utf8_lossy(&innocent.stderr).into_owned();
        return Err(format!("{} of {jobs} jobs during {attack}: {why}", times.len()));
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Where the attacker finds its token.
const TOKEN: &str = "UPDRAFT_TOKEN";

/// This program again, as another user, on one core or on all.
fn as_user(user: &str, core: Option<&str>, words: &[&str], more: &[&str]) -> Result<Command> {
    let own = std::env::current_exe().map_err(fail("this program"))?;
    let mut command = Command::new(if core.is_some() { "taskset" } else { "setpriv" });
    if let Some(core) = core {
        command.args(["-c", core, "setpriv"]);
    }
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(own).args(words).args(more);
    command.current_dir("/").stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// What the other processes of this benchmark do: attack until they are stopped, or use the pool as people do.
pub(crate) fn play(words: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(fail("runtime"))?;
    match words {
        ["innocent", socket, jobs] => {
            let jobs = jobs.parse().map_err(|_| "how many jobs?".to_owned())?;
            runtime.block_on(use_pool(Path::new(socket), jobs))
        }
        [attack, socket, address] => {
            let token = std::env::var(TOKEN).map_err(|_| format!("{TOKEN} is not set"))?;
            let token: Token = token.parse().map_err(|_| "the token is none".to_owned())?;
            let socket = Path::new(socket);
            match *attack {
                "busy" => busy(),
                "submits" => submit_over(socket, 3, &[0x2a, 0].repeat(30 << 20)),
                "tables" => submit_over(socket, 2, &table()),
                "reads" => read_over(&runtime, socket),
                "streams" => open_streams(socket),
                "silent" => open_silently(socket, address),
                "bodies" => runtime.block_on(submit_unknown(address, &token)),
                "tokens" => runtime.block_on(guess(address, &token)),
                _ => Err(format!("there is no attack {attack}")),
            }
        }
        _ => Err("attack NAME SOCKET ADDRESS TOKEN".into()),
    }
}

fn begun() -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(b"!").and_then(|()| out.flush()).map_err(fail("standard output"))
}

async fn use_pool(socket: &Path, jobs: usize) -> Result<()> {
    let told = |e: client::Error| e.to_string();
    let client = Client::connect(&Endpoint::Unix(socket.to_owned()), None).await.map_err(told)?;
    let mut events = client.events(None, None, true).await.map_err(told)?;
    for n in 0..jobs {
        let start = Instant::now();
        let cluster = client.submit(&job(1), &format!("innocent {n}")).await.map_err(told)?.cluster;
        loop {
            let line = events.next().await.map_err(told)?.ok_or("the events end")?;
            match line.event.kind {
                Some(Kind::JobStarted(e)) if e.cluster == cluster => {
                    println!("{:.3}", start.elapsed().as_secs_f64() * 1e3);
                }
                Some(Kind::JobExited(e)) if e.cluster == cluster => break,
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn busy() -> Result<()> {
    begun()?;
    loop {
        std::hint::black_box(());
    }
}

/// A template in protobuf that is right until its end.
fn table() -> Vec<u8> {
    let mut template = JobTemplate::of(1);
    template.procs = 3_000_000;
    template.per_row = 1;
    template.columns.push((0..3_000_000).map(|n| if n % 2 == 0 { "a" } else { "bb" }).collect());
    template.columns.push(["too short"].into_iter().collect());
    prost::Message::encode_to_vec(&template)
}

fn post(socket: &Path, path: &str, body: &[u8]) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // It may answer before it has read everything.
    let _ = stream.write_all(body);
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

fn submit_over(socket: &Path, at_a_time: usize, body: &[u8]) -> Result<()> {
    begun()?;
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let _ = post(socket, "/v1/submit", body);
                }
            });
        }
    });
    Ok(())
}

fn read_over(runtime: &tokio::runtime::Runtime, socket: &Path) -> Result<()> {
    let told = |e: client::Error| e.to_string();
    runtime.block_on(async {
        let client = Client::connect(&Endpoint::Unix(socket.to_owned()), None).await.map_err(told)?;
        let mut many = job(1_000_000);
        many.set("Requirements", "TARGET.Machine == \"none\"");
        let cluster = client.submit(&many, "many").await.map_err(told)?.cluster;
        begun()?;
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let client = client.clone();
            readers.spawn(async move {
                loop {
                    let _ = client.text(&format!("/v1/clusters/{cluster}?jobs=100000")).await;
                }
            });
        }
        readers.join_next().await;
        Ok(())
    })
}

fn open_streams(socket: &Path) -> Result<()> {
    let ask = b"GET /v1/events?from=0 HTTP/1.1\r\nHost: x\r\n\r\n";
    let open = || {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.write_all(ask).ok()?;
        Some(stream)
    };
    let mut streams: Vec<UnixStream> = (0..1_200).filter_map(|_| open()).collect();
    begun()?;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        streams.truncate(1_100);
        streams.extend((0..100).filter_map(|_| open()));
    }
}

fn open_silently(socket: &Path, address: &str) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).map_err(|e| e.to_string())?;
    let address: SocketAddr = address.parse().map_err(|_| "no address".to_owned())?;
    let patience = Duration::from_millis(200);
    let mut is_told = false;
    loop {
        let unix: Vec<_> = (0..4_200).map_while(|_| UnixStream::connect(socket).ok()).collect();
        let tcp: Vec<_> =
            (0..4_200).map_while(|_| TcpStream::connect_timeout(&address, patience).ok()).collect();
        if !is_told {
            begun()?;
            is_told = true;
        }
        std::thread::sleep(Duration::from_secs(5));
        drop((unix, tcp));
    }
}

fn endpoint(address: &str, token: &Token) -> Endpoint {
    Endpoint::Tls { address: address.to_owned(), ca_fingerprint: token.ca_fingerprint, credentials: None }
}

async fn submit_unknown(address: &str, token: &Token) -> Result<()> {
    let mut template = JobTemplate::of(1);
    template.columns.push(["x".repeat(60 << 20)].iter().collect());
    let template = std::sync::Arc::new(template);
    begun()?;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let (endpoint, template) = (endpoint(address, token), template.clone());
        callers.spawn(async move {
            loop {
                if let Ok(client) = Client::connect(&endpoint, None).await {
                    let _ = client.submit(&template, "").await;
                }
            }
        });
    }
    callers.join_next().await;
    Ok(())
}

async fn guess(address: &str, token: &Token) -> Result<()> {
    let mut wrong = token.reveal();
    let last = wrong.pop();
    wrong.push(if last == Some('A') { 'B' } else { 'A' });
    let wrong: Token = wrong.parse().map_err(|_| "the wrong token is none at all".to_owned())?;
    begun()?;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (endpoint, wrong) = (endpoint(address, token), wrong.clone());
        callers.spawn(async move {
            loop {
                if let Ok(client) = Client::connect(&endpoint, Some(&wrong)).await {
                    let _ = client.about().await;
                }
            }
        });
    }
    callers.join_next().await;
    Ok(())
}
