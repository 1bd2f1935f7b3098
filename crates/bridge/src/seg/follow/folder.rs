//! A directory of logs, as job event logs are kept. Each is a `super::log` like a single one, with what was rotated away from
//! it.
//!
//! There may be many thousands: a file in which nothing happens is put to rest, without a descriptor, and is known again by
//! its inode and its text. A file that a listing does not show is not forgotten at once, because a directory in which names
//! are being changed does not show every file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::chain::{Age, log_of, unpacked};
use super::directory::Directory;
use super::holes::{self, Holes};
use super::log::{Elsewhere, Kind, Log, Scope};
use super::moments;
use super::tail::{self, Id, Look, Tail};
use super::texts::Known;
use super::{Change, MakeFormat, Once, Source, Turn};
use crate::seg::Sink;

/// Files with a descriptor.
const OPEN: usize = 200;
/// How long a file that is in no listing is remembered.
const MISSING: Duration = Duration::from_secs(60);

/// In which order files are listed: those that were rotated away before what came after them.
type Place = (Vec<u8>, bool, Option<Age>, OsString);
/// The files that are there, in order, and those that cannot be read, with the reason.
type Listing = (BTreeMap<Place, Metadata>, Vec<(PathBuf, io::Error)>);
/// The files of a log.
type Files = Vec<(OsString, Metadata)>;

/// All files of a directory.
pub struct Folder {
    path: PathBuf,
    /// From when on events are wanted.
    from: i64,
    holes: Holes,
    directory: Rc<RefCell<Directory>>,
    make: Rc<MakeFormat>,
    texts: Known,
    /// By the name of the log itself.
    logs: BTreeMap<OsString, Log>,
    /// Which file has which name.
    names: HashMap<OsString, Id>,
    /// Which log has which file.
    homes: HashMap<Id, OsString>,
    /// In the order in which they are read.
    touched: BTreeSet<OsString>,
    /// Logs that are not known yet, and how many files came there.
    came: HashMap<OsString, Arrivals>,
    /// The files that were there before anything was reported.
    first: HashSet<Id>,
    /// Nobody reports which files come.
    is_unreported: bool,
    /// Since when files are in no listing.
    missing: HashMap<Id, Instant>,
    /// Those of them that rest and were changed since they were read.
    unread: HashSet<Id>,
    /// Files with a descriptor, or more.
    open: usize,
    started: bool,
    once: Once,
}

fn place_of(name: &OsStr) -> Place {
    let (log, age) = log_of(name.as_encoded_bytes());
    // The log itself comes last.
    (log.to_vec(), age.is_none(), age, name.to_owned())
}

/// The log to which a file belongs.
fn home_of(name: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    OsStr::from_bytes(log_of(name.as_encoded_bytes()).0).to_owned()
}

fn id_of(meta: &Metadata) -> Id {
    (meta.dev(), meta.ino())
}

impl Folder {
    /// The files of this directory, except hidden ones and locks. Events are wanted from the second `from` on.
    pub fn new(path: &Path, from: i64, make: MakeFormat) -> Self {
        let mut folder = Self {
            path: path.to_owned(),
            from,
            holes: Holes::default(),
            directory: Rc::new(RefCell::new(Directory::new(path))),
            make: Rc::new(make),
            texts: Known::default(),
            logs: BTreeMap::new(),
            names: HashMap::new(),
            homes: HashMap::new(),
            touched: BTreeSet::new(),
            came: HashMap::new(),
            first: HashSet::new(),
            is_unreported: false,
            missing: HashMap::new(),
            unread: HashSet::new(),
            open: 0,
            started: false,
            once: Once::default(),
        };
        // A directory that cannot be listed is said at the first turn.
        folder.first = folder.list().unwrap_or_default().0.values().map(id_of).collect();
        folder
    }

