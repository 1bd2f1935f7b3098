//! What a place is, and a claim on part of one.

use std::collections::BTreeSet;
use std::sync::Arc;

use classad::ClassAd;
use model::event::Resources;
use model::{ClaimId, Now};

use super::pool::Session;
use crate::accounts::UserId;
use crate::labs::Shut;
use crate::seats::{Announced, Seat};
use crate::shape::ShapeId;

/// A place on a machine whose agent is (or was) connected.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) number: u32,
    /// The live session, if any.
    pub(crate) session: Option<Session>,
    pub(crate) ad: Arc<ClassAd>,
    /// When it will be taken down (NextDownTime).
    pub(crate) down_s: Option<u64>,
    pub(crate) total: Resources,
    pub(crate) free: Resources,
    pub(crate) claims: BTreeSet<ClaimId>,
    /// Slot numbers in use, so that names stay small: slot1_1, slot1_2, ...
    pub(crate) slots: BTreeSet<u32>,
    pub(crate) heard_ms: u64,
    /// The same by the wall clock, for people.
    pub(crate) heard_wall_ms: u64,
    /// Why it takes nothing new, if so.
    pub(crate) shut: Option<Shut>,
    /// Only this user's jobs start there.
    pub(crate) only: Option<Arc<str>>,
    /// Only jobs of these users and groups start there; everybody's when it is empty.
    pub(crate) allow: Arc<[String]>,
    /// The lab it says it is in.
    pub(crate) lab: Arc<str>,
    /// It is put in order after each claim, and says when it is.
    pub(crate) releases: bool,
    /// A static slot: a claim gets all of it, whatever its jobs ask for.
    pub(crate) whole: bool,
    /// It became free, or came, while its lab was off: nobody has decided about it.
    pub(crate) undecided: bool,
}

/// A claim that is kept though its job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// Which job it was.
    pub job: model::JobId,
    /// Its owner has it until this Unix millisecond at the latest; `None` when it is kept for the job's gang.
    pub until_ms: Option<u64>,
}

/// Named resources, and how much of each.
pub(crate) type Limited = Box<[(Box<str>, f64)]>;

/// A lease on part of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The place; `host_of` it is the machine.
    pub(crate) machine: Arc<str>,
    pub(crate) slot: String,
    pub(crate) slot_number: u32,
    pub(crate) owner: Arc<str>,
    /// Whose account it is on.
    pub(crate) user: UserId,
    /// Named resources that it takes.
    pub(crate) limits: Limited,
    pub(crate) resources: Resources,
    pub(crate) key_digest: Vec<u8>,
    pub(crate) lease_ms: u64,
    /// Live jobs, in the order in which they were given.
    pub(crate) jobs: Vec<model::JobId>,
    pub(crate) made_ms: u64,
    /// A recall is under way: do not ask twice.
    pub(crate) recalled: bool,
    /// It is over, but its machine is still being put in order or has its last reports to make: it takes no more jobs.
    pub(crate) ending: bool,
    /// Its job is over, and it is kept all the same.
    pub(crate) reserved: Option<Reserved>,
    /// Its job is a guest that its machine has not heard of: it does when its host runs. Soft: found out anew when the
    /// machine connects.
    pub(crate) withheld: bool,
    /// A better job waits for it to end.
    pub(crate) rival: Option<ShapeId>,
    /// The better match that its machine was told of.
    pub(crate) better: Option<Announced>,
    /// When its machine last did not prefer another job.
    pub(crate) refused_ms: Option<u64>,
    /// How far it is as a seat of a gang; none when its jobs may begin. Soft, like all of these.
    pub(crate) seat: Option<Seat>,
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
    /// For how long it has been in them when it said so.
    pub age_ms: u64,
    /// Since when, by the manager's wall clock.
    pub since_ms: u64,
    /// Address space of its job in KiB.
    pub image_kib: u64,
    /// Memory of its job in KiB.
    pub rss_kib: u64,
    /// CPU time of its job in microseconds.
    pub cpu_us: u64,
    /// The machine's rank of its job.
    pub rank: f64,
    /// A checkpoint of its job is on its way to the store: bytes left, and bytes per second so far.
    pub transfer: Option<(u64, u64)>,
}

