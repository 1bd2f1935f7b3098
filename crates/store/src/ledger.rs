//! Who takes how much of the store, and what of it is needed. No IO and no clock here.
//!
//! A user is charged for every object that the store has because of him, once, however many of his jobs use it; two users of one object
//! are charged for it each. An object stays charged when no job needs it any more, until it is removed: it is spare, and goes first when
//! its user wants room. What is being written is charged before it has a name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// What a user may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Bytes; `None` for any amount.
    pub(crate) bytes: Option<u64>,
    /// Objects; `None` for any number.
    pub(crate) objects: Option<u64>,
}

/// What a user takes that this ledger does not know: checkpoints, and what is on its way from machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Besides {
    /// How many bytes that is.
    pub bytes: u64,
    /// How many objects that is.
    pub objects: u64,
}

/// A user would take more than he may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverQuota {
    owner: Arc<str>,
    used: u64,
    wanted: u64,
    most: u64,
    what: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Bytes { is_set: bool },
    Objects,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, used, wanted, most, what } = self;
        let mib = |bytes: &u64| bytes.div_ceil(1 << 20);
        let help = "remove or wait for other jobs of yours that move files, fetch results that are kept, or ask the administrator for more; then release the job";
        match what {
            Counted::Bytes { is_set } => {
                let (used, wanted, most) = (mib(used), mib(wanted), mib(most));
                let limit = if *is_set {
                    "(STORE_QUOTA)"
                } else {
                    "(half of the store's room; STORE_QUOTA sets another)"
                };
                write!(
                    f,
                    "the files of {owner} take {used} MiB of the pool's store, these need {wanted} MiB more, and {most} MiB is the limit of one user {limit}: {help}"
                )
            }
            Counted::Objects => write!(
                f,
                "the files of {owner} are {used} objects of the pool's store, and {most} is the limit of one user (STORE_QUOTA_OBJECTS): {help}"
            ),
        }
    }
}

impl std::error::Error for OverQuota {}

impl OverQuota {
    /// A user has so many bytes and wants more than the rest.
    pub(crate) fn of_bytes(owner: &Arc<str>, used: u64, wanted: u64, most: u64, is_set: bool) -> Self {
        Self { owner: owner.clone(), used, wanted, most, what: Counted::Bytes { is_set } }
    }

    /// A user has so many objects and wants another.
    pub(crate) fn of_objects(owner: &Arc<str>, used: u64, most: u64) -> Self {
        Self { owner: owner.clone(), used, wanted: 1, most, what: Counted::Objects }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    bytes: u64,
    /// When it was last used, by a counter.
    used: u64,
}

#[derive(Debug, Default)]
struct User {
    objects: HashMap<String, Entry>,
    /// Bytes of these.
    bytes: u64,
    /// What is being written: bytes by ticket.
    writing: HashMap<u64, u64>,
}

impl User {
    fn total(&self) -> u64 {
        self.bytes.saturating_add(self.writing.values().sum())
    }
}

/// Who has what.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    users: HashMap<Arc<str>, User>,
    /// What is needed by whom: a running attempt, a spooled cluster, a kept result.
    holders: HashMap<String, (Arc<str>, HashSet<String>)>,
    /// How many holders need an object.
    needed: HashMap<String, u32>,
    turn: u64,
}

impl Ledger {
    /// Charges a user for something that is being written and has no name yet. When there is no room, the names of his spare objects that
    /// would make some are returned first: whoever calls removes them and asks again.
    pub(crate) fn reserve(
        &mut self,
        owner: &Arc<str>,
        ticket: u64,
        bytes: u64,
        allowance: Allowance,
        is_set: bool,
        besides: Besides,
    ) -> Result<(), (OverQuota, Vec<String>)> {
        let user = self.users.entry(owner.clone()).or_default();
        let had = user.writing.get(&ticket).copied().unwrap_or(0);
        let used = (user.total() - had).saturating_add(besides.bytes);
        let count = (user.objects.len() + user.writing.len()) as u64 + besides.objects;
        let over = |used, wanted, most, what| OverQuota { owner: owner.clone(), used, wanted, most, what };
        let over = match allowance {
            Allowance { bytes: Some(most), .. } if used.saturating_add(bytes) > most => {
                over(used, bytes, most, Counted::Bytes { is_set })
            }
            Allowance { objects: Some(most), .. } if had == 0 && count >= most => {
                over(count, 1, most, Counted::Objects)
            }
            _ => {
                user.writing.insert(ticket, bytes);
                return Ok(());
            }
        };
        let spare = self.spare_of(owner);
        Err((over, spare))
    }

