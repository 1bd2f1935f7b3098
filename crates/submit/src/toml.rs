//! The native form: the same job in TOML, for those who never knew Condor. Described in docs/submit.md.
//!
//! The file is checked against the structures below (unknown keys are refused with a suggestion), then becomes keywords
//! of the submit language and a table, so that one set of rules makes the attributes.

use std::collections::BTreeMap;

use ::toml::Value;
use config::lines::{Lines, Span};
use config::{Diagnostic, Diagnostics, Dialect, MacroSet, Reader, Source};
use model::template::Column;
use serde::Deserialize;

use crate::command::from_set;
use crate::files::{Context, Files, Rooted, join};
use crate::live::{Table, Traits};
use crate::overrides::Overrides;
use crate::parse::Submission;
use crate::{args, braces, queue};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    job: Job,
    #[serde(default)]
    resources: Resources,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    files: Sandbox,
    #[serde(default)]
    lifecycle: BTreeMap<String, Value>,
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
    #[serde(default)]
    expressions: BTreeMap<String, String>,
    #[serde(default)]
    keywords: BTreeMap<String, String>,
    #[serde(default)]
    queue: Queue,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    command: Vec<String>,
    directory: Option<String>,
    universe: Option<String>,
    input: Option<String>,
    output: Option<String>,
    error: Option<String>,
    log: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    inherit_environment: Option<Inherit>,
    name: Option<String>,
    description: Option<String>,
    priority: Option<i64>,
    machines: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Inherit {
    All(bool),
    List(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    cpus: Option<Amount>,
    memory: Option<Amount>,
    disk: Option<Amount>,
    gpus: Option<Amount>,
    #[serde(default)]
    other: BTreeMap<String, Amount>,
}

/// A number, or a text such as `2 GB` or an expression.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(i64),
    Text(String),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Number(n) => n.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    requirements: Option<String>,
    rank: Option<String>,
    accounting_group: Option<String>,
    concurrency_limits: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sandbox {
    transfer: Option<String>,
    when: Option<String>,
    #[serde(default)]
    input: Vec<String>,
    #[serde(default)]
    output: Vec<String>,
    #[serde(default)]
    rename: BTreeMap<String, String>,
    send_executable: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    count: Option<u32>,
    items: Option<Vec<Value>>,
    table: Option<BTreeMap<String, Vec<Value>>>,
    from: Option<String>,
    matching: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
}

/// Lifecycle keys are keywords of the submit language.
const LIFECYCLE: [&str; 29] = [
    "hold",
    "max_retries",
    "retry_until",
    "success_exit_code",
    "on_exit_remove",
    "on_exit_hold",
    "on_exit_hold_reason",
    "on_exit_hold_subcode",
    "periodic_hold",
    "periodic_hold_reason",
    "periodic_hold_subcode",
    "periodic_release",
    "periodic_remove",
    "periodic_vacate",
    "leave_in_queue",
    "job_lease_duration",
    "job_max_vacate_time",
    "kill_sig",
    "allowed_job_duration",
    "allowed_execute_duration",
    "early_release",
    "strict_limits",
    "guest_of",
    "deferral_time",
    "deferral_window",
    "max_job_retirement_time",
    "checkpoint_exit_code",
    "checkpoint_signal",
    "warning_signal",
];

/// Reads a native description.
pub fn parse(
    text: &str,
    name: &str,
    context: &Context,
    files: &dyn Files,
) -> Result<Submission, Diagnostics> {
    parse_with(&Overrides::default(), text, name, context, files)
}

/// The same with keywords of the submit language that win over what the description says (`--set`).
pub fn parse_with(
    overrides: &Overrides,
    text: &str,
    name: &str,
    context: &Context,
    files: &dyn Files,
) -> Result<Submission, Diagnostics> {
    let source = Source::new(name, text);
    if text.chars().any(config::expand::is_mark) {
        return Err(Diagnostic::error("characters of the private plane U+F0000 are not supported").into());
    }
    let file: File = ::toml::from_str(text).map_err(|e| wrong_shape(&source, &e))?;
    let table = table(&file.queue, &source, context, files)?;
    let mut form =
        Form { set: MacroSet::default(), source: &source, table, section: "", unknown: Vec::new() };
    form.job(&file.job, context, files)?;
    form.resources(&file.resources);
    form.placement(&file.placement);
    form.transfer(&file.files);
    form.rest(&file)?;
    if !form.unknown.is_empty() {
        return Err(Diagnostics(form.unknown));
    }
    overrides.pin(&mut form.set);
    from_set(&form.set, &form.table, context, files)
}

/// An error of the TOML reader, with the place and, for an unknown key, a suggestion.
fn wrong_shape(source: &Source, error: &::toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..1);
    let before = source.text.get(..span.start).unwrap_or("");
    let line = before.matches('\n').count() as u32 + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |n| n + 1);
    let message = error.message().lines().next().unwrap_or("").to_owned();
    let finding = Diagnostic::error(message.clone()).at(source.place(line, column, span.len().max(1)));
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(wrong)) => match config::names::suggest(wrong, quoted) {
            Some(near) => finding.hint(format!("did you mean {near}?")),
            None => finding,
        },
        _ => finding,
    }
}

