//! The files that were rotated away from a log, oldest first.
//!
//! Known are `log.1`, `log.2` and so on (the higher the older), `log.old`, and names with a date (`log-20240131`,
//! `log.2024-01-31`). Packed ones (`log.2.gz`) are known too, but nobody here can read them. Names of one kind say their order;
//! between kinds the files themselves do ([`arrange`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::Directory;
use super::moments;
use super::tail::{Id, open};

/// Names of packed files end so.
const PACKED: [&[u8]; 5] = [b".gz", b".xz", b".bz2", b".zst", b".Z"];
/// So many numbers are asked for behind each that was listed: so often may be rotated from the listing on until a file is
/// asked for, and so many may be missing where files are on their way.
const AHEAD: u32 = 16;

/// What a name says about a file's age; the oldest sorts first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// By its date.
    Dated(Vec<u8>),
    /// By its number.
    Numbered(Reverse<u32>),
    /// The one that is called old.
    Old,
}

impl Age {
    /// Names of one kind are in order by what they say: numbers, and dates that are written alike.
    fn kind(&self) -> Vec<u8> {
        match self {
            Self::Dated(date) => date.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }).collect(),
            Self::Numbered(_) => b"number".to_vec(),
            Self::Old => b"old".to_vec(),
        }
    }

    /// Is this a name of another kind?
    pub fn is_of_other_kind(&self, other: &Self) -> bool {
        self.kind() != other.kind()
    }
}

/// When a file was written, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// By the first time that stands in it.
    pub first: Option<i64>,
    /// When it was changed last, in seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl Written {
    /// Is this one older? By what both say, else by when they were changed.
    fn is_before(&self, other: &Self) -> bool {
        match (self.first, other.first) {
            (Some(ours), Some(theirs)) if ours != theirs => ours < theirs,
            _ => self.changed < other.changed,
        }
    }
}

/// Puts files with names of several kinds in one order: a log may be rotated to numbers and to dates, at a time or one after the
/// other. Names of one kind keep the order that they say, which holds while they are being changed; between kinds the older file
/// goes first.
pub fn arrange(files: Vec<Older>, written: &mut dyn FnMut(&Older) -> Written) -> Vec<Older> {
    let mut kinds: BTreeMap<Vec<u8>, VecDeque<Older>> = BTreeMap::new();
    let mut arranged = Vec::with_capacity(files.len());
    for file in files {
        kinds.entry(file.age.kind()).or_default().push_back(file);
    }
    if kinds.len() < 2 {
        return kinds.into_values().flatten().collect();
    }
    let mut heads: Vec<(Written, VecDeque<Older>)> =
        kinds.into_values().filter_map(|kind| Some((written(kind.front()?), kind))).collect();
    while let Some(oldest) =
        (0..heads.len()).reduce(|a, b| if heads[b].0.is_before(&heads[a].0) { b } else { a })
    {
        let (head, kind) = &mut heads[oldest];
        arranged.extend(kind.pop_front());
        match kind.front() {
            Some(next) => *head = written(next),
            None => drop(heads.remove(oldest)),
        }
    }
    arranged
}

/// A file that was rotated away. It is held open: whatever happens to its name, it can be read, and nobody else gets its
/// inode.
#[derive(Debug, Clone)]
pub struct Older {
    /// Its age by its name.
    pub age: Age,
    /// Where it is.
    pub path: PathBuf,
    /// Which file it is.
    pub id: Id,
    /// It is packed and cannot be read.
    pub is_packed: bool,
    /// None if it could not be opened, or was not to be held.
    pub file: Option<Arc<File>>,
}

impl PartialEq for Older {
    fn eq(&self, other: &Self) -> bool {
        (&self.age, &self.path, self.id) == (&other.age, &other.path, other.id)
    }
}

/// The name without what packing added to it, and whether it did.
pub fn unpacked(name: &[u8]) -> (&[u8], bool) {
    let plain = PACKED.iter().find_map(|end| name.strip_suffix(*end));
    (plain.unwrap_or(name), plain.is_some())
}

/// The age of a file that was rotated away from the log `base`; nothing for every other name.
pub fn age(base: &[u8], name: &[u8]) -> Option<Age> {
    let (separator, rest) = name.strip_prefix(base)?.split_first()?;
    let digits = rest.iter().filter(|b| b.is_ascii_digit()).count();
    match separator {
        b'.' if rest == b"old" => Some(Age::Old),
        b'.' if (1..8).contains(&digits) && digits == rest.len() => {
            std::str::from_utf8(rest).ok()?.parse().ok().map(|n| Age::Numbered(Reverse(n)))
        }
        b'.' | b'-' | b'_' if digits >= 8 && rest[0].is_ascii_digit() => {
            let is_date = rest.iter().all(|b| b.is_ascii_digit() || b"-_.:T".contains(b));
            is_date.then(|| Age::Dated(rest.to_vec()))
        }
        _ => None,
    }
}

