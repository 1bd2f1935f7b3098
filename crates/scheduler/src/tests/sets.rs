//! Gangs as sets: machines go back together, limits are those of the whole.

use model::event::{Exit, JobsRemoved, Kind};
use model::report::Happening;
use model::template::PieceKind;
use model::{JobId, JobName, JobTemplate, Span};

use super::said::{exited, report};
use super::sharing::{Pool, of_machines as pool, with};
use super::{digest, sweep_all, template};
use crate::{Act, Actor, Core, Effect, Finding, GangView, Limits, Reserved, Settings, Turn, Which};

fn gang(procs: u32, more: &[(&str, &str)]) -> JobTemplate {
    let mut template = with(procs, &[("Gang", "true")]);
    for (name, expr) in more {
        template.set(name, (*expr).to_owned());
    }
    template
}

/// An attribute that each job has its own value of.
pub(super) fn each(template: &mut JobTemplate, name: &str, values: &[&str]) {
    template.per_row = 1;
    template.set_varying(name, vec![PieceKind::Column(template.columns.len() as u32)]);
    template.columns.push(values.iter().collect());
}

/// A job's process ends by itself, after a second.
fn exit(p: &mut Pool, cluster: u32, proc: u32) {
    let exit = Exit { code: Some(0), wall_us: 1_000_000, ..Exit::default() };
    p.tell(cluster, proc, |job| exited(job, exit));
}

/// Claims that are kept for gangs, by job.
fn kept(p: &Pool) -> Vec<JobId> {
    let claims = p.core.machines().flat_map(|m| m.claims);
    let reserved = claims.filter_map(|c| c.reserved).filter(|r| r.until_ms.is_none());
    let mut jobs: Vec<JobId> = reserved.map(|r| r.job).collect();
    jobs.sort();
    jobs
}

/// The consistency pass finds nothing.
fn sound(p: &mut Pool) {
    p.keys();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    assert_eq!(p.core.findings().total(), 0, "{:?}", p.out.warnings);
}

#[test]
fn machines_of_a_set_go_back_together_when_its_last_job_is_over() {
    // S38.
    let mut p = pool(&["a", "b"]);
    let set = p.submit("ann", gang(2, &[]));
    (0..2).for_each(|proc| p.begin(set, proc));
    let next = p.submit("bob", template(2, 1));
    exit(&mut p, set, 0);
    assert_eq!(p.core.cluster(set).unwrap().done.succeeded, 1, "over for who waits for it");
    assert_eq!((p.live(set), p.live(next)), (1, 0), "its machine is not free");
    assert_eq!(kept(&p), [JobId { cluster: set, proc: 0 }]);
    sound(&mut p);
    let before = p.out.events.len();
    exit(&mut p, set, 1);
    assert!(p.core.cluster(set).is_none());
    assert_eq!(p.live(next), 2, "both in the same step");
    let ended = p.out.events[before..].iter().filter(|e| matches!(e.kind, Some(Kind::ClaimEnded(_))));
    assert_eq!(ended.count(), 2);
    sound(&mut p);
}

#[test]
fn whoever_says_so_gives_the_machine_back_early_and_so_does_its_owner() {
    let mut p = pool(&["a", "b"]);
    let set = p.submit("ann", gang(2, &[("EarlyRelease", "true")]));
    let next = p.submit("bob", template(1, 1));
    exit(&mut p, set, 0);
    assert_eq!((p.live(set), p.live(next), kept(&p).len()), (1, 1, 0));

    let mut p = pool(&["a", "b"]);
    let set = p.submit("ann", gang(2, &[]));
    let next = p.submit("bob", template(1, 1));
    exit(&mut p, set, 1);
    let which = Which::Named(JobName::Job(JobId { cluster: set, proc: 1 }));
    let ann = Actor { user: "ann".into(), any_owner: false };
    let returned =
        p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, Act::Return, &which, "").unwrap();
    assert_eq!((returned.changed, p.live(next), p.live(set)), (1, 1, 1));
}

