//! Keeps a generator running: the first start may fail, every later death is followed by another start.

use std::io::PipeReader;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Generator, Settings, Shared, StartError, lock, wall_seconds};
use crate::monitor::backoff::{LONG_LIFE, restart_pause};
use crate::monitor::generator::{Hearer, Running};
use crate::monitor::line::{Cutter, Line, read_line};

/// So much of the end of what a generator said on standard error is kept.
const ERRORS_KEPT: usize = 2_048;
/// Bad lines, and standard error, are told this often at most.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// A foreign generator that said nothing for so long has told what there was.
const QUIET: Duration = Duration::from_secs(1);
/// One that never pauses is not waited for any longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// So many of its lines are passed on in that time, of so many bytes at most.
const WORDS: u32 = 10;
const WORD_BYTES: usize = 1_000;

/// How the first generator ended, if it ended at once: its status and its last words.
type FirstWord = Result<(), (String, String)>;

/// The first generator, started on the caller's thread.
pub(super) struct First(Running);

impl First {
    pub(super) fn start(settings: &Settings, shared: &Shared) -> Result<Self, StartError> {
        begin(settings, shared).map(Self).map_err(|(program, source)| StartError::Spawn { program, source })
    }
}

fn begin(settings: &Settings, shared: &Shared) -> Result<Running, (String, std::io::Error)> {
    let from = {
        let mut books = lock(&shared.books);
        books.core.begin_round();
        // 0 would mean "now" to the generator.
        books.core.datum(wall_seconds()).max(1)
    };
    if settings.command.words.is_empty() {
        return Err((String::new(), std::io::Error::other("no command is set")));
    }
    let call = settings.command.call(from);
    let running = Running::start(&call).map_err(|error| {
        let program = call.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        match &settings.command.user {
            Some(user) => (format!("as {user} by way of {program}"), error),
            None => (program, error),
        }
    })?;
    let mut news = lock(&shared.news);
    news.starts += 1;
    news.generator = Generator::Running { pid: running.pid() };
    Ok(running)
}

/// Runs generators until the monitor stops.
pub(super) fn run(
    shared: &Arc<Shared>,
    first: First,
    settings: &Settings,
    wake: &PipeReader,
    word: &SyncSender<FirstWord>,
) {
    let mut running = Some(first.0);
    let mut attempts = 0;
    let mut first_word = Some(word);
    loop {
        let began = Instant::now();
        let mut ear = Ear::new(shared, first_word.take(), began + settings.grace, settings.command.is_ours);
        let end = match running.take() {
            Some(running) => {
                let status = running.hear(wake.as_fd(), settings.patience, &mut ear);
                status.map_or_else(|e| e.to_string(), |s| s.to_string())
            }
            None => match begin(settings, shared) {
                Ok(started) => {
                    running = Some(started);
                    continue;
                }
                Err((program, error)) => format!("cannot start {program}: {error}"),
            },
        };
        ear.finish();
        if shared.is_stopping() {
            break;
        }
        if let Some(word) = ear.word.take() {
            // It ended before it said anything. If nobody waits for that any more it lived long enough.
            if word.send(Err((end.clone(), ear.last_errors()))).is_ok() {
                break;
            }
        }
        if began.elapsed() >= LONG_LIFE {
            attempts = 0;
        }
        shared.report_end(&end, &ear.last_errors(), attempts);
        let pause = restart_pause(attempts, random());
        attempts += 1;
        lock(&shared.news).generator = Generator::BackingOff { attempts };
        if sleep_or_stop(wake, pause) {
            break;
        }
    }
    lock(&shared.news).generator = Generator::Stopped;
}

/// True when the monitor stops meanwhile.
fn sleep_or_stop(wake: &PipeReader, pause: Duration) -> bool {
    let deadline = Instant::now() + pause;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(wake, PollFlags::IN)];
        if matches!(poll(&mut fds, Some(&time)), Ok(1..)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

/// Every hasher of the standard library is seeded anew: enough for a jitter.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

/// Hears one generator.
struct Ear<'a> {
    shared: &'a Arc<Shared>,
    cutter: Cutter,
    errors: Vec<u8>,
    /// To be told that the first generator speaks.
    word: Option<&'a SyncSender<FirstWord>>,
    bad: u64,
    bad_example: Vec<u8>,
    told_bad: Option<Instant>,
    words: Words,
    /// What it says before is part of the error if it ends at once.
    grace: Instant,
    is_ours: bool,
    began: Instant,
    heard: Instant,
}

