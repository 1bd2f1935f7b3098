//! Where gangs stand among all sets that wait, plain jobs included: decision 034.

use std::cmp::Reverse;

use model::Now;
use planner::{Rank, SetId, Standing};

use crate::accounts::UserId;
use crate::shape::Ready;
use crate::{Core, Turn};

/// The turn of a gang that still waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct GangTurn {
    number: u64,
    user: UserId,
    /// What counts as held by its user meanwhile.
    cores: f64,
}

impl Core {
    /// The place of waiting jobs among all sets.
    pub(crate) fn rank_of_jobs(&self, user: UserId, ready: Ready, now_ms: u64) -> Rank {
        let place = self.accounts.place_of(user, ready.class.0, now_ms);
        let submitted = self.queue.clusters().get(&ready.cluster).map_or(0, |c| c.submitted_ms / 1000);
        let standing = Standing::Share { place, user: user.0, priority: ready.priority };
        Rank { class: ready.class, standing, submitted, id: SetId(u64::from(ready.cluster)) }
    }

    /// The place of a waiting gang, with shares as they are now; `None` for one that the planner does not know.
    pub(crate) fn rank_of_gang(&self, id: u32, now_ms: u64) -> Option<Rank> {
        let rank = self.gangs.planner.rank_of(SetId(u64::from(id)))?;
        match rank.standing {
            Standing::Share { .. } => Some(Rank { standing: self.standing_of_gang(id, now_ms)?, ..rank }),
            Standing::Turn(_) | Standing::Age => Some(rank),
        }
    }

    /// Where a gang stands in the class that it holds by right.
    pub(super) fn standing_of_gang(&self, id: u32, now_ms: u64) -> Option<Standing> {
        if let Some(turn) = self.gangs.turns.get(&id) {
            return Some(Standing::Turn(turn.number));
        }
        let cluster = self.queue.clusters().get(&id)?;
        let user = self.gangs.waiting.get(&id)?.demand.as_ref()?.user;
        let place = self.accounts.place_of(user, cluster.class, now_ms);
        Some(Standing::Share { place, user: user.0, priority: Reverse(cluster.priority) })
    }

    /// Tells the planner where gangs stand by now.
    pub(super) fn rank_gangs(&mut self, now: Now) {
        let ids = self.gangs.waiting.iter().filter(|(_, w)| w.is_planned_for()).map(|(id, _)| *id);
        let mut moved: Vec<(Rank, Standing)> = ids
            .filter_map(|id| {
                let rank = self.gangs.planner.rank_of(SetId(u64::from(id)))?;
                Some((rank, self.standing_of_gang(id, now.wall_ms)?))
            })
            .filter(|(rank, standing)| rank.standing != *standing)
            .collect();
        // Gangs of one user move together: in this order none of them overtakes another on the way.
        moved.sort_unstable();
        let (up, down): (Vec<_>, Vec<_>) = moved.into_iter().partition(|(rank, new)| *new < rank.standing);
        for (rank, standing) in up.into_iter().chain(down.into_iter().rev()) {
            self.gangs.planner.set_standing(rank.id, standing, now.wall_ms / 1000);
        }
    }

    /// The turn of promised gangs has come when a machine was kept for them against somebody, or when nobody who waits is
    /// before them.
    pub(super) fn give_turns(&mut self, now: Now) {
        let kept = std::mem::take(self.gangs.kept.get_mut());
        let planned: Vec<u32> = self.gangs.planner.planned().map(|id| id.0 as u32).collect();
        let first = self.accounts.in_line().next().and_then(|at| {
            let (ready, _) = at.waiting().next()?;
            Some(self.rank_of_jobs(at.id, ready, now.wall_ms))
        });
        for id in planned {
            if self.gangs.turns.contains_key(&id) {
                continue;
            }
            let Some(rank) = self.rank_of_gang(id, now.wall_ms) else { continue };
            let by_share = matches!(rank.standing, Standing::Share { .. });
            let demand = self.gangs.waiting.get(&id).and_then(|w| w.demand.as_ref());
            let Some((user, cores)) = demand.map(|d| (d.user, d.cores)).filter(|_| by_share) else {
                continue;
            };
            let comes = kept.contains(&id) || first.is_none_or(|first| rank < first);
            // Who lets all others go first does so also when they come later.
            if !comes || self.accounts.is_nice(user) {
                continue;
            }
            self.gangs.next_turn += 1;
            self.gangs.turns.insert(id, GangTurn { number: self.gangs.next_turn, user, cores });
            self.accounts.promise(user, cores);
        }
    }

    /// A gang waits no more, or is promised nothing any more.
    pub(super) fn end_turn(&mut self, id: u32) {
        if let Some(turn) = self.gangs.turns.remove(&id) {
            self.accounts.promise(turn.user, -turn.cores);
        }
    }

    /// Turns of gangs that lost their plan and got no other are over.
    pub(super) fn end_idle_turns(&mut self) {
        let ids: Vec<u32> = self.gangs.turns.keys().copied().filter(|id| !self.gangs.has_plan(*id)).collect();
        for id in ids {
            self.end_turn(id);
        }
    }

    /// Offers the machines of gangs that somebody who waits is before by now: shares move with time, which no event tells.
    pub(crate) fn offer_overtaken(&mut self, turn: &mut Turn<'_>) {
        for machine in self.overtaken_machines(turn.now.wall_ms) {
            self.offer_machine(turn, &machine);
        }
    }

    fn overtaken_machines(&self, now_ms: u64) -> Vec<std::sync::Arc<str>> {
        let first = self.accounts.in_line().next().and_then(|at| {
            let (ready, _) = at.waiting().next()?;
            Some(self.rank_of_jobs(at.id, ready, now_ms))
        });
        let Some(first) = first else { return Vec::new() };
        let planned = self
            .gangs
            .planner
            .planned()
            .filter(|id| self.rank_of_gang(id.0 as u32, now_ms).is_some_and(|rank| first < rank));
        let systems = planned.filter_map(|id| self.gangs.planner.plan(id)).flat_map(|p| &p.systems);
        let roomy = systems.filter(|n| self.pool.roomy().contains(**n as u32));
        let mut names: Vec<_> = roomy.filter_map(|n| self.pool.name(*n as u32).cloned()).collect();
        names.dedup();
        names
    }
}
