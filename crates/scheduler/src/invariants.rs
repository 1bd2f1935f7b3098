//! What must hold after every input, each in one sentence and in a function of its own.
//!
//! They look at everything and trust nothing that is kept by hand, so they are for tests, scenarios, the model check and
//! storms; the consistency pass (`sweep`) asks the same of a running pool, a little at a time, and puts it right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::event::Resources;
use model::{ClaimId, JobId, Now};
use planner::bits::Bits;
use planner::matching::{self, Choice};
use planner::{Reason, SetId, loads};

use crate::accounts::UserId;
use crate::labs::Shut;
use crate::pool::{Claim, minus};
use crate::queue::Queue;
use crate::shape::{ShapeId, Shapes};
use crate::{Core, admission, gangs, room, view};

/// Something that must hold.
#[derive(Clone, Copy)]
pub struct Invariant {
    /// In a word.
    pub name: &'static str,
    /// In a sentence.
    pub says: &'static str,
    check: fn(&mut Core, Now) -> Result<(), String>,
}

/// All of them. Numbers are those of the reference.
pub const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "one_place",
        says: "an unfinished job is idle, held, live or kept to be looked at, and only one of them",
        check: one_place,
    },
    Invariant {
        name: "jobs_and_claims",
        says: "a live job is with exactly the claim that has it (I1)",
        check: jobs_and_claims,
    },
    Invariant {
        name: "claims_and_machines",
        says: "a claim is in the books of its machine, and of no other",
        check: claims_and_machines,
    },
    Invariant { name: "room", says: "what is free on a machine is what its claims leave", check: room },
    Invariant {
        name: "whole_gangs",
        says: "jobs of a gang all wait or all have their machines, unless they are called back or held (I2)",
        check: whole_gangs,
    },
    Invariant {
        name: "seats",
        says: "every claim that is not on its way out has a job, or is kept for somebody",
        check: seats,
    },
    Invariant {
        name: "no_missed_start",
        says: "no waiting gang could have all its machines now without taking from a better one (I5)",
        check: no_missed_start,
    },
    Invariant {
        name: "no_missed_job",
        says: "no plain job waits that could have started at the last tick and still could, unless its kind is being looked at",
        check: no_missed_job,
    },
    Invariant {
        name: "nothing_pending",
        says: "no machine is undecided about while its lab is on (I6)",
        check: nothing_pending,
    },
    Invariant {
        name: "earmarks",
        says: "a machine is kept for at most one gang, which waits, has a plan in one lab, and all of that plan (I7)",
        check: earmarks,
    },
    Invariant {
        name: "first_is_planned",
        says: "the first gang in the order that could ever start has a plan (I8)",
        check: first_is_planned,
    },
    Invariant {
        name: "hard_promises",
        says: "a promise is not later than the last declared end of what runs on its machines (I10)",
        check: hard_promises,
    },
    Invariant { name: "limits", says: "no more of a named limit is in use than there is", check: limits },
    Invariant {
        name: "quotas",
        says: "a group that takes no surplus holds no more than its quota, where that is a number of cores",
        check: quotas,
    },
    Invariant {
        name: "accounts",
        says: "users and groups hold the cores of their claims, and named limits what claims take",
        check: accounts,
    },
    Invariant {
        name: "shown_standings",
        says: "what is shown of a claim's slot is a state with an activity that the book has: Matched is Idle only",
        check: a_slot_is_shown_in_a_standing_of_the_book,
    },
    Invariant {
        name: "owners",
        says: "an owner's unfinished jobs are as many as their clusters have",
        check: owners,
    },
    Invariant { name: "cores", says: "the pool's cores are those of the machines in contact", check: cores },
    Invariant {
        name: "lists",
        says: "the lists of machines out of contact, of claims with several jobs and of those kept after theirs name these and no others",
        check: lists,
    },
    Invariant {
        name: "leases",
        says: "a claim is on a machine in contact, or on one that is waited for",
        check: leases,
    },
    Invariant { name: "line", says: "in line are exactly the plain jobs that wait", check: line },
];

