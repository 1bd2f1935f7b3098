//! The slots column by column. A column holds, for one attribute anyone refers to, a small number per slot
//! that stands for the slot's expression; slots with the same numbers in every column are one class, and
//! nobody can tell them apart.

use super::key::ExprKey;
use crate::ad::ClassAd;
use crate::expr::{Expr, Repr};
use crate::matching::REQUIREMENTS;
use crate::name::Name;
use std::collections::HashMap;

/// The number of a missing attribute.
pub(super) const ABSENT: u32 = 0;
/// The class of a key that has no slot.
pub(super) const NO_CLASS: u32 = u32::MAX;

#[derive(Clone)]
pub(super) struct Column {
    pub(super) name: Name,
    codes: Vec<u32>,
    /// The code of each class.
    pub(super) class_codes: Vec<u32>,
    /// The expression behind code `n` is at `n - 1`.
    pub(super) dictionary: Vec<Expr>,
    code_of: HashMap<ExprKey, u32>,
}

#[derive(Clone)]
pub(super) struct Class {
    /// The ad of its first member; in the columns all members are the same.
    pub(super) sample: ClassAd,
    pub(super) count: u32,
    /// An attribute hides a name like `TARGET`: nothing can be said without looking at the ads.
    pub(super) opaque: bool,
}

#[derive(Clone, Default)]
pub(super) struct Columns {
    #[allow(clippy::struct_field_names)] // the columns of the columns are called nothing else
    pub(super) columns: Vec<Column>,
    column_of: HashMap<Name, usize>,
    pub(super) ads: Vec<Option<ClassAd>>,
    pub(super) class_of_slot: Vec<u32>,
    pub(super) classes: Vec<Class>,
    class_of: HashMap<(bool, Box<[u32]>), u32>,
    /// Changes when codes are renumbered or a slot brings an expression that refers to something new:
    /// then every plan is made afresh.
    pub(super) schema: u64,
    /// Changes when classes are renumbered: then verdicts per class are void.
    pub(super) layout: u64,
    /// A column was added since slots were last put into classes.
    unsettled: bool,
}

impl Columns {
    /// The column of an attribute, made if there is none.
    pub(super) fn column(&mut self, name: &Name) -> usize {
        if let Some(&at) = self.column_of.get(name) {
            return at;
        }
        let mut column = Column {
            name: name.clone(),
            codes: Vec::new(),
            class_codes: Vec::new(),
            dictionary: Vec::new(),
            code_of: HashMap::new(),
        };
        for (key, ad) in self.ads.iter().enumerate() {
            column.encode(key, ad.as_ref());
        }
        self.columns.push(column);
        self.column_of.insert(name.clone(), self.columns.len() - 1);
        self.unsettled = true;
        self.columns.len() - 1
    }

    /// Puts slots into classes again if columns were added; before that, classes must not be read.
    pub(super) fn settle(&mut self) {
        if self.unsettled {
            self.classify_all();
        }
    }

    pub(super) fn put(&mut self, key: u32, mut ad: ClassAd) {
        ad.compact();
        let at = key as usize;
        if at >= self.ads.len() {
            self.ads.resize(at + 1, None);
            self.class_of_slot.resize(at + 1, NO_CLASS);
        }
        self.settle();
        self.leave_class(key);
        for column in &mut self.columns {
            if column.encode(at, Some(&ad)) {
                self.schema += 1;
            }
        }
        self.ads[at] = Some(ad);
        self.join_class(key);
        self.compact_if_worth_it();
    }

    pub(super) fn take(&mut self, key: u32) -> Option<ClassAd> {
        self.settle();
        let ad = self.ads.get_mut(key as usize)?.take()?;
        self.leave_class(key);
        for column in &mut self.columns {
            column.encode(key as usize, None);
        }
        Some(ad)
    }

