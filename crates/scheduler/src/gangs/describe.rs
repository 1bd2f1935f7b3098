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
use crate::accounts::Accounts;
use crate::admission::Shortage;
use crate::books::Books;
use crate::changes::Machines;
use crate::gangs::Gangs;
use crate::pool::{Machine, host_of};
use crate::queue::Queue;
use crate::shape::{ShapeId, Shapes};
use crate::{admission, labs, provision};

pub(crate) fn describe_gang(queue: &Queue, accounts: &mut Accounts, gangs: &mut Gangs, id: u32) {
    if super::waits_as_gang(queue, id) {
        gangs.waiting.entry(id).or_default().stale = true;
        return;
    }
    gangs.hopeless.remove(&id);
    if gangs.waiting.contains_key(&id) {
        forget_gang(accounts, gangs, id);
        gangs.planner.remove(SetId(u64::from(id)));
    }
}

/// Gangs of which not every machine could be asked are told the planner anew.
pub(crate) fn look_again_at_gangs(gangs: &mut Gangs) {
    for id in std::mem::take(&mut gangs.incomplete) {
        if let Some(wanted) = gangs.waiting.get_mut(&id) {
            wanted.stale = true;
        }
    }
}

/// A gang waits no more.
pub(crate) fn forget_gang(accounts: &mut Accounts, gangs: &mut Gangs, id: u32) {
    super::order::end_turn(accounts, gangs, id);
    let place = gangs.waiting.remove(&id).and_then(|w| w.place);
    if let Some((user, place)) = place {
        accounts.set_gang(user, place, None);
    }
}

/// Tells the planner of machines that have changed, and of all of them when the first gang comes.
pub(crate) fn describe_machines(books: &mut Books, gangs: &mut Gangs, now: Now) {
    let now_s = now.wall_ms / 1000;
    let Machines { mut numbers, has_ads, has_kinds } = books.changes.take_machines();
    let all = books.changes.watch_machines() || has_kinds;
    // What has not started is taken to start now, each time anew.
    let overdue = gangs.ends.iter().take_while(|(end, _)| *end <= now_s);
    numbers.extend(overdue.map(|(_, number)| *number));
    if all {
        gangs.ends.clear();
        gangs.end_of.clear();
        numbers = (0..books.pool.numbers() as u32).collect();
        gangs.waiting.values_mut().for_each(|w| w.stale = true);
    }
    for number in gangs.planner.systems_known()..books.pool.numbers() {
        gangs.planner.set_system(number, NOBODY);
    }
    for &number in &numbers {
        describe_machine(books, gangs, number, now);
    }
    // What a gang could have may have changed with what a machine is, and with whom it is lent to.
    let watched = gangs.waiting.iter().filter(|(_, wanted)| !all && wanted.is_planned_for());
    let watched: Vec<(u32, Vec<Vec<ShapeId>>)> = watched.map(|(id, w)| (*id, w.kinds.clone())).collect();
    for (id, kinds) in watched {
        let differs = |number: &u32| {
            let viable =
                |kind: &Vec<ShapeId>| kind.iter().all(|shape| is_viable_for(books, id, *shape, *number));
            let viable = kinds.iter().any(viable);
            !gangs.planner.agrees(SetId(u64::from(id)), *number as usize, viable)
        };
        let stale = numbers.iter().any(differs) || (kinds.len() > 1 && has_ads);
        if let Some(wanted) = gangs.waiting.get_mut(&id) {
            wanted.stale = stale;
        }
    }
}

/// Could jobs of a gang ever run on a machine: it suits them, is not lent to others, and could be made ready?
pub(crate) fn is_viable_for(books: &mut Books, gang: u32, shape: ShapeId, number: u32) -> bool {
    let Some(name) = books.pool.name(number) else { return false };
    let suits = books.shapes.suits(shape, number);
    suits
        && !provision::is_excluded(&books.settings, &books.queue, books.clock_ms, gang, name)
        && books.pool.machines().get(name).is_some_and(|machine| {
            labs::is_for(&books.shapes, &books.accounts, &books.labs, machine, shape)
                && is_in_reach(&books.queue, &books.shapes, gang, shape, name, machine)
        })
}

