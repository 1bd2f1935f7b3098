//! Job event logs as the manager writes them: exactly what the journal has, in order per job, through kills.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::Value;

use crate::harness::{Sandbox, is_root, repository, skip, text, updraft};

pub(crate) type Story = BTreeMap<(i32, i32), Vec<u16>>;

/// The numbers of each job's events in a log.
pub(crate) fn logged(path: &Path) -> Story {
    let mut reader = joblog::Reader::new(TimeZone::system(), 2026);
    reader.feed(&std::fs::read(path).unwrap());
    let mut story = Story::new();
    while let Some(event) = reader.next() {
        let event = event.unwrap();
        story.entry((event.cluster, event.proc)).or_default().push(event.body.number());
    }
    assert!(!reader.is_inside_event(), "half an event at the end of {}", path.display());
    story
}

/// What a log should say, by the journal.
pub(crate) fn journalled(sandbox: &Sandbox, clusters: &[i32]) -> Story {
    let mut story = Story::new();
    let mut running = std::collections::HashSet::new();
    let mut stopped = std::collections::HashSet::new();
    for line in sandbox.ok(&["events", "--json"]).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| event[name].as_i64().unwrap_or(-1) as i32;
        let cluster = number("cluster");
        if !clusters.contains(&cluster) {
            continue;
        }
        let kind = event["event"].as_str().unwrap();
        let procs: Vec<i32> = match kind {
            "ClusterSubmitted" => (0..event["template"]["procs"].as_i64().unwrap() as i32).collect(),
            "JobStarted" | "JobExited" | "StopRequested" => vec![number("proc")],
            // What is held from the beginning is not told.
            "JobsHeld" if number("code") == 15 => continue,
            _ => {
                let spans = event["procs"].as_array().cloned().unwrap_or_default();
                let range = |s: &Value| {
                    let first = s["first"].as_i64().unwrap() as i32;
                    first..first + s["count"].as_i64().unwrap() as i32
                };
                spans.iter().flat_map(range).collect()
            }
        };
        for proc in procs {
            let ran = running.remove(&(cluster, proc));
            if kind == "StopRequested" {
                // What a person stops is told as an eviction first; what a policy stops is not.
                if ran {
                    running.insert((cluster, proc));
                    if [1, 1023].contains(&number("code")) {
                        stopped.insert((cluster, proc));
                    }
                }
                continue;
            }
            let stop = kind != "JobStarted" && stopped.remove(&(cluster, proc));
            if stop && ["JobsHeld", "JobsRemoved"].contains(&kind) {
                story.entry((cluster, proc)).or_default().push(4);
            }
            let number = match kind {
                "ClusterSubmitted" => 0,
                "JobStarted" => {
                    running.insert((cluster, proc));
                    1
                }
                "JobsRequeued" if ran => 4,
                "JobExited" => 5,
                "JobsRemoved" => 9,
                "JobsHeld" => 12,
                "JobsReleased" => 13,
                _ => {
                    // A stop that was asked for, or jobs given to a claim: nothing has happened to the process yet.
                    if ran && kind != "JobsRequeued" {
                        running.insert((cluster, proc));
                    }
                    continue;
                }
            };
            story.entry((cluster, proc)).or_default().push(number);
        }
    }
    story
}

fn submit(sandbox: &Sandbox, log: &Path, more: &[&str], command: &[&str]) -> i32 {
    let log = format!("log={}", log.display());
    let mut arguments = vec!["submit", "--json", "--set", &log];
    arguments.extend(more);
    arguments.push("--");
    arguments.extend(command);
    sandbox.json(&arguments)[0]["cluster"].as_i64().unwrap() as i32
}

