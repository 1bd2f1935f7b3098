//! Who must go for a better job, again and again: by the same wake-ups as every start.

use classad::{ClassAd, Expr};
use model::agent::Stage;
use model::event::{Kind, Resources};
use model::report::{Attempt, Happening, SeatAnswer, SeatSaid};
use model::{ClaimId, Class, JobId};

use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{Burst, Effect, Settings, Turn};

const OWNERS: &str = "Rank = TARGET.Owner == \"coltrane\"";

fn pool(machines: u32, cores: u32, more: &str) -> Pool {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for m in 0..machines {
        p.machine(&format!("m{m}"), cores, more);
    }
    p
}

/// Every job that was asked to go goes.
fn leave(p: &mut Pool) -> usize {
    let stops = p.stops();
    for job in &stops {
        p.evict(job.cluster, job.proc);
    }
    stops.len()
}

/// A machine says something else of itself.
fn change(p: &mut Pool, name: &str, cores: u32, more: &str) {
    p.keys();
    let text = format!("[Name = \"{name}\"; Cpus = {cores}; Memory = 4096; Requirements = true; {more}]");
    let ad = ClassAd::parse_new(&text).unwrap();
    let session = p.core.pool.machines()[name].session.unwrap();
    p.core.machine_changed(
        &mut Turn { now: p.now, digest, out: &mut p.out },
        name,
        session,
        vec![(1, ad)],
        Vec::new(),
    );
}

#[test]
fn four_better_jobs_get_four_of_four_cores() {
    for (machines, cores) in [(1, 4), (4, 1)] {
        let mut p = pool(machines, cores, OWNERS);
        let other = p.submit("tyner", template(10, 1));
        p.stops();
        let owner = p.submit("coltrane", template(4, 1));
        assert_eq!(leave(&mut p), 4, "as many as wait");
        assert_eq!((p.live(owner), p.live(other)), (4, 0));
        assert!(p.stops().is_empty(), "and no more");
    }
}

#[test]
fn no_more_go_than_there_are_better_jobs() {
    let mut p = pool(4, 1, OWNERS);
    p.submit("tyner", template(10, 1));
    p.stops();
    let owner = p.submit("coltrane", template(2, 1));
    assert_eq!(leave(&mut p), 2);
    p.wait(5_000);
    assert_eq!((p.live(owner), leave(&mut p)), (2, 0));
}

#[test]
fn a_better_job_that_comes_during_a_vacate_gets_its_own_room() {
    let mut p = pool(2, 1, OWNERS);
    p.submit("tyner", template(10, 1));
    p.stops();
    let first = p.submit("coltrane", template(1, 1));
    let asked = p.stops();
    assert_eq!(asked.len(), 1);
    let second = p.submit("coltrane", template(1, 1));
    let also = p.stops();
    assert_eq!(also.len(), 1, "the other machine's, while the first is on its way out");
    for job in asked.into_iter().chain(also) {
        p.evict(job.cluster, job.proc);
    }
    assert_eq!((p.live(first), p.live(second)), (1, 1));
}

#[test]
fn the_room_of_a_victim_goes_to_the_best_that_waits_when_it_is_free() {
    let mut p = pool(1, 1, "Rank = TARGET.Worth");
    p.submit("tyner", with(1, &[("Worth", "1")]));
    p.stops();
    let good = p.submit("ann", with(1, &[("Worth", "5")]));
    assert_eq!(p.stops().len(), 1);
    let better = p.submit("bob", with(1, &[("Worth", "9")]));
    assert!(p.stops().is_empty(), "one is leaving already");
    p.evict(1, 0);
    assert_eq!((p.live(good), p.live(better)), (0, 1), "not to the one that asked first");
}

#[test]
fn a_changed_rank_or_start_is_a_wake_up() {
    let mut p = pool(1, 1, "");
    let other = p.submit("tyner", template(1, 1));
    let owner = p.submit("coltrane", template(1, 1));
    assert!(p.stops().is_empty());
    change(&mut p, "m0", 1, OWNERS);
    assert_eq!(p.stops(), [JobId { cluster: other, proc: 0 }], "it ranks now");
    p.evict(other, 0);
    assert_eq!(p.live(owner), 1);
    let mut p = pool(1, 1, &format!("{OWNERS}; HasBlue = false"));
    let other = p.submit("tyner", template(1, 1));
    let owner = p.submit("coltrane", with(1, &[("Requirements", "TARGET.HasBlue")]));
    assert!(p.stops().is_empty(), "it does not want the machine");
    change(&mut p, "m0", 1, &format!("{OWNERS}; HasBlue = true"));
    assert_eq!(p.stops(), [JobId { cluster: other, proc: 0 }]);
    p.evict(other, 0);
    assert_eq!(p.live(owner), 1);
}

