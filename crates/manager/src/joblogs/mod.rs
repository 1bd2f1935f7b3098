//! Job event logs: readers of the journal like any other, which write what they read where jobs' `log` says.
//!
//! They have a thread of their own, are never waited for by the writer, and may fall behind. The `office` sees to it that every
//! user with logs has a `clerk`, who reads the journal at the pace of that user's disk. `story` turns events into lines; `desk`
//! brings lines into files exactly once; `scribe` is the process with the user's rights that touches the files; `record` is
//! what must be known after a crash.

mod clerk;
mod desk;
mod office;
mod record;
mod scribe;
mod story;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::feed::Feed;
use crate::{Error, Sharing};
use clerk::Room;
use desk::Trouble;
use office::Office;
use record::Kept;
pub(crate) use record::begin;

/// The thread.
#[derive(Debug)]
pub(crate) struct JobLogs {
    finish: watch::Sender<bool>,
    thread: std::thread::JoinHandle<()>,
    troubles: Troubles,
}

/// Which users' logs cannot be written, for whoever asks why nothing is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles(Arc<Mutex<HashMap<Arc<str>, Vec<Trouble>>>>);

impl Troubles {
    fn set(&self, owner: &Arc<str>, now: Vec<Trouble>) {
        let Ok(mut all) = self.0.lock() else { return };
        if now.is_empty() {
            all.remove(owner);
        } else {
            all.insert(owner.clone(), now);
        }
    }

    /// What is wrong with a user's logs, a sentence each.
    pub(crate) fn of(&self, owner: &str) -> Vec<String> {
        let Ok(all) = self.0.lock() else { return Vec::new() };
        let sentence = |t: &Trouble| {
            let Trouble { path, why, waiting, given_up } = t;
            if path.is_empty() {
                return format!("job logs of {owner} are not written: {why}");
            }
            let lost = if *given_up > 0 { format!(", {given_up} were given up") } else { String::new() };
            format!("the job log {path} cannot be written: {why}; {waiting} events wait for it{lost}")
        };
        all.get(owner).into_iter().flatten().map(sentence).collect()
    }
}

impl JobLogs {
    /// Starts writing logs, from where an earlier manager left off.
    pub(crate) fn start(
        feed: Feed,
        dir: PathBuf,
        (oldest, head): (u64, u64),
        sharing: Sharing,
    ) -> Result<Self, Error> {
        let fail = |doing| move |source| Error::System { doing, source };
        let kept = Kept::load(&dir, (oldest, head));
        let kept = kept.map_err(fail("cannot read how far job logs are written"))?;
        if kept.went_back {
            tracing::warn!(
                head,
                "the journal is older than the job logs: it was put back or salvaged; logs may hold events that it does not know, \
                 and go on with its next one"
            );
        }
        let troubles = Troubles::default();
        let private = sharing == Sharing::Private;
        let room = Room { feed, dir, private, main: Handle::current(), troubles: troubles.clone() };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(fail("cannot start the writer of job logs"))?;
        let (finish, finished) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("joblogs".into())
            .spawn(move || {
                runtime.block_on(Office::new(room, kept).run(finished));
                // A disk that does not answer must not hold whoever ends the manager.
                runtime.shutdown_background();
            })
            .map_err(fail("cannot start the writer of job logs"))?;
        Ok(Self { finish, thread, troubles })
    }

    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    /// Writes what is still in the journal, and ends. Nothing may be appended to the journal any more. Logs that are far
    /// behind do not keep the manager from stopping: the next one goes on with them, as after a kill.
    pub(crate) fn finish(self, patience: Duration) {
        let _ = self.finish.send(true);
        let deadline = Instant::now() + patience;
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::warn!("job logs are not up to date yet; the next start goes on with them");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.thread.join().is_err() {
            tracing::error!("the writer of job logs panicked");
        }
    }
}
