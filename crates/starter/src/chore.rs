//! Work among a user's files, in a process of its own that has become the user for good.
//!
//! A starter never touches what a job could swap, fill or hang: it starts a chore and goes on. The chore has nothing of the
//! starter's open but what it is given, ends with the starter, and says what came of it through a pipe. Whoever started it
//! may stop waiting at any time.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::sys::{self, Watch};
use crate::terminal::Surroundings;
use crate::wire::Identity;

/// More than this is no answer.
const ANSWER_BYTES: usize = 4 << 20;

/// Who does a chore.
pub(crate) enum Doer<'a> {
    /// A user, or whoever we are.
    User(Option<&'a Identity>),
    /// Somebody who may look into every directory and can do nothing else; the user where that cannot be had.
    Onlooker(Option<&'a Identity>),
    /// Somebody who may remove what is in every directory and can do nothing else.
    Remover,
}

/// How often a chore is told to go on.
const NUDGE_US: u64 = 2_000_000;

/// A chore that is being done.
#[derive(Debug)]
pub(crate) struct Chore {
    pid: i32,
    news: OwnedFd,
    answer: Vec<u8>,
    pub(crate) since_us: u64,
    nudged_us: u64,
}

impl Chore {
    /// Does something as a user (`None`: as we are), with these descriptors and no others.
    pub(crate) fn begin(
        identity: Option<&Identity>,
        keep: &[BorrowedFd<'_>],
        work: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Self> {
        Self::begin_as(Doer::User(identity), keep, work)
    }

    /// The same, done by somebody.
    pub(crate) fn begin_as(
        doer: Doer<'_>,
        keep: &[BorrowedFd<'_>],
        work: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Self> {
        Self::begin_in(None, doer, keep, work)
    }

    /// The same, done in the surroundings of somebody else.
    pub(crate) fn begin_in(
        place: Option<&Surroundings>,
        doer: Doer<'_>,
        keep: &[BorrowedFd<'_>],
        work: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Self> {
        let (news, theirs) = sys::pipe()?;
        let parent = sys::own_pid();
        // SAFETY: this process has one thread, so that the child may do what a process does.
        let pid = unsafe { sys::fork_into(0) }?;
        if pid == 0 {
            let keep: Vec<_> = keep.iter().copied().chain([theirs.as_fd()]).collect();
            let arrived = place.map_or(Ok(parent), |place| go_to(place, &keep, parent));
            let done = arrived.and_then(|parent| settle(&doer, &keep, parent)).and_then(|()| work());
            let (tag, bytes) = match done {
                Ok(bytes) => (b'+', bytes),
                Err(error) => (b'-', error.to_string().into_bytes()),
            };
            let mut answer = vec![tag];
            answer.extend_from_slice(&bytes[..bytes.len().min(ANSWER_BYTES - 1)]);
            sys::leave_with(std::fs::File::from(theirs).write_all(&answer));
        }
        let since_us = sys::mono_us();
        Ok(Self { pid, news, answer: Vec::new(), since_us, nudged_us: since_us })
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { fd: self.news.as_fd(), write: false, ready: false }
    }

    /// What came of it; `None` while it is being done.
    pub(crate) fn outcome(&mut self) -> Option<io::Result<Vec<u8>>> {
        let mut chunk = [0; 4096];
        loop {
            match sys::read(self.news.as_fd(), &mut chunk) {
                Ok(0) => break,
                Ok(n) => self.answer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                Err(e) => return Some(Err(e)),
            }
        }
        Some(match self.answer.split_first() {
            Some((b'+', bytes)) => Ok(bytes.to_vec()),
            Some((_, bytes)) => Err(io::Error::other(String::from_utf8_lossy(bytes).into_owned())),
            None => Err(io::Error::other("the process that did it was killed")),
        })
    }

    /// Waits for it, but no longer than this.
    pub(crate) fn wait(mut self, patience_ms: u64) -> io::Result<Vec<u8>> {
        let deadline = self.since_us + patience_ms * 1000;
        loop {
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            let now = sys::mono_us();
            if now >= deadline {
                self.kill();
                return Err(io::ErrorKind::TimedOut.into());
            }
            sys::poll(&mut [self.watch()], (deadline - now).div_ceil(1000).min(60_000) as i32)?;
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whoever has the user of a chore can stop it, and the slot would wait for it: it is told to go on every now and then.
    pub(crate) fn nudge(&mut self, now_us: u64) {
        if now_us >= self.next_nudge_us() {
            self.nudged_us = now_us;
            sys::signal(self.pid, libc::SIGCONT);
        }
    }

    /// When that is to be done again.
    pub(crate) fn next_nudge_us(&self) -> u64 {
        self.nudged_us + NUDGE_US
    }

    pub(crate) fn kill(&self) {
        sys::signal(self.pid, libc::SIGKILL);
    }
}

/// Starts a child that does something as somebody, with these descriptors, and ends with us; the child's number.
pub(crate) fn start_child(
    doer: &Doer<'_>,
    keep: &[BorrowedFd<'_>],
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<i32> {
    let parent = sys::own_pid();
    // SAFETY: this process has one thread, so that the child may do what a process does.
    let pid = unsafe { sys::fork_into(0) }?;
    if pid == 0 {
        sys::leave_with(settle(doer, keep, parent).and_then(|()| work()));
    }
    Ok(pid)
}

/// In the child: goes where somebody else lives; who our parent is there. Where processes have numbers of their own only a child of
/// ours has one of them: it is the one that returns, and we wait for it.
fn go_to(place: &Surroundings, keep: &[BorrowedFd<'_>], parent: i32) -> io::Result<i32> {
    place.enter()?;
    if !place.has_numbers() {
        return Ok(parent);
    }
    sys::close_all_but(keep)?;
    sys::die_with_parent()?;
    if sys::parent_pid() != parent {
        return Err(io::Error::other("the starter is gone"));
    }
    // SAFETY: a copy of a process with one thread.
    let child = unsafe { sys::fork_into(0) }?;
    if child == 0 {
        // Our parent has no number among ours.
        return Ok(0);
    }
    sys::collect(child);
    sys::leave_with(Ok(()))
}

/// In the child: nothing of the starter's, nothing but the user's rights.
fn settle(doer: &Doer<'_>, keep: &[BorrowedFd<'_>], parent: i32) -> io::Result<()> {
    sys::close_all_but(keep)?;
    sys::new_session();
    sys::unblock_signals()?;
    let become_user =
        |identity: &Identity| sys::become_for_good(identity.uid, identity.gid, &identity.groups);
    match doer {
        Doer::User(None) | Doer::Onlooker(None) => {}
        Doer::User(Some(identity)) => become_user(identity)?,
        Doer::Remover => sys::become_remover()?,
        // A container may keep the capability from us; then its owner looks, and sees what an owner sees.
        Doer::Onlooker(Some(identity)) => sys::become_onlooker().or_else(|_| become_user(identity))?,
    }
    sys::no_new_privileges()?;
    sys::die_with_parent()?;
    if sys::parent_pid() != parent {
        return Err(io::Error::other("the starter is gone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The harness has threads; a copy of one of them that only makes system calls and allocates nothing much is what
    // can be tested here. The rest is tested with real starters.
    #[test]
    fn it_answers_fails_and_is_given_up() {
        let done = Chore::begin(None, &[], || Ok(b"well".to_vec())).unwrap();
        assert_eq!(done.wait(10_000).unwrap(), b"well");
        let failed = Chore::begin(None, &[], || Err(io::ErrorKind::NotFound.into())).unwrap();
        assert!(failed.wait(10_000).unwrap_err().to_string().contains("not found"));
        let stuck = Chore::begin(None, &[], || {
            std::thread::sleep(std::time::Duration::from_secs(600));
            Ok(Vec::new())
        });
        assert_eq!(stuck.unwrap().wait(50).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
