//! Local times to seconds since 1970, as the host that wrote the log counts them.
//!
//! A time that does not exist in spring is taken with the offset before the change, as `mktime` of the GNU C library does
//! and so the original. One that exists twice in autumn has two meanings here; [`super::passes`] chooses. The zone is given, never
//! looked up here.

use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// A calendar time with parts that were not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year, 0 to 9999.
    pub year: i16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day; one past the month's end counts into the next month.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 61.
    pub second: u8,
}

type Hour = (i16, u8, u8, u8);

/// Turns local times into seconds. Remembers the last hour, because the lines of a log mostly share it.
#[derive(Debug, Clone)]
pub struct Clock {
    zone: TimeZone,
    hour: Option<(Hour, i64)>,
}

impl Clock {
    /// A clock of this zone.
    pub fn new(zone: TimeZone) -> Self {
        Self { zone, hour: None }
    }

    /// Seconds since 1970 of a time that is not the one of the line: of two, the first that is not before `least`.
    pub fn other(&mut self, civil: Civil, least: i64) -> Option<i64> {
        let (first, second) = self.candidates(civil)?;
        Some(second.filter(|_| first < least).unwrap_or(first))
    }

    /// Seconds since 1970 without regard to order: of two, the first.
    pub fn earliest(&mut self, civil: Civil) -> Option<i64> {
        self.candidates(civil).map(|(first, _)| first)
    }

    /// The second, and where the hour is doubled the same time in its second pass.
    pub fn candidates(&mut self, civil: Civil) -> Option<(i64, Option<i64>)> {
        let hour = (civil.year, civil.month, civil.day, civil.hour);
        let inside = i64::from(civil.minute) * 60 + i64::from(civil.second);
        if let Some((known, start)) = self.hour
            && known == hour
        {
            return Some((start + inside, None));
        }
        // An hour in which the offset changes, or that comes twice, is computed line by line.
        if let ((start, None), (end, None)) = (self.exact(hour, 0, 0)?, self.exact(hour, 59, 59)?)
            && end == start + 3_599
        {
            self.hour = Some((hour, start));
            return Some((start + inside, None));
        }
        let over = civil.second.saturating_sub(59);
        let (first, second) = self.exact(hour, civil.minute, civil.second - over)?;
        let over = i64::from(over);
        Some((first + over, second.map(|second| second + over)))
    }

    fn exact(&self, (year, month, day, hour): Hour, minute: u8, second: u8) -> Option<(i64, Option<i64>)> {
        let first = Date::new(year, month as i8, 1).ok()?;
        let date = first.checked_add(jiff::Span::new().days(i64::from(day) - 1)).ok()?;
        let time = Time::new(hour as i8, minute as i8, second as i8, 0).ok()?;
        let moment = self.zone.to_ambiguous_timestamp(date.to_datetime(time));
        let is_doubled = matches!(moment.offset(), AmbiguousOffset::Fold { .. });
        let later = if is_doubled { Some(moment.later().ok()?.as_second()) } else { None };
        Some((moment.compatible().ok()?.as_second(), later))
    }

    /// A moment as people write it, without its zone.
    pub fn local(&self, seconds: i64) -> String {
        let moment = jiff::Timestamp::from_second(seconds);
        moment.map_or_else(|_| seconds.to_string(), |moment| self.zone.to_datetime(moment).to_string())
    }

    /// The local day of a moment as `YYYYMMDD`.
    pub fn day(&self, seconds: i64) -> Option<u32> {
        let date = self.zone.to_datetime(jiff::Timestamp::from_second(seconds).ok()?);
        u32::try_from(i32::from(date.year()) * 10_000 + i32::from(date.month()) * 100 + i32::from(date.day()))
            .ok()
    }
}

/// The day after `YYYYMMDD`.
pub fn next_day(day: u32) -> Option<u32> {
    shift(day, 1)
}

/// The day before `YYYYMMDD`.
pub fn previous_day(day: u32) -> Option<u32> {
    shift(day, -1)
}

