//! Machines that end claims before their jobs begin: what counts as another refusal, and that nobody is forgotten when a machine's
//! rest from such jobs is over before its time. And machines whose starters all died, as after a power cut.

use classad::ClassAd;
use model::agent::Stage;
use model::codes::vacate;
use model::event::{Exit, Kind, Resources};
use model::report::{Attempt, Happening, Started};
use model::{ClaimId, JobId};

use super::said::{exited, report};
use super::sharing::{Pool, with};
use super::{digest, sweep_all, template};
use crate::{AgentHello, Core, Effect, Findings, HeldClaim, Limits, Session, Settings, Turn};

/// A machine says something of a claim.
fn say(p: &mut Pool, claim: u64, seq: u64, happening: Happening) {
    p.keys();
    let machine = p.core.pool.claims()[&ClaimId(claim)].machine.clone();
    let session = p.core.pool.machines()[&machine].session.unwrap();
    let said = report(ClaimId(claim), seq, happening);
    p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, &machine, session, said);
}

/// A machine ends a claim.
fn end_claim(p: &mut Pool, claim: u64) {
    say(p, claim, 1, Happening::Gone("START is false".into()));
}

/// The attempt that a claim has.
fn attempt(p: &Pool, claim: u64) -> Attempt {
    let job = p.core.pool.claims()[&ClaimId(claim)].jobs[0];
    Attempt::at(job, p.core.queue.clusters()[&job.cluster].live[&job.proc].attempt)
}

fn begin(p: &mut Pool, claim: u64) {
    let job = attempt(p, claim);
    say(p, claim, 0, Happening::Started(Started { job }));
}

/// The consistency pass must find nothing, as it always panics in tests when it does.
fn sweep(p: &mut Pool) {
    p.keys();
    sweep_all(&mut p.core, &mut Turn { now: p.now, digest, out: &mut p.out });
    assert_eq!(p.core.findings(), Findings::default());
}

/// A machine of two cores that rests from jobs of a cluster: of its claims 1 and 2 it has ended the first, and claim 3 that was made
/// in its place.
fn resting() -> (Pool, u32) {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 2, "");
    let cluster = p.submit("ann", template(4, 1));
    end_claim(&mut p, 1);
    assert_eq!(p.live(cluster), 2, "the first time may be chance");
    end_claim(&mut p, 3);
    assert_eq!(p.live(cluster), 1, "it rests");
    sweep(&mut p);
    (p, cluster)
}

#[test]
fn claims_that_end_together_are_one_refusal() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 8, "");
    let cluster = p.submit("ann", template(20, 1));
    assert_eq!(p.live(cluster), 8);
    for claim in 1..=8 {
        end_claim(&mut p, claim);
    }
    assert_eq!(p.live(cluster), 8, "its owner came back once, and was asked for each");
    end_claim(&mut p, 9);
    assert_eq!(p.live(cluster), 7, "asked anew, it refused again");
    end_claim(&mut p, 10);
    p.wait(1_000);
    assert_eq!(p.live(cluster), 8, "which counts once, too: a second, not two");
}

#[test]
fn a_machine_that_begins_such_a_job_after_all_gets_the_others_in_the_same_step() {
    let (mut p, cluster) = resting();
    begin(&mut p, 2);
    assert_eq!(p.live(cluster), 2);
    sweep(&mut p);
}

#[test]
fn whoever_rests_from_a_kind_that_is_sorted_anew_is_offered_it_at_once() {
    let (mut p, cluster) = resting();
    p.machine("b", 1, "Requirements = TARGET.ProcId < 0");
    sweep(&mut p);
    p.wait(1);
    assert_eq!(p.live(cluster), 2);
}

#[test]
fn a_limit_that_kept_a_kind_back_is_told_of_also_when_kinds_are_sorted_anew_meanwhile() {
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
    p.machine("c", 1, "Requirements = TARGET.ProcId < 0");
    p.end(first);
    p.wait(1);
    assert_eq!(p.live(second), 1, "on a machine that nothing happened to");
    sweep(&mut p);
}

#[test]
fn a_machine_that_is_gone_leaves_its_rest_to_nobody() {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 1, "");
    let cluster = p.submit("ann", template(1, 1));
    end_claim(&mut p, 1);
    end_claim(&mut p, 2);
    let (number, session) = (p.core.pool.machines()["a"].number, p.core.pool.machines()["a"].session);
    p.core.agent_down(session.unwrap());
    p.machine("b", 1, "");
    assert_eq!(p.core.pool.machines()["b"].number, number);
    assert_eq!(p.live(cluster), 1, "another machine under the same number");
}

/// Manager, agent, starters and jobs have died in one instant, and are started anew: the machine has its claims, and nothing in them.
fn after_a_power_cut(procs: u32) -> (Pool, u32) {
    let mut p = Pool::new(Settings::default());
    p.machine("a", 2, "");
    let cluster = p.submit("ann", template(procs, 1));
    begin(&mut p, 1);
    begin(&mut p, 2);
    let keys = p.out.effects.iter().filter_map(|effect| match effect {
        Effect::Claim { claim, key, .. } => Some((*claim, key.clone())),
        _ => None,
    });
    let held = |(claim, key)| HeldClaim { claim, key, jobs: Vec::new(), ending: true, stage: Stage::Active };
    let claims: Vec<HeldClaim> = keys.map(held).collect();
    p.core = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    p.core.recovered(p.now);
    p.out.events.clear();
    p.keys();
    let hello = AgentHello {
        machine: "a".into(),
        session: Session(7),
        total: Resources { cpus: 2, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 },
        ad: ClassAd::parse_new("[Name = \"a\"; Cpus = 2; Memory = 4096; Requirements = true]").unwrap(),
        more: Vec::new(),
        claims,
    };
    p.core.agent_up(&mut Turn { now: p.now, digest, out: &mut p.out }, hello);
    (p, cluster)
}

#[test]
fn nothing_is_given_to_claims_that_are_over_and_their_reports_say_what_became_of_their_jobs() {
    let (mut p, cluster) = after_a_power_cut(4);
    let told = p.out.events.iter().map(|e| e.kind.clone().unwrap()).collect::<Vec<_>>();
    assert!(told.is_empty(), "nothing is known of the jobs yet: {told:?}");
    // One had ended before: its starter had written that down.
    let ended = attempt(&p, 1);
    say(&mut p, 1, 1, exited(ended, Exit { code: Some(0), wall_us: 3_600_000_000, ..Exit::default() }));
    say(&mut p, 1, 2, Happening::Gone("its starter died".into()));
    say(&mut p, 2, 1, Happening::Gone("its starter died".into()));
    let is_over = p.out.events.iter().any(|e| matches!(&e.kind, Some(Kind::JobExited(e)) if e.proc == 0));
    assert!(is_over, "{:?}", p.out.events);
    let back: Vec<(u32, u32, &str)> = p
        .out
        .events
        .iter()
        .filter_map(|e| match &e.kind {
            Some(Kind::JobsRequeued(e)) => Some((e.procs[0].first, e.code, e.reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(back, [(1, vacate::MACHINE_FAILED, "its starter died")]);
    assert_eq!(p.live(cluster), 2, "both cores are in use in the same step");
    let lost = JobId { cluster, proc: 1 };
    assert_eq!(
        p.core.queue.clusters()[&cluster].live[&lost.proc].attempt,
        2,
        "no attempt was made in between"
    );
    sweep(&mut p);
}
