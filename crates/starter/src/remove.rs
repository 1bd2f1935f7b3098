//! Removing a directory with all that is in it, however deep: without recursion, with a few descriptors, without long names.
//!
//! What lies below a subdirectory is first moved up beside it, so that there is never more than one level to look at. Links
//! are removed, not followed; what cannot be removed is left, counted and named.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use crate::sys;

/// Names like this are given to directories on their way.
const PREFIX: &str = ".updraft-removing-";

/// What was left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many entries of the directory.
    pub count: u64,
    /// What the system said of the first of them.
    pub why: Option<String>,
}

/// Whose rights something is removed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// The owner's, who makes directories usable that are not.
    Owners,
    /// Everybody's: nothing but names is changed, and other file systems are left alone.
    All,
}

/// Removes everything in a directory.
pub fn empty(dir: BorrowedFd<'_>) -> io::Result<Left> {
    empty_with(dir, Rights::Owners)
}

/// The same with other rights.
pub(crate) fn empty_with(dir: BorrowedFd<'_>, rights: Rights) -> io::Result<Left> {
    let mut next_name = 0u64;
    loop {
        let mut left = Left::default();
        let mut removed = 0u64;
        sys::for_each_entry(dir, |name, is_dir| {
            let done = if is_dir {
                flatten(dir, name, &mut next_name, rights)
            } else {
                sys::remove_file_at(dir, name)
            };
            match done {
                Ok(()) => removed += 1,
                Err(error) => {
                    left.count += 1;
                    left.why.get_or_insert_with(|| format!("{}: {error}", name.to_string_lossy()));
                }
            }
        })?;
        // What was moved up, and what others have made meanwhile, is seen in the next round; a round that removes nothing is
        // the last.
        if removed == 0 {
            return Ok(left);
        }
    }
}

/// Moves the subdirectories of one up beside it, removes its files, then itself.
fn flatten(above: BorrowedFd<'_>, name: &CStr, next_name: &mut u64, rights: Rights) -> io::Result<()> {
    // Most are empty by the time they are looked at, or were from the beginning.
    if sys::remove_dir_at(above, name).is_ok() {
        return Ok(());
    }
    let dir = open_dir(above, name, rights)?;
    let mut trouble = None;
    sys::for_each_entry(borrow(&dir), |inner, is_dir| {
        let done = if is_dir {
            lift(above, borrow(&dir), inner, next_name, rights)
        } else {
            sys::remove_file_at(borrow(&dir), inner)
        };
        if let Err(error) = done {
            trouble.get_or_insert(error);
        }
    })?;
    match (sys::remove_dir_at(above, name), trouble) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(trouble)) => Err(trouble),
        // Others were quicker to fill it than we to empty it.
        (Err(error), None) => Err(error),
    }
}

/// Moves a directory up.
fn lift(
    above: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &CStr,
    next_name: &mut u64,
    rights: Rights,
) -> io::Result<()> {
    if sys::remove_dir_at(dir, name).is_ok() {
        return Ok(());
    }
    *next_name += 1;
    let new = CString::new(format!("{PREFIX}{next_name}")).map_err(io::Error::other)?;
    sys::rename_at(dir, name, above, &new).or_else(|error| {
        // To be moved, a directory must be writable.
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        open_dir(dir, name, rights)?;
        sys::rename_at(dir, name, above, &new)
    })
}

/// Opens a directory, and makes it one that its owner may read and change.
fn open_dir(above: BorrowedFd<'_>, name: &CStr, rights: Rights) -> io::Result<OwnedFd> {
    if rights == Rights::All {
        let dir = sys::open_dir_at(above, name)?;
        let is_same = sys::about(above, c"")?.st_dev == sys::about(borrow(&dir), c"")?.st_dev;
        return if is_same { Ok(dir) } else { Err(io::Error::other("another file system is there")) };
    }
    match sys::open_dir_at(above, name) {
        Ok(dir) => {
            // Not ours to change, perhaps; then removing says so.
            let _ = sys::make_usable(borrow(&dir));
            Ok(dir)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            sys::make_usable_at(above, name)?;
            sys::open_dir_at(above, name)
        }
        Err(error) => Err(error),
    }
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    use std::os::fd::AsFd as _;
    debug_assert!(fd.as_raw_fd() > 2);
    fd.as_fd()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn wide_forbidden_and_linked_things_go_and_nothing_outside_does() {
        let place = tempfile::tempdir().unwrap();
        let (dir, kept) = (place.path().join("dir"), place.path().join("kept"));
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("x"), "x").unwrap();
        for n in 0..300 {
            fs::create_dir_all(dir.join(format!("a/{n}/{n}"))).unwrap();
            fs::write(dir.join(format!("a/{n}/{n}/f")), "x").unwrap();
        }
        std::os::unix::fs::symlink(&kept, dir.join("a/b/link")).unwrap();
        std::os::unix::fs::symlink("/", dir.join("root")).unwrap();
        fs::write(dir.join(format!("{PREFIX}1")), "in the way").unwrap();
        fs::set_permissions(dir.join("a/7/7"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(dir.join("a/7"), fs::Permissions::from_mode(0o500)).unwrap();
        let left = empty(File::open(&dir).unwrap().as_fd()).unwrap();
        assert_eq!(left, Left::default());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert!(kept.join("x").exists());
    }

    #[test]
    fn a_tree_deeper_than_any_name_or_stack_goes() {
        // In memory where there is such a place: disks take half a minute for it.
        let above = Path::new("/dev/shm");
        let above = if above.is_dir() { above.to_owned() } else { std::env::temp_dir() };
        let place = tempfile::tempdir_in(above).unwrap();
        let top = File::open(place.path()).unwrap();
        let mut at: OwnedFd = top.as_fd().try_clone_to_owned().unwrap();
        for _ in 0..30_000 {
            sys::make_dir_at(at.as_fd(), c"d").unwrap();
            at = sys::open_dir_at(at.as_fd(), c"d").unwrap();
        }
        drop(at);
        assert_eq!(empty(top.as_fd()).unwrap(), Left::default());
    }
}
