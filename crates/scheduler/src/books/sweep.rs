//! The consistency pass: from time to time the whole pool is looked at, a little with every tick, and what should never be
//! wrong is put right, counted, and told as a warning.
//!
//! Nothing waits for it: everything that may let a job start runs the scheduling pass at once. So the last thing a round
//! does is to run that pass for everybody, and a start that comes of it is a lost wake-up, a fault of ours: it is counted,
//! marked in the journal, and in builds with debug assertions (every test's) it panics, because nothing else would show it. So does
//! an index that does not agree with what it is an index of, and that is rebuilt from it.
//! Each finding is the breach of an invariant, by whose name people find what should have held. Facts are repaired by the ordinary
//! events, indices over them in place.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::codes::vacate;
use model::event::{JobsRequeued, Kind};
use model::{ClaimId, JobId, Span};
use planner::SetId;

use super::pool::Rebuilt;
use super::recount::Reach;
use crate::pool::{Claim, host_of};
use crate::shape::ShapeId;
use crate::{Core, Effect, Out, Turn, admission, ended, feed, gangs, places, reserve, room};

/// Machines, claims, clusters, shapes that one tick looks at, at most; so much takes about a third of a millisecond.
const STEP: usize = 500;
/// Gangs that one tick looks at, at most: each is matched against the whole pool.
const GANGS: usize = 8;
/// Warnings of one step, at most.
const WARNINGS: u64 = 20;

/// What may be found to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A claim on a connected machine with no job to do.
    EmptyClaim,
    /// A claim on a connected machine that is kept for a gang which needs it no more.
    KeptClaim,
    /// A claim that its machine's books do not have.
    LostClaim,
    /// A machine's books have a claim that is over.
    DeadClaim,
    /// A claim has a job that is not its.
    StrayJob,
    /// A job is in the hands of a claim that is over or does not have it.
    LostJob,
    /// What is free on a machine is not what its claims leave.
    Room,
    /// A waiting job that nobody has in line, or the reverse.
    Line,
    /// A lease that ran out and that nobody ended.
    Lease,
    /// A machine kept for a gang that does not wait for it.
    Earmark,
    /// A user's cores in use are not those of their claims.
    Held,
    /// A group's are not.
    Quota,
    /// A named resource's use is not what claims take of it.
    Limit,
    /// An owner's unfinished jobs are not so many.
    Jobs,
    /// The pool's cores are not those of the machines in contact.
    Cores,
    /// A start that only this pass made.
    LostWakeup,
}

impl Finding {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::EmptyClaim,
        Self::KeptClaim,
        Self::LostClaim,
        Self::DeadClaim,
        Self::StrayJob,
        Self::LostJob,
        Self::Room,
        Self::Line,
        Self::Lease,
        Self::Earmark,
        Self::Held,
        Self::Quota,
        Self::Limit,
        Self::Jobs,
        Self::Cores,
        Self::LostWakeup,
    ];

    /// In a word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::EmptyClaim => "empty_claim",
            Self::KeptClaim => "kept_claim",
            Self::LostClaim => "lost_claim",
            Self::DeadClaim => "dead_claim",
            Self::StrayJob => "stray_job",
            Self::LostJob => "lost_job",
            Self::Room => "room",
            Self::Line => "line",
            Self::Lease => "lease",
            Self::Earmark => "earmark",
            Self::Held => "held",
            Self::Quota => "quota",
            Self::Limit => "limit",
            Self::Jobs => "jobs",
            Self::Cores => "cores",
            Self::LostWakeup => "lost_wakeup",
        }
    }
}

impl Finding {
    /// The invariant that did not hold, by its name in [`crate::INVARIANTS`].
    pub fn invariant(self) -> &'static str {
        match self {
            Self::EmptyClaim | Self::KeptClaim => "seats",
            Self::LostClaim | Self::DeadClaim => "claims_and_machines",
            Self::StrayJob | Self::LostJob => "jobs_and_claims",
            Self::Room => "room",
            Self::Line => "line",
            Self::Lease => "leases",
            Self::Earmark => "earmarks",
            Self::Held | Self::Quota | Self::Limit => "accounts",
            Self::Jobs => "owners",
            Self::Cores => "cores",
            Self::LostWakeup => "no_missed_start",
        }
    }

    /// Books that disagree among themselves, which nothing that happens in the world can make them: a fault of ours.
    fn is_our_fault(self) -> bool {
        !matches!(self, Self::EmptyClaim | Self::KeptClaim | Self::LostJob | Self::Lease | Self::Earmark)
    }
}

