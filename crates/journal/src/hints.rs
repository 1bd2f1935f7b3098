//! Where to begin reading in a segment: every so many bytes, the position of a record and its place in the file.
//!
//! Hints are never synced and never believed: a reader looks whether the record that a hint names is there, and reads the
//! segment from its beginning otherwise. So a hint that is lost or damaged costs time and nothing else.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::files;

/// Bytes of a segment between two hints.
const EVERY: u64 = 64 << 10;
/// Bytes of one hint on disk.
const SIZE: usize = 16;
/// Bytes of a file of hints at most.
const LARGEST: u64 = 1 << 20;

/// A place to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Position of the first event of the record there.
    pub(crate) first: u64,
    /// Where the record begins.
    pub(crate) offset: u64,
}

/// The writer's side: hints of the segment that is being written.
#[derive(Debug)]
pub(crate) struct Hints {
    file: Option<File>,
    last: u64,
}

impl Hints {
    /// Begins a segment's hints anew.
    pub(crate) fn create(segment: &Path) -> Self {
        let mut options = File::options();
        let options = options.create(true).truncate(true).write(true);
        Self { file: files::open_with(options, &path(segment)).ok(), last: 0 }
    }

    /// Notes a record if it is far enough from the last one noted.
    pub(crate) fn note(&mut self, hint: Hint) {
        if hint.offset < self.last + EVERY {
            return;
        }
        self.last = hint.offset;
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&hint.first.to_le_bytes());
        bytes[8..].copy_from_slice(&hint.offset.to_le_bytes());
        if let Some(file) = &mut self.file
            && file.write_all(&bytes).is_err()
        {
            // Half a hint would shift all later ones; without them reading is slower, and right.
            self.file = None;
        }
    }
}

/// The hints of a segment, as they are on disk.
pub(crate) fn load(segment: &Path) -> Vec<Hint> {
    let mut bytes = Vec::new();
    let read = files::open(&path(segment)).and_then(|f| f.take(LARGEST).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let u64_at = |part: &[u8]| part.try_into().map_or(0, u64::from_le_bytes);
    bytes
        .chunks_exact(SIZE)
        .map(|hint| Hint { first: u64_at(&hint[..8]), offset: u64_at(&hint[8..]) })
        .collect()
}

/// The last hint at or before a position.
pub(crate) fn before(hints: &[Hint], position: u64) -> Option<Hint> {
    hints.iter().rev().find(|hint| hint.first <= position).copied()
}

/// The file of hints beside a segment.
pub(crate) fn path(segment: &Path) -> PathBuf {
    segment.with_extension("hints")
}
