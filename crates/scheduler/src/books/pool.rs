//! Machines and claims.
//!
//! What is matched is a place: a slot that is not cut from another, with its own ad, size and claims. A machine that its
//! owner did not divide has one, partitionable, under the machine's own name; further slots are places of their own,
//! named `slotN@host`. Partitionable places are cut up by claims, static ones go to a claim whole.
//!
//! A machine is soft: it exists while its agent's session does, and a little longer while claims on it may be alive.
//! A claim is durable: it is only over when an event says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use classad::ClassAd;
use classad::engine::SlotSet;
use model::event::Resources;
use model::{ClaimId, JobId, Now};

use super::machines::Machines;
pub(crate) use super::place::{
    Claim, Limited, Machine, Standing, down_time, fits, host_of, is_static, minus, place_of, plus, slot_of,
};
pub use super::place::{Reserved, SlotState};
use super::recount::PoolCount;
use crate::changes::Changes;
use crate::labs::Shut;
use crate::seats::{Announced, Seat, Seating};
use crate::shape::ShapeId;

/// One connection of one agent. Numbers only go up, so an old connection is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Machines and claims.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    machines: Machines,
    claims: HashMap<ClaimId, Claim>,
    next_claim: u64,
    /// Connected machines with a core to spare, by number.
    roomy: SlotSet,
    /// Machines by number. Numbers are small and dense: sets of machines are bitmaps.
    names: Vec<Option<Arc<str>>>,
    unused: Vec<u32>,
    /// What is free on roomy machines, by number.
    room: Vec<Resources>,
    /// Further places of machines that have more than one, by the machine's name.
    more: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Which machine a live session is of.
    sessions: HashMap<Session, Arc<str>>,
    /// Cores of connected machines, all together.
    cores: u64,
    /// How far the consistency pass has counted.
    pub(super) recount: PoolCount,
    /// Machines out of contact that have claims.
    away: BTreeSet<Arc<str>>,
    /// Claims with more than one job.
    deep: BTreeSet<ClaimId>,
    /// Claims that are kept after their job, by its cluster.
    reserved: BTreeSet<(u32, ClaimId)>,
    /// Shapes that claims were asked to leave for, and how many.
    rivals: BTreeMap<ShapeId, usize>,
    /// Seats of gangs on their way to their first jobs.
    seating: Seating,
}

impl Pool {
    /// All places.
    pub(crate) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// All claims that are not over.
    pub(crate) fn claims(&self) -> &HashMap<ClaimId, Claim> {
        &self.claims
    }

    /// The place that a claim is part of.
    pub(crate) fn place_of_claim(&self, id: ClaimId) -> Option<&Machine> {
        self.machines.get(&self.claims.get(&id)?.machine)
    }

    /// Connected machines with a core to spare, by number.
    pub(crate) fn roomy(&self) -> &SlotSet {
        &self.roomy
    }

    /// Cores of connected machines, all together.
    pub(crate) fn cores(&self) -> u64 {
        self.cores
    }

    /// Machines out of contact that have claims.
    pub(crate) fn away(&self) -> &BTreeSet<Arc<str>> {
        &self.away
    }

    /// Claims with more than one job.
    pub(crate) fn deep(&self) -> &BTreeSet<ClaimId> {
        &self.deep
    }

    /// Claims that are kept after their job, by its cluster.
    pub(crate) fn reserved(&self) -> &BTreeSet<(u32, ClaimId)> {
        &self.reserved
    }

    /// How many claims were asked to leave for such jobs.
    pub(crate) fn rivals(&self, shape: ShapeId) -> usize {
        self.rivals.get(&shape).copied().unwrap_or(0)
    }

    /// Seats of gangs on their way to their first jobs.
    pub(crate) fn seating(&self) -> &Seating {
        &self.seating
    }

    /// The number that the next claim has.
    pub(crate) fn next_claim(&self) -> u64 {
        self.next_claim
    }

