//! Divided machines: static and partitionable slots side by side, each matched by itself.

use classad::ClassAd;
use model::JobTemplate;
use model::event::{Kind, PoolDrained, Resources};
use model::report::{Attempt, Evicted, Happening};

use super::said::report;
use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{
    AgentHello, AgentSlot, Core, Effect, HeldClaim, Obstacle, Session, Settings, Shut, SlotState, Standing,
    Turn,
};

fn size(cpus: u32) -> Resources {
    Resources { cpus, memory_mib: u64::from(cpus) * 1024, disk_kib: 1 << 20, gpus: 0 }
}

fn ad(kind: &str, cpus: u32, more: &str) -> ClassAd {
    let text = format!("[SlotType = \"{kind}\"; Cpus = {cpus}; Memory = 1024; Requirements = true; {more}]");
    ClassAd::parse_new(&text).unwrap()
}

/// A machine with a static slot of one core, one of two, and a partitionable one of four.
fn hello(session: u64, slots: usize) -> AgentHello {
    let more = [
        AgentSlot { number: 2, total: size(2), ad: ad("Static", 2, "Big = true") },
        AgentSlot { number: 3, total: size(4), ad: ad("Partitionable", 4, "") },
    ];
    AgentHello {
        machine: "m".into(),
        session: Session(session),
        total: size(1),
        ad: ad("Static", 1, ""),
        more: more.into_iter().take(slots - 1).collect(),
        claims: Vec::new(),
    }
}

fn divided(slots: usize) -> Pool {
    let mut pool = Pool::new(Settings::default());
    pool.core.agent_up(&mut Turn { now: pool.now, digest, out: &mut pool.out }, hello(1, slots));
    pool
}

/// Where claims are, and what they hold: (machine, slot, cores).
fn claims(pool: &Pool) -> Vec<(String, String, u32)> {
    let made = pool.out.events.iter().filter_map(|e| match &e.kind {
        Some(Kind::ClaimMade(e)) => Some((e.machine.clone(), e.slot.clone(), e.resources.cpus)),
        _ => None,
    });
    made.collect()
}

fn wants(procs: u32, cpus: &str) -> JobTemplate {
    with(procs, &[("RequestCpus", cpus)])
}

#[test]
fn a_static_slot_is_taken_whole_and_a_partitionable_one_is_cut() {
    let mut pool = divided(3);
    let job = pool.submit("ann", template(10, 1));
    assert_eq!(pool.live(job), 6, "two static slots, and four cores of the third");
    let mut claims = claims(&pool);
    claims.sort();
    let slots: Vec<_> = claims.iter().map(|(m, s, c)| (m.as_str(), s.as_str(), *c)).collect();
    assert_eq!(
        slots,
        [
            ("m", "slot1", 1),
            ("m", "slot2", 2),
            ("m", "slot3_1", 1),
            ("m", "slot3_2", 1),
            ("m", "slot3_3", 1),
            ("m", "slot3_4", 1)
        ]
    );
    assert_eq!(pool.core.totals().machines, 1);
    assert_eq!(pool.core.machines().filter(|m| &*m.name == "m").count(), 3);
    pool.wait(1_000);
    pool.end(job);
    assert_eq!(pool.live(job), 6, "the next job goes into the claim of the first");
}

#[test]
fn a_job_that_is_too_large_for_a_slot_never_starts_there() {
    let mut pool = divided(2);
    let two = pool.submit("ann", wants(2, "2"));
    assert_eq!(pool.live(two), 1);
    let big = pool.submit("ann", wants(1, "3"));
    assert_eq!(pool.live(big), 0, "three cores are nowhere, though the machine has them in all");
    let now = pool.now;
    let told = pool.core.explain_job(model::JobId { cluster: big, proc: 0 }, now).unwrap();
    let Standing::Waiting(waiting) = told.standing else { panic!("{told:?}") };
    let too_small = waiting.machines.iter().find(|(o, _)| *o == Obstacle::TooSmall);
    assert_eq!(too_small.map(|(_, n)| *n), Some(2), "both slots");
}

#[test]
fn each_slot_is_matched_by_its_own_ad() {
    let mut pool = divided(3);
    let picky = pool.submit("ann", with(2, &[("Requirements", "TARGET.Big =?= true")]));
    assert_eq!(pool.live(picky), 1);
    assert_eq!(claims(&pool)[0].1, "slot2");
    let changed = vec![(1, ad("Static", 1, "Big = true"))];
    pool.core.machine_changed(
        &mut Turn { now: pool.now, digest, out: &mut pool.out },
        "m",
        Session(1),
        changed,
        Vec::new(),
    );
    assert_eq!(pool.live(picky), 2);
    assert_eq!(claims(&pool)[1].1, "slot1");
}

