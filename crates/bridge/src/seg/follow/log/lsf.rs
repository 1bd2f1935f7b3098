//! LSF's `lsb.events`: each file begins with records that the one before had, and says by its first line how many, or when it
//! was closed. Its parser knows records again, so it goes from file to file.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{Cut, Log, Older, Switch, Tail, tail};
use crate::seg::{Sink, lsf};

/// Older files looked at, at most.
const OLDER: u32 = 10_000;
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
        from: i64,
        sink: &mut dyn Sink,
    ) -> io::Result<io::Result<Tail>> {
        let mut chain = Vec::new();
        for number in 1..=OLDER {
            let path = self.numbered(number);
            let tail = match Tail::open(&path, self.format()) {
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
            if first_line(&path).and_then(|l| lsf::header(&l)).is_some_and(|stamp| stamp < from) {
                break;
            }
            if current.as_ref().is_ok_and(|current| current.id() != tail.id()) || current.is_err() {
                chain.push(tail);
            }
        }
        let mut format = self.format();
        for tail in chain.into_iter().rev() {
            let mut tail = tail.with_format(format);
            tail.seek(from)?;
            tail.look(sink)?;
            format = tail.into_format();
            format.reset();
        }
        Ok(current.map(|current| current.with_format(format)))
    }

    /// The log was cut, or another file is at its path, or names have changed. False if the file at the path cannot be opened.
    pub(super) fn find_records(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let had_older = !self.older.is_empty();
        let switch = self.open_other(sink)?;
        // A file that came beside it may be its copy, which counts when the log is written anew.
        if matches!(switch, Switch::None | Switch::Gone) && !self.cut.iter().any(|cut| cut.is_log) {
            self.cut.clear();
            return Ok(true);
        }
        let listed = match &self.current {
            Some(current) => self.older_than(current).unwrap_or_default(),
            None => self.list(),
        };
        let log = std::mem::take(&mut self.cut).into_iter().find(|cut| cut.is_log);
        let place = listed.iter().rposition(|file| self.knows(file.id));
        let news = &listed[place.map_or(0, |at| at + 1)..];
        let is_found = match switch {
            Switch::From(id) => listed.iter().any(|file| file.id == id),
            _ => true,
        };
        if let Some(Cut { mut tail, .. }) = log {
            self.catch_up(&mut tail, &listed, sink)?;
            if matches!(switch, Switch::None)
                && let Some(mut current) = self.current.take()
            {
                current.go_on_if_cut(&tail)?;
                let mut format = tail.into_format();
                format.reset();
                self.current = Some(current.with_format(format));
            }
        } else {
            let before = place.map(|at| listed[at].path.as_path()).filter(|_| is_found);
            self.read_between(news, before, sink)?;
        }
        let told = news.len() as i64;
        let found = told + i64::from(matches!(switch, Switch::First | Switch::From(_)));
        if !matches!(switch, Switch::None) && !self.arrivals.find(found) {
            self.settle(found, is_found || (told == 0 && !had_older), sink);
        }
        self.remember(&listed);
        if let Some(current) = &mut self.current {
            current.look(sink)?;
        }
        Ok(!matches!(switch, Switch::Failed))
    }

    /// The file was rewritten in place. A copy made before may have what was not read yet; its first line is another one, so
    /// that its text stands elsewhere.
    fn catch_up(&self, tail: &mut Tail, listed: &[Older], sink: &mut dyn Sink) -> io::Result<()> {
        let copies = listed.iter().enumerate().rev().filter(|(_, file)| !self.knows(file.id));
        for (at, file) in copies.take(COPIES) {
            if file.file.as_ref().is_some_and(|file| tail.catch_up(file, sink).unwrap_or(false)) {
                return self.read_between(&listed[at + 1..], Some(&file.path), sink);
            }
        }
        self.note_cut(tail, sink);
        Ok(())
    }

    /// Reads whole files, oldest first; `before` is the one before them.
    fn read_between(&self, files: &[Older], before: Option<&Path>, sink: &mut dyn Sink) -> io::Result<()> {
        let mut format = self.format();
        if let Some(mut line) = before.filter(|_| !files.is_empty()).and_then(first_line) {
            // The next file repeats what was unfinished when this one was closed.
            line.push(b'\n');
            format.feed(&line, sink);
            format.reset();
        }
        for file in files {
            match self.open_older(file) {
                Ok(tail) => {
                    let mut tail = tail.with_format(format);
                    tail.look(sink)?;
                    format = tail.into_format();
                    format.reset();
                }
                Err(error) => {
                    sink.missed(&format!("{}: {error}; what it holds is not told", file.path.display()));
                }
            }
        }
        Ok(())
    }
}

/// The first line of a file, if it is short.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    tail::open(path).ok()?.0.take(256).read_to_end(&mut start).ok()?;
    let end = memchr::memchr(b'\n', &start)?;
    start.truncate(end);
    Some(start)
}