#[test]
fn priority_preempts_when_its_time_comes_not_only_at_submit() {
    let expression = "RemoteUserPrio > SubmitterUserPrio * 1.2 && StateTimer > 3600";
    let settings =
        Settings { preemption_requirements: Some(Expr::parse(expression).unwrap()), ..Settings::default() };
    let mut p = Pool::new(settings);
    p.machine("m", 2, "");
    p.submit("hog", template(5, 1));
    p.wait(60_000);
    p.submit("ann", template(1, 1));
    assert!(p.stops().is_empty(), "not within the hour");
    p.wait(86_400_000);
    assert_eq!(p.stops().len(), 1, "nothing but time has passed");
}

#[test]
fn a_gang_goes_as_a_whole_and_after_every_plain_job() {
    let mut p = pool(3, 1, OWNERS);
    let pair = p.submit("tyner", with(2, &[("Gang", "true")]));
    let plain = p.submit("tyner", template(1, 1));
    assert_eq!((p.live(pair), p.live(plain)), (2, 1));
    p.stops();
    let first = p.submit("coltrane", template(1, 1));
    assert_eq!(p.stops(), [JobId { cluster: plain, proc: 0 }], "one plain job costs less than two seats");
    p.evict(plain, 0);
    assert_eq!(p.live(first), 1);
    let second = p.submit("coltrane", template(1, 1));
    let mut asked = p.stops();
    asked.sort_unstable();
    assert_eq!(
        asked,
        [JobId { cluster: pair, proc: 0 }, JobId { cluster: pair, proc: 1 }],
        "all of it at once"
    );
    let third = p.submit("coltrane", template(1, 1));
    assert!(p.stops().is_empty(), "both of its seats are on their way");
    for job in asked {
        p.evict(job.cluster, job.proc);
    }
    assert_eq!((p.live(second), p.live(third)), (1, 1));
    assert!(p.core.queue.clusters()[&pair].is_idle(0));
}

#[test]
fn a_waiting_gang_makes_nobody_go() {
    let mut p = pool(2, 1, OWNERS);
    p.submit("tyner", template(2, 1));
    p.stops();
    let pair = p.submit("coltrane", with(2, &[("Gang", "true")]));
    p.set_class(pair, Class::Urgent);
    p.wait(2_000);
    assert!(p.stops().is_empty(), "it has a promise instead");
    assert!(p.out.events.iter().any(|e| matches!(e.kind, Some(Kind::GangPlanned(_)))));
}

fn seat(p: &mut Pool, claim: ClaimId, answer: SeatAnswer) {
    let machine = crate::pool::host_of(&p.core.pool.claims()[&claim].machine).to_owned();
    let session = p.core.pool.machines()[&*machine].session.unwrap();
    let said = super::said::report(claim, 0, Happening::Seat(SeatSaid::new(answer)));
    p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, &machine, session, said);
}

#[test]
fn a_machine_is_told_for_whom_and_hands_its_slot_over_under_its_own_number() {
    let mut p = pool(1, 2, OWNERS);
    p.submit("tyner", template(2, 1));
    p.stops();
    let owner = p.submit("coltrane", template(1, 1));
    let better: Vec<Effect> =
        p.out.effects.iter().filter(|e| matches!(e, Effect::Better { .. })).cloned().collect();
    let [Effect::Better { claim: victim, key, job, reason, .. }] = &better[..] else { panic!("{better:?}") };
    assert_eq!(*job, JobId { cluster: owner, proc: 0 });
    assert!(reason.contains("ranks another job higher (1 over 0)"), "{reason}");
    let stopped = |e: &model::Event| matches!(e.kind, Some(Kind::StopRequested(_)));
    assert!(!p.out.events.iter().any(stopped), "the machine decides");
    let (victim, slot) = (*victim, p.core.pool.claims()[victim].slot.clone());
    seat(&mut p, victim, SeatAnswer::BetterWaits);
    let leaving = p.core.pool.claims()[&victim].jobs[0];
    p.out.effects.clear();
    p.evict(leaving.cluster, leaving.proc);
    let made = p.out.effects.iter().find_map(|e| match e {
        Effect::Claim { key, slot, instead_of, .. } => Some((key.clone(), slot.clone(), *instead_of)),
        _ => None,
    });
    assert_eq!(made, Some((key.clone(), slot, Some(victim))));
    assert_eq!(p.live(owner), 1);
}

