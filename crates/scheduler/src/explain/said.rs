//! What people are told when they ask why a job waits, or what a machine does.

use std::sync::Arc;

use model::JobId;
use model::event::Resources;

use crate::admission::Shortage;
use crate::gangs::GangView;
use crate::labs::Shut;
use crate::queue::Summary;
use crate::room::Obstacle;

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct JobExplanation {
    /// Which.
    pub job: JobId,
    /// Whose.
    pub owner: Arc<str>,
    /// When it was submitted, in Unix milliseconds.
    pub submitted_ms: u64,
    /// Attempts so far.
    pub attempts: u32,
    /// The job on whose machine it runs. While both wait, what is told is why that one does.
    pub guest_of: Option<JobId>,
    /// It left a machine without the checkpoint that it declares, and is judged as a job that makes none.
    pub checkpoint_missed: bool,
    /// Where it stands.
    pub standing: Standing,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// It is on hold and stays so until it is released.
    Held {
        /// Why.
        reason: String,
        /// HoldReasonCode.
        code: u32,
        /// Since when.
        since_ms: u64,
    },
    /// A machine has it.
    Placed {
        /// Which.
        machine: Arc<str>,
        /// In which slot.
        slot: String,
        /// When its process was started; `None` while it waits for the claim's job before it.
        started_ms: Option<u64>,
        /// Its processes stand still.
        suspended: bool,
        /// The machine is in contact.
        connected: bool,
        /// It starts with the others of its gang.
        gang: bool,
    },
    /// It waits.
    Waiting(Box<Waiting>),
    /// It is over, or never was.
    Gone(Summary),
}

/// Why a job waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// On whose account.
    pub user: Arc<str>,
    /// What it asks for.
    pub request: Resources,
    /// What there is too little of beside machines, for the job or for its whole gang.
    pub shortage: Option<Shortage>,
    /// Milliseconds until the start throttle lets the next job start.
    pub throttled_ms: Option<u64>,
    /// Its time comes then (deferral, a crontab, a pause after it ended at once), in Unix milliseconds.
    pub not_before_ms: Option<u64>,
    /// Decisions wait for fresh claim keys; that passes within a moment.
    pub starved: bool,
    /// Users whose turn comes first and who have waiting jobs, the first first; the first few.
    pub ahead: Vec<Ahead>,
    /// How many such users there are.
    pub users_ahead: usize,
    /// Jobs of the same user that come first.
    pub own_ahead: u64,
    /// Machines by what is against them.
    pub machines: Vec<(Obstacle, u64)>,
    /// Machines that would take it this moment.
    pub open: u64,
    /// Machines that could run it now or when they are free: connected, large enough, Requirements agree, and there for
    /// it.
    pub capable: u64,
    /// Machines that could run it, were they not kept from it by their condition, a loan, a hold, their lab, or because they
    /// could not be made ready for it.
    pub barred: u64,
    /// What no machine has as much of as the job asks for.
    pub lacking: Vec<Lacking>,
    /// What refuses, the one that refuses most machines first.
    pub clauses: Vec<Refusing>,
    /// Machines whose clauses were looked at; less than all when there are very many.
    pub looked_at: u64,
    /// Somebody was asked to leave for it.
    pub preempting: bool,
    /// Machines that have room for it and are kept for gangs, by gang.
    pub promised: Vec<Kept>,
    /// Its gang, if it is of one.
    pub gang: Option<GangWaits>,
}

/// Machines that are kept for a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which gang.
    pub gang: u32,
    /// Whose.
    pub owner: Arc<str>,
    /// How many machines.
    pub machines: u64,
    /// It starts at this Unix second at the latest; whoever is gone by then may use them.
    pub until_s: u64,
}

/// Why a gang waits.
#[derive(Debug, Clone, PartialEq)]
pub struct GangWaits {
    /// Jobs that start together.
    pub size: u64,
    /// As the planner has it; `None` while a job of it is on hold, deferred or still running.
    pub view: Option<GangView>,
    /// Waiting gangs that come first: the first few.
    pub ahead: Vec<u32>,
    /// How many there are.
    pub gangs_ahead: usize,
}

/// Somebody whose turn comes first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    /// Who.
    pub user: Arc<str>,
    /// Effective priority.
    pub effective: f64,
    /// Cores held now.
    pub held: f64,
    /// Waiting jobs.
    pub jobs: u64,
}

/// A resource of which there is not enough anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// `cores`, `MiB of memory`, ...
    pub what: &'static str,
    /// How much the job asks for.
    pub wants: u64,
    /// How much the best machine has.
    pub most: u64,
}

/// A clause that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusing {
    /// True for a clause of the job's Requirements, false for one of machines'.
    pub of_job: bool,
    /// The clause as written.
    pub clause: String,
    /// How many it refuses: machines, or jobs when a machine is explained.
    pub count: u64,
    /// Of which nothing else refuses.
    pub alone: u64,
    /// What might help.
    pub notes: Vec<String>,
}

/// A claim on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its job, or the one that it is kept after.
    pub job: Option<JobId>,
    /// Whose.
    pub owner: Arc<str>,
    /// In which slot.
    pub slot: String,
    /// Its job is over, and it is kept.
    pub reserved: Option<crate::Reserved>,
}

/// Why a machine does what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineExplanation {
    /// Which.
    pub machine: Arc<str>,
    /// In contact.
    pub connected: bool,
    /// It is its owner's: its policy takes nobody's job.
    pub owners: bool,
    /// Why it takes nothing new, if so.
    pub shut: Option<Shut>,
    /// Only this user's jobs start there.
    pub only: Option<Arc<str>>,
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
    /// The next one, if any may start.
    pub next: Option<JobId>,
    /// Waiting jobs by what is against them here.
    pub obstacles: Vec<(Obstacle, u64)>,
    /// Waiting jobs that it could take, but that a limit or a quota keeps back.
    pub kept_back: u64,
    /// What refuses, the one that refuses most jobs first.
    pub clauses: Vec<Refusing>,
    /// Milliseconds until the start throttle lets the next job start.
    pub throttled_ms: Option<u64>,
    /// The gang that it is kept for.
    pub kept: Option<Kept>,
}
