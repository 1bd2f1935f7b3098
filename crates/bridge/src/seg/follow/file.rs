//! One path, and the files that were rotated away from it: where to begin. How it goes on is in `super::log`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use super::log::Kind;

use super::arrivals::Arrivals;
use super::chain::{Age, Older};
use super::directory::Directory;
use super::holes::{PAUSE, ROTATING, missing_number};
use super::log::{Log, Nowhere, Scope};
use super::tail::{self, Id, Tail};
use super::{Change, MakeFormat, Source, Turn, parent};
use crate::seg::Sink;

/// How soon a file that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
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
    /// Since when a number is missing.
    waiting: Option<Instant>,
    started: bool,
}

impl Single {
    /// The file at `path`; what is surely older than `from` is skipped.
    pub fn new(path: &Path, kind: Kind, from: i64, make: MakeFormat) -> Self {
        let directory = Rc::new(RefCell::new(Directory::new(&parent(path))));
        let log = Log::new(path, kind, Scope::Path, Rc::new(make), directory);
        // The one at the path first: it may be among the others by then, but not the other way round.
        let there = log.id_there();
        let first = log.list().iter().map(|file| file.id).chain(there).collect();
        Self { log, kind, from, wanted: from, first, waiting: None, started: false }
    }

    /// Events are wanted from this second on, a little after the one from which on files are read.
    #[must_use]
    pub fn wanting(mut self, from: i64) -> Self {
        self.wanted = from;
        self
    }

    /// Tells what was rotated away and may hold events from `from` on, and opens the log.
    fn start(&mut self, beginning: Beginning, sink: &mut dyn Sink) -> io::Result<()> {
        let Beginning { mut current, older, unwanted, chain, notes, .. } = beginning;
        self.started = true;
        // Those that were not there when this began are reported.
        let ids = older.iter().map(|file| file.id).chain(current.as_ref().map(Tail::id));
        for _ in ids.filter(|id| !self.first.contains(id)) {
            self.log.arrivals.expect();
        }
        for note in notes {
            match note {
                Note::Missed(text) => sink.missed(&text),
                Note::Unread(id, error, path) => self.log.refuse(id, &path, &error, sink),
                Note::Known(text) => sink.note(&text),
            }
        }
        match self.kind {
            Kind::Lsf => current = self.log.start_records(current, &older, self.from, sink)?,
            Kind::Plain => self.tell_chain(chain, current.as_mut().ok(), sink)?,
        }
        let begun = current.and_then(|mut current| {
            current.seek(self.from)?;
            // One that was empty may have got something, and may have been copied and cut since: the first look tells.
            if self.kind == Kind::Lsf || current.offset() > 0 {
                current.look(sink)?;
            }
            self.log.begin(current);
            Ok(())
        });
        // The others are known, or are copies of what is at the path, and then nothing of them was told.
        self.log.remember(&older[..unwanted]);
        begun
    }

    /// The file at the path and the rotated ones, as they were at one moment. Nothing if the file was removed or cut
    /// meanwhile.
    fn open_with_older(&self) -> io::Result<Option<Beginning>> {
        let current = self.open();
        let mut older = match &current {
            Ok(tail) => match self.log.older_than(tail) {
                Some(older) => older,
                None => return Ok(None),
            },
            Err(_) => self.log.list(),
        };
        if let Ok(tail) = &current {
            // It may be one of them by now. What is newer is for the first look.
            let place = older.iter().position(|file| file.id == tail.id());
            older.truncate(place.unwrap_or(older.len()));
        }
        let unwanted = older.len();
        // If it has another name by now, that may be the number that seems to be missing.
        let is_last = current.as_ref().map_or(true, |tail| self.log.id_there() == Some(tail.id()));
        let (chain, notes) = (Vec::new(), Vec::new());
        let mut beginning = Beginning { current, older, is_last, unwanted, chain, notes };
        let is_sure = self.kind == Kind::Lsf || self.open_chain(&mut beginning)?;
        Ok(is_sure.then_some(beginning))
    }

