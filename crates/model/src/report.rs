//! What happens to the jobs of a claim, in the words that starters, agents and managers share: a report goes from the
//! starter that saw it to the manager that records it without being translated.

use prost::Message;

use crate::event::Exit;
use crate::id::JobId;

/// One attempt at a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Attempt {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Proc.
    #[prost(uint32, tag = "2")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
}

impl Attempt {
    /// An attempt at a job.
    pub fn at(job: JobId, attempt: u32) -> Self {
        Self { cluster: job.cluster, proc: job.proc, attempt }
    }

    /// The job.
    pub fn job(self) -> JobId {
        JobId { cluster: self.cluster, proc: self.proc }
    }
}

/// What happened.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Happening {
    /// A job's process was started.
    #[prost(message, tag = "3")]
    Started(Started),
    /// A job's process ended.
    #[prost(message, tag = "4")]
    Exited(Exited),
    /// A job could not be started.
    #[prost(message, tag = "5")]
    CannotStart(CannotStart),
    /// A job was killed by the machine's side.
    #[prost(message, tag = "6")]
    Evicted(Evicted),
    /// Jobs came back before they were started.
    #[prost(message, tag = "7")]
    Returned(Returned),
    /// The claim is no more; nothing of it is alive.
    #[prost(string, tag = "8")]
    Gone(String),
    /// A job's processes were stopped where they are.
    #[prost(message, tag = "9")]
    Suspended(Suspended),
    /// A suspended job goes on.
    #[prost(message, tag = "10")]
    Continued(Attempt),
    /// A checkpoint of a job is in the store.
    #[prost(message, tag = "11")]
    Checkpointed(Checkpointed),
    /// A job was told how much time it has left.
    #[prost(message, tag = "12")]
    Warned(Warned),
    /// The machine is made ready for a job.
    #[prost(message, tag = "13")]
    Provisioning(Provisioning),
    /// The machine could not be made ready for a job.
    #[prost(message, tag = "14")]
    ProvisionFailed(ProvisionFailed),
    /// The machine could not be put in order after the claim; why.
    #[prost(string, tag = "15")]
    ReleaseFailed(String),
    /// A job's work was to be saved and was not.
    #[prost(message, tag = "16")]
    NotSaved(NotSaved),
    /// A job's files are on their way, or have arrived.
    #[prost(message, tag = "17")]
    Moved(Moved),
    /// How the machine and the claim stand to each other, beside jobs.
    #[prost(message, tag = "30")]
    Seat(SeatSaid),
}

/// How far a job's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MoveStage {
    /// Its inputs are being brought to the machine.
    InputStarted = 0,
    /// They are there.
    InputFinished = 1,
    /// Its results are being brought back.
    OutputStarted = 2,
    /// They are there. Said by the manager alone, which put them there.
    OutputFinished = 3,
    /// Nothing has moved; there is something to be told.
    Noted = 4,
}

/// A job's files are on their way, or have arrived.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Moved {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// How far they are.
    #[prost(enumeration = "MoveStage", tag = "2")]
    pub stage: i32,
    /// How many bytes were moved.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// How many files.
    #[prost(uint64, tag = "4")]
    pub files: u64,
    /// The names of results that came back, but for the two outputs; no more than fit into a report.
    #[prost(string, repeated, tag = "5")]
    pub names: Vec<String>,
    /// What the job's owner must know: what stayed behind, or landed under another name.
    #[prost(string, repeated, tag = "6")]
    pub notes: Vec<String>,
}

/// What a machine says of a claim itself.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct SeatSaid {
    /// What.
    #[prost(enumeration = "SeatAnswer", tag = "1")]
    pub answer: i32,
    /// Why, in words, when it is a no.
    #[prost(string, tag = "2")]
    pub reason: String,
}

impl SeatSaid {
    /// An answer that needs no reason.
    pub fn new(answer: SeatAnswer) -> Self {
        Self { answer: answer.into(), reason: String::new() }
    }
}

