//! Sockets and requests: who is calling, may they, what do they want.
//!
//! - `serve`: the Unix socket, the TLS port, the plain health port; limits on connections
//! - `doors`: the places for connections, and who goes when there are too many; `prompt`: how long one may be silent
//! - `reserve`: the disk that is kept free for the records of all; `refused`: what becomes of bodies that nobody read
//! - `who`: from a connection and its headers to a principal
//! - `budgets`: what each caller may use at a time
//! - `table`: every path, with what it needs, takes and gives; `route`: what happens on each of them; `openapi`: the table as documents
//! - `jobs`, `ads`, `spool`, `pool`, `machines`, `tokens`, `explain`, `usage`, `events`, `visits`, `health`: what is done; `agents`: agent sessions over gRPC

mod ads;
mod agents;
mod budgets;
mod doors;
mod events;
mod explain;
mod health;
mod jobs;
mod machines;
mod openapi;
mod pool;
mod prompt;
mod refused;
mod reserve;
mod route;
mod serve;
mod spool;
mod table;
mod tokens;
mod usage;
mod visits;
mod who;

use std::path::PathBuf;
use std::sync::Arc;

pub use budgets::Budgets;
pub(crate) use machines::control_of;
pub(crate) use pool::claim_line;
pub use reserve::Reserve;
pub(crate) use serve::{serve_health, serve_tls, serve_unix};
use tokio::sync::watch;
use trust::ca::Authority;

use crate::metrics::Metrics;
use crate::{Handle, Sharing};

/// What every request handler needs.
#[derive(Debug)]
pub struct Shared {
    pub(crate) handle: Handle,
    pub(crate) authority: Arc<Authority>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sharing: Sharing,
    pub(crate) beat_ms: u64,
    pub(crate) own_uid: u32,
    pub(crate) journal_dir: PathBuf,
    pub(crate) budgets: Budgets,
    pub(crate) reserve: Reserve,
    pub(crate) job_logs: crate::joblogs::Troubles,
    pub(crate) history: crate::history::History,
    pub(crate) reload: Option<crate::Reload>,
    pub(crate) stopped: watch::Receiver<bool>,
}
