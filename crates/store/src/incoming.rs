//! Objects that the manager itself writes: somebody's inputs, read by a porter.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use model::report::object_name;

use crate::Store;

/// An object that is being written; nobody sees it before it is whole.
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    path: PathBuf,
    to: Option<io::BufWriter<File>>,
    hasher: trust::Hasher,
    bytes: u64,
}

impl Store {
    /// Begins an object of the manager's own.
    pub fn begin(&self) -> io::Result<Incoming> {
        self.check_room()?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("arriving").join(format!("own.{number}"));
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        let to = io::BufWriter::with_capacity(256 << 10, file);
        Ok(Incoming { store: self.clone(), path, to: Some(to), hasher: trust::Hasher::default(), bytes: 0 })
    }
}

impl Incoming {
    /// More of it.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.hasher.update(data);
        self.bytes += data.len() as u64;
        match &mut self.to {
            Some(to) => to.write_all(data),
            None => Ok(()),
        }
    }

    /// It is whole: its name and size.
    pub fn finish(mut self) -> io::Result<(String, u64)> {
        let hasher = std::mem::take(&mut self.hasher);
        let name = object_name(&hasher.finish()).unwrap_or_default();
        if let Some(to) = self.to.take() {
            to.into_inner().map_err(io::IntoInnerError::into_error)?;
        }
        if self.store.has(&name) {
            return Ok((name, self.bytes));
        }
        // Not synced: what is lost of it with the power is read again, and whoever gets it checks its hash.
        self.store.objects.keep(&self.path, &name, false)?;
        Ok((name, self.bytes))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
