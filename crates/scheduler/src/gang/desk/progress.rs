//! Recipes that have their systems: what their machines report, until they are over.
//!
//! Reports come late, doubled and not at all. A report that leaves out steps implies them; one about an earlier attempt
//! or something that is over changes nothing.

use super::event::{Effect, Step};
use super::state::Desk;
use crate::gang::words::{Condition, State};
use crate::gang::{SetId, Time};

impl Desk {
    pub(super) fn progress(&mut self, set: &str, recipe: Option<&str>, attempt: Option<u32>, step: Step) {
        let Some(set) = self.set(set) else { return self.ignore("no-op: no such set") };
        let id = set.id;
        if set.is_waiting() || attempt.is_some_and(|a| a != set.attempt) {
            return self.ignore("stale: about an earlier attempt");
        }
        let seats: Vec<usize> = match recipe {
            None => (0..set.recipes.len()).collect(),
            Some(name) => match set.recipes.iter().position(|r| r.name == name) {
                Some(index) => vec![index],
                None => return self.guest_progress(id, name, step),
            },
        };
        let mut changed = false;
        for index in seats {
            changed |= self.advance(id, index, step);
        }
        if !changed {
            return self.ignore("duplicate ignored");
        }
        self.close_set(id);
    }

    fn state_of(&self, id: SetId, index: usize) -> State {
        self.sets.get(&id).map_or(State::Aborted, |s| s.recipes[index].state)
    }

    /// Moves a recipe along to a step, through the steps that were not reported.
    fn advance(&mut self, id: SetId, index: usize, step: Step) -> bool {
        let from = self.state_of(id, index);
        if !from.is_active() {
            return false;
        }
        let target = match step {
            Step::Waiting => State::Waiting,
            Step::Installing => State::Installing,
            Step::Running => State::Running,
            Step::Aborted { suspicious } => {
                self.suspect(id, index, suspicious);
                self.end_recipe(id, index, State::Aborted);
                return true;
            }
            Step::Done if from == State::Reserved => return false,
            Step::Done => State::Completed,
        };
        if from >= target {
            return false;
        }
        if from == State::Scheduled {
            self.move_recipe(id, index, State::Waiting);
        }
        if target == State::Installing {
            self.move_recipe(id, index, State::Installing);
        } else if target >= State::Running {
            self.move_recipe(id, index, State::Running);
        }
        if target == State::Completed {
            self.tasks_over(id, index);
        }
        true
    }

    fn tasks_over(&mut self, id: SetId, index: usize) {
        let now = self.now;
        let Some(set) = self.sets.get_mut(&id) else { return };
        // Tasks that ended after the limit leave nothing to reserve.
        if set.reserve > 0 && set.recipes[index].hard_end > now {
            let recipe = &mut set.recipes[index];
            // The limit at the start counted the reservation in: a promise made since then still holds.
            recipe.hard_end = recipe.hard_end.min(now.saturating_add(set.reserve));
            self.touch_set(id);
            self.move_recipe(id, index, State::Reserved);
        } else {
            if let Some(place) = set.recipes[index].system {
                self.systems[place].suspicions.clear();
            }
            self.end_recipe(id, index, State::Completed);
        }
    }

    pub(super) fn reservation_over(&mut self, set: &str, recipe: Option<&str>) {
        let Some(set) = self.set(set) else { return self.ignore("no-op: no such set") };
        let id = set.id;
        let reserved = |r: &&super::state::Recipe| {
            r.state == State::Reserved && recipe.is_none_or(|name| name == r.name)
        };
        let names: Vec<usize> =
            set.recipes.iter().enumerate().filter(|(_, r)| reserved(r)).map(|(i, _)| i).collect();
        if names.is_empty() {
            return self.ignore("no-op: not reserved");
        }
        for index in names {
            self.end_recipe(id, index, State::Completed);
        }
        self.close_set(id);
    }

    /// A recipe is over. Guests that never started go with it; those that run keep the system.
    pub(super) fn end_recipe(&mut self, id: SetId, index: usize, how: State) {
        self.move_recipe(id, index, how);
        let Some(set) = self.sets.get_mut(&id) else { return };
        let recipe = &mut set.recipes[index];
        for guest in &mut recipe.guests {
            if !guest.state.is_final() && guest.state <= State::Waiting {
                guest.state = State::Aborted;
                self.effects.push(Effect::GuestAborted { guest: guest.name.clone() });
            }
        }
        self.early_release(id, index);
        if let Some(place) = self.sets.get(&id).and_then(|s| s.recipes[index].system) {
            self.write_row(place);
        }
    }

