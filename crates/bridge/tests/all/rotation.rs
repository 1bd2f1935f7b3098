//! Logs that were rotated before and while they are read: nothing lost without a word, nothing twice.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use bridge::seg::Module;
use bridge::seg::run::{End, Options};

use crate::harness::{Outcome, once, options, reading, start};

/// One event at this second in the log of a module.
pub(crate) fn record(module: Module, second: u32) -> String {
    let clock = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
    match module {
        Module::Condor => {
            format!("001 (1.000.{second:03}) 2024-03-01 {clock} Job executing on host: <x>\n...\n")
        }
        Module::Slurm => format!(
            "JobId={second} UserId=u(1) Name=n JobState=COMPLETED StartTime=2024-03-01T00:00:00 \
             EndTime=2024-03-01T{clock} NodeList=n WorkDir=/w SubmitTime=2024-03-01T00:00:00 ExitCode=0:0 \n"
        ),
        Module::Sge => {
            let stamp = BEGIN + i64::from(second);
            format!("{stamp}:new_job:{stamp}:{second}:-1:NONE:n:o:g:p:d:a:1024\n")
        }
        Module::Pbs => format!("03/01/2024 {clock};0008;PBS_Server;Job;{second}.s;Job Run at request of x\n"),
        Module::PbsAccounting => format!("03/01/2024 {clock};S;{second}.s;user=x\n"),
        Module::Lsf => format!("\"JOB_NEW\" \"7.06\" {} {second} 1001\n", BEGIN + i64::from(second)),
        _ => format!("001;{};j:{second};2;0\n", BEGIN + i64::from(second)),
    }
}

/// The same for a job of its own, in a job event log: two logs that say the same are one and its copy.
pub(crate) fn record_of(job: u32, second: u32) -> String {
    record(Module::Condor, second).replacen("(1.", &format!("({job}."), 1)
}

/// 1 March 2024.
pub(crate) const BEGIN: i64 = 1_709_251_200;

pub(crate) fn seconds(outcome: &Outcome) -> Vec<i64> {
    let text = String::from_utf8(outcome.output.clone()).unwrap();
    text.lines().map(|line| line.split(';').nth(1).unwrap().parse::<i64>().unwrap() - BEGIN).collect()
}

pub(crate) fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

pub(crate) const SINGLE: [Module; 4] = [Module::Fork, Module::Condor, Module::Sge, Module::Slurm];

#[test]
fn replay_reads_rotated_files_of_every_kind_of_name_oldest_first() {
    let schemes: [&[&str]; 5] = [
        &["log.2", "log.1", "log"],
        &["log.1", "log.0", "log"],
        &["log.old", "log"],
        &["log-20240301", "log-20240302", "log"],
        &["log.2024-02-01", "log.2024-03-01_12", "log.10", "log.9", "log.old", "log"],
    ];
    for module in SINGLE {
        for names in schemes {
            let place = tempfile::tempdir().unwrap();
            for (at, name) in names.iter().enumerate() {
                let text: String = (0..3).map(|n| record(module, at as u32 * 10 + n)).collect();
                fs::write(place.path().join(name), text).unwrap();
            }
            fs::write(place.path().join("log.bak"), record(module, 900)).unwrap();
            let expected: Vec<i64> =
                (0..names.len() as i64).flat_map(|at| (0..3).map(move |n| at * 10 + n)).collect();
            for from in [0, 1, 12, names.len() as i64 * 10 - 10] {
                let outcome = once(module, &place.path().join("log"), &reading(BEGIN + from, "UTC"));
                let wanted: Vec<i64> = expected.iter().copied().filter(|at| *at >= from).collect();
                assert_eq!(seconds(&outcome), wanted, "{} {names:?} from {from}", module.name());
                assert_eq!(outcome.end.unwrap(), End::Told, "{:?}", outcome.notes);
            }
        }
    }
}

