//! The books: the queue, the pool's claims, and the only places where they are written.
//!
//! Everybody may read them. What is durable changes in `apply`, one fact at a time, and in nothing else: the verbs that do so are
//! visible in this room only, and nobody outside it is handed a cluster or a claim to change. `snapshot` loads what `apply` once
//! wrote, `steps` moves its dates, `resort` and `platform` sort jobs anew that are no longer alike. `sweep` finds books that do not
//! agree with each other, and `recount` their sums.

mod apply;
pub(crate) mod drains;
pub(crate) mod labs;
mod machines;
mod place;
mod platform;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod recount;
pub(crate) mod resort;
mod saved;
pub(crate) mod snapshot;
mod steps;
mod stored;
pub(crate) mod sweep;

use classad::Expr;
use model::Event;
use model::event::Kind;

use crate::accounts::Accounts;
use crate::changes::Changes;
use crate::concurrency::InUse;
use crate::gangs::Ends;
use crate::refusals::Refusals;
use crate::shape::Shapes;
use crate::{Settings, Turn};

use drains::Drains;
use labs::Labs;
use pool::Pool;
use queue::Queue;

/// What the pool knows: what is durable, what follows from it, and what has changed.
///
/// A part's own fields are private to it. The verbs that write what is durable are visible in this room only, so that a `&mut Books` lets
/// nobody write but by [`Books::record`].
// Public, because a test's `Core` may be looked into as books; nobody outside the crate can name it.
#[allow(unreachable_pub)]
#[derive(Debug, Clone, Default)]
pub struct Books {
    pub(crate) settings: Settings,
    pub(crate) queue: Queue,
    pub(crate) pool: Pool,
    /// Which jobs are alike, and which machines suit them.
    pub(crate) shapes: Shapes,
    pub(crate) accounts: Accounts,
    /// How much of each named limit is taken.
    pub(crate) in_use: InUse,
    pub(crate) labs: Labs,
    pub(crate) drains: Drains,
    /// When gangs are over at the latest.
    pub(crate) ends: Ends,
    /// Machines that rest from kinds of jobs.
    pub(crate) refusals: Refusals,
    pub(crate) changes: Changes,
    /// The time of the last tick, in Unix milliseconds, for what only time ends.
    pub(crate) clock_ms: u64,
    /// The moment of the present input, by the monotonic clock.
    pub(crate) mono_ms: u64,
    /// The consistency pass is at work: starts that are made now are its.
    pub(crate) swept: bool,
}

impl Books {
    /// Of an empty pool.
    pub(crate) fn new(settings: Settings) -> Self {
        let pool_asks = [&settings.preemption_requirements, &settings.preemption_rank];
        let pool_asks = pool_asks.into_iter().flatten().flat_map(Expr::references).collect();
        Self {
            shapes: Shapes::new(pool_asks),
            accounts: Accounts::new(settings.shares.clone()),
            in_use: InUse::new(settings.limits.clone()),
            settings,
            ..Self::default()
        }
    }

    /// Records a fact: applies it and hands it to the journal.
    pub(crate) fn record(&mut self, turn: &mut Turn<'_>, kind: Kind) {
        self.apply(&kind, turn.now.wall_ms);
        turn.out.events.push(Event { time_ms: turn.now.wall_ms, kind: Some(kind) });
    }
}
