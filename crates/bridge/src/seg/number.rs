//! Numbers as the C library reads them: the original's parsers lean on `strtol` and `scanf`, and so do the logs.

/// Blanks as `isspace` of the C locale sees them.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The text behind leading blanks.
pub(crate) fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|b| is_blank(**b)).count();
    &text[blanks..]
}

/// A decimal number at the start of `text`, blanks and a sign before it allowed; out of range it sticks to the end of
/// the range. Returns the rest.
pub(crate) fn long(text: &[u8]) -> Option<(i64, &[u8])> {
    let text = skip_blanks(text);
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let mut value = 0i64;
    for digit in &digits[..count] {
        let digit = i64::from(digit - b'0');
        let next = value.checked_mul(10);
        value = if negative {
            next.and_then(|v| v.checked_sub(digit)).unwrap_or(i64::MIN)
        } else {
            next.and_then(|v| v.checked_add(digit)).unwrap_or(i64::MAX)
        };
        // Once at the end of the range it stays there.
        if value == i64::MAX || value == i64::MIN {
            break;
        }
    }
    Some((value, &digits[count..]))
}

/// The same, cut to an `int` as the original cuts it.
pub(crate) fn int(text: &[u8]) -> Option<(i32, &[u8])> {
    long(text).map(|(value, rest)| (value as i32, rest))
}

/// A number that is the whole of `text`.
pub(crate) fn whole(text: &[u8]) -> Option<i64> {
    long(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_does() {
        assert_eq!(long(b" +5x"), Some((5, &b"x"[..])));
        assert_eq!(long(b"-0007"), Some((-7, &b""[..])));
        assert_eq!(long(b"99999999999999999999;"), Some((i64::MAX, &b";"[..])));
        assert_eq!(long(b"-99999999999999999999"), Some((i64::MIN, &b""[..])));
        assert_eq!(int(b"2147483648").unwrap().0, i32::MIN);
        assert_eq!(int(b"99999999999").unwrap().0, 1_215_752_191);
        for bad in [&b""[..], b" ", b"+", b"-x", b"x1"] {
            assert_eq!(long(bad), None);
        }
        assert_eq!(whole(b"12"), Some(12));
        assert_eq!(whole(b"12\r"), None);
    }
}
