//! Messages between agent and starter, and what both must know of a job's surroundings.

use prost::Message;

use crate::report::{Attempt, Happening, Hold};
use crate::time::Moment;

/// The file in a job's scratch directory that says how much time is left: seconds, and the Unix time they end at.
pub const WARNING: &str = ".updraft-warning";

/// Where a job in namespaces of its own has its scratch directory.
pub const NEST_SCRATCH: &str = "/var/tmp";

/// An account of a machine, with all its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups, the primary one among them.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// Agent to starter.
#[derive(Clone, PartialEq, Message)]
pub struct ToStarter {
    /// What.
    #[prost(oneof = "Order", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub order: Option<Order>,
}

/// What an agent orders.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Order {
    /// Take a claim; the first message of a fresh starter.
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// Run these after what is already waiting.
    #[prost(message, tag = "2")]
    Run(Run),
    /// Stop one job, or take it back if it was not started.
    #[prost(message, tag = "3")]
    Stop(Stop),
    /// Give back up to so many jobs that were not started, the last first.
    #[prost(uint32, tag = "4")]
    Recall(u32),
    /// The lease runs so many milliseconds from now.
    #[prost(uint64, tag = "5")]
    Renew(u64),
    /// Reports up to this number are on disk at the manager.
    #[prost(uint64, tag = "6")]
    Ack(u64),
    /// The claim is over: end what runs, report nothing of it, exit. True: ask the job to end first, and give it a moment.
    #[prost(bool, tag = "7")]
    Quit(bool),
    /// True: stop all processes of the running job where they are. False: let them go on.
    #[prost(bool, tag = "8")]
    Suspend(bool),
    /// Say what the running job uses.
    #[prost(bool, tag = "9")]
    Measure(bool),
    /// Ask the running job for a checkpoint.
    #[prost(bool, tag = "10")]
    Checkpoint(bool),
    /// The checkpoint with this number is in the store (or will never be, when false).
    #[prost(message, tag = "11")]
    Stored(Stored),
    /// Tell the running job how much time it has left.
    #[prost(message, tag = "12")]
    Warn(Warn),
    /// Say that you are there; answered by `Here` with the same number.
    #[prost(uint64, tag = "13")]
    Ask(u64),
    /// The running job's results are where they belong, or cannot be; its end may be told.
    #[prost(message, tag = "14")]
    Landed(Landed),
    /// Somebody visits the running job.
    #[prost(message, tag = "15")]
    Visit(Visit),
}

/// Somebody visits the running job: whoever serves the visit is connected with a socket in the claim's directory.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Visit {
    /// Which job.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// The socket's name in the claim's directory.
    #[prost(string, tag = "2")]
    pub socket: String,
    /// What is wanted.
    #[prost(message, required, tag = "3")]
    pub want: crate::visit::Want,
}

/// How much time the running job has left.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Warn {
    /// Seconds from now.
    #[prost(uint64, tag = "1")]
    pub remaining_s: u64,
    /// Why, in words.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// Take a claim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Begin {
    /// The claim's directory.
    #[prost(string, tag = "1")]
    pub dir: String,
    /// Public claim id.
    #[prost(uint64, tag = "2")]
    pub claim: u64,
    /// Value of the marker variable: unguessable, so that no job can pass for another's.
    #[prost(string, tag = "3")]
    pub marker: String,
    /// First lease.
    #[prost(uint64, tag = "4")]
    pub lease_ms: u64,
    /// A directory for the jobs' own files, made before a job starts and emptied after it; empty for none.
    #[prost(string, tag = "5")]
    pub scratch: String,
    /// A job's start may take so long; 0 for a minute.
    #[prost(uint64, tag = "6")]
    pub start_ms: u64,
    /// A checkpoint may be so large; 0 for any size.
    #[prost(uint64, tag = "7")]
    pub checkpoint_bytes: u64,
}

/// Jobs to run.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Run {
    /// In this order.
    #[prost(message, repeated, tag = "1")]
    pub jobs: Vec<Job>,
}

