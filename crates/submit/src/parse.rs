//! A submit file to templates.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use config::lines::{Lines, Logical};
use config::reader::Hook;
use config::{Diagnostic, Diagnostics, Dialect, MacroSet, Reader, Source};
use model::JobTemplate;

use crate::build;
use crate::files::{Context, Files, Rooted};
use crate::live::Table;
use crate::merge;
use crate::overrides::Overrides;
use crate::queue;
use crate::table::Job;

/// Most queue statements in one file.
const STATEMENTS: usize = 1_000;

/// A submit file, understood.
#[derive(Debug, Clone)]
pub struct Submission {
    /// One template per cluster. All queue statements of a file share one cluster, and their proc numbers run on.
    pub templates: Vec<JobTemplate>,
    /// What is legal but doubtful: unused or misspelt keywords.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a submit file. Any error refuses all of it: there are no partial clusters.
pub fn parse(
    text: &str,
    name: &str,
    context: &Context,
    files: &dyn Files,
) -> Result<Submission, Diagnostics> {
    parse_with(&Overrides::default(), text, name, context, files)
}

/// The same with keywords that the file cannot change, wherever it sets them (`--set`).
pub fn parse_with(
    overrides: &Overrides,
    text: &str,
    name: &str,
    context: &Context,
    files: &dyn Files,
) -> Result<Submission, Diagnostics> {
    if text.chars().any(config::expand::is_mark) {
        return Err(Diagnostic::error(format!(
            "{name} holds a character of the private plane U+F0000, which is not supported"
        ))
        .into());
    }
    if let Some(at) = text.find('\0') {
        let line = text[..at].matches('\n').count() + 1;
        return Err(Diagnostic::error(format!(
            "{name} holds a NUL character in line {line}; is this a submit file?"
        ))
        .into());
    }
    let source = Source::new(name, text);
    let rooted = Rooted { files, directory: &context.directory };
    let mut reader = Reader::new(&rooted, Dialect::Submit, |_| None, &context.directory);
    let mut statements = Statements {
        context,
        files,
        submit_file: name,
        templates: Vec::new(),
        used: RefCell::new(HashSet::new()),
        draws: Cell::new(context.seed),
        errors: Vec::new(),
        queued: 0,
        unused_variables: Vec::new(),
    };
    overrides.pin(&mut reader.set);
    reader.read(&source, &mut statements);
    if statements.queued == 0 && statements.errors.is_empty() && reader.outcome().is_ok() {
        // The original submits one job.
        reader.findings.push(
            Diagnostic::warning("there is no queue statement; one job is queued")
                .hint("end the file with: queue"),
        );
        let table = Table { rows: 1, per_row: 1, ..Table::default() };
        statements.queue(&reader.set, table);
    }
    let mut findings = std::mem::take(&mut reader.findings);
    findings.append(&mut statements.errors);
    if findings.iter().any(Diagnostic::is_error) {
        return Err(Diagnostics(findings));
    }
    findings.append(&mut statements.unused_variables);
    findings.extend(unused(&reader.set, &statements.used.borrow()));
    let template = merge::merge(statements.templates).map_err(Diagnostic::error)?;
    template.check().map_err(|invalid| Diagnostic::error(invalid.to_string()))?;
    Ok(Submission { templates: vec![template], warnings: findings })
}

/// Definitions that no keyword reads and no macro mentions.
pub(crate) fn unused(set: &MacroSet, used: &HashSet<String>) -> Vec<Diagnostic> {
    let known = |name: &str| build::all_keywords().any(|k| k.eq_ignore_ascii_case(name));
    let mut found: Vec<(u32, Diagnostic)> = Vec::new();
    for definition in set.iter() {
        let name = definition.name.as_str();
        if let Some(near) = build::misspelt_request(name) {
            let resource = &name["request_".len()..];
            let finding = Diagnostic::warning(format!("{name} asks for a resource named {resource}"))
                .at(definition.span.place(0, definition.raw.len().max(1)))
                .hint(format!("did you mean {near}?"));
            found.push((definition.span.line(), finding));
        }
        if used.contains(&name.to_ascii_lowercase()) || known(name) || build::own_attribute(name).is_some() {
            continue;
        }
        let finding = Diagnostic::warning(format!("nothing uses {name}"))
            .at(definition.span.place(0, definition.raw.len().max(1)));
        let finding = match config::names::suggest(name, build::all_keywords()) {
            Some(near) => finding.hint(format!("did you mean {near}?")),
            None => finding,
        };
        found.push((definition.span.line(), finding));
    }
    found.sort_by_key(|(line, _)| *line);
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// The macros that a text mentions, as `$(name)`, `$(name:default)` or `$INT(name)`, in small letters.
fn mentioned(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    text.split('$').skip(1).filter_map(move |behind| {
        let (function, inside) = behind.split_once('(')?;
        let name = inside.trim_start().split(|c| !is_part(c)).next()?;
        function.chars().all(is_part).then(|| name.to_ascii_lowercase())
    })
}

struct Statements<'a> {
    context: &'a Context,
    files: &'a dyn Files,
    submit_file: &'a str,
    templates: Vec<JobTemplate>,
    used: RefCell<HashSet<String>>,
    draws: Cell<u64>,
    errors: Vec<Diagnostic>,
    queued: u64,
    unused_variables: Vec<Diagnostic>,
}

impl Hook for Statements<'_> {
    fn statement(
        &mut self,
        reader: &Reader<'_>,
        logical: &Logical,
        lines: &mut Lines<'_>,
    ) -> Result<bool, Diagnostic> {
        if !queue::is_queue(&logical.text) {
            return Ok(false);
        }
        let mut table = queue::read(reader, self.files, self.context, logical, lines)?;
        table.names_are_keywords = true;
        self.used.borrow_mut().extend(mentioned(&logical.text));
        let place = || logical.span.place(0, logical.text.len());
        if self.templates.len() >= STATEMENTS {
            return Err(Diagnostic::error(format!("more than {STATEMENTS} queue statements")).at(place()));
        }
        if self.queued + table.procs() > u64::from(model::limits::PROCS_PER_CLUSTER) {
            return Err(Diagnostic::error(format!(
                "more than {} jobs in one cluster",
                model::limits::PROCS_PER_CLUSTER
            ))
            .at(place()));
        }
        let variables = table.names.clone();
        self.queue(&reader.set, table);
        for name in variables.iter().filter(|n| {
            !["item", "row", "itemindex"].contains(&n.as_str()) && !self.used.borrow().contains(*n)
        }) {
            self.unused_variables
                .push(Diagnostic::warning(format!("nothing uses the queue variable {name}")).at(place()));
        }
        Ok(true)
    }
}

impl Statements<'_> {
    fn queue(&mut self, set: &MacroSet, mut table: Table) {
        table.first = self.queued as u32;
        let job = Job {
            set,
            context: self.context,
            files: self.files,
            submit_file: self.submit_file,
            used: &self.used,
            draws: &self.draws,
        };
        let groups = build::groups(set);
        match job.template(&table, &groups) {
            Ok(template) => self.templates.push(template),
            Err(errors) => {
                for error in errors {
                    if !self.errors.contains(&error) {
                        self.errors.push(error);
                    }
                }
            }
        }
        self.queued += table.procs();
    }
}
