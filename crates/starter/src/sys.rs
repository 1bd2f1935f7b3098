//! The few system calls that std does not offer, each behind a safe function.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use model::event::Exit;

use crate::user::Account;

/// Room for the texts of an account.
const ACCOUNT_BYTES: usize = 64 << 10;

/// The result of a call that returns -1 and errno on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Orphans among our descendants become our children, so that none escapes.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Leaves the agent's session: terminal signals meant for the agent do not reach us.
pub(crate) fn new_session() {
    // SAFETY: no memory is touched; failure means that we already lead a session.
    unsafe { libc::setsid() };
}

/// Delivers SIGCHLD, SIGTERM and SIGINT through a descriptor instead of handlers.
pub(crate) fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and lives on our stack.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let fd = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next signal that arrived on a signal descriptor.
pub(crate) fn next_signal(fd: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: the kernel writes at most one whole record into a buffer of its size.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        let got = libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size);
        (got == size as isize).then_some(info.ssi_signo as i32)
    }
}

/// What to wait for on a descriptor, and what came.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) write: bool,
    pub(crate) ready: bool,
}

/// Waits until one of the descriptors is ready or the time is over.
pub(crate) fn poll(watches: &mut [Watch<'_>], timeout_ms: i32) -> io::Result<()> {
    let mut fds: Vec<libc::pollfd> = watches
        .iter()
        .map(|w| libc::pollfd {
            fd: w.fd.as_raw_fd(),
            events: libc::POLLIN | if w.write { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    // SAFETY: the pointer and the length describe `fds`.
    let result = check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) });
    match result {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
        _ => {}
    }
    for (watch, fd) in watches.iter_mut().zip(&fds) {
        watch.ready = fd.revents != 0;
    }
    Ok(())
}

/// A child that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) exit: Exit,
}

/// What [`reap`] found.
#[derive(Debug)]
pub(crate) enum Reaped {
    /// A child that ended.
    Ended(Ended),
    /// Children there are, but none has ended.
    NoneEnded,
    /// No children.
    NoChildren,
}

/// Collects one ended child without waiting.
pub(crate) fn reap() -> Reaped {
    let mut status: libc::c_int = 0;
    // SAFETY: both out-parameters live on our stack for the duration of the call; rusage is plain data.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage);
        (pid, usage)
    };
    if pid < 0 {
        return Reaped::NoChildren;
    }
    if pid == 0 {
        return Reaped::NoneEnded;
    }
    let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    let signalled = libc::WIFSIGNALED(status);
    let exit = Exit {
        code: (!signalled).then(|| libc::WEXITSTATUS(status) as u32),
        signal: signalled.then(|| libc::WTERMSIG(status) as u32),
        core: signalled && libc::WCOREDUMP(status),
        user_us: micros(usage.ru_utime),
        sys_us: micros(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
        wall_us: 0,
    };
    Reaped::Ended(Ended { pid, exit })
}

/// Sends a signal to a process (or, with a negative number, to a process group). It may be gone already.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: kill touches no memory. pid 0, 1 and -1 would hit strangers.
    if pid.abs() > 1 {
        unsafe { libc::kill(pid, signal) };
    }
}

/// Sends a signal to every process of this process namespace but its first one, which must be us.
pub(crate) fn signal_all(signal: i32) {
    // SAFETY: kill touches no memory. Only the first process of a namespace of its own may say "everybody".
    if own_pid() == 1 {
        unsafe { libc::kill(-1, signal) };
    }
}

/// Forks, the child in new namespaces: 0 in the child, its number in the parent.
///
/// # Safety
/// The process must have one thread only; the child's other threads would be gone, with whatever they had locked.
pub(crate) unsafe fn fork_into(namespaces: libc::c_int) -> io::Result<i32> {
    let nothing = 0 as libc::c_long;
    // SAFETY: without CLONE_VM and a stack this is a fork; the caller promises the rest.
    let pid = unsafe {
        let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
        libc::syscall(libc::SYS_clone, flags, nothing, nothing, nothing, nothing)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as i32) }
}

/// Ends this process at once, without what a normal end would do for the one that it is a copy of.
pub(crate) fn leave_with(result: io::Result<()>) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

