//! `GET /v1/explain/job/{id}` and `GET /v1/explain/machine/{name}`.

use model::event::Resources;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a job is where it is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ExplainedJob")]
pub struct Job {
    /// CLUSTER.PROC
    pub job: String,
    /// Whose.
    pub owner: String,
    /// Unix milliseconds.
    pub submitted_ms: u64,
    /// Attempts so far.
    pub attempts: u32,
    /// CLUSTER.PROC of the job on whose machine it runs. While both wait, what is told is why that one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_of: Option<String>,
    /// It was asked to leave a machine and left without the checkpoint that it declares: machines judge it as a job that makes none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpoint_missed: bool,
    /// What is wrong with its owner's job logs, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
    /// Where it stands.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Where a job stands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Standing {
    /// On hold until it is released.
    Held {
        /// Why.
        reason: String,
        /// HoldReasonCode.
        code: u32,
        /// Unix milliseconds.
        since_ms: u64,
    },
    /// A machine has it.
    Placed {
        /// Which.
        machine: String,
        /// In which slot.
        slot: String,
        /// When its process was started; absent while it waits for the job before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_ms: Option<u64>,
        /// Its processes stand still.
        suspended: bool,
        /// The machine is in contact.
        connected: bool,
        /// It starts with the others of its gang.
        #[serde(default)]
        gang: bool,
    },
    /// It waits.
    Waiting(Box<Waiting>),
    /// It is over.
    Gone {
        /// Jobs of its cluster that exited with code 0.
        succeeded: u64,
        /// That exited otherwise.
        failed: u64,
        /// That were removed.
        removed: u64,
    },
}

/// Why a job waits.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// On whose account.
    pub user: String,
    /// What it asks for.
    pub request: Resources,
    /// A named limit that is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// A group whose quota is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// What it takes, or its whole gang does, of that limit or quota, and how much there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<String>,
    /// It takes more than there is: it can never start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// An older gang that the limit or quota is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<u32>,
    /// Until the start throttle lets the next job start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<u64>,
    /// Its time comes then: it is deferred, has a crontab, or pauses because it ended at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// Somebody was asked to leave for it.
    pub preempting: bool,
    /// How many users come first.
    pub users_ahead: usize,
    /// The first of them.
    pub ahead: Vec<Ahead>,
    /// Jobs of the same user that come first.
    pub own_ahead: u64,
    /// Machines that would take it this moment.
    pub open: u64,
    /// Machines that could run it now or when they are free.
    pub capable: u64,
    /// Machines that could, were they not kept from it by their condition, a loan, a hold, their lab or a drain.
    #[serde(default)]
    pub barred: u64,
    /// Machines by what is against them: no_contact, too_small, requirements, owners, manual, broken, removed, lab_disabled, held,
    /// drained, lent, unready, busy, promised, maintenance.
    pub machines: Vec<Count>,
    /// What no machine has enough of.
    pub lacking: Vec<Lacking>,
    /// Machines whose clauses were looked at.
    pub looked_at: u64,
    /// What refuses, the worst first.
    pub clauses: Vec<Clause>,
    /// Machines that have room for it and are kept for gangs, by gang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<Kept>,
    /// Its gang, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
}

/// Machines that are kept for a gang.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KeptMachines")]
pub struct Kept {
    /// Its cluster.
    pub gang: u32,
    /// Whose.
    pub owner: String,
    /// How many machines.
    pub machines: u64,
    /// It starts at this Unix second at the latest; whoever is gone by then may use them.
    pub until_s: u64,
}

/// Why a gang waits.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WaitingGang")]
pub struct Gang {
    /// Jobs that start together.
    pub size: u64,
    /// planned, unsatisfiable, withheld, behind, outside_depth; incomplete while one of its jobs is held, deferred or running.
    pub why: String,
    /// The plan: one machine per job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// With a plan: it starts at this Unix second at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_s: Option<u64>,
    /// Without any hope: since when, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The gang that what it needs is promised to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_gang: Option<u32>,
    /// Waiting gangs that come first: the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<u32>,
    /// How many there are.
    pub gangs_ahead: usize,
}

/// Somebody whose turn comes first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Ahead {
    /// Who.
    pub user: String,
    /// Effective priority; lower is better.
    pub effective: f64,
    /// Cores held now.
    pub held: f64,
    /// Waiting jobs.
    pub jobs: u64,
}

/// How many have something against them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ObstacleCount")]
pub struct Count {
    /// What: no_contact, too_small, requirements, manual, broken, removed, lab_disabled, held, drained, lent, unready, busy,
    /// promised, maintenance.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// A resource of which no machine has enough.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Lacking {
    /// `cores`, `MiB of memory`, ...
    pub what: String,
    /// How much the job asks for.
    pub wants: u64,
    /// How much the best machine has.
    pub most: u64,
}

/// A clause that refuses.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Clause {
    /// `job` or `machine`: whose Requirements it is part of.
    pub of: String,
    /// As written.
    pub clause: String,
    /// How many it refuses: machines, or jobs when a machine is explained.
    pub count: u64,
    /// Of which nothing else refuses.
    pub alone: u64,
    /// What might help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a machine does what it does.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ExplainedMachine")]
pub struct Machine {
    /// Which.
    pub machine: String,
    /// In contact.
    pub connected: bool,
    /// It is its owner's (state Owner): its policy takes nobody's job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owners: bool,
    /// Why it takes nothing new: manual, broken, removed, lab_disabled, held; empty when it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shut: String,
    /// Only this user's jobs start there; empty: everybody's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub only: String,
    /// What the pool may use of it.
    pub total: Resources,
    /// What is free.
    pub free: Resources,
    /// What it has.
    pub jobs: Vec<Occupant>,
    /// Waiting jobs in the queue.
    pub waiting: u64,
    /// Of which it could start this moment.
    pub startable: u64,
    /// The next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Waiting jobs by what is against them here.
    pub obstacles: Vec<Count>,
    /// Waiting jobs that only a limit or a quota keeps back.
    pub kept_back: u64,
    /// What refuses, the worst first.
    pub clauses: Vec<Clause>,
    /// Until the start throttle lets the next job start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<u64>,
    /// The gang that it is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// A claim on a machine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Occupant {
    /// Slot.
    pub slot: String,
    /// For whom.
    pub owner: String,
    /// Its current job, or the one that it is kept after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its job is over, and it is kept for its `owner` or its `gang`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<String>,
}
