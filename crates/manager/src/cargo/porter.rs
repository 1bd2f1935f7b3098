//! A process that touches one user's files, as the manager sees it: it is asked, waited for, and killed when it does not answer.
//! Whoever uses it waits in a thread of its own.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use starter::frame::{self, Buffer};
use starter::logbook::Become;
use starter::porter::{CHUNK_BYTES, FromPorter, Task, ToPorter};

/// How long one answer may take, and how long it may take to read what it is told.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a killed one may take to end.
const END: Duration = Duration::from_millis(200);
/// Killed porters of one user that do not end, because their file system lets nobody go.
const STUCK: usize = 4;

/// Porters that were killed and have not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Stuck(Arc<Mutex<Vec<Killed>>>);

/// Whose it was, and what is left of it.
type Killed = (Arc<str>, Child);

impl Stuck {
    fn count(&self, owner: &str) -> usize {
        let Ok(mut all) = self.0.lock() else { return 0 };
        all.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        all.iter().filter(|(of, _)| **of == *owner).count()
    }
}

/// Why a porter did not do what it was asked.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nobody will ever touch this user's files, or one of them does not answer.
    Refused(String),
    /// It ended or could not be started.
    Gone(String),
}

/// A porter at work.
#[derive(Debug)]
pub(super) struct Porter {
    owner: Arc<str>,
    child: Option<Child>,
    stream: UnixStream,
    buffer: Buffer,
    stuck: Stuck,
}

fn gone(e: io::Error) -> Failed {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failed::Refused(format!(
            "a file of the job's owner did not answer within {} s (a dead file system?)",
            PATIENCE.as_secs()
        )),
        _ => Failed::Gone(format!("the process that touches the owner's files is gone: {e}")),
    }
}

impl Porter {
    /// Starts one, which has become this user when this returns.
    pub(super) fn start(owner: &Arc<str>, private: bool, stuck: &Stuck) -> Result<Self, Failed> {
        if stuck.count(owner) >= STUCK {
            return Err(Failed::Gone(format!(
                "{STUCK} processes that touched the files of {owner} hang in a file system that does not answer"
            )));
        }
        let mut porter = Self::spawn(owner, stuck).map_err(|e| {
            Failed::Gone(format!("cannot start a process that touches the owner's files: {e}"))
        })?;
        porter.tell(Task::Become(Become { owner: owner.to_string(), private }))?;
        let answer = porter.answer()?;
        if !answer.refused.is_empty() {
            return Err(Failed::Refused(answer.refused));
        }
        Ok(porter)
    }

    /// One that is this process's own user.
    pub(super) fn own() -> Result<Self, Failed> {
        let owner = Arc::from(starter::user::name_of(starter::user::own_uid()));
        Self::start(&owner, true, &Stuck::default())
    }

    /// One that nobody answers for, with the other end of its line.
    #[cfg(test)]
    pub(super) fn without_process() -> io::Result<(Self, UnixStream)> {
        let (stream, end) = UnixStream::pair()?;
        let (buffer, stuck) = (Buffer::default(), Stuck::default());
        Ok((Self { owner: Arc::from("nobody"), child: None, stream, buffer, stuck }, end))
    }

    fn spawn(owner: &Arc<str>, stuck: &Stuck) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        // This program, also when its file was replaced meanwhile.
        let child = Command::new("/proc/self/exe")
            .arg0("updraft")
            .arg("porter")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        let (owner, stuck) = (owner.clone(), stuck.clone());
        Ok(Self { owner, child: Some(child), stream: ours, buffer: Buffer::default(), stuck })
    }

    /// Tells it something that it answers later, or not at all.
    pub(super) fn tell(&mut self, task: Task) -> Result<(), Failed> {
        let mut bytes = Vec::new();
        frame::put(&ToPorter { task: Some(task) }, &mut bytes);
        self.stream.write_all(&bytes).map_err(gone)
    }

    /// Its next answer.
    pub(super) fn answer(&mut self) -> Result<FromPorter, Failed> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let taken = frame::take::<FromPorter>(&mut self.buffer);
            if let Some(answer) = taken.map_err(|e| gone(io::Error::other(e)))? {
                return Ok(answer);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.buffer.extend(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(gone(e)),
            }
        }
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let until = Instant::now() + END;
        let mut killed = false;
        loop {
            match child.try_wait() {
                Ok(Some(_)) | Err(_) => return,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) if !killed => {
                    killed = true;
                    let _ = child.kill();
                    std::thread::sleep(END);
                }
                Ok(None) => break,
            }
        }
        if let Ok(mut all) = self.stuck.0.lock() {
            all.push((self.owner.clone(), child));
        }
    }
}

/// What there is of these sources, found with the rights of this process's own user: files, what is wrong, and what is left out.
pub fn list_inputs(
    sources: Vec<transfer::Source>,
) -> Result<(Vec<starter::porter::FoundFile>, transfer::Faults, Vec<String>), String> {
    let words = |failed| match failed {
        Failed::Refused(why) | Failed::Gone(why) => why,
    };
    let mut porter = Porter::own().map_err(words)?;
    super::gather::list(&mut porter, sources).map_err(words)
}
