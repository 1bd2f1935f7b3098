//! Appending, reading from any position, fencing.

use journal::{Error, Journal, Reader, Sizes};
use model::Event;
use model::event::{ClaimEnded, Kind};
use prost::Message as _;

use crate::world::{SMALL, event, events, files, positions, read_all, records, sample, state};

#[test]
fn what_was_appended_is_read_back_from_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    assert_eq!(journal.head(), 900);
    assert!(files(dir.path(), ".segment").len() > 3, "several segments");
    let mut reader = journal.reader().unwrap();
    for from in [1, 2, 3, 299, 300, 301, 640, 899, 900] {
        assert_eq!(positions(&read_all(&mut reader, from).unwrap()), (from..=900).collect::<Vec<_>>());
        // A reader that begins there, instead of one that has been elsewhere before.
        let mut fresh = Reader::open(dir.path()).unwrap();
        assert_eq!(positions(&fresh.read(from, 1).unwrap())[0], from);
    }
    assert!(reader.read(901, 1).unwrap().is_empty() && reader.read(5_000, 1).unwrap().is_empty());
    assert_eq!(positions(&read_all(&mut reader, 0).unwrap()).len(), 900, "0 is the beginning");
    // What comes later is seen by readers that were at the end.
    assert_eq!(journal.append(&events(901..=903)).unwrap(), 901);
    assert_eq!(positions(&reader.read(901, 10).unwrap()), [901, 902, 903]);
    assert_eq!((reader.head().unwrap(), reader.oldest().unwrap()), (903, 1));
}

#[test]
fn reading_on_stops_when_enough_was_read_and_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let mut reader = journal.reader().unwrap();
    let first = positions(&reader.read(1, 50).unwrap());
    assert!((50..60).contains(&first.len()), "whole batches until it is enough: {}", first.len());
    let next = first.len() as u64 + 1;
    assert_eq!(positions(&reader.read(next, 1).unwrap())[0], next);
    assert_eq!(journal.append(&[]).unwrap(), 901, "nothing appended is nothing written");
    assert_eq!(reader.head().unwrap(), 900);
}

#[test]
fn a_journal_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    for round in 1..=3 {
        let (mut journal, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
        assert_eq!((recovery.head, recovery.epoch), (899 + round, 1 + round));
        let (position, bytes) = recovery.snapshot.unwrap();
        assert!((700..710).contains(&position) && bytes == state(position));
        journal.append(&[event(900 + round)]).unwrap();
    }
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_eq!(positions(&read_all(&mut reader, 1).unwrap()), (1..=903).collect::<Vec<_>>());
    assert!(journal::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn a_batch_larger_than_a_segment_is_a_segment_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    journal.append(&events(1..=3)).unwrap();
    journal.append(&events(4..=5_000)).unwrap();
    journal.append(&events(5_001..=5_002)).unwrap();
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&read_all(&mut reader, 1).unwrap()).len(), 5_002);
    assert_eq!(positions(&reader.read(4_999, 1).unwrap()), [4_999, 5_000]);
    drop(journal);
    let (_, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
    assert_eq!(recovery.head, 5_002);
}

#[test]
fn a_second_writer_is_refused_while_the_first_lives() {
    let dir = tempfile::tempdir().unwrap();
    let first = sample(dir.path());
    assert!(matches!(Journal::open(dir.path()), Err(Error::Locked { .. })));
    drop(first);
    Journal::open(dir.path()).unwrap();
}

#[test]
fn an_older_writer_is_fenced_also_where_locks_do_not_work() {
    let dir = tempfile::tempdir().unwrap();
    let (mut old, _) = Journal::open(dir.path()).unwrap();
    old.append(&[event(1)]).unwrap();
    // As on a file system without locks: the new one does not see the old one's.
    std::fs::remove_file(journal::directory(dir.path()).join("lock")).unwrap();
    let (mut new, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!((recovery.epoch, recovery.head), (2, 1));
    assert!(matches!(old.append(&[event(2)]), Err(Error::Fenced { theirs: 2, ours: 1, .. })));
    assert!(matches!(old.probe(), Err(Error::Fenced { .. })));
    assert!(matches!(old.save_snapshot(1, b""), Err(Error::Fenced { .. })));
    assert_eq!(new.append(&[event(2)]).unwrap(), 2);
}

#[test]
fn a_manifest_that_was_touched_copied_or_linked_is_still_its_writers() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    let manifest = journal::directory(dir.path()).join("manifest");
    let copy = dir.path().join("copy");
    let mut number = 0;
    let mut go_on = |what: &str| {
        number += 1;
        journal.check_leadership().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(journal.append(&[event(number)]).unwrap(), number, "{what}");
        journal.save_snapshot(number, b"state").unwrap();
    };
    let touch = |at: u64| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at);
        std::fs::File::options().append(true).open(&manifest).unwrap().set_modified(time).unwrap();
    };
    touch(1_000);
    go_on("touched");
    std::fs::hard_link(&manifest, &copy).unwrap();
    go_on("linked");
    std::fs::remove_file(&copy).unwrap();
    std::fs::hard_link(&manifest, &copy).unwrap();
    std::fs::remove_file(&copy).unwrap();
    go_on("linked for a moment");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&manifest, mode).unwrap();
    go_on("another mode");
    std::fs::copy(&manifest, &copy).unwrap();
    std::fs::rename(&copy, &manifest).unwrap();
    go_on("the same bytes in another file");
    let older = std::fs::read(&manifest).unwrap();
    go_on("in between");
    std::fs::write(&manifest, older).unwrap();
    assert!(matches!(journal.append(&[event(99)]), Err(Error::Fenced { .. })), "older bytes are not ours");
}

