//! The one writer.

use std::fs::File;
use std::path::{Path, PathBuf};

use model::Event;

use crate::head::{self, HeadFile, Known};
use crate::hints::{Hint, Hints};
use crate::manifest::{self, Manifest, Stamp};
use crate::record::{self, Link};
use crate::segment::{self, Active, Mark, RECORDS, Stop, Walk};
use crate::witness::{self, Witness};
use crate::{Error, Reader, files, hints, salvage, snapshot};

/// The journal of earlier versions, beside ours.
const OLDER: &str = "journal.db";
const LOCK: &str = "lock";
/// Snapshots that are kept: the newest, and one to go back to if it is damaged.
const SNAPSHOTS: usize = 2;

/// What a new leader finds.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The newest snapshot: the position it includes, and its bytes.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// Position of the last committed event; 0 for an empty journal.
    pub head: u64,
    /// The epoch this writer now holds.
    pub epoch: u64,
    /// What was seen of this journal before, when it is older than that: it was put back to an earlier day.
    pub put_back: Option<Witness>,
}

/// How large things may become.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes after which a segment is followed by a new one. What is forgotten is forgotten by the segment.
    pub segment_bytes: u64,
    /// Bytes of segments that are kept, beyond what recovery needs.
    pub kept_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, kept_bytes: 16 << 30 }
    }
}

/// The one writer.
#[derive(Debug)]
pub struct Journal {
    manager: PathBuf,
    witness: Witness,
    directory: PathBuf,
    sizes: Sizes,
    manifest: Manifest,
    stamp: Stamp,
    active: Active,
    hints: Hints,
    head: HeadFile,
    /// Bytes of records behind the newest snapshot.
    to_replay: u64,
    _lock: File,
}

impl Journal {
    /// Opens (or makes) the journal in a manager's directory and takes leadership: every older writer is fenced from here on.
    pub fn open(manager: &Path) -> Result<(Self, Recovery), Error> {
        Self::open_sized(manager, Sizes::default())
    }

    /// The same with other sizes.
    pub fn open_sized(manager: &Path, sizes: Sizes) -> Result<(Self, Recovery), Error> {
        let directory = crate::directory(manager);
        let older = manager.join(OLDER);
        if older.exists() && !directory.exists() {
            return Err(Error::Older { path: older });
        }
        refuse_if_gone(manager, &directory)?;
        std::fs::create_dir_all(&directory).map_err(|e| Error::of_write("cannot make", &directory, e))?;
        let lock = take_lock(&directory)?;
        let mut manifest = match Manifest::load(&directory)? {
            Some((manifest, _)) => manifest,
            None => begin(&directory)?,
        };
        let known = check_manifest(&directory, &manifest)?;
        let (seen, left_by) = (Witness::read(manager), manifest.epoch);
        manifest.epoch += 1;
        let newest = manifest.segments.len() - 1;
        for pair in manifest.segments.windows(2) {
            check_sealed(&directory, manifest.id, pair[0], pair[1])?;
        }
        let (active, hints) = recover(&directory, &manifest, manifest.segments[newest], known)?;
        manifest.reached = active.link();
        let head_file = HeadFile::open(&directory, manifest.id, active.mark(), manifest.epoch)?;
        manifest::own_version().clone_into(&mut manifest.version);
        // Leadership is taken with the manifest: from here on an older writer finds that it is not its own.
        let stamp = manifest.save(&directory)?;
        head_file.note_lead(manifest.epoch)?;
        let snapshot = match manifest.snapshots.last() {
            Some(position) => Some((*position, snapshot::load(&directory, manifest.id, *position)?)),
            None => None,
        };
        // A salvage that was interrupted before the journal was put back from elsewhere: to be finished it would have to be this one's.
        let _ = std::fs::remove_dir_all(manager.join(salvage::SALVAGED));
        let next = active.link().next;
        let witness = Witness { epoch: manifest.epoch, next, ended: false };
        // Who cannot write has what was written before; the first time there must be one.
        match witness.write(manager) {
            Err(error) if seen.is_none() => return Err(error),
            _ => {}
        }
        let head = next - 1;
        check_snapshot(&directory, &manifest, snapshot.as_ref().map(|(p, _)| *p), head)?;
        let to_replay = bytes_behind(&directory, &manifest, snapshot.as_ref().map_or(0, |(p, _)| *p));
        let put_back = seen.filter(|seen| seen.contradicts(left_by, next));
        let recovery = Recovery { snapshot, head, epoch: manifest.epoch, put_back };
        let journal = Self {
            manager: manager.to_owned(),
            witness,
            directory,
            sizes,
            manifest,
            stamp,
            active,
            hints,
            head: head_file,
            to_replay,
            _lock: lock,
        };
        Ok((journal, recovery))
    }

