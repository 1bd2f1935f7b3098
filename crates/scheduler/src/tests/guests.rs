//! Guests: jobs of a gang that run on the machine of another one.

use model::event::{Exit, Kind, Resources};
use model::report::{Attempt, Happening, Provisioning};
use model::{JobId, JobTemplate};

use super::said::exited;
use super::sets::each;
use super::sharing::{Pool, with};
use super::{World, digest, sweep_all};
use crate::{
    AgentHello, Core, Effect, GangView, HeldClaim, JobState, Out, Refusal, Session, Settings, Standing,
    Submission, Turn,
};

fn pool(machines: &[(&str, &str)]) -> Pool {
    let mut pool = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for (name, more) in machines {
        pool.machine(name, 1, more);
    }
    pool
}

/// A gang; each job with the number of its host, or none.
fn set(hosts: &[&str]) -> JobTemplate {
    let mut template = with(hosts.len() as u32, &[("Gang", "true")]);
    each(&mut template, "GuestOf", hosts);
    template
}

const NONE: &str = "undefined";

fn exit(p: &mut Pool, cluster: u32, proc: u32) {
    let exit = Exit { code: Some(0), wall_us: 1_000_000, ..Exit::default() };
    p.tell(cluster, proc, |job| exited(job, exit));
}

/// The jobs that machines were given since the last look.
fn sent(p: &mut Pool) -> Vec<u32> {
    p.take_seats();
    p.answered = 0;
    let effects = std::mem::take(&mut p.out.effects);
    let jobs = effects.into_iter().filter_map(|e| match e {
        Effect::Assign { jobs, .. } => Some(jobs.into_iter().map(|(proc, _)| proc)),
        _ => None,
    });
    jobs.flatten().collect()
}

/// The states of a cluster's jobs, in order.
fn states(p: &Pool, cluster: u32) -> Vec<&'static str> {
    let mut jobs = p.core.jobs(cluster, 99);
    jobs.sort_by_key(|j| j.job);
    let word = |j: &crate::JobView| match j.state {
        JobState::Idle => j.recipe.unwrap_or("idle"),
        JobState::Running => "running",
        JobState::Held => "held",
        JobState::Suspended | JobState::Completed => "other",
    };
    jobs.iter().map(word).collect()
}

fn sound(p: &mut Pool) {
    p.keys();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    assert_eq!(p.core.findings().total(), 0, "{:?}", p.out.warnings);
}