/// Closes every descriptor but the standard ones and this, which it returns with another number. Standard input becomes
/// empty: it is a starter's connection to its agent.
pub(crate) fn keep_only(stream: UnixStream) -> io::Result<UnixStream> {
    let null = std::fs::File::open("/dev/null")?;
    // SAFETY: descriptor numbers only. Whoever owns the closed ones in this copy of a process never runs again: the caller
    // does not return to them, and `stream` itself is given up before its number is closed.
    unsafe {
        let own = stream.into_raw_fd();
        check(libc::dup2(null.as_raw_fd(), 0))?;
        std::mem::forget(null);
        check(libc::dup2(own, 3))?;
        check(libc::fcntl(3, libc::F_SETFD, libc::FD_CLOEXEC))?;
        check(libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0) as libc::c_int)?;
        Ok(UnixStream::from_raw_fd(3))
    }
}

/// When our parent dies, so do we.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(drop)
}

/// What is mounted from now on is not seen outside this mount namespace.
pub(crate) fn make_mounts_private() -> io::Result<()> {
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Shows the processes of this process namespace in /proc.
pub(crate) fn mount_proc() -> io::Result<()> {
    mount(Some(c"proc"), c"/proc", Some(c"proc"), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

/// Shows a directory in another place too.
pub(crate) fn bind_mount(from: &Path, to: &Path) -> io::Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    mount(Some(&path(from)?), &path(to)?, None, libc::MS_BIND)
}

fn mount(what: Option<&CStr>, to: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: NUL-terminated strings that outlive the call, or null where the kernel looks at none.
    check(unsafe { libc::mount(pointer(what), to.as_ptr(), pointer(kind), flags, std::ptr::null()) })
        .map(drop)
}

/// Takes the lock of a file without waiting; false when somebody else has it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: flock touches no memory.
    unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// The user at the other end of a Unix socket.
pub(crate) fn peer_uid(fd: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: the kernel writes at most `len` bytes into a ucred of that size.
    unsafe {
        let mut cred: libc::ucred = std::mem::zeroed();
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let result = libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        );
        (result == 0).then_some(cred.uid)
    }
}

/// Our effective user id.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Our process id.
pub(crate) fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Clock ticks of `/proc/PID/stat` in a second.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: sysconf touches no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|n| *n > 0).unwrap_or(100)
}

/// Size of a memory page in KiB.
pub(crate) fn page_kib() -> u64 {
    // SAFETY: sysconf touches no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok().map_or(4, |n| (n / 1024).max(1))
}

/// Gives a file or directory to a user and group.
pub(crate) fn give_to(path: &std::path::Path, uid: u32, gid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))
}

/// Monotonic microseconds.
pub(crate) fn mono_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-parameter lives on our stack; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Unix milliseconds.
pub(crate) fn wall_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Looks an account up, with all its groups.
pub(crate) fn account(name: &str) -> Option<Account> {
    let key = CString::new(name).ok()?;
    let mut buffer = vec![0u8; ACCOUNT_BYTES];
    // SAFETY: all pointers refer to live buffers whose lengths are given; the strings that `found` points to lie in
    // `buffer`, and are copied before it goes.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        libc::getpwnam_r(
            key.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &raw mut found,
        );
        if found.is_null() {
            return None;
        }
        let mut groups = vec![0 as libc::gid_t; 1024];
        let mut count = groups.len() as libc::c_int;
        if libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &raw mut count) < 0 {
            return None;
        }
        groups.truncate(count.max(0) as usize);
        Some(Account {
            name: owned(entry.pw_name),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups,
            home: owned(entry.pw_dir),
            shell: owned(entry.pw_shell),
        })
    }
}

/// The login name of a user. Its groups are not asked for: that may take long.
pub(crate) fn account_name(uid: u32) -> Option<String> {
    let mut buffer = vec![0u8; ACCOUNT_BYTES];
    // SAFETY: as in `account`.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut found);
        (!found.is_null()).then(|| owned(entry.pw_name))
    }
}

/// A copy of a C string.
///
/// # Safety
/// It must be one.
unsafe fn owned(text: *const libc::c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
