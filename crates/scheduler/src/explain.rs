//! The truth about a waiting job, or about a machine that does nothing, in terms of what the pass itself asks.
//!
//! Nothing here decides: every answer is that of a predicate which the pass goes by ([`Core::obstacle`], `may_have_more`'s
//! parts, the line of users, the throttle). Only which clause of a refused Requirements is to blame is found here, by
//! looking at the clauses one by one. An explanation changes nothing, though the match engine may learn from it.

mod said;

use std::collections::BTreeMap;
use std::sync::Arc;

use classad::ClassAd;
use classad::diagnose::refused_clauses;
use model::event::Resources;
use model::{JobId, Now};

use crate::accounts::{Accounts, InLine, UserId};
use crate::books::Books;
use crate::gangs::Gangs;
use crate::keys::Keys;
use crate::pass::Candidate;
use crate::pool::fits;
use crate::queue::Queue;
use crate::room::Obstacle;
use crate::shape::{Ready, ShapeId, Shapes};
use crate::throttle::Throttle;
use crate::undone::STEPS_TO_EXPLAIN;
use crate::{admission, gangs, room, view};

pub use said::{
    Ahead, GangWaits, JobExplanation, Kept, Lacking, MachineExplanation, Occupant, Refusing, Standing,
    Waiting,
};

/// Machines (or kinds of jobs) whose clauses are looked at one by one, at most: asking must not stop the pool.
const LOOKED_AT: usize = 500;
/// Users, clauses and kinds of jobs that an answer names, at most.
const NAMED: usize = 20;
/// Waiting parts that are counted, at most.
const COUNTED: usize = 100_000;

/// How much of one thing there is.
type Amount = fn(Resources) -> u64;

/// Why a job is where it is. `None` when there never was such a cluster, or it was forgotten.
pub(crate) fn explain_job(
    books: &mut Books,
    gangs: &Gangs,
    keys: &Keys,
    throttle: &Throttle,
    job: JobId,
    now: Now,
) -> Option<JobExplanation> {
    // With an allowance of its own, for somebody who only looks.
    let left = books.shapes.allowance();
    books.shapes.allow(STEPS_TO_EXPLAIN);
    let explained = explain_job_now(books, gangs, keys, throttle, job, now);
    books.shapes.allow(left);
    explained
}

fn explain_job_now(
    books: &mut Books,
    gangs: &Gangs,
    keys: &Keys,
    throttle: &Throttle,
    job: JobId,
    now: Now,
) -> Option<JobExplanation> {
    books.accounts.refresh(now.wall_ms);
    let Some(cluster) = books.queue.clusters().get(&job.cluster) else {
        let standing = Standing::Gone(view::finished(&books.queue, job.cluster)?);
        let owner = Arc::from("");
        return Some(JobExplanation {
            job,
            owner,
            submitted_ms: 0,
            attempts: 0,
            guest_of: None,
            checkpoint_missed: false,
            standing,
        });
    };
    if job.proc >= cluster.template.procs() {
        return None;
    }
    let (owner, submitted_ms) = (cluster.owner.clone(), cluster.submitted_ms);
    let attempts = cluster.times_begun(job.proc);
    let guest_of = cluster.host_of(job.proc).map(|proc| JobId { proc, ..job });
    let standing = if let Some(live) = cluster.live.get(&job.proc) {
        let claim = books.pool.claims().get(&live.claim)?;
        Standing::Placed {
            machine: Arc::from(crate::pool::host_of(&claim.machine)),
            slot: claim.slot.clone(),
            started_ms: live.started_ms,
            suspended: live.suspended,
            connected: books.pool.machines().get(&claim.machine).is_some_and(|m| m.session.is_some()),
            gang: cluster.gang,
        }
    } else if let Some(hold) = cluster.holds.iter().find(|h| h.procs.contains(job.proc)) {
        let (reason, code, since_ms) = (hold.reason.clone(), hold.code, hold.since_ms);
        Standing::Held { reason, code, since_ms }
    } else if cluster.is_idle(job.proc) {
        // A guest goes where its host goes.
        let proc = cluster.host_of(job.proc).filter(|host| cluster.is_idle(*host)).unwrap_or(job.proc);
        let part = cluster.part_of(proc);
        let ready = cluster.ready(job.cluster, part);
        let shape = cluster.parts.get(part)?.shape;
        Standing::Waiting(Box::new(explain_waiting(
            books,
            gangs,
            keys,
            throttle,
            Candidate { shape, ready },
            proc,
            now,
        )?))
    } else {
        Standing::Gone(cluster.summary)
    };
    let checkpoint_missed = view::checkpoint_missed(&books.queue, job);
    Some(JobExplanation { job, owner, submitted_ms, attempts, guest_of, checkpoint_missed, standing })
}

