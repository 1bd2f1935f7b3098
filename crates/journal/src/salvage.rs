//! A journal of what can still be read: the state as far as it can be followed without a hole, and the history that leads
//! to it. What lies behind a hole is told, not replayed: the state would not be the one that it was decided in.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use model::Event;
use model::event::{JournalSalvaged, Kind, cluster_of};
use serde::{Deserialize, Serialize};

use crate::check::{Finding, Stretch, each_batch, survey};
use crate::head::HeadFile;
use crate::manifest::Manifest;
use crate::record::{self, HEAD, Link};
use crate::segment::{self, Active, Mark, RECORDS};
use crate::witness::Witness;
use crate::writer::take_lock;
use crate::{Error, files, snapshot};

/// Where a salvaged journal is until it is whole.
pub(crate) const SALVAGED: &str = "journal.salvaged";
/// Bytes of the batches that a salvaged journal is written in.
const TOGETHER: usize = 4 << 20;
/// Bytes of the segments that a salvaged journal is written in.
const SEGMENT: u64 = 64 << 20;
/// Numbers that are skipped when nobody knows how many events were lost: more than a segment has.
const UNKNOWN: u64 = 10_000_000;
/// Numbers that are skipped when a witness saw a later journal than this one: its word is some seconds old.
const UNSEEN: u64 = 200_000;
/// What came of a salvage, in the journal that it made, until a manager has told it.
const OUTCOME: &str = "salvage.json";
const OUTCOME_BYTES: u64 = 16 << 20;
/// Events that can be read and are not part of the salvaged journal, one JSON object a line.
const LEFT_OUT: &str = "left-out.jsonl";

/// What came of a salvage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Salvaged {
    /// What was wrong.
    pub findings: Vec<Finding>,
    /// First and last position of the salvaged journal; the last is smaller when no event is left.
    pub kept: (u64, u64),
    /// The snapshot that the state is built on.
    pub snapshot: Option<u64>,
    /// Last position that was acknowledged, as far as known.
    pub head: u64,
    /// True when nobody knows how far the journal went.
    pub end_unknown: bool,
    /// The damaged journal was an older one that had been put back: the pool's own went on behind it.
    pub put_back: bool,
    /// The oldest position that the damaged journal had.
    pub oldest: u64,
    /// Events behind a hole, which could be read but not be replayed.
    pub left_out: u64,
    /// Where these are listed.
    pub left_out_file: PathBuf,
    /// Where the damaged journal is now.
    pub damaged: PathBuf,
}

#[derive(Serialize)]
struct LeftOut {
    position: u64,
    #[serde(flatten)]
    event: Event,
}

