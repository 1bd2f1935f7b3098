//! Which jobs are alike: every job is matched by its own attributes, through as many references as it takes.

use classad::{ClassAd, symmetric_match};
use model::JobTemplate;
use model::template::PieceKind;
use proptest::prelude::*;

use super::sharing::Pool;
use super::{digest, template};
use crate::shape::job_ad;
use crate::{Actor, Refusal, Settings, StandingChange, Turn};

/// Procs of a cluster that run.
fn running(pool: &Pool, cluster: u32) -> Vec<u32> {
    pool.core.queue.clusters()[&cluster].live.keys().copied().collect()
}

fn with(procs: u32, attributes: &[(&str, &str)]) -> JobTemplate {
    let mut template = template(procs, 1);
    for (name, expr) in attributes {
        template.set(name, *expr);
    }
    template
}

#[test]
fn a_job_is_matched_by_its_own_number_also_through_other_attributes() {
    let direct: &[(&str, &str)] = &[("Requirements", "ProcId != 2")];
    let through_one = &[("Requirements", "MyReq"), ("MyReq", "(ProcId != 2)")];
    let through_two = &[("Requirements", "MY.A"), ("A", "B"), ("B", "MY.procid != 2")];
    let nested = &[("Requirements", "Box.Open"), ("Box", "[Open = ProcId != 2]")];
    let by_size = &[("RequestCpus", "ProcId == 2 ? 100 : 1")];
    let by_text = &[("Requirements", "eval(strcat(\"Proc\", \"Id\")) != 2")];
    for attributes in [direct, through_one, through_two, nested, by_size, by_text] {
        let mut pool = Pool::new(Settings::default());
        pool.machine("m", 8, "");
        let cluster = pool.submit("ann", with(4, attributes));
        assert_eq!(running(&pool, cluster), [0, 1, 3], "{attributes:?}");
    }
}

#[test]
fn a_job_is_matched_by_its_own_cluster() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 8, "");
    let clusters: Vec<u32> = (0..3)
        .map(|_| pool.submit("ann", with(1, &[("Requirements", "Mine"), ("Mine", "ClusterId == 2")])))
        .collect();
    let running: Vec<u32> = clusters.into_iter().filter(|c| !running(&pool, *c).is_empty()).collect();
    assert_eq!(running, [2]);
}

#[test]
fn what_machines_look_at_counts_also_through_attributes_of_theirs_and_of_the_job() {
    let by_machine = [
        "START = TARGET.ProcId != 2",
        "START = Wants; Wants = Nice; Nice = TARGET.ProcId != 2",
        "START = TARGET.Says",
    ];
    for policy in by_machine {
        for late in [false, true] {
            let mut pool = Pool::new(Settings::default());
            let machine = format!("{policy}; Requirements = START");
            if !late {
                pool.machine("m", 8, &machine);
            }
            let cluster = pool.submit("ann", with(4, &[("Says", "ProcId != 2")]));
            if late {
                pool.machine("m", 8, &machine);
            }
            assert_eq!(running(&pool, cluster), [0, 1, 3], "{policy}, late: {late}");
        }
    }
}

#[test]
fn expressions_that_ask_for_the_time_do_not_make_every_job_a_kind_of_its_own() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 2, "Requirements = time() > 0");
    let cluster = pool.submit("ann", with(1_000, &[("Requirements", "time() > 5")]));
    assert_eq!(pool.core.queue.clusters()[&cluster].parts.len(), 1);
    assert_eq!(pool.live(cluster), 2);
}

#[test]
fn a_cluster_of_too_many_kinds_runs_all_the_same_when_a_machine_begins_to_look_at_their_numbers() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("a", 1, "");
    let cluster = pool.submit("ann", template(10_050, 1));
    pool.machine("b", 2, "Requirements = TARGET.ProcId < 20000");
    assert_eq!(pool.live(cluster), 3);
    assert!(pool.out.warnings.iter().any(|w| w.contains("more than 10000 ways")), "{:?}", pool.out.warnings);
}

