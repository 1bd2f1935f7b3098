//! The command line: help, usage errors, and the life of a queue.

use std::time::Duration;

use crate::harness::{Sandbox, repository, text};

#[test]
fn every_command_has_help() {
    let sandbox = Sandbox::new();
    let help = sandbox.ok(&["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| l.starts_with("  "))
        .filter(|l| !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert!(commands.len() > 15, "{help}");
    for command in commands.iter().filter(|c| **c != "help") {
        let text = sandbox.ok(&[command, "--help"]);
        assert!(text.contains("Usage: updraft"), "{command}: {text}");
    }
}

#[test]
fn mistakes_are_exit_code_2_and_say_what_to_do() {
    let sandbox = Sandbox::new();
    for (arguments, hint) in [
        (vec!["rm"], "--all"),
        (vec!["rm", "abc"], "CLUSTER"),
        (vec!["hold", "1.2.3"], "CLUSTER"),
        (vec!["run"], "submit file"),
        (vec!["run", "--count", "0", "--", "true"], "--count 0"),
        (vec!["run", "x.sub", "--", "true"], "not both"),
        (vec!["submit"], "what is to run"),
        (vec!["agent"], "--join"),
        (vec!["agent", "--join", "nonsense@host:1"], "token"),
        (vec!["agent", "--join", "nonsense"], "TOKEN@HOST:PORT"),
        (vec!["up", "--lease", "1"], "--beat"),
        (vec!["token", "create", "--role", "KING"], "READ"),
        (vec!["token", "create", "--role", "READ", "--ttl", "soon"], "12h"),
        (vec!["--log", "a=b=c", "up"], "--log"),
        (vec!["frobnicate"], "unrecognized"),
        (vec!["--pool", "host:1", "queue"], "UPDRAFT_TOKEN"),
    ] {
        let out = sandbox.run(&arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(hint), "{arguments:?}: {}", text(&out.stderr));
    }
}

#[test]
fn without_a_pool_commands_say_how_to_start_one() {
    let sandbox = Sandbox::new();
    for arguments in
        [vec!["queue"], vec!["status"], vec!["rm", "1"], vec!["submit", "--", "true"], vec!["events"]]
    {
        let out = sandbox.run(&arguments);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}");
        assert!(text(&out.stderr).contains("updraft up"), "{arguments:?}: {}", text(&out.stderr));
    }
}

#[test]
fn a_bad_submit_file_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.path().join("bad.sub"),
        "executable = /bin/true\nrequirements = (Memory >\nqueue\n",
    )
    .unwrap();
    let out = sandbox.run(&["submit", "bad.sub"]);
    assert_eq!(out.status.code(), Some(1));
    let error = text(&out.stderr);
    assert!(error.contains("bad.sub:2:") && error.contains('^'), "{error}");
    let out = sandbox.run(&["submit", "absent.sub"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("absent.sub"));
}

#[test]
fn the_life_of_a_queue() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1", "--health", "127.0.0.1:0"]);

    // A second pool on the same state is refused, and says who has it.
    let second = sandbox.run(&["up"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains(&format!("pid {pid}")), "{}", text(&second.stderr));

    let submitted = sandbox.json(&["submit", "--json", "--count", "3", "--", "sleep", "30"]);
    assert_eq!((submitted[0]["cluster"].as_u64(), submitted[0]["procs"].as_u64()), (Some(1), Some(3)));
    let running = || sandbox.json(&["queue", "--json"])["clusters"][0]["running"].as_u64() == Some(1);
    sandbox.until("one job runs", Duration::from_secs(10), running);
    let table = sandbox.ok(&["queue"]);
    assert!(table.contains("CLUSTER") && table.contains("sleep 30"), "{table}");
    assert!(sandbox.ok(&["status"]).contains("Claimed/Busy"));
    assert!(sandbox.ok(&["status", "-l"]).contains("OpSys = \"LINUX\""));

    // Holding an idle and a running job.
    assert!(sandbox.ok(&["hold", "1.2", "--reason", "not now"]).contains("job 1.2 held"));
    assert!(sandbox.ok(&["queue", "1"]).contains("not now"));
    sandbox.ok(&["hold", "1.0"]);
    let counts = |name: &str| sandbox.json(&["queue", "1", "--json"])[0]["counts"][name].as_u64();
    sandbox.until("two are held", Duration::from_secs(10), || counts("held") == Some(2));
    sandbox.until("the third runs", Duration::from_secs(10), || counts("running") == Some(1));

    // Releasing what is not held, acting on what is not there.
    let out = sandbox.run(&["release", "1.1"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("not on hold"));
    assert!(sandbox.ok(&["release", "1"]).contains("2 jobs of 1 released"));
    let out = sandbox.run(&["rm", "99"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("not in the queue"));

    // Vacating puts a running job back.
    sandbox.until("one runs", Duration::from_secs(10), || counts("running") == Some(1));
    sandbox.ok(&["vacate", "1"]);

    assert!(sandbox.ok(&["rm", "--all"]).contains("3 jobs"));
    let out = sandbox.run(&["wait", "1", "--timeout", "20"]);
    assert_eq!(out.status.code(), Some(1), "removed jobs are no success");
    assert!(text(&out.stdout).contains("3 removed"));
    assert_eq!(sandbox.ok(&["queue"]), "The queue is empty.\n");

    // Success, waited for; history in the events.
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["wait", "2", "--timeout", "20"]);
    sandbox.ok(&["wait", "2.0", "--timeout", "20"]);
    let events = sandbox.ok(&["events", "--json"]);
    let kinds: Vec<String> = events
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["event"].as_str().unwrap().to_owned())
        .collect();
    for kind in [
        "ManagerStarted",
        "ClusterSubmitted",
        "ClaimMade",
        "JobsAssigned",
        "JobStarted",
        "JobExited",
        "JobsHeld",
    ] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} in {kinds:?}");
    }
    let positions: Vec<u64> = events
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["position"].as_u64().unwrap())
        .collect();
    assert!(positions.iter().copied().eq(1..=positions.len() as u64), "without gaps");
    assert!(sandbox.ok(&["events"]).contains("JobExited"));

    // A stop is clean: it ends with success, and the next start has the same queue.
    sandbox.ok(&["submit", "--set", "hold=true", "--", "true"]);
    crate::harness::signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success(), "{}", sandbox.logs());
    sandbox.up(&["--cpus", "1"]);
    assert_eq!(sandbox.json(&["queue", "--json"])["clusters"][0]["held"].as_u64(), Some(1));
}

