//! A directory with one file a day, named `YYYYMMDD`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::tail::Tail;
use super::{MakeFormat, Once, RETIRED, Source, Turn};
use crate::seg::Sink;
use crate::seg::clock::next_day;

/// How long an unfinished last line keeps the next day waiting.
const LINE_GRACE: Duration = Duration::from_secs(10);
/// How long a day that is missing between two others is waited for while following, and how long a file that just came may
/// stay the last: days that come together may come in any order, and empty at first.
const DAY_GRACE: Duration = Duration::from_millis(500);
/// How soon a file that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// When a day's file was found; `None` for those that were there at the start.
type Found = Option<Instant>;

/// The files of all days from one on.
pub struct Days {
    directory: PathBuf,
    first: u32,
    from: i64,
    make: MakeFormat,
    current: Option<(u32, Tail)>,
    /// When the current file was found.
    since: Found,
    retired: VecDeque<Tail>,
    waiting: BTreeMap<u32, Found>,
    known: BTreeSet<u32>,
    started: bool,
    once: Once,
}

impl Days {
    /// Files of `first` and later days; in long ones, what is older than `from` is skipped.
    pub fn new(directory: &Path, first: u32, from: i64, make: MakeFormat) -> Self {
        Self {
            directory: directory.to_owned(),
            first,
            from,
            make,
            current: None,
            since: None,
            retired: VecDeque::new(),
            waiting: BTreeMap::new(),
            known: BTreeSet::new(),
            started: false,
            once: Once::default(),
        }
    }

    fn scan(&mut self, now: Instant, sink: &mut dyn Sink) -> std::io::Result<()> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if self.started => {
                self.once.trouble(&self.directory, &error, sink);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.once.fine(&self.directory);
        for entry in entries {
            let name = entry?.file_name();
            let Some(day) = day_of(name.as_encoded_bytes()).filter(|day| *day >= self.first) else {
                continue;
            };
            if self.known.insert(day) {
                self.waiting.insert(day, self.started.then_some(now));
            }
        }
        self.started = true;
        Ok(())
    }

    /// How long the file of `next` has to wait for the one that is being read.
    fn wait(&self, next: u32, found: Found, now: Instant) -> Duration {
        let Some((day, tail)) = &self.current else { return Duration::ZERO };
        let since = now.saturating_duration_since(found.unwrap_or(now));
        let mut wait = Duration::ZERO;
        if tail.pending() > 0 {
            wait = LINE_GRACE.saturating_sub(since);
        }
        if found.is_some() && next_day(*day) != Some(next) {
            wait = wait.max(DAY_GRACE.saturating_sub(since));
        }
        if let Some(came) = self.since {
            wait = wait.max(DAY_GRACE.saturating_sub(now.saturating_duration_since(came)));
        }
        wait
    }

    fn retire(&mut self, tail: Tail) {
        self.retired.push_back(tail);
        if self.retired.len() > RETIRED {
            self.retired.pop_front();
        }
    }

    fn look(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        for tail in &mut self.retired {
            tail.look_or_restart(sink)?;
        }
        if let Some((_, tail)) = &mut self.current {
            tail.look_or_restart(sink)?;
        }
        Ok(())
    }
}

impl Source for Days {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>> {
        self.look(sink)?;
        if turn.rescan || turn.last || !self.started {
            self.scan(turn.now, sink)?;
        }
        let mut wake: Option<Duration> = None;
        for (day, found) in self.waiting.clone() {
            if sink.is_over() {
                break;
            }
            let is_late = self.current.as_ref().is_some_and(|(current, _)| day < *current);
            if !is_late && !turn.last {
                // A day found at the start counts from the moment it began to wait for an unfinished line.
                let found = match found {
                    None if self.current.as_ref().is_some_and(|(_, tail)| tail.pending() > 0) => {
                        self.waiting.insert(day, Some(turn.now));
                        None
                    }
                    other => other,
                };
                let wait = self.wait(day, found, turn.now);
                if wait > Duration::ZERO {
                    wake = Some(wake.map_or(wait, |w| w.min(wait)));
                    break;
                }
            }
            let path = self.directory.join(format!("{day:08}"));
            let mut tail = match Tail::open(&path, (self.make)()) {
                Ok(tail) => tail,
                Err(error) => {
                    self.once.trouble(&path, &error, sink);
                    if error.kind() == std::io::ErrorKind::NotFound {
                        self.waiting.remove(&day);
                        self.known.remove(&day);
                    }
                    wake = Some(wake.map_or(RETRY, |w| w.min(RETRY)));
                    continue;
                }
            };
            self.once.fine(&path);
            self.waiting.remove(&day);
            tail.seek(self.from)?;
            tail.look_or_restart(sink)?;
            if is_late {
                self.retire(tail);
                continue;
            }
            self.since = found;
            if let Some((_, old)) = self.current.replace((day, tail)) {
                self.retire(old);
            }
        }
        Ok(wake)
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }
}

/// The day that a name is.
fn day_of(name: &[u8]) -> Option<u32> {
    if name.len() != 8 || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let day = name.iter().fold(0, |day, digit| day * 10 + u32::from(digit - b'0'));
    next_day(day).map(|_| day)
}
