//! Rows E1 to E16 of the reference, one test each.

use maintenance::core::{CONFIG_SET, override_text};
use maintenance::simulate::{Scenario, SimMachine, simulate};
use maintenance::{Core, Input, Output, Record, calendar};
use model::Now;

use crate::fixture::*;

fn run(more: &str, machines: Vec<SimMachine>, from: i64, to: i64) -> maintenance::simulate::Report {
    simulate(Scenario::new(reference(more), machines, from, to - from))
}

fn order(report: &maintenance::simulate::Report) -> Vec<(i64, &str)> {
    report.vacated.iter().map(|(at, slot)| (*at, slot.as_str())).collect()
}

#[test]
fn e1_activates_at_half_past_three() {
    let report = run("", e1(), wed(14, 0, 0), wed(15, 30, 1));
    assert_eq!(report.activations("TestEvent"), [wed(15, 30, 0)]);
    let estimates = report.log.iter().filter_map(|(at, r)| match r {
        Record::Estimated { transfer_s, .. } => Some((*at, *transfer_s)),
        _ => None,
    });
    assert!(estimates.clone().any(|e| e == (wed(15, 15, 0), 1_000)));
    assert!(estimates.clone().any(|e| e == (wed(15, 30, 0), 1_000)));
    let ends: Vec<i64> = report.configured.iter().map(|(_, _, end)| *end).collect();
    assert_eq!(ends, [wed(17, 0, 0), wed(17, 0, 0)]);
}

#[test]
fn e2_without_jobs_it_activates_one_interval_before() {
    let idle = vec![machine("a", vec![None])];
    let report = run("", idle, wed(14, 0, 0), wed(16, 0, 0));
    assert_eq!(report.activations("TestEvent"), [wed(15, 45, 0)]);
}

#[test]
fn e3_jobs_without_a_checkpoint_all_go_in_one_pass() {
    let three = ["a", "b", "c"].map(|n| machine(n, vec![vanilla()])).to_vec();
    let report = run("", three, wed(14, 0, 0), wed(16, 5, 0));
    assert_eq!(report.activations("TestEvent"), [wed(15, 45, 0)]);
    let moment = wed(15, 45, 2);
    assert_eq!(order(&report), [(moment, "a"), (moment, "b"), (moment, "c")]);
    let later: Vec<i64> = report.queries.iter().copied().filter(|at| *at > moment).collect();
    assert_eq!(later, [wed(16, 0, 2)], "next look (the cleanup asks at 14:10 and 15:10)");
}

