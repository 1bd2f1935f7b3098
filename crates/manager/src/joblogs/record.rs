//! How far logs are written, as it is on disk: one small file per user with logs, and one for what the office has seen.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use starter::logbook;

use super::story::Key;

/// The office's file, in the manager's directory.
const OFFICE: &str = "joblogs.position";
/// The directory of the users' files.
const USERS: &str = "joblogs";

/// How far the logs of one user are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) owner: String,
    /// Lines up to here are written, unless `logs` says otherwise.
    pub(super) written: Key,
    /// Where the journal must be read from.
    pub(super) from: u64,
    pub(super) logs: Vec<Behind>,
}

/// A log that is not written as far as the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Behind {
    pub(super) path: String,
    pub(super) written: Key,
    pub(super) mark: Option<Mark>,
    /// What the next line says instead, because the lines before it were given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) remark: Option<String>,
}

/// A file as it was before lines were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) inode: u64,
    pub(super) length: u64,
}

impl From<logbook::Mark> for Mark {
    fn from(mark: logbook::Mark) -> Self {
        Self { inode: mark.inode, length: mark.length }
    }
}

impl From<Mark> for logbook::Mark {
    fn from(mark: Mark) -> Self {
        Self { inode: mark.inode, length: mark.length }
    }
}

/// What the office has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Lines up to here are written for users who have no file of their own.
    pub(super) written: Key,
    /// Where the journal must be read from to know of all claims.
    pub(super) from: u64,
    /// Whoever submitted up to here has a file, unless all is written.
    pub(super) upto: u64,
    /// Users who have a file of their own: one that is not there was lost.
    pub(super) users: BTreeSet<String>,
}

impl Record {
    /// What a journal that was put back to an earlier day does not have was not written.
    pub(super) fn go_back_to(&mut self, head: u64) {
        let last = (head, u32::MAX);
        self.written = self.written.min(last);
        self.from = self.from.min(head + 1);
        for log in &mut self.logs {
            log.written = log.written.min(last);
        }
    }

    fn is_ahead_of(&self, head: u64) -> bool {
        self.written.0 > head || self.from > head + 1
    }

    pub(super) fn save(&self, dir: &Path) -> io::Result<()> {
        save(self, &file_of(dir, &self.owner))
    }

    pub(super) fn remove(dir: &Path, owner: &str) -> io::Result<()> {
        std::fs::remove_file(file_of(dir, owner))
    }
}

/// Everything that is on disk, for a journal that ends at `head` and begins at `oldest`.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) seen: Seen,
    pub(super) records: Vec<Record>,
    /// The journal was put back to an earlier day.
    pub(super) went_back: bool,
}

impl Kept {
    pub(super) fn load(dir: &Path, (oldest, head): (u64, u64)) -> io::Result<Self> {
        let mut kept = Self { seen: Seen::load(dir)?, ..Self::default() };
        std::fs::create_dir_all(dir.join(USERS))?;
        let mut files: BTreeSet<PathBuf> = kept.seen.users.iter().map(|owner| file_of(dir, owner)).collect();
        for entry in std::fs::read_dir(dir.join(USERS))? {
            let path = entry?.path();
            // Others are halves that a kill left.
            if path.extension().is_some_and(|e| e == "position") {
                files.insert(path);
            }
        }
        for path in files {
            let record = match load::<Record>(&path)? {
                Loaded::Found(record) => record,
                Loaded::Emptied => match kept.seen.users.iter().find(|owner| file_of(dir, owner) == path) {
                    Some(owner) => Record { owner: owner.clone(), from: oldest, ..Record::default() },
                    // A user whom the office has yet to find is met in the journal again.
                    None => continue,
                },
                Loaded::Missing => return Err(lost(&path, "is gone")),
            };
            kept.records.push(record);
        }
        let Self { seen, records, .. } = &mut kept;
        let ahead = seen.written.0 > head || seen.from > head + 1 || seen.upto > head;
        if ahead || records.iter().any(|r| r.is_ahead_of(head)) {
            let last = (head, u32::MAX);
            seen.written = seen.written.max((seen.upto, u32::MAX)).min(last);
            (seen.from, seen.upto) = (oldest, oldest.saturating_sub(1));
            for record in records {
                record.go_back_to(head);
                // What the users' unfinished jobs have been doing is read again.
                record.from = oldest;
            }
            kept.went_back = true;
        }
        Ok(kept)
    }
}

impl Seen {
    /// What the office's file says. It is made before the journal's first event is: where there are events, it was lost.
    fn load(dir: &Path) -> io::Result<Self> {
        let path = dir.join(OFFICE);
        match load(&path)? {
            Loaded::Found(seen) => Ok(seen),
            Loaded::Emptied => Ok(Self::default()),
            Loaded::Missing => Err(lost(&path, "is gone")),
        }
    }

