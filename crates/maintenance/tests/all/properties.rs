//! What holds for every pool, every loss of messages and every restart; each rule is a function with its name.

use std::collections::BTreeMap;

use maintenance::estimate::{BREATH_MS, SAVING_MS};
use maintenance::simulate::{Report, Scenario, SimJob, SimMachine, simulate};
use proptest::prelude::*;

use crate::fixture::*;

fn at_most_one_costly_vacate_is_under_way_in_a_domain(report: &Report) {
    assert!(report.most_in_flight().values().all(|n| *n <= 1), "{:?}", report.most_in_flight());
}

fn no_second_carries_more_than_the_cap(report: &Report, megabits: f64) {
    for (domain, peak) in report.peak_bytes_per_second() {
        // Rates are whole bytes and ends whole milliseconds.
        assert!(peak <= megabits * 131_072.0 * 1.002, "{domain}: {} Mb/s", peak / 131_072.0);
    }
}

fn machines_are_configured_before_their_jobs_go(report: &Report) {
    assert!(report.vacated_unconfigured.is_empty(), "{:?}", report.vacated_unconfigured);
}

fn a_job() -> impl Strategy<Value = Option<SimJob>> {
    let gang = prop_oneof![6 => Just(None), 1 => Just(Some("g".to_owned())), 1 => Just(Some("h".to_owned()))];
    let job = (1_000_i64..60_000, any::<bool>(), gang).prop_map(|(image_kb, checkpointable, gang)| SimJob {
        id: "1".into(),
        image_kb,
        checkpointable,
        gang,
        ..SimJob::default()
    });
    prop_oneof![1 => Just(None), 4 => job.prop_map(Some)]
}

fn a_machine() -> impl Strategy<Value = SimMachine> {
    let jobs = proptest::collection::vec(a_job(), 1..3);
    let fault = prop_oneof![
        5 => Just((0_u64, None, false, None)),
        1 => (0_u64..3_600_000).prop_map(|at| (at, None, false, None)),
        1 => (0_u64..3_600_000).prop_map(|at| (0, Some(at), false, None)),
        1 => Just((0, None, true, None)),
        1 => (0_u64..3_000_000, 0_u64..1_000_000).prop_map(|(a, b)| (0, None, false, Some((a, a + b)))),
    ];
    (jobs, 0..3_u8, fault, any::<bool>()).prop_map(|(slots, net, fault, respawns)| SimMachine {
        attributes: vec![("Net".into(), format!("\"n{net}\""))],
        slots,
        appears_ms: fault.0,
        vanishes_ms: fault.1,
        refuses: fault.2,
        unreachable_ms: fault.3,
        respawns,
        ..SimMachine::default()
    })
}

fn everything_is_saved_before_the_window_begins(report: &Report) {
    assert_eq!(report.began.len(), 1);
    assert!(report.all_empty(), "{:?}\n{:#?}", report.began, report.log);
}

fn nobody_leaves_later_than_the_plan_says(report: &Report, plan: &maintenance::plan::EventPlan) {
    let activated_ms = report.activations(&plan.event)[0] * 1_000;
    // A gang is in each of its lanes, and has left when the last of them has carried its part.
    let mut planned: BTreeMap<&str, i64> = BTreeMap::new();
    for step in plan.lanes.iter().flat_map(|lane| &lane.steps) {
        for slot in &step.slots {
            let over_ms = planned.entry(slot).or_default();
            *over_ms = step.to_ms.max(*over_ms);
        }
    }
    for (slot, over_ms) in planned {
        // The second in which it was activated may be almost over, and the word of it takes its way.
        let latest_ms = activated_ms + over_ms - plan.activates * 1_000 + BREATH_MS as i64 + 1_000;
        let left_ms = report.left.iter().find(|(_, name)| name == slot).map(|(at, _)| *at as i64);
        assert!(left_ms.is_some_and(|at| at <= latest_ms), "{slot}: {left_ms:?}, planned {latest_ms}");
    }
}

