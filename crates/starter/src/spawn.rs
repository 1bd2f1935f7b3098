//! One new process with a job's identity, files and session.
//!
//! The child is a copy of us that becomes the job's user before it touches anything of the job's: its working directory,
//! its files, its program. Any of these may keep it waiting for ever (a dead file system, a pipe nobody reads), so nobody
//! waits for the child: it notes in a shared page what it is about to do, and closes a pipe, by executing the job's program
//! or by ending, when there is news. A start that takes too long is somebody else's decision (`running`).
//!
//! Between `fork` and `execve` there are only system calls on data prepared beforehand, and the result of each is looked at.
//! Order in the child, which tests check: nothing of ours stays open; own session; niceness and limits; capability bounding
//! set, supplementary groups, group, user, capabilities; no new privileges; umask; death with the starter; then, as the
//! user, working directory and files.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use libc::{c_char, c_int};

use crate::board::Board;
use crate::sys::{self, Watch};
use crate::wire::{Identity, Job, Limit};

/// What was being done when a start failed, or takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    None,
    Fork,
    Descriptors,
    Session,
    Signals,
    Nice,
    Limits,
    Capabilities,
    Groups,
    Group,
    User,
    Privileges,
    Parent,
    Directory,
    Stdin,
    Stdout,
    Stderr,
    Exec,
}

impl Stage {
    const ALL: [Self; 18] = [
        Self::None,
        Self::Fork,
        Self::Descriptors,
        Self::Session,
        Self::Signals,
        Self::Nice,
        Self::Limits,
        Self::Capabilities,
        Self::Groups,
        Self::Group,
        Self::User,
        Self::Privileges,
        Self::Parent,
        Self::Directory,
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Exec,
    ];

    fn of(number: u32) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::None)
    }

    /// What is done in it, with the path concerned.
    fn describe(self, job: &Job) -> String {
        let path = |bytes: &[u8]| model::text::one_line(&String::from_utf8_lossy(bytes), 300);
        let uid = job.identity.as_ref().map_or(0, |i| i.uid);
        match self {
            Self::Exec => format!("execute {}", path(job.argv.first().map_or(&[], |a| a))),
            Self::Directory => format!("enter the working directory {}", path(&job.cwd)),
            Self::Stdin => format!("open the standard input {}", path(&job.stdin)),
            Self::Stdout => format!("open the standard output {}", path(&job.stdout)),
            Self::Stderr => format!("open the standard error {}", path(&job.stderr)),
            Self::Groups => format!("take the groups of uid {uid}"),
            Self::Group => format!("take the group of uid {uid}"),
            Self::User => format!("become uid {uid}"),
            Self::Capabilities => "give up capabilities".to_owned(),
            Self::Privileges => "give up privileges".to_owned(),
            Self::Nice => format!("add {} to the niceness", job.nice),
            Self::Limits => "set the job's limits".to_owned(),
            Self::Descriptors => "close our own files".to_owned(),
            Self::Session => "begin a session".to_owned(),
            Self::Signals => "reset signals".to_owned(),
            Self::Parent => "end with the starter".to_owned(),
            Self::Fork | Self::None => "make a process".to_owned(),
        }
    }
}

/// Why a process could not be started.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) why: Why,
}

/// What was wrong.
#[derive(Debug)]
pub(crate) enum Why {
    /// The operating system said so.
    System(io::Error),
    /// A file of this type (`S_IFMT`) cannot be a job's input or output.
    Type(u32),
}

impl Failure {
    fn system(stage: Stage, error: io::Error) -> Self {
        Self { stage, why: Why::System(error) }
    }

    /// A sentence, with the path concerned.
    pub(crate) fn reason(&self, job: &Job) -> String {
        let doing = self.stage.describe(job);
        match &self.why {
            Why::System(error) => format!("cannot {doing}: {error}"),
            Why::Type(kind) => format!(
                "cannot {doing}: it is {}; only regular files and /dev/null can be a job's input and output \
                 (a job may open anything else itself: sh -c 'exec PROGRAM > FILE')",
                kind_name(*kind)
            ),
        }
    }

