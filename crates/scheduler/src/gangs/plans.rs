//! What the plans of gangs mean to others: facts for the journal, and who may use a promised machine meanwhile.
//!
//! Which gang gets which plan is the planner's business. A plan is told when it is new, names other machines, moves by more
//! than a minute, or is gone; plain jobs hear of every change that may let one of them in.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Now;
use model::event::{GangPlanned, Kind, Resources};

use super::{larger, times};
use crate::gang::SetId;
use crate::gang::planner::loads;
use crate::pass::Candidate;
use crate::pool::Machine;
use crate::shape::ShapeId;
use crate::{Core, Digest, Out};

/// A promise that moves by no more than this is not told again.
const NEWS_S: u64 = 60;

/// A plan, as others know it.
#[derive(Debug)]
pub(crate) struct Told {
    machines: Vec<Arc<str>>,
    /// As the journal has it.
    promise_s: u64,
    /// As plain jobs were last offered the machines.
    offered_s: u64,
}

/// What promises say to a job that could use a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing: the machine is promised to nobody.
    Free,
    /// The job goes before the gang.
    Better,
    /// The job is sure to be gone before the gang starts.
    InTime,
    /// The machine is kept for a gang, until then at the latest.
    Withheld {
        /// For which.
        gang: u32,
        /// Unix seconds.
        until_s: u64,
    },
    /// The job would run into the machine's next maintenance window.
    Maintenance {
        /// When it begins, in Unix seconds.
        down_s: u64,
    },
}

impl Leave {
    pub(crate) fn is_given(self) -> bool {
        matches!(self, Self::Free | Self::Better | Self::InTime)
    }
}

impl Core {
    /// May a plain job take room on this machine, whoever it is promised to?
    pub(crate) fn leave(&self, machine: &Machine, shape: ShapeId, now_ms: u64) -> Leave {
        // A job that would run into the machine's next maintenance window does not start there; one that does not say
        // how long it takes is vacated when the time comes.
        let found = self.shapes.all.get(&shape);
        let (now_s, limit) = (now_ms / 1000, found.and_then(|s| s.run_limit_s));
        if let Some((down_s, _)) = machine.down_s.zip(limit).filter(|(down, limit)| now_s + limit > *down) {
            return Leave::Maintenance { down_s };
        }
        let Some(gang) = self.gangs.planner.earmark(machine.number as usize) else { return Leave::Free };
        let cluster = gang.0 as u32;
        let first = found.and_then(|s| Some(self.rank_of_jobs(s.user, *s.ready.first()?, now_ms)));
        let rank = self.rank_of_gang(cluster, now_ms);
        if first.zip(rank).is_some_and(|(first, rank)| first < rank)
            || self.is_ranked_over(machine, shape, cluster)
        {
            return Leave::Better;
        }
        let until_s = self.promise(gang, now_ms).unwrap_or(now_s);
        match limit {
            Some(limit) if now_s + limit <= until_s => Leave::InTime,
            _ => {
                if first.is_some() {
                    self.gangs.kept.borrow_mut().insert(cluster);
                }
                Leave::Withheld { gang: cluster, until_s }
            }
        }
    }

    /// Does a machine like such jobs more than any of a gang's? Its owner's word is over every promise: it would make the
    /// gang go again.
    fn is_ranked_over(&self, machine: &Machine, shape: ShapeId, gang: u32) -> bool {
        if !self.shapes.ranking.contains(machine.number) {
            return false;
        }
        let rank = |shape: ShapeId| self.shapes.machine_rank(machine.number, shape);
        let own = self.queue.clusters.get(&gang).into_iter().flat_map(|c| &c.parts).map(|p| rank(p.shape));
        rank(shape) > own.fold(f64::NEG_INFINITY, f64::max)
    }

    /// The same, when only the answer counts.
    pub(crate) fn respects_promises(&self, machine: &Machine, shape: ShapeId, now_ms: u64) -> bool {
        self.leave(machine, shape, now_ms).is_given()
    }