    /// Appends a batch durably and returns the position of its first event. On an error that may pass nothing was written.
    pub fn append(&mut self, events: &[Event]) -> Result<u64, Error> {
        let link = self.active.link();
        if events.is_empty() {
            return Ok(link.next);
        }
        self.check_leadership()?;
        self.head.settle(self.active.mark())?;
        let too_large = || Error::TooLarge { events: events.len(), limit: record::LARGEST };
        let (head, bytes) = record::encode(link, events).ok_or_else(too_large)?;
        let end = self.active.end();
        if end > RECORDS && end + bytes.len() as u64 > self.sizes.segment_bytes {
            self.begin_segment()?;
        }
        let offset = self.active.end();
        self.active.append(&head, &bytes)?;
        self.to_replay += bytes.len() as u64;
        self.head.note(self.active.mark());
        self.hints.note(Hint { first: head.first, offset });
        Ok(head.first)
    }

    /// Writes and syncs something that is not an event: succeeds when events could be written again.
    pub fn probe(&mut self) -> Result<(), Error> {
        self.check_leadership()?;
        self.head.settle(self.active.mark())?;
        self.active.probe()
    }

    /// Stores a snapshot of the state after the event at `position`; the newest before it is kept, older ones are dropped.
    pub fn save_snapshot(&mut self, position: u64, state: &[u8]) -> Result<(), Error> {
        self.check_leadership()?;
        self.restore_head()?;
        self.active.settle()?;
        snapshot::save(&self.directory, self.manifest.id, position, state)?;
        let mut next = self.manifest.clone();
        next.snapshots.retain(|p| *p != position);
        next.snapshots.push(position);
        let dropped: Vec<u64> =
            next.snapshots.drain(..next.snapshots.len().saturating_sub(SNAPSHOTS)).collect();
        self.lead_with(next)?;
        self.to_replay = 0;
        for position in dropped {
            remove(&snapshot::path(&self.directory, position));
        }
        Ok(())
    }

    /// Forgets segments that end before `position`, and the oldest beyond the bytes that are kept. Only what both snapshots
    /// cover may go; readers that come later are told.
    pub fn forget_before(&mut self, position: u64) -> Result<(), Error> {
        let Some(covered) = self.manifest.snapshots.first() else { return Ok(()) };
        let segments = &self.manifest.segments;
        let sizes: Vec<u64> =
            segments.iter().map(|s| file_bytes(&segment::path(&self.directory, s.next))).collect();
        let mut kept: u64 = sizes.iter().sum();
        let mut gone = 0;
        // A segment may go when the next one begins at or before what is to be kept.
        while gone + 1 < segments.len() {
            let next = segments[gone + 1].next;
            let too_old = next <= position || kept > self.sizes.kept_bytes;
            if !too_old || next > covered + 1 {
                break;
            }
            kept -= sizes[gone];
            gone += 1;
        }
        if gone == 0 {
            return Ok(());
        }
        let mut next = self.manifest.clone();
        let dropped: Vec<Link> = next.segments.drain(..gone).collect();
        self.lead_with(next)?;
        for link in dropped {
            let path = segment::path(&self.directory, link.next);
            remove(&hints::path(&path));
            remove(&path);
        }
        Ok(())
    }

    /// Notes beside the journal how far it went, if that is news; not durable, and nobody waits for it.
    pub fn bear_witness(&mut self) {
        // A disk that does not take the head now is asked again; the next snapshot does not go without.
        let _ = self.restore_head();
        self.note_witness(false);
    }

