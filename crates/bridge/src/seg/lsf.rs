//! LSF: the records of `lsb.events`. Which files there are and where in them to begin is [`super::follow`]'s work.

use std::collections::HashSet;
use std::hash::Hasher as _;

use super::number::{int, is_blank, whole};
use super::{Event, LineFormat, Sink, State};

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

/// `exitStatus idx exitInfo` and whatever newer versions append; OpenLava has `exitStatus idx maxMem avgMem`.
fn ending(tail: &[&[u8]]) -> Option<(State, i32)> {
    let status = int(tail.first()?)?.0;
    let reason = match tail {
        [_, _, memory, _] if whole(memory).is_some_and(|n| n >= REASONS) => 0,
        [_, _, reason, ..] => int(reason)?.0,
        _ => 0,
    };
    Some(if reason == 0 { (State::Done, (status >> 8) & 0xff) } else { (State::Failed, reason) })
}

/// State, code and array index of a record, by its type.
fn meaning(kind: &[u8], mut fields: Fields<'_>, all_states: bool) -> Option<(State, i32, i64)> {
    match kind {
        b"JOB_NEW" => Some((State::Pending, 0, 0)),
        b"JOB_START" => {
            let hosts = fields.nth(4).and_then(whole).filter(|n| (0..HOSTS).contains(n));
            // Behind the hosts: two commands, flags and a group, then the index.
            let index = hosts.and_then(|n| fields.nth(n as usize + 4)).and_then(whole).unwrap_or(0);
            Some((State::Active, 0, index))
        }
        b"JOB_STATUS" => {
            let status = whole(fields.next()?)?;
            let usage = fields.nth(4).and_then(whole);
            if usage == Some(1) {
                fields.nth(USAGE - 1);
            }
            let tail: Vec<&[u8]> = fields.take(5).collect();
            let index = tail.get(1).and_then(|f| whole(f)).unwrap_or(0);
            let (state, code) = match status {
                DONE => (State::Done, 0),
                EXIT => ending(&tail)?,
                PSUSP | SSUSP | USUSP if all_states => (State::Suspended, 0),
                RUN if all_states => (State::Active, 0),
                _ => return None,
            };
            Some((state, code, index))
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
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if let Some(number) = header(line).filter(|n| *n >= OLDEST) {
            self.closed = Some(number);
        }
        let Some((kind, stamp, mut fields)) = head(line) else { return };
        if self.is_carried_over(line, stamp) || stamp < self.from || !kind.starts_with(b"JOB_") {
            return;
        }
        let Some(job) = fields.next() else { return };
        let Some((state, code, index)) = meaning(kind, fields, self.all_states) else { return };
        self.id.clear();
        self.id.extend_from_slice(job);
        if index > 0 {
            self.id.extend_from_slice(format!("[{index}]").as_bytes());
        }
        sink.event(&Event { stamp, id: &self.id, state, code });
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        head(line).map(|(_, stamp, _)| stamp)
    }

    fn reset(&mut self) {
        self.before = self.closed.take();
        self.told = std::mem::take(&mut self.closing);
    }
}

/// The number of a `#` line: where to begin in `lsb.events`, or when an older file was closed.
pub fn header(line: &[u8]) -> Option<i64> {
    super::number::long(line.strip_prefix(b"#")?).map(|(n, _)| n)
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
    }
}
