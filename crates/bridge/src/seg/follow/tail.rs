//! One file: what was added since the last look, and whether it is still the same text. A file in which nothing happens may
//! be put to rest, without a descriptor.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::seg::{Format, Sink, lsf};

/// How much is read at once.
const BLOCK: usize = 1 << 17;
/// How much text before the place reached is remembered, to know it again.
const MEMORY: usize = 1_024;
/// How much of the file's beginning is remembered.
const HEAD: usize = 256;
/// Smaller logs are read from the start: that is exact even when their times are not in order.
const SEEK_BYTES: u64 = 4 << 20;
/// A time is looked for within this many bytes behind the place of a probe.
const PROBE: u64 = 1 << 18;

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
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a directory" } else { "no file" };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("this is {kind}, not a log")));
    }
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
    format: Box<dyn Format>,
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
            format,
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

    /// Is the file without any name left? Not known of one that rests.
    pub fn is_deleted(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.nlink() == 0))
    }

    /// Could a file with this size and these times hold something new?
    pub fn is_news(&self, meta: &Metadata) -> bool {
        self.seen != Some(state(meta)) || meta.len() != self.offset
    }

    /// How far the log has come; see [`Format::reached`].
    pub fn reached(&self) -> Option<i64> {
        self.format.reached()
    }

    /// Goes on where another file of the same log ended.
    pub fn go_on(&mut self, reached: Option<i64>) {
        self.format.go_on(reached);
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other(format!("{} is not open", self.path.display())))
    }

    /// The first time in the file, if one stands near its beginning.
    pub fn first_stamp(&mut self) -> io::Result<Option<i64>> {
        let mut block = vec![0; PROBE as usize];
        let count = self.file()?.read_at(&mut block, 0)?;
        let mut lines = block[..count].split_inclusive(|b| *b == b'\n').filter_map(|l| l.strip_suffix(b"\n"));
        Ok(lines.find_map(|line| self.format.stamp(line)))
    }

    /// When the file was last changed.
    pub fn modified(&self) -> io::Result<i64> {
        Ok(self.file()?.metadata()?.mtime())
    }

    /// Bytes of a record that is not complete.
    pub fn pending(&self) -> usize {
        self.format.pending()
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

    /// Reads what was added. On [`Look::Rewritten`] nothing was read.
    pub fn look(&mut self, sink: &mut dyn Sink) -> io::Result<Look> {
        let meta = self.file()?.metadata()?;
        let now = state(&meta);
        if self.seen == Some(now) && meta.len() == self.offset {
            return Ok(Look::Grown);
        }
        if self.offset > 0 && !self.is_same(meta.len())? {
            return Ok(Look::Rewritten);
        }
        if self.head.len() < HEAD {
            let mut head = vec![0; HEAD];
            let count = self.file()?.read_at(&mut head, 0)?;
            head.truncate(count);
            self.head = head;
        }
        if self.offset == 0 && self.has_offset && !self.skip_header(meta.len())? {
            return Ok(Look::Grown);
        }
        self.format.modified(meta.mtime());
        let mut block = vec![0; BLOCK.min(meta.len().saturating_sub(self.offset) as usize + 4_096)];
        loop {
            let count = self.file()?.read_at(&mut block, self.offset)?;
            if count == 0 {
                break;
            }
            self.offset += count as u64;
            self.remember(&block[..count]);
            self.format.feed(&block[..count], sink);
            if sink.is_over() {
                return Ok(Look::Grown);
            }
        }
        self.seen = Some(now);
        Ok(Look::Grown)
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
    fn is_same(&self, size: u64) -> io::Result<bool> {
        if size < self.offset {
            return Ok(false);
        }
        let mut there = vec![0; self.memory.len()];
        match self.file()?.read_exact_at(&mut there, self.offset - self.memory.len() as u64) {
            Ok(()) => Ok(there == self.memory),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
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
        self.seen = None;
        self.offset = if was_cut { size } else { 0 };
        if was_cut {
            return self.remember_before();
        }
        self.memory.clear();
        self.head.clear();
        Ok(())
    }

    /// Does this file hold what was read, and nothing else?
    pub fn is_copied_to(&self, copy: &File) -> io::Result<bool> {
        Ok(copy.metadata()?.len() == self.offset && self.is_beginning_of(copy))
    }

    /// Goes on behind what another tail has read, if this file begins with it. Only while nothing was read here.
    pub fn go_behind(&mut self, other: &Self) -> io::Result<bool> {
        if !other.is_beginning_of(self.file()?) {
            return Ok(false);
        }
        // An unfinished line is read again from its beginning.
        self.offset = other.offset - other.pending() as u64;
        self.remember_before()?;
        Ok(true)
    }

    /// Does this file begin with what was read?
    fn is_beginning_of(&self, copy: &File) -> bool {
        let mut there = vec![0; self.memory.len()];
        let mut head = vec![0; self.head.len()];
        !self.memory.is_empty()
            && copy.read_exact_at(&mut head, 0).is_ok()
            && head == self.head
            && copy.read_exact_at(&mut there, self.offset - self.memory.len() as u64).is_ok()
            && there == self.memory
    }

    /// After [`Look::Rewritten`]: reads what was added in the meantime from a copy, in which the text may stand in another
    /// place if `is_moved`. False when the copy does not hold the text that was read.
    pub fn catch_up(&mut self, file: &File, is_moved: bool, sink: &mut dyn Sink) -> io::Result<bool> {
        let found = if self.is_beginning_of(file) {
            Some(self.offset)
        } else if is_moved {
            self.find(file)?
        } else {
            None
        };
        let Some(mut at) = found else { return Ok(false) };
        let mut block = vec![0; BLOCK];
        loop {
            let count = file.read_at(&mut block, at)?;
            if count == 0 || sink.is_over() {
                return Ok(true);
            }
            at += count as u64;
            self.format.feed(&block[..count], sink);
        }
    }

    /// Where in a copy the text that was read ends. The copy may have another first line.
    fn find(&self, file: &File) -> io::Result<Option<u64>> {
        if self.memory.is_empty() {
            return Ok(None);
        }
        let length = self.memory.len() as u64;
        let mut there = vec![0; self.memory.len()];
        if file.read_exact_at(&mut there, self.offset - length).is_ok() && there == self.memory {
            return Ok(Some(self.offset));
        }
        let finder = memchr::memmem::Finder::new(&self.memory);
        let mut block = vec![0; BLOCK + self.memory.len()];
        let mut at = 0u64;
        loop {
            let count = file.read_at(&mut block, at)?;
            if let Some(found) = finder.find(&block[..count]) {
                return Ok(Some(at + found as u64 + length));
            }
            if count < self.memory.len() {
                return Ok(None);
            }
            at += count as u64 - length + 1;
        }
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

/// What changes when a file does.
pub fn state(meta: &Metadata) -> (u64, i64, i64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}
