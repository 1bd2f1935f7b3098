//! Killed at any point, every line is in its log once, in order.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use model::event::{ClusterSubmitted, Kind};
use starter::logbook;

use super::*;
use crate::joblogs::record::Kept;
use crate::joblogs::story::Story;

const OWNER: &str = "alice";

fn line(position: u64, path: &Path) -> Line {
    let log = Arc::from(path.to_string_lossy());
    Line { key: (position, 1), base: 1, log, text: text(position), about: about() }
}

/// What a line of a real story is about.
fn about() -> About {
    let attribute =
        |name: &str, expr: &str| model::template::Attribute { name: name.into(), expr: expr.into() };
    let shared = vec![attribute("UserLog", "\"/log\""), attribute("Iwd", "\"/\"")];
    let template = model::JobTemplate { procs: 1, shared, ..model::JobTemplate::default() };
    let submitted =
        ClusterSubmitted { cluster: 7, owner: OWNER.into(), template, ..ClusterSubmitted::default() };
    let event = model::Event { time_ms: 1_000, kind: Some(Kind::ClusterSubmitted(submitted)) };
    let mut found = None;
    let mut story = Story::new(Arc::from(OWNER), "host".into(), std::collections::HashMap::new());
    let stopped = story.tell(1, &event, (0, 0), &mut |line| {
        found = Some(line.about);
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(stopped, None);
    found.unwrap()
}

fn text(position: u64) -> String {
    format!("008 (001.000.000) 2026-03-02 10:00:00 line {position}\n...\n")
}

fn texts(positions: std::ops::RangeInclusive<u64>) -> String {
    positions.map(text).collect()
}

/// A new manager after a crash, told all lines again.
fn desk(dir: &Path, told: u64, paths: &[&Path]) -> Desk {
    super::super::record::begin(dir).unwrap();
    let record = Kept::load(dir, (1, 1_000_000)).unwrap().records.pop().unwrap_or_default();
    let mut desk = Desk::new(Arc::from(OWNER), record);
    for position in 1..=told {
        for path in paths {
            desk.put(line(position, path));
        }
        desk.told(position, Some(1));
    }
    desk
}

/// How far a round goes before the manager is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Opened,
    Announced,
    Appended,
}

/// What clerk and scribe do.
fn round(desk: &mut Desk, dir: &Path, until: Until) -> bool {
    let mut files = Vec::new();
    let opens = desk.begin_round(Instant::now());
    let any = !opens.is_empty();
    for mut open in opens {
        let number = open.number;
        match logbook::open_log(&mut open) {
            Ok((file, lines, mark)) => {
                desk.opened(&FromScribe { number, lines, mark: Some(mark), ..FromScribe::default() });
                files.push((number, file, open.lines));
            }
            Err(error) => {
                desk.opened(&FromScribe { number, error: error.to_string(), ..FromScribe::default() })
            }
        }
    }
    if until == Until::Opened {
        return false;
    }
    desk.record().save(dir).unwrap();
    desk.saved();
    if until == Until::Announced {
        return false;
    }
    let growing = desk.growing();
    for (number, file, lines) in files.into_iter().filter(|(number, ..)| growing.contains(number)) {
        let (lines, error) = logbook::append(&file, &lines);
        assert!(error.is_none());
        desk.appended(&FromScribe { number, lines, ..FromScribe::default() });
    }
    any
}

fn flush(desk: &mut Desk, dir: &Path) {
    while round(desk, dir, Until::Appended) {}
    desk.end_flush();
}

fn rest(desk: &mut Desk, dir: &Path) {
    if desk.is_worth_saving() {
        desk.record().save(dir).unwrap();
        desk.saved();
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_crash_before_between_and_behind_the_appends() {
    // How many of the five announced lines reached the file, and whether the next was begun.
    for (reached, torn) in [(0, false), (0, true), (2, false), (3, true), (5, false)] {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut first = desk(dir.path(), 3, &[&log]);
        flush(&mut first, dir.path());
        rest(&mut first, dir.path());
        let mut second = desk(dir.path(), 8, &[&log]);
        round(&mut second, dir.path(), Until::Announced);
        drop(second);
        let mut file = File::options().append(true).open(&log).unwrap();
        file.write_all(texts(4..=3 + reached).as_bytes()).unwrap();
        if torn {
            let next = text(4 + reached);
            file.write_all(&next.as_bytes()[..next.len() - 3]).unwrap();
        }
        for round in 0..2 {
            let mut third = desk(dir.path(), 9, &[&log]);
            flush(&mut third, dir.path());
            assert_eq!(read(&log), texts(1..=9), "{reached} {torn} round {round}");
        }
    }
}

#[test]
fn more_lines_than_go_into_one_round_are_looked_for_round_by_round() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let many = LINES_OF_LOG as u64 + 500;
    // Both rounds were announced and written, and the second record was lost with the disk's cache.
    let mut first = desk(dir.path(), many, &[&log]);
    round(&mut first, dir.path(), Until::Announced);
    std::fs::write(&log, texts(1..=many - 10)).unwrap();
    let mut second = desk(dir.path(), many + 3, &[&log]);
    flush(&mut second, dir.path());
    assert!(read(&log) == texts(1..=many + 3), "each once, in order");
    assert_eq!(second.waiting(), 0);
}

#[test]
fn other_writers_may_append_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut first = desk(dir.path(), 3, &[&log]);
    round(&mut first, dir.path(), Until::Announced);
    std::fs::write(&log, [text(1), text(77), text(2), text(78)].concat()).unwrap();
    let mut second = desk(dir.path(), 3, &[&log]);
    flush(&mut second, dir.path());
    assert_eq!(read(&log), [text(1), text(77), text(2), text(78), text(3)].concat());
}

#[test]
fn a_scribe_that_dies_is_no_worse_than_a_manager_that_does() {
    let dir = tempfile::tempdir().unwrap();
    let (hung, other) = (dir.path().join("hung"), dir.path().join("other"));
    let mut desk = desk(dir.path(), 4, &[&hung, &other]);
    round(&mut desk, dir.path(), Until::Announced);
    // It was killed in the first log, after two lines; nobody knows of the second log either.
    std::fs::write(&hung, texts(1..=2)).unwrap();
    std::fs::write(&other, texts(1..=4)).unwrap();
    desk.abandoned(Some(0), "too long", true);
    flush(&mut desk, dir.path());
    assert_eq!((read(&other), desk.waiting()), (texts(1..=4), 4), "only the log that hung waits");
    assert!(desk.next_retry().unwrap() > Instant::now() + LAST_RETRY / 2);
    assert_eq!(desk.troubles()[0].why, "too long");
    desk.queues.values_mut().for_each(|q| q.retry_at = None);
    flush(&mut desk, dir.path());
    assert_eq!((read(&hung), desk.troubles()), (texts(1..=4), Vec::new()));
    // One that dies before anything is announced has written nothing.
    desk.put(line(5, &hung));
    round(&mut desk, dir.path(), Until::Opened);
    desk.abandoned(Some(0), "gone", false);
    desk.queues.values_mut().for_each(|q| q.retry_at = None);
    flush(&mut desk, dir.path());
    assert_eq!(read(&hung), texts(1..=5));
}

#[test]
fn a_log_that_cannot_be_written_blocks_no_other_and_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("log"), dir.path().join("absent/log"));
    let mut first = desk(dir.path(), 3, &[&bad, &good]);
    flush(&mut first, dir.path());
    rest(&mut first, dir.path());
    assert_eq!(read(&good), texts(1..=3));
    assert!(first.next_retry().is_some() && first.waiting() == 3);
    // Killed while it is behind; the directory is made meanwhile.
    drop(first);
    std::fs::create_dir(dir.path().join("absent")).unwrap();
    let mut second = desk(dir.path(), 4, &[&bad, &good]);
    flush(&mut second, dir.path());
    rest(&mut second, dir.path());
    assert_eq!((read(&good), read(&bad), second.waiting()), (texts(1..=4), texts(1..=4), 0));
}

