//! Jobs that wait for their time, that stay after it, and that run too long, in virtual time.

use super::*;
use crate::view::JobState;

/// What submit adds to the requirements of deferred jobs.
const CLAUSE: &str = "TARGET.HasJobDeferral && (((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) && \
                      (time() < (DeferralTime + DeferralWindow)))";

fn deferred(more: &[(&str, &str)]) -> JobTemplate {
    let mut template =
        with(&[("Requirements", CLAUSE), ("DeferralPrepTime", "300"), ("ScheddInterval", "300")]);
    for (name, expr) in more {
        template.set(name, *expr);
    }
    template
}

fn assigned(world: &World) -> Vec<u64> {
    let given = world.journal.iter().filter(|e| matches!(e.kind, Some(Kind::JobsAssigned(_))));
    given.map(|e| e.time_ms).collect()
}

fn deliver(world: &mut World) {
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
}

/// Lets time pass as the manager does: from wish to wish.
fn pass(world: &mut World, ms: u64) {
    let end = world.now.wall_ms + ms;
    while world.now.wall_ms < end {
        let step = world.core.next_tick_ms(world.now).max(1).min(end - world.now.wall_ms);
        world.wait(step);
    }
}

#[test]
fn a_deferred_job_is_given_away_at_its_second() {
    // The clock stands at 1000 s.
    for (time, window, at) in [
        ("1007", "0", 1_007_000),
        ("QDate + 7", "0", 1_007_000),
        ("CurrentTime + 7", "0", 1_007_000),
        ("time() + 7", "0", 1_007_000),
        ("1007.0", "0", 1_007_000),
        // Past, but not for too long.
        ("990", "20", 1_000_001),
    ] {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, deferred(&[("DeferralTime", time), ("DeferralWindow", window)]));
        pass(&mut world, 60_000);
        assert_eq!(assigned(&world), [at], "{time}");
        assert_eq!(story(&world), "", "{time}");
    }
}

#[test]
fn a_restart_changes_no_time() {
    let mut world = World::new();
    submit(&mut world, deferred(&[("DeferralTime", "CurrentTime + 30"), ("DeferralWindow", "0")]));
    pass(&mut world, 10_000);
    world.crash();
    pass(&mut world, 10_000);
    world.crash();
    world.connect(0);
    pass(&mut world, 15_000);
    assert_eq!(assigned(&world), [1_030_000]);
}

#[test]
fn a_missed_window_holds_the_job() {
    for (time, window, held_at) in [
        ("1010", "0", 1_011_000),
        ("1010", "25", 1_036_000),
        ("900", "5", 1_000_001),
        ("\"noon\"", "5", 1_000_001),
    ] {
        let mut world = World::new();
        submit(&mut world, deferred(&[("DeferralTime", time), ("DeferralWindow", window)]));
        pass(&mut world, 20_000);
        world.crash();
        pass(&mut world, 40_000);
        assert_eq!(story(&world), "012:11:0", "{time}");
        let held = world.journal.iter().find(|e| matches!(e.kind, Some(Kind::JobsHeld(_)))).unwrap();
        assert_eq!(held.time_ms, held_at, "{time} {window}");
        world.connect(0);
        assert!(assigned(&world).is_empty());
    }
    // The reason names the last second; released in vain, it is held again.
    let mut world = World::new();
    submit(&mut world, deferred(&[("DeferralTime", "1010"), ("DeferralWindow", "5")]));
    pass(&mut world, 20_000);
    let reason = world.core.jobs(1, 1)[0].hold_reason.clone().unwrap();
    assert_eq!(
        reason,
        ("Job missed deferred execution time: no machine had room for it by 1970-01-01 00:16:55".into(), 11)
    );
    let mut out = Out::default();
    let actor = Actor { user: "u".into(), any_owner: false };
    world
        .core
        .act(&mut Turn { now: world.now, digest, out: &mut out }, &actor, Act::Release, &Which::All, "again")
        .unwrap();
    world.commit(out);
    pass(&mut world, 1_000);
    assert_eq!(story(&world), "012:11:0 013 012:11:0");
}

