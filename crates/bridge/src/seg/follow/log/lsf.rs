//! LSF's `lsb.events`. A switch copies the records of the file to `lsb.events.0`, behind a line with the time; writes those of
//! unfinished jobs to a new file, behind a line with their length, and renames it over `lsb.events`; then gives all numbers
//! the next one. So the text that was read goes on in a copy, in which it stands elsewhere. Where the file itself is renamed it is
//! known by its inode, and the next one may begin with records of it, which its parser knows again.

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::{Age, KNOWN, Log, Nowhere, Older, Switch, Tail};
use crate::seg::{Format, Sink, lsf};

/// So much of a copy is compared.
const BEGINNING: usize = 2_048;
/// So much of a file that was told is read at once.
const BLOCK: usize = 1 << 20;
/// Rotated files that are searched for the text of a log that was cut.
const COPIES: usize = 16;

impl Log {
    /// The rotated file of this number.
    pub(in super::super) fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    /// Tells the files that were closed at or after `from`. Returns the log's own with their parser.
    pub(in super::super) fn start_records(
        &self,
        current: io::Result<Tail>,
        older: &[Older],
        from: i64,
        sink: &mut dyn Sink,
    ) -> io::Result<io::Result<Tail>> {
        let mut chain = Vec::new();
        let mut expected = 1;
        for file in older.iter().rev() {
            let Age::Numbered(Reverse(number)) = file.age else { continue };
            let tail = if number > expected {
                Err((self.numbered(expected), io::ErrorKind::NotFound.into()))
            } else {
                self.open_records(file).map_err(|error| (file.path.clone(), error))
            };
            let tail = match tail {
                Ok(tail) => tail,
                Err((path, error)) => {
                    sink.missed(&format!(
                        "{}: {error}; the files with higher numbers are not read",
                        path.display()
                    ));
                    break;
                }
            };
            if tail
                .file()
                .ok()
                .and_then(first_line)
                .and_then(|line| lsf::closing_time(&line))
                .is_some_and(|closed| closed < from)
            {
                break;
            }
            expected = number + 1;
            chain.push(tail);
        }
        let mut format = self.format();
        for tail in chain.into_iter().rev() {
            let mut tail = tail.with_format(format);
            tail.seek(from)?;
            tail.look(sink)?;
            tail.say_unfinished(sink);
            format = tail.into_format();
            format.reset();
        }
        Ok(current.map(|current| current.with_format(format)))
    }

    /// Opens an older file. One that was renamed as it was still says where its own records begin.
    fn open_records(&self, file: &Older) -> io::Result<Tail> {
        let tail = self.open_older(file)?;
        let line = first_line(tail.file()?);
        let is_place =
            line.is_some_and(|line| lsf::header(&line).is_some() && lsf::closing_time(&line).is_none());
        Ok(if is_place { tail.with_offset() } else { tail })
    }

    /// The log was cut, or another file is at its path, or names have changed. False if the file at the path cannot be opened.
    pub(super) fn find_records(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let had_older = !self.older.is_empty();
        let switch = self.open_other(&mut Nowhere, sink)?;
        // A file that came beside it may be its copy, which counts when the log is written anew.
        if matches!(switch, Switch::None | Switch::Gone) && !self.cut.iter().any(|cut| cut.is_log) {
            self.cut.clear();
            return Ok(true);
        }
        let listed = match &self.current {
            Some(current) => self.older_than(current),
            None => Some(self.list()),
        };
        // It was replaced again. What was read is known until then.
        let Some(listed) = listed else { return Ok(true) };
        let place = listed.iter().rposition(|file| self.knows(file.id));
        let mut news = &listed[place.map_or(0, |at| at + 1)..];
        let mut before = place.map(|at| &listed[at]);
        let mut format = self.format();
        let mut is_found = true;
        if let Some(mut text) = self.take_text(&switch, &listed) {
            match self.catch_up(&mut text, &listed, sink) {
                Some(at) => (before, news) = (Some(&listed[at]), &listed[at + 1..]),
                None if text.has_memory() => {
                    (is_found, before) = (false, None);
                    self.note_cut(&text, sink);
                }
                // Nothing of it was told, so that its copy is as good as new.
                None => {}
            }
            if matches!(switch, Switch::None)
                && let Some(current) = &mut self.current
            {
                current.go_on_if_cut(&text)?;
            }
            format = text.into_format();
            format.reset();
        }
        format = self.read_between(format, news, before, sink)?;
        let told = news.len() as i64;
        let found = told + i64::from(matches!(switch, Switch::First | Switch::From(_)));
        if !matches!(switch, Switch::None) && !self.arrivals.find(found) {
            self.settle(found, is_found || (told == 0 && !had_older), sink);
        }
        self.know_only(&listed);
        if let Some(current) = self.current.take() {
            let mut current = current.with_format(format);
            current.look(sink)?;
            self.current = Some(current);
        }
        Ok(!matches!(switch, Switch::Failed))
    }

