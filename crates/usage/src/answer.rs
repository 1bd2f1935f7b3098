//! What the sums tell: by machine, lab, user and pool, and how long things took.

use std::collections::BTreeMap;

use model::Class;
use serde::{Deserialize, Serialize};

use crate::projection::Projection;
use crate::rows::Row;
use crate::spread::{Lengths, Spread};
use crate::sums::Cell;

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
    pub(crate) fn picks(&self, machine: &str, lab: &str, user: &str) -> bool {
        let is = |asked: &Option<String>, found: &str| asked.as_ref().is_none_or(|a| a == found);
        is(&self.machine, machine) && is(&self.lab, lab) && is(&self.user, user)
    }
}

/// Where the time went.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// All together.
    pub pool: Totals,
    /// By machine.
    pub machines: BTreeMap<String, Totals>,
    /// By lab.
    pub labs: BTreeMap<String, Totals>,
    /// By user.
    pub users: BTreeMap<String, Totals>,
    /// Submit to first start, by user.
    pub user_waits: BTreeMap<String, Spread>,
    /// Submit to first start, in milliseconds.
    pub waits: Spread,
    /// The same by class, user, and how many jobs start together.
    pub waits_by: BTreeMap<(Class, String, u32), Spread>,
    /// From when both a job waited and its machine had last changed, to the decision, in milliseconds. At most so: what else
    /// may have stood against a start (a limit, a quota, the throttle) is in it.
    pub decisions: Spread,
    /// Decision to start, in milliseconds.
    pub deliveries: Spread,
    /// Gangs that started later than promised at first, in milliseconds.
    pub promise_late: Spread,
    /// Gangs that started earlier, or in time.
    pub promise_early: Spread,
    /// How long machines stayed Broken that are so no more, in milliseconds.
    pub repairs: Spread,
    /// Starts that the consistency pass made; must be 0.
    pub lost_wakeups: u64,
}

/// Sums; times in core-milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Totals {
    /// All there was: cores times time.
    #[serde(rename = "capacity_core_ms")]
    pub capacity: u64,
    /// Nobody had it, and it was kept for nobody.
    #[serde(rename = "idle_core_ms")]
    pub idle: u64,
    /// Nobody had it because a gang gathers: what gangs cost.
    #[serde(rename = "idle_earmarked_core_ms")]
    pub idle_earmarked: u64,
    /// People had it by hand.
    #[serde(rename = "by_hand_core_ms")]
    pub by_hand: u64,
    /// Claimed, and nothing done for the job yet.
    #[serde(rename = "claimed_core_ms")]
    pub claimed: u64,
    /// Made ready for jobs: waiting and installing.
    #[serde(rename = "provisioning_core_ms")]
    pub provisioning: u64,
    /// Jobs ran, or their owners kept the machine.
    #[serde(rename = "running_core_ms")]
    pub running: u64,
    /// Of which kept after the process had ended.
    #[serde(rename = "reserved_core_ms")]
    pub reserved: u64,
    /// Of running, under a promise to others.
    #[serde(rename = "backfill_core_ms")]
    pub backfilled: u64,
    /// Jobs stood still.
    #[serde(rename = "suspended_core_ms")]
    pub suspended: u64,
    /// Out of contact.
    #[serde(rename = "lost_core_ms")]
    pub lost: u64,
    /// Of all that, attempts that must be done again.
    #[serde(rename = "wasted_core_ms")]
    pub wasted: u64,
    /// Of all that, the machine was Broken.
    #[serde(rename = "broken_core_ms")]
    pub broken: u64,
    /// Jobs that ended by themselves.
    pub ended: u64,
    /// Of which not with code 0.
    pub failed: u64,
}

impl Totals {
    /// The sums of a cell on a machine of so many cores.
    fn of(cell: &Cell, size: u32) -> Self {
        let mut totals = Self {
            capacity: 0,
            idle: cell.idle.core_ms(size),
            idle_earmarked: cell.idle_earmarked.core_ms(size),
            by_hand: cell.by_hand.core_ms(size),
            claimed: cell.claimed,
            provisioning: cell.provisioning,
            running: cell.running,
            reserved: cell.reserved,
            backfilled: cell.backfilled,
            suspended: cell.suspended,
            lost: cell.lost,
            wasted: cell.wasted,
            broken: cell.broken + cell.rest_broken.core_ms(size),
            ended: cell.ended,
            failed: cell.failed,
        };
        let had = totals.claimed + totals.provisioning + totals.running + totals.suspended + totals.lost;
        totals.capacity = had + totals.idle + totals.idle_earmarked + totals.by_hand;
        totals
    }