#[test]
fn a_machine_that_does_not_prefer_a_job_keeps_its_own_and_is_not_asked_at_once_again() {
    let mut p = pool(1, 1, OWNERS);
    let other = p.submit("tyner", template(1, 1));
    p.stops();
    p.submit("coltrane", template(1, 1));
    let victim = p.core.queue.clusters()[&other].live[&0].claim;
    assert_eq!(p.stops().len(), 1);
    seat(&mut p, victim, SeatAnswer::BetterRefused);
    assert!(p.core.shapes.all().keys().all(|shape| p.core.pool.rivals(*shape) == 0));
    assert!(p.core.pool.claims()[&victim].rival.is_none());
    p.wait(10_000);
    assert!(p.stops().is_empty());
    p.wait(30_000);
    assert_eq!(p.stops().len(), 1, "it may think otherwise by now");
    // One that leaves already leaves for whoever is best then.
    seat(&mut p, victim, SeatAnswer::BetterLate);
    assert!(p.core.pool.claims()[&victim].rival.is_some());
}

#[test]
fn a_better_match_whose_job_is_gone_is_withdrawn() {
    let mut p = pool(1, 1, OWNERS);
    let other = p.submit("tyner", template(1, 1));
    p.stops();
    let owner = p.submit("coltrane", template(1, 1));
    let victim = p.core.queue.clusters()[&other].live[&0].claim;
    p.remove(owner);
    p.out.effects.clear();
    p.evict(other, 0);
    let waiting = ClaimId(victim.0 | model::agent::BETTER);
    assert!(p.out.effects.iter().any(|e| matches!(e, Effect::Drop { claim, .. } if *claim == waiting)));
    assert_eq!(p.live(other), 1, "nobody else wants it");
}

#[test]
fn the_room_goes_to_the_better_job_of_the_same_user_not_back_to_the_older_one() {
    let mut p = pool(1, 1, "Rank = TARGET.Worth");
    let worse = p.submit("ann", with(1, &[("Worth", "1")]));
    p.stops();
    let better = p.submit("ann", with(1, &[("Worth", "5")]));
    assert_eq!(p.stops(), [JobId { cluster: worse, proc: 0 }]);
    p.evict(worse, 0);
    assert_eq!((p.live(worse), p.live(better)), (0, 1));
    p.wait(5_000);
    assert!(p.stops().is_empty(), "they do not change places for ever");
}

/// A job of ann's, worth 1, is to leave for one of bob's, worth 5, and its machine agrees: who leaves, for whom, and the keys of both
/// claims, that to come first.
fn leaving(p: &mut Pool) -> (ClaimId, u32, model::ClaimKey, model::ClaimKey) {
    p.submit("ann", with(1, &[("Worth", "1")]));
    let own = p.out.effects.iter().rev().find_map(|e| match e {
        Effect::Claim { key, .. } => Some(key.clone()),
        _ => None,
    });
    p.stops();
    let better = p.submit("bob", with(1, &[("Worth", "5")]));
    let found = p.out.effects.iter().find_map(|e| match e {
        Effect::Better { claim, key, .. } => Some((*claim, key.clone())),
        _ => None,
    });
    let (victim, key) = found.unwrap();
    seat(p, victim, SeatAnswer::BetterWaits);
    (victim, better, key, own.unwrap())
}

#[test]
fn the_ad_of_a_slot_that_is_to_change_hands_says_for_whom_and_what_that_is_worth() {
    let mut p = pool(1, 2, "Rank = TARGET.Worth");
    p.submit("tyner", with(1, &[("Worth", "9")]));
    let (victim, ..) = leaving(&mut p);
    let (name, machine) = p.core.pool.machines().iter().next().unwrap();
    let view = crate::view::machine_view(&p.core, name, machine);
    for claim in &view.claims {
        let ad = crate::ad_of_cut(&view, claim, "here").unwrap();
        let said =
            (ad.eval_str("PreemptingUser"), ad.eval_str("PreemptingOwner"), ad.eval_number("PreemptingRank"));
        let expected = (claim.claim == victim).then(|| "bob".to_owned());
        assert_eq!(said, (expected.clone(), expected.clone(), expected.map(|_| 5.0)), "{ad}");
    }
}

