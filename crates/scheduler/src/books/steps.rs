//! The manager's clock was set. What is dated in the past and measures how long something lasts moves with it: a run that has two
//! minutes left has two minutes left whatever the clock shows. What is meant for a time of day (deferral, windows, holds until) is not.
//!
//! The dates in the queue and the claims are moved here, as a fact of the journal. Everything that was made from them (timers, plans,
//! places in line) is made anew by `Core::rebuilt`.

use crate::books::Books;
use crate::lifecycle;

impl Books {
    /// Moves dates of the past by so much.
    pub(crate) fn apply_step(&mut self, by_ms: i64) {
        let moved = |at: &mut u64| *at = at.saturating_add_signed(by_ms);
        for cluster in self.queue.clusters_mut() {
            let Some(begun) = &mut cluster.begun else { continue };
            for live in begun.live.values_mut() {
                live.started_ms.iter_mut().for_each(moved);
                moved(&mut live.assigned_ms);
            }
            begun.holds.iter_mut().for_each(|hold| moved(&mut hold.since_ms));
            begun.past.values_mut().filter_map(|past| past.since_ms.as_mut()).for_each(moved);
        }
        for (_, claim) in self.pool.claims_mut() {
            moved(&mut claim.made_ms);
            claim.reserved.iter_mut().filter_map(|kept| kept.until_ms.as_mut()).for_each(moved);
        }
        self.accounts.step(by_ms);
        self.queue.forget_limits();
        let ids: Vec<u32> = self.queue.clusters().keys().copied().collect();
        for id in ids {
            lifecycle::limits::watch_limits(&mut self.queue, id);
        }
    }
}
