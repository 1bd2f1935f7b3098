//! Divided machines, jobs that the owner wants held, and jobs that are warned: with real processes.

use serde_json::Value;

use crate::harness::{Sandbox, text};
use crate::joblog::logged;
use crate::policy::{
    AWAY, PATIENCE, STAYS, TOUCH, events, grows, has, len, machine, nothing_left, script, stands_still,
    submit, until_stopped, up, write,
};

#[test]
fn a_divided_machine_suspends_in_the_right_slot_and_keeps_large_jobs_out_of_small_ones() {
    let mut sandbox = Sandbox::new();
    let policy = "SLOT_TYPE_1 = cpus=1, memory=25%, disk=25%\nNUM_SLOTS_TYPE_1 = 1\n\
                  SLOT_TYPE_2 = cpus=2, memory=50%, disk=50%\nNUM_SLOTS_TYPE_2 = 1\n\
                  WANT_SUSPEND = True\nCONTINUE = KeyboardIdle > 300\n\
                  SLOT_TYPE_1_SUSPEND = KeyboardIdle < 60\nSLOT_TYPE_2_SUSPEND = False\n\
                  STARTD_ATTRS = Desk\nDesk = False\nSLOT1_Desk = True\n";
    let pool = up(&mut sandbox, policy, &script(60, &[(0, AWAY), (420, TOUCH)]), &["--cpus", "3"]);
    let here = machine(&sandbox);
    let writer = |name: &str| format!("while [ ! -e stop ]; do echo x >> {name}; sleep 0.02; done");
    let (desk, rack) = (sandbox.path().join("desk"), sandbox.path().join("rack"));
    let small = submit(&sandbox, &writer("desk"), &["--set", "requirements=TARGET.Desk"]);
    let large = submit(&sandbox, &writer("rack"), &["--set", "request_cpus=2"]);
    // The machine has three cores, but no slot does.
    let waits = submit(&sandbox, "touch never", &["--set", "request_cpus=3"]);
    sandbox.until("both write", PATIENCE, || len(&desk) > 0 && len(&rack) > 0);
    let status = sandbox.ok(&["status"]);
    assert!(status.contains("slot1@") && status.contains("slot2@"), "{status}");
    assert!(status.contains("1 machines, 3 cores, 0 free"), "{status}");
    here.until(13);
    until_stopped(&sandbox);
    stands_still(&desk);
    grows(&sandbox, &rack);
    let suspended: Vec<String> =
        here.trace().into_iter().filter(|(n, ..)| *n == 13).map(|(_, slot, _)| slot).collect();
    assert_eq!(suspended, ["slot1 Claimed/Suspended"]);
    let ad = sandbox.ok(&["status", "-l", &format!("slot2@{}", here.name)]);
    assert!(ad.contains("SlotType = \"Static\"") && ad.contains("Cpus = 2\n"), "{ad}");
    let why = sandbox.ok(&["status", "--why", &here.name]);
    assert!(why.contains("slot1") && why.contains("slot2"), "{why}");
    let told = sandbox.ok(&["explain", &waits.to_string()]);
    assert!(told.contains("cores"), "{told}");
    here.until(14);
    // An operator's word for one slot, and why: the other job does not hear of it.
    sandbox.ok(&["vacate", "--machine", &here.name, "--slot", "slot2", "--reason", "the rack moves"]);
    sandbox.until("it left", PATIENCE, || has(&events(&sandbox, large), "JobsRequeued"));
    let left = events(&sandbox, large).into_iter().find(|e| e["event"] == "JobsRequeued").unwrap();
    assert_eq!(left["reason"], "the rack moves", "{left}");
    assert!(!has(&events(&sandbox, small), "JobsRequeued"));
    let log = sandbox.path().join("job.events");
    let says = || std::fs::read_to_string(&log).unwrap_or_default().contains("the rack moves");
    sandbox.until("its log says why", PATIENCE, says);
    let refused = sandbox.run(&["vacate", "--machine", &here.name, "--slot", "slot9"]);
    assert!(text(&refused.stderr).contains("no such slot"), "{}", text(&refused.stderr));
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    for job in [small, large] {
        sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
    }
    assert!(!sandbox.path().join("never").exists());
    sandbox.ok(&["rm", &waits.to_string()]);
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    let config = write(&sandbox, "policy.conf", "SLOT_TYPE_1 = cpus=60%\nNUM_SLOTS_TYPE_1 = 2\n");
    let out = sandbox.run(&["up", "--cpus", "10", "--config", &config]);
    let said = text(&out.stderr) + &text(&out.stdout);
    assert!(!out.status.success(), "{said}");
    assert!(said.contains("policy.conf:1:") && said.contains("only 4 are left"), "{said}");
    // Who asks before hears the same.
    let asked = sandbox.run(&["config", "check", "--file", &config, "--cpus", "10"]);
    let told = text(&asked.stderr);
    assert!(!asked.status.success() && told.contains("policy.conf:1:"), "{told}");
    assert!(
        told.lines().any(|line| line.contains("only 4 are left") && said.contains(line.trim())),
        "{told}"
    );
    let other = ["config", "check", "--file", &config, "--subsystem", "SCHEDD"];
    assert!(sandbox.run(&other).status.success(), "slots are of no concern to others");
}

