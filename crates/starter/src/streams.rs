//! Which standard streams a process was started with. The library puts /dev/null in the place of closed ones before `main`,
//! so that whoever asks later finds a stream that takes everything and keeps nothing.

use std::sync::atomic::{AtomicBool, Ordering};

static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);
static ERROR_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the library's own preparations.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor, and does nothing else.
    let is_closed = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0;
    OUTPUT_WAS_CLOSED.store(is_closed(libc::STDOUT_FILENO), Ordering::Relaxed);
    ERROR_WAS_CLOSED.store(is_closed(libc::STDERR_FILENO), Ordering::Relaxed);
}

/// True when the process was started with its standard output closed (`>&-`).
pub fn was_output_closed() -> bool {
    // Named, so that whoever links this function links the look before it too.
    std::hint::black_box(&LOOK);
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// True when the process was started with its standard error closed (`2>&-`).
pub fn was_error_closed() -> bool {
    std::hint::black_box(&LOOK);
    ERROR_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail as on a full disk, instead of ending the process without a
/// word. Jobs begin with every signal as it is by default.
pub fn fail_beyond_file_size() {
    crate::sys::ignore(libc::SIGXFSZ);
}

/// True when whoever started this process has it ignore a signal (`nohup`), and nothing here has changed that since.
pub fn was_ignored(signal: i32) -> bool {
    // SAFETY: asks what a signal does, into a structure on our stack.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
