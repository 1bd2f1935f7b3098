//! The ad: a set of named expressions. Cloning is one reference count; writing copies when shared.

use crate::error::ParseError;
use crate::expr::{Expr, Node, Repr};
use crate::limits;
use crate::name::{Name, Special};
use crate::value::Value;
use std::fmt;
use std::sync::Arc;

/// A ClassAd.
///
/// ```
/// use classad::ClassAd;
/// let mut ad = ClassAd::new();
/// ad.set("Memory", 2048);
/// ad.insert_text("Requirements", "TARGET.RequestMemory <= Memory").unwrap();
/// assert_eq!(ad.eval("memory").as_int(), Some(2048));
/// assert_eq!(ad.to_string(), "[ Memory = 2048; Requirements = TARGET.RequestMemory <= Memory ]");
/// ```
#[derive(Clone, Default)]
pub struct ClassAd(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    entries: Vec<(Name, Expr)>,
    /// Open addressing by name hash, entry number plus one, zero is empty; absent for small ads.
    index: Box<[u16]>,
    /// How many attributes carry a name with a meaning of its own (`my`, `target`, ...).
    specials: u16,
}

/// Up to this many attributes a scan beats the index.
const SCAN_MAX: usize = 8;

impl ClassAd {
    /// An ad without attributes.
    pub fn new() -> ClassAd {
        ClassAd::default()
    }

    /// Reads an ad in the new bracket syntax; text after the closing bracket is ignored.
    pub fn parse_new(text: &str) -> Result<ClassAd, ParseError> {
        crate::parse::ad(text)
    }

    /// Reads an ad in the old line syntax, strictly: a line that does not parse is an error.
    pub fn parse_old(text: &str) -> Result<ClassAd, ParseError> {
        crate::parse::old_ad(text)
    }

    /// Reads an ad in the old line syntax as HTCondor does: a line that does not parse ends the ad silently.
    pub fn parse_old_lenient(text: &str) -> ClassAd {
        crate::parse::old_ad_lenient(text)
    }

    /// Puts an expression under a name; an earlier one is replaced and its spelling kept.
    ///
    /// An ad that already has [`limits::AD_ATTRIBUTES`] attributes takes no new ones.
    pub fn insert(&mut self, name: impl Into<Name>, expr: Expr) {
        let name = name.into();
        let found = self.find(&name);
        let inner = Arc::make_mut(&mut self.0);
        if let Some(at) = found {
            inner.entries[at].1 = expr;
        } else if inner.entries.len() < limits::AD_ATTRIBUTES {
            if name.special() != Special::None {
                inner.specials += 1;
            }
            inner.entries.push((name, expr));
            inner.index_last();
        }
    }

    /// Puts a value under a name.
    pub fn set(&mut self, name: impl Into<Name>, value: impl Into<Value>) {
        self.insert(name, Expr::literal(value));
    }

    /// Puts a string under a name.
    pub fn insert_str(&mut self, name: impl Into<Name>, value: &str) {
        self.set(name, value);
    }

    /// Puts an integer under a name.
    pub fn insert_int(&mut self, name: impl Into<Name>, value: i64) {
        self.set(name, value);
    }

    /// Puts a real under a name.
    pub fn insert_real(&mut self, name: impl Into<Name>, value: f64) {
        self.set(name, value);
    }

    /// Puts a bool under a name.
    pub fn insert_bool(&mut self, name: impl Into<Name>, value: bool) {
        self.set(name, value);
    }

    /// Parses the text and puts the expression under a name.
    pub fn insert_text(&mut self, name: impl Into<Name>, text: &str) -> Result<(), ParseError> {
        self.insert(name, Expr::parse(text)?);
        Ok(())
    }

    /// The expression under a name.
    pub fn get(&self, name: &str) -> Option<&Expr> {
        self.lookup(&Name::new(name))
    }

    /// The expression under an interned name: what to use in loops.
    #[inline]
    pub fn lookup(&self, name: &Name) -> Option<&Expr> {
        self.find(name).map(|at| &self.0.entries[at].1)
    }

