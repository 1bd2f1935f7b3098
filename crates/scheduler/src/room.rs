//! Which room jobs may have: questions only, asked by the pass, by whoever looks for victims, and by `explain`.

use std::sync::Arc;

use classad::engine::SlotSet;
use model::event::Resources;

use crate::books::Books;
use crate::gangs::{Gangs, Leave};
use crate::labs::Shut;
use crate::pool::{Machine, fits};
use crate::shape::{Ready, ShapeId};
use crate::undone::Undone;
use crate::{admission, gangs, labs, provision};

/// Why jobs of a shape do not start on a machine now. What the pass decides by is what people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The machine is out of contact.
    NoContact,
    /// It has less than the job asks for, even when empty.
    TooSmall,
    /// Its Requirements and the job's do not agree.
    Requirements,
    /// Its owner has it: its policy takes no job now, and may again later.
    Owners,
    /// It would let the job in and make it leave at once, as it did before: it rests from such jobs for a while.
    Resting,
    /// It takes nothing new from anybody.
    Shut(Shut),
    /// It is lent to somebody else.
    Lent,
    /// It takes only jobs of users and groups that do not include this one's.
    NotAllowed,
    /// Its lab does not have the trees that the job is installed from.
    Trees,
    /// It could not be made ready for this job before, or ended claims for such jobs before they began.
    Unready,
    /// It is in use.
    Busy,
    /// It has room that is kept for a gang, and the job is not sure to be gone in time.
    Promised,
    /// The job would run into its next maintenance window.
    Maintenance,
}

/// How often the machines that a job likes best are looked for among those that are left.
const FAVOURITES: usize = 8;

/// The next job of a shape that may start, and where.
pub(crate) fn first_room(
    books: &mut Books,
    gangs: &mut Gangs,
    undone: &mut Undone,
    shape: ShapeId,
    now_ms: u64,
) -> Option<(Ready, Arc<str>)> {
    let ready = books.shapes.all().get(&shape).and_then(|s| s.ready.first().copied())?;
    if !admission::may_have_more(books, gangs, shape) {
        return None;
    }
    Some((ready, room_for(books, gangs, undone, shape, now_ms)?))
}

/// The same, for somebody who only looks: it is nobody's turn for that.
pub(crate) fn first_room_unnoticed(
    books: &mut Books,
    gangs: &mut Gangs,
    undone: &mut Undone,
    shape: ShapeId,
    now_ms: u64,
) -> Option<(Ready, Arc<str>)> {
    let noticed = gangs.begin_unnoticed();
    // Who must be asked each time may say something else than when the pass asked.
    undone.sure_only = true;
    let found = first_room(books, gangs, undone, shape, now_ms);
    undone.sure_only = false;
    gangs.end_unnoticed(noticed);
    found
}

/// The machine with room that such a job likes best; the first, when it likes all the same.
pub(crate) fn room_for(
    books: &mut Books,
    gangs: &mut Gangs,
    undone: &mut Undone,
    shape: ShapeId,
    now_ms: u64,
) -> Option<Arc<str>> {
    gangs.begin_question();
    let room = find_room(books, gangs, undone, shape, now_ms);
    gangs.end_question();
    room
}

/// Machines that need not be asked again come first, and among the others those that are cheap to ask.
fn find_room(
    books: &mut Books,
    gangs: &Gangs,
    undone: &mut Undone,
    shape: ShapeId,
    now_ms: u64,
) -> Option<Arc<str>> {
    let (request, picky) = books.shapes.all().get(&shape).map(|s| (s.request, s.picky))?;
    let known = books.shapes.known(shape)?;
    // Whoever asks for nothing finds room on full machines, too.
    let asks_nothing = request == Resources::default();
    let with_room = |set: &SlotSet| -> Vec<u64> {
        if asks_nothing {
            return set.words().to_vec();
        }
        set.words().iter().zip(books.pool.roomy().words()).map(|(a, b)| a & b).collect()
    };
    let (sure, unsure) = (with_room(known.matching), with_room(known.unsure));
    let mut missed = !known.complete;
    let open = |number: u32| books.pool.machines().at(number).filter(|m| m.is_open());
    // A static slot is free or it is not, so it is the last that is asked to give nothing.
    let spare_static = asks_nothing && bits(sure.iter().copied()).any(|n| open(n).is_some_and(|m| !m.whole));
    let is_open = |number: u32| open(number).is_some_and(|m| !(spare_static && m.whole));
    let is_free = |number: u32| {
        let has_room = if asks_nothing { is_open(number) } else { fits(request, books.pool.room(number)) };
        has_room && !undone.holds_machine(number)
    };
    let may_have = |number: u32| {
        let machine = books.pool.machines().at(number);
        machine.is_some_and(|m| may_take(books, gangs, m, shape, now_ms))
    };
    let mut free = bits(sure.into_iter()).filter(|number| is_free(*number));
    // Of many machines to choose from only those are asked whether they may be taken that the job likes best.
    let mut found: Vec<u32> =
        if picky { free.collect() } else { free.find(|number| may_have(*number)).into_iter().collect() };
    if (picky || found.is_empty()) && !undone.sure_only {
        let of_use = |m: &Machine| {
            labs::is_for(&books.shapes, &books.accounts, &books.labs, m, shape)
                && provision::first_for(books, m, shape).is_some()
        };
        let machine = |number: u32| books.pool.machines().at(number).filter(|_| is_free(number));
        let mut unsure: Vec<u32> =
            bits(unsure.into_iter()).filter(|n| machine(*n).is_some_and(of_use)).collect();
        unsure.sort_by_key(|number| books.shapes.cost_of(*number));
        for number in unsure {
            match books.shapes.answer(shape, number) {
                Some(true) => {
                    let machine = books.pool.machines().at(number);
                    if picky || machine.is_some_and(|m| may_take(books, gangs, m, shape, now_ms)) {
                        found.push(number);
                    }
                }
                Some(false) => {}
                None => missed = true,
            }
            if !picky && !found.is_empty() {
                break;
            }
        }
    }
    if missed {
        undone.note_missed();
    }
    let best =
        if picky { find_favourite(books, gangs, shape, found, now_ms) } else { found.first().copied() };
    books.pool.name(best?).cloned()
}

