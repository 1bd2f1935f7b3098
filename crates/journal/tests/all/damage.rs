//! One flipped bit, or a cut, anywhere: the journal is refused, or reads exactly as before. Never as something else.

use std::collections::BTreeMap;
use std::path::Path;

use journal::{Error, Journal, Positioned, Reader, Sizes};

use crate::world::{Dice, SMALL, copy, event, events, files, positions, read_all, records, sample};

/// The newest snapshot and all events.
type Everything = (Option<(u64, Vec<u8>)>, Vec<Positioned>);

/// What a reader of the whole journal makes of it, through recovery as a manager does it.
fn recover(manager: &Path) -> Result<Everything, Error> {
    let (journal, recovery) = Journal::open_sized(manager, SMALL)?;
    let all = read_all(&mut journal.reader()?, 1)?;
    assert_eq!(recovery.head, all.last().map_or(0, |(p, _)| *p));
    Ok((recovery.snapshot, all))
}

/// Flips a bit of a file, or cuts it.
#[derive(Debug)]
enum Harm {
    Flip { file: String, byte: usize, bit: u32 },
    Cut { file: String, length: usize },
}

impl Harm {
    fn does(&self, manager: &Path) {
        let (Harm::Flip { file, .. } | Harm::Cut { file, .. }) = self;
        let path = journal::directory(manager).join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        match self {
            Harm::Flip { byte, bit, .. } => bytes[*byte] ^= 1 << bit,
            Harm::Cut { length, .. } => bytes.truncate(*length),
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// A place of a kind, drawn by lot. `None` ends the kinds.
fn draw(manager: &Path, kind: usize, dice: &mut Dice) -> Option<(&'static str, Harm)> {
    let segments = files(manager, ".segment");
    let (sealed, newest) = (&segments[..segments.len() - 1], segments.last().unwrap());
    let bit = dice.below(8) as u32;
    let mut flip = |path: &Path, from: usize, size: usize| Harm::Flip {
        file: name(path),
        byte: from + dice.below(size),
        bit,
    };
    let any = flip(newest, 0, 1 << 10); // Draws, so that the kinds below differ from round to round.
    let Harm::Flip { byte, .. } = any else { unreachable!() };
    let old = &sealed[byte % sealed.len()];
    let in_old = records(old)[byte % records(old).len()];
    let in_new = records(newest)[byte % records(newest).len()];
    let last = *records(newest).last().unwrap();
    let whole = |path: &Path| std::fs::metadata(path).unwrap().len() as usize;
    Some(match kind {
        0 => ("length of a batch", flip(newest, in_new.0, 4)),
        1 => ("count of a batch", flip(newest, in_new.0 + 4, 4)),
        2 => ("position of a batch", flip(old, in_old.0 + 8, 8)),
        3 => ("chain of a batch", flip(newest, in_new.0 + 16, 8)),
        4 => ("events of an old batch", flip(old, in_old.0 + 24, in_old.1 - 24)),
        5 => ("the last acknowledged batch", flip(newest, last.0, last.1)),
        6 => ("first page of a segment", flip(old, 0, 40)),
        7 => ("marks", flip(newest, if byte % 2 == 0 { 512 } else { 1024 }, 24)),
        8 => ("manifest", flip(&journal::directory(manager).join("manifest"), 0, 100)),
        9 => {
            let snapshot = files(manager, "snapshot-").pop().unwrap();
            ("newest snapshot", flip(&snapshot, 0, whole(&snapshot)))
        }
        10 => {
            let hints = files(manager, ".hints").into_iter().find(|h| whole(h) > 0).unwrap();
            ("hints", flip(&hints, 0, whole(&hints)))
        }
        11 => ("zeros behind the end", flip(newest, last.0 + last.1, whole(newest) - last.0 - last.1)),
        12 => {
            let length = byte * 37 % (last.0 + last.1);
            ("newest segment cut", Harm::Cut { file: name(newest), length })
        }
        13 => {
            let length = byte * 37 % (records(old).last().unwrap().0 + 20);
            ("old segment cut", Harm::Cut { file: name(old), length })
        }
        14 => ("any byte of any file", {
            let all = files(manager, "");
            let all: Vec<_> = all.iter().filter(|f| whole(f) > 0).collect();
            let file = all[byte % all.len()];
            flip(file, 0, whole(file))
        }),
        _ => return None,
    })
}

#[test]
fn no_flipped_bit_and_no_cut_is_read_as_something_else() {
    let original = tempfile::tempdir().unwrap();
    drop(sample(original.path()));
    // A segment larger than the way between two hints, so that there are some.
    let large = Sizes { segment_bytes: 1 << 20, ..SMALL };
    let (mut journal, _) = Journal::open_sized(original.path(), large).unwrap();
    let many = (901..=4_000).map(event).collect::<Vec<_>>();
    for batch in many.chunks(7) {
        journal.append(batch).unwrap();
    }
    drop(journal);
    let truth = recover(copy(original.path()).path()).unwrap();
    assert_eq!(truth.1.len(), 4_000);
    let mut table: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    for kind in 0.. {
        for round in 0..100u64 {
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (kind as u64 * 1_000 + round + 1));
            let Some((what, harm)) = draw(original.path(), kind, &mut dice) else {
                eprintln!("kind of place: refused, harmless; silently different: 0 everywhere");
                for (what, [refused, harmless]) in &table {
                    eprintln!("{what}: {refused}, {harmless}");
                }
                let refused = |what: &str| table[what][0];
                assert_eq!(refused("the last acknowledged batch"), 100);
                assert_eq!(refused("events of an old batch"), 100);
                assert_eq!(refused("manifest"), 100);
                assert_eq!(refused("newest snapshot"), 100);
                assert_eq!(refused("newest segment cut"), 100);
                assert_eq!(refused("hints") + refused("zeros behind the end") + refused("marks"), 0);
                return;
            };
            let hurt = copy(original.path());
            harm.does(hurt.path());
            let row = table.entry(what).or_default();
            match recover(hurt.path()) {
                Err(Error::Damaged { .. } | Error::Newer { .. }) => row[0] += 1,
                Err(error) => panic!("{what}, {harm:?}: {error}"),
                Ok(found) => {
                    assert!(found == truth, "silently different: {what}, {harm:?}");
                    row[1] += 1;
                }
            }
        }
    }
}

#[test]
fn a_missing_or_exchanged_file_is_noticed() {
    let original = tempfile::tempdir().unwrap();
    drop(sample(original.path()));
    let segments = files(original.path(), ".segment");
    for segment in &segments {
        let hurt = copy(original.path());
        std::fs::remove_file(journal::directory(hurt.path()).join(name(segment))).unwrap();
        assert!(
            matches!(recover(hurt.path()), Err(Error::Damaged { .. })),
            "{} is missing",
            segment.display()
        );
    }
    // The content of another segment of the same journal, and the same segment of another journal.
    let hurt = copy(original.path());
    std::fs::copy(&segments[1], journal::directory(hurt.path()).join(name(&segments[0]))).unwrap();
    assert!(matches!(recover(hurt.path()), Err(Error::Damaged { .. })));
    let other = tempfile::tempdir().unwrap();
    drop(sample(other.path()));
    let hurt = copy(original.path());
    std::fs::copy(
        &files(other.path(), ".segment")[0],
        journal::directory(hurt.path()).join(name(&segments[0])),
    )
    .unwrap();
    assert!(matches!(recover(hurt.path()), Err(Error::Damaged { .. })));
    let hurt = copy(original.path());
    std::fs::remove_file(journal::directory(hurt.path()).join("manifest")).unwrap();
    assert!(matches!(recover(hurt.path()), Err(Error::Damaged { .. })));
    let hurt = copy(original.path());
    std::fs::remove_file(journal::directory(hurt.path()).join(name(&files(original.path(), "snapshot-")[1])))
        .unwrap();
    assert!(matches!(recover(hurt.path()), Err(Error::Damaged { .. })));
}

#[test]
fn an_older_copy_of_the_newest_segment_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    let newest = files(dir.path(), ".segment").pop().unwrap();
    let old = std::fs::read(&newest).unwrap();
    journal.append(&[event(901)]).unwrap();
    drop(journal);
    std::fs::write(&newest, &old).unwrap();
    let error = recover(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Damaged { position: 901, .. }), "{error}");
    let report = journal::check(dir.path()).unwrap();
    assert_eq!((report.head, report.findings.last().unwrap().lost), (901, Some((901, 901))));
    assert!(!report.end_unknown);
    // Nor does a head that cannot be read, or that of another journal, let it pass.
    let head = |dir: &Path| journal::directory(dir).join("head");
    let other = tempfile::tempdir().unwrap();
    drop(sample(other.path()));
    for bytes in [b"garbage".to_vec(), Vec::new(), std::fs::read(head(other.path())).unwrap()] {
        std::fs::write(head(dir.path()), bytes).unwrap();
        let error = recover(dir.path()).unwrap_err();
        assert!(matches!(&error, Error::Damaged { path, .. } if *path == head(dir.path())), "{error}");
        let report = journal::check(dir.path()).unwrap();
        assert_eq!(report.findings.iter().map(|f| &f.path).collect::<Vec<_>>(), [&head(dir.path())]);
    }
    assert!(journal::salvage(dir.path()).unwrap().is_some());
    assert_eq!(recover(dir.path()).unwrap().1.len(), 900);
}

