//! What an evaluation is told about the world: the time, randomness, and a few facts about users.

/// Facts only a machine knows. Every method has a default that knows nothing.
///
/// ```
/// struct Paris;
/// impl classad::Host for Paris {
///     fn zone_offset(&self, _epoch: i64) -> i32 {
///         3600
///     }
/// }
/// ```
pub trait Host {
    /// Seconds east of Greenwich of the local zone at a moment.
    fn zone_offset(&self, _epoch: i64) -> i32 {
        0
    }

    /// The home directory of a user, for `userHome`.
    fn user_home(&self, _user: &str) -> Option<String> {
        None
    }

    /// What a user maps to in a named map, as a comma list, for `userMap`.
    fn user_map(&self, _map: &str, _user: &str) -> Option<String> {
        None
    }
}

/// The world as one evaluation sees it. The default is the epoch, UTC, and no users.
///
/// ```
/// use classad::{EvalContext, Expr, Scope};
/// let ctx = EvalContext::at(1_000);
/// let e = Expr::parse("time() + 1").unwrap();
/// assert_eq!(Scope::new().context(ctx).eval(&e).as_int(), Some(1_001));
/// ```
#[derive(Clone, Copy, Default)]
pub struct EvalContext<'h> {
    /// Seconds since the epoch.
    pub now: i64,
    /// Where `random()` starts; the same seed gives the same numbers.
    pub seed: u64,
    /// Zone and users.
    pub host: Option<&'h dyn Host>,
    /// How much one evaluation may take.
    pub budget: Budget,
}

/// How much one evaluation may take before it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// What a pool spends on one expression of a stranger's: [`crate::limits::EVAL_STEPS`], about a millisecond.
    #[default]
    Pool,
    /// What is spent on a fact that the pool itself reads from an ad, of every machine there is.
    Fact,
    /// All that the language allows, most of a second: for somebody who asks for one value and waits for it.
    Language,
}

impl EvalContext<'_> {
    /// The world at a moment.
    pub fn at(now: i64) -> EvalContext<'static> {
        EvalContext { now, seed: now as u64, host: None, budget: Budget::Pool }
    }

    /// The same with all that the language allows.
    #[must_use]
    pub fn with_whole_budget(mut self) -> Self {
        self.budget = Budget::Language;
        self
    }

    pub(crate) fn zone(&self, epoch: i64) -> i32 {
        self.host.map_or(0, |host| host.zone_offset(epoch))
    }
}

impl std::fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalContext")
            .field("now", &self.now)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
