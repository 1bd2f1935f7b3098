//! Which files go to a machine with a job and come back from it, under which names, and what is refused.
//!
//! - `plan`: what a job's ad says about its files, and whether they move at all
//! - `names`: entries of the lists that people write: where they lead, what they are called on the other side
//! - `bundle`: files in one stream, as they travel and are stored
//! - `collect`: which of the files in a scratch directory come back
//! - `landing`: where what came back goes, and what may not be overwritten
//! - `urls`: which files are fetched from elsewhere and sent elsewhere; `plugin`: what is said to those who do that
//! - `fault`: what goes wrong, as hold codes and sentences
//!
//! No file is touched here: listings come in, decisions go out.

#![forbid(unsafe_code)]

pub mod bundle;
pub mod collect;
pub mod fault;
pub mod landing;
pub mod names;
pub mod plan;
pub mod plugin;
pub mod urls;

pub use bundle::{Entry, EntryKind};
pub use fault::{Fault, Faults};
pub use names::Source;
pub use plan::{Plan, When};

/// The files in a scratch directory that are the pool's own, and never a job's results.
pub const OWN_FILES: [&str; 6] =
    [JOB_AD, MACHINE_AD, model::starter::WARNING, ".updraft-warning.new", ".chirp.config", ".update.ad"];
/// A directory in a scratch directory for what programs leave in passing; it does not come back.
pub const TEMPORARY: &str = "tmp";
/// Another, which scripts written for HTCondor know.
pub const VAR_TEMPORARY: &str = "var/tmp";
/// What it is in.
pub const VAR: &str = "var";
/// The job's ad, for the job to read.
pub const JOB_AD: &str = ".job.ad";
/// The slot's ad, for the job to read.
pub const MACHINE_AD: &str = ".machine.ad";
/// What a job's standard output is called in its scratch directory.
pub const STDOUT: &str = "_condor_stdout";
/// What a job's standard error is called there.
pub const STDERR: &str = "_condor_stderr";
