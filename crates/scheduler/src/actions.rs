//! What people ask: submit, hold, release, remove; users' priorities.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::codes::{hold, vacate};
use model::event::{
    Afterwards, ClusterSubmitted, JobVisited, JobsHeld, Kind, MachineStanding, PoolDrained, PrioritySet,
};
use model::{ClaimId, Class, JobId, JobName, JobTemplate, ProcSet, Span, limits};

use crate::labs::{LabChange, StandingChange, StandingRefusal};
use crate::price::{CLUSTER_BYTES, MODEST_BYTES, MODEST_KINDS, OWNER_BYTES, POOL_BYTES, UNKEPT_BYTES};
use crate::queue::{SubmitKey, template_digest};
use crate::shape::{KINDS, KINDS_PER_OWNER, STEPS_PER_SUBMIT, Unsorted};
use crate::{Control, Core, Turn, dag_nodes, gangs, labs, offers, orders, reserve, undone};

/// Who asks, as the manager established it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// User name.
    pub user: String,
    /// May act on other people's jobs.
    pub any_owner: bool,
}

/// Where a job is that somebody visits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visited {
    /// Its machine.
    pub machine: String,
    /// The claim that it runs in.
    pub claim: ClaimId,
    /// Its live attempt.
    pub attempt: model::report::Attempt,
}

/// A submit.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Whose jobs these will be.
    pub owner: String,
    /// What to run.
    pub template: JobTemplate,
    /// A retry with the same key gives the same cluster; empty for none.
    pub idempotency_key: String,
}

/// What to do with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Stop them and keep them held.
    Hold,
    /// Let held ones go.
    Release,
    /// Stop them and take them out of the queue.
    Remove,
    /// Stop running ones and put them back into the queue.
    Vacate,
    /// Have their machines do something with running ones.
    Control(Control),
    /// Give running ones so many seconds more.
    Extend(u64),
    /// Give back machines that were kept after the run.
    Return,
    /// Give them another place in the order.
    Reorder {
        /// Among their owner's jobs.
        priority: Option<i32>,
        /// Among all jobs of the pool.
        class: Option<Class>,
    },
}

/// Which jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// All jobs of the actor (of everybody, for an administrator who acts on any owner).
    All,
    /// These.
    Named(JobName),
    /// All jobs of one user.
    User(String),
}

