//! Systems and labs: they come, change, break and go. Each of these may let a waiting set start, so each ends in a pass.

use super::event::SystemSpec;
use super::state::{Desk, Lab, System};
use crate::gang::planner;
use crate::gang::words::{Condition, State, Usage};

/// Systems that a desk may have.
const SYSTEMS_MAX: usize = 100_000;

impl Desk {
    pub(super) fn add_lab(&mut self, name: &str, trees: &std::collections::BTreeSet<String>) {
        if !self.labs.contains_key(name) {
            self.planner.insert_lab(self.lab_number(name));
            self.labs.insert(name.to_owned(), Lab::default());
        }
        let Some(lab) = self.labs.get_mut(name) else { return };
        lab.enabled = true;
        lab.trees.extend(trees.iter().cloned());
        self.reviable = true;
    }

    pub(super) fn enable_lab(&mut self, name: &str, enabled: bool) {
        let Some(lab) = self.labs.get_mut(name) else { return self.ignore("no-op: no such lab") };
        lab.enabled = enabled;
        self.reviable = true;
    }

    pub(super) fn remove_lab(&mut self, name: &str) {
        let Some(lab) = self.labs.get_mut(name) else { return self.ignore("no-op: no such lab") };
        *lab = Lab::default();
        self.reviable = true;
    }

    pub(super) fn change_tree(&mut self, name: &str, tree: &str, present: bool) {
        let Some(lab) = self.labs.get_mut(name) else { return self.ignore("no-op: no such lab") };
        if present {
            lab.trees.insert(tree.to_owned());
        } else {
            lab.trees.remove(tree);
        }
        self.reviable = true;
    }

    pub(super) fn add_system(&mut self, spec: &SystemSpec) {
        if !self.labs.contains_key(&spec.lab) {
            return self.refuse("no such lab");
        }
        self.reviable = true;
        if let Some(place) = self.place_of(&spec.name) {
            if self.systems[place].condition != Condition::Removed {
                return self.ignore("duplicate ignored");
            }
            if self.systems[place].is_free() {
                self.systems[place].lab.clone_from(&spec.lab);
            }
            let system = &mut self.systems[place];
            system.tags.clone_from(&spec.tags);
            system.numbers.clone_from(&spec.numbers);
            return self.change_condition(place, spec.condition);
        }
        if self.systems.len() >= SYSTEMS_MAX {
            return self.refuse("too many systems");
        }
        let place = self.systems.len();
        self.systems.push(System {
            name: spec.name.clone(),
            lab: spec.lab.clone(),
            tags: spec.tags.clone(),
            numbers: spec.numbers.clone(),
            condition: spec.condition,
            usage: Usage::Idle,
            loan: None,
            users: None,
            bound: None,
            held: None,
            releasing: None,
            suspicions: Vec::new(),
        });
        let at = self.by_name.partition_point(|s| self.systems[*s].name < spec.name);
        self.by_name.insert(at, place);
        self.number = vec![0; self.systems.len()];
        for (number, place) in self.by_name.iter().enumerate() {
            self.number[*place] = number;
        }
        let lab = self.lab_number(&spec.lab);
        self.planner.insert_system(at, planner::System { lab, free: 1, size: 1, hard_end: 0 });
        self.offer(place);
    }

    pub(super) fn with_system(&mut self, name: &str, change: impl FnOnce(&mut Self, usize)) {
        match self.place_of(name) {
            Some(place) => change(self, place),
            None => self.ignore("no-op: no such system"),
        }
    }

    pub(super) fn change_condition(&mut self, place: usize, condition: Condition) {
        let system = &mut self.systems[place];
        if system.condition == condition {
            return;
        }
        system.condition = condition;
        system.suspicions.clear();
        let name = system.name.clone();
        self.reviable = true;
        if self.systems[place].is_free() {
            return self.offer(place);
        }
        self.write_row(place);
        let revoked = matches!(condition, Condition::Broken | Condition::Removed);
        let Some((id, index)) = self.systems[place].bound.filter(|_| revoked) else { return };
        let Some(recipe) = self.sets.get(&id).and_then(|s| s.recipes.get(index)) else { return };
        // Whoever forces a system knows what it is; it must be there, though.
        let forced = recipe.force.is_some() && condition != Condition::Removed;
        if matches!(recipe.state, State::Scheduled | State::Waiting) && !forced {
            self.fail(id, format!("{name} {condition}"), None);
        }
    }

    pub(super) fn move_system(&mut self, place: usize, lab: &str) {
        if !self.labs.contains_key(lab) {
            return self.refuse("no such lab");
        }
        if !self.systems[place].is_free() {
            return self.refuse("in use");
        }
        lab.clone_into(&mut self.systems[place].lab);
        self.touched.insert(place);
        self.reviable = true;
    }
}