fn shift(day: u32, by: i64) -> Option<u32> {
    let date = Date::new((day / 10_000) as i16, (day / 100 % 100) as i8, (day % 100) as i8).ok()?;
    let date = date.checked_add(jiff::Span::new().days(by)).ok()?;
    u32::try_from(i32::from(date.year()) * 10_000 + i32::from(date.month()) * 100 + i32::from(date.day()))
        .ok()
}

/// One number of a time: blanks before it, no more digits than `digits`, none that would lead beyond `most`.
fn part<'a>(text: &mut &'a [u8], least: u32, most: u32, digits: usize) -> Option<u32> {
    let mut rest: &'a [u8] = super::number::skip_blanks(text);
    let (mut value, mut count) = (0u32, 0);
    while let [digit @ b'0'..=b'9', after @ ..] = rest
        && count < digits
        && (count == 0 || value * 10 <= most)
    {
        value = value * 10 + u32::from(digit - b'0');
        count += 1;
        rest = after;
    }
    *text = rest;
    (count > 0 && (least..=most).contains(&value)).then_some(value)
}

/// A separator; blanks may stand before it.
fn sign(text: &mut &[u8], expected: u8) -> Option<()> {
    *text = super::number::skip_blanks(text);
    let (first, rest) = text.split_first()?;
    *text = rest;
    (*first == expected).then_some(())
}

fn of_day(text: &mut &[u8], year: u32, month: u32, day: u32) -> Option<Civil> {
    let hour = part(text, 0, 23, 2)?;
    sign(text, b':')?;
    let minute = part(text, 0, 59, 2)?;
    sign(text, b':')?;
    let second = part(text, 0, 61, 2)?;
    Some(Civil {
        year: year as i16,
        month: month as u8,
        day: day as u8,
        hour: hour as u8,
        minute: minute as u8,
        second: second as u8,
    })
}

/// `MM/DD/YYYY HH:MM:SS`; behind it may stand blanks, or a `.` and anything.
pub fn american(mut text: &[u8]) -> Option<Civil> {
    let text = &mut text;
    *text = super::number::skip_blanks(text);
    let month = part(text, 1, 12, 2)?;
    sign(text, b'/')?;
    let day = part(text, 1, 31, 2)?;
    sign(text, b'/')?;
    let year = part(text, 0, 9_999, 4)?;
    *text = super::number::skip_blanks(text);
    let civil = of_day(text, year, month, day)?;
    super::number::skip_blanks(text).first().is_none_or(|b| *b == b'.').then_some(civil)
}

