//! One set's turn in a pass: start, else backfill, else plan, else wait with a reason.
//!
//! Everything here is decided from the set itself, the systems, and the plans of better-ranked sets; worse-ranked ones
//! are looked at only to take their earmarks away.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bits::Bits;
use crate::matching::{self, Choice};
use crate::planner::{Planner, loads};
use crate::rank::Rank;
use crate::terms::{Decision, Plan, Reason, Start, Want};
use crate::{SetId, Time};

/// Sets a start names as passed; who asks wants examples, not all of a long queue.
const PASSED_MAX: usize = 16;

/// What earmarks of better-ranked sets mean for a set.
struct Withheld {
    /// Not usable at all.
    all: Bits,
    /// Not usable either by a set that would be gone before the promise is due.
    firm: Bits,
}

/// What a set's seats have in common.
#[derive(Clone, Copy)]
struct Kind<'a> {
    /// Every system that any seat may use.
    meets: &'a Bits,
    /// All seats are alike.
    alike: bool,
}

/// Do these systems together have places for so many?
fn holds(systems: impl Iterator<Item = usize>, seats: usize, room: impl Fn(usize) -> u32) -> bool {
    let mut missing = seats as u64;
    for system in systems {
        missing = missing.saturating_sub(u64::from(room(system)));
        if missing == 0 {
            return true;
        }
    }
    missing == 0
}

/// The least matching of seats that are alike: the least systems, each as often as it has room.
fn fill(
    systems: impl Iterator<Item = usize>,
    seats: usize,
    room: impl Fn(usize) -> u32,
) -> Option<Vec<usize>> {
    let places = systems.flat_map(|s| std::iter::repeat_n(s, (room(s) as usize).min(seats)));
    let places: Vec<usize> = places.take(seats).collect();
    (places.len() == seats).then_some(places)
}

impl Planner {
    pub(super) fn visit(&mut self, id: SetId, now: Time) -> Option<Decision> {
        let entry = self.sets.get(&id)?;
        let (want, rank) = (entry.want.clone(), entry.rank);
        let kind = Kind { meets: &entry.meets.clone(), alike: entry.alike };
        let labs = self.labs_for(kind.meets);
        // Most sets that a freed system concerns want many more: they are counted out before anything is weighed.
        let room = labs.iter().any(|lab| self.has_room(&want, kind, *lab, None));
        let mut withheld = None;
        if room {
            let found = withheld.insert(self.withheld(id, rank, &want, now));
            let plan = self.match_now(&want, kind, &labs, &found.all).or_else(|| {
                let may_cross = found.firm != found.all;
                may_cross.then(|| self.match_now(&want, kind, &labs, &found.firm)).flatten()
            });
            if let Some(plan) = plan {
                return Some(self.start(id, rank, &want, plan, now));
            }
        }
        if want.seats.len() > 1 && self.plan_holds(id, &want) {
            self.set_reason(id, None);
            let kept = !self.rules.gathers || !self.gather(id, rank, &want);
            return Some(self.assigned(id, now, kept, Vec::new()));
        }
        let withheld = withheld.unwrap_or_else(|| self.withheld(id, rank, &want, now));
        if want.seats.len() > 1 {
            self.drop_plan(id, rank);
            let (plan, too_deep) = self.make_plan(rank, &want, kind, &labs, &withheld.all, now);
            if let Some(plan) = plan {
                let overrode = self.take_earmarks(id, &plan);
                self.touch_behind(rank, &plan.systems);
                if let Some(entry) = self.sets.get_mut(&id) {
                    entry.plan = Some(plan);
                }
                self.planned.insert(id);
                self.set_reason(id, None);
                if self.rules.gathers {
                    self.gather(id, rank, &want);
                }
                return Some(self.assigned(id, now, false, overrode));
            }
            if too_deep {
                self.set_reason(id, Some(Reason::OutsideDepth));
                return Some(Decision::Queue { set: id, reason: Reason::OutsideDepth });
            }
        } else {
            // It had more seats once: one seat needs no plan.
            self.drop_plan(id, rank);
        }
        let reason = self.why(rank, &want, kind, &labs, &withheld.all);
        self.set_reason(id, Some(reason));
        Some(Decision::Queue { set: id, reason })
    }

