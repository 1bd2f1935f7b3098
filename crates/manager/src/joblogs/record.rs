//! How far logs are written, as it is on disk: one small file per user with logs, and one for what the office has seen.

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
    #[serde(default)]
    pub(super) upto: Option<u64>,
    /// Of a time when one file was for all users.
    #[serde(default, skip_serializing)]
    logs: Vec<OldBehind>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct OldBehind {
    owner: String,
    #[serde(flatten)]
    log: Behind,
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
        for entry in std::fs::read_dir(dir.join(USERS))? {
            let path = entry?.path();
            // Others are halves that a kill left.
            if path.extension().is_some_and(|e| e == "position") {
                kept.records.extend(load::<Record>(&path)?);
            }
        }
        kept.divide(dir)?;
        let Self { seen, records, .. } = &mut kept;
        let ahead =
            seen.written.0 > head || seen.from > head + 1 || seen.upto.is_some_and(|upto| upto > head);
        if ahead || records.iter().any(|r| r.is_ahead_of(head)) {
            let last = (head, u32::MAX);
            seen.written = seen.written.max((seen.upto.unwrap_or(0), u32::MAX)).min(last);
            (seen.from, seen.upto) = (oldest, Some(oldest.saturating_sub(1)));
            for record in records {
                record.go_back_to(head);
                // What the users' unfinished jobs have been doing is read again.
                record.from = oldest;
            }
            kept.went_back = true;
        }
        Ok(kept)
    }

    /// Gives each user a file of his own, where one was for all.
    fn divide(&mut self, dir: &Path) -> io::Result<()> {
        let old = std::mem::take(&mut self.seen.logs);
        for OldBehind { owner, log } in old {
            if let Some(record) = self.records.iter_mut().find(|r| r.owner == owner) {
                if !record.logs.iter().any(|known| known.path == log.path) {
                    record.logs.push(log);
                }
            } else {
                let (written, from) = (self.seen.written, self.seen.from);
                self.records.push(Record { owner, written, from, logs: vec![log] });
            }
        }
        if self.seen.upto.is_none() {
            self.seen.upto = Some(self.seen.from.saturating_sub(1));
            for record in &self.records {
                record.save(dir)?;
            }
            self.seen.save(dir)?;
        }
        Ok(())
    }
}

impl Seen {
    /// What the office's file says. It is made before the users' directory is: where only the directory is left, the file was lost.
    fn load(dir: &Path) -> io::Result<Self> {
        let path = dir.join(OFFICE);
        if std::fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            return Ok(Self::default());
        }
        if let Some(seen) = load(&path)? {
            return Ok(seen);
        }
        if dir.join(USERS).exists() {
            let why = format!(
                "{} is gone: nobody knows how far job logs are written. Put it back, or make an empty file of that name; then the logs of \
                 all jobs that the journal remembers are written again",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let first = Self { upto: Some(0), ..Self::default() };
        first.save(dir)?;
        Ok(first)
    }

    pub(super) fn save(&self, dir: &Path) -> io::Result<()> {
        save(self, &dir.join(OFFICE))
    }
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

fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let named = |error: io::Error| {
        let hint = "without it, the logs of all jobs that the journal remembers are written again";
        io::Error::new(error.kind(), format!("{}: {error}; {hint}", path.display()))
    };
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).map_err(|e| named(e.into()))?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(error)),
    }
}

fn save(what: &impl Serialize, path: &Path) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(what)?)?;
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
    fn a_damaged_record_is_named_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Kept::load(dir.path(), (1, 9)).unwrap().records, []);
        let record = Record { owner: "a/b".into(), written: (3, 1), from: 2, logs: Vec::new() };
        record.save(dir.path()).unwrap();
        assert_eq!(Kept::load(dir.path(), (1, 9)).unwrap().records, [record]);
        std::fs::remove_file(dir.path().join(OFFICE)).unwrap();
        let error = Kept::load(dir.path(), (1, 9)).unwrap_err().to_string();
        assert!(error.contains("joblogs.position is gone") && error.contains("written again"), "{error}");
        std::fs::write(dir.path().join(OFFICE), "").unwrap();
        assert_eq!(Kept::load(dir.path(), (1, 9)).unwrap().records.len(), 1, "as was wished");
        std::fs::write(dir.path().join("joblogs/a%2fb.position"), "{\"written\":[1").unwrap();
        let error = Kept::load(dir.path(), (1, 9)).unwrap_err().to_string();
        assert!(error.contains("a%2fb.position") && error.contains("written again"), "{error}");
    }

    #[test]
    fn one_file_for_all_users_becomes_one_for_each() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"{"written":[40,4294967295],"from":7,"logs":[
            {"owner":"a","path":"/l","written":[30,1],"mark":{"inode":5,"length":6}},
            {"owner":"b","path":"/m","written":[31,1],"mark":null},
            {"owner":"a","path":"/n","written":[32,1],"mark":null}]}"#;
        std::fs::write(dir.path().join(OFFICE), old).unwrap();
        for _ in 0..2 {
            let mut kept = Kept::load(dir.path(), (1, 50)).unwrap();
            kept.records.sort_by(|a, b| a.owner.cmp(&b.owner));
            let paths = |r: &Record| r.logs.iter().map(|l| l.path.clone()).collect::<Vec<_>>();
            assert_eq!(paths(&kept.records[0]), ["/l", "/n"]);
            assert_eq!((paths(&kept.records[1]), kept.records[1].from), (vec!["/m".to_owned()], 7));
            assert_eq!(kept.records[0].logs[0].mark, Some(Mark { inode: 5, length: 6 }));
            assert_eq!(
                (kept.seen.upto, kept.seen.written),
                (Some(6), (40, u32::MAX)),
                "who comes later is found"
            );
            assert!(!kept.went_back);
        }
        let kept = Kept::load(dir.path(), (2, 20)).unwrap();
        assert!(kept.went_back && kept.records.iter().all(|r| r.written == (20, u32::MAX) && r.from == 2));
        assert_eq!((kept.seen.from, kept.seen.upto), (2, Some(1)));
    }
}
