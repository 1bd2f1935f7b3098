//! Cluster numbers that are used once within a state directory: `STATE/runs/clusters` holds the next one.
//!
//! A private run has books of its own, which would begin at 1 every time; then `out.$(Cluster).$(Process)` of the second
//! run would overwrite that of the first, and a job event log that both write would hold two jobs of one name. Numbers
//! are taken from the file, on disk before they are used; a run that dies in between leaves a gap. The pool of the
//! directory (`updraft up`) counts by itself: it begins behind what runs have used, and runs begin behind what it has.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::cmd::Failure;

/// What to do about a counter that cannot be used.
const HOLDS: &str = "write there the next cluster number, larger than any that was used here, twice (17 17), or results of earlier runs are overwritten";

/// The counter, locked: nobody else takes numbers meanwhile.
#[derive(Debug)]
pub(crate) struct Numbers {
    file: PathBuf,
    next: u32,
    _lock: File,
}

impl Numbers {
    /// Waits for whoever has the counter of a state directory, and reads it.
    pub(crate) fn lock(state: &Path) -> Result<Self, Failure> {
        manager::check_owner(state).map_err(manager::Error::from)?;
        let dir = state.join("runs");
        let file = dir.join("clusters");
        let fail = |e: io::Error| Failure::new(format!("cannot use {}: {e}", file.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(fail)?;
        let lock = File::options().create(true).truncate(false).write(true).open(dir.join("clusters.lock"));
        let lock = lock.map_err(fail)?;
        lock.lock().map_err(fail)?;
        // Whoever put a pipe there would have us wait for ever.
        if fs::metadata(&file).is_ok_and(|m| !m.is_file()) {
            return Err(Failure::new(format!(
                "{} is no regular file; remove it, and {HOLDS}",
                file.display()
            )));
        }
        let next = match fs::read_to_string(&file) {
            Ok(text) => {
                parse(&text).ok_or_else(|| Failure::new(format!("{} is damaged: {HOLDS}", file.display())))?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => 1,
            Err(e) => return Err(fail(e)),
        };
        Ok(Self { file, next, _lock: lock })
    }

    /// The first number that no run has used.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Takes as many numbers as asked for, none of them below `least`: the first of them. They are on disk as taken.
    pub(crate) fn take(self, count: u32, least: u32) -> Result<u32, Failure> {
        let first = self.next.max(least);
        let Some(next) = first.checked_add(count.max(1)) else {
            return Err(Failure::new(format!(
                "the cluster numbers of {} are used up; use another --state-dir",
                self.file.display()
            )));
        };
        self.write(next)?;
        Ok(first)
    }

    /// Notes how far a pool of the directory has counted, so that its numbers are not used again when its journal is put
    /// back to an earlier day.
    pub(crate) fn note(self, next: u32) -> Result<(), Failure> {
        if next > self.next { self.write(next) } else { Ok(()) }
    }

    fn write(&self, next: u32) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let new = self.file.with_extension("new");
            let mut file = File::create(&new)?;
            writeln!(file, "{next} {next}")?;
            file.sync_all()?;
            fs::rename(&new, &self.file)?;
            self.file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        };
        write().map_err(|e| Failure::new(format!("cannot write {}: {e}", self.file.display())))
    }
}

/// The number stands there twice, so that a flipped bit does not make it another number.
fn parse(text: &str) -> Option<u32> {
    let (one, other) = text.trim().split_once(' ')?;
    one.parse::<u32>().ok().filter(|n| *n > 0 && one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_once_also_by_many_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Numbers::lock(dir.path()).unwrap().take(1, 1).unwrap(), 1);
        assert_eq!(Numbers::lock(dir.path()).unwrap().take(3, 1).unwrap(), 2);
        assert_eq!(Numbers::lock(dir.path()).unwrap().next(), 5);
        let mut taken: Vec<u32> = std::thread::scope(|scope| {
            let one = || Numbers::lock(dir.path()).unwrap().take(1, 1).unwrap();
            let all: Vec<_> =
                (0..8).map(|_| scope.spawn(move || (0..10).map(|_| one()).collect::<Vec<_>>())).collect();
            all.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        taken.sort_unstable();
        assert_eq!(taken, (5..85).collect::<Vec<_>>());
        assert_eq!(
            Numbers::lock(dir.path()).unwrap().take(1, 1000).unwrap(),
            1000,
            "behind what a pool has used"
        );
        Numbers::lock(dir.path()).unwrap().note(5_000).unwrap();
        Numbers::lock(dir.path()).unwrap().note(7).unwrap();
        assert_eq!(Numbers::lock(dir.path()).unwrap().next(), 5_000);
    }

    #[test]
    fn a_damaged_counter_is_told_and_not_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("runs")).unwrap();
        for damaged in ["", "x", "0", "-1", "99999999999", "17", "17 1", "0 0", "17 17 17"] {
            fs::write(dir.path().join("runs/clusters"), damaged).unwrap();
            let told = Numbers::lock(dir.path()).unwrap_err().message;
            assert!(told.contains("runs/clusters is damaged"), "{damaged:?}: {told}");
        }
        fs::write(dir.path().join("runs/clusters"), format!("{0} {0}\n", u32::MAX)).unwrap();
        assert!(Numbers::lock(dir.path()).unwrap().take(1, 1).unwrap_err().message.contains("used up"));
    }
}
