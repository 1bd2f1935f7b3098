//! What evaluations may cost before the engine says "not known yet", and what they have cost so far.

use crate::eval::steps_taken;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

/// What an evaluation costs beside its steps.
const EACH: i64 = 2;
/// Slots whose expressions take fewer steps than this are all alike.
const CHEAP: u64 = 200;
/// Costs that are remembered.
const REMEMBERED: usize = 65_536;

/// Steps that are left. The last evaluation may go beyond them; that is a debt, which the next allowance pays.
pub(super) struct Purse(AtomicI64);

impl Purse {
    pub(super) fn left(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, steps: i64) {
        self.0.store(steps, Ordering::Relaxed);
    }

    fn take(&self, steps: i64) {
        self.set(self.left().saturating_sub(steps));
    }

    /// Evaluates something, unless nothing is left.
    pub(super) fn pay<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        (self.left() > 0).then(|| self.owe(ask))
    }

    /// Does something that cannot wait, whatever is left.
    pub(super) fn owe<T>(&self, ask: impl FnOnce() -> T) -> T {
        let before = steps_taken();
        let value = ask();
        let steps = i64::try_from(steps_taken().wrapping_sub(before)).unwrap_or(i64::MAX);
        self.take(steps.saturating_add(EACH));
        value
    }
}

/// Without limit, until somebody sets one.
impl Default for Purse {
    fn default() -> Purse {
        Purse(AtomicI64::new(i64::MAX))
    }
}

impl Clone for Purse {
    fn clone(&self) -> Purse {
        Purse(AtomicI64::new(self.left()))
    }
}

/// What expressions of slots were seen to cost, so that the cheap ones are asked first: one machine with costly expressions
/// must not come before all others.
#[derive(Clone, Default)]
pub(super) struct Costs {
    /// By column and code.
    codes: HashMap<(usize, u32), u64>,
    /// By key of the slot.
    slots: HashMap<u32, u64>,
}

impl Costs {
    /// Groups of classes in the order in which they are asked.
    pub(super) fn sort(&self, column: usize, groups: &mut [(u32, Vec<u32>)]) {
        if !self.codes.is_empty() {
            groups.sort_by_key(|(code, _)| self.codes.get(&(column, *code)).copied().unwrap_or(0));
        }
    }

    /// What asking a group of so many classes has cost.
    pub(super) fn note_group(&mut self, column: usize, code: u32, steps: i64, classes: usize) {
        let each = u64::try_from(steps).unwrap_or(0) / classes.max(1) as u64;
        if each >= CHEAP {
            if self.codes.len() >= REMEMBERED {
                self.codes.clear();
            }
            self.codes.insert((column, code), each);
        }
    }

    /// What asking a slot for its side has cost.
    pub(super) fn note_slot(&mut self, key: u32, steps: u64) {
        if steps < CHEAP {
            self.slots.remove(&key);
            return;
        }
        if self.slots.len() >= REMEMBERED {
            self.slots.clear();
        }
        self.slots.insert(key, steps);
    }

    pub(super) fn of_slot(&self, key: u32) -> u64 {
        self.slots.get(&key).copied().unwrap_or(0)
    }

    /// Codes stand for other expressions from now on.
    pub(super) fn forget_codes(&mut self) {
        self.codes.clear();
    }
}
