//! Segments in a directory, an index by cluster beside each that is full, and the bookmark of the story.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use prost::Message as _;

use crate::Error;
use crate::row::{Bookmark, ClusterRecord, Row};
use crate::segment::{self, Kind, Record};
use crate::story::{Story, Told};

/// Records that are looked at for one page.
const LOOKED_AT: usize = 100_000;
/// Bytes of an entry of an index: cluster, first proc, count, offset.
const ENTRY: usize = 20;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A segment that has so many bytes is full.
    pub segment_bytes: u64,
    /// All segments together; the oldest go first.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, bytes: 4 << 30 }
    }
}

/// The writing side.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    limits: Limits,
    number: u64,
    file: File,
    bytes: u64,
    /// In which segment clusters are told of, and where.
    clusters: HashMap<u32, (u64, u64)>,
    /// Position of the last event that a record tells of.
    told: u64,
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:012}.rows"))
}

fn index_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:012}.index"))
}

/// Numbers of the segments, oldest first.
fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number: Option<u64> =
            name.to_str().and_then(|n| n.strip_suffix(".rows")).and_then(|n| n.parse().ok());
        found.extend(number);
    }
    found.sort_unstable();
    Ok(found)
}

fn open_for_appending(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).open(path).map_err(Error::at(path))
}

impl Files {
    /// Opens the directory, and says after which event the story goes on, given the oldest and the newest event of the journal.
    pub fn open(dir: &Path, limits: Limits, (oldest, head): (u64, u64)) -> Result<(Self, Story), Error> {
        fs::create_dir_all(dir).map_err(Error::at(dir))?;
        let number = segments(dir).map_err(Error::at(dir))?.pop().unwrap_or(1);
        let path = segment_path(dir, number);
        let file = open_for_appending(&path)?;
        let mut clusters = HashMap::new();
        let mut told = 0;
        let bytes = segment::whole_bytes(&file, |record| {
            told = told.max(position_of(record));
            if let (Kind::Cluster, Ok(c)) = (record.kind, ClusterRecord::decode(&*record.bytes)) {
                clusters.insert(c.cluster, (number, record.start));
            }
        });
        let bytes = bytes.map_err(Error::at(&path))?;
        // Half a record of a manager that was killed.
        file.set_len(bytes).map_err(Error::at(&path))?;
        let read = fs::read(dir.join("bookmark")).ok().and_then(|bytes| read_bookmark(&bytes));
        let bookmark = read.filter(|b| b.position <= head && b.position + 1 >= oldest);
        for c in bookmark.iter().flat_map(|b| &b.clusters) {
            clusters.entry(c.cluster).or_insert((c.segment, c.offset));
        }
        // A journal that is younger than the rows is another one, whose positions say nothing about them.
        let told = if told > head { 0 } else { told };
        let story = bookmark.map_or_else(Story::default, |b| Story::after(&b));
        Ok((Self { dir: dir.to_owned(), limits, number, file, bytes, clusters, told }, story))
    }

