//! Which file holds which text: puts the files of a log in order and tells what is new.

use std::fs::File;
use std::io;

use super::{ATTEMPTS, Cut, Elsewhere, Id, Log, Look, Older, Scope, Switch, Tail, adopt, tail};
use crate::seg::{Reached, Sink};

impl Log {
    /// Puts the files in order and tells what is new. False if the file at the path cannot be opened.
    pub(super) fn find_text(
        &mut self,
        elsewhere: &mut dyn Elsewhere,
        sink: &mut dyn Sink,
    ) -> io::Result<bool> {
        let had_older = !self.older.is_empty();
        let switch = self.open_other(elsewhere, sink)?;
        let listed = self.list_with_beginning()?;
        let was_cut = self.cut.iter().any(|cut| cut.is_log);
        let mut reached = self.reached_before(&switch);
        let is_found = match switch {
            Switch::From(id) => listed.iter().flatten().any(|file| file.id == id),
            _ => true,
        };
        self.set_removed_aside();
        let listed = match (listed, &switch) {
            // The log was removed, and nothing came in its place: it is older than what there is.
            (None, Switch::Gone) => {
                self.tell_removed(sink)?;
                if let Some(current) = &mut self.current {
                    current.tell_ahead(sink);
                }
                Some(self.list())
            }
            (listed, _) => listed,
        };
        // One of which nothing was told is older than what came after it: without its place nothing can be told.
        let has_place =
            |tail: &Tail| !tail.is_untold() || listed.iter().flatten().any(|file| file.id == tail.id());
        let told = match &listed {
            Some(listed) if self.older.iter().all(has_place) => {
                self.tell_older(listed, &mut reached, elsewhere, sink)?
            }
            // The file is gone from the path again, and nobody can tell what came before it.
            _ => Found { files: 0, newer: 0, is_all: false },
        };
        let is_new = matches!(switch, Switch::First | Switch::From(_) | Switch::Replaced(_));
        // Where the log is still the one that was known and nothing is newer, what is found are copies.
        self.is_counting |= !matches!(switch, Switch::None) || told.newer > 0;
        let came = if self.is_counting { told.files + i64::from(is_new) } else { 0 };
        self.found += came;
        // What is cut short is counted when it is whole.
        if told.is_all {
            let found = std::mem::take(&mut self.found);
            // What is missing is said when the file at the path is known to be the last.
            if std::mem::take(&mut self.is_counting) && !self.arrivals.find(found) {
                self.settle(found, is_found || (found <= 1 && !had_older), sink);
            }
        }
        self.is_unsure = !told.is_all;
        if told.is_all {
            let is_fresh = was_cut || is_new;
            self.give_up(is_fresh && matches!(switch, Switch::None), sink)?;
            self.forget_oldest();
            if let Some(current) = self.current.as_mut().filter(|tail| !tail.is_resting()) {
                // One that was known elsewhere goes on where it was.
                if is_fresh && current.reached().is_none() {
                    current.go_on(reached);
                }
                // Another text again: that is for the next round. So is what came to one that was empty before the listing,
                // because something may have come before it, and be in a copy now.
                if current.offset() > 0 {
                    current.look(sink)?;
                }
            }
        }
        Ok(!matches!(switch, Switch::Failed))
    }

    /// Whoever removed a file may have copied it before.
    fn set_removed_aside(&mut self) {
        for tail in std::mem::take(&mut self.older) {
            if tail.is_deleted() {
                self.set_aside(tail, false);
            } else {
                self.older.push(tail);
            }
        }
    }

    /// How far the log had come before what is to be told.
    fn reached_before(&self, switch: &Switch) -> Option<Reached> {
        let cut = self.cut.iter().find(|cut| cut.is_log).and_then(|cut| cut.tail.reached());
        cut.or_else(|| match switch {
            Switch::From(id) | Switch::Replaced(id) => {
                self.older.iter().find(|tail| tail.id() == *id).and_then(Tail::reached)
            }
            _ if self.scope == Scope::Path && self.current.as_ref().is_none_or(|t| t.reached().is_none()) => {
                self.older.last().and_then(Tail::reached)
            }
            _ => None,
        })
    }

