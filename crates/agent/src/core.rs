//! What to do about each word from manager or starter. No IO, no clock.
//!
//! Every report that a starter numbers is kept here until the manager acknowledges it, and repeated at each new
//! session. What the manager is told in `Hello` is exactly what this core holds, so that any message lost on the way
//! shows as a difference.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::agent::{Assign, Claim, Cluster, Down, HeldClaim, Hello, Object, Report, Slot, Up};
use classad::ClassAd;
use model::event::Resources;
use model::report::{Attempt, CannotStart, Happening, ProvisionFailed, Provisioning, Returned};
use model::template::Attribute;
use policy::SlotId;
use starter::wire::{self, Order, Packed, Word};

use crate::claims::{Record, scratch};
use crate::criu::{Criu, NOT_SHARED, ONLY_OURS};
use crate::job::{Prepared, Refused, Site};

/// Something to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Tell the manager (nobody, when there is no session).
    Say(Up),
    /// Begin a claim: write its record, take a starter, tell it.
    Begin { record: Record, lease_ms: u64 },
    /// Tell a claim's starter.
    Order(u64, Order),
    /// A claim is over and acknowledged: remove its files.
    Forget(u64),
    /// Jobs to run, if the owner lets them; each with the values that are its own.
    Run { claim: u64, jobs: Vec<(wire::Job, Vec<String>)> },
    /// Make a claim's job leave the machine.
    Vacate { claim: u64, job: Attempt },
    /// Bring a job's checkpoint here; the job starts then.
    Fetch { claim: u64, job: Box<wire::Job>, values: Vec<String>, object: Object },
    /// Carry a checkpoint to the store.
    Store { claim: u64, packed: Packed },
}

#[derive(Debug)]
struct Held {
    record: Record,
    /// False once its starter is gone.
    alive: bool,
    /// The machine is being put in order after it.
    releasing: bool,
    /// Attempts whose end the manager has not acknowledged.
    jobs: Vec<Attempt>,
    /// Those of them whose checkpoints are on their way here.
    fetching: Vec<Attempt>,
    unacknowledged: VecDeque<Report>,
    last_seq: u64,
}

/// The core.
#[derive(Debug)]
pub(crate) struct Core {
    hello: Hello,
    claims: BTreeMap<u64, Held>,
    clusters: HashMap<u32, Arc<Prepared>>,
    /// The pool is one user's own.
    private: bool,
    /// Where jobs have their scratch directories.
    execute: PathBuf,
    /// Other users can reach them.
    open: bool,
    nice: u32,
    /// A job's scratch directory may hold so much; 0 for any amount.
    scratch_bytes: u64,
    /// What saves jobs from outside, or why nothing does.
    criu: Result<Criu, String>,
    /// Beats under way and when they were sent; beat 0 is the hello.
    beats: VecDeque<(u64, u64)>,
    next_beat: u64,
    /// When the newest answered beat was sent: leases count from there.
    heard_ms: u64,
}

impl Core {
    /// What the next hello says of the machine: size and ad of its first slot, and its others.
    pub(crate) fn set_machine(&mut self, total: Resources, ad: Vec<Attribute>, more: Vec<Slot>) {
        (self.hello.total, self.hello.ad, self.hello.more) = (total, ad, more);
    }

    /// The slot that a claim was made for, by the manager's name.
    pub(crate) fn slot_of(&self, claim: u64) -> SlotId {
        let named = self.claims.get(&claim).and_then(|held| held.record.slot.parse().ok());
        named.unwrap_or(SlotId::new(1))
    }

    /// Added to the nice value of jobs.
    pub(crate) fn set_nice(&mut self, nice: u32) {
        self.nice = nice;
    }

    /// What a job's scratch directory may hold, when the job asks for no less.
    pub(crate) fn set_scratch_limit(&mut self, bytes: u64) {
        self.scratch_bytes = bytes;
    }

