//! Prints how long a million items take to parse and how much memory that needs: `cargo run --release -p submit
//! --example scale`. Figures belong in the report of `cargo xtask bench`, not in tests.

#![allow(clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::time::Instant;

use config::{Host, HostError};
use submit::{Context, Entry, Files};

struct Bare(String);

impl Host for Bare {
    fn read(&self, _: &str) -> Result<String, HostError> {
        Ok(self.0.clone())
    }

    fn run(&self, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }

    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

impl Files for Bare {
    fn entries(&self, _: &str) -> Result<Vec<Entry>, HostError> {
        Err(HostError::NotFound)
    }

    fn size(&self, _: &str) -> Result<u64, HostError> {
        Ok(1)
    }

    fn is_directory(&self, _: &str) -> bool {
        true
    }
}

fn main() {
    let context = Context {
        owner: "u".into(),
        cluster: None,
        arch: "X86_64".into(),
        opsys: "LINUX".into(),
        uid_domain: "d".into(),
        filesystem_domain: "d".into(),
        directory: "/tmp".into(),
        now: 0,
        utc_offset: 0,
        version: String::new(),
        platform: String::new(),
        seed: 0,
    };
    let mut items = String::new();
    for i in 0..1_000_000 {
        let _ = writeln!(items, "item{i}, value {i}");
    }
    let files = Bare(items);
    for (name, text) in [
        (
            "queue x,y from FILE",
            "executable = /bin/a\narguments = $(x) $(y)\noutput = $(x).out\nqueue x,y from f\n",
        ),
        ("quoted arguments", "executable = /bin/a\narguments = \"$(x) '$(y)'\"\nqueue x,y from f\n"),
        ("formatted number", "executable = /bin/a\narguments = $INT(Process,%07d)\nqueue 1000000\n"),
        ("queue 1000000", "executable = /bin/a\narguments = $(Process)\nqueue 1000000\n"),
    ] {
        let start = Instant::now();
        let procs = submit::parse(text, "s.sub", &context, &files).map_or(0, |s| s.templates[0].procs);
        println!("{name}: {procs} jobs in {:.3} s", start.elapsed().as_secs_f64());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("").trim());
}
