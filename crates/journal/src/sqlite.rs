//! The journal in a SQLite file: WAL, `synchronous=FULL`, one row per committed batch.

use std::path::{Path, PathBuf};

use model::Event;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

use crate::{Error, Positioned, batch};

const FORMAT: i64 = 1;
const FILE: &str = "journal.db";

/// What a new leader finds.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The newest snapshot: the position it includes, and its bytes.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// Position of the last committed event; 0 for an empty journal.
    pub head: u64,
    /// The epoch this writer now holds.
    pub epoch: u64,
}

/// The one writer.
#[derive(Debug)]
pub struct SqliteJournal {
    db: Connection,
    path: PathBuf,
    head: u64,
    epoch: u64,
}

impl SqliteJournal {
    /// Opens (or makes) the journal in a directory and takes leadership: every older writer is fenced from here on.
    pub fn open(dir: &Path) -> Result<(Self, Recovery), Error> {
        let path = dir.join(FILE);
        let fail = |doing| {
            let path = path.clone();
            move |source| classify(doing, &path, source)
        };
        let mut db = Connection::open(&path).map_err(fail("cannot open"))?;
        db.busy_timeout(std::time::Duration::from_secs(10)).map_err(fail("cannot set up"))?;
        db.pragma_update(None, "journal_mode", "WAL").map_err(fail("cannot switch to WAL"))?;
        db.pragma_update(None, "synchronous", "FULL").map_err(fail("cannot set up"))?;
        let format: i64 =
            db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail("cannot read"))?;
        if format > FORMAT {
            return Err(Error::Newer { path, found: format, known: FORMAT });
        }
        let tx = db.transaction().map_err(fail("cannot write"))?;
        if format == 0 {
            tx.execute_batch(include_str!("schema.sql")).map_err(fail("cannot set up"))?;
        }
        tx.execute("UPDATE leader SET epoch = epoch + 1", []).map_err(fail("cannot take over"))?;
        let epoch =
            tx.query_row("SELECT epoch FROM leader", [], u64_at_0).map_err(fail("cannot take over"))?;
        tx.commit().map_err(fail("cannot take over"))?;
        let head = head(&db).map_err(fail("cannot read"))?;
        let snapshot = newest_snapshot(&db, &path)?;
        let head = head.max(snapshot.as_ref().map_or(0, |(position, _)| *position));
        Ok((Self { db, path, head, epoch }, Recovery { snapshot, head, epoch }))
    }

    /// Appends a batch durably and returns the position of its first event. On an error nothing was written.
    pub fn append(&mut self, events: &[Event]) -> Result<u64, Error> {
        let first = self.head + 1;
        if events.is_empty() {
            return Ok(first);
        }
        let bytes = batch::encode(events);
        let path = self.path.clone();
        let fail = |source| classify("cannot append to", &path, source);
        let tx = self.db.transaction().map_err(fail)?;
        let theirs: u64 = tx
            .prepare_cached("SELECT epoch FROM leader")
            .and_then(|mut query| query.query_row([], u64_at_0))
            .map_err(fail)?;
        if theirs != self.epoch {
            return Err(Error::Fenced { path, theirs, ours: self.epoch });
        }
        tx.prepare_cached("INSERT INTO batch (first, last, crc, events) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut insert| {
                let last = first + events.len() as u64 - 1;
                insert.execute(params![first as i64, last as i64, i64::from(crc32fast::hash(&bytes)), bytes])
            })
            .map_err(fail)?;
        tx.commit().map_err(fail)?;
        self.head += events.len() as u64;
        Ok(first)
    }

    /// Writes and syncs something that is not an event: succeeds when events could be written again.
    pub fn probe(&mut self) -> Result<(), Error> {
        let fail = |source| classify("cannot write", &self.path, source);
        self.db.execute("UPDATE probe SET count = count + 1", []).map_err(fail)?;
        Ok(())
    }

    /// Stores a snapshot of the state after the event at `position`; older snapshots are dropped.
    pub fn save_snapshot(&mut self, position: u64, state: &[u8]) -> Result<(), Error> {
        let path = self.path.clone();
        let fail = |source| classify("cannot save a snapshot in", &path, source);
        let tx = self.db.transaction().map_err(fail)?;
        tx.execute(
            "INSERT OR REPLACE INTO snapshot (position, crc, state) VALUES (?1, ?2, ?3)",
            params![position as i64, i64::from(crc32fast::hash(state)), state],
        )
        .map_err(fail)?;
        tx.execute("DELETE FROM snapshot WHERE position < ?1", [position as i64]).map_err(fail)?;
        tx.commit().map_err(fail)
    }

    /// Forgets batches that end before `position`. Only what a snapshot covers may go; readers that come later are told.
    pub fn forget_before(&mut self, position: u64) -> Result<(), Error> {
        let path = self.path.clone();
        let fail = |source| classify("cannot shorten", &path, source);
        let covered: Option<i64> =
            self.db.query_row("SELECT max(position) FROM snapshot", [], |row| row.get(0)).map_err(fail)?;
        let limit = position.min(covered.unwrap_or(0) as u64 + 1);
        self.db.execute("DELETE FROM batch WHERE last < ?1", [limit as i64]).map_err(fail)?;
        Ok(())
    }

    /// Position of the last committed event.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// A reader on the same file.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::open_file(&self.path)
    }
}

