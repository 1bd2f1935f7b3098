//! Directories of many logs, among which files change their names.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use bridge::seg::Module;

use crate::harness::{options, reading, start};
use crate::rotation::{Random, append, record, record_of, seconds};

/// Notes of a source that is asked by hand.
#[derive(Default)]
struct Heard(Vec<String>, usize);

impl bridge::seg::Sink for Heard {
    fn event(&mut self, _: &bridge::seg::Event<'_>) {
        self.1 += 1;
    }
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// A file that comes to a name and goes on to another log before anybody looks, and one that is found there before its coming is
/// reported: each is told, so nothing was lost.
#[test]
fn a_file_that_is_found_before_it_is_reported_is_not_lost_because_another_passed_through() {
    use bridge::seg::follow::{Change, Source, Turn};
    use std::ffi::OsStr;
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for (second, name) in ["first", "next"].iter().enumerate() {
        fs::write(at(name), record(Module::Condor, second as u32)).unwrap();
    }
    let mut source = Module::Condor.source(place.path(), &reading(1, "UTC"));
    let mut heard = Heard::default();
    let mut look = |source: &mut Box<dyn Source>| {
        let turn = Turn { now: std::time::Instant::now(), rescan: true, last: false };
        source.turn(turn, &mut heard).unwrap();
        (heard.1, heard.0.clone())
    };
    assert_eq!(look(&mut source), (2, vec![]));
    let rename = |from: &str, to: &str| fs::rename(at(from), at(to)).unwrap();
    let report = |source: &mut Box<dyn Source>, from: &str, to: &str| {
        source.reported(Change::Moved { from: OsStr::new(from), to: OsStr::new(to) });
        source.reported(Change::Came(OsStr::new(to)));
    };
    rename("first", "log");
    report(&mut source, "first", "log");
    rename("log", "elsewhere");
    report(&mut source, "log", "elsewhere");
    rename("next", "log");
    assert_eq!(look(&mut source), (2, vec![]));
    report(&mut source, "next", "log");
    assert_eq!(look(&mut source), (2, vec![]));
    // One that is lost is still said.
    for (second, name) in [(7, "aside"), (8, "other")] {
        fs::write(at(name), record(Module::Condor, second)).unwrap();
        rename(name, "log");
        report(&mut source, name, "log");
    }
    let (told, notes) = look(&mut source);
    assert_eq!((told, notes.len()), (3, 1), "{notes:?}");
    assert!(notes[0].contains("1 or more files were rotated away"), "{notes:?}");
}

/// Renames among many logs while a look is under way, which takes long there.
#[test]
fn thousands_of_logs_under_chained_renames_tell_everything_once() {
    for across in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let name = |n: u32| place.path().join(format!("job{n:04}.log"));
        const LOGS: u32 = 2_500;
        for n in 0..LOGS {
            fs::write(name(n), record(Module::Condor, n)).unwrap();
        }
        let running = start(Module::Condor, place.path(), &reading(1, "UTC"), options());
        running.settle(0);
        let mut random = Random(7 + u64::from(across));
        let mut next = LOGS;
        for _ in 0..30 {
            for _ in 0..40 {
                let first = random.below(u64::from(LOGS - 5)) as u32;
                let at = |n: u32| {
                    if across {
                        name(first + n)
                    } else if n == 0 {
                        name(first)
                    } else {
                        place.path().join(format!("job{first:04}.log.{n}"))
                    }
                };
                if across {
                    // The last of them goes out of the way, the others each to the name of the next.
                    fs::rename(at(4), place.path().join(format!("kept{next:06}"))).unwrap();
                }
                for n in (0..if across { 4 } else { 8 }).rev() {
                    let _ = fs::rename(at(n), at(n + 1));
                }
                append(&at(0), &record(Module::Condor, next));
                append(&at(1), &record(Module::Condor, next + 1));
                next += 2;
            }
            std::thread::sleep(Duration::from_millis(random.below(30)));
        }
        let before = running.turns();
        append(&name(0), &record(Module::Condor, next));
        next += 1;
        running.settle(before);
        let outcome = running.finish();
        let mut times: HashMap<i64, usize> = HashMap::new();
        for at in seconds(&outcome) {
            *times.entry(at).or_default() += 1;
        }
        let wrong: Vec<_> =
            (0..i64::from(next)).map(|at| (at, times.get(&at))).filter(|(_, n)| *n != Some(&1)).collect();
        assert!(
            wrong.is_empty() && outcome.notes.is_empty(),
            "across {across}: {} wrong, {:?} {:?}",
            wrong.len(),
            &wrong[..wrong.len().min(20)],
            &outcome.notes[..outcome.notes.len().min(20)]
        );
    }
}

#[test]
fn thousands_of_logs_in_a_directory_are_followed_with_few_descriptors() {
    let place = tempfile::tempdir().unwrap();
    let name = |n: u32| place.path().join(format!("job.{n:04}.log"));
    for n in 0..3_000 {
        fs::write(name(n), record_of(n, 1)).unwrap();
    }
    let running = start(Module::Condor, place.path(), &reading(1, "UTC"), options());
    running.settle(0);
    let here = place.path().to_owned();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|target| target.starts_with(&here))
    });
    let descriptors = descriptors.count();
    assert!(descriptors <= 201, "{descriptors}");
    let before = running.turns();
    for n in (0..3_000).step_by(7) {
        append(&name(n), &record_of(n, 2));
    }
    // One that rests gets another name, one is new, one is deleted.
    fs::rename(name(1), place.path().join("renamed")).unwrap();
    append(&place.path().join("renamed"), &record(Module::Condor, 3));
    fs::write(place.path().join("new"), record(Module::Condor, 4)).unwrap();
    fs::remove_file(name(2)).unwrap();
    running.settle(before);
    let outcome = running.finish();
    let mut expected = vec![1; 3_000];
    expected.extend(vec![2; 429]);
    expected.extend([3, 4]);
    let mut told = seconds(&outcome);
    told.sort_unstable();
    assert_eq!(told, expected, "{:?}", outcome.notes);
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}

#[test]
fn another_file_with_the_inode_of_a_log_at_rest_is_read_whole() {
    // More logs than are kept open; then all are removed and others come, which get the same inodes.
    let place = tempfile::tempdir().unwrap();
    for n in 0..300 {
        fs::write(place.path().join(format!("a{n:03}")), record_of(n, 1)).unwrap();
    }
    let running = start(Module::Condor, place.path(), &reading(1, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    for n in 0..300 {
        fs::remove_file(place.path().join(format!("a{n:03}"))).unwrap();
        fs::write(place.path().join(format!("b{n:03}")), record_of(n, 2)).unwrap();
    }
    running.settle(before);
    let mut told = seconds(&running.finish());
    told.sort_unstable();
    assert_eq!(told, [vec![1; 300], vec![2; 300]].concat());
}
