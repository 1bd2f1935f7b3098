//! The times that a crontab's five fields name, in the pool's time zone.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Attributes with the fields, and the numbers each may name.
pub(crate) const FIELDS: [(&str, u32, u32); 5] = [
    ("CronMinute", 0, 59),
    ("CronHour", 0, 23),
    ("CronDayOfMonth", 1, 31),
    ("CronMonth", 1, 12),
    ("CronDayOfWeek", 0, 7),
];

/// Days looked at before a crontab counts as naming no time at all: a 29th of February may be eight years away.
const DAYS: u32 = 8 * 366 + 1;

/// Sets of numbers, one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crontab {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Which of the two kinds of days are limited. When both are, a day of either kind will do, as in crontab(5).
    by_day: bool,
    by_weekday: bool,
}

impl Crontab {
    /// Reads the fields in the order of [`FIELDS`]; `None` when one of them is malformed.
    pub(crate) fn parse(fields: [&str; 5]) -> Option<Self> {
        let mut sets = [0; 5];
        for ((set, text), (_, least, most)) in sets.iter_mut().zip(fields).zip(FIELDS) {
            *set = field(text, least, most)?;
        }
        let [minutes, hours, days, months, weekdays] = sets;
        // Sunday is 0 and 7.
        let weekdays = weekdays | weekdays >> 7 & 1;
        let limited = |text: &str| !text.trim().starts_with('*');
        Some(Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            by_day: limited(fields[2]),
            by_weekday: limited(fields[4]),
        })
    }

    /// The first time after a moment, both in Unix seconds.
    pub(crate) fn next(&self, after: i64, zone: &TimeZone) -> Option<i64> {
        let mut date = Timestamp::from_second(after).ok()?.to_zoned(zone.clone()).date();
        for _ in 0..DAYS {
            if self.names(date) {
                for (hour, minute) in self.times() {
                    let at = date.at(hour, minute, 0, 0).to_zoned(zone.clone()).ok()?.timestamp().as_second();
                    if at > after {
                        return Some(at);
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn names(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        let suits = match (self.by_day, self.by_weekday) {
            (true, true) => day || weekday,
            _ => day && weekday,
        };
        suits && self.months >> date.month() & 1 == 1
    }

    fn times(&self) -> impl Iterator<Item = (i8, i8)> + '_ {
        let hours = (0..24).filter(|h| self.hours >> h & 1 == 1);
        hours.flat_map(|h| (0..60).filter(|m| self.minutes >> m & 1 == 1).map(move |m| (h, m)))
    }
}

/// `*`, `5`, `1-5`, `*/10`, `8-18/2`, and lists of them.
fn field(text: &str, least: u32, most: u32) -> Option<u64> {
    let mut set = 0;
    for item in text.split(',').map(str::trim) {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range.trim(), step.trim().parse().ok().filter(|s| *s > 0)?),
            None => (item, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            None => {
                let only = range.parse().ok()?;
                (only, only)
            }
        };
        if first < least || last > most || first > last {
            return None;
        }
        set |= (first..=last).step_by(step).fold(0, |set, n| set | 1 << n);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(fields: [&str; 5], after: &str, zone: &TimeZone) -> Option<String> {
        let after: jiff::civil::DateTime = after.parse().unwrap();
        let after = after.to_zoned(zone.clone()).unwrap().timestamp().as_second();
        let at = Crontab::parse(fields)?.next(after, zone)?;
        Some(Timestamp::from_second(at).unwrap().to_zoned(zone.clone()).datetime().to_string())
    }

    #[test]
    fn times_by_table() {
        let rows = [
            (["*", "*", "*", "*", "*"], "2026-03-02T10:00:00", Some("2026-03-02T10:01:00")),
            (["*", "*", "*", "*", "*"], "2026-03-02T10:00:59", Some("2026-03-02T10:01:00")),
            (["0,30", "*", "*", "*", "*"], "2026-03-02T10:00:00", Some("2026-03-02T10:30:00")),
            (["*/20", "9-17/4", "*", "*", "*"], "2026-03-02T13:40:00", Some("2026-03-02T17:00:00")),
            (["15", "3", "1", "*", "*"], "2026-12-31T23:59:59", Some("2027-01-01T03:15:00")),
            (["0", "0", "29", "2", "*"], "2026-03-02T10:00:00", Some("2028-02-29T00:00:00")),
            // A Monday; the next Sunday is the 8th, whichever number it has.
            (["0", "0", "*", "*", "0"], "2026-03-02T10:00:00", Some("2026-03-08T00:00:00")),
            (["0", "0", "*", "*", "7"], "2026-03-02T10:00:00", Some("2026-03-08T00:00:00")),
            // Either kind of day will do.
            (["0", "0", "5", "*", "0"], "2026-03-02T10:00:00", Some("2026-03-05T00:00:00")),
            (["0", "0", "30", "2", "*"], "2026-03-02T10:00:00", None),
            (["60", "*", "*", "*", "*"], "2026-03-02T10:00:00", None),
            (["5-1", "*", "*", "*", "*"], "2026-03-02T10:00:00", None),
            (["*/0", "*", "*", "*", "*"], "2026-03-02T10:00:00", None),
            (["", "*", "*", "*", "*"], "2026-03-02T10:00:00", None),
        ];
        for (fields, after, expected) in rows {
            assert_eq!(next(fields, after, &TimeZone::UTC).as_deref(), expected, "{fields:?} after {after}");
        }
    }

    #[test]
    fn a_time_that_summer_time_leaves_out_comes_an_hour_later() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = next(["30", "2", "*", "*", "*"], "2026-03-29T01:00:00", &zone);
        assert_eq!(at.as_deref(), Some("2026-03-29T03:30:00"));
    }
}
