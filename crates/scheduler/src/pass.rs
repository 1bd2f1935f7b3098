//! Who gets what. Two things start a decision: jobs became idle, or a machine has room; both end here.

use std::collections::BTreeSet;
use std::sync::Arc;

use classad::engine::SlotSet;
use model::Now;
use model::event::Resources;

use crate::feed::Cut;
use crate::gangs::Leave;
use crate::labs::Shut;
use crate::pool::{Machine, fits};
use crate::shape::{Ready, ShapeId};
use crate::{Core, Turn};

/// Kinds of jobs of one cluster that are offered to the machines in one go.
const KINDS_AT_ONCE: usize = 64;
/// Waiting shapes that are looked at each second because their match may depend on the time.
const AGAIN_SHAPES: usize = 256;
/// How often the machines that a job likes best are looked for among those that are left.
const FAVOURITES: usize = 8;

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

/// Why jobs of a shape do not start on a machine now. What the pass decides by is what people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The machine is out of contact.
    NoContact,
    /// It has less than the job asks for, even when empty.
    TooSmall,
    /// Its Requirements and the job's do not agree.
    Requirements,
    /// Its owner has it: its policy takes no job now, and may again later.
    Owners,
    /// It would let the job in and make it leave at once, as it did before: it rests from such jobs for a while.
    Resting,
    /// It takes nothing new from anybody.
    Shut(Shut),
    /// It is lent to somebody else.
    Lent,
    /// It takes only jobs of users and groups that do not include this one's.
    NotAllowed,
    /// Its lab does not have the trees that the job is installed from.
    Trees,
    /// It could not be made ready for this job before, or ended claims for such jobs before they began.
    Unready,
    /// It is in use.
    Busy,
    /// It has room that is kept for a gang, and the job is not sure to be gone in time.
    Promised,
    /// The job would run into its next maintenance window.
    Maintenance,
}

impl Core {
    /// Jobs of a cluster became idle: look for room. What waited before could not use that room, so only these are
    /// tried.
    pub(crate) fn offer_jobs(&mut self, turn: &mut Turn<'_>, cluster: u32) {
        let Some(found) = self.queue.clusters().get(&cluster) else { return };
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
        let waits = self.shapes.all().get(&shape).is_some_and(|s| !s.ready.is_empty());
        if self.undone.take_missed() && waits {
            self.undone.add_kind(shape);
        }
    }

    /// Finds room for one claim of a shape's waiting jobs, or has somebody leave for them. True when there may be more.
    fn offer_once(&mut self, turn: &mut Turn<'_>, shape: ShapeId) -> bool {
        let ready = self.shapes.all().get(&shape).and_then(|s| s.ready.first().copied());
        let Some(ready) = ready else { return false };
        if !self.may_have_more(shape) {
            self.changes.keep_back(shape);
            return false;
        }
        let asks = self.shapes.all().get(&shape).map(|s| s.request).unwrap_or_default();
        let is_hopeless = self.pool.roomy().is_empty() && asks != Resources::default();
        let room = if is_hopeless { None } else { self.room_for(shape, turn.now.wall_ms) };
        let Some(name) = room else {
            self.preempt_for(turn, shape);
            return false;
        };
        // Usually the first; another one where this machine is no use to it.
        let ready = self.pool.machines().get(&name).and_then(|m| self.first_for(m, shape)).unwrap_or(ready);
        let candidate = Candidate { shape, ready };
        self.gangs_go_first(turn, &name, candidate) || self.start(turn, &name, candidate)
    }

    /// The next job of a shape that may start, and where.
    pub(crate) fn first_room(&mut self, shape: ShapeId, now_ms: u64) -> Option<(Ready, Arc<str>)> {
        let ready = self.shapes.all().get(&shape).and_then(|s| s.ready.first().copied())?;
        if !self.may_have_more(shape) {
            return None;
        }
        Some((ready, self.room_for(shape, now_ms)?))
    }

    /// Machines take kinds of jobs again that they refused before.
    pub(crate) fn offer_taken_again(&mut self, turn: &mut Turn<'_>) {
        for shape in self.changes.take_taken_again() {
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
            let Some(mut kept) = self.changes.take_released() else { return };
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
        let mut line = self.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
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
        let line = self.accounts.in_line().flat_map(|at| at.waiting());
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
            if self.shapes.unsure_of(shape) > 0 {
                self.undone.add_again(shape);
            }
        }
    }

    /// The machine with room that such a job likes best; the first, when it likes all the same.
    fn room_for(&mut self, shape: ShapeId, now_ms: u64) -> Option<Arc<str>> {
        self.in_one_question(|core| core.find_room(shape, now_ms))
    }

