//! Subscribers: each replays the journal from a position and then follows it, at its own pace.

use std::path::PathBuf;
use std::sync::Arc;

use journal::{Positioned, Reader};
use tokio::sync::{broadcast, mpsc};

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// Batches that a subscriber may be behind before it reads from disk again; kept in memory, so not many.
const LIVE_BATCHES: usize = 64;

/// A committed batch.
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

/// What a subscriber gets: events in order without gaps, or the error that ends it.
pub(crate) type Subscription = mpsc::Receiver<Result<Positioned, journal::Error>>;

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
        let (out, subscription) = mpsc::channel(256);
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
        out: &mpsc::Sender<Result<Positioned, journal::Error>>,
    ) -> Result<(), journal::Error> {
        // Subscribing before reading: what is committed in between arrives twice rather than never.
        let mut live = self.live.subscribe();
        let mut reader = Reader::open(&self.journal_dir)?;
        loop {
            loop {
                let (back, events) = read(reader, next).await;
                reader = back;
                let events = events?;
                if events.is_empty() {
                    break;
                }
                for (position, event) in events {
                    next = position + 1;
                    if out.send(Ok((position, event))).await.is_err() {
                        return Ok(());
                    }
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
                    Ok(batch) => {
                        for (position, event) in
                            (batch.first..).zip(&batch.events).filter(|(p, _)| *p >= next)
                        {
                            if out.send(Ok((position, event.clone()))).await.is_err() {
                                return Ok(());
                            }
                        }
                        next = next.max(batch.first + batch.events.len() as u64);
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                }
            }
        }
    }
}

async fn read(reader: Reader, from: u64) -> (Reader, Result<Vec<Positioned>, journal::Error>) {
    let done = tokio::task::spawn_blocking(move || {
        let events = reader.read(from, CHUNK);
        (reader, events)
    });
    // The closure does not panic, and blocking tasks are not cancelled once they run.
    done.await.unwrap_or_else(|_| unreachable!("reading the journal does not panic"))
}
