//! Rows, and what slots and machines are doing until the row of it is over. When rows end is `usage`'s business.

use std::sync::Arc;

use model::JobId;
use model::event::Condition;

use crate::rows::What;

/// A stretch of time of one slot, or of what no slot has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tests) struct Row {
    /// Machine.
    pub(in crate::tests) machine: Arc<str>,
    /// Slot; empty for what no slot has.
    pub(in crate::tests) slot: Arc<str>,
    /// Lab of the machine; empty for none.
    pub(in crate::tests) lab: Arc<str>,
    /// From, in Unix milliseconds.
    pub(in crate::tests) from_ms: u64,
    /// To.
    pub(in crate::tests) to_ms: u64,
    /// What it did.
    pub(in crate::tests) what: What,
    /// What the machine was meant for.
    pub(in crate::tests) condition: Condition,
    /// The gang that the machine was promised to.
    pub(in crate::tests) earmark: Option<u32>,
    /// For whom; who had the machine by hand, if nobody has a claim; empty when idle.
    pub(in crate::tests) user: Arc<str>,
    /// Which job.
    pub(in crate::tests) job: Option<JobId>,
    /// Cores that the claim has, or that nobody has.
    pub(in crate::tests) cores: u32,
    /// The attempt came to nothing: its job must do this stretch again.
    pub(in crate::tests) wasted: bool,
    /// Under a promise to others.
    pub(in crate::tests) backfill: bool,
    /// The process was over, and the owner kept the machine.
    pub(in crate::tests) reserved: bool,
}

impl Row {
    /// Its length.
    pub(super) fn ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }

    /// Its length times its cores.
    pub(super) fn core_ms(&self) -> u64 {
        self.ms() * u64::from(self.cores)
    }
}

/// What a slot does now.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    pub(super) what: What,
    pub(super) user: Arc<str>,
    pub(super) cores: u32,
    pub(super) lease_ms: u64,
    pub(super) backfill: bool,
    pub(super) reserved: bool,
    pub(super) job: Option<JobId>,
    pub(super) began_ms: Option<u64>,
    /// First row of the attempt that would be lost with it.
    pub(super) unsaved: usize,
}

impl Doing {
    pub(super) fn nothing() -> Self {
        Self {
            what: What::Idle,
            user: Arc::from(""),
            cores: 0,
            lease_ms: 0,
            backfill: false,
            reserved: false,
            job: None,
            began_ms: None,
            unsaved: usize::MAX,
        }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) machine: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) since_ms: u64,
    pub(super) now: Doing,
}

/// What is true of a machine as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) lab: Arc<str>,
    pub(super) condition: Condition,
    pub(super) earmark: Option<u32>,
    pub(super) held_by: Arc<str>,
    /// 0: until it is given back.
    pub(super) held_until_ms: u64,
}

/// A machine.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) standing: Standing,
    /// Cores that slots have.
    pub(super) claimed: u32,
    /// The most that they ever had.
    pub(super) most: u32,
    /// Cores of the machine, once somebody told.
    pub(super) cores: Option<u32>,
    /// Since when what no slot has is as it is.
    pub(super) since_ms: u64,
    pub(super) slots: Vec<usize>,
    /// When it last changed so that a job might start there; `None` while nobody knows.
    pub(super) opened_ms: Option<u64>,
    pub(super) broken_ms: Option<u64>,
}

impl Doing {
    /// An attempt at a job is so far; `next` is the row that begins.
    pub(super) fn attempt(&mut self, what: What, job: JobId, next: usize) {
        if self.job != Some(job) {
            (self.job, self.unsaved, self.began_ms) = (Some(job), next, None);
        }
        self.what = what;
    }

    /// The same job in another state.
    pub(super) fn again(&mut self, what: What) {
        if self.job.is_some() {
            self.what = what;
        }
    }
}

impl Slot {
    pub(super) fn row(&self, place: &Place, to_ms: u64) -> Row {
        let now = &self.now;
        Row {
            machine: self.machine.clone(),
            slot: self.name.clone(),
            lab: place.standing.lab.clone(),
            from_ms: self.since_ms,
            to_ms,
            what: now.what,
            condition: place.standing.condition,
            earmark: place.standing.earmark,
            user: now.user.clone(),
            job: now.job,
            cores: now.cores,
            wasted: false,
            backfill: now.backfill,
            reserved: now.reserved,
        }
    }
}

impl Place {
    pub(super) fn new(since_ms: u64) -> Self {
        let standing = Standing {
            lab: Arc::from(""),
            condition: Condition::Automated,
            earmark: None,
            held_by: Arc::from(""),
            held_until_ms: 0,
        };
        Self {
            standing,
            claimed: 0,
            most: 0,
            cores: None,
            since_ms,
            slots: Vec::new(),
            opened_ms: None,
            broken_ms: None,
        }
    }

    /// What no slot had until now. Its cores are what slots had: how much was left is known only in the end.
    pub(super) fn close(&mut self, machine: &Arc<str>, at: u64, rows: &mut Vec<Row>) {
        rows.extend(self.rest(machine, at));
        self.since_ms = self.since_ms.max(at);
    }

    pub(super) fn rest(&self, machine: &Arc<str>, at: u64) -> impl Iterator<Item = Row> {
        // Who has it until a known time has it no longer afterwards, also if nobody says so.
        let Standing { lab, condition, earmark, held_by, held_until_ms } = self.standing.clone();
        let until_ms = if held_until_ms == 0 { at } else { held_until_ms };
        let over = until_ms.min(at).max(self.since_ms);
        let row = |from_ms: u64, to_ms: u64, user: Arc<str>| Row {
            machine: machine.clone(),
            slot: Arc::from(""),
            lab: lab.clone(),
            from_ms,
            to_ms,
            what: What::Idle,
            condition,
            earmark,
            user,
            job: None,
            cores: self.claimed,
            wasted: false,
            backfill: false,
            reserved: false,
        };
        let rows = [row(self.since_ms, over, held_by), row(over, at, Arc::from(""))];
        rows.into_iter().filter(|r| r.from_ms < r.to_ms)
    }
}
