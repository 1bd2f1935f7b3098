//! The loop: look, write, wait; and the rules by which it ends.
//!
//! It ends when standard input ends or nobody reads standard output, both noticed at once and not at the next event. What
//! is there by then is still told, within [`Options::farewell`]. A slow reader is waited for: nothing queues up.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::clock::Clock;
use super::follow::watch::Watch;
use super::follow::{Change, Source, Turn};
use super::{Event, Message, Sink};
use crate::files::open_file;

/// Writes of this size to a pipe are whole or not at all.
const WRITE: usize = 4_096;

/// Where events go.
pub enum Output {
    /// A pipe, a terminal or a file.
    Stream(OwnedFd),
    /// Files `YYYYMMDD` by the UTC day of the event.
    Days(PathBuf),
}

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Go on when everything is read.
    pub follow: bool,
    /// One JSON object a line instead of the protocol.
    pub json: bool,
    /// Also states that readers of the classic protocol do not know.
    pub all_states: bool,
    /// Look by interval although changes are reported.
    pub poll: bool,
    /// How long telling what is there may take after the end was noticed.
    pub farewell: Duration,
    /// Say that often that all is well, if at all.
    pub heartbeat: Option<Duration>,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Standard input ended.
    Input,
    /// Nobody reads the output.
    Output,
    /// Everything was told and nothing more was wanted.
    Told,
    /// The same, but something could not be read.
    Incomplete,
}

/// Why it could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The log.
    #[error("{0}")]
    Log(io::Error),
    /// What was to be written; the text says where to.
    #[error("{place}: {error}")]
    Output {
        /// Standard output, or a file.
        place: String,
        /// What went wrong there.
        error: io::Error,
    },
}

struct Days {
    directory: PathBuf,
    clock: Clock,
    file: Option<(u32, File)>,
}

enum Target {
    Stream(OwnedFd),
    Days(Days),
}

struct Emitter<'n> {
    options: Options,
    target: Target,
    input: Option<OwnedFd>,
    buffer: Vec<u8>,
    line: Vec<u8>,
    /// Set when the input ended.
    deadline: Option<Instant>,
    broken: bool,
    failure: Option<Failure>,
    /// Something could not be read.
    is_incomplete: bool,
    /// When the next sign of life is due.
    beat: Option<Instant>,
    notes: &'n mut dyn FnMut(&str),
}

/// Runs until the end. Reads and drops what comes on `input`; `None` if nobody speaks there.
pub fn run(
    source: &mut dyn Source,
    options: Options,
    input: Option<OwnedFd>,
    output: Output,
    notes: &mut dyn FnMut(&str),
) -> Result<End, Failure> {
    let target = match output {
        Output::Stream(fd) => Target::Stream(fd),
        Output::Days(directory) => {
            Target::Days(Days { directory, clock: Clock::new(TimeZone::UTC), file: None })
        }
    };
    // Files have no reader who waits for a sign of life.
    let is_stream = matches!(target, Target::Stream(_));
    let mut emitter = Emitter {
        options,
        target,
        input,
        buffer: Vec::with_capacity(WRITE),
        line: Vec::new(),
        deadline: None,
        broken: false,
        failure: None,
        is_incomplete: false,
        beat: options.heartbeat.filter(|_| is_stream).map(|_| Instant::now()),
        notes,
    };
    let result = emitter.follow(source);
    match emitter.failure.take() {
        Some(failure) => Err(failure),
        None => result.map_err(Failure::Log),
    }
}

