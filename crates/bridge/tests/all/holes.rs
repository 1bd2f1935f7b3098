//! Rotated files that are missing, and what stands in their place and is no file.

use std::fs;
use std::path::Path;
use std::process::Command;

use bridge::seg::Module;
use bridge::seg::run::End;

use crate::harness::{Outcome, once, options, reading, start};
use crate::rotation::{BEGIN, SINGLE, record, seconds};

fn write_logs(place: &Path, module: Module, names: &[&str]) {
    for (at, name) in names.iter().enumerate() {
        fs::write(place.join(name), record(module, at as u32 + 1)).unwrap();
    }
}

fn assert_missing(outcome: Outcome, missing: &[&str], what: &str) {
    let notes = &outcome.notes;
    assert_eq!(notes.len(), missing.len(), "{what}: {notes:?}");
    for name in missing {
        let said = format!("/{name} is missing: what it held is not told");
        assert!(notes.iter().any(|note| note.contains(&said)), "{what}: {notes:?}");
    }
    let end = if missing.is_empty() { End::Told } else { End::Incomplete };
    assert_eq!(outcome.end.unwrap(), end, "{what}: {notes:?}");
}

#[test]
fn the_newest_rotated_file_is_missed_too() {
    for (names, missing) in [
        (&["log.2", "log"][..], &["log.1"][..]),
        (&["log.3", "log"], &["log.1"]),
        (&["log.3", "log.2", "log"], &["log.1"]),
        (&["log.5", "log.2", "log"], &["log.1", "log.3"]),
        (&["log.2"], &["log.1"]),
        // Numbers begin with 0 or with 1, and names of another kind may have taken their place.
        (&["log.1", "log"], &[]),
        (&["log.1", "log.0", "log"], &[]),
        (&["log.0", "log"], &[]),
        (&["log.2", "log.old", "log"], &[]),
        (&["log.3", "log.2", "log-20240302", "log"], &[]),
        (&["log-20240302", "log.2", "log"], &["log.1"]),
    ] {
        for module in SINGLE {
            let place = tempfile::tempdir().unwrap();
            write_logs(place.path(), module, names);
            let what = format!("{} {names:?}", module.name());
            let outcome = once(module, &place.path().join("log"), &reading(1, "UTC"));
            let told: Vec<i64> = (1..=names.len() as i64).collect();
            assert_eq!(seconds(&outcome), told, "{what} {:?}", outcome.notes);
            let has_log = names.contains(&"log");
            if has_log {
                assert_missing(outcome, missing, &what);
            } else {
                assert!(outcome.notes.iter().any(|note| note.contains("log.1 is missing")), "{what}");
            }
        }
    }
}

#[test]
fn a_file_that_is_missing_before_the_wanted_time_is_nobodys_trouble() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("log.2"), record(Module::Fork, 1)).unwrap();
    fs::write(place.path().join("log"), record(Module::Fork, 5_000)).unwrap();
    let outcome = once(Module::Fork, &place.path().join("log"), &reading(BEGIN + 6_000, "UTC"));
    assert_missing(outcome, &[], "later");
    let outcome = once(Module::Fork, &place.path().join("log"), &reading(BEGIN + 1, "UTC"));
    assert_missing(outcome, &["log.1"], "from the begin");
}

#[test]
fn files_that_are_missing_in_a_directory_of_logs_are_said() {
    for (names, missing) in [
        (&["a.log.2", "a.log"][..], &["a.log.1"][..]),
        (&["a.log.4", "a.log.1", "a.log"], &["a.log.2"]),
        (&["a.log.3", "a.log.2", "a.log", "b.log.1", "b.log"], &["a.log.1"]),
        (&["a.log.1", "a.log"], &[]),
        (&["a.log.1", "a.log.0", "a.log"], &[]),
        (&["a.log.2", "a.log.old", "a.log"], &[]),
        // Logs of their own.
        (&["job.2", "job.3", "job.7"], &[]),
        (&["job.1234", "job"], &[]),
    ] {
        let place = tempfile::tempdir().unwrap();
        write_logs(place.path(), Module::Condor, names);
        let what = format!("{names:?}");
        assert_missing(once(Module::Condor, place.path(), &reading(1, "UTC")), missing, &what);
        // While following, too; nothing has to come.
        let running = start(Module::Condor, place.path(), &reading(1, "UTC"), options());
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        running.settle(0);
        let outcome = running.finish();
        assert_eq!(outcome.notes.len(), missing.len(), "{what}: {:?}", outcome.notes);
    }
}

#[test]
fn what_is_no_file_in_place_of_a_rotated_one_is_said() {
    for (what, said) in
        [("pipe", "this is a pipe"), ("directory", "this is a directory"), ("loop", "symbolic links")]
    {
        for module in SINGLE {
            let place = tempfile::tempdir().unwrap();
            let at = |name: &str| place.path().join(name);
            fs::write(at("log.2"), record(module, 1)).unwrap();
            fs::write(at("log"), record(module, 2)).unwrap();
            match what {
                "pipe" => assert!(Command::new("mkfifo").arg(at("log.1")).status().unwrap().success()),
                "directory" => fs::create_dir(at("log.1")).unwrap(),
                _ => std::os::unix::fs::symlink("log.1", at("log.1")).unwrap(),
            }
            let paths = if module == Module::Condor { vec![at("log"), at("")] } else { vec![at("log")] };
            for path in paths {
                let outcome = once(module, &path, &reading(1, "UTC"));
                let case = format!("{what} {} {} {:?}", module.name(), path.display(), outcome.notes);
                assert_eq!((seconds(&outcome), outcome.notes.len()), (vec![1, 2], 1), "{case}");
                let note = &outcome.notes[0];
                assert!(note.contains("log.1: ") && note.contains(said), "{case}");
                assert_eq!(outcome.end.unwrap(), End::Incomplete, "{case}");
            }
        }
    }
}
