//! From keywords to one [`JobTemplate`]: symbolically where possible, job by job where not.
//!
//! Keywords are read in groups (see [`crate::build`]). A group that can be read symbolically costs the same for one job
//! and for ten million. One that cannot is read for every row, or for every job if it differs within a row, and becomes
//! columns of complete values. The cluster id stays open in both cases: values are cut at its stand-in.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use config::expand::is_mark;
use config::{Diagnostic, MacroSet};
use model::limits;
use model::template::{Attribute, Column, JobTemplate, Piece, PieceKind, Varying};

use crate::build::{Group, Out};
use crate::files::{Context, Files};
use crate::live::{self, Mode, Scope, Stop, Table, mark_column};

/// What all groups of one queue statement share.
pub(crate) struct Job<'a> {
    pub(crate) set: &'a MacroSet,
    pub(crate) context: &'a Context,
    pub(crate) files: &'a dyn Files,
    pub(crate) submit_file: &'a str,
    pub(crate) used: &'a RefCell<HashSet<String>>,
    pub(crate) draws: &'a Cell<u64>,
}

/// Attributes as columns of complete values, each value cut at the cluster id.
type Cut = Vec<(String, Vec<Column>)>;

/// The attributes of one group.
enum Built {
    /// Texts with stand-ins, good for all jobs.
    Symbolic(Out),
    /// For each attribute the cut texts, one column per cut, one entry per row.
    PerRow(Cut),
    /// As before, one entry per job.
    PerJob(Cut),
}

/// What reading a group came across.
#[derive(Clone, Copy)]
struct Seen<'a> {
    within_row: &'a Cell<bool>,
    overridden: &'a Cell<bool>,
}

impl Job<'_> {
    /// Builds the template of one queue statement.
    pub(crate) fn template(&self, table: &Table, groups: &[Group]) -> Result<JobTemplate, Vec<Diagnostic>> {
        let mut results = Vec::with_capacity(groups.len());
        // What `--set` says wins over what the file says, also where that is another keyword for the same attribute, or
        // the attribute itself: later results replace earlier ones.
        let mut overrides = Vec::new();
        let mut errors = Vec::new();
        for group in groups {
            let overridden = Cell::new(false);
            match self.group(table, group, &overridden) {
                Ok(result) if overridden.get() => overrides.push(result),
                Ok(result) => results.push(result),
                Err(diagnostic) => {
                    if !errors.contains(&diagnostic) {
                        errors.push(diagnostic);
                    }
                }
            }
        }
        results.append(&mut overrides);
        if errors.is_empty() { Ok(assemble(table, results)) } else { Err(errors) }
    }

    fn run(&self, table: &Table, group: &Group, mode: Mode, seen: Seen<'_>) -> Result<Out, Stop> {
        let Seen { within_row, overridden } = seen;
        let scope = Scope {
            set: self.set,
            table,
            context: self.context,
            files: self.files,
            submit_file: self.submit_file,
            mode,
            used: self.used,
            within_row,
            overridden,
            draws: self.draws,
        };
        let mut out = Out::default();
        (group.build)(&scope, &mut out)?;
        Ok(out)
    }

    fn group(&self, table: &Table, group: &Group, overridden: &Cell<bool>) -> Result<Built, Diagnostic> {
        let within_row = Cell::new(false);
        match self.run(table, group, Mode::Symbolic, Seen { within_row: &within_row, overridden }) {
            Ok(out) => return Ok(Built::Symbolic(out)),
            Err(Stop::Wrong(diagnostic)) => return Err(*diagnostic),
            Err(Stop::NotYet) => {}
        }
        // With a cluster id at hand even functions of it can be computed; without one they are refused.
        let mut clusters = vec![None];
        clusters.extend(self.context.cluster.map(Some));
        for cluster in clusters {
            if let Some(result) = self.one_by_one(table, group, cluster, overridden)? {
                return Ok(result);
            }
        }
        Err(Diagnostic::error(format!(
            "{} depends on the cluster id, which is not known before the jobs are queued",
            group.name
        ))
        .hint("use $(Cluster) as plain text only, not inside a function or where a number is needed"))
    }

    fn one_by_one(
        &self,
        table: &Table,
        group: &Group,
        cluster: Option<u32>,
        overridden: &Cell<bool>,
    ) -> Result<Option<Built>, Diagnostic> {
        let draws = self.draws.get();
        if table.per_row > 1 {
            let within_row = Cell::new(false);
            let seen = Seen { within_row: &within_row, overridden };
            let rows = self.collect(table, group, cluster, table.per_row, seen)?;
            match rows {
                None => return Ok(None),
                Some(columns) if !within_row.get() => return Ok(Some(Built::PerRow(columns))),
                Some(_) => self.draws.set(draws),
            }
        }
        let within_row = Cell::new(false);
        let columns = self.collect(table, group, cluster, 1, Seen { within_row: &within_row, overridden })?;
        Ok(columns.map(|c| if table.per_row > 1 { Built::PerJob(c) } else { Built::PerRow(c) }))
    }

    /// Reads a group for jobs 0, stride, 2 * stride, ...; `None` when the cluster id must be known.
    fn collect(
        &self,
        table: &Table,
        group: &Group,
        cluster: Option<u32>,
        stride: u32,
        seen: Seen<'_>,
    ) -> Result<Option<Cut>, Diagnostic> {
        let mut gathered = Cut::new();
        let procs = table.procs() as u32;
        let mut done = 0usize;
        let mut job = 0;
        while job < procs {
            let out = match self.run(table, group, Mode::Job { job, cluster }, seen) {
                Ok(out) => out,
                Err(Stop::NotYet) => return Ok(None),
                Err(Stop::Wrong(diagnostic)) => return Err(in_job(*diagnostic, table, job)),
            };
            add_row(&mut gathered, out, done).map_err(Diagnostic::error)?;
            done += 1;
            // Nothing to gain from finishing a pass whose result is thrown away.
            if stride > 1 && seen.within_row.get() {
                break;
            }
            job = match job.checked_add(stride) {
                Some(next) => next,
                None => break,
            };
        }
        Ok(Some(gathered))
    }
}

