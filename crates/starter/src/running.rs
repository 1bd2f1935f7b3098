//! The running job, from its start to its end: what is done to it, and what it becomes.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use model::report::{CannotStart, Evicted, Exited, Happening, Started, Suspended};
use model::text;

use crate::connection::Connection;
use crate::nest::Nest;
use crate::run::Starter;
use crate::sys::{self, Reaped};
use crate::wire::{Eviction, Job, Use, Word};
use crate::{archive, leftovers, tree};

/// Unsent bytes to the agent beyond which no further job is started: a slow agent must not fill our memory.
const BACKLOG_BYTES: usize = 1 << 20;

/// How long a job has to end by itself when its pool goes away.
const GENTLE_US: u64 = 2_000_000;

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
    /// Where it lives, when it is saved from outside; `pid` is then the nest's.
    pub(crate) nest: Option<Nest>,
}

impl Running {
    /// Sends its process group a signal.
    pub(crate) fn signal(&mut self, signal: i32) {
        match &mut self.nest {
            Some(nest) => nest.signal(signal),
            None => sys::signal(-self.pid, signal),
        }
    }

    /// Kills it; what it started goes when it is collected.
    pub(crate) fn kill(&mut self) {
        if let Some(nest) = &self.nest {
            nest.kill();
        } else {
            sys::signal(-self.pid, libc::SIGKILL);
            sys::signal(self.pid, libc::SIGKILL);
        }
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

    /// Kills a job whose time to end by itself is over.
    pub(crate) fn check_kill(&mut self) {
        let now = sys::mono_us();
        if let Some(running) = self.running.as_mut().filter(|r| r.kill_at_us.is_some_and(|at| now >= at)) {
            running.kill_at_us = None;
            running.kill();
        }
    }

    pub(crate) fn start_next(&mut self) {
        // Alone, we finish what runs and begin nothing: the manager may be giving the rest to others by now.
        let ready = |agent: &Connection| agent.output.len() < BACKLOG_BYTES;
        while self.running.is_none()
            && self.checkpoints.leaving().is_none()
            && self.agent.as_ref().is_some_and(ready)
        {
            let Some(job) = self.waiting.pop_front() else { return };
            let (started_ms, started_us) = (sys::wall_ms(), sys::mono_us());
            if let Err(reason) = self.prepare(&job) {
                self.report_unready(job.id, reason);
                continue;
            }
            let running = |job, pid, nest| Running {
                job,
                pid,
                started_ms,
                started_us,
                kill_at_us: None,
                evicted: None,
                suspended: false,
                asked: false,
                nest,
            };
            if job.nest.is_some() {
                match self.start_nested(&job) {
                    Ok(nest) => self.running = Some(running(job, nest.pid, Some(nest))),
                    Err(reason) => {
                        // What was put back of it must not be there for the next one.
                        self.forget_images();
                        self.empty_scratch();
                        self.report_unready(job.id, reason);
                    }
                }
                continue;
            }
            match self.spawner.spawn(&job) {
                Ok(pid) => {
                    self.tell(Happening::Started(Started { job: job.id, started_ms }));
                    self.running = Some(running(job, pid, None));
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
    pub(crate) fn prepare(&mut self, job: &Job) -> Result<(), String> {
        if let Some(scratch) = &mut self.scratch {
            let made = scratch.prepare(job.identity.as_ref());
            made.map_err(|e| format!("cannot make the job's scratch directory: {e}"))?;
        }
        if !job.restore.is_empty() && job.nest.is_none() {
            let path = Path::new(&job.restore);
            let cwd = Path::new(std::ffi::OsStr::from_bytes(&job.cwd));
            let restored = archive::unpack(path, "", cwd, job.identity.as_ref());
            let _ = std::fs::remove_file(path);
            restored.map_err(|e| format!("cannot put the checkpoint's files in place: {e}"))?;
        }
        Ok(())
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
                    // A nest's last words come before its end.
                    self.hear_nest();
                    if let Some(running) = self.running.take() {
                        self.ended(running, child.exit);
                    }
                }
            }
        }
    }

    /// The job is over when its first process is; what it left behind goes too.
    fn clear_away(&self, running: &Running) {
        leftovers::kill_children();
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

    pub(crate) fn ended(&mut self, running: Running, mut exit: model::event::Exit) {
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
        let Some(running) = self.take_checkpoint(running, &exit) else { return };
        self.empty_scratch();
        let (job, started_ms) = (running.job.id, running.started_ms);
        match running.evicted {
            Some(why) => self.report_evicted(job, why),
            None => self.report(Happening::Exited(Exited { job, exit, started_ms })),
        }
    }
}
