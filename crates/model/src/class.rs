//! Classes of urgency, and which one a priority means.

/// How urgent a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Least.
    Low,
    /// Below normal.
    Medium,
    /// What a set has that asks for nothing.
    #[default]
    Normal,
    /// Above normal.
    High,
    /// Most; aging ends here.
    Urgent,
}

impl Class {
    /// Every class, least first.
    pub const ALL: [Self; 5] = [Self::Low, Self::Medium, Self::Normal, Self::High, Self::Urgent];

    /// The class after waiting, and when it rises next.
    pub fn aged(self, submitted: u64, now: u64, quantum: Option<u64>) -> (Self, Option<u64>) {
        let Some(quantum) = quantum.filter(|q| *q > 0) else { return (self, None) };
        let steps = now.saturating_sub(submitted) / quantum;
        let top = Self::ALL.len() - 1;
        let class = (self as usize).saturating_add(usize::try_from(steps).unwrap_or(top)).min(top);
        let next = (class < top).then(|| submitted.saturating_add((steps + 1).saturating_mul(quantum)));
        (Self::ALL[class], next)
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        ["Low", "Medium", "Normal", "High", "Urgent"][self as usize]
    }

    /// From its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name))
    }

    /// A job's priority (JobPrio) as a class.
    pub fn of_priority(priority: i32) -> Self {
        match priority {
            ..-9 => Self::Low,
            -9..0 => Self::Medium,
            0 => Self::Normal,
            1..10 => Self::High,
            10.. => Self::Urgent,
        }
    }
}
