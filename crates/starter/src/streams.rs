//! Which standard streams a process was started with. The library puts /dev/null in the place of closed ones before `main`,
//! so that whoever asks later finds a stream that takes everything and keeps nothing.

use std::sync::atomic::{AtomicBool, Ordering};

static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the library's own preparations.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor, and does nothing else.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    OUTPUT_WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// True when the process was started with its standard output closed (`>&-`).
pub fn was_output_closed() -> bool {
    // Named, so that whoever links this function links the look before it too.
    std::hint::black_box(&LOOK);
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}
