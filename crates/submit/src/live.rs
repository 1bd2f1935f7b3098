//! Macros that differ from job to job, and the scope in which keywords are read.
//!
//! A keyword is first read *symbolically*: `$(ProcId)`, `$(Item)` and friends become stand-in characters, and if the
//! keyword only moves them around, one pattern serves a million jobs. Where a value is looked into (a function, a
//! number, quoting that depends on it) the answer is [`Stop::NotYet`], and the caller asks again job by job.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use config::expand::{ExpandError, Names, Problem, Value, expand, is_mark};
use config::{Diagnostic, MacroSet};
use model::template::Column;

use crate::files::{Context, Files};

pub(crate) const CLUSTER: char = '\u{F0000}';
pub(crate) const PROC: char = '\u{F0001}';
pub(crate) const STEP: char = '\u{F0002}';
pub(crate) const ROW: char = '\u{F0003}';
const COLUMN: u32 = 0xF0010;

/// The stand-in of a column.
pub(crate) fn column_mark(index: usize) -> char {
    char::from_u32(COLUMN + index as u32).unwrap_or(ROW)
}

/// The column behind a stand-in.
pub(crate) fn mark_column(mark: char) -> Option<usize> {
    (is_mark(mark) && mark as u32 >= COLUMN).then(|| (mark as u32 - COLUMN) as usize)
}

/// What is true for every entry of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    /// No entry is empty.
    pub(crate) filled: bool,
    /// No blanks, quotes, backslashes, controls, dollars: can stand inside a word of any form.
    pub(crate) plain: bool,
    /// No quotes, backslashes, controls, dollars: can stand inside a quoted text.
    pub(crate) quotable: bool,
    /// A decimal number without sign or leading zero.
    pub(crate) number: bool,
    /// Not empty, and no blanks but single ones between words.
    pub(crate) spaced: bool,
    /// Begins with a slash.
    pub(crate) absolute: bool,
    /// Does not begin with a slash.
    pub(crate) relative: bool,
    /// Holds no stand-in character.
    pub(crate) unmarked: bool,
}

impl Traits {
    pub(crate) fn of(column: &Column) -> Self {
        let mut t = Self {
            filled: true,
            plain: true,
            quotable: true,
            number: true,
            spaced: true,
            absolute: true,
            relative: true,
            unmarked: true,
        };
        for row in 0..column.len() {
            let entry = column.get(row);
            t.filled &= !entry.is_empty();
            let slash = entry.starts_with('/');
            t.absolute &= slash;
            t.relative &= !slash;
            let digits = entry.bytes().all(|b| b.is_ascii_digit()) && !entry.is_empty();
            t.number &= digits && entry.len() <= 18 && (entry.len() == 1 || !entry.starts_with('0'));
            if digits {
                continue;
            }
            t.spaced &= !entry.starts_with(' ') && !entry.ends_with(' ') && !entry.contains("  ");
            t.quotable &= !entry.bytes().any(|b| matches!(b, b'"' | b'\\' | b'$' | 0..=31 | 127));
            t.plain &= !entry.bytes().any(|b| matches!(b, b'"' | b'\\' | b'$' | b'\'' | 0..=32 | 127));
            // Only the first byte of a plane-15 character is 0xF3.
            if entry.as_bytes().contains(&0xF3) {
                t.unmarked &= !entry.chars().any(is_mark);
            }
        }
        t.plain &= t.filled;
        t.spaced &= t.filled;
        t
    }
}

/// The table behind one queue statement.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Variable names, in lower case.
    pub(crate) names: Vec<String>,
    pub(crate) columns: Vec<Column>,
    pub(crate) traits: Vec<Traits>,
    pub(crate) rows: u32,
    pub(crate) per_row: u32,
    /// Proc number of this table's first job.
    pub(crate) first: u32,
    /// A variable with the name of a keyword is that keyword: so in the submit language, not in the native form.
    pub(crate) names_are_keywords: bool,
}

impl Table {
    pub(crate) fn procs(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.per_row)
    }
}

/// How live macros are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As stand-ins.
    Symbolic,
    /// As the values of one job, counted from the table's first; the cluster id may still be a stand-in.
    Job {
        /// Which job.
        job: u32,
        /// The cluster id, once it must be known.
        cluster: Option<u32>,
    },
}

/// Why a keyword could not be turned into attributes.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It depends on a value that has only a stand-in now.
    NotYet,
    /// It is wrong.
    Wrong(Box<Diagnostic>),
}

impl From<Diagnostic> for Stop {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Wrong(Box::new(diagnostic))
    }
}

/// The result of reading keywords.
pub(crate) type Read<T> = Result<T, Stop>;

