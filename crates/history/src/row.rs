//! What is kept of a job, and of the cluster it was in.

use model::JobTemplate;
use model::event::Exit;
use prost::Message;

/// How far a job has come.
#[derive(Clone, PartialEq, Message)]
pub struct Facts {
    /// Times its process was started.
    #[prost(uint32, tag = "1")]
    pub starts: u32,
    /// When it was first started.
    #[prost(uint64, tag = "2")]
    pub first_started_ms: u64,
    /// When it was last started.
    #[prost(uint64, tag = "3")]
    pub last_started_ms: u64,
    /// `slot@machine` where it last was.
    #[prost(string, tag = "4")]
    pub host: String,
    /// Times it was held.
    #[prost(uint32, tag = "5")]
    pub holds: u32,
    /// Why it was last held.
    #[prost(string, tag = "6")]
    pub hold_reason: String,
    /// HoldReasonCode of that.
    #[prost(uint32, tag = "7")]
    pub hold_code: u32,
    /// HoldReasonSubCode of that.
    #[prost(uint32, tag = "8")]
    pub hold_subcode: u32,
    /// How long its processes have lived, all attempts together.
    #[prost(uint64, tag = "9")]
    pub wall_us: u64,
    /// How it last ended, if it did.
    #[prost(message, optional, tag = "10")]
    pub exit: Option<Exit>,
    /// When that was.
    #[prost(uint64, tag = "11")]
    pub exited_ms: u64,
    /// It was started and has not ended.
    #[prost(bool, tag = "12")]
    pub runs: bool,
}

/// Jobs that left the queue by one event, and of which the same is to be told; nearly always one.
#[derive(Clone, PartialEq, Message)]
pub struct Row {
    /// Position of the event in the journal.
    #[prost(uint64, tag = "1")]
    pub position: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// First proc.
    #[prost(uint32, tag = "3")]
    pub first: u32,
    /// How many procs.
    #[prost(uint32, tag = "4")]
    pub count: u32,
    /// When, in Unix milliseconds.
    #[prost(uint64, tag = "5")]
    pub ended_ms: u64,
    /// JobStatus: 3 removed, 4 completed.
    #[prost(uint32, tag = "6")]
    pub status: u32,
    /// Why it was removed.
    #[prost(string, tag = "7")]
    pub remove_reason: String,
    /// What became of it before.
    #[prost(message, required, tag = "8")]
    pub facts: Facts,
    /// Where its cluster is told of in the same segment; segments set this.
    #[prost(uint64, tag = "9")]
    pub cluster_at: u64,
}

/// A cluster as it was submitted.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterRecord {
    /// Position of the event in the journal.
    #[prost(uint64, tag = "1")]
    pub position: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Whose.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// Unix milliseconds.
    #[prost(uint64, tag = "4")]
    pub submitted_ms: u64,
    /// What it runs.
    #[prost(message, required, tag = "5")]
    pub template: JobTemplate,
}

/// Where a story stood, so that it need not begin at the beginning.
#[derive(Clone, PartialEq, Message)]
pub struct Bookmark {
    /// Position of the last event that it has taken.
    #[prost(uint64, tag = "1")]
    pub position: u64,
    /// Claims by their ids.
    #[prost(message, repeated, tag = "2")]
    pub claims: Vec<ClaimAt>,
    /// Jobs that are under way.
    #[prost(message, repeated, tag = "3")]
    pub jobs: Vec<JobFacts>,
    /// Clusters with jobs in the queue.
    #[prost(message, repeated, tag = "4")]
    pub clusters: Vec<ClusterAt>,
}

/// Where a claim is.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimAt {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// `slot@machine`.
    #[prost(string, tag = "2")]
    pub host: String,
}

/// A job that is under way.
#[derive(Clone, PartialEq, Message)]
pub struct JobFacts {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "2")]
    pub proc: u32,
    /// How far it has come.
    #[prost(message, required, tag = "3")]
    pub facts: Facts,
}

/// A cluster with jobs in the queue.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterAt {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Jobs of it in the queue.
    #[prost(uint64, tag = "2")]
    pub left: u64,
    /// Holds of many jobs at once.
    #[prost(message, repeated, tag = "3")]
    pub holds: Vec<HeldSpan>,
    /// The segment that tells of it, and where.
    #[prost(uint64, tag = "4")]
    pub segment: u64,
    /// Where in it.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
}

/// Jobs that were held together.
#[derive(Clone, PartialEq, Message)]
pub struct HeldSpan {
    /// First proc.
    #[prost(uint32, tag = "1")]
    pub first: u32,
    /// How many.
    #[prost(uint32, tag = "2")]
    pub count: u32,
    /// Why.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// HoldReasonCode.
    #[prost(uint32, tag = "4")]
    pub code: u32,
    /// HoldReasonSubCode.
    #[prost(uint32, tag = "5")]
    pub subcode: u32,
}
