//! One file: what was added since the last look, and whether it is still the same text. A file in which nothing happens may
//! be put to rest, without a descriptor.
//!
//! What was read is known by its content: the beginning, the last kilobyte before the place reached, and that place. So a
//! text is known again in whatever file it stands, and a file that holds another text is not taken for it because of its
//! inode.

mod copies;
mod sharing;

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::chain::Written;
use super::moments;
use crate::files::open_file;
use crate::seg::{Event, Format, Message, Reached, Sink, lsf};
use sharing::Sharing;

/// How much is read at once.
const BLOCK: usize = 1 << 17;
/// How much text before the place reached is remembered, to know it again.
const MEMORY: usize = 1_024;
/// How much of the file's beginning is remembered.
pub const HEAD: usize = 256;
/// Smaller logs are read from the start: that is exact even when their times are not in order.
const SEEK_BYTES: u64 = 4 << 20;
/// A time is looked for within this many bytes behind the place of a probe.
const PROBE: u64 = 1 << 18;

/// What is being cut is read so often at most, until it stays the same.
const SETTLING: usize = 8;
/// Two changes within so short a time may have the same stamp: a file that was just changed is read again.
const TICK: Duration = Duration::from_millis(50);

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing but perhaps more text, which was read.
    Grown,
    /// The file holds another text than before.
    Rewritten,
}

/// Device and inode.
pub type Id = (u64, u64);

/// Opens a log. Anything but a file is refused, and nobody is waited for: a pipe would block until somebody writes to it.
pub fn open(path: &Path) -> io::Result<(File, Id)> {
    moments::pass();
    let file = open_file(File::options().read(true), path)?;
    let meta = file.metadata()?;
    Ok((file, (meta.dev(), meta.ino())))
}

/// One file and how far it was read.
pub struct Tail {
    path: PathBuf,
    /// None while it rests.
    file: Option<File>,
    id: Id,
    /// The first line may say where to begin.
    has_offset: bool,
    offset: u64,
    seen: Option<(u64, i64, i64)>,
    memory: Vec<u8>,
    head: Vec<u8>,
    /// Read, but not yet given to the parser.
    ahead: Vec<u8>,
    /// When something was read last.
    changed: Instant,
    has_told: bool,
    /// It was said that it ends in the middle of a record.
    is_said_unfinished: bool,
    /// When it was last changed before it was read to its end.
    complete: Option<i64>,
    format: Box<dyn Format>,
    /// What was in the file before it was cut: it may be written anew.
    before: Option<Box<Tail>>,
    /// Of a file in a directory of logs: what the others hold, and what of this one was told.
    sharing: Option<Sharing>,
}

impl Tail {
    /// Opens a file to read it from its start.
    pub fn open(path: &Path, format: Box<dyn Format>) -> io::Result<Self> {
        let (file, id) = open(path)?;
        Ok(Self::of(path, file, id, format))
    }

    /// The same for a file that is open.
    pub fn of(path: &Path, file: File, id: Id, format: Box<dyn Format>) -> Self {
        Self {
            path: path.to_owned(),
            file: Some(file),
            id,
            has_offset: false,
            offset: 0,
            seen: None,
            memory: Vec::new(),
            head: Vec::new(),
            ahead: Vec::new(),
            changed: Instant::now(),
            has_told: false,
            is_said_unfinished: false,
            complete: None,
            format,
            before: None,
            sharing: None,
        }
    }

    /// A first line `#N` means that reading begins at byte N.
    #[must_use]
    pub fn with_offset(mut self) -> Self {
        self.has_offset = true;
        self
    }

    /// Device and inode.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Where it was last.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Was an event of this text told?
    pub fn has_told(&self) -> bool {
        self.has_told
    }

    /// When something was read last.
    pub fn changed(&self) -> Instant {
        self.changed
    }

    /// Lets go of the descriptor; what is known of the file stays.
    pub fn rest(&mut self) {
        self.file = None;
    }

    /// Is it without a descriptor?
    pub fn is_resting(&self) -> bool {
        self.file.is_none()
    }

