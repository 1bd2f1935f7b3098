//! Numbers to text and back, the C way: `%.15E`, `%g` and the prefix rules of `strtod`.

/// `%1.15E`: one digit, fifteen decimals, exponent of at least two digits.
pub(crate) fn scientific(value: f64) -> String {
    let text = format!("{value:.15E}");
    let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}E{sign}{digits:0>2}")
}

/// `%.{precision}g` or `G`: the shorter of plain and scientific, without trailing zeros.
pub(crate) fn general(value: f64, precision: usize, upper: bool) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    if !value.is_finite() {
        let text = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return if upper { text.to_ascii_uppercase() } else { text.into() };
    }
    let rounded = format!("{:.*e}", precision - 1, value);
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        let e = if upper { 'E' } else { 'e' };
        return format!("{}{e}{sign}{:02}", trim(mantissa), exponent.unsigned_abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.decimals$}"))
}

/// The number at the front of the text, as C's `strtod` finds it, and how many bytes it took.
pub(crate) fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let mut at = text.iter().take_while(|b| b.is_ascii_whitespace() || **b == 0x0b).count();
    let start = at;
    let negative = text.get(at) == Some(&b'-');
    if matches!(text.get(at), Some(b'+' | b'-')) {
        at += 1;
    }
    let sign = if negative { -1.0 } else { 1.0 };
    let rest = &text[at..];
    let word = |word: &[u8]| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word);
    if word(b"infinity") {
        return Some((sign * f64::INFINITY, at + 8));
    }
    if word(b"inf") {
        return Some((sign * f64::INFINITY, at + 3));
    }
    if word(b"nan") {
        return Some((sign * f64::NAN, at + 3));
    }
    if word(b"0x")
        && let Some((value, used)) = hex_float(&rest[2..])
    {
        return Some((sign * value, at + 2 + used));
    }
    let digits = |from: usize| text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(at);
    at += whole;
    let mut fraction = 0;
    if text.get(at) == Some(&b'.') {
        fraction = digits(at + 1);
        if whole + fraction > 0 {
            at += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + signed);
        if exponent > 0 {
            at += 1 + signed + exponent;
        }
    }
    let value = std::str::from_utf8(&text[start..at]).ok()?.parse().ok()?;
    Some((value, at))
}

/// Hexadecimal digits with an optional point and binary exponent.
fn hex_float(text: &[u8]) -> Option<(f64, usize)> {
    let (mut value, mut at, mut seen, mut scale, mut point) = (0.0_f64, 0, false, 0_i32, false);
    while let Some(&byte) = text.get(at) {
        if byte == b'.' && !point {
            point = true;
        } else if let Some(digit) = (byte as char).to_digit(16) {
            value = value * 16.0 + f64::from(digit);
            seen = true;
            if point {
                scale -= 4;
            }
        } else {
            break;
        }
        at += 1;
    }
    if !seen {
        return None;
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let signed = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let digits = text[at + 1 + signed..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 0 {
            let number = std::str::from_utf8(&text[at + 1..at + 1 + signed + digits]).unwrap_or("0");
            scale = scale.saturating_add(number.trim_start_matches('+').parse().unwrap_or(0));
            at += 1 + signed + digits;
        }
    }
    Some((value * 2.0_f64.powi(scale), at))
}