/// A job that names its machine has no other; what is shut and only there because a job of the gang names it is not there
/// for its other jobs.
fn is_in_reach(
    queue: &Queue,
    shapes: &Shapes,
    gang: u32,
    shape: ShapeId,
    name: &str,
    machine: &Machine,
) -> bool {
    match shapes.all().get(&shape).and_then(|s| s.force.as_deref()) {
        Some(forced) => forced.eq_ignore_ascii_case(host_of(name)),
        None => machine.shut.is_none() || !forces(queue, shapes, gang, name),
    }
}

/// Does a job of a gang name this machine?
fn forces(queue: &Queue, shapes: &Shapes, gang: u32, name: &str) -> bool {
    let parts = queue.clusters().get(&gang).into_iter().flat_map(|c| &c.parts);
    let mut forced = parts.filter_map(|p| shapes.all().get(&p.shape)?.force.as_deref());
    forced.any(|host| host.eq_ignore_ascii_case(host_of(name)))
}

/// May jobs of a gang be given to a machine now, as far as people's decisions go?
fn is_open_to(queue: &Queue, shapes: &Shapes, gang: u32, name: &str, machine: &Machine) -> bool {
    machine.is_open() || (machine.is_forcible() && forces(queue, shapes, gang, name))
}

fn describe_machine(books: &Books, gangs: &mut Gangs, number: u32, now: Now) {
    let machine = books.pool.name(number).and_then(|name| books.pool.machines().get(name));
    // What only a gang that names it may have is nothing to the others: none of their jobs fits there.
    let here = machine.filter(|m| m.is_open() || m.is_forcible());
    let mut system = NOBODY;
    if let Some(machine) = machine {
        let next = gangs.labs.len() as u32;
        system.lab = *gangs.labs.entry(machine.lab.clone()).or_insert(next);
        // Without meaning while it is empty, so that it need not move with the clock.
        system.hard_end =
            if machine.claims.is_empty() { 0 } else { super::ends::empty_by(books, machine, now.wall_ms) };
    }
    if let Some(machine) = here {
        (system.free, system.size) = (machine.free.cpus, machine.total.cpus);
    }
    if let Some(before) = gangs.end_of.remove(&number) {
        gangs.ends.remove(&(before, number));
    }
    if machine.is_some_and(|m| !m.claims.is_empty()) {
        gangs.ends.insert((system.hard_end, number));
        gangs.end_of.insert(number, system.hard_end);
    }
    let nothing = Fit { now: 0, empty: 0 };
    let fits: Vec<(u32, Fit)> = gangs
        .waiting
        .iter()
        .filter(|(_, w)| !w.stale)
        .map(|(id, wanted)| {
            let name = books.pool.name(number);
            let open =
                here.zip(name).filter(|(m, name)| is_open_to(&books.queue, &books.shapes, *id, name, m));
            (*id, open.map_or(nothing, |(m, _)| fit_of(wanted.largest, wanted.all_here, m)))
        })
        .collect();
    for (id, fit) in fits {
        gangs.planner.set_fit(SetId(u64::from(id)), number as usize, fit);
    }
    gangs.planner.set_system(number as usize, system);
}

/// Tells the planner what gangs want that are new, or whose wants have changed; those that lack more than machines
/// are not planned for.
pub(crate) fn describe_wants(books: &mut Books, gangs: &mut Gangs, now: Now) {
    find_shortages(books, gangs, now);
    let ids = gangs.waiting.iter().filter(|(_, w)| w.stale && w.shortage.is_none()).map(|(id, _)| *id);
    for id in ids.collect::<Vec<u32>>() {
        want(books, gangs, id, now);
    }
}

