//! What is really the case, and what must hold of it: each invariant is a function whose name is a sentence. The journal's events are
//! held against the processes that are there, by true time.

use std::collections::{BTreeMap, BTreeSet};

use model::event::Kind;
use model::report::Attempt;
use model::{Event, JobId, Span};
use scheduler::Core;

use super::clocks::True;

/// What went wrong.
pub(super) type Check = Result<(), String>;

/// Of a cluster that was acknowledged to its submitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Submitted {
    pub(super) procs: u32,
    pub(super) cpus: u32,
    pub(super) gang: bool,
    /// How long its jobs may run, in seconds.
    pub(super) limit_s: Option<u64>,
    /// Its jobs take one of a limit of [`LICENCES`].
    pub(super) licensed: bool,
}

/// How many jobs with a licence may be alive at once.
pub(super) const LICENCES: usize = 3;

/// The truth.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Processes that are there: on which host, at which attempt.
    alive: BTreeMap<JobId, (usize, Attempt)>,
    /// When the process of a job that is alive began.
    began: BTreeMap<JobId, True>,
    /// Attempts whose process is no more.
    dead: BTreeSet<(u32, u32, u32)>,
    /// By the journal.
    clusters: BTreeMap<u32, Submitted>,
    /// Clusters whose submitters have their numbers.
    acknowledged: BTreeSet<u32>,
    given: BTreeMap<JobId, u64>,
    over: BTreeSet<JobId>,
    cpus: Vec<u32>,
    pub(super) starts: u64,
    pub(super) requeued: u64,
}

fn key(of: Attempt) -> (u32, u32, u32) {
    (of.cluster, of.proc, of.attempt)
}

impl Truth {
    pub(super) fn new(cpus: Vec<u32>) -> Self {
        Self { cpus, ..Self::default() }
    }

    pub(super) fn acknowledge(&mut self, cluster: u32) {
        self.acknowledged.insert(cluster);
    }

    pub(super) fn open(&self) -> usize {
        self.clusters.iter().map(|(id, c)| (0..c.procs).filter(|p| !self.is_over(*id, *p)).count()).sum()
    }

    fn is_over(&self, cluster: u32, proc: u32) -> bool {
        self.over.contains(&JobId { cluster, proc })
    }

    /// A process begins.
    pub(super) fn began(&mut self, at: True, host: usize, of: Attempt) -> Check {
        self.starts += 1;
        self.began.insert(of.job(), at);
        self.no_two_attempts_of_a_job_are_alive_at_once(of)?;
        self.no_job_runs_after_its_end(of)?;
        self.alive.insert(of.job(), (host, of));
        self.no_machine_runs_more_than_it_has(host)?;
        self.limits_are_never_passed()
    }

    /// A process is no more.
    pub(super) fn ended(&mut self, of: Attempt) {
        self.alive.remove(&of.job());
        self.dead.insert(key(of));
    }

    fn no_two_attempts_of_a_job_are_alive_at_once(&self, of: Attempt) -> Check {
        match self.alive.get(&of.job()) {
            Some((host, other)) => Err(format!("{of:?} begins while {other:?} is alive on host {host}")),
            None => Ok(()),
        }
    }

    fn no_job_runs_after_its_end(&self, of: Attempt) -> Check {
        if self.over.contains(&of.job()) {
            return Err(format!("{of:?} begins after the journal said that its job is over"));
        }
        Ok(())
    }

    fn no_machine_runs_more_than_it_has(&self, host: usize) -> Check {
        let here = self.alive.iter().filter(|(_, (on, _))| *on == host);
        let used: u32 = here.filter_map(|(job, _)| self.clusters.get(&job.cluster)).map(|c| c.cpus).sum();
        if used > self.cpus[host] {
            return Err(format!("host {host} has {} cores, and its jobs use {used}", self.cpus[host]));
        }
        Ok(())
    }

    fn limits_are_never_passed(&self) -> Check {
        let licensed =
            self.alive.keys().filter(|job| self.clusters.get(&job.cluster).is_some_and(|c| c.licensed));
        match licensed.count() {
            n if n > LICENCES => Err(format!("{n} jobs of a limit of {LICENCES} are alive")),
            _ => Ok(()),
        }
    }

    fn a_job_is_given_back_only_when_its_process_is_dead(&self, job: JobId) -> Check {
        match self.alive.get(&job) {
            Some((host, of)) => Err(format!("{job} goes back, and {of:?} is alive on host {host}")),
            None => Ok(()),
        }
    }

    fn each_job_has_one_end(&mut self, job: JobId) -> Check {
        self.given.remove(&job);
        if !self.over.insert(job) {
            return Err(format!("{job} ends twice"));
        }
        Ok(())
    }

