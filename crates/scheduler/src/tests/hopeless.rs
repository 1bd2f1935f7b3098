//! Plain jobs that nothing can satisfy; machines that take only some people's jobs; what counts as free; suspicious aborts.

use model::event::{Condition, Resources};
use model::report::{CannotStart, Happening};

use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{Actor, Group, Limits, Obstacle, Quota, Settings, Shares, Standing, StandingChange, Turn};

fn admin() -> Actor {
    Actor { user: "root".into(), any_owner: true }
}

fn set(p: &mut Pool, machine: &str, change: StandingChange) {
    p.keys();
    p.core.set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &admin(), machine, change).unwrap();
}

#[test]
fn jobs_that_no_machine_could_ever_run_are_told_of_and_held_after_the_grace() {
    let named = [("matlab".to_owned(), 2.0)].into();
    let limits = Limits { named, ..Limits::default() };
    let mut p = Pool::new(Settings { limits, grace_ms: 600_000, ..Settings::default() });
    let early = p.submit("ann", with(1, &[("Requirements", "TARGET.Color == \"red\"")]));
    p.wait(3_600_000);
    assert_eq!(p.core.queue.clusters()[&early].held.len(), 0, "nobody knows what there will be");
    p.machine("m", 4, "");
    let large = p.submit("ann", template(1, 8));
    let greedy = p.submit("ann", with(1, &[("ConcurrencyLimits", "\"matlab:3\"")]));
    let busy = p.submit("bob", template(8, 1));
    p.out.warnings.clear();
    p.wait(1_000);
    assert_eq!(p.out.warnings.len(), 3, "each once: {:?}", p.out.warnings);
    for _ in 0..59 {
        p.wait(10_000);
    }
    assert_eq!(p.out.warnings.len(), 3);
    assert_eq!(p.core.queue.clusters()[&large].held.len(), 0, "not yet");
    p.wait(20_000);
    for (cluster, word) in
        [(early, "even were it empty"), (large, "even were it empty"), (greedy, "3 of the limit")]
    {
        let holds = &p.core.queue.clusters()[&cluster].holds;
        assert!(holds[0].code == 1102 && holds[0].reason.contains(word), "{cluster}: {holds:?}");
    }
    assert_eq!((p.live(busy), p.core.queue.clusters()[&busy].held.len()), (4, 0), "waiting is not hopeless");
}

#[test]
fn jobs_that_wait_for_a_time_a_sensor_or_an_owner_are_not_hopeless() {
    let mut p = Pool::new(Settings { grace_ms: 5_000, ..Settings::default() });
    p.machine("m", 4, "LoadAvg = 0.5; KeyboardIdle = 3; Requirements = KeyboardIdle > 900");
    let now_s = p.now.wall_ms / 1000;
    let at = format!("time() > {}", now_s + 3_000);
    let later = [
        ("time", with(1, &[("Requirements", &at)])),
        ("a sensor", with(1, &[("Requirements", "TARGET.LoadAvg < 0.1")])),
        ("by another name", with(1, &[("Requirements", "Quiet"), ("Quiet", "TARGET.KeyboardIdle > 100")])),
        ("the owner", with(1, &[("Requirements", "TARGET.Cpus > 0")])),
    ];
    let later = later.map(|(what, template)| (what, p.submit("ann", template)));
    let never = p.submit("ann", with(1, &[("Requirements", "TARGET.Color == \"red\"")]));
    for _ in 0..10 {
        p.wait(2_000);
    }
    for (what, cluster) in later {
        assert_eq!(p.core.queue.clusters()[&cluster].held.len(), 0, "{what}");
    }
    assert_eq!(p.core.queue.clusters()[&never].held.len(), 1);
    assert_eq!(p.out.warnings.iter().filter(|w| w.contains("can never start")).count(), 1);
}

#[test]
fn a_machine_that_comes_in_time_ends_the_count() {
    let mut p = Pool::new(Settings { grace_ms: 600_000, ..Settings::default() });
    p.machine("m", 1, "");
    let large = p.submit("ann", template(1, 8));
    p.wait(500_000);
    p.machine("n", 8, "");
    assert_eq!(p.live(large), 1);
    let other = p.submit("ann", template(1, 8));
    p.wait(700_000);
    assert_eq!(p.core.queue.clusters()[&other].held.len(), 0);
}

