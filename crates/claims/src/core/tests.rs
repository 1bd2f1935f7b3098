//! The whole by hand: what ledger and owner make of each other.

use classad::{Expr, Name, Value};
use model::agent::{Assign, AssignedJob, Claim, Cluster, MachineNow, Stop, Welcome};
use model::event::{Exit, Resources};
use model::report::{Evicted, Exited, Started};
use model::starter::{Account, Report};
use model::{Moment, WallMs};
use policy::slots::Layout;
use policy::{Expression, Policy};

use super::*;

const AT: Now = Now { mono_ms: 10_000, wall_ms: 1_700_000_000_000 };
const JOB: Attempt = Attempt { cluster: 1, proc: 0, attempt: 1 };

fn later(ms: u64) -> Now {
    Now { mono_ms: AT.mono_ms + ms, wall_ms: AT.wall_ms + ms }
}

fn account() -> Account {
    let (home, shell) = ("/".to_owned(), "/bin/sh".to_owned());
    Account { name: "ann".into(), uid: 7, gid: 7, groups: vec![7], home, shell }
}

/// A machine that takes jobs while its owner is away.
fn core() -> Core {
    let given = [
        (Expression::Start, "KeyboardIdle > 60"),
        (Expression::Suspend, "false"),
        (Expression::Preempt, "KeyboardIdle < 10"),
        (Expression::Kill, "false"),
        (Expression::WantVacate, "true"),
        (Expression::RunBenchmarks, "false"),
    ];
    let policy = Policy::new(given.map(|(name, text)| (name, Expr::parse(text).unwrap())));
    let size =
        policy::slots::Resources { cpus: 4, memory_mib: 4_096, disk_kib: 1 << 20, ..Default::default() };
    let layout = Layout::partitionable(size);
    let owner = Owner::new(AT, "desk", &policy, &layout, Vec::new(), idle(600));
    let ledger = Ledger::new("test", 1, account(), Resources::default(), Vec::new());
    Core::new(AT, ledger, owner, Settings::default())
}

fn idle(seconds: i64) -> Attributes {
    vec![(Name::new("KeyboardIdle"), Some(Value::Int(seconds)))]
}

/// Carries out what can be carried out here.
fn settle(core: &mut Core, now: Now, seen: i64) -> Vec<Action> {
    let mut all = Vec::new();
    loop {
        let actions = core.settle(now);
        if actions.is_empty() {
            return all;
        }
        for action in actions {
            match action {
                Action::Provision { claim, jobs } => core.offer(now, claim, jobs, |_| idle(seen)),
                action => all.push(action),
            }
        }
    }
}

/// With a claim, and a job that its starter has.
fn with_job(seen: i64) -> (Core, Vec<Action>) {
    let mut core = core();
    core.session_opened(AT);
    core.hear_manager(AT, Down::Welcome(Welcome::default()));
    let resources = Resources { cpus: 1, memory_mib: 10, ..Resources::default() };
    let claim = Claim {
        claim: 5,
        slot: "slot1_1".into(),
        owner: "ann".into(),
        resources,
        lease_ms: 60_000,
        ..Claim::default()
    };
    core.hear_manager(AT, Down::Claim(claim));
    let shared = [("Cmd", "\"/bin/true\""), ("RequestMemory", "10")];
    let shared =
        shared.map(|(name, expr)| model::template::Attribute { name: name.into(), expr: expr.into() });
    let cluster = Cluster { cluster: 1, owner: "ann".into(), shared: shared.to_vec(), ..Cluster::default() };
    core.ledger.learn(&cluster, Some(account()));
    let jobs = vec![AssignedJob { attempt: 1, ..AssignedJob::default() }];
    core.hear_manager(AT, Down::Assign(Assign { claim: 5, cluster: 1, jobs, waits: false }));
    let actions = settle(&mut core, AT, seen);
    (core, actions)
}

fn reported(seq: u64, happening: Happening) -> Word {
    let moment = Some(Moment { boot: 1, mono_ms: AT.mono_ms });
    Word::Report(Report { seq, happening: Some(happening), moment })
}

