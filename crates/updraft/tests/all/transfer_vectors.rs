//! The recorded cases of tests/vectors/transfer, played against one pool: what the job saw, what came back, what the log says, how it
//! ended. A sample by default, all with `cargo xtask test --all` or UPDRAFT_TEST_TRANSFER=all (or a list of cases).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Random, repository, text, updraft};
use crate::transfer::Far;

/// Cases of a sample.
const SAMPLE: usize = 24;
/// Cases at a time.
const TOGETHER: usize = 16;
const PATIENCE: Duration = Duration::from_secs(25);
/// Files in a scratch directory that are the pool's own, here or in the original.
const OWN: [&str; 9] = [
    ".chirp.config",
    ".job.ad",
    ".machine.ad",
    ".update.ad",
    "_condor_stderr",
    "_condor_stdout",
    "tmp",
    "var",
    "var/tmp",
];

/// Where this pool does otherwise on purpose, or cannot do it: the cases, the first words of each difference (none: any), and why.
const DIFFERENCES: &[(&[&str], &[&str], &str)] = &[
    (&["025"], &[""], "better: a listed socket is refused, not left out without a word"),
    (&["029", "293"], &[""], "better: a directory that cannot be read is refused, not sent empty"),
    (&["066"], &[""], "better: the errno that the system gave"),
    (&["032", "033"], &["reason: "], "better: all that is wrong with a transfer is in its reason"),
    (&["043", "114", "150", "292"], &["directory: "], "better: no cut or empty file is left behind"),
    (&["123"], &["directory: "], "better: a semicolon at the end of the remaps is harmless"),
    (&["209"], &["directory: "], "better: a backslash makes = and ; parts of a name"),
    (&["156"], &["directory: "], "better: a file called like standard output gets a name of its own"),
    (&["233", "234"], &["directory: "], "better: results overwrite neither log nor submit file"),
    (
        &["144", "258", "259", "282"],
        &[""],
        "better: what was saved at an eviction comes home, and a listed file may come later",
    ),
    (&["145"], &[""], "better: what there is when a run must leave is kept, however it ended"),
    (&["244", "245"], &[""], "better: a read-only directory is filled first"),
    (&["171"], &["directory: "], "better: the pool's own files do not come back"),
    (&["176", "295"], &[""], "better: a file in the way of a directory is not deleted; the job is held"),
    (&["214"], &[""], "better: a directory as standard input is refused"),
    (&["166"], &["submit: "], "better: NEVER is refused, as it would not be obeyed"),
    (
        &["041", "068", "215"],
        &["log: ", "reason: "],
        "a program that could not be executed was not started, and is not told as such",
    ),
    (&["168"], &["log: "], "a checkpoint is told as one (003)"),
    (&["149", "257"], &["log: "], "nothing is saved of a job that people hold or remove"),
    (&["046"], &["does not happen: "], "that a job was submitted on hold is not told"),
    (&["053", "054"], &["BytesRecvd"], "the job's own log is an input there, and has another length"),
    (&["202"], &["BytesRecvd"], "what was read for a run that never began is not counted"),
    (&["227"], &["reason: "], "the duration is written with days"),
    (&["226"], &[""], "one job cannot be vacated fast"),
    (&["057", "059"], &["submit: "], "machines fetch nothing from URLs, which is said at the submit"),
    (&["135"], &["log: "], "a streamed output comes whole once more at the end, and that is told"),
    (&["220"], &["BytesSent"], "what comes at the end of a streamed output is counted"),
    (
        &["160", "161", "248", "264"],
        &["step: [\"rm\""],
        "a job that is over has left the queue; its results wait apart from it",
    ),
    (
        &["249"],
        &["step: [\"fetch\""],
        "better: that a job was not spooled is said to whoever wants to fetch its results",
    ),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    kind: &'static str,
    mode: String,
    size: u64,
    sha256: String,
    changed: (i64, i64),
}

