//! Time of two kinds that must not be mixed: what a machine's wall clock shows, for people and calendars, and what a clock shows that
//! nobody sets, for leases and lengths. Each machine has its own of both, so that no moment means anything elsewhere: what goes
//! over the wire is how long ago something was.

use prost::Message;

/// Unix milliseconds by this machine's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallMs(pub u64);

/// Milliseconds by this host's monotonic clock, which begins anew with each start of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoMs(pub u64);

impl WallMs {
    /// The moment that was so long ago.
    #[must_use]
    pub fn ago(self, age_ms: u64) -> Self {
        Self(self.0.saturating_sub(age_ms))
    }
}

impl MonoMs {
    /// How long it is since an earlier moment; nothing for a later one.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment that comes so much later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// A moment that processes of one host can tell each other, also across their own ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Moment {
    /// Which start of the host: its boot id, or as much of it as fits.
    #[prost(fixed64, tag = "1")]
    pub boot: u64,
    /// By the host's monotonic clock.
    #[prost(uint64, tag = "2")]
    pub mono_ms: u64,
}

impl Moment {
    /// How long ago it was; `None` when the host was started anew since: then nobody knows.
    pub fn age_ms(self, now: Self) -> Option<u64> {
        (self.boot == now.boot).then(|| MonoMs(now.mono_ms).since(MonoMs(self.mono_ms)))
    }

    /// The moment that comes so much later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self { mono_ms: self.mono_ms.saturating_add(ms), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_from_before_a_start_of_the_host_is_unknown() {
        let then = Moment { boot: 1, mono_ms: 5_000 };
        assert_eq!(then.age_ms(Moment { boot: 1, mono_ms: 7_000 }), Some(2_000));
        assert_eq!(then.age_ms(Moment { boot: 1, mono_ms: 4_000 }), Some(0));
        assert_eq!(then.age_ms(Moment { boot: 2, mono_ms: 7_000 }), None);
    }
}
