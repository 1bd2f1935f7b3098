//! Every standing against every input: which numbered transitions follow. A dash is no transition.

use std::collections::BTreeSet;

use policy::{Expression, Input, Machine, Policy, Readings, Standing};

use super::world::{CLAIM, RIVAL, SLOT, deeds, job, machine, ms, path, policy};

/// A policy that is moved by plain attributes.
pub(crate) fn levers() -> Policy {
    policy(&[
        (Expression::Start, "Open && (TARGET.Bad =!= true)"),
        (Expression::Suspend, "Stop"),
        (Expression::Continue, "Go"),
        (Expression::Preempt, "Out"),
        (Expression::Kill, "Dead"),
        (Expression::WantSuspend, "Soft"),
        (Expression::WantVacate, "Polite"),
        (Expression::PeriodicCheckpoint, "Save"),
        (Expression::RunBenchmarks, "Bench"),
    ])
}

/// Nobody wants anything.
pub(crate) fn calm() -> Readings {
    let mut readings = Readings::default().with("Open", true).with("Soft", true).with("Polite", true);
    for name in ["Stop", "Go", "Out", "Dead", "Save", "Bench"] {
        readings = readings.with(name, false);
    }
    readings
}

fn feel(machine: &mut Machine, at_s: u64, name: &str, value: bool) {
    machine.handle(ms(at_s), Input::Sensors(Readings::default().with(name, value)));
}

