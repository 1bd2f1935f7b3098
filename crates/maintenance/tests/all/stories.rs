//! Whole stories, word for word: everything that the core says and does in a few rich scenarios, and what plan and drawing make of
//! them. A change of a second or of a word shows here; whether it is meant is for whoever changes it to say.
//!
//! `MAINTENANCE_STORIES=write` writes the files anew; read the difference before committing it.

use jiff::tz::TimeZone;
use maintenance::plan;
use maintenance::record::Record;
use maintenance::simulate::{Report, Scenario, SimJob, SimMachine, simulate};
use maintenance::{Command, Window};

use crate::fixture::*;

/// Compares with a file of `tests/all/stories`.
fn assert_told(file: &str, told: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/stories").join(file);
    if std::env::var("MAINTENANCE_STORIES").is_ok_and(|word| word == "write") {
        std::fs::write(&path, told).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (is, should)) in told.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, should, "{file}, line {}", number + 1);
    }
    assert_eq!(told.lines().count(), expected.lines().count(), "{file} has another length");
}

fn clock(at: i64) -> String {
    maintenance::record::moment(&TimeZone::UTC, at)
}

/// The log with each thing that was said again and again said once, with the moments of the first and the last time.
fn condense(log: &[(i64, Record)]) -> Vec<String> {
    // What is known by, what is shown, first and last moment, how often.
    let mut said: Vec<(String, String, i64, i64, usize)> = Vec::new();
    for (at, record) in log {
        let shown = record.text(&TimeZone::UTC);
        let mut record = record.clone();
        match &mut record {
            Record::Estimated { left_s, .. } => *left_s = left_s.signum(),
            Record::AtRisk { late_s, .. } => *late_s = late_s.signum(),
            _ => {}
        }
        let key = record.text(&TimeZone::UTC);
        match said.iter_mut().find(|(known, ..)| *known == key) {
            Some((_, _, _, last, times)) => (*last, *times) = (*at, *times + 1),
            None => said.push((key, shown, *at, *at, 1)),
        }
    }
    said.into_iter()
        .map(|(_, text, first, last, times)| match times {
            1 => format!("{} {text}", clock(first)),
            _ => format!("{} {text} [{times} times, last {}]", clock(first), clock(last)),
        })
        .collect()
}

fn tell(title: &str, report: &Report) -> String {
    let mut lines = vec![format!("# {title}")];
    lines.extend(condense(&report.log));
    lines.extend(report.vacated.iter().map(|(at, slot)| format!("vacated {} {slot}", clock(*at))));
    lines.extend(
        report
            .left
            .iter()
            .map(|(at, slot)| format!("left {}.{:03} {slot}", clock((*at / 1_000) as i64), at % 1_000)),
    );
    lines.extend(
        report
            .configured
            .iter()
            .map(|(at, m, end)| format!("configured {} {m} until {}", clock(*at), clock(*end))),
    );
    lines.extend(report.unconfigured.iter().map(|(at, m)| format!("unconfigured {} {m}", clock(*at))));
    lines.extend(
        report.warned.iter().map(|(at, slot, left)| format!("warned {} {slot} {left} s", clock(*at))),
    );
    lines.extend(report.respawned.iter().map(|(at, slot)| format!("began {} {slot}", clock(*at))));
    lines.extend(report.transfers.iter().map(|t| {
        let (from, to) = (t.from_ms, t.to_ms);
        format!("sent {from} to {to} in {:?} at {:.0} B/s", t.domain, t.bytes_per_second)
    }));
    lines.push(format!(
        "{} questions, {} steps, in flight {:?}",
        report.queries.len(),
        report.steps,
        report.most_in_flight()
    ));
    lines.push(report.text());
    lines.join("\n") + "\n"
}

fn on(net: &str, host: SimMachine) -> SimMachine {
    SimMachine { attributes: vec![("Net".into(), format!("\"{net}\""))], ..host }
}

// Jobs are what slots hold, and a slot may hold none.
#[allow(clippy::unnecessary_wraps)]
fn sized(id: &str, image_kb: i64) -> Option<SimJob> {
    Some(SimJob { id: id.into(), image_kb, checkpointable: true, saving_ms: 3_000, ..SimJob::default() })
}

