//! Expressions that cost much: those of one user must not keep the manager from everybody else.

use std::time::{Duration, Instant};

use super::{as_nobody, innocent_job_runs, shared_pool, work};
use crate::harness::{signal, text};

/// Attributes of which each takes twice as long to evaluate as the one before.
fn doubling() -> String {
    let attributes = (1..=30).map(|n| format!("+A{n} = A{0} + A{0}\n", n - 1));
    format!(
        "executable = /bin/true\noutput = /dev/null\nerror = /dev/null\n+A0 = ProcId\n{}",
        attributes.collect::<String>()
    )
}

#[test]
fn costly_expressions_of_one_user_keep_nobody_and_do_not_delay_a_stop() {
    let Some((mut sandbox, pid)) = shared_pool("PERIODIC_EXPR_INTERVAL = 1\n", &[]) else { return };
    let submit = |name: &str, lines: &str| {
        std::fs::write(work(&sandbox).join(name), doubling() + lines).unwrap();
        let out = as_nobody(&sandbox, &["submit", name]);
        assert!(out.status.success(), "{name}: {}", text(&out.stderr));
    };
    submit("periodic", "periodic_remove = A30 < 0\nhold = true\nqueue 2000\n");
    submit("at-exit", "on_exit_hold = A30 < 0\nqueue 5\n");
    submit("ranked", "rank = A30\nrequirements = TARGET.Memory > A30\nqueue 5\n");
    submit("sized", "request_cpus = ifThenElse(A30>0,1,1)\nrequest_disk = A30+1\nqueue 5\n");
    submit("kept", "leave_in_queue = A30 > 0 || true\nqueue 5\n");
    std::thread::sleep(Duration::from_secs(2));
    innocent_job_runs(&sandbox);
    // Promise 37, also while there are many to look at.
    let began = Instant::now();
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn who_has_no_account_gets_nothing_but_a_reason() {
    let Some((sandbox, _)) = shared_pool("", &[]) else { return };
    let out = std::process::Command::new("setpriv")
        .args(["--reuid", "231078", "--regid", "231078", "--clear-groups", "--"])
        .arg(crate::harness::updraft())
        .args(["submit", "--set", "output=/dev/null", "--set", "error=/dev/null", "--", "/bin/true"])
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .current_dir(work(&sandbox))
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("has no account on this machine"), "{said}");
    assert!(!sandbox.ok(&["userprio"]).contains("231078"));
}
