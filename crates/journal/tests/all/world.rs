//! Journals to try things on.

use std::path::{Path, PathBuf};

use journal::{Journal, Positioned, Reader, Sizes};
use model::Event;
use model::event::{ClaimEnded, Kind};

/// Small, so that a few hundred events fill several segments.
pub(crate) const SMALL: Sizes = Sizes { segment_bytes: 16 << 10, kept_bytes: 16 << 30 };

/// The event that belongs at a position.
pub(crate) fn event(n: u64) -> Event {
    let reason = "r".repeat(n as usize % 50 + 1);
    Event { time_ms: n, kind: Some(Kind::ClaimEnded(ClaimEnded { claim: n, reason })) }
}

/// The events that belong at positions.
pub(crate) fn events(positions: std::ops::RangeInclusive<u64>) -> Vec<Event> {
    positions.map(event).collect()
}

/// Positions read back, each with the event that belongs there.
pub(crate) fn positions(found: &[Positioned]) -> Vec<u64> {
    for (position, found) in found {
        assert_eq!(*found, event(*position), "at {position}");
    }
    found.iter().map(|(position, _)| *position).collect()
}

/// Everything from a position on.
pub(crate) fn read_all(reader: &mut Reader, from: u64) -> Result<Vec<Positioned>, journal::Error> {
    let mut all: Vec<Positioned> = Vec::new();
    loop {
        let next = all.last().map_or(from, |(position, _)| position + 1);
        let found = reader.read(next, 100)?;
        if found.is_empty() {
            return Ok(all);
        }
        all.extend(found);
    }
}

/// A journal of 900 events in several segments, in batches of 1 to 9, with snapshots at 300 and 700.
pub(crate) fn sample(manager: &Path) -> Journal {
    let (mut journal, _) = Journal::open_sized(manager, SMALL).unwrap();
    let mut next = 1;
    while next <= 900 {
        let last = (next + next % 9).min(900);
        assert_eq!(journal.append(&events(next..=last)).unwrap(), next);
        for snapshot in [300, 700] {
            if (next..=last).contains(&snapshot) {
                journal.save_snapshot(last, &state(last)).unwrap();
            }
        }
        next = last + 1;
    }
    journal
}

/// The state that belongs to a position.
pub(crate) fn state(position: u64) -> Vec<u8> {
    format!("the state after {position}").repeat(20).into_bytes()
}

/// The files of a journal with an ending (or beginning), oldest first.
pub(crate) fn files(manager: &Path, like: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(journal::directory(manager)).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.file_name().unwrap().to_string_lossy().contains(like));
    found.sort();
    found
}

/// A copy of a journal.
pub(crate) fn copy(manager: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    std::fs::create_dir(journal::directory(to.path())).unwrap();
    for file in files(manager, "") {
        std::fs::copy(&file, journal::directory(to.path()).join(file.file_name().unwrap())).unwrap();
    }
    to
}

/// Where records stand in a segment: offset and whole size of each.
pub(crate) fn records(segment: &Path) -> Vec<(usize, usize)> {
    let bytes = std::fs::read(segment).unwrap();
    let (mut at, mut found) = (4096, Vec::new());
    while at + 24 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        found.push((at, 24 + length));
        at += 24 + length;
    }
    found
}

/// Numbers that look random and are the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
