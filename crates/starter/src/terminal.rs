//! Pseudo-terminals, and what a command of a visitor's needs at its start: a session, a terminal, limits, a parent whose end is its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::raw;
use crate::sys::check;
use crate::wire::Limit;

/// A terminal: the end that shows, and the end that a command has.
pub(crate) fn open(rows: u16, columns: u16) -> io::Result<(File, OwnedFd)> {
    // SAFETY: descriptors that the kernel has just made and nobody else owns; the peer is opened without a path.
    unsafe {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let ours = File::from_raw_fd(check(libc::posix_openpt(flags))?);
        check(libc::grantpt(ours.as_raw_fd()))?;
        check(libc::unlockpt(ours.as_raw_fd()))?;
        let theirs = check(libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
        let theirs = OwnedFd::from_raw_fd(theirs);
        resize(&ours, rows, columns)?;
        Ok((ours, theirs))
    }
}

/// The terminal has so many lines and columns from now on; whoever uses it is told.
pub(crate) fn resize(terminal: &File, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads a structure on our stack.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).map(drop)
}

/// Reading from and writing to it does not wait.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: flags of a descriptor that is open.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)).map(drop)
    }
}

/// Has a command begin a session of its own, with its standard input as its terminal when it has one; it has a job's niceness and
/// limits, and ends with whoever started it.
pub(crate) fn prepare(command: &mut Command, has_terminal: bool, nice: i32, limits: Vec<Limit>) {
    let parent = crate::sys::own_pid();
    // SAFETY: after the fork only system calls on numbers are made, and data is read that was there before.
    unsafe {
        command.pre_exec(move || {
            raw::reset_signals().map_err(io::Error::from_raw_os_error)?;
            check(libc::setsid())?;
            if has_terminal {
                check(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
            }
            if nice != 0 {
                let now = libc::getpriority(libc::PRIO_PROCESS, 0);
                check(libc::setpriority(libc::PRIO_PROCESS, 0, (now + nice).min(19)))?;
            }
            for limit in &limits {
                raw::lower_limit(limit.resource, limit.value).map_err(io::Error::from_raw_os_error)?;
            }
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
            if libc::getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
}

/// What is waited for on a descriptor, and what came.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// There is something to read, or nobody is at the other end.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Nobody is at the other end.
    pub(crate) is_broken: bool,
}

impl<'a> Wish<'a> {
    pub(crate) fn new(fd: BorrowedFd<'a>, reads: bool, writes: bool) -> Self {
        Self { fd, reads, writes, readable: false, writable: false, is_broken: false }
    }
}

/// Waits until one of these is so or broken, or the time is over.
pub(crate) fn wait(wishes: &mut [Wish<'_>], timeout_ms: i32) -> io::Result<()> {
    let mut fds: Vec<libc::pollfd> = wishes
        .iter()
        .map(|w| libc::pollfd {
            fd: w.fd.as_raw_fd(),
            events: if w.reads { libc::POLLIN } else { 0 } | if w.writes { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    // SAFETY: the pointer and the length describe `fds`.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
        _ => {}
    }
    for (wish, fd) in wishes.iter_mut().zip(&fds) {
        let broken = fd.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        wish.is_broken = broken;
        wish.readable = wish.reads && (broken || fd.revents & libc::POLLIN != 0);
        wish.writable = wish.writes && (broken || fd.revents & libc::POLLOUT != 0);
    }
    Ok(())
}

/// Where a process lives: its mounts, and its numbers when those are its own too.
#[derive(Debug)]
pub(crate) struct Surroundings {
    mounts: OwnedFd,
    numbers: Option<OwnedFd>,
}

impl Surroundings {
    /// Those of a child of ours, which has not been collected.
    pub(crate) fn of(pid: i32, with_numbers: bool) -> io::Result<Self> {
        let open = |kind: &str| File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        Ok(Self { mounts: open("mnt")?, numbers: with_numbers.then(|| open("pid")).transpose()? })
    }

    /// Goes there; of the numbers only what is started from now on.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // SAFETY: descriptors of namespaces.
        unsafe {
            if let Some(numbers) = &self.numbers {
                check(libc::setns(numbers.as_raw_fd(), libc::CLONE_NEWPID))?;
            }
            check(libc::setns(self.mounts.as_raw_fd(), libc::CLONE_NEWNS)).map(drop)
        }
    }

    pub(crate) fn has_numbers(&self) -> bool {
        self.numbers.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_command_at_a_terminal_has_its_size_its_limits_and_a_session_of_its_own() {
        let (mut ours, theirs) = open(33, 77).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "stty size; ulimit -c; ps -o tty= -p $$ | grep -q pts && echo there; read x; stty size",
        ]);
        command
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stdout(Stdio::from(theirs.try_clone().unwrap()));
        command.stderr(Stdio::from(theirs));
        prepare(&mut command, true, 0, vec![Limit { resource: libc::RLIMIT_CORE, value: 0 }]);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut text = String::new();
        let mut chunk = [0; 256];
        while !text.contains("there") {
            let n = ours.read(&mut chunk).unwrap();
            text.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
        assert!(text.contains("33 77") && text.contains("\n0\r"), "{text:?}");
        resize(&ours, 5, 6).unwrap();
        ours.write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        while let Ok(n @ 1..) = ours.read(&mut chunk) {
            text.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
        assert!(text.contains("5 6"), "{text:?}");
    }
}
