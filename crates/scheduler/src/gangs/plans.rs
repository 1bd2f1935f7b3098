//! What the plans of gangs mean to others: facts for the journal, and who may use a promised machine meanwhile.
//!
//! Which gang gets which plan is the planner's business. A plan is told when it is new, names other machines, moves by more
//! than a minute, or is gone; plain jobs hear of every change that may let one of them in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::event::{GangPlanned, Kind, Resources};
use planner::{SetId, loads};

use super::{Gangs, larger, times};
use crate::Turn;
use crate::books::Books;
use crate::pass::Candidate;
use crate::pool::{Machine, Pool};
use crate::queue::Queue;
use crate::shape::{ShapeId, Shapes};

/// A promise that moves by no more than this is not told again.
const NEWS_S: u64 = 60;

/// A plan, as others know it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    machines: Vec<Arc<str>>,
    /// As the journal has it.
    promise_s: u64,
    /// As plain jobs were last offered the machines.
    offered_s: u64,
}

/// What was said to a plain job that could use a machine. In the middle of an input that may be for a plan which nobody is
/// told of, because it is another one at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    /// For which gang the machine was kept.
    gang: u32,
    /// The earliest that was said.
    until_s: u64,
}

/// For whom machines were kept before somebody only looked.
pub(crate) struct Noticed {
    kept: BTreeSet<u32>,
    refused: BTreeMap<u32, Refused>,
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

/// May a plain job take room on this machine, whoever it is promised to?
pub(crate) fn leave(books: &Books, gangs: &Gangs, machine: &Machine, shape: ShapeId, now_ms: u64) -> Leave {
    // A job that would run into the machine's next maintenance window does not start there; one that does not say
    // how long it takes is vacated when the time comes.
    let found = books.shapes.all().get(&shape);
    let (now_s, limit) = (now_ms / 1000, found.and_then(|s| s.run_limit_s));
    if let Some((down_s, _)) = machine.down_s.zip(limit).filter(|(down, limit)| now_s + limit > *down) {
        return Leave::Maintenance { down_s };
    }
    let Some(gang) = gangs.planner.earmark(machine.number as usize) else { return Leave::Free };
    let cluster = gang.0 as u32;
    let first = found.and_then(|s| {
        Some(super::order::rank_of_jobs(&books.queue, &books.accounts, s.user, *s.ready.first()?, now_ms))
    });
    let rank = super::order::rank_of_gang(&books.queue, &books.accounts, gangs, cluster, now_ms);
    if first.zip(rank).is_some_and(|(first, rank)| first < rank)
        || is_ranked_over(&books.queue, &books.shapes, machine, shape, cluster)
    {
        return Leave::Better;
    }
    let until_s = promise(books, gangs, gang, now_ms).unwrap_or(now_s);
    match limit {
        Some(limit) if now_s + limit <= until_s => Leave::InTime,
        _ => Leave::Withheld { gang: cluster, until_s },
    }
}

/// Does a machine like such jobs more than any of a gang's? Its owner's word is over every promise: it would make the
/// gang go again.
fn is_ranked_over(queue: &Queue, shapes: &Shapes, machine: &Machine, shape: ShapeId, gang: u32) -> bool {
    if !shapes.ranking().contains(machine.number) {
        return false;
    }
    let rank = |shape: ShapeId| shapes.machine_rank(machine.number, shape).unwrap_or(0.0);
    let own = queue.clusters().get(&gang).into_iter().flat_map(|c| &c.parts).map(|p| rank(p.shape));
    rank(shape) > own.fold(f64::NEG_INFINITY, f64::max)
}

/// The same, of jobs that would take it. That a machine is kept against them makes it the gang's turn, so whoever only
/// looks asks `leave`.
pub(crate) fn respects_promises(
    books: &Books,
    gangs: &Gangs,
    machine: &Machine,
    shape: ShapeId,
    now_ms: u64,
) -> bool {
    let leave = leave(books, gangs, machine, shape, now_ms);
    if let Leave::Withheld { gang, until_s } = leave
        && books.shapes.all().get(&shape).is_some_and(|s| !s.ready.is_empty())
    {
        gangs.kept.borrow_mut().insert(gang);
        gangs.note_refusal(machine.number, gang, until_s);
    }
    leave.is_given()
}

/// Would such jobs use a machine that is promised to others, and be gone in time?
pub(crate) fn is_backfill(
    books: &Books,
    gangs: &Gangs,
    machine: &Machine,
    candidate: Candidate,
    now_ms: u64,
) -> bool {
    let Some(owner) = gangs.planner.earmark(machine.number as usize) else { return false };
    let cluster = candidate.ready.cluster;
    if books.queue.clusters().get(&cluster).is_some_and(|c| c.gang) {
        // The planner takes away what a better gang overrides; what is left was crossed in time.
        return owner != SetId(u64::from(cluster));
    }
    leave(books, gangs, machine, candidate.shape, now_ms) == Leave::InTime
}

/// The same, by the gang's own number.
pub(crate) fn promise_to(books: &Books, gangs: &Gangs, cluster: u32, now_ms: u64) -> Option<u64> {
    promise(books, gangs, SetId(u64::from(cluster)), now_ms)
}

/// When a planned gang starts at the latest, by what is true now: the planner is told only after the jobs.
pub(crate) fn promise(books: &Books, gangs: &Gangs, gang: SetId, now_ms: u64) -> Option<u64> {
    if let Some(known) = gangs.promised.borrow().as_ref().and_then(|p| p.get(&gang)) {
        return *known;
    }
    let promise = work_out_promise(books, gangs, gang, now_ms);
    if let Some(promised) = gangs.promised.borrow_mut().as_mut() {
        promised.insert(gang, promise);
    }
    promise
}

fn work_out_promise(books: &Books, gangs: &Gangs, gang: SetId, now_ms: u64) -> Option<u64> {
    let plan = gangs.planner.plan(gang)?;
    let cluster = books.queue.clusters().get(&(gang.0 as u32))?;
    let largest = cluster.parts.iter().filter_map(|p| books.shapes.all().get(&p.shape));
    let largest = largest.fold(Resources::default(), |a, s| larger(a, s.request));
    let machines = loads(&plan.systems).into_iter().filter_map(|(number, seats)| {
        let machine = books.pool.machines().get(books.pool.name(number as u32)?)?;
        let free = times(largest, machine.free) >= seats;
        Some(if free { now_ms / 1000 } else { super::ends::empty_by(books, machine, now_ms) })
    });
    machines.max().map(|by| by.max(now_ms / 1000))
}

/// A gang starts: what it was promised is no promise any more.
pub(crate) fn forget_plan(
    books: &mut Books,
    gangs: &mut Gangs,
    turn: &mut Turn<'_>,
    cluster: u32,
) -> Vec<Arc<str>> {
    let Some(told) = gangs.told.remove(&cluster) else { return Vec::new() };
    let gone = GangPlanned { cluster, ..GangPlanned::default() };
    books.record(turn, Kind::GangPlanned(gone));
    told.machines
}

/// Tells the journal what became of plans. Plain jobs may use the machines that it returns: they are promised to nobody any
/// more, or for later.
pub(crate) fn tell_journal(books: &mut Books, gangs: &mut Gangs, turn: &mut Turn<'_>) -> BTreeSet<Arc<str>> {
    let mut open: BTreeSet<Arc<str>> = std::mem::take(&mut gangs.left).into_iter().collect();
    let lost: Vec<u32> = {
        let is_planned = |id: u32| gangs.planner.plan(SetId(u64::from(id))).is_some();
        gangs.told.keys().copied().filter(|id| !is_planned(*id)).collect()
    };
    for cluster in lost {
        open.extend(forget_plan(books, gangs, turn, cluster));
    }
    let planned: Vec<SetId> = gangs.planner.planned().collect();
    let mut promises = BTreeMap::new();
    for id in planned {
        let Some(plan) = gangs.planner.plan(id) else { continue };
        let names = plan.systems.iter().filter_map(|n| books.pool.name(*n as u32).cloned());
        let (cluster, machines): (u32, Vec<Arc<str>>) = (id.0 as u32, names.collect());
        let promise_s = promise(books, gangs, id, turn.now.wall_ms).unwrap_or(turn.now.wall_ms / 1000);
        promises.insert(cluster, promise_s);
        let told = gangs.told.get_mut(&cluster);
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
            books.record(turn, Kind::GangPlanned(planned));
            gangs.told.insert(cluster, Told { machines, promise_s, offered_s: promise_s });
        }
    }
    open.extend(wrongly_refused(&books.pool, gangs, &promises));
    open
}

