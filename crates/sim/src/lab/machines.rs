//! The machines of a lab: they do at once what they are told, and report how far they are when the script says so.

use std::collections::BTreeMap;

use model::agent::{Notice, Report, Stage};
use model::codes::vacate;
use model::event::{Exit, Resources};
use model::report::{
    Attempt, CannotStart, Evicted, Exited, Happening, Hold, ProvisionFailed, Provisioning, Returned,
    SeatAnswer, SeatSaid, Started,
};
use model::{ClaimId, JobId};
use scheduler::{AgentHello, Effect, HeldClaim, Session};

use super::ads::machine_ad;
use super::{Claim, Lab, System};
use crate::script::Step;

/// What a machine says of a claim itself.
fn seat(answer: SeatAnswer) -> Happening {
    Happening::Seat(SeatSaid::new(answer))
}

impl Lab {
    fn system_of(&mut self, session: Session) -> Option<&mut System> {
        self.systems.values_mut().find(|s| s.session == session)
    }

    pub(super) fn deliver(&mut self, effect: Effect) {
        match effect {
            Effect::Claim { session, claim, key, notice, .. } => {
                if let Some(system) = self.system_of(session) {
                    let stage = if notice == Notice::Before { Stage::Matched } else { Stage::Active };
                    let made =
                        Claim { key, jobs: Vec::new(), started: BTreeMap::new(), ending: false, stage };
                    system.claims.insert(claim, made);
                    let name = system.spec.name.clone();
                    if notice == Notice::Before {
                        self.report(&name, claim, seat(SeatAnswer::Matched));
                    }
                }
            }
            Effect::Assign { session, claim, cluster, jobs, waits } => {
                let Some(system) = self.systems.values_mut().find(|s| s.session == session) else { return };
                let name = system.spec.name.clone();
                let Some(held) = system.claims.get_mut(&claim) else { return };
                for (proc, attempt) in jobs {
                    held.jobs.push(Attempt { cluster, proc, attempt });
                    if let Some(set) = self.sets.iter_mut().find(|s| s.cluster == cluster) {
                        set.last.insert(proc, (claim, attempt, name.clone()));
                    }
                }
                if waits {
                    held.stage = Stage::Accepted;
                    self.report(&name, claim, seat(SeatAnswer::Accepted));
                }
            }
            Effect::Activate { session, claim } => {
                let held = self.system_of(session).and_then(|s| s.claims.get_mut(&claim));
                if let Some(held) = held {
                    held.stage = Stage::Active;
                }
            }
            Effect::Better { session, claim, reason, .. } => {
                let Some(system) = self.system_of(session) else { return };
                let name = system.spec.name.clone();
                let Some(held) = system.claims.get_mut(&claim) else { return };
                held.ending = true;
                for job in std::mem::take(&mut held.jobs) {
                    let evicted = Evicted { job, reason: reason.clone(), code: 1000, hold: None };
                    self.report(&name, claim, Happening::Evicted(evicted));
                }
                self.end_claim(&name, claim);
            }
            Effect::Stop { session, claim, job, .. } => {
                let Some(system) = self.system_of(session) else { return };
                let name = system.spec.name.clone();
                let Some(held) = system.claims.get_mut(&claim) else { return };
                let Some(at) = held.jobs.iter().position(|j| j.job() == job) else { return };
                let stopped = held.jobs.remove(at);
                let kind = if held.started.remove(&job).is_some() {
                    let exit = Exit { signal: Some(15), ..Exit::default() };
                    Happening::Exited(Exited { job: stopped, exit })
                } else {
                    Happening::Returned(Returned { jobs: vec![stopped] })
                };
                self.report(&name, claim, kind);
            }
            Effect::Recall { .. } | Effect::Control { .. } | Effect::Ack { .. } | Effect::Keep { .. } => {}
            Effect::Drop { session, claim } => {
                let slow = self.slow_release;
                let Some(system) = self.system_of(session) else { return };
                let name = system.spec.name.clone();
                let Some(held) = system.claims.get_mut(&claim) else { return };
                held.ending = true;
                if !slow {
                    self.end_claim(&name, claim);
                }
            }
        }
    }

    fn end_claim(&mut self, system: &str, claim: ClaimId) {
        if self.systems.get_mut(system).is_some_and(|s| s.claims.remove(&claim).is_some()) {
            self.report(system, claim, Happening::Gone("in order again".to_owned()));
        }
    }

    fn report(&mut self, system: &str, claim: ClaimId, happening: Happening) {
        let Some(session) = self.systems.get(system).map(|s| s.session) else { return };
        let report = Report { claim: claim.0, seq: 0, happening: Some(happening), age_ms: Some(0) };
        self.with_core(|core, turn| core.agent_report(turn, system, session, report));
    }

    fn hello(&mut self, name: &str) -> Option<AgentHello> {
        let session = Session(self.next_session);
        self.next_session += 1;
        let system = self.systems.get_mut(name)?;
        system.session = session;
        let claims = system.claims.iter().map(|(id, c)| HeldClaim {
            claim: *id,
            key: c.key.clone(),
            jobs: c.jobs.clone(),
            ending: c.ending,
            stage: c.stage,
        });
        let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
        let (machine, ad) = (name.to_owned(), machine_ad(&system.spec));
        Some(AgentHello { machine, session, total, ad, more: Vec::new(), claims: claims.collect() })
    }

