//! What `squeue` and `sacct` say, look after look, to changes: every change once, whoever tells of it first.

use std::collections::HashMap;

use super::{code, status};
use crate::seg::number::whole;
use crate::seg::{Event, State};

/// What `squeue` is asked for; no field holds a person's text, so blanks separate them.
pub const SQUEUE: [&str; 7] = [
    "--noheader",
    "--all",
    "--array",
    "--states=all",
    "-O",
    "JobArrayID:.64,State:.32,SubmitTime:.32,StartTime:.32,EndTime:.32,exit_code:.32",
    "--local",
];
/// What `sacct` is asked for, besides since when or for which jobs.
pub const SACCT: [&str; 6] = [
    "--noheader",
    "--parsable2",
    "--allocations",
    "--allusers",
    "-o",
    "JobID,State,Submit,Start,End,ExitCode",
];
/// With this in the environment as `SLURM_TIME_FORMAT` times are in seconds since 1970.
pub const TIMES: &str = "%s";
/// Looks after which a job that is gone is given up, if nobody says how it ended; the log may say it much later.
const PATIENCE: u64 = 3;
const LOG_PATIENCE: u64 = 600;

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Waits.
    Pending,
    /// Runs.
    Active,
    /// Stands still.
    Suspended,
    /// Ended so.
    Ended(State),
}

/// What one line of any of the sources says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `job` or `array_task`.
    pub id: Vec<u8>,
    /// How far it is.
    pub status: Status,
    /// When it was submitted.
    pub submit: Option<i64>,
    /// When it was started, if it was.
    pub start: Option<i64>,
    /// When it ended, if it did.
    pub end: Option<i64>,
    /// The end's code.
    pub code: i32,
}

/// A change to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    stamp: i64,
    id: Vec<u8>,
    state: State,
    code: i32,
}

impl Change {
    /// As the rest of the generator has it.
    pub fn event(&self) -> Event<'_> {
        Event { stamp: self.stamp, id: &self.id, state: self.state, code: self.code }
    }

    /// When it was.
    pub fn stamp(&self) -> i64 {
        self.stamp
    }
}

/// One line of `squeue` or `sacct`, whose fields are in the same order.
fn row<'a>(mut fields: impl Iterator<Item = &'a [u8]>) -> Option<Row> {
    let id = fields.next().filter(|id| !id.is_empty() && !id.contains(&b'['))?.to_vec();
    // `CANCELLED by 1000`
    let status = status(fields.next()?.split(|b| *b == b' ').next()?)?;
    // `N/A`, `NONE` and `Unknown` are no numbers.
    let mut time = || fields.next().and_then(whole).filter(|seconds| *seconds > 0);
    let (submit, start, end) = (time(), time(), time());
    let code = fields.next().map_or(0, |text| code(text, status));
    Some(Row { id, status, submit, start, end, code })
}

/// The lines of `squeue`.
pub fn squeue(text: &[u8]) -> impl Iterator<Item = Row> + '_ {
    text.split(|b| *b == b'\n')
        .filter_map(|line| row(line.split(|b| *b == b' ').filter(|field| !field.is_empty())))
}

/// The lines of `sacct`.
pub fn sacct(text: &[u8]) -> impl Iterator<Item = Row> + '_ {
    text.split(|b| *b == b'\n').filter_map(|line| row(line.split(|b| *b == b'|')))
}

impl Row {
    /// Did it run at all? One that was cancelled while it waited has the time of its end as its start.
    fn ran(&self) -> Option<i64> {
        let start = self.start?;
        match self.status {
            Status::Pending => None,
            Status::Active | Status::Suspended | Status::Ended(State::Done) => Some(start),
            Status::Ended(_) => self.end.is_none_or(|end| start < end || self.code != 0).then_some(start),
        }
    }
}

/// What was told of a job.
#[derive(Debug, Default)]
struct Job {
    start: Option<i64>,
    end: Option<i64>,
    is_suspended: bool,
    /// The last look in which it was there.
    seen: u64,
}

/// What was told of all jobs that still matter.
#[derive(Debug)]
pub struct Books {
    from: i64,
    all_states: bool,
    jobs: HashMap<Vec<u8>, Job>,
    looks: u64,
    now: i64,
}

impl Books {
    /// Empty ones; changes before `from` are not told.
    pub fn new(from: i64, all_states: bool) -> Self {
        Self { from, all_states, jobs: HashMap::new(), looks: 0, now: from }
    }

    /// Takes one row; what is new goes to `told`. Ends only if this source is the one that tells them.
    pub fn see(&mut self, row: &Row, ends: bool, told: &mut Vec<Change>) {
        let looks = self.looks;
        let from = self.from;
        let mut tell = |stamp: i64, state: State, code: i32| {
            if stamp >= from {
                told.push(Change { stamp, id: row.id.clone(), state, code });
            }
        };
        let is_new = !self.jobs.contains_key(&row.id);
        let job = self.jobs.entry(row.id.clone()).or_default();
        job.seen = looks;
        if is_new && let Some(submit) = row.submit {
            tell(submit, State::Pending, 0);
        }
        // A later start than the one that was told: it runs for the first time, or again.
        if let Some(start) = row.ran().filter(|start| job.start.is_none_or(|told| *start > told)) {
            job.start = Some(start);
            tell(start, State::Active, 0);
        }
        if let (Status::Ended(state), Some(end)) = (row.status, row.end)
            && ends
            && job.end.is_none_or(|told| end > told)
        {
            job.end = Some(end);
            tell(end, state, row.code);
        }
        let is_suspended = row.status == Status::Suspended;
        let is_resumed = job.is_suspended && row.status == Status::Active;
        if self.all_states && (is_resumed || is_suspended && !job.is_suspended) {
            // No command says since when: it counts from the look that found it.
            tell(self.now, if is_suspended { State::Suspended } else { State::Active }, 0);
        }
        job.is_suspended = is_suspended;
    }

