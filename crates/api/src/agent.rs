//! Messages between manager and agents.
//!
//! An agent opens a session with [`Hello`] and from then on both sides talk when they have something to say. What an
//! agent reports about a claim is repeated until acknowledged; what the manager orders carries ids, so that repeating
//! it is harmless.

use model::event::Resources;
use model::report::{Attempt, Happening};
use model::template::Attribute;
use prost::Message;

/// Agent to manager.
#[derive(Clone, PartialEq, Message)]
pub struct ToManager {
    /// What.
    #[prost(oneof = "Up", tags = "1, 2, 3")]
    pub up: Option<Up>,
}

/// What an agent says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Up {
    /// Here I am; the first message of a session.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// I live; echoed by the manager.
    #[prost(uint64, tag = "2")]
    Beat(u64),
    /// Something happened to a claim.
    #[prost(message, tag = "3")]
    Report(Report),
}

/// Here I am.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Software version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// What the pool may use of this machine.
    #[prost(message, required, tag = "2")]
    pub total: Resources,
    /// The machine ad.
    #[prost(message, repeated, tag = "3")]
    pub ad: Vec<Attribute>,
    /// Claims that are alive here, or whose last reports were not acknowledged.
    #[prost(message, repeated, tag = "4")]
    pub claims: Vec<HeldClaim>,
}

/// A claim that an agent holds.
#[derive(Clone, PartialEq, Message)]
pub struct HeldClaim {
    /// Public id.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The key that proves it.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Its jobs: running, waiting, or over with a report under way.
    #[prost(message, repeated, tag = "3")]
    pub jobs: Vec<Attempt>,
}

/// Something happened to a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Number within the claim; 0 when no acknowledgement is wanted.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// What.
    #[prost(oneof = "Happening", tags = "3, 4, 5, 6, 7, 8")]
    pub happening: Option<Happening>,
}

/// Manager to agent.
#[derive(Clone, PartialEq, Message)]
pub struct ToAgent {
    /// What.
    #[prost(oneof = "Down", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub down: Option<Down>,
}

/// What a manager says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Down {
    /// Welcome; the answer to `Hello`.
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    /// Your beat arrived.
    #[prost(uint64, tag = "2")]
    Beat(u64),
    /// A claim on you.
    #[prost(message, tag = "3")]
    Claim(Claim),
    /// What the jobs of a cluster share; precedes the first assignment in a session.
    #[prost(message, tag = "4")]
    Cluster(Cluster),
    /// Run these.
    #[prost(message, tag = "5")]
    Assign(Assign),
    /// Stop this one.
    #[prost(message, tag = "6")]
    Stop(Stop),
    /// Give back what was not started.
    #[prost(message, tag = "7")]
    Recall(Recall),
    /// This claim is over.
    #[prost(uint64, tag = "8")]
    Drop(u64),
    /// A report is on disk.
    #[prost(message, tag = "9")]
    Ack(Ack),
    /// Say hello again, and repeat what was not acknowledged: the manager had to forget what it had not yet written.
    #[prost(bool, tag = "10")]
    Again(bool),
}

/// Welcome.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Welcome {
    /// Software version of the manager.
    #[prost(string, tag = "1")]
    pub version: String,
    /// How often to send a beat.
    #[prost(uint64, tag = "2")]
    pub beat_ms: u64,
    /// The name under which the manager knows this machine.
    #[prost(string, tag = "3")]
    pub machine: String,
    /// The pool is one user's own: jobs of the agent's user run as that user, whoever that is.
    #[prost(bool, tag = "4")]
    pub private: bool,
}

/// A claim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Claim {
    /// Public id.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The key: 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Slot name.
    #[prost(string, tag = "3")]
    pub slot: String,
    /// Whose jobs it will run.
    #[prost(string, tag = "4")]
    pub owner: String,
    /// What it holds.
    #[prost(message, required, tag = "5")]
    pub resources: Resources,
    /// Kill everything after so long without an answered beat.
    #[prost(uint64, tag = "6")]
    pub lease_ms: u64,
}

/// What the jobs of a cluster share.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Cluster {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Whose.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// Shared attributes.
    #[prost(message, repeated, tag = "3")]
    pub shared: Vec<Attribute>,
    /// Names of the attributes that differ; each job brings its values in this order.
    #[prost(string, repeated, tag = "4")]
    pub varying: Vec<String>,
    /// Forget every other cluster first: neither side keeps more than it needs.
    #[prost(bool, tag = "5")]
    pub forget_others: bool,
}

/// Run these.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Assign {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Jobs, in order.
    #[prost(message, repeated, tag = "3")]
    pub jobs: Vec<AssignedJob>,
}

/// One job of an assignment.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AssignedJob {
    /// Proc.
    #[prost(uint32, tag = "1")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// Expression texts of the varying attributes.
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
}

/// Stop a job.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stop {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Which.
    #[prost(message, required, tag = "2")]
    pub job: Attempt,
}

/// Give back what was not started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Recall {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// At most so many.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

/// A report is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Ack {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Reports up to this one.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
}
