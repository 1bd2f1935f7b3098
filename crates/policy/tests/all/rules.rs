//! Single rules of the reference: undefined results, vanilla variants, ranks, operators, advertisements, timers, why.

use classad::Value;
use model::id::ClaimId;
use policy::slots::{Layout, Plan, SlotKind};
use policy::{Action, CheckpointWhy, Expression, Input, Machine, Policy, Readings, SlotId, Standing};

use super::table::{calm, levers};
use super::world::{CLAIM, RIVAL, SLOT, TOTAL, deeds, job, load, machine, ms, path, policy, quiet, records};

/// A machine with a running job, at second 100.
fn busy(policy: Policy, text: &str) -> Machine {
    let mut m = machine(policy);
    m.handle(ms(100), Input::Sensors(calm()));
    m.handle(ms(100), Input::Claim { slot: SLOT, claim: CLAIM, job: job(text) });
    m.handle(ms(100), Input::Activate { claim: CLAIM, job: job(text) });
    assert_eq!(m.standing(SLOT), Some(Standing::Busy));
    m
}

fn feel(m: &mut Machine, t: u64, name: &str, value: impl Into<Value>) {
    m.handle(ms(t), Input::Sensors(Readings::default().with(name, value)));
}

fn ad(m: &Machine) -> classad::ClassAd {
    m.ad(SLOT).unwrap()
}

#[test]
fn start_undefined_or_error_is_not_false() {
    for (start, expected) in [
        ("True", Standing::UnclaimedIdle),
        ("NoSuchThing", Standing::UnclaimedIdle),
        ("1 / 0", Standing::UnclaimedIdle),
        ("\"true\" + 1", Standing::UnclaimedIdle),
        ("False && Owner == \"x\"", Standing::Owner),
        ("False || Owner == \"x\"", Standing::UnclaimedIdle),
        ("0", Standing::Owner),
        ("0.5", Standing::UnclaimedIdle),
    ] {
        let m = machine(policy(&[(Expression::Start, start)]));
        assert_eq!(m.standing(SLOT), Some(expected), "{start}");
    }
}

#[test]
fn a_machine_that_is_kept_after_its_job_is_its_owners_when_preempt_says_so() {
    let mut m = busy(policy(&[(Expression::Preempt, "KeyboardIdle < 60")]), "");
    feel(&mut m, 110, "KeyboardIdle", 1_000);
    m.handle(ms(110), Input::StarterGone { claim: CLAIM });
    m.handle(ms(120), Input::Look);
    assert_eq!(m.standing(SLOT), Some(Standing::ClaimedIdle));
    feel(&mut m, 130, "KeyboardIdle", 0);
    let actions = m.handle(ms(130), Input::Look);
    assert!(actions.iter().any(|a| matches!(a, Action::ClaimLost { claim: CLAIM, .. })), "{actions:?}");
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle), "START allows other jobs");
}

#[test]
fn a_job_needs_start_to_be_true() {
    for (start, welcome) in
        [("True", true), ("Owner == \"alice\"", true), ("NoSuchThing", false), ("2", true)]
    {
        let mut m = machine(policy(&[(Expression::Start, start)]));
        let actions = m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
        assert_eq!(deeds(&actions).contains(&"ClaimAccepted".to_owned()), welcome, "{start}");
    }
}

#[test]
fn undefined_results_are_read_as_written_down() {
    // (expression, value, does the job leave or stop)
    let odd = ["NoSuchThing", "1 / 0", "\"true\""];
    for value in odd {
        let mut m = busy(policy(&[(Expression::WantSuspend, value), (Expression::Suspend, "True")]), "");
        assert_eq!(path(&m.handle(ms(101), Input::Look)), [], "WANT_SUSPEND {value} is False");
        let mut m = busy(policy(&[(Expression::WantSuspend, "True"), (Expression::Suspend, value)]), "");
        assert_eq!(path(&m.handle(ms(101), Input::Look)), [], "SUSPEND {value} is not True");
        let mut m = busy(policy(&[(Expression::Preempt, value)]), "");
        assert_eq!(path(&m.handle(ms(101), Input::Look)), [], "PREEMPT {value} is not True");
        let mut m = busy(policy(&[(Expression::Preempt, "1"), (Expression::WantVacate, value)]), "");
        let actions = m.handle(ms(101), Input::Look);
        assert_eq!(path(&actions), [("Preempting/Vacating".to_owned(), 12)], "WANT_VACATE {value} is True");
        assert_eq!(deeds(&actions), ["Warn", "SoftKill"]);
        let mut m = busy(policy(&[(Expression::PeriodicCheckpoint, value)]), "");
        assert_eq!(deeds(&m.handle(ms(101), Input::Look)), Vec::<String>::new());
        let mut m = machine(policy(&[(Expression::RunBenchmarks, value)]));
        assert_eq!(path(&m.handle(ms(101), Input::Look)), []);
    }
    let mut m = busy(policy(&[(Expression::Preempt, "0.5")]), "");
    assert_eq!(path(&m.handle(ms(101), Input::Look)), [("Preempting/Vacating".to_owned(), 12)]);
}

