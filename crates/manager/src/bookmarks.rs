//! Bookmarks of `usage` in `STATE/manager/usage/`: where the projection stood after every so many events. A cache of what the
//! journal has, and of sums of what it has no more: what is damaged, of another version or of another journal is removed
//! and made anew. They are made in the background, at half speed, and never by the writer.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use journal::Reader;
use model::Event;
use tokio::sync::{Notify, Semaphore, watch};
use usage::{Bookmark, Head, Projection, SteadyClock};

use crate::damage::Damage;

/// Events from one bookmark to the next; what a question about the present has to read at most.
const STRIDE: u64 = 200_000;
/// Events read at a time.
const CHUNK: usize = 4_096;
/// Kept at most; the most crowded go first.
const KEPT: usize = 128;
const KEPT_BYTES: u64 = 256 << 20;
/// Questions answered at a time; more wait.
const QUESTIONS: usize = 2;
/// A larger file is none of ours.
const FILE_BYTES: u64 = 1 << 30;

/// The bookmarks of a journal.
#[derive(Debug)]
pub(crate) struct Bookmarks {
    pub(crate) journal_dir: PathBuf,
    dir: PathBuf,
    /// Events from one to the next.
    stride: u64,
    due: Notify,
    /// Who answers a question about usage has one of these.
    pub(crate) questions: Arc<Semaphore>,
    /// How far the clock was set, as of a position that somebody has read up to.
    clock: Mutex<Option<(u64, SteadyClock)>>,
    pub(crate) damage: Arc<Damage>,
}

/// A bookmark on disk, as far as its first bytes tell.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    path: PathBuf,
    bytes: u64,
    pub(crate) head: Head,
}

/// What a journal still has: positions of its oldest and newest event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) oldest: u64,
    pub(crate) head: u64,
}

impl Extent {
    pub(crate) fn of(reader: &mut Reader) -> Result<Self, journal::Error> {
        Ok(Self { oldest: reader.oldest()?, head: reader.head()? })
    }

    /// True when a projection after this position can go on.
    fn follows(self, position: u64) -> bool {
        position <= self.head && position + 1 >= self.oldest
    }
}

impl Found {
    /// Reads it; what is no bookmark of this journal is removed.
    pub(crate) fn load(&self, extent: Extent, reader: &mut Reader) -> Option<Projection> {
        let bytes = fs::read(&self.path).ok()?;
        let reason = match Bookmark::read(&bytes) {
            Ok(bookmark) if is_of_journal(&bookmark.head, extent, reader) => {
                return Some(bookmark.projection);
            }
            Ok(_) => "is of another journal".to_owned(),
            Err(unusable) => unusable.to_string(),
        };
        tracing::warn!(path = %self.path.display(), reason, "a bookmark of usage cannot be used; it is made anew");
        remove(&self.path);
        None
    }
}

impl Bookmarks {
    /// Those of the journal in the manager's directory.
    pub(crate) fn of(manager_dir: &Path, damage: Arc<Damage>) -> Self {
        Self {
            journal_dir: manager_dir.to_owned(),
            dir: manager_dir.join("usage"),
            stride: STRIDE,
            due: Notify::new(),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
            clock: Mutex::new(None),
            damage,
        }
    }

    /// Says that enough has happened for another one.
    pub(crate) fn ask_to_extend(&self) {
        self.due.notify_one();
    }

    /// Those that a projection can go on from, oldest first.
    pub(crate) fn usable(&self, extent: Extent) -> Vec<Found> {
        let mut found: Vec<Found> = self.files().filter_map(|path| look_at(&path)).collect();
        found.retain(|f| extent.follows(f.head.position));
        found.sort_by_key(|f| f.head.position);
        found
    }

    /// How far the clock was set by the end of the journal. What somebody has read already is not read again.
    pub(crate) fn clock_at_head(
        &self,
        extent: Extent,
        marks: &[Found],
        reader: &mut Reader,
    ) -> Result<SteadyClock, journal::Error> {
        let newest = marks.last().map(|m| {
            let clock = SteadyClock { last_ms: m.head.steady_ms, stepped_ms: m.head.stepped_ms };
            (m.head.position, clock)
        });
        // Without a bookmark, and without the beginning of the journal, nobody knows from where others counted.
        let counted = newest.is_some() || extent.oldest == 1;
        let known = self.clock.lock().ok().and_then(|known| *known);
        let known = known.filter(|(position, _)| counted && *position <= extent.head);
        let start = newest.into_iter().chain(known).max_by_key(|(position, _)| *position);
        let (mut position, mut clock) = start.unwrap_or((extent.oldest - 1, SteadyClock::default()));
        loop {
            let before = position;
            for (at, event) in read_on(reader, position, extent.head)? {
                clock.take(&event);
                position = at;
            }
            if position == before {
                break;
            }
        }
        if counted && let Ok(mut known) = self.clock.lock() {
            *known = Some((position, clock));
        }
        Ok(clock)
    }

