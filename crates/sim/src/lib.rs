//! The scheduler's own cores in virtual time: scenarios with expectations, traces, random workloads with faults.
//!
//! Nothing here decides anything about scheduling; it feeds [`scheduler::gang`] and looks at what comes out. The same
//! input and seed give the same result. Files are read only in [`cli`].
//!
//! - `scenario`: what a scenario file says; `script`: its events, in words; `run`: playing it
//! - `gantt`: a picture of systems over time
//! - `swf`: traces in the Standard Workload Format
//! - `world`: random workloads with simulated machines and faults; `model`: every reachable state of a small lab
//! - `cli`: what `updraft sim` does

#![forbid(unsafe_code)]

pub mod cli;
pub mod gantt;
pub mod model;
pub mod random;
pub mod run;
pub mod scenario;
pub mod script;
pub mod swf;
pub mod world;
