//! DAGs on the real binary: the recorded cases of tests/vectors/dagman, and kills in the middle.
//! A sample of the cases by default, all with `cargo xtask test --all` or UPDRAFT_TEST_DAGMAN=all (or a list of cases).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Random, Sandbox, repository, signal, skip, text};

/// Cases of a sample.
const SAMPLE: u64 = 8;
/// Nodes of the DAG that is run through kills: rows of so many.
const ROWS: usize = 5;
const IN_A_ROW: usize = 4;

/// Where this pool does otherwise; docs/dag.md says why.
const DIFFERENCES: &[&str] = &[
    // Jobs have no _CONDOR_JOB_AD, which this case's job copies.
    "002",
];

fn cases() -> Vec<String> {
    let all: Vec<String> = (1..=79).map(|n| format!("{n:03}")).collect();
    match std::env::var("UPDRAFT_TEST_DAGMAN").as_deref() {
        Ok("all") => all,
        Ok(list) if !list.is_empty() => list.split([',', ' ']).map(str::to_owned).collect(),
        // Set by `cargo xtask test --all`.
        _ if std::env::var_os("PROPTEST_CASES").is_some() => all,
        _ => {
            let seed = std::process::id().into();
            eprintln!("seed {seed}");
            let mut random = Random(seed);
            (0..SAMPLE).map(|_| all[random.below(79) as usize].clone()).collect()
        }
    }
}

#[test]
fn recorded_cases_agree() {
    let cases = cases();
    if Command::new("python3").arg("--version").output().is_err() {
        skip("the runner of the cases needs python3");
        return;
    }
    let mut sandbox = Sandbox::new();
    let vectors = repository().join("tests/vectors/dagman");
    let bin = sandbox.open_dir("bin");
    sandbox.ok(&["links", bin.to_str().unwrap()]);
    let work = sandbox.open_dir("work");
    // The runner takes small numbers in what scripts print for cluster ids.
    let counter = sandbox.state().join("runs");
    std::fs::create_dir_all(&counter).unwrap();
    std::fs::write(counter.join("clusters"), "20000 20000\n").unwrap();
    sandbox.up(&["--cpus", "8"]);
    let mut command = Command::new("python3");
    command
        .arg(vectors.join("run_vector.py"))
        .args(["--strict", "--jobs", "8", "--work"])
        .arg(&work)
        .arg(&bin);
    command.args(cases.iter().filter(|c| !DIFFERENCES.contains(&c.as_str())).map(|c| vectors.join(c)));
    command.env("UPDRAFT_STATE_DIR", sandbox.state());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{cases:?}\n{}{}", text(&out.stdout), text(&out.stderr));
}

/// The process of the DAG job, if there is one.
fn dag_process(sandbox: &Sandbox) -> Option<u32> {
    sandbox.processes().into_iter().find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|b| *b == 0).any(|word| word == b"dagman")
    })
}

