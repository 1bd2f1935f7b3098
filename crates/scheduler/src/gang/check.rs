//! The invariants I1 to I13 as functions that name what is wrong; replay (I14) is compared by whoever has the log.
//!
//! For tests, the model checker and the simulator. Everything is derived anew from the desk's state, with the matching as
//! the only shared part. In words of the reference: I1 one system per recipe, I2 gangs move as one, I3 one lab, I4 usage
//! mirrors recipes, I5 no missed start, I6 nothing pending, I7 earmarks are matchings, I8 the first gang has a plan, I9
//! backfill keeps promises, I10 promises do not rise, I11 nobody was passed who could start, I12 rows tile time, I13
//! what is over stays over.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::bits::Bits;
use super::desk::{Desk, Effect, Event, Set};
use super::matching::{self, Choice};
use super::rank::{Rank, Standing};
use super::words::{Condition, State, Usage};
use super::{SetId, Time, usage};

/// What is wrong in a state, in words; nothing if all is well.
pub fn check(desk: &Desk) -> Vec<String> {
    let mut wrong = Vec::new();
    binding(desk, &mut wrong);
    mirrors(desk, &mut wrong);
    earmarks(desk, &mut wrong);
    starts(desk, &mut wrong);
    wrong
}

/// What is wrong with the history of usage (I12).
pub fn check_rows(desk: &Desk) -> Vec<String> {
    usage::gaps(desk.book().rows()).into_iter().map(|w| format!("I12: {w}")).collect()
}

fn binding(desk: &Desk, wrong: &mut Vec<String>) {
    let mut owner: BTreeMap<usize, &str> = BTreeMap::new();
    for set in desk.sets.values() {
        let name = &set.name;
        let early = set.recipes.iter().filter(|r| r.state.is_waiting()).count();
        let cancelled_early = set.is_final();
        if early != 0 && early != set.recipes.len() && !cancelled_early {
            wrong.push(format!("I2: recipes of {name} are on both sides of scheduled"));
        }
        let mut labs: Vec<&str> = Vec::new();
        for (index, recipe) in set.recipes.iter().enumerate() {
            match recipe.system {
                Some(place) => {
                    if let Some(other) = owner.insert(place, name) {
                        wrong.push(format!("I1: {} has {other} and {name}", desk.systems[place].name));
                    }
                    if desk.systems[place].bound != Some((set.id, index)) {
                        wrong.push(format!("I1: {} does not know {name}", desk.systems[place].name));
                    }
                    labs.push(&desk.systems[place].lab);
                    if recipe.state.is_waiting() || set.is_final() {
                        wrong.push(format!("I1: {name} is {} and has a system", recipe.state));
                    }
                }
                None if recipe.state.is_active() => {
                    wrong.push(format!("I1: {name} is {} without a system", recipe.state));
                }
                None => {}
            }
        }
        labs.dedup();
        if labs.len() > 1 {
            wrong.push(format!("I3: {name} is in {}", labs.join(" and ")));
        }
        // The promise was kept track of at the start; extensions may not go beyond it either.
        let clean = desk.settings.release.unwrap_or(0);
        for (other, _) in &set.crossed {
            let numbers: Vec<usize> =
                set.recipes.iter().filter_map(|r| r.system).map(|p| desk.number[p]).collect();
            let Some(plan) = desk.planner.plan(*other) else { continue };
            let Some(promise) = desk.planner.promise(*other, 0) else { continue };
            if plan.systems.iter().any(|s| numbers.contains(s)) && set.hard_end() + clean > promise {
                wrong.push(format!("I9: {name} ends after the promise to {}", desk.name_of(*other)));
            }
        }
        if set.crossed.iter().any(|(_, promise)| set.extended == 0 && set.hard_end() + clean > *promise) {
            wrong.push(format!("I9: {name} was let before its turn for too long"));
        }
    }
    for system in &desk.systems {
        let Some((id, index)) = system.bound else { continue };
        let known = desk.sets.get(&id).and_then(|s| s.recipes[index].system);
        if known.is_none_or(|place| desk.systems[place].name != system.name) {
            wrong.push(format!("I1: {} is bound to a recipe that does not know it", system.name));
        }
    }
}

