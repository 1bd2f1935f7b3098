//! Half records and lines that are none, in logs that are read and in files that are written.

use std::fs;

use bridge::seg::Module;
use bridge::seg::run::{End, Options};

use crate::harness::{once, options, reading};
use crate::readers::read;
use crate::rotation::{BEGIN, SINGLE, append, record, record_of, seconds};

/// Whatever a log holds that is no record, or only a part of one, is said, and `--once` ends so.
#[test]
fn half_records_and_lines_that_are_none_are_an_incomplete_end() {
    for module in Module::ALL {
        let place = tempfile::tempdir().unwrap();
        let file = match module {
            Module::Lsf => "lsb.events",
            Module::Pbs | Module::PbsAccounting | Module::JobManager => "20240301",
            _ => "log",
        };
        let path = if file == "log" { place.path().join(file) } else { place.path().to_owned() };
        let good = record(module, 1);
        let play = |more: &[u8]| {
            fs::write(place.path().join(file), [good.as_bytes(), more].concat()).unwrap();
            let outcome = once(module, &path, &reading(BEGIN, "UTC"));
            assert_eq!(seconds(&outcome), [1], "{} {:?}", module.name(), outcome.notes);
            (outcome.end.unwrap(), outcome.notes)
        };
        assert_eq!(play(b""), (End::Told, vec![]), "{}", module.name());
        assert_eq!(play(b"\n"), (End::Told, vec![]), "{}", module.name());
        let half = &record(module, 2).into_bytes()[..good.len() / 2];
        for bad in [half.to_vec(), [half, b"\n"].concat(), b"\x01\x02\xff\n".to_vec(), b"\x01\x02".to_vec()] {
            let (end, notes) = play(&bad);
            let text = String::from_utf8_lossy(&bad);
            assert!(end == End::Incomplete && !notes.is_empty(), "{} {text:?} {notes:?}", module.name());
            assert!(notes.iter().all(|note| note.contains(file)), "{notes:?}");
        }
    }
}

#[test]
fn a_rotated_file_that_ends_in_the_middle_of_a_record_is_said() {
    for module in SINGLE {
        let place = tempfile::tempdir().unwrap();
        let half = &record(module, 2).into_bytes()[..record(module, 2).len() / 2];
        fs::write(place.path().join("log.2"), [record(module, 1).as_bytes(), half].concat()).unwrap();
        fs::write(place.path().join("log.1"), record(module, 3)).unwrap();
        fs::write(place.path().join("log"), record(module, 4)).unwrap();
        let outcome = once(module, &place.path().join("log"), &reading(1, "UTC"));
        assert_eq!((seconds(&outcome), outcome.notes.len()), (vec![1, 3, 4], 1), "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("log.2 ends in the middle of a record"), "{:?}", outcome.notes);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
        // Also of one that is too old to be watched on.
        fs::rename(place.path().join("log.2"), place.path().join("log.14")).unwrap();
        for n in 2..14 {
            fs::write(place.path().join(format!("log.{n}")), record(module, 3)).unwrap();
        }
        let outcome = once(module, &place.path().join("log"), &reading(1, "UTC"));
        assert_eq!((seconds(&outcome)[0], outcome.notes.len()), (1, 1), "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("log.14 ends in the middle of a record"), "{:?}", outcome.notes);
    }
}

#[test]
fn day_files_are_gone_on_with_behind_a_whole_line() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let days = place.path().join("days");
    fs::create_dir(&days).unwrap();
    let run_once = || {
        let mut source = Module::Fork.source(&log, &reading(1, "UTC"));
        let mut notes = Vec::new();
        let options = Options { follow: false, ..options() };
        let output = bridge::seg::run::Output::Days(days.clone());
        let ended = bridge::seg::run::run(source.as_mut(), options, None, output, &mut |note| {
            notes.push(note.to_owned())
        });
        (ended, notes)
    };
    let day = days.join("20240301");
    for torn in ["001;17092".to_owned(), format!("{}001", record(Module::Fork, 7)), "x".repeat(10_000)] {
        fs::write(&log, record(Module::Fork, 1)).unwrap();
        fs::write(&day, &torn).unwrap();
        let (ended, notes) = run_once();
        assert_eq!(ended.unwrap(), End::Told);
        let whole = &torn[..torn.rfind('\n').map_or(0, |end| end + 1)];
        assert_eq!(fs::read_to_string(&day).unwrap(), format!("{whole}{}", record(Module::Fork, 1)));
        let bytes = format!("its last {} bytes are removed", torn.len() - whole.len());
        assert!(notes.len() == 1 && notes[0].contains(&bytes), "{notes:?}");
    }
    // Something else in its place is nothing to wait for.
    fs::remove_file(&day).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&day).status().unwrap().success());
    assert!(run_once().0.is_err());
}