/// The log to which a file of this name belongs, and its age; the log itself has none.
pub fn log_of(name: &[u8]) -> (&[u8], Option<Age>) {
    let mut cuts = name.iter().enumerate().filter(|(at, b)| *at > 0 && b".-_".contains(b)).map(|(at, _)| at);
    cuts.find_map(|at| age(&name[..at], name).map(|age| (&name[..at], Some(age)))).unwrap_or((name, None))
}

/// The files that were rotated away from the log `base`, oldest first. Whoever `holds` them gets them open; of a directory of
/// many logs they are only named.
///
/// Names change while they are asked for, and a listing is old when it is read. But a rotation gives every file the name of
/// an older one, the oldest first. So the names are asked for from the newest to the oldest: a file that gets another name
/// meanwhile is met later, and nothing that is older than a file that was met can be passed by. One that is met twice
/// has its place where it was met last, since whatever was older then is met after it. So the order is right and without a
/// hole, whoever rotates and however quickly.
pub fn older(directory: &mut Directory, base: &[u8], holds: bool) -> io::Result<Vec<Older>> {
    let place = directory.path().to_owned();
    let names = if holds { directory.names()? } else { directory.rotated(base)? };
    let mut names = Names::sort(base, names);
    let mut found = Vec::new();
    for name in names.old.drain(..) {
        found.extend(meet(&place, name, holds));
    }
    let mut highest = None;
    while let Some(number) = names.next_number(highest) {
        for name in names.spell(base, number) {
            if let Some(file) = meet(&place, name, holds) {
                found.push(file);
                names.numbers.insert(number);
            }
        }
        highest = Some(number);
    }
    // The newest first, like the others.
    names.dated.sort_unstable_by(|a, b| b.cmp(a));
    for (_, name) in names.dated {
        found.extend(meet(&place, name, holds));
    }
    let mut met = HashSet::new();
    found.reverse();
    found.retain(|file| met.insert(file.id));
    Ok(found)
}

/// The names of rotated files, as a listing has them.
#[derive(Default)]
struct Names {
    old: Vec<Named>,
    numbers: BTreeSet<u32>,
    /// How numbers are written: with how many digits at least, and with which end.
    spellings: BTreeSet<(usize, Vec<u8>)>,
    dated: Vec<(Vec<u8>, Named)>,
}

/// A name and what it says.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: OsString,
    age: Age,
    is_packed: bool,
}

impl Names {
    fn sort(base: &[u8], listed: &[OsString]) -> Self {
        let mut names = Self { spellings: BTreeSet::from([(0, Vec::new())]), ..Self::default() };
        for name in listed {
            let bytes = name.as_encoded_bytes();
            let (plain, is_packed) = unpacked(bytes);
            let Some(age) = age(base, plain) else { continue };
            let named = |age| Named { name: name.clone(), age, is_packed };
            match age {
                Age::Old => names.old.push(named(age)),
                Age::Dated(date) => names.dated.push((date.clone(), named(Age::Dated(date)))),
                Age::Numbered(Reverse(number)) => {
                    let digits = plain.len() - base.len() - 1;
                    let width = if digits > number.to_string().len() { digits } else { 0 };
                    names.numbers.insert(number);
                    names.spellings.insert((width, bytes[plain.len()..].to_vec()));
                }
            }
        }
        names
    }

    /// The next number to ask for: a file may have got one of those behind each that is known, since this was listed or
    /// while.
    fn next_number(&self, highest: Option<u32>) -> Option<u32> {
        let Some(highest) = highest else {
            return self.numbers.first().map(|first| first.saturating_sub(AHEAD));
        };
        let near = self.numbers.range(highest.saturating_sub(AHEAD)..).next()?;
        Some((highest + 1).max(near.saturating_sub(AHEAD)))
    }

    fn spell(&self, base: &[u8], number: u32) -> Vec<Named> {
        let spell = |(width, end): &(usize, Vec<u8>)| {
            let mut name = [base, b".", format!("{number:0width$}").as_bytes()].concat();
            name.extend_from_slice(end);
            let (age, is_packed) = (Age::Numbered(Reverse(number)), !end.is_empty());
            Named { name: OsString::from_vec(name), age, is_packed }
        };
        self.spellings.iter().map(spell).collect()
    }
}

