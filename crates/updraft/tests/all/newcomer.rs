//! What somebody who has just met `updraft run` and `submit` relies on: every byte arrives, nothing is overwritten, what
//! cannot work is told at once.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, skip, text, updraft};

/// The runs that are kept.
fn kept_runs(sandbox: &Sandbox) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(sandbox.state().join("runs")) else { return Vec::new() };
    entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn every_byte_of_every_job_arrives_in_order() {
    let sandbox = Sandbox::new();
    // Beyond what any buffer holds, with bytes that are no text, and without a line break at the end.
    let size = 20_000_003;
    let script = format!("yes 'job {{}}' | head -c {size}; printf '\\377\\000'; printf 'err {{}}' >&2");
    let mut child = sandbox
        .command(&["run", "--count", "3", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let mut expected = Vec::new();
    for job in 0..3 {
        let line = format!("job {job}\n");
        expected.extend(line.bytes().cycle().take(size));
        expected.extend(b"\xff\0");
    }
    assert_eq!(out.len(), expected.len());
    assert!(out == expected, "the bytes differ");
    assert!(text(&ended.stderr).contains("err 0err 1err 2"), "{}", text(&ended.stderr));
    assert_eq!(kept_runs(&sandbox), Vec::<std::path::PathBuf>::new(), "all was passed on, nothing is kept");
}

#[test]
fn a_reader_that_goes_away_stops_no_sweep_and_loses_no_output() {
    let sandbox = Sandbox::new();
    let script = "seq 20000; echo {} >> done";
    let mut child = sandbox
        .command(&["run", "--count", "60", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let out = child.wait_with_output().unwrap();
    let told = text(&out.stderr);
    assert_eq!(first, "1\n");
    assert_eq!(out.status.code(), Some(0), "every job succeeded: {told}");
    assert_eq!(lines(&sandbox.path().join("done")), 60);
    assert!(told.contains("nobody reads standard output any more"), "{told}");
    assert_eq!(told.matches("nobody reads").count(), 1, "said once: {told}");
    // What was not passed on is where it says.
    let [run] = kept_runs(&sandbox).try_into().unwrap();
    assert!(told.contains(run.join("out").to_str().unwrap()), "{told}");
    for job in 0..60 {
        assert_eq!(lines(&run.join(format!("out/0-{job}.out"))), 20_000, "job {job}");
    }
    assert!(text(&sandbox.run(&["run", "--resume"]).stderr).contains("no interrupted run"));
}

#[test]
fn a_reader_that_takes_its_time_holds_up_neither_the_jobs_nor_an_interrupt() {
    let mut sandbox = Sandbox::new();
    let mut command =
        sandbox.command(&["run", "--count", "20", "--", "sh", "-c", "seq 50000; echo {} >> done"]);
    // As `| less` does: the pipe is open and fills up.
    let (reader, writer) = std::io::pipe().unwrap();
    let log = std::fs::File::create(sandbox.path().join("run.log")).unwrap();
    let child = command.stdout(writer).stderr(log).spawn().unwrap();
    drop(command);
    let pid = sandbox.adopt(child);
    let done = sandbox.path().join("done");
    sandbox.until("all jobs are done, unread as they are", Duration::from_secs(60), || lines(&done) == 20);
    crate::harness::signal(pid, libc::SIGINT);
    assert_eq!(sandbox.reap(pid).code(), Some(130), "{}", sandbox.logs());
    drop(reader);
    // Taken up, it shows everything, and runs nothing again.
    let shown = sandbox.ok(&["run", "--resume"]);
    assert_eq!((shown.lines().count(), lines(&done)), (20 * 50_000, 20));
}

#[test]
fn a_closed_standard_error_stops_no_sweep_either() {
    let sandbox = Sandbox::new();
    let script = format!(
        "{} run --count 40 -- sh -c 'seq 5000 >&2; echo {{}} >> done; exit 1' 2>&1 >out | head -c 1; echo ${{PIPESTATUS[0]}}",
        updraft().display()
    );
    let out = Command::new("bash")
        .args(["-c", &script])
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .env("UPDRAFT_TEST_SANDBOX", sandbox.path())
        .current_dir(sandbox.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&out.stdout).ends_with("1\n"), "jobs failed, nothing panicked: {:?}", text(&out.stdout));
    assert_eq!(lines(&sandbox.path().join("done")), 40);
}

#[test]
fn output_that_cannot_be_written_is_an_error_but_the_sweep_goes_on() {
    let sandbox = Sandbox::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = sandbox
        .command(&["run", "--count", "5", "--", "sh", "-c", "echo {}; echo {} >> done"])
        .stdout(full)
        .output()
        .unwrap();
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write standard output: No space left"), "{told}");
    assert_eq!(lines(&sandbox.path().join("done")), 5);
    let [run] = kept_runs(&sandbox).try_into().unwrap();
    assert_eq!(std::fs::read_to_string(run.join("out/0-4.out")).unwrap(), "4\n");
    // Keepers end when they have seen that nothing is left.
    sandbox.until("nothing is left running", Duration::from_secs(10), || sandbox.processes().is_empty());
}

#[test]
fn a_quiet_run_shows_why_jobs_failed() {
    let sandbox = Sandbox::new();
    let script = "echo out {}; echo reason {} >&2; exit {}";
    let out = sandbox.run(&["run", "-q", "--count", "2", "--", "sh", "-c", script]);
    let told = text(&out.stderr);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
    assert!(told.contains("job 1.1 failed: exit code 1") && told.contains("\n    reason 1\n"), "{told}");
    assert!(!told.contains("reason 0") && told.lines().all(|l| l.trim() != "out 1"), "{told}");
    // What failed can be looked at; what succeeded leaves no file.
    let [run] = kept_runs(&sandbox).try_into().unwrap();
    let files: Vec<_> =
        std::fs::read_dir(run.join("out")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(files, ["0-1.err"]);
}

#[test]
fn an_output_that_cannot_be_opened_ends_the_run_with_its_name() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--set", "output=none/out.{}", "--", "touch", "made"]);
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("none/out.0") && told.contains("--resume"), "{told}");
    std::fs::create_dir(sandbox.path().join("none")).unwrap();
    sandbox.ok(&["run", "--resume"]);
    assert!(sandbox.path().join("made").exists() && sandbox.path().join("none/out.0").exists());
}

#[test]
fn on_a_pool_a_run_that_no_machine_can_serve_says_why_and_waits_for_one() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let command = sandbox.command(&["run", "--set", "request_cpus=2", "--", "touch", "made"]);
    let pid = sandbox.spawn(command, "run.log");
    let log = sandbox.path().join("run.log");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    sandbox.until("the reason is told", Duration::from_secs(30), || {
        told().contains("no machine is large enough")
    });
    crate::harness::signal(pid, libc::SIGINT);
    assert_eq!(sandbox.reap(pid).code(), Some(130), "{}", told());
    assert!(told().contains("What was submitted goes on in the pool"), "{}", told());
    assert!(sandbox.ok(&["queue", "1"]).contains("1 idle"), "{}", sandbox.ok(&["queue", "1"]));
}

#[test]
fn a_file_whose_name_is_no_text_is_told_and_not_left_out() {
    use std::os::unix::ffi::OsStrExt as _;
    let sandbox = Sandbox::new();
    let odd = sandbox.path().join("odd");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("good.dat"), "").unwrap();
    std::fs::write(odd.join(std::ffi::OsStr::from_bytes(b"bad\xff.dat")), "").unwrap();
    std::fs::write(odd.join("other.txt"), "").unwrap();
    std::fs::write(
        sandbox.path().join("m.sub"),
        "executable = /bin/ls\narguments = $(f)\nqueue f matching odd/*.dat\n",
    )
    .unwrap();
    for arguments in [["run", "--over", "odd/*.dat", "--", "ls", "{}"].as_slice(), &["run", "m.sub"]] {
        let out = sandbox.run(arguments);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}");
        assert!(text(&out.stderr).contains("is not UTF-8"), "{}", text(&out.stderr));
    }
    sandbox.ok(&["run", "--over", "odd/*.txt", "--", "ls", "{}"]);
}

