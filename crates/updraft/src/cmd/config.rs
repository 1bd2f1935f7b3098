//! `updraft config`: check configurations, show values with their sources, compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::config::settings::Origin;
use ::config::{Config, Diagnostic, Diagnostics};
use api::rest::ConfigRequest;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::cmd::{Failure, print, small_runtime, usage};
use crate::configuration;
use crate::place::Place;

/// Arguments of `updraft config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Configuration file; may be repeated. Default: $UPDRAFT_CONFIG, $CONDOR_CONFIG, /etc/updraft/updraft.conf
    #[arg(long = "file", short = 'f', value_name = "FILE", global = true)]
    files: Vec<PathBuf>,
    /// Who asks; settings with this prefix win [default: STARTD; `check` asks for all of them]
    #[arg(long, global = true)]
    subsystem: Option<String>,
    /// Name of one daemon among several of its kind
    #[arg(long, value_name = "NAME", global = true)]
    local_name: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a configuration; errors point at the character
    Check {
        /// How the machine is divided is checked as if it had so many cores. Default: as many as this one
        #[arg(long, value_name = "N")]
        cpus: Option<u32>,
    },
    /// Show every setting with its value and where it comes from
    Show {
        /// Show built-in values too
        #[arg(long)]
        all: bool,
        /// The configuration of a machine of the pool, as it is in force there
        #[arg(long, value_name = "HOST")]
        machine: Option<String>,
        /// Only names that contain this text
        name: Option<String>,
    },
    /// Print the value of one setting, with all macros expanded
    Expand {
        /// The name
        name: String,
        /// Say where it comes from and what it was before expansion
        #[arg(long)]
        source: bool,
    },
    /// Set policy macros on a machine of the pool; they stay until they are removed
    Set {
        /// The machine
        #[arg(long, value_name = "HOST")]
        machine: String,
        /// The name of this set of macros
        #[arg(long, value_name = "SET", default_value = "administrator")]
        set: String,
        /// NAME=VALUE, several at once
        #[arg(value_name = "NAME=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove a set of policy macros from a machine of the pool
    Unset {
        /// The machine
        #[arg(long, value_name = "HOST")]
        machine: String,
        /// The name of the set
        #[arg(long, value_name = "SET", default_value = "administrator")]
        set: String,
    },
    /// Compare two configurations, value by value
    Diff {
        /// One file
        old: PathBuf,
        /// The other file
        new: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Show { machine: Some(machine), .. } => ask(args, place, machine, Order::Show),
        Command::Set { machine, set, settings } => {
            if let Some(bad) = settings.iter().find(|s| !s.contains('=')) {
                return Err(usage(format!("{bad}: write NAME=VALUE")));
            }
            ask(args, place, machine, Order::Set(set.clone(), settings.join("\n")))
        }
        Command::Unset { machine, set } => ask(args, place, machine, Order::Set(set.clone(), String::new())),
        _ => Ok(locally(args)),
    }
}

/// What is wanted of a machine.
enum Order {
    Show,
    Set(String, String),
}

fn ask(args: &Args, place: &Place, machine: &str, order: Order) -> Result<ExitCode, Failure> {
    let reply = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let reply = match order {
            Order::Show => client.machine_config(machine).await,
            Order::Set(set, text) => client.configure(machine, &ConfigRequest { set, text }).await,
        };
        reply.map_err(Failure::from)
    })?;
    if args.json { crate::cmd::print_json(&reply) } else { print(&format!("{}\n", reply.text.trim_end())) }
}

fn locally(args: &Args) -> ExitCode {
    let result = match &args.command {
        Command::Check { cpus } => check(args, *cpus),
        Command::Show { all, name, .. } => show(args, *all, name.as_deref()),
        Command::Set { .. } | Command::Unset { .. } => Ok(ExitCode::SUCCESS),
        Command::Expand { name, source } => expand(args, name, *source),
        Command::Diff { old, new } => diff(args, old, new),
    };
    result.unwrap_or_else(|Diagnostics(findings)| {
        for finding in &findings {
            errln!("{finding}");
        }
        ExitCode::FAILURE
    })
}

fn files(args: &Args) -> Vec<String> {
    configuration::files(&args.files)
}

fn load(args: &Args, files: &[String]) -> Result<Config<'static>, Diagnostics> {
    configuration::load(args.subsystem.as_deref().unwrap_or("STARTD"), args.local_name.as_deref(), files)
}

