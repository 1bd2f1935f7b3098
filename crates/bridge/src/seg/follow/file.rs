//! One path, and the files that were rotated away from it.
//!
//! Which files are new is told by position: files that were known are held open, so that nobody else gets their inodes, and
//! whatever [`chain`] puts behind the newest of them is new. How many files came in between, the directory reports; if more
//! came than can be found, that gap is said.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::arrivals::Arrivals;
use super::chain::{self, Age, Known, Older};
use super::tail::{self, Id, Look, Tail};
use super::{Change, MakeFormat, Once, RETIRED, Source, Turn, parent};
use crate::seg::{Format, Sink, lsf};

/// How soon a file that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Older files of LSF looked at, at most.
const OLDER: u32 = 10_000;
/// Rotated files that are held open so as to know them again.
const KNOWN: usize = 8;
/// Rotated files that are searched for the text of a log that was cut.
const COPIES: usize = 16;
/// Names change while files are opened; that is tried so often.
const ATTEMPTS: usize = 8;
/// Between two attempts while the files are being given new numbers.
const PAUSE: Duration = Duration::from_millis(5);
/// Whoever wants events from before this (1971) wants all there are, not those of a time.
const ALL: i64 = 31_536_000;
/// A file whose lines have no times is skipped if it was last changed so long before the wanted time.
const UNDATED: i64 = 86_400;

/// How the files of the log are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but records.
    Plain,
    /// `lsb.events`: a first line with an offset, older files with the time at which they were closed.
    Lsf,
}

/// One path.
pub struct Single {
    path: PathBuf,
    kind: Kind,
    from: i64,
    /// From when on events are told; a little later than `from`.
    wanted: i64,
    make: MakeFormat,
    current: Option<Tail>,
    retired: VecDeque<Tail>,
    /// The newest rotated files at the last look.
    known: Vec<Known>,
    arrivals: Arrivals,
    /// The file that was there before anything was reported.
    first: Option<Id>,
    started: bool,
    once: Once,
}