/// The file that has this name now.
fn meet(place: &Path, named: Named, holds: bool) -> Option<Older> {
    let Named { name, age, is_packed } = named;
    let path = place.join(name);
    if holds {
        match open(&path) {
            Ok((file, id)) => return Some(Older { age, path, id, is_packed, file: Some(Arc::new(file)) }),
            Err(error) => {
                // A link that leads nowhere, or a pipe, is a file that cannot be read, not one that was never there.
                let is_gone = error.kind() == io::ErrorKind::NotFound;
                let meta = path.symlink_metadata().ok().filter(|meta| !is_gone || meta.is_symlink())?;
                let meta = path.metadata().unwrap_or(meta);
                return Some(Older { age, path, id: (meta.dev(), meta.ino()), is_packed, file: None });
            }
        }
    }
    moments::pass();
    let meta = path.metadata().ok().filter(Metadata::is_file)?;
    Some(Older { age, path, id: (meta.dev(), meta.ino()), is_packed, file: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_old_a_file_is() {
        let number = |n| Some(Age::Numbered(Reverse(n)));
        let date = |d: &str| Some(Age::Dated(d.as_bytes().to_vec()));
        for (name, expected) in [
            ("log", None),
            ("log.0", number(0)),
            ("log.12", number(12)),
            ("log.1234567", number(1_234_567)),
            ("log.12345678", date("12345678")),
            ("log.old", Some(Age::Old)),
            ("log-20240131", date("20240131")),
            ("log.2024-01-31", date("2024-01-31")),
            ("log_20240131T120000", date("20240131T120000")),
            ("log-1", None),
            ("log.", None),
            ("log.1x", None),
            ("log.x1", None),
            ("log.1.2", None),
            ("log.T20240131", None),
            ("log-20240131x", None),
            ("log2.1", None),
            ("my.log.1", None),
            ("log.bak", None),
        ] {
            assert_eq!(age(b"log", name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn files_are_sorted_from_the_oldest() {
        let place = tempfile::tempdir().unwrap();
        let names =
            ["log", "log.1", "log.10", "log.2.gz", "log.old", "log-20240131", "log-20231231", "other.1"];
        for name in names {
            std::fs::write(place.path().join(name), name).unwrap();
        }
        std::fs::create_dir(place.path().join("log.3")).unwrap();
        let found = older(&mut Directory::new(place.path()), b"log", true).unwrap();
        let found: Vec<_> =
            found.iter().map(|f| (f.path.file_name().unwrap().to_str().unwrap(), f.is_packed)).collect();
        let expected = [
            ("log-20231231", false),
            ("log-20240131", false),
            ("log.10", false),
            ("log.3", false),
            ("log.2.gz", true),
            ("log.1", false),
            ("log.old", false),
        ];
        assert_eq!(found, expected);
        assert!(older(&mut Directory::new(&place.path().join("no")), b"log", true).is_err());
    }

    #[test]
    fn files_with_names_of_several_kinds_are_sorted_by_when_they_were_written() {
        let file = |name: &str| {
            let (log, age) = log_of(name.as_bytes());
            assert_eq!(log, b"log");
            Older { age: age.unwrap(), path: name.into(), id: (0, 0), is_packed: false, file: None }
        };
        let sorted = |files: &[(&str, Option<i64>, i64)]| -> Vec<String> {
            let found = files.iter().map(|(name, ..)| file(name)).collect();
            let mut written = |file: &Older| {
                let (_, first, changed) =
                    files.iter().find(|(name, ..)| file.path == Path::new(name)).unwrap();
                Written { first: *first, changed: (*changed, 0) }
            };
            arrange(found, &mut written).iter().map(|file| file.path.display().to_string()).collect()
        };
        // What they say goes before when they were changed, which a copy or a restored file does not keep.
        let both = [
            ("log-20261018", Some(20), 1),
            ("log-20261020", Some(40), 1),
            ("log.2", Some(10), 9),
            ("log.1", Some(30), 9),
        ];
        assert_eq!(sorted(&both), ["log.2", "log-20261018", "log.1", "log-20261020"]);
        // Nothing in them says it.
        let silent = [
            ("log-20261018", None, 5),
            ("log.2", Some(10), 4),
            ("log.1", Some(30), 6),
            ("log.old", Some(30), 7),
        ];
        assert_eq!(sorted(&silent), ["log.2", "log-20261018", "log.1", "log.old"]);
        // Dates that are not written alike are of two kinds.
        let dates = [("log-2026-10-18", Some(20), 0), ("log-20261017", Some(10), 0)];
        assert_eq!(sorted(&dates), ["log-20261017", "log-2026-10-18"]);
        // Names of one kind are believed.
        assert_eq!(sorted(&[("log.2", Some(30), 3), ("log.1", Some(10), 1)]), ["log.2", "log.1"]);
    }

    #[test]
    fn logs_in_a_directory_are_known_by_their_first_name() {
        let number = Some(Age::Numbered(Reverse(3)));
        assert_eq!(log_of(b"a.log.3"), (&b"a.log"[..], number.clone()));
        assert_eq!(log_of(b"condor.3"), (&b"condor"[..], number));
        assert_eq!(log_of(b"a.log"), (&b"a.log"[..], None));
        assert_eq!(log_of(b"a-b.old"), (&b"a-b"[..], Some(Age::Old)));
        assert_eq!(log_of(b".3"), (&b".3"[..], None));
        assert_eq!(unpacked(b"a.gz"), (&b"a"[..], true));
        assert_eq!(unpacked(b"a.gzip"), (&b"a.gzip"[..], false));
    }
}