#[test]
fn rotated_files_that_are_too_old_are_not_opened() {
    for module in [Module::Fork, Module::Sge, Module::Slurm] {
        let place = tempfile::tempdir().unwrap();
        for (at, name) in ["log.3", "log.2", "log.1", "log"].iter().enumerate() {
            fs::write(
                place.path().join(name),
                record(module, at as u32 * 3_600) + &record(module, at as u32 * 3_600 + 1),
            )
            .unwrap();
        }
        // A packed one that is not needed is nobody's trouble; one that is, is.
        fs::rename(place.path().join("log.3"), place.path().join("log.3.gz")).unwrap();
        let outcome = once(module, &place.path().join("log"), &reading(BEGIN + 7_201, "UTC"));
        assert_eq!(seconds(&outcome), [7_201, 10_800, 10_801], "{}", module.name());
        assert_eq!((outcome.end.unwrap(), outcome.notes.len()), (End::Told, 0));
        let outcome = once(module, &place.path().join("log"), &reading(BEGIN, "UTC"));
        assert_eq!(seconds(&outcome), [3_600, 3_601, 7_200, 7_201, 10_800, 10_801]);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
        assert!(outcome.notes[0].contains("log.3.gz: this is packed"), "{:?}", outcome.notes);
        // A number that is missing, and a log whose older files were removed.
        fs::remove_file(place.path().join("log.3.gz")).unwrap();
        fs::remove_file(place.path().join("log.1")).unwrap();
        let outcome = once(module, &place.path().join("log"), &reading(BEGIN, "UTC"));
        assert_eq!(seconds(&outcome), [3_600, 3_601, 10_800, 10_801]);
        assert_eq!(outcome.notes.len(), 2, "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("log.1 is missing"), "{:?}", outcome.notes);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
        let begin = format!("begins at {}", BEGIN + 3_600);
        fs::rename(place.path().join("log.2"), place.path().join("log.1")).unwrap();
        let outcome = once(module, &place.path().join("log"), &reading(BEGIN, "UTC"));
        assert!(outcome.notes.len() == 1 && outcome.notes[0].contains(&begin), "{:?}", outcome.notes);
        assert_eq!(outcome.end.unwrap(), End::Told);
    }
}

#[test]
fn a_link_that_leads_nowhere_is_said_and_is_not_all_well() {
    // In a directory of logs.
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.log"), record(Module::Condor, 1)).unwrap();
    std::os::unix::fs::symlink("/nonexistent", place.path().join("b.log")).unwrap();
    let outcome = once(Module::Condor, place.path(), &reading(BEGIN, "UTC"));
    assert_eq!((seconds(&outcome), outcome.end.unwrap()), (vec![1], End::Incomplete));
    assert!(
        outcome.notes.len() == 1 && outcome.notes[0].contains("b.log: No such file"),
        "{:?}",
        outcome.notes
    );
    // The log itself, one that was rotated away, and a day's file.
    for module in SINGLE.into_iter().chain([Module::JobManager]) {
        for name in if module == Module::JobManager { ["20240302", "20240302"] } else { ["log", "log.1"] } {
            let place = tempfile::tempdir().unwrap();
            let log = place.path().join("log");
            let whole = if module == Module::JobManager {
                "20240301"
            } else if name == "log" {
                "log.1"
            } else {
                "log"
            };
            fs::write(place.path().join(whole), record(module, 1)).unwrap();
            std::os::unix::fs::symlink("/nonexistent", place.path().join(name)).unwrap();
            let path = if module == Module::JobManager { place.path() } else { &log };
            let outcome = once(module, path, &reading(BEGIN, "UTC"));
            let what = format!("{} {name} {:?}", module.name(), outcome.notes);
            assert_eq!((seconds(&outcome), outcome.end.unwrap()), (vec![1], End::Incomplete), "{what}");
            assert!(outcome.notes.iter().any(|note| note.contains(name)), "{what}");
            // Whoever follows goes on.
            let running = start(module, path, &reading(BEGIN, "UTC"), options());
            running.settle(0);
            let before = running.turns();
            append(&place.path().join(whole), &record(module, 2));
            running.settle(before);
            let outcome = running.finish();
            assert_eq!(seconds(&outcome), [1, 2], "{what}");
        }
    }
}

#[test]
fn rotated_files_are_told_although_the_log_itself_is_not_there() {
    for module in SINGLE {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        fs::write(place.path().join("log.1"), record(module, 1)).unwrap();
        let outcome = once(module, &log, &reading(BEGIN, "UTC"));
        assert_eq!(seconds(&outcome), [1]);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
        // And when it comes, what was rotated away until then.
        let running = start(module, &log, &reading(BEGIN, "UTC"), options());
        running.settle(0);
        fs::rename(place.path().join("log.1"), place.path().join("log.2")).unwrap();
        let aside = place.path().join("aside");
        fs::write(&aside, record(module, 2)).unwrap();
        fs::rename(&aside, place.path().join("log.1")).unwrap();
        let before = running.turns();
        append(&log, &record(module, 3));
        running.settle(before);
        assert_eq!(seconds(&running.finish()), [1, 2, 3], "{}", module.name());
    }
}

#[test]
fn the_second_pass_of_a_doubled_hour_goes_on_in_the_next_file() {
    let place = tempfile::tempdir().unwrap();
    let event = |minute: u32| {
        format!("001 (1.000.000) 2024-11-03 01:{minute:02}:00 Job executing on host: <x>\n...\n")
    };
    let first = 1_730_610_000;
    fs::write(place.path().join("log.1"), [event(10), event(50), event(5)].concat()).unwrap();
    let log = place.path().join("log");
    fs::write(&log, event(15)).unwrap();
    let running = start(Module::Condor, &log, &reading(1, "America/New_York"), options());
    running.settle(0);
    let before = running.turns();
    fs::rename(&log, place.path().join("log.0")).unwrap();
    append(&log, &event(20));
    running.settle(before);
    let outcome = running.finish();
    let stamps: Vec<i64> = seconds(&outcome).iter().map(|at| at + BEGIN - first).collect();
    assert_eq!(stamps, [600, 3_000, 3_900, 4_500, 4_800]);
}

/// A generator that is good enough for pauses.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Renames `log` to `log.1`, that to `log.2` and so on, keeping so many; whoever writes goes on in a new file.
fn rotate(log: &Path, keep: u32) {
    let name = |n: u32| if n == 0 { log.to_owned() } else { log.with_extension(n.to_string()) };
    for n in (0..keep).rev() {
        // The last of the chain is written over, and some numbers are not there yet.
        let _ = fs::rename(name(n), name(n + 1));
    }
}

/// Writes events 1 to `count`, a few a file, rotating between them as quickly as it can or with pauses.
fn write_and_rotate(log: &Path, module: Module, count: u32, keep: u32, random: &mut Random) {
    let mut written = 0;
    while written < count {
        let mut text = String::new();
        for _ in 0..=random.below(4) {
            if written < count {
                written += 1;
                text += &record(module, written);
            }
        }
        append(log, &text);
        if random.below(3) > 0 {
            std::thread::sleep(Duration::from_micros(random.below(3_000)));
        }
        if written < count {
            rotate(log, keep);
        }
    }
}

#[test]
fn chained_rotation_tells_everything_once_and_in_order() {
    for round in 0..8 {
        let mut random = Random(round);
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let running =
            start(Module::Fork, &log, &reading(1, "UTC"), Options { poll: round % 4 == 3, ..options() });
        write_and_rotate(&log, Module::Fork, 100, 200, &mut random);
        let outcome = running.finish();
        assert_eq!(seconds(&outcome), (1..=100).collect::<Vec<_>>(), "round {round}: {:?}", outcome.notes);
        assert!(
            outcome.notes.iter().all(|note| note.contains("not read before")),
            "round {round}: {:?}",
            outcome.notes
        );
    }
}

#[test]
fn what_rotation_removed_before_it_could_be_read_is_noted() {
    let mut losses = 0;
    for round in 0..10 {
        let mut random = Random(1_000 + round);
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        append(&log, "");
        let running = start(Module::Fork, &log, &reading(1, "UTC"), options());
        running.settle(0);
        write_and_rotate(&log, Module::Fork, 100, 1, &mut random);
        let outcome = running.finish();
        let told = seconds(&outcome);
        assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "round {round}: {told:?}");
        let noted = outcome
            .notes
            .iter()
            .filter(|note| note.contains("before they could be read") || note.contains("not told"))
            .count();
        if told.len() < 100 {
            losses += 1;
            assert!(
                noted > 0,
                "round {round}: {} of 100 told and nothing said: {:?}",
                told.len(),
                outcome.notes
            );
        }
    }
    println!("{losses} of 10 rounds lost something");
}