    /// Would such jobs use a machine that is promised to others, and be gone in time?
    pub(crate) fn is_backfill(&self, machine: &Machine, candidate: Candidate, now_ms: u64) -> bool {
        let Some(owner) = self.gangs.planner.earmark(machine.number as usize) else { return false };
        let cluster = candidate.ready.cluster;
        if self.queue.clusters.get(&cluster).is_some_and(|c| c.gang) {
            // The planner takes away what a better gang overrides; what is left was crossed in time.
            return owner != SetId(u64::from(cluster));
        }
        self.leave(machine, candidate.shape, now_ms) == Leave::InTime
    }

    /// When a planned gang starts at the latest, by what is true now: the planner is told only after the jobs.
    pub(super) fn promise(&self, gang: SetId, now_ms: u64) -> Option<u64> {
        let plan = self.gangs.planner.plan(gang)?;
        let cluster = self.queue.clusters.get(&(gang.0 as u32))?;
        let largest = cluster.parts.iter().filter_map(|p| self.shapes.all.get(&p.shape));
        let largest = largest.fold(Resources::default(), |a, s| larger(a, s.request));
        let machines = loads(&plan.systems).into_iter().filter_map(|(number, seats)| {
            let machine = self.pool.machines.get(self.pool.name(number as u32)?)?;
            let free = times(largest, machine.free) >= seats;
            Some(if free { now_ms / 1000 } else { self.empty_by(machine, now_ms) })
        });
        machines.max().map(|by| by.max(now_ms / 1000))
    }

    /// A gang starts: what it was promised is no promise any more.
    pub(super) fn forget_plan(&mut self, now: Now, cluster: u32, out: &mut Out) -> Vec<Arc<str>> {
        let Some(told) = self.gangs.told.remove(&cluster) else { return Vec::new() };
        let gone = GangPlanned { cluster, ..GangPlanned::default() };
        self.record(now, Kind::GangPlanned(gone), out);
        told.machines
    }

    /// Tells what became of plans: the journal, and plain jobs that may use what is promised to nobody any more, or later.
    pub(super) fn tell_plans(&mut self, now: Now, digest: Digest, out: &mut Out) {
        let mut open: BTreeSet<Arc<str>> = std::mem::take(&mut self.gangs.left).into_iter().collect();
        let lost: Vec<u32> = {
            let is_planned = |id: u32| self.gangs.planner.plan(SetId(u64::from(id))).is_some();
            self.gangs.told.keys().copied().filter(|id| !is_planned(*id)).collect()
        };
        for cluster in lost {
            open.extend(self.forget_plan(now, cluster, out));
        }
        let planned: Vec<SetId> = self.gangs.planner.planned().collect();
        for id in planned {
            let Some(plan) = self.gangs.planner.plan(id) else { continue };
            let names = plan.systems.iter().filter_map(|n| self.pool.name(*n as u32).cloned());
            let (cluster, machines): (u32, Vec<Arc<str>>) = (id.0 as u32, names.collect());
            let promise_s = self.promise(id, now.wall_ms).unwrap_or(now.wall_ms / 1000);
            let told = self.gangs.told.get_mut(&cluster);
            let moved = told.as_ref().is_none_or(|t| t.machines != machines);
            let news = moved || told.as_ref().is_none_or(|t| t.promise_s.abs_diff(promise_s) > NEWS_S);
            if let Some(told) = told {
                if moved {
                    open.extend(told.machines.iter().cloned());
                } else if promise_s > told.offered_s {
                    open.extend(machines.iter().cloned());
                }
                told.offered_s = promise_s;
            }
            if news {
                let names = machines.iter().map(ToString::to_string).collect();
                let planned = GangPlanned { cluster, machines: names, promise_s };
                self.record(now, Kind::GangPlanned(planned), out);
                self.gangs.told.insert(cluster, Told { machines, promise_s, offered_s: promise_s });
            }
        }
        for machine in open {
            self.offer_machine(now, &machine, digest, out);
        }
    }
}
