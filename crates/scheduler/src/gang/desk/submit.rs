//! Sets: how they come in, how they are ranked anew, how they are given up or put back into the queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::Effect;
use super::state::{Desk, Guest, Recipe, Set};
use crate::gang::bits::Bits;
use crate::gang::host::Host;
use crate::gang::matching::{self, Choice};
use crate::gang::planner::SEATS_MAX;
use crate::gang::usage::Mark;
use crate::gang::words::{Condition, State};
use crate::gang::{Class, SetId, Time};

/// Guests that one recipe may have.
const GUESTS_MAX: usize = 64;

/// A guest as submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSpec {
    /// Its name.
    pub name: String,
    /// What it installs.
    pub tree: String,
}

/// A recipe as submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeSpec {
    /// Its name.
    pub name: String,
    /// What it asks of its system.
    pub host: Host,
    /// What it installs.
    pub tree: String,
    /// The tree is the user's own: no lab need hold it.
    pub own_tree: bool,
    /// Exactly this system, whatever its condition.
    pub force: Option<String>,
    /// Tags that are liked, best first.
    pub prefer: Vec<String>,
    /// Virtual machines on it.
    pub guests: Vec<GuestSpec>,
}

/// A set as submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSpec {
    /// Its name; a second set of that name is a repeated submit.
    pub name: String,
    /// Whose.
    pub owner: String,
    /// How urgent.
    pub class: Class,
    /// Declared run limit.
    pub run: Option<Time>,
    /// How long the owner keeps the systems afterwards.
    pub reserve: Time,
    /// Failures that it survives; the lab's default if not said.
    pub retry: Option<u32>,
    /// Added to the time of submission in the order; fixed now, bounded by whoever computes it.
    pub penalty: Time,
    /// A recipe's system is released when the recipe is over, not when the set is.
    pub early_release: bool,
    /// The watchdog ends each recipe by itself.
    pub strict_watchdog: bool,
    /// Labs to try first.
    pub labs: Vec<String>,
    /// The seats.
    pub recipes: Vec<RecipeSpec>,
}

impl Desk {
    pub(super) fn submit(&mut self, spec: &SetSpec) {
        if self.names.contains_key(&spec.name) {
            return self.ignore("duplicate ignored");
        }
        if let Some(why) = refusal(spec) {
            return self.refuse(why);
        }
        let id = SetId(self.next);
        self.next += 1;
        let set = Set {
            id,
            name: spec.name.clone(),
            owner: spec.owner.clone(),
            class: spec.class,
            submitted: self.now.saturating_add(spec.penalty),
            run: spec.run,
            reserve: spec.reserve,
            retry_left: spec.retry.unwrap_or(self.settings.retry),
            early_release: spec.early_release,
            strict_watchdog: spec.strict_watchdog,
            labs: spec.labs.clone(),
            recipes: spec.recipes.iter().map(recipe).collect(),
            attempt: 0,
            excluded: std::collections::BTreeMap::new(),
            crossed: Vec::new(),
            unsat_since: None,
            extended: 0,
            request: 0,
        };
        self.book.mark(Mark {
            set: id,
            owner: Arc::from(set.owner.as_str()),
            class: set.class,
            size: set.recipes.len(),
            submitted: self.now,
            promised: None,
            started: None,
            ended: None,
            backfilled: false,
        });
        let possible = self.is_conceivable(&set);
        self.names.insert(set.name.clone(), id);
        self.sets.insert(id, set);
        if possible {
            self.rewant.insert(id);
        } else {
            self.abort(id, "no lab can ever satisfy the set".to_owned());
        }
    }

