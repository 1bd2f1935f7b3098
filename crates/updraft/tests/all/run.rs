//! `updraft run`: outputs, failures, interruption, resumption.

use std::time::Duration;

use crate::harness::{Sandbox, signal, text};

#[test]
fn outputs_come_in_order_and_failures_are_told() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--count", "20", "--", "sh", "-c", "echo item {}"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let expected: String = (0..20).map(|n| format!("item {n}\n")).collect();
    assert_eq!(text(&out.stdout), expected);
    assert!(text(&out.stderr).contains("20 jobs: 20 succeeded"));

    let out = sandbox.run(&[
        "run",
        "--count",
        "4",
        "--output-dir",
        "res",
        "--",
        "sh",
        "-c",
        "echo out; echo bad {} >&2; exit $(( {} / 3 ))",
    ]);
    assert_eq!(out.status.code(), Some(1));
    let told = text(&out.stderr);
    assert!(told.contains("job 2.3 failed: exit code 1") && told.contains("\n    bad 3"), "{told}");
    assert!(told.contains("(sh -c 'echo out; echo bad 3 >&2; exit $(( 3 / 3 ))')"), "{told}");
    assert!(told.contains("3 succeeded, 1 failed"), "{told}");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("res/2.2.out")).unwrap(), "out\n");

    let out = sandbox.run(&["run", "--", "sh", "-c", "kill -9 $$"]);
    assert!(text(&out.stderr).contains("killed by signal 9"), "{}", text(&out.stderr));
    let out = sandbox.run(&["run", "--", "no-such-command-anywhere"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("command not found"));
}

#[test]
fn items_come_from_a_file_or_a_pattern_whatever_they_hold() {
    let sandbox = Sandbox::new();
    let nasty = [
        "plain",
        "two words",
        "quo'te",
        "dou\"ble",
        "$(id)",
        "back\\slash",
        "semi;colon",
        "-dash",
        "ünï",
        "$HOME",
        "a  b",
        "#x",
    ];
    std::fs::write(sandbox.path().join("items"), nasty.join("\n")).unwrap();
    let out = sandbox.run(&["run", "--over", "items", "--", "printf", "<%s>\\n", "{}"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let expected: String = nasty.iter().map(|i| format!("<{i}>\n")).collect();
    assert_eq!(text(&out.stdout), expected);
    for name in ["b.dat", "a.dat", "c.txt"] {
        std::fs::write(sandbox.path().join(name), name).unwrap();
    }
    let out = sandbox.run(&["run", "--over", "*.dat", "--", "cat", "{}"]);
    assert_eq!(text(&out.stdout), "a.datb.dat");
    assert_eq!(sandbox.run(&["run", "--over", "*.none", "--", "true"]).status.code(), Some(1));
}

#[test]
fn a_submit_file_puts_outputs_where_it_says() {
    let sandbox = Sandbox::new();
    let submit = "executable = /bin/sh\narguments = \"-c 'echo $(Item); pwd; echo $FOO'\"\nenvironment = \"FOO=bar\"\n\
                  output = out.$(Process)\nerror = err.$(Process)\nqueue in (alpha, beta)\n";
    std::fs::write(sandbox.path().join("job.sub"), submit).unwrap();
    sandbox.ok(&["run", "job.sub"]);
    let here = sandbox.path().canonicalize().unwrap();
    let beta = std::fs::read_to_string(sandbox.path().join("out.1")).unwrap();
    assert_eq!(beta, format!("beta\n{}\nbar\n", here.display()));
}

#[test]
fn a_job_that_cannot_start_is_held_and_taken_up_when_mended() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("job.sub"), "executable = ./prog\noutput = out\nqueue\n").unwrap();
    std::fs::write(sandbox.path().join("prog"), "#!/no/such/interpreter\n").unwrap();
    let out = sandbox.run(&["run", "job.sub"]);
    assert_eq!(out.status.code(), Some(1));
    let told = text(&out.stderr);
    assert!(told.contains("held") && told.contains("cannot execute") && told.contains("--resume"), "{told}");
    std::fs::write(sandbox.path().join("prog"), "#!/bin/sh\necho mended\n").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(sandbox.path().join("prog"), std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.ok(&["run", "--resume"]);
    assert_eq!(std::fs::read_to_string(sandbox.path().join("out")).unwrap(), "mended\n");
    let out = sandbox.run(&["run", "--resume"]);
    assert!(text(&out.stderr).contains("no interrupted run"), "{}", text(&out.stderr));
}

/// How often each number stands in a file.
fn counts(path: &std::path::Path, jobs: usize) -> Vec<usize> {
    let mut counts = vec![0; jobs];
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        counts[line.parse::<usize>().unwrap()] += 1;
    }
    counts
}

