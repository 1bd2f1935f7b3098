//! One order for plain jobs and gangs (decision 034): shares, limits and quotas for whole gangs, the throttle, classes.

use std::collections::{BTreeMap, BTreeSet};

use model::{Class, JobId, JobTemplate};

use super::sharing::{Pool, with};
use super::template;
use crate::{Burst, GangView, Group, Limits, Quota, Scarce, Settings, Shares, Standing};

fn gang(procs: u32) -> JobTemplate {
    with(procs, &[("Gang", "true")])
}

fn settings() -> Settings {
    // Weights that do not move with usage: what is asserted is the order, not the half-life.
    let shares = Shares { half_life_ms: u64::MAX / 4, ..Shares::default() };
    Settings { claim_worklife_ms: 0, shares, ..Settings::default() }
}

fn limited(limit: f64) -> Settings {
    let named = [("matlab".to_owned(), limit)].into();
    Settings { limits: Limits { named, ..Limits::default() }, ..settings() }
}

fn matlab_gang(procs: u32) -> JobTemplate {
    with(procs, &[("Gang", "true"), ("ConcurrencyLimits", "\"matlab\"")])
}

/// Ends whatever runs of a cluster.
fn end_all(p: &mut Pool, cluster: u32) {
    while p.live(cluster) > 0 {
        p.end(cluster);
    }
}

#[test]
fn a_gang_takes_its_limits_all_at_once_or_waits() {
    let mut p = Pool::new(limited(4.0));
    p.machine("m", 8, "");
    let one = p.submit("ann", with(1, &[("ConcurrencyLimits", "\"matlab\"")]));
    let four = p.submit("bob", matlab_gang(4));
    assert_eq!((p.live(one), p.live(four)), (1, 0), "three are left");
    assert!(matches!(p.core.gang(four, p.now.wall_ms), Some(GangView::Short(s)) if !s.is_for_ever()));
    let others = p.submit("cid", template(7, 1));
    assert_eq!(p.live(others), 7, "it keeps no machine meanwhile");
    end_all(&mut p, others);
    p.wait(86_400_000);
    assert_eq!(p.core.queue.clusters()[&four].idle_count(), 4, "waiting for a limit is not hopeless");
    p.end(one);
    assert_eq!(p.live(four), 4);
    let second = p.submit("dan", matlab_gang(2));
    assert_eq!(p.live(second), 0, "all four are in use");
}

#[test]
fn more_than_there_is_of_a_limit_is_never_and_is_said_and_held() {
    let mut p = Pool::new(limited(3.0));
    p.machine("m", 8, "");
    let four = p.submit("ann", matlab_gang(4));
    assert_eq!(p.live(four), 0);
    let found = p.core.explain_job(JobId { cluster: four, proc: 0 }, p.now).unwrap();
    let Standing::Waiting(w) = found.standing else { panic!("{:?}", found.standing) };
    let short = w.shortage.unwrap();
    assert_eq!((short.what.clone(), short.is_for_ever()), (Scarce::Limit("matlab".into()), true));
    assert_eq!(short.to_string(), "4 of the limit matlab, of which there are 3");
    p.wait(86_400_000);
    let holds = &p.core.queue.clusters()[&four].holds;
    assert!(holds[0].code == 1102 && holds[0].reason.contains("4 of the limit matlab"), "{holds:?}");
}

#[test]
fn a_group_quota_counts_all_cores_of_a_gang() {
    let group = |name: &str, quota| Group { name: name.into(), quota, surplus: false, users: None };
    let groups = vec![group("lab", Quota::Cores(3.0)), group("big", Quota::Cores(4.0))];
    let mut p = Pool::new(Settings { shares: Shares { groups, ..settings().shares }, ..settings() });
    p.machine("m", 8, "");
    let of = |group: &str, n| with(n, &[("Gang", "true"), ("AccountingGroup", &format!("\"{group}.ann\""))]);
    let never = p.submit("ann", of("lab", 4));
    let four = p.submit("ann", of("big", 4));
    let two = p.submit("ann", of("big", 2));
    assert_eq!((p.live(never), p.live(four), p.live(two)), (0, 4, 0));
    let view = p.core.gang(never, p.now.wall_ms);
    assert!(matches!(&view, Some(GangView::Short(s)) if s.is_for_ever()), "{view:?}");
    end_all(&mut p, four);
    assert_eq!(p.live(two), 2);
}

