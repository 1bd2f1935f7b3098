//! The notation of the scenarios: sets and systems as short strings that can be compared to the letter.

use super::state::{Desk, Recipe, Set, System};
use crate::gang::words::{Condition, State};

impl Desk {
    /// `X assigned@L1[A,B]`, `X queued(unsat)`, `X x1 completed,x2 running@B`.
    pub fn show_set(&self, set: &Set) -> String {
        let name = &set.name;
        let first = set.recipes.first().map_or(State::New, |r| r.state);
        if set.recipes.iter().any(|r| r.state != first) {
            let parts: Vec<String> = set
                .recipes
                .iter()
                .map(|r| match self.system_name(r).filter(|_| r.state.is_active()) {
                    Some(system) => format!("{} {}@{system}", r.name, r.state),
                    None => format!("{} {}", r.name, r.state),
                })
                .collect();
            return format!("{name} {}{}", parts.join(","), guests(set));
        }
        let rest = match first {
            State::Assigned => {
                let plan = self.planner.plan(set.id);
                let lab = plan.and_then(|p| self.labs.keys().nth(p.lab as usize));
                let systems: Vec<&str> = plan
                    .iter()
                    .flat_map(|p| &p.systems)
                    .map(|n| self.systems[self.by_name[*n]].name.as_str())
                    .collect();
                format!("@{}[{}]", lab.map_or("?", String::as_str), systems.join(","))
            }
            State::Queued if set.unsat_since.is_some() => "(unsat)".to_owned(),
            state if state.is_active() => {
                let systems: Vec<&str> = set.recipes.iter().filter_map(|r| self.system_name(r)).collect();
                format!("@{}", systems.join(","))
            }
            _ => String::new(),
        };
        format!("{name} {first}{rest}{}", guests(set))
    }

    fn system_name(&self, recipe: &Recipe) -> Option<&str> {
        recipe.system.map(|place| self.systems[place].name.as_str())
    }

    /// `A idle*X`, `B running/Broken`.
    pub fn show_system(&self, system: &System) -> String {
        let place = self.place_of(&system.name);
        let owner = place.and_then(|p| self.planner.earmark(self.number[p])).filter(|_| system.is_free());
        let earmark = owner.map(|id| format!("*{}", self.name_of(id))).unwrap_or_default();
        let condition = match system.condition {
            Condition::Automated => String::new(),
            other => format!("/{other}"),
        };
        format!("{} {}{earmark}{condition}", system.name, system.usage)
    }
}

fn guests(set: &Set) -> String {
    let guests: Vec<String> =
        set.recipes.iter().flat_map(|r| &r.guests).map(|g| format!("{} {}", g.name, g.state)).collect();
    if guests.is_empty() { String::new() } else { format!(" {{{}}}", guests.join(",")) }
}
