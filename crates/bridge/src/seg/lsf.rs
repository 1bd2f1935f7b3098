//! LSF: the records of `lsb.events`. Which files there are and where in them to begin is [`super::follow`]'s work.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hasher as _;

use super::number::{int, is_blank, whole};
use super::{Event, Legible, LineFormat, Sink, State, is_text};

/// Job states in `JOB_STATUS`.
const PSUSP: i64 = 2;
const RUN: i64 = 4;
const SSUSP: i64 = 8;
const USUSP: i64 = 16;
const EXIT: i64 = 32;
const DONE: i64 = 64;

/// Numbers of the resource usage, when a record has one.
const USAGE: usize = 19;
/// Beyond every reason for a termination there is: what stands in that place is an amount of memory.
const REASONS: i64 = 64;
/// Exceptions after which a job has failed: abnormal end, cannot run, host failure, cannot start. The other bits
/// (missed its time, runs too long or too short) are about jobs that go on.
const FATAL: i64 = 0x08 | 0x10 | 0x20 | 0x40;
/// Jobs that are over and remembered: an exception and the end it belongs to are a few records apart.
const REMEMBERED: usize = 10_000;
/// A status as `wait` gives it has the signal in these bits.
const SIGNAL: i32 = 0x7f;
/// More hosts than this in one record is not believed.
const HOSTS: i64 = 1 << 20;
/// A `#` line with at least this has a time (1973), with less a place in the file.
const OLDEST: i64 = 100_000_000;

/// Fields of a record: separated by blanks, strings in quotes, a quote inside doubled.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.rest = super::number::skip_blanks(self.rest);
        if let Some(inside) = self.rest.strip_prefix(b"\"") {
            let mut at = 0;
            loop {
                let end = at + memchr::memchr(b'"', &inside[at..])?;
                if inside.get(end + 1) == Some(&b'"') {
                    at = end + 2;
                    continue;
                }
                self.rest = &inside[end + 1..];
                // A doubled quote stays doubled: nothing that is used holds one.
                return Some(&inside[..end]);
            }
        }
        let end = self.rest.iter().position(|b| is_blank(*b)).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!field.is_empty()).then_some(field)
    }
}

/// Records of `lsb.events`.
#[derive(Debug)]
pub struct Records {
    from: i64,
    all_states: bool,
    id: Vec<u8>,
    /// When the file under way was closed, if it is an older one, and its records of that very second.
    closed: Option<i64>,
    closing: HashSet<u64>,
    /// The same of the file before: what that file told already stands once more at the head of this one.
    before: Option<i64>,
    told: HashSet<u64>,
    over: Ended,
}

/// By what a job was told to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Exception,
    End,
}

/// Jobs that were told to be over, the newest [`REMEMBERED`] of them.
#[derive(Debug, Default)]
struct Ended {
    by: HashMap<Vec<u8>, Over>,
    order: VecDeque<Vec<u8>>,
}

impl Ended {
    /// Returns what was known of the job. Its exception stays what it was told by, until its end.
    fn remember(&mut self, id: &[u8], over: Over) -> Option<Over> {
        if let Some(known) = self.by.get_mut(id) {
            let before = *known;
            if over == Over::End {
                *known = Over::End;
            }
            return Some(before);
        }
        self.by.insert(id.to_vec(), over);
        self.order.push_back(id.to_vec());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by.remove(&oldest);
        }
        None
    }

    fn forget(&mut self, id: &[u8]) {
        self.by.remove(id);
    }
}

impl Records {
    /// Events before `from` are not told; with `all_states` suspending and resuming are.
    pub fn new(from: i64, all_states: bool) -> Self {
        Self {
            from,
            all_states,
            id: Vec::new(),
            closed: None,
            closing: HashSet::new(),
            before: None,
            told: HashSet::new(),
            over: Ended::default(),
        }
    }

    /// A job is told failed once, by its exception or by its end: the end of one that had an exception adds the code, if
    /// it has one, and an exception of one that has ended adds nothing. What begins the job anew forgets that.
    fn settle(&mut self, meaning: Meaning) -> Option<(State, i32)> {
        match meaning {
            Meaning::Begun(state) => {
                self.over.forget(&self.id);
                Some((state, 0))
            }
            Meaning::Exception => {
                self.over.remember(&self.id, Over::Exception).is_none().then_some((State::Failed, 0))
            }
            Meaning::End(state, code) => match self.over.remember(&self.id, Over::End) {
                Some(Over::Exception) => (code != 0).then_some((State::Failed, code)),
                _ => Some((state, code)),
            },
            Meaning::Fine => {
                self.over.remember(&self.id, Over::End);
                Some((State::Done, 0))
            }
            Meaning::Stopped => Some((State::Suspended, 0)),
        }
    }

