//! Small things that somebody relies on: what an ad says of its slot, what an explanation names, when a machine may rest.

use classad::Name;
use model::id::ClaimId;
use policy::slots::{Layout, Resources};
use policy::{Action, Expression, Input, Machine, Policy, Readings, SlotId, Standing};

use super::table::{calm, levers};
use super::world::{
    CLAIM, EPOCH_S, RIVAL, SLOT, TOTAL, config, deeds, job, load, machine, ms, path, policy, quiet, records,
};

fn start(policy: Policy, layout: &Layout) -> Machine {
    Machine::start("host", policy, layout, calm(), ms(0)).0
}

fn run(m: &mut Machine, at_s: u64, claim: ClaimId, text: &str) {
    m.handle(ms(at_s), Input::Claim { slot: SLOT, claim, job: job(text) });
    m.handle(ms(at_s), Input::Activate { claim, job: job(text) });
}

#[test]
fn only_a_machine_that_is_one_static_slot_has_its_hosts_name() {
    let two = Layout::from_config(&config("NUM_SLOTS = 2\n").unwrap(), TOTAL).unwrap();
    for (layout, name) in
        [(Layout::whole(TOTAL), "host"), (Layout::partitionable(TOTAL), "slot1@host"), (two, "slot1@host")]
    {
        let m = start(levers(), &layout);
        assert_eq!(m.ad(SLOT).unwrap().eval_str("Name").as_deref(), Some(name));
    }
}

