//! When the queue is written down as a whole, so that a restart need not replay everything.

use std::time::Instant;

use super::Writer;
use crate::Error;

/// Events after which a snapshot is worth its cost, whatever the size of the queue.
const SNAPSHOT_EVENTS: u64 = 200_000;
/// Bytes of events after which it is, unless the queue itself is larger.
const SNAPSHOT_BYTES: u64 = 256 << 20;
/// Events kept for those who replay, behind the snapshot.
const KEPT_EVENTS: u64 = 20_000_000;

impl Writer {
    /// By events, so that a restart is quick; by bytes, so that it needs little memory and old segments go in time, but not more
    /// bytes of snapshots than of events.
    pub(super) fn is_snapshot_due(&self) -> bool {
        let bytes = self.journal.bytes_to_replay() - self.snapshot_at_bytes;
        self.journal.head() - self.snapshot_at >= SNAPSHOT_EVENTS
            || bytes >= SNAPSHOT_BYTES.max(self.snapshot_bytes)
    }

    pub(super) fn snapshot(&mut self) -> Result<(), Error> {
        let head = self.journal.head();
        if head == self.snapshot_at {
            return Ok(());
        }
        let started = Instant::now();
        let state = self.books.snapshot();
        let saved = self
            .journal
            .save_snapshot(head, &state)
            .and_then(|()| self.journal.forget_before(head.saturating_sub(KEPT_EVENTS)));
        match saved {
            Ok(()) => {
                let ms = started.elapsed().as_millis() as u64;
                tracing::info!(position = head, bytes = state.len(), ms, "snapshot saved");
                self.bookmarks.ask_to_extend();
            }
            // The journal has everything; only the next recovery takes longer.
            Err(error) if error.may_pass() => tracing::warn!(%error, "no snapshot"),
            Err(error) => return Err(error.into()),
        }
        (self.snapshot_at, self.snapshot_bytes) = (head, state.len() as u64);
        self.snapshot_at_bytes = self.journal.bytes_to_replay();
        Ok(())
    }

    /// Writes the queue down where a restart would need what a reader found damaged, so that the damage is one of history.
    pub(super) fn secure_queue(&mut self) -> Result<(), Error> {
        let found = self.damage.take_found();
        if !found.iter().any(|(path, position)| self.journal.needs_at_start(path, *position)) {
            return Ok(());
        }
        self.commit()?;
        match self.journal.turn_page() {
            Ok(()) => {}
            Err(error) if error.may_pass() => tracing::warn!(%error, "the damaged segment stays in use"),
            Err(error) => return Err(error.into()),
        }
        self.snapshot()
    }
}