impl Single {
    /// The file at `path`; what is surely older than `from` is skipped.
    pub fn new(path: &Path, kind: Kind, from: i64, make: MakeFormat) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            from,
            wanted: from,
            make,
            current: None,
            retired: VecDeque::new(),
            known: Vec::new(),
            arrivals: Arrivals::Ahead(0),
            first: path.metadata().ok().map(|meta| (meta.dev(), meta.ino())),
            started: false,
            once: Once::default(),
        }
    }

    /// Events are wanted from this second on, a little after the one from which on files are read.
    #[must_use]
    pub fn wanting(mut self, from: i64) -> Self {
        self.wanted = from;
        self
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    fn open(&self, format: Box<dyn Format>) -> io::Result<Tail> {
        let tail = Tail::open(&self.path, format)?;
        Ok(if self.kind == Kind::Lsf { tail.with_offset() } else { tail })
    }

    /// The rotated files, oldest first, without those that are only packed copies of others.
    fn older(&self) -> Vec<Older> {
        // A directory that cannot be listed has no rotated files for us; that the log itself can be read is what counts.
        let mut all = chain::older(&self.path).unwrap_or_default();
        // Behind a symbolic link the rotated files are beside the real one.
        if let Ok(real) = self.path.canonicalize()
            && std::fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_symlink())
        {
            let beside = chain::older(&real).unwrap_or_default();
            all.extend(
                beside
                    .into_iter()
                    .filter(|file| !all.iter().any(|known| known.id == file.id))
                    .collect::<Vec<_>>(),
            );
            all.sort_by(|a, b| a.age.cmp(&b.age));
        }
        let plain: Vec<Age> = all.iter().filter(|f| !f.is_packed).map(|f| f.age.clone()).collect();
        all.retain(|f| !f.is_packed || !plain.contains(&f.age));
        if self.kind == Kind::Lsf {
            all.retain(|f| matches!(f.age, Age::Numbered(_)) && !f.is_packed);
        }
        all
    }

    /// Holds on to the newest rotated files.
    fn remember(&mut self, older: &[Older]) {
        let newest = older.iter().rev().filter(|f| !f.is_packed).take(KNOWN);
        self.known = newest.filter_map(Known::new).collect();
    }

    /// The rotated files that are older than the one that was opened at the path. Nothing if that one was removed since:
    /// then nobody can tell which of them are.
    fn older_than(&self, current: &Tail) -> Option<Vec<Older>> {
        for _ in 0..ATTEMPTS {
            let mut older = self.older();
            if let Some(at) = older.iter().position(|file| file.id == current.id()) {
                older.truncate(at);
                return Some(older);
            }
            if self.path.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == current.id()) {
                return Some(older);
            }
            if current.is_deleted() {
                break;
            }
            // It is on its way from one name to another.
            std::thread::yield_now();
        }
        None
    }

    /// Opens the log, after what was rotated away: at the start that which may hold events from `from` on, later that which
    /// came while there was no log.
    fn start(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let (mut current, older) = self.open_with_older();
        if self.started {
            let (news, before) = self.news(&older);
            self.settle(news.len() as i64 + i64::from(current.is_ok()), true, sink);
            let reached = self.retired.back().and_then(Tail::reached);
            let reached = self.read_between(&news, before.as_deref(), reached, sink)?;
            if let Ok(current) = &mut current {
                current.go_on(reached);
            }
        } else {
            self.started = true;
            // One that was not there when this began may be reported yet.
            if current.as_ref().is_ok_and(|current| Some(current.id()) != self.first) {
                self.arrivals.expect();
            }
            match self.kind {
                Kind::Lsf => current = self.start_lsf(current, sink)?,
                Kind::Plain => self.start_plain(current.as_mut().ok(), &older, sink)?,
            }
        }
        self.remember(&older);
        let mut current = current?;
        self.once.fine(&self.path);
        current.seek(self.from)?;
        self.current = Some(current);
        Ok(())
    }

    /// The file at the path and the rotated ones, as they were at one moment.
    fn open_with_older(&self) -> (io::Result<Tail>, Vec<Older>) {
        let mut found = (self.open((self.make)()), Vec::new());
        for _ in 0..ATTEMPTS {
            found = match self.open((self.make)()) {
                Ok(tail) => {
                    let Some(older) = self.older_than(&tail) else { continue };
                    (Ok(tail), older)
                }
                Err(error) => (Err(error), self.older()),
            };
            if !found.1.windows(2).any(|pair| gap(&pair[0], &pair[1]).is_some()) {
                break;
            }
            // A number that is missing, or one that is just being given to another file.
            std::thread::sleep(PAUSE);
        }
        found
    }

    /// Those of the rotated files that are new, and the one before them.
    fn news(&self, older: &[Older]) -> (Vec<Older>, Option<PathBuf>) {
        let is_known = |file: &Older| {
            self.known.iter().any(|known| known.id == file.id)
                || self.retired.iter().any(|tail| tail.id() == file.id)
        };
        let place = older.iter().rposition(is_known);
        (older[place.map_or(0, |at| at + 1)..].to_vec(), place.map(|at| older[at].path.clone()))
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
            match self.open_older(file) {
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
                self.path.display()
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
            self.retire(tail);
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
            let path = self.numbered(number);
            sink.missed(&format!("{} is missing: what it held is not told", path.display()));
        }
    }

    fn open_older(&self, file: &Older) -> io::Result<Tail> {
        if file.is_packed {
            return Err(io::Error::other("this is packed, unpack it to have it told"));
        }
        match &file.file {
            Some(open) => Ok(Tail::of(&file.path, open.try_clone()?, file.id, (self.make)())),
            None => Tail::open(&file.path, (self.make)()),
        }
    }

    fn start_lsf(&self, current: io::Result<Tail>, sink: &mut dyn Sink) -> io::Result<io::Result<Tail>> {
        let mut chain = Vec::new();
        for number in 1..=OLDER {
            let path = self.numbered(number);
            let tail = match Tail::open(&path, (self.make)()) {
                Ok(tail) => tail,
                Err(error) => {
                    if self.numbered(number + 1).exists() || path.exists() {
                        sink.missed(&format!(
                            "{}: {error}; the files with higher numbers are not read",
                            path.display()
                        ));
                    }
                    break;
                }
            };
            if first_line(&path).and_then(|l| lsf::header(&l)).is_some_and(|stamp| stamp < self.from) {
                break;
            }
            if current.as_ref().is_ok_and(|current| current.id() != tail.id()) || current.is_err() {
                chain.push(tail);
            }
        }
        let mut format = (self.make)();
        for tail in chain.into_iter().rev() {
            let mut tail = tail.with_format(format);
            tail.seek(self.from)?;
            tail.look(sink)?;
            format = tail.into_format();
            format.reset();
        }
        Ok(current.map(|current| current.with_format(format)))
    }

    fn retire(&mut self, tail: Tail) {
        self.retired.push_back(tail);
        if self.retired.len() > RETIRED {
            self.retired.pop_front();
        }
    }

    /// The path has another file: reads what was rotated away in between.
    fn switch(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let mut new = match self.open((self.make)()) {
            Ok(new) => new,
            Err(error) => {
                self.once.trouble(&self.path, &error, sink);
                return Ok(());
            }
        };
        self.once.fine(&self.path);
        let Some(mut old) = self.current.take() else { return Ok(()) };
        old.look_or_restart(sink)?;
        let (reached, id) = (old.reached(), old.id());
        // If the new one is gone again, what lies between is for the next switch.
        let older = self.older_than(&new);
        let copies: Vec<Id> =
            older.iter().flatten().filter(|file| is_copy(&old, file)).map(|file| file.id).collect();
        self.retire(old);
        let (mut news, before) = self.news(older.as_deref().unwrap_or_default());
        // A copy of what was read is nothing new.
        news.retain(|file| !copies.contains(&file.id));
        let is_found = older.iter().flatten().any(|file| file.id == id);
        let is_plausible = is_found || (news.is_empty() && self.known.is_empty());
        let reached = self.read_between(&news, before.as_deref().filter(|_| is_found), reached, sink)?;
        self.settle(news.len() as i64 + 1, is_plausible, sink);
        new.go_on(reached);
        if let Some(older) = &older {
            self.remember(older);
        }
        self.current = Some(new);
        Ok(())
    }

    /// So many files were found. If more came, that gap is said; where nobody counts, if the file before is not among them.
    fn settle(&mut self, found: i64, is_plausible: bool, sink: &mut dyn Sink) {
        let lost = self.arrivals.settle(found, is_plausible);
        if lost > 0 {
            sink.missed(&format!(
                "{}: {lost} or more files were rotated away and removed before they could be read; what they held is not told",
                self.path.display()
            ));
        }
    }

    /// Reads whole files, oldest first; `before` is the one before them. Returns how far the log has come.
    fn read_between(
        &mut self,
        files: &[Older],
        before: Option<&Path>,
        mut reached: Option<i64>,
        sink: &mut dyn Sink,
    ) -> io::Result<Option<i64>> {
        let mut format = (self.make)();
        if let Some(mut line) =
            before.filter(|_| self.kind == Kind::Lsf && !files.is_empty()).and_then(first_line)
        {
            // The next file repeats what was unfinished when this one was closed.
            line.push(b'\n');
            format.feed(&line, sink);
            format.reset();
        }
        for file in files {
            let mut tail = match self.open_older(file) {
                Ok(tail) => tail,
                Err(error) => {
                    sink.missed(&format!("{}: {error}; what it holds is not told", file.path.display()));
                    continue;
                }
            };
            if self.kind == Kind::Lsf {
                tail = tail.with_format(format);
                tail.look(sink)?;
                format = tail.into_format();
                format.reset();
                continue;
            }
            tail.go_on(reached);
            tail.look(sink)?;
            reached = tail.reached();
            self.retire(tail);
        }
        Ok(reached)
    }

    /// The file was rewritten in place. A copy made before may have what was not read yet.
    fn rewritten(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let Some(mut tail) = self.current.take() else { return Ok(()) };
        let older = self.older_than(&tail).unwrap_or_default();
        let is_old =
            |file: &Older| self.known.iter().any(|known| known.id == file.id && known.is_unchanged());
        let id = tail.id();
        let copies = older.iter().enumerate().rev().filter(|(_, f)| !f.is_packed && f.id != id && !is_old(f));
        // The copy of an LSF log has another first line, so that its text stands elsewhere.
        let is_moved = self.kind == Kind::Lsf;
        let mut place = None;
        for (at, file) in copies.take(COPIES) {
            if file.file.as_ref().is_some_and(|file| tail.catch_up(file, is_moved, sink).unwrap_or(false)) {
                place = Some(at);
                break;
            }
        }
        match place {
            Some(at) => {
                let reached = tail.reached();
                let reached = self.read_between(&older[at + 1..], Some(&older[at].path), reached, sink)?;
                tail.go_on(reached);
            }
            None => sink.missed(&format!(
                "{} was cut or rewritten after byte {}: what was added since the last look is not seen",
                self.path.display(),
                tail.offset()
            )),
        }
        tail.restart()?;
        self.current = Some(tail);
        self.remember(&older);
        Ok(())
    }

    /// A log that comes later is waited for; a directory that is not there, and something that is no file, are mistakes in
    /// the call.
    fn check_path(&self) -> io::Result<()> {
        let directory = parent(&self.path);
        if !std::fs::metadata(&directory)?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{} is no directory", directory.display()),
            ));
        }
        match tail::open(&self.path) {
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

/// Is this a copy of what was read?
fn is_copy(tail: &Tail, file: &Older) -> bool {
    file.file.as_ref().is_some_and(|file| tail.is_copied_to(file).unwrap_or(false))
}

/// The first line of a file, if it is short.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    tail::open(path).ok()?.0.take(256).read_to_end(&mut start).ok()?;
    let end = memchr::memchr(b'\n', &start)?;
    start.truncate(end);
    Some(start)
}

