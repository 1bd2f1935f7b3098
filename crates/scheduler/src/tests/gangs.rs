//! Gangs of the real pool: together or not at all, promises kept, nobody starved.

use classad::ClassAd;
use model::event::Kind;
use model::{Class, JobTemplate};

use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{Act, Actor, Core, GangView, Settings, Turn, Which};

fn gang(procs: u32) -> JobTemplate {
    with(procs, &[("Gang", "true")])
}

/// A job that says how long it takes at most.
fn limited(procs: u32, seconds: u32) -> JobTemplate {
    with(procs, &[("AllowedExecuteDuration", &seconds.to_string())])
}

fn pool(machines: &[(&str, &str)]) -> Pool {
    let mut pool = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for (name, more) in machines {
        pool.machine(name, 1, more);
    }
    pool
}

#[test]
fn a_gang_starts_when_all_its_jobs_can_and_in_one_record() {
    let mut p = pool(&[("a", ""), ("b", ""), ("c", "")]);
    let busy = p.submit("ann", template(1, 1));
    let before = p.out.events.len();
    let three = p.submit("bob", gang(3));
    assert_eq!((p.live(busy), p.live(three)), (1, 0), "two places are not three");
    assert_eq!(p.out.events.len(), before + 2, "submitted and planned, and nothing is held meanwhile");
    assert!(matches!(p.core.gang(three, p.now.wall_ms), Some(GangView::Planned { .. })));
    p.end(busy);
    assert_eq!(p.live(three), 3);
    let claims: std::collections::BTreeSet<String> =
        p.core.pool.claims().values().map(|c| c.machine.to_string()).collect();
    assert_eq!(claims.len(), 3, "each on a machine of its own");
}

#[test]
fn two_gangs_that_want_the_same_machines_never_wait_for_each_other() {
    // Every order in which machines become free and gangs arrive.
    for order in 0..24 {
        let mut p = pool(&[("a", ""), ("b", "")]);
        let first = p.submit("ann", limited(2, 60));
        let mut steps = vec!["x", "y", "end", "end"];
        let mut arranged = Vec::new();
        let mut n = order;
        while !steps.is_empty() {
            arranged.push(steps.remove(n % steps.len()));
            n /= 4 - arranged.len().min(3);
        }
        let mut gangs = Vec::new();
        for step in arranged {
            match step {
                "end" => p.end(first),
                _ => gangs.push(p.submit("bob", gang(2))),
            }
            for gang in &gangs {
                assert!(matches!(p.live(*gang), 0 | 2), "never half a gang");
            }
        }
        assert_eq!((p.live(gangs[0]), p.live(gangs[1])), (2, 0), "order {order}: the first to come");
        p.end(gangs[0]);
        p.end(gangs[0]);
        assert_eq!(p.live(gangs[1]), 2, "order {order}: then the other");
    }
}

#[test]
fn a_promised_machine_takes_only_what_is_gone_in_time() {
    let mut p = pool(&[("a", ""), ("b", "")]);
    let busy = p.submit("ann", limited(1, 3_600));
    let pair = p.submit("bob", gang(2));
    let Some(GangView::Planned { machines, by }) = p.core.gang(pair, p.now.wall_ms) else {
        panic!("planned")
    };
    assert_eq!((machines.len(), by), (2, p.now.wall_ms / 1000 + 3_600));
    let long = p.submit("cid", template(1, 1));
    let too_long = p.submit("cid", limited(1, 7_200));
    assert_eq!((p.live(long), p.live(too_long)), (0, 0), "the free machine is promised");
    let short = p.submit("cid", limited(1, 600));
    assert_eq!(p.live(short), 1, "this one is gone in time");
    p.wait(500_000);
    p.end(short);
    assert_eq!((p.live(long), p.live(too_long)), (0, 0));
    let urgent = p.submit("dan", with(1, &[("JobPrio", "20")]));
    assert_eq!(p.live(urgent), 0, "a priority is a word about one's own jobs");
    p.set_class(urgent, Class::High);
    assert_eq!(p.live(urgent), 1, "a better class overrides a promise");
    p.end(urgent);
    p.end(busy);
    assert_eq!(p.live(pair), 2);
    p.end(pair);
    p.end(pair);
    assert_eq!((p.live(long), p.live(too_long)), (1, 1));
}

