//! Machines that are made ready for jobs, and that could not be: a gang is tried elsewhere as often as it allows, then a
//! person decides.
//!
//! What is known of failures follows from `JobsRequeued` with its code, and is forgotten when somebody releases the job.

use std::sync::Arc;

use model::Now;
use model::codes::{hold, vacate};
use model::event::{Afterwards, Condition, JobProvisioning, JobsHeld, JobsRequeued, Kind, MachineStanding};
use model::report::Attempt;
use model::{ClaimId, JobId, Span};

use crate::pool::{Machine, host_of};
use crate::queue::Stage;
use crate::shape::{Ready, ShapeId};
use crate::{Core, Turn};

/// How often a failure is followed by an attempt elsewhere, when the job does not say (ProvisionRetries).
const RETRIES: u32 = 1;

impl Core {
    /// A machine is made ready for a job.
    pub(crate) fn note_provisioning(
        &mut self,
        turn: &mut Turn<'_>,
        id: ClaimId,
        job: Attempt,
        installing: bool,
    ) {
        let stage = if installing { Stage::Installing } else { Stage::Waiting };
        if self.live_of(id, job).is_none_or(|l| l.started_ms.is_some() || l.stage == stage) {
            return;
        }
        let JobId { cluster, proc } = job.job();
        let kind = JobProvisioning { claim: id.0, cluster, proc, attempt: job.attempt, installing };
        self.record(turn, Kind::JobProvisioning(kind));
    }

    /// A machine could not be made ready for a job: the whole set is tried elsewhere, or held for a person.
    pub(crate) fn provision_failed(&mut self, turn: &mut Turn<'_>, id: ClaimId, job: JobId, reason: &str) {
        let JobId { cluster, proc } = job;
        let Some(machine) = self.pool.claims().get(&id).map(|c| c.machine.clone()) else { return };
        let Some(found) = self.queue.clusters().get(&cluster) else { return };
        let gang = found.gang;
        let failures: u32 = found.unready.iter().filter(|(p, _)| gang || **p == proc).map(|(_, n)| n).sum();
        let asked =
            found.template.get().shared("ProvisionRetries").and_then(|t| t.trim().parse::<u32>().ok());
        let why = format!("{} could not be made ready: {reason}", host_of(&machine));
        let procs = vec![Span { first: proc, count: 1 }];
        if failures < asked.unwrap_or(RETRIES) {
            let requeued =
                JobsRequeued { claim: id.0, cluster, procs, reason: why, code: vacate::UNREADY, exit: None };
            self.record(turn, Kind::JobsRequeued(requeued));
            return;
        }
        let reason = format!("{why}; no other machine is tried (ProvisionRetries)");
        let held = |procs: Vec<Span>, reason: String| {
            Kind::JobsHeld(JobsHeld { cluster, procs, reason, code: hold::UNREADY, subcode: 0, exit: None })
        };
        self.record(turn, held(procs, reason.clone()));
        if gang {
            let idle = self.queue.clusters().get(&cluster).map(|c| c.idle().spans()).unwrap_or_default();
            if !idle.is_empty() {
                self.record(turn, held(idle, reason.clone()));
            }
            self.stop_live(turn, cluster, None, Afterwards::Held, &reason, (hold::UNREADY, 0));
        }
    }

    /// A machine could not be put in order after a claim: nobody can use it before somebody has looked.
    pub(crate) fn release_failed(&mut self, turn: &mut Turn<'_>, machine: &str, reason: &str) {
        let before = self.labs.standing(machine);
        if matches!(before.condition(), Condition::Broken | Condition::Removed) {
            return;
        }
        let after = MachineStanding {
            condition: Condition::Broken as i32,
            by: machine.to_owned(),
            reason: format!("it could not be put in order after a claim: {reason}"),
            ..before.clone()
        };
        self.settle_standing(turn, before.condition(), after);
    }

    /// Is a machine one that could not be made ready for a cluster's jobs?
    pub(crate) fn is_excluded(&self, cluster: u32, machine: &str) -> bool {
        self.queue.excluding().contains(&cluster)
            && self.queue.clusters().get(&cluster).is_some_and(|c| {
                let failed_ms = c.excluded.get(host_of(machine));
                failed_ms.is_some_and(|at| self.clock_ms < self.excluded_until_ms(*at))
            })
    }

    fn excluded_until_ms(&self, failed_ms: u64) -> u64 {
        let span_ms = self.settings.exclusion_ms;
        if span_ms == 0 { u64::MAX } else { failed_ms.saturating_add(span_ms) }
    }

    /// Machines that were left out long enough may be tried again: says for which clusters.
    pub(crate) fn end_exclusions(&mut self, now: Now) -> Vec<u32> {
        let before = std::mem::replace(&mut self.clock_ms, now.wall_ms);
        let excluding =
            self.queue.excluding().iter().filter_map(|id| Some((*id, self.queue.clusters().get(id)?)));
        let over = excluding.filter(|(_, cluster)| {
            let mut ends = cluster.excluded.values().map(|at| self.excluded_until_ms(*at));
            ends.any(|end| before < end && end <= now.wall_ms)
        });
        over.map(|(id, _)| id).collect()
    }

    /// The first waiting part of a shape that a machine is not excluded for, unless it refuses such jobs all the time.
    pub(crate) fn first_for(&self, machine: &Machine, shape: ShapeId) -> Option<Ready> {
        if self.refusals.rests(machine.number, shape, self.mono_ms) {
            return None;
        }
        let name: &Arc<str> = self.pool.name(machine.number)?;
        let ready = &self.shapes.all().get(&shape)?.ready;
        ready.iter().copied().find(|r| !self.is_excluded(r.cluster, name))
    }
}
