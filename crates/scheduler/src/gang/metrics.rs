//! What usage rows and marks tell: pure questions to plain data, so that whoever has rows can ask them.
//!
//! Rows come from `usage`; nothing is written here. Every question is about a window of time; open rows count up to its
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::usage::{Mark, Row};
use super::words::{Condition, Usage};
use super::{Class, Time};

/// Where the time of systems went. All in units of time, summed over systems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    /// Everything.
    pub wall: Time,
    /// In the pool and for nobody in particular.
    pub idle: Time,
    /// Idle because a gang gathers: the cost of gangs.
    pub idle_earmarked: Time,
    /// Waiting for a decision.
    pub pending: Time,
    /// Bound, and nothing done yet.
    pub scheduled: Time,
    /// Waiting and installing: provisioning.
    pub provisioning: Time,
    /// Running, with a recipe.
    pub running: Time,
    /// Of which the recipe was over and the set was not, or the system was being cleaned.
    pub lingering: Time,
    /// Of which under a promise, before its turn.
    pub backfilled: Time,
    /// Held by a user, whatever the user did.
    pub by_hand: Time,
    /// Condition Broken, whatever the usage.
    pub broken: Time,
}

impl Times {
    /// Share of the time that systems ran something, for recipes or users.
    pub fn utilisation(&self) -> f64 {
        ratio(self.running + self.by_hand, self.wall)
    }

    /// Provisioning per unit of running.
    pub fn provisioning_cost(&self) -> f64 {
        ratio(self.provisioning, self.running)
    }

    /// Share of held time that users had by hand.
    pub fn manual_share(&self) -> f64 {
        ratio(self.by_hand, self.by_hand + self.running)
    }
}

fn ratio(part: Time, whole: Time) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Where the time went between `from` and `to`, for the systems that `which` picks (one, a lab, all).
pub fn times(rows: &[Row], from: Time, to: Time, which: impl Fn(usize) -> bool) -> Times {
    let mut times = Times::default();
    for row in rows.iter().filter(|r| which(r.system)) {
        let span = row.within(from, to);
        times.wall += span;
        if row.condition == Condition::Broken {
            times.broken += span;
        }
        if row.user.is_some() {
            times.by_hand += span;
            continue;
        }
        match row.usage {
            Usage::Idle if row.earmark.is_some() => times.idle_earmarked += span,
            Usage::Idle => times.idle += span,
            Usage::Pending => times.pending += span,
            Usage::Scheduled => times.scheduled += span,
            Usage::Waiting | Usage::Installing => times.provisioning += span,
            Usage::Running => {
                times.running += span;
                if row.lingering {
                    times.lingering += span;
                }
                if row.backfilled {
                    times.backfilled += span;
                }
            }
        }
    }
    times
}

/// Half, and all but one in a hundred, are no longer than these.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: Time,
    /// One in a hundred is longer.
    pub p99: Time,
    /// The longest.
    pub longest: Time,
}

/// The spread of some spans.
pub fn spread(mut spans: Vec<Time>) -> Spread {
    spans.sort_unstable();
    let at = |percent: usize| spans.get(spans.len() * percent / 100).or(spans.last()).copied().unwrap_or(0);
    let sum: f64 = spans.iter().map(|s| *s as f64).sum();
    Spread {
        count: spans.len(),
        mean: sum / spans.len().max(1) as f64,
        p50: at(50),
        p99: at(99),
        longest: spans.last().copied().unwrap_or(0),
    }
}

/// How long systems waited for a decision. More than one pass is a fault unless the lab was off.
pub fn decision_latency(rows: &[Row], from: Time, to: Time) -> Spread {
    let pending = rows.iter().filter(|r| r.usage == Usage::Pending && (from..=to).contains(&r.start));
    spread(pending.filter_map(|r| r.finish.map(|f| f - r.start)).collect())
}

/// Repairs that were finished in the window: how long systems stayed Broken.
pub fn repairs(rows: &[Row], from: Time, to: Time) -> Spread {
    let mut since: BTreeMap<usize, Time> = BTreeMap::new();
    let mut spans = Vec::new();
    for row in rows {
        if row.condition == Condition::Broken {
            since.entry(row.system).or_insert(row.start);
        } else if let Some(start) = since.remove(&row.system)
            && (from..=to).contains(&row.start)
        {
            spans.push(row.start - start);
        }
    }
    spread(spans)
}

