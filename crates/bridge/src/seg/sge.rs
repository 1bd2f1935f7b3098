//! Grid Engine: the reporting file and the accounting file, both with fields between colons.
//!
//! Reporting: `new_job` is pending, `job_log` with `delivered` active and with `deleted` failed, `acct` the end. The
//! accounting file is the tail of an `acct` record alone and knows only ends.

use super::number::whole;
use super::{Event, LineFormat, Sink, State};

/// Fields of an accounting record, from 0.
const JOB: usize = 5;
const END: usize = 10;
const FAILED: usize = 11;
const EXIT: usize = 12;
const TASK: usize = 35;

/// Stamps of the newer versions are in milliseconds; no second has so many digits before the year 5138.
fn seconds(text: &[u8]) -> Option<i64> {
    whole(text).map(|n| if n > 99_999_999_999 { n / 1_000 } else { n })
}

/// Reporting and accounting files.
#[derive(Debug)]
pub struct Reporting {
    from: i64,
    all_states: bool,
    id: Vec<u8>,
}

impl Reporting {
    /// Events before `from` are not told; with `all_states` suspending and resuming are.
    pub fn new(from: i64, all_states: bool) -> Self {
        Self { from, all_states, id: Vec::new() }
    }

    fn tell(
        &mut self,
        sink: &mut dyn Sink,
        stamp: i64,
        job: &[u8],
        task: Option<&[u8]>,
        state: State,
        code: i32,
    ) {
        if stamp < self.from || job.is_empty() {
            return;
        }
        self.id.clear();
        self.id.extend_from_slice(job);
        if let Some(task) = task.filter(|t| whole(t).is_some_and(|n| n > 0)) {
            self.id.push(b'.');
            self.id.extend_from_slice(task);
        }
        sink.event(&Event { stamp, id: &self.id, state, code });
    }

    fn account(&mut self, fields: &[&[u8]], sink: &mut dyn Sink) {
        let get = |n: usize| fields.get(n).copied();
        let number = |n: usize| get(n).and_then(whole).and_then(|n| i32::try_from(n).ok());
        let (Some(job), Some(failed), Some(exit)) = (get(JOB), number(FAILED), number(EXIT)) else { return };
        // A job that never started has no end either; the record's own time is not in the accounting file.
        let Some(end) = get(END).and_then(seconds).filter(|end| *end > 0) else { return };
        let (state, code) = match failed {
            0 => (State::Done, exit),
            // Migrated or rescheduled: it will run again.
            24 | 25 => (State::Pending, 0),
            // Ran, and was ended by a signal.
            100 => (State::Failed, exit),
            reason => (State::Failed, reason),
        };
        self.tell(sink, end, job, get(TASK), state, code);
    }

    fn log(&mut self, fields: &[&[u8]], sink: &mut dyn Sink) {
        let [_, _, time, event, job, task, _, _, user, ..] = fields else { return };
        let Some(stamp) = seconds(time) else { return };
        let state = match *event {
            b"delivered" => State::Active,
            // The scheduler also deletes the record of every job that ended well.
            b"deleted" if *user != b"scheduler" => State::Failed,
            b"suspended" if self.all_states => State::Suspended,
            b"unsuspended" if self.all_states => State::Active,
            _ => return,
        };
        self.tell(sink, stamp, job, Some(task), state, 0);
    }
}

impl LineFormat for Reporting {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if line.first().is_none_or(|b| *b == b'#') {
            return;
        }
        // No record has more; what is behind is not looked at.
        let fields: Vec<&[u8]> = line.splitn(64, |b| *b == b':').collect();
        let is_report = fields.first().is_some_and(|f| seconds(f).is_some());
        match fields.get(1) {
            Some(&b"new_job") if is_report => {
                let [_, _, time, job, task, ..] = fields[..] else { return };
                if let Some(stamp) = seconds(time) {
                    self.tell(sink, stamp, job, Some(task), State::Pending, 0);
                }
            }
            Some(&b"job_log") if is_report => self.log(&fields, sink),
            Some(&b"acct") if is_report => self.account(&fields[2..], sink),
            _ if is_report => {}
            _ => self.account(&fields, sink),
        }
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        let mut fields = line.split(|b| *b == b':');
        seconds(fields.next()?).or_else(|| seconds(fields.nth(END - 1)?)).filter(|s| *s > 0)
    }
}
