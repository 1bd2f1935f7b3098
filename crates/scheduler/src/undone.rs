//! What is not decided yet because finding out costs more than one input may take. Decision 054.
//!
//! Evaluations of the pass draw on an allowance that grows with time, so that however costly expressions are, the manager has
//! about half of its time for everything else. What could not be paid for waits here as plain state and is gone on with by the
//! next ticks: kinds of jobs for which not every machine was asked, and machines for which not every job was. Whoever waits for
//! answers about others waits for `PATIENCE_MS` at most; then what is known decides.

use std::collections::{BTreeMap, HashMap};

use model::Now;

use crate::accounts::{Accounts, UserId};
use crate::books::Books;
use crate::shape::{ShapeId, Shapes};

/// Steps that evaluations may take at once: some milliseconds.
pub(crate) const MOST_STEPS: i64 = 200_000;
/// Steps that are allowed for each millisecond that passes: about half of what a processor does.
const STEPS_PER_MS: i64 = 10_000;
/// Steps of a tick at least, also when no time has passed.
const STEPS_PER_TICK: i64 = 20_000;
/// No debt is larger than this.
const MOST_DEBT: i64 = 1_000_000;
/// So long a worse job does not get a machine while it is not known whether a better one could have it.
pub(crate) const PATIENCE_MS: u64 = 50;
/// Kinds of jobs that are gone on with in one tick, and machines.
const KINDS_AT_ONCE: usize = 64;
const MACHINES_AT_ONCE: usize = 256;
/// When there is nothing to spend, the next tick is after so many milliseconds.
const PAUSE_MS: u64 = 10;
/// Steps of an answer to somebody who asks why a job waits, or a machine.
pub(crate) const STEPS_TO_EXPLAIN: i64 = 400_000;
/// For a kind that is looked at again, and that nobody waits for.
const NEVER: u64 = 0;

/// What is not decided yet. Moments are milliseconds of the monotonic clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Undone {
    /// Kinds of jobs that were not offered to every machine, and since when.
    kinds: BTreeMap<ShapeId, u64>,
    /// Machines with room for which not every waiting job was asked, by number, and since when.
    machines: BTreeMap<u32, u64>,
    /// What going on for a user's kinds has cost, as long as anything is undone.
    spent: HashMap<UserId, u64>,
    /// When the allowance last grew.
    filled_ms: u64,
    now_ms: u64,
    /// Some machine with room was not asked.
    missed: bool,
    /// Machines that must be asked each time are not asked.
    pub(crate) sure_only: bool,
}

