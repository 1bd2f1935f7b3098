//! Why a job waits, why a machine does nothing: what the core says, as JSON.

use api::explain::{Ahead, Clause, Count, Gang, Job, Kept, Lacking, Machine, Occupant, Standing, Waiting};
use axum::Json;
use axum::http::StatusCode;
use model::{JobId, JobName, text};
use scheduler::{GangView, Obstacle, Scarce};

use super::route::Call;
use super::who::Problem;

/// Why a job is where it is; a cluster's first unfinished job, when no proc is named.
pub(super) async fn job(call: Call<String>) -> Result<Json<Job>, Problem> {
    let id = &call.part;
    let name = id.parse::<JobName>().map_err(|e| Problem::bad(e.to_string()))?;
    let turn = call.turn().await;
    let found = call.shared.handle.explain(move |core, now| {
        let job = match name {
            JobName::Job(job) => job,
            JobName::Cluster(cluster) => core.job_to_explain(cluster).unwrap_or(JobId { cluster, proc: 0 }),
        };
        core.explain_job(job, now)
    });
    let found = found.await?;
    drop(turn);
    let Some(found) = found else {
        let message = format!("job {} is not in the queue", text::shorten(id, 60));
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_such_job", message));
    };
    let standing = match found.standing {
        scheduler::Standing::Held { reason, code, since_ms } => Standing::Held { reason, code, since_ms },
        scheduler::Standing::Placed { machine, slot, started_ms, suspended, connected, gang } => {
            Standing::Placed { machine: machine.to_string(), slot, started_ms, suspended, connected, gang }
        }
        scheduler::Standing::Gone(s) => {
            Standing::Gone { succeeded: s.succeeded, failed: s.failed, removed: s.removed }
        }
        scheduler::Standing::Waiting(w) => Standing::Waiting(Box::new(waiting(*w))),
    };
    let logs = call.shared.job_logs.of(&found.owner);
    Ok(Json(Job {
        logs,
        job: found.job.to_string(),
        owner: found.owner.to_string(),
        submitted_ms: found.submitted_ms,
        attempts: found.attempts,
        guest_of: found.guest_of.map(|host| host.to_string()),
        checkpoint_missed: found.checkpoint_missed,
        standing,
    }))
}

fn waiting(w: scheduler::Waiting) -> Waiting {
    let ahead = |a: scheduler::Ahead| Ahead {
        user: a.user.to_string(),
        effective: a.effective,
        held: a.held,
        jobs: a.jobs,
    };
    let (mut limit, mut quota) = (None, None);
    match w.shortage.as_ref().map(|s| &s.what) {
        Some(Scarce::Limit(name)) => limit = Some(name.clone()),
        Some(Scarce::Quota(name)) => quota = Some(name.clone()),
        None => {}
    }
    let lacking = |l: scheduler::Lacking| Lacking { what: l.what.to_owned(), wants: l.wants, most: l.most };
    Waiting {
        user: w.user.to_string(),
        request: w.request,
        limit,
        quota,
        takes: w.shortage.as_ref().map(ToString::to_string),
        never: w.shortage.as_ref().is_some_and(scheduler::Shortage::is_for_ever),
        kept_for: w.shortage.as_ref().and_then(|s| s.kept_for),
        throttled_ms: w.throttled_ms,
        not_before_ms: w.not_before_ms,
        preempting: w.preempting,
        users_ahead: w.users_ahead,
        ahead: w.ahead.into_iter().map(ahead).collect(),
        own_ahead: w.own_ahead,
        open: w.open,
        capable: w.capable,
        barred: w.barred,
        machines: counts(&w.machines),
        lacking: w.lacking.into_iter().map(lacking).collect(),
        looked_at: w.looked_at,
        clauses: w.clauses.into_iter().map(clause).collect(),
        promised: w.promised.into_iter().map(kept).collect(),
        gang: w.gang.map(gang),
    }
}

