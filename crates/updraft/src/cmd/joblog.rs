//! `updraft joblog`: read, follow and check job event logs, ours and HTCondor's.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::joblog::event::Exit;
use ::joblog::sequence::{Checker, Rules};
use ::joblog::{BadEvent, Body, Event, Follower, Item, Reader, Stat, Step, fields};
use clap::Subcommand;
use jiff::tz::TimeZone;
use serde_json::json;

/// How often a followed log is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// How much is read at once.
const CHUNK: usize = 1 << 16;

/// Arguments of `updraft joblog`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the events of a log
    Read {
        /// The log; `-` is standard input
        file: PathBuf,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
    },
    /// Print the events of a log as they are written, through truncation and rotation, until interrupted
    Follow {
        /// The log; it need not exist yet
        file: PathBuf,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
        /// End when every job of the log has ended
        #[arg(long)]
        until_done: bool,
    },
    /// Check that a log can be read and its events make sense together
    Check {
        /// The log; `-` is standard input
        file: PathBuf,
        /// Forgive nothing, not even what a killed daemon leaves behind
        #[arg(long)]
        strict: bool,
        /// Print one JSON object per problem
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    let result = match &args.command {
        Command::Read { file, json } => read(file, *json),
        Command::Follow { file, json, until_done } => follow(file, *json, *until_done),
        Command::Check { file, strict, json } => check(file, *strict, *json),
    };
    match result {
        Ok(code) => code,
        // Whoever read our output has gone.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            errln!("updraft: {error}");
            ExitCode::FAILURE
        }
    }
}

fn zone() -> TimeZone {
    TimeZone::system()
}

/// When a log was last changed; one that is no file, now.
fn last_change(file: &Path) -> i64 {
    let changed = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.mtime());
    changed.unwrap_or_else(|| jiff::Timestamp::now().as_second())
}

fn named(file: &Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn open(file: &Path) -> std::io::Result<Box<dyn std::io::Read>> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    Ok(Box::new(File::open(file).map_err(|e| named(file, &e))?))
}

/// Hands every event of a log to `each`.
fn for_each(
    file: &Path,
    mut each: impl FnMut(Result<Event, BadEvent>) -> std::io::Result<()>,
) -> std::io::Result<Reader> {
    let mut input = open(file)?;
    let mut reader = Reader::new(zone(), last_change(file));
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = input.read(&mut chunk).map_err(|e| named(file, &e))?;
        if read == 0 {
            return Ok(reader);
        }
        reader.feed(&chunk[..read]);
        while let Some(result) = reader.next() {
            each(result)?;
        }
    }
}

fn read(file: &Path, json: bool) -> std::io::Result<ExitCode> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let zone = zone();
    let mut bad = 0u64;
    let reader = for_each(file, |result| match result {
        Ok(event) => writeln!(out, "{}", line(&event, &zone, json)),
        Err(error) => {
            bad += 1;
            report(&mut out, &error, json)
        }
    })?;
    out.flush()?;
    if reader.is_inside_event() {
        errln!("updraft: {} ends inside an event; it is not shown", file.display());
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(out: &mut impl std::io::Write, error: &BadEvent, json: bool) -> std::io::Result<()> {
    if json {
        return writeln!(
            out,
            "{}",
            json!({ "error": error.message, "line": error.line, "excerpt": error.excerpt })
        );
    }
    out.flush()?;
    errln!("line {}: {}: {}", error.line, error.message, error.excerpt);
    Ok(())
}

fn stat(metadata: &std::fs::Metadata) -> Stat {
    // One device more or less: enough to tell a file from its successor.
    Stat { id: metadata.ino() ^ metadata.dev().rotate_left(32), size: metadata.len() }
}

/// A log on disk that is followed.
pub(crate) struct Followed<'a> {
    file: &'a Path,
    follower: Follower,
    handle: Option<File>,
    chunk: Vec<u8>,
}

impl<'a> Followed<'a> {
    pub(crate) fn new(file: &'a Path) -> Self {
        let follower = Follower::new(zone(), last_change(file));
        Self { file, follower, handle: None, chunk: vec![0; CHUNK] }
    }

    /// Reads on a little. True when there is nothing more for now.
    pub(crate) fn look(&mut self) -> std::io::Result<bool> {
        self.follower.set_newest(last_change(self.file));
        let opened = self.handle.as_ref().and_then(|f| f.metadata().ok()).map(|m| stat(&m));
        let path = std::fs::metadata(self.file).ok().map(|m| stat(&m));
        let step = self.follower.step(opened, path);
        match step {
            Step::Open => self.handle = Some(File::open(self.file).map_err(|e| named(self.file, &e))?),
            Step::Read { offset, length } => {
                if let Some(handle) = &mut self.handle {
                    handle.seek(SeekFrom::Start(offset))?;
                    let want = usize::try_from(length).unwrap_or(CHUNK).min(CHUNK);
                    let read = handle.read(&mut self.chunk[..want]).map_err(|e| named(self.file, &e))?;
                    self.follower.data(&self.chunk[..read]);
                }
            }
            Step::Wait => {}
        }
        Ok(step == Step::Wait)
    }

    /// The next event or piece of news.
    pub(crate) fn item(&mut self) -> Option<Item> {
        self.follower.next()
    }
}