    /// HoldReasonSubCode.
    pub(crate) fn subcode(&self) -> u32 {
        match &self.why {
            Why::System(error) => error.raw_os_error().unwrap_or(0) as u32,
            Why::Type(_) => libc::EINVAL as u32,
        }
    }

    /// HoldReasonCode.
    pub(crate) fn code(&self) -> u32 {
        match self.stage {
            Stage::Exec => 6,
            Stage::Stdin | Stage::Stdout | Stage::Stderr => 7,
            Stage::Directory => 14,
            Stage::Groups | Stage::Group | Stage::User | Stage::Privileges | Stage::Capabilities => 22,
            _ => 0,
        }
    }

    /// Whatever it waited for did not answer.
    pub(crate) fn is_time_out(&self) -> bool {
        matches!(&self.why, Why::System(error) if error.kind() == io::ErrorKind::TimedOut)
    }

    /// The machine's trouble rather than the job's: it may well start elsewhere or later.
    pub(crate) fn is_ours(&self) -> bool {
        self.code() == 0
    }
}

fn kind_name(kind: u32) -> &'static str {
    match kind {
        libc::S_IFIFO => "a pipe (FIFO), which keeps waiting whoever opens it",
        libc::S_IFSOCK => "a socket",
        libc::S_IFBLK => "a block device",
        libc::S_IFCHR => "a terminal or another device",
        libc::S_IFDIR => "a directory",
        _ => "not a file",
    }
}

/// A process that is about to become a job's.
#[derive(Debug)]
pub(crate) struct Starting {
    pub(crate) pid: i32,
    /// Ends when there is news.
    news: OwnedFd,
    pub(crate) since_us: u64,
}

impl Starting {
    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { fd: self.news.as_fd(), write: false, ready: false }
    }

    /// Waits a moment, which most starts need only.
    pub(crate) fn wait_ms(&self, ms: i32) {
        let _ = sys::poll(&mut [self.watch()], ms);
    }

    /// True while it is on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        let got = sys::read(self.news.as_fd(), &mut [0; 1]);
        got.is_err_and(|e| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted))
    }
}

/// Starts processes.
#[derive(Debug)]
pub(crate) struct Spawner {
    marker: CString,
    board: Board,
}

/// Everything the child needs, prepared beforehand.
struct Plan<'a> {
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    cwd: &'a CStr,
    stdin: &'a CStr,
    stdout: &'a CStr,
    stderr: &'a CStr,
    same_output: bool,
    identity: Option<&'a Identity>,
    /// It loses root's rights.
    bounded: bool,
    nice: c_int,
    limits: &'a [Limit],
    parent: c_int,
    news: c_int,
    board: &'a Board,
}

impl Spawner {
    pub(crate) fn new(marker: &str) -> io::Result<Self> {
        let marker = CString::new(format!("{}={marker}", crate::CLAIM_VARIABLE)).unwrap_or_default();
        Ok(Self { marker, board: Board::new()? })
    }

