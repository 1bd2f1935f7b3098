//! A directory for the files of a claim's jobs: made for the first, empty for each, gone with the claim.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::sys;
use crate::wire::Identity;

/// The scratch directory of a claim.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    made: bool,
}

impl Scratch {
    /// `None` where the agent offers no place.
    pub(crate) fn at(path: &str) -> Option<Self> {
        (!path.is_empty()).then(|| Self { dir: PathBuf::from(path), made: false })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes it, for a job of this user. A claim has one owner, so once is enough.
    pub(crate) fn prepare(&mut self, identity: Option<&Identity>) -> io::Result<()> {
        if self.made {
            return Ok(());
        }
        match fs::DirBuilder::new().mode(0o700).create(&self.dir) {
            // From a starter that died; nobody else makes entries in the directory above.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.empty(),
            Err(e) => return Err(e),
            Ok(()) => {}
        }
        if let Some(identity) = identity {
            sys::give_to(&self.dir, identity.uid, identity.gid)?;
        }
        self.made = true;
        Ok(())
    }

    /// Puts a small file there for the job to read, whole or not at all; whoever reads it finds the old or the new one.
    pub(crate) fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let temporary = self.dir.join(format!("{name}.new"));
        // The directory is the job's: a link that it put there must not lead us elsewhere.
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&temporary, self.dir.join(name))
    }

    /// Removes what a job left in it. Most leave nothing, and then this is one short look.
    pub(crate) fn empty(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            // Neither follows links.
            let _ = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir_all(path),
                _ => fs::remove_file(path),
            };
        }
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_empty_for_each_job_and_gone_at_the_end() {
        let above = tempfile::tempdir().unwrap();
        let kept = above.path().join("kept");
        fs::write(&kept, "x").unwrap();
        let mut scratch = Scratch::at(above.path().join("dir").to_str().unwrap()).unwrap();
        scratch.prepare(None).unwrap();
        fs::create_dir_all(scratch.dir.join("a/b")).unwrap();
        fs::write(scratch.dir.join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, scratch.dir.join("link")).unwrap();
        std::os::unix::fs::symlink(above.path(), scratch.dir.join("dirlink")).unwrap();
        scratch.put("note", "1\n").unwrap();
        scratch.put("note", "2\n").unwrap();
        assert_eq!(fs::read_to_string(scratch.dir.join("note")).unwrap(), "2\n");
        scratch.empty();
        assert_eq!(fs::read_dir(&scratch.dir).unwrap().count(), 0);
        assert!(kept.exists(), "links are removed, not followed");
        scratch.prepare(None).unwrap();
        scratch.remove();
        assert!(!scratch.dir.exists());
        assert!(Scratch::at("").is_none());
    }
}
