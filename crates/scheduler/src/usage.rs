//! Where the time of a real pool went: a projection of the journal.
//!
//! [`Ledger`] is fed the events in order and writes rows that tile the time of every slot from its first claim on: each
//! row begins where the one before ends. A slot is a place on a machine that claims come and go on (`slot1_2`). What the
//! journal does not know is not here: a machine that never had a claim has no rows, and that a machine was out of contact
//! is only known when its lease has run out, so the last stretch of a lost claim, as long as the lease, is counted as such.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::event::Kind;
use model::{Event, JobId, Span};

use crate::gang::metrics::{Spread, spread};

/// Vacate code of a lease that ran out.
const OUT_OF_CONTACT: u32 = 1008;

/// What a slot does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Nothing: nobody has a claim.
    Idle,
    /// A claim is there, and no process.
    Claimed,
    /// A job runs.
    Running,
    /// A job stands still for the machine's owner.
    Suspended,
    /// Out of contact.
    Lost,
}

impl What {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Lost => "lost",
        }
    }
}

/// A stretch of time of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Machine.
    pub machine: Arc<str>,
    /// Slot.
    pub slot: Arc<str>,
    /// From, in Unix milliseconds.
    pub from_ms: u64,
    /// To.
    pub to_ms: u64,
    /// What it did.
    pub what: What,
    /// For whom; empty when idle.
    pub user: Arc<str>,
    /// Which job.
    pub job: Option<JobId>,
    /// Cores that the claim has.
    pub cores: u32,
    /// The attempt came to nothing: its job must do this stretch again.
    pub wasted: bool,
}

impl Row {
    /// Its length.
    pub fn ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }

    fn core_ms(&self) -> u64 {
        self.ms() * u64::from(self.cores)
    }
}

/// A job that runs.
#[derive(Debug, Clone)]
struct Runs {
    job: JobId,
    /// First row of the attempt that would be lost with it.
    unsaved: usize,
}

#[derive(Debug)]
struct Open {
    machine: Arc<str>,
    slot: Arc<str>,
    user: Arc<str>,
    cores: u32,
    lease_ms: u64,
    since_ms: u64,
    what: What,
    runs: Option<Runs>,
}

/// The projection.
#[derive(Debug, Default)]
pub struct Ledger {
    rows: Vec<Row>,
    claims: HashMap<u64, Open>,
    /// Until when a slot's time is accounted for.
    slots: BTreeMap<(Arc<str>, Arc<str>), u64>,
    live: HashMap<JobId, u64>,
    submitted: HashMap<u32, (u64, Arc<str>)>,
    assigned: HashMap<JobId, u64>,
    /// (user, when, how long): submit to first start.
    waits: Vec<(Arc<str>, u64, u64)>,
    /// (when, how long): decision to start.
    deliveries: Vec<(u64, u64)>,
    /// (user, machine, when, succeeded).
    ends: Vec<(Arc<str>, Arc<str>, u64, bool)>,
    first_ms: Option<u64>,
    last_ms: u64,
}

