//! How much of anything this crate accepts; nothing else lives here.

/// Most events in EVENT_LIST; the rest are refused with a finding.
pub const EVENTS: usize = 1_000;
/// Most slot ads of one answer that are looked at; the rest wait, and the log says so.
pub const SLOTS: usize = 500_000;
/// Most dates in one event.
pub const DATES: usize = 366;
/// Longest dated window in seconds.
pub const DATED_SECONDS: i64 = 366 * 86_400;
/// Highest bandwidth in megabits per second; beyond it numbers stop meaning anything.
pub const MEGABITS: f64 = 1e9;
/// Longest interval setting in seconds.
pub const INTERVAL_SECONDS: i64 = 366 * 86_400;
/// Most operator overrides kept.
pub const OVERRIDES: usize = 10_000;
/// Largest image in KiB that is believed (1 PiB); sums of any number of them stay finite.
pub const IMAGE_KB: i64 = 1 << 40;
/// Longest that a job is believed to write what it saves.
pub const SAVING_SECONDS: i64 = 86_400;
/// Longest transfer that is reckoned with, some 34 years; sums of a great many of them still fit.
pub const TRANSFER_MS: u64 = 1 << 40;
