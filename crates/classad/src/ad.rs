//! The ad: a set of named expressions. Cloning is one reference count; writing copies when shared.

use crate::error::ParseError;
use crate::expr::{Expr, Node, Repr};
use crate::limits;
use crate::name::{Name, Special};
use crate::share;
use crate::value::Value;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

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
    shape: Arc<Shape>,
    /// In the order of the names of the shape.
    values: Vec<Expr>,
}

/// The names of an ad. The ads of a pool have few different sets of names; those that were parsed share
/// theirs, which makes them smaller and keeps the index in the processor's cache.
#[derive(Clone, Default)]
struct Shape {
    names: Vec<Name>,
    /// Open addressing by name hash, position plus one, zero is empty; absent for small ads.
    index: Box<[u16]>,
    /// How many names have a meaning of their own (`my`, `target`, ...).
    specials: u16,
}

/// Shapes kept for sharing; when there are more, the table starts over.
const SHAPES: usize = 1024;
static SHARED: LazyLock<RwLock<HashSet<SharedShape>>> = LazyLock::new(RwLock::default);

/// A shape as a key: the same names in the same order and spelling.
struct SharedShape(Arc<Shape>);

impl Hash for SharedShape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.names.hash(state);
    }
}

impl PartialEq for SharedShape {
    fn eq(&self, other: &SharedShape) -> bool {
        let (a, b) = (&self.0.names, &other.0.names);
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.as_str() == b.as_str())
    }
}

impl Eq for SharedShape {}

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

    /// Reads ads in the old line syntax with blank lines between them, strictly.
    ///
    /// ```
    /// let ads = classad::ClassAd::parse_old_many("A = 1\n\nA = 2\nB = 3\n").unwrap();
    /// assert_eq!(ads.len(), 2);
    /// ```
    pub fn parse_old_many(text: &str) -> Result<Vec<ClassAd>, ParseError> {
        crate::parse::old_ads(text)
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
            inner.values[at] = expr;
        } else if inner.values.len() < limits::AD_ATTRIBUTES {
            inner.values.push(expr);
            Arc::make_mut(&mut inner.shape).push(name);
        }
    }

    /// Gives back spare room and shares the set of names with other ads that have the same. An ad that is
    /// itself shared is left alone: to change it would be to copy it.
    pub fn compact(&mut self) {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return };
        inner.gather();
        inner.values.shrink_to_fit();
        for value in &mut inner.values {
            share::pool(value);
        }
        let key = SharedShape(inner.shape.clone());
        if let Some(known) = SHARED.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            inner.shape = known.0.clone();
            return;
        }
        let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= SHAPES {
            shared.clear();
        }
        shared.insert(key);
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
        self.insert(name, crate::parse::attribute(text)?);
        Ok(())
    }

    /// The expression under a name.
    pub fn get(&self, name: &str) -> Option<&Expr> {
        self.lookup(&Name::new(name))
    }

    /// The expression under an interned name: what to use in loops.
    #[inline]
    pub fn lookup(&self, name: &Name) -> Option<&Expr> {
        self.0.shape.find(name).map(|at| &self.0.values[at])
    }

    /// True if there is an attribute of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Takes an attribute out.
    pub fn remove(&mut self, name: &str) -> Option<Expr> {
        let at = self.find(&Name::new(name))?;
        let inner = Arc::make_mut(&mut self.0);
        Arc::make_mut(&mut inner.shape).swap_remove(at);
        Some(inner.values.swap_remove(at))
    }

    /// The attributes in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Expr)> {
        self.0.shape.names.iter().zip(&self.0.values)
    }

    /// The attributes in the order in which ads are printed: by length of the name, then by name.
    pub fn sorted(&self) -> Vec<(&Name, &Expr)> {
        let mut entries: Vec<(&Name, &Expr)> = self.iter().collect();
        entries.sort_by(|a, b| a.0.print_order(b.0));
        entries
    }

    /// How many attributes there are.
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
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

    /// The ad on one line for another program to read; see [`Expr::to_exact_string`].
    pub fn to_exact_string(&self) -> String {
        crate::print::exact_ad(self)
    }

    /// The ad over several lines.
    pub fn to_pretty_string(&self) -> String {
        crate::print::pretty_ad(self)
    }

    /// Bytes the ad holds; what it shares with other ads is counted in parts.
    pub fn memory_bytes(&self) -> usize {
        let inner = &*self.0;
        let shape = size_of::<Shape>() + inner.shape.names.capacity() * 8 + inner.shape.index.len() * 2;
        size_of::<Inner>()
            + 32
            // A shape is divided among the ads that have it; the table that shares it counts too.
            + shape / Arc::strong_count(&inner.shape)
            + inner.values.capacity() * size_of::<Expr>()
            + inner.values.iter().map(crate::refs::share_of_bytes).sum::<usize>()
    }

    /// Two handles of one ad.
    pub(crate) fn same(&self, other: &ClassAd) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if some attribute hides a name such as `MY` or `TARGET`.
    #[inline]
    pub(crate) fn has_specials(&self) -> bool {
        self.0.shape.specials != 0
    }

    fn find(&self, name: &Name) -> Option<usize> {
        self.0.shape.find(name)
    }
}

impl Inner {
    /// Moves the attributes that expressions mention to the front: a match then touches few cache lines.
    fn gather(&mut self) {
        if self.shape.names.is_sorted_by_key(|name| !name.is_mentioned()) {
            return;
        }
        let values = std::mem::take(&mut self.values);
        let mut pairs: Vec<(Name, Expr)> = self.shape.names.iter().cloned().zip(values).collect();
        pairs.sort_by_key(|(name, _)| !name.is_mentioned());
        let shape = Arc::make_mut(&mut self.shape);
        shape.names.clear();
        for (name, value) in pairs {
            shape.names.push(name);
            self.values.push(value);
        }
        shape.reindex();
    }
}

impl Shape {
    #[inline]
    fn find(&self, name: &Name) -> Option<usize> {
        if self.index.is_empty() {
            return self.names.iter().position(|n| n == name);
        }
        let mask = self.index.len() - 1;
        let mut slot = name.hash32() as usize & mask;
        loop {
            let at = self.index[slot];
            if at == 0 {
                return None;
            }
            let at = usize::from(at) - 1;
            if self.names[at] == *name {
                return Some(at);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn push(&mut self, name: Name) {
        if name.special() != Special::None {
            self.specials += 1;
        }
        self.names.push(name);
        let count = self.names.len();
        if count <= SCAN_MAX {
            return;
        }
        if self.index.len() < count * 2 {
            self.reindex();
        } else {
            self.place(count - 1);
        }
    }

    fn swap_remove(&mut self, at: usize) {
        let name = self.names.swap_remove(at);
        if name.special() != Special::None {
            self.specials -= 1;
        }
        self.reindex();
    }

    fn reindex(&mut self) {
        let count = self.names.len();
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
        let mut slot = self.names[at].hash32() as usize & mask;
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