#[test]
fn e4_vacates_are_paced_by_each_image() {
    let report = run("", e1(), wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(order(&report), [(wed(15, 30, 2), "small"), (wed(15, 36, 32), "large")]);
    assert!(report.all_empty() && report.began.len() == 1);
    // The next look after the second is when its 609 seconds are over.
    assert!(report.queries.contains(&wed(15, 46, 42)), "{:?}", report.queries);
}

#[test]
fn e5_slow_start_gives_each_machine_its_own_end() {
    let hosts = ["A", "B", "C"].map(|n| machine(n, vec![None])).to_vec();
    let more = "EVENTD_SHUTDOWN_SLOW_START_INTERVAL = 60\n";
    let report = run(more, hosts, wed(15, 0, 0), wed(16, 0, 0));
    let ends: Vec<(&str, i64)> = report.configured.iter().map(|(_, m, e)| (m.as_str(), *e)).collect();
    assert_eq!(ends, [("A", wed(17, 0, 0)), ("B", wed(17, 1, 0)), ("C", wed(17, 2, 0))]);
}

#[test]
fn e6_restarted_in_the_middle_it_activates_at_once_and_configures_only_who_lacks_it() {
    let now = Now { mono_ms: 5_000, wall_ms: wed(16, 20, 0) as u64 * 1_000 };
    let more = "EVENTD_SHUTDOWN_SLOW_START_INTERVAL = 60\n";
    let mut core = Core::new(now, reference(more), Vec::new());
    let out = core.handle(now, Input::Tick);
    let query = out.iter().find_map(|o| match o {
        Output::Query { query, .. } => Some(*query),
        _ => None,
    });
    let ad = |name: &str, end: &str| {
        classad::ClassAd::parse_old(&format!("Name = \"{name}\"\nMachine = \"{name}\"\n{end}")).unwrap()
    };
    let has = format!("EndDownTime = {}\n", wed(17, 0, 0));
    let early = format!("EndDownTime = {}\n", wed(16, 59, 59));
    let ads = vec![ad("a", &has), ad("b", &early), ad("c", "")];
    let out = core.handle(now, Input::Machines { query: query.unwrap(), answer: Ok(ads) });
    let sent: Vec<(&str, i64)> = out
        .iter()
        .filter_map(|o| match o {
            Output::Configure { machine, end_down_time, set, text, persistent, .. } => {
                assert_eq!((*set, *persistent), (CONFIG_SET, true));
                assert_eq!(*text, override_text(*end_down_time));
                Some((machine.as_str(), *end_down_time))
            }
            _ => None,
        })
        .collect();
    assert_eq!(sent, [("b", wed(17, 0, 0)), ("c", wed(17, 1, 0))], "the counter begins at 0");
    assert!(core.status()[0].is_active);
}

#[test]
fn e7_a_newcomer_is_configured_and_vacated_at_the_next_pass() {
    let mut machines = e1();
    let late = (wed(16, 10, 0) - wed(14, 0, 0)) as u64 * 1_000;
    machines.push(SimMachine { appears_ms: late, ..machine("new", vec![job(1_000)]) });
    let report = run("", machines, wed(14, 0, 0), wed(16, 59, 0));
    let (configured, _, end) = report.configured.iter().find(|(_, m, _)| m == "new").unwrap();
    let (vacated, _) = report.vacated.iter().find(|(_, m)| m == "new").unwrap();
    assert!(*configured > wed(16, 10, 0) && *configured <= wed(16, 25, 0));
    assert!(*vacated >= *configured && *vacated <= wed(16, 25, 0));
    assert_eq!(*end, wed(17, 0, 0));
}

#[test]
fn e8_a_persistent_override_survives_the_agents_restart() {
    let restart = (wed(16, 30, 0) - wed(14, 0, 0)) as u64 * 1_000;
    let host = SimMachine { restarts_ms: vec![restart], respawns: true, ..machine("a", vec![job(1_000)]) };
    let report = run("", vec![host], wed(14, 0, 0), wed(16, 59, 59));
    assert_eq!(report.configured.len(), 1);
    assert!(report.respawned.is_empty());
}

#[test]
fn e8_a_runtime_override_is_inserted_again() {
    let restart = (wed(16, 30, 0) - wed(14, 0, 0)) as u64 * 1_000;
    let host = SimMachine { restarts_ms: vec![restart], ..machine("a", vec![job(1_000)]) };
    let text = REFERENCE.replace("SHUTDOWN W", "SHUTDOWN_RUNTIME W");
    let report = simulate(Scenario::new(settings(&text), vec![host], wed(14, 0, 0), 10_799));
    assert_eq!(report.configured.len(), 2);
}

#[test]
fn e9_after_the_end_machines_start_by_themselves_and_are_cleaned_up() {
    let host = SimMachine { respawns: true, ..machine("a", vec![job(1_000)]) };
    let report = run("", vec![host], wed(14, 0, 0), wed(19, 0, 0));
    let (began, _) = report.respawned.first().unwrap();
    assert!((wed(17, 0, 0)..wed(17, 0, 6)).contains(began));
    let over = report.log.iter().find(|(_, r)| matches!(r, Record::Deactivated { .. })).unwrap();
    assert_eq!(over.0, wed(17, 0, 1));
    let (removed, _) = report.unconfigured.first().unwrap();
    assert!(*removed >= wed(17, 0, 1) && *removed <= wed(18, 10, 0));
    assert_eq!(report.unconfigured.len(), 1);
}

#[test]
fn e10_no_question_before_the_preparation_begins() {
    let more = "EVENTD_MAX_PREPARATION = 3600\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 10000000\n";
    let report = run(more, vec![machine("a", vec![None])], at(17, 16, 0, 0), wed(15, 45, 1));
    // The only earlier one is the first search for stale overrides, ten minutes after the start of the daemon.
    let asked: Vec<i64> = report.queries.iter().copied().filter(|q| *q != at(17, 16, 10, 0)).collect();
    assert_eq!(asked, [wed(15, 0, 0), wed(15, 15, 0), wed(15, 30, 0), wed(15, 45, 0)]);
}

#[test]
fn e11_fridays_event_is_still_on_after_midnight() {
    let text = "EVENT_LIST = E\nE = SHUTDOWN MTWRF 23:30 7200 2 C R\nC = true\nR = 0\n";
    let settings = settings(text);
    let window = calendar::occurrence(&settings.events[0], &settings.zone, &[], at(21, 0, 15, 0)).unwrap();
    assert_eq!((window.start, window.end), (at(20, 23, 30, 0), at(21, 1, 30, 0)));
    assert!(window.is_on(at(21, 0, 15, 0)));
    let report = simulate(Scenario::new(settings, vec![machine("a", vec![vanilla()])], at(21, 0, 15, 0), 10));
    assert_eq!(report.activations("E"), [at(21, 0, 15, 0)]);
    assert_eq!(report.configured[0].2, at(21, 1, 30, 0));
}

#[test]
fn e12_what_is_overdue_activates_at_the_first_poll() {
    let report = run("", vec![machine("a", vec![job(7_200 * 256)])], wed(14, 0, 0), wed(14, 0, 10));
    assert_eq!(report.activations("TestEvent"), [wed(14, 0, 0)]);
}

#[test]
fn e13_two_slots_of_one_host_take_one_configuration_and_two_vacates() {
    let host = machine("h", vec![vanilla(), vanilla()]);
    let report = run("", vec![host], wed(15, 0, 0), wed(16, 0, 0));
    assert_eq!(report.configured.len(), 1);
    let moment = wed(15, 45, 2);
    assert_eq!(order(&report), [(moment, "slot1@h"), (moment, "slot2@h")]);
}

#[test]
fn e14_a_listed_event_without_definition_is_reported_and_the_other_works() {
    let text = REFERENCE.replace("= TestEvent\n", "= TestEvent, TestEvent2\n");
    let (settings, findings) = load(&text);
    assert_eq!(settings.events.len(), 1);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("TestEvent2"));
    let report = simulate(Scenario::new(settings, e1(), wed(14, 0, 0), 7_800));
    assert!(report.all_empty() && report.vacated.len() == 2);
}

