//! A world of machines that come and go, for the tests of the core; what must always hold is checked in `random`.

mod explaining;
mod gangs;
mod guests;
mod hopeless;
mod labs;
mod limits;
mod mutations;
mod numbers;
mod offers;
mod order;
mod pages;
mod platforms;
mod preempting;
mod price;
mod provisioning;
mod queueing;
mod random;
mod refusing;
mod reserving;
mod said;
mod seats;
mod sets;
mod shapes;
mod sharing;
mod slots;
mod stamping;
mod sweeping;
mod trees;
mod weight;

use std::collections::{BTreeMap, HashMap, HashSet};

use classad::ClassAd;
use model::agent::{Notice, Report, Stage};
use model::event::{Condition, Exit, Kind, Resources};
use model::report::{Attempt, Checkpointed, Happening, Returned, SeatAnswer, SeatSaid, Started};
use model::{ClaimId, ClaimKey, Event, JobId, JobTemplate, Now};

use self::said::exited;
use crate::queue::Cluster;
use crate::{
    Act, Actor, AgentHello, Core, Effect, Findings, Group, HeldClaim, LabChange, Limits, Out, Quota, Refusal,
    Session, Settings, Shares, StandingChange, Submission, Turn, Which,
};

pub(crate) fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

/// A claim as its machine sees it.
#[derive(Debug, Clone)]
pub(crate) struct MachineClaim {
    key: ClaimKey,
    /// Waiting jobs, the first may run.
    jobs: Vec<Attempt>,
    pub(crate) running: bool,
    lease_ms: u64,
    /// How far it is on its way to its first job.
    stage: Stage,
    unacknowledged: Vec<Report>,
    seq: u64,
}

/// A machine: truthful, but out of contact now and then.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    session: Option<Session>,
    pub(crate) claims: BTreeMap<ClaimId, MachineClaim>,
    /// Effects under way to it, lost when the session ends.
    pub(crate) inbox: Vec<Effect>,
    /// When an answered word was last sent.
    heard_ms: u64,
}

pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) journal: Vec<Event>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) now: Now,
    next_session: u64,
    next_key: u8,
    submitted: HashMap<u32, u32>,
    ended: HashSet<JobId>,
    running: HashMap<JobId, usize>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            core: Core::new(settings()),
            journal: Vec::new(),
            machines: (0..3).map(|_| Machine::default()).collect(),
            now: Now { mono_ms: 1, wall_ms: 1_000_000 },
            next_session: 1,
            next_key: 0,
            submitted: HashMap::new(),
            ended: HashSet::new(),
            running: HashMap::new(),
        }
    }

    pub(crate) fn keys(&mut self) {
        while self.core.keys_left() < 64 {
            self.next_key = self.next_key.wrapping_add(1);
            let mut key = [self.next_key; 32];
            key[0] = self.core.keys_left() as u8;
            self.core.give_keys([ClaimKey(key)]);
        }
    }

    /// Writes the events down, then lets the effects go.
    pub(crate) fn commit(&mut self, out: Out) {
        for event in &out.events {
            self.note(event);
        }
        self.journal.extend(out.events);
        for effect in out.effects {
            let session = match &effect {
                Effect::Claim { session, .. }
                | Effect::Assign { session, .. }
                | Effect::Stop { session, .. }
                | Effect::Recall { session, .. }
                | Effect::Drop { session, .. }
                | Effect::Control { session, .. }
                | Effect::Better { session, .. }
                | Effect::Activate { session, .. }
                | Effect::Keep { session, .. }
                | Effect::Ack { session, .. } => *session,
            };
            if let Some(machine) = self.machines.iter_mut().find(|m| m.session == Some(session)) {
                machine.inbox.push(effect);
            }
        }
    }

    fn note(&mut self, event: &Event) {
        match event.kind.as_ref().unwrap() {
            Kind::ClusterSubmitted(e) => {
                assert!(
                    self.submitted.insert(e.cluster, e.template.procs).is_none(),
                    "cluster ids are never reused"
                );
            }
            // Nothing of what one input leads to shuts a machine after it gave it away.
            Kind::ClaimMade(e) => {
                let machine = &self.core.pool.machines()[e.machine.as_str()];
                assert_eq!(machine.shut, None, "{} takes nothing new", e.machine);
                assert!(machine.only.as_ref().is_none_or(|to| **to == *e.owner), "{} is lent", e.machine);
            }
            Kind::JobExited(e) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                assert!(self.ended.insert(job), "{job} has one terminal record");
            }
            Kind::JobsRemoved(e) => {
                for proc in e.procs.iter().flat_map(|s| s.procs()) {
                    let job = JobId { cluster: e.cluster, proc };
                    assert!(self.ended.insert(job), "{job} has one terminal record");
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, m: usize, claim: ClaimId, kind: Happening, keep: bool) {
        let machine = &mut self.machines[m];
        let held = machine.claims.get_mut(&claim).unwrap();
        let seq = if keep {
            held.seq += 1;
            held.seq
        } else {
            0
        };
        let report = said::report(claim, seq, kind);
        if keep {
            held.unacknowledged.push(report.clone());
        }
        self.send(m, report);
    }

    fn send(&mut self, m: usize, report: Report) {
        self.keys();
        if let Some(session) = self.machines[m].session {
            self.machines[m].heard_ms = self.now.mono_ms;
            let mut out = Out::default();
            self.core.agent_report(
                &mut Turn { now: self.now, digest, out: &mut out },
                &format!("m{m}"),
                session,
                report,
            );
            self.commit(out);
        }
    }

    pub(crate) fn connect(&mut self, m: usize) {
        self.disconnect(m);
        self.keys();
        let session = Session(self.next_session);
        self.next_session += 1;
        let machine = &mut self.machines[m];
        machine.session = Some(session);
        machine.heard_ms = self.now.mono_ms;
        let claims = machine.claims.iter().map(|(id, c)| {
            let mut jobs = c.jobs.clone();
            for report in &c.unacknowledged {
                match report.happening.as_ref().unwrap() {
                    Happening::Exited(e) => jobs.push(e.job),
                    Happening::Returned(e) => jobs.extend(&e.jobs),
                    _ => {}
                }
            }
            HeldClaim { claim: *id, key: c.key.clone(), jobs, ending: false, stage: c.stage }
        });
        let total = Resources { cpus: 2, memory_mib: 4096, disk_kib: 1 << 20, gpus: 0 };
        let lab = if m < 2 { "east" } else { "west" };
        let ad = format!("[ Requirements = true; Memory = 4096; HasJobDeferral = true; Lab = \"{lab}\" ]");
        let ad = ClassAd::parse_new(&ad).unwrap();
        let hello = AgentHello {
            machine: format!("m{m}"),
            session,
            total,
            ad,
            more: Vec::new(),
            claims: claims.collect(),
        };
        let repeated: Vec<Report> = machine.claims.values().flat_map(|c| c.unacknowledged.clone()).collect();
        let mut out = Out::default();
        self.core.agent_up(&mut Turn { now: self.now, digest, out: &mut out }, hello);
        self.commit(out);
        for report in repeated {
            self.send(m, report);
        }
    }

    fn disconnect(&mut self, m: usize) {
        if let Some(session) = self.machines[m].session.take() {
            self.machines[m].inbox.clear();
            self.core.agent_down(session);
        }
    }

    /// The next message reaches a machine.
    pub(crate) fn deliver(&mut self, m: usize) {
        let machine = &mut self.machines[m];
        if machine.inbox.is_empty() {
            return;
        }
        match machine.inbox.remove(0) {
            Effect::Claim { claim, key, lease_ms, notice, .. } => {
                let matched = notice == Notice::Before;
                let held = MachineClaim {
                    key,
                    jobs: Vec::new(),
                    running: false,
                    lease_ms,
                    stage: if matched { Stage::Matched } else { Stage::Active },
                    unacknowledged: Vec::new(),
                    seq: 0,
                };
                machine.claims.insert(claim, held);
                if matched {
                    self.report(m, claim, Happening::Seat(SeatSaid::new(SeatAnswer::Matched)), false);
                }
            }
            Effect::Assign { claim, cluster, jobs, waits, .. } => {
                if let Some(held) = machine.claims.get_mut(&claim) {
                    let jobs = jobs.iter().map(|&(proc, attempt)| Attempt { cluster, proc, attempt });
                    held.jobs.extend(jobs);
                    if waits {
                        held.stage = Stage::Accepted;
                        self.report(m, claim, Happening::Seat(SeatSaid::new(SeatAnswer::Accepted)), false);
                    }
                }
            }
            Effect::Activate { claim, .. } => {
                if let Some(held) = machine.claims.get_mut(&claim) {
                    held.stage = Stage::Active;
                }
            }
            // Nobody ranks here.
            Effect::Better { claim, .. } => {
                self.report(m, claim, Happening::Seat(SeatSaid::new(SeatAnswer::BetterRefused)), false);
            }
            Effect::Stop { claim, job, attempt, .. } => self.stop(m, claim, Attempt::at(job, attempt)),
            Effect::Recall { claim, count, .. } => {
                if let Some(held) = machine.claims.get_mut(&claim) {
                    let keep = held.jobs.len().saturating_sub(count as usize).max(usize::from(held.running));
                    let jobs = held.jobs.split_off(keep);
                    self.report(m, claim, Happening::Returned(Returned { jobs }), true);
                }
            }
            Effect::Drop { claim, .. } => self.bury(m, claim),
            Effect::Control { .. } | Effect::Keep { .. } => {}
            Effect::Ack { claim, seq, .. } => {
                if let Some(held) = machine.claims.get_mut(&claim) {
                    held.unacknowledged.retain(|r| r.seq > seq);
                }
            }
        }
    }

    fn stop(&mut self, m: usize, claim: ClaimId, job: Attempt) {
        let Some(held) = self.machines[m].claims.get_mut(&claim) else { return };
        let Some(at) = held.jobs.iter().position(|j| *j == job) else { return };
        if at == 0 && held.running {
            self.end(m, claim, Exit { signal: Some(15), ..Exit::default() });
        } else {
            held.jobs.remove(at);
            self.report(m, claim, Happening::Returned(Returned { jobs: vec![job] }), true);
        }
    }

    pub(crate) fn start(&mut self, m: usize) {
        let ready = |c: &MachineClaim| !c.running && !c.jobs.is_empty() && c.stage == Stage::Active;
        let idle = self.machines[m].claims.iter().find(|(_, c)| ready(c));
        let Some((&claim, held)) = idle else { return };
        let job = held.jobs[0];
        self.machines[m].claims.get_mut(&claim).unwrap().running = true;
        let before = self.running.insert(job.job(), m);
        assert_eq!(before, None, "{} runs on two machines at once", job.job());
        assert!(!self.ended.contains(&job.job()), "{} runs after its end", job.job());
        self.report(m, claim, Happening::Started(Started { job }), false);
    }

    pub(crate) fn finish(&mut self, m: usize) {
        let running = self.machines[m].claims.iter().find(|(_, c)| c.running).map(|(id, _)| *id);
        if let Some(claim) = running {
            self.end(m, claim, Exit { code: Some(0), wall_us: 5_000, ..Exit::default() });
        }
    }

    /// A running job is saved, for any machine or for those of a kind.
    fn save(&mut self, m: usize, bound: bool) {
        let running = self.machines[m].claims.iter().find(|(_, c)| c.running);
        let Some((claim, job)) = running.map(|(id, c)| (*id, c.jobs[0])) else { return };
        let mut sha256 = vec![job.proc as u8; 32];
        (sha256[0], sha256[1]) = (job.cluster as u8, job.attempt as u8);
        let platform = if bound { format!("kind {}", m % 2) } else { String::new() };
        let saved = Happening::Checkpointed(Checkpointed {
            job,
            sha256,
            bytes: 1,
            transfer_ms: 1,
            platform,
            ..Checkpointed::default()
        });
        self.report(m, claim, saved, true);
    }

    pub(crate) fn end(&mut self, m: usize, claim: ClaimId, exit: Exit) {
        let held = self.machines[m].claims.get_mut(&claim).unwrap();
        let job = held.jobs.remove(0);
        held.running = false;
        self.running.remove(&job.job());
        self.report(m, claim, exited(job, exit), true);
    }

    /// A claim is dead on its machine, and what it ran with it.
    fn bury(&mut self, m: usize, claim: ClaimId) {
        if let Some(held) = self.machines[m].claims.remove(&claim)
            && held.running
        {
            self.running.remove(&held.jobs[0].job());
        }
    }

    fn kill_starter(&mut self, m: usize) {
        let Some(&claim) = self.machines[m].claims.keys().next() else { return };
        let held = self.machines[m].claims[&claim].clone();
        for report in held.unacknowledged {
            self.send(m, report);
        }
        self.bury(m, claim);
        let kind = Happening::Gone("killed".into());
        self.send(m, said::report(claim, 9_999, kind));
    }

    /// Time passes: machines kill by their leases, then the manager looks.
    pub(crate) fn wait(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
        for m in 0..self.machines.len() {
            if self.machines[m].session.is_some() {
                let session = self.machines[m].session.unwrap();
                self.core.agent_heard(self.now, &format!("m{m}"), session);
                self.machines[m].heard_ms = self.now.mono_ms;
                continue;
            }
            let (heard, now) = (self.machines[m].heard_ms, self.now.mono_ms);
            let expired: Vec<ClaimId> = self.machines[m]
                .claims
                .iter()
                .filter(|(_, c)| now >= heard + c.lease_ms)
                .map(|(id, _)| *id)
                .collect();
            for claim in expired {
                // The starter kills and keeps what it knows; here the worst case: it knows nothing.
                self.bury(m, claim);
            }
        }
        self.keys();
        let mut out = Out::default();
        self.core.tick(&mut Turn { now: self.now, digest, out: &mut out });
        self.commit(out);
    }

    /// The manager is killed: only the journal is left. With and without a snapshot the queue must be the same.
    pub(crate) fn crash(&mut self) {
        let mut replayed = Core::new(settings());
        for event in &self.journal {
            replayed.apply(event.kind.as_ref().unwrap(), event.time_ms);
        }
        let restored = Core::restore(settings(), &self.core.snapshot()).unwrap();
        assert_eq!(replayed.picture(), self.core.picture(), "replay differs from life");
        assert_eq!(restored.picture(), self.core.picture(), "snapshot differs from life");
        self.core = restored;
        self.core.recovered(self.now);
        for machine in &mut self.machines {
            machine.session = None;
            machine.inbox.clear();
        }
    }

    /// The consistency pass finds nothing, and nothing to do.
    fn sweep(&mut self) {
        self.sweep_with(sweep_all);
    }

    /// The same of a part of a round, so that most of what happens happens during one.
    fn sweep_on(&mut self) {
        self.sweep_with(|core, turn| {
            core.sweep.step = 2;
            if !core.sweep.is_under_way() {
                core.sweep.hurry();
            }
            core.sweep(turn);
        });
    }

    fn sweep_with(&mut self, sweep: fn(&mut Core, &mut Turn<'_>)) {
        self.keys();
        // As a tick does: a machine that was lost takes part in no plan any more.
        let mut out = Out::default();
        self.core.gang_pass(&mut Turn { now: self.now, digest, out: &mut out });
        self.commit(out);
        assert_eq!(self.core.broken(self.now), Vec::<String>::new());
        let mut out = Out::default();
        sweep(&mut self.core, &mut Turn { now: self.now, digest, out: &mut out });
        assert_eq!(self.core.findings(), Findings::default(), "{:?}", out.warnings);
        assert!(out.events.is_empty(), "{:?}", out.events);
    }

    fn check(&self) {
        // What is kept so that nobody need look at everything is what looking at everything would find.
        let pool = &self.core.pool;
        let connected = || pool.machines().iter().filter(|(_, m)| m.session.is_some());
        assert_eq!(pool.cores(), connected().map(|(_, m)| u64::from(m.total.cpus)).sum::<u64>());
        assert!(connected().all(|(name, m)| m.session.and_then(|s| pool.machine_of(s)) == Some(name)));
        let away = pool.machines().iter().filter(|(_, m)| m.session.is_none()).map(|(name, _)| name);
        assert!(away.eq(pool.away()));
        let mut deep: Vec<ClaimId> =
            pool.claims().iter().filter(|(_, c)| c.jobs.len() > 1).map(|(id, _)| *id).collect();
        deep.sort();
        assert!(deep.iter().eq(pool.deep()));
        for (_, machine) in connected().filter(|(_, m)| pool.roomy().contains(m.number)) {
            assert_eq!(pool.room(machine.number), machine.free);
        }
        // Every submitted job is in exactly one place.
        for (&cluster, &procs) in &self.submitted {
            let view = self.core.queue.clusters().get(&cluster);
            for proc in 0..procs {
                let job = JobId { cluster, proc };
                let places = view.map_or(0, |c| {
                    usize::from(c.is_idle(proc))
                        + usize::from(c.held.contains(proc))
                        + usize::from(c.live.contains_key(&proc))
                });
                let ended = usize::from(self.ended.contains(&job));
                assert_eq!(places + ended, 1, "{job} is in {places} places, ended {ended}");
            }
        }
    }

    /// A guest is where its host is, has nothing of its own, starts after it, and does not stay behind.
    fn check_guests(&self) {
        for (id, cluster) in self.core.queue.clusters() {
            for (guest, host) in cluster.all_guests() {
                let Some(live) = cluster.live.get(&guest) else { continue };
                let claim = &self.core.pool.claims()[&live.claim];
                assert_eq!(claim.resources, Resources::default(), "{id}.{guest}");
                let leaves = live.stop.is_some();
                match cluster.live.get(&host) {
                    Some(its) => {
                        assert_eq!(
                            self.core.pool.claims()[&its.claim].machine,
                            claim.machine,
                            "{id}.{guest}"
                        );
                        let after = live.started_ms.is_none() || its.started_ms.is_some();
                        assert!(after, "{id}.{guest} before {host}");
                    }
                    None if cluster.is_over(host) => {
                        assert!(live.started_ms.is_some() || leaves, "{id}.{guest}")
                    }
                    None => assert!(leaves, "{id}.{guest} without {host}"),
                }
            }
        }
    }

    /// People decide about a machine, or about none: refusals are fine.
    fn stand(&mut self, machine: u8, what: u8) {
        let user = |name: &str| Some(name.to_owned());
        let mut change = StandingChange { held_ms: 60_000, ..StandingChange::default() };
        match what {
            0..4 => change.condition = Some(Condition::ALL[what as usize]),
            4 => change.loaned_to = user("u0"),
            5 => change.loaned_to = user(""),
            6 => change.held_by = user("u1"),
            7 => change.held_by = user(""),
            _ => (change.condition, change.loaned_to) = (Some(Condition::Automated), user("")),
        }
        let actor = Actor { user: "u1".into(), any_owner: what != 6 || machine.is_multiple_of(2) };
        let mut out = Out::default();
        let _ = self.core.set_machine(
            &mut Turn { now: self.now, digest, out: &mut out },
            &actor,
            &format!("m{machine}"),
            change,
        );
        self.commit(out);
    }

    fn lab(&mut self, lab: u8, disabled: bool) {
        let lab = ["east", "west"][lab as usize].to_owned();
        let mut out = Out::default();
        let change = LabChange { lab, disabled: Some(disabled), ..LabChange::default() };
        self.core.set_lab(&mut Turn { now: self.now, digest, out: &mut out }, change).unwrap();
        self.commit(out);
    }

    /// A gang with a job on hold waits for a person, and so do its others.
    fn release_gangs(&mut self) {
        let gangs: Vec<u32> = self
            .core
            .queue
            .clusters()
            .iter()
            .filter(|(_, c)| c.gang && !c.held.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for gang in gangs {
            let actor = Actor { user: "root".into(), any_owner: true };
            let which = Which::Named(model::JobName::Cluster(gang));
            let mut out = Out::default();
            let _ = self.core.act(
                &mut Turn { now: self.now, digest, out: &mut out },
                &actor,
                Act::Release,
                &which,
                "",
            );
            self.commit(out);
        }
    }

    /// Faults stop: everything that can finish does.
    fn settle(&mut self) {
        for m in 0..3 {
            self.keys();
            self.stand(m, 8);
            self.stand(m, 7);
        }
        self.lab(0, false);
        self.lab(1, false);
        for m in 0..self.machines.len() {
            self.connect(m);
        }
        for _ in 0..5_000 {
            for m in 0..self.machines.len() {
                self.deliver(m);
                self.start(m);
                self.finish(m);
            }
            self.wait(20);
            self.release_gangs();
            if self.core.queue.clusters().values().all(|c| is_settled(c)) {
                break;
            }
        }
        for (id, cluster) in self.core.queue.clusters() {
            assert!(is_settled(cluster), "cluster {id} makes no progress: {cluster:?}");
        }
    }
}

/// Nothing of it will happen any more without a person. A gang of which one is on hold waits as a whole, but not for guests
/// whose hosts are over.
fn is_settled(cluster: &Cluster) -> bool {
    let waits = cluster.gang && cluster.is_held_up();
    cluster.live.is_empty() && (waits || cluster.idle_count() == 0)
}

/// A whole round of the consistency pass.
pub(crate) fn sweep_all(core: &mut Core, turn: &mut Turn<'_>) {
    core.sweep.hurry();
    core.sweep(turn);
    while core.sweep.is_under_way() {
        core.sweep(turn);
    }
}

fn settings() -> Settings {
    let limits = Limits { named: [("licence".to_owned(), 3.0)].into(), default: 3.0 };
    let lab = Group { name: "lab".into(), quota: Quota::Part(0.25), surplus: true, users: None };
    let shares = Shares { groups: vec![lab], ..Shares::default() };
    Settings { lease_ms: 60_000, limits, shares, ..Settings::default() }
}

pub(crate) fn template(procs: u32, cpus: u32) -> JobTemplate {
    let mut template = JobTemplate::of(procs);
    template.set("RequestCpus", cpus.to_string());
    template.set("Requirements", "TARGET.Memory > 10");
    template
}
