//! Looking into running jobs, wherever they run: `updraft tail` and `updraft ssh`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, skip, text, updraft};
use crate::transfer::{Far, NOBODY, PATIENCE, script};

/// Another ordinary user, who has an account everywhere.
const DAEMON: u32 = 1;

/// A command of the ordinary user's that is not waited for.
fn begin_as(far: &Far, uid: u32, words: &[&str]) -> Command {
    let id = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft()).args(words);
    command.env("UPDRAFT_STATE_DIR", far.sandbox.state()).env_remove("UPDRAFT_POOL");
    command.env("HOME", "/nonexistent").current_dir(far.work()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn as_user(far: &Far, uid: u32, words: &[&str]) -> Output {
    begin_as(far, uid, words).output().unwrap()
}

/// Reads until what was read contains this.
fn read_until(child: &mut Child, what: &str) -> String {
    let out = child.stdout.as_mut().unwrap();
    let mut all = Vec::new();
    let mut byte = [0; 1];
    while !text(&all).contains(what) {
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{:?} ended before {what:?}", text(&all));
        all.push(byte[0]);
    }
    text(&all)
}

/// A job on a machine that sees none of the submit directory, which runs until a file appears in its scratch directory.
fn far_job(far: &mut Far, body: &str, more: &str) -> (i32, std::path::PathBuf) {
    far.machine("far", 2);
    let dir = far.directory("visited");
    script(&dir.join("job.sh"), body);
    let description = format!(
        "executable = job.sh\nshould_transfer_files = YES\noutput = out\nerror = err\nlog = log\n{more}queue\n"
    );
    let cluster = far.submit(&dir, &description);
    far.wait_for(cluster, "JobStarted", 1);
    (cluster, dir)
}

/// Waits until a command beside the job finds a file there.
fn until_there(far: &Far, job: &str, file: &str) {
    far.sandbox.until(&format!("{file} is there"), PATIENCE, || {
        as_user(far, NOBODY, &["ssh", job, "--", "test", "-e", file]).status.success()
    });
}

/// Has a job end. The command that does it ends with it, before or after it could say so.
fn stop(far: &Far, job: &str) {
    as_user(far, NOBODY, &["ssh", job, "--", "touch", "stop"]);
}

const COUNTS: &str = "seq 20; echo trouble >&2; echo one > log.txt; touch ready\n\
                      while [ ! -e more ]; do sleep 0.05; done; echo more; while [ ! -e stop ]; do sleep 0.05; done; echo last";

#[test]
fn the_output_of_a_job_is_shown_while_it_runs_on_a_machine_without_shared_files() {
    let Some(mut far) = Far::new() else { return };
    let (cluster, dir) = far_job(&mut far, COUNTS, "");
    let job = format!("{cluster}.0");
    until_there(&far, &job, "ready");
    assert!(!dir.join("out").exists(), "it comes home at the end");
    let shown = as_user(&far, NOBODY, &["tail", "-n", "2", &job]);
    assert_eq!(
        (text(&shown.stdout), shown.status.code()),
        ("19\n20\n".into(), Some(0)),
        "{}",
        text(&shown.stderr)
    );
    assert_eq!(text(&as_user(&far, NOBODY, &["tail", "--err", &job]).stdout), "trouble\n");
    assert_eq!(text(&as_user(&far, NOBODY, &["tail", &job, "log.txt"]).stdout), "one\n");
    assert_eq!(text(&as_user(&far, NOBODY, &["tail", "--all", &job]).stdout).lines().count(), 20);
    for (file, why) in
        [("none", "No such file"), ("/proc/version", "no regular file"), (".", "no regular file")]
    {
        let out = as_user(&far, NOBODY, &["tail", &job, file]);
        assert!(!out.status.success() && text(&out.stderr).contains(why), "{file}: {}", text(&out.stderr));
    }
    // Others do not see it; administrators do, and that is recorded.
    let other = as_user(&far, DAEMON, &["tail", &job]);
    assert_eq!((other.status.code(), text(&other.stdout)), (Some(1), String::new()));
    assert!(text(&other.stderr).contains("belongs to nobody"), "{}", text(&other.stderr));
    assert!(far.events(cluster).iter().all(|e| e["event"] != "JobVisited" || e["by"] == "nobody"));
    assert_eq!(far.sandbox.ok(&["tail", "-n", "1", &job]), "20\n");
    far.wait_for(cluster, "JobVisited", 1);
    let visits: Vec<_> =
        far.events(cluster).into_iter().filter(|e| e["event"] == "JobVisited" && e["by"] == "root").collect();
    assert_eq!(visits.len(), 1, "{visits:?}");

    let mut follows = begin_as(&far, NOBODY, &["tail", "-f", "-n", "1", &job]).spawn().unwrap();
    assert_eq!(read_until(&mut follows, "20\n"), "20\n");
    assert!(as_user(&far, NOBODY, &["ssh", &job, "--", "touch", "more"]).status.success());
    assert_eq!(read_until(&mut follows, "more\n"), "more\n");
    // Cut while it is followed.
    assert!(as_user(&far, NOBODY, &["ssh", &job, "--", "sh", "-c", "echo anew > log.txt"]).status.success());
    let mut file = begin_as(&far, NOBODY, &["tail", "-f", &job, "log.txt"]).spawn().unwrap();
    assert_eq!(read_until(&mut file, "anew\n"), "anew\n");
    assert!(as_user(&far, NOBODY, &["ssh", &job, "--", "sh", "-c", "echo cut > log.txt"]).status.success());
    assert_eq!(read_until(&mut file, "cut\n"), "cut\n");
    // It ends with the job, and the last of it is shown.
    stop(&far, &job);
    let rest = follows.wait_with_output().unwrap();
    assert_eq!(
        (text(&rest.stdout), rest.status.code()),
        ("last\n".into(), Some(0)),
        "{}",
        text(&rest.stderr)
    );
    let rest = file.wait_with_output().unwrap();
    assert_eq!((text(&rest.stdout), rest.status.code()), (String::new(), Some(0)));
    assert!(text(&rest.stderr).contains("was cut"), "{}", text(&rest.stderr));
    far.wait_for(cluster, "JobExited", 1);
    assert!(std::fs::read_to_string(dir.join("out")).unwrap().ends_with("20\nmore\nlast\n"));
    let over = as_user(&far, NOBODY, &["tail", &job]);
    assert!(!over.status.success() && !text(&over.stderr).is_empty());
}

/// What a process has of memory, in KiB.
fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_reader_that_does_not_read_fills_nobodys_memory_and_loses_nothing() {
    let Some(mut far) = Far::new() else { return };
    let body = "head -c 80000000 /dev/zero; touch ready; while [ ! -e stop ]; do sleep 0.05; done";
    let (cluster, _) = far_job(&mut far, body, "");
    let job = format!("{cluster}.0");
    until_there(&far, &job, "ready");
    let before = memory_kib(far.manager);
    let mut follows = begin_as(&far, NOBODY, &["tail", "-f", "--all", &job]).spawn().unwrap();
    // Nobody reads for a while: what is on its way stays small everywhere.
    std::thread::sleep(Duration::from_secs(3));
    let daemons: Vec<u64> = far.sandbox.processes().into_iter().map(memory_kib).collect();
    let (most, client) = (daemons.iter().max().copied().unwrap_or(0), memory_kib(follows.id()));
    assert!(
        memory_kib(far.manager) < before + 30_000,
        "{before} KiB before, {} now",
        memory_kib(far.manager)
    );
    assert!(most < 200_000 && client < 60_000, "{daemons:?}, {client}");
    assert!(
        as_user(&far, NOBODY, &["ssh", &job, "--", "true"]).status.success(),
        "others are served meanwhile"
    );
    let mut out = follows.stdout.take().unwrap();
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 20]);
    while bytes < 80_000_000 {
        match out.read(&mut chunk).unwrap() {
            0 => break,
            n => bytes += n,
        }
    }
    assert_eq!(bytes, 80_000_000);
    stop(&far, &job);
    assert!(follows.wait().unwrap().success());
}

