//! What is explained is what happens: obstacles, clauses, who is ahead, limits and quotas, in virtual time.

use model::event::{JobsHeld, Kind, PrioritySet, Resources};
use model::{JobId, Now, Span};

use super::template;
use crate::tests::sharing::{Pool, with};
use crate::{Burst, GangView, Group, Kept, Limits, Obstacle, Quota, Settings, Shares, Standing, Waiting};

const fn job(cluster: u32) -> JobId {
    JobId { cluster, proc: 0 }
}

fn waiting(pool: &mut Pool, cluster: u32) -> Waiting {
    let now = pool.now;
    match pool.core.explain_job(job(cluster), now).unwrap().standing {
        Standing::Waiting(waiting) => *waiting,
        other => panic!("{other:?}"),
    }
}

fn count(waiting: &Waiting, obstacle: Obstacle) -> u64 {
    waiting.machines.iter().find(|(o, _)| *o == obstacle).map_or(0, |(_, n)| *n)
}

#[test]
fn each_obstacle_is_counted_and_each_clause_named() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("a", 1, "Arch = \"X86_64\"");
    pool.machine("b", 1, "Arch = \"ARM\"");
    pool.machine("c", 4, "Arch = \"ARM\"; Start = TARGET.Owner == \"root\"; Requirements = Start");
    // Takes the only machine that suits.
    let mut first = template(1, 1);
    first.set("Requirements", "TARGET.Arch == \"X86_64\" && TARGET.Memory >= 100");
    pool.submit("ann", first.clone());
    let second = pool.submit("ann", first.clone());
    let w = waiting(&mut pool, second);
    assert_eq!((w.open, w.capable), (0, 1));
    assert_eq!((count(&w, Obstacle::Busy), count(&w, Obstacle::Requirements)), (1, 2));
    let clause = |of_job: bool| w.clauses.iter().find(|c| c.of_job == of_job).unwrap();
    assert_eq!(
        (clause(true).clause.as_str(), clause(true).count, clause(true).alone),
        ("TARGET.Arch == \"X86_64\"", 2, 1)
    );
    assert_eq!((clause(false).clause.as_str(), clause(false).count), ("TARGET.Owner == \"root\"", 1));

    let third = pool.submit("ann", template(1, 99));
    let w = waiting(&mut pool, third);
    assert_eq!(count(&w, Obstacle::TooSmall), 3);
    assert_eq!(w.lacking[0].what, "cores");
    assert_eq!((w.lacking[0].wants, w.lacking[0].most), (99, 4));
    assert_eq!(w.own_ahead, 1, "the second job of ann");

    // What is said to be free is where the next job goes.
    pool.end(1);
    let now = pool.now;
    let placed = pool.core.explain_job(job(second), now).unwrap().standing;
    assert!(matches!(placed, Standing::Placed { ref machine, .. } if &**machine == "a"), "{placed:?}");
    assert!(
        matches!(pool.core.explain_job(job(1), now).unwrap().standing, Standing::Gone(s) if s.succeeded == 1)
    );
    assert!(pool.core.explain_job(job(77), now).is_none());
}