impl Source for Single {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if self.current.is_none() {
            if !self.started {
                self.check_path()?;
            }
            if let Err(error) = self.start(sink) {
                self.once.trouble(&self.path, &error, sink);
                return Ok((!turn.last).then_some(RETRY));
            }
        }
        // A rotated file that is rewritten is the place of a copy: what is new in it is found when the log is cut.
        let mut is_other = Vec::new();
        for tail in &mut self.retired {
            if tail.look(sink)? == Look::Rewritten {
                is_other.push(tail.id());
            }
        }
        self.retired.retain(|tail| !is_other.contains(&tail.id()));
        let Some(tail) = &mut self.current else { return Ok(None) };
        if tail.look(sink)? == Look::Rewritten {
            self.rewritten(sink)?;
            if let Some(tail) = &mut self.current {
                tail.look(sink)?;
            }
        }
        // Two switches in one turn would be rare; the names are asked until they stay.
        while let Some(tail) = &self.current
            && let Ok(meta) = self.path.metadata()
            && (meta.dev(), meta.ino()) != tail.id()
            && !sink.is_over()
        {
            let before = tail.id();
            self.switch(sink)?;
            let Some(tail) = &mut self.current else { break };
            if tail.id() == before {
                return Ok(Some(RETRY));
            }
            tail.look(sink)?;
        }
        // Reports of files that were there before this one: nobody will find them any more.
        if let Some(tail) = &self.current
            && self.path.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == tail.id())
        {
            self.settle(0, true, sink);
        }
        Ok(None)
    }

    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![parent(&self.path)];
        // Behind a symbolic link the file changes in another directory.
        if let Ok(real) = self.path.canonicalize() {
            places.push(parent(&real));
        }
        places
    }

    fn reported(&mut self, change: Change<'_>) {
        let name = self.path.file_name().unwrap_or(OsStr::new(""));
        match change {
            Change::Came(came) if came == name => self.arrivals.add(),
            Change::Unknown => self.arrivals = Arrivals::Unknown,
            _ => {}
        }
    }
}