/// The line of a key, for messages.
fn line_of(source: &Source, section: &str, key: &str) -> u32 {
    let mut here = "";
    for (i, line) in source.text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            here = name.trim();
            if here == format!("{section}.{key}") {
                return i as u32 + 1;
            }
        } else if here == section
            && line
                .trim_start_matches(['"', '\''])
                .strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(['=', '.']))
        {
            return i as u32 + 1;
        }
    }
    1
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Float(f) => Some(f.to_string()),
        Value::Boolean(b) => Some(b.to_string()),
        _ => None,
    }
}

fn column(values: &[Value]) -> Result<Column, Diagnostic> {
    let mut column = Column::default();
    for value in values {
        let text =
            scalar(value).ok_or_else(|| Diagnostic::error("items must be texts, numbers or truth values"))?;
        if text.contains('\0') {
            return Err(Diagnostic::error("an item cannot contain a NUL character"));
        }
        column.push(&literal(&text));
    }
    Ok(column)
}

fn table(queue: &Queue, source: &Source, context: &Context, files: &dyn Files) -> Result<Table, Diagnostics> {
    let at = |key: &str, message: String| {
        Diagnostic::error(message).at(source.place(line_of(source, "queue", key), 0, key.len()))
    };
    let count = queue.count.unwrap_or(1);
    let given =
        [queue.items.is_some(), queue.table.is_some(), queue.from.is_some(), queue.matching.is_some()];
    if given.iter().filter(|g| **g).count() > 1 {
        return Err(at("count", "only one of items, table, from and matching can be used".into()).into());
    }
    if let Some(items) = &queue.items {
        let column = column(items)?;
        return made(vec!["item".into()], vec![column], count, source);
    }
    if let Some(table) = &queue.table {
        let mut names = Vec::new();
        let mut columns = Vec::new();
        for (name, values) in table {
            if !config::names::is_name(name) {
                return Err(at("table", format!("{name:?} is not a field name")).into());
            }
            names.push(name.to_ascii_lowercase());
            columns.push(column(values)?);
        }
        if columns.iter().any(|c| c.len() != columns[0].len()) {
            return Err(at("table", "all columns of the table must have the same length".into()).into());
        }
        return made(names, columns, count, source);
    }
    // The other two are queue statements; let the language read them.
    let (kind, what) = match (&queue.from, &queue.matching) {
        (Some(file), _) => ("from", file),
        (_, Some(pattern)) => ("matching", pattern),
        _ => return Ok(Table { rows: 1, per_row: count, ..Table::default() }),
    };
    let statement = format!("queue {count} {} {kind} {}", queue.fields.join(","), literal(what));
    let rooted = Rooted { files, directory: &context.directory };
    let reader = Reader::new(&rooted, Dialect::Submit, |_| None, &context.directory);
    let inner = Source::new(&source.name, &statement);
    let mut lines = Lines::new(&inner);
    let Some(logical) = lines.next_logical() else { return Ok(Table::default()) };
    queue::read(&reader, files, context, &logical, &mut lines).map_err(|e| at(kind, e.message).into())
}

fn made(names: Vec<String>, columns: Vec<Column>, count: u32, source: &Source) -> Result<Table, Diagnostics> {
    let at = |message: String| {
        Diagnostic::error(message).at(source.place(line_of(source, "queue", "items"), 0, 1))
    };
    if columns.first().is_none_or(Column::is_empty) {
        return Err(at("there are no items, so there is nothing to queue".into()).into());
    }
    queue::table(names, columns, count).map_err(|message| at(message).into())
}

/// A program that is named without a directory is looked for here, then as a shell would.
fn in_path(program: &str, context: &Context, files: &dyn Files) -> String {
    if program.contains(['/', '{']) || files.size(&context.absolute(program)).is_ok() {
        return program.to_owned();
    }
    let path = files.env("PATH").unwrap_or_default();
    let mut places = path.split(':').filter(|d| d.starts_with('/')).map(|d| join(d, program));
    places.find(|p| files.size(p).is_ok()).unwrap_or_else(|| program.to_owned())
}

/// A dollar in the native form is a dollar.
fn literal(text: &str) -> String {
    text.replace('$', "$(DOLLAR)")
}

struct Form<'a> {
    set: MacroSet,
    source: &'a Source,
    table: Table,
    section: &'static str,
    /// Names in braces that are not known.
    unknown: Vec<Diagnostic>,
}

