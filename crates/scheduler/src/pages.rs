//! Long lists for people, a page at a time: each page costs what is on it, wherever it begins.
//!
//! A cursor says where the next page begins. What stays as it is while somebody reads page after page is read exactly once; what
//! changes meanwhile (a waiting job that starts) may be read twice, or not at all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use classad::ClassAd;
use model::codes::hold;
use model::event::{Afterwards, Resources};
use model::{JobId, ProcSet};

use crate::books::Books;
use crate::gangs::Gangs;
use crate::pool::{Pool, host_of};
use crate::queue::{Cluster, Hold, Queue, Stage};
use crate::view;
use crate::view::{ClusterView, JobState, JobView, MachineView};

/// Clusters that are looked at for one page, when only those of one user are wanted.
const LOOKED_AT: usize = 20_000;

/// The parts of a list of jobs, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Section {
    /// A machine has them.
    #[default]
    Placed,
    Held,
    Waiting,
    Completed,
}

impl Section {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Placed, "placed"),
        (Self::Held, "held"),
        (Self::Waiting, "waiting"),
        (Self::Completed, "completed"),
    ];
}

/// Where a page of jobs begins: in which part of the list, and with which proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct JobCursor {
    section: Section,
    proc: u32,
}

/// Not a cursor that came with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this cursor did not come with a page of such a list")]
pub struct NotACursor;

impl fmt::Display for JobCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Section::ALL.iter().find(|(s, _)| *s == self.section).map_or("", |(_, word)| word);
        write!(f, "{word}.{}", self.proc)
    }
}

impl FromStr for JobCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, proc) = text.split_once('.').ok_or(NotACursor)?;
        let (section, _) = Section::ALL.iter().find(|(_, w)| *w == word).ok_or(NotACursor)?;
        Ok(Self { section: *section, proc: proc.parse().map_err(|_| NotACursor)? })
    }
}

/// Part of a list, and where the next part begins.
#[derive(Debug, Clone)]
pub struct Page<T, C> {
    /// What is on it.
    pub items: Vec<T>,
    /// `None` on the last one.
    pub next: Option<C>,
}

/// Clusters in the queue from an id on, oldest first; of one user, or of all. A page may have less than `limit`, and
/// another may follow nevertheless.
pub(crate) fn cluster_page(
    queue: &Queue,
    from: u32,
    owner: Option<&str>,
    limit: usize,
) -> Page<ClusterView, u32> {
    let mut items = Vec::new();
    for (looked_at, (&id, cluster)) in queue.clusters().range(from..).enumerate() {
        if items.len() >= limit || looked_at >= LOOKED_AT {
            return Page { items, next: Some(id) };
        }
        if owner.is_none_or(|owner| *cluster.owner == *owner) {
            items.extend(view::cluster(queue, id));
        }
    }
    Page { items, next: None }
}

/// Unfinished jobs of a cluster: those that machines have, held ones, waiting ones, those that ended and stay to be
/// looked at; each part in the order of procs.
pub(crate) fn job_page(
    queue: &Queue,
    pool: &Pool,
    gangs: &Gangs,
    id: u32,
    from: JobCursor,
    limit: usize,
) -> Page<JobView, JobCursor> {
    let mut items = Vec::new();
    let Some(cluster) = queue.clusters().get(&id) else { return Page { items, next: None } };
    for (section, _) in Section::ALL.into_iter().filter(|(section, _)| *section >= from.section) {
        let first = if section == from.section { from.proc } else { 0 };
        // One more than fits: where the next page begins.
        let enough = (limit - items.len()).saturating_add(1);
        let mut found = jobs_of(pool, gangs, id, cluster, section, first, enough);
        if items.len() + found.len() > limit {
            let next = found.pop().map(|job| JobCursor { section, proc: job.job.proc });
            items.append(&mut found);
            return Page { items, next };
        }
        items.append(&mut found);
    }
    Page { items, next: None }
}

fn jobs_of(
    pool: &Pool,
    gangs: &Gangs,
    id: u32,
    c: &Cluster,
    section: Section,
    from: u32,
    limit: usize,
) -> Vec<JobView> {
    let plain = |(proc, _)| plain_job(gangs, id, c, proc, JobState::Idle);
    match section {
        Section::Placed => {
            c.live.range(from..).take(limit).map(|(&proc, _)| placed_job(pool, gangs, id, c, proc)).collect()
        }
        Section::Held => {
            let held = merge(c.holds.iter().map(|h| &h.procs), from, limit).into_iter();
            held.map(|(proc, hold)| held_job(gangs, id, c, proc, c.holds.get(hold))).collect()
        }
        Section::Waiting => {
            let sets = c.parts.iter().map(|p| &p.idle).chain(c.later.values());
            merge(sets, from, limit).into_iter().map(plain).collect()
        }
        Section::Completed => {
            let ended = c.completed.iter_from(from).take(limit);
            ended.map(|proc| plain_job(gangs, id, c, proc, JobState::Completed)).collect()
        }
    }
}

