//! Files of a journal exchanged for older copies of themselves, or lost, in every combination: the journal is refused, or
//! reads exactly as before. What was acknowledged is never taken for never written.

use std::path::{Path, PathBuf};

use journal::{Error, Journal};

use crate::world::{SMALL, copy, event, events, files, positions, read_all, sample};

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Kept,
    Older,
    Lost,
}

const FATES: [Fate; 3] = [Fate::Kept, Fate::Older, Fate::Lost];

/// What happened between the older copy and now.
#[derive(Debug, Clone, Copy)]
enum Since {
    Batches,
    Restart,
    /// Copied while no manager ran, as a careful person would.
    Stop,
    Snapshot,
    Segments,
}

/// A journal, and a copy of it as it was some time before.
fn two_ages(since: Since) -> (tempfile::TempDir, tempfile::TempDir, u64) {
    let now = tempfile::tempdir().unwrap();
    let mut journal = sample(now.path());
    if matches!(since, Since::Stop) {
        journal.save_snapshot(900, b"state").unwrap();
    }
    let older = copy(now.path());
    if matches!(since, Since::Stop) {
        drop(journal);
        journal = Journal::open_sized(now.path(), SMALL).unwrap().0;
    }
    let mut last = 901;
    journal.append(&[event(last)]).unwrap();
    match since {
        Since::Batches | Since::Stop => {}
        Since::Restart => {
            drop(journal);
            journal = Journal::open_sized(now.path(), SMALL).unwrap().0;
        }
        Since::Snapshot => journal.save_snapshot(last, b"state").unwrap(),
        Since::Segments => {
            while last < 2_000 {
                journal.append(&events(last + 1..=last + 10)).unwrap();
                last += 10;
            }
        }
    }
    drop(journal);
    (now, older, last)
}

/// Positions that a manager would find, or nothing when it refuses to start.
fn found(manager: &Path) -> Option<Vec<u64>> {
    match Journal::open_sized(manager, SMALL) {
        Ok((journal, _)) => Some(positions(&read_all(&mut journal.reader().unwrap(), 1).unwrap())),
        Err(Error::Damaged { .. } | Error::Gone { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_combination_of_older_copies_hides_what_came_later() {
    for since in [Since::Batches, Since::Restart, Since::Stop, Since::Snapshot, Since::Segments] {
        let (now, older, last) = two_ages(since);
        let segment = files(older.path(), ".segment").pop().unwrap();
        let names: Vec<PathBuf> =
            ["manifest".into(), "head".into(), segment.file_name().unwrap().into()].to_vec();
        for round in 0..27_usize {
            let fates = [FATES[round % 3], FATES[round / 3 % 3], FATES[round / 9]];
            let hurt = copy(now.path());
            for (name, fate) in names.iter().zip(fates) {
                let (from, to) =
                    (older.path().join("journal").join(name), hurt.path().join("journal").join(name));
                match fate {
                    Fate::Kept => {}
                    Fate::Older => drop(std::fs::copy(from, to).unwrap()),
                    Fate::Lost => std::fs::remove_file(to).unwrap(),
                }
            }
            let report = journal::check(hurt.path());
            let is_sound = report.is_ok_and(|report| report.findings.is_empty());
            let found = found(hurt.path());
            let what = format!("{since:?}, manifest, head, segment {fates:?}");
            assert!(found.is_some() || !is_sound, "check tells what stops a start: {what}");
            if let Some(found) = found {
                // All files that tell of the end are of the same moment: that is a backup, put back.
                let [manifest, head, segment] = fates;
                let backup = head == Fate::Older && segment == Fate::Older;
                let named = manifest == Fate::Older || matches!(since, Since::Batches);
                let whole = found == (1..=last).collect::<Vec<_>>();
                assert!(whole || (backup && named && !matches!(since, Since::Segments)), "{what}");
            }
        }
    }
}

#[test]
fn an_older_manifest_costs_nothing_when_it_is_salvaged() {
    let (now, older, last) = two_ages(Since::Segments);
    for names in [&["manifest"][..], &["manifest", "head"]] {
        let hurt = copy(now.path());
        for name in names {
            let (from, to) =
                (older.path().join("journal").join(name), hurt.path().join("journal").join(name));
            std::fs::copy(from, to).unwrap();
        }
        let error = Journal::open_sized(hurt.path(), SMALL).unwrap_err().to_string();
        assert!(error.contains("older copy") && error.contains(".segment"), "{error}");
        let salvaged = journal::salvage(hurt.path()).unwrap().unwrap();
        assert_eq!((salvaged.kept, salvaged.left_out), ((1, last), 0));
        assert_eq!(found(hurt.path()).unwrap().len(), last as usize);
    }
}

#[test]
fn an_older_manifest_of_the_same_segments_is_refused_and_no_epoch_is_used_twice() {
    let (now, older, _) = two_ages(Since::Restart);
    std::fs::copy(older.path().join("journal/manifest"), now.path().join("journal/manifest")).unwrap();
    let error = Journal::open_sized(now.path(), SMALL).unwrap_err().to_string();
    assert!(error.contains("start 1, the last was 2"), "{error}");
    journal::salvage(now.path()).unwrap().unwrap();
    assert_eq!(Journal::open_sized(now.path(), SMALL).unwrap().1.epoch, 3);
}

#[test]
fn a_segment_that_was_begun_and_not_named_before_a_kill_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let newest = files(dir.path(), ".segment").pop().unwrap();
    let begun = newest.with_file_name(format!("{:020}.segment", 901));
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[4096..].fill(0);
    std::fs::write(&begun, bytes).unwrap();
    assert!(journal::check(dir.path()).unwrap().findings.is_empty());
    assert_eq!(found(dir.path()).unwrap().len(), 900);
    // A first start that was killed before its head was made.
    let dir = tempfile::tempdir().unwrap();
    drop(Journal::open_sized(dir.path(), SMALL).unwrap());
    let manifest = dir.path().join("journal/manifest");
    let text = std::fs::read_to_string(&manifest).unwrap().replace("epoch 1", "epoch 0");
    let body = &text[..text.rfind("check ").unwrap()];
    std::fs::write(&manifest, format!("{body}check {:08x}\n", crc32fast::hash(body.as_bytes()))).unwrap();
    std::fs::remove_file(dir.path().join("journal/head")).unwrap();
    assert_eq!(Journal::open_sized(dir.path(), SMALL).unwrap().1.epoch, 1);
}

/// The bytes of a head that say who leads, or is about to.
fn leader(manager: &Path, epoch: u64, leads: bool) -> Vec<u8> {
    let manifest = std::fs::read_to_string(manager.join("journal/manifest")).unwrap();
    let id = manifest.lines().find_map(|line| line.strip_prefix("id ")).unwrap();
    let id: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&id[2 * i..2 * i + 2], 16).unwrap()).collect();
    let mut bytes = epoch.to_le_bytes().to_vec();
    bytes.push(u8::from(leads));
    let mut crc = crc32fast::Hasher::new_with_initial(crc32fast::hash(&id));
    crc.update(&bytes);
    bytes.extend_from_slice(&crc.finalize().to_le_bytes());
    bytes
}

#[test]
fn a_start_that_was_killed_while_it_took_over_is_followed_by_another() {
    for (epoch, leads, is_good) in [
        (1, true, true),
        // Killed behind the manifest, and before it.
        (1, false, true),
        (2, false, true),
        (2, true, false),
        (3, false, false),
        (0, true, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        drop(sample(dir.path()));
        let path = dir.path().join("journal/head");
        let mut head = std::fs::read(&path).unwrap();
        let bytes = leader(dir.path(), epoch, leads);
        head[2048..2048 + bytes.len()].copy_from_slice(&bytes);
        std::fs::write(&path, head).unwrap();
        assert_eq!(found(dir.path()).is_some(), is_good, "epoch {epoch}, {leads}");
    }
}

#[test]
fn a_flipped_bit_in_the_head_is_told_by_check_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample(dir.path()));
    let path = dir.path().join("journal/head");
    let bytes = std::fs::read(&path).unwrap();
    let used = (512..532).chain(1024..1044).chain(2048..2061);
    for at in used {
        let mut hurt = bytes.clone();
        hurt[at] ^= 1 << (at % 8);
        std::fs::write(&path, hurt).unwrap();
        let report = journal::check(dir.path()).unwrap();
        assert_eq!(report.findings.len(), 1, "byte {at}: {:?}", report.findings);
        assert_eq!(report.findings[0].path, path);
    }
}