/// Everything that reading a keyword can see.
pub(crate) struct Scope<'a> {
    pub(crate) set: &'a MacroSet,
    pub(crate) table: &'a Table,
    pub(crate) context: &'a Context,
    pub(crate) files: &'a dyn Files,
    pub(crate) submit_file: &'a str,
    pub(crate) mode: Mode,
    /// Names that were looked up, in lower case.
    pub(crate) used: &'a RefCell<HashSet<String>>,
    /// Set when something was read that differs between the jobs of one row.
    pub(crate) within_row: &'a Cell<bool>,
    /// Set when a keyword was read that `--set` gave.
    pub(crate) overridden: &'a Cell<bool>,
    pub(crate) draws: &'a Cell<u64>,
}

/// What must hold for the columns in a text that is only moved around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Safe {
    /// Inside a word.
    Plain,
    /// Inside a quoted text; not empty at its ends.
    Quotable,
    /// Inside a quoted text whose blanks are made single.
    Spaced,
    /// Nothing may differ between jobs, or it must be read job by job.
    Known,
}

impl Scope<'_> {
    /// The expanded, trimmed value of the first of these keywords that is defined; `None` for none or empty.
    pub(crate) fn get(&self, names: &[&str]) -> Read<Option<String>> {
        let definition = self.definition(names);
        let is_override = definition.is_some_and(|d| self.set.is_pinned(&d.name));
        self.overridden.set(self.overridden.get() || is_override);
        // `queue input, arguments from ...`: a variable is a keyword where it has the name of one.
        let is_variable = |n: &&&str| self.table.names.iter().any(|t| t.eq_ignore_ascii_case(n));
        let variable = names.iter().find(is_variable).filter(|_| self.table.names_are_keywords);
        let value = match (variable, definition) {
            (Some(name), _) if !is_override => self.expand(name, &format!("$({name})"))?,
            (_, Some(definition)) => {
                self.note(&definition.name);
                self.expand(&definition.name, &definition.raw)?
            }
            _ => return Ok(None),
        };
        let trimmed = value.trim();
        Ok(if trimmed.is_empty() {
            None
        } else if trimmed.len() == value.len() {
            Some(value)
        } else {
            Some(trimmed.to_owned())
        })
    }

    /// The definition that counts among the spellings of a keyword: the first, unless `--set` gave another of them.
    fn definition(&self, names: &[&str]) -> Option<&config::Definition> {
        let defined = || names.iter().filter_map(|name| self.set.get(name));
        defined().find(|d| self.set.is_pinned(&d.name)).or_else(|| defined().next())
    }

    /// As [`Scope::get`], for a value that is looked into.
    pub(crate) fn known(&self, names: &[&str]) -> Read<Option<String>> {
        let Some(value) = self.get(names)? else { return Ok(None) };
        self.require(Safe::Known, &value)?;
        Ok(Some(value))
    }

    /// A keyword that is true or false.
    pub(crate) fn boolean(&self, names: &[&str]) -> Read<Option<bool>> {
        let Some(value) = self.known(names)? else { return Ok(None) };
        let plain = match value.to_ascii_lowercase().as_str() {
            "yes" | "t" => Some(true),
            "no" | "f" => Some(false),
            _ => config::scalar::evaluate_at(&value, self.context.now).ok().and_then(|v| v.as_bool()),
        };
        plain.map(Some).ok_or_else(|| self.wrong(names, &format!("must be true or false, not {value:?}")))
    }

    /// A keyword that is a whole number.
    pub(crate) fn integer(&self, names: &[&str]) -> Read<Option<i64>> {
        let Some(value) = self.known(names)? else { return Ok(None) };
        let number = match value.parse::<i64>() {
            Ok(number) => Some(number),
            Err(_) => config::scalar::evaluate_at(&value, self.context.now).ok().and_then(|v| match v {
                config::scalar::Scalar::Int(n) => Some(n),
                config::scalar::Scalar::Real(r) => Some(r as i64),
                _ => None,
            }),
        };
        number.map(Some).ok_or_else(|| self.wrong(names, &format!("must be a whole number, not {value:?}")))
    }

    /// Checks that a text with stand-ins may be moved around as it is.
    pub(crate) fn require(&self, safe: Safe, text: &str) -> Read<()> {
        if text.is_ascii() {
            return Ok(());
        }
        for mark in text.chars().filter(|c| is_mark(*c)) {
            let fine = match (safe, mark_column(mark)) {
                (Safe::Known, _) => false,
                (_, None) => true,
                (Safe::Plain, Some(i)) => self.table.traits.get(i).is_some_and(|t| t.plain),
                (Safe::Spaced, Some(i)) => self.table.traits.get(i).is_some_and(|t| t.quotable && t.spaced),
                (Safe::Quotable, Some(i)) => self.table.traits.get(i).is_some_and(|t| {
                    // An empty or blank end would be trimmed away.
                    t.quotable && (t.filled || !(text.starts_with(mark) || text.ends_with(mark)))
                }),
            };
            if !fine {
                return Err(Stop::NotYet);
            }
        }
        Ok(())
    }

    /// An error about a keyword, at its value.
    pub(crate) fn wrong(&self, names: &[&str], message: &str) -> Stop {
        let Some(definition) = self.definition(names) else {
            return Diagnostic::error(format!("{} {message}", names[0])).into();
        };
        Diagnostic::error(format!("{} {message}", definition.name.to_ascii_lowercase()))
            .at(definition.span.place(0, definition.raw.len().max(1)))
            .into()
    }

    /// An error at a byte of a keyword's value; exact as long as the value holds no macros.
    pub(crate) fn wrong_at(&self, names: &[&str], offset: usize, message: &str) -> Stop {
        let Some(definition) = self.definition(names) else {
            return self.wrong(names, message);
        };
        let raw = &definition.raw;
        let offset = if raw.contains('$') || offset >= raw.len() { 0 } else { offset };
        Diagnostic::error(format!("{}: {message}", definition.name.to_ascii_lowercase()))
            .at(definition.span.place(offset, if offset == 0 { raw.len().max(1) } else { 1 }))
            .into()
    }

    fn expand(&self, name: &str, raw: &str) -> Read<String> {
        if !raw.contains('$') {
            return Ok(raw.to_owned());
        }
        match expand(self, raw) {
            Ok(value) => Ok(value),
            Err(ExpandError { problem: Problem::NotYet, .. }) => Err(Stop::NotYet),
            Err(error) => Err(self.wrong_at(&[name], error.offset, &error.problem.to_string())),
        }
    }

    pub(crate) fn note(&self, name: &str) {
        // Later jobs read the same names; the first ones have told.
        if matches!(self.mode, Mode::Job { job, .. } if job > 0) {
            return;
        }
        self.used.borrow_mut().insert(name.to_ascii_lowercase());
    }

    fn live(&self, name: &str) -> Option<Value<'_>> {
        let index = self.table.names.iter().position(|n| n.eq_ignore_ascii_case(name));
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let mark = match index {
            Some(i) => column_mark(i),
            None if is("Cluster") || is("ClusterId") => CLUSTER,
            None if is("Process") || is("ProcId") => PROC,
            None if is("Step") => STEP,
            None if is("Row") || is("ItemIndex") => ROW,
            None => return self.fixed(name),
        };
        self.within_row.set(self.within_row.get() || matches!(mark, PROC | STEP));
        let opaque = |may_be_empty| Some(Value::Opaque { mark, may_be_empty });
        let Mode::Job { job, cluster } = self.mode else {
            return opaque(index.is_some_and(|i| !self.table.traits[i].filled));
        };
        let row = job / self.table.per_row.max(1);
        let number = |n: u32| Some(Value::Text(Cow::Owned(n.to_string())));
        match (index, mark) {
            (Some(i), _) => Some(Value::Text(Cow::Borrowed(self.table.columns[i].get(row as usize)))),
            (None, CLUSTER) => cluster.map_or_else(|| opaque(false), number),
            (None, PROC) => number(self.table.first + job),
            (None, STEP) => number(job % self.table.per_row.max(1)),
            _ => number(row),
        }
    }

    /// Macros that are the same for all jobs but stand in no text.
    fn fixed(&self, name: &str) -> Option<Value<'_>> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // Filled in by the starter of each node.
        let parallel = |d: &config::Definition| d.raw.trim().eq_ignore_ascii_case("parallel");
        if is("Node") && self.set.get("universe").is_some_and(parallel) {
            return Some(Value::Text(Cow::Borrowed("#pArAlLeLnOdE#")));
        }
        if is("SUBMIT_FILE") {
            return Some(Value::Text(Cow::Borrowed(self.submit_file)));
        }
        let (year, month, day) = civil(self.context.now + i64::from(self.context.utc_offset));
        let text = if is("SUBMIT_TIME") {
            self.context.now.to_string()
        } else if is("Year") {
            year.to_string()
        } else if is("Month") {
            format!("{month:02}")
        } else if is("Day") {
            format!("{day:02}")
        } else {
            return None;
        };
        Some(Value::Text(Cow::Owned(text)))
    }
}

impl Names for Scope<'_> {
    fn lookup(&self, name: &str) -> Option<Value<'_>> {
        self.note(name);
        if let Some(value) = self.live(name) {
            return Some(value);
        }
        self.set.get(name).map(|d| Value::Text(Cow::Borrowed(d.raw.as_str())))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.files.env(name)
    }

    fn directory(&self) -> &str {
        &self.context.directory
    }

    fn random(&self) -> Option<u64> {
        if self.mode == Mode::Symbolic {
            // Each job draws its own.
            return None;
        }
        self.within_row.set(true);
        let (next, drawn) = config::settings::draw(self.draws.get());
        self.draws.set(next);
        Some(drawn)
    }

    fn now(&self) -> i64 {
        self.context.now
    }
}

/// The calendar day of a number of seconds since 1970.
fn civil(seconds: i64) -> (i64, i64, i64) {
    // Days are counted from 1 March of year 0, so that the leap day comes last.
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_found() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(951_782_400), (2000, 2, 29));
        assert_eq!(civil(1_794_775_273), (2026, 11, 15));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
