//! The running job, from its start to its end: what is done to it, and what it becomes.
//!
//! A job passes through phases: its checkpoint is put in place (a chore), its process is started, it runs, what it saved is
//! packed (a chore). None of them keeps the starter waiting: an order to stop is obeyed in each.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use model::event::Exit;
use model::report::{CannotStart, Evicted, Exited, Happening, Returned, Started, Suspended};
use model::{Moment, text};

use crate::chore::Chore;
use crate::connection::Connection;
use crate::nest::Nest;
use crate::run::Starter;
use crate::spawn::{Failure, Starting};
use crate::stage::Sending;
use crate::sys::{self, Reaped};
use crate::wire::{Eviction, Job, Use, Word};
use crate::{archive, leftovers, transparent, tree, uptime};

/// Unsent bytes to the agent beyond which no further job is started: a slow agent must not fill our memory.
const BACKLOG_BYTES: usize = 1 << 20;

/// How long a job has to end by itself when its pool goes away.
const GENTLE_US: u64 = 2_000_000;
/// Most starts take less; those that do not are waited for beside everything else.
const MOMENT_MS: i32 = 5;
/// A killed process that is still there after this is stuck in the kernel.
const STUCK_US: u64 = 5_000_000;
/// Chores among a job's files are given up after this.
const CHORE_US: u64 = 1_800_000_000;

/// The job that runs, or is about to, or has just saved its work.
pub(crate) struct Running {
    pub(crate) job: Job,
    /// 0 while it has no process.
    pub(crate) pid: i32,
    pub(crate) started: Moment,
    pub(crate) started_us: u64,
    /// When the soft stop turns into a kill.
    pub(crate) kill_at_us: Option<u64>,
    /// When it was killed.
    pub(crate) killed_us: Option<u64>,
    /// People want it to end.
    pub(crate) stopping: bool,
    /// Set when it is made to end by the machine's side, which makes its end an eviction.
    pub(crate) evicted: Option<Eviction>,
    pub(crate) suspended: bool,
    /// It was asked for a checkpoint.
    pub(crate) asked: bool,
    /// It was given the time to leave by itself.
    pub(crate) asked_to_leave: bool,
    /// Where it lives, when it is saved from outside; `pid` is then the nest's.
    pub(crate) nest: Option<Nest>,
    /// Its process is on the way to its program.
    pub(crate) starting: Option<Starting>,
    /// It goes on after a checkpoint.
    pub(crate) again: bool,
    /// Why its start was given up.
    pub(crate) unready: Option<String>,
    /// What is done among its files, and what follows.
    pub(crate) chore: Option<(Chore, Then)>,
    /// What was in its scratch directory when its inputs were in place.
    pub(crate) placed: Option<File>,
    /// It has ended, and its results are on their way.
    pub(crate) sending: Option<Sending>,
    /// The devices of its standard output and error; 0 where that is no file.
    pub(crate) devices: [u64; 2],
    /// One of them was full while it ran.
    pub(crate) ran_out_of_room: bool,
}

/// What follows a chore.
#[derive(Debug)]
pub(crate) enum Then {
    /// Its inputs are in place: its checkpoint is next, or it starts.
    Place,
    /// Its results are collected: they are sent; how its process ended.
    Collect { path: PathBuf, exit: Box<Exit> },
    /// Its files are in place: it starts.
    Start,
    /// The images of its processes are in place: its scratch directory is next.
    RestoreScratch(File),
    /// Its files are packed: it goes on, or leaves; how its last process ended.
    Keep { path: PathBuf, exit: Box<Exit> },
    /// The images of its processes are packed: its scratch directory is next.
    PackScratch { path: PathBuf, to: File },
    /// Everything about its processes is packed.
    KeepImages { path: PathBuf },
}

impl Running {
    pub(crate) fn new(job: Job) -> Self {
        Self {
            job,
            pid: 0,
            started: uptime::moment(),
            started_us: sys::mono_us(),
            kill_at_us: None,
            killed_us: None,
            stopping: false,
            evicted: None,
            suspended: false,
            asked: false,
            asked_to_leave: false,
            nest: None,
            starting: None,
            again: false,
            unready: None,
            chore: None,
            placed: None,
            sending: None,
            devices: [0; 2],
            ran_out_of_room: false,
        }
    }

