//! A set of small numbers as a bitmap: which systems can take a seat, which are free, which belong to a lab. Only the
//! operations that matching and planning need.

/// A growable bitmap. Bits beyond its length are clear.
#[derive(Debug, Clone, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl PartialEq for Bits {
    /// Length does not matter, only which bits are set.
    fn eq(&self, other: &Self) -> bool {
        let words = self.words.len().max(other.words.len());
        (0..words).all(|w| self.word(w) == other.word(w))
    }
}

impl Eq for Bits {}

impl FromIterator<usize> for Bits {
    fn from_iter<I: IntoIterator<Item = usize>>(items: I) -> Self {
        let mut bits = Self::default();
        for item in items {
            bits.set(item);
        }
        bits
    }
}

impl Bits {
    /// No bit set, with room for `len` bits.
    pub fn with_room(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)] }
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Sets a bit.
    pub fn set(&mut self, bit: usize) {
        let word = bit / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (bit % 64);
    }

    /// Clears a bit.
    pub fn clear(&mut self, bit: usize) {
        if let Some(word) = self.words.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Sets or clears a bit.
    pub fn put(&mut self, bit: usize, on: bool) {
        if on {
            self.set(bit);
        } else {
            self.clear(bit);
        }
    }

    /// Whether a bit is set.
    pub fn has(&self, bit: usize) -> bool {
        self.word(bit / 64) >> (bit % 64) & 1 == 1
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether a bit is set in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Sets every bit of `other`.
    pub fn add(&mut self, other: &Self) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    /// Keeps only the bits of `other`.
    pub fn keep(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= b;
        }
    }

    /// Clears every bit of `other`.
    pub fn take_away(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= !b;
        }
    }

    /// The bits of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { words: self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect() }
    }

    /// The set bits, ascending.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| Ones(word).map(move |bit| index * 64 + bit))
    }

    /// The least bit that is set here and not in `other`.
    pub fn first_outside(&self, other: &Self) -> Option<usize> {
        self.words.iter().enumerate().find_map(|(index, &word)| {
            let left = word & !other.word(index);
            (left != 0).then(|| index * 64 + left.trailing_zeros() as usize)
        })
    }
}

/// The set bits of one word.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        (self.0 != 0).then(|| {
            let bit = self.0.trailing_zeros() as usize;
            self.0 &= self.0 - 1;
            bit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn bits_are_found_in_order_and_length_does_not_matter() {
        let mut bits: Bits = [3, 64, 200].into_iter().collect();
        assert_eq!(bits.ones().collect::<Vec<_>>(), [3, 64, 200]);
        bits.clear(200);
        assert_eq!(bits, [3, 64].into_iter().collect());
        assert_eq!(bits.first_outside(&[3].into_iter().collect()), Some(64));
        assert!(!bits.meets(&[4, 65].into_iter().collect()));
    }
}