#[test]
fn a_childs_quota_is_a_part_of_its_parents_and_the_parents_a_ceiling() {
    let group = |name: &str, part, surplus| Group {
        name: name.into(),
        quota: Quota::Part(part),
        surplus,
        users: None,
    };
    for child_surplus in [false, true] {
        let groups = vec![
            group("a", 0.5, false),
            group("a.x", 0.75, child_surplus),
            group("a.y", 0.25, child_surplus),
        ];
        let mut p = Pool::new(Settings { shares: Shares { groups, ..settings().shares }, ..settings() });
        let of = |group: &str| with(20, &[("AccountingGroup", &format!("\"{group}.ann\""))]);
        let (x, y) = (p.submit("ann", of("a.x")), p.submit("ann", of("a.y")));
        let rest = p.submit("bob", template(20, 1));
        p.machine("m", 8, "");
        assert_eq!((p.live(x), p.live(y), p.live(rest)), (3, 1, 4), "child surplus {child_surplus}");
        p.remove(y);
        while p.live(y) > 0 {
            p.end(y);
        }
        let more = if child_surplus { (4, 4) } else { (3, 5) };
        assert_eq!((p.live(x), p.live(rest)), more, "never more than the parent's: {child_surplus}");
    }
}

#[test]
fn a_gang_of_more_jobs_than_anybody_plans_for_is_refused_at_submit() {
    let mut p = Pool::new(settings());
    let refused = p.try_submit("ann", gang(4_097)).unwrap_err().to_string();
    assert_eq!(refused, "a gang may have 4096 jobs at most, and this one has 4097: submit it as several");
    let nodes = with(1, &[("JobUniverse", "11"), ("MinHosts", "5000"), ("MaxHosts", "5000")]);
    assert!(p.try_submit("ann", nodes).is_err(), "a parallel job is one too");
    assert!(p.try_submit("ann", gang(4_096)).is_ok());
}

#[test]
fn a_gang_that_aged_keeps_later_jobs_from_the_limit_it_lacks() {
    let mut p = Pool::new(limited(2.0));
    p.machine("m", 4, "");
    let one = |p: &mut Pool| p.submit("bob", with(1, &[("ConcurrencyLimits", "\"matlab\"")]));
    let (a, b) = (one(&mut p), one(&mut p));
    let pair = p.submit("ann", matlab_gang(2));
    p.end(a);
    let c = one(&mut p);
    assert_eq!((p.live(pair), p.live(c)), (0, 1), "before it aged, one of two goes to whoever can use one");
    p.wait(6 * 3_600_000);
    p.end(b);
    let d = one(&mut p);
    assert_eq!((p.live(pair), p.live(d)), (0, 0), "now what is free is kept until both are");
    p.end(c);
    assert_eq!(p.live(pair), 2);
}

#[test]
fn what_a_gang_that_aged_lacks_no_more_is_there_for_others_in_the_same_step() {
    let one = || with(1, &[("ConcurrencyLimits", "\"matlab\"")]);
    // It leaves: nobody gives anything back, and yet there is one for the job, or for the younger gang, that waited behind it.
    for next in [one(), matlab_gang(1)] {
        let mut p = Pool::new(limited(2.0));
        p.machine("m", 4, "");
        p.submit("bob", one());
        let pair = p.submit("ann", matlab_gang(2));
        p.wait(6 * 3_600_000);
        let next = p.submit("cid", next);
        assert_eq!((p.live(pair), p.live(next)), (0, 0), "the second one is kept for the gang");
        p.remove(pair);
        assert_eq!(p.live(next), 1);
    }
    // It has its two and lacks machines only: then they are not kept for it.
    let mut p = Pool::new(limited(2.0));
    p.machine("m", 4, "");
    let first = p.submit("bob", one());
    let mut elsewhere = matlab_gang(2);
    elsewhere.set("Requirements", "TARGET.IsElsewhere");
    let pair = p.submit("ann", elsewhere);
    p.wait(6 * 3_600_000);
    let next = p.submit("cid", one());
    assert_eq!((p.live(pair), p.live(next)), (0, 0));
    p.end(first);
    assert_eq!((p.live(pair), p.live(next)), (0, 1));
}

