//! What jobs' own expressions decide: at the end of an attempt, and from time to time.
//!
//! At an exit, in this order: AllowedJobDuration, AllowedExecuteDuration, TimerRemove, PeriodicHold, PeriodicRemove,
//! OnExitHold, OnExitRemove (true when absent), and for a job that leaves LeaveJobInQueue. From time to time, one action
//! for each job: the two durations, PeriodicVacate, TimerRemove, PeriodicHold, PeriodicRelease, PeriodicRemove; for one
//! that has ended and stays, LeaveJobInQueue. An expression that is undefined, an error or text never fires (which is
//! told once for each job), and OnExitRemove keeps a job only when it is false or 0.
//!
//! In a gang the durations are those of the whole: a run is not too long while another one of the gang is within its own,
//! unless the gang says StrictLimits.
//!
//! `asked` evaluates; `limits` ends runs at their second; `later` keeps idle jobs until their time; `cron` knows the times of crontabs.
//!
//! Clusters without such expressions pay for one look at their template and nothing else; only the others keep a
//! [`Past`] for procs that have one. Whom an expression kept or held is in the journal like everything else.

mod asked;
mod cron;
pub(crate) mod later;
pub(crate) mod limits;
mod policies;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use classad::ClassAd;
use model::codes::vacate;
use model::event::{
    Afterwards, Exit, JobExited, JobsHeld, JobsLeft, JobsReleased, JobsRemoved, JobsRequeued, Kind,
};
use model::report::Attempt;
use model::{ClaimId, JobId, Now, ProcSet, Span};

pub(crate) use asked::Verdict;
use asked::{Asked, Doubts, EXTENDED};

use crate::books::Books;
use crate::queue::{Cluster, Queue};
use crate::{Out, Settings, Turn, orders};

pub(crate) use later::admit;
pub(crate) use policies::Policies;

/// Jobs looked at in one tick, so that a long queue cannot stop the pool; the next tick goes on.
const JOBS_PER_TICK: usize = 500;
/// Steps of evaluating their expressions after which the tick is over as well: some milliseconds.
const STEPS_PER_TICK: u64 = 50_000;

/// Steps that it may take for each millisecond that passes.
const STEPS_PER_MS: u64 = 1_000;

/// So many doubtful expressions are remembered before anybody asks whether their clusters are over.
const TOLD_AT_LEAST: usize = 64;

/// What one tick may still look at.
struct Portion {
    jobs: usize,
    steps_before: u64,
}

impl Portion {
    /// How long to rest after it, in milliseconds: the look has a small part of the time, however often the pool ticks.
    fn rest_ms(&self) -> u64 {
        classad::steps_taken().wrapping_sub(self.steps_before) / STEPS_PER_MS
    }

    fn whole() -> Self {
        Self { jobs: JOBS_PER_TICK, steps_before: classad::steps_taken() }
    }

    /// Takes one job of it; false when it is used up.
    fn take_job(&mut self) -> bool {
        let steps = classad::steps_taken().wrapping_sub(self.steps_before);
        if self.jobs == 0 || (steps >= STEPS_PER_TICK && self.jobs < JOBS_PER_TICK) {
            return false;
        }
        self.jobs -= 1;
        true
    }
}

/// What expressions may ask about the past of a proc.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Past {
    pub(crate) starts: u32,
    pub(crate) completions: u32,
    pub(crate) holds: u32,
    pub(crate) system_holds: u32,
    /// Run time of the attempts that ended.
    pub(crate) wall_ms: u64,
    /// Since when it is idle, unless that is since it was submitted.
    pub(crate) since_ms: Option<u64>,
    /// How its process ended last.
    pub(crate) exit: Option<Exit>,
    /// How often in a row it ended at once and was kept.
    pub(crate) quick: u32,
}

impl Cluster {
    fn has_policies(&self) -> bool {
        self.policies.at_exit || self.policies.periodic || self.policies.deferred
    }

    /// Attempts of these procs end before their jobs have begun: they have their numbers, and do not count as starts.
    /// Called while they are still there.
    pub(crate) fn note_unbegun(&mut self, procs: &[Span]) {
        for proc in procs.iter().flat_map(|s| s.procs()) {
            if self.live.get(&proc).is_some_and(|live| live.started_ms.is_none()) {
                *self.unbegun.entry(proc).or_default() += 1;
            }
        }
    }

    /// How often a proc was begun, or is about to be.
    pub(crate) fn times_begun(&self, proc: u32) -> u32 {
        let of = |counts: &HashMap<u32, u32>| counts.get(&proc).copied().unwrap_or(0);
        of(&self.attempts).saturating_sub(of(&self.unbegun))
    }