/// How long sets waited, by class, owner and number of seats.
pub fn queue_waits(marks: &[Mark], from: Time, to: Time) -> BTreeMap<(Class, Arc<str>, usize), Spread> {
    let mut waits: BTreeMap<(Class, Arc<str>, usize), Vec<Time>> = BTreeMap::new();
    for mark in marks.iter().filter(|m| (from..=to).contains(&m.submitted)) {
        if let Some(started) = mark.started {
            let key = (mark.class, mark.owner.clone(), mark.size);
            waits.entry(key).or_default().push(started.saturating_sub(mark.submitted));
        }
    }
    waits.into_iter().map(|(key, spans)| (key, spread(spans))).collect()
}

/// First promises against real starts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PromiseError {
    /// Gangs that started later, and by how much.
    pub late: Spread,
    /// Gangs that started earlier, or in time.
    pub early: Spread,
}

/// How good first promises were. Better-ranked sets and faults may move a start; nothing else may.
pub fn promise_error(marks: &[Mark]) -> PromiseError {
    let pairs = marks.iter().filter_map(|m| Some((m.promised?.1, m.started?)));
    let (late, early): (Vec<_>, Vec<_>) = pairs.partition(|(promised, started)| started > promised);
    PromiseError {
        late: spread(late.into_iter().map(|(p, s)| s - p).collect()),
        early: spread(early.into_iter().map(|(p, s)| p - s).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::{Desk, Event, RecipeSpec, SetSpec, Settings, Step, SystemSpec};
    use super::super::host::Host;
    use super::*;

    /// The example of the reference, to the minute.
    #[test]
    fn the_rows_of_one_recipe_are_those_of_the_example() {
        let mut desk = Desk::new(Settings::default());
        desk.handle(0, &Event::LabAdded { lab: "L1".into(), trees: ["T".to_owned()].into() });
        let system = SystemSpec { name: "A".into(), lab: "L1".into(), ..SystemSpec::default() };
        desk.handle(0, &Event::SystemAdded(system));
        let recipe = RecipeSpec {
            name: "x1".into(),
            host: Host::Is("A".into()),
            tree: "T".into(),
            own_tree: false,
            force: None,
            prefer: Vec::new(),
            guests: Vec::new(),
        };
        let set = SetSpec {
            name: "X".into(),
            owner: "u".into(),
            class: Class::Normal,
            run: Some(60),
            reserve: 0,
            retry: None,
            penalty: 0,
            early_release: false,
            strict_watchdog: false,
            labs: Vec::new(),
            recipes: vec![recipe],
        };
        desk.handle(10, &Event::Submit(Box::new(set)));
        for (at, step) in [(11, Step::Waiting), (13, Step::Installing), (25, Step::Running), (55, Step::Done)]
        {
            desk.handle(at, &Event::Progress { set: "X".into(), recipe: None, attempt: Some(1), step });
        }
        let rows: Vec<(&str, Time, Option<Time>)> =
            desk.book().rows().iter().map(|r| (r.usage.name(), r.start, r.finish)).collect();
        let expected = [
            ("pending", 0, Some(0)),
            ("idle", 0, Some(10)),
            ("scheduled", 10, Some(11)),
            ("waiting", 11, Some(13)),
            ("installing", 13, Some(25)),
            ("running", 25, Some(55)),
            ("pending", 55, Some(55)),
            ("idle", 55, None),
        ];
        assert_eq!(rows, expected);
        let spent = times(desk.book().rows(), 0, 100, |_| true);
        assert_eq!((spent.wall, spent.running, spent.provisioning, spent.scheduled), (100, 30, 14, 1));
        assert_eq!((spent.idle, spent.pending), (55, 0));
        assert!((spent.utilisation() - 0.3).abs() < 1e-9);
        assert_eq!(decision_latency(desk.book().rows(), 0, 100).count, 2);
        let waits = queue_waits(desk.book().marks(), 0, 100);
        assert_eq!(waits[&(Class::Normal, Arc::from("u"), 1)].longest, 0);
    }

    #[test]
    fn spreads_of_nothing_are_nothing() {
        assert_eq!(spread(Vec::new()), Spread::default());
        let s = spread((1..=100).collect());
        assert_eq!((s.p50, s.p99, s.longest), (51, 100, 100));
    }
}
