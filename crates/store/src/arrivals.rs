//! Objects that machines bring, part by part, and the memory of who brought what, which outlives a restart (`brought/`).

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use model::agent::{Piece, Took};
use model::limits;
use model::report::object_name;

use crate::{Besides, OverQuota, SPARED, Store, is_name, no_name};

/// A claim may report the last so many objects that it brought: reports can be late, but not by many checkpoints.
const BROUGHT: usize = 8;

/// Uploads of one user at a time.
const UPLOADS: u64 = 1_000;

/// Whom an object is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The user.
    pub owner: Arc<str>,
    /// Bytes of checkpoints that the user's other jobs have stored.
    pub used: u64,
    /// All checkpoints that the user's jobs have stored, by name.
    pub objects: HashSet<String>,
    /// Bytes of checkpoints that the user may have stored; 0 for any amount.
    pub quota: u64,
}

/// Why a machine may not send an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAdmitted {
    /// In words.
    pub why: String,
    /// It makes no sense to ask again.
    pub never: bool,
}

impl NotAdmitted {
    fn never(why: String) -> Self {
        Self { why, never: true }
    }
}

/// An object that is charged to a user before the books do it.
#[derive(Debug)]
pub(crate) struct Arrival {
    machine: String,
    claim: u64,
    object: String,
    owner: Arc<str>,
    bytes: u64,
    since: Instant,
}

/// What a user who uploads is called among those who bring objects: no machine has such a name.
fn uploader(owner: &str) -> String {
    let hex: String = owner.bytes().map(|b| format!("{b:02x}")).collect();
    format!("=user={hex}")
}

/// What a user uploads is brought under a number of its own, so that each upload is charged and remembered for itself.
fn claim_of(object: &str) -> io::Result<u64> {
    if is_name(object) {
        u64::from_str_radix(&object[..16], 16).map_err(io::Error::other)
    } else {
        Err(no_name())
    }
}

impl Store {
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
    pub fn was_brought(&self, machine: &str, claim: u64, object: &str) -> io::Result<bool> {
        let known = self.read_brought(machine, claim)?.iter().any(|o| o == object);
        Ok(known && is_name(object) && self.objects.has(object))
    }

