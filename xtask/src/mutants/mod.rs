//! `cargo xtask mutants CRATE [--sample N] [--seed S] [--file F]...`: which changes to a crate its tests do not notice.
//!
//! All changes ("mutants") are compiled in at once, each behind a switch that an environment variable turns, so a trial costs no
//! more than the tests that come by the change (decision 074). The crate's own tests are asked, nobody else's.
//!
//! - `find`: where a file can be changed, and how; `values`: what functions may return instead
//! - `weave`: a file with all its mutants in it, and the switch
//! - `tree`: the copy of the workspace under `target/mutants` that has them
//! - `build`: compiles it, and leaves out what is no Rust
//! - `trial`: the tests against a mutant

mod build;
mod find;
mod tree;
mod trial;
mod values;
mod weave;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::root;
use tree::{Crate, Mutant};
use trial::{Range, Successes, Verdict};
use weave::Id;

const USAGE: &str =
    "usage: cargo xtask mutants CRATE [--sample N] [--seed S] [--file PART-OF-PATH[:LINE]]...";

struct Wanted<'a> {
    of: &'a str,
    sample: Option<usize>,
    seed: u64,
    files: Vec<&'a str>,
}

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let wanted = read(words)?;
    let report = try_crate(&root(), &root().join("target"), &wanted)?;
    print!("{report}");
    Ok(())
}

fn read<'a>(words: &[&'a str]) -> Result<Wanted<'a>, String> {
    let [of, options @ ..] = words else { return Err(USAGE.into()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut wanted = Wanted { of, sample: None, seed: now, files: Vec::new() };
    for pair in options.chunks(2) {
        match pair {
            ["--sample", n] => wanted.sample = Some(n.parse().map_err(|_| format!("--sample {n}: {USAGE}"))?),
            ["--seed", s] => wanted.seed = s.parse().map_err(|_| format!("--seed {s}: {USAGE}"))?,
            ["--file", file] => wanted.files.push(file),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(wanted)
}

/// The whole way from sources to a report, which is also kept as `mutants/CRATE.txt` in the target directory.
fn try_crate(root: &Path, target: &Path, wanted: &Wanted) -> Result<String, String> {
    let begun = Instant::now();
    let of = tree::read_crate(root, wanted.of)?;
    let (place, copy) = (target.join("mutants"), target.join("mutants/workspace"));
    tree::copy_workspace(root, &copy, &of)?;
    let unviable = place.join(format!("{}.unviable", of.name));
    let mut without = remembered(&of, &unviable);
    let binaries = build::build_tests(&copy, target, &of, &mut without)?;
    remember(&of, &without, &unviable)?;
    let built = begun.elapsed();
    let range = Range::new(copy.join(&of.directory))?;
    let tests = trial::look_at_tests(&range, &binaries)?;
    let all: Vec<&Mutant> =
        of.mutants.iter().filter(|m| !without.contains(&m.id) && is_wanted(&of, m, &wanted.files)).collect();
    if all.is_empty() {
        return Err(format!("there is nothing to change in {} {}", of.name, wanted.files.join(" ")));
    }
    let looked = begun.elapsed();
    let since = |moment: Duration| begun.elapsed().saturating_sub(moment).as_secs();
    let chosen = choose(all.clone(), wanted);
    let (successes, done) = (Successes::default(), AtomicUsize::new(0));
    let verdicts = trial::on_all_cores(&chosen, |mutant| {
        let stem = of.files[mutant.file].path.file_stem().unwrap_or_default().to_string_lossy();
        let verdict = trial::try_mutant(&range, &tests, mutant.id, (mutant.file, &stem), &successes)?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(20) {
            println!("{done} of {} mutants tried", chosen.len());
        }
        Ok(verdict)
    })?;
    let mut report = format!(
        "{}: {} mutants, {} of them no Rust; {} in scope, {} tried, seed {}; {} tests\n\
         compiled in {} s, tests looked at in {} s, mutants tried in {} s\n",
        of.name,
        of.mutants.len(),
        without.len(),
        all.len(),
        chosen.len(),
        wanted.seed,
        tests.len(),
        built.as_secs(),
        looked.saturating_sub(built).as_secs(),
        since(looked),
    );
    report.push_str(&judge(&of, &chosen, &verdicts));
    let path = place.join(format!("{}.txt", of.name));
    std::fs::write(&path, &report).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(report)
}

/// In one of the files, or on one of the lines, that were asked for.
fn is_wanted(of: &Crate, mutant: &Mutant, files: &[&str]) -> bool {
    let path = of.files[mutant.file].path.to_string_lossy();
    files.is_empty()
        || files.iter().any(|wanted| match wanted.split_once(':') {
            Some((file, line)) => path.contains(file) && line.parse() == Ok(mutant.line),
            None => path.contains(wanted),
        })
}

/// A sample that the seed gives, in the order of the sources.
fn choose<'m>(mut all: Vec<&'m Mutant>, wanted: &Wanted) -> Vec<&'m Mutant> {
    let Some(count) = wanted.sample.filter(|count| *count < all.len()) else { return all };
    let mut state = wanted.seed;
    for at in 0..count {
        // SplitMix64: enough for a sample, and the same everywhere.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let left = (all.len() - at) as u64;
        all.swap(at, at + (z % left) as usize);
    }
    all.truncate(count);
    all.sort_by_key(|mutant| mutant.id);
    all
}

/// What was noticed, what was not: each of the latter wants a test, or a reason why it changes nothing.
fn judge(of: &Crate, chosen: &[&Mutant], verdicts: &[Verdict]) -> String {
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|v| is(v)).count();
    let too_long = count(|v| matches!(v, Verdict::TooLong(_)));
    let missed = count(|v| matches!(v, Verdict::Missed(_)));
    let noticed = verdicts.len() - missed;
    let mut text = format!(
        "noticed {noticed} of {} ({:.1} %), {too_long} of them by taking too long; these {missed} are not:\n",
        verdicts.len(),
        100.0 * noticed as f64 / verdicts.len().max(1) as f64
    );
    let line = |mutant: &Mutant| {
        format!("{}:{}: {}", of.files[mutant.file].path.display(), mutant.line, mutant.words)
    };
    for (mutant, verdict) in chosen.iter().zip(verdicts) {
        let _ = match verdict {
            Verdict::Missed(0) => writeln!(text, "  {} (no test comes by)", line(mutant)),
            Verdict::Missed(tests) => writeln!(text, "  {} ({tests} tests come by)", line(mutant)),
            _ => Ok(()),
        };
    }
    text
}

