//! What the manager keeps for users: checkpoints within a quota, and none of them from the journal's reserve.

use super::scratch::SmallDisk;
use super::{as_nobody, innocent_job_runs, shared_pool_in, submit, work};
use crate::harness::{Sandbox, is_root, skip};
use crate::policy::{PATIENCE, events, has};

const POLICY: &str = "use POLICY : AlwaysRun\n";

/// A job that saves so many MiB whenever it is asked, and goes on.
fn saving(sandbox: &Sandbox, mib: u32) -> i32 {
    let script = format!(
        "#!/bin/sh\ntrap 'head -c {mib}M /dev/urandom > saved.$1; exit 85' USR1\n\
         echo up >> starts.$1; while :; do sleep 0.05; done\n"
    );
    std::fs::write(work(sandbox).join("job.sh"), script).unwrap();
    submit(
        sandbox,
        "executable = /bin/sh\narguments = job.sh $(Cluster)\ncheckpoint_signal = SIGUSR1\ncheckpoint_exit_code = 85\n\
         transfer_checkpoint_files = saved.$(Cluster)\nshould_transfer_files = NO\nlog = log\nqueue\n",
    )
}

fn save(sandbox: &Sandbox, job: i32) {
    let runs = || work(sandbox).join(format!("starts.{job}")).exists();
    sandbox.until("it runs", PATIENCE, runs);
    let out = as_nobody(sandbox, &["checkpoint", &job.to_string()]);
    assert!(out.status.success(), "{out:?}");
}

/// Why the job was not saved.
fn reason(sandbox: &Sandbox, job: i32) -> String {
    sandbox.until("it is not saved", 3 * PATIENCE, || has(&events(sandbox, job), "JobNotSaved"));
    let story = events(sandbox, job);
    let event = story.iter().find(|e| e["event"] == "JobNotSaved").unwrap();
    event["reason"].as_str().unwrap().to_owned()
}

/// Its process was not touched, and it is told of it in its log.
fn goes_on(sandbox: &Sandbox, job: i32, why: &str) {
    let story = events(sandbox, job);
    assert!(
        !has(&story, "JobsRequeued") && !has(&story, "JobsHeld") && !has(&story, "JobExited"),
        "{story:?}"
    );
    let log = || std::fs::read_to_string(work(sandbox).join("log")).unwrap_or_default();
    sandbox.until("its log says so", PATIENCE, || log().contains(why));
    as_nobody(sandbox, &["rm", &job.to_string()]);
}

#[test]
fn checkpoints_beyond_the_quota_are_refused_with_a_reason_and_the_job_goes_on() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let mut sandbox = Sandbox::new();
    let config = crate::policy::write(&sandbox, "pool.conf", &format!("{POLICY}CHECKPOINT_QUOTA = 5\n"));
    sandbox.up(&["--shared", "--cpus", "2", "--config", &config]);
    let first = saving(&sandbox, 3);
    save(&sandbox, first);
    sandbox.until("it is saved", PATIENCE, || has(&events(&sandbox, first), "JobCheckpointed"));
    let second = saving(&sandbox, 3);
    save(&sandbox, second);
    let why = reason(&sandbox, second);
    assert!(why.contains("CHECKPOINT_QUOTA") && why.contains("take 4 MiB"), "{why}");
    // What replaces an older checkpoint of the same job is not counted twice.
    save(&sandbox, first);
    let saved = || events(&sandbox, first).iter().filter(|e| e["event"] == "JobCheckpointed").count();
    sandbox.until("it is saved again", PATIENCE, || saved() == 2);
    goes_on(&sandbox, second, "CHECKPOINT_QUOTA");
    as_nobody(&sandbox, &["rm", &first.to_string()]);
    innocent_job_runs(&sandbox);
}

#[test]
fn a_nearly_full_disk_takes_no_checkpoint_and_the_job_goes_on() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    let disk = SmallDisk::mount(sandbox.state());
    let Some((sandbox, _)) = shared_pool_in(sandbox, POLICY, &[]) else { return };
    let job = saving(&sandbox, 1);
    // Of 200 MiB 10 are the journal's.
    let mut fill = std::process::Command::new("fallocate");
    assert!(fill.args(["-l", "192M"]).arg(sandbox.state().join("ballast")).status().unwrap().success());
    save(&sandbox, job);
    let why = reason(&sandbox, job);
    assert!(why.contains("nearly full"), "{why}");
    goes_on(&sandbox, job, "nearly full");
    innocent_job_runs(&sandbox);
    drop(sandbox);
    drop(disk);
}
