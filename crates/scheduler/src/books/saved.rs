//! The form of a snapshot: what its bytes mean.

use model::event::{ClaimMade, Exit, LabSet, MachineStanding};
use model::{JobTemplate, Span};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Saved {
    #[prost(uint32, tag = "1")]
    pub(super) next_cluster: u32,
    #[prost(uint64, tag = "2")]
    pub(super) next_claim: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) clusters: Vec<SavedCluster>,
    #[prost(message, repeated, tag = "4")]
    pub(super) claims: Vec<SavedClaim>,
    #[prost(message, repeated, tag = "5")]
    pub(super) finished: Vec<SavedSummary>,
    #[prost(message, repeated, tag = "6")]
    pub(super) keys: Vec<SavedKey>,
    #[prost(message, repeated, tag = "7")]
    pub(super) users: Vec<SavedUser>,
    #[prost(message, repeated, tag = "8")]
    pub(super) standings: Vec<MachineStanding>,
    #[prost(message, repeated, tag = "9")]
    pub(super) labs: Vec<LabSet>,
    /// Templates that clusters refer to by their place here.
    #[prost(message, repeated, tag = "50")]
    pub(super) templates: Vec<JobTemplate>,
    #[prost(message, repeated, tag = "40")]
    pub(super) drains: Vec<model::event::PoolDrained>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedUser {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(double, tag = "2")]
    pub(super) real: f64,
    #[prost(uint64, tag = "3")]
    pub(super) at_ms: u64,
    #[prost(double, tag = "4")]
    pub(super) used: f64,
    #[prost(double, optional, tag = "5")]
    pub(super) factor: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedCluster {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(string, tag = "2")]
    pub(super) owner: String,
    /// Only in older snapshots.
    #[prost(message, optional, tag = "4")]
    pub(super) template: Option<JobTemplate>,
    #[prost(uint64, tag = "5")]
    pub(super) submitted_ms: u64,
    #[prost(message, repeated, tag = "7")]
    pub(super) idle: Vec<Span>,
    #[prost(message, repeated, tag = "8")]
    pub(super) holds: Vec<SavedHold>,
    #[prost(message, repeated, tag = "9")]
    pub(super) live: Vec<SavedLive>,
    /// Flattened pairs (proc, attempts).
    #[prost(uint32, repeated, tag = "10")]
    pub(super) attempts: Vec<u32>,
    #[prost(message, required, tag = "11")]
    pub(super) summary: SavedSummary,
    #[prost(uint64, tag = "12")]
    pub(super) requeues: u64,
    #[prost(sint32, tag = "13")]
    pub(super) priority: i32,
    #[prost(message, repeated, tag = "14")]
    pub(super) past: Vec<SavedPast>,
    #[prost(message, repeated, tag = "15")]
    pub(super) checkpoints: Vec<SavedCheckpoint>,
    #[prost(message, repeated, tag = "16")]
    pub(super) completed: Vec<Span>,
    #[prost(string, repeated, tag = "17")]
    pub(super) excluded: Vec<String>,
    /// Flattened pairs (proc, failures).
    #[prost(uint32, repeated, tag = "18")]
    pub(super) unready: Vec<u32>,
    /// Flattened pairs (proc, seconds).
    #[prost(uint64, repeated, tag = "19")]
    pub(super) extended: Vec<u64>,
    /// The number of its class; absent for the usual one.
    #[prost(uint32, optional, tag = "20")]
    pub(super) class: Option<u32>,
    /// When the excluded machines failed, in Unix milliseconds; older snapshots do not say.
    #[prost(uint64, repeated, tag = "21")]
    pub(super) excluded_ms: Vec<u64>,
    /// Flattened pairs (proc, attempts that were over before they had begun).
    #[prost(uint32, repeated, tag = "40")]
    pub(super) unbegun: Vec<u32>,
    /// Procs that left without the checkpoint that they declare.
    #[prost(message, repeated, tag = "22")]
    pub(super) missed: Vec<Span>,
    /// Which of the templates.
    #[prost(uint32, tag = "50")]
    pub(super) base: u32,
    /// How its own differs from that.
    #[prost(bytes = "vec", tag = "51")]
    pub(super) own: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedCheckpoint {
    #[prost(uint32, tag = "1")]
    pub(super) proc: u32,
    #[prost(string, tag = "2")]
    pub(super) object: String,
    #[prost(uint64, tag = "3")]
    pub(super) bytes: u64,
    #[prost(string, tag = "4")]
    pub(super) platform: String,
    #[prost(uint64, tag = "5")]
    pub(super) saving_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedPast {
    #[prost(uint32, tag = "1")]
    pub(super) proc: u32,
    #[prost(uint32, tag = "2")]
    pub(super) starts: u32,
    #[prost(uint32, tag = "3")]
    pub(super) completions: u32,
    #[prost(uint32, tag = "4")]
    pub(super) holds: u32,
    #[prost(uint32, tag = "5")]
    pub(super) system_holds: u32,
    #[prost(uint64, tag = "6")]
    pub(super) wall_ms: u64,
    #[prost(uint64, optional, tag = "7")]
    pub(super) since_ms: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) exit: Option<Exit>,
    #[prost(uint32, tag = "9")]
    pub(super) quick: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedHold {
    #[prost(message, repeated, tag = "1")]
    pub(super) procs: Vec<Span>,
    #[prost(string, tag = "2")]
    pub(super) reason: String,
    #[prost(uint32, tag = "3")]
    pub(super) code: u32,
    #[prost(uint32, tag = "4")]
    pub(super) subcode: u32,
    #[prost(uint64, tag = "5")]
    pub(super) since_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedLive {
    #[prost(uint32, tag = "1")]
    pub(super) proc: u32,
    #[prost(uint64, tag = "2")]
    pub(super) claim: u64,
    #[prost(uint32, tag = "3")]
    pub(super) attempt: u32,
    #[prost(uint64, optional, tag = "4")]
    pub(super) started_ms: Option<u64>,
    #[prost(int32, optional, tag = "6")]
    pub(super) stop: Option<i32>,
    #[prost(string, tag = "7")]
    pub(super) stop_reason: String,
    #[prost(uint32, tag = "8")]
    pub(super) stop_code: u32,
    #[prost(uint32, tag = "9")]
    pub(super) stop_subcode: u32,
    #[prost(bool, tag = "10")]
    pub(super) suspended: bool,
    /// 0 scheduled, 1 waiting, 2 installing.
    #[prost(uint32, tag = "11")]
    pub(super) stage: u32,
    #[prost(uint64, tag = "12")]
    pub(super) assigned_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedClaim {
    #[prost(message, required, tag = "1")]
    pub(super) made: ClaimMade,
    #[prost(uint64, tag = "2")]
    pub(super) made_ms: u64,
    /// Flattened pairs (cluster, proc) in order.
    #[prost(uint32, repeated, tag = "3")]
    pub(super) jobs: Vec<u32>,
    /// Cluster, proc and until when (0: for its gang) of a claim that is kept after its job.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) reserved: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct SavedSummary {
    #[prost(uint32, tag = "1")]
    pub(super) cluster: u32,
    #[prost(uint64, tag = "2")]
    pub(super) succeeded: u64,
    #[prost(uint64, tag = "3")]
    pub(super) failed: u64,
    #[prost(uint64, tag = "4")]
    pub(super) removed: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedKey {
    #[prost(uint32, tag = "3")]
    pub(super) cluster: u32,
    #[prost(fixed64, tag = "4")]
    pub(super) low: u64,
    #[prost(fixed64, tag = "5")]
    pub(super) high: u64,
    #[prost(fixed32, tag = "6")]
    pub(super) template: u32,
}
