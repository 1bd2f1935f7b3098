//! Usage rows: what every system was doing from when to when, so that the rows of a system tile time.
//!
//! Here rows are written and checked; what they tell is worked out in `metrics`. A row ends where the next begins, at one
//! timestamp. Rows of no length are kept, as pending ones count decisions; only lingering ones are not.

use std::sync::Arc;

use super::words::{Condition, Usage};
use super::{Class, SetId, Time};

/// A stretch of time in the life of a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which, by the order of arrival.
    pub system: usize,
    /// What it was meant for.
    pub condition: Condition,
    /// What it did.
    pub usage: Usage,
    /// For whom it was earmarked.
    pub earmark: Option<SetId>,
    /// Which recipe it had: set and place in it.
    pub recipe: Option<(SetId, usize)>,
    /// The recipe was over, the set was not; or the system was being released.
    pub lingering: bool,
    /// The recipe was started before its turn, under a promise.
    pub backfilled: bool,
    /// Who held it by hand.
    pub user: Option<Arc<str>>,
    /// From.
    pub start: Time,
    /// To; open while it lasts.
    pub finish: Option<Time>,
}

impl Row {
    /// How much of it lies in a window.
    pub fn within(&self, from: Time, to: Time) -> Time {
        self.finish.unwrap_or(to).min(to).saturating_sub(self.start.max(from))
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.condition == other.condition
            && self.usage == other.usage
            && self.earmark == other.earmark
            && self.recipe == other.recipe
            && self.lingering == other.lingering
            && self.user == other.user
    }
}

/// What is remembered of a set for the queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Which.
    pub set: SetId,
    /// Whose.
    pub owner: Arc<str>,
    /// As asked for.
    pub class: Class,
    /// Machine recipes.
    pub size: usize,
    /// When.
    pub submitted: Time,
    /// When it first had a plan, and the start it was promised.
    pub promised: Option<(Time, Time)>,
    /// When it first started.
    pub started: Option<Time>,
    /// When it was over.
    pub ended: Option<Time>,
    /// It started before its turn.
    pub backfilled: bool,
}

/// The book of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    rows: Vec<Row>,
    /// The open row of each system.
    open: Vec<usize>,
    marks: Vec<Mark>,
    /// Only what is open is kept; for searches that copy the state millions of times.
    forgetful: bool,
}

impl Book {
    /// An empty book; a forgetful one keeps open rows only.
    pub fn new(forgetful: bool) -> Self {
        Self { forgetful, ..Self::default() }
    }

    /// What is true of a system from now on. Nothing is written if it was true before.
    pub fn write(&mut self, row: Row) {
        let Some(&open) = self.open.get(row.system) else {
            self.open.push(self.rows.len());
            self.rows.push(row);
            return;
        };
        if self.rows[open].says_the_same(&row) {
            return;
        }
        // A set that ends with its last recipe does not linger: that row would be of no length, and count nothing.
        let lingered = self.rows[open].lingering && self.rows[open].start == row.start;
        if self.forgetful || lingered {
            self.rows[open] = row;
            return;
        }
        self.rows[open].finish = Some(row.start);
        self.open[row.system] = self.rows.len();
        self.rows.push(row);
    }

    /// All rows, in the order in which they were opened.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a system that is not over.
    pub fn open(&self, system: usize) -> Option<&Row> {
        self.open.get(system).map(|r| &self.rows[*r])
    }

    /// What is remembered of sets.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        if !self.forgetful {
            self.marks.push(mark);
        }
    }

    pub(super) fn mark_of(&mut self, set: SetId) -> Option<&mut Mark> {
        // Sets are marked in the order of their numbers.
        let at = self.marks.binary_search_by_key(&set, |m| m.set).ok()?;
        self.marks.get_mut(at)
    }
}

/// Gaps and overlaps, in words; none means that the rows of every system tile time from its beginning.
pub fn gaps(rows: &[Row]) -> Vec<String> {
    let mut last: std::collections::BTreeMap<usize, &Row> = std::collections::BTreeMap::new();
    let mut found = Vec::new();
    for row in rows {
        if let Some(before) = last.insert(row.system, row)
            && before.finish != Some(row.start)
        {
            found.push(format!(
                "system {}: a row ends at {:?}, the next begins at {}",
                row.system, before.finish, row.start
            ));
        }
        if row.finish.is_some_and(|f| f < row.start) {
            found.push(format!("system {}: a row ends before it begins", row.system));
        }
    }
    found.extend(
        last.values().filter(|r| r.finish.is_some()).map(|r| format!("system {}: no open row", r.system)),
    );
    found
}