/// Mutants that were found to be no Rust when the crate was compiled before; it stays as true as the same words stand on the
/// same line, and being wrong costs a mutant.
fn remembered(of: &Crate, path: &Path) -> BTreeSet<Id> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let known: BTreeSet<&str> = text.lines().collect();
    of.mutants.iter().filter(|mutant| known.contains(key(of, mutant).as_str())).map(|m| m.id).collect()
}

fn remember(of: &Crate, without: &BTreeSet<Id>, path: &Path) -> Result<(), String> {
    let lines: String =
        of.mutants.iter().filter(|m| without.contains(&m.id)).map(|m| key(of, m) + "\n").collect();
    std::fs::write(path, lines).map_err(|e| format!("{}: {e}", path.display()))
}

fn key(of: &Crate, mutant: &Mutant) -> String {
    format!("{}:{}: {}", of.files[mutant.file].path.display(), mutant.line, mutant.words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"//! A crate to change.
        mod inner { pub fn double(n: u32) -> u32 { n * 2 } }
        pub fn is_large(n: u32) -> bool { inner::double(n) > 10 }
        pub fn name(n: u32) -> String { if is_large(n) { "large".to_owned() + "!" } else { String::new() } }
        #[cfg(test)]
        mod tests {
            #[test] fn nine_is_large() { assert!(super::is_large(9)); }
            #[test] fn one_is_not() { assert!(!super::is_large(1)); }
        }
    "#;

    /// Tests that look at 9 and 1 only cannot tell > from >=, and do not come by `name`.
    #[test]
    fn a_crate_is_tried_and_what_its_tests_do_not_notice_is_told() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("crates/tiny/src");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(
            root.path().join("Cargo.toml"),
            "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"3\"\n",
        )
        .unwrap();
        let manifest = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        std::fs::write(root.path().join("crates/tiny/Cargo.toml"), manifest).unwrap();
        std::fs::write(source.join("lib.rs"), TINY).unwrap();
        let words = ["tiny", "--seed", "1"];
        let report = try_crate(root.path(), &root.path().join("target"), &read(&words).unwrap()).unwrap();
        let missed: Vec<&str> = report.lines().filter(|line| line.starts_with("  ")).map(str::trim).collect();
        let at = "crates/tiny/src/lib.rs";
        assert_eq!(
            missed,
            [
                // Twelve is large, and one multiplied by itself, or added to two, is not.
                format!("{at}:2: * to + in n * 2 (2 tests come by)"),
                format!("{at}:3: > to >= in inner::double(n) > 10 (2 tests come by)"),
                format!("{at}:4: name returns String::new() at once (no test comes by)"),
                format!("{at}:4: name returns \"xyzzy\".to_owned() at once (no test comes by)"),
                format!("{at}:4: is_large(n) to its opposite (no test comes by)"),
            ],
            "{report}"
        );
        // The two texts cannot be subtracted or multiplied.
        assert!(
            report.contains("tiny: 13 mutants, 2 of them no Rust; 11 in scope, 11 tried, seed 1; 2 tests"),
            "{report}"
        );
        assert!(report.contains("noticed 6 of 11"), "{report}");
    }

    #[test]
    fn a_sample_is_the_same_for_the_same_seed_and_another_for_another() {
        let all: Vec<Mutant> =
            (1..=100).map(|id| Mutant { id, file: 0, line: 1, words: String::new() }).collect();
        let sample = |seed: &str| -> Vec<Id> {
            let words = ["tiny", "--sample", "10", "--seed", seed];
            choose(all.iter().collect(), &read(&words).unwrap()).iter().map(|mutant| mutant.id).collect()
        };
        assert_eq!(sample("7"), sample("7"));
        assert_ne!(sample("7"), sample("8"));
        let distinct: BTreeSet<Id> = sample("7").into_iter().collect();
        assert_eq!(distinct.len(), 10);
    }

    #[test]
    fn options_that_are_none_are_refused() {
        for words in [&[][..], &["tiny", "--sample"], &["tiny", "--sample", "x"], &["tiny", "--quick", "1"]] {
            assert!(read(words).is_err_and(|e| e.contains("usage:")), "{words:?}");
        }
    }
}
