//! What tests, storms and the model check look at beside what people see.

use model::{ClaimId, Now};

use crate::books::Books;
use crate::books::labs::Labs;
use crate::gangs::Gangs;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::shape::ShapeId;
use crate::sweep::Sweep;
use crate::undone::Undone;
use crate::{admission, preempt, room};

/// Everything durable, as text that can be compared.
pub(crate) fn picture(queue: &Queue, pool: &Pool, labs: &Labs) -> String {
    let mut text = String::new();
    for (id, c) in queue.clusters() {
        let mut attempts: Vec<_> = c.attempts.iter().collect();
        attempts.sort();
        let mut unbegun: Vec<_> = c.unbegun.iter().collect();
        unbegun.sort();
        text += &format!(
            "{id} {} {:?} {:?} {:?} {:?} {attempts:?} {unbegun:?} {:?} {} {:?} {:?}\n",
            c.owner,
            c.class,
            c.idle().spans(),
            c.held.spans(),
            c.live,
            c.summary,
            c.requeues,
            c.past,
            (&c.completed, &c.excluded, &c.unready, &c.extended, &c.missed)
        );
    }
    let claims = pool.claims().iter();
    let mut claims: Vec<_> = claims
        .map(|(id, c)| format!("{id} {} {:?} {} {:?}", c.machine, c.jobs, c.slot, c.reserved))
        .collect();
    claims.sort();
    let labs = (labs.standings(), labs.decided());
    text += &format!("{claims:?} {} {} {labs:?}", queue.next_cluster(), pool.next_claim());
    text
}

/// The books of a machine lose what it has: for tests of what puts that right.
pub(crate) fn spoil_books(pool: &mut Pool, sweep: &mut Sweep, machine: &str) {
    sweep.alarm = false;
    pool.spoil_machine(machine);
}

/// The gang that a machine is kept for.
pub(crate) fn earmark_of(pool: &Pool, gangs: &Gangs, machine: &str) -> Option<u32> {
    gangs.earmark(pool.machines().get(machine)?.number)
}

/// A running job that its machine likes less than one that waits and could have its place, where nobody is on the way out
/// for that one. After a tick there is none, as long as few enough machines and kinds of jobs are looked at in one go.
pub(crate) fn slighted(
    books: &mut Books,
    gangs: &mut Gangs,
    undone: &mut Undone,
    now: Now,
) -> Option<String> {
    let line = books.accounts.in_line().flat_map(|at| at.waiting().collect::<Vec<_>>());
    let kinds: Vec<ShapeId> = line.map(|(_, shape)| shape).collect();
    for shape in kinds {
        let machines: Vec<u32> = books.shapes.ranking().iter().collect();
        let room = room::first_room_unnoticed(books, gangs, undone, shape, now.wall_ms).is_some();
        if room || !admission::may_have_more(books, gangs, shape) || books.pool.rivals(shape) > 0 {
            continue;
        }
        for number in machines {
            let Some(machine) = books.pool.machines().at(number).filter(|m| m.is_open()) else { continue };
            let rank = books.shapes.machine_rank(number, shape).unwrap_or(0.0);
            let lab = machine.lab.clone();
            let claims: Vec<ClaimId> = machine.claims.iter().copied().collect();
            let worse = claims.into_iter().find(|id| {
                let job = books.pool.claims().get(id).and_then(|c| c.jobs.first().copied());
                let its = job.and_then(|j| preempt::shape_of(&books.queue, j));
                its.is_some_and(|its| books.shapes.machine_rank(number, its).is_some_and(|its| its < rank))
            });
            if let Some(id) = worse.filter(|_| books.shapes.suits(shape, number)) {
                return Some(format!(
                    "claim {id} on machine {number} ({lab}) is worth less than a job that waits"
                ));
            }
        }
    }
    None
}

/// The class of a cluster, before aging.
pub(crate) fn class_of(queue: &Queue, cluster: u32) -> Option<model::Class> {
    queue.clusters().get(&cluster).map(|c| c.class)
}

/// Waiting gangs in their order, each with its class after aging, and whether its turn has come: what tells states of
/// the pool apart beside what people see.
pub(crate) fn gang_order(gangs: &Gangs) -> Vec<(u32, model::Class, bool)> {
    let planner = gangs.planner();
    let queue = planner.queue().filter_map(|id| Some((id.0 as u32, planner.rank_of(id)?)));
    queue.map(|(id, rank)| (id, rank.class.0, gangs.has_turn(id))).collect()
}
