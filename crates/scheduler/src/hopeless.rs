//! Plain jobs that nothing can ever satisfy: no machine of the pool would take them, even were it empty and its owner away, or they take more of a
//! limit or quota than there is. What waits for a time, or for what sensors say, is not among them. They are told of once, and held after UNSATISFIABLE_GRACE, like gangs.
//!
//! Some kinds of waiting jobs are looked at each second. Since when a kind is hopeless is counted from when this manager saw
//! it first, and from anew when a machine that would take it was there.

use std::collections::{BTreeMap, BTreeSet};

use classad::ClassAd;
use model::ProcSet;
use model::changing::{changes_by_itself, words_of};
use model::codes::hold;
use model::event::{JobsHeld, Kind};

use crate::books::Books;
use crate::gangs::Gangs;
use crate::pool::{Machine, Pool, fits};
use crate::shape::{ShapeId, Shapes};
use crate::{Turn, admission};

/// Kinds of jobs that are looked at in one go.
const KINDS: u32 = 64;
/// Machines that are asked one by one, at most: looking must not stop the pool.
const LOOKED_AT: usize = 100;

/// What is known of jobs that nothing can satisfy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hopeless {
    /// Parts of clusters, and since when, in Unix milliseconds.
    since: BTreeMap<(u32, u32), u64>,
    /// Clusters that were told of: once, of however many kinds their jobs are.
    told: BTreeSet<u32>,
    second: u64,
    next: u32,
}

/// True when a job's Requirements ask, directly or by way of the job's own attributes, for what changes by itself.
fn asks_for_what_changes(job: &ClassAd) -> bool {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut todo = vec!["requirements".to_owned()];
    while let Some(name) = todo.pop() {
        if changes_by_itself(&name) {
            return true;
        }
        let Some(expr) = job.get(&name).filter(|_| seen.insert(name)) else { continue };
        // Words rather than references: functions of time and chance count, too.
        todo.extend(words_of(&expr.to_string()).into_iter().map(|word| word.to_ascii_lowercase()));
    }
    false
}

/// Looks for jobs that nothing can ever satisfy.
pub(crate) fn find_hopeless(books: &mut Books, gangs: &Gangs, hopeless: &mut Hopeless, turn: &mut Turn<'_>) {
    let second = turn.now.mono_ms / 1_000;
    if std::mem::replace(&mut hopeless.second, second) == second || books.settings.grace_ms == 0 {
        return;
    }
    // Before any machine is here nobody knows what there will be.
    if books.pool.machines().values().all(|m| m.session.is_none()) {
        hopeless.since.clear();
        hopeless.told.clear();
        return;
    }
    let end = books.shapes.end();
    let from = if hopeless.next < end { hopeless.next } else { 0 };
    hopeless.next = from.saturating_add(KINDS);
    for shape in (from..end.min(hopeless.next)).map(ShapeId) {
        if books.shapes.allowance() <= 0 {
            hopeless.next = shape.0;
            break;
        }
        judge_kind(books, gangs, hopeless, turn, shape);
    }
    let queue = &books.queue;
    hopeless.since.retain(|(cluster, part), _| {
        let part = queue.clusters().get(cluster).and_then(|c| c.parts.get(*part as usize));
        part.is_some_and(|p| !p.idle.is_empty())
    });
    let is_waiting =
        |id: &u32| queue.clusters().get(id).is_some_and(|c| c.parts.iter().any(|p| !p.idle.is_empty()));
    hopeless.told.retain(is_waiting);
}

