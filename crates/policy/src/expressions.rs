//! The owner's expressions and timers, and how a result that is neither true nor false is read.
//!
//! Where the texts come from is in `load`; which ads the expressions see is in `ad`.

use std::collections::BTreeMap;

use classad::{Expr, Name, Scope, Value};
use config::Diagnostic;

/// An expression of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expression {
    /// May jobs (may this job) run here?
    Start,
    /// How much does the owner like a job?
    Rank,
    /// Stop the job?
    Suspend,
    /// Let the stopped job go on?
    Continue,
    /// Must the job leave?
    Preempt,
    /// Has it had enough time to leave?
    Kill,
    /// Suspend before preempting?
    WantSuspend,
    /// Ask politely before killing?
    WantVacate,
    /// Is it time for a checkpoint?
    PeriodicCheckpoint,
    /// Is it time to measure the machine?
    RunBenchmarks,
    /// Is the slot its owner's? Where nobody says, it is when START is locally false.
    IsOwner,
    /// Is a job that must leave by the policy to be held, instead of going back to the queue?
    WantHold,
    /// Why it is held, in words.
    WantHoldReason,
    /// Why, as a number of the owner's own (HoldReasonSubCode).
    WantHoldSubcode,
}

impl Expression {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Start,
        Self::Rank,
        Self::Suspend,
        Self::Continue,
        Self::Preempt,
        Self::Kill,
        Self::WantSuspend,
        Self::WantVacate,
        Self::PeriodicCheckpoint,
        Self::RunBenchmarks,
        Self::IsOwner,
        Self::WantHold,
        Self::WantHoldReason,
        Self::WantHoldSubcode,
    ];

    /// Its name in configuration and ads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::Rank => "RANK",
            Self::Suspend => "SUSPEND",
            Self::Continue => "CONTINUE",
            Self::Preempt => "PREEMPT",
            Self::Kill => "KILL",
            Self::WantSuspend => "WANT_SUSPEND",
            Self::WantVacate => "WANT_VACATE",
            Self::PeriodicCheckpoint => "PERIODIC_CHECKPOINT",
            Self::RunBenchmarks => "RunBenchmarks",
            Self::IsOwner => "IS_OWNER",
            Self::WantHold => "WANT_HOLD",
            Self::WantHoldReason => "WANT_HOLD_REASON",
            Self::WantHoldSubcode => "WANT_HOLD_SUBCODE",
        }
    }

    /// The name of its variant for vanilla jobs, if it may have one.
    pub fn vanilla_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Suspend => "SUSPEND_VANILLA",
            Self::Continue => "CONTINUE_VANILLA",
            Self::Preempt => "PREEMPT_VANILLA",
            Self::Kill => "KILL_VANILLA",
            Self::WantSuspend => "WANT_SUSPEND_VANILLA",
            Self::WantVacate => "WANT_VACATE_VANILLA",
            Self::Start
            | Self::Rank
            | Self::PeriodicCheckpoint
            | Self::RunBenchmarks
            | Self::IsOwner
            | Self::WantHold
            | Self::WantHoldReason
            | Self::WantHoldSubcode => return None,
        })
    }

    /// What a result that is neither true nor false counts as. START is not asked this way.
    fn otherwise(self) -> bool {
        // A job that may be asked politely is asked politely: the only mistake that cannot be undone is a kill.
        self == Self::WantVacate
    }

    /// True if such a result deserves a warning. The others are undefined by design before a job or a first
    /// benchmark gave them something to look at.
    fn warns(self) -> bool {
        self == Self::WantVacate || self.vanilla_name().is_some()
    }

    /// It gives true or false.
    pub(crate) fn is_boolean(self) -> bool {
        !matches!(self, Self::Rank | Self::WantHoldReason | Self::WantHoldSubcode)
    }
}

/// How often and how long, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// UPDATE_INTERVAL: evaluation and advertisement, always.
    pub update_ms: u64,
    /// POLLING_INTERVAL: evaluation while any slot is in use.
    pub poll_ms: u64,
    /// MATCH_TIMEOUT: how long a match waits for its claim.
    pub match_ms: u64,
    /// KILLING_TIMEOUT: how long a starter has to go after a hard kill.
    pub killing_ms: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { update_ms: 300_000, poll_ms: 5_000, match_ms: 300_000, killing_ms: 30_000 }
    }
}

/// What the owner wrote, parsed.
#[derive(Debug, Clone)]
pub struct Policy {
    plain: Vec<Expr>,
    vanilla: Vec<Option<Expr>>,
    /// Macros that are put into the machine ad by name (STARTD_EXPRS, STARTD_ATTRS).
    pub(crate) attributes: Vec<(Name, Expr)>,
    /// Job attributes that are copied into the machine ad (STARTD_JOB_EXPRS, STARTD_JOB_ATTRS).
    pub(crate) job_attributes: Vec<Name>,
    /// How often and how long.
    pub timers: Timers,
    /// While a vanilla job runs, a name such as WANT_SUSPEND inside another expression means its vanilla variant.
    pub alias_vanilla: bool,
    /// What is legal but doubtful.
    pub warnings: Vec<Diagnostic>,
    /// Attributes of each slot that the others' ads have as `slotN_NAME` (STARTD_SLOT_ATTRS).
    pub(crate) slot_attributes: Vec<Name>,
    /// Slots with a policy of their own, by number (SLOTn_..., SLOT_TYPE_n_...).
    pub(crate) of_slots: BTreeMap<u32, Policy>,
}

/// What an expression gave, and how it is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) holds: bool,
    /// The value is neither true nor false, and that is worth a warning.
    pub(crate) odd: bool,
}