fn orders(actions: &[Action]) -> Vec<&Order> {
    actions.iter().filter_map(|a| if let Action::Order(5, order) = a { Some(order) } else { None }).collect()
}

#[test]
fn a_job_that_the_owner_lets_in_is_given_to_its_starter() {
    let (_, actions) = with_job(600);
    assert!(actions.iter().any(|a| matches!(a, Action::Begin { lease_ms: 60_000, .. })));
    assert!(
        orders(&actions).iter().any(|o| matches!(o, Order::Run(run) if run.jobs.len() == 1)),
        "{actions:?}"
    );
}

#[test]
fn a_claim_that_the_owner_does_not_want_ends_with_his_reason() {
    // Somebody sat down between two looks.
    let (mut core, actions) = with_job(0);
    assert!(!orders(&actions).iter().any(|o| matches!(o, Order::Run(_))), "{actions:?}");
    assert_eq!(orders(&actions).iter().filter(|o| matches!(o, Order::Quit(false))).count(), 1, "{actions:?}");
    core.starter_gone(later(10), 5, Vec::new(), true);
    let told = settle(&mut core, later(10), 0);
    // What the machine is now goes before what became of its claim.
    let machine = told.iter().position(|a| matches!(a, Action::Say(Up::Machine(MachineNow { .. }))));
    let gone = told.iter().position(|a| {
        matches!(a, Action::Say(Up::Report(r)) if matches!(&r.happening, Some(Happening::Gone(why)) if why.contains("START")))
    });
    assert!(gone.is_some() && machine.is_none_or(|m| Some(m) < gone), "{told:?}");
}

#[test]
fn a_running_job_is_vacated_by_way_of_the_policy_and_takes_its_claim_with_it() {
    let (mut core, _) = with_job(600);
    core.hear_starter(later(1), 5, reported(0, Happening::Started(Started { job: JOB })));
    settle(&mut core, later(1), 600);
    core.hear_manager(later(2), Down::Stop(Stop { claim: 5, job: JOB, vacate: true }));
    let actions = settle(&mut core, later(2), 600);
    let evicted = |o: &&Order| matches!(o, Order::Stop(stop) if !stop.hard && stop.evict.is_some());
    assert!(orders(&actions).iter().any(evicted), "{actions:?}");
    let left = Evicted { job: JOB, reason: "command vacate".into(), code: 1010, hold: None };
    core.hear_starter(later(3), 5, reported(1, Happening::Evicted(left)));
    let actions = settle(&mut core, later(3), 600);
    assert_eq!(
        orders(&actions).iter().filter(|o| matches!(o, Order::Quit(_))).count(),
        1,
        "once: {actions:?}"
    );
}

#[test]
fn the_claim_of_a_job_that_was_made_to_leave_ends_though_its_agent_was_killed_meanwhile() {
    let record = Record { claim: 5, slot: "slot1_1".into(), lease_ms: 60_000, ..Record::default() };
    let evicted = |code| Evicted { job: JOB, reason: "command vacate".into(), code, hold: None };
    let quits = |core: &mut Core, ms| {
        let actions = settle(core, later(ms), 600);
        orders(&actions).iter().filter(|o| matches!(o, Order::Quit(_))).count()
    };
    // It left before the next agent came, or while it was there.
    for before in [true, false] {
        for (code, ends) in [(1010, 1), (1011, 1), (1006, 0), (1008, 0)] {
            let mut core = core();
            core.adopt(record.clone());
            let word = reported(1, Happening::Evicted(evicted(code)));
            let Word::Report(report) = word.clone() else { unreachable!() };
            let mut standing = Standing { claim: 5, answers: true, ..Standing::default() };
            if before {
                standing.unacknowledged = vec![report];
            } else {
                (standing.jobs, standing.running_since_ms) = (vec![JOB], Some(1));
            }
            core.adopt_job(AT, 5, &standing, None);
            core.hear_starter(AT, 5, Word::Standing(standing));
            let early = quits(&mut core, 1);
            if !before {
                core.hear_starter(later(2), 5, word);
            }
            assert_eq!(early + quits(&mut core, 3), ends, "{before} {code}");
        }
    }
}