    /// Makes those that are missing up to the end of the journal, as long as `goes_on` says so.
    pub(crate) fn extend(&self, goes_on: &dyn Fn() -> bool) -> Result<(), journal::Error> {
        let mut reader = Reader::open(&self.journal_dir)?;
        let extent = Extent::of(&mut reader)?;
        self.extend_within(extent, &mut reader, goes_on)
    }

    fn extend_within(
        &self,
        extent: Extent,
        reader: &mut Reader,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), journal::Error> {
        self.remove_unusable(extent);
        let newest = self.usable(extent).last().map_or(extent.oldest - 1, |m| m.head.position);
        if extent.head < newest + self.stride {
            return Ok(());
        }
        let start =
            self.usable(extent).into_iter().rev().find_map(|mark| {
                mark.load(extent, reader).map(|projection| (mark.head.position, projection))
            });
        let (mut position, mut projection) = start.unwrap_or((extent.oldest - 1, Projection::default()));
        let mut marked = position;
        let mut before = None;
        while before != Some(position) && goes_on() {
            let started = Instant::now();
            before = Some(position);
            for (at, event) in read_on(reader, position, extent.head)? {
                projection.take(&event);
                position = at;
                if position >= marked + self.stride {
                    self.save(&projection, position, &event);
                    marked = position;
                }
            }
            // Half of one core at most: whoever works for people goes first.
            std::thread::sleep(started.elapsed().max(Duration::from_micros(100)));
        }
        Ok(())
    }

    fn save(&self, projection: &Projection, position: u64, last: &Event) {
        let bytes = Bookmark::write(projection, position, last);
        let path = self.dir.join(format!("{position:020}.mark"));
        let half = self.dir.join("next");
        // Not synced: what a crash leaves of it has the wrong checksum.
        let saved = fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&half, &bytes))
            .and_then(|()| fs::rename(&half, &path));
        if let Err(error) = saved {
            tracing::warn!(path = %path.display(), %error, "no bookmark of usage; questions will take longer");
        }
        self.thin_out();
    }

    /// Removes what is too much, there where the others are closest. The newest has the sums and stays; so does the oldest,
    /// from which on any part of time can be asked about.
    fn thin_out(&self) {
        let mut found: Vec<Found> = self.files().filter_map(|path| look_at(&path)).collect();
        found.sort_by_key(|f| f.head.position);
        while found.len() > KEPT
            || (found.len() > 2 && found.iter().map(|f| f.bytes).sum::<u64>() > KEPT_BYTES)
        {
            let gap = |at: &usize| found[at + 1].head.position - found[at - 1].head.position;
            let Some(at) = (1..found.len() - 1).min_by_key(gap) else { return };
            remove(&found.remove(at).path);
        }
    }

    /// Removes what is no bookmark of this version, and what the journal has gone on from.
    fn remove_unusable(&self, extent: Extent) {
        for path in self.files() {
            if look_at(&path).is_none_or(|found| !extent.follows(found.head.position)) {
                remove(&path);
            }
        }
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "mark"))
    }
}

/// The next events after a position, up to the end.
pub(crate) fn read_on(
    reader: &mut Reader,
    position: u64,
    head: u64,
) -> Result<impl Iterator<Item = (u64, Event)>, journal::Error> {
    let events = if position < head { reader.read(position + 1, CHUNK)? } else { Vec::new() };
    Ok(events.into_iter().take_while(move |(at, _)| *at <= head))
}

fn look_at(path: &Path) -> Option<Found> {
    let mut file = fs::File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut first = [0; Head::BYTES];
    file.read_exact(&mut first).ok()?;
    let head = Head::read(&first).ok()?;
    (bytes <= FILE_BYTES).then(|| Found { path: path.to_owned(), bytes, head })
}

/// The journal has the event that the bookmark ends with, as far as it still has that one.
fn is_of_journal(head: &Head, extent: Extent, reader: &mut Reader) -> bool {
    if head.position < extent.oldest {
        return true;
    }
    let event = reader.read(head.position, 1).ok().and_then(|events| events.into_iter().next());
    event.is_some_and(|(at, event)| at == head.position && usage::fingerprint(&event) == head.fingerprint)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a bookmark of usage");
    }
}

/// Keeps the bookmarks up to date.
pub(crate) async fn keep(bookmarks: Arc<Bookmarks>, mut stopped: watch::Receiver<bool>) {
    loop {
        let (ours, stop) = (bookmarks.clone(), stopped.clone());
        let extended = tokio::task::spawn_blocking(move || ours.extend(&|| !*stop.borrow())).await;
        if let Ok(Err(error)) = extended {
            bookmarks.damage.note(&error, None);
            tracing::warn!(%error, "no bookmarks of usage; questions will take longer");
        }
        tokio::select! {
            () = bookmarks.due.notified() => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests;
