//! The words that every room shares: ids, states, the event vocabulary, job templates and limits.
//!
//! Nothing here does IO, reads a clock or decides anything.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod class;
pub mod event;
pub mod id;
mod lab;
pub mod limits;
pub mod machine;
pub mod maintenance;
pub mod procs;
pub mod report;
mod run;
pub mod template;
pub mod text;

pub use class::Class;
pub use event::Event;
pub use id::{ClaimId, ClaimKey, JobId, JobName};
pub use machine::MachineName;
pub use procs::{ProcSet, Span};
pub use template::JobTemplate;

/// What time it is, as the shells tell the cores: two clocks for two purposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Monotonic milliseconds; leases and timers use only this.
    pub mono_ms: u64,
    /// Unix milliseconds; for people and calendars.
    pub wall_ms: u64,
}
