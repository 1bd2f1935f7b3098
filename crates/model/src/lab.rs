//! Events of labs: conditions of machines, who holds them, plans of gangs, provisioning and reservations.
//!
//! The words are Beaker's. They are part of the vocabulary of [`crate::event`], in a file of their own.

use std::str::FromStr;

use prost::Message;
use serde::{Deserialize, Serialize};

use crate::procs::Span;

/// May the pool use a machine?
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration, Serialize, Deserialize,
)]
#[repr(i32)]
pub enum Condition {
    /// Yes.
    Automated = 0,
    /// People only; jobs that are there stay to their end.
    Manual = 1,
    /// Nobody; jobs that have begun to install or run stay to their end, others go back to the queue.
    Broken = 2,
    /// It has left the pool for good.
    Removed = 3,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Automated, Self::Manual, Self::Broken, Self::Removed];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Automated => "automated",
            Self::Manual => "manual",
            Self::Broken => "broken",
            Self::Removed => "removed",
        }
    }
}

/// Not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a condition: automated, manual, broken or removed")]
pub struct NotACondition(String);

impl FromStr for Condition {
    type Err = NotACondition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|c| c.word().eq_ignore_ascii_case(text));
        found.ok_or_else(|| NotACondition(crate::text::shorten(text, 40)))
    }
}

/// JSON shows the word of a [`Condition`], not its number.
mod condition_word {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::Condition;

    pub(super) fn serialize<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(Condition::try_from(*value).map_or("unknown", Condition::word))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
        let word = String::deserialize(from)?;
        word.parse::<Condition>().map(|c| c as i32).map_err(D::Error::custom)
    }
}

/// What people decided about a machine: the whole of it, replacing what was decided before.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineStanding {
    /// The machine.
    #[prost(string, tag = "1")]
    pub machine: String,
    /// May the pool use it?
    #[prost(enumeration = "Condition", tag = "2")]
    #[serde(with = "condition_word")]
    #[schemars(with = "String")]
    pub condition: i32,
    /// Only this user's jobs run there; empty: everybody's.
    #[prost(string, tag = "3")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub loaned_to: String,
    /// This user has it for themselves; empty: nobody.
    #[prost(string, tag = "4")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held_by: String,
    /// Until then, in Unix milliseconds; 0: until it is given back.
    #[prost(uint64, tag = "5")]
    #[serde(default)]
    pub held_until_ms: u64,
    /// Who decided.
    #[prost(string, tag = "6")]
    pub by: String,
    /// Why.
    #[prost(string, tag = "7")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Only jobs of these users and groups run there; empty: everybody's.
    #[prost(string, repeated, tag = "8")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// How far it is with what its holder has installed there: waiting, installing; empty when it is ready.
    #[prost(string, tag = "9")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held_stage: String,
}

impl MachineStanding {
    /// True when the pool may use the machine for everybody: nothing need be remembered.
    pub fn is_blank(&self) -> bool {
        self.condition() == Condition::Automated
            && self.loaned_to.is_empty()
            && self.held_by.is_empty()
            && self.allow.is_empty()
    }
}

/// What people decided about a lab: the whole of it, replacing what was decided before.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct LabSet {
    /// The lab.
    #[prost(string, tag = "1")]
    pub lab: String,
    /// Nothing new starts in a disabled one.
    #[prost(bool, tag = "2")]
    pub disabled: bool,
    /// Who decided.
    #[prost(string, tag = "3")]
    pub by: String,
    /// Why.
    #[prost(string, tag = "4")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The distro trees that can be installed there, in order.
    #[prost(string, repeated, tag = "5")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<String>,
    /// It is no more: nothing new starts on machines that still say they are there.
    #[prost(bool, tag = "6")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

impl LabSet {
    /// True when a lab is as if nobody had decided anything: nothing need be remembered.
    pub fn is_blank(&self) -> bool {
        !self.disabled && !self.removed && self.trees.is_empty()
    }
}

/// A waiting gang was promised machines, other machines, or none any more.
///
/// For people and for the usage table: recovery plans anew.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct GangPlanned {
    /// The gang.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// One per job; empty when the plan was dropped or the gang starts.
    #[prost(string, repeated, tag = "2")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// It starts at this Unix second at the latest.
    #[prost(uint64, tag = "3")]
    #[serde(default)]
    pub promise_s: u64,
}

/// A machine is made ready for a job.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobProvisioning {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Which attempt, from 1.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
    /// The machine is being installed; before that its commands have only been given.
    #[prost(bool, tag = "5")]
    #[serde(default)]
    pub installing: bool,
}

/// A job is over, and its machine is kept: for its owner for a while, or for its gang until that is over too.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobReserved {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "3")]
    pub proc: u32,
    /// Until then at the latest, in Unix milliseconds; 0 when it is kept for its gang.
    #[prost(uint64, tag = "4")]
    pub until_ms: u64,
    /// It is kept for its gang: given back when the others have ended too, or when they are called back.
    #[prost(bool, tag = "5")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_gang: bool,
}

/// Jobs got more time than they declared.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobsExtended {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Procs.
    #[prost(message, repeated, tag = "2")]
    pub procs: Vec<Span>,
    /// So many seconds more.
    #[prost(uint64, tag = "3")]
    pub seconds: u64,
    /// Who decided.
    #[prost(string, tag = "4")]
    pub by: String,
}
