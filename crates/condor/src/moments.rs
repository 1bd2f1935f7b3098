//! Times and durations as HTCondor's tables have them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

fn zoned(seconds: i64, zone: &TimeZone) -> Option<jiff::Zoned> {
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone()))
}

/// `11/15 20:41`
pub(crate) fn day_and_minute(seconds: i64, zone: &TimeZone) -> String {
    let text = |t: jiff::Zoned| format!("{:2}/{:<2} {:02}:{:02}", t.month(), t.day(), t.hour(), t.minute());
    zoned(seconds, zone).map_or_else(|| "???".to_owned(), text)
}

/// `11/15/26 20:41:11`
pub(crate) fn whole(seconds: i64, zone: &TimeZone) -> String {
    let text = |t: jiff::Zoned| {
        let (year, month, day) = (t.year() % 100, t.month(), t.day());
        format!("{month:02}/{day:02}/{year:02} {:02}:{:02}:{:02}", t.hour(), t.minute(), t.second())
    };
    zoned(seconds, zone).map_or_else(|| "???".to_owned(), text)
}

/// `11/15/2026 20:41`
pub(crate) fn year_to_minute(seconds: i64, zone: &TimeZone) -> String {
    let text = |t: jiff::Zoned| {
        format!("{}/{:02}/{} {:02}:{:02}", t.month(), t.day(), t.year(), t.hour(), t.minute())
    };
    zoned(seconds, zone).map_or_else(|| "???".to_owned(), text)
}

/// `0+00:00:08`
pub(crate) fn duration(seconds: i64) -> String {
    let s = seconds.max(0);
    format!("{}+{:02}:{:02}:{:02}", s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60)
}
