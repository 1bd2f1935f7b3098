//! The real binary under real conditions: processes, sockets, kills, full disks, cut cables.

#![allow(unsafe_code)]

mod attacks;
mod cli;
mod clocks;
mod collection;
mod condor;
mod crash;
mod disk;
mod fork_starter;
mod full_disk;
mod full_outputs;
mod gangs;
mod garbage;
mod harness;
mod joblog;
mod joining;
mod journal;
mod journal_limits;
mod lost_notes;
mod maintenance;
mod monitor;
mod network;
mod newcomer;
mod openapi;
mod owners;
mod policy;
mod reconfig;
mod run;
mod run_endings;
mod seg;
mod seg_design;
mod seg_pool;
mod sim;
mod slots;
mod spool;
mod starter;
mod transfer;
mod transfer_storm;
mod transfer_vectors;
mod transitions;
mod transparent;
mod trust;
mod usage;
mod visits;