fn judge_kind(
    books: &mut Books,
    gangs: &Gangs,
    hopeless: &mut Hopeless,
    turn: &mut Turn<'_>,
    shape: ShapeId,
) {
    if books.shapes.all().get(&shape).is_none_or(|s| s.ready.is_empty()) {
        return;
    }
    let why = why_never(books, gangs, shape);
    if why.is_none() && hopeless.since.is_empty() {
        return;
    }
    let ready = books.shapes.all().get(&shape).into_iter().flat_map(|s| &s.ready);
    let parts: Vec<(u32, u32)> = ready.map(|r| (r.cluster, r.part)).collect();
    for (cluster, part) in parts {
        let Some(why) = &why else {
            if hopeless.since.remove(&(cluster, part)).is_some() {
                hopeless.told.remove(&cluster);
            }
            continue;
        };
        let since = *hopeless.since.entry((cluster, part)).or_insert(turn.now.wall_ms);
        if hopeless.told.insert(cluster) {
            let grace_s = books.settings.grace_ms / 1000;
            turn.out.warnings.push(format!(
                "jobs of cluster {cluster} can never start: {why}; they are held in {grace_s} s unless that changes"
            ));
        }
        if turn.now.wall_ms >= since.saturating_add(books.settings.grace_ms) {
            hold_hopeless(books, hopeless, turn, (cluster, part), why);
        }
    }
}

/// Why jobs of a kind can never start as things are; `None` when they could.
pub(crate) fn why_never(books: &mut Books, gangs: &Gangs, shape: ShapeId) -> Option<String> {
    if let Some(shortage) = admission::shortage_of(books, gangs, shape).filter(crate::Shortage::is_for_ever) {
        return Some(format!("each takes {shortage}"));
    }
    let (request, trees) = books.shapes.all().get(&shape).map(|s| (s.request, s.trees.clone()))?;
    let (machines, labs) = (&books.pool.machines(), &books.labs);
    // Machines that nobody may use now may be usable one day; those that are too small stay so.
    let (viable, all) = books.shapes.viable_and_whether_all(shape)?;
    // Before everybody was asked nobody knows.
    if !all {
        return None;
    }
    let viable = viable.iter().filter_map(|n| machines.at(n));
    let (mut any, mut could) = (false, false);
    for machine in viable.filter(|m| fits(request, m.total)) {
        any = true;
        could |= labs.has_trees(&machine.lab, &trees);
    }
    if could || (!any && may_agree_later(&books.pool, &mut books.shapes, shape)) {
        return None;
    }
    if any {
        return Some(format!("no lab with a machine for them has the trees {}", trees.join(", ")));
    }
    Some("no machine of the pool could run them, even were it empty".to_owned())
}

/// May a machine that is large enough, and refuses such jobs now, take them without anybody changing it? By the clock or
/// by chance, by what its sensors say, or because only its owner's policy is against it, which is for now.
fn may_agree_later(pool: &Pool, shapes: &mut Shapes, shape: ShapeId) -> bool {
    let is_unsure = shapes.unsure_of(shape) > 0;
    let Some((request, job)) = shapes.all().get(&shape).map(|s| s.request).zip(shapes.ad(shape)) else {
        return false;
    };
    let large = || pool.machines().values().filter(|m| m.session.is_some() && fits(request, m.total));
    if large().next().is_none() {
        return false;
    }
    if is_unsure || asks_for_what_changes(job) {
        return true;
    }
    let Some(requirements) = job.get("Requirements") else { return true };
    let step = large().count().div_ceil(LOOKED_AT).max(1);
    let agrees = |m: &Machine| classad::eval_match(job, &m.ad, requirements).is_true();
    large().step_by(step).any(|m| shapes.evaluate(|| agrees(m)).unwrap_or(true))
}

fn hold_hopeless(
    books: &mut Books,
    hopeless: &mut Hopeless,
    turn: &mut Turn<'_>,
    (cluster, part): (u32, u32),
    why: &str,
) {
    hopeless.since.remove(&(cluster, part));
    let Some(found) = books.queue.clusters().get(&cluster) else { return };
    let idle: ProcSet = found.parts.get(part as usize).map(|p| p.idle.clone()).unwrap_or_default();
    if idle.is_empty() {
        return;
    }
    let reason = format!(
        "{why}, for {} s (UNSATISFIABLE_GRACE); `updraft explain` says what is missing, `updraft release` tries again",
        books.settings.grace_ms / 1000
    );
    let procs = idle.spans();
    let held = JobsHeld { cluster, procs, reason, code: hold::UNSATISFIABLE, subcode: 0, exit: None };
    books.record(turn, Kind::JobsHeld(held));
}