/// Three windows that overlap, two domains, gangs (one of unknown size), jobs without checkpoints, a machine that refuses, one that
/// cannot be reached, one that comes late and one that vanishes.
fn busy_day() -> Scenario {
    let text = "EVENTD_BANDWIDTH_DOMAIN = Net\nEVENTD_INTERVAL = 120\nEVENT_LIST = All, Early, Late\n\
        All = SHUTDOWN W 16:00 3600 4 CA R\nEarly = SHUTDOWN W 15:50 1800 2@Net CE R\nLate = SHUTDOWN_RUNTIME W 16:10 5400 4 CL R\n\
        CA = Machine =!= \"outside\"\nCE = Net == \"x\"\nCL = Net == \"y\" && Machine =!= \"y4\"\nR = 0 - ImageSize\n";
    let machines = vec![
        on("x", SimMachine { respawns: true, ..machine("x1", vec![sized("1.0", 30_000), vanilla()]) }),
        on("x", machine("x2", vec![gang(40_000, "7"), sized("1.1", 9_000)])),
        on("x", SimMachine { refuses: true, ..machine("x3", vec![sized("1.2", 5_000)]) }),
        on("y", machine("y1", vec![gang(20_000, "7"), None])),
        on(
            "y",
            SimMachine {
                unreachable_ms: Some((2_000_000, 4_900_000)),
                ..machine("y2", vec![sized("2.0", 12_000)])
            },
        ),
        on(
            "y",
            SimMachine {
                appears_ms: 3_000_000,
                restarts_ms: vec![5_000_000],
                ..machine("y3", vec![sized("2.1", 8_000)])
            },
        ),
        on(
            "y",
            SimMachine { vanishes_ms: Some(3_300_000), ..machine("y4", vec![gang(0, "8"), gang(0, "8")]) },
        ),
        on("y", machine("outside", vec![gang(10_000, "8")])),
    ];
    Scenario::new(settings(text), machines, wed(15, 0, 0), 3 * 3_600)
}

#[test]
fn a_busy_day_goes_as_written() {
    let mut told = tell("a busy day", &simulate(busy_day()));
    let slow =
        Scenario { latency_ms: 700, loss_permille: 150, seed: 7, tells_remaining: false, ..busy_day() };
    told.push_str(&tell("the same over a bad line, and nobody says how long he takes", &simulate(slow)));
    assert_told("busy-day.txt", &told);
}

#[test]
fn operators_and_clocks_are_heard_as_written() {
    let event = || "TestEvent".to_owned();
    let wishes = vec![
        (600_000, Command::Start { event: event(), at: None, duration_s: Some(900) }),
        (900_000, Command::Extend { event: event(), by_s: 1 }),
        (1_000_000, Command::Extend { event: event(), by_s: 0 }),
        (1_200_000, Command::Cancel { event: event() }),
        (1_300_000, Command::Cancel { event: "Nobody".into() }),
        (6_000_000, Command::Cancel { event: event() }),
    ];
    let hosts = || {
        let host =
            |name: &str, kb| SimMachine { respawns: true, ..machine(name, vec![sized("1.0", kb), None]) };
        vec![host("a", 1_000), host("b", 70_000), machine("c", vec![vanilla()])]
    };
    let calm = Scenario::new(reference("EVENTD_INTERVAL = 300\n"), hosts(), wed(14, 30, 0), 4 * 3_600);
    let mut told = tell("an operator's day", &simulate(Scenario { wishes, ..calm.clone() }));
    for (title, jumps) in [
        ("a clock that is set back by a day while a window is prepared", vec![(5_000_000, -86_400_000)]),
        ("a clock that is set back a little while a window is prepared", vec![(5_000_000, -100_000)]),
        ("a clock that is set forward into the window", vec![(1_000_000, 4_500_000)]),
    ] {
        told.push_str(&tell(title, &simulate(Scenario { jumps, ..calm.clone() })));
    }
    let restarts_after = [3, 9, 17, 30].into();
    told.push_str(&tell("a core that is restarted", &simulate(Scenario { restarts_after, ..calm })));
    assert_told("operators-and-clocks.txt", &told);
}

