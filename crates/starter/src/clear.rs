//! Clearing away what starters had to set aside: in a process of its own (`updraft clear`), each directory with the rights
//! of whoever it belongs to.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::chore::Chore;
use crate::wire::Identity;
use crate::{remove, sys};

/// One directory may take so long.
const PATIENCE_MS: u64 = 600_000;

/// Removes every directory in this one; returns those that are left, and why. The process must have one thread only.
pub fn clear(dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut left = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(left),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if let Err(error) = remove_as_owner(&path) {
            left.push((path, error.to_string()));
        }
    }
    if left.is_empty() {
        // Unless something was put there meanwhile.
        let _ = fs::remove_dir(dir);
    }
    Ok(left)
}

fn remove_as_owner(path: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(path)?;
    if !about.is_dir() {
        return fs::remove_file(path);
    }
    // The directory above is ours alone: what is there was put there by a starter.
    let open = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    let identity = (about.uid() != sys::own_uid()).then(|| Identity {
        uid: about.uid(),
        gid: about.gid(),
        groups: vec![about.gid()],
    });
    let dir = open.as_fd();
    let chore = Chore::begin(identity.as_ref(), &[dir], || {
        let _ = sys::make_usable(dir);
        match remove::empty(dir)?.why {
            None => Ok(Vec::new()),
            Some(why) => Err(io::Error::other(why)),
        }
    })?;
    chore.wait(PATIENCE_MS)?;
    fs::remove_dir(path)
}
