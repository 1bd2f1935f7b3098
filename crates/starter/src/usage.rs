//! How much room a job's files take, as blocks or as what they would fill.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::sys;

/// A look ends after so many entries: whoever has more pays for the ones that were seen.
const ENTRIES: u64 = 5_000_000;

/// Bytes that the files below a directory take. A sparse file counts as what it would fill, a file with several names
/// once. Directories on other file systems, and those that cannot be read, are passed over.
pub(crate) fn measure(dir: BorrowedFd<'_>) -> io::Result<u64> {
    let device = sys::about(dir, c"")?.st_dev;
    let mut seen = HashSet::new();
    let (mut bytes, mut entries) = (0u64, 0u64);
    // Directories that wait to be looked at, by open descriptors: at most this many levels of them.
    let mut open: Vec<(OwnedFd, Vec<std::ffi::CString>)> = Vec::new();
    let mut at = dir.try_clone_to_owned()?;
    loop {
        let mut inside = Vec::new();
        sys::for_each_entry(at.as_fd(), |name, _| {
            entries += 1;
            let Ok(about) = sys::about(at.as_fd(), name) else { return };
            if about.st_dev != device {
                return;
            }
            if about.st_nlink < 2
                || about.st_mode & libc::S_IFMT == libc::S_IFDIR
                || seen.insert(about.st_ino)
            {
                let whole = (about.st_size.max(0) as u64).max(about.st_blocks.max(0) as u64 * 512);
                bytes = bytes.saturating_add(whole);
            }
            if about.st_mode & libc::S_IFMT == libc::S_IFDIR {
                inside.push(name.to_owned());
            }
        })?;
        if open.len() >= DEPTH {
            // Deeper than anybody's work: the directories there are counted, what is in them is not.
            inside.clear();
        }
        open.push((at, inside));
        at = loop {
            let Some((above, names)) = open.last_mut() else { return Ok(bytes) };
            let Some(name) = names.pop() else {
                open.pop();
                continue;
            };
            if let Ok(next) = sys::open_dir_at(above.as_fd(), &name)
                && entries < ENTRIES
            {
                break next;
            }
        };
    }
}

/// Levels that are looked at, each with a descriptor.
const DEPTH: usize = 500;

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn sparse_files_count_in_full_and_names_of_one_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let of = || measure(File::open(dir.path()).unwrap().as_fd()).unwrap();
        let nothing = of();
        File::create(dir.path().join("sparse")).unwrap().set_len(1 << 30).unwrap();
        assert!(of() >= nothing + (1 << 30));
        fs::hard_link(dir.path().join("sparse"), dir.path().join("again")).unwrap();
        assert!(of() < nothing + (2 << 30));
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::write(dir.path().join("a/b/c/x"), vec![1; 1_000_000]).unwrap();
        let with = of();
        assert!(with > nothing + (1 << 30) + 900_000, "{with}");
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        assert!(of() < with + 10_000, "links are not followed");
    }
}
