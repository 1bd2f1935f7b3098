//! When to look again: inotify where the kernel sees every change, a short interval where it does not.
//!
//! inotify comes from `rustix`, which the house has anyway; the `inotify` crate would add nothing to it. Directories are
//! watched, not files: that also tells of files that come, go and change their names.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::Change;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// How often to look although nothing was reported: a directory may have been replaced, a link turned.
const SURE: Duration = Duration::from_secs(1);
/// How often to look where changes are not reported.
const POLL: Duration = Duration::from_millis(250);

/// File systems whose changes may be made on another host, by their magic numbers: NFS, SMB, CIFS, SMB2, FUSE, 9P,
/// Lustre, GPFS, Ceph, AFS.
const REMOTE: [u32; 10] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x0bd0_0bd0,
    0x4750_4653,
    0x00c3_6400,
    0x5346_414f,
];

/// Watches directories.
pub struct Watch {
    inotify: Option<OwnedFd>,
    places: Vec<PathBuf>,
    is_remote: bool,
    /// A name that was left, and the cookie with which the name that its file got is told.
    left: Option<(u32, OsString)>,
}

impl Watch {
    /// Watches these directories; with `poll` by interval only.
    pub fn new(places: Vec<PathBuf>, poll: bool) -> Self {
        let inotify =
            if poll { None } else { inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok() };
        let mut watch = Self { inotify, places, is_remote: false, left: None };
        watch.add();
        watch
    }

    /// Adds what is not watched. Watching a directory twice is one watch, so this may be called at any time.
    fn add(&mut self) {
        let Some(fd) = &self.inotify else { return };
        let flags = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO;
        self.is_remote = self.places.iter().any(|place| {
            inotify::add_watch(fd, place, flags).is_err()
                || rustix::fs::statfs(place).is_ok_and(|s| REMOTE.contains(&(s.f_type as u32)))
        });
    }

    /// Becomes readable when something changed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Is every change reported?
    pub fn is_complete(&self) -> bool {
        self.inotify.is_some() && !self.is_remote
    }

    /// How long to wait at most.
    pub fn interval(&self) -> Duration {
        if self.is_complete() { SURE } else { POLL }
    }

    /// Takes what was reported; true when names may have changed, false when only contents did.
    pub fn take(&mut self, tell: &mut dyn FnMut(Change<'_>)) -> bool {
        let Some(fd) = &self.inotify else { return true };
        let mut buffer = [MaybeUninit::uninit(); 8_192];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut names = false;
        while let Ok(event) = reader.next() {
            let kind = event.events();
            names |= kind != ReadFlags::MODIFY;
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            if let Some(name) = name {
                let is_same = |(cookie, _): &mut (u32, OsString)| *cookie == event.cookie();
                if kind.contains(ReadFlags::MOVED_TO)
                    && let Some((_, from)) = self.left.take_if(is_same)
                {
                    tell(Change::Moved { from: &from, to: name });
                }
                if kind.contains(ReadFlags::MOVED_FROM) {
                    self.left = Some((event.cookie(), name.to_owned()));
                }
                if kind.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    tell(Change::Came(name));
                } else if kind.contains(ReadFlags::MODIFY) {
                    tell(Change::Changed(name));
                }
            } else if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                tell(Change::Unknown);
            }
        }
        names
    }

    /// To be called when the interval has passed.
    pub fn passed(&mut self) {
        self.add();
    }
}
