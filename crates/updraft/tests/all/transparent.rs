//! Jobs that are saved without knowing of it, by a real CRIU where there is one, across machines that come and go.

use crate::harness::{Sandbox, criu, signal};
use crate::policy::{
    AWAY, Machine, PATIENCE, STAYS, agent, events, has, machine, manager, nothing_left, script, write,
};

/// Counts in memory, in its output and in a file in its scratch directory that it keeps open; ends with 3 when told.
const COUNT: &str = "#!/bin/sh\nexec 7>$TMPDIR/kept\nn=0\nwhile [ ! -e stop ]; do\n  n=$((n+1))\n  echo $n\n  \
                     echo $n >&7\n  sleep 0.02\ndone\n[ $(wc -l < $TMPDIR/kept) = $n ] && exit 3\n";

const WISH: &str = "executable = /bin/sh\narguments = count.sh\nwant_transparent_checkpoint = true\n\
                    should_transfer_files = NO\noutput = out\nlog = job.events\n";

/// Its steps so far: none is missing, none was done twice.
fn steps(sandbox: &Sandbox) -> u64 {
    let text = std::fs::read_to_string(sandbox.path().join("out")).unwrap_or_default();
    let counted: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(counted.iter().copied().eq(1..=counted.len() as u64), "{counted:?}");
    counted.len() as u64
}

fn saved(sandbox: &Sandbox, job: i32) -> usize {
    events(sandbox, job).iter().filter(|e| e["event"] == "JobCheckpointed").count()
}

/// Processes of starters.
fn starters(sandbox: &Sandbox) -> Vec<u32> {
    let is_starter = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(b"starter")
    };
    sandbox.processes().into_iter().filter(is_starter).collect()
}

fn submit(sandbox: &Sandbox, more: &str) -> i32 {
    write(sandbox, "count.sh", COUNT);
    write(sandbox, "count.sub", &format!("{WISH}{more}queue\n"));
    sandbox.json(&["submit", "--json", "count.sub"])[0]["cluster"].as_i64().unwrap() as i32
}

#[test]
fn an_unknowing_job_outlives_its_machines() {
    let Some(criu) = criu() else { return };
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let of = |policy: &str, domain: &str| format!("{policy}\nCRIU = {criu}\nCHECKPOINT_DOMAIN = {domain}\n");
    let desktop = of("use POLICY : UWCS_Desktop\nMaxVacateTime = 60 * $(MINUTE)", "here");
    let always = of("use POLICY : AlwaysRun", "here");
    let elsewhere = of("use POLICY : AlwaysRun", "elsewhere");
    let owner = script(120, &[(0, AWAY), (900, STAYS)]);
    let desk = agent(&mut sandbox, "desk", &desktop, Some(&owner));
    let job = submit(&sandbox, "");
    sandbox.until("it counts", PATIENCE, || steps(&sandbox) > 0);
    // Its owner is back: it is suspended, then it leaves.
    Machine { sandbox: &sandbox, name: "desk".to_owned() }.until(17);
    sandbox.until("it is idle again", PATIENCE, || has(&events(&sandbox, job), "JobsRequeued"));
    assert_eq!(saved(&sandbox, job), 1, "{:?}", events(&sandbox, job));
    let left = steps(&sandbox);
    // A machine of another kind comes: it is not even tried there, and one can ask why.
    let stranger = agent(&mut sandbox, "stranger", &elsewhere, None);
    let offers = || sandbox.ok(&["status", "-l", "stranger"]).contains("HasTransparentCheckpoint = true");
    sandbox.until("it was checked", PATIENCE, offers);
    let why = sandbox.ok(&["explain", &job.to_string()]);
    assert!(why.contains("CheckpointPlatform"), "{why}");
    assert_eq!(steps(&sandbox), left, "it runs nowhere");
    // So does one of the same kind: it goes on where it was.
    let spare = agent(&mut sandbox, "spare", &always, None);
    sandbox.until("it goes on", PATIENCE, || steps(&sandbox) > left + 5);
    sandbox.ok(&["checkpoint", &job.to_string()]);
    sandbox.until("it is saved", PATIENCE, || saved(&sandbox, job) == 2);
    let then = steps(&sandbox);
    sandbox.until("it goes on from there", PATIENCE, || steps(&sandbox) > then + 20);
    // Everything dies at once: what was done since the checkpoint is done again, and what it wrote is written once.
    for pid in starters(&sandbox) {
        signal(pid, libc::SIGKILL);
    }
    let starts = || events(&sandbox, job).iter().filter(|e| e["event"] == "JobStarted").count();
    sandbox.until("it is put back", PATIENCE, || starts() == 3);
    sandbox.until("it goes on", PATIENCE, || steps(&sandbox) > then + 25);
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    let ended = sandbox.run(&["wait", &job.to_string(), "--timeout", "30"]);
    let story = events(&sandbox, job);
    let exited =
        story.iter().find(|e| e["event"] == "JobExited").unwrap_or_else(|| panic!("{story:?} {ended:?}"));
    assert_eq!(exited["exit"]["code"], 3, "the file in its scratch directory came along: {exited}");
    steps(&sandbox);
    let agents = [("desk", desk), ("stranger", stranger), ("spare", spare)]
        .map(|(name, pid)| (sandbox.path().join(name), pid));
    nothing_left(&mut sandbox, &agents);
}