/// How often each was found since the manager started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings([u64; Finding::ALL.len()]);

impl Findings {
    /// How often.
    pub fn of(&self, finding: Finding) -> u64 {
        self.0[finding as usize]
    }

    /// Everything together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Where a round is. What jobs say is believed first, then what claims say, then what machines' books say.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// From this cluster on.
    Clusters(u32),
    /// What clusters amount to, behind this owner.
    Owners(Option<Arc<str>>),
    /// Claims of machines behind this one.
    Claims(Option<Arc<str>>),
    /// Machines behind this one.
    Machines(Option<Arc<str>>),
    /// What claims amount to, from this user on.
    Users(u32),
    /// Behind this named resource.
    Limits(Option<Box<str>>),
    /// From this gang on.
    Gangs(u32),
    /// From this shape on.
    Shapes(u32),
}

/// The consistency pass.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    /// When the next round begins, by the monotonic clock.
    due_ms: u64,
    stage: Option<Stage>,
    found: Findings,
    /// A fault of ours stops the process.
    pub(crate) alarm: bool,
    /// How much one tick looks at.
    pub(crate) step: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { due_ms: 0, stage: None, found: Findings::default(), alarm: cfg!(debug_assertions), step: STEP }
    }
}

impl Sweep {
    pub(crate) fn is_under_way(&self) -> bool {
        self.stage.is_some()
    }

    /// A round begins with the next tick.
    #[cfg(test)]
    pub(crate) fn hurry(&mut self) {
        (self.due_ms, self.stage) = (0, None);
    }

    pub(crate) fn note(&mut self, finding: Finding, what: &str, out: &mut Out) {
        self.found.0[finding as usize] += 1;
        if (out.warnings.len() as u64) < WARNINGS {
            let (name, invariant) = (finding.name(), finding.invariant());
            out.warnings.push(format!("the consistency pass found ({name}, breaks {invariant}): {what}"));
        }
        assert!(!(self.alarm && finding.is_our_fault()), "{}: {what}", finding.name());
    }
}

impl Core {
    /// Is a round of the consistency pass under way?
    pub fn is_checking(&self) -> bool {
        self.sweep.is_under_way()
    }

    /// What the consistency pass found since the beginning.
    pub fn findings(&self) -> Findings {
        self.sweep.found
    }

    /// The next step of a round, if one is due.
    pub(crate) fn sweep(&mut self, turn: &mut Turn<'_>) {
        if self.books.settings.sweep_ms == 0 {
            return;
        }
        let stage = match self.sweep.stage.take() {
            Some(stage) => stage,
            None if turn.now.mono_ms < self.sweep.due_ms => return,
            None => {
                self.sweep.due_ms = turn.now.mono_ms + self.books.settings.sweep_ms;
                (self.books.queue.recount, self.books.pool.recount) = Default::default();
                Stage::Clusters(0)
            }
        };
        let mut budget = self.sweep.step;
        let mut stage = Some(stage);
        while let Some(at) = stage.take_if(|_| budget > 0) {
            stage = match at {
                Stage::Machines(after) => Some(self.sweep_machines(turn, after, &mut budget)),
                Stage::Claims(after) => Some(self.sweep_claims(turn, after, &mut budget)),
                Stage::Clusters(from) => Some(self.sweep_clusters(turn, from, &mut budget)),
                Stage::Owners(after) => Some(super::recount::sweep_owners(
                    &mut self.books.queue,
                    &mut self.sweep,
                    after,
                    &mut budget,
                    turn.out,
                )),
                Stage::Users(from) => {
                    let swept = super::recount::sweep_users(
                        &mut self.books.pool,
                        &mut self.books.accounts,
                        &mut self.books.changes,
                        &mut self.sweep,
                        turn,
                        from,
                        &mut budget,
                    );
                    Some(self.offer_released(turn, swept))
                }
                Stage::Limits(after) => {
                    let swept = super::recount::sweep_limits(
                        &mut self.books.pool,
                        &mut self.books.in_use,
                        &mut self.sweep,
                        turn,
                        after,
                        &mut budget,
                    );
                    Some(self.offer_released(turn, swept))
                }
                Stage::Gangs(from) => Some(self.sweep_gangs(turn, from, &mut budget)),
                Stage::Shapes(from) => self.sweep_shapes(turn, from, &mut budget),
            };
        }
        self.sweep.stage = stage;
    }