#[test]
fn a_log_has_exactly_the_journals_events_through_kills() {
    let mut sandbox = Sandbox::new();
    let (log, own) = (sandbox.path().join("all.events"), sandbox.path().join("own.$(Process).events"));
    let up = ["--cpus", "3", "--lease", "20", "--beat", "300"];
    let mut pool = sandbox.up(&up);

    let many = submit(&sandbox, &log, &["--count", "150"], &["sleep", "0.02"]);
    let each = submit(&sandbox, &own, &["--count", "4"], &["true"]);
    let failing = submit(&sandbox, &log, &["--set", "max_retries=2"], &["false"]);
    let holding = submit(&sandbox, &log, &["--set", "on_exit_hold=ExitCode == 7"], &["sh", "-c", "exit 7"]);
    let held = submit(&sandbox, &log, &["--set", "hold=true"], &["true"]);
    let long = submit(&sandbox, &log, &["--set", "priority=5"], &["sleep", "600"]);
    let state = |sandbox: &Sandbox, cluster: i32| text(&sandbox.run(&["queue", &cluster.to_string()]).stdout);
    let patience = Duration::from_secs(60);
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(250));
        sandbox.kill(pool);
        pool = sandbox.up(&up);
    }
    let acts = |sandbox: &Sandbox, act: &str, cluster: i32| sandbox.ok(&[act, &cluster.to_string()]);
    sandbox.until("the long job runs", patience, || logged(&log)[&(long, 0)].last() == Some(&1));
    acts(&sandbox, "vacate", long);
    sandbox.until("it runs again", patience, || {
        logged(&log)[&(long, 0)].iter().filter(|n| **n == 1).count() > 1
    });
    acts(&sandbox, "hold", long);
    sandbox.until("it is held", patience, || logged(&log)[&(long, 0)].last() == Some(&12));
    sandbox.kill(pool);
    pool = sandbox.up(&up);
    acts(&sandbox, "release", long);
    acts(&sandbox, "release", held);
    sandbox.until("it runs once more", patience, || logged(&log)[&(long, 0)].last() == Some(&1));
    acts(&sandbox, "rm", long);
    sandbox.kill(pool);
    pool = sandbox.up(&up);
    sandbox.until("it holds itself", patience, || logged(&log)[&(holding, 0)].last() == Some(&12));
    acts(&sandbox, "rm", holding);

    // The waiter needs no pool, and its verdict is that of the jobs it is asked about.
    let file = log.to_string_lossy().into_owned();
    let waited = sandbox.run(&["wait", "--log", &file, "--timeout", "60"]);
    let said = text(&waited.stdout);
    assert_eq!(waited.status.code(), Some(1), "{said}{}\n{}", text(&waited.stderr), state(&sandbox, many));
    assert_eq!(said.trim(), "151 succeeded, 1 failed, 2 removed");
    let waited = sandbox.ok(&["wait", "--log", &file, &many.to_string(), &held.to_string()]);
    assert_eq!(waited.trim(), "151 succeeded, 0 failed, 0 removed");
    assert_eq!(sandbox.run(&["wait", "--log", &file, "999", "--timeout", "1"]).status.code(), Some(1));

    let clusters = [many, failing, holding, held, long];
    assert_eq!(logged(&log), journalled(&sandbox, &clusters));
    assert_eq!(logged(&log)[&(failing, 0)], [0, 1, 4, 1, 4, 1, 5], "max_retries = 2 is three runs");
    let ends = logged(&log);
    for (job, events) in &ends {
        assert!(matches!(events.last(), Some(5 | 9)) && events[0] == 0, "{job:?}: {events:?}");
    }
    let mut apart = Story::new();
    for proc in 0..4 {
        let part = logged(&sandbox.path().join(format!("own.{proc}.events")));
        assert_eq!(part.keys().collect::<Vec<_>>(), [&(each, proc)]);
        apart.extend(part);
    }
    assert_eq!(apart, journalled(&sandbox, &[each]));
    sandbox.ok(&["joblog", "check", &file]);
    sandbox.kill(pool);
}

#[test]
fn a_log_that_cannot_be_written_waits_and_blocks_nobody() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    // A submit refuses what it sees cannot be written; of directories named by the cluster it cannot know.
    let (late, link) = (sandbox.path().join("late1/log"), sandbox.path().join("link2"));
    let (good, target) = (sandbox.path().join("good"), sandbox.path().join("target"));
    std::fs::create_dir(sandbox.path().join("late0")).unwrap();
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for log in ["late$(Cluster)/log", "link$(Cluster)", "good"] {
        submit(&sandbox, &sandbox.path().join(log), &[], &["true"]);
    }
    let over = |path: &Path| path.exists() && logged(path).values().all(|e| *e == [0, 1, 5]);
    let patience = Duration::from_secs(30);
    sandbox.until("the good log is written", patience, || over(&good));
    assert!(!late.exists());
    std::fs::create_dir(sandbox.path().join("late1")).unwrap();
    sandbox.until("the late log is written", patience, || over(&late));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious", "no log is written through a link");
}

#[test]
fn periodic_expressions_act_by_themselves() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    let log = sandbox.path().join("log");
    let set = ["--set", "hold=true", "--set", "periodic_remove=JobStatus == 5"];
    let cluster = submit(&sandbox, &log, &set, &["true"]);
    let file = log.to_string_lossy().into_owned();
    let waited = sandbox.run(&["wait", "--log", &file, "--timeout", "30"]);
    assert_eq!(text(&waited.stdout).trim(), "0 succeeded, 0 failed, 1 removed", "{}", sandbox.logs());
    assert_eq!(logged(&log)[&(cluster, 0)], [0, 9]);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("PeriodicRemove expression 'JobStatus == 5' evaluated to TRUE"), "{text}");
}

