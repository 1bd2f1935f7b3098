//! What a person's word about jobs makes of them: held, released, removed, stopped, put in another order. What then finds room, and for
//! whom, is the pass's business.

use model::codes::{hold, vacate};
use model::event::{
    Afterwards, ClusterReordered, JobsHeld, JobsLeft, JobsReleased, JobsRemoved, Kind, StopRequested,
};
use model::{Class, JobId, JobName, ProcSet};

use crate::actions::{Actor, Outcome, Refusal, Which};
use crate::books::Books;
use crate::queue::Queue;
use crate::{Control, Effect, Out, Turn};

/// Which of a cluster's sets.
#[derive(Clone, Copy)]
enum Part {
    Idle,
    Held,
    Completed,
}

/// Gives the jobs of a cluster another place in the order; how many wait there now.
pub(crate) fn reorder(
    books: &mut Books,
    turn: &mut Turn<'_>,
    actor: &Actor,
    id: u32,
    procs: Option<&ProcSet>,
    priority: Option<i32>,
    class: Option<Class>,
) -> Result<u64, Refusal> {
    let Some(cluster) = books.queue.clusters().get(&id) else { return Ok(0) };
    if class.is_some() && !actor.any_owner {
        return Err(Refusal::ClassByAdministrators);
    }
    if procs.is_some() && cluster.template.procs() > 1 {
        return Err(Refusal::WholeCluster(id));
    }
    let changed = cluster.unfinished();
    let class = class.map(|c| c.name().to_owned());
    let by = actor.user.clone();
    books.record(turn, Kind::ClusterReordered(ClusterReordered { cluster: id, priority, class, by }));
    Ok(changed)
}

/// Clusters and, where only some jobs are meant, their procs.
pub(crate) fn select(
    queue: &Queue,
    actor: &Actor,
    which: &Which,
) -> Result<Vec<(u32, Option<ProcSet>)>, Refusal> {
    let of_user = |user: &str| {
        let clusters = queue.clusters().iter().filter(|(_, c)| &*c.owner == user);
        clusters.map(|(&id, _)| (id, None)).collect::<Vec<_>>()
    };
    match which {
        Which::All if actor.any_owner => Ok(queue.clusters().keys().map(|&id| (id, None)).collect()),
        Which::All => Ok(of_user(&actor.user)),
        Which::User(user) => {
            let found = of_user(user);
            match found.first() {
                Some((id, _)) if *user != actor.user && !actor.any_owner => {
                    Err(Refusal::NotYours { job: JobName::Cluster(*id), owner: user.clone() })
                }
                _ => Ok(found),
            }
        }
        Which::Named(name) => {
            let id = match name {
                JobName::Cluster(id) => *id,
                JobName::Job(job) => job.cluster,
            };
            let cluster = queue.clusters().get(&id).ok_or(Refusal::NoSuchJob(*name))?;
            if *cluster.owner != actor.user && !actor.any_owner {
                return Err(Refusal::NotYours { job: *name, owner: cluster.owner.to_string() });
            }
            match name {
                JobName::Cluster(_) => Ok(vec![(id, None)]),
                JobName::Job(job) => {
                    let here = cluster.is_idle(job.proc)
                        || cluster.held.contains(job.proc)
                        || cluster.completed.contains(job.proc)
                        || cluster.live.contains_key(&job.proc);
                    if !here {
                        return Err(Refusal::NoSuchJob(*name));
                    }
                    Ok(vec![(id, Some([job.proc].into_iter().collect()))])
                }
            }
        }
    }
}

pub(crate) fn hold(
    books: &mut Books,
    turn: &mut Turn<'_>,
    cluster: u32,
    procs: Option<&ProcSet>,
    reason: &str,
    outcome: &mut Outcome,
) {
    let idle = chosen(&books.queue, cluster, procs, Part::Idle);
    let already = chosen(&books.queue, cluster, procs, Part::Held).len();
    outcome.changed += idle.len() + already;
    outcome.unsuitable += chosen(&books.queue, cluster, procs, Part::Completed).len();
    if !idle.is_empty() {
        let reason = reason.to_owned();
        let held =
            JobsHeld { cluster, procs: idle.spans(), reason, code: hold::BY_USER, subcode: 0, exit: None };
        books.record(turn, Kind::JobsHeld(held));
    }
    outcome.changed += stop_live(books, turn, cluster, procs, Afterwards::Held, reason, (hold::BY_USER, 0));
}

