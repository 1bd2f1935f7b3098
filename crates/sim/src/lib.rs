//! The pool's own cores in virtual time: scenarios with expectations, traces, every state of a small lab, worlds that misbehave.
//!
//! Nothing here decides anything about scheduling; it feeds [`scheduler::Core`] what people, administrators and agents would
//! send, and looks at what comes out. The same input gives the same result. Files are read only in [`cli`].
//!
//! - `scenario`: what a scenario file says; `script`: its events, in words; `host`: what recipes ask of systems
//! - `lab`: the core with machines that do what they are told; `show`: what is to be seen of it; `run`: playing a scenario
//! - `gantt`: a picture of systems over time
//! - `model`: every reachable state of a small lab
//! - `world`: the core, the agents' pure half and the machines' policies, with clocks, lines, processes and disks that misbehave
//! - `swf`: traces in the Standard Workload Format
//! - `cli`: what `updraft sim` does

#![forbid(unsafe_code)]

pub mod cli;
pub mod gantt;
pub mod host;
pub mod lab;
pub mod model;
pub mod random;
pub mod run;
pub mod scenario;
pub mod script;
pub mod show;
pub mod swf;
pub mod world;