/// How a machine and a claim stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SeatAnswer {
    /// The slot is promised to the claim.
    Matched = 0,
    /// The claim has the slot; its job waits for the word to begin.
    Accepted = 1,
    /// The claim's job leaves for the better one that was announced, which waits.
    BetterWaits = 2,
    /// The machine does not prefer what was announced: nothing changes.
    BetterRefused = 3,
    /// The claim's job is on its way out already; nobody waits.
    BetterLate = 4,
    /// The claim has had nothing to do for long: is it still wanted?
    Unfed = 5,
}

/// A job's work was to be saved and was not.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NotSaved {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// It had declared that it saves its work, was asked to leave, and left without.
    #[prost(bool, tag = "3")]
    pub missed: bool,
}

/// A job was told how much time it has left.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Warned {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Seconds until it must be gone.
    #[prost(uint64, tag = "2")]
    pub remaining_s: u64,
    /// The signal that it got; 0 for none.
    #[prost(uint32, tag = "3")]
    pub signal: u32,
    /// Why.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// The machine is made ready for a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Provisioning {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// It is being installed; before that its command was only given.
    #[prost(bool, tag = "2")]
    pub installing: bool,
}

/// The machine could not be made ready for a job.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ProvisionFailed {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// A checkpoint of a job is in the store.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Checkpointed {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Its name in the store: the SHA-256 of the archive.
    #[prost(bytes = "vec", tag = "2")]
    pub sha256: Vec<u8>,
    /// Size of the archive.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// How long it was on its way, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub transfer_ms: u64,
    /// What it was allowed, in bytes per second; 0 for no cap.
    #[prost(uint64, tag = "5")]
    pub cap: u64,
    /// The kind of machine that it is good for; empty for any.
    #[prost(string, tag = "6")]
    pub platform: String,
    /// From being asked to leave to having packed what it saved, in milliseconds; 0 when it was not asked.
    #[prost(uint64, tag = "7")]
    pub saving_ms: u64,
}

impl Checkpointed {
    /// Its name in the store, in hexadecimal digits; `None` when it has none.
    pub fn object(&self) -> Option<String> {
        object_name(&self.sha256)
    }
}

/// The name of an object with this hash; `None` for what is no hash.
pub fn object_name(sha256: &[u8]) -> Option<String> {
    use std::fmt::Write as _;
    let hash: &[u8; 32] = sha256.try_into().ok()?;
    Some(hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// A job's processes were stopped where they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Suspended {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// How many processes.
    #[prost(uint32, tag = "2")]
    pub processes: u32,
}

/// A job's process was started. (What was tag 2 here and tag 3 of `Exited` was a time by the machine's wall clock.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Started {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
}

/// A job's process ended.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exited {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// How.
    #[prost(message, required, tag = "2")]
    pub exit: Exit,
}

/// A job could not be started.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CannotStart {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// HoldReasonCode.
    #[prost(uint32, tag = "3")]
    pub code: u32,
    /// HoldReasonSubCode.
    #[prost(uint32, tag = "4")]
    pub subcode: u32,
}

/// A job was killed by the machine's side.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Evicted {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Vacate code.
    #[prost(uint32, tag = "3")]
    pub code: u32,
    /// The machine's owner wants it held, not run again elsewhere.
    #[prost(message, optional, tag = "4")]
    pub hold: Option<Hold>,
}

pub use crate::codes::vacate::{LEASE_OVER, MACHINE_FAILED};

impl Evicted {
    /// What makes a job leave takes its claim too: whoever hears of it gives the claim nothing more, and its machine ends it. Not so
    /// when nobody wanted the claim gone.
    pub fn ends_claim(&self) -> bool {
        !matches!(self.code, MACHINE_FAILED | LEASE_OVER)
    }
}

/// A job that left a machine is to be held.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Hold {
    /// Why.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// HoldReasonSubCode.
    #[prost(uint32, tag = "2")]
    pub subcode: u32,
    /// HoldReasonCode, where it is not that of the machine's policy: 34 for a job that took more than it asked for, 12 for one whose
    /// output had no room.
    #[prost(uint32, tag = "3")]
    pub code: u32,
}

/// Jobs came back before they were started.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Returned {
    /// Which.
    #[prost(message, repeated, tag = "1")]
    pub jobs: Vec<Attempt>,
}
