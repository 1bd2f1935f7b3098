//! What a run says of itself when it cannot simply succeed.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, signal, skip, text, updraft};

/// Runs a line of shell in the sandbox, with the program as `$UPDRAFT`.
fn shell(sandbox: &Sandbox, script: &str) -> Output {
    Command::new("sh")
        .args(["-c", script])
        .env("UPDRAFT", updraft())
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .env("UPDRAFT_TEST_SANDBOX", sandbox.path())
        .current_dir(sandbox.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The texts in the directory that is named as the one where outputs are kept.
fn kept_in(dir: &std::path::Path) -> Vec<String> {
    let texts = std::fs::read_dir(dir).unwrap().flatten().map(|e| std::fs::read_to_string(e.path()).unwrap());
    texts.filter(|text| !text.is_empty()).collect()
}

#[test]
fn a_closed_standard_output_is_an_error_and_the_outputs_are_kept() {
    let sandbox = Sandbox::new();
    let out = shell(&sandbox, "$UPDRAFT run -- echo a-result >&-");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write standard output") && said.contains("is kept in"), "{said}");
    let kept = said.lines().find_map(|line| line.split("are kept in ").nth(1)).unwrap();
    assert_eq!(kept_in(kept.as_ref()), ["a-result\n"]);
}

#[test]
fn a_closed_standard_error_is_an_error_when_a_job_has_something_to_say_there() {
    let sandbox = Sandbox::new();
    let out = shell(&sandbox, "$UPDRAFT run -- sh -c 'echo out; echo a-complaint >&2' 2>&-");
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(1), "out\n"));
    let runs: Vec<_> = std::fs::read_dir(sandbox.state().join("runs")).unwrap().flatten().collect();
    let kept = runs.iter().map(|run| run.path().join("out")).find(|out| out.is_dir()).unwrap();
    assert!(kept_in(&kept).contains(&"a-complaint\n".to_owned()));
    let out = shell(&sandbox, "$UPDRAFT run -- echo out 2>&-");
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "out\n"));
}

#[test]
fn outputs_that_name_a_stream_are_passed_on_to_it() {
    let sandbox = Sandbox::new();
    let both = ["sh", "-c", "echo out; echo err >&2"];
    for (set, stdout, stderr) in [
        ("output=/dev/stdout", "out\n", "err\n"),
        ("output=/proc/self/fd/1", "out\n", "err\n"),
        ("output=/dev/fd/1", "out\n", "err\n"),
        ("error=/dev/stderr", "out\n", "err\n"),
        ("output=/dev/stderr", "", "out\nerr\n"),
        ("error=/dev/stdout", "out\nerr\n", ""),
    ] {
        let out = sandbox.run(&[&["run", "--set", set, "--"], &both[..]].concat());
        let said = text(&out.stderr);
        let of_jobs: String =
            said.lines().filter(|l| !l.starts_with("updraft:")).map(|l| format!("{l}\n")).collect();
        assert_eq!(
            (out.status.code(), text(&out.stdout).as_str(), of_jobs.as_str()),
            (Some(0), stdout, stderr),
            "{set}: {said}"
        );
    }
    let quiet = sandbox.run(&[&["run", "-q", "--set", "output=/dev/stdout", "--"], &both[..]].concat());
    assert_eq!((quiet.status.code(), text(&quiet.stdout).as_str()), (Some(0), ""), "{}", text(&quiet.stderr));
}

#[test]
fn streams_that_nobody_could_see_are_refused_before_anything_is_submitted() {
    let mut sandbox = Sandbox::new();
    let refuse = |sandbox: &Sandbox, verb: &str, set: &str| {
        let out = sandbox.run(&[verb, "--set", set, "--", "true"]);
        let said = text(&out.stderr);
        assert!(
            out.status.code() == Some(1)
                && said.contains("nothing was submitted")
                && said.contains("name a file"),
            "{verb} {set}: {said}"
        );
    };
    for set in ["input=/dev/stdin", "output=/dev/fd/7", "error=/proc/1/fd/2", "output=/proc/self/cwd/out"] {
        refuse(&sandbox, "run", set);
    }
    sandbox.up(&["--cpus", "1"]);
    for set in ["output=/dev/stdout", "error=/dev/stderr", "output=//dev/./fd/1", "input=/proc/self/fd/0"] {
        refuse(&sandbox, "submit", set);
    }
    assert!(sandbox.ok(&["queue"]).contains("empty"));
}

