//! The places of machines, as they come and go: which slots a machine that connected has, and when it is forgotten.
//!
//! What a place is stands in `pool`; what machines say of their jobs is in `agents`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use classad::ClassAd;
use model::codes::vacate;
use model::event::Resources;
use model::{ClaimId, Now};

use crate::books::Books;
use crate::pool::{Machine, down_time, host_of, is_static, minus, place_of};
use crate::undone::Undone;
use crate::{AgentHello, Turn, books, ended};

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

/// After recovery: nobody is connected yet, but machines with claims may well be alive. From now on each has the
/// time of its lease to come back.
pub(crate) fn recovered(books: &mut Books, now: Now) {
    // Before the first tick, too, expressions may ask for the time.
    books.shapes.set_now(now.wall_ms);
    books.clock_ms = now.wall_ms;
    // That a drain is over is not recorded. Who connects before the first tick must not meet it again.
    books.drains.end_those_over(now.wall_ms);
    let mut machines: BTreeMap<Arc<str>, BTreeSet<ClaimId>> = BTreeMap::new();
    for (id, claim) in books.pool.claims() {
        machines.entry(claim.machine.clone()).or_default().insert(*id);
    }
    // Word from a machine is noted at its first slot, so that must be there too.
    let mut more: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for place in machines.keys().filter(|place| host_of(place) != &***place) {
        more.entry(Arc::from(host_of(place))).or_default().push(place.clone());
    }
    for (host, places) in more {
        machines.entry(host.clone()).or_default();
        books.pool.set_more(&host, places);
    }
    for (name, claims) in machines {
        expect(books, now, &name, claims);
    }
}

/// A place is not here, and may come back with these claims until their leases run out.
pub(crate) fn expect(books: &mut Books, now: Now, place: &Arc<str>, claims: BTreeSet<ClaimId>) {
    let slots = claims.iter().map(|c| books.pool.claims()[c].slot_number).collect();
    let number = books.pool.number(place);
    let machine = Machine { claims, slots, ..Machine::unknown(number, now) };
    books.pool.put(place, machine, &mut books.changes);
    books.note_standing(place);
}

/// Puts the slots of a machine that connected into the pool; returns the claims that were known on it.
pub(crate) fn seat(
    books: &mut Books,
    undone: &mut Undone,
    turn: &mut Turn<'_>,
    host: &Arc<str>,
    hello: &AgentHello,
) -> BTreeSet<ClaimId> {
    let mut places = vec![(host.clone(), hello.total, &hello.ad)];
    for slot in &hello.more {
        places.push((place_of(host, &format!("slot{}", slot.number)), slot.total, &slot.ad));
    }
    let gone: Vec<Arc<str>> = books.pool.places(host);
    for place in gone.iter().filter(|old| !places.iter().any(|(name, ..)| name == *old)) {
        // Its owner divided the machine anew: what ran in a slot that is no more has no place.
        let claims = books.pool.machines().get(place).map(|m| m.claims.clone()).unwrap_or_default();
        for id in claims {
            ended::lose_claim(books, turn, id, "the machine no longer has the slot", vacate::MACHINE_FAILED);
        }
        forget_machine(books, place);
    }
    let mut known = BTreeSet::new();
    for (place, total, ad) in &places {
        let number = books.pool.number(place);
        if books.shapes.put_machine(number, ad, &mut books.changes) {
            books::resort::reshape(books, undone, turn.now.wall_ms, turn.out);
        }
        let (claims, slots) = books.pool.take_occupants(place);
        known.extend(claims.iter().copied());
        let used = claims.iter().filter_map(|c| books.pool.claims().get(c)).map(|c| c.resources);
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
        books.pool.put(place, machine, &mut books.changes);
        books.note_standing(place);
    }
    let more = places.into_iter().skip(1).map(|(place, ..)| place).collect();
    books.pool.set_more(host, more);
    known
}

/// Forgets a machine that is out of contact and has no claims.
pub(crate) fn forget_empty(books: &mut Books, host: &str) {
    let places = books.pool.places(host);
    let empty = |place: &Arc<str>| {
        books.pool.machines().get(place).is_none_or(|m| m.session.is_none() && m.claims.is_empty())
    };
    if places.iter().all(empty) {
        for place in &places {
            forget_machine(books, place);
        }
        books.pool.set_more(&Arc::from(host), Vec::new());
    }
}

fn forget_machine(books: &mut Books, name: &Arc<str>) {
    if let Some(number) = books.pool.forget(name, &mut books.changes) {
        books.shapes.remove_machine(number, &mut books.changes);
        books.refusals.forget_machine(number);
    }
}
