//! Maintenance windows, carried out: asks a pool for its machines, sends overrides and vacates, keeps operators' changes in a
//! file. What to do and when is the business of the crate `maintenance`; this only does it.
//!
//! It keeps no other state: killed in the middle of a window it starts again and goes on from what machines advertise.
//!
//! - `pool`: what is asked of a pool; `remote`: a pool over its API
//! - `driver`: the loop around the core; `drains`: managers that start nothing new meanwhile
//! - `changes`: operators' changes, in a file; `log`: EVENTD_LOG and EVENTD_DEBUG

#![forbid(unsafe_code)]

mod changes;
mod drains;
mod driver;
mod log;
pub mod pool;
mod remote;

pub use changes::{Carrier, Changes};
pub use driver::drive;
pub use log::Level;
pub use pool::{MachineSeen, Pool, Trouble, slot_ads};
pub use remote::Remote;

/// Why windows cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file with operators' changes.
    #[error("cannot {what} {path}: {why}")]
    Changes {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: String,
        /// Why not.
        why: String,
    },
}
