//! The claims that an agent holds, with their jobs and reports: what to do about each word from manager or starter.
//!
//! Every report that a starter numbers is kept here until the manager acknowledges it, and repeated at each new
//! session. What the manager is told in `Hello` is exactly what stands here, so that any message lost on the way
//! shows as a difference.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use classad::ClassAd;
use model::agent::{Assign, BETTER, Claim, Cluster, Down, HeldClaim, Hello, Report, Slot, Up};
use model::event::Resources;
use model::report::{
    Attempt, CannotStart, Happening, Hold, ProvisionFailed, Provisioning, Returned, Started,
};
use model::starter::{self as wire, Account, Order, Word};
use model::template::Attribute;
use model::{Moment, MonoMs};
use policy::SlotId;

use crate::core::Action;
use crate::job::{Cargo, NOT_HERE, Prepared, Refused, Site};
use crate::record::{Record, scratch};
use crate::seats::{BetterMatch, Step, Way};

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) record: Record,
    /// It has a starter; not before it is accepted, nor after that is gone.
    pub(crate) alive: bool,
    /// The machine is being put in order after it.
    releasing: bool,
    /// Attempts whose end the manager has not acknowledged.
    pub(crate) jobs: Vec<Attempt>,
    /// How far it is on its way to its first job.
    pub(crate) way: Way,
    /// Those of them whose checkpoints are on their way here.
    fetching: Vec<Attempt>,
    /// Those of them that left a machine without the checkpoint that they declare.
    missed: Vec<Attempt>,
    /// The one of them whose process was started last, and when.
    begun: Option<(Attempt, Option<Moment>)>,
    /// Each with the moment when it happened.
    unacknowledged: VecDeque<(Report, Option<Moment>)>,
    last_seq: u64,
}

/// Something that saves jobs from outside and works (CRIU).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criu {
    /// The program.
    pub program: String,
    /// The kind of machine.
    pub platform: String,
    /// It can save the processes of other users too.
    pub others: bool,
    /// It may be used in a shared pool.
    pub shared: bool,
}

/// Why jobs of other users than our own cannot be saved.
pub const ONLY_OURS: &str = "CRIU needs CAP_SYS_RESOURCE for jobs of other users, which this agent lacks";

/// Why it is not used in a shared pool.
pub const NOT_SHARED: &str = "CRIU works as root on what users leave, so that a shared pool uses it only where an \
    administrator has set CHECKPOINT_DOMAIN and CHECKPOINT_IN_SHARED_POOL = True";

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    hello: Hello,
    /// Whom the agent runs as.
    agent: Account,
    pub(crate) claims: BTreeMap<u64, Held>,
    /// Better matches that wait for the slots of these claims, or have them already.
    pub(crate) better: BTreeMap<u64, BetterMatch>,
    pub(crate) clusters: HashMap<u32, Arc<Prepared>>,
    /// The pool is one user's own.
    private: bool,
    /// Where jobs have their scratch directories.
    execute: PathBuf,
    /// Other users can reach them.
    open: bool,
    nice: u32,
    /// A job's scratch directory may hold so much; 0 for any amount.
    scratch_bytes: u64,
    limits_memory: bool,
    /// What there is to do with jobs' files.
    cargo: Cargo,
    /// What saves jobs from outside, or why nothing does.
    criu: Result<Criu, String>,
    /// Beats under way and when they were sent; beat 0 is the hello.
    beats: VecDeque<(u64, MonoMs)>,
    next_beat: u64,
    /// When the newest answered beat was sent: leases count from there.
    heard: MonoMs,
    /// This start of the host.
    boot: u64,
}

impl Ledger {
    /// What the next hello says of the machine: size and ad of its first slot, and its others.
    pub fn set_machine(&mut self, total: Resources, ad: Vec<Attribute>, more: Vec<Slot>) {
        (self.hello.total, self.hello.ad, self.hello.more) = (total, ad, more);
    }

    /// The slot that a claim was made for, by the manager's name.
    pub fn slot_of(&self, claim: u64) -> SlotId {
        let named = self.claims.get(&claim).and_then(|held| held.record.slot.parse().ok());
        named.unwrap_or(SlotId::new(1))
    }