#[test]
fn a_crontab_names_the_next_time_again_and_again() {
    let mut world = World::new();
    world.connect(0);
    let cron = [("CronMinute", "\"*/2\""), ("DeferralWindow", "0"), ("OnExitRemove", "false")];
    submit(&mut world, deferred(&cron));
    // 1000 s is 00:16:40; it ends at once each time, which costs nothing here: it has a time of its own.
    for _ in 0..8 {
        pass(&mut world, 120_000);
        run_once(&mut world, Exit { code: Some(0), wall_us: 1_000, ..Exit::default() });
    }
    let expected: Vec<u64> = (0..8).map(|n| 1_080_000 + n * 120_000).collect();
    assert_eq!(assigned(&world), expected);
}

#[test]
fn a_crowd_is_put_off_together_and_by_its_differences() {
    let mut world = World::new();
    let mut template = template(100_000, 1);
    template.set("DeferralTime", "QDate + 5");
    template.set("DeferralWindow", "1000");
    let id = submit(&mut world, template);
    assert_eq!(world.core.queue.clusters()[&id].later.len(), 1);
    assert_eq!(world.core.cluster(id).unwrap().idle, 100_000);

    let mut template = crate::tests::template(20, 1);
    template.set("DeferralTime", "QDate + 5 + ProcId");
    template.set("DeferralWindow", "1000");
    let id = submit(&mut world, template);
    assert_eq!(world.core.queue.clusters()[&id].later.len(), 20);
    world.crash();
    assert_eq!(world.core.queue.clusters()[&id].later.len(), 20);
    pass(&mut world, 7_000);
    assert_eq!(world.core.queue.clusters()[&id].later.len(), 17);
    world.crash();

    let mut out = Out::default();
    let actor = Actor { user: "u".into(), any_owner: false };
    let outcome = world
        .core
        .act(&mut Turn { now: world.now, digest, out: &mut out }, &actor, Act::Remove, &Which::All, "enough")
        .unwrap();
    world.commit(out);
    assert_eq!((outcome.changed, world.core.queue.clusters().len()), (100_020, 0));
}