#[test]
fn a_claim_in_a_static_slot_goes_on_with_whatever_fits() {
    let mut pool = divided(2);
    let small = pool.submit("ann", with(1, &[("Requirements", "TARGET.Big =?= true")]));
    let large = pool.submit("ann", with(1, &[("RequestCpus", "2"), ("Requirements", "TARGET.Big =?= true")]));
    assert_eq!((pool.live(small), pool.live(large)), (1, 0));
    pool.wait(1_000);
    pool.end(small);
    assert_eq!(pool.live(large), 1);
    assert_eq!(claims(&pool).len(), 1, "the claim holds two cores already");
}

#[test]
fn a_machine_out_of_contact_comes_back_with_its_slots_and_a_new_manager_knows_them() {
    let mut pool = divided(3);
    let job = pool.submit("ann", template(4, 1));
    assert_eq!(pool.live(job), 4);
    let bytes = pool.core.snapshot();
    let held: Vec<HeldClaim> = pool
        .out
        .effects
        .iter()
        .filter_map(|e| match e {
            crate::Effect::Claim { claim, key, .. } => Some((*claim, key.clone())),
            _ => None,
        })
        .map(|(claim, key)| {
            let jobs = pool.core.pool.claims()[&claim].jobs.iter();
            let jobs = jobs.map(|job| Attempt::at(*job, 1)).collect();
            HeldClaim { claim, key, jobs, ending: false, stage: model::agent::Stage::Active }
        })
        .collect();
    let mut core = Core::restore(Settings::default(), &bytes).unwrap();
    core.recovered(pool.now);
    let mut out = crate::Out::default();
    core.agent_up(
        &mut Turn { now: pool.now, digest, out: &mut out },
        AgentHello { claims: held, ..hello(7, 3) },
    );
    let kept = core.pool.claims().len();
    assert_eq!(kept, 4, "nothing is lost");
    let free: Vec<u32> = core.machines().filter(|m| &*m.name == "m").map(|m| m.free.cpus).collect();
    assert_eq!(
        free.iter().sum::<u32>(),
        2,
        "{free:?}: both static slots are taken, and two cores of the third"
    );
    // Silence for longer than the lease: everything comes back, and the machine is forgotten whole.
    core.agent_down(Session(7));
    let later = model::Now { mono_ms: pool.now.mono_ms + 3_600_000, ..pool.now };
    core.tick(&mut Turn { now: later, digest, out: &mut out });
    assert_eq!(core.pool.claims().len(), 0);
    assert_eq!(core.machines().filter(|m| &*m.name == "m").count(), 0);
}

#[test]
fn a_machine_that_is_divided_anew_gives_the_jobs_of_lost_slots_back() {
    let mut pool = divided(3);
    let job = pool.submit("ann", template(6, 1));
    assert_eq!(pool.live(job), 6);
    pool.core.agent_down(Session(1));
    pool.core.agent_up(&mut Turn { now: pool.now, digest, out: &mut pool.out }, hello(2, 1));
    assert_eq!(pool.live(job), 1, "one slot is left, and one job in it");
    assert_eq!(pool.core.machines().filter(|m| &*m.name == "m").count(), 1);
}

#[test]
fn what_a_machine_says_of_its_slots_is_believed_of_its_own_only() {
    let mut pool = divided(2);
    pool.submit("ann", template(2, 1));
    let state = SlotState {
        state: "Claimed".into(),
        activity: "Suspended".into(),
        age_ms: 0,
        since_ms: 0,
        image_kib: 0,
        rss_kib: 0,
        cpu_us: 0,
        rank: 0.0,
        transfer: None,
    };
    let ids: Vec<_> = pool.core.pool.claims().keys().copied().collect();
    let said = ids.iter().map(|id| (*id, state.clone())).collect();
    pool.core.machine_changed(
        &mut Turn { now: pool.now, digest, out: &mut pool.out },
        "m",
        Session(1),
        Vec::new(),
        said,
    );
    let state = SlotState { since_ms: pool.now.wall_ms, ..state };
    assert!(pool.core.pool.claims().values().all(|c| c.slot_now.as_ref() == Some(&state)));
}