/// One job, ready to be started.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Job {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub id: Attempt,
    /// Program and arguments, as bytes: file names need not be UTF-8.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub env: Vec<Vec<u8>>,
    /// Working directory.
    #[prost(bytes = "vec", tag = "4")]
    pub cwd: Vec<u8>,
    /// Standard input; empty for none. Relative names start at the working directory.
    #[prost(bytes = "vec", tag = "5")]
    pub stdin: Vec<u8>,
    /// Standard output; empty for none.
    #[prost(bytes = "vec", tag = "6")]
    pub stdout: Vec<u8>,
    /// Standard error; empty for none.
    #[prost(bytes = "vec", tag = "7")]
    pub stderr: Vec<u8>,
    /// Whom to become; absent to stay who we are.
    #[prost(message, optional, tag = "8")]
    pub identity: Option<Identity>,
    /// Signal for a soft stop.
    #[prost(uint32, tag = "9")]
    pub stop_signal: u32,
    /// Milliseconds between the soft stop and the kill.
    #[prost(uint64, tag = "10")]
    pub grace_ms: u64,
    /// Added to the job's nice value.
    #[prost(uint32, tag = "11")]
    pub nice: u32,
    /// Limits on what each of its processes may use.
    #[prost(message, repeated, tag = "12")]
    pub limits: Vec<Limit>,
    /// How it makes checkpoints; absent when it makes none.
    #[prost(message, optional, tag = "13")]
    pub checkpoint: Option<Checkpoint>,
    /// An archive of checkpoint files to put in place before it starts; empty for none. The starter removes it.
    #[prost(string, tag = "14")]
    pub restore: String,
    /// The signal that it wants when it is told how much time is left; 0 for none.
    #[prost(uint32, tag = "15")]
    pub warning_signal: u32,
    /// It is saved from outside; absent when it is not. What `restore` names is then such a checkpoint.
    #[prost(message, optional, tag = "16")]
    pub nest: Option<Nest>,
    /// Its scratch directory may hold so much; 0 for as much as there is.
    #[prost(uint64, tag = "17")]
    pub scratch_bytes: u64,
    /// What it asked for of the machine's memory, which it may not pass; 0 for as much as there is.
    #[prost(uint64, tag = "18")]
    pub memory_bytes: u64,
    /// Its files are brought to its scratch directory and back; absent when it runs where they are.
    #[prost(message, optional, tag = "19")]
    pub transfer: Option<Transfer>,
}

/// How a job's files get to its scratch directory and back.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Transfer {
    /// The directory with the objects that were brought here.
    #[prost(string, tag = "1")]
    pub objects: String,
    /// The name of its inputs' bundle among them; empty when nothing is sent.
    #[prost(string, tag = "2")]
    pub bundle: String,
    /// The manager's host, for people.
    #[prost(string, tag = "3")]
    pub access_point: String,
    /// The slot with its machine, for people.
    #[prost(string, tag = "4")]
    pub slot: String,
    /// The job's ad, which says what is to come back.
    #[prost(string, tag = "5")]
    pub job_ad: String,
    /// The slot's ad, for the job.
    #[prost(string, tag = "6")]
    pub machine_ad: String,
    /// What there is when it must leave is saved for its next run.
    #[prost(bool, tag = "7")]
    pub saves: bool,
    /// Results come back only after this exit code, when there is one.
    #[prost(int64, optional, tag = "8")]
    pub success_code: Option<i64>,
    /// Something is to be fetched from the submit side.
    #[prost(bool, tag = "9")]
    pub has_inputs: bool,
    /// Who fetches and sends files by their URLs; of two with the same method the later.
    #[prost(message, repeated, tag = "10")]
    pub plugins: Vec<Plugin>,
    /// A plug-in may take so many seconds.
    #[prost(uint64, tag = "11")]
    pub plugin_seconds: u64,
}

