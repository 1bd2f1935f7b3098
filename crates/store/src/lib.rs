//! The object store: jobs' inputs, results and checkpoints, named by the SHA-256 of their content.
//!
//! - `backing`: where whole objects are
//! - `arrivals`: objects that machines bring part by part, and the memory of who brought what
//! - `incoming`: objects that the manager itself writes
//!
//! An object exists once all of it has arrived and its hash is what its name says; until then it is a file in `arriving/` that nobody
//! reads. What is stored twice is there once. Objects that nobody refers to are removed after a while.
//!
//! Names of objects are in everybody's event stream, so that knowing one proves nothing: who may read an object is decided by whoever
//! uses the store, and a machine's word that a job was saved counts for what that machine brought, byte by byte, under that claim.

#![forbid(unsafe_code)]

mod arrivals;
mod backing;
mod incoming;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use model::agent::{Get, Piece};

pub use self::arrivals::Charge;
pub use self::backing::Reader;
pub use self::incoming::Incoming;

use self::arrivals::Arrival;
use self::backing::Directory;

/// Largest part that is handed out at a time.
pub const PIECE_BYTES: usize = 1 << 20;

/// An object nobody refers to is kept so long: its event may be on its way.
const SPARED: Duration = Duration::from_secs(600);

/// Bytes of an object after which its reader is noticed again.
const TOUCHED_EVERY: u64 = 64 << 20;

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// Where what has not arrived yet is, and who brought what.
    root: PathBuf,
    objects: Directory,
    /// What is on its way, and what has arrived that the books do not know yet.
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Counts objects of the manager's own.
    begun: Arc<AtomicU64>,
}

/// True for what can be an object's name.
pub fn is_name(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "that is not the name of an object")
}

impl Store {
    /// Opens the store in a directory of the manager's.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let root = dir.join("objects");
        for dir in [root.join("arriving"), root.join("brought")] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let objects = Directory::at(&root);
        Ok(Self { root, objects, arrivals: Arc::default(), begun: Arc::default() })
    }

    /// Part of an object, or why it cannot be had.
    pub fn get(&self, want: &Get) -> Piece {
        let object = want.object.clone();
        let read = || -> io::Result<Piece> {
            if !is_name(&want.object) {
                return Err(no_name());
            }
            if want.offset.is_multiple_of(TOUCHED_EVERY) {
                // Whoever fetches it wants the rest too.
                self.objects.touch(&want.object);
            }
            let most = (want.most as usize).min(PIECE_BYTES);
            let (bytes, data) = self.objects.read_at(&want.object, want.offset, most)?;
            Ok(Piece { object: object.clone(), bytes, offset: want.offset, data, ..Piece::default() })
        };
        read().unwrap_or_else(|error| Piece {
            object: object.clone(),
            error: format!("the store cannot give {object}: {error}"),
            ..Piece::default()
        })
    }

    /// The object is there; from now on it is spared for a while.
    pub fn has(&self, object: &str) -> bool {
        // Whoever asks is about to use it.
        is_name(object) && self.objects.touch(object)
    }

    /// An object, to be read from its beginning.
    pub fn read(&self, object: &str) -> io::Result<Reader> {
        if is_name(object) { self.objects.read(object) } else { Err(no_name()) }
    }

    /// Removes an object that nobody will ask for any more.
    pub fn forget(&self, object: &str) {
        if is_name(object) {
            let _ = self.objects.remove(object);
        }
    }

    /// Removes objects that nobody needs any more; returns how many.
    pub fn sweep(&self, needed: &HashSet<String>) -> usize {
        let mut removed = 0;
        for (object, modified) in self.objects.list() {
            if !needed.contains(&object) && is_old(modified) {
                removed += usize::from(self.objects.remove(&object).is_ok());
            }
        }
        // By then the objects of a list are in the books, or are removed too.
        for dir in ["arriving", "brought"] {
            for entry in fs::read_dir(self.root.join(dir)).into_iter().flatten().flatten() {
                if entry.metadata().and_then(|m| m.modified()).is_ok_and(is_old) {
                    removed += usize::from(fs::remove_file(entry.path()).is_ok());
                }
            }
        }
        removed
    }

    /// Refuses what would go into the part of the disk that is the journal's.
    fn check_room(&self) -> io::Result<()> {
        if is_short_of_room(&File::open(&self.root)?)? {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the manager's disk is nearly full; the rest is kept for the journal",
            ));
        }
        Ok(())
    }
}

fn is_old(modified: SystemTime) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|age| age > SPARED)
}

/// Size of the disk of this file, and what is free on it for this process.
fn room(file: &File) -> io::Result<(u64, u64)> {
    let disk = rustix::fs::fstatvfs(file)?;
    Ok((disk.f_blocks.saturating_mul(disk.f_frsize), disk.f_bavail.saturating_mul(disk.f_frsize)))
}

fn is_short_of_room(file: &File) -> io::Result<bool> {
    let (size, free) = room(file)?;
    Ok(free < model::limits::disk_reserve(size))
}
