//! `updraft monitor` as a process: requests and changes as JSON lines, the design's integration test (I1) on three kinds of
//! jobs, and fifty kills of monitor and generator.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fork_starter::{Globus, Starter, new_log, usual};
use crate::harness::{Random, Sandbox, signal, text};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A monitor to talk to.
struct Portal {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// Changes that came while something else was waited for.
    waiting: Vec<Value>,
}

impl Portal {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let mut command = sandbox.command(&[&["monitor"], arguments].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { input: child.stdin.take(), child, lines, waiting: Vec::new() }
    }

    fn say(&mut self, request: &Value) {
        // One that was killed does not hear; the next one does.
        let _ = self.input.as_mut().unwrap().write_all(format!("{request}\n").as_bytes());
    }

    /// The next line; `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        // A monitor that is killed may leave a line unfinished.
        serde_json::from_str(line.strip_suffix('\n')?).ok()
    }

    /// The next line that has this member.
    fn hear_until(&mut self, member: &str) -> Value {
        loop {
            let line = self.hear().unwrap_or_else(|| panic!("no {member}"));
            if line.get(member).is_some() {
                return line;
            }
            self.waiting.extend(Some(line).filter(|l| l.get("state").is_some()));
        }
    }

    fn changes(&mut self, count: usize) -> Vec<Value> {
        let mut changes = std::mem::take(&mut self.waiting);
        while changes.len() < count {
            let line = self.hear().unwrap_or_else(|| panic!("only {changes:?}"));
            changes.extend(Some(line).filter(|l| l.get("state").is_some()));
        }
        assert_eq!(changes.len(), count, "{changes:?}");
        changes
    }

    /// Ends its input and waits for it; what it still said.
    fn end(mut self) -> Vec<Value> {
        drop(self.input.take());
        let mut rest = Vec::new();
        while let Some(line) = self.hear() {
            rest.push(line);
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }
}

fn change(line: &Value) -> (String, String, i64) {
    (
        line["id"].as_str().unwrap().to_owned(),
        line["state"].as_str().unwrap().to_owned(),
        line["code"].as_i64().unwrap(),
    )
}

