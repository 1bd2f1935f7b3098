//! Checkpoints: when a job says that it has saved its work, keep what it saved, and start it again or let it go.
//!
//! A job saves its work by writing its files and exiting with the code that it declared. The files are packed at once,
//! into the claim's directory, so that the job can go on while the agent carries the archive to the store; the manager is
//! told of a checkpoint only when the store has it. A job that must leave the machine waits for that.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use model::event::Exit;
use model::report::{Attempt, Checkpointed, Happening, NotSaved};
use model::text;

use crate::chore::Chore;
use crate::run::Starter;
use crate::running::{Running, Then};
use crate::wire::{Eviction, Packed, Stored, Word};
use crate::{archive, sys};

/// Checkpoints of a claim's jobs on their way to the store.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    dir: PathBuf,
    /// Number of the newest one.
    next: u32,
    waiting: Vec<Packed>,
    /// The job that leaves as soon as its last checkpoint is stored.
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    job: Attempt,
    why: Eviction,
    /// What it has to end when people do not want it any more.
    grace_ms: u64,
    /// Then it leaves without.
    until_us: Option<u64>,
}

impl Checkpoints {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), next: 0, waiting: Vec::new(), leaving: None }
    }

    pub(crate) fn waiting(&self) -> &[Packed] {
        &self.waiting
    }

    /// A file for the next one.
    pub(crate) fn next_path(&mut self) -> PathBuf {
        self.next += 1;
        self.dir.join(format!("checkpoint-{}", self.next))
    }

    /// The job that waits for its checkpoint to be stored.
    pub(crate) fn leaving(&self) -> Option<Attempt> {
        self.leaving.as_ref().map(|leaving| leaving.job)
    }

    /// When it leaves whether or not that is stored.
    pub(crate) fn leaves_at_us(&self) -> Option<u64> {
        self.leaving.as_ref().and_then(|leaving| leaving.until_us)
    }

    /// People do not want the job that leaves any more: its checkpoint has the time that the job itself would have.
    pub(crate) fn hurry(&mut self, now_us: u64) {
        if let Some(leaving) = &mut self.leaving {
            leaving.until_us.get_or_insert(now_us + leaving.grace_ms * 1000);
        }
    }
}

