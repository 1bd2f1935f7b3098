//! Job logs of one user that hang, cannot be written or are tampered with: what others have in theirs does not depend on them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::fuse::Dead;
use super::{NOBODY, as_nobody, shared_pool, work};
use crate::harness::{Sandbox, signal, skip, text, updraft};
use crate::joblog::{journalled, logged};

/// Another ordinary user.
const DAEMON: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// A log in a directory whose name has the cluster's number: the submit looks at that of cluster 0, which is in order.
fn log_by_cluster(sandbox: &Sandbox, dir: &str, file: &str) -> PathBuf {
    sandbox.open_dir(&format!("work/{dir}0"));
    work(sandbox).join(format!("{dir}$(Cluster)")).join(file)
}

/// Submits a command whose log is this, as a user.
fn submit(sandbox: &Sandbox, user: u32, log: &Path, more: &[&str], command: &[&str]) -> i32 {
    let (id, log) = (user.to_string(), format!("log={}", log.display()));
    let mut submit = Command::new("setpriv");
    submit.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft());
    submit.args(["submit", "--json", "--set", &log]).args(more).arg("--").args(command);
    let out = submit.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(work(sandbox)).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told: serde_json::Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    told[0]["cluster"].as_i64().unwrap() as i32
}

fn is_over(log: &Path) -> bool {
    log.exists() && logged(log).values().all(|events| *events == [0, 1, 5])
}

/// Processes that write logs with a user's rights.
fn scribes(user: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_users = std::fs::metadata(entry.path().join("status")).is_ok_and(|m| m.uid() == user)
            || std::fs::read_to_string(entry.path().join("status"))
                .is_ok_and(|s| s.lines().any(|l| l.starts_with(&format!("Uid:\t{user}\t"))));
        if line.starts_with(b"updraft\0scribe\0") && is_users {
            found.push(pid);
        }
    }
    found
}

/// Whose parent is this process.
fn is_child_of(pid: u32, parent: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|l| l == format!("PPid:\t{parent}"))
}

fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn a_log_on_a_dead_file_system_holds_up_its_owner_and_nobody_else() {
    let Some((mut sandbox, pool)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let at = work(&sandbox).join("dead1");
    std::fs::create_dir(&at).unwrap();
    std::os::unix::fs::chown(&at, Some(NOBODY), Some(NOBODY)).unwrap();
    let Some(dead) = Dead::mount(&at) else { return skip("nothing can be mounted here") };
    let bad = submit(&sandbox, NOBODY, &log_by_cluster(&sandbox, "dead", "log"), &[], &["true"]);
    assert_eq!(bad, 1);
    for n in 0..3 {
        let good = work(&sandbox).join(format!("good{n}"));
        submit(&sandbox, DAEMON, &good, &[], &["true"]);
        sandbox.until("another user's log is written", PATIENCE, || is_over(&good));
    }
    // Its owner's other logs go on when the one that hangs is given up for a while, and its owner can learn why it is empty.
    let own = work(&sandbox).join("own");
    let held = submit(&sandbox, NOBODY, &own, &["--set", "hold=true"], &["true"]);
    sandbox.until("its owner's other log is written", PATIENCE, || own.exists() && logged(&own).len() == 1);
    let told = text(&as_nobody(&sandbox, &["explain", &held.to_string()]).stdout);
    assert!(told.contains("dead1/log cannot be written: writing it took longer"), "{told}");

    signal(pool, libc::SIGTERM);
    sandbox.until("the manager ends", Duration::from_secs(10), || has_ended(pool));
    sandbox.reap(pool);
    drop(dead);
    sandbox.up(&["--shared", "--cpus", "1"]);
    sandbox.until("what was missing is made up for", PATIENCE, || is_over(&at.join("log")));
}

#[test]
fn logs_that_cannot_be_written_push_out_no_other_users_lines() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let late = work(&sandbox).join("late1");
    let log = log_by_cluster(&sandbox, "late", "log");
    assert_eq!(submit(&sandbox, DAEMON, &log, &["--set", "hold=true"], &["true"]), 1);
    as_user(&sandbox, DAEMON, &["release", "1"]);
    let queue = || sandbox.json(&["queue", "--json"])["clusters"].clone();
    sandbox.until("it has run", PATIENCE, || queue() == serde_json::json!([]));
    // More lines than one user may have waiting, each for a log of its own: every other log has more of them.
    let many = log_by_cluster(&sandbox, "absent", "$(Process)");
    submit(&sandbox, NOBODY, &many, &["--set", "hold=true", "--count", "100010"], &["true"]);
    let told = || std::fs::read_to_string(sandbox.path().join("up.log")).unwrap_or_default();
    sandbox.until("some are given up", 2 * PATIENCE, || told().contains("given up"));
    std::fs::create_dir(&late).unwrap();
    std::os::unix::fs::chown(&late, Some(DAEMON), Some(DAEMON)).unwrap();
    sandbox.until("all that waited is written", 2 * PATIENCE, || late.join("log").exists());
    sandbox.until("every event of it", PATIENCE, || !logged(&late.join("log")).is_empty());
    assert_eq!(logged(&late.join("log"))[&(1, 0)], [0, 13, 1, 5], "\n{}", sandbox.logs());
}

fn as_user(sandbox: &Sandbox, user: u32, arguments: &[&str]) {
    let id = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft()).args(arguments);
    let out = command.env("UPDRAFT_STATE_DIR", sandbox.state()).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn whoever_kills_the_process_that_writes_his_logs_loses_and_doubles_nothing() {
    let Some((sandbox, pool)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let log: PathBuf = work(&sandbox).join("log");
    let job = submit(&sandbox, NOBODY, &log, &["--count", "60"], &["sleep", "0.1"]);
    let mut killed = 0;
    while killed < 4 {
        let own = || scribes(NOBODY).into_iter().find(|pid| is_child_of(*pid, pool));
        sandbox.until("somebody writes", PATIENCE, || own().is_some());
        std::thread::sleep(Duration::from_millis(400));
        if let Some(pid) = own() {
            // The user's own rights are enough.
            let kill = format!("kill -9 {pid}");
            let id = NOBODY.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", &kill]);
            killed += usize::from(command.status().unwrap().success());
        }
    }
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "60"]);
    sandbox.until("all is written", PATIENCE, || logged(&log) == journalled(&sandbox, &[job]));
}

#[test]
fn the_process_that_writes_logs_has_its_users_rights_and_no_others() {
    let Some((sandbox, pool)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let log = log_by_cluster(&sandbox, "forbidden", "log");
    std::fs::create_dir(work(&sandbox).join("forbidden1")).unwrap();
    submit(&sandbox, NOBODY, &log, &["--set", "hold=true"], &["true"]);
    let mut seen = None;
    sandbox.until("somebody writes", PATIENCE, || {
        seen = seen.or_else(|| scribes(NOBODY).into_iter().find(|pid| is_child_of(*pid, pool)));
        seen.is_some()
    });
    sandbox.until("its owner is told", PATIENCE, || {
        text(&as_nobody(&sandbox, &["explain", "1"]).stdout).contains("cannot be written: Permission denied")
    });
    assert!(!work(&sandbox).join("forbidden1/log").exists());
    let good = work(&sandbox).join("good");
    submit(&sandbox, NOBODY, &good, &["--set", "hold=true"], &["true"]);
    sandbox.until("a log is written", PATIENCE, || good.exists());
    assert_eq!(std::fs::metadata(&good).unwrap().uid(), NOBODY);
}
