//! The event vocabulary of the journal: facts in the past tense.
//!
//! Nothing happened unless an event here says so, and every reader (recovery, job logs, `updraft events`, projections)
//! sees the same ones. They are protobuf records: fields are only ever added, never renumbered, so that old journals
//! stay readable. Secrets never appear; a claim's key is recorded as its digest.

use prost::Message;
use serde::{Deserialize, Serialize};

pub use crate::lab::{
    Condition, GangPlanned, JobProvisioning, JobReserved, JobsExtended, LabSet, MachineStanding,
};
pub use crate::maintenance::{JobWarned, PoolDrained};
use crate::procs::Span;
pub use crate::run::{
    ClaimEnded, ClaimMade, Exit, JobCheckpointed, JobContinued, JobExited, JobFilesMoved, JobNotSaved,
    JobStarted, JobSuspended, JobVisited, JobsAssigned, JobsLeft, JobsRequeued, Resources,
};
use crate::template::JobTemplate;

/// One event, without its position (the journal knows that).
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Event {
    /// When the manager decided it, in Unix milliseconds.
    #[prost(uint64, tag = "1")]
    pub time_ms: u64,
    /// What happened.
    #[prost(
        oneof = "Kind",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 40, 45, 46, 47, 48, 49, 50"
    )]
    #[serde(flatten)]
    pub kind: Option<Kind>,
}

/// What happened.
#[derive(Clone, PartialEq, prost::Oneof, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Kind {
    /// A manager took the journal over.
    #[prost(message, tag = "2")]
    ManagerStarted(ManagerStarted),
    /// A user submitted a cluster.
    #[prost(message, tag = "3")]
    ClusterSubmitted(ClusterSubmitted),
    /// Jobs were put on hold.
    #[prost(message, tag = "4")]
    JobsHeld(JobsHeld),
    /// Held jobs were released.
    #[prost(message, tag = "5")]
    JobsReleased(JobsReleased),
    /// Jobs were removed; those that ran have ended.
    #[prost(message, tag = "6")]
    JobsRemoved(JobsRemoved),
    /// A running job's removal or hold was asked for; it ends with `JobsRemoved`, `JobsHeld` or `JobExited`.
    #[prost(message, tag = "7")]
    StopRequested(StopRequested),
    /// A claim on part of a machine was made.
    #[prost(message, tag = "8")]
    ClaimMade(ClaimMade),
    /// Jobs were given to a claim; each begins a new attempt.
    #[prost(message, tag = "9")]
    JobsAssigned(JobsAssigned),
    /// A job's process was started.
    #[prost(message, tag = "10")]
    JobStarted(JobStarted),
    /// A job's process ended by itself or by a signal.
    #[prost(message, tag = "11")]
    JobExited(JobExited),
    /// An attempt ended without the job having finished; the job is idle again (or held, removed by a later event).
    #[prost(message, tag = "12")]
    JobsRequeued(JobsRequeued),
    /// A claim ended; none of its attempts is alive.
    #[prost(message, tag = "13")]
    ClaimEnded(ClaimEnded),
    /// A join or user token was issued.
    #[prost(message, tag = "14")]
    TokenIssued(TokenIssued),
    /// A join token bought a certificate.
    #[prost(message, tag = "15")]
    MachineJoined(MachineJoined),
    /// A token was revoked.
    #[prost(message, tag = "16")]
    TokenRevoked(TokenRevoked),
    /// A running job's processes were stopped where they are.
    #[prost(message, tag = "17")]
    JobSuspended(JobSuspended),
    /// A suspended job goes on.
    #[prost(message, tag = "18")]
    JobContinued(JobContinued),
    /// A checkpoint of a job is in the store; its next attempt begins there.
    #[prost(message, tag = "19")]
    JobCheckpointed(JobCheckpointed),
    /// An administrator set a user's priority or factor.
    #[prost(message, tag = "20")]
    PrioritySet(PrioritySet),
    /// People decided about a machine.
    #[prost(message, tag = "21")]
    MachineStanding(MachineStanding),
    /// A lab was enabled or disabled.
    #[prost(message, tag = "22")]
    LabSet(LabSet),
    /// A waiting gang was promised machines.
    #[prost(message, tag = "23")]
    GangPlanned(GangPlanned),
    /// A machine is made ready for a job.
    #[prost(message, tag = "24")]
    JobProvisioning(JobProvisioning),
    /// A job is over, and its machine is kept for its owner or its gang.
    #[prost(message, tag = "25")]
    JobReserved(JobReserved),
    /// Jobs got more time.
    #[prost(message, tag = "26")]
    JobsExtended(JobsExtended),
    /// A running job was told how much time it has left.
    #[prost(message, tag = "27")]
    JobWarned(JobWarned),
    /// A machine may not come back.
    #[prost(message, tag = "28")]
    MachineRevoked(MachineRevoked),
    /// Jobs that had ended and stayed in the queue left it.
    #[prost(message, tag = "30")]
    JobsLeft(JobsLeft),
    /// For a while nothing new starts on some machines, or on any.
    #[prost(message, tag = "40")]
    PoolDrained(PoolDrained),
    /// A job's work was to be saved and was not.
    #[prost(message, tag = "45")]
    JobNotSaved(JobNotSaved),
    /// The wall clock of the manager's host was set; the events that follow are dated by the new one.
    #[prost(message, tag = "46")]
    ClockStepped(ClockStepped),
    /// Events were lost, and the journal goes on without them.
    #[prost(message, tag = "47")]
    JournalSalvaged(JournalSalvaged),
    /// Waiting jobs have another place in the order.
    #[prost(message, tag = "48")]
    ClusterReordered(ClusterReordered),
    /// A job's files are on their way, or have arrived.
    #[prost(message, tag = "49")]
    JobFilesMoved(JobFilesMoved),
    /// Somebody looked into a running job.
    #[prost(message, tag = "50")]
    JobVisited(JobVisited),
}

