//! The journal: a durable, replayable, fenced, chained log of [`model::Event`]s in files of its own.
//!
//! One writer appends batches; a batch is one record and costs one sync, however many events are in it. Any number of
//! readers, also in other processes, replay from a position, and reading from a position is a seek. A snapshot bounds how
//! much recovery has to replay. What the events mean, and when to write a snapshot, is decided elsewhere.
//!
//! - `record`: a batch as bytes, chained to the batch before it
//! - `segment`: a file of records with a mark that says how far they are committed; `hints`: where to begin reading in it
//! - `head`: how far the journal is committed, for what a segment cannot know of itself
//! - `manifest`: which segments and snapshots there are, and who leads; `snapshot`: the files of snapshots
//! - `witness`: beside the journal, how far it went, so that a journal which was put back is noticed
//! - `writer`: [`Journal`], the one writer; `reader`: [`Reader`]
//! - `check`: a walk over everything that tells what is damaged; `salvage`: a journal of what can still be read
//!
//! Why files of our own and not a database: docs/decisions/024-the-journal-is-a-chain-of-segments.md.

#![forbid(unsafe_code)]

mod check;
mod error;
mod files;
mod head;
mod hints;
mod manifest;
mod reader;
mod record;
mod salvage;
mod segment;
mod snapshot;
mod witness;
mod writer;

pub use check::{Finding, Report, check};
pub use error::Error;
pub use reader::Reader;
pub use salvage::{Salvaged, forget_outcome, outcome, salvage};
pub use witness::Witness;
pub use writer::{Journal, Recovery, Sizes};

/// An event and its position: the first event of a journal is at 1.
pub type Positioned = (u64, model::Event);

/// The journal's own directory inside the manager's.
const DIRECTORY: &str = "journal";

/// True when a manager's directory has a journal, whole or not; an error when nobody lets us look.
pub fn is_in(manager: &std::path::Path) -> Result<bool, Error> {
    for directory in [directory(manager), manager.join(salvage::SALVAGED)] {
        match std::fs::metadata(&directory) {
            Ok(metadata) if metadata.is_dir() => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::of_read("cannot look at", &directory, error)),
        }
    }
    Ok(false)
}

/// True when a manager's directory has a journal, or a note that there was one.
pub fn has_been_made(manager: &std::path::Path) -> bool {
    manager.join(witness::FILE).exists() || is_in(manager).unwrap_or(true)
}

/// The directory that holds the journal of a manager's directory.
pub fn directory(manager: &std::path::Path) -> std::path::PathBuf {
    manager.join(DIRECTORY)
}
