//! What is kept for people over restarts of the manager: the inputs of spooled clusters, and results that nobody has fetched yet. A record
//! is a small file in `kept/`, on disk before anybody is told of it; its name is the holder of the objects that it names.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Store, is_name};

/// Bytes of a line of a record.
const NOTE_BYTES: usize = 256 << 10;
/// Bytes of a name of a record.
const NAME_BYTES: usize = 200;

/// What is kept, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The user.
    pub owner: Arc<str>,
    /// Since when, by the wall clock.
    pub since_ms: u64,
    /// Objects with their sizes, the bundle that names the others first.
    pub objects: Vec<(String, u64)>,
    /// Whatever else is to be known, a line each.
    pub notes: Vec<String>,
}

impl Record {
    fn encode(&self) -> String {
        let mut text = format!("{}\n{}\n", self.owner, self.since_ms);
        for (object, bytes) in &self.objects {
            text += &format!("{object} {bytes}\n");
        }
        for note in &self.notes {
            text += &format!("# {}\n", model::text::one_line(note, NOTE_BYTES));
        }
        // What does not end so was cut off.
        text + ".\n"
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix(".\n")?.lines();
        let (owner, since_ms) = (lines.next()?.into(), lines.next()?.parse().ok()?);
        let mut record = Self { owner, since_ms, objects: Vec::new(), notes: Vec::new() };
        for line in lines {
            if let Some(note) = line.strip_prefix("# ") {
                record.notes.push(note.to_owned());
                continue;
            }
            let (object, bytes) = line.split_once(' ')?;
            record.objects.push((Some(object).filter(|o| is_name(o))?.to_owned(), bytes.parse().ok()?));
        }
        Some(record)
    }
}

/// True for what can be the name of a record.
fn is_record(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES && !name.starts_with('.') && name.bytes().all(fine)
}

impl Store {
    fn record_path(&self, name: &str) -> io::Result<PathBuf> {
        if is_record(name) {
            return Ok(self.root.join("kept").join(name));
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "that is not the name of a record"))
    }

    /// Keeps the objects of a record until it is dropped, also over a restart. All of them must be there.
    pub fn keep(&self, name: &str, record: &Record) -> io::Result<()> {
        let path = self.record_path(name)?;
        for (object, bytes) in &record.objects {
            if !self.hold(&record.owner, name, object, *bytes) {
                self.release(name);
                return Err(io::Error::new(io::ErrorKind::NotFound, format!("{object} is not in the store")));
            }
        }
        let new = self.root.join("arriving").join(format!("record.{name}"));
        let write = || {
            let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(record.encode().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(self.root.join("kept"))?.sync_all()
        };
        write().inspect_err(|_| self.release(name))
    }

    /// A record; `None` when there is none.
    pub fn kept(&self, name: &str) -> io::Result<Option<Record>> {
        match fs::read_to_string(self.record_path(name)?) {
            Ok(text) => Record::decode(&text).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("the record {name} is damaged"))
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The names of all records that begin so.
    pub fn all_kept(&self, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("kept")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_record(name) && name.starts_with(prefix)).collect()
    }

    /// What a record named need not be kept any more. Its objects go at once, unless somebody else needs them.
    pub fn drop_kept(&self, name: &str) -> io::Result<()> {
        let record = self.kept(name).ok().flatten();
        match fs::remove_file(self.record_path(name)?) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut books = self.books();
        books.ledger.release(name);
        for (object, _) in record.into_iter().flat_map(|r| r.objects) {
            if !books.ledger.is_held(&object)
                && !books.checkpoints.contains(&object)
                && !self.is_arriving(&object)
            {
                books.remove(&self.objects, &object);
            }
        }
        Ok(())
    }

    /// After a start: what is kept is held before anything is removed.
    pub(crate) fn hold_what_is_kept(&self) -> io::Result<()> {
        for name in self.all_kept("") {
            match self.kept(&name) {
                Ok(Some(record)) => {
                    let mut books = self.books();
                    for (object, bytes) in &record.objects {
                        books.ledger.hold(&record.owner, &name, object, *bytes);
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(name, %error, "what it kept for its user cannot be found any more");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Settings;

    #[test]
    fn what_is_kept_outlives_restarts_and_sweeps_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Settings::default()).unwrap();
        let object = |fill: u8| {
            let mut incoming = store.begin(&"ann".into(), 1).unwrap();
            incoming.write(&[fill; 100]).unwrap();
            incoming.finish("upload", true).unwrap()
        };
        let (kept, other) = (object(1), object(2));
        let record = Record {
            owner: "ann".into(),
            since_ms: 5,
            objects: vec![kept.clone()],
            notes: vec!["two\nlines".into()],
        };
        store.keep("result.1.0", &record).unwrap();
        store.release("upload");
        let missing = Record { objects: vec![("0".repeat(64), 1)], ..record.clone() };
        assert!(store.keep("result.1.1", &missing).is_err() && store.kept("result.1.1").unwrap().is_none());
        for bad in ["../x", "", ".x", "a/b"] {
            assert!(store.keep(bad, &record).is_err(), "{bad}");
        }
        let age = |name: &str| {
            let path = dir.path().join("objects").join(&name[..2]).join(name);
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        drop(store);
        let store = Store::open(dir.path(), Settings::default()).unwrap();
        age(&kept.0);
        age(&other.0);
        assert_eq!(store.sweep(), 1);
        assert!(store.has(&kept.0) && !store.has(&other.0));
        assert_eq!(store.usage("ann"), (100, 1));
        let read = store.kept("result.1.0").unwrap().unwrap();
        assert_eq!(
            (read.objects, read.since_ms, read.notes),
            (record.objects, 5, vec!["two lines".to_owned()])
        );
        assert_eq!(store.all_kept("result.1."), ["result.1.0"]);
        store.drop_kept("result.1.0").unwrap();
        store.drop_kept("result.1.0").unwrap();
        assert!(!store.has(&kept.0) && store.usage("ann") == (0, 0));
        // Half a record is none, and is told.
        fs::write(dir.path().join("objects/kept/result.2.0"), "ann\n5\n").unwrap();
        assert!(store.kept("result.2.0").is_err());
    }
}