/// Somebody gave the jobs of a cluster another place in the order.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct ClusterReordered {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// The priority among its owner's jobs, if that changed.
    #[prost(sint32, optional, tag = "2")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The name of the class, if that changed.
    #[prost(string, optional, tag = "3")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Who decided.
    #[prost(string, tag = "4")]
    pub by: String,
}

/// Events were lost, and the journal goes on without them. What they had numbered is not numbered again.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JournalSalvaged {
    /// Position of the last event that was known to be acknowledged.
    #[prost(uint64, tag = "1")]
    pub head: u64,
    /// Events that nobody could read; each may have numbered one cluster or one claim.
    #[prost(uint64, tag = "2")]
    pub unread: u64,
    /// The highest cluster in the lost events that could be read.
    #[prost(uint32, tag = "3")]
    pub last_cluster: u32,
    /// The highest claim in them.
    #[prost(uint64, tag = "4")]
    pub last_claim: u64,
}

/// A manager took the journal over.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct ManagerStarted {
    /// Software version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Leadership epoch; writes of an older one are refused.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Which start of its host this is; empty when nobody knows.
    #[prost(string, tag = "3")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// What the wall clock showed when the monotonic clock of that host began, in milliseconds.
    #[prost(sint64, tag = "4")]
    #[serde(default)]
    pub offset_ms: i64,
}

/// The wall clock of the manager's host was set: it moved against the monotonic one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct ClockStepped {
    /// How far, in milliseconds; negative when it was set back. What lies between an event before and one after this is the
    /// difference of their times less this.
    #[prost(sint64, tag = "1")]
    pub by_ms: i64,
}

/// A user submitted a cluster.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct ClusterSubmitted {
    /// The new cluster's id.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Who submitted, stamped by the manager from the connection's identity.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// What to run.
    #[prost(message, required, tag = "3")]
    pub template: JobTemplate,
    /// A retried submit with the same key makes no second cluster; empty for none.
    #[prost(string, tag = "4")]
    pub idempotency_key: String,
}

