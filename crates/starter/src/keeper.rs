//! A keeper: a process beside each starter that outlives it, and ends whatever a job has started when its starter ends or
//! stops answering. Nobody's help is needed, and no control group.
//!
//! A keeper is its starter's parent and adopts orphans (`PR_SET_CHILD_SUBREAPER`). When the starter is gone, the kernel makes
//! everything that was below it the keeper's, however often it forked or changed its session; the keeper kills it and ends
//! with the starter's result. The starter tells it until when its lease runs; a starter that has not moved that moment
//! when it has passed is killed. A kernel timer lets a stopped keeper (and a stopped starter) go on at that moment. A
//! starter whose keeper is gone ends its claim. Why it is so: docs/decisions/027.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::{Fatal, fatal};
use crate::sys::{self, Reaped, Waker, Watch};
use crate::{cgroup, leftovers};

/// Names the starter's end of its connection to its keeper.
const VARIABLE: &str = "UPDRAFT_KEEPER";
/// A starter ends its job at the end of its lease; so much later its keeper does. The manager waits a second longer.
const MARGIN_US: u64 = 400_000;
/// What a keeper was told.
const UNTIL: u8 = b'u';
const GROUP: u8 = b'g';
const LOCK: u8 = b'l';

/// A starter's end of the connection to its keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: UnixDatagram,
    pid: i32,
    waker: Option<Waker>,
}

impl Keeper {
    /// The keeper that started us. `None` for a starter without one, as tests have them.
    pub(crate) fn find() -> io::Result<Option<Self>> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|n| n.parse::<i32>().ok()) else {
            return Ok(None);
        };
        if number < 3 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: our keeper left us this descriptor, and nobody else here knows of it.
        let socket = unsafe { UnixDatagram::from_raw_fd(number) };
        sys::set_close_on_exec(socket.as_fd())?;
        socket.set_nonblocking(true)?;
        sys::hear_of_parents_death(libc::SIGUSR2)?;
        Ok(Some(Self { pid: sys::parent_pid(), socket, waker: Some(Waker::new()?) }))
    }

    /// False when it has died.
    pub(crate) fn is_alive(&self) -> bool {
        sys::parent_pid() == self.pid
    }

    /// Until when we may run without another word of ours.
    pub(crate) fn set_until(&self, until_us: u64) {
        if let Some(waker) = &self.waker {
            waker.set(until_us);
        }
        let mut message = vec![UNTIL];
        message.extend_from_slice(&until_us.to_le_bytes());
        // It is woken by each and reads all of them; a full queue means that it will.
        let _ = self.socket.send(&message);
    }

    /// The control group of our jobs.
    pub(crate) fn set_group(&self, dir: &Path) {
        let mut message = vec![GROUP];
        message.extend_from_slice(dir.as_os_str().as_bytes());
        let _ = self.socket.send(&message);
    }

    /// Our lock is held until nothing of the claim is left: by the keeper, should we die.
    pub(crate) fn share_lock(&self, lock: &File) -> io::Result<()> {
        sys::send_with_descriptor(self.socket.as_fd(), &[LOCK], lock.as_fd())
    }
}