    pub(crate) fn set_criu(&mut self, criu: Result<Criu, String>) {
        self.criu = criu;
    }

    /// What saves the jobs of this pool from outside, or why nothing does.
    pub(crate) fn criu(&self) -> Result<&Criu, &str> {
        usable(&self.criu, self.private)
    }

    pub(crate) fn new(version: &str, total: Resources, ad: Vec<Attribute>) -> Self {
        Self {
            hello: Hello { version: version.to_owned(), total, ad, claims: Vec::new(), more: Vec::new() },
            claims: BTreeMap::new(),
            clusters: HashMap::new(),
            private: false,
            execute: PathBuf::new(),
            open: false,
            nice: 0,
            scratch_bytes: 0,
            criu: Err("CRIU was not looked for".to_owned()),
            beats: VecDeque::new(),
            next_beat: 1,
            heard_ms: 0,
        }
    }

    /// Jobs get scratch directories here.
    pub(crate) fn set_execute(&mut self, dir: &Path, open: bool) {
        dir.clone_into(&mut self.execute);
        self.open = open;
    }

    /// A claim found on disk at start, with what its starter left if it is dead.
    pub(crate) fn adopt(&mut self, record: Record) {
        let claim = record.claim;
        let held = Held {
            record,
            alive: true,
            releasing: false,
            jobs: Vec::new(),
            fetching: Vec::new(),
            unacknowledged: VecDeque::new(),
            last_seq: 0,
        };
        self.claims.insert(claim, held);
    }

    /// A session is open: say who we are, then repeat everything that was not acknowledged.
    pub(crate) fn session_opened(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        self.clusters.clear();
        self.beats.clear();
        self.beats.push_back((0, now_ms));
        let claims = self.claims.values().map(|held| HeldClaim {
            claim: held.record.claim,
            key: held.record.key.clone(),
            jobs: held.jobs.clone(),
            ending: held.releasing,
        });
        let hello = Hello { claims: claims.collect(), ..self.hello.clone() };
        actions.push(Action::Say(Up::Hello(hello)));
        for held in self.claims.values() {
            actions.extend(held.unacknowledged.iter().cloned().map(|r| Action::Say(Up::Report(r))));
        }
    }

    /// Time for a beat.
    pub(crate) fn beat(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let n = self.next_beat;
        self.next_beat += 1;
        self.beats.push_back((n, now_ms));
        // Unanswered ones are of no more use once newer ones are.
        while self.beats.len() > 64 {
            self.beats.pop_front();
        }
        actions.push(Action::Say(Up::Beat(n)));
    }

    /// A word from the manager.
    pub(crate) fn hear_manager(&mut self, now_ms: u64, down: Down, actions: &mut Vec<Action>) {
        match down {
            Down::Welcome(welcome) => {
                self.private = welcome.private;
                self.answered(now_ms, 0, actions);
            }
            Down::Beat(n) => self.answered(now_ms, n, actions),
            Down::Claim(claim) => self.begin(now_ms, claim, actions),
            Down::Cluster(cluster) => self.learn(&cluster),
            Down::Assign(assign) => self.assign(assign, actions),
            Down::Stop(stop) if self.is_fetching(stop.claim, stop.job) => {
                self.returned(stop.claim, &[stop.job], actions);
            }
            Down::Stop(stop) if stop.vacate && self.claims.get(&stop.claim).is_some_and(|h| h.alive) => {
                actions.push(Action::Vacate { claim: stop.claim, job: stop.job });
            }
            Down::Stop(stop) => {
                let order = Order::Stop(wire::Stop { id: stop.job, hard: false, evict: None });
                self.order(stop.claim, order, actions);
            }
            Down::Recall(recall) => self.order(recall.claim, Order::Recall(recall.count), actions),
            Down::Drop(claim) => self.drop_claim(claim, actions),
            Down::Ack(ack) => self.acknowledge(ack.claim, ack.seq, actions),
            Down::Again(_) => self.session_opened(now_ms, actions),
            // The loop deals with these.
            Down::Ask(_) | Down::Took(_) | Down::Piece(_) => {}
        }
    }

