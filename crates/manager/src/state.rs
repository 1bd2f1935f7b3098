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

use serde::{Deserialize, Serialize};

use crate::Sharing;

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
    /// A copy of the directory of a manager that was running.
    #[error(
        "{path} is a copy of {original} (on machine {machine}, manager pid {pid}), made while that pool was running. Two \
         managers that take themselves for the same pool would run its jobs twice. Use the original; or, if it is gone for \
         good, remove {record} and start again"
    )]
    Copy {
        /// The copy.
        path: PathBuf,
        /// Where it was made from.
        original: PathBuf,
        /// On which machine that was.
        machine: String,
        /// The manager that ran there.
        pid: u32,
        /// The file that says so.
        record: PathBuf,
    },
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

/// What the file `home` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    path: PathBuf,
    inode: u64,
    machine: String,
    boot: String,
    pid: u32,
    /// False once the manager has stopped in an orderly way.
    running: bool,
}

impl Home {
    fn of(root: &Path, manager: &Path) -> io::Result<Self> {
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let id = word("/etc/machine-id");
        let machine = if id.is_empty() { word("/proc/sys/kernel/hostname") } else { id };
        Ok(Self {
            path: root.to_owned(),
            inode: fs::metadata(manager)?.ino(),
            machine,
            boot: word("/proc/sys/kernel/random/boot_id"),
            pid: std::process::id(),
            running: true,
        })
    }

    /// True when `earlier` was written into another directory by a manager that may still be running there. The same
    /// directory is guarded by its lock; a machine that has been started anew has no manager of before.
    fn is_copy_of_live(&self, earlier: &Self) -> bool {
        let same_place = self.machine == earlier.machine && self.path == earlier.path;
        let over = same_place && (self.boot != earlier.boot || !is_alive(earlier.pid));
        earlier.running && self.inode != earlier.inode && !over
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
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
        let home = Home::of(&root, &manager).map_err(fail("cannot read", &manager))?;
        let record = manager.join(HOME);
        if let Some(earlier) = read_home(&record)
            && home.is_copy_of_live(&earlier)
        {
            let Home { path: original, machine, pid, .. } = earlier;
            return Err(Error::Copy { path: root, original, machine, pid, record });
        }
        write_home(&record, &home)?;
        Ok(Self { root, home, _lock: lock })
    }

    /// The manager has stopped in an orderly way: from now on a copy of the directory is as good as the original.
    pub(crate) fn note_stopped(&self) {
        let home = Home { running: false, ..self.home.clone() };
        // Without the note a copy is refused that could be used: the message says what to do.
        let _ = write_home(&self.manager().join(HOME), &home);
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

const HOME: &str = "home";

/// A file that cannot be read says nothing: the lock still guards the directory.
fn read_home(record: &Path) -> Option<Home> {
    serde_json::from_slice(&fs::read(record).ok()?).ok()
}

fn write_home(record: &Path, home: &Home) -> Result<(), Error> {
    let new = record.with_extension("new");
    let bytes = serde_json::to_vec(home).map_err(io::Error::from).map_err(fail("cannot write", record))?;
    fs::write(&new, bytes).map_err(fail("cannot write", &new))?;
    fs::rename(&new, record).map_err(fail("cannot write", record))
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

    #[test]
    fn only_a_copy_of_what_may_still_run_is_refused() {
        let here = Home {
            path: "/a".into(),
            inode: 7,
            machine: "m".into(),
            boot: "b".into(),
            pid: std::process::id(),
            running: true,
        };
        let dead = u32::MAX;
        let earlier = |change: &dyn Fn(&mut Home)| {
            let mut earlier = Home { inode: 8, ..here.clone() };
            change(&mut earlier);
            here.is_copy_of_live(&earlier)
        };
        assert!(earlier(&|_| {}), "the original runs");
        assert!(earlier(&|h| (h.path, h.pid) = ("/b".into(), dead)), "killed, but it may come back there");
        assert!(earlier(&|h| h.machine = "other".into()), "nobody here knows whether it runs");
        assert!(!earlier(&|h| h.inode = 7), "the same directory: its lock decides");
        assert!(!earlier(&|h| (h.path, h.running) = ("/b".into(), false)), "moved after an orderly stop");
        assert!(!earlier(&|h| h.pid = dead), "put back in its place after a crash");
        assert!(!earlier(&|h| h.boot = "earlier".into()), "put back in its place after a reboot");
    }
}