/// One unfinished job.
pub(crate) fn job(queue: &Queue, pool: &Pool, gangs: &Gangs, job: JobId) -> Option<JobView> {
    let (id, proc) = (job.cluster, job.proc);
    let c = queue.clusters().get(&id)?;
    if c.live.contains_key(&proc) {
        return Some(placed_job(pool, gangs, id, c, proc));
    }
    if let Some(hold) = c.holds.iter().find(|h| h.procs.contains(proc)) {
        return Some(held_job(gangs, id, c, proc, Some(hold)));
    }
    let state = if c.completed.contains(proc) { JobState::Completed } else { JobState::Idle };
    let is_there = state == JobState::Completed || c.is_idle(proc);
    is_there.then(|| plain_job(gangs, id, c, proc, state))
}

/// What has become of an unfinished job so far, as attributes beside those that it was submitted with.
pub(crate) fn job_progress(queue: &Queue, view: &JobView, now: crate::Now) -> Option<ClassAd> {
    let JobId { cluster: id, proc } = view.job;
    let c = queue.clusters().get(&id)?;
    let mut ad = c.with_progress(ClassAd::new(), (id, proc), now, None);
    ad.insert_str("Owner", &c.owner);
    ad.insert_int("JobPrio", i64::from(c.priority));
    let stop = c.live.get(&proc).and_then(|live| live.stop.as_ref());
    if stop.is_some_and(|stop| stop.afterwards == Afterwards::Removed) {
        ad.insert_int("JobStatus", 3);
    } else if view.state == JobState::Suspended {
        ad.insert_int("JobStatus", 7);
    }
    if let (Some(slot), Some(machine), Some(_)) = (&view.slot, &view.machine, view.started_ms) {
        ad.insert_str("RemoteHost", &format!("{slot}@{machine}"));
    }
    Some(ad)
}

/// The job of a cluster that is meant when somebody asks why it waits: the first one that does, or its first one.
pub(crate) fn job_to_explain(queue: &Queue, pool: &Pool, gangs: &Gangs, id: u32) -> Option<JobId> {
    let c = queue.clusters().get(&id)?;
    let unplaced = c.parts.iter().map(|p| &p.idle).chain(c.later.values()).find_map(ProcSet::first);
    let other =
        || job_page(queue, pool, gangs, id, JobCursor::default(), 1).items.first().map(|job| job.job.proc);
    Some(JobId { cluster: id, proc: unplaced.or_else(other)? })
}

fn plain_job(gangs: &Gangs, id: u32, c: &Cluster, proc: u32, state: JobState) -> JobView {
    let waits = if gangs.has_plan(id) { "assigned" } else { "queued" };
    JobView {
        job: JobId { cluster: id, proc },
        state,
        started_ms: None,
        machine: None,
        slot: None,
        attempts: c.times_begun(proc),
        hold_reason: None,
        recipe: (c.gang && state == JobState::Idle).then_some(waits),
        guest_of: c.host_of(proc).map(|host| JobId { cluster: id, proc: host }),
    }
}

/// What the pool itself gave up is aborted, in a lab's words; a person, or the job's own policy, only holds it.
fn held_job(gangs: &Gangs, id: u32, c: &Cluster, proc: u32, hold: Option<&Hold>) -> JobView {
    let aborted =
        c.gang && hold.is_some_and(|h| !matches!(h.code, hold::BY_USER | hold::BY_POLICY | hold::BY_SUBMIT));
    JobView {
        hold_reason: hold.map(|h| (h.reason.clone(), h.code)),
        recipe: aborted.then_some("aborted"),
        ..plain_job(gangs, id, c, proc, JobState::Held)
    }
}

fn placed_job(pool: &Pool, gangs: &Gangs, id: u32, c: &Cluster, proc: u32) -> JobView {
    let plain = plain_job(gangs, id, c, proc, JobState::Idle);
    let Some(l) = c.live.get(&proc) else { return plain };
    let claim = pool.claims().get(&l.claim);
    let state = match l.started_ms {
        None => JobState::Idle,
        Some(_) if l.suspended => JobState::Suspended,
        Some(_) => JobState::Running,
    };
    JobView {
        state,
        started_ms: l.started_ms,
        machine: claim.map(|k| Arc::from(host_of(&k.machine))),
        slot: claim.map(|k| k.slot.clone()),
        recipe: match l.stage {
            _ if l.started_ms.is_some() => None,
            Stage::Scheduled if c.host_of(proc).is_some() => c.mirrored(proc),
            Stage::Scheduled => c.gang.then_some("scheduled"),
            Stage::Waiting => Some("waiting"),
            Stage::Installing => Some("installing"),
        },
        ..plain
    }
}