#[test]
fn an_ad_says_in_seconds_since_when_a_slot_stands_as_it_does() {
    let mut m = start(levers(), &Layout::whole(TOTAL));
    m.handle(ms(40), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
    m.handle(ms(70), Input::Activate { claim: CLAIM, job: job("") });
    let ad = m.ad(SLOT).unwrap();
    assert_eq!(ad.eval_int("EnteredCurrentState"), Some((EPOCH_S + 40) as i64));
    assert_eq!(ad.eval_int("EnteredCurrentActivity"), Some((EPOCH_S + 70) as i64));
}

#[test]
fn what_was_cut_off_comes_back_whole() {
    let total = Resources { gpus: 2, ..TOTAL };
    let mut m = start(levers(), &Layout::partitionable(total));
    let all = |m: &Machine| {
        let ad = m.ad(SLOT).unwrap();
        ["Cpus", "Memory", "Disk", "VirtualMemory", "GPUs"].map(|name| ad.eval_int(name).unwrap())
    };
    let before = all(&m);
    let want = "RequestCpus = 3; RequestMemory = 1000; RequestDisk = 77; RequestGPUs = 1";
    run(&mut m, 1, CLAIM, want);
    let between = all(&m);
    assert_eq!(between, [before[0] - 3, before[1] - 1_000, before[2] - 77, before[3], before[4] - 1]);
    m.handle(ms(2), Input::Release { claim: CLAIM });
    m.handle(ms(3), Input::StarterGone { claim: CLAIM });
    assert_eq!(all(&m), before);
}

#[test]
fn the_first_slots_take_what_does_not_divide_evenly() {
    let total = Resources { cpus: 8, memory_mib: 1_001, ..TOTAL };
    let text = "SLOT_TYPE_1 = cpus=auto, ram=auto\nNUM_SLOTS_TYPE_1 = 3\n";
    let layout = Layout::from_config(&config(text).unwrap(), total).unwrap();
    let has: Vec<(u64, u64)> =
        layout.plans.iter().map(|p| (p.resources.cpus, p.resources.memory_mib)).collect();
    assert_eq!(has, [(3, 334), (3, 334), (2, 333)]);
}

#[test]
fn a_disk_that_fills_up_is_told_at_once_and_a_small_change_is_not() {
    let mut m = start(levers(), &Layout::partitionable(TOTAL));
    let told = |m: &mut Machine, at_s: u64, free: i64| {
        let readings = Readings::default().with("TotalDisk", free);
        let mut actions = m.handle(ms(at_s), Input::Sensors(readings));
        actions.extend(m.handle(ms(at_s), Input::Look));
        actions.iter().any(|a| matches!(a, Action::Advertise { .. }))
    };
    told(&mut m, 1, 1_000_000);
    assert!(!told(&mut m, 2, 950_000), "a twentieth less");
    assert!(told(&mut m, 3, 500_000));
    assert!(told(&mut m, 4, 900_000), "and when there is room again");
}

#[test]
fn a_policy_that_differs_in_one_slots_part_only_is_another() {
    let text = |start: &str, slot: u32| format!("NUM_SLOTS = 2\nSTART = True\nSLOT{slot}_START = {start}\n");
    let of = |text: &str| {
        let config = config(text).unwrap();
        let layout = Layout::of_machine(&config, TOTAL).unwrap();
        (Policy::of_machine(&config, &layout).unwrap(), layout)
    };
    let (first, layout) = of(&text("False", 2));
    let mut m = Machine::start("host", first, &layout, quiet(), ms(0)).0;
    let standings = |m: &Machine| m.slots().map(|(_, s)| s).collect::<Vec<_>>();
    assert_eq!(standings(&m), [Standing::UnclaimedIdle, Standing::Owner]);
    for (text, expected) in [
        (text("False", 1), [Standing::Owner, Standing::UnclaimedIdle]),
        (text("True", 1), [Standing::UnclaimedIdle, Standing::UnclaimedIdle]),
    ] {
        m.handle(ms(1), Input::Policy(Box::new(of(&text).0)));
        m.handle(ms(1), Input::Look);
        assert_eq!(standings(&m), expected, "{text}");
    }
}

#[test]
fn a_claim_that_was_found_idle_has_had_its_job() {
    // PREEMPT counts for a claim without a job only when one has run.
    for (adopt, expected) in [(true, Standing::UnclaimedIdle), (false, Standing::ClaimedIdle)] {
        let mut m = start(levers(), &Layout::whole(TOTAL));
        let input = if adopt {
            Input::Adopt {
                slot: SLOT,
                claim: CLAIM,
                job: job(""),
                runs: false,
                suspended: false,
                leaving_ms: None,
            }
        } else {
            Input::Claim { slot: SLOT, claim: CLAIM, job: job("") }
        };
        m.handle(ms(1), input);
        assert_eq!(m.standing(SLOT), Some(Standing::ClaimedIdle));
        let asked: Vec<String> = m.why(SLOT).unwrap().asked.into_iter().filter_map(|p| p.name).collect();
        assert_eq!(asked, if adopt { vec!["START", "PREEMPT"] } else { vec!["START"] });
        m.handle(ms(5), Input::Sensors(Readings::default().with("Out", true)));
        m.handle(ms(5), Input::Look);
        assert_eq!(m.standing(SLOT), Some(expected), "adopted: {adopt}");
    }
}

#[test]
fn an_operators_word_counts_for_the_job_that_it_was_said_of() {
    let mut m = start(levers(), &Layout::whole(TOTAL));
    run(&mut m, 1, CLAIM, "");
    m.handle(ms(2), Input::Suspend { slot: Some(SLOT) });
    m.handle(ms(3), Input::StarterGone { claim: CLAIM });
    m.handle(ms(4), Input::Activate { claim: CLAIM, job: job("") });
    // The next job is suspended by the owner, and goes on when the owner says so.
    for (at_s, name, value) in [(5, "Stop", true), (6, "Stop", false), (6, "Go", true)] {
        m.handle(ms(at_s), Input::Sensors(Readings::default().with(name, value)));
        m.handle(ms(at_s), Input::Look);
    }
    assert_eq!(m.standing(SLOT), Some(Standing::Busy));
}

#[test]
fn a_measurement_that_a_claim_keeps_from_beginning_is_made_later() {
    let mut m = start(levers(), &Layout::whole(TOTAL));
    run(&mut m, 1, CLAIM, "");
    assert_eq!(deeds(&m.handle(ms(2), Input::Benchmark)), Vec::<String>::new());
    m.handle(ms(3), Input::Release { claim: CLAIM });
    m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    let begun =
        (5..320).find(|s| deeds(&m.handle(ms(*s), Input::Tick)).contains(&"StartBenchmark".to_owned()));
    assert!(begun.is_some());
}

/// A machine that sends the job of each of these users away at once, for the job's own sake.
fn sends_away(users: std::ops::Range<u32>) -> Machine {
    let preempt = policy(&[(Expression::Preempt, "MemoryUsage > TARGET.RequestMemory")]);
    let mut m = Machine::start("host", preempt, &Layout::partitionable(TOTAL), quiet(), ms(0)).0;
    for user in users {
        let claim = ClaimId(u64::from(user) + 100);
        run(
            &mut m,
            0,
            claim,
            &format!("Owner = \"u{user}\"; RequestMemory = 1; RequestDisk = 1; MemoryUsage = 9"),
        );
        m.handle(ms(5), Input::Look);
        m.handle(ms(5), Input::StarterGone { claim });
    }
    m
}

#[test]
fn so_many_users_are_kept_out_by_name_and_with_one_more_everybody_is() {
    let m = sends_away(0..32);
    let ad = m.ad(SLOT).unwrap();
    assert_eq!(ad.eval_str("RestingFrom").unwrap().split(',').count(), 32);
    assert_eq!((m.standing(SLOT), ad.eval_bool("Resting")), (Some(Standing::UnclaimedIdle), None));
    assert_eq!(m.why(SLOT).unwrap().kept_out.len(), 32);
    let mut m = sends_away(0..33);
    m.handle(ms(5), Input::Look);
    let ad = m.ad(SLOT).unwrap();
    assert_eq!((m.standing(SLOT), ad.eval_bool("Resting")), (Some(Standing::Owner), Some(true)));
    assert_eq!(m.why(SLOT).unwrap().rests_s, Some(10));
    // When the rests are over there is room for other names.
    let mut m = sends_away(0..32);
    m.handle(ms(15), Input::Tick);
    m.handle(ms(15), Input::Look);
    assert_eq!(m.ad(SLOT).unwrap().eval_str("RestingFrom"), None);
    let late = ClaimId(900);
    run(&mut m, 16, late, "Owner = \"late\"; RequestMemory = 1; RequestDisk = 1; MemoryUsage = 9");
    m.handle(ms(21), Input::Look);
    m.handle(ms(21), Input::StarterGone { claim: late });
    assert_eq!(m.ad(SLOT).unwrap().eval_str("RestingFrom").as_deref(), Some("late"));
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle));
}

