//! How long things took: counts in buckets, so that any number of lengths costs the same and sums can be added.
//!
//! Lengths below 128 ms have a bucket each; above, every power of two is divided into 64 equal buckets. A percentile is the
//! middle of its bucket, so it differs from the true one by at most 1/128 of it, less than 1%. Count, mean and longest are
//! exact.

use prost::Message;
use serde::{Deserialize, Serialize};

/// Lengths below this are counted exactly.
const EXACT: u64 = 128;
/// Buckets of each power of two above that.
const PARTS_BITS: u32 = 6;

/// Half, and all but one in a hundred, are no longer than these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Mean.
    #[serde(rename = "mean_ms")]
    pub mean: f64,
    /// Median, to within 1%.
    #[serde(rename = "p50_ms")]
    pub p50: u64,
    /// One in a hundred is longer; to within 1%.
    #[serde(rename = "p99_ms")]
    pub p99: u64,
    /// The longest.
    #[serde(rename = "longest_ms")]
    pub longest: u64,
}

/// Lengths, counted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lengths {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(uint64, tag = "2")]
    sum: u64,
    #[prost(uint64, tag = "3")]
    longest: u64,
    /// Buckets that have something, in order, and how many each.
    #[prost(uint32, repeated, tag = "4")]
    buckets: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    counts: Vec<u64>,
}

impl Lengths {
    pub(crate) fn add(&mut self, ms: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ms);
        self.longest = self.longest.max(ms);
        self.add_to(bucket_of(ms), 1);
    }

    /// Adds what others counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
        for (bucket, count) in other.buckets.iter().zip(&other.counts) {
            self.add_to(*bucket, *count);
        }
    }

    /// How many buckets have something.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread {
            count: self.count,
            mean: self.sum as f64 / self.count.max(1) as f64,
            p50: self.at(50),
            p99: self.at(99),
            longest: self.longest,
        }
    }

    fn add_to(&mut self, bucket: u32, count: u64) {
        let at = self.buckets.partition_point(|b| *b < bucket);
        if self.buckets.get(at) != Some(&bucket) {
            self.buckets.insert(at, bucket);
            self.counts.insert(at, 0);
        }
        self.counts[at] += count;
    }

    /// The length that so many percent are below.
    fn at(&self, percent: u64) -> u64 {
        let mut below = self.count * percent / 100;
        for (bucket, count) in self.buckets.iter().zip(&self.counts) {
            if below < *count {
                return middle_of(*bucket).min(self.longest);
            }
            below -= count;
        }
        self.longest
    }
}

fn bucket_of(ms: u64) -> u32 {
    if ms < EXACT {
        return ms as u32;
    }
    let power = ms.ilog2();
    let part = (ms >> (power - PARTS_BITS)) as u32 & ((1 << PARTS_BITS) - 1);
    EXACT as u32 + ((power - EXACT.ilog2()) << PARTS_BITS) + part
}

fn middle_of(bucket: u32) -> u64 {
    let Some(beyond) = bucket.checked_sub(EXACT as u32) else { return u64::from(bucket) };
    // What a damaged number might say must not overflow.
    let power = (EXACT.ilog2() + (beyond >> PARTS_BITS)).min(63);
    let width = 1u64 << (power - PARTS_BITS);
    let part = u64::from(beyond & ((1 << PARTS_BITS) - 1));
    (1u64 << power) + part * width + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_length_is_within_one_percent_of_the_middle_of_its_bucket() {
        for power in 0..64u32 {
            for near in [0u64, 1, 3, 1 << power.saturating_sub(7), (1u64 << power) - 1] {
                let ms = (1u64 << power).saturating_add(near);
                let error = middle_of(bucket_of(ms)).abs_diff(ms) as f64 / ms as f64;
                assert!(error <= 1.0 / 128.0, "{ms}: {error}");
            }
        }
        assert!((0..EXACT).all(|ms| middle_of(bucket_of(ms)) == ms));
        assert_eq!(Lengths::default().spread(), Spread::default());
    }

    proptest! {
        #[test]
        fn percentiles_are_within_one_percent_and_the_rest_is_exact(
            lengths in proptest::collection::vec(prop_oneof![0..300u64, 0..10_000_000u64, Just(u64::from(u32::MAX))], 1..200),
            cut in 0..200usize,
        ) {
            let (first, second) = lengths.split_at(cut % lengths.len());
            let counted = |of: &[u64]| of.iter().fold(Lengths::default(), |mut all, ms| { all.add(*ms); all });
            let mut all = counted(first);
            all.merge(&counted(second));
            prop_assert_eq!(&all, &counted(&lengths), "in parts or at once");
            let (found, mut sorted) = (all.spread(), lengths.clone());
            sorted.sort_unstable();
            prop_assert_eq!((found.count, found.longest), (sorted.len() as u64, sorted[sorted.len() - 1]));
            let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
            prop_assert!((found.mean - mean).abs() < 1e-6 * mean.max(1.0));
            for (got, percent) in [(found.p50, 50), (found.p99, 99)] {
                let exact = sorted[sorted.len() * percent / 100];
                prop_assert!(got.abs_diff(exact) as f64 <= 0.01 * exact as f64, "{got} for {exact}");
            }
        }
    }
}
