//! Machines that are made ready for jobs, and that could not be: a gang is tried elsewhere as often as it allows, then a
//! person decides.
//!
//! What is known of failures follows from `JobsRequeued` with its code, and is forgotten when somebody releases the job.

use std::sync::Arc;

use model::codes::{hold, vacate};
use model::event::{Afterwards, Condition, JobProvisioning, JobsHeld, JobsRequeued, Kind, MachineStanding};
use model::report::Attempt;
use model::{ClaimId, JobId, Now, Span};

use crate::books::Books;
use crate::pool::{Machine, host_of};
use crate::queue::{Queue, Stage};
use crate::shape::{Ready, ShapeId};
use crate::{Settings, Turn, agents, labs, orders};

/// How often a failure is followed by an attempt elsewhere, when the job does not say (ProvisionRetries).
const RETRIES: u32 = 1;

/// A machine is made ready for a job.
pub(crate) fn note_provisioning(
    books: &mut Books,
    turn: &mut Turn<'_>,
    id: ClaimId,
    job: Attempt,
    installing: bool,
) {
    let stage = if installing { Stage::Installing } else { Stage::Waiting };
    if agents::live_of(&books.queue, id, job).is_none_or(|l| l.started_ms.is_some() || l.stage == stage) {
        return;
    }
    let JobId { cluster, proc } = job.job();
    let kind = JobProvisioning { claim: id.0, cluster, proc, attempt: job.attempt, installing };
    books.record(turn, Kind::JobProvisioning(kind));
}

/// A machine could not be made ready for a job: the whole set is tried elsewhere, or held for a person.
pub(crate) fn provision_failed(
    books: &mut Books,
    turn: &mut Turn<'_>,
    id: ClaimId,
    job: JobId,
    reason: &str,
) {
    let JobId { cluster, proc } = job;
    let Some(machine) = books.pool.claims().get(&id).map(|c| c.machine.clone()) else { return };
    let Some(found) = books.queue.clusters().get(&cluster) else { return };
    let gang = found.gang;
    let failures: u32 = found.unready.iter().filter(|(p, _)| gang || **p == proc).map(|(_, n)| n).sum();
    let asked = found.template.get().shared("ProvisionRetries").and_then(|t| t.trim().parse::<u32>().ok());
    let why = format!("{} could not be made ready: {reason}", host_of(&machine));
    let procs = vec![Span { first: proc, count: 1 }];
    if failures < asked.unwrap_or(RETRIES) {
        let requeued =
            JobsRequeued { claim: id.0, cluster, procs, reason: why, code: vacate::UNREADY, exit: None };
        books.record(turn, Kind::JobsRequeued(requeued));
        return;
    }
    let reason = format!("{why}; no other machine is tried (ProvisionRetries)");
    let held = |procs: Vec<Span>, reason: String| {
        Kind::JobsHeld(JobsHeld { cluster, procs, reason, code: hold::UNREADY, subcode: 0, exit: None })
    };
    books.record(turn, held(procs, reason.clone()));
    if gang {
        let idle = books.queue.clusters().get(&cluster).map(|c| c.idle().spans()).unwrap_or_default();
        if !idle.is_empty() {
            books.record(turn, held(idle, reason.clone()));
        }
        orders::stop_live(books, turn, cluster, None, Afterwards::Held, &reason, (hold::UNREADY, 0));
    }
}

/// A machine could not be put in order after a claim: nobody can use it before somebody has looked.
pub(crate) fn release_failed(books: &mut Books, turn: &mut Turn<'_>, machine: &str, reason: &str) {
    let before = books.labs.standing(machine);
    if matches!(before.condition(), Condition::Broken | Condition::Removed) {
        return;
    }
    let after = MachineStanding {
        condition: Condition::Broken as i32,
        by: machine.to_owned(),
        reason: format!("it could not be put in order after a claim: {reason}"),
        ..before.clone()
    };
    labs::settle_standing(books, turn, before.condition(), after);
}

/// Is a machine one that could not be made ready for a cluster's jobs?
pub(crate) fn is_excluded(
    settings: &Settings,
    queue: &Queue,
    clock_ms: u64,
    cluster: u32,
    machine: &str,
) -> bool {
    queue.excluding().contains(&cluster)
        && queue.clusters().get(&cluster).is_some_and(|c| {
            let failed_ms = c.excluded.get(host_of(machine));
            failed_ms.is_some_and(|at| clock_ms < excluded_until_ms(settings, *at))
        })
}

fn excluded_until_ms(settings: &Settings, failed_ms: u64) -> u64 {
    let span_ms = settings.exclusion_ms;
    if span_ms == 0 { u64::MAX } else { failed_ms.saturating_add(span_ms) }
}

/// Machines that were left out long enough may be tried again: says for which clusters.
pub(crate) fn end_exclusions(books: &mut Books, now: Now) -> Vec<u32> {
    let before = std::mem::replace(&mut books.clock_ms, now.wall_ms);
    let excluding =
        books.queue.excluding().iter().filter_map(|id| Some((*id, books.queue.clusters().get(id)?)));
    let over = excluding.filter(|(_, cluster)| {
        let mut ends = cluster.excluded.values().map(|at| excluded_until_ms(&books.settings, *at));
        ends.any(|end| before < end && end <= now.wall_ms)
    });
    over.map(|(id, _)| id).collect()
}

/// The first waiting part of a shape that a machine is not excluded for, unless it refuses such jobs all the time.
pub(crate) fn first_for(books: &Books, machine: &Machine, shape: ShapeId) -> Option<Ready> {
    if books.refusals.rests(machine.number, shape, books.mono_ms) {
        return None;
    }
    let name: &Arc<str> = books.pool.name(machine.number)?;
    let ready = &books.shapes.all().get(&shape)?.ready;
    ready
        .iter()
        .copied()
        .find(|r| !is_excluded(&books.settings, &books.queue, books.clock_ms, r.cluster, name))
}
