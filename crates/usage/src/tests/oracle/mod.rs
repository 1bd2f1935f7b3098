//! The exact computation that collects everything: every row and every length in memory. Only tests use it, to say what the
//! projection must give. It knows nothing of clocks that are set.

mod answers;
mod rows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::event::{
    ClaimMade, Condition, GangPlanned, JobExited, JobReserved, JobStarted, JobsAssigned, Kind,
    MachineStanding,
};
use model::{Event, JobId, Span};

pub(super) use answers::Usage;
use rows::{Doing, Place, Row, Slot, Standing};

use crate::rows::What;

use model::Class;

/// Vacate code of a lease that ran out.
const OUT_OF_CONTACT: u32 = 1008;

/// What is remembered of a cluster.
#[derive(Debug)]
struct Mark {
    class: Class,
    /// Jobs that start together.
    size: u32,
    gang: bool,
    submitted_ms: u64,
    released_ms: u64,
    /// The first promise.
    promised_ms: Option<u64>,
    begun: bool,
}

/// How attempts ended.
struct Ending {
    wasted: bool,
    /// Their machine was out of contact.
    lost: bool,
    /// Their jobs wait again.
    back: bool,
}

/// Something that is counted: when, where, for whom, how long.
#[derive(Debug, Clone)]
struct Sample {
    at_ms: u64,
    machine: Arc<str>,
    lab: Arc<str>,
    user: Arc<str>,
    ms: u64,
}

/// The projection.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    rows: Vec<Row>,
    slots: Vec<Slot>,
    slot_at: HashMap<(Arc<str>, Arc<str>), usize>,
    /// Claim -> slot.
    claims: HashMap<u64, usize>,
    machines: BTreeMap<Arc<str>, Place>,
    plans: HashMap<u32, Vec<Arc<str>>>,
    live: HashMap<JobId, u64>,
    marks: HashMap<u32, Mark>,
    /// Jobs that went back to the queue, and when.
    returned: HashMap<JobId, u64>,
    assigned: HashMap<JobId, u64>,
    /// Submit to first start, with class and size.
    waits: Vec<(Class, u32, Sample)>,
    /// Job and room were there, to the decision. A gang's is that of the last machine it waited for.
    decisions: Vec<Sample>,
    /// The gang whose jobs are being given away, and when its last machine was there.
    deciding: Option<(u32, Sample)>,
    /// Decision to start.
    deliveries: Vec<Sample>,
    /// Jobs that ended by themselves, and whether well.
    ends: Vec<(bool, Sample)>,
    /// Gangs that started: how much later than promised at first, in milliseconds.
    promises: Vec<(i64, Sample)>,
    repairs: Vec<Sample>,
    /// Starts that the consistency pass made.
    swept: Vec<Sample>,
    first_ms: Option<u64>,
    last_ms: u64,
}