#[test]
fn a_removed_jobs_machine_stays_with_its_set_too_and_a_reservation_outlasts_it() {
    let mut p = pool(&["a", "b", "c"]);
    let set = p.submit("ann", gang(3, &[("ReserveAfter", "600"), ("ReserveWhen", "\"failed\"")]));
    (0..3).for_each(|proc| p.begin(set, proc));
    let which = Which::Named(JobName::Job(JobId { cluster: set, proc: 0 }));
    let ann = Actor { user: "ann".into(), any_owner: false };
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, Act::Remove, &which, "").unwrap();
    exit(&mut p, set, 0);
    assert_eq!(kept(&p), [JobId { cluster: set, proc: 0 }]);
    let failed = Exit { code: Some(1), wall_us: 1_000_000, ..Exit::default() };
    p.tell(set, 1, |job| exited(job, failed));
    assert_eq!(kept(&p).len(), 1, "its owner has the other for a while");
    p.wait(601_000);
    assert_eq!(kept(&p).len(), 2, "and when that is over its gang has it");
    sound(&mut p);
    exit(&mut p, set, 2);
    assert!(p.core.pool.claims().is_empty());
}

#[test]
fn a_set_that_is_called_back_gives_back_what_was_kept_for_it() {
    let mut p = pool(&["a", "b", "c"]);
    let set = p.submit("ann", gang(3, &[]));
    exit(&mut p, set, 0);
    p.stops();
    let next = p.submit("bob", template(1, 1));
    p.evict(set, 1);
    assert_eq!(p.stops(), [JobId { cluster: set, proc: 2 }]);
    assert_eq!((kept(&p).len(), p.live(next)), (0, 1), "in the same step");
    p.evict(set, 2);
    assert_eq!(p.live(set), 2, "those that are not over start again together");
    assert_eq!(p.core.cluster(set).unwrap().done.succeeded, 1);
    sound(&mut p);
}

#[test]
fn the_owner_of_a_machine_has_it_back_and_the_set_goes_on() {
    let mut p = pool(&["a", "b"]);
    let set = p.submit("ann", gang(2, &[]));
    exit(&mut p, set, 0);
    let (&id, claim) = p.core.pool.claims().iter().find(|(_, c)| c.reserved.is_some()).unwrap();
    let machine = claim.machine.to_string();
    let session = p.core.pool.machines()[&*machine].session.unwrap();
    let report = report(id, 2, Happening::Gone("PREEMPT".into()));
    p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, &machine, session, report);
    assert_eq!((p.live(set), p.core.pool.claims().len()), (1, 1));
    assert!(p.stops().is_empty());
    sound(&mut p);
}

#[test]
fn restarts_change_nothing_and_what_is_kept_in_vain_is_found() {
    let mut p = pool(&["a", "b"]);
    let set = p.submit("ann", gang(2, &[]));
    exit(&mut p, set, 0);
    let reserved = Some(Reserved { job: JobId { cluster: set, proc: 0 }, until_ms: None });
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert!(again.pool.claims().values().any(|c| c.reserved == reserved) && again.pool.reserved().len() == 1);

    // The last job left past the door.
    let removed =
        JobsRemoved { cluster: set, procs: vec![Span { first: 1, count: 1 }], reason: String::new() };
    p.core.apply(&Kind::JobsRemoved(removed), p.now.wall_ms);
    p.keys();
    p.out.effects.clear();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    assert_eq!(p.core.findings().of(Finding::KeptClaim), 1, "{:?}", p.out.warnings);
    assert!(p.core.pool.claims().is_empty());
    assert_eq!(p.out.effects.iter().filter(|e| matches!(e, Effect::Drop { .. })).count(), 2);
}

#[test]
fn a_kept_machine_is_promised_for_when_the_set_is_over_and_takes_no_licence() {
    let limits = Limits { named: [("matlab".to_owned(), 2.0)].into(), default: 100.0 };
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, limits, ..Settings::default() });
    for name in ["a", "b"] {
        p.machine(name, 1, "");
    }
    let mut template = gang(2, &[("ConcurrencyLimits", "\"matlab\"")]);
    each(&mut template, "AllowedExecuteDuration", &["600", "3600"]);
    let set = p.submit("ann", template);
    (0..2).for_each(|proc| p.begin(set, proc));
    let wanted = p.submit("bob", gang(2, &[]));
    let by = |p: &Pool| match p.core.gang(wanted, p.now.wall_ms) {
        Some(GangView::Planned { by, .. }) => by - p.now.wall_ms / 1000,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&p), 3_600);
    exit(&mut p, set, 0);
    assert_eq!(by(&p), 3_600);
    let matlab: Box<[(Box<str>, f64)]> = Box::new([("matlab".into(), 1.0)]);
    assert_eq!(p.core.in_use.short_of(&matlab), None, "nothing runs there");
    let again = Core::restore(p.core.settings.clone(), &p.core.snapshot()).unwrap();
    assert_eq!(again.in_use.short_of(&matlab), None);
    exit(&mut p, set, 1);
    assert_eq!(p.live(wanted), 2);
}

