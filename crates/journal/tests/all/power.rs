//! What a crash or a power cut may leave: the last batch in part, or not at all; marks one batch behind.

use std::os::unix::fs::FileExt as _;

use journal::{Error, Journal};

use crate::world::{SMALL, copy, event, events, files, positions, read_all, records, sample};

/// A journal whose last batch was written and never acknowledged, as the disk may have it after a power cut: so many of
/// the batch's bytes, and the marks as they were before it.
fn cut_off(written: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let before = files(dir.path(), ".segment").pop().unwrap();
    let page = std::fs::read(&before).unwrap()[..4096].to_vec();
    let head = journal::directory(dir.path()).join("head");
    let head_before = std::fs::read(&head).unwrap();
    journal.append(&events(901..=905)).unwrap();
    drop(journal);
    let newest = files(dir.path(), ".segment").pop().unwrap();
    assert_eq!(before, newest, "the batch is in the same segment");
    let (at, size) = *records(&newest).last().unwrap();
    let file = std::fs::File::options().write(true).open(&newest).unwrap();
    file.write_all_at(&page, 0).unwrap();
    std::fs::write(&head, head_before).unwrap();
    file.write_all_at(&vec![0; size - written.min(size)], (at + written.min(size)) as u64).unwrap();
    dir
}

#[test]
fn a_batch_that_was_written_in_part_never_happened() {
    let size = {
        let dir = cut_off(usize::MAX);
        records(&files(dir.path(), ".segment").pop().unwrap()).last().unwrap().1
    };
    for written in (0..size).step_by(3) {
        let dir = cut_off(written);
        let (mut journal, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
        assert_eq!(recovery.head, 900, "{written} of {size} bytes");
        // A shorter batch in its place, and another start: nothing of the torn one is left.
        journal.append(&[event(901)]).unwrap();
        drop(journal);
        let (journal, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
        assert_eq!(recovery.head, 901);
        assert_eq!(positions(&read_all(&mut journal.reader().unwrap(), 1).unwrap()).len(), 901);
    }
}

#[test]
fn a_batch_whose_mark_was_not_written_is_there() {
    let dir = cut_off(usize::MAX);
    let (journal, recovery) = Journal::open_sized(dir.path(), SMALL).unwrap();
    assert_eq!(recovery.head, 905, "acknowledged a moment before the power was cut");
    assert_eq!(positions(&read_all(&mut journal.reader().unwrap(), 1).unwrap()).len(), 905);
}

#[test]
fn one_unreadable_mark_is_survived_and_two_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    for (places, sound) in [(vec![512], true), (vec![1024], true), (vec![512, 1024], false)] {
        let hurt = copy(dir.path());
        let newest = files(hurt.path(), ".segment").pop().unwrap();
        let file = std::fs::File::options().write(true).open(&newest).unwrap();
        for at in places {
            file.write_all_at(&[0xaa; 24], at).unwrap();
        }
        assert_eq!(journal::check(hurt.path()).unwrap().findings.len(), 1, "either is told");
        match Journal::open_sized(hurt.path(), SMALL) {
            Ok((_, recovery)) => assert!(sound && recovery.head == 900),
            Err(error) => assert!(!sound && matches!(error, Error::Damaged { .. }), "{error}"),
        }
    }
}

#[test]
fn a_first_start_that_was_killed_is_begun_again() {
    // A segment without records, and no manifest.
    let dir = tempfile::tempdir().unwrap();
    drop(Journal::open(dir.path()).unwrap());
    std::fs::remove_file(journal::directory(dir.path()).join("manifest")).unwrap();
    let (mut journal, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.head, 0);
    journal.append(&[event(1)]).unwrap();
    // A segment that was made and never named in the manifest.
    let (at, bytes) = (journal::directory(dir.path()).join(format!("{:020}.segment", 2)), b"half a page");
    std::fs::write(at, bytes).unwrap();
    drop(journal);
    let (_, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.head, 1);
}

#[test]
fn the_marks_are_written_in_turns_so_that_one_is_always_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    let segment = files(dir.path(), ".segment").pop().unwrap();
    for n in 1..=6 {
        journal.append(&[event(n)]).unwrap();
        for file in [segment.clone(), journal::directory(dir.path()).join("head")] {
            let bytes = std::fs::read(&file).unwrap();
            let next = |at: usize| u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
            let mut both = [next(512), next(1024)];
            both.sort_unstable();
            assert_eq!(both, [n, n + 1], "{}: the newest, and the one before it", file.display());
        }
    }
}
