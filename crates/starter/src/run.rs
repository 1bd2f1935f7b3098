//! The loop: orders in, processes out, outcomes kept.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use model::report::{Attempt, CannotStart, Evicted, Exited, Happening, Returned, Started, Suspended, Warned};
use model::text;

use crate::cgroup::Group;
use crate::checkpoint::Checkpoints;
use crate::connection::Connection;
use crate::scratch::Scratch;
use crate::spawn::Spawner;
use crate::spool::Spool;
use crate::sys::{self, Reaped, Watch};
use crate::wire::{Begin, Eviction, Job, Order, Report, Standing, Stop, Use, Warn, Word};
use crate::{archive, frame, leftovers, tree};

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

pub(crate) fn fatal(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Fatal {
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
    let group = Group::enter_new();
    // Fresh starters wait here, ready, for the next claim of any job.
    let result = first_order(&mut agent).and_then(|begin| match begin {
        Some(begin) => {
            let starter = Starter::begin(begin, agent, group.as_ref())?;
            let dir = starter.dir.clone();
            starter.run(&signals).map(|lock| Some((lock, dir)))
        }
        None => Ok(None),
    });
    if let Some(group) = group {
        group.remove();
    }
    // The lock goes last: an agent that sees it go takes whatever is left in our group for an orphan, and would find us.
    result.map(|ended| {
        if let Some((lock, dir)) = ended {
            // Who ended as it should leaves no socket behind.
            let _ = std::fs::remove_file(dir.join(crate::SOCKET));
            drop(lock);
        }
    })
}

/// Waits for a claim; `None` when there will be none.
fn first_order(agent: &mut Connection) -> Result<Option<Begin>, Fatal> {
    while agent.wait_and_read()? {
        match agent.next_order()? {
            Some(Order::Begin(begin)) => return Ok(Some(begin)),
            Some(Order::Quit(_)) => return Ok(None),
            Some(_) | None => {}
        }
    }
    Ok(None)
}

/// The job that runs.
pub(crate) struct Running {
    pub(crate) job: Job,
    pub(crate) pid: i32,
    pub(crate) started_ms: u64,
    pub(crate) started_us: u64,
    /// When the soft stop turns into a kill.
    pub(crate) kill_at_us: Option<u64>,
    /// Set when it is made to end by the machine's side, which makes its end an eviction.
    pub(crate) evicted: Option<Eviction>,
    pub(crate) suspended: bool,
    /// It was asked for a checkpoint.
    pub(crate) asked: bool,
}

pub(crate) struct Starter<'a> {
    pub(crate) claim: u64,
    pub(crate) group: Option<&'a Group>,
    pub(crate) scratch: Option<Scratch>,
    pub(crate) agent: Option<Connection>,
    pub(crate) listener: UnixListener,
    pub(crate) spool: Spool,
    pub(crate) spawner: Spawner,
    pub(crate) waiting: VecDeque<Job>,
    pub(crate) running: Option<Running>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) lease_until_us: u64,
    /// Set when the claim is over: whether to be gentle.
    pub(crate) quit: Option<bool>,
    dir: PathBuf,
    /// Held as long as we live: its lock says so.
    lock: File,
}

impl<'a> Starter<'a> {
    fn begin(begin: Begin, agent: Connection, group: Option<&'a Group>) -> Result<Self, Fatal> {
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
        if let Some(group) = group {
            // Without it the agent still finds leftovers by their marker.
            let _ = std::fs::write(dir.join(crate::GROUP), group.dir().as_os_str().as_bytes());
        }
        let listener = bind(&dir).map_err(fatal(format!("cannot listen in {}", dir.display())))?;
        let mut starter = Self {
            claim: begin.claim,
            group,
            scratch: Scratch::at(&begin.scratch),
            agent: Some(agent),
            listener,
            spool,
            spawner: Spawner::new(&begin.marker),
            waiting: VecDeque::new(),
            running: None,
            checkpoints: Checkpoints::new(&dir),
            lease_until_us: sys::mono_us() + begin.lease_ms * 1000,
            quit: None,
            dir,
            lock,
        };
        starter.say_standing();
        Ok(starter)
    }

