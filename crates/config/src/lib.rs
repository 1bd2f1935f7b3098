//! The macro language of configuration and submit files, and the settings that Updraft reads with it.
//!
//! Text in, definitions out: every value remembers its file and line, is expanded when it is asked for, and every
//! error points at a character. Files, commands and the environment come through [`Host`], so nothing here does IO.
//! The submit language (crate `submit`) is built on the same reader and the same expansion.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod defaults;
pub mod diag;
pub mod expand;
pub mod lines;
pub mod names;
pub mod reader;
pub mod scalar;
pub mod set;
pub mod settings;

mod condition;
mod functions;
mod presets;
mod printf;

pub use diag::{Diagnostic, Diagnostics, Place, Severity};
pub use lines::Source;
pub use reader::{Dialect, Host, HostError, Nothing, Reader};
pub use set::{Definition, MacroSet};
pub use settings::{Config, Loader};

/// The release of the original whose language this is; what `if version >= x.y.z` compares with.
pub const LANGUAGE_VERSION: [u32; 3] = [25, 14, 1];

/// Moments, in seconds since the epoch, that maintenance windows tell machines in their configuration.
pub const WINDOW_MOMENTS: [&str; 2] = ["EndDownTime", "NextDownTime"];