/// What does not hold, in words; nothing when all is well.
pub(crate) fn broken(core: &mut Core, now: Now) -> Vec<String> {
    let broken = INVARIANTS.iter().filter_map(|i| {
        let why = (i.check)(core, now).err()?;
        Some(format!("{}: {why} ({})", i.name, i.says))
    });
    broken.collect()
}

fn wrong(what: String) -> Result<(), String> {
    Err(what)
}

fn one_place(core: &mut Core, _: Now) -> Result<(), String> {
    for (id, c) in core.books.queue.clusters() {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let idle = c.idle();
        let all = idle.iter().chain(c.held.iter()).chain(c.live.keys().copied()).chain(c.completed.iter());
        for proc in all {
            if !seen.insert(proc) {
                return wrong(format!("{} is in two places", JobId { cluster: *id, proc }));
            }
        }
        if c.holds.iter().map(|h| h.procs.len()).sum::<u64>() != c.held.len() {
            return wrong(format!("held jobs of {id} and reasons for it differ"));
        }
    }
    Ok(())
}

fn jobs_and_claims(core: &mut Core, _: Now) -> Result<(), String> {
    let live = core.books.queue.clusters().iter().flat_map(|(id, c)| {
        c.live.iter().map(|(proc, live)| (JobId { cluster: *id, proc: *proc }, live.claim))
    });
    let live: BTreeSet<(JobId, ClaimId)> = live.collect();
    let claims = core.books.pool.claims().iter().flat_map(|(id, c)| c.jobs.iter().map(|job| (*job, *id)));
    let of_claims: Vec<(JobId, ClaimId)> = claims.collect();
    if of_claims.len() != live.len() {
        return wrong(format!("{} jobs are live, {} are with claims", live.len(), of_claims.len()));
    }
    match of_claims.iter().find(|pair| !live.contains(pair)) {
        Some((job, claim)) => wrong(format!("{job} is not live with claim {claim}")),
        None => Ok(()),
    }
}

fn claims_and_machines(core: &mut Core, _: Now) -> Result<(), String> {
    let mut of_machines = BTreeMap::new();
    for (name, machine) in core.books.pool.machines().iter() {
        for id in &machine.claims {
            if of_machines.insert(*id, name).is_some() {
                return wrong(format!("claim {id} is on two machines"));
            }
        }
    }
    for (id, claim) in core.books.pool.claims() {
        if of_machines.get(id).is_none_or(|name| **name != claim.machine) {
            return wrong(format!("claim {id} is not in the books of {}", claim.machine));
        }
    }
    let over = of_machines.keys().find(|id| !core.books.pool.claims().contains_key(id));
    over.map_or(Ok(()), |id| wrong(format!("claim {id} is over and still in a machine's books")))
}

fn room(core: &mut Core, _: Now) -> Result<(), String> {
    for (name, machine) in core.books.pool.machines().iter().filter(|(_, m)| m.session.is_some()) {
        let claims = machine.claims.iter().filter_map(|id| core.books.pool.claims().get(id));
        let left = claims.map(|c| c.resources).fold(machine.total, minus);
        let taken = machine.whole && !machine.claims.is_empty();
        if machine.free != if taken { Resources::default() } else { left } {
            return wrong(format!("{name} has {:?} free", machine.free));
        }
        let roomy = machine.is_open() && machine.free.cpus > 0;
        if core.books.pool.roomy().contains(machine.number) != roomy {
            return wrong(format!("{name} is among those with room: {}", !roomy));
        }
    }
    Ok(())
}

fn whole_gangs(core: &mut Core, _: Now) -> Result<(), String> {
    for (id, c) in core.books.queue.clusters().iter().filter(|(_, c)| c.gang) {
        let placed = c.live.values().filter(|l| l.stop.is_none()).count();
        if placed > 0 && c.is_broken() {
            return wrong(format!("{placed} jobs of gang {id} have machines, others wait"));
        }
    }
    Ok(())
}