#[test]
fn a_job_that_the_owner_wants_held_is_held() {
    let mut pool = divided(2);
    let job = pool.submit("ann", template(1, 1));
    let (id, live) = {
        let live = pool.core.queue.clusters()[&job].live[&0].clone();
        (live.claim, live)
    };
    let held = Attempt { cluster: job, proc: 0, attempt: live.attempt };
    let hold = Some(model::report::Hold { reason: "too much memory".to_owned(), subcode: 9, code: 0 });
    let kind = Happening::Evicted(Evicted { job: held, reason: "PREEMPT".into(), code: 1011, hold });
    let report = report(id, 1, kind);
    pool.core.agent_report(&mut Turn { now: pool.now, digest, out: &mut pool.out }, "m", Session(1), report);
    let found = pool.out.events.iter().find_map(|e| match &e.kind {
        Some(Kind::JobsHeld(e)) => Some((e.reason.clone(), e.code, e.subcode)),
        _ => None,
    });
    assert_eq!(found, Some(("too much memory".to_owned(), 21, 9)));
}

fn drain(name: &str, until_ms: u64, constraint: &str) -> PoolDrained {
    let (by, reason) = ("root".to_owned(), "a window".to_owned());
    PoolDrained { name: name.into(), until_ms, constraint: constraint.into(), by, reason }
}

#[test]
fn a_drain_keeps_new_jobs_off_the_machines_meant_and_ends_by_itself() {
    let mut pool = divided(2);
    let until = pool.now.wall_ms + 60_000;
    let said = drain("Rack", until, "Cpus == 2");
    pool.core.drain(&mut Turn { now: pool.now, digest, out: &mut pool.out }, said.clone()).unwrap();
    let job = pool.submit("ann", template(2, 1));
    assert_eq!(pool.live(job), 1, "one slot is meant, the other not");
    assert_eq!(claims(&pool)[0].1, "slot1");
    pool.core
        .drain(&mut Turn { now: pool.now, digest, out: &mut pool.out }, drain("Rack", until, ""))
        .unwrap();
    pool.wait(1_000);
    let more = pool.submit("ann", template(1, 1));
    pool.end(job);
    assert_eq!((pool.live(job), pool.live(more)), (0, 0), "no further job for the claim that is there");
    let events = pool.out.events.len();
    pool.core
        .drain(&mut Turn { now: pool.now, digest, out: &mut pool.out }, drain("Rack", until, ""))
        .unwrap();
    assert_eq!(pool.out.events.len(), events, "said again it is no news");
    // A manager that starts anew knows it, and ends it in time.
    let mut core = Core::restore(Settings::default(), &pool.core.snapshot()).unwrap();
    assert_eq!(core.drains().count(), 1);
    core.recovered(pool.now);
    assert_eq!(core.drains().count(), 1);
    // One that starts when the drain is over does not meet it, not even until its first tick.
    let late = model::Now { wall_ms: until, ..pool.now };
    core.recovered(late);
    assert_eq!(core.drains().count(), 0);
    pool.wait(58_000);
    assert_eq!(pool.live(job) + pool.live(more), 0);
    pool.wait(2_000);
    assert_eq!(pool.core.drains().count(), 0);
    assert_eq!(pool.live(job) + pool.live(more), 2);
}

#[test]
fn a_drain_can_be_taken_back_and_a_wrong_one_is_refused() {
    let mut pool = divided(1);
    let now = pool.now;
    let mut try_one = |d: PoolDrained| pool.core.drain(&mut Turn { now, digest, out: &mut pool.out }, d);
    assert!(try_one(drain("x", now.wall_ms, "")).is_err(), "it is over already");
    assert!(try_one(drain("x", now.wall_ms + 100 * 86_400_000, "")).is_err(), "too long");
    assert!(try_one(drain("x", now.wall_ms + 1_000, "Cpus ==")).is_err());
    assert!(try_one(drain("unknown", 0, "")).is_ok(), "what is not there is over");
    assert!(try_one(drain("x", now.wall_ms + 60_000, "")).is_ok());
    let job = pool.submit("ann", template(1, 1));
    let told = pool.core.explain_job(model::JobId { cluster: job, proc: 0 }, now).unwrap();
    let Standing::Waiting(waiting) = told.standing else { panic!("{told:?}") };
    assert_eq!(waiting.machines, [(Obstacle::Shut(Shut::Drained), 1)]);
    pool.core.drain(&mut Turn { now, digest, out: &mut pool.out }, drain("x", 0, "")).unwrap();
    assert_eq!(pool.live(job), 1);
}