/// Attributes of jobs that the random expressions refer to; some are rarely looked at, some vary.
const NAMES: [&str; 6] = ["ProcId", "ClusterId", "Args", "A", "B", "C"];

fn reference() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        3 => name().prop_map(str::to_owned),
        2 => name().prop_map(|n| format!("MY.{n}")),
        2 => name().prop_map(|n| format!("TARGET.{n}")),
        1 => name().prop_map(|n| format!("[x = {n}].x")),
        1 => name().prop_map(|n| format!("[y = [x = MY.{n}]].y.x")),
        1 => name().prop_map(|n| format!(".{n}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let number = (0..4_i64).prop_map(|n| n.to_string());
    let leaf = prop_oneof![4 => reference(), 1 => number];
    prop_oneof![
        2 => leaf.clone(),
        3 => (leaf.clone(), prop::sample::select(&["==", "!=", "<", ">="][..]), 0..4_i64)
            .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        2 => (leaf.clone(), leaf.clone(), leaf.clone()).prop_map(|(a, b, c)| format!("({a} ?: {b}) == {c}")),
        1 => (leaf.clone(), leaf).prop_map(|(a, b)| format!("({a} == {b} || ({a} > 1) =?= true)")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(300)))]

    /// Shapes, parts and the match engine against the plain evaluation of each job's own ad.
    #[test]
    fn every_job_can_run_exactly_where_its_own_ad_and_the_machines_agree(
        job in prop::collection::vec(expression(), 4),
        machines in prop::collection::vec((expression(), expression()), 1..4),
        late in any::<bool>(),
        rows in any::<bool>(),
    ) {
        let mut pool = Pool::new(Settings::default());
        let put = |pool: &mut Pool, machines: &[(String, String)]| {
            for (at, (requirements, a)) in machines.iter().enumerate() {
                // Nothing starts: what could is what matters.
                pool.machine(&format!("m{at}"), 0, &format!("Requirements = {requirements}; A = {a}; C = 1"));
            }
        };
        if !late {
            put(&mut pool, &machines);
        }
        let mut ids = Vec::new();
        for _ in 0..2 {
            let mut template = template(3, 1);
            template.set("Requirements", job[0].clone());
            template.set("A", job[1].clone());
            template.set("B", job[2].clone());
            if rows {
                template.set_varying("Args", vec![PieceKind::Proc(true)]);
            } else {
                template.set("Args", job[3].clone());
            }
            ids.push(pool.submit("ann", template));
        }
        if late {
            put(&mut pool, &machines);
        }
        for id in ids {
            let template = pool.core.queue.clusters()[&id].template.get();
            for proc in 0..3 {
                let cluster = &pool.core.queue.clusters()[&id];
                let shape = cluster.parts[cluster.part_of(proc)].shape;
                let ad = job_ad("ann", &template, id, proc);
                for at in 0..machines.len() {
                    let machine = &pool.core.books.pool.machines()[&*format!("m{at}")];
                    let expected = symmetric_match(&ad, &machine.ad);
                    let number = machine.number;
                    let found = pool.core.books.shapes.suits(shape, number);
                    let whole: &ClassAd = &machine.ad;
                    prop_assert_eq!(found, expected, "{}.{} on {}: {}", id, proc, whole, ad);
                }
            }
        }
    }
}

#[test]
fn a_job_that_waits_for_a_time_of_day_starts_when_it_comes() {
    let mut pool = Pool::new(Settings { sweep_ms: 0, ..Settings::default() });
    let later = pool.now.wall_ms / 1_000 + 100;
    pool.machine("m", 2, "");
    let job = pool.submit("ann", with(1, &[("Requirements", &format!("time() >= {later}"))]));
    pool.machine("n", 1, &format!("Requirements = TARGET.Owner == \"bob\" && time() >= {later}"));
    let bob = pool.submit("bob", with(1, &[("Requirements", "TARGET.Name == \"n\"")]));
    pool.wait(99_000);
    assert_eq!((pool.live(job), pool.live(bob)), (0, 0));
    pool.wait(1_000);
    assert_eq!((pool.live(job), pool.live(bob)), (1, 1));
}

