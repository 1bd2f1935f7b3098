//! Machines that are made ready for jobs and put in order after them, or could not be.

use model::event::{Condition, Kind};
use model::report::{Happening, ProvisionFailed, Provisioning};
use model::{JobId, JobTemplate};

use super::said::report;
use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{
    Act, Actor, AgentHello, Core, Effect, GangView, HeldClaim, JobState, Obstacle, Session, Settings,
    Standing, Turn,
};

fn pool(machines: &[&str], more: &str) -> Pool {
    let mut pool = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for name in machines {
        pool.machine(name, 1, more);
    }
    pool
}

fn gang(more: &[(&str, &str)]) -> JobTemplate {
    let mut template = with(2, &[("Gang", "true")]);
    for (name, expr) in more {
        template.set(name, (*expr).to_owned());
    }
    template
}

fn machine_of(p: &Pool, cluster: u32, proc: u32) -> String {
    let claim = p.core.queue.clusters()[&cluster].live[&proc].claim;
    p.core.pool.claims()[&claim].machine.to_string()
}

fn fail(p: &mut Pool, cluster: u32, proc: u32) {
    p.tell(cluster, proc, |job| {
        Happening::ProvisionFailed(ProvisionFailed { job, reason: "no power".into() })
    });
}

#[test]
fn a_gang_is_tried_elsewhere_once_and_then_held_for_a_person() {
    // S39, with two seats.
    let mut p = pool(&["a", "b", "c", "d"], "");
    let pair = p.submit("ann", gang(&[]));
    let bad = machine_of(&p, pair, 0);
    p.tell(pair, 0, |job| Happening::Provisioning(Provisioning { job, installing: false }));
    p.stops();
    fail(&mut p, pair, 0);
    assert_eq!(p.stops(), [JobId { cluster: pair, proc: 1 }], "the whole set moves");
    p.give_back(pair, 1);
    assert_eq!(p.live(pair), 2, "and starts again together");
    assert!((0..2).all(|proc| machine_of(&p, pair, proc) != bad), "not where it failed");

    // The same after a restart.
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert!(
        crate::provision::is_excluded(&again.settings, &again.queue, again.clock_ms, pair, &bad)
            && again.queue.clusters()[&pair].unready == [(0, 1)].into()
    );

    fail(&mut p, pair, 1);
    assert_eq!(p.stops(), [JobId { cluster: pair, proc: 0 }]);
    p.give_back(pair, 0);
    let jobs = p.core.jobs(pair, 9);
    assert!(jobs.iter().all(|j| j.state == JobState::Held), "{jobs:?}");
    assert!(jobs[0].hold_reason.as_ref().unwrap().0.contains("no power"), "{jobs:?}");

    // A person has looked: every machine may be tried again.
    let actor = Actor { user: "ann".into(), any_owner: false };
    let which = crate::Which::Named(model::JobName::Cluster(pair));
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &actor, Act::Release, &which, "").unwrap();
    assert_eq!(p.live(pair), 2);
    assert!(p.core.queue.excluding().is_empty());
}

#[test]
fn a_set_may_ask_for_more_tries_or_none_and_excluded_machines_are_told() {
    let mut p = pool(&["a", "b"], "");
    let pair = p.submit("ann", gang(&[("ProvisionRetries", "0")]));
    fail(&mut p, pair, 0);
    p.give_back(pair, 1);
    assert!(p.core.jobs(pair, 9).iter().all(|j| j.state == JobState::Held));

    let mut p = pool(&["a", "b"], "");
    let pair = p.submit("ann", gang(&[("ProvisionRetries", "5")]));
    let bad = machine_of(&p, pair, 0);
    fail(&mut p, pair, 0);
    p.give_back(pair, 1);
    assert!(
        matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Unsatisfiable { .. })),
        "two are not left"
    );

    // A plain job goes elsewhere, and does not keep its like from the machine.
    let single = p.submit("bob", template(1, 1));
    let first = machine_of(&p, single, 0);
    fail(&mut p, single, 0);
    assert_ne!(machine_of(&p, single, 0), first, "{bad}");
    let like = p.submit("bob", template(1, 1));
    assert_eq!(machine_of(&p, like, 0), first);

    let mut p = pool(&["a"], "");
    let (single, like) = (p.submit("bob", template(1, 1)), p.submit("bob", template(1, 1)));
    fail(&mut p, single, 0);
    assert_eq!((p.live(single), p.live(like)), (0, 1));
    let standing = p.core.explain_job(JobId { cluster: single, proc: 0 }, p.now).unwrap().standing;
    let Standing::Waiting(waiting) = standing else { panic!("{standing:?}") };
    assert_eq!((waiting.machines, waiting.barred), (vec![(Obstacle::Unready, 1)], 1));
}