/// What a generator says on standard error, line by line: what it could not read is for whoever hears of its events, too. One
/// that says much is cut short.
#[derive(Default)]
struct Words {
    text: Vec<u8>,
    line: Vec<u8>,
    since: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Words {
    /// Keeps what it said for [`Words::pass_on`], up to some lines.
    fn hear(&mut self, bytes: &[u8]) {
        let left = (WORDS as usize * WORD_BYTES).saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(left)]);
        let over = &bytes[bytes.len().min(left)..];
        self.left_out += memchr::memchr_iter(b'\n', over).count() as u64;
    }

    fn pass_on(&mut self, note: &dyn Fn(&str)) {
        for byte in std::mem::take(&mut self.text) {
            if byte == b'\n' {
                self.tell(note);
            } else if self.line.len() < WORD_BYTES {
                self.line.push(byte);
            }
        }
    }

    fn tell(&mut self, note: &dyn Fn(&str)) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            return;
        }
        if self.since.is_none_or(|since| since.elapsed() >= NOTE_EVERY) {
            self.say_left_out(note);
            (self.since, self.told) = (Some(Instant::now()), 0);
        }
        if self.told < WORDS {
            self.told += 1;
            note(&format!("the generator says: {}", text.trim()));
        } else {
            self.left_out += 1;
        }
    }

    fn say_left_out(&mut self, note: &dyn Fn(&str)) {
        match std::mem::take(&mut self.left_out) {
            0 => {}
            count => note(&format!("lines that the generator said besides on standard error: {count}")),
        }
    }
}

impl<'a> Ear<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        word: Option<&'a SyncSender<FirstWord>>,
        grace: Instant,
        is_ours: bool,
    ) -> Self {
        // One that was started anew tells again from the datum on.
        shared.caught_up.store(false, Ordering::SeqCst);
        Self {
            shared,
            cutter: Cutter::default(),
            errors: Vec::new(),
            word,
            bad: 0,
            bad_example: Vec::new(),
            told_bad: None,
            words: Words::default(),
            grace,
            is_ours,
            began: Instant::now(),
            heard: Instant::now(),
        }
    }

    fn last_errors(&self) -> String {
        String::from_utf8_lossy(&self.errors).trim().to_owned()
    }

    fn finish(&mut self) {
        self.told_bad = None;
        self.tell_bad();
        if self.word.is_none() {
            self.words.pass_on(&|text| self.shared.listener.note(text));
            self.words.say_left_out(&|text| self.shared.listener.note(text));
        }
    }

    fn tell_bad(&mut self) {
        let bad = self.bad;
        if bad > 0 && self.told_bad.is_none_or(|t| t.elapsed() >= NOTE_EVERY) {
            self.told_bad = Some(Instant::now());
            let example = String::from_utf8_lossy(&self.bad_example);
            self.shared.listener.note(&format!(
                "the generator printed {bad} lines that are no events; they are skipped. One of them: {example:?}"
            ));
            self.bad = 0;
        }
    }
}

impl Hearer for Ear<'_> {
    fn output(&mut self, bytes: &[u8]) {
        if let Some(word) = self.word.take() {
            // The caller may have waited long enough already.
            let _ = word.send(Ok(()));
        }
        let now = self.shared.now_ms();
        let mut books = lock(&self.shared.books);
        let caught_up = &self.shared.caught_up;
        self.heard = Instant::now();
        let (mut bad, example) = (0, &mut self.bad_example);
        self.cutter.feed(bytes, &mut |line| match read_line(line) {
            Line::Event(event) => books.core.take_event(now, &event),
            Line::Heartbeat => caught_up.store(true, Ordering::SeqCst),
            Line::Other => {}
            Line::Bad => {
                bad += 1;
                example.clear();
                example.extend_from_slice(&line[..line.len().min(80)]);
            }
        });
        // Counted at once, though a person is told once a minute only.
        bad += std::mem::take(&mut self.cutter.too_long);
        self.bad += bad;
        self.shared.bad_lines.fetch_add(bad, Ordering::Relaxed);
        let has_ready = books.core.has_ready();
        drop(books);
        if has_ready {
            self.shared.work.notify_one();
        }
        self.tell_bad();
        if self.shared.caught_up.load(Ordering::SeqCst) {
            self.shared.listener.caught_up();
        }
    }

    fn passed(&mut self) {
        // A foreign generator has no word for it.
        if !self.is_ours && (self.heard.elapsed() >= QUIET || self.began.elapsed() >= LONGEST) {
            self.shared.caught_up.store(true, Ordering::SeqCst);
            self.shared.listener.caught_up();
        }
        if self.word.is_none() || Instant::now() >= self.grace {
            self.words.pass_on(&|text| self.shared.listener.note(text));
        }
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.words.hear(bytes);
        self.errors.extend_from_slice(&bytes[bytes.len().saturating_sub(ERRORS_KEPT)..]);
        let surplus = self.errors.len().saturating_sub(ERRORS_KEPT);
        self.errors.drain(..surplus);
    }
}

impl Shared {
    /// A generator ended although nobody wanted it to: the first of a row is told, and every one is kept for the status.
    fn report_end(&self, end: &str, errors: &str, attempts: u32) {
        let errors = if errors.is_empty() { String::new() } else { format!("; it said: {errors}") };
        let text = format!("the generator ended ({end}){errors}");
        lock(&self.news).last_error = Some(text.clone());
        if attempts == 0 || attempts.is_power_of_two() {
            self.listener.note(&format!("{text}. It is started again"));
        }
    }
}
