//! Clusters and the state of their jobs.
//!
//! A proc is in exactly one of: idle, held, live (given to a claim), completed (and kept to be looked at), gone. All but
//! live are interval sets, so a million like-minded procs cost as much as one; only live procs have a record each. Idle ones
//! whose time has not come are in `later` instead of in their part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

use model::event::Afterwards;
use model::{ClaimId, Class, JobId, ProcSet, Span};

use super::recount::JobCount;
pub(crate) use super::stored::{Stored, SubmitKey, template_digest};
use crate::gangs::Guests;
use crate::lifecycle::{Past, Policies};
use crate::shape::{Ready, ShapeId};

/// Finished clusters whose outcome is still known without reading history.
pub(crate) const REMEMBERED: usize = 100_000;

/// All clusters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    /// Boxed: a tree's nodes are half empty, and clusters are not small.
    clusters: BTreeMap<u32, Box<Cluster>>,
    next_cluster: u32,
    /// Outcomes of clusters that left the queue, oldest first.
    finished: VecDeque<u32>,
    finished_index: HashMap<u32, (Summary, SubmitKey)>,
    /// What idempotency keys were used for: as long as a cluster is in the queue or among the last [`REMEMBERED`] that left.
    keys: HashMap<SubmitKey, Keyed>,
    /// Unfinished jobs per owner, for the quota.
    jobs_of: BTreeMap<Arc<str>, u64>,
    /// How far the consistency pass has counted.
    pub(super) recount: JobCount,
    /// Clusters with periodic expressions.
    periodic: BTreeSet<u32>,
    /// Clusters with machines that could not be made ready for them: nearly always none.
    excluding: BTreeSet<u32>,
    /// Clusters with idle procs whose time comes or is over then, in Unix milliseconds. Made anew by recovery; an entry
    /// too many is harmless.
    due: BTreeSet<(u64, u32)>,
    /// Runs by when they have lasted as long as they may, in Unix milliseconds. Made anew by recovery; an entry too many is
    /// harmless.
    limits: BTreeSet<(u64, JobId)>,
}

/// How a cluster ended (or stands).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Procs that exited with code 0.
    pub succeeded: u64,
    /// Procs that exited otherwise.
    pub failed: u64,
    /// Procs that were removed.
    pub removed: u64,
}

/// What an idempotency key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keyed {
    pub(crate) cluster: u32,
    /// [`template_digest`] of what was submitted.
    pub(crate) template: u32,
}

/// One cluster. Most only wait: what the others have besides is behind one pointer, and is reached as if it were here.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) owner: Arc<str>,
    pub(crate) key: SubmitKey,
    pub(crate) template: Stored,
    pub(crate) submitted_ms: u64,
    pub(crate) priority: i32,
    /// How urgent it is to the pool, as administrators said.
    pub(crate) class: Class,
    /// Its jobs start together or not at all.
    pub(crate) gang: bool,
    /// Jobs that run on the machine of another one, each with that one; rarely any.
    pub(crate) guests: Option<Box<Guests>>,
    /// Usually one; several when procs differ in what matters for matching.
    pub(crate) parts: Vec<Part>,
    /// Whether the template has lifecycle expressions; looked up once.
    pub(crate) policies: Policies,
    pub(crate) begun: Option<Box<Begun>>,
}