#[test]
fn a_warning_is_said_once_until_the_result_changes() {
    let mut m = busy(policy(&[(Expression::Preempt, "Odd")]), "");
    let warnings = |m: &mut Machine, t| deeds(&m.handle(ms(t), Input::Look)).len();
    assert_eq!((warnings(&mut m, 101), warnings(&mut m, 102)), (1, 0));
    feel(&mut m, 103, "Odd", "text");
    assert_eq!((warnings(&mut m, 103), warnings(&mut m, 104)), (1, 0));
    feel(&mut m, 105, "Odd", false);
    assert_eq!(warnings(&mut m, 105), 0);
    feel(&mut m, 106, "Odd", "text");
    assert_eq!(warnings(&mut m, 106), 1, "it was all right in between");
}

#[test]
fn a_vanilla_variant_counts_when_it_is_a_boolean() {
    for (variant, expected) in [("False", vec![]), ("True", vec![13]), ("NoSuchThing", vec![13])] {
        let mut p = policy(&[(Expression::WantSuspend, "True"), (Expression::Suspend, "True")]);
        p.set_vanilla(Expression::Suspend, classad::Expr::parse(variant).unwrap());
        let mut m = busy(p.clone(), "JobUniverse = 5");
        let actions = m.handle(ms(101), Input::Look);
        assert_eq!(path(&actions).iter().map(|(_, n)| *n).collect::<Vec<_>>(), expected, "{variant}");
        let mut m = busy(p, "JobUniverse = 1");
        assert_eq!(path(&m.handle(ms(101), Input::Look)).len(), 1, "other universes do not look at it");
    }
}

#[test]
fn a_variant_may_build_on_the_plain_expression_by_name() {
    let mut p = policy(&[(Expression::Preempt, "Out")]);
    p.set_vanilla(Expression::Preempt, classad::Expr::parse("PREEMPT && true").unwrap());
    let mut m = busy(p, "JobUniverse = 5");
    assert_eq!(path(&m.handle(ms(101), Input::Look)), []);
    feel(&mut m, 102, "Out", true);
    let actions = m.handle(ms(102), Input::Look);
    let record = &records(&actions)[0];
    assert_eq!(record.number(), 12);
    assert_eq!(record.cause.to_string(), "PREEMPT_VANILLA is true: PREEMPT && true");
}

#[test]
fn startd_exprs_are_found_by_name() {
    let text = "STARTD_EXPRS = Lab, Quiet\nLab = \"attic\"\nQuiet = KeyboardIdle > 60\nSTART = Quiet && Lab == \"attic\"\n";
    let mut m = Machine::start("host", load(text).unwrap(), &Layout::whole(TOTAL), quiet(), ms(0)).0;
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
    assert_eq!(ad(&m).eval_str("Lab").as_deref(), Some("attic"));
    feel(&mut m, 1, "KeyboardIdle", 3);
    m.handle(ms(1), Input::Look);
    assert_eq!(m.standing(SLOT), Some(Standing::Owner));
    let why = m.why(SLOT).unwrap().to_string();
    assert!(why.contains("Quiet is false: KeyboardIdle > 60  [KeyboardIdle = 3]"), "{why}");
    assert!(!why.contains("attic\" is"), "what is true does not keep it in Owner: {why}");
}