    /// Appends what is told, unless it was before.
    pub fn append(&mut self, told: &[Told]) -> Result<(), Error> {
        let mut buffer = Vec::new();
        let before = self.told;
        for one in told {
            match one {
                Told::Cluster(c) if c.position > before || !self.clusters.contains_key(&c.cluster) => {
                    self.put_cluster(&mut buffer, c.cluster, &c.encode_to_vec());
                    self.told = self.told.max(c.position);
                }
                Told::Row(row) if row.position > before => {
                    let cluster_at = self.cluster_here(&mut buffer, row.cluster)?;
                    let row = Row { cluster_at, ..row.clone() };
                    segment::push(&mut buffer, Kind::Row, &row.encode_to_vec());
                    self.told = self.told.max(row.position);
                }
                Told::Over(cluster) => drop(self.clusters.remove(cluster)),
                Told::Cluster(_) | Told::Row(_) => {}
            }
        }
        let path = segment_path(&self.dir, self.number);
        self.file.write_all(&buffer).map_err(Error::at(&path))?;
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    fn put_cluster(&mut self, buffer: &mut Vec<u8>, cluster: u32, bytes: &[u8]) {
        self.clusters.insert(cluster, (self.number, self.bytes + buffer.len() as u64));
        segment::push(buffer, Kind::Cluster, bytes);
    }

    /// Where this segment tells of a cluster; it is told again where only an older one does. `u64::MAX` when nobody knows it.
    fn cluster_here(&mut self, buffer: &mut Vec<u8>, cluster: u32) -> Result<u64, Error> {
        let Some(&(number, offset)) = self.clusters.get(&cluster) else { return Ok(u64::MAX) };
        if number == self.number {
            return Ok(offset);
        }
        let path = segment_path(&self.dir, number);
        let read = File::open(&path).and_then(|file| {
            let limit = file.metadata()?.len();
            segment::read_at(&file, offset, limit)
        });
        match read {
            Ok(Some(record)) => {
                self.put_cluster(buffer, cluster, &record.bytes);
                Ok(self.clusters.get(&cluster).map_or(u64::MAX, |(_, offset)| *offset))
            }
            Ok(None) => Ok(u64::MAX),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(u64::MAX),
            Err(error) => Err(Error::at(&path)(error)),
        }
    }

    /// True when a new segment is due.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.limits.segment_bytes
    }

    /// Makes what was appended durable, and then the place from where the story goes on; begins a new segment when this one is
    /// full, and forgets the oldest ones when there is too much.
    pub fn settle(&mut self, story: &Story) -> Result<(), Error> {
        let path = segment_path(&self.dir, self.number);
        self.file.sync_data().map_err(Error::at(&path))?;
        if self.is_full() {
            write_index(&self.dir, self.number, &self.file).map_err(Error::at(&path))?;
            self.number += 1;
            self.file = open_for_appending(&segment_path(&self.dir, self.number))?;
            self.bytes = 0;
            self.prune()?;
        }
        let clusters = &self.clusters;
        let place = |cluster| clusters.get(&cluster).copied().unwrap_or((0, u64::MAX));
        let bytes = story.bookmark(&place).encode_to_vec();
        let mut framed = crc32fast::hash(&bytes).to_le_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        let (path, aside) = (self.dir.join("bookmark"), self.dir.join("bookmark.new"));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            file.write_all(&framed)?;
            file.sync_all()?;
            fs::rename(&aside, &path)
        };
        write().map_err(Error::at(&path))
    }

    fn prune(&self) -> Result<(), Error> {
        let all = segments(&self.dir).map_err(Error::at(&self.dir))?;
        let mut room = self.limits.bytes;
        for number in all.into_iter().rev() {
            let path = segment_path(&self.dir, number);
            let bytes = fs::metadata(&path).map_or(0, |m| m.len());
            if number == self.number || bytes <= room {
                room = room.saturating_sub(bytes);
                continue;
            }
            room = 0;
            fs::remove_file(&path).map_err(Error::at(&path))?;
            let _ = fs::remove_file(index_path(&self.dir, number));
        }
        Ok(())
    }
}

fn position_of(record: &Record) -> u64 {
    match record.kind {
        Kind::Cluster => ClusterRecord::decode(&*record.bytes).map_or(0, |c| c.position),
        Kind::Row => Row::decode(&*record.bytes).map_or(0, |r| r.position),
    }
}

fn read_bookmark(bytes: &[u8]) -> Option<Bookmark> {
    let (sum, rest) = bytes.split_first_chunk::<4>()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*sum)).then(|| Bookmark::decode(rest).ok()).flatten()
}