    /// A beat was answered: every lease counts from when it was sent.
    fn answered(&mut self, now_ms: u64, n: u64, actions: &mut Vec<Action>) {
        let Some(&(_, sent_ms)) = self.beats.iter().find(|(m, _)| *m == n) else { return };
        self.beats.retain(|(m, _)| *m > n);
        self.heard_ms = self.heard_ms.max(sent_ms);
        let claims: Vec<u64> = self.claims.keys().copied().collect();
        for claim in claims {
            let lease = self.lease_left(now_ms, self.claims[&claim].record.lease_ms);
            self.order(claim, Order::Renew(lease), actions);
        }
    }

    fn lease_left(&self, now_ms: u64, lease_ms: u64) -> u64 {
        lease_ms.saturating_sub(now_ms.saturating_sub(self.heard_ms))
    }

    fn order(&self, claim: u64, order: Order, actions: &mut Vec<Action>) {
        if self.claims.get(&claim).is_some_and(|held| held.alive) {
            actions.push(Action::Order(claim, order));
        }
    }

    fn begin(&mut self, now_ms: u64, claim: Claim, actions: &mut Vec<Action>) {
        if self.claims.contains_key(&claim.claim) {
            return;
        }
        let lease_ms = self.lease_left(now_ms, claim.lease_ms);
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
        actions.push(Action::Begin { record, lease_ms });
    }

    fn learn(&mut self, cluster: &Cluster) {
        if cluster.forget_others {
            self.clusters.clear();
        }
        self.clusters.insert(cluster.cluster, Arc::new(Prepared::new(cluster)));
    }

    fn assign(&mut self, assign: Assign, actions: &mut Vec<Action>) {
        let criu = usable(&self.criu, self.private);
        let Some(held) = self.claims.get_mut(&assign.claim).filter(|held| held.alive) else { return };
        let Some(prepared) = self.clusters.get(&assign.cluster).cloned() else { return };
        let scratch = scratch(&self.execute, assign.claim).to_string_lossy().into_owned();
        // In a directory that one cannot reach one has no use for a file.
        let scratch = if self.private || self.open { scratch } else { String::new() };
        let (slot, private, nice) = (&held.record.slot, self.private, self.nice);
        let site = Site { slot, private, scratch: &scratch, nice, criu, scratch_bytes: self.scratch_bytes };
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
                    let kind = ready.nest.as_ref().map_or("", |n| &n.platform);
                    match &job.checkpoint {
                        None => jobs.push((ready, job.values.clone())),
                        // It is matched by that; this is for jobs with requirements of their own.
                        Some(object) if object.platform != kind => {
                            held.jobs.retain(|j| *j != id);
                            let reason = format!(
                                "its checkpoint is for machines of the kind {:?}, and this is of the kind {kind:?}",
                                object.platform
                            );
                            let happening = Happening::ProvisionFailed(ProvisionFailed { job: id, reason });
                            let report = Report { claim: assign.claim, seq: 0, happening: Some(happening) };
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
                Err(Refused { reason, code }) => {
                    // Not numbered: if it gets lost, the next hello does not list the job, and it is given again.
                    let happening = Happening::CannotStart(CannotStart { job: id, reason, code, subcode: 0 });
                    let report = Report { claim: assign.claim, seq: 0, happening: Some(happening) };
                    actions.push(Action::Say(Up::Report(report)));
                }
            }
        }
        if !jobs.is_empty() {
            actions.push(Action::Run { claim: assign.claim, jobs });
        }
    }