#[test]
fn what_cannot_be_put_back_is_tried_once_more_and_then_held() {
    let Some(criu) = criu() else { return };
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let policy = format!("use POLICY : AlwaysRun\nCRIU = {criu}\n");
    let one = agent(&mut sandbox, "one", &policy, None);
    let job = submit(&sandbox, "");
    sandbox.until("it counts", PATIENCE, || steps(&sandbox) > 0);
    sandbox.ok(&["checkpoint", &job.to_string()]);
    sandbox.until("it is saved", PATIENCE, || saved(&sandbox, job) == 1);
    sandbox.ok(&["hold", &job.to_string()]);
    sandbox.until("it is held", PATIENCE, || has(&events(&sandbox, job), "JobsHeld"));
    // Its output is gone: the processes that wrote it cannot go on.
    let out = sandbox.path().join("out");
    std::fs::rename(&out, sandbox.path().join("away")).unwrap();
    let two = agent(&mut sandbox, "two", &policy, None);
    sandbox.ok(&["release", &job.to_string()]);
    let holds = || events(&sandbox, job).into_iter().filter(|e| e["event"] == "JobsHeld").collect::<Vec<_>>();
    sandbox.until("it is held again", PATIENCE, || holds().len() == 2);
    let reason = holds()[1]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("checkpoint cannot be put back") && reason.contains("out"), "{reason}");
    // Nothing was thrown away: with its file back it goes on.
    std::fs::rename(sandbox.path().join("away"), &out).unwrap();
    let before = steps(&sandbox);
    sandbox.ok(&["release", &job.to_string()]);
    sandbox.until("it goes on", PATIENCE, || steps(&sandbox) > before);
    sandbox.ok(&["rm", &job.to_string()]);
    let agents = [("one", one), ("two", two)].map(|(name, pid)| (sandbox.path().join(name), pid));
    nothing_left(&mut sandbox, &agents);
}

#[test]
fn what_cannot_be_saved_goes_on_and_one_can_read_why() {
    let Some(criu) = criu() else { return };
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "p.conf", &format!("use POLICY : AlwaysRun\nCRIU = {criu}\n"));
    let pool = sandbox.up(&["--cpus", "1", "--config", &config]);
    // Half of an open connection cannot be taken elsewhere.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "trap 'echo asked >> asked; exit 0' TERM; exec 7<>/dev/tcp/127.0.0.1/{port}; n=0; \
         while [ ! -e stop ]; do n=$((n+1)); echo $n; sleep 0.02; done"
    );
    write(&sandbox, "net.sh", &script);
    let wish = WISH.replace("/bin/sh", "/bin/bash").replace("count.sh", "net.sh");
    write(&sandbox, "net.sub", &format!("{wish}queue\n"));
    let job = sandbox.json(&["submit", "--json", "net.sub"])[0]["cluster"].as_i64().unwrap() as i32;
    let _connected = listener.accept().unwrap();
    sandbox.until("it counts", PATIENCE, || steps(&sandbox) > 0);
    let failures =
        || events(&sandbox, job).into_iter().filter(|e| e["event"] == "JobNotSaved").collect::<Vec<_>>();
    let ask = || {
        sandbox.ok(&["checkpoint", &job.to_string()]);
        !failures().is_empty()
    };
    sandbox.until("it could not be saved", PATIENCE, ask);
    let reason = failures()[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("CRIU: ") && !reason.contains("exit status"), "{reason}");
    let before = steps(&sandbox);
    sandbox.until("it goes on", PATIENCE, || steps(&sandbox) > before);
    assert!(!sandbox.path().join("asked").exists());
    // When it must leave it is asked as every job is, and begins anew elsewhere or here.
    sandbox.ok(&["vacate", &job.to_string()]);
    sandbox.until("it was asked", PATIENCE, || sandbox.path().join("asked").exists());
    let log = || std::fs::read_to_string(sandbox.path().join("job.events")).unwrap_or_default();
    sandbox.until("its log says why", PATIENCE, || log().contains("The job was not checkpointed: CRIU"));
    assert_eq!(saved(&sandbox, job), 0);
    sandbox.ok(&["rm", &job.to_string()]);
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_job_that_wants_to_be_saved_from_outside_is_refused_with_a_reason() {
    let mut sandbox = Sandbox::new();
    let config = write(&sandbox, "none.conf", "use POLICY : AlwaysRun\nCRIU = none\n");
    sandbox.up(&["--cpus", "1", "--config", &config]);
    let here = machine(&sandbox);
    let offers = || sandbox.ok(&["status", "-l", &here.name]);
    sandbox.until("it was checked", PATIENCE, || offers().contains("CRIU = none"));
    assert!(offers().contains("HasTransparentCheckpoint = false"), "{}", offers());
    // By the keyword it matches no machine; with the bare attribute it is held where it would have run.
    let job = submit(&sandbox, "");
    write(&sandbox, "bare.sub", "executable = /bin/true\n+WantTransparentCheckpoint = true\nqueue\n");
    sandbox.ok(&["submit", "bare.sub"]);
    sandbox.until("the second is held", PATIENCE, || has(&events(&sandbox, job + 1), "JobsHeld"));
    let story = format!("{:?}", events(&sandbox, job + 1));
    assert!(story.contains("CRIU = none"), "{story}");
    assert!(!has(&events(&sandbox, job), "JobStarted"));
    let why = sandbox.ok(&["explain", &job.to_string()]);
    assert!(why.contains("HasTransparentCheckpoint"), "{why}");
    // Who is saved from outside does not save itself as well.
    let both = format!("{WISH}checkpoint_exit_code = 85\nqueue\n");
    write(&sandbox, "both.sub", &both);
    let out = sandbox.run(&["submit", "both.sub"]);
    assert!(!out.status.success());
}
