//! Faults that are put in on purpose, to see that the tests find them. A switch exists only in tests and under the feature
//! `mutations`, which nothing that is shipped has on; everywhere else the questions here are answered when it is compiled.

use crate::Settings;

/// A rule of the core that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// What is promised to a worse set is not there for a better one.
    NoOverride,
    /// Named limits are not asked.
    NoLimitCheck,
    /// Quotas are not asked.
    NoQuotaCheck,
    /// Who must go is asked once, when jobs come.
    NoRepreemption,
    /// A run is never taken to end within the next minute.
    FlooredEnds,
}

impl Settings {
    /// Is this rule left out?
    #[cfg(any(test, feature = "mutations"))]
    pub(crate) fn is_mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Is this rule left out? Never.
    #[cfg(not(any(test, feature = "mutations")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn is_mutated(&self, _: Mutation) -> bool {
        false
    }
}
