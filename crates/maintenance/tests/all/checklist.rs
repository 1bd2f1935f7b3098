//! The reference's checklist, items 1 to 11, and what Updraft adds: domains, gangs, warnings, operators.

use maintenance::core::PAUSE_MS;
use maintenance::simulate::{Report, Scenario, SimMachine, simulate};
use maintenance::{Command, Core, Input, Output, Record, Settings};
use model::Now;

use crate::fixture::*;

fn run(settings: Settings, machines: Vec<SimMachine>, from: i64, to: i64) -> Report {
    simulate(Scenario::new(settings, machines, from, to - from))
}

fn names(report: &Report) -> Vec<&str> {
    report.vacated.iter().map(|(_, slot)| slot.as_str()).collect()
}

#[test]
fn item_1_valid_events_are_kept_in_order() {
    let text = "EVENT_LIST = A B,C D\nA = SHUTDOWN W 16:00 60 2 Yes Yes\nB = nonsense\nC = SHUTDOWN F 1:00 60 2 Yes Yes\nYes = true\n";
    let (settings, findings) = load(text);
    let kept: Vec<&str> = settings.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(kept, ["A", "C"]);
    assert!(findings.len() >= 2);
}

#[test]
fn item_2_estimates_clean_expired_overrides() {
    let now = Now { mono_ms: 0, wall_ms: wed(10, 0, 0) as u64 * 1_000 };
    let mut core = Core::new(now, reference(""), Vec::new());
    let query = question(&core.handle(now, Input::Tick)).unwrap();
    let text = format!("Name = \"a\"\nMachine = \"a\"\nEndDownTime = {}\n", wed(9, 59, 59));
    let answer = Ok(vec![classad::ClassAd::parse_old(&text).unwrap()]);
    let out = core.handle(now, Input::Machines { query, answer });
    assert!(out.iter().any(|o| matches!(o, Output::Unconfigure { machine, .. } if machine == "a")));
}

fn question(out: &[Output]) -> Option<u64> {
    out.iter().find_map(|o| match o {
        Output::Query { query, .. } => Some(*query),
        _ => None,
    })
}

#[test]
fn item_3_activation_configures_every_match_and_nobody_else() {
    let mut machines = e1();
    machines.push(machine("outside", vec![job(100)]));
    let report = run(reference(""), machines, wed(14, 0, 0), wed(16, 0, 0));
    let mut configured: Vec<&str> = report.configured.iter().map(|(_, m, _)| m.as_str()).collect();
    configured.sort_unstable();
    assert_eq!(configured, ["large", "small"]);
    assert!(!names(&report).contains(&"outside"));
}

#[test]
fn item_4_rank_orders_and_ties_go_by_name() {
    let hosts = ["c", "a", "b"].map(|n| machine(n, vec![job(10_000)])).to_vec();
    let text = REFERENCE.replace("(0 - ImageSize)", "\"not a number\"");
    let report = run(settings(&text), hosts, wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["a", "b", "c"]);
    let text = REFERENCE.replace("(0 - ImageSize)", "ImageSize");
    let report = run(settings(&text), e1(), wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["large", "small"]);
}

#[test]
fn item_4_free_vacates_do_not_stop_a_pass_and_costly_ones_do() {
    // By rank (smallest first): a costly one, the vanilla jobs (50000), another costly one.
    let machines = vec![
        machine("a", vec![job(10_000)]),
        machine("v", vec![vanilla()]),
        machine("w", vec![vanilla()]),
        machine("z", vec![job(90_000)]),
    ];
    let report = run(reference(""), machines, wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["a", "v", "w", "z"]);
    let times: Vec<i64> = report.vacated.iter().map(|(at, _)| *at).collect();
    assert!(times[0] < times[1] && times[1] == times[2] && times[2] == times[3], "{times:?}");
}

