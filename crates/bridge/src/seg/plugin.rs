//! Modules of others: shared libraries with the calls of `include/updraft_seg.h`.
//!
//! With `forkstarter::session` the only file of this crate with `unsafe`: it loads code that is trusted like the program itself, and hands it
//! functions. What a module tells goes as protocol lines through a pipe to the loop, which checks and filters it like any
//! log; a full pipe makes the module wait.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, PipeWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::follow::pipe::Lines;
use super::follow::{Source, Turn};
use super::{Event, Message, Sink, State, fork};

/// The version of the header that is understood.
const ABI: c_int = 1;
/// Longest id of a job, and longest text of messages.
const ID_BYTES: usize = 1 << 16;
/// How long a module may take to stop.
const GOODBYE: Duration = Duration::from_secs(1);
/// How soon a module that has not yet started is asked again.
const SOON: Duration = Duration::from_millis(5);

/// What the functions that a module calls work on.
struct Shared {
    pipe: Mutex<PipeWriter>,
    from: i64,
    /// Nobody listens before the module is activated.
    is_active: AtomicBool,
}

#[repr(C)]
struct Host {
    abi: c_int,
    context: *const Shared,
    text: extern "C" fn(*const Shared, *const c_char, usize) -> c_int,
    state: extern "C" fn(*const Shared, i64, *const c_char, c_int, c_int) -> c_int,
    start: extern "C" fn(*const Shared) -> i64,
}

#[repr(C)]
struct Descriptor {
    abi: c_int,
    name: *const c_char,
    host: *mut *const Host,
    activate: Option<extern "C" fn() -> c_int>,
    deactivate: Option<extern "C" fn() -> c_int>,
}

impl Shared {
    /// Appends an event as a line; nothing if it cannot be one.
    fn write_event(event: Event<'_>, out: &mut Vec<u8>) -> Option<()> {
        if !event.is_writable() || event.id.len() > ID_BYTES || event.id.contains(&0) {
            return None;
        }
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let stamp = if event.stamp == 0 { now() } else { event.stamp };
        Event { stamp, ..event }.write_line(out);
        Some(())
    }

    /// Appends one message of a module: a change of a job, or `NNN;stamp;` and anything.
    fn write_message(line: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if line.starts_with(b"001;") {
            return Self::write_event(fork::parse(line)?, out);
        }
        Message::parse(line)?.write_line(out);
        Some(())
    }

    /// 0 when the lines are on their way.
    fn send(&self, lines: &[u8]) -> c_int {
        if !self.is_active.load(Ordering::Acquire) {
            return -1;
        }
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.write_all(lines).is_ok() { 0 } else { -1 }
    }
}

extern "C" fn text(context: *const Shared, text: *const c_char, length: usize) -> c_int {
    if text.is_null() || length > ID_BYTES {
        return -1;
    }
    // SAFETY: the module passes back the context of its `Host`, which is never freed, and a text of `length` bytes that
    // lives until this returns; both are promised by the header, whose inline functions make this call.
    let (shared, text) = unsafe { (&*context, std::slice::from_raw_parts(text.cast::<u8>(), length)) };
    // All of them or none: whoever gets -1 may say the whole again.
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut lines = Vec::with_capacity(text.len() + 64);
    let is_good = text.split(|b| *b == b'\n').all(|line| Shared::write_message(line, &mut lines).is_some());
    if is_good { shared.send(&lines) } else { -1 }
}

extern "C" fn state(
    context: *const Shared,
    stamp: i64,
    job: *const c_char,
    state: c_int,
    code: c_int,
) -> c_int {
    let (false, Some(state)) = (job.is_null(), State::from_number(state)) else { return -1 };
    // SAFETY: the context as above; `job` is a string that ends with a NUL and lives until this returns.
    let (shared, id) = unsafe { (&*context, CStr::from_ptr(job)) };
    let mut line = Vec::with_capacity(64);
    let written = Shared::write_event(Event { stamp, id: id.to_bytes(), state, code }, &mut line);
    written.map_or(-1, |()| shared.send(&line))
}

extern "C" fn start(context: *const Shared) -> i64 {
    // SAFETY: the context as above.
    unsafe { (*context).from }
}

/// Why a module cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// A name that is no part of a file name.
    #[error("a module's name has letters, digits, `_` and `-` only, or is a path with a `/`")]
    Name,
    /// The library cannot be loaded, or is none of ours: what the loader says.
    #[error("{0}")]
    Load(String),
    /// The library is for another version of the header.
    #[error("the library was made for version {0} of updraft_seg.h, this program has {ABI}")]
    Abi(c_int),
    /// The library's description of itself is incomplete.
    #[error("the library does not describe itself as updraft_seg.h says: it has no {0}")]
    Descriptor(&'static str),
    /// No pipe.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<libloading::Error> for PluginError {
    fn from(error: libloading::Error) -> Self {
        let reason = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Self::Load(format!("{error}{}", reason.unwrap_or_default()))
    }
}