/// What an action did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Jobs it changed, or that will change once they have stopped.
    pub changed: u64,
    /// Jobs it found in a state that it does not apply to (release of a job that is not held).
    pub unsuitable: u64,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The template is malformed.
    #[error("{0}")]
    BadTemplate(#[from] model::template::Invalid),
    /// It says of itself what it may not say.
    #[error("{0}")]
    BadStamp(#[from] crate::stamp::BadStamp),
    /// Too many different requirements in one cluster.
    #[error(
        "the jobs of this cluster differ in more than {} ways that matter for matching; submit them as several clusters",
        crate::shape::PARTS_PER_CLUSTER
    )]
    TooManyShapes,
    /// Too many different requirements in the queue.
    #[error(
        "the jobs of {user} in the queue would differ in more than {KINDS_PER_OWNER} ways that matter for matching, or all jobs of \
         the pool in more than {KINDS}; submit them later, or with requirements and requests of fewer kinds"
    )]
    TooManyKinds {
        /// Whose.
        user: String,
    },
    /// What tells the jobs of one cluster apart is too large.
    #[error(
        "what the jobs of this cluster are matched by takes {bytes} bytes in all their ways, and {CLUSTER_BYTES} are allowed; submit \
         them as several clusters, or say in fewer words what differs between them: one Requirements for all that compares \
         an attribute with a plain value for each job. A way whose expressions ask for time() or random() counts {UNKEPT_BYTES} bytes \
         more, since it is asked again at every turn"
    )]
    LargeShapes {
        /// How large.
        bytes: u64,
    },
    /// What the jobs of one cluster ask for takes too long to find out.
    #[error(
        "what the jobs of this cluster ask for (request_cpus, request_memory, concurrency_limits and the like) takes more than \
         {STEPS_PER_SUBMIT} steps of evaluation in all their ways; say plain numbers and texts, or submit them as several clusters"
    )]
    CostlyShapes,
    /// What tells the jobs in the queue apart is too large.
    #[error(
        "what the jobs of {user} in the queue are matched by would take more than {OWNER_BYTES} bytes in all their ways, or that of \
         all jobs of the pool more than {POOL_BYTES}; submit them later, or with shorter requirements of fewer kinds"
    )]
    LargeKinds {
        /// Whose.
        user: String,
    },
    /// Jobs that cannot be guests.
    #[error("{0}")]
    BadGuest(#[from] crate::gangs::BadGuest),
    /// No machine of the pool offers what the jobs need.
    #[error("{0}")]
    NotOffered(#[from] crate::NotOffered),
    /// Too many jobs of one user.
    #[error("{user} has {queued} jobs in the queue; at most {limit} are allowed")]
    Quota {
        /// Whose.
        user: String,
        /// How many.
        queued: u64,
        /// Limit.
        limit: u64,
    },
    /// Too many jobs that take nothing of a machine.
    #[error(
        "jobs of the scheduler universe (DAGs) take nothing of a machine, so a user may have {} of them in the queue, each a cluster of its \
         own; submit it as vanilla, or wait for others to end",
        limits::SCHEDULER_JOBS_PER_USER
    )]
    TooManySchedulerJobs,
    /// An idempotency key that was used for something else.
    #[error(
        "this idempotency key was used for cluster {cluster}, which is another submit; use a new key for each submit and the \
         same key only to repeat one"
    )]
    KeyReused {
        /// What the key was used for.
        cluster: u32,
    },
    /// A class is the pool's business.
    #[error("only an administrator gives jobs another class; their owner orders them with a priority")]
    ClassByAdministrators,
    /// Jobs of a cluster stand together.
    #[error("the jobs of cluster {0} have one priority and one class: name the cluster, not one of its jobs")]
    WholeCluster(u32),
    /// Plain jobs that name their machine.
    #[error(
        "jobs with ForceMachine start together or not at all: submit them with +Gang = true, or one by one"
    )]
    ForcedPlainJobs,
    /// More seats than a gang may have.
    #[error("a gang may have {most} jobs at most, and this one has {seats}: submit it as several")]
    GangTooLarge {
        /// How many.
        seats: u32,
        /// How many there may be.
        most: usize,
    },
    /// No such job.
    #[error("job {0} is not in the queue")]
    NoSuchJob(JobName),
    /// Its machine is promised.
    #[error(
        "the machine of job {job} is promised to gang {gang}, which would start later; only an administrator gives it so much more time"
    )]
    Promised {
        /// Which.
        job: JobName,
        /// To whom.
        gang: u32,
    },
    /// There is nothing to look into.
    #[error("job {0} does not run at the moment; `updraft queue` says where it stands")]
    NotRunning(model::JobId),
    /// Somebody else's job.
    #[error("job {job} belongs to {owner}")]
    NotYours {
        /// Which.
        job: JobName,
        /// Whose.
        owner: String,
    },
}

impl From<Unsorted> for Refusal {
    fn from(why: Unsorted) -> Self {
        match why {
            Unsorted::Ways => Self::TooManyShapes,
            Unsorted::Bytes(bytes) => Self::LargeShapes { bytes },
            Unsorted::Steps => Self::CostlyShapes,
        }
    }
}

