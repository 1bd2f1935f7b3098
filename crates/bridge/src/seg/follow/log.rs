//! One log: the file at a path and those that were rotated away from it, as one text that is told once and in order.
//!
//! A file is known by its inode as long as it is open, and a text by its content ([`Tail`]): so a renamed file is gone on with,
//! and a text that was copied and cut away is gone on with in its copy. In a look all files of the log are put in order by
//! [`chain`], and for each that is not known it is asked, in this order: does it hold a text that was cut away? then that one
//! moves there. Is it a copy of one that is still in its place? then it is nothing yet. Else it is new. The file at the path
//! is told last, and its beginning is read before the directory is listed: whoever cuts a log has made the copy before.
//!
//! How many files came at the path the directory reports; if more came than can be found, that gap is said.

mod lsf;
mod text;

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::arrivals::Arrivals;
use super::chain::{self, Age, Older, Written};
use super::directory::Directory;
use super::holes;
use super::moments;
use super::tail::{self, Id, Look, Tail};
use super::texts::Known;
use super::{MakeFormat, Once, parent};
use crate::seg::{Format, Sink};

/// Rotated files of a single log that are held open so as to know them again, and in case they get a last line.
const KNOWN: usize = 8;
/// Names change while files are opened; that is tried so often.
const ATTEMPTS: usize = 8;
/// Rotations that are followed in one turn.
const ROUNDS: usize = 64;
/// Rotated files of a log in a directory of logs that are left open after a look.
const LEFT_OPEN: usize = 50;

/// So much of two files is compared at once.
const COMPARED: usize = 1 << 16;

/// How the files of the log are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but records.
    Plain,
    /// `lsb.events`: a first line with an offset, older files with the time at which they were closed.
    Lsf,
}

/// Which files belong to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The rotated ones as far back as they are wanted.
    Path,
    /// All of its name in a directory of logs: `job.1` and `job.2` may be logs of their own. They are many, so only some
    /// are held open.
    Folder,
}

/// A text that is not in its file any more.
struct Cut {
    /// A file may have had several texts.
    key: u64,
    tail: Tail,
    /// It was that of the log itself, not of a file that was rotated away.
    is_log: bool,
}

/// What is known of files beyond this log: one that has a name of this log may have been known under one of another.
pub(super) trait Elsewhere {
    /// Gives the file away.
    fn take(&mut self, id: Id) -> Option<Tail>;
}

/// There is no other log.
pub(super) struct Nowhere;

impl Elsewhere for Nowhere {
    fn take(&mut self, _: Id) -> Option<Tail> {
        None
    }
}

/// One log.
pub(super) struct Log {
    path: PathBuf,
    kind: Kind,
    scope: Scope,
    make: Rc<MakeFormat>,
    directory: Rc<RefCell<Directory>>,
    /// The texts of all logs of a directory.
    texts: Option<Known>,
    current: Option<Tail>,
    /// Rotated files that are known, in the order in which they were found.
    older: Vec<Tail>,
    /// Texts that are not in their files any more.
    cut: Vec<Cut>,
    last_key: u64,
    /// Files that were found and not yet settled with those that came; and whether they are of those.
    found: i64,
    is_counting: bool,
    /// Something was changed while it was looked at: it is to be looked again.
    is_unsure: bool,
    /// Files that cannot be read, which was said.
    refused: HashSet<Id>,
    /// Empty files that were found in place of reported ones.
    empty: HashSet<Id>,
    pub(super) arrivals: Arrivals,
    once: Once,
}

