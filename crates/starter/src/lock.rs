//! A directory for one process at a time: a lock file that says who has it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Nobody but the owner opens a lock file.
const OWN: u32 = 0o600;

/// Why a directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else has it.
    #[error(
        "another {who} (pid {pid}) already runs on {dir}; use it, stop it, or choose another --state-dir"
    )]
    InUse {
        /// What both are.
        who: &'static str,
        /// The other's process.
        pid: String,
        /// The state directory.
        dir: PathBuf,
    },
    /// The file cannot be made or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Takes the lock file `path` for as long as the result lives. `who` is what we are, `dir` what people call the place.
pub fn take(path: &Path, who: &'static str, dir: &Path) -> Result<File, Error> {
    let fail = |doing| move |source| Error::File { doing, path: path.to_owned(), source };
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(OWN);
    let mut lock = options.open(path).map_err(fail("cannot open"))?;
    // Whoever can open a file can lock it, and nobody else could start then.
    lock.set_permissions(fs::Permissions::from_mode(OWN)).map_err(fail("cannot close to others"))?;
    if lock.try_lock().is_err() {
        let pid = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let pid = if pid.is_empty() { "unknown".into() } else { pid };
        return Err(Error::InUse { who, pid, dir: dir.to_owned() });
    }
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(fail("cannot write"))?;
    Ok(lock)
}

#[test]
fn the_second_is_refused_with_the_pid_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let first = take(&path, "agent", dir.path()).unwrap();
    let error = take(&path, "agent", dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("another agent (pid {})", std::process::id())), "{error}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWN);
    drop(first);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(take(&path, "agent", dir.path()).unwrap());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        OWN,
        "one of an earlier version, too"
    );
    take(&path, "agent", dir.path()).unwrap();
}