#[test]
fn a_machine_takes_only_jobs_of_those_on_its_list() {
    let groups =
        vec![Group { name: "physics".into(), quota: Quota::Cores(9.0), surplus: false, users: None }];
    let shares = Shares { groups, ..Shares::default() };
    let mut p = Pool::new(Settings { shares, claim_worklife_ms: 0, ..Settings::default() });
    p.machine("m", 8, "");
    let allow = |names: &[&str]| StandingChange {
        allow: Some(names.iter().map(|n| (*n).to_owned()).collect()),
        ..StandingChange::default()
    };
    set(&mut p, "m", allow(&["ann", "physics"]));
    let ann = p.submit("ann", template(1, 1));
    let member = p.submit("cid", with(1, &[("AccountingGroup", "\"physics.cid\"")]));
    let bob = p.submit("bob", template(1, 1));
    let pair = p.submit("bob", with(2, &[("Gang", "true")]));
    assert_eq!((p.live(ann), p.live(member), p.live(bob), p.live(pair)), (1, 1, 0, 0));
    let found = p.core.explain_job(model::JobId { cluster: bob, proc: 0 }, p.now).unwrap();
    let Standing::Waiting(w) = found.standing else { panic!() };
    assert_eq!(w.machines, [(Obstacle::NotAllowed, 1)]);
    let again = crate::Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(again.labs.standing("m").allow, ["ann", "physics"]);
    set(&mut p, "m", allow(&[]));
    assert_eq!((p.live(bob), p.live(pair)), (1, 2), "a changed list is a wake-up");
    let ann = Actor { user: "ann".into(), any_owner: false };
    assert!(
        p.core
            .set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, "m", allow(&["ann"]))
            .is_err()
    );
}

#[test]
fn nothing_counts_as_free_that_no_job_could_have() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 2, "");
    p.machine("b", 2, "State = \"Owner\"");
    p.machine("c", 2, "");
    set(&mut p, "c", StandingChange { condition: Some(Condition::Broken), ..StandingChange::default() });
    let view = |p: &Pool, name: &str| crate::view::machine_view(&p.core, name, &p.core.pool.machines()[name]);
    assert_eq!((view(&p, "a").free.cpus, view(&p, "a").unusable), (2, None));
    assert_eq!((view(&p, "b").free, view(&p, "b").unusable.unwrap().1), (Resources::default(), "owner"));
    let broken = view(&p, "c").unusable.unwrap();
    assert_eq!((view(&p, "c").free.cpus, broken.0.cpus, broken.1), (0, 2, "broken"));
    assert_eq!((p.core.totals().cpus, p.core.totals().cpus_free), (6, 2));
}

#[test]
fn a_machine_on_which_different_sets_fail_in_a_row_is_broken() {
    let mut p = Pool::new(Settings { suspicious_aborts: 3, claim_worklife_ms: 0, ..Settings::default() });
    p.machine("m", 1, "");
    let fail = |p: &mut Pool, cluster: u32| {
        p.tell(cluster, 0, |job| {
            Happening::CannotStart(CannotStart { job, reason: "no disk".into(), code: 6, subcode: 5 })
        });
    };
    let fine = |p: &Pool| p.core.labs.standing("m").condition() == Condition::Automated;
    let same = p.submit("ann", template(1, 1));
    for _ in 0..4 {
        fail(&mut p, same);
        let ann = Actor { user: "ann".into(), any_owner: false };
        let which = crate::Which::Named(model::JobName::Cluster(same));
        p.core
            .act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, crate::Act::Release, &which, "")
            .unwrap();
    }
    assert!(fine(&p), "one set that cannot start anywhere says nothing of the machine");
    p.end(same);
    for owner in ["ann", "bob"] {
        let id = p.submit(owner, template(1, 1));
        fail(&mut p, id);
    }
    assert!(fine(&p), "a success came between");
    let third = p.submit("cid", template(1, 1));
    fail(&mut p, third);
    let standing = p.core.labs.standing("m");
    assert_eq!(standing.condition(), Condition::Broken);
    assert!(standing.reason.contains("2.0, 3.0, 4.0"), "{}", standing.reason);
}
