//! `updraft seg` as a process: its names, its exit codes and its ends. What it prints for which log is tested in `bridge`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::harness::updraft;

const LINES: &str = "001;1700000000;a;2;0\n001;1700090000;a;8;3\n";

fn seg(arguments: &[&str]) -> Output {
    Command::new(updraft()).arg("seg").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn log() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    fs::write(&path, LINES).unwrap();
    (place, path)
}

#[test]
fn mistakes_in_the_call_end_with_one() {
    for (arguments, said) in [
        (&[][..], "-s NAME"),
        (&["-s", "nosuch"], "Invalid module nosuch: activation failed"),
        (&["-s", "fork", "-t", "abc"], "Invalid timestamp [abc]"),
        (&["-s", "fork", "--log-path", "/no/such/log"], "No such file"),
        (&["-s", "fork", "--log-path", "/dev/null", "-d", "/no/such"], "cannot write to /no/such"),
        (&["-s", "fork", "--config", "/no/such"], "--log-path"),
        (&["-x"], "-x"),
    ] {
        let output = seg(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    assert_eq!(seg(&["-h"]).status.code(), Some(0));
}

#[test]
fn by_the_name_of_the_original_until_the_input_ends() {
    let (place, path) = log();
    let link = place.path().join("globus-scheduler-event-generator");
    std::os::unix::fs::symlink(updraft(), &link).unwrap();
    let config = place.path().join("conf");
    fs::write(&config, format!("log_path=\"{}\"\n", path.display())).unwrap();
    let mut child = Command::new(link)
        .args(["-s", "fork", "-t", "1700000000", "--config"])
        .arg(&config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!((next(), next()), ("001;1700000000;a;2;0".into(), "001;1700090000;a;8;3".into()));
    child.stdin.as_mut().unwrap().write_all(b"200 5\nanything\n").unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"001;1700090001;b;1;0\n").unwrap();
    assert_eq!(next(), "001;1700090001;b;1;0");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn nobody_reads() {
    let (_place, path) = log();
    let mut child = Command::new(updraft())
        .args(["seg", "-s", "fork", "-t", "1", "--log-path"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn day_files_once() {
    let (place, path) = log();
    let days = place.path().join("days");
    fs::create_dir(&days).unwrap();
    let arguments = [
        "-s",
        "fork",
        "-t",
        "1",
        "--once",
        "-d",
        days.to_str().unwrap(),
        "--log-path",
        path.to_str().unwrap(),
    ];
    assert!(seg(&arguments).status.success());
    assert_eq!(fs::read_to_string(days.join("20231114")).unwrap(), "001;1700000000;a;2;0\n");
    assert_eq!(fs::read_to_string(days.join("20231115")).unwrap(), "001;1700090000;a;8;3\n");
}
