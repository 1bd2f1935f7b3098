//! `updraft seg`: tells every change of every job of another scheduler, one line each. Also what runs when the binary is
//! called through a link named `globus-scheduler-event-generator`.
//!
//! Here are the call and its exit codes; reading logs is `bridge::seg`, and [`pool`] reads our own pool.

mod pool;

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridge::files::open_file;
use bridge::seg::follow::Source;
use bridge::seg::follow::commands::Commands;
use bridge::seg::follow::kept::Kept;
use bridge::seg::follow::poll::{Ask, Poll};
use bridge::seg::module::{Reading, slurm_live};
use bridge::seg::notes::Notes;
use bridge::seg::passes::Memory;
use bridge::seg::plugin::Plugin;
use bridge::seg::poll::{Books, Gone};
use bridge::seg::pool::Teller;
use bridge::seg::run::{End, Failure, Options, Output, copy, run as run_loop};
use bridge::seg::{Module, settings};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use jiff::tz::TimeZone;
use tokio::signal::unix::{SignalKind, signal};

use crate::cmd::small_runtime;
use crate::place::Place;

/// The name of the original.
pub(crate) const LINK: &str = "globus-scheduler-event-generator";
/// The module that is no log of another scheduler.
const OWN: &str = "updraft";
/// The module that asks a command of the site.
const POLL: &str = "poll";
/// Between two answers of that command, if nothing else is said.
const INTERVAL: u64 = 10;
/// A command that takes longer is ended, or as long as three intervals.
const PATIENCE: u64 = 60;
/// How long standard error is waited for, after all went well and after a mistake.
const LAST_NOTES: Duration = Duration::from_millis(15);
const LAST_WORDS: Duration = Duration::from_secs(1);
/// It leaves within 100 ms of the end of its input; this much of them may go into telling what is there.
const FAREWELL: Duration = Duration::from_millis(80);
/// Tells the child of `-b` from its parent.
const CHILD: &str = "--in-background";

const ABOUT: &str = "Tell every change of every job of another scheduler";
const MORE: &str = "\
Reads the scheduler's log and prints `001;TIME;JOB;STATE;CODE` for each: 1 pending, 2 active, 4 failed, 8 done. Ends when \
standard input ends or nobody reads the output. Schedulers: pbs, pbs_acct, lsf, condor, slurm, fork, sge, job_manager, poll \
for any other by a command of the site, and updraft for our own pool; any other NAME is a module libupdraft_seg_NAME.so, or \
its path.";

/// `updraft seg`
#[derive(Debug, clap::Args)]
#[command(about = ABOUT, long_about = format!("{ABOUT}\n\n{MORE}"))]
pub(crate) struct Args {
    /// Whose log to read
    #[arg(short = 's', long = "scheduler", value_name = "NAME")]
    scheduler: Option<String>,
    /// Only events at or after this UNIX time; 0 or nothing: from now on
    #[arg(short = 't', long = "time", value_name = "SECONDS", allow_hyphen_values = true)]
    time: Option<String>,
    /// Write to DIR/YYYYMMDD by the UTC day of each event; standard input is not watched then
    #[arg(short = 'd', long = "directory", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Go to the background; only with -d
    #[arg(short = 'b', long = "background")]
    background: bool,
    /// With -b: write the process id to FILE
    #[arg(short = 'p', long = "pid-file", value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// The log, a file or a directory, instead of the one in the configuration
    #[arg(long, value_name = "PATH")]
    log_path: Option<PathBuf>,
    /// Slurm: ask this command for live changes, or `no` [default: squeue of the configuration or, without --log-path, the
    /// one that is found]
    #[arg(long, value_name = "COMMAND")]
    squeue: Option<PathBuf>,
    /// Poll: a line for sh that prints `ID STATE [CODE [TIME]]` for every job [default: command of the configuration]
    #[arg(long, value_name = "LINE")]
    command: Option<String>,
    /// Poll: between two answers [default: interval of the configuration, or 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
    /// Poll: what to tell of a job that is in no answer any more and whose end was not told: note, done or failed
    /// [default: gone of the configuration, or note]
    #[arg(long, value_name = "WHAT")]
    gone: Option<String>,
    /// Remember in FILE, for the next generator. Poll: what was told, which is told again from -t on as it was. Logs with local
    /// times (pbs, pbs_acct, condor, slurm): which pass of a doubled hour lines were taken for
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Print `000;TIME;heartbeat` that often: all that was there by then has been told
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    heartbeat: Option<u64>,
    /// Go on when everything is read (the default)
    #[arg(long, conflicts_with = "once")]
    follow: bool,
    /// Stop when everything is read; standard input is not watched then
    #[arg(long)]
    once: bool,
    /// One JSON object a line instead of the protocol
    #[arg(long)]
    json: bool,
    /// Also suspended and other states that readers of the classic protocol do not know
    #[arg(long)]
    all_states: bool,
    /// Read this file for log_path instead of /etc/globus/globus-NAME.conf
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long = "in-background", hide = true)]
    in_background: bool,
}

