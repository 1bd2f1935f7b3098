//! Where whole objects are: a directory, or a bucket behind it.

mod directory;

use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use crate::bucket::{self, Bucket};
use crate::settings::BucketSettings;

use self::directory::Directory;

/// All objects. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    local: Directory,
    /// New ones go here, when there is one.
    bucket: Option<Bucket>,
}

/// An object that is read from its beginning to its end.
#[derive(Debug)]
pub struct Reader(Source);

#[derive(Debug)]
enum Source {
    File(std::fs::File),
    Bucket(Box<bucket::Reader>),
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::File(file) => file.read(buffer),
            Source::Bucket(reader) => reader.read(buffer),
        }
    }
}

/// An object that is where it will be, and not entered yet.
#[derive(Debug)]
pub(crate) struct Staged(Option<bucket::Staged>);

impl Objects {
    /// Those of a directory, and of a bucket that is reached before this returns.
    pub(crate) fn open(root: &Path, bucket: Option<&BucketSettings>) -> io::Result<Self> {
        let bucket = bucket.map(|settings| Bucket::open(root, settings)).transpose()?;
        Ok(Self { local: Directory::at(root), bucket })
    }

    /// True when there is room without end.
    pub(crate) fn are_elsewhere(&self) -> bool {
        self.bucket.is_some()
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.local.has(object) || self.bucket.as_ref().is_some_and(|bucket| bucket.used(object).is_some())
    }

    /// Notes that somebody uses it; false when it is not there.
    pub(crate) fn touch(&self, object: &str) -> bool {
        self.local.touch(object) || self.bucket.as_ref().is_some_and(|bucket| bucket.touch(object))
    }

    /// The bucket, when it has this object and the directory does not.
    fn bucket_of(&self, object: &str) -> Option<&Bucket> {
        self.bucket.as_ref().filter(|_| !self.local.has(object))
    }

    pub(crate) fn read(&self, object: &str) -> io::Result<Reader> {
        match self.bucket_of(object) {
            Some(bucket) => bucket.read(object).map(|reader| Reader(Source::Bucket(Box::new(reader)))),
            None => self.local.read(object).map(|file| Reader(Source::File(file))),
        }
    }

    /// Size of an object and at most so many bytes of it.
    pub(crate) fn read_at(&self, object: &str, offset: u64, most: usize) -> io::Result<(u64, Vec<u8>)> {
        match self.bucket_of(object) {
            Some(bucket) => bucket.read_at(object, offset, most),
            None => self.local.read_at(object, offset, most),
        }
    }

    /// Brings a file that has arrived to where objects are; nobody sees it there before it is kept. May take long.
    pub(crate) fn stage(&self, arrived: &Path, object: &str) -> io::Result<Staged> {
        let staged = self.bucket_of(object).map(|bucket| bucket.stage(arrived, object));
        staged.transpose().map(Staged)
    }

    /// Enters an object that was staged: its file is gone from where it was. `secure` puts its name on disk.
    pub(crate) fn keep(&self, arrived: &Path, object: &str, secure: bool, staged: Staged) -> io::Result<()> {
        match staged.0 {
            Some(staged) => {
                staged.enter();
                // Who brought the same at the same time may have been first.
                let _ = std::fs::remove_file(arrived);
                Ok(())
            }
            None => self.local.keep(arrived, object, secure),
        }
    }

    pub(crate) fn remove(&self, object: &str) -> io::Result<()> {
        let is_struck = self.bucket.as_ref().is_some_and(|bucket| bucket.strike(object));
        match self.local.remove(object) {
            Err(error) if !is_struck => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes of all objects, as far as they were counted.
    pub(crate) fn total(&self) -> u64 {
        self.local.total() + self.bucket.as_ref().map_or(0, Bucket::total)
    }

    /// Those of the directory were counted anew, with all others.
    pub(crate) fn note_total(&self, bytes: u64) {
        self.local.note_total(bytes.saturating_sub(self.bucket.as_ref().map_or(0, Bucket::total)));
    }

    /// When it was last used.
    pub(crate) fn used(&self, object: &str) -> Option<SystemTime> {
        let elsewhere = || self.bucket.as_ref().and_then(|bucket| bucket.used(object));
        self.local.used(object).or_else(elsewhere)
    }

    /// All objects, with their sizes and when they were last used.
    pub(crate) fn list(&self) -> impl Iterator<Item = (String, u64, SystemTime)> {
        let elsewhere = self.bucket.as_ref().map(Bucket::list).unwrap_or_default();
        self.local.list().chain(elsewhere)
    }
}
