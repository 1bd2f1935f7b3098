//! Runs the tests of a crate against its mutants, each test in a process of its own.
//!
//! First every test runs without any mutant and tells which ones it came by; then a mutant has to face only those tests. A test
//! that fails notices it, and so does one that takes far too long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::weave::{Id, MUTANT, REACHED};

/// A test as it behaves without mutants.
pub(crate) struct Test {
    binary: PathBuf,
    pub(crate) name: String,
    took: Duration,
    reached: Vec<Id>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This test failed.
    Noticed(String),
    /// This test did not end.
    TooLong(String),
    /// So many tests came by and noticed nothing.
    Missed(usize),
}

enum Ending {
    Passed,
    Failed,
    TooLong,
}

/// Where tests run, and under which limits.
pub(crate) struct Range {
    /// The directory that tests run in: their package, as under cargo.
    pub(crate) package: PathBuf,
    /// For what the tests write; emptied after each.
    pub(crate) scratch: tempfile::TempDir,
    /// In the environment of every process that comes of a trial, to find those that it leaves behind.
    token: String,
}

/// How long a test may take at least; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// And how many times as long as it took without a mutant.
const TIMES: u32 = 6;
/// The name in the environment by which processes that stayed behind are found.
const TOKEN: &str = "UPDRAFT_MUTANTS_TRIAL";
/// A mutant may well allocate or write without end: KiB of memory, and blocks of a file.
const LIMITS: &str = "ulimit -v 6291456; ulimit -f 2097152; ulimit -c 0; exec \"$@\"";

impl Range {
    pub(crate) fn new(package: PathBuf) -> Result<Range, String> {
        let scratch = tempfile::Builder::new().prefix("mutants.").tempdir();
        let scratch = scratch.map_err(|e| format!("no directory for the tests: {e}"))?;
        // Tests that become another user must get through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(scratch.path(), open).map_err(|e| e.to_string())?;
        let token = format!("{}-{}", std::process::id(), scratch.path().display());
        Ok(Range { package, scratch, token })
    }

    /// Runs one test alone, with these variables; what it leaves behind is removed.
    fn run(
        &self,
        binary: &Path,
        name: &str,
        limit: Duration,
        variables: &[(&str, String)],
    ) -> Result<Ending, String> {
        let own = tempfile::Builder::new().prefix("t").tempdir_in(self.scratch.path());
        let own = own.map_err(|e| format!("no directory for a test: {e}"))?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(own.path(), open).map_err(|e| e.to_string())?;
        let token = format!("{}-{}", self.token, own.path().display());
        let mut child = Command::new("sh");
        child.args(["-c", LIMITS, "sh"]).arg(binary).args(["--exact", name, "--test-threads", "1"]);
        child.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        child.env("TMPDIR", own.path()).env(TOKEN, &token);
        // The same cases in every run, and no seeds of mutants kept in the sources.
        child.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        child.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("SEED", "1").env("SEG_FUZZ_SEED", "1");
        // Frames are larger with mutants in them.
        child.env("RUST_MIN_STACK", (64 << 20).to_string()).env("RUST_BACKTRACE", "0");
        child.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let mut child = child.spawn().map_err(|e| format!("cannot run {}: {e}", binary.display()))?;
        let begun = Instant::now();
        let mut pause = Duration::from_millis(1);
        let ending = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => break Ending::Passed,
                Some(_) => break Ending::Failed,
                None if begun.elapsed() > limit => break Ending::TooLong,
                None => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        if !matches!(ending, Ending::Passed) {
            if let Some(group) =
                Pid::from_raw(child.id() as i32).filter(|_| matches!(ending, Ending::TooLong))
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            kill_marked(&token);
        }
        Ok(ending)
    }
}

