//! Numbers that are missing among the rotated files of a directory of logs, said once, at the start.
//!
//! A number may be missing for a moment while files get new names. So it counts only if it was missing in every look until
//! no name was changed for a while, or for as long as that.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::chain::{Age, log_of, unpacked};

/// How long names must have been left alone, and how soon it is looked again.
pub(super) const ROTATING: Duration = Duration::from_secs(1);
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// In a directory of logs a name with a higher number is a log of its own, called by its job.
const HIGHEST: u32 = 16;

/// The number that is missing between a rotated file with the number `here` and the next newer one, or the log itself.
/// Numbers begin with 0 or 1.
pub(super) fn missing_number(here: u32, newer: Option<u32>) -> Option<u32> {
    let expected = newer.map_or(1, |newer| newer + 1);
    (here > expected).then_some(expected)
}

/// Names that are missing, each with that of the next newer file, which says whether anything of it is wanted.
type Missing = BTreeMap<OsString, OsString>;

/// What is missing in a directory of logs.
#[derive(Debug, Default)]
pub(super) struct Holes {
    since: Option<Instant>,
    suspected: Missing,
    is_settled: bool,
}

impl Holes {
    /// Takes a listing into account. Gives what is surely missing, once; until then it is to be asked again.
    pub(super) fn look(&mut self, now: Instant, directory: &Path, names: &[OsString]) -> Missing {
        if self.is_settled {
            return Missing::new();
        }
        let found = find_missing(names);
        match self.since {
            None => self.suspected = found,
            Some(_) => self.suspected.retain(|name, _| found.contains_key(name)),
        }
        let since = *self.since.get_or_insert(now);
        let is_long = now.saturating_duration_since(since) >= ROTATING;
        self.is_settled = self.suspected.is_empty() || is_long || is_unchanged(directory).unwrap_or(false);
        if self.is_settled { std::mem::take(&mut self.suspected) } else { Missing::new() }
    }

    /// Was said what is to be said?
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }
}

/// Were no names changed in this directory for a while?
pub(super) fn is_unchanged(directory: &Path) -> io::Result<bool> {
    let changed = directory.metadata()?.modified()?;
    Ok(changed.elapsed().is_ok_and(|elapsed| elapsed >= ROTATING))
}

/// The numbers that are missing of all logs that are there. Where the log itself is not, files with numbers are logs of their own;
/// where a log has names of another kind, too, those may be in the place of numbers.
fn find_missing(names: &[OsString]) -> Missing {
    let mut logs: BTreeMap<&[u8], (bool, Vec<u32>)> = BTreeMap::new();
    let mut other_kinds = Vec::new();
    for name in names {
        let (log, age) = log_of(unpacked(name.as_encoded_bytes()).0);
        match age {
            None => logs.entry(name.as_encoded_bytes()).or_default().0 = true,
            Some(Age::Numbered(Reverse(number))) => logs.entry(log).or_default().1.push(number),
            Some(Age::Dated(_) | Age::Old) => other_kinds.push(log),
        }
    }
    let mut missing = Missing::new();
    for (log, (is_there, mut numbers)) in logs {
        numbers.sort_unstable();
        if !is_there || numbers.last().is_none_or(|highest| *highest > HIGHEST) {
            continue;
        }
        let numbered = |number: u32| OsString::from_vec([log, format!(".{number}").as_bytes()].concat());
        let mut newer = None;
        for number in numbers {
            if let Some(hole) = missing_number(number, newer)
                && !(newer.is_none() && other_kinds.contains(&log))
            {
                let next = newer.map_or_else(|| OsString::from_vec(log.to_vec()), numbered);
                missing.insert(numbered(hole), next);
            }
            newer = Some(number);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(names: &[&str]) -> Vec<String> {
        let names: Vec<OsString> = names.iter().map(Into::into).collect();
        find_missing(&names)
            .into_iter()
            .map(|(hole, newer)| format!("{} {}", hole.display(), newer.display()))
            .collect()
    }

    #[test]
    fn numbers_that_are_missing_are_found_log_by_log() {
        assert_eq!(missing(&["a", "a.2", "b", "b.1", "b.4"]), ["a.1 a", "b.2 b.1"]);
        assert_eq!(missing(&["a", "a.0", "a.1", "b", "b.1", "b.2.gz", "c.5", "c.7"]), [""; 0]);
        assert_eq!(missing(&["a", "a.2", "a.old", "b", "b.2", "b-20240131", "c", "c.17"]), [""; 0]);
        assert_eq!(missing(&["a", "a.1", "a.3", "a.old"]), ["a.2 a.1"]);
    }

    #[test]
    fn a_number_that_comes_while_it_is_waited_for_is_not_missing() {
        let place = tempfile::tempdir().unwrap();
        let names = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>();
        let begin = Instant::now();
        let mut holes = Holes::default();
        assert!(holes.look(begin, place.path(), &names(&["a", "a.2", "b", "b.2"])).is_empty());
        assert!(!holes.is_settled());
        // Rotated once more: what is missing now was not missing before.
        let listed = names(&["a", "a.1", "a.3", "b", "b.2"]);
        assert!(holes.look(begin + PAUSE, place.path(), &listed).is_empty() && !holes.is_settled());
        let said = holes.look(begin + ROTATING, place.path(), &names(&["a", "a.2", "b", "b.2"]));
        assert_eq!(said.into_keys().collect::<Vec<_>>(), ["b.1"]);
        assert!(holes.is_settled() && holes.look(begin + ROTATING, place.path(), &listed).is_empty());
    }
}