    /// Labs in which a set could be, in the order in which they are tried.
    fn labs_for(&self, meets: &Bits) -> Vec<u32> {
        let possible = |lab: &u32| self.labs.get(lab).is_some_and(|l| l.meets(meets));
        self.labs.keys().copied().filter(possible).collect()
    }

    fn withheld(&self, id: SetId, rank: Rank, want: &Want, now: Time) -> Withheld {
        let mut all = Bits::with_room(self.systems.len());
        let mut firm = all.clone();
        for other in &self.planned {
            let Some(entry) = self.sets.get(other) else { continue };
            if *other == id || (entry.rank > rank && self.rules.overrides) {
                continue;
            }
            let promise = || self.promise(*other, now).unwrap_or(0);
            let crossable = want.may_backfill && now.saturating_add(want.run) <= promise();
            for system in entry.plan.iter().flat_map(|p| &p.systems) {
                if self.earmarks[*system] == Some(*other) {
                    all.set(*system);
                    if !crossable {
                        firm.set(*system);
                    }
                }
            }
        }
        Withheld { all, firm }
    }

    fn choices<'w>(&self, want: &'w Want, lab: u32, without: &Bits, among: Option<&Bits>) -> Vec<Choice<'w>> {
        let Some(here) = self.labs.get(&lab) else { return Vec::new() };
        let mut choices: Vec<Choice<'w>> = Vec::with_capacity(want.seats.len());
        for (at, seat) in want.seats.iter().enumerate() {
            // Seats of one kind, next to each other, have the same choice.
            let alike = at.checked_sub(1).filter(|b| Arc::ptr_eq(&want.seats[*b].viable, &seat.viable));
            let can = if let Some(before) = alike {
                choices[before].can.clone()
            } else {
                let mut can = seat.viable.and(here);
                if let Some(among) = among {
                    can.keep(among);
                }
                can.take_away(without);
                can
            };
            choices.push(Choice { can, prefer: &seat.prefer });
        }
        choices
    }

    /// Are there as many free places as seats? If not there is no need to ask who could sit where.
    fn has_room(&self, want: &Want, kind: Kind<'_>, lab: u32, without: Option<&Bits>) -> bool {
        let Some(lab) = self.labs.get(&lab) else { return false };
        let mut open = lab.and(&self.free);
        open.keep(kind.meets);
        if let Some(without) = without {
            open.take_away(without);
        }
        holds(open.ones(), want.seats.len(), |s| self.fit(want, s).now)
    }

    fn match_now(&self, want: &Want, kind: Kind<'_>, labs: &[u32], without: &Bits) -> Option<Plan> {
        labs.iter().find_map(|&lab| {
            if !self.has_room(want, kind, lab, Some(without)) {
                return None;
            }
            let now = |s: usize| self.fit(want, s).now;
            let systems = if kind.alike {
                let mut open = self.labs.get(&lab)?.and(&self.free);
                open.keep(kind.meets);
                open.take_away(without);
                fill(open.ones(), want.seats.len(), now)?
            } else {
                matching::least(&self.choices(want, lab, without, Some(&self.free)), &now)?
            };
            (!systems.is_empty()).then_some(Plan { lab, systems })
        })
    }

    fn start(&mut self, id: SetId, rank: Rank, want: &Want, plan: Plan, now: Time) -> Decision {
        let mut crossed: Vec<(SetId, Time)> = Vec::new();
        let mut overrode: Vec<(SetId, usize)> = Vec::new();
        for &system in &plan.systems {
            let Some(owner) = self.earmarks[system].filter(|o| *o != id) else { continue };
            let better = self.sets.get(&owner).is_some_and(|e| e.rank < rank);
            if better {
                if !crossed.iter().any(|(set, _)| *set == owner) {
                    crossed.push((owner, self.promise(owner, now).unwrap_or(now)));
                }
            } else {
                self.earmarks[system] = None;
                if !overrode.iter().any(|(set, _)| *set == owner) {
                    overrode.push((owner, system));
                }
            }
        }
        let before = self.order.range(..rank).filter_map(|other| self.sets.get(&other.id));
        let passed = before
            .filter(|e| plan.systems.iter().any(|s| e.meets.has(*s)))
            .map(|e| e.want.id)
            .take(PASSED_MAX)
            .collect();
        let promised = self.promises_on(id, &plan.systems, now);
        let hard_end = now.saturating_add(want.run);
        for &number in &plan.systems {
            let system = &mut self.systems[number];
            let was_empty = system.free >= system.size;
            system.free = system.free.saturating_sub(1);
            system.hard_end = if was_empty { hard_end } else { system.hard_end.max(hard_end) };
            self.note_system(number);
            self.stale.set(number);
        }
        let own = self.sets.get(&id).and_then(|e| e.plan.clone());
        self.forget(id);
        // What it had been promised elsewhere is there for others again.
        if let Some(own) = own {
            self.touch_behind(rank, &own.systems);
            self.touch_outside(rank);
            self.leave_to_gather(own.systems);
        }
        self.touch_behind(rank, &plan.systems);
        for (owner, _) in &crossed {
            let targets = self.plan(*owner).map(|p| p.systems.clone()).unwrap_or_default();
            self.touch_behind(rank, &targets);
        }
        // Who may cross a promise depends on its moment, on every system of its plan: those behind look in this pass,
        // those before, whose turn is over, in a further one.
        for (owner, before) in promised {
            if self.promise(owner, now) != Some(before) {
                let targets = self.plan(owner).map(|p| p.systems.clone()).unwrap_or_default();
                self.touch_behind(rank, &targets);
                for system in targets {
                    self.touch_system(system);
                }
            }
        }
        Decision::Start(Start { set: id, lab: plan.lab, systems: plan.systems, crossed, passed, overrode })
    }

    /// The promises to other sets whose plans have any of these systems.
    fn promises_on(&self, id: SetId, systems: &[usize], now: Time) -> Vec<(SetId, Time)> {
        let others = self.planned.iter().filter(|other| **other != id);
        let on = others.filter(|other| {
            self.plan(**other).is_some_and(|p| p.systems.iter().any(|s| systems.contains(s)))
        });
        on.filter_map(|other| Some((*other, self.promise(*other, now)?))).collect()
    }

    /// Plans are sticky: a set that kept changing to what looks best would never arrive.
    fn plan_holds(&self, id: SetId, want: &Want) -> bool {
        let Some(plan) = self.plan(id) else { return false };
        plan.systems.len() == want.seats.len()
            && plan.systems.iter().zip(&want.seats).all(|(&system, seat)| seat.viable.has(system))
            && loads(&plan.systems).into_iter().all(|(system, seats)| {
                self.systems[system].lab == plan.lab
                    && self.has_end(system)
                    && self.earmarks[system] == Some(id)
                    && self.fit(want, system).empty >= seats
            })
    }

    /// Moves seats of a standing plan from systems that are in use to free ones that are promised to nobody. True when any
    /// was moved. What it leaves is there for others.
    fn gather(&mut self, id: SetId, rank: Rank, want: &Want) -> bool {
        let Some(plan) = self.plan(id) else { return false };
        let (lab, mut systems) = (plan.lab, plan.systems.clone());
        let Some(mut open) = self.labs.get(&lab).map(|lab| lab.and(&self.free)) else { return false };
        if let Some(entry) = self.sets.get(&id) {
            open.keep(&entry.meets);
        }
        let mut taken: BTreeMap<usize, u32> = loads(&systems).into_iter().collect();
        let mut spare: Vec<(usize, u32)> = open
            .ones()
            .filter(|s| self.earmarks[*s].is_none_or(|owner| owner == id))
            .map(|s| (s, self.fit(want, s).now.saturating_sub(taken.get(&s).copied().unwrap_or(0))))
            .filter(|(_, room)| *room > 0)
            .collect();
        if spare.is_empty() {
            return false;
        }
        // Those first that would be waited for longest.
        let mut late: Vec<usize> = (0..systems.len()).collect();
        late.sort_by_key(|seat| std::cmp::Reverse(self.systems[systems[*seat]].hard_end));
        let mut moved = false;
        for seat in late {
            let from = systems[seat];
            if self.fit(want, from).now >= taken.get(&from).copied().unwrap_or(0) {
                continue;
            }
            let viable = &want.seats[seat].viable;
            let Some(at) = spare.iter().position(|(s, room)| *room > 0 && *s != from && viable.has(*s))
            else {
                continue;
            };
            let to = spare[at].0;
            spare[at].1 -= 1;
            *taken.entry(to).or_default() += 1;
            if let Some(count) = taken.get_mut(&from) {
                *count -= 1;
            }
            systems[seat] = to;
            moved = true;
        }
        if !moved {
            return false;
        }
        let old = self.plan(id).map(|p| p.systems.clone()).unwrap_or_default();
        self.drop_earmarks(id);
        let plan = Plan { lab, systems };
        self.take_earmarks(id, &plan);
        self.planned.insert(id);
        if let Some(entry) = self.sets.get_mut(&id) {
            entry.plan = Some(plan);
        }
        self.touch_behind(rank, &old);
        // Those before it, whose turn is over, look in a further pass.
        self.dirty_systems.extend(old.into_iter().filter(|s| self.earmarks[*s] != Some(id)));
        true
    }

    /// Systems are promised to nobody any more: those whose turn in this pass is over may gather them in a further one.
    fn leave_to_gather(&mut self, systems: Vec<usize>) {
        if self.rules.gathers {
            self.dirty_systems.extend(systems);
        }
    }

    fn drop_plan(&mut self, id: SetId, rank: Rank) {
        self.drop_earmarks(id);
        let Some(plan) = self.sets.get_mut(&id).and_then(|e| e.plan.take()) else { return };
        self.touch_behind(rank, &plan.systems);
        self.leave_to_gather(plan.systems);
        self.touch_outside(rank);
    }

    /// The plan that is ready first, and whether a lab was left out because of the depth.
    fn make_plan(
        &self,
        rank: Rank,
        want: &Want,
        kind: Kind<'_>,
        labs: &[u32],
        without: &Bits,
        now: Time,
    ) -> (Option<Plan>, bool) {
        let mut best: Option<(Time, Plan)> = None;
        let mut too_deep = false;
        for &lab in labs {
            let planned = |id: &&SetId| {
                self.sets
                    .get(id)
                    .is_some_and(|e| e.rank < rank && e.plan.as_ref().is_some_and(|p| p.lab == lab))
            };
            if self.planned.iter().filter(planned).count() as u32 >= self.rules.depth {
                // Only worth a word if the depth is what keeps it from a plan.
                too_deep = too_deep || self.could_plan(want, kind, lab, without, now);
                continue;
            }
            let bar = best.as_ref().map(|(time, _)| *time);
            let found = if kind.alike {
                self.earliest_alike(want, kind, lab, without, now, bar)
            } else {
                self.earliest(want, lab, without, now, bar)
            };
            if let Some(found) = found {
                best = Some(found);
            }
        }
        (best.map(|(_, plan)| plan), too_deep)
    }

    /// Systems of a lab that seats which are alike may be planned on.
    fn prospects(&self, kind: Kind<'_>, lab: u32, without: &Bits) -> Bits {
        let mut can = self.labs.get(&lab).map_or_else(Bits::default, |lab| lab.and(&self.ending));
        can.keep(kind.meets);
        can.take_away(without);
        can
    }

    /// Whether a lab could be planned for at all.
    fn could_plan(&self, want: &Want, kind: Kind<'_>, lab: u32, without: &Bits, now: Time) -> bool {
        if !kind.alike {
            return self.earliest(want, lab, without, now, None).is_some();
        }
        let can = self.prospects(kind, lab, without);
        holds(can.ones(), want.seats.len(), |s| self.fit(want, s).empty)
    }

    /// The same as `earliest` for seats that are alike: counting is enough.
    fn earliest_alike(
        &self,
        want: &Want,
        kind: Kind<'_>,
        lab: u32,
        without: &Bits,
        now: Time,
        bar: Option<Time>,
    ) -> Option<(Time, Plan)> {
        let can = self.prospects(kind, lab, without);
        let seats = want.seats.len();
        if !holds(can.ones(), seats, |s| self.fit(want, s).empty) {
            return None;
        }
        // Places that are there now, and how many more each time brings.
        let mut places: u64 = 0;
        let mut more: Vec<(Time, u64)> = Vec::new();
        for system in can.ones() {
            let fit = self.fit(want, system);
            let due = self.systems[system].hard_end.max(now);
            if due <= now {
                places += u64::from(fit.empty);
            } else {
                places += u64::from(fit.now);
                if fit.now < fit.empty {
                    more.push((due, u64::from(fit.empty - fit.now)));
                }
            }
        }
        more.sort_unstable();
        let mut by = now;
        for (due, extra) in more {
            if places >= seats as u64 {
                break;
            }
            (by, places) = (due, places + extra);
        }
        if places < seats as u64 || bar.is_some_and(|bar| by >= bar) {
            return None;
        }
        let room = |s: usize| {
            let fit = self.fit(want, s);
            if self.systems[s].hard_end.max(now) <= by { fit.empty } else { fit.now }
        };
        Some((by, Plan { lab, systems: fill(can.ones(), seats, room)? }))
    }

    /// The least time at which the systems of a lab that are available by then hold the whole set; only if it is before
    /// `bar`.
    fn earliest(
        &self,
        want: &Want,
        lab: u32,
        without: &Bits,
        now: Time,
        bar: Option<Time>,
    ) -> Option<(Time, Plan)> {
        let mut seats = self.choices(want, lab, without, None);
        let mut times = vec![now];
        let mut union = Bits::default();
        for seat in &seats {
            union.add(&seat.can);
        }
        let endless: Bits = union.ones().filter(|s| !self.has_end(*s)).collect();
        for seat in &mut seats {
            seat.can.take_away(&endless);
        }
        union.take_away(&endless);
        let due = |s: usize| self.systems[s].hard_end.max(now);
        times.extend(union.ones().filter(|s| self.fit(want, *s).now < self.fit(want, *s).empty).map(due));
        times.sort_unstable();
        times.dedup();
        if let Some(bar) = bar {
            times.retain(|t| *t < bar);
        }
        let room = |s: usize, by: Time| {
            let fit = self.fit(want, s);
            if due(s) <= by { fit.empty } else { fit.now }
        };
        let fits_by = |by: Time| matching::exists(&seats, &|s| room(s, by));
        if !fits_by(*times.last()?) {
            return None;
        }
        let at = times.partition_point(|t| !fits_by(*t));
        let by = *times.get(at)?;
        let systems = matching::least(&seats, &|s| room(s, by))?;
        Some((by, Plan { lab, systems }))
    }

    fn take_earmarks(&mut self, id: SetId, plan: &Plan) -> Vec<(SetId, usize)> {
        let mut overrode: Vec<(SetId, usize)> = Vec::new();
        for &system in &plan.systems {
            let before = self.earmarks[system].replace(id);
            if let Some(loser) = before.filter(|b| *b != id && !overrode.iter().any(|(set, _)| set == b)) {
                overrode.push((loser, system));
            }
        }
        overrode
    }

    fn assigned(&self, id: SetId, now: Time, kept: bool, overrode: Vec<(SetId, usize)>) -> Decision {
        let plan = self.plan(id).cloned().unwrap_or(Plan { lab: 0, systems: Vec::new() });
        let promise = self.promise(id, now).unwrap_or(now);
        Decision::Assign { set: id, plan, promise, kept, overrode }
    }

    fn set_reason(&mut self, id: SetId, reason: Option<Reason>) {
        if let Some(entry) = self.sets.get_mut(&id) {
            entry.reason = reason;
        }
        if reason == Some(Reason::OutsideDepth) {
            self.outside.insert(id);
        } else {
            self.outside.remove(&id);
        }
    }

    fn why(&self, rank: Rank, want: &Want, kind: Kind<'_>, labs: &[u32], withheld: &Bits) -> Reason {
        let nothing = Bits::default();
        let empty = |s: usize| self.fit(want, s).empty;
        let satisfiable = labs.iter().any(|&lab| {
            if kind.alike {
                let can = self.labs.get(&lab).map(|lab| lab.and(kind.meets));
                can.is_some_and(|can| holds(can.ones(), want.seats.len(), empty))
            } else {
                matching::exists(&self.choices(want, lab, &nothing, None), &empty)
            }
        });
        if !satisfiable {
            return Reason::Unsatisfiable;
        }
        let first_owner = |systems: &mut dyn Iterator<Item = usize>| {
            systems
                .filter(|s| withheld.has(*s))
                .filter_map(|s| self.earmarks[s])
                .filter_map(|id| self.sets.get(&id))
                .filter(|e| e.rank < rank)
                .min_by_key(|e| e.rank)
                .map(|e| e.want.id)
        };
        if let Some(plan) = self.match_now(want, kind, labs, &nothing)
            && let Some(owner) = first_owner(&mut plan.systems.iter().copied())
        {
            return Reason::Withheld(owner);
        }
        Reason::Behind(first_owner(&mut kind.meets.and(withheld).ones()))
    }
}
