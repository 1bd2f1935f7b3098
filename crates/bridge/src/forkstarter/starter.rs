//! The starter: requests in, replies out, a shim for every job. When it begins it settles what an earlier one left: jobs whose
//! shim was killed are watched if they still run, and told as failed if they do not.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::log;
use super::record::{Found, Record, boot_id, start_ticks};
use super::shim::{command, line_of, now};
use super::task::{Code, Request, read_request, read_started, read_tag, refuse, write_refused};

/// Longest request.
const LINE_BYTES: usize = 1 << 20;
/// Shims that are being started at a time: others wait, so that a flood of requests is no flood of processes.
const AT_ONCE: usize = 32;

/// Records are looked at this often while some are held by shims of other starters: nobody tells when one of these dies, and
/// one that is just being killed still holds its record. And how often while there are none.
const LOOK: Duration = Duration::from_secs(1);
const IDLE_LOOK: Duration = Duration::from_secs(10);

/// What a starter needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The log.
    pub log: PathBuf,
    /// Where records of jobs are.
    pub records: PathBuf,
    /// The program of shims, and its first arguments.
    pub program: PathBuf,
    /// They are followed by log and records.
    pub arguments: Vec<OsString>,
}

struct Shim {
    child: Child,
    output: OwnedFd,
    text: Vec<u8>,
    tag: Vec<u8>,
    has_replied: bool,
    /// The name of its record, when it has said so.
    uuid: Option<String>,
}

/// A job without a shim.
struct Orphan {
    record: Record,
    watched: Vec<(u32, OwnedFd)>,
}

struct Starter<'a> {
    settings: &'a Settings,
    input: Option<OwnedFd>,
    output: &'a mut dyn io::Write,
    notes: &'a mut dyn FnMut(&str),
    text: Vec<u8>,
    /// The request under way is too long; everything up to its end is dropped.
    is_skipping: bool,
    waiting: VecDeque<(Vec<u8>, Vec<u8>)>,
    shims: Vec<Shim>,
    orphans: Vec<Orphan>,
    /// When to look at the records again.
    look: Instant,
    /// Records that cannot be read, which was said.
    told: HashSet<PathBuf>,
}

/// Runs until `input` has ended and all jobs are over.
pub fn run(
    settings: &Settings,
    input: OwnedFd,
    output: &mut dyn io::Write,
    notes: &mut dyn FnMut(&str),
) -> io::Result<()> {
    let mut starter = Starter {
        settings,
        input: Some(input),
        output,
        notes,
        text: Vec::new(),
        is_skipping: false,
        waiting: VecDeque::new(),
        shims: Vec::new(),
        orphans: Vec::new(),
        look: Instant::now(),
        told: HashSet::new(),
    };
    starter.settle_all();
    while !starter.is_over() {
        starter.turn()?;
    }
    Ok(())
}