#[test]
fn item_5_an_empty_list_is_looked_at_again_each_interval() {
    let report = run(reference(""), vec![machine("a", vec![None])], wed(15, 45, 0), wed(17, 0, 0));
    let looks: Vec<i64> =
        report.queries.iter().copied().filter(|q| (q - wed(15, 45, 2)) % 900 == 0).collect();
    assert_eq!(looks.len(), 5);
}

#[test]
fn item_6_the_next_occurrence_activates_again() {
    let host = SimMachine { respawns: true, ..machine("a", vec![job(1_000)]) };
    let report = run(reference(""), vec![host], wed(14, 0, 0), wed(17, 30, 0) + 7 * 86_400);
    assert_eq!(report.activations("TestEvent").len(), 2);
    assert_eq!(report.vacated.len(), 2);
    assert!(report.all_empty() && report.began.len() == 2);
}

#[test]
fn item_7_and_9_a_fresh_core_needs_nothing_but_ads() {
    let mut whole = Scenario::new(reference(""), e1(), wed(14, 0, 0), 7_800);
    whole.restarts_after = (1..10_000).step_by(7).collect();
    let report = simulate(whole);
    assert!(report.all_empty() && report.vacated.len() == 2, "{}", report.text());
}

#[test]
fn item_8_refusals_are_retried_on_each_pass_and_never_vacated() {
    let mut machines = e1();
    machines.push(SimMachine { refuses: true, ..machine("no", vec![job(10)]) });
    let report = run(reference(""), machines, wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["small", "large"]);
    assert!(report.vacated_unconfigured.is_empty());
    assert_eq!(report.began[0].still_running, ["no"]);
}

#[test]
fn item_10_an_active_event_is_not_estimated_again() {
    let report = run(reference(""), e1(), wed(14, 0, 0), wed(17, 0, 0));
    let from = report.activations("TestEvent")[0];
    let estimates =
        report.log.iter().filter(|(at, r)| *at > from && matches!(r, Record::Estimated { .. })).count();
    assert_eq!(estimates, 0);
}

#[test]
fn item_11_a_reload_drops_all_and_what_is_due_activates_again() {
    let now = |s: i64| Now { mono_ms: (s - wed(16, 0, 0)) as u64 * 1_000, wall_ms: s as u64 * 1_000 };
    let mut core = Core::new(now(wed(16, 10, 0)), reference(""), Vec::new());
    let query = question(&core.handle(now(wed(16, 10, 0)), Input::Tick)).unwrap();
    core.handle(now(wed(16, 10, 0)), Input::Machines { query, answer: Ok(Vec::new()) });
    assert!(core.status()[0].is_active);
    let out = core.handle(now(wed(16, 11, 0)), Input::Reload(Box::new(reference(""))));
    assert!(!core.status()[0].is_active);
    let query = question(&out).expect("asked at once");
    core.handle(now(wed(16, 11, 0)), Input::Machines { query, answer: Ok(Vec::new()) });
    assert!(core.status()[0].is_active);
}

#[test]
fn overlapping_events_leave_the_later_end() {
    let text = "EVENT_LIST = Short, Long\nShort = SHUTDOWN W 16:00 3600 2 C R\nLong = SHUTDOWN W 16:00 7200 2 C R\nC = true\nR = 0\n";
    for order in [text.to_owned(), text.replace("Short, Long", "Long, Short")] {
        let host = SimMachine { respawns: true, ..machine("a", vec![job(1_000)]) };
        let report = run(settings(&order), vec![host], wed(15, 0, 0), wed(18, 10, 0));
        assert_eq!(report.configured.iter().map(|c| c.2).max(), Some(wed(18, 0, 0)));
        assert_eq!(report.configured.last().unwrap().2, wed(18, 0, 0));
        assert!(report.respawned[0].0 >= wed(18, 0, 0));
    }
}

