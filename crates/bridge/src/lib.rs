//! Bridges to other schedulers.
//!
//! [`seg`] tells what happens to the jobs of a scheduler that is not ours, one line for every change. [`monitor`] runs such a
//! generator and tells whoever registered a job of its changes. [`forkstarter`] runs jobs that are plain processes.
//! [`files`] opens what all of them keep and read.

pub mod files;
pub mod forkstarter;
pub mod monitor;
pub mod seg;
