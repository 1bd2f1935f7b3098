//! [`Monitor`]: threads around the core. One reads the generator and starts it again, a few call the listener, one keeps
//! the files.

mod calls;
mod keep;
mod supervise;

use std::io::{self, PipeWriter};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::core::{AlreadyRegistered, Core, Counters, Held, Limits, NotRegistered, Registering};
use super::datum::{Store, handled_events, passes_path, poll_path, spool_path};
use super::generator::Command;
use super::spool::{NoSpool, Spool};
use super::{Key, Listener};
use crate::seg::Module;

/// How a monitor works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The generator.
    pub command: Command,
    /// The datum file; without one nothing survives the monitor.
    pub datum: Option<PathBuf>,
    /// Where to begin when there is no datum; now, if not given.
    pub start: Option<i64>,
    /// How much is kept.
    pub limits: Limits,
    /// Threads that call the listener.
    pub threads: usize,
    /// While all of them are busy with calls that do not return and others wait, there may be more, up to so many.
    pub threads_max: usize,
    /// A first generator that ends within this time is an error of the start.
    pub grace: Duration,
    /// How long a generator may take to leave.
    pub patience: Duration,
}

impl Settings {
    /// The usual ones for a generator.
    pub fn new(command: Command) -> Self {
        Self {
            command,
            datum: None,
            start: None,
            limits: Limits::default(),
            threads: 4,
            threads_max: 256,
            grace: Duration::from_secs(1),
            patience: Duration::from_secs(5),
        }
    }
}

