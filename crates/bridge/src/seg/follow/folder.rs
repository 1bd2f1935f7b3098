//! A directory of which every file is a log of its own, as job event logs are kept.
//!
//! There may be many thousands: a log in which nothing happens is put to rest, without a descriptor, and is known again by
//! its inode and its text. A log that a listing does not show is not forgotten at once, because a directory in which names
//! are being changed does not show every file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::chain::{Age, log_of, unpacked};
use super::tail::{Id, Look, Tail};
use super::{Change, MakeFormat, Once, Source, Turn};
use crate::seg::Sink;

/// Logs with a descriptor.
const OPEN: usize = 200;
/// How long a log that is in no listing is remembered.
const MISSING: Duration = Duration::from_secs(60);

/// In which order logs are read: those that were rotated away before what came after them.
type Place = (Vec<u8>, bool, Option<Age>, OsString);

struct Log {
    tail: Tail,
    name: OsString,
    /// When something was read last.
    changed: Instant,
    /// Since when no listing shows it.
    missing: Option<Instant>,
}

/// All files of a directory.
pub struct Folder {
    directory: PathBuf,
    make: MakeFormat,
    logs: HashMap<Id, Log>,
    names: HashMap<OsString, Id>,
    touched: HashSet<OsString>,
    /// Logs with a descriptor, or more.
    open: usize,
    started: bool,
    once: Once,
}

fn place_of(name: &OsStr) -> Place {
    let (log, age) = log_of(name.as_encoded_bytes());
    // The log itself comes last.
    (log.to_vec(), age.is_none(), age, name.to_owned())
}

impl Folder {
    /// The files of this directory, except hidden ones and locks.
    pub fn new(directory: &Path, make: MakeFormat) -> Self {
        Self {
            directory: directory.to_owned(),
            make,
            logs: HashMap::new(),
            names: HashMap::new(),
            touched: HashSet::new(),
            open: 0,
            started: false,
            once: Once::default(),
        }
    }

