//! `updraft sim` on what real pools wrote: their journals, played again under another configuration.

use std::time::Duration;

use crate::harness::Sandbox;

/// A pool of two cores on which two users' worth of jobs and a gang ran.
fn pool_with_a_past() -> Sandbox {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "2"]);
    for (name, text) in [
        ("plain.sub", "executable = /bin/sleep\narguments = 0.2\nrequest_memory = 1\nqueue 6\n"),
        ("gang.sub", "executable = /bin/sleep\narguments = 0.3\n+Gang = true\nrequest_memory = 1\nqueue 2\n"),
    ] {
        let file = sandbox.path().join(name);
        std::fs::write(&file, text).unwrap();
        sandbox.ok(&["submit", file.to_str().unwrap()]);
    }
    sandbox.until("every job is over", Duration::from_secs(60), || {
        sandbox.json(&["queue", "--json"])["clusters"].as_array().is_some_and(Vec::is_empty)
    });
    sandbox.kill(pid);
    sandbox
}

#[test]
fn a_real_journal_is_played_again_under_another_configuration_side_by_side() {
    let sandbox = pool_with_a_past();
    let state = sandbox.state();
    let (config, picture) = (sandbox.path().join("new.conf"), sandbox.path().join("both.svg"));
    std::fs::write(&config, "RESERVATION_DEPTH = 1\nAGING_QUANTUM = 0\n").unwrap();
    let words = ["sim", "replay", "--state", state.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let both = sandbox.json(&[&words[..], &["--json", "--svg", picture.to_str().unwrap()]].concat());
    assert_eq!((&both["machines"], &both["cores"], &both["refused"]), (&1.into(), &2.into(), &0.into()));
    for side in ["recorded", "replayed"] {
        let answers = &both[side];
        assert_eq!((&answers["jobs"], &answers["ended"]), (&8.into(), &8.into()), "{side}: {answers:#}");
        assert_eq!(answers["classes"]["Normal"]["began"], 8, "{side}: {answers:#}");
        let user = answers["users"].as_object().unwrap().values().next().unwrap();
        assert!(user["core_hours"].as_f64().unwrap() > 1.5 / 3_600.0, "{side}: {answers:#}");
        assert_eq!(user["share"], 1.0);
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(svg.matches("<path").count(), 3, "two curves and the axes");
    let said = sandbox.ok(&words);
    assert!(said.contains("recorded") && said.contains("class Normal: wait p99"), "{said}");
    // What nobody submitted is not played.
    let none = sandbox.run(&[&words[..], &["--since", "2099-01-01T00:00:00Z"]].concat());
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no submit in that time"));
}

#[test]
fn a_limit_of_the_new_configuration_makes_jobs_wait_that_did_not() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "2"]);
    let file = sandbox.path().join("limited.sub");
    let text = "executable = /bin/sleep\narguments = 0.5\nconcurrency_limits = licence\nrequest_memory = 1\nqueue 4\n";
    std::fs::write(&file, text).unwrap();
    sandbox.ok(&["submit", file.to_str().unwrap()]);
    sandbox.until("every job is over", Duration::from_secs(60), || {
        sandbox.json(&["queue", "--json"])["clusters"].as_array().is_some_and(Vec::is_empty)
    });
    sandbox.kill(pid);
    let (state, config) = (sandbox.state(), sandbox.path().join("new.conf"));
    std::fs::write(&config, "LICENCE_LIMIT = 1\n").unwrap();
    let state = state.to_str().unwrap();
    let both =
        sandbox.json(&["sim", "replay", "--state", state, "--config", config.to_str().unwrap(), "--json"]);
    let makespan = |side: &str| both[side]["makespan_s"].as_f64().unwrap();
    // One at a time takes four runs of half a second; the pool itself ran them two by two.
    assert!(makespan("replayed") >= 2.0, "{both:#}");
    assert!(both["replayed"]["utilisation"].as_f64() < both["recorded"]["utilisation"].as_f64(), "{both:#}");
}
