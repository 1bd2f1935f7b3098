//! Lines, parameters, and what is said about wrong ones.

use maintenance::event::{Days, parse};
use proptest::prelude::*;

use crate::fixture::*;

/// The only finding of an event line, with the good event beside it still loaded.
fn wrong(line: &str) -> String {
    let text = format!(
        "# pool\nEVENT_LIST = Good, Bad\nGood = SHUTDOWN W 16:00 3600 2 C R\nBad = {line}\nC = true\nR = 0\nNever = false && Rack == 1\nBroken = 1 +\n"
    );
    let (settings, findings) = load(&text);
    assert_eq!(settings.events.len(), 1, "{line}");
    assert_eq!(settings.events[0].name, "Good");
    assert_eq!(findings.len(), 1, "{line}: {findings:?}");
    findings[0].to_string()
}

#[test]
fn every_mistake_names_file_line_and_place() {
    let shown = wrong("SHUTDOWN MX 16:00 3600 2 C R");
    assert!(shown.starts_with("pool.conf:4:17: error: event Bad: 'X' is no day of the week"), "{shown}");
    assert!(shown.contains("\n 4 | Bad = SHUTDOWN MX 16:00"), "{shown}");
    assert!(shown.contains("R is Thursday"), "{shown}");
    for (line, expected) in [
        ("SHUTDOWN W 16:00 3600 2 Missing R", "4:31: error: event Bad: macro Missing is not defined"),
        ("SHUTDOWN W 16:00 3600 2 C Missing", "macro Missing is not defined"),
        ("SHUTDOWN MTWRFSU 16:00 86401 2 C R", "longer than the event's own period (86400 s)"),
        ("SHUTDOWN W 16:00 604801 2 C R", "longer than the event's own period"),
        ("SHUTDOWN FU 16:00 172801 2 C R", "period (172800 s)"),
        ("SHUTDOWN 2026-11-18,2026-11-19 16:00 86401 2 C R", "longer than what its dates allow"),
        ("SHUTDOWN W 16:00 3600 0 C R", "no job could ever leave"),
        ("SHUTDOWN W 16:00 3600 fast C R", "is no bandwidth"),
        ("SHUTDOWN W 16:00 3600 2@ C R", "is no attribute name"),
        ("SHUTDOWN W 16:00 3600 2 Never R", "7:9: error: event Bad: Never is always false"),
        ("SHUTDOWN W 16:00 3600 2 Broken R", "8:"),
        ("SHUTDOWN W 24:00 3600 2 C R", "is no time of day"),
        ("SHUTDOWN W 16:60 3600 2 C R", "is no time of day"),
        ("SHUTDOWN W 16 3600 2 C R", "is no time of day"),
        ("SHUTDOWN W 16:00 0 2 C R", "a window of no length"),
        ("SHUTDOWN W 16:00 1:75 2 C R", "is no duration"),
        ("SHUTDOWN W 16:00 -5 2 C R", "is no duration"),
        ("SHUTDOWN 2026-02-30 16:00 3600 2 C R", "is no date"),
        ("SHUTDOWN W 16:00 3600 2 C", "missing: rank"),
        ("SHUTDOWN W 16:00 3600 2 C R more", "one field too many"),
        ("SHUTDOWN W 16:00 3600 2 (Rack==1) R", "is not the name of a macro"),
        ("REBOOT W 16:00 3600 2 C R", "unknown event type"),
        ("SHUTDOWN_NOW W 16:00 3600 2 C R", "unknown event type"),
    ] {
        let shown = wrong(line);
        assert!(shown.contains(expected), "{line}\n{shown}");
        assert!(shown.contains("pool.conf:"), "{shown}");
    }
}

#[test]
fn several_mistakes_in_one_line_are_all_reported() {
    let faults = parse("SHUTDOWN X 99:00 0 0 C R").unwrap_err();
    assert_eq!(faults.len(), 4);
}

#[test]
fn durations_are_seconds_or_hours_and_minutes() {
    let seconds = |d: &str| parse(&format!("SHUTDOWN W 4:00 {d} 2 C R")).unwrap().duration_s;
    assert_eq!(seconds("3600"), 3_600);
    assert_eq!(seconds("1:00"), 3_600);
    assert_eq!(seconds("26:30"), 95_400);
}