#[test]
fn limits_quotas_the_throttle_and_holds_are_told() {
    let group = Group { name: "physics".into(), quota: Quota::Cores(1.0), surplus: false, users: None };
    let mut pool = Pool::new(Settings {
        limits: Limits { named: [("matlab".to_owned(), 1.0)].into(), default: 100.0 },
        shares: Shares { groups: vec![group], ..Shares::default() },
        ..Settings::default()
    });
    pool.machine("a", 8, "");
    let mut licensed = template(1, 1);
    licensed.set("ConcurrencyLimits", "\"matlab\"");
    pool.submit("ann", licensed.clone());
    let short = pool.submit("bob", licensed);
    let w = waiting(&mut pool, short);
    let what = |w: &crate::Waiting| w.shortage.as_ref().map(|s| s.what.clone());
    assert_eq!((what(&w), w.open), (Some(crate::Scarce::Limit("matlab".into())), 1));
    let mut grouped = template(1, 1);
    grouped.set("AccountingGroup", "\"physics.eve\"");
    pool.submit("eve", grouped.clone());
    let over = pool.submit("eve", grouped);
    assert_eq!(what(&waiting(&mut pool, over)), Some(crate::Scarce::Quota("physics".into())));
    let now = pool.now;
    let machine = pool.core.explain_machine("a", now).unwrap();
    assert_eq!((machine.kept_back, machine.startable, machine.waiting), (2, 0, 2));

    let held = JobsHeld {
        cluster: short,
        procs: vec![Span { first: 0, count: 1 }],
        reason: "no".into(),
        code: 1,
        ..JobsHeld::default()
    };
    pool.core.apply(&Kind::JobsHeld(held), 5);
    let standing = pool.core.explain_job(job(short), now).unwrap().standing;
    assert_eq!(standing, Standing::Held { reason: "no".into(), code: 1, since_ms: 5 });

    let mut pool = Pool::new(Settings { burst: Burst { count: 1, delay_ms: 5_000 }, ..Settings::default() });
    pool.machine("a", 8, "");
    pool.submit("ann", template(1, 1));
    let later = pool.submit("ann", template(1, 1));
    let w = waiting(&mut pool, later);
    assert_eq!((w.throttled_ms, w.open, w.own_ahead), (Some(5_000), 1, 0));
}

#[test]
fn who_is_ahead_is_who_starts_first() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("a", 1, "");
    let runs = pool.submit("ann", template(1, 1));
    let (ann, bob) = (pool.submit("ann", template(2, 1)), pool.submit("bob", template(3, 1)));
    let w = waiting(&mut pool, ann);
    assert_eq!((w.users_ahead, &*w.ahead[0].user, w.ahead[0].jobs), (1, "bob", 3));
    assert_eq!(waiting(&mut pool, bob).users_ahead, 0);
    // Ten seconds later the claim is old, and it is really bob's turn.
    let worse = PrioritySet { user: "ann".into(), factor: None, real: Some(50.0), by: String::new() };
    pool.core.apply(&Kind::PrioritySet(worse), pool.now.wall_ms);
    pool.now = Now { mono_ms: pool.now.mono_ms + 10_000, wall_ms: pool.now.wall_ms + 10_000 };
    assert_eq!(waiting(&mut pool, ann).users_ahead, 1);
    pool.end(runs);
    assert_eq!((pool.live(ann), pool.live(bob)), (0, 1));
}

#[test]
fn promises_are_told_to_gangs_to_plain_jobs_and_of_machines() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("a", 1, "");
    pool.machine("b", 1, "");
    pool.submit("ann", with(1, &[("AllowedExecuteDuration", "3600")]));
    let gang = |procs| with(procs, &[("Gang", "true")]);
    let (pair, other, never) =
        (pool.submit("bob", gang(2)), pool.submit("bob", gang(2)), pool.submit("bob", gang(3)));
    let (long, short) = (
        pool.submit("cid", template(1, 1)),
        pool.submit("cid", with(1, &[("AllowedExecuteDuration", "7200")])),
    );
    let by = pool.now.wall_ms / 1000 + 3_600;
    let of_gang = waiting(&mut pool, pair);
    let told = of_gang.gang.unwrap();
    assert_eq!((told.size, told.gangs_ahead), (2, 0));
    assert_eq!(told.view, Some(GangView::Planned { machines: vec!["a".into(), "b".into()], by }));
    assert_eq!((of_gang.open, of_gang.promised.len()), (1, 0), "its own promise is no obstacle");

    let told = waiting(&mut pool, other).gang.unwrap();
    assert_eq!((told.view, told.ahead), (Some(GangView::Behind(Some(pair))), vec![pair]));
    let since_ms = pool.now.wall_ms;
    let told = waiting(&mut pool, never).gang.unwrap();
    assert_eq!((told.view, told.gangs_ahead), (Some(GangView::Unsatisfiable { since_ms }), 2));

    for job in [long, short] {
        let w = waiting(&mut pool, job);
        assert_eq!((count(&w, Obstacle::Promised), count(&w, Obstacle::Busy)), (1, 1));
        assert_eq!((w.open, w.capable), (0, 2));
        assert_eq!(w.promised, [Kept { gang: pair, owner: "bob".into(), machines: 1, until_s: by }]);
    }
    let now = pool.now;
    let machine = pool.core.explain_machine("b", now).unwrap();
    assert_eq!((machine.startable, machine.next), (0, None));
    assert_eq!(machine.obstacles, [(Obstacle::Promised, 2)]);
    assert_eq!(machine.kept, Some(Kept { gang: pair, owner: "bob".into(), machines: 1, until_s: by }));
    // What is said would start does.
    let quick = pool.submit("dan", with(1, &[("AllowedExecuteDuration", "60")]));
    assert_eq!(pool.live(quick), 1);
}