#[test]
fn nothing_is_said_without_a_session_and_everything_with_the_next() {
    let (mut core, _) = with_job(600);
    core.session_closed();
    core.hear_starter(
        later(1),
        5,
        reported(1, Happening::Exited(Exited { job: JOB, exit: Exit::default() })),
    );
    assert!(!settle(&mut core, later(1), 600).iter().any(|a| matches!(a, Action::Say(_))));
    assert_eq!(core.next_word_ms(later(1)), None);
    core.session_opened(later(2_000));
    let said = settle(&mut core, later(2_000), 600);
    let aged = |a: &Action| matches!(a, Action::Say(Up::Report(r)) if r.seq == 1 && r.age_ms == Some(2_000));
    assert!(said.iter().any(aged), "{said:?}");
}

#[test]
fn a_claim_that_cannot_be_begun_is_told_of_as_gone() {
    let (mut core, _) = with_job(600);
    core.cannot_begin(5);
    assert!(core.employed().next().is_none());
    core.starter_gone(later(5_000), 5, Vec::new(), false);
    let told = settle(&mut core, later(5_000), 600);
    let why = |a: &Action| matches!(a, Action::Say(Up::Report(r)) if matches!(&r.happening, Some(Happening::Gone(why)) if why.contains("cannot begin")));
    assert!(told.iter().any(why), "{told:?}");
}

#[test]
fn a_starter_that_does_not_answer_is_killed_and_its_claim_says_why() {
    let (mut core, _) = with_job(600);
    for n in 0..=13 {
        core.ask_starters(later(n * 5_000));
    }
    let actions = settle(&mut core, later(65_000), 600);
    assert_eq!(actions.iter().filter(|a| matches!(a, Action::Kill(5))).count(), 1, "{actions:?}");
    core.starter_gone(later(66_000), 5, Vec::new(), false);
    let told = format!("{:?}", settle(&mut core, later(66_000), 600));
    assert!(told.contains("did not answer for 60 s"), "{told}");
}

#[test]
fn the_offset_of_the_clock_is_in_the_next_ad() {
    let (mut core, _) = with_job(600);
    core.beat(later(1_000));
    let theirs = WallMs(AT.wall_ms + 1_010 - 20_000);
    core.hear_clock(later(1_020), &Down::Beat(1), theirs);
    core.hear_manager(later(1_020), Down::Beat(1));
    let said = settle(&mut core, later(1_020), 600);
    let ad =
        said.iter().find_map(|a| if let Action::Say(Up::Machine(now)) = a { Some(&now.ad) } else { None });
    let offset = ad.and_then(|ad| ad.iter().find(|a| a.name == "ClockOffset")).map(|a| a.expr.as_str());
    assert_eq!(offset, Some("20"));
    assert!(said.iter().any(|a| matches!(a, Action::Warn(w) if w.contains("20 s ahead"))), "{said:?}");
}

#[test]
fn a_job_whose_work_is_packed_or_sent_is_still_leaving_for_the_next_agent() {
    let record = Record { claim: 5, slot: "slot1_1".into(), lease_ms: 60_000, ..Record::default() };
    let packed = Packed { job: JOB, number: 1, leaving: true, ..Packed::default() };
    // The job has no process any more, or still has one; the owner lets jobs in, or sits there himself.
    for (running_since_ms, seen) in [(None, 600), (None, 0), (Some(1), 600), (Some(1), 0)] {
        let mut core = core();
        core.owner.look(AT, idle(seen));
        core.adopt(record.clone());
        let standing = Standing {
            claim: 5,
            jobs: vec![JOB],
            running_since_ms,
            leaving_since_ms: Some(AT.mono_ms - 3_000),
            packed: vec![packed.clone()],
            answers: true,
            ..Standing::default()
        };
        core.adopt_job(AT, 5, &standing, None);
        core.hear_starter(AT, 5, Word::Standing(standing));
        for ms in [1, 5_000, 10_000, 60_000] {
            core.look(later(ms), idle(seen));
            let actions = settle(&mut core, later(ms), seen);
            let ends = |o: &&Order| matches!(o, Order::Quit(_) | Order::Stop(_) | Order::Suspend(_));
            assert!(!orders(&actions).iter().any(ends), "it was told to leave already: {actions:?}");
            let sent = actions.iter().any(|a| matches!(a, Action::Store { claim: 5, .. }));
            assert_eq!(sent, ms == 1, "what was packed is carried to the store once");
        }
        let evicted = Evicted { job: JOB, reason: "the owner".into(), code: 1011, hold: None };
        core.hear_starter(later(61_000), 5, reported(1, Happening::Evicted(evicted)));
        let actions = settle(&mut core, later(61_000), seen);
        assert!(
            orders(&actions).iter().any(|o| matches!(o, Order::Quit(_))),
            "then the claim ends: {actions:?}"
        );
    }
}

