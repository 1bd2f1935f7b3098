//! The consistency pass: each thing that can be wrong is planted, found, put right and counted.

use model::event::{ClusterSubmitted, JobsRemoved, Kind};
use model::{ClaimId, JobId, Span};

use super::sharing::{Pool, with};
use super::{digest, sweep_all, template};
use crate::{Finding, Group, INVARIANTS, Limits, Quota, Settings, Shares, Turn};

/// One machine with one core that has the first job, and a second job that waits.
fn busy() -> Pool {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    p.submit("ann", template(2, 1));
    p
}

fn claim(p: &Pool) -> ClaimId {
    *p.core.pool.claims().keys().next().unwrap()
}

/// Runs a round: what it found, none of it a lost wake-up; the next round finds nothing.
fn found(p: &mut Pool) -> Vec<(Finding, u64)> {
    p.keys();
    p.core.sweep.alarm = false;
    let before = p.core.findings();
    p.out.warnings.clear();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    let after = p.core.findings();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    assert_eq!(p.core.findings(), after, "put right once and for all: {:?}", p.out.warnings);
    let new = after.total() - before.total();
    assert_eq!(p.out.warnings.len() as u64, new, "each is told");
    Finding::ALL.iter().map(|f| (*f, after.of(*f) - before.of(*f))).filter(|(_, n)| *n > 0).collect()
}

#[test]
fn a_sound_pool_has_nothing_to_repair() {
    let mut p = busy();
    let events = p.out.events.len();
    assert_eq!(found(&mut p), []);
    assert_eq!(p.out.events.len(), events);
}

#[test]
fn a_claim_whose_jobs_are_over_ends_and_its_room_is_used() {
    let mut p = busy();
    let removed = JobsRemoved { cluster: 1, procs: vec![Span { first: 0, count: 1 }], reason: String::new() };
    p.core.apply(&Kind::JobsRemoved(removed), p.now.wall_ms);
    let old = claim(&p);
    assert_eq!(found(&mut p), [(Finding::EmptyClaim, 1)]);
    assert!(!p.core.pool.claims().contains_key(&old));
    assert_eq!(p.live(1), 1, "the job that waited");
}

#[test]
fn a_job_that_nobody_offered_its_room_breaks_an_invariant() {
    let mut p = busy();
    assert_eq!(p.core.broken(p.now), Vec::<String>::new());
    let claim = claim(&p).0;
    let removed = JobsRemoved { cluster: 1, procs: vec![Span { first: 0, count: 1 }], reason: String::new() };
    p.core.apply(&Kind::JobsRemoved(removed), p.now.wall_ms);
    let over = model::event::ClaimEnded { claim, ..Default::default() };
    p.core.apply(&Kind::ClaimEnded(over), p.now.wall_ms);
    let broken = p.core.broken(p.now);
    assert!(broken.iter().any(|what| what.starts_with("no_missed_job: ")), "{broken:?}");
}

#[test]
fn claims_and_machines_agree_again() {
    let mut p = busy();
    let id = claim(&p);
    p.core.pool.spoil().machines.get_mut("a").unwrap().claims.remove(&id);
    assert_eq!(found(&mut p), [(Finding::LostClaim, 1)]);
    assert!(p.core.pool.machines()["a"].claims.contains(&id));

    p.core.pool.spoil().machines.get_mut("a").unwrap().claims.insert(ClaimId(99));
    assert_eq!(found(&mut p), [(Finding::DeadClaim, 1)]);

    // A machine that nobody knows has the time of the lease to come back.
    p.core.books.pool.forget(&"a".into(), &mut p.core.books.changes);
    assert_eq!(found(&mut p), [(Finding::LostClaim, 1)]);
    assert!(p.core.pool.machines()["a"].session.is_none());
    p.wait(400_000);
    assert_eq!(p.core.pool.claims().len(), 0);
}

#[test]
fn claims_and_jobs_agree_again() {
    let mut p = busy();
    let id = claim(&p);
    p.core.pool.spoil().claims.get_mut(&id).unwrap().jobs.push(JobId { cluster: 1, proc: 1 });
    assert_eq!(found(&mut p), [(Finding::StrayJob, 1)]);
    p.core.pool.spoil().claims.get_mut(&id).unwrap().jobs.clear();
    assert_eq!(found(&mut p), [(Finding::LostJob, 1)]);
    assert_eq!(p.core.pool.claims()[&id].jobs, [JobId { cluster: 1, proc: 0 }], "the job is believed");

    let machine = p.core.pool.spoil().machines.get_mut("a").unwrap();
    machine.claims.clear();
    p.core.pool.spoil().claims.remove(&id);
    assert_eq!(found(&mut p), [(Finding::LostJob, 1), (Finding::Room, 1), (Finding::Held, 1)]);
    assert_eq!((p.live(1), p.core.pool.claims().len()), (1, 1), "back in the queue, and begun again");
}