    /// Machines that need not be asked again come first, and among the others those that are cheap to ask.
    fn find_room(&mut self, shape: ShapeId, now_ms: u64) -> Option<Arc<str>> {
        let (request, picky) = self.shapes.all().get(&shape).map(|s| (s.request, s.picky))?;
        let known = self.shapes.known(shape)?;
        // Whoever asks for nothing finds room on full machines, too.
        let asks_nothing = request == Resources::default();
        let with_room = |set: &SlotSet| -> Vec<u64> {
            if asks_nothing {
                return set.words().to_vec();
            }
            set.words().iter().zip(self.pool.roomy().words()).map(|(a, b)| a & b).collect()
        };
        let (sure, unsure) = (with_room(known.matching), with_room(known.unsure));
        let mut missed = !known.complete;
        let open = |number: u32| self.pool.machines().at(number).filter(|m| m.is_open());
        // A static slot is free or it is not, so it is the last that is asked to give nothing.
        let spare_static =
            asks_nothing && bits(sure.iter().copied()).any(|n| open(n).is_some_and(|m| !m.whole));
        let is_open = |number: u32| open(number).is_some_and(|m| !(spare_static && m.whole));
        let is_free = |number: u32| {
            let has_room = if asks_nothing { is_open(number) } else { fits(request, self.pool.room(number)) };
            has_room && !self.undone.holds_machine(number)
        };
        let may_take = |number: u32| {
            let machine = self.pool.machines().at(number);
            machine.is_some_and(|m| self.may_take(m, shape, now_ms))
        };
        let mut free = bits(sure.into_iter()).filter(|number| is_free(*number));
        // Of many machines to choose from only those are asked whether they may be taken that the job likes best.
        let mut found: Vec<u32> =
            if picky { free.collect() } else { free.find(|number| may_take(*number)).into_iter().collect() };
        if (picky || found.is_empty()) && !self.undone.sure_only {
            let of_use = |m: &Machine| self.is_for(m, shape) && self.first_for(m, shape).is_some();
            let machine = |number: u32| self.pool.machines().at(number).filter(|_| is_free(number));
            let mut unsure: Vec<u32> =
                bits(unsure.into_iter()).filter(|n| machine(*n).is_some_and(of_use)).collect();
            unsure.sort_by_key(|number| self.shapes.cost_of(*number));
            for number in unsure {
                match self.shapes.answer(shape, number) {
                    Some(true) => {
                        let machine = self.pool.machines().at(number);
                        if picky || machine.is_some_and(|m| self.may_take(m, shape, now_ms)) {
                            found.push(number);
                        }
                    }
                    Some(false) => {}
                    None => missed = true,
                }
                if !picky && !found.is_empty() {
                    break;
                }
            }
        }
        if missed {
            self.undone.note_missed();
        }
        let best = if picky { self.find_favourite(shape, found, now_ms) } else { found.first().copied() };
        self.pool.name(best?).cloned()
    }

    /// The first machine that such a job may take among those that it likes best; among those that it likes next, if it may take
    /// none of them.
    fn find_favourite(&mut self, shape: ShapeId, mut machines: Vec<u32>, now_ms: u64) -> Option<u32> {
        machines.sort_unstable();
        for _ in 0..FAVOURITES {
            let best = self.shapes.favourites(shape, &machines);
            if let Some(found) = self.first_to_take(shape, best.iter().copied(), now_ms) {
                return Some(found);
            }
            // Both are in order.
            let mut refused = best.into_iter().peekable();
            machines.retain(|number| refused.next_if_eq(number).is_none());
            if machines.is_empty() {
                return None;
            }
        }
        // So much is kept against it that the rest is put in order at once.
        let taken: Vec<u32> = machines
            .into_iter()
            .filter(|n| self.first_to_take(shape, [*n].into_iter(), now_ms).is_some())
            .collect();
        self.shapes.favourites(shape, &taken).first().copied()
    }

    fn first_to_take(
        &self,
        shape: ShapeId,
        mut machines: impl Iterator<Item = u32>,
        now_ms: u64,
    ) -> Option<u32> {
        machines.find(|number| {
            let machine = self.pool.machines().at(*number);
            machine.is_some_and(|m| self.may_take(m, shape, now_ms))
        })
    }

