//! The manager: one thread owns the books and is the only writer; everything else talks to it by messages.
//!
//! - `writer`: the loop: inputs to decisions, decisions to the journal, and only then effects to the world; `clock`: its clocks
//! - `books`: what the writer owns: the scheduler core and the register of tokens
//! - `reload`: other settings while it runs
//! - `registry`: tokens, and the keys that machines' names are bound to
//! - `agents`: an agent's connection, questions to machines; `sessions`: the core's decisions as messages to agents
//! - `cargo`: jobs' files between their owners' directories and the store
//! - `objects`: when the store (crate `store`) is cleaned up, and the key of transparent checkpoints; `traces`: what machines' policies did lately
//! - `feed`: subscribers that replay the journal from any position and then follow it; `damage`: what they could not read
//! - `joblogs`: the subscriber that writes job event logs
//! - `windows`: maintenance windows that somebody carries out; this pool for the event daemon in its own process
//! - `history`: jobs that have left the queue, in rows
//! - `usage`: where the time went, from the journal; `bookmarks`: so that it need not begin at the beginning
//! - `http`: the API for people, the port for agents
//! - `fuzzing`: agents' words without journal and sockets, for crates/fuzz
//! - `numbers`: cluster numbers that a pool at rest has used; `metrics`: counters; `state`: the state directory and its lock

#![forbid(unsafe_code)]

mod agents;
mod bookmarks;
mod books;
mod cargo;
mod clock;
mod damage;
mod feed;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod history;
pub mod http;
mod joblogs;
mod metrics;
mod numbers;
mod objects;
mod occupied;
mod registry;
mod reload;
mod sessions;
mod state;
mod traces;
mod usage;
mod visits;
mod windows;
mod writer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use agents::{AgentSession, NoAnswer};
pub use cargo::{LandedHere, land_here, list_inputs};
pub use handle::{Handle, Unavailable};
pub use numbers::{has_journal, is_in_use, next_cluster};
pub use reload::{Reload, Reloaded};
pub use sessions::{FromManager, Incoming};
pub use state::{StateDir, check_owner};
use tokio::sync::watch;
pub use windows::OwnPool;

/// Who may use this pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Only the user who started it; jobs run as that user.
    Private,
    /// Everybody on this machine, and whoever has a token; nobody's jobs run as root.
    Shared,
}

impl Sharing {
    /// What the store's settings mean in such a pool.
    fn adapt(self, settings: store::Settings) -> store::Settings {
        match self {
            Self::Private => settings.for_one_user(),
            Self::Shared => settings,
        }
    }
}

/// How to run a manager.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are.
    pub state: PathBuf,
    /// Who may use it.
    pub sharing: Sharing,
    /// Port for agents and remote users (TLS).
    pub listen: Option<SocketAddr>,
    /// Plain HTTP for `/healthz`, `/readyz` and `/metrics` only.
    pub health: Option<SocketAddr>,
    /// Scheduler settings.
    pub settings: scheduler::Settings,
    /// Limits of the object store.
    pub store: store::Settings,
    /// How often agents send a beat.
    pub beat_ms: u64,
    /// How the settings are read again; `None` where they never are.
    pub reload: Option<Reload>,
}