/// A job that saves its work for some seconds: as long as it says, or as long as is assumed of one that says nothing.
fn a_job_that_saves() -> impl Strategy<Value = SimJob> {
    let gang = prop_oneof![6 => Just(None), 1 => Just(Some("g".to_owned())), 1 => Just(Some("h".to_owned()))];
    let saving =
        prop_oneof![(0_u64..20_000).prop_map(|ms| (ms, true)), (0..=SAVING_MS).prop_map(|ms| (ms, false)),];
    (0_i64..20_000, prop::bool::weighted(0.8), gang, saving).prop_map(
        |(image_kb, checkpointable, gang, (saving_ms, tells_saving))| SimJob {
            id: "1".into(),
            image_kb,
            checkpointable,
            saving_ms,
            tells_saving,
            gang,
            leaving: None,
        },
    )
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(96)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_pool_without_faults_is_empty_in_time_and_as_planned(
        jobs in proptest::collection::vec((proptest::collection::vec(a_job_that_saves(), 1..3), 0..3_u8), 1..12),
        latency in prop_oneof![Just(0_u64), Just(20), Just(100)],
        tells in any::<bool>(),
        // The shorter the interval the less time is to spare by accident, and with the moment of the first poll it decides how much.
        interval in 5_i64..60,
        later in 0_i64..120,
        domains in any::<bool>(),
    ) {
        let domain = if domains { "@Net" } else { "" };
        let text = REFERENCE.replace("3600 2 ", &format!("3600 2{domain} "));
        let settings = settings(&format!("{text}EVENTD_INTERVAL = {interval}\n"));
        let machines: Vec<SimMachine> = jobs
            .into_iter()
            .enumerate()
            .map(|(i, (jobs, net))| SimMachine {
                name: format!("m{i}"),
                attributes: vec![("Net".into(), format!("\"n{net}\""))],
                slots: jobs.into_iter().map(Some).collect(),
                ..SimMachine::default()
            })
            .collect();
        let begin = wed(14, 0, 0) + later;
        let mut scenario = Scenario::new(settings.clone(), machines, begin, wed(16, 3, 0) - begin);
        scenario.latency_ms = latency;
        scenario.tells_remaining = tells;
        let ads = scenario.ads();
        let report = simulate(scenario);
        everything_is_saved_before_the_window_begins(&report);
        at_most_one_costly_vacate_is_under_way_in_a_domain(&report);
        no_second_carries_more_than_the_cap(&report, 2.0);
        nobody_leaves_later_than_the_plan_says(&report, &maintenance::plan(begin, &settings, &[], &[], &ads).events[0]);
    }

    #[test]
    fn rules_hold_in_any_pool(
        machines in proptest::collection::vec(a_machine(), 1..10),
        restarts in proptest::collection::btree_set(1_u64..200, 0..4),
        loss in prop_oneof![2 => Just(0_u32), 1 => 0_u32..300],
        latency in prop_oneof![Just(0_u64), Just(20), Just(400)],
        tells in any::<bool>(),
        seed in any::<u64>(),
        interval in prop_oneof![Just(60_i64), Just(900)],
        domains in any::<bool>(),
    ) {
        let domain = if domains { "@Net" } else { "" };
        let text = REFERENCE.replace("3600 2 ", &format!("3600 2{domain} "));
        let text = format!("{text}EVENTD_INTERVAL = {interval}\n");
        let machines: Vec<SimMachine> = machines
            .into_iter()
            .enumerate()
            .map(|(i, m)| SimMachine { name: format!("m{i}"), ..m })
            .collect();
        let mut scenario = Scenario::new(settings(&text), machines, wed(15, 0, 0), 8_000);
        scenario.restarts_after = restarts.clone();
        scenario.loss_permille = loss;
        scenario.latency_ms = latency;
        // Without a word from the agents a restart in the middle of a transfer cannot know how much is left.
        scenario.tells_remaining = tells || latency > 0 || loss > 0 || !restarts.is_empty();
        scenario.seed = seed;
        let report = simulate(scenario);
        machines_are_configured_before_their_jobs_go(&report);
        at_most_one_costly_vacate_is_under_way_in_a_domain(&report);
        no_second_carries_more_than_the_cap(&report, 2.0);
    }
}