fn mirrors(desk: &Desk, wrong: &mut Vec<String>) {
    for (place, system) in desk.systems.iter().enumerate() {
        let name = &system.name;
        let usage = system.usage;
        let recipe = system.bound.and_then(|(id, i)| desk.sets.get(&id).map(|s| &s.recipes[i]));
        let expected = recipe.and_then(|r| r.state.usage());
        if expected.is_some_and(|e| e != usage) {
            wrong.push(format!("I4: {name} is {usage}, its recipe is not"));
        }
        if system.is_free() && !matches!(usage, Usage::Idle | Usage::Pending) {
            wrong.push(format!("I4: {name} is {usage} and nobody has it"));
        }
        let gone = matches!(system.condition, Condition::Broken | Condition::Removed);
        if let Some(recipe) = recipe.filter(|_| gone)
            && matches!(recipe.state, State::Scheduled | State::Waiting)
            && (recipe.force.is_none() || system.condition == Condition::Removed)
        {
            wrong.push(format!("I4: {name} is {} and {usage}", system.condition));
        }
        let enabled = desk.labs.get(&system.lab).is_some_and(|l| l.enabled);
        if usage == Usage::Pending && (enabled || system.condition != Condition::Automated) {
            wrong.push(format!("I6: {name} is pending"));
        }
        let open = desk.book.open(place);
        let told = open.map(|r| (r.condition, r.usage, r.recipe, r.earmark));
        let earmark = desk.planner.earmark(desk.number[place]);
        if told != Some((system.condition, usage, system.bound, earmark)) {
            wrong.push(format!("I12: the open row of {name} says something else"));
        }
    }
}

fn earmarks(desk: &Desk, wrong: &mut Vec<String>) {
    let mut by_owner: BTreeMap<SetId, Vec<usize>> = BTreeMap::new();
    for number in 0..desk.by_name.len() {
        if let Some(owner) = desk.planner.earmark(number) {
            by_owner.entry(owner).or_default().push(number);
        }
    }
    for set in desk.sets.values() {
        let assigned = set.recipes.iter().all(|r| r.state == State::Assigned);
        let marked = by_owner.remove(&set.id).unwrap_or_default();
        if !assigned {
            if !marked.is_empty() {
                wrong.push(format!("I7: {} has earmarks and is not assigned", set.name));
            }
            continue;
        }
        let Some(plan) = desk.planner.plan(set.id) else {
            wrong.push(format!("I7: {} is assigned without a plan", set.name));
            continue;
        };
        let mut planned = plan.systems.clone();
        planned.sort_unstable();
        let viable = plan.systems.iter().zip(&set.recipes).all(|(number, recipe)| {
            let place = desk.by_name[*number];
            desk.is_viable(set, recipe, place) && desk.lab_number(&desk.systems[place].lab) == plan.lab
        });
        planned.dedup();
        if planned != marked || planned.len() != set.recipes.len() || !viable {
            wrong.push(format!("I7: the earmarks of {} are no matching", set.name));
        }
    }
    if !by_owner.is_empty() {
        wrong.push("I7: earmarks of sets that do not exist".to_owned());
    }
}

/// Whether one lab holds the whole set within `among`.
fn fits(desk: &Desk, set: &Set, among: &Bits) -> bool {
    let Some(want) = desk.planner.want(set.id) else { return false };
    desk.labs.keys().any(|lab| {
        let here: Bits = among.ones().filter(|n| desk.systems[desk.by_name[*n]].lab == *lab).collect();
        let seats: Vec<Choice<'_>> =
            want.seats.iter().map(|s| Choice { can: s.viable.and(&here), prefer: &[] }).collect();
        !here.is_empty() && matching::exists(&seats, &|_| 1)
    })
}

fn rank(desk: &Desk, set: &Set) -> Rank {
    let (class, _) = set.class.aged(set.submitted, desk.now, desk.settings.rules.quantum);
    Rank { class: Reverse(class), standing: Standing::Age, submitted: set.submitted, id: set.id }
}

/// Systems that are free, or were taken by `also`, and are not earmarked for a set better than `rank`.
fn open_to(desk: &Desk, place: Rank, also: &[(usize, Rank)]) -> Bits {
    let better = |owner: SetId| desk.sets.get(&owner).is_some_and(|s| rank(desk, s) < place);
    (0..desk.by_name.len())
        .filter(|n| {
            let free = desk.systems[desk.by_name[*n]].is_free();
            free || also.iter().any(|(system, taker)| system == n && *taker > place)
        })
        .filter(|n| !desk.planner.earmark(*n).is_some_and(better))
        .collect()
}

