//! Rotated files whose names are of several kinds: what they hold says which is older.

use std::fs;
use std::time::Duration;

use bridge::seg::Module;
use bridge::seg::run::End;

use crate::harness::{once, options, reading, start};
use crate::rotation::{BEGIN, record, seconds};

/// A log that is rotated to numbers and to dates, at a time or one after the other.
#[test]
fn rotated_files_with_names_of_several_kinds_are_told_in_the_order_of_their_times() {
    for module in [Module::Fork, Module::Sge, Module::Slurm, Module::Condor] {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        // What was changed last was written first, as after a restore.
        for (name, at) in [("log", 5), ("log.1", 3), ("log-20261018", 4), ("log.2", 1), ("log-20261016", 2)] {
            fs::write(place.path().join(name), record(module, at)).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let outcome = once(module, &log, &reading(1, "UTC"));
        assert_eq!(seconds(&outcome), [1, 2, 3, 4, 5], "{} {:?}", module.name(), outcome.notes);
        assert_eq!((outcome.notes.len(), outcome.end.unwrap()), (0, End::Told));
        // From a time on: nothing that is newer is taken for older.
        let outcome = once(module, &log, &reading(BEGIN + 4, "UTC"));
        assert_eq!(seconds(&outcome), [4, 5], "{} {:?}", module.name(), outcome.notes);
        // The same file under a name of another kind is told once.
        fs::copy(place.path().join("log.1"), place.path().join("log-20261017")).unwrap();
        let outcome = once(module, &log, &reading(1, "UTC"));
        assert_eq!(seconds(&outcome), [1, 2, 3, 4, 5], "{} {:?}", module.name(), outcome.notes);
    }
}

#[test]
fn a_number_that_is_missing_is_said_whatever_stands_between() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for (name, second) in [("log.3", 1), ("log-20261018", 2), ("log.1", 3), ("log", 4)] {
        fs::write(at(name), record(Module::Fork, second)).unwrap();
    }
    for is_mixed in [true, false] {
        let outcome = once(Module::Fork, &at("log"), &reading(1, "UTC"));
        let expected = if is_mixed { vec![1, 2, 3, 4] } else { vec![1, 3, 4] };
        assert_eq!((seconds(&outcome), outcome.notes.len()), (expected, 1), "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("log.2 is missing"), "{:?}", outcome.notes);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
        let _ = fs::remove_file(at("log-20261018"));
    }
}

#[test]
fn files_that_came_and_went_to_names_of_another_kind_are_told_while_following() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("log.1"), record(Module::Fork, 1)).unwrap();
    fs::write(at("log"), record(Module::Fork, 2)).unwrap();
    let running = start(Module::Fork, &at("log"), &reading(1, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    // Two are made aside, so that the second is gone from the path before anybody looks.
    fs::write(at("aside"), record(Module::Fork, 3)).unwrap();
    fs::write(at("next"), record(Module::Fork, 4)).unwrap();
    fs::rename(at("log"), at("log-20261017")).unwrap();
    fs::rename(at("aside"), at("log")).unwrap();
    fs::rename(at("log"), at("log-20261018")).unwrap();
    fs::rename(at("next"), at("log")).unwrap();
    running.settle(before);
    let outcome = running.finish();
    assert_eq!(seconds(&outcome), [1, 2, 3, 4], "{:?}", outcome.notes);
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}

/// The time of a job event log's first event, in any form, to tell how old the file is.
#[test]
fn job_event_logs_say_when_they_were_written() {
    let mut format = Module::Condor.format(&reading(1, "America/New_York"));
    for (line, when) in [
        ("000 (1.000.000) 2024-08-01 08:13:01 Job submitted", Some(1_722_514_381)),
        ("000 (1.000.000) 2024-08-01T08:13:01.5Z Job submitted", Some(1_722_499_981)),
        ("    <a n=\"EventTime\"><s>2024-08-01T08:13:01</s></a>", Some(1_722_514_381)),
        ("  \"EventTime\": \"2024-08-01T08:13:01+02:00\",", Some(1_722_492_781)),
        ("000 (1.000.000) 08/01 08:13:01 Job submitted", None),
        ("    EventTime", None),
        ("...", None),
    ] {
        assert_eq!(format.when(line.as_bytes()), when, "{line}");
        assert_eq!(format.stamp(line.as_bytes()), None, "it is read from its start");
    }
}