fn look(path: &Path) -> Thing {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let kind = match meta.file_type() {
        t if t.is_dir() => "dir",
        t if t.is_symlink() => "link",
        t if t.is_file() => "file",
        _ => "other",
    };
    let bytes = if kind == "file" { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
    let sha256 = trust::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let mode = format!("{:o}", meta.permissions().mode() & 0o7777);
    Thing { kind, mode, size: bytes.len() as u64, sha256, changed: (meta.mtime(), meta.mtime_nsec()) }
}

/// Everything below a directory but the job's log and submit file.
fn listing(dir: &Path) -> BTreeMap<String, Thing> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(below) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(dir.join(&below)) else { continue };
        for entry in entries.flatten() {
            let name = below.join(entry.file_name());
            let thing = look(&dir.join(&name));
            if thing.kind == "dir" {
                dirs.push(name.clone());
            }
            found.insert(name.to_string_lossy().into_owned(), thing);
        }
    }
    found.remove("job.log");
    found.remove("job.sub");
    found
}

/// One case under way.
struct Case<'a> {
    far: &'a Far,
    name: String,
    dir: PathBuf,
    expect: Value,
    cluster: i32,
    found: Vec<String>,
}

impl Case<'_> {
    fn differs(&mut self, what: impl Into<String>) {
        self.found.push(what.into());
    }

    fn updraft(&self, arguments: &[&str]) -> std::process::Output {
        self.far.as_nobody(&self.dir, &updraft(), arguments)
    }

    fn log(&self) -> Vec<String> {
        let initial = std::fs::read_to_string(self.dir.join("job.sub")).unwrap_or_default();
        let below = initial.lines().find_map(|l| l.strip_prefix("initialdir = ")).unwrap_or("");
        let read = |dir: PathBuf| std::fs::read_to_string(dir.join("job.log")).ok();
        logged(&read(self.dir.join(below)).or_else(|| read(self.dir.clone())).unwrap_or_default())
    }

    fn events(&self) -> Vec<Value> {
        if self.cluster == 0 { Vec::new() } else { self.far.events(self.cluster) }
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let begun = Instant::now();
        while !is_so(self) {
            if begun.elapsed() > PATIENCE {
                self.differs(format!("does not happen: {what}"));
                return false;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        true
    }

    fn play(&mut self) {
        let before = listing(&self.dir);
        let expect = self.expect.clone();
        let spool = expect["submit"]["options"].as_array().is_some_and(|o| o.iter().any(|o| o == "-spool"));
        let mut arguments = vec!["submit", "--json", "job.sub"];
        if spool {
            arguments.insert(1, "--spool");
        }
        let out = self.updraft(&arguments);
        let wants = expect["submit"]["exit"].as_i64().unwrap_or(0) == 0;
        if out.status.success() != wants {
            self.differs(format!("submit: {} {}", out.status, text(&out.stderr)));
            return;
        }
        if wants {
            let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
            self.cluster = told[0]["cluster"].as_i64().unwrap() as i32;
        }
        for step in expect["steps"].as_array().into_iter().flatten() {
            if !self.step(step, &before) {
                break;
            }
        }
        if wants {
            self.end(&expect["final"]);
            self.check_log();
            self.check_what_the_job_saw();
        }
        self.check_directory(&expect["directory_after"], &before, "");
        if self.cluster > 0 {
            let _ = self.updraft(&["rm", &self.cluster.to_string()]);
        }
    }

    fn step(&mut self, step: &Value, before: &BTreeMap<String, Thing>) -> bool {
        if let Some(seconds) = step["sleep"].as_f64() {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        } else if let Some(event) = step["wait_event"].as_str() {
            let count = step["count"].as_u64().unwrap_or(1) as usize;
            let have =
                |case: &Self| case.log().iter().filter(|line| line.starts_with(event)).count() >= count;
            return self.wait(&format!("{event} in the log, {count} times"), have);
        } else if let Some(words) = step["run"].as_array() {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let cluster = self.cluster.to_string();
            let command = match words[0] {
                "condor_rm" => vec!["rm", &cluster],
                "condor_hold" => vec!["hold", &cluster],
                "condor_release" => vec!["release", &cluster],
                "condor_vacate_job" => vec!["vacate", &cluster],
                "condor_transfer_data" => vec!["fetch", &cluster],
                "condor_q" => vec!["queue"],
                other => panic!("{other}"),
            };
            let out = self.updraft(&command);
            if !out.status.success() {
                self.differs(format!("step: {command:?}: {}", text(&out.stderr)));
            }
        } else if let Some(line) = step["shell"].as_str() {
            self.far.as_nobody(&self.dir, Path::new("/bin/bash"), &["-c", line]);
        } else if step["directory_now"].is_object() {
            self.check_directory(&step["directory_now"], before, "meanwhile ");
        }
        true
    }

    fn end(&mut self, last: &Value) {
        let of = |case: &Self, kind: &str| case.events().iter().rfind(|e| e["event"] == kind).cloned();
        let procs = self.procs();
        match last["status"].as_str().unwrap_or("") {
            "idle" => {
                std::thread::sleep(Duration::from_secs(3));
                if self.events().iter().any(|e| e["event"] == "JobStarted") {
                    self.differs("end: it ran");
                }
            }
            "completed" => {
                let over =
                    |case: &Self| case.events().iter().filter(|e| e["event"] == "JobExited").count() >= procs;
                if !self.wait("it ends", over) {
                    let held = of(self, "JobsHeld").map(|h| h["reason"].to_string());
                    self.differs(format!("end: not completed, {held:?}"));
                    return;
                }
                let exit = of(self, "JobExited").map(|e| e["exit"].clone()).unwrap_or_default();
                for (key, name) in [("exit_code", "code"), ("exit_signal", "signal")] {
                    if !last[key].is_null() && last[key] != exit[name] {
                        self.differs(format!("end: {exit}, not {last}"));
                    }
                }
            }
            "removed" => {
                self.wait("it is removed", |case| of(case, "JobsRemoved").is_some());
            }
            "held" => {
                if !self.wait("it is held", |case| of(case, "JobsHeld").is_some()) {
                    return;
                }
                let held = of(self, "JobsHeld").unwrap_or_default();
                if held["code"] != last["hold_code"] || held["subcode"] != last["hold_subcode"] {
                    self.differs(format!("hold: {}/{}, not {last}", held["code"], held["subcode"]));
                }
                let pattern = last["hold_reason_regex"].as_str().unwrap_or("");
                let dir = regex::escape(&self.dir.to_string_lossy());
                let pattern = pattern.replace("@DIR@", &dir).replace("@SCRATCH@", r"/\S+/execute/[0-9a-f]+");
                let reason = held["reason"].as_str().unwrap_or("");
                if !pattern.is_empty() && !regex::Regex::new(&pattern).unwrap().is_match(reason) {
                    self.differs(format!("reason: {reason}\n      not {pattern}"));
                }
            }
            other => panic!("{other}"),
        }
    }

    fn procs(&self) -> usize {
        self.events()
            .iter()
            .find(|e| e["event"] == "ClusterSubmitted")
            .and_then(|e| e["template"]["procs"].as_u64())
            .unwrap_or(1) as usize
    }

    fn check_log(&mut self) {
        if self.procs() > 1 || self.expect["events"].as_array().is_none() {
            return;
        }
        let wanted: Vec<String> = self.expect["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|e| e.as_str().map(str::to_owned))
            .collect();
        let tidy = |events: &[String]| -> Vec<String> {
            // Whether the first part is told before or after the start, and whether the end of a failed one is, varies.
            let mut tidy: Vec<String> =
                events.iter().filter(|e| !e.starts_with("006") && !e.starts_with("008")).cloned().collect();
            for n in 1..tidy.len() {
                if tidy[n] == "040 input finished" && tidy[n - 1] == "001" {
                    tidy.swap(n, n - 1);
                }
            }
            let failed = |n: usize| {
                tidy.get(n + 1).is_some_and(|e| e.starts_with("021 13") || e.starts_with("021 12"))
            };
            let keep: Vec<String> = tidy
                .iter()
                .enumerate()
                .filter(|(n, e)| !(*e == "040 input finished" && failed(*n)))
                .map(|(_, e)| e.clone())
                .collect();
            keep
        };
        let last = wanted.last().cloned().unwrap_or_default();
        let (wanted, begun) = (tidy(&wanted), Instant::now());
        let mut have = tidy(&self.log());
        // Logs are written a moment later.
        while have != wanted && begun.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(50));
            have = tidy(&self.log());
        }
        if have != wanted {
            self.differs(format!("log: {have:?}\n      not {wanted:?} ({last})"));
        }
        let bytes = self.bytes_in_log();
        for (name, have) in [("BytesSent", bytes.0), ("BytesRecvd", bytes.1)] {
            // The original counts four bytes for each directory; files of the system differ between systems.
            let by_directories = |wanted: f64, have: f64| {
                wanted > have && wanted - have <= 64.0 && (wanted - have) % 4.0 == 0.0
            };
            let has_systems = self.expect.to_string().contains("same_as");
            if let (Some(wanted), Some(have)) = (self.expect["ad"][name].as_f64(), have)
                && (wanted - have).abs() > 0.5
                && !by_directories(wanted, have)
                && !has_systems
            {
                self.differs(format!("{name}: {have}, not {wanted}"));
            }
        }
    }

    /// What the last 005 says of all runs.
    fn bytes_in_log(&self) -> (Option<f64>, Option<f64>) {
        let log = std::fs::read_to_string(self.dir.join("job.log")).unwrap_or_default();
        let of = |words: &str| {
            let line = log.lines().rfind(|l| l.contains(words))?;
            line.trim().split(' ').next()?.parse().ok()
        };
        if log.contains("\n005 ") {
            (of("Total Bytes Sent By Job"), of("Total Bytes Received By Job"))
        } else {
            (None, None)
        }
    }

    fn check_what_the_job_saw(&mut self) {
        let Some(wanted) = self.expect["job_saw"].as_array().cloned() else { return };
        let output = std::fs::read_to_string(self.dir.join("out.txt")).unwrap_or_default();
        let mut saw: BTreeSet<String> = BTreeSet::new();
        for line in output.lines().filter(|l| l.starts_with("SAW\t")) {
            let cells: Vec<&str> = line.split('\t').collect();
            if !OWN.contains(&cells[5]) {
                saw.insert(format!("{} {} {} {} {}", cells[1], cells[2], cells[3], cells[4], cells[5]));
            }
        }
        // Several looks of one job are taken together.
        let mut should: BTreeSet<String> = BTreeSet::new();
        for thing in wanted.iter().filter_map(Value::as_array).flatten() {
            let of = |name: &str| thing[name].as_str().unwrap_or("-").to_owned();
            let size = thing["size"].as_u64().map_or("-".to_owned(), |n| n.to_string());
            let path = quoted(&of("path"));
            let kind = of("type").replace("dir", "directory");
            let (kind, target) = (kind, thing["target"].as_str().unwrap_or("-").to_owned());
            let hash = if kind == "link" { target } else { of("sha256") };
            should.insert(format!("{kind} {} {size} {hash} {path}", of("mode")));
        }
        let same_as = |line: &str| line.contains("same_as");
        let missing: Vec<_> =
            should.difference(&saw).filter(|l| !same_as(l) && !l.contains(" - - ")).collect();
        let more: Vec<_> = saw.difference(&should).collect();
        let known =
            |line: &&&String| should.iter().any(|s| s.split(' ').next_back() == line.split(' ').next_back());
        let more: Vec<_> = more.iter().filter(|l| !known(l)).collect();
        if !missing.is_empty() || !more.is_empty() {
            self.differs(format!("saw: missing {missing:?}, more {more:?}"));
        }
    }

    fn check_directory(&mut self, wanted: &Value, before: &BTreeMap<String, Thing>, when: &str) {
        if !wanted.is_object() {
            return;
        }
        let after = listing(&self.dir);
        let name_of =
            |path: &Value| path.as_str().unwrap_or("").replace("@CLUSTER@", &self.cluster.to_string());
        let mut changed = BTreeSet::new();
        let mut found = Vec::new();
        for list in ["added", "written"] {
            for thing in wanted[list].as_array().into_iter().flatten() {
                let path = name_of(&thing["path"]);
                changed.insert(path.clone());
                let Some(have) = after.get(&path) else {
                    found.push(format!("{when}directory: {path} is not {list}"));
                    continue;
                };
                if thing["type"].as_str().is_some_and(|kind| kind != have.kind) {
                    found.push(format!("{when}directory: {path} is a {}", have.kind));
                }
                let is_systems = !thing["same_as"].is_null();
                if !is_systems && thing["mode"].as_str().is_some_and(|mode| mode != have.mode) {
                    found.push(format!(
                        "{when}directory: {path} has mode {}, not {}",
                        have.mode, thing["mode"]
                    ));
                }
                if thing["sha256"].as_str().is_some_and(|hash| hash != have.sha256) {
                    found.push(format!("{when}directory: {path} has another content"));
                }
                if let Some(other) = thing["same_as"].as_str()
                    && look(Path::new(other)).sha256 != have.sha256
                {
                    found.push(format!("{when}directory: {path} is not {other}"));
                }
                if list == "written" && have.kind == "file" && before.get(&path) == Some(have) {
                    found.push(format!("{when}directory: {path} was not written"));
                }
            }
        }
        for path in wanted["untouched"].as_array().into_iter().flatten().map(name_of) {
            let same = |a: &Thing, b: &Thing| a.kind == "dir" && b.kind == "dir" || a == b;
            if !matches!((before.get(&path), after.get(&path)), (Some(a), Some(b)) if same(a, b))
                && !["job.sub", "job.log"].contains(&path.as_str())
            {
                found.push(format!("{when}directory: {path} was touched"));
            }
        }
        for (path, thing) in &after {
            if !before.contains_key(path) && !changed.contains(path) {
                found.push(format!("{when}directory: {path} is more ({})", thing.kind));
            }
        }
        for path in wanted["removed"].as_array().into_iter().flatten().map(name_of) {
            if after.contains_key(&path) {
                found.push(format!("{when}directory: {path} is not removed"));
            }
        }
        self.found.extend(found);
    }
}

