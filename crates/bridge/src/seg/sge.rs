//! Grid Engine: the reporting file and the accounting file, both with fields between colons.
//!
//! After `reporting(5)` and `accounting(5)` and what the qmaster's source writes. Reporting: `new_job` is pending, `job_log`
//! with `delivered` active and with `deleted` failed, `acct` the end. The accounting file is the tail of an `acct` record
//! alone and knows only ends.

use super::number::whole;
use super::{Event, Legible, LineFormat, Sink, State};

/// Fields of an accounting record, from 0.
const JOB: usize = 5;
const END: usize = 10;
const FAILED: usize = 11;
const EXIT: usize = 12;
const TASK: usize = 35;
const PE_TASK: usize = 41;
/// The exit status of a record that is written at midnight for a job that still runs, as a signed and as an unsigned number.
const STILL_RUNNING: [&[u8]; 2] = [b"-1", b"4294967295"];

/// Who deletes on behalf of nobody, by all the names that versions have for them.
const SYSTEM: [&[u8]; 5] = [b"scheduler", b"schedd", b"execution daemon", b"execd", b"qmaster"];

/// Stamps of newer versions are in milliseconds or microseconds; no second has so many digits before the year 5138.
fn seconds(text: &[u8]) -> Option<i64> {
    whole(text).map(|n| match n {
        ..100_000_000_000 => n,
        100_000_000_000..100_000_000_000_000 => n / 1_000,
        _ => n / 1_000_000,
    })
}

/// Is this the record of one task of a parallel job? Its end is not the job's.
fn is_part(pe_task: Option<&&[u8]>) -> bool {
    pe_task.is_some_and(|id| !id.is_empty() && !id.eq_ignore_ascii_case(b"none"))
}

/// Reporting and accounting files.
#[derive(Debug)]
pub struct Reporting {
    from: i64,
    all_states: bool,
    id: Vec<u8>,
    /// The time of the newest record: the next is not older.
    newest: i64,
}

impl Reporting {
    /// Events before `from` are not told; with `all_states` suspending and resuming are.
    pub fn new(from: i64, all_states: bool) -> Self {
        Self { from, all_states, id: Vec::new(), newest: 0 }
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
        // `job.0` where there is no task, as the original's reader has it from its adapter; new jobs have -1 there.
        self.id.push(b'.');
        self.id.extend_from_slice(task.filter(|t| whole(t).is_some_and(|n| n > 0)).unwrap_or(b"0"));
        sink.event(&Event { stamp, id: &self.id, state, code });
    }

    /// An end; `written` is when its record was, if that is known.
    fn account(&mut self, fields: &[&[u8]], written: Option<i64>, sink: &mut dyn Sink) -> Legible {
        let get = |n: usize| fields.get(n).copied();
        let number = |n: usize| get(n).and_then(whole).and_then(|n| i32::try_from(n).ok());
        if is_part(fields.get(PE_TASK)) || get(EXIT).is_some_and(|exit| STILL_RUNNING.contains(&exit)) {
            return Legible::Yes;
        }
        let (Some(job), Some(failed), Some(exit)) = (get(JOB), number(FAILED), number(EXIT)) else {
            return Legible::No;
        };
        // A job that never started has no end; then the accounting file does not say when, but not before the last one.
        let ended = get(END).and_then(seconds).filter(|end| *end > 0);
        let stamp = written.or(ended).unwrap_or(self.newest);
        self.newest = self.newest.max(stamp);
        let (state, code) = match failed {
            0 => (State::Done, exit),
            // Migrated or rescheduled: it will run again.
            24 | 25 => (State::Pending, 0),
            reason => (State::Failed, reason),
        };
        self.tell(sink, stamp, job, get(TASK), state, code);
        Legible::Yes
    }

    fn log(&mut self, fields: &[&[u8]], stamp: i64, sink: &mut dyn Sink) -> Legible {
        let [_, _, _, event, job, task, pe_task, _, user, .., message] = fields else { return Legible::No };
        if is_part(Some(pe_task)) {
            return Legible::Yes;
        }
        let state = match *event {
            b"delivered" => State::Active,
            // The system also deletes every job whose end was told by an `acct` record just before; only jobs that were to
            // run at once or never have none.
            b"deleted" if message.starts_with(b"immediate job") => State::Failed,
            b"deleted" if !SYSTEM.contains(user) => State::Failed,
            b"suspended" if self.all_states => State::Suspended,
            b"unsuspended" if self.all_states => State::Active,
            _ => return Legible::Yes,
        };
        self.tell(sink, stamp, job, Some(task), state, 0);
        Legible::Yes
    }
}

impl LineFormat for Reporting {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        if line.first().is_none_or(|b| *b == b'#') {
            return Legible::Yes;
        }
        // No record has more; what is behind is not looked at.
        let fields: Vec<&[u8]> = line.splitn(64, |b| *b == b':').collect();
        let Some(written) = fields.first().and_then(|first| seconds(first)) else {
            return self.account(&fields, None, sink);
        };
        match fields.get(1) {
            Some(&b"new_job") => {
                let [_, _, _, job, task, ..] = fields[..] else { return Legible::No };
                self.tell(sink, written, job, Some(task), State::Pending, 0);
                Legible::Yes
            }
            Some(&b"job_log") => self.log(&fields, written, sink),
            Some(&b"acct") => self.account(&fields[2..], Some(written), sink),
            // A kind that tells nothing of jobs.
            Some(_) => Legible::Yes,
            None => Legible::No,
        }
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        let mut fields = line.split(|b| *b == b':');
        seconds(fields.next()?).or_else(|| seconds(fields.nth(END - 1)?)).filter(|s| *s > 0)
    }
}