#[test]
fn a_run_in_another_users_directory_is_refused_and_leaves_nothing_there() {
    if !is_root() {
        return skip("giving a directory to another user needs root");
    }
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    std::os::unix::fs::chown(sandbox.state(), Some(65_534), Some(65_534)).unwrap();
    let out = sandbox.run(&["run", "--", "true"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("belongs to nobody"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_dir(sandbox.state()).unwrap().count(), 0);
}

#[test]
fn the_time_is_right_from_the_first_match_on() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--set", "requirements=time() > 5", "--", "echo", "now"]);
    assert_eq!(text(&out.stdout), "now\n");
    assert!(!text(&out.stderr).contains("lost_wakeup"), "{}", text(&out.stderr));
}

#[test]
fn a_log_that_cannot_be_written_refuses_the_run_and_the_submit() {
    let mut sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("target"), "").unwrap();
    std::os::unix::fs::symlink(sandbox.path().join("target"), sandbox.path().join("link")).unwrap();
    std::fs::create_dir(sandbox.path().join("dir")).unwrap();
    let refused = |sandbox: &Sandbox, command: &str| {
        for log in ["none/job.log", "link", "dir"] {
            let set = format!("log={log}");
            let out = sandbox.run(&[command, "--set", &set, "--", "sh", "-c", "echo ran >> ran"]);
            let told = text(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{command} {log}: {told}");
            assert!(told.contains(log) && told.contains("cannot be written"), "{command} {log}: {told}");
        }
    };
    refused(&sandbox, "run");
    sandbox.up(&["--cpus", "1"]);
    refused(&sandbox, "submit");
    refused(&sandbox, "run");
    assert!(!sandbox.path().join("ran").exists() && !sandbox.path().join("none").exists());
    sandbox.ok(&["run", "--set", "log=job.log", "--", "true"]);
}

#[test]
fn a_log_that_a_pool_cannot_write_any_more_fails_the_run_and_is_completed_when_it_is_taken_up() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    std::fs::create_dir(sandbox.path().join("logs")).unwrap();
    let script = "mv logs away; touch logs; sleep 1; echo ran";
    let out = sandbox.run(&["run", "--set", "log=logs/job.log", "--", "sh", "-c", script]);
    let told = text(&out.stderr);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), "ran\n".into()), "{told}");
    assert!(told.contains("logs/job.log") && told.contains("--resume"), "{told}");
    std::fs::remove_file(sandbox.path().join("logs")).unwrap();
    std::fs::rename(sandbox.path().join("away"), sandbox.path().join("logs")).unwrap();
    sandbox.ok(&["run", "--resume"]);
    let log = std::fs::read_to_string(sandbox.path().join("logs/job.log")).unwrap();
    assert!(log.contains("\n005 (") || log.starts_with("005 ("), "{log}");
    assert_eq!(log.matches("000 (").count(), 1, "nothing was submitted again: {log}");
}