#[test]
fn ids_are_registered_told_acknowledged_and_unregistered_over_json_lines() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "001;100;a;1;0\n001;100;a;2;0\n001;101;b;8;3\n").unwrap();
    let datum = sandbox.path().join("datum");
    let arguments =
        ["-s", "fork", "--log-path", log.to_str().unwrap(), "--start", "1", "--ack", "--follow", "--datum"];
    let arguments = [&arguments[..], &[datum.to_str().unwrap()]].concat();
    let mut portal = Portal::start(&sandbox, &arguments);
    portal.say(&json!({ "register": "a", "key": "A" }));
    portal.say(&json!({ "register": "a", "key": "B" }));
    portal.say(&json!({ "unregister": "x" }));
    portal.say(&json!({ "what": 1 }));
    let mut heard: Vec<_> = (0..5).map(|_| portal.hear().unwrap()).collect();
    heard.sort_by_key(ToString::to_string);
    let first = heard.iter().find(|l| l.get("state").is_some()).unwrap().clone();
    assert_eq!(change(&first), ("a".into(), "pending".into(), 0));
    assert_eq!((&first["key"], &first["time"]), (&json!("A"), &json!(100)));
    assert!(heard.contains(&json!({ "registered": ["a"], "key": "A" })), "{heard:?}");
    assert!(heard.contains(&json!({ "error": "AlreadyRegistered", "id": "a" })));
    assert!(heard.contains(&json!({ "error": "NotRegistered", "id": "x" })));
    assert!(heard.iter().any(|l| l["error"] == "BadRequest"));
    // Nothing more of this key before it is acknowledged.
    portal.say(&json!({ "status": true }));
    let status = portal.hear_until("status");
    assert_eq!(portal.waiting, Vec::<Value>::new());
    assert_eq!((&status["status"]["undelivered"], &status["status"]["datum"]), (&json!(2), &json!(100)));
    portal.say(&json!({ "ack": first["n"] }));
    assert_eq!(portal.hear_until("acked")["acked"], first["n"]);
    let second = portal.changes(1).remove(0);
    assert_eq!(change(&second), ("a".into(), "active".into(), 0));
    portal.say(&json!({ "ack": 12345 }));
    assert_eq!(portal.hear_until("error")["error"], "NotOpen");
    portal.end();
    // The second was not acknowledged: it is told again, the first is not.
    let mut portal = Portal::start(&sandbox, &arguments);
    portal.say(&json!({ "register": ["a", "b"], "key": "both" }));
    let again = portal.changes(1).remove(0);
    assert_eq!(change(&again), ("a".into(), "active".into(), 0));
    assert_eq!(again["job"], json!({ "state": "active", "code": 0 }));
    portal.say(&json!({ "unregister": "a" }));
    assert_eq!(portal.hear_until("unregistered"), json!({ "unregistered": "a" }));
    assert_eq!(change(&portal.changes(1)[0]), ("b".into(), "done".into(), 3));
    signal(portal.child.id(), libc::SIGTERM);
    assert_eq!(portal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn without_follow_it_ends_when_all_registered_jobs_are_over() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "001;100;a;1;0\n001;100;b;2;0\n001;101;b;4;0\n").unwrap();
    let requests = sandbox.path().join("requests");
    fs::write(&requests, "{\"register\":\"a\",\"key\":\"A\"}\n\n{\"register\":\"b\",\"key\":\"B\"}\n")
        .unwrap();
    let arguments = ["-s", "fork", "--log-path", log.to_str().unwrap(), "--start", "1", "--register"];
    let mut portal = Portal::start(&sandbox, &[&arguments[..], &[requests.to_str().unwrap()]].concat());
    assert_eq!(portal.changes(3).len(), 3);
    let mut append = fs::OpenOptions::new().append(true).open(&log).unwrap();
    append.write_all(b"001;102;a;8;9\n").unwrap();
    assert_eq!(change(&portal.changes(1)[0]), ("a".into(), "done".into(), 9));
    // The reply to a registration may come after the changes.
    while let Some(line) = portal.hear() {
        assert!(line["registered"].is_array(), "{line}");
    }
    assert_eq!(portal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_generator_that_cannot_do_its_work_is_an_error_at_the_start() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["monitor", "-s", "nosuch"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("Invalid module nosuch: activation failed"), "{}", text(&out.stderr));
    let out = sandbox.run(&["monitor", "-s", "pbs", "--command", "/nonexistent/generator"]);
    assert!(
        text(&out.stderr).contains("cannot start the generator /nonexistent/generator"),
        "{}",
        text(&out.stderr)
    );
    let out = sandbox.run(&["monitor", "-s", "pbs", "--command", "generator", "--log-path", "/x"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn an_end_that_is_in_the_log_already_is_told_before_it_ends() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    // Over, put back, and over again: the first end is not the last word.
    let lines = "001;1795000006;o;2;0\n001;1795000007;q;8;0\n001;1795000007;q;2;0\n001;1795000008;q;8;1\n001;1795000009;p;2;0\n";
    fs::write(&log, lines).unwrap();
    let requests = sandbox.path().join("requests");
    fs::write(&requests, "{\"register\":\"q\",\"key\":\"Q\"}\n").unwrap();
    let (log, requests) = (log.to_str().unwrap(), requests.to_str().unwrap());
    // Several times: whether the end came first was a matter of luck.
    for _ in 0..12 {
        let out = sandbox.run(&[
            "monitor",
            "-s",
            "fork",
            "--log-path",
            log,
            "--start",
            "1",
            "--register",
            requests,
        ]);
        assert_eq!(text(&out.stdout).matches("\"state\"").count(), 3, "{}", text(&out.stdout));
    }
}

#[test]
fn a_directory_in_place_of_requests_is_an_error() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "").unwrap();
    let place = sandbox.path().to_str().unwrap();
    let out =
        sandbox.run(&["monitor", "-s", "fork", "--log-path", log.to_str().unwrap(), "--register", place]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("is a directory"), "{}", text(&out.stderr));
}

#[test]
fn a_request_that_is_too_long_is_refused_and_the_next_one_is_answered() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork.log");
    let arguments = ["-s", "fork", "--log-path", log.to_str().unwrap(), "--follow"];
    let mut portal = Portal::start(&sandbox, &arguments);
    portal.say(&json!({ "register": "x".repeat(16 << 20), "key": "A" }));
    portal.say(&json!({ "register": "a", "key": "A" }));
    let refused = portal.hear().unwrap();
    assert_eq!(refused["error"], "BadRequest");
    assert!(refused["reason"].as_str().unwrap().contains("more than 16777216 bytes"), "{refused}");
    assert_eq!(portal.hear().unwrap()["registered"], json!(["a"]));
    assert!(portal.end().is_empty());
}

