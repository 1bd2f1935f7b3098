//! Messages between manager and agents.
//!
//! An agent opens a session with [`Hello`] and from then on both sides talk when they have something to say. What an
//! agent reports about a claim is repeated until acknowledged; what the manager orders carries ids, so that repeating
//! it is harmless.

mod cargo;

use prost::Message;

use crate::event::Resources;
use crate::report::{Attempt, Happening};
use crate::template::Attribute;

pub use cargo::{Get, Inputs, Land, Landed, Object, Piece, Took, Transfer, Want};

/// Agent to manager.
#[derive(Clone, PartialEq, Message)]
pub struct ToManager {
    /// What.
    #[prost(oneof = "Up", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub up: Option<Up>,
}

/// What an agent says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Up {
    /// Here I am; the first message of a session.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// I live; echoed by the manager.
    #[prost(uint64, tag = "2")]
    Beat(u64),
    /// Something happened to a claim.
    #[prost(message, tag = "3")]
    Report(Report),
    /// The machine has changed: its ad, and what its slots do.
    #[prost(message, tag = "4")]
    Machine(MachineNow),
    /// What the machine's policy did.
    #[prost(message, tag = "5")]
    Trace(Trace),
    /// The answer to a question.
    #[prost(message, tag = "6")]
    Answer(Answer),
    /// Part of an object for the store; answered by `Took`.
    #[prost(message, tag = "7")]
    Put(Piece),
    /// Asks for part of an object; answered by `Piece`.
    #[prost(message, tag = "8")]
    Get(Get),
    /// Asks for the inputs of a job; answered by `Inputs`.
    #[prost(message, tag = "9")]
    Want(Want),
    /// Asks for a job's results, which are in the store, to be put where they belong; answered by `Landed`.
    #[prost(message, tag = "10")]
    Land(Land),
    /// Part of a visit to a job.
    #[prost(message, tag = "11")]
    Visit(crate::visit::Part),
    /// Asks which machines have an object; answered by `Found`.
    #[prost(message, tag = "12")]
    Find(Find),
    /// Others find this machine here.
    #[prost(message, tag = "13")]
    Serve(Serve),
}

/// Asks which machines near this one have an object that it may fetch.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Find {
    /// Its name.
    #[prost(string, tag = "1")]
    pub object: String,
}

/// Where a machine serves others.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Serve {
    /// `HOST:PORT`; empty when it does not any more.
    #[prost(string, tag = "1")]
    pub address: String,
}

/// Machines that have an object and were told that the asking one may have it.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Found {
    /// The object's name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// Who has it; nobody when it is the manager alone.
    #[prost(message, repeated, tag = "2")]
    pub peers: Vec<Peer>,
}

/// A machine that has an object.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Peer {
    /// Its name, as its certificate says it.
    #[prost(string, tag = "1")]
    pub machine: String,
    /// Where it serves: `HOST:PORT`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The number of the grant.
    #[prost(bytes = "vec", tag = "3")]
    pub number: Vec<u8>,
}

/// A machine may have an object from this one.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Grant {
    /// The object's name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// The machine that may have it.
    #[prost(string, tag = "2")]
    pub caller: String,
    /// What the caller shows, which nobody can guess.
    #[prost(bytes = "vec", tag = "3")]
    pub number: Vec<u8>,
    /// For how long.
    #[prost(uint64, tag = "4")]
    pub for_ms: u64,
}

/// What one machine asks another for.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct PeerGet {
    /// The object's name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// From here to its end.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The number of the grant.
    #[prost(bytes = "vec", tag = "3")]
    pub number: Vec<u8>,
}

/// The machine as it is now.
#[derive(Clone, PartialEq, Message)]
pub struct MachineNow {
    /// The machine ad.
    #[prost(message, repeated, tag = "1")]
    pub ad: Vec<Attribute>,
    /// Claimed slots.
    #[prost(message, repeated, tag = "2")]
    pub slots: Vec<SlotNow>,
    /// Those of the machine's further slots that have changed, where it is divided; `ad` is the first one's.
    #[prost(message, repeated, tag = "3")]
    pub more: Vec<Slot>,
}

/// A slot of a divided machine, other than its first.
#[derive(Clone, PartialEq, Message)]
pub struct Slot {
    /// Its number, from 2.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// What the pool may use of it.
    #[prost(message, required, tag = "2")]
    pub total: Resources,
    /// Its ad.
    #[prost(message, repeated, tag = "3")]
    pub ad: Vec<Attribute>,
}

