//! Subscribers: each replays the journal from a position and then follows it, at its own pace.
//!
//! What was committed lately is in memory once, for all who follow. Who is further behind reads from disk, a little at a time, and
//! has no more of it in memory than that; so have all when something large was committed.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use journal::{Positioned, Reader};
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};

use crate::damage::Damage;

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// The same for one of many who may be slow: so much of it is in memory as long as nobody takes it.
pub(crate) const SMALL_CHUNK: usize = 64;
/// Batches that a subscriber may be behind before it reads from disk again; kept in memory, so not many.
const LIVE_BATCHES: usize = 64;
/// Bytes of events beyond which a batch is not kept in memory, nor more read from disk at a time.
const HEAVY_BYTES: usize = 1 << 20;
/// KiB of events that a subscriber may have in hand; one batch, if that is larger.
const IN_HAND_KIB: u32 = 4 << 10;
/// What is taken of it before it is known how large the next batch is.
const AT_LEAST_KIB: u32 = 64;

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
    damage: Arc<Damage>,
    /// Position of the last event that is on disk.
    head: Arc<AtomicU64>,
}

/// A batch in the hands of a subscriber, who gets no more than so many bytes of them at a time.
#[derive(Debug)]
pub(crate) struct Handed {
    batch: Arc<Batch>,
    _room: OwnedSemaphorePermit,
}

impl Deref for Handed {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

/// What somebody who reads does about a damaged place in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtDamage {
    End,
    GoBehind,
}

impl Batch {
    pub(crate) fn new(first: u64, events: Vec<model::Event>) -> Self {
        Self { first, events, lines: OnceLock::new() }
    }

    /// The events from a position on.
    pub(crate) fn from(&self, next: u64) -> impl Iterator<Item = (u64, &model::Event)> {
        (self.first..).zip(&self.events).filter(move |(position, _)| *position >= next)
    }

    /// About how much memory its events take.
    fn bytes(&self) -> usize {
        self.events.iter().map(model::Event::encoded_len).sum()
    }

    /// The position after its last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

/// What a subscriber gets: batches in order without gaps, or the error that ends it. The first may begin before the
/// position asked for: see [`Batch::from`].
pub(crate) type Subscription = mpsc::Receiver<Result<Handed, journal::Error>>;

impl Feed {
    pub(crate) fn new(journal_dir: PathBuf, damage: Arc<Damage>, head: u64) -> Self {
        let (live, journal_dir) = (broadcast::channel(LIVE_BATCHES).0, Arc::new(journal_dir));
        Self { live, journal_dir, damage, head: Arc::new(AtomicU64::new(head)) }
    }

    /// Position of the last event that is on disk.
    pub(crate) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Damage to the journal that somebody has met, in words.
    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.told()
    }

    pub(crate) fn publish(&self, batch: Batch) {
        // A batch without events begins after a gap, which everybody reads from disk.
        let batch = if batch.bytes() > HEAVY_BYTES { Batch::new(batch.end(), Vec::new()) } else { batch };
        self.head.store(batch.end() - 1, Ordering::Release);
        // Nobody listening is fine.
        let _ = self.live.send(Arc::new(batch));
    }

    /// Everything from a position on, a batch whenever the next one is asked for; from disk about `chunk` events at a time. A
    /// damaged place ends it.
    pub(crate) fn follow(&self, from: u64, goes_on: bool, chunk: usize) -> Follower {
        self.follow_with(from, goes_on, chunk, AtDamage::End)
    }

    fn follow_with(&self, from: u64, goes_on: bool, chunk: usize, at_damage: AtDamage) -> Follower {
        Follower {
            // Before anything is read: what is committed in between arrives twice rather than never.
            live: self.live.subscribe(),
            journal_dir: self.journal_dir.clone(),
            damage: self.damage.clone(),
            reader: None,
            next: from.max(1),
            behind: true,
            goes_on,
            chunk,
            at_damage,
        }
    }

