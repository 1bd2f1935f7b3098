//! The object store: checkpoints and jobs' files, named by the SHA-256 of their content, in a directory beside the journal.
//!
//! An object exists once all of it has arrived, its hash is what its name says, and it is on disk; until then it is a
//! file in `arriving/` that nobody reads. Objects that no unfinished job may begin from are removed after a while.
//!
//! Names of objects are in everybody's event stream, so that knowing one proves nothing. A machine's word that a job was saved
//! counts for what that machine brought, byte by byte, under that claim; `brought/` remembers it also over a restart.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use api::agent::{Get, Piece, Took};
use model::limits;
use model::report::object_name;
use scheduler::Charge;

/// Largest part that is handed out at a time.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// An object nobody refers to is kept so long: its event may be on its way.
const SPARED: Duration = Duration::from_secs(600);

/// Bytes of an object after which its reader is noticed again.
const TOUCHED_EVERY: u64 = 64 << 20;

/// A claim may report the last so many objects that it brought: reports can be late, but not by many checkpoints.
const BROUGHT: usize = 8;

/// The store.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    root: PathBuf,
    key: CheckpointKey,
    /// What is on its way, and what has arrived that the books do not know yet.
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Counts objects of the manager's own.
    begun: Arc<std::sync::atomic::AtomicU64>,
}

/// An object that is charged to a user before the books do it.
#[derive(Debug)]
struct Arrival {
    machine: String,
    claim: u64,
    object: String,
    owner: Arc<str>,
    bytes: u64,
    since: Instant,
}

/// From this the key of each job's transparent checkpoints is made: machines get those of the jobs that they run.
#[derive(Clone, Default)]
pub(crate) struct CheckpointKey([u8; 32]);

impl std::fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckpointKey")
    }
}