    /// A switch copies the records of unfinished jobs to the head of the new file. True for such a copy of a record that
    /// the file before this one had.
    fn is_carried_over(&mut self, line: &[u8], stamp: i64) -> bool {
        if self.closed == Some(stamp) {
            self.closing.insert(hash(line));
        }
        match self.before {
            Some(before) if stamp < before => true,
            Some(before) if stamp == before => self.told.contains(&hash(line)),
            Some(_) => {
                self.before = None;
                self.told = HashSet::new();
                false
            }
            None => false,
        }
    }
}

fn hash(line: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}

/// What a record says of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It waits or runs.
    Begun(State),
    Stopped,
    Exception,
    /// It ran to its end, and LSF itself says that all is well.
    Fine,
    End(State, i32),
}

/// `exitStatus idx exitInfo` and whatever newer versions append. OpenLava has `exitStatus idx maxMem avgMem`: no reason
/// there, so a job that was killed is known by the signal in its status.
fn ending(tail: &[&[u8]]) -> Option<(State, i32)> {
    let status = int(tail.first()?)?.0;
    let reason = match tail {
        [_, _, memory, _] if whole(memory).is_some_and(|n| n >= REASONS) => 0,
        [_, _, reason, ..] => int(reason)?.0,
        _ => 0,
    };
    let signal = if tail.len() == 4 { status & SIGNAL } else { 0 };
    Some(match (reason, signal) {
        (0, 0) => (State::Done, (status >> 8) & 0xff),
        (0, signal) => (State::Failed, 128 + signal),
        (reason, _) => (State::Failed, reason),
    })
}

/// What a record says, by its type, and of which element of an array.
fn meaning(kind: &[u8], mut fields: Fields<'_>, all_states: bool) -> Option<(Meaning, i64)> {
    match kind {
        b"JOB_NEW" => Some((Meaning::Begun(State::Pending), 0)),
        b"JOB_START" => {
            let hosts = fields.nth(4).and_then(whole).filter(|n| (0..HOSTS).contains(n));
            // Behind the hosts: two commands, flags and a group, then the index.
            let index = hosts.and_then(|n| fields.nth(n as usize + 4)).and_then(whole).unwrap_or(0);
            Some((Meaning::Begun(State::Active), index))
        }
        // The design calls it by the first name, LSF writes the second.
        b"JOB_EXCEPT" | b"JOB_EXCEPTION" => {
            let mask = whole(fields.next()?)?;
            // Behind the mask: what was done, when, and a text; then the index.
            let index = fields.nth(3).and_then(whole).unwrap_or(0);
            (mask & FATAL != 0).then_some((Meaning::Exception, index))
        }
        b"JOB_STATUS" => {
            let status = whole(fields.next()?)?;
            let usage = fields.nth(4).and_then(whole);
            if usage == Some(1) {
                fields.nth(USAGE - 1);
            }
            let tail: Vec<&[u8]> = fields.take(5).collect();
            let index = tail.get(1).and_then(|f| whole(f)).unwrap_or(0);
            let meaning = match status {
                DONE => Meaning::Fine,
                EXIT => ending(&tail).map(|(state, code)| Meaning::End(state, code))?,
                PSUSP | SSUSP | USUSP if all_states => Meaning::Stopped,
                RUN if all_states => Meaning::Begun(State::Active),
                _ => return None,
            };
            Some((meaning, index))
        }
        _ => None,
    }
}

/// The type and the time of a record, and the fields from the job's number on.
fn head(line: &[u8]) -> Option<(&[u8], i64, Fields<'_>)> {
    let mut fields = Fields { rest: line };
    if super::number::skip_blanks(line).first() != Some(&b'"') {
        return None;
    }
    let kind = fields.next()?;
    fields.next()?;
    let stamp = whole(fields.next()?)?;
    Some((kind, stamp, fields))
}

