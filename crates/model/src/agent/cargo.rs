//! Files on their way between the manager's store and machines: what is wanted, pieces, what became of them.

use prost::Message;

use crate::report::{Attempt, Hold};

/// Asks for the inputs of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Want {
    /// The claim that it was given to.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Which.
    #[prost(message, required, tag = "2")]
    pub job: Attempt,
}

/// Asks for a job's results to be put where they belong.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Land {
    /// The claim that it ran in.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Which.
    #[prost(message, required, tag = "2")]
    pub job: Attempt,
    /// The bundle, which this machine has brought to the store.
    #[prost(string, tag = "3")]
    pub object: String,
    /// Its size.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// What new things of the job's are not in it, in words.
    #[prost(string, repeated, tag = "5")]
    pub left_out: Vec<String>,
}

/// A checkpoint on its way, as measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Transfer {
    /// Bytes that the store does not have yet.
    #[prost(uint64, tag = "1")]
    pub left: u64,
    /// Bytes per second so far.
    #[prost(uint64, tag = "2")]
    pub rate: u64,
}

/// Part of an object.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Piece {
    /// Name: SHA-256 in hexadecimal digits.
    #[prost(string, tag = "1")]
    pub object: String,
    /// Size of the whole.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Where this part begins.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    /// The part.
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
    /// Why there is none; empty when there is.
    #[prost(string, tag = "5")]
    pub error: String,
    /// The claim whose job's it is, on the way to the store.
    #[prost(uint64, tag = "6")]
    pub claim: u64,
}

/// Asks for part of an object.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Get {
    /// Name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// From here.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// At most so much.
    #[prost(uint32, tag = "3")]
    pub most: u32,
}

/// What became of part of an object.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Took {
    /// Name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// What is wanted next; the whole size when it is complete, verified and on disk.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// The whole is safe.
    #[prost(bool, tag = "3")]
    pub safe: bool,
    /// Why it was not taken; empty when it was.
    #[prost(string, tag = "4")]
    pub error: String,
    /// It will not be taken if it is sent again either.
    #[prost(bool, tag = "5")]
    pub never: bool,
    /// The claim that it was sent for: two jobs may send the same at a time.
    #[prost(uint64, tag = "6")]
    pub claim: u64,
}

/// An object in the store.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Object {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Size.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// The kind of machine that it is good for; empty for any.
    #[prost(string, tag = "3")]
    pub platform: String,
}

/// The inputs of a job: a bundle, which names further objects. The machine may fetch all of them in this session.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Inputs {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// The bundle.
    #[prost(message, optional, tag = "2")]
    pub bundle: Option<Object>,
    /// Why they cannot be had, which holds the job.
    #[prost(message, optional, tag = "3")]
    pub hold: Option<Hold>,
    /// Why they cannot be had at present; ask again.
    #[prost(string, tag = "4")]
    pub later: String,
    /// The manager's host, for people.
    #[prost(string, tag = "5")]
    pub host: String,
}

/// What became of a job's results.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Landed {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why not all of them are where they belong, which holds the job.
    #[prost(message, optional, tag = "2")]
    pub hold: Option<Hold>,
    /// Why they could not be put there at present; ask again.
    #[prost(string, tag = "3")]
    pub later: String,
    /// The store does not have them: bring them first.
    #[prost(bool, tag = "4")]
    pub missing: bool,
    /// This machine does not have the job, as far as the manager knows now.
    #[prost(bool, tag = "5")]
    pub gone: bool,
}