/// Runs something on a small disk of its own, mounted at `disk` in a mount namespace that vanishes with it.
pub(crate) fn on_small_disk(sandbox: &Sandbox, script: &str) -> Output {
    std::fs::create_dir(sandbox.path().join("disk")).unwrap();
    let script = format!("mount -t tmpfs -o size=12m,mode=755 tmpfs disk && {script}");
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", &script])
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .env("UPDRAFT_TEST_SANDBOX", sandbox.path())
        .env("UPDRAFT", updraft())
        .current_dir(sandbox.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_disk_that_fills_up_under_a_log_is_told_and_the_log_is_completed_later() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    let script = "head -c 20M /dev/zero > disk/rest; \
        $UPDRAFT run --count 3 --set log=$PWD/disk/job.log -- echo {}; echo code $?; \
        rm disk/rest; $UPDRAFT run --resume >/dev/null; echo code $?; grep -c ^005 disk/job.log";
    let out = on_small_disk(&sandbox, script);
    let told = text(&out.stderr);
    assert_eq!(text(&out.stdout), "0\n1\n2\ncode 1\ncode 0\n3\n", "{told}");
    assert!(
        told.contains("disk/job.log lacks the ends of 3 of 3 jobs") && told.contains("--resume"),
        "{told}"
    );
}

/// The job ids of a log, each with how often it was submitted.
fn submitted(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().filter(|l| l.starts_with("000 (")).map(|l| l[5..l.find(')').unwrap()].to_owned()).collect()
}

#[test]
fn cluster_numbers_go_on_from_run_to_run_and_to_a_pool_and_back() {
    let mut sandbox = Sandbox::new();
    let file = "executable = /bin/echo\narguments = $(Cluster)\noutput = out.$(Cluster).$(Process)\nlog = job.log\nqueue 2\n";
    std::fs::write(sandbox.path().join("job.sub"), file).unwrap();
    sandbox.ok(&["run", "job.sub"]);
    sandbox.ok(&["run", "job.sub"]);
    // Refused, or failed before it began: no job of that number ever was, and the next one is another.
    sandbox.run(&["run", "--set", "transfer_input_files=nosuch://x/y", "job.sub"]);
    sandbox.ok(&["run", "job.sub"]);
    let pid = sandbox.up(&["--cpus", "1"]);
    let reply = sandbox.json(&["submit", "--json", "job.sub"]);
    let of_pool = reply[0]["cluster"].as_u64().unwrap();
    sandbox.ok(&["wait", &of_pool.to_string(), "--timeout", "20"]);
    // Crashed, not stopped: what it used is in its journal only.
    sandbox.kill(pid);
    sandbox.ok(&["run", "job.sub"]);
    sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["run", "job.sub"]);
    let log = sandbox.path().join("job.log");
    sandbox.until("the log is written", Duration::from_secs(10), || submitted(&log).len() == 12);
    let ids: BTreeSet<String> = submitted(&log).into_iter().collect();
    assert_eq!(ids.len(), 12, "one log never holds a job id twice: {ids:?}");
    for id in ids {
        let mut parts = id.split('.').map(|n| n.parse::<u32>().unwrap());
        let (cluster, proc) = (parts.next().unwrap(), parts.next().unwrap());
        let out = std::fs::read_to_string(sandbox.path().join(format!("out.{cluster}.{proc}"))).unwrap();
        assert_eq!(out, format!("{cluster}\n"));
    }
}

