//! How the C library's allocator deals with large blocks.

/// Blocks from this size on are given back to the system when they are freed.
const LARGE_BYTES: libc::c_int = 1 << 20;

/// Has every large block given back when it is freed. By default the allocator raises its limit to the size of whatever was
/// freed, up to 32 MiB, and then keeps such blocks, for every thread anew: a manager that has once read large events would
/// stay large.
pub fn give_back_large_blocks() {
    // SAFETY: mallopt touches no memory of ours, and may be called at any time.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
}
