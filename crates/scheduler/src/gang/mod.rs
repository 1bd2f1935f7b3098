//! Gangs: sets of seats that start together in one lab, or not at all.
//!
//! Two halves. The **planner** decides who starts, who gets a plan and who waits, over plain data; the pool's core and
//! the desk below use the same one. The **desk** is the automaton of a hardware lab: recipes, systems with conditions,
//! labs with trees, loans, guests, and what happens to them, as (state, event) -> (state, effects). Neither reads a clock
//! nor does IO.
//!
//! - `bits`, `matching`: bitmaps, and seats to systems
//! - `rank`: who goes before whom; `planner`, `visit`: the rank-ordered pass
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
pub mod rank;
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

pub use model::Class;