#[test]
fn a_rival_needs_start_and_no_lower_rank() {
    let p = policy(&[(Expression::Rank, "Priority"), (Expression::Start, "Owner =!= \"mallory\"")]);
    let rival = |text: &str| Input::Claim { slot: SLOT, claim: RIVAL, job: job(text) };
    let mut m = busy(p.clone(), "Priority = 5");
    assert_eq!(ad(&m).eval_number("CurrentRank"), Some(5.0));
    for text in ["Priority = 4", "Priority = 9; Owner = \"mallory\"", ""] {
        let actions = m.handle(ms(101), rival(text));
        assert_eq!((deeds(&actions), path(&actions).len()), (vec!["ClaimRefused".to_owned()], 0), "{text}");
    }
    let actions = m.handle(ms(102), rival("Priority = 5"));
    assert_eq!(deeds(&actions), ["ClaimWaits", "SoftKill"]);
    let another = Input::Claim { slot: SLOT, claim: model::id::ClaimId(3), job: job("Priority = 99") };
    assert_eq!(deeds(&m.handle(ms(103), another)), ["ClaimRefused"], "one rival at most");
    // A rival that gives up leaves the slot to its owner.
    m.handle(ms(104), Input::Release { claim: RIVAL });
    let actions = m.handle(ms(105), Input::StarterGone { claim: CLAIM });
    assert_eq!(path(&actions).iter().map(|(_, n)| *n).collect::<Vec<_>>(), [17, 1]);
}

#[test]
fn the_present_jobs_image_is_not_taken_for_the_rivals() {
    let p = policy(&[(Expression::Start, "ImageSize < 10000 || ImageSize is undefined")]);
    let mut m = busy(p, "ImageSize = 5000");
    let rival = Input::Claim { slot: SLOT, claim: RIVAL, job: job("ImageSize = 50000") };
    assert_eq!(deeds(&m.handle(ms(101), rival)), ["ClaimRefused"]);
}

#[test]
fn leaving_suspended_continues_the_job_first() {
    for fast in [false, true] {
        let mut m = busy(levers(), "");
        m.handle(ms(101), Input::Suspend { slot: None });
        let actions = m.handle(ms(102), Input::Vacate { slot: None, fast });
        assert_eq!(deeds(&actions), ["Continue", if fast { "HardKill" } else { "SoftKill" }]);
    }
}

#[test]
fn an_operator_stops_a_job_until_he_lets_it_go_and_never_against_the_owner() {
    let mut m = busy(levers(), "");
    feel(&mut m, 101, "Go", true);
    m.handle(ms(101), Input::Suspend { slot: Some(SLOT) });
    assert_eq!(path(&m.handle(ms(102), Input::Look)), [], "CONTINUE does not undo a command");
    feel(&mut m, 103, "Stop", true);
    let actions = m.handle(ms(103), Input::Continue { slot: Some(SLOT) });
    assert_eq!((deeds(&actions), path(&actions).len()), (vec!["CommandRefused".to_owned()], 0));
    feel(&mut m, 104, "Stop", false);
    assert_eq!(
        path(&m.handle(ms(104), Input::Look)),
        [("Claimed/Busy".to_owned(), 14)],
        "now the policy decides"
    );
    m.handle(ms(105), Input::Suspend { slot: Some(SLOT) });
    assert_eq!(path(&m.handle(ms(106), Input::Continue { slot: None })), [("Claimed/Busy".to_owned(), 14)]);
}

#[test]
fn checkpoints_are_for_running_jobs_that_can() {
    let mut m = busy(levers(), "JobUniverse = 5");
    assert_eq!(deeds(&m.handle(ms(101), Input::Checkpoint { slot: Some(SLOT) })), ["CommandRefused"]);
    feel(&mut m, 102, "Save", true);
    assert_eq!(deeds(&m.handle(ms(102), Input::Look)), Vec::<String>::new());
    assert!(!ad(&m).contains("LastPeriodicCheckpoint"));
    let mut m = busy(levers(), "JobUniverse = 5; WantTransparentCheckpoint = false");
    assert_eq!(deeds(&m.handle(ms(101), Input::Checkpoint { slot: Some(SLOT) })), ["CommandRefused"]);
    let mut m = busy(levers(), "JobUniverse = 5; WantTransparentCheckpoint = true");
    assert_eq!(deeds(&m.handle(ms(101), Input::Checkpoint { slot: Some(SLOT) })), ["Checkpoint"]);
    let mut m = busy(levers(), "JobUniverse = 5; CheckpointSig = 10");
    let actions = m.handle(ms(150), Input::Checkpoint { slot: Some(SLOT) });
    assert!(matches!(actions[..], [Action::Checkpoint { why: CheckpointWhy::Command, .. }]));
    assert_eq!(ad(&m).eval_int("LastPeriodicCheckpoint"), Some(ms(150) as i64 / 1_000));
}

