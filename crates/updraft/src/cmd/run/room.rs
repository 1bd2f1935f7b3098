//! Room on the disk of a run's books and outputs: when there was too little of it, and which jobs ran meanwhile.
//!
//! A job that does not look at its own errors is cut short in silence when the disk is full, and succeeds. Its machine sees that and
//! holds it (decision 075), and it runs again when there is room (`cut`). On file systems of other machines it does not look: there
//! every job that ran while there was no room is under suspicion, by the times that its machine gave, as its end may be told much later.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use model::JobId;

use crate::table;

/// How often it is looked at.
pub(crate) const INTERVAL: Duration = Duration::from_millis(300);
/// With less than this the disk counts as full: a page or two stay free where nobody can use them.
const LEAST_BYTES: u64 = 256 << 10;
/// With this there is room again; more than the least, or a run would stop and go on all the time.
const AGAIN_BYTES: u64 = 1 << 20;
/// Suspects that are named; more are only counted.
const NAMED: usize = 10;

/// Is there room in a directory, of which is known whether it was full? One that cannot be asked has some.
pub(crate) fn is_there(dir: &Path, was_full: bool) -> bool {
    let Ok(about) = rustix::fs::statvfs(dir) else { return true };
    let is_root = rustix::process::geteuid().is_root();
    let blocks = if is_root { about.f_bfree } else { about.f_bavail };
    let wanted = if was_full { AGAIN_BYTES } else { LEAST_BYTES };
    let has_blocks = about.f_blocks == 0 || blocks.saturating_mul(about.f_frsize) >= wanted;
    has_blocks && (about.f_files == 0 || about.f_ffree > 0)
}

/// File systems that jobs' machines look at themselves, by the numbers that the kernel gives them: ext, tmpfs, overlay, XFS, btrfs, F2FS, ZFS.
const LOOKED_AT: [i64; 7] =
    [0xEF53, 0x0102_1994, 0x794C_7630, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1];

/// Does only who writes there know of a full disk?
pub(crate) fn is_unseen(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|about| !LOOKED_AT.contains(&about.f_type))
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is no room any more.
    Filled,
    /// There is room again.
    Freed,
}

/// Times without room, in Unix milliseconds: from the last look that found some to the next one that did.
#[derive(Debug, Default)]
pub(crate) struct Room {
    without: Vec<(u64, u64)>,
    last_with: u64,
    is_full: bool,
    /// Jobs that ended since the last look, with their times: the next one may find that there was no room.
    recent: Vec<(JobId, u64, u64)>,
    suspects: BTreeSet<JobId>,
}

impl Room {
    /// Beginning now, with what is known of earlier times.
    pub(crate) fn new(now_ms: u64, without: Vec<(u64, u64)>) -> Self {
        Self { without, last_with: now_ms, ..Self::default() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn without(&self) -> &[(u64, u64)] {
        &self.without
    }

    /// Was there no room at some time since then?
    pub(crate) fn was_full_since(&self, from_ms: u64) -> bool {
        self.without.last().is_some_and(|(_, to)| *to >= from_ms)
    }

    /// Takes a look in.
    pub(crate) fn look(&mut self, now_ms: u64, is_there: bool) -> Option<Change> {
        let was_full = std::mem::replace(&mut self.is_full, !is_there);
        match (was_full, is_there) {
            (false, true) => {}
            (false, false) => self.without.push((self.last_with, now_ms)),
            (true, _) => {
                if let Some(last) = self.without.last_mut() {
                    last.1 = now_ms;
                }
            }
        }
        for (job, started_ms, ended_ms) in std::mem::take(&mut self.recent) {
            self.suspect(job, started_ms, ended_ms);
        }
        if is_there {
            self.last_with = now_ms;
        }
        match (was_full, is_there) {
            (false, false) => Some(Change::Filled),
            (true, true) => Some(Change::Freed),
            _ => None,
        }
    }

    /// Takes in that a job has ended which ran at that time, and what it printed is on this disk.
    pub(crate) fn job_ended(&mut self, job: JobId, started_ms: u64, ended_ms: u64) {
        self.suspect(job, started_ms, ended_ms);
        self.recent.push((job, started_ms, ended_ms));
    }

    fn suspect(&mut self, job: JobId, started_ms: u64, ended_ms: u64) {
        if self.without.iter().any(|(from, to)| ended_ms >= *from && started_ms <= *to) {
            self.suspects.insert(job);
        }
    }

    /// What is to be said of the suspects.
    pub(crate) fn words(&self, dir: &Path) -> Option<String> {
        if self.without.is_empty() {
            return None;
        }
        let full = format!("the disk under {} was full", dir.display());
        if self.suspects.is_empty() {
            return Some(format!("{full}; no job ended that printed meanwhile"));
        }
        let names: Vec<String> = self.suspects.iter().take(NAMED).map(JobId::to_string).collect();
        let more = self.suspects.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let jobs = table::count(self.suspects.len() as u64, "job");
        Some(format!("{full}, and what {jobs} printed may be cut: {}{more}", names.join(", ")))
    }

    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(proc: u32) -> JobId {
        JobId { cluster: 1, proc }
    }

    #[test]
    fn every_job_that_ran_while_there_was_no_room_is_a_suspect_and_no_other() {
        let mut room = Room::new(0, Vec::new());
        assert_eq!(room.look(300, true), None);
        // Nobody knows when after 300 it became full.
        room.job_ended(job(0), 0, 350);
        assert!(!room.has_suspects());
        assert_eq!(room.look(600, false), Some(Change::Filled));
        room.job_ended(job(1), 100, 400);
        room.job_ended(job(2), 100, 299);
        assert_eq!(room.look(900, false), None);
        // Ended after the last look, and it is full still.
        room.job_ended(job(3), 950, 1_000);
        assert_eq!(room.look(1_200, true), Some(Change::Freed));
        // Told late: ended meanwhile, ran on, began afterwards.
        room.job_ended(job(4), 700, 800);
        room.job_ended(job(5), 700, 5_000);
        room.job_ended(job(6), 1_201, 5_000);
        assert_eq!(room.look(1_500, true), None);
        let words = room.words(Path::new("/state")).unwrap();
        assert!(words.ends_with("what 5 jobs printed may be cut: 1.0, 1.1, 1.3, 1.4, 1.5"), "{words}");
        assert_eq!(room.without(), [(300, 1_200)]);
        assert!(room.was_full_since(1_200) && !room.was_full_since(1_201));
    }

    #[test]
    fn ten_suspects_are_named_and_a_run_that_is_taken_up_knows_the_earlier_ones() {
        let mut room = Room::new(10_000, vec![(300, 1_200)]);
        assert_eq!(room.look(10_300, true), None);
        for proc in 0..12 {
            room.job_ended(job(proc), 0, 500);
        }
        room.job_ended(job(12), 10_000, 10_100);
        let words = room.words(Path::new("/state")).unwrap();
        assert!(words.contains("what 12 jobs printed") && words.ends_with("1.9 and 2 more"), "{words}");
        assert_eq!(Room::new(0, Vec::new()).words(Path::new("/")), None);
    }
}
