//! How numbers are spread, in little memory: within 3% of every percentile, however many there are.

/// Parts of an octave.
const PARTS: u32 = 32;

/// Counts of numbers by size.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    counts: Vec<u64>,
    number: u64,
    sum: f64,
    largest: u64,
}

fn bucket(value: u64) -> usize {
    if value < u64::from(PARTS) {
        return value as usize;
    }
    let octave = value.ilog2();
    let part = (value >> (octave - PARTS.ilog2())) - u64::from(PARTS);
    ((octave - PARTS.ilog2() + 1) * PARTS) as usize + part as usize
}

/// The least number of a bucket.
fn least(bucket: usize) -> u64 {
    let (octave, part) = (bucket as u32 / PARTS, bucket as u64 % u64::from(PARTS));
    if octave == 0 { part } else { (u64::from(PARTS) + part) << (octave - 1) }
}

impl Spread {
    /// One more.
    pub fn add(&mut self, value: u64) {
        let at = bucket(value);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.number += 1;
        self.sum += value as f64;
        self.largest = self.largest.max(value);
    }

    /// All of another's too.
    pub fn add_all(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.number += other.number;
        self.sum += other.sum;
        self.largest = self.largest.max(other.largest);
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.number
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// All together.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum / self.number.max(1) as f64
    }

    /// The largest; 0 of none.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// So many percent are not larger, within 3%.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = ((self.number as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return (least(at + 1) - 1).min(self.largest);
            }
        }
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::{Spread, bucket, least};

    #[test]
    fn percentiles_are_within_three_percent_of_what_sorting_gives() {
        let mut spread = Spread::default();
        let mut all: Vec<u64> = (0..10_000u64).map(|n| n * n % 1_000_003 + n).collect();
        for n in &all {
            spread.add(*n);
        }
        all.sort_unstable();
        for percent in [1.0, 50.0, 90.0, 99.0, 99.9] {
            let exact = all[(all.len() as f64 * percent / 100.0).ceil() as usize - 1];
            let said = spread.percentile(percent);
            assert!(
                said >= exact && said as f64 <= exact as f64 * 1.04 + 1.0,
                "{percent}: {said}, not {exact}"
            );
        }
        assert_eq!((spread.percentile(100.0), spread.len()), (*all.last().unwrap(), 10_000));
        assert_eq!(Spread::default().percentile(50.0), 0);
    }

    #[test]
    fn buckets_follow_each_other() {
        for at in 0..1_900 {
            assert_eq!(bucket(least(at)), at);
            assert_eq!(bucket(least(at + 1) - 1), at);
        }
        assert!(bucket(u64::MAX) > 1_900);
    }
}
