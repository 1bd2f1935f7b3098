//! Who gets what. Two things start a decision: jobs became idle, or a machine has room; both end here.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Now;
use model::event::Resources;

use crate::feed::Cut;
use crate::pool::fits;
use crate::shape::{Ready, ShapeId};
use crate::{Core, Turn, admission, feed, gangs, labs, preempt, provision, room, undone};

/// Kinds of jobs of one cluster that are offered to the machines in one go.
const KINDS_AT_ONCE: usize = 64;
/// Waiting shapes that are looked at each second because their match may depend on the time.
const AGAIN_SHAPES: usize = 256;

/// How far the look at jobs whose match depends on the time has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again {
    second: u64,
    /// The last one that was looked at, if there was no time for all.
    after: Option<ShapeId>,
}

/// The best waiting jobs for some room: which shape, which part of which cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) shape: ShapeId,
    pub(crate) ready: Ready,
}

/// Who is the best for some room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Best {
    Found(Candidate),
    Nobody,
    /// Somebody may be better than all of whom it is known, and finding out costs more than is left for now.
    Unknown,
}

impl Core {
    /// Jobs of a cluster became idle: look for room. What waited before could not use that room, so only these are
    /// tried.
    pub(crate) fn offer_jobs(&mut self, turn: &mut Turn<'_>, cluster: u32) {
        let Some(found) = self.books.queue.clusters().get(&cluster) else { return };
        let mut shapes: Vec<ShapeId> =
            found.parts.iter().filter(|p| !p.idle.is_empty()).map(|p| p.shape).collect();
        shapes.dedup();
        // While it is not known of better ones which machines they could have, the others wait.
        if self.undone.holds_kinds() {
            for shape in shapes {
                self.undone.add_kind(shape);
            }
            return;
        }
        // Of many kinds only some are looked at in one go, so that others are not kept waiting.
        for shape in shapes.drain(shapes.len().min(KINDS_AT_ONCE)..) {
            self.undone.add_again(shape);
        }
        for shape in shapes {
            self.offer_shape(turn, shape);
        }
    }

    /// Finds room for waiting jobs of a shape while there is any. Machines that could not be asked are asked later.
    pub(crate) fn offer_shape(&mut self, turn: &mut Turn<'_>, shape: ShapeId) {
        self.undone.take_missed();
        while self.offer_once(turn, shape) {}
        let waits = self.books.shapes.all().get(&shape).is_some_and(|s| !s.ready.is_empty());
        if self.undone.take_missed() && waits {
            self.undone.add_kind(shape);
        }
    }

    /// Finds room for one claim of a shape's waiting jobs, or has somebody leave for them. True when there may be more.
    fn offer_once(&mut self, turn: &mut Turn<'_>, shape: ShapeId) -> bool {
        let ready = self.books.shapes.all().get(&shape).and_then(|s| s.ready.first().copied());
        let Some(ready) = ready else { return false };
        if !admission::may_have_more(&self.books, &self.gangs, shape) {
            self.books.changes.keep_back(shape);
            return false;
        }
        let asks = self.books.shapes.all().get(&shape).map(|s| s.request).unwrap_or_default();
        let is_hopeless = self.books.pool.roomy().is_empty() && asks != Resources::default();
        let room = if is_hopeless {
            None
        } else {
            room::room_for(&mut self.books, &mut self.gangs, &mut self.undone, shape, turn.now.wall_ms)
        };
        let Some(name) = room else {
            preempt::preempt_for(&mut self.books, &mut self.keys, &mut self.looks, turn, shape);
            return false;
        };
        // Usually the first; another one where this machine is no use to it.
        let ready = self
            .books
            .pool
            .machines()
            .get(&name)
            .and_then(|m| provision::first_for(&self.books, m, shape))
            .unwrap_or(ready);
        let candidate = Candidate { shape, ready };
        self.gangs_go_first(turn, &name, candidate) || self.start(turn, &name, candidate)
    }

    /// Machines take kinds of jobs again that they refused before.
    pub(crate) fn offer_taken_again(&mut self, turn: &mut Turn<'_>) {
        for shape in self.books.changes.take_taken_again() {
            // While it is not known of better ones which machines they could have, the others wait.
            if self.undone.holds_kinds() {
                self.undone.add_kind(shape);
            } else {
                self.offer_shape(turn, shape);
            }
        }
    }

