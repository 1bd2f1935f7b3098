//! When a machine may rest: how long no look would find anything else than the last one did, so that nobody need make it.
//!
//! For whoever has so many machines that looks cost too much (the simulator's fleet). A machine that rests does the same at the
//! same moments as one that looks at every tick of its timers: the grid of looks stays, those that would find nothing are left out.

use classad::{Name, Scope};

use crate::ad::{About, Scene};
use crate::expressions::{Expression, Policy};
use crate::machine::Machine;
use crate::state::Standing;

/// What moves with the clock in every ad of a slot with a job.
const OF_THE_SLOT: [&str; 2] = ["TotalClaimRunTime", "TotalJobRunTime"];
/// Parts of a second that attributes are rounded by, each for itself: looks begin so much before an expression may change.
const ROUNDING_MS: u64 = 2_000;

impl Machine {
    /// When to look next, given that the last look found nothing to do and that these readings grow by one each second, if
    /// nothing else happens. Send the readings and [`crate::Input::Tick`] then, after [`Machine::pass_over`].
    pub fn next_look_ms(&self, grow: &[Name]) -> u64 {
        let mut names = grow.to_vec();
        names.extend(OF_THE_SLOT.map(Name::new));
        let seconds = (0..self.slots.len()).filter_map(|at| self.may_change_in(at, &names)).min();
        let deadlines = self.slots.iter().filter_map(|s| s.deadline_ms).chain(self.next_end_of_rest_ms());
        let deadline = deadlines.min().unwrap_or(u64::MAX);
        let Some(seconds) = seconds else { return deadline };
        let change_ms =
            self.now_ms + (u64::try_from(seconds).unwrap_or(0) * 1_000).saturating_sub(ROUNDING_MS);
        let update_ms = self.on_grid(change_ms, self.policy.timers.update_ms);
        let poll_ms = match self.next_poll_ms {
            _ if self.is_in_use() => Some(self.on_grid(change_ms, self.policy.timers.poll_ms)),
            // The last one after a time in use.
            last => last.filter(|at_ms| change_ms <= *at_ms),
        };
        poll_ms.map_or(update_ms, |poll_ms| poll_ms.min(update_ms)).min(deadline)
    }

    /// Looks that were due before now were left out, because they would have found nothing.
    pub fn pass_over(&mut self, now_ms: u64) {
        if self.next_update_ms < now_ms {
            self.next_update_ms = self.first_on_grid(now_ms, self.policy.timers.update_ms);
        }
        if self.next_poll_ms.is_some_and(|at_ms| at_ms < now_ms) {
            let in_use = self.is_in_use();
            self.next_poll_ms = in_use.then(|| self.first_on_grid(now_ms, self.policy.timers.poll_ms));
        }
    }

    fn is_in_use(&self) -> bool {
        self.slots.iter().any(|s| s.standing.is_in_use())
    }

    /// The first time on the grid that is not before this one, nor now.
    fn on_grid(&self, at_ms: u64, interval_ms: u64) -> u64 {
        self.first_on_grid(at_ms.max(self.now_ms + 1), interval_ms)
    }

    fn first_on_grid(&self, at_ms: u64, interval_ms: u64) -> u64 {
        let passed = at_ms.saturating_sub(self.start_ms).div_ceil(interval_ms);
        self.start_ms + passed * interval_ms
    }

    /// In how many seconds one of the expressions that the next look at a slot would ask may say something else.
    fn may_change_in(&self, at: usize, grow: &[Name]) -> Option<i64> {
        use Expression as E;
        let asked: &[E] = match self.slots[at].standing {
            Standing::Owner | Standing::Matched | Standing::Benchmarking => &[],
            Standing::UnclaimedIdle => &[E::RunBenchmarks],
            Standing::ClaimedIdle => &[E::Preempt],
            Standing::Busy => &[E::WantSuspend, E::Suspend, E::Preempt, E::PeriodicCheckpoint],
            Standing::Suspended => &[E::Preempt, E::Continue],
            Standing::Vacating => &[E::Kill],
            Standing::Killing => return None,
        };
        let policy = self.policy_at(at);
        let local = soonest(&self.scene(at, About::Nobody), policy, &[E::IsOwner, E::Start], grow);
        if asked.is_empty() {
            return local;
        }
        let of_job = soonest(&self.scene(at, About::Present), policy, asked, grow);
        local.into_iter().chain(of_job).min()
    }
}

/// In how many seconds one of these expressions may say something else.
fn soonest(scene: &Scene, policy: &Policy, asked: &[Expression], grow: &[Name]) -> Option<i64> {
    let scope: Scope<'_> = scene.scope();
    let texts = asked.iter().flat_map(|e| std::iter::once(policy.get(*e)).chain(policy.vanilla(*e)));
    texts.filter_map(|expr| scope.may_change_in(expr, grow)).min()
}
