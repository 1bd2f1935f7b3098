//! Where gangs stand among all sets that wait, plain jobs included: decision 034.

use std::cmp::Reverse;

use model::Now;
use planner::{Rank, SetId, Standing};

use crate::accounts::{Accounts, UserId};
use crate::gangs::Gangs;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::shape::Ready;

/// The turn of a gang that still waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct GangTurn {
    number: u64,
    user: UserId,
    /// What counts as held by its user meanwhile.
    cores: f64,
}

/// The place of waiting jobs among all sets.
pub(crate) fn rank_of_jobs(
    queue: &Queue,
    accounts: &Accounts,
    user: UserId,
    ready: Ready,
    now_ms: u64,
) -> Rank {
    let place = accounts.place_of(user, ready.class.0, now_ms);
    let submitted = queue.clusters().get(&ready.cluster).map_or(0, |c| c.submitted_ms / 1000);
    let standing = Standing::Share { place, user: user.0, priority: ready.priority };
    Rank { class: ready.class, standing, submitted, id: SetId(u64::from(ready.cluster)) }
}

/// The place of a waiting gang, with shares as they are now; `None` for one that the planner does not know.
pub(crate) fn rank_of_gang(
    queue: &Queue,
    accounts: &Accounts,
    gangs: &Gangs,
    id: u32,
    now_ms: u64,
) -> Option<Rank> {
    let rank = gangs.planner.rank_of(SetId(u64::from(id)))?;
    match rank.standing {
        Standing::Share { .. } => {
            Some(Rank { standing: standing_of_gang(queue, accounts, gangs, id, now_ms)?, ..rank })
        }
        Standing::Turn(_) | Standing::Age => Some(rank),
    }
}

/// Where a gang stands in the class that it holds by right.
pub(crate) fn standing_of_gang(
    queue: &Queue,
    accounts: &Accounts,
    gangs: &Gangs,
    id: u32,
    now_ms: u64,
) -> Option<Standing> {
    if let Some(turn) = gangs.turns.get(&id) {
        return Some(Standing::Turn(turn.number));
    }
    let cluster = queue.clusters().get(&id)?;
    let user = gangs.waiting.get(&id)?.demand.as_ref()?.user;
    let place = accounts.place_of(user, cluster.class, now_ms);
    Some(Standing::Share { place, user: user.0, priority: Reverse(cluster.priority) })
}

/// Tells the planner where gangs stand by now.
pub(crate) fn rank_gangs(queue: &Queue, accounts: &Accounts, gangs: &mut Gangs, now: Now) {
    let ids = gangs.waiting.iter().filter(|(_, w)| w.is_planned_for()).map(|(id, _)| *id);
    let mut moved: Vec<(Rank, Standing)> = ids
        .filter_map(|id| {
            let rank = gangs.planner.rank_of(SetId(u64::from(id)))?;
            Some((rank, standing_of_gang(queue, accounts, gangs, id, now.wall_ms)?))
        })
        .filter(|(rank, standing)| rank.standing != *standing)
        .collect();
    // Gangs of one user move together: in this order none of them overtakes another on the way.
    moved.sort_unstable();
    let (up, down): (Vec<_>, Vec<_>) = moved.into_iter().partition(|(rank, new)| *new < rank.standing);
    for (rank, standing) in up.into_iter().chain(down.into_iter().rev()) {
        gangs.planner.set_standing(rank.id, standing, now.wall_ms / 1000);
    }
}

/// The turn of promised gangs has come when a machine was kept for them against somebody, or when nobody who waits is
/// before them.
pub(crate) fn give_turns(queue: &Queue, accounts: &mut Accounts, gangs: &mut Gangs, now: Now) {
    let kept = std::mem::take(gangs.kept.get_mut());
    let planned: Vec<u32> = gangs.planner.planned().map(|id| id.0 as u32).collect();
    let first = accounts.in_line().next().and_then(|at| {
        let (ready, _) = at.waiting().next()?;
        Some(rank_of_jobs(queue, accounts, at.id, ready, now.wall_ms))
    });
    for id in planned {
        if gangs.turns.contains_key(&id) {
            continue;
        }
        let Some(rank) = rank_of_gang(queue, accounts, gangs, id, now.wall_ms) else { continue };
        let by_share = matches!(rank.standing, Standing::Share { .. });
        let demand = gangs.waiting.get(&id).and_then(|w| w.demand.as_ref());
        let Some((user, cores)) = demand.map(|d| (d.user, d.cores)).filter(|_| by_share) else {
            continue;
        };
        let comes = kept.contains(&id) || first.is_none_or(|first| rank < first);
        // Who lets all others go first does so also when they come later.
        if !comes || accounts.is_nice(user) {
            continue;
        }
        gangs.next_turn += 1;
        gangs.turns.insert(id, GangTurn { number: gangs.next_turn, user, cores });
        accounts.promise(user, cores);
    }
}

/// A gang waits no more, or is promised nothing any more.
pub(crate) fn end_turn(accounts: &mut Accounts, gangs: &mut Gangs, id: u32) {
    if let Some(turn) = gangs.turns.remove(&id) {
        accounts.promise(turn.user, -turn.cores);
    }
}

/// Turns of gangs that lost their plan and got no other are over.
pub(crate) fn end_idle_turns(accounts: &mut Accounts, gangs: &mut Gangs) {
    let ids: Vec<u32> = gangs.turns.keys().copied().filter(|id| !gangs.has_plan(*id)).collect();
    for id in ids {
        end_turn(accounts, gangs, id);
    }
}

pub(crate) fn overtaken_machines(
    queue: &Queue,
    pool: &Pool,
    accounts: &Accounts,
    gangs: &Gangs,
    now_ms: u64,
) -> Vec<std::sync::Arc<str>> {
    let first = accounts.in_line().next().and_then(|at| {
        let (ready, _) = at.waiting().next()?;
        Some(rank_of_jobs(queue, accounts, at.id, ready, now_ms))
    });
    let Some(first) = first else { return Vec::new() };
    let planned = gangs.planner.planned().filter(|id| {
        rank_of_gang(queue, accounts, gangs, id.0 as u32, now_ms).is_some_and(|rank| first < rank)
    });
    let systems = planned.filter_map(|id| gangs.planner.plan(id)).flat_map(|p| &p.systems);
    let roomy = systems.filter(|n| pool.roomy().contains(**n as u32));
    let mut names: Vec<_> = roomy.filter_map(|n| pool.name(*n as u32).cloned()).collect();
    names.dedup();
    names
}