    /// Sends its process group a signal.
    pub(crate) fn signal(&mut self, signal: i32) {
        match &mut self.nest {
            Some(nest) => nest.signal(signal),
            None => sys::signal(-self.pid, signal),
        }
    }

    /// Kills it; what it started goes when it is collected.
    pub(crate) fn kill(&mut self) {
        self.killed_us.get_or_insert_with(sys::mono_us);
        if let Some((chore, _)) = &self.chore {
            chore.kill();
        }
        if let Some(nest) = &self.nest {
            nest.kill();
        } else {
            sys::signal(-self.pid, libc::SIGKILL);
            sys::signal(self.pid, libc::SIGKILL);
        }
    }

    /// People want it to end, and the machine does not.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.stopping && self.evicted.is_none()
    }

    /// How long a chore among its files may take: plug-ins have a time of their own for each direction, and there may be several.
    fn chore_us(&self) -> u64 {
        let transfer = self.job.transfer.as_ref();
        let plugins = transfer.map_or(0, |t| t.plugin_seconds * t.plugins.len() as u64);
        CHORE_US.saturating_add(plugins.saturating_mul(1_000_000))
    }

    /// Its program was started.
    pub(crate) fn has_started(&self) -> bool {
        self.pid > 0 && self.starting.is_none() && self.nest.as_ref().is_none_or(|nest| nest.started)
    }

    /// Nothing of it has run in this attempt yet.
    fn is_unborn(&self) -> bool {
        let restoring = matches!(self.chore, Some((_, Then::Place | Then::Start | Then::RestoreScratch(_))));
        !self.again && (restoring || self.starting.is_some())
    }
}