fn in_job(diagnostic: Diagnostic, table: &Table, job: u32) -> Diagnostic {
    let row = job / table.per_row.max(1);
    let items: Vec<String> = table
        .names
        .iter()
        .zip(&table.columns)
        .map(|(name, column)| format!("{name} = {:?}", model::text::one_line(column.get(row as usize), 60)))
        .collect();
    let number = table.first + job;
    let what = if items.is_empty() {
        format!("in job {number}")
    } else {
        format!("in job {number} with {}", items.join(", "))
    };
    match &diagnostic.hint {
        Some(hint) => {
            let hint = format!("{hint} ({what})");
            diagnostic.hint(hint)
        }
        None => diagnostic.hint(what),
    }
}

/// Adds the attributes of one job to the columns; an attribute that only some jobs have is undefined in the others.
fn add_row(gathered: &mut Cut, out: Out, done: usize) -> Result<(), String> {
    for (name, text) in out.0 {
        let known = gathered.iter().position(|(n, _)| n.eq_ignore_ascii_case(&name));
        let at = known.unwrap_or(gathered.len());
        if known.is_none() {
            let column = std::iter::repeat_n("undefined", done).collect();
            gathered.push((name, vec![column]));
        }
        let (name, columns) = &mut gathered[at];
        if columns[0].len() > done {
            continue;
        }
        let cuts: Vec<&str> =
            if text.is_ascii() { vec![text.as_str()] } else { text.split(live::CLUSTER).collect() };
        if done == 0 {
            columns.resize_with(cuts.len(), Column::default);
        }
        if cuts.len() != columns.len() {
            return Err(format!(
                "{name} holds the cluster id in some jobs only, which one cluster cannot express"
            ));
        }
        if columns.iter().zip(&cuts).any(|(c, cut)| c.text.len() + cut.len() > limits::SUBMIT_BYTES) {
            return Err(format!("the values of {name} are over {} MiB", limits::SUBMIT_BYTES >> 20));
        }
        for (column, cut) in columns.iter_mut().zip(cuts) {
            column.push(cut);
        }
    }
    for (name, columns) in gathered {
        if columns[0].len() == done {
            if columns.len() > 1 {
                return Err(format!("{name} is missing in some jobs only"));
            }
            columns[0].push("undefined");
        }
    }
    Ok(())
}