    /// No claim has a smaller number from now on.
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.next_claim = self.next_claim.max(next);
    }

    /// A claim is made: its machine has so much less.
    pub(super) fn add_claim(&mut self, id: ClaimId, claim: Claim, changes: &mut Changes) {
        self.skip_to(id.0.saturating_add(1));
        let name = claim.machine.clone();
        if let Some(machine) = self.machines.get_mut(&name) {
            machine.free = minus(machine.free, claim.resources);
            machine.claims.insert(id);
            machine.slots.insert(claim.slot_number);
            machine.settle();
        }
        self.claims.insert(id, claim);
        self.note_room(&name, changes);
    }

    /// A claim is over: what it had is free.
    pub(super) fn remove_claim(&mut self, id: ClaimId, changes: &mut Changes) -> Option<Claim> {
        let claim = self.claims.remove(&id)?;
        self.note_depth(id);
        self.seating.remove(&id);
        if let Some(reserved) = claim.reserved {
            self.reserved.remove(&(reserved.job.cluster, id));
        }
        if let Some(rival) = claim.rival {
            self.count_rival_out(rival);
        }
        if let Some(machine) = self.machines.get_mut(&claim.machine) {
            machine.claims.remove(&id);
            // Not what is free and what the claim had: the machine may have become smaller meanwhile.
            let left = machine.claims.iter().filter_map(|id| self.claims.get(id));
            machine.free = left.map(|c| c.resources).fold(machine.total, minus);
            machine.slots.remove(&claim.slot_number);
            machine.undecided = machine.shut == Some(Shut::Lab);
            machine.settle();
        }
        self.note_room(&claim.machine, changes);
        Some(claim)
    }

    /// A claim has more jobs, behind those that it has.
    pub(super) fn give_jobs(&mut self, id: ClaimId, jobs: impl IntoIterator<Item = JobId>) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.jobs.extend(jobs);
        }
        self.note_depth(id);
    }

    /// A claim has a job no more.
    pub(super) fn take_job(&mut self, id: ClaimId, job: JobId) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        // Jobs mostly end in the order in which they were given.
        if let Some(at) = claim.jobs.iter().position(|j| *j == job) {
            claim.jobs.remove(at);
        }
        self.note_depth(id);
    }

    /// What a claim takes of named resources; it has that from its first job.
    pub(crate) fn set_limits(&mut self, id: ClaimId, limits: Limited) {
        if let Some(claim) = self.claims.get_mut(&id) {
            self.recount.takes(&claim.machine, &limits);
            claim.limits = limits;
        }
    }

    /// A claim is kept though its job is over; returns what it took of named resources, and takes no more.
    pub(super) fn reserve(&mut self, id: ClaimId, reserved: Reserved) -> Option<Limited> {
        let claim = self.claims.get_mut(&id)?;
        claim.reserved = Some(reserved);
        self.recount.gives_back(&claim.machine, &claim.limits);
        self.reserved.insert((reserved.job.cluster, id));
        Some(std::mem::take(&mut claim.limits))
    }

    /// All claims, for what a fact changes in them.
    pub(super) fn claims_mut(&mut self) -> impl Iterator<Item = (ClaimId, &mut Claim)> {
        self.claims.iter_mut().map(|(id, claim)| (*id, claim))
    }

    // What is soft: known while a machine is in contact, and not recorded.

    /// A machine that connected has a claim.
    pub(crate) fn settle_claim(&mut self, id: ClaimId, ending: bool, withheld: bool) {
        if let Some(claim) = self.claims.get_mut(&id) {
            (claim.recalled, claim.ending, claim.withheld) = (false, ending, withheld);
        }
    }

    /// A claim takes no more jobs: its machine ends it, or puts itself in order.
    pub(crate) fn let_end(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.ending = true;
        }
    }

    /// A claim was asked for its waiting jobs, or has answered.
    pub(crate) fn set_recalled(&mut self, id: ClaimId, recalled: bool) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.recalled = recalled;
        }
    }

    /// A claim's machine has not heard of its job yet, or has.
    pub(crate) fn set_withheld(&mut self, id: ClaimId, withheld: bool) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.withheld = withheld;
        }
    }

    /// What a machine says of a claimed slot; nothing when the claim is not its.
    pub(crate) fn note_slot(&mut self, host: &str, id: ClaimId, state: SlotState) {
        if let Some(claim) = self.claims.get_mut(&id).filter(|c| host_of(&c.machine) == host) {
            claim.slot_now = Some(state);
        }
    }

    /// A better job waits for a claim to end.
    pub(crate) fn set_rival(&mut self, id: ClaimId, shape: ShapeId) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let before = claim.rival.replace(shape);
        *self.rivals.entry(shape).or_default() += 1;
        if let Some(before) = before {
            self.count_rival_out(before);
        }
    }

    /// No better job waits for a claim to end.
    pub(crate) fn drop_rival(&mut self, id: ClaimId) {
        if let Some(shape) = self.claims.get_mut(&id).and_then(|claim| claim.rival.take()) {
            self.count_rival_out(shape);
        }
    }

    /// The better match that a claim's machine was told of, or none any more.
    pub(crate) fn set_better(&mut self, id: ClaimId, better: Option<Announced>) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.better = better;
        }
    }

    /// A claim's machine did not prefer another job.
    pub(crate) fn refuse_better(&mut self, id: ClaimId, now_ms: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            (claim.better, claim.refused_ms) = (None, Some(now_ms));
        }
    }

    /// How far a seat is. As long as its machine has not heard of its job nobody can be asked to stop that.
    pub(crate) fn set_seat(&mut self, id: ClaimId, seat: Option<Seat>, now_ms: u64) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        claim.seat = seat;
        claim.withheld = seat.is_some_and(|seat| seat < Seat::Asked);
        if seat.is_some() {
            self.seating.entry(id).or_insert(now_ms);
        } else {
            self.seating.remove(&id);
        }
    }

    /// A seat has time once more.
    pub(crate) fn give_seat_time(&mut self, id: ClaimId, now_ms: u64) {
        if let Some(since) = self.seating.get_mut(&id) {
            *since = now_ms;
        }
    }

    /// Word from a machine. False when the session is not its current one.
    pub(crate) fn hear(&mut self, name: &str, session: Session, now: Now) -> bool {
        match self.machines.get_mut(name) {
            Some(machine) if machine.session == Some(session) => {
                (machine.heard_ms, machine.heard_wall_ms) = (now.mono_ms, now.wall_ms);
                true
            }
            _ => false,
        }
    }

    /// What a place says of itself.
    pub(crate) fn set_ad(&mut self, name: &Arc<str>, ad: ClassAd) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.down_s = down_time(&ad);
            machine.ad = Arc::new(ad);
        }
    }

    /// What stands against jobs in a place.
    pub(crate) fn set_standing(&mut self, name: &Arc<str>, standing: Standing, changes: &mut Changes) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        let Standing { lab, releases, shut, only, allow } = standing;
        let was = std::mem::replace(&mut machine.shut, shut);
        let by_hand = matches!(was, Some(Shut::Manual | Shut::Broken | Shut::Removed));
        machine.undecided = shut == Some(Shut::Lab) && (machine.undecided || by_hand);
        (machine.lab, machine.releases, machine.only, machine.allow) = (lab, releases, only, allow);
        self.note_room(name, changes);
    }

    /// The claims that are known in a place that connects again, and the numbers of their slots.
    pub(crate) fn take_occupants(&mut self, name: &Arc<str>) -> (BTreeSet<ClaimId>, BTreeSet<u32>) {
        match self.machines.get_mut(name) {
            Some(machine) => (std::mem::take(&mut machine.claims), std::mem::take(&mut machine.slots)),
            None => Default::default(),
        }
    }

    // What the consistency pass puts right.

    /// Has a place's books follow from its claims; says what did not.
    pub(super) fn rebuild_machine(&mut self, name: &Arc<str>, changes: &mut Changes) -> Rebuilt {
        let Some(machine) = self.machines.get_mut(name) else { return Rebuilt::default() };
        let over = |id: &ClaimId| self.claims.get(id).is_none_or(|c| c.machine != *name);
        let dead: Vec<ClaimId> = machine.claims.iter().copied().filter(over).collect();
        for id in &dead {
            machine.claims.remove(id);
        }
        let claims = || machine.claims.iter().filter_map(|id| self.claims.get(id));
        let slots: BTreeSet<u32> = claims().map(|c| c.slot_number).collect();
        let whole = machine.whole && !machine.claims.is_empty();
        let free = if whole {
            Resources::default()
        } else {
            claims().map(|c| c.resources).fold(machine.total, minus)
        };
        let connected = machine.session.is_some();
        let mut wrong = machine.slots != slots;
        machine.slots = slots;
        if connected && machine.free != free {
            machine.free = free;
            wrong = true;
        }
        let (number, free) = (machine.number, machine.free);
        let roomy = machine.is_open() && free.cpus > 0;
        wrong |= self.roomy.contains(number) != roomy || (roomy && self.room(number) != free);
        wrong |= self.away.contains(name) == connected;
        if wrong {
            if connected {
                self.away.remove(name);
            } else {
                self.away.insert(name.clone());
            }
            self.note_room(name, changes);
        }
        Rebuilt { dead, room: wrong }
    }

    /// A place's books have a claim again.
    pub(super) fn give_back(&mut self, name: &Arc<str>, id: ClaimId, slot: u32, changes: &mut Changes) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        machine.claims.insert(id);
        machine.slots.insert(slot);
        let claims = machine.claims.iter().filter_map(|id| self.claims.get(id));
        let free = claims.map(|c| c.resources).fold(machine.total, minus);
        machine.free = if machine.session.is_some() { free } else { Resources::default() };
        machine.settle();
        self.note_room(name, changes);
    }

    /// A claim has only those of its jobs that are its.
    pub(super) fn drop_jobs(&mut self, id: ClaimId, strays: &[JobId]) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.jobs.retain(|job| !strays.contains(job));
        }
        self.note_depth(id);
    }

    /// The pool has another number of cores than was booked.
    pub(super) fn put_cores_right(&mut self, counted: u64) {
        self.cores = counted;
    }

    /// The books of a machine lose what it has: for tests of what puts that right.
    pub(crate) fn spoil_machine(&mut self, name: &str) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.claims.clear();
        }
    }

    /// Everything may be spoilt by a test of what puts it right.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) -> Spoilt<'_> {
        let Self { machines, claims, cores, away, roomy, .. } = self;
        Spoilt { machines, claims, cores, away, roomy }
    }

    /// Keeps `roomy` true for one machine.
    fn note_room(&mut self, name: &Arc<str>, changes: &mut Changes) {
        let Some(machine) = self.machines.get(name) else { return };
        changes.note_machine(machine.number);
        if machine.is_open() && machine.free.cpus > 0 {
            self.roomy.insert(machine.number);
            let at = machine.number as usize;
            if at >= self.room.len() {
                self.room.resize(at + 1, Resources::default());
            }
            self.room[at] = machine.free;
        } else {
            self.roomy.remove(machine.number);
        }
    }

    /// One claim less is on its way out for such jobs.
    fn count_rival_out(&mut self, shape: ShapeId) {
        let left = self.rivals.get(&shape).map_or(0, |n| n.saturating_sub(1));
        if left == 0 {
            self.rivals.remove(&shape);
        } else {
            self.rivals.insert(shape, left);
        }
    }

    /// What is free on a roomy machine, without looking up its name.
    pub(crate) fn room(&self, number: u32) -> Resources {
        self.room.get(number as usize).copied().unwrap_or_default()
    }

    /// Puts a machine into the pool, in place of what was known of it.
    pub(crate) fn put(&mut self, name: &Arc<str>, machine: Machine, changes: &mut Changes) {
        self.disconnect(name, changes);
        if let Some(session) = machine.session {
            self.cores += u64::from(machine.total.cpus);
            self.recount.came(name, machine.total.cpus);
            self.sessions.entry(session).or_insert_with(|| Arc::from(host_of(name)));
            self.away.remove(name);
        } else {
            self.away.insert(name.clone());
        }
        self.machines.insert(name.clone(), machine);
        self.note_room(name, changes);
    }

    /// The places of a machine, its first slot before the others.
    pub(crate) fn places(&self, host: &str) -> Vec<Arc<str>> {
        let first = self.machines.key(host).cloned();
        first.into_iter().chain(self.more.get(host).into_iter().flatten().cloned()).collect()
    }

    /// Says which further places a machine has.
    pub(crate) fn set_more(&mut self, host: &Arc<str>, more: Vec<Arc<str>>) {
        if more.is_empty() {
            self.more.remove(host);
        } else {
            self.more.insert(host.clone(), more);
        }
    }

    /// The machine of a live session.
    pub(crate) fn machine_of(&self, session: Session) -> Option<&Arc<str>> {
        self.sessions.get(&session)
    }

    /// Claims that are kept after a job of a cluster.
    pub(crate) fn reserved_of(&self, cluster: u32) -> impl Iterator<Item = ClaimId> + '_ {
        self.reserved
            .range((cluster, ClaimId(0))..)
            .take_while(move |(c, _)| *c == cluster)
            .map(|(_, id)| *id)
    }

    /// A place is out of contact.
    pub(crate) fn disconnect(&mut self, name: &Arc<str>, changes: &mut Changes) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        let Some(session) = machine.session.take() else { return };
        self.cores = self.cores.saturating_sub(u64::from(machine.total.cpus));
        self.recount.went(name, machine.total.cpus);
        self.sessions.remove(&session);
        self.away.insert(name.clone());
        self.note_room(name, changes);
    }

    /// Keeps `deep` true for one claim.
    fn note_depth(&mut self, id: ClaimId) {
        if self.claims.get(&id).is_some_and(|c| c.jobs.len() > 1) {
            self.deep.insert(id);
        } else {
            self.deep.remove(&id);
        }
    }

    /// A number for a machine: its own if it has one.
    pub(crate) fn number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(machine) = self.machines.get(name) {
            return machine.number;
        }
        let number = self.unused.pop().unwrap_or_else(|| {
            self.names.push(None);
            self.names.len() as u32 - 1
        });
        self.names[number as usize] = Some(name.clone());
        number
    }

    /// How many numbers were ever given out.
    pub(crate) fn numbers(&self) -> usize {
        self.names.len()
    }

    /// The machine with a number.
    pub(crate) fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize)?.as_ref()
    }

    /// Forgets a machine; returns its number, which may be given out again.
    pub(crate) fn forget(&mut self, name: &Arc<str>, changes: &mut Changes) -> Option<u32> {
        self.disconnect(name, changes);
        self.away.remove(name);
        let number = self.machines.remove(name)?.number;
        self.roomy.remove(number);
        changes.note_machine(number);
        self.names[number as usize] = None;
        self.unused.push(number);
        Some(number)
    }
}

/// Books that a test may make false.
#[cfg(test)]
pub(crate) struct Spoilt<'a> {
    pub(crate) machines: &'a mut Machines,
    pub(crate) claims: &'a mut HashMap<ClaimId, Claim>,
    pub(crate) cores: &'a mut u64,
    pub(crate) away: &'a mut BTreeSet<Arc<str>>,
    pub(crate) roomy: &'a mut SlotSet,
}

/// What did not follow from the claims of a place.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    /// Claims that are over, or elsewhere.
    pub(super) dead: Vec<ClaimId>,
    /// What is free was another amount, or in no list.
    pub(super) room: bool,
}