/// Entries in the order of clusters, and within one in the order in which they were told.
fn index_of(file: &File) -> io::Result<Vec<[u8; ENTRY]>> {
    let mut entries = Vec::new();
    segment::whole_bytes(file, |record| {
        if let (Kind::Row, Ok(row)) = (record.kind, Row::decode(&*record.bytes)) {
            let mut entry = [0; ENTRY];
            // The most significant byte first, so that entries compare as their numbers do.
            entry[..4].copy_from_slice(&row.cluster.to_be_bytes());
            entry[4..12].copy_from_slice(&record.start.to_be_bytes());
            entry[12..16].copy_from_slice(&row.first.to_be_bytes());
            entry[16..].copy_from_slice(&row.count.to_be_bytes());
            entries.push(entry);
        }
    })?;
    entries.sort_unstable();
    Ok(entries)
}

fn write_index(dir: &Path, number: u64, file: &File) -> io::Result<()> {
    let aside = dir.join("index.new");
    let bytes: Vec<u8> = index_of(file)?.concat();
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    out.write_all(&bytes)?;
    out.sync_all()?;
    fs::rename(&aside, index_path(dir, number))
}

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    segment: u64,
    offset: u64,
    /// Jobs of the row there that were told already.
    skip: u32,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.segment, self.offset, self.skip)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '.').map(|part| part.parse::<u64>().map_err(drop));
        let mut next = || parts.next().unwrap_or(Err(()));
        let (segment, offset, skip) = (next()?, next()?, next()?);
        Ok(Self { segment, offset, skip: u32::try_from(skip).map_err(drop)? })
    }
}

/// Which jobs, newest first unless said otherwise.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Only of this cluster.
    pub cluster: Option<u32>,
    /// Only this job of it.
    pub proc: Option<u32>,
    /// Only this user's.
    pub owner: Option<String>,
    /// Oldest first.
    pub forwards: bool,
    /// `next` of the page before.
    pub from: Option<Cursor>,
    /// Jobs on the page.
    pub limit: usize,
}

/// A job that has left the queue.
#[derive(Debug, Clone)]
pub struct Found {
    /// Which.
    pub proc: u32,
    /// What became of it, and of others of the same row.
    pub row: Arc<Row>,
    /// How it was submitted, when that is still known.
    pub cluster: Option<Arc<ClusterRecord>>,
}

/// Part of the history.
#[derive(Debug, Default)]
pub struct Page {
    /// Jobs.
    pub jobs: Vec<Found>,
    /// Where the next part begins, if there is one.
    pub next: Option<Cursor>,
}

/// Reads a page. A directory that is not there has none.
pub fn read(dir: &Path, question: &Question) -> Result<Page, Error> {
    match read_pages(dir, question) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Page::default()),
        other => other.map_err(Error::at(dir)),
    }
}

