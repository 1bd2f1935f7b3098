//! A walk over everything that a journal has, which tells what is damaged and changes nothing.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::manifest::{self, Manifest};
use crate::record::{self, Head, Link, Misfit};
use crate::segment::{self, RECORDS, Stop, Walk};
use crate::{Error, files, head, snapshot};

/// Bytes looked at together when a record is searched for.
const SEARCHED: usize = 1 << 20;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// The damaged file.
    pub path: PathBuf,
    /// Positions that cannot be read, first and last; `None` when no event is lost by it.
    pub lost: Option<(u64, u64)>,
    /// What does not fit.
    pub what: String,
}

/// What a walk over a journal found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The oldest position that is kept.
    pub oldest: u64,
    /// The last committed position, as far as known.
    pub head: u64,
    /// True when nobody knows how far the journal went.
    pub end_unknown: bool,
    /// Files of events.
    pub segments: usize,
    /// Batches that can be read.
    pub batches: u64,
    /// Events that can be read.
    pub events: u64,
    /// Positions of snapshots that can be read.
    pub snapshots: Vec<u64>,
    /// Events of kinds that this version does not know, and the first of them.
    pub unknown: u64,
    /// Position of the first of these.
    pub first_unknown: Option<u64>,
    /// The version that wrote last.
    pub version: String,
    /// What is wrong; empty for a sound journal.
    pub findings: Vec<Finding>,
}

/// Batches of a segment that follow each other and can be read: what is remembered grows with the damage, not with the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) segment: usize,
    /// Where it begins and ends in the file.
    offset: u64,
    end: u64,
    pub(crate) first: u64,
    /// Position after its last event.
    pub(crate) next: u64,
    batches: u64,
}

/// Everything that can be read of a journal.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) manifest: Manifest,
    pub(crate) sound: Vec<Stretch>,
    pub(crate) report: Report,
}

/// Checks the journal of a manager's directory: every batch, every snapshot. A running manager does not mind.
pub fn check(manager: &Path) -> Result<Report, Error> {
    survey(&crate::directory(manager)).map(|survey| survey.report)
}

pub(crate) fn survey(directory: &Path) -> Result<Survey, Error> {
    let mut report = Report::default();
    let manifest = find_manifest(directory, &mut report)?;
    report.oldest = manifest.oldest();
    report.segments = manifest.segments.len();
    report.version.clone_from(&manifest.version);
    let mut sound = Vec::new();
    for segment in 0..manifest.segments.len() {
        survey_segment(directory, &manifest, segment, &mut sound, &mut report)?;
    }
    let known = head::read(directory, manifest.id)?.map(|known| known.link);
    let witnesses = [(head::path(directory), known), (manifest::path(directory), Some(manifest.reached))];
    let furthest = witnesses.into_iter().filter_map(|(path, link)| Some((path, link?.next)));
    if let Some((path, next)) = furthest.max_by_key(|(_, next)| *next)
        && next > report.head + 1
    {
        let lost = Some((report.head + 1, next - 1));
        let what = "the newest segment is older than the journal, or gone".to_owned();
        report.findings.push(Finding { path, lost, what });
        report.head = next - 1;
    }
    report.end_unknown &= known.is_none();
    for position in &manifest.snapshots {
        match snapshot::load(directory, manifest.id, *position) {
            Ok(_) => report.snapshots.push(*position),
            Err(Error::Damaged { path, what, .. }) => {
                report.findings.push(Finding { path, lost: None, what })
            }
            Err(error) => return Err(error),
        }
    }
    report.batches = sound.iter().map(|s| s.batches).sum();
    report.events = sound.iter().map(|s| s.next - s.first).sum();
    Ok(Survey { manifest, sound, report })
}

/// The manifest, or one made from the files that are there when there is none to believe.
fn find_manifest(directory: &Path, report: &mut Report) -> Result<Manifest, Error> {
    // Listed before the manifest is read: a running manager names a segment before it writes to it.
    let mut written = Vec::new();
    for (position, path) in segment::list(directory)? {
        // A running manager may forget it meanwhile.
        if segment::has_records(&path).unwrap_or(true) {
            written.push((position, path));
        }
    }
    let mut tell = |path: PathBuf, what: String| report.findings.push(Finding { path, lost: None, what });
    let manifest = match Manifest::load(directory) {
        Ok(Some((manifest, _))) => manifest,
        Ok(None) => {
            tell(manifest::path(directory), "the manifest is missing".to_owned());
            return guess_manifest(directory);
        }
        Err(Error::Damaged { path, what, .. }) => {
            tell(path, what);
            return guess_manifest(directory);
        }
        Err(error) => return Err(error),
    };
    let known = head::read(directory, manifest.id)?;
    let one_mark = || "one of its marks cannot be read; the other is enough for a start".to_owned();
    let fault = head::find_fault(known, manifest.epoch);
    if let Some(what) = fault.or_else(|| known.is_some_and(|k| !k.is_whole).then(one_mark)) {
        tell(head::path(directory), what);
    }
    let Some(what) = manifest.find_older(&written, known)? else { return Ok(manifest) };
    tell(manifest::path(directory), what);
    let guessed = guess_manifest(directory)?;
    let epoch = manifest.epoch.max(known.map_or(0, |known| known.leader.epoch));
    Ok(Manifest { epoch, version: manifest.version, id: manifest.id, ..guessed })
}

