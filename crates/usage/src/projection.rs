//! Events to rows, rows to sums. What every kind of event means for the table is here; nothing else is.

use std::collections::HashMap;

use model::codes::vacate;
use model::event::{
    ClaimMade, ClusterSubmitted, Condition, GangPlanned, JobExited, JobReserved, JobStarted, JobsAssigned,
    Kind, MachineStanding,
};
use model::{Class, Event, JobId, Span};

use crate::closing::Wanted;
use crate::open::{Cluster, Deciding, Doing, Machine, Name, Open, Plan, Sample, Slot, key_of};
use crate::rows::What;
use crate::steady::{SteadyClock, steady};
use crate::sums::{Cell, Sums};

/// What part of time is asked about, in Unix milliseconds by the clock as it is at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// From.
    pub from_ms: u64,
    /// To.
    pub until_ms: u64,
    /// How far the clock will have been set by the end since the first event ([`Projection::stepped_ms`]).
    pub stepped_ms: i64,
}

impl Window {
    /// All time.
    pub const ALL: Self = Self { from_ms: 0, until_ms: u64::MAX, stepped_ms: 0 };
}

/// How much the projection keeps in memory, in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Slots and machines that were ever mentioned.
    pub places: usize,
    /// Claims, jobs in the hands of claims, clusters in the queue, plans.
    pub open: usize,
    /// Sums, and the buckets of their percentiles.
    pub sums: usize,
    /// Rows whose attempt may still come to nothing, and rows that nobody has fetched.
    pub rows: usize,
}

/// How attempts ended.
struct Ending {
    wasted: bool,
    /// Their machine was out of contact.
    lost: bool,
    /// Their jobs wait again.
    back: bool,
}

/// The projection.
#[derive(Debug, Clone)]
pub struct Projection {
    pub(crate) open: Open,
    pub(crate) sums: Sums,
    /// On the clock that is never set.
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
    /// What is added to a time before it is shown.
    pub(crate) shown_later_ms: i64,
    name_at: HashMap<String, Name>,
    machine_at: HashMap<Name, u32>,
    slot_at: HashMap<(u32, Name), u32>,
    /// Lab and cores of machines, from whoever knows.
    pub(crate) known: HashMap<Name, (Name, u32)>,
    pub(crate) rows: Option<Wanted>,
}

impl Default for Projection {
    fn default() -> Self {
        Self::resume(Open { names: vec![String::new()], ..Open::default() }, Sums::default())
    }
}

impl Projection {
    pub(crate) fn resume(open: Open, sums: Sums) -> Self {
        let name_at = open.names.iter().cloned().zip(0..).collect();
        let machine_at = open.machines.iter().map(|m| m.name).zip(0..).collect();
        let slot_at = open.slots.iter().map(|s| (s.machine, s.name)).zip(0..).collect();
        Self {
            open,
            sums,
            from_ms: 0,
            until_ms: u64::MAX,
            shown_later_ms: 0,
            name_at,
            machine_at,
            slot_at,
            known: HashMap::new(),
            rows: None,
        }
    }

    /// Counts only what lies within a window from here on. Sums so far stay.
    pub fn look_at(&mut self, window: Window) {
        self.shown_later_ms = window.stepped_ms;
        self.from_ms = if window.from_ms == 0 { 0 } else { steady(window.from_ms, window.stepped_ms) };
        self.until_ms =
            if window.until_ms == u64::MAX { u64::MAX } else { steady(window.until_ms, window.stepped_ms) };
    }

    /// Forgets the sums so far, not what is open.
    pub fn forget_sums(&mut self) {
        self.sums = Sums::default();
        for slot in &mut self.open.slots {
            slot.unsaved.clear();
        }
    }

    /// What a machine is now, from whoever knows. Where it was when it had claims, the journal says.
    pub fn know(&mut self, machine: &str, lab: &str, cores: u32) {
        let (machine, lab) = (self.name(machine), self.name(lab));
        self.known.insert(machine, (lab, cores));
    }

    /// The first event's time, by the clock as the window has it.
    pub fn first_ms(&self) -> Option<u64> {
        self.open.first_ms.map(|ms| self.shown(ms))
    }

    /// The newest event's time, by the clock as the window has it.
    pub fn last_ms(&self) -> u64 {
        self.shown(self.open.last_ms)
    }

    /// How far the clock was set since the first event.
    pub fn stepped_ms(&self) -> i64 {
        self.open.stepped_ms
    }

