//! What the rows tell: sums by machine, lab, user and pool, and how long things took.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::Condition;

use super::{Ledger, Row, Sample, What};
use crate::gang::Class;
use crate::gang::metrics::{PromiseError, Spread, spread};

/// What is asked about; nothing set means everything.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only machines of this lab.
    pub lab: Option<String>,
    /// Only this machine.
    pub machine: Option<String>,
    /// Only what was done for this user.
    pub user: Option<String>,
}

impl Filter {
    fn picks(&self, machine: &str, lab: &str, user: &str) -> bool {
        let is = |asked: &Option<String>, found: &str| asked.as_ref().is_none_or(|a| a == found);
        is(&self.machine, machine) && is(&self.lab, lab) && is(&self.user, user)
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
    /// All together.
    pub pool: Totals,
    /// By machine.
    pub machines: BTreeMap<Arc<str>, Totals>,
    /// By lab.
    pub labs: BTreeMap<Arc<str>, Totals>,
    /// By user.
    pub users: BTreeMap<Arc<str>, Totals>,
    /// Submit to first start, in milliseconds.
    pub waits: Spread,
    /// The same by class, user, and how many jobs start together.
    pub waits_by: BTreeMap<(Class, Arc<str>, u32), Spread>,
    /// From when both a job waited and its machine had last changed, to the decision, in milliseconds. At most so: what else
    /// may have stood against a start (a limit, a quota, the throttle) is in it.
    pub decisions: Spread,
    /// Decision to start, in milliseconds.
    pub deliveries: Spread,
    /// What gangs were promised at first, against when they started, in milliseconds.
    pub promises: PromiseError,
    /// How long machines stayed Broken that are so no more, in milliseconds.
    pub repairs: Spread,
    /// Starts that the consistency pass made; must be 0.
    pub lost_wakeups: u64,
}

/// Sums; times in core-milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// All there was: cores times time.
    pub capacity: u64,
    /// Nobody had it, and it was kept for nobody.
    pub idle: u64,
    /// Nobody had it because a gang gathers: what gangs cost.
    pub idle_earmarked: u64,
    /// People had it by hand.
    pub by_hand: u64,
    /// Claimed, and nothing done for the job yet.
    pub claimed: u64,
    /// Made ready for jobs: waiting and installing.
    pub provisioning: u64,
    /// Jobs ran, or their owners kept the machine.
    pub running: u64,
    /// Of which kept after the process had ended.
    pub reserved: u64,
    /// Of running, under a promise to others.
    pub backfilled: u64,
    /// Jobs stood still.
    pub suspended: u64,
    /// Out of contact.
    pub lost: u64,
    /// Of all that, attempts that must be done again.
    pub wasted: u64,
    /// Of all that, the machine was Broken.
    pub broken: u64,
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
        self.capacity += span;
        match row.what {
            What::Idle if !row.user.is_empty() => self.by_hand += span,
            What::Idle if row.earmark.is_some() => self.idle_earmarked += span,
            What::Idle => self.idle += span,
            What::Claimed => self.claimed += span,
            What::Waiting | What::Installing => self.provisioning += span,
            What::Running => {
                self.running += span;
                self.reserved += if row.reserved { span } else { 0 };
                self.backfilled += if row.backfill { span } else { 0 };
            }
            What::Suspended => self.suspended += span,
            What::Lost => self.lost += span,
        }
        self.wasted += if row.wasted { span } else { 0 };
        self.broken += if row.condition == Condition::Broken { span } else { 0 };
    }

    /// Part of all there was that jobs or people used; `None` when there was nothing.
    pub fn utilisation(&self) -> Option<f64> {
        ratio(self.running + self.by_hand, self.capacity)
    }

    /// Provisioning per unit of running.
    pub fn provisioning_cost(&self) -> Option<f64> {
        ratio(self.provisioning, self.running)
    }

    /// Part of what was used that people had by hand.
    pub fn manual_share(&self) -> Option<f64> {
        ratio(self.by_hand, self.by_hand + self.running)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Ledger {
    /// What came of it between two moments, as of `until_ms`.
    pub fn usage(&self, since_ms: Option<u64>, until_ms: u64, filter: &Filter) -> Usage {
        let from_ms = since_ms.or(self.first_ms).unwrap_or(until_ms).min(until_ms);
        let rows = self.rows_within(from_ms, until_ms, filter);
        let mut pool = Totals::default();
        let mut machines: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        let mut labs: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        let mut users: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        for row in &rows {
            pool.add(row);
            machines.entry(row.machine.clone()).or_default().add(row);
            labs.entry(row.lab.clone()).or_default().add(row);
            if !row.user.is_empty() {
                users.entry(row.user.clone()).or_default().add(row);
            }
        }
        let counts =
            |s: &Sample| (from_ms..=until_ms).contains(&s.at_ms) && filter.picks(&s.machine, &s.lab, &s.user);
        for (succeeded, end) in self.ends.iter().filter(|(_, s)| counts(s)) {
            let of_machine = machines.entry(end.machine.clone()).or_default();
            let of_lab = labs.entry(end.lab.clone()).or_default();
            let of_user = users.entry(end.user.clone()).or_default();
            for totals in [&mut pool, of_machine, of_lab, of_user] {
                totals.ended += 1;
                totals.failed += u64::from(!succeeded);
            }
        }
        let mut per_user: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        let mut per_kind: BTreeMap<(Class, Arc<str>, u32), Vec<u64>> = BTreeMap::new();
        for (class, size, wait) in self.waits.iter().filter(|(_, _, s)| counts(s)) {
            per_user.entry(wait.user.clone()).or_default().push(wait.ms);
            per_kind.entry((*class, wait.user.clone(), *size)).or_default().push(wait.ms);
        }
        let waits = spread(per_user.values().flatten().copied().collect());
        for (user, waits) in per_user {
            users.entry(user).or_default().waits = spread(waits);
        }
        let all = |samples: &mut dyn Iterator<Item = &Sample>| {
            spread(samples.filter(|s| counts(s)).map(|s| s.ms).collect())
        };
        let promises = self.promises.iter().filter(|(_, s)| counts(s)).map(|(late_ms, _)| *late_ms);
        let (late, early): (Vec<i64>, Vec<i64>) = promises.partition(|late_ms| *late_ms > 0);
        let lengths = |spans: Vec<i64>| spread(spans.into_iter().map(i64::unsigned_abs).collect());
        Usage {
            from_ms,
            until_ms,
            rows,
            pool,
            machines,
            labs,
            users,
            waits,
            waits_by: per_kind.into_iter().map(|(kind, waits)| (kind, spread(waits))).collect(),
            decisions: all(&mut self.decisions.iter().chain(self.deciding.iter().map(|(_, s)| s))),
            deliveries: all(&mut self.deliveries.iter()),
            promises: PromiseError { late: lengths(late), early: lengths(early) },
            repairs: all(&mut self.repairs.iter()),
            lost_wakeups: self.swept.iter().filter(|s| counts(s)).count() as u64,
        }
    }

    /// Rows cut to a window, open ones up to its end, by machine, slot and time.
    fn rows_within(&self, from_ms: u64, until_ms: u64, filter: &Filter) -> Vec<Row> {
        let open = self.slots.iter().filter_map(|slot| {
            let place = self.machines.get(&slot.machine)?;
            (slot.since_ms < until_ms).then(|| slot.row(place, until_ms))
        });
        let rest = self.machines.iter().flat_map(|(name, place)| place.rest(name, until_ms));
        let mut rows: Vec<Row> = self.rows.iter().cloned().chain(open).chain(rest).collect();
        rows.retain_mut(|row| {
            row.from_ms = row.from_ms.max(from_ms);
            row.to_ms = row.to_ms.min(until_ms);
            let place = self.machines.get(&row.machine);
            if let Some(place) = place.filter(|_| row.lab.is_empty()) {
                row.lab = place.standing.lab.clone();
            }
            if let Some(place) = place.filter(|_| row.slot.is_empty()) {
                // Until here it was what slots had.
                row.cores = place.cores.unwrap_or(0).max(place.most) - row.cores;
            }
            row.from_ms < row.to_ms && filter.picks(&row.machine, &row.lab, &row.user)
        });
        rows.sort_by(|a, b| (&a.machine, &a.slot, a.from_ms).cmp(&(&b.machine, &b.slot, b.from_ms)));
        rows
    }
}
