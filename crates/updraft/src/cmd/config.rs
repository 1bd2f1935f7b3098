//! `updraft config`: check configurations, show values with their sources, compare.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use ::config::settings::Origin;
use ::config::{Config, Diagnostic, Diagnostics, Loader};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::files::System;

/// Read when no file is named and no variable names one.
const USUAL: [&str; 2] = ["/etc/updraft/updraft.conf", "/etc/condor/condor_config"];

/// Arguments of `updraft config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Configuration file; may be repeated. Default: $UPDRAFT_CONFIG, $CONDOR_CONFIG, /etc/updraft/updraft.conf
    #[arg(long = "file", short = 'f', value_name = "FILE", global = true)]
    files: Vec<PathBuf>,
    /// Who asks; settings with this prefix win
    #[arg(long, default_value = "STARTD", global = true)]
    subsystem: String,
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
    Check,
    /// Show every setting with its value and where it comes from
    Show {
        /// Show built-in values too
        #[arg(long)]
        all: bool,
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
    /// Compare two configurations, value by value
    Diff {
        /// One file
        old: PathBuf,
        /// The other file
        new: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    let result = match &args.command {
        Command::Check => check(&args),
        Command::Show { all, name } => show(&args, *all, name.as_deref()),
        Command::Expand { name, source } => expand(&args, name, *source),
        Command::Diff { old, new } => diff(&args, old, new),
    };
    result.unwrap_or_else(|Diagnostics(findings)| {
        for finding in &findings {
            eprintln!("{finding}");
        }
        ExitCode::FAILURE
    })
}

/// What this machine can tell about itself.
fn detected() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let host = agent::host_name();
    let short = host.split('.').next().unwrap_or(&host).to_owned();
    let user = starter::user::name_of(starter::user::own_uid());
    let home = std::env::var("HOME").unwrap_or_default();
    format!(
        "DETECTED_CPUS = {cpus}\nFULL_HOSTNAME = {host}\nHOSTNAME = {short}\nUSERNAME = {user}\nTILDE = {home}\n\
         PID = {}\n",
        std::process::id()
    )
}

fn files(args: &Args) -> Vec<String> {
    if !args.files.is_empty() {
        return args.files.iter().map(|f| f.to_string_lossy().into_owned()).collect();
    }
    for variable in ["UPDRAFT_CONFIG", "CONDOR_CONFIG"] {
        if let Ok(path) = std::env::var(variable) {
            return vec![path];
        }
    }
    let usual = USUAL.iter().find(|path| std::path::Path::new(path).exists());
    usual.map(|path| vec![(*path).to_owned()]).unwrap_or_default()
}

fn load(args: &Args, files: &[String]) -> Result<Config<'static>, Diagnostics> {
    let mut loader = Loader::new(&System, &args.subsystem).text("detected", &detected());
    if let Some(name) = &args.local_name {
        loader = loader.local_name(name);
    }
    for file in files {
        loader = loader.file(file);
    }
    if let Ok(directory) = std::env::current_dir() {
        loader = loader.directory(&directory.to_string_lossy());
    }
    let now = jiff::Timestamp::now().as_second();
    loader.seed(u64::from(std::process::id())).now(now).load()
}

fn check(args: &Args) -> Result<ExitCode, Diagnostics> {
    let files = files(args);
    let config = load(args, &files)?;
    for warning in &config.warnings {
        eprintln!("{warning}");
    }
    let count = config.definitions().filter(|d| &**d.span.file() != "detected").count();
    let names = if files.is_empty() { "built-in values".to_owned() } else { files.join(", ") };
    if args.json {
        println!("{}", json!({ "files": files, "settings": count, "warnings": config.warnings.len() }));
    } else {
        println!("{names}: {count} settings, {} warnings", config.warnings.len());
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
        println!("{}", Value::Array(list));
        return Ok(ExitCode::SUCCESS);
    }
    for row in chosen {
        println!("# {}\n{} = {}", row.source, row.name, shown(&row.value));
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
        println!("{}", json!({ "name": name, "value": value, "raw": raw, "source": place }));
    } else if source {
        println!("# {place}\n# {name} = {raw}\n{value}");
    } else {
        println!("{value}");
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
        println!("{}", Value::Array(list));
    } else {
        for (name, before, after) in &changes {
            for (sign, value) in [('-', before), ('+', after)] {
                if let Some(value) = value {
                    println!("{sign} {name} = {value}");
                }
            }
        }
    }
    // As with diff: 1 says that there are differences.
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