#[test]
fn runs_at_once_and_runs_that_were_killed_share_no_cluster_number() {
    let mut sandbox = Sandbox::new();
    let script = "echo {cluster}.{proc} >> ids; sleep 0.2";
    let pids: Vec<u32> = (0..4)
        .map(|n| {
            let command =
                sandbox.command(&["run", "-q", "-j", "1", "--count", "3", "--", "sh", "-c", script]);
            sandbox.spawn(command, &format!("run{n}.log"))
        })
        .collect();
    let ids = sandbox.path().join("ids");
    sandbox.until("jobs run", Duration::from_secs(30), || lines(&ids) >= 2);
    sandbox.kill(pids[0]);
    for pid in &pids[1..] {
        assert!(sandbox.reap(*pid).success(), "{}", sandbox.logs());
    }
    let out = sandbox.run(&["run", "-q", "--resume"]);
    assert!(
        out.status.success() || text(&out.stderr).contains("no interrupted run"),
        "{}",
        text(&out.stderr)
    );
    sandbox.ok(&["run", "-q", "--", "sh", "-c", script]);
    let all = std::fs::read_to_string(&ids).unwrap();
    let clusters: BTreeSet<&str> = all.lines().filter_map(|l| l.split('.').next()).collect();
    assert_eq!(clusters.len(), 5, "four runs and one more: {all}");
    // A job that was cut off by the kill may have told its name before; no other is there twice.
    let names: BTreeSet<&str> = all.lines().collect();
    assert!(names.len() == 13 && all.lines().count() <= 14, "{all}");
}

#[test]
fn a_submitted_command_writes_files_and_says_where() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "2"]);
    let told = sandbox.ok(&["submit", "--count", "2", "--", "sh", "-c", "echo out {}; echo err {} >&2"]);
    assert_eq!(
        told,
        "2 jobs submitted to cluster 1\n\
         output goes to updraft-1.0.out and updraft-1.0.err, up to updraft-1.1.out and updraft-1.1.err\n"
    );
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join(name)).unwrap();
    assert_eq!((read("updraft-1.1.out"), read("updraft-1.0.err")), ("out 1\n".into(), "err 0\n".into()));
    let told =
        sandbox.ok(&["submit", "--set", "output=mine", "--set", "stderr=/dev/null", "--", "echo", "x"]);
    assert_eq!(told, "1 job submitted to cluster 2\noutput goes to mine\n");
    let told = sandbox.ok(&["submit", "--output-dir", "res", "--", "echo", "x"]);
    assert!(told.contains("output goes to res/3.0.out and res/3.0.err"), "{told}");
    sandbox.ok(&["wait", "2", "3", "--timeout", "20"]);
    assert_eq!((read("mine"), read("res/3.0.out")), ("x\n".into(), "x\n".into()));
    assert!(!sandbox.path().join("updraft-2.0.out").exists());
    if !is_root() {
        return skip("needs root to submit as somebody who cannot write here");
    }
    let out = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "--"])
        .arg(updraft())
        .args(["submit", "--", "true"])
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .current_dir(sandbox.path())
        .output()
        .unwrap();
    assert!(text(&out.stderr).contains("--output-dir"), "{}", text(&out.stderr));
}

