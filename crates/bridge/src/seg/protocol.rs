//! The protocol: what an event is and how its line looks, byte for byte.

/// Job states with the integers of the GRAM protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waits.
    Pending,
    /// Runs.
    Active,
    /// Was cancelled or could not run.
    Failed,
    /// Ran to its end, whatever its exit code.
    Done,
    /// Was stopped and may go on.
    Suspended,
    /// Not yet given to the scheduler.
    Unsubmitted,
    /// Its input is on its way.
    StageIn,
    /// Its output is on its way.
    StageOut,
}

impl State {
    /// The integer on the line.
    pub fn number(self) -> i32 {
        match self {
            Self::Pending => 1,
            Self::Active => 2,
            Self::Failed => 4,
            Self::Done => 8,
            Self::Suspended => 16,
            Self::Unsubmitted => 32,
            Self::StageIn => 64,
            Self::StageOut => 128,
        }
    }

    /// The state with this integer.
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Pending,
            2 => Self::Active,
            4 => Self::Failed,
            8 => Self::Done,
            16 => Self::Suspended,
            32 => Self::Unsubmitted,
            64 => Self::StageIn,
            128 => Self::StageOut,
            _ => return None,
        })
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Suspended => "suspended",
            Self::Unsubmitted => "unsubmitted",
            Self::StageIn => "stage_in",
            Self::StageOut => "stage_out",
        }
    }

    /// Readers of the classic protocol know only these four.
    pub fn is_classic(self) -> bool {
        self.number() <= 8
    }
}

/// A change of one job's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Seconds since 1970.
    pub stamp: i64,
    /// The scheduler's own id of the job: any bytes but `;` and newline.
    pub id: &'a [u8],
    /// The new state.
    pub state: State,
    /// Exit code or reason; only [`State::Failed`] and [`State::Done`] have one.
    pub code: i32,
}

impl Event<'_> {
    fn code(&self) -> i32 {
        if matches!(self.state, State::Failed | State::Done) { self.code } else { 0 }
    }

    /// True when the id can stand on a line: a `;` or a newline in it would make a reader see another event.
    pub fn is_writable(&self) -> bool {
        !self.id.is_empty() && memchr::memchr2(b';', b'\n', self.id).is_none()
    }

    /// Appends `001;stamp;id;state;code` and a newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"001;");
        write_number(out, self.stamp);
        out.push(b';');
        out.extend_from_slice(self.id);
        out.push(b';');
        write_number(out, i64::from(self.state.number()));
        out.push(b';');
        write_number(out, i64::from(self.code()));
        out.push(b'\n');
    }

    /// Appends the event as a JSON object and a newline. Bytes of the id that are not UTF-8 become U+FFFD.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":");
        write_number(out, self.stamp);
        out.extend_from_slice(b",\"id\":");
        write_text(out, self.id);
        out.extend_from_slice(b",\"state\":\"");
        out.extend_from_slice(self.state.name().as_bytes());
        out.extend_from_slice(b"\",\"code\":");
        write_number(out, i64::from(self.code()));
        out.extend_from_slice(b"}\n");
    }
}

/// A line `NNN;stamp;...` that is not about a change of a job: only modules of others have such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Seconds since 1970.
    pub stamp: i64,
    /// The whole line without its newline.
    pub line: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a line with three digits, a stamp and anything behind it.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (kind, rest) = line.split_at_checked(3)?;
        let (stamp, rest) = super::number::long(rest.strip_prefix(b";")?)?;
        let is_message =
            kind.iter().all(u8::is_ascii_digit) && rest.first() == Some(&b';') && !line.contains(&0);
        is_message.then_some(Self { stamp, line })
    }

    /// Appends the line and a newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.line);
        out.push(b'\n');
    }

    /// Appends the message as a JSON object and a newline.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":");
        write_number(out, self.stamp);
        out.extend_from_slice(b",\"message\":");
        write_text(out, self.line);
        out.extend_from_slice(b"}\n");
    }
}

/// A JSON string. Bytes that are not UTF-8 become U+FFFD.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Decimal digits without the formatting machinery, which would cost as much as the rest of the line.
fn write_number(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stamp: i64, id: &[u8], state: State, code: i32) -> Vec<u8> {
        let mut out = Vec::new();
        Event { stamp, id, state, code }.write_line(&mut out);
        out
    }

    #[test]
    fn lines_are_byte_for_byte() {
        assert_eq!(line(1_700_000_000, b"1.svr", State::Pending, 7), b"001;1700000000;1.svr;1;0\n");
        assert_eq!(line(0, b"a b\xff", State::Active, -1), b"001;0;a b\xff;2;0\n");
        assert_eq!(
            line(i64::MIN, b"x", State::Failed, i32::MIN),
            b"001;-9223372036854775808;x;4;-2147483648\n"
        );
        assert_eq!(line(i64::MAX, b"x", State::Done, 271), b"001;9223372036854775807;x;8;271\n");
        assert_eq!(line(5, b"x", State::Suspended, 1), b"001;5;x;16;0\n");
    }

    #[test]
    fn ids_cannot_forge_events() {
        for (id, good) in
            [(&b"1"[..], true), (b"", false), (b"a;b", false), (b"a\nb", false), (b"%s%n", true)]
        {
            assert_eq!(Event { stamp: 1, id, state: State::Done, code: 0 }.is_writable(), good);
        }
    }

    #[test]
    fn json_is_escaped() {
        let mut out = Vec::new();
        Event { stamp: 1, id: b"a\"\\\x01\xff", state: State::Done, code: -3 }.write_json(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"time\":1,\"id\":\"a\\\"\\\\\\u0001\u{fffd}\",\"state\":\"done\",\"code\":-3}\n");
    }

    #[test]
    fn messages_have_three_digits_and_a_stamp() {
        for (line, stamp) in [("002;5;x", Some(5)), ("999;-7;", Some(-7)), ("001; 8;a;2;0", Some(8))] {
            assert_eq!(Message::parse(line.as_bytes()).map(|m| m.stamp), stamp, "{line}");
        }
        for bad in ["", "02;5;x", "0002;5;x", "a02;5;x", "002;x;y", "002;5", "002 5;x", "002;5;\0", "002;5:"]
        {
            assert_eq!(Message::parse(bad.as_bytes()), None, "{bad}");
        }
        let message = Message::parse(b"002;5;a\"b").unwrap();
        let (mut line, mut json) = (Vec::new(), Vec::new());
        message.write_line(&mut line);
        message.write_json(&mut json);
        assert_eq!(line, b"002;5;a\"b\n");
        assert_eq!(json, b"{\"time\":5,\"message\":\"002;5;a\\\"b\"}\n");
    }

    #[test]
    fn states_have_their_integers() {
        for bit in 0..8 {
            assert_eq!(State::from_number(1 << bit).unwrap().number(), 1 << bit);
        }
        assert_eq!(State::from_number(3), None);
        assert!(State::Done.is_classic() && !State::Suspended.is_classic());
    }
}