#[test]
fn a_machine_says_what_it_could_run_and_what_it_refuses() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("a", 2, "Requirements = TARGET.Owner == \"root\"");
    pool.submit("ann", template(5, 1));
    let now = pool.now;
    let m = pool.core.explain_machine("a", now).unwrap();
    assert_eq!((m.waiting, m.startable, m.next), (5, 0, None));
    assert_eq!(m.obstacles, [(Obstacle::Requirements, 5)]);
    assert_eq!(
        (m.clauses[0].clause.as_str(), m.clauses[0].count, m.clauses[0].of_job),
        ("TARGET.Owner == \"root\"", 5, false)
    );
    assert_eq!(m.free, Resources { cpus: 2, ..m.free });
    assert!(pool.core.explain_machine("b", now).is_none());
}

#[test]
fn no_expression_of_a_machine_sees_a_jobs_environment() {
    let secret = [
        ("eNVironment", "\"PASSWORD=hunter2\""),
        ("ENV", "\"PASSWORD=hunter2\""),
        ("Copied", "strcat(Environment, MY.Env)"),
    ];
    for asks in [
        "substr(TARGET.Environment, 0, 1) == \"P\"",
        "regexp(\"hunter\", environment)",
        "TARGET.env is undefined",
        "size(TARGET.Copied) > 3",
    ] {
        // Whatever the secret is, the answer is the same as without one.
        let answers = [&secret[..], &[]].map(|attributes| {
            let mut pool = Pool::new(Settings::default());
            pool.machine(
                "a",
                1,
                &format!(
                    "Start = {asks}; Requirements = Start is true; Rank = TARGET.Env is undefined ? 1 : 2"
                ),
            );
            let job = pool.submit("ann", with(1, attributes));
            let now = pool.now;
            let told = pool.core.explain_machine("a", now).unwrap();
            (pool.live(job), format!("{:?}", told.clauses), format!("{:?}", told.obstacles))
        });
        assert_eq!(answers[0], answers[1], "{asks}");
    }
}

#[test]
fn machines_that_rest_are_told_from_their_owners_and_from_requirements() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("rests", 1, "Requirements = false; State = \"Owner\"; Resting = true; Arch = \"ARM\"");
    pool.machine("owned", 1, "Requirements = false; State = \"Owner\"; Arch = \"ARM\"");
    pool.machine(
        "picky",
        1,
        "Requirements = TARGET.Owner isnt \"ann\"; RestingFrom = \"bob,ann\"; Arch = \"ARM\"",
    );
    let first = pool.submit("ann", template(1, 1));
    let w = waiting(&mut pool, first);
    assert_eq!((count(&w, Obstacle::Resting), count(&w, Obstacle::Owners)), (2, 1));
    assert_eq!((count(&w, Obstacle::Requirements), w.barred), (0, 3));
    // A job that would not have it anyway waits for something else.
    let other = pool.submit("ann", with(1, &[("Requirements", "TARGET.Arch == \"VAX\"")]));
    let w = waiting(&mut pool, other);
    assert_eq!((count(&w, Obstacle::Resting), count(&w, Obstacle::Owners)), (0, 2));
    assert_eq!(count(&w, Obstacle::Requirements), 1);
    let mine = pool.submit("cid", template(1, 1));
    assert_eq!(pool.live(mine), 1, "who is not kept out is let in");
}
