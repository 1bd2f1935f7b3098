//! A damaged journal is replaced by what can be read of it.

use std::path::Path;

use journal::{Journal, Salvaged};
use model::event::Kind;

use crate::world::{SMALL, copy, event, files, positions, read_all, records, sample, state};

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// Damages the batch that holds a position; returns the batch's first and last position.
fn hurt_batch(manager: &Path, position: u64) -> (u64, u64) {
    for segment in files(manager, ".segment") {
        let bytes = std::fs::read(&segment).unwrap();
        for (at, size) in records(&segment) {
            let first = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
            let count = u64::from(u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()));
            if (first..first + count).contains(&position) {
                flip(&segment, at + size - 2);
                return (first, first + count - 1);
            }
        }
    }
    panic!("position {position} is in no batch");
}

fn salvage(manager: &Path) -> Salvaged {
    let salvaged = journal::salvage(manager).unwrap().expect("it was damaged");
    assert!(journal::check(manager).unwrap().findings.is_empty(), "the new journal is sound");
    assert!(salvaged.damaged.exists() && salvaged.left_out_file.exists());
    let lines = std::fs::read_to_string(&salvaged.left_out_file).unwrap();
    assert_eq!(lines.lines().count() as u64, salvaged.left_out);
    salvaged
}

fn reopen(manager: &Path) -> (Journal, journal::Recovery) {
    Journal::open_sized(manager, SMALL).unwrap()
}

#[test]
fn a_sound_journal_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    assert!(journal::salvage(dir.path()).unwrap().is_none());
    assert_eq!(reopen(dir.path()).1.head, 900);
}

#[test]
fn damage_before_the_snapshot_costs_history_and_no_state() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let hole = hurt_batch(dir.path(), 200);
    let salvaged = salvage(dir.path());
    assert_eq!((salvaged.kept, salvaged.left_out), ((hole.1 + 1, 900), 0));
    let (mut journal, recovery) = reopen(dir.path());
    let snapshot = recovery.snapshot.unwrap();
    assert_eq!((recovery.head, recovery.epoch, snapshot.0), (900, 2, salvaged.snapshot.unwrap()));
    assert_eq!(snapshot.1, state(snapshot.0));
    let mut reader = journal.reader().unwrap();
    assert_eq!(positions(&read_all(&mut reader, hole.1 + 1).unwrap()).len() as u64, 900 - hole.1);
    assert_eq!(journal.append(&[event(901)]).unwrap(), 901);
}

#[test]
fn behind_a_hole_after_the_snapshot_events_are_told_and_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let hole = hurt_batch(dir.path(), 850);
    let salvaged = salvage(dir.path());
    assert_eq!(salvaged.kept, (1, hole.0 - 1));
    assert_eq!((salvaged.head, salvaged.left_out), (900, 900 - hole.1));
    let told = std::fs::read_to_string(&salvaged.left_out_file).unwrap();
    assert!(told.starts_with(&format!("{{\"position\":{}", hole.1 + 1)), "{}", told.lines().next().unwrap());
    let (mut journal, recovery) = reopen(dir.path());
    assert_eq!(recovery.head, hole.0, "one event more: what was lost");
    journal.append(&[event(hole.0 + 1)]).unwrap();
    let all = read_all(&mut journal.reader().unwrap(), 1).unwrap();
    assert_eq!(all.len() as u64, hole.0 + 1);
    let note = &all[hole.0 as usize - 1].1.kind;
    let Some(Kind::JournalSalvaged(note)) = note else { panic!("{note:?}") };
    assert_eq!((note.head, note.unread), (900, hole.1 + 1 - hole.0), "nobody could read the damaged batch");
}

#[test]
fn a_damaged_snapshot_is_replaced_by_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    flip(&files(dir.path(), "snapshot-")[1], 100);
    let salvaged = salvage(dir.path());
    let snapshot = salvaged.snapshot.unwrap();
    assert!((300..310).contains(&snapshot) && salvaged.kept == (1, 900));
    let recovery = reopen(dir.path()).1;
    assert_eq!((recovery.head, recovery.snapshot), (900, Some((snapshot, state(snapshot)))));
}

