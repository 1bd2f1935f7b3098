//! The recorded cases: must-match against what the original printed, the others against what is right.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use bridge::seg::slurm::live::Status;
use bridge::seg::{Module, State, slurm};
use serde_json::Value;

use crate::harness::{Outcome, once, options, reading, start};

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
        // Recorded as must-match, but the original printed the code "1" of a line that then went on with "2". Its own
        // second reading of the same file prints 12: a line counts only with its newline.
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
fn m1_fake_logs_make_the_events_that_are_known() {
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

/// What the original's adapters answered when they were asked for a job's state, row by row.
fn table(scheduler: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(scheduler).join("poll/states.tsv")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn states_of_slurm_are_those_of_its_adapter_where_it_has_one() {
    let mut more = Vec::new();
    for row in table("slurm") {
        // The other rows are situations, not states.
        let Some(word) = row.first().filter(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        else {
            continue;
        };
        let ours = slurm::status(word.as_bytes()).map(|status| match status {
            Status::Pending => State::Pending,
            Status::Active => State::Active,
            Status::Suspended => State::Suspended,
            Status::Ended(state) => state,
        });
        let theirs = row[1].parse().ok().and_then(State::from_number);
        match (ours, theirs) {
            (Some(_), None) => more.push(word.clone()),
            _ => assert_eq!(ours, theirs, "{word}"),
        }
    }
    // Ends that the adapter overlooked until the job was forgotten, and then took for good ones.
    let ends = ["PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED", "RECONFIG_FAIL"];
    assert_eq!(more, ends);
}

#[test]
fn states_of_condor_are_those_of_its_adapter_where_the_protocol_has_them() {
    let mut different = Vec::new();
    for row in table("condor") {
        let log = root().join("condor/poll").join(&row[0]);
        let output = once(Module::Condor, &log, &reading(1, "UTC")).output;
        let text = String::from_utf8(output).unwrap();
        let of_the_job: Vec<_> = text.lines().filter(|line| line.contains(";040.")).collect();
        let ended = of_the_job.iter().filter(|line| line.contains(";8;") || line.contains(";4;")).count();
        let last = of_the_job.last().map_or("1", |line| line.split(';').nth(3).unwrap());
        // The adapter's answer is for all procs of the cluster together.
        let is_part = row[1].parse::<usize>().unwrap() > ended && ended > 0;
        let state = if is_part { "2" } else { last };
        if state != row[2] {
            different.push((row[0].clone(), state.to_owned()));
        }
    }
    // The protocol tells no eviction, and a job that a signal ended has failed: so the module of the original, too.
    let known = [("evicted.log", "2"), ("signalled.log", "4")].map(|(log, state)| (log.into(), state.into()));
    assert_eq!(different, known);
}
