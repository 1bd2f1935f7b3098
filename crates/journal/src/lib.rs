//! The journal: a durable, replayable, fenced log of [`model::Event`]s.
//!
//! One writer appends batches; a batch is one row, so that its cost is the disk's sync and not the number of events.
//! Any number of readers replay from a position. A snapshot bounds how much recovery has to replay. What the events
//! mean, and when to write a snapshot, is decided elsewhere.

mod batch;
mod error;
mod sqlite;

pub use error::Error;
pub use sqlite::{Reader, Recovery, SqliteJournal};

/// An event and its position: the first event of a journal is at 1.
pub type Positioned = (u64, model::Event);