    /// The logs that are there, in the order in which they are read.
    fn list(&mut self, sink: &mut dyn Sink) -> io::Result<Vec<(OsString, Metadata)>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b".") || bytes.ends_with(b".lock") {
                continue;
            }
            let Ok(meta) = entry.path().metadata() else { continue };
            if unpacked(bytes).1 {
                self.once.trouble(&entry.path(), &io::Error::other("this is packed and not read"), sink);
            } else if meta.is_file() {
                found.insert(place_of(&name), meta);
            }
        }
        Ok(found.into_iter().map(|((.., name), meta)| (name, meta)).collect())
    }

    fn scan(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        let found = match self.list(sink) {
            Ok(found) => found,
            Err(error) if self.started => {
                self.once.trouble(&self.directory, &error, sink);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.once.fine(&self.directory);
        self.started = true;
        let before = std::mem::take(&mut self.names);
        let mut shown = HashSet::new();
        for (name, meta) in &found {
            let id = (meta.dev(), meta.ino());
            // A second name of the same file counts as none.
            if shown.insert(id) {
                self.names.insert(name.clone(), id);
            }
        }
        for (name, meta) in found {
            if sink.is_over() {
                // The names of the others are known; what they hold is for the next look, if there is one.
                return Ok(());
            }
            let id = (meta.dev(), meta.ino());
            if self.names.get(&name) != Some(&id) {
                continue;
            }
            if let Some(log) = self.logs.get_mut(&id) {
                let is_same_name = log.name == name;
                log.name.clone_from(&name);
                log.missing = None;
                if log.tail.is_news(&meta) || !is_same_name || self.touched.contains(&name) {
                    self.look(id, is_same_name, now, sink)?;
                }
                continue;
            }
            let reached =
                before.get(&name).and_then(|id| self.logs.get(id)).and_then(|log| log.tail.reached());
            self.open(name, reached, now, sink)?;
        }
        self.forget(now, sink)
    }

    /// Begins with a file. If it took the name of another one it goes on where that one is.
    fn open(
        &mut self,
        name: OsString,
        reached: Option<i64>,
        now: Instant,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let path = self.directory.join(&name);
        match Tail::open(&path, (self.make)()) {
            Ok(mut tail) => {
                self.once.fine(&path);
                tail.go_on(reached);
                let id = tail.id();
                self.names.insert(name.clone(), id);
                self.open += 1;
                self.logs.entry(id).or_insert(Log { tail, name, changed: now, missing: None });
                self.look(id, true, now, sink)
            }
            // It went away between the listing and here, or is on its way to another name: the next listing tells.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                self.once.trouble(&path, &error, sink);
                Ok(())
            }
        }
    }

    /// Reads what was added to a log. If its name is new as well as its text, it is another file with an old inode.
    fn look(&mut self, id: Id, is_same_name: bool, now: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        let Some(log) = self.logs.get_mut(&id) else { return Ok(()) };
        let path = self.directory.join(&log.name);
        self.open += usize::from(log.tail.is_resting());
        match log.tail.wake(&path) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                log.missing.get_or_insert(now);
                return Ok(());
            }
            Err(error) => {
                self.once.trouble(&path, &error, sink);
                return Ok(());
            }
        }
        self.once.fine(&path);
        let before = log.tail.offset();
        if is_same_name {
            log.tail.look_or_restart(sink)?;
        } else if log.tail.look(sink)? == Look::Rewritten {
            log.tail.restart()?;
            log.tail.look(sink)?;
        }
        if log.tail.offset() != before {
            log.changed = now;
        }
        if self.open > OPEN {
            self.spare();
        }
        Ok(())
    }

    /// Puts the logs to rest in which nothing happened for longest; a good part at once, since all have to be looked at.
    fn spare(&mut self) {
        let mut open: Vec<_> = self.logs.values_mut().filter(|log| !log.tail.is_resting()).collect();
        open.sort_by_key(|log| std::cmp::Reverse(log.changed));
        open.iter_mut().skip(OPEN / 2).for_each(|log| log.tail.rest());
        self.open = open.len().min(OPEN / 2);
    }

    /// Reads the rest of logs that were deleted, and forgets those that are gone for long.
    fn forget(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        let shown: HashSet<Id> = self.names.values().copied().collect();
        let mut gone = Vec::new();
        for (id, log) in self.logs.iter_mut().filter(|(id, _)| !shown.contains(*id)) {
            let since = *log.missing.get_or_insert(now);
            if log.tail.is_deleted() {
                log.tail.look_or_restart(sink)?;
                gone.push(*id);
                continue;
            }
            // Reported as changed, and gone before it could be read.
            if log.tail.is_resting()
                && self.touched.contains(&log.name)
                && !self.names.contains_key(&log.name)
            {
                sink.missed(&format!(
                    "{} was changed and removed before it could be read: what was added last is not told",
                    self.directory.join(&log.name).display()
                ));
                gone.push(*id);
                continue;
            }
            if !log.tail.is_resting() {
                log.tail.look_or_restart(sink)?;
            }
            if now.saturating_duration_since(since) >= MISSING {
                gone.push(*id);
            }
        }
        for id in gone {
            self.logs.remove(&id);
        }
        Ok(())
    }
}

impl Source for Folder {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if turn.rescan || turn.last || !self.started {
            self.scan(turn.now, sink)?;
        } else {
            for name in &std::mem::take(&mut self.touched) {
                if let Some(id) = self.names.get(name).copied() {
                    self.look(id, true, turn.now, sink)?;
                }
            }
        }
        self.touched.clear();
        Ok(None)
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }

    fn reported(&mut self, change: Change<'_>) {
        if let Change::Changed(name) | Change::Came(name) = change {
            self.touched.insert(name.to_owned());
        }
    }
}
