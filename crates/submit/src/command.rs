//! A command line to a template: `updraft run -- CMD {}` over a number or a list of items.
//!
//! `{}` anywhere in a word is the item, and a few names in braces are known ([`crate::braces`]). The result goes through
//! the same table and the same attributes as a submit file, so a job does not know which way it came.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use config::lines::Span;
use config::{Diagnostic, Diagnostics, MacroSet, Source};
use model::template::Column;

use crate::files::{Context, Files};
use crate::live::{Table, Traits};
use crate::overrides::Overrides;
use crate::parse::{Submission, unused};
use crate::queue;
use crate::table::Job;
use crate::{args, braces, build, env};

/// What the jobs are run over.
#[derive(Debug, Clone)]
pub enum Items {
    /// This many jobs; the item is the proc number.
    Count(u32),
    /// One job per item.
    List(Vec<String>),
}

/// A command and everything that is said around it.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program; `{}` in it is the item.
    pub executable: String,
    /// The directory that the program is in, as it stands, unless its name has all of it.
    pub executable_in: Option<String>,
    /// Its words; `{}` in them is the item, `{proc}` and `{cluster}` are the job's numbers.
    pub arguments: Vec<String>,
    /// What to run over.
    pub items: Items,
    /// The job's directory; the context's when `None`.
    pub directory: Option<String>,
    /// Environment variables; `{}` in a value is the item.
    pub environment: Vec<(String, String)>,
    /// Where standard output goes, for instance `out.{}`; `$(Cluster)` and `$(Process)` work too.
    pub output: Option<String>,
    /// Where standard error goes.
    pub error: Option<String>,
    /// Further keywords of the submit language, for instance `("getenv", "true")`.
    pub keywords: Vec<(String, String)>,
    /// What `--set` says: it wins over all the rest. `{}` in a value is the item.
    pub overrides: Overrides,
}

/// The names that a command may have in braces, with the macros that they stand for.
const NAMES: [(&str, &str); 2] = [("proc", "$(ProcId)"), ("cluster", "$(ClusterId)")];

/// The template of a command, and what is doubtful about it.
pub fn command(command: &Command, context: &Context, files: &dyn Files) -> Result<Submission, Diagnostics> {
    let unmarked = |text: &String| !text.chars().any(config::expand::is_mark);
    let named = [Some(&command.executable), command.executable_in.as_ref()].into_iter().flatten();
    if !command.arguments.iter().chain(named).all(unmarked) {
        return Err(Diagnostic::error("characters of the private plane U+F0000 are not supported").into());
    }
    let mut set = MacroSet::default();
    let mut define = |name: &str, value: &str| {
        let source = Source::new("command line", value);
        set.define(name, value, Span::at(&source, 1, 0), None);
    };
    let variables = command.environment.iter().map(|(_, value)| value);
    for word in
        command.arguments.iter().chain([&command.executable]).chain(&command.directory).chain(variables)
    {
        fill(word, "")?;
    }
    let filled = |word: &str, item: &str| fill(word, item).unwrap_or_default();
    let words = |item: &str| quoted(&args::join(command.arguments.iter().map(|w| filled(w, item))));
    let variables = |item: &str| {
        quoted(&env::format(command.environment.iter().map(|(n, v)| (n.as_str(), filled(v, item)))))
    };
    let uses_item = |word: &str| filled(word, "a") != filled(word, "b");
    let in_words = command.arguments.iter().any(|w| uses_item(w));
    let in_variables = command.environment.iter().any(|(_, v)| uses_item(v));
    let (table, item) = match &command.items {
        Items::Count(n) => (Table { rows: 1, per_row: *n, ..Table::default() }, "$(ProcId)"),
        Items::List(items) => (list(items, (in_words, &words), (in_variables, &variables))?, "$(Item)"),
    };
    let whole = |name: &str| table.names.iter().any(|n| n == name);
    let place = command.executable_in.as_ref().map(|dir| literal(dir.trim_end_matches('/')) + "/");
    define("executable", &(place.unwrap_or_default() + &filled(&command.executable, item)));
    if whole(WORDS) {
        define("arguments", &format!("$({WORDS})"));
    } else if !command.arguments.is_empty() {
        define("arguments", &words(item));
    }
    if whole(VARIABLES) {
        define("environment", &format!("$({VARIABLES})"));
    } else if !command.environment.is_empty() {
        define("environment", &variables(item));
    }
    if let Some(directory) = &command.directory {
        define("initialdir", &filled(directory, item));
    }
    for (name, value) in [("output", &command.output), ("error", &command.error)] {
        if let Some(value) = value {
            define(name, &fill_value(value, item)?);
        }
    }
    for (name, value) in &command.keywords {
        define(name, &fill_value(value, item)?);
    }
    command.overrides.pin_with(&mut set, |value| fill_value(value, item))?;
    from_set(&set, &table, context, files)
}

