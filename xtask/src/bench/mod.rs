//! Benchmarks, one file per area; each returns a Markdown section.

pub(crate) mod classad;
