//! The starter: a small process that runs the jobs of one claim, one after another, and outlives its agent.
//!
//! It has one thread and no runtime, so that forking from it is cheap and its behaviour easy to follow. It keeps what
//! became of each job in a spool file until the agent says that the manager has it on disk; a starter killed with -9
//! loses only the job that ran. It never talks to the network (plug-ins that fetch and send a job's files do, as the job's user) and never
//! decides which job to run.
//!
//! - `wire`: messages between agent and starter; `frame`: how they stand in a byte stream
//! - `keeper`: the process beside each starter that ends whatever a job started when its starter ends or stops answering
//! - `spawn`: one new process with the job's identity, files and session; `board`: what it says on the way; `raw`:
//!   its system calls
//! - `chore`: work among the job's files, in a process with the rights of the job's user
//! - `spool`: outcomes that were not acknowledged yet
//! - `checkpoint`, `archive`: what a job saves of its work, and how it comes back
//! - `transparent`, `nest`: saving a job that does not know of it, with CRIU, in namespaces of its own; `seal`: what must be
//!   true of it before it is put back
//! - `scratch`: a directory for the jobs' own files; `remove`: emptying it; `usage`, `quota`: what is in it, and the limits
//! - `disks`: whether the disks of a job's outputs were full while it ran
//! - `tree`, `cgroup`: all processes of a job, found by descent or kept in a control group: stopping, measuring, killing
//! - `leftovers`: finding and killing what a job left behind
//! - `run`: the loop; `running`: the job that runs; `connection`: its way to the agent
//! - `home`: which directory a state directory is (for manager and agent)
//! - `streams`: which standard streams the process was started with
//! - `pages`: memory that goes back to the system; `uptime`: the clock that nobody sets
//! - `stage`: a job's inputs into its scratch directory, its results out of it; `results`: which files these are; `walk`: finding files that are to be moved;
//!   `plugins`: those that are fetched and sent by URL
//! - `visit`: people who look into the running job; `look`: what it writes, as it grows; `shell`: a command beside it; `terminal`: what that needs
//! - `porter`, `landing`: the process that reads one user's inputs and lands his results (for the manager); `streaming`: outputs that land as they come
//! - `logbook`: the process that writes one user's job logs (for the manager)
//!
//! Unsafe code is confined to `sys`, `raw`, `spawn`, `board`, `keeper`, `chore`, `nest`, `pages`, `streams`, `terminal` and `uptime`.

#![allow(unsafe_code)]

mod archive;

mod board;
pub mod cgroup;
mod checkpoint;
mod chore;
pub mod clear;
mod connection;
mod disks;
pub mod frame;
mod guard;
pub mod home;
pub mod keeper;
mod landing;
pub mod leftovers;
pub mod lock;
pub mod logbook;
mod look;
mod memory;
pub mod nest;
pub mod pages;
mod plugins;
pub mod porter;
pub mod quota;
mod raw;
pub mod remove;
mod results;
mod run;
mod running;
mod scratch;
mod seal;
mod shell;
mod spawn;
pub mod spool;
mod stage;
mod streaming;
pub mod streams;
mod sys;
mod terminal;
mod transparent;
mod tree;
pub mod uptime;
mod usage;
pub mod user;
mod visit;
mod walk;

pub use model::starter as wire;
pub use model::starter::WARNING;
pub use run::{Fatal, connect, ended_well, is_alive, run};

/// The environment variable that every process of a claim inherits; leftovers are found by it.
pub const CLAIM_VARIABLE: &str = "UPDRAFT_CLAIM";
/// The directory beside the scratch directories where those are put that cannot be removed.
pub const ASIDE: &str = "aside";
/// The starter's socket in its claim directory.
pub const SOCKET: &str = "sock";
/// What becomes of the socket of a starter that ended as it should.
pub const ENDED: &str = "ended";
/// The file whose lock a living starter holds.
pub const LOCK: &str = "lock";
/// The name of the starter's control group, when it has one.
pub const GROUP: &str = "cgroup";
/// The spool of outcomes.
pub const OUTCOMES: &str = "outcomes";