#[test]
fn nice_users_gangs_let_all_others_go_first_and_do_not_age() {
    let mut p = Pool::new(settings());
    p.machine("m", 4, "");
    let nice: Vec<u32> =
        (0..3).map(|_| p.submit("dan", with(4, &[("Gang", "true"), ("NiceUser", "true")]))).collect();
    assert_eq!(p.live(nice[0]), 4);
    p.wait(48 * 3_600_000);
    let ann = p.submit("ann", template(200, 1));
    end_all(&mut p, nice[0]);
    assert_eq!(
        (p.live(ann), p.live(nice[1])),
        (4, 0),
        "the ordinary user's jobs, however old the nice ones are"
    );
    for _ in 0..20 {
        p.end(ann);
    }
    assert_eq!((p.live(ann), p.live(nice[1]), p.live(nice[2])), (4, 0, 0));
}

#[test]
fn gangs_of_two_users_take_turns_whoever_came_first() {
    let mut p = Pool::new(settings());
    let ann: Vec<u32> = (0..4).map(|_| p.submit("ann", gang(2))).collect();
    let bob: Vec<u32> = (0..4).map(|_| p.submit("bob", gang(2))).collect();
    p.machine("m", 8, "");
    let held = |p: &Pool, of: &[u32]| of.iter().map(|g| p.live(*g)).sum::<usize>();
    assert_eq!((held(&p, &ann), held(&p, &bob)), (4, 4), "half each, not all to the first");
}

#[test]
fn an_older_job_goes_before_a_younger_gang_of_the_same_user_and_the_other_way_round() {
    let mut p = Pool::new(settings());
    p.machine("a", 1, "");
    p.machine("b", 1, "");
    let busy = p.submit("bob", template(2, 1));
    let plain = p.submit("ann", template(1, 1));
    let pair = p.submit("ann", gang(2));
    end_all(&mut p, busy);
    assert_eq!((p.live(plain), p.live(pair)), (1, 0), "the plain job is older");
    let mut p = Pool::new(settings());
    p.machine("a", 1, "");
    p.machine("b", 1, "");
    let busy = p.submit("bob", template(2, 1));
    let pair = p.submit("ann", gang(2));
    let plain = p.submit("ann", template(1, 1));
    end_all(&mut p, busy);
    assert_eq!((p.live(plain), p.live(pair)), (0, 2), "the gang is older");
}

#[test]
fn a_class_goes_before_every_share_and_survives_a_restart() {
    let mut p = Pool::new(settings());
    p.machine("m", 2, "");
    let hog = p.submit("hog", template(10, 1));
    let pair = p.submit("bob", gang(2));
    let late = p.submit("hog", template(1, 1));
    p.set_class(late, Class::Urgent);
    p.end(hog);
    assert_eq!((p.live(late), p.live(pair)), (1, 0));
    let again = crate::Core::restore(settings(), &p.core.snapshot()).unwrap();
    assert_eq!(again.queue.clusters()[&late].class, Class::Urgent);
    assert_eq!(again.queue.clusters()[&pair].class, Class::Normal);
}

#[test]
fn one_start_of_the_throttle_is_one_claim_or_one_whole_gang() {
    let burst = Burst { count: 1, delay_ms: 5_000 };
    let mut p = Pool::new(Settings { burst, ..settings() });
    let first = p.submit("ann", gang(3));
    let second = p.submit("bob", gang(3));
    let plain = p.submit("cid", template(2, 1));
    p.machine("m", 8, "");
    let mut live = vec![p.live(first) + p.live(second) + p.live(plain)];
    for _ in 0..3 {
        p.wait(4_900);
        let before = p.live(first) + p.live(second) + p.live(plain);
        assert_eq!(Some(&before), live.last(), "nothing in between");
        p.wait(100);
        live.push(p.live(first) + p.live(second) + p.live(plain));
    }
    live.sort_unstable();
    assert_eq!(live.last(), Some(&8), "four starts: {live:?}");
    assert_eq!(live.len(), 4);
    let mut steps: Vec<usize> = live.windows(2).map(|w| w[1] - w[0]).chain([live[0]]).collect();
    steps.sort_unstable();
    assert_eq!(steps, [1, 1, 3, 3], "whole gangs and single jobs");
}