    /// Begins to start a job's process; its pid is also its session and process group.
    pub(crate) fn spawn(&mut self, job: &Job) -> Result<Starting, Failure> {
        let nul = |stage| move |_| Failure::system(stage, io::ErrorKind::InvalidInput.into());
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
            return Err(Failure::system(Stage::Exec, io::ErrorKind::InvalidInput.into()));
        }
        let ours = |error| Failure::system(Stage::Fork, error);
        let (news, theirs) = sys::pipe().map_err(ours)?;
        self.board.clear();
        let plan = Plan {
            argv: pointers(&argv, None),
            envp: pointers(&env, Some(&self.marker)),
            cwd: &cwd,
            stdin: &stdin,
            stdout: &stdout,
            stderr: &stderr,
            same_output: !job.stdout.is_empty() && job.stdout == job.stderr,
            identity: job.identity.as_ref(),
            bounded: job.identity.is_some() && sys::own_uid() == 0,
            nice: job.nice.min(19) as c_int,
            limits: &job.limits,
            parent: sys::own_pid(),
            news: theirs.as_raw_fd(),
            board: &self.board,
        };
        let since_us = sys::mono_us();
        // SAFETY: this process has one thread; the child only makes system calls and leaves.
        let pid = unsafe { sys::fork_into(0) }.map_err(ours)?;
        if pid == 0 {
            let (stage, why) = become_job(&plan);
            plan.board.fail(stage as u32, &why);
            sys::leave_with(Err(io::ErrorKind::Other.into()));
        }
        Ok(Starting { pid, news, since_us })
    }

    /// There is news of a start: it has happened, or why not.
    pub(crate) fn outcome(&self, starting: &Starting) -> Result<(), Failure> {
        let Some((stage, why)) = self.board.failure() else { return Ok(()) };
        // It has ended, or is about to; the caller's reaping loop would take it for the job.
        sys::collect(starting.pid);
        Err(Failure { stage: Stage::of(stage), why })
    }

    /// What a start that takes long is waiting for.
    pub(crate) fn waits_for(&self, job: &Job) -> String {
        Stage::of(self.board.stage()).describe(job)
    }

    /// Starts a job's process and waits until it has, but no longer than this.
    pub(crate) fn spawn_and_wait(&mut self, job: &Job, patience_ms: u64) -> Result<i32, Failure> {
        let starting = self.spawn(job)?;
        let deadline = starting.since_us + patience_ms * 1000;
        while starting.is_under_way() {
            let now = sys::mono_us();
            if now >= deadline {
                sys::signal(starting.pid, libc::SIGKILL);
                let stage = Stage::of(self.board.stage());
                return Err(Failure::system(stage, io::ErrorKind::TimedOut.into()));
            }
            starting.wait_ms((deadline - now).div_ceil(1000) as i32);
        }
        self.outcome(&starting).map(|()| starting.pid)
    }
}