fn read_pages(dir: &Path, question: &Question) -> io::Result<Page> {
    let mut numbers = segments(dir)?;
    if !question.forwards {
        numbers.reverse();
    }
    let mut page = Page::default();
    let mut looked_at = 0;
    let mut from = question.from;
    for number in numbers {
        let is_before = |c: Cursor| if question.forwards { number < c.segment } else { number > c.segment };
        if from.is_some_and(is_before) {
            continue;
        }
        let begin = from.take().filter(|c| c.segment == number);
        // A segment may be pruned while it is looked for.
        let file = match File::open(segment_path(dir, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let mut walk = Walk::begin(dir, number, file, question, begin)?;
        let mut skip = begin.map_or(0, |c| c.skip);
        let mut known: Option<(u64, Option<Arc<ClusterRecord>>)> = None;
        while let Some(record) = walk.next()? {
            let here = Cursor { segment: number, offset: walk.resume_at(&record), skip: 0 };
            if page.jobs.len() >= question.limit || looked_at >= LOOKED_AT {
                page.next = Some(here);
                return Ok(page);
            }
            looked_at += 1;
            let skipped = std::mem::take(&mut skip);
            if record.kind != Kind::Row {
                continue;
            }
            let Ok(row) = Row::decode(&*record.bytes) else { continue };
            if question.cluster.is_some_and(|c| c != row.cluster) {
                continue;
            }
            let cluster = match &known {
                Some((at, cluster)) if *at == row.cluster_at => cluster.clone(),
                _ => walk.cluster(row.cluster_at)?.map(Arc::new),
            };
            known = Some((row.cluster_at, cluster.clone()));
            if let Some(owner) = &question.owner
                && cluster.as_ref().is_none_or(|c| c.owner != *owner)
            {
                continue;
            }
            let row = Arc::new(row);
            let procs = row.first..row.first.saturating_add(row.count);
            for (nth, offset) in (0..row.count).enumerate().skip(skipped as usize) {
                let proc = if question.forwards { procs.start + offset } else { procs.end - 1 - offset };
                if question.proc.is_some_and(|p| p != proc) {
                    continue;
                }
                if page.jobs.len() >= question.limit {
                    page.next = Some(Cursor { skip: nth as u32, ..here });
                    return Ok(page);
                }
                page.jobs.push(Found { proc, row: row.clone(), cluster: cluster.clone() });
            }
        }
    }
    Ok(page)
}

/// The records of a segment in the order that is asked for.
struct Walk {
    file: File,
    limit: u64,
    at: u64,
    forwards: bool,
    /// Where the rows of one cluster are, those that come next last.
    listed: Option<Vec<u64>>,
}

impl Walk {
    fn begin(
        dir: &Path,
        number: u64,
        file: File,
        question: &Question,
        from: Option<Cursor>,
    ) -> io::Result<Self> {
        let mut limit = file.metadata()?.len();
        // Somebody may be in the middle of appending.
        if limit > 0 && segment::read_before(&file, limit)?.is_none() {
            limit = segment::whole_bytes(&file, |_| ())?;
        }
        let forwards = question.forwards;
        let listed = match question.cluster {
            Some(cluster) => {
                let mut rows = rows_of(dir, number, &file, cluster)?;
                if let Some(from) = from {
                    rows.retain(|at| if forwards { *at >= from.offset } else { *at < from.offset });
                }
                if forwards {
                    rows.reverse();
                }
                Some(rows)
            }
            None => None,
        };
        let at = from.map_or(if forwards { 0 } else { limit }, |c| c.offset.min(limit));
        Ok(Self { file, limit, at, forwards, listed })
    }

    fn next(&mut self) -> io::Result<Option<Record>> {
        if let Some(listed) = &mut self.listed {
            let Some(at) = listed.pop() else { return Ok(None) };
            return segment::read_at(&self.file, at, self.limit);
        }
        let record = if self.forwards {
            segment::read_at(&self.file, self.at, self.limit)?
        } else {
            segment::read_before(&self.file, self.at)?
        };
        if let Some(record) = &record {
            self.at = if self.forwards { record.end } else { record.start };
        }
        Ok(record)
    }

    /// The offset with which a walk begins at this record.
    fn resume_at(&self, record: &Record) -> u64 {
        if self.forwards { record.start } else { record.end }
    }

    fn cluster(&self, at: u64) -> io::Result<Option<ClusterRecord>> {
        if at >= self.limit {
            return Ok(None);
        }
        let record = segment::read_at(&self.file, at, self.limit)?;
        Ok(record.filter(|r| r.kind == Kind::Cluster).and_then(|r| ClusterRecord::decode(&*r.bytes).ok()))
    }
}

/// Where the rows of a cluster are in a segment, oldest first.
fn rows_of(dir: &Path, number: u64, file: &File, cluster: u32) -> io::Result<Vec<u64>> {
    let bytes = match fs::read(index_path(dir, number)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => index_of(file)?.concat(),
        Err(error) => return Err(error),
    };
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    let wanted = cluster.to_be_bytes();
    let first = entries.partition_point(|entry| entry[..4] < wanted[..]);
    let of_cluster = entries[first..].iter().take_while(|entry| entry[..4] == wanted[..]);
    let offset =
        |entry: &[u8; ENTRY]| entry[4..12].iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    Ok(of_cluster.map(offset).collect())
}
