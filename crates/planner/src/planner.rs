//! Who of the waiting sets starts, who gets a plan, who waits and why: one rank-ordered pass over plain data.
//!
//! A set is a gang of one or more seats that start together in one lab or not at all. The planner is told what systems
//! there are and what each seat may use; it keeps plans and earmarks between passes. It holds nothing for anybody: an
//! earmark is a promise that a better-ranked set takes back at no cost, so there is no hold-and-wait and no deadlock.
//! How a started set is carried out, what a recipe or a claim is, and where viability comes from is not known here.
//!
//! Systems are numbered by the caller, and among equals the least number wins: number them in the order of their names.
//! Both entries give the same decisions: [`Planner::pass_all`] visits every waiting set, [`Planner::pass`] only those
//! that the changes since the last pass can concern. The steps of a visit are in `visit`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bits::Bits;
use crate::rank::{Rank, Standing};
use crate::terms::{Decision, Fit, Plan, Reason, Rules, Seat, System, Want};
use crate::{FOREVER, SetId, Time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) want: Want,
    pub(super) rank: Rank,
    /// Every system that any seat may use.
    pub(super) meets: Bits,
    /// All seats are alike: places are only counted, not matched.
    pub(super) alike: bool,
    pub(super) plan: Option<Plan>,
    pub(super) reason: Option<Reason>,
    /// When aging lifts it next.
    edge: Option<Time>,
}

/// The planner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Planner {
    pub(super) rules: Rules,
    pub(super) systems: Vec<System>,
    pub(super) earmarks: Vec<Option<SetId>>,
    pub(super) free: Bits,
    /// Systems that will be empty at a known time.
    pub(super) ending: Bits,
    pub(super) labs: BTreeMap<u32, Bits>,
    pub(super) sets: BTreeMap<SetId, Entry>,
    pub(super) order: BTreeSet<Rank>,
    /// Sets with a plan.
    pub(super) planned: BTreeSet<SetId>,
    /// Sets that wait only because of the depth.
    pub(super) outside: BTreeSet<SetId>,
    /// System -> waiting sets that may use it.
    index: Vec<BTreeSet<SetId>>,
    edges: BTreeSet<(Time, SetId)>,
    pub(super) dirty_systems: BTreeSet<usize>,
    dirty_sets: BTreeSet<SetId>,
    dirty_depth: bool,
    /// Systems on which a set started in this pass and left room that only the caller can count.
    pub(super) stale: Bits,
    pub(super) todo: BTreeSet<Rank>,
    visits: u64,
}

