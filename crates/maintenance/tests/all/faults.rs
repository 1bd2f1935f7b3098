//! Restarts at every step, clocks that jump, messages that get lost, agents that come and go; and eight machines
//! with a window a minute away.

use maintenance::Record;
use maintenance::simulate::{Report, Scenario, SimMachine, simulate};

use crate::fixture::*;

const MEGABIT: f64 = 131_072.0;

fn check(report: &Report, cap: f64, why: &str) {
    assert!(report.vacated_unconfigured.is_empty(), "{why}: {:?}", report.vacated_unconfigured);
    assert!(report.most_in_flight().values().all(|n| *n <= 1), "{why}: {:?}", report.most_in_flight());
    for peak in report.peak_bytes_per_second().values() {
        assert!(*peak <= cap * MEGABIT + 2.0, "{why}: {}", peak / MEGABIT);
    }
}

#[test]
fn a_restart_after_any_step_changes_nothing_that_matters() {
    let machines = || {
        let mut machines = e1();
        machines.push(machine("v", vec![vanilla()]));
        machines.push(machine("two", vec![job(30_000), gang(20_000, "g")]));
        machines.push(machine("mate", vec![gang(20_000, "g")]));
        machines.into_iter().map(|m| SimMachine { respawns: true, ..m }).collect::<Vec<_>>()
    };
    let scenario = || Scenario::new(reference(""), machines(), wed(15, 0, 0), 3_700);
    let steps = simulate(scenario()).steps;
    assert!(steps > 20);
    for step in 1..=steps {
        for tells_remaining in [true, false] {
            let mut with = scenario();
            with.restarts_after = [step].into();
            with.tells_remaining = tells_remaining;
            let report = simulate(with);
            let why = format!("restart after step {step}, remaining told: {tells_remaining}");
            check(&report, 2.0, &why);
            assert!(report.all_empty() && report.began.len() == 1, "{why}: {}", report.text());
        }
    }
}

#[test]
fn clocks_that_jump_break_neither_cap_nor_order() {
    for by_s in [-86_400, -7_200, -600, -30, 30, 600, 3_000] {
        for at_s in [100, 1_850, 2_000, 2_900] {
            let mut scenario = Scenario::new(reference(""), e1(), wed(15, 0, 0), 2 * 86_400);
            scenario.jumps = vec![(at_s * 1_000, by_s * 1_000)];
            let report = simulate(scenario);
            let why = format!("jump by {by_s} s after {at_s} s");
            check(&report, 2.0, &why);
            assert_eq!(report.vacated.len(), 2, "{why}");
            assert!(report.log.iter().any(|(_, r)| matches!(r, Record::ClockJumped { .. })), "{why}");
            if by_s < 0 {
                assert!(report.all_empty(), "{why}: there is more time than before");
            }
        }
    }
}

#[test]
fn lost_messages_are_made_up_for() {
    for seed in 0..20 {
        let text = format!("{REFERENCE}EVENTD_INTERVAL = 300\n");
        let machines = (0..6).map(|i| machine(&format!("m{i}"), vec![job(20_000)])).collect();
        let mut scenario = Scenario::new(settings(&text), machines, wed(15, 0, 0), 5_000);
        scenario.loss_permille = 150;
        scenario.latency_ms = 50;
        scenario.seed = seed;
        let report = simulate(scenario);
        check(&report, 2.0, &format!("seed {seed}"));
        assert_eq!(report.vacated.len(), 6, "seed {seed}: {}", report.text());
    }
}

#[test]
fn agents_that_vanish_hold_nobody_up() {
    let mut machines = e1();
    machines.push(SimMachine { vanishes_ms: Some(1_801_000), ..machine("gone", vec![job(10)]) });
    machines.push(SimMachine { vanishes_ms: Some(1_804_000), ..machine("later", vec![job(20)]) });
    let report = simulate(Scenario::new(reference(""), machines, wed(15, 0, 0), 3_700));
    check(&report, 2.0, "vanish");
    assert!(report.all_empty(), "{}", report.text());
    assert!(report.vacated.iter().any(|(_, s)| s == "large"));
}

#[test]
fn eight_machines_are_empty_in_a_minute_within_twenty_megabits() {
    // About 100 MiB in all: 42 s at 20 Mb/s, and the window is a minute away.
    let text = "EVENTD_INTERVAL = 10\nEVENT_LIST = Rack\nRack = SHUTDOWN W 16:00 600 20 C R\nC = true\nR = 0 - ImageSize\n";
    let sizes = [4_096, 8_192, 10_240, 12_288, 14_336, 16_384, 18_432, 24_576];
    let hosts = || {
        sizes
            .iter()
            .enumerate()
            .map(|(i, kb)| SimMachine { respawns: true, ..machine(&format!("m{i}"), vec![job(*kb)]) })
    };
    for latency_ms in [0, 5, 50] {
        let mut scenario = Scenario::new(settings(text), hosts().collect(), wed(15, 59, 0), 700);
        scenario.latency_ms = latency_ms;
        let report = simulate(scenario);
        assert!(report.all_empty() && report.began.len() == 1, "{}", report.text());
        check(&report, 20.0, &format!("latency {latency_ms} ms"));
        assert_eq!(report.vacated.len(), 8);
        assert!(report.respawned.iter().all(|(at, _)| *at >= wed(16, 10, 0)), "none during the window");
    }
}

#[test]
fn a_window_that_was_begun_and_is_gone_from_the_calendar_is_taken_back_until_its_end() {
    use maintenance::{Begun, Core, Input, Outcome, Output, Window};
    let now = |s: i64| model::Now { mono_ms: s as u64 * 1_000, wall_ms: (wed(15, 0, 0) + s) as u64 * 1_000 };
    let window = Window { start: wed(15, 0, 0) - 60, end: wed(16, 0, 0) };
    let gone = Begun { event: "Gone".into(), window };
    let mut core = Core::new(now(0), settings("EVENTD_INTERVAL = 60\n"), Vec::new());
    core.take_up(now(0), vec![gone.clone()]);
    assert!(!core.goes_on(&gone) && core.begun() == [gone]);
    let ad = |end: Option<i64>| {
        let mut ad = classad::ClassAd::new();
        ad.insert_str("Name", "slot1@m");
        ad.insert_str("Machine", "m");
        if let Some(end) = end {
            ad.insert_int("EndDownTime", end);
        }
        ad
    };
    let (mut taken_back, mut asked) = (0, 0);
    for second in 0..3_602 {
        let mut due = core.handle(now(second), Input::Tick);
        while let Some(output) = due.pop() {
            let input = match output {
                Output::Query { query, .. } => {
                    asked += 1;
                    // The machine does not hear of it twice, and once it is not there.
                    let end = (taken_back < 3 && asked != 1).then_some(window.end);
                    Input::Machines { query, answer: Ok(vec![ad(end)]) }
                }
                Output::Unconfigure { command, machine, .. } => {
                    assert_eq!(machine, "m");
                    taken_back += 1;
                    let lost = Outcome::Unreachable("lost".into());
                    Input::Done { command, outcome: if taken_back < 3 { lost } else { Outcome::Ok } }
                }
                _ => continue,
            };
            due.extend(core.handle(now(second), input));
        }
    }
    assert_eq!(taken_back, 3);
    assert!(asked > 4, "others may come back with it until its end");
    assert!(core.begun().is_empty() && core.next_wake().is_none());
}