/// Why a monitor did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The datum file cannot be used.
    #[error("the datum file cannot be used: {0}")]
    Files(#[source] io::Error),
    /// The generator cannot be started.
    #[error("cannot start the generator {program}: {source}")]
    Spawn {
        /// What was called.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// It ended at once.
    #[error("the generator {program} ended at once ({status}){}{errors}", if .errors.is_empty() { "" } else { ": " })]
    Ended {
        /// What was called.
        program: String,
        /// How it ended.
        status: String,
        /// The end of what it said on standard error.
        errors: String,
    },
    /// No thread, or no pipe.
    #[error("the monitor's threads cannot be started: {0}")]
    Threads(#[source] io::Error),
}

/// What the generator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Generator {
    /// It runs.
    Running {
        /// Its process.
        pid: u32,
    },
    /// It died and is started again.
    BackingOff {
        /// So many times in a row.
        attempts: u32,
    },
    /// The monitor was stopped.
    Stopped,
}

/// How a monitor is.
#[derive(Debug, Clone)]
pub struct Status {
    /// The generator.
    pub generator: Generator,
    /// How often a generator was started.
    pub starts: u64,
    /// Why the last one ended, with the end of what it said.
    pub last_error: Option<String>,
    /// Stamp of the event that was read last, or where the generator began.
    pub last_event: i64,
    /// Where a generator would begin now.
    pub datum: i64,
    /// Lines that are none.
    pub bad_lines: u64,
    /// What happened.
    pub counters: Counters,
    /// What is there.
    pub held: Held,
}

/// What came of acknowledging.
#[derive(Debug)]
pub struct Acknowledged {
    /// Of each number: was it open?
    pub were_open: Vec<bool>,
    /// Why it is not on disk. Nothing of it is told again by this monitor, and it is written as soon as that is possible; but
    /// after a crash before that it is told again.
    pub trouble: Option<io::Error>,
}

/// What threads share.
pub struct Shared {
    books: Mutex<Books>,
    /// Something can be told.
    work: Condvar,
    /// A call ended.
    ended: Condvar,
    store: Option<Mutex<Store>>,
    listener: Arc<dyn Listener>,
    began: Instant,
    /// No call begins any more.
    stopping: AtomicBool,
    /// Everything else has ended: the files are written a last time.
    closing: AtomicBool,
    sweep: (Mutex<()>, Condvar),
    threads_max: usize,
    /// Calling threads beyond the usual ones.
    extra: Mutex<Vec<JoinHandle<()>>>,
    news: Mutex<News>,
    bad_lines: AtomicU64,
    /// The generator has told all that there was when it was started.
    caught_up: AtomicBool,
}

/// The core, and which thread does what with it.
struct Books {
    core: Core,
    /// The delivery with which each calling thread calls the listener.
    calls: Vec<Option<u64>>,
    /// The calling thread for whose call each of them waits.
    waits: Vec<Option<usize>>,
    /// How many threads, of whatever kind, wait for a call to end.
    waiting: usize,
    /// How many calls have ended.
    finished: u64,
}

struct News {
    generator: Generator,
    starts: u64,
    last_error: Option<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What a panic in somebody else's code left locked is still in order: the core is never called with foreign code inside.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wall_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// A generator, its events, and who wants them. Stops when it is dropped.
pub struct Monitor {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    wake: Option<PipeWriter>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Starts the generator where the datum says. Fails when it cannot be started, or ends at once.
    pub fn start(settings: Settings, listener: Arc<dyn Listener>) -> Result<Self, StartError> {
        let mut settings = settings;
        let command = &mut settings.command;
        if command.is_ours && command.state.is_none() {
            let module = Module::by_name(&command.scheduler);
            command.state = match &settings.datum {
                // A command of the site answers what is, not what was: its generator remembers that itself.
                Some(datum) if command.scheduler == "poll" => Some(poll_path(datum)),
                // What came again is known by its time, so times that have two meanings must mean the same again.
                Some(datum) if module.is_some_and(Module::has_local_times) => Some(passes_path(datum)),
                _ => None,
            };
        }
        let shared = Arc::new(open(&settings, listener)?);
        let (asleep, wake) = io::pipe().map_err(StartError::Threads)?;
        let mut monitor = Self { shared, threads: Vec::new(), wake: Some(wake) };
        monitor.spawn("keeper", Shared::keep_files)?;
        for index in 0..settings.threads.max(1) {
            monitor.spawn("caller", move |shared| shared.make_calls(index))?;
        }
        let first = supervise::First::start(&settings, &monitor.shared)?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(0);
        let (grace, command) = (settings.grace, settings.command.clone());
        monitor.spawn("generator", move |shared| {
            supervise::run(shared, first, &settings, &asleep, &sender);
        })?;
        // A word, or that it still lives when the time is over.
        match receiver.recv_timeout(grace) {
            Ok(Err((status, errors))) => {
                let program = command.call(0).first().map(|w| w.to_string_lossy().into_owned());
                Err(StartError::Ended { program: program.unwrap_or_default(), status, errors })
            }
            Ok(Ok(())) | Err(_) => Ok(monitor),
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), StartError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(StartError::Threads)?);
        Ok(())
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Registers an id. Cached events of it are told at once, and all that come.
    pub fn register(&self, id: &[u8], key: &Key) -> Result<(), AlreadyRegistered> {
        self.register_all(&[id], key, &Registering::default())
    }

    /// Registers several ids for one key, all or none.
    pub fn register_all(
        &self,
        ids: &[&[u8]],
        key: &Key,
        more: &Registering,
    ) -> Result<(), AlreadyRegistered> {
        let mut books = lock(&self.shared.books);
        books.core.register(self.shared.now_ms(), ids, key, more)?;
        let has_ready = books.core.has_ready();
        drop(books);
        if has_ready {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Ends the registration of an id. No call for it begins after this returned. May be called by a listener.
    pub fn unregister(&self, id: &[u8]) -> Result<(), NotRegistered> {
        self.shared.unregister(id)
    }

    /// The key that an id is registered for.
    pub fn key_of(&self, id: &[u8]) -> Option<Key> {
        lock(&self.shared.books).core.key_of(id).cloned()
    }

    /// The listener is done with deliveries to which it replied [`Later`](super::Reply::Later): never told again, also after a crash, once
    /// this returned without trouble.
    pub fn acknowledge(&self, numbers: &[u64]) -> Acknowledged {
        self.shared.acknowledge(numbers)
    }

    /// Is a registered job over, and everything about its end handled?
    pub fn is_over(&self, id: &[u8]) -> bool {
        lock(&self.shared.books).core.is_over(id)
    }

    /// Has the generator told all that there was when it was started, and the listener heard it?
    pub fn is_caught_up(&self) -> bool {
        // With the books locked: an event is taken, and this said, in one step.
        let books = lock(&self.shared.books);
        self.shared.caught_up.load(Ordering::SeqCst)
            && !books.core.has_ready()
            && books.calls.iter().all(Option::is_none)
    }

    /// How everything is.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Ends the generator and all calls, and writes the datum. What was not delivered is told by the next monitor.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        // Said before the generator is: one that leaves at once must not be taken for one that died.
        self.shared.stopping.store(true, Ordering::SeqCst);
        // The generator first: what it still says is then part of the last datum.
        drop(self.wake.take());
        drop(lock(&self.shared.books));
        self.shared.work.notify_all();
        let this = std::thread::current().id();
        for thread in self.threads.drain(..).rev() {
            // A listener may hold the last monitor: its own thread cannot be waited for.
            if thread.thread().id() == this {
                continue;
            }
            if thread.thread().name() == Some("keeper") {
                self.shared.join_extra();
                self.shared.closing.store(true, Ordering::SeqCst);
                drop(lock(&self.shared.sweep.0));
                self.shared.sweep.1.notify_all();
            }
            let _ = thread.join();
        }
        self.shared.join_extra();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn open(settings: &Settings, listener: Arc<dyn Listener>) -> Result<Shared, StartError> {
    let now = wall_seconds();
    let limits = settings.limits.clone();
    let threads = settings.threads.max(1);
    let (keep, slack) = (limits.keep_s, limits.slack_s);
    let (store, core) = match &settings.datum {
        None => (None, Core::new(limits, settings.start.unwrap_or(now), Box::new(NoSpool))),
        Some(path) => {
            let is_new = !path.exists();
            let (store, mut found) = Store::open(path, now).map_err(StartError::Files)?;
            if let Some(start) = settings.start.filter(|_| is_new) {
                found.start = start;
            }
            let spool = Box::new(Spool::new(&spool_path(path)));
            // The slack is in the datum already.
            let mut core = Core::new(limits, found.start.saturating_add(slack), spool);
            let mut bad = 0;
            for event in handled_events(&found.handled, found.start.saturating_sub(keep), &mut bad) {
                core.remember_handled(&event);
            }
            found.notes.iter().for_each(|note| listener.note(note));
            if bad > 0 {
                listener.note(&format!(
                    "{}.handled: damaged lines: {bad}; what they were about may be told again",
                    path.display()
                ));
            }
            (Some(Mutex::new(store)), core)
        }
    };
    Ok(Shared {
        books: Mutex::new(Books {
            core,
            calls: vec![None; threads],
            waits: vec![None; threads],
            waiting: 0,
            finished: 0,
        }),
        work: Condvar::new(),
        ended: Condvar::new(),
        store,
        listener,
        began: Instant::now(),
        stopping: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        sweep: (Mutex::new(()), Condvar::new()),
        threads_max: settings.threads_max,
        extra: Mutex::new(Vec::new()),
        news: Mutex::new(News { generator: Generator::Stopped, starts: 0, last_error: None }),
        bad_lines: AtomicU64::new(0),
        caught_up: AtomicBool::new(false),
    })
}

impl Shared {
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn status(&self) -> Status {
        let books = lock(&self.books);
        let (counters, held) = (books.core.counters(), books.core.held());
        let (last_event, datum) = (books.core.last_read(), books.core.datum(wall_seconds()));
        drop(books);
        let news = lock(&self.news);
        Status {
            generator: news.generator.clone(),
            starts: news.starts,
            last_error: news.last_error.clone(),
            last_event,
            datum,
            bad_lines: self.bad_lines.load(Ordering::Relaxed),
            counters,
            held,
        }
    }
}