fn follow(file: &Path, json: bool, until_done: bool) -> std::io::Result<ExitCode> {
    let zone = zone();
    let mut followed = Followed::new(file);
    let mut checker = Checker::new(Rules::Lenient);
    let mut seen = false;
    loop {
        let idle = followed.look()?;
        let mut out = std::io::stdout().lock();
        while let Some(item) = followed.item() {
            match item {
                Item::Event(event) => {
                    seen = true;
                    checker.event(&event);
                    writeln!(out, "{}", line(&event, &zone, json))?;
                }
                Item::Bad(error) => report(&mut out, &error, json)?,
                Item::Truncated => errln!("updraft: {} was truncated; reading it anew", file.display()),
                Item::Rotated { .. } => {
                    errln!("updraft: {} was replaced; reading the new one", file.display());
                }
            }
        }
        out.flush()?;
        if idle {
            if until_done && seen && checker.unfinished().next().is_none() {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(POLL);
        }
    }
}

fn check(file: &Path, strict: bool, json: bool) -> std::io::Result<ExitCode> {
    let mut checker = Checker::new(if strict { Rules::Strict } else { Rules::Lenient });
    let mut out = std::io::stdout().lock();
    let (mut events, mut problems) = (0u64, 0u64);
    let reader = for_each(file, |result| {
        let (what, place) = match result {
            Ok(event) => {
                events += 1;
                match checker.event(&event) {
                    None => return Ok(()),
                    Some(b) => (b.message, format!("event {} of job {}.{}", b.event, b.cluster, b.proc)),
                }
            }
            Err(error) => (error.message, format!("line {}", error.line)),
        };
        problems += 1;
        problem(&mut out, json, &place, &what)
    })?;
    if reader.is_inside_event() {
        problems += 1;
        problem(&mut out, json, "end", "the log ends inside an event")?;
    }
    if !json {
        let unfinished = checker.unfinished().count();
        writeln!(out, "{events} events, {problems} problems, {unfinished} jobs not yet over")?;
    }
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn problem(out: &mut impl std::io::Write, json: bool, place: &str, what: &str) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{}", json!({ "problem": what, "place": place }));
    }
    writeln!(out, "{place}: {what}")
}

/// One event as one line.
fn line(event: &Event, zone: &TimeZone, json: bool) -> String {
    if json {
        return json!({
            "type": event.body.number(),
            "name": event.body.name(),
            "cluster": event.cluster,
            "proc": event.proc,
            "subproc": event.subproc,
            "timestamp": event.time.seconds,
            "fields": fields::of(event, zone),
        })
        .to_string();
    }
    let time = event.time.iso(zone).replace('T', " ");
    let id = format!("{}.{}", event.cluster, event.proc);
    let name = event.body.name().trim_end_matches("Event");
    let detail = model::text::one_line(&detail(&event.body), 200);
    format!("{time} {id:>10}  {:03} {name:<20} {detail}", event.body.number()).trim_end().to_owned()
}

/// What a person most wants to know about an event.
fn detail(body: &Body) -> String {
    let exit = |exit: Exit| match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    };
    match body {
        Body::Submit { host, .. } | Body::ClusterSubmit { host, .. } => format!("from {host}"),
        Body::Execute(e) => format!("on {}", e.slot.as_deref().unwrap_or(&e.host)),
        Body::NodeExecute { node, execute } => format!("node {node} on {}", execute.host),
        Body::Terminated(t) => exit(t.exit),
        Body::NodeTerminated { node, terminated } => format!("node {node}, {}", exit(terminated.exit)),
        Body::Evicted(e) => match (e.requeued, &e.reason) {
            (Some(end), _) => format!("{}, queued again", exit(end)),
            (None, reason) => reason.clone().unwrap_or_default(),
        },
        Body::ImageSize { size, memory, .. } => {
            memory.map_or_else(|| format!("{size} KiB"), |m| format!("{size} KiB, {m} MiB in use"))
        }
        Body::Held { reason, code, subcode } => {
            format!("{} (code {code}.{subcode})", reason.as_deref().unwrap_or("no reason given"))
        }
        Body::Aborted { reason }
        | Body::Released { reason }
        | Body::DataflowSkipped { reason }
        | Body::FactoryResumed { reason }
        | Body::FactoryPaused { reason, .. } => reason.clone().unwrap_or_default(),
        Body::ShadowException { message, .. } => message.clone(),
        Body::RemoteError { host, message, .. } => format!("{host}: {message}"),
        Body::Disconnected { reason, name, .. } | Body::ReconnectFailed { reason, name } => {
            format!("{name}: {reason}")
        }
        Body::Reconnected { name, .. } => name.clone(),
        Body::Suspended { processes } => format!("{processes} processes"),
        Body::AttributeUpdate { name, to, .. } => format!("{name} = {to}"),
        Body::PostScriptTerminated { exit: end, dag_node } => {
            format!("{} {}", dag_node.as_deref().unwrap_or(""), exit(*end))
        }
        Body::FileTransfer { kind, .. } => {
            let what = ["queued", "started", "finished"][(kind - 1).rem_euclid(3) as usize];
            format!("{} files: {what}", if *kind <= 3 { "input" } else { "output" })
        }
        Body::Generic { text } => text.clone(),
        Body::Other { head, .. } => head.clone(),
        _ => String::new(),
    }
}
