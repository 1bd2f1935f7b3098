//! A row: a stretch of time of one slot, or of what no slot has.

use model::JobId;
use model::event::Condition;
use serde::{Deserialize, Serialize};

/// What a slot does.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration, Serialize, Deserialize,
)]
#[repr(i32)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Nothing: nobody has a claim.
    Idle = 0,
    /// A claim is there, and nothing of its job is done.
    Claimed = 1,
    /// The machine was told to make itself ready for a job.
    Waiting = 2,
    /// It is being installed.
    Installing = 3,
    /// A job runs, or its owner keeps the machine afterwards.
    Running = 4,
    /// A job stands still for the machine's owner.
    Suspended = 5,
    /// Out of contact.
    Lost = 6,
}

impl What {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Claimed => "claimed",
            Self::Waiting => "waiting",
            Self::Installing => "installing",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Lost => "lost",
        }
    }
}

/// A stretch of time of one slot, or of what no slot has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Machine.
    pub machine: String,
    /// Slot; empty for what no slot has.
    pub slot: String,
    /// Lab of the machine; empty for none.
    pub lab: String,
    /// From, in Unix milliseconds by the clock as it is now.
    pub from_ms: u64,
    /// To.
    pub to_ms: u64,
    /// What it did.
    pub what: What,
    /// What the machine was meant for: automated, manual, broken or removed.
    pub condition: String,
    /// The gang that the machine was promised to.
    pub earmark: Option<u32>,
    /// For whom; who had the machine by hand, if nobody has a claim; empty when idle.
    pub user: String,
    /// CLUSTER.PROC of the job.
    #[serde(with = "job_name")]
    pub job: Option<JobId>,
    /// Cores that the claim has, or that nobody has.
    pub cores: u32,
    /// The attempt came to nothing: its job must do this stretch again.
    pub wasted: bool,
    /// Under a promise to others.
    pub backfill: bool,
    /// The process was over, and the owner kept the machine.
    pub reserved: bool,
}

impl Row {
    /// Its length.
    pub fn ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }
}

/// A condition in a word.
pub fn condition_name(condition: Condition) -> &'static str {
    match condition {
        Condition::Automated => "automated",
        Condition::Manual => "manual",
        Condition::Broken => "broken",
        Condition::Removed => "removed",
    }
}

/// JSON has a job's name, not its numbers.
mod job_name {
    use model::{JobId, JobName};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    #[expect(clippy::ref_option, reason = "serde hands over the field")]
    pub(super) fn serialize<S: Serializer>(job: &Option<JobId>, to: S) -> Result<S::Ok, S::Error> {
        job.map(|j| j.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JobId>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        match text.parse::<JobName>().map_err(D::Error::custom)? {
            JobName::Job(job) => Ok(Some(job)),
            JobName::Cluster(_) => Err(D::Error::custom(format!("{text} is no CLUSTER.PROC"))),
        }
    }
}