#[test]
fn options_days_and_domains_are_read() {
    let line = parse("shutdown_standard_runtime mtwmU 04:05 60 0.5@Subnet C R").unwrap();
    assert!(line.runtime && line.standard);
    assert_eq!(line.domain.as_deref(), Some("Subnet"));
    assert!(matches!(&line.days, Days::Weekly(d) if d.to_string() == "MTWU"));
    assert_eq!(line.days.to_string(), "MTWU");
    let dated = parse("SHUTDOWN 2026-12-24,2026-11-18 04:05 60 2 C R").unwrap();
    assert_eq!(dated.days.to_string(), "2026-11-18,2026-12-24");
}

#[test]
fn parameters_have_the_defaults_of_the_seed_and_are_checked() {
    let s = reference("");
    assert_eq!((s.interval_s, s.max_preparation_s, s.slow_start_s, s.cleanup_s), (900, 0, 0, 3_600));
    assert_eq!((s.debug.as_str(), s.log.as_str(), s.dry_run), ("D_ALWAYS", "", false));
    let more = "LOG = /var/log\nEVENTD_LOG = $(LOG)/EventdLog\nEVENTD_DEBUG = D_FULLDEBUG\nEVENTD_INTERVAL = 60\n\
        EVENTD_MAX_PREPARATION = 7200\nEVENTD_SHUTDOWN_SLOW_START_INTERVAL = 5\n\
        EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 50\nEVENTD_SIMULATE_SHUTDOWNS = True\nEVENTD_BANDWIDTH_DOMAIN = Subnet\n\
        EVENTD_WARNING = 300\n";
    let s = reference(more);
    assert_eq!((s.interval_s, s.max_preparation_s, s.slow_start_s, s.cleanup_s), (60, 7_200, 5, 50));
    assert_eq!((s.debug.as_str(), s.log.as_str(), s.dry_run), ("D_FULLDEBUG", "/var/log/EventdLog", true));
    assert_eq!(s.events[0].line.domain.as_deref(), Some("Subnet"));
    assert_eq!(s.warning_s, 300);
    for bad in [
        "EVENTD_INTERVAL = 0",
        "EVENTD_MAX_PREPARATION = -1",
        "EVENTD_TIME_ZONE = Europe/Nowhere",
        "EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 0",
        "EVENTD_BANDWIDTH_DOMAIN = a b",
    ] {
        let (s, findings) = load(&format!("{REFERENCE}{bad}\n"));
        assert_eq!(findings.len(), 1, "{bad}");
        assert!(findings[0].to_string().contains("pool.conf:5"), "{}", findings[0]);
        assert_eq!(s.events.len(), 1, "events still load");
    }
}

#[test]
fn an_empty_list_says_so() {
    let (s, findings) = load("A = 1\n");
    assert!(s.events.is_empty());
    assert!(findings[0].message.contains("EVENT_LIST is empty"));
}

#[test]
fn the_seeds_own_example_loads_with_its_slip_reported() {
    let text = "EVENTD_LOG = $(LOG)/EventdLog\nEVENTD_DEBUG = D_FULLDEBUG\nEVENTD_INTERVAL = 900\n\
        EVENT_LIST = TestEvent, TestEvent2\n\
        TestEvent = SHUTDOWN W 16:00 3600 2 TestEventConstraint TestEventRank\n\
        TestEvent = SHUTDOWN F 14:00 1200 2 TestEventConstraint2 TestEventRank\n\
        TestEventConstraint = (Machine == \"froth.cs.wisc.edu\")\n\
        TestEventConstraint2 = (Machine == \"perdita.cs.wisc.edu\")\n\
        TestEventRank = (0 - ImageSize)\nEVENTD_SHUTDOWN_SLOW_START_INTERVAL = 0\n";
    let (s, findings) = load(text);
    assert_eq!(s.events.len(), 1);
    assert_eq!(s.events[0].line.days.to_string(), "F", "the second definition counts");
    assert_eq!(findings.len(), 1);
    assert!(findings[0].to_string().contains("pool.conf:4:"), "{}", findings[0]);
}

