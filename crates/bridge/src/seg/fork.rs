//! Lines that are already in the protocol: the fork starter's log and the day files of a generator run with `-d`.

use super::number::{int, long};
use super::{Event, Legible, LineFormat, Message, Sink, State};

/// The original cannot tell this code from a missing one.
const MISSING: i32 = -1492;

/// Protocol lines.
#[derive(Debug)]
pub struct Protocol {
    from: i64,
}

impl Protocol {
    /// Events before `from` are not told.
    pub fn new(from: i64) -> Self {
        Self { from }
    }
}

/// Reads a protocol line as forgivingly as the original: blanks before numbers, text behind the last.
pub fn parse(line: &[u8]) -> Option<Event<'_>> {
    let (kind, rest) = int(line)?;
    let (stamp, rest) = long(rest.strip_prefix(b";")?)?;
    let rest = rest.strip_prefix(b";")?;
    let end = memchr::memchr(b';', rest)?;
    let id = &rest[..end];
    let (state, rest) = int(&rest[end + 1..])?;
    let (code, _) = int(rest.strip_prefix(b";")?)?;
    if kind != 1 || id.is_empty() || code == MISSING {
        return None;
    }
    Some(Event { stamp, id, state: State::from_number(state)?, code })
}

impl LineFormat for Protocol {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        let Some(event) = parse(line) else {
            // Messages of other kinds, and headers, are nothing that happened to a job.
            let is_other = line.is_empty() || line[0] == b'#' || Message::parse(line).is_some();
            return if is_other && !line.starts_with(b"001;") { Legible::Yes } else { Legible::No };
        };
        if event.stamp >= self.from {
            sink.event(&event);
        }
        Legible::Yes
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        parse(line).map(|e| e.stamp)
    }
}
