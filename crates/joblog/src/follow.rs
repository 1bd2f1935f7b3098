//! Following a log that grows, is truncated, or is moved away and begun anew.
//!
//! The caller keeps the file open and tells what it sees: the open file's size and identity, and those of whatever the
//! path names now. The follower says what to do next and turns bytes into events. It does no IO and never sleeps.

use jiff::tz::TimeZone;

use crate::event::Event;
use crate::reader::{BadEvent, Reader};

/// Bytes before the current position that are read again to see that they are still the same.
const GUARD: usize = 64;
/// Most bytes asked for at once.
const CHUNK: u64 = 1 << 20;

/// What a file looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Identity: inode (and device, mixed in by the caller).
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
}

/// What the caller should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Open the path; then look again.
    Open,
    /// Read this much from the open file and hand it to [`Follower::data`].
    Read {
        /// Where from.
        offset: u64,
        /// At most how much.
        length: u64,
    },
    /// Nothing to do until the file changes.
    Wait,
}

/// What following a log yields.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// An event.
    Event(Box<Event>),
    /// A broken event; reading goes on behind it.
    Bad(BadEvent),
    /// The file became shorter or was overwritten; reading begins again at its start.
    Truncated,
    /// The path names another file now; reading begins at its start. `unfinished` bytes of the old one were no event.
    Rotated {
        /// Bytes after the last complete event of the old file.
        unfinished: u64,
    },
}

/// Follows one log.
#[derive(Debug, Clone)]
pub struct Follower {
    reader: Reader,
    open: Option<u64>,
    /// How far the file was read.
    offset: u64,
    /// The bytes just before `offset`.
    guard: Vec<u8>,
    /// What has happened to the file, told before the events that follow.
    news: Option<Item>,
}

impl Follower {
    /// A follower that begins at the start of the log, which was last changed at `newest`.
    pub fn new(zone: TimeZone, newest: i64) -> Self {
        Self { reader: Reader::new(zone, newest), open: None, offset: 0, guard: Vec::new(), news: None }
    }

    /// The log was changed since; see [`Reader::set_newest`].
    pub fn set_newest(&mut self, newest: i64) {
        self.reader.set_newest(newest);
    }

    /// What to do next. `open` is the file that the caller holds open, `path` what the log's path names now (`None`
    /// when nothing is there).
    pub fn step(&mut self, open: Option<Stat>, path: Option<Stat>) -> Step {
        let Some(open) = open else {
            return if path.is_some() { Step::Open } else { Step::Wait };
        };
        if self.open != Some(open.id) {
            if self.open.is_some() {
                self.news = Some(Item::Rotated { unfinished: self.reader.pending() as u64 });
            }
            self.start_over();
            self.open = Some(open.id);
        }
        if open.size < self.offset {
            self.truncated();
        }
        if open.size > self.offset {
            // The guard is read again with the news: a file that was truncated and has grown past the old position
            // since would otherwise go unnoticed.
            let offset = self.offset - self.guard.len() as u64;
            return Step::Read { offset, length: (open.size - offset).min(CHUNK) };
        }
        // Only a file that was read to its end may be left for its successor.
        match path {
            Some(path) if path.id != open.id => Step::Open,
            _ => Step::Wait,
        }
    }

    /// Takes the bytes that a [`Step::Read`] asked for.
    pub fn data(&mut self, bytes: &[u8]) {
        let Some((before, new)) = bytes.split_at_checked(self.guard.len()) else {
            // Shorter than what was there already: the next look will see the size.
            return;
        };
        if before != self.guard {
            self.truncated();
            return;
        }
        self.reader.feed(new);
        self.offset += new.len() as u64;
        self.guard.extend_from_slice(&new[new.len().saturating_sub(GUARD)..]);
        let extra = self.guard.len().saturating_sub(GUARD);
        self.guard.drain(..extra);
    }

    /// The next event or piece of news.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Item> {
        if let Some(news) = self.news.take() {
            return Some(news);
        }
        self.reader.next().map(|result| match result {
            Ok(event) => Item::Event(Box::new(event)),
            Err(bad) => Item::Bad(bad),
        })
    }

    fn truncated(&mut self) {
        self.news = Some(Item::Truncated);
        self.start_over();
    }

    fn start_over(&mut self) {
        self.reader.reset();
        self.offset = 0;
        self.guard.clear();
    }
}
