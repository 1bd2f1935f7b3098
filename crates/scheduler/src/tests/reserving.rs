//! More time for running jobs, and machines that owners keep after the run.

use model::event::{Exit, Kind};
use model::report::{Evicted, Happening};
use model::{JobId, JobName};

use super::said::exited;
use super::sharing::{Pool, of_machines as pool, with};
use super::{digest, template};
use crate::{Act, Actor, Core, GangView, JobState, Outcome, Refusal, Reserved, Settings, Turn, Which};

fn act(p: &mut Pool, user: &str, act: Act, cluster: u32) -> Result<Outcome, Refusal> {
    let actor = Actor { user: user.into(), any_owner: user == "root" };
    let which = Which::Named(JobName::Cluster(cluster));
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &actor, act, &which, "")
}

fn exit(p: &mut Pool, cluster: u32, code: u32) {
    let exit = Exit { code: Some(code), wall_us: 1_000_000, ..Exit::default() };
    p.tell(cluster, 0, |job| exited(job, exit));
}

#[test]
fn an_extension_moves_the_hard_end_for_the_watchdog_and_for_promises() {
    let mut p = pool(&["a", "b"]);
    let job = p.submit("ann", with(1, &[("AllowedExecuteDuration", "60")]));
    p.begin(job, 0);
    assert_eq!(act(&mut p, "bob", Act::Extend(60), job).unwrap_err().to_string(), "job 1 belongs to ann");
    assert_eq!(act(&mut p, "ann", Act::Extend(60), job).unwrap().changed, 1);
    let pair = p.submit("bob", with(2, &[("Gang", "true")]));
    let by = |p: &Pool| match p.core.gang(pair, p.now.wall_ms) {
        Some(GangView::Planned { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&p), p.now.wall_ms / 1000 + 120);

    // Now a gang counts on it: only an administrator moves the promise.
    assert!(
        matches!(act(&mut p, "ann", Act::Extend(60), job), Err(Refusal::Promised { gang, .. }) if gang == pair)
    );
    assert_eq!(act(&mut p, "root", Act::Extend(30), job).unwrap().changed, 1);
    assert_eq!(by(&p), p.now.wall_ms / 1000 + 150);
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(again.queue.clusters()[&job].extended, [(0, 150 - 60)].into());

    p.stops();
    p.wait(140_000);
    assert!(p.stops().is_empty(), "it has the time it was given");
    p.wait(12_000);
    assert_eq!(p.stops(), [JobId { cluster: job, proc: 0 }], "and no more");
    p.tell(job, 0, |job| {
        Happening::Evicted(Evicted { job, reason: "stopped".into(), code: 1000, hold: None })
    });
    assert_eq!(p.core.jobs(job, 9)[0].state, JobState::Held);
    assert!(p.core.queue.clusters()[&job].extended.is_empty(), "granted to that run only");
    assert_eq!(act(&mut p, "ann", Act::Extend(60), job).unwrap().changed, 0, "it does not run");
}

#[test]
fn an_owner_keeps_the_machine_after_the_run_and_returns_it_or_time_does() {
    let mut p = pool(&["a"]);
    let keeps = with(1, &[("ReserveAfter", "3600")]);
    let (job, next) = (p.submit("ann", keeps.clone()), p.submit("bob", template(1, 1)));
    exit(&mut p, job, 0);
    assert!(p.core.cluster(job).is_none(), "the job is over for who waits for it");
    assert_eq!(p.live(next), 0, "its machine is not");
    let view = p.core.machines().next().unwrap().claims[0].reserved;
    let until_ms = Some(p.now.wall_ms + 3_600_000);
    assert_eq!(view, Some(Reserved { job: JobId { cluster: job, proc: 0 }, until_ms }));

    // The same after a restart.
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(again.pool.claims().values().next().unwrap().reserved, view);
    assert_eq!(again.pool.reserved().len(), 1);

    let refused = act(&mut p, "bob", Act::Return, job).unwrap_err();
    assert!(matches!(refused, Refusal::NotYours { .. }), "{refused}");
    assert_eq!(act(&mut p, "ann", Act::Return, job).unwrap().changed, 1);
    assert_eq!(p.live(next), 1, "a return is a wake-up");
    assert_eq!(act(&mut p, "ann", Act::Return, job).unwrap().changed, 0);

    let again = p.submit("ann", keeps);
    exit(&mut p, next, 0);
    exit(&mut p, again, 1);
    let last = p.submit("bob", template(1, 1));
    p.wait(3_599_000);
    assert_eq!(p.live(last), 0);
    p.wait(1_000);
    assert_eq!(p.live(last), 1, "so is the end of its time");
}

#[test]
fn a_reservation_for_failures_only_and_what_a_gang_may_count_on() {
    let mut p = pool(&["a", "b"]);
    let keeps =
        with(1, &[("ReserveAfter", "600"), ("ReserveWhen", "\"failed\""), ("AllowedExecuteDuration", "60")]);
    let job = p.submit("ann", keeps.clone());
    exit(&mut p, job, 0);
    assert!(p.core.pool.claims().is_empty());
    let job = p.submit("ann", keeps.clone());
    let pair = p.submit("bob", with(2, &[("Gang", "true")]));
    let by = |p: &Pool| match p.core.gang(pair, p.now.wall_ms) {
        Some(GangView::Planned { by, .. }) => by - p.now.wall_ms / 1000,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&p), 660, "the run and what may follow");
    exit(&mut p, job, 1);
    assert!(p.out.events.iter().any(|e| matches!(e.kind, Some(Kind::JobReserved(_)))));
    assert_eq!(by(&p), 600);
    let short = p.submit("cid", with(1, &[("AllowedExecuteDuration", "300")]));
    let long = p.submit("ann", keeps);
    assert_eq!((p.live(short), p.live(long)), (1, 0), "it would keep the machine for too long");
}
