//! Following logs: files that grow, rotate, shrink, vanish and come back.
//!
//! [`tail`] reads one file; `log` is one path with what was rotated away from it, whose names [`chain`] knows and whose number `arrivals` counts; [`mod@file`] is one such log; [`days`] is a directory with a file
//! a day; [`folder`] is a directory of many, whose copies `texts` knows; [`pipe`] is what a thread tells; [`kept`] is what times were taken for; [`commands`] asks
//! Slurm's commands, [`poll`] a command of the site; [`watch`] says when to look again. What the bytes
//! mean is not known here.

mod arrivals;
pub mod chain;
pub mod commands;
pub mod days;
pub(crate) mod directory;
pub mod file;
pub mod folder;
mod holes;
#[cfg(test)]
mod interleaved;
pub mod kept;
mod log;
mod moments;
pub mod pipe;
pub mod poll;
pub mod tail;
mod texts;
pub mod watch;

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Format, Sink};

/// Makes a fresh parser for each file.
pub type MakeFormat = Box<dyn Fn() -> Box<dyn Format> + Send>;

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// When this is.
    pub now: Instant,
    /// Names may have changed.
    pub rescan: bool,
    /// There is no later: wait for nothing.
    pub last: bool,
}

/// A log in whatever files it has.
pub trait Source {
    /// Reads all there is. Returns how soon to look again at the latest, if it waits for something that no change of a
    /// file will tell.
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>>;
    /// Directories to watch.
    fn places(&self) -> Vec<PathBuf>;
    /// Becomes readable when there is something new that no directory tells of.
    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// There is no later: says which files end in the middle of a record.
    fn say_unfinished(&mut self, _sink: &mut dyn Sink) {}
    /// One of the directories reports a change, before the turn in which it counts.
    fn reported(&mut self, _change: Change<'_>) {}
}

/// What a directory reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A file came: it was made, or got this name.
    Came(&'a OsStr),
    /// A file got another name in the same directory; that it came there is reported after this.
    Moved {
        /// The name that it had.
        from: &'a OsStr,
        /// The one that it has.
        to: &'a OsStr,
    },
    /// Something was written to the file of this name.
    Changed(&'a OsStr),
    /// More happened than could be reported, or nothing is reported at all.
    Unknown,
}

/// Files that were left for newer ones and may still get a last line.
const RETIRED: usize = 4;

/// Says a thing about a path once, until it is all right again.
#[derive(Debug, Default)]
struct Once(std::collections::HashSet<PathBuf>);

impl Once {
    fn trouble(&mut self, path: &Path, error: &std::io::Error, sink: &mut dyn Sink) {
        if self.0.insert(path.to_owned()) {
            sink.missed(&format!("{}: {error}; it is not read before that is mended", path.display()));
        }
    }

    fn fine(&mut self, path: &Path) {
        self.0.remove(path);
    }
}

/// The directory of a path.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