#[test]
fn sections_of_the_configuration_are_checked_and_used() {
    let sandbox = Sandbox::new();
    let conf = sandbox.path().join("updraft.conf");
    // Whether this machine has a sudo is not to matter.
    let programs = sandbox.open_dir("programs");
    let usual = std::env::var("PATH").unwrap();
    let check_with = |text: &str, path: &str| {
        fs::write(&conf, text).unwrap();
        let mut command = sandbox.command(&["config", "check", "-f", conf.to_str().unwrap()]);
        let out = command.env("PATH", path).output().unwrap();
        (out.status.success(), crate::harness::text(&out.stderr))
    };
    let check = |text: &str| check_with(text, &format!("{}:{usual}", programs.display()));
    let with_user = "MONITORS = pbs\nMONITOR_PBS_USER = root\n";
    let (is_good, said) = check_with(with_user, programs.to_str().unwrap());
    assert!(!is_good && said.contains("MONITOR_PBS_USER: sudo is not to be found"), "{said}");
    fs::copy("/bin/true", programs.join("sudo")).unwrap();
    assert!(check(with_user).0, "{}", check(with_user).1);
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "001;100;a;4;0\n001;101;a;8;271\n").unwrap();
    let good = format!(
        "MONITORS = fork, pbs_acct\nMONITOR_FORK_LOG_PATH = {}\nMONITOR_FORK_DATUM = {}/datum\nMONITOR_FORK_RAW = true\n\
         MONITOR_PBS_ACCT_USER = root\nMONITOR_PBS_ACCT_DISCARD = 10 * 60\n",
        log.display(),
        sandbox.path().display()
    );
    for (wrong, word) in [
        ("MONITORS = pbs\nMONITOR_PBS_COMAND = x\n", "did you mean MONITOR_PBS_COMMAND?"),
        ("MONITOR_PBS_COMMAND = x\n", "MONITORS lists the schedulers"),
        ("MONITORS = pbs\nMONITOR_PBS_DISCARD = soon\n", "MONITOR_PBS_DISCARD"),
        ("MONITORS = pbs\nMONITOR_PBS_SLACK = -5\n", "is negative"),
        ("MONITORS = pbs\nMONITOR_PBS_THREADS = 0\n", "is not between 1 and 256"),
        ("MONITORS = pbs\nMONITOR_PBS_THREADS = 1000000\n", "is not between"),
        ("MONITORS = pbs\nMONITOR_PBS_CACHE_BYTES = 99999999999999999999999\n", "MONITOR_PBS_CACHE_BYTES"),
        ("MONITORS = pbs\nMONITOR_PBS_DISCARD = 99999999999999999999\n", "MONITOR_PBS_DISCARD"),
        ("MONITORS = pbs\nMONITOR_PBS_CACHE_EVENTS = 0\n", "is not between"),
        ("MONITORS = pbs\nMONITOR_PBS_QUEUE_EVENTS = 0\n", "is not between"),
        ("MONITORS = pbs\nMONITOR_PBS_USER = no such user\n", "there is no such user"),
        ("MONITORS = pbs\nMONITOR_PBS_COMMAND =\n", "is set to nothing"),
        ("MONITORS = pbs\nMONITOR_PBS_COMMAND = /nonexist\n", "no program that can be run"),
        ("MONITORS = pbs\nMONITOR_PBS_DATUM = /\n", "is a directory"),
        ("MONITORS = pbs\nMONITOR_PBS_DATUM = /nope/x\n", "there is no directory /nope"),
        ("MONITORS = nosuch\n", "has no module"),
        ("MONITORS = ../x\n", "no name of a scheduler"),
        ("MONITORS = pbs\nMONITOR_PBS_DATUM = here\n", "not a whole path"),
        ("MONITORS = pbs\nMONITOR_PBS_RAW = perhaps\n", "MONITOR_PBS_RAW"),
        (
            "MONITORS = pbs\nMONITOR_PBS_LOG_PATH = /nope\n",
            "MONITOR_PBS_LOG_PATH = /nope: there is no such directory",
        ),
        ("MONITORS = pbs\nMONITOR_PBS_LOG_PATH = /etc/passwd\n", "this is no directory"),
        ("MONITORS = sge\nMONITOR_SGE_LOG_PATH = /tmp\n", "this is a directory"),
        ("MONITORS = sge\nMONITOR_SGE_LOG_PATH = /dev/null\n", "this is no file"),
        ("MONITORS = sge\nMONITOR_SGE_LOG_PATH = /nope/log\n", "nor its directory"),
        (
            "MONITORS = pbs, sge\nMONITOR_PBS_DATUM = /tmp/x\nMONITOR_SGE_DATUM = /tmp/../tmp//x\n",
            "the same datum",
        ),
        ("MONITORS = pbs\nMONITOR_PBS_DATUM = /proc/self/exe\n", "is a symbolic link"),
        (
            "MONITORS = pbs\nMONITOR_PBS_COMMAND = /usr/sbin/generator\nMONITOR_PBS_LOG_PATH = /x\n",
            "has no effect",
        ),
    ] {
        let (is_good, said) = check(wrong);
        assert!(!is_good && said.contains(word), "{wrong}: {said}");
    }
    let (is_good, said) = check(
        "MONITORS = condor, sge\nMONITOR_CONDOR_LOG_PATH = /tmp\nMONITOR_SGE_LOG_PATH = /tmp/no-such-log-of-sge\n",
    );
    assert!(is_good && said.contains("there is no such file; it is waited for"), "{said}");
    let (_, said) = check("MONITORS = pbs, pbs\nMONITOR_PBS_SLACK = -5\n");
    assert_eq!(said.matches("is negative").count(), 1, "{said}");
    assert!(check(&good).0, "{}", check(&good).1);
    let requests = sandbox.path().join("requests");
    fs::write(&requests, "{\"register\":\"a\",\"key\":\"A\"}\n").unwrap();
    let mut portal = Portal::start(
        &sandbox,
        &[
            "-s",
            "fork",
            "--config",
            conf.to_str().unwrap(),
            "--start",
            "1",
            "--follow",
            "--register",
            requests.to_str().unwrap(),
        ],
    );
    let states: Vec<_> = portal.changes(2).iter().map(change).collect();
    assert_eq!(states[1], ("a".into(), "done".into(), 271), "raw: the second end is told");
    signal(portal.child.id(), libc::SIGTERM);
    portal.child.wait().unwrap();
    assert_eq!(fs::read_to_string(sandbox.path().join("datum")).unwrap(), "updraft-monitor 1 101\n");
}

