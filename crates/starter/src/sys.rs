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

/// Nobody but root looks into our memory, nor is it written to a core file: children share it while they start.
pub(crate) fn hide_memory() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Leaves the agent's session: terminal signals meant for the agent do not reach us.
pub(crate) fn new_session() {
    // SAFETY: no memory is touched; failure means that we already lead a session.
    unsafe { libc::setsid() };
}

/// Delivers SIGCHLD, SIGTERM and their like through a descriptor instead of handlers.
pub(crate) fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and lives on our stack.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        // SIGUSR1 tells a keeper to end its starter, SIGUSR2 tells a starter that its keeper is gone. SIGCONT is a `Waker`'s: newer
        // kernels (6.13) set up a timer no more whose signal came and was ignored, which it is where nobody takes it.
        let ours = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT];
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP].into_iter().chain(ours) {
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

/// Waits for a child that ends.
pub(crate) fn collect(pid: i32) {
    // SAFETY: waits for our own child; no memory is passed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
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
    hear_of_parents_death(libc::SIGKILL)
}

/// When our parent dies, we get this signal.
pub(crate) fn hear_of_parents_death(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(drop)
}

/// Who started us, or has adopted us.
pub(crate) fn parent_pid() -> i32 {
    // SAFETY: getppid touches no memory and cannot fail.
    unsafe { libc::getppid() }
}

/// Two connected ends of a pipe: reading does not wait, and neither end outlives an `execve`.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into an array of two, which nobody else owns.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        let (read, write) = (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]));
        check(libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK))?;
        Ok((read, write))
    }
}

/// Reads what there is without waiting. 0 is the end.
pub(crate) fn read(fd: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the length of the buffer.
    let got = unsafe { libc::read(fd.as_raw_fd(), to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Closes every descriptor but the standard ones and these. The standard ones become empty: a starter's are its connection
/// to its agent and its log.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    // SAFETY: descriptor numbers only. Whoever owns the closed ones in this copy of a process never runs again.
    unsafe {
        let null = check(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))?;
        for fd in (0..=2).filter(|fd| !kept.contains(fd)) {
            check(libc::dup2(null, fd as libc::c_int))?;
        }
        let mut from = 3;
        for fd in kept.into_iter().filter(|fd| *fd > 2).chain([u32::MAX]) {
            if from < fd {
                let last = if fd == u32::MAX { fd } else { fd - 1 };
                check(libc::syscall(libc::SYS_close_range, from, last, 0) as libc::c_int)?;
            }
            from = fd.saturating_add(1);
        }
    }
    Ok(())
}

/// The standard input becomes empty.
pub(crate) fn close_standard_input() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    // SAFETY: descriptor numbers only; nobody here reads from the old one.
    check(unsafe { libc::dup2(null.as_raw_fd(), 0) }).map(drop)
}

/// The descriptor is not given to programs that this process executes.
pub(crate) fn set_close_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a descriptor that is open.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// The descriptor is given to programs that this process executes.
pub(crate) fn keep_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a descriptor that is open.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) }).map(drop)
}

/// No signal is blocked any more.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: the set is initialised before use, and lives on our stack.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())).map(drop)
    }
}

/// Room for one descriptor beside a message, aligned as the kernel wants it.
type Control = [u64; 4];

/// Sends a message and a copy of a descriptor.
pub(crate) fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fd: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut control: Control = [0; 4];
    // SAFETY: the message points to buffers on our stack and says how long they are; there is room for one descriptor.
    unsafe {
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as usize;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
        libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(fd.as_raw_fd());
        check(libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) as libc::c_int)
            .map(drop)
    }
}

/// Receives a message, and the descriptor that came with it.
pub(crate) fn receive_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control: Control = [0; 4];
    // SAFETY: as above; a descriptor that the kernel has put there is nobody's yet.
    unsafe {
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>();
        let got =
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC);
        let len = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        let is_descriptor = !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS;
        let fd = is_descriptor
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<libc::c_int>().read_unaligned()));
        Ok((len, fd))
    }
}

