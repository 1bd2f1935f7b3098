//! What a machine is told, and what it wants done. Plain data; the meaning is in `machine`, `requests` and `evaluate`.

use classad::{ClassAd, Name, Value};
use model::id::ClaimId;

use crate::expressions::Policy;
use crate::slot::SlotId;
use crate::slots::Resources;
use crate::state::Standing;
use crate::transition::Record;

/// Attributes with their values; None takes the attribute out of the ad.
pub type Attributes = Vec<(Name, Option<Value>)>;

/// What the sensors see. A value of None takes the attribute out of the ad.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// For the whole machine.
    pub machine: Attributes,
    /// For single slots; they win over those of the machine.
    pub slots: Vec<(SlotId, Attributes)>,
}

impl Readings {
    /// Adds an attribute of the machine.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.machine.push((Name::new(name), Some(value.into())));
        self
    }
}

/// What happened. Requests about claims that are not held here change nothing and are answered as refused.
#[derive(Debug, Clone)]
pub enum Input {
    /// New measurements; looked at by the next evaluation.
    Sensors(Readings),
    /// Time has passed: at or after [`crate::Machine::next_wake_ms`].
    Tick,
    /// Evaluate now, beside the timers: the owner has just touched the machine. Send the readings first.
    Look,
    /// The matchmaker paired a slot with a claim that will ask for it.
    Match {
        /// Which slot.
        slot: SlotId,
        /// For which claim.
        claim: ClaimId,
        /// How much of the slot it gets, where that is cut up.
        room: Option<Resources>,
    },
    /// The claim of a better match got its own number, whether it still waits or has the slot.
    Confirm {
        /// What it was known by.
        waiting: ClaimId,
        /// What it is.
        claim: ClaimId,
    },
    /// A claim asks for a slot; of a partitionable one it gets a new slot of its own.
    Claim {
        /// Which slot.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
        /// A job that it wants to run.
        job: ClassAd,
    },
    /// A claim of an earlier life of the agent: its job is there, whatever START says now.
    Adopt {
        /// The slot that it is cut from.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
        /// Its job.
        job: ClassAd,
        /// A job runs; otherwise the claim is idle.
        runs: bool,
        /// The job stands still.
        suspended: bool,
        /// The job is leaving, and has been for so many milliseconds: its starter was told to see to that.
        leaving_ms: Option<u64>,
    },
    /// A claim wants to start a job.
    Activate {
        /// Which claim.
        claim: ClaimId,
        /// The job.
        job: ClassAd,
    },
    /// Attributes of the running job have changed (ImageSize and the like).
    JobChanged {
        /// Whose job.
        claim: ClaimId,
        /// The new values.
        changes: ClassAd,
    },
    /// The job of a claim ended and nothing of it is left.
    StarterGone {
        /// Whose.
        claim: ClaimId,
    },
    /// The claim's holder, or a rival that waits, gives up.
    Release {
        /// Which claim.
        claim: ClaimId,
    },
    /// Nothing was heard of a claim's holder for too long.
    LeaseExpired {
        /// Which claim.
        claim: ClaimId,
    },
    /// An operator wants jobs to leave.
    Vacate {
        /// One slot, or all.
        slot: Option<SlotId>,
        /// Without asking them first.
        fast: bool,
    },
    /// An operator wants a checkpoint.
    Checkpoint {
        /// One slot, or all.
        slot: Option<SlotId>,
    },
    /// An operator wants jobs stopped until he lets them go on.
    Suspend {
        /// One slot, or all.
        slot: Option<SlotId>,
    },
    /// An operator takes back his [`Input::Suspend`].
    Continue {
        /// One slot, or all.
        slot: Option<SlotId>,
    },
    /// The machine is to be measured once, whatever RunBenchmarks says: its agent starts.
    Benchmark,
    /// The benchmark run is over.
    BenchmarkFinished {
        /// Dhrystone figure, averaged by the caller.
        mips: i64,
        /// Linpack figure, averaged by the caller.
        kflops: i64,
    },
    /// The benchmark was given up, or not begun, because the machine has jobs.
    BenchmarkStopped,
    /// The owner has a new policy; it counts from the next evaluation on.
    Policy(Box<Policy>),
}

/// Who wanted a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointWhy {
    /// PERIODIC_CHECKPOINT.
    Periodic,
    /// An operator.
    Command,
}

/// An expression gave something that is neither true nor false.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// Which slot.
    pub slot: SlotId,
    /// Which expression.
    pub name: &'static str,
    /// What it gave.
    pub value: Value,
    /// What it counts as.
    pub counts_as: bool,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write this down: a slot changed.
    Trace(Record),
    /// Measure the machine, then say [`Input::BenchmarkFinished`] or [`Input::BenchmarkStopped`].
    StartBenchmark,
    /// Answer: the claim holds this slot now.
    ClaimAccepted {
        /// The slot; a new one if a partitionable slot was asked for.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
    },
    /// Answer: the claim will have the slot when its present job has left.
    ClaimWaits {
        /// The slot.
        slot: SlotId,
        /// The waiting claim.
        claim: ClaimId,
    },
    /// Answer: no.
    ClaimRefused {
        /// The slot.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
        /// In words.
        reason: String,
    },
    /// A claim (or a waiting rival) is over.
    ClaimLost {
        /// The slot it had.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
        /// In words.
        reason: String,
        /// Its holder is to be told; not when the lease ran out.
        tell: bool,
    },
    /// Start the job of this claim.
    Activate {
        /// The slot.
        slot: SlotId,
        /// The claim.
        claim: ClaimId,
    },
    /// Answer: this job does not start.
    ActivationRefused {
        /// The claim.
        claim: ClaimId,
        /// In words.
        reason: String,
    },
    /// Stop all processes of the job.
    Suspend {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
    },
    /// Let them go on.
    Continue {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
    },
    /// When the claim's job has left, it is to be held; said just before it is made to leave.
    Hold {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
        /// Why, for the job's user.
        reason: String,
        /// The owner's own number for it (HoldReasonSubCode).
        subcode: u32,
    },
    /// Ask the job to leave, with its own signal.
    SoftKill {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
    },
    /// Kill every process of the job.
    HardKill {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
    },
    /// The starter did not manage it: kill the job's processes and the starter itself.
    KillStarter {
        /// The slot.
        slot: SlotId,
        /// Whose starter.
        claim: ClaimId,
    },
    /// Take a checkpoint; the job goes on.
    Checkpoint {
        /// The slot.
        slot: SlotId,
        /// Whose job.
        claim: ClaimId,
        /// Who wanted it.
        why: CheckpointWhy,
    },
    /// Answer to an operator: nothing was done on this slot.
    CommandRefused {
        /// The slot.
        slot: SlotId,
        /// In words.
        reason: String,
    },
    /// Send this ad.
    Advertise {
        /// The slot.
        slot: SlotId,
        /// Where it stands.
        standing: Standing,
        /// Its whole ad.
        ad: ClassAd,
    },
    /// The slot is no more: withdraw its ad.
    SlotGone {
        /// Which.
        slot: SlotId,
    },
    /// Tell the owner about an expression; said once until its result changes.
    Warn(Warning),
}