#[test]
fn e15_bandwidth_of_zero_or_in_words_is_rejected() {
    for wrong in ["0", "fast", "-1", "inf", "nan", "0.0", "1e99"] {
        let (settings, findings) = load(&REFERENCE.replace("3600 2 ", &format!("3600 {wrong} ")));
        assert!(settings.events.is_empty(), "{wrong}");
        assert_eq!(findings.len(), 1, "{wrong}");
        assert!(findings[0].is_error());
    }
}

#[test]
fn e16_an_unreachable_host_is_retried_and_delays_nobody() {
    let mut machines = e1();
    // The smallest, so that it would be first in line, and deaf until ten minutes before the start.
    let deaf = SimMachine { unreachable_ms: Some((0, 6_600_000)), ..machine("deaf", vec![job(1_000)]) };
    machines.push(deaf);
    let report = run("", machines, wed(14, 0, 0), wed(16, 10, 0));
    let small = report.vacated.iter().find(|(_, s)| s == "small").unwrap().0;
    assert_eq!(small, wed(15, 30, 2));
    assert!(report.vacated.iter().any(|(_, s)| s == "deaf"));
    assert!(report.all_empty(), "{:?}", report.began);
    let failures = report.log.iter().filter(|(_, r)| matches!(r, Record::Failed { .. })).count();
    assert!(failures > 2, "retried on every pass");
}

