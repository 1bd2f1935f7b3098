//! Jobs that have left the queue: exit code or signal, machine, times, memory, CPU, reasons of holds and removals.
//!
//! A projection of the journal (decision 079). [`Story`] is pure: events in, rows out, in the order of positions. [`Files`] keeps
//! rows in segments that are only appended to, read from either end, and pruned whole; `ad` makes a job's ad of a row. Rows
//! of events that the journal still has can be made anew; older ones stay.

#![forbid(unsafe_code)]

mod ad;
mod files;
mod row;
mod segment;
mod story;

pub use ad::job_ad;
pub use files::{Cursor, Files, Found, Limits, Page, Question, read};
pub use row::{Bookmark, ClusterRecord, Facts, Row};
pub use story::{Story, Told};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct Error {
    path: String,
    #[source]
    source: std::io::Error,
}

impl Error {
    pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.display().to_string();
        move |source| Self { path, source }
    }
}

#[cfg(test)]
mod tests;
