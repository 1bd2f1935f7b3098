//! Commands sent and how they ended: overrides inserted and removed, lanes given back when a vacate failed.
//!
//! Who is to be commanded is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use model::Now;

use super::{
    BELIEF_MS, CONFIG_SET, CONTACT_MS, Core, Outcome, Output, Phase, SlotOrder, override_text, wall_s,
};
use crate::calendar::Window;
use crate::limits;
use crate::machine::{Lane, Seen};
use crate::record::Record;

#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) what: What,
    pub(super) deadline: u64,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Configure { event: String, machine: String, end_down_time: i64 },
    Unconfigure { machine: String },
    Vacate { event: String, slots: Vec<String>, lanes: Vec<(Lane, u64)> },
}

impl Core {
    /// Sends, or in a dry run only says so and takes it for done.
    fn send(&mut self, now: Now, command: u64, what: What, output: Output, out: &mut Vec<Output>) {
        let told = match &what {
            What::Configure { machine, end_down_time, .. } => {
                format!("configure {machine} with EndDownTime = {end_down_time}")
            }
            What::Unconfigure { machine } => format!("unconfigure {machine}"),
            What::Vacate { slots, .. } => format!("vacate {}", slots.join(" ")),
        };
        self.commands.insert(command, Sent { what, deadline: now.mono_ms + CONTACT_MS });
        if self.settings.dry_run {
            out.push(Output::Log(Record::Would { what: told }));
            self.on_done(now, command, Outcome::Ok, out);
        } else {
            out.push(output);
        }
    }

    /// Machines whose configuration is being changed. Collected once per pass: asked per machine, ten thousand
    /// commands under way would make a square.
    fn under_way(&self) -> BTreeSet<String> {
        let machine = |sent: &Sent| match &sent.what {
            What::Configure { machine, .. } | What::Unconfigure { machine } => Some(machine.clone()),
            What::Vacate { .. } => None,
        };
        self.commands.values().filter_map(machine).collect()
    }

    /// The override a machine has, by its ad or by its word of a moment ago.
    pub(super) fn end_of(&self, now: Now, machine: &str, advertised: Option<i64>) -> Option<i64> {
        let confirmed = self.confirmed.get(machine).filter(|(_, until)| *until > now.mono_ms);
        advertised.max(confirmed.map(|(end, _)| *end))
    }

    /// Inserts the override into every matching machine whose own ends too early. The later end wins when windows
    /// overlap, so a machine that is down longer for another event is left alone.
    pub(super) fn configure_missing(&mut self, now: Now, index: usize, seen: &[Seen], out: &mut Vec<Output>) {
        let mut machines: BTreeMap<&str, (Option<i64>, i64)> = BTreeMap::new();
        for entry in seen.iter().filter(|s| s.matches) {
            let (end, offset_s) = machines.entry(&entry.slot.machine).or_default();
            *end = (*end).max(entry.slot.end_down_time);
            *offset_s = entry.slot.clock_offset_s;
        }
        let under_way = self.under_way();
        for (machine, (advertised, offset_s)) in machines {
            let have = self.end_of(now, machine, advertised);
            let Phase::Active(active) = &mut self.progress[index].phase else { return };
            let end = active.window.end;
            let waits = active.machine_retry.get(machine).is_some_and(|at| *at > now.mono_ms);
            if have.is_some_and(|have| have >= end) || waits || under_way.contains(machine) {
                continue;
            }
            let count = active.places.len() as i64;
            let place = *active.places.entry(machine.to_owned()).or_insert(count);
            let end_down_time = end.saturating_add(place.saturating_mul(self.settings.slow_start_s));
            self.configure(now, index, (machine, offset_s), end_down_time, out);
        }
    }

    pub(super) fn configure(
        &mut self,
        now: Now,
        index: usize,
        (machine, offset_s): (&str, i64),
        end_down_time: i64,
        out: &mut Vec<Output>,
    ) {
        let event = &self.settings.events[index];
        let (name, persistent) = (event.name.clone(), !event.line.runtime);
        let machine = machine.to_owned();
        let command = self.id();
        out.push(Output::Log(Record::Configuring {
            event: name.clone(),
            machine: machine.clone(),
            end_down_time,
        }));
        let what = What::Configure { event: name, machine: machine.clone(), end_down_time };
        // It looks at its own clock, not at ours.
        let text = override_text(end_down_time.saturating_add(offset_s));
        let output = Output::Configure { command, machine, set: CONFIG_SET, text, persistent, end_down_time };
        self.send(now, command, what, output, out);
    }

    /// Removes overrides that have run out.
    pub(super) fn clean(&mut self, now: Now, found: BTreeMap<String, i64>, out: &mut Vec<Output>) {
        let under_way = self.under_way();
        for (machine, end_down_time) in found {
            // A confirmation newer than the ad means that the ad is old, not the override.
            let newer = self.end_of(now, &machine, None).is_some_and(|end| end >= wall_s(now));
            if newer || under_way.contains(&machine) {
                continue;
            }
            out.push(Output::Log(Record::CleaningUp { machine: machine.clone(), end_down_time }));
            self.unconfigure(now, machine, out);
        }
    }

    pub(super) fn unconfigure(&mut self, now: Now, machine: String, out: &mut Vec<Output>) {
        let command = self.id();
        let what = What::Unconfigure { machine: machine.clone() };
        self.send(now, command, what, Output::Unconfigure { command, machine, set: CONFIG_SET }, out);
    }

    pub(super) fn send_vacate(
        &mut self,
        now: Now,
        command: u64,
        gang: Option<String>,
        slots: Vec<SlotOrder>,
        (event, lanes): (String, Vec<(Lane, u64)>),
        out: &mut Vec<Output>,
    ) {
        let names: Vec<String> = slots.iter().map(|s| s.slot.clone()).collect();
        let what = What::Vacate { event, slots: names, lanes };
        self.send(now, command, what, Output::Vacate { command, gang, slots }, out);
    }

