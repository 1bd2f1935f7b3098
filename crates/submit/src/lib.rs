//! Submit descriptions to job templates.
//!
//! Three ways to say the same thing, one result: the submit language of HTCondor ([`parse()`]), a native form in TOML
//! ([`mod@toml`]) and plain words on a command line ([`command()`]). A cluster whose jobs differ only by macros stays one
//! [`JobTemplate`] with a table of differences. Nothing here does IO: files, directories, commands and the environment
//! come through [`Files`], the time and the user through [`Context`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod args;
pub mod env;
pub mod glob;
pub mod toml;

mod braces;
mod build;
mod command;
mod dry_run;
mod expr;
mod files;
mod live;
mod merge;
mod overrides;
mod parse;
mod queue;
mod table;
mod units;

pub use command::{Command, Items, command};
pub use config::{Diagnostic, Diagnostics, Source};
pub use dry_run::{Ad, dry_run};
pub use files::{Context, Entry, Files};
pub use model::JobTemplate;
pub use overrides::Overrides;
pub use parse::{Submission, parse, parse_with};