#[test]
fn what_is_being_installed_stays_on_a_broken_machine() {
    let mut p = pool(&["a"], "");
    let job = p.submit("ann", template(1, 1));
    p.tell(job, 0, |job| Happening::Provisioning(Provisioning { job, installing: false }));
    p.tell(job, 0, |job| Happening::Provisioning(Provisioning { job, installing: true }));
    p.tell(job, 0, |job| Happening::Provisioning(Provisioning { job, installing: true }));
    let told = p.out.events.iter().filter(|e| matches!(e.kind, Some(Kind::JobProvisioning(_)))).count();
    assert_eq!(told, 2, "each stage once");
    p.set_condition("a", Condition::Broken);
    assert!(p.stops().is_empty());
}

#[test]
fn a_machine_is_free_only_when_it_is_in_order_again() {
    let mut p = pool(&["a"], "HasReleaseCommand = true");
    let (job, next) = (p.submit("ann", template(1, 1)), p.submit("bob", template(1, 1)));
    let claim = p.core.queue.clusters()[&job].live[&0].claim;
    p.out.effects.clear();
    p.end(job);
    assert!(p.out.effects.iter().any(|e| matches!(e, Effect::Drop { .. })));
    assert_eq!(p.live(next), 0, "the machine is being put in order");
    p.wait(5_000);
    assert_eq!(p.live(next), 0);

    // A new session: the claim is not fed again.
    let key = model::ClaimKey(p.core.pool.claims()[&claim].key_digest.clone().try_into().unwrap());
    let ad = classad::ClassAd::parse_new(
        "[Name = \"a\"; Memory = 4096; Requirements = true; HasReleaseCommand = true]",
    );
    let total = p.core.pool.machines()["a"].total;
    let held = HeldClaim { claim, key, jobs: Vec::new(), ending: true, stage: model::agent::Stage::Active };
    let hello = AgentHello {
        machine: "a".into(),
        session: Session(9),
        total,
        ad: ad.unwrap(),
        more: Vec::new(),
        claims: vec![held],
    };
    p.core.agent_up(&mut Turn { now: p.now, digest, out: &mut p.out }, hello);
    assert_eq!(p.live(next), 0);

    let gone = report(claim, 2, Happening::Gone("over".into()));
    p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, "a", Session(9), gone);
    assert_eq!(p.live(next), 1);
    let claim = p.core.queue.clusters()[&next].live[&0].claim;

    // When that fails, nobody uses it before somebody has looked.
    let after = p.submit("bob", template(1, 1));
    p.end(next);
    for (seq, kind) in [(2, Happening::ReleaseFailed("no power".into())), (3, Happening::Gone("over".into()))]
    {
        p.core.agent_report(
            &mut Turn { now: p.now, digest, out: &mut p.out },
            "a",
            Session(9),
            report(claim, seq, kind),
        );
    }
    assert_eq!(p.live(after), 0);
    let standing = p.core.labs.standing("a");
    assert_eq!((standing.condition(), &*standing.by), (Condition::Broken, "a"));
    assert!(standing.reason.contains("no power"));
    p.set_condition("a", Condition::Automated);
    assert_eq!(p.live(after), 1);
}
