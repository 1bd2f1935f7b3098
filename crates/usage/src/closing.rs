//! Rows close: they are added to the sums, and written down for whoever wants them.

use std::collections::HashMap;

use model::event::Condition;

use crate::answer::Filter;
use crate::open::{Name, Standing, Unsaved, job_of};
use crate::projection::Projection;
use crate::rows::{Row, What, condition_name};
use crate::sums::Stretch;

/// Rows, while somebody wants them.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) filter: Filter,
    pub(crate) closed: Vec<Row>,
    /// By slot: rows of an attempt that may still come to nothing.
    pub(crate) unsure: HashMap<u32, Vec<Row>>,
}

impl Projection {
    /// Has rows written from here on, for [`Self::give_rows`].
    pub fn want_rows(&mut self, filter: Filter) {
        self.rows = Some(Wanted { filter, closed: Vec::new(), unsure: HashMap::new() });
    }

    /// Hands over rows in the order in which they closed; those of an attempt when it is known whether it counts. Fetched
    /// after each event, they cost no memory.
    pub fn give_rows(&mut self, to: impl FnMut(Row)) {
        if let Some(wanted) = &mut self.rows {
            wanted.closed.drain(..).for_each(to);
        }
    }

    /// It is known whether what an attempt did since it was last saved counts.
    pub(crate) fn decide_attempt(&mut self, index: u32, wasted: bool) {
        let slot = &mut self.open.slots[index as usize];
        for part in std::mem::take(&mut slot.unsaved) {
            if wasted {
                self.sums.cell(slot.machine, part.lab, slot.now.user).wasted += part.core_ms;
            }
        }
        if let Some(wanted) = &mut self.rows {
            for mut row in wanted.unsure.remove(&index).unwrap_or_default() {
                row.wasted = wasted;
                wanted.closed.push(row);
            }
        }
    }

    /// Rows of an attempt that goes on are handed over as they stand.
    pub(crate) fn settle_rows(&mut self, slot: u32) {
        if let Some(wanted) = &mut self.rows {
            wanted.closed.extend(wanted.unsure.remove(&slot).unwrap_or_default());
        }
    }

    pub(crate) fn close_slot(&mut self, index: u32, at: u64) {
        let slot = &mut self.open.slots[index as usize];
        if at <= slot.since_ms {
            return;
        }
        let standing = self.open.machines[slot.machine as usize].standing;
        let now = slot.now;
        let row = Stretch {
            from_ms: slot.since_ms.max(self.from_ms),
            to_ms: at.min(self.until_ms),
            machine: slot.machine,
            lab: standing.lab,
            user: now.user,
            what: now.what(),
            condition: standing.condition,
            earmark: standing.earmark,
            cores: now.cores,
            backfill: now.backfill,
            reserved: now.reserved,
        };
        slot.since_ms = at;
        if row.from_ms >= row.to_ms {
            return;
        }
        self.sums.cell(row.machine, row.lab, row.user).add(&row);
        if now.job.is_some() {
            let core_ms = (row.to_ms - row.from_ms) * u64::from(row.cores);
            match slot.unsaved.iter_mut().find(|u| u.lab == row.lab) {
                Some(part) => part.core_ms += core_ms,
                None => slot.unsaved.push(Unsaved { lab: row.lab, core_ms }),
            }
        }
        let name = slot.name;
        self.write_row(&row, Some((index, name)), now.job, row.cores);
    }

    /// What no slot had until now. Its cores are what slots had: how much was left is known only in the end.
    pub(crate) fn close_rest(&mut self, index: u32, at: u64) {
        let machine = &mut self.open.machines[index as usize];
        // Who has it until a known time has it no longer afterwards, also if nobody says so.
        let Standing { lab, condition, earmark, held_by, held_until_ms } = machine.standing;
        let over = held_until_ms.unwrap_or(at).min(at).max(machine.since_ms);
        let parts = [(machine.since_ms, over, held_by), (over, at, 0)];
        let (claimed, most, name) = (machine.claimed, machine.most, machine.name);
        machine.since_ms = machine.since_ms.max(at);
        for (from_ms, to_ms, user) in parts {
            let row = Stretch {
                from_ms: from_ms.max(self.from_ms),
                to_ms: to_ms.min(self.until_ms),
                machine: index,
                lab,
                user,
                what: What::Idle,
                condition,
                earmark,
                cores: claimed,
                backfill: false,
                reserved: false,
            };
            if row.from_ms < row.to_ms {
                self.sums.cell(index, lab, user).add_rest(&row);
                let size = self.known.get(&name).map_or(0, |(_, cores)| *cores).max(most);
                self.write_row(&row, None, None, size - claimed);
            }
        }
    }

    /// Something about a machine changes for all its slots, and for what no slot has.
    pub(crate) fn rearrange(&mut self, machine: u32, at: u64, how: impl FnOnce(&mut Standing)) {
        let mut next = self.open.machines[machine as usize].standing;
        how(&mut next);
        if next == self.open.machines[machine as usize].standing {
            return;
        }
        for at_slot in 0..self.open.machines[machine as usize].slots.len() {
            let slot = self.open.machines[machine as usize].slots[at_slot];
            self.close_slot(slot, at);
        }
        self.close_rest(machine, at);
        self.open.machines[machine as usize].standing = next;
    }

    /// Slots of a machine have more or less than before.
    pub(crate) fn recount_claimed(&mut self, machine: u32, at: u64) {
        self.close_rest(machine, at);
        let place = &mut self.open.machines[machine as usize];
        place.claimed = place.slots.iter().map(|s| self.open.slots[*s as usize].now.cores).sum();
        place.most = place.most.max(place.claimed);
    }

    fn write_row(&mut self, row: &Stretch, slot: Option<(u32, Name)>, job: Option<u64>, cores: u32) {
        if self.rows.is_none() {
            return;
        }
        let told = |name: Name| self.open.names[name as usize].clone();
        let condition = Condition::try_from(row.condition).unwrap_or(Condition::Automated);
        let written = Row {
            machine: told(self.open.machines[row.machine as usize].name),
            slot: slot.map(|(_, name)| told(name)).unwrap_or_default(),
            lab: told(self.lab_of(row.machine, row.lab)),
            from_ms: self.shown(row.from_ms),
            to_ms: self.shown(row.to_ms),
            what: row.what,
            condition: condition_name(condition).to_owned(),
            earmark: row.earmark,
            user: told(row.user),
            job: job.map(job_of),
            cores,
            wasted: false,
            backfill: row.backfill,
            reserved: row.reserved,
        };
        let Some(wanted) = &mut self.rows else { return };
        if wanted.filter.picks(&written.machine, &written.lab, &written.user) {
            match slot.filter(|_| job.is_some()) {
                Some((slot, _)) => wanted.unsure.entry(slot).or_default().push(written),
                None => wanted.closed.push(written),
            }
        }
    }

    /// The lab of a stretch: where its machine was, or is, when it did not say.
    pub(crate) fn lab_of(&self, machine: u32, lab: Name) -> Name {
        if lab != 0 {
            return lab;
        }
        let place = &self.open.machines[machine as usize];
        let known = self.known.get(&place.name).map_or(0, |(lab, _)| *lab);
        if place.standing.lab == 0 { known } else { place.standing.lab }
    }
}