    /// Added to the nice value of jobs.
    pub fn set_nice(&mut self, nice: u32) {
        self.nice = nice;
    }

    /// What a job's scratch directory may hold, when the job asks for no less.
    pub fn set_scratch_limit(&mut self, bytes: u64) {
        self.scratch_bytes = bytes;
    }

    /// Jobs are stopped that pass what they asked for of the memory.
    pub fn limit_memory(&mut self, limit: bool) {
        self.limits_memory = limit;
    }

    /// Where jobs' files come from, and who sees the same ones.
    pub fn set_cargo(&mut self, cargo: Cargo) {
        self.cargo = cargo;
    }

    /// What saves jobs from outside, or why nothing does.
    pub fn set_criu(&mut self, criu: Result<Criu, String>) {
        self.criu = criu;
    }

    /// What saves the jobs of this pool from outside, or why nothing does.
    pub fn criu(&self) -> Result<&Criu, &str> {
        usable(&self.criu, self.private)
    }

    /// An empty one. `boot` names this start of the host, `agent` is whom the agent runs as.
    pub fn new(version: &str, boot: u64, agent: Account, total: Resources, ad: Vec<Attribute>) -> Self {
        Self {
            agent,
            hello: Hello {
                version: version.to_owned(),
                total,
                ad,
                claims: Vec::new(),
                more: Vec::new(),
                again: 0,
                boot,
                is_new: false,
            },
            claims: BTreeMap::new(),
            better: BTreeMap::new(),
            clusters: HashMap::new(),
            private: false,
            execute: PathBuf::new(),
            open: false,
            nice: 0,
            scratch_bytes: 0,
            limits_memory: true,
            cargo: Cargo::default(),
            criu: Err("CRIU was not looked for".to_owned()),
            beats: VecDeque::new(),
            next_beat: 1,
            heard: MonoMs::default(),
            boot,
        }
    }

    /// No manager knows this directory yet; a welcome changes that.
    pub fn set_new(&mut self, is_new: bool) {
        self.hello.is_new = is_new;
    }

    /// Jobs get scratch directories here.
    pub fn set_execute(&mut self, dir: &Path, open: bool) {
        dir.clone_into(&mut self.execute);
        self.open = open;
    }

    /// A claim found on disk at start, with what its starter left if it is dead.
    pub fn adopt(&mut self, record: Record) {
        let claim = record.claim;
        let held = Held {
            record,
            alive: true,
            releasing: false,
            jobs: Vec::new(),
            way: Way::default(),
            fetching: Vec::new(),
            missed: Vec::new(),
            begun: None,
            unacknowledged: VecDeque::new(),
            last_seq: 0,
        };
        self.claims.insert(claim, held);
    }

    /// A session is open: say who we are, then repeat everything that was not acknowledged.
    pub fn session_opened(&mut self, now: MonoMs, actions: &mut Vec<Action>) {
        self.say_hello(now, 0, actions);
    }

    /// The same, because the manager asks again.
    pub fn say_hello(&mut self, now: MonoMs, again: u64, actions: &mut Vec<Action>) {
        self.clusters.clear();
        self.beats.clear();
        self.beats.push_back((0, now));
        let claims = self.claims.values().map(|held| HeldClaim {
            claim: held.record.claim,
            key: held.record.key.clone(),
            jobs: held.jobs.clone(),
            ending: held.is_over(),
            stage: held.way.told(),
        });
        // With its job: a manager that was started anew takes the match up again by it.
        let better = self.better.iter().map(|(claim, better)| HeldClaim {
            claim: BETTER | claim,
            key: better.key.clone(),
            jobs: vec![better.job],
            ..HeldClaim::default()
        });
        let claims = claims.chain(better).collect();
        let hello = Hello { claims, again, ..self.hello.clone() };
        actions.push(Action::Say(Up::Hello(hello)));
        for held in self.claims.values() {
            let again = held.unacknowledged.iter().map(|(report, at)| self.dated(report.clone(), *at, now));
            actions.extend(again.map(|report| Action::Say(Up::Report(report))));
            // Nobody acknowledges a start, so one may have been lost with a session or an agent.
            if let Some((job, at)) = held.begun.filter(|(job, _)| held.jobs.contains(job)) {
                let report = said_now(held.record.claim, Happening::Started(Started { job }));
                actions.push(Action::Say(Up::Report(self.dated(report, at, now))));
            }
        }
    }

