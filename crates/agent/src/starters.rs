//! Starter processes: spawning, adopting, reading what dead ones left.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use starter::frame::{self, Buffer};
use starter::wire::{FromStarter, Order, Report, ToStarter, Word};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// What happens to a starter, for the loop.
#[derive(Debug)]
pub(crate) enum News {
    /// It said something.
    Said(u64, Word),
    /// It is gone, nothing of its claim is alive, and this is what it left.
    Gone { claim: u64, left: Vec<Report>, orderly: bool },
}

/// The way to a starter.
#[derive(Debug)]
pub(crate) struct Orders {
    sender: mpsc::UnboundedSender<Order>,
    pid: Arc<AtomicU32>,
    /// What ends it: its keeper is told to, or it is killed itself, which its keeper notices.
    killer: rustix::process::Signal,
}

impl Orders {
    pub(crate) fn send(&self, order: Order) {
        // One that is gone is reported as gone.
        let _ = self.sender.send(order);
    }

    /// Kills a starter that does not do what it is told. What its job leaves is found when it is buried.
    pub(crate) fn kill(&self) {
        let pid = self.pid.load(Ordering::Relaxed);
        if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, self.killer);
        }
    }
}

/// A starter that waits for a claim.
pub(crate) struct Spare {
    child: Child,
    stream: UnixStream,
}

impl Spare {
    /// False when it died while it waited.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Starts a keeper with its starter, which waits, ready, on its end of a socket pair.
pub(crate) fn spawn(program: &Path, log_dir: &Path) -> std::io::Result<Spare> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log_dir.join("starter.log"))?;
    let child = Command::new(program)
        .arg("keeper")
        .current_dir("/")
        .env_clear()
        // For people who wonder whose process this is.
        .env("UPDRAFT_AGENT_STATE", log_dir)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok(Spare { child, stream: UnixStream::from_std(ours)? })
}

/// Gives a spare its claim and listens to it from then on.
pub(crate) fn employ(
    spare: Spare,
    claim: u64,
    dir: PathBuf,
    marker: String,
    news: mpsc::Sender<News>,
) -> Orders {
    let (orders, receiver) = mpsc::unbounded_channel();
    let pid = Arc::new(AtomicU32::new(spare.child.id().unwrap_or(0)));
    let told = pid.clone();
    tokio::spawn(async move {
        talk(claim, spare.stream, receiver, &news).await;
        let mut child = spare.child;
        let status = child.wait().await.ok();
        told.store(0, Ordering::Relaxed);
        // A keeper that ended by itself has left nothing. Only after one that was killed is there anything to look for, in
        // every process of the machine; and one of those may be made to keep waiting whoever looks at it.
        let cleared = status.is_some_and(|status| status.code().is_some());
        let marker = (!cleared).then_some(marker);
        let orderly = status.is_some_and(|status| status.success());
        bury(claim, dir, marker, orderly, &news).await;
    });
    Orders { sender: orders, pid, killer: rustix::process::Signal::USR1 }
}

/// Takes over a starter that outlived its agent, or reads what it left.
pub(crate) fn adopt(claim: u64, dir: PathBuf, marker: String, news: mpsc::Sender<News>) -> Orders {
    let (orders, receiver) = mpsc::unbounded_channel();
    let pid = Arc::new(AtomicU32::new(0));
    let told = pid.clone();
    tokio::spawn(async move {
        // A living starter must not be buried: one that has its lock but not yet its socket will have it in a moment,
        // and one that is stuck ends with its lease.
        let connected = loop {
            let connected = starter::connect(&dir).and_then(|stream| {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream)
            });
            if connected.is_ok() || !starter::is_alive(&dir) {
                break connected.ok();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        if let Some(stream) = connected {
            tracing::info!(claim, "adopting a starter");
            let pid = stream.peer_cred().ok().and_then(|c| c.pid()).and_then(|p| u32::try_from(p).ok());
            told.store(pid.unwrap_or(0), Ordering::Relaxed);
            talk(claim, stream, receiver, &news).await;
        }
        // The end of its words comes a moment before the end of its life.
        while starter::is_alive(&dir) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        told.store(0, Ordering::Relaxed);
        let orderly = starter::ended_well(&dir);
        bury(claim, dir, (!orderly).then_some(marker), orderly, &news).await;
    });
    Orders { sender: orders, pid, killer: rustix::process::Signal::KILL }
}

/// Passes words both ways until the starter is gone.
async fn talk(
    claim: u64,
    stream: UnixStream,
    mut orders: mpsc::UnboundedReceiver<Order>,
    news: &mpsc::Sender<News>,
) {
    let (mut read, mut write) = stream.into_split();
    let writer = tokio::spawn(async move {
        let mut bytes = Vec::new();
        while let Some(order) = orders.recv().await {
            frame::put(&ToStarter { order: Some(order) }, &mut bytes);
            while let Ok(order) = orders.try_recv() {
                frame::put(&ToStarter { order: Some(order) }, &mut bytes);
            }
            if write.write_all(&bytes).await.is_err() {
                return;
            }
            bytes.clear();
        }
        // Nobody will give orders any more, but the starter may still have something to say.
        std::future::pending::<()>().await;
    });
    let mut buffer = Buffer::default();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match read.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(n) => buffer.extend(&chunk[..n]),
        }
        loop {
            match frame::take::<FromStarter>(&mut buffer) {
                Ok(Some(FromStarter { word: Some(word) })) => {
                    if news.send(News::Said(claim, word)).await.is_err() {
                        break;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(claim, %error, "a starter talks nonsense");
                    break;
                }
            }
        }
    }
    writer.abort();
}

/// Makes sure that nothing of a claim is alive (with its marker, when somebody may have been left), and reads its outcomes.
async fn bury(claim: u64, dir: PathBuf, marker: Option<String>, orderly: bool, news: &mpsc::Sender<News>) {
    let left = tokio::task::spawn_blocking(move || {
        if let Some(marker) = marker {
            let group = std::fs::read_to_string(dir.join(starter::GROUP)).unwrap_or_default();
            let killed = starter::cgroup::kill_group(Path::new(&group))
                + starter::leftovers::kill_marked(starter::CLAIM_VARIABLE, &[marker].into());
            if killed > 0 {
                tracing::warn!(claim, killed, "killed what a dead starter's job left behind");
            }
        }
        starter::spool::read(&dir.join(starter::OUTCOMES)).unwrap_or_default()
    });
    let left = left.await.unwrap_or_default();
    let bytes: usize = left.iter().map(prost::Message::encoded_len).sum();
    tracing::debug!(claim, reports = left.len(), bytes, orderly, "starter gone");
    let _ = news.send(News::Gone { claim, left, orderly }).await;
}
