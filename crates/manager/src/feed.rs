//! Subscribers: each replays the journal from a position and then follows it, at its own pace.
//!
//! What was committed lately is in memory once, for all who follow. Who is further behind reads from disk, a little at a time, and
//! has no more of it in memory than that; so have all when something large was committed.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use journal::{Positioned, Reader};
use model::event::Kind;
use tokio::sync::{broadcast, mpsc};

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// The same for one of many who may be slow: so much of it is in memory as long as nobody takes it.
pub(crate) const SMALL_CHUNK: usize = 64;
/// Batches that a subscriber may be behind before it reads from disk again; kept in memory, so not many.
const LIVE_BATCHES: usize = 64;
/// Bytes of tables of jobs beyond which a batch is not kept in memory, nor more read from disk at a time.
const HEAVY_BYTES: usize = 1 << 20;

/// Committed events that follow each other without a gap. Batches are shared between subscribers, not copied.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<model::Event>,
    /// As text for people, once somebody wanted that.
    pub(crate) lines: OnceLock<Vec<Bytes>>,
}

/// The publishing side.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    live: broadcast::Sender<Arc<Batch>>,
    journal_dir: Arc<PathBuf>,
}

/// About how much memory an event takes beyond what all take.
fn weight(event: &model::Event) -> usize {
    let Some(Kind::ClusterSubmitted(submitted)) = &event.kind else { return 0 };
    let template = &submitted.template;
    let columns = template.columns.iter().map(|c| c.text.len() + 4 * c.ends.len()).sum::<usize>();
    let shared = template.shared.iter().map(|a| a.name.len() + a.expr.len()).sum::<usize>();
    columns + shared + 64 * template.varying.iter().map(|v| v.pieces.len()).sum::<usize>()
}

impl Batch {
    pub(crate) fn new(first: u64, events: Vec<model::Event>) -> Self {
        Self { first, events, lines: OnceLock::new() }
    }

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
        let heavy = batch.events.iter().map(weight).sum::<usize>() > HEAVY_BYTES;
        // A batch without events begins after a gap, which everybody reads from disk.
        let batch = if heavy { Batch::new(batch.end(), Vec::new()) } else { batch };
        // Nobody listening is fine.
        let _ = self.live.send(Arc::new(batch));
    }

    /// Everything from a position on, a batch whenever the next one is asked for; from disk about `chunk` events at a time.
    pub(crate) fn follow(&self, from: u64, goes_on: bool, chunk: usize) -> Follower {
        Follower {
            // Before anything is read: what is committed in between arrives twice rather than never.
            live: self.live.subscribe(),
            journal_dir: self.journal_dir.clone(),
            reader: None,
            next: from.max(1),
            behind: true,
            goes_on,
            chunk,
        }
    }

    /// Everything from a position on; ends at the present unless it is to follow.
    pub(crate) fn subscribe(&self, from: u64, goes_on: bool) -> Subscription {
        let (out, subscription) = mpsc::channel(16);
        let mut follower = self.follow(from, goes_on, CHUNK);
        tokio::spawn(async move {
            loop {
                let batch = tokio::select! {
                    batch = follower.next() => batch,
                    () = out.closed() => return,
                };
                let Some(batch) = batch.transpose() else { return };
                let failed = batch.is_err();
                if out.send(batch).await.is_err() || failed {
                    return;
                }
            }
        });
        subscription
    }
}

/// Somebody who reads on.
#[derive(Debug)]
pub(crate) struct Follower {
    live: broadcast::Receiver<Arc<Batch>>,
    journal_dir: Arc<PathBuf>,
    reader: Option<Reader>,
    next: u64,
    /// What comes next is on disk.
    behind: bool,
    goes_on: bool,
    chunk: usize,
}

impl Follower {
    /// The next batch; `None` at the end. Whoever stops waiting loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<Batch>>, journal::Error> {
        loop {
            if self.behind {
                if let Some(batch) = self.read().await? {
                    self.next = batch.end();
                    return Ok(Some(Arc::new(batch)));
                }
                if !self.goes_on {
                    return Ok(None);
                }
                // Who is up to date may be so for days: no file is kept open for that.
                (self.behind, self.reader) = (false, None);
            }
            match self.live.recv().await {
                Ok(batch) if batch.first > self.next => self.behind = true, // a gap: the disk has it
                Ok(batch) if batch.end() <= self.next => {}                 // read from disk already
                Ok(batch) => {
                    self.next = batch.end();
                    return Ok(Some(batch));
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// Lets go of what reading from disk needs, as long as nobody takes what was read.
    pub(crate) fn rest(&mut self) {
        self.reader = None;
    }

    async fn read(&mut self) -> Result<Option<Batch>, journal::Error> {
        let (reader, dir) = (self.reader.take(), self.journal_dir.clone());
        let (next, chunk) = (self.next, self.chunk);
        let done = tokio::task::spawn_blocking(move || {
            let mut reader = match reader {
                Some(reader) => reader,
                None => Reader::open(&dir)?,
            };
            let events = read_some(&mut reader, next, chunk)?;
            Ok((reader, events))
        });
        // The closure does not panic, and blocking tasks are not cancelled once they run.
        let (reader, events) = done.await.unwrap_or_else(|_| unreachable!("reading does not panic"))?;
        self.reader = Some(reader);
        let first = events.first().map(|(position, _)| *position);
        Ok(first.map(|first| Batch::new(first, events.into_iter().map(|(_, event)| event).collect())))
    }
}

/// Events from a position on, until they are many or heavy.
fn read_some(reader: &mut Reader, from: u64, chunk: usize) -> Result<Vec<Positioned>, journal::Error> {
    let (mut found, mut weighs) = (Vec::new(), 0);
    let mut next = from;
    while found.len() < chunk && weighs < HEAVY_BYTES {
        let mut more = reader.read(next, 1)?;
        let Some((last, _)) = more.last() else { break };
        next = last + 1;
        weighs += more.iter().map(|(_, event)| weight(event)).sum::<usize>();
        found.append(&mut more);
    }
    Ok(found)
}