    /// The whole ad of a job, as the machine's policy sees it.
    pub(crate) fn ad(&self, id: Attempt, values: &[String]) -> ClassAd {
        self.clusters.get(&id.cluster).map(|prepared| prepared.ad(id, values)).unwrap_or_default()
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
        while let Some(report) = held.unacknowledged.pop_front_if(|r| r.seq <= seq) {
            for id in report.happening.iter().flat_map(ended) {
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
    pub(crate) fn hear_starter(&mut self, claim: u64, word: Word, actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        match word {
            Word::Report(report) => {
                if let Some(report) = of_claim(claim, report) {
                    held.keep(&report);
                    actions.push(Action::Say(Up::Report(report)));
                }
            }
            // The loop deals with these.
            Word::Use(_) | Word::Here(_) => {}
            Word::Packed(packed) => actions.push(Action::Store { claim, packed }),
            // Only an adopted starter has anything to say here that we do not know.
            Word::Standing(standing) => {
                for id in standing.jobs {
                    if !held.jobs.contains(&id) {
                        held.jobs.push(id);
                    }
                }
                for report in standing.unacknowledged {
                    held.restore(of_claim(claim, report), actions);
                }
                actions.extend(standing.packed.into_iter().map(|packed| Action::Store { claim, packed }));
            }
        }
    }

    fn is_fetching(&self, claim: u64, job: Attempt) -> bool {
        self.claims.get(&claim).is_some_and(|held| held.fetching.contains(&job))
    }

    /// A job's checkpoint is here: it can start.
    pub(crate) fn fetched(
        &mut self,
        claim: u64,
        job: wire::Job,
        values: Vec<String>,
        actions: &mut Vec<Action>,
    ) {
        // Not if it was stopped meanwhile, or given to us anew.
        let wanted = self.is_fetching(claim, job.id);
        if let Some(held) = self.claims.get_mut(&claim).filter(|held| held.alive && wanted) {
            held.fetching.retain(|id| *id != job.id);
            actions.push(Action::Run { claim, jobs: vec![(job, values)] });
        }
    }

    /// A job's checkpoint cannot be had. Starting anew would throw work away: a person decides.
    pub(crate) fn missing(&mut self, claim: u64, job: &wire::Job, why: &str, actions: &mut Vec<Action>) {
        let wanted = self.is_fetching(claim, job.id);
        let Some(held) = self.claims.get_mut(&claim).filter(|_| wanted) else { return };
        held.fetching.retain(|id| *id != job.id);
        held.jobs.retain(|id| *id != job.id);
        let reason = format!("its checkpoint cannot be had: {why}");
        let happening = Happening::CannotStart(CannotStart { job: job.id, reason, code: 13, subcode: 0 });
        actions.push(Action::Say(Up::Report(Report { claim, seq: 0, happening: Some(happening) })));
    }

    /// A starter is gone and nothing of its claim is alive; this is what it left.
    pub(crate) fn starter_gone(
        &mut self,
        claim: u64,
        left: Vec<wire::Report>,
        why: &str,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.alive = false;
        for report in left {
            held.restore(of_claim(claim, report), actions);
        }
        held.last_seq += 1;
        let happening = Some(Happening::Gone(why.to_owned()));
        let gone = Report { claim, seq: held.last_seq, happening };
        held.keep(&gone);
        actions.push(Action::Say(Up::Report(gone)));
    }

    /// The owner, slot and record of a claim.
    pub(crate) fn record(&self, claim: u64) -> Option<&Record> {
        self.claims.get(&claim).map(|held| &held.record)
    }

    /// A claim's processes are found by this.
    pub(crate) fn set_marker(&mut self, claim: u64, marker: &str) {
        if let Some(held) = self.claims.get_mut(&claim) {
            marker.clone_into(&mut held.record.marker);
        }
    }

    /// The machine is made ready for a job. Not numbered: whoever misses it learns of what follows.
    pub(crate) fn provisioning(&self, claim: u64, job: Attempt, installing: bool, actions: &mut Vec<Action>) {
        if !self.claims.get(&claim).is_some_and(|held| held.jobs.contains(&job)) {
            return;
        }
        let happening = Happening::Provisioning(Provisioning { job, installing });
        actions.push(Action::Say(Up::Report(Report { claim, seq: 0, happening: Some(happening) })));
    }

    /// The machine cannot be made ready: the first job is told of, the others go back.
    pub(crate) fn unprovisioned(
        &mut self,
        claim: u64,
        jobs: &[Attempt],
        reason: String,
        actions: &mut Vec<Action>,
    ) {
        let Some((&job, others)) = jobs.split_first() else { return };
        self.returned(claim, others, actions);
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.jobs.retain(|id| *id != job);
        // Not numbered: if it gets lost, the next hello does not list the job, and it is given to another machine.
        let happening = Happening::ProvisionFailed(ProvisionFailed { job, reason });
        actions.push(Action::Say(Up::Report(Report { claim, seq: 0, happening: Some(happening) })));
    }

    /// Jobs go back that no starter has seen.
    pub(crate) fn returned(&mut self, claim: u64, jobs: &[Attempt], actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim).filter(|_| !jobs.is_empty()) else { return };
        held.jobs.retain(|id| !jobs.contains(id));
        held.fetching.retain(|id| !jobs.contains(id));
        let happening = Happening::Returned(Returned { jobs: jobs.to_vec() });
        actions.push(Action::Say(Up::Report(Report { claim, seq: 0, happening: Some(happening) })));
    }

    /// A claim's starter is gone, and the machine is put in order before anybody is told.
    pub(crate) fn releasing(&mut self, claim: u64) {
        if let Some(held) = self.claims.get_mut(&claim) {
            (held.alive, held.releasing) = (false, true);
        }
    }

    /// The machine is in order after a claim, or is not: the claim is gone.
    pub(crate) fn released(
        &mut self,
        claim: u64,
        left: Vec<wire::Report>,
        why: &str,
        failure: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.releasing = false;
        for report in left {
            held.restore(of_claim(claim, report), actions);
        }
        if let Some(failure) = failure {
            held.last_seq += 1;
            let happening = Some(Happening::ReleaseFailed(failure));
            let failed = Report { claim, seq: held.last_seq, happening };
            held.keep(&failed);
            actions.push(Action::Say(Up::Report(failed)));
        }
        self.starter_gone(claim, Vec::new(), why, actions);
    }

    /// A starter ended as it was told to.
    pub(crate) fn starter_quit(&mut self, claim: u64, actions: &mut Vec<Action>) {
        if self.claims.remove(&claim).is_some() {
            actions.push(Action::Forget(claim));
        }
    }

    /// Everything we hold, for a clean end.
    pub(crate) fn live_claims(&self) -> Vec<u64> {
        self.claims.iter().filter(|(_, held)| held.alive).map(|(id, _)| *id).collect()
    }
}

impl Held {
    fn keep(&mut self, report: &Report) {
        if report.seq > 0 {
            self.last_seq = self.last_seq.max(report.seq);
            self.unacknowledged.push_back(report.clone());
        }
    }

    /// A report that may be known already.
    fn restore(&mut self, report: Option<Report>, actions: &mut Vec<Action>) {
        let Some(report) = report.filter(|r| r.seq > self.last_seq) else { return };
        for id in report.happening.iter().flat_map(ended) {
            if !self.jobs.contains(&id) {
                self.jobs.push(id);
            }
        }
        self.keep(&report);
        actions.push(Action::Say(Up::Report(report)));
    }
}

/// The attempts that a report ends.
pub(crate) fn ended(happening: &Happening) -> Vec<Attempt> {
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
        | Happening::Suspended(_)
        | Happening::Continued(_)
        | Happening::Checkpointed(_)
        | Happening::Provisioning(_)
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

/// A starter's report, with its claim, for the manager.
fn of_claim(claim: u64, report: wire::Report) -> Option<Report> {
    report.happening.map(|happening| Report { claim, seq: report.seq, happening: Some(happening) })
}

#[cfg(test)]
mod tests;