fn starts(desk: &Desk, wrong: &mut Vec<String>) {
    let all: Bits = (0..desk.by_name.len()).collect();
    let mut waiting: Vec<&Set> = desk.sets.values().filter(|s| s.is_waiting()).collect();
    waiting.sort_by_key(|s| rank(desk, s));
    let mut first_gang = true;
    for set in waiting {
        let place = rank(desk, set);
        if desk.planner.rank_of(set.id) != Some(place) {
            wrong.push(format!("I5: the planner has another rank for {}", set.name));
        }
        if fits(desk, set, &open_to(desk, place, &[])) {
            wrong.push(format!("I5: {} could start", set.name));
        }
        if set.recipes.len() > 1 && fits(desk, set, &all) {
            if first_gang && desk.settings.rules.depth > 0 && desk.planner.plan(set.id).is_none() {
                wrong.push(format!("I8: {} is the first gang and has no plan", set.name));
            }
            first_gang = false;
        }
        let unsat = !fits(desk, set, &all);
        if unsat != set.unsat_since.is_some() {
            wrong.push(format!("{}: unsatisfiable is {unsat}, and the set says otherwise", set.name));
        }
    }
}

/// Looks at one step after the other, for what no single state shows.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    promises: BTreeMap<SetId, Time>,
    finals: BTreeMap<SetId, String>,
}

impl Watch {
    /// What the step did wrong (I3 at commit, I10, I11, I13).
    pub fn after(&mut self, desk: &Desk, event: &Event, effects: &[Effect]) -> Vec<String> {
        let mut wrong = Vec::new();
        started(desk, event, effects, &mut wrong);
        self.promises_hold(desk, event, effects, &mut wrong);
        let finals: BTreeMap<SetId, String> =
            desk.sets.values().filter(|s| s.is_final()).map(|s| (s.id, desk.show_set(s))).collect();
        for (id, was) in &self.finals {
            if desk.sets.contains_key(id) && finals.get(id) != Some(was) {
                wrong.push(format!("I13: {was} was over and is not the same now"));
            }
        }
        self.finals = finals;
        wrong
    }

    fn promises_hold(&mut self, desk: &Desk, event: &Event, effects: &[Effect], wrong: &mut Vec<String>) {
        let promise = |s: &Set| desk.planner.promise(s.id, desk.now).map(|p| (s.id, p));
        let promises: BTreeMap<SetId, Time> = desk.sets.values().filter_map(promise).collect();
        // A step that is no machine's report and no request of a user is somebody's intervention. Cleaning that began
        // late ends late.
        let plain = matches!(
            event,
            Event::Submit(_) | Event::Cancel { .. } | Event::Progress { .. } | Event::Clock | Event::Sweep
        );
        let moved = effects.iter().any(|e| {
            matches!(
                e,
                Effect::Overrode { .. } | Effect::TookOver { .. } | Effect::Repaired { .. } | Effect::Granted
            )
        });
        if plain && !moved && desk.settings.release.is_none() {
            for (id, now) in &promises {
                if self.promises.get(id).is_some_and(|was| now > was && *now > desk.now) {
                    wrong.push(format!("I10: the promise to {} rose", desk.name_of(*id)));
                }
            }
        }
        self.promises = promises;
    }
}

fn started(desk: &Desk, event: &Event, effects: &[Effect], wrong: &mut Vec<String>) {
    let starts = effects.iter().filter_map(|e| match e {
        Effect::Started { id, .. } => desk.sets.get(id).filter(|s| !s.is_waiting() && !s.is_final()),
        _ => None,
    });
    let mut taken: Vec<(usize, Rank)> = Vec::new();
    for set in starts {
        for recipe in &set.recipes {
            let Some(place) = recipe.system else { continue };
            let lab = desk.labs.get(&desk.systems[place].lab);
            let holds = lab.is_some_and(|l| {
                l.enabled
                    && (recipe.own_tree || l.trees.contains(&recipe.tree))
                    && recipe.guests.iter().all(|g| l.trees.contains(&g.tree))
            });
            if !holds {
                wrong.push(format!("I3: {} started in a lab without its trees", set.name));
            }
            taken.push((desk.number[place], rank(desk, set)));
        }
    }
    // The sweep makes several passes in one step: what it frees after one start would count against that start.
    if taken.is_empty() || matches!(event, Event::Sweep) {
        return;
    }
    for set in desk.sets.values().filter(|s| s.is_waiting()) {
        let place = rank(desk, set);
        if taken.iter().any(|(_, taker)| *taker > place) && fits(desk, set, &open_to(desk, place, &taken)) {
            wrong.push(format!("I11: {} could have started and was passed", set.name));
        }
    }
}