impl LineFormat for Records {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        if let Some(closed) = closing_time(line) {
            self.closed = Some(closed);
        }
        let Some((kind, stamp, mut fields)) = head(line) else {
            // Scripts and comments of jobs may go on over several lines.
            return if is_text(line) && !line.starts_with(b"\"JOB_") { Legible::Yes } else { Legible::No };
        };
        if self.is_carried_over(line, stamp) || !kind.starts_with(b"JOB_") {
            return Legible::Yes;
        }
        let Some(job) = fields.next() else { return Legible::No };
        let Some((meaning, index)) = meaning(kind, fields, self.all_states) else {
            return if is_short(kind, line) { Legible::No } else { Legible::Yes };
        };
        self.id.clear();
        self.id.extend_from_slice(job);
        if index > 0 {
            self.id.extend_from_slice(format!("[{index}]").as_bytes());
        }
        if let Some((state, code)) = self.settle(meaning)
            && stamp >= self.from
        {
            sink.event(&Event { stamp, id: &self.id, state, code });
        }
        Legible::Yes
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        head(line).map(|(_, stamp, _)| stamp)
    }

    fn recall(&mut self, line: &[u8]) {
        if let Some(closed) = closing_time(line) {
            self.closed = Some(closed);
        } else if self.closed.is_some() && head(line).map(|(_, stamp, _)| stamp) == self.closed {
            self.closing.insert(hash(line));
        }
    }

    fn reset(&mut self) {
        self.before = self.closed.take();
        self.told = std::mem::take(&mut self.closing);
    }
}

/// Does a record that would tell something lack the fields that say what?
fn is_short(kind: &[u8], line: &[u8]) -> bool {
    let Some((_, _, mut fields)) = head(line) else { return true };
    let behind = fields.nth(1).and_then(whole);
    match kind {
        // Every other state says all by itself.
        b"JOB_STATUS" => behind.is_none_or(|status| status == EXIT),
        b"JOB_EXCEPT" | b"JOB_EXCEPTION" => behind.is_none(),
        _ => false,
    }
}

/// The number of a `#` line: where to begin in `lsb.events`, or when an older file was closed.
pub fn header(line: &[u8]) -> Option<i64> {
    super::number::long(line.strip_prefix(b"#")?).map(|(n, _)| n)
}

/// When the file was closed that begins with this line, if it says so and not where to begin.
pub fn closing_time(line: &[u8]) -> Option<i64> {
    header(line).filter(|number| *number >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_quotes() {
        let all: Vec<&[u8]> = Fields { rest: b"  \"a \"\"b\"\" c\" 12 \"\"  x\r" }.collect();
        assert_eq!(all, [&b"a \"\"b\"\" c"[..], b"12", b"", b"x"]);
        assert_eq!(Fields { rest: b"\"open" }.count(), 0);
    }

    #[test]
    fn endings_by_version() {
        let of = |tail: &[&str]| ending(&tail.iter().map(|t| t.as_bytes()).collect::<Vec<_>>());
        assert_eq!(of(&["768", "0", "0"]), Some((State::Done, 3)));
        assert_eq!(of(&["9", "0", "14"]), Some((State::Failed, 14)));
        assert_eq!(of(&["9", "0", "14", "0", "2048"]), Some((State::Failed, 14)));
        assert_eq!(of(&["768", "0", "5120", "2048"]), Some((State::Done, 3)));
        assert_eq!(of(&[]), None);
        // Four fields: a reason, or two amounts of memory.
        assert_eq!(of(&["9", "0", "5", "0"]), Some((State::Failed, 5)));
        assert_eq!(of(&["9", "0", "63", "0"]), Some((State::Failed, 63)));
        assert_eq!(of(&["9", "0", "64", "2048"]), Some((State::Failed, 137)));
        assert_eq!(of(&["9", "0", "0", "0"]), Some((State::Failed, 137)));
        assert_eq!(of(&["33280", "0", "0", "0"]), Some((State::Done, 130)));
        // The original calls these done.
        assert_eq!(of(&["9", "0", "0"]), Some((State::Done, 0)));
        assert_eq!(of(&["9"]), Some((State::Done, 0)));
        assert_eq!(of(&["768", "3"]), Some((State::Done, 3)));
        assert_eq!(of(&["x", "0", "0"]), None);
        assert_eq!(of(&["0", "0", "x"]), None);
    }
}