#[test]
fn a_manager_that_comes_back_hands_the_slot_over_to_whom_it_was_meant_for() {
    let mut p = pool(1, 1, "Rank = TARGET.Worth");
    let (victim, better, key, own_key) = leaving(&mut p);
    // Others wait that would be first in line.
    let lower = p.submit("ann", with(3, &[("Worth", "2")]));
    let mut core = crate::Core::new(p.core.settings.clone());
    for event in &p.out.events {
        core.apply(event.kind.as_ref().unwrap(), event.time_ms);
    }
    core.recovered(p.now);
    p.core = core;
    p.out = crate::Out::default();
    p.answered = 0;
    p.keys();
    let held = |claim, key: &model::ClaimKey, cluster, attempt| crate::HeldClaim {
        claim,
        key: key.clone(),
        jobs: vec![Attempt { cluster, proc: 0, attempt }],
        ending: false,
        stage: Stage::Active,
    };
    let waiting = ClaimId(victim.0 | model::agent::BETTER);
    let claims = vec![held(victim, &own_key, 1, 1), held(waiting, &key, better, 0)];
    let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
    // It is Preempting, and says so.
    let ad = "[Name = \"m0\"; Cpus = 1; Memory = 4096; Requirements = false; Rank = TARGET.Worth]";
    let hello = crate::AgentHello {
        machine: "m0".into(),
        session: crate::Session(7),
        total,
        ad: ClassAd::parse_new(ad).unwrap(),
        more: Vec::new(),
        claims,
    };
    p.core.agent_up(&mut Turn { now: p.now, digest, out: &mut p.out }, hello);
    let is_dropped =
        |p: &Pool| p.out.effects.iter().any(|e| matches!(e, Effect::Drop { claim, .. } if *claim == waiting));
    assert!(!is_dropped(&p), "the match stands");
    // What the machine is goes before what became of its claims.
    change(&mut p, "m0", 1, "Rank = TARGET.Worth");
    p.evict(1, 0);
    let made = p.out.effects.iter().find_map(|e| match e {
        Effect::Claim { key, instead_of, .. } => Some((key.clone(), *instead_of)),
        _ => None,
    });
    assert_eq!(made, Some((key, Some(victim))), "without passing Owner");
    assert_eq!((p.live(better), p.live(lower)), (1, 0));
}

#[test]
fn a_better_match_of_an_earlier_manager_whose_job_is_gone_is_dropped() {
    let mut p = pool(1, 1, "Rank = TARGET.Worth");
    let (victim, better, key, _) = leaving(&mut p);
    p.core.pool.set_better(victim, None);
    let held = |cluster| crate::HeldClaim {
        claim: ClaimId(victim.0 | model::agent::BETTER),
        key: key.clone(),
        jobs: vec![Attempt { cluster, proc: 0, attempt: 0 }],
        ending: false,
        stage: Stage::Active,
    };
    let take_up = |core: &mut crate::Core,
                   name: &str,
                   held: &crate::HeldClaim,
                   hello: &[crate::HeldClaim]| {
        crate::seats::take_up_announcement(&core.books.queue, &mut core.books.pool, name, held, hello, digest)
    };
    assert!(!take_up(&mut p.core, "m0", &held(better), &[held(better)]), "the victim is not shown");
    assert!(!take_up(&mut p.core, "m0", &held(99), &[held(99)]), "there is no such job");
    assert!(!take_up(&mut p.core, "m1", &held(better), &[held(better)]), "another machine");
}

#[test]
fn room_that_was_made_for_a_better_job_goes_to_it_though_starts_are_throttled() {
    let burst = Burst { count: 1, delay_ms: 5_000 };
    let mut p = Pool::new(Settings { burst, claim_worklife_ms: 0, ..Settings::default() });
    p.machine("m0", 1, "Rank = TARGET.Worth");
    p.machine("m1", 1, "Rank = TARGET.Worth; Requirements = TARGET.Worth == 7");
    let worse = p.submit("tyner", with(1, &[("Worth", "1")]));
    p.wait(5_000);
    let better = p.submit("ann", with(1, &[("Worth", "5")]));
    p.wait(1_000);
    assert_eq!(p.stops(), [JobId { cluster: worse, proc: 0 }]);
    let lower = p.submit("bob", with(3, &[("Worth", "2")]));
    // Somebody starts in the very moment in which the victim leaves.
    let other = p.submit("cid", with(1, &[("Worth", "7")]));
    p.wait(5_000);
    p.evict(worse, 0);
    assert_eq!(
        (p.live(better), p.live(lower)),
        (1, 0),
        "not to whoever is next in line when the time has come ({other})"
    );
    p.wait(10_000);
    assert_eq!((p.live(better), p.live(lower)), (1, 0));
}