/// A claimed slot.
#[derive(Clone, PartialEq, Message)]
pub struct SlotNow {
    /// Its claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// State.
    #[prost(string, tag = "2")]
    pub state: String,
    /// Activity.
    #[prost(string, tag = "3")]
    pub activity: String,
    /// Address space of its job in KiB.
    #[prost(uint64, tag = "5")]
    pub image_kib: u64,
    /// Memory of its job in KiB.
    #[prost(uint64, tag = "6")]
    pub rss_kib: u64,
    /// CPU time of its job in microseconds.
    #[prost(uint64, tag = "7")]
    pub cpu_us: u64,
    /// The machine's rank of its job.
    #[prost(double, tag = "8")]
    pub rank: f64,
    /// A checkpoint of its job is on its way to the store.
    #[prost(message, optional, tag = "9")]
    pub transfer: Option<Transfer>,
    /// How long ago it entered state and activity.
    #[prost(uint64, tag = "10")]
    pub age_ms: u64,
}

/// Transitions of a machine's slots.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// In order.
    #[prost(message, repeated, tag = "1")]
    pub transitions: Vec<Transition>,
    /// How many were left out because there were too many.
    #[prost(uint64, tag = "2")]
    pub left_out: u64,
}

/// One transition.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Transition {
    /// How long ago it was when it was told.
    #[prost(uint64, tag = "7")]
    pub age_ms: u64,
    /// Slot.
    #[prost(string, tag = "2")]
    pub slot: String,
    /// `State/Activity` before.
    #[prost(string, tag = "3")]
    pub from: String,
    /// `State/Activity` after.
    #[prost(string, tag = "4")]
    pub to: String,
    /// Its number in the book, 0 for the first state.
    #[prost(uint32, tag = "5")]
    pub number: u32,
    /// What made it happen: the expression that fired, or the command.
    #[prost(string, tag = "6")]
    pub cause: String,
}

/// The answer to a question.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Answer {
    /// Number of the question.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// False when it could not be done; then the text says why.
    #[prost(bool, tag = "2")]
    pub done: bool,
    /// In words, or JSON.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// A question or an order for a machine, which it answers.
#[derive(Clone, PartialEq, Message)]
pub struct Ask {
    /// Number, unique within the session.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What.
    #[prost(oneof = "Question", tags = "2, 3, 4, 5, 6")]
    pub question: Option<Question>,
}

/// What a machine is asked.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Question {
    /// Do this with claims.
    #[prost(message, tag = "2")]
    Control(Control),
    /// Set a policy macro, or remove the setting.
    #[prost(message, tag = "3")]
    Set(SetMacro),
    /// Explain what keeps the machine as it is.
    #[prost(bool, tag = "4")]
    Why(bool),
    /// Show the configuration with its sources.
    #[prost(bool, tag = "5")]
    Config(bool),
    /// Read the configuration files again.
    #[prost(bool, tag = "6")]
    Reconfigure(bool),
}

/// Do something with claims.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Control {
    /// What.
    #[prost(enumeration = "Verb", tag = "1")]
    pub verb: i32,
    /// Which claim; 0 for all of the machine.
    #[prost(uint64, tag = "2")]
    pub claim: u64,
    /// Why, for the job's log.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Checkpoints may use so many bytes in a second while this lasts; 0 for no cap.
    #[prost(uint64, tag = "4")]
    pub bytes_per_second: u64,
    /// Only this slot (`slot2`, `slot1_3`) and what is cut from it; empty for all of the machine.
    #[prost(string, tag = "5")]
    pub slot: String,
    /// With `Warn`: seconds until the job must be gone.
    #[prost(uint64, tag = "6")]
    pub remaining_s: u64,
}

/// What to do with claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Verb {
    /// Let the job save its work and go.
    Vacate = 0,
    /// Kill it.
    Kill = 1,
    /// Stop it where it is.
    Suspend = 2,
    /// Let it go on.
    Continue = 3,
    /// Ask it for a checkpoint.
    Checkpoint = 4,
    /// Tell it how much time it has left.
    Warn = 5,
}

/// Set a policy macro of a machine.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct SetMacro {
    /// Several set together are one named set; the machine keeps it across restarts.
    #[prost(string, tag = "1")]
    pub set: String,
    /// `NAME = value` lines; empty to remove the set.
    #[prost(string, tag = "2")]
    pub text: String,
    /// Who set it.
    #[prost(string, tag = "3")]
    pub by: String,
}