#[test]
fn room_and_lines_are_what_follows_from_claims_and_jobs() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 2, "");
    p.core.pool.spoil().machines.get_mut("a").unwrap().free.cpus = 0;
    p.core.pool.spoil().roomy.remove(0);
    let waits = p.submit("ann", template(1, 1));
    assert_eq!(p.live(waits), 0);
    assert_eq!(found(&mut p), [(Finding::Room, 1)]);
    assert_eq!(p.live(waits), 1);

    let next = p.submit("bob", template(3, 1));
    assert_eq!(p.live(next), 1);
    let shape = p.core.queue.clusters()[&next].parts[0].shape;
    let entry = *p.core.shapes.all()[&shape].ready.first().unwrap();
    p.core.books.shapes.set_ready(shape, entry, false, &mut p.core.books.accounts);
    assert_eq!(found(&mut p), [(Finding::Line, 1)]);
    let user = p.core.shapes.all()[&shape].user;
    p.core.accounts.forget_ready(user, shape);
    assert_eq!(found(&mut p), [(Finding::Line, 1)]);
    p.end(next);
    assert_eq!(p.live(next), 1, "in line again");
}

/// Two cores, one licence, and a group that may hold one core: one of so many jobs that want all three runs.
fn kept_back(jobs: u32) -> Pool {
    let limits = Limits { named: [("matlab".to_owned(), 1.0)].into(), default: 100.0 };
    let lab = Group { name: "lab".into(), quota: Quota::Cores(1.0), surplus: false, users: None };
    let shares = Shares { groups: vec![lab], ..Shares::default() };
    let mut p = Pool::new(Settings { shares, limits, ..Settings::default() });
    p.machine("a", 2, "");
    p.submit("ann", with(jobs, &[("ConcurrencyLimits", "\"matlab\""), ("AccountingGroup", "\"lab.ann\"")]));
    assert_eq!((p.live(1), p.core.pool.machines()["a"].free.cpus), (1, 1));
    p
}

#[test]
fn the_common_books_are_what_follows_from_claims_clusters_and_machines() {
    let lab = |p: &Pool| p.core.accounts.groups().next().map(|(_, held)| held);
    for wrong in [0.0, 5.0] {
        let mut p = kept_back(2);
        let now = p.now.wall_ms;
        let user = p.core.pool.claims().values().next().unwrap().user;
        p.core.accounts.put_right(user, wrong, now);
        assert_eq!(found(&mut p), [(Finding::Held, 1)]);
        assert_eq!(Some(p.core.accounts.held(user)), Some(1.0));

        p.core.accounts.put_group_right(0, wrong, now);
        assert_eq!(found(&mut p), [(Finding::Quota, 1)]);
        assert_eq!(lab(&p), Some(1.0));

        p.core.in_use.put_right("matlab", wrong);
        p.core.in_use.put_right("other", wrong);
        assert_eq!(found(&mut p), [(Finding::Limit, if wrong > 0.0 { 2 } else { 1 })]);
        assert_eq!(*p.core.in_use.taken(), [("matlab".into(), 1.0)].into());

        p.core.queue.spoil_jobs_of("ann", wrong as u64);
        p.core.queue.spoil_jobs_of("nobody", 1);
        assert_eq!(found(&mut p), [(Finding::Jobs, 2)]);
        assert_eq!(*p.core.queue.jobs_of(), [("ann".into(), 2)].into());

        *p.core.pool.spoil().cores = wrong as u64;
        assert_eq!(found(&mut p), [(Finding::Cores, 1)]);
        assert_eq!(p.core.pool.cores(), 2);
        assert_eq!(p.live(1), 1, "nothing was free for the other");
    }
}

#[test]
fn what_a_false_book_kept_back_starts_when_it_is_put_right() {
    let mut p = kept_back(1);
    p.core.in_use.put_right("matlab", 2.0);
    p.core.accounts.put_group_right(0, 2.0, p.now.wall_ms);
    p.end(1);
    let licensed = p.submit("bob", with(1, &[("ConcurrencyLimits", "\"matlab\"")]));
    let grouped = p.submit("ann", with(1, &[("AccountingGroup", "\"lab.ann\"")]));
    assert_eq!((p.live(licensed), p.live(grouped)), (0, 0), "all is free, but the books do not say so");
    assert_eq!(found(&mut p), [(Finding::Quota, 1), (Finding::Limit, 1)]);
    assert_eq!((p.live(licensed), p.live(grouped)), (1, 1));
}