    /// Some of a limit or a quota may be free: whoever was kept back by one tries again, those first whose turn it is.
    pub(crate) fn offer_kept_back(&mut self, turn: &mut Turn<'_>) {
        // What starts here may end at once and free more; a bound, as everywhere.
        for _ in 0..64 {
            let Some(mut kept) = self.books.changes.take_released() else { return };
            // One claim at a time: whose turn it is changes with each.
            while let Some(shape) = self.first_in_line(&kept) {
                if !self.offer_once(turn, shape) {
                    kept.remove(&shape);
                }
            }
        }
    }

    /// Whose turn it is among some kinds of jobs.
    fn first_in_line(&self, among: &BTreeSet<ShapeId>) -> Option<ShapeId> {
        if among.is_empty() {
            return None;
        }
        let mut line = self.books.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
        line.find(|shape| among.contains(shape))
    }

    /// Has jobs whose match depends on the time offered again, once a second: nothing else would tell that it has come. Of many
    /// such jobs only some are looked at each time, and the next second goes on behind them; a round that is not over in a
    /// second is not begun anew.
    pub(crate) fn offer_again(&mut self, now: Now) {
        let second = now.mono_ms / 1_000;
        if std::mem::replace(&mut self.again.second, second) == second || !self.undone.is_again_done() {
            return;
        }
        let line = self.books.accounts.in_line().flat_map(|at| at.waiting());
        let mut waiting: Vec<ShapeId> = line.map(|(_, shape)| shape).collect();
        if let Some(after) = self.again.after.take() {
            waiting.sort_unstable();
            let behind = waiting.partition_point(|shape| *shape <= after);
            waiting.rotate_left(behind);
        }
        let mut last = None;
        for (looked_at, shape) in waiting.into_iter().enumerate() {
            if looked_at == AGAIN_SHAPES {
                self.again.after = last;
                return;
            }
            last = Some(shape);
            if self.books.shapes.unsure_of(shape) > 0 {
                self.undone.add_again(shape);
            }
        }
    }

    /// A machine has room: fill it, each time with whose turn it is. As long as that is not known nobody gets it.
    pub(crate) fn offer_machine(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        while let Some(machine) = self.books.pool.machines().get(name) {
            let number = machine.number;
            if !machine.is_open() || machine.free.cpus == 0 {
                self.undone.settle_machine(number);
                return;
            }
            let best = self.best(name, machine.free, turn.now.wall_ms);
            if best == Best::Unknown {
                self.undone.add_machine(number);
                return;
            }
            self.undone.settle_machine(number);
            let Best::Found(candidate) = best else { return };
            if self.gangs_go_first(turn, name, candidate) {
                continue;
            }
            if !self.start(turn, name, candidate) {
                return;
            }
        }
    }

    /// Gangs that are before a plain job which is about to start on a machine: they start if they can, or have the machine
    /// kept for them, and then the job is another question. Costs nothing while no gang waits.
    fn gangs_go_first(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, candidate: Candidate) -> bool {
        if !self.gangs.has_waiting() {
            return false;
        }
        let Some(user) = self.books.shapes.all().get(&candidate.shape).map(|s| s.user) else { return false };
        let Some(number) = self.books.pool.machines().get(name).map(|m| m.number) else { return false };
        let rank = gangs::order::rank_of_jobs(
            &self.books.queue,
            &self.books.accounts,
            user,
            candidate.ready,
            turn.now.wall_ms,
        );
        let before = self.gangs.earmark(number);
        self.start_gangs(turn, Some(rank)) || self.gangs.earmark(number) != before
    }

    /// Goes on with what was left undone for want of keys, or for the throttle.
    pub fn resume(&mut self, turn: &mut Turn<'_>) {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        self.keys.try_again();
        let roomy: Vec<Arc<str>> =
            self.books.pool.roomy().iter().filter_map(|n| self.books.pool.name(n).cloned()).collect();
        for machine in roomy {
            self.offer_machine(turn, &machine);
        }
        self.gang_pass(turn);
    }

    /// Goes on with what was left undone: half of the allowance for kinds of jobs, and the rest for machines.
    pub(crate) fn go_on_undone(&mut self, turn: &mut Turn<'_>) {
        if self.undone.is_empty() {
            self.undone.forget_spent();
            return;
        }
        let all = self.books.shapes.allowance();
        let half = all / 2;
        self.books.shapes.allow(half);
        self.go_on_with_kinds(turn);
        self.books.shapes.allow(self.books.shapes.allowance().saturating_add(all - half));
        self.go_on_with_machines(turn);
    }

