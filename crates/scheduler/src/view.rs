//! Read-only answers for people.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::event::{LabSet, MachineStanding, Resources};
use model::{ClaimId, JobId, JobTemplate};

use crate::Core;
use crate::accounts::UserView;
use crate::labs::{HoldStage, Shut};
use crate::pages::JobCursor;
use crate::pool::{Reserved, SlotState, host_of, slot_of};
use crate::queue::{Checkpoint, Stage, Summary};
use crate::sweep::Findings;

/// A cluster in the queue.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Id.
    pub cluster: u32,
    /// Whose.
    pub owner: Arc<str>,
    /// What it runs.
    pub template: Arc<JobTemplate>,
    /// Unix milliseconds.
    pub submitted_ms: u64,
    /// JobPrio.
    pub priority: i32,
    /// All its procs.
    pub total: u64,
    /// Waiting for a machine, or for their turn in a claim.
    pub idle: u64,
    /// With a process.
    pub running: u64,
    /// On hold.
    pub held: u64,
    /// Ended, and kept in the queue to be looked at; `done` counts them too.
    pub completed: u64,
    /// How the finished ones ended.
    pub done: Summary,
    /// Attempts that ended without their job having finished.
    pub requeues: u64,
}

/// What one job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Waits.
    Idle,
    /// Has a process.
    Running,
    /// Has processes that stand still: the machine's owner needs it.
    Suspended,
    /// On hold.
    Held,
    /// Ended, and kept in the queue to be looked at.
    Completed,
}

/// One job that is in the queue.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Which.
    pub job: JobId,
    /// State.
    pub state: JobState,
    /// When its process was started.
    pub started_ms: Option<u64>,
    /// Where it is.
    pub machine: Option<Arc<str>>,
    /// In which slot.
    pub slot: Option<String>,
    /// Attempts so far.
    pub attempts: u32,
    /// Why it is held.
    pub hold_reason: Option<(String, u32)>,
    /// How far it is on its way to a machine, in the words of a lab: queued, assigned, scheduled, waiting, installing. Plain
    /// jobs have only the last two, and only where machines are made ready for them.
    pub recipe: Option<&'static str>,
    /// The job on whose machine it runs.
    pub guest_of: Option<JobId>,
}

/// A machine, or one of its slots where it is divided.
#[derive(Debug, Clone)]
pub struct MachineView {
    /// Name.
    pub name: Arc<str>,
    /// Which of its slots that are not cut from another: `slot1`, and more where the owner divided it.
    pub slot: Arc<str>,
    /// False while it is out of contact.
    pub connected: bool,
    /// What the pool may use.
    pub total: Resources,
    /// What a job could have now.
    pub free: Resources,
    /// What nobody uses and no job could have now, and why, if so.
    pub unusable: Option<(Resources, &'static str)>,
    /// Its ad, one attribute a line.
    pub ad: Arc<classad::ClassAd>,
    /// Claims on it.
    pub claims: Vec<RunningView>,
    /// The lab it is in.
    pub lab: Arc<str>,
    /// What people decided about it.
    pub standing: MachineStanding,
    /// Why it takes nothing new, if so.
    pub shut: Option<Shut>,
    /// What it does, in a lab's words: idle, pending, scheduled, waiting, installing, running.
    pub usage: &'static str,
    /// When it was last heard of, in Unix milliseconds; 0 when it was not yet.
    pub heard_ms: u64,
}

/// A lab.
#[derive(Debug, Clone)]
pub struct LabView {
    /// Name; empty for machines that name none.
    pub name: String,
    /// Machines in it.
    pub machines: u64,
    /// What people decided about it.
    pub set: LabSet,
}

/// A claim on a machine.
#[derive(Debug, Clone)]
pub struct RunningView {
    /// Slot.
    pub slot: String,
    /// For whom.
    pub owner: Arc<str>,
    /// Its current job.
    pub job: Option<JobId>,
    /// Jobs behind it.
    pub waiting: usize,
    /// Since when the claim exists.
    pub since_ms: u64,
    /// When its current job was started.
    pub started_ms: Option<u64>,
    /// What it holds.
    pub resources: Resources,
    /// What its machine says of it.
    pub now: Option<SlotState>,
    /// Its id.
    pub claim: ClaimId,
    /// JobUniverse of its job.
    pub universe: i64,
    /// Its job can save its work.
    pub checkpointable: bool,
    /// Size of its job's last checkpoint.
    pub checkpoint_bytes: Option<u64>,
    /// How long its job saved its work when it last had to leave, in milliseconds.
    pub saving_ms: Option<u64>,
    /// ImageSize as its job was submitted with: declared, or the size of its program.
    pub declared_kib: u64,
    /// Its job belongs to a gang.
    pub gang: bool,
    /// It is kept though its job is over.
    pub reserved: Option<Reserved>,
    /// Its slot is promised to it, and it has not asked for it yet.
    pub promised: bool,
    /// Whose better job its own is to leave for.
    pub preempting: Option<Arc<str>>,
    /// What its machine thinks of that job.
    pub preempting_rank: Option<f64>,
}

impl RunningView {
    /// State and activity of its slot: as its machine says, or as they follow from the claim while it has said nothing.
    pub fn standing(&self) -> (&str, &str) {
        match &self.now {
            Some(now) => (&now.state, &now.activity),
            None if self.promised => ("Matched", "Idle"),
            None if self.started_ms.is_some() => ("Claimed", "Busy"),
            None => ("Claimed", "Idle"),
        }
    }
}

/// Totals.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolView {
    /// Clusters in the queue.
    pub clusters: u64,
    /// Idle jobs.
    pub idle: u64,
    /// Jobs in the hands of claims.
    pub live: u64,
    /// Held jobs.
    pub held: u64,
    /// Machines known.
    pub machines: u64,
    /// Machines connected.
    pub connected: u64,
    /// Claims.
    pub claims: u64,
    /// Cores in all.
    pub cpus: u64,
    /// Cores that a job could have now.
    pub cpus_free: u64,
    /// What the consistency pass found since the manager started.
    pub findings: Findings,
}

