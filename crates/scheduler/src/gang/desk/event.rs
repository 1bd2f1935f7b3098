//! What comes in and what goes out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::submit::SetSpec;
use crate::gang::words::{Condition, Usage};
use crate::gang::{Class, SetId, Time};

/// A new system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemSpec {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub lab: String,
    /// What it is called besides.
    pub tags: BTreeSet<String>,
    /// What is known about it in numbers.
    pub numbers: BTreeMap<String, i64>,
    /// What it is meant for.
    pub condition: Condition,
}

/// How far a recipe has come, as its machine reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Provisioning commands were issued.
    Waiting,
    /// The installer was seen.
    Installing,
    /// A task started.
    Running,
    /// All tasks are over. With a reservation asked for the recipe becomes reserved, else completed.
    Done,
    /// It failed; suspicious when every task did.
    Aborted {
        /// Every task was aborted.
        suspicious: bool,
    },
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A set is submitted.
    Submit(Box<SetSpec>),
    /// A lab is known from now on, or holds more trees.
    LabAdded {
        /// Which.
        lab: String,
        /// What it holds.
        trees: BTreeSet<String>,
    },
    /// A lab's controller is switched on or off.
    LabEnabled {
        /// Which.
        lab: String,
        /// On.
        enabled: bool,
    },
    /// A lab is gone: nothing can be started there until it is added again.
    LabRemoved {
        /// Which.
        lab: String,
    },
    /// A tree comes to a lab or leaves it.
    Tree {
        /// Where.
        lab: String,
        /// Which.
        tree: String,
        /// It is there from now on.
        present: bool,
    },
    /// A system is new (or comes back after it was removed).
    SystemAdded(SystemSpec),
    /// The condition of a system is set.
    Condition {
        /// Which.
        system: String,
        /// To what.
        condition: Condition,
    },
    /// A system moves.
    Moved {
        /// Which.
        system: String,
        /// Where to.
        lab: String,
    },
    /// Attributes or pools of a system are edited.
    Edited {
        /// Which.
        system: String,
        /// All tags.
        tags: BTreeSet<String>,
        /// All numbers.
        numbers: BTreeMap<String, i64>,
    },
    /// Who may use a system.
    Access {
        /// Which.
        system: String,
        /// `None`: everybody.
        users: Option<BTreeSet<String>>,
    },
    /// A loan is given or returned.
    Loan {
        /// Which.
        system: String,
        /// `None`: returned.
        to: Option<String>,
    },
    /// A user takes a system by hand.
    Reserve {
        /// Which.
        system: String,
        /// Who.
        user: String,
        /// For how long; the site's longest if not said.
        span: Option<Time>,
    },
    /// The user wants it installed.
    Provision {
        /// Which.
        system: String,
    },
    /// The installer was seen.
    InstallSeen {
        /// Which.
        system: String,
    },
    /// The installation is over.
    InstallDone {
        /// Which.
        system: String,
    },
    /// The user gives it back.
    Returned {
        /// Which.
        system: String,
    },
    /// Somebody cancels a set.
    Cancel {
        /// Which.
        set: String,
    },
    /// The class of a set is changed.
    Priority {
        /// Which.
        set: String,
        /// To what.
        class: Class,
    },
    /// A recipe, a guest or the whole set has come further.
    Progress {
        /// Which set.
        set: String,
        /// Which recipe or guest; all machine recipes if not said.
        recipe: Option<String>,
        /// Which attempt; the present one if not said.
        attempt: Option<u32>,
        /// How far.
        step: Step,
    },
    /// The owner of a reserved recipe has had enough.
    ReservationOver {
        /// Which set.
        set: String,
        /// Which recipe; all if not said.
        recipe: Option<String>,
    },
    /// A power command failed.
    PowerFailure {
        /// Which set.
        set: String,
        /// Which recipe.
        recipe: String,
        /// Which attempt; the present one if not said.
        attempt: Option<u32>,
    },
    /// A set asks for more time.
    Extend {
        /// Which.
        set: String,
        /// How much.
        by: Time,
        /// Number of the request, rising per set: the same one is not granted twice.
        request: Option<u64>,
    },
    /// A system is clean again.
    Released {
        /// Which.
        system: String,
    },
    /// Time passes.
    Clock,
    /// The consistency sweep.
    Sweep,
    /// For tests of the sweep: the usage column of a system is overwritten.
    Corrupt {
        /// Which.
        system: String,
        /// With what.
        usage: Usage,
    },
}

/// Something to be done or to be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Every recipe of the set has its system: provision them.
    Started {
        /// Which.
        set: String,
        /// Its number.
        id: SetId,
        /// The attempt.
        attempt: u32,
        /// In recipe order.
        systems: Vec<String>,
        /// Sets whose earmarks are crossed; not empty: backfilled.
        crossed: Vec<String>,
        /// Better-ranked sets that it went before.
        passed: Vec<String>,
    },
    /// Clean a system, then say `Released`.
    Release {
        /// Which.
        system: String,
    },
    /// A start took what was earmarked for another.
    TookOver {
        /// Who.
        set: String,
        /// From whom.
        loser: String,
        /// The first system.
        system: String,
    },
    /// A plan took what was earmarked for another.
    Overrode {
        /// Who.
        set: String,
        /// From whom.
        loser: String,
        /// The first system.
        system: String,
    },
    /// A set that had its systems waits again.
    Requeued {
        /// Which.
        set: String,
        /// Why.
        why: String,
    },
    /// The desk gave up a set.
    Aborted {
        /// Which.
        set: String,
        /// Why.
        why: String,
    },
    /// A guest cannot run any more.
    GuestAborted {
        /// Which.
        guest: String,
    },
    /// More time was granted.
    Granted,
    /// Something asked for is not done.
    Refused {
        /// Why.
        why: String,
    },
    /// The event changed nothing.
    Ignored {
        /// Why.
        why: &'static str,
    },
    /// The sweep put something right.
    Repaired {
        /// What.
        what: String,
    },
    /// The sweep started something that an event should have started.
    LostWakeUp {
        /// Which set.
        set: String,
    },
}

impl Effect {
    /// For people; `None` for what the states show anyway.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Started { set, crossed, .. } if !crossed.is_empty() => Some(format!("{set} backfilled")),
            Self::Started { .. } | Self::Release { .. } => None,
            other => Some(other.to_string()),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { set, systems, .. } => write!(f, "{set} starts on {}", systems.join(",")),
            Self::Release { system } => write!(f, "{system} is being released"),
            Self::TookOver { set, loser, system } => write!(f, "{set} takes {system} over {loser}"),
            Self::Overrode { set, loser, system } => write!(f, "{set} overrides {loser} on {system}"),
            Self::Requeued { set, why } => write!(f, "{set} requeued: {why}"),
            Self::Aborted { set, why } => write!(f, "{set} aborted: {why}"),
            Self::GuestAborted { guest } => write!(f, "guest {guest} aborted: host finished first"),
            Self::Granted => f.write_str("granted"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::Ignored { why } => f.write_str(why),
            Self::Repaired { what } => write!(f, "repair: {what}"),
            Self::LostWakeUp { set } => write!(f, "lost wake-up: {set}"),
        }
    }
}
