//! Jobs of a run that ended while the disk of their output was full: their machines had them held, and they run again when there is room.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use model::JobId;

/// A job that finds its disk full so often is left to the user: most likely it is who fills the disk.
const TRIES: u32 = 3;
/// Released by one request.
const AT_ONCE: usize = 1_000;

/// Who waits for room, and since when.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    waiting: BTreeSet<JobId>,
    tries: HashMap<JobId, u32>,
    since: Option<Instant>,
}

impl Cut {
    /// Takes in that a job was held for it. False when it was tried often enough.
    pub(crate) fn note(&mut self, job: JobId) -> bool {
        let tries = self.tries.entry(job).or_default();
        *tries += 1;
        if *tries > TRIES {
            return false;
        }
        self.since.get_or_insert_with(Instant::now);
        self.waiting.insert(job);
        true
    }

    /// Is there any that may yet run again, and has waited for less than this?
    pub(crate) fn has_hope(&self, patience: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() < patience)
    }

    /// Those of the first that wait for which there is room.
    pub(crate) fn ready(&self, has_room: impl Fn(JobId) -> bool) -> Vec<JobId> {
        self.waiting.iter().copied().take(AT_ONCE).filter(|job| has_room(*job)).collect()
    }

    /// They were released.
    pub(crate) fn released(&mut self, jobs: &[JobId]) {
        for job in jobs {
            self.waiting.remove(job);
        }
        self.since = (!self.waiting.is_empty()).then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_again_when_there_is_room_and_three_times_at_most() {
        let job = |proc| JobId { cluster: 1, proc };
        let patience = Duration::from_secs(60);
        let mut cut = Cut::default();
        assert!(!cut.has_hope(patience));
        assert!(cut.note(job(0)) && cut.note(job(1)));
        assert!(cut.has_hope(patience) && !cut.has_hope(Duration::ZERO));
        assert_eq!(cut.ready(|j| j.proc == 1), [job(1)]);
        cut.released(&[job(1)]);
        assert_eq!(cut.ready(|_| true), [job(0)], "who was released does not wait");
        cut.released(&[job(0)]);
        assert!(!cut.has_hope(patience));
        assert!(cut.note(job(0)));
        cut.released(&[job(0)]);
        assert!(cut.note(job(0)));
        cut.released(&[job(0)]);
        assert!(!cut.note(job(0)), "it fills the disk itself");
        assert!(cut.ready(|_| true).is_empty() && !cut.has_hope(patience));
    }
}