#[test]
fn a_journal_that_is_gone_is_missed() {
    let is_gone = |dir: &Path| matches!(Journal::open(dir), Err(Error::Gone { .. }));
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    // Its files, but for what nobody reads first; then everything in it; then the directory.
    for file in files(dir.path(), ".segment") {
        std::fs::remove_file(file).unwrap();
    }
    assert!(!is_gone(dir.path()), "the manifest is there, and names files that are not");
    std::fs::remove_file(journal::directory(dir.path()).join("manifest")).unwrap();
    assert!(is_gone(dir.path()));
    for file in files(dir.path(), "") {
        std::fs::remove_file(file).unwrap();
    }
    assert!(is_gone(dir.path()), "an empty directory, as when its file system is not mounted");
    std::fs::remove_dir(journal::directory(dir.path())).unwrap();
    assert!(is_gone(dir.path()));
    let error = Journal::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("journal.made") && error.contains("backup"), "{error}");
    assert!(!journal::directory(dir.path()).exists(), "nothing is begun in its place");
}

#[test]
fn a_segment_that_was_deleted_under_its_writer_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = sample(dir.path());
    std::fs::remove_file(files(dir.path(), ".segment").pop().unwrap()).unwrap();
    assert!(matches!(journal.append(&[event(901)]), Err(Error::Damaged { position: 901, .. })));
}