    pub(crate) fn note_start(&mut self, proc: u32) {
        if self.has_policies() {
            self.past.entry(proc).or_default().starts += 1;
        }
    }

    /// Called while the attempts that end with the hold are still there.
    pub(crate) fn note_hold(&mut self, e: &JobsHeld, time_ms: u64) {
        // A cluster that was submitted on hold has no past yet.
        if !self.has_policies() || e.code == 15 {
            return;
        }
        for proc in e.procs.iter().flat_map(|s| s.procs()) {
            self.note_end(proc, e.exit, time_ms);
            let past = self.past.entry(proc).or_default();
            past.holds += 1;
            past.system_holds += u32::from(e.code != 1);
        }
    }

    pub(crate) fn note_release(&mut self, procs: &[Span], time_ms: u64) {
        if self.has_policies() {
            for proc in procs.iter().flat_map(|s| s.procs()) {
                let past = self.past.entry(proc).or_default();
                past.since_ms = Some(time_ms);
                past.quick = 0;
            }
        }
    }

    /// Called while the attempt that ends is still there.
    pub(crate) fn note_completion(&mut self, e: &JobExited, time_ms: u64) {
        self.note_end(e.proc, Some(e.exit), time_ms);
        self.past.entry(e.proc).or_default().since_ms = Some(time_ms);
    }

    /// Called while the attempts that end are still there.
    pub(crate) fn note_requeue(&mut self, e: &JobsRequeued, time_ms: u64) {
        if self.has_policies() {
            for proc in e.procs.iter().flat_map(|s| s.procs()) {
                self.note_end(proc, e.exit, time_ms);
                let past = self.past.entry(proc).or_default();
                past.since_ms = Some(time_ms);
                match e.exit {
                    Some(exit) if exit.wall_us < later::QUICK_US => past.quick = past.quick.saturating_add(1),
                    Some(_) => past.quick = 0,
                    // Whoever was stopped has not ended.
                    None => {}
                }
            }
        }
    }

    fn note_end(&mut self, proc: u32, exit: Option<Exit>, time_ms: u64) {
        let started = self.live.get(&proc).and_then(|l| l.started_ms);
        let past = self.past.entry(proc).or_default();
        if exit.is_some() {
            past.completions += 1;
            past.exit = exit;
        }
        past.wall_ms += match (exit, started) {
            (Some(exit), _) => exit.wall_us / 1000,
            (None, Some(started_ms)) => time_ms.saturating_sub(started_ms),
            (None, None) => 0,
        };
    }

    /// How long a run has lasted.
    fn lasted_ms(&self, proc: u32, now: Now) -> Option<u64> {
        let started_ms = self.live.get(&proc)?.started_ms?;
        Some(now.wall_ms.saturating_sub(started_ms))
    }

    /// Is a running job of a gang, other than this one, within its own limits? Then none of the gang has run too long.
    fn is_within_limits(&self, id: u32, but: Option<u32>, now: Now) -> bool {
        let running = self.live.iter().filter(|(_, l)| self.policies.together && l.started_ms.is_some());
        running.filter(|(proc, _)| Some(**proc) != but).any(|(&proc, _)| {
            let ad = self.policy_ad(id, proc, now, None);
            Asked::new(&ad, now).lasting(self.lasted_ms(proc, now)).overruns().is_none()
        })
    }

    /// The ad that a job's expressions are evaluated against. `exit` is how its attempt just ended, if it did.
    fn policy_ad(&self, id: u32, proc: u32, now: Now, exit: Option<Exit>) -> ClassAd {
        let template = self.template.get();
        let ad = match &self.policies.needs {
            None => crate::shape::job_ad(&self.owner, &template, id, proc),
            Some(names) => {
                let shared = names.iter().filter_map(|n| Some((n.as_str(), template.shared(n)?)));
                crate::shape::ad_of(&self.owner, shared)
            }
        };
        self.with_progress(ad, (id, proc), now, exit)
    }

