//! Bridges to other schedulers.
//!
//! [`seg`] tells what happens to the jobs of a scheduler that is not ours, one line for every change. Nothing here
//! submits or removes jobs.

pub mod forkstarter;
pub mod monitor;
pub mod seg;
