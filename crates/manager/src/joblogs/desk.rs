//! One user's lines on their way into files: nothing lost, nothing twice, whoever is killed when.
//!
//! Before lines are appended, the user's record says which: everything up to `written` is in its log, except that a log under
//! `logs` has its lines only up to a key of its own, and was so long before the next ones were appended. A new manager
//! reads the journal from `from`, comes to the same lines, and looks behind that length which of them are there. That is
//! one small file per batch, whatever the number of logs, and other writers may append to the same logs meanwhile.
//!
//! The desk touches no file: `scribe` does what it says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use starter::logbook::{FromScribe, Open};

use super::record::{Behind, Mark, Record};
use super::story::{About, Key, Line};

/// Logs written together.
const TOGETHER: usize = 256;
/// Lines and bytes of one log, and bytes of all logs, that are written together.
const LINES_OF_LOG: usize = 4_096;
const BYTES_OF_LOG: usize = 1 << 20;
const BYTES_TOGETHER: usize = 4 << 20;
/// Lines and bytes that wait for a user's logs that cannot be written; beyond that the log with most of them is given up.
const BACKLOG: usize = 100_000;
const BACKLOG_BYTES: usize = 64 << 20;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// A user's logs that cannot be written; beyond that some are given up.
const LOGS_BEHIND: usize = 50_000;
/// Logs of a user of which it is told that they cannot be written.
const TROUBLES: usize = 100;
/// Logs of a user that could not be written, of which each flush tells one by one.
const FAILURES_TOLD: usize = 10;
/// Bytes of what is said about a log that cannot be written.
const WHY_BYTES: usize = 300;

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(Key, String)>,
    bytes: usize,
    base: u64,
    /// What the newest line is about.
    about: Option<About>,
    /// The file as it was before lines were appended of which nobody knows whether they are there.
    doubt: Option<Mark>,
    /// The file as it was before the lines that are being appended.
    mark: Option<Mark>,
    /// The first line says that so many before it were given up.
    given_up: usize,
    retry_at: Option<Instant>,
    delay: Duration,
    trouble: String,
}

/// A log that cannot be written, for whom it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) path: Arc<str>,
    pub(crate) why: String,
    pub(crate) waiting: usize,
    pub(crate) given_up: usize,
}

/// What goes on with a log of a round.
#[derive(Debug)]
struct Turn {
    log: Arc<str>,
    /// Lines that were sent.
    sent: usize,
    /// It is to grow.
    grows: bool,
}

/// All lines of a user that are not written yet.
#[derive(Debug)]
pub(super) struct Desk {
    owner: Arc<str>,
    old: BTreeMap<Arc<str>, Behind>,
    old_written: Key,
    queues: BTreeMap<Arc<str>, Queue>,
    round: Vec<Turn>,
    waiting: usize,
    bytes: usize,
    seen: Key,
    from: u64,
    /// Why none of this user's logs is written.
    refused: Option<String>,
    /// The record on disk announces lines; they are written by now, or wait for a retry.
    announced: bool,
    /// Logs that could not be written in this flush.
    failures: usize,
}

impl Desk {
    pub(super) fn new(owner: Arc<str>, old: Record) -> Self {
        Self {
            owner,
            // Whatever the old record announced is settled before the first rest.
            announced: !old.logs.is_empty(),
            old_written: old.written,
            from: old.from,
            old: old.logs.into_iter().map(|b| (Arc::from(&*b.path), b)).collect(),
            queues: BTreeMap::new(),
            round: Vec::new(),
            waiting: 0,
            bytes: 0,
            seen: (0, 0),
            refused: None,
            failures: 0,
        }
    }

    /// A line to be written, unless an earlier manager has.
    pub(super) fn put(&mut self, line: Line) {
        self.seen = line.key;
        let old = self.old.get_mut(&line.log);
        let (written, doubt) = old.as_ref().map_or((self.old_written, None), |b| (b.written, b.mark));
        if line.key <= written || self.refused.is_some() {
            return;
        }
        let doubt = doubt.filter(|_| line.key <= self.old_written);
        let text = old.and_then(|b| b.remark.take()).unwrap_or(line.text);
        let queue = self.queues.entry(line.log).or_default();
        queue.base = if queue.lines.is_empty() { line.base } else { queue.base.min(line.base) };
        queue.doubt = queue.doubt.or(doubt);
        queue.about = Some(line.about);
        queue.bytes += text.len();
        self.bytes += text.len();
        self.waiting += 1;
        queue.lines.push_back((line.key, text));
    }

    /// An event was told whole; `base` is where the journal must be read from to know what is known now.
    pub(super) fn told(&mut self, position: u64, base: Option<u64>) {
        self.seen = (position, u32::MAX);
        self.from = base.unwrap_or(position + 1);
    }

