//! Events of checkpoints that could not be made. Those that were are [`crate::event::JobCheckpointed`].

use prost::Message;
use serde::{Deserialize, Serialize};

/// A job's work was to be saved and was not: it goes on, or leaves without; the older checkpoint stands.
///
/// For people: nothing follows from it.
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
}
