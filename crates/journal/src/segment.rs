//! A segment: a file of records, with a mark in its first page that says how far they are committed.
//!
//! ```text
//!    0  magic, journal's id, first position, chain value before it, CRC-32 of these
//!  512  mark A     end of the committed records, next position, chain value, CRC-32
//! 1024  mark B     the same; written in turns
//! 4096  records, then zeros
//! ```
//!
//! The mark of a batch is written after the batch is synced and becomes durable with the next batch's sync. So whatever
//! dies, the mark is behind the last acknowledged batch by one at most, and never ahead of it: records that are missing
//! below the mark were lost, and a record above it that does not fit was never acknowledged. Zeros are written ahead of
//! the records, so that a sync writes the records and not also the file's new length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::record::{self, Head, Link, Misfit};
use crate::{Error, files};

const MAGIC: &[u8; 8] = b"UPDSEGM2";
/// Bytes of the head that the checksum covers.
const COVERED: usize = 8 + 16 + 8 + 4;
const MARKS: [u64; 2] = [512, 1024];
const MARK: usize = 24;
/// Where records begin.
pub(crate) const RECORDS: u64 = 4096;
/// Bytes of a segment that are read at a time.
const READ: usize = 256 << 10;
/// Zeros written ahead at a time.
const ZEROS: u64 = 64 << 10;
/// Zeros written at once for a large record.
const MOST_ZEROS: u64 = 16 << 20;
/// Zeros of a new segment, so that a small pool needs little.
const FIRST_ZEROS: u64 = 64 << 10;

/// How far a segment is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Where the next record goes.
    pub(crate) end: u64,
    /// What the next record continues.
    pub(crate) link: Link,
}

/// The file of the segment that begins with a position.
pub(crate) fn path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}.segment"))
}

/// The position that a file's name says, if the file is a segment.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    name.strip_suffix(".segment").filter(|n| n.len() == 20)?.parse().ok()
}