    /// The files that are there, in order, and those that cannot be read, with the reason.
    fn list(&self) -> io::Result<Listing> {
        let (mut found, mut unread) = (BTreeMap::new(), Vec::new());
        let mut directory = self.directory.borrow_mut();
        for name in directory.names()? {
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b".") || bytes.ends_with(b".lock") {
                continue;
            }
            let path = self.path.join(name);
            moments::pass();
            let meta = match path.metadata() {
                Ok(meta) => meta,
                // It has another name by now, or none, unless it is a link that leads nowhere.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && !path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) =>
                {
                    continue;
                }
                Err(error) => {
                    unread.push((path, error));
                    continue;
                }
            };
            if unpacked(bytes).1 {
                unread.push((path, io::Error::other("this is packed and not read")));
            } else if meta.is_file() {
                found.insert(place_of(name), meta);
            } else if self.is_rotated(bytes) {
                // It stands where a file of a log should be; any other directory or pipe is nobody's trouble.
                unread.extend(tail::open(&path).err().map(|error| (path, error)));
            }
        }
        Ok((found, unread))
    }

    /// Is this the name of a file that was rotated away from a log that is there?
    fn is_rotated(&self, name: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let (log, age) = log_of(name);
        age.is_some() && self.path.join(OsStr::from_bytes(log)).is_file()
    }

    /// Says which rotated files were missing at the start. True when it is to be asked again.
    fn say_missing(&mut self, turn: Turn, sink: &mut dyn Sink) -> bool {
        let mut now = turn.now;
        while !self.holes.is_settled() {
            let mut directory = self.directory.borrow_mut();
            let missing = directory.names().map(|names| self.holes.look(now, &self.path, names));
            drop(directory);
            for (name, newer) in missing.unwrap_or_default() {
                if self.is_wanted_before(&newer) {
                    let path = self.path.join(name);
                    sink.missed(&format!("{} is missing: what it held is not told", path.display()));
                }
            }
            if self.holes.is_settled() || !turn.last || sink.is_over() {
                break;
            }
            std::thread::sleep(holes::PAUSE);
            now = Instant::now();
        }
        !self.holes.is_settled()
    }

    /// May something be wanted that is older than this file? Not if it begins before the wanted time.
    fn is_wanted_before(&self, name: &OsStr) -> bool {
        let when = Tail::open(&self.path.join(name), (self.make)()).and_then(|mut tail| tail.when_written());
        when.ok().and_then(|when| when.first).is_none_or(|first| first >= self.from)
    }

    fn scan(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<()> {
        self.texts.borrow_mut().begin_listing();
        let listed = self.list();
        let is_sure = self.directory.borrow().is_unchanged();
        let (found, unread) = match listed {
            Ok(found) => found,
            Err(error) if self.started => {
                self.once.trouble(&self.path, &error, sink);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.once.fine(&self.path);
        self.started = true;
        for (path, error) in unread {
            self.once.trouble(&path, &error, sink);
        }
        let mut groups: BTreeMap<OsString, Files> = BTreeMap::new();
        self.names.clear();
        let mut shown = HashSet::new();
        for ((.., name), meta) in found {
            let (id, home) = (id_of(&meta), home_of(&name));
            // A second name of the same file counts as none.
            if !shown.insert(id) {
                continue;
            }
            self.texts.borrow_mut().rename(id, &self.path.join(&name));
            self.names.insert(name.clone(), id);
            groups.entry(home).or_default().push((name, meta));
        }
        for (home, files) in groups {
            if sink.is_over() {
                // What the others hold is for the next look, if there is one.
                return Ok(());
            }
            self.look_at(&home, &files, sink)?;
        }
        // Where names are being changed, a file that is not shown may be there all the same.
        self.forget(turn.now, is_sure || turn.last, &shown, sink)?;
        self.homes = self
            .logs
            .iter()
            .flat_map(|(home, log)| log.tails().map(|tail| (tail.id(), home.clone())))
            .collect();
        self.first.clear();
        let mut texts = self.texts.borrow_mut();
        texts.end_listing(turn.last, sink);
        texts.forget(|id| self.homes.contains_key(id));
        drop(texts);
        self.forget_emptied();
        // Names that came and are no logs.
        if self.came.len() > self.names.len() + OPEN {
            self.came.clear();
        }
        Ok(())
    }

    /// A log that was not known.
    fn begin(&mut self, home: &OsStr) -> Log {
        let (make, directory) = (Rc::clone(&self.make), Rc::clone(&self.directory));
        let mut log = Log::new(&self.path.join(home), Kind::Plain, Scope::Folder, make, directory)
            .among(Rc::clone(&self.texts));
        if self.is_unreported {
            log.arrivals = Arrivals::Unknown;
        } else if let Some(came) = self.came.remove(home) {
            log.arrivals = came;
        }
        // One that was there when this began is not reported.
        if log.id_there().is_some_and(|id| self.first.contains(&id)) {
            log.arrivals.add();
        }
        log
    }

    /// Follows a log if anything is new about it.
    fn look_at(&mut self, home: &OsStr, files: &Files, sink: &mut dyn Sink) -> io::Result<()> {
        if !self.logs.contains_key(home) {
            let log = self.begin(home);
            self.logs.insert(home.to_owned(), log);
        }
        let Some(log) = self.logs.get_mut(home) else { return Ok(()) };
        let mut is_news = false;
        for (name, meta) in files {
            let is_touched = self.touched.contains(name);
            let is_at_path = name == home;
            let id = id_of(meta);
            if is_at_path && log.current().map(Tail::id) != Some(id) {
                is_news = true;
            }
            match log.tails_mut().find(|tail| tail.id() == id) {
                Some(tail) if is_touched || tail.is_news(meta) || tail.path() != self.path.join(name) => {
                    is_news = true;
                    let was_resting = tail.is_resting();
                    // Gone, or another file again: the next listing tells.
                    let is_awake = tail.wake(&self.path.join(name)).unwrap_or(false);
                    self.open += usize::from(was_resting && is_awake);
                }
                Some(tail) => tail.confirm(),
                None => is_news = true,
            }
        }
        if is_news { self.follow(home, true, sink) } else { Ok(()) }
    }

    /// Follows a log. A file that got one of its names and is known under the name of another log comes from there.
    fn follow(&mut self, home: &OsStr, rescan: bool, sink: &mut dyn Sink) -> io::Result<()> {
        let Some(mut log) = self.logs.remove(home) else { return Ok(()) };
        let open = |log: &Log| log.tails().filter(|tail| !tail.is_resting()).count();
        let before = open(&log);
        let mut others = Others { logs: &mut self.logs, homes: &self.homes, open: 0 };
        let result = log.follow(rescan, &mut others, sink);
        log.settle_times(sink);
        let moved = others.open;
        for tail in log.tails() {
            if self.homes.get(&tail.id()).is_none_or(|known| known != home) {
                self.homes.insert(tail.id(), home.to_owned());
            }
        }
        self.open = (self.open + open(&log)).saturating_sub(before + moved);
        self.logs.insert(home.to_owned(), log);
        result?;
        if self.open > OPEN {
            self.spare();
        }
        Ok(())
    }

    /// Puts the files to rest in which nothing happened for longest; a good part at once, since all have to be looked at.
    fn spare(&mut self) {
        let mut open: Vec<_> =
            self.logs.values_mut().flat_map(Log::tails_mut).filter(|tail| !tail.is_resting()).collect();
        open.sort_by_key(|tail| std::cmp::Reverse(tail.changed()));
        open.iter_mut().skip(OPEN / 2).for_each(|tail| tail.rest());
        self.open = open.len().min(OPEN / 2);
    }

    /// Forgets logs whose files all went to other logs, if nothing is to be settled there any more.
    fn forget_emptied(&mut self) {
        if self.logs.len() <= self.names.len() + OPEN {
            return;
        }
        let shown: HashSet<OsString> = self.names.keys().map(|name| home_of(name)).collect();
        self.logs.retain(|home, log| {
            log.tails().next().is_some()
                || shown.contains(home)
                || !matches!(log.arrivals, Arrivals::NONE | Arrivals::Unknown)
        });
    }

    /// Reads the rest of files that were deleted, and forgets those that are gone for long.
    fn forget(
        &mut self,
        now: Instant,
        is_sure: bool,
        shown: &HashSet<Id>,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        self.missing.retain(|id, _| !shown.contains(id));
        self.unread.retain(|id| !shown.contains(id));
        let mut gone = Vec::new();
        for (home, log) in &mut self.logs {
            for tail in log.tails_mut().filter(|tail| !shown.contains(&tail.id())) {
                let since = *self.missing.entry(tail.id()).or_insert(now);
                let name = tail.path().file_name().unwrap_or_default();
                // Reported as changed, and gone before it could be read.
                let is_touched = self.touched.contains(name) && !self.names.contains_key(name);
                if tail.is_resting() && is_touched {
                    self.unread.insert(tail.id());
                }
                let is_long = now.saturating_duration_since(since) >= MISSING;
                let is_unread = (is_sure || is_long) && self.unread.contains(&tail.id());
                if is_unread {
                    let path = tail.path().display();
                    tail.note_lost(
                        format!("{path} was changed and removed before it could be read: what was added last is not told"),
                        sink,
                    );
                }
                let is_deleted = tail.is_deleted();
                if !tail.is_resting() && tail.look(sink)? == Look::Rewritten {
                    let path = tail.path().display();
                    tail.note_lost(
                        format!("{path} was cut and removed: what was added since the last look is not seen"),
                        sink,
                    );
                    gone.push((home.clone(), tail.id()));
                } else if is_deleted || is_unread || is_long {
                    gone.push((home.clone(), tail.id()));
                }
            }
        }
        for (home, id) in gone {
            self.missing.remove(&id);
            self.unread.remove(&id);
            let Some(log) = self.logs.get_mut(&home) else { continue };
            self.open -= usize::from(log.take(id).is_some_and(|tail| !tail.is_resting())).min(self.open);
            if log.tails().next().is_none() {
                self.logs.remove(&home);
            }
        }
        Ok(())
    }

    /// Reads what was added to the files that were reported.
    fn look_at_touched(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        for name in &std::mem::take(&mut self.touched) {
            let Some(id) = self.names.get(name).copied() else { continue };
            let home = home_of(name);
            let Some(log) = self.logs.get_mut(&home) else { continue };
            if let Some(tail) = log.tails_mut().find(|tail| tail.id() == id && tail.is_resting()) {
                // Gone, or another file: the next listing tells.
                self.open += usize::from(tail.wake(&self.path.join(name)).unwrap_or(false));
            }
            self.follow(&home, false, sink)?;
        }
        Ok(())
    }
}

/// The logs of a directory but one.
struct Others<'a> {
    logs: &'a mut BTreeMap<OsString, Log>,
    homes: &'a HashMap<Id, OsString>,
    /// So many of the files that were given away have a descriptor.
    open: usize,
}

impl Elsewhere for Others<'_> {
    fn take(&mut self, id: Id) -> Option<Tail> {
        let tail = self.logs.get_mut(self.homes.get(&id)?)?.take(id)?;
        self.open += usize::from(!tail.is_resting());
        Some(tail)
    }
}