/// What a cluster has once any of its jobs was held or given to a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Begun {
    /// Idle procs that may not be given away before the first time, and are held at the second one, if it comes.
    pub(crate) later: BTreeMap<(u64, u64), ProcSet>,
    /// Idle procs that may be given away now, but not for ever: when they are held.
    pub(crate) until: BTreeMap<u64, ProcSet>,
    pub(crate) held: ProcSet,
    /// Why jobs are held; as many entries as distinct reasons, not as jobs.
    pub(crate) holds: Vec<Hold>,
    pub(crate) live: BTreeMap<u32, Live>,
    /// Attempts begun so far, for procs that have begun any and are not finished.
    pub(crate) attempts: HashMap<u32, u32>,
    /// How many of them were over before they had begun.
    pub(crate) unbegun: HashMap<u32, u32>,
    pub(crate) summary: Summary,
    /// Jobs whose attempt ended abnormally, for the people who look: how often.
    pub(crate) requeues: u64,
    /// What such expressions may ask about a proc's past; empty in clusters that have none.
    pub(crate) past: BTreeMap<u32, Past>,
    /// Where the next attempts of unfinished procs begin.
    pub(crate) checkpoints: BTreeMap<u32, Checkpoint>,
    /// Procs that ended and stay until somebody has looked at them (LeaveJobInQueue).
    pub(crate) completed: ProcSet,
    /// Procs that left a machine without the checkpoint that they declare.
    pub(crate) missed: ProcSet,
    /// Seconds that live procs got beyond what they declared.
    pub(crate) extended: BTreeMap<u32, u64>,
    /// Machines that could not be made ready for its jobs, and when that was, in Unix milliseconds.
    pub(crate) excluded: BTreeMap<Arc<str>, u64>,
    /// How often that happened to which proc, since it was last released.
    pub(crate) unready: BTreeMap<u32, u32>,
}

static NOT_BEGUN: LazyLock<Begun> = LazyLock::new(Begun::default);

impl Deref for Cluster {
    type Target = Begun;

    fn deref(&self) -> &Begun {
        self.begun.as_deref().unwrap_or(&NOT_BEGUN)
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Begun {
        self.begun.get_or_insert_default()
    }
}

/// A checkpoint in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name: the SHA-256 of the archive, in hexadecimal digits.
    pub object: Arc<str>,
    /// Its size.
    pub bytes: u64,
    /// The kind of machine that it is good for; empty for any.
    pub platform: Arc<str>,
    /// How long the job saved its work when it last had to leave, in milliseconds; 0 when it never had to.
    pub saving_ms: u64,
}

/// Procs of a cluster that are alike for matching.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) shape: ShapeId,
    /// All procs of this part; `None` when it is the only one.
    pub(crate) members: Option<Box<ProcSet>>,
    /// Those that wait for a machine.
    pub(crate) idle: ProcSet,
}

/// Jobs held for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) procs: ProcSet,
    pub(crate) reason: String,
    pub(crate) code: u32,
    pub(crate) subcode: u32,
    pub(crate) since_ms: u64,
}

/// A job that a claim has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) claim: ClaimId,
    pub(crate) attempt: u32,
    /// When its process was started; `None` while it waits in its starter.
    pub(crate) started_ms: Option<u64>,
    /// When it was given to the claim, by our own clock.
    pub(crate) assigned_ms: u64,
    pub(crate) stop: Option<Stop>,
    /// Its processes stand still.
    pub(crate) suspended: bool,
    /// Its machine is made ready for it.
    pub(crate) stage: Stage,
}

/// How far a machine is with a job that has not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// It was given the job.
    #[default]
    Scheduled,
    /// Its provisioning command was given.
    Waiting,
    /// It is being installed.
    Installing,
}

impl Live {
    pub(crate) fn new(claim: ClaimId, attempt: u32, assigned_ms: u64) -> Self {
        let stage = Stage::default();
        Self { claim, attempt, started_ms: None, assigned_ms, stop: None, suspended: false, stage }
    }
}

/// A stop that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) afterwards: Afterwards,
    pub(crate) reason: String,
    pub(crate) code: u32,
    pub(crate) subcode: u32,
}

impl Cluster {
    pub(crate) fn is_finished(&self) -> bool {
        self.held.is_empty() && self.live.is_empty() && self.completed.is_empty() && self.idle_count() == 0
    }

    /// Procs that are not gone.
    pub(crate) fn unfinished(&self) -> u64 {
        self.idle_count() + self.held.len() + self.live.len() as u64 + self.completed.len()
    }