#[test]
fn a_monitor_whose_output_nobody_reads_ends_when_it_is_told_to() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    let lines: String = (0..20_000).map(|n| format!("001;{};a;{};0\n", 1_000 + n, 1 + n % 2)).collect();
    fs::write(&log, lines).unwrap();
    for way in [libc::SIGTERM, libc::SIGINT, 0] {
        let arguments = ["-s", "fork", "--log-path", log.to_str().unwrap(), "--start", "1", "--follow"];
        let mut portal = Portal::start(&sandbox, &arguments);
        portal.say(&json!({ "register": "a", "key": "A" }));
        // It speaks, and then nobody listens.
        assert!(portal.hear().is_some());
        if way == 0 {
            drop(portal.input.take());
        } else {
            signal(portal.child.id(), way);
        }
        let mut status = None;
        sandbox.until("the monitor ends", Duration::from_secs(30), || {
            status = portal.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0), "{way}");
        sandbox.until("its generator ends", Duration::from_secs(30), || {
            sandbox.processes_working_here().is_empty()
        });
    }
}

#[test]
fn an_output_that_is_closed_or_full_is_an_error_and_nothing_counts_as_told() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "001;100;a;2;0\n001;101;a;8;3\n").unwrap();
    let (datum, requests) = (sandbox.path().join("datum"), sandbox.path().join("requests"));
    fs::write(&requests, "{\"register\":\"a\",\"key\":\"A\"}\n").unwrap();
    let call = format!(
        "monitor -s fork --start 1 --log-path {} --datum {} --register {}",
        log.display(),
        datum.display(),
        requests.display()
    );
    let words: Vec<_> = call.split(' ').collect();
    for (redirect, reason) in
        [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")]
    {
        let program = crate::harness::updraft();
        let mut command = sandbox.command(&[]);
        let line = format!("exec {} {call} {redirect}", program.display());
        let mut shell = std::process::Command::new("sh");
        for (name, value) in command.stdin(Stdio::null()).get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        let out = shell.args(["-c", &line]).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{redirect}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(reason), "{redirect}: {}", text(&out.stderr));
    }
    // All is told by one who is heard, and then never again; a job that is known to be over is not waited for.
    for expected in [2, 0] {
        let out = sandbox.run(&words);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert_eq!(text(&out.stdout).matches("\"state\"").count(), expected, "{}", text(&out.stdout));
    }
}