/// A reader: sees committed batches only, never blocks the writer.
#[derive(Debug)]
pub struct Reader {
    db: Connection,
    path: PathBuf,
}

impl Reader {
    /// Opens the journal of a directory for reading.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_file(&dir.join(FILE))
    }

    fn open_file(path: &Path) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(|e| classify("cannot open", path, e))?;
        db.busy_timeout(std::time::Duration::from_secs(10)).map_err(|e| classify("cannot open", path, e))?;
        Ok(Self { db, path: path.to_owned() })
    }

    /// Events from position `from` on: whole batches until at least `enough` events are read, so the answer is only
    /// empty at the end. The first event may lie after `from` when older ones were forgotten.
    pub fn read(&self, from: u64, enough: usize) -> Result<Vec<Positioned>, Error> {
        let fail = |source| classify("cannot read", &self.path, source);
        let mut query = self
            .db
            .prepare_cached("SELECT first, crc, events FROM batch WHERE last >= ?1 ORDER BY first")
            .map_err(fail)?;
        let mut rows = query.query([from as i64]).map_err(fail)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(fail)? {
            let first = row.get::<_, i64>(0).map_err(fail)? as u64;
            let bytes = row.get_ref(2).and_then(|cell| Ok(cell.as_blob()?)).map_err(fail)?;
            let damaged = |what: String| Error::Damaged { path: self.path.clone(), position: first, what };
            if crc32fast::hash(bytes) != row.get::<_, i64>(1).map_err(fail)? as u32 {
                return Err(damaged("the batch's checksum differs".into()));
            }
            let events = batch::decode(bytes).map_err(|e| damaged(e.to_string()))?;
            let positioned = (first..).zip(events);
            found.extend(positioned.filter(|(position, _)| *position >= from));
            if found.len() >= enough {
                break;
            }
        }
        Ok(found)
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        newest_snapshot(&self.db, &self.path)
    }

    /// Position of the last committed event.
    pub fn head(&self) -> Result<u64, Error> {
        head(&self.db).map_err(|e| classify("cannot read", &self.path, e))
    }
}

fn u64_at_0(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(0).map(|n| n as u64)
}

fn head(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT ifnull(max(last), 0) FROM batch", [], u64_at_0)
}

fn newest_snapshot(db: &Connection, path: &Path) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let found = db
        .query_row("SELECT position, crc, state FROM snapshot ORDER BY position DESC LIMIT 1", [], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u32, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()
        .map_err(|source| classify("cannot read the snapshot of", path, source))?;
    match found {
        Some((position, crc, state)) if crc32fast::hash(&state) == crc => Ok(Some((position, state))),
        Some((position, ..)) => {
            let what = "the snapshot's checksum differs".into();
            Err(Error::Damaged { path: path.to_owned(), position, what })
        }
        None => Ok(None),
    }
}