/// Kills the processes that have the mark of a trial in their environment, which nobody else's have.
fn kill_marked(token: &str) {
    let mark = format!("{TOKEN}={token}\0");
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.windows(mark.len()).any(|window| window == mark.as_bytes())
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Does something with each of a list on as many threads as there are cores; results in the order of the list.
pub(crate) fn on_all_cores<T: Sync, R: Send>(
    list: &[T],
    act: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = Mutex::new(list.iter().enumerate());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some((at, item)) = next.lock().ok().and_then(|mut next| next.next()) else { return };
                    let result = act(item);
                    if let Ok(mut results) = results.lock() {
                        results.push((at, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().map_err(|_| "a thread panicked".to_owned())?;
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The tests of the binaries, with the mutants that each reaches; those that fail without any are left out and told.
pub(crate) fn look_at_tests(range: &Range, binaries: &[PathBuf]) -> Result<Vec<Test>, String> {
    let mut names = Vec::new();
    for binary in binaries {
        let out =
            Command::new(binary).args(["--list", "--format", "terse"]).current_dir(&range.package).output();
        let out = out.map_err(|e| format!("cannot run {}: {e}", binary.display()))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned));
        names.extend(tests.map(|test| (binary.clone(), test)));
    }
    let tests = on_all_cores(&names, |(binary, name)| {
        match reach(range, binary, name)? {
            // Once more: the machine may have been too busy.
            None => reach(range, binary, name),
            able => Ok(able),
        }
    })?;
    let mut able = Vec::new();
    for (test, (_, name)) in tests.into_iter().zip(names) {
        match test {
            Some(test) => able.push(test),
            None => println!("{name} fails with no mutant on, and is left out"),
        }
    }
    Ok(able)
}

fn reach(range: &Range, binary: &Path, name: &str) -> Result<Option<Test>, String> {
    let file = tempfile::NamedTempFile::new_in(range.scratch.path()).map_err(|e| e.to_string())?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(file.path(), open).map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let path = file.path().to_string_lossy().into_owned();
    let ending = range.run(binary, name, Duration::from_secs(300), &[(REACHED, path)])?;
    let took = begun.elapsed();
    let bytes = std::fs::read(file.path()).map_err(|e| e.to_string())?;
    let mut reached: Vec<Id> =
        bytes.chunks_exact(4).map(|b| Id::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    reached.sort_unstable();
    reached.dedup();
    let test = Test { binary: binary.to_owned(), name: name.to_owned(), took, reached };
    Ok(matches!(ending, Ending::Passed).then_some(test))
}

/// How often each test noticed something in a file: those are asked first.
pub(crate) type Successes = Mutex<BTreeMap<(usize, String), u32>>;

/// What the tests say of a mutant of a file whose name is `stem`.
pub(crate) fn try_mutant(
    range: &Range,
    tests: &[Test],
    id: Id,
    (file, stem): (usize, &str),
    successes: &Successes,
) -> Result<Verdict, String> {
    let mut able: Vec<&Test> = tests.iter().filter(|test| test.reached.binary_search(&id).is_ok()).collect();
    if let Ok(successes) = successes.lock() {
        able.sort_by_key(|test| {
            let count = successes.get(&(file, test.name.clone())).copied().unwrap_or(0);
            // Something quick before something that was right once.
            let slow = test.took.as_millis() / 200;
            (slow / u128::from(count + 1), std::cmp::Reverse(count), !test.name.contains(stem), test.took)
        });
    }
    for test in &able {
        let limit = PATIENCE + test.took * TIMES;
        let name = &test.name;
        let verdict = match range.run(&test.binary, name, limit, &[(MUTANT, id.to_string())])? {
            Ending::Passed => continue,
            Ending::Failed => Verdict::Noticed(name.clone()),
            Ending::TooLong => Verdict::TooLong(name.clone()),
        };
        if let Ok(mut successes) = successes.lock() {
            *successes.entry((file, name.clone())).or_default() += 1;
        }
        return Ok(verdict);
    }
    Ok(Verdict::Missed(able.len()))
}
