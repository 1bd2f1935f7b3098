//! A guard: a process between the starter and whoever serves a visit, out of the reach of the job.
//!
//! Whoever serves a visit has the job's user, so the job may stop or kill it; a visit must not last because of that. The guard adopts
//! whatever the visit leaves behind and watches the visit's connection. When that or the server ends, the guard ends all of it.
//! Where jobs have a user of their own, the guard has a number that no account has, and no right but to send signals. Where a job has the
//! pool's own user it can stop the guard too; a kernel timer lets the guard go on each second. Why it is so: docs/decisions/067.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::chore::{self, Doer};
use crate::leftovers;
use crate::sys::{self, Reaped, Waker};
use crate::terminal::{self, Wish};
use crate::wire::Identity;

/// A server ends by itself within this time when its visitor is gone.
const GRACE_US: u64 = 1_000_000;

/// Has a server serve a visit over `stream` as a user, with these descriptors; nothing of it is left when this returns.
pub(crate) fn keep(
    identity: Option<&Identity>,
    stream: &UnixStream,
    keep: &[BorrowedFd<'_>],
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    sys::become_subreaper()?;
    let signals = sys::signal_descriptor()?;
    let server = chore::start_child(&Doer::User(identity), keep, serve)?;
    let watched = give_up_rights(identity).and_then(|_waker| watch(server, stream, signals.as_fd()));
    leftovers::kill_children();
    watched
}

/// From here on nobody but root can send the guard a signal, and signals are all that it can send. The timer lives as long as the guard.
fn give_up_rights(identity: Option<&Identity>) -> io::Result<Waker> {
    if identity.is_some() {
        let parent = sys::parent_pid();
        sys::become_guard()?;
        // The kernel forgets whose death is ours when the user changes.
        sys::die_with_parent()?;
        if sys::parent_pid() != parent {
            return Err(io::Error::other("the starter is gone"));
        }
    }
    let waker = Waker::new()?;
    waker.set(sys::mono_us());
    Ok(waker)
}

/// Waits until the server has ended, or has had the time to do so since its visitor went.
fn watch(server: i32, stream: &UnixStream, signals: BorrowedFd<'_>) -> io::Result<()> {
    let mut gone_since_us = None;
    loop {
        while sys::next_signal(signals).is_some() {}
        loop {
            match sys::reap() {
                Reaped::Ended(child) if child.pid == server => return Ok(()),
                Reaped::Ended(_) => {}
                Reaped::NoneEnded => break,
                Reaped::NoChildren => return Ok(()),
            }
        }
        let now = sys::mono_us();
        let left_us = gone_since_us.map(|since: u64| (since + GRACE_US).saturating_sub(now));
        let mut wishes = vec![Wish::new(signals, true, false)];
        match left_us {
            Some(0) => return Ok(()),
            Some(_) => {}
            None => wishes.push(Wish::new(stream.as_fd(), false, false)),
        }
        terminal::wait(&mut wishes, left_us.map_or(-1, |us| us.div_ceil(1000) as i32))?;
        if wishes.get(1).is_some_and(|person| person.is_broken) {
            gone_since_us = Some(sys::mono_us());
        }
    }
}