fn kept(k: scheduler::Kept) -> Kept {
    Kept { gang: k.gang, owner: k.owner.to_string(), machines: k.machines, until_s: k.until_s }
}

fn gang(g: scheduler::GangWaits) -> Gang {
    let mut out = Gang {
        size: g.size,
        why: String::new(),
        machines: Vec::new(),
        by_s: None,
        since_ms: None,
        for_gang: None,
        ahead: g.ahead,
        gangs_ahead: g.gangs_ahead,
    };
    let why = match g.view {
        None => "incomplete",
        Some(GangView::Planned { machines, by }) => {
            out.machines = machines.iter().map(ToString::to_string).collect();
            out.by_s = Some(by);
            "planned"
        }
        Some(GangView::Unsatisfiable { since_ms }) => {
            out.since_ms = Some(since_ms);
            "unsatisfiable"
        }
        Some(GangView::Withheld(other)) => {
            out.for_gang = Some(other);
            "withheld"
        }
        Some(GangView::Behind(other)) => {
            out.for_gang = other;
            "behind"
        }
        Some(GangView::OutsideDepth) => "outside_depth",
        Some(GangView::Short(shortage)) if shortage.is_for_ever() => "unsatisfiable",
        Some(GangView::Short(_)) => "short",
    };
    why.clone_into(&mut out.why);
    out
}

fn counts(counts: &[(Obstacle, u64)]) -> Vec<Count> {
    let word = |obstacle: Obstacle| match obstacle {
        Obstacle::NoContact => "no_contact",
        Obstacle::Shut(shut) => shut.word(),
        Obstacle::Lent => "lent",
        Obstacle::NotAllowed => "not_allowed",
        Obstacle::Trees => "no_tree",
        Obstacle::Unready => "unready",
        Obstacle::TooSmall => "too_small",
        Obstacle::Requirements => "requirements",
        Obstacle::Owners => "owners",
        Obstacle::Resting => "resting",
        Obstacle::Busy => "busy",
        Obstacle::Promised => "promised",
        Obstacle::Maintenance => "maintenance",
    };
    counts.iter().map(|(what, count)| Count { what: word(*what).to_owned(), count: *count }).collect()
}

fn clause(c: scheduler::Refusing) -> Clause {
    let of = if c.of_job { "job" } else { "machine" }.to_owned();
    Clause { of, clause: c.clause, count: c.count, alone: c.alone, notes: c.notes }
}

/// Why a machine does what it does.
pub(super) async fn machine(call: Call<String>) -> Result<Json<Machine>, Problem> {
    let (name, asked) = (&call.part, model::machine::fold(&call.part));
    let turn = call.turn().await;
    let found = call.shared.handle.explain(move |core, now| core.explain_machine(&asked, now)).await?;
    drop(turn);
    let Some(m) = found else {
        let message = format!("there is no machine {} in the pool", text::shorten(name, 60));
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_such_machine", message));
    };
    let occupant = |o: scheduler::Occupant| Occupant {
        slot: o.slot,
        owner: o.owner.to_string(),
        job: o.job.map(|j| j.to_string()),
        kept_for: o.reserved.map(|r| if r.until_ms.is_some() { "owner" } else { "gang" }.to_owned()),
    };
    Ok(Json(Machine {
        machine: m.machine.to_string(),
        connected: m.connected,
        owners: m.owners,
        shut: m.shut.map_or_else(String::new, |s| s.word().to_owned()),
        only: m.only.map_or_else(String::new, |user| user.to_string()),
        total: m.total,
        free: m.free,
        jobs: m.jobs.into_iter().map(occupant).collect(),
        waiting: m.waiting,
        startable: m.startable,
        next: m.next.map(|j| j.to_string()),
        obstacles: counts(&m.obstacles),
        kept_back: m.kept_back,
        clauses: m.clauses.into_iter().map(clause).collect(),
        throttled_ms: m.throttled_ms,
        kept: m.kept.map(kept),
    }))
}
