//! `updraft usage` on the real binary: since when it knows, rows and sums that agree, a clock that is set.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Sandbox, signal, skip, text};

fn core_ms(value: &serde_json::Value, of: &str) -> u64 {
    value["pool"][format!("{of}_core_ms")].as_u64().unwrap()
}

#[test]
fn usage_says_since_when_it_knows_and_rows_add_up_to_its_sums() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "2"]);
    sandbox.ok(&["submit", "--count", "3", "--", "sleep", "0.1"]);
    sandbox.ok(&["wait", "1", "--timeout", "30"]);
    let usage = sandbox.json(&["usage", "--json"]);
    let known = usage["known_since_ms"].as_u64().unwrap();
    assert_eq!(usage["from_ms"].as_u64(), Some(known));
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    for row in usage["rows"].as_array().unwrap() {
        let span = row["to_ms"].as_u64().unwrap() - row["from_ms"].as_u64().unwrap();
        *sums.entry(row["what"].as_str().unwrap()).or_default() += span * row["cores"].as_u64().unwrap();
    }
    for what in ["running", "claimed", "idle"] {
        assert_eq!(sums.get(what).copied().unwrap_or(0), core_ms(&usage, what), "{what}: {usage}");
    }
    // All that is known, asked for as such, as a long time ago, and as a part.
    let text = sandbox.ok(&["usage"]);
    assert!(text.lines().next().unwrap().contains(", known since "), "{text}");
    assert!(!text.contains("not known"), "{text}");
    let text = sandbox.ok(&["usage", "--since", "30d"]);
    assert!(text.contains("What was before that is not known"), "{text}");
    let part = sandbox.json(&["usage", "--json", "--since", "0s"]);
    assert_eq!((&part["pool"]["ended"], part["known_since_ms"].as_u64()), (&0.into(), Some(known)));
    // Nothing is known of the future.
    let future = sandbox.json(&["usage", "--json", "--until", "2200-01-01T00:00:00Z"]);
    assert!(future["until_ms"].as_u64().unwrap() - known < 3_600_000, "{future}");
    assert!(core_ms(&future, "capacity") < 2 * 3_600_000, "{future}");
    // A restarted manager answers the same.
    let until = usage["until_ms"].as_u64().unwrap();
    let until = jiff_time(until);
    let before = sandbox.json(&["usage", "--json", "--until", &until]);
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    sandbox.up(&["--cpus", "2"]);
    // How large the machine is, it says itself.
    sandbox.until("the same answer", Duration::from_secs(20), || {
        sandbox.json(&["usage", "--json", "--until", &until]) == before
    });
}

#[test]
fn a_question_about_no_time_is_refused() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0"]);
    let reversed = sandbox.run(&["usage", "--since", "1m", "--until", "2h"]);
    assert_eq!(reversed.status.code(), Some(1));
    assert!(text(&reversed.stderr).contains("there is nothing between"), "{}", text(&reversed.stderr));
    sandbox.ok(&["usage", "--since", "2h", "--until", "1m"]);
}