fn write_dag(dir: &Path) {
    std::fs::write(dir.join("n.sub"), "executable = n.sh\narguments = $(JOB)\nqueue\n").unwrap();
    let script = "#!/bin/sh\necho S $1 >> trace\nsleep 1\necho E $1 >> trace\n";
    for (name, text) in [("n.sh", script), ("post.sh", "#!/bin/sh\nexit $1\n")] {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(dir.join(name), text).unwrap();
        std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut dag = String::new();
    for row in 0..ROWS {
        for n in 0..IN_A_ROW {
            dag.push_str(&format!("JOB N{row}_{n} n.sub\nSCRIPT POST N{row}_{n} post.sh $RETURN\n"));
        }
        if row > 0 {
            let names = |row: usize| (0..IN_A_ROW).map(|n| format!(" N{row}_{n}")).collect::<String>();
            dag.push_str(&format!("PARENT{} CHILD{}\n", names(row - 1), names(row)));
        }
    }
    std::fs::write(dir.join("in.dag"), dag).unwrap();
}

#[test]
fn every_node_runs_once_through_kills_of_the_dag_and_of_the_manager() {
    let mut sandbox = Sandbox::new();
    let dir = sandbox.open_dir("work");
    write_dag(&dir);
    let mut up = sandbox.up(&["--cpus", "3"]);
    let out = sandbox.command(&["dag", "submit", "in.dag"]).current_dir(&dir).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let seed = std::process::id().into();
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let log = || std::fs::read_to_string(dir.join("in.dag.dagman.log")).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(240);
    let (mut kills, mut restarts) = (0, 0);
    while !log().contains("\n005 (") && !log().starts_with("005 (") {
        assert!(Instant::now() < end, "{}\n{}", log(), sandbox.logs());
        std::thread::sleep(Duration::from_millis(300 + random.below(1_500)));
        // In turns, each at a moment of its own.
        if kills <= restarts && kills < 3 {
            if let Some(pid) = dag_process(&sandbox) {
                signal(pid, libc::SIGKILL);
                kills += 1;
            }
        } else if restarts < 2 {
            sandbox.kill(up);
            up = sandbox.up(&["--cpus", "3"]);
            restarts += 1;
        }
    }
    assert!(
        kills > 0 && restarts > 0,
        "{kills} kills of the DAG, {restarts} of the manager: too few to tell"
    );
    assert!(log().contains("Normal termination (return value 0)"), "{}", log());
    let mut starts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let trace = std::fs::read_to_string(dir.join("trace")).unwrap();
    for (at, line) in trace.lines().enumerate() {
        if let Some(name) = line.strip_prefix("S ") {
            let entry = starts.entry(name.to_owned()).or_insert((0, at));
            entry.0 += 1;
        }
    }
    assert_eq!(starts.len(), ROWS * IN_A_ROW, "no node is lost: {trace}");
    assert!(starts.values().all(|(times, _)| *times == 1), "every node runs once: {trace}");
    for row in 1..ROWS {
        let ends = trace.lines().enumerate().filter(|(_, l)| l.starts_with(&format!("E N{}_", row - 1)));
        let last = ends.map(|(at, _)| at).max().unwrap();
        let first = (0..IN_A_ROW).map(|n| starts[&format!("N{row}_{n}")].1).min().unwrap();
        assert!(last < first, "row {row} began before the one above it had ended: {trace}");
    }
    assert!(!dir.join("in.dag.lock").exists() && dir.join("in.dag.metrics").exists());
}

#[test]
fn status_shows_nodes_and_a_second_run_is_refused() {
    let mut sandbox = Sandbox::new();
    let dir = sandbox.open_dir("work");
    write_dag(&dir);
    std::fs::write(dir.join("in.dag"), "JOB A {\nexecutable = /bin/true\n}\nJOB B {\nexecutable = /bin/sleep\narguments = 60\n}\nPARENT A CHILD B\n")
        .unwrap();
    // One core: the DAG itself takes none.
    sandbox.up(&["--cpus", "1"]);
    let run = |words: &[&str]| sandbox.command(words).current_dir(&dir).output().unwrap();
    assert!(run(&["dag", "submit", "in.dag"]).status.success());
    sandbox.until("A is done and B is in the queue", Duration::from_secs(60), || {
        text(&run(&["dag", "status", "in.dag", "--tree"]).stdout).contains("A done\n  B queued\n")
    });
    let again = run(&["dag", "submit", "-f", "in.dag"]);
    assert!(
        !again.status.success() && text(&again.stderr).contains("is being run by job"),
        "{}",
        text(&again.stderr)
    );
    let svg = run(&["dag", "status", "in.dag", "--svg", "g.svg"]);
    assert!(svg.status.success());
    assert!(std::fs::read_to_string(dir.join("g.svg")).unwrap().contains(">B</text>"));
    assert!(run(&["dag", "rm", "in.dag"]).status.success());
    sandbox.until("nothing is left in the queue", Duration::from_secs(60), || {
        dir.join("in.dag.rescue001").exists() && !dir.join("in.dag.lock").exists()
    });
    let rescue = std::fs::read_to_string(dir.join("in.dag.rescue001")).unwrap();
    assert!(rescue.ends_with("\nDONE A\n"), "{rescue}");
}