/// What stands against jobs in a place, and for whom it is.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) lab: Arc<str>,
    pub(crate) releases: bool,
    pub(crate) shut: Option<Shut>,
    pub(crate) only: Option<Arc<str>>,
    pub(crate) allow: Arc<[String]>,
}

/// The name of the place that a slot of a machine is, or is cut from.
pub(crate) fn place_of(host: &str, slot: &str) -> Arc<str> {
    let number = slot.strip_prefix("slot").map(|rest| rest.split('_').next().unwrap_or(rest));
    match number {
        // What is not named like a slot has been given out by an older manager, which knew one place only.
        None | Some("1" | "") => Arc::from(host),
        Some(number) => Arc::from(format!("slot{number}@{host}")),
    }
}

/// The machine that a place is part of.
pub(crate) fn host_of(place: &str) -> &str {
    place.rsplit_once('@').map_or(place, |(_, host)| host)
}

/// The slot that a place is.
pub(crate) fn slot_of(place: &str) -> &str {
    place.rsplit_once('@').map_or("slot1", |(slot, _)| slot)
}

/// True when an ad is of a static slot.
pub(crate) fn is_static(ad: &ClassAd) -> bool {
    ad.fact("SlotType").as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("Static"))
}

/// When a machine says that it will be taken down, in Unix seconds.
pub(crate) fn down_time(ad: &ClassAd) -> Option<u64> {
    // It is by the machine's own clock, which it says how far off it is.
    let offset_s = ad.fact("ClockOffset").as_int().unwrap_or(0);
    ad.fact("NextDownTime").as_int().and_then(|at| u64::try_from(at.saturating_sub(offset_s)).ok())
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

impl Machine {
    /// A place of which nothing is known yet.
    pub(crate) fn unknown(number: u32, now: Now) -> Self {
        Self {
            number,
            session: None,
            ad: Arc::default(),
            down_s: None,
            total: Resources::default(),
            free: Resources::default(),
            claims: BTreeSet::new(),
            slots: BTreeSet::new(),
            heard_ms: now.mono_ms,
            heard_wall_ms: 0,
            shut: None,
            only: None,
            allow: Arc::default(),
            lab: Arc::from(""),
            releases: false,
            whole: false,
            undecided: false,
        }
    }

    /// In contact, and taking new claims.
    pub(crate) fn is_open(&self) -> bool {
        self.session.is_some() && self.shut.is_none()
    }

    /// A job that names it may have it all the same: people have only taken it from the pool.
    pub(crate) fn is_forcible(&self) -> bool {
        let by_hand = |shut| matches!(shut, Shut::Manual | Shut::Broken);
        self.session.is_some() && self.shut.is_none_or(by_hand)
    }

    /// Why no job could have what is not in use now; `None` when one could.
    pub(crate) fn why_unusable(&self) -> Option<&'static str> {
        if self.session.is_none() {
            return Some("out_of_contact");
        }
        let owner =
            || self.ad.fact("State").as_str().is_some_and(|state| state.eq_ignore_ascii_case("Owner"));
        self.shut.map(crate::labs::Shut::word).or_else(|| owner().then_some("owner"))
    }

    /// Not everybody's jobs start there.
    pub(crate) fn is_restricted(&self) -> bool {
        self.only.is_some() || !self.allow.is_empty()
    }

    /// A static slot is free or it is not: its size may have changed since its claim was made.
    pub(crate) fn settle(&mut self) {
        if self.whole {
            self.free = if self.claims.is_empty() { self.total } else { Resources::default() };
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

    /// The job that it is there for, or was.
    pub(crate) fn job(&self) -> Option<model::JobId> {
        self.jobs.first().copied().or(self.reserved.map(|k| k.job))
    }
}