#[test]
fn forgotten_leases_end_and_dead_earmarks_are_dropped() {
    let mut p = busy();
    let session = p.core.pool.machines()["a"].session.unwrap();
    p.core.agent_down(session);
    p.core.sweep.alarm = false;
    p.core.pool.spoil().away.clear();
    p.wait(1_000_000);
    // The tick did not see the machine; the round that it began with did.
    assert_eq!((p.core.findings().of(Finding::Lease), p.core.findings().of(Finding::Room)), (1, 1));
    assert_eq!((p.live(1), p.core.pool.claims().len()), (0, 0));

    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    p.machine("b", 1, "");
    p.submit("ann", with(1, &[("AllowedExecuteDuration", "600")]));
    let pair = p.submit("bob", with(2, &[("Gang", "true")]));
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(crate::GangView::Planned { .. })));
    let busy = p.core.pool.claims().values().next().unwrap().machine.clone();
    let session = p.core.pool.machines()[&busy].session.unwrap();
    p.core.agent_down(session);
    assert_eq!(found(&mut p), [(Finding::Earmark, 1)]);
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(crate::GangView::Unsatisfiable { .. })));
}

/// A cluster that came in past the door: in line, and nobody was told.
fn unseen(p: &mut Pool) {
    let (template, owner) = (template(1, 1), "ann".into());
    let submitted = ClusterSubmitted { cluster: 7, owner, template, ..ClusterSubmitted::default() };
    p.core.apply(&Kind::ClusterSubmitted(submitted), p.now.wall_ms);
}

#[test]
fn a_start_that_only_the_round_makes_is_a_lost_wakeup() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    unseen(&mut p);
    assert_eq!(found(&mut p), [(Finding::LostWakeup, 1)]);
    assert_eq!(p.live(7), 1);
    let swept = p.out.events.iter().any(|e| matches!(&e.kind, Some(Kind::ClaimMade(made)) if made.swept));
    assert!(swept, "and the journal says so");
}

#[test]
#[should_panic(expected = "lost_wakeup: a job could have started before")]
fn in_test_builds_a_lost_wakeup_stops_everything() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    unseen(&mut p);
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
}

#[test]
#[should_panic(expected = "room: the books of a did not fit its claims")]
fn in_test_builds_an_index_that_disagrees_with_its_owner_stops_everything() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    p.core.pool.spoil().roomy.remove(0);
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
}

#[test]
fn every_finding_names_the_invariant_that_it_breaks() {
    for finding in Finding::ALL {
        let named = INVARIANTS.iter().filter(|i| i.name == finding.invariant()).count();
        assert_eq!(named, 1, "{}", finding.name());
    }
}

#[test]
fn spoilt_books_are_broken_invariants() {
    let breaks = |p: &mut Pool, name: &str| {
        let broken = p.core.broken(p.now);
        assert!(broken.iter().any(|b| b.starts_with(&format!("{name}: "))), "{name}: {broken:?}");
    };
    let mut p = busy();
    assert_eq!(p.core.broken(p.now), Vec::<String>::new());
    p.core.queue.spoil_jobs_of("nobody", 1);
    breaks(&mut p, "owners");
    let mut p = busy();
    *p.core.pool.spoil().cores = 7;
    breaks(&mut p, "cores");
    let mut p = busy();
    let session = p.core.pool.machines()["a"].session.unwrap();
    p.core.agent_down(session);
    p.core.pool.spoil().away.clear();
    breaks(&mut p, "lists");
    breaks(&mut p, "leases");
}

#[test]
fn what_a_limit_or_a_quota_kept_back_starts_when_it_may_wherever_that_is() {
    let limits = Limits { named: [("matlab".to_owned(), 1.0)].into(), default: 100.0 };
    let mut p = Pool::new(Settings { limits, ..Settings::default() });
    p.machine("a", 1, "Arch = \"A\"");
    p.machine("b", 1, "Arch = \"B\"");
    let on = |arch: &str| {
        let requirements = format!("TARGET.Arch == \"{arch}\"");
        with(1, &[("ConcurrencyLimits", "\"matlab\""), ("Requirements", &requirements)])
    };
    let (first, second) = (p.submit("ann", on("A")), p.submit("bob", on("B")));
    assert_eq!((p.live(first), p.live(second)), (1, 0));
    p.end(first);
    assert_eq!(p.live(second), 1, "on a machine that nothing happened to");
    assert_eq!(found(&mut p), []);
}