    /// A batch is on disk.
    pub(super) fn note(&mut self, at: True, events: &[Event]) -> Check {
        let mut gangs = BTreeSet::new();
        for event in events {
            let Some(kind) = &event.kind else { continue };
            match kind {
                Kind::ClusterSubmitted(e) => {
                    let shared = |name: &str| e.template.shared(name);
                    let submitted = Submitted {
                        procs: e.template.procs,
                        cpus: shared("RequestCpus").and_then(|t| t.parse().ok()).unwrap_or(1),
                        gang: e.template.is_gang(),
                        limit_s: shared("AllowedExecuteDuration").and_then(|t| t.parse().ok()),
                        licensed: shared("ConcurrencyLimits").is_some(),
                    };
                    if self.clusters.insert(e.cluster, submitted).is_some() {
                        return Err(format!("cluster {} was submitted before", e.cluster));
                    }
                }
                Kind::JobsAssigned(e) => {
                    for job in jobs(e.cluster, &e.procs) {
                        self.each_job_is_in_one_place(job)?;
                        self.given.insert(job, e.claim);
                    }
                    gangs.insert(e.cluster);
                }
                Kind::JobExited(e) => {
                    let job = JobId { cluster: e.cluster, proc: e.proc };
                    self.a_job_is_given_back_only_when_its_process_is_dead(job)?;
                    if !self.dead.contains(&(e.cluster, e.proc, e.attempt)) {
                        return Err(format!(
                            "{job} exited by the journal, and attempt {} never ran",
                            e.attempt
                        ));
                    }
                    self.each_job_has_one_end(job)?;
                }
                Kind::JobsRemoved(e) => {
                    for job in jobs(e.cluster, &e.procs) {
                        self.a_job_is_given_back_only_when_its_process_is_dead(job)?;
                        self.each_job_has_one_end(job)?;
                    }
                }
                Kind::StopRequested(e) if matches!(e.code, 46 | 47) => {
                    self.no_limit_ends_a_run_early(at, JobId { cluster: e.cluster, proc: e.proc })?;
                }
                Kind::JobsRequeued(e) => {
                    for job in jobs(e.cluster, &e.procs) {
                        self.requeued += 1;
                        self.a_job_is_given_back_only_when_its_process_is_dead(job)?;
                        self.given.remove(&job);
                    }
                }
                Kind::JobsHeld(e) => {
                    for job in jobs(e.cluster, &e.procs) {
                        self.a_job_is_given_back_only_when_its_process_is_dead(job)?;
                        self.given.remove(&job);
                    }
                }
                _ => {}
            }
        }
        gangs.into_iter().try_for_each(|cluster| self.a_gang_is_whole_or_not_at_all(cluster))
    }

    fn each_job_is_in_one_place(&self, job: JobId) -> Check {
        if self.over.contains(&job) {
            return Err(format!("{job} is given away after its end"));
        }
        match self.given.get(&job) {
            Some(claim) => Err(format!("{job} is given away twice; claim {claim} has it")),
            None => Ok(()),
        }
    }

    /// By true time, whatever clocks were set to; as far as they may drift.
    fn no_limit_ends_a_run_early(&self, at: True, job: JobId) -> Check {
        let (Some(began), Some(cluster)) = (self.began.get(&job), self.clusters.get(&job.cluster)) else {
            return Ok(());
        };
        let lasted_ms = at.saturating_sub(*began);
        match cluster.limit_s {
            Some(limit_s)
                if self.alive.contains_key(&job) && (lasted_ms + 1_100) * 100 < limit_s * 99_000 =>
            {
                Err(format!("{job} may run for {limit_s} s, and is ended after {lasted_ms} ms"))
            }
            _ => Ok(()),
        }
    }

    fn a_gang_is_whole_or_not_at_all(&self, cluster: u32) -> Check {
        let Some(gang) = self.clusters.get(&cluster).filter(|c| c.gang) else { return Ok(()) };
        let jobs = (0..gang.procs).map(|proc| JobId { cluster, proc });
        let open: Vec<JobId> = jobs.filter(|job| !self.over.contains(job)).collect();
        let left: Vec<&JobId> = open.iter().filter(|job| !self.given.contains_key(job)).collect();
        match left.as_slice() {
            [] => Ok(()),
            // Its seats went to a better job in the same batch, before any machine had heard of it.
            left if left.len() == open.len() => Ok(()),
            left => Err(format!("gang {cluster} begins without {left:?}")),
        }
    }

    /// After every step: what the core tells of itself.
    pub(super) fn check(&self, core: &Core) -> Check {
        index_and_owner_agree(core)?;
        self.nothing_acknowledged_is_lost(core)?;
        each_job_is_counted_once(core)
    }

    fn nothing_acknowledged_is_lost(&self, core: &Core) -> Check {
        let lost = |id: &&u32| core.cluster(**id).is_none() && core.finished(**id).is_none();
        match self.acknowledged.iter().find(lost) {
            Some(id) => Err(format!("cluster {id} was acknowledged, and nobody knows it")),
            None => Ok(()),
        }
    }

    /// At the end of the world.
    pub(super) fn everything_came_to_an_end(&self) -> Check {
        if let Some((job, (host, _))) = self.alive.iter().next() {
            return Err(format!("{job} is alive on host {host} after everything ended"));
        }
        match self.open() {
            0 => Ok(()),
            open => {
                let jobs = self.clusters.iter().flat_map(|(id, c)| (0..c.procs).map(|p| (*id, p)));
                let left: Vec<_> = jobs.filter(|(id, p)| !self.is_over(*id, *p)).take(8).collect();
                Err(format!("{open} jobs never came to an end, among them {left:?}"))
            }
        }
    }
}

/// The consistency pass finds no index that disagrees with its owner.
fn index_and_owner_agree(core: &Core) -> Check {
    match core.findings() {
        found if found.total() > 0 => Err(format!("the consistency pass found {found:?}")),
        _ => Ok(()),
    }
}

fn each_job_is_counted_once(core: &Core) -> Check {
    for view in core.clusters() {
        let over = view.done.succeeded + view.done.failed + view.done.removed;
        let counted = view.idle + view.running + view.held + over;
        if counted != view.total {
            return Err(format!(
                "cluster {} has {} jobs, and {counted} are counted",
                view.cluster, view.total
            ));
        }
    }
    Ok(())
}

fn jobs(cluster: u32, procs: &[Span]) -> impl Iterator<Item = JobId> {
    procs.iter().flat_map(|span| span.procs()).map(move |proc| JobId { cluster, proc })
}
