//! What the rows tell: sums by machine, lab, user and pool, and how long things took.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::Condition;

use model::Class;

use super::{Ledger, Row, Sample, What};
use crate::{Filter, Spread, Totals};

/// Where the time went.
#[derive(Debug, Clone)]
pub(in crate::tests) struct Usage {
    /// By machine, slot and time.
    pub(in crate::tests) rows: Vec<Row>,
    /// All together.
    pub(in crate::tests) pool: Totals,
    /// By machine.
    pub(in crate::tests) machines: BTreeMap<Arc<str>, Totals>,
    /// By lab.
    pub(in crate::tests) labs: BTreeMap<Arc<str>, Totals>,
    /// By user.
    pub(in crate::tests) users: BTreeMap<Arc<str>, Totals>,
    pub(in crate::tests) user_waits: BTreeMap<Arc<str>, Spread>,
    /// Submit to first start, in milliseconds.
    pub(in crate::tests) waits: Spread,
    /// The same by class, user, and how many jobs start together.
    pub(in crate::tests) waits_by: BTreeMap<(Class, Arc<str>, u32), Spread>,
    /// From when both a job waited and its machine had last changed, to the decision, in milliseconds. At most so: what else
    /// may have stood against a start (a limit, a quota, the throttle) is in it.
    pub(in crate::tests) decisions: Spread,
    /// Decision to start, in milliseconds.
    pub(in crate::tests) deliveries: Spread,
    /// What gangs were promised at first, against when they started, in milliseconds.
    pub(in crate::tests) promise_late: Spread,
    pub(in crate::tests) promise_early: Spread,
    /// How long machines stayed Broken that are so no more, in milliseconds.
    pub(in crate::tests) repairs: Spread,
    /// Starts that the consistency pass made; must be 0.
    pub(in crate::tests) lost_wakeups: u64,
}

fn add(totals: &mut Totals, row: &Row) {
    let span = row.core_ms();
    totals.capacity += span;
    match row.what {
        What::Idle if !row.user.is_empty() => totals.by_hand += span,
        What::Idle if row.earmark.is_some() => totals.idle_earmarked += span,
        What::Idle => totals.idle += span,
        What::Claimed => totals.claimed += span,
        What::Waiting | What::Installing => totals.provisioning += span,
        What::Running => {
            totals.running += span;
            totals.reserved += if row.reserved { span } else { 0 };
            totals.backfilled += if row.backfill { span } else { 0 };
        }
        What::Suspended => totals.suspended += span,
        What::Lost => totals.lost += span,
    }
    totals.wasted += if row.wasted { span } else { 0 };
    totals.broken += if row.condition == Condition::Broken { span } else { 0 };
}

/// The spread of some lengths, exactly.
fn spread(mut lengths: Vec<u64>) -> Spread {
    lengths.sort_unstable();
    let at =
        |percent: usize| lengths.get(lengths.len() * percent / 100).or(lengths.last()).copied().unwrap_or(0);
    let sum: f64 = lengths.iter().map(|s| *s as f64).sum();
    Spread {
        count: lengths.len() as u64,
        mean: sum / lengths.len().max(1) as f64,
        p50: at(50),
        p99: at(99),
        longest: lengths.last().copied().unwrap_or(0),
    }
}

impl Ledger {
    /// What came of it between two moments, as of `until_ms`.
    pub(in crate::tests) fn usage(&self, since_ms: Option<u64>, until_ms: u64, filter: &Filter) -> Usage {
        let from_ms = since_ms.or(self.first_ms).unwrap_or(until_ms).min(until_ms);
        let rows = self.rows_within(from_ms, until_ms, filter);
        let mut pool = Totals::default();
        let mut machines: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        let mut labs: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        let mut users: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
        for row in &rows {
            add(&mut pool, row);
            add(machines.entry(row.machine.clone()).or_default(), row);
            add(labs.entry(row.lab.clone()).or_default(), row);
            if !row.user.is_empty() {
                add(users.entry(row.user.clone()).or_default(), row);
            }
        }
        let lab_of = |s: &Sample| match self.machines.get(&s.machine) {
            Some(place) if s.lab.is_empty() => place.standing.lab.clone(),
            _ => s.lab.clone(),
        };
        let counts = |s: &Sample| {
            (from_ms..=until_ms).contains(&s.at_ms) && filter.picks(&s.machine, &lab_of(s), &s.user)
        };
        for (succeeded, end) in self.ends.iter().filter(|(_, s)| counts(s)) {
            let of_machine = machines.entry(end.machine.clone()).or_default();
            let of_lab = labs.entry(lab_of(end)).or_default();
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
        for user in per_user.keys() {
            users.entry(user.clone()).or_default();
        }
        let user_waits = per_user.into_iter().map(|(user, waits)| (user, spread(waits))).collect();
        let all = |samples: &mut dyn Iterator<Item = &Sample>| {
            spread(samples.filter(|s| counts(s)).map(|s| s.ms).collect())
        };
        let promises = self.promises.iter().filter(|(_, s)| counts(s)).map(|(late_ms, _)| *late_ms);
        let (late, early): (Vec<i64>, Vec<i64>) = promises.partition(|late_ms| *late_ms > 0);
        let lengths = |spans: Vec<i64>| spread(spans.into_iter().map(i64::unsigned_abs).collect());
        Usage {
            rows,
            pool,
            machines,
            labs,
            users,
            user_waits,
            waits,
            waits_by: per_kind.into_iter().map(|(kind, waits)| (kind, spread(waits))).collect(),
            decisions: all(&mut self.decisions.iter().chain(self.deciding.iter().map(|(_, s)| s))),
            deliveries: all(&mut self.deliveries.iter()),
            promise_late: lengths(late),
            promise_early: lengths(early),
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