fn refused(template: JobTemplate) -> String {
    let mut p = pool(&[]);
    let submission = Submission { owner: "ann".into(), template, idempotency_key: String::new() };
    match p.core.submit(&mut Turn { now: p.now, digest, out: &mut p.out }, submission) {
        Err(refusal @ Refusal::BadGuest(_)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_a_guest_is_refused_with_the_reason() {
    let mut plain = set(&[NONE, "0"]);
    plain.set("Gang", "false");
    let mut large = set(&[NONE, "0"]);
    each(&mut large, "RequestMemory", &["100", "101"]);
    for (template, words) in [
        (plain, "job 1 has GuestOf, but its cluster is no gang"),
        (set(&[NONE, "1"]), "job 1 is a guest of itself"),
        (set(&[NONE, "2"]), "the cluster has only jobs 0 to 1"),
        (set(&[NONE, "0", "1"]), "job 2 is a guest of job 1, which is a guest itself"),
        (set(&[NONE, "\"a\""]), "GuestOf of job 1 is \"a\""),
        (set(&[NONE, "-1"]), "GuestOf of job 1 is -1"),
        (large, "job 1 asks for more cores, memory, disk or GPUs than its host, job 0"),
        (with(2, &[("Gang", "true"), ("GuestOf", "0")]), "job 0 is a guest of itself"),
    ] {
        let why = refused(template);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_guest_goes_where_its_host_goes_and_takes_nothing() {
    // S37: only one lab suits the guest.
    let mut p = pool(&[("a", "Lab = \"l1\"; Tree = \"t\""), ("b", "Lab = \"l2\"; Tree = \"g\"")]);
    let mut template = set(&[NONE, "0"]);
    each(&mut template, "Requirements", &["true", "TARGET.Tree == \"g\""]);
    let x = p.submit("ann", template);
    let machines: Vec<String> = p.core.pool.claims().values().map(|c| c.machine.to_string()).collect();
    assert_eq!(machines, ["b", "b"]);
    assert_eq!(p.core.pool.machines()["b"].free.cpus, 0);
    let held = p.core.users(p.now.wall_ms)[0].held;
    assert!((held - 1.0).abs() < 1e-9, "on nobody's account: {held}");
    assert_eq!(states(&p, x), ["scheduled", "scheduled"]);
    assert_eq!(sent(&mut p), [0], "its machine does not hear of it yet");
    p.tell(x, 0, |job| Happening::Provisioning(Provisioning { job, installing: false }));
    assert_eq!(states(&p, x), ["waiting", "waiting"]);
    p.tell(x, 0, |job| Happening::Provisioning(Provisioning { job, installing: true }));
    assert_eq!(states(&p, x), ["installing", "waiting"]);
    p.begin(x, 0);
    assert_eq!((states(&p, x), sent(&mut p)), (vec!["running", "waiting"], vec![1]));
    sound(&mut p);
    exit(&mut p, x, 0);
    // It has heard of it, so it is asked.
    assert_eq!(p.stops(), [JobId { cluster: x, proc: 1 }]);
    p.give_back(x, 1);
    assert_eq!(states(&p, x), ["held"]);
    let held = p.core.jobs(x, 9)[0].hold_reason.clone().unwrap();
    assert!(held.1 == 1103 && held.0.contains("its host 1.0 was over before it started"), "{held:?}");
    assert!(p.core.pool.claims().is_empty());
    sound(&mut p);

    // Whoever releases it learns the same; nobody waits for it.
    let which = crate::Which::Named(model::JobName::Cluster(x));
    let ann = crate::Actor { user: "ann".into(), any_owner: false };
    p.core
        .act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, crate::Act::Release, &which, "")
        .unwrap();
    assert_eq!(states(&p, x), ["held"]);
    sound(&mut p);
}

#[test]
fn a_guest_runs_by_itself_and_its_hosts_machine_is_there_until_it_has_ended() {
    for early in ["false", "true"] {
        let mut p = pool(&[("a", ""), ("b", "")]);
        let mut template = set(&[NONE, "0", NONE]);
        template.set("EarlyRelease", early);
        let x = p.submit("ann", template);
        (0..3).for_each(|proc| p.begin(x, proc));
        sent(&mut p);
        let next = p.submit("bob", with(2, &[]));
        exit(&mut p, x, 0);
        assert_eq!((states(&p, x), p.live(next)), (vec!["running", "running"], 0), "{early}");
        exit(&mut p, x, 2);
        assert_eq!(p.live(next), usize::from(early == "true"), "the other machine");
        exit(&mut p, x, 1);
        assert_eq!(p.live(next), 2, "{early}");
        assert!(p.core.cluster(x).is_none());
        sound(&mut p);
    }
    // The guest first: nothing happens to its host.
    let mut p = pool(&[("a", "")]);
    let x = p.submit("ann", set(&[NONE, "0"]));
    (0..2).for_each(|proc| p.begin(x, proc));
    exit(&mut p, x, 1);
    assert_eq!((states(&p, x), p.core.pool.claims().len()), (vec!["running"], 1));
    assert!(p.stops().is_empty());
}

#[test]
fn whoever_loses_the_machine_both_go_back_and_start_again_together() {
    for (first, other) in [(0, 1), (1, 0)] {
        let mut p = pool(&[("a", "")]);
        let x = p.submit("ann", set(&[NONE, "0"]));
        (0..2).for_each(|proc| p.begin(x, proc));
        p.stops();
        p.evict(x, first);
        assert_eq!(p.stops(), [JobId { cluster: x, proc: other }]);
        p.evict(x, other);
        assert_eq!(p.live(x), 2);
        assert_eq!(states(&p, x), ["scheduled", "scheduled"]);
        sound(&mut p);
    }
    // One that its machine has not heard of is back at once.
    let mut p = pool(&[("a", "")]);
    let x = p.submit("ann", set(&[NONE, "0"]));
    p.stops();
    p.evict(x, 0);
    assert!(p.stops().is_empty());
    assert_eq!(p.live(x), 2, "so that both could start again in the same step");
    assert!(p.out.events.iter().filter(|e| matches!(e.kind, Some(Kind::JobsRequeued(_)))).count() == 2);
}

#[test]
fn a_machine_that_breaks_under_a_running_host_keeps_both_to_their_end() {
    let mut p = pool(&[("a", "")]);
    let x = p.submit("ann", set(&[NONE, "0"]));
    p.begin(x, 0);
    p.stops();
    let broken = || crate::StandingChange {
        condition: Some(model::event::Condition::Broken),
        ..crate::StandingChange::default()
    };
    let root = crate::Actor { user: "root".into(), any_owner: true };
    p.core.set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &root, "a", broken()).unwrap();
    assert!(p.stops().is_empty(), "the guest has begun with its host");
    // One that has not begun goes back, its guest with it.
    let mut p = pool(&[("a", "")]);
    let x = p.submit("ann", set(&[NONE, "0"]));
    p.take_seats();
    p.core.set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &root, "a", broken()).unwrap();
    assert_eq!(p.stops(), [JobId { cluster: x, proc: 0 }]);
    assert_eq!(p.live(x), 1);
}

#[test]
fn a_guest_that_ends_without_its_host_cannot_begin_again() {
    let mut p = pool(&[("a", ""), ("b", "")]);
    let x = p.submit("ann", set(&[NONE, "0", NONE]));
    (0..3).for_each(|proc| p.begin(x, proc));
    exit(&mut p, x, 0);
    p.stops();
    p.evict(x, 1);
    assert_eq!(states(&p, x), ["held", "running"], "and the gang goes on");
    assert!(p.stops().is_empty());
    sound(&mut p);
    exit(&mut p, x, 2);
    assert!(p.core.pool.claims().is_empty(), "it does not keep the gang from being over");
    sound(&mut p);
}

#[test]
fn a_gang_whose_guests_fit_nowhere_waits_and_says_so() {
    let mut p = pool(&[("a", "Tree = \"t\"")]);
    let mut template = set(&[NONE, "0"]);
    each(&mut template, "Requirements", &["true", "TARGET.Tree == \"g\""]);
    let x = p.submit("ann", template);
    assert!(matches!(p.core.gang(x, p.now.wall_ms), Some(GangView::Unsatisfiable { .. })));
    for proc in 0..2 {
        let told = p.core.explain_job(JobId { cluster: x, proc }, p.now).unwrap();
        assert_eq!(told.guest_of, (proc == 1).then_some(JobId { cluster: x, proc: 0 }));
        let Standing::Waiting(w) = told.standing else { panic!("it waits") };
        assert_eq!((w.open, w.capable), (0, 0), "{w:?}");
        assert!(w.clauses.iter().any(|c| c.clause.contains("Tree")), "{w:?}");
    }
    // A machine that comes to suit it is a wake-up.
    p.machine("b", 1, "Tree = \"g\"");
    assert_eq!(p.live(x), 2);
}

#[test]
fn a_guest_takes_limits_but_no_quota_and_has_a_slot_on_a_static_machine() {
    let mut p = Pool::new(Settings {
        limits: crate::Limits { named: [("matlab".to_owned(), 1.0)].into(), default: 9.0 },
        ..Settings::default()
    });
    p.machine("a", 1, "SlotType = \"Static\"");
    let mut template = set(&[NONE, "0"]);
    each(&mut template, "ConcurrencyLimits", &["\"\"", "\"matlab\""]);
    let x = p.submit("ann", template.clone());
    let mut slots: Vec<(String, u32)> =
        p.core.pool.claims().values().map(|c| (c.slot.clone(), c.resources.cpus)).collect();
    slots.sort();
    assert_eq!(slots, [("slot1".to_owned(), 1), ("slot1_1".to_owned(), 0)]);
    p.machine("b", 1, "");
    let y = p.submit("ann", template);
    assert_eq!((p.live(x), p.live(y)), (2, 0), "the licence is taken");
    p.begin(x, 0);
    exit(&mut p, x, 1);
    assert_eq!(p.live(y), 2);
    sound(&mut p);
}

/// A machine connects again with what it has.
fn reconnect(core: &mut Core, p: &Pool, held: &[(u32, bool)], cluster: u32, out: &mut Out) {
    let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
    let ad = classad::ClassAd::parse_new("[Name = \"a\"; Memory = 4096; Requirements = true]").unwrap();
    let claims = held.iter().map(|&(proc, has)| {
        let live = &p.core.queue.clusters()[&cluster].live[&proc];
        let mut key = [0; 32];
        key.copy_from_slice(&p.core.pool.claims()[&live.claim].key_digest);
        let job = Attempt { cluster, proc, attempt: live.attempt };
        let jobs = if has { vec![job] } else { Vec::new() };
        HeldClaim {
            claim: live.claim,
            key: model::ClaimKey(key),
            jobs,
            ending: false,
            stage: model::agent::Stage::Active,
        }
    });
    let claims = claims.collect();
    let hello =
        AgentHello { machine: "a".into(), session: Session(9_999), total, ad, more: Vec::new(), claims };
    core.agent_up(&mut Turn { now: p.now, digest, out }, hello);
}

#[test]
fn after_a_restart_a_guest_is_sent_when_its_host_runs_and_not_before() {
    for host_runs in [false, true] {
        let mut p = pool(&[("a", "")]);
        let x = p.submit("ann", set(&[NONE, "0"]));
        if host_runs {
            p.begin(x, 0);
        }
        let mut core = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
        core.recovered(p.now);
        let mut out = Out::default();
        reconnect(&mut core, &p, &[(0, true), (1, false)], x, &mut out);
        let assigned = out.effects.iter().filter(|e| matches!(e, Effect::Assign { .. })).count();
        assert_eq!(assigned, usize::from(host_runs), "{:?}", out.effects);
        assert_eq!(core.queue.clusters()[&x].live.len(), 2, "nothing is lost");
        assert!(
            !out.events.iter().any(|e| matches!(e.kind, Some(Kind::JobsRequeued(_)))),
            "{:?}",
            out.events
        );
    }
}

#[test]
fn in_a_world_with_guests_everything_ends() {
    let mut world = World::new();
    for m in 0..3 {
        world.connect(m);
    }
    world.keys();
    let mut out = Out::default();
    let submission = Submission {
        owner: "u0".into(),
        template: super::random::hosting(4),
        idempotency_key: String::new(),
    };
    let id = world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
    world.commit(out);
    for _ in 0..20 {
        for m in 0..3 {
            world.deliver(m);
            world.start(m);
        }
    }
    assert_eq!(world.core.cluster(id).unwrap().running, 4, "hosts and guests run at the same time");
    world.crash();
    for m in 0..3 {
        world.connect(m);
    }
    assert_eq!(world.core.cluster(id).unwrap().running, 4);
}