    /// The rotated files, as they are after the beginning of the file at the path was read.
    fn list_with_beginning(&mut self) -> io::Result<Option<Vec<Older>>> {
        let mut listed = None;
        for _ in 0..ATTEMPTS {
            let Some(mut current) = self.current.take() else { return Ok(Some(self.list())) };
            let is_begun = current.is_resting() || current.peek()?;
            listed = self.older_than(&current);
            // If it was empty, and is not: what was found may be copies of this.
            let is_late = !is_begun && current.peek()?;
            self.current = Some(current);
            if !is_late {
                break;
            }
        }
        Ok(listed)
    }

    /// Goes through the rotated files, oldest first.
    fn tell_older(
        &mut self,
        listed: &[Older],
        reached: &mut Option<Reached>,
        elsewhere: &mut dyn Elsewhere,
        sink: &mut dyn Sink,
    ) -> io::Result<Found> {
        let newest =
            listed.iter().rposition(|file| self.tails().any(|t| t.id() == file.id && !t.is_untold()));
        let current = self.current.as_ref().map(Tail::id);
        let is_newer = |at: usize| listed[..at].iter().any(|file| Some(file.id) == current);
        let mut found = Found { files: 0, newer: 0, is_all: true };
        let Some(mut owners) = self.find_owners(listed, newest) else {
            return Ok(Found { is_all: false, ..found });
        };
        for (at, file) in listed.iter().enumerate() {
            if sink.is_over() {
                break;
            }
            if !self.finish_known(file.id, sink)? {
                return Ok(Found { is_all: false, ..found });
            }
            if self.knows(file.id) || self.is_past(at, newest) {
                continue;
            }
            let tail = match self.open_older(file) {
                Ok(tail) => tail,
                // It has another name by now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Found { is_all: false, ..found });
                }
                Err(error) => {
                    self.refuse(file.id, &file.path, &error, sink);
                    continue;
                }
            };
            let mut tail = adopt(elsewhere, tail)?;
            if tail.offset() > 0 {
                tail.look(sink)?;
                self.keep(tail);
                continue;
            }
            if let Some(owner) = owners[at].take() {
                *reached = self.move_text(&owner, tail, sink)?;
                continue;
            }
            match self.is_copied_to(tail.file()?, &listed[..at]) {
                Copy::Yes => {
                    // Nothing to tell, but perhaps one of those that came.
                    let is_empty = tail.file()?.metadata()?.len() == 0;
                    found.files += i64::from(is_empty && self.empty.insert(file.id));
                    continue;
                }
                Copy::Unknown => return Ok(Found { is_all: false, ..found }),
                Copy::No => {}
            }
            self.tell_removed(sink)?;
            tail.go_on(reached.clone());
            tail.look(sink)?;
            if self.scope == Scope::Path {
                *reached = tail.reached();
            }
            self.keep(tail);
            let is_uncounted = i64::from(!self.empty.remove(&file.id));
            found.files += is_uncounted;
            found.newer += if is_newer(at) { is_uncounted } else { 0 };
        }
        self.empty.retain(|id| listed.iter().any(|file| file.id == *id));
        Ok(found)
    }

    /// Tells what was added to a file that is known: it is older than whatever comes next. False if it holds another text.
    fn finish_known(&mut self, id: Id, sink: &mut dyn Sink) -> io::Result<bool> {
        if self.tails().any(|tail| tail.id() == id && tail.is_untold()) {
            self.tell_removed(sink)?;
        }
        for tail in self.tails_mut().filter(|tail| tail.id() == id && !tail.is_resting()) {
            if tail.look(sink)? == Look::Rewritten {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A file that was removed before anything of it was told is older than what is there.
    fn tell_removed(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        for cut in self.cut.iter_mut().filter(|cut| !cut.is_log) {
            cut.tail.tell_ahead(sink);
            if cut.tail.is_deleted() {
                // Something may have been added before. If it is another text, there is nobody who could tell it.
                cut.tail.look(sink)?;
            }
        }
        Ok(())
    }

    /// A text goes on in another file. Returns how far it has come.
    fn move_text(&mut self, owner: &Owner, copy: Tail, sink: &mut dyn Sink) -> io::Result<Option<Reached>> {
        let Some(place) = self.cut.iter().position(|cut| cut.key == owner.key) else { return Ok(None) };
        let Cut { tail: mut text, is_log, .. } = self.cut.remove(place);
        let (path, id) = (copy.path().to_owned(), copy.id());
        if owner.is_shorter {
            if is_log {
                self.note_cut(&text, sink);
            }
            text.tell_ahead(sink);
        }
        text.move_to(&path, copy.into_file()?, id);
        if owner.is_shorter {
            text.skip()?;
        }
        text.look(sink)?;
        let reached = text.reached();
        self.keep(text);
        Ok(reached)
    }

    /// Of a single log, what stands before a known file was there before.
    fn is_past(&self, at: usize, newest: Option<usize>) -> bool {
        self.scope == Scope::Path && newest.is_some_and(|newest| at < newest)
    }

    /// Which of the files that are not known holds which text that was cut away: one that holds all of it, or else one that
    /// holds its beginning. Nothing if one of them has another name by now.
    fn find_owners(&self, listed: &[Older], newest: Option<usize>) -> Option<Vec<Option<Owner>>> {
        let mut owners: Vec<Option<Owner>> = listed.iter().map(|_| None).collect();
        if self.cut.is_empty() {
            return Some(owners);
        }
        let mut files: Vec<Option<File>> = Vec::new();
        for (at, file) in listed.iter().enumerate() {
            let is_candidate = !self.knows(file.id) && !self.is_past(at, newest);
            files.push(match is_candidate.then(|| self.open_older(file)) {
                Some(Ok(tail)) => tail.into_file().ok(),
                Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return None,
                Some(Err(_)) | None => None,
            });
        }
        let mut left: Vec<&Cut> = self.cut.iter().collect();
        for is_shorter in [false, true] {
            left.retain(|cut| {
                let is_owner = |file: &File| {
                    if is_shorter {
                        cut.tail.covers(file).unwrap_or(false)
                    } else {
                        cut.tail.is_beginning_of(file)
                    }
                };
                let place = (0..files.len())
                    .find(|at| owners[*at].is_none() && files[*at].as_ref().is_some_and(is_owner));
                if let Some(at) = place {
                    owners[at] = Some(Owner { key: cut.key, is_shorter });
                }
                place.is_none()
            });
        }
        Some(owners)
    }

    /// Is this a copy of a file that is known? Not known if that one was cut meanwhile. Nobody copies a file that was rotated away to
    /// the name of a newer one: where one that stands before it has the same text, both have it.
    fn is_copied_to(&self, copy: &File, before: &[Older]) -> Copy {
        let mut head = [0; tail::HEAD];
        let Ok(count) = std::os::unix::fs::FileExt::read_at(copy, &mut head, 0) else { return Copy::No };
        let head = &head[..count];
        let is_older = |tail: &Tail| !head.is_empty() && before.iter().any(|older| older.id == tail.id());
        let alike = || {
            let alike =
                self.tails().filter(|tail| tail.head().starts_with(head) || head.starts_with(tail.head()));
            alike.filter(|tail| !is_older(tail))
        };
        if alike().any(|tail| tail.has_copy(copy).unwrap_or(false)) {
            return Copy::Yes;
        }
        if alike().any(|tail| !tail.is_resting() && !tail.is_intact()) {
            return Copy::Unknown;
        }
        // One that has more than the file whose events it begins with is a copy all the same: that file is about to be written anew.
        if alike().any(|tail| tail.has_told() && tail.is_beginning_of(copy)) { Copy::Yes } else { Copy::No }
    }

    /// Texts that nobody holds any more: what was added to them unseen is lost. Files that were removed stay known.
    fn give_up(&mut self, is_in_place: bool, sink: &mut dyn Sink) -> io::Result<()> {
        let mut removed = Vec::new();
        for Cut { mut tail, is_log, .. } in std::mem::take(&mut self.cut) {
            tail.tell_ahead(sink);
            if !is_log {
                if tail.is_deleted() {
                    removed.push(tail);
                }
                continue;
            }
            self.note_cut(&tail, sink);
            if is_in_place && let Some(current) = &mut self.current {
                current.go_on_if_cut(&tail)?;
                if current.offset() == 0 || current.is_untold() {
                    current.expect_again(tail);
                }
            }
        }
        self.older.splice(0..0, removed);
        Ok(())
    }

    /// Is this no copy of a file that is known?
    pub(super) fn is_new(&self, file: &File) -> bool {
        matches!(self.is_copied_to(file, &[]), Copy::No)
    }
}

/// What came of going through the rotated files.
struct Found {
    /// So many are new.
    files: i64,
    /// So many of these are newer than the file that was at the path.
    newer: i64,
    /// All were told; else something was cut meanwhile, and it is to be looked again.
    is_all: bool,
}

/// Is a file the copy of another one?
enum Copy {
    Yes,
    No,
    Unknown,
}

/// Whose text a file holds.
struct Owner {
    key: u64,
    is_shorter: bool,
}
