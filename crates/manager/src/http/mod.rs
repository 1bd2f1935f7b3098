//! Sockets and requests: who is calling, may they, what do they want.
//!
//! - `serve`: the Unix socket, the TLS port, the plain health port; limits on connections
//! - `routes`: the REST API; `events`: the event stream; `usage`: where the time went; `agents`: agent sessions over gRPC;
//!   `explain`: why jobs wait and machines idle
//! - `doors`: how many connections each caller may have, and how long one may be silent
//! - `who`: from a connection and its headers to a principal
//! - `rules`: which right each path needs, before anything of a request is read
//! - `gate`: limits on how much one caller may ask at a time

mod agents;
mod doors;
mod events;
mod explain;
mod gate;
mod machines;
mod routes;
mod rules;
mod serve;
mod usage;
mod who;

use std::path::PathBuf;
use std::sync::Arc;

pub use gate::Gate;
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
    pub(crate) gate: Gate,
    pub(crate) job_logs: crate::joblogs::Troubles,
    pub(crate) stopped: watch::Receiver<bool>,
}
