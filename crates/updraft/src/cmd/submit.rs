//! `updraft submit`: jobs from a submit file, a TOML file, or a command.

pub(crate) mod outputs;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::submit::{Command, Items, Overrides};
use model::JobTemplate;

use crate::cmd::{Failure, print, print_json, small_runtime, spool, usage};
use crate::files::{System, context};
use crate::place::Place;
use crate::table;

/// What to run: shared by `submit` and `run`
#[derive(Debug, clap::Args)]
pub(crate) struct What {
    /// A submit file (HTCondor's language), a .toml file (the native form), or - for standard input
    #[arg(value_name = "SUBMITFILE")]
    pub(crate) file: Option<PathBuf>,
    /// Run the command so many times; the item {} is 0 to N-1
    #[arg(long, value_name = "N", conflicts_with = "over")]
    pub(crate) count: Option<u32>,
    /// Run the command for every line of a file that is not empty, or for every file that a pattern like '*.dat' matches
    #[arg(long, value_name = "FILE|GLOB")]
    pub(crate) over: Option<String>,
    /// Put each job's output into this directory as CLUSTER.N.out and CLUSTER.N.err
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// A keyword of the submit language, for instance --set request_memory=2GB; wins over what the file says
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The command; {} in its words is the item, {proc} and {cluster} the job's numbers, {{...}} is {...}
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Give jobs to a running pool
///
/// What the jobs of a command print goes to updraft-CLUSTER.PROC.out and .err in this directory, unless --output-dir or
/// --set output=FILE says otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Upload the inputs now: the files may change or go away afterwards, also those of another machine; `updraft fetch` brings the results
    #[arg(long, conflicts_with = "dry_run")]
    spool: bool,
    /// Print the job ads and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What becomes of outputs that nobody gave a name to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// They get names in this directory.
    Named,
    /// They stay without.
    Left,
}

pub(crate) fn run(mut args: Args, place: &Place) -> Result<ExitCode, Failure> {
    if args.spool {
        args.what.set.push("should_transfer_files=YES".to_owned());
    }
    let mut templates = templates(&args.what, Unnamed::Named)?;
    if args.dry_run {
        return dry_run(&templates, args.json);
    }
    note_submit_file(&mut templates, args.what.file.as_deref());
    outputs::check_streams(&templates, outputs::Streams::Refused)?;
    // Elsewhere other files are in other places.
    if args.spool && place.pool.is_some() {
        drop_logs(&mut templates);
    }
    if place.pool.is_none() {
        outputs::check_logs(&templates)?;
        if !args.spool && !args.what.command.is_empty() && uses_unnamed(&args.what)? {
            outputs::check_directory(&std::env::current_dir()?)?;
        }
    }
    let key = trust::token::TokenId(trust::random()).to_string();
    let replies = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let mut replies = Vec::new();
        for (i, template) in templates.iter_mut().enumerate() {
            if args.spool {
                spool::spool(&client, template).await?;
            }
            replies.push(client.submit(template, &format!("{key}.{i}")).await?);
        }
        Ok::<_, Failure>(replies)
    })?;
    let here = std::env::current_dir()?;
    let places = |reply: &api::rest::SubmitReply, template: &JobTemplate| {
        let places = outputs::where_outputs_are(template, reply.cluster, &here);
        places.filter(|_| !args.what.command.is_empty())
    };
    if args.json {
        let mut all = Vec::new();
        for (reply, template) in replies.iter().zip(&templates) {
            let mut one = serde_json::to_value(reply)?;
            if let Some(places) = places(reply, template) {
                one["output"] = places.into();
            }
            all.push(one);
        }
        return print_json(&all).map_err(|why| unprinted(&replies, &why));
    }
    let mut text = String::new();
    for (reply, template) in replies.iter().zip(&templates) {
        let jobs = table::count(reply.procs.into(), "job");
        text.push_str(&format!("{jobs} submitted to cluster {}\n", reply.cluster));
        if let Some(places) = places(reply, template) {
            text.push_str(&format!("output goes to {places}\n"));
        }
    }
    print(&text).map_err(|why| unprinted(&replies, &why))
}

/// Nobody at the pool could write a log here.
fn drop_logs(templates: &mut [JobTemplate]) {
    let is_log = |name: &str| ["UserLog", "DAGManNodesLog"].iter().any(|log| name.eq_ignore_ascii_case(log));
    let mut dropped = false;
    for template in templates {
        let before = template.shared.len() + template.varying.len();
        template.shared.retain(|a| !is_log(&a.name));
        template.varying.retain(|v| !is_log(&v.name));
        dropped |= template.shared.len() + template.varying.len() < before;
    }
    if dropped {
        errln!(
            "updraft: no log is written: the pool is elsewhere; updraft events --cluster N tells what becomes of the jobs"
        );
    }
}