/// Whom a checkpoint is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The user.
    pub owner: Arc<str>,
    /// Bytes that the user's other jobs have stored.
    pub used: u64,
    /// All that the user's jobs have stored, by name.
    pub objects: HashSet<String>,
    /// Bytes that the user may have stored; 0 for any amount.
    pub quota: u64,
}

impl Core {
    /// The clusters in the queue, oldest first.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterView> + '_ {
        self.queue.clusters().keys().filter_map(|&id| self.cluster(id))
    }

    /// One cluster in the queue.
    pub fn cluster(&self, id: u32) -> Option<ClusterView> {
        let c = self.queue.clusters().get(&id)?;
        let started = c.live.values().filter(|l| l.started_ms.is_some()).count() as u64;
        Some(ClusterView {
            cluster: id,
            owner: c.owner.clone(),
            template: c.template.get(),
            submitted_ms: c.submitted_ms,
            priority: c.priority,
            total: u64::from(c.template.procs()),
            idle: c.idle_count() + c.live.len() as u64 - started,
            running: started,
            held: c.held.len(),
            completed: c.completed.len(),
            done: c.summary,
            requeues: c.requeues,
        })
    }

    /// How a cluster ended, when it has left the queue not too long ago.
    pub fn finished(&self, id: u32) -> Option<Summary> {
        self.queue.ended(id)
    }

    /// The id that the next cluster will have, or a larger one (`Settings::first_cluster`). No cluster has had it.
    pub fn next_cluster(&self) -> u32 {
        self.queue.next_cluster().max(1)
    }

    /// The unfinished jobs of a cluster: running ones first, at most `limit`.
    pub fn jobs(&self, id: u32, limit: usize) -> Vec<JobView> {
        self.job_page(id, JobCursor::default(), limit).items
    }

    /// True when jobs are known to have started on the machine in claims that a hello does not have.
    pub fn runs_more_than(&self, hello: &crate::AgentHello, digest: crate::Digest) -> bool {
        self.started_claims(&hello.machine).iter().any(|(id, claim)| {
            !hello.claims.iter().any(|held| held.claim == *id && claim.key_digest == digest(&held.key))
        })
    }

    /// True when a job is known to have started on the machine, and not to have ended.
    pub fn runs_anything_on(&self, machine: &str) -> bool {
        !self.started_claims(machine).is_empty()
    }

    /// The claims on a machine in which a job is known to have started.
    fn started_claims(&self, machine: &str) -> Vec<(ClaimId, &crate::pool::Claim)> {
        let places = self.pool.places(machine);
        let claims = places.iter().filter_map(|p| self.pool.machines().get(p)).flat_map(|m| &m.claims);
        let started = |job: &JobId| {
            let live = self.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
            live.is_some_and(|live| live.started_ms.is_some())
        };
        claims
            .filter_map(|id| Some((*id, self.pool.claims().get(id)?)))
            .filter(|(_, claim)| claim.jobs.iter().any(started))
            .collect()
    }

    /// True when a machine has a job that may begin from this object.
    pub fn may_fetch(&self, machine: &str, object: &str) -> bool {
        let places = self.pool.places(machine);
        let claims = places.iter().filter_map(|p| self.pool.machines().get(p)).flat_map(|m| &m.claims);
        let mut jobs = claims.filter_map(|id| self.pool.claims().get(id)).flat_map(|claim| &claim.jobs);
        jobs.any(|job| self.checkpoint(*job).is_some_and(|c| *c.object == *object))
    }

    /// The slot of a claim on this machine whose live attempt this is; `None` when it is not.
    pub fn runs(&self, machine: &str, claim: ClaimId, attempt: model::report::Attempt) -> Option<String> {
        let held = self.pool.claims().get(&claim).filter(|c| host_of(&c.machine) == machine)?;
        self.live_of(claim, attempt)?;
        Some(format!("{}@{machine}", held.slot))
    }

    /// Whom a machine's configuration names as its owner.
    pub fn machine_owner(&self, machine: &str) -> Option<String> {
        match self.pool.machines().get(machine)?.ad.fact("MachineOwner") {
            classad::Value::Str(owner) => Some(owner.to_string()).filter(|owner| !owner.is_empty()),
            _ => None,
        }
    }

    /// The machines, also those that only a decision of people is known of.
    pub fn machines(&self) -> impl Iterator<Item = MachineView> + '_ {
        self.machine_page("", usize::MAX).items.into_iter()
    }

    /// Name, lab and cores of the machines that are there; several of one name where it is divided.
    pub fn machine_sizes(&self) -> Vec<(Arc<str>, Arc<str>, u32)> {
        let size = |(name, m): (&Arc<str>, &crate::pool::Machine)| {
            let host = host_of(name);
            let host = if *host == **name { name.clone() } else { Arc::from(host) };
            (host, m.lab.clone(), m.total.cpus)
        };
        self.pool.machines().iter().map(size).collect()
    }

    /// Labs, by name.
    pub fn labs(&self) -> Vec<LabView> {
        let mut machines: BTreeMap<&str, u64> = BTreeMap::new();
        for machine in self.pool.machines().values() {
            *machines.entry(&machine.lab).or_default() += 1;
        }
        for name in self.labs.decided().keys() {
            machines.entry(name).or_default();
        }
        let view = |(name, machines): (&str, u64)| LabView {
            name: name.to_owned(),
            machines,
            set: self.labs.decided().get(name).cloned().unwrap_or_default(),
        };
        machines.into_iter().map(view).collect()
    }

    /// The lab that a machine says it is in; empty for none. `None` for a machine that is not here.
    pub fn lab_of_machine(&self, name: &str) -> Option<std::sync::Arc<str>> {
        let machine = self.pool.machines().get(name)?;
        machine.session.is_some().then(|| crate::labs::lab_of(&machine.ad))
    }

    pub(crate) fn machine_view(&self, name: &str, m: &crate::pool::Machine) -> MachineView {
        let unusable = m.why_unusable().map(|why| (m.free, why));
        MachineView {
            usage: self.usage_of(name, m),
            heard_ms: self.pool.machines().get(host_of(name)).map_or(0, |first| first.heard_wall_ms),
            lab: m.lab.clone(),
            standing: self.labs.standing(host_of(name)),
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
                .filter_map(|id| self.pool.claims().get(id).map(|claim| (id, claim)))
                .map(|(id, c)| RunningView {
                    universe: self.job_number(c.jobs.first(), "JobUniverse").unwrap_or(5),
                    checkpointable: self.can_save(c.jobs.first()),
                    checkpoint_bytes: c.jobs.first().and_then(|j| self.checkpoint(*j)).map(|c| c.bytes),
                    saving_ms: c
                        .jobs
                        .first()
                        .and_then(|j| self.checkpoint(*j))
                        .map(|c| c.saving_ms)
                        .filter(|ms| *ms > 0),
                    declared_kib: c.jobs.first().and_then(|j| self.declared_kib(*j)).unwrap_or(0),
                    gang: c.job().and_then(|j| self.queue.clusters().get(&j.cluster)).is_some_and(|c| c.gang),
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
                        .and_then(|j| self.queue.clusters().get(&j.cluster)?.live.get(&j.proc)?.started_ms),
                    resources: c.resources,
                    promised: c.withheld && c.seat.is_some(),
                    preempting: c
                        .rival
                        .and_then(|s| self.shapes.all().get(&s))
                        .map(|s| self.accounts.get(s.user).name.clone()),
                    preempting_rank: c.rival.and_then(|s| self.shapes.machine_rank(m.number, s)),
                })
                .collect(),
        }
    }

    /// What a machine does: what the job does there that has come furthest, or who has it by hand. What is put in order is
    /// still in use.
    fn usage_of(&self, name: &str, machine: &crate::pool::Machine) -> &'static str {
        let claims = machine.claims.iter().filter_map(|id| self.pool.claims().get(id));
        let furthest = claims.map(|claim| {
            let live =
                claim.jobs.first().and_then(|j| self.queue.clusters().get(&j.cluster)?.live.get(&j.proc));
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
        let standing = self.labs.standings().get(host_of(name)).filter(|s| !s.held_by.is_empty());
        match standing.map(|s| HoldStage::from_word(&s.held_stage).unwrap_or(HoldStage::Running)) {
            Some(stage) => stage.word(),
            None if machine.undecided => "pending",
            None => "idle",
        }
    }

    /// Does a job save its work when it is asked, or is it saved?
    fn can_save(&self, job: Option<&JobId>) -> bool {
        let shape = job.and_then(|j| self.shape_of(*j));
        shape.and_then(|s| self.shapes.ad(s)).is_some_and(|ad| {
            ["CheckpointSig", "SuccessCheckpointExitCode"].iter().any(|name| ad.contains(name))
                || ad.eval_bool("WantTransparentCheckpoint") == Some(true)
        })
    }

    fn declared_kib(&self, job: JobId) -> Option<u64> {
        let template = self.queue.clusters().get(&job.cluster)?.template.get();
        template.attribute(job.cluster, job.proc, "ImageSize")?.trim().parse().ok()
    }

    fn job_number(&self, job: Option<&JobId>, name: &str) -> Option<i64> {
        self.shapes.ad(self.shape_of(*job?)?)?.eval_int(name)
    }

    /// Users and their standing, best priority first.
    pub fn users(&self, now_ms: u64) -> Vec<UserView> {
        self.accounts.views(now_ms)
    }

    /// Totals for metrics.
    pub fn totals(&self) -> PoolView {
        let clusters = self.queue.clusters().len() as u64;
        let mut view = PoolView { clusters, findings: self.findings(), ..PoolView::default() };
        for c in self.queue.clusters().values() {
            view.idle += c.idle_count();
            view.live += c.live.len() as u64;
            view.held += c.held.len();
        }
        for (name, m) in self.pool.machines().iter() {
            let first = u64::from(*host_of(name) == **name);
            view.machines += first;
            if m.session.is_some() {
                view.connected += first;
                view.cpus += u64::from(m.total.cpus);
                view.cpus_free += u64::from(m.why_unusable().map_or(m.free.cpus, |_| 0));
            }
        }
        view.claims = self.pool.claims().len() as u64;
        view
    }

    /// Where the next attempt at a job begins; `None` for its beginning.
    pub fn checkpoint(&self, job: JobId) -> Option<&Checkpoint> {
        self.queue.clusters().get(&job.cluster)?.checkpoints.get(&job.proc)
    }

    /// The job left a machine without the checkpoint that it declares.
    pub fn checkpoint_missed(&self, job: JobId) -> bool {
        self.queue.clusters().get(&job.cluster).is_some_and(|c| c.missed.contains(job.proc))
    }

    /// All checkpoints that unfinished jobs may begin from.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.queue.clusters().values().flat_map(|c| c.checkpoints.values())
    }

    /// The same, with whose they are.
    pub fn checkpoints_of_users(&self) -> impl Iterator<Item = (&Arc<str>, &Checkpoint)> {
        self.queue.clusters().values().flat_map(|c| c.checkpoints.values().map(|saved| (&c.owner, saved)))
    }

    /// Whom a checkpoint of a claim's job is charged to, and what else that user has stored. `None` when the machine has no such claim.
    pub fn charge_checkpoint(&self, machine: &str, claim: ClaimId) -> Option<Charge> {
        let claim = self.pool.claims().get(&claim).filter(|c| host_of(&c.machine) == machine)?;
        let quota = self.settings.checkpoint_quota;
        let mut charge = Charge { owner: claim.owner.clone(), used: 0, objects: HashSet::new(), quota };
        // What the job itself has stored is replaced.
        let own = claim.jobs.first().copied();
        for (&cluster, c) in self.queue.clusters().iter().filter(|(_, c)| c.owner == claim.owner) {
            for (&proc, checkpoint) in &c.checkpoints {
                if own != Some(JobId { cluster, proc }) {
                    charge.used += checkpoint.bytes;
                }
                charge.objects.insert(checkpoint.object.to_string());
            }
        }
        Some(charge)
    }

    /// The template and owner of a cluster, for whoever must tell a machine what to run.
    pub fn template(&self, cluster: u32) -> Option<(Arc<JobTemplate>, Arc<str>)> {
        self.queue.clusters().get(&cluster).map(|c| (c.template.get(), c.owner.clone()))
    }
}
