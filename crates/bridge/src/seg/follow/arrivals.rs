//! How many files came at a path, against how many were found: the difference is lost. Reports of a file may come before or
//! after it is found, so only what is left over counts.

/// More files that came than were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// Somebody counts.
    Counted {
        /// More came than were found. Below 0: their reports are still to come.
        ahead: i64,
        /// So many went to another log: as many may be found there instead.
        left: i64,
        /// By the last report there is nothing at the path. What is found there all the same is yet to be reported.
        is_vacant: bool,
    },
    /// Nobody counts.
    Unknown,
}

impl Arrivals {
    /// Nothing came yet.
    pub(super) const NONE: Self = Self::Counted { ahead: 0, left: 0, is_vacant: false };

    /// A file came.
    pub(super) fn add(&mut self) {
        if let Self::Counted { ahead, is_vacant, .. } = self {
            *ahead += 1;
            *is_vacant = false;
        }
    }

    /// A file was found whose report may come yet.
    pub(super) fn expect(&mut self) {
        if let Self::Counted { ahead, .. } = self {
            *ahead -= 1;
        }
    }

    /// The file at the path went to another log. Whether it was found before nobody can tell.
    pub(super) fn leave(&mut self) {
        if let Self::Counted { left, is_vacant, .. } = self {
            *left += 1;
            *is_vacant = true;
        }
    }

    /// The file at the path got another name of the same log, under which it is found.
    pub(super) fn rotate(&mut self) {
        if let Self::Counted { is_vacant, .. } = self {
            *is_vacant = true;
        }
    }

    /// So many were found, and others may be found yet. False where nobody counts.
    pub(super) fn find(&mut self, found: i64) -> bool {
        if let Self::Counted { ahead, .. } = self {
            *ahead -= found;
        }
        matches!(self, Self::Counted { .. })
    }

    /// So many files were found, and the one at the path is one of them; returns how many are lost. Where nobody counts that is one,
    /// or none if all `is_plausible`.
    pub(super) fn settle(&mut self, found: i64, is_plausible: bool) -> i64 {
        match self {
            Self::Counted { ahead, left, is_vacant } => {
                *ahead -= found;
                let lost = (*ahead - *left).max(0);
                if *ahead >= 0 {
                    // All that was reported is settled. If that leaves nothing at the path, the file that is there made up for one
                    // that passed through, and its own report is still to come.
                    (*ahead, *left) = (-i64::from(*is_vacant), 0);
                }
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
        let mut arrivals = Arrivals::NONE;
        arrivals.add();
        assert_eq!(arrivals.settle(1, false), 0);
        for _ in 0..3 {
            arrivals.add();
        }
        assert_eq!((arrivals.settle(1, true), arrivals), (2, Arrivals::NONE));
        // Two are found before they are reported, with a third that is gone.
        let expected = Arrivals::Counted { ahead: -2, left: 0, is_vacant: false };
        assert_eq!((arrivals.settle(2, true), arrivals), (0, expected));
        for _ in 0..3 {
            arrivals.add();
        }
        assert_eq!((arrivals.settle(0, true), arrivals), (1, Arrivals::NONE));
        // What was found already is not lost, and what was not may be found yet.
        arrivals.add();
        arrivals.add();
        assert!(arrivals.find(1));
        assert_eq!((arrivals.settle(1, true), arrivals), (0, Arrivals::NONE));
        // One that went to another log before it was found is not lost.
        arrivals.add();
        arrivals.leave();
        arrivals.add();
        assert_eq!((arrivals.settle(1, true), arrivals), (0, Arrivals::NONE));
        // The next was found before any of this was reported.
        arrivals.expect();
        arrivals.add();
        arrivals.leave();
        arrivals.add();
        assert_eq!((arrivals.settle(0, true), arrivals), (0, Arrivals::NONE));
        // That is no excuse for one that is lost later.
        arrivals.leave();
        assert_eq!(arrivals.settle(1, true), 0);
        arrivals.add();
        assert_eq!((arrivals.settle(0, true), arrivals), (0, Arrivals::NONE));
        arrivals.add();
        assert_eq!((arrivals.settle(0, true), arrivals), (1, Arrivals::NONE));
        // One passed through, and the next is found before it is reported, whether the first went to another log or was found.
        for is_rotated in [false, true] {
            arrivals.add();
            if is_rotated {
                arrivals.rotate();
            } else {
                arrivals.leave();
            }
            assert_eq!(arrivals.settle(1 + i64::from(is_rotated), true), 0);
            assert_eq!(arrivals.settle(0, true), 0);
            arrivals.add();
            assert_eq!((arrivals.settle(0, true), arrivals), (0, Arrivals::NONE));
        }
        // One passed through, the next was rotated and found, and so is a third before it is reported.
        arrivals.add();
        arrivals.leave();
        arrivals.add();
        arrivals.rotate();
        assert_eq!(arrivals.settle(2, true), 0);
        arrivals.add();
        assert_eq!((arrivals.settle(0, true), arrivals), (0, Arrivals::NONE));
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