impl Starter<'_> {
    /// Stops all processes of the running job where they are.
    pub(crate) fn suspend(&mut self) {
        let Some(running) = self.running.as_mut().filter(|r| !r.suspended) else { return };
        running.suspended = true;
        let job = running.job.id;
        let frozen = self.group.and_then(|group| group.freeze().ok());
        let processes = frozen.unwrap_or_else(tree::stop) as u32;
        self.report(Happening::Suspended(Suspended { job, processes }));
    }

    /// Lets a suspended job go on.
    pub(crate) fn go_on(&mut self) {
        let Some(running) = self.running.as_mut().filter(|r| r.suspended) else { return };
        running.suspended = false;
        let job = running.job.id;
        // Both: whichever way it was stopped, and if the group failed half-way.
        if let Some(group) = self.group {
            let _ = group.thaw();
        }
        tree::go_on();
        let asked = running.asked && running.nest.is_some();
        self.report(Happening::Continued(job));
        if asked {
            self.ask_to_dump();
        }
    }

    pub(crate) fn measure(&mut self) {
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
    pub(crate) fn ask_to_end(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.signal(running.job.stop_signal as i32);
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

    /// A running job that has not begun to run is not wanted any more. False when it has.
    pub(crate) fn withdraw(&mut self) -> bool {
        self.hear_start();
        let Some(running) = self.running.as_mut().filter(|r| r.is_unborn()) else { return false };
        running.kill();
        // One that has no process is over now; the other is when it is collected.
        if running.starting.is_none() {
            self.end_unborn();
        }
        true
    }

    pub(crate) fn end_unborn(&mut self) {
        let Some(running) = self.running.take() else { return };
        let job = running.job.id;
        self.clear_away(&running);
        self.empty_scratch();
        self.forget_images();
        match (running.unready, running.evicted) {
            (Some(reason), _) => self.report_unready(job, reason),
            (None, Some(why)) => self.report_evicted(job, why),
            (None, None) => self.report(Happening::Returned(Returned { jobs: vec![job] })),
        }
    }

    /// Kills a job whose time is over: to end by itself, to be started, to have its files packed.
    pub(crate) fn check_kill(&mut self) {
        let now = sys::mono_us();
        let start_us = self.start_us;
        if self.checkpoints.leaves_at_us().is_some_and(|at| now >= at) {
            self.leave_without_checkpoint("there was no more time");
        }
        let Some(running) = self.running.as_mut() else { return };
        if running.sending.is_some()
            && (running.killed_us.is_some() || running.kill_at_us.is_some_and(|at| now >= at))
        {
            return self.abandon_sending();
        }
        if running.kill_at_us.is_some_and(|at| now >= at) {
            running.kill_at_us = None;
            running.kill();
        }
        if running.killed_us.is_some_and(|at| now >= at + STUCK_US) {
            return self.give_up_on_stuck();
        }
        if running.killed_us.is_none()
            && running.starting.as_ref().is_some_and(|s| now >= s.since_us + start_us)
        {
            let seconds = start_us.div_ceil(1_000_000);
            running.unready = Some(format!(
                "cannot {}: it did not answer within {seconds} s (a dead file system?)",
                self.spawner.waits_for(&running.job)
            ));
            running.kill();
        }
        let chore_us = running.chore_us();
        let is_suspended = running.suspended;
        if let Some((chore, _)) = &mut running.chore {
            if now >= chore.since_us + chore_us {
                chore.kill();
            } else if !is_suspended {
                chore.nudge(now);
            }
        }
    }

    /// When `check_kill` has something to do.
    pub(crate) fn next_kill_us(&self) -> Option<u64> {
        let leaves = self.checkpoints.leaves_at_us();
        let Some(running) = &self.running else { return leaves };
        let start = running.starting.as_ref().filter(|_| running.killed_us.is_none());
        let times = [
            leaves,
            running.kill_at_us,
            running.killed_us.map(|at| at + STUCK_US),
            start.map(|s| s.since_us + self.start_us),
            running.chore.as_ref().map(|(chore, _)| chore.since_us + running.chore_us()),
            running.chore.as_ref().filter(|_| !running.suspended).map(|(chore, _)| chore.next_nudge_us()),
        ];
        times.into_iter().flatten().min()
    }

    /// A killed process that does not end waits for something in the kernel. It runs no further, but it is in the way of
    /// this starter's other jobs: the claim ends.
    fn give_up_on_stuck(&mut self) {
        let Some(running) = self.running.take() else { return };
        let waits =
            "its process is stuck in the kernel (a dead file system?); it was killed and runs no further";
        let job = running.job.id;
        match running.evicted {
            Some(why) => self.report_evicted(job, why),
            None if running.stopping => {
                let exit = Exit { signal: Some(libc::SIGKILL as u32), ..Exit::default() };
                self.report(Happening::Exited(Exited { job, exit }));
            }
            None => {
                let reason = running.unready.unwrap_or_default();
                self.report_unready(job, format!("{reason} {waits}").trim().to_owned());
            }
        }
        self.stuck = Some(waits.to_owned());
    }

    pub(crate) fn start_next(&mut self) {
        // Alone, we finish what runs and begin nothing: the manager may be giving the rest to others by now.
        let ready = |agent: &Connection| agent.output.len() < BACKLOG_BYTES;
        while self.running.is_none()
            && self.cleaning.is_none()
            && self.stuck.is_none()
            && self.checkpoints.leaving().is_none()
            && self.agent.as_ref().is_some_and(ready)
        {
            let Some(job) = self.waiting.pop_front() else { return };
            if let Some(scratch) = &mut self.scratch
                && let Err(error) = scratch.prepare(job.identity.as_ref())
            {
                self.report_unready(job.id, format!("cannot make the job's scratch directory: {error}"));
                continue;
            }
            self.free_before =
                self.scratch.as_ref().and_then(crate::scratch::Scratch::room).map_or(0, |(_, free)| free);
            self.full_looks = 0;
            let (restores, transfers) = (!job.restore.is_empty(), job.transfer.is_some());
            if transfers && self.scratch.is_none() {
                self.report_unready(job.id, "there is no directory for the job's files".to_owned());
                continue;
            }
            self.running = Some(Running::new(job));
            if transfers {
                self.begin_to_place();
            } else if restores {
                self.begin_to_restore();
            } else {
                self.launch(None);
            }
        }
    }

    /// Puts a checkpoint's files in place.
    pub(crate) fn begin_to_restore(&mut self) {
        self.forget_images();
        let Some(running) = &mut self.running else { return };
        let (job, path) = (&running.job, PathBuf::from(&running.job.restore));
        let begun = File::open(&path).and_then(|from| {
            if job.nest.is_some() {
                let images = self.dir.join(transparent::IMAGES);
                let chore =
                    Chore::begin(None, &[from.as_fd()], || transparent::unpack_images(&from, &images, job))?;
                return Ok((chore, Then::RestoreScratch(from)));
            }
            let cwd = Path::new(std::ffi::OsStr::from_bytes(&job.cwd));
            let chore = Chore::begin(job.identity.as_ref(), &[from.as_fd()], || {
                archive::unpack(&from, "", cwd).map(|()| Vec::new())
            })?;
            Ok((chore, Then::Start))
        });
        let _ = fs::remove_file(path);
        match begun {
            Ok(chore) => running.chore = Some(chore),
            Err(error) => self.cannot_restore(&error),
        }
    }

    pub(crate) fn cannot_restore(&mut self, error: &io::Error) {
        if let Some(running) = &mut self.running {
            let what = if running.job.nest.is_some() {
                "its checkpoint cannot be put back"
            } else {
                "cannot put the checkpoint's files in place"
            };
            running.unready.get_or_insert_with(|| format!("{what}: {error}"));
        }
        self.end_unborn();
    }

    /// Looks whether a chore among the running job's files is done, and goes on.
    pub(crate) fn hear_chore(&mut self) {
        let Some((chore, _)) = self.running.as_mut().and_then(|r| r.chore.as_mut()) else { return };
        let Some(outcome) = chore.outcome() else { return };
        let Some((_, then)) = self.running.as_mut().and_then(|r| r.chore.take()) else { return };
        match (then, outcome) {
            (Then::Place, Ok(placed)) => self.placed(&placed),
            (Then::Place, Err(error)) => self.cannot_place(&error),
            (Then::Collect { path, exit }, outcome) => self.collected(&path, *exit, outcome),
            (Then::Start, Ok(known)) => self.launch(Some(&known)),
            (Then::RestoreScratch(from), Ok(manifest)) => self.restore_scratch(&from, &manifest),
            (Then::Start | Then::RestoreScratch(_), Err(error)) => self.cannot_restore(&error),
            (Then::Keep { path, exit }, outcome) => {
                let made = outcome.and_then(|bytes| archive::Made::of_bytes(&bytes));
                self.packed(&path, *exit, made);
            }
            (Then::PackScratch { path, to }, Ok(bytes)) => self.pack_scratch(path, to, &bytes),
            (Then::KeepImages { path }, outcome) => {
                let made = outcome.and_then(|bytes| archive::Made::of_bytes(&bytes));
                self.packed_images(&path, made);
            }
            (Then::PackScratch { path, .. }, Err(error)) => self.packed_images(&path, Err(error)),
        }
    }

    /// Starts the process of the running job; in a nest from its images, when the files that they need are known.
    pub(crate) fn launch(&mut self, known: Option<&[u8]>) {
        let Some(mut running) = self.running.take() else { return };
        if running.job.nest.is_some() {
            match self.with_limit(&running.job, |starter| starter.start_nested(&running.job, known)) {
                Ok(nest) => {
                    running.pid = nest.pid;
                    running.nest = Some(nest);
                    self.running = Some(running);
                }
                Err(reason) => {
                    // What was put back of it must not be there for the next one.
                    self.forget_images();
                    self.empty_scratch();
                    self.report_unready(running.job.id, reason);
                }
            }
            return;
        }
        // What it has said so far is in its scratch directory, and goes home with the rest.
        let appends = running.again && running.job.transfer.is_some();
        match self.with_limit(&running.job, |starter| starter.spawner.spawn_again(&running.job, appends)) {
            Ok(starting) => {
                running.pid = starting.pid;
                starting.wait_ms(MOMENT_MS);
                running.starting = Some(starting);
                self.running = Some(running);
                self.hear_start();
            }
            Err(failure) => self.not_started(&running, &failure),
        }
    }

    /// Looks whether the running job's process has come to its program.
    pub(crate) fn hear_start(&mut self) {
        let Some(running) = &mut self.running else { return };
        let Some(starting) = &running.starting else { return };
        // One that was killed on the way says nothing when it ends.
        if running.killed_us.is_some() || starting.is_under_way() {
            return;
        }
        let outcome = self.spawner.outcome(starting);
        running.starting = None;
        match outcome {
            Ok(()) => {
                running.devices = self.spawner.devices();
                let (job, started, again) = (running.job.id, running.started, running.again);
                if !again {
                    self.tell_at(started, Happening::Started(Started { job }));
                }
            }
            Err(failure) => {
                if let Some(running) = self.running.take() {
                    self.not_started(&running, &failure);
                }
            }
        }
    }

    fn not_started(&mut self, running: &Running, failure: &Failure) {
        self.empty_scratch();
        let job = running.job.id;
        let reason = text::one_line(&failure.reason(&running.job), model::limits::REASON_BYTES);
        if running.again {
            let reason = format!("it could not go on after a checkpoint: {reason}");
            self.report(Happening::Evicted(Evicted { job, reason, code: 1006, hold: None }));
        } else if failure.is_time_out() {
            self.report_unready(job, reason);
        } else if failure.is_ours() {
            self.report(Happening::Evicted(Evicted { job, reason, code: 1006, hold: None }));
        } else {
            let (code, subcode) = (failure.code(), failure.subcode());
            let reason = match &running.job.transfer {
                Some(transfer) if code == 6 => failure.reason_elsewhere(&running.job, &transfer.slot),
                _ => reason,
            };
            self.report(Happening::CannotStart(CannotStart { job, reason, code, subcode }));
        }
    }

    pub(crate) fn reap(&mut self) {
        loop {
            match sys::reap() {
                // What is still there belongs to the running job.
                Reaped::NoChildren | Reaped::NoneEnded => return,
                Reaped::Ended(child) => {
                    if self.running.as_ref().is_none_or(|r| r.pid != child.pid) {
                        continue;
                    }
                    // What it said before its end is heard first.
                    self.hear_start();
                    self.hear_nest();
                    if self.running.as_ref().is_some_and(|r| r.starting.is_some()) {
                        self.end_unborn();
                    } else if let Some(running) = self.running.take() {
                        self.ended(running, child.exit);
                    }
                }
            }
        }
    }

    /// The job is over when its first process is; what it left behind goes too.
    pub(crate) fn clear_away(&mut self, running: &Running) {
        self.measuring = None;
        let looks = self.looks();
        if !leftovers::kill_children_but(&looks) {
            self.stuck = Some("processes of a job are stuck in the kernel (a dead file system?)".to_owned());
        }
        if let Some(group) = self.group.filter(|_| running.suspended) {
            let _ = group.thaw();
        }
    }

    /// A nest that ends by itself without saying how its job did has failed it.
    fn nest_failed(&mut self, running: Running) {
        self.clear_away(&running);
        self.empty_scratch();
        let job = running.job.id;
        if let Some(why) = running.evicted {
            self.report_evicted(job, why);
        } else {
            let reason = "the process that watches over it has failed (starter.log may say more)";
            self.report_unready(job, reason.to_owned());
        }
    }

    pub(crate) fn ended(&mut self, mut running: Running, mut exit: Exit) {
        running.pid = 0;
        if let Some(nest) = &running.nest {
            self.forget_images();
            match nest.exit {
                Some(last) => exit = last,
                // It was killed, and the job with it.
                None if exit.signal.is_some() && (nest.started || running.evicted.is_some()) => {}
                None => return self.nest_failed(running),
            }
        }
        exit.wall_us = sys::mono_us().saturating_sub(running.started_us);
        self.clear_away(&running);
        self.lift_limit(&mut running, exit.code == Some(0));
        if let Some(why) = self.lack_of_room(&mut running, &exit) {
            running.evicted = Some(why);
            return self.over(running, exit);
        }
        if let Some(running) = self.take_checkpoint(running, &exit) {
            self.note_missed(&running);
            self.finish(running, exit);
        }
    }

    /// The job is over.
    pub(crate) fn over(&mut self, running: Running, exit: Exit) {
        self.empty_scratch();
        let (job, ended) = (running.job.id, running.started.plus(exit.wall_us / 1000));
        match running.evicted {
            Some(why) => self.report_evicted(job, why),
            None => self.report_at(ended, Happening::Exited(Exited { job, exit })),
        }
    }
}
