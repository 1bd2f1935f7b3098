//! System calls without the C library, for a child that shares its parent's memory while both run: the library's wrappers
//! would write the child's errors into the parent's `errno`.

use std::ffi::{CStr, c_int, c_long};

/// Does a child of ours have a way to make system calls that touches nothing of ours?
pub(crate) const AVAILABLE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The result of a system call, or its errno.
pub(crate) type Result<T = ()> = std::result::Result<T, c_int>;

/// Makes a system call.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, words: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; the caller vouches for the words.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") words[0],
            in("rsi") words[1],
            in("rdx") words[2],
            in("r10") words[3],
            in("r8") words[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: c_long, words: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; the caller vouches for the words.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") words[0] => result,
            in("x1") words[1],
            in("x2") words[2],
            in("x3") words[3],
            in("x4") words[4],
            options(nostack),
        );
    }
    result
}

/// Makes a system call; only in a child with a copy of our memory.
///
/// # Safety
/// As for the system call.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn call(number: c_long, words: [usize; 5]) -> isize {
    // SAFETY: the caller vouches for the words; errno is ours.
    unsafe {
        let result = libc::syscall(number, words[0], words[1], words[2], words[3], words[4]);
        if result < 0 { -(*libc::__errno_location() as isize) } else { result as isize }
    }
}

fn check(result: isize) -> Result<usize> {
    // The kernel returns errno as -4095..=-1.
    if (-4095..0).contains(&result) { Err(-result as c_int) } else { Ok(result as usize) }
}

/// A system call on numbers only.
pub(crate) fn on_numbers(number: c_long, words: [usize; 5]) -> Result<usize> {
    // SAFETY: callers pass numbers, not addresses.
    check(unsafe { call(number, words) })
}

pub(crate) fn open(path: &CStr, flags: c_int) -> Result<c_int> {
    let words = [libc::AT_FDCWD as usize, path.as_ptr().addr(), flags as usize, 0o666, 0];
    // SAFETY: a NUL-terminated path.
    check(unsafe { call(libc::SYS_openat, words) }).map(|fd| fd as c_int)
}

/// Opens a file, on the way to which no link of procfs is followed: `/proc/self/fd/1` is one of ours in a process of ours.
/// Kernels without this call follow them.
pub(crate) fn open_outside_procfs(path: &CStr, flags: c_int) -> Result<c_int> {
    let mode = if flags & libc::O_CREAT == 0 { 0 } else { 0o666 };
    // SAFETY: a NUL-terminated path and a structure on our stack, whose size is given.
    let opened = unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = flags as u64;
        how.mode = mode;
        how.resolve = libc::RESOLVE_NO_MAGICLINKS;
        let at = (&raw const how).addr();
        let words = [libc::AT_FDCWD as usize, path.as_ptr().addr(), at, size_of::<libc::open_how>(), 0];
        check(call(libc::SYS_openat2, words))
    };
    match opened {
        // Some sandboxes answer so for every call that they do not know.
        Err(libc::ENOSYS | libc::EPERM) => open(path, flags),
        opened => opened.map(|fd| fd as c_int),
    }
}

/// Is this a file of procfs?
pub(crate) fn is_in_procfs(fd: c_int) -> Result<bool> {
    // SAFETY: a structure of the kernel's layout on our stack.
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        check(call(libc::SYS_fstatfs, [fd as usize, (&raw mut about).addr(), 0, 0, 0]))?;
        Ok(about.f_type as u64 == libc::PROC_SUPER_MAGIC as u64)
    }
}

pub(crate) fn chdir(path: &CStr) -> Result {
    // SAFETY: a NUL-terminated path.
    check(unsafe { call(libc::SYS_chdir, [path.as_ptr().addr(), 0, 0, 0, 0]) }).map(drop)
}

/// What is at a path, or behind a descriptor when the path is empty.
pub(crate) fn stat(fd: c_int, path: &CStr) -> Result<libc::stat> {
    // SAFETY: a NUL-terminated path, and a structure of the kernel's layout on our stack.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        let to = (&raw mut about).addr();
        let words = [fd as usize, path.as_ptr().addr(), to, libc::AT_EMPTY_PATH as usize, 0];
        check(call(libc::SYS_newfstatat, words))?;
        Ok(about)
    }
}

/// Lowers a limit; a wish for more than there is is none.
pub(crate) fn lower_limit(resource: u32, value: u64) -> Result {
    let mut now = [0u64; 2];
    // SAFETY: the structures are two words each, on our stack.
    unsafe {
        check(call(libc::SYS_prlimit64, [0, resource as usize, 0, (&raw mut now).addr(), 0]))?;
        let value = if value < now[1] { value } else { now[1] };
        let new = [value; 2];
        check(call(libc::SYS_prlimit64, [0, resource as usize, (&raw const new).addr(), 0, 0])).map(drop)
    }
}

/// The kernel's last real-time signal.
const LAST_SIGNAL: usize = 64;

/// Every signal does what it does by default, whatever we and whoever started us ignore, and none is blocked.
pub(crate) fn reset_signals() -> Result {
    let (default, none) = ([0u64; 4], [0u64; 1]);
    let signals = size_of_val(&none);
    // SAFETY: the kernel's sigaction (handler, flags, restorer, mask) and its set of signals, all zeros.
    unsafe {
        let action = (&raw const default).addr();
        for signal in 1..=LAST_SIGNAL {
            if signal != libc::SIGKILL as usize && signal != libc::SIGSTOP as usize {
                check(call(libc::SYS_rt_sigaction, [signal, action, 0, signals, 0]))?;
            }
        }
        let set = (&raw const none).addr();
        check(call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, signals, 0])).map(drop)
    }
}

pub(crate) fn set_groups(groups: &[u32]) -> Result {
    // SAFETY: a list and its length.
    check(unsafe { call(libc::SYS_setgroups, [groups.len(), groups.as_ptr().addr(), 0, 0, 0]) }).map(drop)
}

pub(crate) fn prctl(option: c_int, value: usize) -> Result {
    on_numbers(libc::SYS_prctl, [option as usize, value, 0, 0, 0]).map(drop)
}

/// Gives up every capability, also those that a program could inherit.
pub(crate) fn drop_capabilities() -> Result {
    // Version 3: two sets of 32 for each of effective, permitted, inheritable.
    let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: the kernel reads a header and two data structures of three words each.
    unsafe {
        check(call(libc::SYS_capset, [(&raw const header).addr(), (&raw const none).addr(), 0, 0, 0]))
            .map(drop)
    }
}

/// No program that this process executes gets a capability.
pub(crate) fn drop_bounding_set() -> Result {
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // The kernel has no more of them.
            Err(libc::EINVAL) => return Ok(()),
            dropped => dropped?,
        }
    }
    Ok(())
}

/// Executes a program; only returns when it cannot.
///
/// # Safety
/// Both lists end with a null pointer and hold NUL-terminated strings.
pub(crate) unsafe fn execute(argv: *const *const i8, envp: *const *const i8) -> c_int {
    // SAFETY: the caller's promise; the first word is the program.
    unsafe {
        let program = (*argv).addr();
        let result = call(libc::SYS_execve, [program, argv.addr(), envp.addr(), 0, 0]);
        check(result).err().unwrap_or(libc::EINVAL)
    }
}
