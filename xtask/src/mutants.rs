//! `cargo xtask mutants CRATE [--sample N] [--seed S] [-f FILE]`: which changes to a crate its tests do not notice.
//!
//! cargo-mutants does the work; a sample is every so-many-th mutant, from a start that the printed seed gives, so that a
//! figure can be had in minutes and had again.

use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{root, sh};

const USAGE: &str = "usage: cargo xtask mutants CRATE [--sample N] [--seed S] [--file FILE]";
const VERSION: &str = "27.1.0";

struct Wanted<'a> {
    of: &'a str,
    sample: Option<usize>,
    seed: u64,
    file: Option<&'a str>,
}

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let wanted = read(words)?;
    let tool = find_tool()?;
    let mut arguments = vec!["mutants", "--package", wanted.of];
    if let Some(file) = wanted.file {
        arguments.extend(["--file", file]);
    }
    let all = list(&tool, &arguments)?;
    if all == 0 {
        return Err(format!("there is nothing to change in {}", wanted.of));
    }
    let shards = wanted.sample.map_or(1, |n| all.div_ceil(n.max(1)));
    let shard = format!("{}/{shards}", wanted.seed % shards as u64);
    let out = root().join("target/mutants");
    let out = out.to_string_lossy();
    println!("{all} mutants of {}; shard {shard}, seed {}", wanted.of, wanted.seed);
    arguments.extend(["--output", &out, "--timeout", "180", "--no-shuffle"]);
    arguments.extend(["--shard", &shard, "--sharding", "round-robin"]);
    let status = Command::new(&tool).args(&arguments).current_dir(root()).status();
    let status = status.map_err(|e| format!("cannot run {}: {e}", tool.display()))?;
    // Two: some were missed; three: some ran out of time, which the tests did notice.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo-mutants: {status}; see {out}/mutants.out"));
    }
    report(&out)
}

fn read<'a>(words: &[&'a str]) -> Result<Wanted<'a>, String> {
    let [of, options @ ..] = words else { return Err(USAGE.into()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut wanted = Wanted { of, sample: None, seed: now, file: None };
    for pair in options.chunks(2) {
        match pair {
            ["--sample", n] => wanted.sample = Some(n.parse().map_err(|_| format!("--sample {n}: {USAGE}"))?),
            ["--seed", s] => wanted.seed = s.parse().map_err(|_| format!("--seed {s}: {USAGE}"))?,
            ["--file", file] => wanted.file = Some(file),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(wanted)
}

/// cargo-mutants, installed into target when it is not there.
fn find_tool() -> Result<PathBuf, String> {
    let own = root().join("target/tools/bin/cargo-mutants");
    if !own.exists() {
        let directory = root().join("target/tools");
        let directory = directory.to_string_lossy();
        sh(
            "cargo",
            &["install", "cargo-mutants", "--version", VERSION, "--locked", "--root", &directory],
            &[],
        )?;
    }
    Ok(own)
}

fn list(tool: &PathBuf, arguments: &[&str]) -> Result<usize, String> {
    let out = Command::new(tool).args(arguments).arg("--list").current_dir(root()).output();
    let out = out.map_err(|e| format!("cannot run {}: {e}", tool.display()))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&out.stdout).lines().count())
}

/// The share that was noticed, and what was not: each of those wants a test, or a reason why it changes nothing.
fn report(out: &str) -> Result<(), String> {
    let lines = |name: &str| -> Result<Vec<String>, String> {
        let path = PathBuf::from(out).join("mutants.out").join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let missed = lines("missed.txt")?;
    let noticed = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    let viable = noticed + missed.len();
    println!(
        "noticed {noticed} of {viable} ({:.1} %); these are not:",
        100.0 * noticed as f64 / viable.max(1) as f64
    );
    for line in missed {
        println!("  {line}");
    }
    Ok(())
}