    /// Time for a beat.
    pub fn beat(&mut self, now: MonoMs, actions: &mut Vec<Action>) {
        let n = self.next_beat;
        self.next_beat += 1;
        self.beats.push_back((n, now));
        // Unanswered ones are of no more use once newer ones are.
        while self.beats.len() > 64 {
            self.beats.pop_front();
        }
        actions.push(Action::Say(Up::Beat(n)));
    }

    /// A word from the manager.
    pub fn hear_manager(&mut self, now: MonoMs, down: Down, actions: &mut Vec<Action>) {
        match down {
            Down::Welcome(welcome) => {
                self.private = welcome.private;
                self.hello.is_new = false;
                self.answered(now, 0, actions);
            }
            Down::Beat(n) => self.answered(now, n, actions),
            Down::Claim(claim) => self.begin(now, claim, actions),
            Down::Assign(assign) => self.assign(assign, actions),
            Down::Stop(stop) if self.is_fetching(stop.claim, stop.job) => {
                self.returned(stop.claim, &[stop.job], actions);
            }
            Down::Stop(stop) => {
                let order = Order::Stop(wire::Stop { id: stop.job, hard: false, evict: None });
                self.order(stop.claim, order, actions);
            }
            Down::Recall(recall) => self.order(recall.claim, Order::Recall(recall.count), actions),
            Down::Drop(claim) => self.drop_claim(claim, actions),
            Down::Ack(ack) => self.acknowledge(ack.claim, ack.seq, actions),
            Down::Again(n) => self.say_hello(now, n, actions),
            // The shell deals with these: who owns a cluster is looked up, and told with `learn`.
            Down::Cluster(_)
            | Down::Ask(_)
            | Down::Took(_)
            | Down::Piece(_)
            | Down::Inputs(_)
            | Down::Landed(_)
            | Down::Visit(_)
            | Down::VisitPart(_)
            | Down::Grant(_)
            | Down::Found(_)
            // `seats` hears these, as the owner has a word in them.
            | Down::Better(_)
            | Down::Activate(_)
            | Down::Keep(_) => {}
        }
    }

    /// When a beat was sent that was not answered yet; beat 0 is the hello.
    pub fn beat_sent(&self, n: u64) -> Option<MonoMs> {
        self.beats.iter().find(|(m, _)| *m == n).map(|(_, sent)| *sent)
    }

    /// A beat was answered: every lease counts from when it was sent.
    fn answered(&mut self, now: MonoMs, n: u64, actions: &mut Vec<Action>) {
        let Some(&(_, sent)) = self.beats.iter().find(|(m, _)| *m == n) else { return };
        self.beats.retain(|(m, _)| *m > n);
        self.heard = self.heard.max(sent);
        let claims: Vec<u64> = self.claims.keys().copied().collect();
        for claim in claims {
            let lease = self.lease_left(now, self.claims[&claim].record.lease_ms);
            self.order(claim, Order::Renew(lease), actions);
        }
    }

    pub(crate) fn lease_left(&self, now: MonoMs, lease_ms: u64) -> u64 {
        lease_ms.saturating_sub(now.since(self.heard))
    }

    fn order(&self, claim: u64, order: Order, actions: &mut Vec<Action>) {
        if self.claims.get(&claim).is_some_and(|held| held.alive) {
            actions.push(Action::Order(claim, order));
        }
    }

    pub(crate) fn begin(&mut self, now: MonoMs, claim: Claim, actions: &mut Vec<Action>) {
        if self.claims.contains_key(&claim.claim) {
            return;
        }
        let lease_ms = self.lease_left(now, claim.lease_ms);
        let way = Way::of(&claim);
        let record = Record {
            claim: claim.claim,
            key: claim.key,
            slot: claim.slot,
            owner: claim.owner,
            lease_ms: claim.lease_ms,
            marker: String::new(),
            guest: claim.resources == Resources::default(),
        };
        self.adopt(record.clone());
        let matched = way.stage == Step::Matched;
        if let Some(held) = self.claims.get_mut(&record.claim) {
            (held.alive, held.way) = (!matched, way);
        }
        if !matched {
            actions.push(Action::Begin { record, lease_ms });
        }
    }