#[test]
fn domains_work_side_by_side_each_under_its_own_cap() {
    let text = REFERENCE.replace("3600 2 ", "3600 2@Subnet ");
    let host = |name: &str, net: &str| SimMachine {
        attributes: vec![("Subnet".into(), format!("\"{net}\""))],
        ..machine(name, vec![job(100_000)])
    };
    let hosts = vec![host("a1", "a"), host("a2", "a"), host("b1", "b"), host("b2", "b")];
    let report = run(settings(&text), hosts, wed(14, 0, 0), wed(16, 10, 0));
    let firsts: Vec<i64> = report.vacated.iter().take(2).map(|(at, _)| *at).collect();
    assert_eq!(firsts[0], firsts[1], "one of each subnet at the same time");
    assert!(report.most_in_flight().values().all(|n| *n == 1), "{:?}", report.most_in_flight());
    let peaks = report.peak_bytes_per_second();
    assert_eq!(peaks.len(), 2);
    assert!(peaks.values().all(|p| *p <= 2.0 * 131_072.0 + 1.0), "{peaks:?}");
    // Two lanes: 781 s of work for each, not 1562 for both.
    assert!(report.log.iter().any(|(_, r)| matches!(r, Record::Estimated { transfer_s: 781, .. })));
    assert!(report.all_empty());
}