/// A keeper's life: starts a starter on our standard input, and sees that nothing outlives it. Returns whether it ended well.
pub fn keep() -> Result<bool, Fatal> {
    sys::new_session();
    sys::become_subreaper().map_err(fatal("cannot adopt orphans"))?;
    let signals = sys::signal_descriptor().map_err(fatal("cannot receive signals"))?;
    let (ours, theirs) = UnixDatagram::pair().map_err(fatal("cannot make a connection to the starter"))?;
    ours.set_nonblocking(true).map_err(fatal("cannot use the connection to the starter"))?;
    let child = start(theirs.into()).map_err(fatal("cannot start a starter"))?;
    // The agent must see the end of the starter's connection when the starter ends.
    sys::close_standard_input().map_err(fatal("cannot give up the agent's connection"))?;
    let waker = Waker::new().map_err(fatal("cannot make a timer"))?;
    let mut watched = Watched { starter: child.id() as i32, until_us: None, group: None, lock: None };
    let ended_well = loop {
        let now = sys::mono_us();
        let overdue = watched.until_us.is_some_and(|until| now >= until + MARGIN_US);
        if overdue {
            eprintln!("keeper: starter {} does not answer and its lease has run out: killing it", child.id());
            break watched.kill_starter();
        }
        let wait_us = watched.until_us.map_or(3_600_000_000, |until| until + MARGIN_US - now);
        let mut watches = [
            Watch { fd: signals.as_fd(), write: false, ready: false },
            Watch { fd: ours.as_fd(), write: false, ready: false },
        ];
        let timeout_ms = wait_us.div_ceil(1000).min(3_600_000) as i32;
        sys::poll(&mut watches, timeout_ms).map_err(fatal("cannot wait"))?;
        watched.hear(ours.as_fd());
        if let Some(until) = watched.until_us {
            waker.set(until + MARGIN_US);
        }
        let mut told_to_kill = false;
        while let Some(signal) = sys::next_signal(signals.as_fd()) {
            told_to_kill |= signal == libc::SIGUSR1;
        }
        if told_to_kill {
            break watched.kill_starter();
        }
        if let Some(well) = watched.collect() {
            break well;
        }
    };
    // A starter's last words may be about its lock or its group.
    watched.hear(ours.as_fd());
    watched.clear();
    Ok(ended_well)
}

fn start(connection: OwnedFd) -> io::Result<Child> {
    let number = connection.as_raw_fd();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("updraft").arg("starter").env(VARIABLE, number.to_string()).stdin(Stdio::inherit());
    // SAFETY: between fork and exec only system calls on numbers are made.
    unsafe {
        command.pre_exec(move || {
            sys::unblock_signals()?;
            sys::keep_on_exec(BorrowedFd::borrow_raw(number))
        });
    }
    command.spawn()
}

/// What a keeper watches over.
struct Watched {
    starter: i32,
    /// Unknown before the starter has a claim: it waits as long as its agent lets it.
    until_us: Option<u64>,
    group: Option<PathBuf>,
    /// Held until we end.
    lock: Option<OwnedFd>,
}

impl Watched {
    /// What the starter has told us.
    fn hear(&mut self, socket: BorrowedFd<'_>) {
        let mut message = [0; 4097];
        while let Ok((len, descriptor)) = sys::receive_with_descriptor(socket, &mut message) {
            match message[..len].split_first() {
                Some((&UNTIL, bytes)) => {
                    self.until_us = bytes.try_into().ok().map(u64::from_le_bytes).or(self.until_us);
                }
                Some((&GROUP, bytes)) => {
                    self.group = Some(PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec())));
                }
                Some((&LOCK, _)) => self.lock = descriptor.or(self.lock.take()),
                Some(_) => {}
                None => break,
            }
        }
    }

    /// Collects whoever has ended; `Some` when the starter has: did it end well?
    fn collect(&self) -> Option<bool> {
        loop {
            match sys::reap() {
                Reaped::Ended(child) if child.pid == self.starter => return Some(child.exit.code == Some(0)),
                Reaped::Ended(_) => {}
                Reaped::NoneEnded => return None,
                Reaped::NoChildren => return Some(false),
            }
        }
    }

    fn kill_starter(&self) -> bool {
        sys::signal(self.starter, libc::SIGKILL);
        false
    }

    /// Ends everything that is left. What cannot be killed is stuck in the kernel and runs no further.
    fn clear(&self) {
        let killed = self.group.as_ref().map_or(0, |group| cgroup::kill_group(group));
        if !leftovers::kill_children() {
            eprintln!("keeper: processes of a job are stuck in the kernel; they end when it lets them");
        }
        if killed > 0 {
            eprintln!("keeper: killed {killed} processes that outlived their starter {}", self.starter);
        }
    }
}
