//! Workflows in DAGMan files.
//!
//! [`parse()`] turns DAG files into a [`Dag`]; [`Run`] is the automaton that decides what of it runs next: facts in (a job has
//! ended, a script has ended, time has passed), wishes out (submit this node, run this script, end). [`files`] writes what people
//! and other programs read: rescue files, node status files, metrics, DOT; [`picture`] a tree and an SVG.
//! Nothing here opens a file, reads a clock or starts anything: files come through [`Files`], the rest as arguments.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod files;
pub mod graph;
pub mod parse;
pub mod picture;
pub mod run;

pub use graph::{Dag, Node, NodeId, NodeKind};
pub use parse::{Files, ParseError, parse, read_marks};
pub use run::{DagStatus, Effect, Input, Run, Settings, Which};