#[test]
fn a_command_beside_a_job_has_its_surroundings_its_rights_and_nothing_more() {
    let Some(mut far) = Far::new() else { return };
    let body = "grep -E '^(Cap|NoNewPrivs|Groups|Uid|Gid|Seccomp:)' /proc/self/status > mine; ulimit -c > limits; cat /proc/self/cgroup > group; pwd > where\n\
                touch ready; while [ ! -e stop ]; do sleep 0.05; done";
    let (cluster, _) = far_job(&mut far, body, "environment = \"KIND=far\"\ncoresize = 0\n");
    let job = format!("{cluster}.0");
    until_there(&far, &job, "ready");
    let ssh = |words: &[&str]| as_user(&far, NOBODY, &[&["ssh", &job, "--"], words].concat());
    let says = |script: &str| {
        let out = ssh(&["sh", "-c", script]);
        assert!(out.status.success(), "{script}: {}", text(&out.stderr));
        text(&out.stdout)
    };
    assert_eq!(says("echo $KIND"), "far\n");
    assert_eq!(says("pwd; cat where").lines().collect::<std::collections::BTreeSet<_>>().len(), 1);
    assert_eq!(
        says("grep -E '^(Cap|NoNewPrivs|Groups|Uid|Gid|Seccomp:)' /proc/self/status"),
        says("cat mine")
    );
    assert_eq!(says("ulimit -c"), says("cat limits"));
    assert_eq!(says("cat /proc/self/cgroup"), says("cat group"));
    assert!(says("cat mine").contains("NoNewPrivs:\t1"));
    // Nothing of the starter's is open, and nobody else's files are seen.
    assert_eq!(says("ls /proc/self/fd | wc -l").trim(), "4", "the standard ones, and that of ls itself");
    assert!(!ssh(&["cat", "/etc/shadow"]).status.success());
    // Streams and exit codes are the command's own.
    let out = ssh(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (out.status.code(), text(&out.stdout), text(&out.stderr)),
        (Some(7), "out\n".into(), "err\n".into())
    );
    assert_eq!(ssh(&["sh", "-c", "kill -TERM $$"]).status.code(), Some(128 + 15));
    let none = ssh(&["no-such-program"]);
    assert_eq!(none.status.code(), Some(255));
    assert!(text(&none.stderr).contains("cannot execute no-such-program"), "{}", text(&none.stderr));
    let mut child =
        begin_as(&far, NOBODY, &["ssh", &job, "--", "sha256sum"]).stdin(Stdio::piped()).spawn().unwrap();
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n * 11 / 7) as u8).collect();
    child.stdin.take().unwrap().write_all(&large).unwrap();
    let sum = text(&child.wait_with_output().unwrap().stdout);
    let mut hasher = trust::Hasher::default();
    hasher.update(&large);
    let wanted: String = hasher.finish().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(sum.starts_with(&wanted), "{sum}");
    let many = ssh(&["sh", "-c", "head -c 20000000 /dev/zero"]);
    assert_eq!(many.stdout.len(), 20_000_000);
    // Recorded with who and what, and refused for others.
    let other = as_user(&far, DAEMON, &["ssh", &job, "--", "id"]);
    assert_eq!((other.status.code(), text(&other.stdout)), (Some(255), String::new()));
    let visits: Vec<_> = far.events(cluster).into_iter().filter(|e| e["event"] == "JobVisited").collect();
    assert!(visits.iter().all(|e| e["by"] == "nobody"), "{visits:?}");
    assert!(visits.iter().any(|e| e["what"] == "no-such-program"), "{visits:?}");
    stop(&far, &job);
    far.wait_for(cluster, "JobExited", 1);
}