#[test]
fn the_owner_may_want_a_job_held() {
    let mut sandbox = Sandbox::new();
    let policy = "PREEMPT = KeyboardIdle < 60\nWANT_HOLD = True\nWANT_HOLD_REASON = \"not on my desk\"\n\
                  WANT_HOLD_SUBCODE = 5\n";
    let pool = up(&mut sandbox, policy, &script(60, &[(0, AWAY), (300, STAYS)]), &["--cpus", "1"]);
    let job = submit(&sandbox, "while :; do sleep 0.1; done", &[]);
    sandbox.until("it is held", PATIENCE, || has(&events(&sandbox, job), "JobsHeld"));
    let held = events(&sandbox, job).into_iter().find(|e| e["event"] == "JobsHeld").unwrap();
    assert_eq!(
        (&held["reason"], &held["code"]),
        (&Value::from("not on my desk"), &Value::from(21)),
        "{held}"
    );
    assert_eq!(held["subcode"], 5);
    assert!(!has(&events(&sandbox, job), "JobsRequeued"));
    sandbox.ok(&["rm", &job.to_string()]);
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_job_that_is_warned_hears_the_signal_it_asked_for_and_reads_how_long_it_has() {
    let mut sandbox = Sandbox::new();
    // The window begins in half a minute, and warnings go out a minute before.
    let policy = "EVENT_LIST = Rack\nRack = SHUTDOWN DAY 03:00 600 20 Everything None\nEverything = True\nNone = 0\n\
                  EVENTD_INTERVAL = 5\nEVENTD_WARNING = 60\nUPDATE_INTERVAL = 2\nPOLLING_INTERVAL = 1\n\
                  EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\n";
    let policy = policy.replace("DAY", &crate::harness::far_day().to_string());
    let config = write(&sandbox, "policy.conf", &policy);
    let pool = sandbox.up(&["--config", &config, "--lease", "60", "--cpus", "2"]);
    machine(&sandbox);
    let heard = "trap 'cat $UPDRAFT_WARNING_FILE > heard; date +%s >> heard' USR2; touch ready; \
                 while [ ! -e stop ]; do sleep 0.05; done";
    let listens = submit(&sandbox, heard, &["--set", "warning_signal=SIGUSR2"]);
    // One that asked for no signal gets none, and finds the file.
    let looks = submit(
        &sandbox,
        "trap 'touch killed' TERM USR1 USR2 HUP; until [ -e $UPDRAFT_WARNING_FILE ]; do sleep 0.05; done; \
         cat $UPDRAFT_WARNING_FILE > seen; while [ ! -e stop ]; do sleep 0.05; done",
        &[],
    );
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join(name)).unwrap_or_default();
    sandbox.until("it is ready", PATIENCE, || sandbox.path().join("ready").exists());
    sandbox.ok(&["maintenance", "--config", &config, "start", "Rack", "--in", "45s", "--duration", "60s"]);
    sandbox
        .until("both know", PATIENCE, || read("heard").lines().count() == 2 && read("seen").contains('\n'));
    for told in [read("heard"), read("seen")] {
        let words: Vec<u64> = told.lines().next().unwrap().split(' ').map(|w| w.parse().unwrap()).collect();
        let [left, deadline] = words[..] else { panic!("{told}") };
        assert!(left <= 60, "{told}");
        assert!(deadline > 1_700_000_000, "{told}");
    }
    for (job, signal) in [(listens, libc::SIGUSR2), (looks, 0)] {
        sandbox.until("the journal knows", PATIENCE, || has(&events(&sandbox, job), "JobWarned"));
        let warned = events(&sandbox, job).into_iter().find(|e| e["event"] == "JobWarned").unwrap();
        assert_eq!(warned["signal"], signal, "{warned}");
        assert!(warned["remaining_s"].as_u64().unwrap() <= 60, "{warned}");
        let says = |kind| logged(&sandbox.path().join("job.events"))[&(job, 0)].contains(&kind);
        sandbox.until("its log says so", PATIENCE, || says(8));
    }
    assert!(!sandbox.path().join("killed").exists(), "nobody gets a signal by surprise");
    sandbox.ok(&["maintenance", "--config", &config, "cancel", "Rack"]);
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    for job in [listens, looks] {
        sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    }
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}
