//! A nest: processes and mounts of a job's own, so that CRIU finds the same numbers and names on every machine.
//!
//! The first process in it is a fork of the starter. It starts the job's process (or has CRIU put it back), collects what
//! ends, tells the starter, and takes a few orders; it does one thing at a time and waits for it. When it ends, the kernel
//! ends everything else in the nest; when the starter dies, it does too. What a checkpoint consists of is in `transparent`.
//! Why it is so: docs/decisions/023.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::event::Exit;
use model::text;
use prost::Message;

use crate::frame::{self, Buffer};
use crate::seal::{self, KnownFiles};
use crate::spawn::Spawner;
use crate::sys::{self, Reaped, Watch};
use crate::wire::Job;

pub use model::starter::NEST_SCRATCH as SCRATCH;
/// Numbers up to this are for CRIU's own processes, so that they never clash with those it puts back.
const OURS: i32 = 1000;
/// The job's first process.
const FIRST: i32 = OURS + 1;
/// CRIU is given up when it takes longer.
const PATIENCE: Duration = Duration::from_secs(1800);
/// The largest file without a name that goes into an image.
const GHOST_LIMIT: &str = "64M";

/// A file that was open for writing, and how long it was.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Written {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) path: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) size: u64,
}

/// To the nest.
#[derive(Clone, PartialEq, Message)]
struct ToNest {
    #[prost(oneof = "Order", tags = "1, 2, 3")]
    order: Option<Order>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Order {
    /// Send the job this signal.
    #[prost(int32, tag = "1")]
    Signal(i32),
    /// Save all processes in this directory and leave them standing still.
    #[prost(bytes = "vec", tag = "2")]
    Dump(Vec<u8>),
    /// Let them go on.
    #[prost(bool, tag = "3")]
    GoOn(bool),
}

/// From the nest.
#[derive(Clone, PartialEq, Message)]
struct FromNest {
    #[prost(oneof = "Word", tags = "1, 2, 3, 4, 5")]
    word: Option<Word>,
}

/// What a nest tells.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Word {
    /// The job's process runs: a new one, or the one that was saved.
    #[prost(bool, tag = "1")]
    Started(bool),
    /// It cannot be started.
    #[prost(message, tag = "2")]
    Failed(Failed),
    /// What was saved cannot be put back, and why.
    #[prost(string, tag = "3")]
    NotRestored(String),
    /// How saving went.
    #[prost(message, tag = "4")]
    Dumped(Dumped),
    /// The job's process has ended, and everything with it.
    #[prost(message, tag = "5")]
    Ended(Exit),
}

/// Why a process could not be started.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Failed {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(uint32, tag = "2")]
    pub(crate) code: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) subcode: u32,
    /// The machine's trouble rather than the job's.
    #[prost(bool, tag = "4")]
    pub(crate) ours: bool,
}

/// How saving went.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Dumped {
    /// Empty when it went well; then everything stands still.
    #[prost(string, tag = "1")]
    pub(crate) error: String,
    /// Files that are open for writing, outside the scratch directory.
    #[prost(message, repeated, tag = "2")]
    pub(crate) files: Vec<Written>,
    /// Everything that is open there, by name.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) names: Vec<Vec<u8>>,
}

/// The starter's end of a nest.
#[derive(Debug)]
pub(crate) struct Nest {
    /// Its first process, by our numbers.
    pub(crate) pid: i32,
    stream: UnixStream,
    input: Buffer,
    /// The job's process was started.
    pub(crate) started: bool,
    /// A checkpoint is being made.
    pub(crate) dumping: bool,
    /// How the job ended, once it has.
    pub(crate) exit: Option<Exit>,
}

impl Nest {
    /// Makes a nest and has it start a job: from images when there are any.
    pub(crate) fn new(
        spawner: &mut Spawner,
        job: &Job,
        scratch: Option<&Path>,
        images: Option<(&Path, &KnownFiles)>,
        start_ms: u64,
    ) -> io::Result<Self> {
        let criu = job.nest.as_ref().map(|n| n.criu.clone()).unwrap_or_default();
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // SAFETY: this process has one thread, so that the child may do what a process does.
        let pid = unsafe { sys::fork_into(libc::CLONE_NEWPID | libc::CLONE_NEWNS) }?;
        if pid == 0 {
            drop(ours);
            let lived =
                Inside { control: theirs, criu, job: 0, start_ms }.live(spawner, job, scratch, images);
            if let Err(error) = &lived {
                eprintln!("the nest of job {:?} has failed: {error}", job.id);
            }
            sys::leave_with(lived);
        }
        Ok(Self { pid, stream: ours, input: Buffer::default(), started: false, dumping: false, exit: None })
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { fd: self.stream.as_fd(), write: false, ready: false }
    }

    /// What it has said since.
    pub(crate) fn words(&mut self) -> Vec<Word> {
        let mut chunk = [0; 4096];
        // An end of the stream is the end of the process, which is collected elsewhere.
        while let Ok(n @ 1..) = self.stream.read(&mut chunk) {
            self.input.extend(&chunk[..n]);
        }
        let mut words = Vec::new();
        while let Ok(Some(message)) = frame::take::<FromNest>(&mut self.input) {
            words.extend(message.word);
        }
        words
    }