#[test]
fn what_a_visitor_started_ends_with_the_connection_or_with_the_job() {
    let Some(mut far) = Far::new() else { return };
    let (cluster, _) = far_job(&mut far, "touch ready; while [ ! -e stop ]; do sleep 0.05; done", "");
    let job = format!("{cluster}.0");
    until_there(&far, &job, "ready");
    let running = |seconds: &str| {
        let needle = format!("sleep\0{seconds}\0");
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|e| std::fs::read(e.path().join("cmdline")).is_ok_and(|line| line == needle.as_bytes()))
            .count()
    };
    let leaves = "setsid sleep NNN & sleep NNN & (sleep NNN &) ; echo begun; sleep NNN";
    // The command ends: what it left behind does too.
    let out = as_user(
        &far,
        NOBODY,
        &["ssh", &job, "--", "sh", "-c", "(setsid sleep 7101 >/dev/null 2>&1 &); echo done"],
    );
    assert_eq!(text(&out.stdout), "done\n");
    far.sandbox.until("nothing is left of it", PATIENCE, || running("7101") == 0);
    // The person is gone.
    let mut child = begin_as(&far, NOBODY, &["ssh", &job, "--", "sh", "-c", &leaves.replace("NNN", "7102")])
        .spawn()
        .unwrap();
    read_until(&mut child, "begun\n");
    far.sandbox.until("all of it runs", PATIENCE, || running("7102") == 4);
    child.kill().unwrap();
    child.wait().unwrap();
    far.sandbox.until("nothing is left of it", PATIENCE, || running("7102") == 0);
    // The job ends.
    let mut child = begin_as(&far, NOBODY, &["ssh", &job, "--", "sh", "-c", &leaves.replace("NNN", "7103")])
        .spawn()
        .unwrap();
    read_until(&mut child, "begun\n");
    stop(&far, &job);
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(running("7103"), 0);
    let rest = child.wait_with_output().unwrap();
    assert_eq!(rest.status.code(), Some(255), "{}", text(&rest.stderr));
}