/// Replaces a damaged journal by one of what can be read. `None` when nothing is damaged: then nothing is changed.
pub fn salvage(manager: &Path) -> Result<Option<Salvaged>, Error> {
    let directory = crate::directory(manager);
    let interrupted = manager.join(SALVAGED);
    if !directory.exists() && interrupted.join("manifest").exists() {
        // Killed between its last two steps: the damaged journal is set aside, and the new one is whole.
        rename(&interrupted, &directory)?;
        bear_witness(manager, &directory)?;
        if let Some(salvaged) = outcome(manager) {
            return Ok(Some(salvaged));
        }
    }
    let _lock = take_lock(&directory)?;
    let survey = survey(&directory)?;
    let report = &survey.report;
    if report.findings.is_empty() {
        return Ok(None);
    }
    let (kept, snapshot) = choose(&survey.sound, &report.snapshots);
    let damaged = free_name(manager);
    let new = interrupted;
    // What an earlier salvage left that was killed.
    let _ = std::fs::remove_dir_all(&new);
    std::fs::create_dir_all(&new).map_err(|e| Error::of_write("cannot make", &new, e))?;
    let left_out_file = directory.join(LEFT_OUT);
    let left_out = tell_left_out(&directory, &survey.manifest, &survey.sound, kept, &left_out_file)?;
    let epoch = survey.manifest.epoch.max(newest_epoch(&directory, &survey.manifest, &survey.sound)?);
    // An older journal that was put back knows less of what was lost than the witness beside it.
    let seen = Witness::read(manager).filter(|seen| seen.contradicts(epoch, report.head + 1));
    let head = seen.map_or(report.head, |seen| report.head.max(seen.next.saturating_sub(1)));
    let unknown = match seen {
        _ if report.end_unknown => UNKNOWN,
        Some(seen) if !seen.ended => UNSEEN,
        _ => 0,
    };
    let lost = head.saturating_sub(kept.1);
    let note = (lost > 0 || unknown > 0).then(|| {
        let unread = lost.saturating_sub(left_out.count) + unknown;
        let (last_cluster, last_claim) = (left_out.last_cluster, left_out.last_claim);
        JournalSalvaged { head, unread, last_cluster, last_claim }
    });
    let epoch = seen.map_or(epoch, |seen| epoch.max(seen.epoch));
    write(&directory, &new, (&survey.manifest, epoch), &survey.sound, kept, note)?;
    let salvaged = Salvaged {
        findings: report.findings.clone(),
        kept,
        snapshot,
        head,
        left_out: left_out.count,
        end_unknown: report.end_unknown,
        put_back: seen.is_some() && !report.end_unknown,
        oldest: report.oldest,
        left_out_file: damaged.join(LEFT_OUT),
        damaged: damaged.clone(),
    };
    let text = serde_json::to_vec_pretty(&salvaged).unwrap_or_default();
    files::replace(&new.join(OUTCOME), &[&text])?;
    if let Err(error) = rename(&directory, &damaged) {
        // What was made would be taken for a salvage that was interrupted.
        let _ = std::fs::remove_dir_all(&new);
        return Err(error);
    }
    rename(&new, &directory)?;
    bear_witness(manager, &directory)?;
    Ok(Some(salvaged))
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::rename(from, to).map_err(|error| {
        if error.kind() == io::ErrorKind::ResourceBusy {
            let hint = "it is a file system of its own: have it mounted elsewhere, copy the journal's files into an ordinary directory \
                        of this name, and salvage again";
            return Error::of_write("cannot rename", from, io::Error::new(error.kind(), format!("{error} ({hint})")));
        }
        Error::of_write("cannot rename", from, error)
    })
}

/// What was lost is told by the journal itself from now on.
fn bear_witness(manager: &Path, directory: &Path) -> Result<(), Error> {
    if let Some((manifest, _)) = Manifest::load(directory)? {
        Witness { epoch: manifest.epoch, next: manifest.reached.next, ended: true }.write(manager)?;
    }
    files::sync_directory_of(directory)
}

