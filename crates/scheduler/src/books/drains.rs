//! Drains: for a while nothing new starts on some machines, or on any. Submissions queue on, what runs is left alone.
//!
//! A drain is durable and ends by itself, so that whoever ordered it (mostly `updraft eventd` of this pool or of
//! another) may die without keeping the pool closed for ever. Which machines it is about follows from their ads and is
//! worked out anew whenever one changes.

use std::collections::BTreeMap;

use classad::{Expr, Scope};
use model::event::PoolDrained;

use crate::books::Books;

/// Most drains at once.
const DRAINS: usize = 100;
/// The longest that one may last.
const LONGEST_MS: u64 = 40 * 86_400_000;

/// The drains in force, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drains {
    all: BTreeMap<String, Drain>,
}

#[derive(Debug, Clone)]
struct Drain {
    said: PoolDrained,
    /// Which machines; `None` for all.
    constraint: Option<Expr>,
}

impl Drains {
    /// A fact. One that names what cannot be read concerns every machine: closed too much is mended by waiting.
    pub(super) fn apply(&mut self, said: &PoolDrained) {
        if said.until_ms == 0 {
            self.all.remove(&said.name);
        } else {
            let constraint = Expr::parse(&said.constraint).ok().filter(|_| !said.constraint.is_empty());
            self.all.insert(said.name.clone(), Drain { said: said.clone(), constraint });
        }
    }

    pub(crate) fn said(&self) -> impl Iterator<Item = &PoolDrained> {
        self.all.values().map(|d| &d.said)
    }

    /// Forgets those whose time is over; true when there were any.
    pub(crate) fn end_those_over(&mut self, now_ms: u64) -> bool {
        let before = self.all.len();
        self.all.retain(|_, d| d.said.until_ms > now_ms);
        self.all.len() < before
    }

    /// Is what somebody says of a drain news? An error where it cannot be done.
    pub(crate) fn check(&self, said: &PoolDrained, now_ms: u64) -> Result<bool, String> {
        let known = self.all.get(&said.name);
        if said.until_ms == 0 && known.is_none() {
            return Ok(false);
        }
        if said.until_ms > 0 && (said.until_ms <= now_ms || said.until_ms > now_ms + LONGEST_MS) {
            return Err("a drain ends in the future, and within 40 days".to_owned());
        }
        if !said.constraint.is_empty()
            && let Err(error) = Expr::parse(&said.constraint)
        {
            return Err(format!("the constraint is not an expression: {error}"));
        }
        if known.is_none() && self.all.len() >= DRAINS {
            return Err(format!("there are {DRAINS} drains already"));
        }
        // Said again and again, as whoever ordered it starts anew, it is still one fact.
        Ok(known.is_none_or(|d| d.said != *said))
    }

    /// Does one concern a machine with this ad?
    pub(crate) fn concern(&self, ad: &classad::ClassAd) -> bool {
        let meant = |d: &Drain| match &d.constraint {
            None => true,
            Some(expr) => Scope::of(ad).eval(expr).is_true(),
        };
        self.all.values().any(meant)
    }
}

impl Books {
    /// Works out which machines take nothing new.
    pub(crate) fn note_drains(&mut self) {
        for place in self.pool.machines().keys().cloned().collect::<Vec<_>>() {
            self.note_standing(&place);
        }
    }
}
