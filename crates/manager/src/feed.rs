//! Subscribers: each replays the journal from a position and then follows it, at its own pace.

use std::path::PathBuf;
use std::sync::Arc;

use journal::{Positioned, Reader};
use tokio::sync::{broadcast, mpsc};

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// Batches that a subscriber may be behind before it reads from disk again; kept in memory, so not many.
const LIVE_BATCHES: usize = 64;

/// Committed events that follow each other without a gap. Batches are shared between subscribers, not copied.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<model::Event>,
}

/// The publishing side.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    live: broadcast::Sender<Arc<Batch>>,
    journal_dir: Arc<PathBuf>,
}

impl Batch {
    /// The events from a position on.
    pub(crate) fn from(&self, next: u64) -> impl Iterator<Item = (u64, &model::Event)> {
        (self.first..).zip(&self.events).filter(move |(position, _)| *position >= next)
    }

    /// The position after its last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

/// What a subscriber gets: batches in order without gaps, or the error that ends it. The first may begin before the
/// position asked for: see [`Batch::from`].
pub(crate) type Subscription = mpsc::Receiver<Result<Arc<Batch>, journal::Error>>;

impl Feed {
    pub(crate) fn new(journal_dir: PathBuf) -> Self {
        Self { live: broadcast::channel(LIVE_BATCHES).0, journal_dir: Arc::new(journal_dir) }
    }

    pub(crate) fn publish(&self, batch: Batch) {
        // Nobody listening is fine.
        let _ = self.live.send(Arc::new(batch));
    }

    /// Everything from a position on; ends at the present unless it is to follow.
    pub(crate) fn subscribe(&self, from: u64, follow: bool) -> Subscription {
        let (out, subscription) = mpsc::channel(16);
        let feed = self.clone();
        tokio::spawn(async move {
            if let Err(error) = feed.pump(from.max(1), follow, &out).await {
                let _ = out.send(Err(error)).await;
            }
        });
        subscription
    }

    async fn pump(
        &self,
        mut next: u64,
        follow: bool,
        out: &mpsc::Sender<Result<Arc<Batch>, journal::Error>>,
    ) -> Result<(), journal::Error> {
        // Subscribing before reading: what is committed in between arrives twice rather than never.
        let mut live = self.live.subscribe();
        let mut reader = Reader::open(&self.journal_dir)?;
        loop {
            loop {
                let (back, events) = read(reader, next).await;
                reader = back;
                let events = events?;
                let Some((first, _)) = events.first() else { break };
                let batch =
                    Batch { first: *first, events: events.into_iter().map(|(_, event)| event).collect() };
                next = batch.end();
                if out.send(Ok(Arc::new(batch))).await.is_err() {
                    return Ok(());
                }
            }
            if !follow {
                return Ok(());
            }
            loop {
                let batch = tokio::select! {
                    batch = live.recv() => batch,
                    () = out.closed() => return Ok(()),
                };
                match batch {
                    Ok(batch) if batch.first > next => break, // a gap: the disk has it
                    Ok(batch) if batch.end() <= next => {}    // read from disk already
                    Ok(batch) => {
                        next = batch.end();
                        if out.send(Ok(batch)).await.is_err() {
                            return Ok(());
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                }
            }
        }
    }
}

async fn read(mut reader: Reader, from: u64) -> (Reader, Result<Vec<Positioned>, journal::Error>) {
    let done = tokio::task::spawn_blocking(move || {
        let events = reader.read(from, CHUNK);
        (reader, events)
    });
    // The closure does not panic, and blocking tasks are not cancelled once they run.
    done.await.unwrap_or_else(|_| unreachable!("reading the journal does not panic"))
}