#[test]
fn an_explanation_names_the_parts_that_decide() {
    for (start, parts) in [
        ("Yes && Yes2", vec!["Yes", "Yes2"]),
        ("Yes && No && No2", vec!["No", "No2"]),
        ("No || No2", vec!["No", "No2"]),
        ("No || Yes || Yes2", vec!["Yes", "Yes2"]),
        ("Yes && Nothing && Nothing2", vec!["Nothing", "Nothing2"]),
        ("No || Nothing", vec!["Nothing"]),
    ] {
        let readings = [("Yes", true), ("Yes2", true), ("No", false), ("No2", false)];
        let readings = readings.iter().fold(Readings::default(), |r, (name, value)| r.with(name, *value));
        let policy = policy(&[(Expression::Start, start)]);
        let m = Machine::start("host", policy, &Layout::whole(TOTAL), readings, ms(0)).0;
        let asked = &m.why(SLOT).unwrap().asked[0];
        let named: Vec<&str> = asked.parts.iter().map(|p| p.text.as_str()).collect();
        assert_eq!(named, parts, "{start}");
    }
}

#[test]
fn an_explanation_asks_what_the_standing_asks() {
    let named =
        |m: &Machine| m.why(SLOT).unwrap().asked.into_iter().filter_map(|p| p.name).collect::<Vec<_>>();
    let feel = |m: &mut Machine, name: &str, value: bool| {
        m.handle(ms(2), Input::Sensors(Readings::default().with(name, value)));
        m.handle(ms(2), Input::Look);
    };
    let mut m = start(levers(), &Layout::whole(TOTAL));
    assert_eq!(named(&m), ["START", "RunBenchmarks"]);
    run(&mut m, 1, CLAIM, "");
    assert_eq!(named(&m), ["WANT_SUSPEND", "SUSPEND"]);
    feel(&mut m, "Stop", true);
    assert_eq!(named(&m), ["PREEMPT", "CONTINUE"]);
    feel(&mut m, "Out", true);
    assert_eq!(named(&m), ["KILL"]);
    feel(&mut m, "Dead", true);
    assert_eq!(named(&m), Vec::<String>::new());
    let mut m = start(levers(), &Layout::whole(TOTAL));
    m.handle(ms(1), Input::Sensors(Readings::default().with("Soft", false)));
    run(&mut m, 1, CLAIM, "");
    assert_eq!(named(&m), ["WANT_SUSPEND", "PREEMPT"]);
    assert_eq!(m.why(SlotId::new(9)), None);
}

