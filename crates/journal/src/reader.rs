//! Readers: see committed batches only, never block the writer, may live in another process.

use std::path::{Path, PathBuf};

use crate::manifest::{self, Manifest, Stamp};
use crate::segment::{self, RECORDS, Stop, Walk};
use crate::{Error, Positioned, hints, record, snapshot};

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
    /// Position of the first event of the next record.
    next: u64,
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

    /// Events from position `from` on: whole batches until at least `enough` events are read, so the answer is only empty at
    /// the end. An error when events from there on were forgotten.
    pub fn read(&mut self, from: u64, enough: usize) -> Result<Vec<Positioned>, Error> {
        let mut found = Vec::new();
        loop {
            match self.read_on(from, enough, &mut found) {
                Err(error) => {
                    // A segment that the writer has removed meanwhile is forgotten, not damaged.
                    self.place = None;
                    if !self.refresh()? {
                        return Err(error);
                    }
                    found.clear();
                }
                Ok(()) if found.is_empty() && self.refresh()? => {}
                Ok(()) => return Ok(found),
            }
        }
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

    fn read_on(&mut self, from: u64, enough: usize, found: &mut Vec<Positioned>) -> Result<(), Error> {
        let from = from.max(1);
        if self.place.as_ref().is_none_or(|place| place.next != from) {
            self.place = Some(self.seek(from)?);
        }
        while found.len() < enough.max(1) {
            let Some(mut place) = self.place.take() else { return Ok(()) };
            let more = self.read_segment(&mut place, from, enough, found);
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
    fn read_segment(
        &self,
        place: &mut Place,
        from: u64,
        enough: usize,
        found: &mut Vec<Positioned>,
    ) -> Result<bool, Error> {
        let (end, stop) = self.mark_end(place.walk.file(), place.segment)?;
        if place.next >= stop {
            return Ok(false);
        }
        let path = self.path(place.segment);
        let damaged = |position, what| Error::Damaged { path: path.clone(), position, what };
        while place.next < stop {
            let (head, events) = match place.walk.next(end) {
                Ok(Some(record)) => record,
                Ok(None) => {
                    return Err(damaged(
                        place.next,
                        format!("nothing is there, but events up to {} were acknowledged", stop - 1),
                    ));
                }
                Err(Stop::Misfit(misfit)) => return Err(damaged(place.next, misfit.to_string())),
                Err(Stop::Unreadable(e)) => return Err(Error::of_read("cannot read", &path, e)),
            };
            let events = record::decode(&head, events).map_err(|e| damaged(head.first, e.to_string()))?;
            place.next = head.link().next;
            for (position, event) in (head.first..).zip(events) {
                if event.kind.is_none() {
                    let (ours, theirs) = (manifest::own_version(), self.manifest.version.clone());
                    return Err(Error::UnknownEvent { path, position, ours, theirs });
                }
                if position >= from {
                    found.push((position, event));
                }
            }
            if found.len() >= enough {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The beginning of a segment.
    fn enter(&self, segment: usize) -> Result<Place, Error> {
        let begin = self.manifest.segments[segment];
        let file = segment::open(&self.directory, self.manifest.id, begin, false)?;
        Ok(Place { segment, walk: Walk::new(file, RECORDS, Some(begin)), next: begin.next })
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
        Ok(Place { segment, walk: Walk::new(file, hint.offset, None), next: hint.first })
    }
}