#[test]
fn chained_rotation_in_a_directory_of_logs_tells_everything_once() {
    for round in 0..4 {
        let place = tempfile::tempdir().unwrap();
        let running = start(
            Module::Condor,
            place.path(),
            &reading(1, "UTC"),
            Options { poll: round % 4 == 3, ..options() },
        );
        std::thread::scope(|scope| {
            for (job, name) in [(1, "a.log"), (2, "b.log")] {
                let log = place.path().join(name);
                scope.spawn(move || write_and_rotate_all(&log, job, round));
            }
        });
        let outcome = running.finish();
        let mut times: HashMap<i64, usize> = HashMap::new();
        for at in seconds(&outcome) {
            *times.entry(at).or_default() += 1;
        }
        let wrong: Vec<_> = (1..=60).map(|at| (at, times.get(&at))).filter(|(_, n)| *n != Some(&2)).collect();
        assert!(wrong.is_empty(), "round {round}: {wrong:?} {:?}", outcome.notes);
    }
}

fn write_and_rotate_all(log: &Path, job: u32, seed: u64) {
    let mut random = Random(seed);
    let name = |n: u32| {
        if n == 0 {
            log.to_owned()
        } else {
            log.with_file_name(format!("{}.{n}", log.file_name().unwrap().to_str().unwrap()))
        }
    };
    for at in 1..=60 {
        append(log, &record_of(job, at));
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        if random.below(4) == 0 {
            for n in (0..20).rev() {
                let _ = fs::rename(name(n), name(n + 1));
            }
        }
    }
}