/// The first machine that such a job may take among those that it likes best; among those that it likes next, if it may take
/// none of them.
fn find_favourite(
    books: &mut Books,
    gangs: &Gangs,
    shape: ShapeId,
    mut machines: Vec<u32>,
    now_ms: u64,
) -> Option<u32> {
    machines.sort_unstable();
    for _ in 0..FAVOURITES {
        let best = books.shapes.favourites(shape, &machines);
        if let Some(found) = first_to_take(books, gangs, shape, best.iter().copied(), now_ms) {
            return Some(found);
        }
        // Both are in order.
        let mut refused = best.into_iter().peekable();
        machines.retain(|number| refused.next_if_eq(number).is_none());
        if machines.is_empty() {
            return None;
        }
    }
    // So much is kept against it that the rest is put in order at once.
    let taken: Vec<u32> = machines
        .into_iter()
        .filter(|n| first_to_take(books, gangs, shape, [*n].into_iter(), now_ms).is_some())
        .collect();
    books.shapes.favourites(shape, &taken).first().copied()
}

fn first_to_take(
    books: &Books,
    gangs: &Gangs,
    shape: ShapeId,
    mut machines: impl Iterator<Item = u32>,
    now_ms: u64,
) -> Option<u32> {
    machines.find(|number| {
        let machine = books.pool.machines().at(*number);
        machine.is_some_and(|m| may_take(books, gangs, m, shape, now_ms))
    })
}

/// May such a job take room on this machine, whoever it is lent or promised to?
pub(crate) fn may_take(books: &Books, gangs: &Gangs, machine: &Machine, shape: ShapeId, now_ms: u64) -> bool {
    labs::is_for(&books.shapes, &books.accounts, &books.labs, machine, shape)
        && provision::first_for(books, machine, shape).is_some()
        && gangs::plans::respects_promises(books, gangs, machine, shape, now_ms)
}

/// Why jobs of a shape do not start on a machine now; `None` when they would.
pub(crate) fn obstacle(books: &mut Books, shape: ShapeId, name: &str) -> Option<Obstacle> {
    let Some(machine) = books.pool.machines().get(name) else { return Some(Obstacle::NoContact) };
    let Some(request) = books.shapes.all().get(&shape).map(|s| s.request) else {
        return Some(Obstacle::Requirements);
    };
    if machine.session.is_none() {
        Some(Obstacle::NoContact)
    } else if !fits(request, machine.total) {
        Some(Obstacle::TooSmall)
    } else if !books.shapes.can_run(shape, machine) {
        Some(Obstacle::Requirements)
    } else if let Some(shut) = machine.shut {
        Some(Obstacle::Shut(shut))
    } else if !labs::is_for(&books.shapes, &books.accounts, &books.labs, machine, shape) {
        let lent = machine.only.is_some();
        if !labs::has_trees_for(&books.shapes, &books.labs, machine, shape) {
            return Some(Obstacle::Trees);
        }
        Some(if lent { Obstacle::Lent } else { Obstacle::NotAllowed })
    } else if !fits(request, machine.free) {
        Some(Obstacle::Busy)
    } else {
        None
    }
}

/// The same, with what is promised to gangs: to the gang itself that is no obstacle.
pub(crate) fn obstacle_now(
    books: &mut Books,
    gangs: &Gangs,
    shape: ShapeId,
    cluster: u32,
    name: &str,
    now_ms: u64,
) -> Option<Obstacle> {
    // One that could not be made ready is no better when it is free.
    let number = books.pool.machines().get(name).map(|m| m.number);
    let refuses = number.is_some_and(|number| books.refusals.rests(number, shape, books.mono_ms));
    let unready =
        refuses || provision::is_excluded(&books.settings, &books.queue, books.clock_ms, cluster, name);
    let found = obstacle(books, shape, name).filter(|o| !unready || *o != Obstacle::Busy);
    if let Some(obstacle) = found.or(unready.then_some(Obstacle::Unready)) {
        return Some(obstacle);
    }
    match gangs::plans::leave(books, gangs, books.pool.machines().get(name)?, shape, now_ms) {
        Leave::Withheld { gang, .. } if gang != cluster => Some(Obstacle::Promised),
        Leave::Maintenance { .. } => Some(Obstacle::Maintenance),
        _ => None,
    }
}

/// The numbers of the bits that are set.
fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    words.enumerate().flat_map(|(at, word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(at as u32 * 64 + bit)
        })
    })
}