impl Starter<'_> {
    fn is_over(&self) -> bool {
        self.input.is_none() && self.waiting.is_empty() && self.shims.is_empty() && self.orphans.is_empty()
    }

    fn turn(&mut self) -> io::Result<()> {
        while self.shims.iter().filter(|s| !s.has_replied).count() < AT_ONCE
            && let Some((tag, line)) = self.waiting.pop_front()
        {
            self.start_shim(tag, &line);
        }
        if self.is_over() {
            return Ok(());
        }
        let ready = {
            let flags = PollFlags::IN;
            let mut fds: Vec<_> = self.input.iter().map(|fd| PollFd::new(fd, flags)).collect();
            fds.extend(self.shims.iter().map(|s| PollFd::new(&s.output, flags)));
            let watched = self.orphans.iter().flat_map(|o| &o.watched);
            fds.extend(watched.map(|(_, fd)| PollFd::from_borrowed_fd(fd.as_fd(), flags)));
            let wait = timespec(self.look.saturating_duration_since(Instant::now()));
            match poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>()
        };
        let mut ready = ready.into_iter();
        let has_input = self.input.is_some() && ready.next() == Some(true);
        let shims: Vec<bool> = ready.by_ref().take(self.shims.len()).collect();
        if ready.any(|is_ready| is_ready) {
            self.look_after_orphans();
        }
        for index in (0..shims.len()).rev().filter(|n| shims[*n]) {
            self.hear_shim(index);
        }
        if has_input {
            self.hear_input();
        }
        if Instant::now() >= self.look {
            self.settle_all();
        }
        Ok(())
    }

    fn hear_input(&mut self) {
        let Some(input) = &self.input else { return };
        let mut block = vec![0; 64 << 10];
        match rustix::io::read(input, &mut block[..]) {
            Ok(count @ 1..) => self.text.extend_from_slice(&block[..count]),
            Err(Errno::INTR | Errno::AGAIN) => return,
            // An unfinished last line was never sent.
            Ok(0) | Err(_) => {
                self.input = None;
                return;
            }
        }
        let mut start = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.text[start..]) {
            let line = self.text[start..start + length].to_vec();
            start += length + 1;
            if !std::mem::take(&mut self.is_skipping) {
                self.take_request(line);
            }
        }
        self.text.drain(..start);
        if self.is_skipping {
            self.text.clear();
        } else if self.text.len() > LINE_BYTES {
            self.is_skipping = true;
            let text = std::mem::take(&mut self.text);
            let refusal = refuse(Code::BadRequest, format!("the request has more than {LINE_BYTES} bytes"));
            match read_tag(&text) {
                Some(tag) => self.reply(&write_refused(&tag, &refusal)),
                None => (self.notes)("a line of more than 1 MiB that is no request is ignored"),
            }
        }
    }

    fn take_request(&mut self, line: Vec<u8>) {
        match read_request(&line) {
            Request::Start(tag, _) => self.waiting.push_back((tag, line)),
            Request::Refuse(tag, refusal) => self.reply(&write_refused(&tag, &refusal)),
            Request::Ignore => (self.notes)("a line that is no request is ignored"),
        }
    }

    fn reply(&mut self, text: &[u8]) {
        // Who does not want to hear of a job has it all the same.
        let _ = self.output.write_all(text).and_then(|()| self.output.flush());
    }

    fn start_shim(&mut self, tag: Vec<u8>, line: &[u8]) {
        let Settings { log, records, program, arguments } = self.settings;
        let started = command(program, arguments, log, records).spawn().and_then(|mut child| {
            let output = child.stdout.take().map(OwnedFd::from);
            if let Some(mut input) = child.stdin.take() {
                // One that died already is noticed by its output.
                let _ = input.write_all(line).and_then(|()| input.write_all(b"\n"));
            }
            Ok((child, output.ok_or_else(|| io::Error::other("no pipe"))?))
        });
        match started {
            Ok((child, output)) => {
                self.shims.push(Shim {
                    child,
                    output,
                    text: Vec::new(),
                    tag,
                    has_replied: false,
                    uuid: None,
                });
            }
            Err(error) => {
                let refusal = refuse(Code::ExecutionFailed, format!("{}: {error}", program.display()));
                self.reply(&write_refused(&tag, &refusal));
            }
        }
    }

    fn hear_shim(&mut self, index: usize) {
        let shim = &mut self.shims[index];
        let mut block = [0; 4_096];
        match rustix::io::read(&shim.output, &mut block[..]) {
            Ok(count @ 1..) => {
                shim.text.extend_from_slice(&block[..count]);
                let mut replies = Vec::new();
                while let Some(end) = memchr::memchr(b'\n', &shim.text) {
                    replies.push(shim.text.drain(..=end).collect::<Vec<u8>>());
                }
                for text in replies {
                    if let Some(note) = text.strip_prefix(b"note ") {
                        (self.notes)(String::from_utf8_lossy(note).trim_end());
                    } else {
                        self.shims[index].has_replied = true;
                        self.shims[index].uuid = read_started(&text);
                        self.reply(&text);
                    }
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(0) | Err(_) => {
                let mut shim = self.shims.swap_remove(index);
                let status = shim.child.wait();
                if !shim.has_replied {
                    let reason = "the process that looks after the job ended before it was started";
                    self.reply(&write_refused(&shim.tag, &refuse(Code::ExecutionFailed, reason)));
                }
                if !status.is_ok_and(|s| s.success()) {
                    self.settle_all();
                }
            }
        }
    }

    /// Looks at all records whose shim is gone.
    fn settle_all(&mut self) {
        self.look = Instant::now() + IDLE_LOOK;
        let Ok(entries) = std::fs::read_dir(&self.settings.records) else { return };
        let own = self.own_records();
        for entry in entries.flatten().filter(|entry| !own.contains(&entry.file_name())) {
            let path = entry.path();
            match Record::adopt(&path, &self.settings.log) {
                Ok(Found::Gone(record)) => self.adopt(record),
                Ok(Found::Held) => self.look = Instant::now() + LOOK,
                Ok(Found::Nothing) => {}
                // It was removed since it was listed: its job is over.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    if self.told.insert(path.clone()) {
                        (self.notes)(&format!(
                            "{}: {error}; a job whose record cannot be read is not told to be over",
                            path.display()
                        ));
                    }
                }
            }
        }
    }

    /// The records of jobs that tell by themselves when they are over: of its own shims, and watched.
    fn own_records(&self) -> HashSet<OsString> {
        let own = self.shims.iter().filter_map(|shim| shim.uuid.as_deref());
        own.chain(self.orphans.iter().map(|orphan| orphan.record.uuid.as_str())).map(OsString::from).collect()
    }

    fn adopt(&mut self, record: Record) {
        let is_this_boot = record.boot == boot_id();
        let mut watched = Vec::new();
        for process in record.processes.iter().filter(|p| p.end.is_none()) {
            // Opened first: a process that has this start time now is the one that is watched.
            let pid = Pid::from_raw(process.pid as i32);
            let watch = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            if is_this_boot
                && let Some(watch) = watch
                && start_ticks(process.pid) == Some(process.ticks)
            {
                watched.push((process.pid, watch));
            }
        }
        self.orphans.push(Orphan { record, watched });
        self.look_after_orphans();
    }

    /// Writes the ends of orphans' processes; an exit code that only their shim knew is lost with it.
    fn look_after_orphans(&mut self) {
        for mut orphan in std::mem::take(&mut self.orphans) {
            orphan.watched.retain(|(pid, _)| {
                let process = orphan.record.processes.iter().find(|p| p.pid == *pid);
                process.is_some_and(|p| start_ticks(p.pid) == Some(p.ticks))
            });
            match self.settle(&mut orphan) {
                Ok(()) if orphan.watched.is_empty() => {
                    let uuid = orphan.record.uuid.clone();
                    if let Err(error) = orphan.record.remove() {
                        (self.notes)(&format!("the record of {uuid} cannot be removed: {error}"));
                    }
                }
                Ok(()) => self.orphans.push(orphan),
                // The record stays for the next starter.
                Err(error) => (self.notes)(&format!(
                    "the end of {} cannot be logged: {error}; its record stays and is looked at again",
                    orphan.record.uuid
                )),
            }
        }
    }

    fn settle(&mut self, orphan: &mut Orphan) -> io::Result<()> {
        let uuid = orphan.record.uuid.clone();
        let log_path: &Path = &self.settings.log;
        let mut ends = Vec::new();
        for process in &orphan.record.processes {
            if orphan.watched.iter().any(|(pid, _)| *pid == process.pid) {
                continue;
            }
            ends.push((process.pid, process.end));
        }
        for (pid, end) in ends {
            if log::has_end(log_path, &format!("{uuid}:{pid}"), orphan.record.started)? {
                continue;
            }
            let (state, code, stamp) = end.unwrap_or_else(|| {
                (self.notes)(&format!(
                    "{uuid}:{pid} ended while nobody looked after it: its exit code is not known"
                ));
                (4, 0, now())
            });
            orphan.record.add_end(pid, state, code, stamp)?;
            log::append(log_path, line_of(stamp, &uuid, pid, state, code).as_bytes())?;
        }
        Ok(())
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
