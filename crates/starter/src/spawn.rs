//! One new process with a job's identity, files and session.
//!
//! The child becomes the job's user before it touches anything of the job's: its working directory, its files, its program.
//! Any of these may keep it waiting for ever (a dead file system, a pipe nobody reads), so nobody waits for the child: it
//! notes in a shared page what it is about to do, and closes a pipe, by executing the job's program or by ending, when there
//! is news. A start that takes too long is somebody else's decision (`running`).
//!
//! The child shares our memory until it executes the job's program, which spares the copy of page tables (as `vfork`, but
//! without standing still meanwhile). In exchange it only makes raw system calls on data prepared beforehand, which is kept
//! until it is done: no allocation, no locks, no `errno`. The result of every call is looked at.
//! Order in the child, which tests check: nothing of ours stays open; own session; niceness and limits; capability bounding
//! set, supplementary groups, group, user, capabilities; no new privileges; umask; death with the starter; then, as the
//! user, working directory and files.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::rc::Rc;

use libc::{c_char, c_int, c_void};

use crate::board::Board;
use crate::raw;
use crate::sys::{self, Watch};
use crate::wire::{Identity, Job, Limit};

const STACK_BYTES: usize = 64 << 10;
/// A child that was killed is done with our memory after this, or waits in the kernel for something and never comes back.
const LAST_MS: i32 = 200;

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
            Why::Type(PROCFS) => format!(
                "cannot {doing}: it leads into /proc, where it would be a stream of Updraft's own process, not of yours; name \
                 a file"
            ),
            Why::Type(kind) => format!(
                "cannot {doing}: it is {}; only regular files and /dev/null can be a job's input and output \
                 (a job may open anything else itself: sh -c 'exec PROGRAM > FILE')",
                kind_name(*kind)
            ),
        }
    }

    /// The sentence that people know of a program that could not be executed on another machine.
    pub(crate) fn reason_elsewhere(&self, job: &Job, slot: &str) -> String {
        let program = String::from_utf8_lossy(job.argv.first().map_or(&[], |a| a)).into_owned();
        match &self.why {
            Why::System(error) => {
                let (number, text) = crate::walk::said(error);
                format!("Error from {slot}: Failed to execute '{program}': (errno={number}: '{text}')")
            }
            Why::Type(_) => self.reason(job),
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

/// Stands for a type (`S_IFMT`) where what is wrong is that the path leads into procfs.
const PROCFS: u32 = u32::MAX;

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
    /// What the child uses.
    shared: Option<Shared>,
}

/// What a child uses of our memory until it executes its program.
#[derive(Debug)]
struct Shared {
    plan: Box<Plan>,
    stack: Vec<u128>,
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

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.is_under_way() {
            return;
        }
        // Its end of the pipe is open, so its number is still its own.
        sys::signal(self.pid, libc::SIGKILL);
        self.wait_ms(LAST_MS);
        if self.is_under_way() {
            // The kernel has it; it will run no further, but who knows what it holds on to.
            std::mem::forget(self.shared.take());
        }
    }
}

/// Starts processes.
#[derive(Debug)]
pub(crate) struct Spawner {
    marker: CString,
    board: Rc<Board>,
}

/// Everything the child needs, prepared beforehand.
#[derive(Debug)]
struct Plan {
    argv: List,
    envp: List,
    cwd: CString,
    stdin: CString,
    stdout: CString,
    stderr: CString,
    same_output: bool,
    /// Outputs go on where they are; they begin anew otherwise.
    appends: bool,
    identity: Option<Identity>,
    /// It loses root's rights.
    bounded: bool,
    nice: c_int,
    limits: Vec<Limit>,
    parent: c_int,
    news: c_int,
    board: Rc<Board>,
}

/// Strings as `execve` wants them.
#[derive(Debug)]
struct List {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl List {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

impl Spawner {
    pub(crate) fn new(marker: &str) -> io::Result<Self> {
        let marker = CString::new(format!("{}={marker}", crate::CLAIM_VARIABLE)).unwrap_or_default();
        Ok(Self { marker, board: Rc::new(Board::new()?) })
    }

    /// Begins to start a job's process; its pid is also its session and process group.
    pub(crate) fn spawn(&mut self, job: &Job) -> Result<Starting, Failure> {
        self.spawn_again(job, false)
    }

    /// The variable by which whatever belongs to the claim is found.
    pub(crate) fn marker(&self) -> &[u8] {
        self.marker.as_bytes()
    }