/// What came of the salvage that made this journal, if no manager has told it yet.
pub fn outcome(manager: &Path) -> Option<Salvaged> {
    let mut text = Vec::new();
    let file = files::open(&crate::directory(manager).join(OUTCOME)).ok()?;
    file.take(OUTCOME_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// It was told.
pub fn forget_outcome(manager: &Path) {
    let _ = std::fs::remove_file(crate::directory(manager).join(OUTCOME));
}

fn free_name(manager: &Path) -> PathBuf {
    let name = |n: u32| manager.join(format!("journal.damaged-{n}"));
    (1..u32::MAX).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// Which positions to keep: of the states that can be had (each snapshot, and the empty one before the first event), the
/// one from which events can be followed furthest; and as much history before it as there is without a hole.
fn choose(sound: &[Stretch], snapshots: &[u64]) -> ((u64, u64), Option<u64>) {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for stretch in sound {
        let (first, last) = (stretch.first, stretch.next - 1);
        match runs.last_mut() {
            Some(run) if run.1 + 1 == first => run.1 = last,
            _ => runs.push((first, last)),
        }
    }
    let reach = |state: u64| {
        let run = runs.iter().find(|(first, last)| *first <= state + 1 && state <= *last);
        run.copied().unwrap_or((state + 1, state))
    };
    // The empty state is the last choice; among equals a newer snapshot means less to replay.
    let states = snapshots.iter().rev().map(|p| (Some(*p), *p)).chain([(None, 0)]);
    let mut best: Option<(Option<u64>, (u64, u64))> = None;
    for (snapshot, state) in states {
        let run = reach(state);
        if best.is_none_or(|(_, kept)| run.1 > kept.1) {
            best = Some((snapshot, run));
        }
    }
    best.map_or(((1, 0), None), |(snapshot, kept)| (kept, snapshot))
}

/// Writes the batches that are kept into a new journal, as they are: also events that this version does not know.
fn write(
    old: &Path,
    new: &Path,
    (manifest, epoch): (&Manifest, u64),
    sound: &[Stretch],
    kept: (u64, u64),
    note: Option<JournalSalvaged>,
) -> Result<(), Error> {
    let mut next = Manifest::new(kept.0)?;
    (next.epoch, next.version) = (epoch, manifest.version.clone());
    let start = |begin: Link, id| {
        let file = segment::create(new, id, begin)?;
        Active::resume(new, file, begin, Mark { end: RECORDS, link: begin }, (RECORDS, &[]))
    };
    let mut active = start(next.segments[0], next.id)?;
    let mut batch = (0, vec![0; HEAD]);
    let append = |(count, bytes): (u32, Vec<u8>), next: &mut Manifest, active: &mut Active| {
        let too_large = Error::TooLarge { events: count as usize, limit: record::LARGEST };
        let (head, record) = record::close(active.link(), count, bytes).ok_or(too_large)?;
        if active.end() > RECORDS && active.end() + record.len() as u64 > SEGMENT {
            active.settle()?;
            *active = start(active.link(), next.id)?;
            next.segments.push(active.begin());
        }
        active.append(&head, &record)
    };
    each_batch(old, manifest, sound, |head, events| {
        if head.first < kept.0 || head.first > kept.1 {
            return Ok(());
        }
        // Together they must not become larger than a record may be.
        if batch.0 > 0 && batch.1.len() + events.len() > TOGETHER {
            append(std::mem::replace(&mut batch, (0, vec![0; HEAD])), &mut next, &mut active)?;
        }
        batch.0 += head.count;
        batch.1.extend_from_slice(events);
        Ok(())
    })?;
    if batch.0 > 0 {
        append(batch, &mut next, &mut active)?;
    }
    if let Some(note) = note {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_ms = since.map_or(0, |d| d.as_millis() as u64);
        let event = Event { time_ms, kind: Some(Kind::JournalSalvaged(note)) };
        if let Some((head, record)) = record::encode(active.link(), &[event]) {
            active.append(&head, &record)?;
        }
    }
    active.settle()?;
    for position in manifest.snapshots.iter().filter(|p| **p + 1 >= kept.0 && **p <= kept.1) {
        if let Ok(state) = snapshot::load(old, manifest.id, *position) {
            snapshot::save(new, next.id, *position, &state)?;
            next.snapshots.push(*position);
        }
    }
    next.reached = active.link();
    let head = HeadFile::open(new, next.id, active.mark(), next.epoch)?;
    next.save(new)?;
    head.note_lead(next.epoch)?;
    Ok(())
}

/// Leadership goes on from the highest epoch that is known, also when the manifest is gone.
fn newest_epoch(old: &Path, manifest: &Manifest, sound: &[Stretch]) -> Result<u64, Error> {
    if manifest.epoch > 0 {
        return Ok(manifest.epoch);
    }
    let mut newest = 0;
    each_batch(old, manifest, sound, |head, events| {
        for event in record::decode(head, events).unwrap_or_default() {
            if let Some(Kind::ManagerStarted(started)) = event.kind {
                newest = newest.max(started.epoch);
            }
        }
        Ok(())
    })?;
    Ok(newest)
}

/// What stands behind a hole.
#[derive(Default)]
struct Unreached {
    count: u64,
    last_cluster: u32,
    last_claim: u64,
}

fn tell_left_out(
    directory: &Path,
    manifest: &Manifest,
    sound: &[Stretch],
    kept: (u64, u64),
    path: &Path,
) -> Result<Unreached, Error> {
    let fail = |e| Error::of_write("cannot write", path, e);
    let mut file = BufWriter::new(File::create(path).map_err(fail)?);
    let mut unreached = Unreached::default();
    each_batch(directory, manifest, sound, |head, events| {
        if head.first <= kept.1 {
            return Ok(());
        }
        for (position, event) in (head.first..).zip(record::decode(head, events).unwrap_or_default()) {
            let cluster = event.kind.as_ref().and_then(cluster_of).unwrap_or(0);
            unreached.last_cluster = unreached.last_cluster.max(cluster);
            if let Some(Kind::ClaimMade(made)) = &event.kind {
                unreached.last_claim = unreached.last_claim.max(made.claim);
            }
            unreached.count += 1;
            serde_json::to_writer(&mut file, &LeftOut { position, event }).map_err(|e| fail(e.into()))?;
            file.write_all(b"\n").map_err(fail)?;
        }
        Ok(())
    })?;
    file.flush().map_err(fail)?;
    Ok(unreached)
}
