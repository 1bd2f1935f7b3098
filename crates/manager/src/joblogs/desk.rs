//! Lines on their way into files: nothing lost, nothing twice, whoever is killed when.
//!
//! Before lines are appended, the record says which: everything up to `written` is in its log, except that a log under
//! `logs` has its lines only up to a key of its own, and was so long before the next ones were appended. A new manager
//! reads the journal from `from`, comes to the same lines, and looks behind that length which of them are there. That is
//! one small file per batch, whatever the number of logs, and other writers may append to the same logs meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use starter::user;

use super::story::{Key, Line, Log};

const FILE: &str = "joblogs.position";
/// Logs written together.
const TOGETHER: usize = 256;
/// Lines that wait for logs that cannot be written; beyond that the log with most of them is given up.
const BACKLOG: usize = 100_000;
/// Positions after which the record is brought up to date even if no log was written.
const UNSAVED: u64 = 10_000;
/// Bytes searched for lines in a log that was moved away or shortened meanwhile.
const SEARCHED: u64 = 16 << 20;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// How far logs are written, as it is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Lines up to here are written, unless `logs` says otherwise.
    pub(super) written: Key,
    /// Where the journal must be read from.
    pub(super) from: u64,
    logs: Vec<Behind>,
}

/// A log that is not written as far as the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Behind {
    owner: String,
    path: String,
    written: Key,
    mark: Option<Mark>,
}

/// A file as it was before lines were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    inode: u64,
    length: u64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(Key, String)>,
    base: u64,
    /// The file as it was before lines were appended of which nobody knows whether they are there.
    doubt: Option<Mark>,
    /// The file as it was before the lines that are being appended.
    mark: Option<Mark>,
    retry_at: Option<Instant>,
    delay: Duration,
}

/// All lines that are not written yet.
#[derive(Debug)]
pub(super) struct Desk {
    dir: PathBuf,
    private: bool,
    old: BTreeMap<Log, (Key, Option<Mark>)>,
    old_written: Key,
    queues: BTreeMap<Log, Queue>,
    waiting: usize,
    seen: Key,
    from: u64,
    /// Position of the record on disk.
    saved: u64,
    /// The record on disk announces lines; they are written by now, or wait for a retry.
    announced: bool,
}

impl Record {
    /// True when it knows of events that a journal which ends at `head` does not have.
    pub(super) fn is_ahead_of(&self, head: u64) -> bool {
        self.written.0 > head || self.from > head + 1
    }

    /// What a journal that was put back to an earlier day does not have was not written.
    pub(super) fn go_back_to(&mut self, head: u64) {
        let last = (head, u32::MAX);
        self.written = self.written.min(last);
        self.from = self.from.min(head + 1);
        for log in &mut self.logs {
            log.written = log.written.min(last);
        }
    }

    pub(super) fn load(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(FILE);
        let named = |error: io::Error| {
            let hint = "without it, the logs of all jobs that the journal remembers are written again";
            io::Error::new(error.kind(), format!("{}: {error}; {hint}", path.display()))
        };
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).map_err(|e| named(e.into()))?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(error)),
        }
    }

    fn save(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join(format!("{FILE}.new"));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        std::fs::rename(&new, dir.join(FILE))?;
        File::open(dir)?.sync_all()
    }
}

impl Desk {
    pub(super) fn new(dir: PathBuf, private: bool, old: Record) -> Self {
        let log = |b: &Behind| Log { owner: Arc::from(&*b.owner), path: Arc::from(&*b.path) };
        Self {
            dir,
            private,
            old: old.logs.iter().map(|b| (log(b), (b.written, b.mark))).collect(),
            old_written: old.written,
            queues: BTreeMap::new(),
            waiting: 0,
            seen: (0, 0),
            from: old.from,
            saved: old.written.0,
            // Whatever the old record announced is settled before the first rest.
            announced: !old.logs.is_empty(),
        }
    }