    /// What machines brought not long ago, also to an earlier manager.
    pub(crate) fn lately_brought(&self) -> HashSet<String> {
        let lists = fs::read_dir(self.root.join("brought")).into_iter().flatten().flatten();
        let texts = lists.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// What a claim brought reached its place: it is not spared for it any more.
    pub(crate) fn unnote_brought(&self, machine: &str, claim: u64, object: &str) {
        let Ok(mut brought) = self.read_brought(machine, claim) else { return };
        brought.retain(|o| o != object);
        let list = self.list_of_brought(machine, claim);
        let _ = if brought.is_empty() {
            fs::remove_file(list)
        } else {
            self.write_brought(machine, claim, &brought)
        };
    }

    /// Notes on disk that a machine has sent all of an object.
    fn note_brought(&self, machine: &str, claim: u64, object: &str) -> io::Result<()> {
        let mut brought = self.read_brought(machine, claim)?;
        brought.retain(|o| o != object);
        brought.push(object.to_owned());
        let last = brought.len().saturating_sub(BROUGHT);
        self.write_brought(machine, claim, &brought[last..])
    }

    fn write_brought(&self, machine: &str, claim: u64, brought: &[String]) -> io::Result<()> {
        let list = self.list_of_brought(machine, claim);
        let new = self.root.join("arriving").join(format!("brought.{claim}.{machine}"));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all((brought.join("\n") + "\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &list)?;
        File::open(self.root.join("brought"))?.sync_all()
    }

    /// True when this machine may send this object under this claim.
    pub fn is_admitted(&self, machine: &str, claim: u64, object: &str) -> bool {
        let is_it = |a: &Arrival| a.machine == machine && a.claim == claim && a.object == object;
        self.arrivals().iter().any(is_it)
    }

    /// Whoever needs both this and the books locks the books first.
    fn arrivals(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when some machine sends this, or has sent it and the books do not know it yet.
    pub(crate) fn is_arriving(&self, object: &str) -> bool {
        self.arrivals().iter().any(|a| a.object == object && a.since.elapsed() < SPARED)
    }

    /// What one claim sent has reached its place; true when another claim sent the same.
    pub(crate) fn forget_arrival(&self, machine: &str, claim: u64, object: &str) -> bool {
        let mut arrivals = self.arrivals();
        arrivals.retain(|a| a.object != object || a.machine != machine || a.claim != claim);
        arrivals.iter().any(|a| a.object == object && a.since.elapsed() < SPARED)
    }

    /// What machines send of a user's.
    pub(crate) fn arriving_of(&self, owner: &str) -> Besides {
        let arrivals = self.arrivals();
        let own = arrivals.iter().filter(|a| *a.owner == *owner && a.since.elapsed() < SPARED);
        own.fold(Besides::default(), |sum, a| Besides {
            bytes: sum.bytes.saturating_add(a.bytes),
            objects: sum.objects + 1,
        })
    }

    /// A user's part of the store is for what machines send, too.
    fn check_part(
        &self,
        charge: &Charge,
        (kept, objects): (u64, u64),
        piece: &Piece,
        (arriving, count): (u64, u64),
    ) -> Result<(), NotAdmitted> {
        if self.make_room(piece.data.len() as u64).is_err() {
            // Nobody has room; whoever puts it there says so.
            return Ok(());
        }
        let (allowance, is_set) = self.allowance();
        let all = objects + charge.objects.len() as u64 + count;
        if let Some(most) = allowance.objects.filter(|most| all >= *most) {
            let over = OverQuota::of_objects(&charge.owner, all, most);
            return Err(NotAdmitted { why: over.to_string(), never: all - count >= most });
        }
        let Some(most) = allowance.bytes else { return Ok(()) };
        let kept = charge.used.saturating_add(kept);
        let without_others = kept.saturating_add(piece.bytes);
        if without_others.saturating_add(arriving) <= most {
            return Ok(());
        }
        let over =
            OverQuota::of_bytes(&charge.owner, kept.saturating_add(arriving), piece.bytes, most, is_set);
        // What else is on its way will soon be where it belongs.
        Err(NotAdmitted { why: over.to_string(), never: without_others > most })
    }

    /// Lets a machine send an object, if there is room for it in its user's quota.
    pub fn admit(&self, machine: &str, piece: &Piece, charge: &Charge) -> Result<(), NotAdmitted> {
        let kept = self.books().ledger.usage(&charge.owner);
        let mut arrivals = self.arrivals();
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
            return Err(NotAdmitted::never(format!(
                "the checkpoints of {} take {} MiB, this one has {} MiB, and {} MiB is the limit (CHECKPOINT_QUOTA)",
                charge.owner,
                mib(used),
                mib(piece.bytes),
                mib(charge.quota)
            )));
        }
        let count = arrivals.iter().filter(|a| a.owner == charge.owner).count() as u64;
        self.check_part(charge, kept, piece, (arriving, count))?;
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
    pub fn put(&self, machine: &str, piece: &Piece) -> Took {
        let object = piece.object.clone();
        match self.take(machine, piece) {
            Ok((next, safe)) => Took { object, next, safe, ..Took::default() },
            // It is here, and the bucket does not answer: it is put there when it does.
            Err(error) if error.kind() == io::ErrorKind::HostUnreachable => {
                tracing::warn!(machine, object, %error, "an object waits for the bucket");
                Took { object, next: piece.offset + piece.data.len() as u64, ..Took::default() }
            }
            Err(error) => {
                tracing::warn!(machine, object, %error, "an object cannot be stored");
                Took { object, error: error.to_string(), ..Took::default() }
            }
        }
    }

    /// Takes part of an object from a user: how much has arrived, and whether that is all. What is whole is charged to him, and kept until
    /// [`Store::end_uploads`].
    pub fn upload(&self, owner: &Arc<str>, piece: &Piece) -> io::Result<(u64, bool)> {
        let (from, claim) = (uploader(owner), claim_of(&piece.object)?);
        let piece = &Piece { claim, ..piece.clone() };
        self.books().uploaded.insert(owner.clone(), Instant::now());
        if self.was_brought(&from, claim, &piece.object)?
            && self.hold(owner, &from, &piece.object, piece.bytes)
        {
            return Ok((piece.bytes, true));
        }
        if !self.is_admitted(&from, claim, &piece.object) {
            if self.arriving_of(owner).objects >= UPLOADS {
                let why =
                    format!("{UPLOADS} uploads of {owner} are under way; finish some, or wait ten minutes");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
            }
            let saved = self.books().saved.get(owner).copied().unwrap_or_default();
            let charge =
                Charge { owner: owner.clone(), used: saved.bytes, objects: HashSet::new(), quota: 0 };
            let over = |not: NotAdmitted| io::Error::new(io::ErrorKind::QuotaExceeded, not.why);
            self.admit(&from, piece, &charge).map_err(over)?;
        }
        let (next, safe) = self.take(&from, piece)?;
        if safe {
            self.hold(owner, &from, &piece.object, piece.bytes);
            self.forget_arrival(&from, claim, &piece.object);
        }
        Ok((next, safe))
    }

    /// Refuses an object of a size that this user never has room for, whatever else makes way.
    pub fn check_size(&self, owner: &Arc<str>, bytes: u64) -> io::Result<()> {
        let (allowance, is_set) = self.allowance();
        let most = allowance.bytes.unwrap_or(limits::OBJECT_BYTES).min(limits::OBJECT_BYTES);
        if bytes <= most {
            return Ok(());
        }
        let over = OverQuota::of_bytes(owner, 0, bytes, most, is_set);
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, over.to_string()))
    }

    /// True when this user has uploaded all of this object.
    pub fn was_uploaded(&self, owner: &str, object: &str) -> io::Result<bool> {
        self.was_brought(&uploader(owner), claim_of(object)?, object)
    }

    /// What a user uploaded is kept by a record, or never will be.
    pub fn end_uploads(&self, owner: &str) {
        self.release(&uploader(owner));
    }

    /// What users uploaded and never submitted with is theirs no longer than what machines brought.
    pub(crate) fn end_old_uploads(&self) {
        let mut books = self.books();
        let old: Vec<Arc<str>> = books
            .uploaded
            .iter()
            .filter(|(_, at)| at.elapsed() >= SPARED)
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in old {
            books.uploaded.remove(&owner);
            books.ledger.release(&uploader(&owner));
        }
    }

    fn take(&self, machine: &str, piece: &Piece) -> io::Result<(u64, bool)> {
        let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !is_name(&piece.object) {
            return Err(no_name());
        }
        if piece.bytes > limits::OBJECT_BYTES {
            return invalid("it is too large");
        }
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
        if let Err(full) = self.make_room(piece.data.len() as u64) {
            // What has arrived of this goes too.
            let _ = fs::remove_file(&arriving);
            return Err(full);
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
        let staged = self.objects.stage(&arriving, &piece.object)?;
        {
            // Whoever removes what it thinks is its own alone does not see this one.
            let mut books = self.books();
            books.own.remove(&piece.object);
            self.objects.keep(&arriving, &piece.object, true, staged)?;
        }
        self.note_brought(machine, piece.claim, &piece.object)?;
        Ok((have, true))
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
    use model::agent::Get;

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
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
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
        assert!(refused.never && refused.why.contains("CHECKPOINT_QUOTA"), "{refused:?}");
        assert!(refused.why.contains("take 6 MiB"), "{refused:?}");
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
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
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
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
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
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
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
        store.forget("m", 1, &object);
        assert!(!store.was_brought("n", 2, &object).unwrap());
    }

    #[test]
    fn a_store_that_is_opened_again_goes_on_with_what_has_arrived() {
        let dir = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let object = object_name(&trust::digest(&whole)).unwrap();
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
        assert_eq!(store.put("m", &piece(&object, &whole, 0, 40_000)).next, 40_000);
        drop(store);
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
        assert_eq!(store.put("m", &piece(&object, &whole, 60_000, 70_000)).next, 40_000);
        assert!(store.put("m", &piece(&object, &whole, 40_000, 100_000)).safe);
    }

    #[test]
    fn what_a_user_uploads_is_charged_from_its_first_byte_and_is_known_to_be_his() {
        let dir = tempfile::tempdir().unwrap();
        let settings = crate::Settings { user_bytes: 3_000, user_objects: 4, ..crate::Settings::default() };
        let store = Store::open(dir.path(), settings).unwrap();
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let part = |n: u8, to: usize| {
            let whole = vec![n; 1_000];
            piece(&object_name(&trust::digest(&whole)).unwrap(), &whole, 0, to)
        };
        // Three are under way with a byte each; a fourth does not fit, whatever has arrived.
        for n in 0..3 {
            assert_eq!(store.upload(&ann, &part(n, 1)).unwrap(), (1, false));
        }
        let over = store.upload(&ann, &part(3, 1)).unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::QuotaExceeded, "{over}");
        assert_eq!(store.upload(&bob, &part(3, 1)).unwrap(), (1, false), "others have their own part");
        let object = part(0, 1).object;
        assert!(!store.was_uploaded("ann", &object).unwrap());
        let rest = Piece { offset: 1, data: vec![0; 999], ..part(0, 1) };
        assert_eq!(store.upload(&ann, &rest).unwrap(), (1_000, true));
        assert!(store.was_uploaded("ann", &object).unwrap() && !store.was_uploaded("bob", &object).unwrap());
        assert_eq!(store.usage("ann"), (1_000, 1));
        assert!(store.upload(&ann, &part(3, 1)).is_err(), "what is whole counts as well");
        assert!(store.upload(&ann, &Piece { object: "../x".into(), ..part(4, 1) }).is_err());
        // Objects are counted, too.
        let small = |n: u8| piece(&object_name(&trust::digest(&[n, 1])).unwrap(), &[n, 1], 0, 2);
        store.end_uploads("bob");
        for n in 0..3 {
            assert!(store.upload(&bob, &small(n)).unwrap().1);
        }
        let many = store.upload(&bob, &small(9)).unwrap_err().to_string();
        assert!(many.contains("STORE_QUOTA_OBJECTS"), "{many}");
    }

    #[test]
    fn a_sweep_spares_what_machines_brought_and_what_jobs_begin_from_however_little_is_spared() {
        let dir = tempfile::tempdir().unwrap();
        let settings = crate::Settings { spare: std::time::Duration::ZERO, ..crate::Settings::default() };
        let open = || Store::open(dir.path(), settings.clone()).unwrap();
        let store = open();
        let charge = Charge { owner: "ann".into(), used: 0, objects: HashSet::new(), quota: 0 };
        let object = object_name(&trust::digest(b"saved")).unwrap();
        let whole = Piece { claim: 3, ..piece(&object, b"saved", 0, 5) };
        store.admit("m", &whole, &charge).unwrap();
        assert!(store.put("m", &whole).safe);
        // The word that a job was saved is on its way, also to the next manager.
        assert_eq!(store.sweep(), 0);
        let store = open();
        assert_eq!(store.sweep(), 0);
        // It is in the books now, and nothing else speaks for it.
        fs::remove_file(store.list_of_brought("m", 3)).unwrap();
        store.note_checkpoints([("ann".into(), object.clone(), 5)]);
        assert_eq!(store.sweep(), 0);
        assert!(store.has(&object));
        let store = open();
        store.note_checkpoints([]);
        assert_eq!(store.sweep(), 1, "nobody needs it");
        assert!(!store.has(&object));
    }

    #[test]
    fn damage_is_noticed_and_names_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), crate::Settings::default()).unwrap();
        let object = object_name(&trust::digest(b"right")).unwrap();
        let took = store.put("m", &piece(&object, b"wrong", 0, 5));
        assert!(!took.safe && took.error.contains("damaged"), "{took:?}");
        for bad in ["", "../../etc/passwd", &object[1..], &object.to_uppercase()] {
            assert!(!store.put("m", &piece(bad, b"x", 0, 1)).error.is_empty());
            assert!(!store.get(&Get { object: bad.to_owned(), offset: 0, most: 1 }).error.is_empty());
        }
        let huge = Piece { object: object.clone(), bytes: u64::MAX, ..Piece::default() };
        assert!(!store.put("m", &huge).error.is_empty());
        assert_eq!(store.sweep(), 0, "young ones are spared");
    }
}
