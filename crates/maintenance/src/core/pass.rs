//! One pass of an active event: newcomers are configured, and in each lane the next in line is vacated.
//!
//! The rules that keep the cap: a lane carries one costly vacate at a time, and a slot that is seen leaving keeps its
//! lane even if this core did not send it. The rule that keeps machines empty: no job is vacated before its machine
//! has confirmed that it starts no other.

use std::collections::{BTreeMap, BTreeSet};

use classad::ClassAd;
use model::Now;

use super::{CONTACT_MS, Core, Output, PAUSE_MS, Phase, SlotOrder, ms, wall_s};
use crate::calendar::Window;
use crate::event::Event;
use crate::machine::{self, Lane, Seen, Unit};
use crate::record::Record;

/// A lane whose slot says nothing about its progress is given up after twice the estimate and this much.
const LEAVING_GRACE_MS: u64 = 60_000;
/// A slot that is past its estimate and says nothing about its progress is looked at so often.
const LOOK_AGAIN_MS: u64 = 1_000;
/// And one that has less than a second to go.
const LAST_LOOK_MS: u64 = 250;
/// While a lane is busy, after an eighth of what is left by the estimate, within these: a job may be through long before it.
const LOOK_EARLY_MS: (u64, u64) = (1_000, 10_000);
/// No slot is believed that its checkpoint takes longer than a day.
const MOST_SAID_S: i64 = 86_400;
/// After this and twice the estimate a slot that still runs the same job is told again.
const TOLD_GRACE_MS: u64 = 30_000;

/// A slot that was told to vacate.
#[derive(Debug, Clone)]
pub(super) struct Told {
    job: String,
    until: u64,
}

/// A slot that sends its checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    since: u64,
    /// The longest that anybody has said the whole of it takes: the order that was sent, or the slot when it was first seen.
    /// A member of a gang whose others were not reached sends at its part of the cap, which its size alone does not tell.
    takes_ms: u64,
}

impl Leaving {
    pub(super) fn lasts_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_sub(self.since)
    }
}

impl Core {
    /// Warns jobs that cannot checkpoint, each once per window.
    pub(super) fn warn(
        &mut self,
        index: usize,
        window: Window,
        seen: &[Seen],
        remaining_s: i64,
        out: &mut Vec<Output>,
    ) {
        if self.settings.events[index].line.standard {
            return;
        }
        // Windows long past are not asked about again.
        let oldest = (self.last.wall_ms / 1_000) as i64 - crate::limits::DATED_SECONDS;
        self.warned.retain(|(_, _, start)| *start > oldest);
        for entry in seen.iter().filter(|s| s.matches) {
            let Some(job) = entry.slot.job.as_ref().filter(|j| !j.checkpointable && !j.preempting) else {
                continue;
            };
            let (slot, machine) = (entry.slot.name.clone(), entry.slot.machine.clone());
            if !self.warned.insert((slot.clone(), job.id.clone(), window.start)) {
                continue;
            }
            out.push(Output::Log(Record::Warned { slot: slot.clone(), remaining_s }));
            if !self.settings.dry_run {
                out.push(Output::Warn { slot, machine, job: job.id.clone(), remaining_s });
            }
        }
    }