    /// Everything from a position on; ends at the present unless it is to follow. For those who can go on without some of it:
    /// what is damaged is to them as what was forgotten, and the error says from where on there is more.
    pub(crate) fn subscribe(&self, from: u64, goes_on: bool) -> Subscription {
        let (out, subscription) = mpsc::channel(16);
        let follower = self.follow_with(from, goes_on, CHUNK, AtDamage::GoBehind);
        tokio::spawn(async move {
            tokio::select! {
                () = pump(follower, &out) => {}
                () = out.closed() => {}
            }
        });
        subscription
    }
}

/// Hands batches over as long as the subscriber has room for them: nothing is read as long as its hands are full.
async fn pump(mut follower: Follower, out: &mpsc::Sender<Result<Handed, journal::Error>>) {
    let room = Arc::new(Semaphore::new(IN_HAND_KIB as usize));
    loop {
        let Ok(mut taken) = room.clone().acquire_many_owned(AT_LEAST_KIB).await else { return };
        let batch = match follower.next().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return,
            Err(error) => {
                let _ = out.send(Err(error)).await;
                return;
            }
        };
        let kib = u32::try_from(batch.bytes() >> 10).unwrap_or(u32::MAX).clamp(AT_LEAST_KIB, IN_HAND_KIB);
        let Ok(more) = room.clone().acquire_many_owned(kib - AT_LEAST_KIB).await else { return };
        taken.merge(more);
        if out.send(Ok(Handed { batch, _room: taken })).await.is_err() {
            return;
        }
    }
}

/// Somebody who reads on.
#[derive(Debug)]
pub(crate) struct Follower {
    live: broadcast::Receiver<Arc<Batch>>,
    journal_dir: Arc<PathBuf>,
    damage: Arc<Damage>,
    reader: Option<Reader>,
    next: u64,
    /// What comes next is on disk.
    behind: bool,
    goes_on: bool,
    chunk: usize,
    at_damage: AtDamage,
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
        let (next, chunk, at_damage) = (self.next, self.chunk, self.at_damage);
        let damage = self.damage.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut reader = match reader {
                Some(reader) => reader,
                None => Reader::open(&dir)?,
            };
            match read_some(&mut reader, next, chunk) {
                Ok(events) => Ok((reader, events)),
                Err(error) => Err(explain(error, next, &mut reader, &damage, at_damage)),
            }
        });
        // The closure does not panic, and blocking tasks are not cancelled once they run.
        let (reader, events) = done.await.unwrap_or_else(|_| unreachable!("reading does not panic"))?;
        self.reader = Some(reader);
        let first = events.first().map(|(position, _)| *position);
        Ok(first.map(|first| Batch::new(first, events.into_iter().map(|(_, event)| event).collect())))
    }
}

/// Tells the manager what could not be read, and makes of it what whoever reads understands.
fn explain(
    error: journal::Error,
    next: u64,
    reader: &mut Reader,
    damage: &Damage,
    at_damage: AtDamage,
) -> journal::Error {
    let is_damage = matches!(error, journal::Error::Damaged { .. });
    let behind = is_damage.then(|| reader.behind_damage(next).ok().flatten()).flatten();
    let behind = behind.filter(|behind| *behind > next);
    damage.note(&error, behind.map(|behind| (next, behind - 1)));
    match (at_damage, behind) {
        (AtDamage::GoBehind, Some(oldest)) => journal::Error::Forgotten { asked: next, oldest },
        _ => error,
    }
}

/// Events from a position on, until they are many or heavy.
fn read_some(reader: &mut Reader, from: u64, chunk: usize) -> Result<Vec<Positioned>, journal::Error> {
    let (mut found, mut weighs) = (Vec::new(), 0);
    let mut next = from;
    while found.len() < chunk && weighs < HEAVY_BYTES {
        let mut more = match reader.read(next, 1) {
            // What comes before it is handed out first.
            Err(_) if !found.is_empty() => break,
            more => more?,
        };
        let Some((last, _)) = more.last() else { break };
        next = last + 1;
        weighs += more.iter().map(|(_, event)| event.encoded_len()).sum::<usize>();
        found.append(&mut more);
    }
    Ok(found)
}
