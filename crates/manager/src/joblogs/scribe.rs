//! The process that writes one user's logs, as the manager sees it: it is asked, waited for, and killed when it does not answer.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::time::Duration;

use starter::frame::{self, Buffer};
use starter::logbook::{Become, Errand, FromScribe, ToScribe};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// How long one log may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Killed processes of one user that do not end, because their file system lets nobody go.
const STUCK: usize = 4;

/// Why something was not written.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nobody will ever write logs for this user.
    Refused(String),
    /// Nobody can write logs for this user at present.
    Absent(String),
    /// Whoever wrote has ended.
    Ended(String),
    /// Whoever wrote took too long, and was killed.
    Hung(String),
}

/// One user's scribe, whether or not there is a process at present.
#[derive(Debug)]
pub(super) struct Scribe {
    owner: String,
    private: bool,
    process: Option<Process>,
    stuck: Vec<Child>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stream: UnixStream,
    buffer: Buffer,
}

impl Scribe {
    pub(super) fn new(owner: &str, private: bool) -> Self {
        Self { owner: owner.to_owned(), private, process: None, stuck: Vec::new() }
    }

    /// Sends errands and hands out as many answers, in order.
    pub(super) async fn ask(
        &mut self,
        errands: Vec<Errand>,
        answers: usize,
        mut each: impl FnMut(FromScribe),
    ) -> Result<(), Failed> {
        if self.process.is_none() {
            self.start().await?;
        }
        let Some(mut process) = self.process.take() else { return Ok(()) };
        match process.ask(errands, answers, &mut each).await {
            Ok(()) => self.process = Some(process),
            Err(failed) => {
                self.end(process);
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Nothing is to be written for a while.
    pub(super) fn rest(&mut self) {
        // It ends when its connection does; whoever collects the tokio runtime's children collects it.
        self.process = None;
        self.stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    async fn start(&mut self) -> Result<(), Failed> {
        self.stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.stuck.len() >= STUCK {
            return Err(Failed::Absent(format!(
                "{STUCK} processes that wrote logs hang in a file system that does not answer"
            )));
        }
        let begun =
            |e: std::io::Error| Failed::Absent(format!("cannot start a process that writes logs: {e}"));
        let mut process = Process::spawn().map_err(begun)?;
        let who = Become { owner: self.owner.clone(), private: self.private };
        let mut refused = None;
        let became = process
            .ask(vec![Errand::Become(who)], 1, &mut |answer| {
                refused = answer.never.then_some(answer.error);
            })
            .await;
        if let Err(Failed::Ended(why) | Failed::Hung(why)) = became {
            self.end(process);
            return Err(Failed::Absent(why));
        }
        if let Some(why) = refused {
            return Err(Failed::Refused(why));
        }
        self.process = Some(process);
        Ok(())
    }

    fn end(&mut self, mut process: Process) {
        let _ = process.child.start_kill();
        self.stuck.push(process.child);
    }
}

impl Process {
    fn spawn() -> std::io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        // This program, also when its file was replaced meanwhile.
        let child = Command::new("/proc/self/exe")
            .arg0("updraft")
            .arg("scribe")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, stream: UnixStream::from_std(ours)?, buffer: Buffer::default() })
    }

    async fn ask(
        &mut self,
        errands: Vec<Errand>,
        answers: usize,
        each: &mut impl FnMut(FromScribe),
    ) -> Result<(), Failed> {
        let mut bytes = Vec::new();
        for errand in errands {
            frame::put(&ToScribe { errand: Some(errand) }, &mut bytes);
        }
        let (mut reading, mut writing) = self.stream.split();
        let buffer = &mut self.buffer;
        let say = |e: std::io::Error| Failed::Ended(format!("the process that writes logs is gone: {e}"));
        let write = async { writing.write_all(&bytes).await.map_err(say) };
        let read = async {
            let mut chunk = vec![0; 16 << 10];
            for _ in 0..answers {
                let answer = loop {
                    if let Some(answer) =
                        frame::take::<FromScribe>(buffer).map_err(|e| Failed::Ended(e.to_string()))?
                    {
                        break answer;
                    }
                    let got = tokio::time::timeout(PATIENCE, reading.read(&mut chunk)).await;
                    let silent =
                        |_| Failed::Hung(format!("writing it took longer than {} s", PATIENCE.as_secs()));
                    match got.map_err(silent)?.map_err(say)? {
                        0 => return Err(Failed::Ended("the process that writes logs has ended".to_owned())),
                        n => buffer.extend(&chunk[..n]),
                    }
                };
                each(answer);
            }
            Ok(())
        };
        tokio::try_join!(write, read).map(drop)
    }
}