#[test]
fn requirements_say_what_the_book_says() {
    let show = |m: &Machine| ad(m).get("Requirements").unwrap().to_string();
    let p = || policy(&[(Expression::Start, "Owner == \"alice\"")]);
    let mut m = machine(p());
    assert_eq!(show(&m), "START");
    assert!(ad(&m).contains("START"));
    m.handle(ms(1), Input::Match { slot: SLOT, claim: CLAIM, room: None });
    assert_eq!((show(&m), ad(&m).contains("START")), ("false".to_owned(), false));
    let mut m = busy(p(), "");
    assert_eq!(show(&m), "START");
    assert_eq!(ad(&m).eval_str("RemoteOwner").as_deref(), Some("alice"));
    assert_eq!(ad(&m).eval_int("ImageSize"), Some(5_000));
    m.handle(ms(101), Input::Vacate { slot: None, fast: false });
    assert_eq!(show(&m), "false");
    m.handle(ms(102), Input::StarterGone { claim: CLAIM });
    for gone in ["JobStart", "RemoteOwner", "ImageSize", "JobUniverse", "JobId"] {
        assert!(!ad(&m).contains(gone), "{gone}");
    }
    assert_eq!(show(&machine(policy(&[(Expression::Start, "True")]))), "true");
    assert_eq!(show(&machine(policy(&[(Expression::Start, "False")]))), "false");
}

#[test]
fn an_ad_is_sent_on_every_change_at_updates_and_when_requirements_changes_class() {
    let sent = |actions: &[Action]| actions.iter().filter(|a| matches!(a, Action::Advertise { .. })).count();
    let mut m = machine(levers());
    assert_eq!(sent(&m.handle(ms(1), Input::Sensors(calm()))), 1, "START became True, was undefined");
    assert_eq!(sent(&m.handle(ms(2), Input::Sensors(calm()))), 0);
    assert_eq!(sent(&m.handle(ms(3), Input::Match { slot: SLOT, claim: CLAIM, room: None })), 1);
    assert_eq!(sent(&m.handle(ms(300), Input::Tick)), 1);
    assert_eq!(sent(&m.handle(ms(301), Input::Tick)), 0);
}

#[test]
fn when_both_timers_are_due_there_are_two_evaluations() {
    let mut m = busy(levers(), "");
    for t in (105..300).step_by(5) {
        m.handle(ms(t), Input::Tick);
    }
    feel(&mut m, 300, "Stop", true);
    feel(&mut m, 300, "Out", true);
    let numbers: Vec<u8> = path(&m.handle(ms(300), Input::Tick)).into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, [13, 15]);
}

#[test]
fn missed_ticks_are_not_made_up_for() {
    let mut m = busy(levers(), "");
    m.handle(ms(10_007), Input::Tick);
    assert_eq!(m.next_wake_ms(), ms(10_010));
    m.handle(ms(5), Input::Tick);
    assert_eq!(m.next_wake_ms(), ms(10_010), "a clock that jumps back is not believed");
}

#[test]
fn any_slot_in_use_makes_all_slots_look_often() {
    let plan = |n| Plan::new(n, SlotKind::Static, TOTAL);
    let layout = Layout { plans: vec![plan(1), plan(2)], ..Layout::default() };
    let mut m = Machine::start("host", levers(), &layout, calm(), ms(0)).0;
    assert_eq!(m.next_wake_ms(), ms(300));
    m.handle(ms(7), Input::Claim { slot: SlotId::new(2), claim: CLAIM, job: job("") });
    assert_eq!(m.next_wake_ms(), ms(10));
    feel(&mut m, 8, "Open", false);
    m.handle(ms(10), Input::Tick);
    assert_eq!(m.standing(SLOT), Some(Standing::Owner));
}