fn assemble(table: &Table, results: Vec<Built>) -> JobTemplate {
    let per_job = results.iter().any(|r| matches!(r, Built::PerJob(_)));
    let mut builder = Builder {
        table,
        per_job,
        template: JobTemplate {
            procs: table.procs() as u32,
            per_row: if per_job { 1 } else { table.per_row },
            ..JobTemplate::default()
        },
        placed: Vec::new(),
    };
    for result in results {
        match result {
            Built::Symbolic(out) => {
                for (name, text) in out.0 {
                    builder.symbolic(name, text);
                }
            }
            Built::PerRow(attributes) => {
                for (name, columns) in attributes {
                    let columns =
                        if per_job { columns.iter().map(|c| builder.spread(c)).collect() } else { columns };
                    builder.columns(name, columns);
                }
            }
            Built::PerJob(attributes) => {
                for (name, columns) in attributes {
                    builder.columns(name, columns);
                }
            }
        }
    }
    builder.template
}

struct Builder<'a> {
    table: &'a Table,
    /// The template has one row per job, so rows and steps of the statement need columns of their own.
    per_job: bool,
    template: JobTemplate,
    /// Which stand-in already has which template column.
    placed: Vec<(char, u32)>,
}

impl Builder<'_> {
    fn symbolic(&mut self, name: String, text: String) {
        if text.is_ascii() || !text.chars().any(is_mark) {
            self.forget(&name);
            self.template.shared.push(Attribute { name, expr: text });
            return;
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        for c in text.chars() {
            if !is_mark(c) {
                literal.push(c);
                continue;
            }
            if !literal.is_empty() {
                pieces.push(PieceKind::Text(std::mem::take(&mut literal)));
            }
            pieces.push(self.piece(c));
        }
        if !literal.is_empty() {
            pieces.push(PieceKind::Text(literal));
        }
        self.push(name, pieces);
    }

    fn piece(&mut self, mark: char) -> PieceKind {
        match mark {
            live::CLUSTER => PieceKind::Cluster(true),
            // A statement that is not the first counts on from the one before; the merge knows how.
            live::PROC => PieceKind::Proc(true),
            live::STEP if !self.per_job => PieceKind::Step(true),
            live::ROW if !self.per_job => PieceKind::Row(true),
            _ => PieceKind::Column(self.column_of(mark)),
        }
    }

    fn column_of(&mut self, mark: char) -> u32 {
        if let Some((_, index)) = self.placed.iter().find(|(m, _)| *m == mark) {
            return *index;
        }
        let (rows, steps) = (self.table.rows, self.table.per_row);
        let column = match mark_column(mark).and_then(|i| self.table.columns.get(i)) {
            Some(column) if self.per_job => self.spread(column),
            Some(column) => column.clone(),
            None if mark == live::STEP => (0..rows).flat_map(|_| 0..steps).map(|n| n.to_string()).collect(),
            None => (0..rows).flat_map(|r| (0..steps).map(move |_| r)).map(|n| n.to_string()).collect(),
        };
        let index = self.add(column);
        self.placed.push((mark, index));
        index
    }

    /// A column with each entry repeated for every job of its row.
    fn spread(&self, column: &Column) -> Column {
        let entries = (0..column.len()).flat_map(|r| (0..self.table.per_row).map(move |_| column.get(r)));
        entries.collect()
    }

    fn columns(&mut self, name: String, columns: Vec<Column>) {
        let mut pieces = Vec::new();
        for (i, column) in columns.into_iter().enumerate() {
            if i > 0 {
                pieces.push(PieceKind::Cluster(true));
            }
            let first = column.get(0);
            if (1..column.len()).all(|r| column.get(r) == first) {
                if !first.is_empty() {
                    pieces.push(PieceKind::Text(first.to_owned()));
                }
            } else {
                let index = self.add(column);
                pieces.push(PieceKind::Column(index));
            }
        }
        self.push(name, pieces);
    }

    fn add(&mut self, column: Column) -> u32 {
        self.template.columns.push(column);
        self.template.columns.len() as u32 - 1
    }

    /// `+Attr` may replace what a keyword put.
    fn forget(&mut self, name: &str) {
        self.template.shared.retain(|a| !a.name.eq_ignore_ascii_case(name));
        self.template.varying.retain(|v| !v.name.eq_ignore_ascii_case(name));
    }

    fn push(&mut self, name: String, pieces: Vec<PieceKind>) {
        self.forget(&name);
        if let [PieceKind::Text(text)] = &pieces[..] {
            self.template.shared.push(Attribute { name, expr: text.clone() });
            return;
        }
        let pieces = pieces.into_iter().map(|kind| Piece { kind: Some(kind) }).collect();
        self.template.varying.push(Varying { name, pieces });
    }
}