#[test]
fn trees_machines_by_name_and_stages_are_said_with_words_of_the_shell() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let patience = Duration::from_secs(20);
    let status = || sandbox.json(&["status", "--json"])["machines"][0].clone();
    sandbox.until("its machine is there", patience, || status()["connected"] == true);
    let machine = status()["name"].as_str().unwrap().to_owned();
    let submit = |more: &str| {
        let file = sandbox.path().join("job.sub");
        std::fs::write(&file, format!("executable = /bin/true\nrequest_memory = 1\n{more}\nqueue\n"))
            .unwrap();
        sandbox.json(&["submit", "--json", file.to_str().unwrap()])[0]["cluster"].to_string()
    };

    let tree = submit("+Trees = \"rhel-10\"");
    let words = sandbox.ok(&["explain", &tree]);
    assert!(words.contains("in a lab without its distro trees"), "{words}");
    let labs = sandbox.ok(&["lab", "", "--tree", "add", "rhel-10", "--tree", "add", "debian-14"]);
    assert!(labs.contains("debian-14 rhel-10"), "{labs}");
    sandbox.ok(&["wait", &tree]);
    assert!(!sandbox.ok(&["lab", "", "--tree", "remove", "rhel-10"]).contains("rhel-10"));
    assert!(sandbox.ok(&["lab", "", "--remove"]).contains("removed"));
    sandbox.ok(&["lab", "", "--enable"]);
    let wrong = sandbox.run(&["lab", "", "--tree", "plant", "rhel-10"]);
    assert!(
        !wrong.status.success() && text(&wrong.stderr).contains("--tree add TREE"),
        "{}",
        text(&wrong.stderr)
    );

    sandbox.ok(&["machine", &machine, "--condition", "manual"]);
    let forced = submit(&format!("+ForceMachine = \"{machine}\""));
    sandbox.ok(&["wait", &forced]);

    sandbox.until("it is free", patience, || status()["usage"] == "idle");
    sandbox.ok(&["machine", &machine, "--reserve"]);
    assert_eq!(status()["usage"], "running");
    for stage in ["waiting", "installing"] {
        assert!(sandbox.ok(&["machine", &machine, "--stage", stage]).contains(stage));
        assert_eq!(status()["usage"], stage);
    }
}

