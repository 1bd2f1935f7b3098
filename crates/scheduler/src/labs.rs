//! What people decided about machines and labs: conditions, loans, holds, labs that are off, distro trees.
//!
//! All of it is durable, and known before and after the machine is connected. What of it stands between a job and a
//! machine is kept with the machine ([`Shut`], and to whom it is lent), so that the pass, the planner's view and `explain`
//! ask the same thing. A change ends in the same pass as every other event.

use std::sync::Arc;

use classad::Value;
use model::codes::vacate;
use model::event::{Afterwards, Condition, Kind, MachineStanding};
use model::{JobId, Now, ProcSet, limits};

use crate::accounts::Accounts;
use crate::books::Books;
use crate::books::labs::Labs;
use crate::ended::by_cluster;
use crate::pool::{Machine, Pool};
use crate::queue::{Queue, Stage};
use crate::shape::{ShapeId, Shapes};
use crate::{Actor, Turn, orders};

/// How long an ordinary user may have a machine for themselves, in milliseconds: a week; a day when they do not say.
const HOLD_MS: (u64, u64) = (7 * 86_400_000, 86_400_000);

/// Why a machine takes nothing new from anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shut {
    /// Its condition is Manual.
    Manual,
    /// Its condition is Broken.
    Broken,
    /// Its condition is Removed.
    Removed,
    /// Its lab is disabled.
    Lab,
    /// A user has it for themselves.
    Held,
    /// A drain says so for a while.
    Drained,
}

impl Shut {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Broken => "broken",
            Self::Removed => "removed",
            Self::Lab => "lab_disabled",
            Self::Held => "held",
            Self::Drained => "drained",
        }
    }
}

/// What somebody wants to change about a machine; what is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct StandingChange {
    /// May the pool use it?
    pub condition: Option<Condition>,
    /// Lend it to a user, or (empty) to nobody.
    pub loaned_to: Option<String>,
    /// Whose jobs start there: users and groups; none for everybody's.
    pub allow: Option<Vec<String>>,
    /// Who has it for themselves from now on; empty for nobody.
    pub held_by: Option<String>,
    /// For so long; 0 for the longest that is allowed.
    pub held_ms: u64,
    /// How far it is with what its holder has installed there.
    pub stage: Option<HoldStage>,
    /// Why.
    pub reason: String,
}

/// How far a machine is that a person has for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldStage {
    /// Its installation was asked for.
    Waiting,
    /// Its installer was seen.
    Installing,
    /// It is ready.
    Running,
}

impl HoldStage {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Installing => "installing",
            Self::Running => "running",
        }
    }

    /// From its word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Installing, Self::Running].into_iter().find(|s| s.word() == word)
    }
}

/// What somebody wants to change about a lab.
#[derive(Debug, Clone, Default)]
pub struct LabChange {
    /// Which.
    pub lab: String,
    /// Nothing new starts there; `None`: as it is.
    pub disabled: Option<bool>,
    /// Distro trees that can be installed there from now on.
    pub add_trees: Vec<String>,
    /// Those that cannot any more.
    pub remove_trees: Vec<String>,
    /// It is no more, until something else is said about it.
    pub remove: bool,
    /// Who decides.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// Why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StandingRefusal {
    /// Not an administrator.
    #[error("{0} is for administrators")]
    Admin(&'static str),
    /// No such machine.
    #[error("there is no machine {0} in the pool")]
    Unknown(String),
    /// Somebody has it.
    #[error("{machine} is held by {by}; only they or an administrator can give it back")]
    Held {
        /// Which.
        machine: String,
        /// Who.
        by: String,
    },
    /// Nobody has it.
    #[error("nobody holds {0}")]
    NotHeld(String),
    /// It is there for jobs.
    #[error(
        "{0} is there for jobs: only a machine in condition manual, or one on loan to you, is taken by hand"
    )]
    NotByHand(String),
    /// Jobs are on it.
    #[error("{0} has jobs on it; wait until they have ended")]
    InUse(String),
    /// Too many.
    #[error(
        "the pool remembers decisions about {} machines at most; set some back to automated",
        limits::STANDINGS
    )]
    TooMany,
    /// Too many trees.
    #[error("a lab has {} trees at most", limits::LAB_TREES)]
    TooManyTrees,
}

