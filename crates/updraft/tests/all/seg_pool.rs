//! `updraft seg -s updraft`: our own pool's jobs, live, replayed, and from the journal of a pool that is gone. Also the
//! design's list of integration tests.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{Sandbox, signal, text};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A generator that follows.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(sandbox: &Sandbox, from: i64) -> Self {
        let mut child = sandbox
            .command(&["seg", "-s", "updraft", "-t", &from.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends it; what was still to come.
    fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let rest = self.lines.lines().map(Result::unwrap).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }
}

/// Everything from a time on, from whatever there is.
fn replay(sandbox: &Sandbox, from: i64) -> Vec<String> {
    let told = sandbox.ok(&["seg", "-s", "updraft", "--once", "-t", &from.to_string()]);
    told.lines().map(str::to_owned).collect()
}

/// State and code of each job's changes in order.
fn by_job(lines: &[String]) -> BTreeMap<String, Vec<(i32, i32)>> {
    let mut jobs = BTreeMap::<_, Vec<_>>::new();
    for line in lines {
        let fields: Vec<_> = line.split(';').collect();
        assert!(fields.len() == 5 && fields[0] == "001", "{line}");
        jobs.entry(fields[2].to_owned())
            .or_default()
            .push((fields[3].parse().unwrap(), fields[4].parse().unwrap()));
    }
    jobs
}

fn stamp(line: &str) -> i64 {
    line.split(';').nth(1).unwrap().parse().unwrap()
}

fn stop(sandbox: &mut Sandbox, pid: u32) {
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
}

#[test]
fn no_event_is_lost_or_doubled_over_restarts_of_both() {
    let mut sandbox = Sandbox::new();
    let begin = now();
    let nothing = sandbox.run(&["seg", "-s", "updraft"]);
    assert!(nothing.status.code() == Some(1) && text(&nothing.stderr).contains("neither a running pool"));
    let pool = sandbox.up(&[]);
    let mut live = Follower::start(&sandbox, begin);
    sandbox.ok(&["submit", "--count", "5", "--", "true"]);
    sandbox.ok(&["wait", "1"]);
    let mut told: Vec<_> = (0..15).map(|_| live.next()).collect();
    assert_eq!(told[4].split(';').skip(2).collect::<Vec<_>>(), ["001.004.000", "1", "0"]);
    // The pool stops and comes back; the same generator goes on.
    stop(&mut sandbox, pool);
    let pool = sandbox.up(&[]);
    sandbox.ok(&["submit", "--count", "3", "--", "true"]);
    sandbox.ok(&["wait", "2"]);
    told.extend((0..9).map(|_| live.next()));
    assert_eq!(live.end(), [""; 0]);
    let jobs = by_job(&told);
    assert_eq!(jobs.len(), 8);
    assert!(jobs.values().all(|changes| *changes == [(1, 0), (2, 0), (8, 0)]), "{jobs:?}");
    // Another one replays the same, from the manager and from the journal of a pool that is gone.
    assert_eq!(replay(&sandbox, begin), told);
    stop(&mut sandbox, pool);
    assert_eq!(replay(&sandbox, begin), told);
    // From the middle: exactly those at or after that second.
    let middle = stamp(&told[15]);
    let later: Vec<_> = told.iter().filter(|line| stamp(line) >= middle).cloned().collect();
    assert_eq!(replay(&sandbox, middle), later);
    assert_eq!(replay(&sandbox, now() + 1_000), [""; 0]);
}

#[test]
fn jobs_that_succeed_and_fail_in_various_ways() {
    let mut sandbox = Sandbox::new();
    let begin = now();
    sandbox.up(&[]);
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "exit 7"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "kill -9 $$"]);
    sandbox.ok(&["submit", "--set", "hold=true", "--", "true"]);
    sandbox.ok(&["rm", "4"]);
    for cluster in ["1", "2", "3"] {
        // The exit code says how the job ended, which is what is asked below.
        sandbox.run(&["wait", cluster]);
    }
    let jobs = by_job(&replay(&sandbox, begin));
    assert_eq!(jobs["001.000.000"], [(1, 0), (2, 0), (8, 0)]);
    assert_eq!(jobs["002.000.000"], [(1, 0), (2, 0), (8, 7)]);
    assert_eq!(jobs["003.000.000"], [(1, 0), (2, 0), (4, 0)]);
    assert_eq!(jobs["004.000.000"], [(1, 0), (4, 0)]);
    let all = sandbox.ok(&["seg", "-s", "updraft", "--once", "--all-states", "-t", &begin.to_string()]);
    assert!(all.contains(";004.000.000;16;0\n"), "{all}");
}

#[test]
fn completion_stamps_are_reasonable_for_sleep_jobs() {
    let mut sandbox = Sandbox::new();
    let begin = now();
    sandbox.up(&[]);
    sandbox.ok(&["submit", "--", "sleep", "2"]);
    sandbox.ok(&["wait", "1"]);
    let lines = replay(&sandbox, begin);
    assert_eq!(lines.len(), 3);
    let [submitted, started, ended] = [0, 1, 2].map(|n| stamp(&lines[n]));
    assert!(begin <= submitted && submitted <= started, "{lines:?}");
    // Not before it could end; stamps are cut to whole seconds.
    assert!(ended - started >= 1 && ended <= now() && ended - started < 20, "{lines:?}");
}

#[test]
fn the_end_of_the_input_is_noticed_at_once_also_here() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&[]);
    let follower = Follower::start(&sandbox, 1);
    std::thread::sleep(Duration::from_millis(300));
    let start = std::time::Instant::now();
    follower.end();
    assert!(start.elapsed() < Duration::from_millis(1_000), "{:?}", start.elapsed());
}

#[test]
fn the_journal_of_a_pool_at_rest_is_read_also_when_its_socket_is_gone() {
    let mut sandbox = Sandbox::new();
    let begin = now();
    let pid = sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    stop(&mut sandbox, pid);
    let expected = replay(&sandbox, begin);
    assert!(!expected.is_empty());
    let _ = std::fs::remove_file(sandbox.state().join("manager.sock"));
    assert_eq!(replay(&sandbox, begin), expected);
}