impl Log {
    pub(super) fn new(
        path: &Path,
        kind: Kind,
        scope: Scope,
        make: Rc<MakeFormat>,
        directory: Rc<RefCell<Directory>>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            scope,
            make,
            directory,
            texts: None,
            current: None,
            older: Vec::new(),
            cut: Vec::new(),
            last_key: 0,
            found: 0,
            is_counting: false,
            is_unsure: false,
            refused: HashSet::new(),
            empty: HashSet::new(),
            arrivals: Arrivals::NONE,
            once: Once::default(),
        }
    }

    /// One of many logs, whose texts are known.
    #[must_use]
    pub(super) fn among(mut self, texts: Known) -> Self {
        self.texts = Some(texts);
        self
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn current(&self) -> Option<&Tail> {
        self.current.as_ref()
    }

    /// All files that are known.
    pub(super) fn tails(&self) -> impl Iterator<Item = &Tail> {
        self.older.iter().chain(&self.current)
    }

    pub(super) fn tails_mut(&mut self) -> impl Iterator<Item = &mut Tail> {
        self.older.iter_mut().chain(&mut self.current)
    }

    /// Gives a file away.
    pub(super) fn take(&mut self, id: Id) -> Option<Tail> {
        if self.current.as_ref().is_some_and(|tail| tail.id() == id) {
            return self.current.take();
        }
        let at = self.older.iter().position(|tail| tail.id() == id)?;
        Some(self.older.remove(at))
    }

    fn format(&self) -> Box<dyn Format> {
        (self.make)()
    }

    /// The file that is at the path now.
    pub(super) fn id_there(&self) -> Option<Id> {
        moments::pass();
        self.path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
    }

    /// Opens what is at the path. Its beginning is read at once; see above.
    pub(super) fn open(&self) -> io::Result<Tail> {
        let tail = Tail::open(&self.path, self.format())?.sharing(self.texts.clone());
        Ok(if self.kind == Kind::Lsf { tail.with_offset() } else { tail })
    }

    /// The rotated files, oldest first, without those that are only packed copies of others.
    pub(super) fn list(&self) -> Vec<Older> {
        let base = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let holds = self.scope == Scope::Path;
        // A directory that cannot be listed has no rotated files for us; that the log itself can be read is what counts.
        let mut all = chain::older(&mut self.directory.borrow_mut(), base, holds).unwrap_or_default();
        match self.scope {
            Scope::Folder => all.retain(|file| !file.is_packed),
            Scope::Path => self.list_beside(&mut all),
        }
        let plain: Vec<Age> = all.iter().filter(|f| !f.is_packed).map(|f| f.age.clone()).collect();
        all.retain(|f| !f.is_packed || !plain.contains(&f.age));
        if self.kind == Kind::Lsf {
            all.retain(|f| matches!(f.age, Age::Numbered(_)) && !f.is_packed);
        }
        let unknown = Written { first: None, changed: (0, 0) };
        let mut all = chain::arrange(all, &mut |file| self.when_written(file).unwrap_or(unknown));
        self.drop_second_names(&mut all);
        all
    }

    /// When a rotated file was written. A packed one says nothing but when it was changed, which packing keeps.
    fn when_written(&self, file: &Older) -> io::Result<Written> {
        if !file.is_packed {
            return self.open_older(file)?.when_written();
        }
        let meta = file.path.metadata()?;
        Ok(Written { first: None, changed: (meta.mtime(), meta.mtime_nsec()) })
    }

    /// A file that was copied to a name of another kind (`log.1` to `log-20240131`, as a backup) is one file. In the order the copy
    /// stands beside it, since both say the same.
    fn drop_second_names(&self, all: &mut Vec<Older>) {
        let is_copy = |before: &Older, file: &Older| {
            let is_pair = !before.is_packed && !file.is_packed && before.age.is_of_other_kind(&file.age);
            Ok::<_, io::Error>(is_pair && is_same_text(&self.open_older(before)?, &self.open_older(file)?)?)
        };
        let mut at = 1;
        while at < all.len() {
            if is_copy(&all[at - 1], &all[at]).unwrap_or(false) {
                all.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Behind a symbolic link the rotated files are beside the real one.
    fn list_beside(&self, all: &mut Vec<Older>) {
        if !std::fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.is_symlink()) {
            return;
        }
        let Ok(real) = self.path.canonicalize() else { return };
        let base = real.file_name().unwrap_or_default().as_encoded_bytes();
        let beside = chain::older(&mut Directory::new(&parent(&real)), base, true).unwrap_or_default();
        let more: Vec<_> =
            beside.into_iter().filter(|file| !all.iter().any(|known| known.id == file.id)).collect();
        all.extend(more);
        // By their names of each kind; what is between kinds is arranged after that.
        all.sort_by(|a, b| a.age.cmp(&b.age));
    }

    /// The rotated files that are older than the one that was opened at the path. Nothing if that one was removed since:
    /// then nobody can tell which of them are.
    pub(super) fn older_than(&self, current: &Tail) -> Option<Vec<Older>> {
        // The second time it is surely met, if it went from the path to one of their names.
        for _ in 0..2 {
            let mut older = self.list();
            if self.kind == Kind::Lsf {
                older.retain(|file| !lsf::is_being_copied(current, file));
            }
            let there = self.id_there();
            if let Some(at) = older.iter().position(|file| file.id == current.id()) {
                // What is newer is for the next look, unless there is nothing else to look at.
                if there.is_some() {
                    older.truncate(at);
                }
                return Some(older);
            }
            if there == Some(current.id()) {
                return Some(older);
            }
        }
        None
    }

    /// Were no names changed beside the log for a while?
    pub(super) fn is_unchanged(&self) -> bool {
        let is_old = |place: &Path| holes::is_unchanged(place).unwrap_or(false);
        let real = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        is_old(&parent(&self.path)) && is_old(&parent(&real))
    }

    pub(super) fn open_older(&self, file: &Older) -> io::Result<Tail> {
        if file.is_packed {
            return Err(io::Error::other("this is packed, unpack it to have it told"));
        }
        let (open, id) = match &file.file {
            Some(open) => (open.try_clone()?, file.id),
            None => tail::open(&file.path).map_err(|error| {
                let is_link = file.path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
                if is_link && error.kind() == io::ErrorKind::NotFound {
                    io::Error::other("this is a link to something that is not there")
                } else {
                    error
                }
            })?,
        };
        if id != file.id {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Tail::of(&file.path, open, id, self.format()).sharing(self.texts.clone()))
    }

    /// Says of a rotated file that it cannot be read, once.
    pub(super) fn refuse(&mut self, id: Id, path: &Path, error: &io::Error, sink: &mut dyn Sink) {
        if self.refused.insert(id) {
            sink.missed(&format!("{}: {error}; what it holds is not told", path.display()));
        }
    }

    /// Takes a rotated file for known.
    pub(super) fn keep(&mut self, mut tail: Tail) {
        if self.scope == Scope::Folder && self.older.iter().filter(|t| !t.is_resting()).count() >= LEFT_OPEN {
            tail.rest();
        }
        self.older.push(tail);
    }

    /// The newest of these that are not known are known from now on, without being told.
    pub(super) fn remember(&mut self, older: &[Older]) {
        let unknown = older.iter().filter(|file| !file.is_packed && !self.knows(file.id));
        let mut skipped: Vec<Tail> = Vec::new();
        for file in unknown.rev().take(KNOWN) {
            if let Ok(mut tail) = self.open_older(file)
                && tail.file().is_ok_and(|file| self.is_new(file))
                && tail.skip().is_ok()
            {
                skipped.insert(0, tail);
            }
        }
        // They are older than what was told.
        self.older.splice(0..0, skipped);
        self.forget_oldest();
    }

    fn knows(&self, id: Id) -> bool {
        self.tails().any(|tail| tail.id() == id)
    }

    fn forget_oldest(&mut self) {
        if self.scope == Scope::Path {
            self.older.drain(..self.older.len().saturating_sub(KNOWN));
        }
    }

    /// So many files were found. If more came, that gap is said; where nobody counts, if the file before is not among them.
    pub(super) fn settle(&mut self, found: i64, is_plausible: bool, sink: &mut dyn Sink) {
        let lost = self.arrivals.settle(found, is_plausible);
        if lost > 0 {
            sink.missed(&format!(
                "{}: {lost} or more files were rotated away and removed before they could be read; what they held is not told",
                self.path.display()
            ));
        }
    }

    /// Tells whatever came to any of the files. With `rescan` names may have changed. False if the file at the path cannot
    /// be opened.
    pub(super) fn follow(
        &mut self,
        mut rescan: bool,
        elsewhere: &mut dyn Elsewhere,
        sink: &mut dyn Sink,
    ) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let is_begun = self.read_known(sink)?;
            let there = self.id_there();
            let is_other = there.is_some() && self.current.as_ref().map(Tail::id) != there;
            let is_unsure = std::mem::take(&mut self.is_unsure);
            let is_quiet = self.cut.is_empty() && !is_begun && !is_other;
            if (is_quiet && !rescan && !is_unsure) || sink.is_over() {
                break;
            }
            rescan = false;
            let is_open = match self.kind {
                Kind::Plain => self.find_text(elsewhere, sink)?,
                Kind::Lsf => self.find_records(sink)?,
            };
            if !is_open {
                return Ok(self.scope == Scope::Folder);
            }
        }
        // Reports of files that were there before this one: nobody will find them any more.
        if let Some(tail) = &self.current
            && self.id_there() == Some(tail.id())
            && !self.is_unsure
            && !self.is_counting
        {
            self.settle(0, true, sink);
        }
        Ok(true)
    }

    /// Reads what was added to the files that are known, and sets texts aside that are not in their files any more. True if there
    /// is something in the file at the path of which nothing was told yet.
    fn read_known(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        for mut tail in std::mem::take(&mut self.older) {
            let is_left = tail.is_resting() || tail.is_untold();
            if !is_left && tail.look(sink)? == Look::Rewritten {
                self.set_aside(tail, false);
            } else {
                self.older.push(tail);
            }
        }
        let Some(tail) = self.current.as_mut().filter(|tail| !tail.is_resting()) else { return Ok(false) };
        if self.kind == Kind::Plain && tail.offset() == 0 {
            return tail.peek();
        }
        let is_same = if tail.is_untold() { tail.is_intact() } else { tail.look(sink)? == Look::Grown };
        if is_same {
            return Ok(tail.is_untold());
        }
        let fresh = tail.fresh((self.make)())?;
        let text = std::mem::replace(tail, fresh);
        self.set_aside(text, true);
        Ok(false)
    }

    /// Tells what is held because more might have been known.
    pub(super) fn settle_times(&mut self, sink: &mut dyn Sink) {
        let cut = self.cut.iter_mut().map(|cut| &mut cut.tail);
        self.older.iter_mut().chain(cut).chain(&mut self.current).for_each(|tail| tail.settle(sink));
    }

    /// Says which of the files end in the middle of a record.
    pub(super) fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        self.tails_mut().for_each(|tail| tail.say_unfinished(sink));
    }

    fn set_aside(&mut self, tail: Tail, is_log: bool) {
        self.last_key += 1;
        self.cut.push(Cut { key: self.last_key, tail, is_log });
    }

    /// Opens the file at the path if it is another one. The old one is read to its end.
    fn open_other(&mut self, elsewhere: &mut dyn Elsewhere, sink: &mut dyn Sink) -> io::Result<Switch> {
        let there = self.id_there();
        if there.is_some() && self.current.as_ref().map(Tail::id) == there {
            return Ok(Switch::None);
        }
        let new = match self.open() {
            Ok(new) => new,
            Err(error) => {
                if self.current.is_none() || error.kind() != io::ErrorKind::NotFound {
                    self.trouble(&error, sink);
                    return Ok(Switch::Failed);
                }
                return Ok(Switch::Gone);
            }
        };
        self.once.fine(&self.path);
        if self.current.as_ref().is_some_and(|tail| tail.id() == new.id()) {
            return Ok(Switch::None);
        }
        let mut new = adopt(elsewhere, new)?;
        let mut is_replaced = false;
        if let Some(old) = self.current.as_mut().filter(|_| self.kind == Kind::Plain && new.offset() == 0) {
            // As an editor does, or whoever brings a log from elsewhere: all that was told is in the other file.
            is_replaced =
                old.is_replaced_by(&new)? && old.look(sink)? == Look::Grown && old.is_replaced_by(&new)?;
            if is_replaced {
                new.pass_over(old.offset())?;
            }
        }
        let Some(mut old) = self.current.replace(new) else { return Ok(Switch::First) };
        let id = old.id();
        let is_begun = old.is_resting() || old.peek()?;
        let is_left = old.is_resting() || old.is_untold();
        if !is_begun {
            // Nobody knows what will be in it: it is like one that was never seen, except that it was counted.
            self.empty.insert(id);
        } else if !is_left && old.look(sink)? == Look::Rewritten {
            self.set_aside(old, true);
        } else {
            self.older.push(old);
        }
        Ok(if is_replaced { Switch::Replaced(id) } else { Switch::From(id) })
    }

    pub(super) fn trouble(&mut self, error: &io::Error, sink: &mut dyn Sink) {
        if self.scope == Scope::Path || error.kind() != io::ErrorKind::NotFound {
            self.once.trouble(&self.path, error, sink);
        }
    }

    pub(super) fn begin(&mut self, current: Tail) {
        self.once.fine(&self.path);
        self.current = Some(current);
    }

    /// A text is in no file of this log any more.
    fn note_cut(&self, tail: &Tail, sink: &mut dyn Sink) {
        let note = format!(
            "{} was cut or rewritten after byte {}: what was added since the last look is not seen",
            self.path.display(),
            tail.offset()
        );
        tail.note_lost(note, sink);
    }
}