#[test]
fn a_terminal_that_goes_away_interrupts_a_run_and_nohup_does_not() {
    let mut sandbox = Sandbox::new();
    for (number, name) in [(libc::SIGHUP, "SIGHUP"), (libc::SIGQUIT, "SIGQUIT")] {
        let (log, begun) = (format!("{name}.log"), sandbox.path().join(name));
        let command = sandbox.command(&["run", "--", "sh", "-c", &format!("touch {name}; sleep 100")]);
        let pid = sandbox.spawn(command, &log);
        sandbox.until("the job runs", Duration::from_secs(30), || begun.exists());
        signal(pid, number);
        assert_eq!(sandbox.reap(pid).code(), Some(130));
        let said = std::fs::read_to_string(sandbox.path().join(&log)).unwrap();
        assert!(said.contains(&format!("interrupted ({name})")) && said.contains("run --resume"), "{said}");
    }
    let script = "trap '' HUP; $UPDRAFT run -- sh -c 'touch begun; sleep 1; echo done' & \
        for i in $(seq 600); do if [ -e begun ]; then break; fi; sleep 0.05; done; kill -HUP $!; wait $!";
    let out = shell(&sandbox, script);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "done\n"), "{}", text(&out.stderr));
}

#[test]
fn a_run_whose_pool_is_killed_says_how_to_take_it_up() {
    let mut sandbox = Sandbox::new();
    let pool = sandbox.up(&["--cpus", "1"]);
    let command = sandbox.command(&["run", "--", "sh", "-c", "touch begun; sleep 100"]);
    let pid = sandbox.spawn(command, "run.log");
    sandbox.until("the job runs", Duration::from_secs(30), || sandbox.path().join("begun").exists());
    sandbox.kill(pool);
    assert_eq!(sandbox.reap(pid).code(), Some(1));
    let said = std::fs::read_to_string(sandbox.path().join("run.log")).unwrap();
    assert!(said.contains("take the run up with: updraft run --resume "), "{said}");
}

#[test]
fn a_submit_that_cannot_say_so_says_that_it_was_done() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    for json in ["", "--json"] {
        let out =
            shell(&sandbox, &format!("$UPDRAFT submit {json} --set output=/dev/null -- true > /dev/full"));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("submitted as cluster ") && said.contains("cannot be written"), "{said}");
    }
}

#[test]
fn empty_lines_among_the_items_are_counted() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("items"), "a\n\nb\n  \n").unwrap();
    let out = sandbox.run(&["run", "--over", "items", "--", "echo", "{}"]);
    let said = text(&out.stderr);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "a\nb\n"), "{said}");
    assert!(said.contains("--over items: 2 empty lines are skipped"), "{said}");
}

#[test]
fn the_log_filter_may_stand_behind_the_command() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--log", "debug", "--", "true"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("DEBUG"), "{said}");
    let out = sandbox.run(&["run", "--log", "a=b=c", "--", "true"]);
    assert!(text(&out.stderr).contains("--log: "), "{}", text(&out.stderr));
    // Where it has another meaning, that stays.
    let out = sandbox.run(&["wait", "--log", "none.log", "--timeout", "1"]);
    assert!(text(&out.stderr).contains("not over after 1 s"), "{}", text(&out.stderr));
}

#[test]
fn a_run_that_is_submitted_on_hold_stays_held_until_it_is_taken_up() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["run", "--set", "hold=true", "--", "echo", "now"]);
    let said = text(&out.stderr);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()), "{said}");
    assert!(said.contains("job 1.0 is held") && said.contains("1 held"), "{said}");
    // The command that is named takes it up, whatever the environment says.
    let resume = said.lines().find_map(|line| line.split("then: updraft ").nth(1)).unwrap();
    let words: Vec<&str> = resume.split_whitespace().collect();
    assert_eq!(words[words.len() - 2..], ["--state-dir", sandbox.state().to_str().unwrap()], "{resume}");
    let mut command = sandbox.command(&words);
    let out = command.env_remove("UPDRAFT_STATE_DIR").output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "now\n"), "{}", text(&out.stderr));
}

#[test]
fn a_private_run_that_waits_says_for_what() {
    let mut sandbox = Sandbox::new();
    let command = sandbox.command(&["run", "--set", "requirements=time()<5", "--", "true"]);
    let pid = sandbox.spawn(command, "run.log");
    let said = || std::fs::read_to_string(sandbox.path().join("run.log")).unwrap_or_default();
    sandbox.until("it says what it waits for", Duration::from_secs(20), || {
        said().contains("excluded by requirements")
    });
    sandbox.kill(pid);
}