/// A machine whose slot stands there, at second 100.
fn reach(standing: Standing) -> Machine {
    let mut m = machine(levers());
    let claim = |m: &mut Machine| {
        m.handle(ms(100), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
    };
    let activate = |m: &mut Machine| {
        claim(m);
        m.handle(ms(100), Input::Activate { claim: CLAIM, job: job("") });
    };
    m.handle(ms(100), Input::Sensors(calm()));
    m.handle(ms(100), Input::Look);
    match standing {
        Standing::Owner => feel(&mut m, 100, "Open", false),
        Standing::UnclaimedIdle => {}
        Standing::Benchmarking => feel(&mut m, 100, "Bench", true),
        Standing::Matched => drop(m.handle(ms(100), Input::Match { slot: SLOT, claim: CLAIM, room: None })),
        Standing::ClaimedIdle => claim(&mut m),
        Standing::Busy => activate(&mut m),
        Standing::Suspended => {
            activate(&mut m);
            feel(&mut m, 100, "Stop", true);
        }
        Standing::Vacating => {
            activate(&mut m);
            m.handle(ms(100), Input::Vacate { slot: None, fast: false });
        }
        Standing::Killing => {
            activate(&mut m);
            m.handle(ms(100), Input::Vacate { slot: None, fast: true });
        }
    }
    m.handle(ms(100), Input::Look);
    m.handle(ms(100), Input::Sensors(calm()));
    if standing == Standing::Owner {
        feel(&mut m, 100, "Open", false);
    }
    assert_eq!(m.standing(SLOT), Some(standing));
    m
}

fn numbers(actions: &[policy::Action]) -> String {
    let numbers: Vec<String> = path(actions).iter().map(|(_, n)| n.to_string()).collect();
    if numbers.is_empty() { "-".to_owned() } else { numbers.join(" ") }
}

type Row = (&'static str, fn() -> Input, [&'static str; 9]);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    //                                                                          Owner  Uncl   Bench  Match  Idle      Busy  Susp     Vac     Kill
    ("match, own",       || Input::Match { slot: SLOT, claim: CLAIM, room: None },          ["-",  "6",   "6",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("match, other",     || Input::Match { slot: SLOT, claim: RIVAL, room: None },          ["-",  "6",   "6",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("claim, own",       || claim(CLAIM, ""),                                   ["-",  "5",   "5",   "8",   "-",      "-",  "-",     "-",    "-"]),
    ("claim, other",     || claim(RIVAL, ""),                                   ["-",  "5",   "5",   "-",   "9 18",   "12", "15",    "-",    "-"]),
    ("bad claim, own",   || claim(CLAIM, "Bad = true"),                         ["-",  "2 1", "2 1", "7 1", "-",      "-",  "-",     "-",    "-"]),
    ("bad claim, other", || claim(RIVAL, "Bad = true"),                         ["-",  "2 1", "2 1", "-",   "-",      "-",  "-",     "-",    "-"]),
    ("activate",         || Input::Activate { claim: CLAIM, job: job("") },     ["-",  "-",   "-",   "-",   "10",     "-",  "-",     "-",    "-"]),
    ("bad activate",     || Input::Activate { claim: CLAIM, job: job("Bad=true") }, ["-", "-", "-",  "-",   "-",      "-",  "-",     "-",    "-"]),
    ("activate, other",  || Input::Activate { claim: RIVAL, job: job("") },     ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("job changed",      || Input::JobChanged { claim: CLAIM, changes: job("") }, ["-", "-",  "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("starter gone",     || Input::StarterGone { claim: CLAIM },                ["-",  "-",   "-",   "-",   "-",      "11", "14 11", "17 1", "19 1"]),
    ("other's starter",  || Input::StarterGone { claim: RIVAL },                ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("release",          || Input::Release { claim: CLAIM },                    ["-",  "-",   "-",   "7 1", "9 17 1", "12", "15",    "-",    "-"]),
    ("release, other",   || Input::Release { claim: RIVAL },                    ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("lease expired",    || Input::LeaseExpired { claim: CLAIM },               ["-",  "-",   "-",   "7 1", "9 17 1", "12", "15",    "-",    "-"]),
    ("vacate",           || Input::Vacate { slot: Some(SLOT), fast: false },    ["-",  "-",   "-",   "7 1", "9 17 1", "12", "15",    "-",    "-"]),
    ("vacate fast",      || Input::Vacate { slot: Some(SLOT), fast: true },     ["-",  "-",   "-",   "7 1", "9 17 1", "12", "15",    "16",   "-"]),
    ("checkpoint",       || Input::Checkpoint { slot: Some(SLOT) },             ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("suspend",          || Input::Suspend { slot: Some(SLOT) },                ["-",  "-",   "-",   "-",   "-",      "13", "-",     "-",    "-"]),
    ("continue",         || Input::Continue { slot: Some(SLOT) },               ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("benchmark done",   || Input::BenchmarkFinished { mips: 1, kflops: 1 },    ["-",  "-",   "4",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("benchmark given up", || Input::BenchmarkStopped,                            ["-",  "-",   "4",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("new policy",       || Input::Policy(Box::new(levers())),                  ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("sensors",          || Input::Sensors(calm()),                             ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("tick, not due",    || Input::Tick,                                        ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    ("look, calm",       || Input::Look,                                        ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
];

fn claim(claim: model::id::ClaimId, extra: &str) -> Input {
    Input::Claim { slot: SLOT, claim, job: job(extra) }
}

type Lever = (&'static str, bool);

/// What an evaluation does when these levers are moved.
#[rustfmt::skip]
const LEVERS: &[(&[Lever], [&str; 9])] = &[
    //                                  Owner  Uncl   Bench  Match  Idle      Busy  Susp     Vac     Kill
    (&[("Open", true)],                ["1",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    (&[("Open", false)],               ["-",  "2",   "2",   "7",   "9 17",   "-",  "-",     "-",    "-"]),
    (&[("Stop", true)],                ["-",  "-",   "-",   "-",   "-",      "13", "-",     "-",    "-"]),
    (&[("Stop", true), ("Soft", false)], ["-", "-",  "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    (&[("Out", true)],                 ["-",  "-",   "-",   "-",   "-",      "-",  "15",    "-",    "-"]),
    (&[("Out", true), ("Soft", false)], ["-", "-",   "-",   "-",   "-",      "12", "15",    "-",    "-"]),
    (&[("Out", true), ("Go", true)],   ["-",  "-",   "-",   "-",   "-",      "-",  "15",    "-",    "-"]),
    (&[("Go", true)],                  ["-",  "-",   "-",   "-",   "-",      "-",  "14",    "-",    "-"]),
    (&[("Dead", true)],                ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "16",   "-"]),
    (&[("Save", true)],                ["-",  "-",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    (&[("Bench", true)],               ["-",  "3",   "-",   "-",   "-",      "-",  "-",     "-",    "-"]),
    (&[("Bench", true), ("Open", false)], ["-", "2", "2",   "7",   "9 17",   "-",  "-",     "-",    "-"]),
];

#[test]
fn every_pair_of_standing_and_input() {
    let mut wrong = Vec::new();
    for (name, input, row) in TABLE {
        for (standing, expected) in Standing::ALL.into_iter().zip(row) {
            let got = numbers(&reach(standing).handle(ms(101), input()));
            if got != *expected {
                wrong.push(format!("{standing}, {name}: expected {expected}, got {got}"));
            }
        }
    }
    for (levers, row) in LEVERS {
        for (standing, expected) in Standing::ALL.into_iter().zip(row) {
            let mut m = reach(standing);
            for (name, value) in *levers {
                feel(&mut m, 101, name, *value);
            }
            let got = numbers(&m.handle(ms(101), Input::Look));
            if got != *expected {
                wrong.push(format!("{standing}, {levers:?}: expected {expected}, got {got}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_transition_number_is_taken_somewhere() {
    let mut seen = BTreeSet::new();
    let mut note = |actions: &[policy::Action]| seen.extend(path(actions).into_iter().map(|(_, n)| n));
    for (_, input, _) in TABLE {
        for standing in Standing::ALL {
            note(&reach(standing).handle(ms(101), input()));
        }
    }
    for (levers, _) in LEVERS {
        for standing in Standing::ALL {
            let mut m = reach(standing);
            for (name, value) in *levers {
                feel(&mut m, 101, name, *value);
            }
            note(&m.handle(ms(101), Input::Look));
        }
    }
    // 18 and 20 need a rival that waits.
    for fast in [false, true] {
        let mut m = reach(Standing::Busy);
        note(&m.handle(ms(101), claim(RIVAL, "")));
        if fast {
            note(&m.handle(ms(102), Input::Vacate { slot: None, fast }));
        }
        let actions = m.handle(ms(103), Input::StarterGone { claim: CLAIM });
        assert_eq!(path(&actions), [("Claimed/Idle".to_owned(), if fast { 20 } else { 18 })]);
        assert_eq!(deeds(&actions), ["ClaimLost", "ClaimAccepted"]);
        assert_eq!(m.claim_of(SLOT), Some(RIVAL));
        note(&actions);
    }
    seen.remove(&0);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn deadlines_are_exact() {
    let mut m = reach(Standing::Matched);
    assert_eq!(m.next_wake_ms(), ms(300), "the update comes first");
    m.handle(ms(300), Input::Tick);
    assert_eq!(m.next_wake_ms(), ms(400));
    assert_eq!(numbers(&m.handle(ms(400), Input::Tick)), "7 1");
    let mut m = reach(Standing::Killing);
    for t in [105, 110, 115, 120, 125] {
        assert_eq!(m.next_wake_ms(), ms(t));
        assert!(deeds(&m.handle(ms(t), Input::Tick)).is_empty());
    }
    let actions = m.handle(ms(130), Input::Tick);
    assert_eq!((deeds(&actions), numbers(&actions)), (vec!["KillStarter".to_owned()], "-".to_owned()));
    assert_eq!(m.standing(SLOT), Some(Standing::Killing), "until the starter is really gone");
    let again: Vec<String> = (131..=160).flat_map(|t| deeds(&m.handle(ms(t), Input::Tick))).collect();
    assert_eq!(again, ["KillStarter"]);
}