impl CheckpointKey {
    /// Reads it, or makes one, which is on disk before it is used.
    fn open(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => bytes.try_into().map(Self).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", path.display()))
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let key = Self(trust::random());
                let new = path.with_extension("new");
                let mut file =
                    File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
                file.write_all(&key.0)?;
                file.sync_all()?;
                fs::rename(new, path)?;
                Ok(key)
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn of_job(&self, cluster: u32, proc: u32) -> Vec<u8> {
        let parts: [&[u8]; 3] =
            [b"transparent checkpoints of a job", &cluster.to_le_bytes(), &proc.to_le_bytes()];
        trust::mac(&self.0, &parts).to_vec()
    }
}

fn is_name(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl Store {
    /// Opens the store in a directory of the manager's.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let root = dir.join("objects");
        let arriving = root.join("arriving");
        for dir in [&arriving, &root.join("brought")] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let key = CheckpointKey::open(&root.join("key"))?;
        Ok(Self { root, key, arrivals: Arc::default(), begun: Arc::default() })
    }

    pub(crate) fn key(&self) -> CheckpointKey {
        self.key.clone()
    }

    fn place(&self, object: &str) -> PathBuf {
        self.root.join(&object[..2]).join(object)
    }

    fn list_of_brought(&self, machine: &str, claim: u64) -> PathBuf {
        self.root.join("brought").join(format!("{claim}.{machine}"))
    }

    fn read_brought(&self, machine: &str, claim: u64) -> io::Result<Vec<String>> {
        match fs::read_to_string(self.list_of_brought(machine, claim)) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// True when this machine has sent all of this object under this claim, and it is still there.
    pub(crate) fn was_brought(&self, machine: &str, claim: u64, object: &str) -> io::Result<bool> {
        let known = self.read_brought(machine, claim)?.iter().any(|o| o == object);
        Ok(known && is_name(object) && self.place(object).exists())
    }

    /// Notes on disk that a machine has sent all of an object.
    fn note_brought(&self, machine: &str, claim: u64, object: &str) -> io::Result<()> {
        let mut brought = self.read_brought(machine, claim)?;
        brought.retain(|o| o != object);
        brought.push(object.to_owned());
        let last = brought.len().saturating_sub(BROUGHT);
        let list = self.list_of_brought(machine, claim);
        let new = self.root.join("arriving").join(format!("brought.{claim}.{machine}"));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all((brought[last..].join("\n") + "\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &list)?;
        File::open(self.root.join("brought"))?.sync_all()
    }

    /// True when this machine may send this object under this claim.
    pub(crate) fn is_admitted(&self, machine: &str, claim: u64, object: &str) -> bool {
        let is_it = |a: &Arrival| a.machine == machine && a.claim == claim && a.object == object;
        self.arrivals.lock().is_ok_and(|arrivals| arrivals.iter().any(is_it))
    }

    /// Lets a machine send an object, if there is room for it in its user's quota.
    pub(crate) fn admit(&self, machine: &str, piece: &Piece, charge: &Charge) -> Result<(), String> {
        let Ok(mut arrivals) = self.arrivals.lock() else { return Err("the store is out of order".into()) };
        // A claim saves one job at a time: what it sent before has arrived or never will.
        arrivals.retain(|a| {
            a.since.elapsed() < SPARED
                && !charge.objects.contains(&a.object)
                && (a.machine != machine || a.claim != piece.claim)
        });
        let arriving: u64 = arrivals.iter().filter(|a| a.owner == charge.owner).map(|a| a.bytes).sum();
        let used = charge.used.saturating_add(arriving);
        if charge.quota > 0 && used.saturating_add(piece.bytes) > charge.quota {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            return Err(format!(
                "the checkpoints of {} take {} MiB, this one has {} MiB, and {} MiB is the limit (CHECKPOINT_QUOTA)",
                charge.owner,
                mib(used),
                mib(piece.bytes),
                mib(charge.quota)
            ));
        }
        arrivals.push(Arrival {
            machine: machine.to_owned(),
            claim: piece.claim,
            object: piece.object.clone(),
            owner: charge.owner.clone(),
            bytes: piece.bytes,
            since: Instant::now(),
        });
        Ok(())
    }

    /// Takes part of an object from a machine.
    pub(crate) fn put(&self, machine: &str, piece: &Piece) -> Took {
        let object = piece.object.clone();
        match self.take(machine, piece) {
            Ok((next, safe)) => Took { object, next, safe, ..Took::default() },
            Err(error) => {
                tracing::warn!(machine, object, %error, "a checkpoint cannot be stored");
                Took { object, error: error.to_string(), ..Took::default() }
            }
        }
    }

    fn take(&self, machine: &str, piece: &Piece) -> io::Result<(u64, bool)> {
        let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !is_name(&piece.object) {
            return invalid("that is not the name of an object");
        }
        if piece.bytes > limits::OBJECT_BYTES {
            return invalid("it is too large");
        }
        let place = self.place(&piece.object);
        if self.was_brought(machine, piece.claim, &piece.object)? {
            // Our answer was lost. That somebody else brought it does not count: whoever knows its name need not have it.
            return Ok((piece.bytes, true));
        }
        let arriving = self.root.join("arriving").join(format!("{}.{}.{machine}", piece.object, piece.claim));
        if piece.offset == 0 {
            match fs::remove_file(&arriving) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        if starter::quota::is_short_of_room(&File::open(&self.root)?)? {
            // The rest of the disk is the journal's. What has arrived of this goes too.
            let _ = fs::remove_file(&arriving);
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the manager's disk is nearly full; the rest is kept for the journal",
            ));
        }
        let mut file = File::options().create(true).append(true).read(true).mode(0o600).open(&arriving)?;
        let have = file.metadata()?.len();
        if have != piece.offset {
            return Ok((have, false));
        }
        if have + piece.data.len() as u64 > piece.bytes {
            return invalid("it is longer than was said");
        }
        file.write_all(&piece.data)?;
        let have = have + piece.data.len() as u64;
        if have < piece.bytes {
            return Ok((have, false));
        }
        if hash(&mut file)? != piece.object {
            drop(file);
            fs::remove_file(&arriving)?;
            return invalid("it was damaged on its way: its hash differs from its name");
        }
        file.sync_all()?;
        if let Some(dir) = place.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            fs::rename(&arriving, &place)?;
            File::open(dir)?.sync_all()?;
        }
        self.note_brought(machine, piece.claim, &piece.object)?;
        Ok((have, true))
    }

    /// Part of an object.
    pub(crate) fn get(&self, want: &Get) -> Piece {
        let object = want.object.clone();
        let read = || -> io::Result<Piece> {
            if !is_name(&want.object) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is not the name of an object"));
            }
            let file = File::open(self.place(&want.object))?;
            if want.offset.is_multiple_of(TOUCHED_EVERY) {
                // Whoever fetches it wants the rest too.
                let _ = file.set_modified(SystemTime::now());
            }
            let bytes = file.metadata()?.len();
            let most = (want.most as usize).min(PIECE_BYTES) as u64;
            let mut data = vec![0; bytes.saturating_sub(want.offset).min(most) as usize];
            file.read_exact_at(&mut data, want.offset)?;
            Ok(Piece { object: object.clone(), bytes, offset: want.offset, data, ..Piece::default() })
        };
        read().unwrap_or_else(|error| Piece {
            object: object.clone(),
            error: format!("the store cannot give {object}: {error}"),
            ..Piece::default()
        })
    }

    /// Removes objects that nobody needs any more; returns how many.
    pub(crate) fn sweep(&self, needed: &HashSet<String>) -> usize {
        let old = |path: &Path| {
            let age =
                fs::metadata(path).and_then(|m| m.modified()).map(|t| SystemTime::now().duration_since(t));
            age.is_ok_and(|age| age.is_ok_and(|age| age > SPARED))
        };
        let mut removed = 0;
        for dir in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for entry in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_unneeded = is_name(&name) && !needed.contains(&name);
                // By then the objects of a list are in the books, or are removed too.
                let is_list = dir.file_name() == "brought" || dir.file_name() == "arriving";
                if (is_unneeded || is_list) && old(&entry.path()) {
                    removed += usize::from(fs::remove_file(entry.path()).is_ok());
                }
            }
        }
        removed
    }
}