#[test]
fn a_damaged_snapshot_is_not_believed_by_readers_either() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let snapshot = files(dir.path(), "snapshot-").pop().unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&snapshot, bytes).unwrap();
    let error = Reader::open(dir.path()).unwrap().snapshot().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains("salvage"), "{error}");
}

#[test]
fn a_hole_is_named_with_its_positions() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let segment = &files(dir.path(), ".segment")[1];
    let (at, size) = records(segment)[3];
    let mut bytes = std::fs::read(segment).unwrap();
    let first = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
    let count = u64::from(u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()));
    bytes[at + size - 1] ^= 1;
    std::fs::write(segment, bytes).unwrap();
    let report = journal::check(dir.path()).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].lost, Some((first, first + count - 1)));
    assert_eq!((report.oldest, report.head, report.events), (1, 900, 900 - count));
    // Readers of what is sound are not disturbed, others are told where it is.
    let mut reader = Reader::open(dir.path()).unwrap();
    assert_eq!(positions(&read_all(&mut reader, 800).unwrap()).len(), 101);
    assert!(matches!(read_all(&mut reader, 1), Err(Error::Damaged { position, .. }) if position == first));
}

#[test]
fn what_follows_a_hole_of_several_mebibytes_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { segment_bytes: 64 << 20, ..SMALL };
    let (mut journal, _) = Journal::open_sized(dir.path(), sizes).unwrap();
    journal.append(&[event(1)]).unwrap();
    journal.append(&events(2..=100_000)).unwrap();
    journal.append(&[event(100_001)]).unwrap();
    drop(journal);
    let segment = files(dir.path(), ".segment").pop().unwrap();
    let (at, size) = records(&segment)[1];
    assert!(size > 3 << 20, "{size}");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let report = journal::check(dir.path()).unwrap();
    let lost: Vec<_> = report.findings.iter().map(|f| f.lost).collect();
    assert_eq!((lost, report.head, report.events), (vec![Some((2, 100_000))], 100_001, 2));
}