fn seats(core: &mut Core, _: Now) -> Result<(), String> {
    let connected =
        |c: &Claim| core.books.pool.machines().get(&c.machine).is_some_and(|m| m.session.is_some());
    let in_vain = |c: &Claim| c.jobs.is_empty() && !c.ending && c.reserved.is_none() && connected(c);
    match core.books.pool.claims().iter().find(|(_, c)| in_vain(c)) {
        Some((id, claim)) => wrong(format!("claim {id} on {} has nothing to do", claim.machine)),
        None => Ok(()),
    }
}

/// What stands between the pool and every start, whoever waits.
fn is_held_back(core: &Core) -> bool {
    core.keys.are_wanted() || core.throttle.due_ms().is_some()
}

/// Jobs of a waiting gang that need a machine, and the most that any asks for.
fn seats_of(core: &Core, id: u32) -> (Vec<ShapeId>, Resources) {
    let Some(cluster) = core.books.queue.clusters().get(&id) else {
        return (Vec::new(), Resources::default());
    };
    let idle = cluster.idle();
    let hosts = idle.iter().filter(|proc| cluster.host_of(*proc).is_none());
    let shapes: Vec<ShapeId> =
        hosts.filter_map(|p| Some(cluster.parts.get(cluster.part_of(p))?.shape)).collect();
    let requests = shapes.iter().filter_map(|s| core.books.shapes.all().get(s)).map(|s| s.request);
    let largest = requests.fold(Resources::default(), crate::gangs::larger);
    (shapes, largest)
}

/// Could these machines of one lab take all jobs of a gang now?
fn could_start(core: &mut Core, id: u32, usable: &BTreeSet<u32>) -> bool {
    let (shapes, largest) = seats_of(core, id);
    if shapes.is_empty() {
        return false;
    }
    let mut can: BTreeMap<ShapeId, Bits> = BTreeMap::new();
    for shape in &shapes {
        if can.contains_key(shape) {
            continue;
        }
        let suited: Vec<u32> = usable
            .iter()
            .copied()
            .filter(|n| gangs::describe::is_viable_for(&mut core.books, id, *shape, *n))
            .collect();
        can.insert(*shape, suited.into_iter().map(|n| n as usize).collect());
    }
    let labs: BTreeSet<Arc<str>> =
        usable.iter().filter_map(|n| Some(core.books.pool.machines().at(*n)?.lab.clone())).collect();
    labs.into_iter().any(|lab| {
        let here = usable.iter().filter(|n| core.books.pool.machines().at(**n).is_some_and(|m| m.lab == lab));
        let here: Bits = here.map(|n| *n as usize).collect();
        let seats: Vec<Choice<'_>> =
            shapes.iter().map(|s| Choice { can: can[s].and(&here), prefer: &[] }).collect();
        let room = |n: usize| {
            core.books.pool.machines().at(n as u32).map_or(0, |m| crate::gangs::fit_of(largest, true, m).now)
        };
        matching::exists(&seats, &room)
    })
}

fn no_missed_start(core: &mut Core, now: Now) -> Result<(), String> {
    if is_held_back(core) {
        return Ok(());
    }
    let waiting: Vec<u32> = core.gangs.planner().queue().map(|id| id.0 as u32).collect();
    for id in waiting {
        let all_here =
            core.books.queue.clusters().get(&id).is_some_and(|c| c.live.is_empty() && c.later.is_empty());
        let short = admission::demand_of_gang(&core.books.queue, &core.books.shapes, id)
            .is_none_or(|d| admission::shortage_of_gang(&core.books, &core.gangs, id, &d).is_some());
        if !all_here || short || core.gangs.planner().want(SetId(u64::from(id))).is_none() {
            continue;
        }
        let Some(rank) =
            gangs::order::rank_of_gang(&core.books.queue, &core.books.accounts, &core.gangs, id, now.wall_ms)
        else {
            continue;
        };
        let better = |number: u32| {
            let owner = core.gangs.earmark(number).filter(|owner| *owner != id);
            owner.is_some_and(|owner| {
                gangs::order::rank_of_gang(
                    &core.books.queue,
                    &core.books.accounts,
                    &core.gangs,
                    owner,
                    now.wall_ms,
                )
                .is_some_and(|r| r < rank)
            })
        };
        let free = core.books.pool.machines().values().filter(|m| m.is_open() && m.free.cpus > 0);
        let usable: BTreeSet<u32> = free.map(|m| m.number).filter(|n| !better(*n)).collect();
        if could_start(core, id, &usable) {
            return wrong(format!("gang {id} could start"));
        }
    }
    Ok(())
}

