//! The names in a directory, listed again only when they may have changed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::chain::{log_of, unpacked};
use super::moments;
use super::tail::is_settled;

/// A directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    names: Vec<OsString>,
    /// The rotated files of each log, if they were asked for.
    rotated: Option<HashMap<Vec<u8>, Vec<OsString>>>,
    /// When the directory was changed last, if that was a while before it was listed: else the next change might have the
    /// same stamp.
    seen: Option<(i64, i64)>,
}

impl Directory {
    /// The directory at `path`, which need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), names: Vec::new(), rotated: None, seen: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All names, as they were a moment ago. A directory in which names are being changed shows some files twice and some not
    /// at all.
    pub fn names(&mut self) -> io::Result<&[OsString]> {
        let before = stamp(&self.path)?;
        if self.seen == Some(before.0) {
            return Ok(&self.names);
        }
        moments::pass();
        let names: io::Result<Vec<OsString>> =
            std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name())).collect();
        (self.names, self.rotated) = (names?, None);
        self.seen = (before.1 && stamp(&self.path)? == before).then_some(before.0);
        Ok(&self.names)
    }

    /// Are the names that were asked for last surely all there are? Not if some were changed since, or a moment before.
    pub fn is_unchanged(&self) -> bool {
        self.seen.is_some() && stamp(&self.path).is_ok_and(|now| self.seen == Some(now.0))
    }

    /// The rotated files of a log in a directory of many; see [`Directory::names`].
    pub fn rotated(&mut self, base: &[u8]) -> io::Result<&[OsString]> {
        self.names()?;
        let names = &self.names;
        let rotated = self.rotated.get_or_insert_with(|| {
            let mut rotated: HashMap<Vec<u8>, Vec<OsString>> = HashMap::new();
            for name in names {
                if let (log, Some(_)) = log_of(unpacked(name.as_encoded_bytes()).0) {
                    rotated.entry(log.to_vec()).or_default().push(name.clone());
                }
            }
            rotated
        });
        Ok(rotated.get(base).map_or(&[], Vec::as_slice))
    }
}

fn stamp(path: &Path) -> io::Result<((i64, i64), bool)> {
    moments::pass();
    let meta = std::fs::metadata(path)?;
    Ok(((meta.mtime(), meta.mtime_nsec()), is_settled(&meta)))
}
