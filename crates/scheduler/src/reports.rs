//! What agents say: of themselves when they connect, and of their claims and jobs from then on. What it leads to is in
//! `agents`.

use classad::ClassAd;
use model::event::{Exit, Resources};
use model::{ClaimId, ClaimKey, JobId};

use crate::Session;

/// What an agent says of itself when it connects.
#[derive(Debug, Clone)]
pub struct AgentHello {
    /// Machine name from its certificate.
    pub machine: String,
    /// Its new session.
    pub session: Session,
    /// What the pool may use of it.
    pub total: Resources,
    /// The machine ad.
    pub ad: ClassAd,
    /// Its further slots, where it is divided; `total` and `ad` are then those of its first.
    pub more: Vec<crate::places::AgentSlot>,
    /// Claims it still holds.
    pub claims: Vec<HeldClaim>,
}

/// A claim that an agent still holds.
#[derive(Debug, Clone)]
pub struct HeldClaim {
    /// Public id.
    pub claim: ClaimId,
    /// Proof.
    pub key: ClaimKey,
    /// Jobs it has: running, waiting, or ended with a report that was not acknowledged yet.
    pub jobs: Vec<HeldJob>,
    /// It is over, and its machine is being put in order.
    pub ending: bool,
}

/// A job that an agent still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeldJob {
    /// Job.
    pub job: JobId,
    /// Attempt.
    pub attempt: u32,
}

/// A report about a claim. Reports are repeated until acknowledged, so each may arrive more than once.
#[derive(Debug, Clone)]
pub struct Report {
    /// Claim.
    pub claim: ClaimId,
    /// Number within the claim, from 1; 0 when no acknowledgement is wanted.
    pub seq: u64,
    /// What happened.
    pub kind: ReportKind,
}

/// What happened on a machine.
#[derive(Debug, Clone)]
pub enum ReportKind {
    /// A job's process was started.
    Started {
        /// Which.
        job: HeldJob,
        /// When, by the machine's wall clock.
        started_ms: u64,
    },
    /// A job's process ended.
    Exited {
        /// Which.
        job: HeldJob,
        /// How.
        exit: Exit,
        /// When it was started.
        started_ms: u64,
    },
    /// A job could not be started, and would not start elsewhere either without a person's help.
    CannotStart {
        /// Which.
        job: HeldJob,
        /// Why.
        reason: String,
        /// HoldReasonCode.
        code: u32,
        /// HoldReasonSubCode.
        subcode: u32,
    },
    /// A job was killed by the machine's side (lease, owner, loss of its starter).
    Evicted {
        /// Which.
        job: HeldJob,
        /// Why.
        reason: String,
        /// Vacate code.
        code: u32,
        /// The machine's owner wants it held: why, and HoldReasonSubCode.
        hold: Option<(String, u32)>,
    },
    /// Jobs were given back before they started.
    Returned {
        /// Which.
        jobs: Vec<HeldJob>,
    },
    /// A job's processes were stopped where they are.
    Suspended {
        /// Which.
        job: HeldJob,
        /// How many processes.
        processes: u32,
    },
    /// A suspended job goes on.
    Continued {
        /// Which.
        job: HeldJob,
    },
    /// A checkpoint of a job is in the store.
    Checkpointed {
        /// Which.
        job: HeldJob,
        /// Its name in the store.
        object: String,
        /// Its size.
        bytes: u64,
        /// How long it was on its way.
        transfer_ms: u64,
        /// Bytes per second that it was allowed; 0 for no cap.
        cap: u64,
        /// The kind of machine that it is good for; empty for any.
        platform: String,
    },
    /// A job's work was to be saved and was not.
    NotSaved {
        /// Which.
        job: HeldJob,
        /// Why.
        reason: String,
    },
    /// A job was told how much time it has left.
    Warned {
        /// Which.
        job: HeldJob,
        /// Seconds.
        remaining_s: u64,
        /// The signal that it got; 0 for none.
        signal: u32,
        /// Why.
        reason: String,
    },
    /// The machine is made ready for a job.
    Provisioning {
        /// Which.
        job: HeldJob,
        /// It is being installed; before that its command was only given.
        installing: bool,
    },
    /// The machine could not be made ready for a job.
    ProvisionFailed {
        /// Which.
        job: HeldJob,
        /// Why.
        reason: String,
    },
    /// The machine could not be put in order after the claim.
    ReleaseFailed {
        /// Why.
        reason: String,
    },
    /// The claim is no more; nothing of it is alive.
    Gone {
        /// Why.
        reason: String,
    },
}