#[test]
fn a_benchmark_outlasts_the_standing_and_runs_once_per_machine() {
    let plan = |n| Plan::new(n, SlotKind::Static, TOTAL);
    let layout = Layout { plans: vec![plan(1), plan(2)], ..Layout::default() };
    let mut m = Machine::start("host", levers(), &layout, calm().with("Bench", true), ms(0)).0;
    assert_eq!(deeds(&m.handle(ms(300), Input::Tick)), ["StartBenchmark"]);
    m.handle(ms(301), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
    assert_eq!(deeds(&m.handle(ms(302), Input::Look)), Vec::<String>::new(), "one run at a time");
    m.handle(ms(310), Input::BenchmarkFinished { mips: 7, kflops: 8 });
    assert_eq!(m.standing(SLOT), Some(Standing::ClaimedIdle));
    assert_eq!(ad(&m).eval_int("LastBenchmark"), Some(ms(310) as i64 / 1_000));
    assert_eq!(ad(&m).eval_int("Mips"), Some(7));
}

#[test]
fn an_expired_lease_ends_like_a_release_that_nobody_is_told_of() {
    let mut m = busy(levers(), "");
    assert_eq!(deeds(&m.handle(ms(101), Input::LeaseExpired { claim: CLAIM })), ["SoftKill"]);
    let actions = m.handle(ms(102), Input::StarterGone { claim: CLAIM });
    assert!(actions.iter().any(|a| matches!(a, Action::ClaimLost { tell: false, .. })), "{actions:?}");
}

#[test]
fn a_new_policy_counts_from_the_next_evaluation_on() {
    let mut m = busy(levers(), "");
    let next = policy(&[(Expression::Preempt, "True")]);
    assert_eq!(path(&m.handle(ms(101), Input::Policy(Box::new(next)))), []);
    let actions = m.handle(ms(105), Input::Tick);
    assert_eq!(records(&actions)[0].cause.to_string(), "PREEMPT is true: true");
}

#[test]
fn why_shows_what_decides() {
    let mut m = Machine::start(
        "host",
        load("use POLICY : Desktop\nRunBenchmarks = False\n").unwrap(),
        &Layout::whole(TOTAL),
        Readings::default().with("KeyboardIdle", 12).with("LoadAvg", 0.1).with("CondorLoadAvg", 0.0),
        ms(0),
    )
    .0;
    let why = m.why(SLOT).unwrap();
    assert_eq!(why.asked.len(), 1);
    assert_eq!(why.asked[0].parts.len(), 1, "the load is low: {why}");
    assert_eq!(why.asked[0].parts[0].looks_at, [("KeyboardIdle".to_owned(), Value::from(12))]);
    let text = why.to_string();
    assert!(text.starts_with("slot1 is Owner/Idle\n  START is false: "), "{text}");
    assert!(text.ends_with("KeyboardIdle > 15 * 60 is false  [KeyboardIdle = 12]"), "{text}");
    m.handle(ms(1), Input::Sensors(quiet()));
    m.handle(ms(1), Input::Look);
    m.handle(ms(2), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
    m.handle(ms(2), Input::Activate { claim: CLAIM, job: job("") });
    let asked: Vec<String> = m.why(SLOT).unwrap().asked.into_iter().filter_map(|p| p.name).collect();
    assert_eq!(asked, ["WANT_SUSPEND", "SUSPEND"]);
}

#[test]
fn a_machine_with_jobs_is_measured_when_they_are_gone_and_not_at_every_poll() {
    let layout = policy::slots::Layout::partitionable(TOTAL);
    let policy = policy(&[(Expression::RunBenchmarks, "LastBenchmark == 0")]);
    let mut m = Machine::start("host", policy, &layout, quiet(), ms(0)).0;
    assert_eq!(path(&m.handle(ms(0), Input::Benchmark)), [("Unclaimed/Benchmarking".to_owned(), 3)]);
    let job = job("RequestMemory = 1; RequestDisk = 1;");
    m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: job.clone() });
    // The agent gives way to the claim.
    assert_eq!(path(&m.handle(ms(1), Input::BenchmarkStopped)), [("Unclaimed/Idle".to_owned(), 4)]);
    m.handle(ms(2), Input::Activate { claim: CLAIM, job });
    for second in 5..=900 {
        let actions = m.handle(ms(second), Input::Tick);
        assert!(path(&actions).is_empty(), "at {second}: {:?}", path(&actions));
    }
    m.handle(ms(901), Input::Release { claim: CLAIM });
    m.handle(ms(902), Input::StarterGone { claim: CLAIM });
    let mut begun = Vec::new();
    for second in 903..=910 {
        begun.extend(path(&m.handle(ms(second), Input::Tick)));
    }
    assert_eq!(begun, [("Unclaimed/Benchmarking".to_owned(), 3)]);
    // One that gives way to something else than jobs waits for the next update.
    m.handle(ms(911), Input::BenchmarkStopped);
    assert!((912..1_200).all(|s| path(&m.handle(ms(s), Input::Tick)).is_empty()));
    assert_eq!(path(&m.handle(ms(1_200), Input::Tick)).len(), 1);
    m.handle(ms(1_201), Input::BenchmarkFinished { mips: 1, kflops: 1 });
    assert!(path(&m.handle(ms(1_500), Input::Tick)).is_empty(), "it was measured");
}

