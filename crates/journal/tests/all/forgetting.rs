//! Snapshots, and what is forgotten behind them.

use journal::{Error, Journal, Reader, Sizes};

use crate::world::{SMALL, event, events, files, positions, read_all, records, sample, state};

#[test]
fn only_what_snapshots_cover_is_forgotten_and_readers_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let segments = files(dir.path(), ".segment").len();
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&reader.read(100, 1).unwrap())[0], 100);
    journal.forget_before(900).unwrap();
    let oldest = journal.oldest();
    assert!(oldest > 1 && oldest <= 310, "the older snapshot, of 300, needs what comes after it: {oldest}");
    assert!(files(dir.path(), ".segment").len() < segments, "the files are gone");
    for asked in [1, oldest - 1] {
        let error = reader.read(asked, 1).unwrap_err();
        assert!(matches!(error, Error::Forgotten { oldest: o, .. } if o == oldest), "{error}");
        assert!(error.to_string().contains(&oldest.to_string()), "{error}");
    }
    assert_eq!(positions(&read_all(&mut reader, oldest).unwrap()).len() as u64, 901 - oldest);
    assert_eq!((reader.oldest().unwrap(), reader.head().unwrap()), (oldest, 900));
    drop(journal);
    let (_, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
    assert_eq!(recovery.head, 900);
    assert!(journal::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn nothing_is_forgotten_without_a_snapshot_or_before_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    for n in 1..=600 {
        journal.append(&[event(n)]).unwrap();
    }
    journal.forget_before(600).unwrap();
    assert_eq!(journal.oldest(), 1);
    journal.save_snapshot(600, &state(600)).unwrap();
    journal.forget_before(2).unwrap();
    assert_eq!(journal.oldest(), 1, "nobody asked for that");
    journal.forget_before(601).unwrap();
    assert!(journal.oldest() > 1);
    assert_eq!(journal.append(&[event(601)]).unwrap(), 601);
}

#[test]
fn a_journal_that_takes_too_many_bytes_forgets_its_oldest_segments() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { kept_bytes: 500 << 10, ..SMALL };
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    for n in 1..=2_000 {
        journal.append(&[event(n)]).unwrap();
    }
    journal.save_snapshot(2_000, &state(2_000)).unwrap();
    journal.forget_before(1).unwrap();
    let bytes: u64 = files(dir.path(), ".segment").iter().map(|f| f.metadata().unwrap().len()).sum();
    assert!(journal.oldest() > 1 && bytes <= sizes.kept_bytes, "{bytes}");
}

#[test]
fn a_reader_that_is_overtaken_by_forgetting_is_told_and_not_misled() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let mut slow = journal.reader().unwrap();
    let read = positions(&slow.read(1, 10).unwrap()).len() as u64;
    journal.save_snapshot(900, &state(900)).unwrap();
    journal.save_snapshot(900, &state(900)).unwrap();
    for n in 901..=1_500 {
        journal.append(&[event(n)]).unwrap();
    }
    journal.save_snapshot(1_500, &state(1_500)).unwrap();
    journal.forget_before(1_500).unwrap();
    // The file that it had open is still readable; behind its end there is a gap.
    let told = read_all(&mut slow, read + 1).expect_err("events are missing without a word");
    assert!(matches!(told, Error::Forgotten { .. }), "{told}");
}

#[test]
fn two_snapshots_are_kept_and_the_newest_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    assert_eq!(files(dir.path(), "snapshot-").len(), 2);
    journal.save_snapshot(880, b"newest").unwrap();
    assert_eq!(files(dir.path(), "snapshot-").len(), 2);
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.snapshot().unwrap(), Some((880, b"newest".to_vec())));
    drop(journal);
    let (_, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
    assert_eq!(recovery.snapshot, Some((880, b"newest".to_vec())));
    let empty = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(empty.path()).unwrap();
    assert_eq!(journal.reader().unwrap().snapshot().unwrap(), None);
}

#[test]
fn bytes_that_a_restart_would_have_to_read_are_counted_and_a_snapshot_ends_them() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { segment_bytes: 256 << 10, ..SMALL };
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    let empty = journal.bytes_to_replay();
    for n in 0..200 {
        journal.append(&events(n * 100 + 1..=n * 100 + 100)).unwrap();
    }
    let bytes = journal.bytes_to_replay() - empty;
    let written: usize = files(dir.path(), ".segment").iter().flat_map(|f| records(f)).map(|r| r.1).sum();
    assert_eq!(bytes, written as u64);
    drop(journal);
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    assert!(journal.bytes_to_replay() >= bytes, "also what was written before");
    journal.save_snapshot(20_000, b"state").unwrap();
    assert_eq!(journal.bytes_to_replay(), 0);
    drop(journal);
    let (journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    let left = journal.bytes_to_replay();
    assert!(left < 400 << 10 && bytes > 600 << 10, "only the newest segment: {left} of {bytes}");
}

#[test]
fn a_journal_that_takes_a_snapshot_every_so_many_bytes_stays_below_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { segment_bytes: 256 << 10, kept_bytes: 2 << 20 };
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    let every = 512 << 10;
    let mut most = 0;
    for n in 0..1_200 {
        journal.append(&events(n * 100 + 1..=n * 100 + 100)).unwrap();
        if journal.bytes_to_replay() >= every {
            let head = journal.head();
            journal.save_snapshot(head, &state(head)).unwrap();
            journal.forget_before(1).unwrap();
        }
        let bytes: u64 = files(dir.path(), ".segment").iter().map(|f| f.metadata().unwrap().len()).sum();
        most = most.max(bytes);
    }
    assert!(journal.oldest() > 10_000, "more was written than is kept");
    // A segment more than the bytes between two snapshots, with the zeros that are written ahead.
    assert!(most <= sizes.kept_bytes + every + 2 * sizes.segment_bytes, "{most}");
}