    /// A gang of which some wait, or are on hold: the others cannot go on without them.
    pub(crate) fn is_broken(&self) -> bool {
        self.idle_count() > 0 || self.is_held_up()
    }

    /// Where a part of it stands in line, under the cluster's own number.
    pub(crate) fn ready(&self, id: u32, part: usize) -> Ready {
        let (class, priority) = (Reverse(self.class), Reverse(self.priority));
        Ready { class, priority, cluster: id, part: part as u32 }
    }

    /// The part a proc belongs to.
    pub(crate) fn part_of(&self, proc: u32) -> usize {
        let holds = |p: &Part| p.members.as_ref().is_none_or(|m| m.contains(proc));
        self.parts.iter().position(holds).unwrap_or(0)
    }

    pub(crate) fn idle_count(&self) -> u64 {
        let later = self.later.values().map(ProcSet::len);
        self.parts.iter().map(|p| p.idle.len()).chain(later).sum()
    }

    pub(crate) fn is_idle(&self, proc: u32) -> bool {
        self.parts.iter().any(|p| p.idle.contains(proc)) || self.later.values().any(|p| p.contains(proc))
    }

    /// All idle procs, also those whose time has not come.
    pub(crate) fn idle(&self) -> ProcSet {
        let mut idle = ProcSet::default();
        self.parts.iter().map(|p| &p.idle).chain(self.later.values()).for_each(|p| idle.insert_all(p));
        idle
    }

    /// Procs are idle, and may be given away.
    pub(crate) fn insert_idle(&mut self, procs: &ProcSet) {
        if let [only] = self.parts.as_mut_slice() {
            only.idle.insert_all(procs);
            return;
        }
        for proc in procs.iter() {
            let part = self.part_of(proc);
            if let Some(part) = self.parts.get_mut(part) {
                part.idle.insert(proc);
            }
        }
    }

    /// Procs are idle no more.
    pub(crate) fn take_idle(&mut self, span: Span) {
        let (first, end) = (span.first, span.procs().end);
        for part in &mut self.parts {
            part.idle.remove_range(first, end);
        }
        // Empty in nearly all clusters.
        self.later.retain(|_, procs| {
            procs.remove_range(first, end);
            !procs.is_empty()
        });
        self.until.retain(|_, procs| {
            procs.remove_range(first, end);
            !procs.is_empty()
        });
    }

    /// Takes procs out of `held` and out of their reasons.
    pub(crate) fn unhold(&mut self, first: u32, end: u32) {
        let Some(begun) = &mut self.begun else { return };
        begun.held.remove_range(first, end);
        for hold in &mut begun.holds {
            hold.procs.remove_range(first, end);
        }
        begun.holds.retain(|h| !h.procs.is_empty());
    }
}

impl Queue {
    /// Clusters with unfinished jobs.
    pub(crate) fn clusters(&self) -> &BTreeMap<u32, Box<Cluster>> {
        &self.clusters
    }

    /// A cluster, for what a fact changes in it.
    pub(super) fn cluster_mut(&mut self, id: u32) -> Option<&mut Cluster> {
        self.clusters.get_mut(&id).map(|cluster| &mut **cluster)
    }

    /// All clusters, for what a fact changes in them.
    pub(super) fn clusters_mut(&mut self) -> impl Iterator<Item = &mut Cluster> {
        self.clusters.values_mut().map(|cluster| &mut **cluster)
    }

    /// A cluster is here. Its jobs were counted when its owner's name was asked for.
    pub(super) fn insert(&mut self, id: u32, cluster: Cluster) {
        if cluster.policies.periodic {
            self.periodic.insert(id);
        }
        if !cluster.excluded.is_empty() {
            self.excluding.insert(id);
        }
        self.skip_to(id.saturating_add(1));
        self.clusters.insert(id, Box::new(cluster));
    }

    /// The number that the next cluster has.
    pub(crate) fn next_cluster(&self) -> u32 {
        self.next_cluster
    }

