//! `updraft monitor`: the job state monitor as a process. JSON lines in (register, unregister, ack) and out (changes).
//!
//! Here are the call and the end; [`lines`] reads requests and writes replies, [`output`] prints them; everything else is `bridge::monitor`.

mod lines;
mod output;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use bridge::monitor::{Change, Listener, Monitor, Registering, Reply, Settings, State};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::lines::{Request, change_line, read_request, status_line};
use self::output::Output;
use crate::cmd::{Failure, small_runtime};
use crate::place::Place;
use crate::{configuration, monitors};

/// Longest request.
const LINE_BYTES: usize = 16 << 20;

/// Tell the changes of jobs of another scheduler to whoever registered them
///
/// Runs `updraft seg` (or the generator of the configuration) and reads requests, one JSON object a line:
/// {"register":"ID","key":"KEY"}, {"unregister":"ID"}, {"ack":N}, {"status":true}. Prints one object for every change of a
/// registered job: {"key":...,"id":...,"time":...,"state":...,"code":...,"n":N}.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose jobs; the name of a generator module
    #[arg(short = 's', long = "scheduler", value_name = "NAME")]
    scheduler: String,
    /// Where requests come from: a file, or - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    register: PathBuf,
    /// Go on when all registered jobs are over; until standard input ends, or for ever if requests come from a file
    #[arg(long)]
    follow: bool,
    /// A change counts as handled when {"ack":N} was read, not when it was printed
    #[arg(long)]
    ack: bool,
    /// Tell everything, also what follows a job's end
    #[arg(long)]
    raw: bool,
    /// Where the datum is kept; without it nothing is remembered between runs
    #[arg(long, value_name = "FILE")]
    datum: Option<PathBuf>,
    /// Where to begin when there is no datum yet; default: now
    #[arg(long, value_name = "SECONDS")]
    start: Option<i64>,
    /// Run the generator as this user, by way of sudo
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The scheduler's log, for our own generator
    #[arg(long, value_name = "PATH")]
    log_path: Option<PathBuf>,
    /// The generator to run instead of `updraft seg`; a word for each use
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    command: Vec<std::ffi::OsString>,
    /// Configuration file; may be repeated. Default: $UPDRAFT_CONFIG, $CONDOR_CONFIG, /etc/updraft/updraft.conf
    #[arg(long = "config", value_name = "FILE")]
    config: Vec<PathBuf>,
}

enum Message {
    Request(Result<Request, String>),
    InputEnded,
    /// A job is over, or the output is.
    LookAgain,
    Signal,
}

/// What is registered here and not over.
#[derive(Default)]
struct Open {
    ids: HashSet<Vec<u8>>,
    /// Ends that were told and wait to be acknowledged.
    ends: HashMap<u64, Vec<u8>>,
}

struct Printing {
    with_ack: bool,
    open: Mutex<Open>,
    output: Arc<Output>,
    news: Mutex<Sender<Message>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Printing {
    /// Prints a line; false when nobody reads any more.
    fn print(&self, line: &str) -> bool {
        let is_out = self.output.print(line);
        if !is_out {
            let _ = lock(&self.news).send(Message::LookAgain);
        }
        is_out
    }

    fn end(&self, id: &[u8]) {
        lock(&self.open).ids.remove(id);
        let _ = lock(&self.news).send(Message::LookAgain);
    }
}

impl Listener for Printing {
    fn job_changed(&self, change: &Change) -> Result<Reply, String> {
        let is_end = matches!(change.state, State::Failed | State::Done);
        if self.with_ack && is_end {
            lock(&self.open).ends.insert(change.number, change.id.to_vec());
        }
        // A job that was put back is waited for again.
        if !is_end {
            lock(&self.open).ids.insert(change.id.to_vec());
        }
        if !self.print(&change_line(change)) {
            return Err("nobody reads standard output".to_owned());
        }
        if self.with_ack {
            return Ok(Reply::Later);
        }
        if is_end {
            self.end(&change.id);
        }
        Ok(Reply::Handled)
    }

    fn caught_up(&self) {
        let _ = lock(&self.news).send(Message::LookAgain);
    }

