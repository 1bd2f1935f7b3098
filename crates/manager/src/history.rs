//! Jobs that have left the queue: a reader of the journal on a thread of its own, which writes rows into `STATE/manager/history/`
//! (crate `history`, decision 079). The writer never waits for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use history::{Files, Limits, Page, Question, Story};
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::Error;
use crate::feed::{Batch, Feed, Follower};

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// Events after which the place in the journal is noted: what is read again after a kill.
const STRIDE: u64 = 50_000;
/// How long a question waits for rows of what has just happened.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a write that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Where rows are, and up to which event.
#[derive(Debug, Clone)]
pub(crate) struct History {
    dir: PathBuf,
    told: watch::Receiver<u64>,
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Keeper(std::thread::JoinHandle<()>);

impl History {
    /// Starts keeping rows, from where an earlier manager left off.
    pub(crate) fn start(
        feed: Feed,
        manager: &Path,
        kept: (u64, u64),
        stopped: watch::Receiver<bool>,
    ) -> Result<(Self, Keeper), Error> {
        let fail = |source| Error::System { doing: "cannot start the keeper of the history", source };
        let dir = manager.join("history");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let (tell, told) = watch::channel(0);
        let place = dir.clone();
        let keep = move || runtime.block_on(keep(feed, &place, kept, &tell, stopped));
        let thread = std::thread::Builder::new().name("history".into()).spawn(keep).map_err(fail)?;
        Ok((Self { dir, told }, Keeper(thread)))
    }

    /// Waits until what was in the journal at the time of the question is told, but not for ever.
    pub(crate) async fn catch_up(&self, head: u64) {
        let mut told = self.told.clone();
        let _ = tokio::time::timeout(PATIENCE, told.wait_for(|told| *told >= head)).await;
    }

    /// Reads a page; blocks.
    pub(crate) fn read(&self, question: &Question) -> Result<Page, history::Error> {
        history::read(&self.dir, question)
    }
}

impl Keeper {
    /// Waits for its end, after it was told to stop.
    pub(crate) fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the keeper of the history panicked");
        }
    }
}

/// Begins anew after every failure, until the manager stops.
async fn keep(
    feed: Feed,
    dir: &Path,
    (mut oldest, head): (u64, u64),
    tell: &watch::Sender<u64>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let head = head.max(feed.head());
        match Files::open(dir, Limits::default(), (oldest, head)) {
            Ok((files, story)) => {
                let from = (story.position() + 1).max(oldest);
                let mut books = Books { files, story, settled: 0, told: Vec::new() };
                tell.send_replace(from - 1);
                let follower = feed.follow(from, true, CHUNK);
                match follow(follower, &mut books, tell, &mut stopped).await {
                    Ok(()) => return,
                    Err(Trouble::Journal(error)) => {
                        let at = books.story.position() + 1;
                        let behind = journal::Reader::open(dir.parent().unwrap_or(dir))
                            .and_then(|mut reader| reader.behind_damage(at));
                        tracing::warn!(%error, "the history lacks what the journal cannot tell");
                        oldest = behind.ok().flatten().unwrap_or(at);
                    }
                    Err(Trouble::Files(error)) => tracing::warn!(%error, "the history cannot be written"),
                }
            }
            Err(error) => tracing::warn!(%error, "the history cannot be opened"),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

enum Trouble {
    Journal(journal::Error),
    Files(history::Error),
}

struct Books {
    files: Files,
    story: Story,
    /// Up to this event the place is noted.
    settled: u64,
    told: Vec<history::Told>,
}

impl Books {
    fn take(&mut self, batch: &Batch) -> Result<(), history::Error> {
        for (position, event) in batch.from(self.story.position() + 1) {
            self.story.take(position, event, &mut self.told);
        }
        self.files.append(&self.told)?;
        self.told.clear();
        if self.files.is_full() || self.story.position() >= self.settled + STRIDE {
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), history::Error> {
        self.settled = self.story.position();
        self.files.settle(&self.story)
    }
}

async fn follow(
    mut follower: Follower,
    books: &mut Books,
    tell: &watch::Sender<u64>,
    stopped: &mut watch::Receiver<bool>,
) -> Result<(), Trouble> {
    books.settled = books.story.position();
    loop {
        let batch = tokio::select! {
            batch = follower.next() => batch.map_err(Trouble::Journal)?,
            _ = stopped.wait_for(|stop| *stop) => None,
        };
        let Some(batch) = batch else { return books.settle().map_err(Trouble::Files) };
        books.take(&batch).map_err(Trouble::Files)?;
        tell.send_replace(batch.end() - 1);
    }
}
