//! How many files came at a path, against how many were found: the difference is lost. Reports of a file may come before or
//! after it is found, so only what is left over counts.

/// More files that came than were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// Below 0: their reports are still to come.
    Ahead(i64),
    /// Nobody counts.
    Unknown,
}

impl Arrivals {
    /// A file came.
    pub(super) fn add(&mut self) {
        if let Self::Ahead(ahead) = self {
            *ahead += 1;
        }
    }

    /// A file was found whose report may come yet.
    pub(super) fn expect(&mut self) {
        if let Self::Ahead(ahead) = self {
            *ahead -= 1;
        }
    }

    /// So many were found, and others may be found yet. False where nobody counts.
    pub(super) fn find(&mut self, found: i64) -> bool {
        if let Self::Ahead(ahead) = self {
            *ahead -= found;
        }
        matches!(self, Self::Ahead(_))
    }

    /// So many files were found; returns how many are lost. Where nobody counts that is one, or none if all `is_plausible`.
    pub(super) fn settle(&mut self, found: i64, is_plausible: bool) -> i64 {
        match self {
            Self::Ahead(ahead) => {
                let lost = (*ahead - found).max(0);
                *ahead -= found + lost;
                lost
            }
            Self::Unknown => i64::from(!is_plausible),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_was_not_found_is_lost_whenever_it_is_reported() {
        let mut arrivals = Arrivals::Ahead(0);
        arrivals.add();
        assert_eq!(arrivals.settle(1, false), 0);
        for _ in 0..3 {
            arrivals.add();
        }
        assert_eq!((arrivals.settle(1, true), arrivals), (2, Arrivals::Ahead(0)));
        // Two are found before they are reported, with a third that is gone.
        assert_eq!((arrivals.settle(2, true), arrivals), (0, Arrivals::Ahead(-2)));
        for _ in 0..3 {
            arrivals.add();
        }
        assert_eq!((arrivals.settle(0, true), arrivals), (1, Arrivals::Ahead(0)));
        // What was found already is not lost, and what was not may be found yet.
        arrivals.add();
        arrivals.add();
        assert!(arrivals.find(1));
        assert_eq!((arrivals.settle(1, true), arrivals), (0, Arrivals::Ahead(0)));
        // The first file may be reported or not: one of its kind is forgiven.
        arrivals.expect();
        arrivals.add();
        assert_eq!(arrivals.settle(0, true), 0);
    }

    #[test]
    fn where_nobody_counts_it_is_guessed() {
        let mut arrivals = Arrivals::Unknown;
        assert!(!arrivals.find(1));
        arrivals.add();
        arrivals.expect();
        assert_eq!((arrivals.settle(1, true), arrivals.settle(1, false)), (0, 1));
        assert_eq!(arrivals, Arrivals::Unknown);
    }
}