    fn go_on_with_kinds(&mut self, turn: &mut Turn<'_>) {
        for shape in undone::next_kinds(&self.books.shapes, &self.books.accounts, &self.undone) {
            if !self.undone.has_kind(shape) {
                continue;
            }
            if self.books.shapes.allowance() <= 0 {
                return;
            }
            let Some(since) = self.undone.begin_kind(shape) else { continue };
            let Some(user) = self.books.shapes.all().get(&shape).map(|s| s.user) else { continue };
            let before = classad::steps_taken();
            self.offer_shape(turn, shape);
            self.undone.end_kind(shape, since, user, classad::steps_taken().wrapping_sub(before));
        }
    }

    fn go_on_with_machines(&mut self, turn: &mut Turn<'_>) {
        for (number, may_wait) in self.undone.next_machines() {
            if self.books.shapes.allowance() <= 0 && may_wait {
                return;
            }
            let Some(name) = self.books.pool.name(number).cloned() else {
                self.undone.settle_machine(number);
                continue;
            };
            self.offer_machine(turn, &name);
        }
    }

    /// Makes a claim for waiting jobs and gives it the first; false when that must wait.
    pub(crate) fn start(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, candidate: Candidate) -> bool {
        let Some(session) = self.books.pool.machines().get(name).and_then(|m| m.session) else {
            return false;
        };
        if !self.keys.suffice_for(1) || !self.throttle.may_start(turn.now.mono_ms) {
            return false;
        }
        let Some(key) = self.keys.take() else { return false };
        // Also of a static slot only nothing is cut for who asks for nothing.
        let asks = self.books.shapes.all().get(&candidate.shape).map(|s| s.request);
        let of = asks.filter(|asks| *asks == Resources::default());
        let Some(claim) = feed::make_claim(
            &mut self.books,
            &self.gangs,
            turn,
            name,
            candidate,
            Cut { of, slot: None },
            &key,
        ) else {
            return false;
        };
        turn.out.effects.push(feed::claim_effect(&self.books.pool, session, claim, key));
        self.feed(turn, claim);
        true
    }

    /// The first in line among the jobs that fit into `room` on a machine.
    pub(crate) fn best(&mut self, name: &Arc<str>, room: Resources, now_ms: u64) -> Best {
        self.gangs.begin_question();
        let best = self.find_best(name, room, now_ms);
        self.gangs.end_question();
        best
    }

    fn find_best(&mut self, name: &Arc<str>, room: Resources, now_ms: u64) -> Best {
        let Some(machine) = self.books.pool.machines().get(name) else { return Best::Nobody };
        for at in self.books.accounts.in_line() {
            for (_, shape) in at.waiting() {
                let fits = self.books.shapes.all().get(&shape).is_some_and(|s| fits(s.request, room));
                // What costs nothing to know is asked first.
                if !fits
                    || !labs::is_for(
                        &self.books.shapes,
                        &self.books.accounts,
                        &self.books.labs,
                        machine,
                        shape,
                    )
                {
                    continue;
                }
                let Some(ready) = provision::first_for(&self.books, machine, shape) else { continue };
                match self.books.shapes.answer(shape, machine.number) {
                    Some(true) if room::may_take(&self.books, &self.gangs, machine, shape, now_ms) => {
                        if admission::may_have_more(&self.books, &self.gangs, shape) {
                            return Best::Found(Candidate { shape, ready });
                        }
                        self.books.changes.keep_back(shape);
                    }
                    None if self.undone.is_patient(machine.number) => return Best::Unknown,
                    // It is offered by itself, when more is known.
                    None => self.undone.add_again(shape),
                    Some(_) => {}
                }
            }
        }
        Best::Nobody
    }

    /// Offers the machines of gangs that somebody who waits is before by now: shares move with time, which no event tells.
    pub(crate) fn offer_overtaken(&mut self, turn: &mut Turn<'_>) {
        for machine in gangs::order::overtaken_machines(
            &self.books.queue,
            &self.books.pool,
            &self.books.accounts,
            &self.gangs,
            turn.now.wall_ms,
        ) {
            self.offer_machine(turn, &machine);
        }
    }

    /// Machines may have become usable: the same pass as for everything else.
    pub(crate) fn wake_machines(&mut self, turn: &mut Turn<'_>, names: &[Arc<str>]) {
        if names.is_empty() {
            return;
        }
        // Gangs first: a plain job must not take what one of them has waited for.
        self.gang_pass(turn);
        for name in names {
            self.offer_machine(turn, name);
        }
        preempt::preempt_on(&mut self.books, &self.gangs, &mut self.keys, &mut self.looks, turn, names);
        // Each plain job that starts moves its user's share: a gang may have taken the machines of another, whose plan is still
        // to be made anew.
        self.gang_pass(turn);
    }
}