#[test]
fn without_any_snapshot_everything_is_replayed_from_the_first_event() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    for snapshot in files(dir.path(), "snapshot-") {
        flip(&snapshot, 60);
    }
    let salvaged = salvage(dir.path());
    assert_eq!((salvaged.kept, salvaged.snapshot), ((1, 900), None));
    assert_eq!(reopen(dir.path()).1.head, 900);
}

#[test]
fn a_lost_manifest_is_made_again_and_epochs_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let started = model::event::ManagerStarted { version: "0".into(), epoch: 41, ..Default::default() };
    let started = model::Event { time_ms: 901, kind: Some(model::event::Kind::ManagerStarted(started)) };
    journal.append(&[started]).unwrap();
    drop(journal);
    flip(&journal::directory(dir.path()).join("manifest"), 30);
    let salvaged = salvage(dir.path());
    assert_eq!(salvaged.kept, (1, 901));
    let recovery = reopen(dir.path()).1;
    assert_eq!((recovery.head, recovery.epoch), (901, 42));
    assert!(recovery.snapshot.is_some());
}

#[test]
fn a_lost_newest_segment_costs_what_no_snapshot_covers() {
    for head_is_readable in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        drop(sample(dir.path()));
        let newest = files(dir.path(), ".segment").pop().unwrap();
        let first = newest.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
        std::fs::remove_file(&newest).unwrap();
        if !head_is_readable {
            std::fs::remove_file(journal::directory(dir.path()).join("head")).unwrap();
        }
        let report = journal::check(dir.path()).unwrap();
        let lost = report.findings.iter().filter_map(|f| f.lost).collect::<Vec<_>>();
        assert_eq!((report.events, report.end_unknown), (first - 1, !head_is_readable));
        assert_eq!(lost, if head_is_readable { vec![(first, 900)] } else { Vec::new() });
        let salvaged = salvage(dir.path());
        assert_eq!((salvaged.kept, salvaged.end_unknown), ((1, first - 1), !head_is_readable));
        let (journal, recovery) = reopen(dir.path());
        assert_eq!(recovery.head, first, "the note about what was lost");
        let note = journal.reader().unwrap().read(first, 1).unwrap().remove(0).1;
        let Some(Kind::JournalSalvaged(note)) = note.kind else { panic!("{note:?}") };
        let unread = if head_is_readable { 901 - first } else { 10_000_000 };
        assert_eq!((note.unread, note.last_claim), (unread, 0));
    }
}

#[test]
fn a_salvage_that_was_killed_before_its_last_step_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    hurt_batch(dir.path(), 200);
    let salvaged = salvage(dir.path());
    // As it was a moment before the end.
    std::fs::rename(journal::directory(dir.path()), dir.path().join("journal.salvaged")).unwrap();
    assert!(matches!(Journal::open(dir.path()), Err(journal::Error::Gone { .. })));
    let told =
        journal::salvage(dir.path()).unwrap().expect("it says what the interrupted one would have said");
    assert_eq!((told.kept, told.head), (salvaged.kept, salvaged.head));
    assert_eq!(told.findings, salvaged.findings);
    assert_eq!(journal::outcome(dir.path()).unwrap().head, 900, "for the manager to tell");
    assert_eq!(reopen(dir.path()).1.head, 900);
    journal::forget_outcome(dir.path());
    assert!(journal::salvage(dir.path()).unwrap().is_none() && journal::outcome(dir.path()).is_none());
}

#[test]
fn what_an_interrupted_salvage_left_is_not_taken_for_the_journal_of_a_later_day() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let left = dir.path().join("journal.salvaged");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("manifest"), "of another day").unwrap();
    drop(reopen(dir.path()));
    assert!(!left.exists());
}