fn classify(doing: &'static str, path: &Path, source: rusqlite::Error) -> Error {
    let path = path.to_owned();
    // After a failed sync nobody knows what is on disk: that must not pass for a passing trouble.
    let failed_sync = match &source {
        rusqlite::Error::SqliteFailure(e, _) => {
            matches!(
                e.extended_code,
                rusqlite::ffi::SQLITE_IOERR_FSYNC | rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC
            )
        }
        _ => false,
    };
    if failed_sync {
        return Error::Sqlite { doing, path, source };
    }
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path },
        // The WAL's own I/O errors on a full or vanished disk arrive as SystemIoFailure.
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::SystemIoFailure,
        ) => Error::ReadOnly { path, reason: source.to_string() },
        _ => Error::Sqlite { doing, path, source },
    }
}

#[cfg(test)]
mod tests {
    use model::event::{ClaimEnded, Kind};

    use super::*;

    fn event(n: u64) -> Event {
        Event {
            time_ms: n,
            kind: Some(Kind::ClaimEnded(ClaimEnded { claim: n, reason: "r".repeat(n as usize % 50) })),
        }
    }

    fn times(found: &[Positioned]) -> Vec<(u64, u64)> {
        found.iter().map(|(p, e)| (*p, e.time_ms)).collect()
    }

    #[test]
    fn what_was_appended_is_read_back_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, recovery) = SqliteJournal::open(dir.path()).unwrap();
        assert_eq!((recovery.head, recovery.epoch), (0, 1));
        assert_eq!(journal.append(&[event(1), event(2), event(3)]).unwrap(), 1);
        assert_eq!(journal.append(&[event(4)]).unwrap(), 4);
        let reader = journal.reader().unwrap();
        assert_eq!(times(&reader.read(2, 100).unwrap()), [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(times(&reader.read(1, 1).unwrap()), [(1, 1), (2, 2), (3, 3)]);
        assert!(reader.read(5, 1).unwrap().is_empty());
        drop(journal);
        let (journal, recovery) = SqliteJournal::open(dir.path()).unwrap();
        assert_eq!((recovery.head, recovery.epoch, journal.head()), (4, 2, 4));
    }

    #[test]
    fn an_older_writer_is_fenced() {
        let dir = tempfile::tempdir().unwrap();
        let (mut old, _) = SqliteJournal::open(dir.path()).unwrap();
        old.append(&[event(1)]).unwrap();
        let (mut new, _) = SqliteJournal::open(dir.path()).unwrap();
        assert!(matches!(old.append(&[event(2)]), Err(Error::Fenced { theirs: 2, ours: 1, .. })));
        assert_eq!(new.append(&[event(3)]).unwrap(), 2);
    }

    #[test]
    fn snapshots_bound_recovery_and_allow_forgetting() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = SqliteJournal::open(dir.path()).unwrap();
        for n in 1..=10 {
            journal.append(&[event(n)]).unwrap();
        }
        journal.forget_before(9).unwrap();
        assert_eq!(journal.reader().unwrap().read(1, 100).unwrap().len(), 10, "no snapshot covers them yet");
        journal.save_snapshot(6, b"six").unwrap();
        journal.forget_before(9).unwrap();
        assert_eq!(times(&journal.reader().unwrap().read(1, 1).unwrap()), [(7, 7)]);
        drop(journal);
        let (_, recovery) = SqliteJournal::open(dir.path()).unwrap();
        assert_eq!(recovery.snapshot, Some((6, b"six".to_vec())));
        assert_eq!(recovery.head, 10);
    }

    #[test]
    fn damage_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = SqliteJournal::open(dir.path()).unwrap();
        journal.append(&[event(1), event(2)]).unwrap();
        journal
            .db
            .execute("UPDATE batch SET events = CAST(x'00ff' || substr(events, 3) AS BLOB)", [])
            .unwrap();
        assert!(matches!(journal.reader().unwrap().read(1, 9), Err(Error::Damaged { position: 1, .. })));
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(SqliteJournal::open(dir.path()).unwrap());
        Connection::open(dir.path().join(FILE)).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(SqliteJournal::open(dir.path()), Err(Error::Newer { found: 99, .. })));
    }
}