#[test]
fn the_log_tells_resources_and_stops_by_hand_and_may_be_xml() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    let (log, xml) = (sandbox.path().join("log"), sandbox.path().join("xml"));
    for (path, more) in [(&log, "log_xml=false"), (&xml, "log_xml=true")] {
        let ended = submit(&sandbox, path, &["--set", more, "--set", "request_memory=64"], &["true"]);
        let long = submit(&sandbox, path, &["--set", more], &["sleep", "600"]);
        let patience = Duration::from_secs(30);
        let last = |cluster: i32| {
            path.exists()
                .then(|| logged(path))
                .and_then(|s| s.get(&(cluster, 0)).and_then(|e| e.last().copied()))
        };
        sandbox.until("it has ended", patience, || last(ended) == Some(5));
        for (act, number) in [("hold", 12), ("release", 1), ("rm", 9)] {
            sandbox.until("it runs", patience, || act == "release" || last(long) == Some(1));
            sandbox.ok(&[act, &long.to_string()]);
            sandbox.until(act, patience, || last(long) == Some(number));
        }
        assert_eq!(logged(path)[&(ended, 0)], [0, 1, 5]);
        assert_eq!(logged(path)[&(long, 0)], [0, 1, 4, 12, 13, 1, 4, 9]);
    }
    let text = std::fs::read_to_string(&log).unwrap();
    for part in ["Job was evicted. Code 1 Subcode 0", "Job was evicted. Code 1023 Subcode 0", "\tCpus = 1\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let table = |line: &&str| line.trim_start().starts_with("Memory (MB)");
    let row: Vec<&str> = text.lines().find(table).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2], &row[4..]), ("Memory", "(MB)", ":", &["64", "64"][..]), "{text}");
    let text = std::fs::read_to_string(&xml).unwrap();
    assert!(text.starts_with("<c>\n    <a n=\"") && !text.contains("...\n"), "{text}");
    assert!(text.contains("<a n=\"RequestMemory\"><i>64</i></a>"), "{text}");
}

#[test]
fn a_deferred_job_starts_in_its_second_and_stays_to_be_looked_at() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    let file = sandbox.path().join("job.sub");
    let start = jiff::Timestamp::now().as_second() + 3;
    let text = format!(
        "executable = /bin/date\narguments = +%s\noutput = out\nlog = log\ndeferral_time = {start}\n\
         leave_in_queue = true\nqueue\n"
    );
    std::fs::write(&file, text).unwrap();
    let path = file.to_string_lossy().into_owned();
    let output = sandbox.path().join("out");
    let submitted = sandbox.json(&["submit", "--json", &path]);
    let cluster = submitted[0]["cluster"].to_string();
    // A window that is over before there is a machine with so many cores.
    let missed = sandbox.path().join("missed.sub");
    let text = format!("executable = /bin/true\nrequest_cpus = 64\ndeferral_time = {start}\nqueue\n");
    std::fs::write(&missed, text).unwrap();
    let missed = sandbox.json(&["submit", "--json", &missed.to_string_lossy()])[0]["cluster"].to_string();

    sandbox.ok(&["wait", &cluster, "--timeout", "30"]);
    let ran: i64 = std::fs::read_to_string(&output).unwrap().trim().parse().unwrap();
    assert!((start..=start + 1).contains(&ran), "it was to start at {start} and did at {ran}");
    let queue = sandbox.ok(&["queue", &cluster]);
    assert!(queue.contains("completed") && queue.contains("1 succeeded"), "{queue}");
    let held = |s: &Sandbox| crate::harness::text(&s.run(&["queue", &missed]).stdout);
    sandbox.until("the other is held", Duration::from_secs(10), || held(&sandbox).contains("1 held"));
    assert!(held(&sandbox).contains("missed deferred execution time"), "{}", held(&sandbox));
    sandbox.ok(&["rm", &cluster]);
    let queue = sandbox.ok(&["queue", &cluster]);
    assert!(queue.contains("is over: 1 succeeded, 0 failed, 0 removed"), "{queue}");
    assert_eq!(logged(&sandbox.path().join("log"))[&(cluster.parse().unwrap(), 0)], [0, 1, 5]);
}

#[test]
fn a_private_run_leaves_a_complete_log() {
    let sandbox = Sandbox::new();
    let log = sandbox.path().join("run.events");
    let set = format!("log={}", log.display());
    sandbox.ok(&["run", "--quiet", "--count", "20", "--set", &set, "--", "true"]);
    let story = logged(&log);
    assert_eq!(story.len(), 20);
    assert!(story.values().all(|events| *events == [0, 1, 5]), "{story:?}");
}

