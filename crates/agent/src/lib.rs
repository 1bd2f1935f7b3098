//! The agent: one per machine. It tells the manager what the machine is, starts a starter for every claim, passes
//! orders down and reports up, and keeps leases. What to do about each word is decided in the crate `claims`; here it is done.
//!
//! - `clearing`: removing what starters had to set aside
//! - `peers`: objects from other machines of the lab, and to them
//! - `plugins`: who fetches and sends files by their URLs
//! - `criu`: whether and for whom processes can be saved from outside
//! - `eyes`: what the machine's owner sees, and the policy's clock; `rules`: the configuration that the policy is from
//! - `files`: the files of claims
//! - `fuzzing`: the pure half without its shell, for crates/fuzz
//! - `hooks`: the machine's own commands before and after a claim
//! - `machine`: what this machine is
//! - `questions`: what administrators ask of a machine through its manager
//! - `transfers`: checkpoints to and from the store; `cargo`: jobs' files; `visits`: people who look into jobs
//! - `sensors`: what the machine ad says about owner, load and hardware, measured or scripted
//! - `starters`: starter processes: spawning, adopting, reading what dead ones left
//! - `link`: the connection to the manager, over the network or within the process
//! - `run`: the loop that wires these together
//! - `join`: from a join token to a certificate

#![forbid(unsafe_code)]

mod cargo;
mod clearing;
mod criu;
mod eyes;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
mod join;
mod link;
mod machine;
mod outbox;
mod peers;
mod plugins;
mod questions;
mod rules;
mod run;
pub mod sensors;
mod starters;
mod transfers;
mod visits;

use std::path::PathBuf;

pub use files::was_welcomed;
pub use join::{Membership, join};
pub use link::{Connector, LINK_WORDS, Link, Remote};
pub use machine::{host_name, resources};
pub use rules::{ConfigSource, check};
pub use run::{OnStop, run};

/// How to run an agent.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are.
    pub state: PathBuf,
    /// Machine name.
    pub machine: String,
    /// What the pool may use.
    pub total: model::event::Resources,
    /// The program whose `starter` command is a starter: this one.
    pub program: PathBuf,
    /// Machines with the same domain see the same files.
    pub filesystem_domain: String,
    /// Where its policy comes from.
    pub config: ConfigSource,
    /// How long to wait for another agent that is about to leave the directory: one whose manager was replaced takes a moment.
    pub lock_patience: std::time::Duration,
    /// A timeline of sensor values instead of the machine's own.
    pub script: Option<sensors::scripted::Scripted>,
    /// Whoever notifies this has the configuration read again.
    pub reload: std::sync::Arc<tokio::sync::Notify>,
}

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another agent runs here.
    #[error(transparent)]
    Lock(#[from] starter::lock::Error),
    /// A copy of another agent's directory.
    #[error(transparent)]
    Home(#[from] starter::home::Error),
    /// The configuration cannot be used.
    #[error("the machine's configuration cannot be used:\n{0}")]
    Config(String),
    /// Joining failed.
    #[error("cannot join the pool: {0}")]
    Join(String),
    /// Keys and certificates.
    #[error(transparent)]
    Trust(#[from] trust::Error),
}
