//! Objects that the manager itself writes: somebody's inputs, read by a porter.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
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
    owner: Arc<str>,
    ticket: u64,
    /// What the owner is charged for so far.
    charged: u64,
}

/// What grows beyond what was said is charged so many bytes at a time.
const STEP: u64 = 1 << 20;

impl Store {
    /// Begins an object that is charged to a user; `expected` bytes of it, as far as is known. What he does not need any more makes way.
    pub fn begin(&self, owner: &Arc<str>, expected: u64) -> io::Result<Incoming> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        // When nobody has room, that is the reason, and not that one's part of nothing is small.
        self.make_room(0)?;
        self.charge(owner, number, expected)?;
        let begun = self.make_room(expected).and_then(|()| self.begin_file(owner, number, expected));
        begun.inspect_err(|_| self.books().ledger.release_ticket(owner, number))
    }

    fn begin_file(&self, owner: &Arc<str>, number: u64, charged: u64) -> io::Result<Incoming> {
        let path = self.root.join("arriving").join(format!("own.{number}"));
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        let to = io::BufWriter::with_capacity(256 << 10, file);
        Ok(Incoming {
            store: self.clone(),
            path,
            to: Some(to),
            hasher: trust::Hasher::default(),
            bytes: 0,
            owner: owner.clone(),
            ticket: number,
            charged,
        })
    }
}

impl Incoming {
    /// More of it.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let bytes = self.bytes + data.len() as u64;
        if bytes > self.charged {
            let more = bytes.next_multiple_of(STEP);
            self.store.charge(&self.owner, self.ticket, more)?;
            self.charged = more;
        }
        if bytes / STEP > self.bytes / STEP {
            self.store.make_room(STEP)?;
        }
        self.hasher.update(data);
        self.bytes = bytes;
        match &mut self.to {
            Some(to) => to.write_all(data),
            None => Ok(()),
        }
    }

    /// It is whole, and somebody needs it: its name and size. `secure`: it is on disk when this returns; what can be read again need
    /// not be.
    pub fn finish(mut self, holder: &str, secure: bool) -> io::Result<(String, u64)> {
        let hasher = std::mem::take(&mut self.hasher);
        let name = object_name(&hasher.finish()).unwrap_or_default();
        if let Some(to) = self.to.take() {
            let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
            if secure {
                file.sync_all()?;
            }
        }
        if !self.store.hold(&self.owner, holder, &name, self.bytes) {
            let staged = self.store.objects.stage(&self.path, &name)?;
            let mut books = self.store.books();
            self.store.objects.keep(&self.path, &name, secure, staged)?;
            if !self.store.is_arriving(&name) {
                books.own.insert(name.clone());
            }
        }
        Ok((name, self.bytes))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.store.books().ledger.release_ticket(&self.owner, self.ticket);
    }
}
