//! What an agent holds: claims, leases, assignments, reports. The pure half of the agent: it is told the time, and its shell (the
//! crate `agent`, or the simulator) does what it says.
//!
//! - `core`: the whole of it: words, readings and time in, actions out
//! - `ledger`: the claims with their jobs and reports; what to do about each word from manager or starter
//! - `job`: from a job's attributes to something a starter can run; `numbers`: of signals and limits
//! - `owner`: drives the machine's policy: whether, how and how long jobs may run here; `load`: what they make of the machine's load
//! - `answers`: which starters answer, and which are to be killed
//! - `clock`: how far the machine's clock is off the manager's
//! - `record`: what must survive an agent
//! - `seats`: the way of a claim to its first job, and better matches that wait; `unfed`: claims that nobody wants any more

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod answers;
mod clock;
mod core;
mod job;
pub mod ledger;
pub mod load;
pub mod numbers;
pub mod owner;
pub mod record;
mod seats;
mod unfed;

pub use answers::EVERY_MS as ASK_EVERY_MS;
pub use core::{Action, Core, Jobs, Settings};
pub use job::Cargo;
pub use ledger::{Criu, Ledger, ended};
pub use owner::Owner;
pub use record::Record;