#[test]
fn a_killed_run_is_taken_up_and_every_job_runs_exactly_once() {
    let mut sandbox = Sandbox::new();
    let done = sandbox.path().join("done");
    let script = format!("sleep 0.05; echo {{}} >> {}", done.display());
    let command = sandbox.command(&["run", "--quiet", "--count", "120", "--", "sh", "-c", &script]);
    let pid = sandbox.spawn(command, "run.log");
    let lines = || std::fs::read_to_string(&done).unwrap_or_default().lines().count();
    sandbox.until("some jobs are done", Duration::from_secs(60), || lines() > 20);
    sandbox.kill(pid);
    for round in 0..3 {
        // Killed again and again at other moments, also while it takes up.
        let command = sandbox.command(&["run", "--quiet", "--resume"]);
        let pid = sandbox.spawn(command, "run.log");
        std::thread::sleep(Duration::from_millis(60 + 170 * round));
        sandbox.kill(pid);
    }
    let out = sandbox.run(&["run", "--quiet", "--resume"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("120 succeeded"), "{}", text(&out.stderr));
    assert_eq!(counts(&done, 120), vec![1; 120]);
}

#[test]
fn an_interrupted_run_stops_cleanly_and_is_taken_up() {
    let mut sandbox = Sandbox::new();
    let done = sandbox.path().join("done");
    let script = format!("sleep 0.1; echo {{}} >> {}", done.display());
    let command = sandbox.command(&["run", "--quiet", "--count", "40", "--", "sh", "-c", &script]);
    let pid = sandbox.spawn(command, "run.log");
    let lines = || std::fs::read_to_string(&done).unwrap_or_default().lines().count();
    sandbox.until("some jobs are done", Duration::from_secs(60), || lines() > 5);
    signal(pid, libc::SIGINT);
    let status = sandbox.reap(pid);
    assert_eq!(status.code(), Some(130), "{}", sandbox.logs());
    assert!(sandbox.logs().contains("--resume"));
    // Keepers end when they have seen that nothing is left.
    sandbox.until("nothing runs on after a clean stop", Duration::from_secs(10), || {
        sandbox.processes().is_empty()
    });
    let before = lines();
    let out = sandbox.run(&["run", "--quiet", "--resume"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let counts = counts(&done, 40);
    assert!(counts.iter().all(|c| *c >= 1), "{counts:?}");
    // Those that were cut off in the middle may have left their line; those that had finished never run again.
    assert!(counts.iter().sum::<usize>() <= 40 + 2, "{counts:?}, {before} before");
}

#[test]
fn a_run_that_is_interrupted_before_its_first_job_says_how_it_is_taken_up() {
    let mut sandbox = Sandbox::new();
    let runs = sandbox.state().join("runs");
    let is_kept = || {
        let entries = std::fs::read_dir(&runs).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| path.is_dir())
    };
    let pid = sandbox.spawn(sandbox.command(&["run", "--count", "3", "--", "echo", "{}"]), "run.log");
    // Not `until`, which looks a few times a second: the signal is to come before the private pool is up.
    let begun = std::time::Instant::now();
    while !is_kept() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", sandbox.logs());
        std::thread::sleep(Duration::from_micros(200));
    }
    signal(pid, libc::SIGINT);
    let status = sandbox.reap(pid);
    assert_eq!(status.code(), Some(130), "{}", sandbox.logs());
    assert!(sandbox.logs().contains("--resume"), "{}", sandbox.logs());
    let out = sandbox.run(&["run", "--resume"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "0\n1\n2\n");
}

#[test]
fn a_run_uses_the_pool_that_is_there() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    sandbox.ok(&["submit", "--", "true"]);
    let out = sandbox.run(&["run", "--count", "3", "--", "echo", "{}"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "0\n1\n2\n");
    let events = sandbox.ok(&["events", "--json", "--cluster", "2"]);
    assert_eq!(events.lines().filter(|l| l.contains("JobExited")).count(), 3);
}

/// Processes with this text in their arguments.
fn running(needle: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let matches =
        |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| text(&c).contains(needle));
    pids.filter(matches).collect()
}

#[test]
fn what_a_job_leaves_behind_goes_with_it() {
    let mut sandbox = Sandbox::new();
    // Double fork, a session of its own, and an emptied environment: still below the starter.
    let number = format!("7{}", std::process::id());
    let script = format!("(env -i setsid sleep {number} &) ; (sleep {number} &) ; exit 0");
    let out = sandbox.run(&["run", "--", "sh", "-c", &script]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(running(&number), Vec::<u32>::new());

    // A starter killed with -9: the job dies with it, what it started is found, and the job runs again.
    sandbox.up(&["--cpus", "1"]);
    let log = sandbox.path().join("attempts");
    let script = format!(
        "echo $UPDRAFT_ATTEMPT >> {}; [ $UPDRAFT_ATTEMPT = 1 ] || exit 0; setsid sleep {number} & sleep {number}",
        log.display()
    );
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    sandbox.until("the job and its child run", Duration::from_secs(10), || running(&number).len() >= 3);
    let starters = sandbox.processes().into_iter().filter(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|c| c.split(|b| *b == 0).nth(1) == Some(b"starter"))
    });
    // One of them is the spare; without a claim it is of no interest to anybody.
    for pid in starters {
        signal(pid, libc::SIGKILL);
    }
    sandbox.ok(&["wait", "2", "--timeout", "30"]);
    let attempts = std::fs::read_to_string(&log).unwrap();
    assert!(attempts.starts_with("1\n") && attempts.lines().count() == 2, "{attempts:?}");
    assert_eq!(running(&number), Vec::<u32>::new());
}