    fn add(&mut self, other: &Self) {
        self.capacity += other.capacity;
        self.idle += other.idle;
        self.idle_earmarked += other.idle_earmarked;
        self.by_hand += other.by_hand;
        self.claimed += other.claimed;
        self.provisioning += other.provisioning;
        self.running += other.running;
        self.reserved += other.reserved;
        self.backfilled += other.backfilled;
        self.suspended += other.suspended;
        self.lost += other.lost;
        self.wasted += other.wasted;
        self.broken += other.broken;
        self.ended += other.ended;
        self.failed += other.failed;
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

impl Projection {
    /// What came of it by the end of the window, or by a moment before that. Open rows count up to then, and are handed over
    /// with what is left of the others.
    pub fn finish(mut self, until_ms: u64, filter: &Filter, rows: impl FnMut(Row)) -> Usage {
        let until = until_ms.saturating_add_signed(self.shown_later_ms.saturating_neg()).min(self.until_ms);
        self.count_decided();
        for slot in 0..self.open.slots.len() as u32 {
            self.close_slot(slot, until);
            self.settle_rows(slot);
        }
        for machine in 0..self.open.machines.len() as u32 {
            self.close_rest(machine, until);
        }
        self.give_rows(rows);
        self.add_up(filter)
    }

    fn add_up(&self, filter: &Filter) -> Usage {
        let mut usage = Usage::default();
        let mut user_waits: BTreeMap<&str, Lengths> = BTreeMap::new();
        let mut waits_by: BTreeMap<(Class, &str, u32), Lengths> = BTreeMap::new();
        let mut waits = Lengths::default();
        let [mut decisions, mut deliveries, mut late, mut early, mut repairs] =
            std::array::from_fn(|_| Lengths::default());
        for cell in &self.sums.cells {
            let place = &self.open.machines[cell.machine as usize];
            let told = |name: u32| self.open.names[name as usize].as_str();
            let (machine, user) = (told(place.name), told(cell.user));
            let lab = told(self.lab_of(cell.machine, cell.lab));
            if !filter.picks(machine, lab, user) {
                continue;
            }
            let size = self.known.get(&place.name).map_or(0, |(_, cores)| *cores).max(place.most);
            let totals = Totals::of(cell, size);
            if cell.rows || cell.ended > 0 {
                usage.pool.add(&totals);
                usage.machines.entry(machine.to_owned()).or_default().add(&totals);
                usage.labs.entry(lab.to_owned()).or_default().add(&totals);
                if !user.is_empty() {
                    usage.users.entry(user.to_owned()).or_default().add(&totals);
                } else if cell.ended > 0 {
                    // Nobody's time is idle; an end of which the claim is not known any more is told all the same.
                    let ends = Totals { ended: cell.ended, failed: cell.failed, ..Totals::default() };
                    usage.users.entry(String::new()).or_default().add(&ends);
                }
            }
            for of in &cell.waits {
                let class = Class::ALL[(of.class as usize).min(Class::ALL.len() - 1)];
                waits.merge(&of.lengths);
                user_waits.entry(user).or_default().merge(&of.lengths);
                waits_by.entry((class, user, of.size)).or_default().merge(&of.lengths);
                usage.users.entry(user.to_owned()).or_default();
            }
            decisions.merge(&cell.decisions);
            deliveries.merge(&cell.deliveries);
            late.merge(&cell.late);
            early.merge(&cell.early);
            repairs.merge(&cell.repairs);
            usage.lost_wakeups += cell.swept;
        }
        usage.user_waits = user_waits.into_iter().map(|(user, l)| (user.to_owned(), l.spread())).collect();
        let named = |((class, user, size), l): ((Class, &str, u32), Lengths)| {
            ((class, user.to_owned(), size), l.spread())
        };
        usage.waits_by = waits_by.into_iter().map(named).collect();
        usage.waits = waits.spread();
        usage.decisions = decisions.spread();
        usage.deliveries = deliveries.spread();
        usage.promise_late = late.spread();
        usage.promise_early = early.spread();
        usage.repairs = repairs.spread();
        usage
    }
}
