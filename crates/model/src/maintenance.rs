//! Events of maintenance: jobs that were warned, and pools that start nothing new for a while.
//!
//! They are part of the vocabulary of [`crate::event`], in a file of their own.

use prost::Message;
use serde::{Deserialize, Serialize};

/// A running job was told how much time it has left.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct JobWarned {
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
    /// Seconds until it must be gone.
    #[prost(uint64, tag = "5")]
    pub remaining_s: u64,
    /// The signal that it got; 0 for none, which is what a job that asks for none gets.
    #[prost(uint32, tag = "6")]
    #[serde(default)]
    pub signal: u32,
    /// Why.
    #[prost(string, tag = "7")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// For a while nothing new starts on some machines of a pool, or on any.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct PoolDrained {
    /// Its name; a later one of the same name replaces it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// When it ends by itself, in Unix milliseconds; 0: now.
    #[prost(uint64, tag = "2")]
    pub until_ms: u64,
    /// Only machines for whose ads this expression is true; empty: all.
    #[prost(string, tag = "3")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraint: String,
    /// Who ordered it.
    #[prost(string, tag = "4")]
    pub by: String,
    /// Why.
    #[prost(string, tag = "5")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
