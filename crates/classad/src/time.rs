//! Times as text and calendar arithmetic (proleptic Gregorian, no leap seconds). Knows no clock and no zone
//! data: a text without a zone is read as UTC.

use crate::value::AbsTime;
use std::fmt::Write as _;

const DAY: i64 = 86_400;

/// A broken-down time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    /// 0 is Sunday.
    pub(crate) weekday: i64,
    /// 0 is the first of January.
    pub(crate) yearday: i64,
}

/// Days since the epoch of a date; the month may be any number, the day too.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March here, so that the leap day is the last of the year.
    let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The calendar of a moment, already shifted into its zone.
pub(crate) fn civil(secs: i64) -> Civil {
    let days = secs.div_euclid(DAY);
    let rest = secs.rem_euclid(DAY);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let doe = shifted.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    Civil {
        year,
        month,
        day: doy - (153 * mp + 2) / 5 + 1,
        hour: rest / 3600,
        minute: rest % 3600 / 60,
        second: rest % 60,
        weekday: (days + 4).rem_euclid(7),
        yearday: days - days_from_civil(year, 1, 1),
    }
}

/// Seconds since the epoch of a broken-down time in UTC.
pub(crate) fn seconds(c: &Civil) -> i64 {
    days_from_civil(c.year, c.month, c.day) * DAY + c.hour * 3600 + c.minute * 60 + c.second
}

/// The digits at the front, as C's `atoi` reads them.
fn leading_int(bytes: &[u8]) -> i64 {
    bytes.iter().take_while(|b| b.is_ascii_digit()).fold(0, |n, b| n * 10 + i64::from(b - b'0'))
}

/// The zone at the end of the text and the text before it.
fn split_zone(text: &[u8]) -> (&[u8], i64) {
    let text = text.trim_ascii_end();
    let len = text.len();
    if let [head @ .., b'z' | b'Z'] = text {
        return (head, 0);
    }
    let signed = |at: usize, minutes: usize| {
        let secs = leading_int(&text[at + 1..at + 3]) * 3600 + leading_int(&text[minutes..minutes + 2]) * 60;
        if text[at] == b'-' { -secs } else { secs }
    };
    if len >= 5 && matches!(text[len - 5], b'+' | b'-') {
        return (&text[..len - 5], signed(len - 5, len - 2));
    }
    if len >= 6 && matches!(text[len - 6], b'+' | b'-') && text[len - 3] == b':' {
        return (&text[..len - 6], signed(len - 6, len - 2));
    }
    (text, 0)
}

/// Reads an absolute time: digits count, what separates them does not.
pub(crate) fn parse_abs(text: &[u8]) -> Option<AbsTime> {
    let (mut rest, offset) = split_zone(text);
    let mut fields = [0_i64, 1, 0, 0, 0, 0];
    for (field, width) in fields.iter_mut().zip([4, 2, 2, 2, 2, 2]) {
        let skip = rest.iter().position(u8::is_ascii_digit).unwrap_or(rest.len());
        rest = &rest[skip..];
        if rest.len() < width {
            if width == 4 {
                return None;
            }
            break;
        }
        *field = leading_int(&rest[..width]);
        rest = &rest[width..];
    }
    if rest.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let [year, month, day, hour, minute, second] = fields;
    let written = Civil { year, month, day, hour, minute, second, ..Civil::default() };
    let time = AbsTime { secs: seconds(&written) - offset, offset: offset as i32 };
    // Months and days beyond their ranges may lead to a year that no text can say: four digits, and no sign.
    (0..=9_999).contains(&civil(time.secs.saturating_add(offset)).year).then_some(time)
}

/// Reads a relative time from its end: seconds, minutes, hours, days.
pub(crate) fn parse_rel(text: &[u8]) -> Option<f64> {
    let mut rest = text.trim_ascii_end();
    if let [head @ .., b's' | b'S'] = rest {
        rest = head.trim_ascii_end();
    }
    let take = |rest: &mut &[u8], point: bool| {
        let digit = |b: &u8| b.is_ascii_digit() || (point && *b == b'.');
        let start = rest.iter().rposition(|b| !digit(b)).map_or(0, |at| at + 1);
        let number = std::str::from_utf8(&rest[start..]).ok()?;
        *rest = rest[..start].trim_ascii_end();
        if number.is_empty() { Some(0.0) } else { number.parse::<f64>().ok() }
    };
    let mut total = take(&mut rest, true)?;
    for (marks, unit) in
        [([b'm', b'M', b':'], 60.0), ([b'h', b'H', b':'], 3600.0), ([b'd', b'D', b'+'], 86400.0)]
    {
        if let [head @ .., mark] = rest
            && marks.contains(mark)
        {
            rest = head.trim_ascii_end();
            total += take(&mut rest, false)? * unit;
        }
    }
    if let [head @ .., b'-'] = rest {
        rest = head.trim_ascii_end();
        total = -total;
    }
    (rest.is_empty() && total.is_finite()).then_some(total)
}

/// Prints an absolute time without the `absTime("")` around it.
pub(crate) fn format_abs(time: AbsTime, out: &mut String) {
    let c = civil(time.secs.saturating_add(i64::from(time.offset)));
    let _ = write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        c.year, c.month, c.day, c.hour, c.minute, c.second
    );
    let sign = if time.offset > 0 { '+' } else { '-' };
    let zone = time.offset.unsigned_abs();
    let _ = write!(out, "{sign}{:02}:{:02}", zone / 3600, zone % 3600 / 60);
}

/// Prints a relative time without the `relTime("")` around it.
pub(crate) fn format_rel(secs: f64, out: &mut String) {
    if secs < 0.0 {
        out.push('-');
    }
    let secs = secs.abs();
    let whole = secs as i64;
    let (days, hours, minutes) = (whole / DAY, whole % DAY / 3600, whole % 3600 / 60);
    if days > 0 {
        let _ = write!(out, "{days}+");
    }
    if days > 0 || hours > 0 {
        let _ = write!(out, "{hours:02}:");
    }
    if days > 0 || hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes:02}:");
    }
    let text = crate::number::general((whole % 60) as f64 + (secs - secs.floor()), 6, false);
    let _ = write!(out, "{text:0>2}");
}
