//! What is known of a job, on disk while it runs: its processes with their start times, and the ends that were seen.
//!
//! The shim holds the file's lock as long as it lives; whoever gets the lock knows that the shim is gone. Lines are appended
//! and synced; a last one without its newline does not count.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::files::{append_whole, drop_torn_line, open_own_file};

const HEAD: &str = "updraft-fork 1";
/// A record that is not begun after so long is of nobody: a shim writes it at once.
const ABANDONED: Duration = Duration::from_secs(60);

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it started, in ticks since the system did.
    pub ticks: u64,
    /// State (8 done, 4 failed), code and second of its end.
    pub end: Option<(i32, i32, i64)>,
}

/// A job on disk.
#[derive(Debug)]
pub struct Record {
    file: File,
    path: PathBuf,
    /// The first part of its ids.
    pub uuid: String,
    /// The system's start that the ticks count from.
    pub boot: String,
    /// Second in which it became active, and whether that is in the log.
    pub started: i64,
    /// Its processes.
    pub processes: Vec<Process>,
}

/// What a file among the records is.
#[derive(Debug)]
pub enum Found {
    /// A job without a shim.
    Gone(Record),
    /// Somebody looks after it: a shim, perhaps one that is just being killed, or another starter.
    Held,
    /// No record, or one of another log: several may share a directory.
    Nothing,
}

/// This start of the system.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// When a process started, if it is there and has not ended.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    let ticks = fields.nth(18)?.parse().ok()?;
    (!is_over).then_some(ticks)
}

impl Record {
    /// A new record, locked.
    pub fn create(directory: &Path, uuid: &str, log: &Path, started: i64) -> io::Result<Self> {
        let path = directory.join(uuid);
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create_new(true).mode(0o600).open(&path)?;
        // A starter that looks at it in this moment finds nothing and lets go.
        flock(&file, FlockOperation::LockExclusive)?;
        let boot = boot_id();
        let mut record = Self { file, path, uuid: uuid.to_owned(), boot, started, processes: Vec::new() };
        let head = format!("{HEAD} {started} {}\nlog {}\n", record.boot, log_name(log));
        match record.append(&head) {
            Ok(()) => Ok(record),
            Err(error) => {
                // There is no job that it would be of.
                let _ = record.remove();
                Err(error)
            }
        }
    }

    /// Takes over a record whose shim is gone.
    pub fn adopt(path: &Path, log: &Path) -> io::Result<Found> {
        let mut file = match open_own_file(OpenOptions::new().read(true).append(true), path) {
            // A pipe, a directory, a link: nobody's record.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Found::Nothing),
            opened => opened?,
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Found::Held);
        }
        // It may have been removed, by its shim or by another starter, before the lock was had.
        if !path.exists() {
            return Ok(Found::Nothing);
        }
        let mut text = Vec::new();
        (&mut file).take(16 << 20).read_to_end(&mut text)?;
        let uuid = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let is_old = file.metadata()?.modified()?.elapsed().is_ok_and(|age| age >= ABANDONED);
        if is_old && is_uuid(&uuid) && is_unbegun(&text) {
            // Its shim died before it was written, so before the job was started.
            std::fs::remove_file(path)?;
            return Ok(Found::Nothing);
        }
        let parsed = std::str::from_utf8(&text).ok().and_then(parse);
        let Some((boot, started, processes, named)) = parsed else { return Ok(Found::Nothing) };
        if named.is_some_and(|named| named != log_name(log)) {
            return Ok(Found::Nothing);
        }
        drop_torn_line(&file, &mut text)?;
        Ok(Found::Gone(Self { file, path: path.to_owned(), uuid, boot, started, processes }))
    }

    /// Notes the job's processes.
    pub fn add_processes(&mut self, pids: &[u32]) -> io::Result<()> {
        let mut text = String::new();
        for pid in pids {
            let ticks = start_ticks(*pid).unwrap_or(0);
            text.push_str(&format!("process {pid} {ticks}\n"));
            self.processes.push(Process { pid: *pid, ticks, end: None });
        }
        self.append(&text)
    }

    /// Notes an end; on disk when it returns.
    pub fn add_end(&mut self, pid: u32, state: i32, code: i32, stamp: i64) -> io::Result<()> {
        if let Some(process) = self.processes.iter_mut().find(|p| p.pid == pid) {
            process.end = Some((state, code, stamp));
        }
        self.append(&format!("end {pid} {state} {code} {stamp}\n"))
    }

    /// The job is over and its ends are in the log.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        // Half a line would spoil the next one, and with it the record.
        append_whole(&self.file, self.file.metadata()?.len(), text.as_bytes())?;
        self.file.sync_data()
    }
}