    /// Works until the claim is over; returns the lock, which says that we live.
    fn run(mut self, signals: &OwnedFd) -> Result<File, Fatal> {
        loop {
            self.obey()?;
            if let Some(gently) = self.quit {
                self.go_on();
                if gently {
                    self.ask_to_end();
                }
                self.clean_up();
                return Ok(self.lock);
            }
            self.start_next();
            if self.agent.as_mut().is_some_and(|agent| !agent.flush()) {
                self.agent = None;
            }
            let now = sys::mono_us();
            if now >= self.lease_until_us && !self.give_up() {
                self.clean_up();
                return Ok(self.lock);
            }
            // Rounded up: waking a moment early would only mean another turn of the loop.
            let timeout_ms = self.wake_us().saturating_sub(now).div_ceil(1000).min(3_600_000) as i32;
            self.wait(signals, timeout_ms)?;
            self.check_kill();
        }
    }

    /// Nothing of the claim is left behind.
    fn clean_up(&self) {
        leftovers::kill_children();
        if let Some(scratch) = &self.scratch {
            scratch.remove();
        }
    }

    pub(crate) fn empty_scratch(&self) {
        if let Some(scratch) = &self.scratch {
            scratch.empty();
        }
    }

    pub(crate) fn say(&mut self, word: Word) {
        if let Some(agent) = &mut self.agent {
            agent.say(word);
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
        let running = self.running.iter().map(|r| r.job.id).chain(self.checkpoints.leaving());
        let jobs = running.chain(self.waiting.iter().map(|j| j.id)).collect();
        let standing = Standing {
            claim: self.claim,
            jobs,
            unacknowledged: self.spool.unacknowledged().to_vec(),
            running_since_ms: self.running.as_ref().map(|r| r.started_ms),
            suspended: self.running.as_ref().is_some_and(|r| r.suspended),
            packed: self.checkpoints.waiting().to_vec(),
        };
        self.say(Word::Standing(standing));
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
                Order::Suspend(true) => self.suspend(),
                Order::Suspend(false) => self.go_on(),
                Order::Measure(_) => self.measure(),
                Order::Checkpoint(_) => self.ask_for_checkpoint(),
                Order::Stored(stored) => self.stored(stored),
                Order::Warn(warn) => self.warn(warn),
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
        if stop.hard && self.checkpoints.leaving() == Some(stop.id) {
            self.leave_without_checkpoint("there was no more time");
        }
        if self.running.as_ref().is_none_or(|r| r.job.id != stop.id) {
            return;
        }
        // A job that stands still could not take the signal.
        self.go_on();
        let Some(running) = self.running.as_mut() else { return };
        let now = sys::mono_us();
        if running.evicted.is_none() {
            running.evicted.clone_from(&stop.evict);
        }
        if stop.hard {
            running.kill_at_us = Some(now);
        } else if running.kill_at_us.is_none() {
            // A job that is only moved gets the chance to save its work.
            let save = running.job.checkpoint.as_ref().map_or(0, |c| c.signal);
            let signal = if stop.evict.is_some() && save > 0 { save } else { running.job.stop_signal };
            sys::signal(-running.pid, signal as i32);
            let patience_ms = stop.evict.as_ref().map_or(running.job.grace_ms, |e| e.patience_ms);
            let forever = stop.evict.is_some() && patience_ms == 0;
            running.kill_at_us = Some(if forever { u64::MAX } else { now + patience_ms * 1000 });
        }
        self.check_kill();
    }

    /// Tells the running job how much time it has left: in a file where it can look, and by the signal that it asked
    /// for. A job that asked for none gets none: most signals kill whoever does not expect them.
    fn warn(&mut self, warn: Warn) {
        let Some(running) = &self.running else { return };
        let (job, signal) = (running.job.id, running.job.warning_signal);
        if let Some(scratch) = &self.scratch {
            let deadline_s = sys::wall_ms() / 1000 + warn.remaining_s;
            // Without room for the file there are still the signal and the job's log.
            let _ = scratch.put(crate::WARNING, &format!("{} {deadline_s}\n", warn.remaining_s));
        }
        if signal > 0 {
            sys::signal(-running.pid, signal as i32);
        }
        let Warn { remaining_s, reason } = warn;
        self.report(Happening::Warned(Warned { job, remaining_s, signal, reason }));
    }

    /// Stops all processes of the running job where they are.
    fn suspend(&mut self) {
        let Some(running) = self.running.as_mut().filter(|r| !r.suspended) else { return };
        running.suspended = true;
        let job = running.job.id;
        let frozen = self.group.and_then(|group| group.freeze().ok());
        let processes = frozen.unwrap_or_else(tree::stop) as u32;
        self.report(Happening::Suspended(Suspended { job, processes }));
    }

    /// Lets a suspended job go on.
    fn go_on(&mut self) {
        let Some(running) = self.running.as_mut().filter(|r| r.suspended) else { return };
        running.suspended = false;
        let job = running.job.id;
        // Both: whichever way it was stopped, and if the group failed half-way.
        if let Some(group) = self.group {
            let _ = group.thaw();
        }
        tree::go_on();
        self.report(Happening::Continued(job));
    }

    fn measure(&mut self) {
        let Some(running) = &self.running else { return };
        let used = tree::measure();
        let word = Use {
            job: running.job.id,
            cpu_us: used.cpu_us,
            image_kib: used.image_kib,
            rss_kib: used.rss_kib,
            processes: used.processes,
            suspended: running.suspended,
        };
        self.say(Word::Use(word));
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
        while self.running.is_none()
            && self.checkpoints.leaving().is_none()
            && self.agent.as_ref().is_some_and(ready)
        {
            let Some(job) = self.waiting.pop_front() else { return };
            let (started_ms, started_us) = (sys::wall_ms(), sys::mono_us());
            if let Err(reason) = self.prepare(&job) {
                self.report(Happening::Evicted(Evicted { job: job.id, reason, code: 1006, hold: None }));
                continue;
            }
            match self.spawner.spawn(&job) {
                Ok(pid) => {
                    self.tell(Happening::Started(Started { job: job.id, started_ms }));
                    self.running = Some(Running {
                        job,
                        pid,
                        started_ms,
                        started_us,
                        kill_at_us: None,
                        evicted: None,
                        suspended: false,
                        asked: false,
                    });
                }
                Err(failure) if failure.is_ours() => {
                    let reason = failure.reason(&job);
                    self.report(Happening::Evicted(Evicted { job: job.id, reason, code: 1006, hold: None }));
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

    /// What a job finds when it starts.
    fn prepare(&mut self, job: &Job) -> Result<(), String> {
        if let Some(scratch) = &mut self.scratch {
            let made = scratch.prepare(job.identity.as_ref());
            made.map_err(|e| format!("cannot make the job's scratch directory: {e}"))?;
        }
        if !job.restore.is_empty() {
            let path = Path::new(&job.restore);
            let cwd = Path::new(std::ffi::OsStr::from_bytes(&job.cwd));
            let restored = archive::unpack(path, cwd, job.identity.as_ref());
            let _ = std::fs::remove_file(path);
            restored.map_err(|e| format!("cannot put the checkpoint's files in place: {e}"))?;
        }
        Ok(())
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
        if let Some(group) = self.group.filter(|_| running.suspended) {
            let _ = group.thaw();
        }
        let Some(running) = self.take_checkpoint(running, &exit) else { return };
        self.empty_scratch();
        let (job, started_ms) = (running.job.id, running.started_ms);
        match running.evicted {
            Some(Eviction { reason, code, hold, .. }) => {
                self.report(Happening::Evicted(Evicted { job, reason, code, hold }))
            }
            None => self.report(Happening::Exited(Exited { job, exit, started_ms })),
        }
    }

    /// The lease has run out. True while a killed job is still to be collected.
    fn give_up(&mut self) -> bool {
        if !self.waiting.is_empty() {
            let jobs: Vec<Attempt> = self.waiting.drain(..).map(|j| j.id).collect();
            self.report(Happening::Returned(Returned { jobs }));
        }
        self.leave_without_checkpoint("the lease ran out");
        match &mut self.running {
            Some(running) => {
                let reason = "the lease ran out without word from the manager".to_owned();
                running.evicted = Some(Eviction { reason, code: 1008, patience_ms: 0, hold: None });
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
    pub(crate) fn report(&mut self, happening: Happening) {
        let report = Report { seq: 0, happening: Some(happening) };
        // A full disk must not lose the outcome while we live: it is kept in memory in any case.
        let report = match self.spool.keep(report) {
            Ok(report) => report,
            Err(_) => match self.spool.unacknowledged().last() {
                Some(report) => report.clone(),
                None => return,
            },
        };
        self.say(Word::Report(report));
    }

    /// A report that is implied by a later one.
    fn tell(&mut self, happening: Happening) {
        self.say(Word::Report(Report { seq: 0, happening: Some(happening) }));
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

/// True when a starter that is gone ended as it should, and was not killed.
pub fn ended_well(dir: &Path) -> bool {
    !dir.join(crate::SOCKET).exists()
}

/// True while a starter lives that has this claim directory.
pub fn is_alive(dir: &Path) -> bool {
    // A lock file that cannot be opened belongs to nobody who lives.
    File::open(dir.join(crate::LOCK)).is_ok_and(|lock| !sys::try_lock(lock.as_fd()))
}
