//! Machines and claims.
//!
//! A machine is soft: it exists while its agent's session does, and a little longer while claims on it may be alive.
//! A claim is durable: it is only over when an event says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use classad::ClassAd;
use model::ClaimId;
use model::event::Resources;

/// One connection of one agent. Numbers only go up, so an old connection is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Machines and claims.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) machines: BTreeMap<Arc<str>, Machine>,
    pub(crate) claims: HashMap<ClaimId, Claim>,
    pub(crate) next_claim: u64,
    /// Connected machines with a core to spare.
    pub(crate) roomy: BTreeSet<Arc<str>>,
}

impl Pool {
    /// Keeps `roomy` true for one machine.
    pub(crate) fn note_room(&mut self, name: &Arc<str>) {
        let has_room = |m: &Machine| m.session.is_some() && !m.closed && m.free.cpus > 0;
        if self.machines.get(name).is_some_and(has_room) {
            self.roomy.insert(name.clone());
        } else {
            self.roomy.remove(name);
        }
    }
}

impl Claim {
    /// How long the manager waits, from the last word it had of the machine, before it takes the claim's jobs to be
    /// dead. The agent counts the bare lease from an earlier moment (when it sent that word) and kills at once, so
    /// the margin only has to cover clocks that run 2% apart and the time a kill takes.
    pub(crate) fn patience_ms(&self) -> u64 {
        self.lease_ms + self.lease_ms / 50 + 1_000
    }
}

/// A machine whose agent is (or was) connected.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The live session, if any.
    pub(crate) session: Option<Session>,
    pub(crate) ad: Arc<ClassAd>,
    /// Changes with every new ad; match results are remembered per version.
    pub(crate) ad_version: u64,
    pub(crate) total: Resources,
    pub(crate) free: Resources,
    pub(crate) claims: BTreeSet<ClaimId>,
    /// Slot numbers in use, so that names stay small: slot1_1, slot1_2, ...
    pub(crate) slots: BTreeSet<u32>,
    pub(crate) heard_ms: u64,
    /// Takes no new claims (its owner or an operator says so).
    pub(crate) closed: bool,
}

/// A lease on part of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) machine: Arc<str>,
    pub(crate) slot: String,
    pub(crate) slot_number: u32,
    pub(crate) owner: Arc<str>,
    pub(crate) resources: Resources,
    pub(crate) key_digest: Vec<u8>,
    pub(crate) lease_ms: u64,
    /// Live jobs, in the order in which they were given.
    pub(crate) jobs: Vec<model::JobId>,
    pub(crate) made_ms: u64,
    /// A recall is under way: do not ask twice.
    pub(crate) recalled: bool,
    /// What its machine last said of it.
    pub(crate) slot_now: Option<SlotState>,
}

/// What a machine says of a claimed slot. Soft: known while the machine is connected.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotState {
    /// Claimed, Preempting, ...
    pub state: String,
    /// Busy, Suspended, ...
    pub activity: String,
    /// When it entered them, in Unix seconds.
    pub since: u64,
    /// Address space of its job in KiB.
    pub image_kib: u64,
    /// Memory of its job in KiB.
    pub rss_kib: u64,
    /// CPU time of its job in microseconds.
    pub cpu_us: u64,
    /// The machine's rank of its job.
    pub rank: f64,
}

/// `a` less `b`, never below zero.
pub(crate) fn minus(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.saturating_sub(b.cpus),
        memory_mib: a.memory_mib.saturating_sub(b.memory_mib),
        disk_kib: a.disk_kib.saturating_sub(b.disk_kib),
        gpus: a.gpus.saturating_sub(b.gpus),
    }
}

/// `a` and `b` together.
pub(crate) fn plus(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.saturating_add(b.cpus),
        memory_mib: a.memory_mib.saturating_add(b.memory_mib),
        disk_kib: a.disk_kib.saturating_add(b.disk_kib),
        gpus: a.gpus.saturating_add(b.gpus),
    }
}

/// True when `want` fits into `have`.
pub(crate) fn fits(want: Resources, have: Resources) -> bool {
    want.cpus <= have.cpus
        && want.memory_mib <= have.memory_mib
        && want.disk_kib <= have.disk_kib
        && want.gpus <= have.gpus
}
