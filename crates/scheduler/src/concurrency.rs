//! Concurrency limits: named things of which the pool has only so many (licences, database connections).
//!
//! A job says which it takes (`ConcurrencyLimits = "matlab, db:2"`); a claim holds them as long as it lives. A job over a
//! limit is passed over, not its user.

use std::collections::{BTreeMap, HashMap};

use classad::{ClassAd, Value};
use model::attributes::CONCURRENCY_LIMITS;

/// How much there is of what nobody set (CONCURRENCY_LIMIT_DEFAULT).
pub(crate) const DEFAULT_LIMIT: f64 = 2_308_032.0;

/// How much there is of what.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// NAME_LIMIT, names in lower case.
    pub named: HashMap<String, f64>,
    /// CONCURRENCY_LIMIT_DEFAULT.
    pub default: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { named: HashMap::new(), default: DEFAULT_LIMIT }
    }
}

impl Limits {
    /// How much there is of a thing. `licence.special` is its own thing, with the limit of `licence` unless it has one.
    fn of(&self, name: &str) -> f64 {
        let class = name.split_once('.').and_then(|(class, _)| self.named.get(class));
        *self.named.get(name).or(class).unwrap_or(&self.default)
    }
}

/// What is in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct InUse {
    limits: Limits,
    taken: BTreeMap<Box<str>, f64>,
}

impl InUse {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, taken: BTreeMap::new() }
    }

    /// The first thing there is too little of, how much of it is wanted, and how much there is in all; `None` when there
    /// is enough of everything.
    pub(crate) fn short_of<'a>(&self, wants: &'a [(Box<str>, f64)]) -> Option<(&'a str, f64, f64)> {
        wants.iter().find_map(|(name, count)| {
            let most = self.limits.of(name);
            let taken = self.taken.get(name).copied().unwrap_or(0.0);
            (taken + count > most).then_some((&**name, *count, most))
        })
    }

    pub(crate) fn take(&mut self, wants: &[(Box<str>, f64)]) {
        for (name, count) in wants {
            *self.taken.entry(name.clone()).or_default() += count;
        }
    }

    /// Something of which more is in use than there is: how much, and how much there is.
    pub(crate) fn overdrawn(&self) -> Option<(&str, f64, f64)> {
        let mut all = self.taken.iter().map(|(name, taken)| (&**name, *taken, self.limits.of(name)));
        all.find(|(_, taken, most)| taken > &(most + 1e-9))
    }

    /// How much of each named resource is in use.
    pub(crate) fn taken(&self) -> &BTreeMap<Box<str>, f64> {
        &self.taken
    }

    /// Something else is in use than was booked.
    pub(crate) fn put_right(&mut self, name: &str, taken: f64) {
        self.taken.remove(name);
        if taken > 0.0 {
            self.taken.insert(name.into(), taken);
        }
    }

    pub(crate) fn give_back(&mut self, wants: &[(Box<str>, f64)]) {
        for (name, count) in wants {
            if let Some(taken) = self.taken.get_mut(name) {
                *taken -= count;
                if *taken <= 0.0 {
                    self.taken.remove(name);
                }
            }
        }
    }
}

/// What a job takes, in order of name.
pub(crate) fn limits_of(ad: &ClassAd) -> Box<[(Box<str>, f64)]> {
    let Value::Str(text) = ad.eval(CONCURRENCY_LIMITS) else { return Box::default() };
    let text = text.to_string().to_ascii_lowercase();
    let mut wants: Vec<(Box<str>, f64)> = text
        .split([',', ' '])
        .filter(|word| !word.is_empty())
        .take(100)
        .map(|word| {
            let (name, count) = word.split_once(':').unwrap_or((word, "1"));
            (name.into(), count.parse().ok().filter(|n: &f64| *n > 0.0).unwrap_or(1.0))
        })
        .collect();
    wants.sort_by(|a, b| a.0.cmp(&b.0));
    wants.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(text: &str) -> Box<[(Box<str>, f64)]> {
        let mut ad = ClassAd::new();
        ad.insert_text("ConcurrencyLimits", &model::text::quote(text)).unwrap();
        limits_of(&ad)
    }

    #[test]
    fn what_is_taken_is_missing_until_it_is_given_back() {
        let named = [("matlab".to_owned(), 2.0), ("db".to_owned(), 3.0)].into();
        let mut in_use = InUse::new(Limits { named, default: 10.0 });
        let (one, two, special) = (wants("Matlab"), wants("db:2, matlab"), wants("matlab.toolbox:2"));
        in_use.take(&one);
        in_use.take(&two);
        assert_eq!(in_use.short_of(&one), Some(("matlab", 1.0, 2.0)));
        assert_eq!(in_use.short_of(&wants("db:2")), Some(("db", 2.0, 3.0)));
        assert_eq!(in_use.short_of(&wants("db")), None);
        assert_eq!(in_use.short_of(&special), None, "a thing of its own, with its class's limit");
        assert_eq!(in_use.short_of(&wants("matlab.toolbox:3")), Some(("matlab.toolbox", 3.0, 2.0)));
        in_use.give_back(&two);
        assert_eq!(in_use.short_of(&one), None);
        assert_eq!(in_use.short_of(&wants("other:11")), Some(("other", 11.0, 10.0)));
        assert!(wants("").is_empty());
    }
}
