//! Bytes to events, as they arrive: an event is returned when its terminator is there and never before.

use jiff::tz::TimeZone;

use crate::event::Event;
use crate::{parse, xml};

/// Longest event in bytes.
const EVENT_BYTES: usize = 1 << 20;

/// An event that cannot be read. Reading goes on behind it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct BadEvent {
    /// Line on which the event begins, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
    /// Its first line, shortened.
    pub excerpt: String,
}

/// Reads a log as it comes in.
#[derive(Debug, Clone)]
pub struct Reader {
    zone: TimeZone,
    newest: i64,
    buffer: Vec<u8>,
    /// Where in the buffer the next event begins.
    start: usize,
    /// How far the buffer was searched for a terminator.
    seen: usize,
    line: u64,
    /// An event was too long; everything up to the next terminator is dropped.
    skipping: bool,
}

impl Reader {
    /// A reader for logs written in `zone` and last changed at `newest`, in seconds since 1970: see
    /// [`year_of`](crate::time::year_of).
    pub fn new(zone: TimeZone, newest: i64) -> Self {
        Self { zone, newest, buffer: Vec::new(), start: 0, seen: 0, line: 1, skipping: false }
    }

    /// The log was changed since.
    pub fn set_newest(&mut self, newest: i64) {
        self.newest = newest;
    }

    /// Adds bytes from the log.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.seen -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// True when the bytes so far end inside an event.
    pub fn is_inside_event(&self) -> bool {
        self.skipping || self.buffer[self.start..].iter().any(|b| !b.is_ascii_whitespace())
    }

    /// Bytes that were fed but belong to no complete event yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Forgets an unfinished event.
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.start = 0;
        self.seen = 0;
        self.line = 1;
        self.skipping = false;
    }

    fn skip_blank(&mut self) {
        while let Some(b) = self.buffer.get(self.start).filter(|b| b.is_ascii_whitespace()) {
            self.line += u64::from(*b == b'\n');
            self.start += 1;
        }
        self.seen = self.seen.max(self.start);
    }

    /// The next complete event or the next broken one; `None` when more bytes are needed.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Event, BadEvent>> {
        loop {
            self.skip_blank();
            let is_xml = !self.skipping && self.buffer.get(self.start) == Some(&b'<');
            let end = if is_xml { self.xml_end() } else { self.text_end() };
            let Some((body_end, after)) = end else { return self.too_long() };
            let text = String::from_utf8_lossy(&self.buffer[self.start..body_end]).into_owned();
            let line = self.line;
            self.line += self.buffer[self.start..after].iter().map(|b| u64::from(*b == b'\n')).sum::<u64>();
            self.start = after;
            self.seen = after;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if is_xml && !text.starts_with("<c>") {
                // An XML declaration or an enclosing tag.
                continue;
            }
            let result = if is_xml {
                xml::event(&text, &self.zone, self.newest)
            } else {
                parse::event(&text, &self.zone, self.newest)
            };
            return Some(result.map_err(|message| bad(line, message, &text)));
        }
    }

    /// Where the text of the next event ends and where the one after it begins.
    fn text_end(&mut self) -> Option<(usize, usize)> {
        let mut at = self.seen;
        while let Some(found) = self.buffer[at..].iter().position(|b| *b == b'\n') {
            let end = at + found;
            let line = self.buffer[at..end].strip_suffix(b"\r").unwrap_or(&self.buffer[at..end]);
            // The reader of the original forgives blanks behind the dots.
            if line.strip_prefix(b"...").is_some_and(|rest| rest.iter().all(u8::is_ascii_whitespace)) {
                let body_end = if at > self.start { at - 1 } else { at };
                return Some((body_end, end + 1));
            }
            at = end + 1;
            self.seen = at;
        }
        None
    }

    /// The same for an XML event: up to the `</c>` of the outermost `<c>`, or one tag of anything else.
    fn xml_end(&mut self) -> Option<(usize, usize)> {
        let text = &self.buffer[self.start..];
        if !text.starts_with(b"<c>") {
            if text.len() < 3 {
                return None;
            }
            let end = text.iter().position(|b| *b == b'>')? + self.start + 1;
            return Some((end, end));
        }
        // Searched from the event's beginning each time: XML logs are rare and their events small.
        let (mut depth, mut at) = (0usize, 0);
        while at < text.len() {
            if text[at..].starts_with(b"<c>") {
                depth += 1;
            } else if text[at..].starts_with(b"</c>") {
                depth -= 1;
                if depth == 0 {
                    let end = self.start + at + 4;
                    return Some((end, end));
                }
            }
            at += 1;
        }
        None
    }

    fn too_long(&mut self) -> Option<Result<Event, BadEvent>> {
        if self.pending() <= EVENT_BYTES {
            return None;
        }
        let text = String::from_utf8_lossy(&self.buffer[self.start..self.start + 200]).into_owned();
        let line = self.line;
        let reported = self.skipping;
        self.skipping = true;
        // Keep the line that is being read: it may become the terminator.
        let keep =
            self.buffer.iter().rposition(|b| *b == b'\n').map_or(self.start, |n| n + 1).max(self.start);
        let keep = if self.buffer.len() - keep > 16 { self.buffer.len() } else { keep };
        self.line += self.buffer[self.start..keep].iter().map(|b| u64::from(*b == b'\n')).sum::<u64>();
        self.start = keep;
        self.seen = keep;
        (!reported).then(|| Err(bad(line, format!("this event is over {EVENT_BYTES} bytes"), &text)))
    }
}

fn bad(line: u64, message: String, text: &str) -> BadEvent {
    let first = text.lines().next().unwrap_or("");
    BadEvent { line, message, excerpt: model::text::one_line(first, 120) }
}