    /// A whole look at the queue, made `now`; returns the jobs that are gone although no end of them was told.
    pub fn look(
        &mut self,
        rows: impl Iterator<Item = Row>,
        now: i64,
        ends: bool,
        told: &mut Vec<Change>,
    ) -> Vec<Vec<u8>> {
        self.looks += 1;
        self.now = now;
        for row in rows {
            self.see(&row, ends, told);
        }
        let looks = self.looks;
        // Ended jobs are remembered while the queue shows them, and a little longer for the log that comes late.
        self.jobs.retain(|_, job| job.end.is_none() || job.seen + 60 > looks);
        let gone = self.jobs.iter().filter(|(_, job)| job.end.is_none() && job.seen < looks);
        let mut gone: Vec<_> = gone.map(|(id, _)| id.clone()).collect();
        gone.sort_unstable();
        gone
    }

    /// Gives up jobs that are gone for good, and returns them. `ends` as in [`Books::see`]: else a log tells them.
    pub fn give_up(&mut self, gone: &[Vec<u8>], ends: bool) -> Vec<Vec<u8>> {
        let looks = self.looks;
        let patience = if ends { PATIENCE } else { LOG_PATIENCE };
        let is_late = |job: &Job| job.end.is_none() && job.seen + patience <= looks;
        let lost: Vec<_> =
            gone.iter().filter(|id| self.jobs.get(*id).is_some_and(is_late)).cloned().collect();
        for id in &lost {
            self.jobs.remove(id);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(books: &mut Books, text: &str, ends: bool) -> (Vec<String>, usize) {
        let mut told = Vec::new();
        let gone = books.look(squeue(text.as_bytes()), 25, ends, &mut told);
        let line = |change: &Change| {
            let mut line = Vec::new();
            change.event().write_line(&mut line);
            String::from_utf8(line).unwrap().trim_end().to_owned()
        };
        (told.iter().map(line).collect(), gone.len())
    }

    #[test]
    fn every_change_once() {
        let mut books = Books::new(100, false);
        let (told, _) = changes(&mut books, "  7 PENDING 100 N/A N/A 0\n 8_1 RUNNING 90 99 NONE 0\n", true);
        assert_eq!(told, ["001;100;7;1;0"]);
        let (told, _) = changes(&mut books, "7 RUNNING 100 105 NONE 0\n8_1 COMPLETED 90 99 110 0\n", true);
        assert_eq!(told, ["001;105;7;2;0", "001;110;8_1;8;0"]);
        let (told, _) = changes(&mut books, "7 RUNNING 100 105 NONE 0\n8_1 COMPLETED 90 99 110 0\n", true);
        assert_eq!(told, [""; 0]);
        // Ended and begun anew between two looks, then failed with 3; and one that was never seen before its end.
        let (told, gone) = changes(&mut books, "7 FAILED 100 120 130 768\n9 FAILED 121 122 123 9\n", true);
        assert_eq!(
            told,
            ["001;120;7;2;0", "001;130;7;4;3", "001;121;9;1;0", "001;122;9;2;0", "001;123;9;4;137"]
        );
        assert_eq!(gone, 0);
    }

    #[test]
    fn cancelled_while_it_waited_never_ran() {
        let mut books = Books::new(1, false);
        let (told, _) = changes(&mut books, "3 CANCELLED 10 20 20 0\n", true);
        assert_eq!(told, ["001;10;3;1;0", "001;20;3;4;0"]);
        // A state that is none of ours changes nothing.
        assert_eq!(
            changes(&mut books, "4 NEWSTATE 10 20 20 0\n2_[1-3] PENDING 10 N/A N/A 0\n\n", true).0,
            [""; 0]
        );
    }

    #[test]
    fn the_log_tells_the_ends_where_there_is_one() {
        let mut books = Books::new(1, true);
        let (told, _) = changes(&mut books, "7 SUSPENDED 10 20 NONE 0\n", false);
        assert_eq!(told, ["001;10;7;1;0", "001;20;7;2;0", "001;25;7;16;0"]);
        assert_eq!(changes(&mut books, "7 RUNNING 10 20 NONE 0\n", false).0, ["001;25;7;2;0"]);
        assert_eq!(changes(&mut books, "7 COMPLETED 10 20 30 0\n", false).0, [""; 0]);
        let mut told = Vec::new();
        let end =
            sacct(b"7|CANCELLED by 0|10|20|31|0:15\n2_[1-3]|PENDING|1|Unknown|Unknown|0:0\n").next().unwrap();
        books.see(&end, true, &mut told);
        assert_eq!((told.len(), told[0].stamp(), told[0].event().code), (1, 31, 143));
    }

    #[test]
    fn a_job_that_is_gone_is_asked_about_and_given_up() {
        let mut books = Books::new(1, false);
        changes(&mut books, "7 RUNNING 10 20 NONE 0\n", true);
        let gone = vec![b"7".to_vec()];
        for look in 1..=3 {
            assert_eq!(changes(&mut books, "", true).1, 1);
            assert_eq!(books.give_up(&gone, true).len(), usize::from(look == 3));
        }
        assert_eq!(changes(&mut books, "", true).1, 0);
    }
}