/// A manifest made from the files that are there.
fn guess_manifest(directory: &Path) -> Result<Manifest, Error> {
    let entries = std::fs::read_dir(directory).map_err(|e| Error::of_read("cannot read", directory, e))?;
    let mut manifest = Manifest::new(1)?;
    let mut heads = Vec::new();
    for entry in entries.flatten() {
        if let Some(position) = snapshot::position_of(&entry.file_name().to_string_lossy()) {
            manifest.snapshots.push(position);
        }
    }
    let listed = segment::list(directory)?;
    let newest = listed.last().map(|(first, _)| *first);
    for (first, path) in listed {
        // A segment that was begun and never written to is one only as the newest.
        if Some(first) != newest && !segment::has_records(&path)? {
            continue;
        }
        let head = files::open(&path).and_then(|f| segment::read_head(&f));
        // A damaged first page is found again when the segment is looked at.
        heads.push((first, head.map_err(|e| Error::of_read("cannot read", &path, e))?));
    }
    manifest.snapshots.sort_unstable();
    if heads.is_empty() {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(Error::of_read("there is no journal in", directory, source));
    }
    manifest.id = heads.iter().find_map(|(_, head)| head.map(|(id, _)| id)).unwrap_or(manifest.id);
    let link = |(first, head): &(u64, Option<([u8; 16], Link)>)| {
        head.map_or(Link { next: *first, chain: 0 }, |(_, link)| link)
    };
    manifest.segments = heads.iter().map(link).collect();
    Ok(manifest)
}

/// Looks at every record of a segment; behind one that does not fit, searches for the next that does.
fn survey_segment(
    directory: &Path,
    manifest: &Manifest,
    segment: usize,
    sound: &mut Vec<Stretch>,
    report: &mut Report,
) -> Result<(), Error> {
    let begin = manifest.segments[segment];
    let path = segment::path(directory, begin.next);
    let unreadable = |e| Error::of_read("cannot read", &path, e);
    let mut findings = Vec::new();
    let mut tell = |lost: Option<(u64, u64)>, what: String| {
        findings.push(Finding { path: path.clone(), lost, what });
    };
    let after = manifest.segments.get(segment + 1).map(|link| link.next);
    let file = match segment::open(directory, manifest.id, begin, false) {
        Ok(file) => file,
        Err(Error::Damaged { what, .. }) => {
            let Ok(file) = files::open(&path) else {
                let last = after.unwrap_or(begin.next) - 1;
                tell(after.map(|_| (begin.next, last)), what);
                report.findings.append(&mut findings);
                report.head = last;
                report.end_unknown |= after.is_none();
                return Ok(());
            };
            tell(None, what);
            file
        }
        Err(error) => return Err(error),
    };
    let (mark, both) = segment::read_marks(&file, begin).map_err(unreadable)?;
    if after.is_none() && (mark.is_none() || !both) {
        let what =
            if mark.is_none() { "neither mark can be read" } else { "one of the marks cannot be read" };
        tell(None, what.to_owned());
    }
    let end_unknown = after.is_none() && mark.is_none();
    // A segment that another one follows must reach it; the newest one must reach its mark.
    let stop = after.or(mark.map(|m| m.link.next)).unwrap_or(begin.next);
    let length = file.metadata().map_err(unreadable)?.len();
    let mut walk = Walk::new(file.try_clone().map_err(unreadable)?, RECORDS, Some(begin));
    let mut next = begin.next;
    let reached = manifest.reached;
    let mut reaches = after.is_some() || reached.next < begin.next || reached == begin;
    loop {
        let offset = walk.offset();
        let why = match walk.next(length) {
            Ok(Some((head, events))) => {
                next = head.link().next;
                reaches |= head.link() == reached;
                match look_at_events(&head, events, report) {
                    Ok(()) => lengthen(sound, segment, offset, &head),
                    // Written so, but no events: nobody can replay them.
                    Err(misfit) => tell(Some((head.first, next - 1)), misfit.to_string()),
                }
                continue;
            }
            Ok(None) => "nothing is there".to_owned(),
            Err(Stop::Misfit(misfit)) => misfit.to_string(),
            Err(Stop::Unreadable(error)) => return Err(unreadable(error)),
        };
        if next >= stop {
            // The end; what stands behind the mark and does not fit was never acknowledged.
            break;
        }
        let found = search(&file, offset + 1, length, (next, stop)).map_err(unreadable)?;
        let lost_to = found.map_or(stop, |(_, head)| head.first) - 1;
        tell((lost_to >= next).then_some((next, lost_to)), why);
        let Some((offset, head)) = found else {
            next = stop;
            break;
        };
        next = head.first;
        walk = Walk::new(file.try_clone().map_err(unreadable)?, offset, None);
    }
    if !reaches && findings.is_empty() && next >= reached.next {
        let what = format!("it is not the segment that the manifest knows up to {}", reached.next - 1);
        findings.push(Finding { path, lost: None, what });
    }
    report.findings.append(&mut findings);
    report.head = next.max(stop) - 1;
    report.end_unknown |= end_unknown;
    Ok(())
}

