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

/// A disk that is full stands for every write that is done by half.
#[test]
fn a_full_disk_leaves_whole_lines_and_the_next_generator_goes_on_behind_them() {
    if !crate::harness::is_root() {
        return crate::harness::skip("a disk that is full needs a mount");
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("days")).unwrap();
    let lines: String = (0..1_000).map(|n| format!("001;{};job{n};2;0\n", 1_700_000_000 + n)).collect();
    fs::write(at("log"), &lines).unwrap();
    // In a mount namespace of its own: full at first, then with room for the rest.
    let script = "mount -t tmpfs -o size=12k none days && head -c 4096 /dev/zero > days/filler && \
         \"$0\" seg -s fork -t 1 --once -d days --log-path log; echo \"ended $?\"; cp days/20231114 first; \
         rm days/filler && echo '001;1700001999;next;8;0' > log && \
         \"$0\" seg -s fork -t 1 --once -d days --log-path log; cp days/20231114 second";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(updraft())
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ended 1\n", "{said}");
    assert!(said.contains("days/20231114: No space left"), "{said}");
    let (first, second) =
        (fs::read_to_string(at("first")).unwrap(), fs::read_to_string(at("second")).unwrap());
    assert!(
        first.ends_with('\n') && lines.starts_with(&first) && first.len() < lines.len(),
        "{} bytes",
        first.len()
    );
    assert!(second == format!("{first}001;1700001999;next;8;0\n"), "{:?}", &second[second.len() - 80..]);
}

#[test]
fn help_says_what_it_is() {
    for (flag, more) in [("-h", false), ("--help", true)] {
        let output = seg(&[flag]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("Tell every change of every job of another scheduler\n"), "{text}");
        assert_eq!(text.contains("001;TIME;JOB;STATE;CODE"), more, "{text}");
        assert!(!text.contains("Where state is"), "{text}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_said_by_the_exit_code() {
    let (place, path) = log();
    let path = path.to_str().unwrap();
    let directory = place.path().to_str().unwrap();
    fs::write(place.path().join("half"), &LINES[..LINES.len() - 1]).unwrap();
    fs::write(place.path().join("garbage"), LINES.replace(";a;8;3", ";a")).unwrap();
    for (arguments, said) in [
        // A log that is not there, and logs of the wrong kind.
        (vec!["-s", "fork", "--once", "--log-path", "missing"], "not everything could be read"),
        (vec!["-s", "fork", "--log-path", directory], "this is a directory"),
        (vec!["-s", "slurm", "--log-path", "/dev/null"], "this is a device, not a file"),
        (vec!["-s", "lsf", "--log-path", path], "is no directory"),
        (vec!["-s", "pbs", "--log-path", path], "Not a directory"),
        // A log that ends in the middle of a record, and one with something else in it.
        (vec!["-s", "fork", "--once", "--log-path", "half"], "half ends in the middle of a record"),
        (vec!["-s", "fork", "--once", "--log-path", "garbage"], "garbage: the line at byte 21 is no record"),
        (vec!["-s", "poll"], "--command"),
        (vec!["-s", "poll", "--command", "echo a 1", "--gone", "x"], "note, done or failed"),
        (vec!["-s", "poll", "--command", "exit 3", "--once"], "exit status: 3"),
    ] {
        let output = Command::new(updraft())
            .arg("seg")
            .args(["-t", "1"])
            .args(&arguments)
            .current_dir(place.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(updraft())
        .args(["seg", "-s", "fork", "-t", "1", "--once", "--log-path", path])
        .stdin(Stdio::null())
        .stdout(full)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("standard output: No space left"), "{text}");
}

#[test]
fn an_output_that_is_closed_is_an_error() {
    let (_place, path) = log();
    for follow in ["--once", ""] {
        let line = format!(
            "exec {} seg -s fork -t 1 {follow} --log-path {} </dev/null >&-",
            updraft().display(),
            path.display()
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{follow}: {text}");
        assert!(text.contains("standard output is closed"), "{follow}: {text}");
        // Whoever wants nothing of it, in whichever way that was opened, has not closed it.
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let line = line.replace(" >&-", "");
        assert!(Command::new("sh").args(["-c", &line]).stdout(null).status().unwrap().success());
    }
}

#[test]
fn standard_error_that_nobody_reads_keeps_nobody_and_the_end_of_the_input_is_noticed() {
    // More notes than a pipe holds.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let event = "000 (1.000.000) 2024-08-01 08:13:01 Job submitted from host: <x>\n".repeat(20_000);
    fs::write(&path, format!("{event}...\n")).unwrap();
    let mut child = Command::new(updraft())
        .args(["seg", "-s", "condor", "-t", "1", "--log-path"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "001;1722499981;001.000.000;1;0");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_scheduler_is_asked_by_a_command_of_the_site() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("conf");
    fs::write(&config, "command=\"echo 'job 1;done;3;1700000000'\"\ninterval=1\ngone=done\n").unwrap();
    let output = seg(&["-s", "poll", "-t", "1", "--once", "--config", config.to_str().unwrap()]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "001;1700000000;job 1;8;3\n");
    assert!(output.status.success());
    fs::write(&config, "command=true\ninterval=0\n").unwrap();
    let output = seg(&["-s", "poll", "--once", "--config", config.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("from 1 to 86400"));
}

#[test]
fn a_sign_of_life_is_printed_on_request() {
    let (_place, path) = log();
    let mut child = Command::new(updraft())
        .args(["seg", "-s", "fork", "-t", "1", "--heartbeat", "1", "--log-path"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<_> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(4).map_while(Result::ok).collect();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(lines[..2], ["001;1700000000;a;2;0", "001;1700090000;a;8;3"]);
    assert!(
        lines[2..].iter().all(|line| line.starts_with("000;") && line.ends_with(";heartbeat")),
        "{lines:?}"
    );
}

#[test]
fn links_are_made_under_the_names_that_users_know() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("new/bin");
    let links =
        |more: &[&str]| Command::new(updraft()).arg("links").arg(&directory).args(more).output().unwrap();
    let link = directory.join("globus-scheduler-event-generator");
    for _ in 0..2 {
        let output = links(&[]);
        assert!(output.status.success());
        let starter = directory.join("globus-fork-starter");
        let dag = directory.join("condor_submit_dag");
        let made = format!("{}\n{}\n{}\n", link.display(), starter.display(), dag.display());
        assert!(String::from_utf8(output.stdout).unwrap().starts_with(&made));
    }
    let output = Command::new(&link).args(["-s", "nosuch"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Invalid module nosuch"));
    // Something else is left alone, unless that is wanted.
    fs::remove_file(&link).unwrap();
    fs::write(&link, "mine").unwrap();
    let output = links(&[]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--force"));
    assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
    assert!(links(&["--force"]).status.success());
    assert!(fs::read_link(&link).unwrap().ends_with("updraft"));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 21, "what was there was put aside and removed");
}