/// The segments that lie in a directory, named by a manifest or not, by position.
pub(crate) fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let entries = std::fs::read_dir(directory).map_err(|e| Error::of_read("cannot read", directory, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::of_read("cannot read", directory, e))?;
        if let Some(position) = position_of(&entry.file_name().to_string_lossy()) {
            found.push((position, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// True when anything stands where a segment's first record would: of a segment that was begun and never written to,
/// there are zeros.
pub(crate) fn has_records(path: &Path) -> Result<bool, Error> {
    let unreadable = |e| Error::of_read("cannot read", path, e);
    let file = files::open(path).map_err(unreadable)?;
    Ok(!matches!(Walk::new(file, RECORDS, None).next(u64::MAX), Ok(None)))
}

fn head_bytes(id: [u8; 16], begin: Link) -> Vec<u8> {
    let mut head = Vec::with_capacity(COVERED + 4);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&id);
    head.extend_from_slice(&begin.next.to_le_bytes());
    head.extend_from_slice(&begin.chain.to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    head
}

/// What a segment's first page says of it: the journal's id, and what the segment continues.
pub(crate) fn read_head(file: &File) -> io::Result<Option<([u8; 16], Link)>> {
    let mut bytes = [0; COVERED + 4];
    if read_at(file, &mut bytes, 0)? < bytes.len() {
        return Ok(None);
    }
    let Some(body) = files::checked(&bytes).filter(|b| b.starts_with(MAGIC)) else { return Ok(None) };
    let mut id = [0; 16];
    id.copy_from_slice(&body[8..24]);
    let (mut next, mut chain) = ([0; 8], [0; 4]);
    next.copy_from_slice(&body[24..32]);
    chain.copy_from_slice(&body[32..36]);
    Ok(Some((id, Link { next: u64::from_le_bytes(next), chain: u32::from_le_bytes(chain) })))
}

/// Makes an empty segment, durably.
pub(crate) fn create(directory: &Path, id: [u8; 16], begin: Link) -> Result<File, Error> {
    let path = path(directory, begin.next);
    let fail = |e| Error::of_write("cannot write", &path, e);
    let mut page = vec![0; (RECORDS + FIRST_ZEROS) as usize];
    let head = head_bytes(id, begin);
    page[..head.len()].copy_from_slice(&head);
    let mark = mark_bytes(begin, Mark { end: RECORDS, link: begin });
    for at in MARKS {
        page[at as usize..at as usize + MARK].copy_from_slice(&mark);
    }
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = files::open_with(options, &path).map_err(fail)?;
    file.write_all_at(&page, 0).map_err(fail)?;
    file.sync_all().map_err(|e| Error::of_sync(&path, e))?;
    files::sync_directory_of(&path)?;
    Ok(file)
}

/// Opens a segment and checks that it is the one that is meant.
pub(crate) fn open(directory: &Path, id: [u8; 16], begin: Link, write: bool) -> Result<File, Error> {
    let path = path(directory, begin.next);
    let damaged = |what: &str| Error::Damaged { path: path.clone(), position: begin.next, what: what.into() };
    let file = match files::open_with(File::options().read(true).write(write), &path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("the file is missing")),
        opened => opened.map_err(|e| Error::of_read("cannot open", &path, e))?,
    };
    match read_head(&file).map_err(|e| Error::of_read("cannot read", &path, e))? {
        Some(found) if found == (id, begin) => Ok(file),
        Some(_) => Err(damaged("the file is not the segment that the manifest names")),
        None => Err(damaged("the first page's checksum differs")),
    }
}

fn mark_bytes(begin: Link, mark: Mark) -> [u8; MARK] {
    let mut bytes = [0; MARK];
    bytes[..8].copy_from_slice(&mark.end.to_le_bytes());
    bytes[8..16].copy_from_slice(&mark.link.next.to_le_bytes());
    bytes[16..20].copy_from_slice(&mark.link.chain.to_le_bytes());
    let mut crc = crc32fast::Hasher::new_with_initial(begin.chain ^ begin.next as u32);
    crc.update(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.finalize().to_le_bytes());
    bytes
}

/// The newest mark that can be read, and whether both can; no mark when the page is damaged.
pub(crate) fn read_marks(file: &File, begin: Link) -> io::Result<(Option<Mark>, bool)> {
    let mut found = [None, None];
    for (slot, at) in found.iter_mut().zip(MARKS) {
        let mut bytes = [0; MARK];
        read_at(file, &mut bytes, at)?;
        let u64_at = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let chain = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        let mark = Mark { end: u64_at(0), link: Link { next: u64_at(8), chain } };
        *slot = Some(mark).filter(|m| mark_bytes(begin, *m) == bytes && m.end >= RECORDS);
    }
    let both = found.iter().all(Option::is_some);
    Ok((found.into_iter().flatten().max_by_key(|m| m.link.next), both))
}

/// Writes one of the two marks.
pub(crate) fn write_mark(file: &File, begin: Link, mark: Mark, turn: usize) -> io::Result<()> {
    file.write_all_at(&mark_bytes(begin, mark), MARKS[turn % MARKS.len()])
}

/// Reads as much as there is; less than asked for only at the end of the file.
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let whole = bytes.len();
    while !bytes.is_empty() {
        match file.read_at(bytes, offset) {
            Ok(0) => break,
            Ok(n) => {
                bytes = &mut bytes[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(whole - bytes.len())
}

/// Why a walk over records stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    Unreadable(io::Error),
    Misfit(Misfit),
}

impl From<Misfit> for Stop {
    fn from(misfit: Misfit) -> Self {
        Self::Misfit(misfit)
    }
}

/// A walk over the records of a segment, each checked by itself and as the successor of the one before.
#[derive(Debug)]
pub(crate) struct Walk {
    file: File,
    at: u64,
    /// What the next record must continue; not known where a walk begins in the middle.
    link: Option<Link>,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    buffer_at: u64,
}

impl Walk {
    /// A walk from a place in a segment.
    pub(crate) fn new(file: File, at: u64, link: Option<Link>) -> Self {
        Self { file, at, link, buffer: Vec::new(), buffer_at: 0 }
    }

    /// Where the next record is.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The next record that lies before `end`; `None` at `end` or where nothing was written.
    pub(crate) fn next(&mut self, end: u64) -> Result<Option<(Head, &[u8])>, Stop> {
        let Some(bytes) = self.fill(record::HEAD as u64, end)? else { return Ok(None) };
        let mut head = [0; record::HEAD];
        head.copy_from_slice(&self.buffer[bytes..bytes + record::HEAD]);
        let Some(head) = Head::read(&head) else { return Ok(None) };
        if u64::from(head.length) > record::LARGEST as u64 {
            return Err(Misfit::Short.into());
        }
        let Some(start) = self.fill(head.size(), end)? else { return Err(Misfit::Short.into()) };
        let events = start + record::HEAD..start + head.size() as usize;
        head.check_content(&self.buffer[events.clone()])?;
        if let Some(link) = self.link {
            head.check_link(link)?;
        }
        self.at += head.size();
        self.link = Some(head.link());
        Ok(Some((head, &self.buffer[events])))
    }

    /// Forgets the bytes of a large record once they are of no more use.
    pub(crate) fn give_back_memory(&mut self) {
        if self.buffer.len() > READ {
            (self.buffer, self.buffer_at) = (Vec::new(), 0);
        }
    }

    /// Has so many bytes from the present place on in the buffer, if they lie before `end` and in the file; says where.
    /// Nothing behind `end` is read ahead: it may be written later.
    fn fill(&mut self, size: u64, end: u64) -> Result<Option<usize>, Stop> {
        if self.at.checked_add(size).is_none_or(|stop| stop > end) {
            return Ok(None);
        }
        let held = self.at >= self.buffer_at && self.at + size <= self.buffer_at + self.buffer.len() as u64;
        if !held {
            // The file may be shorter than a damaged length says: ask before making room.
            let length = self.file.metadata().map_err(Stop::Unreadable)?.len().min(end);
            if self.at + size > length {
                return Ok(None);
            }
            let wanted = (size as usize).max(READ).min((length - self.at) as usize);
            self.buffer.resize(wanted, 0);
            let got = read_at(&self.file, &mut self.buffer, self.at).map_err(Stop::Unreadable)?;
            self.buffer.truncate(got);
            self.buffer_at = self.at;
            if (got as u64) < size {
                return Ok(None);
            }
        }
        Ok(Some((self.at - self.buffer_at) as usize))
    }
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Active {
    file: File,
    path: PathBuf,
    begin: Link,
    end: u64,
    link: Link,
    /// Up to here the file is written: records, then zeros.
    zeroed: u64,
    turn: usize,
    /// A write failed: there may be half a record behind the end.
    littered: bool,
    /// The mark of the last record could not be written.
    mark_owed: bool,
}

impl Active {
    /// Goes on with a segment whose records end at `mark`; whatever lies behind them is wiped. The last record is written
    /// again: the kernel may have it in memory only, if the sync before it was last opened failed.
    pub(crate) fn resume(
        directory: &Path,
        file: File,
        begin: Link,
        mark: Mark,
        last: (u64, &[u8]),
    ) -> Result<Self, Error> {
        let path = path(directory, begin.next);
        let fail = |e| Error::of_write("cannot write", &path, e);
        file.set_len(mark.end).map_err(fail)?;
        file.write_all_at(last.1, last.0).map_err(fail)?;
        let (end, link, zeroed) = (mark.end, mark.link, mark.end);
        let mut active =
            Self { file, path, begin, end, link, zeroed, turn: 0, littered: false, mark_owed: false };
        active.write_zeros(mark.end + FIRST_ZEROS)?;
        active.write_mark()?;
        active.write_mark()?;
        active.sync()?;
        Ok(active)
    }

    /// Writes the first page anew, as it should be.
    pub(crate) fn write_first_page(&mut self, id: [u8; 16]) -> Result<(), Error> {
        let written = self.file.write_all_at(&head_bytes(id, self.begin), 0);
        written.map_err(|e| Error::of_write("cannot write", &self.path, e))?;
        self.write_mark()?;
        self.write_mark()?;
        self.sync()
    }

    /// What the next record continues.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Where the next record goes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// What the segment continues.
    pub(crate) fn begin(&self) -> Link {
        self.begin
    }

    /// How far the segment is committed.
    pub(crate) fn mark(&self) -> Mark {
        Mark { end: self.end, link: self.link }
    }

    /// False when somebody has deleted the file: what is written to it is lost with us.
    pub(crate) fn is_linked(&self) -> bool {
        files::is_linked(&self.file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record durably. On an error that may pass nothing was written.
    pub(crate) fn append(&mut self, head: &Head, bytes: &[u8]) -> Result<(), Error> {
        self.tidy()?;
        let end = self.end + bytes.len() as u64;
        self.write_zeros(end)?;
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            self.littered = true;
            return Err(Error::of_write("cannot append to", &self.path, error));
        }
        self.sync()?;
        (self.end, self.link) = (end, head.link());
        // The record is on disk, whatever becomes of its mark; but no other record may come before the mark does.
        self.mark_owed = self.write_mark().is_err();
        Ok(())
    }

    /// Writes and syncs something that is not a record: succeeds when records could be written again.
    pub(crate) fn probe(&mut self) -> Result<(), Error> {
        self.littered = true;
        self.tidy()?;
        self.write_zeros(self.end + FIRST_ZEROS)?;
        self.write_mark()?;
        self.sync()
    }

    /// Makes the mark durable: everything that was appended is known to be there.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.tidy()?;
        self.sync()
    }

    /// Puts in order what a failed write left: half a record in front of a shorter one could be taken for a record.
    fn tidy(&mut self) -> Result<(), Error> {
        if self.littered {
            self.file.set_len(self.end).map_err(|e| Error::of_write("cannot write", &self.path, e))?;
            (self.zeroed, self.littered) = (self.end, false);
        }
        if self.mark_owed {
            self.write_mark()?;
            self.mark_owed = false;
        }
        Ok(())
    }

    fn write_zeros(&mut self, needed: u64) -> Result<(), Error> {
        while self.zeroed < needed {
            let size = (needed - self.zeroed).clamp(ZEROS, MOST_ZEROS);
            if let Err(error) = self.file.write_all_at(&vec![0; size as usize], self.zeroed) {
                // A part of the zeros may be there: harmless, and it takes space that is missing.
                self.littered = true;
                return Err(Error::of_write("cannot append to", &self.path, error));
            }
            self.zeroed += size;
        }
        Ok(())
    }

    fn write_mark(&mut self) -> Result<(), Error> {
        self.turn = 1 - self.turn;
        let written = write_mark(&self.file, self.begin, self.mark(), self.turn);
        written.map_err(|e| Error::of_write("cannot write", &self.path, e))
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|e| Error::of_sync(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use model::Event;

    use super::*;

    #[test]
    fn less_is_read_only_at_the_end_and_the_amount_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ten"), b"0123456789").unwrap();
        let file = File::open(dir.path().join("ten")).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(read_at(&file, &mut bytes, 4).unwrap(), 6);
        assert_eq!(&bytes[..7], b"456789\0");
        assert_eq!(read_at(&file, &mut bytes, 10).unwrap(), 0);
        assert_eq!(read_at(&file, &mut bytes[..3], 1).unwrap(), 3);
    }

    #[test]
    fn nothing_is_appended_that_could_not_be_synced() {
        // Takes every write, and no sync.
        let file = File::options().write(true).open("/dev/null").unwrap();
        let link = Link { next: 1, chain: 0 };
        let mut active = Active {
            file,
            path: "/dev/null".into(),
            begin: link,
            end: RECORDS,
            link,
            zeroed: RECORDS,
            turn: 0,
            littered: false,
            mark_owed: false,
        };
        let (head, bytes) = record::encode(link, &[Event { time_ms: 1, kind: None }]).unwrap();
        assert!(matches!(active.append(&head, &bytes), Err(Error::Sync { .. })));
        assert_eq!((active.link(), active.end()), (link, RECORDS), "it did not happen");
        assert!(matches!(active.settle(), Err(Error::Sync { .. })));
        assert!(matches!(
            active.probe(),
            Err(Error::ReadOnly { .. } | Error::System { .. } | Error::Sync { .. })
        ));
    }
}