#[test]
fn a_promise_that_cost_somebody_a_start_is_kept_though_shares_move() {
    let mut p = Pool::new(settings());
    p.machine("m", 4, "");
    let many = p.submit("ann", template(100, 1));
    let four = p.submit("bob", gang(4));
    assert_eq!((p.live(many), p.live(four)), (4, 0));
    for _ in 0..4 {
        p.end(many);
    }
    assert_eq!(
        (p.live(many), p.live(four)),
        (0, 4),
        "each end makes ann hungrier, and the gang still gathers"
    );
    end_all(&mut p, four);
    assert_eq!(p.live(many), 4);
}

/// Runs of known lengths on a pool of so many machines with four cores, for some days: mean cores by user.
fn time_means(machines: u32, users: &[(&str, f64, &[u32])], seed: u64) -> BTreeMap<String, f64> {
    let mut p = Pool::new(Settings { sweep_ms: 0, ..settings() });
    let mut random = seed;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for (user, factor, _) in users {
        let id = p.core.accounts.user(user, 0);
        p.core.accounts.set(id, Some(*factor), None, p.now.wall_ms);
    }
    for m in 0..machines {
        p.machine(&format!("m{m:03}"), 4, "");
    }
    let begin = p.now.wall_ms;
    let (mut ends, mut whose): (BTreeSet<(u64, u32)>, BTreeMap<u32, usize>) = Default::default();
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut backlog = vec![0usize; users.len()];
    for step in 0..6_000u64 {
        // Everybody always has something that waits.
        for (at, (user, _, sizes)) in users.iter().enumerate() {
            while backlog[at] < 6 {
                let size = sizes[next(sizes.len() as u64) as usize];
                let id = p.submit(user, if size == 1 { template(1, 1) } else { gang(size) });
                whose.insert(id, at);
                backlog[at] += 1;
            }
        }
        let started: Vec<u32> = whose.keys().copied().filter(|id| p.live(*id) > 0).collect();
        for id in started {
            let at = whose.remove(&id).unwrap();
            backlog[at] -= 1;
            ends.insert((p.now.wall_ms + 60_000 + next(240) * 1_000, id));
        }
        if whose.len() < users.len() * 6 {
            continue;
        }
        let Some((at, id)) = ends.pop_first() else { break };
        let dt = at.saturating_sub(p.now.wall_ms);
        if step > 500 {
            for view in p.core.users(p.now.wall_ms) {
                *sums.entry(view.name.to_string()).or_default() += view.held * dt as f64;
            }
        }
        // One tick for the whole wait: nothing happens in between.
        p.wait(dt);
        end_all(&mut p, id);
    }
    let all: f64 = sums.values().sum();
    assert!(p.now.wall_ms - begin > 3_600_000, "a while");
    sums.into_iter().map(|(user, sum)| (user, sum / all)).collect()
}

#[test]
fn time_means_follow_the_weights_with_gangs_and_plain_jobs_mixed() {
    // Weights 4 : 2 : 1 : 1 of 120 cores.
    let users: [(&str, f64, &[u32]); 4] = [
        ("ann", 1_000.0, &[1, 2, 8]),
        ("bob", 2_000.0, &[1]),
        ("cid", 4_000.0, &[4]),
        ("dan", 4_000.0, &[1, 3]),
    ];
    for seed in [1, 7] {
        let means = time_means(30, &users, seed);
        for (user, weight) in [("ann", 0.5), ("bob", 0.25), ("cid", 0.125), ("dan", 0.125)] {
            let mean = means[user];
            assert!(
                (mean / weight - 1.0).abs() < 0.1,
                "seed {seed}: {user} had {mean:.3} of {weight}: {means:?}"
            );
        }
    }
}
