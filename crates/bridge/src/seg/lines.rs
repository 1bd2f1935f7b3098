//! Bytes to lines, under a limit: a line counts only with its newline.

use super::passes::InOrder;
use super::{Format, Legible, LineFormat, Reached, Sink};

/// Longest line. Torque writes records of 256 kB, and a job with many hosts may have more.
pub const LINE_BYTES: usize = 16 << 20;

/// Cuts lines and gives them to a [`LineFormat`].
#[derive(Debug)]
pub struct ByLine<P> {
    parser: P,
    carry: Vec<u8>,
    /// The line under way is too long; everything up to its newline is dropped.
    skipping: bool,
    limit: usize,
    /// At which byte what is fed next begins.
    offset: u64,
    /// So many lines were no records.
    illegible: u64,
}

impl<P: LineFormat> ByLine<P> {
    /// Lines for this parser.
    pub fn new(parser: P) -> Self {
        Self { parser, carry: Vec::new(), skipping: false, limit: LINE_BYTES, offset: 0, illegible: 0 }
    }

    /// The same with another limit.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }
}

/// A file that lost its last blocks in a crash has NULs where they were, often before a good line; anywhere else a NUL
/// ends the text, as it does for the original.
fn text(line: &[u8]) -> &[u8] {
    if memchr::memchr(0, line).is_none() {
        return line;
    }
    let holes = line.iter().take_while(|b| **b == 0).count();
    let line = &line[holes..];
    &line[..memchr::memchr(0, line).unwrap_or(line.len())]
}

impl<P: LineFormat> Format for ByLine<P> {
    fn feed(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) {
        let mut begin = self.offset;
        self.offset += bytes.len() as u64;
        if !self.carry.is_empty() || self.skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes, sink);
                return;
            };
            let place = begin.saturating_sub(self.carry.len() as u64);
            self.keep(&bytes[..end], sink);
            bytes = &bytes[end + 1..];
            begin += end as u64 + 1;
            if !std::mem::take(&mut self.skipping) {
                let carry = std::mem::take(&mut self.carry);
                self.take_line(place, &carry, sink);
                self.carry = carry;
            }
            self.carry.clear();
            // One huge line must not be paid for until the end.
            self.carry.shrink_to(1 << 16);
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.take_line(begin + start as u64, &bytes[start..end], sink);
            start = end + 1;
        }
        if start < bytes.len() {
            self.keep(&bytes[start..], sink);
        }
    }

    fn pending(&self) -> usize {
        self.carry.len() + usize::from(self.skipping)
    }

    fn is_unfinished(&self) -> bool {
        self.pending() > 0 || self.parser.is_inside()
    }

    fn skip_line(&mut self) {
        self.carry.clear();
        self.skipping = true;
    }

    fn reset(&mut self) {
        self.carry.clear();
        self.skipping = false;
        self.parser.reset();
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        self.parser.stamp(text(line))
    }

    fn when(&mut self, line: &[u8]) -> Option<i64> {
        self.parser.when(text(line))
    }

    fn recall(&mut self, line: &[u8]) {
        self.parser.recall(text(line));
    }

    fn begins(&mut self, head: &[u8], offset: u64) {
        self.offset = offset;
        if let Some(order) = self.parser.order_mut() {
            order.begins(head);
        }
    }

    fn written(&mut self, since: Option<i64>, until: i64) {
        self.parser.written(since, until);
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.parser.settle(sink);
    }

    fn reached(&self) -> Option<Reached> {
        self.parser.order().and_then(InOrder::reached)
    }

    fn go_on(&mut self, reached: Option<Reached>) {
        if let Some(order) = self.parser.order_mut() {
            order.go_on(reached);
        }
    }
}

impl<P: LineFormat> ByLine<P> {
    /// Gives a whole line to the parser. Lines that are no records are said: the first, the tenth, the hundredth, since there may
    /// be many.
    fn take_line(&mut self, place: u64, line: &[u8], sink: &mut dyn Sink) {
        if let Some(order) = self.parser.order_mut() {
            order.at(place);
        }
        if self.parser.line(text(line), sink) == Legible::Yes {
            return;
        }
        self.illegible += 1;
        if self.illegible == 1 {
            sink.missed(&format!(
                "the line at byte {place} is no record, or not a whole one; it is left out"
            ));
        } else if self.illegible == 10_u64.pow(self.illegible.ilog10()) {
            let count = self.illegible;
            sink.missed(&format!(
                "{count} lines are no records, or not whole ones; the last is at byte {place}"
            ));
        }
    }
}

impl<P> ByLine<P> {
    fn keep(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        if self.skipping {
            return;
        }
        if self.carry.len() + bytes.len() > self.limit {
            sink.missed(&format!("a line of more than {} bytes is skipped", self.limit));
            self.carry = Vec::new();
            self.skipping = true;
            return;
        }
        self.carry.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<Vec<u8>>);
    impl LineFormat for Seen {
        fn line(&mut self, line: &[u8], _: &mut dyn Sink) -> Legible {
            self.0.push(line.to_vec());
            if line.starts_with(b"bad") { Legible::No } else { Legible::Yes }
        }
        fn stamp(&mut self, _: &[u8]) -> Option<i64> {
            None
        }
    }
    #[derive(Default)]
    struct Notes(usize);
    impl Sink for Notes {
        fn event(&mut self, _: &super::super::Event<'_>) {}
        fn note(&mut self, _: &str) {
            self.0 += 1;
        }
    }

    #[test]
    fn any_cut_gives_the_same_lines() {
        let input = b"one\n\n\0\0two\nthr\0ee\nfar too long a line\nfour\nrest";
        for size in 1..=input.len() {
            let mut lines = ByLine::new(Seen::default()).limit(12);
            let mut notes = Notes::default();
            for piece in input.chunks(size) {
                lines.feed(piece, &mut notes);
            }
            let short = lines.parser.0.iter().filter(|l| !l.starts_with(b"far")).cloned().collect::<Vec<_>>();
            assert_eq!(short, [&b"one"[..], b"", b"two", b"thr", b"four"], "pieces of {size}");
            assert_eq!(lines.pending(), 4);
        }
    }

    #[test]
    fn lines_that_are_no_records_are_said_but_not_each() {
        let mut lines = ByLine::new(Seen::default());
        let mut notes = Notes::default();
        for (count, said) in [(0, 0), (1, 1), (2, 1), (9, 1), (10, 2), (99, 2), (100, 3), (101, 3)] {
            while (lines.illegible as usize) < count {
                lines.feed(b"good\nbad\n", &mut notes);
            }
            assert_eq!(notes.0, said, "{count}");
        }
    }

    #[test]
    fn the_rest_of_a_line_is_dropped_where_its_beginning_is_not_known() {
        let mut lines = ByLine::new(Seen::default());
        let mut notes = Notes::default();
        lines.feed(b"torn", &mut notes);
        assert!(lines.is_unfinished());
        lines.skip_line();
        lines.feed(b" line\nwhole\n", &mut notes);
        assert_eq!(
            (lines.parser.0.clone(), notes.0, lines.is_unfinished()),
            (vec![b"whole".to_vec()], 0, false)
        );
    }

    #[test]
    fn a_line_over_the_limit_is_noted_once() {
        let mut lines = ByLine::new(Seen::default()).limit(4);
        let mut notes = Notes::default();
        for byte in b"123456789\nok\n" {
            lines.feed(&[*byte], &mut notes);
        }
        assert_eq!((lines.parser.0, notes.0), (vec![b"ok".to_vec()], 1));
    }
}
