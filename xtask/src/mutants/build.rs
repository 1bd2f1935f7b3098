//! Compiles the changed crate with its tests; mutants that are no Rust are found by what the compiler says, and left out.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::tree::{Crate, write_mutants};
use super::weave::{Id, Spot, blame};

/// How often the compiler is asked again: it stops at different depths, and says no more than it knows by then.
const ROUNDS: usize = 20;

/// The test binaries of the crate, with all mutants in them that compile; those that do not are added to `without`.
pub(crate) fn build_tests(
    copy: &Path,
    target: &Path,
    of: &Crate,
    without: &mut BTreeSet<Id>,
) -> Result<Vec<PathBuf>, String> {
    for round in 1..=ROUNDS {
        let spots = write_mutants(copy, of, without)?;
        let messages = compile(copy, target, &of.name)?;
        let errors: Vec<&Value> = messages.iter().filter(|m| is_error(m)).collect();
        if errors.is_empty() {
            return executables(&messages);
        }
        let before = without.len();
        for error in &errors {
            without.extend(blame_for(error, of, &spots));
        }
        println!("round {round}: {} errors, {} mutants that are no Rust", errors.len(), without.len());
        if without.len() == before {
            let first = errors[0]["message"]["rendered"].as_str().unwrap_or_default();
            return Err(format!("no mutant is to blame for this; does the crate compile?\n{first}"));
        }
    }
    Err(format!("the crate does not compile after {ROUNDS} rounds"))
}

fn compile(copy: &Path, target: &Path, package: &str) -> Result<Vec<Value>, String> {
    let out = Command::new("cargo")
        .args(["test", "--no-run", "--tests", "--package", package, "--message-format", "json"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        // Each round compiles a crate of which every file changed.
        .env("CARGO_INCREMENTAL", "0")
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !out.status.success() && !messages.iter().any(is_error) {
        return Err(format!("cargo test --no-run: {}", String::from_utf8_lossy(&out.stderr)));
    }
    Ok(messages)
}

fn is_error(message: &Value) -> bool {
    message["reason"] == "compiler-message"
        && message["message"]["level"] == "error"
        && message["message"]["spans"].as_array().is_some_and(|spans| !spans.is_empty())
}

fn executables(messages: &[Value]) -> Result<Vec<PathBuf>, String> {
    let found: Vec<PathBuf> = messages
        .iter()
        .filter(|m| m["reason"] == "compiler-artifact" && m["profile"]["test"] == true)
        .filter_map(|m| m["executable"].as_str().map(PathBuf::from))
        .collect();
    if found.is_empty() { Err("the crate has no tests".into()) } else { Ok(found) }
}

/// The mutants that an error is about: by its main place, or else by the others that it names.
fn blame_for(error: &Value, of: &Crate, spots: &[Vec<Spot>]) -> Vec<Id> {
    let spans = error["message"]["spans"].as_array().map_or(&[][..], Vec::as_slice);
    for is_main in [true, false] {
        let blamed: Vec<Id> = spans
            .iter()
            .filter(|span| (span["is_primary"] == true) == is_main)
            .filter_map(|span| {
                places(span).into_iter().find_map(|(file, bytes)| {
                    let index = of.files.iter().position(|f| f.path == Path::new(&file))?;
                    let blamed = blame(&spots[index], &bytes);
                    (!blamed.is_empty()).then_some(blamed)
                })
            })
            .flatten()
            .collect();
        if !blamed.is_empty() {
            return blamed;
        }
    }
    Vec::new()
}

/// Where a place is, and, when that is inside a macro, where the macro was called.
fn places(span: &Value) -> Vec<(String, Range<usize>)> {
    let mut places = Vec::new();
    let mut span = span;
    while let (Some(file), Some(start), Some(end)) =
        (span["file_name"].as_str(), span["byte_start"].as_u64(), span["byte_end"].as_u64())
    {
        places.push((file.to_owned(), start as usize..end as usize));
        span = &span["expansion"]["span"];
    }
    places
}
