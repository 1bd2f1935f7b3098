//! Room: a user's part, the pool's limit, and what is kept free on the disk for the journal. What nobody needs makes way.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::ledger::Allowance;
use crate::{Besides, Store};

/// Size of the disk of this file, and what is free on it for this process.
fn disk(file: &File) -> io::Result<(u64, u64)> {
    let disk = rustix::fs::fstatvfs(file)?;
    Ok((disk.f_blocks.saturating_mul(disk.f_frsize), disk.f_bavail.saturating_mul(disk.f_frsize)))
}

impl Store {
    /// What one user may take, and whether the configuration says so: half of all that the store can have, where it does not.
    pub(crate) fn allowance(&self) -> (Allowance, bool) {
        let settings = self.settings();
        let is_set = settings.user_bytes > 0;
        let half = || {
            if self.objects.are_elsewhere() {
                return (settings.pool_bytes > 0).then_some(settings.pool_bytes / 2);
            }
            let (size, free) = disk(&File::open(&self.root).ok()?).ok()?;
            let free = free.saturating_sub(model::limits::disk_reserve(size));
            let room = self.objects.total().saturating_add(free);
            let room = if settings.pool_bytes > 0 { room.min(settings.pool_bytes) } else { room };
            Some(room / 2)
        };
        let bytes = if is_set { Some(settings.user_bytes) } else { half() };
        let objects = (settings.user_objects > 0).then_some(settings.user_objects);
        (Allowance { bytes, objects }, is_set)
    }

