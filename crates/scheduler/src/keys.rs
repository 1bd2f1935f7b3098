//! Fresh claim keys: randomness that the driver gave, since the core draws none of its own.

use model::ClaimKey;

/// Keys that no claim has yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    fresh: Vec<ClaimKey>,
    /// A decision was left undone for want of one.
    starved: bool,
}

impl Keys {
    pub(crate) fn give(&mut self, keys: impl IntoIterator<Item = ClaimKey>) {
        self.fresh.extend(keys);
    }

    /// A key for a claim. Without one the decision is left undone, and remembered to be.
    pub(crate) fn take(&mut self) -> Option<ClaimKey> {
        let key = self.fresh.pop();
        self.starved |= key.is_none();
        key
    }

    /// Are there keys for so many claims? Without them the decision is left undone, as above.
    pub(crate) fn suffice_for(&mut self, claims: usize) -> bool {
        let enough = self.fresh.len() >= claims;
        self.starved |= !enough;
        enough
    }

    pub(crate) fn left(&self) -> usize {
        self.fresh.len()
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.starved
    }

    /// What was left undone is tried again.
    pub(crate) fn try_again(&mut self) {
        self.starved = false;
    }
}