    pub(super) fn on_pass(&mut self, now: Now, index: usize, seen: &[Seen], out: &mut Vec<Output>) {
        let Phase::Active(active) = &self.progress[index].phase else { return };
        let window = active.window;
        // A command that arrives when the override has just run out would hit the first job of the new life.
        if now.wall_ms as i64 + CONTACT_MS as i64 >= window.end.saturating_mul(1_000) {
            if let Phase::Active(active) = &mut self.progress[index].phase {
                active.pass_at = u64::MAX;
            }
            return;
        }
        let event = self.settings.events[index].clone();
        self.note_contact(now, seen);
        self.rates.extend(machine::measure_rates(seen));
        let needed_s = self.needed_s(now, &event, seen, 0);
        self.progress[index].needed_s = Some(needed_s);
        self.note_lateness(now, index, window, (seen, needed_s, 0), out);
        self.configure_missing(now, index, seen, out);
        self.warn(index, window, seen, 0, out);
        self.hold_lanes(now, &event, seen);
        let units = machine::units(seen, event.line.standard);
        let mut blocked: BTreeSet<&Lane> = BTreeSet::new();
        let mut awaits_configuration = false;
        let mut retry_at: Option<u64> = None;
        for unit in &units {
            if self.was_told(now, unit, seen) {
                continue;
            }
            // Not blocking: whoever cannot be commanded must not hold up those behind it.
            if !self.may_start_nothing(now, window, unit, seen) {
                awaits_configuration = true;
                continue;
            }
            if let Some(at) = self.retries_at(now, index, unit, seen) {
                retry_at = Some(retry_at.map_or(at, |earlier| earlier.min(at)));
                continue;
            }
            let is_free = |lane: &Lane| {
                !blocked.contains(lane)
                    && self.lanes.get(lane).is_none_or(|used| used.busy_until <= now.mono_ms)
            };
            // All or none, and in order: a gang that waits for one lane keeps its place in the others, otherwise
            // small jobs behind it could keep it waiting for ever.
            if !unit.load.keys().all(is_free) {
                blocked.extend(unit.load.keys());
                continue;
            }
            self.vacate(now, &event, unit, seen, out);
        }
        let busy = seen.iter().filter_map(|s| self.lanes.get(&s.lane)).map(|used| used.busy_until);
        let lane_at = busy.filter(|until| *until > now.mono_ms).min().map(|at| {
            now.mono_ms
                + ((at - now.mono_ms) / 8).clamp(LOOK_EARLY_MS.0, LOOK_EARLY_MS.1).min(at - now.mono_ms)
        });
        let interval_at = now.mono_ms + ms(self.settings.interval_s);
        let Phase::Active(active) = &mut self.progress[index].phase else { return };
        active.awaits_configuration = awaits_configuration;
        let machines_at = active.machine_retry.values().filter(|at| **at > now.mono_ms).min().copied();
        let next = [lane_at, retry_at, machines_at].into_iter().flatten().min();
        // Also during a long transfer somebody may arrive in a free lane.
        active.pass_at = next.map_or(interval_at, |at| at.min(interval_at));
        let is_empty = seen.iter().all(|s| s.slot.job.is_none());
        if is_empty && !active.said_empty {
            out.push(Output::Log(Record::Empty { event: event.name.clone() }));
        }
        active.said_empty = is_empty;
    }

    /// Lanes whose jobs are all gone are free, also when the estimate was longer.
    pub(super) fn free_lanes(&mut self, now: Now, ads: &[ClassAd]) {
        let sent = self.lanes.values().flat_map(|used| &used.sent).map(|(slot, _)| slot.as_str());
        let sent: BTreeSet<&str> = sent.collect();
        if sent.is_empty() {
            return;
        }
        let slots = ads.iter().filter(|ad| machine::name_of(ad).is_some_and(|n| sent.contains(n.as_str())));
        let slots = slots.filter_map(|ad| machine::Slot::read(ad, wall_s(now)));
        let still: BTreeSet<(String, String)> =
            slots.filter_map(|slot| Some((slot.name, slot.job?.id))).collect();
        for used in self.lanes.values_mut().filter(|used| !used.sent.is_empty()) {
            if !used.sent.iter().any(|one| still.contains(one)) {
                used.sent.clear();
                // Its command may be answered yet, which must not hold the lane for anybody else.
                used.owner = 0;
                used.busy_until = used.busy_until.min(now.mono_ms.max(used.since + PAUSE_MS));
            }
        }
    }

    /// Slots that are leaving keep their lanes: for the time they name, else for the estimate, but not for ever.
    fn hold_lanes(&mut self, now: Now, event: &Event, seen: &[Seen]) {
        self.lanes.retain(|_, used| used.busy_until > now.mono_ms);
        self.told.retain(|_, told| told.until > now.mono_ms);
        // Members of a gang share the lane's rate, so each takes as long as all of them.
        let mut leaving_kb: BTreeMap<&Lane, i64> = BTreeMap::new();
        for entry in seen {
            if let Some(job) = entry.slot.job.as_ref().filter(|job| job.preempting && job.checkpointable) {
                let sum = leaving_kb.entry(&entry.lane).or_default();
                *sum = sum.saturating_add(job.image_kb.unwrap_or(0));
            }
        }
        for entry in seen {
            let slot = &entry.slot;
            let Some(job) = slot.job.as_ref().filter(|job| job.preempting && job.checkpointable) else {
                if !self.told.contains_key(&slot.name) {
                    self.leaving.remove(&slot.name);
                }
                continue;
            };
            let kb = leaving_kb.get(&entry.lane).copied().unwrap_or(0);
            let cost = machine::transfer_ms(kb, event.bytes_per_second());
            let said = job.remaining_s.map_or(0, |seconds| ms(seconds.clamp(1, MOST_SAID_S)));
            let Leaving { since, takes_ms } = *self
                .leaving
                .entry(slot.name.clone())
                .or_insert(Leaving { since: now.mono_ms, takes_ms: said });
            let cost = cost.max(takes_ms);
            let until = match job.remaining_s {
                // Whole seconds, rounded up: in the last of them it is looked at again, and keeps its lane if it is still there.
                Some(seconds) => now.mono_ms + ms(seconds).saturating_sub(999).max(LAST_LOOK_MS),
                // Who is still seen when the estimate is over has it until the next look.
                None => (since + cost.max(PAUSE_MS)).max(now.mono_ms + LOOK_AGAIN_MS),
            };
            let longest = since.saturating_add(cost.saturating_mul(2)).saturating_add(LEAVING_GRACE_MS);
            let used = self.lanes.entry(entry.lane.clone()).or_default();
            used.busy_until = used.busy_until.max(until.min(longest));
            let one = (slot.name.clone(), job.id.clone());
            if !used.sent.contains(&one) {
                used.sent.push(one);
            }
        }
    }