    /// Makes the head again when somebody removed it: without one the next start would be refused, though nothing is lost.
    fn restore_head(&mut self) -> Result<(), Error> {
        if self.head.is_linked() {
            return self.head.settle(self.active.mark());
        }
        self.head =
            HeadFile::open(&self.directory, self.manifest.id, self.active.mark(), self.manifest.epoch)?;
        self.head.note_lead(self.manifest.epoch)
    }

    /// Notes that nothing more will come.
    pub fn bear_last_witness(&mut self) {
        self.note_witness(true);
    }

    fn note_witness(&mut self, ended: bool) {
        let witness = Witness { epoch: self.manifest.epoch, next: self.active.link().next, ended };
        if witness != self.witness && witness.write_quickly(&self.manager).is_ok() {
            self.witness = witness;
        }
    }

    /// Position of the last committed event.
    pub fn head(&self) -> u64 {
        self.active.link().next - 1
    }

    /// Bytes of events that recovery would have to read, besides the snapshot; after an opening, by whole segments.
    pub fn bytes_to_replay(&self) -> u64 {
        self.to_replay
    }

    /// The oldest position that is kept.
    pub fn oldest(&self) -> u64 {
        self.manifest.oldest()
    }

    /// A reader of the same journal.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::open_directory(self.directory.clone())
    }

    /// Whoever wrote the manifest last leads. The lock keeps a second writer of this machine out; this check is for what a
    /// lock cannot see (a file system that knows none, a lock file that was deleted).
    pub fn check_leadership(&mut self) -> Result<(), Error> {
        if !self.active.is_linked() {
            let (path, position) = (self.active.path().to_owned(), self.active.link().next);
            let what = "the file was deleted while a manager wrote to it".to_owned();
            return Err(Error::Damaged { path, position, what });
        }
        if manifest::stamp(&self.directory)? == self.stamp {
            return Ok(());
        }
        let found = Manifest::load(&self.directory)?;
        let theirs = match found {
            // Somebody touched or copied it, changed its mode or gave it another name: it says what we wrote.
            Some((manifest, stamp)) if manifest == self.manifest => {
                self.stamp = stamp;
                return Ok(());
            }
            found => found.map_or(0, |(manifest, _)| manifest.epoch),
        };
        Err(Error::Fenced { path: self.directory.clone(), theirs, ours: self.manifest.epoch })
    }

    fn lead_with(&mut self, mut manifest: Manifest) -> Result<(), Error> {
        manifest.reached = self.active.link();
        self.stamp = manifest.save(&self.directory)?;
        self.manifest = manifest;
        Ok(())
    }

    /// True when an opening would read what stands in a file at a position: all of the newest segment, and whatever is
    /// behind the newest snapshot.
    pub fn needs_at_start(&self, file: &Path, position: u64) -> bool {
        let covered = self.manifest.snapshots.last().copied().unwrap_or(0);
        file == self.active.path() || position > covered
    }

    /// Goes on in a new segment, so that the one before is history as soon as a snapshot covers it. Its first page, which a
    /// start looks at, is written anew: the writer knows what stands there.
    pub fn turn_page(&mut self) -> Result<(), Error> {
        self.check_leadership()?;
        self.active.write_first_page(self.manifest.id)?;
        if self.active.end() == RECORDS { Ok(()) } else { self.begin_segment() }
    }

    fn begin_segment(&mut self) -> Result<(), Error> {
        self.active.settle()?;
        let begin = self.active.link();
        let file = segment::create(&self.directory, self.manifest.id, begin)?;
        let mark = Mark { end: RECORDS, link: begin };
        let active = Active::resume(&self.directory, file, begin, mark, (RECORDS, &[]))?;
        let mut next = self.manifest.clone();
        next.segments.push(begin);
        self.lead_with(next)?;
        self.hints = Hints::create(active.path());
        self.active = active;
        Ok(())
    }
}

pub(crate) fn take_lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let open = files::open_with(File::options().create(true).truncate(false).write(true), &path);
    let lock = open.map_err(|e| Error::of_write("cannot open", &path, e))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Locked { path: directory.to_owned() }),
        Err(std::fs::TryLockError::Error(e)) => Err(Error::of_read("cannot lock", &path, e)),
    }
}