/// A name as bash's `printf %q` writes it, as far as the cases need it.
fn quoted(name: &str) -> String {
    if name.chars().any(|c| c.is_control() || !c.is_ascii()) {
        let inner: String = name
            .bytes()
            .map(|b| match b {
                b'\n' => "\\n".to_owned(),
                b'\'' => "\\'".to_owned(),
                b if b.is_ascii_graphic() || b == b' ' => (b as char).to_string(),
                b => format!("\\{b:03o}"),
            })
            .collect();
        return format!("$'{inner}'");
    }
    name.chars()
        .map(|c| if " ,'\"\\*?$&;()<>|".contains(c) { format!("\\{c}") } else { c.to_string() })
        .collect()
}

/// The events of a log, as the cases name them.
fn logged(log: &str) -> Vec<String> {
    let mut events = Vec::new();
    for block in log.split("\n...\n") {
        let block = block.trim_start_matches('\n');
        let Some(number) = block.get(..3).filter(|n| n.bytes().all(|b| b.is_ascii_digit())) else { continue };
        let detail = match number {
            "040" => {
                let kind = if block.contains("input files") { "input" } else { "output" };
                let word = if block.contains("Started") { "started" } else { "finished" };
                format!(" {kind} {word}")
            }
            "012" | "021" => {
                let code = block.lines().find_map(|l| l.trim().strip_prefix("Code "));
                code.map(|c| format!(" {}", c.replace(" Subcode ", "/"))).unwrap_or_default()
            }
            _ => String::new(),
        };
        events.push(format!("{number}{detail}"));
    }
    events
}

