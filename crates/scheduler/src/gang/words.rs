//! The words of a lab and the moves between them that are legal: recipe states, usage, condition. No behaviour beyond
//! that.

use std::fmt;

/// Where a recipe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Just submitted; left in the same step.
    New,
    /// Waits, without a plan.
    Queued,
    /// Waits, with a plan in one lab; holds nothing.
    Assigned,
    /// Has its system.
    Scheduled,
    /// Provisioning commands were issued.
    Waiting,
    /// The installer was seen.
    Installing,
    /// Tasks run.
    Running,
    /// Tasks are over, the owner keeps the system for a while.
    Reserved,
    /// Over.
    Completed,
    /// Over: somebody said so.
    Cancelled,
    /// Over: something went wrong.
    Aborted,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 11] = [
        Self::New,
        Self::Queued,
        Self::Assigned,
        Self::Scheduled,
        Self::Waiting,
        Self::Installing,
        Self::Running,
        Self::Reserved,
        Self::Completed,
        Self::Cancelled,
        Self::Aborted,
    ];

    /// Nothing follows.
    pub fn is_final(self) -> bool {
        self >= Self::Completed
    }

    /// Has a system.
    pub fn is_active(self) -> bool {
        self >= Self::Scheduled && self <= Self::Reserved
    }

    /// Waits for a system.
    pub fn is_waiting(self) -> bool {
        self <= Self::Assigned
    }

    /// Whether a recipe may go from here to there.
    pub fn may_become(self, to: Self) -> bool {
        match (self, to) {
            (from, Self::Cancelled | Self::Aborted) => !from.is_final(),
            (Self::New, Self::Scheduled | Self::Assigned | Self::Queued)
            | (Self::Queued, Self::Scheduled | Self::Assigned)
            | (Self::Assigned, Self::Scheduled | Self::Queued)
            | (Self::Scheduled, Self::Waiting | Self::Queued)
            | (Self::Waiting, Self::Installing | Self::Running | Self::Queued)
            | (Self::Installing, Self::Running)
            | (Self::Running, Self::Reserved | Self::Completed)
            | (Self::Reserved, Self::Completed) => true,
            _ => false,
        }
    }

    /// The usage of a system whose recipe is here.
    pub fn usage(self) -> Option<Usage> {
        match self {
            Self::Scheduled => Some(Usage::Scheduled),
            Self::Waiting => Some(Usage::Waiting),
            Self::Installing => Some(Usage::Installing),
            // A recipe that is over in a set that is not: the system lingers.
            Self::Running | Self::Reserved | Self::Completed | Self::Cancelled | Self::Aborted => {
                Some(Usage::Running)
            }
            Self::New | Self::Queued | Self::Assigned => None,
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Queued => "queued",
            Self::Assigned => "assigned",
            Self::Scheduled => "scheduled",
            Self::Waiting => "waiting",
            Self::Installing => "installing",
            Self::Running => "running",
            Self::Reserved => "reserved",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Aborted => "aborted",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a system is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Condition {
    /// The scheduler gives it away.
    #[default]
    Automated,
    /// People use it by hand.
    Manual,
    /// Nobody should.
    Broken,
    /// It is gone; its history stays.
    Removed,
}

impl Condition {
    /// Every condition.
    pub const ALL: [Self; 4] = [Self::Automated, Self::Manual, Self::Broken, Self::Removed];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Automated => "Automated",
            Self::Manual => "Manual",
            Self::Broken => "Broken",
            Self::Removed => "Removed",
        }
    }

    /// From its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a system is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Usage {
    /// In the pool.
    #[default]
    Idle,
    /// Waits for one decision: take a recipe or become idle.
    Pending,
    /// Mirrors the recipe, as do the following.
    Scheduled,
    /// Provisioning commands were issued.
    Waiting,
    /// The installer was seen.
    Installing,
    /// Tasks run, or a user has it.
    Running,
}

impl Usage {
    /// Every usage.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Pending, Self::Scheduled, Self::Waiting, Self::Installing, Self::Running];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Waiting => "waiting",
            Self::Installing => "installing",
            Self::Running => "running",
        }
    }

    /// From its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|u| u.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn only_the_moves_of_the_table_are_legal() {
        let legal = State::ALL
            .iter()
            .flat_map(|a| State::ALL.iter().map(move |b| (*a, *b)))
            .filter(|(a, b)| a.may_become(*b))
            .count();
        // 8 states that are not final, each to cancelled and aborted; and the sixteen other rows.
        assert_eq!(legal, 8 * 2 + 16);
        for last in [State::Completed, State::Cancelled, State::Aborted] {
            assert!(State::ALL.iter().all(|to| !last.may_become(*to)));
        }
        assert!(!State::Installing.may_become(State::Queued));
        assert!(!State::Running.may_become(State::Queued));
        assert!(!State::Scheduled.may_become(State::Running));
    }
}
