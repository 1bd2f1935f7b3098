//! The consistency sweep: repair only. Whatever it finds is counted; what it starts is a wake-up that some event forgot.

use super::event::Effect;
use super::state::Desk;
use crate::gang::SetId;
use crate::gang::words::{Condition, State, Usage};

impl Desk {
    pub(super) fn sweep(&mut self) {
        // Time may have passed since the last event, and what that brings about is no fault.
        self.pass();
        self.look_for_lost_wakeups();
        self.repair_systems();
        self.repair_sets();
    }

    fn look_for_lost_wakeups(&mut self) {
        let before = self.effects.len();
        let full = std::mem::replace(&mut self.settings.full_pass, true);
        self.pass();
        self.settings.full_pass = full;
        let started: Vec<String> = self.effects[before..]
            .iter()
            .filter_map(|e| if let Effect::Started { set, .. } = e { Some(set.clone()) } else { None })
            .collect();
        for set in started {
            self.lost_wakeups += 1;
            assert!(!self.settings.alarm, "lost wake-up: {set} was started by the sweep");
            self.effects.push(Effect::LostWakeUp { set });
        }
    }

    fn repaired(&mut self, what: String) {
        self.repairs += 1;
        self.effects.push(Effect::Repaired { what });
    }

    fn repair_systems(&mut self) {
        for place in 0..self.systems.len() {
            let system = &self.systems[place];
            let name = system.name.clone();
            if let Some((id, index)) = system.bound {
                let holder = self.sets.get(&id).filter(|s| s.recipes[index].system == Some(place));
                let Some(set) = holder.filter(|s| !s.is_final()) else {
                    self.repaired(format!("{name} was bound to a set that is over"));
                    self.release(place);
                    continue;
                };
                if let Some(usage) = set.recipes[index].state.usage().filter(|u| *u != system.usage) {
                    self.repaired(format!("{name} {} -> {usage}", system.usage));
                    self.set_usage(place, usage);
                }
            } else if system.is_free() {
                let rests = match system.usage {
                    Usage::Idle => true,
                    // The pass before this left no pending system in a lab that is on.
                    Usage::Pending => system.condition == Condition::Automated,
                    _ => false,
                };
                if !rests {
                    self.repaired(format!("{name} {} -> idle", system.usage));
                    self.offer(place);
                }
            }
            let system = &self.systems[place];
            let trees: std::collections::BTreeSet<&String> = system.suspicions.iter().collect();
            if trees.len() >= 2 && system.condition == Condition::Automated {
                self.repaired(format!("{name} Broken after a run of suspicious aborts"));
                self.change_condition(place, Condition::Broken);
            }
        }
    }

    fn repair_sets(&mut self) {
        let ids: Vec<SetId> = self.sets.values().filter(|s| !s.is_final()).map(|s| s.id).collect();
        for id in ids {
            let Some(set) = self.sets.get(&id) else { continue };
            if set.is_waiting() {
                if set.unsat_since.is_some_and(|s| self.now.saturating_sub(s) >= self.settings.grace) {
                    self.abort(id, "no viable systems for the grace period".to_owned());
                }
                continue;
            }
            let homeless = set.recipes.iter().position(|r| r.state.is_active() && r.system.is_none());
            if let Some(index) = homeless {
                let why = format!("{} had no system", set.recipes[index].name);
                self.repaired(why.clone());
                self.fail(id, why, None);
                continue;
            }
            self.watch(id);
        }
    }

    /// The watchdog: in a gang it waits until all recipes are late, unless the set asks otherwise.
    fn watch(&mut self, id: SetId) {
        let Some(set) = self.sets.get(&id) else { return };
        let late = |i: &usize| {
            let recipe = &set.recipes[*i];
            let guests = recipe.guests.iter().any(|g| !g.state.is_final());
            (recipe.state.is_active() || guests) && recipe.hard_end <= self.now
        };
        let late: Vec<usize> = (0..set.recipes.len()).filter(late).collect();
        let open = set
            .recipes
            .iter()
            .filter(|r| r.state.is_active() || r.guests.iter().any(|g| !g.state.is_final()))
            .count();
        if late.is_empty() {
            return;
        }
        if late.len() == open {
            return self.abort(id, "watchdog expired".to_owned());
        }
        if set.strict_watchdog {
            for index in late {
                self.end_recipe(id, index, State::Aborted);
                self.abort_guests(id, index);
            }
            self.close_set(id);
        }
    }

    fn abort_guests(&mut self, id: SetId, index: usize) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        for guest in &mut set.recipes[index].guests {
            if !guest.state.is_final() {
                guest.state = State::Aborted;
            }
        }
    }
}