/// A time as `--until` takes it.
fn jiff_time(ms: u64) -> String {
    let out = Command::new("date")
        .args(["-u", "-d", &format!("@{}.{:03}", ms / 1000, ms % 1000), "+%Y-%m-%dT%H:%M:%S.%3NZ"])
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Adds the seconds that a file names to the wall clock of whoever loads it.
const SET_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    const char *path = getenv("TEST_CLOCK_FILE");
    if (result == 0 && id == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
"#;

/// The library, when it can be made here.
pub(crate) fn set_clock_library(sandbox: &Sandbox) -> Option<PathBuf> {
    let (source, library) = (sandbox.path().join("clock.c"), sandbox.path().join("clock.so"));
    std::fs::write(&source, SET_CLOCK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let works = compiler.status().is_ok_and(|status| status.success());
    if !works {
        skip("no C compiler here, so no clock that can be set");
    }
    works.then_some(library)
}

#[test]
fn a_clock_that_is_set_changes_no_usage() {
    let mut sandbox = Sandbox::new();
    let Some(library) = set_clock_library(&sandbox) else { return };
    let file = sandbox.path().join("ahead");
    std::fs::write(&file, "0").unwrap();
    let mut command = sandbox.command(&["up", "--cpus", "1"]);
    command.env("LD_PRELOAD", &library).env("TEST_CLOCK_FILE", &file);
    sandbox.spawn(command, "up.log");
    sandbox.wait_until_up();
    let steps = |sandbox: &Sandbox| sandbox.ok(&["events"]).matches("ClockStepped").count();
    for (n, ahead) in ["7200", "-7200", "0"].into_iter().enumerate() {
        sandbox.ok(&["submit", "--", "sleep", "1"]);
        let running = || sandbox.ok(&["queue"]).contains("sleep") && sandbox.ok(&["status"]).contains("Busy");
        sandbox.until("the job runs", Duration::from_secs(20), running);
        // While it runs.
        std::fs::write(&file, ahead).unwrap();
        sandbox.until("the step is recorded", Duration::from_secs(20), || steps(&sandbox) == n + 1);
        sandbox.ok(&["wait", &(n + 1).to_string(), "--timeout", "30"]);
    }
    let usage = sandbox.json(&["usage", "--json"]);
    let (running, capacity) = (core_ms(&usage, "running"), core_ms(&usage, "capacity"));
    // A start that is told late takes a few milliseconds off.
    assert!((2_000..60_000).contains(&running), "some three seconds on one core: {usage}");
    assert!(capacity < 3_600_000, "no hour was added or taken: {usage}");
    assert_eq!(usage["pool"]["ended"], 3);
    let longest = usage["wait"]["longest_ms"].as_u64().unwrap();
    assert!(longest < 600_000, "nobody waited for an hour: {usage}");
    // The last ten minutes are all there was.
    let recent = sandbox.json(&["usage", "--json", "--since", "10m"]);
    assert_eq!(core_ms(&recent, "running"), running);
}

#[test]
fn a_clock_that_is_set_while_no_manager_runs_changes_no_usage() {
    let mut sandbox = Sandbox::new();
    let Some(library) = set_clock_library(&sandbox) else { return };
    let file = sandbox.path().join("ahead");
    let up = |sandbox: &mut Sandbox, ahead: &str| {
        std::fs::write(&file, ahead).unwrap();
        let mut command = sandbox.command(&["up", "--cpus", "2"]);
        command.env("LD_PRELOAD", &library).env("TEST_CLOCK_FILE", &file);
        let pid = sandbox.spawn(command, "up.log");
        sandbox.wait_until_up();
        pid
    };
    // Killed while jobs run, and stopped in an orderly way, which leaves a snapshot and no events behind it.
    for (n, (ahead, stop)) in
        [("0", libc::SIGKILL), ("7200", libc::SIGTERM), ("-7200", 0)].into_iter().enumerate()
    {
        let pid = up(&mut sandbox, ahead);
        assert_eq!(sandbox.ok(&["events"]).matches("ClockStepped").count(), n, "each is recorded once");
        if stop != 0 {
            sandbox.ok(&["submit", "--count", "2", "--", "sleep", "3"]);
            let events = || sandbox.ok(&["events", "--json"]).matches("\"event\":\"JobStarted\"").count();
            sandbox.until("both run", Duration::from_secs(20), || events() == 2 * (n + 1));
            signal(pid, stop);
            sandbox.reap(pid);
        }
    }
    for cluster in ["1", "2"] {
        sandbox.ok(&["wait", cluster, "--timeout", "60"]);
    }
    let usage = sandbox.json(&["usage", "--json"]);
    let (claimed, capacity) = (core_ms(&usage, "claimed"), core_ms(&usage, "capacity"));
    assert!(claimed < 600_000, "no hour was claimed: {usage}");
    assert!(capacity < 3_600_000, "no hour was added or taken: {usage}");
}
