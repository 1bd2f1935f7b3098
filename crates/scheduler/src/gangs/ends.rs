//! When machines are free at the latest: what promises to gangs are made by.
//!
//! A plain job's machine is free at its hard end. The limits of a gang are those of the whole, and its machines go back
//! together, unless it says otherwise: then what counts is the last hard end of its jobs. That is worked out once for all of
//! its machines.

use std::cell::RefCell;
use std::collections::HashMap;

use model::{ClaimId, JobId};

use super::SITE_LIMIT_S;
use crate::books::Books;
use crate::changes::Changes;
use crate::pool::{Machine, Pool};
use crate::queue::Cluster;
use crate::shape::Shapes;
use crate::{Mutation, Settings, reserve};

/// When a gang is over at the latest.
#[derive(Debug, Clone, Copy)]
struct OverBy {
    /// When this was worked out, in Unix seconds: what has not started yet moves with the clock.
    now_s: u64,
    end_s: u64,
}

/// When gangs are over at the latest, as worked out last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends(RefCell<HashMap<u32, OverBy>>);

impl Ends {
    /// What was worked out for a gang in this second.
    fn known(&self, cluster: u32, now_s: u64) -> Option<u64> {
        self.0.borrow().get(&cluster).filter(|over| over.now_s == now_s).map(|over| over.end_s)
    }

    fn remember(&self, cluster: u32, over: OverBy) {
        self.0.borrow_mut().insert(cluster, over);
    }

    /// What was worked out for a gang is no longer true.
    fn forget(&mut self, cluster: u32) {
        self.0.get_mut().remove(&cluster);
    }
}

/// Something changed when a gang is over at the latest: its machines may be empty at another time.
pub(crate) fn touch_gang(books: &mut Books, cluster: u32) {
    books.ends.forget(cluster);
    if !books.changes.are_machines_watched() {
        return;
    }
    let live = books.queue.clusters().get(&cluster).into_iter().flat_map(|c| c.live.values());
    let kept = books.pool.reserved_of(cluster);
    for id in live.map(|l| l.claim).chain(kept).collect::<Vec<_>>() {
        touch_claim(&books.pool, &mut books.changes, id);
    }
}

/// A claim's jobs are others than before: its machine may be empty at another time.
pub(crate) fn touch_claim(pool: &Pool, changes: &mut Changes, id: ClaimId) {
    if let Some(claim) = pool.claims().get(&id)
        && let Some(machine) = pool.machines().get(&claim.machine)
    {
        changes.note_jobs_of(machine.number);
    }
}

/// When a machine is empty at the latest, if nothing more starts there.
pub(crate) fn empty_by(books: &Books, machine: &Machine, now_ms: u64) -> u64 {
    let now_s = now_ms / 1000;
    let claims = machine.claims.iter().filter_map(|c| books.pool.claims().get(c));
    let ends = claims.filter_map(|claim| {
        if let Some(until_ms) = claim.reserved.and_then(|r| r.until_ms) {
            return Some((until_ms / 1000).max(now_s));
        }
        hard_end(books, claim.job()?, now_ms)
    });
    ends.max().unwrap_or(now_s)
}

/// When a job's machine is free at the latest.
fn hard_end(books: &Books, job: JobId, now_ms: u64) -> Option<u64> {
    let cluster = books.queue.clusters().get(&job.cluster)?;
    if !cluster.policies.together && !reserve::is_reserved_for_gang(&books.queue, &books.shapes, job) {
        return end_of(&books.settings, &books.shapes, cluster, job.proc, now_ms);
    }
    let now_s = now_ms / 1000;
    if let Some(end_s) = books.ends.known(job.cluster, now_s) {
        return Some(end_s);
    }
    let end_s = cluster
        .live
        .keys()
        .filter_map(|proc| end_of(&books.settings, &books.shapes, cluster, *proc, now_ms))
        .max()?;
    books.ends.remember(job.cluster, OverBy { now_s, end_s });
    Some(end_s)
}

/// When a job's own limits end it at the latest, in Unix seconds.
pub(crate) fn end_of(
    settings: &Settings,
    shapes: &Shapes,
    cluster: &Cluster,
    proc: u32,
    now_ms: u64,
) -> Option<u64> {
    let live = cluster.live.get(&proc)?;
    let more = cluster.extended.get(&proc).copied().unwrap_or(0);
    let began = live.started_ms.unwrap_or(now_ms) / 1000;
    let shape = cluster.parts.get(cluster.part_of(proc)).map(|p| p.shape);
    let limit = shape.and_then(|s| shapes.all().get(&s)?.run_limit_s);
    // Limits end runs at their second: who is past it is on the way out, and nobody counts on more.
    let end = began.saturating_add(limit.unwrap_or(SITE_LIMIT_S)).saturating_add(more);
    Some(if settings.is_mutated(Mutation::FlooredEnds) { end.max(now_ms / 1000 + 60) } else { end })
}