impl Planner {
    /// Nothing to plan yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn add_system(&mut self, system: System) {
        let number = self.systems.len();
        self.systems.push(system);
        self.earmarks.push(None);
        self.index.push(BTreeSet::new());
        self.labs.entry(system.lab).or_default().set(number);
        self.note_system(number);
        self.dirty_systems.insert(number);
    }

    /// Keeps the sets of systems true for one.
    pub(super) fn note_system(&mut self, number: usize) {
        self.free.put(number, self.systems[number].free > 0);
        self.ending.put(number, self.has_end(number));
    }

    /// What is true of a system now. Systems are numbered without gaps.
    pub fn set_system(&mut self, number: usize, system: System) {
        let Some(before) = self.systems.get(number).copied() else {
            return self.add_system(system);
        };
        if before == system {
            return;
        }
        if before.lab != system.lab {
            if let Some(lab) = self.labs.get_mut(&before.lab) {
                lab.clear(number);
            }
            self.labs.entry(system.lab).or_default().set(number);
        }
        self.systems[number] = system;
        self.note_system(number);
        self.dirty_systems.insert(number);
    }

    /// How many systems there are.
    pub fn systems_known(&self) -> usize {
        self.systems.len()
    }

    /// Whether it is still so that a set may, or may not, use a system for any of its seats.
    pub fn agrees(&self, id: SetId, number: usize, viable: bool) -> bool {
        self.sets.get(&id).is_none_or(|e| e.meets.has(number) == viable)
    }

    /// How many of a set's seats a system takes, where the set has counts of its own.
    pub fn set_fit(&mut self, id: SetId, number: usize, fit: Fit) {
        let Some(fits) = self.sets.get_mut(&id).and_then(|e| e.want.fits.as_mut()) else { return };
        if fits.get(number).copied().unwrap_or(Fit { now: 0, empty: 0 }) == fit {
            return;
        }
        if number >= fits.len() {
            let mut longer = fits.to_vec();
            longer.resize(number + 1, Fit { now: 0, empty: 0 });
            *fits = longer.into();
        }
        Arc::make_mut(fits)[number] = fit;
        self.dirty_systems.insert(number);
    }

    /// Something about a system changed that only [`Want::fits`] shows.
    pub fn touch_system(&mut self, number: usize) {
        self.dirty_systems.insert(number);
    }

    /// The next pass visits this set, whatever has changed.
    pub fn touch_set(&mut self, id: SetId) {
        if self.sets.contains_key(&id) {
            self.dirty_sets.insert(id);
        }
    }

    /// A system is promised to nobody any more; whose plan it was in must be planned for anew.
    pub fn drop_earmark(&mut self, number: usize) {
        if let Some(owner) = self.earmarks.get_mut(number).and_then(Option::take) {
            self.touch_set(owner);
        }
        self.dirty_systems.insert(number);
    }

    /// A set waits, or what it wants has changed. A plan that it has is kept as long as it is good.
    pub fn put(&mut self, want: Want, now: Time) {
        let id = want.id;
        let before = self.sets.get(&id);
        if before.is_some_and(|b| b.want == want) {
            return;
        }
        let plan = before.and_then(|b| b.plan.clone());
        let reason = before.and_then(|b| b.reason);
        let old_rank = before.map(|b| b.rank);
        let mut meets = Bits::with_room(self.systems.len());
        let mut last: Option<&Arc<Bits>> = None;
        for seat in &want.seats {
            // Seats of one kind are next to each other, and have the same choice.
            if last.is_none_or(|l| !Arc::ptr_eq(l, &seat.viable)) {
                meets.add(&seat.viable);
            }
            last = Some(&seat.viable);
        }
        let first = want.seats.first();
        let like_first = |s: &Seat| first.is_some_and(|f| Arc::ptr_eq(&f.viable, &s.viable));
        let alike = want.seats.iter().all(|s| s.prefer.is_empty() && like_first(s));
        if let Some(entry) = self.sets.get(&id) {
            for system in entry.meets.ones() {
                if !meets.has(system)
                    && let Some(sets) = self.index.get_mut(system)
                {
                    sets.remove(&id);
                }
            }
            self.order.remove(&entry.rank);
            if let Some(edge) = entry.edge {
                self.edges.remove(&(edge, id));
            }
        }
        for system in meets.ones() {
            if let Some(sets) = self.index.get_mut(system) {
                sets.insert(id);
            }
        }
        let (rank, edge) = self.rank(&want, now);
        // Sets that were behind it may be before it now, and may take what is earmarked for it.
        if old_rank.is_some_and(|old| rank > old)
            && let Some(plan) = &plan
        {
            self.dirty_systems.extend(&plan.systems);
            self.dirty_depth = true;
        }
        self.order.insert(rank);
        self.edges.extend(edge.map(|e| (e, id)));
        self.sets.insert(id, Entry { want, rank, meets, alike, plan, reason, edge });
        self.dirty_sets.insert(id);
    }

    /// Where a set stands among those of its class has changed. Nobody is looked at again who stands behind the same as
    /// before: shares move all the time.
    pub fn set_standing(&mut self, id: SetId, standing: Standing, now: Time) {
        let Some(entry) = self.sets.get_mut(&id).filter(|e| e.want.standing != standing) else { return };
        entry.want.standing = standing;
        let (old, want) = (entry.rank, &self.sets[&id].want);
        let (rank, _) = self.rank(want, now);
        if rank == old {
            return;
        }
        self.order.remove(&old);
        let overtakes = self.order.range(old.min(rank)..old.max(rank)).next().is_some();
        self.order.insert(rank);
        let Some(entry) = self.sets.get_mut(&id) else { return };
        entry.rank = rank;
        if !overtakes {
            return;
        }
        let plan = entry.plan.as_ref().filter(|_| rank > old);
        if let Some(plan) = plan {
            // Sets that were behind it are before it now, and may take what is earmarked for it.
            self.dirty_systems.extend(&plan.systems);
            self.dirty_depth = true;
        }
        self.dirty_sets.insert(id);
    }

    /// A set no longer waits (or never will again). Its earmarks are dropped.
    pub fn remove(&mut self, id: SetId) {
        let Some(entry) = self.forget(id) else { return };
        if let Some(plan) = entry.plan {
            self.dirty_systems.extend(&plan.systems);
            self.dirty_depth = true;
        }
    }

    /// The pass over those sets that changes since the last pass can concern.
    pub fn pass(&mut self, now: Time) -> Vec<Decision> {
        self.age(now);
        let touched = self.gather_touched();
        self.run(touched, now)
    }

    /// The same until the first start, and no further than `before`: shares move with every start, and whoever is not
    /// visited is so in the next pass.
    pub fn pass_to_start(&mut self, now: Time, before: Option<Rank>) -> Vec<Decision> {
        self.age(now);
        let touched = self.gather_touched();
        self.begin(touched);
        let mut decisions = Vec::new();
        while let Some(rank) = self.todo.first().copied().filter(|r| before.is_none_or(|b| *r < b)) {
            self.todo.remove(&rank);
            self.visits += 1;
            decisions.extend(self.visit(rank.id, now));
            if matches!(decisions.last(), Some(Decision::Start(_))) {
                break;
            }
        }
        let left = std::mem::take(&mut self.todo);
        self.dirty_sets.extend(left.into_iter().map(|rank| rank.id));
        decisions
    }

    /// Sets that the changes since the last pass can concern.
    fn gather_touched(&self) -> BTreeSet<SetId> {
        let mut dirty = self.dirty_systems.clone();
        // A promise depends on all targets of a plan, and who may cross one target depends on the promise: a change of
        // one is a change of all.
        for id in &self.planned {
            let Some(plan) = self.sets.get(id).and_then(|e| e.plan.as_ref()) else { continue };
            if plan.systems.iter().any(|s| dirty.contains(s)) {
                dirty.extend(&plan.systems);
            }
        }
        let mut touched = self.dirty_sets.clone();
        for system in dirty {
            touched.extend(self.index.get(system).into_iter().flatten());
        }
        if self.dirty_depth {
            touched.extend(&self.outside);
        }
        touched
    }

    /// Is there something that a further pass would look at, also if nothing changes any more?
    pub fn is_due(&self) -> bool {
        !self.dirty_systems.is_empty() || !self.dirty_sets.is_empty() || self.dirty_depth
    }

    /// The same pass over every waiting set.
    pub fn pass_all(&mut self, now: Time) -> Vec<Decision> {
        self.age(now);
        let all = self.sets.keys().copied().collect();
        self.run(all, now)
    }

    fn begin(&mut self, touched: BTreeSet<SetId>) {
        self.dirty_sets.clear();
        self.dirty_systems.clear();
        self.dirty_depth = false;
        self.stale = Bits::default();
        self.todo = touched.iter().filter_map(|id| self.sets.get(id)).map(|e| e.rank).collect();
    }

    fn run(&mut self, touched: BTreeSet<SetId>, now: Time) -> Vec<Decision> {
        self.begin(touched);
        let mut decisions = Vec::new();
        // In rank order; a visit adds only sets behind the visited one, so each is visited once.
        while let Some(rank) = self.todo.pop_first() {
            self.visits += 1;
            decisions.extend(self.visit(rank.id, now));
        }
        decisions
    }

    fn rank(&self, want: &Want, now: Time) -> (Rank, Option<Time>) {
        let quantum = self.rules.quantum.filter(|_| want.ages);
        let (class, edge) = want.class.aged(want.submitted, now, quantum);
        // Whose turn has come keeps it in the class that it aged into.
        let keeps = class == want.class || matches!(want.standing, Standing::Turn(_));
        let standing = if keeps { want.standing } else { Standing::Age };
        (Rank { class: Reverse(class), standing, submitted: want.submitted, id: want.id }, edge)
    }

    fn age(&mut self, now: Time) {
        while let Some(&(edge, id)) = self.edges.first().filter(|(edge, _)| *edge <= now) {
            self.edges.remove(&(edge, id));
            let Some(entry) = self.sets.get(&id) else { continue };
            let (old, want) = (entry.rank, &entry.want);
            let (rank, next) = self.rank(want, now);
            self.order.remove(&old);
            self.order.insert(rank);
            self.edges.extend(next.map(|e| (e, id)));
            self.dirty_sets.insert(id);
            if let Some(entry) = self.sets.get_mut(&id) {
                (entry.rank, entry.edge) = (rank, next);
            }
        }
    }

    /// Takes a set out of every index and drops its earmarks.
    pub(super) fn forget(&mut self, id: SetId) -> Option<Entry> {
        self.drop_earmarks(id);
        let entry = self.sets.remove(&id)?;
        self.order.remove(&entry.rank);
        self.todo.remove(&entry.rank);
        self.outside.remove(&id);
        self.dirty_sets.remove(&id);
        if let Some(edge) = entry.edge {
            self.edges.remove(&(edge, id));
        }
        for system in entry.meets.ones() {
            if let Some(sets) = self.index.get_mut(system) {
                sets.remove(&id);
            }
        }
        Some(entry)
    }

    /// Drops what earmarks a set still has. Its plan is left to the caller.
    pub(super) fn drop_earmarks(&mut self, id: SetId) {
        self.planned.remove(&id);
        let Some(plan) = self.sets.get(&id).and_then(|e| e.plan.as_ref()) else { return };
        for system in &plan.systems {
            if self.earmarks[*system] == Some(id) {
                self.earmarks[*system] = None;
            }
        }
    }

    /// Sets behind `rank` that may use a system are to be visited in this pass.
    pub(super) fn touch_behind(&mut self, rank: Rank, systems: &[usize]) {
        for system in systems {
            for id in self.index.get(*system).into_iter().flatten() {
                let other = self.sets[id].rank;
                if other > rank {
                    self.todo.insert(other);
                }
            }
        }
    }

    /// A plan is gone: sets behind `rank` that were outside the depth may be inside.
    pub(super) fn touch_outside(&mut self, rank: Rank) {
        let ranks = self.outside.iter().filter_map(|id| self.sets.get(id)).map(|e| e.rank);
        self.todo.extend(ranks.filter(|r| *r > rank));
    }

    /// When a waiting set next changes class by age alone: a pass is due then.
    pub fn next_edge(&self) -> Option<Time> {
        self.edges.first().map(|(edge, _)| *edge)
    }

    /// Waiting sets, best first.
    pub fn queue(&self) -> impl Iterator<Item = SetId> + '_ {
        self.order.iter().map(|rank| rank.id)
    }

    /// A waiting set's place in the order.
    pub fn rank_of(&self, id: SetId) -> Option<Rank> {
        self.sets.get(&id).map(|e| e.rank)
    }

    /// What a waiting set wants.
    pub fn want(&self, id: SetId) -> Option<&Want> {
        self.sets.get(&id).map(|e| &e.want)
    }

    /// The plan of a set.
    pub fn plan(&self, id: SetId) -> Option<&Plan> {
        self.sets.get(&id).and_then(|e| e.plan.as_ref())
    }

    /// Sets with a plan.
    pub fn planned(&self) -> impl Iterator<Item = SetId> + '_ {
        self.planned.iter().copied()
    }

    /// Why a set waits without a plan.
    pub fn reason(&self, id: SetId) -> Option<Reason> {
        self.sets.get(&id).and_then(|e| e.reason)
    }

    /// For whom a system is earmarked.
    pub fn earmark(&self, system: usize) -> Option<SetId> {
        self.earmarks.get(system).copied().flatten()
    }

    /// A system.
    pub fn system(&self, number: usize) -> Option<System> {
        self.systems.get(number).copied()
    }

    /// The promise to a set: when it starts at the latest if nothing better comes along. `None` without a plan.
    pub fn promise(&self, id: SetId, now: Time) -> Option<Time> {
        let entry = self.sets.get(&id)?;
        let plan = entry.plan.as_ref()?;
        let mut latest = now;
        for (system, seats) in loads(&plan.systems) {
            if self.fit(&entry.want, system).now < seats {
                latest = latest.max(self.systems[system].hard_end);
            }
        }
        Some(latest)
    }

    /// How many sets were looked at since the beginning.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    pub(super) fn fit(&self, want: &Want, system: usize) -> Fit {
        if let Some(fits) = &want.fits {
            let fit = fits.get(system).copied().unwrap_or(Fit { now: 0, empty: 0 });
            let now = if self.stale.has(system) { 0 } else { fit.now };
            return Fit { now, empty: fit.empty };
        }
        let system = self.systems[system];
        Fit { now: system.free, empty: system.size }
    }

    /// Whether a system will be empty at a known time.
    pub(super) fn has_end(&self, system: usize) -> bool {
        let system = self.systems[system];
        system.free >= system.size || system.hard_end < FOREVER
    }
}

/// Systems, and how many seats each takes.
pub fn loads(systems: &[usize]) -> Vec<(usize, u32)> {
    let mut sorted = systems.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}