#[test]
fn a_reader_that_is_gone_is_an_error_also_when_only_a_reply_is_to_be_told() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    for events in ["", "001;100;a;2;0\n"] {
        fs::write(&log, events).unwrap();
        let mut child = sandbox
            .command(&[
                "monitor",
                "-s",
                "fork",
                "--start",
                "1",
                "--follow",
                "--log-path",
                log.to_str().unwrap(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut input = child.stdin.take().unwrap();
        // It may be gone by then.
        let _ = writeln!(input, "{}", json!({ "register": "a", "key": "A" }));
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{events}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains("standard output: its reader is gone"), "{}", text(&out.stderr));
        drop(input);
    }
}

#[test]
fn a_handled_file_that_is_damaged_is_said() {
    let sandbox = Sandbox::new();
    let (log, datum) = (sandbox.path().join("fork.log"), sandbox.path().join("datum"));
    fs::write(&log, "001;100;a;2;0\n").unwrap();
    let call = format!("monitor -s fork --start 1 --log-path {} --datum {}", log.display(), datum.display());
    let words: Vec<_> = call.split(' ').collect();
    for (damage, said) in [
        ("garbage", "datum.handled: it ended in the middle of a line"),
        ("001;100;a;2;0\n001;100;b", "its last 9 bytes are removed"),
        ("garbage\n", "datum.handled: damaged lines: 1"),
        ("\0\0\0", "its last 3 bytes are removed"),
    ] {
        fs::write(sandbox.path().join("datum.handled"), damage).unwrap();
        let out = sandbox.run(&words);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains(said), "{damage}: {}", text(&out.stderr));
    }
}