fn no_missed_job(core: &mut Core, now: Now) -> Result<(), String> {
    if is_held_back(core) || !core.undone.is_empty() {
        return Ok(());
    }
    // What only time decides (shares, promises) is looked at by ticks, so that it must have been so at the last one.
    let moments = [core.books.clock_ms.min(now.wall_ms), now.wall_ms];
    let line = core.books.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
    let line: Vec<ShapeId> = line.collect();
    // Whoever only looks spends nothing of what the pass may spend.
    let left = core.books.shapes.allowance();
    let mut missed = None;
    for shape in line {
        let found = moments.map(|now_ms| {
            room::first_room_unnoticed(&mut core.books, &mut core.gangs, &mut core.undone, shape, now_ms)
        });
        if let [Some(_), Some((ready, machine))] = found {
            missed = Some(format!("a job of cluster {} could start on {machine}", ready.cluster));
            break;
        }
    }
    core.books.shapes.allow(left);
    missed.map_or(Ok(()), Err)
}

fn nothing_pending(core: &mut Core, _: Now) -> Result<(), String> {
    let stuck = core.books.pool.machines().iter().find(|(_, m)| m.undecided && m.shut != Some(Shut::Lab));
    stuck.map_or(Ok(()), |(name, _)| wrong(format!("{name} is pending")))
}

fn earmarks(core: &mut Core, _: Now) -> Result<(), String> {
    let planner = core.gangs.planner();
    for number in 0..core.books.pool.numbers() {
        let Some(owner) = planner.earmark(number) else { continue };
        let planned = planner.plan(owner).is_some_and(|p| p.systems.contains(&number));
        if !planned || !gangs::waits_as_gang(&core.books.queue, owner.0 as u32) {
            return wrong(format!("machine {number} is kept for gang {}, which has no plan for it", owner.0));
        }
    }
    for id in planner.planned() {
        let Some(plan) = planner.plan(id) else { return wrong(format!("gang {} has no plan", id.0)) };
        let Some(want) = planner.want(id) else { return wrong(format!("gang {} does not wait", id.0)) };
        let kept = plan.systems.iter().all(|s| planner.earmark(*s) == Some(id));
        let one_lab = plan.systems.iter().all(|s| planner.system(*s).is_some_and(|s| s.lab == plan.lab));
        let suits = plan.systems.iter().zip(&want.seats).all(|(s, seat)| seat.viable.has(*s));
        if !kept || !one_lab || !suits || plan.systems.len() != want.seats.len() {
            return wrong(format!(
                "the plan of gang {}: kept {kept}, one lab {one_lab}, suits {suits}",
                id.0
            ));
        }
    }
    Ok(())
}

fn first_is_planned(core: &mut Core, _: Now) -> Result<(), String> {
    let planner = core.gangs.planner();
    if planner.rules().depth == 0 || is_held_back(core) {
        return Ok(());
    }
    let gang = |id: &SetId| planner.want(*id).is_some_and(|w| w.seats.len() > 1);
    let possible = |id: &SetId| planner.reason(*id) != Some(Reason::Unsatisfiable);
    match planner.queue().filter(gang).find(possible) {
        Some(id) if planner.plan(id).is_none() => wrong(format!("gang {} has none", id.0)),
        _ => Ok(()),
    }
}