    /// Whether one lab's systems, in whatever condition and hands, could hold the whole set.
    fn is_conceivable(&self, set: &Set) -> bool {
        self.labs.keys().any(|lab| {
            let can = |recipe: &Recipe| -> Bits {
                self.systems
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| s.condition != Condition::Removed && s.lab == *lab)
                    .filter(|(_, s)| match &recipe.force {
                        Some(name) => *name == s.name,
                        None => recipe.host.admits(&s.facts()),
                    })
                    .map(|(place, _)| place)
                    .collect()
            };
            let seats: Vec<Choice<'_>> =
                set.recipes.iter().map(|r| Choice { can: can(r), prefer: &[] }).collect();
            matching::exists(&seats, &|_| 1)
        })
    }

    pub(super) fn cancel(&mut self, name: &str) {
        let Some(set) = self.set(name) else { return self.ignore("no-op: no such set") };
        if set.is_final() {
            return self.ignore("no-op: already finished");
        }
        self.end_set(set.id, State::Cancelled);
    }

    pub(super) fn prioritise(&mut self, name: &str, class: Class) {
        let Some(id) = self.names.get(name).copied() else { return self.ignore("no-op: no such set") };
        let Some(set) = self.sets.get_mut(&id) else { return };
        if set.is_final() {
            return self.ignore("no-op: already finished");
        }
        set.class = class;
        if set.is_waiting() {
            self.rewant.insert(id);
        } else {
            self.ignore("recorded; no effect after scheduled");
        }
    }

    /// The desk gives a set up.
    pub(super) fn abort(&mut self, id: SetId, why: String) {
        let set = self.name_of(id);
        self.effects.push(Effect::Aborted { set, why });
        self.end_set(id, State::Aborted);
    }

    /// Ends everything in a set that is not over yet.
    pub(super) fn end_set(&mut self, id: SetId, how: State) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        for guest in set.recipes.iter_mut().flat_map(|r| &mut r.guests) {
            if !guest.state.is_final() {
                guest.state = how;
            }
        }
        let open: Vec<usize> = (0..set.recipes.len()).filter(|i| !set.recipes[*i].state.is_final()).collect();
        for index in open {
            self.move_recipe(id, index, how);
        }
        self.close_set(id);
    }

    /// A set in which everything is over gives back what it has.
    pub(super) fn close_set(&mut self, id: SetId) {
        let Some(set) = self.sets.get_mut(&id).filter(|s| s.is_final()) else { return };
        let systems: Vec<usize> = set.recipes.iter_mut().filter_map(|r| r.system.take()).collect();
        set.unsat_since = None;
        self.planner.remove(id);
        self.rewant.remove(&id);
        let now = self.now;
        if let Some(mark) = self.book.mark_of(id) {
            mark.ended = Some(now);
        }
        for place in systems {
            self.release_from(place, id);
        }
        self.finals.push_back(id);
        while self.finals.len() > self.settings.keep_final {
            let Some(old) = self.finals.pop_front() else { break };
            if let Some(set) = self.sets.remove(&old) {
                self.names.remove(&set.name);
            }
        }
    }

    pub(super) fn release_from(&mut self, place: usize, id: SetId) {
        if self.systems[place].bound.is_some_and(|(set, _)| set == id) {
            self.release(place);
        }
    }

    /// A failure before the installation: the whole set goes back into the queue with its rank, or is given up when
    /// it has failed too often or a sibling has come too far.
    pub(super) fn fail(&mut self, id: SetId, why: String, exclude: Option<usize>) {
        let now = self.now;
        let until = now.saturating_add(self.settings.exclusion);
        let Some(set) = self.sets.get_mut(&id) else { return };
        let early = set.recipes.iter().all(|r| matches!(r.state, State::Scheduled | State::Waiting));
        if !early {
            return self.abort(id, format!("{why}, a sibling had come too far"));
        }
        if set.retry_left == 0 {
            return self.abort(id, format!("{why}, retries used"));
        }
        set.retry_left -= 1;
        if let Some(place) = exclude {
            set.excluded.insert(place, until);
        }
        set.crossed.clear();
        let name = set.name.clone();
        let seats = set.recipes.len();
        self.effects.push(Effect::Requeued { set: name, why });
        for index in 0..seats {
            let system = self.sets.get_mut(&id).and_then(|s| s.recipes[index].system.take());
            self.move_recipe(id, index, State::Queued);
            if let Some(place) = system {
                self.release_from(place, id);
            }
        }
        self.rewant.insert(id);
    }
}

fn recipe(spec: &RecipeSpec) -> Recipe {
    let guest = |g: &GuestSpec| Guest { name: g.name.clone(), tree: g.tree.clone(), state: State::New };
    Recipe {
        name: spec.name.clone(),
        host: spec.host.clone(),
        tree: spec.tree.clone(),
        own_tree: spec.own_tree,
        force: spec.force.clone(),
        prefer: spec.prefer.clone(),
        guests: spec.guests.iter().map(guest).collect(),
        state: State::New,
        system: None,
        hard_end: 0,
    }
}

fn refusal(spec: &SetSpec) -> Option<String> {
    let guests = spec.recipes.iter().flat_map(|r| r.guests.iter().map(|g| &g.name));
    let names: Vec<&String> = spec.recipes.iter().map(|r| &r.name).chain(guests).collect();
    let different: BTreeSet<&&String> = names.iter().collect();
    if spec.name.is_empty() || names.iter().any(|n| n.is_empty()) {
        Some("a set and its recipes have names".to_owned())
    } else if spec.recipes.is_empty() || spec.recipes.len() > SEATS_MAX {
        Some(format!("a set has 1 to {SEATS_MAX} recipes"))
    } else if spec.recipes.iter().any(|r| r.guests.len() > GUESTS_MAX) {
        Some(format!("a recipe has at most {GUESTS_MAX} guests"))
    } else if different.len() < names.len() {
        Some("two recipes of a set have the same name".to_owned())
    } else {
        None
    }
}