#[test]
fn of_many_kinds_some_are_offered_at_once_and_the_others_soon() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 200, "");
    let cluster = pool.submit("ann", with(150, &[("Requirements", "ProcId != 149")]));
    let other = pool.submit("bob", template(1, 1));
    assert_eq!((pool.live(cluster), pool.live(other)), (64, 1), "nobody waits for the others");
    assert_eq!(pool.core.next_tick_ms(pool.now), 1);
    for _ in 0..2 {
        pool.wait(1);
    }
    assert_eq!(pool.live(cluster), 149);
    assert!(pool.core.next_tick_ms(pool.now) > 1);
}

#[test]
fn kinds_that_nobody_looked_at_cost_the_match_engine_nothing_and_all_go_with_their_jobs() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 1, "");
    let running = pool.submit("bob", template(1, 1));
    let cluster = pool.submit("ann", with(500, &[("Requirements", "ProcId != 1000")]));
    for _ in 0..20 {
        pool.wait(10);
    }
    assert_eq!((pool.live(running), pool.live(cluster)), (1, 0));
    let kinds = |pool: &Pool| {
        let (anns, all) = pool.core.shapes.kinds("ann");
        (anns.number, all.number)
    };
    assert_eq!(kinds(&pool), (500, 501));
    assert_eq!(pool.core.shapes.known_to_engine(), 1);
    pool.remove(cluster);
    assert_eq!(kinds(&pool), (0, 1));
    assert_eq!(pool.core.shapes.known_to_engine(), 1);
}

#[test]
fn kinds_of_jobs_are_limited_for_each_user() {
    let mut pool = Pool::new(Settings::default());
    let kinds = |first: u32, procs: u32| {
        with(procs, &[("Requirements", "TARGET.Memory >= Size"), ("Size", &format!("ProcId + {first}"))])
    };
    for at in 0..2 {
        pool.submit("ann", kinds(at * 10_000, 10_000));
    }
    let refused = pool.try_submit("ann", kinds(50_000, 2)).unwrap_err();
    assert!(refused.to_string().contains("20000 ways"), "{refused}");
    let refused = pool.try_submit("ann", with(1, &[("Size", "7")])).unwrap_err();
    assert!(matches!(refused, Refusal::TooManyKinds { .. }));
    assert_eq!(pool.core.shapes.kinds("ann").0.number, 20_000, "what was refused left nothing behind");
    pool.submit("bob", kinds(0, 2));
}

#[test]
fn a_job_with_a_rank_gets_what_it_likes_best_of_what_it_may_have() {
    let mut p = Pool::new(Settings::default());
    // Twelve kinds of machines, more than are looked for one after the other, and two of each.
    for speed in 0..12 {
        for half in ["a", "b"] {
            p.machine(&format!("m{speed:02}{half}"), 1, &format!("Speed = {speed}"));
        }
    }
    let fast = |procs| with(procs, &[("Rank", "TARGET.Speed")]);
    let where_of = |p: &Pool, cluster: u32| -> Vec<String> {
        let live = p.core.queue.clusters()[&cluster].live.values();
        live.map(|l| p.core.pool.claims()[&l.claim].machine.to_string()).collect()
    };
    let first = p.submit("ann", fast(3));
    assert_eq!(where_of(&p, first), ["m11a", "m11b", "m10a"], "the first among equals");
    let admin = Actor { user: "root".into(), any_owner: true };
    // What is lent to somebody else is passed over, however much of it there is.
    for speed in 1..=10 {
        for half in ["a", "b"] {
            let change = StandingChange { loaned_to: Some("bob".into()), ..StandingChange::default() };
            let turn = &mut Turn { now: p.now, digest, out: &mut p.out };
            p.core.set_machine(turn, &admin, &format!("m{speed:02}{half}"), change).unwrap();
        }
    }
    let next = p.submit("ann", fast(3));
    assert_eq!(where_of(&p, next), ["m00a", "m00b"]);
    let lent = p.submit("bob", fast(2));
    assert_eq!(where_of(&p, lent), ["m10b", "m09a"]);
}
