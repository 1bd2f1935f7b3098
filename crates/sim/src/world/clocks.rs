//! Clocks of a host that is not to be trusted: they run fast or slow, are set, and begin anew with the host.

use model::{Moment, Now};

/// True time, which nobody in the world can read: milliseconds since it began.
pub(super) type True = u64;

/// The world begins here, by the clock on the wall of whoever has it right.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// The clocks of one host.
#[derive(Debug, Clone)]
pub(super) struct Clocks {
    /// Which start of the host.
    boot: u64,
    /// When it was started, in true time, and what its monotonic clock showed then.
    started: (True, u64),
    /// Parts in a million that it runs fast.
    drift_ppm: i64,
    /// What its wall clock shows more than it should.
    wall_ms: i64,
}

impl Clocks {
    pub(super) fn new(boot: u64, drift_ppm: i64, wall_ms: i64) -> Self {
        Self { boot, started: (0, 1_000), drift_ppm, wall_ms }
    }

    pub(super) fn now(&self, at: True) -> Now {
        let passed = self.by_clock(at.saturating_sub(self.started.0));
        let wall = EPOCH_MS.saturating_add(self.by_clock(at)).saturating_add_signed(self.wall_ms);
        Now { mono_ms: self.started.1 + passed, wall_ms: wall }
    }

    pub(super) fn moment(&self, at: True) -> Moment {
        Moment { boot: self.boot, mono_ms: self.now(at).mono_ms }
    }

    /// How much passes on these clocks in so much of true time.
    pub(super) fn by_clock(&self, true_ms: u64) -> u64 {
        (i128::from(true_ms) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000) as u64
    }

    /// The true time when so much has passed on these clocks from now on, or a moment later.
    pub(super) fn after(&self, at: True, clock_ms: u64) -> True {
        let true_ms = i128::from(clock_ms) * 1_000_000 / i128::from(1_000_000 + self.drift_ppm);
        at.saturating_add(true_ms as u64).saturating_add(1)
    }

    /// Somebody sets the wall clock.
    pub(super) fn set(&mut self, wall_ms: i64) {
        self.wall_ms = wall_ms;
    }

    /// The host is started anew.
    pub(super) fn boot(&mut self, at: True) {
        self.boot += 1;
        self.started = (at, 500);
    }
}