    /// The manager tells of a cluster; `owner` is the account of its owner on this machine.
    pub fn learn(&mut self, cluster: &Cluster, owner: Option<Account>) {
        if cluster.forget_others {
            self.clusters.clear();
        }
        self.clusters.insert(cluster.cluster, Arc::new(Prepared::new(cluster, owner, &self.agent)));
    }

    pub(crate) fn assign(&mut self, assign: Assign, actions: &mut Vec<Action>) {
        let criu = usable(&self.criu, self.private);
        let Some(held) = self.claims.get_mut(&assign.claim).filter(|held| held.alive) else { return };
        let Some(prepared) = self.clusters.get(&assign.cluster).cloned() else { return };
        let scratch = scratch(&self.execute, assign.claim).to_string_lossy().into_owned();
        let (slot, private, nice) = (&held.record.slot, self.private, self.nice);
        let (scratch_bytes, limits_memory) = (self.scratch_bytes, self.limits_memory);
        let (scratch, machine_ad, open, cargo) = (&*scratch, &*self.hello.ad, self.open, &self.cargo);
        let site = Site {
            slot,
            private,
            scratch,
            open,
            cargo,
            machine_ad,
            nice,
            scratch_bytes,
            limits_memory,
            criu,
        };
        let mut jobs = Vec::with_capacity(assign.jobs.len());
        for job in &assign.jobs {
            let id = Attempt { cluster: assign.cluster, proc: job.proc, attempt: job.attempt };
            if held.jobs.contains(&id) {
                continue;
            }
            match prepared.job(id, &job.values, site) {
                Ok(mut ready) => {
                    if let Some(nest) = &mut ready.nest {
                        nest.key.clone_from(&job.checkpoint_key);
                    }
                    held.jobs.push(id);
                    if job.checkpoint_missed {
                        held.missed.push(id);
                    }
                    let kind = ready.nest.as_ref().map_or("", |n| &n.platform);
                    match &job.checkpoint {
                        checkpoint if ready.transfer.is_some() => {
                            held.fetching.push(id);
                            let (values, checkpoint) = (job.values.clone(), checkpoint.clone());
                            let (claim, job) = (assign.claim, Box::new(ready));
                            actions.push(Action::Inputs { claim, job, values, checkpoint });
                        }
                        None => jobs.push((ready, job.values.clone())),
                        // It is matched by that; this is for jobs with requirements of their own.
                        Some(object) if object.platform != kind => {
                            held.jobs.retain(|j| *j != id);
                            let reason = format!(
                                "its checkpoint is for machines of the kind {:?}, and this is of the kind {kind:?}",
                                object.platform
                            );
                            let happening = Happening::ProvisionFailed(ProvisionFailed { job: id, reason });
                            let report = said_now(assign.claim, happening);
                            actions.push(Action::Say(Up::Report(report)));
                        }
                        Some(object) => {
                            held.fetching.push(id);
                            actions.push(Action::Fetch {
                                claim: assign.claim,
                                job: Box::new(ready),
                                values: job.values.clone(),
                                object: object.clone(),
                            });
                        }
                    }
                }
                Err(Refused { reason, code: NOT_HERE }) => {
                    let happening = Happening::ProvisionFailed(ProvisionFailed { job: id, reason });
                    actions.push(Action::Say(Up::Report(said_now(assign.claim, happening))));
                }
                Err(Refused { reason, code }) => {
                    // Not numbered: if it gets lost, the next hello does not list the job, and it is given again.
                    let happening = Happening::CannotStart(CannotStart { job: id, reason, code, subcode: 0 });
                    let report = said_now(assign.claim, happening);
                    actions.push(Action::Say(Up::Report(report)));
                }
            }
        }
        if !jobs.is_empty() {
            actions.push(Action::Provision { claim: assign.claim, jobs });
        }
    }

    /// The whole ad of a job, as the machine's policy sees it.
    pub fn ad(&self, id: Attempt, values: &[String]) -> ClassAd {
        let mut ad =
            self.clusters.get(&id.cluster).map(|prepared| prepared.ad(id, values)).unwrap_or_default();
        if self.claims.values().any(|held| held.missed.contains(&id)) {
            ad.insert_bool("CheckpointMissed", true);
        }
        ad
    }

