//! What a job leaves behind when those who watch over it are killed or stopped.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{shared_pool, submit, work};
use crate::harness::{Sandbox, is_root, signal, skip, updraft};
use crate::policy::{PATIENCE, grows, len, stands_still};

/// Leaves its session and its parents, forgets its environment, and writes.
const ESCAPED: &str = "executable = /bin/sh\n\
    arguments = \"-c 'setsid env -i sh -c ''(setsid env -i sh -c \"\"while :; do echo x >> far; sleep 0.02; done\"\" &)'' & while :; do sleep 1; done'\"\n\
    queue\n";

/// The process of an agent's starter that has a claim.
fn starters(sandbox: &Sandbox) -> Vec<u32> {
    let is_starter = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(b"starter")
    };
    sandbox.processes().into_iter().filter(is_starter).collect()
}

fn writing(sandbox: &Sandbox) -> std::path::PathBuf {
    submit(sandbox, ESCAPED);
    let far = work(sandbox).join("far");
    sandbox.until("it writes", PATIENCE, || len(&far) > 10);
    far
}

/// Waits until a file has not grown for a while.
fn until_still(sandbox: &Sandbox, path: &Path, patience: Duration) {
    sandbox.until("nothing of it is left", patience, || {
        let before = len(path);
        std::thread::sleep(Duration::from_millis(300));
        len(path) == before
    });
}

#[test]
fn nothing_outlives_an_agent_and_a_starter_that_are_killed_together() {
    let Some((mut sandbox, pool)) = shared_pool("use POLICY : AlwaysRun\n", &["--lease", "60"]) else {
        return;
    };
    let far = writing(&sandbox);
    let starters = starters(&sandbox);
    signal(pool, libc::SIGKILL);
    for pid in starters {
        signal(pid, libc::SIGKILL);
    }
    until_still(&sandbox, &far, Duration::from_secs(5));
    stands_still(&far);
    sandbox.reap(pool);
}

#[test]
fn nothing_outlives_the_lease_when_agent_and_starter_are_stopped() {
    let Some((mut sandbox, pool)) =
        shared_pool("use POLICY : AlwaysRun\n", &["--lease", "4", "--beat", "500"])
    else {
        return;
    };
    let far = writing(&sandbox);
    let starters = starters(&sandbox);
    // With their keepers: a kernel timer lets those go on.
    let keepers: Vec<u32> = starters.iter().filter_map(|pid| parent(*pid)).filter(|p| *p != pool).collect();
    for pid in [pool].iter().chain(&starters).chain(&keepers) {
        signal(*pid, libc::SIGSTOP);
    }
    grows(&sandbox, &far);
    until_still(&sandbox, &far, Duration::from_secs(15));
    stands_still(&far);
    sandbox.kill(pool);
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("PPid:")?.trim().parse().ok())
}

#[test]
fn a_starter_that_loses_its_keeper_ends_its_job() {
    let Some((sandbox, pool)) = shared_pool("use POLICY : AlwaysRun\n", &["--lease", "60"]) else { return };
    let far = writing(&sandbox);
    let keepers: Vec<u32> =
        starters(&sandbox).into_iter().filter_map(parent).filter(|p| *p != pool).collect();
    assert!(!keepers.is_empty(), "starters have keepers");
    // No more jobs, so that what is killed stays so.
    sandbox.ok(&["hold", "1"]);
    for pid in keepers {
        signal(pid, libc::SIGKILL);
    }
    until_still(&sandbox, &far, Duration::from_secs(5));
}

#[test]
fn a_starter_that_does_not_answer_is_killed_and_its_job_runs_again() {
    let config = "use POLICY : AlwaysRun\nNOT_RESPONDING_TIMEOUT = 1\n";
    let Some((sandbox, _)) = shared_pool(config, &["--lease", "600"]) else { return };
    let far = writing(&sandbox);
    for pid in starters(&sandbox) {
        signal(pid, libc::SIGSTOP);
    }
    let told = || sandbox.ok(&["events", "--json", "--cluster", "1"]).contains("did not answer");
    sandbox.until("the claim is lost and one can read why", PATIENCE, told);
    grows(&sandbox, &far);
    // A loop that is just forking shows twice, but two attempts never show as one.
    let loops = || super::processes_with(&sandbox, "\0while :; do echo x >> far; sleep 0.02; done\0");
    sandbox.until("one attempt at a time", PATIENCE, || loops().len() == 1);
}

/// The same without control groups: nobody sees their mount.
#[test]
fn nothing_outlives_its_starter_where_there_are_no_control_groups() {
    if !is_root() {
        return skip("hiding a mount needs root");
    }
    let mut sandbox = Sandbox::new();
    let hide = "mount --make-rprivate / && umount -l /sys/fs/cgroup/unified 2>/dev/null; umount -Rl /sys/fs/cgroup \
                && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide, "sh"]).arg(updraft());
    command.args(["up", "--shared", "--cpus", "1", "--lease", "60"]);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(sandbox.path());
    let pool = sandbox.spawn(command, "up.log");
    sandbox.wait_until_up();
    let far = writing(&sandbox);
    let starters = starters(&sandbox);
    for pid in &starters {
        let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(!group.contains("updraft-starter"), "it has a control group: {group}");
    }
    signal(pool, libc::SIGKILL);
    for pid in starters {
        signal(pid, libc::SIGKILL);
    }
    until_still(&sandbox, &far, Duration::from_secs(5));
    stands_still(&far);
    sandbox.reap(pool);
}

/// Forks, leaves its session and ends, over and over: nobody who is seen is there any more when he is killed.
const RUNAWAY: &str = "import os\n\
    while True:\n\
    \x20 if os.fork(): os._exit(0)\n\
    \x20 os.setsid()\n\
    \x20 with open('far', 'a') as f: f.write('x')\n";

#[test]
fn a_process_that_runs_away_from_its_killer_is_caught() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &["--lease", "60"]) else { return };
    std::fs::write(work(&sandbox).join("run.py"), RUNAWAY).unwrap();
    let job = submit(
        &sandbox,
        "executable = /bin/sh\narguments = \"-c 'for n in 1 2 3 4; do python3 run.py & done; sleep 600'\"\nqueue\n",
    );
    let far = work(&sandbox).join("far");
    sandbox.until("they run", PATIENCE, || len(&far) > 100);
    sandbox.ok(&["rm", &job.to_string()]);
    until_still(&sandbox, &far, Duration::from_secs(20));
    stands_still(&far);
    super::innocent_job_runs(&sandbox);
}
