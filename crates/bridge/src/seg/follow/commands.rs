//! Slurm while it runs: `squeue` is asked again and again, `sacct` for what is gone, and the job completion log is
//! followed where there is one.
//!
//! A thread runs the commands, so that nobody waits for a controller that does not answer. How often: at once after a
//! change and less and less often while nothing happens, and never so often that the commands take more than a small part
//! of the time.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Change, Source, Turn};
use crate::seg::Sink;
use crate::seg::slurm::live::{self, Books};

/// Between two looks after something changed.
const PACE: Duration = Duration::from_secs(1);
/// So many times as long between two looks while nothing happens.
const QUIET: u32 = 10;
/// So many times as long between two looks while the commands fail.
const FAILED: u32 = 30;
/// A look may take this part of the time.
const SHARE: u32 = 20;
/// Jobs that `sacct` is asked about at once.
const ASKED: usize = 500;

/// The commands to run.
#[derive(Debug, Clone)]
pub struct Commands {
    /// `squeue` or what does as it does.
    pub squeue: PathBuf,
    /// `sacct`, if there is one.
    pub sacct: Option<PathBuf>,
    /// Between two looks after something changed; more while nothing does.
    pub pace: Duration,
}

impl Commands {
    /// These two at the usual pace.
    pub fn new(squeue: PathBuf, sacct: Option<PathBuf>) -> Self {
        Self { squeue, sacct, pace: PACE }
    }
}

enum Ask {
    Queue,
    /// What ended in the last so many seconds.
    Since(i64),
    /// These jobs.
    Jobs(Vec<Vec<u8>>),
}

struct Answer {
    asked: Ask,
    output: Result<Vec<u8>, String>,
    took: Duration,
}

/// Slurm by its commands.
pub struct Live {
    log: Option<Box<dyn Source>>,
    books: Arc<Mutex<Books>>,
    has_sacct: bool,
    ask: Sender<Ask>,
    answers: Receiver<Answer>,
    bell: PipeReader,
    /// Questions without an answer yet.
    open: usize,
    next: Instant,
    pace: Duration,
    interval: Duration,
    looks: u64,
    said: Option<String>,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

impl Live {
    /// Asks these commands for changes from `from` on. `log` is the completion log, whose parser shares the books and
    /// which then is the one that tells ends.
    pub fn new(
        commands: Commands,
        log: Option<Box<dyn Source>>,
        books: Arc<Mutex<Books>>,
        from: i64,
    ) -> io::Result<Self> {
        let (bell, ringer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&bell, true)?;
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let (has_sacct, pace) = (commands.sacct.is_some(), commands.pace);
        std::thread::Builder::new()
            .name("slurm".into())
            .spawn(move || work(&commands, &asked, &answer, ringer))?;
        let mut live = Self {
            log,
            books,
            has_sacct,
            ask,
            answers,
            bell,
            open: 0,
            next: Instant::now(),
            pace,
            interval: pace,
            looks: 0,
            said: None,
        };
        // What ended before the queue's memory begins. The log, where there is one, has it all.
        if live.log.is_none() && has_sacct && from < now() {
            live.put(Ask::Since(now() - from.max(0)));
        }
        Ok(live)
    }

    fn put(&mut self, ask: Ask) {
        // The thread is only gone when the program ends.
        self.open += usize::from(self.ask.send(ask).is_ok());
    }

