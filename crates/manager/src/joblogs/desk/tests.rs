//! Killed at any point, every line is in its log once, in order.

use super::*;

fn line(position: u64, path: &Path) -> Line {
    let owner = Arc::from(user::name_of(user::own_uid()));
    let log = Log { owner, path: Arc::from(path.to_string_lossy()) };
    Line { key: (position, 1), base: 1, log, text: text(position) }
}

fn text(position: u64) -> String {
    format!("008 (001.000.000) 2026-03-02 10:00:00 line {position}\n...\n")
}

fn texts(positions: std::ops::RangeInclusive<u64>) -> String {
    positions.map(text).collect()
}

/// A new manager after a crash, told all lines again.
fn desk(dir: &Path, told: u64, paths: &[&Path]) -> Desk {
    let record = Record::load(dir).unwrap().unwrap_or_default();
    let mut desk = Desk::new(dir.to_owned(), true, record);
    for position in 1..=told {
        for path in paths {
            desk.put(line(position, path));
        }
        desk.told(position, Some(1));
    }
    desk
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
        first.flush();
        first.rest();
        let mut second = desk(dir.path(), 8, &[&log]);
        let open = second.open(&line(4, &log).log).unwrap();
        drop(open);
        second.save().unwrap();
        drop(second);
        let mut file = File::options().append(true).open(&log).unwrap();
        file.write_all(texts(4..=3 + reached).as_bytes()).unwrap();
        if torn {
            let next = text(4 + reached);
            file.write_all(&next.as_bytes()[..next.len() - 3]).unwrap();
        }
        for round in 0..2 {
            let mut third = desk(dir.path(), 9, &[&log]);
            third.flush();
            assert_eq!(read(&log), texts(1..=9), "{reached} {torn} round {round}");
        }
    }
}

#[test]
fn other_writers_may_append_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut first = desk(dir.path(), 3, &[&log]);
    drop(first.open(&line(1, &log).log).unwrap());
    first.save().unwrap();
    std::fs::write(&log, [text(1), text(77), text(2), text(78)].concat()).unwrap();
    let mut second = desk(dir.path(), 3, &[&log]);
    second.flush();
    assert_eq!(read(&log), [text(1), text(77), text(2), text(78), text(3)].concat());
}

#[test]
fn a_log_that_cannot_be_written_blocks_no_other_and_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("log"), dir.path().join("absent/log"));
    let mut first = desk(dir.path(), 3, &[&bad, &good]);
    first.flush();
    first.rest();
    assert_eq!(read(&good), texts(1..=3));
    assert!(first.next_retry().is_some() && first.waiting() == 3);
    // Killed while it is behind; the directory is made meanwhile.
    drop(first);
    std::fs::create_dir(dir.path().join("absent")).unwrap();
    let mut second = desk(dir.path(), 4, &[&bad, &good]);
    second.flush();
    second.rest();
    assert_eq!((read(&good), read(&bad), second.waiting()), (texts(1..=4), texts(1..=4), 0));
}

#[test]
fn what_its_owner_deletes_stays_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut first = desk(dir.path(), 3, &[&log]);
    first.flush();
    first.rest();
    std::fs::remove_file(&log).unwrap();
    let mut second = desk(dir.path(), 3, &[&log]);
    second.flush();
    second.rest();
    assert!(!log.exists());
}

#[test]
fn strangers_and_links_get_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut first = desk(dir.path(), 2, &[&link]);
    let mut stranger = line(3, &dir.path().join("other"));
    stranger.log.owner = Arc::from("no such user");
    first.put(stranger);
    first.flush();
    assert_eq!((read(&target).as_str(), first.waiting()), ("precious", 2));
    assert!(!dir.path().join("other").exists());
}

#[test]
fn a_damaged_record_is_named_and_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Record::load(dir.path()).unwrap(), None);
    std::fs::write(dir.path().join(FILE), "{\"written\":[1").unwrap();
    let error = Record::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains(FILE) && error.contains("written again"), "{error}");
}