#[test]
fn a_machine_that_lets_jobs_in_and_makes_them_leave_lets_them_in_ever_more_seldom() {
    for layout in [policy::slots::Layout::whole(TOTAL), policy::slots::Layout::partitionable(TOTAL)] {
        let policy = policy(&[(Expression::Preempt, "KeyboardIdle > 5")]);
        let mut m = Machine::start("host", policy, &layout, quiet(), ms(0)).0;
        let job = job("RequestMemory = 1; RequestDisk = 1;");
        let (mut claim, mut begun) = (100, Vec::new());
        for second in 0..3_600 {
            m.handle(ms(second), Input::Tick);
            if m.standing(SLOT) != Some(Standing::UnclaimedIdle) || m.slots().count() > 1 {
                continue;
            }
            // The pool is full of jobs.
            claim += 1;
            let id = ClaimId(claim);
            m.handle(ms(second), Input::Claim { slot: SLOT, claim: id, job: job.clone() });
            m.handle(ms(second), Input::Activate { claim: id, job: job.clone() });
            begun.push(second);
            let left = (second + 1..second + 60)
                .find(|s| deeds(&m.handle(ms(*s), Input::Tick)).contains(&"SoftKill".to_owned()));
            m.handle(ms(left.unwrap()), Input::StarterGone { claim: id });
            assert_eq!(m.standing(SLOT), Some(Standing::Owner), "it rests");
            assert!(m.why(SLOT).unwrap().to_string().contains("it lets no job in for"));
            assert_eq!(ad(&m).eval_bool("Resting"), Some(true), "the pool can say why");
            // Read again without a change, its policy is what it was, and so is what came of it.
            let same = m.policy().clone();
            m.handle(ms(left.unwrap()), Input::Policy(Box::new(same)));
            m.handle(ms(left.unwrap()), Input::Look);
            assert_eq!(m.standing(SLOT), Some(Standing::Owner), "it rests all the same");
        }
        assert!((8..=13).contains(&begun.len()), "{begun:?}");
        assert!(begun.windows(2).all(|w| w[1] - w[0] < 620), "{begun:?}");
        // With another policy it begins anew.
        let mut m = m.clone();
        m.handle(ms(3_601), Input::Policy(Box::new(Policy::new([]))));
        m.handle(ms(3_601), Input::Look);
        assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
    }
}

#[test]
fn a_job_that_must_leave_for_its_own_sake_keeps_out_its_users_jobs_and_nobody_elses() {
    let layout = policy::slots::Layout::partitionable(TOTAL);
    let preempt = "MemoryUsage > TARGET.RequestMemory";
    let mut m = Machine::start("host", policy(&[(Expression::Preempt, preempt)]), &layout, quiet(), ms(0)).0;
    let hog = job("Owner = \"bob\"; RequestMemory = 1; RequestDisk = 1; MemoryUsage = 9;");
    let quiet = job("Owner = \"alice\"; RequestMemory = 1; RequestDisk = 1; MemoryUsage = 0;");
    let mut claim = 100;
    let mut run = |m: &mut Machine, at: u64, job: &classad::ClassAd| {
        claim += 1;
        let id = ClaimId(claim);
        let actions = m.handle(ms(at), Input::Claim { slot: SLOT, claim: id, job: job.clone() });
        let accepted = actions.iter().any(|a| matches!(a, policy::Action::ClaimAccepted { .. }));
        m.handle(ms(at), Input::Activate { claim: id, job: job.clone() });
        accepted.then_some(id)
    };
    let leave = |m: &mut Machine, from: u64, claims: &[ClaimId]| {
        let left = (from..from + 60)
            .find(|s| deeds(&m.handle(ms(*s), Input::Tick)).contains(&"SoftKill".to_owned()))
            .unwrap();
        for claim in claims {
            m.handle(ms(left), Input::StarterGone { claim: *claim });
        }
        left
    };
    // Two at once are one reason to rest.
    let hogs = [run(&mut m, 1, &hog).unwrap(), run(&mut m, 1, &hog).unwrap()];
    let left = leave(&mut m, 2, &hogs);
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
    let ad = m.ad(SLOT).unwrap();
    assert!(!classad::accepts(&ad, &hog) && classad::accepts(&ad, &quiet), "{ad}");
    let why = m.why(SLOT).unwrap().to_string();
    assert!(why.contains("it lets no job of bob in for 10 s"), "{why}");
    assert!(run(&mut m, left + 1, &hog).is_none(), "bob's rest");
    assert!(run(&mut m, left + 1, &quiet).is_some(), "alice's do not");
    // It ends, and is longer the next time.
    m.handle(ms(left + 10), Input::Tick);
    assert!(classad::accepts(&m.ad(SLOT).unwrap(), &hog));
    let again = [run(&mut m, left + 10, &hog).unwrap()];
    leave(&mut m, left + 11, &again);
    let why = m.why(SLOT).unwrap().to_string();
    assert!(why.contains("it lets no job of bob in for 20 s"), "{why}");
}

