//! A directory with one file a day, named `YYYYMMDD`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::chain::unpacked;
use super::tail::{Look, Tail};
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
    /// The day of the first event that is wanted, if it is known that there was one.
    wanted: Option<u32>,
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
            wanted: None,
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

    /// Events are wanted from this day on: it is said if its file is gone.
    #[must_use]
    pub fn wanting(mut self, day: u32) -> Self {
        self.wanted = Some(day);
        self
    }

    /// Older days were there once: those from the wanted one to the oldest at hand are gone.
    fn check_beginning(&self, packed: &BTreeSet<u32>, has_older: bool, sink: &mut dyn Sink) {
        for day in packed.difference(&self.known) {
            sink.missed(&format!(
                "{}/{day:08} is packed: what it holds is not told; unpack it to have it",
                self.directory.display()
            ));
        }
        let Some(wanted) = self.wanted.filter(|_| !has_older) else { return };
        if let Some(oldest) = self.known.first().filter(|oldest| **oldest > wanted) {
            sink.note(&format!(
                "{}: the oldest file at hand is {oldest:08}; what was before is not known",
                self.directory.display()
            ));
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
        let (mut packed, mut has_older) = (BTreeSet::new(), false);
        for entry in entries {
            let name = entry?.file_name();
            let (plain, is_packed) = unpacked(name.as_encoded_bytes());
            let Some(day) = day_of(plain) else { continue };
            has_older |= self.wanted.is_some_and(|wanted| day < wanted);
            if day < self.first {
                continue;
            }
            if is_packed {
                packed.insert(day);
            } else if self.known.insert(day) {
                self.waiting.insert(day, self.started.then_some(now));
            }
        }
        if !self.started {
            self.check_beginning(&packed, has_older, sink);
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

    fn retire(&mut self, tail: Tail, sink: &mut dyn Sink) {
        self.retired.push_back(tail);
        if self.retired.len() > RETIRED
            && let Some(mut oldest) = self.retired.pop_front()
        {
            oldest.say_unfinished(sink);
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

    /// The day's file was replaced by another one of its name, as editors and copying programs do: goes on behind what was
    /// read if the new one has it, else at its beginning.
    fn check_replaced(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        let Some((day, tail)) = &mut self.current else { return Ok(()) };
        let path = self.directory.join(format!("{day:08}"));
        let Ok(mut new) = Tail::open(&path, (self.make)()) else { return Ok(()) };
        if new.id() == tail.id() {
            return Ok(());
        }
        new.go_on(tail.reached());
        if new.go_behind(tail)? {
            if new.look(sink)? == Look::Rewritten {
                new.restart()?;
            }
        } else {
            sink.missed(&format!(
                "{} is another file than before: what was added to the old one since the last look is not seen",
                path.display()
            ));
        }
        let old = std::mem::replace(tail, new);
        self.retire(old, sink);
        self.look(sink)
    }
}

impl Source for Days {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>> {
        let wake = self.read(turn, sink);
        let current = self.current.iter_mut().map(|(_, tail)| tail);
        self.retired.iter_mut().chain(current).for_each(|tail| tail.settle(sink));
        wake
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }

    fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        let current = self.current.iter_mut().map(|(_, tail)| tail);
        self.retired.iter_mut().chain(current).for_each(|tail| tail.say_unfinished(sink));
    }
}

impl Days {
    /// Reads whatever came to any of the files.
    fn read(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>> {
        self.look(sink)?;
        if turn.rescan || turn.last || !self.started {
            self.scan(turn.now, sink)?;
            self.check_replaced(sink)?;
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
            if !is_late {
                tail.go_on(self.current.as_ref().and_then(|(_, tail)| tail.reached()));
            }
            tail.seek(self.from)?;
            tail.look_or_restart(sink)?;
            if is_late {
                self.retire(tail, sink);
                continue;
            }
            self.since = found;
            if let Some((_, old)) = self.current.replace((day, tail)) {
                self.retire(old, sink);
            }
        }
        Ok(wake)
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
