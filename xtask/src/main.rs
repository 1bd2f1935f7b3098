//! `cargo xtask`: the project's own commands.
//!
//! - `test`: installs what the tests need and runs everything: format, lints, tests, documentation, tidiness
//! - `bench [--quick] [NAME ...]`: measures and writes docs/benchmarks.md
//! - `mutants CRATE [--sample N] [--seed S] [--file F]`: changes to a crate that its tests do not notice
//! - `condor-cli DIR`: how many recorded calls of HTCondor's commands our links answer alike
//! - `doc`: the API documentation
//! - `deny`: licences and doubled versions

#![forbid(unsafe_code)]

mod bench;
mod condor_cli;
mod criu;
mod deny;
mod globus;
mod mutants;
mod named;
mod test;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask test [--all] | bench [--quick] [NAME ...] | bench soak [JOBS] | mutants CRATE [--sample N] | condor-cli DIR | doc | tidy | \
     deny";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test"] => test::run(false),
        ["test", "--all"] => test::run(true),
        // What the jobs and the other users of benchmarks run.
        ["tick", file] => bench::policy::tick(file),
        ["hold", file, mib] => bench::saving::hold(file, mib),
        ["attack", rest @ ..] => bench::attacks::play(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["condor-cli", directory] => condor_cli::run(directory),
        ["doc"] => doc(),
        ["deny"] => deny::run(),
        ["tidy"] => test::tidy(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository.
fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or(xtask.clone(), PathBuf::from)
}

/// Runs a command in the repository; its output is ours.
fn sh(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    println!("$ {program} {}", arguments.join(" "));
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {}: {status}", arguments.join(" "))) }
}

/// True when a program is there.
fn has(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|out| out.status.success())
}

/// May we install packages?
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn doc() -> Result<(), String> {
    sh("cargo", &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
}
