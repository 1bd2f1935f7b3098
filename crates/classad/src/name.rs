//! Attribute and function names: case-insensitive, spelling kept, shared.
//!
//! Names are interned in a bounded process-wide table, so that comparing two of them is comparing two
//! numbers. The bound keeps a stream of hostile ads from filling memory: a name that finds the table full
//! still works, it only compares by text.

use crate::limits;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, PoisonError, RwLock};

/// A name with its spelling; equality, order and hash ignore ASCII case.
///
/// ```
/// use classad::Name;
/// assert_eq!(Name::new("Memory"), Name::new("MEMORY"));
/// assert_eq!(Name::new("Memory").as_str(), "Memory");
/// ```
#[derive(Clone)]
pub struct Name(Arc<Inner>);

struct Inner {
    /// Shared by all spellings of one name; zero when the table was full.
    id: u32,
    /// Of the lower-case text, seeded per process so that nobody can aim collisions at an ad.
    hash: u32,
    special: Special,
    text: Box<str>,
}

/// Names with a meaning of their own when no attribute of that name is in reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    None,
    My,
    Target,
    Other,
    Own,
    Parent,
    Root,
    CurrentTime,
    Ad,
    Match,
}

impl Special {
    fn of(lower: &str) -> Special {
        match lower {
            "my" => Special::My,
            "self" => Special::Own,
            "target" => Special::Target,
            "other" => Special::Other,
            "parent" => Special::Parent,
            "root" | "toplevel" => Special::Root,
            "currenttime" => Special::CurrentTime,
            "ad" => Special::Ad,
            "left" | "right" | "lctx" | "rctx" | "symmetricmatch" | "leftmatchesright"
            | "rightmatchesleft" | "leftrankvalue" | "rightrankvalue" => Special::Match,
            _ => Special::None,
        }
    }
}

#[derive(Default)]
struct Table {
    /// By exact spelling.
    names: HashMap<Box<str>, Name>,
    /// By lower-case text.
    ids: HashMap<Box<str>, u32>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);
/// By the number of a name: some expression mentions it, so ads keep its attribute close to others like it.
static MENTIONED: [AtomicU64; limits::INTERNED_NAMES / 64 + 1] =
    [const { AtomicU64::new(0) }; limits::INTERNED_NAMES / 64 + 1];
static SEED: OnceLock<RandomState> = OnceLock::new();

impl Name {
    /// The name with this spelling.
    pub fn new(text: &str) -> Name {
        if text.len() > limits::INTERNED_NAME_BYTES {
            return Name::make(0, text);
        }
        if let Some(name) = TABLE.read().unwrap_or_else(PoisonError::into_inner).names.get(text) {
            return name.clone();
        }
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = table.names.get(text) {
            return name.clone();
        }
        if table.names.len() >= limits::INTERNED_NAMES {
            // A spelling of a known name must still carry its number: two names with numbers are compared
            // by number alone.
            let id = table.ids.get(text.to_ascii_lowercase().as_str()).copied().unwrap_or(0);
            return Name::make(id, text);
        }
        let next = table.ids.len() as u32 + 1;
        let id = *table.ids.entry(text.to_ascii_lowercase().into()).or_insert(next);
        let name = Name::make(id, text);
        table.names.insert(text.into(), name.clone());
        name
    }

    fn make(id: u32, text: &str) -> Name {
        let lower = text.to_ascii_lowercase();
        #[expect(
            clippy::disallowed_methods,
            reason = "nobody outside can tell; keeps strangers from choosing names that collide"
        )]
        let hash = SEED.get_or_init(RandomState::new).hash_one(&lower);
        Name(Arc::new(Inner {
            id,
            hash: (hash ^ (hash >> 32)) as u32,
            special: Special::of(&lower),
            text: text.into(),
        }))
    }

    /// The spelling.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    pub(crate) fn special(&self) -> Special {
        self.0.special
    }

    /// Notes that an expression mentions the name. Only a hint, so that no order between threads matters.
    pub(crate) fn mention(&self) {
        if !self.is_mentioned() && self.0.id != 0 {
            MENTIONED[self.0.id as usize / 64].fetch_or(1 << (self.0.id % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_mentioned(&self) -> bool {
        MENTIONED[self.0.id as usize / 64].load(Ordering::Relaxed) >> (self.0.id % 64) & 1 == 1
    }

    pub(crate) fn hash32(&self) -> u32 {
        self.0.hash
    }

    /// The key that orders printed ads: length first, then text without case.
    pub(crate) fn print_order(&self, other: &Name) -> std::cmp::Ordering {
        let (a, b) = (self.as_str(), other.as_str());
        a.len().cmp(&b.len()).then_with(|| {
            a.bytes().map(|c| c.to_ascii_lowercase()).cmp(b.bytes().map(|c| c.to_ascii_lowercase()))
        })
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        // One spelling is one allocation, as a rule.
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let (a, b) = (&*self.0, &*other.0);
        if a.id != 0 && b.id != 0 {
            return a.id == b.id;
        }
        a.hash == b.hash && a.text.eq_ignore_ascii_case(&b.text)
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str().eq_ignore_ascii_case(other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0.hash);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        self.print_order(other)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::new(text)
    }
}

impl From<&String> for Name {
    fn from(text: &String) -> Name {
        Name::new(text)
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Name {
        name.clone()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
