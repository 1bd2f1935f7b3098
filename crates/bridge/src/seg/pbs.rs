//! PBS: server logs of OpenPBS, PBS Pro and Torque, and their accounting logs.

use jiff::tz::TimeZone;

use super::clock::american;
use super::number::int;
use super::passes::{InOrder, Memory};
use super::times::Times;
use super::{Legible, LineFormat, Sink, State, is_text};

/// The first six fields of a server log line; empty ones do not count.
fn fields(line: &[u8]) -> Option<[&[u8]; 6]> {
    let mut found: [&[u8]; 6] = [&[]; 6];
    let mut count = 0;
    let mut start = 0;
    for end in memchr::memchr_iter(b';', line).chain(std::iter::once(line.len())) {
        if end > start {
            found[count] = &line[start..end];
            count += 1;
            if count == 6 {
                return Some(found);
            }
        }
        start = end + 1;
    }
    None
}

/// Job events (8) and usage records (0x10; 0x16 because some versions print decimal). Sums are something else.
fn is_job_record(kind: &[u8]) -> bool {
    // What nearly every line has.
    if kind == b"0008" || kind == b"0010" {
        return true;
    }
    let kind = super::number::skip_blanks(kind);
    let kind = &kind[..kind.len().min(4)];
    let kind = kind.strip_prefix(b"+").unwrap_or(kind);
    let kind = kind.strip_prefix(b"0x").or_else(|| kind.strip_prefix(b"0X")).unwrap_or(kind);
    let mut value = None;
    for digit in kind.iter().map_while(|b| (*b as char).to_digit(16)) {
        value = Some(value.unwrap_or(0) * 16 + digit);
    }
    matches!(value, Some(0x8 | 0x10 | 0x16))
}

/// The first meaning of the time with which a line begins.
fn stamp(times: &mut Times, line: &[u8]) -> Option<i64> {
    let end = memchr::memchr(b';', line)?;
    times.earliest(american(&line[..end])?)
}

/// Was this the beginning of a record? It has a time, but no message; the other lines of a message have no time.
fn is_cut_off(line: &[u8]) -> bool {
    let end = memchr::memchr(b';', line).unwrap_or(line.len());
    american(&line[..end]).is_some() && memchr::memchr_iter(b';', line).count() < 5
}

/// Server logs.
#[derive(Debug)]
pub struct Server {
    times: Times,
}

impl Server {
    /// Logs of a host in this zone; events before `from` are not told.
    pub fn new(zone: TimeZone, from: i64) -> Self {
        Self { times: Times::new(zone, from) }
    }

    /// What times of a doubled hour are taken for is remembered there.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Self {
        self.times.remember_in(memory);
        self
    }
}

/// The object, the state and the code that a message stands for.
fn meaning<'a>(object: &'a [u8], message: &'a [u8]) -> Option<(&'a [u8], State, i32)> {
    if let Some(rest) = message.strip_prefix(b"Job ") {
        let state = if rest.starts_with(b"Queued") {
            State::Pending
        } else if rest.starts_with(b"Run") {
            State::Active
        } else if rest.starts_with(b"deleted") || rest.starts_with(b"to be deleted") {
            State::Failed
        } else {
            return None;
        };
        return Some((object, state, 0));
    }
    if let Some(rest) = message.strip_prefix(b"Exit_status=") {
        return Some((object, State::Done, int(rest)?.0));
    }
    // Torque 4 and later tell of the acceptance only here.
    if object == b"req_commit" && message.starts_with(b"job_id:") {
        return Some((message.get(8..)?, State::Pending, 0));
    }
    None
}

impl LineFormat for Server {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        let Some([time, kind, _, _, object, message]) = fields(line) else {
            return if is_text(line) && !is_cut_off(line) { Legible::Yes } else { Legible::No };
        };
        let Some(moment) = american(time).and_then(|time| self.times.line(time)) else {
            return if is_text(line) { Legible::Yes } else { Legible::No };
        };
        self.times.tell_ready(sink);
        if is_job_record(kind)
            && let Some((id, state, code)) = meaning(object, message)
        {
            self.times.tell(moment, id, state, code, sink);
        }
        Legible::Yes
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        stamp(&mut self.times, line)
    }

    fn order(&self) -> Option<&dyn InOrder> {
        Some(self.times.order())
    }

    fn order_mut(&mut self) -> Option<&mut dyn InOrder> {
        Some(self.times.order_mut())
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.times.settle(sink);
    }
}

/// Accounting logs.
#[derive(Debug)]
pub struct Accounting {
    times: Times,
    all_states: bool,
}

impl Accounting {
    /// Logs of a host in this zone; with `all_states` suspending and resuming are told.
    pub fn new(zone: TimeZone, from: i64, all_states: bool) -> Self {
        Self { times: Times::new(zone, from), all_states }
    }

    /// What times of a doubled hour are taken for is remembered there.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Self {
        self.times.remember_in(memory);
        self
    }
}

/// The value of `Exit_status` among blank-separated `key=value` pairs.
fn exit_status(pairs: &[u8]) -> Option<i32> {
    pairs
        .split(|b| *b == b' ')
        .find_map(|pair| int(pair.strip_prefix(b"Exit_status=")?))
        .map(|(code, _)| code)
}

impl LineFormat for Accounting {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        let mut parts = line.splitn(4, |b| *b == b';');
        let parts = (parts.next().and_then(american), parts.next(), parts.next(), parts.next());
        let (Some(time), Some(kind), Some(id), Some(rest)) = parts else {
            return if line.is_empty() { Legible::Yes } else { Legible::No };
        };
        let Some(moment) = self.times.line(time) else { return Legible::No };
        self.times.tell_ready(sink);
        let (state, code) = match kind {
            b"Q" | b"R" => (State::Pending, 0),
            b"S" | b"T" => (State::Active, 0),
            b"E" => (State::Done, exit_status(rest).unwrap_or(0)),
            b"D" | b"A" => (State::Failed, 0),
            b"z" if self.all_states => (State::Suspended, 0),
            b"r" if self.all_states => (State::Active, 0),
            _ => return Legible::Yes,
        };
        self.times.tell(moment, id, state, code, sink);
        Legible::Yes
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        stamp(&mut self.times, line)
    }

    fn order(&self) -> Option<&dyn InOrder> {
        Some(self.times.order())
    }

    fn order_mut(&mut self) -> Option<&mut dyn InOrder> {
        Some(self.times.order_mut())
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.times.settle(sink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_kinds() {
        for good in ["0008", "8", "08", "0x8", "16", "0010", "0016", "10"] {
            assert!(is_job_record(good.as_bytes()), "{good}");
        }
        for bad in ["0018", "8008", "00008", "", "zzzz", "0x", "-8"] {
            assert!(!is_job_record(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_code_that_is_no_number_makes_no_event() {
        assert_eq!(meaning(b"1.s", b"Exit_status=abc"), None);
        assert_eq!(meaning(b"1.s", b"Exit_status= 6x"), Some((&b"1.s"[..], State::Done, 6)));
        assert_eq!(meaning(b"req_commit", b"job_id: 5.s"), Some((&b"5.s"[..], State::Pending, 0)));
        assert_eq!(meaning(b"req_commit", b"job_id:"), None);
    }
}
