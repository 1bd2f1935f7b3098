//! What the machine ad says about the machine, its owner and its load: measured, or read from a script.
//!
//! A [`Source`] gives attributes; what a policy makes of them is the crate `policy`'s business, and when to ask is the
//! agent's loop's. Readers take a root directory, so that tests run on trees of files; parsers take text and do no IO.
//!
//! - `keyboard`: how long nobody touched the machine; `watch`: being told at once when somebody does
//! - `load`: the machine's load
//! - `memory`, `disk`, `system`: what the machine has and is
//! - `benchmark`: how fast it is
//! - `scripted`: a timeline of values instead of measurements
//!
//! The timeline's format and the sources of every attribute are in docs/sensors.md.

pub mod benchmark;
pub mod disk;
pub mod keyboard;
pub mod load;
pub mod memory;
pub mod scripted;
pub mod system;
pub mod watch;

use std::path::{Path, PathBuf};

use classad::{Name, Value};

/// Attributes with their values; None means that the attribute cannot be measured here and must not be in the ad.
pub type Attributes = Vec<(Name, Option<Value>)>;

/// Something that knows the machine.
pub trait Source: Send {
    /// What is the case now. `now_ms` is Unix time in milliseconds.
    fn read(&mut self, now_ms: u64) -> Attributes;
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `/`, or a tree of files in tests.
    pub root: PathBuf,
    /// The directory whose free space is the machine's Disk.
    pub execute: PathBuf,
    /// RESERVED_DISK in MiB.
    pub reserved_disk_mib: u64,
    /// RESERVED_MEMORY in MiB.
    pub reserved_memory_mib: u64,
    /// NUM_CPUS, if it is set.
    pub cpus: Option<u32>,
    /// CONSOLE_DEVICES: names under `/dev`.
    pub console_devices: Vec<String>,
    /// XIDLE_HELPER: a command that prints for how many seconds nobody touched the display.
    pub xidle_helper: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            execute: PathBuf::from("/tmp"),
            reserved_disk_mib: 0,
            reserved_memory_mib: 0,
            cpus: None,
            console_devices: vec!["mouse".to_owned(), "console".to_owned()],
            xidle_helper: None,
        }
    }
}

/// The real machine.
#[derive(Debug)]
pub struct Measured {
    settings: Settings,
    keyboard: keyboard::Keyboard,
    /// Said by the agent: what the jobs make of the machine's load.
    pub pool_load: f64,
    fixed: Attributes,
}

impl Measured {
    /// Looks once at what does not change.
    pub fn new(settings: Settings) -> Self {
        Self {
            keyboard: keyboard::Keyboard::new(&settings),
            pool_load: 0.0,
            fixed: system::fixed(&settings.root, settings.cpus),
            settings,
        }
    }

    /// Somebody touched the machine now (`watch` said so): idle times begin anew, whatever access times say.
    pub fn touched(&mut self, now_ms: u64) {
        self.keyboard.touched(now_ms);
    }
}

impl Source for Measured {
    fn read(&mut self, now_ms: u64) -> Attributes {
        let root = &self.settings.root;
        let mut out = self.fixed.clone();
        let idle = self.keyboard.read(now_ms);
        put(&mut out, "KeyboardIdle", idle.keyboard_s.map(|s| Value::Int(s as i64)));
        put(&mut out, "ConsoleIdle", idle.console_s.map(|s| Value::Int(s as i64)));
        let total = load::parse(&text(root, "proc/loadavg"));
        put(&mut out, "TotalLoadAvg", total.map(Value::Real));
        put(&mut out, "TotalCondorLoadAvg", total.map(|t| Value::Real(self.pool_load.min(t))));
        memory::put(&text(root, "proc/meminfo"), self.settings.reserved_memory_mib, &mut out);
        disk::put(&self.settings.execute, self.settings.reserved_disk_mib, &mut out);
        system::put_clock(now_ms, &mut out);
        out
    }
}

pub(crate) fn put(out: &mut Attributes, name: &str, value: Option<Value>) {
    out.push((Name::new(name), value));
}

/// A small file as text; empty if there is none.
pub(crate) fn text(root: &Path, path: &str) -> String {
    std::fs::read(root.join(path)).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_under_the_test_can_be_measured() {
        let mut source = Measured::new(Settings::default());
        let attributes = source.read(1_700_000_000_000);
        let get =
            |name: &str| attributes.iter().find(|(n, _)| *n == Name::new(name)).and_then(|(_, v)| v.clone());
        assert!(get("TotalLoadAvg").and_then(|v| v.as_number()).is_some_and(|l| l >= 0.0));
        for name in ["TotalCpus", "TotalMemory", "TotalVirtualMemory", "TotalDisk"] {
            assert!(get(name).and_then(|v| v.as_int()).is_some_and(|n| n > 0), "{name}: {attributes:?}");
        }
        assert_eq!(get("OpSys"), Some(Value::from("LINUX")));
    }
}