    /// Ends its rest if that is still the same file. False if another one has its name now.
    pub fn wake(&mut self, path: &Path) -> io::Result<bool> {
        if self.path != path {
            path.clone_into(&mut self.path);
        }
        if self.file.is_none() {
            let (file, id) = open(path)?;
            if id != self.id {
                return Ok(false);
            }
            self.file = Some(file);
        }
        Ok(true)
    }

    /// Ends its rest with a descriptor that another one has of the same file.
    pub fn wake_as(&mut self, other: &Self) -> io::Result<()> {
        other.path.clone_into(&mut self.path);
        if self.file.is_none() {
            self.file = Some(other.file()?.try_clone()?);
        }
        Ok(())
    }

    /// Is the file without any name left? Not known of one that rests.
    pub fn is_deleted(&self) -> bool {
        moments::pass();
        self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.nlink() == 0))
    }

    /// Could a file with this size and these times hold something new?
    pub fn is_news(&self, meta: &Metadata) -> bool {
        self.seen != Some(state(meta)) || meta.len() != self.offset
    }

    /// How far the log has come; see [`Format::reached`].
    pub fn reached(&self) -> Option<Reached> {
        self.format.reached()
    }

    /// Goes on where another file of the same log ended.
    pub fn go_on(&mut self, reached: Option<Reached>) {
        self.format.go_on(reached);
    }

    /// The open file.
    pub fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other(format!("{} is not open", self.path.display())))
    }

    /// Gives the open file away.
    pub fn into_file(self) -> io::Result<File> {
        self.file.ok_or_else(|| io::Error::other(format!("{} is not open", self.path.display())))
    }

    /// Is it so long that the place of a time is sought in it?
    pub fn is_long(&self) -> io::Result<bool> {
        Ok(self.file()?.metadata()?.len() >= SEEK_BYTES)
    }

    /// The first time in the file, if one stands near its beginning, and if no later line of the log is older.
    pub fn first_stamp(&mut self) -> io::Result<Option<i64>> {
        self.first_time(|format, line| format.stamp(line))
    }

    /// When the file was written, to put it in order among others.
    pub fn when_written(&mut self) -> io::Result<Written> {
        let meta = self.file()?.metadata()?;
        let first = self.first_time(|format, line| format.when(line))?;
        Ok(Written { first, changed: (meta.mtime(), meta.mtime_nsec()) })
    }

    fn first_time(
        &mut self,
        time: impl Fn(&mut dyn Format, &[u8]) -> Option<i64>,
    ) -> io::Result<Option<i64>> {
        // Most files have one in their first line.
        for length in [MEMORY, PROBE as usize] {
            let mut block = vec![0; length];
            let count = self.file()?.read_at(&mut block, 0)?;
            let lines = block[..count].split_inclusive(|b| *b == b'\n').filter_map(|l| l.strip_suffix(b"\n"));
            let found = lines.into_iter().find_map(|line| time(self.format.as_mut(), line));
            if found.is_some() || count < length {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// When the file was last changed.
    pub fn modified(&self) -> io::Result<i64> {
        Ok(self.file()?.metadata()?.mtime())
    }

    /// Bytes of a record that is not complete.
    pub fn pending(&self) -> usize {
        self.format.pending()
    }

    /// Says once if the file ends in the middle of a record.
    pub fn say_unfinished(&mut self, sink: &mut dyn Sink) {
        let is_unfinished = self.format.is_unfinished() && !self.is_copy();
        if is_unfinished && !std::mem::replace(&mut self.is_said_unfinished, true) {
            sink.missed(&format!(
                "{} ends in the middle of a record, which is not told",
                self.path.display()
            ));
        }
    }

    /// Goes on with the parser of the file before. Only while nothing was read.
    #[must_use]
    pub fn with_format(mut self, format: Box<dyn Format>) -> Self {
        self.format = format;
        self
    }

    /// Gives the parser away, for the next file of the same log.
    pub fn into_format(self) -> Box<dyn Format> {
        self.format
    }

    /// Skips what is surely older than `wanted`, by bisection: no line before one that is older may be newer.
    pub fn seek(&mut self, wanted: i64) -> io::Result<()> {
        let size = self.file()?.metadata()?.len();
        if self.offset > 0 || size < SEEK_BYTES || (self.has_offset && !self.skip_header(size)?) {
            return Ok(());
        }
        // Everything before `low` is older; `high` has a line that is not.
        let (mut low, mut high) = (self.offset, size);
        while high - low > SEEK_BYTES / 16 {
            let middle = low + (high - low) / 2;
            match self.probe(middle, high)? {
                Some((start, stamp)) if stamp < wanted && start > low => low = start,
                _ => high = middle,
            }
        }
        self.offset = low;
        self.remember_before()
    }

    /// The first line behind `at` that has a time, and that time.
    fn probe(&mut self, at: u64, end: u64) -> io::Result<Option<(u64, i64)>> {
        let mut block = vec![0; (end - at).min(PROBE) as usize];
        let count = self.file()?.read_at(&mut block, at)?;
        let block = &block[..count];
        let mut start = None;
        for newline in memchr::memchr_iter(b'\n', block) {
            if let Some(start) = start
                && let Some(stamp) = self.format.stamp(&block[start..newline])
            {
                return Ok(Some((at + start as u64, stamp)));
            }
            start = Some(newline + 1);
        }
        Ok(None)
    }

    fn remember_before(&mut self) -> io::Result<()> {
        let length = self.offset.min(MEMORY as u64);
        let mut memory = vec![0; length as usize];
        self.file()?.read_exact_at(&mut memory, self.offset - length)?;
        self.memory = memory;
        Ok(())
    }

    /// Reads the `#` line; false while it is not complete.
    fn skip_header(&mut self, size: u64) -> io::Result<bool> {
        let mut line = [0; 256];
        let count = self.file()?.read_at(&mut line, 0)?;
        if line[..count].first().is_some_and(|b| *b != b'#') {
            return Ok(true);
        }
        let Some(end) = memchr::memchr(b'\n', &line[..count]) else {
            return Ok(count == line.len());
        };
        match lsf::header(&line[..end]).and_then(|n| u64::try_from(n).ok()) {
            // The text that the line speaks of is not there yet.
            Some(start) if start > size => Ok(false),
            Some(start) => {
                self.offset = start.max(end as u64 + 1);
                Ok(true)
            }
            None => Ok(true),
        }
    }

    /// Reads the beginning of a file of which nothing was read, for the next look to tell. From then on it is known which
    /// text this is, whatever happens to the file. False if it is empty.
    pub fn peek(&mut self) -> io::Result<bool> {
        if self.offset > 0 || self.has_offset {
            return Ok(self.offset > 0);
        }
        if self.is_being_restored()? {
            return Ok(self.offset > 0);
        }
        let mut block = vec![0; BLOCK.min(self.file()?.metadata()?.len() as usize + 4_096)];
        let count = self.read_settled(&mut block, 0)?;
        block.truncate(count);
        self.offset = count as u64;
        self.remember(&block);
        self.head = block[..count.min(HEAD)].to_vec();
        self.ahead = block;
        Ok(count > 0)
    }

    /// Was something read that is not told?
    pub fn is_untold(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Tells what was read.
    pub fn tell_ahead(&mut self, sink: &mut dyn Sink) {
        let ahead = std::mem::take(&mut self.ahead);
        if !ahead.is_empty() {
            let at = self.offset - ahead.len() as u64;
            self.format.begins(&self.head, at);
            self.seek_shared();
            self.feed(at, &ahead, sink);
        }
    }

    /// Reads what was added. On [`Look::Rewritten`] nothing of the other text was read.
    pub fn look(&mut self, sink: &mut dyn Sink) -> io::Result<Look> {
        moments::pass();
        let meta = self.file()?.metadata()?;
        self.seek_shared();
        if self.is_untold() {
            self.format.written(self.complete, meta.mtime());
            self.tell_ahead(sink);
            if sink.is_over() {
                return Ok(Look::Grown);
            }
        }
        let now = state(&meta);
        if self.seen == Some(now) && meta.len() == self.offset {
            self.confirm();
            return Ok(Look::Grown);
        }
        if meta.len() < self.offset {
            return Ok(Look::Rewritten);
        }
        let head = self.read_head()?;
        if !self.is_same()? {
            return Ok(Look::Rewritten);
        }
        self.head = head;
        if self.offset == 0 && self.has_offset && !self.skip_header(meta.len())? {
            return Ok(Look::Grown);
        }
        self.format.written(self.complete, meta.mtime());
        self.format.begins(&self.head, self.offset);
        let mut block = vec![0; BLOCK.min(meta.len().saturating_sub(self.offset) as usize + 4_096)];
        loop {
            let count = self.read_settled(&mut block, self.offset)?;
            if count == 0 {
                break;
            }
            // Asked after the reading: else the file may have got another text in between.
            if !self.is_same()? {
                return Ok(Look::Rewritten);
            }
            self.changed = Instant::now();
            self.remember(&block[..count]);
            let at = self.offset;
            self.offset += count as u64;
            self.feed(at, &block[..count], sink);
            if sink.is_over() {
                return Ok(Look::Grown);
            }
        }
        self.seen = is_settled(&meta).then_some(now);
        self.complete = Some(meta.mtime());
        self.confirm();
        Ok(Look::Grown)
    }

    /// Reads; a file that is being cut shows NULs for a moment, which are asked for again. Those of a hole stay.
    fn read_settled(&self, block: &mut [u8], offset: u64) -> io::Result<usize> {
        moments::pass();
        let mut count = self.file()?.read_at(block, offset)?;
        for _ in 0..SETTLING {
            if memchr::memchr(0, &block[..count]).is_none() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            let before = block[..count].to_vec();
            count = self.file()?.read_at(block, offset)?;
            if block[..count] == before[..] {
                break;
            }
        }
        Ok(count)
    }

    fn read_head(&self) -> io::Result<Vec<u8>> {
        if self.head.len() == HEAD {
            return Ok(self.head.clone());
        }
        let mut head = vec![0; HEAD];
        let count = self.file()?.read_at(&mut head, 0)?;
        head.truncate(count);
        Ok(head)
    }

    fn remember(&mut self, bytes: &[u8]) {
        if bytes.len() >= MEMORY {
            self.memory.clear();
            self.memory.extend_from_slice(&bytes[bytes.len() - MEMORY..]);
            return;
        }
        let over = (self.memory.len() + bytes.len()).saturating_sub(MEMORY);
        self.memory.drain(..over);
        self.memory.extend_from_slice(bytes);
    }

    /// Is the text before the place reached still the one that was read?
    fn is_same(&self) -> io::Result<bool> {
        moments::pass();
        let mut there = vec![0; self.memory.len()];
        match self.file()?.read_exact_at(&mut there, self.offset - self.memory.len() as u64) {
            Ok(()) => Ok(there == self.memory),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Tells what was held until more would be known.
    pub fn settle(&mut self, sink: &mut dyn Sink) {
        self.format.settle(&mut Named { path: &self.path, has_told: &mut self.has_told, sink });
    }

    /// Is the text that was read still in this file?
    pub fn is_intact(&self) -> bool {
        self.is_same().unwrap_or(false)
    }

    /// The same file as if nothing of it was read.
    pub fn fresh(&self, format: Box<dyn Format>) -> io::Result<Self> {
        let known = self.sharing.as_ref().map(Sharing::known);
        let mut fresh = Self::of(&self.path, self.file()?.try_clone()?, self.id, format).sharing(known);
        fresh.has_offset = self.has_offset;
        Ok(fresh)
    }

    /// The text that was read stands in this file now.
    pub fn move_to(&mut self, path: &Path, file: File, id: Id) {
        path.clone_into(&mut self.path);
        (self.file, self.id, self.seen) = (Some(file), id, None);
    }

    /// Takes all that is there for read.
    pub fn skip(&mut self) -> io::Result<()> {
        self.skip_to(self.file()?.metadata()?.len())
    }

    fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        self.format.reset();
        self.ahead.clear();
        self.seen = None;
        self.offset = offset;
        self.remember_before()?;
        self.skip_rest_of_line();
        self.head = self.read_head()?;
        self.share_to_here()
    }

    /// The place reached may be inside of a line: what comes next is its rest.
    fn skip_rest_of_line(&mut self) {
        if self.memory.last().is_some_and(|byte| *byte != b'\n') {
            self.format.skip_line();
        }
    }

    /// After [`Look::Rewritten`], of the [`Tail::fresh`] one: if the file was only cut back, goes on there. A line that
    /// the cut went through may be the beginning of a new one, and is read.
    pub fn go_on_if_cut(&mut self, before: &Self) -> io::Result<()> {
        let size = self.file()?.metadata()?.len();
        let mut head = vec![0; before.head.len().min(size as usize)];
        let was_cut = size < before.offset
            && !head.is_empty()
            && self.file()?.read_exact_at(&mut head, 0).is_ok()
            && before.head.starts_with(&head);
        if !was_cut {
            return Ok(());
        }
        let length = size.min(BLOCK as u64);
        let mut end = vec![0; length as usize];
        self.file()?.read_exact_at(&mut end, size - length)?;
        match memchr::memrchr(b'\n', &end) {
            Some(newline) => self.skip_to(size - length + newline as u64 + 1),
            None => Ok(()),
        }
    }

    /// After [`Look::Rewritten`]: goes on where the file was cut, or at its start if it holds something new.
    pub fn restart(&mut self) -> io::Result<()> {
        let size = self.file()?.metadata()?.len();
        let mut head = vec![0; self.head.len().min(size as usize)];
        let was_cut = size < self.offset
            && !head.is_empty()
            && self.file()?.read_exact_at(&mut head, 0).is_ok()
            && self.head.starts_with(&head);
        self.format.reset();
        self.ahead.clear();
        self.seen = None;
        self.offset = if was_cut { size } else { 0 };
        if was_cut {
            self.remember_before()?;
            self.skip_rest_of_line();
            return Ok(());
        }
        self.memory.clear();
        self.head.clear();
        Ok(())
    }

    /// Is it known which text this is?
    pub fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// The beginning of what was read.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Reads the new text, and starts anew if there is another. For files of which no copies are kept.
    pub fn look_or_restart(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.look(sink)? == Look::Rewritten {
            sink.missed(&format!(
                "{} was cut or rewritten after byte {}: what was added since the last look is not seen",
                self.path.display(),
                self.offset
            ));
            self.restart()?;
            self.look(sink)?;
        }
        Ok(())
    }

    /// How far it was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// Says of which file a note is.
struct Named<'a> {
    path: &'a Path,
    has_told: &'a mut bool,
    sink: &'a mut dyn Sink,
}

impl Sink for Named<'_> {
    fn event(&mut self, event: &Event<'_>) {
        *self.has_told = true;
        self.sink.event(event);
    }
    fn note(&mut self, text: &str) {
        self.sink.note(&format!("{}: {text}", self.path.display()));
    }
    fn missed(&mut self, text: &str) {
        self.sink.missed(&format!("{}: {text}", self.path.display()));
    }
    fn message(&mut self, message: &Message<'_>) {
        self.sink.message(message);
    }
    fn is_over(&mut self) -> bool {
        self.sink.is_over()
    }
}

/// Has the file not been changed for a moment? Only then does its stamp tell of the next change.
pub fn is_settled(meta: &Metadata) -> bool {
    let changed = Duration::new(meta.mtime().max(0) as u64, meta.mtime_nsec().max(0) as u32);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.checked_sub(changed).is_some_and(|since| since > TICK)
}

/// What changes when a file does.
pub fn state(meta: &Metadata) -> (u64, i64, i64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}