#[test]
fn a_claim_whose_end_nobody_is_left_to_see_to_ends() {
    let mut core = core();
    core.adopt(Record { claim: 5, slot: "slot1_1".into(), lease_ms: 60_000, ..Record::default() });
    // The manager has acknowledged that the job left, and gives the claim nothing more; the agent died before it ended it.
    let standing = Standing { claim: 5, answers: true, ending: "the owner".into(), ..Standing::default() };
    core.adopt_job(AT, 5, &standing, None);
    core.hear_starter(AT, 5, Word::Standing(standing));
    let actions = settle(&mut core, later(1), 600);
    assert!(orders(&actions).iter().any(|o| matches!(o, Order::Quit(_))), "{actions:?}");
}

/// What is said of a claim itself.
fn seat(actions: &[Action], claim: u64) -> Vec<model::report::SeatAnswer> {
    let said = |a: &Action| match a {
        Action::Say(Up::Report(model::agent::Report {
            claim: c,
            happening: Some(Happening::Seat(s)),
            ..
        })) => (*c == claim).then(|| s.answer()),
        _ => None,
    };
    actions.iter().filter_map(said).collect()
}

fn gone(actions: &[Action]) -> Vec<(u64, String)> {
    let said = |a: &Action| match a {
        Action::Say(Up::Report(model::agent::Report {
            claim,
            happening: Some(Happening::Gone(why)),
            ..
        })) => Some((*claim, why.clone())),
        _ => None,
    };
    actions.iter().filter_map(said).collect()
}

/// Numbers of the transitions that are told.
fn numbers(actions: &[Action]) -> Vec<u32> {
    let traces =
        actions.iter().filter_map(|a| if let Action::Say(Up::Trace(t)) = a { Some(t) } else { None });
    traces.flat_map(|t| t.transitions.iter().map(|t| t.number)).filter(|n| *n > 0).collect()
}

fn notice(claim: u64, notice: model::agent::Notice) -> Claim {
    let resources = Resources { cpus: 1, memory_mib: 10, disk_kib: 1, gpus: 0 };
    let slot = format!("slot1_{claim}");
    Claim {
        claim,
        slot,
        owner: "ann".into(),
        resources,
        lease_ms: 60_000,
        notice: notice.into(),
        ..Claim::default()
    }
}

fn learned(core: &mut Core, cluster: u32) {
    let shared = [("Cmd", "\"/bin/true\""), ("RequestMemory", "10"), ("Owner", "\"bill\"")];
    let shared =
        shared.map(|(name, expr)| model::template::Attribute { name: name.into(), expr: expr.into() });
    let cluster = Cluster { cluster, owner: "ann".into(), shared: shared.to_vec(), ..Cluster::default() };
    core.ledger.learn(&cluster, Some(account()));
}

fn seat_of_gang() -> Core {
    let mut core = core();
    core.session_opened(AT);
    core.hear_manager(AT, Down::Welcome(Welcome::default()));
    settle(&mut core, AT, 600);
    learned(&mut core, 3);
    core.hear_manager(AT, Down::Claim(notice(5, model::agent::Notice::Before)));
    core
}