    fn early_release(&mut self, id: SetId, index: usize) {
        let Some(set) = self.sets.get_mut(&id).filter(|s| s.early_release && !s.is_final()) else { return };
        let recipe = &mut set.recipes[index];
        let over = recipe.state.is_final() && recipe.guests.iter().all(|g| g.state.is_final());
        if over && let Some(place) = recipe.system.take() {
            self.release_from(place, id);
        }
    }

    fn guest_progress(&mut self, id: SetId, name: &str, step: Step) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        let Some((index, guest)) = set
            .recipes
            .iter_mut()
            .enumerate()
            .find_map(|(i, r)| r.guests.iter_mut().find(|g| g.name == name).map(|g| (i, g)))
        else {
            return self.ignore("no-op: no such recipe");
        };
        let target = match step {
            Step::Waiting => State::Waiting,
            Step::Installing => State::Installing,
            Step::Running => State::Running,
            Step::Done => State::Completed,
            Step::Aborted { .. } => State::Aborted,
        };
        if guest.state.is_final() || guest.state >= target {
            return self.ignore("duplicate ignored");
        }
        guest.state = target;
        self.early_release(id, index);
        self.close_set(id);
    }

    fn suspect(&mut self, id: SetId, index: usize, suspicious: bool) {
        let Some(recipe) = self.sets.get(&id).and_then(|s| s.recipes.get(index)) else { return };
        let (Some(place), tree) = (recipe.system, recipe.tree.clone()) else { return };
        let suspicions = &mut self.systems[place].suspicions;
        if suspicious {
            suspicions.push(tree);
        } else {
            suspicions.clear();
        }
    }

    pub(super) fn power_failure(&mut self, set: &str, recipe: &str, attempt: Option<u32>) {
        let Some(set) = self.set(set) else { return self.ignore("no-op: no such set") };
        let id = set.id;
        let found = set.recipes.iter().find(|r| r.name == recipe);
        let Some(recipe) = found.filter(|_| attempt.is_none_or(|a| a == set.attempt)) else {
            return self.ignore("stale: about an earlier attempt");
        };
        let (true, Some(place)) = (recipe.state.is_active(), recipe.system) else {
            return self.ignore("stale: about an earlier attempt");
        };
        let why = format!("power failure on {}", self.systems[place].name);
        self.fail(id, why, Some(place));
        self.change_condition(place, Condition::Broken);
    }

    pub(super) fn extend(&mut self, set: &str, by: Time, request: Option<u64>) {
        let Some(set) = self.set(set) else { return self.ignore("no-op: no such set") };
        if set.is_final() {
            return self.ignore("no-op: already finished");
        }
        if set.is_waiting() {
            return self.refuse("not started");
        }
        if request.is_some_and(|r| r <= set.request) {
            return self.ignore("duplicate ignored");
        }
        let id = set.id;
        let most = set.run.unwrap_or(self.settings.run_max).saturating_mul(self.settings.extension);
        let answer = if set.extended.saturating_add(by) > most {
            Err("longer than a set may be extended".to_owned())
        } else {
            self.delayed_by(id, set.hard_end().saturating_add(by))
                .map_or(Ok(()), |other| Err(format!("would delay {}", self.name_of(other))))
        };
        let Some(set) = self.sets.get_mut(&id) else { return };
        set.request = request.unwrap_or(set.request);
        if let Err(why) = answer {
            return self.refuse(why);
        }
        set.extended += by;
        for recipe in set.recipes.iter_mut().filter(|r| r.state.is_active()) {
            recipe.hard_end = recipe.hard_end.saturating_add(by);
        }
        self.touch_set(id);
        self.effects.push(Effect::Granted);
    }

    /// A set that was let before its turn keeps the promises that it crossed.
    fn delayed_by(&self, id: SetId, end: Time) -> Option<SetId> {
        let set = self.sets.get(&id)?;
        let waits = |other: &SetId| {
            let promise = self.planner.promise(*other, self.now)?;
            let plan = self.planner.plan(*other)?;
            let on_it = set
                .recipes
                .iter()
                .filter_map(|r| r.system)
                .any(|place| plan.systems.contains(&self.number[place]));
            // Cleaning comes after the end, and the promise counts it.
            let clean = end.saturating_add(self.settings.release.unwrap_or(0));
            (on_it && clean > promise).then_some(*other)
        };
        set.crossed.iter().find_map(|(other, _)| waits(other))
    }

    /// The systems of a set have another end than before.
    pub(super) fn touch_set(&mut self, id: SetId) {
        if let Some(set) = self.sets.get(&id) {
            self.touched.extend(set.recipes.iter().filter_map(|r| r.system));
        }
    }
}
