//! When windows fall: weekly days and single dates in a zone, with what the operator changed.
//!
//! Pure calendar arithmetic; zone data arrives inside the [`TimeZone`]. A local time that a change of the clocks
//! skips means the first instant after the gap, one that happens twice means the first. What to do about a window is
//! the core's business.

use classad::{ClassAd, Scope};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

use crate::event::{Days, Event};
use crate::settings::Settings;

/// One occurrence of an event, in seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Window {
    /// First second in which machines are to be empty.
    pub start: i64,
    /// First second in which they may start jobs again.
    pub end: i64,
}

impl Window {
    /// True while the machines are meant to be down.
    pub fn is_on(self, now: i64) -> bool {
        self.start <= now && now < self.end
    }
}

/// What an operator changed about one event. The driver keeps these over restarts; the core itself keeps no file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Override {
    /// A window besides those of the calendar.
    Added {
        /// The event.
        event: String,
        /// The window.
        window: Window,
    },
    /// The window that begins then does not happen.
    Cancelled {
        /// The event.
        event: String,
        /// Its start.
        start: i64,
        /// Its end, after which this is of no interest.
        end: i64,
    },
    /// The window that begins then ends later.
    Extended {
        /// The event.
        event: String,
        /// Its start.
        start: i64,
        /// Its new end.
        end: i64,
    },
}

impl Override {
    /// When it can be forgotten.
    pub fn ends(&self) -> i64 {
        match self {
            Override::Added { window, .. } => window.end,
            Override::Cancelled { end, .. } | Override::Extended { end, .. } => *end,
        }
    }

    /// Which event it is about.
    pub fn event(&self) -> &str {
        match self {
            Override::Added { event, .. }
            | Override::Cancelled { event, .. }
            | Override::Extended { event, .. } => event,
        }
    }
}

/// The instant of a local time: after a gap its end, in a fold the first of the two.
pub fn instant(zone: &TimeZone, local: DateTime) -> Option<i64> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let offset = ambiguous.offset();
    // Before a gap's end the clock still ran by the old offset, so this instant lies past the gap.
    let instant = ambiguous.compatible().ok()?;
    match offset {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => Some(instant.as_second()),
        AmbiguousOffset::Gap { .. } => {
            let after = Timestamp::from_second(instant.as_second().checked_add(1)?).ok()?;
            let change = zone.preceding(after).next()?;
            Some(change.timestamp().as_second())
        }
    }
}

/// The local date and time of an instant.
pub fn local(zone: &TimeZone, at: i64) -> Option<DateTime> {
    Timestamp::from_second(at).ok().map(|t| zone.to_datetime(t))
}

/// Windows of the calendar alone that end after `now`, in order: those that began in the past and the starts of the
/// coming eight days; for dates all that are left.
pub fn windows(event: &Event, zone: &TimeZone, now: i64) -> Vec<Window> {
    let window = |date: jiff::civil::Date| {
        let start = instant(zone, date.to_datetime(event.line.time))?;
        Some(Window { start, end: start.checked_add(event.line.duration_s)? })
    };
    let mut found: Vec<Window> = match &event.line.days {
        Days::Dates(dates) => dates.iter().filter_map(|date| window(*date)).collect(),
        Days::Weekly(days) => {
            let Some(today) = local(zone, now).map(DateTime::date) else { return Vec::new() };
            // A window lasts at most a week, so nothing older than eight days can still be on.
            (-8..=8)
                .filter_map(|offset| today.checked_add(Span::new().days(offset)).ok())
                .filter(|date| days.contains(date.weekday()))
                .filter_map(window)
                .collect()
        }
    };
    found.retain(|w| w.end > now);
    found.sort_unstable();
    found
}

/// The window that is on, or else the next one, after what the operator changed.
pub fn occurrence(event: &Event, zone: &TimeZone, overrides: &[Override], now: i64) -> Option<Window> {
    all(event, zone, overrides, now).into_iter().next()
}

/// All windows of [`windows`] after what the operator changed, in order of their starts.
pub fn all(event: &Event, zone: &TimeZone, overrides: &[Override], now: i64) -> Vec<Window> {
    let mine: Vec<&Override> =
        overrides.iter().filter(|o| o.event().eq_ignore_ascii_case(&event.name)).collect();
    if mine.is_empty() {
        return windows(event, zone, now);
    }
    let mut found = windows(event, zone, now);
    for change in &mine {
        if let Override::Added { window, .. } = change {
            found.push(*window);
        }
    }
    for change in &mine {
        if let Override::Extended { start, end, .. } = change {
            match found.iter_mut().find(|w| w.start == *start) {
                Some(window) => window.end = window.end.max(*end),
                // By the calendar it has ended already; the operator says it is still on.
                None => found.push(Window { start: *start, end: *end }),
            }
        }
    }
    found.retain(|w| {
        let cancelled = |o: &&&Override| matches!(o, Override::Cancelled { start, .. } if *start == w.start);
        w.end > now && !mine.iter().any(|o| cancelled(&o))
    });
    found.sort_unstable();
    found
}

/// When a machine must next be empty: the start of the earliest window, on or to come, of an event that is about it.
/// In the past when such a window is on. A scheduler refuses jobs whose run limit reaches beyond it.
pub fn next_down_time(
    settings: &Settings,
    overrides: &[Override],
    now: i64,
    machine: &ClassAd,
) -> Option<i64> {
    let scope = Scope::of(machine).now(now);
    let events = settings.events.iter().filter(|event| scope.is_true(&event.constraint));
    events.filter_map(|event| occurrence(event, &settings.zone, overrides, now)).map(|w| w.start).min()
}