    /// The text that is not at the path any more, nor in a file that is still there: it may go on in a copy.
    fn take_text(&mut self, switch: &Switch, listed: &[Older]) -> Option<Tail> {
        if let Some(cut) = std::mem::take(&mut self.cut).into_iter().find(|cut| cut.is_log) {
            return Some(cut.tail);
        }
        let Switch::From(id) = switch else { return None };
        if listed.iter().any(|file| file.id == *id) {
            return None;
        }
        let at = self.older.iter().position(|tail| tail.id() == *id)?;
        Some(self.older.remove(at))
    }

    /// The newest of these are known from now on, and nothing else.
    fn know_only(&mut self, listed: &[Older]) {
        let mut before = std::mem::take(&mut self.older);
        for file in &listed[listed.len().saturating_sub(KNOWN)..] {
            if let Some(at) = before.iter().position(|tail| tail.id() == file.id) {
                self.older.push(before.remove(at));
            } else if let Ok(mut tail) = self.open_older(file)
                && tail.skip().is_ok()
            {
                self.older.push(tail);
            }
        }
    }

    /// The file was replaced or rewritten. Tells from a copy what was not read yet, and returns which one it is. Its first line
    /// is another one, so that the text stands elsewhere.
    fn catch_up(&self, text: &mut Tail, listed: &[Older], sink: &mut dyn Sink) -> Option<usize> {
        // The oldest first: newer ones may have the same records at their heads, carried over.
        let copies = listed.iter().enumerate().skip(listed.len().saturating_sub(COPIES));
        let copies = copies.filter(|(_, file)| !self.knows(file.id));
        let mut copies = copies.filter_map(|(at, file)| Some((at, file.file.as_ref()?)));
        copies.find_map(|(at, copy)| text.catch_up(copy, sink).unwrap_or(false).then_some(at))
    }

    /// Reads whole files, oldest first; `before` is the one before them. Returns the parser for the file at the path.
    fn read_between(
        &self,
        mut format: Box<dyn Format>,
        files: &[Older],
        before: Option<&Older>,
        sink: &mut dyn Sink,
    ) -> io::Result<Box<dyn Format>> {
        let before = before.filter(|_| !files.is_empty()).and_then(|file| file.file.as_ref());
        if let Some(before) = before {
            // The next file repeats what was unfinished when this one was closed.
            recall(before, format.as_mut())?;
        }
        for file in files {
            match self.open_records(file) {
                Ok(tail) => {
                    let mut tail = tail.with_format(format);
                    tail.look(sink)?;
                    tail.say_unfinished(sink);
                    format = tail.into_format();
                    format.reset();
                }
                Err(error) => {
                    sink.missed(&format!("{}: {error}; what it holds is not told", file.path.display()));
                }
            }
        }
        Ok(format)
    }
}

/// Is this number 0, and only a copy of the file at the path, which a switch is about to replace?
pub(super) fn is_being_copied(current: &Tail, copy: &Older) -> bool {
    let is_copy = |copy: &File| -> io::Result<bool> {
        let mut text = [0; BEGINNING];
        let count = copy.read_at(&mut text, 0)?;
        let Some(end) = memchr::memchr(b'\n', &text[..count]) else { return Ok(true) };
        let body = &text[end + 1..count];
        let line = first_line(current.file()?);
        let offset = line.as_ref().and_then(|line| lsf::header(line)).unwrap_or(0).max(0) as u64;
        let head = line.map_or(0, |line| line.len() as u64 + 1);
        let mut there = vec![0; body.len()];
        // Of its own records, or of those that were carried over, too.
        Ok([offset, head].into_iter().any(|at| {
            current.file().is_ok_and(|file| file.read_exact_at(&mut there, at).is_ok()) && there == body
        }))
    };
    copy.age == Age::Numbered(Reverse(0))
        && copy.file.as_ref().is_some_and(|copy| is_copy(copy).unwrap_or(false))
}

/// The parser learns how a file ended that was told before.
fn recall(file: &File, format: &mut dyn Format) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    loop {
        let count = file.read_at(&mut block, at)?;
        // A line that is longer than a block cannot be recalled, and is cut.
        let whole = memchr::memrchr(b'\n', &block[..count]).map_or(count, |end| end + 1);
        if whole == 0 {
            break;
        }
        block[..whole].split_inclusive(|b| *b == b'\n').for_each(|line| {
            format.recall(line.strip_suffix(b"\n").unwrap_or(line));
        });
        at += whole as u64;
    }
    format.reset();
    Ok(())
}

/// The first line of a file, if it is short.
fn first_line(file: &File) -> Option<Vec<u8>> {
    let mut start = [0; 256];
    let count = file.read_at(&mut start, 0).ok()?;
    let end = memchr::memchr(b'\n', &start[..count])?;
    Some(start[..end].to_vec())
}