#[test]
fn records_that_cannot_be_read_are_an_incomplete_end_and_their_file_is_named() {
    let place = tempfile::tempdir().unwrap();
    let good = record(Module::Condor, 1);
    fs::write(place.path().join("good"), &good).unwrap();
    let outcome = once(Module::Condor, place.path(), &reading(1, "UTC"));
    assert_eq!((outcome.end.unwrap(), outcome.notes.len()), (End::Told, 0));
    let torn = "001 (1.000.002) 2024-03-01 00:00:02 Job executing on host: <x>\n";
    let huge = format!("{{\"MyType\":\"{}\n", "x\n".repeat(1 << 20));
    let nameless = "005 (1.000.003) 2024-03-01 00:00:03 Job terminated.\n...\n";
    for bad in [torn, &huge, nameless] {
        fs::write(place.path().join("bad"), format!("{bad}{good}")).unwrap();
        let outcome = once(Module::Condor, place.path(), &reading(1, "UTC"));
        assert_eq!(outcome.end.unwrap(), End::Incomplete, "{:?}", outcome.notes);
        let place = place.path().join("bad").display().to_string();
        assert!(outcome.notes.iter().all(|note| note.starts_with(&place)), "{:?}", outcome.notes);
    }
}

/// Lines that belong into a log, whether they tell something or not, and lines that are no records or only a part of one.
#[test]
fn what_is_no_record_is_said_and_what_belongs_there_is_not() {
    let account = "q:h:g:u:n:7:a:0:1:2:1709251203";
    let cases: &[(Module, &[&str], &[&str])] = &[
        (
            Module::Pbs,
            &[
                "",
                "03/01/2024 00:00:01;0002;PBS_Server;Svr;Log;Log opened",
                "03/01/2024 00:00:01;0100;PBS_Server;Req;;",
                "03/01/2024 00:00:01;0008;PBS_Server;Job;1.s;",
                "\tthe second line; of a message",
                "with; so; many; signs; that; it looks like one",
            ],
            &[
                "03/01/2024 00:00:01",
                "03/01/2024 00:00:01;0008;PBS_Server;Job;1.s",
                "\u{1}",
                "a;b;c;d;e;\u{7f}",
            ],
        ),
        (
            Module::PbsAccounting,
            &["", "03/01/2024 00:00:01;L;license;floating license hour:0", "03/01/2024 00:00:01;x;1.s;"],
            &[
                "garbage",
                "03/01/2024 00:00:01;S;1.s",
                "03/01/24 00:00;S;1.s;user=x",
                "13/01/2024 00:00:01;S;1.s;x",
            ],
        ),
        (
            Module::Lsf,
            &[
                "",
                "#80",
                "\"LOAD_INDEX\" \"7.06\" 1709251201 11 \"r15s\"",
                "\"JOB_STATUS\" \"7.06\" 1709251201 7 4 0 0",
                "\"JOB_EXCEPTION\" \"7.06\" 1709251201 7 1 0 0 \"\"",
                "echo the second line of a script",
            ],
            &[
                "\"JOB_NEW\" \"7.06\"",
                "\"JOB_NEW\" \"7.06\" 1709251201",
                "\"JOB_STATUS\" \"7.06\" 1709251201 7",
                "\"JOB_STATUS\" \"7.06\" 1709251201 7 32 0 0",
                "\"JOB_EXCEPTION\" \"7.06\" 1709251201 7",
                "\u{2}",
            ],
        ),
        (
            Module::Slurm,
            &[
                "",
                "JobId=7 Name=n JobState=REQUEUED StartTime=2024-03-01T00:00:00 EndTime=2024-03-01T00:00:01 WorkDir=/ ",
            ],
            &[
                "garbage",
                "JobId=7 Name=n JobState=COMPLETED StartTime=2024-03-01T00:00:00",
                "JobId=7 Name=n EndTime=2024-03-01T00:00:01 ",
                "JobId=7 Name=n JobState=COMPLETED EndTime=Unknown WorkDir=/ ",
            ],
        ),
        (
            Module::Sge,
            &[
                "",
                "# Version",
                "1709251201:host:1709251201:h:X:y",
                &format!("{account}:0:-1"),
                "1709251201:job_log:1709251201:sent:7:0:NONE:t:u:h:1:1:o:g:p:d:a:1:m",
            ],
            &[
                "garbage",
                "1709251201",
                "1709251201:new_job:1709251201:7",
                "1709251201:job_log:1709251201:deleted:7:0:NONE:t",
                &format!("1709251201:acct:{account}:0"),
                &format!("{account}:0"),
            ],
        ),
        (
            Module::Fork,
            &["", "# header", "000;1709251201;heartbeat", "002;1709251201;something"],
            &["garbage", "001;1709251201;a;8", "001;1709251201;a;3;0", "001;x;a;8;0", "1709251201;a"],
        ),
        (
            Module::Condor,
            &[
                "",
                "  ",
                "...",
                ",",
                "[",
                "]",
                "<?xml version=\"1.0\"?>",
                "</eventlog>",
                "028 (1.0.0) 2024-03-01 00:00:01 x\n...",
            ],
            &["\tthe rest of an event", "001 (1.0) 2024-03-01 00:00:01 x", "0"],
        ),
    ];
    for (module, good, bad) in cases {
        for (lines, count) in [(good, 0), (bad, 1)] {
            for line in *lines {
                let (told, notes) = read(*module, &reading(1, "UTC"), &format!("{line}\n"));
                assert_eq!(
                    (told.len(), notes.len()),
                    (0, count),
                    "{} {line:?} {told:?} {notes:?}",
                    module.name()
                );
                assert!(notes.iter().all(|note| note.contains("byte 0 is no record")), "{notes:?}");
            }
        }
    }
}

