//! A set of slots: one bit each.

/// A set of slot keys.
///
/// ```
/// let mut set = classad::engine::SlotSet::default();
/// set.insert(3);
/// set.insert(70);
/// assert!(set.contains(70) && !set.contains(4));
/// assert_eq!(set.iter().collect::<Vec<_>>(), [3, 70]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet {
    words: Vec<u64>,
}

impl SlotSet {
    pub(super) const EMPTY: SlotSet = SlotSet { words: Vec::new() };

    /// Adds a key.
    pub fn insert(&mut self, key: u32) {
        let word = key as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (key % 64);
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: u32) {
        if let Some(word) = self.words.get_mut(key as usize / 64) {
            *word &= !(1 << (key % 64));
        }
    }

    /// True if the key is in the set.
    #[inline]
    pub fn contains(&self, key: u32) -> bool {
        self.words.get(key as usize / 64).is_some_and(|word| word >> (key % 64) & 1 == 1)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The keys in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }

    /// The words of the bitmap, lowest keys first: for callers that intersect sets.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    pub(super) fn push_word(&mut self, word: u64) {
        self.words.push(word);
    }

    pub(super) fn put(&mut self, key: u32, present: bool) {
        if present {
            self.insert(key);
        } else {
            self.remove(key);
        }
    }
}
