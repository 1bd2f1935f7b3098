//! The pool's own cores in virtual time: scenarios with expectations, traces, every state of a small lab, worlds that misbehave.
//!
//! Nothing here decides anything about scheduling; it feeds [`scheduler::Core`] what people, administrators and agents would
//! send, and looks at what comes out. The same input gives the same result. Files are read and clocks are looked at only in [`cli`].
//!
//! - `scenario`: what a scenario file says; `script`: its events, in words; `host`: what recipes ask of systems
//! - `lab`: the core with machines that do what they are told; `show`: what is to be seen of it; `run`: playing a scenario
//! - `gantt`: a picture of systems over time
//! - `model`: every reachable state of a small lab
//! - `world`: the core, the agents' pure half and the machines' policies, with clocks, lines, processes and disks that misbehave
//! - `drive`: the core with many machines that do at once what they are told, and jobs that take as long as somebody says; `desk`: a machine
//!   with its owner's policy; `fleet`: a large pool's day on them
//! - `swf`: traces in the Standard Workload Format; `replay`: a pool's journal under another configuration; `measure`: what a journal says
//!   about how users were served; `spread`, `curves`: percentiles and a picture
//! - `cli`: what `updraft sim` does

#![forbid(unsafe_code)]

pub mod cli;
pub mod curves;
pub mod desk;
pub mod drive;
pub mod fleet;
pub mod gantt;
pub mod host;
pub mod lab;
pub mod measure;
pub mod model;
pub mod random;
pub mod replay;
pub mod run;
pub mod scenario;
pub mod script;
pub mod show;
pub mod spread;
pub mod swf;
pub mod world;
