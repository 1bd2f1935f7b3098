//! Windows in zones whose clocks change.

use jiff::tz::TimeZone;
use maintenance::calendar::{self, Override, Window, instant};

use crate::fixture::*;

fn zone(name: &str) -> TimeZone {
    // Rules as text, so that the tests do not depend on the zone data of the machine.
    let rule = match name {
        "Europe/Berlin" => "CET-1CEST,M3.5.0,M10.5.0/3",
        _ => "EST5EDT,M3.2.0,M11.1.0",
    };
    TimeZone::posix(rule).unwrap()
}

fn utc(y: i16, mo: i8, d: i8, h: i8, mi: i8) -> i64 {
    let local = jiff::civil::date(y, mo, d).at(h, mi, 0, 0);
    local.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second()
}

fn start(text: &str, zone: &TimeZone, now: i64) -> i64 {
    let settings = settings(&format!("EVENT_LIST = E\nE = SHUTDOWN {text} 3600 2 C R\nC = true\nR = 0\n"));
    calendar::occurrence(&settings.events[0], zone, &[], now).unwrap().start
}

#[test]
fn a_start_inside_the_gap_is_the_first_instant_after_it() {
    // Berlin, 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC.
    assert_eq!(start("U 02:30", &zone("Europe/Berlin"), utc(2026, 3, 28, 12, 0)), utc(2026, 3, 29, 1, 0));
    // New York, 8 March 2026: 02:00 becomes 03:00 at 07:00 UTC.
    assert_eq!(start("U 02:30", &zone("America/New_York"), utc(2026, 3, 7, 12, 0)), utc(2026, 3, 8, 7, 0));
}

#[test]
fn a_start_inside_the_fold_is_the_first_of_the_two() {
    // Berlin, 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC; 02:30 first is 00:30 UTC.
    assert_eq!(start("U 02:30", &zone("Europe/Berlin"), utc(2026, 10, 24, 12, 0)), utc(2026, 10, 25, 0, 30));
    // New York, 1 November 2026: 02:00 becomes 01:00 at 06:00 UTC; 01:30 first is 05:30 UTC.
    assert_eq!(
        start("U 01:30", &zone("America/New_York"), utc(2026, 10, 31, 12, 0)),
        utc(2026, 11, 1, 5, 30)
    );
}

#[test]
fn the_edges_of_gap_and_fold_are_ordinary() {
    let berlin = zone("Europe/Berlin");
    let local =
        |d: (i8, i8), h: i8, m: i8| instant(&berlin, jiff::civil::date(2026, d.0, d.1).at(h, m, 0, 0));
    assert_eq!(local((3, 29), 1, 59), Some(utc(2026, 3, 29, 0, 59)));
    assert_eq!(local((3, 29), 2, 0), Some(utc(2026, 3, 29, 1, 0)));
    assert_eq!(local((3, 29), 2, 59), Some(utc(2026, 3, 29, 1, 0)));
    assert_eq!(local((3, 29), 3, 0), Some(utc(2026, 3, 29, 1, 0)));
    assert_eq!(local((10, 25), 2, 0), Some(utc(2026, 10, 25, 0, 0)));
    assert_eq!(local((10, 25), 3, 0), Some(utc(2026, 10, 25, 2, 0)));
}

#[test]
fn the_local_hour_stays_when_the_offset_changes() {
    let berlin = zone("Europe/Berlin");
    assert_eq!(start("W 16:00", &berlin, utc(2026, 10, 20, 0, 0)), utc(2026, 10, 21, 14, 0));
    assert_eq!(start("W 16:00", &berlin, utc(2026, 10, 26, 0, 0)), utc(2026, 10, 28, 15, 0));
}

