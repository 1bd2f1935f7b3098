//! Subscribers: each replays the journal from a position and then follows it, at its own pace. What is kept in memory for them is
//! counted in bytes, not only in events: a slow one costs some mebibytes, or the one event that is larger than that.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use journal::{Positioned, Reader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};

use crate::damage::Damage;

/// Events read from disk at a time.
const CHUNK: usize = 1_000;
/// Batches that a subscriber may be behind before it reads from disk again; kept in memory, so not many.
const LIVE_BATCHES: usize = 64;
/// A larger batch is announced, and read from disk by whoever wants it.
const LIVE_BYTES: usize = 256 << 10;
/// KiB of events that a subscriber may have in hand; one batch, if that is larger.
const IN_HAND_KIB: u32 = 4 << 10;
/// What is taken of it before it is known how large the next batch is.
const AT_LEAST_KIB: u32 = 64;

/// Committed events that follow each other without a gap. Batches are shared between subscribers, not copied.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<model::Event>,
    bytes: usize,
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

/// What is told to those who follow.
#[derive(Debug, Clone)]
enum News {
    Batch(Arc<Batch>),
    /// There is more on disk.
    OnDisk,
}

/// What a subscriber does about a damaged place in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtDamage {
    End,
    GoBehind,
}

/// The publishing side.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    live: broadcast::Sender<News>,
    journal_dir: Arc<PathBuf>,
    damage: Arc<Damage>,
}

impl Batch {
    pub(crate) fn new(first: u64, events: Vec<model::Event>) -> Self {
        let bytes = events.iter().map(prost::Message::encoded_len).sum();
        Self { first, events, bytes }
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
pub(crate) type Subscription = mpsc::Receiver<Result<Handed, journal::Error>>;

impl Feed {
    pub(crate) fn new(journal_dir: PathBuf, damage: Arc<Damage>) -> Self {
        Self { live: broadcast::channel(LIVE_BATCHES).0, journal_dir: Arc::new(journal_dir), damage }
    }

    /// Damage to the journal that somebody has met, in words.
    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.told()
    }

    pub(crate) fn publish(&self, batch: Batch) {
        let news = if batch.bytes <= LIVE_BYTES { News::Batch(Arc::new(batch)) } else { News::OnDisk };
        // Nobody listening is fine.
        let _ = self.live.send(news);
    }

    /// Everything from a position on; ends at the present unless it is to follow. For those who can go on without some of it:
    /// what is damaged is to them as what was forgotten, and the error says from where on there is more.
    pub(crate) fn subscribe(&self, from: u64, follow: bool) -> Subscription {
        self.subscribe_with(from, follow, AtDamage::GoBehind)
    }

    /// The same for those who want all of it: a damaged place ends it.
    pub(crate) fn subscribe_to_all(&self, from: u64, follow: bool) -> Subscription {
        self.subscribe_with(from, follow, AtDamage::End)
    }

    fn subscribe_with(&self, from: u64, follow: bool, at_damage: AtDamage) -> Subscription {
        let (out, subscription) = mpsc::channel(16);
        let pump = Pump { feed: self.clone(), out, room: Arc::new(Semaphore::new(IN_HAND_KIB as usize)) };
        tokio::spawn(async move {
            if let Err(error) = pump.run(from.max(1), follow, at_damage).await {
                let _ = pump.out.send(Err(error)).await;
            }
        });
        subscription
    }
}

/// Brings batches to one subscriber.
struct Pump {
    feed: Feed,
    out: mpsc::Sender<Result<Handed, journal::Error>>,
    /// KiB of events that may still be handed out.
    room: Arc<Semaphore>,
}

impl Pump {
    async fn run(&self, mut next: u64, follow: bool, at_damage: AtDamage) -> Result<(), journal::Error> {
        // Subscribing before reading: what is committed in between arrives twice rather than never.
        let mut live = self.feed.live.subscribe();
        let mut reader = Reader::open(&self.feed.journal_dir)?;
        loop {
            loop {
                // Nothing is read as long as the subscriber has its hands full.
                let Some(room) = self.wait_for_room(AT_LEAST_KIB).await else { return Ok(()) };
                let (back, events) = read(reader, next).await;
                reader = back;
                let events = match events {
                    Ok(events) => events,
                    Err(error) => return Err(self.explain(error, next, reader, at_damage).await),
                };
                let Some((first, _)) = events.first() else { break };
                let batch = Batch::new(*first, events.into_iter().map(|(_, event)| event).collect());
                next = batch.end();
                if !self.hand_over(Arc::new(batch), room).await {
                    return Ok(());
                }
            }
            if !follow {
                return Ok(());
            }
            loop {
                let news = tokio::select! {
                    news = live.recv() => news,
                    () = self.out.closed() => return Ok(()),
                };
                match news {
                    Ok(News::Batch(batch)) if batch.first > next => break, // a gap: the disk has it
                    Ok(News::Batch(batch)) if batch.end() <= next => {}    // read from disk already
                    Ok(News::Batch(batch)) => {
                        let Some(room) = self.wait_for_room(AT_LEAST_KIB).await else { return Ok(()) };
                        next = batch.end();
                        if !self.hand_over(batch, room).await {
                            return Ok(());
                        }
                    }
                    Ok(News::OnDisk) | Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                }
            }
        }
    }

    /// Waits until the subscriber may have so many KiB more; `None` when it has gone.
    async fn wait_for_room(&self, kib: u32) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            room = self.room.clone().acquire_many_owned(kib) => room.ok(),
            () = self.out.closed() => None,
        }
    }

    /// Hands a batch over as soon as there is room for all of it. False when the subscriber has gone.
    async fn hand_over(&self, batch: Arc<Batch>, mut room: OwnedSemaphorePermit) -> bool {
        let kib = u32::try_from(batch.bytes >> 10).unwrap_or(u32::MAX).clamp(AT_LEAST_KIB, IN_HAND_KIB);
        if kib > AT_LEAST_KIB {
            let Some(more) = self.wait_for_room(kib - AT_LEAST_KIB).await else { return false };
            room.merge(more);
        }
        self.out.send(Ok(Handed { batch, _room: room })).await.is_ok()
    }

    /// Tells the manager what could not be read, and makes of it what the subscriber understands.
    async fn explain(
        &self,
        error: journal::Error,
        next: u64,
        mut reader: Reader,
        at_damage: AtDamage,
    ) -> journal::Error {
        let is_damage = matches!(error, journal::Error::Damaged { .. });
        let behind = tokio::task::spawn_blocking(move || is_damage.then(|| reader.behind_damage(next))).await;
        let behind = behind.ok().flatten().and_then(Result::ok).flatten().filter(|behind| *behind > next);
        self.feed.damage.note(&error, behind.map(|behind| (next, behind - 1)));
        match (at_damage, behind) {
            (AtDamage::GoBehind, Some(oldest)) => journal::Error::Forgotten { asked: next, oldest },
            _ => error,
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
