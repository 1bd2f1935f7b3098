//! The shim: one process for each job, parent of the job's processes. It outlives its starter and knows every exit code.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::log;
use super::record::Record;
use super::session::lead_session;
use super::task::{Code, Refusal, Request, Task, read_request, refuse, write_refused, write_started};

/// A log that cannot be written is tried again this often.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Runs one job: its request is the first line of `input`, replies go to `output`. Returns when the job is over.
pub fn run(
    log_path: &Path,
    records: &Path,
    input: &mut dyn io::BufRead,
    output: &mut dyn io::Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let (tag, task) = match read_request(line) {
        Request::Start(tag, task) => (tag, task),
        Request::Refuse(tag, refusal) => return output.write_all(&write_refused(&tag, &refusal)),
        Request::Ignore => return Ok(()),
    };
    match start(&task, log_path, records) {
        Err(refusal) => output.write_all(&write_refused(&tag, &refusal)),
        Ok(mut record) => {
            let pids: Vec<_> = record.processes.iter().map(|p| p.pid).collect();
            let started = record.started;
            let lines: String = pids.iter().map(|pid| line_of(started, &record.uuid, *pid, 2, 0)).collect();
            append_for_ever(log_path, &lines, output);
            // Nobody may be there to read it.
            let _ = output.write_all(&write_started(&tag, &record.uuid, &pids)).and_then(|()| output.flush());
            see_through(&mut record, log_path, output)?;
            record.remove()
        }
    }
}

/// A line of the log.
pub(super) fn line_of(stamp: i64, uuid: &str, pid: u32, state: i32, code: i32) -> String {
    format!("001;{stamp};{uuid}:{pid};{state};{code}\n")
}

/// Appends to the log, however long it takes; the starter hears of the trouble.
fn append_for_ever(path: &Path, lines: &str, output: &mut dyn io::Write) {
    let mut told = false;
    while let Err(error) = log::append(path, lines.as_bytes()) {
        if !told {
            told = true;
            let _ = writeln!(output, "note {}: {error}; tried again every second", path.display());
        }
        std::thread::sleep(AGAIN);
    }
}

/// Waits for all processes; each end is on disk in the record, then in the log.
fn see_through(record: &mut Record, log_path: &Path, output: &mut dyn io::Write) -> io::Result<()> {
    while record.processes.iter().any(|p| p.end.is_none()) {
        let (pid, status) = match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let pid = pid.as_raw_nonzero().get() as u32;
        let (state, code) = status.exit_status().map_or((4, 0), |code| (8, code));
        let stamp = now();
        if let Err(error) = record.add_end(pid, state, code, stamp) {
            let _ = writeln!(output, "note the record of {} cannot be written: {error}", record.uuid);
        }
        append_for_ever(log_path, &line_of(stamp, &record.uuid, pid, state, code), output);
    }
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Refusal {
    move |error| refuse(Code::ExecutionFailed, format!("{what}: {error}"))
}

/// A job without a record would be forgotten if its shim was killed: it is not started.
fn no_record(records: &Path, error: &io::Error) -> Refusal {
    refuse(
        Code::ExecutionFailed,
        format!("no record of the job can be written to {}: {error}", records.display()),
    )
}

/// Starts all processes of a job, or none.
fn start(task: &Task, log_path: &Path, records: &Path) -> Result<Record, Refusal> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(failed("no id"))?;
    let directory = task.directory.as_deref().unwrap_or(OsStr::new(""));
    std::env::set_current_dir(directory)
        .map_err(|e| refuse(Code::BadDirectory, format!("{}: {e}", Path::new(directory).display())))?;
    let input = task.stdin.clone().unwrap_or_default();
    let mut files = Vec::new();
    for n in 0..task.count {
        let stdin = open_at_once(File::options().read(true), &input)
            .map_err(|e| refuse(Code::StdinNotFound, format!("{}: {e}", Path::new(&input).display())))?;
        let stdout = open_output(&task.stdout[n], Code::OpeningStdout)?;
        files.push((stdin, stdout, open_output(&task.stderr[n], Code::OpeningStderr)?));
    }
    // Before the first process is there: a job never seems to have been shorter than it was.
    let mut record =
        Record::create(records, uuid.trim(), log_path, now()).map_err(|e| no_record(records, &e))?;
    let mut pids: Vec<u32> = Vec::new();
    for (stdin, stdout, stderr) in files {
        match spawn(task, stdin, stdout, stderr) {
            Ok(pid) => pids.push(pid),
            Err(error) => {
                end_all(&pids);
                let _ = record.remove();
                let program = task.executable.clone().unwrap_or_default();
                return Err(refuse(
                    Code::ExecutionFailed,
                    format!("{}: {error}", Path::new(&program).display()),
                ));
            }
        }
    }
    if let Err(error) = record.add_processes(&pids) {
        end_all(&pids);
        let _ = record.remove();
        return Err(no_record(records, &error));
    }
    // The job's directory may be unmounted before the job is over.
    let _ = std::env::set_current_dir("/");
    Ok(record)
}

/// Opens a file of a job without waiting: a pipe would wait for somebody at its other end, and whoever asked for the job
/// for the answer. An input that nobody writes to is at its end then, an output that nobody reads is refused.
fn open_at_once(options: &mut OpenOptions, path: &OsString) -> io::Result<File> {
    let file = options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    rustix::io::ioctl_fionbio(&file, false)?;
    Ok(file)
}

fn open_output(path: &OsString, code: Code) -> Result<File, Refusal> {
    let file = open_at_once(OpenOptions::new().append(true).create(true), path);
    file.map_err(|e| refuse(code, format!("{}: {e}", Path::new(path).display())))
}

fn spawn(task: &Task, stdin: File, stdout: File, stderr: File) -> io::Result<u32> {
    let program = PathBuf::from(task.executable.clone().unwrap_or_default());
    // Without a slash it would be looked for on the path; it is meant to be in the directory.
    let program =
        if program.as_os_str().as_bytes().contains(&b'/') { program } else { Path::new(".").join(program) };
    let mut command = Command::new(program);
    command.args(&task.arguments).env_clear();
    for variable in &task.environment {
        let bytes = variable.as_bytes();
        let end = bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len());
        let value = bytes.get(end + 1..).unwrap_or_default();
        if end > 0 {
            command.env(OsStr::from_bytes(&bytes[..end]), OsStr::from_bytes(value));
        }
    }
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    lead_session(&mut command);
    command.spawn().map(|child| child.id())
}

/// A job of which a part could not be started does not run at all.
fn end_all(pids: &[u32]) {
    for group in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for _ in pids {
        let _ = wait(WaitOptions::empty());
    }
}

/// How a starter starts a shim.
pub(super) fn command(program: &Path, arguments: &[OsString], log_path: &Path, records: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(log_path).arg(records);
    // What is done to the starter's group, or to its terminal, is not done to the job's parent.
    lead_session(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}
