//! The ClassAd language: parse, evaluate, match, print.
//!
//! A ClassAd describes a job or a machine as named expressions; matching lets each side judge the other.
//! This crate is the language as HTCondor speaks it, usable on its own. It does no IO, reads no clock and
//! starts no thread: the time and everything else about the world is given with an [`EvalContext`].
//!
//! ```
//! use classad::{ClassAd, symmetric_match, rank};
//!
//! let job = ClassAd::parse_new(
//!     "[ RequestMemory = 1024; Owner = \"alice\";
//!        Requirements = TARGET.Memory >= RequestMemory && TARGET.OpSys == \"linux\";
//!        Rank = TARGET.KFlops ]",
//! )?;
//! let slot = ClassAd::parse_old(
//!     "Memory = 2048\nOpSys = \"LINUX\"\nKFlops = 90000\nRequirements = TARGET.Owner =!= \"mallory\"\n",
//! )?;
//! assert!(symmetric_match(&job, &slot));
//! assert!(rank(&job, &slot) > 0.0);
//! # Ok::<(), classad::ParseError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod ad;
pub mod diagnose;
pub mod engine;
mod error;
mod eval;
mod expr;
mod func;
mod json;
mod lex;
pub mod limits;
mod matching;
mod name;
mod number;
mod parse;
mod print;
mod refs;
mod share;
mod text;
mod time;
mod value;
mod xml;

pub use ad::ClassAd;
pub use error::ParseError;
pub use eval::context::{Budget, EvalContext, Host};
pub use eval::{Scope, steps_taken};
pub use expr::Expr;
pub use matching::{Matcher, accepts, accepts_at, eval_match, rank, symmetric_match};
pub use name::Name;
pub use text::Str;
pub use value::{AbsTime, AdValue, Kind, List, Value};
