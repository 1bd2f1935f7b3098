//! The object store: jobs' inputs, results and checkpoints, named by the SHA-256 of their content.
//!
//! - `backing`: where whole objects are; `bucket`: those in S3
//! - `arrivals`: objects that machines bring part by part, and the memory of who brought what
//! - `incoming`: objects that the manager itself writes
//! - `ledger`: who takes how much, and what is needed
//! - `room`: quotas, the pool's limit and the disk's reserve, and what makes way for what
//! - `records`: what is kept for people over restarts: spooled inputs, results that were not fetched yet
//! - `settings`: what the configuration says
//!
//! An object exists once all of it has arrived and its hash is what its name says; until then it is a file in `arriving/` that nobody
//! reads. What is stored twice is there once. Objects that nobody refers to are removed after a while.
//!
//! Names of objects are in everybody's event stream, so that knowing one proves nothing: who may read an object is decided by whoever
//! uses the store, and a machine's word that a job was saved counts for what that machine brought, byte by byte, under that claim.

#![forbid(unsafe_code)]

mod arrivals;
mod backing;
mod bucket;
mod incoming;
mod ledger;
mod records;
mod room;
mod settings;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use model::agent::{Get, Piece};

pub use self::arrivals::{Charge, NotAdmitted};
pub use self::backing::Reader;
pub use self::incoming::Incoming;
pub use self::ledger::{Besides, OverQuota};
pub use self::records::Record;
pub use self::settings::{BucketSettings, Settings};

use self::arrivals::Arrival;
use self::backing::Objects;
use self::ledger::Ledger;

/// Largest part that is handed out at a time.
pub const PIECE_BYTES: usize = 1 << 20;

/// What a machine brought is kept so long, whatever the settings: that its job was saved may be on its way.
const SPARED: Duration = Duration::from_secs(600);

/// Bytes of an object after which its reader is noticed again.
const TOUCHED_EVERY: u64 = 64 << 20;

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// Where what has not arrived yet is, who brought what, and what is kept for whom.
    root: PathBuf,
    objects: Objects,
    /// What is on its way, and what has arrived that the books do not know yet.
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    books: Arc<Mutex<Books>>,
    settings: Arc<RwLock<Settings>>,
    /// Counts objects of the manager's own.
    begun: Arc<AtomicU64>,
}

/// What is known of objects. Nothing is removed without holding it.
#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    /// Objects that this process wrote itself, and that no machine has brought since: they are nobody's only copy, and need not be
    /// spared.
    own: HashSet<String>,
    /// What users' checkpoints take, and their names, as the scheduler said last.
    saved: HashMap<Arc<str>, Besides>,
    checkpoints: HashSet<String>,
    /// When users uploaded last.
    uploaded: HashMap<Arc<str>, Instant>,
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
    pub fn open(dir: &Path, settings: Settings) -> io::Result<Self> {
        let root = dir.join("objects");
        for dir in ["arriving", "brought", "kept"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(root.join(dir))?;
        }
        let store = Self {
            objects: Objects::open(&root, settings.bucket.as_ref())?,
            root,
            arrivals: Arc::default(),
            books: Arc::default(),
            settings: Arc::new(RwLock::new(settings)),
            begun: Arc::default(),
        };
        store.hold_what_is_kept()?;
        Ok(store)
    }

    /// Goes on with other settings.
    pub fn reconfigure(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// What the configuration says.
    pub fn settings(&self) -> Settings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every change of the books is one call, so that they are whole also behind somebody who panicked.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// True when objects are not on this machine: who asks for one may wait for the network.
    pub fn is_elsewhere(&self) -> bool {
        self.objects.are_elsewhere()
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

    /// A user's holder (an attempt, a spooled cluster, a kept result) needs an object from now on. False when it is not there.
    pub fn hold(&self, owner: &Arc<str>, holder: &str, object: &str, bytes: u64) -> bool {
        // First it is held, then looked for: what was removed before that is not found.
        self.books().ledger.hold(owner, holder, object, bytes);
        self.has(object)
    }

    /// A holder needs nothing any more.
    pub fn release(&self, holder: &str) {
        self.books().ledger.release(holder);
    }

    /// Holders whose names begin so.
    pub fn holders(&self, prefix: &str) -> Vec<String> {
        self.books().ledger.holders(prefix)
    }

    /// Bytes and objects that a user is charged for, without checkpoints and what machines send.
    pub fn usage(&self, owner: &str) -> (u64, u64) {
        self.books().ledger.usage(owner)
    }

    /// Removes what a claim brought and nobody will ask for any more; it stays when somebody else needs the same bytes.
    pub fn forget(&self, machine: &str, claim: u64, object: &str) {
        let is_others = self.forget_arrival(machine, claim, object);
        let mut books = self.books();
        if is_name(object)
            && !is_others
            && !books.ledger.is_held(object)
            && !books.checkpoints.contains(object)
        {
            books.remove(&self.objects, object);
        }
        drop(books);
        self.unnote_brought(machine, claim, object);
    }

    /// Takes note of the checkpoints that unfinished jobs may begin from, and whose they are.
    pub fn note_checkpoints(&self, checkpoints: impl IntoIterator<Item = (Arc<str>, String, u64)>) {
        let mut saved: HashMap<Arc<str>, Besides> = HashMap::new();
        let mut names = HashSet::new();
        for (owner, object, bytes) in checkpoints {
            let sum = saved.entry(owner).or_default();
            sum.bytes += bytes;
            sum.objects += 1;
            names.insert(object);
        }
        let mut books = self.books();
        // A checkpoint that a newer one has replaced is not needed, and not spared.
        let replaced: Vec<String> = books.checkpoints.difference(&names).cloned().collect();
        (books.saved, books.checkpoints) = (saved, names);
        for object in replaced {
            if !books.ledger.is_held(&object) && !self.is_arriving(&object) {
                books.remove(&self.objects, &object);
            }
        }
    }

    /// Removes objects that nobody has needed for a while; returns how many. To be called after [`Store::note_checkpoints`].
    pub fn sweep(&self) -> usize {
        self.end_old_uploads();
        let spare = self.settings().spare;
        let is_old = |modified: SystemTime| is_older(modified, spare);
        // Also what an earlier manager was brought, and was killed before it heard what for.
        let brought = self.lately_brought();
        let mut removed = 0;
        let mut total = 0;
        for (object, bytes, modified) in self.objects.list() {
            total += bytes;
            if !is_old(modified) || brought.contains(&object) {
                continue;
            }
            let mut books = self.books();
            // It may be needed, or used, since it was listed.
            if !books.checkpoints.contains(&object)
                && !books.ledger.is_held(&object)
                && !self.is_arriving(&object)
                && self.objects.used(&object).is_some_and(is_old)
            {
                removed += usize::from(books.remove(&self.objects, &object));
                total -= bytes;
            }
        }
        self.objects.note_total(total);
        // By then the objects of a list are in the books, or are removed too.
        for dir in ["arriving", "brought"] {
            for entry in fs::read_dir(self.root.join(dir)).into_iter().flatten().flatten() {
                if entry.metadata().and_then(|m| m.modified()).is_ok_and(|at| is_older(at, SPARED)) {
                    removed += usize::from(fs::remove_file(entry.path()).is_ok());
                }
            }
        }
        removed
    }
}

impl Books {
    /// Removes an object; true when it was there.
    fn remove(&mut self, from: &Objects, object: &str) -> bool {
        self.own.remove(object);
        self.ledger.forget(object);
        from.remove(object).is_ok()
    }
}

fn is_older(modified: SystemTime, age: Duration) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|now| now >= age)
}
