//! Machines whose clocks are wrong: nothing that the pool decides depends on them, and how far they are off is known.

use std::time::Duration;

use crate::crash::free_port;
use crate::harness::Sandbox;
use crate::usage::set_clock_library;

#[test]
fn an_agent_with_a_wrong_clock_gets_its_jobs_done_and_says_how_wrong_it_is() {
    let mut sandbox = Sandbox::new();
    let Some(library) = set_clock_library(&sandbox) else { return };
    let listen = format!("127.0.0.1:{}", free_port());
    sandbox.up(&["--cpus", "0", "--listen", &listen, "--beat", "300"]);
    let token = sandbox.ok(&["token", "create", "--role", "agent", "--uses", "2"]);
    let join = format!("{}@{listen}", token.trim());
    for (name, off) in [("behind", "-3600"), ("ahead", "20")] {
        let file = sandbox.path().join(format!("{name}.clock"));
        std::fs::write(&file, off).unwrap();
        let mut command = sandbox.command(&["agent", "--name", name, "--join", &join, "--cpus", "1"]);
        command.env("UPDRAFT_STATE_DIR", sandbox.path().join(name));
        command.env("LD_PRELOAD", &library).env("TEST_CLOCK_FILE", &file);
        sandbox.spawn(command, &format!("{name}.log"));
    }
    let offset = |name: &str| {
        let reply = sandbox.json(&["status", "--json", "--long"]);
        let machines = reply["machines"].as_array().cloned().unwrap_or_default();
        let found = machines.into_iter().find(|m| m["name"].as_str() == Some(name))?;
        let ad = found["ad"].as_array().cloned().unwrap_or_default();
        let pair = ad.into_iter().find(|pair| pair[0].as_str() == Some("ClockOffset"))?;
        pair[1].as_str()?.parse::<i64>().ok()
    };
    sandbox.until("both say how far their clocks are off", Duration::from_secs(30), || {
        offset("behind").is_some() && offset("ahead").is_some()
    });
    let (behind, ahead) = (offset("behind").unwrap(), offset("ahead").unwrap());
    assert!((-3_601..=-3_599).contains(&behind) && (19..=21).contains(&ahead), "{behind} {ahead}");
    assert!(sandbox.logs().contains("s behind its manager's"), "{}", sandbox.logs());

    // A job that may run for fifty minutes is not held after a second, and short ones do not stay behind a long one.
    for name in ["behind", "ahead"] {
        let here = format!("Machine == \"{name}\"");
        let with = ["--set", &format!("requirements={here}"), "--set", "allowed_execute_duration=3000"];
        let long = [&["submit"], &with[..], &["--count", "5", "--", "sleep", "0.3"]].concat();
        sandbox.ok(&long);
    }
    for cluster in ["1", "2"] {
        sandbox.ok(&["wait", cluster, "--timeout", "60"]);
    }
    let events = sandbox.ok(&["events", "--json"]);
    assert!(!events.contains("JobsHeld"), "{events}");
    let (mut starts, mut now) = (0, 0);
    for line in events.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()) {
        now = line["time_ms"].as_u64().unwrap_or(now);
        if let Some(started) = line["started_ms"].as_u64() {
            starts += 1;
            assert!(started <= now && now - started < 60_000, "dated by the manager's clock: {line}");
        }
    }
    assert!(starts >= 10, "{starts} starts and ends of ten jobs: {events}");
}