/// Ads as a broken or hostile agent might send them.
fn an_odd_ad() -> impl Strategy<Value = classad::ClassAd> {
    let number = prop_oneof![
        Just("0".to_owned()),
        Just("-1".to_owned()),
        Just(i64::MAX.to_string()),
        Just(i64::MIN.to_string()),
        Just("1e300".to_owned()),
        Just("undefined".to_owned()),
        Just("1/0".to_owned()),
        Just("\"text\"".to_owned()),
        (0_i64..100_000).prop_map(|n| n.to_string()),
        (wed(14, 0, 0)..wed(18, 0, 0)).prop_map(|n| n.to_string()),
    ];
    let names = [
        "Name",
        "Machine",
        "JobUniverse",
        "ImageSize",
        "EndDownTime",
        "CheckpointRemaining",
        "GangId",
        "Net",
    ];
    let states = prop_oneof![Just("Claimed"), Just("Preempting"), Just("Unclaimed")];
    (proptest::collection::vec(number, names.len()), states, 0..5_u8, any::<bool>()).prop_map(
        move |(values, state, host, named)| {
            let mut ad = classad::ClassAd::new();
            for (name, value) in names.iter().zip(values) {
                let _ = ad.insert_text(*name, &value);
            }
            ad.insert_str("State", state);
            if named {
                ad.insert_str("Name", &format!("h{host}"));
                ad.insert_str("Machine", &format!("h{host}"));
            }
            ad
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_input_makes_the_core_panic_or_forget_to_wake(
        steps in proptest::collection::vec(
            (0_u64..2_000_000, 0..8_u8, -100_000_000_i64..100_000_000, proptest::collection::vec(an_odd_ad(), 0..5)),
            1..40,
        ),
    ) {
        use maintenance::{Command, Core, Input, Outcome, Output};
        let text = REFERENCE.replace("3600 2 ", "3600 2@Net ");
        let mut now = model::Now { mono_ms: 7, wall_ms: wed(15, 0, 0) as u64 * 1_000 };
        let mut core = Core::new(now, settings(&text), Vec::new());
        let mut out = core.handle(now, Input::Tick);
        for (advance, kind, jump, ads) in steps {
            now.mono_ms += advance;
            now.wall_ms += advance;
            let query = out.iter().find_map(|o| match o { Output::Query { query, .. } => Some(*query), _ => None });
            let command = out.iter().find_map(|o| match o {
                Output::Configure { command, .. } | Output::Vacate { command, .. } | Output::Unconfigure { command, .. } => Some(*command),
                _ => None,
            });
            let event = "TestEvent".to_owned();
            let input = match (kind, query, command) {
                (0, ..) => { now.wall_ms = now.wall_ms.saturating_add_signed(jump); Input::Tick }
                (1, ..) => Input::Operator(Command::Cancel { event }),
                (2, ..) => Input::Operator(Command::Extend { event, by_s: jump }),
                (3, ..) => Input::Operator(Command::Start { event, at: None, duration_s: Some(jump) }),
                (_, Some(query), _) => Input::Machines { query, answer: Ok(ads) },
                (4 | 5, _, Some(command)) => Input::Done { command, outcome: Outcome::Refused("x".into()) },
                (_, _, Some(command)) => Input::Done { command, outcome: Outcome::Ok },
                _ => Input::Tick,
            };
            out = core.handle(now, input);
            let wake = core.next_wake().expect("an event is there");
            prop_assert!(wake > now.mono_ms, "would spin: {wake} at {}", now.mono_ms);
            let _ = maintenance::plan((now.wall_ms / 1_000) as i64, core.settings(), core.overrides(), &[], &[]).svg();
        }
    }

    #[test]
    fn odd_ads_can_be_planned(ads in proptest::collection::vec(an_odd_ad(), 0..12)) {
        let plan = maintenance::plan(wed(15, 50, 0), &reference(""), &[], &[], &ads);
        let _ = (plan.text(3), plan.svg());
    }
}