proptest! {
    #[test]
    fn no_line_makes_the_parser_panic(line in "(SHUTDOWN )?[ -~\u{e9}\u{2003}:@,0-9MTWRFSU]{0,60}") {
        let _ = parse(&line);
    }
}

#[test]
fn settings_as_text_are_the_same_settings() {
    let text = "EVENT_LIST = A, B, C\nA = SHUTDOWN_RUNTIME_STANDARD MWF 03:05 1:30 2.5@Net Mine Small\n\
                B = SHUTDOWN 2026-11-20,2026-12-01 16:00 3600 20 Some Small\nC = SHUTDOWN u 0:00 60 0.125 Yes Yes\n\
                Mine = (Owner =!= \"it is \\\"mine\\\"\") && regexp(\"^a$\", Machine)\nSome = Rack == 7 || Rack is undefined\n\
                Small = 0 - ImageSize\nYes = true\nEVENTD_INTERVAL = 60\nEVENTD_MAX_PREPARATION = 7200\n\
                EVENTD_SHUTDOWN_SLOW_START_INTERVAL = 5\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 77\nEVENTD_WARNING = 9\n\
                EVENTD_SIMULATE_SHUTDOWNS = True\nEVENTD_TIME_ZONE = Europe/Berlin\n";
    let once = settings(text);
    let twice = settings(&once.to_string());
    assert_eq!(once.to_string(), twice.to_string());
    assert_eq!(twice.zone.iana_name(), Some("Europe/Berlin"));
    assert!(twice.dry_run);
    for (a, b) in once.events.iter().zip(&twice.events) {
        let fields = |e: &maintenance::Event| {
            let l = &e.line;
            (
                e.name.clone(),
                l.runtime,
                l.standard,
                l.days.clone(),
                l.time,
                l.duration_s,
                l.megabits.to_bits(),
                l.domain.clone(),
            )
        };
        assert_eq!(fields(a), fields(b));
        assert_eq!(
            (a.constraint.to_string(), a.rank.to_string()),
            (b.constraint.to_string(), b.rank.to_string())
        );
    }
    assert_eq!(twice.events.len(), 3);
    assert_eq!(twice.events[0].line.duration_s, 5_400);
}

#[test]
fn a_macro_that_goes_round_in_a_circle_costs_the_events_that_use_it() {
    let text = "EVENT_LIST = Good, Bad, Worse\nGood = SHUTDOWN W 16:00 3600 2 All All\nBad = SHUTDOWN W 16:00 3600 2 Round All\n\
                Worse = $(Round)\nAll = true\nRound = $(Trip)\nTrip = $(Round)\n";
    let (settings, findings) = load(text);
    let kept: Vec<&str> = settings.events.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(kept, ["Good"]);
    let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|s| s.contains("circular definition")), "{said:?}");
}

#[test]
fn what_must_be_a_moment_or_a_number_is_one() {
    let events = "EVENT_LIST = E\nE = SHUTDOWN W 16:00 60 2 C R\nC = true\n";
    for (more, what, line) in [
        ("R = 0\nEndDownTime = abc\n", "EndDownTime must be a whole number, not \"abc\"", 5),
        ("R = 0\nNextDownTime = 12:00\n", "NextDownTime must be a whole number", 5),
        ("R = \"big\"\n", "R is always \"big\", which is no number", 4),
        ("R = undefined\n", "R is always undefined, which is no number", 4),
    ] {
        let (settings, findings) = load(&format!("{events}{more}"));
        assert_eq!(settings.events.len(), 1, "a rank that is no number ranks nobody, as in the original");
        let found = findings.iter().find(|f| f.message.contains(what));
        let Some(found) = found else { panic!("{more}: {findings:?}") };
        assert!(found.to_string().contains(&format!("pool.conf:{line}")), "{found}");
        assert_eq!(found.is_error(), more.contains("DownTime"), "{found}");
    }
    let (settings, findings) = load(&format!("{events}R = True\nEndDownTime = 1795000000 + 3600\n"));
    assert!(findings.is_empty() && settings.events.len() == 1, "{findings:?}");
}