    fn drop_claim(&mut self, claim: u64, actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.jobs.clear();
        held.fetching.clear();
        held.unacknowledged.clear();
        if held.alive {
            actions.push(Action::Order(claim, Order::Quit(false)));
        } else if !held.releasing {
            self.claims.remove(&claim);
            actions.push(Action::Forget(claim));
        }
    }

    fn acknowledge(&mut self, claim: u64, seq: u64, actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        while let Some(report) = held.unacknowledged.pop_front_if(|(r, _)| r.seq <= seq) {
            for id in report.0.happening.iter().flat_map(ended) {
                held.jobs.retain(|j| *j != id);
            }
        }
        if held.alive {
            actions.push(Action::Order(claim, Order::Ack(seq)));
        } else if held.unacknowledged.is_empty() && !held.releasing {
            self.claims.remove(&claim);
            actions.push(Action::Forget(claim));
        }
    }

    /// A word from a starter.
    pub fn hear_starter(&mut self, now: MonoMs, claim: u64, word: Word, actions: &mut Vec<Action>) {
        let here = self.moment(now);
        let Some(held) = self.claims.get_mut(&claim) else { return };
        match word {
            Word::Report(report) => {
                let at = report.moment;
                if let Some(report) = of_claim(claim, report, here) {
                    if let Some(Happening::Started(started)) = &report.happening {
                        held.begun = Some((started.job, at));
                    }
                    held.keep(&report, at);
                    actions.push(Action::Say(Up::Report(report)));
                }
            }
            // Others deal with these.
            Word::Use(_) | Word::Here(_) => {}
            Word::Packed(packed) => actions.push(Action::Store { claim, packed }),
            Word::Outputs(outputs) => actions.push(Action::Land { claim, outputs }),
            // Only an adopted starter has anything to say here that we do not know.
            Word::Standing(standing) => {
                if let Some(job) = standing.jobs.first().filter(|_| standing.has_started) {
                    let at = standing.running_since_ms.map(|mono_ms| Moment { boot: here.boot, mono_ms });
                    held.begun = Some((*job, at));
                }
                for id in standing.jobs {
                    if !held.jobs.contains(&id) {
                        held.jobs.push(id);
                    }
                }
                for report in standing.unacknowledged {
                    held.restore(claim, report, here, actions);
                }
                actions.extend(standing.packed.into_iter().map(|packed| Action::Store { claim, packed }));
                actions.extend(
                    standing.outputs.into_iter().map(|outputs| Action::Land { claim, outputs: *outputs }),
                );
            }
        }
    }

    /// A job's checkpoint is on its way here.
    pub fn is_fetching(&self, claim: u64, job: Attempt) -> bool {
        self.claims.get(&claim).is_some_and(|held| held.fetching.contains(&job))
    }

    /// A job's checkpoint is here: it can start.
    pub fn fetched(&mut self, claim: u64, job: wire::Job, values: Vec<String>, actions: &mut Vec<Action>) {
        // Not if it was stopped meanwhile, or given to us anew.
        let wanted = self.is_fetching(claim, job.id);
        if let Some(held) = self.claims.get_mut(&claim).filter(|held| held.alive && wanted) {
            held.fetching.retain(|id| *id != job.id);
            actions.push(Action::Provision { claim, jobs: vec![(job, values)] });
        }
    }

    /// A job's checkpoint cannot be had. Starting anew would throw work away: a person decides.
    pub fn missing(&mut self, claim: u64, job: &wire::Job, why: &str, actions: &mut Vec<Action>) {
        let wanted = self.is_fetching(claim, job.id);
        let Some(held) = self.claims.get_mut(&claim).filter(|_| wanted) else { return };
        held.fetching.retain(|id| *id != job.id);
        held.jobs.retain(|id| *id != job.id);
        let reason = format!("its checkpoint cannot be had: {why}");
        let happening = Happening::CannotStart(CannotStart { job: job.id, reason, code: 13, subcode: 0 });
        actions.push(Action::Say(Up::Report(said_now(claim, happening))));
    }

