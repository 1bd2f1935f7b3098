//! How much memory and time an input may take. Both are the thread's own: they do not depend on what else the machine does.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

/// Memory that an input may take at most, and for each of its bytes.
const BYTES: isize = 64 << 20;
const BYTES_PER_BYTE: isize = 16 << 10;
/// Seconds of processor time; a build without optimisation takes some ten times as long as a release.
const SECONDS: i64 = 10;

/// The system's allocator, counted.
#[derive(Debug)]
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees after its variables are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: everything is done by the system's allocator with the arguments that it is asked with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs a target over an input.
pub fn run(target: crate::Target, input: &[u8]) {
    let before = LIVE.get();
    PEAK.set(before);
    let started = clock_gettime(ClockId::ThreadCPUTime).tv_sec;
    target(input);
    let (taken, allowed) = (PEAK.get() - before, BYTES + BYTES_PER_BYTE * input.len() as isize);
    assert!(taken <= allowed, "{} bytes of input take {taken} bytes of memory", input.len());
    let seconds = clock_gettime(ClockId::ThreadCPUTime).tv_sec - started;
    assert!(seconds <= SECONDS, "{} bytes of input take {seconds} s", input.len());
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_input_that_takes_too_much_is_noticed() {
        super::run(|_| drop(vec![1u8; 32 << 20]), b"");
        let large = std::panic::catch_unwind(|| super::run(|_| drop(vec![1u8; 65 << 20]), b""));
        assert!(large.is_err());
    }
}
