//! Files beside the journal that are lost or damaged: what they knew is asked for, and never guessed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Sandbox, text};

const PATIENCE: Duration = Duration::from_secs(60);

/// What `updraft up` says that does not start.
fn refusal(sandbox: &Sandbox) -> String {
    let out = sandbox.run(&["up", "--cpus", "1"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    text(&out.stderr)
}

fn run_of(sandbox: &Sandbox) -> PathBuf {
    let runs = fs::read_dir(sandbox.state().join("runs")).unwrap().flatten().map(|e| e.path());
    runs.into_iter().find(|path| path.join("templates").exists()).unwrap()
}

#[test]
fn a_run_whose_pool_is_gone_is_not_run_again() {
    let mut sandbox = Sandbox::new();
    let done = sandbox.path().join("done");
    let script = format!("echo {{}} >> {}; sleep 3", done.display());
    let command = sandbox.command(&["run", "--quiet", "--count", "2", "-j", "2", "--", "sh", "-c", &script]);
    let pid = sandbox.spawn(command, "run.log");
    let lines = || fs::read_to_string(&done).unwrap_or_default().lines().count();
    sandbox.until("both run", PATIENCE, || lines() == 2);
    sandbox.kill(pid);
    let run = run_of(&sandbox);
    fs::rename(run.join("pool"), sandbox.path().join("pool")).unwrap();
    let out = sandbox.run(&["run", "--quiet", "--resume"]);
    let told = text(&out.stderr);
    assert!(out.status.code() == Some(1) && told.contains("pool is gone"), "{told}");
    assert_eq!(lines(), 2);
    fs::rename(sandbox.path().join("pool"), run.join("pool")).unwrap();
    sandbox.ok(&["run", "--quiet", "--resume"]);
    assert_eq!(lines(), 2, "put back, it goes on");
}

#[test]
fn a_run_that_is_under_way_on_a_pool_is_not_taken_up_beside_it() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    let go = sandbox.path().join("go");
    let script = format!("while ! test -e {}; do sleep 0.05; done; echo out {{}}", go.display());
    let command = sandbox.command(&["run", "--count", "2", "--", "sh", "-c", &script]);
    let pid = sandbox.spawn(command, "run.log");
    let state = sandbox.state();
    let has_begun = || {
        fs::read_dir(state.join("runs"))
            .is_ok_and(|runs| runs.flatten().any(|run| run.path().join("templates").exists()))
    };
    sandbox.until("it has begun", PATIENCE, has_begun);
    let out = sandbox.run(&["run", "--resume"]);
    let told = text(&out.stderr);
    assert!(out.status.code() == Some(1) && told.contains(&format!("process {pid} has the run")), "{told}");
    fs::write(&go, "").unwrap();
    assert!(sandbox.reap(pid).success(), "{}", sandbox.logs());
    assert!(sandbox.logs().contains("out 0\nout 1\n"), "{}", sandbox.logs());
}

#[test]
fn a_run_that_was_moved_says_where_it_began() {
    let mut sandbox = Sandbox::new();
    let done = sandbox.path().join("done");
    let script = format!("echo {{}} >> {}; sleep 1", done.display());
    let command = sandbox.command(&["run", "--quiet", "--count", "6", "-j", "1", "--", "sh", "-c", &script]);
    let pid = sandbox.spawn(command, "run.log");
    sandbox.until("one has begun", PATIENCE, || done.exists());
    sandbox.kill(pid);
    let run = run_of(&sandbox);
    let moved = run.with_file_name("moved");
    fs::rename(&run, &moved).unwrap();
    let told = text(&sandbox.run(&["run", "--quiet", "--resume", "moved"]).stderr);
    assert!(told.contains("move it back") && told.contains(run.to_str().unwrap()), "{told}");
    fs::rename(&moved, &run).unwrap();
    sandbox.ok(&["run", "--quiet", "--resume"]);
    assert_eq!(fs::read_to_string(&done).unwrap().lines().count(), 6);
}

#[test]
fn a_damaged_run_is_told_with_commands_that_find_it() {
    let mut sandbox = Sandbox::new();
    let command = sandbox.command(&["run", "--quiet", "--count", "2", "--", "sleep", "60"]);
    let pid = sandbox.spawn(command, "run.log");
    let pool = || fs::read_dir(sandbox.state().join("runs")).ok().map(|_| run_of(&sandbox).join("pool"));
    std::thread::sleep(Duration::from_millis(300));
    sandbox.until("the pool has a job", PATIENCE, || {
        pool()
            .is_some_and(|pool| fs::read_dir(pool.join("agent/claims")).is_ok_and(|mut d| d.next().is_some()))
    });
    let pool = run_of(&sandbox).join("pool");
    sandbox.kill(pid);
    let segments = fs::read_dir(pool.join("manager/journal")).unwrap().flatten().map(|e| e.path());
    let segment = segments.into_iter().find(|p| p.extension().is_some_and(|e| e == "segment")).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last / 2] ^= 4;
    fs::write(&segment, bytes).unwrap();
    let told = text(&sandbox.run(&["run", "--quiet", "--resume"]).stderr);
    let check =
        told.split('`').find(|part| part.starts_with("updraft journal check")).expect(&told).to_owned();
    let words: Vec<&str> = check.split(' ').skip(1).collect();
    let found = sandbox.run(&words);
    assert!(text(&found.stdout).contains("damaged") || text(&found.stderr).contains("damaged"), "{found:?}");
}