fn request() -> Down {
    let jobs = vec![AssignedJob { attempt: 1, ..AssignedJob::default() }];
    Down::Assign(Assign { claim: 5, cluster: 3, jobs, waits: true })
}

#[test]
fn a_seat_is_promised_then_accepted_and_its_job_begins_with_the_last_word() {
    use model::report::SeatAnswer;
    let mut core = seat_of_gang();
    let actions = settle(&mut core, AT, 600);
    assert_eq!((seat(&actions, 5), numbers(&actions)), (vec![SeatAnswer::Matched], vec![6]));
    assert!(!actions.iter().any(|a| matches!(a, Action::Begin { .. })), "no starter for a promise");
    core.hear_manager(AT, request());
    core.hear_manager(AT, request());
    let actions = settle(&mut core, AT, 600);
    assert_eq!((seat(&actions, 5), numbers(&actions)), (vec![SeatAnswer::Accepted], vec![8]));
    assert_eq!(actions.iter().filter(|a| matches!(a, Action::Begin { .. })).count(), 1, "{actions:?}");
    assert!(!orders(&actions).iter().any(|o| matches!(o, Order::Run(_))), "nothing begins yet");
    // What the machine was told of clusters may be forgotten before the last seat is taken.
    core.hear_manager(AT, Down::Again(1));
    settle(&mut core, AT, 600);
    core.hear_manager(AT, Down::Activate(5));
    core.hear_manager(AT, Down::Activate(5));
    let actions = settle(&mut core, AT, 600);
    assert_eq!(numbers(&actions), [10]);
    assert_eq!(orders(&actions).iter().filter(|o| matches!(o, Order::Run(_))).count(), 1);
}

#[test]
fn a_promise_ends_by_time_by_the_owner_and_by_the_manager() {
    let mut core = seat_of_gang();
    settle(&mut core, AT, 600);
    core.look(later(300_000), idle(900));
    let actions = settle(&mut core, later(300_000), 900);
    assert_eq!(numbers(&actions), [7]);
    assert!(matches!(&gone(&actions)[..], [(5, why)] if why.contains("MATCH_TIMEOUT")), "{actions:?}");
    let mut core = seat_of_gang();
    settle(&mut core, AT, 600);
    core.owner.look(later(1), idle(1));
    core.owner.reconsider(later(1));
    let actions = settle(&mut core, later(1), 1);
    assert!(matches!(&gone(&actions)[..], [(5, why)] if why.contains("START")), "{actions:?}");
    assert_eq!(numbers(&actions), [2, 7], "the rest of the machine is its owner's too");
    let mut core = seat_of_gang();
    settle(&mut core, AT, 600);
    core.hear_manager(AT, Down::Drop(5));
    let actions = settle(&mut core, AT, 600);
    assert_eq!((numbers(&actions), gone(&actions)), (vec![7], Vec::new()));
    assert!(core.ledger.record(5).is_none());
}

#[test]
fn a_seat_that_the_owner_does_not_give_is_refused_before_anything_is_begun() {
    let mut core = seat_of_gang();
    settle(&mut core, AT, 600);
    core.owner.look(later(1), idle(1));
    core.hear_manager(later(1), request());
    let actions = settle(&mut core, later(1), 1);
    assert!(matches!(&gone(&actions)[..], [(5, why)] if why.contains("START")), "{actions:?}");
    assert!(!actions.iter().any(|a| matches!(a, Action::Begin { .. })));
    assert_eq!(numbers(&actions), [7]);
}

#[test]
fn a_job_that_waits_for_the_last_seat_comes_back_when_it_is_stopped() {
    let mut core = seat_of_gang();
    core.hear_manager(AT, request());
    settle(&mut core, AT, 600);
    let job = Attempt { cluster: 3, proc: 0, attempt: 1 };
    core.hear_manager(AT, Down::Stop(Stop { claim: 5, job, vacate: true }));
    let actions = settle(&mut core, AT, 600);
    assert!(actions.iter().any(|a| matches!(
        a,
        Action::Say(Up::Report(model::agent::Report { happening: Some(Happening::Returned(r)), .. })) if r.jobs == [job]
    )));
    core.hear_manager(AT, Down::Activate(5));
    assert!(orders(&settle(&mut core, AT, 600)).is_empty(), "there is nothing to begin");
    core.hear_manager(AT, Down::Drop(5));
    let actions = settle(&mut core, AT, 600);
    assert_eq!(numbers(&actions), [9, 17]);
}

