//! Read-only answers for people.

mod machine;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::event::{LabSet, MachineStanding, PoolDrained, Resources};
use model::{ClaimId, JobId, JobTemplate, Now};

use crate::accounts::UserView;
use crate::explain::{JobExplanation, MachineExplanation};
use crate::gangs::GangView;
use crate::labs::Shut;
use crate::pages::{JobCursor, Page};
use crate::pool::{Reserved, SlotState, host_of};
use crate::queue::{Checkpoint, Queue, Summary};
use crate::sweep::Findings;
use crate::{Core, agents, explain, gangs, invariants, pages, places, probes};

pub(crate) use machine::machine_view;

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
        self.books.queue.clusters().keys().filter_map(|&id| cluster(&self.books.queue, id))
    }

    /// The id that the next cluster will have, or a larger one (`Settings::first_cluster`). No cluster has had it.
    pub fn next_cluster(&self) -> u32 {
        self.books.queue.next_cluster().max(1)
    }

    /// The unfinished jobs of a cluster: running ones first, at most `limit`.
    pub fn jobs(&self, id: u32, limit: usize) -> Vec<JobView> {
        pages::job_page(&self.books.queue, &self.books.pool, &self.gangs, id, JobCursor::default(), limit)
            .items
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
        let places = self.books.pool.places(machine);
        let claims = places.iter().filter_map(|p| self.books.pool.machines().get(p)).flat_map(|m| &m.claims);
        let started = |job: &JobId| {
            let live = self.books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
            live.is_some_and(|live| live.started_ms.is_some())
        };
        claims
            .filter_map(|id| Some((*id, self.books.pool.claims().get(id)?)))
            .filter(|(_, claim)| claim.jobs.iter().any(started))
            .collect()
    }

    /// True when a machine has a job that may begin from this object.
    pub fn may_fetch(&self, machine: &str, object: &str) -> bool {
        let places = self.books.pool.places(machine);
        let claims = places.iter().filter_map(|p| self.books.pool.machines().get(p)).flat_map(|m| &m.claims);
        let mut jobs = claims.filter_map(|id| self.books.pool.claims().get(id)).flat_map(|claim| &claim.jobs);
        jobs.any(|job| checkpoint(&self.books.queue, *job).is_some_and(|c| *c.object == *object))
    }

    /// The slot of a claim on this machine whose live attempt this is; `None` when it is not.
    pub fn runs(&self, machine: &str, claim: ClaimId, attempt: model::report::Attempt) -> Option<String> {
        let held = self.books.pool.claims().get(&claim).filter(|c| host_of(&c.machine) == machine)?;
        agents::live_of(&self.books.queue, claim, attempt)?;
        Some(format!("{}@{machine}", held.slot))
    }

    /// Whom a machine's configuration names as its owner.
    pub fn machine_owner(&self, machine: &str) -> Option<String> {
        match self.books.pool.machines().get(machine)?.ad.fact("MachineOwner") {
            classad::Value::Str(owner) => Some(owner.to_string()).filter(|owner| !owner.is_empty()),
            _ => None,
        }
    }

    /// The machines, also those that only a decision of people is known of.
    pub fn machines(&self) -> impl Iterator<Item = MachineView> + '_ {
        pages::machine_page(&self.books, "", usize::MAX).items.into_iter()
    }

    /// Name, lab and cores of the machines that are there; several of one name where it is divided.
    pub fn machine_sizes(&self) -> Vec<(Arc<str>, Arc<str>, u32)> {
        let size = |(name, m): (&Arc<str>, &crate::pool::Machine)| {
            let host = host_of(name);
            let host = if *host == **name { name.clone() } else { Arc::from(host) };
            (host, m.lab.clone(), m.total.cpus)
        };
        self.books.pool.machines().iter().map(size).collect()
    }

    /// Labs, by name.
    pub fn labs(&self) -> Vec<LabView> {
        let mut machines: BTreeMap<&str, u64> = BTreeMap::new();
        for machine in self.books.pool.machines().values() {
            *machines.entry(&machine.lab).or_default() += 1;
        }
        for name in self.books.labs.decided().keys() {
            machines.entry(name).or_default();
        }
        let view = |(name, machines): (&str, u64)| LabView {
            name: name.to_owned(),
            machines,
            set: self.books.labs.decided().get(name).cloned().unwrap_or_default(),
        };
        machines.into_iter().map(view).collect()
    }

    /// What has become of an unfinished job so far, as attributes beside those that it was submitted with.
    pub fn job_progress(&self, view: &JobView, now: crate::Now) -> Option<classad::ClassAd> {
        pages::job_progress(&self.books.queue, view, now)
    }

    /// The lab that a machine says it is in; empty for none. `None` for a machine that is not here.
    pub fn lab_of_machine(&self, name: &str) -> Option<std::sync::Arc<str>> {
        let machine = self.books.pool.machines().get(name)?;
        machine.session.is_some().then(|| machine.lab.clone())
    }

    /// Users and their standing, best priority first.
    pub fn users(&self, now_ms: u64) -> Vec<UserView> {
        self.books.accounts.views(now_ms)
    }

    /// Totals for metrics.
    pub fn totals(&self) -> PoolView {
        let clusters = self.books.queue.clusters().len() as u64;
        let mut view = PoolView { clusters, findings: self.findings(), ..PoolView::default() };
        for c in self.books.queue.clusters().values() {
            view.idle += c.idle_count();
            view.live += c.live.len() as u64;
            view.held += c.held.len();
        }
        for (name, m) in self.books.pool.machines().iter() {
            let first = u64::from(*host_of(name) == **name);
            view.machines += first;
            if m.session.is_some() {
                view.connected += first;
                view.cpus += u64::from(m.total.cpus);
                view.cpus_free += u64::from(m.why_unusable().map_or(m.free.cpus, |_| 0));
            }
        }
        view.claims = self.books.pool.claims().len() as u64;
        view
    }

    /// All checkpoints that unfinished jobs may begin from.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.books.queue.clusters().values().flat_map(|c| c.checkpoints.values())
    }

    /// The same, with whose they are.
    pub fn checkpoints_of_users(&self) -> impl Iterator<Item = (&Arc<str>, &Checkpoint)> {
        self.books
            .queue
            .clusters()
            .values()
            .flat_map(|c| c.checkpoints.values().map(|saved| (&c.owner, saved)))
    }

    /// Whom a checkpoint of a claim's job is charged to, and what else that user has stored. `None` when the machine has no such claim.
    pub fn charge_checkpoint(&self, machine: &str, claim: ClaimId) -> Option<Charge> {
        let claim = self.books.pool.claims().get(&claim).filter(|c| host_of(&c.machine) == machine)?;
        let quota = self.books.settings.checkpoint_quota;
        let mut charge = Charge { owner: claim.owner.clone(), used: 0, objects: HashSet::new(), quota };
        // What the job itself has stored is replaced.
        let own = claim.jobs.first().copied();
        for (&cluster, c) in self.books.queue.clusters().iter().filter(|(_, c)| c.owner == claim.owner) {
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
        self.books.queue.clusters().get(&cluster).map(|c| (c.template.get(), c.owner.clone()))
    }

    /// What does not hold, in words; nothing when all is well.
    pub fn broken(&mut self, now: Now) -> Vec<String> {
        invariants::broken(self, now)
    }

    /// The drains in force.
    pub fn drains(&self) -> impl Iterator<Item = &PoolDrained> {
        self.books.drains.said()
    }

    /// Why a job is where it is. `None` when there never was such a cluster, or it was forgotten.
    pub fn explain_job(&mut self, job: JobId, now: Now) -> Option<JobExplanation> {
        explain::explain_job(&mut self.books, &self.gangs, &self.keys, &self.throttle, job, now)
    }

    /// Why a machine does what it does.
    pub fn explain_machine(&mut self, name: &str, now: Now) -> Option<MachineExplanation> {
        explain::explain_machine(&mut self.books, &self.gangs, &self.throttle, name, now)
    }

    /// Why a gang waits; `None` for what is no waiting gang.
    pub fn gang(&self, cluster: u32, now_ms: u64) -> Option<GangView> {
        gangs::gang(&self.books, &self.gangs, cluster, now_ms)
    }

    /// Everything durable, as text that can be compared.
    pub fn picture(&self) -> String {
        probes::picture(&self.books.queue, &self.books.pool, &self.books.labs)
    }

    /// The books of a machine lose what it has: for tests of what puts that right.
    pub fn spoil_books(&mut self, machine: &str) {
        probes::spoil_books(&mut self.books.pool, &mut self.sweep, machine)
    }

    /// The gang that a machine is kept for.
    pub fn earmark_of(&self, machine: &str) -> Option<u32> {
        probes::earmark_of(&self.books.pool, &self.gangs, machine)
    }

    /// A running job that its machine likes less than one that waits and could have its place, where nobody is on the way out
    /// for that one. After a tick there is none, as long as few enough machines and kinds of jobs are looked at in one go.
    pub fn slighted(&mut self, now: Now) -> Option<String> {
        probes::slighted(&mut self.books, &mut self.gangs, &mut self.undone, now)
    }

    /// The class of a cluster, before aging.
    pub fn class_of(&self, cluster: u32) -> Option<model::Class> {
        probes::class_of(&self.books.queue, cluster)
    }

    /// Waiting gangs in their order, each with its class after aging, and whether its turn has come: what tells states of
    /// the pool apart beside what people see.
    pub fn gang_order(&self) -> Vec<(u32, model::Class, bool)> {
        probes::gang_order(&self.gangs)
    }

    /// Clusters in the queue from an id on, oldest first; of one user, or of all. A page may have less than `limit`, and
    /// another may follow nevertheless.
    pub fn cluster_page(&self, from: u32, owner: Option<&str>, limit: usize) -> Page<ClusterView, u32> {
        pages::cluster_page(&self.books.queue, from, owner, limit)
    }

    /// Unfinished jobs of a cluster: those that machines have, held ones, waiting ones, those that ended and stay to be
    /// looked at; each part in the order of procs.
    pub fn job_page(&self, id: u32, from: JobCursor, limit: usize) -> Page<JobView, JobCursor> {
        pages::job_page(&self.books.queue, &self.books.pool, &self.gangs, id, from, limit)
    }

    /// One unfinished job.
    pub fn job(&self, job: JobId) -> Option<JobView> {
        pages::job(&self.books.queue, &self.books.pool, &self.gangs, job)
    }

    /// The job of a cluster that is meant when somebody asks why it waits: the first one that does, or its first one.
    pub fn job_to_explain(&self, id: u32) -> Option<JobId> {
        pages::job_to_explain(&self.books.queue, &self.books.pool, &self.gangs, id)
    }

    /// Machines (where they are divided, their places) from a name on, then those that only a decision of people is known of.
    /// The cursor is for [`Core::machine_page`] only.
    pub fn machine_page(&self, from: &str, limit: usize) -> Page<MachineView, String> {
        pages::machine_page(&self.books, from, limit)
    }

    /// A machine with all its places, or one of them (`slot2@HOST`), or the place that a claimed slot (`slot1_2@HOST`) is cut from
    /// with that one alone.
    pub fn machines_named(&self, wanted: &str) -> Vec<MachineView> {
        pages::machines_named(&self.books, wanted)
    }

    /// After recovery: nobody is connected yet, but machines with claims may well be alive. From now on each has the
    /// time of its lease to come back.
    pub fn recovered(&mut self, now: Now) {
        places::recovered(&mut self.books, now)
    }

    /// One cluster in the queue.
    pub fn cluster(&self, id: u32) -> Option<ClusterView> {
        cluster(&self.books.queue, id)
    }

    /// How a cluster ended, when it has left the queue not too long ago.
    pub fn finished(&self, id: u32) -> Option<Summary> {
        finished(&self.books.queue, id)
    }

    /// Where the next attempt at a job begins; `None` for its beginning.
    pub fn checkpoint(&self, job: JobId) -> Option<&Checkpoint> {
        checkpoint(&self.books.queue, job)
    }

    /// The job left a machine without the checkpoint that it declares.
    pub fn checkpoint_missed(&self, job: JobId) -> bool {
        checkpoint_missed(&self.books.queue, job)
    }
}

/// One cluster in the queue.
pub(crate) fn cluster(queue: &Queue, id: u32) -> Option<ClusterView> {
    let c = queue.clusters().get(&id)?;
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
pub(crate) fn finished(queue: &Queue, id: u32) -> Option<Summary> {
    queue.ended(id)
}

/// Where the next attempt at a job begins; `None` for its beginning.
pub(crate) fn checkpoint(queue: &Queue, job: JobId) -> Option<&Checkpoint> {
    queue.clusters().get(&job.cluster)?.checkpoints.get(&job.proc)
}

/// The job left a machine without the checkpoint that it declares.
pub(crate) fn checkpoint_missed(queue: &Queue, job: JobId) -> bool {
    queue.clusters().get(&job.cluster).is_some_and(|c| c.missed.contains(job.proc))
}
