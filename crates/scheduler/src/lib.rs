//! The pool brain: what arrives goes in, journal events and effects come out.
//!
//! [`Core`] is a plain struct. It is told the time, given fresh claim keys, and never does IO. Durable state changes
//! only in [`Core::apply`] (`books`), which recovery also uses, so that replaying the journal gives the same queue. What an
//! input makes it decide is collected in an [`Out`]: the driver writes the events to the journal first and releases
//! the effects only when they are on disk.
//!
//! - `books`: what is durable, and the only place that writes it: `queue` (clusters and the state of their jobs), `pool` (machines
//!   and claims; claims are durable, machines soft), `apply`, `snapshot` (durable state as bytes), `steps` (the manager's clock was
//!   set), `sweep` (the consistency pass, which finds nothing) and `recount` (the common books that it counts anew)
//!   The rest is functions over the parts that they name (decision 072)
//! - `changes`: what has changed and nobody has drawn the consequences of
//! - `tick`: what is due when time passes; `ended`: what becomes of jobs and claims when an attempt is over
//! - `shape`: which jobs are alike for matching (`alike`), and which machines can run them
//! - `pass`: who gets what: the scheduling decisions; `room`: which room jobs may have; `feed`: claims made, fed and ended; `keys`: what they are named with; `preempt`: who must go for a better job
//! - `hopeless`: jobs that nothing can ever satisfy; `aborts`: machines that cannot run what is given to them
//! - `labs`: who may decide what about machines and labs, and what follows
//! - `gangs`: clusters that start together, by the planner of the crate of that name
//! - `provision`: machines that are made ready for jobs, or could not be
//! - `seats`: claims on their way to their first jobs, slots on their way to better ones
//! - `reserve`: more time for running jobs; machines that owners keep after the run
//! - `accounts`: fair share; `admission`: what a set takes beside machines; `concurrency`: named limits; `throttle`: bursts of
//!   starts
//! - `agents`: what machines report (`reports`), leases, reconciliation; `places`: machines and their slots that come and go
//! - `actions`: what people ask; `orders`: held, released, removed, stopped, reordered; `offers`: what no machine of the pool offers; `stamp`: what the manager says of
//!   a job, whatever its submitter wrote
//! - `explain`: why a job waits, why a machine does nothing, in the pass's own terms
//! - `lifecycle`: what jobs' own expressions decide, at exit and from time to time
//! - `settings`: from a configuration to [`Settings`]
//! - `invariants`: what must hold after every input, each in a sentence; `probes`: what tests look at beside what people see; `mutation`: faults that tests put in
//! - `undone`: what the pass goes on with later, because it costs too much for one input
//! - `refusals`: machines that end claims before their jobs begin
//! - `words`: from what machines say to what the core hears, and back
//! - `view`: read-only answers for people; `pages`: long ones, a page at a time

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod aborts;
mod accounts;
mod actions;
mod admission;
mod agents;
mod alike;
mod books;
mod changes;
mod concurrency;
mod dag_nodes;
mod ended;
mod explain;
mod feed;
mod gangs;
mod hopeless;
mod invariants;
mod keys;
mod labs;
mod lifecycle;
mod mutation;
mod offers;
mod orders;
mod pages;
mod pass;
mod places;
mod preempt;
mod price;
mod probes;
mod provision;
mod refusals;
mod reports;
mod reserve;
mod room;
mod seats;
mod settings;
mod shape;
mod slot_ads;
mod stamp;
#[cfg(test)]
mod tests;
mod throttle;
mod tick;
mod undone;
mod view;
mod words;

use classad::Expr;
use jiff::tz::TimeZone;
use model::agent::Notice;
use model::event::{Kind, Resources};
use model::{ClaimId, ClaimKey, Event, JobId, Now};

use books::{Books, pool, queue, snapshot, sweep};

pub use accounts::{Group, Quota, Shares, UserView};
pub use actions::{Act, Actor, Outcome, Refusal, Submission, Visited, Which};
pub use admission::{Scarce, Shortage};
pub use concurrency::Limits;
pub use explain::{
    Ahead, GangWaits, JobExplanation, Kept, Lacking, MachineExplanation, Occupant, Refusing, Standing,
    Waiting,
};
pub use gangs::{BadGuest, GangView};
pub use invariants::{INVARIANTS, Invariant};
pub use labs::{HoldStage, LabChange, Shut, StandingChange, StandingRefusal};
pub use mutation::Mutation;
pub use offers::NotOffered;
pub use pages::{JobCursor, NotACursor, Page};
pub use places::AgentSlot;
pub use planner::SEATS_MAX;
pub use pool::{Reserved, Session, SlotState};
pub use queue::{Checkpoint, Summary};
pub use reports::{AgentHello, HeldClaim};
pub use room::Obstacle;
pub use slot_ads::{ad_of_cut, ad_of_slot};
pub use snapshot::BadSnapshot;
pub use sweep::{Finding, Findings};
pub use throttle::Burst;
pub use view::{Charge, ClusterView, JobState, JobView, LabView, MachineView, PoolView, RunningView};
pub use words::{Said, Told, understand};

