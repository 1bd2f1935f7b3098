//! A page that a process shares with its child: what the child is doing, and what went wrong.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::spawn::Why;

const PAGE_BYTES: usize = 4096;

#[repr(C)]
struct Page {
    stage: AtomicU32,
    failed: AtomicU32,
    errno: AtomicU32,
    kind: AtomicU32,
    /// Of standard output and error.
    devices: [AtomicU64; 2],
}

/// The page.
#[derive(Debug)]
pub(crate) struct Board(NonNull<Page>);

impl Board {
    pub(crate) fn new() -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of our own; it begins as zeros, which are valid atomics.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as we live, and only ever read and written by atomics.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn clear(&self) {
        let page = self.page();
        for word in [&page.stage, &page.failed, &page.errno, &page.kind] {
            word.store(0, Ordering::Relaxed);
        }
        for device in &page.devices {
            device.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_stage(&self, stage: u32) {
        self.page().stage.store(stage, Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> u32 {
        self.page().stage.load(Ordering::Relaxed)
    }

    /// Notes the device of what is standard output (1) or error (2) now.
    pub(crate) fn set_device(&self, stream: i32, device: u64) {
        if let Some(place) = usize::try_from(stream - 1).ok().and_then(|at| self.page().devices.get(at)) {
            place.store(device, Ordering::Relaxed);
        }
    }

    pub(crate) fn devices(&self) -> [u64; 2] {
        let [output, error] = &self.page().devices;
        [output.load(Ordering::Relaxed), error.load(Ordering::Relaxed)]
    }

    /// What was being done has failed: with this errno, or because a file is of this type.
    pub(crate) fn fail(&self, errno: u32, kind: u32) {
        let page = self.page();
        page.errno.store(errno, Ordering::Relaxed);
        page.kind.store(kind, Ordering::Relaxed);
        page.failed.store(1, Ordering::Release);
    }

    /// The stage that failed, and why; `None` while nothing has.
    pub(crate) fn failure(&self) -> Option<(u32, Why)> {
        let page = self.page();
        if page.failed.load(Ordering::Acquire) == 0 {
            return None;
        }
        let why = match page.kind.load(Ordering::Relaxed) {
            0 => Why::System(io::Error::from_raw_os_error(page.errno.load(Ordering::Relaxed) as i32)),
            kind => Why::Type(kind),
        };
        Some((page.stage.load(Ordering::Relaxed), why))
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}