    /// A job's inputs cannot be had, and a person is to look at it.
    pub fn refused(&mut self, claim: u64, job: Attempt, hold: Hold, actions: &mut Vec<Action>) {
        let wanted = self.is_fetching(claim, job);
        let Some(held) = self.claims.get_mut(&claim).filter(|_| wanted) else { return };
        held.fetching.retain(|id| *id != job);
        held.jobs.retain(|id| *id != job);
        let Hold { reason, code, subcode } = hold;
        // Not numbered: if it gets lost, the next hello does not list the job, and it is given again.
        let happening = Happening::CannotStart(CannotStart { job, reason, code, subcode });
        actions.push(Action::Say(Up::Report(said_now(claim, happening))));
    }

    /// A job's inputs cannot be brought to this machine; another may do better.
    pub fn unfetched(&mut self, claim: u64, job: Attempt, reason: String, actions: &mut Vec<Action>) {
        if self.is_fetching(claim, job) {
            if let Some(held) = self.claims.get_mut(&claim) {
                held.fetching.retain(|id| *id != job);
            }
            self.unprovisioned(claim, &[job], reason, actions);
        }
    }

    fn moment(&self, now: MonoMs) -> Moment {
        Moment { boot: self.boot, mono_ms: now.0 }
    }

    /// A report as it is said now.
    fn dated(&self, report: Report, at: Option<Moment>, now: MonoMs) -> Report {
        Report { age_ms: at.and_then(|at| at.age_ms(self.moment(now))), ..report }
    }

    /// A starter is gone and nothing of its claim is alive; this is what it left.
    pub fn starter_gone(
        &mut self,
        now: MonoMs,
        claim: u64,
        left: Vec<wire::Report>,
        why: &str,
        actions: &mut Vec<Action>,
    ) {
        let here = self.moment(now);
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.alive = false;
        for report in left {
            held.restore(claim, report, here, actions);
        }
        held.add(claim, Happening::Gone(why.to_owned()), here, actions);
    }

    /// The owner, slot and record of a claim.
    pub fn record(&self, claim: u64) -> Option<&Record> {
        self.claims.get(&claim).map(|held| &held.record)
    }

    /// A claim's processes are found by this.
    pub fn set_marker(&mut self, claim: u64, marker: &str) {
        if let Some(held) = self.claims.get_mut(&claim) {
            marker.clone_into(&mut held.record.marker);
        }
    }

    /// The machine is made ready for a job. Not numbered: whoever misses it learns of what follows.
    pub fn provisioning(&self, claim: u64, job: Attempt, installing: bool, actions: &mut Vec<Action>) {
        if !self.claims.get(&claim).is_some_and(|held| held.jobs.contains(&job)) {
            return;
        }
        let happening = Happening::Provisioning(Provisioning { job, installing });
        actions.push(Action::Say(Up::Report(said_now(claim, happening))));
    }

    /// The machine cannot be made ready: the first job is told of, the others go back.
    pub fn unprovisioned(&mut self, claim: u64, jobs: &[Attempt], reason: String, actions: &mut Vec<Action>) {
        let Some((&job, others)) = jobs.split_first() else { return };
        self.returned(claim, others, actions);
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.jobs.retain(|id| *id != job);
        // Not numbered: if it gets lost, the next hello does not list the job, and it is given to another machine.
        let happening = Happening::ProvisionFailed(ProvisionFailed { job, reason });
        actions.push(Action::Say(Up::Report(said_now(claim, happening))));
    }

    /// Jobs go back that no starter has seen.
    pub fn returned(&mut self, claim: u64, jobs: &[Attempt], actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim).filter(|_| !jobs.is_empty()) else { return };
        held.jobs.retain(|id| !jobs.contains(id));
        held.fetching.retain(|id| !jobs.contains(id));
        let happening = Happening::Returned(Returned { jobs: jobs.to_vec() });
        actions.push(Action::Say(Up::Report(said_now(claim, happening))));
    }

    /// A claim's starter is gone, and the machine is put in order before anybody is told.
    pub fn releasing(&mut self, claim: u64) {
        if let Some(held) = self.claims.get_mut(&claim) {
            (held.alive, held.releasing) = (false, true);
        }
    }

    /// The machine is in order after a claim, or is not: the claim is gone.
    pub fn released(
        &mut self,
        now: MonoMs,
        claim: u64,
        left: Vec<wire::Report>,
        why: &str,
        failure: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let here = self.moment(now);
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.releasing = false;
        for report in left {
            held.restore(claim, report, here, actions);
        }
        if let Some(failure) = failure {
            held.add(claim, Happening::ReleaseFailed(failure), here, actions);
        }
        self.starter_gone(now, claim, Vec::new(), why, actions);
    }

    /// A starter ended as it was told to.
    pub fn starter_quit(&mut self, claim: u64, actions: &mut Vec<Action>) {
        if self.claims.remove(&claim).is_some() {
            actions.push(Action::Forget(claim));
        }
    }

    /// The claim has a starter.
    pub fn is_alive(&self, claim: u64) -> bool {
        self.claims.get(&claim).is_some_and(|held| held.alive)
    }

    /// Everything we hold, for a clean end.
    pub fn live_claims(&self) -> Vec<u64> {
        self.claims.iter().filter(|(_, held)| held.alive).map(|(id, _)| *id).collect()
    }
}