#[test]
fn a_machine_rests_until_a_look_could_find_something_else() {
    let idle = [Name::new("KeyboardIdle")];
    let of = |text: &str| {
        let readings = Readings::default().with("KeyboardIdle", 0).with("LoadAvg", 0.0);
        Machine::start("host", load(text).unwrap(), &Layout::whole(TOTAL), readings, ms(0)).0
    };
    // START turns in 601 s; looks are every 300 s, and begin two seconds before it may have turned.
    let m = of("START = KeyboardIdle > 600\nRunBenchmarks = False\n");
    assert_eq!(m.standing(SLOT), Some(Standing::Owner));
    assert_eq!(m.next_look_ms(&idle), ms(600));
    let m = of("START = KeyboardIdle > 603\nRunBenchmarks = False\n");
    assert_eq!(m.next_look_ms(&idle), ms(900));
    // Nothing grows: it may rest for ever.
    let m = of("START = False\nRunBenchmarks = False\n");
    assert_eq!(m.next_look_ms(&idle), u64::MAX);
    // With a job it looks every 5 s.
    let mut m = of("START = True\nRunBenchmarks = False\nWANT_SUSPEND = True\nSUSPEND = KeyboardIdle > 42\n");
    run(&mut m, 1, CLAIM, "");
    m.handle(ms(5), Input::Tick);
    assert_eq!(m.next_look_ms(&idle), ms(50));
    // Soon is not now.
    let mut m = of("START = True\nRunBenchmarks = False\nWANT_SUSPEND = True\nSUSPEND = KeyboardIdle > 1\n");
    run(&mut m, 1, CLAIM, "");
    m.handle(ms(5), Input::Tick);
    assert_eq!(m.next_look_ms(&idle), ms(10));
}

#[test]
fn looks_that_were_left_out_do_not_move_the_ones_that_follow() {
    let mut m = machine(levers());
    m.handle(ms(0), Input::Sensors(calm()));
    m.pass_over(ms(1_000));
    assert_eq!(m.next_wake_ms(), ms(1_200), "updates are every 300 s from the start");
    m.pass_over(ms(1_200));
    assert_eq!(m.next_wake_ms(), ms(1_200), "one that is due is not left out");
    run(&mut m, 1_201, CLAIM, "");
    m.pass_over(ms(1_333));
    assert_eq!(m.next_wake_ms(), ms(1_335), "polls are every 5 s while there is a job");
    let actions = m.handle(ms(1_335), Input::Tick);
    assert_eq!(path(&actions), []);
}

#[test]
fn an_ad_says_for_how_many_seconds_claim_and_job_have_run() {
    let mut m = start(levers(), &Layout::whole(TOTAL));
    m.handle(ms(40), Input::Claim { slot: SLOT, claim: CLAIM, job: job("ClusterId = 7; ProcId = 2") });
    m.handle(ms(70), Input::Activate { claim: CLAIM, job: job("ClusterId = 7; ProcId = 2") });
    m.handle(ms(1_170), Input::Look);
    let ad = m.ad(SLOT).unwrap();
    let number = |name: &str| ad.eval_int(name);
    assert_eq!((number("TotalClaimRunTime"), number("TotalJobRunTime")), (Some(1_130), Some(1_100)));
    assert_eq!(number("JobStart"), Some((EPOCH_S + 70) as i64));
    assert_eq!(ad.eval_str("JobId").as_deref(), Some("7.2"));
    assert_eq!(ad.eval_str("RemoteOwner").as_deref(), Some("alice"));
}

/// A machine whose owner ranks jobs by a number that they name.
fn ranking() -> Machine {
    let rank = [
        (Expression::Rank, "TARGET.Worth"),
        (Expression::Preempt, "false"),
        (Expression::WantVacate, "true"),
    ];
    Machine::start("host", policy(&rank), &Layout::whole(TOTAL), quiet(), ms(0)).0
}

#[test]
fn a_better_claim_says_by_what_it_is_better() {
    for (worth, cause) in
        [(5, "RANK is 5 for a claim of bob, over 3"), (3, "a claim of bob goes first at the same RANK (3)")]
    {
        let mut m = ranking();
        run(&mut m, 1, CLAIM, "Worth = 3");
        let rival = format!("Owner = \"bob\"; Worth = {worth}");
        let actions = m.handle(ms(2), Input::Claim { slot: SLOT, claim: RIVAL, job: job(&rival) });
        let causes: Vec<String> = records(&actions).iter().map(|r| r.cause.to_string()).collect();
        assert!(causes.iter().any(|c| c.contains(cause)), "{causes:?}");
    }
    let mut m = ranking();
    run(&mut m, 1, CLAIM, "Worth = 3");
    let actions = m.handle(ms(2), Input::Claim { slot: SLOT, claim: RIVAL, job: job("Worth = 2") });
    assert_eq!(deeds(&actions), ["ClaimRefused"]);
}