    /// A line to be written, unless an earlier manager has.
    pub(super) fn put(&mut self, line: Line) {
        self.seen = line.key;
        let (written, doubt) = self.old.get(&line.log).copied().unwrap_or((self.old_written, None));
        if line.key <= written {
            return;
        }
        let doubt = doubt.filter(|_| line.key <= self.old_written);
        let queue = self.queues.entry(line.log).or_default();
        queue.base = if queue.lines.is_empty() { line.base } else { queue.base.min(line.base) };
        queue.doubt = queue.doubt.or(doubt);
        queue.lines.push_back((line.key, line.text));
        self.waiting += 1;
    }

    /// An event was told whole; `base` is where the journal must be read from to know what is known now.
    pub(super) fn told(&mut self, position: u64, base: Option<u64>) {
        self.seen = (position, u32::MAX);
        self.from = base.unwrap_or(position + 1);
    }

    /// Lines that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the next log that could not be written is tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.queues.values().filter_map(|q| q.retry_at).min()
    }

    /// Writes what can be written now.
    pub(super) fn flush(&mut self) {
        // Doubts can only be settled when all lines in question are here.
        if self.seen < self.old_written {
            return;
        }
        self.old.clear();
        let now = Instant::now();
        loop {
            let is_ready = |q: &Queue| !q.lines.is_empty() && q.retry_at.is_none_or(|at| at <= now);
            let ready: Vec<Log> = self
                .queues
                .iter()
                .filter(|(_, q)| is_ready(q))
                .map(|(l, _)| l.clone())
                .take(TOGETHER)
                .collect();
            if ready.is_empty() {
                break;
            }
            let mut files = Vec::new();
            for log in ready {
                match self.open(&log) {
                    Ok(file) => files.push((log, file)),
                    Err(error) => self.postpone(&log, &error),
                }
            }
            if files.is_empty() {
                continue;
            }
            if let Err(error) = self.save() {
                // Nobody may append what is not announced.
                for (log, _) in &files {
                    self.postpone(log, &error);
                }
                continue;
            }
            self.announced = true;
            for (log, file) in files {
                match self.append(&log, &file) {
                    Ok(()) => drop(self.queues.remove(&log)),
                    Err(error) => self.postpone(&log, &error),
                }
            }
        }
        self.limit_backlog();
    }

    /// Nothing more to do for a while: the record says so, so that a log that its owner deletes stays deleted.
    pub(super) fn rest(&mut self) {
        let worth = self.announced || self.seen.0 > self.saved.saturating_add(UNSAVED);
        if worth && self.seen >= self.old_written {
            match self.save() {
                Ok(()) => self.announced = false,
                Err(error) => tracing::warn!(%error, "cannot record how far job logs are written"),
            }
        }
    }

    fn save(&mut self) -> io::Result<()> {
        let waiting = self.queues.iter().filter_map(|(log, queue)| {
            let (first, _) = queue.lines.front()?;
            let written = (first.0, first.1 - 1);
            let (owner, path) = (log.owner.to_string(), log.path.to_string());
            Some(Behind { owner, path, written, mark: queue.doubt.or(queue.mark) })
        });
        let logs: Vec<Behind> = waiting.collect();
        let bases = self.queues.values().filter(|q| !q.lines.is_empty()).map(|q| q.base);
        let from = bases.chain([self.from]).min().unwrap_or(self.from);
        Record { written: self.seen, from, logs }.save(&self.dir)?;
        self.saved = self.seen.0;
        Ok(())
    }

    fn open(&mut self, log: &Log) -> io::Result<File> {
        let account = match self.account(&log.owner) {
            Ok(account) => account,
            Err(why) => {
                // Waiting does not help.
                let lines = self.queues.remove(log).map_or(0, |q| q.lines.len());
                self.waiting -= lines;
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        let file = starter::as_user::open_append(Path::new(&*log.path), account.as_ref())?;
        let Some(queue) = self.queues.get_mut(log) else { return Ok(file) };
        if let Some(mark) = queue.doubt {
            self.waiting -= settle(&file, mark, &mut queue.lines)?;
            queue.doubt = None;
        }
        let metadata = file.metadata()?;
        queue.mark = Some(Mark { inode: metadata.ino(), length: metadata.len() });
        Ok(file)
    }

    /// Whose rights a log is written with; the same rules as for running jobs.
    fn account(&self, owner: &str) -> Result<Option<user::Account>, String> {
        let own = user::own_uid();
        if owner == user::name_of(own) {
            return if own != 0 || self.private {
                Ok(None)
            } else {
                Err("no log is written as root in a shared pool".into())
            };
        }
        let account =
            user::by_name(owner).ok_or_else(|| format!("{owner} has no account on this machine"))?;
        match (own, account.uid) {
            (_, 0) => Err("no log is written as root in a shared pool".into()),
            (0, _) => Ok(Some(account)),
            _ => Err(format!("this manager runs as {}, not as {owner}", user::name_of(own))),
        }
    }

    /// Appends lines, each in one write.
    fn append(&mut self, log: &Log, file: &File) -> io::Result<()> {
        let Some(queue) = self.queues.get_mut(log) else { return Ok(()) };
        while let Some((_, text)) = queue.lines.front() {
            let written = loop {
                match (&*file).write(text.as_bytes()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => break result?,
                }
            };
            if written < text.len() {
                // A full disk took a part: half an event must not stay in front of what others append.
                let length = file.metadata()?.len();
                file.set_len(length.saturating_sub(written as u64))?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            queue.lines.pop_front();
            self.waiting -= 1;
        }
        file.sync_data()
    }

    fn postpone(&mut self, log: &Log, error: &io::Error) {
        let (owner, path) = (&log.owner, &log.path);
        let Some(queue) = self.queues.get_mut(log) else {
            tracing::warn!(%owner, %path, %error, "this job log is not written");
            return;
        };
        queue.mark = None;
        queue.delay = (queue.delay * 2).clamp(FIRST_RETRY, LAST_RETRY);
        queue.retry_at = Some(Instant::now() + queue.delay);
        let seconds = queue.delay.as_secs();
        tracing::warn!(%owner, %path, %error, "cannot write this job log; trying again in {seconds} s");
        if queue.lines.is_empty() {
            // Only the sync failed; the lines are in the file.
            self.queues.remove(log);
        }
    }

    fn limit_backlog(&mut self) {
        while self.waiting > BACKLOG {
            let Some(log) = self.queues.iter().max_by_key(|(_, q)| q.lines.len()).map(|(log, _)| log.clone())
            else {
                return;
            };
            let lines = self.queues.remove(&log).map_or(0, |q| q.lines.len());
            self.waiting -= lines;
            tracing::error!(owner = %log.owner, path = %log.path, lines, "too many events wait for this job log; they are given up");
        }
    }
}

/// Takes out of `lines` what is in the file already, and cuts off half a line at its end. Returns how many were there.
fn settle(mut file: &File, mark: Mark, lines: &mut VecDeque<(Key, String)>) -> io::Result<usize> {
    let metadata = file.metadata()?;
    // Another file, or a shortened one: what was appended may be anywhere in it.
    let same = metadata.ino() == mark.inode && metadata.len() >= mark.length;
    let start = if same { mark.length } else { metadata.len().saturating_sub(SEARCHED) };
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let (mut at, mut found) = (0, 0);
    while let Some((_, text)) = lines.front() {
        let Some(place) = find(&tail[at..], text.as_bytes()) else { break };
        at += place + text.len();
        found += 1;
        lines.pop_front();
    }
    if let Some((_, text)) = lines.front() {
        // A killed write may have left the beginning of the next line.
        let rest = tail.len() - at;
        let longest = rest.min(text.len() - 1);
        let torn = (1..=longest).rev().find(|n| {
            let end = &tail[tail.len() - n..];
            text.as_bytes().starts_with(end) && (tail.len() == *n || tail[tail.len() - n - 1] == b'\n')
        });
        if let Some(torn) = torn {
            file.set_len(start + (tail.len() - torn) as u64)?;
        }
    }
    Ok(found)
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests;