impl Form<'_> {
    fn define(&mut self, keyword: &str, key: &str, value: &str) {
        let line = line_of(self.source, self.section, key);
        let column =
            self.source.text.lines().nth(line as usize - 1).and_then(|l| l.find('=')).map_or(0, |i| i + 2);
        self.set.define(keyword, value, Span::at(self.source, line, column), None);
    }

    /// A word or a file name with `{name}` for what differs between jobs; a name that is not known is refused.
    fn word(&mut self, key: &str, value: &str) -> String {
        let known = |name: &str| self.reference(name);
        match braces::fill(value, &known, literal) {
            Ok(filled) => filled,
            Err(name) => {
                let own = self.table.names.iter().map(String::as_str).filter(|n| !n.starts_with("updraft."));
                let names: Vec<&str> = own.chain(["proc", "cluster", "step", "row"]).collect();
                let place = self.source.place(line_of(self.source, self.section, key), 0, key.len());
                self.unknown.push(braces::unknown(&name, names).at(place));
                String::new()
            }
        }
    }

    /// Defines a keyword by such a word.
    fn name(&mut self, keyword: &str, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            let filled = self.word(key, value);
            self.define(keyword, key, &filled);
        }
    }

    /// The macro that a name in braces stands for.
    fn reference(&self, name: &str) -> Option<String> {
        Some(match name {
            "" => return self.reference("item"),
            "cluster" => "$(ClusterId)".to_owned(),
            "proc" => "$(ProcId)".to_owned(),
            "step" => "$(Step)".to_owned(),
            "row" => "$(Row)".to_owned(),
            other => self.table.names.iter().any(|n| n == other).then(|| format!("$({other})"))?,
        })
    }

    /// A text with `{name}` for what differs between jobs; other braces are text, for instance a list in an expression.
    fn text(&mut self, keyword: &str, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            let filled = self.filled(value);
            self.define(keyword, key, &filled);
        }
    }

    /// Replaces `{item}`, `{proc}`, ... by macros; braces around anything else are text.
    fn filled(&self, text: &str) -> String {
        let mut out = String::new();
        let text = literal(text);
        let mut rest = text.as_str();
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            let body = &rest[open + 1..];
            let end = body.find('}').unwrap_or(0);
            let name = body[..end].to_ascii_lowercase();
            let reference = if body.starts_with('}') || end > 0 { self.reference(&name) } else { None };
            if let Some(reference) = reference {
                out.push_str(&reference);
                rest = &body[end + 1..];
            } else {
                out.push('{');
                rest = body;
            }
        }
        out.push_str(rest);
        out
    }

    fn job(&mut self, job: &Job, context: &Context, files: &dyn Files) -> Result<(), Diagnostics> {
        self.section = "job";
        let Some((executable, words)) = job.command.split_first() else {
            return Err(Diagnostic::error("command is empty")
                .at(self.source.place(line_of(self.source, "job", "command"), 0, 7))
                .hint("write command = [\"/bin/sleep\", \"60\"]")
                .into());
        };
        self.name("executable", "command", Some(&in_path(executable, context, files)));
        if !words.is_empty() {
            let words: Vec<String> = words.iter().map(|w| self.word("command", w)).collect();
            self.words("arguments", "command", &words);
        }
        if !job.environment.is_empty() {
            let words: Vec<String> = job
                .environment
                .iter()
                .map(|(n, v)| format!("{}={}", literal(n), self.word("environment", v)))
                .collect();
            self.words("environment", "environment", &words);
        }
        match &job.inherit_environment {
            Some(Inherit::All(all)) => self.define("getenv", "inherit_environment", &all.to_string()),
            Some(Inherit::List(list)) => {
                self.define("getenv", "inherit_environment", &literal(&list.join(",")));
            }
            None => {}
        }
        self.name("initialdir", "directory", job.directory.as_deref());
        self.text("universe", "universe", job.universe.as_deref());
        for (key, value) in
            [("input", &job.input), ("output", &job.output), ("error", &job.error), ("log", &job.log)]
        {
            self.name(key, key, value.as_deref());
        }
        self.text("batch_name", "name", job.name.as_deref());
        self.text("description", "description", job.description.as_deref());
        if let Some(priority) = job.priority {
            self.define("priority", "priority", &priority.to_string());
        }
        if let Some(machines) = job.machines {
            self.define("machine_count", "machines", &machines.to_string());
        }
        Ok(())
    }

    /// Defines a list of words. An item that is not plain cannot stand between other characters as it is, so then the
    /// whole list is written out for every row.
    fn words(&mut self, keyword: &str, key: &str, words: &[String]) {
        let uses = |name: &str, word: &str| word.contains(&format!("$({name})"));
        let used: Vec<usize> = (0..self.table.names.len())
            .filter(|i| words.iter().any(|w| uses(&self.table.names[*i], w)))
            .collect();
        if used.iter().all(|i| self.table.traits[*i].plain) {
            self.define(keyword, key, &quoted(&args::join(words)));
            return;
        }
        let mut column = Column::default();
        for row in 0..self.table.rows as usize {
            let filled = words.iter().map(|word| {
                used.iter().fold(word.clone(), |word, i| {
                    word.replace(&format!("$({})", self.table.names[*i]), self.table.columns[*i].get(row))
                })
            });
            column.push(&quoted(&args::join(filled)));
        }
        let name = format!("updraft.{keyword}");
        self.define(keyword, key, &format!("$({name})"));
        self.table.traits.push(Traits::of(&column));
        self.table.names.push(name);
        self.table.columns.push(column);
    }

    fn resources(&mut self, resources: &Resources) {
        self.section = "resources";
        for (keyword, key, amount) in [
            ("request_cpus", "cpus", &resources.cpus),
            ("request_memory", "memory", &resources.memory),
            ("request_disk", "disk", &resources.disk),
            ("request_gpus", "gpus", &resources.gpus),
        ] {
            self.text(keyword, key, amount.as_ref().map(Amount::text).as_deref());
        }
        for (name, amount) in &resources.other {
            self.text(&format!("request_{name}"), name, Some(&amount.text()));
        }
    }

    fn placement(&mut self, placement: &Placement) {
        self.section = "placement";
        self.text("requirements", "requirements", placement.requirements.as_deref());
        self.text("rank", "rank", placement.rank.as_deref());
        self.text("accounting_group", "accounting_group", placement.accounting_group.as_deref());
        let limits = placement.concurrency_limits.as_ref().map(|l| l.join(","));
        self.text("concurrency_limits", "concurrency_limits", limits.as_deref());
    }

    fn transfer(&mut self, transfer: &Sandbox) {
        self.section = "files";
        let word = |w: &String| w.replace('-', "_");
        self.text("should_transfer_files", "transfer", transfer.transfer.as_ref().map(word).as_deref());
        self.text("when_to_transfer_output", "when", transfer.when.as_ref().map(word).as_deref());
        if !transfer.input.is_empty() {
            self.name("transfer_input_files", "input", Some(&transfer.input.join(",")));
        }
        if !transfer.output.is_empty() {
            self.name("transfer_output_files", "output", Some(&transfer.output.join(",")));
        }
        if !transfer.rename.is_empty() {
            let pairs: Vec<String> =
                transfer.rename.iter().map(|(from, to)| format!("{from}={to}")).collect();
            self.name("transfer_output_remaps", "rename", Some(&format!("\"{}\"", pairs.join(";"))));
        }
        if let Some(send) = transfer.send_executable {
            self.define("transfer_executable", "send_executable", &send.to_string());
        }
    }

    fn rest(&mut self, file: &File) -> Result<(), Diagnostics> {
        self.section = "lifecycle";
        for (key, value) in &file.lifecycle {
            let place = self.source.place(line_of(self.source, "lifecycle", key), 0, key.len());
            if !LIFECYCLE.contains(&key.as_str()) {
                let finding = Diagnostic::error(format!("{key} is not a lifecycle key")).at(place);
                return Err(match config::names::suggest(key, LIFECYCLE) {
                    Some(near) => finding.hint(format!("did you mean {near}?")),
                    None => finding.hint(format!("the keys are {}", LIFECYCLE.join(", "))),
                }
                .into());
            }
            let Some(text) = scalar(value) else {
                return Err(Diagnostic::error(format!("{key} must be a text, number or truth value"))
                    .at(place)
                    .into());
            };
            self.text(key, key, Some(&text));
        }
        self.section = "attributes";
        for (name, value) in &file.attributes {
            let text = match value {
                // Keywords use the old string rules, in which a backslash is an ordinary character.
                Value::String(s) => format!("\"{}\"", s.replace('"', "\\\"")),
                Value::Float(f) => classad::Expr::literal(*f).to_string(),
                other => {
                    let Some(text) = scalar(other) else {
                        let place =
                            self.source.place(line_of(self.source, "attributes", name), 0, name.len());
                        let message = format!("{name} must be a text, number or truth value");
                        return Err(Diagnostic::error(message).at(place).into());
                    };
                    text
                }
            };
            let text = self.filled(&text);
            self.define(&format!("+{name}"), name, &text);
        }
        self.section = "expressions";
        for (name, text) in &file.expressions {
            let text = self.filled(text);
            self.define(&format!("+{name}"), name, &text);
        }
        self.section = "keywords";
        for (name, text) in &file.keywords {
            let text = self.filled(text);
            self.define(name, name, &text);
        }
        Ok(())
    }
}

fn quoted(raw: &str) -> String {
    format!("\"{}\"", raw.replace('"', "\"\""))
}