/// Columns for items that cannot be put between other words as they are: all words, all variables.
const WORDS: &str = "updraft.words";
const VARIABLES: &str = "updraft.variables";

type Whole<'a> = (bool, &'a dyn Fn(&str) -> String);

fn list(items: &[String], words: Whole<'_>, variables: Whole<'_>) -> Result<Table, Diagnostics> {
    if items.iter().any(|i| i.contains('\0')) {
        return Err(Diagnostic::error("an item cannot contain a NUL character").into());
    }
    let plain = Traits::of(&items.iter().collect()).plain;
    let mut names = vec!["item".to_owned()];
    let mut columns: Vec<Column> = vec![items.iter().map(|i| literal(i)).collect()];
    for (name, (wanted, fill)) in [(WORDS, words), (VARIABLES, variables)] {
        if wanted && !plain {
            names.push(name.to_owned());
            columns.push(items.iter().map(|i| fill(&literal(i))).collect());
        }
    }
    Ok(queue::table(names, columns, 1).map_err(Diagnostic::error)?)
}

/// The template of a set of keywords over a table, with warnings about those that nothing reads.
pub(crate) fn from_set(
    set: &MacroSet,
    table: &Table,
    context: &Context,
    files: &dyn Files,
) -> Result<Submission, Diagnostics> {
    let procs = table.procs();
    if procs == 0 || procs > u64::from(model::limits::PROCS_PER_CLUSTER) {
        let most = model::limits::PROCS_PER_CLUSTER;
        return Err(Diagnostic::error(format!("{procs} jobs cannot be queued; 1 to {most} can")).into());
    }
    let used = RefCell::new(HashSet::new());
    let draws = Cell::new(context.seed);
    let job = Job { set, context, files, submit_file: "", used: &used, draws: &draws };
    let template = job.template(table, &build::groups(set)).map_err(Diagnostics)?;
    let warnings = unused(set, &used.borrow());
    Ok(Submission { templates: vec![template], warnings })
}

/// Words of a command line are literal: a dollar in them is a dollar.
fn literal(word: &str) -> String {
    word.replace('$', "$(DOLLAR)")
}

/// A word with the item and the job's numbers in it.
fn fill(word: &str, item: &str) -> Result<String, Diagnostic> {
    fill_with(word, item, literal)
}

/// The value of a keyword, in which macros of the submit language mean something, too.
fn fill_value(value: &str, item: &str) -> Result<String, Diagnostic> {
    fill_with(value, item, str::to_owned)
}

fn fill_with(word: &str, item: &str, literal: impl Fn(&str) -> String) -> Result<String, Diagnostic> {
    let known = |name: &str| match name {
        "" | "item" => Some(item.to_owned()),
        other => {
            NAMES.iter().find(|(known, _)| *known == other).map(|(_, reference)| (*reference).to_owned())
        }
    };
    braces::fill(word, &known, literal)
        .map_err(|name| braces::unknown(&name, ["", "item"].into_iter().chain(NAMES.iter().map(|(n, _)| *n))))
}

/// The new form as it stands in a submit file.
fn quoted(raw: &str) -> String {
    format!("\"{}\"", raw.replace('"', "\"\""))
}