#[test]
fn nobody_waits_for_a_pipe_or_a_device_in_the_place_of_a_file() {
    let pipe_at = |path: &std::path::Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    for name in ["manifest", "head", "lock", "segment", "hints", "snapshot"] {
        for device in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut journal = sample(dir.path());
            journal.save_snapshot(900, b"state").unwrap();
            drop(journal);
            let inside = journal::directory(dir.path());
            let files: Vec<std::path::PathBuf> =
                std::fs::read_dir(&inside).unwrap().map(|e| e.unwrap().path()).collect();
            let is_it = |path: &&std::path::PathBuf| {
                let file = path.file_name().unwrap().to_string_lossy().into_owned();
                match name {
                    "hints" | "segment" => path.extension().is_some_and(|e| e == name),
                    "snapshot" => file.starts_with("snapshot"),
                    name => file == name,
                }
            };
            let path = files.iter().filter(is_it).max().unwrap_or_else(|| panic!("{name} in {files:?}"));
            std::fs::remove_file(path).unwrap();
            if device {
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            } else {
                pipe_at(path);
            }
            // Hints are never believed, and done without; of everything else it is said what it is.
            let opened = Journal::open(dir.path());
            assert_eq!(opened.is_ok(), name == "hints", "{name}, device {device}: {:?}", opened.err());
            let _ = journal::check(dir.path());
        }
    }
}

#[test]
fn a_probe_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    journal.probe().unwrap();
    journal.append(&[event(901)]).unwrap();
    journal.probe().unwrap();
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&read_all(&mut reader, 1).unwrap()).len(), 901);
}

#[test]
fn an_event_of_a_kind_that_this_version_does_not_know_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    journal.append(&[event(1)]).unwrap();
    // What a newer version's event looks like to this one: known fields only.
    journal.append(&[event(2), model::Event { time_ms: 3, kind: None }]).unwrap();
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&reader.read(1, 1).unwrap()), [1]);
    assert_eq!(positions(&reader.read(2, 9).unwrap()), [2], "what comes before it can be read");
    let error = reader.read(3, 9).unwrap_err();
    assert!(matches!(error, Error::UnknownEvent { position: 3, .. }), "{error}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(error.to_string().matches(version).count(), 2, "both versions are named: {error}");
}

#[test]
fn a_journal_of_an_older_version_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("journal.db"), "SQLite format 3").unwrap();
    assert!(matches!(Journal::open(dir.path()), Err(Error::Older { .. })));
    assert!(!journal::directory(dir.path()).exists());
    assert!(Reader::open(dir.path()).is_err());
}

#[test]
fn an_open_reader_follows_into_segments_that_were_begun_after_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    journal.append(&events(1..=3)).unwrap();
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&read_all(&mut reader, 1).unwrap()), [1, 2, 3]);
    for next in 4..=900 {
        journal.append(&[event(next)]).unwrap();
    }
    assert!(files(dir.path(), ".segment").len() > 3);
    assert_eq!(positions(&read_all(&mut reader, 4).unwrap()), (4..=900).collect::<Vec<_>>());
    assert!(reader.read(901, 1).unwrap().is_empty());
}

#[test]
fn a_reader_finds_a_place_to_begin_in_every_64_kib_of_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { segment_bytes: 64 << 20, ..SMALL };
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    for at in 0..400 {
        journal.append(&events(at * 100 + 1..=at * 100 + 100)).unwrap();
    }
    let length = |like: &str| std::fs::metadata(&files(dir.path(), like)[0]).unwrap().len();
    let (hints, stretches) = (length(".hints") / 16, records(&files(dir.path(), ".segment")[0]));
    let written = stretches.last().map(|(at, size)| at + size).unwrap() as u64;
    // A hint is at the first record behind its 64 KiB, so there are a few less than one in each.
    assert!((written / (72 << 10)..=written / (64 << 10)).contains(&hints), "{hints} in {written} bytes");
}

#[test]
fn a_reading_ends_after_some_mebibytes_whether_they_are_one_batch_or_many() {
    let large = |n: u64| {
        let reason = format!("{n}-").repeat(200_000);
        Event { time_ms: n, kind: Some(Kind::ClaimEnded(ClaimEnded { claim: n, reason })) }
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    // Forty events of half a mebibyte: the first half as one batch, the others as a batch each.
    journal.append(&(1..=20).map(large).collect::<Vec<_>>()).unwrap();
    for n in 21..=40 {
        journal.append(&[large(n)]).unwrap();
    }
    for from in [1, 7, 20, 33] {
        let mut reader = journal.reader().unwrap();
        let (mut next, mut readings) = (from, 0);
        loop {
            let found = reader.read(next, 1_000_000).unwrap();
            let bytes: usize = found.iter().map(|(_, e)| e.encoded_len()).sum();
            let Some((last, _)) = found.last() else { break };
            assert!(bytes < 5 << 20, "{bytes} bytes at {next}");
            for ((position, found), expected) in found.iter().zip(next..) {
                assert_eq!((*position, found), (expected, &large(expected)));
            }
            (next, readings) = (last + 1, readings + 1);
        }
        assert!(next == 41 && readings >= (41 - from) / 12, "{next}, {readings}");
    }
    // What was begun is left for something else, and taken up again.
    let mut reader = journal.reader().unwrap();
    let next = reader.read(1, 1_000).unwrap().last().unwrap().0 + 1;
    assert_eq!(reader.read(30, 1).unwrap()[0].0, 30);
    assert_eq!(reader.read(next, 1).unwrap()[0], (next, large(next)));
}
