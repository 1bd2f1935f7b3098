//! Snapshots: one file each, named by the position of the last event that it includes.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::{Error, files};

/// The first bytes of every snapshot.
const MAGIC: &[u8; 8] = b"UPDSNAP2";
/// Bytes before the state: magic, journal's id, position.
const HEAD: usize = 8 + 16 + 8;

/// Writes a snapshot.
pub(crate) fn save(directory: &Path, id: [u8; 16], position: u64, state: &[u8]) -> Result<(), Error> {
    let place = position.to_le_bytes();
    let mut crc = crc32fast::Hasher::new();
    for part in [MAGIC.as_slice(), &id, &place, state] {
        crc.update(part);
    }
    let crc = crc.finalize().to_le_bytes();
    files::replace(&path(directory, position), &[MAGIC, &id, &place, state, &crc])
}

/// Reads a snapshot and checks it.
pub(crate) fn load(directory: &Path, id: [u8; 16], position: u64) -> Result<Vec<u8>, Error> {
    let path = path(directory, position);
    let damaged = |what: &str| Error::Damaged { path: path.clone(), position, what: what.to_owned() };
    let mut bytes = Vec::new();
    match files::open(&path).and_then(|mut f| f.read_to_end(&mut bytes)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged("the snapshot is missing"));
        }
        read => read.map_err(|e| Error::of_read("cannot read", &path, e))?,
    };
    let body = files::checked(&bytes).ok_or_else(|| damaged("the snapshot's checksum differs"))?;
    let head = body.get(..HEAD).ok_or_else(|| damaged("the snapshot is cut off"))?;
    if &head[..8] != MAGIC || head[8..24] != id || head[24..] != position.to_le_bytes() {
        return Err(damaged("the file is not the snapshot of this journal and position"));
    }
    bytes.truncate(bytes.len() - 4);
    bytes.drain(..HEAD);
    Ok(bytes)
}

/// A snapshot's file.
pub(crate) fn path(directory: &Path, position: u64) -> PathBuf {
    directory.join(format!("snapshot-{position:020}"))
}

/// The position that a file's name says, if the file is a snapshot.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-").filter(|n| n.len() == 20)?.parse().ok()
}