#[test]
fn the_end_is_known_as_long_as_the_head_or_a_mark_of_the_newest_segment_is() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    std::fs::remove_file(journal::directory(dir.path()).join("head")).unwrap();
    assert!(!journal::check(dir.path()).unwrap().end_unknown, "the mark tells it");
    // Marks of a segment that another one follows are nobody's business.
    let spoil_marks = |segment: &Path| {
        let mut bytes = std::fs::read(segment).unwrap();
        bytes[512..4096].fill(0xff);
        std::fs::write(segment, bytes).unwrap();
    };
    let segments = files(dir.path(), ".segment");
    spoil_marks(&segments[0]);
    assert!(!journal::check(dir.path()).unwrap().end_unknown);
    spoil_marks(segments.last().unwrap());
    assert!(journal::check(dir.path()).unwrap().end_unknown);
}

#[test]
fn older_copies_of_the_newest_segment_and_the_head_together_are_noticed_by_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let (newest, head) =
        (files(dir.path(), ".segment").pop().unwrap(), journal::directory(dir.path()).join("head"));
    let old = [&newest, &head].map(|path| std::fs::read(path).unwrap());
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    journal.append(&events(901..=921)).unwrap();
    drop(journal);
    // A writer takes over, and has nothing to write; then the files of before are put back.
    drop(Journal::open_sized(dir.path(), SMALL).unwrap());
    assert_eq!(files(dir.path(), ".segment").pop().unwrap(), newest, "they are in the same segment");
    std::fs::write(&newest, &old[0]).unwrap();
    std::fs::write(&head, &old[1]).unwrap();
    let error = recover(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Damaged { position: 922, .. }), "{error}");
    let report = journal::check(dir.path()).unwrap();
    assert_eq!((report.head, report.findings.last().unwrap().lost), (921, Some((901, 921))));
    let salvaged = journal::salvage(dir.path()).unwrap().unwrap();
    assert_eq!((salvaged.kept, salvaged.head), ((1, 900), 921));
    assert!(journal::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn another_continuation_of_the_journal_is_not_taken_for_its_own() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let fork = copy(dir.path());
    let lengthen = |manager: &Path, with: u64| {
        let (mut journal, _) = Journal::open_sized(manager, SMALL).unwrap();
        journal.append(&[event(with)]).unwrap();
        drop(journal);
        drop(Journal::open_sized(manager, SMALL).unwrap());
    };
    lengthen(dir.path(), 901);
    lengthen(fork.path(), 902);
    let newest = files(dir.path(), ".segment").pop().unwrap();
    std::fs::copy(journal::directory(fork.path()).join(name(&newest)), &newest).unwrap();
    let head = |manager: &Path| journal::directory(manager).join("head");
    std::fs::copy(head(fork.path()), head(dir.path())).unwrap();
    assert!(matches!(recover(dir.path()), Err(Error::Damaged { .. })));
    assert!(!journal::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn a_segment_that_does_not_reach_the_next_one_stops_the_start_and_a_flipped_bit_in_it_does_not() {
    let original = tempfile::tempdir().unwrap();
    drop(sample(original.path()));
    let first = name(&files(original.path(), ".segment")[0]);
    let hurt = |how: &dyn Fn(&mut Vec<u8>)| {
        let hurt = copy(original.path());
        let path = journal::directory(hurt.path()).join(&first);
        let mut bytes = std::fs::read(&path).unwrap();
        how(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        Journal::open_sized(hurt.path(), SMALL).map(|_| ())
    };
    let (last, size) = *records(&files(original.path(), ".segment")[0]).last().unwrap();
    assert!(hurt(&|_| {}).is_ok());
    let cut = hurt(&|bytes| bytes.truncate(last + size - 1)).unwrap_err();
    assert!(matches!(cut, Error::Damaged { .. }) && cut.to_string().contains("cut off"), "{cut}");
    assert!(hurt(&|bytes| bytes.truncate(last + size)).is_ok(), "nothing but zeros is gone");
    assert!(hurt(&|bytes| bytes[last + 30] ^= 1).is_ok(), "found by whoever reads it");
    for mark in [512, 1024] {
        assert!(hurt(&|bytes| bytes[mark] ^= 1).is_ok(), "one mark may be that of the batch before");
    }
    // As it was before its last batch: both marks say so.
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open_sized(dir.path(), SMALL).unwrap();
    journal.append(&events(1..=9)).unwrap();
    let older = std::fs::read(&files(dir.path(), ".segment")[0]).unwrap();
    for n in 10..=600 {
        journal.append(&[event(n)]).unwrap();
    }
    journal.save_snapshot(600, b"all").unwrap();
    drop(journal);
    std::fs::write(&files(dir.path(), ".segment")[0], older).unwrap();
    let error = Journal::open_sized(dir.path(), SMALL).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("does not end where the next one begins"), "{error}");
}

#[test]
fn what_stands_behind_a_damaged_place_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let segments = files(dir.path(), ".segment");
    let range_of = |path: &Path, (at, _): (usize, usize)| {
        let bytes = std::fs::read(path).unwrap();
        let first = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        (first, first + u64::from(u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap())))
    };
    // One in the middle of a segment, and the last of another.
    let middle = records(&segments[1])[3];
    let last = *records(&segments[2]).last().unwrap();
    let holes = [range_of(&segments[1], middle), range_of(&segments[2], last)];
    for (path, (at, size)) in [(&segments[1], middle), (&segments[2], last)] {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at + size - 1] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let mut reader = Reader::open(dir.path()).unwrap();
    let (mut next, mut lost) = (1, Vec::new());
    loop {
        match reader.read(next, 1_000) {
            Ok(found) if found.is_empty() => break,
            Ok(found) => next = positions(&found).last().unwrap() + 1,
            Err(error) => {
                assert!(matches!(error, Error::Damaged { position, .. } if position == next), "{error}");
                let behind = reader.behind_damage(next).unwrap().unwrap();
                lost.push((next, behind));
                next = behind;
            }
        }
    }
    assert_eq!((next, lost), (901, holes.to_vec()), "all that is sound was read, and no more was lost");
}