/// Why a manager cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// State directory.
    #[error(transparent)]
    State(#[from] state::Error),
    /// Journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// Keys and certificates.
    #[error(transparent)]
    Trust(#[from] trust::Error),
    /// A snapshot of another time.
    #[error(transparent)]
    Snapshot(#[from] scheduler::BadSnapshot),
    /// A port or socket.
    #[error("cannot listen on {on}: {source}")]
    Listen {
        /// Where.
        on: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Anything else from the system.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A running manager.
#[derive(Debug)]
pub struct Manager {
    handle: Handle,
    shared: Arc<http::Shared>,
    writer: std::thread::JoinHandle<Result<(), Error>>,
    logs: joblogs::JobLogs,
    keeper: history::Keeper,
    stop: watch::Sender<bool>,
    servers: tokio::task::JoinSet<()>,
    listen: Option<SocketAddr>,
    health: Option<SocketAddr>,
    state: StateDir,
}

impl Manager {
    /// Opens the state, recovers the queue, and serves.
    pub async fn start(options: Options) -> Result<Self, Error> {
        starter::pages::give_back_large_blocks();
        let state = StateDir::open(&options.state, options.sharing)?;
        let is_new = !trust::ca::is_in(&state.trust());
        let authority = Arc::new(trust::ca::Authority::open(&state.trust())?);
        if is_new && has_journal(&options.state) {
            tracing::warn!(
                directory = %state.trust().display(),
                "the pool's CA was gone, and there is a new one: every machine and every user with a token must join anew"
            );
        }
        let mut servers = tokio::task::JoinSet::new();
        state.occupy(authority.pool(), &mut servers)?;
        let metrics = Arc::new(metrics::Metrics::default());
        let (handle, writer) = writer::start(&state, &options, metrics.clone())?;
        let mut reader = journal::Reader::open(&state.manager())?;
        let kept = (reader.oldest()?, reader.head()?);
        let logs = joblogs::JobLogs::start(handle.feed.clone(), state.manager(), kept, options.sharing)?;
        let (stop, stopped) = watch::channel(false);
        let (history, keeper) =
            history::History::start(handle.feed.clone(), &state.manager(), kept, stopped.clone())?;
        let shared = Arc::new(http::Shared {
            handle: handle.clone(),
            authority: authority.clone(),
            metrics,
            sharing: options.sharing,
            beat_ms: options.beat_ms,
            own_uid: starter::user::own_uid(),
            journal_dir: state.manager(),
            budgets: http::Budgets::default(),
            reserve: http::Reserve::default(),
            job_logs: logs.troubles(),
            history,
            reload: options.reload,
            stopped: stopped.clone(),
        });
        http::serve_unix(&state.socket(), options.sharing, shared.clone(), &mut servers)?;
        let mut listen = None;
        if let Some(address) = options.listen {
            let credentials = authority.manager_credentials()?;
            let registry = handle.clone();
            let is_denied = move |machine: &trust::MachineName, key: &str| registry.is_denied(machine, key);
            let tls = trust::tls::server(&authority, &credentials, Arc::new(is_denied))?;
            listen = Some(http::serve_tls(address, tls, shared.clone(), &mut servers).await?);
        }
        servers.spawn(objects::tidy(handle.clone()));
        servers.spawn(bookmarks::keep(handle.bookmarks.clone(), stopped));
        let mut health = None;
        if let Some(address) = options.health {
            health = Some(http::serve_health(address, shared.clone(), &mut servers).await?);
        }
        Ok(Self { handle, shared, writer, logs, keeper, stop, servers, listen, health, state })
    }

    /// The way to talk to it from the same process.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Reads the settings again and brings them into force: what is to be told of them. An error changes nothing.
    pub async fn reload(&self) -> Result<Vec<String>, String> {
        self.shared.reload().await
    }

    /// Where agents and remote users connect, with the port that was really taken.
    pub fn listen_address(&self) -> Option<SocketAddr> {
        self.listen
    }

    /// Where health is served.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health
    }

    /// The pool's name.
    pub fn pool(&self) -> &str {
        self.shared.authority.pool()
    }

    /// True when the writer has stopped by itself: it cannot go on.
    pub fn has_failed(&self) -> bool {
        self.writer.is_finished()
    }

    /// Stops serving, writes a snapshot, closes the journal, and brings job logs up to date, as far as patience lasts.
    pub async fn stop(mut self, patience: std::time::Duration) -> Result<(), Error> {
        let _ = self.stop.send(true);
        self.handle.stop().await;
        self.servers.abort_all();
        while self.servers.join_next().await.is_some() {}
        let joined = tokio::task::spawn_blocking(move || {
            let result = self.writer.join();
            self.logs.finish(patience);
            self.keeper.join();
            if matches!(result, Ok(Ok(()))) {
                self.state.note_stopped();
            }
            result
        })
        .await;
        match joined {
            Ok(Ok(result)) => result,
            _ => Err(Error::System {
                doing: "the writer stopped unexpectedly",
                source: std::io::Error::other("it panicked; see the log"),
            }),
        }
    }
}
