//! Slurm by its commands, which are scripts here: `squeue` prints what a test has put into a file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bridge::seg::follow::commands::Commands;
use bridge::seg::module::slurm_live;
use bridge::seg::run::Options;

use crate::harness::{Running, options, reading, start_source};

/// Twenty times as quick as usual.
const PACE: Duration = Duration::from_millis(50);

struct Fake {
    place: tempfile::TempDir,
}

fn script(path: &Path, text: &str) {
    // Written elsewhere and moved: a file that is open for writing cannot be run.
    let aside = path.with_extension("new");
    fs::write(&aside, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(aside, path).unwrap();
}

impl Fake {
    fn new(sacct: &str) -> Self {
        let fake = Self { place: tempfile::tempdir().unwrap() };
        script(
            &fake.path("squeue"),
            "[ \"$SLURM_TIME_FORMAT\" = %s ] || exit 9\ncd \"${0%/*}\"\necho >> looks\nexec cat queue",
        );
        script(&fake.path("sacct"), sacct);
        fake.show("");
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn show(&self, queue: &str) {
        fs::write(self.path("aside"), queue).unwrap();
        fs::rename(self.path("aside"), self.path("queue")).unwrap();
    }

    fn looks(&self) -> usize {
        fs::read(self.path("looks")).map_or(0, |looks| looks.len())
    }

    fn start(&self, from: i64, log: Option<&str>) -> Running {
        self.start_with(from, log, options())
    }

    fn start_with(&self, from: i64, log: Option<&str>, options: Options) -> Running {
        let commands =
            Commands { pace: PACE, ..Commands::new(self.path("squeue"), Some(self.path("sacct"))) };
        let log = log.map(|name| self.path(name));
        let make = move || slurm_live(commands, log.as_deref(), &reading(from, "UTC"), None).unwrap();
        start_source(make, options)
    }

    /// Waits until the queue was looked at twice more: the first look may have begun before.
    fn wait(&self) {
        let (start, before) = (Instant::now(), self.looks());
        while self.looks() < before + 2 && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const NOBODY: &str = "exit 1";

#[test]
fn live_changes_come_from_the_queue_alone() {
    let fake = Fake::new(NOBODY);
    fake.show("  7 PENDING 1700000000 N/A N/A 0\n 8_1 RUNNING 1600000000 1600000001 NONE 0\n");
    let running = fake.start(1_700_000_000, None);
    fake.wait();
    fake.show(
        "  7 RUNNING 1700000000 1700000005 NONE 0\n 8_1 COMPLETED 1600000000 1600000001 1700000006 0\n",
    );
    fake.wait();
    fake.show(
        "  7 FAILED 1700000000 1700000005 1700000007 768\n 8_1 COMPLETED 1600000000 1600000001 1700000006 0\n",
    );
    fake.wait();
    let outcome = running.finish();
    assert_eq!(
        String::from_utf8(outcome.output).unwrap(),
        "001;1700000000;7;1;0\n001;1700000005;7;2;0\n001;1700000006;8_1;8;0\n001;1700000007;7;4;3\n"
    );
    assert_eq!(outcome.notes.len(), 1, "accounting is off: {:?}", outcome.notes);
}

#[test]
fn ends_that_the_queue_has_forgotten_come_from_the_accounts() {
    // Asked since when at the start, and later for the job that is gone.
    let fake = Fake::new(
        "case \"$*\" in *--starttime=*) echo '5|COMPLETED|1700000001|1700000002|1700000003|0:0' ;;
         *--jobs=7*) echo '7|CANCELLED by 0|1700000004|1700000005|1700000009|0:15' ;; esac",
    );
    fake.show("7 RUNNING 1700000004 1700000005 NONE 0\n");
    let running = fake.start(1_700_000_000, None);
    fake.wait();
    fake.show("");
    fake.wait();
    fake.wait();
    let outcome = running.finish();
    assert_eq!(
        String::from_utf8(outcome.output).unwrap(),
        "001;1700000001;5;1;0\n001;1700000002;5;2;0\n001;1700000003;5;8;0\n\
         001;1700000004;7;1;0\n001;1700000005;7;2;0\n001;1700000009;7;4;143\n"
    );
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}

#[test]
fn the_completion_log_tells_ends_and_starts_that_were_too_short_to_be_seen() {
    let fake = Fake::new(NOBODY);
    let log = fake.path("jobcomp");
    fs::write(&log, "").unwrap();
    fake.show("7 RUNNING 1700000000 1700000001 NONE 0\n");
    let running = fake.start(1_700_000_000, Some("jobcomp"));
    fake.wait();
    let line = |job: u32, state: &str, code: &str| {
        format!(
            "JobId={job} UserId=a(1) GroupId=a(1) Name=n JobState={state} Partition=d TimeLimit=1 \
             StartTime=2023-11-14T22:13:21 EndTime=2023-11-14T22:13:2{job} NodeList=n NodeCnt=1 ProcCnt=1 \
             WorkDir=/ SubmitTime=2023-11-14T22:13:20 DerivedExitCode=0:0 ExitCode={code} \n"
        )
    };
    fs::write(&log, line(7, "COMPLETED", "0:0") + &line(8, "FAILED", "2:0")).unwrap();
    // The queue shows both for a while as ended: told already.
    fake.show(
        "7 COMPLETED 1700000000 1700000001 1700000007 0\n8 FAILED 1700000000 1700000001 1700000008 512\n",
    );
    fake.wait();
    let outcome = running.finish();
    assert_eq!(
        String::from_utf8(outcome.output).unwrap(),
        "001;1700000000;7;1;0\n001;1700000001;7;2;0\n001;1700000007;7;8;0\n\
         001;1700000000;8;1;0\n001;1700000001;8;2;0\n001;1700000008;8;4;2\n"
    );
}

#[test]
fn looks_become_rarer_while_nothing_happens() {
    let fake = Fake::new(NOBODY);
    let running = fake.start(1_700_000_000, None);
    std::thread::sleep(PACE * 40);
    // Eight or fewer by then; at an even pace there would be forty.
    assert!((2..=10).contains(&fake.looks()), "{}", fake.looks());
    assert_eq!(running.finish().output, b"");
}

#[test]
fn a_command_that_is_stuck_keeps_nobody() {
    let fake = Fake::new(NOBODY);
    script(&fake.path("squeue"), "exec sleep 5");
    let options = Options { farewell: Duration::from_millis(80), ..options() };
    let running = fake.start_with(1_700_000_000, None, options);
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    running.finish();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
