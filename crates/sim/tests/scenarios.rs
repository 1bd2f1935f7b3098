//! Every scenario of the reference, to the letter.

use std::path::PathBuf;

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