#[test]
fn a_change_that_cannot_be_kept_is_not_called_acknowledged() {
    if !crate::harness::is_root() {
        return crate::harness::skip("only root mounts a small disk");
    }
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("fork.log");
    fs::write(&log, "001;100;a;2;0\n").unwrap();
    // A disk of its own in a namespace of its own: it goes with the monitor.
    let disk = sandbox.open_dir("disk");
    let script = format!(
        "mount -t tmpfs -o size=64k none {disk} && exec {program} monitor -s fork --log-path {log} --start 1 --ack \
         --follow --datum {disk}/datum",
        disk = disk.display(),
        program = crate::harness::updraft().display(),
        log = log.display()
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let mut portal = Portal { input: child.stdin.take(), child, lines, waiting: Vec::new() };
    portal.say(&json!({ "register": "a", "key": "A" }));
    let change = portal.hear_until("state");
    // Filled through the monitor's own root, where the disk is to be seen.
    let inside = format!("/proc/{}/root{}/filler", portal.child.id(), disk.display());
    let _ = fs::write(inside, vec![1; 1 << 20]);
    portal.say(&json!({ "ack": change["n"] }));
    let reply = portal.hear_until("error");
    assert_eq!((&reply["error"], &reply["ack"]), (&json!("NotKept"), &change["n"]));
    portal.end();
}

#[test]
fn a_scheduler_that_is_polled_repeats_nothing_after_kills_and_misses_who_left() {
    let sandbox = Sandbox::new();
    let (answer, conf) = (sandbox.path().join("answer"), sandbox.path().join("poll.conf"));
    fs::write(&answer, "a active\nb done 3\nc pending\n").unwrap();
    fs::write(&conf, format!("command=\"cat {}\"\ninterval=1\ngone=failed\n", answer.display())).unwrap();
    let datum = sandbox.path().join("datum");
    let program = crate::harness::updraft();
    let words = ["-s", "poll", "--ack", "--follow", "--datum", datum.to_str().unwrap()];
    let generator = [program.to_str().unwrap(), "seg", "--config", conf.to_str().unwrap()];
    let command: Vec<_> = generator.iter().flat_map(|word| ["--command", word]).collect();
    let arguments = [&words[..], &command].concat();
    let mut portal = Portal::start(&sandbox, &arguments);
    let register = |portal: &mut Portal| {
        for id in ["a", "b", "c"] {
            portal.say(&json!({ "register": id, "key": id }));
        }
    };
    register(&mut portal);
    for first in portal.changes(3) {
        portal.say(&json!({ "ack": first["n"] }));
        portal.hear_until("acked");
    }
    signal(portal.child.id(), libc::SIGKILL);
    portal.child.wait().unwrap();
    // One leaves while nobody looks.
    fs::write(&answer, "a active\nb done 3\n").unwrap();
    let mut portal = Portal::start(&sandbox, &arguments);
    register(&mut portal);
    assert_eq!(change(&portal.changes(1)[0]), ("c".into(), "failed".into(), 0));
    portal.say(&json!({ "status": true }));
    assert!(portal.hear_until("status").is_object() && portal.waiting.is_empty(), "{:?}", portal.waiting);
    portal.end();
}

/// Registers ids, and tells their changes until all are over.
fn follow_to_the_end(
    sandbox: &Sandbox,
    arguments: &[&str],
    ids: &[String],
) -> BTreeMap<String, Vec<(i64, String, i64)>> {
    let mut portal = Portal::start(sandbox, arguments);
    for id in ids {
        portal.say(&json!({ "register": id, "key": id }));
    }
    drop(portal.input.take());
    let mut told = BTreeMap::<_, Vec<_>>::new();
    while let Some(line) = portal.hear() {
        if line.get("state").is_some() {
            let (id, state, code) = change(&line);
            told.entry(id).or_default().push((line["time"].as_i64().unwrap(), state, code));
        }
    }
    assert_eq!(portal.child.wait().unwrap().code(), Some(0));
    told
}

fn states(told: &[(i64, String, i64)]) -> Vec<(&str, i64)> {
    told.iter().map(|(_, state, code)| (state.as_str(), *code)).collect()
}

#[test]
fn i1_jobs_of_our_own_pool_succeed_fail_and_are_cancelled() {
    let mut sandbox = Sandbox::new();
    let begin = now().to_string();
    sandbox.up(&[]);
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "exit 7"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "kill -9 $$"]);
    sandbox.ok(&["submit", "--", "sleep", "2"]);
    sandbox.ok(&["submit", "--", "sleep", "1000"]);
    let ids: Vec<_> = (1..=5).map(|n| format!("00{n}.000.000")).collect();
    sandbox.until("the last one runs", Duration::from_secs(30), || {
        sandbox.ok(&["seg", "-s", "updraft", "--once", "-t", &begin]).contains(";005.000.000;2;")
    });
    sandbox.ok(&["rm", "5"]);
    let told = follow_to_the_end(&sandbox, &["-s", "updraft", "--start", &begin], &ids);
    assert_eq!(states(&told[&ids[0]]), [("pending", 0), ("active", 0), ("done", 0)]);
    assert_eq!(states(&told[&ids[1]]), [("pending", 0), ("active", 0), ("done", 7)]);
    assert_eq!(states(&told[&ids[2]]), [("pending", 0), ("active", 0), ("failed", 0)]);
    assert_eq!(states(&told[&ids[3]]), [("pending", 0), ("active", 0), ("done", 0)]);
    assert_eq!(states(&told[&ids[4]])[..3], [("pending", 0), ("active", 0), ("failed", 0)]);
    // Its manager hears of the start a moment after it: a second may lie between.
    let sleep = &told[&ids[3]];
    assert!(sleep[2].0 - sleep[1].0 >= 1, "{sleep:?}");
}

/// The same with fork jobs of a starter; `sleep 2` never seems shorter than that.
fn i1_with(sandbox: &Sandbox, log: &Path, mut starter: Starter, is_exact: bool) {
    let mut ids = Vec::new();
    let rest = usual(sandbox);
    for (tag, arguments) in
        [("a", "exit 0"), ("b", "exit 7"), ("c", "kill -9 $$"), ("d", "sleep 2"), ("e", "sleep 1000")]
    {
        let line = format!(
            "100;{tag};executable=/bin/sh;environment=PATH=/bin:/usr/bin;arguments=-c,{arguments};{rest}"
        );
        ids.extend(starter.job(&line));
    }
    let cancelled: u32 = ids[4].rsplit(':').next().unwrap().parse().unwrap();
    // The group, as the adapter does it.
    signal(0u32.wrapping_sub(cancelled), libc::SIGTERM);
    let told = follow_to_the_end(
        sandbox,
        &["-s", "fork", "--log-path", log.to_str().unwrap(), "--start", "1"],
        &ids,
    );
    starter.end();
    assert_eq!(states(&told[&ids[0]]), [("active", 0), ("done", 0)]);
    assert_eq!(states(&told[&ids[1]]), [("active", 0), ("done", 7)]);
    assert_eq!(states(&told[&ids[2]]), [("active", 0), ("failed", 0)]);
    assert_eq!(states(&told[&ids[3]]), [("active", 0), ("done", 0)]);
    assert_eq!(states(&told[&ids[4]]), [("active", 0), ("failed", 0)]);
    let sleep = &told[&ids[3]];
    assert!(sleep[1].0 - sleep[0].0 >= if is_exact { 2 } else { 1 }, "{sleep:?}");
}

