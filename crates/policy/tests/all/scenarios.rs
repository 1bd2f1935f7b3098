//! Every row of tests/vectors/policy/scenarios.jsonl in virtual time, with the shipped policies.
//!
//! Conventions of the rows: within one second first protocol events, then timers, then polls; the sensors are read
//! before every call.

use std::collections::BTreeSet;

use policy::slots::Layout;
use policy::{Action, CheckpointWhy, Input, Machine, Readings};
use serde_json::Value as Json;

use super::world::{CLAIM, EPOCH_S, RIVAL, SLOT, TOTAL, job, load, ms};

fn rows() -> Vec<Json> {
    let text = include_str!("../../../../tests/vectors/policy/scenarios.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn policy_text(row: &Json) -> String {
    let file = match row["policy"].as_str().unwrap() {
        "default" => "desktop.conf",
        "cs" => "cs.conf",
        "cs_coltrane" => "cs-testing.conf",
        other => panic!("no policy {other}"),
    };
    let benchmarks = if row["benchmarks"].is_null() {
        "RunBenchmarks = False"
    } else {
        "RunBenchmarks = (LastBenchmark == 0) || ((CurrentTime - LastBenchmark) >= (4 * $(HOUR)))"
    };
    let alias = row["alias"].as_bool().unwrap_or(true);
    format!("include : {file}\n{benchmarks}\nALIAS_VANILLA_EXPRESSIONS = {alias}\n")
}

/// What the sensors see at a second of a row.
fn readings(row: &Json, t: u64) -> Readings {
    let list = |name: &str| row[name].as_array().cloned().unwrap_or_default();
    let mut idle = row["initial_keyboard_idle"].as_u64().unwrap() + t;
    for span in list("keyboard") {
        let (from, to) = (span[0].as_u64().unwrap(), span[1].as_u64().unwrap());
        if from <= t {
            idle = idle.min(t - to.min(t));
        }
    }
    let steps = list("noncondor_load");
    let load =
        steps.iter().rev().find(|s| s[0].as_u64().unwrap() <= t).map_or(0.0, |s| s[1].as_f64().unwrap());
    Readings::default().with("KeyboardIdle", idle as i64).with("LoadAvg", load).with("CondorLoadAvg", 0.0)
}

fn job_of(arguments: &Json) -> classad::ClassAd {
    let universe = if arguments["universe"] == "vanilla" { 5 } else { 1 };
    let image = arguments["img"].as_i64().unwrap_or(5_000);
    let owner = arguments["owner"].as_str().unwrap_or("alice");
    job(&format!("JobUniverse = {universe}; ImageSize = {image}; Owner = \"{owner}\""))
}

/// When, to where, by which number.
type Moves = Vec<(u64, String, u64)>;
/// When, what.
type Deeds = Vec<(u64, String)>;

/// Plays a row; what happened, and which checkpoints and kills were ordered.
fn play(row: &Json) -> (Moves, Deeds) {
    let mut trace = Vec::new();
    let mut deeds = Vec::new();
    let events: Vec<Json> = row["events"].as_array().cloned().unwrap_or_default();
    let activation = events.iter().find(|e| e[1] == "activate").map_or(Json::Null, |e| e[2].clone());
    let policy = load(&policy_text(row)).unwrap();
    let (mut machine, started) =
        Machine::start("host", policy, &Layout::whole(TOTAL), readings(row, 0), ms(0));
    let mut gone_at = None;
    let mut benchmark_ends = None;
    let mut note =
        |t: u64, actions: Vec<Action>, gone_at: &mut Option<u64>, benchmark_ends: &mut Option<u64>| {
            for action in actions {
                match action {
                    Action::Trace(r) => {
                        trace.push((r.at_ms / 1_000 - EPOCH_S, r.to.to_string(), u64::from(r.number())))
                    }
                    Action::SoftKill { .. } => *gone_at = row["vacate_takes"].as_u64().map(|s| t + s),
                    Action::HardKill { .. } => *gone_at = row["kill_takes"].as_u64().map(|s| t + s),
                    Action::KillStarter { .. } => {
                        *gone_at = Some(t);
                        deeds.push((t, "SIGKILL to starter family".to_owned()));
                    }
                    Action::Checkpoint { why: CheckpointWhy::Periodic, .. } => {
                        deeds.push((t, "periodic checkpoint".to_owned()));
                    }
                    Action::StartBenchmark => *benchmark_ends = row["benchmarks"].as_u64().map(|s| t + s),
                    Action::Warn(w) => panic!("{}: {w:?}", row["id"]),
                    _ => {}
                }
            }
        };
    note(0, started, &mut gone_at, &mut benchmark_ends);
    for t in 0..=row["end"].as_u64().unwrap() {
        machine.handle(ms(t), Input::Sensors(readings(row, t)));
        let mut inputs = Vec::new();
        for event in events.iter().filter(|e| e[0].as_u64() == Some(t)) {
            let job = job_of(if event[2].is_object() { &event[2] } else { &activation });
            inputs.push(match event[1].as_str().unwrap() {
                "match" => Input::Match { slot: SLOT, claim: CLAIM, room: None },
                "claim" => Input::Claim { slot: SLOT, claim: CLAIM, job },
                "activate" => Input::Activate { claim: CLAIM, job },
                "job_exit" => Input::StarterGone { claim: CLAIM },
                "release" => Input::Release { claim: CLAIM },
                "vacate_cmd" => Input::Vacate { slot: Some(SLOT), fast: false },
                "better_match" => Input::Claim { slot: SLOT, claim: RIVAL, job },
                "image_size" => {
                    let mut changes = classad::ClassAd::new();
                    changes.insert_int("ImageSize", event[2].as_i64().unwrap());
                    Input::JobChanged { claim: CLAIM, changes }
                }
                other => panic!("no event {other}"),
            });
        }
        if gone_at == Some(t) {
            gone_at = None;
            inputs.push(Input::StarterGone { claim: CLAIM });
        }
        if benchmark_ends == Some(t) {
            benchmark_ends = None;
            inputs.push(Input::BenchmarkFinished { mips: 100, kflops: 1_000 });
        }
        for input in inputs {
            let actions = machine.handle(ms(t), input);
            note(t, actions, &mut gone_at, &mut benchmark_ends);
        }
        if machine.next_wake_ms() <= ms(t) {
            let actions = machine.handle(ms(t), Input::Tick);
            note(t, actions, &mut gone_at, &mut benchmark_ends);
        }
        // A starter that is killed for good is gone within the second.
        if gone_at == Some(t) {
            gone_at = None;
            let actions = machine.handle(ms(t), Input::StarterGone { claim: CLAIM });
            note(t, actions, &mut gone_at, &mut benchmark_ends);
        }
    }
    (trace, deeds)
}

#[test]
fn every_row_happens_as_written() {
    let mut failures = Vec::new();
    let mut seen = BTreeSet::new();
    let rows = rows();
    assert_eq!(rows.len(), 41);
    for row in &rows {
        let (trace, deeds) = play(row);
        let expected: Vec<(u64, String, u64)> = row["expect"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| {
                (
                    e["t"].as_u64().unwrap(),
                    e["to"].as_str().unwrap().to_owned(),
                    e["transition"].as_u64().unwrap(),
                )
            })
            .collect();
        let expected_deeds: Vec<(u64, String)> = row["actions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|a| (a["t"].as_u64().unwrap(), a["what"].as_str().unwrap().to_owned()))
            .collect();
        seen.extend(trace.iter().map(|(_, _, number)| *number));
        if trace != expected || deeds != expected_deeds {
            failures.push(format!(
                "{}: expected {expected:?} {expected_deeds:?}\n     got      {trace:?} {deeds:?}",
                row["id"]
            ));
        }
    }
    assert!(failures.is_empty(), "{} of {} rows:\n{}", failures.len(), rows.len(), failures.join("\n"));
    println!("{} rows; transitions {seen:?}", rows.len());
}
