//! What must survive an agent, and the names of a claim's directories.

use std::path::{Path, PathBuf};

use prost::Message;

/// What an agent needs to know of a claim after a restart.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Record {
    /// Which.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The key that proves it.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The slot that it was made for, by the manager's name.
    #[prost(string, tag = "3")]
    pub slot: String,
    /// Whose jobs it runs.
    #[prost(string, tag = "4")]
    pub owner: String,
    /// Everything of it ends after so long without word from the manager.
    #[prost(uint64, tag = "5")]
    pub lease_ms: u64,
    /// Value of the variable by which this claim's processes are found.
    #[prost(string, tag = "6")]
    pub marker: String,
    /// It holds nothing: its job runs inside what another claim has.
    #[prost(bool, tag = "7")]
    pub guest: bool,
}

/// The name of a claim's directories.
pub fn name(claim: u64) -> String {
    format!("{claim:016x}")
}

/// The scratch directory of a claim's jobs.
pub fn scratch(execute: &Path, claim: u64) -> PathBuf {
    execute.join(name(claim))
}