impl Ledger {
    /// Takes the next event.
    pub(super) fn take(&mut self, event: &Event) {
        let time = event.time_ms.max(self.last_ms);
        self.last_ms = time;
        self.first_ms.get_or_insert(time);
        if !matches!(event.kind, Some(Kind::ClaimMade(_) | Kind::JobsAssigned(_))) {
            self.decisions.extend(self.deciding.take().map(|(_, sample)| sample));
        }
        match &event.kind {
            Some(Kind::ManagerStarted(_)) => self.take_restart(time),
            Some(Kind::ClusterSubmitted(e)) => {
                let prio = e.template.shared("JobPrio").and_then(|text| text.trim().parse().ok());
                let gang = e.template.is_gang();
                let mark = Mark {
                    class: Class::of_priority(prio.unwrap_or(0)),
                    size: if gang { e.template.procs } else { 1 },
                    gang,
                    submitted_ms: time,
                    released_ms: 0,
                    promised_ms: None,
                    begun: false,
                };
                self.marks.insert(e.cluster, mark);
            }
            Some(Kind::JobsReleased(e)) => {
                if let Some(mark) = self.marks.get_mut(&e.cluster) {
                    mark.released_ms = time;
                }
            }
            Some(Kind::MachineStanding(e)) => self.take_standing(e, time),
            Some(Kind::GangPlanned(e)) => self.take_plan(e, time),
            Some(Kind::ClaimMade(e)) => self.take_claim(e, time),
            Some(Kind::JobsAssigned(e)) => self.take_assigned(e, time),
            Some(Kind::JobProvisioning(e)) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                let what = if e.installing { What::Installing } else { What::Waiting };
                self.change(e.claim, time, |now, next| now.attempt(what, job, next));
            }
            Some(Kind::JobStarted(e)) => self.take_started(e, time),
            Some(Kind::JobSuspended(e)) => self.change(e.claim, time, |now, _| now.again(What::Suspended)),
            Some(Kind::JobContinued(e)) => self.change(e.claim, time, |now, _| now.again(What::Running)),
            Some(Kind::JobCheckpointed(e)) => {
                // What was done so far is safe: a row ends here, and only later ones can be lost.
                self.change(e.claim, time, |now, next| now.unsaved = next);
            }
            Some(Kind::JobReserved(e)) => self.take_reserved(e, time),
            Some(Kind::JobExited(e)) => self.take_exit(e, time),
            Some(Kind::JobsRequeued(e)) => {
                // An end that counts as a completion is no waste.
                let (wasted, lost) = (e.exit.is_none(), e.code == OUT_OF_CONTACT);
                self.end_all(e.cluster, &e.procs, time, &Ending { wasted, lost, back: true });
            }
            Some(Kind::JobsHeld(e)) => {
                let ending = Ending { wasted: e.exit.is_none(), lost: false, back: false };
                self.end_all(e.cluster, &e.procs, time, &ending);
            }
            Some(Kind::JobsRemoved(e)) => {
                let ending = Ending { wasted: false, lost: false, back: false };
                self.end_all(e.cluster, &e.procs, time, &ending);
            }
            Some(Kind::ClaimEnded(e)) => {
                let Some(slot) = self.claims.remove(&e.claim) else { return };
                self.turn(slot, time, |now, _| *now = Doing::nothing());
                let machine = self.slots[slot].machine.clone();
                self.reclaim(&machine, time);
                self.opened(&machine, time);
            }
            _ => {}
        }
    }

    /// What a machine is now, from whoever knows. Where it was when it had claims, the journal says.
    pub(super) fn know(&mut self, machine: &str, lab: &str, cores: u32) {
        if let Some(place) = self.machines.get_mut(machine) {
            place.cores = Some(cores);
            if place.standing.lab.is_empty() {
                place.standing.lab = lab.into();
            }
        }
    }

    /// Nobody is connected, and gangs are planned anew.
    fn take_restart(&mut self, time: u64) {
        self.plans.clear();
        let machines: Vec<Arc<str>> = self.machines.keys().cloned().collect();
        for machine in machines {
            self.rearrange(&machine, time, |place| place.earmark = None);
            if let Some(place) = self.machines.get_mut(&machine) {
                place.opened_ms = None;
            }
        }
    }

    fn take_standing(&mut self, e: &MachineStanding, time: u64) {
        let condition = Condition::try_from(e.condition).unwrap_or(Condition::Automated);
        let (held_by, until_ms) = (Arc::from(e.held_by.as_str()), e.held_until_ms);
        let name: Arc<str> = e.machine.as_str().into();
        self.rearrange(&name, time, |place| {
            (place.condition, place.held_by, place.held_until_ms) = (condition, held_by, until_ms);
        });
        self.opened(&name, time);
        let Some(place) = self.machines.get_mut(&name) else { return };
        if condition == Condition::Broken {
            place.broken_ms.get_or_insert(time);
        } else if let Some(since) = place.broken_ms.take() {
            let (lab, user) = (place.standing.lab.clone(), Arc::from(""));
            self.repairs.push(Sample { at_ms: time, machine: name, lab, user, ms: time - since });
        }
    }

    fn take_plan(&mut self, e: &GangPlanned, time: u64) {
        for machine in self.plans.remove(&e.cluster).unwrap_or_default() {
            self.rearrange(&machine, time, |place| {
                place.earmark = place.earmark.filter(|gang| *gang != e.cluster);
            });
            self.opened(&machine, time);
        }
        if e.machines.is_empty() {
            return;
        }
        let machines: Vec<Arc<str>> = e.machines.iter().map(|m| m.as_str().into()).collect();
        for machine in &machines {
            self.rearrange(machine, time, |place| place.earmark = Some(e.cluster));
        }
        self.plans.insert(e.cluster, machines);
        if let Some(mark) = self.marks.get_mut(&e.cluster).filter(|m| !m.begun) {
            mark.promised_ms.get_or_insert(e.promise_s.saturating_mul(1_000));
        }
    }

    fn take_claim(&mut self, e: &ClaimMade, time: u64) {
        let (machine, name): (Arc<str>, Arc<str>) = (e.machine.as_str().into(), e.slot.as_str().into());
        self.rearrange(&machine, time, |place| place.lab = e.lab.as_str().into());
        let slot = *self.slot_at.entry((machine.clone(), name.clone())).or_insert_with(|| {
            self.slots.push(Slot { machine: machine.clone(), name, since_ms: time, now: Doing::nothing() });
            self.slots.len() - 1
        });
        let user = if e.submitter.is_empty() { &e.owner } else { &e.submitter };
        let now = Doing {
            what: What::Claimed,
            user: user.as_str().into(),
            cores: e.resources.cpus,
            lease_ms: e.lease_ms,
            backfill: e.backfill,
            ..Doing::nothing()
        };
        if e.swept {
            let (at_ms, lab, user) = (time, e.lab.as_str().into(), now.user.clone());
            self.swept.push(Sample { at_ms, machine: machine.clone(), lab, user, ms: 0 });
        }
        self.turn(slot, time, |before, _| *before = now);
        self.claims.insert(e.claim, slot);
        if let Some(place) = self.machines.get_mut(&machine)
            && !place.slots.contains(&slot)
        {
            place.slots.push(slot);
        }
        self.reclaim(&machine, time);
    }

    fn take_assigned(&mut self, e: &JobsAssigned, time: u64) {
        let mark = self.marks.get(&e.cluster);
        let queued = mark.map_or(time, |m| m.submitted_ms.max(m.released_ms));
        let gang = mark.is_some_and(|m| m.gang);
        let other = |(cluster, sample): &(u32, Sample)| *cluster != e.cluster || sample.at_ms != time;
        if !gang || self.deciding.as_ref().is_some_and(other) {
            self.decisions.extend(self.deciding.take().map(|(_, sample)| sample));
        }
        let mut waited = queued;
        for proc in e.procs.iter().flat_map(|s| s.procs()) {
            let job = JobId { cluster: e.cluster, proc };
            self.live.insert(job, e.claim);
            // A guest waits for its host, not for its machine.
            if self.claims.get(&e.claim).is_none_or(|slot| self.slots[*slot].now.cores > 0) {
                self.assigned.insert(job, time);
            }
            waited = waited.max(self.returned.remove(&job).unwrap_or(0));
        }
        let Some(mut sample) = self.sample(e.claim, time) else { return };
        if let Some(opened) = self.machines.get(&sample.machine).and_then(|p| p.opened_ms) {
            sample.ms = time.saturating_sub(waited.max(opened));
            if !gang {
                self.decisions.push(sample.clone());
            } else if self.deciding.as_ref().is_none_or(|(_, s)| sample.ms < s.ms) {
                self.deciding = Some((e.cluster, sample.clone()));
            }
        }
        let Some(mark) = self.marks.get_mut(&e.cluster).filter(|m| !m.begun) else { return };
        if let Some(promised) = mark.promised_ms {
            self.promises.push((time as i64 - promised as i64, sample));
        }
        mark.begun = gang;
    }

    fn take_started(&mut self, e: &JobStarted, time: u64) {
        let job = JobId { cluster: e.cluster, proc: e.proc };
        let Some(slot) = self.claims.get(&e.claim).map(|s| &self.slots[*s]) else { return };
        // The machine's clock is believed as far as it does not contradict ours.
        let at = e.started_ms.clamp(slot.since_ms, time);
        self.change(e.claim, at, |now, next| {
            now.attempt(What::Running, job, next);
            now.began_ms = Some(at);
        });
        let Some(sample) = self.sample(e.claim, at) else { return };
        if let Some(assigned) = self.assigned.remove(&job) {
            self.deliveries.push(Sample { ms: at.saturating_sub(assigned), ..sample.clone() });
        }
        if let Some(mark) = self.marks.get(&e.cluster).filter(|_| e.attempt == 1) {
            let ms = at.saturating_sub(mark.submitted_ms);
            self.waits.push((mark.class, mark.size, Sample { ms, ..sample }));
        }
    }

    /// The job may be over already, or be so only when the reservation is: both mean the same here.
    fn take_reserved(&mut self, e: &JobReserved, time: u64) {
        let job = JobId { cluster: e.cluster, proc: e.proc };
        self.change(e.claim, time, |now, next| {
            now.attempt(What::Running, job, next);
            now.reserved = true;
            // What was done is done.
            now.unsaved = next;
        });
    }

    fn take_exit(&mut self, e: &JobExited, time: u64) {
        let job = JobId { cluster: e.cluster, proc: e.proc };
        let Some(slot) = self.claims.get(&e.claim).map(|s| &self.slots[*s]) else { return };
        let began = slot.now.began_ms.filter(|_| slot.now.job == Some(job)).unwrap_or(e.started_ms);
        let ended = if slot.now.reserved { time } else { began + e.exit.wall_us / 1000 };
        let at = ended.clamp(slot.since_ms, time);
        if let Some(sample) = self.sample(e.claim, at) {
            self.ends.push((e.exit.success(), sample));
        }
        self.end(job, at, false);
        if let Some(slot) = self.claims.get(&e.claim) {
            let machine = self.slots[*slot].machine.clone();
            self.opened(&machine, time);
        }
    }

    fn end_all(&mut self, cluster: u32, procs: &[Span], time: u64, ending: &Ending) {
        // Spans may be of a million jobs that wait; only those that a claim has can have run.
        if self.live.is_empty() {
            return;
        }
        for proc in procs.iter().flat_map(|s| s.procs()) {
            let job = JobId { cluster, proc };
            let Some(claim) = self.live.get(&job).copied() else { continue };
            let slot = self.claims.get(&claim).map(|s| &self.slots[*s]);
            if let Some(slot) = slot.filter(|s| ending.lost && s.now.job == Some(job)) {
                let at = time.saturating_sub(slot.now.lease_ms).clamp(slot.since_ms, time);
                self.change(claim, at, |now, _| now.again(What::Lost));
            }
            self.end(job, time, ending.wasted);
            if ending.back {
                self.returned.insert(job, time);
            }
            if let Some(slot) = self.claims.get(&claim) {
                let machine = self.slots[*slot].machine.clone();
                self.opened(&machine, time);
            }
        }
    }

    /// An attempt ended.
    fn end(&mut self, job: JobId, at: u64, wasted: bool) {
        self.assigned.remove(&job);
        let Some(slot) = self.live.remove(&job).and_then(|claim| self.claims.get(&claim).copied()) else {
            return;
        };
        if self.slots[slot].now.job != Some(job) {
            return;
        }
        let unsaved = self.slots[slot].now.unsaved;
        self.turn(slot, at, |now, _| {
            (now.what, now.job, now.reserved, now.unsaved) = (What::Claimed, None, false, usize::MAX);
            now.began_ms = None;
        });
        if wasted {
            for row in self.rows.iter_mut().skip(unsaved).filter(|r| r.job == Some(job)) {
                row.wasted = true;
            }
        }
    }

    fn sample(&self, claim: u64, at_ms: u64) -> Option<Sample> {
        let slot = &self.slots[*self.claims.get(&claim)?];
        let (machine, user) = (slot.machine.clone(), slot.now.user.clone());
        let lab = self.machines.get(&machine).map_or_else(|| Arc::from(""), |p| p.standing.lab.clone());
        Some(Sample { at_ms, machine, lab, user, ms: 0 })
    }

    /// A claim's slot does something else from now on.
    fn change(&mut self, claim: u64, at: u64, how: impl FnOnce(&mut Doing, usize)) {
        if let Some(slot) = self.claims.get(&claim).copied() {
            self.turn(slot, at, how);
        }
    }

    /// A slot does something else from now on. `how` is told which row will be the next.
    fn turn(&mut self, slot: usize, at: u64, how: impl FnOnce(&mut Doing, usize)) {
        self.close_slot(slot, at);
        how(&mut self.slots[slot].now, self.rows.len());
    }

    fn close_slot(&mut self, slot: usize, at: u64) {
        let slot = &mut self.slots[slot];
        if at > slot.since_ms {
            let place = self.machines.get(&slot.machine);
            self.rows.extend(place.map(|place| slot.row(place, at)));
            slot.since_ms = at;
        }
    }

    /// Something about a machine changes for all its slots, and for what no slot has.
    fn rearrange(&mut self, machine: &Arc<str>, at: u64, how: impl FnOnce(&mut Standing)) {
        let place = self.machines.entry(machine.clone()).or_insert_with(|| Place::new(at));
        let mut next = place.standing.clone();
        how(&mut next);
        if next == place.standing {
            return;
        }
        for slot in place.slots.clone() {
            self.close_slot(slot, at);
        }
        if let Some(place) = self.machines.get_mut(machine) {
            place.close(machine, at, &mut self.rows);
            place.standing = next;
        }
    }

    /// Slots of a machine have more or less than before.
    fn reclaim(&mut self, machine: &Arc<str>, at: u64) {
        let Some(place) = self.machines.get_mut(machine) else { return };
        place.close(machine, at, &mut self.rows);
        place.claimed = place.slots.iter().map(|s| self.slots[*s].now.cores).sum();
        place.most = place.most.max(place.claimed);
    }

    fn opened(&mut self, machine: &Arc<str>, at: u64) {
        if let Some(place) = self.machines.get_mut(machine) {
            place.opened_ms = Some(at);
        }
    }
}