#[test]
fn a_job_that_ends_at_once_comes_back_ever_later_and_an_honest_one_at_once() {
    let delays = |wall_us: u64, runs: usize| {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, with(&[("OnExitRemove", "false")]));
        for run in 0..runs {
            if run == 5 {
                world.crash();
                world.connect(0);
            }
            while !run_once(&mut world, Exit { code: Some(1), wall_us, ..Exit::default() }) {
                pass(&mut world, 1_000);
            }
        }
        let times = assigned(&world);
        times.windows(2).map(|w| (w[1] - w[0]) / 1_000).collect::<Vec<_>>()
    };
    assert_eq!(delays(900_000, 12), [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert!(delays(1_100_000, 12).iter().all(|delay| *delay == 0));
}

#[test]
fn a_completed_job_stays_while_its_expression_says_so() {
    let stay = "JobStatus == 4 && time() - CompletionDate < 100";
    let mut world = World::new();
    world.connect(0);
    let id = submit(&mut world, with(&[("LeaveJobInQueue", stay)]));
    assert!(run_once(&mut world, code(3)));
    world.crash();
    let view = world.core.cluster(id).unwrap();
    assert_eq!((view.completed, view.idle, view.running, view.done.failed), (1, 0, 0, 1));
    assert_eq!(world.core.jobs(id, 9)[0].state, JobState::Completed);
    world.connect(0);
    pass(&mut world, 61_000);
    assert!(world.core.cluster(id).is_some());
    pass(&mut world, 60_000);
    assert!(world.core.cluster(id).is_none());
    assert_eq!(world.core.finished(id).unwrap().failed, 1);
    assert_eq!(story(&world), "005");
    assert!(world.core.queue.jobs_of().is_empty());
    world.crash();
}

#[test]
fn a_completed_job_leaves_when_it_is_removed_and_cannot_be_held() {
    let mut world = World::new();
    world.connect(0);
    let id = submit(&mut world, with(&[("LeaveJobInQueue", "true")]));
    assert!(run_once(&mut world, code(0)));
    let mut act = |act| {
        let mut out = Out::default();
        let actor = Actor { user: "u".into(), any_owner: false };
        let which = Which::Named("1.0".parse().unwrap());
        let outcome = world
            .core
            .act(&mut Turn { now: world.now, digest, out: &mut out }, &actor, act, &which, "r")
            .unwrap();
        world.commit(out);
        outcome
    };
    assert_eq!(act(Act::Hold).changed, 0);
    assert_eq!(act(Act::Release).unsuitable, 1);
    assert_eq!(act(Act::Remove).changed, 1);
    assert!(world.core.cluster(id).is_none());
    assert_eq!(story(&world), "005");
    // Without the wish, or with one that says nothing, it leaves at once.
    for expr in ["false", "undefined", "JobStatus == 2"] {
        let id = submit(&mut world, with(&[("LeaveJobInQueue", expr)]));
        assert!(run_once(&mut world, code(0)));
        assert!(world.core.cluster(id).is_none(), "{expr}");
    }
}

#[test]
fn durations_and_timers() {
    let rows = [
        (vec![("AllowedJobDuration", "120")], "stop 012:46:0"),
        (vec![("AllowedExecuteDuration", "60 * 2")], "stop 012:47:0"),
        (vec![("AllowedJobDuration", "100"), ("AllowedExecuteDuration", "100")], "stop 012:46:0"),
        (vec![("AllowedJobDuration", "1000")], ""),
        (vec![("AllowedJobDuration", "undefined")], ""),
        // Before all others.
        (
            vec![("AllowedJobDuration", "50"), ("PeriodicVacate", "true"), ("TimerRemove", "1")],
            "stop 012:46:0",
        ),
        (vec![("TimerRemove", "QDate + 100")], "stop 009"),
        (vec![("TimerRemove", "QDate + 100"), ("PeriodicHold", "time() > QDate + 100")], "stop 009"),
        (vec![("TimerRemove", "-1")], ""),
        (vec![("TimerRemove", "error")], ""),
    ];
    for (attributes, expected) in rows {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, with(&attributes));
        deliver(&mut world);
        world.start(0);
        for _ in 0..5 {
            world.wait(60_000);
        }
        deliver(&mut world);
        assert_eq!(story(&world), expected, "{attributes:?}");
        world.crash();
    }
    // Also for jobs that wait: the time of a removal comes for them too, a run they have none.
    for (attributes, expected) in
        [(vec![("TimerRemove", "QDate + 100")], "009"), (vec![("AllowedJobDuration", "1")], "")]
    {
        let mut world = World::new();
        submit(&mut world, with(&attributes));
        pass(&mut world, 200_000);
        assert_eq!(story(&world), expected);
    }
    let mut world = World::new();
    world.connect(0);
    submit(&mut world, with(&[("AllowedJobDuration", "90061")]));
    deliver(&mut world);
    world.start(0);
    pass(&mut world, 90_200_000);
    deliver(&mut world);
    let (reason, _) = world.core.jobs(1, 1)[0].hold_reason.clone().unwrap();
    assert_eq!(reason, "The job exceeded allowed job duration of 1+01:01:01");
}

#[test]
fn a_doubtful_expression_is_told_of_once() {
    let mut world = World::new();
    world.keys();
    let template =
        with(&[("PeriodicHold", "Missing > 3"), ("PeriodicRemove", "error"), ("OnExitHold", "\"x\"")]);
    submit(&mut world, template);
    let mut warnings = Vec::new();
    for _ in 0..3 {
        world.now.mono_ms += 60_000;
        world.now.wall_ms += 60_000;
        let mut out = Out::default();
        world.core.tick(&mut Turn { now: world.now, digest, out: &mut out });
        warnings.extend(out.warnings);
    }
    assert_eq!(
        warnings,
        [
            "job 1.0: its PeriodicHold is undefined, so that it has no effect",
            "job 1.0: its PeriodicRemove is an error, so that it has no effect"
        ]
    );
}
