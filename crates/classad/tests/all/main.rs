//! The crate's integration tests, one binary.

#![allow(clippy::disallowed_methods)]

mod corners;
mod engine;
mod forms;
mod fuzz;
mod hostile;
mod vectors;

/// How many cases a property gets; `PROPTEST_CASES` asks for more.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    proptest::test_runner::Config {
        cases: wanted.unwrap_or(usual),
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}
