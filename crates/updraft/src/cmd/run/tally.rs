//! Counting what the events say about a run.

use std::collections::{HashMap, HashSet};

use model::codes::hold;
use model::event::{Exit, Kind};
use model::{JobId, Span};

/// How a run stands.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) total: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) removed: u64,
    /// How often a job that had begun went back to be begun again.
    pub(crate) again: u64,
    running: HashSet<JobId>,
    held: HashMap<JobId, String>,
}

/// Something worth telling.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A job is over that was started at this time, in Unix milliseconds.
    Exited(JobId, Exit, u64),
    /// A job that had begun is begun again.
    Again(JobId, String),
    /// A job cannot go on.
    Held(JobId, String),
    /// A job is over whose disk was full: what it wrote may be cut, so it must run again.
    Cut(JobId, String),
    /// A job was removed.
    Removed(JobId),
}

impl Tally {
    pub(crate) fn of(total: u64) -> Self {
        Self { total, ..Self::default() }
    }

    pub(crate) fn done(&self) -> u64 {
        self.succeeded + self.failed + self.removed
    }

    pub(crate) fn running(&self) -> u64 {
        self.running.len() as u64
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done() >= self.total
    }

    /// Nothing runs, nothing waits, and yet it is not done: only held jobs are left.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.held.is_empty() && self.running.is_empty() && self.done() + self.held() >= self.total
    }

    /// Takes an event in.
    pub(crate) fn take(&mut self, kind: &Kind) -> Vec<Note> {
        let jobs = |cluster: u32, procs: &[Span]| -> Vec<JobId> {
            procs.iter().flat_map(|s| s.procs()).map(|proc| JobId { cluster, proc }).collect()
        };
        match kind {
            Kind::JobStarted(e) => {
                self.running.insert(JobId { cluster: e.cluster, proc: e.proc });
            }
            Kind::JobExited(e) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                self.running.remove(&job);
                if e.exit.success() {
                    self.succeeded += 1
                } else {
                    self.failed += 1
                }
                return vec![Note::Exited(job, e.exit, e.started_ms)];
            }
            Kind::JobsRequeued(e) => {
                let begun = jobs(e.cluster, &e.procs).into_iter().filter(|job| self.running.remove(job));
                let again: Vec<Note> = begun.map(|job| Note::Again(job, e.reason.clone())).collect();
                self.again += again.len() as u64;
                return again;
            }
            Kind::JobsHeld(e) => {
                let held = jobs(e.cluster, &e.procs);
                for job in &held {
                    self.running.remove(job);
                    self.held.insert(*job, e.reason.clone());
                }
                let is_cut = (e.code, e.subcode) == (hold::OUTPUT, hold::NO_ROOM);
                let note = if is_cut { Note::Cut } else { Note::Held };
                return held.into_iter().map(|job| note(job, e.reason.clone())).collect();
            }
            Kind::JobsReleased(e) => {
                for job in jobs(e.cluster, &e.procs) {
                    self.held.remove(&job);
                }
            }
            Kind::JobsRemoved(e) => {
                let removed = jobs(e.cluster, &e.procs);
                for job in &removed {
                    self.running.remove(job);
                    self.held.remove(job);
                    self.removed += 1;
                }
                return removed.into_iter().map(Note::Removed).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use model::event::{JobExited, JobStarted, JobsHeld, JobsReleased};

    use super::*;

    #[test]
    fn a_run_is_stuck_only_when_nothing_can_move() {
        let mut tally = Tally::of(2);
        let span = vec![Span { first: 1, count: 1 }];
        tally.take(&Kind::JobStarted(JobStarted { cluster: 1, proc: 0, ..JobStarted::default() }));
        tally.take(&Kind::JobsHeld(JobsHeld { cluster: 1, procs: span.clone(), ..JobsHeld::default() }));
        assert!(!tally.is_stuck(), "one still runs");
        let exit = Exit { code: Some(0), ..Exit::default() };
        tally.take(&Kind::JobExited(JobExited { cluster: 1, proc: 0, exit, ..JobExited::default() }));
        assert!(tally.is_stuck() && !tally.is_done());
        tally.take(&Kind::JobsReleased(JobsReleased { cluster: 1, procs: span, ..JobsReleased::default() }));
        assert!(!tally.is_stuck());
        assert_eq!((tally.succeeded, tally.running(), tally.held()), (1, 0, 0));
    }
}