#[test]
fn in_a_shared_pool_a_log_is_written_with_its_owners_rights() {
    if !is_root() {
        return skip("only root can run a shared pool");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--shared", "--cpus", "2"]);
    let open = sandbox.open_dir("open");
    // What a submit can see that it cannot write it refuses; of this directory it does not know the name yet.
    sandbox.open_dir("closed0");
    let closed = sandbox.path().join("closed1");
    std::fs::create_dir(&closed).unwrap();
    for dir in [&sandbox.path().join("closed$(Cluster)"), &open] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(updraft());
        command.args(["submit", "--set", &format!("log={}/log", dir.display()), "--", "true"]);
        let out = command.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(&open).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
    let log = open.join("log");
    let over = || log.exists() && logged(&log).values().all(|e| *e == [0, 1, 5]);
    sandbox.until("the log is written", Duration::from_secs(30), over);
    assert_eq!(std::fs::metadata(&log).unwrap().uid(), 65534);
    assert!(!closed.join("log").exists(), "root's rights are not the owner's");
}

/// HTCondor's own reader as judge, while the log is being written. `cargo xtask test` installs it and sets the variable.
#[test]
fn the_original_reader_sees_exactly_the_journals_events() {
    let Some(python) = std::env::var_os("UPDRAFT_JUDGE") else {
        return skip(
            "HTCondor's reader is not installed here (UPDRAFT_JUDGE names a Python that has htcondor2)",
        );
    };
    let mut sandbox = Sandbox::new();
    let (log, done) = (sandbox.path().join("events"), sandbox.path().join("done"));
    std::fs::write(&log, "").unwrap();
    let mut judge = Command::new(python);
    judge.arg(repository().join("crates/updraft/tests/all/judge.py")).args([&log, &done]);
    let judge = sandbox.spawn(judge, "judged");
    let up = ["--cpus", "4", "--lease", "20", "--beat", "300"];
    let pool = sandbox.up(&up);
    let on = |sandbox: &Sandbox, act: &str, cluster: i32| sandbox.ok(&[act, &cluster.to_string()]);
    let mut clusters = vec![
        submit(&sandbox, &log, &["--count", "300"], &["true"]),
        submit(&sandbox, &log, &["--count", "50", "--set", "max_retries=1"], &["false"]),
        submit(&sandbox, &log, &["--count", "50"], &["sh", "-c", "kill -9 $$"]),
    ];
    let held = submit(&sandbox, &log, &["--count", "60", "--set", "hold=true"], &["sleep", "0.02"]);
    let long = submit(&sandbox, &log, &["--count", "40", "--set", "priority=-5"], &["sleep", "600"]);
    clusters.extend([held, long]);
    sandbox.kill(pool);
    sandbox.up(&up);
    on(&sandbox, "release", held);
    let patience = Duration::from_secs(90);
    let some = |number: u16| logged(&log).iter().any(|(job, e)| job.0 == long && e.last() == Some(&number));
    sandbox.until("the long ones run", patience, || some(1));
    on(&sandbox, "vacate", long);
    sandbox.until("they are evicted and run again", patience, || {
        logged(&log).iter().any(|(job, e)| job.0 == long && e.contains(&4)) && some(1)
    });
    on(&sandbox, "hold", long);
    sandbox.until("they are held", patience, || some(12) && !some(1));
    on(&sandbox, "release", long);
    sandbox.until("they run once more", patience, || some(1));
    on(&sandbox, "rm", long);
    let file = log.to_string_lossy().into_owned();
    let waited = sandbox.run(&["wait", "--log", &file, "--timeout", "120"]);
    assert_eq!(text(&waited.stdout).trim(), "360 succeeded, 100 failed, 40 removed", "{}", sandbox.logs());

    std::fs::write(&done, "").unwrap();
    let verdict = sandbox.reap(judge);
    let judged = std::fs::read_to_string(sandbox.path().join("judged")).unwrap();
    assert!(verdict.success(), "{judged}");
    let mut story = Story::new();
    for line in judged.lines() {
        let words: Vec<i32> = line.split(' ').map(|w| w.parse().expect(line)).collect();
        story.entry((words[1], words[2])).or_default().push(words[0] as u16);
    }
    assert_eq!(story, journalled(&sandbox, &clusters));
    println!(
        "HTCondor's reader saw {} events of {} jobs, as the journal has them",
        judged.lines().count(),
        story.len()
    );
}
