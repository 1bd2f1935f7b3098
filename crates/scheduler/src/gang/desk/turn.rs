//! What every event does: its own change, then one pass to the end, so that nothing startable is ever left waiting for
//! another event.

use std::sync::Arc;

use super::event::{Effect, Event};
use super::state::{Desk, Recipe, Set};
use crate::gang::bits::Bits;
use crate::gang::planner::{self, Decision, Reason, Seat, Standing, Start, Want};
use crate::gang::words::{Condition, State, Usage};
use crate::gang::{FOREVER, SetId, Time};

impl Desk {
    /// One event, to its end.
    pub fn handle(&mut self, now: Time, event: &Event) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.expire();
        self.change(event);
        self.pass();
        std::mem::take(&mut self.effects)
    }

    fn change(&mut self, event: &Event) {
        match event {
            Event::Submit(spec) => self.submit(spec),
            Event::LabAdded { lab, trees } => self.add_lab(lab, trees),
            Event::LabEnabled { lab, enabled } => self.enable_lab(lab, *enabled),
            Event::LabRemoved { lab } => self.remove_lab(lab),
            Event::Tree { lab, tree, present } => self.change_tree(lab, tree, *present),
            Event::SystemAdded(spec) => self.add_system(spec),
            Event::Condition { system, condition } => {
                self.with_system(system, |desk, place| desk.change_condition(place, *condition));
            }
            Event::Moved { system, lab } => {
                self.with_system(system, |desk, place| desk.move_system(place, lab));
            }
            Event::Edited { system, tags, numbers } => self.with_system(system, |desk, place| {
                desk.systems[place].tags.clone_from(tags);
                desk.systems[place].numbers.clone_from(numbers);
                desk.reviable = true;
            }),
            Event::Access { system, users } => self.with_system(system, |desk, place| {
                desk.systems[place].users.clone_from(users);
                desk.reviable = true;
            }),
            Event::Loan { system, to } => self.with_system(system, |desk, place| {
                desk.systems[place].loan.clone_from(to);
                desk.reviable = true;
            }),
            Event::Reserve { system, user, span } => {
                self.with_system(system, |desk, place| desk.reserve(place, user, *span));
            }
            Event::Provision { system } => {
                self.with_system(system, |d, p| d.install(p, Usage::Running, Usage::Waiting));
            }
            Event::InstallSeen { system } => {
                self.with_system(system, |d, p| d.install(p, Usage::Waiting, Usage::Installing));
            }
            Event::InstallDone { system } => {
                self.with_system(system, |d, p| d.install(p, Usage::Installing, Usage::Running));
            }
            Event::Returned { system } => self.with_system(system, Self::give_back),
            Event::Cancel { set } => self.cancel(set),
            Event::Priority { set, class } => self.prioritise(set, *class),
            Event::Progress { set, recipe, attempt, step } => {
                self.progress(set, recipe.as_deref(), *attempt, *step);
            }
            Event::ReservationOver { set, recipe } => self.reservation_over(set, recipe.as_deref()),
            Event::PowerFailure { set, recipe, attempt } => self.power_failure(set, recipe, *attempt),
            Event::Extend { set, by, request } => self.extend(set, *by, *request),
            Event::Released { system } => self.with_system(system, |desk, place| {
                if desk.systems[place].releasing.is_some() {
                    desk.offer(place);
                } else {
                    desk.ignore("duplicate ignored");
                }
            }),
            Event::Clock => {}
            Event::Sweep => self.sweep(),
            Event::Corrupt { system, usage } => {
                self.with_system(system, |desk, place| desk.set_usage(place, *usage));
            }
        }
    }

    /// What time alone brings about.
    fn expire(&mut self) {
        let now = self.now;
        for place in 0..self.systems.len() {
            if self.systems[place].releasing.is_some_and(|until| until <= now) {
                self.offer(place);
            }
            if self.systems[place].held.as_ref().is_some_and(|(_, until)| *until <= now) {
                self.release(place);
            }
        }
        let mut over = Vec::new();
        let mut late = Vec::new();
        for set in self.sets.values_mut() {
            let before = set.excluded.len();
            set.excluded.retain(|_, until| *until > now);
            if set.excluded.len() < before && set.is_waiting() {
                self.rewant.insert(set.id);
            }
            for (index, recipe) in set.recipes.iter().enumerate() {
                if recipe.state == State::Reserved && recipe.hard_end <= now {
                    over.push((set.id, index));
                } else if recipe.state.is_active() && !set.crossed.is_empty() && recipe.hard_end < now {
                    late.push(set.id);
                }
            }
        }
        for (id, index) in over {
            self.end_recipe(id, index, State::Completed);
            self.close_set(id);
        }
        // Somebody was promised its systems: no waiting for the sweep.
        late.dedup();
        for id in late {
            self.abort(id, "backfilled, and over its time".to_owned());
        }
    }

    /// The pass over what has changed, and what it decides.
    pub(super) fn pass(&mut self) {
        self.tell_planner();
        let decisions = if self.settings.full_pass {
            self.planner.pass_all(self.now)
        } else {
            self.planner.pass(self.now)
        };
        for decision in decisions {
            self.carry_out(decision);
        }
        self.settle();
    }

    pub(super) fn tell_planner(&mut self) {
        for place in std::mem::take(&mut self.touched) {
            let system = &self.systems[place];
            let free = u32::from(system.is_free());
            let lab = self.lab_number(&system.lab);
            let hard_end = self.hard_end(place);
            self.planner.set_system(self.number[place], planner::System { lab, free, size: 1, hard_end });
        }
        let rewant = std::mem::take(&mut self.rewant);
        let ids: Vec<SetId> = if std::mem::take(&mut self.reviable) {
            self.sets.values().filter(|s| s.is_waiting()).map(|s| s.id).collect()
        } else {
            rewant.into_iter().collect()
        };
        for id in ids {
            if let Some(set) = self.sets.get(&id).filter(|s| s.is_waiting()) {
                let want = self.want(set);
                self.planner.put(want, self.now);
            }
        }
    }

    /// When a system is there for others at the latest.
    pub(in crate::gang) fn hard_end(&self, place: usize) -> Time {
        let system = &self.systems[place];
        let clean = self.settings.release.unwrap_or(0);
        if let Some(until) = system.releasing {
            return until;
        }
        if let Some((_, until)) = &system.held {
            return until.saturating_add(clean);
        }
        let Some((id, index)) = system.bound else { return 0 };
        let Some(set) = self.sets.get(&id) else { return FOREVER };
        let end = if set.early_release { set.recipes[index].hard_end } else { set.hard_end() };
        end.saturating_add(clean)
    }

    /// Whether a system may ever take a recipe as things stand; it may be busy.
    pub(in crate::gang) fn is_viable(&self, set: &Set, recipe: &Recipe, place: usize) -> bool {
        let system = &self.systems[place];
        let suits = match &recipe.force {
            Some(name) => *name == system.name && system.condition != Condition::Removed,
            None => system.condition == Condition::Automated && recipe.host.admits(&system.facts()),
        };
        let Some(lab) = self.labs.get(&system.lab) else { return false };
        suits
            && lab.enabled
            && (recipe.own_tree || lab.trees.contains(&recipe.tree))
            && recipe.guests.iter().all(|g| lab.trees.contains(&g.tree))
            && system.loan.as_ref().is_none_or(|to| *to == set.owner)
            && system.users.as_ref().is_none_or(|users| users.contains(&set.owner))
            && !set.excluded.contains_key(&place)
    }

    fn want(&self, set: &Set) -> Want {
        let bits = |holds: &dyn Fn(usize) -> bool| -> Arc<Bits> {
            Arc::new((0..self.by_name.len()).filter(|n| holds(self.by_name[*n])).collect())
        };
        let seat = |recipe: &Recipe| Seat {
            viable: bits(&|place| self.is_viable(set, recipe, place)),
            prefer: recipe
                .prefer
                .iter()
                .map(|tag| bits(&|p| self.systems[p].tags.contains(tag) || self.systems[p].name == *tag))
                .collect(),
        };
        let run = set.run.unwrap_or(self.settings.run_max).saturating_add(set.reserve);
        Want {
            id: set.id,
            class: set.class,
            standing: Standing::Age,
            ages: true,
            submitted: set.submitted,
            run: run.saturating_add(self.settings.release.unwrap_or(0)),
            may_backfill: set.run.is_some(),
            seats: set.recipes.iter().map(seat).collect(),
            labs: set
                .labs
                .iter()
                .filter(|l| self.labs.contains_key(*l))
                .map(|l| self.lab_number(l))
                .collect(),
            fits: None,
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start(start) => self.start(start),
            Decision::Assign { set: id, promise, overrode, .. } => {
                self.each_recipe(id, State::Assigned);
                let now = self.now;
                if let Some(mark) = self.book.mark_of(id)
                    && mark.promised.is_none()
                {
                    mark.promised = Some((now, promise));
                }
                if let Some(set) = self.sets.get_mut(&id) {
                    set.unsat_since = None;
                }
                let set = self.name_of(id);
                for (loser, number) in overrode {
                    let loser = self.name_of(loser);
                    let system = self.systems[self.by_name[number]].name.clone();
                    self.effects.push(Effect::Overrode { set: set.clone(), loser, system });
                }
            }
            Decision::Queue { set: id, reason } => {
                self.each_recipe(id, State::Queued);
                let now = self.now;
                if let Some(set) = self.sets.get_mut(&id) {
                    let unsat = reason == Reason::Unsatisfiable;
                    set.unsat_since = unsat.then(|| set.unsat_since.unwrap_or(now));
                }
            }
        }
    }

    fn each_recipe(&mut self, id: SetId, state: State) {
        let seats = self.sets.get(&id).map_or(0, |s| s.recipes.len());
        for index in 0..seats {
            self.move_recipe(id, index, state);
        }
    }

    fn start(&mut self, start: Start) {
        let id = start.set;
        let names = |ids: &mut dyn Iterator<Item = SetId>| ids.map(|i| self.name_of(i)).collect::<Vec<_>>();
        let crossed = names(&mut start.crossed.iter().map(|(i, _)| *i));
        let passed = names(&mut start.passed.iter().copied());
        let losers = names(&mut start.overrode.iter().map(|(i, _)| *i));
        let now = self.now;
        let places: Vec<usize> = start.systems.iter().map(|n| self.by_name[*n]).collect();
        let Some(set) = self.sets.get_mut(&id) else { return };
        let run = set.run.unwrap_or(self.settings.run_max).saturating_add(set.reserve);
        set.attempt += 1;
        set.unsat_since = None;
        set.crossed = start.crossed;
        if let Some(mark) = self.book.mark_of(id) {
            mark.started = mark.started.or(Some(now));
            mark.backfilled = !crossed.is_empty();
        }
        let (name, attempt) = (set.name.clone(), set.attempt);
        for (recipe, place) in set.recipes.iter_mut().zip(&places) {
            recipe.system = Some(*place);
            recipe.hard_end = now.saturating_add(run);
        }
        for (index, place) in places.iter().enumerate() {
            self.systems[*place].bound = Some((id, index));
            self.touched.insert(*place);
            self.move_recipe(id, index, State::Scheduled);
        }
        let systems = places.iter().map(|p| self.systems[*p].name.clone()).collect();
        for (loser, (_, number)) in losers.into_iter().zip(start.overrode) {
            let system = self.systems[self.by_name[number]].name.clone();
            self.effects.push(Effect::TookOver { set: name.clone(), loser, system });
        }
        self.effects.push(Effect::Started { set: name, id, attempt, systems, crossed, passed });
    }

    /// Systems that nobody took become idle, and rows show the earmarks.
    fn settle(&mut self) {
        for place in 0..self.systems.len() {
            let system = &self.systems[place];
            let decided = self.labs.get(&system.lab).is_some_and(|l| l.enabled);
            if system.usage == Usage::Pending && system.is_free() && decided {
                self.systems[place].usage = Usage::Idle;
            }
            self.write_row(place);
        }
        // The planner knows already what it started; this only makes sure that both have the same ends.
        self.tell_planner();
    }

    /// When something happens by time alone: the driver sends [`Event::Clock`] then.
    pub fn next_wake(&self) -> Option<Time> {
        let systems = self
            .systems
            .iter()
            .flat_map(|s| s.releasing.into_iter().chain(s.held.as_ref().map(|(_, until)| *until)));
        let sets = self.sets.values().filter(|s| !s.is_final()).flat_map(|s| {
            let waits = s.is_waiting();
            let excluded = s.excluded.values().copied().filter(move |_| waits);
            let reserved = s.recipes.iter().filter(|r| r.state == State::Reserved).map(|r| r.hard_end);
            let late = s.recipes.iter().filter(|r| !s.crossed.is_empty() && r.state.is_active());
            excluded.chain(reserved).chain(late.map(|r| r.hard_end.saturating_add(1)))
        });
        systems.chain(sets).chain(self.planner.next_edge()).filter(|t| *t < FOREVER).min()
    }
}