/// Refuses to begin anew where a journal was: whoever lost its files must not find an empty queue in its place.
fn refuse_if_gone(manager: &Path, directory: &Path) -> Result<(), Error> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    };
    let inside = names(directory);
    let is_journal = |name: &String| name == "manifest" || segment::position_of(name).is_some();
    if inside.iter().any(is_journal) {
        return Ok(());
    }
    let left = |name: &&String| *name == "head" || snapshot::position_of(name).is_some();
    let beside = names(manager);
    let traces = |name: &&String| {
        *name == witness::FILE || name.starts_with("journal.damaged-") || *name == "journal.salvaged"
    };
    let evidence = inside.iter().find(left).map(|name| directory.join(name));
    let evidence = evidence.or_else(|| beside.iter().find(traces).map(|name| manager.join(name)));
    match evidence {
        Some(evidence) => Err(Error::Gone { path: directory.to_owned(), evidence }),
        None => Ok(()),
    }
}

/// Makes a journal where there is none.
fn begin(directory: &Path) -> Result<Manifest, Error> {
    // Segments without a manifest: of a first start that was killed, before anything was acknowledged, there is one empty
    // segment at most.
    let mut written = false;
    for (_, path) in segment::list(directory)? {
        written |= segment::has_records(&path)?;
    }
    if written {
        let path = manifest::path(directory);
        return Err(Error::Damaged { path, position: 0, what: "the manifest is missing".into() });
    }
    let manifest = Manifest::new(1)?;
    segment::create(directory, manifest.id, manifest.segments[0])?;
    manifest.save(directory)?;
    files_are_durable(directory)?;
    Ok(manifest)
}

/// The journal's directory itself is durable only when its parent knows of it.
fn files_are_durable(directory: &Path) -> Result<(), Error> {
    crate::files::sync_directory_of(directory)
}

/// Looks whether the manifest is the one that was written last: whoever believed an older one would take what came since
/// for never written, and use its numbers again. Gives what the head says.
fn check_manifest(directory: &Path, manifest: &Manifest) -> Result<Option<Known>, Error> {
    let position = manifest.reached.next;
    let known = head::read(directory, manifest.id)?;
    if let Some(what) = head::find_fault(known, manifest.epoch) {
        return Err(Error::Damaged { path: head::path(directory), position, what });
    }
    let listed = segment::list(directory)?;
    match manifest.find_older(&listed, known)? {
        Some(what) => Err(Error::Damaged { path: manifest::path(directory), position, what }),
        None => Ok(known),
    }
}

/// Looks at the first page of a segment that another one follows: it must be there, and end where the other begins. Its
/// records are read when somebody wants them.
fn check_sealed(directory: &Path, id: [u8; 16], begin: Link, next: Link) -> Result<(), Error> {
    let path = segment::path(directory, begin.next);
    let unreadable = |e| Error::of_read("cannot read", &path, e);
    let file = segment::open(directory, id, begin, false)?;
    let (mark, both) = segment::read_marks(&file, begin).map_err(unreadable)?;
    // One mark alone may be that of the last batch but one.
    let Some(mark) = mark else { return Ok(()) };
    let damaged =
        |what: String| Error::Damaged { path: path.clone(), position: mark.link.next.min(next.next), what };
    if both && mark.link != next {
        return Err(damaged(format!("the segment does not end where the next one begins, at {}", next.next)));
    }
    if file.metadata().map_err(unreadable)?.len() < mark.end {
        return Err(damaged("the file is cut off".to_owned()));
    }
    Ok(())
}