#[test]
fn a_job_that_is_held_as_it_leaves_is_no_reason_to_rest() {
    let mut m = machine(policy(&[(Expression::Preempt, "true"), (Expression::WantHold, "true")]));
    let job = job("Owner = \"bob\";");
    m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: job.clone() });
    m.handle(ms(1), Input::Activate { claim: CLAIM, job });
    let held = (2..60).find(|s| deeds(&m.handle(ms(*s), Input::Tick)).contains(&"Hold".to_owned()));
    m.handle(ms(held.unwrap()), Input::StarterGone { claim: CLAIM });
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
}

#[test]
fn a_job_that_stayed_and_an_owner_who_returns_are_no_reason_to_rest() {
    let policy = policy(&[
        (Expression::Start, "KeyboardIdle > 60"),
        (Expression::Preempt, "KeyboardIdle < 10 || Late"),
    ]);
    let mut m = machine(policy);
    let run = |m: &mut Machine, at: u64| {
        m.handle(ms(at), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
        m.handle(ms(at), Input::Activate { claim: CLAIM, job: job("") });
        assert_eq!(m.standing(SLOT), Some(Standing::Busy));
    };
    run(&mut m, 1);
    m.handle(ms(3), Input::Sensors(Readings::default().with("KeyboardIdle", 0)));
    m.handle(ms(3), Input::Look);
    m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    m.handle(ms(5), Input::Sensors(quiet()));
    m.handle(ms(5), Input::Look);
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle), "he has left again");
    run(&mut m, 6);
    m.handle(ms(306), Input::Sensors(quiet().with("Late", true)));
    m.handle(ms(306), Input::Look);
    m.handle(ms(307), Input::StarterGone { claim: CLAIM });
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle), "its time was over");
}

#[test]
fn a_slot_that_was_leaving_before_its_agent_began_takes_the_better_claim_that_it_leaves_for() {
    let found = |m: &mut Machine| {
        let adopt = Input::Adopt {
            slot: SLOT,
            claim: CLAIM,
            job: job(""),
            runs: true,
            suspended: false,
            leaving_ms: Some(2_000),
        };
        m.handle(ms(1), adopt);
        assert_eq!(m.standing(SLOT), Some(Standing::Vacating));
        m.handle(ms(2), Input::Claim { slot: SLOT, claim: RIVAL, job: job("Better = true;") })
    };
    let mut m = machine(policy(&[(Expression::Rank, "ifThenElse(TARGET.Better =?= true, 5, 1)")]));
    assert_eq!(deeds(&found(&mut m)), ["ClaimWaits"], "nobody is asked to leave twice");
    assert_eq!(ad(&m).eval_number("PreemptingRank"), Some(5.0));
    let third = Input::Claim { slot: SLOT, claim: ClaimId(9), job: job("Better = true;") };
    assert_eq!(deeds(&m.handle(ms(3), third)), ["ClaimRefused"], "one waits already");
    let actions = m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    assert_eq!(path(&actions).last().map(|(_, number)| *number), Some(18), "{actions:?}");

    // One that is not better has no part in it, and one whose START is false goes by way of Owner.
    let mut m = machine(policy(&[(Expression::Rank, "ifThenElse(TARGET.Better =?= true, 0, 1)")]));
    assert_eq!(deeds(&found(&mut m)), ["ClaimRefused"]);
    // A job that leaves in this agent's time leaves for whom it was asked to, or for nobody.
    let mut m = busy(levers(), "");
    m.handle(ms(101), Input::Vacate { slot: None, fast: false });
    let late = Input::Claim { slot: SLOT, claim: RIVAL, job: job("") };
    assert_eq!(deeds(&m.handle(ms(102), late)), ["ClaimRefused"]);
}

