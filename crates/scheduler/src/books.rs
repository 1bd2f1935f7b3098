//! The books: the queue, the pool's claims, and the only places where they are written.
//!
//! Everybody may read them. What is durable changes in `apply`, one fact at a time, and in nothing else: the verbs that do so are
//! visible in this room only, and nobody outside it is handed a cluster or a claim to change. `snapshot` loads what `apply` once
//! wrote, `steps` moves its dates, `resort` and `platform` sort jobs anew that are no longer alike. `sweep` finds books that do not
//! agree with each other, and `recount` their sums.

mod apply;
mod machines;
mod place;
mod platform;
pub(crate) mod pool;
pub(crate) mod queue;
mod recount;
mod resort;
pub(crate) mod snapshot;
mod steps;
mod stored;
pub(crate) mod sweep;