impl Emitter<'_> {
    fn follow(&mut self, source: &mut dyn Source) -> io::Result<End> {
        // Watched before the first look: what changes in between is reported.
        let mut watch = Watch::new(source.places(), self.options.poll);
        if !watch.is_complete() {
            source.reported(Change::Unknown);
        }
        let mut rescan = true;
        loop {
            let last = !self.options.follow || self.deadline.is_some();
            let mut wake = source.turn(Turn { now: Instant::now(), rescan, last }, self)?;
            if last && self.options.follow {
                // Reports that were under way tell whether the last look has seen everything.
                watch.take(&mut |change| source.reported(change));
                wake = source.turn(Turn { now: Instant::now(), rescan: true, last }, self)?;
            }
            self.beat();
            self.flush();
            if self.broken || self.failure.is_some() {
                return Ok(End::Output);
            }
            if last {
                if !self.options.follow {
                    source.say_unfinished(self);
                }
                return Ok(match (self.deadline, self.is_incomplete) {
                    (Some(_), _) => End::Input,
                    (None, true) => End::Incomplete,
                    (None, false) => End::Told,
                });
            }
            if self.deadline.is_none() {
                rescan = self.wait(&mut watch, source, wake)?;
            }
            if self.broken {
                return Ok(End::Output);
            }
        }
    }

    /// Waits for a change, the end or the interval; true when names may have changed.
    fn wait(
        &mut self,
        watch: &mut Watch,
        source: &mut dyn Source,
        wake: Option<Duration>,
    ) -> io::Result<bool> {
        let mut interval = wake.map_or(watch.interval(), |w| w.min(watch.interval()));
        if let Some(beat) = self.beat {
            interval = interval.min(beat.saturating_duration_since(Instant::now()));
        }
        let mut ready = [PollFlags::empty(); 4];
        {
            let mut fds = Vec::with_capacity(4);
            let mut roles = [0; 4];
            if let Some(input) = &self.input {
                fds.push(PollFd::new(input, PollFlags::IN));
            }
            if let Target::Stream(output) = &self.target {
                roles[fds.len()] = 1;
                fds.push(PollFd::new(output, PollFlags::empty()));
            }
            if let Some(fd) = watch.fd() {
                roles[fds.len()] = 2;
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            if let Some(fd) = source.ready() {
                roles[fds.len()] = 3;
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            match poll(&mut fds, Some(&timespec(interval))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for (fd, role) in fds.iter().zip(roles) {
                ready[role] = fd.revents();
            }
        }
        if !ready[0].is_empty() {
            self.hear();
        }
        if ready[1].intersects(PollFlags::ERR | PollFlags::NVAL) {
            self.broken = true;
        }
        if !ready[3].is_empty() {
            return Ok(false);
        }
        if ready[2].is_empty() {
            // Nothing was reported: time has passed, or the input spoke.
            watch.passed();
            return Ok(true);
        }
        Ok(watch.take(&mut |change| source.reported(change)))
    }

    /// A sign of life, when it is due: everything that was there by now has been told.
    fn beat(&mut self) {
        let (Some(due), Some(every)) = (self.beat, self.options.heartbeat) else { return };
        let now = Instant::now();
        if now < due {
            return;
        }
        self.beat = Some(now + every);
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let line = format!("000;{stamp};heartbeat");
        self.message(&Message { stamp, line: line.as_bytes() });
    }

    /// Reads what the input says; all of it is ignored but its end.
    fn hear(&mut self) {
        let Some(input) = &self.input else { return };
        let mut text = [0; 4_096];
        match rustix::io::read(input, &mut text) {
            Ok(1..) | Err(Errno::INTR | Errno::AGAIN) => {}
            // A descriptor that cannot be read is as good as closed.
            Ok(0) | Err(_) => {
                self.input = None;
                self.deadline = Some(Instant::now() + self.options.farewell);
            }
        }
    }

    /// Looks whether the input ended, without waiting.
    fn glance(&mut self) {
        let Some(input) = &self.input else { return };
        let mut fds = [PollFd::new(input, PollFlags::IN)];
        if matches!(poll(&mut fds, Some(&timespec(Duration::ZERO))), Ok(1..)) {
            self.hear();
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() || self.broken || self.failure.is_some() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        match &mut self.target {
            Target::Stream(_) => self.send(&buffer),
            Target::Days(days) => {
                if let Some((day, file)) = &mut days.file
                    && let Err(error) = append(file, &buffer)
                {
                    let place = days.directory.join(format!("{day:08}")).display().to_string();
                    self.failure = Some(Failure::Output { place, error });
                }
            }
        }
        self.buffer = buffer;
        self.buffer.clear();
    }

    /// Writes to the stream, with an ear on the input.
    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.broken {
            let Target::Stream(output) = &self.target else { return };
            let (mut can_write, mut speaks) = (PollFlags::empty(), PollFlags::empty());
            {
                let mut fds = vec![PollFd::new(output, PollFlags::OUT)];
                fds.extend(self.input.as_ref().map(|input| PollFd::new(input, PollFlags::IN)));
                let left = self.deadline.map(|d| timespec(d.saturating_duration_since(Instant::now())));
                if poll(&mut fds, left.as_ref()).is_ok() {
                    can_write = fds[0].revents();
                    speaks = fds.get(1).map_or(PollFlags::empty(), PollFd::revents);
                }
            }
            if can_write.contains(PollFlags::OUT) {
                match rustix::io::write(output, &bytes[..bytes.len().min(WRITE)]) {
                    Ok(count) => bytes = &bytes[count..],
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(Errno::PIPE) => self.broken = true,
                    Err(error) => {
                        let place = "standard output".to_owned();
                        self.failure = Some(Failure::Output { place, error: error.into() });
                        return;
                    }
                }
            } else if can_write.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
                self.broken = true;
            } else if self.is_late() {
                // The reader stands still and the input is gone: nobody is there.
                self.broken = true;
            }
            if !speaks.is_empty() {
                self.hear();
            }
        }
    }

    /// The line that was made goes to where it belongs.
    fn put_line(&mut self, stamp: i64) {
        self.turn_page(stamp);
        if self.buffer.len() + self.line.len() > WRITE {
            self.flush();
        }
        self.buffer.extend_from_slice(&self.line);
    }

    /// Opens the day's file if it is not the one that is open.
    fn turn_page(&mut self, stamp: i64) {
        let Target::Days(days) = &self.target else { return };
        let Some(day) = days.clock.day(stamp) else {
            (self.notes)(&format!("an event at {stamp} has no day; it is left out"));
            self.line.clear();
            return;
        };
        if days.file.as_ref().is_some_and(|(open, _)| *open == day) {
            return;
        }
        self.flush();
        let Target::Days(days) = &mut self.target else { return };
        let path = days.directory.join(format!("{day:08}"));
        let opened = open_file(File::options().read(true).append(true).create(true), &path)
            .and_then(|file| Ok((cut_torn_line(&file)?, file)));
        match opened {
            Ok((torn, file)) => {
                days.file = Some((day, file));
                if torn > 0 {
                    (self.notes)(&format!(
                        "{} ended in the middle of a line, as a full disk or a crash leaves it; its last {torn} bytes are removed",
                        path.display()
                    ));
                }
            }
            Err(error) => {
                self.failure = Some(Failure::Output { place: path.display().to_string(), error });
            }
        }
    }
}

impl Sink for Emitter<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if self.broken || self.failure.is_some() || !(self.options.all_states || event.state.is_classic()) {
            return;
        }
        if !event.is_writable() {
            (self.notes)("an event without a usable job id is left out");
            return;
        }
        self.line.clear();
        if self.options.json {
            event.write_json(&mut self.line);
        } else {
            event.write_line(&mut self.line);
        }
        self.put_line(event.stamp);
    }

    fn message(&mut self, message: &Message<'_>) {
        if self.broken || self.failure.is_some() {
            return;
        }
        self.line.clear();
        if self.options.json {
            message.write_json(&mut self.line);
        } else {
            message.write_line(&mut self.line);
        }
        self.put_line(message.stamp);
    }

    fn missed(&mut self, text: &str) {
        self.is_incomplete = true;
        self.note(text);
    }

    fn note(&mut self, text: &str) {
        (self.notes)(text);
    }

    fn is_over(&mut self) -> bool {
        self.glance();
        self.broken || self.failure.is_some() || self.is_late()
    }
}

/// Appends lines, all or none: a full disk may take a part, and the next line must not become the rest of that one.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(lines).inspect_err(|_| {
        // If that fails, too, whoever opens it next does it.
        let _ = file.set_len(before);
    })
}

/// Removes what follows the last newline: no reader has taken it for a line, and what it was to be is told anew. Returns how many bytes
/// that were.
fn cut_torn_line(file: &File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut block = [0; WRITE];
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(WRITE as u64);
        let text = &mut block[..(end - start) as usize];
        file.read_exact_at(text, start)?;
        if let Some(newline) = memchr::memrchr(b'\n', text) {
            end = start + newline as u64 + 1;
            break;
        }
        end = start;
    }
    if end < size {
        file.set_len(end)?;
    }
    Ok(size - end)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// A copy of a descriptor, so that the loop may own what it was given. `None` when it is closed.
pub fn copy(fd: &impl std::os::fd::AsFd) -> Option<OwnedFd> {
    fd.as_fd().try_clone_to_owned().ok()
}
