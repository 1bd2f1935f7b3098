//! Gangs that the pool gives up: no lab could hold them for too long, or none ever could. They are held, and a person decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::codes::hold;
use model::event::{JobsHeld, Kind, Resources};
use planner::bits::Bits;
use planner::matching::{self, Choice};

use super::{fit_of, larger};
use crate::Turn;
use crate::books::Books;
use crate::gangs::Gangs;
use crate::labs::Shut;
use crate::pool::{Machine, Pool};
use crate::queue::Queue;
use crate::shape::{ShapeId, Shapes};

/// HoldReasonSubCode of one that was so from the beginning.
const IMPOSSIBLE: u32 = 1;

/// Could one lab hold all jobs of a gang, were its machines empty and in order?
pub(crate) fn is_conceivable(queue: &Queue, pool: &Pool, shapes: &mut Shapes, id: u32) -> bool {
    let Some(cluster) = queue.clusters().get(&id) else { return true };
    let hosts = cluster.idle().iter().filter(|proc| cluster.host_of(*proc).is_none()).collect::<Vec<u32>>();
    let wanted: Vec<ShapeId> =
        hosts.iter().filter_map(|p| Some(cluster.parts.get(cluster.part_of(*p))?.shape)).collect();
    let mut suited: BTreeMap<ShapeId, Bits> = BTreeMap::new();
    let mut largest = Resources::default();
    for shape in &wanted {
        if let Some(found) = shapes.all().get(shape) {
            largest = larger(largest, found.request);
        }
        if !suited.contains_key(shape) {
            let Some((viable, all)) = shapes.viable_and_whether_all(*shape) else { return true };
            if !all {
                return true;
            }
            suited.insert(*shape, viable.iter().map(|number| number as usize).collect());
        }
    }
    let here = |m: &&Machine| m.session.is_some() && m.shut != Some(Shut::Removed);
    let labs: BTreeSet<&Arc<str>> = pool.machines().values().filter(here).map(|m| &m.lab).collect();
    labs.into_iter().any(|lab| {
        let there = pool.machines().values().filter(here).filter(|m| m.lab == *lab);
        let there: Bits = there.map(|m| m.number as usize).collect();
        let seats: Vec<Choice<'_>> =
            wanted.iter().map(|s| Choice { can: suited[s].and(&there), prefer: &[] }).collect();
        let room = |number: usize| {
            let machine = pool.machines().at(number as u32);
            machine.map_or(0, |m| fit_of(largest, true, m).empty)
        };
        matching::exists(&seats, &room)
    })
}

/// A gang that no lab could ever hold is held at once, where the pool's owner wants that.
pub(crate) fn hold_impossible(books: &mut Books, turn: &mut Turn<'_>, cluster: u32) -> bool {
    let gang = books.queue.clusters().get(&cluster).is_some_and(|c| c.gang);
    if !gang
        || !books.settings.abort_impossible
        || is_conceivable(&books.queue, &books.pool, &mut books.shapes, cluster)
    {
        return false;
    }
    let procs = books.queue.clusters().get(&cluster).map(|c| c.idle().spans()).unwrap_or_default();
    let reason = "no lab could ever hold all its jobs, not even were all its machines empty and in order (ABORT_IMPOSSIBLE)";
    let (reason, code, subcode) = (reason.to_owned(), hold::UNSATISFIABLE, IMPOSSIBLE);
    books.record(turn, Kind::JobsHeld(JobsHeld { cluster, procs, reason, code, subcode, exit: None }));
    true
}

/// Gangs that no lab could hold for too long are held: a person decides.
pub(crate) fn give_up_gangs(books: &mut Books, gangs: &mut Gangs, turn: &mut Turn<'_>) {
    let grace_ms = books.settings.grace_ms;
    if grace_ms == 0 {
        return;
    }
    let over = gangs.hopeless.iter().filter(|(_, since)| turn.now.wall_ms >= since.saturating_add(grace_ms));
    for cluster in over.map(|(id, _)| *id).collect::<Vec<u32>>() {
        let Some(found) = books.queue.clusters().get(&cluster).filter(|c| c.live.is_empty()) else {
            continue;
        };
        let procs = found.idle().spans();
        let short = gangs.waiting.get(&cluster).and_then(|w| w.shortage.as_ref());
        let what = match short.filter(|s| s.is_for_ever()) {
            Some(shortage) => format!("the gang took {shortage}"),
            None => format!("no lab had a place for all {} jobs of the gang", found.idle_count()),
        };
        let reason = format!(
            "{what} for {} s (UNSATISFIABLE_GRACE); `updraft explain` says what is missing, `updraft release` tries again",
            grace_ms / 1000
        );
        gangs.hopeless.remove(&cluster);
        let held = JobsHeld { cluster, procs, reason, code: hold::UNSATISFIABLE, subcode: 0, exit: None };
        books.record(turn, Kind::JobsHeld(held));
    }
}
