//! The plan agrees with what the simulation does.

use maintenance::estimate::SAVING_MS;
use maintenance::simulate::{Scenario, SimJob, machines_of, simulate};
use maintenance::{Begun, Window, plan};

use crate::fixture::*;

fn ads(jobs: &[(&str, i64, i64)]) -> Vec<classad::ClassAd> {
    jobs.iter()
        .map(|(name, universe, kb)| {
            let text = format!(
                "Name = \"{name}\"\nMachine = \"{name}\"\nState = \"Claimed\"\nJobUniverse = {universe}\nImageSize = {kb}\n"
            );
            classad::ClassAd::parse_old(&text).unwrap()
        })
        .collect()
}

#[test]
fn the_plan_of_the_reference_timeline() {
    let plan =
        plan(wed(14, 0, 0), &reference(""), &[], &[], &ads(&[("large", 1, 156_000), ("small", 1, 100_000)]));
    let event = &plan.events[0];
    assert_eq!((event.transfer_s, event.slots, event.machines), (1_000, 2, 2));
    // A pause, twice 5 s to save and 1.5 s from one to the next.
    assert_eq!(event.needed_s, 1_015);
    // start - needed - interval
    assert_eq!(event.activates, wed(15, 28, 5));
    let steps = &event.lanes[0].steps;
    assert_eq!(steps[0].slots, ["small"]);
    assert_eq!(steps[0].from_ms, wed(15, 28, 7) * 1_000);
    assert_eq!(steps[1].from_ms - steps[0].from_ms, 5_000 + 390_625 + 1_500);
    assert_eq!(event.slack_s, 901);
    assert!(event.at_risk.is_empty());
}

#[test]
fn what_cannot_end_in_time_is_at_risk() {
    let plan = plan(
        wed(15, 55, 0),
        &reference(""),
        &[],
        &[],
        &ads(&[("a", 1, 50_000), ("b", 1, 90_000), ("v", 5, 60_000)]),
    );
    let event = &plan.events[0];
    assert_eq!(event.at_risk, ["b"]);
    assert_eq!(event.loses_work, ["v"]);
    assert!(event.slack_s < 0);
    let text = plan.text(10);
    assert!(text.contains("AT RISK, not empty at the start: 1 slots: b"), "{text}");
    assert!(text.contains("(no checkpoint)"), "{text}");
}

/// As long as is assumed of a job that was never seen to save its work.
fn slow(job: SimJob) -> SimJob {
    SimJob { saving_ms: SAVING_MS, ..job }
}

#[test]
fn plan_and_simulation_agree_about_order_and_pace() {
    let jobs: Vec<(String, i64)> =
        (0..20).map(|i| (format!("m{i:02}"), 3_000 + (i * 7_919) % 20_000)).collect();
    let list: Vec<(&str, i64, i64)> = jobs.iter().map(|(n, kb)| (n.as_str(), 1, *kb)).collect();
    let now = wed(15, 45, 0);
    let plan = plan(now, &reference(""), &[], &[], &ads(&list));
    let machines = jobs.iter().map(|(name, kb)| machine(name, vec![job(*kb).map(slow)])).collect();
    let report = simulate(Scenario::new(reference(""), machines, now, 1_800));
    let planned: Vec<(i64, &str)> =
        plan.events[0].lanes[0].steps.iter().map(|s| (s.from_ms / 1_000, s.slots[0].as_str())).collect();
    let done: Vec<(i64, &str)> = report.vacated.iter().map(|(at, s)| (*at, s.as_str())).collect();
    // Somebody looks each second, so each may go up to a breath earlier than planned, and never later.
    for (index, ((p, a), (d, b))) in planned.iter().zip(&done).enumerate() {
        assert_eq!(a, b);
        assert!(d <= p && p - d <= 2 * index as i64, "{index}: planned {p}, done {d}");
    }
    assert_eq!(planned.len(), done.len());
}