impl Core {
    /// Checks and records a submit, and starts what can start. Returns the cluster's id.
    pub fn submit(&mut self, turn: &mut Turn<'_>, mut s: Submission) -> Result<u32, Refusal> {
        self.books.shapes.set_now(turn.now.wall_ms);
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        s.template.check()?;
        let key = SubmitKey::new(&s.owner, &s.idempotency_key);
        crate::stamp::stamp(&mut s.template, &s.owner, &self.books.settings.shares, turn.now.wall_ms)?;
        crate::gangs::unfold(&mut s.template)?;
        if let Some(keyed) = self.books.queue.keyed(key) {
            let same = keyed.template == template_digest(&s.template);
            return if same { Ok(keyed.cluster) } else { Err(Refusal::KeyReused { cluster: keyed.cluster }) };
        }
        let queued = self.books.queue.jobs_of().get(s.owner.as_str()).copied().unwrap_or(0);
        if queued + u64::from(s.template.procs) > limits::QUEUED_PER_USER {
            return Err(Refusal::Quota { user: s.owner, queued, limit: limits::QUEUED_PER_USER });
        }
        if !dag_nodes::may_have_another(&self.books.queue, &s.owner, &s.template) {
            return Err(Refusal::TooManySchedulerJobs);
        }
        let guests = crate::gangs::read_guests(&s.template)?;
        let cluster = self.books.queue.next_cluster().max(self.books.settings.first_cluster).max(1);
        self.check_price(&s.owner, cluster, &s.template)?;
        let mut sorted = Vec::new();
        if self.books.shapes.may_differ(&s.owner, cluster, &s.template) {
            // Sorting twice (here and in apply) is cheap next to a refused journal event: what is made here is found there.
            let parts = self.books.shapes.parts(
                &s.owner,
                cluster,
                &s.template,
                &mut self.books.accounts,
                turn.now.wall_ms,
            );
            let parts = parts?;
            let checked =
                crate::gangs::check_sizes(&guests, &parts, &self.books.shapes).map_err(Refusal::from);
            let checked = checked.and_then(|()| self.check_kinds(&s.owner, 0));
            sorted = parts;
            if checked.is_err() {
                self.books.shapes.release(&sorted);
                return checked.map(|()| cluster);
            }
        } else if self.check_kinds(&s.owner, 1).is_err()
            && self.books.shapes.is_new(&s.owner, cluster, &s.template, 0)
        {
            self.check_kinds(&s.owner, 1)?;
        }
        if let Err(not_offered) = offers::check_offers(&self.books.pool, &self.books.shapes, &s.template) {
            self.books.shapes.release(&sorted);
            return Err(not_offered.into());
        }
        let held = s.template.shared("JobStatus").is_some_and(|text| text.trim() == "5");
        let hold_reason = s.template.shared("HoldReason").map(|text| text.trim_matches('"').to_owned());
        let procs = s.template.procs;
        let submitted = ClusterSubmitted {
            cluster,
            owner: s.owner,
            template: s.template,
            idempotency_key: s.idempotency_key,
        };
        self.books.record(turn, Kind::ClusterSubmitted(submitted));
        self.books.shapes.release(&sorted);
        if held {
            let reason = hold_reason.unwrap_or_else(|| "submitted on hold at user's request".to_owned());
            let procs = vec![Span { first: 0, count: procs }];
            self.books.record(
                turn,
                Kind::JobsHeld(JobsHeld {
                    cluster,
                    procs,
                    reason,
                    code: hold::BY_SUBMIT,
                    subcode: 0,
                    exit: None,
                }),
            );
        } else if !gangs::given_up::hold_impossible(&mut self.books, turn, cluster) {
            self.offer_jobs(turn, cluster);
            self.gang_pass(turn);
        }
        Ok(cluster)
    }

    /// Refuses what would cost too much, before it costs anything: by counting. Kinds that are there already cost nothing more.
    fn check_price(&mut self, owner: &str, cluster: u32, template: &JobTemplate) -> Result<(), Refusal> {
        let (of_owner, all) = self.books.shapes.kinds(owner);
        let (groups, bytes) = crate::shape::price(template)?;
        let pool_is_full = all.bytes + bytes > POOL_BYTES && of_owner.bytes + bytes > MODEST_BYTES;
        let too_large = of_owner.bytes + bytes > OWNER_BYTES || pool_is_full;
        if too_large && !self.books.shapes.are_known(owner, cluster, template, &groups) {
            return Err(Refusal::LargeKinds { user: owner.to_owned() });
        }
        Ok(())
    }

    /// Refuses so many kinds of jobs that the pool would be slow for everybody; `more` are not counted yet.
    fn check_kinds(&self, owner: &str, more: usize) -> Result<(), Refusal> {
        let (of_owner, all) = self.books.shapes.kinds(owner);
        let number = of_owner.number + more;
        if number > KINDS_PER_OWNER || (all.number + more > KINDS && number > MODEST_KINDS) {
            return Err(Refusal::TooManyKinds { user: owner.to_owned() });
        }
        if of_owner.bytes > OWNER_BYTES || (all.bytes > POOL_BYTES && of_owner.bytes > MODEST_BYTES) {
            return Err(Refusal::LargeKinds { user: owner.to_owned() });
        }
        Ok(())
    }