/// Runs in the child. Only returns when something failed: with what, and why.
fn become_job(plan: &Plan<'_>) -> (Stage, Why) {
    let steps = || -> Result<(), io::Error> {
        let at = |stage: Stage| plan.board.set_stage(stage as u32);
        // SAFETY: system calls on data that `spawn` prepared; pointers are NUL-terminated strings or NULL-terminated arrays
        // of them, and this copy of the process has one thread.
        unsafe {
            let check = |result: c_int| sys::check(result).map(drop);
            at(Stage::Descriptors);
            // Whatever we wait for below must not keep the agent's connection or the starter's lock.
            sys::check(libc::dup3(plan.news, 3, libc::O_CLOEXEC))
                .or_else(|e| if plan.news == 3 { Ok(3) } else { Err(e) })?;
            sys::close_all_but(&[std::os::fd::BorrowedFd::borrow_raw(3)])?;
            at(Stage::Session);
            check(libc::setsid())?;
            at(Stage::Signals);
            if libc::signal(libc::SIGPIPE, libc::SIG_DFL) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            sys::unblock_signals()?;
            at(Stage::Nice);
            if plan.nice != 0 {
                *libc::__errno_location() = 0;
                if libc::nice(plan.nice) == -1 && *libc::__errno_location() != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            at(Stage::Limits);
            for limit in plan.limits {
                // Lower than what we have is always allowed; a wish for more is none.
                let mut now: libc::rlimit = std::mem::zeroed();
                check(libc::getrlimit(limit.resource as _, &raw mut now))?;
                let value = limit.value.min(now.rlim_max);
                now = libc::rlimit { rlim_cur: value, rlim_max: value };
                check(libc::setrlimit(limit.resource as _, &raw const now))?;
            }
            if plan.bounded {
                at(Stage::Capabilities);
                sys::drop_bounding_set()?;
            }
            if let Some(identity) = plan.identity {
                at(Stage::Groups);
                let (count, list) = (identity.groups.len(), identity.groups.as_ptr());
                check(libc::syscall(libc::SYS_setgroups, count, list) as c_int)?;
                at(Stage::Group);
                let (gid, uid) = (identity.gid, identity.uid);
                check(libc::syscall(libc::SYS_setresgid, gid, gid, gid) as c_int)?;
                at(Stage::User);
                check(libc::syscall(libc::SYS_setresuid, uid, uid, uid) as c_int)?;
                at(Stage::Capabilities);
                sys::drop_capabilities()?;
            }
            at(Stage::Privileges);
            sys::no_new_privileges()?;
            libc::umask(0o022);
            at(Stage::Parent);
            // After the change of user, which would undo it.
            sys::die_with_parent()?;
            if sys::parent_pid() != plan.parent {
                libc::_exit(127);
            }
            at(Stage::Directory);
            check(libc::chdir(plan.cwd.as_ptr()))?;
        }
        Ok(())
    };
    let stage = || Stage::of(plan.board.stage());
    if let Err(error) = steps() {
        return (stage(), Why::System(error));
    }
    let opened = open_files(plan);
    if let Err(why) = opened {
        return (stage(), why);
    }
    plan.board.set_stage(Stage::Exec as u32);
    // SAFETY: as above.
    unsafe { libc::execve(plan.argv[0], plan.argv.as_ptr(), plan.envp.as_ptr()) };
    (Stage::Exec, Why::System(io::Error::last_os_error()))
}

/// Opens the job's files in the places of the standard ones.
fn open_files(plan: &Plan<'_>) -> Result<(), Why> {
    let write = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    let files = [
        (Stage::Stdin, plan.stdin, libc::O_RDONLY),
        (Stage::Stdout, plan.stdout, write),
        (Stage::Stderr, plan.stderr, write),
    ];
    for (number, (stage, path, flags)) in files.into_iter().enumerate() {
        plan.board.set_stage(stage as u32);
        let number = number as c_int;
        // SAFETY: descriptors of this process, a NUL-terminated path.
        unsafe {
            if stage == Stage::Stderr && plan.same_output {
                sys::check(libc::dup2(1, 2)).map_err(Why::System)?;
                continue;
            }
            let fd = open_plain(path, flags)?;
            sys::check(libc::dup2(fd, number)).map_err(Why::System)?;
            sys::check(libc::close(fd)).map_err(Why::System)?;
        }
    }
    Ok(())
}

/// Opens what is a regular file, or a device that keeps nobody waiting.
fn open_plain(path: &CStr, flags: c_int) -> Result<c_int, Why> {
    // SAFETY: a NUL-terminated path, structures on our stack.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        // A pipe nobody reads and a terminal that hangs must not keep us waiting before we see what they are.
        let opened =
            libc::open(path.as_ptr(), flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC, 0o666);
        let fd = match sys::check(opened) {
            Ok(fd) => fd,
            Err(error) => {
                // So answer sockets, and pipes without a reader.
                let strange = error.raw_os_error() == Some(libc::ENXIO)
                    && libc::stat(path.as_ptr(), &raw mut about) == 0
                    && !is_plain(&about);
                return Err(if strange {
                    Why::Type(about.st_mode & libc::S_IFMT)
                } else {
                    Why::System(error)
                });
            }
        };
        sys::check(libc::fstat(fd, &raw mut about)).map_err(Why::System)?;
        if !is_plain(&about) {
            return Err(Why::Type(about.st_mode & libc::S_IFMT));
        }
        sys::check(libc::fcntl(fd, libc::F_SETFL, 0)).map_err(Why::System)?;
        Ok(fd)
    }
}

fn is_plain(about: &libc::stat) -> bool {
    let device = (libc::major(about.st_rdev), libc::minor(about.st_rdev));
    match about.st_mode & libc::S_IFMT {
        libc::S_IFREG => true,
        // null, zero, full, random, urandom.
        libc::S_IFCHR => matches!(device, (1, 3 | 5 | 7 | 8 | 9)),
        _ => false,
    }
}