/// A job's results never overwrite the file that described it, so the pool must know which that is.
fn note_submit_file(templates: &mut [JobTemplate], file: Option<&Path>) {
    let Some(file) =
        file.filter(|file| file.as_os_str() != "-").and_then(|file| std::path::absolute(file).ok())
    else {
        return;
    };
    let expr = model::text::quote(&file.to_string_lossy());
    for template in templates.iter_mut().filter(|t| t.shared("SubmitFile").is_none()) {
        template
            .shared
            .push(model::template::Attribute { name: "SubmitFile".to_owned(), expr: expr.clone() });
    }
}

/// Whoever submits again because of an error must know that it was done.
fn unprinted(replies: &[api::rest::SubmitReply], why: &Failure) -> Failure {
    let clusters: Vec<String> = replies.iter().map(|reply| reply.cluster.to_string()).collect();
    let (clusters, s) = (clusters.join(", "), if replies.len() == 1 { "" } else { "s" });
    Failure::new(format!(
        "submitted as cluster{s} {clusters}, but standard output cannot be written: {}",
        why.message
    ))
}

fn dry_run(templates: &[JobTemplate], json: bool) -> Result<ExitCode, Failure> {
    use std::io::Write as _;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for template in templates {
        for ad in ::submit::dry_run(template, 1) {
            let text = if json {
                format!("{}\n", serde_json::to_string(&ad.to_json())?)
            } else {
                format!("{}\n", ad.to_lines())
            };
            match out.write_all(text.as_bytes()) {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                other => other?,
            }
        }
    }
    match out.flush() {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The templates of what is to run; what is doubtful about them is said.
pub(crate) fn templates(what: &What, unnamed: Unnamed) -> Result<Vec<JobTemplate>, Failure> {
    let context = context()?;
    let overrides = overrides(what)?;
    let refuse = |wrong: ::submit::Diagnostics| Failure::new(format!("nothing was submitted\n{wrong}"));
    let submission = match (&what.file, what.command.is_empty()) {
        (Some(_), false) => return Err(usage("either a submit file or a command after --, not both")),
        (None, true) => return Err(usage("what is to run? Name a submit file, or a command after --")),
        (Some(file), true) => {
            if what.count.is_some() || what.over.is_some() || what.output_dir.is_some() {
                return Err(usage(
                    "--count, --over and --output-dir go with a command; a submit file says these itself",
                ));
            }
            let (name, text) = read(file)?;
            if file.extension().is_some_and(|e| e == "toml") {
                ::submit::toml::parse_with(&overrides, &text, &name, &context, &System)
            } else {
                ::submit::parse_with(&overrides, &text, &name, &context, &System)
            }
        }
        (None, false) => ::submit::command(&command(what, overrides, unnamed)?, &context, &System),
    };
    let submission = submission.map_err(refuse)?;
    for warning in &submission.warnings {
        errln!("{warning}");
    }
    for warning in submission.templates.iter().filter_map(outputs::shared_outputs) {
        errln!("updraft: {warning}");
    }
    Ok(submission.templates)
}

fn overrides(what: &What) -> Result<Overrides, Failure> {
    Overrides::parse(&what.set).map_err(|wrong| usage(wrong.to_string()))
}

/// True when some output of a command has no name but the one that it gets here.
fn uses_unnamed(what: &What) -> Result<bool, Failure> {
    let overrides = overrides(what)?;
    let is_given = |names: &[&str]| what.output_dir.is_some() || overrides.value_of(names).is_some();
    Ok(!is_given(&OUTPUT) || !is_given(&ERROR))
}

/// Spellings of the keywords for the two outputs.
const OUTPUT: [&str; 3] = ["output", "stdout", "Out"];
const ERROR: [&str; 3] = ["error", "stderr", "Err"];

fn command(what: &What, overrides: Overrides, unnamed: Unnamed) -> Result<Command, Failure> {
    let (program, words) = what.command.split_first().ok_or_else(|| usage("the command is empty"))?;
    let items = match (&what.over, what.count) {
        (Some(over), _) => Items::List(items(over)?),
        (None, Some(0)) => return Err(usage("--count 0 runs nothing")),
        (None, count) => Items::Count(count.unwrap_or(1)),
    };
    let dir = match &what.output_dir {
        Some(dir) if dir.to_string_lossy().contains(['{', '}']) => {
            return Err(usage(
                "--output-dir is one directory for all jobs, and braces would stand for items; name each output with --set output=... \
                 and --set error=...",
            ));
        }
        Some(dir) if dir.to_str().is_none() => {
            return Err(usage(format!(
                "--output-dir {}: its name is no UTF-8, and jobs could not be told where to write; rename it",
                dir.display()
            )));
        }
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .map_err(|e| Failure::new(format!("--output-dir {}: {e}", dir.display())))?;
            Some(std::path::absolute(dir)?)
        }
        None => None,
    };
    // A dollar in the directory's name is a dollar.
    let in_dir = |dir: &PathBuf, suffix: &str| {
        format!("{}/$(Cluster).$(Process).{suffix}", dir.display().to_string().replace('$', "$(DOLLAR)"))
    };
    let [out, err] = outputs::UNNAMED;
    let named = |suffix: &str, unnamed_one: &str| match &dir {
        Some(dir) => Some(in_dir(dir, suffix)),
        None => (unnamed == Unnamed::Named).then(|| unnamed_one.to_owned()),
    };
    let (executable_in, executable) = find_program(program)?;
    Ok(Command {
        executable,
        executable_in,
        arguments: words.to_vec(),
        items,
        directory: None,
        environment: Vec::new(),
        output: named("out", out),
        error: named("err", err),
        // The command runs as if it had been typed here: with this environment.
        keywords: vec![("getenv".to_owned(), "true".to_owned())],
        overrides,
    })
}

fn read(file: &Path) -> Result<(String, String), Failure> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().take(1 << 30).read_to_string(&mut text)?;
        return Ok(("standard input".to_owned(), text));
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| Failure::new(format!("cannot read {name}: {e}")))?;
    Ok((name, text))
}

