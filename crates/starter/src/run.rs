//! The loop: orders in, outcomes kept. What is done to the running job is in `running`.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use model::report::{Attempt, Evicted, Happening, ProvisionFailed, Returned, Warned};
use model::{Moment, text};

use crate::cgroup::Group;
use crate::checkpoint::Checkpoints;
use crate::chore::Chore;
use crate::connection::Connection;
use crate::disks::Disks;
use crate::keeper::Keeper;
use crate::memory::{Limited, MemoryGroup};
use crate::nest::Nest;
use crate::running::Running;
use crate::scratch::Scratch;
use crate::spawn::{Spawner, Starting};
use crate::spool::Spool;
use crate::sys::{self, Watch};
use crate::visit::Visitor;
use crate::wire::{Begin, Eviction, Job, Order, Report, Standing, Stop, Warn, Word};
use crate::{frame, leftovers, uptime};

/// A job's start may take so long, where the machine says nothing else.
const START_US: u64 = 60_000_000;
/// What a job left is removed in this time, or set aside.
const CLEANING_US: u64 = 60_000_000;
/// How long a starter may take to leave when nothing of its job runs any more.
const CLEAN_UP_US: u64 = 20_000_000;
/// Most of what jobs leave is removed in less.
const LITTLE_MS: i32 = 50;

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
    /// Processes that cannot be killed are in the way.
    #[error("{0}")]
    Stuck(String),
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
    if sys::own_uid() == 0 {
        sys::hide_memory().map_err(fatal("cannot hide our memory"))?;
    }
    sys::become_subreaper().map_err(fatal("cannot adopt orphans"))?;
    let signals = sys::signal_descriptor().map_err(fatal("cannot receive signals"))?;
    let keeper = Keeper::find().map_err(fatal("cannot use the keeper's connection"))?;
    let mut agent =
        Connection::new(UnixStream::from(agent)).map_err(fatal("cannot use the agent's connection"))?;
    let group = Group::enter_new();
    if let (Some(keeper), Some(group)) = (&keeper, &group) {
        keeper.set_group(group.dir());
    }
    // Fresh starters wait here, ready, for the next claim of any job.
    let result = first_order(&mut agent).and_then(|begin| match begin {
        Some(begin) => {
            let starter = Starter::begin(begin, agent, group.as_ref(), keeper)?;
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
            // Who ended as it should says so. A socket that is gone says nothing: whoever copies a directory leaves sockets out.
            let _ = std::fs::rename(dir.join(crate::SOCKET), dir.join(crate::ENDED));
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

pub(crate) struct Starter<'a> {
    pub(crate) claim: u64,
    pub(crate) group: Option<&'a Group>,
    /// Counts what jobs with a limit have of the machine's memory; made for the first of them.
    pub(crate) memory: Option<MemoryGroup>,
    /// The running job has such a limit.
    pub(crate) limited: Option<Limited>,
    pub(crate) scratch: Option<Scratch>,
    pub(crate) agent: Option<Connection>,
    pub(crate) listener: UnixListener,
    pub(crate) spool: Spool,
    pub(crate) spawner: Spawner,
    pub(crate) waiting: VecDeque<Job>,
    pub(crate) running: Option<Running>,
    pub(crate) checkpoints: Checkpoints,
    lease_until_us: u64,
    /// A job's start may take so long.
    pub(crate) start_us: u64,
    /// A checkpoint may be so large; 0 for any size.
    pub(crate) checkpoint_bytes: u64,
    keeper: Option<Keeper>,
    /// People who look into the running job.
    pub(crate) visitors: Vec<Visitor>,
    /// What the last job left is being removed.
    pub(crate) cleaning: Option<Chore>,
    /// What the running job has in its scratch directory is being counted.
    pub(crate) measuring: Option<Chore>,
    pub(crate) next_look_us: u64,
    /// Looks in a row at which the disk of the scratch directory was nearly full.
    pub(crate) full_looks: u32,
    /// Disks that its jobs' outputs are on.
    pub(crate) disks: Disks,
    /// What was free there when the job began.
    pub(crate) free_before: u64,
    /// When the job that leaves was asked to, by the host's monotonic clock.
    leaving_since_ms: Option<u64>,
    /// Why the claim ends: its job was made to leave.
    ending: String,
    /// Why this starter can go on no further.
    pub(crate) stuck: Option<String>,
    /// Set when the claim is over: whether to be gentle.
    pub(crate) quit: Option<bool>,
    pub(crate) dir: PathBuf,
    /// Held as long as we live: its lock says so.
    lock: File,
}

impl<'a> Starter<'a> {
    fn begin(
        begin: Begin,
        agent: Connection,
        group: Option<&'a Group>,
        keeper: Option<Keeper>,
    ) -> Result<Self, Fatal> {
        let dir = PathBuf::from(&begin.dir);
        let lock_path = dir.join(crate::LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(fatal(format!("cannot open {}", lock_path.display())))?;
        if !sys::try_lock(lock.as_fd()) {
            return Err(fatal(format!("another starter has {}", dir.display()))(
                ErrorKind::WouldBlock.into(),
            ));
        }
        if let Some(keeper) = &keeper {
            keeper.share_lock(&lock).map_err(fatal("cannot share the lock with the keeper"))?;
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
            memory: None,
            limited: None,
            scratch: Scratch::at(&begin.scratch),
            agent: Some(agent),
            listener,
            spool,
            spawner: Spawner::new(&begin.marker).map_err(fatal("cannot share a page with children"))?,
            waiting: VecDeque::new(),
            running: None,
            checkpoints: Checkpoints::new(&dir),
            lease_until_us: 0,
            start_us: if begin.start_ms == 0 { START_US } else { begin.start_ms.saturating_mul(1000) },
            checkpoint_bytes: begin.checkpoint_bytes,
            keeper,
            visitors: Vec::new(),
            cleaning: None,
            measuring: None,
            next_look_us: 0,
            full_looks: 0,
            disks: Disks::default(),
            free_before: 0,
            leaving_since_ms: None,
            ending: String::new(),
            stuck: None,
            quit: None,
            dir,
            lock,
        };
        starter.set_lease(sys::mono_us() + begin.lease_ms * 1000);
        starter.say_standing();
        Ok(starter)
    }

    /// The lease runs until then; the keeper sees to it.
    fn set_lease(&mut self, until_us: u64) {
        self.lease_until_us = until_us;
        if let Some(keeper) = &self.keeper {
            keeper.set_until(until_us);
        }
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
            if let Some(why) = self.stuck.take() {
                if let Some(agent) = &mut self.agent {
                    agent.flush();
                }
                self.clean_up();
                return Err(Fatal::Stuck(why));
            }
            self.start_next();
            self.look_at_scratch();
            self.look_at_memory();
            self.look_at_disks();
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
            self.check_cleaning();
        }
    }

    /// Nothing of the claim is left behind.
    fn clean_up(&mut self) {
        self.end_looks();
        self.wait_for_looks();
        // Whatever the lease: from here on nothing of a job runs.
        leftovers::kill_children();
        if let Some(memory) = self.memory.take() {
            memory.remove();
        }
        if let Some(keeper) = &self.keeper {
            keeper.set_until(sys::mono_us() + CLEAN_UP_US);
        }
        if let Some(scratch) = &mut self.scratch
            && let Err(error) = scratch.remove()
        {
            eprintln!(
                "starter: the scratch directory {} cannot be removed: {error}",
                scratch.dir().display()
            );
        }
    }

    /// Begins to remove what the last job left in the scratch directory.
    pub(crate) fn empty_scratch(&mut self) {
        self.end_looks();
        let Some(scratch) = &self.scratch else { return };
        match scratch.begin_to_empty() {
            Ok(None) => {}
            Ok(Some(chore)) => {
                // Most of what is left is little, and then the next job need not wait for another turn of the loop.
                let _ = sys::poll(&mut [chore.watch()], LITTLE_MS);
                self.cleaning = Some(chore);
                self.check_cleaning();
            }
            Err(error) => self.set_scratch_aside(&error),
        }
    }

    /// Looks whether the scratch directory is empty by now. What does not go in time is set aside.
    pub(crate) fn check_cleaning(&mut self) {
        let Some(chore) = &mut self.cleaning else { return };
        let outcome = match chore.outcome() {
            Some(outcome) => outcome,
            None if sys::mono_us() < chore.since_us + CLEANING_US => return,
            None => {
                chore.kill();
                Err(ErrorKind::TimedOut.into())
            }
        };
        self.cleaning = None;
        if let Err(error) = outcome {
            self.set_scratch_aside(&error);
        }
    }

    fn set_scratch_aside(&mut self, error: &io::Error) {
        let Some(scratch) = &mut self.scratch else { return };
        eprintln!("starter: the scratch directory {} cannot be emptied: {error}", scratch.dir().display());
        match scratch.set_aside() {
            Ok(to) => eprintln!("starter: it is set aside as {}", to.display()),
            Err(error) => self.stuck = Some(format!("the scratch directory cannot be set aside: {error}")),
        }
    }

    pub(crate) fn say(&mut self, word: Word) {
        if let Some(agent) = &mut self.agent {
            agent.say(word);
        }
    }

    /// When something is due: the end of the lease, of a soft stop's patience, a look at the scratch directory.
    fn wake_us(&self) -> u64 {
        let cleaning = self.cleaning.as_ref().map(|chore| chore.since_us + CLEANING_US);
        let times = [
            Some(self.lease_until_us),
            self.next_kill_us(),
            self.next_look_at_scratch_us(),
            self.next_look_at_memory_us(),
            self.next_look_at_disks_us(),
            cleaning,
        ];
        times.into_iter().flatten().min().unwrap_or(self.lease_until_us)
    }

    fn wait(&mut self, signals: &OwnedFd, timeout_ms: i32) -> Result<(), Fatal> {
        let (child_ended, new_agent, nest_spoke, agent_spoke) = {
            let of = |fd| Watch { fd, write: false, ready: false };
            let running = self.running.as_ref();
            let agent = self.agent.as_ref().map(|agent| Watch {
                fd: agent.stream.as_fd(),
                write: !agent.output.is_empty(),
                ready: false,
            });
            let nest = running.and_then(|r| r.nest.as_ref()).map(Nest::watch);
            let (has_agent, has_nest) = (usize::from(agent.is_some()), usize::from(nest.is_some()));
            let mut watches = vec![of(signals.as_fd()), of(self.listener.as_fd())];
            watches.extend(agent.into_iter().chain(nest));
            // These are asked for news in each turn.
            watches.extend(running.and_then(|r| r.starting.as_ref()).map(Starting::watch));
            watches.extend(running.and_then(|r| r.chore.as_ref()).map(|(chore, _)| chore.watch()));
            watches.extend(self.cleaning.iter().chain(&self.measuring).map(Chore::watch));
            sys::poll(&mut watches, timeout_ms).map_err(fatal("cannot wait"))?;
            let ready = |n: usize| watches.get(n).is_some_and(|w| w.ready);
            (ready(0), ready(1), has_nest > 0 && ready(2 + has_agent), has_agent > 0 && ready(2))
        };
        if nest_spoke {
            self.hear_nest();
        }
        self.hear_start();
        self.hear_chore();
        if child_ended {
            // SIGTERM and SIGINT are meant for agents; a claim ends by order or by lease.
            while sys::next_signal(signals.as_fd()).is_some() {}
            self.reap();
            if self.keeper.as_ref().is_some_and(|keeper| !keeper.is_alive()) {
                leftovers::kill_children();
                return Err(Fatal::Stuck("the keeper is gone".to_owned()));
            }
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
        let is_leaving = self.running.as_ref().is_some_and(|r| r.evicted.is_some())
            || self.checkpoints.leaving().is_some();
        let standing = Standing {
            claim: self.claim,
            jobs,
            unacknowledged: self.spool.unacknowledged().to_vec(),
            running_since_ms: self.running.as_ref().map(|r| r.started.mono_ms),
            suspended: self.running.as_ref().is_some_and(|r| r.suspended),
            packed: self.checkpoints.waiting().to_vec(),
            answers: true,
            leaving_since_ms: self.leaving_since_ms.filter(|_| is_leaving),
            ending: self.ending.clone(),
            outputs: self
                .running
                .as_ref()
                .and_then(|r| r.sending.as_ref())
                .map(|s| Box::new(s.outputs.clone())),
            has_started: self.running.as_ref().is_some_and(Running::has_started),
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
                Order::Renew(lease_ms) => self.set_lease(sys::mono_us() + lease_ms * 1000),
                Order::Ask(number) => self.say(Word::Here(number)),
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
                Order::Landed(landed) => self.landed(landed),
                Order::Visit(visit) => self.visit(&visit),
                Order::Begin(_) => {}
            }
        }
        Ok(())
    }

    /// For how long the job that leaves has been asked to, in milliseconds.
    pub(crate) fn leaving_for_ms(&self) -> Option<u64> {
        self.leaving_since_ms.map(|since_ms| uptime::moment().mono_ms.saturating_sub(since_ms))
    }

    fn stop(&mut self, stop: &Stop) {
        if let Some(at) = self.waiting.iter().position(|j| j.id == stop.id) {
            self.waiting.remove(at);
            self.report(Happening::Returned(Returned { jobs: vec![stop.id] }));
            return;
        }
        if self.checkpoints.leaving() == Some(stop.id) {
            if stop.hard {
                self.leave_without_checkpoint("there was no more time");
            } else if stop.evict.is_none() {
                self.checkpoints.hurry(sys::mono_us());
            }
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
            self.leaving_since_ms = stop.evict.as_ref().map(|_| uptime::moment().mono_ms);
        }
        // A machine may give a job that leaves more time than people do.
        let is_new = stop.evict.is_none() && !running.stopping;
        running.stopping |= stop.evict.is_none();
        // One that has ended has nothing more to do than to be gone.
        if running.sending.is_some() && (stop.hard || stop.evict.is_none()) {
            return self.abandon_sending();
        }
        // One that has not begun loses nothing.
        if self.withdraw() {
            return;
        }
        let Some(running) = self.running.as_mut() else { return };
        // One that is just being put back loses nothing: its checkpoint is where it was.
        let unborn = running.nest.as_ref().is_some_and(|n| !n.started);
        if stop.hard || unborn {
            running.kill_at_us = Some(now);
        } else if running.kill_at_us.is_none() || is_new {
            running.asked_to_leave = true;
            let patience_ms = stop.evict.as_ref().map_or(running.job.grace_ms, |e| e.patience_ms);
            let forever = stop.evict.is_some() && patience_ms == 0;
            let until_us = if forever { u64::MAX } else { now + patience_ms * 1000 };
            running.kill_at_us = Some(running.kill_at_us.map_or(until_us, |at| at.min(until_us)));
            // A job that is only moved gets the chance to save its work, or is saved.
            let save = running.job.checkpoint.as_ref().map_or(0, |c| c.signal);
            match (stop.evict.is_some(), running.nest.is_some()) {
                (true, true) => self.ask_to_dump(),
                (true, false) if save > 0 => running.signal(save as i32),
                _ => running.signal(running.job.stop_signal as i32),
            }
        }
        self.check_kill();
    }

    /// Tells the running job how much time it has left: in a file where it can look, and by the signal that it asked
    /// for. A job that asked for none gets none: most signals kill whoever does not expect them.
    fn warn(&mut self, warn: Warn) {
        let Some(running) = &mut self.running else { return };
        let (job, signal) = (running.job.id, running.job.warning_signal);
        if let Some(scratch) = &self.scratch {
            let deadline_s = sys::wall_ms() / 1000 + warn.remaining_s;
            // Without room for the file there are still the signal and the job's log.
            let _ = scratch.put(crate::WARNING, &format!("{} {deadline_s}\n", warn.remaining_s));
        }
        if signal > 0 {
            running.signal(signal as i32);
        }
        let Warn { remaining_s, reason } = warn;
        self.report(Happening::Warned(Warned { job, remaining_s, signal, reason }));
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
                running.kill();
                // A kill takes a moment; look again soon.
                self.set_lease(sys::mono_us() + 10_000);
                true
            }
            // With an agent there is somebody to tell; without one we are of no more use.
            None if self.agent.is_some() => {
                self.set_lease(sys::mono_us() + 1_000_000);
                true
            }
            None => false,
        }
    }

    /// This machine cannot run it, another may: who decides is the manager, so that it is not tried for ever.
    pub(crate) fn report_unready(&mut self, job: Attempt, reason: String) {
        let reason = text::one_line(&reason, model::limits::REASON_BYTES);
        self.report(Happening::ProvisionFailed(ProvisionFailed { job, reason }));
    }

    pub(crate) fn report_evicted(&mut self, job: Attempt, why: Eviction) {
        let Eviction { reason, code, hold, .. } = why;
        let evicted = Evicted { job, reason, code, hold };
        if evicted.ends_claim() {
            self.ending.clone_from(&evicted.reason);
        }
        self.report(Happening::Evicted(evicted));
    }

    /// A report that must not be lost.
    pub(crate) fn report(&mut self, happening: Happening) {
        self.report_at(uptime::moment(), happening);
    }

    /// The same of something that was a while ago.
    pub(crate) fn report_at(&mut self, moment: Moment, happening: Happening) {
        let report = Report { seq: 0, happening: Some(happening), moment: Some(moment) };
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

    /// A report of something a while ago that is implied by a later one.
    pub(crate) fn tell_at(&mut self, moment: Moment, happening: Happening) {
        self.say(Word::Report(Report { seq: 0, happening: Some(happening), moment: Some(moment) }));
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
    dir.join(crate::ENDED).exists()
}

/// True while a starter lives that has this claim directory.
pub fn is_alive(dir: &Path) -> bool {
    // A lock file that cannot be opened belongs to nobody who lives.
    File::open(dir.join(crate::LOCK)).is_ok_and(|lock| !sys::try_lock(lock.as_fd()))
}