    /// The ad with what has become of the job so far.
    pub(crate) fn with_progress(
        &self,
        mut ad: ClassAd,
        (id, proc): (u32, u32),
        now: Now,
        exit: Option<Exit>,
    ) -> ClassAd {
        let past = self.past.get(&proc).copied().unwrap_or_default();
        let live = self.live.get(&proc);
        let hold = self.holds.iter().find(|h| h.procs.contains(proc));
        let started = live.and_then(|l| l.started_ms);
        let completed = self.completed.contains(proc);
        let (status, since_ms) = match (hold, started) {
            _ if completed => (4, past.since_ms.unwrap_or(self.submitted_ms)),
            (Some(hold), _) => (5, hold.since_ms),
            (None, Some(started_ms)) => (2, started_ms),
            (None, None) => (1, past.since_ms.unwrap_or(self.submitted_ms)),
        };
        let seconds = |ms: u64| (ms / 1000) as i64;
        let completions = past.completions + u32::from(exit.is_some());
        let wall_ms = past.wall_ms + exit.map_or(0, |e| e.wall_us / 1000);
        for (name, value) in [
            ("ClusterId", i64::from(id)),
            ("ProcId", i64::from(proc)),
            ("JobStatus", status),
            ("EnteredCurrentStatus", seconds(since_ms)),
            ("QDate", seconds(self.submitted_ms)),
            ("CurrentTime", seconds(now.wall_ms)),
            ("NumJobStarts", i64::from(past.starts)),
            ("NumShadowStarts", i64::from(self.times_begun(proc))),
            ("NumJobCompletions", i64::from(completions)),
            ("NumHolds", i64::from(past.holds)),
            ("NumSystemHolds", i64::from(past.system_holds)),
        ] {
            ad.insert_int(name, value);
        }
        ad.insert_real("RemoteWallClockTime", wall_ms as f64 / 1000.0);
        if let Some(started_ms) = started {
            ad.insert_int("JobCurrentStartDate", seconds(started_ms));
            ad.insert_int("JobCurrentStartExecutingDate", seconds(started_ms));
        }
        match self.extended.get(&proc) {
            Some(&more) => ad.insert_int(EXTENDED, more as i64),
            None => drop(ad.remove(EXTENDED)),
        }
        if completed {
            ad.insert_int("CompletionDate", seconds(since_ms));
        }
        for name in ["HoldReason", "HoldReasonCode", "HoldReasonSubCode"] {
            ad.remove(name);
        }
        if let Some(hold) = hold {
            ad.insert_str("HoldReason", &hold.reason);
            ad.insert_int("HoldReasonCode", i64::from(hold.code));
            ad.insert_int("HoldReasonSubCode", i64::from(hold.subcode));
        }
        if let Some(exit) = exit.or(past.exit) {
            ad.insert_bool("ExitBySignal", exit.signal.is_some());
            match (exit.signal, exit.code) {
                (Some(signal), _) => ad.insert_int("ExitSignal", i64::from(signal)),
                (None, Some(code)) => ad.insert_int("ExitCode", i64::from(code)),
                (None, None) => {}
            }
        }
        ad
    }
}

/// How far the look at periodic expressions has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    /// When the next one begins, by the monotonic clock.
    due_ms: u64,
    /// Where the present one goes on.
    next: Option<(u32, u32)>,
    /// Not before this moment.
    rests_until_ms: u64,
    /// Doubtful expressions that have been told of: of which cluster, which expression, which procs.
    told: BTreeMap<(u32, &'static str), ProcSet>,
    /// How many of these there were when those of clusters that are over were last forgotten.
    told_of_live: usize,
}

impl Round {
    pub(crate) fn is_under_way(&self) -> bool {
        self.next.is_some()
    }

    /// Forgets what was told of clusters that are over, whenever there is twice as much as was left the last time.
    fn forget_those_over(&mut self, queue: &Queue) {
        if self.told.len() > 2 * self.told_of_live + TOLD_AT_LEAST {
            self.told.retain(|(cluster, _), _| queue.clusters().contains_key(cluster));
            self.told_of_live = self.told.len();
        }
    }

    /// Tells of doubtful expressions, once for each job and expression.
    fn tell(&mut self, job: JobId, doubts: Doubts, out: &mut Out) {
        for (name, what) in doubts {
            if self.told.entry((job.cluster, name)).or_default().insert(job.proc) {
                out.warnings.push(format!("job {job}: its {name} is {what}, so that it has no effect"));
            }
        }
    }
}