/// A kernel timer that lets this process go on when somebody has stopped it: from a moment on, each second.
#[derive(Debug)]
pub(crate) struct Waker(libc::c_int);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let mut timer: libc::c_int = 0;
        // SAFETY: both structures live on our stack for the duration of the call.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGCONT;
            let clock = libc::CLOCK_MONOTONIC;
            let made = libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer);
            check(made as libc::c_int)?;
        }
        Ok(Self(timer))
    }

    pub(crate) fn set(&self, at_us: u64) {
        let time = |us: u64| libc::timespec {
            tv_sec: (us / 1_000_000) as libc::time_t,
            tv_nsec: (us % 1_000_000 * 1000) as libc::c_long,
        };
        let times = libc::itimerspec { it_interval: time(1_000_000), it_value: time(at_us.max(1)) };
        // SAFETY: a timer of ours and a structure on our stack.
        unsafe {
            let old = std::ptr::null_mut::<libc::itimerspec>();
            libc::syscall(libc::SYS_timer_settime, self.0, libc::TIMER_ABSTIME, &raw const times, old)
        };
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // SAFETY: a timer of ours, which nobody uses any more.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

/// Becomes a user for good, with all that follows: no way back, no capabilities, no new privileges. The process must have
/// one thread only.
pub(crate) fn become_for_good(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let done = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: system calls on numbers and on a list of groups that outlives them.
    unsafe {
        drop_bounding_set()?;
        done(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        done(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        done(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    drop_capabilities()
}

/// Becomes somebody who owns nothing and may look into every directory (CAP_DAC_READ_SEARCH), and can do nothing else, for good.
/// No account has that number, so that no job can stop whoever looks. The process must have one thread only.
pub(crate) fn become_onlooker() -> io::Result<()> {
    become_nobody_with(1 << DAC_READ_SEARCH)
}

/// Nobody's user who may remove whatever stands in a directory that is open, whoever made it.
pub(crate) fn become_remover() -> io::Result<()> {
    become_nobody_with(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH | 1 << FOWNER)
}

/// Nobody's user who may send signals to everybody, and whom no job can send one.
pub(crate) fn become_guard() -> io::Result<()> {
    become_nobody_with(1 << KILL)
}

const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const KILL: u32 = 5;

fn become_nobody_with(capabilities: u32) -> io::Result<()> {
    const NOBODY: libc::uid_t = 4_294_967_000;
    let done = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: system calls on numbers.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        done(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        done(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY))?;
        done(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY))?;
    }
    set_capabilities(capabilities)
}

/// No program that this process executes gets a capability.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: prctl with these arguments touches no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            let error = io::Error::last_os_error();
            // The kernel has no more of them.
            return if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

/// Gives up every capability, also those that a program could inherit.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    set_capabilities(0)
}

/// Keeps these of the first 32 capabilities, effective and permitted; nothing can be inherited.
fn set_capabilities(kept: u32) -> io::Result<()> {
    // Version 3: two sets of 32 for each of effective, permitted, inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let sets: [u32; 6] = [kept, kept, 0, 0, 0, 0];
    // SAFETY: the kernel reads a header and two data structures of three words each.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) } as libc::c_int).map(drop)
}

/// No program that this process executes gets more rights than it has.
pub(crate) fn no_new_privileges() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Sets a limit of this process.
pub(crate) fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the structure lives on our stack.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}

/// Ignores a signal.
pub(crate) fn ignore(signal: libc::c_int) {
    // SAFETY: no handler of ours is involved.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Runs before others where that is allowed: whoever has to end processes must not starve among them.
pub(crate) fn hurry() {
    // SAFETY: setpriority touches no memory; failure only means less speed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
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

/// Our effective group id.
pub(crate) fn own_gid() -> u32 {
    // SAFETY: getegid cannot fail and touches no memory.
    unsafe { libc::getegid() }
}

/// Opens a file by a path no part of which is a link.
pub(crate) fn open_without_links(path: &CStr, flags: libc::c_int) -> io::Result<std::fs::File> {
    // SAFETY: a NUL-terminated path and a structure on our stack, whose size is given; a new descriptor is nobody's yet.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = flags as u64;
        how.resolve = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
        let size = size_of::<libc::open_how>();
        let opened = libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw mut how, size)
            as libc::c_int;
        Ok(std::fs::File::from_raw_fd(check(opened)?))
    }
}

/// Calls `look` with an address at which the beginning of a file is mapped meanwhile.
pub(crate) fn map_for_a_moment<T>(fd: libc::c_int, look: impl FnOnce(usize) -> Option<T>) -> Option<T> {
    // SAFETY: a new mapping, never read, gone when we are done.
    unsafe {
        let (null, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
        let at = libc::mmap(null, 1, libc::PROT_READ, flags, fd, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        let found = look(at.addr());
        libc::munmap(at, 1);
        found
    }
}

/// Our process id.
/// An error when a path cannot be written by whoever we are.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) }).map(drop)
}

/// Puts on disk whatever is in memory of the file system that a file is on.
pub(crate) fn sync_file_system(file: &std::fs::File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: an open descriptor; no memory is touched.
    check(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
}

/// Opens a file of a directory for reading.
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<std::fs::File> {
    use std::os::fd::AsRawFd as _;
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated name; the descriptor that comes back is nobody else's.
    unsafe {
        check(libc::openat(dir.as_raw_fd(), name.as_ptr(), flags)).map(|fd| std::fs::File::from_raw_fd(fd))
    }
}

/// Modes of new files are what whoever makes them says, less this.
pub(crate) fn set_mask(mask: libc::mode_t) {
    // SAFETY: umask touches no memory and cannot fail.
    unsafe { libc::umask(mask) };
}

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

/// Calls `each` with the name of every entry of a directory, and whether it is a directory itself.
pub(crate) fn for_each_entry(dir: BorrowedFd<'_>, mut each: impl FnMut(&CStr, bool)) -> io::Result<()> {
    const NAME_AT: usize = 19;
    // An open directory of its own: where others are in theirs does not matter.
    let own = open_dir_at(dir, c".")?;
    let mut buffer = vec![0u8; 32 << 10];
    loop {
        // SAFETY: the kernel writes at most the length of the buffer.
        let got = unsafe {
            libc::syscall(libc::SYS_getdents64, own.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if got == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..got];
        // struct linux_dirent64: inode, offset, u16 length at 16, u8 type at 18, name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let len = usize::from(u16::from_ne_bytes([low, high]));
            let Some(record) = rest.get(..len).filter(|r| r.len() > NAME_AT) else { break };
            rest = &rest[len..];
            let Ok(name) = CStr::from_bytes_until_nul(&record[NAME_AT..]) else { continue };
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let is_dir = match record[18] {
                libc::DT_UNKNOWN => {
                    about(dir, name).is_ok_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFDIR)
                }
                kind => kind == libc::DT_DIR,
            };
            each(name, is_dir);
        }
    }
}

/// True when there is nothing in a directory.
pub(crate) fn is_empty(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let mut empty = true;
    for_each_entry(dir, |_, _| empty = false)?;
    Ok(empty)
}

/// Opens a directory in another one, without following a link.
pub(crate) fn open_dir_at(above: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a NUL-terminated name; a new descriptor is nobody's yet.
    unsafe {
        let fd = check(libc::openat(above.as_raw_fd(), name.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes a directory in another one.
#[cfg(test)]
pub(crate) fn make_dir_at(above: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated name.
    check(unsafe { libc::mkdirat(above.as_raw_fd(), name.as_ptr(), 0o700) }).map(drop)
}

pub(crate) fn remove_file_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated name.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

pub(crate) fn remove_dir_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated name.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// Moves an entry of a directory to another one, where nothing may have that name.
pub(crate) fn rename_at(from: BorrowedFd<'_>, name: &CStr, to: BorrowedFd<'_>, new: &CStr) -> io::Result<()> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: NUL-terminated names. A directory never replaces a file nor a full directory.
    check(unsafe { libc::renameat(from, name.as_ptr(), to, new.as_ptr()) }).map(drop)
}

/// Gives its owner all rights to a directory.
pub(crate) fn make_usable(dir: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an open descriptor.
    check(unsafe { libc::fchmod(dir.as_raw_fd(), 0o700) }).map(drop)
}

/// Gives its owner all rights to a directory that cannot be opened. Should it be a link by now, what it leads to is changed
/// with no more rights than ours, which must therefore be its owner's.
pub(crate) fn make_usable_at(above: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated name.
    check(unsafe { libc::fchmodat(above.as_raw_fd(), name.as_ptr(), 0o700, 0) }).map(drop)
}

/// What is known of an entry of a directory (of the directory itself when the name is empty); links are not followed.
pub(crate) fn about(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<libc::stat> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
    // SAFETY: a NUL-terminated name and a structure on our stack.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        check(libc::fstatat(dir.as_raw_fd(), name.as_ptr(), &raw mut about, flags))?;
        Ok(about)
    }
}

/// Names and blocks of an open file of any process, by its path in `/proc`: what the kernel knows already. No file system is asked,
/// so that none can keep us waiting.
pub(crate) fn known_of(path: &CStr) -> io::Result<OpenFile> {
    let wanted = libc::STATX_NLINK | libc::STATX_BLOCKS | libc::STATX_INO;
    // SAFETY: a NUL-terminated path and a structure on our stack.
    let about = unsafe {
        let mut about: libc::statx = std::mem::zeroed();
        check(libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_STATX_DONT_SYNC, wanted, &raw mut about))?;
        about
    };
    let device = libc::makedev(about.stx_dev_major, about.stx_dev_minor);
    let (inode, names, bytes) = (about.stx_ino, about.stx_nlink, about.stx_blocks.saturating_mul(512));
    Ok(OpenFile { device, inode, names, bytes })
}

/// What the kernel knows of an open file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFile {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) names: u32,
    pub(crate) bytes: u64,
}

/// Size of a file system, and what is free there for everybody.
pub(crate) fn room(dir: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    room_of(dir).map(|room| (room.size, room.available))
}

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) size: u64,
    pub(crate) free: u64,
    /// Those that others than root can have.
    pub(crate) available: u64,
}

/// The room of the file system of an open file, also of one that was opened as a path only.
pub(crate) fn room_of(file: BorrowedFd<'_>) -> io::Result<Room> {
    // SAFETY: an open descriptor and a structure on our stack.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        check(libc::fstatvfs(file.as_raw_fd(), &raw mut about))?;
        about
    };
    let block = about.f_frsize as u64;
    let bytes = |blocks: u64| blocks.saturating_mul(block);
    Ok(Room {
        size: bytes(about.f_blocks as u64),
        free: bytes(about.f_bfree as u64),
        available: bytes(about.f_bavail as u64),
    })
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
