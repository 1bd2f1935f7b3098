//! The way of a claim to its first job (decision 053): a slot is promised to it, then the machine is asked with a job that waits, then
//! the job begins. Plain claims go all of it at once. Also matches that are better than what a slot has: they wait until its job has left.

use std::sync::Arc;

use model::agent::{Assign, BETTER, Better, Claim, Notice, Stage};
use model::event::Resources;
use model::report::{Attempt, Happening, SeatAnswer, SeatSaid};
use model::{MonoMs, Now};

use crate::core::{Action, Core};
use crate::job::Prepared;
use crate::ledger::{Ledger, said_now};
use crate::owner::Refusal;

/// Where a claim stands on its way.
#[derive(Debug, Default)]
pub(crate) struct Way {
    pub(crate) stage: Step,
    /// What the notice that came with the claim, or before it, promises. None where there was no notice.
    pub(crate) room: Option<Resources>,
    /// Jobs that wait for the word to begin, with what they share: other clusters may come and go meanwhile.
    pub(crate) waiting: Option<(Assign, Option<Arc<Prepared>>)>,
}

/// A match that waits for the slot of another claim, or has it already.
#[derive(Debug, Clone)]
pub(crate) struct BetterMatch {
    /// What the claim to come will be proven with.
    pub(crate) key: Vec<u8>,
    /// The job that it is for.
    pub(crate) job: Attempt,
}

/// The steps of the way.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It runs what it is given, or is over.
    #[default]
    Active,
    /// Promised; no starter yet.
    Matched,
    /// Accepted; its job waits.
    Accepted,
}

impl Way {
    /// Of a claim that the manager tells of.
    pub(crate) fn of(claim: &Claim) -> Self {
        let notice = claim.notice();
        let stage = if notice == Notice::Before { Step::Matched } else { Step::Active };
        let room = (notice != Notice::None).then_some(claim.resources);
        Self { stage, room, waiting: None }
    }

    /// As a hello has it.
    pub(crate) fn told(&self) -> i32 {
        match self.stage {
            Step::Active => Stage::Active,
            Step::Matched => Stage::Matched,
            Step::Accepted => Stage::Accepted,
        }
        .into()
    }

    fn is_waiting(&self, job: Attempt) -> bool {
        self.waiting.as_ref().is_some_and(|(a, _)| {
            a.cluster == job.cluster && a.jobs.iter().any(|j| (j.proc, j.attempt) == (job.proc, job.attempt))
        })
    }
}

impl Ledger {
    /// What a claim's notice promises.
    pub(crate) fn room_of(&self, claim: u64) -> Option<Resources> {
        self.claims.get(&claim)?.way.room
    }

    pub(crate) fn is_matched(&self, claim: u64) -> bool {
        self.claims.get(&claim).is_some_and(|held| held.way.stage == Step::Matched)
    }

    /// A job of a claim waits for the word to begin.
    pub(crate) fn is_waiting(&self, claim: u64, job: Attempt) -> bool {
        self.claims.get(&claim).is_some_and(|held| held.way.is_waiting(job))
    }

    /// A job that waited is not to begin.
    pub(crate) fn withdraw(&mut self, claim: u64, job: Attempt, actions: &mut Vec<Action>) {
        if let Some(held) = self.claims.get_mut(&claim) {
            if let Some((waiting, _)) = &mut held.way.waiting {
                waiting.jobs.retain(|j| (j.proc, j.attempt) != (job.proc, job.attempt));
            }
            self.returned(claim, &[job], actions);
        }
    }

    /// The machine accepted a claim: it gets a starter, and its jobs wait.
    fn accept(&mut self, now: MonoMs, assign: Assign, actions: &mut Vec<Action>) {
        let lease_ms = self.claims.get(&assign.claim).map_or(0, |held| held.record.lease_ms);
        let lease_ms = self.lease_left(now, lease_ms);
        let prepared = self.clusters.get(&assign.cluster).cloned();
        let Some(held) = self.claims.get_mut(&assign.claim) else { return };
        (held.alive, held.way.stage) = (true, Step::Accepted);
        let id = |job: &model::agent::AssignedJob| Attempt {
            cluster: assign.cluster,
            proc: job.proc,
            attempt: job.attempt,
        };
        held.jobs.extend(assign.jobs.iter().map(id));
        let claim = assign.claim;
        actions.push(Action::Begin { record: held.record.clone(), lease_ms });
        held.way.waiting = Some((assign, prepared));
        actions.push(Action::Say(model::agent::Up::Report(said_of(claim, SeatAnswer::Accepted, ""))));
    }