#[test]
fn half_records_in_a_directory_of_logs_are_an_incomplete_end() {
    let place = tempfile::tempdir().unwrap();
    let whole = record(Module::Condor, 1);
    fs::write(place.path().join("a.log"), record_of(7, 1)).unwrap();
    for half in [&whole[..whole.len() - 4], &whole[..20]] {
        fs::write(place.path().join("b.log"), format!("{whole}{half}")).unwrap();
        let outcome = once(Module::Condor, place.path(), &reading(1, "UTC"));
        assert_eq!((seconds(&outcome), outcome.notes.len()), (vec![1, 1], 1), "{:?}", outcome.notes);
        assert!(outcome.notes[0].contains("b.log ends in the middle of a record"), "{:?}", outcome.notes);
        assert_eq!(outcome.end.unwrap(), End::Incomplete);
    }
}

/// What was skipped may end inside of a line: its rest is no line, and no half record either.
#[test]
fn the_rest_of_a_line_that_was_skipped_is_not_read() {
    #[derive(Default)]
    struct Heard(Vec<String>);
    impl bridge::seg::Sink for Heard {
        fn event(&mut self, event: &bridge::seg::Event<'_>) {
            self.0.push(String::from_utf8_lossy(event.id).into_owned());
        }
        fn note(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    for begin in ["", "001;1709251200;a;2;0\n"] {
        fs::write(&log, format!("{begin}001;1709251201;b;")).unwrap();
        let mut tail =
            bridge::seg::follow::tail::Tail::open(&log, Module::Fork.format(&reading(1, "UTC"))).unwrap();
        tail.skip().unwrap();
        append(&log, "001;1709251202;c;2;0\n001;1709251203;d;2;0\n");
        let mut heard = Heard::default();
        tail.look(&mut heard).unwrap();
        assert_eq!(heard.0, ["d"]);
    }
}
