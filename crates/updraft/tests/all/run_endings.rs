//! What a run says of itself when it cannot simply succeed.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, text, updraft};

#[test]
fn a_closed_standard_output_is_an_error_and_the_outputs_are_kept() {
    let sandbox = Sandbox::new();
    let script = format!("{} run -- echo a-result >&-", updraft().display());
    let out = Command::new("sh")
        .args(["-c", &script])
        .env("UPDRAFT_STATE_DIR", sandbox.state())
        .env("UPDRAFT_TEST_SANDBOX", sandbox.path())
        .current_dir(sandbox.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write standard output") && said.contains("is kept in"), "{said}");
    let kept = said.lines().find_map(|line| line.split("are kept in ").nth(1)).unwrap();
    let result = std::fs::read_dir(kept).unwrap().flatten().find_map(|e| {
        let text = std::fs::read_to_string(e.path()).unwrap();
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(result.as_deref(), Some("a-result\n"));
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
fn a_request_below_zero_is_refused() {
    let sandbox = Sandbox::new();
    for request in ["request_cpus=-1", "request_memory=-2GB", "request_disk=-1", "request_gpus=-1"] {
        let out = sandbox.run(&["run", "--set", request, "--", "true"]);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("is below zero"), "{request}: {said}");
    }
}