impl Ledger {
    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let time = event.time_ms.max(self.last_ms);
        self.last_ms = time;
        self.first_ms.get_or_insert(time);
        match &event.kind {
            Some(Kind::ClusterSubmitted(e)) => {
                self.submitted.insert(e.cluster, (time, Arc::from(e.owner.as_str())));
            }
            Some(Kind::ClaimMade(e)) => {
                let (machine, slot): (Arc<str>, Arc<str>) =
                    (e.machine.as_str().into(), e.slot.as_str().into());
                let user = if e.submitter.is_empty() { &e.owner } else { &e.submitter };
                let before = self.slots.insert((machine.clone(), slot.clone()), time).unwrap_or(time);
                if before < time {
                    self.rows.push(idle(&machine, &slot, before, time));
                }
                self.claims.insert(
                    e.claim,
                    Open {
                        machine,
                        slot,
                        user: user.as_str().into(),
                        cores: e.resources.cpus,
                        lease_ms: e.lease_ms,
                        since_ms: time,
                        what: What::Claimed,
                        runs: None,
                    },
                );
            }
            Some(Kind::JobsAssigned(e)) => {
                for proc in e.procs.iter().flat_map(|s| s.procs()) {
                    let job = JobId { cluster: e.cluster, proc };
                    self.live.insert(job, e.claim);
                    self.assigned.insert(job, time);
                }
            }
            Some(Kind::JobStarted(e)) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                let Some(open) = self.claims.get(&e.claim) else { return };
                // The machine's clock is believed as far as it does not contradict ours.
                let at = e.started_ms.clamp(open.since_ms, time);
                let user = open.user.clone();
                self.turn(e.claim, at, What::Running, Some(Runs { job, unsaved: usize::MAX }));
                if let Some(assigned) = self.assigned.remove(&job) {
                    self.deliveries.push((at, at.saturating_sub(assigned)));
                }
                let submitted = self.submitted.get(&e.cluster).filter(|_| e.attempt == 1);
                if let Some((submitted, _)) = submitted {
                    self.waits.push((user, at, at.saturating_sub(*submitted)));
                }
            }
            Some(Kind::JobSuspended(e)) => self.again(e.claim, time, What::Suspended),
            Some(Kind::JobContinued(e)) => self.again(e.claim, time, What::Running),
            Some(Kind::JobCheckpointed(e)) => {
                if let Some(what) =
                    self.claims.get(&e.claim).filter(|o| o.runs.is_some()).map(|o| o.what.clone())
                {
                    // What was done so far is safe: a row ends here, and only later ones can be lost.
                    self.again(e.claim, time, what);
                    let next = self.rows.len();
                    if let Some(runs) = self.claims.get_mut(&e.claim).and_then(|o| o.runs.as_mut()) {
                        runs.unsaved = next;
                    }
                }
            }
            Some(Kind::JobExited(e)) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                let Some(open) = self.claims.get(&e.claim) else { return };
                let at = (e.started_ms + e.exit.wall_us / 1000).clamp(open.since_ms, time);
                self.ends.push((open.user.clone(), open.machine.clone(), at, e.exit.success()));
                self.end(job, at, false);
            }
            Some(Kind::JobsRequeued(e)) => {
                // An end that counts as a completion is no waste.
                self.end_all(e.cluster, &e.procs, time, e.exit.is_none(), e.code == OUT_OF_CONTACT);
            }
            Some(Kind::JobsHeld(e)) => self.end_all(e.cluster, &e.procs, time, e.exit.is_none(), false),
            Some(Kind::JobsRemoved(e)) => self.end_all(e.cluster, &e.procs, time, false, false),
            Some(Kind::ClaimEnded(e)) => {
                self.turn(e.claim, time, What::Idle, None);
                if let Some(open) = self.claims.remove(&e.claim) {
                    self.slots.insert((open.machine, open.slot), time);
                }
            }
            _ => {}
        }
    }

    fn end_all(&mut self, cluster: u32, procs: &[Span], time: u64, wasted: bool, lost: bool) {
        // Spans may be of a million jobs that wait; only those that a claim has can have run.
        if self.live.is_empty() {
            return;
        }
        for proc in procs.iter().flat_map(|s| s.procs()) {
            let job = JobId { cluster, proc };
            let Some(claim) = self.live.get(&job).copied() else { continue };
            let open = self.claims.get(&claim).filter(|o| o.runs.as_ref().is_some_and(|r| r.job == job));
            if let Some(open) = open.filter(|_| lost) {
                let at = time.saturating_sub(open.lease_ms).clamp(open.since_ms, time);
                self.again(claim, at, What::Lost);
            }
            self.end(job, time, wasted);
        }
    }

    /// An attempt ended.
    fn end(&mut self, job: JobId, at: u64, wasted: bool) {
        self.assigned.remove(&job);
        let Some(claim) = self.live.remove(&job) else { return };
        let runs = self.claims.get(&claim).and_then(|o| o.runs.clone()).filter(|r| r.job == job);
        let Some(runs) = runs else { return };
        self.turn(claim, at, What::Claimed, None);
        if wasted {
            for row in self.rows.iter_mut().skip(runs.unsaved).filter(|r| r.job == Some(job)) {
                row.wasted = true;
            }
        }
    }

    /// The same job in another state.
    fn again(&mut self, claim: u64, at: u64, what: What) {
        let runs = self.claims.get(&claim).and_then(|o| o.runs.clone());
        if runs.is_some() {
            self.turn(claim, at, what, runs);
        }
    }

    /// A claim's slot does something else from now on.
    fn turn(&mut self, claim: u64, at: u64, what: What, runs: Option<Runs>) {
        let Some(open) = self.claims.get_mut(&claim) else { return };
        if at > open.since_ms {
            self.rows.push(open.row(at));
        }
        open.since_ms = open.since_ms.max(at);
        open.what = what;
        open.runs = runs;
        if let Some(runs) = open.runs.as_mut().filter(|r| r.unsaved == usize::MAX) {
            runs.unsaved = self.rows.len();
        }
    }

    /// What came of it between two moments, as of `until_ms`.
    pub fn usage(&self, since_ms: Option<u64>, until_ms: u64, pick: impl Fn(&str, &str) -> bool) -> Usage {
        let from_ms = since_ms.or(self.first_ms).unwrap_or(until_ms).min(until_ms);
        let mut rows = self.rows.clone();
        rows.extend(self.claims.values().filter(|o| o.since_ms < until_ms).map(|o| o.row(until_ms)));
        let taken: std::collections::HashSet<_> =
            self.claims.values().map(|o| (o.machine.clone(), o.slot.clone())).collect();
        let free = self.slots.iter().filter(|(slot, at)| !taken.contains(slot) && **at < until_ms);
        rows.extend(free.map(|((machine, slot), at)| idle(machine, slot, *at, until_ms)));
        rows.retain_mut(|row| {
            row.from_ms = row.from_ms.max(from_ms);
            row.to_ms = row.to_ms.min(until_ms);
            row.from_ms < row.to_ms && pick(&row.machine, &row.user)
        });
        rows.sort_by(|a, b| (&a.machine, &a.slot, a.from_ms).cmp(&(&b.machine, &b.slot, b.from_ms)));

        let within = |at: u64| (from_ms..=until_ms).contains(&at);
        let mut machines: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        let mut users: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        for row in &rows {
            machines.entry(row.machine.clone()).or_default().add(row);
            if row.what != What::Idle {
                users.entry(row.user.clone()).or_default().add(row);
            }
        }
        let ends = self.ends.iter().filter(|(user, machine, at, _)| within(*at) && pick(machine, user));
        for (user, machine, _, succeeded) in ends {
            for totals in
                [machines.entry(machine.clone()).or_default(), users.entry(user.clone()).or_default()]
            {
                totals.ended += 1;
                totals.failed += u64::from(!succeeded);
            }
        }
        let waits = self.waits.iter().filter(|(_, at, _)| within(*at));
        let mut per_user: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        for (user, _, wait) in waits.filter(|(user, _, _)| users.contains_key(user)) {
            per_user.entry(user.clone()).or_default().push(*wait);
        }
        let all_waits: Vec<u64> = per_user.values().flatten().copied().collect();
        for (user, waits) in per_user {
            users.entry(user).or_default().waits = spread(waits);
        }
        let deliveries = self.deliveries.iter().filter(|(at, _)| within(*at)).map(|(_, ms)| *ms).collect();
        Usage {
            from_ms,
            until_ms,
            rows,
            machines,
            users,
            waits: spread(all_waits),
            deliveries: spread(deliveries),
        }
    }
}