impl Source for Folder {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if turn.rescan || turn.last || !self.started {
            self.scan(turn, sink)?;
        } else {
            self.look_at_touched(sink)?;
        }
        self.touched.clear();
        Ok((self.say_missing(turn, sink) && !turn.last).then_some(holes::PAUSE))
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        self.logs.values_mut().for_each(|log| log.say_unfinished(sink));
    }

    fn reported(&mut self, change: Change<'_>) {
        match change {
            Change::Changed(name) => drop(self.touched.insert(name.to_owned())),
            Change::Came(name) => {
                self.touched.insert(name.to_owned());
                match self.logs.get_mut(name) {
                    Some(log) => log.arrivals.add(),
                    None if log_of(name.as_encoded_bytes()).1.is_none() => {
                        self.came.entry(name.to_owned()).or_insert(Arrivals::NONE).add();
                    }
                    None => {}
                }
            }
            Change::Moved { from, to } => {
                let log = self.logs.get_mut(from).map(|log| &mut log.arrivals);
                match log.or_else(|| self.came.get_mut(from)) {
                    Some(arrivals) if home_of(to) == from => arrivals.rotate(),
                    Some(arrivals) => arrivals.leave(),
                    None => {}
                }
            }
            Change::Unknown => {
                self.is_unreported = true;
                self.logs.values_mut().for_each(|log| log.arrivals = Arrivals::Unknown);
            }
        }
    }
}