#[test]
fn what_is_given_up_is_told_in_the_log_itself_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (small, bad) = (dir.path().join("absent/small"), dir.path().join("absent/log"));
    let told = BACKLOG as u64 + 10;
    let mut first = desk(dir.path(), told, &[&bad]);
    first.put(line(told + 1, &small));
    first.told(told + 1, Some(1));
    flush(&mut first, dir.path());
    assert_eq!(first.waiting(), 2, "the log with most of them is given up, and no other");
    rest(&mut first, dir.path());
    std::fs::create_dir(dir.path().join("absent")).unwrap();
    let mut second = desk(dir.path(), told, &[&bad]);
    second.put(line(told + 1, &small));
    second.put(line(told + 2, &bad));
    second.told(told + 2, Some(1));
    flush(&mut second, dir.path());
    let log = read(&bad);
    assert!(log.starts_with("008 (007.000.000)") && log.ends_with(&text(told + 2)), "{log}");
    assert!(log.contains(&format!("{told} events are missing here")), "{log}");
    assert_eq!((log.matches("...\n").count(), read(&small)), (2, text(told + 1)));
}

#[test]
fn what_its_owner_deletes_stays_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut first = desk(dir.path(), 3, &[&log]);
    flush(&mut first, dir.path());
    rest(&mut first, dir.path());
    std::fs::remove_file(&log).unwrap();
    let mut second = desk(dir.path(), 3, &[&log]);
    flush(&mut second, dir.path());
    rest(&mut second, dir.path());
    assert!(!log.exists());
}

#[test]
fn links_get_no_log_and_strangers_none_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut desk = desk(dir.path(), 2, &[&link]);
    flush(&mut desk, dir.path());
    assert_eq!((read(&target).as_str(), desk.waiting()), ("precious", 2));
    desk.refuse("no account");
    desk.put(line(3, &target));
    assert_eq!((desk.waiting(), desk.troubles().len()), (0, 1));
}
