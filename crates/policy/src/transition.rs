//! The arrows between standings with the numbers of the 1999 manual, and the record of one being taken.
//!
//! When an arrow is taken is decided in `evaluate` and `requests`; here is only what may be taken at all.

use std::fmt;

use crate::slot::SlotId;
use crate::state::Standing;

/// A numbered transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Transition {
    /// START is no longer locally False.
    OwnerToUnclaimed = 1,
    /// START is locally False.
    UnclaimedToOwner = 2,
    /// RunBenchmarks is True.
    BenchmarkBegins = 3,
    /// The benchmarks are done.
    BenchmarkEnds = 4,
    /// A claim request came before the match notice.
    UnclaimedToClaimed = 5,
    /// A match notice.
    UnclaimedToMatched = 6,
    /// The claim did not come in time, cannot come, or START is locally False.
    MatchedToOwner = 7,
    /// The claim came.
    MatchedToClaimed = 8,
    /// An idle claim is broken.
    ClaimedIdleToPreempting = 9,
    /// A job begins.
    ClaimedIdleToBusy = 10,
    /// A job ended; the claim stays.
    BusyToClaimedIdle = 11,
    /// A running job must leave.
    BusyToPreempting = 12,
    /// SUSPEND is True.
    BusyToSuspended = 13,
    /// CONTINUE is True.
    SuspendedToBusy = 14,
    /// A suspended job must leave.
    SuspendedToPreempting = 15,
    /// KILL is True.
    VacatingToKilling = 16,
    /// The job has left.
    VacatingToOwner = 17,
    /// The job has left and a better claim was waiting.
    VacatingToClaimed = 18,
    /// The job was killed.
    KillingToOwner = 19,
    /// The job was killed and a better claim was waiting.
    KillingToClaimed = 20,
}

impl Transition {
    /// All of them, in order.
    pub const ALL: [Self; 20] = [
        Self::OwnerToUnclaimed,
        Self::UnclaimedToOwner,
        Self::BenchmarkBegins,
        Self::BenchmarkEnds,
        Self::UnclaimedToClaimed,
        Self::UnclaimedToMatched,
        Self::MatchedToOwner,
        Self::MatchedToClaimed,
        Self::ClaimedIdleToPreempting,
        Self::ClaimedIdleToBusy,
        Self::BusyToClaimedIdle,
        Self::BusyToPreempting,
        Self::BusyToSuspended,
        Self::SuspendedToBusy,
        Self::SuspendedToPreempting,
        Self::VacatingToKilling,
        Self::VacatingToOwner,
        Self::VacatingToClaimed,
        Self::KillingToOwner,
        Self::KillingToClaimed,
    ];

    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The arrow from one standing to another; None if there is none.
    pub fn between(from: Standing, to: Standing) -> Option<Self> {
        use Standing as S;
        Some(match (from, to) {
            (S::Owner, S::UnclaimedIdle) => Self::OwnerToUnclaimed,
            (S::UnclaimedIdle | S::Benchmarking, S::Owner) => Self::UnclaimedToOwner,
            (S::UnclaimedIdle, S::Benchmarking) => Self::BenchmarkBegins,
            (S::Benchmarking, S::UnclaimedIdle) => Self::BenchmarkEnds,
            (S::UnclaimedIdle | S::Benchmarking, S::ClaimedIdle) => Self::UnclaimedToClaimed,
            (S::UnclaimedIdle | S::Benchmarking, S::Matched) => Self::UnclaimedToMatched,
            (S::Matched, S::Owner) => Self::MatchedToOwner,
            (S::Matched, S::ClaimedIdle) => Self::MatchedToClaimed,
            (S::ClaimedIdle, S::Vacating | S::Killing) => Self::ClaimedIdleToPreempting,
            (S::ClaimedIdle, S::Busy) => Self::ClaimedIdleToBusy,
            (S::Busy, S::ClaimedIdle) => Self::BusyToClaimedIdle,
            (S::Busy, S::Vacating | S::Killing) => Self::BusyToPreempting,
            (S::Busy, S::Suspended) => Self::BusyToSuspended,
            (S::Suspended, S::Busy) => Self::SuspendedToBusy,
            (S::Suspended, S::Vacating | S::Killing) => Self::SuspendedToPreempting,
            (S::Vacating, S::Killing) => Self::VacatingToKilling,
            (S::Vacating, S::Owner) => Self::VacatingToOwner,
            (S::Vacating, S::ClaimedIdle) => Self::VacatingToClaimed,
            (S::Killing, S::Owner) => Self::KillingToOwner,
            (S::Killing, S::ClaimedIdle) => Self::KillingToClaimed,
            _ => return None,
        })
    }
}

/// What made a slot take a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An expression of the policy.
    Expression {
        /// Its name, for instance `SUSPEND` or `SUSPEND_VANILLA`.
        name: &'static str,
        /// Its text.
        text: String,
        /// What it gave.
        value: String,
    },
    /// A claim that the machine prefers wants the slot; in words, which.
    Better(String),
    /// Somebody asked for it.
    Command(&'static str),
    /// A time limit passed.
    Timer(&'static str),
    /// Something happened.
    Event(&'static str),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression { name, text, value } => write!(f, "{name} is {value}: {text}"),
            Self::Better(what) => f.write_str(what),
            Self::Command(what) => write!(f, "command {what}"),
            Self::Timer(name) => write!(f, "{name} passed"),
            Self::Event(what) => f.write_str(what),
        }
    }
}

/// One line of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Which slot.
    pub slot: SlotId,
    /// From where; None when the slot has just come to be.
    pub from: Option<Standing>,
    /// To where.
    pub to: Standing,
    /// Which arrow; None when the slot has just come to be.
    pub transition: Option<Transition>,
    /// Why.
    pub cause: Cause,
}

impl Record {
    /// The number of the arrow; 0 for a slot that has just come to be.
    pub fn number(&self) -> u8 {
        self.transition.map_or(0, Transition::number)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(from) => {
                write!(f, "{}: {from} -> {} ({}): {}", self.slot, self.to, self.number(), self.cause)
            }
            None => write!(f, "{}: {}: {}", self.slot, self.to, self.cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_from_1_to_20_and_each_joins_some_pair() {
        let mut found = std::collections::BTreeSet::new();
        for from in Standing::ALL {
            assert_eq!(Transition::between(from, from), None);
            for to in Standing::ALL {
                found.extend(Transition::between(from, to));
            }
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), Transition::ALL);
        assert_eq!(Transition::ALL.map(Transition::number).to_vec(), (1..=20).collect::<Vec<u8>>());
    }
}
