//! Modules of others: shared libraries with the calls of `include/updraft_seg.h`.
//!
//! The only file of this crate with `unsafe`: it loads code that is trusted like the program itself, and hands it
//! functions. What a module tells goes as protocol lines through a pipe to the loop, which checks and filters it like any
//! log; a full pipe makes the module wait.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, PipeWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::follow::pipe::Lines;
use super::follow::{Source, Turn};
use super::{Event, Sink, State, fork};

/// The version of the header that is understood.
const ABI: c_int = 1;
/// Longest id of a job.
const ID_BYTES: usize = 1 << 16;

/// What the functions that a module calls work on.
struct Shared {
    pipe: Mutex<PipeWriter>,
    from: i64,
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
    /// 0 when the event is on its way.
    fn tell(&self, event: Event<'_>) -> c_int {
        if !event.is_writable() || event.id.len() > ID_BYTES || event.id.contains(&0) {
            return -1;
        }
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let stamp = if event.stamp == 0 { now() } else { event.stamp };
        let mut line = Vec::with_capacity(64);
        Event { stamp, ..event }.write_line(&mut line);
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.write_all(&line).is_ok() { 0 } else { -1 }
    }
}

extern "C" fn text(context: *const Shared, text: *const c_char, length: usize) -> c_int {
    if text.is_null() || length > ID_BYTES {
        return -1;
    }
    // SAFETY: the module passes back the context of its `Host`, which is never freed, and a text of `length` bytes that
    // lives until this returns; both are promised by the header, whose inline functions make this call.
    let (shared, text) = unsafe { (&*context, std::slice::from_raw_parts(text.cast::<u8>(), length)) };
    fork::parse(text).map_or(-1, |event| shared.tell(event))
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
    shared.tell(Event { stamp, id: id.to_bytes(), state, code })
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
    /// The library cannot be loaded, or is none of ours.
    #[error("{0}")]
    Load(#[from] libloading::Error),
    /// The library is for another version of the header.
    #[error("the library was made for version {0} of updraft_seg.h, this program has {ABI}")]
    Abi(c_int),
    /// The library's description of itself is incomplete.
    #[error("the library does not describe itself as updraft_seg.h says")]
    Descriptor,
    /// No pipe.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A module that was loaded.
pub struct Plugin {
    activate: Option<extern "C" fn() -> c_int>,
    deactivate: Option<extern "C" fn() -> c_int>,
    is_active: bool,
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
        // SAFETY: loading runs the library's initialisers. Whoever names a module trusts it like this program.
        let library = unsafe { libloading::Library::new(file_of(name)?)? };
        // SAFETY: the header defines the symbol as a variable that points to a descriptor.
        let pointer =
            unsafe { *library.get::<*const *const Descriptor>(b"globus_scheduler_event_module_ptr\0")? };
        if pointer.is_null() {
            return Err(PluginError::Descriptor);
        }
        // SAFETY: `pointer` is the address of that variable in the loaded library; it may hold null.
        let descriptor = unsafe { (*pointer).as_ref() }.ok_or(PluginError::Descriptor)?;
        if descriptor.abi != ABI {
            return Err(PluginError::Abi(descriptor.abi));
        }
        if descriptor.host.is_null() || descriptor.name.is_null() {
            return Err(PluginError::Descriptor);
        }
        // Neither these nor the library are ever let go: a thread of the module may still be on its way out.
        let shared: &'static Shared = Box::leak(Box::new(Shared { pipe: Mutex::new(writer), from }));
        let host: &'static Host = Box::leak(Box::new(Host { abi: ABI, context: shared, text, state, start }));
        // SAFETY: the header makes `host` point to a variable of the module, and nothing of the module runs yet.
        unsafe { *descriptor.host = host };
        let (activate, deactivate) = (descriptor.activate, descriptor.deactivate);
        std::mem::forget(library);
        Ok(Self { activate, deactivate, is_active: false, lines })
    }
}

// The context crosses the border as an opaque pointer.
const _: () = assert!(size_of::<*const Shared>() == size_of::<*const c_void>());

impl Source for Plugin {
    fn turn(&mut self, _: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        if !self.is_active {
            self.is_active = true;
            if let Some(code) = self.activate.map(|activate| activate()).filter(|code| *code != 0) {
                self.deactivate = None;
                return Err(io::Error::other(format!("the module cannot start: it says {code}")));
            }
        }
        self.lines.drain(sink)?;
        Ok(None)
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
        if self.is_active
            && let Some(deactivate) = self.deactivate
        {
            deactivate();
        }
    }
}