/// What the pool's owner may set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A job whose machine is out of contact for so long is killed there and run elsewhere. A job may ask for less with
    /// JobLeaseDuration.
    pub lease_ms: u64,
    /// Work that a claim may hold ahead of the running job, so that its starter never waits for the disk.
    pub ahead_us: u64,
    /// Most jobs that a claim may hold ahead.
    pub ahead_jobs: u32,
    /// How often PeriodicHold, PeriodicRelease, PeriodicRemove and PeriodicVacate are looked at.
    pub periodic_ms: u64,
    /// How users share the pool.
    pub shares: Shares,
    /// Named limits.
    pub limits: Limits,
    /// The start throttle.
    pub burst: Burst,
    /// CLAIM_WORKLIFE: so long a claim goes on with its user's jobs before others get their turn.
    pub claim_worklife_ms: u64,
    /// PREEMPTION_REQUIREMENTS: when may a job make another go because of its user's priority? `None` for never.
    pub preemption_requirements: Option<Expr>,
    /// PREEMPTION_RANK: which one goes; the highest first.
    pub preemption_rank: Option<Expr>,
    /// MATCH_TIMEOUT: so long the machines of a gang may take to accept their seats.
    pub match_ms: u64,
    /// Where a crontab's hours are.
    pub zone: TimeZone,
    /// CONSISTENCY_INTERVAL: how often the whole pool is checked; 0 for never.
    pub sweep_ms: u64,
    /// UNSATISFIABLE_GRACE: a gang that no lab could hold for so long is held; 0 for never.
    pub grace_ms: u64,
    /// ABORT_IMPOSSIBLE: a gang that no lab could ever hold, whatever is in use or broken, is held when it is submitted.
    pub abort_impossible: bool,
    /// RESERVATION_DEPTH: how many gangs of a lab may have a plan made; K of the reference.
    pub reservation_depth: u32,
    /// AGING_QUANTUM: a waiting gang rises one class each time so many seconds have passed; `None` for never.
    pub aging_s: Option<u64>,
    /// EXCLUSION_TIME: so long a machine that could not be made ready for jobs is not tried for them; 0 until somebody releases
    /// them.
    pub exclusion_ms: u64,
    /// SUSPICIOUS_ABORTS: so many sets in a row whose jobs could not be run break a machine; 0 for never.
    pub suspicious_aborts: u32,
    /// CHECKPOINT_QUOTA: bytes that the checkpoints of one user may take at the manager; 0 for any amount.
    pub checkpoint_quota: u64,
    /// No cluster has a smaller number: others that share files with this pool have used those.
    pub first_cluster: u32,
    /// A fault that is put in to see that it is found.
    #[cfg(any(test, feature = "mutations"))]
    pub mutation: Option<Mutation>,
}

impl Settings {
    /// The default, in a time zone.
    pub fn in_zone(zone: TimeZone) -> Self {
        Self { zone, ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ms: 300_000,
            ahead_us: 100_000,
            ahead_jobs: 256,
            periodic_ms: 60_000,
            shares: Shares::default(),
            limits: Limits::default(),
            burst: Burst::default(),
            claim_worklife_ms: 2_000,
            preemption_requirements: None,
            preemption_rank: None,
            match_ms: 300_000,
            zone: TimeZone::UTC,
            sweep_ms: 30_000,
            grace_ms: 86_400_000,
            abort_impossible: false,
            reservation_depth: 8,
            aging_s: Some(6 * 3600),
            exclusion_ms: 0,
            suspicious_aborts: 0,
            checkpoint_quota: 0,
            first_cluster: 1,
            #[cfg(any(test, feature = "mutations"))]
            mutation: None,
        }
    }
}

/// What a decision leads to.
#[derive(Debug, Default)]
pub struct Out {
    /// Facts for the journal.
    pub events: Vec<Event>,
    /// To be carried out when the facts are on disk.
    pub effects: Vec<Effect>,
    /// For the manager's own log: what a person should look at.
    pub warnings: Vec<String>,
}

/// One input's turn: when it is, and what comes of it. Every decision is handed the same one, so that nobody asks for another time.
#[derive(Debug)]
pub struct Turn<'a> {
    /// When, by both clocks.
    pub now: Now,
    /// What claim keys are remembered as: the driver's hash function, so that the core needs no cryptography of its own.
    pub digest: Digest,
    /// Where facts, effects and warnings go.
    pub out: &'a mut Out,
}