#[test]
fn what_no_machine_offers_is_refused_by_submit_run_and_rest_but_shown_by_a_dry_run() {
    let mut sandbox = Sandbox::new();
    let cases = [
        (vec!["universe=docker", "docker_image=debian"], "docker universe", "WantDocker = true"),
        (vec!["universe=container", "container_image=a.sif"], "container universe", "WantContainer = true"),
        (vec!["universe=java"], "java universe", "JobUniverse = 10"),
        (vec!["universe=grid", "grid_resource=batch slurm"], "no universe number 9", "JobUniverse = 9"),
        (
            vec!["transfer_input_files=gopher://example.org/x"],
            "URLs",
            "WantTransferPluginMethods = \"gopher\"",
        ),
    ];
    let arguments = |command: &[&str], set: &[&str]| {
        let mut words: Vec<String> = command.iter().map(|w| (*w).to_owned()).collect();
        words.extend(set.iter().flat_map(|s| ["--set".to_owned(), (*s).to_owned()]));
        words.extend(["--", "sh", "-c", "echo ran >> ran"].map(str::to_owned));
        words
    };
    for private in [true, false] {
        if !private {
            sandbox.up(&["--cpus", "1"]);
        }
        for (set, why, ad) in &cases {
            let commands: &[&[&str]] = if private { &[&["run"]] } else { &[&["run"], &["submit"]] };
            for command in commands {
                let words = arguments(command, set);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let out = sandbox.run(&words);
                assert_eq!(out.status.code(), Some(1), "{words:?}: {}", text(&out.stderr));
                assert!(text(&out.stderr).contains(why), "{words:?}: {}", text(&out.stderr));
            }
            let words = arguments(&["submit", "--dry-run"], set);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(sandbox.ok(&words).contains(ad), "{words:?}");
        }
    }
    assert!(!sandbox.path().join("ran").exists());
    assert_eq!(kept_runs(&sandbox), Vec::<std::path::PathBuf>::new());
    assert_eq!(sandbox.ok(&["queue"]), "The queue is empty.\n");
    // By REST, as another program would.
    let body = r#"{"template":{"shared":[{"name":"Cmd","expr":"\"/bin/true\""},{"name":"WantDocker","expr":"true"}],
                   "varying":[],"columns":[],"procs":1,"per_row":1}}"#;
    let mut socket = std::os::unix::net::UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    let head =
        "POST /v1/submit HTTP/1.1\r\nhost: pool\r\nconnection: close\r\ncontent-type: application/json";
    write!(socket, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("docker universe"), "{answer}");
}

#[test]
fn a_private_run_that_no_machine_can_serve_ends_with_the_reason() {
    let sandbox = Sandbox::new();
    for (set, why) in [
        ("request_memory=10TB", "no machine is large enough: it asks for 10485760 MiB of memory"),
        ("request_cpus=5000", "no machine is large enough: it asks for 5000 cores"),
        ("requirements=TARGET.Arhc == \"X86_64\"", "did you mean `TARGET.Arch`?"),
        ("request_licenses=1", "no machine in contact can run it"),
    ] {
        let mut child =
            sandbox.command(&["run", "--set", set, "--", "true"]).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        // Generous, as machines that build other things are slow; without the check it would wait for ever.
        let ended = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            child.try_wait().unwrap().is_some()
        });
        if !ended {
            child.kill().unwrap();
        }
        let out = child.wait_with_output().unwrap();
        let told = text(&out.stderr);
        assert!(ended, "{set}: pid {pid} waits for ever: {told}");
        assert_eq!(out.status.code(), Some(1), "{set}: {told}");
        assert!(
            told.contains(" waits: ") && told.contains(why) && told.contains("1 not started"),
            "{set}: {told}"
        );
    }
    sandbox.until("nothing runs on", Duration::from_secs(10), || sandbox.processes().is_empty());
    assert_eq!(kept_runs(&sandbox), Vec::<std::path::PathBuf>::new());
}

