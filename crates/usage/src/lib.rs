//! Where the time of a real pool went: a projection of the journal that costs what it reads.
//!
//! [`Projection`] is fed events in order. A machine's rows tile its time from its first mention on (a claim, a plan, a word
//! about its condition): one line for each slot from its first claim on, and one line, with an empty slot name, for what no
//! slot has. At every moment the cores of all lines together are those of the machine. A new row begins where anything
//! changes that the table is asked about: usage, condition, the gang that the machine is promised to. Rows are added to
//! sums as they close and are kept by nobody; what is in memory is what is open (claims, jobs in the hands of claims, clusters
//! in the queue) and one set of sums for each machine, lab and user that met.
//!
//! Times are measured on a clock that is never set: `ClockStepped` is taken off. Results are dated by the clock as it is now.
//!
//! What the journal does not know is not here: that a machine was out of contact is only known when its lease has run out,
//! so the last stretch of a lost claim, as long as the lease, is counted as such; and how large a machine is must be told
//! ([`Projection::know`]), else it is taken to have what was ever claimed of it at once.
//!
//! - `projection`: events to changes; `open`: what it remembers meanwhile; `closing`: changes to rows
//! - `rows`: a row, for whoever asks for them; `sums`: rows added up
//! - `answer`: sums by machine, lab, user and pool; `spread`: percentiles
//! - `steady`: the clock; `bookmark`: all of it as bytes, so that the next question need not begin at the beginning

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod answer;
mod bookmark;
mod closing;
mod open;
mod projection;
mod rows;
mod spread;
mod steady;
mod sums;
#[cfg(test)]
mod tests;

pub use answer::{Filter, Totals, Usage};
pub use bookmark::{Bookmark, Head, Unusable, fingerprint};
pub use projection::{Projection, Sizes, Window};
pub use rows::{Row, What, condition_name};
pub use spread::Spread;
pub use steady::SteadyClock;