#[derive(Parser)]
struct Direct {
    #[command(flatten)]
    args: Args,
    #[command(flatten)]
    place: Place,
}

/// Takes the call over if it is for this command. Mistakes in it end with 1, as supervisors of the original expect.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let is_link = words.first().and_then(|w| Path::new(w).file_name()) == Some(OsStr::new(LINK));
    if !is_link {
        if words.get(1).is_none_or(|w| w != "seg") {
            return None;
        }
        words.remove(0);
        words[0] = "updraft seg".into();
    }
    // Without these, what is said about the last of the flattened parts would be said about the whole.
    let command = Direct::command().about(ABOUT).long_about(format!("{ABOUT}\n\n{MORE}")).max_term_width(100);
    let parsed = command.try_get_matches_from(words).and_then(|found| Direct::from_arg_matches(&found));
    Some(match parsed {
        Ok(direct) => run(&direct.args, &direct.place),
        Err(error) => {
            // Nothing can be done about a terminal that is gone.
            let _ = error.print();
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    })
}

/// Runs the command.
pub(crate) fn run(args: &Args, place: &Place) -> ExitCode {
    let notes = match Notes::start(report) {
        Ok(notes) => notes,
        Err(error) => {
            report(&format!("cannot start a thread: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = attempt(args, place, &notes);
    if let Err(message) = &result {
        notes.add(message);
    }
    notes.finish(if result.is_ok() { LAST_NOTES } else { LAST_WORDS });
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whoever reads standard error may be gone; that is no reason to stop.
fn report(message: &str) {
    let _ = writeln!(std::io::stderr(), "updraft seg: {message}");
}

fn attempt(args: &Args, pool: &Place, notes: &Notes) -> Result<(), String> {
    let name =
        args.scheduler.as_deref().ok_or("-s NAME is missing; `updraft seg -h` shows how to call it")?;
    let from = start_time(args.time.as_deref())?;
    let reading = Reading { from, zone: TimeZone::system(), all_states: args.all_states };
    let (mut source, place) = source(args, pool, name, &reading, notes)?;
    if let Some(directory) = &args.directory {
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
            .map_err(|e| format!("cannot write to {}: {e}", directory.display()))?;
    }
    if args.background && !args.in_background {
        if args.directory.is_some() {
            return background(args);
        }
        notes.add("-b has no effect without -d");
    }
    if args.in_background {
        // It stays with its parent's terminal if this fails, which a fresh child cannot see happen.
        let _ = rustix::process::setsid();
    }
    let options = Options {
        follow: !args.once,
        json: args.json,
        all_states: args.all_states,
        poll: false,
        farewell: FAREWELL,
        heartbeat: args.heartbeat.map(Duration::from_secs),
    };
    let (input, output) = if let Some(directory) = &args.directory {
        (until_interrupt(), Output::Days(directory.clone()))
    } else {
        let output = copy(&std::io::stdout())
            .filter(|_| !starter::streams::was_output_closed())
            .ok_or("standard output is closed: nobody would hear of any event")?;
        (if args.once { None } else { copy(&std::io::stdin()) }, Output::Stream(output))
    };
    match run_loop(source.as_mut(), options, input, output, &mut |note| notes.add(note)) {
        Ok(End::Incomplete) => Err(format!("{place}: not everything could be read")),
        Ok(_) => Ok(()),
        Err(Failure::Log(error)) => Err(format!("{place}: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// What to read, and what to call it: one of our modules, or somebody's library.
fn source(
    args: &Args,
    place: &Place,
    name: &str,
    reading: &Reading,
    notes: &Notes,
) -> Result<(Box<dyn Source>, String), String> {
    if name == OWN {
        let teller = Teller { from: reading.from, all_states: reading.all_states };
        let (pool, name) = pool::Pool::start(place, teller, !args.once)?;
        return Ok((Box::new(pool), name));
    }
    if name == POLL {
        let (ask, gone) = poll_settings(args)?;
        let name = ask.command.clone();
        let mut source = Poll::start(ask, Books::new(reading.from, gone)).map_err(|e| e.to_string())?;
        if let Some(path) = &args.state {
            source = source.remembering(path, reading.from);
        }
        end_with_signals(source.stopper());
        return Ok((Box::new(source), name));
    }
    if let Some(module) = Module::by_name(name) {
        let path = log_path(args, module);
        let memory = memory(args, module, reading.from, notes);
        if let Some(commands) = (module == Module::Slurm).then(|| slurm_commands(args)).flatten() {
            let name = commands.squeue.display().to_string();
            let source = slurm_live(commands, path.ok().as_deref(), reading, memory.as_ref())
                .map_err(|e| e.to_string())?;
            return Ok((source, name));
        }
        let path = path?;
        return Ok((module.source_remembering(&path, reading, memory), path.display().to_string()));
    }
    let plugin = Plugin::load(name, reading.from).map_err(|error| {
        let known: Vec<_> = Module::ALL.iter().map(|m| m.name()).chain([POLL, OWN]).collect();
        format!("Invalid module {name}: activation failed; built in are {}. {error}", known.join(", "))
    })?;
    Ok((Box::new(plugin), format!("module {name}")))
}

/// Where what times of a doubled hour were taken for is remembered, if somebody wants that. It is no reason not to read the log.
fn memory(args: &Args, module: Module, from: i64, notes: &Notes) -> Option<Memory> {
    let path = args.state.as_deref().filter(|_| module.has_local_times())?;
    match Kept::open(path, from) {
        Ok(kept) => Some(Arc::new(Mutex::new(kept))),
        Err(error) => {
            notes.add(&format!(
                "{}: {error}; a generator that is started again may tell events of a doubled hour twice",
                path.display()
            ));
            None
        }
    }
}

/// With `-d` an interrupt is a clean stop, as the end of the input is otherwise: the end of a pipe stands for it. The
/// terminating signal keeps its default action; what was written by then are whole lines.
fn until_interrupt() -> Option<OwnedFd> {
    let (reader, writer) = std::io::pipe().ok()?;
    let runtime = small_runtime().ok()?;
    let listen = {
        let _context = runtime.enter();
        signal(SignalKind::interrupt()).ok()
    };
    let mut interrupt = listen?;
    let wait = move || {
        runtime.block_on(interrupt.recv());
        drop(writer);
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(wait).ok()?;
    Some(reader.into())
}

/// Signals end this process as they would, but not before the command that runs was ended.
fn end_with_signals(stop: impl Fn() + Send + 'static) {
    let Ok(runtime) = small_runtime() else { return };
    let listen = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    };
    let (Ok(mut interrupt), Ok(mut terminate)) = listen else { return };
    let wait = move || {
        let number = runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => 2, _ = terminate.recv() => 15 }
        });
        stop();
        std::process::exit(128 + number);
    };
    // Without the thread the signals would be lost: then they keep their default action only if nobody listens, so it is
    // better to say nothing than to go on; a process that has no thread left has other troubles.
    let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
}

/// Digits count up to the first that is none; 0 is the same as nothing.
fn start_time(text: Option<&str>) -> Result<i64, String> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let Some(text) = text else { return Ok(now()) };
    let digits = text.trim_start();
    let sign = digits.len() - digits.trim_start_matches(['-', '+']).len();
    let end = digits[sign..].find(|c: char| !c.is_ascii_digit()).map_or(digits.len(), |n| n + sign);
    match digits[..end].parse() {
        Ok(0) => Ok(now()),
        Ok(seconds) => Ok(seconds),
        Err(_) => Err(format!("Invalid timestamp [{text}]")),
    }
}

/// Slurm's commands: those that were named here or in the configuration, else those that are found. Who names a log and
/// no command wants that log alone, which may be another cluster's.
fn slurm_commands(args: &Args) -> Option<Commands> {
    let settings = std::fs::read_to_string(config_path(args, Module::Slurm.name())).unwrap_or_default();
    let named = args.squeue.clone().or_else(|| settings::value(&settings, "squeue").map(PathBuf::from));
    let squeue = match named {
        Some(path) if path == Path::new("no") => return None,
        Some(path) => path,
        None if args.log_path.is_some() => return None,
        None => find("squeue")?,
    };
    let sacct = match settings::value(&settings, "sacct") {
        Some(path) => (path != "no").then(|| PathBuf::from(path)),
        None => {
            Some(squeue.with_file_name("sacct")).filter(|beside| beside.is_file()).or_else(|| find("sacct"))
        }
    };
    Some(Commands::new(squeue, sacct))
}

/// A command on the search path.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|place| place.join(name));
    files.find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

fn config_path(args: &Args, name: &str) -> PathBuf {
    args.config.clone().unwrap_or_else(|| PathBuf::from(format!("/etc/globus/globus-{name}.conf")))
}

/// What the `poll` module runs: from the call, else from the configuration.
fn poll_settings(args: &Args) -> Result<(Ask, Gone), String> {
    let file = config_path(args, POLL);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(_) if args.command.is_some() && args.config.is_none() => String::new(),
        Err(error) => return Err(format!("{}: {error}; give --command or --config", file.display())),
    };
    let value = |key: &str| settings::value(&text, key);
    let command = args.command.clone().or_else(|| value("command"));
    let command = command.ok_or_else(|| {
        format!("{} does not set command; add `command=LINE` to it, or give --command", file.display())
    })?;
    let wrong = |key: &str, text: &str, wanted: &str| format!("{key} is {text:?}, not {wanted}");
    let interval = match (args.interval, value("interval")) {
        (Some(seconds), _) => seconds,
        (None, Some(text)) => {
            let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
            seconds.ok_or_else(|| wrong("interval", &text, "a number of seconds from 1 to 86400"))?
        }
        (None, None) => INTERVAL,
    };
    let gone = args.gone.clone().or_else(|| value("gone")).unwrap_or_else(|| "note".to_owned());
    let gone = Gone::parse(&gone).ok_or_else(|| wrong("gone", &gone, "note, done or failed"))?;
    let patience = Duration::from_secs(PATIENCE.max(3 * interval));
    Ok((Ask { command, interval: Duration::from_secs(interval), patience }, gone))
}

fn log_path(args: &Args, module: Module) -> Result<PathBuf, String> {
    if let Some(path) = &args.log_path {
        return Ok(path.clone());
    }
    if module == Module::JobManager && args.config.is_none() {
        let scheduler = std::env::var_os("JOB_MANAGER_SEG_SCHEDULER")
            .ok_or("JOB_MANAGER_SEG_SCHEDULER is not set; give --log-path or set it")?;
        return Ok(std::env::var_os("JOB_MANAGER_SEG_LOG_PATH").map_or_else(
            || {
                let mut path = std::ffi::OsString::from("/var/lib/globus/globus-seg-");
                path.push(scheduler);
                PathBuf::from(path)
            },
            PathBuf::from,
        ));
    }
    let file = config_path(args, module.name());
    let text = std::fs::read_to_string(&file)
        .map_err(|e| format!("{}: {e}; give --log-path or --config", file.display()))?;
    settings::value(&text, "log_path").map(PathBuf::from).ok_or_else(|| {
        format!("{} does not set log_path; add `log_path=PATH` to it, or give --log-path", file.display())
    })
}

/// Starts a child with the same arguments and leaves. The call was checked before: what can go wrong is said here.
fn background(args: &Args) -> Result<(), String> {
    let pid_file = match &args.pid_file {
        Some(path) => {
            let mut options = std::fs::File::options();
            let file = open_file(options.write(true).create(true).truncate(true), path);
            Some(file.map_err(|e| format!("{}: {e}", path.display()))?)
        }
        None => None,
    };
    let binary = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let skip = if std::env::args_os().nth(1).is_some_and(|w| w == "seg") { 2 } else { 1 };
    let child = std::process::Command::new(binary)
        .arg("seg")
        .args(std::env::args_os().skip(skip))
        .arg(CHILD)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot go to the background: {e}"))?;
    if let Some(mut file) = pid_file {
        writeln!(file, "{}", child.id()).map_err(|e| format!("cannot write the process id: {e}"))?;
    }
    let _ = writeln!(std::io::stdout(), "Running in background (pid={})", child.id());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::start_time;

    #[test]
    fn start_times_are_read_as_the_original_does() {
        assert_eq!(start_time(Some("123abc")), Ok(123));
        assert_eq!(start_time(Some("-5")), Ok(-5));
        assert!(start_time(Some("0")).unwrap() > 1_700_000_000);
        assert_eq!(start_time(None).unwrap() / 100, start_time(Some("0")).unwrap() / 100);
        assert_eq!(start_time(Some("abc")), Err("Invalid timestamp [abc]".to_owned()));
        assert!(start_time(Some("")).is_err());
    }
}