#[test]
fn the_drawing_is_well_formed_labelled_and_bounded() {
    let (settings, ads) = plan::sample(3_000);
    let svg = plan(wed(12, 0, 0), &settings, &[], &[], &ads).svg();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let legend = ["saves its work", "loses its work", "not over at the start"];
    for word in ["UTC", "start", "Subnet=10.0.3 (100 Mb/s)", "to spare"].into_iter().chain(legend) {
        assert!(svg.contains(word), "{word}");
    }
    // The paper, the hatching and the legend have no title.
    assert_eq!(svg.matches("<rect").count(), svg.matches("</rect>").count() + 6);
    assert!(svg.len() < 2_000_000, "{}", svg.len());
    let odd = crate::plan::ads(&[("a<b>&\\\"", 1, 5)]);
    let svg = plan(wed(15, 0, 0), &reference(""), &[], &[], &odd).svg();
    assert!(svg.contains("a&lt;b&gt;&amp;"), "{svg}");
}

#[test]
fn a_lane_with_a_long_name_fits_beside_its_bars() {
    let (settings, mut ads) = plan::sample(16);
    for ad in &mut ads {
        ad.insert_str("Subnet", &format!("first-{}-last", "x".repeat(300)));
    }
    let svg = plan(wed(12, 0, 0), &settings, &[], &[], &ads).svg();
    let label = svg.lines().find(|l| l.contains("class=\"e\"")).unwrap();
    let words = label.split(['<', '>']).nth(2).unwrap();
    assert!(words.starts_with("Subnet=first-") && words.ends_with("-last (100 Mb/s)"), "{words}");
    let x: f64 = label.split('"').nth(1).unwrap().parse().unwrap();
    assert!(words.chars().count() as f64 * 7.0 <= x + 8.0, "{label}");
}

#[test]
fn an_empty_pool_and_no_events_are_planned_too() {
    assert!(plan(wed(12, 0, 0), &reference(""), &[], &[], &[]).svg().contains("</svg>"));
    assert!(plan(0, &maintenance::Settings::default(), &[], &[], &[]).text(5).contains("no window"));
}

#[test]
fn a_simulation_of_a_pools_own_ads_commands_its_slots_by_their_names() {
    // As a real pool has them: the machine's own Name in its ad, several slots, one of them idle, one machine with an override.
    let ad = |slot: &str, machine: &str, job: &str| {
        let text = format!(
            "Memory = 4096\nName = \"{slot}@{machine}\"\nMachine = \"{machine}\"\nState = \"Claimed\"\n{job}"
        );
        classad::ClassAd::parse_old(&text).unwrap()
    };
    let job = |id: &str, kb: i64| {
        format!("JobId = \"{id}\"\nJobUniverse = 5\nJobCheckpointable = true\nImageSize = {kb}\n")
    };
    let pool = [
        ad("slot1_1", "a", &job("1.0", 20_000)),
        ad("slot1_2", "a", &job("1.1", 10_000)),
        ad("slot1", "b", ""),
        ad("slot1_1", "c", &job("2.0", 30_000)),
        ad("slot2_1", "c", &(job("2.1", 5_000) + &format!("EndDownTime = {}\n", wed(18, 0, 0)))),
    ];
    let now = wed(15, 30, 0);
    let machines = machines_of(&pool, now);
    assert_eq!(
        machines.iter().map(|m| (m.name.as_str(), m.slots.len())).collect::<Vec<_>>(),
        [("a", 2), ("b", 1), ("c", 2)]
    );
    let report = simulate(Scenario::new(reference(""), machines, now, 3_600));
    let vacated: Vec<&str> = report.vacated.iter().map(|(_, slot)| slot.as_str()).collect();
    let plan = plan(now, &reference(""), &[], &[], &pool);
    let planned: Vec<&String> = plan.events[0].lanes[0].steps.iter().flat_map(|s| &s.slots).collect();
    assert_eq!(vacated, ["slot2_1@c", "slot1_2@a", "slot1_1@a", "slot1_1@c"]);
    assert_eq!(vacated, planned, "plan and simulation");
    assert!(report.all_empty());
    let configured: Vec<&str> = report.configured.iter().map(|(_, m, _)| m.as_str()).collect();
    assert_eq!(configured, ["a", "b"], "c says already that it starts nothing until after the window");
}

