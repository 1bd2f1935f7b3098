//! The job state monitor: runs a scheduler event generator, and tells whoever registered a job id every change of that job
//! once and in order, across crashes of anything.
//!
//! Pure: [`core`] (the decisions), [`line`](mod@line) (the generator's lines), [`terminal`], [`managed`], [`backoff`]. With IO:
//! [`generator`] (the process), [`datum`] (the files), [`spool`] (what is too much for the memory), [`shell`] (threads),
//! [`channel`]. The whole is [`Monitor`]; decision 040 says why it remembers what it remembers.

pub mod backoff;
pub mod channel;
pub mod core;
pub mod datum;
pub mod generator;
pub mod line;
pub mod managed;
pub mod shell;
pub mod spool;
pub mod terminal;

use std::sync::Arc;

pub use self::core::{AlreadyRegistered, Counters, Held, Limits, NotRegistered, Registering};
pub use self::generator::Command;
pub use self::managed::Whole;
pub use self::shell::{Acknowledged, Monitor, Settings, StartError, Status};
pub use crate::seg::State;

/// What a caller registers job ids for.
pub type Key = Arc<str>;

/// A change of a job's state, for its listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// To be acknowledged with, until the monitor ends.
    pub number: u64,
    /// What the id was registered for.
    pub key: Key,
    /// The scheduler's id of the job.
    pub id: Arc<[u8]>,
    /// Seconds since 1970.
    pub stamp: i64,
    /// The new state.
    pub state: State,
    /// Exit code or reason; 0 unless the job failed or is done.
    pub code: i32,
    /// The end was told before, this is its code.
    pub amends: bool,
    /// The state of everything that is registered for the key, if that is more than this id.
    pub whole: Option<Whole>,
}

/// A listener took an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// And is done with it.
    Handled,
    /// And will say so with [`Monitor::acknowledge`].
    Later,
}

/// Hears of changes. Called on the monitor's threads: for one key one call at a time and in order.
pub trait Listener: Send + Sync + 'static {
    /// A job changed. After an error (or a panic) the same change is told again, later and later.
    fn job_changed(&self, change: &Change) -> Result<Reply, String>;

    /// The generator has told all that there is, as far as it says so, or was quiet for a while.
    fn caught_up(&self) {}

    /// Something that a person should know.
    fn note(&self, _text: &str) {}
}