    /// Sets a user's priority or factor: it may be somebody else's turn now.
    pub fn set_priority(&mut self, turn: &mut Turn<'_>, set: PrioritySet) {
        self.books.record(turn, Kind::PrioritySet(set));
        self.resume(turn);
    }

    /// Somebody wants to look into a running job: where it is, when that may be. A shell is recorded, and whatever is looked at of
    /// another's.
    pub fn visit(
        &mut self,
        turn: &mut Turn<'_>,
        actor: &Actor,
        job: JobId,
        want: &model::visit::Want,
    ) -> Result<Visited, Refusal> {
        let name = JobName::Job(job);
        orders::select(&self.books.queue, actor, &Which::Named(name))?;
        let cluster = self.books.queue.clusters().get(&job.cluster).ok_or(Refusal::NoSuchJob(name))?;
        let live = cluster.live.get(&job.proc).filter(|live| live.started_ms.is_some());
        let live = live.ok_or(Refusal::NotRunning(job))?;
        let claim = self.books.pool.claims().get(&live.claim).ok_or(Refusal::NotRunning(job))?;
        let machine = crate::pool::host_of(&claim.machine).to_owned();
        let (claim, attempt) = (live.claim, live.attempt);
        if want.shell.is_some() || *cluster.owner != actor.user {
            let what = model::text::one_line(&want.in_words(), model::limits::REASON_BYTES);
            let (by, JobId { cluster, proc }) = (actor.user.clone(), job);
            let visited = JobVisited { claim: claim.0, cluster, proc, attempt, by, what };
            self.books.record(turn, Kind::JobVisited(visited));
        }
        let attempt = model::report::Attempt { cluster: job.cluster, proc: job.proc, attempt };
        Ok(Visited { machine, claim, attempt })
    }

    /// Holds, releases, removes or vacates jobs.
    pub fn act(
        &mut self,
        turn: &mut Turn<'_>,
        actor: &Actor,
        act: Act,
        which: &Which,
        reason: &str,
    ) -> Result<Outcome, Refusal> {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        if act == Act::Return {
            let outcome = self.return_reserved(turn, actor, which)?;
            self.gang_pass(turn);
            return Ok(outcome);
        }
        let mut outcome = Outcome::default();
        let mut selected = orders::select(&self.books.queue, actor, which)?;
        if act == Act::Remove {
            let named: Vec<u32> = selected.iter().map(|(cluster, _)| *cluster).collect();
            selected.extend(
                dag_nodes::orphaned_nodes(&self.books.queue, &named)
                    .into_iter()
                    .map(|cluster| (cluster, None)),
            );
        }
        for (cluster, procs) in selected {
            match act {
                Act::Hold => {
                    orders::hold(&mut self.books, turn, cluster, procs.as_ref(), reason, &mut outcome)
                }
                Act::Release => {
                    orders::release(&mut self.books, turn, cluster, procs.as_ref(), reason, &mut outcome)
                }
                Act::Remove => {
                    orders::remove(&mut self.books, turn, cluster, procs.as_ref(), reason, &mut outcome)
                }
                Act::Vacate => {
                    let stopped = orders::stop_live(
                        &mut self.books,
                        turn,
                        cluster,
                        procs.as_ref(),
                        Afterwards::Idle,
                        reason,
                        (vacate::BY_HAND, 0),
                    );
                    outcome.changed += stopped;
                    let named = procs.as_ref().map_or(0, ProcSet::len);
                    outcome.unsuitable += named.saturating_sub(stopped);
                }
                Act::Return => {}
                Act::Reorder { priority, class } => {
                    outcome.changed += orders::reorder(
                        &mut self.books,
                        turn,
                        actor,
                        cluster,
                        procs.as_ref(),
                        priority,
                        class,
                    )?;
                }
                Act::Extend(seconds) => {
                    let more = reserve::extend(
                        &mut self.books,
                        &self.gangs,
                        turn,
                        actor,
                        cluster,
                        procs.as_ref(),
                        seconds,
                    )?;
                    outcome.changed += more.changed;
                    outcome.unsuitable += more.unsuitable;
                }
                Act::Control(what) => {
                    let told = orders::control(&self.books, cluster, procs.as_ref(), what, turn.out);
                    outcome.changed += told;
                    outcome.unsuitable += procs.as_ref().map_or(0, ProcSet::len).saturating_sub(told);
                }
            }
            if act == Act::Release {
                self.offer_jobs(turn, cluster);
            }
        }
        if matches!(act, Act::Reorder { .. }) {
            // What is promised to a gang that went down in the order may be another's now.
            self.gang_pass(turn);
            self.offer_overtaken(turn);
            self.resume(turn);
        }
        self.gang_pass(turn);
        Ok(outcome)
    }