#[test]
fn a_shell_at_a_terminal_has_its_size_its_keys_and_its_exit_code() {
    let mut sandbox = Sandbox::new();
    if !Path::new("/usr/bin/script").exists() {
        return skip("there is no script(1) to have a terminal from");
    }
    sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "touch ready; while [ ! -e stop ]; do sleep 0.05; done"]);
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    // `script` has a terminal in whose size the shell's is; keys reach the far one and not ours: Ctrl-C interrupts there.
    let line = format!(
        "stty rows 31 cols 97; {} ssh 1.0; echo code $?; stty -a | grep -c '^isig'",
        updraft().display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-c", &line, "/dev/null"]).env("UPDRAFT_STATE_DIR", sandbox.state());
    command.env_remove("UPDRAFT_POOL").env("SHELL", "/bin/sh").current_dir(sandbox.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"echo size $(stty size)\n").unwrap();
    read_until(&mut child, "size 31 97");
    keys.write_all(b"echo sle''eps; sleep 600\n").unwrap();
    read_until(&mut child, "sleeps\r\n");
    std::thread::sleep(Duration::from_millis(300));
    keys.write_all(b"\x03").unwrap();
    keys.write_all(b"echo af''ter; exit 9\n").unwrap();
    read_until(&mut child, "after");
    let rest = read_until(&mut child, "code 9\r\n1");
    assert!(rest.contains("code 9"), "the terminal is as it was: {rest}");
    drop(keys);
    child.wait().unwrap();
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", "1"]);
}

#[test]
fn a_visit_survives_nobody_and_harms_nobody_when_the_agent_or_the_manager_dies() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let Some(mut far) = Far::new() else { return };
    let agent = far.machine("far", 1);
    let dir = far.directory("visited");
    script(&dir.join("job.sh"), "touch ready; while [ ! -e stop ]; do sleep 0.05; done; echo well");
    let cluster = far.submit(&dir, "executable = job.sh\nshould_transfer_files = YES\noutput = out\nqueue\n");
    let job = format!("{cluster}.0");
    far.wait_for(cluster, "JobStarted", 1);
    until_there(&far, &job, "ready");
    let begin = |far: &Far| {
        let mut child = begin_as(far, NOBODY, &["ssh", &job, "--", "sh", "-c", "echo begun; sleep 7201"])
            .spawn()
            .unwrap();
        read_until(&mut child, "begun\n");
        child
    };
    let first = begin(&far);
    far.sandbox.kill(agent);
    let ended = first.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(255), "{}", text(&ended.stderr));
    far.machine("far", 1);
    until_there(&far, &job, "ready");
    let second = begin(&far);
    far.restart_manager();
    assert_eq!(second.wait_with_output().unwrap().status.code(), Some(255));
    until_there(&far, &job, "ready");
    let out = as_user(&far, NOBODY, &["ssh", &job, "--", "pgrep", "-c", "-f", "sleep 7201"]);
    assert_eq!(text(&out.stdout).trim(), "1", "only whoever looks is called so: {}", text(&out.stderr));
    stop(&far, &job);
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(std::fs::read_to_string(dir.join("out")).unwrap(), "well\n");
}