/// Walks over the newest segment: every committed record must be there.
fn recover(
    directory: &Path,
    manifest: &Manifest,
    begin: Link,
    known: Option<Known>,
) -> Result<(Active, Hints), Error> {
    let (id, reached) = (manifest.id, manifest.reached);
    let path = segment::path(directory, begin.next);
    let unreadable = |e| Error::of_read("cannot read", &path, e);
    let file = segment::open(directory, id, begin, true)?;
    let (mark, _) = segment::read_marks(&file, begin).map_err(unreadable)?;
    let damaged = |position, what| Error::Damaged { path: path.clone(), position, what };
    let mark = mark.ok_or_else(|| damaged(begin.next, "neither mark can be read".into()))?;
    let mut walk = Walk::new(file.try_clone().map_err(unreadable)?, RECORDS, Some(begin));
    let mut hints = Hints::create(&path);
    let mut end = Mark { end: RECORDS, link: begin };
    let mut last = (RECORDS, 0);
    // What lies in an older segment was checked with the beginning of this one.
    let mut reaches = reached.next < begin.next || reached == begin;
    let why = loop {
        let offset = walk.offset();
        match walk.next(u64::MAX) {
            Ok(Some((head, _))) => {
                hints.note(Hint { first: head.first, offset });
                last = (offset, head.size());
                end = Mark { end: offset + head.size(), link: head.link() };
                reaches |= end.link == reached;
            }
            Ok(None) => break "nothing is there".to_owned(),
            Err(Stop::Misfit(misfit)) => break misfit.to_string(),
            Err(Stop::Unreadable(error)) => return Err(unreadable(error)),
        }
    };
    if end.link.next < mark.link.next {
        let upto = mark.link.next - 1;
        return Err(damaged(end.link.next, format!("{why}, but events up to {upto} were acknowledged")));
    }
    if end.link.next == mark.link.next && end != mark {
        return Err(damaged(end.link.next, "the mark is not that of the last batch".into()));
    }
    if let Some(Known { link: known, .. }) = known
        && (known.next > end.link.next || (known.next == end.link.next && known.chain != end.link.chain))
    {
        let what = format!("the file is older than the journal, whose last event was at {}", known.next - 1);
        return Err(damaged(end.link.next.min(known.next), what));
    }
    if !reaches {
        let what =
            format!("the file is an older copy: the manifest knows of events up to {}", reached.next - 1);
        return Err(damaged(end.link.next.min(reached.next), what));
    }
    let mut bytes = vec![0; last.1 as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, last.0).map_err(unreadable)?;
    let active = Active::resume(directory, file, begin, end, (last.0, &bytes))?;
    Ok((active, hints))
}

/// Recovery needs every event after the snapshot.
fn check_snapshot(
    directory: &Path,
    manifest: &Manifest,
    snapshot: Option<u64>,
    head: u64,
) -> Result<(), Error> {
    let covered = snapshot.unwrap_or(0);
    let damaged = |position, what: String| Error::Damaged { path: manifest::path(directory), position, what };
    if manifest.oldest() > covered + 1 {
        let what = format!("events up to {} are missing, and no snapshot covers them", manifest.oldest() - 1);
        return Err(damaged(covered + 1, what));
    }
    if covered > head {
        let what = format!("there is a snapshot of position {covered}, but the last event is at {head}");
        return Err(damaged(head + 1, what));
    }
    Ok(())
}

/// Bytes of the segments that have events behind a position.
fn bytes_behind(directory: &Path, manifest: &Manifest, position: u64) -> u64 {
    let first = manifest.segment_of(position + 1).unwrap_or(0);
    manifest.segments[first..].iter().map(|s| file_bytes(&segment::path(directory, s.next))).sum()
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// What cannot be removed now costs space and nothing else: no manifest names it.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_bytes_that_are_no_events_is_a_hole_to_check_and_salvage() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        let event = |time_ms| Event { time_ms, kind: None };
        journal.append(&[event(1), event(2)]).unwrap();
        // Its checksum is right: whoever wrote it, wrote it so.
        let mut bytes = vec![0; record::HEAD];
        bytes.extend_from_slice(&[200, 200, 200]);
        let (head, bytes) = record::close(journal.active.link(), 1, bytes).unwrap();
        journal.active.append(&head, &bytes).unwrap();
        journal.append(&[event(4)]).unwrap();
        drop(journal);
        let report = crate::check(dir.path()).unwrap();
        assert_eq!(report.findings.iter().filter_map(|f| f.lost).collect::<Vec<_>>(), [(3, 3)]);
        let salvaged = crate::salvage(dir.path()).unwrap().unwrap();
        assert_eq!((salvaged.kept, salvaged.left_out), ((1, 2), 1));
        assert!(crate::check(dir.path()).unwrap().findings.is_empty());
        assert!(Journal::open(dir.path()).is_ok());
    }
}
