//! A directory for the files of a claim's jobs: made for the first, empty for each, gone with the claim.
//!
//! It is the job's user's, who may put anything into it, at any time, also from outside the job. So it is only ever used
//! through a descriptor from when it was made, and emptied by a chore with the user's rights. What cannot be removed, or not
//! in time, is set aside; the agent tries again and tells people.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::chore::{Chore, Doer};
use crate::wire::Identity;
use crate::{remove, sys, usage};

/// How long a claim's end waits for its files to go.
const LAST_MS: u64 = 3_000;

/// The scratch directory of a claim.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    /// Where what cannot be removed goes; out of everybody else's reach.
    aside: PathBuf,
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    open: File,
    identity: Option<Identity>,
}

impl Scratch {
    /// `None` where the agent offers no place.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let dir = PathBuf::from(path);
        let aside = dir.parent()?.join(crate::ASIDE);
        (!path.is_empty()).then_some(Self { dir, aside, made: None })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes it, for a job of this user. A claim has one owner, so once is enough.
    pub(crate) fn prepare(&mut self, identity: Option<&Identity>) -> io::Result<()> {
        if self.made.is_some() {
            return Ok(());
        }
        let dir = self.dir.clone();
        let make = || fs::DirBuilder::new().mode(0o700).create(&dir);
        match make() {
            // From a starter that died.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.set_aside()?;
                make()?;
            }
            made => made?,
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let open = File::options().read(true).custom_flags(flags).open(&self.dir)?;
        if let Some(identity) = identity {
            std::os::unix::fs::fchown(&open, Some(identity.uid), Some(identity.gid))?;
        }
        self.made = Some(Made { open, identity: identity.cloned() });
        Ok(())
    }

    /// Puts a small file there for the job to read, whole or not at all; whoever reads it finds the old or the new one.
    pub(crate) fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let Some(made) = &self.made else { return Ok(()) };
        let dir = PathBuf::from(format!("/proc/self/fd/{}", made.open.as_raw_fd()));
        let temporary = dir.join(format!("{name}.new"));
        // The directory is the job's: a link that it put there must not lead us elsewhere.
        let _ = fs::remove_file(&temporary);
        let mut file = File::options().write(true).create_new(true).mode(0o644).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&temporary, dir.join(name))
    }

    /// Begins to remove what a job left in it. Most leave nothing, and then this is one short look.
    pub(crate) fn begin_to_empty(&self) -> io::Result<Option<Chore>> {
        let Some(made) = &self.made else { return Ok(None) };
        if sys::is_empty(made.open.as_fd())? {
            return Ok(None);
        }
        let dir = made.open.as_fd();
        Chore::begin(made.identity.as_ref(), &[dir], || {
            // Its owner may have taken all rights away from himself.
            let _ = sys::make_usable(dir);
            let left = remove::empty(dir)?;
            match left.why {
                None => Ok(Vec::new()),
                Some(why) => Err(io::Error::other(format!("{} entries are left, first {why}", left.count))),
            }
        })
        .map(Some)
    }

    /// Begins to find out how many bytes its files take.
    pub(crate) fn begin_to_measure(&self) -> io::Result<Option<Chore>> {
        let Some(made) = &self.made else { return Ok(None) };
        let dir = made.open.as_fd();
        // Its owner could take the rights to a directory away from himself, and stop whoever looks with his rights.
        let chore = Chore::begin_as(Doer::Onlooker(made.identity.as_ref()), &[dir], || {
            usage::measure(dir).map(|bytes| bytes.to_le_bytes().to_vec())
        });
        chore.map(Some)
    }

    /// The file system that it is on.
    pub(crate) fn device(&self) -> Option<u64> {
        self.made.as_ref().and_then(|made| sys::about(made.open.as_fd(), c"").ok()).map(|about| about.st_dev)
    }

    /// Size of the file system that it is on, and what is free there.
    pub(crate) fn room(&self) -> Option<(u64, u64)> {
        self.made.as_ref().and_then(|made| sys::room(made.open.as_fd()).ok())
    }

    /// Puts it out of the way as it is; the next job gets a new one.
    pub(crate) fn set_aside(&mut self) -> io::Result<PathBuf> {
        self.made = None;
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let to = self.aside.join(format!("{name}.{}.{}", sys::own_pid(), sys::mono_us()));
        let mut tries = 3;
        loop {
            match fs::DirBuilder::new().mode(0o700).create(&self.aside) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            match fs::rename(&self.dir, &to) {
                // Whoever clears it away has just done so.
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries > 0 => tries -= 1,
                moved => return moved.map(|()| to),
            }
        }
    }

    /// Removes it, or sets it aside.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        let emptied = match self.begin_to_empty() {
            Ok(Some(chore)) => chore.wait(LAST_MS).map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.made = None;
        match emptied.and_then(|()| fs::remove_dir(&self.dir)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let to = self.set_aside()?;
                Err(io::Error::other(format!("{e}; it is set aside as {}", to.display())))
            }
            _ => Ok(()),
        }
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
        scratch.begin_to_empty().unwrap().expect("there is something").wait(10_000).unwrap();
        assert!(scratch.begin_to_empty().unwrap().is_none(), "there is nothing left");
        assert!(kept.exists(), "links are removed, not followed");
        scratch.prepare(None).unwrap();
        fs::write(scratch.dir.join("last"), "x").unwrap();
        scratch.remove().unwrap();
        assert!(!scratch.dir.exists());
        assert!(Scratch::at("").is_none());
    }

    #[test]
    fn what_was_there_before_is_set_aside() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("dir");
        fs::create_dir_all(dir.join("old")).unwrap();
        let mut scratch = Scratch::at(dir.to_str().unwrap()).unwrap();
        scratch.prepare(None).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        let aside: Vec<_> = fs::read_dir(above.path().join(crate::ASIDE)).unwrap().flatten().collect();
        assert!(aside.len() == 1 && aside[0].path().join("old").exists(), "{aside:?}");
    }
}