#[test]
fn the_zone_data_of_the_machine_says_the_same() {
    for name in ["Europe/Berlin", "America/New_York"] {
        // A machine without zone data has nothing to compare.
        let Ok(real) = TimeZone::get(name) else { continue };
        for (month, day) in [(3, 28), (3, 7), (10, 24), (10, 31), (7, 1)] {
            let now = utc(2026, month, day, 12, 0);
            assert_eq!(start("U 02:30", &real, now), start("U 02:30", &zone(name), now));
        }
    }
}

#[test]
fn the_next_start_is_found_up_to_a_week_ahead() {
    let utc_zone = TimeZone::UTC;
    for days in 0..7 {
        let now = wed(17, 0, 0) + days * 86_400;
        assert_eq!(start("W 16:00", &utc_zone, now), wed(16, 0, 0) + 7 * 86_400);
    }
    assert_eq!(start("w 16:00", &utc_zone, wed(16, 59, 59)), wed(16, 0, 0), "still on");
}

#[test]
fn a_dated_window_happens_once() {
    let text = "EVENT_LIST = E\nE = SHUTDOWN 2026-11-18,2026-12-24 16:00 1:00 2 C R\nC = true\nR = 0\n";
    let settings = settings(text);
    let next = |now| calendar::occurrence(&settings.events[0], &settings.zone, &[], now).map(|w| w.start);
    assert_eq!(next(at(1, 0, 0, 0)), Some(wed(16, 0, 0)));
    assert_eq!(next(wed(16, 30, 0)), Some(wed(16, 0, 0)));
    assert_eq!(next(wed(17, 0, 0)), Some(utc(2026, 12, 24, 16, 0)));
    assert_eq!(next(utc(2026, 12, 24, 17, 0)), None);
}

#[test]
fn a_week_long_window_is_still_on_on_its_last_day() {
    let settings = settings("EVENT_LIST = E\nE = SHUTDOWN W 16:00 604800 2 C R\nC = true\nR = 0\n");
    let now = wed(15, 59, 59) + 7 * 86_400;
    let window = calendar::occurrence(&settings.events[0], &settings.zone, &[], now).unwrap();
    assert_eq!(window.start, wed(16, 0, 0));
}

#[test]
fn operators_change_single_windows() {
    let settings = reference("");
    let event = &settings.events[0];
    let (start, end) = (wed(16, 0, 0), wed(17, 0, 0));
    let next = |changes: &[Override], now| calendar::occurrence(event, &settings.zone, changes, now).unwrap();
    let name = || "testevent".to_owned();
    let cancelled = [Override::Cancelled { event: name(), start, end }];
    assert_eq!(next(&cancelled, wed(12, 0, 0)).start, start + 7 * 86_400);
    let longer = [Override::Extended { event: name(), start, end: end + 600 }];
    assert_eq!(next(&longer, wed(17, 5, 0)), Window { start, end: end + 600 });
    let window = Window { start: wed(9, 0, 0), end: wed(9, 30, 0) };
    let added = [Override::Added { event: name(), window }];
    assert_eq!(next(&added, wed(8, 0, 0)), window);
    assert_eq!(next(&added, wed(10, 0, 0)).start, start);
}

#[test]
fn the_scheduler_learns_when_a_machine_must_be_empty() {
    let text = "EVENT_LIST = A, B\nA = SHUTDOWN W 16:00 3600 2 CA R\nB = SHUTDOWN R 16:00 3600 2 CB R\n\
        CA = Rack == 1\nCB = Rack >= 1\nR = 0\n";
    let settings = settings(text);
    let down = |rack: i64, now| {
        let mut ad = classad::ClassAd::new();
        ad.insert_int("Rack", rack);
        maintenance::next_down_time(&settings, &[], now, &ad)
    };
    assert_eq!(down(1, wed(12, 0, 0)), Some(wed(16, 0, 0)));
    assert_eq!(down(1, wed(16, 30, 0)), Some(wed(16, 0, 0)), "on: in the past");
    assert_eq!(down(2, wed(12, 0, 0)), Some(at(19, 16, 0, 0)));
    assert_eq!(down(0, wed(12, 0, 0)), None);
}
