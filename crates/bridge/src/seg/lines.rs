//! Bytes to lines, under a limit: a line counts only with its newline.

use super::{Format, LineFormat, Reached, Sink};

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
}

impl<P: LineFormat> ByLine<P> {
    /// Lines for this parser.
    pub fn new(parser: P) -> Self {
        Self { parser, carry: Vec::new(), skipping: false, limit: LINE_BYTES, offset: 0 }
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
                self.parser.at(place);
                self.parser.line(text(&self.carry), sink);
            }
            self.carry.clear();
            // One huge line must not be paid for until the end.
            self.carry.shrink_to(1 << 16);
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.parser.at(begin + start as u64);
            self.parser.line(text(&bytes[start..end]), sink);
            start = end + 1;
        }
        if start < bytes.len() {
            self.keep(&bytes[start..], sink);
        }
    }

    fn pending(&self) -> usize {
        self.carry.len() + usize::from(self.skipping)
    }

    fn reset(&mut self) {
        self.carry.clear();
        self.skipping = false;
        self.parser.reset();
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        self.parser.stamp(text(line))
    }

    fn recall(&mut self, line: &[u8]) {
        self.parser.recall(text(line));
    }

    fn begins(&mut self, head: &[u8], offset: u64) {
        self.offset = offset;
        self.parser.begins(head);
    }

    fn written(&mut self, since: Option<i64>, until: i64) {
        self.parser.written(since, until);
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.parser.settle(sink);
    }

    fn reached(&self) -> Option<Reached> {
        self.parser.reached()
    }

    fn go_on(&mut self, reached: Option<Reached>) {
        self.parser.go_on(reached);
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
        fn line(&mut self, line: &[u8], _: &mut dyn Sink) {
            self.0.push(line.to_vec());
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
    fn a_line_over_the_limit_is_noted_once() {
        let mut lines = ByLine::new(Seen::default()).limit(4);
        let mut notes = Notes::default();
        for byte in b"123456789\nok\n" {
            lines.feed(&[*byte], &mut notes);
        }
        assert_eq!((lines.parser.0, notes.0), (vec![b"ok".to_vec()], 1));
    }
}
