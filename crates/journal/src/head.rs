//! The head: a small file beside the segments that says how far the journal is committed, and who led last.
//!
//! Each segment has its own mark, which is exact. The head is for what a segment or the manifest cannot know of itself:
//! that its file was exchanged for an older copy, or is gone. The head is synced when a writer takes over, and written
//! after every batch without a sync: after a power cut it may be behind, but never ahead, and since its two marks lie in
//! sectors of their own, one of them can always be read. So a head that is missing or cannot be read is damage.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::record::Link;
use crate::segment::{self, Mark};
use crate::{Error, files};

/// Where the epoch stands, in a sector of its own.
const EPOCH: u64 = 2048;

/// What a head that cannot be read means.
pub(crate) const MISSING: &str =
    "it is missing or cannot be read, so that nobody can tell whether the newest segment is an older copy";

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// The link after the last committed batch.
    pub(crate) link: Link,
    /// The last writer that took over; 0 when that cannot be read.
    pub(crate) epoch: u64,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct HeadFile {
    file: File,
    path: PathBuf,
    begin: Link,
    turn: usize,
}

impl HeadFile {
    /// Opens the head of a journal, or makes one, and notes durably how far the journal is committed.
    pub(crate) fn open(directory: &Path, id: [u8; 16], mark: Mark) -> Result<Self, Error> {
        let path = path(directory);
        let fail = |e| Error::of_write("cannot write", &path, e);
        let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let head = Self { file: options.map_err(fail)?, path: path.clone(), begin: begin_of(id), turn: 0 };
        for turn in 0..2 {
            segment::write_mark(&head.file, head.begin, mark, turn).map_err(fail)?;
        }
        head.file.sync_all().map_err(|e| Error::of_sync(&path, e))?;
        files::sync_directory_of(&path)?;
        Ok(head)
    }

    /// Notes durably who leads. The manifest says so already: a head is never ahead of it.
    pub(crate) fn note_epoch(&mut self, epoch: u64) -> Result<(), Error> {
        let written = self.file.write_all_at(&epoch_bytes(self.begin, epoch), EPOCH);
        written.map_err(|e| Error::of_write("cannot write", &self.path, e))?;
        self.file.sync_all().map_err(|e| Error::of_sync(&self.path, e))
    }

    /// Notes how far the journal is committed. Without the note damage is found later, or by the segment's own mark.
    pub(crate) fn note(&mut self, mark: Mark) {
        self.turn = 1 - self.turn;
        let _ = segment::write_mark(&self.file, self.begin, mark, self.turn);
    }
}

/// What the head of a journal says; `None` when it is missing or cannot be read.
pub(crate) fn read(directory: &Path, id: [u8; 16]) -> Result<Option<Known>, Error> {
    let path = path(directory);
    let unreadable = |e| Error::of_read("cannot read", &path, e);
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let begin = begin_of(id);
    let (mark, _) = segment::read_marks(&file, begin).map_err(unreadable)?;
    let mut bytes = [0; 12];
    let read = segment::read_at(&file, &mut bytes, EPOCH).map_err(unreadable)?;
    let epoch = bytes[..8].try_into().map_or(0, u64::from_le_bytes);
    let epoch = if read == bytes.len() && epoch_bytes(begin, epoch) == bytes { epoch } else { 0 };
    Ok(mark.map(|mark| Known { link: mark.link, epoch }))
}

fn epoch_bytes(begin: Link, epoch: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&epoch.to_le_bytes());
    let mut crc = crc32fast::Hasher::new_with_initial(begin.chain);
    crc.update(&bytes[..8]);
    bytes[8..].copy_from_slice(&crc.finalize().to_le_bytes());
    bytes
}

/// Marks of another journal do not fit.
fn begin_of(id: [u8; 16]) -> Link {
    Link { next: 0, chain: crc32fast::hash(&id) }
}

/// The file.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("head")
}
