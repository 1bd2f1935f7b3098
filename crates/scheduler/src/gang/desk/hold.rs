//! People with a system in their hands: reserved, provisioned, given back. No hold is without an end.

use std::sync::Arc;

use super::state::Desk;
use crate::gang::Time;
use crate::gang::words::{Condition, Usage};

impl Desk {
    pub(super) fn reserve(&mut self, place: usize, user: &str, span: Option<Time>) {
        let system = &self.systems[place];
        let by_hand = system.condition == Condition::Manual
            || (system.condition == Condition::Automated && system.loan.as_deref() == Some(user));
        let lent_to_other = system.loan.as_deref().is_some_and(|to| to != user);
        if !by_hand || lent_to_other {
            return self.refuse("only a Manual system, or one on loan to the user, is taken by hand");
        }
        if !system.is_free() {
            return self.refuse("in use");
        }
        let span = span.unwrap_or(self.settings.hold_max).min(self.settings.hold_max);
        let until = self.now.saturating_add(span);
        self.systems[place].held = Some((Arc::from(user), until));
        self.touched.insert(place);
        self.set_usage(place, Usage::Running);
    }

    /// The steps of an installation by hand, each only after the one before.
    pub(super) fn install(&mut self, place: usize, from: Usage, to: Usage) {
        let system = &self.systems[place];
        if system.held.is_none() || system.usage != from {
            return self.ignore("no-op: not held, or not at that step");
        }
        self.set_usage(place, to);
    }

    pub(super) fn give_back(&mut self, place: usize) {
        if self.systems[place].held.is_none() {
            return self.ignore("no-op: not held");
        }
        self.release(place);
    }
}