    /// A machine has room: fill it, each time with whose turn it is. As long as that is not known nobody gets it.
    pub(crate) fn offer_machine(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        while let Some(machine) = self.pool.machines().get(name) {
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
        let Some(user) = self.shapes.all().get(&candidate.shape).map(|s| s.user) else { return false };
        let Some(number) = self.pool.machines().get(name).map(|m| m.number) else { return false };
        let rank = self.rank_of_jobs(user, candidate.ready, turn.now.wall_ms);
        let before = self.gangs.earmark(number);
        self.start_gangs(turn, Some(rank)) || self.gangs.earmark(number) != before
    }

    /// Goes on with what was left undone for want of keys, or for the throttle.
    pub fn resume(&mut self, turn: &mut Turn<'_>) {
        self.refill(turn.now);
        self.keys.try_again();
        let roomy: Vec<Arc<str>> =
            self.pool.roomy().iter().filter_map(|n| self.pool.name(n).cloned()).collect();
        for machine in roomy {
            self.offer_machine(turn, &machine);
        }
        self.gang_pass(turn);
    }

    /// Makes a claim for waiting jobs and gives it the first; false when that must wait.
    pub(crate) fn start(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, candidate: Candidate) -> bool {
        let Some(session) = self.pool.machines().get(name).and_then(|m| m.session) else { return false };
        if !self.keys.suffice_for(1) || !self.throttle.may_start(turn.now.mono_ms) {
            return false;
        }
        let Some(key) = self.keys.take() else { return false };
        // Also of a static slot only nothing is cut for who asks for nothing.
        let asks = self.shapes.all().get(&candidate.shape).map(|s| s.request);
        let of = asks.filter(|asks| *asks == Resources::default());
        let Some(claim) = self.make_claim(turn, name, candidate, Cut { of, slot: None }, &key) else {
            return false;
        };
        turn.out.effects.push(self.claim_effect(session, claim, key));
        self.feed(turn, claim);
        true
    }

    /// May such a job take room on this machine, whoever it is lent or promised to?
    pub(crate) fn may_take(&self, machine: &Machine, shape: ShapeId, now_ms: u64) -> bool {
        self.is_for(machine, shape)
            && self.first_for(machine, shape).is_some()
            && self.respects_promises(machine, shape, now_ms)
    }

    /// Why jobs of a shape do not start on a machine now; `None` when they would.
    pub(crate) fn obstacle(&mut self, shape: ShapeId, name: &str) -> Option<Obstacle> {
        let Some(machine) = self.pool.machines().get(name) else { return Some(Obstacle::NoContact) };
        let Some(request) = self.shapes.all().get(&shape).map(|s| s.request) else {
            return Some(Obstacle::Requirements);
        };
        if machine.session.is_none() {
            Some(Obstacle::NoContact)
        } else if !fits(request, machine.total) {
            Some(Obstacle::TooSmall)
        } else if !self.shapes.can_run(shape, machine) {
            Some(Obstacle::Requirements)
        } else if let Some(shut) = machine.shut {
            Some(Obstacle::Shut(shut))
        } else if !self.is_for(machine, shape) {
            let lent = machine.only.is_some();
            if !self.has_trees_for(machine, shape) {
                return Some(Obstacle::Trees);
            }
            Some(if lent { Obstacle::Lent } else { Obstacle::NotAllowed })
        } else if !fits(request, machine.free) {
            Some(Obstacle::Busy)
        } else {
            None
        }
    }

    /// The same, with what is promised to gangs: to the gang itself that is no obstacle.
    pub(crate) fn obstacle_now(
        &mut self,
        shape: ShapeId,
        cluster: u32,
        name: &str,
        now_ms: u64,
    ) -> Option<Obstacle> {
        // One that could not be made ready is no better when it is free.
        let number = self.pool.machines().get(name).map(|m| m.number);
        let refuses = number.is_some_and(|number| self.refusals.rests(number, shape, self.undone.now_ms));
        let unready = refuses || self.is_excluded(cluster, name);
        let found = self.obstacle(shape, name).filter(|o| !unready || *o != Obstacle::Busy);
        if let Some(obstacle) = found.or(unready.then_some(Obstacle::Unready)) {
            return Some(obstacle);
        }
        match self.leave(self.pool.machines().get(name)?, shape, now_ms) {
            Leave::Withheld { gang, .. } if gang != cluster => Some(Obstacle::Promised),
            Leave::Maintenance { .. } => Some(Obstacle::Maintenance),
            _ => None,
        }
    }

    /// The first in line among the jobs that fit into `room` on a machine.
    pub(crate) fn best(&mut self, name: &Arc<str>, room: Resources, now_ms: u64) -> Best {
        self.in_one_question(|core| core.find_best(name, room, now_ms))
    }

    fn find_best(&mut self, name: &Arc<str>, room: Resources, now_ms: u64) -> Best {
        let Some(machine) = self.pool.machines().get(name) else { return Best::Nobody };
        for at in self.accounts.in_line() {
            for (_, shape) in at.waiting() {
                let fits = self.shapes.all().get(&shape).is_some_and(|s| fits(s.request, room));
                // What costs nothing to know is asked first.
                if !fits || !self.is_for(machine, shape) {
                    continue;
                }
                let Some(ready) = self.first_for(machine, shape) else { continue };
                match self.shapes.answer(shape, machine.number) {
                    Some(true) if self.may_take(machine, shape, now_ms) => {
                        if self.may_have_more(shape) {
                            return Best::Found(Candidate { shape, ready });
                        }
                        self.changes.keep_back(shape);
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
}

/// The numbers of the bits that are set.
fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    words.enumerate().flat_map(|(at, word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(at as u32 * 64 + bit)
        })
    })
}