fn is_uuid(name: &str) -> bool {
    name.len() == 36 && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Is this no more than a part of what stands in every record before its job is started?
fn is_unbegun(text: &[u8]) -> bool {
    let is_head = HEAD.as_bytes().starts_with(text) || text.starts_with(HEAD.as_bytes());
    is_head && memchr::memchr_iter(b'\n', text).count() < 2
}

/// A log in a record: the same for every way to write its path and for every link to it, on one line.
fn log_name(log: &Path) -> String {
    let place = || log.parent().and_then(|parent| parent.canonicalize().ok());
    let whole = match (log.canonicalize(), log.file_name()) {
        (Ok(real), _) => real,
        // It was renamed a moment ago.
        (Err(_), Some(name)) => place().map_or_else(|| log.to_owned(), |place| place.join(name)),
        (Err(_), None) => log.to_owned(),
    };
    whole.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

/// System's start, second of its own, processes, log.
type Parsed = (String, i64, Vec<Process>, Option<String>);

fn parse(text: &str) -> Option<Parsed> {
    let whole = &text[..=text.rfind('\n')?];
    let mut lines = whole.lines();
    let mut head = lines.next()?.strip_prefix(HEAD)?.split_whitespace();
    let started = head.next()?.parse().ok()?;
    let boot = head.next().unwrap_or_default().to_owned();
    let mut processes: Vec<Process> = Vec::new();
    let mut log = None;
    for line in lines {
        if let Some(name) = line.strip_prefix("log ") {
            log = Some(name.to_owned());
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["process", pid, ticks] => {
                processes.push(Process { pid: pid.parse().ok()?, ticks: ticks.parse().ok()?, end: None });
            }
            ["end", pid, state, code, stamp] => {
                let pid: u32 = pid.parse().ok()?;
                let end = (state.parse().ok()?, code.parse().ok()?, stamp.parse().ok()?);
                processes.iter_mut().find(|p| p.pid == pid)?.end = Some(end);
            }
            _ => return None,
        }
    }
    Some((boot, started, processes, log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_record_is_adopted_when_its_shim_is_gone_and_torn_lines_do_not_count() {
        let place = tempfile::tempdir().unwrap();
        let log = &place.path().join("a log\n");
        let mut record = Record::create(place.path(), "u", log, 77).unwrap();
        let own = std::process::id();
        record.add_processes(&[own, 4_000_000]).unwrap();
        record.add_end(own, 8, 3, 99).unwrap();
        let path = place.path().join("u");
        let adopt = |path: &Path, log: &Path| Record::adopt(path, log).unwrap();
        assert!(matches!(adopt(&path, log), Found::Held), "its shim lives");
        assert!(Record::create(place.path(), "u", log, 77).is_err());
        drop(record);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end 4000000 8").unwrap();
        let other = place.path().join("other");
        assert!(matches!(adopt(&path, &other), Found::Nothing), "it is of another log");
        let same = place.path().join(".").join("a log\n");
        assert!(matches!(adopt(&path, &same), Found::Gone(_)));
        let Found::Gone(adopted) = adopt(&path, log) else { panic!("its shim is gone") };
        assert_eq!((adopted.uuid.as_str(), adopted.started, adopted.boot.clone()), ("u", 77, boot_id()));
        assert_eq!(
            adopted.processes[0],
            Process { pid: own, ticks: start_ticks(own).unwrap(), end: Some((8, 3, 99)) }
        );
        assert_eq!(adopted.processes[1], Process { pid: 4_000_000, ticks: 0, end: None });
        adopted.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_record_that_was_never_begun_is_removed_after_a_while() {
        let place = tempfile::tempdir().unwrap();
        let uuid = "92a2e57c-b96d-479d-aa98-cd227d7c97cc";
        for (name, text, is_removed) in [
            (uuid, "", true),
            (uuid, "updraft", true),
            (uuid, "updraft-fork 1 5 b\nlog /l", true),
            (uuid, "updraft-fork 1 5 b\nlog /l\nproc", false),
            (uuid, "somebody's", false),
            ("notes", "", false),
        ] {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            Record::adopt(&path, Path::new("/other")).unwrap();
            assert!(path.exists(), "{text:?} may be written in this moment");
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * ABANDONED).unwrap();
            Record::adopt(&path, Path::new("/other")).unwrap();
            assert_eq!(!path.exists(), is_removed, "{name} {text:?}");
            assert!(is_removed || std::fs::read_to_string(&path).unwrap() == text);
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_no_half_line_and_no_empty_record() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let mut record = Record::create(place.path(), "u", &log, 77).unwrap();
        record.add_processes(&[4_000_000]).unwrap();
        let real =
            std::mem::replace(&mut record.file, File::options().append(true).open("/dev/full").unwrap());
        assert!(record.add_end(4_000_000, 8, 3, 99).is_err());
        record.file = real;
        record.add_end(4_000_000, 8, 3, 99).unwrap();
        drop(record);
        let Found::Gone(record) = Record::adopt(&place.path().join("u"), &log).unwrap() else {
            panic!("gone")
        };
        assert_eq!(record.processes[0].end, Some((8, 3, 99)));
    }

    #[test]
    fn what_is_no_record_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a", ""),
            ("b", "updraft-fork 1 x\n"),
            ("c", "other\n"),
            ("d", "updraft-fork 1 5 b\nend 1 8 0 0\n"),
        ] {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Record::adopt(&path, Path::new("/log")), Ok(Found::Nothing)), "{text}");
        }
        for (name, make) in [("pipe", "mkfifo"), ("directory", "mkdir")] {
            let path = place.path().join(name);
            assert!(std::process::Command::new(make).arg(&path).status().unwrap().success());
            assert!(matches!(Record::adopt(&path, Path::new("/log")), Ok(Found::Nothing)), "{name}");
        }
        std::os::unix::fs::symlink(place.path().join("d"), place.path().join("link")).unwrap();
        assert!(matches!(Record::adopt(&place.path().join("link"), Path::new("/log")), Ok(Found::Nothing)));
        assert!(start_ticks(4_000_001).is_none());
        assert!(start_ticks(std::process::id()).unwrap() > 0);
    }
}
