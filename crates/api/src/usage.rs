//! `GET /v1/usage`: where the time of the machines went. Times are core-milliseconds and milliseconds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use usage::{Row, Spread, Totals, What};

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UsageQuery")]
pub struct Query {
    /// From then on, in Unix milliseconds; everything without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Until then; the present without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// From so many milliseconds ago on, by the manager's clock: whoever asks may have a wrong one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ago_ms: Option<u64>,
    /// Until so many milliseconds ago, by the manager's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ago_ms: Option<u64>,
    /// Only machines of this lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<String>,
    /// Only this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Only what was done for this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Every row too: the answer is JSON lines then, see [`Line`].
    #[serde(default)]
    pub rows: bool,
}

/// A line of an answer with rows. The last is `Usage` or `Error`; where neither came, the answer was cut.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// A stretch of time of a slot, or of what no slot has.
    Row(Row),
    /// The sums.
    Usage(Box<Reply>),
    /// It cannot go on.
    Error(crate::rest::ErrorReply),
}

/// The sums.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub struct Reply {
    /// From, in Unix milliseconds.
    pub from_ms: u64,
    /// Until.
    pub until_ms: u64,
    /// Since when it is known where time went: what was before is in no sum. Absent when nothing has happened yet.
    pub known_since_ms: Option<u64>,
    /// All together.
    pub pool: Sums,
    /// By machine.
    pub machines: Vec<MachineSums>,
    /// By lab; an empty name for none.
    pub labs: Vec<LabSums>,
    /// By user.
    pub users: Vec<UserSums>,
    /// Submit to first start.
    pub wait: Spread,
    /// The same by class, user, and how many jobs start together.
    pub waits: Vec<Wait>,
    /// Job and room to the decision, at most.
    pub decision: Spread,
    /// Decision to start.
    pub decision_to_start: Spread,
    /// Gangs later than first promised.
    pub promise_late: Spread,
    /// Gangs earlier than first promised.
    pub promise_early: Spread,
    /// Broken to repaired.
    pub repair: Spread,
    /// Starts that only the consistency pass made.
    pub lost_wakeups: u64,
}

/// Sums and what follows from them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Sums {
    /// The sums.
    #[serde(flatten)]
    pub totals: Totals,
    /// Part of all there was that jobs or people used.
    pub utilisation: Option<f64>,
    /// Provisioning per unit of running.
    pub provisioning_cost: Option<f64>,
    /// Part of what was used that people had by hand.
    pub manual_share: Option<f64>,
}

impl From<Totals> for Sums {
    fn from(totals: Totals) -> Self {
        Self {
            totals,
            utilisation: totals.utilisation(),
            provisioning_cost: totals.provisioning_cost(),
            manual_share: totals.manual_share(),
        }
    }
}

/// Sums of a machine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MachineSums {
    /// Its name.
    pub machine: String,
    /// Its sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Sums of a lab.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LabSums {
    /// Its name.
    pub lab: String,
    /// Its sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Sums of a user.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UserSums {
    /// The name.
    pub user: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
    /// Submit to first start.
    pub wait: Spread,
}

/// Waits of a kind of jobs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UsageWait")]
pub struct Wait {
    /// Low, Medium, Normal, High or Urgent.
    pub class: String,
    /// Whose.
    pub user: String,
    /// How many start together.
    pub together: u32,
    /// Submit to first start.
    pub wait: Spread,
}

/// When a question was asked about, and since when the answer is known.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From, in Unix milliseconds.
    pub from_ms: u64,
    /// Until.
    pub until_ms: u64,
    /// Since when it is known.
    pub known_since_ms: Option<u64>,
}

impl Reply {
    /// The answer as it goes over the wire.
    pub fn new(times: Times, found: usage::Usage) -> Self {
        let machine = |(machine, totals): (String, Totals)| MachineSums { machine, sums: totals.into() };
        let lab = |(lab, totals): (String, Totals)| LabSums { lab, sums: totals.into() };
        let user = |(user, totals): (String, Totals)| {
            let wait = found.user_waits.get(&user).copied().unwrap_or_default();
            UserSums { user, sums: totals.into(), wait }
        };
        let wait = |((class, user, together), wait): ((model::Class, String, u32), Spread)| Wait {
            class: class.name().to_owned(),
            user,
            together,
            wait,
        };
        Self {
            from_ms: times.from_ms,
            until_ms: times.until_ms,
            known_since_ms: times.known_since_ms,
            pool: found.pool.into(),
            machines: found.machines.into_iter().map(machine).collect(),
            labs: found.labs.into_iter().map(lab).collect(),
            users: found.users.into_iter().map(user).collect(),
            wait: found.waits,
            waits: found.waits_by.into_iter().map(wait).collect(),
            decision: found.decisions,
            decision_to_start: found.deliveries,
            promise_late: found.promise_late,
            promise_early: found.promise_early,
            repair: found.repairs,
            lost_wakeups: found.lost_wakeups,
        }
    }
}
