//! One path, and the files that were rotated away from it: where to begin. How it goes on is in `super::log`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub use super::log::Kind;

use super::arrivals::Arrivals;
use super::chain::{Age, Older};
use super::directory::Directory;
use super::log::{Log, Scope, Strays};
use super::tail::{self, Id, Tail};
use super::{Change, MakeFormat, Source, Turn, parent};
use crate::seg::Sink;

/// How soon a file that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Names change while files are opened; that is tried so often.
const ATTEMPTS: usize = 8;
/// Between two attempts while the files are being given new numbers.
const PAUSE: Duration = Duration::from_millis(5);
/// Whoever wants events from before this (1971) wants all there are, not those of a time.
const ALL: i64 = 31_536_000;
/// A file whose lines have no times is skipped if it was last changed so long before the wanted time.
const UNDATED: i64 = 86_400;

/// One path.
pub struct Single {
    log: Log,
    kind: Kind,
    from: i64,
    /// From when on events are told; a little later than `from`.
    wanted: i64,
    /// The files that were there before anything was reported.
    first: HashSet<Id>,
    started: bool,
}

impl Single {
    /// The file at `path`; what is surely older than `from` is skipped.
    pub fn new(path: &Path, kind: Kind, from: i64, make: MakeFormat) -> Self {
        let directory = Rc::new(RefCell::new(Directory::new(&parent(path))));
        let log = Log::new(path, kind, Scope::Path, Rc::new(make), directory);
        let first = log.list().iter().map(|file| file.id).chain(log.id_there()).collect();
        Self { log, kind, from, wanted: from, first, started: false }
    }

    /// Events are wanted from this second on, a little after the one from which on files are read.
    #[must_use]
    pub fn wanting(mut self, from: i64) -> Self {
        self.wanted = from;
        self
    }

    /// Opens the log, after that which was rotated away and may hold events from `from` on.
    fn start(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let (mut current, older) = self.open_with_older();
        self.started = true;
        // Those that were not there when this began are reported.
        let ids = older.iter().map(|file| file.id).chain(current.as_ref().map(Tail::id));
        for _ in ids.filter(|id| !self.first.contains(id)) {
            self.log.arrivals.expect();
        }
        match self.kind {
            Kind::Lsf => current = self.log.start_records(current, self.from, sink)?,
            Kind::Plain => self.start_plain(current.as_mut().ok(), &older, sink)?,
        }
        let begun = current.and_then(|mut current| {
            current.seek(self.from)?;
            current.look(sink)?;
            self.log.begin(current);
            Ok(())
        });
        self.log.remember(&older);
        begun
    }

    /// The file at the path and the rotated ones, as they were at one moment.
    fn open_with_older(&self) -> (io::Result<Tail>, Vec<Older>) {
        let mut found = (self.open(), Vec::new());
        for _ in 0..ATTEMPTS {
            found = match self.open() {
                Ok(tail) => {
                    let Some(older) = self.log.older_than(&tail) else { continue };
                    (Ok(tail), older)
                }
                Err(error) => (Err(error), self.log.list()),
            };
            if !found.1.windows(2).any(|pair| gap(&pair[0], &pair[1]).is_some()) {
                break;
            }
            // A number that is missing, or one that is just being given to another file.
            std::thread::sleep(PAUSE);
        }
        found
    }

    /// The beginning is read before the rotated files are listed, except of a long log, in which the place is to be found first.
    fn open(&self) -> io::Result<Tail> {
        let mut tail = self.log.open()?;
        if !tail.is_long()? {
            tail.peek()?;
        }
        Ok(tail)
    }

    /// Reads rotated files as far back as they may be wanted. All are opened before one is read: a rotation in between then
    /// changes names only.
    fn start_plain(
        &mut self,
        mut current: Option<&mut Tail>,
        older: &[Older],
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let mut chain: Vec<Tail> = Vec::new();
        let mut is_reached = match &mut current {
            Some(current) => self.is_early(current)?,
            None => false,
        };
        for (at, file) in older.iter().enumerate().rev() {
            if is_reached {
                break;
            }
            self.check_number(file, older.get(at + 1), sink);
            match self.log.open_older(file) {
                // The log is just being copied, and will be cut.
                Ok(tail) if current.as_ref().is_some_and(|current| current.has_copy_in(&tail)) => {}
                Ok(mut tail) => {
                    is_reached = self.is_early(&mut tail)?;
                    chain.push(tail);
                }
                Err(error) => {
                    sink.missed(&format!("{}: {error}; what it holds is not told", file.path.display()))
                }
            }
        }
        if !is_reached
            && let Some(oldest) = chain.last_mut()
            && let Some(stamp) =
                oldest.first_stamp()?.filter(|stamp| *stamp > self.wanted && self.wanted > ALL)
        {
            sink.note(&format!(
                "{}: the oldest file at hand begins at {stamp}; what was before is not known",
                self.log.path().display()
            ));
        }
        let mut reached = None;
        for mut tail in chain.into_iter().rev() {
            if sink.is_over() {
                break;
            }
            tail.go_on(reached);
            tail.seek(self.from)?;
            tail.look(sink)?;
            reached = tail.reached();
            // The writer may still be at the newest of them.
            self.log.keep(tail);
        }
        if let Some(current) = current {
            current.go_on(reached);
        }
        Ok(())
    }

    /// Is nothing wanted that is older than this file?
    fn is_early(&self, tail: &mut Tail) -> io::Result<bool> {
        Ok(match tail.first_stamp()? {
            Some(stamp) => stamp < self.from,
            None => tail.modified()?.saturating_add(UNDATED) < self.from,
        })
    }

    /// Says which file is missing between one and the next newer one.
    fn check_number(&self, file: &Older, newer: Option<&Older>, sink: &mut dyn Sink) {
        if let Some(number) = newer.and_then(|newer| gap(file, newer)) {
            let path = self.log.numbered(number);
            sink.missed(&format!("{} is missing: what it held is not told", path.display()));
        }
    }

    /// A log that comes later is waited for; a directory that is not there, and something that is no file, are mistakes in
    /// the call.
    fn check_path(&self) -> io::Result<()> {
        let directory = parent(self.log.path());
        if !std::fs::metadata(&directory)?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{} is no directory", directory.display()),
            ));
        }
        match tail::open(self.log.path()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(()),
        }
    }
}

/// The number that is missing between a file and the next newer one.
fn gap(file: &Older, newer: &Older) -> Option<u32> {
    match (&file.age, &newer.age) {
        (Age::Numbered(number), Age::Numbered(newer)) if number.0 > newer.0 + 1 => Some(newer.0 + 1),
        _ => None,
    }
}

impl Source for Single {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if !self.started {
            self.check_path()?;
            if let Err(error) = self.start(sink) {
                self.log.trouble(&error, sink);
                return Ok((!turn.last).then_some(RETRY));
            }
        }
        let rescan = turn.rescan || turn.last || self.log.current().is_none();
        let is_open = self.log.follow(rescan, &mut Strays::new(), sink)?;
        Ok((!is_open && !turn.last).then_some(RETRY))
    }

    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![parent(self.log.path())];
        // Behind a symbolic link the file changes in another directory.
        if let Ok(real) = self.log.path().canonicalize() {
            places.push(parent(&real));
        }
        places
    }

    fn reported(&mut self, change: Change<'_>) {
        let name = self.log.path().file_name().unwrap_or(OsStr::new(""));
        match change {
            Change::Came(came) if came == name => self.log.arrivals.add(),
            Change::Unknown => self.log.arrivals = Arrivals::Unknown,
            _ => {}
        }
    }
}