/// Jobs were put on hold.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsHeld {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "2")]
    pub procs: Vec<Span>,
    /// Why, in words.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// HoldReasonCode.
    #[prost(uint32, tag = "4")]
    pub code: u32,
    /// HoldReasonSubCode.
    #[prost(uint32, tag = "5")]
    pub subcode: u32,
    /// How the process ended, when its end is what the hold is about; such an end counts as a completion.
    #[prost(message, optional, tag = "6")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// Held jobs were released.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsReleased {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "2")]
    pub procs: Vec<Span>,
    /// Why, in words.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// Jobs were removed.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsRemoved {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "2")]
    pub procs: Vec<Span>,
    /// Why, in words.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// A running job was asked to stop.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct StopRequested {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "2")]
    pub proc: u32,
    /// The attempt that is to stop.
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
    /// What becomes of the job afterwards.
    #[prost(enumeration = "Afterwards", tag = "4")]
    #[serde(with = "afterwards_name")]
    pub afterwards: i32,
    /// Why, in words.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// HoldReasonCode when it is to be held, the vacate code otherwise, 0 for none.
    #[prost(uint32, tag = "6")]
    pub code: u32,
    /// HoldReasonSubCode, when it is to be held.
    #[prost(uint32, tag = "7")]
    #[serde(default)]
    pub subcode: u32,
}

/// What becomes of a job that was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Afterwards {
    /// It leaves the queue.
    Removed = 0,
    /// It stays, held.
    Held = 1,
    /// It goes back to the queue.
    Idle = 2,
}

/// JSON shows the name of an [`Afterwards`], not its number.
mod afterwards_name {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::Afterwards;

    pub(super) fn serialize<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match Afterwards::try_from(*value) {
            Ok(Afterwards::Removed) => "removed",
            Ok(Afterwards::Held) => "held",
            Ok(Afterwards::Idle) => "idle",
            Err(_) => "unknown",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
        match String::deserialize(from)?.as_str() {
            "removed" => Ok(Afterwards::Removed as i32),
            "held" => Ok(Afterwards::Held as i32),
            "idle" => Ok(Afterwards::Idle as i32),
            other => Err(D::Error::custom(format!("unknown: {other}"))),
        }
    }
}

/// A token was issued.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct TokenIssued {
    /// Token id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Role it carries.
    #[prost(string, tag = "2")]
    pub role: String,
    /// Whom it speaks for (user tokens).
    #[prost(string, tag = "3")]
    pub subject: String,
    /// Unix milliseconds.
    #[prost(uint64, tag = "4")]
    pub expires_ms: u64,
    /// How often a join token may be used; 0 for user tokens.
    #[prost(uint32, tag = "5")]
    pub uses: u32,
    /// SHA-256 of a join token's secret; empty for user tokens, which are signed.
    #[prost(bytes = "vec", tag = "6")]
    #[serde(skip)]
    pub secret_digest: Vec<u8>,
    /// Who issued it.
    #[prost(string, tag = "7")]
    pub by: String,
    /// The one machine that may join with it, also when its name is known; empty for any that is new.
    #[prost(string, tag = "8")]
    #[serde(default)]
    pub machine: String,
}

/// A join token bought a certificate, or a machine that joined before keys were noted was seen with this one.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct MachineJoined {
    /// Token id.
    #[prost(string, tag = "1")]
    pub token: String,
    /// Machine name in the certificate.
    #[prost(string, tag = "2")]
    pub machine: String,
    /// SHA-256 of the machine's public key, in hexadecimal digits: from now on the name is bound to it.
    #[prost(string, tag = "3")]
    #[serde(default)]
    pub key: String,
}

/// A machine may not come back: neither its certificates nor its name are good for anything until it joins anew.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct MachineRevoked {
    /// Which.
    #[prost(string, tag = "1")]
    pub machine: String,
    /// Who said so.
    #[prost(string, tag = "2")]
    pub by: String,
    /// Why.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// A token was revoked.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct TokenRevoked {
    /// Token id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Who revoked it.
    #[prost(string, tag = "2")]
    pub by: String,
}