/// Finds out what stands against each waiting gang beside machines, the oldest first: what one that aged waits for is
/// kept from those behind it, and from nobody any more as soon as it lacks it no more.
fn find_shortages(books: &mut Books, gangs: &mut Gangs, now: Now) {
    let before = std::mem::take(&mut gangs.awaited);
    for id in gangs.waiting.keys().copied().collect::<Vec<u32>>() {
        if gangs.waiting.get(&id).is_some_and(|w| w.stale || w.demand.is_none()) {
            let demand = admission::demand_of_gang(&books.queue, &books.shapes, id);
            if let Some(wanted) = gangs.waiting.get_mut(&id) {
                wanted.demand = demand;
            }
        }
        let demand = gangs.waiting.get(&id).and_then(|w| w.demand.as_ref());
        let shortage = demand.and_then(|demand| admission::shortage_of_gang(books, gangs, id, demand));
        let Some(wanted) = gangs.waiting.get_mut(&id) else { continue };
        let (was_short, is_short) = (wanted.shortage.is_some(), shortage.is_some());
        wanted.stale |= was_short && !is_short;
        if shortage.as_ref().is_some_and(Shortage::is_for_ever) {
            gangs.hopeless.entry(id).or_insert(now.wall_ms);
        } else if was_short {
            gangs.hopeless.remove(&id);
        }
        wanted.shortage = shortage;
        if is_short && !was_short {
            gangs.planner.remove(SetId(u64::from(id)));
            super::order::end_turn(&mut books.accounts, gangs, id);
        }
        await_what_it_lacks(&books.queue, &books.accounts, gangs, id, now);
        place_gang(&books.queue, &mut books.accounts, gangs, id);
    }
    // Nobody gave anything back, and yet there is more for those whom it was kept from.
    if gangs.awaited.lets_go_of(&before) {
        books.changes.release();
    }
}

/// Keeps the account of a gang's user true: only what lacks nothing but machines counts as waiting.
pub(crate) fn place_gang(queue: &Queue, accounts: &mut Accounts, gangs: &mut Gangs, id: u32) {
    let Some(wanted) = gangs.waiting.get(&id) else { return };
    let cluster = queue.clusters().get(&id);
    let demand = wanted.demand.as_ref().filter(|_| wanted.shortage.is_none());
    let hopeless = gangs.hopeless.contains_key(&id);
    let new = cluster.zip(demand).filter(|_| !hopeless).map(|(cluster, demand)| {
        let place = (std::cmp::Reverse(cluster.class), std::cmp::Reverse(cluster.priority), id);
        (demand.user, place, demand.cores)
    });
    let old = wanted.place;
    let at = new.map(|(user, place, _)| (user, place));
    if let Some((user, place)) = old.filter(|old| Some(*old) != at) {
        accounts.set_gang(user, place, None);
    }
    if let Some((user, place, cores)) = new {
        accounts.set_gang(user, place, Some(cores));
    }
    if let Some(wanted) = gangs.waiting.get_mut(&id) {
        wanted.place = at;
    }
}

/// A gang that aged keeps what it lacks from others.
fn await_what_it_lacks(queue: &Queue, accounts: &Accounts, gangs: &mut Gangs, id: u32, now: Now) {
    let quantum = gangs.planner.rules().quantum;
    let Some(wanted) = gangs.waiting.get(&id) else { return };
    let Some((demand, shortage)) = wanted.demand.as_ref().zip(wanted.shortage.as_ref()) else { return };
    let Some(cluster) = queue.clusters().get(&id) else { return };
    let (class, _) = cluster.class.aged(cluster.submitted_ms / 1000, now.wall_ms / 1000, quantum);
    let aged = class > cluster.class && !accounts.is_nice(demand.user);
    if aged && shortage.kept_for.is_none() && !shortage.is_for_ever() {
        let groups = accounts.groups_of(demand.user).map(|(number, _)| number);
        gangs.awaited.add(id, demand, shortage, groups);
    }
}

