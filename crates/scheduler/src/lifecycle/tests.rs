//! Lifecycle expressions by table: what the original was seen to do, and cases of our own beside it.

mod later;

use model::JobTemplate;
use model::event::{Exit, Kind};
use model::template::PieceKind;

use super::Policies;
use crate::tests::{World, digest, template};
use crate::{Act, Actor, Out, Submission, Turn, Which};

fn submit(world: &mut World, template: JobTemplate) -> u32 {
    world.keys();
    let mut out = Out::default();
    let submission = Submission { owner: "u".into(), template, idempotency_key: String::new() };
    let id = world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
    world.commit(out);
    id
}

fn with(attributes: &[(&str, &str)]) -> JobTemplate {
    let mut template = template(1, 1);
    for (name, expr) in attributes {
        template.set(name, *expr);
    }
    template
}

/// Lets the waiting job run once and end so.
fn run_once(world: &mut World, exit: Exit) -> bool {
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
    world.start(0);
    let running = world.machines[0].claims.iter().find(|(_, c)| c.running).map(|(id, _)| *id);
    let Some(claim) = running else { return false };
    world.end(0, claim, exit);
    true
}

fn code(code: u32) -> Exit {
    Exit { code: Some(code), wall_us: 2_500_000, ..Exit::default() }
}

fn signal(signal: u32) -> Exit {
    Exit { signal: Some(signal), ..Exit::default() }
}