    /// Changes what people decided about a lab, and lets every waiting job know.
    pub fn set_lab(&mut self, turn: &mut Turn<'_>, change: LabChange) -> Result<(), StandingRefusal> {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        let before = self.books.labs.decided().get(&change.lab);
        let known = before.is_some();
        let mut set = before.cloned().unwrap_or_default();
        let back = change.disabled.is_some() || !change.add_trees.is_empty();
        set.removed = change.remove || (set.removed && !back);
        set.disabled = change.disabled.unwrap_or(set.disabled) && !change.remove;
        let mut trees: BTreeSet<String> = set.trees.into_iter().filter(|_| !change.remove).collect();
        trees.extend(change.add_trees);
        trees.retain(|tree| !change.remove_trees.contains(tree));
        if trees.len() > limits::LAB_TREES {
            return Err(StandingRefusal::TooManyTrees);
        }
        set.trees = trees.into_iter().collect();
        (set.lab, set.by, set.reason) = (change.lab, change.by, change.reason);
        if !known && !set.is_blank() && self.books.labs.decided().len() >= limits::STANDINGS {
            return Err(StandingRefusal::TooMany);
        }
        let machines = self.books.pool.machines().iter();
        let here: Vec<Arc<str>> =
            machines.filter(|(_, m)| *m.lab == *set.lab).map(|(name, _)| name.clone()).collect();
        self.books.record(turn, Kind::LabSet(set));
        self.wake_machines(turn, &here);
        Ok(())
    }

    /// Changes what people decided about a machine, and lets every waiting job know.
    pub fn set_machine(
        &mut self,
        turn: &mut Turn<'_>,
        actor: &Actor,
        machine: &str,
        change: StandingChange,
    ) -> Result<MachineStanding, StandingRefusal> {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        let before = self.books.labs.standing(machine);
        let after = labs::changed(&self.books.pool, &self.books.labs, turn.now, actor, &before, change)?;
        if self.books.labs.standings().len() >= limits::STANDINGS
            && !self.books.labs.standings().contains_key(machine)
            && !after.is_blank()
        {
            return Err(StandingRefusal::TooMany);
        }
        labs::settle_standing(&mut self.books, turn, before.condition(), after.clone());
        self.wake_machines(turn, &self.books.pool.places(machine));
        Ok(after)
    }

    /// Owners return machines that are kept after the run.
    pub(crate) fn return_reserved(
        &mut self,
        turn: &mut Turn<'_>,
        actor: &Actor,
        which: &Which,
    ) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        let found: Vec<(ClaimId, JobId)> = reserve::reservations(&self.books.pool)
            .filter(|(id, kept)| {
                let owner = &*self.books.pool.claims()[id].owner;
                match which {
                    Which::All => actor.any_owner || *owner == *actor.user,
                    Which::User(user) => *owner == **user,
                    Which::Named(JobName::Cluster(cluster)) => kept.job.cluster == *cluster,
                    Which::Named(JobName::Job(named)) => kept.job == *named,
                }
            })
            .map(|(id, kept)| (id, kept.job))
            .collect();
        for (id, job) in found {
            let owner = self.books.pool.claims()[&id].owner.to_string();
            if owner != actor.user && !actor.any_owner {
                return Err(Refusal::NotYours { job: JobName::Job(job), owner });
            }
            self.drop_claim(turn, id, "it was returned");
            outcome.changed += 1;
        }
        Ok(outcome)
    }

    /// Begins a drain, changes it, or (until 0) ends it.
    pub fn drain(&mut self, turn: &mut Turn<'_>, said: PoolDrained) -> Result<(), String> {
        undone::refill(&mut self.books, &mut self.undone, turn.now);
        if self.books.drains.check(&said, turn.now.wall_ms)? {
            self.books.record(turn, Kind::PoolDrained(said));
            self.books.note_drains();
            self.resume(turn);
        }
        Ok(())
    }
}
