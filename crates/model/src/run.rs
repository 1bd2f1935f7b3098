//! Facts about claims and the runs of jobs in them; part of the vocabulary of `event`, which all use.

use prost::Message;
use serde::{Deserialize, Serialize};

use crate::procs::Span;

/// What a claim holds of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Resources {
    /// Cores.
    #[prost(uint32, tag = "1")]
    pub cpus: u32,
    /// Memory in MiB.
    #[prost(uint64, tag = "2")]
    pub memory_mib: u64,
    /// Disk in KiB.
    #[prost(uint64, tag = "3")]
    pub disk_kib: u64,
    /// GPUs.
    #[prost(uint32, tag = "4")]
    pub gpus: u32,
}

/// A claim was made.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct ClaimMade {
    /// Public claim id.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The machine.
    #[prost(string, tag = "2")]
    pub machine: String,
    /// Slot name on that machine.
    #[prost(string, tag = "3")]
    pub slot: String,
    /// For whom.
    #[prost(string, tag = "4")]
    pub owner: String,
    /// What of the machine.
    #[prost(message, required, tag = "5")]
    pub resources: Resources,
    /// SHA-256 of the claim's key.
    #[prost(bytes = "vec", tag = "6")]
    #[serde(skip)]
    pub key_digest: Vec<u8>,
    /// Without contact for so long, the agent kills what runs and the manager gives the jobs to others.
    #[prost(uint64, tag = "7")]
    pub lease_ms: u64,
    /// On whose account: `group.user`, or empty when that is the owner.
    #[prost(string, tag = "8")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub submitter: String,
    /// The machine is promised to a waiting gang, and this claim is sure to be gone in time.
    #[prost(bool, tag = "9")]
    #[serde(default)]
    pub backfill: bool,
    /// The lab that the machine is in, as its ad said then; usage is counted by it.
    #[prost(string, tag = "10")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lab: String,
    /// The consistency pass made it: the event that should have led to it went unseen. Must never be.
    #[prost(bool, tag = "11")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub swept: bool,
}

/// Jobs were given to a claim.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsAssigned {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "3")]
    pub procs: Vec<Span>,
}

/// A job's process was started.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobStarted {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt, from 1.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// When, by the machine's wall clock.
    #[prost(uint64, tag = "5")]
    pub started_ms: u64,
}

/// A running job's processes were stopped where they are.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobSuspended {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// How many processes.
    #[prost(uint32, tag = "5")]
    pub processes: u32,
}

/// A suspended job goes on.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobContinued {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// A checkpoint of a job is in the store.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobCheckpointed {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// Its name in the store: the SHA-256 of the archive, in hexadecimal digits.
    #[prost(string, tag = "5")]
    pub object: String,
    /// Size of the archive.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// How long it was on its way, in milliseconds.
    #[prost(uint64, tag = "7")]
    #[serde(default)]
    pub transfer_ms: u64,
    /// What it was allowed, in bytes per second; 0 for no cap.
    #[prost(uint64, tag = "8")]
    #[serde(default)]
    pub cap: u64,
    /// The kind of machine that it is good for; empty for any.
    #[prost(string, tag = "9")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// From being asked to leave to having packed what it saved, in milliseconds; 0 when it was not asked.
    #[prost(uint64, tag = "10")]
    #[serde(default)]
    pub saving_ms: u64,
}

/// A job's work was to be saved and was not: it goes on, or leaves without; the older checkpoint stands.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobNotSaved {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// Why.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// It had declared that it saves its work, was asked to leave, and left without: machines judge it from now on as a job that cannot.
    #[prost(bool, tag = "6")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed: bool,
}

/// A job's files are on their way, or have arrived.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobFilesMoved {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// How far they are: 0 and 1 for inputs on their way and there, 2 and 3 for results.
    #[prost(int32, tag = "5")]
    pub stage: i32,
    /// How many bytes were moved.
    #[prost(uint64, tag = "6")]
    #[serde(default)]
    pub bytes: u64,
    /// How many files.
    #[prost(uint64, tag = "7")]
    #[serde(default)]
    pub files: u64,
    /// The names of results that came back, as far as they are listed.
    #[prost(string, repeated, tag = "8")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What the job's owner must know: what stayed behind, or landed under another name.
    #[prost(string, repeated, tag = "9")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Somebody looked into a running job: opened a shell in it, ran a command there, or was shown what is another's.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobVisited {
    /// The claim that the job ran in.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The job's cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Its number there.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Which of its attempts was looked into.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// The person who looked.
    #[prost(string, tag = "5")]
    pub by: String,
    /// What for: the command, or what was looked at.
    #[prost(string, tag = "6")]
    pub what: String,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, when it ended by itself.
    #[prost(uint32, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// Signal, when it was killed.
    #[prost(uint32, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u32>,
    /// A core file was written.
    #[prost(bool, tag = "3")]
    pub core: bool,
    /// User CPU time in microseconds.
    #[prost(uint64, tag = "4")]
    pub user_us: u64,
    /// System CPU time in microseconds.
    #[prost(uint64, tag = "5")]
    pub sys_us: u64,
    /// Largest resident set in KiB.
    #[prost(uint64, tag = "6")]
    pub max_rss_kib: u64,
    /// From start to end in microseconds, by the machine's monotonic clock.
    #[prost(uint64, tag = "7")]
    pub wall_us: u64,
}

impl Exit {
    /// True for exit code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0) && self.signal.is_none()
    }
}

/// A job's process ended.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobExited {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// How.
    #[prost(message, required, tag = "5")]
    pub exit: Exit,
    /// When it was started, by the machine's wall clock.
    #[prost(uint64, tag = "6")]
    pub started_ms: u64,
    /// The job stays in the queue until `JobsLeft`, to be looked at.
    #[prost(bool, tag = "7")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

/// Jobs that had ended and stayed in the queue left it.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsLeft {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "2")]
    pub procs: Vec<Span>,
}

/// Attempts ended and their jobs went back to the queue.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsRequeued {
    /// Claim the attempts belonged to.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "3")]
    pub procs: Vec<Span>,
    /// Why, in words.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// Vacate code of the job event log (1000 and up), 0 for none.
    #[prost(uint32, tag = "5")]
    pub code: u32,
    /// How the process ended, when it did and OnExitRemove kept the job; such an end counts as a completion.
    #[prost(message, optional, tag = "6")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// A claim ended.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct ClaimEnded {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Why, in words.
    #[prost(string, tag = "2")]
    pub reason: String,
}
