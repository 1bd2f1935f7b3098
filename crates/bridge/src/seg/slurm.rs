//! Slurm: the job completion log (`jobcomp/filetxt`), one line of `Key=Value` for every job that ended, and in [`live`]
//! what the commands `squeue` and `sacct` say of jobs that have not.

pub mod live;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;
use memchr::memmem;

use self::live::{Books, Row, Status};
use super::clock::{Clock, iso};
use super::number::int;
use super::passes::{InOrder, Memory, Moment, Order};
use super::{Event, Legible, LineFormat, Sink, State};

/// Job completion logs.
#[derive(Debug)]
pub struct Completion {
    clock: Clock,
    order: Order<Row>,
    from: i64,
    /// Where the commands are asked too: what they told is known there.
    books: Option<Arc<Mutex<Books>>>,
}

impl Completion {
    /// Logs of a host in this zone; events before `from` are not told.
    pub fn new(zone: TimeZone, from: i64) -> Self {
        Self { clock: Clock::new(zone.clone()), order: Order::new(zone, from), from, books: None }
    }

    /// The same beside the commands: starts that were too short to be seen are told from the log.
    #[must_use]
    pub fn beside(mut self, books: Arc<Mutex<Books>>) -> Self {
        self.books = Some(books);
        self
    }

    /// What times of a doubled hour are taken for is remembered there.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Self {
        self.order.remember_in(memory);
        self
    }

    /// What a line says, and when its job ended, which is not in the row yet. Nothing if it is no such record.
    fn row(&mut self, line: &[u8]) -> Option<(Moment, Option<Row>)> {
        let rest = line.strip_prefix(b"JobId=")?;
        let (head, tail) = parts(line)?;
        let mut time = |text: Option<&[u8]>, least: i64| self.clock.other(iso(text?)?, least);
        let submit = time(last(tail, b" SubmitTime="), i64::MIN);
        let start = time(last(head, b" StartTime="), submit.unwrap_or(i64::MIN));
        // No job ends before it began: in a doubled hour that may tell which pass it is.
        let least = start.or(submit).unwrap_or(i64::MIN);
        let end = self.order.line_after(iso(last(head, b" EndTime=")?)?, least)?;
        let word = last(head, b" JobState=")?;
        let Some(status) = status(word).filter(|status| matches!(status, Status::Ended(_))) else {
            return Some((end, None));
        };
        let id = match (last(tail, b" ArrayJobId="), last(tail, b" ArrayTaskId=")) {
            (Some(array), Some(task)) => [array, b"_", task].concat(),
            _ => rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())].to_vec(),
        };
        let code = last(tail, b" ExitCode=").map_or(0, |text| code(text, status));
        Some((end, Some(Row { id, status, submit, start, end: None, code })))
    }

    /// Tells of a job that ended then.
    fn tell(&mut self, end: i64, mut row: Row, sink: &mut dyn Sink) {
        row.end = Some(end);
        if let Some(books) = &self.books {
            let mut told = Vec::new();
            books.lock().unwrap_or_else(PoisonError::into_inner).see(&row, true, &mut told);
            for change in &told {
                sink.event(&change.event());
            }
        } else if let Status::Ended(state) = row.status
            && end >= self.from
        {
            sink.event(&Event { stamp: end, id: &row.id, state, code: row.code });
        }
    }

    fn tell_ready(&mut self, sink: &mut dyn Sink) {
        if !self.order.is_ready() {
            return;
        }
        let (ready, notes) = self.order.take_ready();
        for note in &notes {
            sink.note(note);
        }
        for (end, row) in ready {
            self.tell(end, row, sink);
        }
    }
}

/// The word behind the last ` key=`.
fn last<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let start = memmem::rfind(text, key)? + key.len();
    let rest = &text[start..];
    Some(&rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())])
}

/// What may hold a person's text (the name before, the directory behind) is cut off, so that a job called
/// `x JobState=FAILED` stays what it is.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let middle = memmem::rfind(line, b" WorkDir=").unwrap_or(line.len());
    let head = &line[..middle];
    Some((&head[memmem::rfind(head, b" JobState=")?..], &line[middle..]))
}

/// What a state of Slurm means.
pub fn status(word: &[u8]) -> Option<Status> {
    Some(match word {
        b"PENDING" | b"CONFIGURING" => Status::Pending,
        b"RUNNING" | b"COMPLETING" => Status::Active,
        b"SUSPENDED" => Status::Suspended,
        b"COMPLETED" | b"TIMEOUT" => Status::Ended(State::Done),
        b"FAILED" | b"CANCELLED" | b"NODE_FAIL" | b"LAUNCH_FAILED" | b"OUT_OF_MEMORY" | b"PREEMPTED"
        | b"DEADLINE" | b"BOOT_FAIL" | b"RECONFIG_FAIL" | b"REVOKED" => Status::Ended(State::Failed),
        _ => return None,
    })
}

/// `exit:signal`, or both in one number as `wait` gives them, to one code. The signal by which a time limit was kept is
/// nobody's result.
fn code(text: &[u8], status: Status) -> i32 {
    let Some((number, rest)) = int(text) else { return 0 };
    let (exit, signal) = match rest.strip_prefix(b":") {
        Some(signal) => (number, int(signal).map_or(0, |(signal, _)| signal)),
        None => (number >> 8 & 0xff, number & 0x7f),
    };
    if signal != 0 && status == Status::Ended(State::Failed) { signal.saturating_add(128) } else { exit }
}

impl LineFormat for Completion {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        let read = self.row(line);
        self.tell_ready(sink);
        let Some((moment, row)) = read else {
            return if line.is_empty() { Legible::Yes } else { Legible::No };
        };
        if let Some((end, row)) = row.and_then(|row| self.order.tell(moment, row)) {
            self.tell(end, row, sink);
        }
        Legible::Yes
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        let (head, _) = parts(line)?;
        self.clock.earliest(iso(last(head, b" EndTime=")?)?)
    }

    fn order(&self) -> Option<&dyn InOrder> {
        Some(&self.order)
    }

    fn order_mut(&mut self) -> Option<&mut dyn InOrder> {
        Some(&mut self.order)
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.order.settle();
        self.tell_ready(sink);
    }
}