    /// How much is in memory.
    pub fn sizes(&self) -> Sizes {
        let open = &self.open;
        let unsure = |w: &Wanted| w.closed.len() + w.unsure.values().map(Vec::len).sum::<usize>();
        Sizes {
            places: open.slots.len() + open.machines.len() + open.names.len(),
            open: open.claims.len()
                + open.live.len()
                + open.clusters.len()
                + open.plans.len()
                + open.returned.len()
                + open.assigned.len()
                + open.slots.iter().map(|s| s.unsaved.len()).sum::<usize>(),
            sums: self.sums.cells.len() + self.sums.buckets(),
            rows: self.rows.as_ref().map_or(0, unsure),
        }
    }

    /// True when no later event can change what lies before the end of the window: all that was going on then is over.
    pub fn is_settled(&self) -> bool {
        let over = |slot: &Slot| {
            slot.now.what == What::Idle as i32 || (slot.since_ms >= self.until_ms && slot.unsaved.is_empty())
        };
        self.open.last_ms > self.until_ms && self.open.slots.iter().all(over)
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let mut clock = SteadyClock { last_ms: self.open.last_ms, stepped_ms: self.open.stepped_ms };
        let time = clock.take(event);
        self.move_holds(clock.stepped_ms.saturating_sub(self.open.stepped_ms), time);
        (self.open.last_ms, self.open.stepped_ms) = (clock.last_ms, clock.stepped_ms);
        self.open.first_ms.get_or_insert(time);
        if !matches!(event.kind, Some(Kind::ClaimMade(_) | Kind::JobsAssigned(_))) {
            self.count_decided();
        }
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ManagerStarted(_) => self.take_restart(time),
            Kind::ClusterSubmitted(e) => self.take_submit(e, time),
            Kind::JobsReleased(e) => {
                if let Some(cluster) = self.open.clusters.get_mut(&e.cluster) {
                    cluster.released_ms = time;
                }
            }
            Kind::MachineStanding(e) => self.take_standing(e, time),
            Kind::GangPlanned(e) => self.take_plan(e, time),
            Kind::ClaimMade(e) => self.take_claim(e, time),
            Kind::JobsAssigned(e) => self.take_assigned(e, time),
            Kind::JobStarted(e) => self.take_started(e, time),
            Kind::JobReserved(e) => self.take_reserved(e, time),
            Kind::JobExited(e) => self.take_exit(e, time),
            Kind::JobProvisioning(e) => {
                let job = key_of(JobId { cluster: e.cluster, proc: e.proc });
                let what = if e.installing { What::Installing } else { What::Waiting };
                if let Some(slot) = self.close_claim(e.claim, time) {
                    self.attempt(slot, what, job);
                }
            }
            Kind::JobSuspended(e) => self.change(e.claim, time, |slot| slot.again(What::Suspended)),
            Kind::JobContinued(e) => self.change(e.claim, time, |slot| slot.again(What::Running)),
            Kind::JobCheckpointed(e) => {
                // What was done so far is safe: a row ends here, and only later ones can be lost.
                if let Some(slot) = self.close_claim(e.claim, time) {
                    self.decide_attempt(slot, false);
                }
            }
            Kind::JobsRequeued(e) => {
                // An end that counts as a completion is no waste.
                let (wasted, lost) = (e.exit.is_none(), e.code == vacate::LEASE_OVER);
                self.end_all(e.cluster, &e.procs, time, &Ending { wasted, lost, back: true });
            }
            Kind::JobsHeld(e) => {
                let ending = Ending { wasted: e.exit.is_none(), lost: false, back: false };
                self.end_all(e.cluster, &e.procs, time, &ending);
            }
            Kind::JobsRemoved(e) => {
                self.end_all(e.cluster, &e.procs, time, &Ending { wasted: false, lost: false, back: false });
                self.leave_queue(e.cluster, &e.procs);
            }
            Kind::JobsLeft(e) => self.leave_queue(e.cluster, &e.procs),
            Kind::ClaimEnded(e) => {
                let Some(slot) = self.open.claims.remove(&e.claim) else { return };
                self.close_slot(slot, time);
                self.decide_attempt(slot, false);
                self.open.slots[slot as usize].now = Doing::default();
                let machine = self.open.slots[slot as usize].machine;
                self.recount_claimed(machine, time);
                self.open.machines[machine as usize].opened_ms = Some(time);
            }
            _ => {}
        }
    }

    /// The clock was set. Until when somebody has a machine is said by it, and comes when it shows that; once is enough.
    fn move_holds(&mut self, by_ms: i64, now: u64) {
        if by_ms == 0 {
            return;
        }
        for machine in &mut self.open.machines {
            if let Some(until) = machine.standing.held_until_ms.as_mut().filter(|until| **until > now) {
                *until = until.saturating_add_signed(by_ms.saturating_neg());
            }
        }
    }

    /// Nobody is connected, and gangs are planned anew.
    fn take_restart(&mut self, time: u64) {
        self.open.plans.clear();
        for machine in 0..self.open.machines.len() as u32 {
            self.rearrange(machine, time, |standing| standing.earmark = None);
            self.open.machines[machine as usize].opened_ms = None;
        }
    }

    fn take_submit(&mut self, e: &ClusterSubmitted, time: u64) {
        let prio = e.template.shared("JobPrio").and_then(|text| text.trim().parse().ok());
        let gang = e.template.is_gang();
        let cluster = Cluster {
            class: Class::of_priority(prio.unwrap_or(0)) as u32,
            size: if gang { e.template.procs } else { 1 },
            gang,
            submitted_ms: time,
            released_ms: 0,
            promised_ms: None,
            begun: false,
            left: e.template.procs,
        };
        self.open.clusters.insert(e.cluster, cluster);
    }

    fn take_standing(&mut self, e: &MachineStanding, time: u64) {
        let condition = Condition::try_from(e.condition).unwrap_or(Condition::Automated);
        let held_by = self.name(&e.held_by);
        let until_ms = (e.held_until_ms > 0).then(|| self.steady(e.held_until_ms));
        let machine = self.machine(&e.machine, time);
        self.rearrange(machine, time, |standing| {
            (standing.condition, standing.held_by, standing.held_until_ms) =
                (condition as i32, held_by, until_ms);
        });
        let place = &mut self.open.machines[machine as usize];
        place.opened_ms = Some(time);
        if condition == Condition::Broken {
            place.broken_ms.get_or_insert(time);
        } else if let Some(since) = place.broken_ms.take() {
            let sample = Sample { at_ms: time, machine, lab: place.standing.lab, user: 0 };
            self.count(&sample, |cell| cell.repairs.add(time - since));
        }
    }

    fn take_plan(&mut self, e: &GangPlanned, time: u64) {
        for machine in self.open.plans.remove(&e.cluster).unwrap_or_default().machines {
            self.rearrange(machine, time, |standing| {
                standing.earmark = standing.earmark.filter(|gang| *gang != e.cluster);
            });
            self.open.machines[machine as usize].opened_ms = Some(time);
        }
        if e.machines.is_empty() {
            return;
        }
        let machines: Vec<u32> = e.machines.iter().map(|name| self.machine(name, time)).collect();
        for machine in &machines {
            self.rearrange(*machine, time, |standing| standing.earmark = Some(e.cluster));
        }
        self.open.plans.insert(e.cluster, Plan { machines });
        let stepped_ms = self.open.stepped_ms;
        if let Some(cluster) = self.open.clusters.get_mut(&e.cluster).filter(|c| !c.begun) {
            let promised = e.promise_s.saturating_mul(1_000) as i64;
            cluster.promised_ms.get_or_insert(promised.saturating_sub(stepped_ms));
        }
    }

    fn take_claim(&mut self, e: &ClaimMade, time: u64) {
        let (lab, name) = (self.name(&e.lab), self.name(&e.slot));
        let user = self.name(if e.submitter.is_empty() { &e.owner } else { &e.submitter });
        let machine = self.machine(&e.machine, time);
        self.rearrange(machine, time, |standing| standing.lab = lab);
        let slot = *self.slot_at.entry((machine, name)).or_insert_with(|| {
            let fresh = Slot { machine, name, since_ms: time, now: Doing::default(), unsaved: Vec::new() };
            self.open.slots.push(fresh);
            self.open.slots.len() as u32 - 1
        });
        if e.swept {
            self.count(&Sample { at_ms: time, machine, lab, user }, |cell| cell.swept += 1);
        }
        self.close_slot(slot, time);
        self.decide_attempt(slot, false);
        self.open.slots[slot as usize].now = Doing {
            what: What::Claimed as i32,
            user,
            cores: e.resources.cpus,
            lease_ms: e.lease_ms,
            backfill: e.backfill,
            ..Doing::default()
        };
        self.open.claims.insert(e.claim, slot);
        let place = &mut self.open.machines[machine as usize];
        if !place.slots.contains(&slot) {
            place.slots.push(slot);
        }
        self.recount_claimed(machine, time);
    }

    fn take_assigned(&mut self, e: &JobsAssigned, time: u64) {
        let cluster = self.open.clusters.get(&e.cluster);
        let queued = cluster.map_or(time, |c| c.submitted_ms.max(c.released_ms));
        let gang = cluster.is_some_and(|c| c.gang);
        // A gang gets all its machines at one moment: what comes later is another decision.
        if !gang || self.open.deciding.is_some_and(|d| d.cluster != e.cluster || d.sample.at_ms != time) {
            self.count_decided();
        }
        let mut waited = queued;
        // A guest waits for its host, not for its machine.
        let slot = self.open.claims.get(&e.claim).copied();
        let awaited = slot.is_none_or(|slot| self.open.slots[slot as usize].now.cores > 0);
        for proc in e.procs.iter().flat_map(|s| s.procs()) {
            let job = key_of(JobId { cluster: e.cluster, proc });
            self.open.live.insert(job, e.claim);
            if awaited {
                self.open.assigned.insert(job, time);
            }
            waited = waited.max(self.open.returned.remove(&job).unwrap_or(0));
        }
        let Some(sample) = self.sample(e.claim, time) else { return };
        if let Some(opened) = self.open.machines[sample.machine as usize].opened_ms {
            let ms = time.saturating_sub(waited.max(opened));
            if !gang {
                self.count(&sample, |cell| cell.decisions.add(ms));
            } else if self.open.deciding.is_none_or(|d| ms < d.ms) {
                self.open.deciding = Some(Deciding { cluster: e.cluster, sample, ms });
            }
        }
        let Some(cluster) = self.open.clusters.get_mut(&e.cluster).filter(|c| !c.begun) else { return };
        cluster.begun = gang;
        if let Some(promised) = cluster.promised_ms {
            let late = (time as i64).saturating_sub(promised);
            self.count(&sample, |cell| {
                let of = if late > 0 { &mut cell.late } else { &mut cell.early };
                of.add(late.unsigned_abs());
            });
        }
    }

    fn take_started(&mut self, e: &JobStarted, time: u64) {
        let job = key_of(JobId { cluster: e.cluster, proc: e.proc });
        let Some(slot) = self.open.claims.get(&e.claim).copied() else { return };
        // The machine's clock is believed as far as it does not contradict ours.
        let at = self.steady(e.started_ms).clamp(self.open.slots[slot as usize].since_ms, time);
        self.close_slot(slot, at);
        self.attempt(slot, What::Running, job);
        self.open.slots[slot as usize].now.began_ms = Some(at);
        let Some(sample) = self.sample(e.claim, at) else { return };
        if let Some(assigned) = self.open.assigned.remove(&job) {
            self.count(&sample, |cell| cell.deliveries.add(at.saturating_sub(assigned)));
        }
        if let Some(cluster) = self.open.clusters.get(&e.cluster).copied().filter(|_| e.attempt == 1) {
            let ms = at.saturating_sub(cluster.submitted_ms);
            self.count(&sample, |cell| cell.add_wait(cluster.class, cluster.size, ms));
        }
    }

    /// The job may be over already, or be so only when the reservation is: both mean the same here.
    fn take_reserved(&mut self, e: &JobReserved, time: u64) {
        let job = key_of(JobId { cluster: e.cluster, proc: e.proc });
        let Some(slot) = self.close_claim(e.claim, time) else { return };
        self.attempt(slot, What::Running, job);
        self.open.slots[slot as usize].now.reserved = true;
        // What was done is done.
        self.decide_attempt(slot, false);
    }

    fn take_exit(&mut self, e: &JobExited, time: u64) {
        let job = key_of(JobId { cluster: e.cluster, proc: e.proc });
        if !e.stays {
            self.leave_queue(e.cluster, &[Span { first: e.proc, count: 1 }]);
        }
        let Some(index) = self.open.claims.get(&e.claim).copied() else {
            self.open.live.remove(&job);
            self.open.assigned.remove(&job);
            return;
        };
        let slot = &self.open.slots[index as usize];
        // How long it ran is the machine's to say, by a clock that nobody sets; when it began is ours, if we know.
        let began = slot.now.began_ms.filter(|_| slot.now.job == Some(job));
        let began = began.unwrap_or_else(|| self.steady(e.started_ms));
        let ended = if slot.now.reserved { time } else { began.saturating_add(e.exit.wall_us / 1000) };
        let at = ended.clamp(slot.since_ms, time);
        if let Some(sample) = self.sample(e.claim, at) {
            self.count(&sample, |cell| {
                cell.ended += 1;
                cell.failed += u64::from(!e.exit.success());
            });
        }
        self.end(job, at, false);
        let machine = self.open.slots[index as usize].machine;
        self.open.machines[machine as usize].opened_ms = Some(time);
    }

    fn end_all(&mut self, cluster: u32, procs: &[Span], time: u64, ending: &Ending) {
        // Spans may be of a million jobs that wait; only those that a claim has can have run.
        if self.open.live.is_empty() {
            return;
        }
        for proc in procs.iter().flat_map(|s| s.procs()) {
            let job = key_of(JobId { cluster, proc });
            let Some(claim) = self.open.live.get(&job).copied() else { continue };
            let slot = self.open.claims.get(&claim).copied();
            if let Some(index) = slot.filter(|_| ending.lost) {
                let slot = &self.open.slots[index as usize];
                if slot.now.job == Some(job) {
                    let at = time.saturating_sub(slot.now.lease_ms).clamp(slot.since_ms, time);
                    self.change(claim, at, |slot| slot.again(What::Lost));
                }
            }
            self.end(job, time, ending.wasted);
            if ending.back {
                self.open.returned.insert(job, time);
            }
            if let Some(slot) = slot {
                let machine = self.open.slots[slot as usize].machine;
                self.open.machines[machine as usize].opened_ms = Some(time);
            }
        }
    }

    /// Jobs left the queue for good; with its last one a cluster is forgotten.
    fn leave_queue(&mut self, cluster: u32, procs: &[Span]) {
        let key = |proc: u32| key_of(JobId { cluster, proc });
        for span in procs.iter().filter(|s| s.count > 0) {
            let (first, last) = (key(span.first), key(span.procs().end - 1));
            while let Some((job, _)) = self.open.returned.range(first..=last).next() {
                let job = *job;
                self.open.returned.remove(&job);
            }
            if let Some(mark) = self.open.clusters.get_mut(&cluster) {
                mark.left = mark.left.saturating_sub(span.count);
                if mark.left == 0 {
                    self.open.clusters.remove(&cluster);
                }
            }
        }
    }

    /// An attempt ended.
    fn end(&mut self, job: u64, at: u64, wasted: bool) {
        self.open.assigned.remove(&job);
        let claim = self.open.live.remove(&job);
        let Some(index) = claim.and_then(|claim| self.open.claims.get(&claim).copied()) else { return };
        if self.open.slots[index as usize].now.job != Some(job) {
            return;
        }
        self.close_slot(index, at);
        self.decide_attempt(index, wasted);
        let now = &mut self.open.slots[index as usize].now;
        (now.what, now.job, now.reserved, now.began_ms) = (What::Claimed as i32, None, false, None);
    }

    fn attempt(&mut self, slot: u32, what: What, job: u64) {
        if self.open.slots[slot as usize].attempt(what, job) {
            self.decide_attempt(slot, false);
        }
    }

    fn sample(&self, claim: u64, at_ms: u64) -> Option<Sample> {
        let slot = &self.open.slots[*self.open.claims.get(&claim)? as usize];
        let lab = self.open.machines[slot.machine as usize].standing.lab;
        Some(Sample { at_ms, machine: slot.machine, lab, user: slot.now.user })
    }

    fn count(&mut self, sample: &Sample, how: impl FnOnce(&mut Cell)) {
        if (self.from_ms..=self.until_ms).contains(&sample.at_ms) {
            how(self.sums.of(sample));
        }
    }

    pub(crate) fn count_decided(&mut self) {
        if let Some(Deciding { sample, ms, .. }) = self.open.deciding.take() {
            self.count(&sample, |cell| cell.decisions.add(ms));
        }
    }

    /// A claim's slot does something else from now on.
    fn change(&mut self, claim: u64, at: u64, how: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.close_claim(claim, at) {
            how(&mut self.open.slots[slot as usize]);
        }
    }

    /// What the slot of a claim did until now is a row.
    fn close_claim(&mut self, claim: u64, at: u64) -> Option<u32> {
        let slot = self.open.claims.get(&claim).copied()?;
        self.close_slot(slot, at);
        Some(slot)
    }

    fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.name_at.get(text) {
            return *name;
        }
        let name = self.open.names.len() as Name;
        self.open.names.push(text.to_owned());
        self.name_at.insert(text.to_owned(), name);
        name
    }

    /// A machine's place in the list; its time begins with its first mention.
    fn machine(&mut self, name: &str, time: u64) -> u32 {
        let name = self.name(name);
        *self.machine_at.entry(name).or_insert_with(|| {
            self.open.machines.push(Machine { name, since_ms: time, ..Machine::default() });
            self.open.machines.len() as u32 - 1
        })
    }

    fn steady(&self, wall_ms: u64) -> u64 {
        steady(wall_ms, self.open.stepped_ms)
    }

    pub(crate) fn shown(&self, ms: u64) -> u64 {
        ms.saturating_add_signed(self.shown_later_ms)
    }
}