#[test]
fn i1_jobs_of_our_fork_starter_succeed_fail_and_are_cancelled() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork.log");
    i1_with(&sandbox, &log, Starter::ours(&sandbox, &log), true);
}

#[test]
fn i1_jobs_of_the_packaged_fork_starter_succeed_fail_and_are_cancelled() {
    let Some(globus) = Globus::find() else { return };
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork.log");
    // It takes the time of a start after the start.
    i1_with(&sandbox, &log, Starter::start(globus.starter(&log)), false);
}

#[test]
fn a_datum_whose_day_is_gone_or_before_all_logs_costs_nothing_of_what_is_there() {
    let sandbox = Sandbox::new();
    let logs = sandbox.path().join("days");
    fs::create_dir(&logs).unwrap();
    let datum = sandbox.path().join("datum");
    for stored in [1, MIDNIGHT] {
        for (day, stamp) in [("20240503", MIDNIGHT + 2 * 86_400), ("20240504", MIDNIGHT + 3 * 86_400)] {
            fs::write(logs.join(day), format!("001;{stamp};a;2;0\n001;{stamp};a;16;0\n")).unwrap();
        }
        let _ = fs::remove_file(sandbox.path().join("datum.handled"));
        fs::write(&datum, format!("updraft-monitor 1 {stored}\n")).unwrap();
        let arguments = ["-s", "job_manager", "--follow", "--datum", datum.to_str().unwrap(), "--log-path"];
        let mut portal = Portal::start(&sandbox, &[&arguments[..], &[logs.to_str().unwrap()]].concat());
        portal.say(&json!({ "register": "a", "key": "A" }));
        let states: Vec<_> = portal.changes(4).iter().map(|c| change(c).1).collect();
        assert_eq!(states, ["active", "suspended", "active", "suspended"]);
        portal.end();
        assert_eq!(
            fs::read_to_string(&datum).unwrap(),
            format!("updraft-monitor 1 {}\n", MIDNIGHT + 3 * 86_400)
        );
    }
}

const JOBS: usize = 100;
const EVENTS: usize = 10_000;
const KILLS: usize = 50;
/// The first second of a UTC day.
const MIDNIGHT: i64 = 1_714_521_600;

/// Event `n` of the log: its second, job, and state. Three midnights lie between first and last; equal events follow each
/// other within a second.
fn event(n: usize) -> (i64, String, i64) {
    let stamp = MIDNIGHT + 86_400 * (n * 4 / EVENTS) as i64 + (n % (EVENTS / 4) / 40) as i64;
    let state = [1, 2, 16, 2][n / JOBS % 4];
    (stamp, format!("job{}", n * 7 % JOBS), state)
}

/// What one life of a portal has seen.
#[derive(Default)]
struct Books {
    /// Stamp and state of each job's changes, in order, each once.
    told: HashMap<String, Vec<(i64, i64)>>,
    /// The last change of each job whose acknowledgement was not confirmed.
    unconfirmed: HashMap<String, u64>,
}

impl Books {
    fn take(&mut self, line: &Value) {
        let id = line["id"].as_str().unwrap().to_owned();
        let state = match line["state"].as_str().unwrap() {
            "pending" => 1,
            "active" => 2,
            "suspended" => 16,
            other => panic!("{other}"),
        };
        let change = (line["time"].as_i64().unwrap(), state);
        let number = line["n"].as_u64().unwrap();
        let told = self.told.entry(id.clone()).or_default();
        // Only what the monitor has not confirmed may come again, and only as the first of a life.
        let was_open = self.unconfirmed.insert(id, number).is_some_and(|old| old == u64::MAX);
        if !(was_open && told.last() == Some(&change)) {
            told.push(change);
        }
    }

    fn confirm(&mut self, number: u64) {
        self.unconfirmed.retain(|_, open| *open != number);
    }

    fn count(&self) -> usize {
        self.told.values().map(Vec::len).sum()
    }

    /// A monitor died: what it had not confirmed may come again.
    fn bury(&mut self) {
        self.unconfirmed.values_mut().for_each(|open| *open = u64::MAX);
    }
}

