//! `condor-cli DIR`: recorded calls of HTCondor's commands, made again through our links on a pool of our own, and compared by shape:
//! exit code, and the kinds of lines on each stream, with numbers, names and times made equal. The kinds of lines of ours must be among the recorded ones (lines that ours lack go unnoticed) and
//! have no kind of line that the recorded one has not; jobs of ours are not in every state that recorded ones were in. Prints how many agree, and each other one with its reason.
//!
//! DIR is outside the repository: a file for each call, `$ COMMAND LINE`, standard output, `--- stderr`, `--- exit N`, and for some
//! `--- submit file`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::root;

/// Calls that cannot be made again on a pool of ours, by the beginnings of their names, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("status_run", "daemons that we do not have"),
    ("status_idle_run", "daemons that we do not have"),
    ("status_any", "daemons that we do not have"),
    ("status_collector", "daemons that we do not have"),
    ("status_master", "daemons that we do not have"),
    ("status_negotiator", "daemons that we do not have"),
    ("status_compact", "this view is not built"),
    ("status_idle_compact", "this view is not built"),
    ("status_server", "this view is not built"),
    ("status_state", "this view is not built"),
    ("rm_constraint.", "needs a job that asks for GPUs"),
    ("q_better_analyze_gpus", "needs a job that asks for GPUs"),
    ("qedit", "condor_qedit is not built"),
    ("userprio_resetusage", "accumulated usage is not reset in our books"),
    ("userprio_long", "attributes of another negotiator"),
    ("submit_factory", "late materialization is not built"),
    ("submit_stdin", "prints the whole ad, whose attributes differ"),
    ("submit_verbose", "prints the whole ad, whose attributes differ"),
    ("submit_dry_run", "prints the whole ad, whose attributes differ"),
    ("q_long_one_job", "attributes of another schedd"),
    ("history_job_long", "attributes of another schedd"),
    ("status_long_one_slot", "attributes of another startd"),
    ("status_schedd_long", "attributes of another schedd"),
    ("q_owner", "needs a second user"),
    ("q_allusers", "needs a second user"),
    ("q_nobatch_allusers", "needs a second user"),
    ("q_suspended", "needs a second user"),
    ("hold_other_user", "needs a second user"),
    ("rm_other_user", "needs a second user"),
    ("history_user", "needs a second user"),
    ("suspend_job", "is of the second user's job"),
    ("continue_job", "is of the second user's job"),
    ("vacate_job_fast", "is of the second user's job"),
];

/// What is done before some calls.
const BEFORE: &[(&str, &str)] = &[
    ("release_cluster", "condor_hold 47"),
    ("release_job", "condor_hold 46.0"),
    ("rm_job_again", "condor_rm 46.2"),
    ("q_one_cluster", "condor_hold 46.3"),
];

/// In which state the pool is for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Empty,
    Full,
    Down,
}

#[derive(Debug)]
struct Case {
    name: String,
    words: Vec<String>,
    out: String,
    err: String,
    code: i32,
    submit_file: Option<String>,
}

pub(crate) fn run(directory: &str) -> Result<(), String> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| format!("{directory}: {e}"))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "txt") {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            cases.push(read(&path, &text)?);
        }
    }
    cases.sort_by(|a, b| (stage(a), &a.name).cmp(&(stage(b), &b.name)));
    crate::sh("cargo", &["build", "-q", "-p", "updraft"], &[])?;
    let mut pool = Pool::new()?;
    let (mut agree, mut applied) = (0, 0);
    let mut reasons = Vec::new();
    for case in &cases {
        if let Some((_, why)) = NOT_HERE.iter().find(|(name, _)| format!("{}.", case.name).starts_with(name))
        {
            reasons.push(format!("{}: not compared: {why}", case.name));
            continue;
        }
        applied += 1;
        match pool.compare(case)? {
            None => agree += 1,
            Some(why) => reasons.push(format!("{}: {why}", case.name)),
        }
    }
    for reason in &reasons {
        println!("{reason}");
    }
    println!("{agree} of {applied} calls that apply agree; {} calls are recorded", cases.len());
    Ok(())
}

fn stage(case: &Case) -> Stage {
    let name = case.name.as_str();
    let empty = [
        "q_empty",
        "q_no_such",
        "history_empty",
        "userprio_empty",
        "status_idle",
        "rm_all",
        "hold_all",
        "release_all",
    ];
    match name {
        _ if name.ends_with("pool_down") => Stage::Down,
        "rm_all_other" => Stage::Full,
        _ if empty.iter().any(|start| name.starts_with(start)) => Stage::Empty,
        _ => Stage::Full,
    }
}

fn read(path: &Path, text: &str) -> Result<Case, String> {
    let bad = || format!("{}: not a recorded call", path.display());
    let name = path.file_stem().and_then(|n| n.to_str()).ok_or_else(bad)?.to_owned();
    let (first, rest) = text.split_once('\n').ok_or_else(bad)?;
    let words = split(first.strip_prefix("$ ").ok_or_else(bad)?);
    let (said, ending) = rest.split_once("--- exit ").ok_or_else(bad)?;
    let (out, err) = said.split_once("--- stderr\n").unwrap_or((said, ""));
    let (code, more) = ending.split_once('\n').unwrap_or((ending, ""));
    let code = code.trim().parse().map_err(|_| bad())?;
    let submit_file = more.strip_prefix("--- submit file\n").map(str::to_owned);
    Ok(Case { name, words, out: out.to_owned(), err: err.to_owned(), code, submit_file })
}