/// Two jobs that may run for one and for two minutes, and do.
fn limited(p: &mut Pool, more: &[(&str, &str)]) -> u32 {
    let mut template = gang(2, more);
    each(&mut template, "AllowedExecuteDuration", &["60", "120"]);
    let set = p.submit("ann", template);
    (0..2).for_each(|proc| p.begin(set, proc));
    p.stops();
    set
}

fn holds(p: &Pool, cluster: u32) -> Vec<(u32, Vec<Span>)> {
    p.core.queue.clusters()[&cluster].holds.iter().map(|h| (h.code, h.procs.spans())).collect()
}

#[test]
fn a_gang_has_run_too_long_when_all_its_jobs_have() {
    let mut p = pool(&["a", "b"]);
    let set = limited(&mut p, &[]);
    p.wait(119_000);
    assert!(p.stops().is_empty(), "one is within its own");
    let ann = Actor { user: "ann".into(), any_owner: false };
    let which = Which::Named(JobName::Job(JobId { cluster: set, proc: 1 }));
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, Act::Extend(60), &which, "").unwrap();
    p.wait(60_000);
    assert!(p.stops().is_empty(), "an extension counts for all");
    p.wait(2_000);
    assert_eq!(p.stops().len(), 2);
    p.evict(set, 0);
    p.evict(set, 1);
    assert_eq!(holds(&p, set).iter().map(|(code, _)| *code).collect::<Vec<_>>(), [47, 47]);
    sound(&mut p);
}

#[test]
fn a_strict_gang_holds_each_job_by_its_own_limit_and_the_others_come_back() {
    let mut p = pool(&["a", "b"]);
    let set = limited(&mut p, &[("StrictLimits", "true")]);
    p.wait(62_000);
    assert_eq!(p.stops(), [JobId { cluster: set, proc: 0 }]);
    p.evict(set, 0);
    assert_eq!(holds(&p, set), [(47, vec![Span { first: 0, count: 1 }])]);
    assert_eq!(p.stops(), [JobId { cluster: set, proc: 1 }]);
}

#[test]
fn a_job_that_ends_late_while_its_gang_is_in_time_has_ended_well() {
    let mut p = pool(&["a", "b"]);
    let set = limited(&mut p, &[]);
    p.wait(90_000);
    exit(&mut p, set, 0);
    assert_eq!(p.core.cluster(set).unwrap().done.succeeded, 1);
    p.wait(40_000);
    assert_eq!(p.stops(), [JobId { cluster: set, proc: 1 }], "what is over is not asked");
    // And the last one at its end.
    let mut p = pool(&["a", "b"]);
    let set = limited(&mut p, &[]);
    p.now.wall_ms += 130_000;
    let late = Exit { code: Some(0), wall_us: 130_000_000, ..Exit::default() };
    p.tell(set, 1, |job| exited(job, late));
    assert_eq!(holds(&p, set), [(47, vec![Span { first: 1, count: 1 }])]);
}

#[test]
fn promises_are_made_by_when_the_whole_gang_has_run_too_long() {
    for (more, expected) in [
        (vec![], 120),
        (vec![("EarlyRelease", "true")], 120),
        (vec![("StrictLimits", "true")], 120),
        (vec![("EarlyRelease", "true"), ("StrictLimits", "true")], 60),
    ] {
        let mut p = pool(&[]);
        p.machine("a", 1, "Fast = true");
        p.machine("b", 1, "Fast = false");
        let mut template = gang(2, &more);
        each(&mut template, "AllowedExecuteDuration", &["60", "120"]);
        each(&mut template, "Requirements", &["TARGET.Fast", "!TARGET.Fast"]);
        let set = p.submit("ann", template);
        (0..2).for_each(|proc| p.begin(set, proc));
        p.machine("c", 1, "Fast = true");
        let pair = p.submit("bob", gang(2, &[("Requirements", "TARGET.Fast")]));
        let Some(GangView::Planned { by, .. }) = p.core.gang(pair, p.now.wall_ms) else { panic!("planned") };
        assert_eq!(by - p.now.wall_ms / 1000, expected, "{more:?}");
    }
}