/// Here I am.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Software version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// What the pool may use of this machine.
    #[prost(message, required, tag = "2")]
    pub total: Resources,
    /// The machine ad.
    #[prost(message, repeated, tag = "3")]
    pub ad: Vec<Attribute>,
    /// Claims that are alive here, or whose last reports were not acknowledged.
    #[prost(message, repeated, tag = "4")]
    pub claims: Vec<HeldClaim>,
    /// Its further slots, where it is divided; `total` and `ad` are then those of its first.
    #[prost(message, repeated, tag = "5")]
    pub more: Vec<Slot>,
    /// The number of the `Again` that it answers; 0 for the first of a session.
    #[prost(uint64, tag = "6")]
    pub again: u64,
    /// Names this start of the machine's kernel; 0 when that is not known.
    #[prost(uint64, tag = "7")]
    pub boot: u64,
    /// No manager has welcomed an agent of this directory yet: what was in the one before it is not known here, and may run.
    #[prost(bool, tag = "8")]
    pub is_new: bool,
}

/// A claim that an agent holds.
#[derive(Clone, PartialEq, Message)]
pub struct HeldClaim {
    /// Public id.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The key that proves it.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Its jobs: running, waiting, or over with a report under way.
    #[prost(message, repeated, tag = "3")]
    pub jobs: Vec<Attempt>,
    /// Its starter is gone: it takes no more jobs. The machine is being put in order after it, or the report that it is gone is
    /// under way; what became of jobs that are not listed comes with its reports.
    #[prost(bool, tag = "4")]
    pub ending: bool,
    /// How far it is on its way to its first job.
    #[prost(enumeration = "Stage", tag = "30")]
    pub stage: i32,
}

/// How far a claim is on its way to its first job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Stage {
    /// It runs what it is given.
    Active = 0,
    /// Its slot is promised to it.
    Matched = 1,
    /// It has its slot, and its job waits for the word to begin.
    Accepted = 2,
}

/// How a machine hears of the match that a claim follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Notice {
    /// Not at all: the claim comes first.
    None = 0,
    /// With the claim: whoever has the one has the other.
    Together = 1,
    /// Before it: the claim is asked for with a job that waits.
    Before = 2,
}

/// A better match for the slot of a claim is known by this number until it has one of its own.
pub const BETTER: u64 = 1 << 63;

/// A better match for a claim's slot: its job is to leave for this one, if the machine agrees.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Better {
    /// The claim that has the slot.
    #[prost(uint64, tag = "1")]
    pub instead_of: u64,
    /// The key of the claim to come.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The job that is preferred: its cluster, which the machine was told of.
    #[prost(uint32, tag = "3")]
    pub cluster: u32,
    /// Its proc.
    #[prost(uint32, tag = "4")]
    pub proc: u32,
    /// Expression texts of its varying attributes.
    #[prost(string, repeated, tag = "5")]
    pub values: Vec<String>,
    /// Why, for the log of the job that leaves.
    #[prost(string, tag = "6")]
    pub reason: String,
}

/// Something happened to a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Number within the claim; 0 when no acknowledgement is wanted.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// What.
    #[prost(oneof = "Happening", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 30")]
    pub happening: Option<Happening>,
    /// How long ago it happened when this was said, by a clock that nobody sets; absent when nobody knows, because the machine was
    /// started anew since.
    #[prost(uint64, optional, tag = "20")]
    pub age_ms: Option<u64>,
}

/// Manager to agent.
#[derive(Clone, PartialEq, Message)]
pub struct ToAgent {
    /// What.
    #[prost(
        oneof = "Down",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 30, 31, 32"
    )]
    pub down: Option<Down>,
    /// What the manager's wall clock shows, with every `Welcome` and `Beat`: so a machine learns how far off its own is.
    #[prost(uint64, optional, tag = "20")]
    pub wall_ms: Option<u64>,
}