type Call = extern "C" fn() -> c_int;

/// How far a module is.
enum Standing {
    Loaded,
    /// Its activation runs in a thread of its own: a module that does not come back keeps nobody waiting.
    Starting(Receiver<c_int>),
    Active,
    Failed,
}

/// A module that was loaded.
pub struct Plugin {
    shared: &'static Shared,
    activate: Call,
    deactivate: Call,
    standing: Standing,
    lines: Lines,
}

/// Where a module's library is.
fn file_of(name: &str) -> Result<PathBuf, PluginError> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        return Err(PluginError::Name);
    }
    Ok(PathBuf::from(format!("libupdraft_seg_{name}.so")))
}

impl Plugin {
    /// Loads the module of this name, or at this path. Events before `from` are not told.
    pub fn load(name: &str, from: i64) -> Result<Self, PluginError> {
        let (reader, writer) = io::pipe()?;
        let lines = Lines::new(reader, from)?;
        // What the library lacks is found now and not when it is called.
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: loading runs the library's initialisers. Whoever names a module trusts it like this program.
        let library = unsafe { libloading::os::unix::Library::open(Some(file_of(name)?), flags)? };
        // SAFETY: the header defines the symbol as a variable that points to a descriptor.
        let pointer =
            unsafe { *library.get::<*const *const Descriptor>(b"globus_scheduler_event_module_ptr\0")? };
        if pointer.is_null() {
            return Err(PluginError::Descriptor("globus_scheduler_event_module_ptr"));
        }
        // SAFETY: `pointer` is the address of that variable in the loaded library; it may hold null.
        let descriptor = unsafe { (*pointer).as_ref() };
        let descriptor = descriptor.ok_or(PluginError::Descriptor("module behind its pointer"))?;
        if descriptor.abi != ABI {
            return Err(PluginError::Abi(descriptor.abi));
        }
        if descriptor.host.is_null() {
            return Err(PluginError::Descriptor("place for the host"));
        }
        if descriptor.name.is_null() {
            return Err(PluginError::Descriptor("name"));
        }
        let activate = descriptor.activate.ok_or(PluginError::Descriptor("function to activate it"))?;
        let deactivate = descriptor.deactivate.ok_or(PluginError::Descriptor("function to deactivate it"))?;
        // Neither these nor the library are ever let go: a thread of the module may still be on its way out.
        let shared = Shared { pipe: Mutex::new(writer), from, is_active: AtomicBool::new(false) };
        let shared: &'static Shared = Box::leak(Box::new(shared));
        let host: &'static Host = Box::leak(Box::new(Host { abi: ABI, context: shared, text, state, start }));
        // SAFETY: the header makes `host` point to a variable of the module, and nothing of the module runs yet.
        unsafe { *descriptor.host = host };
        std::mem::forget(library);
        Ok(Self { shared, activate, deactivate, standing: Standing::Loaded, lines })
    }

    /// Activates the module, or sees whether that is done.
    fn start(&mut self) -> io::Result<()> {
        if matches!(self.standing, Standing::Loaded) {
            self.shared.is_active.store(true, Ordering::Release);
            self.standing = Standing::Starting(call(self.activate)?);
        }
        let Standing::Starting(answer) = &self.standing else { return Ok(()) };
        match answer.try_recv() {
            Ok(0) => self.standing = Standing::Active,
            Ok(code) => {
                self.standing = Standing::Failed;
                return Err(io::Error::other(format!("the module cannot start: it says {code}")));
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                self.standing = Standing::Failed;
                return Err(io::Error::other("the module's activation came to no end"));
            }
        }
        Ok(())
    }
}

/// Makes a call in a thread of its own.
fn call(function: Call) -> io::Result<Receiver<c_int>> {
    let (answer, answers) = sync_channel(1);
    std::thread::Builder::new().name("module".into()).spawn(move || {
        // Whoever waited may have given up.
        let _ = answer.try_send(function());
    })?;
    Ok(answers)
}

// The context crosses the border as an opaque pointer.
const _: () = assert!(size_of::<*const Shared>() == size_of::<*const c_void>());

impl Source for Plugin {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        self.start()?;
        // There is no later: its start is waited for.
        while turn.last && matches!(self.standing, Standing::Starting(_)) && !sink.is_over() {
            std::thread::sleep(SOON);
            self.start()?;
        }
        self.lines.drain(sink)?;
        Ok(matches!(self.standing, Standing::Starting(_)).then_some(SOON))
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.lines.ready()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Without a reader the module's calls return at once, also one that waits now.
        self.lines.close();
        if matches!(self.standing, Standing::Active)
            && let Ok(answer) = call(self.deactivate)
        {
            // A module that does not stop is left behind: the program ends.
            let _ = answer.recv_timeout(GOODBYE);
        }
    }
}
