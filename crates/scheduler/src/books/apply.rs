//! The only place where durable state changes: one fact at a time, live and in recovery alike.

use std::sync::Arc;

use model::codes::vacate;
use model::event::{
    Afterwards, ClaimEnded, ClaimMade, ClusterReordered, ClusterSubmitted, JobCheckpointed, JobExited,
    JobReserved, JobStarted, JobsAssigned, JobsExtended, JobsHeld, JobsLeft, JobsReleased, JobsRemoved,
    JobsRequeued, Kind, StopRequested,
};
use model::{ClaimId, Class, JobId, ProcSet};

use crate::books::Books;
use crate::lifecycle::Policies;
use crate::pool::{Claim, Reserved, host_of, place_of};
use crate::queue::{Checkpoint, Cluster, Hold, Keyed, Live, Stage, Stop, SubmitKey, template_digest};
use crate::reserve::MOST_S;
use crate::shape::Ready;
use crate::{gangs, lifecycle};

impl Books {
    /// Applies a fact. Facts about things that are not there are passed over: the journal is the truth, and a fact
    /// about a cluster that was forgotten with a snapshot changes nothing.
    // Arms that do nothing say why, each for itself.
    #[allow(clippy::match_same_arms)]
    pub(crate) fn apply(&mut self, kind: &Kind, time_ms: u64) {
        match kind {
            Kind::ClusterSubmitted(e) => self.apply_submitted(e, time_ms),
            Kind::JobsHeld(e) => self.apply_held(e, time_ms),
            Kind::JobsReleased(e) => self.apply_released(e, time_ms),
            Kind::JobsRemoved(e) => self.apply_removed(e),
            Kind::StopRequested(e) => self.apply_stop(e),
            Kind::ClaimMade(e) => self.apply_claim_made(e, time_ms),
            Kind::JobsAssigned(e) => self.apply_assigned(e, time_ms),
            Kind::JobStarted(e) => self.apply_started(e),
            Kind::JobProvisioning(e) => {
                if let Some(live) = self.live_mut(e.cluster, e.proc, e.attempt) {
                    live.stage = if e.installing { Stage::Installing } else { Stage::Waiting };
                }
            }
            Kind::JobReserved(e) => self.apply_reserved(e),
            Kind::JobsExtended(e) => self.apply_extended(e),
            Kind::JobSuspended(e) => self.apply_suspended((e.cluster, e.proc, e.attempt), true),
            Kind::JobContinued(e) => self.apply_suspended((e.cluster, e.proc, e.attempt), false),
            Kind::JobCheckpointed(e) => self.apply_checkpointed(e, time_ms),
            Kind::JobExited(e) => self.apply_exited(e, time_ms),
            Kind::JobsLeft(e) => self.apply_left(e),
            Kind::JobsRequeued(e) => self.apply_requeued(e, time_ms),
            Kind::ClaimEnded(e) => self.apply_claim_ended(e, time_ms),
            Kind::PrioritySet(e) => {
                let user = self.accounts.user(&e.user, time_ms);
                self.accounts.set(user, e.factor, e.real, time_ms);
            }
            Kind::MachineStanding(e) => self.apply_standing(e),
            Kind::LabSet(e) => self.apply_lab(e),
            Kind::PoolDrained(e) => self.drains.apply(e),
            // Told for people, or the manager's own books: nothing durable follows from them here.
            Kind::JournalSalvaged(e) => {
                let skipped = u32::try_from(e.unread).unwrap_or(u32::MAX);
                let clusters = self.queue.next_cluster().max(e.last_cluster.saturating_add(1));
                self.queue.skip_to(clusters.saturating_add(skipped));
                let claims = self.pool.next_claim().max(e.last_claim.saturating_add(1));
                self.pool.skip_to(claims.saturating_add(e.unread));
            }
            Kind::JobNotSaved(e) => {
                if let Some(cluster) = self.queue.cluster_mut(e.cluster).filter(|_| e.missed) {
                    cluster.missed.insert(e.proc);
                }
            }
            Kind::ClusterReordered(e) => self.apply_reordered(e),
            Kind::ClockStepped(e) => self.apply_step(e.by_ms),
            Kind::GangPlanned(_)
            | Kind::JobFilesMoved(_)
            | Kind::JobVisited(_)
            | Kind::JobWarned(_)
            | Kind::ManagerStarted(_)
            | Kind::TokenIssued(_)
            | Kind::MachineJoined(_)
            | Kind::MachineRevoked(_)
            | Kind::TokenRevoked(_) => {}
        }
    }