/// What a machine's standing would be, or why not.
pub(crate) fn changed(
    pool: &Pool,
    labs: &Labs,
    now: Now,
    actor: &Actor,
    before: &MachineStanding,
    change: StandingChange,
) -> Result<MachineStanding, StandingRefusal> {
    let machine = before.machine.as_str();
    let admin = actor.any_owner;
    let known = pool.machines().get(machine);
    if !admin && known.is_none() && !labs.standings().contains_key(machine) {
        return Err(StandingRefusal::Unknown(machine.to_owned()));
    }
    // Why a machine is broken is still true when somebody takes it to mend it.
    let silent = change.reason.is_empty() && change.condition.is_none();
    let reason = if silent { before.reason.clone() } else { change.reason };
    let by = actor.user.clone();
    let mut after = MachineStanding { by, reason, ..before.clone() };
    if let Some(condition) = change.condition {
        if !admin {
            return Err(StandingRefusal::Admin("the condition of a machine"));
        }
        after.condition = condition as i32;
    }
    if let Some(user) = change.loaned_to {
        if !admin {
            return Err(StandingRefusal::Admin("lending a machine"));
        }
        after.loaned_to = user;
    }
    if let Some(allow) = change.allow {
        if !admin {
            return Err(StandingRefusal::Admin("saying whose jobs a machine takes"));
        }
        after.allow = allow;
    }
    if let Some(stage) = change.stage {
        if before.held_by.is_empty() {
            return Err(StandingRefusal::NotHeld(machine.to_owned()));
        }
        if !admin && before.held_by != actor.user {
            return Err(held(before));
        }
        after.held_stage = if stage == HoldStage::Running { String::new() } else { stage.word().to_owned() };
    }
    let Some(user) = change.held_by else { return Ok(after) };
    after.held_stage = String::new();
    if user.is_empty() {
        if before.held_by.is_empty() {
            return Err(StandingRefusal::NotHeld(machine.to_owned()));
        }
        if !admin && before.held_by != actor.user {
            return Err(held(before));
        }
        (after.held_by, after.held_until_ms) = (String::new(), 0);
        return Ok(after);
    }
    if !before.held_by.is_empty() && before.held_by != user {
        return Err(held(before));
    }
    if !admin {
        if user != actor.user {
            return Err(StandingRefusal::Admin("holding a machine for somebody else"));
        }
        let lent = after.loaned_to == user;
        let by_hand = match after.condition() {
            Condition::Manual => lent || after.loaned_to.is_empty(),
            Condition::Automated => lent,
            Condition::Broken | Condition::Removed => false,
        };
        if !by_hand {
            return Err(StandingRefusal::NotByHand(machine.to_owned()));
        }
        let in_use = |place: &Arc<str>| pool.machines().get(place).is_some_and(|m| !m.claims.is_empty());
        if pool.places(machine).iter().any(in_use) {
            return Err(StandingRefusal::InUse(machine.to_owned()));
        }
    }
    // A user's hold always ends; an administrator's ends when they say so.
    let span = match (admin, change.held_ms) {
        (true, ms) => ms,
        (false, 0) => HOLD_MS.1,
        (false, ms) => ms.min(HOLD_MS.0),
    };
    after.held_by = user;
    after.held_until_ms = if span == 0 { 0 } else { now.wall_ms.saturating_add(span) };
    Ok(after)
}

/// Records a standing, and calls back what may not begin under it.
pub(crate) fn settle_standing(
    books: &mut Books,
    turn: &mut Turn<'_>,
    before: Condition,
    after: MachineStanding,
) {
    let condition = after.condition();
    let name: Arc<str> = Arc::from(after.machine.as_str());
    books.record(turn, Kind::MachineStanding(after));
    if condition != before && matches!(condition, Condition::Broken | Condition::Removed) {
        revoke(books, turn, &name, &format!("{name} was set to {}", condition.word()));
    }
}

/// Every job that a machine has but has not begun to install or run goes back to the queue, a gang as a whole.
fn revoke(books: &mut Books, turn: &mut Turn<'_>, name: &str, why: &str) {
    let places = books.pool.places(name);
    let machines = places.iter().filter_map(|place| books.pool.machines().get(place));
    let claims = machines.flat_map(|m| &m.claims).filter_map(|id| books.pool.claims().get(id));
    let jobs: Vec<JobId> = claims
        .flat_map(|c| c.jobs.iter().copied())
        .filter(|j| may_be_called_back(&books.queue, *j))
        .collect();
    for (cluster, procs) in by_cluster(&jobs) {
        let procs: ProcSet = procs.iter().collect();
        let gang = books.queue.clusters().get(&cluster).is_some_and(|c| c.gang);
        let which = if gang { None } else { Some(&procs) };
        orders::stop_live(books, turn, cluster, which, Afterwards::Idle, why, (vacate::BY_HAND, 0));
        books.changes.note_gang(cluster);
    }
}

fn may_be_called_back(queue: &Queue, job: JobId) -> bool {
    let Some(cluster) = queue.clusters().get(&job.cluster) else { return false };
    // A guest has begun when its host has: the machine is that one's.
    let live = cluster.live.get(&cluster.host_of(job.proc).unwrap_or(job.proc));
    live.is_some_and(|l| l.started_ms.is_none() && l.stop.is_none() && l.stage != Stage::Installing)
}

/// Does a machine's lab have the trees that such jobs are installed from?
pub(crate) fn has_trees_for(shapes: &Shapes, labs: &Labs, machine: &Machine, shape: ShapeId) -> bool {
    let wanted = shapes.all().get(&shape).map(|s| &*s.trees).unwrap_or_default();
    labs.has_trees(&machine.lab, wanted)
}

/// Is a machine there for the user whose jobs these are, with what they are installed from?
pub(crate) fn is_for(
    shapes: &Shapes,
    accounts: &Accounts,
    labs: &Labs,
    machine: &Machine,
    shape: ShapeId,
) -> bool {
    if shapes.has_trees() && !has_trees_for(shapes, labs, machine, shape) {
        return false;
    }
    if !machine.is_restricted() {
        return true;
    }
    let owner = shapes.ad(shape).map(|ad| ad.eval("Owner"));
    let Some(Value::Str(owner)) = owner else { return false };
    let owner = owner.to_string();
    let lent = machine.only.as_ref().is_none_or(|only| owner == **only);
    lent && (machine.allow.is_empty() || is_on_list(shapes, accounts, &machine.allow, &owner, shape))
}

/// Does a list of users and groups name the owner of such jobs, or a group whose account they are on?
fn is_on_list(shapes: &Shapes, accounts: &Accounts, list: &[String], owner: &str, shape: ShapeId) -> bool {
    let user = shapes.all().get(&shape).map(|s| s.user);
    let mut groups = user.into_iter().flat_map(|user| accounts.groups_of(user));
    list.iter().any(|name| name == owner)
        || groups.any(|(_, g)| list.iter().any(|name| g.name.eq_ignore_ascii_case(name)))
}

fn held(standing: &MachineStanding) -> StandingRefusal {
    StandingRefusal::Held { machine: standing.machine.clone(), by: standing.held_by.clone() }
}
