//! Shutdown windows: take machines down on time, without a checkpoint storm.
//!
//! An administrator writes weekly or dated windows; by the start of one every matching machine is empty, every job
//! that can checkpoint has done so, and no bandwidth domain carried more than its cap. This crate holds the grammar,
//! the calendar, the core that decides, a plan that predicts and a simulation that checks. It does no IO, reads no
//! clock, starts no thread: a driver performs the [`Output`]s and reports back with [`Input`]s.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod calendar;
pub mod core;
pub mod estimate;
pub mod event;
pub mod limits;
pub mod machine;
pub mod plan;
pub mod record;
pub mod settings;
pub mod simulate;
mod svg;

pub use self::core::{Begun, Command, Core, Input, Outcome, Output, SlotOrder};
pub use calendar::{Override, Window, next_down_time, occurrence};
pub use event::{Days, Event};
pub use plan::{Plan, plan};
pub use record::Record;
pub use settings::Settings;
