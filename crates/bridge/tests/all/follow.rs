//! Files that grow, rotate, shrink, vanish and come back: no event lost, none twice, none invented.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bridge::seg::Module;
use bridge::seg::run::Options;

use crate::harness::{Outcome, Running, once, options, reading, start};

/// A log of its own with a fork log in it.
struct Log {
    _place: tempfile::TempDir,
    path: PathBuf,
    running: Running,
    written: u32,
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

impl Log {
    fn new(options: Options, exists: bool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        if exists {
            File::create(&path).unwrap();
        }
        let running = start(Module::Fork, &path, &reading(1, "UTC"), options);
        running.settle(0);
        Self { _place: place, path, running, written: 0 }
    }

    fn line(&mut self) -> String {
        self.written += 1;
        format!("001;17{:08};j:{};2;0\n", self.written, self.written)
    }

    /// Does something to the files and waits until it was seen.
    fn step(&mut self, action: impl FnOnce(&Path)) {
        let before = self.running.turns();
        action(&self.path);
        self.running.settle(before);
    }

    fn add(&mut self) {
        let line = self.line();
        self.step(|path| append(path, &line));
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Every line that was written was told, in order and once.
    fn finish(self) -> Outcome {
        let outcome = self.running.finish();
        let expected: Vec<_> = (1..=self.written).map(|n| format!("001;17{n:08};j:{n};2;0")).collect();
        let text = String::from_utf8_lossy(&outcome.output);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{:?}", outcome.notes);
        outcome
    }
}

#[test]
fn a_file_that_comes_later_is_read() {
    for poll in [false, true] {
        let mut log = Log::new(Options { poll, ..options() }, false);
        log.add();
        log.add();
        assert_eq!(log.finish().notes.len(), 1);
    }
}

#[test]
fn a_renamed_file_is_finished_and_the_new_one_begun() {
    let mut log = Log::new(options(), true);
    log.add();
    let old = log.beside("log.1");
    // The last line of the old file comes after it got its new name.
    let (last, first) = (log.line(), log.line());
    log.step(|path| {
        fs::rename(path, &old).unwrap();
        append(&old, &last);
    });
    log.step(|path| append(path, &first));
    log.add();
    assert!(log.finish().notes.is_empty());
}

#[test]
fn a_copied_and_truncated_file_loses_nothing_that_the_copy_has() {
    let mut log = Log::new(options(), true);
    log.add();
    log.add();
    let old = log.beside("log.1");
    let (unseen, after) = (log.line(), log.line());
    log.step(|path| {
        // The copy gets a line that is gone from the log before anybody could look.
        let mut copy = fs::read(path).unwrap();
        copy.extend_from_slice(unseen.as_bytes());
        fs::write(&old, copy).unwrap();
        fs::write(path, after).unwrap();
    });
    log.add();
    assert!(log.finish().notes.is_empty());
}

#[test]
fn a_rewritten_file_that_is_longer_than_before_is_noticed() {
    let mut log = Log::new(options(), true);
    log.add();
    let more: String = (0..5).map(|_| log.line()).collect();
    log.step(|path| fs::write(path, more).unwrap());
    let notes = log.finish().notes;
    assert!(notes.len() == 1 && notes[0].contains("not seen"), "{notes:?}");
}

#[test]
fn a_file_that_was_cut_back_repeats_nothing() {
    let mut log = Log::new(options(), true);
    for _ in 0..4 {
        log.add();
    }
    let length = log.path.metadata().unwrap().len();
    log.step(|path| OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap());
    log.add();
    assert_eq!(log.finish().notes.len(), 1);
}

#[test]
fn several_rotations_between_two_looks() {
    let mut log = Log::new(options(), true);
    log.add();
    let (one, two) = (log.beside("log.1"), log.beside("log.2"));
    let (middle, new) = (log.line(), log.line());
    log.step(|path| {
        // Made elsewhere and moved into place at once, so that no look falls between.
        let aside = path.with_file_name("aside");
        fs::write(&aside, middle).unwrap();
        fs::rename(path, &two).unwrap();
        fs::rename(&aside, &one).unwrap();
        append(path, &new);
    });
    log.add();
    log.finish();
}

#[test]
fn pieces_of_any_size_and_odd_bytes() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let running = start(Module::Fork, &path, &reading(1, "UTC"), options());
    let all = b"001;5;a\xff\xfe;2;0\n\x00\x00001;6;b;8;3\n001;7;c;8;1";
    for piece in all.chunks(3) {
        OpenOptions::new().create(true).append(true).open(&path).unwrap().write_all(piece).unwrap();
    }
    running.settle(1);
    let outcome = running.finish();
    assert_eq!(outcome.output, b"001;5;a\xff\xfe;2;0\n001;6;b;8;3\n");
}

#[test]
fn unreadable_then_readable() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    fs::write(&path, "001;5;a;2;0\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let can_read_anyway = File::open(&path).is_ok();
    let running = start(Module::Fork, &path, &reading(1, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    running.settle(before);
    let outcome = running.finish();
    assert_eq!(outcome.output, b"001;5;a;2;0\n");
    assert_eq!(outcome.notes.len(), usize::from(!can_read_anyway));
}

#[test]
fn days_that_come_together_are_told_in_their_order_though_they_are_empty_at_first() {
    let place = tempfile::tempdir().unwrap();
    let day = |name: &str| place.path().join(name);
    fs::write(day("20240101"), "001;1704067200;a;1;0\n").unwrap();
    let running = start(Module::JobManager, place.path(), &reading(1_704_067_200, "UTC"), options());
    running.settle(0);
    let before = running.turns();
    // The later one first, and the earlier one without its text when both are seen.
    fs::write(day("20240103"), "001;1704240000;a;8;0\n").unwrap();
    fs::write(day("20240102"), "").unwrap();
    running.settle(before);
    let before = running.turns();
    append(&day("20240102"), "001;1704153600;a;2;0\n");
    running.settle(before);
    let text = String::from_utf8(running.finish().output).unwrap();
    let states: Vec<_> = text.lines().filter_map(|l| l.split(';').nth(3)).collect();
    assert_eq!(states, ["1", "2", "8"]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    for module in Module::ALL {
        let outcome = once(module, &place.path().join("no/such"), &reading(1, "UTC"));
        assert!(outcome.end.is_err(), "{}", module.name());
    }
}

#[test]
fn a_directory_of_job_event_logs() {
    let place = tempfile::tempdir().unwrap();
    let event = |job: u32, second: u32| {
        format!("001 ({job}.000.000) 2024-08-01 08:13:{second:02} Job executing on host: <x>\n...\n")
    };
    append(&place.path().join("a.log"), &event(1, 1));
    let running = start(Module::Condor, place.path(), &reading(1, "UTC"), options());
    running.settle(0);
    for n in 2..5 {
        let before = running.turns();
        append(&place.path().join(format!("job{n}.log")), &event(n, n));
        running.settle(before);
    }
    let before = running.turns();
    append(&place.path().join("a.log"), &event(1, 9));
    running.settle(before);
    let text = String::from_utf8(running.finish().output).unwrap();
    let ids: Vec<_> = text.lines().filter_map(|l| l.split(';').nth(2)).collect();
    assert_eq!(ids, ["001.000.000", "002.000.000", "003.000.000", "004.000.000", "001.000.000"]);
}

#[test]
fn carried_over_records_of_rotated_lsf_logs_are_told_once() {
    let place = tempfile::tempdir().unwrap();
    let new = |time: u32, job: u32| format!("\"JOB_NEW\" \"7.06\" {time} {job} 1\n");
    let at = 1_717_200_000;
    fs::write(
        place.path().join("lsb.events.2"),
        format!("#{}\n{}{}", at + 5, new(at + 1, 1), new(at + 5, 2)),
    )
    .unwrap();
    // Jobs 1 and 2 are unfinished and stand here again; job 3 came in the second of the switch.
    let carried = format!("{}{}", new(at + 1, 1), new(at + 5, 2));
    fs::write(
        place.path().join("lsb.events.1"),
        format!("#{}\n{carried}{}{}", at + 9, new(at + 5, 3), new(at + 4, 4).replace("4 4 1", "8 4 1")),
    )
    .unwrap();
    let head = format!("#{:<9}\n", 11 + carried.len());
    fs::write(place.path().join("lsb.events"), format!("{head}{carried}{}", new(at + 10, 5))).unwrap();
    let text = String::from_utf8(once(Module::Lsf, place.path(), &reading(1, "UTC")).output).unwrap();
    let ids: Vec<_> = text.lines().filter_map(|l| l.split(';').nth(2)).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
}

#[test]
fn replay_of_a_large_log_seeks_and_misses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("20240301");
    let mut text = String::with_capacity(8 << 20);
    for n in 0..86_400u32 {
        let (h, m, s) = (n / 3_600, n / 60 % 60, n % 60);
        // Nobody's line, and now and then one of a job; long, so that seeking is worth it.
        writeln!(text, "03/01/2024 {h:02}:{m:02}:{s:02};0100;PBS_Server;Job;{n}.s;{:40}", "").unwrap();
        if n % 10 == 0 {
            writeln!(text, "03/01/2024 {h:02}:{m:02}:{s:02};0008;PBS_Server;Job;{n}.s;Job Run at").unwrap();
        }
    }
    fs::write(&path, &text).unwrap();
    let start = 1_709_251_200;
    for from in [start, start + 1, start + 7_200, start + 80_000, start + 86_390, start + 86_400] {
        let outcome = once(Module::Pbs, place.path(), &reading(from, "UTC"));
        let expected = (0..86_400).filter(|n| n % 10 == 0 && start + n >= from).count();
        assert_eq!(String::from_utf8(outcome.output).unwrap().lines().count(), expected, "from {from}");
    }
}