/// Machines (where they are divided, their places) from a name on, then those that only a decision of people is known of.
/// The cursor is for [`Core::machine_page`] only.
pub(crate) fn machine_page(books: &Books, from: &str, limit: usize) -> Page<MachineView, String> {
    let mut items = Vec::new();
    let decided_from = from.strip_prefix(DECIDED);
    if decided_from.is_none() {
        for (name, machine) in books.pool.machines().iter_from(from) {
            if items.len() >= limit {
                return Page { items, next: Some(name.to_string()) };
            }
            items.push(view::machine_view(books, name, machine));
        }
    }
    let begin = Bound::Included(decided_from.unwrap_or(""));
    let decided = books.labs.standings().range::<str, _>((begin, Bound::Unbounded));
    for (name, standing) in decided.filter(|(name, _)| !books.pool.machines().contains_key(*name)) {
        if items.len() >= limit {
            return Page { items, next: Some(format!("{DECIDED}{name}")) };
        }
        items.push(MachineView {
            unusable: None,
            name: name.clone(),
            slot: Arc::from("slot1"),
            connected: false,
            total: Resources::default(),
            free: Resources::default(),
            ad: Arc::default(),
            claims: Vec::new(),
            lab: Arc::from(""),
            standing: standing.clone(),
            shut: None,
            usage: "idle",
            heard_ms: 0,
        });
    }
    Page { items, next: None }
}

/// A machine with all its places, or one of them (`slot2@HOST`), or the place that a claimed slot (`slot1_2@HOST`) is cut from
/// with that one alone.
pub(crate) fn machines_named(books: &Books, wanted: &str) -> Vec<MachineView> {
    let (slot, host) = wanted.split_once('@').map_or((None, wanted), |(slot, host)| (Some(slot), host));
    let places = books.pool.places(host);
    let known =
        places.iter().filter_map(|p| Some(view::machine_view(books, p, books.pool.machines().get(p)?)));
    let mut found: Vec<MachineView> = known.collect();
    if found.is_empty() && books.labs.standings().contains_key(host) {
        let page = machine_page(books, &format!("{DECIDED}{host}"), 1);
        found.extend(page.items.into_iter().filter(|m| *m.name == *host));
    }
    found.retain_mut(|m| match slot {
        None => true,
        Some(slot) if *m.slot == *slot => true,
        Some(slot) => {
            m.claims.retain(|c| c.slot == slot);
            !m.claims.is_empty()
        }
    });
    found
}

/// Begins the cursor of a machine that only a decision is known of; no machine's name begins so.
const DECIDED: char = '+';

/// The first procs from one on that are in one of the sets, in order, each with the number of its set.
fn merge<'a>(sets: impl Iterator<Item = &'a ProcSet>, from: u32, limit: usize) -> Vec<(u32, usize)> {
    let mut rest = Vec::new();
    let mut heads = BinaryHeap::new();
    for (number, set) in sets.enumerate() {
        let mut procs = set.iter_from(from);
        if let Some(first) = procs.next() {
            heads.push(Reverse((first, number, rest.len())));
            rest.push(procs);
        }
    }
    let mut found = Vec::new();
    while let Some(Reverse((proc, number, at))) = heads.pop() {
        if found.len() >= limit {
            break;
        }
        found.push((proc, number));
        if let Some(next) = rest[at].next() {
            heads.push(Reverse((next, number, at)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_together_in_the_order_of_procs() {
        let sets: Vec<ProcSet> =
            [&[1, 2, 9][..], &[4, 5], &[3, 7]].iter().map(|procs| procs.iter().copied().collect()).collect();
        assert_eq!(merge(sets.iter(), 2, 5), [(2, 0), (3, 2), (4, 1), (5, 1), (7, 2)]);
        assert_eq!(merge(sets.iter(), 8, 5), [(9, 0)]);
        assert_eq!(merge(sets.iter(), 10, 5), []);
    }

    #[test]
    fn a_cursor_survives_its_text_and_others_are_refused() {
        for (section, _) in Section::ALL {
            let cursor = JobCursor { section, proc: 17 };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "held", "held.", "held.x", "done.1", "held.99999999999"] {
            assert_eq!(text.parse::<JobCursor>(), Err(NotACursor), "{text}");
        }
    }
}