/// Everything that `updraft up`, `agent`, `eventd` and `monitor` would refuse of it; of one subsystem only, if that is named.
fn check(args: &Args, cpus: Option<u32>) -> Result<ExitCode, Diagnostics> {
    let files = files(args);
    let config = load(args, &files)?;
    let mut warnings = config.warnings.clone();
    // Whoever uses one refuses it for itself.
    warnings.extend(config.broken.iter().map(Diagnostic::as_warning));
    let mut errors = Vec::new();
    let mut note = |found: Result<Vec<Diagnostic>, Diagnostics>| match found {
        Ok(found) => warnings.extend(found),
        Err(Diagnostics(found)) => errors.extend(found),
    };
    let is_of =
        |subsystem: &str| args.subsystem.as_deref().is_none_or(|named| named.eq_ignore_ascii_case(subsystem));
    if is_of("STARTD") {
        note(agent::check(&config, agent::resources(cpus, Path::new("/"))));
    }
    if is_of("MANAGER") {
        note(configuration::load("MANAGER", args.local_name.as_deref(), &files).and_then(|config| {
            let (_, told) = scheduler::Settings::default().configured(&config)?;
            store::Settings::configured(&config)?;
            Ok(told.into_iter().map(Diagnostic::warning).collect())
        }));
    }
    if is_of("EVENTD") {
        note(configuration::check_windows(&files));
    }
    note(crate::monitors::check(&config));
    errors.extend(warnings.extract_if(.., |finding| finding.is_error()));
    let mut seen = std::collections::HashSet::new();
    warnings.retain(|warning| seen.insert(warning.to_string()));
    errors.retain(|error| seen.insert(error.to_string()));
    // What one only warns of and another refuses is refused.
    warnings.retain(|w| !errors.iter().any(|e| e.message == w.message && e.place == w.place));
    for warning in &warnings {
        errln!("{warning}");
    }
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    let count = config.definitions().filter(|d| &**d.span.file() != "detected").count();
    let names = if files.is_empty() { "built-in values".to_owned() } else { files.join(", ") };
    if args.json {
        outln!("{}", json!({ "files": files, "settings": count, "warnings": warnings.len() }));
    } else {
        outln!("{names}: {count} settings, {} warnings", warnings.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// One setting: its value and its source.
struct Row {
    name: String,
    value: Result<Option<String>, Diagnostic>,
    source: String,
    raw: String,
}

fn rows(config: &Config<'_>, all: bool) -> BTreeMap<String, Row> {
    let mut names: Vec<String> = config.definitions().map(|d| d.name.clone()).collect();
    if all {
        names.extend(::config::defaults::KNOWN.iter().map(|k| k.name.to_owned()));
    }
    let mut rows = BTreeMap::new();
    for name in names {
        let (source, raw) = match config.origin(&name) {
            Some(Origin::Definition(d)) => (format!("{}:{}", d.span.file(), d.span.line()), d.raw.clone()),
            Some(Origin::Default(raw)) => ("built in".to_owned(), raw.to_owned()),
            None => continue,
        };
        let row = Row { value: config.get(&name), source, raw, name: name.clone() };
        rows.entry(name.to_ascii_uppercase()).or_insert(row);
    }
    rows
}

fn shown(value: &Result<Option<String>, Diagnostic>) -> String {
    match value {
        Ok(value) => value.clone().unwrap_or_default().replace('\n', "\n    "),
        Err(error) => format!("({})", error.message),
    }
}

fn show(args: &Args, all: bool, part: Option<&str>) -> Result<ExitCode, Diagnostics> {
    let config = load(args, &files(args))?;
    let part = part.unwrap_or("").to_ascii_uppercase();
    let rows = rows(&config, all);
    let chosen = rows.iter().filter(|(key, _)| key.contains(&part)).map(|(_, row)| row);
    if args.json {
        let list: Vec<Value> = chosen
            .map(|r| json!({ "name": r.name, "value": r.value.as_ref().ok(), "raw": r.raw, "source": r.source }))
            .collect();
        outln!("{}", Value::Array(list));
        return Ok(ExitCode::SUCCESS);
    }
    for row in chosen {
        outln!("# {}\n{} = {}", row.source, row.name, shown(&row.value));
    }
    Ok(ExitCode::SUCCESS)
}

fn expand(args: &Args, name: &str, source: bool) -> Result<ExitCode, Diagnostics> {
    let config = load(args, &files(args))?;
    let Some(value) = config.get(name)? else {
        let known = config.definitions().map(|d| d.name.as_str());
        let known = known.chain(::config::defaults::KNOWN.iter().map(|k| k.name));
        let finding = Diagnostic::error(format!("{name} is not defined"));
        return Err(match ::config::names::suggest(name, known) {
            Some(near) => finding.hint(format!("did you mean {near}?")),
            None => finding,
        }
        .into());
    };
    let (place, raw) = match config.origin(name) {
        Some(Origin::Definition(d)) => (format!("{}:{}", d.span.file(), d.span.line()), d.raw.clone()),
        Some(Origin::Default(raw)) => ("built in".to_owned(), raw.to_owned()),
        None => (String::new(), String::new()),
    };
    if args.json {
        outln!("{}", json!({ "name": name, "value": value, "raw": raw, "source": place }));
    } else if source {
        outln!("# {place}\n# {name} = {raw}\n{value}");
    } else {
        outln!("{value}");
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(args: &Args, old: &std::path::Path, new: &std::path::Path) -> Result<ExitCode, Diagnostics> {
    let side = |path: &std::path::Path| load(args, &[path.to_string_lossy().into_owned()]);
    let (old, new) = (side(old)?, side(new)?);
    let (old, new) = (rows(&old, true), rows(&new, true));
    let mut changes = Vec::new();
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let value = |rows: &BTreeMap<String, Row>| rows.get(name).map(|r| shown(&r.value));
        let (before, after) = (value(&old), value(&new));
        if before != after {
            changes.push((name, before, after));
        }
    }
    if args.json {
        let list: Vec<Value> =
            changes.iter().map(|(n, a, b)| json!({ "name": n, "old": a, "new": b })).collect();
        outln!("{}", Value::Array(list));
    } else {
        for (name, before, after) in &changes {
            for (sign, value) in [('-', before), ('+', after)] {
                if let Some(value) = value {
                    outln!("{sign} {name} = {value}");
                }
            }
        }
    }
    // As with diff: 1 says that there are differences.
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