/// What a manager says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Down {
    /// Welcome; the answer to `Hello`.
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    /// Your beat arrived.
    #[prost(uint64, tag = "2")]
    Beat(u64),
    /// A claim on you.
    #[prost(message, tag = "3")]
    Claim(Claim),
    /// What the jobs of a cluster share; precedes the first assignment in a session.
    #[prost(message, tag = "4")]
    Cluster(Cluster),
    /// Run these.
    #[prost(message, tag = "5")]
    Assign(Assign),
    /// Stop this one.
    #[prost(message, tag = "6")]
    Stop(Stop),
    /// Give back what was not started.
    #[prost(message, tag = "7")]
    Recall(Recall),
    /// This claim is over.
    #[prost(uint64, tag = "8")]
    Drop(u64),
    /// A report is on disk.
    #[prost(message, tag = "9")]
    Ack(Ack),
    /// Say hello again, and repeat what was not acknowledged: the manager had to forget what it had not yet written.
    /// The hello says which question it answers: one that was under way when it was asked says nothing of what came after it.
    #[prost(uint64, tag = "10")]
    Again(u64),
    /// Answer this.
    #[prost(message, tag = "11")]
    Ask(Ask),
    /// What became of a part of an object.
    #[prost(message, tag = "12")]
    Took(Took),
    /// Part of an object.
    #[prost(message, tag = "13")]
    Piece(Piece),
    /// The inputs of a job.
    #[prost(message, tag = "14")]
    Inputs(Inputs),
    /// What became of a job's results.
    #[prost(message, tag = "15")]
    Landed(Landed),
    /// Somebody visits a job; answered by the first part of the visit.
    #[prost(message, tag = "16")]
    Visit(crate::visit::Visit),
    /// Part of a visit.
    #[prost(message, tag = "17")]
    VisitPart(crate::visit::Part),
    /// Another machine may have an object from this one.
    #[prost(message, tag = "18")]
    Grant(Grant),
    /// Machines that have an object.
    #[prost(message, tag = "19")]
    Found(Found),
    /// A better match for a claim's slot.
    #[prost(message, tag = "30")]
    Better(Better),
    /// Every seat was accepted: the jobs of this claim may begin.
    #[prost(uint64, tag = "31")]
    Activate(u64),
    /// This claim is still wanted, though it has nothing to do.
    #[prost(uint64, tag = "32")]
    Keep(u64),
}

/// Welcome.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Welcome {
    /// Software version of the manager.
    #[prost(string, tag = "1")]
    pub version: String,
    /// How often to send a beat.
    #[prost(uint64, tag = "2")]
    pub beat_ms: u64,
    /// The name under which the manager knows this machine.
    #[prost(string, tag = "3")]
    pub machine: String,
    /// The pool is one user's own: jobs of the agent's user run as that user, whoever that is.
    #[prost(bool, tag = "4")]
    pub private: bool,
}

/// A claim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Claim {
    /// Public id.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// The key: 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Slot name.
    #[prost(string, tag = "3")]
    pub slot: String,
    /// Whose jobs it will run.
    #[prost(string, tag = "4")]
    pub owner: String,
    /// What it holds.
    #[prost(message, required, tag = "5")]
    pub resources: Resources,
    /// Kill everything after so long without an answered beat.
    #[prost(uint64, tag = "6")]
    pub lease_ms: u64,
    /// How the machine hears of the match.
    #[prost(enumeration = "Notice", tag = "30")]
    pub notice: i32,
    /// The claim whose slot it takes over, where it was announced as the better match; 0 for none.
    #[prost(uint64, tag = "31")]
    pub instead_of: u64,
}

/// What the jobs of a cluster share.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Cluster {
    /// Cluster.
    #[prost(uint32, tag = "1")]
    pub cluster: u32,
    /// Whose.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// Shared attributes.
    #[prost(message, repeated, tag = "3")]
    pub shared: Vec<Attribute>,
    /// Names of the attributes that differ; each job brings its values in this order.
    #[prost(string, repeated, tag = "4")]
    pub varying: Vec<String>,
    /// Forget every other cluster first: neither side keeps more than it needs.
    #[prost(bool, tag = "5")]
    pub forget_others: bool,
}

/// Run these.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Assign {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Cluster.
    #[prost(uint32, tag = "2")]
    pub cluster: u32,
    /// Jobs, in order.
    #[prost(message, repeated, tag = "3")]
    pub jobs: Vec<AssignedJob>,
    /// They wait for the word to begin; the machine says whether it accepts the claim for them.
    #[prost(bool, tag = "30")]
    pub waits: bool,
}

/// One job of an assignment.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AssignedJob {
    /// Proc.
    #[prost(uint32, tag = "1")]
    pub proc: u32,
    /// Attempt.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// Expression texts of the varying attributes.
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
    /// Begin from this checkpoint.
    #[prost(message, optional, tag = "4")]
    pub checkpoint: Option<Object>,
    /// What the codes of its transparent checkpoints are made with; empty when it wants none.
    #[prost(bytes = "vec", tag = "5")]
    pub checkpoint_key: Vec<u8>,
    /// It left without the checkpoint that it had declared once: it is judged as a job that makes none.
    #[prost(bool, tag = "6")]
    pub checkpoint_missed: bool,
}

/// Stop a job.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stop {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Which.
    #[prost(message, required, tag = "2")]
    pub job: Attempt,
    /// It is only to leave this machine: it may save its work, and the machine's policy says for how long.
    #[prost(bool, tag = "3")]
    pub vacate: bool,
}

/// Give back what was not started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Recall {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// At most so many.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

/// A report is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Ack {
    /// Claim.
    #[prost(uint64, tag = "1")]
    pub claim: u64,
    /// Reports up to this one.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
}