#[test]
fn batches_that_changed_places_are_noticed_though_each_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    for n in 1..=120 {
        journal.append(&[event(n)]).unwrap();
    }
    drop(journal);
    let segment = files(dir.path(), ".segment").pop().unwrap();
    let places = records(&segment);
    let ((a, size), (b, other)) = (places[59], places[109]);
    assert_eq!(size, other, "they fit into each other's place");
    let mut bytes = std::fs::read(&segment).unwrap();
    let first = bytes[a..a + size].to_vec();
    bytes.copy_within(b..b + size, a);
    bytes[b..b + size].copy_from_slice(&first);
    std::fs::write(&segment, bytes).unwrap();
    assert!(matches!(Journal::open(dir.path()), Err(Error::Damaged { position: 60, .. })));
    let mut reader = Reader::open(dir.path()).unwrap();
    assert!(matches!(read_all(&mut reader, 1), Err(Error::Damaged { position: 60, .. })));
    assert!(!journal::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn a_hint_that_is_wrong_costs_nothing_but_time() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path()).unwrap();
    for n in 0..60 {
        journal.append(&events(n * 100 + 1..=n * 100 + 100)).unwrap();
    }
    let path = files(dir.path(), ".hints").pop().unwrap();
    let hints = std::fs::read(&path).unwrap();
    let named = |hint: &[u8]| u64::from_le_bytes(hint[..8].try_into().unwrap());
    assert!(hints.len() >= 3 * 16);
    for wrong in [8, 1_000] {
        let mut changed = hints.clone();
        for hint in changed.chunks_exact_mut(16) {
            let offset = u64::from_le_bytes(hint[8..].try_into().unwrap()) + wrong;
            hint[8..].copy_from_slice(&offset.to_le_bytes());
        }
        std::fs::write(&path, changed).unwrap();
        for first in hints.chunks_exact(16).map(named) {
            assert_eq!(positions(&Reader::open(dir.path()).unwrap().read(first, 1).unwrap())[0], first);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_not_said_to_be_damaged() {
    let original = tempfile::tempdir().unwrap();
    drop(sample(original.path()));
    let segments: Vec<String> = files(original.path(), ".segment").iter().map(|p| name(p)).collect();
    // The newest is a link to itself, which cannot be opened; an old one is a directory, which cannot be read.
    let hurt = copy(original.path());
    let newest = journal::directory(hurt.path()).join(segments.last().unwrap());
    std::fs::remove_file(&newest).unwrap();
    std::os::unix::fs::symlink(&newest, &newest).unwrap();
    let error = Journal::open_sized(hurt.path(), SMALL).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    let hurt = copy(original.path());
    let oldest = journal::directory(hurt.path()).join(&segments[0]);
    std::fs::remove_file(&oldest).unwrap();
    std::fs::create_dir(&oldest).unwrap();
    let error = Journal::open_sized(hurt.path(), SMALL).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
}