    /// No cluster has a smaller number from now on.
    pub(super) fn skip_to(&mut self, next: u32) {
        self.next_cluster = self.next_cluster.max(next);
    }

    /// What an idempotency key was used for.
    pub(crate) fn keyed(&self, key: SubmitKey) -> Option<Keyed> {
        self.keys.get(&key).copied()
    }

    /// All idempotency keys, and what they were used for.
    pub(super) fn keys(&self) -> impl Iterator<Item = (SubmitKey, Keyed)> + '_ {
        self.keys.iter().map(|(key, keyed)| (*key, *keyed))
    }

    /// An idempotency key was used; nothing for none.
    pub(super) fn remember_key(&mut self, key: SubmitKey, keyed: Keyed) {
        if !key.is_none() {
            self.keys.insert(key, keyed);
        }
    }

    /// How many unfinished jobs each owner has.
    pub(crate) fn jobs_of(&self) -> &BTreeMap<Arc<str>, u64> {
        &self.jobs_of
    }

    /// An owner has another number of unfinished jobs than was booked.
    pub(super) fn put_jobs_right(&mut self, owner: &Arc<str>, counted: u64) {
        self.jobs_of.remove(owner);
        if counted > 0 {
            self.jobs_of.insert(owner.clone(), counted);
        }
    }

    /// Books a false number of unfinished jobs.
    #[cfg(test)]
    pub(crate) fn spoil_jobs_of(&mut self, owner: &str, wrong: u64) {
        self.jobs_of.insert(Arc::from(owner), wrong);
    }

    /// How a cluster ended that left the queue, as long as that is remembered.
    pub(crate) fn ended(&self, id: u32) -> Option<Summary> {
        self.finished_index.get(&id).map(|(summary, _)| *summary)
    }

    /// Clusters that left the queue, the oldest first.
    pub(super) fn finished(&self) -> impl Iterator<Item = (u32, Summary)> + '_ {
        self.finished.iter().filter_map(|id| Some((*id, self.ended(*id)?)))
    }

    /// Clusters with periodic expressions.
    pub(crate) fn periodic(&self) -> &BTreeSet<u32> {
        &self.periodic
    }

    /// Clusters with machines that could not be made ready for them.
    pub(crate) fn excluding(&self) -> &BTreeSet<u32> {
        &self.excluding
    }

    /// A machine could not be made ready for some jobs of a cluster.
    pub(super) fn exclude(&mut self, id: u32, host: &str, procs: &[Span], time_ms: u64) {
        let Some(cluster) = self.clusters.get_mut(&id) else { return };
        cluster.excluded.insert(Arc::from(host), time_ms);
        for proc in procs.iter().flat_map(|s| s.procs()) {
            *cluster.unready.entry(proc).or_default() += 1;
        }
        self.excluding.insert(id);
    }

    /// Every machine may be tried again for a cluster.
    pub(super) fn readmit(&mut self, id: u32) {
        if let Some(begun) = self.clusters.get_mut(&id).and_then(|cluster| cluster.begun.as_mut()) {
            begun.excluded.clear();
            begun.unready.clear();
        }
        self.excluding.remove(&id);
    }

    /// Some jobs of a cluster are over; when all are, it leaves the queue, and is returned.
    pub(super) fn finish(&mut self, id: u32, count: u64) -> Option<Box<Cluster>> {
        let cluster = self.clusters.get(&id)?;
        let (owner, finished) = (cluster.owner.clone(), cluster.is_finished());
        self.discount_jobs(id, &owner, count);
        if !finished {
            return None;
        }
        self.periodic.remove(&id);
        self.excluding.remove(&id);
        let cluster = self.clusters.remove(&id)?;
        self.remember(id, cluster.summary, cluster.key);
        Some(cluster)
    }

    /// Idle procs whose time has not come wait apart until it does.
    pub(crate) fn put_off(&mut self, id: u32, windows: BTreeMap<(u64, u64), ProcSet>) {
        let Some(cluster) = self.clusters.get_mut(&id) else { return };
        for (window, procs) in windows {
            for span in procs.spans() {
                cluster.take_idle(span);
            }
            cluster.later.entry(window).or_default().insert_all(&procs);
            self.due.insert((window.0, id));
        }
    }

    /// When the time of some idle procs comes or is over next.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// A cluster with procs whose time has come or is over: those that may be given away now, and those that were not in time, by
    /// when that was. All of them are idle like others from now on.
    pub(crate) fn wake(&mut self, now_ms: u64) -> Option<(u32, ProcSet, BTreeMap<u64, ProcSet>)> {
        while let Some((due_ms, id)) = self.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.due.remove(&(due_ms, id));
            let Some(cluster) = self.clusters.get_mut(&id) else { continue };
            let mut ready = ProcSet::default();
            let mut missed: BTreeMap<u64, ProcSet> = BTreeMap::new();
            let waits = cluster.later.split_off(&(now_ms + 1, 0));
            for ((_, until_ms), procs) in std::mem::replace(&mut cluster.later, waits) {
                if until_ms <= now_ms {
                    missed.entry(until_ms).or_default().insert_all(&procs);
                    continue;
                }
                ready.insert_all(&procs);
                if until_ms < u64::MAX {
                    cluster.until.entry(until_ms).or_default().insert_all(&procs);
                    self.due.insert((until_ms, id));
                }
            }
            let open = cluster.until.split_off(&(now_ms + 1));
            for (until_ms, procs) in std::mem::replace(&mut cluster.until, open) {
                missed.entry(until_ms).or_default().insert_all(&procs);
            }
            cluster.insert_idle(&ready);
            // Those that are in no set at the moment are idle again, so that the hold finds them where it expects them.
            for procs in missed.values() {
                cluster.insert_idle(procs);
            }
            return Some((id, ready, missed));
        }
        None
    }

    /// A run is over at the latest then.
    pub(crate) fn watch_limit(&mut self, due_ms: u64, job: JobId) {
        self.limits.insert((due_ms, job));
    }

    /// Runs by when they have lasted as long as they may.
    pub(crate) fn limits(&self) -> &BTreeSet<(u64, JobId)> {
        &self.limits
    }

    /// A run that has lasted as long as it may; nobody watches it any more.
    pub(crate) fn take_overrun(&mut self, now_ms: u64) -> Option<JobId> {
        let (due_ms, job) = self.limits.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        self.limits.remove(&(due_ms, job));
        Some(job)
    }

    /// When runs are over is worked out anew.
    pub(super) fn forget_limits(&mut self) {
        self.limits.clear();
    }

    /// Counts a cluster's unfinished jobs for their owner, and gives the name that all of the owner's share.
    pub(super) fn count_jobs(&mut self, cluster: u32, owner: &str, jobs: u64) -> Arc<str> {
        let known = self.jobs_of.get_key_value(owner).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| Arc::from(owner));
        *self.jobs_of.entry(name.clone()).or_default() += jobs;
        self.recount.more(cluster, &name, jobs);
        name
    }

    /// Jobs of a cluster are over.
    fn discount_jobs(&mut self, cluster: u32, owner: &str, jobs: u64) {
        self.recount.less(cluster, owner, jobs);
        if let Some(left) = self.jobs_of.get_mut(owner) {
            *left = left.saturating_sub(jobs);
            if *left == 0 {
                self.jobs_of.remove(owner);
            }
        }
    }

    /// Remembers how a cluster ended and forgets the oldest beyond the limit.
    pub(super) fn remember(&mut self, cluster: u32, summary: Summary, key: SubmitKey) {
        self.finished.push_back(cluster);
        self.finished_index.insert(cluster, (summary, key));
        while self.finished.len() > REMEMBERED {
            let old = self.finished.pop_front().and_then(|old| self.finished_index.remove(&old));
            if let Some((_, key)) = old {
                self.keys.remove(&key);
            }
        }
    }
}