    fn order(&mut self, order: Order) {
        let mut bytes = Vec::new();
        frame::put(&ToNest { order: Some(order) }, &mut bytes);
        // A socket takes so little at once, or nobody is there any more.
        let _ = self.stream.write_all(&bytes);
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        self.order(Order::Signal(signal));
    }

    pub(crate) fn dump(&mut self, dir: &Path) {
        self.dumping = true;
        self.order(Order::Dump(dir.as_os_str().as_bytes().to_vec()));
    }

    pub(crate) fn go_on(&mut self) {
        self.order(Order::GoOn(true));
    }

    /// Ends everything in it.
    pub(crate) fn kill(&self) {
        sys::signal(self.pid, libc::SIGKILL);
    }
}

/// The first process of a nest, seen from inside.
struct Inside {
    control: UnixStream,
    criu: String,
    /// The job's first process; 0 before it is there.
    job: i32,
    /// Its start may take so long.
    start_ms: u64,
}

impl Inside {
    /// The whole life of it.
    fn live(
        mut self,
        spawner: &mut Spawner,
        job: &Job,
        scratch: Option<&Path>,
        images: Option<(&Path, &KnownFiles)>,
    ) -> io::Result<()> {
        self.control = sys::keep_only(self.control)?;
        sys::die_with_parent()?;
        let signals = sys::signal_descriptor()?;
        let started = settle(scratch).map_err(|e| format!("cannot make the job's namespaces: {e}"));
        let word = match (started, images) {
            (Err(reason), _) => Word::Failed(Failed { reason, ours: true, ..Failed::default() }),
            (Ok(()), None) => self.start(spawner, job),
            (Ok(()), Some((images, known))) => self.restore(images, known),
        };
        self.say(word)?;
        if self.job == 0 {
            return Ok(());
        }
        let mut input = Buffer::default();
        loop {
            let mut watches = [
                Watch { fd: signals.as_fd(), write: false, ready: false },
                Watch { fd: self.control.as_fd(), write: false, ready: false },
            ];
            sys::poll(&mut watches, -1)?;
            let [_, spoken] = watches.map(|w| w.ready);
            while sys::next_signal(signals.as_fd()).is_some() {}
            loop {
                match sys::reap() {
                    Reaped::Ended(child) if child.pid == self.job => {
                        return self.say(Word::Ended(child.exit));
                    }
                    Reaped::Ended(_) => {}
                    Reaped::NoneEnded | Reaped::NoChildren => break,
                }
            }
            if !spoken {
                continue;
            }
            let mut chunk = [0; 4096];
            match self.control.read(&mut chunk)? {
                0 => return Ok(()),
                n => input.extend(&chunk[..n]),
            }
            while let Some(message) = frame::take::<ToNest>(&mut input).map_err(io::Error::other)? {
                match message.order {
                    Some(Order::Signal(signal)) => sys::signal(-self.job, signal),
                    Some(Order::GoOn(_)) => sys::signal_all(libc::SIGCONT),
                    Some(Order::Dump(dir)) => {
                        let dumped = self.dump(&PathBuf::from(OsString::from_vec(dir)));
                        self.say(Word::Dumped(dumped))?;
                    }
                    None => {}
                }
            }
        }
    }

