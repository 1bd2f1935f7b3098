//! Configurations that are read again while everything runs: by SIGHUP, and from afar.

use std::time::Duration;

use crate::harness::{Sandbox, far_day, signal, text};
use crate::policy::{PATIENCE, machine, write};

fn running(sandbox: &Sandbox) -> u64 {
    let queue = sandbox.json(&["queue", "--json"]);
    let clusters = queue["clusters"].as_array().unwrap();
    clusters.iter().filter_map(|cluster| cluster["running"].as_u64()).sum()
}

#[test]
fn sighup_has_manager_and_machine_read_their_files_and_what_runs_goes_on() {
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "pool.conf", "X_LIMIT = 1\nSTART = True\n");
    let pid = sandbox.up(&["--cpus", "2", "--config", &config]);
    let begun = sandbox.path().join("begun");
    let script = format!("echo $$ >> {}; sleep 600", begun.display());
    sandbox.ok(&["submit", "--count", "2", "--set", "concurrency_limits=x", "--", "sh", "-c", &script]);
    let starts = || std::fs::read_to_string(&begun).unwrap_or_default();
    sandbox.until("the limit lets one of two run", PATIENCE, || starts().lines().count() == 1);
    std::thread::sleep(Duration::from_millis(300));
    let first = starts();
    assert_eq!(first.lines().count(), 1, "{first}");
    write(&sandbox, "pool.conf", "X_LIMIT = 2\nSTART = True\n");
    signal(pid, libc::SIGHUP);
    sandbox.until("the other one runs", PATIENCE, || starts().lines().count() == 2);
    assert!(starts().starts_with(&first) && running(&sandbox) == 2, "{}", sandbox.logs());
    for process in starts().lines() {
        assert!(
            std::path::Path::new("/proc").join(process).exists(),
            "{process} is gone: {}",
            sandbox.logs()
        );
    }
    // Nothing of a configuration that cannot be used comes into force, for manager or machine.
    write(
        &sandbox,
        "pool.conf",
        "X_LIMIT = 1\nJOB_START_DELAY = abc\nSTART = False\nSUSPEND = KeyboardIdle <\n",
    );
    signal(pid, libc::SIGHUP);
    sandbox
        .until("both refuse", PATIENCE, || sandbox.logs().matches("the old one stays in force").count() == 2);
    let here = machine(&sandbox);
    assert!(sandbox.ok(&["config", "show", "--machine", &here.name]).contains("START = True"));
    let out = sandbox.run(&["reconfig"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for who in ["manager: ", &*format!("{}: ", here.name)] {
        let at = said.find(who).unwrap_or_else(|| panic!("{said}"));
        assert!(said[at..].contains("pool.conf:4"), "{said}");
    }
    // What only the manager looks at is refused by the manager.
    write(&sandbox, "pool.conf", "X_LIMIT = 2\nSTART = True\nJOB_START_DELAY = abc\n");
    let said = text(&sandbox.run(&["reconfig"]).stderr);
    assert!(said.starts_with("manager: refused") && said.contains("pool.conf:3"), "{said}");
    assert!(!said.contains(&format!("{}: ", here.name)), "{said}");
    assert_eq!(running(&sandbox), 2);
    sandbox.ok(&["rm", "1"]);
}

#[test]
fn what_is_read_again_from_afar_is_told_with_what_needs_a_restart() {
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "pool.conf", "START = True\n");
    sandbox.up(&["--cpus", "2", "--config", &config]);
    let here = machine(&sandbox);
    write(&sandbox, "pool.conf", "START = False\nNUM_SLOTS = 2\nGROUP_NAMES = lab\n");
    let said = sandbox.ok(&["reconfig"]);
    assert!(said.contains("manager: read again") && said.contains("group lab has no quota"), "{said}");
    assert!(said.contains(&format!("{}: read again", here.name)), "{said}");
    assert!(said.contains("when its agent starts next"), "{said}");
    here.until_state("Owner/Idle");
    // Windows, too: an event that comes and goes.
    let day = far_day();
    write(
        &sandbox,
        "pool.conf",
        &format!(
            "START = True\nEVENT_LIST = Rack\nRack = SHUTDOWN {day} 03:00 600 20 All Last\nAll = Cpus > 0\nLast = 0\n"
        ),
    );
    sandbox.ok(&["reconfig"]);
    let windows = || sandbox.ok(&["maintenance", "list"]);
    sandbox
        .until("the window is known", PATIENCE, || windows().contains('w') && windows().lines().count() > 1);
    write(&sandbox, "pool.conf", "START = True\n");
    sandbox.ok(&["reconfig"]);
    sandbox.until("the window is forgotten", PATIENCE, || {
        let out = sandbox.run(&["maintenance", "list"]);
        !text(&out.stdout).contains("Rack")
    });
}