#[test]
fn two_events_share_the_lane_of_a_domain() {
    let text = "EVENTD_BANDWIDTH_DOMAIN = Net\nEVENT_LIST = A, B\nA = SHUTDOWN W 16:00 3600 2 CA R\nB = SHUTDOWN W 16:00 3600 2@net CB R\n\
        CA = Machine == \"a\"\nCB = Machine == \"b\"\nR = 0\n";
    let host = |name: &str| SimMachine {
        attributes: vec![("Net".into(), "\"x\"".into())],
        ..machine(name, vec![job(50_000)])
    };
    let report = run(settings(text), vec![host("a"), host("b")], wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(report.most_in_flight()["x"], 1);
    assert!(report.peak_bytes_per_second()["x"] <= 2.0 * 131_072.0 + 1.0);
    assert!(report.all_empty());
}

#[test]
fn a_gang_leaves_as_a_whole_with_the_mates_that_no_event_is_about() {
    let machines = vec![
        machine("g1", vec![gang(60_000, "7")]),
        machine("g2", vec![gang(20_000, "7")]),
        machine("outside", vec![gang(20_000, "7")]),
        machine("alone", vec![job(1_000)]),
    ];
    let report = run(reference(""), machines, wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["alone", "g1", "g2", "outside"]);
    let times: Vec<i64> = report.vacated.iter().skip(1).map(|(at, _)| *at).collect();
    assert!(times.iter().all(|t| *t == times[0]), "{times:?}");
    assert!(!report.configured.iter().any(|(_, m, _)| m == "outside"), "it may start other jobs");
    assert_eq!(report.most_in_flight()[""], 1);
    assert!(report.peak_bytes_per_second()[""] <= 2.0 * 131_072.0 + 3.0);
    let ends: Vec<u64> = report.transfers.iter().filter(|t| t.slot != "alone").map(|t| t.to_ms).collect();
    assert!(ends.iter().max().unwrap() - ends.iter().min().unwrap() <= 10, "all end together: {ends:?}");
}

#[test]
fn jobs_without_a_checkpoint_are_warned_once_with_the_time_that_is_left() {
    let report = run(reference(""), vec![machine("v", vec![vanilla()])], wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(report.warned, [(wed(15, 0, 0), "v".to_owned(), 2_696)]);
    // The interval and what emptying takes are counted off; the poll after that is the one that finds it due.
    assert_eq!(report.vacated, [(wed(15, 0, 0) + 2_700 + PAUSE_MS as i64 / 1_000, "v".to_owned())]);
}

#[test]
fn with_the_standard_option_jobs_without_a_checkpoint_stay() {
    let text = REFERENCE.replace("SHUTDOWN W", "SHUTDOWN_STANDARD W");
    let seat = maintenance::simulate::SimJob { gang: Some("g".into()), ..vanilla().unwrap() };
    let machines = vec![
        machine("v", vec![vanilla()]),
        machine("s", vec![job(1_000)]),
        machine("g1", vec![Some(seat)]),
        machine("g2", vec![gang(1_000, "g")]),
    ];
    let report = run(settings(&text), machines, wed(14, 0, 0), wed(16, 10, 0));
    assert_eq!(names(&report), ["s"]);
    assert!(report.warned.is_empty());
}

#[test]
fn a_dry_run_commands_nothing_and_says_what_it_would() {
    let report = run(reference("EVENTD_SIMULATE_SHUTDOWNS = True\n"), e1(), wed(14, 0, 0), wed(16, 10, 0));
    assert!(report.configured.is_empty() && report.vacated.is_empty() && report.warned.is_empty());
    let would = report.log.iter().filter(|(_, r)| matches!(r, Record::Would { .. })).count();
    assert!(would >= 4, "{would}");
}

fn wish(at: i64, command: Command, to: i64) -> Report {
    let host = SimMachine { respawns: true, ..machine("a", vec![job(1_000)]) };
    let mut scenario = Scenario::new(reference(""), vec![host], wed(14, 0, 0), to - wed(14, 0, 0));
    scenario.wishes = vec![((at - wed(14, 0, 0)) as u64 * 1_000, command)];
    simulate(scenario)
}

#[test]
fn an_operator_can_start_a_window_now() {
    let event = "testevent".to_owned();
    let command = Command::Start { event, at: None, duration_s: Some(600) };
    let report = wish(wed(14, 5, 30), command, wed(14, 20, 0));
    assert_eq!(report.activations("TestEvent"), [wed(14, 5, 30)]);
    assert_eq!(report.configured[0].2, wed(14, 15, 30));
    assert!(report.respawned[0].0 >= wed(14, 15, 30));
}

#[test]
fn an_operator_can_cancel_an_active_window_and_machines_come_back() {
    let report = wish(wed(16, 10, 0), Command::Cancel { event: "TestEvent".into() }, wed(17, 30, 0));
    assert_eq!(report.unconfigured, [(wed(16, 10, 0), "a".to_owned())]);
    assert!(report.respawned[0].0 < wed(16, 10, 10));
    assert_eq!(report.vacated.len(), 1, "and it does not begin again");
}

#[test]
fn a_cancelled_window_stays_cancelled_over_a_restart() {
    let host = SimMachine { respawns: true, ..machine("a", vec![job(1_000)]) };
    let mut scenario = Scenario::new(reference(""), vec![host], wed(14, 0, 0), 4 * 3_600);
    scenario.wishes = vec![(8_000_000, Command::Cancel { event: "TestEvent".into() })];
    scenario.restarts_after = (1..1_000).collect::<std::collections::BTreeSet<u64>>();
    scenario.restarts_after.retain(|n| n % 5 == 0);
    let report = simulate(scenario);
    assert!(report.unconfigured.iter().any(|(_, m)| m == "a"));
    let later = report.vacated.iter().filter(|(at, _)| *at > wed(16, 14, 0)).count();
    assert_eq!(later, 0, "{:?}", report.vacated);
}

#[test]
fn an_operator_can_extend_an_active_window() {
    let command = Command::Extend { event: "TestEvent".into(), by_s: 1_800 };
    let report = wish(wed(16, 50, 0), command, wed(18, 0, 0));
    assert_eq!(report.configured.last().unwrap().2, wed(17, 30, 0));
    assert!(report.respawned[0].0 >= wed(17, 30, 0));
}

#[test]
fn wishes_that_make_no_sense_are_refused_in_words() {
    for command in [
        Command::Cancel { event: "Nobody".into() },
        Command::Extend { event: "TestEvent".into(), by_s: 0 },
        Command::Extend { event: "TestEvent".into(), by_s: i64::MAX },
        Command::Start { event: "TestEvent".into(), at: Some(5), duration_s: None },
        Command::Start { event: "TestEvent".into(), at: None, duration_s: Some(i64::MIN) },
    ] {
        let report = wish(wed(14, 1, 0), command.clone(), wed(14, 2, 0));
        let refused = report.log.iter().any(|(_, r)| matches!(r, Record::OperatorRefused { .. }));
        assert!(refused && report.overrides.is_empty(), "{command:?}");
    }
}

/// A core that was just given its first list at this moment.
fn looked_at(from: i64, ads: &[String]) -> (Core, Now, Vec<Output>) {
    let now = Now { mono_ms: 0, wall_ms: from as u64 * 1_000 };
    let mut core = Core::new(now, reference("EVENTD_INTERVAL = 60\n"), Vec::new());
    let query = question(&core.handle(now, Input::Tick)).unwrap();
    let out = core.handle(now, Input::Machines { query, answer: Ok(parsed(ads)) });
    (core, now, out)
}

fn parsed(ads: &[String]) -> Vec<classad::ClassAd> {
    ads.iter().map(|text| classad::ClassAd::parse_old(text).unwrap()).collect()
}

fn running(name: &str, kb: i64, more: &str) -> String {
    let end = wed(17, 0, 0);
    format!(
        "Name = \"{name}\"\nMachine = \"{name}\"\nState = \"Claimed\"\nJobUniverse = 1\nJobId = \"1.0\"\nImageSize = {kb}\n\
         EndDownTime = {end}\n{more}"
    )
}

fn late(out: &[Output]) -> Vec<i64> {
    let late = |o: &Output| match o {
        Output::Log(Record::AtRisk { late_s, .. }) => Some(*late_s),
        _ => None,
    };
    out.iter().filter_map(late).collect()
}

/// Wakes the core at its own time until it asks, and answers; what it said on the way.
fn answered(core: &mut Core, now: &mut Now, ads: &[String]) -> Vec<Output> {
    for _ in 0..100 {
        let wake = core.next_wake().unwrap().max(now.mono_ms + 1);
        now.wall_ms += wake - now.mono_ms;
        now.mono_ms = wake;
        let mut out = core.handle(*now, Input::Tick);
        let done: Vec<u64> = commands(&out);
        for command in done {
            out.extend(core.handle(*now, Input::Done { command, outcome: maintenance::Outcome::Ok }));
        }
        if let Some(query) = question(&out) {
            out.extend(core.handle(*now, Input::Machines { query, answer: Ok(parsed(ads)) }));
            return out;
        }
    }
    panic!("it never asks");
}

fn commands(out: &[Output]) -> Vec<u64> {
    let of = |o: &Output| match o {
        Output::Configure { command, .. } | Output::Vacate { command, .. } => Some(*command),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

#[test]
fn a_window_that_cannot_be_met_any_more_is_told_at_once_by_the_rate_that_was_measured() {
    // Two of 62,500 KiB at 2 Mb/s take 488 s, and 16 s for a pause, their saving and two breaths; ten minutes are left.
    let two = [running("a", 62_500, ""), running("b", 62_500, "")];
    let (mut core, mut now, out) = looked_at(wed(15, 51, 0), &two);
    assert!(out.iter().any(|o| matches!(o, Output::Log(Record::Activated { needed_s: 504, .. }))), "{out:?}");
    assert_eq!(late(&out), [] as [i64; 0]);
    assert_eq!((core.status()[0].needed_s, core.status()[0].late_s), (Some(504), 0));
    answered(&mut core, &mut now, &two);
    // The first one is on its way at a fifth of the cap.
    let leaving = "State = \"Preempting\"\nCheckpointRemaining = 1200\nCheckpointRate = 52428\n";
    let slow = [running("a", 62_500, leaving), running("b", 62_500, "")];
    let out = answered(&mut core, &mut now, &slow);
    let told = late(&out);
    assert_eq!(told.len(), 1, "{out:?}");
    // 1,200 s for the first, 1,220 for the second, less what is left.
    assert!((1_800..2_000).contains(&told[0]), "{told:?}");
    assert_eq!(core.status()[0].late_s, told[0]);
    assert_eq!(late(&answered(&mut core, &mut now, &slow)), [] as [i64; 0], "once is enough");
    // Both have gone: nothing is late.
    let gone = ["a", "b"].map(|n| {
        format!("Name = \"{n}\"\nMachine = \"{n}\"\nState = \"Owner\"\nEndDownTime = {}\n", wed(17, 0, 0))
    });
    answered(&mut core, &mut now, &gone);
    assert_eq!(core.status()[0].late_s, 0);
}

#[test]
fn a_list_that_cannot_be_had_is_asked_for_again_long_before_the_next_look_and_told_once() {
    let now = Now { mono_ms: 0, wall_ms: wed(10, 0, 0) as u64 * 1_000 };
    let mut core = Core::new(now, reference("EVENTD_INTERVAL = 900\n"), Vec::new());
    let mut out = core.handle(now, Input::Tick);
    let mut told = 0;
    let mut asked = Vec::new();
    let mut now = now;
    while now.mono_ms < 200_000 {
        while let Some(query) = question(&out) {
            asked.push(now.mono_ms);
            let answer = Err("nobody there".to_owned());
            out = core.handle(now, Input::Machines { query, answer });
            told += out.iter().filter(|o| matches!(o, Output::Log(Record::QueryFailed { .. }))).count();
        }
        let wake = core.next_wake().unwrap().max(now.mono_ms + 1);
        now.wall_ms += wake - now.mono_ms;
        now.mono_ms = wake;
        out = core.handle(now, Input::Tick);
    }
    assert_eq!(asked, [0, 30_000, 60_000, 90_000, 120_000, 150_000, 180_000]);
    assert_eq!(told, 1);
}

#[test]
fn a_restarted_daemon_keeps_the_lane_of_a_slot_that_is_still_leaving_when_its_estimate_is_over() {
    // 500 KiB at 2 Mb/s take two seconds. Nobody says how much of it is left: nothing was sent yet.
    let leaving = running("a", 500, "State = \"Preempting\"\n");
    let both = [leaving, running("b", 1_000, "")];
    let (mut core, mut now, mut out) = looked_at(wed(15, 59, 0), &both);
    let vacated = |out: &[Output]| out.iter().any(|o| matches!(o, Output::Vacate { .. }));
    while now.mono_ms < 30_000 {
        assert!(!vacated(&out), "after {} ms", now.mono_ms);
        out = answered(&mut core, &mut now, &both);
    }
    // It has left.
    let gone = format!("Name = \"a\"\nMachine = \"a\"\nState = \"Owner\"\nEndDownTime = {}\n", wed(17, 0, 0));
    let alone = [gone, running("b", 1_000, "")];
    let left = now.mono_ms;
    while !vacated(&out) {
        assert!(now.mono_ms < left + 10_000, "nobody keeps it any more");
        out = answered(&mut core, &mut now, &alone);
    }
    // And one that never leaves keeps it for twice the estimate and a minute.
    let (mut core, mut now, mut out) = looked_at(wed(15, 59, 0), &both);
    while !vacated(&out) {
        assert!(now.mono_ms < 75_000, "not for ever");
        out = answered(&mut core, &mut now, &both);
    }
    assert!(now.mono_ms > 60_000, "{}", now.mono_ms);
}

#[test]
fn a_machine_that_was_just_lost_is_not_held_against_the_window_for_a_minute() {
    // As after a restart of its manager: that one knows a job of 200 s, of which nobody says yet how much is through.
    let away = [running("a", 51_200, "OutOfContact = true\n")];
    let (mut core, mut now, out) = looked_at(wed(15, 58, 0), &away);
    assert_eq!(late(&out), [] as [i64; 0], "nobody knows yet: {out:?}");
    assert!(core.status()[0].needed_s > Some(200), "it stays in the estimate");
    // It is back, and all but through.
    let nearly = "State = \"Preempting\"\nCheckpointRemaining = 10\nCheckpointRate = 262144\n";
    let out = answered(&mut core, &mut now, &[running("a", 51_200, nearly)]);
    assert_eq!(late(&out), [] as [i64; 0], "{out:?}");

    // One that stays away is told, and one that is there is told at once, whoever else is away.
    let (mut core, mut now, mut out) = looked_at(wed(15, 58, 0), &away);
    while late(&out).is_empty() {
        assert!(now.mono_ms < 130_000, "never told");
        out = answered(&mut core, &mut now, &away);
    }
    assert!(now.mono_ms >= 60_000, "{}", now.mono_ms);
    let both = [running("a", 51_200, "OutOfContact = true\n"), running("b", 51_200, "")];
    let (_, _, out) = looked_at(wed(15, 58, 0), &both);
    let told = late(&out);
    // The one that is there takes 200 s and some, of which two minutes are left.
    assert!(told.len() == 1 && (80..95).contains(&told[0]), "{told:?}");
}

#[test]
fn a_lane_is_free_when_its_job_is_gone_however_long_it_was_reckoned_with() {
    // 51,200 KiB are 200 s by the estimate; the checkpoint is really through in a few.
    let mine = |id: &str, state: &str| running("a", 51_200, state).replace("1.0", id);
    let second = running("b", 51_200, "").replace("1.0", "2.0");
    let both = [mine("1.0", ""), second.clone()];
    let (mut core, mut now, mut out) = looked_at(wed(15, 53, 0), &both);
    let vacated = |out: &[Output]| {
        out.iter().find_map(|o| match o {
            Output::Vacate { slots, .. } => Some(slots[0].slot.clone()),
            _ => None,
        })
    };
    while vacated(&out).is_none() {
        assert!(now.mono_ms < 10_000);
        out = answered(&mut core, &mut now, &both);
    }
    assert_eq!(vacated(&out).as_deref(), Some("a"));
    let sent = now.mono_ms;
    // As long as it is there nobody else goes.
    let leaving = [mine("1.0", "State = \"Preempting\"\n"), second.clone()];
    while now.mono_ms < sent + 20_000 {
        assert_eq!(vacated(&answered(&mut core, &mut now, &leaving)), None);
    }
    // Its slot is no more, as a slot that was cut for its claim; or another job runs there, which is not the one that was sent.
    for left in [&[second.clone()][..], &[mine("3.0", "State = \"Preempting\"\n"), second.clone()]] {
        let (mut core, mut now) = (core.clone(), now);
        let gone = now.mono_ms;
        let mut out = Vec::new();
        while vacated(&out).is_none() && now.mono_ms < gone + 100_000 {
            out = answered(&mut core, &mut now, left);
        }
        let is_free = left.len() == 1;
        assert_eq!(now.mono_ms < gone + 15_000, is_free, "after {} ms", now.mono_ms - gone);
    }
}

#[test]
fn how_late_a_window_is_is_told_as_it_becomes_less() {
    let two = [running("a", 51_200, ""), running("b", 51_200, "")];
    let (mut core, mut now, out) = looked_at(wed(15, 58, 0), &two);
    let told = late(&out)[0];
    assert_eq!(core.status()[0].late_s, told);
    let out = answered(&mut core, &mut now, &[running("b", 51_200, "")]);
    assert_eq!(late(&out), [] as [i64; 0]);
    assert!((1..told - 150).contains(&core.status()[0].late_s), "{} of {told}", core.status()[0].late_s);
}