#[test]
fn a_plan_and_its_drawing_are_as_written() {
    let busy = busy_day();
    let planned = plan(wed(15, 20, 0), &busy.settings, &[], &[], &busy.ads());
    assert_told("plan.txt", &planned.text(4));
    assert_told("plan.svg", &planned.svg());
    let (settings, ads) = maintenance::plan::sample(40);
    let weekly = plan(wed(15, 58, 0), &settings, &[], &[], &ads);
    assert_told("weekly.txt", &weekly.text(3));
    assert_told("weekly.svg", &weekly.svg());
    // Nothing to empty, and no event at all.
    assert_told("nobody.svg", &plan(wed(12, 0, 0), &reference(""), &[], &[], &[]).svg());
    assert_told("nothing.svg", &plan(0, &maintenance::Settings::default(), &[], &[], &[]).svg());
}

#[test]
fn every_record_has_its_words() {
    let (event, machine) = (|| "Weekly".to_owned(), || "m1".to_owned());
    let window = Window { start: wed(16, 0, 0), end: wed(17, 0, 0) };
    let end_down_time = window.end;
    let records = [
        Record::NothingToDo,
        Record::Loaded { events: 2 },
        Record::Next { event: event(), window },
        Record::Estimated { event: event(), slots: 3, needed_s: 40, transfer_s: 30, left_s: 50 },
        Record::Estimated { event: event(), slots: 3, needed_s: 40, transfer_s: 30, left_s: -1 },
        Record::Activated { event: event(), window, needed_s: 40 },
        Record::AtRisk { event: event(), late_s: 12 },
        Record::Configuring { event: event(), machine: machine(), end_down_time },
        Record::Configured { machine: machine(), end_down_time },
        Record::Vacating { event: event(), slots: vec!["a".into(), "b".into()], cost_ms: 12_340 },
        Record::Warned { slot: "slot1@m1".into(), remaining_s: 5 },
        Record::Drained { event: event(), manager: "pool".into(), lifted: false },
        Record::Drained { event: event(), manager: "pool".into(), lifted: true },
        Record::Failed { what: "vacating".into(), whom: "a".into(), why: "refused: no".into() },
        Record::CleaningUp { machine: machine(), end_down_time },
        Record::CleanedUp { machine: machine() },
        Record::Empty { event: event() },
        Record::Deactivated { event: event() },
        Record::QueryFailed { event: Some(event()), why: "down".into() },
        Record::QueryFailed { event: None, why: "down".into() },
        Record::TooManySlots { ignored: 7 },
        Record::ClockJumped { by_s: -3_600 },
        Record::Operator { what: "Weekly: cancelled".into() },
        Record::OperatorRefused { why: "no such event".into() },
        Record::Would { what: "vacate a".into() },
    ];
    let lines: Vec<String> = records.iter().map(|record| record.text(&TimeZone::UTC)).collect();
    assert_told("records.txt", &(lines.join("\n") + "\n"));
}

/// More slots than the core looks at are told of by how many there are too many.
#[test]
fn slots_beyond_the_limit_are_counted() {
    use maintenance::{Core, Input, Output, limits};
    let now = model::Now { mono_ms: 0, wall_ms: wed(15, 0, 0) as u64 * 1_000 };
    let mut core = Core::new(now, reference(""), Vec::new());
    let asked = core.handle(now, Input::Tick);
    let query =
        asked.iter().find_map(|o| if let Output::Query { query, .. } = o { Some(*query) } else { None });
    let ads = vec![classad::ClassAd::new(); limits::SLOTS + 3];
    let out = core.handle(now, Input::Machines { query: query.unwrap(), answer: Ok(ads) });
    assert!(out.iter().any(|o| matches!(o, Output::Log(Record::TooManySlots { ignored: 3 }))));
}

