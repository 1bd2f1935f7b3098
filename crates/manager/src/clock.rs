//! The writer's two clocks. The wall clock is read once a turn, and a turn's events are all dated by that reading; when it has
//! moved against the monotonic clock by more than a clock drifts, somebody set it, and the journal says so.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::Now;

/// Less than this is drift and the time between two readings; `usage` lives with that.
const STEP_MS: u64 = 500;

/// Two clocks read together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    /// What the wall clock showed at `start`, by its last reading.
    offset_ms: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), offset_ms: wall_ms() }
    }

    pub(crate) fn now(&self) -> Now {
        let mono_ms = self.start.elapsed().as_millis() as u64;
        Now { mono_ms, wall_ms: self.offset_ms + mono_ms }
    }

    /// Reads the wall clock. Returns how far it was set, if it was.
    pub(crate) fn read_wall(&mut self) -> Option<i64> {
        let offset_ms = wall_ms().saturating_sub(self.start.elapsed().as_millis() as u64);
        let before = std::mem::replace(&mut self.offset_ms, offset_ms);
        stepped_by(before, offset_ms)
    }
}

/// How far a wall clock was set whose distance from the monotonic clock changed.
fn stepped_by(before_ms: u64, after_ms: u64) -> Option<i64> {
    (before_ms.abs_diff(after_ms) > STEP_MS).then(|| after_ms as i64 - before_ms as i64)
}

/// The distance of a host's two clocks: as long as the host is not started anew, only setting the wall clock changes it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct HostClock {
    /// Which start of the host.
    #[prost(string, tag = "1")]
    pub(crate) boot: String,
    /// What the wall clock showed when the monotonic clock began.
    #[prost(sint64, tag = "2")]
    pub(crate) offset_ms: i64,
}

impl HostClock {
    /// That of this host, now; `None` when it cannot be told.
    pub(crate) fn now() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let monotonic_ms = starter::uptime::monotonic_ms()?;
        Some(Self { boot, offset_ms: wall_ms() as i64 - monotonic_ms as i64 })
    }

    /// How far the wall clock was set since `earlier`, if it was and if that can be told.
    pub(crate) fn stepped_since(&self, earlier: &Self) -> Option<i64> {
        let by = self.offset_ms.saturating_sub(earlier.offset_ms);
        (self.boot == earlier.boot && by.unsigned_abs() > STEP_MS).then_some(by)
    }
}

pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_told_from_one_that_drifts() {
        let day = 86_400_000;
        let cases = [
            (1_000_000, 1_000_000, None),
            (1_000_000, 1_000_500, None),
            (1_000_000, 999_500, None),
            (1_000_000, 1_000_501, Some(501)),
            (1_000_000, 999_499, Some(-501)),
            (20_000 * day, 20_001 * day, Some(day as i64)),
            (20_000 * day, 0, Some(-20_000 * day as i64)),
        ];
        for (before, after, expected) in cases {
            assert_eq!(stepped_by(before, after), expected, "{before} to {after}");
        }
    }

    #[test]
    fn a_clock_that_was_set_while_nobody_ran_is_told_as_long_as_the_host_was_not_started_anew() {
        let clock = |boot: &str, offset_ms| HostClock { boot: boot.to_owned(), offset_ms };
        let before = clock("one", 1_000_000);
        assert_eq!(clock("one", 8_200_000).stepped_since(&before), Some(7_200_000));
        assert_eq!(clock("one", -6_200_000).stepped_since(&before), Some(-7_200_000));
        assert_eq!(clock("one", 1_000_400).stepped_since(&before), None, "the time between two readings");
        assert_eq!(clock("two", 8_200_000).stepped_since(&before), None, "nobody knows");
        let now = HostClock::now().unwrap();
        assert_eq!(HostClock::now().unwrap().stepped_since(&now), None);
    }

    #[test]
    fn a_turn_has_one_wall_clock() {
        let mut clock = Clock { start: Instant::now(), offset_ms: 5_000_000 };
        let (first, second) = (clock.now(), clock.now());
        assert_eq!(first.wall_ms - first.mono_ms, second.wall_ms - second.mono_ms);
        assert!(clock.read_wall().is_some_and(|by| by > 0), "it was read in 1970");
        assert_eq!(clock.read_wall(), None, "once");
        assert!(clock.now().wall_ms.abs_diff(wall_ms()) < 60_000);
    }
}