impl Store {
    /// Begins an object of the manager's own: somebody's input.
    pub(crate) fn begin(&self) -> io::Result<Incoming> {
        if starter::quota::is_short_of_room(&File::open(&self.root)?)? {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the manager's disk is nearly full; the rest is kept for the journal",
            ));
        }
        let number = self.begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.root.join("arriving").join(format!("own.{number}"));
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        let to = io::BufWriter::with_capacity(256 << 10, file);
        Ok(Incoming { store: self.clone(), path, to: Some(to), hasher: trust::Hasher::default(), bytes: 0 })
    }

    /// The object is there; from now on it is spared for a while.
    pub(crate) fn has(&self, object: &str) -> bool {
        is_name(object)
            && File::options().append(true).open(self.place(object)).is_ok_and(|file| {
                // Whoever asks is about to use it.
                let _ = file.set_modified(SystemTime::now());
                true
            })
    }

    /// An object, to be read.
    pub(crate) fn open_object(&self, object: &str) -> io::Result<File> {
        if !is_name(object) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is not the name of an object"));
        }
        File::open(self.place(object))
    }

    /// Removes an object that nobody will ask for any more.
    pub(crate) fn forget(&self, object: &str) {
        if is_name(object) {
            let _ = fs::remove_file(self.place(object));
        }
    }
}

/// An object that is being written; nobody sees it before it is whole.
#[derive(Debug)]
pub(crate) struct Incoming {
    store: Store,
    path: PathBuf,
    to: Option<io::BufWriter<File>>,
    hasher: trust::Hasher,
    bytes: u64,
}

impl Incoming {
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.hasher.update(data);
        self.bytes += data.len() as u64;
        match &mut self.to {
            Some(to) => to.write_all(data),
            None => Ok(()),
        }
    }

    /// It is whole: its name and size.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        let hasher = std::mem::take(&mut self.hasher);
        let name = object_name(&hasher.finish()).unwrap_or_default();
        if let Some(to) = self.to.take() {
            to.into_inner().map_err(io::IntoInnerError::into_error)?;
        }
        if self.store.has(&name) {
            return Ok((name, self.bytes));
        }
        let place = self.store.place(&name);
        if let Some(dir) = place.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        // Not synced: what is lost of it with the power is read again, and whoever gets it checks its hash.
        fs::rename(&self.path, &place)?;
        Ok((name, self.bytes))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes what nobody needs, from time to time.