    pub(super) fn on_done(&mut self, now: Now, command: u64, outcome: Outcome, out: &mut Vec<Output>) {
        let Some(sent) = self.commands.remove(&command) else { return };
        let why = match outcome {
            Outcome::Ok => return self.on_success(now, command, sent.what, out),
            Outcome::Refused(why) => format!("refused: {}", model::text::one_line(&why, 200)),
            Outcome::Unreachable(why) => format!("unreachable: {}", model::text::one_line(&why, 200)),
        };
        let retry_at = now.mono_ms + self.retry_ms();
        let (what, whom) = match sent.what {
            What::Configure { event, machine, .. } => {
                if let Some(active) = self.active(&event) {
                    active.machine_retry.insert(machine.clone(), retry_at);
                    active.pass_at = active.pass_at.min(retry_at);
                }
                ("configuring", machine)
            }
            What::Unconfigure { machine } => ("unconfiguring", machine),
            What::Vacate { event, slots, lanes } => {
                for (lane, _) in &lanes {
                    if let Some(used) = self.lanes.get_mut(lane).filter(|l| l.owner == command) {
                        used.busy_until = now.mono_ms;
                    }
                }
                for slot in &slots {
                    // Some of them may have heard and be leaving: the next look forgets those that are not.
                    self.told.remove(slot);
                }
                if let Some(active) = self.active(&event) {
                    active.slot_retry.extend(slots.iter().map(|slot| (slot.clone(), retry_at)));
                    // The next in line must not wait for the one that cannot be reached.
                    active.pass_at = active.pass_at.min(now.mono_ms);
                }
                ("vacating", slots.join(" "))
            }
        };
        out.push(Output::Log(Record::Failed { what: what.to_owned(), whom, why }));
    }

    fn on_success(&mut self, now: Now, command: u64, what: What, out: &mut Vec<Output>) {
        match what {
            What::Configure { event, machine, end_down_time } => {
                let until = if self.settings.dry_run { u64::MAX } else { now.mono_ms + BELIEF_MS };
                self.confirmed.retain(|_, (_, until)| *until > now.mono_ms);
                self.confirmed.insert(machine.clone(), (end_down_time, until));
                out.push(Output::Log(Record::Configured { machine: machine.clone(), end_down_time }));
                let more = self.commands.values().any(
                    |sent| matches!(&sent.what, What::Configure { event: other, .. } if *other == event),
                );
                if let Some(active) = self.active(&event) {
                    active.machine_retry.remove(&machine);
                    if !more && active.awaits_configuration {
                        active.awaits_configuration = false;
                        active.pass_at = active.pass_at.min(now.mono_ms);
                    }
                }
            }
            What::Unconfigure { machine } => {
                self.confirmed.remove(&machine);
                out.push(Output::Log(Record::CleanedUp { machine }));
            }
            What::Vacate { event, slots, lanes } => {
                // The transfer begins when the agent has the command, not when it was sent.
                for (lane, cost) in lanes {
                    if let Some(used) = self.lanes.get_mut(&lane).filter(|l| l.owner == command) {
                        used.busy_until = used.busy_until.max(now.mono_ms + cost);
                    }
                }
                if let Some(active) = self.active(&event) {
                    for slot in &slots {
                        active.slot_retry.remove(slot);
                    }
                }
            }
        }
    }

    fn active(&mut self, event: &str) -> Option<&mut super::Active> {
        let index = self.settings.event(event)?;
        match &mut self.progress.get_mut(index)?.phase {
            Phase::Active(active) => Some(active),
            Phase::Waiting { .. } => None,
        }
    }

    /// Takes back the overrides of a window that does not happen, except where another active event needs one. Asked again until
    /// their time is over: a machine that is out of contact now comes back with its own.
    pub(super) fn on_release(
        &mut self,
        now: Now,
        window: Window,
        ads: &[classad::ClassAd],
        out: &mut Vec<Output>,
    ) {
        let wall = wall_s(now);
        let mut machines: BTreeMap<String, i64> = BTreeMap::new();
        for slot in ads.iter().take(limits::SLOTS).filter_map(|ad| crate::machine::Slot::read(ad, wall)) {
            let have = self.end_of(now, &slot.machine, slot.end_down_time);
            machines.extend(have.map(|end| (slot.machine, end)));
        }
        let tail = (machines.len().min(limits::SLOTS) as i64).saturating_mul(self.settings.slow_start_s);
        machines.retain(|_, end| (window.end..=window.end.saturating_add(tail)).contains(end));
        let mut still: BTreeMap<String, (usize, i64, i64)> = BTreeMap::new();
        for other in 0..self.progress.len() {
            let Phase::Active(active) = &self.progress[other].phase else { continue };
            let end = active.window.end;
            for entry in crate::machine::look(&self.settings.events[other], ads, wall) {
                if entry.matches {
                    let (machine, this) = (entry.slot.machine, (other, end, entry.slot.clock_offset_s));
                    let best = still.entry(machine).or_insert(this);
                    *best = if best.1 < end { this } else { *best };
                }
            }
        }
        if still.values().any(|(_, end, _)| *end == window.end) {
            // The looks of that event see to its machines, and nobody could tell whose an override is.
            self.releases.retain(|release| release.window != window);
        }
        for machine in machines.into_keys() {
            self.confirmed.remove(&machine);
            match still.get(&machine) {
                Some((other, end, offset_s)) => {
                    self.configure(now, *other, (&machine, *offset_s), *end, out);
                }
                None => self.unconfigure(now, machine, out),
            }
        }
    }
}