    pub(super) fn save(&self, dir: &Path) -> io::Result<()> {
        save(self, &dir.join(OFFICE))
    }
}

/// Makes the office's file for a journal that has no event yet.
pub(crate) fn begin(dir: &Path) -> io::Result<()> {
    if dir.join(OFFICE).exists() { Ok(()) } else { Seen::default().save(dir) }
}

/// Why logs cannot be gone on with, and the way out.
fn lost(path: &Path, how: &str) -> io::Error {
    io::Error::other(format!(
        "{} {how}: nobody knows how far job logs are written. Put it back, or make an empty file of that name; then the logs of all jobs \
         concerned that the journal remembers are written again",
        path.display()
    ))
}

/// A name for a file, whatever the user is called.
fn file_of(dir: &Path, owner: &str) -> PathBuf {
    let mut name = String::new();
    for byte in owner.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    // A name that is too long for a file is told from others by its digest.
    if name.len() > 200 {
        name = trust::digest(owner.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    }
    dir.join(USERS).join(format!("{name}.position"))
}

/// What became of a file.
enum Loaded<T> {
    Found(T),
    /// Somebody wishes to begin anew.
    Emptied,
    Missing,
}

/// Reads a file that ends with the checksum of what it says.
fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Loaded<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) if bytes.is_empty() => {
            tracing::warn!(file = %path.display(), "job logs are written again from the beginning, as this empty file asks");
            return Ok(Loaded::Emptied);
        }
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Missing),
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    };
    let text = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n')?.rsplit_once('\n'));
    let said = text.filter(|(said, sum)| *sum == sum_of(said.as_bytes()));
    said.and_then(|(said, _)| serde_json::from_str(said).ok())
        .map(Loaded::Found)
        .ok_or_else(|| lost(path, "is damaged"))
}

fn sum_of(said: &[u8]) -> String {
    trust::digest(said).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn save(what: &impl Serialize, path: &Path) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut said = serde_json::to_vec(what)?;
    let sum = sum_of(&said);
    said.extend(format!("\n{sum}\n").into_bytes());
    let mut file = File::create(&new)?;
    file.write_all(&said)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_missing_record_is_named_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let load = || Kept::load(dir.path(), (1, 9));
        let (office, user) = (dir.path().join(OFFICE), dir.path().join("joblogs/a%2fb.position"));
        begin(dir.path()).unwrap();
        assert_eq!(load().unwrap().records, []);
        let record = Record { owner: "a/b".into(), written: (3, 1), from: 2, logs: Vec::new() };
        record.save(dir.path()).unwrap();
        Seen { users: BTreeSet::from(["a/b".to_owned()]), ..Seen::default() }.save(dir.path()).unwrap();
        begin(dir.path()).unwrap();
        assert_eq!(load().unwrap().records, [record]);
        for file in [&office, &user] {
            let whole = std::fs::read(file).unwrap();
            let refused = |how: &str| {
                let error = load().unwrap_err().to_string();
                let name = file.file_name().unwrap().to_str().unwrap();
                assert!(error.contains(&format!("{name} {how}")) && error.contains("empty file"), "{error}");
            };
            std::fs::remove_file(file).unwrap();
            refused("is gone");
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(file, flipped).unwrap();
                refused("is damaged");
            }
            for length in 1..whole.len() {
                std::fs::write(file, &whole[..length]).unwrap();
                refused("is damaged");
            }
            std::fs::write(file, &whole).unwrap();
        }
        std::fs::write(&user, "").unwrap();
        let again = Record { owner: "a/b".into(), from: 1, ..Record::default() };
        assert_eq!(load().unwrap().records, [again], "as was wished");
        std::fs::write(&office, "").unwrap();
        assert_eq!(load().unwrap().seen, Seen::default(), "as was wished");
    }

    #[test]
    fn records_go_back_with_a_journal_that_was_put_back() {
        let dir = tempfile::tempdir().unwrap();
        Seen { written: (40, u32::MAX), from: 41, upto: 40, ..Seen::default() }.save(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(USERS)).unwrap();
        for (owner, written) in [("a", 30), ("b", 10)] {
            let record = Record { owner: owner.into(), written: (written, 1), from: 7, logs: Vec::new() };
            record.save(dir.path()).unwrap();
        }
        assert!(!Kept::load(dir.path(), (1, 50)).unwrap().went_back);
        let kept = Kept::load(dir.path(), (2, 20)).unwrap();
        assert!(kept.went_back && kept.records.iter().all(|r| r.from == 2));
        let written: Vec<Key> = kept.records.iter().map(|r| r.written).collect();
        assert_eq!(written, [(20, u32::MAX), (10, 1)]);
        assert_eq!((kept.seen.from, kept.seen.upto), (2, 1));
    }
}