/// The file as it is known elsewhere, if it still holds the same text, else as it was opened. Whatever its name is by now: it
/// is the one that is open.
fn adopt(elsewhere: &mut dyn Elsewhere, opened: Tail) -> io::Result<Tail> {
    let Some(mut known) = elsewhere.take(opened.id()) else { return Ok(opened) };
    known.wake_as(&opened)?;
    Ok(if known.is_intact() { known } else { opened })
}

/// Do two files hold the same? Empty ones do not count.
fn is_same_text(one: &Tail, other: &Tail) -> io::Result<bool> {
    let (one, other) = (one.file()?, other.file()?);
    let size = one.metadata()?.len();
    if size == 0 || size != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; COMPARED], vec![0; COMPARED]);
    let mut at = 0;
    while at < size {
        let length = (size - at).min(COMPARED as u64) as usize;
        one.read_exact_at(&mut ours[..length], at)?;
        other.read_exact_at(&mut theirs[..length], at)?;
        if ours[..length] != theirs[..length] {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}

/// What is at the path.
enum Switch {
    /// The file that was there before, or nothing.
    None,
    /// A file where none was known.
    First,
    /// None; the one that was there before is known.
    Gone,
    /// Another one instead of this.
    From(Id),
    /// The same, and it begins with all that was told of this.
    Replaced(Id),
    /// Something that cannot be opened.
    Failed,
}