/// Words between blanks; quotes hold them together.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// What is compared of a text: its kinds of lines, as words without their numbers.
fn shape(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(word_shape).collect();
        let line = words.join(" ");
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The first line of ours that is of no recorded kind, or what is missing.
fn difference(recorded: &str, ours: &str) -> Option<String> {
    let (recorded, ours) = (shape(recorded), shape(ours));
    let missing =
        || recorded.first().filter(|_| ours.is_empty()).map(|line| format!("nothing instead of: {line}"));
    ours.iter().find(|line| !recorded.contains(line)).cloned().or_else(missing)
}

fn word_shape(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        let c = if c.is_ascii_digit() { 'N' } else { c };
        if !(c == 'N' && out.ends_with('N')) {
            out.push(c);
        }
    }
    // A count of none is a line, a range of jobs is one job or several, and an address is an address.
    if out.starts_with('<') && out.contains(['?', '>']) {
        "<ADDRESS>".to_owned()
    } else if out == "_" {
        "N".to_owned()
    } else {
        out.replace("N.N-N", "N.N").replace("slotN_N", "slotN").trim_matches('-').to_owned()
    }
}

struct Pool {
    dir: PathBuf,
    up: Option<Child>,
    stage: Stage,
    /// Clusters as they are recorded, and ours.
    clusters: BTreeMap<&'static str, String>,
    names: Vec<(String, &'static str)>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Pool {
    fn new() -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("updraft-condor-cli-{}", std::process::id()));
        fs::create_dir_all(dir.join("work")).map_err(|e| e.to_string())?;
        let binary = root().join("target/debug/updraft");
        let made =
            Command::new(&binary).arg("links").arg(dir.join("bin")).output().map_err(|e| e.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let word = |program: &str, argument: &str| {
            let out = Command::new(program).arg(argument).output().map_err(|e| format!("{program}: {e}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&out.stdout).trim().to_owned())
        };
        let names = vec![(word("hostname", "-s")?, "ap.pool.test"), (word("id", "-un")?, "alice")];
        let pool = Self { dir, up: None, stage: Stage::Down, clusters: BTreeMap::new(), names };
        let sleep = "executable = /bin/sleep\ntransfer_executable = false\nshould_transfer_files = no\nrequest_memory = 64\n";
        for (name, lines) in [
            ("ok1.sub", "arguments = 1\nqueue\n"),
            ("ok3.sub", "arguments = 1\nqueue 3\n"),
            ("ok_noq.sub", "arguments = 1\n"),
            ("okq.sub", "queue arguments from (\n1\n2\n)\n"),
            ("unused.sub", "arguments = 1\nreqest_memory = 5\nfoo = bar\nqueue\n"),
            ("46.sub", "arguments = 120\nqueue 4\n"),
            ("47.sub", "arguments = 90\nbatch_name = nightly-build\nqueue 2\n"),
            ("48.sub", "arguments = 120\nqueue\n"),
            ("49.sub", "arguments = 120\nhold = true\nqueue 2\n"),
            ("51.sub", "arguments = 60\npriority = 7\nqueue\n"),
            ("83.sub", "arguments = 1\nlog = w.log\nqueue 2\n"),
            ("84.sub", "arguments = 300\nlog = w2.log\nqueue\n"),
        ] {
            fs::write(pool.dir.join("work").join(name), format!("{sleep}{lines}"))
                .map_err(|e| e.to_string())?;
        }
        fs::write(pool.dir.join("work/empty.log"), "").map_err(|e| e.to_string())?;
        Ok(pool)
    }

    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.env("UPDRAFT_STATE_DIR", self.dir.join("state")).env("TZ", "UTC").env_remove("UPDRAFT_POOL");
        command.current_dir(self.dir.join("work")).stdin(Stdio::null());
        command
    }

    fn call(&self, words: &[String]) -> Result<(String, String, i32), String> {
        let [program, rest @ ..] = words else { return Err("an empty call".into()) };
        let mut command = self.command(self.dir.join("bin").join(program));
        let out = command.args(rest).output().map_err(|e| format!("{program}: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&out.stdout), text(&out.stderr), out.status.code().unwrap_or(-1)))
    }

    /// Brings the pool into the state that a call needs.
    fn reach(&mut self, stage: Stage) -> Result<(), String> {
        if stage == self.stage {
            return Ok(());
        }
        if stage == Stage::Down {
            self.stop();
        } else if self.up.is_none() {
            let mut up = self.command(root().join("target/debug/updraft"));
            let up = up.arg("up").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            self.up = Some(up.map_err(|e| e.to_string())?);
            let until = Instant::now() + Duration::from_secs(60);
            while self.call(&split("condor_status -af Name"))?.0.is_empty() {
                if Instant::now() > until {
                    return Err("the pool does not answer within a minute".into());
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        self.stage = stage;
        Ok(())
    }

    /// Jobs as they were when the calls were recorded, as far as two cores go; anew for every call that changes some.
    fn prepare(&mut self, case: &Case) -> Result<(), String> {
        if !self.clusters.is_empty() {
            return Ok(());
        }
        self.call(&split("condor_rm -all"))?;
        for log in ["w.log", "w2.log"] {
            let _ = fs::remove_file(self.dir.join("work").join(log));
        }
        for recorded in ["83", "84", "46", "47", "48", "49", "51"] {
            let (out, err, _) = self.call(&split(&format!("condor_submit -terse {recorded}.sub")))?;
            let cluster = out.split('.').next().filter(|c| !c.is_empty()).ok_or(err)?;
            self.clusters.insert(recorded, cluster.to_owned());
            if recorded == "83" {
                self.call(&split("condor_wait -wait 60 w.log"))?;
            }
        }
        for (start, line) in BEFORE.iter().filter(|(start, _)| case.name.starts_with(start)) {
            let words: Vec<String> = split(line).iter().map(|word| self.ours(word)).collect();
            let (_, err, code) = self.call(&words)?;
            if code != 0 {
                return Err(format!("before {start}: {line}: {err}"));
            }
        }
        let until = Instant::now() + Duration::from_secs(20);
        while self.call(&split("condor_q -run -af ClusterId"))?.0.lines().count() < 2
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn stop(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        // By its own hand where it can: jobs end with it.
        let _ = Command::new("kill").arg(up.id().to_string()).status();
        let until = Instant::now() + Duration::from_secs(20);
        while up.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = up.kill();
        let _ = up.wait();
    }

    /// Makes the call again; why it does not agree, if so.
    fn compare(&mut self, case: &Case) -> Result<Option<String>, String> {
        self.reach(stage(case))?;
        if BEFORE.iter().any(|(start, _)| case.name.starts_with(start)) {
            self.clusters.clear();
        }
        if stage(case) == Stage::Full {
            self.prepare(case)?;
        }
        if let (Some(text), Some(file)) = (
            &case.submit_file,
            case.words.iter().find(|w| Path::new(w).extension().is_some_and(|e| e == "sub")),
        ) {
            fs::write(self.dir.join("work").join(file), text).map_err(|e| e.to_string())?;
        }
        let words: Vec<String> = case.words.iter().map(|word| self.ours(word)).collect();
        let (out, err, code) = self.call(&words)?;
        let changes = ["rm_", "hold_", "release_", "vacate_", "wait_", "prio", "submit_"];
        if changes.iter().chain(&["q_one_cluster"]).any(|start| case.name.starts_with(start)) {
            self.clusters.clear();
        }
        let out_differs = difference(&case.out, &self.theirs(&out));
        let err_differs = difference(&case.err, &self.theirs(&err));
        let is_watch_only = err.trim().is_empty() && case.err.starts_with("To monitor your job(s)");
        Ok(match (out_differs, err_differs) {
            _ if code != case.code => {
                Some(format!("exit code {code} instead of {}: {}", case.code, shape(&err).join(" / ")))
            }
            (None, None) => None,
            (Some(_), _) if case.out.starts_with("Usage") => Some("our own usage text".into()),
            (Some(line), _) => Some(format!("standard output differs, first at ours: {line}")),
            (None, Some(_)) if is_watch_only => {
                Some("agrees but for condor_watch_q, which is not named (decision 078)".into())
            }
            (None, Some(line)) if err.trim().is_empty() => Some(format!("standard error is empty: {line}")),
            (None, Some(_)) => Some("our own words on standard error; stream and exit code agree".into()),
        })
    }

    /// A word of a recorded call, for our pool.
    fn ours(&self, word: &str) -> String {
        let (head, tail) = word.split_once('.').map_or((word, None), |(h, t)| (h, Some(t)));
        let word = match (self.clusters.get(head), tail) {
            (Some(cluster), Some(proc)) => format!("{cluster}.{proc}"),
            (Some(cluster), None) => cluster.clone(),
            (None, _) => word.to_owned(),
        };
        self.names.iter().fold(word, |word, (ours, theirs)| word.replace(theirs, ours))
    }

    /// What we said, with the recorded names.
    fn theirs(&self, said: &str) -> String {
        let [(host, _), (user, _)] = &self.names[..] else { return said.to_owned() };
        let said = said.replace(&format!("{user}@{host}"), "alice@pool.test");
        let whole = |said: String, ours: &str, theirs: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
            let mut out = String::new();
            let mut rest = said.as_str();
            while let Some(at) = rest.find(ours) {
                let (before, behind) = (&rest[..at], &rest[at + ours.len()..]);
                let alone = !before.ends_with(is_part) && !behind.starts_with(is_part);
                out.push_str(before);
                out.push_str(if alone { theirs } else { ours });
                rest = behind;
            }
            out.push_str(rest);
            out
        };
        whole(whole(said, host, "ap.pool.test"), user, "alice")
    }
}
