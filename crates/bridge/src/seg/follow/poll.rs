//! Runs the site's command of the `poll` module again and again, in a thread: nobody waits for a command that hangs.

mod memory;

use std::io::{self, PipeReader, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::memory::{Memory, Remembered, Told};
use super::{Source, Turn};
use crate::seg::poll::Books;
use crate::seg::{Event, Sink};

/// Longest answer.
const ANSWER_BYTES: u64 = 64 << 20;
/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Debug, Clone)]
pub struct Ask {
    /// A line for `sh`.
    pub command: String,
    /// Between two answers.
    pub interval: Duration,
    /// A command that takes longer is ended.
    pub patience: Duration,
}

type Answer = Result<Vec<u8>, String>;

/// A scheduler that is asked.
pub struct Poll {
    books: Books,
    interval: Duration,
    questions: Option<Sender<()>>,
    answers: Receiver<Answer>,
    bell: PipeReader,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    is_asked: bool,
    next: Instant,
    answered: u64,
    said: Option<String>,
    memory: Option<Memory>,
    /// What an earlier generator told and whoever listens wants to hear again.
    again: Vec<Told>,
    /// What is to be said about the memory.
    forgets: Option<String>,
}

/// Takes what an answer tells, until it is on disk.
#[derive(Default)]
struct Aside {
    told: Vec<Told>,
    notes: Vec<(bool, String)>,
}

impl Sink for Aside {
    fn event(&mut self, event: &Event<'_>) {
        self.told.push(Told::new(event));
    }
    fn note(&mut self, text: &str) {
        self.notes.push((false, text.to_owned()));
    }
    fn missed(&mut self, text: &str) {
        self.notes.push((true, text.to_owned()));
    }
}

impl Poll {
    /// Asks from the first turn on.
    pub fn start(ask: Ask, books: Books) -> io::Result<Self> {
        let (bell, mut ringer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&bell, true)?;
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let (interval, is_stopped) = (ask.interval, Arc::clone(&is_over));
        let worker = std::thread::Builder::new().name("poll".into()).spawn(move || {
            while asked.recv().is_ok() {
                let result = run(&ask, &is_stopped);
                if answer.send(result).is_err() || ringer.write_all(b"!").is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            books,
            interval,
            questions: Some(questions),
            answers,
            bell,
            is_over,
            worker: Some(worker),
            is_asked: false,
            next: Instant::now(),
            answered: 0,
            said: None,
            memory: None,
            again: Vec::new(),
            forgets: None,
        })
    }

    /// Remembers in this file what was told, and goes on where an earlier one ended: what that told from `from` on is told
    /// again as it was.
    #[must_use]
    pub fn remembering(mut self, path: &Path, from: i64) -> Self {
        match Memory::open(path, from, &mut self.books) {
            Ok(Remembered { memory, again, note }) => {
                (self.memory, self.again, self.forgets) = (Some(memory), again, note);
            }
            Err(error) => self.forgets = Some(forgets(path, &error)),
        }
        self
    }

    /// To be called when the process has to leave at once: ends the command that runs.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let is_over = Arc::clone(&self.is_over);
        move || {
            is_over.store(true, Ordering::Relaxed);
            // The worker looks that often.
            std::thread::sleep(3 * LOOK);
        }
    }

    fn look(&mut self, text: &[u8], sink: &mut dyn Sink) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let mut aside = Aside::default();
        let gone = self.books.look(text, now, &mut aside);
        // On disk before it is told: who dies in between tells it again, as it was.
        if let Some(memory) = &mut self.memory
            && let Err(error) = memory.add(&aside.told, &gone, now)
        {
            sink.note(&forgets(memory.path(), &error));
        }
        for (is_missed, note) in &aside.notes {
            if *is_missed { sink.missed(note) } else { sink.note(note) }
        }
        for told in &aside.told {
            sink.event(&told.event());
        }
    }

    fn ask(&mut self) {
        self.is_asked = self.questions.as_ref().is_some_and(|questions| questions.send(()).is_ok());
    }

    fn take(&mut self, answer: Answer, sink: &mut dyn Sink) {
        self.is_asked = false;
        self.answered += 1;
        self.next = Instant::now() + self.interval;
        match answer {
            Ok(text) => {
                self.said = None;
                self.look(&text, sink);
            }
            // The same trouble is told once.
            Err(error) if self.said.as_ref() != Some(&error) => {
                sink.missed(&format!("{error}; how the jobs stand is not known before it is asked again"));
                self.said = Some(error);
            }
            Err(_) => {}
        }
    }
}

impl Source for Poll {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if let Some(note) = self.forgets.take() {
            sink.note(&note);
        }
        for told in std::mem::take(&mut self.again) {
            sink.event(&told.event());
        }
        let mut bell = [0; 64];
        while matches!(self.bell.read(&mut bell), Ok(1..)) {}
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, sink);
        }
        if !self.is_asked && (turn.now >= self.next || turn.last && self.answered == 0) {
            self.ask();
        }
        // There is no later: one answer is waited for.
        while turn.last && self.answered == 0 && self.is_asked && !sink.is_over() {
            if let Ok(answer) = self.answers.recv_timeout(LOOK) {
                self.take(answer, sink);
            }
        }
        Ok((!self.is_asked).then(|| self.next.saturating_duration_since(Instant::now())))
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}

impl Drop for Poll {
    /// Ends the command that runs, too.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.questions = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

fn forgets(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}; a generator that is started again will tell how every job stands", path.display())
}

/// Reads all of a pipe, up to a limit; what is behind is read and dropped, so that the writer ends.
fn read_all(pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut limited = pipe.take(ANSWER_BYTES);
        // A pipe that breaks ends the answer; the command's exit code tells the rest.
        let _ = limited.read_to_end(&mut text);
        let _ = io::copy(&mut limited.into_inner(), &mut io::sink());
        text
    })
}

fn run(ask: &Ask, is_over: &AtomicBool) -> Answer {
    let name = &ask.command;
    let mut child = Command::new("/bin/sh")
        .args(["-c", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{name}: {e}"))?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{name}: no pipes"));
    };
    let (out, err) = (read_all(out), read_all(err));
    let deadline = Instant::now() + ask.patience;
    let mut was_ended = false;
    let status = loop {
        match child.try_wait().map_err(|e| format!("{name}: {e}"))? {
            // Whatever it started holds the pipes open as long as it lives.
            Some(status) if out.is_finished() && err.is_finished() => break status,
            // What got away from its group may hold them for ever; nobody waits for that.
            Some(_) if was_ended => {
                return Err(format!("{name} gave no answer in {} s", ask.patience.as_secs()));
            }
            _ if was_ended => {}
            _ if is_over.load(Ordering::Relaxed) || Instant::now() >= deadline => {
                was_ended = true;
                end(&child);
            }
            _ => {}
        }
        std::thread::sleep(LOOK);
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if was_ended {
        return Err(format!("{name} gave no answer in {} s", ask.patience.as_secs()));
    }
    if !status.success() {
        let said = String::from_utf8_lossy(&err);
        let said = said.lines().next().unwrap_or("it says nothing");
        return Err(format!("{name} ends with {status}: {said}"));
    }
    if out.len() as u64 >= ANSWER_BYTES {
        return Err(format!("{name} prints more than {ANSWER_BYTES} bytes"));
    }
    Ok(out)
}

/// Ends the command and whatever it started.
fn end(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may be gone by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}