#[test]
fn health_and_metrics_are_served() {
    use std::io::{Read as _, Write as _};
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--health", "127.0.0.1:0"]);
    let address = sandbox.health_address();
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get("/metrics");
    assert!(
        metrics.contains("updraft_machines_connected")
            && metrics.contains("updraft_build_info")
            && metrics.contains("updraft_consistency_findings{kind=\"lost_wakeup\"} 0"),
        "{metrics}"
    );
    // Nothing but health behind this port.
    assert!(get("/v1/queue").starts_with("HTTP/1.1 404"));
}

#[test]
fn the_example_of_the_readme_draws_its_picture() {
    let sandbox = Sandbox::new();
    let out = sandbox
        .command(&["run", "examples/mandelbrot/mandelbrot.sub"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let picture = text(&out.stdout);
    assert_eq!(picture.lines().count(), 48);
    assert!(picture.lines().all(|l| l.len() == 120), "{picture}");
    let rows: Vec<&str> = picture.lines().collect();
    assert!(rows[24].contains("@@@@@@@@") && !rows[0].contains('@'), "{picture}");
}

#[test]
fn man_pages_and_completions_are_made() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["man", "man"]);
    assert!(sandbox.path().join("man/updraft-run.1").exists());
    assert!(sandbox.ok(&["completions", "bash"]).contains("_updraft"));
}

#[test]
fn a_job_that_waits_and_a_machine_that_idles_are_explained() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let has_machine = || sandbox.json(&["status", "--json"])["machines"][0]["name"].is_string();
    sandbox.until("the machine is there", Duration::from_secs(30), has_machine);
    sandbox.ok(&["submit", "--set", "request_cpus=64", "--", "true"]);
    let words = sandbox.ok(&["explain", "1.0"]);
    assert!(words.starts_with("1.0 waits: no machine is large enough: it asks for 64 cores"), "{words}");
    assert!(words.contains("Of 1 machine: 1 too small."), "{words}");
    sandbox.ok(&["submit", "--set", "requirements=TARGET.Arhc == \"VAX\"", "--", "true"]);
    let words = sandbox.ok(&["explain", "2"]);
    assert!(
        words.contains("excluded by requirements") && words.contains("TARGET.Arhc == \"VAX\""),
        "{words}"
    );
    assert!(words.contains("did you mean `TARGET.Arch`"), "{words}");
    let json = sandbox.json(&["explain", "2.0", "--json"]);
    assert_eq!((json["state"].as_str(), json["capable"].as_u64()), (Some("waiting"), Some(0)));

    let machine = sandbox.json(&["status", "--json"])["machines"][0]["name"].as_str().unwrap().to_owned();
    let words = sandbox.ok(&["explain", "--machine", &machine]);
    assert!(words.contains("none of 2 waiting jobs can start there"), "{words}");

    sandbox.ok(&["submit", "--", "sleep", "30"]);
    let runs = || sandbox.ok(&["explain", "3.0"]).contains("runs on");
    sandbox.until("the third runs", Duration::from_secs(10), runs);
    sandbox.ok(&["hold", "2.0", "--reason", "not now"]);
    assert!(
        sandbox.ok(&["explain", "2.0"]).contains("on hold")
            && sandbox.ok(&["explain", "2.0"]).contains("not now")
    );
    assert_eq!(sandbox.run(&["explain", "99.0"]).status.code(), Some(1));
    assert_eq!(sandbox.run(&["explain"]).status.code(), Some(2));
}