    fn say(&mut self, word: Word) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::put(&FromNest { word: Some(word) }, &mut bytes);
        self.control.write_all(&bytes)
    }

    fn start(&mut self, spawner: &mut Spawner, job: &Job) -> Word {
        if let Err(error) = fs::write("/proc/sys/kernel/ns_last_pid", OURS.to_string()) {
            let reason = format!("cannot choose the numbers of the job's processes: {error}");
            return Word::Failed(Failed { reason, ours: true, ..Failed::default() });
        }
        match spawner.spawn_and_wait(job, self.start_ms) {
            Ok(pid) => {
                self.job = pid;
                Word::Started(false)
            }
            Err(failure) => Word::Failed(Failed {
                reason: text::one_line(&failure.reason(job), model::limits::REASON_BYTES),
                code: failure.code(),
                subcode: failure.subcode(),
                ours: failure.is_ours() || failure.is_time_out(),
            }),
        }
    }

    /// Has CRIU put the processes back, as our children. They go on when everything that they have open is what it must be:
    /// CRIU opens files as root, and somebody may have put another in the place of one.
    fn restore(&mut self, images: &Path, known: &KnownFiles) -> Word {
        let words = ["restore", "--restore-detached", "--restore-sibling", "--leave-stopped"];
        match self.criu(images, &words).and_then(|()| seal::check_in_use(FIRST, known)) {
            Ok(()) => {
                self.job = FIRST;
                // They stood still when they were saved, and still do.
                sys::signal_all(libc::SIGCONT);
                Word::Started(true)
            }
            Err(reason) => Word::NotRestored(reason),
        }
    }

    fn dump(&self, dir: &Path) -> Dumped {
        let first = FIRST.to_string();
        let arguments = ["dump", "--tree", &first, "--leave-stopped", "--ghost-limit", GHOST_LIMIT];
        let seen = self.criu(dir, &arguments).and_then(|()| {
            // Known only now, when nobody writes any more.
            let seen = written().and_then(|files| Ok((files, seal::names_in_use(FIRST)?)));
            seen.map_err(|e| {
                sys::signal_all(libc::SIGCONT);
                format!("cannot see which files it uses: {e}")
            })
        });
        match seen {
            Ok((files, names)) => Dumped { error: String::new(), files, names },
            Err(error) => Dumped { error, ..Dumped::default() },
        }
    }

    /// Runs CRIU on a directory of images.
    fn criu(&self, images: &Path, arguments: &[&str]) -> Result<(), String> {
        let log = images.join("criu.log");
        let mut command = Command::new(&self.criu);
        command.args(arguments).arg("--images-dir").arg(images).arg("--log-file").arg(&log);
        command.args(["-v2", "--file-locks", "--manage-cgroups=ignore"]);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let fail = |e: io::Error| format!("cannot run {}: {e}", self.criu);
        let mut child = command.spawn().map_err(fail)?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(fail)? {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("CRIU did not end in {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let said = fs::read(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let why = complaint(&said).map_or_else(|| status.to_string(), |line| text::one_line(line, 300));
        Err(format!("CRIU: {why}"))
    }
}

/// The line of a log that says what went wrong, without time and place in CRIU's source.
fn complaint(log: &str) -> Option<&str> {
    // A limit that it would like to raise for itself, and the summary at the end, say nothing.
    let telling = |line: &&str| !line.contains("RLIMIT_NOFILE for self") && !line.ends_with("FAILED.");
    let line = log.lines().filter(|line| line.contains("Error (")).find(telling)?;
    line.split_once("): ").map(|(_, said)| said)
}

/// Mounts of our own: processes of this nest in /proc, the scratch directory where the job looks for it.
fn settle(scratch: Option<&Path>) -> io::Result<()> {
    sys::make_mounts_private()?;
    sys::mount_proc()?;
    match scratch {
        Some(dir) => sys::bind_mount(dir, Path::new(SCRATCH)),
        None => Ok(()),
    }
}

/// Regular files outside the scratch directory that a process here has open for writing.
fn written() -> io::Result<Vec<Written>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let process = entry?;
        let number = process.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
        if number.is_none_or(|n| n < FIRST) {
            continue;
        }
        // One that has just ended writes nothing.
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        for open in open.flatten() {
            let info = process.path().join("fdinfo").join(open.file_name());
            let (Ok(info), Ok(path)) = (fs::read_to_string(info), fs::read_link(open.path())) else {
                continue;
            };
            if !writes(&info) || path.starts_with(SCRATCH) {
                continue;
            }
            let Ok(meta) = fs::metadata(open.path()) else { continue };
            // A file without a name is in the images.
            let named = fs::metadata(&path).is_ok_and(|m| same(&m, &meta));
            if meta.is_file() && named {
                found.insert(path.into_os_string().into_vec(), meta.len());
            }
        }
    }
    Ok(found.into_iter().map(|(path, size)| Written { path, size }).collect())
}

fn same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Does `/proc/PID/fdinfo/N` say that it is open for writing?
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|f| i32::from_str_radix(f.trim(), 8).ok()).unwrap_or(0);
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Cuts files that have grown since a checkpoint back to what they were; with the user's rights.
pub(crate) fn cut_back(files: &[Written]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    for Written { path, size } in files {
        let path = Path::new(OsStr::from_bytes(path));
        let about = |what: String| io::Error::other(format!("{}: {what}", path.display()));
        let mut options = fs::File::options();
        options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path).map_err(|e| about(e.to_string()))?;
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() < *size {
            let now = meta.len();
            return Err(about(format!("it had {size} bytes at the checkpoint and has {now} now")));
        }
        if meta.len() > *size {
            file.set_len(*size).map_err(|e| about(e.to_string()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_what_went_wrong() {
        let log = "(00.041476) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n\
                   (00.053299) Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10 path=/dev/null\n\
                   (00.069784) Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
        assert_eq!(complaint(log), Some("Can't lookup mount=24 for fd=10 path=/dev/null"));
        assert_eq!(complaint("Error (criu/sockets.c:628): sockets: no\n"), Some("sockets: no"));
        assert_eq!(complaint("nothing of the kind"), None);
    }

    #[test]
    fn the_flags_of_a_descriptor_tell_who_writes() {
        let info = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t25\n");
        assert!(!writes(&info("0100000")) && writes(&info("0100001")) && writes(&info("0102002")));
        assert!(!writes("") && !writes("flags:\tx\n"));
    }

    #[test]
    fn files_are_cut_back_to_what_they_were_and_never_made_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "one\ntwo\n").unwrap();
        let of = |size| [Written { path: path.as_os_str().as_bytes().to_vec(), size }];
        cut_back(&of(8)).unwrap();
        cut_back(&of(4)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\n");
        assert!(cut_back(&of(5)).unwrap_err().to_string().contains("5 bytes at the checkpoint and has 4"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(cut_back(&of(0)).is_err(), "links are not followed");
    }
}
