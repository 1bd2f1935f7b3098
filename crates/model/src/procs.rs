//! A set of proc numbers kept as intervals: a million neighbours cost as much as one.

use prost::Message;
use serde::{Deserialize, Serialize};

/// `count` procs from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct Span {
    /// First proc.
    #[prost(uint32, tag = "1")]
    pub first: u32,
    /// How many, at least 1.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

impl Span {
    /// The procs of this span.
    pub fn procs(self) -> std::ops::Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// A set of proc numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcSet {
    /// (start, end), end exclusive; in order, never touching, never empty. A vector, because most sets are one span
    /// and most changes happen at an end.
    spans: Vec<(u32, u32)>,
    len: u64,
}

impl ProcSet {
    /// The set `0..procs`.
    pub fn all(procs: u32) -> Self {
        let mut set = Self::default();
        set.insert_range(0, procs);
        set
    }

    /// Number of procs in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when no proc is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lowest proc.
    pub fn first(&self) -> Option<u32> {
        self.spans.first().map(|(start, _)| *start)
    }

    /// True when the proc is in the set.
    pub fn contains(&self, proc: u32) -> bool {
        let after = self.spans.partition_point(|(start, _)| *start <= proc);
        after > 0 && proc < self.spans[after - 1].1
    }

    /// Adds one proc; false when it was there.
    pub fn insert(&mut self, proc: u32) -> bool {
        let before = self.len;
        self.insert_range(proc, proc.saturating_add(1));
        self.len != before
    }

    /// Adds `start..end`.
    pub fn insert_range(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        if self.spans.is_empty() {
            // Most sets are one span and stay so: no room for more until there is need.
            self.spans.reserve_exact(1);
        }
        // The spans that overlap or touch are replaced by their union with the new one.
        let from = self.spans.partition_point(|(_, b)| *b < start);
        let to = self.spans.partition_point(|(a, _)| *a <= end);
        let mut union = (start, end);
        for (a, b) in &self.spans[from..to] {
            union = (union.0.min(*a), union.1.max(*b));
            self.len -= u64::from(b - a);
        }
        self.spans.splice(from..to, [union]);
        self.len += u64::from(union.1 - union.0);
    }

    /// Adds all procs of another set.
    pub fn insert_all(&mut self, other: &Self) {
        for &(start, end) in &other.spans {
            self.insert_range(start, end);
        }
    }

    /// What is in both, span by span.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut both, mut mine, mut theirs) = (Self::default(), self.spans.iter(), other.spans.iter());
        let (mut a, mut b) = (mine.next(), theirs.next());
        while let (Some(x), Some(y)) = (a, b) {
            both.insert_range(x.0.max(y.0), x.1.min(y.1));
            if x.1 < y.1 {
                a = mine.next();
            } else {
                b = theirs.next();
            }
        }
        both
    }

    /// Takes one proc out; false when it was not there.
    pub fn remove(&mut self, proc: u32) -> bool {
        let before = self.len;
        self.remove_range(proc, proc.saturating_add(1));
        self.len != before
    }

    /// Takes `start..end` out.
    pub fn remove_range(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let from = self.spans.partition_point(|(_, b)| *b <= start);
        let to = self.spans.partition_point(|(a, _)| *a < end);
        if from >= to {
            return;
        }
        let (first, last) = (self.spans[from], self.spans[to - 1]);
        self.len -= self.spans[from..to].iter().map(|(a, b)| u64::from(b - a)).sum::<u64>();
        let left = (first.0 < start).then_some((first.0, start));
        let right = (last.1 > end).then_some((end, last.1));
        self.len += [left, right].into_iter().flatten().map(|(a, b)| u64::from(b - a)).sum::<u64>();
        match (left, right, to - from) {
            // What stays in place need not move the rest: the common case of taking from the front.
            (Some(span), None, 1) | (None, Some(span), 1) => self.spans[from] = span,
            _ => drop(self.spans.splice(from..to, left.into_iter().chain(right))),
        }
    }

    /// The lowest procs, at most `count`, as spans; the set is not changed.
    pub fn peek(&self, count: u32) -> Vec<Span> {
        let mut left = count;
        let mut spans = Vec::new();
        for &(start, end) in &self.spans {
            if left == 0 {
                break;
            }
            let count = (end - start).min(left);
            spans.push(Span { first: start, count });
            left -= count;
        }
        spans
    }

    /// All procs in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans.iter().flat_map(|&(a, b)| a..b)
    }

    /// The procs from one on, in order. What is before costs nothing.
    pub fn iter_from(&self, proc: u32) -> impl Iterator<Item = u32> + '_ {
        let begin = self.spans.partition_point(|(_, end)| *end <= proc);
        self.spans[begin..].iter().flat_map(move |&(a, b)| a.max(proc)..b)
    }

    /// All spans in order.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.iter().map(|&(a, b)| Span { first: a, count: b - a }).collect()
    }
}

impl<'a> FromIterator<&'a Span> for ProcSet {
    fn from_iter<I: IntoIterator<Item = &'a Span>>(spans: I) -> Self {
        let mut set = Self::default();
        for span in spans {
            set.insert_range(span.first, span.first.saturating_add(span.count));
        }
        set
    }
}

impl FromIterator<u32> for ProcSet {
    fn from_iter<I: IntoIterator<Item = u32>>(procs: I) -> Self {
        let mut set = Self::default();
        for proc in procs {
            set.insert(proc);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u32),
        Remove(u32),
        InsertRange(u32, u32),
        RemoveRange(u32, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..60u32).prop_map(Step::Insert),
            (0..60u32).prop_map(Step::Remove),
            (0..60u32, 0..60u32).prop_map(|(a, b)| Step::InsertRange(a, b)),
            (0..60u32, 0..60u32).prop_map(|(a, b)| Step::RemoveRange(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn a_proc_set_is_a_set(steps in proptest::collection::vec(step(), 0..60), peek in 0..70u32) {
            let mut set = ProcSet::default();
            let mut truth = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Insert(p) => prop_assert_eq!(set.insert(p), truth.insert(p)),
                    Step::Remove(p) => prop_assert_eq!(set.remove(p), truth.remove(&p)),
                    Step::InsertRange(a, b) => { set.insert_range(a, b); truth.extend(a..b.max(a)); }
                    Step::RemoveRange(a, b) => { set.remove_range(a, b); truth.retain(|p| !(a..b).contains(p)); }
                }
                prop_assert_eq!(set.len(), truth.len() as u64);
                prop_assert!(set.iter().eq(truth.iter().copied()));
                prop_assert_eq!(set.first(), truth.first().copied());
            }
            for p in 0..61 {
                prop_assert_eq!(set.contains(p), truth.contains(&p));
            }
            let peeked: Vec<u32> = set.peek(peek).iter().flat_map(|s| s.procs()).collect();
            prop_assert!(peeked.iter().copied().eq(truth.iter().copied().take(peek as usize)));
            let spans = set.spans();
            prop_assert!(spans.windows(2).all(|w| w[0].first + w[0].count < w[1].first), "spans touch");
            prop_assert_eq!(spans.iter().collect::<ProcSet>(), set.clone());
            let mut half = ProcSet::default();
            (0..peek).filter(|p| p % 3 > 0).for_each(|p| { half.insert(p); });
            let both = truth.iter().copied().filter(|p| half.contains(*p));
            prop_assert!(set.intersection(&half).iter().eq(both.clone()));
            prop_assert!(half.intersection(&set).iter().eq(both));
        }
    }
}
