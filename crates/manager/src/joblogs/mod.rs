//! Job event logs: a reader of the journal like any other, which writes what it reads where jobs' `log` says.
//!
//! It has a thread of its own, is never waited for by the writer, and may fall behind. `story` turns events into lines;
//! `desk` brings lines into files exactly once.

mod desk;
mod story;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::feed::Feed;
use crate::{Error, Sharing};
use desk::{Desk, Record};
use story::Story;

/// Batches taken together.
const BATCHES: usize = 16;
/// Lines collected before they are written, so that a cluster of a million jobs needs no memory for all of them.
const LINES: usize = 4_096;
/// How long to wait when the journal cannot be read.
const AGAIN: Duration = Duration::from_secs(1);

/// The thread.
#[derive(Debug)]
pub(crate) struct JobLogs {
    finish: watch::Sender<bool>,
    thread: std::thread::JoinHandle<()>,
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
        let record = Record::load(&dir).map_err(fail("cannot read how far job logs are written"))?;
        let mut record = record.unwrap_or_default();
        let from = if record.is_ahead_of(head) {
            tracing::warn!(
                head,
                "the journal is older than the job logs: it was put back or salvaged; logs may hold events that it does not know, \
                 and go on with its next one"
            );
            record.go_back_to(head);
            oldest
        } else {
            record.from.max(1)
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut clerk = Clerk {
            story: Story::new(joblog::Writer::new(TimeZone::system()), host.trim().to_owned()),
            desk: Desk::new(dir, sharing == Sharing::Private, record),
            feed,
            main: Handle::current(),
            next: from,
        };
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(fail("cannot start the writer of job logs"))?;
        let (finish, finished) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("joblogs".into())
            .spawn(move || runtime.block_on(clerk.run(finished)))
            .map_err(fail("cannot start the writer of job logs"))?;
        Ok(Self { finish, thread })
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

struct Clerk {
    story: Story,
    desk: Desk,
    feed: Feed,
    /// Where subscriptions run.
    main: Handle,
    next: u64,
}

/// Why following the journal ended.
enum Ended {
    /// There is no more.
    Over,
    /// It is to be read to its end, and no further.
    Finish,
    /// It could not be read.
    Failed,
}

impl Clerk {
    async fn run(&mut self, mut finished: watch::Receiver<bool>) {
        loop {
            match self.follow(true, &mut finished).await {
                Ended::Over => return,
                Ended::Failed => tokio::time::sleep(AGAIN).await,
                Ended::Finish => {
                    self.follow(false, &mut finished).await;
                    return;
                }
            }
        }
    }

    async fn follow(&mut self, on: bool, finished: &mut watch::Receiver<bool>) -> Ended {
        let mut events = {
            let _main = self.main.enter();
            self.feed.subscribe(self.next, on)
        };
        let mut batches = Vec::new();
        loop {
            let retry = self.desk.next_retry().unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            let got = tokio::select! {
                got = events.recv_many(&mut batches, BATCHES) => Some(got),
                _ = finished.wait_for(|f| *f), if on => return Ended::Finish,
                () = tokio::time::sleep_until(retry.into()) => None,
            };
            for item in batches.drain(..) {
                match item {
                    Ok(batch) => {
                        batch.from(self.next).for_each(|(position, event)| self.take(position, event))
                    }
                    Err(journal::Error::Forgotten { asked, oldest }) => {
                        let lost = oldest - asked;
                        tracing::error!(
                            asked,
                            oldest,
                            "job logs: {lost} events were forgotten before they were written; going on with the oldest"
                        );
                        self.next = oldest;
                        return Ended::Failed;
                    }
                    Err(error) => {
                        tracing::error!(%error, "job logs: cannot read the journal");
                        return Ended::Failed;
                    }
                }
            }
            self.desk.flush();
            if events.is_empty() {
                self.desk.rest();
            }
            if got == Some(0) {
                return Ended::Over;
            }
        }
    }

    fn take(&mut self, position: u64, event: &model::Event) {
        let desk = &mut self.desk;
        self.story.tell(position, event, &mut |line| {
            desk.put(line);
            if desk.waiting() >= LINES {
                desk.flush();
            }
        });
        desk.told(position, self.story.base());
        self.next = position + 1;
    }
}