    /// Classes grouped by what they have in a column.
    pub(super) fn by_code(&self, column: usize, classes: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let codes = &self.columns[column].class_codes;
        let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut at: HashMap<u32, usize> = HashMap::new();
        for &class in classes {
            let code = codes[class as usize];
            // Pools have few policies: the last group is nearly always the right one.
            if let Some((_, group)) = groups.last_mut().filter(|(last, _)| *last == code) {
                group.push(class);
                continue;
            }
            let next = groups.len();
            match *at.entry(code).or_insert(next) {
                known if known < next => {
                    groups[known].1.push(class);
                    // Keep the group in use last, where it is found first.
                    let last = next - 1;
                    if known != last {
                        groups.swap(known, last);
                        at.insert(groups[known].0, known);
                        at.insert(code, last);
                    }
                }
                _ => groups.push((code, vec![class])),
            }
        }
        groups
    }

    fn leave_class(&mut self, key: u32) {
        let class = std::mem::replace(&mut self.class_of_slot[key as usize], NO_CLASS);
        let Some(entry) = self.classes.get_mut(class as usize) else { return };
        entry.count -= 1;
    }

    fn join_class(&mut self, key: u32) {
        let codes: Box<[u32]> = self.columns.iter().map(|c| c.codes[key as usize]).collect();
        let opaque = self.ads[key as usize].as_ref().is_some_and(ClassAd::has_specials);
        let known = self.class_of.get(&(opaque, codes.clone())).copied();
        let class = if let Some(class) = known {
            class
        } else {
            let class = self.classes.len() as u32;
            for (column, code) in self.columns.iter_mut().zip(&codes) {
                column.class_codes.push(*code);
            }
            self.class_of.insert((opaque, codes), class);
            // The ad is kept, not the key: its slot may move to another class tomorrow.
            let sample = self.ads[key as usize].clone().unwrap_or_default();
            self.classes.push(Class { sample, count: 0, opaque });
            class
        };
        self.classes[class as usize].count += 1;
        self.class_of_slot[key as usize] = class;
    }

    fn classify_all(&mut self) {
        self.layout += 1;
        self.unsettled = false;
        self.classes.clear();
        for column in &mut self.columns {
            column.class_codes.clear();
        }
        self.class_of.clear();
        self.class_of_slot.fill(NO_CLASS);
        for key in 0..self.ads.len() {
            if self.ads[key].is_some() {
                self.join_class(key as u32);
            }
        }
    }

    /// Attributes that change all the time leave codes and classes behind; now and then all are renumbered.
    fn compact_if_worth_it(&mut self) {
        const SPARE: usize = 8192;
        let slots = self.ads.len();
        let crowded = self.columns.iter().any(|c| c.dictionary.len() > 2 * slots + SPARE);
        if !crowded && self.classes.len() <= 2 * slots + SPARE {
            return;
        }
        for column in &mut self.columns {
            column.codes.clear();
            column.dictionary.clear();
            column.code_of.clear();
            for (key, ad) in self.ads.iter().enumerate() {
                column.encode(key, ad.as_ref());
            }
        }
        self.schema += 1;
        self.classify_all();
    }
}

impl Column {
    /// Records a slot's expression; true if it is a new one that plans must know: one that refers to other
    /// attributes, or any Requirements.
    fn encode(&mut self, key: usize, ad: Option<&ClassAd>) -> bool {
        if key >= self.codes.len() {
            self.codes.resize(key + 1, ABSENT);
        }
        let Some(expr) = ad.and_then(|ad| ad.lookup(&self.name)) else {
            self.codes[key] = ABSENT;
            return false;
        };
        // Most updates change nothing.
        if let Some(current) = self.codes[key].checked_sub(1)
            && self.dictionary[current as usize] == *expr
        {
            return false;
        }
        let next = self.dictionary.len() as u32 + 1;
        let code = *self.code_of.entry(ExprKey(expr.clone())).or_insert(next);
        self.codes[key] = code;
        if code != next {
            return false;
        }
        self.dictionary.push(expr.clone());
        matches!(expr.0, Repr::Node(_)) || self.name == *REQUIREMENTS
    }
}