    /// What was being written is whole, or never will be.
    pub(crate) fn release_ticket(&mut self, owner: &Arc<str>, ticket: u64) {
        if let Some(user) = self.users.get_mut(owner) {
            user.writing.remove(&ticket);
        }
    }

    /// A user's holder needs an object.
    pub(crate) fn hold(&mut self, owner: &Arc<str>, holder: &str, object: &str, bytes: u64) {
        self.turn += 1;
        let user = self.users.entry(owner.clone()).or_default();
        let entry = Entry { bytes, used: self.turn };
        if user.objects.insert(object.to_owned(), entry).is_none() {
            user.bytes += bytes;
        }
        let (_, held) =
            self.holders.entry(holder.to_owned()).or_insert_with(|| (owner.clone(), HashSet::new()));
        if held.insert(object.to_owned()) {
            *self.needed.entry(object.to_owned()).or_default() += 1;
        }
    }

    /// A holder needs nothing any more. What it held is spare from now on, unless others hold it.
    pub(crate) fn release(&mut self, holder: &str) {
        for object in self.holders.remove(holder).into_iter().flat_map(|(_, held)| held) {
            if let Some(count) = self.needed.get_mut(&object) {
                *count -= 1;
                if *count == 0 {
                    self.needed.remove(&object);
                }
            }
        }
    }

    /// True when somebody needs it.
    pub(crate) fn is_held(&self, object: &str) -> bool {
        self.needed.contains_key(object)
    }

    /// Holders whose names begin so.
    pub(crate) fn holders(&self, prefix: &str) -> Vec<String> {
        self.holders.keys().filter(|holder| holder.starts_with(prefix)).cloned().collect()
    }

    /// The user's objects that none of his holders needs, those first that were not used for the longest time.
    fn spare_of(&self, owner: &Arc<str>) -> Vec<String> {
        let Some(user) = self.users.get(owner) else { return Vec::new() };
        let own = self.holders.values().filter(|(of, _)| of == owner);
        let needed: HashSet<&String> = own.flat_map(|(_, held)| held).collect();
        let mut spare: Vec<_> = user.objects.iter().filter(|(object, _)| !needed.contains(object)).collect();
        spare.sort_by_key(|(_, entry)| entry.used);
        spare.into_iter().map(|(object, _)| object.clone()).collect()
    }

    /// Everybody's objects that nobody needs, those first that were not used for the longest time.
    pub(crate) fn spare(&self) -> Vec<String> {
        let mut spare: HashMap<&String, u64> = HashMap::new();
        for (object, entry) in self.users.values().flat_map(|user| &user.objects) {
            if !self.is_held(object) {
                let used = spare.entry(object).or_default();
                *used = entry.used.max(*used);
            }
        }
        let mut spare: Vec<_> = spare.into_iter().collect();
        spare.sort_by_key(|(_, used)| *used);
        spare.into_iter().map(|(object, _)| object.clone()).collect()
    }

    /// One user has no more to do with an object that he does not need. True when nobody is charged for it any more.
    pub(crate) fn give_up(&mut self, owner: &Arc<str>, object: &str) -> bool {
        if let Some(user) = self.users.get_mut(owner)
            && let Some(entry) = user.objects.remove(object)
        {
            user.bytes -= entry.bytes;
        }
        !self.users.values().any(|user| user.objects.contains_key(object))
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, object: &str) {
        for user in self.users.values_mut() {
            if let Some(entry) = user.objects.remove(object) {
                user.bytes -= entry.bytes;
            }
        }
        self.users.retain(|_, user| !user.objects.is_empty() || !user.writing.is_empty());
    }

