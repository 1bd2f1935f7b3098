//! The head: a small file beside the segments that says how far the journal is committed.
//!
//! Each segment has its own mark, which is exact. The head is for what a segment cannot know of itself: that its file was
//! exchanged for an older copy, or is gone. It is written after every batch and never synced, so that after a power cut it
//! may be behind, but never ahead, and a head that cannot be read says nothing.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::record::Link;
use crate::segment::{self, Mark};

/// The writer's side.
#[derive(Debug)]
pub(crate) struct HeadFile {
    file: Option<File>,
    begin: Link,
    turn: usize,
}

impl HeadFile {
    /// Opens the head of a journal, or makes one.
    pub(crate) fn open(directory: &Path, id: [u8; 16]) -> Self {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path(directory));
        Self { file: file.ok(), begin: begin_of(id), turn: 0 }
    }

    /// Notes how far the journal is committed. Without the note damage is found later, or by the segment's own mark.
    pub(crate) fn note(&mut self, mark: Mark) {
        self.turn = 1 - self.turn;
        if let Some(file) = &self.file {
            let _ = segment::write_mark(file, self.begin, mark, self.turn);
        }
    }
}

/// What the head of a journal says: the link after the last committed batch. `None` when it cannot be read.
pub(crate) fn read(directory: &Path, id: [u8; 16]) -> Result<Option<Link>, Error> {
    let path = path(directory);
    let Ok(file) = File::open(&path) else { return Ok(None) };
    let marks =
        segment::read_marks(&file, begin_of(id)).map_err(|e| Error::of_read("cannot read", &path, e))?;
    Ok(marks.0.map(|mark| mark.link))
}

/// Marks of another journal do not fit.
fn begin_of(id: [u8; 16]) -> Link {
    Link { next: 0, chain: crc32fast::hash(&id) }
}

/// The file.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("head")
}
