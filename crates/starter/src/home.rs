//! Which directory of which machine a state directory is, so that a copy is not taken for the original.
//!
//! A copied state directory has the same claims, keys and numbers: two processes that take themselves for the same manager or
//! agent would run jobs twice, and each would end what the other runs. Each writes a file `home` that says where it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "home";

/// What the file `home` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// What people call the place.
    pub path: PathBuf,
    inode: u64,
    /// The machine.
    pub machine: String,
    boot: String,
    /// The process that wrote it.
    pub pid: u32,
    /// False once that process has stopped in an orderly way.
    pub running: bool,
}

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A copy of a directory that somebody may be using.
    #[error(
        "{path} is a copy of {} (on machine {}, {who} pid {}), {when}. Two that take themselves for the same \
         {who} would run jobs twice, and each would end the other's. Use the original; or, if it is gone for good, remove \
         {record} and start again",
        original.path.display(), original.machine, original.pid
    )]
    Copy {
        /// The copy.
        path: PathBuf,
        /// What its record says: where it was made from.
        original: Box<Home>,
        /// Who ran there.
        who: &'static str,
        /// What is known of it.
        when: &'static str,
        /// The file that says so.
        record: PathBuf,
    },
    /// The file cannot be read or written.
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

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}

/// What may be assumed of somebody who was running when the file was copied, and is not seen to run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// That it runs: a manager alone decides what its pool does.
    MayRun,
    /// Nothing: whoever it talks to tells the two apart.
    IsTold,
}

/// Notes that `who` runs in `dir`, which people call `path`; to be called with the directory's lock. Refuses a copy of a
/// directory that is still there on this machine, or (see [`Elsewhere`]) may be in use on another one.
pub fn enter(dir: &Path, path: &Path, who: &'static str, elsewhere: Elsewhere) -> Result<Home, Error> {
    let home = Home::of(dir, path).map_err(fail("cannot read", dir))?;
    let record = dir.join(FILE);
    if let Some(earlier) = read(&record) {
        let when = if home.is_copy_of_what_is_there(&earlier, dir) {
            Some("which is still there")
        } else if elsewhere == Elsewhere::MayRun && home.is_copy_of_live(&earlier) {
            Some("made while that one was running")
        } else {
            None
        };
        if let Some(when) = when {
            return Err(Error::Copy {
                path: path.to_owned(),
                original: Box::new(earlier),
                who,
                when,
                record,
            });
        }
    }
    home.write(&record)?;
    Ok(home)
}

impl Home {
    fn of(dir: &Path, path: &Path) -> io::Result<Self> {
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let id = word("/etc/machine-id");
        let machine = if id.is_empty() { word("/proc/sys/kernel/hostname") } else { id };
        Ok(Self {
            path: path.to_owned(),
            inode: fs::metadata(dir)?.ino(),
            machine,
            boot: word("/proc/sys/kernel/random/boot_id"),
            pid: std::process::id(),
            running: true,
        })
    }

    /// The process stops in an orderly way: from now on the directory may be moved elsewhere.
    pub fn note_stopped(&self, dir: &Path) {
        let home = Self { running: false, ..self.clone() };
        // Without the note a directory that was moved is refused: the message says what to do.
        let _ = home.write(&dir.join(FILE));
    }

    fn write(&self, record: &Path) -> Result<(), Error> {
        let new = record.with_extension("new");
        let bytes =
            serde_json::to_vec(self).map_err(io::Error::from).map_err(fail("cannot write", record))?;
        fs::write(&new, bytes).map_err(fail("cannot write", &new))?;
        fs::rename(&new, record).map_err(fail("cannot write", record))
    }

    /// True when the directory that `earlier` was written into is another one, and there: whoever was stopped in it may be
    /// started again, and its jobs may still run.
    fn is_copy_of_what_is_there(&self, earlier: &Self, dir: &Path) -> bool {
        let place =
            dir.strip_prefix(&self.path).map_or_else(|_| earlier.path.clone(), |p| earlier.path.join(p));
        self.machine == earlier.machine
            && self.inode != earlier.inode
            && fs::metadata(place).is_ok_and(|original| original.ino() == earlier.inode)
    }

    /// True when `earlier` was written into another directory by a process that may still be running there. The same
    /// directory is guarded by its lock; a machine that has been started anew has no process of before.
    fn is_copy_of_live(&self, earlier: &Self) -> bool {
        let same_place = self.machine == earlier.machine && self.path == earlier.path;
        let over = same_place && (self.boot != earlier.boot || !is_alive(earlier.pid));
        earlier.running && self.inode != earlier.inode && !over
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A file that cannot be read says nothing: the lock still guards the directory.
fn read(record: &Path) -> Option<Home> {
    serde_json::from_slice(&fs::read(record).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_copy_is_refused_as_long_as_the_original_is_there_however_that_was_stopped() {
        let world = tempfile::tempdir().unwrap();
        let place = |name: &str| world.path().join(name);
        let enter = |name: &str| enter(&place(name).join("sub"), &place(name), "agent", Elsewhere::IsTold);
        fs::create_dir_all(place("a/sub")).unwrap();
        let home = enter("a").unwrap();
        home.note_stopped(&place("a/sub"));
        fs::create_dir_all(place("b/sub")).unwrap();
        fs::copy(place("a/sub/home"), place("b/sub/home")).unwrap();
        let said = enter("b").unwrap_err().to_string();
        assert!(
            said.contains("is a copy of") && said.contains("still there") && said.contains("b/sub/home"),
            "{said}"
        );
        enter("a").unwrap();
        fs::rename(place("a"), place("c")).unwrap();
        enter("c").unwrap();
        enter("b").unwrap();
        // A backup that is put back in its place is no copy of anything.
        fs::remove_dir_all(place("c")).unwrap();
        fs::create_dir_all(place("c/sub")).unwrap();
        fs::copy(place("b/sub/home"), place("c/sub/home")).unwrap();
        fs::rename(place("b"), place("d")).unwrap();
        enter("c").unwrap();
    }
}
