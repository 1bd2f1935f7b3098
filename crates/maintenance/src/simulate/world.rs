//! The agents of a simulation: what they run, what they are configured with, what their ads say.
//!
//! They obey and report; time and messages are the simulation's business.

use std::collections::BTreeMap;

use classad::{ClassAd, Scope};

use super::{Scenario, SimJob, SimMachine};
use crate::core::Outcome;
use crate::event::Event;
use crate::machine;
use crate::settings::Settings;

/// What a slot's ad says of its job and of its override, which change while the simulation runs.
pub(super) const CHANGING: [&str; 13] = [
    "State",
    // Simulated machines are reached, unless the scenario says otherwise.
    "OutOfContact",
    "Activity",
    "EndDownTime",
    // Simulated machines have the pool's clock.
    "ClockOffset",
    "JobId",
    "JobUniverse",
    "JobCheckpointable",
    "ImageSize",
    "GangId",
    "CheckpointRemaining",
    "CheckpointRate",
    "CheckpointSaving",
];

struct Slot {
    name: String,
    base: ClassAd,
    job: Option<SimJob>,
    /// Counts the jobs of the slot, so that a late end does not hit the next one.
    number: u64,
    /// When its job begins to send, and when it has left.
    leaves_ms: Option<(u64, u64)>,
    last: Option<SimJob>,
}

struct Machine {
    spec: SimMachine,
    slots: Vec<Slot>,
    /// End of the override, and whether it survives a restart.
    end: Option<(i64, bool)>,
    domain: String,
}

/// What a vacate set in motion.
pub(super) struct Left {
    pub(super) machine: usize,
    pub(super) slot: usize,
    pub(super) job: u64,
    /// When it begins to send.
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// The network carries it until then: a machine that is gone sends nothing more.
    pub(super) carried_ms: u64,
    pub(super) bytes_per_second: f64,
    pub(super) domain: String,
    pub(super) could_start: bool,
}

pub(super) struct World {
    machines: Vec<Machine>,
    by_slot: BTreeMap<String, (usize, usize)>,
    by_name: BTreeMap<String, usize>,
}

/// The ad of a slot that the scenario gives none for.
fn made_up(spec: &SimMachine, at: usize) -> ClassAd {
    let mut ad = ClassAd::new();
    for (name, value) in &spec.attributes {
        // An attribute that does not parse is the scenario's mistake; the ad simply lacks it.
        let _ = ad.insert_text(name.as_str(), value);
    }
    let many = spec.slots.len() > 1;
    let name = if many { format!("slot{}@{}", at + 1, spec.name) } else { spec.name.clone() };
    ad.insert_str("Name", &name);
    ad.insert_str("Machine", &spec.name);
    ad
}