#[test]
fn rotated_logs_in_a_directory_are_told_before_what_came_after_them() {
    let place = tempfile::tempdir().unwrap();
    for (name, at) in [
        ("a.log", 3),
        ("a.log.1", 2),
        ("a.log.2", 1),
        ("b.log", 5),
        ("b.log.old", 4),
        (".hidden", 9),
        ("x.lock", 9),
    ] {
        fs::write(place.path().join(name), record(Module::Condor, at)).unwrap();
    }
    fs::hard_link(place.path().join("a.log"), place.path().join("z-second-name")).unwrap();
    let outcome = once(Module::Condor, place.path(), &reading(1, "UTC"));
    assert_eq!(seconds(&outcome), [1, 2, 3, 4, 5]);
    assert_eq!(outcome.end.unwrap(), End::Told);
    fs::write(place.path().join("c.log.gz"), "x").unwrap();
    let outcome = once(Module::Condor, place.path(), &reading(1, "UTC"));
    assert_eq!((seconds(&outcome).len(), outcome.end.unwrap()), (5, End::Incomplete));
}

#[test]
fn a_wrong_kind_of_log_path_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    for module in Module::ALL {
        let wants_directory =
            matches!(module, Module::Pbs | Module::PbsAccounting | Module::Lsf | Module::JobManager);
        for (path, is_directory) in [(place.path(), true), (&file, false)] {
            let outcome = once(module, path, &reading(1, "UTC"));
            let is_right = is_directory == wants_directory || module == Module::Condor;
            assert_eq!(outcome.end.is_ok(), is_right, "{} {}", module.name(), path.display());
        }
        // A pipe would be waited for until somebody writes.
        assert!(once(module, Path::new("/dev/null"), &reading(1, "UTC")).end.is_err(), "{}", module.name());
    }
}

#[test]
fn once_says_by_its_end_that_something_could_not_be_read() {
    let place = tempfile::tempdir().unwrap();
    // A link to nothing stands for a file that must not be read: root may read everything.
    std::os::unix::fs::symlink(place.path().join("no/such"), place.path().join("20240301")).unwrap();
    for module in [Module::Pbs, Module::JobManager] {
        let outcome = once(module, place.path(), &reading(BEGIN, "UTC"));
        assert_eq!(outcome.end.unwrap(), End::Incomplete, "{}", module.name());
    }
    for module in SINGLE {
        let outcome = once(module, &place.path().join("log"), &reading(BEGIN, "UTC"));
        assert_eq!(outcome.end.unwrap(), End::Incomplete, "{}", module.name());
    }
}