#[test]
fn a_machine_that_comes_back_smaller_is_not_given_more_than_it_has_when_its_jobs_end() {
    let mut pool = Pool::new(Settings::default());
    let mut hello = AgentHello { total: size(4), ad: ad("Partitionable", 4, ""), ..hello(1, 1) };
    pool.core.agent_up(&mut Turn { now: pool.now, digest, out: &mut pool.out }, hello.clone());
    pool.submit("ann", with(2, &[("RequestCpus", "2")]));
    let jobs: Vec<_> = pool
        .out
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Claim { claim, key, .. } => Some((*claim, key.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(jobs.len(), 2);
    let of = |pool: &Pool, claim| {
        let job = pool.core.pool.claims()[&claim].jobs[0];
        vec![Attempt { cluster: job.cluster, proc: job.proc, attempt: 1 }]
    };
    let held = jobs.iter().map(|(claim, key)| HeldClaim {
        claim: *claim,
        key: key.clone(),
        jobs: of(&pool, *claim),
        ending: false,
        stage: model::agent::Stage::Active,
    });
    hello = AgentHello { session: Session(2), total: size(3), claims: held.collect(), ..hello };
    pool.core.agent_up(&mut Turn { now: pool.now, digest, out: &mut pool.out }, hello);
    let gone = report(jobs[0].0, 1, Happening::Gone("gone".into()));
    pool.core.agent_report(&mut Turn { now: pool.now, digest, out: &mut pool.out }, "m", Session(2), gone);
    let used: u32 = pool.core.pool.claims().values().map(|c| c.resources.cpus).sum();
    let free = pool.core.machines().map(|m| m.free.cpus).sum::<u32>();
    assert!(used + free <= 3, "{used} used and {free} free of 3");
}

#[test]
fn a_job_beside_the_queue_takes_nothing_also_of_a_full_machine_and_of_a_static_slot() {
    for slots in [1, 3] {
        let mut pool = divided(slots);
        pool.submit("u", wants(20, "1"));
        let before = claims(&pool);
        pool.submit("u", with(1, &[("JobUniverse", "7"), ("RequestCpus", "4")]));
        let after = claims(&pool);
        assert_eq!(after.len(), before.len() + 1, "it finds room where there is none");
        assert_eq!(after.last().map(|(_, _, cpus)| *cpus), Some(0));
        assert!(after.last().is_some_and(|(_, slot, _)| slot.contains('_')), "{after:?}");
    }
}

#[test]
fn nodes_of_a_dag_that_does_not_run_are_removed_with_it() {
    let mut pool = divided(1);
    let of = |dag: u32| with(1, &[("DAGManJobId", dag.to_string().as_str())]);
    let dag =
        |more: &[(&str, &str)]| with(1, &[&[("JobUniverse", "7"), ("Requirements", "false")], more].concat());
    let outer = pool.submit("u", dag(&[]));
    let inner = pool.submit("u", dag(&[("DAGManJobId", outer.to_string().as_str())]));
    let nodes = [pool.submit("u", of(outer)), pool.submit("u", of(inner))];
    let others = [pool.submit("v", of(outer)), pool.submit("u", of(999))];
    assert_eq!(crate::dag_nodes::orphaned_nodes(&pool.core.queue, &[outer]), [inner, nodes[0], nodes[1]]);
    assert!(crate::dag_nodes::orphaned_nodes(&pool.core.queue, &others).is_empty());
    let running = pool.submit("u", with(1, &[("JobUniverse", "7")]));
    pool.submit("u", of(running));
    assert!(
        crate::dag_nodes::orphaned_nodes(&pool.core.queue, &[running]).is_empty(),
        "one that runs sees to its nodes itself"
    );
}

#[test]
fn jobs_that_take_nothing_are_few_and_each_a_cluster_of_its_own() {
    let mut pool = divided(1);
    let dag = |procs| with(procs, &[("JobUniverse", "7"), ("Requirements", "false")]);
    assert_eq!(pool.try_submit("u", dag(2)), Err(crate::Refusal::TooManySchedulerJobs));
    for _ in 0..model::limits::SCHEDULER_JOBS_PER_USER {
        pool.submit("u", dag(1));
    }
    assert_eq!(pool.try_submit("u", dag(1)), Err(crate::Refusal::TooManySchedulerJobs));
    assert!(pool.try_submit("v", dag(1)).is_ok(), "somebody else has some of his own");
    assert!(pool.try_submit("u", with(5, &[])).is_ok(), "others are not meant");
}