#[test]
fn jobs_that_can_run_are_run_before_a_run_is_given_up() {
    let sandbox = Sandbox::new();
    let file = "executable = /bin/sh\narguments = \"-c 'sleep $(s); echo $(s) >> ran'\"\nrequest_memory = $(m)\n\
                queue s, m from (\n1 1\n0 90TB\n3 1\n)\n";
    std::fs::write(sandbox.path().join("mixed.sub"), file).unwrap();
    let out = sandbox.run(&["run", "mixed.sub"]);
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("ran")).unwrap(), "1\n3\n");
    assert!(told.contains("2 succeeded, 1 not started") && told.contains("large enough"), "{told}");
    // What is only late is waited for.
    let soon = jiff_seconds() + 4;
    let set = format!("deferral_time={soon}");
    sandbox.ok(&["run", "--set", &set, "--set", "deferral_window=60", "--", "true"]);
}

#[test]
fn a_job_whose_time_has_not_come_is_explained_so() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let set = format!("deferral_time={}", jiff_seconds() + 3_600);
    sandbox.ok(&["submit", "--set", &set, "--", "true"]);
    let told = sandbox.ok(&["explain", "1"]);
    assert!(told.contains("1.0 waits: its time has not come; it can start from 20"), "{told}");
}

#[test]
fn a_run_of_somebody_else_on_a_shared_pool_is_kept_among_their_own_things() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--shared", "--cpus", "1"]);
    let home = sandbox.open_dir("home");
    let mut run = std::process::Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(crate::harness::updraft());
    run.arg("--state-dir").arg(sandbox.state()).args(["run", "--count", "2", "--", "/bin/echo", "job", "{}"]);
    let out = run.env("HOME", &home).env_remove("XDG_STATE_HOME").current_dir(&home).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "job 0\njob 1\n");
}

fn jiff_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn what_is_set_on_the_command_line_wins_and_slips_are_told() {
    let sandbox = Sandbox::new();
    let file = "executable = /bin/echo\narguments = file\nqueue\narguments = later\nqueue\n";
    std::fs::write(sandbox.path().join("job.sub"), file).unwrap();
    assert_eq!(sandbox.ok(&["run", "--set", "arguments=mine", "job.sub"]), "mine\nmine\n");
    let native = "[job]\ncommand = [\"/bin/echo\", \"file\"]\n";
    std::fs::write(sandbox.path().join("job.toml"), native).unwrap();
    assert_eq!(sandbox.ok(&["run", "--set", "args=mine", "job.toml"]), "mine\n");
    for what in [vec!["job.sub"], vec!["--", "echo", "x"], vec!["job.toml"]] {
        let mut words = vec!["run", "--set", "prioritty=3"];
        words.extend(&what);
        let out = sandbox.run(&words);
        assert!(out.status.success(), "{what:?}");
        assert!(text(&out.stderr).contains("did you mean priority?"), "{what:?}: {}", text(&out.stderr));
    }
    assert_eq!(sandbox.run(&["run", "--set", "queue 5", "job.sub"]).status.code(), Some(2));
}

#[test]
fn unknown_names_in_braces_are_refused_and_doubled_braces_are_braces() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--count", "2", "--", "echo", "{seed}"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
    let told = text(&out.stderr);
    assert!(told.contains("{seed} is not known; there are {}, {item}, {proc}, {cluster}"), "{told}");
    let words = [
        "run",
        "--count",
        "2",
        "--",
        "echo",
        "{{seed}}",
        "{{}}",
        "{}",
        "{proc}",
        "{\"a\":{\"b\":{}}}",
        "${HOME}",
    ];
    assert_eq!(
        sandbox.ok(&words),
        "{seed} {} 0 0 {\"a\":{\"b\":0}} ${HOME}\n{seed} {} 1 1 {\"a\":{\"b\":1}} ${HOME}\n"
    );
    // Where one stands is no part of the command.
    let odd = sandbox.path().join("a{b}$(c)");
    std::fs::create_dir(&odd).unwrap();
    for name in ["x0", "x1"] {
        std::os::unix::fs::symlink("/bin/echo", odd.join(name)).unwrap();
    }
    let out =
        sandbox.command(&["run", "--count", "2", "--", "./x{}", "{}"]).current_dir(&odd).output().unwrap();
    assert_eq!(text(&out.stdout), "0\n1\n", "{}", text(&out.stderr));
}

