//! Messages between agent and starter.

use model::report::{Attempt, Happening};
use prost::Message;

/// Agent to starter.
#[derive(Clone, PartialEq, Message)]
pub struct ToStarter {
    /// What.
    #[prost(oneof = "Order", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub order: Option<Order>,
}

/// What an agent orders.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Order {
    /// Take a claim; the first message of a fresh starter.
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// Run these after what is already waiting.
    #[prost(message, tag = "2")]
    Run(Run),
    /// Stop one job, or take it back if it was not started.
    #[prost(message, tag = "3")]
    Stop(Stop),
    /// Give back up to so many jobs that were not started, the last first.
    #[prost(uint32, tag = "4")]
    Recall(u32),
    /// The lease runs so many milliseconds from now.
    #[prost(uint64, tag = "5")]
    Renew(u64),
    /// Reports up to this number are on disk at the manager.
    #[prost(uint64, tag = "6")]
    Ack(u64),
    /// The claim is over: end what runs, report nothing of it, exit. True: ask the job to end first, and give it a moment.
    #[prost(bool, tag = "7")]
    Quit(bool),
}

/// Take a claim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Begin {
    /// The claim's directory.
    #[prost(string, tag = "1")]
    pub dir: String,
    /// Public claim id.
    #[prost(uint64, tag = "2")]
    pub claim: u64,
    /// Value of the marker variable: unguessable, so that no job can pass for another's.
    #[prost(string, tag = "3")]
    pub marker: String,
    /// First lease.
    #[prost(uint64, tag = "4")]
    pub lease_ms: u64,
}

/// Jobs to run.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Run {
    /// In this order.
    #[prost(message, repeated, tag = "1")]
    pub jobs: Vec<Job>,
}

/// One job, ready to be started.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Job {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub id: Attempt,
    /// Program and arguments, as bytes: file names need not be UTF-8.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub env: Vec<Vec<u8>>,
    /// Working directory.
    #[prost(bytes = "vec", tag = "4")]
    pub cwd: Vec<u8>,
    /// Standard input; empty for none. Relative names start at the working directory.
    #[prost(bytes = "vec", tag = "5")]
    pub stdin: Vec<u8>,
    /// Standard output; empty for none.
    #[prost(bytes = "vec", tag = "6")]
    pub stdout: Vec<u8>,
    /// Standard error; empty for none.
    #[prost(bytes = "vec", tag = "7")]
    pub stderr: Vec<u8>,
    /// Whom to become; absent to stay who we are.
    #[prost(message, optional, tag = "8")]
    pub identity: Option<Identity>,
    /// Signal for a soft stop.
    #[prost(uint32, tag = "9")]
    pub stop_signal: u32,
    /// Milliseconds between the soft stop and the kill.
    #[prost(uint64, tag = "10")]
    pub grace_ms: u64,
}

/// Whom to become.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Identity {
    /// User id.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// Group id.
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    /// All groups.
    #[prost(uint32, repeated, tag = "3")]
    pub groups: Vec<u32>,
}

/// Stop one job.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stop {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub id: Attempt,
    /// Kill at once.
    #[prost(bool, tag = "2")]
    pub hard: bool,
}

/// Starter to agent.
#[derive(Clone, PartialEq, Message)]
pub struct FromStarter {
    /// What.
    #[prost(oneof = "Word", tags = "1, 2")]
    pub word: Option<Word>,
}

/// What a starter says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Word {
    /// Where it stands; the first message on every connection.
    #[prost(message, tag = "1")]
    Standing(Standing),
    /// Something happened.
    #[prost(message, tag = "2")]
    Report(Report),
}

/// Where a starter stands.
#[derive(Clone, PartialEq, Message)]
pub struct Standing {
    /// Its claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Running and waiting jobs, in order.
    #[prost(message, repeated, tag = "2")]
    pub jobs: Vec<Attempt>,
    /// Reports that were not acknowledged; they follow as messages too.
    #[prost(message, repeated, tag = "3")]
    pub unacknowledged: Vec<Report>,
    /// When the running job was started; absent when none runs.
    #[prost(uint64, optional, tag = "4")]
    pub running_since_ms: Option<u64>,
}

/// Something happened. Reports with a number are kept until acknowledged.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// From 1; 0 for those that need no acknowledgement.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// What.
    #[prost(oneof = "Happening", tags = "3, 4, 5, 6, 7, 8")]
    pub happening: Option<Happening>,
}
