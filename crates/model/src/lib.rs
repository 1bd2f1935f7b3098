//! The words that every room shares: ids, states, the event vocabulary, job templates and limits.
//!
//! `event` is what the journal keeps, `agent` what manager and agents say to each other, `starter` what agents and starters do, and
//! `report` what all of them have to say of jobs.
//!
//! Nothing here does IO, reads a clock or decides anything.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agent;
pub mod attributes;
pub mod changing;
mod class;
pub mod codes;
pub mod event;
pub mod id;
mod lab;
pub mod limits;
pub mod machine;
pub mod maintenance;
pub mod procs;
pub mod report;
mod run;
pub mod size;
pub mod starter;
pub mod template;
pub mod text;
mod time;
pub mod visit;

pub use class::Class;
pub use event::Event;
pub use id::{ClaimId, ClaimKey, JobId, JobName};
pub use machine::MachineName;
pub use procs::{ProcSet, Span};
pub use template::JobTemplate;
pub use time::{Moment, MonoMs, WallMs};

/// What time it is, as the shells tell the cores: two clocks for two purposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Monotonic milliseconds; leases and timers use only this.
    pub mono_ms: u64,
    /// Unix milliseconds; for people and calendars.
    pub wall_ms: u64,
}

impl Now {
    /// By the clock that nobody sets.
    pub fn mono(self) -> MonoMs {
        MonoMs(self.mono_ms)
    }

    /// By the clock on the wall.
    pub fn wall(self) -> WallMs {
        WallMs(self.wall_ms)
    }
}