#[test]
fn the_number_of_jobs_at_a_time_is_obeyed_or_refused() {
    let mut sandbox = Sandbox::new();
    let script = "echo + >> trace; sleep 0.1; echo - >> trace";
    sandbox.ok(&["run", "-j", "1", "--count", "5", "--", "sh", "-c", script]);
    let trace = std::fs::read_to_string(sandbox.path().join("trace")).unwrap();
    assert_eq!(trace, "+\n-\n".repeat(5));
    sandbox.up(&["--cpus", "2"]);
    let out = sandbox.run(&["run", "-j", "1", "--", "touch", "made"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("a pool is up"), "{}", text(&out.stderr));
    assert!(!sandbox.path().join("made").exists());
    assert_eq!(kept_runs(&sandbox), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_second_private_run_says_that_it_oversubscribes_the_machine() {
    let mut sandbox = Sandbox::new();
    let command = sandbox.command(&["run", "--", "sleep", "60"]);
    let pid = sandbox.spawn(command, "first.log");
    let started = || !kept_runs(&sandbox).is_empty() && sandbox.processes().len() > 2;
    sandbox.until("the first runs", Duration::from_secs(20), started);
    // Another user or another state directory: it is the same machine.
    let out = sandbox
        .command(&["run", "--", "true"])
        .env("UPDRAFT_STATE_DIR", sandbox.path().join("other"))
        .output();
    let out = out.unwrap();
    let told = text(&out.stderr);
    assert!(out.status.success(), "{told}");
    assert!(told.contains("other private run") && told.contains("-j N"), "{told}");
    assert!(told.contains(&pid.to_string()) || told.contains("pids"), "{told}");
    crate::harness::signal(pid, libc::SIGINT);
    sandbox.reap(pid);
}

#[test]
fn a_pool_that_is_up_without_a_machine_is_not_passed_over_in_silence() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0"]);
    let out = sandbox.run(&["run", "--", "touch", "made"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("no machine in contact"), "{}", text(&out.stderr));
    assert!(!sandbox.path().join("made").exists());
}

#[test]
fn the_release_is_built_without_what_only_debuggers_read() {
    let manifest = std::fs::read_to_string(crate::harness::repository().join("Cargo.toml")).unwrap();
    let release = manifest.split("[profile.release]").nth(1).unwrap().split("\n[").next().unwrap();
    assert!(release.contains("\nstrip = "), "{release}");
    assert!(!release.contains("\ndebug = "), "{release}");
}

#[test]
fn an_output_directory_whose_name_is_no_text_is_refused_and_a_mark_before_the_first_item_is_none() {
    use std::os::unix::ffi::OsStrExt as _;
    let sandbox = Sandbox::new();
    let mut run = sandbox.command(&["run", "--count", "1", "--output-dir"]);
    run.arg(std::ffi::OsStr::from_bytes(b"o\xff")).args(["--", "echo", "hi"]);
    let refused = run.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is no UTF-8"), "{}", text(&refused.stderr));
    let items = sandbox.path().join("items");
    std::fs::write(&items, "\u{feff}first\nsecond\n").unwrap();
    let said = sandbox.ok(&["run", "--over", &items.to_string_lossy(), "--", "echo", "<{}>"]);
    assert!(said.contains("<first>") && said.contains("<second>"), "{said:?}");
}

#[test]
fn a_template_that_requires_nothing_runs_on_any_machine() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let shared = r#"[{"name":"Cmd","expr":"\"/bin/true\""},{"name":"Iwd","expr":"\"/\""}]"#;
    let template = format!(r#"{{"shared":{shared},"varying":[],"columns":[],"procs":1,"per_row":1}}"#);
    let (status, answer) =
        crate::attacks::post(&sandbox, "/v1/submit", &format!(r#"{{"template":{template}}}"#));
    assert_eq!(status, 200, "{answer}");
    sandbox.ok(&["wait", "1", "--timeout", "30"]);
}
