//! What can go wrong, told so that a person knows what to do.

use std::path::PathBuf;

/// A journal error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full. Nothing of the batch was written.
    #[error("the disk that holds {path} is full; free some space there, nothing was lost")]
    Full {
        /// The database file.
        path: PathBuf,
    },
    /// The directory or file cannot be written. Nothing of the batch was written.
    #[error("{path} cannot be written ({reason}); check its owner, mode and mount")]
    ReadOnly {
        /// The database file.
        path: PathBuf,
        /// SQLite's words.
        reason: String,
    },
    /// Another manager took the journal over.
    #[error("another manager has taken {path} over (epoch {theirs}, ours was {ours}); this one must stop")]
    Fenced {
        /// The database file.
        path: PathBuf,
        /// The epoch on disk.
        theirs: u64,
        /// The epoch this writer holds.
        ours: u64,
    },
    /// What is on disk is not what was written.
    #[error("{path} is damaged at position {position}: {what}; restore it from a backup")]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// First position of the damaged batch.
        position: u64,
        /// What does not fit.
        what: String,
    },
    /// A journal of a newer version.
    #[error(
        "{path} was written by a newer version (format {found}, this one reads up to {known}); use that version"
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Anything else from SQLite.
    #[error("{doing} {path}: {source}")]
    Sqlite {
        /// What was attempted.
        doing: &'static str,
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        #[source]
        source: rusqlite::Error,
    },
}

impl Error {
    /// True when the same write may succeed later: space returns, the mount becomes writable.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::ReadOnly { .. })
    }
}