impl Starter<'_> {
    /// Asks the running job for a checkpoint.
    pub(crate) fn ask_for_checkpoint(&mut self) {
        let Some(running) = self.running.as_mut().filter(|r| r.evicted.is_none() && !r.asked) else { return };
        if running.nest.is_some() {
            return self.ask_to_dump();
        }
        let signal = running.job.checkpoint.as_ref().map_or(0, |c| c.signal);
        if signal > 0 {
            running.asked = true;
            running.signal(signal as i32);
        }
    }

    /// Looks at how a job ended. When that was a checkpoint, begins to pack its files; hands back a job that is over.
    pub(crate) fn take_checkpoint(&mut self, mut running: Running, exit: &Exit) -> Option<Running> {
        let Some(plan) = running.job.checkpoint.clone() else { return Some(running) };
        // A job that people stop is over, whatever it says.
        if exit.code != Some(plan.exit_code) || running.is_unwanted() {
            return Some(running);
        }
        let path = self.checkpoints.next_path();
        let cwd = Path::new(OsStr::from_bytes(&running.job.cwd));
        let most = self.checkpoint_bytes;
        let begun = archive::create(&path).and_then(|to| {
            Chore::begin(running.job.identity.as_ref(), &[to.as_fd()], || {
                limit_size(most)?;
                archive::pack_files(cwd, &plan.files, &to).map(|made| made.to_bytes())
            })
        });
        match begun {
            Ok(chore) => running.chore = Some((chore, Then::Keep { path, exit: Box::new(*exit) })),
            Err(error) => {
                self.running = Some(running);
                self.packed(&path, *exit, Err(error));
                return None;
            }
        }
        self.running = Some(running);
        None
    }

    /// What the running job saved is packed, or cannot be: it starts again or leaves.
    pub(crate) fn packed(&mut self, path: &Path, exit: Exit, made: io::Result<archive::Made>) {
        let Some(mut running) = self.running.take() else { return };
        let job = running.job.id;
        if running.is_unwanted() {
            let _ = std::fs::remove_file(path);
            return self.over(running, exit);
        }
        let leaving = running.evicted.is_some();
        match made {
            Ok(made) => self.keep(&mut running, path, made),
            // It saved its work, we could not keep it: it goes on all the same, and the older checkpoint stands.
            Err(error) => {
                let _ = std::fs::remove_file(path);
                self.report_not_saved(job, format!("what it saved cannot be kept: {error}"));
            }
        }
        // One that leaves is over, or waits for its checkpoint to be stored.
        if leaving {
            if running.evicted.is_some() {
                self.over(running, exit);
            }
            return;
        }
        running.asked = false;
        running.suspended = false;
        running.again = true;
        self.running = Some(running);
        self.launch(None);
    }

    /// A checkpoint was packed: the agent carries it to the store. A job that leaves waits for that.
    pub(crate) fn keep(&mut self, running: &mut Running, path: &Path, made: archive::Made) {
        let job = running.job.id;
        let evicted = running.evicted.take();
        let packed = Packed {
            job,
            number: self.checkpoints.next,
            path: path.to_string_lossy().into_owned(),
            sha256: made.sha256,
            bytes: made.bytes,
            leaving: evicted.is_some(),
            platform: running.job.nest.as_ref().map(|n| n.platform.clone()).unwrap_or_default(),
            saving_ms: self.leaving_for_ms().filter(|_| evicted.is_some()).unwrap_or(0),
        };
        let grace_ms = running.job.grace_ms;
        // Whoever is unwanted by now is so from when people said it.
        let until_us = running.kill_at_us.filter(|_| running.stopping);
        self.checkpoints.leaving = evicted.map(|why| Leaving { job, why, grace_ms, until_us });
        self.checkpoints.waiting.push(packed.clone());
        self.say(Word::Packed(packed));
    }

    /// A checkpoint is in the store, or never will be.
    pub(crate) fn stored(&mut self, stored: Stored) {
        let Some(at) = self.checkpoints.waiting.iter().position(|p| p.number == stored.number) else {
            return;
        };
        let packed = self.checkpoints.waiting.remove(at);
        let _ = std::fs::remove_file(&packed.path);
        let Packed { job, sha256, bytes, platform, leaving, saving_ms, .. } = packed;
        if stored.safe {
            let Stored { transfer_ms, cap, .. } = stored;
            let checkpointed = Checkpointed { job, sha256, bytes, transfer_ms, cap, platform, saving_ms };
            self.report(Happening::Checkpointed(checkpointed));
        } else {
            let why = if stored.why.is_empty() { String::new() } else { format!(": {}", stored.why) };
            self.report_not_saved(job, format!("the store did not take it{why}"));
        }
        if leaving {
            self.leave();
        }
    }

    /// Time is up for a job that waits for its checkpoint to be stored.
    pub(crate) fn leave_without_checkpoint(&mut self, why: &str) {
        if let Some(at) = self.checkpoints.waiting.iter().position(|p| p.leaving) {
            let packed = self.checkpoints.waiting.remove(at);
            let _ = std::fs::remove_file(packed.path);
            self.report_not_saved(packed.job, format!("it was not stored: {why}"));
        }
        self.leave();
    }

    /// For people; an older checkpoint, if there is one, stands.
    pub(crate) fn report_not_saved(&mut self, job: Attempt, reason: String) {
        let reason = text::one_line(&reason, model::limits::REASON_BYTES);
        self.report(Happening::NotSaved(NotSaved { job, reason, missed: false }));
    }

    /// A job that declared how it saves its work was asked to leave, and is over without having done so.
    pub(crate) fn note_missed(&mut self, running: &Running) {
        if running.asked_to_leave && running.evicted.is_some() && running.job.checkpoint.is_some() {
            let reason = "it was asked to leave, and left without the checkpoint that it declares".to_owned();
            let job = running.job.id;
            self.report(Happening::NotSaved(NotSaved { job, reason, missed: true }));
        }
    }

    fn leave(&mut self) {
        let Some(Leaving { job, why, .. }) = self.checkpoints.leaving.take() else { return };
        self.empty_scratch();
        self.report_evicted(job, why);
    }
}

/// In a chore: what it writes may be so large.
pub(crate) fn limit_size(bytes: u64) -> io::Result<()> {
    if bytes > 0 {
        // An error instead of the end.
        sys::ignore(libc::SIGXFSZ);
        sys::set_limit(libc::RLIMIT_FSIZE, bytes)?;
    }
    Ok(())
}