#[test]
fn e16_a_host_that_goes_deaf_after_its_configuration_delays_others_by_no_more_than_a_contact() {
    let mut machines = e1();
    let from = (wed(15, 30, 1) - wed(14, 0, 0)) as u64 * 1_000;
    machines.push(SimMachine { unreachable_ms: Some((from, u64::MAX)), ..machine("deaf", vec![job(10)]) });
    let report = run("", machines, wed(14, 0, 0), wed(16, 10, 0));
    let small = report.vacated.iter().find(|(_, s)| s == "small").unwrap().0;
    assert!(small <= wed(15, 30, 12), "others go on within the contact timeout");
    assert_eq!(report.began[0].still_running, ["deaf"]);
}

#[test]
fn the_override_closes_start_until_its_end_and_leaves_it_as_it_was_afterwards() {
    let end = wed(17, 0, 0);
    let text = override_text(end);
    let config = config::Loader::new(&config::Nothing, "STARTD")
        .text("machine.conf", "START = KeyboardIdle > 900 || false\nSTARTD_EXPRS = Rack\n")
        .runtime(CONFIG_SET, &text)
        .load()
        .expect("loads");
    let start = config.expression("START").unwrap().unwrap();
    let value = |idle: i64, now: i64| {
        let mut ad = classad::ClassAd::new();
        ad.insert_int("KeyboardIdle", idle);
        ad.insert_int("EndDownTime", end);
        ad.insert_int("CurrentTime", now);
        classad::Scope::of(&ad).now(now).is_true(&start)
    };
    assert!(!value(1_000, end - 1));
    assert!(value(1_000, end));
    assert!(!value(10, end), "the owner's own rule still counts");
    assert_eq!(config.text("STARTD_EXPRS").unwrap(), "Rack, EndDownTime");
}

#[test]
fn a_machine_is_told_its_window_by_its_own_clock() {
    let now = Now { mono_ms: 5_000, wall_ms: wed(16, 20, 0) as u64 * 1_000 };
    let mut core = Core::new(now, reference(""), Vec::new());
    let query = core.handle(now, Input::Tick).into_iter().find_map(|o| match o {
        Output::Query { query, .. } => Some(query),
        _ => None,
    });
    let end = wed(17, 0, 0);
    let ad = |name: &str, offset: i64, has: Option<i64>| {
        let has = has.map_or_else(String::new, |end| format!("EndDownTime = {end}\n"));
        let text = format!("Name = \"{name}\"\nMachine = \"{name}\"\nClockOffset = {offset}\n{has}");
        classad::ClassAd::parse_old(&text).unwrap()
    };
    let ads = vec![
        ad("ahead", 20, None),
        ad("behind", -3_600, None),
        // Told before; by the pool's clock the first is right, and the second too early.
        ad("ahead-told", 20, Some(end + 20)),
        ad("behind-told", -3_600, Some(end - 3_601)),
    ];
    let out = core.handle(now, Input::Machines { query: query.unwrap(), answer: Ok(ads) });
    let told: Vec<(String, String)> = out
        .into_iter()
        .filter_map(|o| match o {
            Output::Configure { machine, text, end_down_time, .. } => {
                assert_eq!(end_down_time, end, "people see the pool's time");
                Some((machine, text))
            }
            _ => None,
        })
        .collect();
    let expected = [("ahead", end + 20), ("behind", end - 3_600), ("behind-told", end - 3_600)];
    assert_eq!(told, expected.map(|(machine, at)| (machine.to_owned(), override_text(at))));
}