/// What happened to the job, in short: the events of its log.
fn story(world: &World) -> String {
    let words = world.journal.iter().filter_map(|e| match e.kind.as_ref().unwrap() {
        Kind::JobExited(_) => Some("005".to_owned()),
        Kind::JobsRemoved(_) => Some("009".to_owned()),
        Kind::JobsHeld(e) => Some(format!("012:{}:{}", e.code, e.subcode)),
        Kind::JobsReleased(_) => Some("013".to_owned()),
        Kind::JobsRequeued(e) if e.exit.is_some() => Some("004".to_owned()),
        Kind::StopRequested(_) => Some("stop".to_owned()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn at_exit() {
    let remove = |expr: &'static str| vec![("OnExitRemove", expr)];
    let hold = |expr: &'static str| vec![("OnExitHold", expr)];
    let rows = [
        (vec![], code(3), "005"),
        (remove("undefined"), code(0), "005"),
        (remove("error"), code(0), "005"),
        (remove("\"no\""), code(0), "005"),
        (remove("ExitCode == 0"), signal(9), "005"),
        (remove("ExitCode == 0"), code(1), "004"),
        (remove("false"), code(0), "004"),
        (remove("0"), code(0), "004"),
        (remove("ExitBySignal == false"), signal(9), "004"),
        (hold("undefined"), code(1), "005"),
        (hold("error"), code(1), "005"),
        (hold("\"yes\""), code(1), "005"),
        (hold("7"), code(1), "012:3:0"),
        (hold("ExitSignal == 11"), signal(11), "012:3:0"),
        (hold("RemoteWallClockTime > 2 && RemoteWallClockTime < 3"), code(1), "012:3:0"),
        (hold("JobStatus == 2 && NumJobStarts == 1 && NumJobCompletions == 1"), code(1), "012:3:0"),
        (vec![("OnExitHold", "true"), ("OnExitHoldSubCode", "40 + ExitCode")], code(2), "012:3:42"),
        (vec![("OnExitHold", "true"), ("OnExitRemove", "false")], code(0), "012:3:0"),
        (vec![("PeriodicRemove", "ExitCode == 4")], code(4), "009"),
        (vec![("PeriodicHold", "ExitCode == 4"), ("PeriodicHoldSubCode", "7")], code(4), "012:3:7"),
        (vec![("PeriodicRemove", "ExitCode == 4"), ("OnExitHold", "true")], code(4), "009"),
        (vec![("PeriodicHold", "ExitCode == 4"), ("OnExitRemove", "false")], code(5), "004"),
    ];
    for (attributes, exit, expected) in rows {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, with(&attributes));
        assert!(run_once(&mut world, exit));
        assert_eq!(story(&world), expected, "{attributes:?} after {exit:?}");
        world.crash();
    }
}

#[test]
fn expressions_reach_other_attributes() {
    let mut varying = with(&[("OnExitHold", "Limit < ExitCode")]);
    varying.set_varying("Limit", vec![PieceKind::Text("2 + ".into()), PieceKind::Proc(true)]);
    let rows = [
        with(&[("OnExitHold", "my.LIMIT > 3"), ("Limit", "Other + 1"), ("Other", "ExitCode")]),
        with(&[("OnExitHold", "eval(\"Limit\") > 3"), ("Limit", "Other + 1"), ("Other", "ExitCode")]),
        with(&[("OnExitHold", "Owner == \"u\" && Absent is undefined")]),
        varying,
    ];
    for template in rows {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, template.clone());
        assert!(run_once(&mut world, code(3)));
        assert_eq!(story(&world), "012:3:0", "{template:?}");
    }
}

#[test]
fn retries_are_counted_through_a_crash() {
    let mut world = World::new();
    // What submit makes of max_retries = 2.
    submit(
        &mut world,
        with(&[
            ("JobMaxRetries", "2"),
            ("OnExitRemove", "NumJobCompletions > JobMaxRetries || ExitCode is 0"),
        ]),
    );
    for round in 1..=3 {
        world.connect(0);
        assert!(run_once(&mut world, code(1)), "run {round}");
        world.crash();
    }
    assert_eq!(story(&world), "004 004 005");
    world.connect(0);
    assert!(!run_once(&mut world, code(1)), "it is over");
}

#[test]
fn reasons_are_the_jobs_own_or_the_expression() {
    let rows = [
        (
            vec![("OnExitHold", "ExitCode != 0")],
            "The job attribute OnExitHold expression 'ExitCode != 0' evaluated to TRUE",
        ),
        (vec![("OnExitHold", "true"), ("OnExitHoldReason", "strcat(\"code \", ExitCode)")], "code 1"),
        (
            vec![("OnExitHold", "true"), ("OnExitHoldReason", "17")],
            "The job attribute OnExitHold expression 'true' evaluated to TRUE",
        ),
    ];
    for (attributes, expected) in rows {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, with(&attributes));
        run_once(&mut world, code(1));
        let held = world.journal.iter().find_map(|e| match &e.kind {
            Some(Kind::JobsHeld(e)) => Some(e.clone()),
            _ => None,
        });
        let held = held.unwrap();
        assert_eq!((held.reason.as_str(), held.exit.unwrap().code), (expected, Some(1)), "{attributes:?}");
    }
}

#[test]
fn periodic_ones_of_idle_and_held_jobs() {
    let rows = [
        (vec![("PeriodicHold", "undefined")], ""),
        (vec![("PeriodicHold", "error")], ""),
        (vec![("PeriodicHold", "\"true\"")], ""),
        (vec![("PeriodicRemove", "undefined")], ""),
        (vec![("PeriodicRemove", "error")], ""),
        (vec![("PeriodicVacate", "true")], ""),
        (vec![("PeriodicHold", "1")], "012:3:0"),
        (vec![("PeriodicHold", "JobStatus == 1 && time() - QDate >= 60")], "012:3:0"),
        (
            vec![("PeriodicHold", "CurrentTime - EnteredCurrentStatus >= 60"), ("PeriodicHoldSubCode", "9")],
            "012:3:9",
        ),
        (vec![("PeriodicRemove", "true")], "009"),
        (vec![("PeriodicHold", "true"), ("PeriodicRemove", "true")], "012:3:0 009"),
        (vec![("PeriodicHold", "true"), ("PeriodicRelease", "undefined")], "012:3:0"),
        (
            vec![
                ("PeriodicHold", "NumHolds == 0"),
                ("PeriodicRelease", "HoldReasonCode == 3 && NumSystemHolds == 1"),
            ],
            "012:3:0 013",
        ),
    ];
    for (attributes, expected) in rows {
        let mut world = World::new();
        submit(&mut world, with(&attributes));
        for _ in 0..4 {
            world.wait(60_000);
        }
        assert_eq!(story(&world), expected, "{attributes:?}");
        world.crash();
    }
}

#[test]
fn periodic_ones_of_running_jobs_stop_them_once() {
    let long = "JobStatus == 2 && time() - JobCurrentStartDate >= 120";
    for (name, expected) in
        [("PeriodicHold", "stop 012:3:0"), ("PeriodicRemove", "stop 009"), ("PeriodicVacate", "stop")]
    {
        let mut world = World::new();
        world.connect(0);
        submit(&mut world, with(&[(name, long)]));
        while !world.machines[0].inbox.is_empty() {
            world.deliver(0);
        }
        world.start(0);
        for _ in 0..5 {
            world.wait(60_000);
        }
        while !world.machines[0].inbox.is_empty() {
            world.deliver(0);
        }
        assert_eq!(story(&world), expected, "{name}");
        world.crash();
    }
}

/// Attributes of which each takes twice as long to evaluate as the one before.
fn doubling(template: &mut JobTemplate) {
    template.set("A0", "ProcId");
    for n in 1..=30 {
        template.set(&format!("A{n}"), format!("A{0} + A{0}", n - 1));
    }
}

#[test]
fn costly_expressions_are_looked_at_in_portions_and_every_job_gets_its_turn() {
    let mut world = World::new();
    let mut costly = template(60, 1);
    doubling(&mut costly);
    costly.set("PeriodicRemove", "A30 < 0");
    let id = submit(&mut world, costly);
    let plain = submit(&mut world, with(&[("PeriodicRemove", "time() - QDate >= 60")]));
    let mut most = 0;
    for _ in 0..120 {
        let before = classad::steps_taken();
        world.wait(1_000);
        most = most.max(classad::steps_taken() - before);
    }
    // The last job that a portion begins is judged to its end, by a few expressions of 20,000 steps each.
    assert!(most < 150_000, "{most} steps in one tick");
    assert!(world.core.cluster(plain).is_none(), "others' are looked at, too");
    assert!(world.core.cluster(id).is_some(), "what fails is no reason to remove a job");
}

#[test]
fn they_are_looked_at_no_more_often_than_set() {
    let mut world = World::new();
    world.wait(1);
    submit(&mut world, with(&[("PeriodicHold", "time() - QDate >= 30")]));
    world.wait(1);
    world.wait(58_000);
    assert_eq!(story(&world), "");
    world.wait(2_000);
    assert_eq!(story(&world), "012:3:0");
}

#[test]
fn a_crowd_is_judged_at_once_where_all_are_alike_and_in_turns_otherwise() {
    for (expr, ticks) in [("time() - QDate >= 0", 1), ("ProcId >= 0", 4)] {
        let mut world = World::new();
        let mut template = template(1_600, 1);
        template.set("PeriodicRemove", expr);
        let id = submit(&mut world, template);
        for tick in 1..=ticks {
            assert!(world.core.cluster(id).is_some_and(|c| c.idle > 0), "{expr} before tick {tick}");
            world.wait(1);
        }
        assert!(world.core.queue.clusters().is_empty(), "{expr}");
        assert!(world.core.queue.periodic().is_empty());
    }
}

#[test]
fn only_what_matters_counts_as_an_expression() {
    let mut varying = template(2, 1);
    varying.set_varying("OnExitHold", vec![PieceKind::Proc(true)]);
    let rows = [
        (with(&[]), (false, false)),
        (
            with(&[("OnExitRemove", "True"), ("OnExitHold", "false"), ("PeriodicHold", "FALSE")]),
            (false, false),
        ),
        (with(&[("onexitremove", "false")]), (true, false)),
        (with(&[("PeriodicRelease", "true")]), (true, true)),
        (varying, (true, false)),
    ];
    for (template, expected) in rows {
        let policies = Policies::of(&template);
        assert_eq!((policies.at_exit, policies.periodic), expected, "{template:?}");
    }
}

#[test]
fn a_removal_by_hand_goes_before_expressions() {
    let mut world = World::new();
    world.connect(0);
    submit(&mut world, with(&[("OnExitRemove", "false"), ("OnExitHold", "true")]));
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
    world.start(0);
    let mut out = Out::default();
    let actor = Actor { user: "u".into(), any_owner: false };
    world
        .core
        .act(&mut Turn { now: world.now, digest, out: &mut out }, &actor, Act::Remove, &Which::All, "enough")
        .unwrap();
    world.commit(out);
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
    assert_eq!(story(&world), "stop 009");
}

#[test]
fn the_time_of_several_attempts_is_summed() {
    let mut world = World::new();
    world.connect(0);
    submit(&mut world, with(&[("OnExitRemove", "false"), ("OnExitHold", "RemoteWallClockTime > 7")]));
    for round in 1..=3 {
        assert!(run_once(&mut world, code(1)), "run {round}");
    }
    assert_eq!(story(&world), "004 004 012:3:0", "three times two and a half seconds");
}