/// An attempt ended by itself: records what becomes of the job. True when the job is idle again.
pub(crate) fn take_exit(
    books: &mut Books,
    round: &mut Round,
    turn: &mut Turn<'_>,
    claim: ClaimId,
    held: Attempt,
    exit: Exit,
    started_ms: u64,
) -> bool {
    let JobId { cluster: id, proc } = held.job();
    let asks = books.queue.clusters().get(&id).filter(|c| c.policies.at_exit);
    let mut stays = false;
    let mut doubts = Doubts::new();
    let verdict = asks.map_or(Verdict::Leave, |cluster| {
        let mut ad = cluster.policy_ad(id, proc, turn.now, Some(exit));
        let patient = cluster.is_within_limits(id, Some(proc), turn.now);
        // Its own machine says best how long it has run: the report may have been on its way for a while.
        let lasted_ms = Some(exit.wall_us / 1000).filter(|ms| *ms > 0).or(cluster.lasted_ms(proc, turn.now));
        let asked = Asked::new(&ad, turn.now).patient(patient).lasting(lasted_ms);
        let verdict = asked.at_exit();
        doubts = asked.doubts();
        if verdict == Verdict::Leave {
            ad.insert_int("JobStatus", 4);
            let seconds = (turn.now.wall_ms / 1000) as i64;
            ad.insert_int("EnteredCurrentStatus", seconds);
            ad.insert_int("CompletionDate", seconds);
            let asked = Asked::new(&ad, turn.now);
            stays = asked.forgotten().is_none();
            doubts.extend(asked.doubts());
        }
        verdict
    });
    round.tell(held.job(), doubts, turn.out);
    let (claim, cluster, procs) = (claim.0, id, vec![Span { first: proc, count: 1 }]);
    let kept = verdict == Verdict::Requeue;
    let kind = match verdict {
        Verdict::Requeue => {
            let reason = "OnExitRemove kept it in the queue".to_owned();
            Kind::JobsRequeued(JobsRequeued { claim, cluster, procs, reason, code: 0, exit: Some(exit) })
        }
        Verdict::Hold { reason, code, subcode } => {
            Kind::JobsHeld(JobsHeld { cluster, procs, reason, code, subcode, exit: Some(exit) })
        }
        Verdict::Remove { reason } => Kind::JobsRemoved(JobsRemoved { cluster, procs, reason }),
        Verdict::Leave | Verdict::Vacate { .. } | Verdict::Release { .. } | Verdict::Forget => {
            let attempt = held.attempt;
            Kind::JobExited(JobExited { claim, cluster, proc, attempt, exit, started_ms, stays })
        }
    };
    books.record(turn, kind);
    kept
}

/// Begins to look at the periodic expressions when it is time, or goes on with them: a limited number of jobs at once.
pub(crate) fn begin_look(settings: &Settings, queue: &Queue, round: &mut Round, now: Now) -> Walk {
    round.forget_those_over(queue);
    let mut walk = Walk { clusters: Vec::new().into_iter(), from: (0, 0), left: Portion::whole(), cut: None };
    if round.is_under_way() && now.mono_ms < round.rests_until_ms {
        return walk;
    }
    walk.from = match round.next.take() {
        Some(place) => place,
        None if now.mono_ms < round.due_ms || queue.periodic().is_empty() => return walk,
        None => {
            round.due_ms = now.mono_ms.saturating_add(settings.periodic_ms);
            (0, 0)
        }
    };
    walk.clusters = queue.periodic().range(walk.from.0..).copied().collect::<Vec<u32>>().into_iter();
    walk
}

/// What the periodic expressions of the next cluster say; `None` when all were asked, or enough for one tick.
pub(crate) fn judge_next(
    queue: &Queue,
    round: &mut Round,
    turn: &mut Turn<'_>,
    walk: &mut Walk,
) -> Option<(u32, Vec<(ProcSet, Verdict)>)> {
    if let Some(place) = walk.cut {
        // What was decided by now counts too.
        round.next = Some(place);
        round.rests_until_ms = turn.now.mono_ms + walk.left.rest_ms();
        return None;
    }
    let (id, cluster) = walk.clusters.find_map(|id| Some((id, queue.clusters().get(&id)?)))?;
    let from = if id == walk.from.0 { walk.from.1 } else { 0 };
    let patient = cluster.is_within_limits(id, None, turn.now);
    let mut look = Look { cluster, id, now: turn.now, patient, verdicts: Vec::new(), doubts: Vec::new() };
    walk.cut = look.from(from, &mut walk.left).map(|proc| (id, proc));
    let Look { mut verdicts, doubts, .. } = look;
    for (proc, doubts) in doubts {
        round.tell(JobId { cluster: id, proc }, doubts, turn.out);
    }
    verdicts.sort_by_key(|(procs, _)| procs.first());
    Some((id, verdicts))
}