#[test]
fn an_older_journal_that_is_put_back_and_salvaged_goes_on_behind_what_was_seen_of_the_later_one() {
    for is_orderly in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        drop(sample(dir.path()));
        let earlier = copy(dir.path());
        let (mut journal, recovery) = reopen(dir.path());
        journal.append(&(0..500).map(event).collect::<Vec<_>>()).unwrap();
        journal.bear_witness();
        if is_orderly {
            journal.bear_last_witness();
        }
        drop(journal);
        std::fs::remove_dir_all(journal::directory(dir.path())).unwrap();
        std::fs::rename(journal::directory(earlier.path()), journal::directory(dir.path())).unwrap();
        let hole = hurt_batch(dir.path(), 890);
        let salvaged = salvage(dir.path());
        assert!(salvaged.put_back && salvaged.kept.1 == hole.0 - 1);
        assert_eq!(salvaged.head, 1_400, "as far as the witness saw");
        let note = read_all(&mut journal::Reader::open(dir.path()).unwrap(), 1).unwrap().pop().unwrap().1;
        let Some(Kind::JournalSalvaged(note)) = note.kind else { panic!("{note:?}") };
        let unseen = if is_orderly { 0 } else { 200_000 };
        assert_eq!(note.unread + salvaged.left_out, 1_400 - salvaged.kept.1 + unseen, "{note:?}");
        let (_, again) = reopen(dir.path());
        assert!(again.epoch > recovery.epoch && again.put_back.is_none(), "it is told by the journal now");
    }
}

#[test]
fn a_flipped_bit_in_the_witness_is_no_witness() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let made = dir.path().join("journal.made");
    let text = std::fs::read(&made).unwrap();
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut hurt = text.clone();
            hurt[at] ^= 1 << bit;
            std::fs::write(&made, hurt).unwrap();
            let (journal, recovery) = reopen(dir.path());
            assert!(recovery.put_back.is_none(), "byte {at}, bit {bit}");
            drop(journal);
            std::fs::write(&made, &text).unwrap();
        }
    }
}

#[test]
fn a_missing_segment_and_a_damaged_first_page_are_holes() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let segments = files(dir.path(), ".segment");
    flip(&segments[0], 10);
    std::fs::remove_file(&segments[1]).unwrap();
    let report = journal::check(dir.path()).unwrap();
    let first = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let missing = (first(&segments[1]), first(&segments[2]) - 1);
    let lost: Vec<_> = report.findings.iter().map(|f| (f.path.clone(), f.lost)).collect();
    assert_eq!(lost, [(segments[0].clone(), None), (segments[1].clone(), Some(missing))]);
    assert_eq!((report.head, report.events), (900, 900 - (missing.1 + 1 - missing.0)));
    let salvaged = salvage(dir.path());
    assert_eq!(salvaged.kept.1, 900, "the snapshot of 700 and all that follows");
    assert_eq!(reopen(dir.path()).1.head, 900);
    // A second damage is set aside beside the first.
    hurt_batch(dir.path(), 890);
    assert_ne!(salvage(dir.path()).damaged, salvaged.damaged);
}

#[test]
fn what_is_kept_is_written_in_large_batches_and_few_segments() {
    let large = |n: u64| {
        let kind = model::event::ClaimEnded { claim: n, reason: "r".repeat(1 << 20) };
        model::Event { time_ms: n, kind: Some(Kind::ClaimEnded(kind)) }
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    for n in 1..=70 {
        journal.append(&[large(n)]).unwrap();
    }
    drop(journal);
    hurt_batch(dir.path(), 69);
    let salvaged = salvage(dir.path());
    assert_eq!(salvaged.kept, (1, 68));
    let report = journal::check(dir.path()).unwrap();
    assert_eq!((report.segments, report.events), (2, 69), "64 MiB each, and the note");
    assert!((68 / 4..=68 / 3 + 2).contains(&report.batches), "{} batches", report.batches);
    let mut reader = journal::Reader::open(dir.path()).unwrap();
    let all = read_all(&mut reader, 1).unwrap();
    assert!(all[..68].iter().enumerate().all(|(i, (p, e))| *p == i as u64 + 1 && *e == large(*p)));
}