#[test]
fn streamed_outputs_land_as_they_come_and_are_whole_at_the_end() {
    let Some(mut far) = Far::new() else { return };
    let body = "echo one; echo trouble >&2; while [ ! -e more ]; do sleep 0.05; done; seq 30000; touch said\n\
                while [ ! -e stop ]; do sleep 0.05; done; echo last";
    let (cluster, dir) = far_job(&mut far, body, "stream_output = true\n");
    let job = format!("{cluster}.0");
    let out = || std::fs::read_to_string(dir.join("out")).unwrap_or_default();
    far.sandbox.until("the first line is here", PATIENCE, || out() == "one\n");
    assert!(!dir.join("err").exists(), "the other output comes at the end");
    assert!(as_user(&far, NOBODY, &["ssh", &job, "--", "touch", "more"]).status.success());
    let all: String = (1..=30_000).map(|n| format!("{n}\n")).collect();
    far.sandbox.until("the rest is here", PATIENCE, || out() == format!("one\n{all}"));
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(dir.join("out")).unwrap().uid(), NOBODY);
    stop(&far, &job);
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(out(), format!("one\n{all}last\n"));
    assert_eq!(std::fs::read_to_string(dir.join("err")).unwrap(), "trouble\n");
    let held = far.events(cluster).iter().any(|e| e["event"] == "JobsHeld");
    assert!(!held);
}

#[test]
fn a_command_beside_a_job_with_namespaces_of_its_own_is_in_them() {
    if !is_root() {
        return skip("namespaces need root");
    }
    // Such a job has its namespaces from its start; nothing is saved here, so that whatever says that it works will do.
    let criu = "/bin/true";
    let mut sandbox = Sandbox::new();
    crate::policy::manager(&mut sandbox);
    let policy = format!("use POLICY : AlwaysRun\nCRIU = {criu}\n");
    crate::policy::agent(&mut sandbox, "desk", &policy, None);
    let description = "executable = /bin/sh\narguments = run.sh\nwant_transparent_checkpoint = true\n\
                       should_transfer_files = NO\noutput = out\nqueue\n";
    crate::policy::write(&sandbox, "run.sub", description);
    let body = "echo mine > $TMPDIR/kept; echo $$; while [ ! -e stop ]; do sleep 0.05; done\n";
    crate::policy::write(&sandbox, "run.sh", body);
    sandbox.ok(&["submit", "run.sub"]);
    let out = || std::fs::read_to_string(sandbox.path().join("out")).unwrap_or_default();
    sandbox.until("it runs", PATIENCE, || !out().is_empty());
    assert_eq!(sandbox.ok(&["tail", "1.0"]), out());
    let beside = sandbox.ok(&[
        "ssh",
        "1.0",
        "--",
        "sh",
        "-c",
        "cat $TMPDIR/kept; ls /proc | grep -cx $(cat out); (setsid sleep 7301 &)",
    ]);
    assert_eq!(beside, "mine\n1\n", "its scratch directory, and its processes by its own numbers");
    let left = sandbox.ok(&[
        "ssh",
        "1.0",
        "--",
        "sh",
        "-c",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 730[1]' || true",
    ]);
    assert_eq!(left.trim(), "0", "what was left behind has ended");
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", "1", "--timeout", "30"]);
}
