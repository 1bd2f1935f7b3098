//! The generator's output, byte by byte: cut into lines under a limit, and read. Pure.

use crate::seg::{Event, State};

/// Longest line that is read; ids have at most [`ID_BYTES`].
pub const LINE_BYTES: usize = 64 << 10;
/// Longest job id.
pub const ID_BYTES: usize = 4 << 10;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A change of a job.
    Event(Event<'a>),
    /// All that was there has been told.
    Heartbeat,
    /// A message of another type: for readers of a later day.
    Other,
    /// Nothing that the protocol knows.
    Bad,
}

/// Reads a line without its newline.
pub fn read_line(line: &[u8]) -> Line<'_> {
    let Some((kind, rest)) = split(line) else { return Line::Bad };
    let is_type = kind.len() == 3 && kind.iter().all(u8::is_ascii_digit);
    match kind {
        b"001" => read_event(rest).map_or(Line::Bad, Line::Event),
        b"000" if rest.ends_with(b";heartbeat") => Line::Heartbeat,
        _ if is_type && memchr::memchr(0, line).is_none() => Line::Other,
        _ => Line::Bad,
    }
}

fn read_event(rest: &[u8]) -> Option<Event<'_>> {
    let (stamp, rest) = split(rest)?;
    let (id, rest) = split(rest)?;
    let (state, code) = split(rest)?;
    let good = !id.is_empty() && id.len() <= ID_BYTES && memchr::memchr(0, id).is_none();
    let state = State::from_number(i32::try_from(number(state)?).ok()?)?;
    let code = i32::try_from(number(code.strip_suffix(b"\r").unwrap_or(code))?).ok()?;
    let code = if matches!(state, State::Failed | State::Done) { code } else { 0 };
    good.then_some(Event { stamp: number(stamp)?, id, state, code })
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b';', text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// A decimal number that is the whole text.
fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Negative all the way: the lowest number has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Cuts a stream into lines. What is longer than the limit is dropped up to its newline and counted.
#[derive(Debug, Default)]
pub struct Cutter {
    carry: Vec<u8>,
    skipping: bool,
    /// Lines that were too long.
    pub too_long: u64,
}

impl Cutter {
    /// The next bytes; every whole line goes to `take`.
    pub fn feed(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(&[u8])) {
        if !self.carry.is_empty() || self.skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes);
                return;
            };
            self.keep(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if !std::mem::take(&mut self.skipping) {
                take(&self.carry);
            }
            self.carry.clear();
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            take(&bytes[start..end]);
            start = end + 1;
        }
        self.keep(&bytes[start..]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skipping || bytes.is_empty() {
            return;
        }
        if self.carry.len() + bytes.len() > LINE_BYTES {
            self.carry = Vec::new();
            self.skipping = true;
            self.too_long += 1;
            return;
        }
        self.carry.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_other_types_are_left_alone() {
        let event = Event { stamp: 7, id: b"a b\xff", state: State::Done, code: -3 };
        assert_eq!(read_line(b"001;7;a b\xff;8;-3"), Line::Event(event));
        assert_eq!(read_line(b"001;7;a b\xff;8;-3\r"), Line::Event(event));
        for state in [1, 2, 4, 8, 16, 32, 64, 128] {
            let line = format!("001;-5;x;{state};9");
            let Line::Event(event) = read_line(line.as_bytes()) else { panic!("{line}") };
            assert_eq!((event.stamp, event.state.number()), (-5, state));
            assert_eq!(event.code, if matches!(state, 4 | 8) { 9 } else { 0 });
        }
        assert_eq!(read_line(b"002;7;whatever"), Line::Other);
        assert_eq!(read_line(b"200;7"), Line::Other);
    }

    #[test]
    fn what_the_protocol_does_not_know_is_bad() {
        for bad in [
            &b""[..],
            b"001",
            b"1;7;x;8;0",
            b"001;;x;8;0",
            b"001;7;;8;0",
            b"001;7;x;0;0",
            b"001;7;x;3;0",
            b"001;7;x;8;",
            b"001;7;x;8;0x",
            b"001;7;x;8;0;0",
            b"001;7;x\0y;8;0",
            b"001;99999999999999999999;x;8;0",
            b"001;9223372036854775808;x;8;0",
            b"001;7;x;8;2147483648",
            b"001;7;x;-1;0",
            b"001;+7;x;8;0",
            b"002;\0",
            b"\0\0\0",
        ] {
            assert_eq!(read_line(bad), Line::Bad, "{}", String::from_utf8_lossy(bad));
        }
        let long = [&b"001;7;"[..], &vec![b'x'; ID_BYTES], b";8;0"].concat();
        assert!(matches!(read_line(&long), Line::Event(_)));
        let longer = [&b"001;7;"[..], &vec![b'x'; ID_BYTES + 1], b";8;0"].concat();
        assert_eq!(read_line(&longer), Line::Bad);
        assert!(
            matches!(read_line(b"001;-9223372036854775808;x;8;0"), Line::Event(e) if e.stamp == i64::MIN)
        );
    }

    #[test]
    fn any_cut_gives_the_same_lines_and_a_line_without_end_costs_nothing() {
        let mut text = b"one\n\ntwo\n".to_vec();
        text.extend(vec![b'x'; LINE_BYTES + 1]);
        text.extend(b"\nthree\nrest");
        for size in [1, 2, 3, 7, 1_000, LINE_BYTES, text.len()] {
            let mut cutter = Cutter::default();
            let mut lines = Vec::new();
            for piece in text.chunks(size) {
                cutter.feed(piece, &mut |line| {
                    if line.len() <= LINE_BYTES {
                        lines.push(line.to_vec());
                    }
                });
                assert!(cutter.carry.capacity() <= 2 * LINE_BYTES);
            }
            assert_eq!(lines, [&b"one"[..], b"", b"two", b"three"], "pieces of {size}");
            assert_eq!(cutter.carry, b"rest");
        }
    }
}
