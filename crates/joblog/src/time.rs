//! Time stamps and processor times as the log writes them.

use std::fmt::Write as _;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use crate::event::Usage;

/// A moment; the log knows seconds, and milliseconds if it was told to write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Milliseconds, when they are known.
    pub millis: Option<u16>,
}

impl Stamp {
    /// A moment in whole seconds.
    pub fn at(seconds: i64) -> Self {
        Self { seconds, millis: None }
    }

    /// The moment as a calendar shows it.
    fn civil(self, zone: &TimeZone) -> DateTime {
        let moment = jiff::Timestamp::from_second(self.seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        zone.to_datetime(moment)
    }

    /// `2026-03-02T10:00:00`, with milliseconds if they are known.
    pub fn iso(self, zone: &TimeZone) -> String {
        self.text(zone, 'T')
    }

    pub(crate) fn text(self, zone: &TimeZone, between: char) -> String {
        let c = self.civil(zone);
        let mut out = format!(
            "{:04}-{:02}-{:02}{between}{:02}:{:02}:{:02}",
            c.year(),
            c.month(),
            c.day(),
            c.hour(),
            c.minute(),
            c.second()
        );
        if let Some(millis) = self.millis {
            let _ = write!(out, ".{millis:03}");
        }
        out
    }

    /// `03/02 10:00:00`, without a year.
    pub(crate) fn legacy(self, zone: &TimeZone) -> String {
        self.text(zone, ' ').get(5..).unwrap_or("").replacen('-', "/", 1)
    }
}

/// Clocks of writers differ: an event may be so much later than the log's last change.
const SLACK: i64 = 86_400;

/// The year of a date that is written without one: the newest that puts it not after `newest`, when the log was last
/// changed, plus a day. This is the one rule for all readers of such logs.
pub fn year_of(month: i8, day: i8, time: Time, zone: &TimeZone, newest: i64) -> Option<i16> {
    let newest = newest.saturating_add(SLACK);
    let last = zone.to_datetime(jiff::Timestamp::from_second(newest).ok()?).year();
    // Eight years back there is a leap year, for the 29th of February.
    (0..=8).map(|back| last - back).find(|year| {
        let moment = Date::new(*year, month, day).and_then(|date| zone.to_timestamp(date.to_datetime(time)));
        moment.is_ok_and(|moment| moment.as_second() <= newest)
    })
}

/// Reads the date and time of a header; returns the stamp and how many bytes it took.
pub(crate) fn stamp(text: &str, zone: &TimeZone, newest: i64) -> Option<(Stamp, usize)> {
    let mut cursor = Cursor { rest: text };
    let first = cursor.number()?;
    let (year, month, day) = if cursor.take('/') {
        (None, first, cursor.number()?)
    } else {
        cursor.expect('-')?;
        let month = cursor.number()?;
        cursor.expect('-')?;
        (Some(i16::try_from(first).ok()?), month, cursor.number()?)
    };
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    if !cursor.take('T') {
        cursor.expect(' ')?;
    }
    let hour = cursor.number()?;
    cursor.expect(':')?;
    let minute = cursor.number()?;
    cursor.expect(':')?;
    // A leap second has no place in seconds since 1970.
    let second = cursor.number()?.min(59);
    let millis = if cursor.take('.') {
        let before = cursor.rest.len();
        let fraction = cursor.number()?;
        match before - cursor.rest.len() {
            1 => Some(fraction as u16 * 100),
            2 => Some(fraction as u16 * 10),
            3 => Some(fraction as u16),
            digits => Some(u16::try_from(u64::from(fraction) / 10u64.checked_pow(digits as u32 - 3)?).ok()?),
        }
    } else {
        None
    };
    let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, second as i8, 0).ok()?;
    let year = match year {
        Some(year) => year,
        None => year_of(month, day, time, zone, newest)?,
    };
    let civil = Date::new(year, month, day).ok()?.to_datetime(time);
    let zone = if cursor.take('Z') { &TimeZone::UTC } else { zone };
    let seconds = zone.to_timestamp(civil).ok()?.as_second();
    Some((Stamp { seconds, millis }, text.len() - cursor.rest.len()))
}

struct Cursor<'a> {
    rest: &'a str,
}

impl Cursor<'_> {
    fn number(&mut self) -> Option<u32> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let value = self.rest.get(..digits)?.parse().ok().filter(|n| digits <= 9 && *n <= 999_999_999)?;
        self.rest = &self.rest[digits..];
        Some(value)
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }
}

impl Usage {
    /// `Usr 0 00:00:12, Sys 0 00:00:01`
    pub fn text(self) -> String {
        let span = |s: u64| format!("{} {:02}:{:02}:{:02}", s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60);
        format!("Usr {}, Sys {}", span(self.user), span(self.system))
    }

    /// Reads `Usr D HH:MM:SS, Sys D HH:MM:SS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (user, system) = text.trim().strip_prefix("Usr ")?.split_once(", Sys ")?;
        let span = |text: &str| -> Option<u64> {
            let (days, clock) = text.trim().split_once(' ')?;
            let mut parts = clock.split(':').map(str::parse::<u64>);
            let (h, m, s) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
            let days = days.parse::<u64>().ok()?;
            days.checked_mul(86_400)?
                .checked_add(h.checked_mul(3_600)?)?
                .checked_add(m.checked_mul(60)?)?
                .checked_add(s)
        };
        Some(Self { user: span(user)?, system: span(system)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_several_dates() {
        let utc = TimeZone::UTC;
        let read = |text| stamp(text, &utc, 1_798_761_599).map(|(s, used)| (s.seconds, s.millis, used));
        assert_eq!(read("2026-03-02 10:00:00 x"), Some((1_772_445_600, None, 19)));
        assert_eq!(read("2026-03-02T10:00:00.250Z x"), Some((1_772_445_600, Some(250), 24)));
        assert_eq!(read("03/02 10:00:00.75"), Some((1_772_445_600, Some(750), 17)));
        let east = TimeZone::fixed(jiff::tz::Offset::constant(2));
        assert_eq!(stamp("2026-03-02 12:00:00", &east, 1_798_761_599).unwrap().0.seconds, 1_772_445_600);
        assert_eq!(stamp("2026-03-02 10:00:00Z", &east, 1_798_761_599).unwrap().0.seconds, 1_772_445_600);
        for bad in ["", "2026-13-02 10:00:00", "2026-03-02", "99/99 10:00:00", "2026-03-02 25:00:00", "x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(Stamp::at(1_772_445_600).iso(&east), "2026-03-02T12:00:00");
        assert_eq!(Stamp::at(1_772_445_600).legacy(&utc), "03/02 10:00:00");
    }

    #[test]
    fn processor_times_survive() {
        let usage = Usage { user: 90_061, system: 59 };
        assert_eq!(usage.text(), "Usr 1 01:01:01, Sys 0 00:00:59");
        assert_eq!(Usage::parse(&usage.text()), Some(usage));
        assert_eq!(Usage::parse("Usr x"), None);
    }
}
