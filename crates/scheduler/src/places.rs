//! The places of machines, as they come and go: which slots a machine that connected has, and when it is forgotten.
//!
//! What a place is stands in `pool`; what machines say of their jobs is in `agents`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use classad::ClassAd;
use model::codes::vacate;
use model::event::Resources;
use model::{ClaimId, Now};

use crate::pool::{Machine, down_time, host_of, is_static, minus, place_of};
use crate::{AgentHello, Core, Turn};

/// A slot of a divided machine.
#[derive(Debug, Clone)]
pub struct AgentSlot {
    /// Its number, from 2.
    pub number: u32,
    /// What the pool may use of it.
    pub total: Resources,
    /// Its ad.
    pub ad: ClassAd,
}

impl Core {
    /// After recovery: nobody is connected yet, but machines with claims may well be alive. From now on each has the
    /// time of its lease to come back.
    pub fn recovered(&mut self, now: Now) {
        // Before the first tick, too, expressions may ask for the time.
        self.shapes.set_now(now.wall_ms);
        self.clock_ms = now.wall_ms;
        // That a drain is over is not recorded. Who connects before the first tick must not meet it again.
        self.drains.end_those_over(now.wall_ms);
        let mut machines: BTreeMap<Arc<str>, BTreeSet<ClaimId>> = BTreeMap::new();
        for (id, claim) in self.pool.claims() {
            machines.entry(claim.machine.clone()).or_default().insert(*id);
        }
        // Word from a machine is noted at its first slot, so that must be there too.
        let mut more: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for place in machines.keys().filter(|place| host_of(place) != &***place) {
            more.entry(Arc::from(host_of(place))).or_default().push(place.clone());
        }
        for (host, places) in more {
            machines.entry(host.clone()).or_default();
            self.pool.set_more(&host, places);
        }
        for (name, claims) in machines {
            self.expect(now, &name, claims);
        }
    }

    /// A place is not here, and may come back with these claims until their leases run out.
    pub(crate) fn expect(&mut self, now: Now, place: &Arc<str>, claims: BTreeSet<ClaimId>) {
        let slots = claims.iter().map(|c| self.pool.claims()[c].slot_number).collect();
        let number = self.pool.number(place);
        let machine = Machine { claims, slots, ..Machine::unknown(number, now) };
        self.pool.put(place, machine, &mut self.changes);
        self.note_standing(place);
    }

    /// Puts the slots of a machine that connected into the pool; returns the claims that were known on it.
    pub(crate) fn seat(
        &mut self,
        turn: &mut Turn<'_>,
        host: &Arc<str>,
        hello: &AgentHello,
    ) -> BTreeSet<ClaimId> {
        let mut places = vec![(host.clone(), hello.total, &hello.ad)];
        for slot in &hello.more {
            places.push((place_of(host, &format!("slot{}", slot.number)), slot.total, &slot.ad));
        }
        let gone: Vec<Arc<str>> = self.pool.places(host);
        for place in gone.iter().filter(|old| !places.iter().any(|(name, ..)| name == *old)) {
            // Its owner divided the machine anew: what ran in a slot that is no more has no place.
            let claims = self.pool.machines().get(place).map(|m| m.claims.clone()).unwrap_or_default();
            for id in claims {
                self.lose_claim(turn, id, "the machine no longer has the slot", vacate::MACHINE_FAILED);
            }
            self.forget_machine(place);
        }
        let mut known = BTreeSet::new();
        for (place, total, ad) in &places {
            let number = self.pool.number(place);
            if self.shapes.put_machine(number, ad, &mut self.changes) {
                self.reshape(turn.now.wall_ms, turn.out);
            }
            let (claims, slots) = self.pool.take_occupants(place);
            known.extend(claims.iter().copied());
            let used = claims.iter().filter_map(|c| self.pool.claims().get(c)).map(|c| c.resources);
            let mut machine = Machine {
                session: Some(hello.session),
                down_s: down_time(ad),
                ad: Arc::new((*ad).clone()),
                total: *total,
                free: used.fold(*total, minus),
                claims,
                slots,
                whole: is_static(ad),
                undecided: true,
                ..Machine::unknown(number, turn.now)
            };
            machine.settle();
            self.pool.put(place, machine, &mut self.changes);
            self.note_standing(place);
        }
        let more = places.into_iter().skip(1).map(|(place, ..)| place).collect();
        self.pool.set_more(host, more);
        known
    }

    /// Forgets a machine that is out of contact and has no claims.
    pub(crate) fn forget_empty(&mut self, host: &str) {
        let places = self.pool.places(host);
        let empty = |place: &Arc<str>| {
            self.pool.machines().get(place).is_none_or(|m| m.session.is_none() && m.claims.is_empty())
        };
        if places.iter().all(empty) {
            for place in &places {
                self.forget_machine(place);
            }
            self.pool.set_more(&Arc::from(host), Vec::new());
        }
    }

    fn forget_machine(&mut self, name: &Arc<str>) {
        if let Some(number) = self.pool.forget(name, &mut self.changes) {
            self.shapes.remove_machine(number, &mut self.changes);
            self.refusals.forget_machine(number);
        }
    }
}
