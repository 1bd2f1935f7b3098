//! A job that turns against those who look into it: it stops the processes that serve a visit, so that they would not notice their
//! visitor's end.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{NOBODY, as_nobody, shared_pool, submit, work};
use crate::harness::{Sandbox, text, updraft};
use crate::policy::PATIENCE;

/// Stops whatever stands between the process in the file `visitor` and the job's own parent, as far as it may: once.
const STOPS_THOSE_WHO_SERVE: &str = "touch ready\n\
    while [ ! -e go ]; do sleep 0.05; done\n\
    p=$(sed 's/.*) [A-Z] \\([0-9]*\\) .*/\\1/' /proc/$(cat visitor)/stat)\n\
    while [ \"$p\" != \"$PPID\" ] && [ \"$p\" -gt 1 ]; do\n\
      kill -STOP $p && echo $p >> stopped\n\
      p=$(sed 's/.*) [A-Z] \\([0-9]*\\) .*/\\1/' /proc/$p/stat)\n\
    done\n\
    touch done\n\
    while [ ! -e stop ]; do sleep 0.05; done\n";

/// How many processes are called so.
fn sleepers(seconds: u32) -> usize {
    let line = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|e| std::fs::read(e.path().join("cmdline")).is_ok_and(|l| l == line.as_bytes())).count()
}

/// Begins a command beside the job that says its number and leaves others behind; when all of it runs the job may begin.
fn visit(mut command: Command, sandbox: &Sandbox, dir: &Path, job: i32, seconds: u32) -> Child {
    let body = format!("(setsid sleep {seconds} >/dev/null 2>&1 &); echo $$ > visitor; sleep {seconds}");
    command.current_dir(dir).args(["ssh", &format!("{job}.0"), "--", "sh", "-c", &body]);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).env_remove("UPDRAFT_POOL");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    sandbox.until("the visitor's command runs", PATIENCE, || sleepers(seconds) == 2);
    std::fs::write(dir.join("go"), "").unwrap();
    child
}

fn hang_up(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_visit_ends_with_its_connection_though_the_job_has_stopped_whoever_serves_it() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    std::fs::write(work(&sandbox).join("job.sh"), STOPS_THOSE_WHO_SERVE).unwrap();
    let job = submit(&sandbox, "executable = /bin/sh\narguments = job.sh\nerror = err\nqueue\n");
    sandbox.until("it runs", PATIENCE, || work(&sandbox).join("ready").exists());
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft());
    let child = visit(command, &sandbox, &work(&sandbox), job, 7401);
    sandbox.until("it has done its worst", PATIENCE, || work(&sandbox).join("done").exists());
    let stopped = std::fs::read_to_string(work(&sandbox).join("stopped")).unwrap_or_default();
    assert_eq!(stopped.lines().count(), 1, "whoever has the job's rights can be stopped, and nobody else");
    hang_up(child);
    sandbox.until("nothing of the visit is left", PATIENCE, || sleepers(7401) == 0);
    let gone = |pid: &str| !std::path::Path::new("/proc").join(pid).exists();
    sandbox.until("whoever served it is gone", PATIENCE, || stopped.lines().all(gone));
    let out = as_nobody(&sandbox, &["ssh", &format!("{job}.0"), "--", "touch", "stop"]);
    assert!(work(&sandbox).join("stop").exists(), "{}", text(&out.stderr));
}

#[test]
fn a_visit_in_a_private_pool_ends_with_its_connection_though_all_who_serve_it_were_stopped() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    std::fs::write(sandbox.path().join("job.sh"), STOPS_THOSE_WHO_SERVE).unwrap();
    sandbox.ok(&["submit", "--", "sh", "job.sh"]);
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    let child = visit(Command::new(updraft()), &sandbox, sandbox.path(), 1, 7402);
    sandbox.until("it has done its worst", PATIENCE, || sandbox.path().join("done").exists());
    hang_up(child);
    sandbox.until("nothing of the visit is left", PATIENCE, || sleepers(7402) == 0);
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", "1", "--timeout", "60"]);
}

#[test]
fn what_a_visitor_left_behind_ends_though_the_job_has_killed_whoever_serves_it() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let kills = STOPS_THOSE_WHO_SERVE.replace("kill -STOP", "kill -KILL");
    std::fs::write(work(&sandbox).join("job.sh"), kills).unwrap();
    let job = submit(&sandbox, "executable = /bin/sh\narguments = job.sh\nerror = err\nqueue\n");
    sandbox.until("it runs", PATIENCE, || work(&sandbox).join("ready").exists());
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft());
    let mut child = visit(command, &sandbox, &work(&sandbox), job, 7403);
    sandbox.until("nothing of the visit is left", PATIENCE, || sleepers(7403) == 0);
    assert_eq!(child.wait().unwrap().code(), Some(255));
    as_nobody(&sandbox, &["ssh", &format!("{job}.0"), "--", "touch", "stop"]);
    assert!(work(&sandbox).join("stop").exists());
}
