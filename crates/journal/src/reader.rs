//! Readers: see committed batches only, never block the writer, may live in another process.

use std::path::{Path, PathBuf};

use crate::manifest::{self, Manifest, Stamp};
use crate::record::{Head, Misfit};
use crate::segment::{self, RECORDS, Stop, Walk};
use crate::{Error, Positioned, check, hints, record, snapshot};

/// Bytes of events after which a reading is enough, however few they are: what is in memory must not grow with the journal.
const ENOUGH_BYTES: usize = 4 << 20;

/// A reader, with a place in the journal from which reading on costs what is read.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    manifest: Manifest,
    stamp: Stamp,
    place: Option<Place>,
}

/// Where a reader is.
#[derive(Debug)]
struct Place {
    /// Which of the manifest's segments.
    segment: usize,
    walk: Walk,
    /// Position of the next event.
    next: u64,
    /// The end of a record that was read in part.
    rest: Option<Rest>,
}

/// What was not decoded yet of a record that was checked.
#[derive(Debug)]
struct Rest {
    head: Head,
    events: Vec<u8>,
}

/// What a reading has found so far.
#[derive(Debug)]
struct Found {
    from: u64,
    enough: usize,
    events: Vec<Positioned>,
    bytes: usize,
}

impl Found {
    /// Records are handed out as a whole unless they are large.
    fn is_large(&self) -> bool {
        self.bytes >= ENOUGH_BYTES
    }

    fn is_enough(&self) -> bool {
        self.events.len() >= self.enough.max(1) || self.is_large()
    }
}

impl Reader {
    /// Opens the journal of a manager's directory for reading.
    pub fn open(manager: &Path) -> Result<Self, Error> {
        Self::open_directory(crate::directory(manager))
    }