    pub(super) fn connect(&mut self, name: &str) {
        if let Some(hello) = self.hello(name) {
            self.with_core(|core, turn| core.agent_up(turn, hello));
        }
    }

    pub(super) fn release(&mut self, system: &str) {
        let Some(found) = self.systems.get(system) else { return };
        let ending: Vec<ClaimId> = found.claims.iter().filter(|(_, c)| c.ending).map(|(id, _)| *id).collect();
        if ending.is_empty() {
            self.remarks.push("duplicate ignored".to_owned());
        }
        for claim in ending {
            self.end_claim(system, claim);
        }
    }

    /// The machine that has a job, and its claim.
    fn holder(&self, job: JobId) -> Option<(String, ClaimId, Attempt)> {
        self.systems.iter().find_map(|(name, system)| {
            system.claims.iter().find_map(|(id, claim)| {
                let held = claim.jobs.iter().find(|held| held.job() == job)?;
                Some((name.clone(), *id, *held))
            })
        })
    }

    /// How long a machine has run a job that ends by itself. It ends a moment before anybody hears of it.
    fn lasted_us(&self, system: &str, claim: ClaimId, job: JobId) -> u64 {
        let claim = self.systems.get(system).and_then(|s| s.claims.get(&claim));
        let started_ms = claim.and_then(|c| c.started.get(&job)).copied().unwrap_or(self.now.wall_ms);
        (self.now.wall_ms - started_ms).saturating_sub(1).max(1) * 1000
    }

    pub(super) fn progress(&mut self, who: &str, step: Step) {
        let meant = self.meant(who);
        if meant.is_empty() {
            self.remarks.push("no-op: no such set".to_owned());
        }
        for job in meant {
            let Some((system, claim, held)) = self.holder(job) else {
                self.repeat(job, step);
                continue;
            };
            let started_ms = self.now.wall_ms;
            let kind = match step {
                Step::Waiting => Happening::Provisioning(Provisioning { job: held, installing: false }),
                Step::Installing => Happening::Provisioning(Provisioning { job: held, installing: true }),
                Step::Running => Happening::Started(Started { job: held }),
                Step::Done => {
                    let exit = Exit {
                        code: Some(0),
                        wall_us: self.lasted_us(&system, claim, job),
                        ..Exit::default()
                    };
                    Happening::Exited(Exited { job: held, exit })
                }
                Step::Aborted => {
                    let hold =
                        Some(Hold { reason: "its tasks were aborted".to_owned(), subcode: 0, code: 0 });
                    let reason = "its tasks were aborted".to_owned();
                    Happening::Evicted(Evicted { job: held, reason, code: vacate::BY_OWNER, hold })
                }
                Step::Suspicious => {
                    let reason = "no task could be started".to_owned();
                    Happening::CannotStart(CannotStart { job: held, reason, code: 6, subcode: 0 })
                }
            };
            if let Some(claim) = self.systems.get_mut(&system).and_then(|s| s.claims.get_mut(&claim)) {
                match step {
                    Step::Waiting | Step::Installing => {}
                    Step::Running => {
                        claim.started.insert(job, started_ms);
                    }
                    Step::Done | Step::Aborted | Step::Suspicious => {
                        claim.started.remove(&job);
                        claim.jobs.retain(|held| held.job() != job);
                    }
                }
            }
            self.report(&system, claim, kind);
            if step == Step::Aborted {
                // What takes a job off its machine takes its claim too.
                self.end_claim(&system, claim);
            }
            self.settle();
        }
    }

    /// A report about a job that its machine has no more comes once again.
    fn repeat(&mut self, job: JobId, step: Step) {
        let set = self.sets.iter().find(|s| s.cluster == job.cluster);
        let Some((claim, attempt, system)) = set.and_then(|s| s.last.get(&job.proc).cloned()) else { return };
        let exit = Exit { code: Some(0), wall_us: 1, ..Exit::default() };
        let kind = match step {
            Step::Done => Happening::Exited(Exited { job: Attempt::at(job, attempt), exit }),
            _ => Happening::Started(Started { job: Attempt::at(job, attempt) }),
        };
        let before = self.recorded.len();
        self.report(&system, claim, kind);
        if self.recorded.len() == before {
            self.remarks.push("duplicate ignored".to_owned());
        }
    }

    /// A machine that cannot be switched on is neither made ready nor put in order.
    pub(super) fn power_failure(&mut self, who: &str) {
        for job in self.meant(who) {
            let Some((system, claim, held)) = self.holder(job) else { continue };
            self.failed_on = Some(system.clone());
            if let Some(claim) = self.systems.get_mut(&system).and_then(|s| s.claims.get_mut(&claim)) {
                claim.jobs.retain(|held| held.job() != job);
            }
            let reason = || "its power does not come on".to_owned();
            self.report(
                &system,
                claim,
                Happening::ProvisionFailed(ProvisionFailed { job: held, reason: reason() }),
            );
            self.report(&system, claim, Happening::ReleaseFailed(reason()));
            self.settle();
        }
    }
}
