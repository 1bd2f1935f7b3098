//! Runs the real loop over real files in a thread, and knows when it has nothing left to do.

use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bridge::seg::follow::{Change, Source, Turn};
use bridge::seg::module::Reading;
use bridge::seg::run::{End, Failure, Options, Output, run};
use bridge::seg::{Module, Sink};
use jiff::tz::TimeZone;

/// Quiet for this long: nothing more comes.
const QUIET: Duration = Duration::from_millis(25);
/// Something is broken if it takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Progress {
    turns: AtomicU64,
    busy: AtomicBool,
}

/// A source that tells how often it was asked.
struct Counted {
    inner: Box<dyn Source>,
    progress: Arc<Progress>,
}

impl Source for Counted {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        self.progress.busy.store(true, Ordering::SeqCst);
        let result = self.inner.turn(turn, sink);
        self.progress.turns.fetch_add(1, Ordering::SeqCst);
        self.progress.busy.store(false, Ordering::SeqCst);
        result
    }

    fn places(&self) -> Vec<PathBuf> {
        self.inner.places()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready()
    }

    fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        self.inner.say_unfinished(sink);
    }

    fn reported(&mut self, change: Change<'_>) {
        self.inner.reported(change);
    }
}

pub(crate) struct Running {
    progress: Arc<Progress>,
    input: Option<PipeWriter>,
    loop_thread: JoinHandle<Result<End, Failure>>,
    reader: JoinHandle<Vec<u8>>,
    so_far: Arc<Mutex<Vec<u8>>>,
    notes: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) notes: Vec<String>,
    pub(crate) end: Result<End, Failure>,
}

pub(crate) fn options() -> Options {
    Options { follow: true, json: false, all_states: false, poll: false, farewell: PATIENCE, heartbeat: None }
}

pub(crate) fn reading(from: i64, zone: &str) -> Reading {
    Reading { from, zone: TimeZone::get(zone).unwrap(), all_states: false }
}

pub(crate) fn start(module: Module, path: &Path, reading: &Reading, options: Options) -> Running {
    let (path, reading) = (path.to_owned(), reading.clone());
    start_source(move || module.source(&path, &reading), options)
}

/// The same for any source, which is made in the thread that runs it.
pub(crate) fn start_source(
    make: impl FnOnce() -> Box<dyn Source> + Send + 'static,
    options: Options,
) -> Running {
    let (input_read, input_write) = io::pipe().unwrap();
    let (mut output_read, output_write) = io::pipe().unwrap();
    let progress = Arc::new(Progress::default());
    let notes = Arc::new(Mutex::new(Vec::new()));
    let (there, told) = (Arc::clone(&progress), Arc::clone(&notes));
    let loop_thread = std::thread::spawn(move || {
        let mut source = Counted { inner: make(), progress: there };
        let mut note = |text: &str| told.lock().unwrap().push(text.to_owned());
        let output = Output::Stream(output_write.into());
        run(&mut source, options, Some(input_read.into()), output, &mut note)
    });
    let so_far = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&so_far);
    let reader = std::thread::spawn(move || {
        let mut block = vec![0; 1 << 16];
        loop {
            match output_read.read(&mut block).unwrap() {
                0 => return all.lock().unwrap().clone(),
                count => all.lock().unwrap().extend_from_slice(&block[..count]),
            }
        }
    });
    Running { progress, input: Some(input_write), loop_thread, reader, so_far, notes }
}

impl Running {
    /// How often the log was looked at.
    pub(crate) fn turns(&self) -> u64 {
        self.progress.turns.load(Ordering::SeqCst)
    }

    /// Waits until the log was looked at after `before` turns and nothing happens any more.
    pub(crate) fn settle(&self, before: u64) {
        let limit = Instant::now() + PATIENCE;
        let mut seen = (self.turns(), Instant::now());
        while Instant::now() < limit && !self.loop_thread.is_finished() {
            let now = self.turns();
            if now != seen.0 || self.progress.busy.load(Ordering::SeqCst) {
                seen = (now, Instant::now());
            }
            if now > before && seen.1.elapsed() >= QUIET {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What was told until now.
    pub(crate) fn told(&self) -> String {
        String::from_utf8_lossy(&self.so_far.lock().unwrap()).into_owned()
    }

    pub(crate) fn say(&mut self, text: &[u8]) {
        self.input.as_mut().unwrap().write_all(text).unwrap();
    }

    /// Closes the input and waits for the end.
    pub(crate) fn finish(mut self) -> Outcome {
        drop(self.input.take());
        let end = self.loop_thread.join().unwrap();
        let output = self.reader.join().unwrap();
        let notes = self.notes.lock().unwrap().clone();
        Outcome { output, notes, end }
    }
}

impl Running {
    /// Waits for it to end by itself.
    pub(crate) fn wait(self) -> Outcome {
        let end = self.loop_thread.join().unwrap();
        let output = self.reader.join().unwrap();
        let notes = self.notes.lock().unwrap().clone();
        Outcome { output, notes, end }
    }
}

/// The whole of a log at rest.
pub(crate) fn once(module: Module, path: &Path, reading: &Reading) -> Outcome {
    start(module, path, reading, Options { follow: false, ..options() }).wait()
}
