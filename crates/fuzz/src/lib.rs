//! Fuzz targets: what strangers write goes in, and nothing may panic, overflow the stack, or take more memory or time than
//! its size warrants. A target is a function over bytes, so that a coverage-guided fuzzer can drive it as well as a
//! generator that damages good examples; `tests/all` runs each of them with bolero. How to run them for longer:
//! docs/security.md.
//!
//! - `texts`: ClassAds, configuration, submit files
//! - `logs`: job event logs, other schedulers' logs
//! - `words`: submits to the manager, messages between manager, agents and starters
//! - `secrets`: tokens, certificates, requests for them
//! - `choices`: bytes as a row of choices, for what is said in a certain order
//! - `damage`: good examples, damaged; `bounds`: how much memory and time an input may take
//! - `world`: files and environment that live in memory

pub mod bounds;
pub mod choices;
pub mod damage;
pub mod logs;
pub mod secrets;
pub mod texts;
pub mod words;
pub mod world;

/// A target.
pub type Target = fn(&[u8]);

/// Bytes as text: what is not UTF-8 is replaced, as everywhere where files are read as text.
pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