    fn apply_submitted(&mut self, e: &ClusterSubmitted, time_ms: u64) {
        let (parts, _) =
            self.shapes.parts_of_accepted(&e.owner, e.cluster, &e.template, &mut self.accounts, time_ms);
        let priority = e.template.shared("JobPrio").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let cluster = Cluster {
            owner: self.queue.count_jobs(e.cluster, &e.owner, u64::from(e.template.procs)),
            key: SubmitKey::new(&e.owner, &e.idempotency_key),
            template: self.shapes.store(&e.template, &parts),
            submitted_ms: time_ms,
            priority,
            class: Class::default(),
            gang: e.template.is_gang(),
            guests: crate::gangs::known_guests(&e.template),
            parts,
            policies: Policies::of(&e.template),
            begun: None,
        };
        let keyed = Keyed { cluster: e.cluster, template: template_digest(&e.template) };
        self.queue.remember_key(cluster.key, keyed);
        self.queue.insert(e.cluster, cluster);
        self.reindex(e.cluster);
        lifecycle::later::put_off(self, e.cluster, &ProcSet::all(e.template.procs));
    }

    /// A cluster has another place among those that wait.
    fn apply_reordered(&mut self, e: &ClusterReordered) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        let before: Vec<Ready> =
            (0..cluster.parts.len()).map(|part| cluster.ready(e.cluster, part)).collect();
        cluster.priority = e.priority.unwrap_or(cluster.priority);
        let class = e.class.as_deref().and_then(Class::from_name);
        cluster.class = class.unwrap_or(cluster.class);
        for (part, entry) in cluster.parts.iter().zip(before).filter(|_| !cluster.gang) {
            self.shapes.set_ready(part.shape, entry, false, &mut self.accounts);
        }
        self.reindex(e.cluster);
    }

    fn apply_held(&mut self, e: &JobsHeld, time_ms: u64) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        for span in &e.procs {
            cluster.take_idle(*span);
            cluster.held.insert_range(span.first, span.procs().end);
        }
        cluster.note_hold(e, time_ms);
        if e.exit.is_none() {
            cluster.note_unbegun(&e.procs);
        }
        let procs: ProcSet = e.procs.iter().collect();
        let (reason, code, subcode) = (e.reason.clone(), e.code, e.subcode);
        cluster.holds.push(Hold { procs, reason, code, subcode, since_ms: time_ms });
        self.end_attempts(e.cluster, &e.procs);
        self.reindex(e.cluster);
    }

    fn apply_released(&mut self, e: &JobsReleased, time_ms: u64) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        cluster.note_release(&e.procs, time_ms);
        for span in &e.procs {
            cluster.unhold(span.first, span.procs().end);
        }
        // A person has looked at it: every machine may be tried again.
        self.queue.readmit(e.cluster);
        self.make_idle(e.cluster, &e.procs);
    }

    fn apply_removed(&mut self, e: &JobsRemoved) {
        self.end_attempts(e.cluster, &e.procs);
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        let mut count = 0;
        for span in &e.procs {
            cluster.take_idle(*span);
            cluster.unhold(span.first, span.procs().end);
            count += u64::from(span.count);
            for proc in span.procs() {
                cluster.attempts.remove(&proc);
                cluster.unbegun.remove(&proc);
                cluster.past.remove(&proc);
                cluster.checkpoints.remove(&proc);
            }
        }
        cluster.summary.removed += count;
        self.finish(e.cluster, count);
    }

    fn apply_stop(&mut self, e: &StopRequested) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        let Some(live) = cluster.live.get_mut(&e.proc) else { return };
        let afterwards = Afterwards::try_from(e.afterwards).unwrap_or(Afterwards::Idle);
        live.stop = Some(Stop { afterwards, reason: e.reason.clone(), code: e.code, subcode: e.subcode });
        if cluster.gang {
            // It may be on its way back as a whole.
            self.changes.note_gang(e.cluster);
        }
    }

    fn apply_claim_made(&mut self, e: &ClaimMade, time_ms: u64) {
        let slot_number = e.slot.rsplit('_').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let submitter = if e.submitter.is_empty() { &e.owner } else { &e.submitter };
        let user = self.accounts.user(submitter, time_ms);
        self.accounts.hold(user, f64::from(e.resources.cpus), time_ms);
        let claim = Claim {
            machine: place_of(&e.machine, &e.slot),
            slot: e.slot.clone(),
            slot_number,
            owner: Arc::from(e.owner.as_str()),
            user,
            limits: Box::default(),
            resources: e.resources,
            key_digest: e.key_digest.clone(),
            lease_ms: e.lease_ms,
            jobs: Vec::new(),
            made_ms: time_ms,
            recalled: false,
            ending: false,
            reserved: None,
            withheld: false,
            rival: None,
            better: None,
            refused_ms: None,
            seat: None,
            slot_now: None,
        };
        self.recount_claim(&claim, 1);
        self.pool.add_claim(ClaimId(e.claim), claim, &mut self.changes);
    }

    fn apply_assigned(&mut self, e: &JobsAssigned, time_ms: u64) {
        let claim_id = ClaimId(e.claim);
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        for span in &e.procs {
            cluster.take_idle(*span);
            for proc in span.procs() {
                let attempt = cluster.attempts.get(&proc).copied().unwrap_or(0) + 1;
                cluster.attempts.insert(proc, attempt);
                cluster.live.insert(proc, Live::new(claim_id, attempt, time_ms));
            }
        }
        let shape =
            e.procs.first().and_then(|s| cluster.parts.get(cluster.part_of(s.first))).map(|p| p.shape);
        // All jobs that a claim gets take the same; it has that from its first.
        let is_first = self.pool.claims().get(&claim_id).is_some_and(|claim| claim.limits.is_empty());
        if let Some(shape) = shape.filter(|_| is_first).and_then(|s| self.shapes.all().get(&s)) {
            self.in_use.take(&shape.limits);
            self.pool.set_limits(claim_id, shape.limits.clone());
        }
        let jobs = e.procs.iter().flat_map(|s| s.procs()).map(|proc| JobId { cluster: e.cluster, proc });
        self.pool.give_jobs(claim_id, jobs);
        gangs::ends::touch_claim(&self.pool, &mut self.changes, claim_id);
        self.reindex(e.cluster);
    }

    fn apply_started(&mut self, e: &JobStarted) {
        if let Some(live) = self.live_mut(e.cluster, e.proc, e.attempt) {
            live.started_ms = Some(e.started_ms);
            gangs::ends::touch_claim(&self.pool, &mut self.changes, ClaimId(e.claim));
            gangs::ends::touch_gang(self, e.cluster);
            lifecycle::limits::watch_limit(&mut self.queue, JobId { cluster: e.cluster, proc: e.proc });
            if let Some(cluster) = self.queue.cluster_mut(e.cluster) {
                cluster.note_start(e.proc);
                if cluster.guests.is_some() {
                    // Its guests may begin.
                    self.changes.note_gang(e.cluster);
                }
            }
        }
    }

    fn apply_suspended(&mut self, (cluster, proc, attempt): (u32, u32, u32), suspended: bool) {
        if let Some(live) = self.live_mut(cluster, proc, attempt) {
            live.suspended = suspended;
        }
    }

    fn apply_checkpointed(&mut self, e: &JobCheckpointed, time_ms: u64) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        let (object, platform) = (Arc::from(e.object.as_str()), Arc::from(e.platform.as_str()));
        // One that it was not asked for says nothing of how long it takes to leave.
        let known_ms = cluster.checkpoints.get(&e.proc).map_or(0, |before| before.saving_ms);
        let saving_ms = if e.saving_ms > 0 { e.saving_ms } else { known_ms };
        cluster.checkpoints.insert(e.proc, Checkpoint { object, bytes: e.bytes, platform, saving_ms });
        if !e.platform.is_empty() {
            self.bind(e.cluster, e.proc, &e.platform, time_ms);
        }
    }

    fn apply_exited(&mut self, e: &JobExited, time_ms: u64) {
        let span = model::Span { first: e.proc, count: 1 };
        if let Some(cluster) = self.queue.cluster_mut(e.cluster).filter(|_| e.stays) {
            cluster.note_completion(e, time_ms);
        }
        self.end_attempts(e.cluster, &[span]);
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        cluster.checkpoints.remove(&e.proc);
        if e.stays {
            cluster.completed.insert(e.proc);
        } else {
            cluster.attempts.remove(&e.proc);
            cluster.unbegun.remove(&e.proc);
            cluster.past.remove(&e.proc);
        }
        if e.exit.success() {
            cluster.summary.succeeded += 1;
        } else {
            cluster.summary.failed += 1;
        }
        let shape = cluster.parts.get(cluster.part_of(e.proc)).map(|p| p.shape);
        if let Some(shape) = shape {
            self.shapes.note_run(shape, e.exit.wall_us);
        }
        if self.queue.clusters().get(&e.cluster).is_some_and(|c| c.policies.together) {
            // Those that it was within its limits for may be past theirs.
            lifecycle::limits::watch_limits(&mut self.queue, e.cluster);
        }
        self.finish(e.cluster, u64::from(!e.stays));
    }

    fn apply_left(&mut self, e: &JobsLeft) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        let before = cluster.completed.len();
        for span in &e.procs {
            cluster.completed.remove_range(span.first, span.procs().end);
            for proc in span.procs() {
                cluster.attempts.remove(&proc);
                cluster.unbegun.remove(&proc);
                cluster.past.remove(&proc);
            }
        }
        let gone = before - cluster.completed.len();
        self.finish(e.cluster, gone);
    }

    fn apply_requeued(&mut self, e: &JobsRequeued, time_ms: u64) {
        if let Some(cluster) = self.queue.cluster_mut(e.cluster) {
            cluster.note_requeue(e, time_ms);
            if e.exit.is_none() {
                cluster.note_unbegun(&e.procs);
            }
        }
        if e.code == vacate::UNREADY
            && let Some(claim) = self.pool.claims().get(&ClaimId(e.claim))
        {
            self.queue.exclude(e.cluster, host_of(&claim.machine), &e.procs, time_ms);
        }
        self.end_attempts(e.cluster, &e.procs);
        if let Some(cluster) = self.queue.cluster_mut(e.cluster) {
            cluster.requeues += e.procs.iter().map(|s| u64::from(s.count)).sum::<u64>();
            self.changes.note_return(e.cluster);
        }
        self.make_idle(e.cluster, &e.procs);
    }

    fn apply_claim_ended(&mut self, e: &ClaimEnded, time_ms: u64) {
        let Some(claim) = self.pool.remove_claim(ClaimId(e.claim), &mut self.changes) else { return };
        self.accounts.hold(claim.user, -f64::from(claim.resources.cpus), time_ms);
        self.in_use.give_back(&claim.limits);
        self.recount_claim(&claim, -1);
        let limited = !claim.limits.is_empty() || self.accounts.is_grouped(claim.user);
        if limited {
            self.changes.release();
        }
    }

    pub(super) fn apply_reserved(&mut self, e: &JobReserved) {
        let id = ClaimId(e.claim);
        let job = JobId { cluster: e.cluster, proc: e.proc };
        let until_ms = (!e.for_gang).then_some(e.until_ms);
        let Some(limits) = self.pool.reserve(id, Reserved { job, until_ms }) else { return };
        self.in_use.give_back(&limits);
        if !limits.is_empty() {
            self.changes.release();
        }
        gangs::ends::touch_claim(&self.pool, &mut self.changes, id);
    }

    fn apply_extended(&mut self, e: &JobsExtended) {
        let Some(cluster) = self.queue.cluster_mut(e.cluster) else { return };
        for proc in e.procs.iter().flat_map(|s| s.procs()) {
            if cluster.live.contains_key(&proc) {
                let extended = cluster.extended.entry(proc).or_default();
                *extended = extended.saturating_add(e.seconds).min(MOST_S);
            }
        }
        gangs::ends::touch_gang(self, e.cluster);
        lifecycle::limits::watch_limits(&mut self.queue, e.cluster);
    }

    fn live_mut(&mut self, cluster: u32, proc: u32, attempt: u32) -> Option<&mut Live> {
        let live = self.queue.cluster_mut(cluster)?.live.get_mut(&proc)?;
        (live.attempt == attempt).then_some(live)
    }

    /// Takes jobs out of the hands of their claims.
    fn end_attempts(&mut self, cluster_id: u32, spans: &[model::Span]) {
        let Some(cluster) = self.queue.cluster_mut(cluster_id) else { return };
        for span in spans {
            for proc in span.procs() {
                let Some(live) = cluster.live.remove(&proc) else { continue };
                // Granted to this run, not to the next.
                cluster.extended.remove(&proc);
                self.pool.take_job(live.claim, JobId { cluster: cluster_id, proc });
            }
        }
    }

    fn make_idle(&mut self, cluster_id: u32, spans: &[model::Span]) {
        let Some(cluster) = self.queue.cluster_mut(cluster_id) else { return };
        let procs: ProcSet = spans.iter().collect();
        cluster.insert_idle(&procs);
        self.reindex(cluster_id);
        lifecycle::later::put_off(self, cluster_id, &procs);
    }

    /// Puts each part of a cluster into its shape's waiting list, or takes it out, according to its idle procs.
    pub(crate) fn reindex(&mut self, cluster_id: u32) {
        let Some(cluster) = self.queue.clusters().get(&cluster_id) else { return };
        if cluster.gang {
            // Not in anybody's line: the planner places it as a whole.
            self.changes.note_gang(cluster_id);
            gangs::ends::touch_gang(self, cluster_id);
            return;
        }
        for (index, part) in cluster.parts.iter().enumerate() {
            let entry = cluster.ready(cluster_id, index);
            self.shapes.set_ready(part.shape, entry, !part.idle.is_empty(), &mut self.accounts);
        }
    }

    /// Some jobs of a cluster are over; when all are, the cluster leaves the queue.
    fn finish(&mut self, cluster_id: u32, count: u64) {
        self.reindex(cluster_id);
        if let Some(cluster) = self.queue.finish(cluster_id, count) {
            self.shapes.release(&cluster.parts);
        }
    }
}
