//! People who look into the running job: each visit is served by a process of its own with the rights of the job's owner and nothing
//! more, where the job lives. Bytes go past the starter, between that process and the agent. The job can stop or kill whoever has its
//! rights, so that a guard (`guard`) stands between and ends the visit with its connection.
//!
//! Whoever shows a file (`look`) may outlive the job by the moment that it takes to show the last of it; a command (`shell`) ends with
//! the job's process.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use model::visit::{Ended, Kind};

use crate::chore::{Chore, Doer};
use crate::run::{Starter, short_path};
use crate::sys;
use crate::terminal::Surroundings;
use crate::wire::Visit;
use crate::{guard, look, shell};

/// Visits to one job at a time.
const MOST: usize = 16;
/// How long a starter that ends waits for what is still to be shown.
const LAST_US: u64 = 500_000;

/// A visit: its guard, and below that whoever serves it.
pub(crate) struct Visitor {
    chore: Chore,
    /// Tells one who shows a file, by being closed, that the job is over. Absent for a command.
    job_lives: Option<OwnedFd>,
    shows: bool,
}

impl Starter<'_> {
    /// Somebody visits the running job.
    pub(crate) fn visit(&mut self, visit: &Visit) {
        let Ok(mut stream) = connect(&self.dir, &visit.socket) else { return };
        self.forget_visitors();
        if let Err(why) = self.begin_visit(&stream, visit) {
            let mut frame = Vec::new();
            model::visit::put(Kind::Ended, &Ended::Failed(why).to_bytes(), &mut frame);
            let _ = stream.write_all(&frame);
        }
    }

    fn begin_visit(&mut self, stream: &UnixStream, visit: &Visit) -> Result<(), String> {
        let here = self.running.as_ref().filter(|r| r.job.id == visit.job && r.starting.is_none());
        let running = here.ok_or("the job does not run at the moment")?;
        let (is_there, wants_shell) = (running.pid != 0, visit.want.shell.is_some());
        if wants_shell && !is_there {
            return Err("the job's process does not run at the moment".to_owned());
        }
        if self.visitors.len() >= MOST {
            return Err(format!("{MOST} people look into this job already"));
        }
        let fail = |e: std::io::Error| format!("the machine cannot serve visits: {e}");
        let nest = running.nest.as_ref().filter(|_| is_there);
        let place = nest.map(|nest| Surroundings::of(nest.pid, wants_shell)).transpose().map_err(fail)?;
        let (ended, job_lives) = sys::pipe().map_err(fail)?;
        let (job, marker) = (running.job.clone(), self.spawner.marker().to_vec());
        let theirs = stream.try_clone().map_err(fail)?;
        let chore = self.beside_job(|_| {
            let keep = [theirs.as_fd(), ended.as_fd()];
            Chore::begin_in(place.as_ref(), Doer::User(None), &keep, || {
                let served = guard::keep(job.identity.as_ref(), &theirs, &keep, || {
                    let stream = theirs.try_clone()?;
                    match &visit.want.shell {
                        Some(wanted) => shell::serve(stream, &job, wanted, &marker),
                        None => look::serve(stream, &job, &visit.want, &ended),
                    }
                });
                served.map(|()| Vec::new())
            })
        });
        let chore = chore.map_err(fail)?;
        self.visitors.push(Visitor { chore, job_lives: Some(job_lives), shows: !wants_shell });
        Ok(())
    }

    /// Forgets those who are gone.
    fn forget_visitors(&mut self) {
        self.visitors.retain_mut(|visitor| visitor.chore.outcome().is_none());
    }

    /// The processes that show files.
    pub(crate) fn looks(&mut self) -> Vec<i32> {
        self.forget_visitors();
        self.visitors.iter().filter(|v| v.shows).map(|v| v.chore.pid()).collect()
    }

    /// The job is over: whoever shows a file shows the last of it and ends.
    pub(crate) fn end_looks(&mut self) {
        for visitor in &mut self.visitors {
            visitor.job_lives = None;
        }
    }

    /// Waits a moment for what is still to be shown.
    pub(crate) fn wait_for_looks(&mut self) {
        let deadline = sys::mono_us() + LAST_US;
        while !self.looks().is_empty() && sys::mono_us() < deadline {
            let shown = self.visitors.iter().find(|v| v.shows);
            let Some(visitor) = shown else { return };
            let left_ms = deadline.saturating_sub(sys::mono_us()).div_ceil(1000) as i32;
            let _ = sys::poll(&mut [visitor.chore.watch()], left_ms);
        }
    }
}

/// Connects with a socket in a directory with a long name.
fn connect(dir: &Path, name: &str) -> std::io::Result<UnixStream> {
    let (_dir, short) = short_path(dir, name)?;
    UnixStream::connect(short)
}