fn hard_promises(core: &mut Core, now: Now) -> Result<(), String> {
    let now_s = now.wall_ms / 1000;
    for id in core.gangs.planner().planned() {
        let Some(plan) = core.gangs.planner().plan(id) else { continue };
        let mut latest = now_s;
        for (number, _) in loads(&plan.systems) {
            let claims = core.books.pool.machines().at(number as u32).into_iter().flat_map(|m| &m.claims);
            for claim in claims.filter_map(|c| core.books.pool.claims().get(c)) {
                match declared_end_s(&core.books.queue, &core.books.shapes, claim, now) {
                    Some(end) => latest = latest.max(end),
                    // Nobody knows: then the promise is anybody's guess.
                    None => latest = u64::MAX,
                }
            }
        }
        let promise =
            gangs::plans::promise_to(&core.books, &core.gangs, id.0 as u32, now.wall_ms).unwrap_or(now_s);
        if promise > latest {
            return wrong(format!("gang {} is promised {promise}, and all ends by {latest}", id.0));
        }
    }
    Ok(())
}

/// When what a claim has is over by what it declared, in Unix seconds; `None` where nothing was, or it has not begun.
fn declared_end_s(queue: &Queue, shapes: &Shapes, claim: &Claim, now: Now) -> Option<u64> {
    if let Some(reserved) = claim.reserved {
        return Some(reserved.until_ms? / 1000);
    }
    let Some(job) = claim.jobs.first() else { return Some(now.wall_ms / 1000) };
    let cluster = queue.clusters().get(&job.cluster)?;
    let ends = cluster.live.iter().map(|(proc, live)| {
        let shape = cluster.parts.get(cluster.part_of(*proc)).map(|p| p.shape)?;
        let limit_s = shapes.all().get(&shape)?.run_limit_s?;
        let more_s = cluster.extended.get(proc).copied().unwrap_or(0);
        Some(live.started_ms? / 1000 + limit_s + more_s)
    });
    // A gang's machines go back together.
    ends.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

fn limits(core: &mut Core, _: Now) -> Result<(), String> {
    match core.books.in_use.overdrawn() {
        Some((name, taken, most)) => wrong(format!("{taken} of {name} are in use, of {most}")),
        None => Ok(()),
    }
}

fn quotas(core: &mut Core, _: Now) -> Result<(), String> {
    match core.books.accounts.overdrawn() {
        Some((name, held, quota)) => wrong(format!("{name} holds {held} of {quota}")),
        None => Ok(()),
    }
}

fn accounts(core: &mut Core, _: Now) -> Result<(), String> {
    let mut held: BTreeMap<UserId, f64> = BTreeMap::new();
    let mut taken: BTreeMap<&str, f64> = BTreeMap::new();
    for claim in core.books.pool.claims().values() {
        *held.entry(claim.user).or_default() += f64::from(claim.resources.cpus);
        for (name, count) in &claim.limits {
            *taken.entry(name).or_default() += count;
        }
    }
    for user in (0..core.books.accounts.len()).map(UserId) {
        let (books, claims) = (core.books.accounts.held(user), held.get(&user).copied().unwrap_or(0.0));
        if (books - claims).abs() > 1e-6 {
            let name = &core.books.accounts.get(user).name;
            return wrong(format!("{name} is booked {books} cores and has {claims}"));
        }
    }
    let names: BTreeSet<&str> =
        taken.keys().copied().chain(core.books.in_use.taken().keys().map(|n| &**n)).collect();
    for name in names {
        let (books, claims) = (core.books.in_use.taken().get(name), taken.get(name));
        if (books.copied().unwrap_or(0.0) - claims.copied().unwrap_or(0.0)).abs() > 1e-6 {
            return wrong(format!("{books:?} of {name} are booked, {claims:?} in use"));
        }
    }
    Ok(())
}

fn owners(core: &mut Core, _: Now) -> Result<(), String> {
    let mut counted: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for cluster in core.books.queue.clusters().values() {
        *counted.entry(cluster.owner.clone()).or_default() += cluster.unfinished();
    }
    counted.retain(|_, jobs| *jobs > 0);
    if counted == *core.books.queue.jobs_of() {
        return Ok(());
    }
    wrong(format!("{:?} are booked, {counted:?} are there", core.books.queue.jobs_of()))
}

fn cores(core: &mut Core, _: Now) -> Result<(), String> {
    let connected = core.books.pool.machines().values().filter(|m| m.session.is_some());
    let counted: u64 = connected.map(|m| u64::from(m.total.cpus)).sum();
    if counted == core.books.pool.cores() {
        return Ok(());
    }
    wrong(format!("{} are booked, {counted} are there", core.books.pool.cores()))
}

fn lists(core: &mut Core, _: Now) -> Result<(), String> {
    let pool = &core.books.pool;
    let away = pool.machines().iter().filter(|(_, m)| m.session.is_none()).map(|(name, _)| name.clone());
    if away.collect::<BTreeSet<_>>() != *pool.away() {
        return wrong(format!("{:?} are listed as out of contact", pool.away()));
    }
    let deep = pool.claims().iter().filter(|(_, c)| c.jobs.len() > 1).map(|(id, _)| *id);
    if deep.collect::<BTreeSet<_>>() != *pool.deep() {
        return wrong(format!("{:?} are listed as having several jobs", pool.deep()));
    }
    let reserved = pool.claims().iter().filter_map(|(id, c)| Some((c.reserved?.job.cluster, *id)));
    if reserved.collect::<BTreeSet<_>>() != *pool.reserved() {
        return wrong(format!("{:?} are listed as kept", pool.reserved()));
    }
    Ok(())
}

fn leases(core: &mut Core, _: Now) -> Result<(), String> {
    let pool = &core.books.pool;
    let lost = pool.claims().iter().find(|(_, claim)| {
        let machine = pool.machines().get(&claim.machine);
        machine.is_none_or(|m| m.session.is_none() && !pool.away().contains(&claim.machine))
    });
    lost.map_or(Ok(()), |(id, claim)| {
        wrong(format!("nobody waits for {}, which has claim {id}", claim.machine))
    })
}

fn line(core: &mut Core, _: Now) -> Result<(), String> {
    for (id, c) in core.books.queue.clusters().iter().filter(|(_, c)| !c.gang) {
        for (at, part) in c.parts.iter().enumerate() {
            let entry = c.ready(*id, at);
            let in_line = core.books.shapes.all().get(&part.shape).is_some_and(|s| s.ready.contains(&entry));
            if in_line == part.idle.is_empty() {
                return wrong(format!("part {at} of {id} is in line: {in_line}"));
            }
        }
    }
    for (id, shape) in core.books.shapes.all() {
        let first = shape.ready.first().copied();
        if first.is_some() != core.books.accounts.is_in_line(shape.user, *id, first) {
            return wrong(format!(
                "jobs of {} are not where they stand",
                core.books.accounts.get(shape.user).name
            ));
        }
    }
    Ok(())
}

fn a_slot_is_shown_in_a_standing_of_the_book(core: &mut Core, _: Now) -> Result<(), String> {
    const BOOK: [(&str, &[&str]); 3] = [
        ("Matched", &["Idle"]),
        ("Claimed", &["Idle", "Busy", "Suspended"]),
        ("Preempting", &["Vacating", "Killing"]),
    ];
    for (name, machine) in core.books.pool.machines().iter() {
        for claim in view::machine_view(&core.books, name, machine).claims {
            let (state, activity) = claim.standing();
            let known = BOOK.iter().any(|(of, all)| *of == state && all.contains(&activity));
            if !known {
                return Err(format!("claim {} of {name} is shown as {state}/{activity}", claim.claim.0));
            }
        }
    }
    Ok(())
}