fn prepare(far: &Far, vectors: &Path, name: &str) -> PathBuf {
    let dir = far.directory(name);
    let from = vectors.join(name);
    let copy = format!(
        "[ ! -d {0}/files ] || cp -r {0}/files/. . ; for f in *.sh; do [ ! -f \"$f\" ] || cp -p {0}/files/\"$f\" .; done",
        from.display()
    );
    let shell = |line: &str| {
        let out = far.as_nobody(&dir, Path::new("/bin/bash"), &["-c", &format!("umask 022; {line}")]);
        assert!(out.status.success() || !line.contains("setup"), "{name}: {}", text(&out.stderr));
    };
    shell(&copy);
    if from.join("setup.sh").exists() {
        shell(&format!("bash {}/setup.sh", from.display()));
    }
    let sub = std::fs::read_to_string(from.join("job.sub")).unwrap().replace("@DIR@", &dir.to_string_lossy());
    std::fs::write(dir.join("job.sub"), sub).unwrap();
    std::os::unix::fs::chown(dir.join("job.sub"), Some(crate::transfer::NOBODY), None).unwrap();
    dir
}

/// The cases to play: all, those that are named, or a sample by a seed that is printed.
fn chosen(vectors: &Path) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(vectors)
        .unwrap()
        .flatten()
        .filter(|e| e.path().join("expect.json").exists())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    let wanted = std::env::var("UPDRAFT_TEST_TRANSFER").unwrap_or_default();
    if wanted == "all" || (wanted.is_empty() && std::env::var_os("PROPTEST_CASES").is_some()) {
        return all;
    }
    if wanted.contains(|c: char| c.is_ascii_digit()) && !wanted.starts_with("seed") {
        return wanted.split(',').map(str::to_owned).collect();
    }
    let seed = wanted.strip_prefix("seed=").and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from_le_bytes(trust::random()) | 1);
    println!("cases by seed {seed} (UPDRAFT_TEST_TRANSFER=seed={seed} plays the same)");
    let mut random = Random(seed);
    let mut sample = Vec::new();
    while sample.len() < SAMPLE {
        let at = random.below(all.len() as u64) as usize;
        sample.push(all.remove(at));
    }
    sample
}

