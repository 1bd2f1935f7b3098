//! A clock that is never set, made of the journal's times and of what it says of setting them.

use model::Event;
use model::event::Kind;

/// Where that clock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SteadyClock {
    /// The newest event's time.
    pub last_ms: u64,
    /// How far the wall clock was set since the first event.
    pub stepped_ms: i64,
}

impl SteadyClock {
    /// The time of the next event.
    pub fn take(&mut self, event: &Event) -> u64 {
        match &event.kind {
            Some(Kind::ClockStepped(e)) => self.stepped_ms = self.stepped_ms.saturating_add(e.by_ms),
            // How long nobody was there is only known by the wall clock; when that says less than nothing, it was set back.
            Some(Kind::ManagerStarted(_)) => {
                let behind = self.last_ms.saturating_sub(steady(event.time_ms, self.stepped_ms));
                self.stepped_ms = self.stepped_ms.saturating_sub(i64::try_from(behind).unwrap_or(i64::MAX));
            }
            _ => {}
        }
        self.last_ms = self.last_ms.max(steady(event.time_ms, self.stepped_ms));
        self.last_ms
    }

    /// A time that the wall clock as it is now would show.
    pub fn shown(self, steady_ms: u64) -> u64 {
        steady_ms.saturating_add_signed(self.stepped_ms)
    }
}

/// A time of the wall clock on the clock that is never set.
pub(crate) fn steady(wall_ms: u64, stepped_ms: i64) -> u64 {
    wall_ms.saturating_add_signed(stepped_ms.saturating_neg())
}