    /// The same; `appends` for one whose outputs go on.
    pub(crate) fn spawn_again(&mut self, job: &Job, appends: bool) -> Result<Starting, Failure> {
        let nul = |stage| move |_| Failure::system(stage, io::ErrorKind::InvalidInput.into());
        let own = |bytes: &[u8], stage| CString::new(bytes).map_err(nul(stage));
        let argv = job.argv.iter().map(|a| own(a, Stage::Exec)).collect::<Result<Vec<_>, _>>()?;
        let mut env = job.env.iter().map(|e| own(e, Stage::Exec)).collect::<Result<Vec<_>, _>>()?;
        env.push(self.marker.clone());
        let file = |name: &[u8], stage| own(if name.is_empty() { b"/dev/null" } else { name }, stage);
        if argv.is_empty() {
            return Err(Failure::system(Stage::Exec, io::ErrorKind::InvalidInput.into()));
        }
        let ours = |error| Failure::system(Stage::Fork, error);
        let (news, theirs) = sys::pipe().map_err(ours)?;
        self.board.clear();
        let plan = Box::new(Plan {
            argv: List::new(argv),
            envp: List::new(env),
            cwd: own(if job.cwd.is_empty() { b"/" } else { &job.cwd }, Stage::Directory)?,
            stdin: file(&job.stdin, Stage::Stdin)?,
            stdout: file(&job.stdout, Stage::Stdout)?,
            stderr: file(&job.stderr, Stage::Stderr)?,
            same_output: !job.stdout.is_empty() && job.stdout == job.stderr,
            appends,
            identity: job.identity.clone(),
            bounded: job.identity.is_some() && sys::own_uid() == 0,
            nice: job.nice.min(19) as c_int,
            limits: job.limits.clone(),
            parent: sys::own_pid(),
            news: theirs.as_raw_fd(),
            board: self.board.clone(),
        });
        let mut shared = Shared { plan, stack: Vec::with_capacity(STACK_BYTES / size_of::<u128>()) };
        let since_us = sys::mono_us();
        let sharing = if raw::AVAILABLE { libc::CLONE_VM } else { 0 };
        // SAFETY: what the child uses is in `shared`, which lives until the child is done with it; stacks grow down, so the
        // child starts at the end of its own.
        let pid = unsafe {
            let top = shared.stack.as_mut_ptr().add(shared.stack.capacity()).cast::<c_void>();
            let plan = std::ptr::from_ref(&*shared.plan).cast_mut().cast::<c_void>();
            libc::clone(child, top, sharing | libc::SIGCHLD, plan)
        };
        if pid < 0 {
            return Err(ours(io::Error::last_os_error()));
        }
        Ok(Starting { pid, news, since_us, shared: Some(shared) })
    }

    /// There is news of a start: it has happened, or why not.
    pub(crate) fn outcome(&self, starting: &Starting) -> Result<(), Failure> {
        let Some((stage, why)) = self.board.failure() else { return Ok(()) };
        // It has ended, or is about to; the caller's reaping loop would take it for the job.
        sys::collect(starting.pid);
        Err(Failure { stage: Stage::of(stage), why })
    }

    /// The devices of standard output and error of the process that was started last; 0 where that is no file.
    pub(crate) fn devices(&self) -> [u64; 2] {
        self.board.devices()
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
                let stage = Stage::of(self.board.stage());
                return Err(Failure::system(stage, io::ErrorKind::TimedOut.into()));
            }
            starting.wait_ms((deadline - now).div_ceil(1000).min(60_000) as i32);
        }
        self.outcome(&starting).map(|()| starting.pid)
    }
}

/// Runs in the child, on its own stack, in our memory.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the plan that `spawn` keeps for us.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let trouble = become_user(plan).and_then(|()| open_files(plan)).err().unwrap_or_else(|| {
        plan.board.set_stage(Stage::Exec as u32);
        // SAFETY: lists that end with a null pointer.
        Trouble::System(unsafe { raw::execute(plan.argv.pointers.as_ptr(), plan.envp.pointers.as_ptr()) })
    });
    match trouble {
        Trouble::System(errno) => plan.board.fail(errno as u32, 0),
        Trouble::Type(kind) => plan.board.fail(0, kind),
    }
    127
}

/// What went wrong in the child.
enum Trouble {
    System(c_int),
    Type(u32),
}

impl From<c_int> for Trouble {
    fn from(errno: c_int) -> Self {
        Self::System(errno)
    }
}

/// The descriptor by which the child tells that there is news; the first beside the standard ones.
const NEWS: c_int = 3;

