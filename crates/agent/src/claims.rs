//! The files of claims: `claims/ID/` with what must survive the agent.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::Error;

const RECORD: &str = "claim";

/// What an agent needs to know of a claim after a restart.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Record {
    #[prost(uint64, tag = "1")]
    pub(crate) claim: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(crate) slot: String,
    #[prost(string, tag = "4")]
    pub(crate) owner: String,
    #[prost(uint64, tag = "5")]
    pub(crate) lease_ms: u64,
    /// Value of the variable by which this claim's processes are found.
    #[prost(string, tag = "6")]
    pub(crate) marker: String,
}

/// The agent's state directory, locked.
#[derive(Debug)]
pub(crate) struct Claims {
    root: PathBuf,
    _lock: File,
}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}

impl Claims {
    pub(crate) fn open(state: &Path) -> Result<Self, Error> {
        let root = std::path::absolute(state).map_err(fail("cannot use", state))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root.join("claims"))
            .map_err(fail("cannot make", &root))?;
        let path = root.join("lock");
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(fail("cannot open", &path))?;
        if lock.try_lock().is_err() {
            let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
            return Err(Error::InUse { dir: root, pid });
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(fail("cannot write", &path))?;
        Ok(Self { root, _lock: lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn dir(&self, claim: u64) -> PathBuf {
        self.root.join("claims").join(format!("{claim:016x}"))
    }

    /// Writes a claim's record, whole or not at all.
    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        let dir = self.dir(record.claim);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let temp = dir.join("claim.new");
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temp)?;
        file.write_all(&record.encode_to_vec())?;
        fs::rename(&temp, dir.join(RECORD))
    }

    pub(crate) fn remove(&self, claim: u64) {
        // What cannot be removed now is looked at again at the next start.
        let _ = fs::remove_dir_all(self.dir(claim));
    }

    /// All claims found on disk. Directories without a whole record never had a starter.
    pub(crate) fn load(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(self.root.join("claims")) else { return Vec::new() };
        let mut records = Vec::new();
        for entry in entries.flatten() {
            let record =
                fs::read(entry.path().join(RECORD)).ok().and_then(|b| Record::decode(b.as_slice()).ok());
            match record {
                Some(record) if self.dir(record.claim) == entry.path() => records.push(record),
                _ => drop(fs::remove_dir_all(entry.path())),
            }
        }
        records
    }
}
