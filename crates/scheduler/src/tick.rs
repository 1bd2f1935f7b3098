//! Time passes: what is due at each tick, in its order, and when the next one is wanted.

use std::collections::BTreeSet;

use model::codes::vacate;
use model::{ClaimId, Now, ProcSet};

use crate::lifecycle::Verdict;
use crate::pool::{Claim, host_of};
use crate::{Core, Effect, Turn};

impl Core {
    /// Time passed: leases that ran out, periodic expressions, jobs that wait behind one that turned out long.
    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        self.shapes.set_now(turn.now.wall_ms);
        self.refill_for_tick(turn.now);
        self.offer_refused(turn.now);
        self.look_again_at_gangs();
        self.accounts.refresh(turn.now.wall_ms);
        let away = self.pool.away().iter().filter_map(|place| {
            let heard = self.pool.machines().get(host_of(place)).map_or(0, |m| m.heard_ms);
            Some((self.pool.machines().get(place)?, heard))
        });
        let claims = away.flat_map(|(m, heard)| m.claims.iter().map(move |id| (*id, heard)));
        let expired: Vec<ClaimId> = claims
            .filter(|(id, heard_ms)| {
                let patience = self.pool.claims().get(id).map_or(0, Claim::patience_ms);
                turn.now.mono_ms >= heard_ms.saturating_add(patience)
            })
            .map(|(id, _)| id)
            .collect();
        let mut clusters = BTreeSet::new();
        for id in expired {
            clusters.extend(self.pool.claims()[&id].jobs.iter().map(|j| j.cluster));
            let machine = self.pool.claims()[&id].machine.clone();
            self.lose_claim(
                turn,
                id,
                "its machine was out of contact for longer than the lease",
                vacate::LEASE_OVER,
            );
            self.forget_empty(host_of(&machine));
        }
        for cluster in clusters {
            self.offer_jobs(turn, cluster);
        }
        self.expire_drains(turn);
        self.end_seating(turn);
        self.end_holds(turn);
        for cluster in self.end_exclusions(turn.now) {
            self.changes.note_gang(cluster);
            self.offer_jobs(turn, cluster);
        }
        self.end_reservations(turn);
        self.give_up_gangs(turn);
        self.find_hopeless(turn);
        while let Some((cluster, has_ready)) = self.wake_next(turn) {
            if has_ready {
                self.offer_jobs(turn, cluster);
            }
        }
        while let Some((cluster, verdicts)) = self.judge_next_overrun(turn) {
            self.carry_out_all(turn, cluster, verdicts);
        }
        let mut walk = self.begin_look(turn.now);
        while let Some((cluster, verdicts)) = self.judge_next(turn, &mut walk) {
            self.carry_out_all(turn, cluster, verdicts);
        }
        self.recall_stuck(turn);
        self.offer_again(turn.now);
        self.offer_overtaken(turn);
        self.preempt_again(turn);
        self.go_on_undone(turn);
        if self.throttle.due_ms().is_some_and(|due| due <= turn.now.mono_ms) {
            self.resume(turn);
            self.throttle.expire(turn.now.mono_ms);
        }
        self.gang_pass(turn);
        self.sweep(turn);
    }

    /// Carries out what the expressions of a cluster's jobs decided.
    fn carry_out_all(&mut self, turn: &mut Turn<'_>, cluster: u32, verdicts: Vec<(ProcSet, Verdict)>) {
        for (procs, verdict) in verdicts {
            if self.carry_out(turn, cluster, &procs, verdict) {
                self.offer_jobs(turn, cluster);
            }
        }
    }

    /// Kinds of jobs that may be given again to machines which refused them are offered.
    fn offer_refused(&mut self, now: Now) {
        for shape in self.refusals.take_over(now.mono_ms) {
            self.undone.add_again(shape);
        }
    }

    fn recall_stuck(&mut self, turn: &mut Turn<'_>) {
        let deep = self.pool.deep().iter().filter_map(|id| self.pool.claims().get(id).map(|c| (*id, c)));
        let stuck: Vec<(ClaimId, u32)> = deep
            .filter(|(_, claim)| !claim.recalled && self.is_busy_for_long(claim, turn.now))
            .map(|(id, claim)| (id, claim.jobs.len() as u32 - 1))
            .collect();
        for (id, count) in stuck {
            if let Some(session) = self.pool.place_of_claim(id).and_then(|m| m.session) {
                self.pool.set_recalled(id, true);
                turn.out.effects.push(Effect::Recall { session, claim: id, count });
            }
        }
    }

    /// True when a claim's first job turned out longer than what is given ahead is meant for.
    pub(crate) fn is_busy_for_long(&self, claim: &Claim, now: Now) -> bool {
        let patience_ms = 3 * self.settings.ahead_us / 1000;
        let head = claim.jobs.first();
        let live = head.and_then(|job| self.queue.clusters().get(&job.cluster)?.live.get(&job.proc));
        live.and_then(|l| l.started_ms).is_some_and(|at| at.saturating_add(patience_ms) < now.wall_ms)
    }

    /// When [`Core::tick`] wants to be called next, in milliseconds from now at the latest.
    pub fn next_tick_ms(&self, now: Now) -> u64 {
        if let Some(due) = self.throttle.due_ms() {
            return due.saturating_sub(now.mono_ms).clamp(1, 100);
        }
        if let Some(due) = self.undone_due_ms() {
            return due;
        }
        let soon = self.round.is_under_way() || self.sweep.is_under_way() || !self.pool.deep().is_empty();
        let regular = if soon { 100 } else { 1_000.min(self.settings.periodic_ms.max(10)) };
        // To the millisecond: a deferred job starts in its second, and a limit ends one in its.
        let next = self.next_wake_ms().into_iter().chain(self.next_limit_ms()).min();
        next.map_or(regular, |at| at.saturating_sub(now.wall_ms).min(regular))
    }
}
