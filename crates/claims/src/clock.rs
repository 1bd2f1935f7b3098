//! How far this machine's clock is off the manager's, measured with every beat. What a machine is told to do at a time of day it does
//! by its own clock, so that whoever tells it must know.

use model::{MonoMs, WallMs};

/// An answer that took longer says too little.
const TRIP_MS: u64 = 5_000;
/// A figure is not changed for less than this, so that the machine's ad does not change with every beat.
const NOISE_MS: i64 = 1_000;
/// Its owner is warned of more.
const WARN_S: i64 = 2;

/// The measured offset.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    /// In whole seconds; positive when this machine is ahead.
    published_s: Option<i64>,
}

/// The two clocks, seen together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// When the manager was asked.
    pub(crate) asked: MonoMs,
    /// When its answer came.
    pub(crate) heard: MonoMs,
    /// What our clock showed then.
    pub(crate) ours: WallMs,
    /// What the manager's showed on the way.
    pub(crate) theirs: WallMs,
}

impl ClockOffset {
    /// Takes a measurement; gives the figure to publish when it has changed.
    pub(crate) fn measure(&mut self, seen: Seen) -> Option<i64> {
        let trip_ms = seen.heard.since(seen.asked);
        if trip_ms > TRIP_MS {
            return None;
        }
        // The manager looked at its clock somewhere on the way: half of it is the best guess.
        let offset_ms =
            (seen.ours.0 as i64).saturating_sub(seen.theirs.0 as i64).saturating_sub(trip_ms as i64 / 2);
        let doubt_ms = NOISE_MS + trip_ms as i64 / 2;
        if self.published_s.is_some_and(|known| offset_ms.saturating_sub(known * 1_000).abs() <= doubt_ms) {
            return None;
        }
        let rounded = offset_ms.saturating_add(500).div_euclid(1_000);
        self.published_s = Some(rounded);
        Some(rounded)
    }

    /// What to tell the machine's owner of a figure.
    pub(crate) fn warning(offset_s: i64) -> Option<String> {
        let way = if offset_s > 0 { "ahead of" } else { "behind" };
        (offset_s.abs() > WARN_S).then(|| {
            format!(
                "the clock of this machine is {} s {way} its manager's; no lease or limit depends on it, but EndDownTime, CurrentTime and \
                 ClockMin in its policy do",
                offset_s.abs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(trip_ms: u64, offset_ms: i64) -> Seen {
        let theirs = 1_700_000_000_000_u64;
        let ours = theirs.saturating_add_signed(offset_ms) + trip_ms / 2;
        Seen { asked: MonoMs(50), heard: MonoMs(50 + trip_ms), ours: WallMs(ours), theirs: WallMs(theirs) }
    }

    #[test]
    fn an_offset_is_published_when_it_is_known_and_when_it_changes() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.measure(seen(6_000, 9_000)), None, "nobody knows");
        assert_eq!(offset.measure(seen(20, -3_600_000)), Some(-3_600));
        assert_eq!(offset.measure(seen(20, -3_600_900)), None, "noise");
        assert_eq!(offset.measure(seen(3_000, -3_598_000)), None, "it may be");
        assert_eq!(offset.measure(seen(20, -3_598_000)), Some(-3_598));
        assert_eq!(offset.measure(seen(20, 400)), Some(0));
        assert_eq!(offset.measure(seen(20, 1_100)), Some(1));
    }

    #[test]
    fn more_than_two_seconds_are_warned_of() {
        assert_eq!((ClockOffset::warning(2), ClockOffset::warning(-2)), (None, None));
        assert!(ClockOffset::warning(20).is_some_and(|w| w.contains("20 s ahead of")));
        assert!(ClockOffset::warning(-3_600).is_some_and(|w| w.contains("3600 s behind")));
    }

    #[test]
    fn half_of_the_way_is_taken_off_and_added_to_the_doubt() {
        // The manager looked at its clock when 1.5 s of the way were left.
        let far = |offset_ms| seen(3_000, offset_ms);
        let mut offset = ClockOffset::default();
        assert_eq!(offset.measure(far(60_000)), Some(60));
        let doubt_ms = NOISE_MS + 1_500;
        assert_eq!(offset.measure(far(60_000 + doubt_ms)), None);
        assert_eq!(offset.measure(far(60_000 - doubt_ms)), None);
        assert_eq!(offset.measure(far(60_000 + doubt_ms + 1)), Some((60_500 + doubt_ms + 1) / 1_000));
        // To the nearest second.
        let rounded = |offset_ms| ClockOffset::default().measure(seen(0, offset_ms));
        assert_eq!([1_499, 1_500, -1_499, -1_501].map(rounded), [Some(1), Some(2), Some(-1), Some(-2)]);
    }
}
