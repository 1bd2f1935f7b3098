//! What can go wrong, told so that a person knows what to do.

use std::io;
use std::path::{Path, PathBuf};

/// How a command is told which pool's journal is meant, by a file of it: `STATE/manager/...`.
fn state_option(path: &Path) -> String {
    let manager = path.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "manager"));
    let state = manager.and_then(Path::parent).filter(|state| state.is_absolute());
    state.map(|state| format!(" --state-dir {}", state.display())).unwrap_or_default()
}

/// A journal error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full. Nothing of the batch was written.
    #[error("the disk that holds {path} is full; free some space there, nothing was lost")]
    Full {
        /// The file that was written to.
        path: PathBuf,
    },
    /// The directory or file cannot be written. Nothing of the batch was written.
    #[error("{path} cannot be written ({source}); check its owner, mode and mount")]
    ReadOnly {
        /// The file that was written to.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// After a failed sync nobody knows what is on disk.
    #[error(
        "the disk did not take what was written to {path} ({source}); nobody knows now what is there: look at the disk and \
         its messages (dmesg), then start again"
    )]
    Sync {
        /// The file that was synced.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Another manager took the journal over.
    #[error("another manager has taken {path} over (epoch {theirs}, ours was {ours}); this one must stop")]
    Fenced {
        /// The journal's directory.
        path: PathBuf,
        /// The epoch on disk.
        theirs: u64,
        /// The epoch this writer holds.
        ours: u64,
    },
    /// Another process writes to the journal.
    #[error("another process has {path} open; stop it first")]
    Locked {
        /// The journal's directory.
        path: PathBuf,
    },
    /// What is on disk is not what was written.
    #[error(
        "{path} is damaged at position {position}: {what}. `updraft journal check{}` tells how much is lost, `updraft journal \
         salvage{}` keeps what can be read; or restore a backup",
        state_option(path),
        state_option(path)
    )]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// First position that cannot be trusted.
        position: u64,
        /// What does not fit.
        what: String,
    },
    /// Somebody asked for events that were forgotten.
    #[error("position {asked} was forgotten; the oldest that is kept is {oldest}")]
    Forgotten {
        /// The position asked for.
        asked: u64,
        /// The oldest that is kept.
        oldest: u64,
    },
    /// There was a journal, and its files are gone.
    #[error(
        "the journal {path} is gone, but {evidence} shows that there was one. Is its file system mounted? Restore a backup; \
         finish a salvage that was interrupted with `updraft journal salvage{}`; or, to begin anew with an empty queue and numbers from 1, \
         choose another --state-dir",
        state_option(path)
    )]
    Gone {
        /// The journal's directory.
        path: PathBuf,
        /// What shows it.
        evidence: PathBuf,
    },
    /// A journal of a newer version.
    #[error(
        "{path} was written by a newer version (format {found}, this one reads up to {known}); use that version"
    )]
    Newer {
        /// The manifest.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A journal of a version whose format is not read any more.
    #[error(
        "{path} is a journal of an older version (SQLite), which this one does not read; finish its jobs with that version \
         and remove it, or choose another --state-dir"
    )]
    Older {
        /// The old file.
        path: PathBuf,
    },
    /// An event of a kind that this version does not know.
    #[error(
        "{path} has an event at position {position} of a kind that updraft {ours} does not know; it was last written by \
         updraft {theirs}: use that version"
    )]
    UnknownEvent {
        /// The segment.
        path: PathBuf,
        /// Where.
        position: u64,
        /// This version.
        ours: &'static str,
        /// The version that wrote last.
        theirs: String,
    },
    /// A batch larger than a record may be.
    #[error("a batch of {events} events is larger than {limit} bytes; submit less at a time")]
    TooLarge {
        /// Events in it.
        events: usize,
        /// Bytes that a batch may have.
        limit: usize,
    },
    /// Anything else from the system.
    #[error("{doing} {path}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// True when the same write may succeed later: space returns, the mount becomes writable.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::ReadOnly { .. })
    }

    /// A failed write: only a lack of space and of permission may pass.
    pub(crate) fn of_write(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { path }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, source }
            }
            _ => Self::System { doing, path, source },
        }
    }

    /// A failed sync, whatever the reason given: the kernel may have dropped what it could not write.
    pub(crate) fn of_sync(path: &Path, source: io::Error) -> Self {
        Self::Sync { path: path.to_owned(), source }
    }

    pub(crate) fn of_read(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::System { doing, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_space_or_of_permission_may_pass() {
        let write =
            |code: i32| Error::of_write("cannot write", Path::new("f"), io::Error::from_raw_os_error(code));
        let sync = |code: i32| Error::of_sync(Path::new("f"), io::Error::from_raw_os_error(code));
        // ENOSPC, EDQUOT, EFBIG, EROFS, EACCES, EPERM.
        for code in [28, 122, 27, 30, 13, 1] {
            assert!(write(code).may_pass(), "{code}: {}", write(code));
            assert!(!sync(code).may_pass(), "a failed sync never passes, {code}");
        }
        assert!(matches!(write(28), Error::Full { .. }) && matches!(write(30), Error::ReadOnly { .. }));
        // EIO, EBADF, ESTALE, EINVAL.
        for code in [5, 9, 116, 22] {
            assert!(!write(code).may_pass() && !sync(code).may_pass(), "{code}");
        }
        let path = || PathBuf::from("f");
        let fatal = [
            Error::Fenced { path: path(), theirs: 2, ours: 1 },
            Error::Locked { path: path() },
            Error::Damaged { path: path(), position: 1, what: String::new() },
            Error::Forgotten { asked: 1, oldest: 2 },
            Error::TooLarge { events: 1, limit: 1 },
        ];
        assert!(fatal.iter().all(|e| !e.may_pass()));
    }
}
