//! Rows added up: one [`Cell`] for each machine, lab and user that met, so that every filter can be asked of the sums.

use std::collections::HashMap;

use model::Class;
use model::event::Condition;
use prost::Message;

use crate::open::{Name, Sample};
use crate::rows::What;
use crate::spread::Lengths;

/// Time of what no slot has. How many cores that were is known when the size of the machine is: size times `ms`, less `claimed`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Rest {
    #[prost(uint64, tag = "1")]
    pub(crate) ms: u64,
    /// Core-milliseconds that slots had meanwhile.
    #[prost(uint64, tag = "2")]
    pub(crate) claimed: u64,
}

impl Rest {
    fn add(&mut self, ms: u64, claimed: u64) {
        self.ms += ms;
        self.claimed += claimed;
    }

    pub(crate) fn core_ms(&self, size: u32) -> u64 {
        (self.ms * u64::from(size)).saturating_sub(self.claimed)
    }
}

/// Waits of one class and size.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Waits {
    #[prost(uint32, tag = "1")]
    pub(crate) class: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) size: u32,
    #[prost(message, required, tag = "3")]
    pub(crate) lengths: Lengths,
}

/// Sums of one user on one machine while it was in one lab; times in core-milliseconds.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cell {
    /// Place in the list of machines.
    #[prost(uint32, tag = "1")]
    pub(crate) machine: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) lab: Name,
    #[prost(uint32, tag = "3")]
    pub(crate) user: Name,
    /// Rows were added, be they of nothing.
    #[prost(bool, tag = "4")]
    pub(crate) rows: bool,
    #[prost(uint64, tag = "5")]
    pub(crate) claimed: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) provisioning: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) running: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) reserved: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) backfilled: u64,
    #[prost(uint64, tag = "10")]
    pub(crate) suspended: u64,
    #[prost(uint64, tag = "11")]
    pub(crate) lost: u64,
    #[prost(uint64, tag = "12")]
    pub(crate) wasted: u64,
    #[prost(uint64, tag = "13")]
    pub(crate) broken: u64,
    #[prost(message, required, tag = "14")]
    pub(crate) idle: Rest,
    #[prost(message, required, tag = "15")]
    pub(crate) idle_earmarked: Rest,
    #[prost(message, required, tag = "16")]
    pub(crate) by_hand: Rest,
    #[prost(message, required, tag = "17")]
    pub(crate) rest_broken: Rest,
    #[prost(uint64, tag = "18")]
    pub(crate) ended: u64,
    #[prost(uint64, tag = "19")]
    pub(crate) failed: u64,
    #[prost(uint64, tag = "20")]
    pub(crate) swept: u64,
    #[prost(message, repeated, tag = "21")]
    pub(crate) waits: Vec<Waits>,
    #[prost(message, required, tag = "22")]
    pub(crate) decisions: Lengths,
    #[prost(message, required, tag = "23")]
    pub(crate) deliveries: Lengths,
    #[prost(message, required, tag = "24")]
    pub(crate) late: Lengths,
    #[prost(message, required, tag = "25")]
    pub(crate) early: Lengths,
    #[prost(message, required, tag = "26")]
    pub(crate) repairs: Lengths,
}

/// A row that closes, as far as sums ask.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) machine: u32,
    pub(crate) lab: Name,
    pub(crate) user: Name,
    pub(crate) what: What,
    pub(crate) condition: i32,
    pub(crate) earmark: Option<u32>,
    /// Cores of the claim; for what no slot has, cores that slots have.
    pub(crate) cores: u32,
    pub(crate) backfill: bool,
    pub(crate) reserved: bool,
}

impl Cell {
    /// Adds a row of a slot.
    pub(crate) fn add(&mut self, row: &Stretch) {
        let span = (row.to_ms - row.from_ms) * u64::from(row.cores);
        self.rows = true;
        match row.what {
            // A slot that nobody has is of no cores.
            What::Idle => {}
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
        self.broken += if row.condition == Condition::Broken as i32 { span } else { 0 };
    }

    /// Adds a row of what no slot has.
    pub(crate) fn add_rest(&mut self, row: &Stretch) {
        let ms = row.to_ms - row.from_ms;
        let claimed = ms * u64::from(row.cores);
        self.rows = true;
        let of = if row.user != 0 {
            &mut self.by_hand
        } else if row.earmark.is_some() {
            &mut self.idle_earmarked
        } else {
            &mut self.idle
        };
        of.add(ms, claimed);
        if row.condition == Condition::Broken as i32 {
            self.rest_broken.add(ms, claimed);
        }
    }

    pub(crate) fn add_wait(&mut self, class: u32, size: u32, ms: u64) {
        let class = class.min(Class::ALL.len() as u32 - 1);
        let at = self.waits.iter().position(|w| (w.class, w.size) == (class, size)).unwrap_or_else(|| {
            self.waits.push(Waits { class, size, lengths: Lengths::default() });
            self.waits.len() - 1
        });
        self.waits[at].lengths.add(ms);
    }

    fn buckets(&self) -> usize {
        let fixed = [&self.decisions, &self.deliveries, &self.late, &self.early, &self.repairs];
        fixed.into_iter().chain(self.waits.iter().map(|w| &w.lengths)).map(Lengths::buckets).sum()
    }
}

/// All cells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    pub(crate) cells: Vec<Cell>,
    at: HashMap<(u32, Name, Name), usize>,
}

impl Sums {
    pub(crate) fn from_cells(cells: Vec<Cell>) -> Self {
        let at = cells.iter().enumerate().map(|(at, c)| ((c.machine, c.lab, c.user), at)).collect();
        Self { cells, at }
    }

    pub(crate) fn cell(&mut self, machine: u32, lab: Name, user: Name) -> &mut Cell {
        let at = *self.at.entry((machine, lab, user)).or_insert_with(|| {
            self.cells.push(Cell { machine, lab, user, ..Cell::default() });
            self.cells.len() - 1
        });
        &mut self.cells[at]
    }

    pub(crate) fn of(&mut self, sample: &Sample) -> &mut Cell {
        self.cell(sample.machine, sample.lab, sample.user)
    }

    pub(crate) fn buckets(&self) -> usize {
        self.cells.iter().map(Cell::buckets).sum()
    }
}