    /// The command is on its way or was accepted; the ad does not show it yet.
    fn was_told(&self, now: Now, unit: &Unit, seen: &[Seen]) -> bool {
        unit.members.iter().all(|&member| {
            let slot = &seen[member].slot;
            let job = slot.job.as_ref().map_or("", |job| job.id.as_str());
            self.told.get(&slot.name).is_some_and(|told| told.job == job && told.until > now.mono_ms)
        })
    }

    /// Every machine of the unit that the event is about has its override.
    fn may_start_nothing(&self, now: Now, window: Window, unit: &Unit, seen: &[Seen]) -> bool {
        unit.members.iter().map(|&member| &seen[member]).filter(|s| s.matches).all(|s| {
            self.end_of(now, &s.slot.machine, s.slot.end_down_time).is_some_and(|end| end >= window.end)
        })
    }

    fn retries_at(&self, now: Now, index: usize, unit: &Unit, seen: &[Seen]) -> Option<u64> {
        let Phase::Active(active) = &self.progress[index].phase else { return None };
        let times = unit.members.iter().filter_map(|&m| active.slot_retry.get(&seen[m].slot.name));
        times.copied().filter(|at| *at > now.mono_ms).max()
    }

    fn vacate(&mut self, now: Now, event: &Event, unit: &Unit, seen: &[Seen], out: &mut Vec<Output>) {
        let cap = event.bytes_per_second();
        let command = self.id();
        let mut lanes = Vec::new();
        let mut longest = 0;
        for lane in unit.load.keys() {
            let Some(cost) = machine::lane_cost_ms(cap, unit, seen, lane) else { continue };
            let cost = cost.max(PAUSE_MS);
            longest = longest.max(cost);
            let used = self.lanes.entry(lane.clone()).or_default();
            used.busy_until = used.busy_until.max(now.mono_ms + cost);
            used.owner = command;
            used.since = now.mono_ms;
            let jobs = unit.members.iter().map(|m| &seen[*m]).filter(|s| s.lane == *lane);
            used.sent =
                jobs.filter_map(|s| Some((s.slot.name.clone(), s.slot.job.as_ref()?.id.clone()))).collect();
            lanes.push((lane.clone(), cost));
        }
        let mut slots = Vec::new();
        for &member in &unit.members {
            let slot = &seen[member].slot;
            let job = slot.job.as_ref();
            let until = now.mono_ms + 2 * longest + TOLD_GRACE_MS;
            self.told.insert(
                slot.name.clone(),
                Told { job: job.map_or_else(String::new, |job| job.id.clone()), until },
            );
            if job.is_some_and(|job| job.checkpointable) {
                // What a gang sends elsewhere keeps this lane from nobody.
                let takes_ms =
                    lanes.iter().find(|(lane, _)| *lane == seen[member].lane).map_or(0, |(_, ms)| *ms);
                self.leaving.insert(slot.name.clone(), Leaving { since: now.mono_ms, takes_ms });
            }
            slots.push(SlotOrder {
                slot: slot.name.clone(),
                machine: slot.machine.clone(),
                bytes_per_second: machine::share(cap, unit, seen, member).map(|rate| rate as u64),
            });
        }
        let names = slots.iter().map(|s| s.slot.clone()).collect();
        out.push(Output::Log(Record::Vacating { event: event.name.clone(), slots: names, cost_ms: longest }));
        self.send_vacate(now, command, unit.gang.clone(), slots, (event.name.clone(), lanes), out);
    }

    /// For the log of drivers and for tests: lanes in use at this moment.
    pub fn lanes_in_use(&self, now: Now) -> Vec<Lane> {
        let used = self.lanes.iter().filter(|(_, used)| used.busy_until > now.mono_ms);
        used.map(|(lane, _)| lane.clone()).collect()
    }

    /// The whole second in which the core last looked at its clock.
    pub fn last_seen_s(&self) -> i64 {
        wall_s(self.last)
    }
}
