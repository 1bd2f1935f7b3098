//! What the planner is told: which gangs wait and what they lack beside machines, what each wants, which machines are there and
//! for whom.
//!
//! Only what changed is told again (`changes`, and machines that are overdue), and all of it when the first
//! gang comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Now;
use model::event::Resources;
use planner::bits::Bits;
use planner::{Fit, SEATS_MAX, Seat, SetId, Standing, Want};

use super::{NOBODY, SITE_LIMIT_S};
use crate::Core;
use crate::admission::Shortage;
use crate::changes::Machines;
use crate::pool::{Machine, host_of};
use crate::shape::ShapeId;

impl Core {
    pub(super) fn describe_gang(&mut self, id: u32) {
        if self.waits_as_gang(id) {
            self.gangs.waiting.entry(id).or_default().stale = true;
            return;
        }
        self.gangs.hopeless.remove(&id);
        if self.gangs.waiting.contains_key(&id) {
            self.forget_gang(id);
            self.gangs.planner.remove(SetId(u64::from(id)));
        }
    }

    /// Gangs of which not every machine could be asked are told the planner anew.
    pub(crate) fn look_again_at_gangs(&mut self) {
        for id in std::mem::take(&mut self.gangs.incomplete) {
            if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
                wanted.stale = true;
            }
        }
    }

    /// A gang waits no more.
    pub(super) fn forget_gang(&mut self, id: u32) {
        self.end_turn(id);
        let place = self.gangs.waiting.remove(&id).and_then(|w| w.place);
        if let Some((user, place)) = place {
            self.accounts.set_gang(user, place, None);
        }
    }

    /// Tells the planner of machines that have changed, and of all of them after a time without gangs.
    pub(super) fn describe_machines(&mut self, now: Now) {
        let now_s = now.wall_ms / 1000;
        let Machines { mut numbers, has_ads, has_kinds } = self.changes.take_machines();
        let all = self.changes.watch_machines() || has_kinds;
        // What has not started is taken to start now, each time anew.
        let overdue = self.gangs.ends.iter().take_while(|(end, _)| *end <= now_s);
        numbers.extend(overdue.map(|(_, number)| *number));
        if all {
            self.gangs.ends.clear();
            self.gangs.end_of.clear();
            numbers = (0..self.pool.numbers() as u32).collect();
            self.gangs.waiting.values_mut().for_each(|w| w.stale = true);
        }
        for number in self.gangs.planner.systems_known()..self.pool.numbers() {
            self.gangs.planner.set_system(number, NOBODY);
        }
        for &number in &numbers {
            self.describe_machine(number, now);
        }
        // What a gang could have may have changed with what a machine is, and with whom it is lent to.
        let watched = self.gangs.waiting.iter().filter(|(_, wanted)| !all && wanted.is_planned_for());
        let watched: Vec<(u32, Vec<Vec<ShapeId>>)> = watched.map(|(id, w)| (*id, w.kinds.clone())).collect();
        for (id, kinds) in watched {
            let differs = |number: &u32| {
                let viable =
                    |kind: &Vec<ShapeId>| kind.iter().all(|shape| self.is_viable_for(id, *shape, *number));
                let viable = kinds.iter().any(viable);
                !self.gangs.planner.agrees(SetId(u64::from(id)), *number as usize, viable)
            };
            let stale = numbers.iter().any(differs) || (kinds.len() > 1 && has_ads);
            if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
                wanted.stale = stale;
            }
        }
    }

    /// Could jobs of a gang ever run on a machine: it suits them, is not lent to others, and could be made ready?
    pub(crate) fn is_viable_for(&mut self, gang: u32, shape: ShapeId, number: u32) -> bool {
        let Some(name) = self.pool.name(number) else { return false };
        let suits = self.shapes.suits(shape, number);
        suits
            && !self.is_excluded(gang, name)
            && self.pool.machines().get(name).is_some_and(|machine| {
                self.is_for(machine, shape) && self.is_in_reach(gang, shape, name, machine)
            })
    }

    /// A job that names its machine has no other; what is shut and only there because a job of the gang names it is not there
    /// for its other jobs.
    fn is_in_reach(&self, gang: u32, shape: ShapeId, name: &str, machine: &Machine) -> bool {
        match self.shapes.all().get(&shape).and_then(|s| s.force.as_deref()) {
            Some(forced) => forced.eq_ignore_ascii_case(host_of(name)),
            None => machine.shut.is_none() || !self.forces(gang, name),
        }
    }

    /// Does a job of a gang name this machine?
    fn forces(&self, gang: u32, name: &str) -> bool {
        let parts = self.queue.clusters().get(&gang).into_iter().flat_map(|c| &c.parts);
        let mut forced = parts.filter_map(|p| self.shapes.all().get(&p.shape)?.force.as_deref());
        forced.any(|host| host.eq_ignore_ascii_case(host_of(name)))
    }

    /// May jobs of a gang be given to a machine now, as far as people's decisions go?
    fn is_open_to(&self, gang: u32, name: &str, machine: &Machine) -> bool {
        machine.is_open() || (machine.is_forcible() && self.forces(gang, name))
    }

    fn describe_machine(&mut self, number: u32, now: Now) {
        let machine = self.pool.name(number).and_then(|name| self.pool.machines().get(name));
        // What only a gang that names it may have is nothing to the others: none of their jobs fits there.
        let here = machine.filter(|m| m.is_open() || m.is_forcible());
        let mut system = NOBODY;
        if let Some(machine) = machine {
            let next = self.gangs.labs.len() as u32;
            system.lab = *self.gangs.labs.entry(machine.lab.clone()).or_insert(next);
            // Without meaning while it is empty, so that it need not move with the clock.
            system.hard_end = if machine.claims.is_empty() { 0 } else { self.empty_by(machine, now.wall_ms) };
        }
        if let Some(machine) = here {
            (system.free, system.size) = (machine.free.cpus, machine.total.cpus);
        }
        if let Some(before) = self.gangs.end_of.remove(&number) {
            self.gangs.ends.remove(&(before, number));
        }
        if machine.is_some_and(|m| !m.claims.is_empty()) {
            self.gangs.ends.insert((system.hard_end, number));
            self.gangs.end_of.insert(number, system.hard_end);
        }
        let nothing = Fit { now: 0, empty: 0 };
        let fits: Vec<(u32, Fit)> = self
            .gangs
            .waiting
            .iter()
            .filter(|(_, w)| !w.stale)
            .map(|(id, wanted)| {
                let name = self.pool.name(number);
                let open = here.zip(name).filter(|(m, name)| self.is_open_to(*id, name, m));
                (*id, open.map_or(nothing, |(m, _)| fit_of(wanted.largest, wanted.all_here, m)))
            })
            .collect();
        for (id, fit) in fits {
            self.gangs.planner.set_fit(SetId(u64::from(id)), number as usize, fit);
        }
        self.gangs.planner.set_system(number as usize, system);
    }

    /// Tells the planner what gangs want that are new, or whose wants have changed; those that lack more than machines
    /// are not planned for.
    pub(super) fn describe_wants(&mut self, now: Now) {
        self.find_shortages(now);
        let ids =
            self.gangs.waiting.iter().filter(|(_, w)| w.stale && w.shortage.is_none()).map(|(id, _)| *id);
        for id in ids.collect::<Vec<u32>>() {
            self.want(id, now);
        }
    }

    /// Finds out what stands against each waiting gang beside machines, the oldest first: what one that aged waits for is
    /// kept from those behind it, and from nobody any more as soon as it lacks it no more.
    fn find_shortages(&mut self, now: Now) {
        let before = std::mem::take(&mut self.gangs.awaited);
        for id in self.gangs.waiting.keys().copied().collect::<Vec<u32>>() {
            if self.gangs.waiting.get(&id).is_some_and(|w| w.stale || w.demand.is_none()) {
                let demand = self.demand_of_gang(id);
                if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
                    wanted.demand = demand;
                }
            }
            let demand = self.gangs.waiting.get(&id).and_then(|w| w.demand.as_ref());
            let shortage = demand.and_then(|demand| self.shortage_of_gang(id, demand));
            let Some(wanted) = self.gangs.waiting.get_mut(&id) else { continue };
            let (was_short, is_short) = (wanted.shortage.is_some(), shortage.is_some());
            wanted.stale |= was_short && !is_short;
            if shortage.as_ref().is_some_and(Shortage::is_for_ever) {
                self.gangs.hopeless.entry(id).or_insert(now.wall_ms);
            } else if was_short {
                self.gangs.hopeless.remove(&id);
            }
            wanted.shortage = shortage;
            if is_short && !was_short {
                self.gangs.planner.remove(SetId(u64::from(id)));
                self.end_turn(id);
            }
            self.await_what_it_lacks(id, now);
            self.place_gang(id);
        }
        // Nobody gave anything back, and yet there is more for those whom it was kept from.
        if self.gangs.awaited.lets_go_of(&before) {
            self.changes.release();
        }
    }

    /// Keeps the account of a gang's user true: only what lacks nothing but machines counts as waiting.
    pub(super) fn place_gang(&mut self, id: u32) {
        let Some(wanted) = self.gangs.waiting.get(&id) else { return };
        let cluster = self.queue.clusters().get(&id);
        let demand = wanted.demand.as_ref().filter(|_| wanted.shortage.is_none());
        let hopeless = self.gangs.hopeless.contains_key(&id);
        let new = cluster.zip(demand).filter(|_| !hopeless).map(|(cluster, demand)| {
            let place = (std::cmp::Reverse(cluster.class), std::cmp::Reverse(cluster.priority), id);
            (demand.user, place, demand.cores)
        });
        let old = wanted.place;
        let at = new.map(|(user, place, _)| (user, place));
        if let Some((user, place)) = old.filter(|old| Some(*old) != at) {
            self.accounts.set_gang(user, place, None);
        }
        if let Some((user, place, cores)) = new {
            self.accounts.set_gang(user, place, Some(cores));
        }
        if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
            wanted.place = at;
        }
    }

    /// A gang that aged keeps what it lacks from others.
    fn await_what_it_lacks(&mut self, id: u32, now: Now) {
        let quantum = self.gangs.planner.rules().quantum;
        let Some(wanted) = self.gangs.waiting.get(&id) else { return };
        let Some((demand, shortage)) = wanted.demand.as_ref().zip(wanted.shortage.as_ref()) else { return };
        let Some(cluster) = self.queue.clusters().get(&id) else { return };
        let (class, _) = cluster.class.aged(cluster.submitted_ms / 1000, now.wall_ms / 1000, quantum);
        let aged = class > cluster.class && !self.accounts.is_nice(demand.user);
        if aged && shortage.kept_for.is_none() && !shortage.is_for_ever() {
            let groups = self.accounts.groups_of(demand.user).map(|(number, _)| number);
            self.gangs.awaited.add(id, demand, shortage, groups);
        }
    }

    /// Tells the planner what a waiting gang wants.
    fn want(&mut self, id: u32, now: Now) {
        let Some(cluster) = self.queue.clusters().get(&id) else { return };
        let mut seats: Vec<(u32, Vec<ShapeId>)> = cluster
            .parts
            .iter()
            .flat_map(|part| part.idle.iter())
            .chain(cluster.live.keys().copied())
            .filter(|proc| cluster.host_of(*proc).is_none())
            .take(SEATS_MAX)
            .map(|proc| (proc, cluster.shapes_of(proc)))
            .collect();
        // Planned for while its jobs are on their way back, but it cannot start before.
        let all_here = cluster.live.is_empty();
        seats.sort_unstable();
        let (submitted, class) = (cluster.submitted_ms / 1000, cluster.class);
        let forces = seats
            .iter()
            .flat_map(|(_, s)| s)
            .any(|s| self.shapes.all().get(s).is_some_and(|s| s.force.is_some()));
        let mut viable: BTreeMap<Vec<ShapeId>, Arc<Bits>> = BTreeMap::new();
        let mut largest = Resources::default();
        let mut run = Some(0);
        for (_, shapes) in &seats {
            let Some((shape, guests)) = shapes.split_first() else { return };
            let Some(found) = self.shapes.all().get(shape) else { return };
            largest = larger(largest, found.request);
            for shape in shapes.iter().filter_map(|s| self.shapes.all().get(s)) {
                run = run.zip(shape.run_limit_s).map(|(a, b): (u64, u64)| a.max(b));
            }
            if !viable.contains_key(shapes) {
                let mut bits = Bits::with_room(self.pool.numbers());
                let (suited, mut all) = match self.shapes.viable_and_whether_all(*shape) {
                    Some((suited, all)) => (suited.iter().collect::<Vec<u32>>(), all),
                    None => (Vec::new(), true),
                };
                for number in suited {
                    // Where a guest cannot be, its host cannot either.
                    let mut answers = guests.iter().map(|guest| self.shapes.answer(*guest, number));
                    match answers.find(|answer| *answer != Some(true)) {
                        None => bits.set(number as usize),
                        Some(answer) => all &= answer.is_some(),
                    }
                }
                if !all {
                    self.gangs.incomplete.insert(id);
                }
                // What could not be made ready for it, is lent to others, or in a lab without its trees, is not there for it.
                for name in self.queue.clusters()[&id].excluded.keys().flat_map(|host| self.pool.places(host))
                {
                    if let Some(machine) =
                        self.pool.machines().get(&name).filter(|_| self.is_excluded(id, &name))
                    {
                        bits.clear(machine.number as usize);
                    }
                }
                let picks = self.shapes.has_trees() || forces;
                for (name, machine) in self.pool.machines().iter().filter(|(_, m)| picks || m.is_restricted())
                {
                    let is_for = shapes.iter().all(|s| self.is_for(machine, *s));
                    if !is_for || (forces && !self.is_in_reach(id, *shape, name, machine)) {
                        bits.clear(machine.number as usize);
                    }
                }
                viable.insert(shapes.clone(), Arc::new(bits));
            }
        }
        let mut fits = vec![Fit { now: 0, empty: 0 }; self.pool.numbers()];
        for (name, machine) in self.pool.machines().iter() {
            let open = machine.is_open() || (forces && self.is_open_to(id, name, machine));
            if !open {
                continue;
            }
            fits[machine.number as usize] = fit_of(largest, all_here, machine);
        }
        let kinds = viable.keys().cloned().collect();
        let Some(wanted) = self.gangs.waiting.get_mut(&id) else { return };
        (wanted.kinds, wanted.largest, wanted.all_here, wanted.stale) = (kinds, largest, all_here, false);
        let nice = wanted.demand.as_ref().is_some_and(|d| self.accounts.is_nice(d.user));
        let seats =
            seats.iter().map(|(_, s)| Seat { viable: viable[s].clone(), prefer: Vec::new() }).collect();
        let want = Want {
            id: SetId(u64::from(id)),
            class,
            standing: self.standing_of_gang(id, now.wall_ms).unwrap_or(Standing::Age),
            ages: !nice,
            submitted,
            run: run.unwrap_or(SITE_LIMIT_S),
            may_backfill: run.is_some(),
            seats,
            fits: Some(fits.into()),
        };
        self.gangs.planner.put(want, now.wall_ms / 1000);
    }
}

/// The larger in every respect.
pub(crate) fn larger(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.max(b.cpus),
        memory_mib: a.memory_mib.max(b.memory_mib),
        disk_kib: a.disk_kib.max(b.disk_kib),
        gpus: a.gpus.max(b.gpus),
    }
}

/// How many such jobs a machine takes.
pub(crate) fn fit_of(largest: Resources, all_here: bool, machine: &Machine) -> Fit {
    let most = if machine.whole { 1 } else { u32::MAX };
    let now = if all_here { times(largest, machine.free).min(most) } else { 0 };
    Fit { now, empty: times(largest, machine.total).min(most) }
}

/// How often something fits.
pub(super) fn times(want: Resources, have: Resources) -> u32 {
    let part = |want: u64, have: u64| have.checked_div(want).unwrap_or(u64::MAX);
    let least = part(u64::from(want.cpus), u64::from(have.cpus))
        .min(part(want.memory_mib, have.memory_mib))
        .min(part(want.disk_kib, have.disk_kib))
        .min(part(u64::from(want.gpus), u64::from(have.gpus)));
    u32::try_from(least).unwrap_or(u32::MAX)
}