/// Everything up to the job's working directory.
fn become_user(plan: &Plan) -> Result<(), Trouble> {
    let at = |stage: Stage| plan.board.set_stage(stage as u32);
    at(Stage::Descriptors);
    // Whatever we wait for below must not keep the agent's connection or the starter's lock.
    if plan.news != NEWS {
        dup(plan.news, NEWS, libc::O_CLOEXEC)?;
    }
    let null = raw::open(c"/dev/null", libc::O_RDWR | libc::O_CLOEXEC)?;
    for standard in 0..=2 {
        dup(null, standard, 0)?;
    }
    raw::on_numbers(libc::SYS_close_range, [NEWS as usize + 1, u32::MAX as usize, 0, 0, 0])?;
    at(Stage::Session);
    raw::on_numbers(libc::SYS_setsid, [0; 5])?;
    at(Stage::Signals);
    raw::reset_signals()?;
    at(Stage::Nice);
    if plan.nice != 0 {
        let me = libc::PRIO_PROCESS as usize;
        // The kernel says 20 less niceness, so that it is never negative.
        let now = raw::on_numbers(libc::SYS_getpriority, [me, 0, 0, 0, 0])?;
        let nice = (20 - now as c_int + plan.nice).min(19);
        raw::on_numbers(libc::SYS_setpriority, [me, 0, nice as usize, 0, 0])?;
    }
    at(Stage::Limits);
    for limit in &plan.limits {
        raw::lower_limit(limit.resource, limit.value)?;
    }
    if plan.bounded {
        at(Stage::Capabilities);
        raw::drop_bounding_set()?;
    }
    if let Some(identity) = &plan.identity {
        at(Stage::Groups);
        raw::set_groups(&identity.groups)?;
        at(Stage::Group);
        let (gid, uid) = (identity.gid as usize, identity.uid as usize);
        raw::on_numbers(libc::SYS_setresgid, [gid, gid, gid, 0, 0])?;
        at(Stage::User);
        raw::on_numbers(libc::SYS_setresuid, [uid, uid, uid, 0, 0])?;
        at(Stage::Capabilities);
        raw::drop_capabilities()?;
        // The memory is still ours: its new user must not look into it, whatever the machine allows for others.
        raw::prctl(libc::PR_SET_DUMPABLE, 0)?;
    }
    at(Stage::Privileges);
    raw::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    let own_mask = raw::on_numbers(libc::SYS_umask, [0o022, 0, 0, 0, 0])?;
    if plan.identity.is_none() {
        // Who runs a job as oneself is asked what others may do with its files; what oneself may do is needed for its outputs.
        raw::on_numbers(libc::SYS_umask, [own_mask & 0o077, 0, 0, 0, 0])?;
    }
    at(Stage::Parent);
    // After the change of user, which would undo it.
    raw::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize)?;
    if raw::on_numbers(libc::SYS_getppid, [0; 5])? != plan.parent as usize {
        return Err(Trouble::System(libc::ESRCH));
    }
    at(Stage::Directory);
    Ok(raw::chdir(&plan.cwd)?)
}

fn dup(from: c_int, to: c_int, flags: c_int) -> raw::Result {
    raw::on_numbers(libc::SYS_dup3, [from as usize, to as usize, flags as usize, 0, 0]).map(drop)
}

/// Opens the job's files in the places of the standard ones.
fn open_files(plan: &Plan) -> Result<(), Trouble> {
    let how = if plan.appends { libc::O_APPEND } else { libc::O_TRUNC };
    let write = libc::O_WRONLY | libc::O_CREAT | how;
    put_file(plan, Stage::Stdin, &plan.stdin, libc::O_RDONLY, 0)?;
    put_file(plan, Stage::Stdout, &plan.stdout, write, 1)?;
    if plan.same_output {
        return Ok(dup(1, 2, 0)?);
    }
    put_file(plan, Stage::Stderr, &plan.stderr, write, 2)
}

fn put_file(plan: &Plan, stage: Stage, path: &CStr, flags: c_int, to: c_int) -> Result<(), Trouble> {
    plan.board.set_stage(stage as u32);
    let (fd, device) = open_plain(path, flags)?;
    plan.board.set_device(to, device);
    dup(fd, to, 0)?;
    raw::on_numbers(libc::SYS_close, [fd as usize, 0, 0, 0, 0])?;
    Ok(())
}

/// Opens what is a regular file, or a device that keeps nobody waiting. With it the device that a file is on, or 0.
fn open_plain(path: &CStr, flags: c_int) -> Result<(c_int, u64), Trouble> {
    let kind = |about: &libc::stat| about.st_mode & libc::S_IFMT;
    // A pipe nobody reads and a terminal that hangs must not keep us waiting before we see what they are.
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let fd = match raw::open_outside_procfs(path, flags) {
        Ok(fd) => fd,
        // So answer links of procfs, and links in a circle, which lead nowhere.
        Err(libc::ELOOP) => {
            let is_circle = matches!(raw::stat(libc::AT_FDCWD, path), Err(libc::ELOOP));
            return Err(if is_circle { Trouble::System(libc::ELOOP) } else { Trouble::Type(PROCFS) });
        }
        // So answer sockets, and pipes without a reader.
        Err(libc::ENXIO) => {
            let about = raw::stat(libc::AT_FDCWD, path)?;
            let strange = !is_plain(&about);
            return Err(if strange { Trouble::Type(kind(&about)) } else { Trouble::System(libc::ENXIO) });
        }
        Err(errno) => return Err(Trouble::System(errno)),
    };
    let about = raw::stat(fd, c"")?;
    if !is_plain(&about) {
        return Err(Trouble::Type(kind(&about)));
    }
    if raw::is_in_procfs(fd)? {
        return Err(Trouble::Type(PROCFS));
    }
    let keep = (flags & libc::O_APPEND) as usize;
    raw::on_numbers(libc::SYS_fcntl, [fd as usize, libc::F_SETFL as usize, keep, 0, 0])?;
    Ok((fd, if kind(&about) == libc::S_IFREG { about.st_dev } else { 0 }))
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
