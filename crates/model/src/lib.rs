//! The words that every room shares: ids, states, the event vocabulary, job templates and limits.
//!
//! Nothing here does IO, reads a clock or decides anything beyond which transitions are legal.

pub mod limits;
pub mod template;
pub mod text;

pub use template::JobTemplate;