    /// Lines that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the next log that could not be written is tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.queues.values().filter_map(|q| q.retry_at).min()
    }

    /// Why none of this user's logs is written, or which are not.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let of_log = |(path, queue): (&Arc<str>, &Queue)| {
            let (why, waiting, given_up) = (queue.trouble.clone(), queue.lines.len(), queue.given_up);
            (!why.is_empty()).then(|| Trouble { path: path.clone(), why, waiting, given_up })
        };
        let all = self.refused.iter().map(|why| Trouble {
            path: Arc::from(""),
            why: why.clone(),
            waiting: 0,
            given_up: 0,
        });
        all.chain(self.queues.iter().filter_map(of_log)).take(TROUBLES).collect()
    }

    /// The logs that can be written now, to be opened; each answer goes to `opened`.
    pub(super) fn begin_round(&mut self, now: Instant) -> Vec<Open> {
        self.round.clear();
        // Doubts can only be settled when all lines in question are here.
        if !self.has_caught_up() {
            return Vec::new();
        }
        self.old.clear();
        let (mut opens, mut bytes) = (Vec::new(), 0);
        for (log, queue) in &self.queues {
            if queue.lines.is_empty() || queue.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            if opens.len() >= TOGETHER || bytes >= BYTES_TOGETHER {
                break;
            }
            let (mut lines, mut length) = (Vec::new(), 0);
            for (_, text) in queue.lines.iter().take(LINES_OF_LOG) {
                length += text.len();
                if length > BYTES_OF_LOG && !lines.is_empty() {
                    break;
                }
                lines.push(text.clone());
            }
            bytes += length;
            let number = opens.len() as u32;
            self.round.push(Turn { log: log.clone(), sent: lines.len(), grows: false });
            let doubt = queue.doubt.map(Into::into);
            opens.push(Open { number, path: log.to_string(), lines, doubt });
        }
        opens
    }

    /// A log was opened and searched, or could not be.
    pub(super) fn opened(&mut self, answer: &FromScribe) {
        let Some(turn) = self.round.get_mut(answer.number as usize) else { return };
        let (log, sent) = (turn.log.clone(), turn.sent);
        let found = (answer.lines as usize).min(sent);
        let (Some(mark), true) = (answer.mark, answer.error.is_empty()) else {
            return self.postpone(&log, &answer.error);
        };
        turn.grows = found < sent;
        let grows = turn.grows;
        self.take_out(&log, found);
        let Some(queue) = self.queues.get_mut(&log) else { return };
        if grows {
            (queue.doubt, queue.mark) = (None, Some(mark.into()));
        } else {
            // More of what is in doubt may follow there.
            queue.doubt = Some(mark.into());
        }
        self.forget_if_done(&log);
    }

    /// The numbers of the logs that are to grow, once the record says so.
    pub(super) fn growing(&self) -> Vec<u32> {
        (0..).zip(&self.round).filter(|(_, turn)| turn.grows).map(|(number, _)| number).collect()
    }

    /// Lines were appended to a log, if only some of them.
    pub(super) fn appended(&mut self, answer: &FromScribe) {
        let Some(turn) = self.round.get_mut(answer.number as usize).filter(|t| t.grows) else { return };
        turn.grows = false;
        let (log, sent) = (turn.log.clone(), turn.sent);
        self.take_out(&log, (answer.lines as usize).min(sent));
        if let Some(queue) = self.queues.get_mut(&log) {
            queue.mark = None;
            if answer.error.is_empty() {
                (queue.retry_at, queue.delay) = (None, Duration::ZERO);
                queue.trouble.clear();
            }
        }
        if !answer.error.is_empty() {
            self.postpone(&log, &answer.error);
        }
        self.forget_if_done(&log);
    }

    /// The record could not be written: nobody may append what is not announced.
    pub(super) fn unannounced(&mut self, why: &str) {
        for turn in std::mem::take(&mut self.round).into_iter().filter(|turn| turn.grows) {
            self.postpone(&turn.log, why);
        }
    }

    /// Whoever wrote is gone. The log that was written when it happened is tried later, the others at once; of logs that were to
    /// grow nobody knows whether they did.
    pub(super) fn abandoned(&mut self, number: Option<u32>, why: &str, hung: bool) {
        for (n, turn) in (0..).zip(std::mem::take(&mut self.round)) {
            if let Some(queue) = self.queues.get_mut(&turn.log).filter(|_| turn.grows) {
                queue.doubt = queue.mark.take().or(queue.doubt);
            }
            if number == Some(n) {
                if let Some(queue) = self.queues.get_mut(&turn.log).filter(|_| hung) {
                    queue.delay = LAST_RETRY;
                }
                self.postpone(&turn.log, why);
            }
        }
    }

    /// All logs wait: nobody can write at present.
    pub(super) fn postpone_all(&mut self, why: &str) {
        let logs: Vec<_> = self.queues.keys().cloned().collect();
        for log in logs {
            self.postpone(&log, why);
        }
    }

    /// None of this user's logs will ever be written.
    pub(super) fn refuse(&mut self, why: &str) {
        tracing::warn!(owner = %self.owner, why, "this user's job logs are not written");
        self.queues.clear();
        self.round.clear();
        (self.waiting, self.bytes, self.refused) = (0, 0, Some(why.to_owned()));
    }

    /// Something is announced on disk that is settled by now.
    pub(super) fn is_worth_saving(&self) -> bool {
        self.announced && self.has_caught_up()
    }

    /// All that an earlier manager knew is known.
    pub(super) fn has_caught_up(&self) -> bool {
        self.seen >= self.old_written
    }

    /// What is to be on disk before lines are appended, or when there is nothing more to do for a while.
    pub(super) fn record(&self) -> Record {
        let waiting = self.queues.iter().filter_map(|(log, queue)| {
            let (first, text) = queue.lines.front()?;
            let remark = (queue.given_up > 0).then(|| text.clone());
            let (path, written) = (log.to_string(), (first.0, first.1 - 1));
            Some(Behind { path, written, mark: queue.doubt.or(queue.mark), remark })
        });
        let logs = waiting.collect();
        let bases = self.queues.values().filter(|q| !q.lines.is_empty()).map(|q| q.base);
        let from = bases.chain([self.from]).min().unwrap_or(self.from);
        Record { owner: self.owner.to_string(), written: self.seen, from, logs }
    }

    /// The record is on disk.
    pub(super) fn saved(&mut self) {
        self.announced = self.round.iter().any(|turn| turn.grows);
    }

    fn take_out(&mut self, log: &Arc<str>, lines: usize) {
        let Some(queue) = self.queues.get_mut(log) else { return };
        for (_, text) in queue.lines.drain(..lines.min(queue.lines.len())) {
            queue.bytes -= text.len();
            self.bytes -= text.len();
            self.waiting -= 1;
            // It was the first.
            queue.given_up = 0;
        }
    }

    fn forget_if_done(&mut self, log: &Arc<str>) {
        if self.queues.get(log).is_some_and(|q| q.lines.is_empty()) {
            self.queues.remove(log);
        }
    }

    fn postpone(&mut self, log: &Arc<str>, why: &str) {
        let Some(queue) = self.queues.get_mut(log) else { return };
        queue.mark = None;
        queue.delay = (queue.delay * 2).clamp(FIRST_RETRY, LAST_RETRY);
        queue.retry_at = Some(Instant::now() + queue.delay);
        queue.trouble = model::text::one_line(why, WHY_BYTES);
        let (owner, seconds) = (&self.owner, queue.delay.as_secs());
        self.failures += 1;
        if self.failures <= FAILURES_TOLD {
            tracing::warn!(%owner, path = %log, why, "cannot write this job log; trying again in {seconds} s");
        }
        // When only the sync failed, the lines are in the file.
        self.forget_if_done(log);
    }

    /// All was done that can be done now.
    pub(super) fn end_flush(&mut self) {
        if self.failures > FAILURES_TOLD {
            let more = self.failures - FAILURES_TOLD;
            tracing::warn!(owner = %self.owner, more, "more job logs of this user cannot be written");
        }
        self.failures = 0;
        self.limit_backlog();
    }

    /// Gives lines up when too many wait. Where they would have been the log says so, when it can be written again.
    fn limit_backlog(&mut self) {
        let many = self.queues.len().saturating_sub(LOGS_BEHIND);
        if many > 0 {
            let postponed = self.queues.iter().filter(|(_, q)| q.retry_at.is_some());
            let logs: Vec<_> = postponed.map(|(log, _)| log.clone()).take(many).collect();
            tracing::error!(owner = %self.owner, logs = logs.len(), "too many job logs cannot be written; these are given up");
            for log in logs {
                self.take_out(&log, usize::MAX);
                self.forget_if_done(&log);
            }
        }
        while self.waiting > BACKLOG || self.bytes > BACKLOG_BYTES {
            let heaviest = self.queues.iter().filter(|(_, q)| q.lines.len() > 1).max_by_key(|(_, q)| q.bytes);
            let Some(log) = heaviest.map(|(log, _)| log.clone()) else { return };
            let Some(queue) = self.queues.get_mut(&log) else { return };
            let (Some((last, _)), Some(about)) = (queue.lines.back(), queue.about) else { return };
            let lines = queue.lines.len() + queue.given_up - usize::from(queue.given_up > 0);
            let remark = about.remark(format!(
                "{lines} events are missing here: they waited for this log, which could not be written ({})",
                queue.trouble
            ));
            let (last, path) = (*last, &log);
            tracing::error!(owner = %self.owner, %path, lines, why = queue.trouble, "too many events wait for this job log; they are given up");
            self.waiting -= queue.lines.len() - 1;
            self.bytes = self.bytes + remark.len() - queue.bytes;
            (queue.bytes, queue.given_up) = (remark.len(), lines);
            queue.lines = [(last, remark)].into();
            // What may have been appended of the lines stays; the remark was not.
            queue.doubt = None;
            self.announced = true;
        }
    }
}

#[cfg(test)]
mod tests;