    /// Jobs that waited may begin.
    pub(crate) fn activate(&mut self, claim: u64, actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim).filter(|h| h.way.stage == Step::Accepted) else {
            return;
        };
        held.way.stage = Step::Active;
        let Some((waiting, prepared)) = held.way.waiting.take() else { return };
        held.jobs.clear();
        if let Some(prepared) = prepared {
            self.clusters.entry(waiting.cluster).or_insert(prepared);
        }
        self.assign(Assign { waits: false, ..waiting }, actions);
    }

    /// A promise is over before its claim was accepted.
    pub(crate) fn unmatch(&mut self, now: MonoMs, claim: u64, why: &str, actions: &mut Vec<Action>) {
        let Some(held) = self.claims.get_mut(&claim).filter(|h| h.way.stage == Step::Matched) else { return };
        held.way.stage = Step::Active;
        self.starter_gone(now, claim, Vec::new(), why, actions);
    }

    /// Claims that have a starter and nothing to do, or whose jobs wait for a word.
    pub(crate) fn idle_claims(&self) -> impl Iterator<Item = u64> + '_ {
        let idle = self
            .claims
            .iter()
            .filter(|(_, held)| held.alive && (held.jobs.is_empty() || held.way.stage == Step::Accepted));
        idle.map(|(claim, _)| *claim)
    }
}

impl Core {
    /// The manager tells of a claim, or of a match that one follows from.
    pub(crate) fn hear_claim(&mut self, now: Now, claim: Claim) {
        let (id, before) = (claim.claim, claim.notice() == Notice::Before);
        if self.ledger.record(id).is_some() {
            return;
        }
        if claim.instead_of > 0 && self.ledger.better.remove(&claim.instead_of).is_some() {
            self.owner.confirm(now, BETTER | claim.instead_of, id);
        }
        let room = claim.resources;
        self.ledger.begin(now.mono(), claim, &mut self.pending);
        if !before {
            return;
        }
        match self.owner.promise(now, id, self.ledger.slot_of(id), room) {
            Ok(()) => self.say_seat(id, SeatAnswer::Matched, ""),
            Err(why) => self.ledger.unmatch(now.mono(), id, &why, &mut self.pending),
        }
    }

    /// A claim that was promised its slot asks for it, with a job that waits.
    pub(crate) fn hear_request(&mut self, now: Now, assign: Assign) {
        let claim = assign.claim;
        let Some(first) = assign.jobs.first().filter(|_| self.ledger.is_matched(claim)) else { return };
        let id = Attempt { cluster: assign.cluster, proc: first.proc, attempt: first.attempt };
        let ad = self.ledger.ad(id, &first.values);
        match self.owner.ask(now, claim, ad) {
            Ok(()) => self.ledger.accept(now.mono(), assign, &mut self.pending),
            Err(why) => {
                self.owner.end(now, claim);
                self.ledger.unmatch(now.mono(), claim, &why, &mut self.pending);
            }
        }
    }

    /// A better match for a claim's slot.
    pub(crate) fn hear_better(&mut self, now: Now, better: Better) {
        let claim = better.instead_of;
        let id = Attempt { cluster: better.cluster, proc: better.proc, attempt: 0 };
        let ad = self.ledger.ad(id, &better.values);
        match self.owner.prefer(now, claim, BETTER | claim, ad, &better.reason) {
            Ok(()) => {
                self.ledger.better.insert(claim, BetterMatch { key: better.key, job: id });
                self.say_seat(claim, SeatAnswer::BetterWaits, "");
            }
            Err(Refusal::Late) => self.say_seat(claim, SeatAnswer::BetterLate, "its job is leaving already"),
            Err(Refusal::No(why)) => self.say_seat(claim, SeatAnswer::BetterRefused, &why),
        }
    }

    /// A better match is none any more.
    pub(crate) fn drop_better(&mut self, now: Now, waiting: u64) {
        if self.ledger.better.remove(&(waiting & !BETTER)).is_some() {
            self.owner.end(now, waiting);
        }
    }

    /// Claims that have nothing to do are asked about, and end when nobody wants them.
    pub(crate) fn end_unfed(&mut self, now: Now) {
        let patience_ms = self.owner.match_ms();
        let owner = &self.owner;
        let took_over =
            self.ledger.better.keys().map(|claim| BETTER | claim).filter(|id| owner.has_slot(*id));
        let idle: Vec<u64> = self.ledger.idle_claims().chain(took_over).collect();
        let due = self.unfed.look(now.mono_ms, patience_ms, self.connected, idle);
        for claim in due.ask {
            self.say_seat(claim, SeatAnswer::Unfed, "");
        }
        for claim in due.end {
            self.pending
                .push(Action::Warn(format!("claim {claim}: nobody feeds it, nor wants it kept: it ends")));
            if claim & BETTER > 0 {
                self.drop_better(now, claim);
            } else {
                self.owner.give_up(claim, "nobody feeds it");
            }
        }
    }

    fn say_seat(&mut self, claim: u64, answer: SeatAnswer, reason: &str) {
        self.pending.push(Action::Say(model::agent::Up::Report(said_of(claim, answer, reason))));
    }
}

fn said_of(claim: u64, answer: SeatAnswer, reason: &str) -> model::agent::Report {
    let said = SeatSaid { reason: reason.to_owned(), ..SeatSaid::new(answer) };
    said_now(claim, Happening::Seat(said))
}