/// Appends event `n` to the file of its day.
fn write_to_days(logs: &Path, n: usize) {
    let (stamp, id, state) = event(n);
    let day = ["20240501", "20240502", "20240503", "20240504"][((stamp - MIDNIGHT) / 86_400) as usize];
    let mut file = fs::OpenOptions::new().create(true).append(true).open(logs.join(day)).unwrap();
    file.write_all(format!("001;{stamp};{id};{state};0\n").as_bytes()).unwrap();
}

/// Appends event `n` to a log that is renamed three times on the way.
fn write_to_rotated(logs: &Path, n: usize) {
    let log = |k: usize| logs.join(if k == 0 { "log".to_owned() } else { format!("log.{k}") });
    if n > 0 && n.is_multiple_of(EVENTS / 4) {
        for k in (0..n * 4 / EVENTS).rev() {
            fs::rename(log(k), log(k + 1)).unwrap();
        }
    }
    let (stamp, id, state) = event(n);
    let mut file = fs::OpenOptions::new().create(true).append(true).open(log(0)).unwrap();
    file.write_all(format!("001;{stamp};{id};{state};0\n").as_bytes()).unwrap();
}

#[test]
fn fifty_kills_of_monitor_and_generator_lose_and_double_nothing_over_three_midnights() {
    drill("job_manager", "", write_to_days);
}

#[test]
fn fifty_kills_of_monitor_and_generator_lose_and_double_nothing_over_three_rotations() {
    drill("fork", "log", write_to_rotated);
}

fn drill(module: &str, log: &str, write_event: fn(&Path, usize)) {
    let sandbox = Sandbox::new();
    let logs = sandbox.path().join("logs");
    fs::create_dir(&logs).unwrap();
    write_event(&logs, 0);
    let mut random = Random(20_260_101);
    let mut books = Books::default();
    let (mut written, mut kills) = (1, 0);
    let (datum, log) = (sandbox.path().join("datum"), logs.join(log));
    let arguments = ["-s", module, "--raw", "--ack", "--follow", "--start", "1", "--log-path"];
    let arguments = [&arguments[..], &[log.to_str().unwrap(), "--datum", datum.to_str().unwrap()]].concat();
    while books.count() < EVENTS || kills < KILLS {
        let mut portal = Portal::start(&sandbox, &arguments);
        for job in 0..JOBS {
            portal.say(&json!({ "register": format!("job{job}"), "key": format!("{}", job % 60) }));
        }
        let mut until_kill = 1 + random.below(150);
        let mut is_generators_turn = kills % 5 == 4;
        loop {
            // More than a life can see, so that none waits for something that is not there.
            let target = ((kills + 1) * EVENTS / KILLS).min(EVENTS);
            if written < target {
                let part = (written + 40 + random.below(100) as usize).min(target);
                (written..part).for_each(|n| write_event(&logs, n));
                written = part;
            }
            let Some(line) = portal.hear() else { break };
            if line.get("state").is_some() {
                books.take(&line);
                portal.say(&json!({ "ack": line["n"] }));
            } else if let Some(number) = line["acked"].as_u64() {
                books.confirm(number);
                until_kill = until_kill.saturating_sub(1);
            } else if let Some(pid) = line["status"]["generator"]["pid"].as_u64() {
                signal(pid as u32, libc::SIGKILL);
                kills += 1;
            }
            let is_all = books.count() == EVENTS;
            if is_all && kills >= KILLS {
                break;
            }
            if until_kill == 0 && std::mem::take(&mut is_generators_turn) && !is_all {
                portal.say(&json!({ "status": true }));
                until_kill = 1 + random.below(100);
            } else if kills < KILLS && (until_kill == 0 || is_all) {
                kills += 1;
                break;
            }
        }
        signal(portal.child.id(), libc::SIGKILL);
        portal.child.wait().unwrap();
        books.bury();
    }
    assert!(kills >= KILLS, "{kills}");
    let mut expected = HashMap::<String, Vec<(i64, i64)>>::new();
    for n in 0..EVENTS {
        let (stamp, id, state) = event(n);
        expected.entry(id).or_default().push((stamp, state));
    }
    for (id, wanted) in &expected {
        let told = books.told.get(id).map(Vec::as_slice).unwrap_or_default();
        let at = told.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(told.len().min(wanted.len()));
        let around = |list: &[(i64, i64)]| list[at.saturating_sub(2)..list.len().min(at + 3)].to_vec();
        assert_eq!(around(told), around(wanted), "{id} differs at {at}, {} of {}", told.len(), wanted.len());
    }
    assert_eq!(books.told.len(), expected.len());
}