/// A program that fetches and sends files by their URLs.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Plugin {
    /// The program. For what is built in it is curl, or empty where there is none.
    #[prost(string, tag = "1")]
    pub program: String,
    /// `http`, `https` ...; in lower case.
    #[prost(string, repeated, tag = "2")]
    pub methods: Vec<String>,
    /// It is built in.
    #[prost(bool, tag = "3")]
    pub is_builtin: bool,
}

/// What became of a job's results.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Landed {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Why they are not all where they belong.
    #[prost(message, optional, tag = "2")]
    pub hold: Option<Hold>,
}

/// A job's results, collected in one file, wait to be sent; answered by `Landed`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Outputs {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// The bundle.
    #[prost(string, tag = "2")]
    pub path: String,
    /// Its SHA-256.
    #[prost(bytes = "vec", tag = "3")]
    pub sha256: Vec<u8>,
    /// Its size.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// How many files are in it.
    #[prost(uint64, tag = "5")]
    pub files: u64,
    /// Their size.
    #[prost(uint64, tag = "6")]
    pub sent: u64,
    /// What new things of the job's are not in it, in words.
    #[prost(string, repeated, tag = "7")]
    pub left_out: Vec<String>,
}

/// How a job is saved from outside.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Nest {
    /// The program.
    #[prost(string, tag = "1")]
    pub criu: String,
    /// What kind of machine this is: a checkpoint is good on machines of the same kind.
    #[prost(string, tag = "2")]
    pub platform: String,
    /// What the codes of its images are made with: this pool's, for this job.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
}

/// How a job makes checkpoints: it writes its files and exits with a code that says so, of its own accord or when a
/// signal asks for it, and is then started again.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Checkpoint {
    /// The code.
    #[prost(uint32, tag = "1")]
    pub exit_code: u32,
    /// The signal that asks for one; 0 when there is none.
    #[prost(uint32, tag = "2")]
    pub signal: u32,
    /// Files and directories, relative to the working directory.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub files: Vec<Vec<u8>>,
}

/// What became of a checkpoint.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stored {
    /// Which.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// It is safe.
    #[prost(bool, tag = "2")]
    pub safe: bool,
    /// How long it was on its way, in milliseconds.
    #[prost(uint64, tag = "3")]
    pub transfer_ms: u64,
    /// What it was allowed, in bytes per second; 0 for no cap.
    #[prost(uint64, tag = "4")]
    pub cap: u64,
    /// Why it is not safe, when that is known.
    #[prost(string, tag = "5")]
    pub why: String,
}

/// A limit on a resource, as `setrlimit` has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Limit {
    /// The resource's number (`RLIMIT_CORE` and so on).
    #[prost(uint32, tag = "1")]
    pub resource: u32,
    /// At most this.
    #[prost(uint64, tag = "2")]
    pub value: u64,
}

/// Whom to become.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Identity {
    /// User id.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// Group id.
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    /// All groups.
    #[prost(uint32, repeated, tag = "3")]
    pub groups: Vec<u32>,
}

/// Stop one job.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stop {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub id: Attempt,
    /// Kill at once.
    #[prost(bool, tag = "2")]
    pub hard: bool,
    /// The machine wants it gone: the job's end is an eviction, however it ends, and who asked decides how long it may
    /// take, not the job.
    #[prost(message, optional, tag = "3")]
    pub evict: Option<Eviction>,
}

/// Why a machine wants a job gone.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Eviction {
    /// In words.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Vacate code.
    #[prost(uint32, tag = "2")]
    pub code: u32,
    /// It is killed after so long at the latest; 0 when whoever asked decides that later.
    #[prost(uint64, tag = "3")]
    pub patience_ms: u64,
    /// The machine's owner wants the job held.
    #[prost(message, optional, tag = "4")]
    pub hold: Option<Hold>,
}

/// Starter to agent.
#[derive(Clone, PartialEq, Message)]
pub struct FromStarter {
    /// What.
    #[prost(oneof = "Word", tags = "1, 2, 3, 4, 5, 6")]
    pub word: Option<Word>,
}

