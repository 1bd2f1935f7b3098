//! The fork starter: runs jobs that are plain processes, and writes a log that the event generator's `fork` module reads.
//! Line protocol and log are those of `globus-fork-starter`.
//!
//! Pure: [`task`] (the lines of the protocol). With IO: [`log`] (appends under a lock), [`record`] (what is known of a job, on
//! disk), [`shim`] (the process that stays with each job), `session` (what keeps it and the job from dying with their parents), [`starter`] (requests in, replies out, shims and orphans).
//!
//! Every job has a shim of its own, which is the parent of the job's processes and writes their ends. Whatever becomes of the
//! starter, jobs go on and keep their exit codes (decision 041).

pub mod log;
pub mod record;
mod session;
pub mod shim;
pub mod starter;
pub mod task;
