//! Gangs: sets of seats that start together in one lab, or not at all.
//!
//! Two halves. The **planner** decides who starts, who gets a plan and who waits, over plain data; the pool's core and
//! the desk below use the same one. The **desk** is the automaton of a hardware lab: recipes, systems with conditions,
//! labs with trees, loans, guests, and what happens to them, as (state, event) -> (state, effects). Neither reads a clock
//! nor does IO.
//!
//! - `bits`, `matching`: bitmaps, and seats to systems
//! - `planner`, `visit`: the rank-ordered pass
//! - `words`: states, conditions, usage and the legal moves; `host`: what a recipe asks of its system
//! - `desk`: the automaton
//! - `usage`: rows that tile time; `metrics`: what they tell
//! - `check`: the invariants

pub mod bits;
pub mod check;
pub mod desk;
pub mod host;
pub mod matching;
pub mod metrics;
pub mod planner;
#[cfg(test)]
mod tests;
pub mod usage;
mod visit;
pub mod words;

/// A point in time or a span; the unit is the caller's, as long as it is always the same.
pub type Time = u64;

/// A time that never comes.
pub const FOREVER: Time = Time::MAX;

/// A set of seats. Numbers go up in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u64);

/// How urgent a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Least.
    Low,
    /// Below normal.
    Medium,
    /// What a set has that asks for nothing.
    #[default]
    Normal,
    /// Above normal.
    High,
    /// Most; aging ends here.
    Urgent,
}

impl Class {
    /// Every class, least first.
    pub const ALL: [Self; 5] = [Self::Low, Self::Medium, Self::Normal, Self::High, Self::Urgent];

    /// The class after waiting, and when it rises next.
    pub fn aged(self, submitted: Time, now: Time, quantum: Option<Time>) -> (Self, Option<Time>) {
        let Some(quantum) = quantum.filter(|q| *q > 0) else { return (self, None) };
        let steps = now.saturating_sub(submitted) / quantum;
        let top = Self::ALL.len() - 1;
        let class = (self as usize).saturating_add(usize::try_from(steps).unwrap_or(top)).min(top);
        let next = (class < top).then(|| submitted.saturating_add((steps + 1).saturating_mul(quantum)));
        (Self::ALL[class], next)
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        ["Low", "Medium", "Normal", "High", "Urgent"][self as usize]
    }

    /// From its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name))
    }
}