#[test]
fn what_is_wrong_in_an_event_is_told_at_its_place() {
    let lines = [
        "",
        "SHUTDOWN",
        "REBOOT W 16:00 3600 2 C R",
        "SHUTDOWN_FAST W 16:00 3600 2 C R",
        "SHUTDOWN X 16:00 3600 2 C R",
        "SHUTDOWN MTXWF 16:00 3600 2 C R",
        "SHUTDOWN 2026-11-18,2026-13-01 16:00 3600 2 C R",
        "SHUTDOWN 2026-11-18,20261124xx,2026-12-24 16:00 3600 2 C R",
        "SHUTDOWN 2026-W47-3 16:00 3600 2 C R",
        "SHUTDOWN W 25:00 3600 2 C R",
        "SHUTDOWN W 16:60 3600 2 C R",
        "SHUTDOWN W 1600 3600 2 C R",
        "SHUTDOWN W 16:00 0 2 C R",
        "SHUTDOWN W 16:00 1:60 2 C R",
        "SHUTDOWN W 16:00 99999999 2 C R",
        "SHUTDOWN W 16:00 3600 0 C R",
        "SHUTDOWN W 16:00 3600 -2 C R",
        "SHUTDOWN W 16:00 3600 2@ C R",
        "SHUTDOWN W 16:00 3600 2@1x C R",
        "SHUTDOWN W 16:00 3600 fast@Net C R",
        "SHUTDOWN W 16:00 3600 2 Nobody R",
        "SHUTDOWN W 16:00 3600 2 C Nobody",
        "SHUTDOWN W 16:00 3600 2 C R more",
        "SHUTDOWN X 25:00 0 0 Nobody Nobody",
    ];
    let mut told = String::new();
    for line in lines {
        let (_, findings) = load(&format!("EVENT_LIST = E\nE = {line}\nC = true\nR = 0\n"));
        let words: Vec<String> = findings.iter().map(ToString::to_string).collect();
        told.push_str(&format!("{line:?}\n{}\n", words.join("\n")));
    }
    assert_told("wrong.txt", &told);
}

/// Members whose size nobody knows share the cap of their own lane in equal parts, whoever is in other lanes.
#[test]
fn a_gang_of_unknown_size_divides_the_cap_of_each_lane() {
    use maintenance::{Core, Input, Outcome, Output};
    let text = REFERENCE.replace("3600 2 ", "3600 2@Net ");
    let ad = |name: &str, net: &str| {
        let text = format!(
            "Name = \"{name}\"\nMachine = \"{name}\"\nNet = \"{net}\"\nState = \"Claimed\"\nJobId = \"1.0\"\n\
             JobUniverse = 5\nJobCheckpointable = true\nGangId = \"7\"\n"
        );
        classad::ClassAd::parse_old(&text).unwrap()
    };
    let ads = vec![ad("x1", "x"), ad("x2", "x"), ad("y1", "y")];
    let now = |s: i64| model::Now { mono_ms: s as u64 * 1_000, wall_ms: (wed(15, 59, 0) + s) as u64 * 1_000 };
    let mut core = Core::new(now(0), settings(&text), Vec::new());
    let mut rates: Vec<(String, Option<u64>)> = Vec::new();
    for second in 0..50 {
        let mut due = core.handle(now(second), Input::Tick);
        while let Some(output) = due.pop() {
            let input = match output {
                Output::Query { query, .. } => Input::Machines { query, answer: Ok(ads.clone()) },
                Output::Configure { command, .. } => Input::Done { command, outcome: Outcome::Ok },
                Output::Vacate { command, slots, .. } => {
                    rates.extend(slots.into_iter().map(|s| (s.slot, s.bytes_per_second)));
                    Input::Done { command, outcome: Outcome::Ok }
                }
                _ => continue,
            };
            due.extend(core.handle(now(second), input));
        }
    }
    rates.sort();
    rates.dedup();
    let cap = 2 * 131_072;
    assert_eq!(
        rates,
        [("x1".to_owned(), Some(cap / 2)), ("x2".to_owned(), Some(cap / 2)), ("y1".to_owned(), Some(cap))]
    );
}
