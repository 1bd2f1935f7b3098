//! How bad a world is, and what came of it.

/// How bad the world is.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Words come up to so many milliseconds late.
    pub delay_ms: u64,
    /// Percent of the words that come twice.
    pub twice: u64,
    /// Percent of the claims that a machine cannot begin.
    pub begin: u64,
    /// The mean time between two faults of any kind, in milliseconds; 0 for none.
    pub every_ms: u64,
    /// Clocks run wrong by up to so many parts in a million, and are off by up to so many milliseconds.
    pub drift_ppm: u64,
    /// See `drift_ppm`.
    pub skew_ms: u64,
    /// Percent of the faults that are a power cut.
    pub power: u64,
}

impl Faults {
    /// None at all.
    pub fn none() -> Self {
        Self { delay_ms: 20, twice: 0, begin: 0, every_ms: 0, drift_ppm: 0, skew_ms: 0, power: 0 }
    }

    /// A bad day, with clocks that are hours off.
    pub fn many() -> Self {
        Self {
            delay_ms: 1_500,
            twice: 5,
            begin: 2,
            every_ms: 4_000,
            drift_ppm: 4_000,
            skew_ms: 4 * 3_600_000,
            power: 0,
        }
    }

    /// The same, and now and then the power fails: the manager and all machines are gone at once, with what their disks had not
    /// written down.
    pub fn with_power_cuts() -> Self {
        Self { power: 8, ..Self::many() }
    }
}

/// What came of a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps.
    pub events: u64,
    /// Processes that began.
    pub starts: u64,
    /// Attempts that ended without their jobs having finished.
    pub requeued: u64,
    /// Jobs that were submitted.
    pub jobs: u64,
    /// Kills of the manager, of agents, of starters, and of whole hosts.
    pub kills: [u64; 4],
    /// Connections that were cut.
    pub cuts: u64,
    /// Clocks that were set.
    pub steps: u64,
    /// Batches that the disk refused.
    pub refused: u64,
    /// Times that the power failed, and how often in the middle of a batch that was on disk all the same.
    pub power_cuts: u64,
    /// See `power_cuts`.
    pub unheard: u64,
    /// Machines that were not let in because they lacked what they should have.
    pub turned_away: u64,
    /// The end of the world.
    pub ended_ms: u64,
}