pub(crate) async fn tidy(handle: crate::Handle) {
    let mut interval = tokio::time::interval(Duration::from_secs(60));
    loop {
        interval.tick().await;
        let needed = |core: &scheduler::Core| core.checkpoints().map(|c| c.object.to_string()).collect();
        let Ok(needed) = handle.look(needed).await else { return };
        handle.cargo.tidy(&handle).await;
        let store = handle.objects.clone();
        if let Ok(removed @ 1..) = tokio::task::spawn_blocking(move || store.sweep(&needed)).await {
            tracing::debug!(removed, "removed old checkpoints");
        }
    }
}

fn hash(file: &mut File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = trust::Hasher::default();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(object_name(&hasher.finish()).unwrap_or_default()),
            n => hasher.update(&chunk[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(object: &str, whole: &[u8], from: usize, to: usize) -> Piece {
        Piece {
            object: object.to_owned(),
            bytes: whole.len() as u64,
            offset: from as u64,
            data: whole[from..to].to_vec(),
            ..Piece::default()
        }
    }

    #[test]
    fn a_user_stores_no_more_than_the_quota_also_when_all_comes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let charge = |owner: &str, used: u64, known: &[&str]| Charge {
            owner: Arc::from(owner),
            used: used << 20,
            objects: known.iter().map(|o| (*o).to_owned()).collect(),
            quota: 10 << 20,
        };
        let piece = |claim, object: &str, mib: u64| Piece {
            claim,
            object: object.into(),
            bytes: mib << 20,
            ..Piece::default()
        };
        store.admit("m", &piece(1, "a", 6), &charge("alice", 0, &[])).unwrap();
        assert!(store.is_admitted("m", 1, "a") && !store.is_admitted("n", 1, "a"));
        assert!(!store.is_admitted("m", 2, "a") && !store.is_admitted("m", 1, "b"));
        let refused = store.admit("m", &piece(2, "b", 5), &charge("alice", 0, &[])).unwrap_err();
        assert!(refused.contains("take 6 MiB") && refused.contains("CHECKPOINT_QUOTA"), "{refused}");
        assert!(!store.is_admitted("m", 2, "b"));
        store.admit("n", &piece(3, "c", 10), &charge("bob", 0, &[])).unwrap();
        store.admit("m", &piece(2, "b", 4), &charge("alice", 0, &[])).unwrap();
        // The books know of the first by now: it counts once.
        assert!(store.admit("n", &piece(4, "d", 1), &charge("alice", 6, &["a"])).is_err());
        // What a claim sends takes the place of what it sent before.
        store.admit("m", &piece(2, "e", 4), &charge("alice", 6, &["a"])).unwrap();
        let unlimited = Charge { quota: 0, ..charge("alice", 6, &["a"]) };
        store.admit("n", &piece(4, "d", 1000), &unlimited).unwrap();
    }

    #[test]
    fn an_object_exists_when_all_of_it_is_there_and_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let whole: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let object = object_name(&trust::digest(&whole)).unwrap();
        let get = |offset| store.get(&Get { object: object.clone(), offset, most: 60_000 });
        let took = store.put("m", &piece(&object, &whole, 0, 40_000));
        assert_eq!((took.next, took.safe), (40_000, false));
        assert!(!get(0).error.is_empty(), "half an object is none");
        // A part that was lost is asked for again; another machine's upload is its own.
        assert_eq!(store.put("m", &piece(&object, &whole, 90_000, 100_000)).next, 40_000);
        assert_eq!(store.put("n", &piece(&object, &whole, 0, 10)).next, 10);
        let took = store.put("m", &piece(&object, &whole, 40_000, 100_000));
        assert!(took.safe && took.error.is_empty());
        let back = [get(0).data, get(60_000).data].concat();
        assert_eq!(back, whole);
        let again = store.put("m", &piece(&object, &whole, 0, 10));
        assert!(again.safe && again.next == 100_000, "whoever brought it is told so again");
    }

    #[test]
    fn an_object_counts_for_the_claim_under_which_all_of_it_was_brought_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let whole = b"somebody's work".to_vec();
        let object = object_name(&trust::digest(&whole)).unwrap();
        let of = |claim, piece: Piece| Piece { claim, ..piece };
        assert!(!store.was_brought("m", 1, &object).unwrap());
        assert!(store.put("m", &of(1, piece(&object, &whole, 0, whole.len()))).safe);
        assert!(store.was_brought("m", 1, &object).unwrap());
        // Others know its name from the event stream.
        for (machine, claim) in [("n", 1), ("n", 2), ("m", 2)] {
            assert!(!store.was_brought(machine, claim, &object).unwrap());
            let nothing = Piece { object: object.clone(), claim, ..Piece::default() };
            let took = store.put(machine, &nothing);
            assert!(!took.safe && took.error.contains("hash"), "{took:?}");
            let took = store.put(machine, &of(claim, piece(&object, &whole, 0, 4)));
            assert!(!took.safe && took.next == 4, "{took:?}");
            assert!(!store.was_brought(machine, claim, &object).unwrap());
        }
        assert!(
            store.put("n", &of(2, piece(&object, &whole, 4, whole.len()))).safe,
            "an equal file is as good"
        );
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        for (machine, claim, brought) in [("m", 1, true), ("n", 2, true), ("n", 1, false), ("m", 2, false)] {
            assert_eq!(store.was_brought(machine, claim, &object).unwrap(), brought, "{machine} {claim}");
        }
        // Of many only the last are remembered, and none that is gone.
        for n in 0..BROUGHT as u8 {
            assert!(
                store.put("m", &of(1, piece(&object_name(&trust::digest(&[n])).unwrap(), &[n], 0, 1))).safe
            );
        }
        assert!(!store.was_brought("m", 1, &object).unwrap());
        fs::remove_file(store.place(&object)).unwrap();
        assert!(!store.was_brought("n", 2, &object).unwrap());
    }

    #[test]
    fn a_store_that_is_opened_again_goes_on_with_what_has_arrived() {
        let dir = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let object = object_name(&trust::digest(&whole)).unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.put("m", &piece(&object, &whole, 0, 40_000)).next, 40_000);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.put("m", &piece(&object, &whole, 60_000, 70_000)).next, 40_000);
        assert!(store.put("m", &piece(&object, &whole, 40_000, 100_000)).safe);
    }

    #[test]
    fn keys_are_of_one_pool_and_one_job_and_stay() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |dir: &Path, cluster, proc| Store::open(dir).unwrap().key().of_job(cluster, proc);
        let first = of(here.path(), 1, 2);
        assert_eq!(first, of(here.path(), 1, 2), "also after a restart");
        for other in [of(here.path(), 2, 1), of(here.path(), 1, 3), of(there.path(), 1, 2)] {
            assert_ne!(first, other);
        }
        assert!(!format!("{:?}", Store::open(here.path()).unwrap()).contains(&format!("{}", first[0])));
        fs::write(here.path().join("objects/key"), "short").unwrap();
        assert!(Store::open(here.path()).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn damage_is_noticed_and_names_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let object = object_name(&trust::digest(b"right")).unwrap();
        let took = store.put("m", &piece(&object, b"wrong", 0, 5));
        assert!(!took.safe && took.error.contains("damaged"), "{took:?}");
        for bad in ["", "../../etc/passwd", &object[1..], &object.to_uppercase()] {
            assert!(!store.put("m", &piece(bad, b"x", 0, 1)).error.is_empty());
            assert!(!store.get(&Get { object: bad.to_owned(), offset: 0, most: 1 }).error.is_empty());
        }
        let huge = Piece { object: object.clone(), bytes: u64::MAX, ..Piece::default() };
        assert!(!store.put("m", &huge).error.is_empty());
        assert_eq!(store.sweep(&HashSet::new()), 0, "young ones are spared");
    }
}