    /// True if there is an attribute of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Takes an attribute out.
    pub fn remove(&mut self, name: &str) -> Option<Expr> {
        let at = self.find(&Name::new(name))?;
        let inner = Arc::make_mut(&mut self.0);
        let (name, expr) = inner.entries.swap_remove(at);
        if name.special() != Special::None {
            inner.specials -= 1;
        }
        inner.reindex();
        Some(expr)
    }

    /// The attributes in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Expr)> {
        self.0.entries.iter().map(|(name, expr)| (name, expr))
    }

    /// The attributes in the order in which ads are printed: by length of the name, then by name.
    pub fn sorted(&self) -> Vec<(&Name, &Expr)> {
        let mut entries: Vec<(&Name, &Expr)> = self.iter().collect();
        entries.sort_by(|a, b| a.0.print_order(b.0));
        entries
    }

    /// How many attributes there are.
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }

    /// Takes over all attributes of another ad; its expressions win.
    pub fn update(&mut self, other: &ClassAd) {
        for (name, expr) in other.iter() {
            self.insert(name, expr.clone());
        }
    }

    /// The ad in the old line syntax.
    pub fn to_old_string(&self) -> String {
        crate::print::old_ad(self)
    }

    /// The ad over several lines.
    pub fn to_pretty_string(&self) -> String {
        crate::print::pretty_ad(self)
    }

    /// Bytes the ad holds, shared expressions counted as if they were its own.
    pub fn memory_bytes(&self) -> usize {
        let inner = &*self.0;
        size_of::<Inner>()
            + 16
            + inner.entries.capacity() * size_of::<(Name, Expr)>()
            + inner.index.len() * 2
            + inner.entries.iter().map(|(_, e)| crate::refs::heap_bytes(e)).sum::<usize>()
    }

    /// Two handles of one ad.
    pub(crate) fn same(&self, other: &ClassAd) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if some attribute hides a name such as `MY` or `TARGET`.
    #[inline]
    pub(crate) fn has_specials(&self) -> bool {
        self.0.specials != 0
    }

    #[inline]
    fn find(&self, name: &Name) -> Option<usize> {
        let inner = &*self.0;
        if inner.index.is_empty() {
            return inner.entries.iter().position(|(n, _)| n == name);
        }
        let mask = inner.index.len() - 1;
        let mut slot = name.hash32() as usize & mask;
        loop {
            let at = inner.index[slot];
            if at == 0 {
                return None;
            }
            let at = usize::from(at) - 1;
            if inner.entries[at].0 == *name {
                return Some(at);
            }
            slot = (slot + 1) & mask;
        }
    }
}

impl Inner {
    fn index_last(&mut self) {
        let count = self.entries.len();
        if count <= SCAN_MAX {
            return;
        }
        if self.index.len() < count * 2 {
            self.reindex();
        } else {
            self.place(count - 1);
        }
    }

    fn reindex(&mut self) {
        let count = self.entries.len();
        if count <= SCAN_MAX {
            self.index = Box::default();
            return;
        }
        self.index = vec![0; (count * 2).next_power_of_two()].into();
        for at in 0..count {
            self.place(at);
        }
    }

    fn place(&mut self, at: usize) {
        let mask = self.index.len() - 1;
        let mut slot = self.entries[at].0.hash32() as usize & mask;
        while self.index[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.index[slot] = at as u16 + 1;
    }
}

/// The same names with the same expressions.
impl PartialEq for ClassAd {
    fn eq(&self, other: &ClassAd) -> bool {
        self.same(other)
            || (self.len() == other.len() && self.iter().all(|(name, expr)| other.lookup(name) == Some(expr)))
    }
}

impl fmt::Display for ClassAd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::print::new_ad(self))
    }
}

impl fmt::Debug for ClassAd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<N: Into<Name>> FromIterator<(N, Expr)> for ClassAd {
    fn from_iter<I: IntoIterator<Item = (N, Expr)>>(entries: I) -> ClassAd {
        let mut ad = ClassAd::new();
        for (name, expr) in entries {
            ad.insert(name, expr);
        }
        ad
    }
}

impl From<ClassAd> for Expr {
    fn from(ad: ClassAd) -> Expr {
        Expr(Repr::Node(Arc::new(Node::Ad(ad))))
    }
}