#[test]
fn a_rival_that_start_no_longer_lets_in_is_told_that_it_lost_its_place() {
    let mut m = start(levers(), &Layout::whole(TOTAL));
    run(&mut m, 1, CLAIM, "");
    m.handle(ms(2), Input::Claim { slot: SLOT, claim: RIVAL, job: job("") });
    m.handle(ms(3), Input::Sensors(Readings::default().with("Open", false)));
    let actions = m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    let lost = |a: &Action| match a {
        Action::ClaimLost { claim, tell, .. } => Some((*claim, *tell)),
        _ => None,
    };
    let lost: Vec<_> = actions.iter().filter_map(lost).collect();
    assert_eq!(lost, [(CLAIM, true), (RIVAL, true)], "{actions:?}");
    assert_eq!(m.standing(SLOT), Some(Standing::Owner));
}

#[test]
fn a_slot_that_was_cut_gives_back_to_the_one_it_was_cut_from_and_to_no_other() {
    let text = "SLOT_TYPE_1 = cpus=2, ram=50%\nSLOT_TYPE_1_PARTITIONABLE = true\nNUM_SLOTS_TYPE_1 = 2\n";
    let layout = Layout::from_config(&config(text).unwrap(), TOTAL).unwrap();
    let mut m = Machine::start("host", levers(), &layout, calm(), ms(0)).0;
    let second = SlotId::new(2);
    let cpus = |m: &Machine| [SLOT, second].map(|slot| m.ad(slot).unwrap().eval_int("Cpus").unwrap());
    m.handle(
        ms(1),
        Input::Claim { slot: second, claim: CLAIM, job: job("RequestCpus = 1; RequestMemory = 10") },
    );
    assert_eq!(cpus(&m), [2, 1]);
    let actions = m.handle(ms(2), Input::Release { claim: CLAIM });
    assert_eq!(cpus(&m), [2, 2]);
    let told: Vec<SlotId> = actions
        .iter()
        .filter_map(|a| if let Action::Advertise { slot, .. } = a { Some(*slot) } else { None })
        .collect();
    assert!(told.contains(&second) && !told.contains(&SLOT), "{told:?}");
}

#[test]
fn a_machine_that_rests_wakes_at_the_end_of_its_rest() {
    let mut m = sends_away(0..1);
    assert_eq!(m.why(SLOT).unwrap().kept_out, [("u0".to_owned(), 10)]);
    let actions = (6..16).flat_map(|s| m.handle(ms(s), Input::Tick)).collect::<Vec<_>>();
    assert!(
        actions.iter().any(|a| matches!(a, Action::Advertise { .. })),
        "it is told that the user may come again"
    );
    assert!(m.why(SLOT).unwrap().kept_out.is_empty());
    let mut m = sends_away(0..1);
    m.handle(ms(6), Input::Tick);
    assert_eq!(m.next_wake_ms(), ms(15), "before the next update");
}

#[test]
fn a_held_job_has_the_policys_subcode() {
    for (subcode, told) in [("7", 7), ("-1", 0), ("\"x\"", 0), ("undefined", 0)] {
        let given = [
            (Expression::Preempt, "KeyboardIdle < 10"),
            (Expression::WantHold, "true"),
            (Expression::WantHoldReason, "\"too loud\""),
            (Expression::WantHoldSubcode, subcode),
        ];
        let mut m = Machine::start("host", policy(&given), &Layout::whole(TOTAL), quiet(), ms(0)).0;
        run(&mut m, 1, CLAIM, "");
        m.handle(ms(2), Input::Sensors(Readings::default().with("KeyboardIdle", 1)));
        let actions = m.handle(ms(2), Input::Look);
        let held = actions.iter().find_map(|a| match a {
            Action::Hold { reason, subcode, .. } => Some((reason.as_str(), *subcode)),
            _ => None,
        });
        assert_eq!(held, Some(("too loud", told)), "{subcode}");
    }
}