impl Policy {
    /// Would a machine do the same by the other one?
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        // Warnings name places in files, which may have moved.
        let Self {
            plain, vanilla, attributes, job_attributes, timers, alias_vanilla, slot_attributes, ..
        } = self;
        let mut of_slots = self.of_slots.iter().zip(&other.of_slots);
        *plain == other.plain
            && *vanilla == other.vanilla
            && *attributes == other.attributes
            && *job_attributes == other.job_attributes
            && *timers == other.timers
            && *alias_vanilla == other.alias_vanilla
            && *slot_attributes == other.slot_attributes
            && self.of_slots.len() == other.of_slots.len()
            && of_slots.all(|(mine, its)| mine.0 == its.0 && mine.1.is_same_as(its.1))
    }

    /// A number that is another for another policy, as [`Policy::is_same_as`] compares them.
    pub(crate) fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        let Self {
            plain, vanilla, attributes, job_attributes, timers, alias_vanilla, slot_attributes, ..
        } = self;
        let own = (plain, vanilla, attributes, job_attributes, timers, alias_vanilla, slot_attributes);
        format!("{own:?}").hash(&mut hasher);
        for (slot, policy) in &self.of_slots {
            (slot, policy.fingerprint()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// A policy of these expressions; those that are not named have their built-in values.
    pub fn new(given: impl IntoIterator<Item = (Expression, Expr)>) -> Self {
        let built_in = |e: Expression| {
            // IS_OWNER has a built-in value for those who ask the configuration; here nobody having said it counts.
            if e == Expression::IsOwner {
                return Expr::literal(Value::Undefined);
            }
            let text = config::defaults::value(e.name()).unwrap_or("undefined");
            Expr::parse(text).unwrap_or_else(|_| Expr::literal(Value::Undefined))
        };
        let mut policy = Self {
            plain: Expression::ALL.into_iter().map(built_in).collect(),
            vanilla: vec![None; Expression::ALL.len()],
            attributes: Vec::new(),
            job_attributes: Vec::new(),
            timers: Timers::default(),
            alias_vanilla: true,
            warnings: Vec::new(),
            slot_attributes: Vec::new(),
            of_slots: BTreeMap::new(),
        };
        for (expression, expr) in given {
            policy.set(expression, expr);
        }
        policy
    }

    /// The policy of a slot: its own, or the machine's.
    pub fn of_slot(&self, number: u32) -> &Self {
        self.of_slots.get(&number).unwrap_or(self)
    }

    /// The machine's policy, then those of slots that have their own.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.of_slots.values())
    }

    /// Sets the expression for all jobs.
    pub fn set(&mut self, expression: Expression, expr: Expr) {
        self.plain[expression as usize] = expr;
    }

    /// Sets the variant for vanilla jobs; expressions that have none ignore it.
    pub fn set_vanilla(&mut self, expression: Expression, expr: Expr) {
        if expression.vanilla_name().is_some() {
            self.vanilla[expression as usize] = Some(expr);
        }
    }

    /// The expression for all jobs.
    pub fn get(&self, expression: Expression) -> &Expr {
        &self.plain[expression as usize]
    }

    /// The variant for vanilla jobs.
    pub fn vanilla(&self, expression: Expression) -> Option<&Expr> {
        self.vanilla[expression as usize].as_ref()
    }

    /// A machine should measure itself once when its agent starts: RunBenchmarks is there and not just False.
    pub fn wants_startup_benchmark(&self) -> bool {
        match self.get(Expression::RunBenchmarks).as_literal() {
            Some(value) => *value != Value::Undefined && value.truth() != Some(false),
            None => true,
        }
    }

    /// The expressions under their names, as other expressions may mention them.
    pub(crate) fn named(&self, is_vanilla_job: bool) -> impl Iterator<Item = (&'static str, &Expr)> {
        let variants =
            Expression::ALL.into_iter().filter_map(|e| Some((e.vanilla_name()?, self.vanilla(e)?)));
        let plain = Expression::ALL.into_iter().map(move |e| {
            let variant = self.vanilla(e).filter(|_| is_vanilla_job && self.alias_vanilla);
            // A variant that builds on the plain expression by name must find that, not itself.
            let variant = variant.filter(|v| !v.references().contains(&Name::new(e.name())));
            (e.name(), variant.unwrap_or(self.get(e)))
        });
        // What nobody wrote is undefined also without being mentioned.
        let plain = plain.filter(|(_, expr)| expr.as_literal() != Some(&Value::Undefined));
        plain.chain(variants)
    }

    /// What an expression says in a scope.
    pub(crate) fn ask(&self, expression: Expression, scope: &Scope<'_>, is_vanilla_job: bool) -> Verdict {
        if is_vanilla_job
            && let (Some(expr), Some(name)) = (self.vanilla(expression), expression.vanilla_name())
        {
            let value = scope.eval(expr);
            if let Some(holds) = value.truth() {
                return Verdict { name, value, holds, odd: false };
            }
        }
        let value = scope.eval(self.get(expression));
        let truth = value.truth();
        Verdict {
            name: expression.name(),
            holds: truth.unwrap_or(expression.otherwise()),
            odd: truth.is_none() && expression.warns(),
            value,
        }
    }

    /// The text of the expression of that name (`SUSPEND`, `SUSPEND_VANILLA`).
    pub(crate) fn text(&self, name: &str) -> String {
        let found = Expression::ALL.into_iter().find_map(|e| match e.vanilla_name() {
            _ if e.name() == name => Some(self.get(e)),
            Some(v) if v == name => self.vanilla(e),
            _ => None,
        });
        found.map(Expr::to_old_string).unwrap_or_default()
    }
}