impl Open {
    fn row(&self, to_ms: u64) -> Row {
        Row {
            machine: self.machine.clone(),
            slot: self.slot.clone(),
            from_ms: self.since_ms,
            to_ms,
            what: self.what.clone(),
            user: self.user.clone(),
            job: self.runs.as_ref().map(|r| r.job),
            cores: self.cores,
            wasted: false,
        }
    }
}

fn idle(machine: &Arc<str>, slot: &Arc<str>, from_ms: u64, to_ms: u64) -> Row {
    Row {
        machine: machine.clone(),
        slot: slot.clone(),
        from_ms,
        to_ms,
        what: What::Idle,
        user: Arc::from(""),
        job: None,
        cores: 0,
        wasted: false,
    }
}

/// Where the time went.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Since when.
    pub from_ms: u64,
    /// Until when.
    pub until_ms: u64,
    /// By machine, slot and time.
    pub rows: Vec<Row>,
    /// By machine.
    pub machines: BTreeMap<Arc<str>, Totals>,
    /// By user.
    pub users: BTreeMap<Arc<str>, Totals>,
    /// Submit to first start, in milliseconds.
    pub waits: Spread,
    /// Decision to start, in milliseconds.
    pub deliveries: Spread,
}

/// Sums; times in core-milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Jobs ran.
    pub running: u64,
    /// Claimed, and no process.
    pub claimed: u64,
    /// Jobs stood still.
    pub suspended: u64,
    /// Out of contact.
    pub lost: u64,
    /// Of all that, attempts that must be done again.
    pub wasted: u64,
    /// Jobs that ended by themselves.
    pub ended: u64,
    /// Of which not with code 0.
    pub failed: u64,
    /// Submit to first start, in milliseconds; only of users.
    pub waits: Spread,
}

