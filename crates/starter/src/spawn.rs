//! One new process with a job's identity, files and session.
//!
//! The child shares our memory until it executes the job's program (as `posix_spawn` does it), which spares the copy of
//! page tables and lets it leave word of what failed, and where, without a pipe. In exchange the code between `clone`
//! and `execve` may only make system calls on data prepared beforehand: no allocation, no locks.
//!
//! Order in the child, which tests check: own session; niceness and limits; supplementary groups, group, user; no new
//! privileges; umask; death with the starter; then, as the user, working directory and files.

use std::ffi::CString;
use std::io;

use libc::{c_char, c_int, c_void};

use crate::sys;
use crate::wire::{Identity, Job, Limit};

const STACK_BYTES: usize = 64 << 10;

/// What was being done when a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    None,
    Fork,
    Groups,
    Group,
    User,
    Privileges,
    Directory,
    Stdin,
    Stdout,
    Stderr,
    Exec,
}

/// Why a process could not be started.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) error: io::Error,
}

impl Failure {
    /// A sentence, with the path concerned.
    pub(crate) fn reason(&self, job: &Job) -> String {
        let path = |bytes: &[u8]| model::text::one_line(&String::from_utf8_lossy(bytes), 300);
        let error = &self.error;
        match self.stage {
            Stage::Exec => format!("cannot execute {}: {error}", path(job.argv.first().map_or(&[], |a| a))),
            Stage::Directory => format!("cannot enter the working directory {}: {error}", path(&job.cwd)),
            Stage::Stdin => format!("cannot open the standard input {}: {error}", path(&job.stdin)),
            Stage::Stdout => format!("cannot open the standard output {}: {error}", path(&job.stdout)),
            Stage::Stderr => format!("cannot open the standard error {}: {error}", path(&job.stderr)),
            Stage::Groups | Stage::Group | Stage::User => {
                format!("cannot become uid {}: {error}", job.identity.as_ref().map_or(0, |i| i.uid))
            }
            Stage::Privileges => format!("cannot give up privileges: {error}"),
            Stage::Fork | Stage::None => format!("cannot make a process: {error}"),
        }
    }

    /// HoldReasonCode.
    pub(crate) fn code(&self) -> u32 {
        match self.stage {
            Stage::Exec => 6,
            Stage::Stdin | Stage::Stdout | Stage::Stderr => 7,
            Stage::Directory => 14,
            Stage::Groups | Stage::Group | Stage::User | Stage::Privileges => 22,
            Stage::Fork | Stage::None => 0,
        }
    }

    /// The machine's trouble rather than the job's: it may well start elsewhere or later.
    pub(crate) fn is_ours(&self) -> bool {
        self.stage == Stage::Fork
    }
}

/// Starts processes; owns the stack that they share with us for a moment.
#[derive(Debug)]
pub(crate) struct Spawner {
    stack: Vec<u128>,
    marker: CString,
}

/// Everything the child needs, prepared beforehand.
struct Plan {
    argv: *const *const c_char,
    envp: *const *const c_char,
    cwd: *const c_char,
    stdin: *const c_char,
    stdout: *const c_char,
    stderr: *const c_char,
    same_output: bool,
    identity: *const Identity,
    nice: c_int,
    limits: *const Limit,
    limit_count: usize,
    parent: c_int,
    failed: Stage,
    errno: c_int,
}

impl Spawner {
    pub(crate) fn new(marker: &str) -> Self {
        let marker = CString::new(format!("{}={marker}", crate::CLAIM_VARIABLE)).unwrap_or_default();
        Self { stack: vec![0; STACK_BYTES / size_of::<u128>()], marker }
    }

