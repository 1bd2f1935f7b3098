//! The state directory, its lock, and whose it is.
//!
//! ```text
//! STATE/manager.sock        where people on this machine connect
//! STATE/manager/            journal, CA, lock: for the manager alone
//! STATE/manager/home        which directory of which machine this is, and whether a manager runs on it
//! STATE/agent/              claims and certificate of the agent on this machine
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use starter::home::{Elsewhere, Home};

use crate::Sharing;
use crate::occupied::{self, Other};

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else has it.
    #[error(transparent)]
    Lock(#[from] starter::lock::Error),
    /// Another user's directory: files of two users in it would be of use to neither.
    #[error(
        "{path} belongs to {owner}, not to {me}; start the pool as {owner}, or choose another --state-dir"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Who we are.
        me: String,
    },
    /// A manager of the same pool runs in another directory.
    #[error(
        "pool {pool} is up already in {there}; {path} is a copy of that directory, or that one of this. Two managers of a pool \
         would run its jobs twice: use the one that is up, or stop it first"
    )]
    Occupied {
        /// The pool's name.
        pool: String,
        /// Where its manager runs, in words.
        there: String,
        /// The directory that is not used.
        path: PathBuf,
    },
    /// A copy of another manager's directory.
    #[error(transparent)]
    Home(#[from] starter::home::Error),
    /// The disk is full.
    #[error("the disk that holds {path} is full; free some space there and start again, nothing was lost")]
    Full {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// It cannot be made, read or written.
    #[error("{doing} {path}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A locked state directory.
#[derive(Debug)]
pub struct StateDir {
    root: PathBuf,
    home: Home,
    _lock: File,
}

impl StateDir {
    /// Makes the directory if needed and locks it for one manager.
    pub fn open(root: &Path, sharing: Sharing) -> Result<Self, Error> {
        let root = std::path::absolute(root).map_err(fail("cannot use", root))?;
        let mode = if sharing == Sharing::Shared { 0o755 } else { 0o700 };
        let manager = root.join("manager");
        check_owner(&root)?;
        make_dir(&root, mode)?;
        make_dir(&manager, 0o700)?;
        make_dir(&manager.join("trust"), 0o700)?;
        let lock =
            starter::lock::take(&manager.join("lock"), "manager", &root).map_err(|error| match error {
                starter::lock::Error::File { doing, path, source } => fail(doing, &path)(source),
                error @ starter::lock::Error::InUse { .. } => error.into(),
            })?;
        let home =
            starter::home::enter(&manager, &root, "manager", Elsewhere::MayRun).map_err(
                |error| match error {
                    starter::home::Error::File { doing, path, source } => fail(doing, &path)(source),
                    error @ starter::home::Error::Copy { .. } => error.into(),
                },
            )?;
        Ok(Self { root, home, _lock: lock })
    }

    /// Makes sure that no other manager of the pool runs on this machine for this user.
    pub(crate) fn occupy(&self, pool: &str, servers: &mut tokio::task::JoinSet<()>) -> Result<(), Error> {
        let there = match occupied::occupy(pool, &self.root, servers) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Other::At(there))) => there.display().to_string(),
            Ok(Err(Other::Silent)) => "a process that does not answer".to_owned(),
            // Copies are mostly told by their own records.
            Err(error) => {
                tracing::warn!(%error, "another manager of this pool on this machine would not be noticed");
                return Ok(());
            }
        };
        Err(Error::Occupied { pool: pool.to_owned(), there, path: self.root.clone() })
    }

    /// The manager has stopped in an orderly way.
    pub(crate) fn note_stopped(&self) {
        self.home.note_stopped(&self.manager());
    }

    /// The manager's own directory.
    pub fn manager(&self) -> PathBuf {
        self.root.join("manager")
    }

    /// Keys and certificates.
    pub fn trust(&self) -> PathBuf {
        self.manager().join("trust")
    }

    /// Where people on this machine connect.
    pub fn socket(&self) -> PathBuf {
        self.root.join("manager.sock")
    }
}

/// Refuses a state directory of another user. To be asked before anything is made in it.
pub fn check_owner(root: &Path) -> Result<(), Error> {
    for path in [root.to_owned(), root.join("manager")] {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let own = starter::user::own_uid();
        if metadata.uid() != own {
            let (owner, me) = (starter::user::name_of(metadata.uid()), starter::user::name_of(own));
            return Err(Error::Foreign { path, owner, me });
        }
    }
    Ok(())
}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
        _ => Error::System { doing, path, source },
    }
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(fail("cannot make", path))?;
    let current = fs::metadata(path).map_err(fail("cannot read", path))?.permissions().mode() & 0o777;
    if current != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(fail("cannot set the mode of", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_manager_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path(), Sharing::Private).unwrap();
        let error = StateDir::open(dir.path(), Sharing::Private).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        StateDir::open(dir.path(), Sharing::Private).unwrap();
    }
}