/// What a starter says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Word {
    /// Where it stands; the first message on every connection.
    #[prost(message, tag = "1")]
    Standing(Standing),
    /// Something happened.
    #[prost(message, tag = "2")]
    Report(Report),
    /// What the running job uses; the answer to `Measure`.
    #[prost(message, tag = "3")]
    Use(Use),
    /// A checkpoint waits to be put into the store; answered by `Stored`.
    #[prost(message, tag = "4")]
    Packed(Packed),
    /// The answer to `Ask`.
    #[prost(uint64, tag = "5")]
    Here(u64),
    /// The results of a job that has ended wait to be sent; answered by `Landed`.
    #[prost(message, tag = "6")]
    Outputs(Outputs),
}

/// A checkpoint that waits to be put into the store.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Packed {
    /// Whose.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// Number within the claim.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// The archive.
    #[prost(string, tag = "3")]
    pub path: String,
    /// Its SHA-256.
    #[prost(bytes = "vec", tag = "4")]
    pub sha256: Vec<u8>,
    /// Its size.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// The job waits for this to be stored before it leaves the machine.
    #[prost(bool, tag = "6")]
    pub leaving: bool,
    /// The kind of machine that it is good for; empty for any.
    #[prost(string, tag = "7")]
    pub platform: String,
    /// From being asked to leave to having packed what it saved, in milliseconds; 0 when it was not asked.
    #[prost(uint64, tag = "8")]
    pub saving_ms: u64,
}

/// What a running job uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Use {
    /// Which.
    #[prost(message, required, tag = "1")]
    pub job: Attempt,
    /// CPU time of all its processes so far.
    #[prost(uint64, tag = "2")]
    pub cpu_us: u64,
    /// Address space.
    #[prost(uint64, tag = "3")]
    pub image_kib: u64,
    /// Memory.
    #[prost(uint64, tag = "4")]
    pub rss_kib: u64,
    /// Processes.
    #[prost(uint32, tag = "5")]
    pub processes: u32,
    /// It stands still.
    #[prost(bool, tag = "6")]
    pub suspended: bool,
}

/// Where a starter stands.
#[derive(Clone, PartialEq, Message)]
pub struct Standing {
    /// Its claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Running and waiting jobs, in order.
    #[prost(message, repeated, tag = "2")]
    pub jobs: Vec<Attempt>,
    /// Reports that were not acknowledged; they follow as messages too.
    #[prost(message, repeated, tag = "3")]
    pub unacknowledged: Vec<Report>,
    /// When the running job was started, by the host's monotonic clock; absent when none runs.
    #[prost(uint64, optional, tag = "4")]
    pub running_since_ms: Option<u64>,
    /// The running job stands still.
    #[prost(bool, tag = "5")]
    pub suspended: bool,
    /// Checkpoints that wait to be put into the store.
    #[prost(message, repeated, tag = "6")]
    pub packed: Vec<Packed>,
    /// It answers `Ask`.
    #[prost(bool, tag = "7")]
    pub answers: bool,
    /// Since when its first job is leaving, by the host's monotonic clock: it was asked to, its work is being packed, or waits to be
    /// stored. Absent when it is not.
    #[prost(uint64, optional, tag = "8")]
    pub leaving_since_ms: Option<u64>,
    /// Its last job was made to leave, which ends the claim; why. Whoever was to end it may be dead.
    #[prost(string, tag = "9")]
    pub ending: String,
    /// The results of a job that has ended wait to be sent.
    #[prost(message, optional, boxed, tag = "10")]
    pub outputs: Option<Box<Outputs>>,
    /// The process of the first job was started; whoever was told of it may be dead.
    #[prost(bool, tag = "11")]
    pub has_started: bool,
}

/// Something happened. Reports with a number are kept until acknowledged.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// From 1; 0 for those that need no acknowledgement.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// What.
    #[prost(oneof = "Happening", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 30")]
    pub happening: Option<Happening>,
    /// When it happened; absent when nobody knows.
    #[prost(message, optional, tag = "20")]
    pub moment: Option<Moment>,
}
