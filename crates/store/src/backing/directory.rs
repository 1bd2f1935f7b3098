//! Objects in a directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Objects as files, in directories by the first two digits of their names.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    root: PathBuf,
    /// What all objects take.
    total: Arc<AtomicU64>,
}

impl Directory {
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), total: Arc::default() }
    }

    fn place(&self, object: &str) -> PathBuf {
        self.root.join(&object[..2]).join(object)
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.place(object).exists()
    }

    /// Notes that somebody uses it; false when it is not there.
    pub(crate) fn touch(&self, object: &str) -> bool {
        File::options().append(true).open(self.place(object)).is_ok_and(|file| {
            let _ = file.set_modified(SystemTime::now());
            true
        })
    }

    pub(crate) fn read(&self, object: &str) -> io::Result<File> {
        File::open(self.place(object))
    }

    /// Size of an object and at most so many bytes of it.
    pub(crate) fn read_at(&self, object: &str, offset: u64, most: usize) -> io::Result<(u64, Vec<u8>)> {
        let file = File::open(self.place(object))?;
        let bytes = file.metadata()?.len();
        let mut data = vec![0; bytes.saturating_sub(offset).min(most as u64) as usize];
        file.read_exact_at(&mut data, offset)?;
        Ok((bytes, data))
    }

    /// Takes a file that has arrived: it is gone from where it was. `secure` puts its name on disk.
    pub(crate) fn keep(&self, arrived: &Path, object: &str, secure: bool) -> io::Result<()> {
        let place = self.place(object);
        let dir = place.parent().unwrap_or(&self.root);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let (bytes, had) = (fs::metadata(arrived)?.len(), fs::metadata(&place).map_or(0, |m| m.len()));
        fs::rename(arrived, &place)?;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.take_off(had);
        if secure { File::open(dir)?.sync_all() } else { Ok(()) }
    }

    pub(crate) fn remove(&self, object: &str) -> io::Result<()> {
        let place = self.place(object);
        let bytes = fs::metadata(&place)?.len();
        fs::remove_file(place)?;
        self.take_off(bytes);
        Ok(())
    }

    fn take_off(&self, bytes: u64) {
        let less = |total: u64| Some(total.saturating_sub(bytes));
        let _ = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes of all objects, as far as they were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// They were counted anew.
    pub(crate) fn note_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// When it was last used.
    pub(crate) fn used(&self, object: &str) -> Option<SystemTime> {
        fs::metadata(self.place(object)).ok()?.modified().ok()
    }

    /// All objects, with their sizes and when they were last used.
    pub(crate) fn list(&self) -> impl Iterator<Item = (String, u64, SystemTime)> {
        let dirs = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let entries = dirs.flat_map(|dir| fs::read_dir(dir.path()).into_iter().flatten().flatten());
        entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| crate::is_name(name))?;
            let meta = entry.metadata().ok()?;
            Some((name, meta.len(), meta.modified().ok()?))
        })
    }
}
