//! The crate's integration tests, one binary.

mod engine;
mod forms;
mod fuzz;
mod hostile;
mod vectors;
