//! The job event log: the text that HTCondor users' tools already read.
//!
//! Bytes in, events out ([`Reader`]); events in, text out ([`Writer`]); a log that grows, is truncated or rotated
//! ([`Follower`]); and whether a sequence of events makes sense ([`sequence`]). Nothing here opens a file or reads a
//! clock: bytes, file sizes, the time zone and the time of the log's last change are given.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod event;
pub mod fields;
pub mod sequence;
pub mod time;

mod follow;
mod parse;
mod reader;
mod write;
mod xml;

pub use event::{Body, Event};
pub use follow::{Follower, Item, Stat, Step};
pub use reader::{BadEvent, Reader};
pub use time::Stamp;
pub use write::{Dates, Writer};