impl Held {
    /// Its starter is gone: it takes no more jobs, and what became of those it had comes with its reports. The last of these
    /// says that the claim is gone, once the machine is in order.
    fn is_over(&self) -> bool {
        let is_gone = |report: &Report| matches!(report.happening, Some(Happening::Gone(_)));
        self.releasing || self.unacknowledged.back().is_some_and(|(report, _)| is_gone(report))
    }

    fn keep(&mut self, report: &Report, at: Option<Moment>) {
        if report.seq > 0 {
            self.last_seq = self.last_seq.max(report.seq);
            self.unacknowledged.push_back((report.clone(), at));
        }
    }

    /// A numbered report of our own.
    fn add(&mut self, claim: u64, happening: Happening, here: Moment, actions: &mut Vec<Action>) {
        let report = Report { seq: self.last_seq + 1, ..said_now(claim, happening) };
        self.keep(&report, Some(here));
        actions.push(Action::Say(Up::Report(report)));
    }

    /// A starter's report that may be known already.
    fn restore(&mut self, claim: u64, report: wire::Report, here: Moment, actions: &mut Vec<Action>) {
        let at = report.moment;
        let Some(report) = of_claim(claim, report, here).filter(|r| r.seq > self.last_seq) else { return };
        for id in report.happening.iter().flat_map(ended) {
            if !self.jobs.contains(&id) {
                self.jobs.push(id);
            }
        }
        self.keep(&report, at);
        actions.push(Action::Say(Up::Report(report)));
    }
}

/// What happens just now, and wants no acknowledgement.
pub(crate) fn said_now(claim: u64, happening: Happening) -> Report {
    Report { claim, seq: 0, happening: Some(happening), age_ms: Some(0) }
}

/// The attempts that a report ends.
pub fn ended(happening: &Happening) -> Vec<Attempt> {
    match happening {
        Happening::Exited(e) => vec![e.job],
        Happening::CannotStart(e) => vec![e.job],
        Happening::Evicted(e) => vec![e.job],
        Happening::Returned(e) => e.jobs.clone(),
        Happening::ProvisionFailed(e) => vec![e.job],
        Happening::Started(_)
        | Happening::Gone(_)
        | Happening::Warned(_)
        | Happening::NotSaved(_)
        | Happening::Moved(_)
        | Happening::Suspended(_)
        | Happening::Continued(_)
        | Happening::Checkpointed(_)
        | Happening::Provisioning(_)
        | Happening::Seat(_)
        | Happening::ReleaseFailed(_) => Vec::new(),
    }
}

/// What saves the jobs of a pool from outside, or why nothing does.
fn usable(criu: &Result<Criu, String>, private: bool) -> Result<&Criu, &str> {
    match criu {
        Ok(criu) if !private && !criu.shared => Err(NOT_SHARED),
        Ok(criu) if !private && !criu.others => Err(ONLY_OURS),
        Ok(criu) => Ok(criu),
        Err(why) => Err(why),
    }
}

/// A starter's report, with its claim and its age, for the manager.
fn of_claim(claim: u64, report: wire::Report, here: Moment) -> Option<Report> {
    let age_ms = report.moment.and_then(|at| at.age_ms(here));
    Some(Report { claim, seq: report.seq, happening: Some(report.happening?), age_ms })
}

#[cfg(test)]
mod tests;
