//! How long emptying takes: one timetable, by which the core activates an event, which a plan shows, and which a simulation must keep.
//!
//! A job that saves its work does so in its own time before anything is sent; only then its image goes through the lane. Between two
//! vacates of a lane somebody looks whether it is free and the command finds its way. All of that is reckoned with here, at its longest, so
//! that nobody leaves later than the timetable says as long as agents obey and jobs save as fast as the last time.

use std::collections::BTreeMap;

use crate::core::PAUSE_MS;
use crate::event::Event;
use crate::limits;
use crate::machine::{self, Job, Lane, Seen, Unit};

/// A job is taken to save its work for so long, if it was never seen to do so.
pub const SAVING_MS: u64 = 5_000;
/// From the moment when a lane is free to the moment when the next in line hears of it: a look a second, and the way of the messages.
pub const BREATH_MS: u64 = 1_500;

/// What was seen of the pool before this look.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What lanes carry, in bytes per second, where that was measured.
    pub rates: BTreeMap<Lane, f64>,
    /// For how long slots have been on their way out, in milliseconds.
    pub leaving_ms: BTreeMap<String, u64>,
    /// In how many milliseconds lanes are free that others use.
    pub busy_ms: BTreeMap<Lane, u64>,
}

/// One vacate.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What goes.
    pub unit: Unit,
    /// When the command is sent, in milliseconds from the beginning.
    pub from_ms: u64,
    /// When each of its lanes has carried its part.
    pub lanes: Vec<(Lane, u64)>,
    /// When nothing of it is left on its machines.
    pub to_ms: u64,
}

/// Who goes when, and how long all of it takes.
#[derive(Debug, Clone, Default)]
pub struct Timetable {
    /// In order.
    pub turns: Vec<Turn>,
    /// When lanes are free again.
    pub free_ms: BTreeMap<Lane, u64>,
    /// Until everything has left, in milliseconds; 0 when nothing has to.
    pub takes_ms: u64,
}

impl Timetable {
    /// Whole seconds until everything has left.
    pub fn needed_s(&self) -> i64 {
        self.takes_ms.min(limits::TRANSFER_MS).div_ceil(1_000) as i64
    }
}

/// How long a job writes what it saves before anything can be sent.
pub(crate) fn saving_ms(job: &Job) -> u64 {
    if job.checkpointable { job.saving_ms.unwrap_or(SAVING_MS) } else { 0 }
}

/// Puts everybody in line. `begins_ms` is when the first command can be sent: a pause after the activation, or at once when it is past.
pub fn timetable(event: &Event, seen: &[Seen], known: &Known, begins_ms: u64) -> Timetable {
    let mut table = Timetable { free_ms: known.busy_ms.clone(), ..Timetable::default() };
    for entry in seen {
        let Some(job) = entry.slot.job.as_ref().filter(|job| job.preempting && job.checkpointable) else {
            continue;
        };
        let takes_ms = left_of(event, entry, job, known);
        let free = table.free_ms.entry(entry.lane.clone()).or_default();
        *free = (*free).max(takes_ms + BREATH_MS);
        table.takes_ms = table.takes_ms.max(takes_ms + BREATH_MS);
    }
    for unit in machine::units(seen, event.line.standard) {
        let ready = unit.load.keys().filter_map(|lane| table.free_ms.get(lane)).max();
        let from_ms = ready.map_or(begins_ms, |at| begins_ms.max(*at));
        let jobs = unit.members.iter().filter_map(|m| seen[*m].slot.job.as_ref());
        let saved_ms = from_ms + jobs.map(saving_ms).max().unwrap_or(0);
        let mut turn = Turn { from_ms, lanes: Vec::new(), to_ms: saved_ms, unit };
        for lane in turn.unit.load.keys() {
            let rate = machine::rate_of(event, lane, &known.rates);
            let cost = machine::lane_cost_ms(rate, &turn.unit, seen, lane);
            let sent_ms = saved_ms + cost.unwrap_or(0);
            // Others wait for a unit that waits for several lanes, also where it has nothing to send.
            let free_ms = cost.map_or(from_ms, |cost| saved_ms + cost.max(PAUSE_MS) + BREATH_MS);
            turn.lanes.push((lane.clone(), sent_ms));
            turn.to_ms = turn.to_ms.max(sent_ms);
            table.free_ms.insert(lane.clone(), free_ms);
        }
        table.takes_ms = table.takes_ms.max(turn.to_ms + BREATH_MS);
        table.turns.push(turn);
    }
    table
}

/// How long a slot on its way out still takes: as it says, else all of it less what has passed.
fn left_of(event: &Event, entry: &Seen, job: &Job, known: &Known) -> u64 {
    if let Some(seconds) = job.remaining_s {
        return seconds.max(0) as u64 * 1_000;
    }
    let rate = machine::rate_of(event, &entry.lane, &known.rates);
    let whole = saving_ms(job) + machine::transfer_ms(job.image_kb.unwrap_or(0), rate);
    whole.saturating_sub(known.leaving_ms.get(&entry.slot.name).copied().unwrap_or(0))
}

/// Whole seconds of transfer alone, in the longest lane, truncated at the very end: the figure by which the original went.
pub fn transfer_s(event: &Event, seen: &[Seen], rates: &BTreeMap<Lane, f64>) -> i64 {
    let mut lanes: BTreeMap<&Lane, f64> = BTreeMap::new();
    for entry in seen {
        let Some(job) = entry.slot.job.as_ref().filter(|job| job.checkpointable) else { continue };
        let seconds = if job.preempting {
            job.remaining_s.unwrap_or(0) as f64
        } else {
            job.image_kb.unwrap_or(0) as f64 * 1_024.0 / machine::rate_of(event, &entry.lane, rates)
        };
        *lanes.entry(&entry.lane).or_default() += seconds;
    }
    let longest = lanes.values().fold(0.0, |a: f64, b| a.max(*b)) as i64;
    longest.min(limits::TRANSFER_MS as i64 / 1_000)
}