/// The window of the reference, under way.
fn under_way() -> Begun {
    Begun { event: "TestEvent".into(), window: Window { start: wed(16, 0, 0), end: wed(17, 0, 0) } }
}

#[test]
fn a_window_under_way_is_planned_from_now_on() {
    let now = wed(15, 35, 0);
    // One is on its way with 100 s to go, the next waits for it; without jobs left there would be no need to begin for long.
    let mut pool = ads(&[("first", 1, 100_000), ("second", 1, 20_000)]);
    pool[0].insert_str("State", "Preempting");
    pool[0].insert_int("CheckpointRemaining", 100);
    pool[0].insert_int("CheckpointRate", 262_144);
    let settings = reference("EVENTD_INTERVAL = 10\n");
    let plan = plan(now, &settings, &[], &[under_way()], &pool);
    let event = &plan.events[0];
    assert!(event.is_active);
    assert_eq!(event.activates, now, "it was activated: nothing is waited for");
    let steps = &event.lanes[0].steps;
    assert_eq!(steps.len(), 1, "who is on its way is not sent again");
    assert_eq!(steps[0].from_ms, now * 1_000 + 100_000 + 1_500);
    // 100 s, a breath, 5 s to save, 20,000 KiB at 2 Mb/s, a breath.
    assert_eq!(event.needed_s, 187);
    let text = plan.text(5);
    assert!(text.contains("under way: the rest takes 187 s") && !text.contains("activation"), "{text}");

    let machines = machines_of(&pool, now);
    let scenario =
        Scenario { begun: vec![under_way()], ..Scenario::new(settings.clone(), machines, now, 3_000) };
    let report = simulate(scenario);
    let left: Vec<(u64, &str)> = report.left.iter().map(|(at, slot)| (*at / 1_000, slot.as_str())).collect();
    assert_eq!(left[0], (now as u64 + 100, "first"), "it goes on from where it is: {left:?}");
    assert_eq!(left[1].1, "second");
    let over = (now + event.needed_s) as u64;
    assert!((over - 8..=over).contains(&left[1].0), "{left:?} and the plan says {over}");
    assert!(report.all_empty());
}

#[test]
fn a_window_under_way_with_nothing_left_says_so() {
    for (now, state) in [(wed(15, 50, 0), "before"), (wed(16, 10, 0), "after")] {
        let plan = plan(now, &reference(""), &[], &[under_way()], &ads(&[])[..]);
        let text = plan.text(5);
        assert!(text.contains("under way: nothing is left to vacate"), "{state} its start: {text}");
    }
    // One that is over is none any more: the next is planned.
    let later = plan(wed(17, 0, 0), &reference(""), &[], &[under_way()], &[]);
    assert!(!later.events[0].is_active && later.events[0].window.start == at(25, 16, 0, 0));
}

#[test]
fn what_an_earlier_core_began_goes_on_at_once() {
    use maintenance::{Core, Input, Output, Record};
    let now = model::Now { mono_ms: 0, wall_ms: wed(15, 0, 0) as u64 * 1_000 };
    for begun in [true, false] {
        let mut core = Core::new(now, reference(""), Vec::new());
        core.take_up(now, if begun { vec![under_way()] } else { Vec::new() });
        let asked = core.handle(now, Input::Tick).into_iter().find_map(|output| match output {
            Output::Query { query, .. } => Some(query),
            _ => None,
        });
        let answer = Input::Machines { query: asked.unwrap(), answer: Ok(ads(&[("a", 1, 1_000)])) };
        let out = core.handle(now, answer);
        let activated = out.iter().any(|o| matches!(o, Output::Log(Record::Activated { .. })));
        assert_eq!(activated, begun, "{out:?}");
        assert_eq!(core.status()[0].is_active, begun);
    }
}