/// An administrator set a user's priority or factor.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct PrioritySet {
    /// Whose.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The factor; below 1 for the pool's default.
    #[prost(double, optional, tag = "2")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The real priority.
    #[prost(double, optional, tag = "3")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<f64>,
    /// Who set it.
    #[prost(string, tag = "4")]
    pub by: String,
}

/// The cluster an event is about, when it is about one.
pub fn cluster_of(kind: &Kind) -> Option<u32> {
    match kind {
        Kind::ClusterSubmitted(e) => Some(e.cluster),
        Kind::JobsHeld(e) => Some(e.cluster),
        Kind::JobsReleased(e) => Some(e.cluster),
        Kind::JobsRemoved(e) => Some(e.cluster),
        Kind::StopRequested(e) => Some(e.cluster),
        Kind::JobsAssigned(e) => Some(e.cluster),
        Kind::JobStarted(e) => Some(e.cluster),
        Kind::JobExited(e) => Some(e.cluster),
        Kind::JobsRequeued(e) => Some(e.cluster),
        Kind::JobSuspended(e) => Some(e.cluster),
        Kind::JobContinued(e) => Some(e.cluster),
        Kind::JobCheckpointed(e) => Some(e.cluster),
        Kind::JobWarned(e) => Some(e.cluster),
        Kind::JobNotSaved(e) => Some(e.cluster),
        Kind::JobFilesMoved(e) => Some(e.cluster),
        Kind::JobVisited(e) => Some(e.cluster),
        Kind::JobsLeft(e) => Some(e.cluster),
        Kind::GangPlanned(e) => Some(e.cluster),
        Kind::JobProvisioning(e) => Some(e.cluster),
        Kind::JobReserved(e) => Some(e.cluster),
        Kind::JobsExtended(e) => Some(e.cluster),
        Kind::ClusterReordered(e) => Some(e.cluster),
        Kind::ManagerStarted(_)
        | Kind::PoolDrained(_)
        | Kind::MachineStanding(_)
        | Kind::LabSet(_)
        | Kind::ClaimMade(_)
        | Kind::ClaimEnded(_)
        | Kind::TokenIssued(_)
        | Kind::MachineJoined(_)
        | Kind::PrioritySet(_)
        | Kind::ClockStepped(_)
        | Kind::JournalSalvaged(_)
        | Kind::MachineRevoked(_)
        | Kind::TokenRevoked(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in `tag = "..."` of an enum, and those that whoever contains it lists: prost drops what is not listed.
    fn listed(source: &str, name: &str, user: &str) -> (Vec<String>, Vec<String>) {
        let body =
            source.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}\n").next().unwrap();
        let tags = body.split("tag = \"").skip(1).map(|t| t.split('"').next().unwrap().to_owned()).collect();
        let list = user.split(&format!("oneof = \"{name}\",")).nth(1).unwrap();
        let list = list.split("tags = \"").nth(1).unwrap().split('"').next().unwrap();
        (tags, list.split(", ").map(str::to_owned).collect())
    }

    #[test]
    fn no_kind_is_left_out_of_the_list_that_readers_go_by() {
        let (event, report) = (include_str!("event.rs"), include_str!("report.rs"));
        let (tags, list) = listed(event, "Kind", event);
        assert!(tags.len() > 25 && tags == list, "{tags:?} {list:?}");
        for user in [include_str!("starter.rs"), include_str!("agent.rs")] {
            let (tags, list) = listed(report, "Happening", user);
            assert!(tags.len() > 10 && tags == list, "{tags:?} {list:?}");
        }
    }

    #[test]
    fn digests_stay_out_of_json() {
        let made = ClaimMade { claim: 5, key_digest: vec![1; 32], ..ClaimMade::default() };
        let event = Event { time_ms: 1, kind: Some(Kind::ClaimMade(made)) };
        let json = serde_json::to_string(&event).unwrap();
        assert!(json.contains("\"event\":\"ClaimMade\"") && !json.contains("digest"), "{json}");
        let back = Event::decode(event.encode_to_vec().as_slice()).unwrap();
        assert_eq!(back, event);
    }
}