impl Undone {
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.machines.is_empty()
    }

    /// A kind of jobs was not offered to every machine; others wait for it for a while.
    pub(crate) fn add_kind(&mut self, shape: ShapeId) {
        let now_ms = self.now_ms.max(1);
        self.kinds.entry(shape).or_insert(now_ms);
    }

    /// A kind is to be offered again, and nobody waits for that.
    pub(crate) fn add_again(&mut self, shape: ShapeId) {
        self.kinds.entry(shape).or_insert(NEVER);
    }

    /// Are all that were to be offered again done?
    pub(crate) fn is_again_done(&self) -> bool {
        !self.kinds.values().any(|since| *since == NEVER)
    }

    fn is_young(&self, since_ms: u64) -> bool {
        since_ms != NEVER && self.now_ms < since_ms.saturating_add(PATIENCE_MS)
    }

    /// Must kinds that come now wait behind those that are better, and of which not everything is known?
    pub(crate) fn holds_kinds(&self) -> bool {
        self.kinds.values().any(|since| self.is_young(*since))
    }

    /// Is a machine kept until it is known who is the best for it?
    pub(crate) fn holds_machine(&self, number: u32) -> bool {
        self.machines.contains_key(&number)
    }

    /// May a machine wait for answers?
    pub(crate) fn is_patient(&self, number: u32) -> bool {
        self.machines.get(&number).is_none_or(|since| self.is_young(*since))
    }

    /// It is not known yet who is the best for a machine.
    pub(crate) fn add_machine(&mut self, number: u32) {
        let now_ms = self.now_ms.max(1);
        self.machines.entry(number).or_insert(now_ms);
    }

    pub(crate) fn settle_machine(&mut self, number: u32) {
        self.machines.remove(&number);
    }

    /// Not every machine with room could be asked.
    pub(crate) fn note_missed(&mut self) {
        self.missed = true;
    }

    /// Begins to look, or ends: was any machine missed since?
    pub(crate) fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    /// Is a kind still to be gone on with?
    pub(crate) fn has_kind(&self, shape: ShapeId) -> bool {
        self.kinds.contains_key(&shape)
    }

    /// Begins to go on with a kind; says since when it waits, if it does.
    pub(crate) fn begin_kind(&mut self, shape: ShapeId) -> Option<u64> {
        self.kinds.remove(&shape)
    }

    /// A user's kind was gone on with, which took so many steps. If it is still undone it is so since before.
    pub(crate) fn end_kind(&mut self, shape: ShapeId, since: u64, user: UserId, steps: u64) {
        *self.spent.entry(user).or_default() += steps;
        if let Some(again) = self.kinds.get_mut(&shape) {
            *again = since;
        }
    }

    /// Machines to go on with, those first that have waited longest, and whether they may wait longer.
    pub(crate) fn next_machines(&self) -> Vec<(u32, bool)> {
        let mut machines: Vec<(u64, u32)> =
            self.machines.iter().map(|(number, since)| (*since, *number)).collect();
        machines.sort_unstable();
        machines.truncate(MACHINES_AT_ONCE);
        machines.into_iter().map(|(since, number)| (number, self.is_young(since))).collect()
    }

    /// Nothing is undone: what was spent on anybody counts no more.
    pub(crate) fn forget_spent(&mut self) {
        self.spent.clear();
    }

    /// Kinds have other numbers now.
    pub(crate) fn renumber(&mut self, kinds: impl Iterator<Item = ShapeId>) {
        if !std::mem::take(&mut self.kinds).is_empty() {
            let now_ms = self.now_ms.max(1);
            self.kinds = kinds.map(|shape| (shape, now_ms)).collect();
        }
    }
}

/// An input begins: the allowance has grown with the time.
pub(crate) fn refill(books: &mut Books, undone: &mut Undone, now: Now) {
    let passed = now.mono_ms.saturating_sub(undone.filled_ms).min(1_000) as i64;
    (undone.filled_ms, undone.now_ms) = (now.mono_ms, now.mono_ms);
    books.mono_ms = now.mono_ms;
    let left = books.shapes.allowance().max(-MOST_DEBT);
    books.shapes.allow(left.saturating_add(passed * STEPS_PER_MS).min(MOST_STEPS));
}

/// A tick goes on, whatever the clock says.
pub(crate) fn refill_for_tick(books: &mut Books, undone: &mut Undone, now: Now) {
    refill(books, undone, now);
    books.shapes.allow(books.shapes.allowance().max(STEPS_PER_TICK));
}

/// When something is undone: after how many milliseconds to go on.
pub(crate) fn undone_due_ms(shapes: &Shapes, undone: &Undone) -> Option<u64> {
    let pause = if shapes.allowance() > 0 { 1 } else { PAUSE_MS };
    (!undone.is_empty()).then_some(pause)
}

/// Kinds in the order in which they are gone on with: first those that have waited long enough, of whom least was spent on;
/// then the others, whose turn it is first.
pub(crate) fn next_kinds(shapes: &Shapes, accounts: &Accounts, undone: &Undone) -> Vec<ShapeId> {
    let undone = &undone;
    let spent = |shape: &ShapeId| {
        let user = shapes.all().get(shape).map(|s| s.user);
        user.and_then(|user| undone.spent.get(&user)).copied().unwrap_or(0)
    };
    let overdue = undone.kinds.iter().filter(|(_, since)| !undone.is_young(**since));
    let mut overdue: Vec<(u64, u64, ShapeId)> =
        overdue.map(|(shape, since)| (spent(shape), *since, *shape)).collect();
    overdue.sort_unstable();
    let mut next: Vec<ShapeId> = overdue.into_iter().map(|(_, _, shape)| shape).collect();
    if next.len() < undone.kinds.len() {
        let young = |shape: &ShapeId| undone.kinds.get(shape).is_some_and(|since| undone.is_young(*since));
        let line = accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
        next.extend(line.filter(young).take(KINDS_AT_ONCE));
    }
    next.truncate(KINDS_AT_ONCE);
    next
}