    /// Starts a job's process and returns its pid, which is also its session and process group.
    pub(crate) fn spawn(&mut self, job: &Job) -> Result<i32, Failure> {
        let nul = |stage| move |_| Failure { stage, error: io::ErrorKind::InvalidInput.into() };
        let own = |bytes: &[u8], stage| CString::new(bytes).map_err(nul(stage));
        let argv = job.argv.iter().map(|a| own(a, Stage::Exec)).collect::<Result<Vec<_>, _>>()?;
        let env = job.env.iter().map(|e| own(e, Stage::Exec)).collect::<Result<Vec<_>, _>>()?;
        let file = |name: &[u8], stage| own(if name.is_empty() { b"/dev/null" } else { name }, stage);
        let stdin = file(&job.stdin, Stage::Stdin)?;
        let stdout = file(&job.stdout, Stage::Stdout)?;
        let stderr = file(&job.stderr, Stage::Stderr)?;
        let cwd = own(if job.cwd.is_empty() { b"/" } else { &job.cwd }, Stage::Directory)?;
        let pointers = |list: &[CString], last: Option<&CString>| -> Vec<*const c_char> {
            list.iter().chain(last).map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        if argv.is_empty() {
            return Err(Failure { stage: Stage::Exec, error: io::ErrorKind::InvalidInput.into() });
        }
        let argv_pointers = pointers(&argv, None);
        let env_pointers = pointers(&env, Some(&self.marker));
        let mut plan = Plan {
            argv: argv_pointers.as_ptr(),
            envp: env_pointers.as_ptr(),
            cwd: cwd.as_ptr(),
            stdin: stdin.as_ptr(),
            stdout: stdout.as_ptr(),
            stderr: stderr.as_ptr(),
            same_output: !job.stdout.is_empty() && job.stdout == job.stderr,
            identity: job.identity.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            nice: job.nice.min(19) as c_int,
            limits: job.limits.as_ptr(),
            limit_count: job.limits.len(),
            parent: sys::own_pid(),
            failed: Stage::None,
            errno: 0,
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: CLONE_VFORK suspends us until the child has executed its program or ended, so `plan`, everything it
        // points to, and the stack outlive the child's use of them; stacks grow down, so the child starts at the end.
        let pid = unsafe {
            let top = self.stack.as_mut_ptr().add(self.stack.len()).cast::<c_void>();
            libc::clone(child, top, flags, (&raw mut plan).cast())
        };
        if pid < 0 {
            return Err(Failure { stage: Stage::Fork, error: io::Error::last_os_error() });
        }
        if plan.failed != Stage::None {
            // It has ended by now; the caller's reaping loop would take it for a stranger.
            // SAFETY: waits for our own child; no memory is passed.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err(Failure { stage: plan.failed, error: io::Error::from_raw_os_error(plan.errno) });
        }
        Ok(pid)
    }
}

/// Runs in the child, on its own stack, in our memory.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the plan that `spawn` keeps alive, and nobody else touches it while we run.
    let plan = unsafe { &mut *argument.cast::<Plan>() };
    let (stage, errno) = prepare(plan);
    plan.failed = stage;
    plan.errno = errno;
    127
}

/// Only returns when something failed: with what, and errno.
fn prepare(plan: &Plan) -> (Stage, c_int) {
    // SAFETY: only system calls on data that `spawn` prepared and keeps alive; pointers are NUL-terminated strings or
    // NULL-terminated arrays of them. errno is ours while the parent is suspended. Credentials are changed by raw
    // system calls: the C library's wrappers would try to change the parent's other threads.
    unsafe {
        let errno = || *libc::__errno_location();
        libc::setsid();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if plan.nice != 0 {
            libc::nice(plan.nice);
        }
        for n in 0..plan.limit_count {
            // Lower than what we have is always allowed; a wish for more is none.
            let limit = &*plan.limits.add(n);
            let mut now: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(limit.resource as _, &raw mut now);
            let value = if limit.value < now.rlim_max { limit.value } else { now.rlim_max };
            now = libc::rlimit { rlim_cur: value, rlim_max: value };
            libc::setrlimit(limit.resource as _, &raw const now);
        }
        if let Some(identity) = plan.identity.as_ref() {
            let groups = identity.groups.as_ptr();
            if libc::syscall(libc::SYS_setgroups, identity.groups.len(), groups) != 0 {
                return (Stage::Groups, errno());
            }
            if libc::syscall(libc::SYS_setresgid, identity.gid, identity.gid, identity.gid) != 0 {
                return (Stage::Group, errno());
            }
            if libc::syscall(libc::SYS_setresuid, identity.uid, identity.uid, identity.uid) != 0 {
                return (Stage::User, errno());
            }
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return (Stage::Privileges, errno());
        }
        libc::umask(0o022);
        // After the change of user, which would undo it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != plan.parent {
            libc::_exit(127);
        }
        if libc::chdir(plan.cwd) != 0 {
            return (Stage::Directory, errno());
        }
        let write = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let stdin = libc::open(plan.stdin, libc::O_RDONLY);
        if stdin < 0 {
            return (Stage::Stdin, errno());
        }
        let stdout = libc::open(plan.stdout, write, 0o666);
        if stdout < 0 {
            return (Stage::Stdout, errno());
        }
        let stderr = if plan.same_output { stdout } else { libc::open(plan.stderr, write, 0o666) };
        if stderr < 0 {
            return (Stage::Stderr, errno());
        }
        libc::dup2(stdin, 0);
        libc::dup2(stdout, 1);
        libc::dup2(stderr, 2);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::execve(*plan.argv, plan.argv, plan.envp);
        (Stage::Exec, errno())
    }
}
