//! What is decided and not yet on disk.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use model::Event;
use prost::Message as _;
use scheduler::Out;

use crate::handle::{Query, Unavailable};

/// Bytes of events that go to the disk together, but for the last input's: a batch has a largest size, and is held in memory
/// more than once.
const HEAVY: usize = 128 << 20;
/// How long what nobody waits for may stay off the disk, so that short jobs share a sync.
const LINGER: Duration = Duration::from_millis(10);

/// Told whether what it waited for is on disk.
pub(super) type After = Box<dyn FnOnce(Result<(), Unavailable>) + Send>;

/// Decided, not yet on disk.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) out: Out,
    pub(super) after: Vec<After>,
    pub(super) queries: VecDeque<Query>,
    /// When it goes to the disk; `None` while there is nothing.
    pub(super) due: Option<Instant>,
    /// Events whose bytes were counted, and these bytes.
    weighed: (usize, usize),
}

impl Pending {
    /// True when no more should go to the disk together.
    pub(super) fn is_heavy(&mut self) -> bool {
        let events = &self.out.events;
        let (counted, bytes) = self.weighed;
        let more: usize = events.get(counted..).unwrap_or_default().iter().map(Event::encoded_len).sum();
        self.weighed = (events.len(), bytes + more);
        self.weighed.1 >= HEAVY
    }

    /// Somebody waits for it.
    pub(super) fn hurry(&mut self) {
        self.due = Some(Instant::now());
    }

    /// Nobody waits for it.
    pub(super) fn linger(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + LINGER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_heavy_by_the_bytes_of_all_its_events() {
        let mut pending = Pending::default();
        assert!(!pending.is_heavy());
        let claim_ended = |bytes: usize| Event {
            time_ms: 1,
            kind: Some(model::event::Kind::ClaimEnded(model::event::ClaimEnded {
                claim: 1,
                reason: "r".repeat(bytes),
            })),
        };
        pending.out.events.push(claim_ended(HEAVY / 2));
        assert!(!pending.is_heavy() && !pending.is_heavy(), "each event is counted once");
        pending.out.events.push(claim_ended(HEAVY / 2));
        assert!(pending.is_heavy());
        assert!(!Pending::default().is_heavy());
    }
}