pub(crate) fn release(
    books: &mut Books,
    turn: &mut Turn<'_>,
    cluster: u32,
    procs: Option<&ProcSet>,
    reason: &str,
    outcome: &mut Outcome,
) {
    let held = chosen(&books.queue, cluster, procs, Part::Held);
    outcome.changed += held.len();
    outcome.unsuitable += procs.map_or(0, |p| p.len() - held.len());
    if !held.is_empty() {
        let released = JobsReleased { cluster, procs: held.spans(), reason: reason.to_owned() };
        books.record(turn, Kind::JobsReleased(released));
    }
}

pub(crate) fn remove(
    books: &mut Books,
    turn: &mut Turn<'_>,
    cluster: u32,
    procs: Option<&ProcSet>,
    reason: &str,
    outcome: &mut Outcome,
) {
    // The live ones first: the cluster is gone once its last job is.
    outcome.changed +=
        stop_live(books, turn, cluster, procs, Afterwards::Removed, reason, (vacate::REMOVED, 0));
    let mut gone = chosen(&books.queue, cluster, procs, Part::Idle);
    for span in chosen(&books.queue, cluster, procs, Part::Held).spans() {
        gone.insert_range(span.first, span.procs().end);
    }
    let left = chosen(&books.queue, cluster, procs, Part::Completed);
    outcome.changed += gone.len() + left.len();
    if !left.is_empty() {
        // They have ended in their own way; only their place in the queue is given up.
        books.record(turn, Kind::JobsLeft(JobsLeft { cluster, procs: left.spans() }));
    }
    if !gone.is_empty() {
        let removed = JobsRemoved { cluster, procs: gone.spans(), reason: reason.to_owned() };
        books.record(turn, Kind::JobsRemoved(removed));
    }
}

/// Tells the machines of running jobs; returns how many.
pub(crate) fn control(
    books: &Books,
    cluster: u32,
    procs: Option<&ProcSet>,
    what: Control,
    out: &mut Out,
) -> u64 {
    let Some(cluster) = books.queue.clusters().get(&cluster) else { return 0 };
    let mut count = 0;
    for (proc, live) in &cluster.live {
        if live.started_ms.is_none() || procs.is_some_and(|p| !p.contains(*proc)) {
            continue;
        }
        let claim = books.pool.claims().get(&live.claim);
        let session = claim.and_then(|c| books.pool.machines().get(&c.machine)?.session);
        if let Some(session) = session {
            out.effects.push(Effect::Control { session, claim: live.claim, what });
            count += 1;
        }
    }
    count
}

/// The chosen procs of a cluster that are idle, or held.
fn chosen(queue: &Queue, cluster: u32, procs: Option<&ProcSet>, part: Part) -> ProcSet {
    let Some(cluster) = queue.clusters().get(&cluster) else { return ProcSet::default() };
    let all: ProcSet = match part {
        Part::Held => cluster.held.clone(),
        Part::Idle => cluster.idle(),
        Part::Completed => cluster.completed.clone(),
    };
    match procs {
        None => all,
        Some(procs) => procs.iter().filter(|p| all.contains(*p)).collect(),
    }
}

/// Asks the machines to stop live jobs; returns how many.
pub(crate) fn stop_live(
    books: &mut Books,
    turn: &mut Turn<'_>,
    cluster_id: u32,
    procs: Option<&ProcSet>,
    afterwards: Afterwards,
    reason: &str,
    (code, subcode): (u32, u32),
) -> u64 {
    let Some(cluster) = books.queue.clusters().get(&cluster_id) else { return 0 };
    let live: Vec<(u32, u32, model::ClaimId)> = cluster
        .live
        .iter()
        .filter(|(proc, _)| procs.is_none_or(|p| p.contains(**proc)))
        // A removal is not undone by a later hold.
        .filter(|(_, l)| l.stop.as_ref().is_none_or(|s| s.afterwards != Afterwards::Removed))
        .map(|(proc, l)| (*proc, l.attempt, l.claim))
        .collect();
    let count = live.len() as u64;
    for (proc, attempt, claim) in live {
        let reason = reason.to_owned();
        let afterwards = afterwards as i32;
        let stop = StopRequested { cluster: cluster_id, proc, attempt, afterwards, reason, code, subcode };
        books.record(turn, Kind::StopRequested(stop));
        // A machine that has not heard of a job cannot stop it.
        let claimed = books.pool.claims().get(&claim).filter(|c| !c.withheld);
        let session = claimed.and_then(|c| books.pool.machines().get(&c.machine)?.session);
        if let Some(session) = session {
            let job = JobId { cluster: cluster_id, proc };
            let vacate = afterwards == Afterwards::Idle as i32;
            turn.out.effects.push(Effect::Stop { session, claim, job, attempt, vacate });
        }
    }
    count
}
