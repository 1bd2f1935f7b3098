//! `cargo xtask test`: everything that must hold, in the order in which it fails fastest.

use crate::{criu, deny, doc, globus, has, is_root, root, sh};

/// Debian packages that the tests use, with the program that shows they are there.
const PACKAGES: &[(&str, &str)] = &[("iproute2", "ip"), ("util-linux", "setpriv"), ("strace", "strace")];

/// Everything; with `all` every case of the suites that are otherwise sampled.
pub(crate) fn run(all: bool) -> Result<(), String> {
    install()?;
    sh("cargo", &["fmt", "--all", "--check"], &[])?;
    sh("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])?;
    tests(all)?;
    doc()?;
    deny::run()?;
    tidy()?;
    println!("xtask test: everything holds");
    Ok(())
}

/// Installs missing packages when we may; tests that need one say so when it is not there.
fn install() -> Result<(), String> {
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(_, program)| !on_path(program)).map(|(p, _)| *p).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !has("apt-get", "--version") {
        println!(
            "xtask: missing {}; some tests will say that they were skipped, or fail in CI",
            missing.join(", ")
        );
        return Ok(());
    }
    sh("apt-get", &["update", "-qq"], &[])?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(&missing);
    sh("apt-get", &arguments, &[("DEBIAN_FRONTEND", "noninteractive")])
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([std::path::PathBuf::from("/usr/sbin")])
        .any(|dir| dir.join(program).exists())
}

/// A Python package in an environment of its own under `target`: the path of one of its programs. `None` when it cannot be had;
/// the test that needs it then says that it was skipped.
fn python_program(environment: &str, package: &str, program: &str, module: &str) -> Option<String> {
    let dir = root().join("target").join(environment);
    let python = dir.join("bin/python").to_string_lossy().into_owned();
    let has_module = || {
        let import = std::process::Command::new(&python).args(["-c", &format!("import {module}")]).output();
        import.is_ok_and(|out| out.status.success())
    };
    if !has_module() {
        let made = sh("python3", &["-m", "venv", &dir.to_string_lossy()], &[]);
        let _ = made.and_then(|()| sh(&python, &["-m", "pip", "install", "--quiet", package], &[]));
    }
    if has_module() {
        return Some(dir.join("bin").join(program).to_string_lossy().into_owned());
    }
    println!("xtask: SKIPPED: {package} cannot be installed; the test that needs it does not run");
    None
}

/// HTCondor's own reader of job event logs.
fn judge() -> Option<String> {
    python_program("judge", "htcondor", "python", "htcondor2")
}

/// What asks the API all that its document allows, and more.
fn schemathesis() -> Option<String> {
    python_program("schemathesis", "schemathesis", "schemathesis", "schemathesis")
}

/// Seconds for which the API is asked, when everything is tested.
const ALL_SECONDS: &str = "120";

/// Cases of each property test that is otherwise sampled; proptest prints the seed of one that fails.
const ALL_CASES: &str = "1000";

/// How long each fuzz target runs then, instead of 3 s; bolero prints the seed of an input that fails.
const ALL_FUZZ_MS: &str = "60000";

/// Steps of the random worlds then, with clocks that are wrong and without; the seed of a world that fails is printed.
const ALL_STORMS: &str = "4000000";

/// Moments of a vacate at which the agent is killed then, and of a collection at which the manager is; the seed is UPDRAFT_SEED.
const ALL_KILLS: &str = "50";

/// Kills while jobs' files are moved then, with four machines and 200 jobs instead of two and 40; the seed is printed.
const ALL_TRANSFER_KILLS: &str = "60";

fn tests(all: bool) -> Result<(), String> {
    let found = [
        ("BOLERO_RANDOM_TEST_TIME_MS", all.then(|| ALL_FUZZ_MS.to_owned())),
        ("UPDRAFT_STORM_EVENTS", all.then(|| ALL_STORMS.to_owned())),
        ("UPDRAFT_VACATE_KILLS", all.then(|| ALL_KILLS.to_owned())),
        ("UPDRAFT_COLLECT_KILLS", all.then(|| ALL_KILLS.to_owned())),
        ("UPDRAFT_TRANSFER_KILLS", all.then(|| ALL_TRANSFER_KILLS.to_owned())),
        ("UPDRAFT_JUDGE", judge()),
        ("UPDRAFT_SCHEMATHESIS", schemathesis()),
        ("UPDRAFT_SCHEMATHESIS_SECONDS", all.then(|| ALL_SECONDS.to_owned())),
        ("UPDRAFT_TEST_CRIU", criu::find()),
        ("UPDRAFT_TEST_GLOBUS", globus::find()),
        ("PROPTEST_CASES", all.then(|| ALL_CASES.to_owned())),
    ];
    let variables: Vec<(&str, &str)> =
        found.iter().filter_map(|(name, path)| Some((*name, path.as_deref()?))).collect();
    if has("cargo", "nextest") || has("cargo-nextest", "--version") {
        let profile = if all { "all" } else { "default" };
        sh("cargo", &["nextest", "run", "--workspace", "--no-fail-fast", "--profile", profile], &variables)?;
    } else {
        sh("cargo", &["test", "--workspace", "--all-targets", "--no-fail-fast"], &variables)?;
    }
    sh("cargo", &["test", "--workspace", "--doc", "--quiet"], &[])
}

/// House rules that no compiler checks.
pub(crate) fn tidy() -> Result<(), String> {
    let mut complaints = Vec::new();
    // Pure cores stay pure: no IO, clock, threads or runtime below them.
    for room in [
        "classad",
        "config",
        "model",
        "submit",
        "transfer",
        "joblog",
        "dag",
        "scheduler",
        "planner",
        "policy",
        "claims",
        "maintenance",
        "usage",
    ] {
        let dir = root().join("crates").join(room);
        if !dir.exists() {
            continue;
        }
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for forbidden in ["tokio", "libc", "rustix", "hyper", "tonic"] {
            if dependencies.lines().any(|line| line.starts_with(forbidden)) {
                complaints.push(format!("crates/{room} is a pure room and may not depend on {forbidden}"));
            }
        }
        for file in sources(&dir.join("src")) {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            for forbidden in ["std::fs::", "SystemTime::now", "Instant::now", "thread::spawn", "std::env::"] {
                if text.contains(forbidden) {
                    complaints.push(format!("{} uses {forbidden} in a pure room", file.display()));
                }
            }
        }
    }
    for file in sources(&root().join("crates")) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if !text.trim_start().starts_with("//!") && !file.ends_with("tests.rs") {
            complaints.push(format!("{} does not open with what lives there (//!)", file.display()));
        }
    }
    complaints.extend(crate::named::complaints());
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

pub(crate) fn sources(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