    /// Bytes and objects of a user.
    pub(crate) fn usage(&self, owner: &str) -> (u64, u64) {
        self.users.get(owner).map_or((0, 0), |user| (user.total(), user.objects.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(bytes: u64, objects: u64) -> Allowance {
        Allowance { bytes: Some(bytes), objects: Some(objects) }
    }

    #[test]
    fn a_user_is_charged_once_for_what_his_jobs_share_and_others_for_themselves() {
        let mut ledger = Ledger::default();
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        ledger.hold(&ann, "job 1", "x", 60);
        ledger.hold(&ann, "job 2", "x", 60);
        ledger.hold(&bob, "job 3", "x", 60);
        assert_eq!((ledger.usage("ann"), ledger.usage("bob")), ((60, 1), (60, 1)));
        let reserve = |ledger: &mut Ledger, who: &Arc<str>, bytes| {
            ledger.reserve(who, 1, bytes, allow(100, 9), true, Besides::default())
        };
        assert_eq!(reserve(&mut ledger, &ann, 40), Ok(()));
        // The same ticket for more: what it had is not counted twice.
        let (over, spare) = reserve(&mut ledger, &ann, 41).unwrap_err();
        assert!(spare.is_empty(), "both of her jobs need it");
        let said = over.to_string();
        assert!(said.contains("STORE_QUOTA") && said.contains("ann") && said.contains("release"), "{said}");
        ledger.release("job 1");
        assert!(reserve(&mut ledger, &ann, 41).unwrap_err().1.is_empty(), "the other still does");
        ledger.release("job 2");
        assert_eq!(reserve(&mut ledger, &ann, 41).unwrap_err().1, ["x"]);
        assert!(ledger.is_held("x") && !ledger.give_up(&ann, "x"), "bob's job needs it");
        assert_eq!(reserve(&mut ledger, &ann, 100), Ok(()));
        ledger.release_ticket(&ann, 1);
        assert_eq!(ledger.usage("ann"), (0, 0));
        ledger.release("job 3");
        assert!(!ledger.is_held("x") && ledger.give_up(&bob, "x"));
    }

    #[test]
    fn objects_are_counted_too_and_what_others_know_of() {
        let mut ledger = Ledger::default();
        let ann: Arc<str> = "ann".into();
        ledger.hold(&ann, "job", "x", 1);
        assert_eq!(ledger.reserve(&ann, 1, 1, allow(100, 2), true, Besides::default()), Ok(()));
        let (over, _) = ledger.reserve(&ann, 2, 1, allow(100, 2), true, Besides::default()).unwrap_err();
        assert!(over.to_string().contains("STORE_QUOTA_OBJECTS"), "{over}");
        let besides = Besides { bytes: 99, objects: 0 };
        assert!(ledger.reserve(&ann, 1, 1, allow(100, 9), false, besides).is_err());
        assert_eq!(ledger.reserve(&ann, 2, 1 << 40, Allowance::default(), false, besides), Ok(()));
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let mut ledger = Ledger::default();
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        for object in ["a", "b", "c"] {
            ledger.hold(&ann, "job 1", object, 1);
        }
        ledger.hold(&bob, "job 2", "c", 1);
        ledger.hold(&ann, "job 1", "a", 1);
        assert_eq!(ledger.spare(), [] as [&str; 0]);
        ledger.release("job 1");
        assert_eq!(ledger.spare(), ["b", "a"]);
        assert_eq!(ledger.holders("job"), ["job 2"]);
        ledger.forget("b");
        assert_eq!((ledger.spare(), ledger.usage("ann")), (vec!["a".to_owned()], (2, 2)));
    }
}