#[test]
fn what_is_kept_for_a_gang_is_explained_and_accounted_for() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    sandbox.ok(&["submit", "--set", "allowed_execute_duration=3600", "--", "sleep", "30"]);
    let runs = || sandbox.ok(&["explain", "1.0"]).contains("runs on");
    sandbox.until("the first runs", Duration::from_secs(10), runs);
    sandbox.ok(&["submit", "--count", "2", "--set", "+Gang=true", "--", "true"]);
    let words = sandbox.ok(&["explain", "2.0"]);
    assert!(words.starts_with("2.0 waits: the 2 jobs of its gang start together, by "), "{words}");
    sandbox.ok(&["submit", "--", "true"]);
    let words = sandbox.ok(&["explain", "3.0"]);
    assert!(words.starts_with("3.0 waits: what has room for it is kept for a gang."), "{words}");
    assert!(words.contains("1 machine kept for the gang 2 of "), "{words}");
    let machine = sandbox.json(&["status", "--json"])["machines"][0]["name"].as_str().unwrap().to_owned();
    let words = sandbox.ok(&["explain", "--machine", &machine]);
    assert!(
        words.contains("It is kept for the gang 2 of ") && words.contains("1 kept for a gang"),
        "{words}"
    );
    // One that says how long it takes fills in.
    sandbox.ok(&["submit", "--set", "allowed_execute_duration=60", "--", "true"]);
    sandbox.ok(&["wait", "4", "--timeout", "20"]);
    let events = sandbox.ok(&["events"]);
    let planned = events.lines().find(|line| line.contains("GangPlanned")).unwrap_or_default();
    assert!(planned.contains("cluster=2 machines=") && planned.contains(" promise="), "{events}");
    assert!(events.contains("backfill=true"), "{events}");
    let usage = sandbox.json(&["usage", "--json"]);
    assert!(usage["pool"]["idle_earmarked_core_ms"].as_u64() > Some(0), "{usage}");
    sandbox.ok(&["rm", "2"]);
    sandbox.ok(&["wait", "3", "--timeout", "20"]);
}

#[test]
fn usage_tiles_the_time_of_every_slot() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    sandbox.ok(&["submit", "--count", "6", "--", "sleep", "0.2"]);
    sandbox.ok(&["submit", "--", "false"]);
    sandbox.run(&["wait", "1", "2", "--timeout", "30"]);
    let usage = sandbox.json(&["usage", "--json"]);
    // They come in the order in which they closed.
    let mut rows = usage["rows"].as_array().unwrap().clone();
    rows.sort_by_key(|row| (row["slot"].to_string(), row["from_ms"].as_u64()));
    for pair in rows.windows(2).filter(|p| p[0]["slot"] == p[1]["slot"]) {
        assert_eq!(pair[0]["to_ms"], pair[1]["from_ms"], "{pair:?}");
    }
    let ran: Vec<_> = rows.iter().filter(|r| r["what"] == "running").collect();
    let seconds = usage["machines"][0]["running_core_ms"].as_f64().unwrap() / 1e3;
    assert!((1.1..10.0).contains(&seconds) && ran.len() >= 6, "{seconds} {usage}");
    assert_eq!(usage["machines"][0]["ended"].as_u64(), Some(7));
    assert_eq!(usage["machines"][0]["failed"].as_u64(), Some(1));
    assert!(usage["machines"][0]["utilisation"].as_f64().unwrap() <= 1.0, "{usage}");
    assert_eq!(usage["wait"]["count"].as_u64(), Some(7));
    let table = sandbox.ok(&["usage", "--rows"]);
    assert!(
        table.contains("MACHINE") && table.contains("Submit to start") && table.contains("running"),
        "{table}"
    );
    let csv = sandbox.ok(&["usage", "--csv", "--since", "1h"]);
    assert!(csv.starts_with("machine,slot,from_ms") && csv.lines().count() == rows.len() + 1, "{csv}");
    assert!(!sandbox.ok(&["usage", "--csv", "--user", "nobody"]).contains("running"));
    assert_eq!(sandbox.run(&["usage", "--since", "soon"]).status.code(), Some(2));
}
