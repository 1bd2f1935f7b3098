//! States and activities. Only legal pairs can be written down: a [`Standing`] is one of the nine.
//!
//! Which arrows lead from one to another is in `transition`.

use std::fmt;

/// What a slot is there for at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The owner uses the machine, or does not lend it now.
    Owner,
    /// It would run jobs, and runs none.
    Unclaimed,
    /// Promised to a claim that has not come yet.
    Matched,
    /// A claim holds it.
    Claimed,
    /// The claim is being broken.
    Preempting,
}

/// What a slot does in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Nothing.
    Idle,
    /// A job runs.
    Busy,
    /// A job is there, stopped.
    Suspended,
    /// The job is asked to leave.
    Vacating,
    /// The job is killed.
    Killing,
    /// The machine measures its own speed.
    Benchmarking,
}

impl State {
    /// As it stands in the ad.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "Owner",
            Self::Unclaimed => "Unclaimed",
            Self::Matched => "Matched",
            Self::Claimed => "Claimed",
            Self::Preempting => "Preempting",
        }
    }
}

impl Activity {
    /// As it stands in the ad.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Busy => "Busy",
            Self::Suspended => "Suspended",
            Self::Vacating => "Vacating",
            Self::Killing => "Killing",
            Self::Benchmarking => "Benchmarking",
        }
    }
}

/// A legal pair of state and activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Owner/Idle
    Owner,
    /// Unclaimed/Idle
    UnclaimedIdle,
    /// Unclaimed/Benchmarking
    Benchmarking,
    /// Matched/Idle
    Matched,
    /// Claimed/Idle
    ClaimedIdle,
    /// Claimed/Busy
    Busy,
    /// Claimed/Suspended
    Suspended,
    /// Preempting/Vacating
    Vacating,
    /// Preempting/Killing
    Killing,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Owner,
        Self::UnclaimedIdle,
        Self::Benchmarking,
        Self::Matched,
        Self::ClaimedIdle,
        Self::Busy,
        Self::Suspended,
        Self::Vacating,
        Self::Killing,
    ];

    /// The state.
    pub fn state(self) -> State {
        match self {
            Self::Owner => State::Owner,
            Self::UnclaimedIdle | Self::Benchmarking => State::Unclaimed,
            Self::Matched => State::Matched,
            Self::ClaimedIdle | Self::Busy | Self::Suspended => State::Claimed,
            Self::Vacating | Self::Killing => State::Preempting,
        }
    }

    /// The activity.
    pub fn activity(self) -> Activity {
        match self {
            Self::Owner | Self::UnclaimedIdle | Self::Matched | Self::ClaimedIdle => Activity::Idle,
            Self::Benchmarking => Activity::Benchmarking,
            Self::Busy => Activity::Busy,
            Self::Suspended => Activity::Suspended,
            Self::Vacating => Activity::Vacating,
            Self::Killing => Activity::Killing,
        }
    }

    /// The pair, if it is legal.
    pub fn of(state: State, activity: Activity) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.state() == state && s.activity() == activity)
    }

    /// A claim holds the slot or is leaving it: the machine looks at the owner every few seconds.
    pub fn is_in_use(self) -> bool {
        matches!(self.state(), State::Claimed | State::Preempting)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.state().name(), self.activity().name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_standing_is_its_own_pair() {
        for standing in Standing::ALL {
            assert_eq!(Standing::of(standing.state(), standing.activity()), Some(standing));
        }
        assert_eq!(Standing::of(State::Owner, Activity::Busy), None);
        assert_eq!(Standing::Vacating.to_string(), "Preempting/Vacating");
    }
}