/// Adds a batch to what can be read.
fn lengthen(sound: &mut Vec<Stretch>, segment: usize, offset: u64, head: &Head) {
    let (first, next) = (head.first, head.link().next);
    match sound.last_mut() {
        Some(last) if last.segment == segment && last.end == offset && last.next == first => {
            (last.end, last.next, last.batches) = (offset + head.size(), next, last.batches + 1);
        }
        _ => sound.push(Stretch { segment, offset, end: offset + head.size(), first, next, batches: 1 }),
    }
}

/// Looks whether this version knows a batch's events.
fn look_at_events(head: &Head, mut events: &[u8], report: &mut Report) -> Result<(), Misfit> {
    let mut position = head.first;
    while !events.is_empty() {
        if record::decode_next(&mut events)?.kind.is_none() {
            report.unknown += 1;
            report.first_unknown.get_or_insert(position);
        }
        position += 1;
    }
    let found = position - head.first;
    if found == u64::from(head.count) { Ok(()) } else { Err(Misfit::Count { said: head.count, found }) }
}

/// Reads what can be read once more, batch by batch.
pub(crate) fn each_batch(
    directory: &Path,
    manifest: &Manifest,
    sound: &[Stretch],
    mut take: impl FnMut(&Head, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    for stretch in sound {
        let path = segment::path(directory, manifest.segments[stretch.segment].next);
        let unreadable = |e| Error::of_read("cannot read", &path, e);
        let mut walk = Walk::new(files::open(&path).map_err(unreadable)?, stretch.offset, None);
        loop {
            match walk.next(stretch.end) {
                Ok(Some((head, events))) => take(&head, events)?,
                Ok(None) => break,
                Err(Stop::Unreadable(error)) => return Err(unreadable(error)),
                Err(Stop::Misfit(misfit)) => {
                    let what = format!("it could be read a moment ago, but now {misfit}");
                    return Err(Error::Damaged { path, position: stretch.first, what });
                }
            }
        }
    }
    Ok(())
}

/// The first position at or behind `position` that can be read in a segment or after it; `None` when nothing follows.
pub(crate) fn sound_from(
    directory: &Path,
    manifest: &Manifest,
    segment: usize,
    position: u64,
) -> Result<Option<u64>, Error> {
    let mut sound = Vec::new();
    survey_segment(directory, manifest, segment, &mut sound, &mut Report::default())?;
    let here = sound.iter().find(|s| s.next > position).map(|s| s.first.max(position));
    Ok(here.or_else(|| manifest.segments.get(segment + 1).map(|link| link.next)))
}

/// The next place at which a record of the wanted positions stands whole.
pub(crate) fn search(
    file: &File,
    from: u64,
    length: u64,
    wanted: (u64, u64),
) -> std::io::Result<Option<(u64, Head)>> {
    let mut at = from;
    while at + record::HEAD as u64 <= length {
        let mut bytes = vec![0; SEARCHED.min((length - at) as usize)];
        file.read_exact_at(&mut bytes, at)?;
        for (i, window) in bytes.windows(record::HEAD).enumerate() {
            let mut head = [0; record::HEAD];
            head.copy_from_slice(window);
            let offset = at + i as u64;
            let plausible = Head::read(&head).filter(|h| {
                h.first >= wanted.0
                    && h.link().next <= wanted.1
                    && h.count > 0
                    && offset.saturating_add(h.size()) <= length
            });
            let Some(head) = plausible else { continue };
            let mut events = vec![0; head.length as usize];
            file.read_exact_at(&mut events, offset + record::HEAD as u64)?;
            if head.check_content(&events).is_ok() {
                return Ok(Some((offset, head)));
            }
        }
        at += (bytes.len() - record::HEAD + 1) as u64;
    }
    Ok(None)
}
