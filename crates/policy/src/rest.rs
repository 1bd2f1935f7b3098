//! A slot that lets jobs in (START) and makes them leave at once (PREEMPT) would start the same job at every poll. It rests: for a
//! while after such a job it is its owner's, longer each time, until a job has stayed.
//!
//! What belongs to the owner's word is not changed by it: a rest only keeps out jobs that START would let in.

use crate::input::Action;
use crate::machine::Machine;
use crate::slots::SlotKind;
use crate::state::Standing;
use crate::transition::Cause;

/// A job that stayed for so long was welcome.
const STAYED_MS: u64 = 60_000;
/// First and longest rest.
const REST_MS: (u64, u64) = (10_000, 600_000);

/// What the trace says of it.
const WHY: &str = "PREEMPT made a job leave at once that START let in: no other is let in for a while";

/// Rests of a slot that is not cut from another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rests {
    /// Jobs in a row that had to leave at once.
    in_a_row: u32,
    until_ms: u64,
}

impl Machine {
    /// PREEMPT makes the job of a slot leave.
    pub(crate) fn note_preemption(&mut self, at: usize) {
        let Some((claim, running)) = self.slots[at].running() else { return };
        let job = claim.job.clone();
        let stayed_ms = STAYED_MS.max(3 * self.policy.timers.poll_ms);
        let stayed = self.now_ms.saturating_sub(running.started_ms) >= stayed_ms;
        // With START false nothing comes back by itself.
        let comes_back = !stayed && self.start_for(at, &job).value.is_true();
        let (now_ms, whole) = (self.now_ms, self.whole_of(at));
        let rests = &mut self.slots[whole].rests;
        if comes_back {
            let rest_ms = (REST_MS.0 << rests.in_a_row.min(16)).min(REST_MS.1);
            rests.in_a_row = rests.in_a_row.saturating_add(1);
            rests.until_ms = now_ms + rest_ms;
        } else if stayed {
            rests.in_a_row = 0;
        }
    }

    /// The slot that one is cut from, or itself.
    fn whole_of(&self, at: usize) -> usize {
        let of = self.slots[at].id.number;
        self.slots.iter().position(|s| s.id.number == of && s.id.child == 0).unwrap_or(at)
    }

    /// The cause to write down while a slot rests.
    pub(crate) fn rest_forbids(&self, at: usize) -> Option<Cause> {
        let whole = &self.slots[self.whole_of(at)];
        // What is cut from it already runs a job that stays.
        let cut = self.slots[at].kind == SlotKind::Dynamic;
        (!cut && whole.rests.until_ms > self.now_ms).then_some(Cause::Event(WHY))
    }

    pub(crate) fn rest_left_ms(&self, at: usize) -> u64 {
        self.slots[self.whole_of(at)].rests.until_ms.saturating_sub(self.now_ms)
    }

    /// The slot that jobs are cut from goes to its owner as soon as the job that began its rest has left it.
    pub(crate) fn rest_if_due(&mut self, at: usize, out: &mut Vec<Action>) {
        if matches!(self.slots[at].standing, Standing::UnclaimedIdle | Standing::Benchmarking)
            && let Some(cause) = self.rest_forbids(at)
        {
            self.enter_owner(at, cause, out);
        }
    }

    /// When a rest ends.
    pub(crate) fn next_end_of_rest_ms(&self) -> Option<u64> {
        self.slots.iter().map(|s| s.rests.until_ms).filter(|until| *until > 0).min()
    }

    /// Rests that are over are forgotten, and who rested looks again.
    pub(crate) fn end_rests(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.slots.len() {
            let until_ms = self.slots[at].rests.until_ms;
            if until_ms > 0 && until_ms <= self.now_ms {
                self.slots[at].rests.until_ms = 0;
                self.evaluate(at, out);
            }
        }
    }

    /// The owner has another policy: what came of the old one does not count.
    pub(crate) fn forget_rests(&mut self) {
        for slot in &mut self.slots {
            slot.rests = Rests::default();
        }
    }
}