#[test]
fn a_hello_says_how_far_each_seat_is_and_which_better_match_waits() {
    let mut core = seat_of_gang();
    let stage = |core: &mut Core, n: u64| {
        core.hear_manager(AT, Down::Again(n));
        settle(core, AT, 600).into_iter().find_map(|a| match a {
            Action::Say(Up::Hello(hello)) => {
                Some(hello.claims.iter().map(|c| (c.claim, c.stage)).collect::<Vec<_>>())
            }
            _ => None,
        })
    };
    assert_eq!(stage(&mut core, 1).unwrap(), [(5, 1)]);
    learned(&mut core, 3);
    core.hear_manager(AT, request());
    assert_eq!(stage(&mut core, 2).unwrap(), [(5, 2)]);
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    assert_eq!(stage(&mut core, 3).unwrap(), [(5, 0), (5 | BETTER, 0)]);
}

fn better() -> Down {
    let reason = "preempted: desk ranks another job higher".to_owned();
    Down::Better(model::agent::Better {
        instead_of: 5,
        key: vec![9; 32],
        cluster: 3,
        reason,
        ..Default::default()
    })
}

#[test]
fn a_slot_is_handed_over_to_the_better_match_that_waits() {
    use model::report::SeatAnswer;
    let (mut core, _) = with_job(600);
    core.hear_starter(AT, 5, reported(0, Happening::Started(Started { job: JOB })));
    settle(&mut core, AT, 600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    core.hear_manager(AT, better());
    let actions = settle(&mut core, AT, 600);
    assert_eq!(
        seat(&actions, 5),
        [SeatAnswer::BetterWaits, SeatAnswer::BetterWaits],
        "said twice, done once"
    );
    assert_eq!(numbers(&actions), [12]);
    let trace = actions.iter().find_map(|a| if let Action::Say(Up::Trace(t)) = a { Some(t) } else { None });
    assert!(trace.unwrap().transitions[0].cause.contains("RANK"), "{trace:?}");
    let Some(Order::Stop(stop)) = orders(&actions).into_iter().find(|o| matches!(o, Order::Stop(_))) else {
        panic!("{actions:?}")
    };
    let why = stop.evict.clone().unwrap();
    assert_eq!((why.reason.as_str(), why.code), ("preempted: desk ranks another job higher", 1000));
    let evicted = Evicted { job: JOB, reason: why.reason, code: why.code, hold: None };
    core.hear_starter(AT, 5, reported(1, Happening::Evicted(evicted)));
    let actions = settle(&mut core, AT, 600);
    assert_eq!(numbers(&actions), [18], "not by way of Owner");
    core.starter_gone(AT, 5, Vec::new(), true);
    settle(&mut core, AT, 600);
    let claim = Claim { instead_of: 5, ..notice(6, model::agent::Notice::Together) };
    core.hear_manager(AT, Down::Claim(claim));
    let jobs = vec![AssignedJob { attempt: 1, ..AssignedJob::default() }];
    core.hear_manager(AT, Down::Assign(Assign { claim: 6, cluster: 3, jobs, waits: false }));
    let actions = settle(&mut core, AT, 600);
    assert_eq!(numbers(&actions), [10], "{actions:?}");
    assert!(actions.iter().any(|a| matches!(a, Action::Order(6, Order::Run(_)))));
}

#[test]
fn a_better_match_that_the_owner_does_not_want_changes_nothing() {
    use model::report::SeatAnswer;
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.owner.look(later(1), idle(30));
    core.hear_manager(later(1), better());
    let actions = settle(&mut core, later(1), 30);
    assert_eq!((seat(&actions, 5), numbers(&actions)), (vec![SeatAnswer::BetterRefused], Vec::new()));
    assert!(orders(&actions).is_empty());
    // One that leaves already leaves for nobody.
    core.owner.look(later(2), idle(5));
    core.owner.reconsider(later(2));
    settle(&mut core, later(2), 5);
    core.hear_manager(later(3), better());
    assert_eq!(seat(&settle(&mut core, later(3), 5), 5), [SeatAnswer::BetterLate]);
}

#[test]
fn a_better_match_that_is_dropped_gives_the_slot_back() {
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    settle(&mut core, AT, 600);
    core.starter_gone(AT, 5, Vec::new(), true);
    assert_eq!(numbers(&settle(&mut core, AT, 600)), [18]);
    core.hear_manager(AT, Down::Drop(5 | BETTER));
    assert_eq!(numbers(&settle(&mut core, AT, 600)), [9, 17]);
}

#[test]
fn a_claim_that_nobody_feeds_ends_and_one_that_is_kept_stays() {
    use model::report::SeatAnswer;
    let (mut core, _) = with_job(600);
    let exited = Happening::Exited(Exited { job: JOB, exit: Exit::default() });
    core.hear_starter(AT, 5, reported(1, exited));
    core.hear_manager(AT, Down::Ack(model::agent::Ack { claim: 5, seq: 1 }));
    settle(&mut core, AT, 600);
    let at = |core: &mut Core, ms: u64| {
        core.ask_starters(later(ms));
        let actions = settle(core, later(ms), 600);
        (seat(&actions, 5), orders(&actions).iter().any(|o| matches!(o, Order::Quit(_))))
    };
    assert_eq!(at(&mut core, 5_000), (vec![], false));
    assert_eq!(at(&mut core, 305_000), (vec![SeatAnswer::Unfed], false));
    core.hear_manager(later(305_001), Down::Keep(5));
    assert_eq!(at(&mut core, 600_000), (vec![], false), "it was said to be kept");
    assert_eq!(at(&mut core, 606_000), (vec![SeatAnswer::Unfed], false));
    assert_eq!(at(&mut core, 905_000), (vec![], false));
    assert_eq!(at(&mut core, 906_000), (vec![], true), "nobody answered");
}

/// What a plain claim and its first job make a machine say, how its starter is ordered, and which transitions it takes.
fn plain(notice_of: model::agent::Notice) -> (usize, usize, Vec<u32>) {
    let mut core = core();
    core.session_opened(AT);
    core.hear_manager(AT, Down::Welcome(Welcome::default()));
    settle(&mut core, AT, 600);
    learned(&mut core, 3);
    let mut actions = Vec::new();
    core.hear_manager(AT, Down::Claim(notice(5, notice_of)));
    actions.extend(settle(&mut core, AT, 600));
    let jobs = vec![AssignedJob { attempt: 1, ..AssignedJob::default() }];
    core.hear_manager(AT, Down::Assign(Assign { claim: 5, cluster: 3, jobs, waits: false }));
    actions.extend(settle(&mut core, AT, 600));
    let said = actions.iter().filter(|a| matches!(a, Action::Say(_))).count();
    (said, orders(&actions).len(), numbers(&actions))
}

#[test]
fn a_notice_that_comes_with_a_plain_claim_costs_no_word() {
    use model::agent::Notice;
    let (said, ordered, numbers) = plain(Notice::Together);
    assert_eq!(numbers, [6, 8, 10]);
    let without = plain(Notice::None);
    assert_eq!(without, (said, ordered, vec![5, 10]), "one that comes first");
}

#[test]
fn a_hello_says_for_which_job_a_slot_is_to_be_left() {
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    settle(&mut core, AT, 600);
    core.session_opened(AT);
    let actions = settle(&mut core, AT, 600);
    let hello = actions.iter().find_map(|action| match action {
        Action::Say(Up::Hello(hello)) => Some(hello),
        _ => None,
    });
    let held = hello.unwrap().claims.iter().find(|held| held.claim == 5 | BETTER).unwrap();
    let Down::Better(told) = better() else { panic!() };
    assert_eq!((held.jobs[0].cluster, held.jobs[0].proc, &held.key), (told.cluster, told.proc, &told.key));
}

mod commands;
