//! What is open: what the projection remembers between two events. Plain records, so that a bookmark can hold them.
//!
//! Names are numbers into one list; a job is one number (cluster above proc). All times are on the clock that is never set.

use std::collections::{BTreeMap, HashMap};

use model::JobId;
use model::event::Condition;
use prost::Message;

use crate::rows::What;

/// A name, as its place in the list; 0 is the empty one.
pub(crate) type Name = u32;

pub(crate) fn key_of(job: JobId) -> u64 {
    u64::from(job.cluster) << 32 | u64::from(job.proc)
}

pub(crate) fn job_of(key: u64) -> JobId {
    JobId { cluster: (key >> 32) as u32, proc: key as u32 }
}

/// Everything that is open.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Open {
    #[prost(string, repeated, tag = "1")]
    pub(crate) names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) slots: Vec<Slot>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) machines: Vec<Machine>,
    /// Claim -> slot.
    #[prost(map = "uint64, uint32", tag = "4")]
    pub(crate) claims: HashMap<u64, u32>,
    /// Gang -> machines that it was promised.
    #[prost(map = "uint32, message", tag = "5")]
    pub(crate) plans: HashMap<u32, Plan>,
    /// Job -> the claim that has it.
    #[prost(map = "uint64, uint64", tag = "6")]
    pub(crate) live: HashMap<u64, u64>,
    /// Cluster -> what is remembered of it, as long as a job of it is in the queue.
    #[prost(map = "uint32, message", tag = "7")]
    pub(crate) clusters: HashMap<u32, Cluster>,
    /// Jobs that went back to the queue, and when.
    #[prost(btree_map = "uint64, uint64", tag = "8")]
    pub(crate) returned: BTreeMap<u64, u64>,
    /// Jobs that were given to a claim and have not started, and when.
    #[prost(map = "uint64, uint64", tag = "9")]
    pub(crate) assigned: HashMap<u64, u64>,
    /// The gang whose jobs are being given away, and when its last machine was there.
    #[prost(message, optional, tag = "10")]
    pub(crate) deciding: Option<Deciding>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) first_ms: Option<u64>,
    #[prost(uint64, tag = "12")]
    pub(crate) last_ms: u64,
    /// How far the wall clock was set since the first event: a time of the journal less this is a time here.
    #[prost(sint64, tag = "13")]
    pub(crate) stepped_ms: i64,
}

/// A slot and what it does now.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Slot {
    /// Place in the list of machines.
    #[prost(uint32, tag = "1")]
    pub(crate) machine: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) name: Name,
    #[prost(uint64, tag = "3")]
    pub(crate) since_ms: u64,
    #[prost(message, required, tag = "4")]
    pub(crate) now: Doing,
    /// What would be lost with the attempt.
    #[prost(message, repeated, tag = "5")]
    pub(crate) unsaved: Vec<Unsaved>,
}

/// What a slot does.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Doing {
    #[prost(enumeration = "What", tag = "1")]
    pub(crate) what: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) user: Name,
    #[prost(uint32, tag = "3")]
    pub(crate) cores: u32,
    #[prost(uint64, tag = "4")]
    pub(crate) lease_ms: u64,
    #[prost(bool, tag = "5")]
    pub(crate) backfill: bool,
    #[prost(bool, tag = "6")]
    pub(crate) reserved: bool,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) job: Option<u64>,
    /// When the job's process was started.
    #[prost(uint64, optional, tag = "8")]
    pub(crate) began_ms: Option<u64>,
}

/// Core-milliseconds of an attempt since it was last saved, in one lab.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Unsaved {
    #[prost(uint32, tag = "1")]
    pub(crate) lab: Name,
    #[prost(uint64, tag = "2")]
    pub(crate) core_ms: u64,
}

/// What is true of a machine as a whole.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Standing {
    #[prost(uint32, tag = "1")]
    pub(crate) lab: Name,
    #[prost(enumeration = "Condition", tag = "2")]
    pub(crate) condition: i32,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) earmark: Option<u32>,
    #[prost(uint32, tag = "4")]
    pub(crate) held_by: Name,
    /// `None`: until it is given back.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) held_until_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Machine {
    #[prost(uint32, tag = "1")]
    pub(crate) name: Name,
    #[prost(message, required, tag = "2")]
    pub(crate) standing: Standing,
    /// Cores that slots have.
    #[prost(uint32, tag = "3")]
    pub(crate) claimed: u32,
    /// The most that they ever had.
    #[prost(uint32, tag = "4")]
    pub(crate) most: u32,
    /// Since when what no slot has is as it is.
    #[prost(uint64, tag = "5")]
    pub(crate) since_ms: u64,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) slots: Vec<u32>,
    /// When it last changed so that a job might start there; `None` while nobody knows.
    #[prost(uint64, optional, tag = "7")]
    pub(crate) opened_ms: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) broken_ms: Option<u64>,
}

/// Machines that a gang was promised, as places in the list.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Plan {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) machines: Vec<u32>,
}

/// What is remembered of a cluster.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Cluster {
    /// As in [`model::Class::ALL`].
    #[prost(uint32, tag = "1")]
    pub(crate) class: u32,
    /// Jobs that start together.
    #[prost(uint32, tag = "2")]
    pub(crate) size: u32,
    #[prost(bool, tag = "3")]
    pub(crate) gang: bool,
    #[prost(uint64, tag = "4")]
    pub(crate) submitted_ms: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) released_ms: u64,
    /// The first promise; may lie before the beginning.
    #[prost(sint64, optional, tag = "6")]
    pub(crate) promised_ms: Option<i64>,
    #[prost(bool, tag = "7")]
    pub(crate) begun: bool,
    /// Jobs of it that are in the queue.
    #[prost(uint32, tag = "8")]
    pub(crate) left: u32,
}

/// Something that is counted: when, where, for whom.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(uint64, tag = "1")]
    pub(crate) at_ms: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) machine: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) lab: Name,
    #[prost(uint32, tag = "4")]
    pub(crate) user: Name,
}

/// A decision about a gang that is being made.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Deciding {
    #[prost(uint32, tag = "1")]
    pub(crate) cluster: u32,
    #[prost(message, required, tag = "2")]
    pub(crate) sample: Sample,
    #[prost(uint64, tag = "3")]
    pub(crate) ms: u64,
}

impl Slot {
    /// An attempt at a job is so far. Returns true when it is another attempt than before.
    pub(crate) fn attempt(&mut self, what: What, job: u64) -> bool {
        let other = self.now.job != Some(job);
        if other {
            (self.now.job, self.now.began_ms) = (Some(job), None);
        }
        self.now.what = what as i32;
        other
    }

    /// The same job in another state.
    pub(crate) fn again(&mut self, what: What) {
        if self.now.job.is_some() {
            self.now.what = what as i32;
        }
    }
}
