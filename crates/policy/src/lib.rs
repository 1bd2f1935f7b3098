//! A machine's state/activity automaton: (now, sensors, requests) in, actions out.
//!
//! The owner of a machine says with START, SUSPEND, PREEMPT and their kin when jobs may run on it; [`Machine`] is what
//! obeys. It reads no clock, measures nothing and starts nothing: the agent tells it the time and what its sensors
//! see, and does what the returned [`Action`]s say. The rules are those of the HTCondor manual of 1999, with the
//! transition numbers of that manual in [`Transition`] and in every [`Record`] of the trace.
//!
//! - `state`: the nine legal pairs of state and activity
//! - `transition`: the numbered arrows between them, and the record of one
//! - `expressions`: the owner's expressions and timers, and how undefined results are read
//! - `load`: from a configuration to a [`Policy`]; `lint`: what is legal in it but doubtful
//! - `slots`: how a machine is divided, from SLOT_TYPE_N to a list of plans
//! - `slot`: one slot: its standing, claim and rival
//! - `ad`: the ads that expressions see and that are advertised
//! - `machine`: inputs to actions, and the timers; `requests`: what each request means in each state;
//!   `evaluate`: what is tested at a poll, and in which order; `looks`: how long looks may be left out; `rest`: what keeps a job from
//!   starting at every poll
//! - `why`: which part of an expression decides, in words for people

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod ad;
mod evaluate;
mod expressions;
mod input;
mod known;
mod lint;
mod load;
mod looks;
mod machine;
mod requests;
mod rest;
mod slot;
pub mod slots;
mod state;
mod transition;
pub mod why;

pub use expressions::{Expression, Policy, Timers};
pub use input::{Action, Attributes, CheckpointWhy, Input, Readings, Warning};
pub use machine::Machine;
pub use slot::{BadSlotId, SlotId};
pub use state::{Activity, Standing, State};
pub use transition::{Cause, Record, Transition};