    /// The same when it is sure. A number that is missing may be one that a file is just about to get: nothing while that is
    /// waited for.
    fn open_settled(&mut self, turn: Turn) -> io::Result<Option<Beginning>> {
        loop {
            let found = self.open_with_older()?;
            let is_sure =
                found.as_ref().is_some_and(|found| (0..found.older.len()).all(|at| found.gap(at).is_none()));
            let now = if turn.last { Instant::now() } else { turn.now };
            let since = *self.waiting.get_or_insert(now);
            let is_long = now.saturating_duration_since(since) >= ROTATING;
            if found.is_some() && (is_sure || is_long || self.log.is_unchanged()) {
                return Ok(found);
            }
            if is_long && found.is_none() {
                // Whoever cuts it or puts another in its place does nothing else.
                let (older, chain, notes) = (Vec::new(), Vec::new(), Vec::new());
                let current = self.open();
                return Ok(Some(Beginning { current, older, is_last: false, unwanted: 0, chain, notes }));
            }
            if !turn.last {
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The beginning is read before the rotated files are listed, except of a long log, in which the place is to be found first.
    fn open(&self) -> io::Result<Tail> {
        let mut tail = self.log.open()?;
        if !tail.is_long()? {
            tail.peek()?;
        }
        Ok(tail)
    }

    /// Opens rotated files as far back as they may be wanted, the newest first. All are opened before one is read: a rotation in
    /// between then changes names only. False if the log was cut meanwhile: then one of them may be its copy, or not.
    fn open_chain(&self, beginning: &mut Beginning) -> io::Result<bool> {
        let gaps: Vec<_> = (0..beginning.older.len()).map(|at| beginning.gap(at)).collect();
        let Beginning { current, older, unwanted, chain, notes, .. } = beginning;
        let mut current = current.as_mut().ok();
        let mut is_reached = match &mut current {
            Some(current) => self.is_early(current)?,
            None => false,
        };
        for (at, file) in older.iter().enumerate().rev() {
            if is_reached {
                break;
            }
            *unwanted = at;
            notes.extend(gaps[at].map(|number| self.note_missing(number)));
            match self.log.open_older(file) {
                // The log is just being copied, and will be cut.
                Ok(tail) if current.as_ref().is_some_and(|current| current.has_copy_in(&tail)) => {}
                Ok(mut tail) => {
                    is_reached = self.is_early(&mut tail)?;
                    chain.push(tail);
                }
                Err(error) => notes.push(Note::Unread(file.id, error, file.path.clone())),
            }
        }
        if !is_reached
            && let Some(oldest) = chain.last_mut()
            && let Some(stamp) =
                oldest.first_stamp()?.filter(|stamp| *stamp > self.wanted && self.wanted > ALL)
        {
            notes.push(Note::Known(format!(
                "{}: the oldest file at hand begins at {stamp}; what was before is not known",
                self.log.path().display()
            )));
        }
        Ok(current.is_none_or(|current| current.is_intact()))
    }

    /// Tells rotated files, of which the newest are first.
    fn tell_chain(
        &mut self,
        chain: Vec<Tail>,
        current: Option<&mut Tail>,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let mut reached = None;
        let mut left = chain.len();
        for mut tail in chain.into_iter().rev() {
            left -= 1;
            if sink.is_over() {
                break;
            }
            tail.go_on(reached.take());
            tail.seek(self.from)?;
            tail.look(sink)?;
            reached = tail.reached();
            // The writer may still be at the newest of them; nobody will go on with the others.
            if left > 0 {
                tail.say_unfinished(sink);
            }
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

    fn note_missing(&self, number: u32) -> Note {
        let path = self.log.numbered(number);
        Note::Missed(format!("{} is missing: what it held is not told", path.display()))
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

/// What there is at the start.
struct Beginning {
    current: io::Result<Tail>,
    /// The rotated files, oldest first.
    older: Vec<Older>,
    /// Nothing stands between them and the file at the path.
    is_last: bool,
    /// So many of them are older than what is wanted.
    unwanted: usize,
    /// Those that may hold what is wanted, newest first.
    chain: Vec<Tail>,
    notes: Vec<Note>,
}

/// What is to be said of the beginning.
enum Note {
    /// Something was not read.
    Missed(String),
    /// A file that is there cannot be read.
    Unread(Id, io::Error, PathBuf),
    Known(String),
}

impl Beginning {
    /// The number that is missing between a file and the next newer one that has a number: names of other kinds may stand between.
    /// In place of the newest number they may be what it became.
    fn gap(&self, at: usize) -> Option<u32> {
        let number = |file: &Older| match &file.age {
            Age::Numbered(number) => Some(number.0),
            _ => None,
        };
        let here = number(&self.older[at])?;
        let newer = self.older[at + 1..].iter().find_map(number);
        let is_known = newer.is_some() || (self.is_last && at + 1 == self.older.len());
        missing_number(here, newer).filter(|_| is_known)
    }
}

impl Source for Single {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if !self.started {
            self.check_path()?;
            let Some(found) = self.open_settled(turn)? else { return Ok(Some(PAUSE)) };
            if let Err(error) = self.start(found, sink) {
                self.log.trouble(&error, sink);
                return Ok((!turn.last).then_some(RETRY));
            }
        }
        let rescan = turn.rescan || turn.last || self.log.current().is_none();
        let is_open = self.log.follow(rescan, &mut Nowhere, sink);
        self.log.settle_times(sink);
        let is_open = is_open?;
        Ok((!is_open && !turn.last).then_some(RETRY))
    }

    fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        self.log.say_unfinished(sink);
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
