//! A file of a directory of logs: what was told of another file with the same text is not told again.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use super::{BLOCK, Named, Tail};
use crate::seg::follow::texts::{Known, Lost, Running, Shared};
use crate::seg::{Event, Sink};

/// What a file has in common with others.
pub(super) struct Sharing {
    known: Known,
    told: Running,
    /// The look under way found that so much of the file is another's.
    shared: Option<Shared>,
    is_sought: bool,
    /// All that was read last is another's.
    is_copy: bool,
    /// Something of the file was told.
    has_own: bool,
    /// In which listing of the directory it was last seen that the file holds its text.
    seen: u64,
}

impl Sharing {
    pub(super) fn known(&self) -> Known {
        Rc::clone(&self.known)
    }
}

impl Tail {
    /// A file of a directory of logs: what was told as another's is not told as its own.
    #[must_use]
    pub(in crate::seg::follow) fn sharing(mut self, known: Option<Known>) -> Self {
        self.sharing = known.map(|known| Sharing {
            known,
            told: Running::default(),
            shared: None,
            is_sought: false,
            is_copy: false,
            has_own: false,
            seen: 0,
        });
        self
    }

    /// The file holds what was read of it.
    pub(in crate::seg::follow) fn confirm(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.seen = sharing.known.borrow().listing();
        }
    }

    /// What was read is not in the file any more, and what may have been added is in no copy that the log knows. That is said; in a
    /// directory of logs only if no other file has it.
    pub(in crate::seg::follow) fn note_lost(&self, note: String, sink: &mut dyn Sink) {
        match &self.sharing {
            Some(Sharing { known, told, has_own, seen, .. }) => {
                let lost = Lost { id: self.id, told: told.clone(), seen: *seen, is_copy: !has_own };
                known.borrow_mut().lose(lost, note);
            }
            None => sink.missed(&note),
        }
    }

    /// Has another file all that was read?
    pub(super) fn is_copy(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_copy)
    }

    /// What comes next may be another's again.
    pub(super) fn seek_shared(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.is_sought = false;
        }
    }

    /// Whatever stands before the place reached counts as told.
    pub(super) fn share_to_here(&mut self) -> io::Result<()> {
        if let (Some(sharing), Some(file)) = (&mut self.sharing, &self.file) {
            sharing.told = Running::of(file, self.offset)?;
        }
        Ok(())
    }

    /// Gives bytes to the parser, and has what it makes of them told, unless that was told of another file.
    pub(super) fn feed(&mut self, at: u64, bytes: &[u8], sink: &mut dyn Sink) {
        let count = self.count_shared(at, bytes);
        let mut named = Named { path: &self.path, has_told: &mut self.has_told, sink };
        if count > 0 {
            self.format.settle(&mut named);
            let mut muted = Muted { is_over: named.sink.is_over(), has_told: named.has_told };
            self.format.feed(&bytes[..count], &mut muted);
            self.format.settle(&mut muted);
        }
        if count < bytes.len() {
            self.format.feed(&bytes[count..], &mut named);
        }
        if let Some(Sharing { known, told, .. }) = &mut self.sharing {
            let before = told.clone();
            told.add(bytes);
            known.borrow_mut().put(self.id, &self.path, &before, told);
        }
    }

    /// The file begins with so many bytes that were told, as those of another one or before it was written anew: the parser has them, and
    /// nobody else. Only while nothing was read.
    pub(in crate::seg::follow) fn pass_over(&mut self, until: u64) -> io::Result<()> {
        self.ahead.clear();
        (self.offset, self.head) = (0, Vec::new());
        self.head = self.read_head()?;
        self.format.written(self.complete, self.modified()?);
        self.format.begins(&self.head, 0);
        let mut muted = Muted { is_over: false, has_told: &mut self.has_told };
        let mut block = vec![0; BLOCK];
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        while self.offset < until {
            let wanted = (until - self.offset).min(BLOCK as u64) as usize;
            file.read_exact_at(&mut block[..wanted], self.offset)?;
            self.format.feed(&block[..wanted], &mut muted);
            self.offset += wanted as u64;
        }
        self.format.settle(&mut muted);
        self.remember_before()?;
        self.share_to_here()
    }

    /// How many of these bytes were told of another file.
    fn count_shared(&mut self, at: u64, bytes: &[u8]) -> usize {
        let (Some(sharing), Some(file)) = (&mut self.sharing, &self.file) else { return 0 };
        if !std::mem::replace(&mut sharing.is_sought, true) {
            sharing.shared = sharing.known.borrow().find_shared(&self.path, file, &sharing.told, bytes);
        }
        let count = sharing.shared.as_ref().map_or(0, |shared| shared.count(at, bytes));
        sharing.is_copy = count == bytes.len();
        if !sharing.is_copy {
            sharing.shared = None;
            sharing.has_own = true;
        }
        count
    }
}

/// Drops what was told of another file.
struct Muted<'a> {
    is_over: bool,
    has_told: &'a mut bool,
}

impl Sink for Muted<'_> {
    fn event(&mut self, _: &Event<'_>) {
        *self.has_told = true;
    }
    fn note(&mut self, _: &str) {}
    fn is_over(&mut self) -> bool {
        self.is_over
    }
}
