//! Whoever has a job's user (a login, another job) stops the processes that move the job's files, to keep its slot.

use std::time::{Duration, Instant};

use super::{NOBODY, shared_pool, submit, work};
use crate::harness::{Sandbox, signal};
use crate::policy::{PATIENCE, events, has};

/// Processes with the ordinary user's rights and a starter's memory: chores.
fn chores(sandbox: &Sandbox) -> Vec<u32> {
    let is_chore = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_theirs = status.lines().any(|l| l.starts_with("Uid:") && l.contains(&NOBODY.to_string()));
        line.split(|b| *b == 0).nth(1) == Some(b"starter") && is_theirs
    };
    sandbox.processes().into_iter().filter(is_chore).collect()
}

#[test]
fn a_process_that_moves_a_jobs_files_goes_on_when_its_user_has_stopped_it() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    std::fs::write(work(&sandbox).join("job.sh"), "truncate -s 200M large\n").unwrap();
    let job = submit(
        &sandbox,
        "executable = /bin/sh\ntransfer_executable = false\narguments = job.sh\ntransfer_input_files = job.sh\n\
         should_transfer_files = YES\ntransfer_output_files = large\nqueue\n",
    );
    let deadline = Instant::now() + PATIENCE;
    let stopped = loop {
        // What puts inputs in place is quick; what collects 200 MB is not.
        let is_stopped = |pid: &u32| {
            signal(*pid, libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(20));
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("State:\tT")
        };
        if let Some(pid) = chores(&sandbox).into_iter().find(is_stopped) {
            break pid;
        }
        assert!(Instant::now() < deadline, "nobody who moves files was seen");
    };
    sandbox.until(&format!("the job ends though {stopped} was stopped"), PATIENCE, || {
        has(&events(&sandbox, job), "JobExited")
    });
    assert_eq!(std::fs::metadata(work(&sandbox).join("large")).unwrap().len(), 200 << 20);
}
