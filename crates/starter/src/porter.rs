//! The porter: a process (`updraft porter`) that reads the inputs and lands the results of one user's jobs, with that user's rights and
//! no others.
//!
//! The manager starts it, tells it who to be, and talks to it over its standard input. Whatever a path of the user's does to whoever
//! touches it happens to this process alone; who started it may kill it at any time. Results are written under names of their own
//! beside their targets (`landing`) and renamed when the manager says so.

#![allow(missing_docs, reason = "the fields of messages are called what they are")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use prost::Message;
use transfer::{Fault, Faults, Source};

use crate::frame::{self, Buffer};
use crate::landing::Landing;
use crate::logbook::{Become, become_owner};
use crate::streaming::Streaming;
use crate::sys;
use crate::walk::{self, cannot_read, path_of, walk};

/// Bytes of a file in one message.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Files in one message.
const FOUND_AT_A_TIME: usize = 1_000;
/// Bytes of a file that says it has none.
const UNSIZED_BYTES: u64 = 64 << 10;

/// Manager to porter.
#[derive(Clone, PartialEq, Message)]
pub struct ToPorter {
    /// What.
    #[prost(oneof = "Task", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub task: Option<Task>,
}

/// What a manager wants.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Task {
    /// Become this user; the first message. Answered once.
    #[prost(message, tag = "1")]
    Become(Become),
    /// Say what there is of these; answered by files, the last time with `done`.
    #[prost(message, tag = "2")]
    List(List),
    /// Read these files; answered for each by its bytes, the last time with `done`.
    #[prost(message, tag = "3")]
    Read(Paths),
    /// Results follow. Not answered.
    #[prost(message, tag = "4")]
    Land(Land),
    /// A result; its bytes follow. Not answered.
    #[prost(message, tag = "5")]
    Put(Put),
    /// Bytes of the result. Not answered.
    #[prost(bytes = "vec", tag = "6")]
    Data(Vec<u8>),
    /// All results were sent: answered when all are written.
    #[prost(bool, tag = "7")]
    Check(bool),
    /// Put them where they belong (false: remove them); answered when they are.
    #[prost(bool, tag = "8")]
    Commit(bool),
    /// An output that lands as it comes, from its beginning on; its bytes follow. Not answered.
    #[prost(message, tag = "9")]
    Stream(Stream),
}

/// Where an output lands as it comes.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stream {
    /// Absolute path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The mode of directories above it that are made; absent when none are.
    #[prost(uint32, optional, tag = "2")]
    pub made_mode: Option<u32>,
    /// Files that are never overwritten.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub protected: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct List {
    #[prost(message, repeated, tag = "1")]
    pub sources: Vec<ListedSource>,
}

/// A [`Source`] on its way.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ListedSource {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(bool, tag = "3")]
    pub contents: bool,
    #[prost(uint32, optional, tag = "4")]
    pub mode: Option<u32>,
}

impl From<Source> for ListedSource {
    fn from(Source { path, name, contents, mode }: Source) -> Self {
        Self { path, name, contents, mode }
    }
}

impl From<ListedSource> for Source {
    fn from(ListedSource { path, name, contents, mode }: ListedSource) -> Self {
        Self { path, name, contents, mode }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Paths {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub paths: Vec<Vec<u8>>,
}

/// Where results go.
#[derive(Clone, PartialEq, Message)]
pub struct Land {
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    #[prost(uint32, tag = "2")]
    pub proc: u32,
    /// Files that are never overwritten.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub protected: Vec<Vec<u8>>,
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// A result and where it goes.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Put {
    /// Absolute path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    #[prost(bool, tag = "2")]
    pub is_directory: bool,
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// The mode of directories above it that are made; absent when none are.
    #[prost(uint32, optional, tag = "5")]
    pub made_mode: Option<u32>,
    #[prost(bool, tag = "6")]
    pub is_stream: bool,
    /// So many bytes at the end of the path are the job's choice: no link is followed there.
    #[prost(uint32, tag = "7")]
    pub chosen: u32,
}

/// Porter to manager.
#[derive(Clone, PartialEq, Message)]
pub struct FromPorter {
    #[prost(message, repeated, tag = "1")]
    pub found: Vec<FoundFile>,
    /// Bytes of a file.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
    /// The task, or the file that was read, is over.
    #[prost(bool, tag = "3")]
    pub done: bool,
    /// What went wrong.
    #[prost(message, required, tag = "4")]
    pub faults: Faults,
    /// What the user must know.
    #[prost(string, repeated, tag = "5")]
    pub notes: Vec<String>,
    /// Why it cannot become the user.
    #[prost(string, tag = "6")]
    pub refused: String,
    /// The file as it was when it was read.
    #[prost(bytes = "vec", tag = "7")]
    pub stamp: Vec<u8>,
}

/// A file that was found.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct FoundFile {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub is_directory: bool,
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint64, tag = "5")]
    pub size: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub stamp: Vec<u8>,
}