    /// Charges a user for what is about to be written. What he does not need any more makes way for it.
    pub(crate) fn charge(&self, owner: &Arc<str>, ticket: u64, bytes: u64) -> io::Result<()> {
        let arriving = self.arriving_of(owner);
        loop {
            let (allowance, is_set) = self.allowance();
            let mut books = self.books();
            let saved = books.saved.get(owner).copied().unwrap_or_default();
            let besides = Besides {
                bytes: saved.bytes.saturating_add(arriving.bytes),
                objects: saved.objects + arriving.objects,
            };
            match books.ledger.reserve(owner, ticket, bytes, allowance, is_set, besides) {
                Ok(()) => return Ok(()),
                Err((over, spare)) => {
                    let Some(object) = spare.first() else {
                        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, over));
                    };
                    // Others may be charged for it; what this process did not write itself goes when it is old.
                    if books.ledger.give_up(owner, object)
                        && books.own.contains(object)
                        && !books.checkpoints.contains(object)
                    {
                        books.remove(&self.objects, object);
                    }
                }
            }
        }
    }

    /// Makes sure that so many bytes more fit into the pool's limit and onto the disk, without what is kept free there for the journal.
    /// Objects that nobody needs make way.
    pub(crate) fn make_room(&self, bytes: u64) -> io::Result<()> {
        let root = File::open(&self.root)?;
        let limit = self.settings().pool_bytes;
        let why = |this: &Self| -> io::Result<Option<String>> {
            let (size, free) = disk(&root)?;
            if free < model::limits::disk_reserve(size).saturating_add(bytes) {
                return Ok(Some(
                    "the manager's disk is nearly full; the rest is kept for the journal".to_owned(),
                ));
            }
            let total = this.objects.total();
            Ok((limit > 0 && total.saturating_add(bytes) > limit).then(|| {
                format!(
                    "the pool's store is full: {} MiB are in it, and {} MiB is its limit (STORE_LIMIT)",
                    total.div_ceil(1 << 20),
                    limit >> 20
                )
            }))
        };
        let Some(mut reason) = why(self)? else { return Ok(()) };
        let spare = self.books().ledger.spare();
        for object in spare {
            {
                let mut books = self.books();
                let is_spare = books.own.contains(&object)
                    && !books.ledger.is_held(&object)
                    && !books.checkpoints.contains(&object);
                if !is_spare || !books.remove(&self.objects, &object) {
                    continue;
                }
            }
            match why(self)? {
                None => return Ok(()),
                Some(still) => reason = still,
            }
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, reason))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Settings, Store};

    const MIB: u64 = 1 << 20;

    fn write(store: &Store, owner: &str, holder: &str, fill: u8, bytes: u64) -> std::io::Result<String> {
        let mut incoming = store.begin(&owner.into(), bytes)?;
        incoming.write(&vec![fill; bytes as usize])?;
        Ok(incoming.finish(holder, false)?.0)
    }

    #[test]
    fn what_a_user_does_not_need_any_more_makes_way_for_what_he_needs() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { user_bytes: 3 * MIB, ..Settings::default() };
        let store = Store::open(dir.path(), settings).unwrap();
        let first = write(&store, "ann", "job 1", 1, MIB).unwrap();
        let second = write(&store, "ann", "job 2", 2, MIB).unwrap();
        let shared = write(&store, "bob", "job 3", 2, MIB).unwrap();
        assert_eq!(second, shared);
        let full = write(&store, "ann", "job 4", 3, 2 * MIB).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::QuotaExceeded);
        store.release("job 1");
        store.release("job 2");
        write(&store, "ann", "job 4", 3, 2 * MIB).unwrap();
        assert!(!store.has(&first), "it was not used for the longest time");
        // His job needs it, whoever else does not.
        write(&store, "ann", "job 5", 4, MIB).unwrap();
        assert!(store.has(&shared));
        assert_eq!((store.usage("ann"), store.usage("bob")), ((3 * MIB, 2), (MIB, 1)));
        let more = write(&store, "ann", "job 6", 5, 1).unwrap_err().to_string();
        assert!(more.contains("STORE_QUOTA") && more.contains("ann"), "{more}");
        // What was given up is not charged.
        assert_eq!(store.usage("ann"), (3 * MIB, 2));
    }

    #[test]
    fn what_grows_beyond_what_was_said_is_charged_as_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { user_bytes: 8 * MIB, ..Settings::default() };
        let store = Store::open(dir.path(), settings).unwrap();
        let mut incoming = store.begin(&"ann".into(), 0).unwrap();
        let chunk = vec![0; MIB as usize];
        let written = (0..100).take_while(|_| incoming.write(&chunk).is_ok()).count();
        assert_eq!(written, 8);
        drop(incoming);
        assert_eq!(store.usage("ann"), (0, 0));
        assert_eq!(std::fs::read_dir(dir.path().join("objects/arriving")).unwrap().count(), 0);
    }

    #[test]
    fn the_pool_has_a_limit_and_what_nobody_needs_makes_way() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { user_bytes: 100 * MIB, pool_bytes: 3 * MIB, ..Settings::default() };
        let store = Store::open(dir.path(), settings).unwrap();
        let first = write(&store, "ann", "job 1", 1, MIB).unwrap();
        write(&store, "bob", "job 2", 2, MIB).unwrap();
        store.release("job 1");
        write(&store, "cid", "job 3", 3, 2 * MIB).unwrap();
        assert!(!store.has(&first));
        let full = write(&store, "dan", "job 4", 4, MIB).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        assert!(full.to_string().contains("STORE_LIMIT"), "{full}");
    }

    #[test]
    fn what_somebody_keeps_as_a_checkpoint_is_not_removed_with_equal_bytes_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Settings { user_bytes: MIB, ..Settings::default() }).unwrap();
        let object = write(&store, "ann", "job 1", 1, MIB).unwrap();
        store.note_checkpoints([("bob".into(), object.clone(), MIB)]);
        store.release("job 1");
        write(&store, "ann", "job 2", 2, MIB).unwrap();
        assert!(store.has(&object));
        store.forget("m", 1, &object);
        assert!(store.has(&object));
        // Nor when a machine has just brought it, and nobody has said so.
        store.note_checkpoints([]);
        assert!(!store.has(&object), "a checkpoint that was replaced goes at once");
        let charge = crate::Charge {
            owner: "bob".into(),
            used: 0,
            objects: std::collections::HashSet::new(),
            quota: 0,
        };
        let data = vec![1; MIB as usize];
        let name = model::report::object_name(&trust::digest(&data)).unwrap();
        let piece =
            model::agent::Piece { object: name.clone(), bytes: MIB, data, claim: 7, ..Default::default() };
        store.admit("m", &piece, &charge).unwrap();
        assert!(store.put("m", &piece).safe);
        store.release("job 2");
        write(&store, "ann", "job 3", 1, MIB).unwrap();
        store.release("job 3");
        write(&store, "ann", "job 4", 3, MIB).unwrap();
        store.forget("n", 8, &name);
        assert!(store.has(&name));
        store.forget("m", 7, &name);
        assert!(!store.has(&name));
    }
}