    /// After a repair: whoever was kept back by what was not true tries again.
    fn offer_released(&mut self, turn: &mut Turn<'_>, (stage, repaired): (Stage, bool)) -> Stage {
        if repaired {
            self.books.changes.release();
            self.gang_pass(turn);
        }
        stage
    }

    /// The next machines of the walk, as many as the budget allows.
    fn machines_after(&self, after: Option<&Arc<str>>, budget: &mut usize) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (name, machine) in self.books.pool.machines().after(after) {
            if *budget == 0 {
                break;
            }
            *budget = budget.saturating_sub(1 + machine.claims.len());
            names.push(name.clone());
        }
        names
    }

    fn sweep_machines(&mut self, turn: &mut Turn<'_>, after: Option<Arc<str>>, budget: &mut usize) -> Stage {
        let mut names = self.machines_after(after.as_ref(), budget);
        for name in &names {
            if self.sweep_machine(name, turn.out) {
                self.offer_machine(turn, name);
            }
            self.sweep_leases(turn, name);
        }
        names.pop().map_or(Stage::Users(0), |last| Stage::Machines(Some(last)))
    }

    /// True when something was put right.
    fn sweep_machine(&mut self, name: &Arc<str>, out: &mut Out) -> bool {
        let Rebuilt { dead, room } = self.books.pool.rebuild_machine(name, &mut self.books.changes);
        let mut repaired = room || !dead.is_empty();
        for id in dead {
            let what = format!("{name} has the claim {id}, which is over");
            self.sweep.note(Finding::DeadClaim, &what, out);
        }
        if room {
            self.sweep.note(Finding::Room, &format!("the books of {name} did not fit its claims"), out);
        }
        let Some(machine) = self.books.pool.machines().get(name) else { return repaired };
        let (number, connected) = (machine.number, machine.session.is_some());
        if let Some(gang) = self.gangs.earmark(number)
            && (!connected || !self.gangs.is_promised(gang, number))
        {
            self.gangs.drop_earmark(number);
            let what = format!("{name} was kept for the gang {gang}, which does not wait for it");
            self.sweep.note(Finding::Earmark, &what, out);
            repaired = true;
        }
        repaired
    }

    /// The tick that runs this pass has just ended leases: one that is left was forgotten.
    fn sweep_leases(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        let Some(machine) = self.books.pool.machines().get(name).filter(|m| m.session.is_none()) else {
            return;
        };
        // Word from a machine is noted at its first place.
        let heard_ms = self.books.pool.machines().get(host_of(name)).map_or(machine.heard_ms, |m| m.heard_ms);
        let over = machine.claims.iter().copied().filter(|id| {
            let patience = self.books.pool.claims().get(id).map_or(0, Claim::patience_ms);
            turn.now.mono_ms >= heard_ms.saturating_add(patience)
        });
        for id in over.collect::<Vec<_>>() {
            self.sweep.note(
                Finding::Lease,
                &format!("the lease of claim {id} on {name} had run out"),
                turn.out,
            );
            let jobs = self.books.pool.claims().get(&id).map_or_else(Vec::new, |c| c.jobs.clone());
            ended::lose_claim(
                &mut self.books,
                turn,
                id,
                "its machine was out of contact for longer than the lease",
                vacate::LEASE_OVER,
            );
            for cluster in jobs.iter().map(|j| j.cluster).collect::<BTreeSet<u32>>() {
                self.offer_jobs(turn, cluster);
            }
        }
    }

    fn sweep_claims(&mut self, turn: &mut Turn<'_>, after: Option<Arc<str>>, budget: &mut usize) -> Stage {
        let mut names = self.machines_after(after.as_ref(), budget);
        for name in &names {
            let claims = self.books.pool.machines().get(name).map(|m| m.claims.clone());
            for id in claims.into_iter().flatten() {
                self.sweep_claim(turn, name, id);
            }
            self.books.count_machine(name);
        }
        if let Some(last) = names.pop() {
            return Stage::Claims(Some(last));
        }
        self.books.pool.recount.reach = Reach::All;
        if self.books.pool.recount.claims != self.books.pool.claims().len() {
            self.sweep_lost_claims(turn);
        }
        Stage::Machines(None)
    }

    fn sweep_claim(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, id: ClaimId) {
        let Some(claim) = self.books.pool.claims().get(&id).filter(|c| c.machine == *name) else { return };
        let strays: Vec<JobId> = claim.jobs.iter().copied().filter(|job| !self.is_with(*job, id)).collect();
        let deep = claim.jobs.len() > 1;
        if !strays.is_empty() || self.books.pool.deep().contains(&id) != deep {
            let what = format!("claim {id} had jobs that are not its");
            self.sweep.note(Finding::StrayJob, &what, turn.out);
            self.books.pool.drop_jobs(id, &strays);
        }
        let connected = self.books.pool.machines().get(name).is_some_and(|m| m.session.is_some());
        if connected
            && reserve::is_reserved_in_vain(&self.books.queue, &self.books.pool, &self.books.shapes, id)
        {
            let what = format!("claim {id} on {name} was kept for a gang that is over");
            self.sweep.note(Finding::KeptClaim, &what, turn.out);
            return self.drop_claim(turn, id, "its gang is over");
        }
        // It may be kept for a while after the run, and its machine may be put in order.
        let idle = |c: &Claim| c.jobs.is_empty() && !c.ending && c.reserved.is_none();
        let empty = self.books.pool.claims().get(&id).is_some_and(idle);
        let session = self.books.pool.machines().get(name).and_then(|m| m.session);
        if let Some(session) = session.filter(|_| empty) {
            self.sweep.note(Finding::EmptyClaim, &format!("claim {id} on {name} had no job"), turn.out);
            feed::end_claim(&mut self.books, turn, id, "none of its jobs is alive");
            turn.out.effects.push(Effect::Drop { session, claim: id });
            self.offer_machine(turn, name);
        }
    }

    /// Machines have fewer claims than there are: looks at all of them, which nobody does who finds nothing wrong.
    fn sweep_lost_claims(&mut self, turn: &mut Turn<'_>) {
        let is_lost = |(id, claim): &(&ClaimId, &Claim)| {
            self.books.pool.machines().get(&claim.machine).is_none_or(|m| !m.claims.contains(id))
        };
        let lost: Vec<(ClaimId, Claim)> =
            self.books.pool.claims().iter().filter(is_lost).map(|(id, claim)| (*id, claim.clone())).collect();
        for (id, claim) in lost {
            let name = &claim.machine;
            self.sweep.note(Finding::LostClaim, &format!("{name} did not have the claim {id}"), turn.out);
            if self.books.pool.machines().contains_key(name) {
                self.books.pool.give_back(name, id, claim.slot_number, &mut self.books.changes);
            } else {
                // As after a restart: it has the time of its lease to come back.
                places::expect(&mut self.books, turn.now, name, [id].into());
            }
            self.books.recount_claim(&claim, 1);
        }
    }

    /// Is this claim the one that has the job?
    fn is_with(&self, job: JobId, id: ClaimId) -> bool {
        let live = self.books.queue.clusters().get(&job.cluster).and_then(|c| c.live.get(&job.proc));
        live.is_some_and(|l| l.claim == id)
    }

    fn sweep_clusters(&mut self, turn: &mut Turn<'_>, from: u32, budget: &mut usize) -> Stage {
        let (mut next, mut odd) = (None, Vec::new());
        let mut recount = std::mem::take(&mut self.books.queue.recount);
        for (&id, cluster) in self.books.queue.clusters().range(from..) {
            if *budget == 0 {
                next = Some(id);
                break;
            }
            recount.reach = Reach::To(id);
            recount.pass(&cluster.owner, cluster.unfinished());
            *budget = budget.saturating_sub(1 + cluster.live.len());
            let in_line = if cluster.gang {
                self.books.changes.concerns_gang(id)
                    || self.gangs.knows(id) == gangs::waits_as_gang(&self.books.queue, id)
            } else {
                cluster.parts.iter().enumerate().all(|(at, part)| {
                    let entry = cluster.ready(id, at);
                    let shape = self.books.shapes.all().get(&part.shape);
                    shape.is_none_or(|s| s.ready.contains(&entry) != part.idle.is_empty())
                })
            };
            let lost: Vec<(u32, ClaimId)> = cluster
                .live
                .iter()
                .filter(|(proc, live)| {
                    let job = JobId { cluster: id, proc: **proc };
                    self.books.pool.claims().get(&live.claim).is_none_or(|c| !c.jobs.contains(&job))
                })
                .map(|(proc, live)| (*proc, live.claim))
                .collect();
            if !in_line || !lost.is_empty() {
                odd.push((id, in_line, lost));
            }
        }
        if next.is_none() {
            recount.reach = Reach::All;
        }
        self.books.queue.recount = recount;
        for (id, in_line, lost) in odd {
            if !in_line {
                self.sweep.note(Finding::Line, &format!("jobs of cluster {id} were not in line"), turn.out);
                self.books.reindex(id);
            }
            for (proc, claim) in lost {
                let job = JobId { cluster: id, proc };
                self.sweep.note(
                    Finding::LostJob,
                    &format!("claim {claim} did not have the job {job}"),
                    turn.out,
                );
                if self.books.pool.claims().contains_key(&claim) {
                    self.books.pool.give_jobs(claim, [job]);
                } else {
                    let (procs, reason) =
                        (vec![Span { first: proc, count: 1 }], "its claim is over".to_owned());
                    let requeued = JobsRequeued {
                        claim: claim.0,
                        cluster: id,
                        procs,
                        reason,
                        code: vacate::MACHINE_FAILED,
                        exit: None,
                    };
                    self.books.record(turn, Kind::JobsRequeued(requeued));
                }
            }
            self.offer_jobs(turn, id);
        }
        match next {
            Some(next) => Stage::Clusters(next),
            None => Stage::Owners(None),
        }
    }

    /// The pass itself, for gangs that no event concerns.
    fn sweep_gangs(&mut self, turn: &mut Turn<'_>, from: u32, budget: &mut usize) -> Stage {
        let some: Vec<u32> = self.gangs.waiting_from(from).take(GANGS).collect();
        let Some(last) = some.last().copied() else { return Stage::Shapes(0) };
        *budget = budget.saturating_sub(STEP / GANGS * some.len());
        for id in some {
            self.gangs.look_again(SetId(u64::from(id)));
        }
        let before = turn.out.events.len();
        self.books.swept = true;
        self.gang_pass(turn);
        self.books.swept = false;
        self.count_starts(before, turn.out);
        Stage::Gangs(last + 1)
    }

    /// The pass itself, for jobs that no event concerns.
    fn sweep_shapes(&mut self, turn: &mut Turn<'_>, from: u32, budget: &mut usize) -> Option<Stage> {
        // What waits for keys, for the throttle or for its first look is waited for.
        if self.keys.are_wanted() || !self.undone.is_empty() || self.throttle.due_ms().is_some() {
            return None;
        }
        // Sets of machines are bitmaps: a look through one is quick.
        let per_shape = 1 + self.books.pool.numbers() / 4_096;
        for id in from..self.books.shapes.end() {
            if *budget == 0 {
                return Some(Stage::Shapes(id));
            }
            *budget = budget.saturating_sub(1);
            let id = ShapeId(id);
            let Some(shape) = self.books.shapes.all().get(&id) else { continue };
            let first = shape.ready.first().copied();
            if first.is_some() != self.books.accounts.is_in_line(shape.user, id, first) {
                let (user, cores) = (shape.user, f64::from(shape.request.cpus));
                let what = format!("jobs of {} were not in line", self.books.accounts.get(user).name);
                self.sweep.note(Finding::Line, &what, turn.out);
                self.books.accounts.forget_ready(user, id);
                self.books.accounts.set_ready(user, id, cores, None, first);
                self.offer_shape(turn, id);
            }
            if first.is_none() || !admission::may_have_more(&self.books, &self.gangs, id) {
                continue;
            }
            *budget = budget.saturating_sub(per_shape);
            let before = turn.out.events.len();
            self.books.swept = true;
            while let Some((ready, name)) = room::first_room_unnoticed(
                &mut self.books,
                &mut self.gangs,
                &mut self.undone,
                id,
                turn.now.wall_ms,
            ) {
                let candidate = crate::pass::Candidate { shape: id, ready };
                if !self.start(turn, &name, candidate) {
                    break;
                }
            }
            self.books.swept = false;
            self.count_starts(before, turn.out);
        }
        None
    }

    fn count_starts(&mut self, before: usize, out: &mut Out) {
        let made = out.events[before..].iter().filter_map(|e| match &e.kind {
            Some(Kind::ClaimMade(made)) if made.swept => Some(format!("{} for {}", made.machine, made.owner)),
            _ => None,
        });
        for what in made.collect::<Vec<_>>() {
            let what = format!("a job could have started before, on {what}");
            self.sweep.note(Finding::LostWakeup, &what, out);
        }
    }
}