#[test]
fn outputs_that_would_be_lost_or_held_are_told_of() {
    let sandbox = Sandbox::new();
    for dir in ["od{proc}", "od{{x}}"] {
        let out = sandbox.run(&["run", "--count", "2", "--output-dir", dir, "--", "echo", "hi"]);
        assert_eq!(out.status.code(), Some(2), "{dir}: {}", text(&out.stderr));
        assert!(!sandbox.path().join(dir).exists());
    }
    let out = sandbox.run(&["run", "--count", "3", "--set", "output=same", "--", "echo", "{}"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("all 3 jobs write to") && said.contains("same"), "{said}");
    let out = sandbox.run(&["run", "--count", "3", "--set", "output=own.$(Process)", "--", "echo", "{}"]);
    assert!(!text(&out.stderr).contains("write to"), "{}", text(&out.stderr));
    let out = sandbox.run(&["run", "--set", "log=/dev/null", "--", "true"]);
    assert!(out.status.success() && !text(&out.stderr).contains("log"), "{}", text(&out.stderr));
}

#[test]
fn what_others_may_do_with_files_of_a_private_run_is_as_its_user_says() {
    let sandbox = Sandbox::new();
    for (mask, file) in [("022", 0o644), ("077", 0o600), ("027", 0o640), ("777", 0o600)] {
        let script = format!("umask {mask}; exec \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(updraft());
        let run = sandbox.command(&[]);
        command
            .envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(sandbox.path());
        let out = command
            .args([
                "run",
                "--output-dir",
                mask,
                "--",
                "sh",
                "-c",
                "echo x > made-$(basename $1); echo y",
                "sh",
                mask,
            ])
            .output()
            .unwrap();
        assert!(out.status.success() || mask == "777", "{mask}: {}", text(&out.stderr));
        if mask != "777" {
            let mode = |path: std::path::PathBuf| {
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::metadata(path).unwrap().permissions().mode() & 0o777
            };
            assert_eq!(mode(sandbox.path().join(format!("made-{mask}"))), file, "{mask}");
        }
    }
}

#[test]
fn a_limit_of_file_sizes_is_told_and_kills_nobody() {
    let sandbox = Sandbox::new();
    let script = "ulimit -f 100; exec \"$UPDRAFT\" run --count 6 -- head -c 400000 /dev/zero > big.out";
    let mut command = std::process::Command::new("bash");
    let run = sandbox.command(&[]);
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(sandbox.path());
    let out = command.env("UPDRAFT", updraft()).args(["-c", script]).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "no signal ends it: {said}");
    assert!(said.contains("updraft:"), "{said}");
}

#[test]
fn an_output_that_is_gone_or_is_something_else_is_told() {
    let sandbox = Sandbox::new();
    for (deed, what) in
        [("rm $f", "gone"), ("rm $f; mkfifo $f", "a pipe"), ("ln -sf /etc/hostname $f", "a link")]
    {
        let script = format!("echo a; f=$(readlink /proc/$$/fd/1); {deed}");
        let out = sandbox.run(&["run", "--", "sh", "-c", &script]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("cannot read") && text(&out.stdout).is_empty(), "{what}: {said}");
    }
    let out = sandbox.run(&["run", "--set", "output=one", "--set", "log=one", "--", "true"]);
    assert!(text(&out.stderr).contains("output and log are one file"), "{}", text(&out.stderr));
    let out = sandbox.run(&["run", "--count", "2", "--set", "output=o.$(Cluster)", "--", "echo", "{}"]);
    assert!(text(&out.stderr).contains("all 2 jobs write to"), "{}", text(&out.stderr));
}

#[test]
fn a_working_directory_or_variable_that_is_no_text_is_told() {
    use std::os::unix::ffi::OsStrExt as _;
    let sandbox = Sandbox::new();
    let odd = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    let (here, there) = (sandbox.path().join(odd(b"b\xff")), sandbox.path().join("b\u{fffd}"));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&there).unwrap();
    let script = ["run", "--", "sh", "-c", "echo mine > result"];
    let out = sandbox.command(&script).current_dir(&here).output().unwrap();
    assert!(!out.status.success() && text(&out.stderr).contains("is not UTF-8"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
    let out = sandbox.command(&["run", "--", "true"]).env("FOO", odd(b"a\xffb")).output().unwrap();
    assert!(out.status.success() && text(&out.stderr).contains("FOO"), "{}", text(&out.stderr));
}

#[test]
fn a_request_below_zero_is_refused() {
    let sandbox = Sandbox::new();
    for request in ["request_cpus=-1", "request_memory=-2GB", "request_disk=-1", "request_gpus=-1"] {
        let out = sandbox.run(&["run", "--set", request, "--", "true"]);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("is below zero"), "{request}: {said}");
    }
}

#[test]
fn a_run_does_not_leave_the_directory_of_another_users_pool_that_is_down() {
    if !is_root() {
        return skip("needs root for another user's directory");
    }
    let sandbox = Sandbox::new();
    let dir = sandbox.path().join("anothers");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(65_534), Some(65_534)).unwrap();
    // What a pool that was killed leaves.
    drop(std::os::unix::net::UnixListener::bind(dir.join("manager.sock")).unwrap());
    let out = sandbox.run(&["run", "--state-dir", &dir.to_string_lossy(), "--", "true"]);
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("is another user's and does not answer"), "{said}");
}