/// Records what an expression decided. True when jobs were released, and are to be given away.
pub(crate) fn carry_out(
    books: &mut Books,
    turn: &mut Turn<'_>,
    cluster: u32,
    procs: &ProcSet,
    verdict: Verdict,
) -> bool {
    let Some(c) = books.queue.clusters().get(&cluster) else { return false };
    // All procs of one verdict are in one state: they were judged together or alone.
    let live = procs.first().is_some_and(|p| c.live.contains_key(&p));
    let spans = procs.spans();
    let kind = match verdict {
        Verdict::Vacate { reason } => {
            let codes = (vacate::FOR_ANOTHER, 0);
            orders::stop_live(books, turn, cluster, Some(procs), Afterwards::Idle, &reason, codes);
            return false;
        }
        Verdict::Hold { reason, code, subcode } if live => {
            let codes = (code, subcode);
            orders::stop_live(books, turn, cluster, Some(procs), Afterwards::Held, &reason, codes);
            return false;
        }
        Verdict::Remove { reason } if live => {
            orders::stop_live(books, turn, cluster, Some(procs), Afterwards::Removed, &reason, (0, 0));
            return false;
        }
        Verdict::Hold { reason, code, subcode } => {
            Kind::JobsHeld(JobsHeld { cluster, procs: spans, reason, code, subcode, exit: None })
        }
        Verdict::Forget => Kind::JobsLeft(JobsLeft { cluster, procs: spans }),
        Verdict::Remove { reason } => Kind::JobsRemoved(JobsRemoved { cluster, procs: spans, reason }),
        Verdict::Release { reason } => {
            let released = JobsReleased { cluster, procs: spans, reason };
            books.record(turn, Kind::JobsReleased(released));
            return true;
        }
        Verdict::Leave | Verdict::Requeue => return false,
    };
    books.record(turn, kind);
    false
}

/// A tick's way through the clusters with periodic expressions.
pub(crate) struct Walk {
    clusters: std::vec::IntoIter<u32>,
    /// The cluster where it begins, and the proc.
    from: (u32, u32),
    left: Portion,
    /// Where the next tick goes on, once enough was looked at.
    cut: Option<(u32, u32)>,
}

/// A look at the periodic expressions of a cluster.
struct Look<'a> {
    cluster: &'a Cluster,
    id: u32,
    now: Now,
    /// No run of it is too long.
    patient: bool,
    verdicts: Vec<(ProcSet, Verdict)>,
    doubts: Vec<(u32, Doubts)>,
}

impl Look<'_> {
    /// What they say of a proc.
    fn ask(&mut self, proc: u32) -> Option<Verdict> {
        let Look { cluster, id, now, patient, .. } = *self;
        let live = cluster.live.get(&proc);
        // One that is about to stop has been judged.
        if live.is_some_and(|l| l.stop.is_some()) {
            return None;
        }
        let running = live.is_some_and(|l| l.started_ms.is_some());
        let ad = cluster.policy_ad(id, proc, now, None);
        let asked = Asked::new(&ad, now).patient(patient).lasting(cluster.lasted_ms(proc, now));
        let verdict = if cluster.completed.contains(proc) {
            asked.forgotten()
        } else {
            asked.periodic(running, cluster.held.contains(proc))
        };
        let doubts = asked.doubts();
        if !doubts.is_empty() {
            self.doubts.push((proc, doubts));
        }
        verdict
    }

    /// Asks the procs from one on, and says where to go on when there are too many.
    fn from(&mut self, from: u32, left: &mut Portion) -> Option<u32> {
        let cluster = self.cluster;
        let rest = |spans: Vec<Span>| {
            let procs = spans.into_iter().flat_map(move |s| s.first.max(from)..s.procs().end.max(from));
            procs.take(JOBS_PER_TICK + 1)
        };
        let mut procs: BTreeSet<u32> = rest(cluster.held.spans()).collect();
        procs.extend(rest(cluster.completed.spans()));
        procs.extend(cluster.live.range(from..).map(|(p, _)| *p).take(JOBS_PER_TICK + 1));
        let mut idle = cluster.idle();
        if cluster.policies.uniform {
            // Idle procs without a past are all alike: one speaks for all.
            let with_past: Vec<u32> = cluster.past.keys().copied().filter(|p| idle.contains(*p)).collect();
            for proc in &with_past {
                idle.remove(*proc);
            }
            procs.extend(with_past.into_iter().filter(|p| *p >= from).take(JOBS_PER_TICK + 1));
            if let Some(verdict) = idle.first().filter(|_| from == 0).and_then(|p| self.ask(p)) {
                self.verdicts.push((idle, verdict));
            }
        } else {
            procs.extend(rest(idle.spans()));
        }
        for proc in procs {
            if !left.take_job() {
                return Some(proc);
            }
            if let Some(verdict) = self.ask(proc) {
                self.verdicts.push(([proc].into_iter().collect(), verdict));
            }
        }
        None
    }
}
