//! How long to wait before the next attempt. Pure: randomness is given.

use std::time::Duration;

/// A generator that lived this long is started at once when it dies.
pub const LONG_LIFE: Duration = Duration::from_secs(60);
/// Longest pause between two starts of a generator.
const LONGEST: Duration = Duration::from_secs(60);

/// The pause before start number `attempt` (the first again is 0): a second, doubled each time up to a minute; a quarter
/// more or less by `random`, so that monitors that died together do not come back together.
pub fn restart_pause(attempt: u32, random: u64) -> Duration {
    let base = Duration::from_secs(1 << attempt.min(6)).min(LONGEST);
    base.mul_f64(0.75 + (random % 1_000) as f64 / 2_000.0)
}

/// The pause before a listener that failed is asked again: 50 ms, doubled each time up to 30 s.
pub fn listener_pause_ms(failures: u32) -> u64 {
    (50 << failures.saturating_sub(1).min(10)).min(30_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_spread() {
        let middle: Vec<_> = (0..9).map(|n| restart_pause(n, 500).as_secs()).collect();
        assert_eq!(middle, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(restart_pause(u32::MAX, 0), Duration::from_secs(45));
        assert!(restart_pause(6, 999) < Duration::from_secs(75));
        assert_eq!([1, 2, 3, 10, 11, 99].map(listener_pause_ms), [50, 100, 200, 25_600, 30_000, 30_000]);
    }
}
