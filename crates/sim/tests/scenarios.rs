//! Every scenario of the reference, to the letter.

use std::path::PathBuf;

use sim::lab::Singles;
use sim::run::play_with;

fn files() -> Vec<PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/scenarios/scheduling");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("scenarios are there")
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_of_the_reference_passes_to_the_letter() {
    let mut wrong = Vec::new();
    let files = files();
    let mut rows = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).expect("readable");
        let scenario = sim::scenario::Scenario::read(&text).expect("a scenario");
        let played = sim::run::play(&scenario).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        rows += played.lines.len();
        for line in played.lines.iter().filter(|l| !l.differs.is_empty()) {
            wrong.push(format!(
                "{} step {} ({}): {}",
                scenario.id,
                line.step,
                line.event,
                line.differs.join("; ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(files.len() >= 44, "{} scenarios", files.len());
    println!("{} scenarios, {rows} rows", files.len());
}

/// Sets of one recipe are plain jobs to most people. They stand in another line than gangs, by the same order, so every row must be
/// the same but for words that are the planner's (why a set waits, what is said about it) or a gang's (aborted is held). How long a
/// plain job has waited in vain is counted by the manager's ticks, of which S35 has only the last.
#[test]
fn every_scenario_passes_with_plain_jobs_in_place_of_sets_of_one() {
    let mut wrong = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).expect("readable");
        let scenario = sim::scenario::Scenario::read(&text).expect("a scenario");
        let played = play_with(&scenario, Singles::Plain).expect("playable");
        for (line, def) in played.lines.iter().zip(&scenario.step) {
            let plain = |words: &str| words.replace("(unsat)", "").replace("aborted", "held");
            let same = |expected: &Option<String>, got: &str| {
                expected.as_ref().is_none_or(|e| plain(e) == plain(got))
                    || line.event == "sweep" && scenario.id == "S35"
            };
            let broken: Vec<&String> = line.differs.iter().filter(|d| !d.contains("expected `")).collect();
            if !same(&def.sets, &line.sets) || !same(&def.systems, &line.systems) || !broken.is_empty() {
                wrong.push(format!(
                    "{} step {} ({}): {}",
                    scenario.id,
                    line.step,
                    line.event,
                    line.differs.join("; ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