/// The same machine under the next agent: nothing is left but what was kept.
fn begun_anew(at_s: u64, rules: &[(Expression, &str)], kept: &str) -> Machine {
    let layout = policy::slots::Layout::partitionable(TOTAL);
    let mut machine = Machine::start("host", policy(rules), &layout, quiet(), ms(at_s)).0;
    machine.take_up_rests(ms(at_s), kept);
    machine
}

#[test]
fn a_rest_outlives_the_agent_and_is_longer_the_next_time() {
    let rules = [(Expression::Preempt, "KeyboardIdle > 5")];
    let job = job("RequestMemory = 1; RequestDisk = 1;");
    let mut m = begun_anew(0, &rules, "");
    assert_eq!(m.changed_rests(), None, "nothing has changed");
    let leave = |m: &mut Machine, from: u64, claim: u64| {
        let id = ClaimId(claim);
        m.handle(ms(from), Input::Claim { slot: SLOT, claim: id, job: job.clone() });
        m.handle(ms(from), Input::Activate { claim: id, job: job.clone() });
        let left = (from..from + 60)
            .find(|s| deeds(&m.handle(ms(*s), Input::Tick)).contains(&"SoftKill".to_owned()))
            .unwrap();
        let kept = m.changed_rests().expect("it is told before the job is gone");
        m.handle(ms(left), Input::StarterGone { claim: id });
        (left, kept)
    };
    let (left, kept) = leave(&mut m, 1, 1);
    // The next agent: the slot is its owner's, for the rest of the ten seconds and no longer.
    let mut next = begun_anew(left + 4, &rules, &kept);
    assert_eq!(next.standing(SLOT), Some(Standing::Owner));
    let why = next.why(SLOT).unwrap().to_string();
    assert!(why.contains("it lets no job in for 6 s"), "{why}");
    assert!(next.next_wake_ms() <= ms(left + 10), "it knows when to look again");
    next.handle(ms(left + 10), Input::Tick);
    assert_eq!(next.standing(SLOT), Some(Standing::UnclaimedIdle));
    // An agent of still later has not forgotten that one had to leave: twenty seconds this time.
    let mut late = begun_anew(left + 100, &rules, &next.changed_rests().unwrap());
    assert_eq!(late.standing(SLOT), Some(Standing::UnclaimedIdle));
    leave(&mut late, left + 101, 2);
    let why = late.why(SLOT).unwrap().to_string();
    assert!(why.contains("it lets no job in for 20 s"), "{why}");
    // By another policy of the owner's nothing of that counts, nor does what cannot be read.
    for (rules, kept) in [
        ([(Expression::Preempt, "KeyboardIdle > 6")], kept.as_str()),
        (rules, "rests\n1 1 99999999999999\n"),
        (rules, &kept.replace("\n1 ", "\none ")),
        (rules, &kept.replace("\n1 ", "\n7 ")),
    ] {
        assert_eq!(begun_anew(left, &rules, kept).standing(SLOT), Some(Standing::UnclaimedIdle), "{kept}");
    }
    // A clock that was far ahead when it was kept keeps nobody out for ever.
    let far = kept.lines().next().unwrap().to_owned() + "\n1 1 99999999999999\n";
    let mut m = begun_anew(left, &rules, &far);
    assert_eq!(m.standing(SLOT), Some(Standing::Owner));
    m.handle(ms(left + 600), Input::Tick);
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
}

#[test]
fn a_users_rest_outlives_the_agent_too() {
    let rules = [(Expression::Preempt, "MemoryUsage > TARGET.RequestMemory")];
    let mut m = begun_anew(0, &rules, "");
    let hog = job("Owner = \"bob b\"; RequestMemory = 1; RequestDisk = 1; MemoryUsage = 9;");
    let alice = job("RequestMemory = 1; RequestDisk = 1; MemoryUsage = 0;");
    m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: hog.clone() });
    m.handle(ms(1), Input::Activate { claim: CLAIM, job: hog.clone() });
    let left = (1..60).find(|s| !deeds(&m.handle(ms(*s), Input::Tick)).is_empty()).unwrap();
    let next = begun_anew(left + 1, &rules, &m.changed_rests().unwrap());
    let ad = next.ad(SLOT).unwrap();
    assert!(!classad::accepts(&ad, &hog) && classad::accepts(&ad, &alice), "{ad}");
    assert_eq!(ad.eval_str("RestingFrom").as_deref(), Some("bob b"));
}
