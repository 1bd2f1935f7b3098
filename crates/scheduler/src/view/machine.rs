//! A machine as people see it.

use std::sync::Arc;

use model::JobId;
use model::event::Resources;

use super::{MachineView, RunningView, checkpoint};
use crate::books::Books;
use crate::books::labs::Labs;
use crate::labs::HoldStage;
use crate::pool::{Pool, host_of, slot_of};
use crate::preempt;
use crate::queue::{Queue, Stage};
use crate::shape::Shapes;

pub(crate) fn machine_view(books: &Books, name: &str, m: &crate::pool::Machine) -> MachineView {
    let unusable = m.why_unusable().map(|why| (m.free, why));
    MachineView {
        usage: usage_of(&books.queue, &books.pool, &books.labs, name, m),
        heard_ms: books.pool.machines().get(host_of(name)).map_or(0, |first| first.heard_wall_ms),
        lab: m.lab.clone(),
        standing: books.labs.standing(host_of(name)),
        shut: m.shut,
        name: Arc::from(host_of(name)),
        slot: Arc::from(slot_of(name)),
        connected: m.session.is_some(),
        total: m.total,
        free: if unusable.is_some() { Resources::default() } else { m.free },
        unusable,
        ad: m.ad.clone(),
        claims: m
            .claims
            .iter()
            .filter_map(|id| books.pool.claims().get(id).map(|claim| (id, claim)))
            .map(|(id, c)| RunningView {
                universe: job_number(&books.queue, &books.shapes, c.jobs.first(), "JobUniverse").unwrap_or(5),
                checkpointable: can_save(&books.queue, &books.shapes, c.jobs.first()),
                checkpoint_bytes: c.jobs.first().and_then(|j| checkpoint(&books.queue, *j)).map(|c| c.bytes),
                saving_ms: c
                    .jobs
                    .first()
                    .and_then(|j| checkpoint(&books.queue, *j))
                    .map(|c| c.saving_ms)
                    .filter(|ms| *ms > 0),
                declared_kib: c.jobs.first().and_then(|j| declared_kib(&books.queue, *j)).unwrap_or(0),
                gang: c.job().and_then(|j| books.queue.clusters().get(&j.cluster)).is_some_and(|c| c.gang),
                claim: *id,
                reserved: c.reserved.filter(|_| !c.ending),
                now: c.slot_now.clone(),
                slot: c.slot.clone(),
                owner: c.owner.clone(),
                job: c.jobs.first().copied(),
                waiting: c.jobs.len().saturating_sub(1),
                since_ms: c.made_ms,
                started_ms: c
                    .jobs
                    .first()
                    .and_then(|j| books.queue.clusters().get(&j.cluster)?.live.get(&j.proc)?.started_ms),
                resources: c.resources,
                promised: c.withheld && c.seat.is_some(),
                preempting: c
                    .rival
                    .and_then(|s| books.shapes.all().get(&s))
                    .map(|s| books.accounts.get(s.user).name.clone()),
                preempting_rank: c.rival.and_then(|s| books.shapes.machine_rank(m.number, s)),
            })
            .collect(),
    }
}

/// What a machine does: what the job does there that has come furthest, or who has it by hand. What is put in order is
/// still in use.
fn usage_of(
    queue: &Queue,
    pool: &Pool,
    labs: &Labs,
    name: &str,
    machine: &crate::pool::Machine,
) -> &'static str {
    let claims = machine.claims.iter().filter_map(|id| pool.claims().get(id));
    let furthest = claims.map(|claim| {
        let live = claim.jobs.first().and_then(|j| queue.clusters().get(&j.cluster)?.live.get(&j.proc));
        match live {
            Some(live) if live.started_ms.is_none() => match live.stage {
                Stage::Scheduled => (0, "scheduled"),
                Stage::Waiting => (1, "waiting"),
                Stage::Installing => (2, "installing"),
            },
            _ => (3, "running"),
        }
    });
    if let Some((_, word)) = furthest.max() {
        return word;
    }
    let standing = labs.standings().get(host_of(name)).filter(|s| !s.held_by.is_empty());
    match standing.map(|s| HoldStage::from_word(&s.held_stage).unwrap_or(HoldStage::Running)) {
        Some(stage) => stage.word(),
        None if machine.undecided => "pending",
        None => "idle",
    }
}

/// Does a job save its work when it is asked, or is it saved?
fn can_save(queue: &Queue, shapes: &Shapes, job: Option<&JobId>) -> bool {
    let shape = job.and_then(|j| preempt::shape_of(queue, *j));
    shape.and_then(|s| shapes.ad(s)).is_some_and(|ad| {
        ["CheckpointSig", "SuccessCheckpointExitCode"].iter().any(|name| ad.contains(name))
            || ad.eval_bool("WantTransparentCheckpoint") == Some(true)
    })
}

fn declared_kib(queue: &Queue, job: JobId) -> Option<u64> {
    let template = queue.clusters().get(&job.cluster)?.template.get();
    template.attribute(job.cluster, job.proc, "ImageSize")?.trim().parse().ok()
}

fn job_number(queue: &Queue, shapes: &Shapes, job: Option<&JobId>, name: &str) -> Option<i64> {
    shapes.ad(preempt::shape_of(queue, *job?)?)?.eval_int(name)
}