#[test]
fn copies_of_a_truncated_log_are_read_once() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    // Equal first lines, as logs with a header have them.
    let header = "# Version: 8\n";
    fs::write(place.path().join("log.1"), format!("{header}{}", record(Module::Fork, 1))).unwrap();
    fs::write(&log, header).unwrap();
    let running = start(Module::Fork, &log, &reading(1, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    // Cut although nothing was copied: the file before is none of its copies.
    fs::write(&log, format!("# version: 9\n{}", record(Module::Fork, 2))).unwrap();
    running.settle(before);
    let before = running.turns();
    // Copied over an old copy, with a line that is gone from the log before anybody could look.
    let mut copy = fs::read_to_string(&log).unwrap();
    write!(copy, "{}", record(Module::Fork, 3)).unwrap();
    fs::write(place.path().join("log.1"), copy).unwrap();
    fs::write(&log, record(Module::Fork, 4)).unwrap();
    running.settle(before);
    let outcome = running.finish();
    assert_eq!(seconds(&outcome), [1, 2, 3, 4], "{:?}", outcome.notes);
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
}

#[test]
fn day_files_that_are_gone_packed_or_replaced() {
    let place = tempfile::tempdir().unwrap();
    let day = |name: &str| place.path().join(name);
    let line = |at: i64| format!("001;{};a;2;0\n", BEGIN + at);
    let days = |from: i64| once(Module::JobManager, place.path(), &reading(from, "UTC"));
    fs::write(day("20240302"), line(86_400)).unwrap();
    // The wanted day is gone; that nobody wants one is no gap, and neither is a day without a file between others.
    let outcome = days(BEGIN);
    assert!(outcome.notes.len() == 1 && outcome.notes[0].contains("20240302"), "{:?}", outcome.notes);
    assert_eq!(outcome.end.unwrap(), End::Told);
    assert_eq!(days(1).notes.len(), 0);
    assert_eq!(days(BEGIN + 86_400).notes.len(), 0);
    fs::write(day("20240229"), line(-1)).unwrap();
    assert_eq!(days(BEGIN).notes.len(), 0);
    fs::write(day("20240301.gz"), "x").unwrap();
    let outcome = days(BEGIN);
    assert!(
        outcome.notes.len() == 1 && outcome.notes[0].contains("20240301 is packed"),
        "{:?}",
        outcome.notes
    );
    assert_eq!((outcome.end.unwrap(), outcome.output), (End::Incomplete, line(86_400).into_bytes()));
    assert_eq!(days(BEGIN + 86_400).notes.len(), 0);
    // Replaced by a file with the same beginning, and by one with another.
    let running = start(Module::JobManager, place.path(), &reading(BEGIN + 86_400, "UTC"), options());
    running.settle(0);
    append(&day("20240302"), "001;17093376");
    let mut before = running.turns();
    for text in [[line(86_400), line(86_401)].concat(), line(86_402)] {
        fs::write(day("aside"), text).unwrap();
        fs::rename(day("aside"), day("20240302")).unwrap();
        running.settle(before);
        before = running.turns();
        append(&day("20240302"), &line(86_405));
        running.settle(before);
        before = running.turns();
    }
    let outcome = running.finish();
    let told = seconds(&outcome);
    assert_eq!(told, [86_400, 86_401, 86_405, 86_402, 86_405], "{:?}", outcome.notes);
}

#[test]
fn behind_a_symbolic_link_rotated_files_are_beside_the_real_one() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("real.1"), record(Module::Fork, 1)).unwrap();
    fs::write(logs.join("real"), record(Module::Fork, 2)).unwrap();
    let link = place.path().join("log");
    std::os::unix::fs::symlink(logs.join("real"), &link).unwrap();
    let running = start(Module::Fork, &link, &reading(BEGIN, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    fs::rename(logs.join("real"), logs.join("real.0")).unwrap();
    append(&logs.join("real"), &record(Module::Fork, 3));
    running.settle(before);
    // The link goes to another file.
    let before = running.turns();
    fs::write(logs.join("next"), record(Module::Fork, 4)).unwrap();
    std::os::unix::fs::symlink(logs.join("next"), place.path().join("aside")).unwrap();
    fs::rename(place.path().join("aside"), &link).unwrap();
    running.settle(before);
    let outcome = running.finish();
    assert_eq!(seconds(&outcome), [1, 2, 3, 4], "{:?}", outcome.notes);
}

#[test]
fn a_heartbeat_is_no_line_of_day_files() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    fs::write(&log, record(Module::Fork, 1)).unwrap();
    let days = place.path().join("days");
    fs::create_dir(&days).unwrap();
    let mut source = Module::Fork.source(&log, &reading(1, "UTC"));
    let options = Options { follow: false, heartbeat: Some(Duration::from_millis(1)), ..options() };
    let output = bridge::seg::run::Output::Days(days.clone());
    bridge::seg::run::run(source.as_mut(), options, None, output, &mut |_| {}).unwrap();
    assert_eq!(fs::read_dir(&days).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(days.join("20240301")).unwrap(), record(Module::Fork, 1));
}

#[test]
fn replay_of_long_logs_of_every_kind_begins_near_the_wanted_time_and_misses_nothing() {
    for module in
        [Module::Fork, Module::Sge, Module::Slurm, Module::Lsf, Module::PbsAccounting, Module::JobManager]
    {
        let place = tempfile::tempdir().unwrap();
        let name = match module {
            Module::Lsf => "lsb.events",
            Module::PbsAccounting | Module::JobManager => "20240301",
            _ => "log",
        };
        // Lines that are nobody's make it long enough for seeking.
        let filler = format!("{:400}\n", "#");
        let text: String = (0..12_000).map(|n| record(module, n * 7) + &filler).collect();
        assert!(text.len() > 4 << 20);
        fs::write(place.path().join(name), text).unwrap();
        let is_file = name == "log";
        let path = if is_file { place.path().join(name) } else { place.path().to_owned() };
        for from in [7, 42_001, 83_993] {
            let outcome = once(module, &path, &reading(BEGIN + from, "UTC"));
            let expected: Vec<i64> = (0..12_000).map(|n| n * 7).filter(|at| *at >= from).collect();
            assert!(seconds(&outcome) == expected, "{} from {from}: {:?}", module.name(), outcome.notes);
        }
    }
}