/// Plans as the journal tells them since the last look: cluster, how many machines, seconds from now.
fn plans(p: &mut Pool) -> Vec<(u32, usize, u64)> {
    let now_s = p.now.wall_ms / 1000;
    let events = std::mem::take(&mut p.out.events);
    let planned = events.into_iter().filter_map(|e| match e.kind {
        Some(Kind::GangPlanned(e)) => Some((e.cluster, e.machines.len(), e.promise_s.saturating_sub(now_s))),
        _ => None,
    });
    planned.collect()
}

fn backfills(p: &mut Pool) -> Vec<bool> {
    let made = p.out.events.iter().filter_map(|e| match &e.kind {
        Some(Kind::ClaimMade(e)) => Some(e.backfill),
        _ => None,
    });
    let found = made.collect();
    p.out.events.clear();
    found
}

#[test]
fn plans_are_told_when_they_are_news_and_backfill_is_marked() {
    let mut p = pool(&[("a", "Lab = \"east\""), ("b", "Lab = \"east\"")]);
    let busy = p.submit("ann", limited(1, 3_600));
    let Some(Kind::ClaimMade(made)) = &p.out.events[1].kind else { panic!("{:?}", p.out.events) };
    assert_eq!(made.lab, "east");
    p.out.events.clear();
    let pair = p.submit("bob", gang(2));
    assert_eq!(plans(&mut p), [(pair, 2, 3_600)]);
    // Nobody told when it was started, so that the end moves with the clock; that is no news within a minute.
    p.wait(50_000);
    assert_eq!(plans(&mut p), []);
    p.wait(20_000);
    assert_eq!(plans(&mut p), [(pair, 2, 3_600)]);
    p.submit("cid", limited(1, 600));
    assert_eq!(backfills(&mut p), [true], "gone in time");
    p.end(busy + 2);
    let urgent = p.submit("dan", template(1, 1));
    p.set_class(urgent, Class::Urgent);
    assert_eq!(backfills(&mut p), [false], "a better rank takes, it does not fill in");
    p.end(busy + 3);
    p.end(busy);
    assert_eq!(p.live(pair), 2);
    assert_eq!(plans(&mut p).last(), Some(&(pair, 0, 0)), "started: nothing is promised any more");
}

#[test]
fn what_is_promised_no_more_is_used_at_once() {
    let mut p = pool(&[("a", ""), ("b", "")]);
    let busy = p.submit("ann", limited(1, 3_600));
    let pair = p.submit("bob", gang(2));
    let long = p.submit("cid", template(1, 1));
    assert_eq!((p.live(busy), p.live(pair), p.live(long)), (1, 0, 0));
    p.remove(pair);
    assert_eq!(p.live(long), 1, "the gang left, and its machine is there for others in the same step");
    assert_eq!(plans(&mut p), [(pair, 2, 3_600), (pair, 0, 0)]);
    // A promise that moves away lets a longer job in.
    let mut p = pool(&[("a", ""), ("b", ""), ("c", "")]);
    p.submit("ann", limited(1, 600));
    p.submit("bob", gang(3));
    let middle = p.submit("cid", limited(1, 1_000));
    assert_eq!(p.live(middle), 0);
    let urgent = p.submit("dan", limited(1, 7_200));
    p.set_class(urgent, Class::Urgent);
    assert_eq!(p.live(middle), 1);
}

#[test]
fn a_machine_that_was_planned_for_only_in_the_middle_of_a_step_is_used_at_its_end() {
    for (large, small) in [("a", "b"), ("b", "a")] {
        let mut p = pool(&[]);
        p.machine(large, 2, "");
        p.machine(small, 1, "");
        let three = p.submit("ann", gang(3));
        let pair = p.submit("bob", gang(2));
        let single = p.submit("cid", template(1, 1));
        assert_eq!((p.live(three), p.live(pair), p.live(single)), (3, 0, 0));
        // Machines of a gang go back together, one after the other in one step: with the first the pair has another plan, with
        // the last it starts, and where it does not nothing is kept any more.
        for _ in 0..3 {
            p.end(three);
        }
        assert_eq!((p.live(pair), p.live(single)), (2, 1), "{large} is the larger one");
    }
}

#[test]
fn a_machine_that_several_of_a_gang_share_is_promised_for_when_all_fit() {
    let mut p = pool(&[]);
    p.machine("a", 2, "");
    p.submit("ann", limited(1, 3_600));
    let pair = p.submit("bob", gang(2));
    let Some(GangView::Planned { machines, by }) = p.core.gang(pair, p.now.wall_ms) else {
        panic!("planned")
    };
    assert_eq!((machines.len(), by), (2, p.now.wall_ms / 1000 + 3_600), "one core is free, two are needed");
    let short = p.submit("cid", limited(1, 600));
    assert_eq!(p.live(short), 1);
}