#[test]
fn a_check_refuses_what_manager_machine_and_windows_would_refuse() {
    let sandbox = Sandbox::new();
    let day = far_day();
    for (line, why) in [
        ("JOB_START_DELAY = abc", "JOB_START_DELAY must be a number"),
        ("JOB_RENICE_INCREMENT = much", "JOB_RENICE_INCREMENT must be"),
        ("START = KeyboardIdle <", "START"),
        ("SLOT_TYPE_1 = 50%, 50%\nNUM_SLOTS_TYPE_1 = 3", "SLOT_TYPE_1"),
        ("EVENT_LIST = Rack", "Rack"),
        (&*format!("EVENT_LIST = Rack\nRack = SHUTDOWN {day} 99:00 600 20 All Last"), "99:00"),
        ("PROVISION_COMMAND = \"a 'b\"", "PROVISION_COMMAND"),
        ("EndDownTime = abc", "EndDownTime must be a whole number"),
        ("NextDownTime = noon", "NextDownTime must be a whole number"),
        ("Shutdown = (CurrentTime <", "Shutdown"),
    ] {
        let path = write(&sandbox, "pool.conf", &format!("{line}\n"));
        let out = sandbox.run(&["config", "check", "-f", &path]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    // What nobody would refuse is told all the same.
    for (line, why) in [
        ("EVENTD_TIME_ZONE = Mars/Base", "no time zone is called"),
        ("EVENTD_DRAIN_MANAGERS = =x=", "EVENTD_DRAIN_MANAGERS"),
        ("EVENTD_DEBUG = D_NONSENSE", "D_NONSENSE means nothing here"),
        ("A = $(B)\nB = $(A)", "circular definition"),
    ] {
        let path = write(&sandbox, "pool.conf", &format!("{line}\n"));
        let out = sandbox.run(&["config", "check", "-f", &path]);
        let said = text(&out.stderr);
        assert!(out.status.success() && said.contains("warning: ") && said.contains(why), "{line}: {said}");
    }
    let path = write(&sandbox, "pool.conf", "START = KeybordIdle > 15 * 60 && SitesOwnThing =!= True\n");
    let out = sandbox.run(&["config", "check", "-f", &path]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("did you mean KeyboardIdle?"), "{said}");
    assert_eq!(said.matches(" mentions ").count(), 1, "{said}");
}

/// How a daemon that should refuse its settings ends, and what it says; one that does not end is stopped.
fn ended(sandbox: &mut Sandbox, words: &[&str]) -> (Option<i32>, String) {
    let mut child = sandbox.command(words).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let out = child.wait_with_output().unwrap();
    (out.status.code(), text(&out.stderr))
}

#[test]
fn settings_that_all_windows_share_are_refused_by_whoever_carries_them_out() {
    let mut sandbox = Sandbox::new();
    let windows = format!(
        "EVENT_LIST = Rack\nRack = SHUTDOWN {} 03:00 600 20 All Last\nAll = True\nLast = 0\n",
        far_day()
    );
    for (line, why) in [
        ("EVENTD_TIME_ZONE = Mars/Base", "no time zone is called"),
        ("EVENTD_DRAIN_MANAGERS = =x=", "names no manager"),
        ("EVENTD_BANDWIDTH_DOMAIN = a b", "must name one machine attribute"),
        ("EVENTD_INTERVAL = 0", "EVENTD_INTERVAL is 0"),
        ("EndDownTime = abc", "EndDownTime must be a whole number"),
    ] {
        let path = write(&sandbox, "pool.conf", &format!("{windows}{line}\n"));
        for words in [
            &["config", "check", "-f", &path][..],
            &["eventd", "--config", &path],
            &["up", "--cpus", "1", "--config", &path],
        ] {
            let (code, said) = ended(&mut sandbox, words);
            assert_eq!(code, Some(1), "{line}, {}: {said}", words[0]);
            assert!(said.contains(why) && said.contains("pool.conf:5"), "{line}, {}: {said}", words[0]);
            assert_eq!(said.matches(why).count(), 1, "{line}, {}: {said}", words[0]);
        }
    }
}

#[test]
fn what_is_set_from_afar_is_warned_of_like_what_is_checked() {
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "pool.conf", "POLLING_INTERVAL = 1\n");
    sandbox.up(&["--cpus", "1", "--config", &config]);
    let here = machine(&sandbox).name;
    let said = sandbox.ok(&["config", "set", "--machine", &here, "START=KeybordIdle > 15"]);
    assert!(said.starts_with("set") && said.contains("did you mean KeyboardIdle?"), "{said}");
    let said = sandbox.ok(&["config", "set", "--machine", &here, "--set", "other", "KILL=False"]);
    assert_eq!(said.trim(), "set", "what was doubtful before is not repeated");
    // And refused like what is refused there.
    for (setting, why) in [
        ("EndDownTime=abc", "EndDownTime must be a whole number"),
        ("NextDownTime=noon", "NextDownTime must be a whole number"),
        ("SLOT1_EndDownTime=abc", "SLOT1_EndDownTime must be a whole number"),
        ("Shutdown=CurrentTime <", "Shutdown"),
        ("POLLING_INTERVAL=abc", "POLLING_INTERVAL must be"),
    ] {
        let out = sandbox.run(&["config", "set", "--machine", &here, "--set", "bad", setting]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{setting}: {said}");
        assert!(said.contains(why) && said.contains("override bad:2"), "{setting}: {said}");
    }
}

#[test]
fn settings_that_became_a_pipe_are_refused_and_keep_nobody_waiting() {
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "pool.conf", "POLLING_INTERVAL = 1\n");
    let up = sandbox.up(&["--cpus", "1", "--config", &config]);
    std::fs::remove_file(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    signal(up, libc::SIGHUP);
    let told = text(&sandbox.run(&["reconfig"]).stderr);
    assert!(told.contains("pipe"), "{told}");
    assert!(sandbox.ok(&["run", "--", "echo", "goes on"]).contains("goes on"));
    signal(up, libc::SIGTERM);
    let ended = sandbox.reap(up);
    assert!(ended.success(), "{ended}: {}", sandbox.logs());
}
