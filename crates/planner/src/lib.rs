//! Seats onto machines: sets of seats that start together in one lab, or not at all.
//!
//! The planner decides who starts, who gets a plan and who waits, over plain data: systems with room, sets with what each seat
//! may use, and the order in which they stand. It knows nothing of jobs, users, claims or agents; it reads no clock and does no
//! IO.
//!
//! - `bits`, `matching`: bitmaps, and seats to systems
//! - `terms`: what it is told and says; `rank`: who goes before whom; `planner`: what is known, and the rank-ordered pass; `visit`: one set's turn in it

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod bits;
pub mod matching;
mod planner;
mod rank;
mod terms;
#[cfg(test)]
mod tests;
mod visit;

pub use model::Class;
pub use planner::{Planner, loads};
pub use rank::{Rank, Standing};
pub use terms::{Decision, Fit, Plan, Reason, Rules, SEATS_MAX, Seat, Start, System, Want};

/// A point in time or a span; the unit is the caller's, as long as it is always the same.
pub type Time = u64;

/// A time that never comes.
pub const FOREVER: Time = Time::MAX;

/// A set of seats. Numbers go up in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u64);