#[test]
fn a_run_is_not_taken_up_on_another_pool_than_its_own() {
    let mut sandbox = Sandbox::new();
    let first = sandbox.up(&["--cpus", "1"]);
    let ran = sandbox.path().join("ran");
    let script = format!("echo {{}} >> {}; sleep 600", ran.display());
    let run = sandbox.command(&["run", "--count", "2", "--", "sh", "-c", &script]);
    let run = sandbox.spawn(run, "run.log");
    sandbox.until("a job runs", Duration::from_secs(20), || ran.exists());
    signal(run, libc::SIGINT);
    sandbox.reap(run);
    let told = std::fs::read_to_string(sandbox.path().join("run.log")).unwrap();
    assert!(told.contains("--state-dir"), "how its pool is reached: {told}");
    sandbox.ok(&["rm", "1"]);
    signal(first, libc::SIGTERM);
    sandbox.reap(first);
    // Another pool in the same place.
    for part in ["manager", "agent"] {
        std::fs::remove_dir_all(sandbox.state().join(part)).unwrap();
    }
    sandbox.up(&["--cpus", "1"]);
    let out = sandbox.run(&["run", "--resume"]);
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("was given to the pool") && told.contains("nothing was submitted"), "{told}");
    assert_eq!(sandbox.json(&["queue", "--json"])["clusters"], serde_json::json!([]));
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "0\n", "nothing ran once more");
}