#[test]
fn a_gang_stays_in_one_lab_and_the_impossible_one_withholds_nothing() {
    let mut p = pool(&[("a", "Lab = \"east\""), ("b", "Lab = \"west\""), ("c", "Lab = \"west\"")]);
    let three = p.submit("ann", gang(3));
    let since_ms = p.now.wall_ms;
    p.wait(5_000);
    assert_eq!(p.core.gang(three, p.now.wall_ms), Some(GangView::Unsatisfiable { since_ms }));
    let pair = p.submit("ann", gang(2));
    let mut machines: Vec<String> = p.core.pool.claims().values().map(|c| c.machine.to_string()).collect();
    machines.sort();
    assert_eq!((p.live(pair), machines), (2, vec!["b".to_owned(), "c".to_owned()]));
    let single = p.submit("bob", template(1, 1));
    assert_eq!(p.live(single), 1);
}

#[test]
fn what_no_lab_can_hold_is_held_after_the_grace_and_tried_again_when_released() {
    let mut p = pool(&[("a", "")]);
    let pair = p.submit("ann", gang(2));
    p.wait(86_399_000);
    assert_eq!(p.core.queue.clusters()[&pair].idle_count(), 2);
    p.wait(1_000);
    let holds = &p.core.queue.clusters()[&pair].holds;
    assert!(
        holds[0].code == 1102 && holds[0].reason.contains("no lab had a place for all 2 jobs"),
        "{holds:?}"
    );
    p.machine("b", 1, "");
    assert_eq!(p.live(pair), 0, "a person decides");
    let ann = Actor { user: "ann".into(), any_owner: false };
    let all = Which::Named(model::JobName::Cluster(pair));
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, Act::Release, &all, "").unwrap();
    assert_eq!(p.live(pair), 2);
}

#[test]
fn when_one_job_loses_its_machine_all_come_back_and_start_again_together() {
    let mut p = pool(&[("a", ""), ("b", "")]);
    let pair = p.submit("ann", gang(2));
    assert_eq!(p.live(pair), 2);
    p.stops();
    p.evict(pair, 0);
    assert_eq!(p.stops().len(), 1, "the other is called back");
    assert_eq!(p.live(pair), 1);
    p.evict(pair, 1);
    assert_eq!(p.live(pair), 2, "and both start again");
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(again.queue.clusters()[&pair].live.len(), 2);
    assert!(again.queue.clusters()[&pair].gang);
}

#[test]
fn a_parallel_job_is_a_gang_of_its_nodes() {
    let mut p = pool(&[("a", ""), ("b", ""), ("c", "")]);
    let job = p.submit("ann", with(1, &[("JobUniverse", "11"), ("MinHosts", "3"), ("MaxHosts", "3")]));
    assert_eq!(p.live(job), 3);
}

/// A machine says that it takes jobs, or that it takes none.
fn set_open(p: &mut Pool, name: &str, open: bool) {
    p.keys();
    let session = p.core.pool.machines()[name].session.unwrap();
    let ad = format!("[Name = \"{name}\"; Cpus = 3; Memory = 4096; Requirements = {open}]");
    let ads = vec![(1, ClassAd::parse_new(&ad).unwrap())];
    p.core.machine_changed(&mut Turn { now: p.now, digest, out: &mut p.out }, name, session, ads, Vec::new());
}

#[test]
fn plans_are_whole_when_the_plain_jobs_of_a_machine_that_came_back_have_moved_the_shares() {
    let mut p = pool(&[]);
    p.machine("a", 3, "");
    p.machine("b", 1, "");
    set_open(&mut p, "a", false);
    let plain = p.submit("bob", limited(3, 60));
    let (anns, bobs) = (p.submit("ann", gang(4)), p.submit("bob", gang(4)));
    // Bob's jobs on the machine that comes back put ann before him: her gang takes what his was promised.
    set_open(&mut p, "a", true);
    assert_eq!(p.core.broken(p.now), Vec::<String>::new());
    assert_eq!((p.live(plain), p.live(anns), p.live(bobs)), (3, 0, 0));
    assert!(matches!(p.core.gang(anns, p.now.wall_ms), Some(GangView::Planned { .. })));
}