impl Totals {
    fn add(&mut self, row: &Row) {
        let span = row.core_ms();
        match row.what {
            What::Idle => {}
            What::Claimed => self.claimed += span,
            What::Running => self.running += span,
            What::Suspended => self.suspended += span,
            What::Lost => self.lost += span,
        }
        if row.wasted {
            self.wasted += span;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::{
        ClaimEnded, ClaimMade, Exit, JobExited, JobStarted, JobsAssigned, JobsRequeued, Resources,
    };

    fn feed(ledger: &mut Ledger, time_ms: u64, kind: Kind) {
        ledger.take(&Event { time_ms, kind: Some(kind) });
    }

    fn made(claim: u64, slot: &str) -> Kind {
        Kind::ClaimMade(ClaimMade {
            claim,
            machine: "m".into(),
            slot: slot.into(),
            owner: "ann".into(),
            resources: Resources { cpus: 2, ..Resources::default() },
            lease_ms: 1_000,
            ..ClaimMade::default()
        })
    }

    #[test]
    fn rows_tile_the_time_of_a_slot_and_name_what_was_lost() {
        let mut l = Ledger::default();
        let procs = vec![Span { first: 0, count: 2 }];
        feed(&mut l, 1_000, made(1, "slot1_1"));
        feed(&mut l, 1_000, Kind::JobsAssigned(JobsAssigned { claim: 1, cluster: 7, procs }));
        let started = |proc, at| JobStarted { claim: 1, cluster: 7, proc, attempt: 1, started_ms: at };
        feed(&mut l, 1_100, Kind::JobStarted(started(0, 1_050)));
        let exit = Exit { code: Some(0), wall_us: 2_000_000, ..Exit::default() };
        let exited =
            JobExited { claim: 1, cluster: 7, proc: 0, attempt: 1, exit, started_ms: 1_050, stays: false };
        feed(&mut l, 3_100, Kind::JobExited(exited));
        feed(&mut l, 3_100, Kind::JobStarted(started(1, 3_060)));
        let requeued = |code| JobsRequeued {
            claim: 1,
            cluster: 7,
            procs: vec![Span { first: 1, count: 1 }],
            code,
            ..JobsRequeued::default()
        };
        feed(&mut l, 8_000, Kind::JobsRequeued(requeued(OUT_OF_CONTACT)));
        feed(&mut l, 8_000, Kind::ClaimEnded(ClaimEnded { claim: 1, reason: String::new() }));
        feed(&mut l, 9_000, made(2, "slot1_1"));
        let usage = l.usage(None, 10_000, |_, _| true);
        let rows: Vec<_> = usage.rows.iter().map(|r| (r.from_ms, r.to_ms, r.what.name(), r.wasted)).collect();
        assert_eq!(
            rows,
            [
                (1_000, 1_050, "claimed", false),
                (1_050, 3_050, "running", false),
                (3_050, 3_060, "claimed", false),
                (3_060, 7_000, "running", true),
                (7_000, 8_000, "lost", true),
                (8_000, 9_000, "idle", false),
                (9_000, 10_000, "claimed", false),
            ]
        );
        let totals = &usage.machines["m"];
        assert_eq!((totals.running, totals.wasted, totals.lost), (2 * 5_940, 2 * 4_940, 2_000));
        assert_eq!((totals.ended, totals.failed), (1, 0));
        assert_eq!(usage.deliveries.count, 2);
        // A window cuts rows, and never leaves a gap.
        let part = l.usage(Some(2_000), 5_000, |_, _| true);
        assert_eq!(part.rows.first().map(|r| r.from_ms), Some(2_000));
        assert_eq!(part.rows.last().map(|r| r.to_ms), Some(5_000));
        assert!(part.rows.windows(2).all(|w| w[0].to_ms == w[1].from_ms));
    }

    #[test]
    fn what_a_checkpoint_saved_is_not_wasted() {
        use model::event::JobCheckpointed;
        let mut l = Ledger::default();
        feed(&mut l, 0, made(1, "slot1_1"));
        let procs = vec![Span { first: 0, count: 1 }];
        feed(&mut l, 0, Kind::JobsAssigned(JobsAssigned { claim: 1, cluster: 1, procs: procs.clone() }));
        let started = JobStarted { claim: 1, cluster: 1, proc: 0, attempt: 1, started_ms: 0 };
        feed(&mut l, 0, Kind::JobStarted(started));
        let saved =
            JobCheckpointed { claim: 1, cluster: 1, proc: 0, attempt: 1, ..JobCheckpointed::default() };
        feed(&mut l, 600, Kind::JobCheckpointed(saved));
        let requeued = JobsRequeued { claim: 1, cluster: 1, procs, ..JobsRequeued::default() };
        feed(&mut l, 1_000, Kind::JobsRequeued(requeued));
        let usage = l.usage(None, 1_000, |_, _| true);
        assert_eq!((usage.machines["m"].running, usage.machines["m"].wasted), (2_000, 800));
    }
}