    pub(crate) fn open_directory(directory: PathBuf) -> Result<Self, Error> {
        let Some((manifest, stamp)) = Manifest::load(&directory)? else {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Error::of_read("there is no journal in", &directory, source));
        };
        Ok(Self { directory, manifest, stamp, place: None })
    }

    /// Events from position `from` on: whole batches until at least `enough` events are read, or some 4 MiB of them, so the
    /// answer is only empty at the end. An error when events from there on were forgotten. What stands before a damaged
    /// place is handed out before the damage is told.
    pub fn read(&mut self, from: u64, enough: usize) -> Result<Vec<Positioned>, Error> {
        let from = from.max(1);
        let mut found = Found { from, enough, events: Vec::new(), bytes: 0 };
        loop {
            match self.read_on(&mut found) {
                Err(error) => {
                    // A segment that the writer has removed meanwhile is forgotten, not damaged.
                    self.place = None;
                    if !self.refresh()? {
                        return if found.events.is_empty() { Err(error) } else { Ok(found.events) };
                    }
                    found = Found { from, enough, events: Vec::new(), bytes: 0 };
                }
                Ok(()) if found.events.is_empty() && self.refresh()? => {}
                Ok(()) => return Ok(found.events),
            }
        }
    }

    /// The first position at or behind `position` that can be read, when that one is damaged; `None` when nothing follows.
    pub fn behind_damage(&mut self, position: u64) -> Result<Option<u64>, Error> {
        self.refresh()?;
        let Some(segment) = self.manifest.segment_of(position) else {
            return Ok(Some(self.manifest.oldest()));
        };
        check::sound_from(&self.directory, &self.manifest, segment, position)
    }

    /// The newest snapshot.
    pub fn snapshot(&mut self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        self.refresh()?;
        let Some(position) = self.manifest.snapshots.last().copied() else { return Ok(None) };
        Ok(Some((position, snapshot::load(&self.directory, self.manifest.id, position)?)))
    }

    /// Position of the last committed event.
    pub fn head(&mut self) -> Result<u64, Error> {
        self.refresh()?;
        let newest = self.manifest.segments.len() - 1;
        let begin = self.manifest.segments[newest];
        let file = segment::open(&self.directory, self.manifest.id, begin, false)?;
        Ok(self.mark_end(&file, newest)?.1 - 1)
    }

    /// The oldest position that is kept.
    pub fn oldest(&mut self) -> Result<u64, Error> {
        self.refresh()?;
        Ok(self.manifest.oldest())
    }

    /// Looks whether the manifest has changed.
    fn refresh(&mut self) -> Result<bool, Error> {
        if manifest::stamp(&self.directory)? == self.stamp {
            return Ok(false);
        }
        let Some((manifest, stamp)) = Manifest::load(&self.directory)? else { return Ok(false) };
        if let Some(place) = &mut self.place {
            // The same segment has another number when older ones were forgotten.
            let begin = self.manifest.segments[place.segment];
            match manifest.segments.iter().position(|s| *s == begin) {
                Some(segment) => place.segment = segment,
                None => self.place = None,
            }
        }
        (self.manifest, self.stamp) = (manifest, stamp);
        Ok(true)
    }

    fn path(&self, segment: usize) -> PathBuf {
        segment::path(&self.directory, self.manifest.segments[segment].next)
    }

    /// Where a segment's committed records end, and the position after them. Of a segment that another one follows, all
    /// records are committed.
    fn mark_end(&self, file: &std::fs::File, segment: usize) -> Result<(u64, u64), Error> {
        if let Some(next) = self.manifest.segments.get(segment + 1) {
            return Ok((u64::MAX, next.next));
        }
        let begin = self.manifest.segments[segment];
        // Two looks: a mark may be half written at the moment of the first.
        for _ in 0..2 {
            let marks = segment::read_marks(file, begin);
            if let (Some(mark), _) =
                marks.map_err(|e| Error::of_read("cannot read", &self.path(segment), e))?
            {
                return Ok((mark.end, mark.link.next));
            }
        }
        let what = "neither mark can be read".into();
        Err(Error::Damaged { path: self.path(segment), position: begin.next, what })
    }

    fn read_on(&mut self, found: &mut Found) -> Result<(), Error> {
        if self.place.as_ref().is_none_or(|place| place.next != found.from) {
            self.place = Some(self.seek(found.from)?);
        }
        while !found.is_enough() {
            let Some(mut place) = self.place.take() else { return Ok(()) };
            let more = self.read_segment(&mut place, found);
            let next_begins = self.manifest.segments.get(place.segment + 1).map(|link| link.next);
            match (more?, next_begins) {
                (false, Some(begin)) => {
                    let segment = place.segment + 1;
                    if place.next != begin {
                        let what = format!("the segment ends there, but the next one begins at {begin}");
                        return Err(Error::Damaged {
                            path: self.path(place.segment),
                            position: place.next,
                            what,
                        });
                    }
                    self.place = Some(self.enter(segment)?);
                }
                (more, _) => {
                    self.place = Some(place);
                    if !more {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads records of one segment; true when there may be more of it.
    fn read_segment(&self, place: &mut Place, found: &mut Found) -> Result<bool, Error> {
        let (end, stop) = self.mark_end(place.walk.file(), place.segment)?;
        if place.next >= stop {
            return Ok(false);
        }
        let path = self.path(place.segment);
        let damaged = |position, what| Error::Damaged { path: path.clone(), position, what };
        let unreadable = |e| Error::of_read("cannot read", &path, e);
        while place.next < stop {
            if let Some(mut rest) = place.rest.take() {
                let left = self.decode(place.segment, &rest.head, &rest.events, &mut place.next, found)?;
                if left > 0 {
                    rest.events.drain(..rest.events.len() - left);
                    place.rest = Some(rest);
                }
                if found.is_enough() {
                    return Ok(true);
                }
                continue;
            }
            let why = match place.walk.next(end) {
                Ok(Some((head, events))) => {
                    let left = self.decode(place.segment, &head, events, &mut place.next, found)?;
                    if left > 0 {
                        let events = events[events.len() - left..].to_vec();
                        place.rest = Some(Rest { head, events });
                    }
                    place.walk.give_back_memory();
                    if found.is_enough() {
                        return Ok(true);
                    }
                    continue;
                }
                Ok(None) => format!("nothing is there, but events up to {} were acknowledged", stop - 1),
                Err(Stop::Misfit(misfit)) => misfit.to_string(),
                Err(Stop::Unreadable(e)) => return Err(unreadable(e)),
            };
            // Damage before what was asked for is nobody's business here.
            if place.next < found.from
                && let Some(behind) = find_behind(place, stop).map_err(unreadable)?
                && behind.next <= found.from
            {
                *place = behind;
                continue;
            }
            return Err(damaged(place.next, why));
        }
        Ok(false)
    }

    /// Takes events out of a checked record, beginning with the position `next`, until it is enough. Returns how many bytes
    /// are left.
    fn decode(
        &self,
        segment: usize,
        head: &Head,
        mut events: &[u8],
        next: &mut u64,
        found: &mut Found,
    ) -> Result<usize, Error> {
        let damaged = |what: Misfit| Error::Damaged {
            path: self.path(segment),
            position: head.first,
            what: what.to_string(),
        };
        let end = head.link().next;
        let miscounted = |found: u64| Misfit::Count { said: head.count, found: found - head.first };
        *next = (*next).max(head.first);
        while !events.is_empty() && !found.is_large() {
            let before = events.len();
            let event = record::decode_next(&mut events).map_err(damaged)?;
            let position = std::mem::replace(next, *next + 1);
            if *next > end {
                return Err(damaged(miscounted(*next)));
            }
            if event.kind.is_none() {
                let (ours, theirs) = (manifest::own_version(), self.manifest.version.clone());
                return Err(Error::UnknownEvent { path: self.path(segment), position, ours, theirs });
            }
            if position >= found.from {
                found.bytes += before - events.len();
                found.events.push((position, event));
            }
        }
        if events.is_empty() && *next != end {
            return Err(damaged(miscounted(*next)));
        }
        Ok(events.len())
    }

    /// The beginning of a segment.
    fn enter(&self, segment: usize) -> Result<Place, Error> {
        let begin = self.manifest.segments[segment];
        let file = segment::open(&self.directory, self.manifest.id, begin, false)?;
        Ok(Place { segment, walk: Walk::new(file, RECORDS, Some(begin)), next: begin.next, rest: None })
    }

    /// The record that holds a position, or one not far before it.
    fn seek(&self, position: u64) -> Result<Place, Error> {
        let forgotten = || Error::Forgotten { asked: position, oldest: self.manifest.oldest() };
        let segment = self.manifest.segment_of(position).ok_or_else(forgotten)?;
        let start = self.enter(segment)?;
        let Some(hint) = hints::before(&hints::load(&self.path(segment)), position) else { return Ok(start) };
        // Believed only if the record that it names is there.
        let file = segment::open(&self.directory, self.manifest.id, self.manifest.segments[segment], false)?;
        let mut walk = Walk::new(file, hint.offset, None);
        let (end, stop) = self.mark_end(start.walk.file(), segment)?;
        let is_there =
            matches!(walk.next(end), Ok(Some((head, _))) if head.first == hint.first && head.first < stop);
        if !is_there {
            return Ok(start);
        }
        let file = segment::open(&self.directory, self.manifest.id, self.manifest.segments[segment], false)?;
        Ok(Place { segment, walk: Walk::new(file, hint.offset, None), next: hint.first, rest: None })
    }
}

/// The next sound record behind the one at a place.
fn find_behind(place: &Place, stop: u64) -> std::io::Result<Option<Place>> {
    let file = place.walk.file();
    let length = file.metadata()?.len();
    let found = check::search(file, place.walk.offset() + 1, length, (place.next + 1, stop))?;
    let Some((offset, head)) = found else { return Ok(None) };
    let walk = Walk::new(file.try_clone()?, offset, None);
    Ok(Some(Place { segment: place.segment, walk, next: head.first, rest: None }))
}
