//! Time passes: what is due at each tick, in its order, and when the next one is wanted.

use std::collections::BTreeSet;

use model::codes::vacate;
use model::{ClaimId, Now, ProcSet};

use crate::lifecycle::Verdict;
use crate::pool::{Claim, Reserved, host_of};
use crate::{
    Core, Effect, Turn, ended, gangs, hopeless, labs, lifecycle, places, preempt, provision, reserve, seats,
    undone,
};

impl Core {
    /// Time passed: leases that ran out, periodic expressions, jobs that wait behind one that turned out long.
    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        self.books.shapes.set_now(turn.now.wall_ms);
        undone::refill_for_tick(&mut self.books, &mut self.undone, turn.now);
        self.offer_refused(turn.now);
        gangs::describe::look_again_at_gangs(&mut self.gangs);
        self.books.accounts.refresh(turn.now.wall_ms);
        let away = self.books.pool.away().iter().filter_map(|place| {
            let heard = self.books.pool.machines().get(host_of(place)).map_or(0, |m| m.heard_ms);
            Some((self.books.pool.machines().get(place)?, heard))
        });
        let claims = away.flat_map(|(m, heard)| m.claims.iter().map(move |id| (*id, heard)));
        let expired: Vec<ClaimId> = claims
            .filter(|(id, heard_ms)| {
                let patience = self.books.pool.claims().get(id).map_or(0, Claim::patience_ms);
                turn.now.mono_ms >= heard_ms.saturating_add(patience)
            })
            .map(|(id, _)| id)
            .collect();
        let mut clusters = BTreeSet::new();
        for id in expired {
            clusters.extend(self.books.pool.claims()[&id].jobs.iter().map(|j| j.cluster));
            let machine = self.books.pool.claims()[&id].machine.clone();
            ended::lose_claim(
                &mut self.books,
                turn,
                id,
                "its machine was out of contact for longer than the lease",
                vacate::LEASE_OVER,
            );
            places::forget_empty(&mut self.books, host_of(&machine));
        }
        for cluster in clusters {
            self.offer_jobs(turn, cluster);
        }
        self.expire_drains(turn);
        seats::end_seating(&mut self.books, turn);
        self.end_holds(turn);
        for cluster in provision::end_exclusions(&mut self.books, turn.now) {
            self.books.changes.note_gang(cluster);
            self.offer_jobs(turn, cluster);
        }
        self.end_reservations(turn);
        gangs::given_up::give_up_gangs(&mut self.books, &mut self.gangs, turn);
        hopeless::find_hopeless(&mut self.books, &self.gangs, &mut self.hopeless, turn);
        while let Some((cluster, has_ready)) = lifecycle::later::wake_next(&mut self.books, turn) {
            if has_ready {
                self.offer_jobs(turn, cluster);
            }
        }
        while let Some((cluster, verdicts)) =
            lifecycle::limits::judge_next_overrun(&mut self.books.queue, &mut self.round, turn)
        {
            self.carry_out_all(turn, cluster, verdicts);
        }
        let mut walk =
            lifecycle::begin_look(&self.books.settings, &self.books.queue, &mut self.round, turn.now);
        while let Some((cluster, verdicts)) =
            lifecycle::judge_next(&self.books.queue, &mut self.round, turn, &mut walk)
        {
            self.carry_out_all(turn, cluster, verdicts);
        }
        self.recall_stuck(turn);
        self.offer_again(turn.now);
        self.offer_overtaken(turn);
        preempt::preempt_again(
            &mut self.books,
            &mut self.gangs,
            &mut self.undone,
            &mut self.keys,
            &mut self.looks,
            turn,
        );
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
            if lifecycle::carry_out(&mut self.books, turn, cluster, &procs, verdict) {
                self.offer_jobs(turn, cluster);
            }
        }
    }

    /// Kinds of jobs that may be given again to machines which refused them are offered.
    fn offer_refused(&mut self, now: Now) {
        for shape in self.books.refusals.take_over(now.mono_ms) {
            self.undone.add_again(shape);
        }
    }

    fn recall_stuck(&mut self, turn: &mut Turn<'_>) {
        let deep =
            self.books.pool.deep().iter().filter_map(|id| self.books.pool.claims().get(id).map(|c| (*id, c)));
        let stuck: Vec<(ClaimId, u32)> = deep
            .filter(|(_, claim)| !claim.recalled && self.is_busy_for_long(claim, turn.now))
            .map(|(id, claim)| (id, claim.jobs.len() as u32 - 1))
            .collect();
        for (id, count) in stuck {
            if let Some(session) = self.books.pool.place_of_claim(id).and_then(|m| m.session) {
                self.books.pool.set_recalled(id, true);
                turn.out.effects.push(Effect::Recall { session, claim: id, count });
            }
        }
    }

    /// True when a claim's first job turned out longer than what is given ahead is meant for.
    pub(crate) fn is_busy_for_long(&self, claim: &Claim, now: Now) -> bool {
        let patience_ms = 3 * self.books.settings.ahead_us / 1000;
        let head = claim.jobs.first();
        let live = head.and_then(|job| self.books.queue.clusters().get(&job.cluster)?.live.get(&job.proc));
        live.and_then(|l| l.started_ms).is_some_and(|at| at.saturating_add(patience_ms) < now.wall_ms)
    }

    /// When [`Core::tick`] wants to be called next, in milliseconds from now at the latest.
    pub fn next_tick_ms(&self, now: Now) -> u64 {
        if let Some(due) = self.throttle.due_ms() {
            return due.saturating_sub(now.mono_ms).clamp(1, 100);
        }
        if let Some(due) = undone::undone_due_ms(&self.books.shapes, &self.undone) {
            return due;
        }
        let soon =
            self.round.is_under_way() || self.sweep.is_under_way() || !self.books.pool.deep().is_empty();
        let regular = if soon { 100 } else { 1_000.min(self.books.settings.periodic_ms.max(10)) };
        // To the millisecond: a deferred job starts in its second, and a limit ends one in its.
        let next = lifecycle::later::next_wake_ms(&self.books.queue)
            .into_iter()
            .chain(lifecycle::limits::next_limit_ms(&self.books.queue))
            .min();
        next.map_or(regular, |at| at.saturating_sub(now.wall_ms).min(regular))
    }

    /// Holds whose time is over.
    pub(crate) fn end_holds(&mut self, turn: &mut Turn<'_>) {
        while let Some(name) = self.books.labs.ended_hold(turn.now.wall_ms) {
            let mut standing = self.books.labs.standing(&name);
            (standing.held_by, standing.held_until_ms) = (String::new(), 0);
            standing.held_stage = String::new();
            (standing.by, standing.reason) = (String::new(), "the time of the hold is over".to_owned());
            labs::settle_standing(&mut self.books, turn, standing.condition(), standing.clone());
            for place in self.books.pool.places(&name) {
                self.offer_machine(turn, &place);
            }
        }
    }

    /// Reservations whose time is over.
    pub(crate) fn end_reservations(&mut self, turn: &mut Turn<'_>) {
        let over = reserve::reservations(&self.books.pool)
            .filter(|(_, k)| k.until_ms.is_some_and(|at| at <= turn.now.wall_ms));
        for (id, kept) in over.collect::<Vec<_>>() {
            if reserve::is_reserved_for_gang(&self.books.queue, &self.books.shapes, kept.job) {
                reserve::keep(&mut self.books, turn, id, Reserved { until_ms: None, ..kept });
            } else {
                self.drop_claim(turn, id, "the reservation is over");
            }
        }
    }

    /// Ends drains whose time is over. Nothing is recorded: it follows from what was.
    pub(crate) fn expire_drains(&mut self, turn: &mut Turn<'_>) {
        if self.books.drains.end_those_over(turn.now.wall_ms) {
            self.books.note_drains();
            self.resume(turn);
        }
    }
}
