//! Is a text in another file, too? A file that is copied and cut goes on there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{BLOCK, HEAD, MEMORY, Named, Tail};
use crate::seg::Sink;
use crate::seg::follow::moments;

impl Tail {
    /// Is all that this file holds a part of what was read? So is a copy that was made before the last lines were read.
    pub fn covers(&self, copy: &File) -> io::Result<bool> {
        let size = copy.metadata()?.len();
        if size == 0 || size > self.offset {
            return Ok(false);
        }
        let mut head = vec![0; self.head.len().min(size as usize)];
        copy.read_exact_at(&mut head, 0)?;
        let remembered = self.offset - self.memory.len() as u64;
        let mut end = vec![0; size.saturating_sub(remembered) as usize];
        copy.read_exact_at(&mut end, remembered.min(size))?;
        Ok(self.head.starts_with(&head) && self.memory.starts_with(&end))
    }

    /// Does this file begin with all that the other one holds? So it is while a copy is made, and until the original is
    /// cut.
    pub fn has_copy(&self, copy: &File) -> io::Result<bool> {
        moments::pass();
        let Some(file) = &self.file else { return Ok(self.is_beginning_of(copy) || self.covers(copy)?) };
        let size = copy.metadata()?.len();
        if size > file.metadata()?.len() {
            return Ok(false);
        }
        let is_equal = |at: u64, length: u64| -> io::Result<bool> {
            let (mut ours, mut theirs) = (vec![0; length as usize], vec![0; length as usize]);
            copy.read_exact_at(&mut theirs, at)?;
            Ok(file.read_exact_at(&mut ours, at).is_ok() && ours == theirs)
        };
        let (first, last) = (size.min(HEAD as u64), size.min(MEMORY as u64));
        Ok(is_equal(0, first)? && is_equal(size - last, last)?)
    }

    /// The same of a file that is followed.
    pub fn has_copy_in(&self, other: &Self) -> bool {
        other.file().and_then(|copy| self.has_copy(copy)).unwrap_or(false)
    }

    /// Goes on behind what another tail has read, if this file begins with it. Only while nothing was read here.
    pub fn go_behind(&mut self, other: &Self) -> io::Result<bool> {
        if !other.is_beginning_of(self.file()?) {
            return Ok(false);
        }
        // An unfinished line is read again from its beginning.
        self.offset = other.offset - other.pending() as u64;
        self.remember_before()?;
        Ok(true)
    }

    /// Does this file begin with what was read?
    pub fn is_beginning_of(&self, copy: &File) -> bool {
        moments::pass();
        let mut there = vec![0; self.memory.len()];
        let mut head = vec![0; self.head.len()];
        !self.memory.is_empty()
            && copy.read_exact_at(&mut head, 0).is_ok()
            && head == self.head
            && copy.read_exact_at(&mut there, self.offset - self.memory.len() as u64).is_ok()
            && there == self.memory
    }

    /// The file was cut, and this was in it before.
    pub fn expect_again(&mut self, mut before: Self) {
        if self.is_untold() {
            // It is read again, when it is known whether this was told.
            (self.offset, self.seen) = (0, None);
            self.ahead.clear();
            self.memory.clear();
            self.head.clear();
        }
        before.rest();
        self.before = Some(Box::new(before));
    }

    /// Is what was in the file before it was cut written to it again, as by whoever copies a log over it? What was told is passed
    /// over when it is all there, and waited for until then.
    pub(super) fn is_being_restored(&mut self) -> io::Result<bool> {
        let Some(before) = self.before.take() else { return Ok(false) };
        let size = self.file()?.metadata()?.len();
        if before.is_beginning_of(self.file()?) {
            self.pass_over(before.offset)?;
            return Ok(true);
        }
        let is_under_way = size == 0 || before.covers(self.file()?)?;
        if is_under_way {
            self.before = Some(before);
        }
        Ok(is_under_way)
    }

    /// Was this file, which has no name any more, replaced by one that begins with all that was read of it?
    pub fn is_replaced_by(&self, other: &Self) -> io::Result<bool> {
        let is_read = !self.is_resting() && !self.is_untold() && self.has_memory();
        Ok(is_read && self.is_deleted() && self.is_beginning_of(other.file()?))
    }

    /// After [`super::Look::Rewritten`]: reads what was added in the meantime from a copy, in which the text may stand in another
    /// place. False when the copy does not hold the text that was read.
    pub fn catch_up(&mut self, file: &File, sink: &mut dyn Sink) -> io::Result<bool> {
        let found = if self.is_beginning_of(file) { Some(self.offset) } else { self.find(file)? };
        let Some(mut at) = found else { return Ok(false) };
        let mut block = vec![0; BLOCK];
        loop {
            let count = file.read_at(&mut block, at)?;
            if count == 0 || sink.is_over() {
                return Ok(true);
            }
            at += count as u64;
            self.format
                .feed(&block[..count], &mut Named { path: &self.path, has_told: &mut self.has_told, sink });
        }
    }

    /// Where in a copy the text that was read ends. The copy may have another first line.
    fn find(&self, file: &File) -> io::Result<Option<u64>> {
        if self.memory.is_empty() {
            return Ok(None);
        }
        let length = self.memory.len() as u64;
        let mut there = vec![0; self.memory.len()];
        if file.read_exact_at(&mut there, self.offset - length).is_ok() && there == self.memory {
            return Ok(Some(self.offset));
        }
        let finder = memchr::memmem::Finder::new(&self.memory);
        let mut block = vec![0; BLOCK + self.memory.len()];
        let mut at = 0u64;
        loop {
            let count = file.read_at(&mut block, at)?;
            if let Some(found) = finder.find(&block[..count]) {
                return Ok(Some(at + found as u64 + length));
            }
            if count < self.memory.len() {
                return Ok(None);
            }
            at += count as u64 - length + 1;
        }
    }
}
