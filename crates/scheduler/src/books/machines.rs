//! Machines by name: looked up many times in each decision, by number in long rows, and walked in order now and then.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Index};
use std::sync::Arc;

use crate::pool::Machine;

/// All machines. Numbers are small and dense.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines {
    all: Vec<Option<Box<Machine>>>,
    /// A tree of names is a dozen pointers deep in a large pool, each to somewhere else: too slow to ask each time.
    numbers: HashMap<Arc<str>, u32>,
    order: BTreeMap<Arc<str>, u32>,
}

impl Machines {
    fn number(&self, name: &(impl AsRef<str> + ?Sized)) -> Option<usize> {
        self.numbers.get(name.as_ref()).map(|number| *number as usize)
    }

    pub(crate) fn get(&self, name: &(impl AsRef<str> + ?Sized)) -> Option<&Machine> {
        self.all.get(self.number(name)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, name: &(impl AsRef<str> + ?Sized)) -> Option<&mut Machine> {
        let number = self.number(name)?;
        self.all.get_mut(number)?.as_deref_mut()
    }

    /// The machine with a number.
    pub(crate) fn at(&self, number: u32) -> Option<&Machine> {
        self.all.get(number as usize)?.as_deref()
    }

    pub(crate) fn contains_key(&self, name: &(impl AsRef<str> + ?Sized)) -> bool {
        self.number(name).is_some()
    }

    /// The name, as all share it.
    pub(crate) fn key(&self, name: &str) -> Option<&Arc<str>> {
        self.numbers.get_key_value(name).map(|(name, _)| name)
    }

    /// Puts a machine at its number.
    pub(crate) fn insert(&mut self, name: Arc<str>, machine: Machine) {
        let number = machine.number;
        let at = number as usize;
        if at >= self.all.len() {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(Box::new(machine));
        self.numbers.insert(name.clone(), number);
        self.order.insert(name, number);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Machine> {
        self.order.remove(name);
        let number = self.numbers.remove(name)?;
        self.all.get_mut(number as usize)?.take().map(|machine| *machine)
    }

    /// Names in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> + '_ {
        self.order.keys()
    }

    /// In order of number.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Machine> + '_ {
        self.all.iter().filter_map(Option::as_deref)
    }

    /// In order of name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Machine)> + '_ {
        self.after(None)
    }

    /// The same, from a name on.
    pub(crate) fn iter_from(&self, name: &str) -> impl Iterator<Item = (&Arc<str>, &Machine)> + '_ {
        let range = self.order.range::<str, _>((Bound::Included(name), Bound::Unbounded));
        range.filter_map(|(name, number)| Some((name, self.at(*number)?)))
    }

    /// The same, behind a name.
    pub(crate) fn after(&self, name: Option<&Arc<str>>) -> impl Iterator<Item = (&Arc<str>, &Machine)> + '_ {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.order.range::<Arc<str>, _>((from, Bound::Unbounded));
        range.filter_map(|(name, number)| Some((name, self.at(*number)?)))
    }
}

impl<Q: AsRef<str> + ?Sized> Index<&Q> for Machines {
    type Output = Machine;

    fn index(&self, name: &Q) -> &Machine {
        self.get(name).expect("a known machine")
    }
}