/// `YYYY-MM-DDTHH:MM:SS`; what stands behind it is not looked at.
pub fn iso(mut text: &[u8]) -> Option<Civil> {
    let text = &mut text;
    let year = part(text, 0, 9_999, 4)?;
    sign(text, b'-')?;
    let month = part(text, 1, 12, 2)?;
    sign(text, b'-')?;
    let day = part(text, 1, 31, 2)?;
    sign(text, b'T')?;
    of_day(text, year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_a_doubled_hour_has_two_meanings() {
        let first = 1_730_610_000;
        let mut clock = Clock::new(TimeZone::get("America/New_York").unwrap());
        let time = american(b"11/03/2024 01:10:00").unwrap();
        assert_eq!(clock.candidates(time), Some((first + 600, Some(first + 4_200))));
        assert_eq!(clock.earliest(time), Some(first + 600));
        assert_eq!(
            (clock.other(time, first + 600), clock.other(time, first + 601)),
            (Some(first + 600), Some(first + 4_200))
        );
        let leap = american(b"11/03/2024 01:10:61").unwrap();
        assert_eq!(clock.candidates(leap), Some((first + 661, Some(first + 4_261))));
        assert_eq!(clock.candidates(american(b"11/03/2024 02:00:00").unwrap()), Some((first + 7_200, None)));
        assert_eq!(
            (clock.local(first), clock.local(i64::MAX)),
            ("2024-11-03T01:00:00".into(), i64::MAX.to_string())
        );
    }

    #[test]
    fn changes_of_clocks_are_resolved_as_mktime_does() {
        let mut clock = Clock::new(TimeZone::get("America/New_York").unwrap());
        let mut at = |text: &str| clock.earliest(american(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(at("03/10/2024 02:30:00"), at("03/10/2024 03:30:00"));
        assert_eq!(at("11/03/2024 01:30:00") + 2 * 3_600, at("11/03/2024 02:30:00"));
        // Half an hour in the middle of an hour.
        let mut clock = Clock::new(TimeZone::get("Australia/Lord_Howe").unwrap());
        let mut at = |text: &str| clock.earliest(american(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(at("10/06/2024 02:31:00") - at("10/06/2024 01:59:00"), 120);
        assert_eq!(at("10/06/2024 02:31:61") - at("10/06/2024 02:31:59"), 2);
    }

    #[test]
    fn odd_times_are_read_or_refused() {
        let mut clock = Clock::new(TimeZone::UTC);
        let mut at = |text: &str| american(text.as_bytes()).and_then(|c| clock.earliest(c));
        assert_eq!(at("1/2/2024 3:4:5"), Some(1_704_164_645));
        assert_eq!(at("02/30/2024 00:00:00"), at("03/01/2024 00:00:00"));
        assert_eq!(at("03/01/2024 18:00:60"), Some(1_709_316_060));
        assert_eq!(at("03/01/2024 18:00:13.9999"), Some(1_709_316_013));
        assert_eq!(at("\t03/\x0b1\r/\t2024\t \x0c18\t:\t00:\t13\t"), Some(1_709_316_013));
        assert_eq!(at("12/31/2024 23:59:61"), Some(1_735_689_601));
        for bad in [
            "",
            "13/01/2024 00:00:00",
            "03/01/2024 24:00:00",
            "03/01/2024 18:00:14Z",
            "3/1/2024",
            "03/01/2024 18:00:1 4",
            "00/01/2024 00:00:00",
            "03/00/2024 00:00:00",
            "03/32/2024 00:00:00",
            "03/01/2024 00:60:00",
            "03/01/2024 00:00:62",
            "03-01-2024 00:00:00",
            "03/01/2024 00.00.00",
            "03//2024 00:00:00",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_number_ends_before_the_digit_that_would_lead_too_far() {
        // As `strptime` reads it; nobody looks at what stands behind.
        assert_eq!(iso(b"2024-08-01T08:13:75").unwrap().second, 7);
        assert_eq!(iso(b"2024-08-01T08:13:61").unwrap().second, 61);
        assert_eq!(iso(b"2024-08-01T08:13:62"), None);
    }

    #[test]
    fn days_follow_each_other() {
        assert_eq!(next_day(20_240_228), Some(20_240_229));
        assert_eq!(next_day(20_231_231), Some(20_240_101));
        assert_eq!(previous_day(20_240_301), Some(20_240_229));
        assert_eq!(next_day(20_241_399), None);
        assert_eq!(Clock::new(TimeZone::UTC).day(1_709_251_200), Some(20_240_301));
    }

    #[test]
    fn every_part_of_a_time_has_two_digits_at_most() {
        assert!(iso(b"2024-08-01T08:13:02").is_some() && american(b"8/1/2024 8:3:2").is_some());
        for text in
            ["2024-008-01T08:13:02", "2024-08-001T08:13:02", "2024-08-01T008:13:02", "2024-08-01T08:013:02"]
        {
            assert_eq!(iso(text.as_bytes()), None, "{text}");
        }
        for text in
            ["008/01/2024 08:13:02", "08/001/2024 08:13:02", "08/01/2024 008:13:02", "08/01/2024 08:013:02"]
        {
            assert_eq!(american(text.as_bytes()), None, "{text}");
        }
        for text in
            ["2024-13-01T08:13:02", "2024-08-32T08:13:02", "2024-08-01T24:13:02", "2024-08-01T08:60:02"]
        {
            assert_eq!(iso(text.as_bytes()), None, "{text}");
        }
    }
}