/// Lines of a file, or names that a pattern matches.
fn items(over: &str) -> Result<Vec<String>, Failure> {
    let is_pattern = over.contains(['*', '?', '[']) && !Path::new(over).exists();
    if !is_pattern {
        let bytes = std::fs::read(over).map_err(|e| Failure::new(format!("--over {over}: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = before.split(|b| *b == b'\n').count();
            Failure::new(format!("--over {over}, line {line}: this is not UTF-8, and items are texts; convert the file with iconv"))
        })?;
        // Editors of other systems put a mark in front that nobody sees; no item begins with one.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let items: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
        if items.is_empty() {
            return Err(Failure::new(format!("--over {over}: the file is empty")));
        }
        match text.lines().count() - items.len() {
            0 => {}
            1 => errln!("updraft: --over {over}: 1 empty line is skipped"),
            n => errln!("updraft: --over {over}: {n} empty lines are skipped"),
        }
        return Ok(items);
    }
    let mut found = vec![String::new()];
    for part in over.split('/') {
        found = found.iter().flat_map(|base| step(base, part)).collect();
    }
    if let Some(name) = found.iter().find(|name| name.contains(char::REPLACEMENT_CHARACTER)) {
        return Err(Failure::new(format!(
            "--over {over}: the file name {name} is not UTF-8; rename the file"
        )));
    }
    if found.is_empty() { Err(Failure::new(format!("--over {over}: no file matches"))) } else { Ok(found) }
}

/// One component of a pattern applied to what was found so far.
fn step(base: &str, part: &str) -> Vec<String> {
    let join = |name: &str| {
        if base.is_empty() { name.to_owned() } else { format!("{}/{name}", base.trim_end_matches('/')) }
    };
    if part.is_empty() && base.is_empty() {
        return vec!["/".to_owned()];
    }
    if !part.contains(['*', '?', '[']) {
        let path = join(part);
        return if Path::new(&path).exists() { vec![path] } else { Vec::new() };
    }
    let Ok(entries) = std::fs::read_dir(if base.is_empty() { "." } else { base }) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            (part.starts_with('.') || !name.starts_with('.')) && ::submit::glob::matches(part, name)
        })
        .collect();
    names.sort();
    names.iter().map(|name| join(name)).collect()
}

/// The directory of a program, found as a shell would find it, and its name there.
fn find_program(program: &str) -> Result<(Option<String>, String), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let runnable = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let absolute = |dir: &Path| Ok::<_, Failure>(std::path::absolute(dir)?.to_string_lossy().into_owned());
    if program.starts_with('/') {
        return Ok((None, program.to_owned()));
    }
    if program.contains('/') {
        let here = absolute(&std::env::current_dir()?)?;
        return Ok((Some(here), program.trim_start_matches("./").to_owned()));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    // An empty entry is this directory.
    let places = std::env::split_paths(&path).map(|d| if d.as_os_str().is_empty() { ".".into() } else { d });
    match places.into_iter().find(|dir: &PathBuf| runnable(&dir.join(program))) {
        Some(dir) => Ok((Some(absolute(&dir)?), program.to_owned())),
        None => Err(Failure::new(format!("{program}: command not found"))),
    }
}
