//! The part of C's `printf` that formats one number or text, for `$INT`, `$REAL` and `$STRING`.

/// Widest field that a format may ask for.
const WIDTH: usize = 1_000;

struct Spec<'a> {
    before: String,
    left: bool,
    zero: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
    after: &'a str,
}

fn spec(format: &str) -> Result<Spec<'_>, String> {
    let wrong = || format!("{format:?} is not a format such as %04d");
    let mut before = String::new();
    let mut rest = format;
    loop {
        let at = rest.find('%').ok_or_else(wrong)?;
        before.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix('%') {
            Some(more) => {
                before.push('%');
                rest = more;
            }
            None => break,
        }
    }
    let mut s = Spec {
        before,
        left: false,
        zero: false,
        plus: false,
        blank: false,
        alternate: false,
        width: 0,
        precision: None,
        kind: ' ',
        after: "",
    };
    while let Some(flag) = rest.chars().next().filter(|c| "-0+ #".contains(*c)) {
        match flag {
            '-' => s.left = true,
            '0' => s.zero = true,
            '+' => s.plus = true,
            ' ' => s.blank = true,
            _ => s.alternate = true,
        }
        rest = &rest[1..];
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n <= WIDTH).ok_or_else(wrong);
    let n = digits(rest);
    if n > 0 {
        s.width = number(&rest[..n])?;
        rest = &rest[n..];
    }
    if let Some(more) = rest.strip_prefix('.') {
        let n = digits(more);
        s.precision = Some(if n == 0 { 0 } else { number(&more[..n])? });
        rest = &more[n..];
    }
    rest = rest.trim_start_matches(['l', 'h', 'z', 'j', 't', 'L']);
    s.kind = rest.chars().next().ok_or_else(wrong)?;
    s.after = &rest[s.kind.len_utf8()..];
    if s.after.replace("%%", "").contains('%') {
        return Err(wrong());
    }
    Ok(s)
}

impl Spec<'_> {
    fn finish(&self, negative: bool, digits: &str, is_number: bool) -> String {
        let sign = match (is_number, negative, self.plus, self.blank) {
            (true, true, _, _) => "-",
            (true, _, true, _) => "+",
            (true, _, _, true) => " ",
            _ => "",
        };
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        let field = if self.left {
            format!("{sign}{digits}{}", " ".repeat(missing))
        } else if self.zero && is_number {
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            format!("{}{sign}{digits}", " ".repeat(missing))
        };
        format!("{}{field}{}", self.before, self.after.replace("%%", "%"))
    }
}

/// Formats an integer.
pub(crate) fn integer(format: &str, value: i64) -> Result<String, String> {
    let mut s = spec(format)?;
    let magnitude = value.unsigned_abs();
    let (negative, digits) = match s.kind {
        'd' | 'i' | 's' => (value < 0, magnitude.to_string()),
        'u' => (false, (value as u64).to_string()),
        'x' => (false, format!("{}{value:x}", if s.alternate { "0x" } else { "" })),
        'X' => (false, format!("{}{value:X}", if s.alternate { "0X" } else { "" })),
        'o' => (false, format!("{value:o}")),
        _ => return real(format, value as f64),
    };
    let short = s.precision.unwrap_or(0).saturating_sub(digits.len());
    if s.precision.is_some() {
        s.zero = false;
    }
    Ok(s.finish(negative, &format!("{}{digits}", "0".repeat(short)), true))
}

/// Formats a real number.
pub(crate) fn real(format: &str, value: f64) -> Result<String, String> {
    let s = spec(format)?;
    let magnitude = value.abs();
    let precision = s.precision.unwrap_or(6).min(64);
    let digits = if value.is_finite() {
        match s.kind {
            'f' | 'F' => format!("{magnitude:.precision$}"),
            'e' => exponent(magnitude, precision, 'e'),
            'E' => exponent(magnitude, precision, 'E'),
            'g' => general(magnitude, precision.max(1), 'e'),
            'G' => general(magnitude, precision.max(1), 'E'),
            _ => return Err(format!("{format:?} is not a format for a real number")),
        }
    } else if value.is_nan() {
        "nan".into()
    } else {
        "inf".into()
    };
    Ok(s.finish(value.is_sign_negative() && !value.is_nan(), &digits, true))
}

/// Formats a text.
pub(crate) fn string(format: &str, value: &str) -> Result<String, String> {
    let s = spec(format)?;
    if s.kind != 's' {
        return Err(format!("{format:?} is not a format for a text"));
    }
    let cut: String = value.chars().take(s.precision.unwrap_or(usize::MAX)).collect();
    Ok(s.finish(false, &cut, false))
}

fn exponent(value: f64, precision: usize, letter: char) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    format!("{mantissa}{letter}{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn general(value: f64, precision: usize, letter: char) -> String {
    let scientific = exponent(value, precision - 1, letter);
    let power: i32 = scientific.split_once(letter).and_then(|(_, p)| p.parse().ok()).unwrap_or(0);
    let trim = |text: &str| {
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        text.to_owned()
    };
    if power < -4 || power >= precision as i32 {
        let (mantissa, rest) = scientific.split_once(letter).unwrap_or((&scientific, "+00"));
        format!("{}{letter}{rest}", trim(mantissa))
    } else {
        let decimals = (precision as i32 - 1 - power).max(0) as usize;
        trim(&format!("{value:.decimals$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_c() {
        assert_eq!(integer("%04d", 7).unwrap(), "0007");
        assert_eq!(integer("%+5d|", 7).unwrap(), "   +7|");
        assert_eq!(integer("%-5dx", -7).unwrap(), "-7   x");
        assert_eq!(integer("%.3d", 7).unwrap(), "007");
        assert_eq!(integer("a%%%xb", 255).unwrap(), "a%ffb");
        assert_eq!(integer("%ld", i64::MIN).unwrap(), i64::MIN.to_string());
        assert_eq!(real("%.2f", 7.5).unwrap(), "7.50");
        assert_eq!(real("%.16G", 7.5).unwrap(), "7.5");
        assert_eq!(real("%.16G", 0.1 + 0.2).unwrap(), "0.3");
        assert_eq!(real("%g", 1e20).unwrap(), "1e+20");
        assert_eq!(real("%08.3f", -1.5).unwrap(), "-001.500");
        assert_eq!(string("%5.2s|", "abc").unwrap(), "   ab|");
        for bad in ["", "%", "%d%d", "%9999999999d", "x"] {
            assert!(integer(bad, 1).is_err(), "{bad}");
        }
    }
}
