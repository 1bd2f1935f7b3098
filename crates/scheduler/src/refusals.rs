//! Machines that take a claim and end it before its job has begun, because their owner's START says something else there than in
//! the ad: such jobs are given to them ever more seldom. Soft: a restart begins anew. Ads
//! change all the time, so that another ad is no reason to begin anew.
//!
//! A machine that rests keeps jobs waiting. Whatever ends a rest, its time or something else, has the kind offered again: by
//! `take_over` where it is the time, and by way of `changes` where it is not.

use std::collections::BTreeMap;

use model::ClaimId;

use crate::changes::Changes;
use crate::shape::ShapeId;

/// How long such jobs are not given to the machine after the second refusal in a row; each further one doubles it.
const FIRST_MS: u64 = 1_000;
/// And at most.
const LONGEST_MS: u64 = 60_000;
/// Pairs of kinds and machines that are remembered.
const REMEMBERED: usize = 100_000;

/// Refusals in a row, and until when nothing is offered, by the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
struct Refused {
    times: u32,
    until_ms: u64,
    /// Claims with smaller numbers were made before the machine said so the last time.
    next_claim: u64,
}

/// What machines refused lately.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals {
    /// By number of the machine, and kind.
    pairs: BTreeMap<(u32, ShapeId), Refused>,
    looked_ms: u64,
}

impl Refusals {
    /// A machine ended a claim for a kind of jobs before one had begun. The first time may be chance: its owner came back.
    /// Claims that were made before it said so the last time end for the same reason, and are no further refusal: `next_claim`
    /// is the number that the next claim will have.
    pub(crate) fn note(
        &mut self,
        (machine, shape): (u32, ShapeId),
        claim: ClaimId,
        next_claim: u64,
        now_ms: u64,
        changes: &mut Changes,
    ) {
        if self.pairs.len() >= REMEMBERED {
            for (_, shape) in std::mem::take(&mut self.pairs).into_keys() {
                changes.note_taken_again(shape);
            }
        }
        let refused = self.pairs.entry((machine, shape)).or_default();
        if refused.times > 0 && claim.0 < refused.next_claim {
            return;
        }
        let doubled = FIRST_MS << refused.times.saturating_sub(1).min(10);
        let rest_ms = if refused.times == 0 { 0 } else { doubled.min(LONGEST_MS) };
        let times = refused.times.saturating_add(1);
        *refused = Refused { times, until_ms: now_ms.saturating_add(rest_ms), next_claim };
    }

    /// Is such a job not given to the machine for now?
    pub(crate) fn rests(&self, machine: u32, shape: ShapeId, now_ms: u64) -> bool {
        !self.pairs.is_empty() && self.pairs.get(&(machine, shape)).is_some_and(|r| now_ms < r.until_ms)
    }

    /// The machine has begun such a job: others that wait may be given to it, too.
    pub(crate) fn forgive(&mut self, machine: u32, shape: ShapeId, changes: &mut Changes) {
        if self.pairs.remove(&(machine, shape)).is_some() {
            changes.note_taken_again(shape);
        }
    }

    /// A machine is no more; its number may go to another one.
    pub(crate) fn forget_machine(&mut self, machine: u32) {
        self.pairs.retain(|(number, _), _| *number != machine);
    }

    /// Kinds that may be given again since this was last asked.
    pub(crate) fn take_over(&mut self, now_ms: u64) -> Vec<ShapeId> {
        let after_ms = std::mem::replace(&mut self.looked_ms, now_ms);
        let over = self.pairs.iter().filter(|(_, r)| after_ms < r.until_ms && r.until_ms <= now_ms);
        over.map(|((_, shape), _)| *shape).collect()
    }

    /// Kinds have other numbers now. True when some machine rested from any.
    pub(crate) fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.pairs).is_empty()
    }
}