/// Tells the planner what a waiting gang wants.
fn want(books: &mut Books, gangs: &mut Gangs, id: u32, now: Now) {
    let Some(cluster) = books.queue.clusters().get(&id) else { return };
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
        .any(|s| books.shapes.all().get(s).is_some_and(|s| s.force.is_some()));
    let mut viable: BTreeMap<Vec<ShapeId>, Arc<Bits>> = BTreeMap::new();
    let mut largest = Resources::default();
    let mut run = Some(0);
    for (_, shapes) in &seats {
        let Some((shape, guests)) = shapes.split_first() else { return };
        let Some(found) = books.shapes.all().get(shape) else { return };
        largest = larger(largest, found.request);
        for shape in shapes.iter().filter_map(|s| books.shapes.all().get(s)) {
            run = run.zip(shape.run_limit_s).map(|(a, b): (u64, u64)| a.max(b));
        }
        if !viable.contains_key(shapes) {
            let mut bits = Bits::with_room(books.pool.numbers());
            let (suited, mut all) = match books.shapes.viable_and_whether_all(*shape) {
                Some((suited, all)) => (suited.iter().collect::<Vec<u32>>(), all),
                None => (Vec::new(), true),
            };
            for number in suited {
                // Where a guest cannot be, its host cannot either.
                let mut answers = guests.iter().map(|guest| books.shapes.answer(*guest, number));
                match answers.find(|answer| *answer != Some(true)) {
                    None => bits.set(number as usize),
                    Some(answer) => all &= answer.is_some(),
                }
            }
            if !all {
                gangs.incomplete.insert(id);
            }
            // What could not be made ready for it, is lent to others, or in a lab without its trees, is not there for it.
            for name in books.queue.clusters()[&id].excluded.keys().flat_map(|host| books.pool.places(host)) {
                if let Some(machine) = books.pool.machines().get(&name).filter(|_| {
                    provision::is_excluded(&books.settings, &books.queue, books.clock_ms, id, &name)
                }) {
                    bits.clear(machine.number as usize);
                }
            }
            let picks = books.shapes.has_trees() || forces;
            for (name, machine) in books.pool.machines().iter().filter(|(_, m)| picks || m.is_restricted()) {
                let is_for = shapes
                    .iter()
                    .all(|s| labs::is_for(&books.shapes, &books.accounts, &books.labs, machine, *s));
                if !is_for || (forces && !is_in_reach(&books.queue, &books.shapes, id, *shape, name, machine))
                {
                    bits.clear(machine.number as usize);
                }
            }
            viable.insert(shapes.clone(), Arc::new(bits));
        }
    }
    let mut fits = vec![Fit { now: 0, empty: 0 }; books.pool.numbers()];
    for (name, machine) in books.pool.machines().iter() {
        let open =
            machine.is_open() || (forces && is_open_to(&books.queue, &books.shapes, id, name, machine));
        if !open {
            continue;
        }
        fits[machine.number as usize] = fit_of(largest, all_here, machine);
    }
    let kinds = viable.keys().cloned().collect();
    let Some(wanted) = gangs.waiting.get_mut(&id) else { return };
    (wanted.kinds, wanted.largest, wanted.all_here, wanted.stale) = (kinds, largest, all_here, false);
    let nice = wanted.demand.as_ref().is_some_and(|d| books.accounts.is_nice(d.user));
    let seats = seats.iter().map(|(_, s)| Seat { viable: viable[s].clone(), prefer: Vec::new() }).collect();
    let want = Want {
        id: SetId(u64::from(id)),
        class,
        standing: super::order::standing_of_gang(&books.queue, &books.accounts, gangs, id, now.wall_ms)
            .unwrap_or(Standing::Age),
        ages: !nice,
        submitted,
        run: run.unwrap_or(SITE_LIMIT_S),
        may_backfill: run.is_some(),
        seats,
        fits: Some(fits.into()),
    };
    gangs.planner.put(want, now.wall_ms / 1000);
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