fn explain_waiting(
    books: &mut Books,
    gangs: &Gangs,
    keys: &Keys,
    throttle: &Throttle,
    Candidate { shape: id, ready }: Candidate,
    proc: u32,
    now: Now,
) -> Option<Waiting> {
    let shape = books.shapes.all().get(&id)?;
    let (user, request) = (shape.user, shape.request);
    let is_gang = books.queue.clusters().get(&ready.cluster).is_some_and(|c| c.gang);
    let demand =
        if is_gang { admission::demand_of_gang(&books.queue, &books.shapes, ready.cluster) } else { None };
    let shortage = match &demand {
        Some(demand) => admission::shortage_of_gang(books, gangs, ready.cluster, demand),
        None => admission::shortage_of(books, gangs, id),
    };
    let (mut ahead, mut users_ahead) = (Vec::new(), 0);
    let before = |at: &InLine<'_>| at.id != user && at.class >= ready.class.0;
    for at in books.accounts.in_line().take_while(before) {
        users_ahead += 1;
        if ahead.len() < NAMED {
            ahead.push(Ahead {
                user: at.user.name.clone(),
                effective: books.accounts.effective(at.id, now.wall_ms),
                held: books.accounts.held(at.id),
                jobs: count_waiting(&books.queue, &books.shapes, &books.accounts, at.id, None),
            });
        }
    }
    let before = books.queue.clusters().get(&ready.cluster).and_then(|c| c.parts.get(ready.part as usize));
    let in_part = before.map_or(0, |p| p.idle.iter().take_while(|p| *p < proc).count() as u64);
    let own_ahead = count_waiting(&books.queue, &books.shapes, &books.accounts, user, Some(ready)) + in_part;

    let shapes = books.queue.clusters().get(&ready.cluster).map(|c| c.shapes_of(proc)).unwrap_or_default();
    let names: Vec<Arc<str>> = books.pool.machines().keys().cloned().collect();
    let mut machines: BTreeMap<Obstacle, u64> = BTreeMap::new();
    let mut promised: BTreeMap<u32, Kept> = BTreeMap::new();
    let (mut open, mut capable, mut barred) = (0, 0, 0);
    let mut refused = Vec::new();
    for name in &names {
        let mut refusing = id;
        let mut obstacle = room::obstacle_now(books, gangs, id, ready.cluster, name, now.wall_ms);
        let never = [Obstacle::NoContact, Obstacle::TooSmall, Obstacle::Requirements];
        // Where a guest cannot be, its host cannot either.
        if obstacle.is_none_or(|o| !never.contains(&o))
            && let Some(number) = books.pool.machines().get(name).map(|m| m.number)
            && let Some(guest) = shapes.iter().skip(1).find(|s| !books.shapes.suits(**s, number))
        {
            (refusing, obstacle) = (*guest, Some(Obstacle::Requirements));
        }
        if obstacle == Some(Obstacle::Requirements)
            && let Some(machine) = books.pool.machines().get(name)
        {
            let job = books.shapes.ad(refusing);
            if job.is_some_and(|job| rests_from(&machine.ad, job)) {
                obstacle = Some(Obstacle::Resting);
            } else if is_owners(&machine.ad) {
                obstacle = Some(Obstacle::Owners);
            }
        }
        match obstacle {
            None => (open, capable) = (open + 1, capable + 1),
            Some(obstacle) => {
                let is_barred = matches!(
                    obstacle,
                    Obstacle::Owners
                        | Obstacle::Resting
                        | Obstacle::Shut(_)
                        | Obstacle::Lent
                        | Obstacle::NotAllowed
                        | Obstacle::Trees
                        | Obstacle::Unready
                );
                barred += u64::from(is_barred);
                capable += u64::from(!is_barred && !never.contains(&obstacle));
                if obstacle == Obstacle::Promised
                    && let Some(found) = kept(books, gangs, name, now.wall_ms)
                {
                    let of_gang = promised.entry(found.gang).or_insert(Kept { machines: 0, ..found });
                    of_gang.machines += 1;
                }
                if obstacle == Obstacle::Requirements {
                    refused.push((name.clone(), refusing));
                }
                *machines.entry(obstacle).or_default() += 1;
            }
        }
    }
    let mut clauses = Clauses::default();
    let step = refused.len().div_ceil(LOOKED_AT).max(1);
    for (name, refusing) in refused.iter().step_by(step) {
        let (machine, job) = (books.pool.machines().get(name), books.shapes.ad(*refusing));
        if let Some((machine, job)) = machine.zip(job) {
            clauses.look(job, &machine.ad, 1);
        }
    }
    let connected = || books.pool.machines().values().filter(|m| m.session.is_some()).map(|m| m.total);
    let most = |what: Amount| connected().map(what).max().unwrap_or(0);
    let parts: [(&'static str, Amount); 4] = [
        ("cores", |r| u64::from(r.cpus)),
        ("MiB of memory", |r| r.memory_mib),
        ("KiB of disk", |r| r.disk_kib),
        ("GPUs", |r| u64::from(r.gpus)),
    ];
    let lacking = parts.into_iter().map(|(what, of)| Lacking { what, wants: of(request), most: most(of) });
    Some(Waiting {
        user: books.accounts.get(user).name.clone(),
        request,
        shortage,
        throttled_ms: throttled_ms(throttle, now),
        not_before_ms: books.queue.clusters().get(&ready.cluster).and_then(|c| c.comes_at(proc)),
        starved: keys.are_wanted(),
        ahead,
        users_ahead,
        own_ahead,
        machines: machines.into_iter().collect(),
        open,
        capable,
        barred,
        lacking: lacking.filter(|l| l.wants > l.most && !names.is_empty()).collect(),
        looked_at: clauses.seen,
        clauses: clauses.sorted(),
        preempting: books.pool.rivals(id) > 0,
        promised: promised.into_values().collect(),
        gang: explain_gang(books, gangs, ready.cluster, now),
    })
}

fn explain_gang(books: &Books, gangs: &Gangs, id: u32, now: Now) -> Option<GangWaits> {
    let cluster = books.queue.clusters().get(&id).filter(|c| c.gang)?;
    let (ahead, gangs_ahead) = gangs::gangs_ahead(gangs, id, NAMED);
    let size = cluster.idle_count() + cluster.live.len() as u64 + cluster.held.len();
    let view = gangs::gang(books, gangs, id, now.wall_ms).filter(|_| gangs::waits_as_gang(&books.queue, id));
    Some(GangWaits { size, view, ahead, gangs_ahead })
}

/// The gang that a machine is kept for.
fn kept(books: &Books, gangs: &Gangs, name: &str, now_ms: u64) -> Option<Kept> {
    let (gang, until_s) = gangs::kept_for(books, gangs, books.pool.machines().get(name)?.number, now_ms)?;
    let owner = books.queue.clusters().get(&gang)?.owner.clone();
    Some(Kept { gang, owner, machines: 1, until_s })
}

/// Waiting jobs of a user: all, or those before a place.
fn count_waiting(
    queue: &Queue,
    shapes: &Shapes,
    accounts: &Accounts,
    user: UserId,
    before: Option<Ready>,
) -> u64 {
    let shapes = accounts.get(user).waiting().filter_map(|(_, id)| shapes.all().get(&id));
    let entries = shapes.flat_map(|s| s.ready.iter().take_while(|r| before.is_none_or(|b| **r < b)));
    entries.take(COUNTED).map(|r| idle_in(queue, *r)).sum()
}

fn idle_in(queue: &Queue, Ready { cluster, part, .. }: Ready) -> u64 {
    let part = queue.clusters().get(&cluster).and_then(|c| c.parts.get(part as usize));
    part.map_or(0, |p| p.idle.len())
}

fn throttled_ms(throttle: &Throttle, now: Now) -> Option<u64> {
    throttle.due_ms().map(|due| due.saturating_sub(now.mono_ms)).filter(|ms| *ms > 0)
}

/// Why a machine does what it does.
pub(crate) fn explain_machine(
    books: &mut Books,
    gangs: &Gangs,
    throttle: &Throttle,
    name: &str,
    now: Now,
) -> Option<MachineExplanation> {
    let left = books.shapes.allowance();
    books.shapes.allow(STEPS_TO_EXPLAIN);
    let explained = explain_machine_now(books, gangs, throttle, name, now);
    books.shapes.allow(left);
    explained
}

fn explain_machine_now(
    books: &mut Books,
    gangs: &Gangs,
    throttle: &Throttle,
    name: &str,
    now: Now,
) -> Option<MachineExplanation> {
    books.accounts.refresh(now.wall_ms);
    // A machine's first slot, and what is cut from one, have no place of their own.
    let place = name.split_once('@').map(|(slot, host)| crate::pool::place_of(host, slot));
    let machine = books.pool.machines().get(place.as_deref().unwrap_or(name))?;
    let name = books.pool.name(machine.number)?.clone();
    let (total, free, ad) = (machine.total, machine.free, machine.ad.clone());
    let (connected, shut, only) = (machine.session.is_some(), machine.shut, machine.only.clone());
    let owners = is_owners(&ad);
    let claims = machine.claims.iter().filter_map(|id| books.pool.claims().get(id));
    let occupant = |c: &crate::pool::Claim| Occupant {
        job: c.job(),
        owner: c.owner.clone(),
        slot: c.slot.clone(),
        reserved: c.reserved,
    };
    let jobs = claims.map(occupant).collect();

    let line: Vec<(ShapeId, Ready, u64)> = {
        let users = books.accounts.in_line().flat_map(|at| at.waiting());
        let count = |id: ShapeId| {
            let ready = books.shapes.all().get(&id).into_iter().flat_map(|s| &s.ready);
            ready.take(COUNTED).map(|r| idle_in(&books.queue, *r)).sum()
        };
        users.map(|(ready, id)| (id, ready, count(id))).collect()
    };
    let mut obstacles: BTreeMap<Obstacle, u64> = BTreeMap::new();
    let (mut waiting, mut startable, mut kept_back) = (0, 0, 0);
    let mut next = None;
    let mut clauses = Clauses::default();
    for (id, ready, count) in line {
        waiting += count;
        match room::obstacle_now(books, gangs, id, ready.cluster, &name, now.wall_ms) {
            Some(obstacle) => {
                if obstacle == Obstacle::Requirements
                    && clauses.looks < LOOKED_AT
                    && let Some(job) = books.shapes.ad(id)
                {
                    clauses.look(job, &ad, count);
                }
                *obstacles.entry(obstacle).or_default() += count;
            }
            None if !admission::may_have_more(books, gangs, id) => kept_back += count,
            None => {
                startable += count;
                next = next.or_else(|| {
                    let part = books.queue.clusters().get(&ready.cluster)?.parts.get(ready.part as usize)?;
                    Some(JobId { cluster: ready.cluster, proc: part.idle.first()? })
                });
            }
        }
    }
    debug_assert!(fits(free, total));
    let kept = kept(books, gangs, &name, now.wall_ms);
    Some(MachineExplanation {
        machine: name,
        connected,
        owners,
        shut,
        only,
        total,
        free,
        jobs,
        waiting,
        startable,
        next,
        obstacles: obstacles.into_iter().collect(),
        kept_back,
        clauses: clauses.sorted(),
        throttled_ms: throttled_ms(throttle, now),
        kept,
    })
}

/// Clauses that refused something, and how much.
#[derive(Default)]
struct Clauses {
    found: BTreeMap<(bool, String), Refusing>,
    looks: usize,
    seen: u64,
}

impl Clauses {
    /// Looks at a pair that does not match; it counts so many times.
    fn look(&mut self, job: &ClassAd, machine: &ClassAd, weight: u64) {
        self.looks += 1;
        self.seen += weight;
        let of_job = refused_clauses(job, machine).into_iter().map(|c| (true, c));
        let of_machine = refused_clauses(machine, job).into_iter().map(|c| (false, c));
        let all: Vec<_> = of_job.chain(of_machine).collect();
        let alone = if all.len() == 1 { weight } else { 0 };
        for (of_job, clause) in all {
            let text = clause.expr.to_string();
            let found = self.found.entry((of_job, text.clone())).or_insert_with(|| Refusing {
                of_job,
                clause: text,
                count: 0,
                alone: 0,
                notes: clause.notes,
            });
            found.count += weight;
            found.alone += alone;
        }
    }

    fn sorted(self) -> Vec<Refusing> {
        let mut all: Vec<Refusing> = self.found.into_values().collect();
        all.sort_by_key(|c| std::cmp::Reverse((c.count, c.alone, c.of_job)));
        all.truncate(NAMED);
        all
    }
}
/// Does the machine say that it lets no such job in for a while, because it would have to leave at once?
fn rests_from(ad: &ClassAd, job: &ClassAd) -> bool {
    let users = ad.eval_str("RestingFrom").unwrap_or_default();
    let is_kept_out = |owner: String| users.split(',').any(|user| user == owner);
    let rests = ad.fact("Resting").is_true() || job.eval_str("Owner").is_some_and(is_kept_out);
    // What the job itself does not want is its own doing.
    let wants = |expr| classad::Scope::of(job).target(ad).is_true(expr);
    rests && job.get("Requirements").is_none_or(wants)
}

/// Does the machine say that it is its owner's?
fn is_owners(ad: &ClassAd) -> bool {
    ad.fact("State") == classad::Value::from("Owner")
}