/// A pool with jobs that have a log, killed; and the number of events in that log.
fn killed_pool_with_a_log(sandbox: &mut Sandbox) -> (PathBuf, usize) {
    let up = sandbox.up(&["--cpus", "1"]);
    let log = sandbox.path().join("job.log");
    let set = format!("log={}", log.display());
    sandbox.ok(&["submit", "--set", &set, "--count", "3", "--output-dir", ".", "--", "true"]);
    sandbox.ok(&["submit", "--set", &set, "--count", "1", "--output-dir", ".", "--", "sleep", "600"]);
    sandbox.until("all is told", PATIENCE, || events_in(&log) == 11);
    sandbox.kill(up);
    (log, 11)
}

fn events_in(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().matches("\n...\n").count()
}

#[test]
fn notes_of_job_logs_that_are_lost_are_asked_for_and_nothing_is_told_twice() {
    let mut sandbox = Sandbox::new();
    let (log, events) = killed_pool_with_a_log(&mut sandbox);
    let manager = sandbox.state().join("manager");
    let aside = sandbox.path().join("aside");
    for lost in [
        &["joblogs/root.position"][..],
        &["joblogs"],
        &["joblogs.position"],
        &["joblogs", "joblogs.position"],
    ] {
        let user = fs::read_dir(manager.join("joblogs")).unwrap().flatten().next().unwrap().file_name();
        let lost: Vec<String> =
            lost.iter().map(|l| l.replace("root.position", user.to_str().unwrap())).collect();
        for name in &lost {
            fs::rename(manager.join(name), aside.with_extension(name.replace('/', "-"))).unwrap();
        }
        let told = refusal(&sandbox);
        assert!(told.contains("is gone") && told.contains("empty file"), "{lost:?}: {told}");
        for name in &lost {
            // A start makes the directory again.
            let _ = fs::remove_dir(manager.join(name));
            fs::rename(aside.with_extension(name.replace('/', "-")), manager.join(name)).unwrap();
        }
    }
    sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["rm", "--all"]);
    sandbox.until("the removal is told", PATIENCE, || events_in(&log) >= events + 2);
    assert_eq!(events_in(&log), events + 2, "{}", fs::read_to_string(&log).unwrap());
}

#[test]
fn an_empty_pool_is_not_begun_beside_the_machine_of_one_whose_books_are_gone() {
    let mut sandbox = Sandbox::new();
    let up = sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["run", "--quiet", "--", "true"]);
    sandbox.kill(up);
    let manager = sandbox.state().join("manager");
    fs::rename(&manager, sandbox.path().join("manager")).unwrap();
    assert!(refusal(&sandbox).contains("manager is gone or empty"));
    // As where a file system is not mounted.
    fs::create_dir(&manager).unwrap();
    assert!(refusal(&sandbox).contains("manager is gone or empty"));
    fs::remove_dir_all(&manager).unwrap();
    fs::rename(sandbox.path().join("manager"), &manager).unwrap();
    sandbox.up(&["--cpus", "1"]);
    assert!(sandbox.ok(&["run", "--", "echo", "again"]).contains("again"));
}