/// When a job that is on its way out at the beginning begins to send, and when it has left: as it says, else as if it had begun just now.
fn on_its_way(scenario: &Scenario, job: &SimJob) -> Option<(u64, u64)> {
    if let Some(left_ms) = job.leaving? {
        return Some((0, left_ms));
    }
    if !job.checkpointable {
        return Some((0, 0));
    }
    let caps = scenario.settings.events.iter().map(Event::bytes_per_second);
    let takes_ms = machine::transfer_ms(job.image_kb, caps.fold(f64::INFINITY, f64::min));
    Some((job.saving_ms, job.saving_ms + takes_ms))
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let attribute = scenario.settings.events.iter().find_map(|e| e.line.domain.clone());
        let mut by_slot = BTreeMap::new();
        let mut by_name = BTreeMap::new();
        let machines = scenario.machines.iter().enumerate().map(|(index, spec)| {
            by_name.insert(spec.name.clone(), index);
            let slots = spec.slots.iter().enumerate().map(|(at, job)| {
                let base = spec.ads.get(at).cloned().unwrap_or_else(|| made_up(spec, at));
                let name = machine::text(base.eval("Name")).unwrap_or_else(|| spec.name.clone());
                by_slot.insert(name.clone(), (index, at));
                let leaves_ms = job.as_ref().and_then(|job| on_its_way(scenario, job));
                let last = job.clone().map(|job| SimJob { leaving: None, ..job });
                Slot { name, base, job: job.clone(), number: 0, leaves_ms, last }
            });
            let slots: Vec<Slot> = slots.collect();
            let domain = attribute.as_ref().zip(slots.first());
            let domain =
                domain.and_then(|(name, slot)| machine::text(slot.base.eval(name))).unwrap_or_default();
            let end = spec.end_down_time.map(|end| (end, true));
            Machine { spec: spec.clone(), slots, end, domain }
        });
        let machines = machines.collect();
        Self { machines, by_slot, by_name }
    }

    /// Machine and slot of each job that is on its way out, and when it has left.
    pub(super) fn leaving(&self) -> Vec<(usize, usize, u64)> {
        let slots = self.machines.iter().enumerate().flat_map(|(machine, m)| {
            m.slots.iter().enumerate().filter_map(move |(at, slot)| Some((machine, at, slot.leaves_ms?.1)))
        });
        slots.collect()
    }

    fn is_there(machine: &Machine, mono: u64) -> bool {
        machine.spec.appears_ms <= mono && machine.spec.vanishes_ms.is_none_or(|at| mono < at)
    }

    fn reach(machine: &Machine, mono: u64) -> Result<(), Outcome> {
        let deaf = machine.spec.unreachable_ms.is_some_and(|(from, to)| from <= mono && mono < to);
        if deaf || !Self::is_there(machine, mono) {
            return Err(Outcome::Unreachable("no route to host".to_owned()));
        }
        Ok(())
    }

    fn ad(machine: &Machine, slot: &Slot, mono: u64, tells_remaining: bool) -> ClassAd {
        let mut ad = slot.base.clone();
        if let Some((end, _)) = machine.end {
            ad.insert_int("EndDownTime", end);
        }
        let state = match (&slot.job, slot.leaves_ms) {
            (None, _) => "Unclaimed",
            (Some(_), None) => "Claimed",
            (Some(_), Some(_)) => "Preempting",
        };
        ad.insert_str("State", state);
        if let Some(job) = &slot.job {
            ad.insert_int("JobUniverse", if job.checkpointable { 1 } else { 5 });
            ad.insert_int("ImageSize", job.image_kb);
            ad.insert_str("JobId", &format!("{}#{}", job.id, slot.number));
            if let Some(gang) = &job.gang {
                ad.insert_str("GangId", gang);
            }
            if job.tells_saving {
                ad.insert_int("CheckpointSaving", job.saving_ms.div_ceil(1_000) as i64);
            }
            // As real agents do: what is not on its way yet has no rate.
            let sends = slot.leaves_ms.filter(|(from, _)| tells_remaining && *from <= mono);
            if let Some((_, at)) = sends {
                ad.insert_int("CheckpointRemaining", at.saturating_sub(mono).div_ceil(1_000) as i64);
            }
        }
        ad
    }

    pub(super) fn ads(&self, mono: u64, tells_remaining: bool) -> Vec<ClassAd> {
        let there = self.machines.iter().filter(|m| Self::is_there(m, mono));
        there.flat_map(|m| m.slots.iter().map(move |s| Self::ad(m, s, mono, tells_remaining))).collect()
    }

    /// Slots of an event that run a job.
    pub(super) fn running(&self, event: &Event, mono: u64, wall: i64) -> Vec<String> {
        let there = self.machines.iter().filter(|m| Self::is_there(m, mono));
        let slots = there.flat_map(|m| m.slots.iter().map(move |s| (m, s)));
        // A job whose checkpoint ends in this very millisecond has left.
        let busy = slots.filter(|(_, s)| s.job.is_some() && s.leaves_ms.is_none_or(|(_, at)| at > mono));
        busy.filter(|(m, s)| Scope::of(&Self::ad(m, s, mono, false)).now(wall).is_true(&event.constraint))
            .map(|(_, s)| s.name.clone())
            .collect()
    }

    /// True if any event is about the machine.
    pub(super) fn is_meant(&self, settings: &Settings, machine: usize, wall: i64) -> bool {
        let machine = &self.machines[machine];
        machine.slots.iter().any(|slot| {
            let ad = Self::ad(machine, slot, 0, false);
            settings.events.iter().any(|e| Scope::of(&ad).now(wall).is_true(&e.constraint))
        })
    }

    pub(super) fn configure(&mut self, machine: &str, mono: u64, end: Option<(i64, bool)>) -> Outcome {
        let found = self.by_name.get(machine).and_then(|i| self.machines.get_mut(*i));
        let Some(machine) = found else { return Outcome::Unreachable("unknown host".to_owned()) };
        if let Err(outcome) = Self::reach(machine, mono) {
            return outcome;
        }
        if machine.spec.refuses {
            return Outcome::Refused("not authorised".to_owned());
        }
        machine.end = end;
        Outcome::Ok
    }

    /// Nothing when the slot runs no job or it is leaving already: repeating a vacate does no harm.
    pub(super) fn vacate(
        &mut self,
        slot: &str,
        mono: u64,
        wall: i64,
        cap: Option<u64>,
    ) -> Result<Option<Left>, Outcome> {
        let Some(&(index, at)) = self.by_slot.get(slot) else {
            return Err(Outcome::Unreachable("unknown slot".to_owned()));
        };
        let machine = &mut self.machines[index];
        Self::reach(machine, mono)?;
        let could_start = machine.end.is_none_or(|(end, _)| end <= wall);
        let slot = &mut machine.slots[at];
        let Some(job) = slot.job.as_ref().filter(|_| slot.leaves_ms.is_none()) else { return Ok(None) };
        let rate = cap.map_or(f64::INFINITY, |rate| rate.max(1) as f64);
        let takes_ms =
            if job.checkpointable { (job.image_kb as f64 * 1_024_000.0 / rate).ceil() as u64 } else { 0 };
        let from_ms = mono + if job.checkpointable { job.saving_ms } else { 0 };
        let to_ms = from_ms + takes_ms;
        let carried_ms = machine.spec.vanishes_ms.map_or(to_ms, |gone| gone.min(to_ms));
        slot.leaves_ms = Some((from_ms, to_ms));
        let (job, domain) = (slot.number, machine.domain.clone());
        let (machine, slot, bytes_per_second) = (index, at, rate);
        Ok(Some(Left {
            machine,
            slot,
            job,
            from_ms,
            to_ms,
            carried_ms,
            bytes_per_second,
            domain,
            could_start,
        }))
    }

    /// The name of the slot, if the job that was meant left.
    pub(super) fn leave(&mut self, machine: usize, slot: usize, number: u64) -> Option<String> {
        let slot = &mut self.machines[machine].slots[slot];
        if slot.number != number || slot.job.is_none() {
            return None;
        }
        slot.job = None;
        slot.leaves_ms = None;
        Some(slot.name.clone())
    }

    pub(super) fn respawn(&mut self, machine: usize, slot: usize, wall: i64) -> Option<String> {
        let machine = &mut self.machines[machine];
        // START : ($(START)) && ($(Shutdown) == False)
        if machine.end.is_some_and(|(end, _)| wall < end) {
            return None;
        }
        let slot = &mut machine.slots[slot];
        slot.number += 1;
        slot.job = slot.last.clone();
        Some(slot.name.clone())
    }

    pub(super) fn restart(&mut self, machine: usize) {
        let machine = &mut self.machines[machine];
        machine.end = machine.end.filter(|(_, persistent)| *persistent);
    }
}