/// Machines that were kept against plain jobs, but not for the gang that has them now, or not for so long. `promises` says
/// when planned gangs start at the latest.
fn wrongly_refused(pool: &Pool, gangs: &mut Gangs, promises: &BTreeMap<u32, u64>) -> Vec<Arc<str>> {
    let refused = std::mem::take(gangs.refused.get_mut());
    let wrong = refused.into_iter().filter(|(number, refused)| {
        let same = gangs.earmark(*number) == Some(refused.gang);
        !same || promises.get(&refused.gang).is_none_or(|promise_s| *promise_s > refused.until_s)
    });
    wrong.filter_map(|(number, _)| pool.name(number).cloned()).collect()
}

impl Gangs {
    /// Something is asked of many kinds of jobs or machines: a promise to a large gang depends on all its machines, and is worked
    /// out once until the question ends. Nothing may change meanwhile.
    pub(crate) fn begin_question(&mut self) {
        self.promised.replace(Some(HashMap::new()));
    }

    /// See `begin_question`.
    pub(crate) fn end_question(&mut self) {
        self.promised.replace(None);
    }

    /// Somebody only looks for room: until that is over it is nobody's turn for it.
    pub(crate) fn begin_unnoticed(&mut self) -> Noticed {
        Noticed { kept: self.kept.take(), refused: self.refused.take() }
    }

    /// See `begin_unnoticed`.
    pub(crate) fn end_unnoticed(&mut self, before: Noticed) {
        self.kept.replace(before.kept);
        self.refused.replace(before.refused);
    }

    fn note_refusal(&self, machine: u32, gang: u32, until_s: u64) {
        let mut refused = self.refused.borrow_mut();
        let until_s = match refused.get(&machine) {
            Some(before) if before.gang == gang => before.until_s.min(until_s),
            // Whoever heard of the other one may be let in by this one.
            Some(_) => 0,
            None => until_s,
        };
        refused.insert(machine, Refused { gang, until_s });
    }
}