/// Something to do, once the events that justify it are durable. Repeating one is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell an agent about a claim.
    Claim {
        /// To whom.
        session: Session,
        /// Public id.
        claim: ClaimId,
        /// The capability.
        key: ClaimKey,
        /// Slot name.
        slot: String,
        /// Whose jobs it will run.
        owner: String,
        /// What it holds.
        resources: Resources,
        /// Lease.
        lease_ms: u64,
        /// How its machine hears of the match.
        notice: Notice,
        /// The claim whose slot it takes over, where it was announced.
        instead_of: Option<ClaimId>,
    },
    /// Tell an agent of a better match for the slot of a claim.
    Better {
        /// To whom.
        session: Session,
        /// The claim whose job is to leave.
        claim: ClaimId,
        /// The capability of the claim to come.
        key: ClaimKey,
        /// A job that is preferred.
        job: JobId,
        /// Why, for the job that leaves.
        reason: String,
    },
    /// Every seat of a gang was accepted: this one's job may begin.
    Activate {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
    },
    /// A claim without jobs is still wanted.
    Keep {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
    },
    /// Give jobs to a claim, in this order.
    Assign {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
        /// Cluster.
        cluster: u32,
        /// Procs with their attempt numbers.
        jobs: Vec<(u32, u32)>,
        /// They wait until every seat of their gang is accepted.
        waits: bool,
    },
    /// Stop one job of a claim.
    Stop {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
        /// Job.
        job: JobId,
        /// Attempt.
        attempt: u32,
        /// It goes back to the queue: it may save its work first.
        vacate: bool,
    },
    /// Have a machine do something with a claim's running job. Nothing is recorded: the machine reports what came of it.
    Control {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
        /// What.
        what: Control,
    },
    /// Ask for jobs back that were not started yet.
    Recall {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
        /// How many at most.
        count: u32,
    },
    /// A claim is over: nothing of it may live on.
    Drop {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
    },
    /// A report is on disk and may be forgotten by its sender.
    Ack {
        /// To whom.
        session: Session,
        /// Claim.
        claim: ClaimId,
        /// Sequence number of the report.
        seq: u64,
    },
}

impl Effect {
    /// Whom it is for.
    pub fn session(&self) -> Session {
        match self {
            Self::Claim { session, .. }
            | Self::Assign { session, .. }
            | Self::Stop { session, .. }
            | Self::Control { session, .. }
            | Self::Recall { session, .. }
            | Self::Drop { session, .. }
            | Self::Better { session, .. }
            | Self::Activate { session, .. }
            | Self::Keep { session, .. }
            | Self::Ack { session, .. } => *session,
        }
    }
}

/// What a machine may be asked to do with a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Stop it where it is.
    Suspend,
    /// Let it go on.
    Continue,
    /// Ask it for a checkpoint.
    Checkpoint,
}

/// The core: the books, and what the passes remember from one input to the next.
#[derive(Debug, Clone, Default)]
pub struct Core {
    pub(crate) books: Books,
    pub(crate) gangs: gangs::Gangs,
    pub(crate) keys: keys::Keys,
    pub(crate) throttle: throttle::Throttle,
    /// What is not decided yet because it costs too much for one input.
    pub(crate) undone: undone::Undone,
    pub(crate) again: pass::Again,
    pub(crate) looks: preempt::Looks,
    /// How far the look at periodic expressions has come.
    pub(crate) round: lifecycle::Round,
    pub(crate) sweep: sweep::Sweep,
    pub(crate) hopeless: hopeless::Hopeless,
    pub(crate) aborts: aborts::Aborts,
}

/// The digest of a claim key, as the journal keeps it. The driver supplies the hash function so that the core needs
/// no cryptography of its own.
pub type Digest = fn(&ClaimKey) -> [u8; 32];

impl Core {
    /// An empty pool.
    pub fn new(settings: Settings) -> Self {
        Self::around(Books::new(settings))
    }

    /// A core that remembers nothing but its books.
    fn around(books: Books) -> Self {
        Self {
            throttle: throttle::Throttle::new(books.settings.burst),
            gangs: gangs::Gangs::new(&books.settings),
            books,
            ..Self::default()
        }
    }

    /// Applies a fact of the journal. Facts about things that are not there are passed over.
    pub fn apply(&mut self, kind: &Kind, time_ms: u64) {
        self.books.apply(kind, time_ms);
    }

    /// The durable state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.books.snapshot()
    }

    /// A core as it was when the snapshot was taken.
    pub fn restore(settings: Settings, bytes: &[u8]) -> Result<Self, BadSnapshot> {
        Books::restore(settings, bytes).map(Self::around)
    }

    /// The same durable state, with everything made anew that follows from it. Nobody is connected: machines say hello again.
    pub fn rebuilt(&self, settings: Settings) -> Result<Self, BadSnapshot> {
        Self::restore(settings, &self.snapshot())
    }

    /// Fresh claim keys from the driver's random source; the core makes no claim without one.
    pub fn give_keys(&mut self, keys: impl IntoIterator<Item = ClaimKey>) {
        self.keys.give(keys);
    }

    /// How many keys are left.
    pub fn keys_left(&self) -> usize {
        self.keys.left()
    }

    /// True when a decision had to be left undone for want of a key: give more, then call [`Core::resume`].
    pub fn is_starved(&self) -> bool {
        self.keys.are_wanted()
    }
}

/// Tests look into the books.
#[cfg(test)]
impl std::ops::Deref for Core {
    type Target = Books;

    fn deref(&self) -> &Books {
        &self.books
    }
}

#[cfg(test)]
impl std::ops::DerefMut for Core {
    fn deref_mut(&mut self) -> &mut Books {
        &mut self.books
    }
}
