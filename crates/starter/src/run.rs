//! The loop: orders in, processes out, outcomes kept.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use model::report::{Attempt, CannotStart, Evicted, Exited, Happening, Returned, Started};
use model::text;

use crate::frame::{self, Buffer};
use crate::leftovers;
use crate::spawn::Spawner;
use crate::spool::Spool;
use crate::sys::{self, Reaped, Watch};
use crate::wire::{Begin, FromStarter, Job, Order, Report, Standing, Stop, ToStarter, Word};

/// Unsent bytes to the agent beyond which no further job is started: a slow agent must not fill our memory.
const BACKLOG_BYTES: usize = 1 << 20;

/// How long a job has to end by itself when its pool goes away.
const GENTLE_US: u64 = 2_000_000;

/// Why a starter gave up.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The operating system refused something it needs.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The agent talks nonsense.
    #[error("the agent's message makes no sense: {0}")]
    Nonsense(#[from] frame::Bad),
}

fn fatal(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Fatal {
    let doing = doing.into();
    move |source| Fatal::System { doing, source }
}

/// Runs a starter on the connection that its agent gave it, until its claim is over or its lease has run out.
pub fn run(agent: OwnedFd) -> Result<(), Fatal> {
    sys::new_session();
    sys::become_subreaper().map_err(fatal("cannot adopt orphans"))?;
    let signals = sys::signal_descriptor().map_err(fatal("cannot receive signals"))?;
    let mut agent =
        Connection::new(UnixStream::from(agent)).map_err(fatal("cannot use the agent's connection"))?;
    // Fresh starters wait here, ready, for the next claim of any job.
    let begin = loop {
        if !agent.wait_and_read()? {
            return Ok(());
        }
        match agent.next_order()? {
            Some(Order::Begin(begin)) => break begin,
            Some(Order::Quit(_)) => return Ok(()),
            Some(_) | None => {}
        }
    };
    Starter::begin(begin, agent)?.run(&signals)
}

/// A connection to an agent.
struct Connection {
    stream: UnixStream,
    input: Buffer,
    output: Vec<u8>,
}

impl Connection {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Buffer::default(), output: Vec::new() })
    }

    /// Reads what is there; false when the agent is gone.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(n) => {
                    self.input.extend(&chunk[..n]);
                    if n < chunk.len() {
                        return true;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn wait_and_read(&mut self) -> Result<bool, Fatal> {
        let mut watch = [Watch { fd: self.stream.as_fd(), write: false, ready: false }];
        sys::poll(&mut watch, -1).map_err(fatal("cannot wait for the agent"))?;
        Ok(self.read())
    }

    fn next_order(&mut self) -> Result<Option<Order>, Fatal> {
        Ok(frame::take::<ToStarter>(&mut self.input)?.and_then(|message| message.order))
    }

    fn say(&mut self, word: Word) {
        frame::put(&FromStarter { word: Some(word) }, &mut self.output);
    }

    /// Writes what can be written; false when the agent is gone.
    fn flush(&mut self) -> bool {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.stream.write(&self.output[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.output.drain(..sent);
        true
    }
}

/// The job that runs.
struct Running {
    job: Job,
    pid: i32,
    started_ms: u64,
    started_us: u64,
    /// When the soft stop turns into a kill.
    kill_at_us: Option<u64>,
    /// Set when we killed it because the lease ran out.
    evicted: bool,
}

struct Starter {
    claim: u64,
    agent: Option<Connection>,
    listener: UnixListener,
    spool: Spool,
    spawner: Spawner,
    waiting: VecDeque<Job>,
    running: Option<Running>,
    lease_until_us: u64,
    /// Set when the claim is over: whether to be gentle.
    quit: Option<bool>,
    /// Held as long as we live: its lock says so.
    _lock: File,
}

impl Starter {
    fn begin(begin: Begin, agent: Connection) -> Result<Self, Fatal> {
        let dir = PathBuf::from(&begin.dir);
        let lock_path = dir.join(crate::LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(fatal(format!("cannot open {}", lock_path.display())))?;
        if !sys::try_lock(lock.as_fd()) {
            return Err(fatal(format!("another starter has {}", dir.display()))(
                ErrorKind::WouldBlock.into(),
            ));
        }
        let spool_path = dir.join(crate::OUTCOMES);
        let spool =
            Spool::create(&spool_path).map_err(fatal(format!("cannot write {}", spool_path.display())))?;
        let listener = bind(&dir).map_err(fatal(format!("cannot listen in {}", dir.display())))?;
        let mut starter = Self {
            claim: begin.claim,
            agent: Some(agent),
            listener,
            spool,
            spawner: Spawner::new(&begin.marker),
            waiting: VecDeque::new(),
            running: None,
            lease_until_us: sys::mono_us() + begin.lease_ms * 1000,
            quit: None,
            _lock: lock,
        };
        starter.say_standing();
        Ok(starter)
    }

    fn run(mut self, signals: &OwnedFd) -> Result<(), Fatal> {
        loop {
            self.obey()?;
            if let Some(gently) = self.quit {
                if gently {
                    self.ask_to_end();
                }
                leftovers::kill_children();
                return Ok(());
            }
            self.start_next();
            if self.agent.as_mut().is_some_and(|agent| !agent.flush()) {
                self.agent = None;
            }
            let now = sys::mono_us();
            if now >= self.lease_until_us && !self.give_up() {
                return Ok(());
            }
            // Rounded up: waking a moment early would only mean another turn of the loop.
            let timeout_ms = self.wake_us().saturating_sub(now).div_ceil(1000).min(3_600_000) as i32;
            self.wait(signals, timeout_ms)?;
            self.check_kill();
        }
    }

    /// When something is due: the end of the lease, or of a soft stop's patience.
    fn wake_us(&self) -> u64 {
        let kill = self.running.as_ref().and_then(|r| r.kill_at_us);
        kill.map_or(self.lease_until_us, |k| k.min(self.lease_until_us))
    }

    fn wait(&mut self, signals: &OwnedFd, timeout_ms: i32) -> Result<(), Fatal> {
        let (child_ended, new_agent, agent_spoke) = {
            let mut watches = vec![
                Watch { fd: signals.as_fd(), write: false, ready: false },
                Watch { fd: self.listener.as_fd(), write: false, ready: false },
            ];
            if let Some(agent) = &self.agent {
                let write = !agent.output.is_empty();
                watches.push(Watch { fd: agent.stream.as_fd(), write, ready: false });
            }
            sys::poll(&mut watches, timeout_ms).map_err(fatal("cannot wait"))?;
            (watches[0].ready, watches[1].ready, watches.get(2).is_some_and(|w| w.ready))
        };
        if child_ended {
            // SIGTERM and SIGINT are meant for agents; a claim ends by order or by lease.
            while sys::next_signal(signals.as_fd()).is_some() {}
            self.reap();
        }
        if new_agent && let Ok((stream, _)) = self.listener.accept() {
            self.adopt(stream);
        }
        if agent_spoke && self.agent.as_mut().is_some_and(|agent| !agent.read()) {
            // Whatever it said before it went is obeyed, then we are on our own.
            self.obey()?;
            self.agent = None;
        }
        Ok(())
    }

    /// An agent (the old one restarted, most likely) takes over.
    fn adopt(&mut self, stream: UnixStream) {
        if sys::peer_uid(stream.as_fd()) != Some(sys::own_uid()) {
            return;
        }
        if let Ok(connection) = Connection::new(stream) {
            self.agent = Some(connection);
            self.say_standing();
        }
    }

    fn say_standing(&mut self) {
        let running = self.running.iter().map(|r| r.job.id);
        let jobs = running.chain(self.waiting.iter().map(|j| j.id)).collect();
        let standing = Standing {
            claim: self.claim,
            jobs,
            unacknowledged: self.spool.unacknowledged().to_vec(),
            running_since_ms: self.running.as_ref().map(|r| r.started_ms),
        };
        if let Some(agent) = &mut self.agent {
            agent.say(Word::Standing(standing));
        }
    }

    fn obey(&mut self) -> Result<(), Fatal> {
        while let Some(order) = self.agent.as_mut().map(Connection::next_order).transpose()?.flatten() {
            match order {
                Order::Run(run) => self.waiting.extend(run.jobs),
                Order::Stop(stop) => self.stop(&stop),
                Order::Recall(count) => {
                    let keep = self.waiting.len().saturating_sub(count as usize);
                    let jobs = self.waiting.drain(keep..).map(|j| j.id).collect();
                    self.report(Happening::Returned(Returned { jobs }));
                }
                Order::Renew(lease_ms) => self.lease_until_us = sys::mono_us() + lease_ms * 1000,
                Order::Ack(seq) => {
                    // A spool that cannot be shortened only means reports that are sent twice.
                    let _ = self.spool.acknowledge(seq);
                }
                Order::Quit(gently) => self.quit = Some(gently),
                Order::Begin(_) => {}
            }
        }
        Ok(())
    }

    fn stop(&mut self, stop: &Stop) {
        if let Some(at) = self.waiting.iter().position(|j| j.id == stop.id) {
            self.waiting.remove(at);
            self.report(Happening::Returned(Returned { jobs: vec![stop.id] }));
            return;
        }
        let Some(running) = self.running.as_mut().filter(|r| r.job.id == stop.id) else { return };
        let now = sys::mono_us();
        if stop.hard {
            running.kill_at_us = Some(now);
        } else if running.kill_at_us.is_none() {
            sys::signal(-running.pid, running.job.stop_signal as i32);
            running.kill_at_us = Some(now + running.job.grace_ms * 1000);
        }
        self.check_kill();
    }

    /// Gives the running job the chance to end by itself. Whatever its exit says: it was made to end, so it will run again.
    fn ask_to_end(&mut self) {
        let Some(running) = &self.running else { return };
        sys::signal(-running.pid, running.job.stop_signal as i32);
        let patience_us = (running.job.grace_ms * 1000).min(GENTLE_US);
        let deadline = sys::mono_us() + patience_us;
        while sys::mono_us() < deadline {
            match sys::reap() {
                Reaped::Ended(child) if child.pid == running.pid => return,
                Reaped::NoChildren => return,
                Reaped::Ended(_) | Reaped::NoneEnded => {
                    std::thread::sleep(std::time::Duration::from_millis(2))
                }
            }
        }
    }

    /// Kills a job whose time to end by itself is over.
    fn check_kill(&mut self) {
        let now = sys::mono_us();
        if let Some(running) = self.running.as_mut().filter(|r| r.kill_at_us.is_some_and(|at| now >= at)) {
            running.kill_at_us = None;
            sys::signal(-running.pid, libc::SIGKILL);
            sys::signal(running.pid, libc::SIGKILL);
        }
    }

    fn start_next(&mut self) {
        // Alone, we finish what runs and begin nothing: the manager may be giving the rest to others by now.
        let ready = |agent: &Connection| agent.output.len() < BACKLOG_BYTES;
        while self.running.is_none() && self.agent.as_ref().is_some_and(ready) {
            let Some(job) = self.waiting.pop_front() else { return };
            let (started_ms, started_us) = (sys::wall_ms(), sys::mono_us());
            match self.spawner.spawn(&job) {
                Ok(pid) => {
                    self.tell(Happening::Started(Started { job: job.id, started_ms }));
                    let kill_at_us = None;
                    self.running =
                        Some(Running { job, pid, started_ms, started_us, kill_at_us, evicted: false });
                }
                Err(failure) if failure.is_ours() => {
                    let reason = failure.reason(&job);
                    self.report(Happening::Evicted(Evicted { job: job.id, reason, code: 1006 }));
                }
                Err(failure) => {
                    let subcode = failure.error.raw_os_error().unwrap_or(0) as u32;
                    let reason = text::one_line(&failure.reason(&job), model::limits::REASON_BYTES);
                    let code = failure.code();
                    self.report(Happening::CannotStart(CannotStart { job: job.id, reason, code, subcode }));
                }
            }
        }
    }

    fn reap(&mut self) {
        loop {
            match sys::reap() {
                // What is still there belongs to the running job.
                Reaped::NoChildren | Reaped::NoneEnded => return,
                Reaped::Ended(child) => {
                    if self.running.as_ref().is_some_and(|r| r.pid == child.pid)
                        && let Some(running) = self.running.take()
                    {
                        self.ended(running, child.exit);
                    }
                }
            }
        }
    }

    fn ended(&mut self, running: Running, mut exit: model::event::Exit) {
        exit.wall_us = sys::mono_us().saturating_sub(running.started_us);
        // The job is over when its first process is; what it left behind goes too.
        leftovers::kill_children();
        let (job, started_ms) = (running.job.id, running.started_ms);
        if running.evicted {
            let reason = "the lease ran out without word from the manager".to_owned();
            self.report(Happening::Evicted(Evicted { job, reason, code: 1008 }));
        } else {
            self.report(Happening::Exited(Exited { job, exit, started_ms }));
        }
    }

    /// The lease has run out. True while a killed job is still to be collected.
    fn give_up(&mut self) -> bool {
        if !self.waiting.is_empty() {
            let jobs: Vec<Attempt> = self.waiting.drain(..).map(|j| j.id).collect();
            self.report(Happening::Returned(Returned { jobs }));
        }
        match &mut self.running {
            Some(running) => {
                running.evicted = true;
                let pid = running.pid;
                sys::signal(-pid, libc::SIGKILL);
                sys::signal(pid, libc::SIGKILL);
                // A kill takes a moment; look again soon.
                self.lease_until_us = sys::mono_us() + 10_000;
                true
            }
            // With an agent there is somebody to tell; without one we are of no more use.
            None if self.agent.is_some() => {
                self.lease_until_us = sys::mono_us() + 1_000_000;
                true
            }
            None => false,
        }
    }

    /// A report that must not be lost.
    fn report(&mut self, happening: Happening) {
        let report = Report { seq: 0, happening: Some(happening) };
        // A full disk must not lose the outcome while we live: it is kept in memory in any case.
        let report = match self.spool.keep(report) {
            Ok(report) => report,
            Err(_) => match self.spool.unacknowledged().last() {
                Some(report) => report.clone(),
                None => return,
            },
        };
        if let Some(agent) = &mut self.agent {
            agent.say(Word::Report(report));
        }
    }

    /// A report that is implied by a later one.
    fn tell(&mut self, happening: Happening) {
        if let Some(agent) = &mut self.agent {
            agent.say(Word::Report(Report { seq: 0, happening: Some(happening) }));
        }
    }
}

/// Listens in a directory. The path goes through a descriptor because socket addresses hold 107 bytes only.
fn bind(dir: &Path) -> io::Result<UnixListener> {
    let path = dir.join(crate::SOCKET);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let (_dir, short) = short_path(dir, crate::SOCKET)?;
    let listener = UnixListener::bind(short)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A short name for a file in a directory with a long one; valid while the returned directory is open.
pub(crate) fn short_path(dir: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    use std::os::fd::AsRawFd as _;
    let dir = File::open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
    Ok((dir, path))
}

/// Connects to the starter of a claim directory.
pub fn connect(dir: &Path) -> io::Result<UnixStream> {
    let (_dir, short) = short_path(dir, crate::SOCKET)?;
    UnixStream::connect(short)
}

/// True while a starter lives that has this claim directory.
pub fn is_alive(dir: &Path) -> bool {
    // A lock file that cannot be opened belongs to nobody who lives.
    File::open(dir.join(crate::LOCK)).is_ok_and(|lock| !sys::try_lock(lock.as_fd()))
}