/// Copies a directory of plain files.
fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_journal_that_was_put_back_whole_is_noticed_by_what_lies_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, backup) = (journal::directory(dir.path()), dir.path().join("backup"));
    let (mut journal, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.put_back, None);
    journal.append(&events(1..=10)).unwrap();
    drop(journal);
    copy_files(&inside, &backup);
    let put_back = || {
        std::fs::remove_dir_all(&inside).unwrap();
        copy_files(&backup, &inside);
    };
    // Nothing but a start came later.
    let (journal, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!((recovery.put_back, recovery.epoch), (None, 2));
    drop(journal);
    put_back();
    let (mut journal, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.put_back, Some(journal::Witness { epoch: 2, next: 11, ended: false }));
    // Within one run, by how far events went.
    journal.append(&events(11..=20)).unwrap();
    journal.bear_last_witness();
    drop(journal);
    copy_files(&backup, &inside);
    let (journal, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.put_back, Some(journal::Witness { epoch: 2, next: 21, ended: true }));
    drop(journal);
    let (_, recovery) = Journal::open(dir.path()).unwrap();
    assert_eq!(recovery.put_back, None, "told once");
}

/// Whatever is left of a journal shows that there was one: a new one would use its numbers again.
#[test]
fn a_journal_of_which_only_a_head_or_only_a_snapshot_is_left_is_not_begun_anew() {
    for kept in ["head", "snapshot-"] {
        let world = tempfile::tempdir().unwrap();
        drop(sample(world.path()));
        std::fs::remove_file(world.path().join("journal.made")).unwrap();
        for entry in std::fs::read_dir(journal::directory(world.path())).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_name().to_string_lossy().starts_with(kept) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        let refused = Journal::open_sized(world.path(), SMALL).map(drop).unwrap_err().to_string();
        assert!(refused.contains("is gone") && refused.contains(kept), "{refused}");
    }
}