/// Serves the manager at the other end of this connection until it hangs up. The process must have one thread only.
pub fn serve(stream: UnixStream) -> io::Result<()> {
    sys::close_all_but(&[stream.as_fd()])?;
    sys::new_session();
    sys::unblock_signals()?;
    let parent = sys::parent_pid();
    let mut line = Line { stream, buffer: Buffer::default() };
    let Some(Task::Become(who)) = line.next()? else { return Ok(()) };
    let refused = become_owner(&who).err().unwrap_or_default();
    let is_refused = !refused.is_empty();
    line.answer(&FromPorter { done: true, refused, ..FromPorter::default() })?;
    if is_refused {
        return Ok(());
    }
    sys::die_with_parent()?;
    if sys::parent_pid() != parent {
        return Ok(());
    }
    // What one makes is for oneself, unless a mode says otherwise.
    sys::set_mask(0);
    let mut landing = None;
    let mut streaming: Option<Streaming> = None;
    while let Some(task) = line.next()? {
        match task {
            Task::Become(_) => return Err(io::ErrorKind::InvalidInput.into()),
            Task::List(list) => line.list(list)?,
            Task::Read(paths) => {
                for path in paths.paths {
                    line.read(path_of(&path))?;
                }
            }
            Task::Land(land) => landing = Some(Landing::new(&land)),
            Task::Put(put) => {
                if let Some(landing) = &mut landing {
                    landing.put(&put);
                }
            }
            Task::Data(data) => {
                if let Some(landing) = &mut landing {
                    landing.write(&data);
                } else if let Some(streaming) = &mut streaming {
                    streaming.write(&data);
                }
            }
            Task::Stream(stream) => streaming = Some(Streaming::begin(&stream)),
            Task::Check(_) => {
                let faults = landing.as_mut().map(Landing::check).unwrap_or_default();
                line.answer(&FromPorter { done: true, faults, ..FromPorter::default() })?;
            }
            Task::Commit(commit) => {
                let (faults, notes) = match landing.take() {
                    Some(landing) if commit => landing.commit(),
                    Some(landing) => {
                        landing.undo();
                        Default::default()
                    }
                    None => Default::default(),
                };
                line.answer(&FromPorter { done: true, faults, notes, ..FromPorter::default() })?;
            }
        }
    }
    if let Some(landing) = landing {
        landing.undo();
    }
    Ok(())
}

struct Line {
    stream: UnixStream,
    buffer: Buffer,
}

impl Line {
    /// `None` when the manager has hung up.
    fn next(&mut self) -> io::Result<Option<Task>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if let Some(message) = frame::take::<ToPorter>(&mut self.buffer).map_err(io::Error::other)? {
                return Ok(message.task);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.buffer.extend(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn answer(&mut self, answer: &FromPorter) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::put(answer, &mut bytes);
        self.stream.write_all(&bytes)
    }

    fn list(&mut self, list: List) -> io::Result<()> {
        use std::os::unix::ffi::OsStringExt as _;
        let sources: Vec<Source> = list.sources.into_iter().map(Source::from).collect();
        let mut walked = walk(&sources, |_| false);
        // Whether a file can be read is known before anything is sent.
        for found in walked.found.iter().filter(|f| !f.is_directory) {
            if let Err(e) = walk::open(&found.path) {
                walked.faults.push(cannot_read(&found.path, &e));
            }
        }
        let mut found = walked.found.into_iter().map(|f| FoundFile {
            name: f.name,
            path: f.path.into_os_string().into_vec(),
            is_directory: f.is_directory,
            mode: f.mode,
            size: f.size,
            stamp: f.stamp,
        });
        loop {
            let some: Vec<FoundFile> = found.by_ref().take(FOUND_AT_A_TIME).collect();
            if some.is_empty() {
                break;
            }
            self.answer(&FromPorter { found: some, ..FromPorter::default() })?;
        }
        let (faults, notes) = (walked.faults, walked.left_out);
        self.answer(&FromPorter { done: true, faults, notes, ..FromPorter::default() })
    }

    /// Sends what a file without a size of its own has (`/proc/...` says 0): how much it is shows at its end.
    fn read_to_end(&mut self, path: &Path, file: File) -> io::Result<()> {
        let mut data = Vec::new();
        match file.take(UNSIZED_BYTES + 1).read_to_end(&mut data) {
            Err(e) => return self.end_read(cannot_read(path, &e).into(), Vec::new()),
            Ok(n) if n as u64 > UNSIZED_BYTES => {
                let why = format!(
                    "It says that it is empty, as files of /proc do, and has more than {} KiB; copy it to a file that has a size",
                    UNSIZED_BYTES >> 10
                );
                let fault = Fault::reading(&path.to_string_lossy(), libc::EFBIG as u32, why);
                return self.end_read(fault.into(), Vec::new());
            }
            Ok(_) => {}
        }
        if !data.is_empty() {
            self.answer(&FromPorter { data, ..FromPorter::default() })?;
        }
        self.end_read(Faults::default(), Vec::new())
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        let (mut file, meta) = match walk::open(path) {
            Ok(opened) => opened,
            Err(e) => return self.end_read(cannot_read(path, &e).into(), Vec::new()),
        };
        if meta.is_file() && meta.len() == 0 {
            return self.read_to_end(path, file);
        }
        let mut left = if meta.is_file() { meta.len() } else { 0 };
        let mut chunk = vec![0; CHUNK_BYTES];
        while left > 0 {
            let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.read(&mut chunk[..most]) {
                Ok(0) => {
                    let fault = Fault::reading(&path.to_string_lossy(), 5, "It shrank while it was read");
                    return self.end_read(fault.into(), Vec::new());
                }
                Ok(n) => {
                    left -= n as u64;
                    self.answer(&FromPorter { data: chunk[..n].to_vec(), ..FromPorter::default() })?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.end_read(cannot_read(path, &e).into(), Vec::new()),
            }
        }
        // What changed while it was read is not remembered as what it was.
        let after = file.metadata().map(|m| walk::stamp(&m)).unwrap_or_default();
        let stamp = if after == walk::stamp(&meta) { after } else { Vec::new() };
        self.end_read(Faults::default(), stamp)
    }

    fn end_read(&mut self, faults: Faults, stamp: Vec<u8>) -> io::Result<()> {
        self.answer(&FromPorter { done: true, faults, stamp, ..FromPorter::default() })
    }
}