#[test]
fn recorded_cases_come_out_as_recorded_or_better() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 64);
    let vectors = repository().join("tests/vectors/transfer");
    // The ordinary user cannot go where the repository may be.
    let copy = far.sandbox.path().join("vectors");
    let out = std::process::Command::new("cp").arg("-r").arg(&vectors).arg(&copy).output().unwrap();
    assert!(out.status.success());
    let cases = chosen(&copy);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let shared = &far;
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(name) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let expect = std::fs::read(copy.join(name).join("expect.json")).unwrap();
                    let expect = serde_json::from_slice(&expect).unwrap();
                    let dir = prepare(shared, &copy, name);
                    let (name, found) = (name.clone(), Vec::new());
                    let mut case = Case { far: shared, name, dir, expect, cluster: 0, found };
                    case.play();
                    results.lock().unwrap().insert(case.name, case.found);
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let mut wrong = String::new();
    let mut agree = 0;
    for (name, found) in &results {
        let of_it = DIFFERENCES.iter().filter(|(cases, ..)| cases.contains(&name.as_str()));
        let known: Vec<&str> = of_it.flat_map(|(_, words, _)| words.iter().copied()).collect();
        let unknown: Vec<_> = found.iter().filter(|f| !known.iter().any(|k| f.starts_with(k))).collect();
        let gone = !known.is_empty() && found.is_empty();
        agree += usize::from(found.is_empty());
        if !unknown.is_empty() || gone {
            wrong.push_str(&format!("{name}:\n"));
            wrong.extend(unknown.iter().map(|f| format!("    {f}\n")));
            wrong.push_str(if gone { "    differs no more\n" } else { "" });
        }
    }
    println!("{} cases, {agree} as recorded, {} otherwise on purpose", results.len(), results.len() - agree);
    assert!(wrong.is_empty(), "\n{wrong}{}", far.sandbox.logs());
}