    fn take(&mut self, answer: Answer, sink: &mut dyn Sink) {
        self.open = self.open.saturating_sub(1);
        let is_look = matches!(answer.asked, Ask::Queue);
        let text = match answer.output {
            Ok(text) => text,
            Err(error) => {
                if self.said.as_ref() != Some(&error) {
                    sink.note(&error);
                    self.said = Some(error);
                }
                if is_look {
                    self.looks += 1;
                    self.rest(self.pace * FAILED);
                } else {
                    // Accounting that is switched off stays off.
                    self.has_sacct = false;
                }
                return;
            }
        };
        let ends = self.log.is_none();
        let mut told = Vec::new();
        let mut gone = Vec::new();
        let books = Arc::clone(&self.books);
        let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
        if is_look {
            self.said = None;
            self.looks += 1;
            gone = books.look(live::squeue(&text), now(), ends, &mut told);
            let is_quiet = told.is_empty() && (gone.is_empty() || !ends);
            let interval = if is_quiet { self.interval.mul_f64(1.5) } else { self.pace };
            self.rest(interval.min(self.pace * QUIET).max(answer.took * SHARE));
        } else {
            live::sacct(&text).for_each(|row| books.see(&row, ends, &mut told));
        }
        told.sort_by_key(live::Change::stamp);
        for change in &told {
            sink.event(&change.event());
        }
        for id in books.give_up(&gone, ends) {
            let id = String::from_utf8_lossy(&id);
            sink.note(&format!("job {id} has left the queue and nobody says how it ended"));
        }
        if ends && self.has_sacct && !gone.is_empty() {
            gone.truncate(ASKED);
            self.put(Ask::Jobs(gone));
        }
    }

    fn rest(&mut self, interval: Duration) {
        self.interval = interval;
        self.next = Instant::now() + interval;
    }
}

impl Source for Live {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        let mut wake = None;
        if let Some(log) = &mut self.log {
            wake = log.turn(turn, sink)?;
        }
        let mut bell = [0; 64];
        while matches!(self.bell.read(&mut bell), Ok(1..)) {}
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, sink);
        }
        if self.open == 0 && (Instant::now() >= self.next || turn.last && self.looks == 0) {
            self.put(Ask::Queue);
        }
        // There is no later: one look is waited for.
        while turn.last && self.looks == 0 && !sink.is_over() {
            match self.answers.recv_timeout(Duration::from_millis(5)) {
                Ok(answer) => self.take(answer, sink),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if self.open == 0 && self.looks == 0 {
                self.put(Ask::Queue);
            }
        }
        if self.open == 0 {
            let left = self.next.saturating_duration_since(Instant::now());
            wake = Some(wake.map_or(left, |w| w.min(left)));
        }
        Ok(wake)
    }

    fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        if let Some(log) = &mut self.log {
            log.say_unfinished(sink);
        }
    }

    fn places(&self) -> Vec<PathBuf> {
        self.log.as_ref().map_or_else(Vec::new, |log| log.places())
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn reported(&mut self, change: Change<'_>) {
        if let Some(log) = &mut self.log {
            log.reported(change);
        }
    }
}

/// The thread: one question at a time until nobody asks any more.
fn work(commands: &Commands, asked: &Receiver<Ask>, answer: &Sender<Answer>, mut ringer: PipeWriter) {
    while let Ok(ask) = asked.recv() {
        let start = Instant::now();
        let output = run(commands, &ask);
        let took = start.elapsed();
        if answer.send(Answer { asked: ask, output, took }).is_err() || ringer.write_all(b"!").is_err() {
            return;
        }
    }
}

fn run(commands: &Commands, ask: &Ask) -> Result<Vec<u8>, String> {
    let (program, arguments): (_, Vec<OsString>) = match (ask, &commands.sacct) {
        (Ask::Queue, _) => (&commands.squeue, live::SQUEUE.iter().map(OsString::from).collect()),
        (_, None) => return Ok(Vec::new()),
        (Ask::Since(seconds), Some(sacct)) => {
            let since = format!("--starttime=now-{seconds}seconds");
            (sacct, live::SACCT.iter().map(OsString::from).chain([since.into()]).collect())
        }
        (Ask::Jobs(jobs), Some(sacct)) => {
            let list = format!("--jobs={}", String::from_utf8_lossy(&jobs.join(&b',')));
            (sacct, live::SACCT.iter().map(OsString::from).chain([list.into()]).collect())
        }
    };
    let output = Command::new(program)
        .args(arguments)
        .env("SLURM_TIME_FORMAT", live::TIMES)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it says nothing");
    Err(format!("{} ends with {}: {said}", program.display(), output.status))
}