    fn note(&self, text: &str) {
        errln!("updraft monitor: {text}");
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let settings = settings(args, place)?;
    let (sender, receiver) = channel();
    let goes_on = args.follow && args.register.as_os_str() != "-";
    let ends_with_input = args.follow && !goes_on;
    let output = Arc::new(Output::of_process().map_err(Failure::new)?);
    let printing = Arc::new(Printing {
        with_ack: args.ack,
        open: Mutex::default(),
        output: Arc::clone(&output),
        news: Mutex::new(sender.clone()),
    });
    listen_for_signals(sender.clone(), Arc::clone(&output))?;
    let input = open_requests(&args.register)?;
    let monitor = Monitor::start(settings, printing.clone()).map_err(|e| Failure::new(e.to_string()))?;
    let hurried = ends_with_input.then(|| Arc::clone(&output));
    std::thread::spawn(move || {
        match input {
            Ok(input) => read_requests(input, &sender),
            Err(path) => match std::fs::File::open(&path) {
                Ok(file) => read_requests(Box::new(BufReader::new(file)), &sender),
                Err(error) => {
                    let _ = sender.send(Message::Request(Err(format!("{}: {error}", path.display()))));
                }
            },
        }
        // Who has nothing more to say, and reads nothing either, is not waited for.
        if let Some(output) = hurried {
            output.hurry();
        }
        let _ = sender.send(Message::InputEnded);
    });
    serve(&monitor, &printing, &receiver, goes_on, ends_with_input);
    output.hurry();
    monitor.stop();
    match output.trouble() {
        Some(trouble) => Err(Failure::new(format!("standard output: {trouble}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Where requests come from. A pipe is opened by whoever reads it, since that waits for a writer.
fn open_requests(path: &Path) -> Result<Result<Box<dyn BufRead + Send>, PathBuf>, Failure> {
    use std::os::unix::fs::FileTypeExt as _;
    if path.as_os_str() == "-" {
        return Ok(Ok(Box::new(BufReader::new(std::io::stdin()))));
    }
    if path.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(Err(path.to_owned()));
    }
    let file = std::fs::File::open(path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    // A directory can be opened and fails only when it is read: too late for an exit code, as if there were no requests.
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(Failure::new(format!("{}: is a directory; requests come from a file", path.display())));
    }
    Ok(Ok(Box::new(BufReader::new(file))))
}

fn settings(args: &Args, place: &Place) -> Result<Settings, Failure> {
    let files = configuration::files(&args.config);
    let config = configuration::load("MONITOR", None, &files).map_err(|e| Failure::new(e.to_string()))?;
    let mut settings = monitors::read(&config, &args.scheduler).map_err(|e| Failure::new(e.to_string()))?;
    let command = &mut settings.command;
    if !args.command.is_empty() {
        *command = bridge::monitor::Command {
            user: command.user.clone(),
            ..bridge::monitor::Command::new(args.command.clone(), &args.scheduler)
        };
    }
    if command.words.is_empty() {
        let own =
            std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program: {e}")))?;
        command.words = vec![own.into(), "seg".into()];
        if let Some(dir) = &place.state_dir {
            command.words.extend(["--state-dir".into(), dir.into()]);
        }
        if let Some(pool) = &place.pool {
            command.words.extend(["--pool".into(), pool.into()]);
        }
        command.is_ours = true;
    }
    command.user = args.user.clone().or(command.user.take());
    command.log_path = args.log_path.clone().or(command.log_path.take());
    if command.log_path.is_some() && !command.is_ours {
        return Err(crate::cmd::usage(
            "--log-path is for `updraft seg` only; another generator has its own configuration",
        ));
    }
    settings.datum = args.datum.clone().or(settings.datum.take());
    settings.start = args.start;
    settings.limits.raw |= args.raw;
    // All of them print to the same place: more threads would only wait there.
    settings.threads_max = settings.threads;
    Ok(settings)
}

fn listen_for_signals(sender: Sender<Message>, output: Arc<Output>) -> Result<(), Failure> {
    let runtime = small_runtime()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        output.hurry();
        let _ = sender.send(Message::Signal);
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

fn read_requests(mut input: Box<dyn BufRead + Send>, sender: &Sender<Message>) {
    let mut line = Vec::new();
    loop {
        match read_line(&mut input, &mut line, LINE_BYTES) {
            Ok(Read::Line) => {}
            Ok(Read::End) => break,
            // Whoever wrote it has more to say.
            Ok(Read::TooLong) => {
                let reason = format!("a request of more than {LINE_BYTES} bytes is ignored");
                if sender.send(Message::Request(Err(reason))).is_err() {
                    return;
                }
                continue;
            }
            Err(error) => {
                let _ = sender.send(Message::Request(Err(format!("requests cannot be read: {error}"))));
                break;
            }
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if sender.send(Message::Request(read_request(&line))).is_err() {
            return;
        }
    }
}

/// What came of reading a line.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Line,
    /// It was read to its end and dropped.
    TooLong,
    End,
}

/// Reads a line, with its newline unless it is the last. Of one that is longer than the limit nothing is kept.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>, limit: usize) -> std::io::Result<Read> {
    line.clear();
    let (mut is_begun, mut is_too_long) = (false, false);
    loop {
        let block = match input.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            block => block?,
        };
        let newline = block.iter().position(|byte| *byte == b'\n');
        let count = newline.map_or(block.len(), |at| at + 1);
        is_begun |= count > 0;
        is_too_long |= line.len() + count > limit;
        if is_too_long {
            *line = Vec::new();
        } else {
            line.extend_from_slice(&block[..count]);
        }
        input.consume(count);
        if newline.is_some() || count == 0 {
            return Ok(match (is_begun, is_too_long) {
                (_, true) => Read::TooLong,
                (true, false) => Read::Line,
                (false, false) => Read::End,
            });
        }
    }
}

/// Answers requests until there is nothing left to do.
fn serve(
    monitor: &Monitor,
    printing: &Printing,
    messages: &Receiver<Message>,
    goes_on: bool,
    ends_with_input: bool,
) {
    let mut has_ended = false;
    while let Ok(message) = messages.recv() {
        match message {
            Message::Request(Ok(Request::Ack(first))) => {
                // What was read meanwhile shares the sync.
                let mut numbers = vec![first];
                let mut other = None;
                while let Ok(next) = messages.try_recv() {
                    match next {
                        Message::Request(Ok(Request::Ack(number))) => numbers.push(number),
                        next => {
                            other = Some(next);
                            break;
                        }
                    }
                }
                acknowledge(monitor, printing, &numbers);
                match other {
                    Some(Message::Request(request)) => answer(monitor, printing, request),
                    Some(Message::InputEnded) => has_ended = true,
                    Some(Message::Signal) => return,
                    Some(Message::LookAgain) | None => {}
                }
            }
            Message::Request(request) => answer(monitor, printing, request),
            Message::InputEnded => has_ended = true,
            Message::LookAgain => {}
            Message::Signal => return,
        }
        let is_done = has_ended
            && !goes_on
            && (ends_with_input || (monitor.is_caught_up() && lock(&printing.open).ids.is_empty()));
        if is_done || printing.output.is_broken() {
            return;
        }
    }
}

fn acknowledge(monitor: &Monitor, printing: &Printing, numbers: &[u64]) {
    let acknowledged = monitor.acknowledge(numbers);
    let trouble = acknowledged.trouble.map(|error| error.to_string());
    for (number, is_open) in numbers.iter().zip(acknowledged.were_open) {
        let line = match &trouble {
            _ if !is_open => json!({ "error": "NotOpen", "ack": number }),
            Some(reason) => json!({ "error": "NotKept", "ack": number, "reason": reason }),
            None => json!({ "acked": number }),
        };
        printing.print(&line.to_string());
        let ended = lock(&printing.open).ends.remove(number);
        if let Some(id) = ended.filter(|_| is_open) {
            printing.end(&id);
        }
    }
}

fn answer(monitor: &Monitor, printing: &Printing, request: Result<Request, String>) {
    let line = match request {
        Ok(Request::Register { ids, key, not_before, known }) => {
            let list: Vec<&[u8]> = ids.iter().map(Vec::as_slice).collect();
            let names: Vec<_> = ids.iter().map(|id| String::from_utf8_lossy(id)).collect();
            // Before the first change can be told: a job that is over at once is not waited for.
            let fresh: Vec<_> = ids.iter().filter(|id| monitor.key_of(id).is_none()).cloned().collect();
            let ended = |id: &Vec<u8>| {
                known.iter().any(|(k, s, _)| k == id && matches!(s, State::Failed | State::Done))
            };
            lock(&printing.open).ids.extend(fresh.iter().filter(|id| !ended(id)).cloned());
            let more = Registering { not_before, known: known.clone() };
            match monitor.register_all(&list, &key.as_str().into(), &more) {
                Ok(()) => {
                    // Its end was dealt with before: nothing more will be told.
                    fresh.iter().filter(|id| monitor.is_over(id)).for_each(|id| printing.end(id));
                    json!({ "registered": names, "key": key })
                }
                Err(error) => {
                    let mut open = lock(&printing.open);
                    for id in &fresh {
                        open.ids.remove(id);
                    }
                    json!({ "error": "AlreadyRegistered", "id": String::from_utf8_lossy(&error.0) })
                }
            }
        }
        Ok(Request::Unregister(id)) => {
            let name = String::from_utf8_lossy(&id).into_owned();
            match monitor.unregister(&id) {
                Ok(()) => {
                    printing.end(&id);
                    json!({ "unregistered": name })
                }
                Err(_) => json!({ "error": "NotRegistered", "id": name }),
            }
        }
        Ok(Request::Ack(number)) => return acknowledge(monitor, printing, &[number]),
        Ok(Request::Status) => status_line(&monitor.status()),
        Err(reason) => json!({ "error": "BadRequest", "reason": reason }),
    };
    printing.print(&line.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        for size in 1..8 {
            let mut input = BufReader::with_capacity(size, &b"one\nfar too long\n\nfour5\nrest"[..]);
            let mut line = Vec::new();
            let mut next = || (read_line(&mut input, &mut line, 6).unwrap(), line.clone());
            assert_eq!(next(), (Read::Line, b"one\n".to_vec()), "{size}");
            assert_eq!(next(), (Read::TooLong, vec![]));
            assert_eq!(next(), (Read::Line, b"\n".to_vec()));
            assert_eq!(next(), (Read::Line, b"four5\n".to_vec()));
            assert_eq!(next(), (Read::Line, b"rest".to_vec()));
            assert_eq!(next(), (Read::End, vec![]));
        }
    }
}
