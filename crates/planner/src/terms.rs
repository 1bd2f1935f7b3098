//! What the planner is told of systems and sets, and what it says of them.

use std::sync::Arc;

use crate::bits::Bits;
use crate::rank::Standing;
use crate::{Class, SetId, Time};

/// Seats that one set may have; more are refused at the door by whoever builds a [`Want`].
pub const SEATS_MAX: usize = 4096;

/// What the pool's owner may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How many gangs per lab may have a plan made: K.
    pub depth: u32,
    /// A waiting set rises one class per quantum; `None`: never.
    pub quantum: Option<Time>,
    /// Whether a better-ranked set may take what is earmarked for a worse one. Always true outside the model checker,
    /// which shows that it finds the fault when it is not.
    pub overrides: bool,
    /// Whether a standing plan takes what is free and promised to nobody instead of what is in use: never later than it was,
    /// and the sooner whole the less is known of ends.
    pub gathers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { depth: 8, quantum: None, overrides: true, gathers: false }
    }
}

/// A system, as far as planning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// Where it is; labs are numbered in the order of their names.
    pub lab: u32,
    /// Seats that it could take now.
    pub free: u32,
    /// Seats that it can take when nothing else is on it.
    pub size: u32,
    /// When it is empty at the latest; [`crate::FOREVER`] when nobody knows. Without meaning while it is empty.
    pub hard_end: Time,
}

/// How many seats of one set a system can take, where that depends on how large they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Now.
    pub now: u32,
    /// When nothing else is on it.
    pub empty: u32,
}

/// One seat of a waiting set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seat {
    /// Systems that may take it, busy ones too.
    pub viable: Arc<Bits>,
    /// Groups of systems that are liked better than the rest, best first.
    pub prefer: Vec<Arc<Bits>>,
}

/// A waiting set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Its name, and the last word in rank.
    pub id: SetId,
    /// As asked for, before aging.
    pub class: Class,
    /// Where it stands in that class; a set that aged into another goes by age alone.
    pub standing: Standing,
    /// Waiting lifts it.
    pub ages: bool,
    /// May carry a bounded fair-share penalty, fixed at submit.
    pub submitted: Time,
    /// Declared run limit, or the site's maximum.
    pub run: Time,
    /// False when the run limit was not declared: nobody relies on the site's maximum to keep a promise.
    pub may_backfill: bool,
    /// In recipe order.
    pub seats: Vec<Seat>,
    /// Per system, if the systems' own counts do not fit the size of these seats.
    pub fits: Option<Arc<[Fit]>>,
}

/// A place for every seat, and none of them held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where.
    pub lab: u32,
    /// One system per seat.
    pub systems: Vec<usize>,
}

/// Why a set waits without a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No lab has a place for every seat, not even counting busy systems.
    Unsatisfiable,
    /// What it needs is free, but promised to this better-ranked set.
    Withheld(SetId),
    /// What it needs is busy; the set has the first promise on part of it, if there is one.
    Behind(Option<SetId>),
    /// A plan could be made, but enough better-ranked gangs have one.
    OutsideDepth,
}

/// What a pass decided about one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Every seat has its system: start.
    Start(Start),
    /// It keeps or gets a plan.
    Assign {
        /// Who.
        set: SetId,
        /// The plan.
        plan: Plan,
        /// When it starts at the latest.
        promise: Time,
        /// The plan is older than this pass.
        kept: bool,
        /// Worse-ranked sets that lose an earmark, each with the first system it loses.
        overrode: Vec<(SetId, usize)>,
    },
    /// It waits.
    Queue {
        /// Who.
        set: SetId,
        /// Why.
        reason: Reason,
    },
}

/// A set that starts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Who.
    pub set: SetId,
    /// Where.
    pub lab: u32,
    /// One system per seat.
    pub systems: Vec<usize>,
    /// Better-ranked sets whose earmarks it crosses; not empty means backfilled.
    pub crossed: Vec<(SetId, Time)>,
    /// Better-ranked waiting sets that could have used one of the systems, though not now.
    pub passed: Vec<SetId>,
    /// Worse-ranked sets that lose an earmark, each with the first system it loses.
    pub overrode: Vec<(SetId, usize)>,
}
