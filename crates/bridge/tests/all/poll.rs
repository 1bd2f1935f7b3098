//! The `poll` module with real commands.

use std::fs;
use std::time::{Duration, Instant};

use bridge::seg::follow::poll::{Ask, Poll};
use bridge::seg::poll::{Books, Gone};
use bridge::seg::run::{End, Options};

use crate::harness::{Running, options, start_source};

fn poll(command: &str, patience: Duration, options: Options) -> Running {
    let ask = Ask { command: command.to_owned(), interval: Duration::from_millis(20), patience };
    start_source(move || Box::new(Poll::start(ask, Books::new(1, Gone::Note)).unwrap()), options)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn changes_between_the_answers_of_a_command_are_told() {
    let place = tempfile::tempdir().unwrap();
    let answer = place.path().join("answer");
    fs::write(&answer, "a pending\nb active\n").unwrap();
    let running = poll(&format!("cat {}", answer.display()), LONG, options());
    let wait = |lines: usize| {
        let limit = Instant::now() + Duration::from_secs(30);
        while running.told().lines().count() < lines && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(2);
    let aside = place.path().join("aside");
    fs::write(&aside, "a 8 3 1700000000\nb active\n").unwrap();
    fs::rename(&aside, &answer).unwrap();
    wait(3);
    let outcome = running.finish();
    let text = String::from_utf8(outcome.output).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].ends_with(";a;1;0") && lines[1].ends_with(";b;2;0"), "{text}");
    assert_eq!(lines[2], "001;1700000000;a;8;3");
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
}

#[test]
fn once_waits_for_one_answer() {
    let once = Options { follow: false, ..options() };
    let outcome = poll("sleep 0.1; echo a 1 0 5", LONG, once).wait();
    assert_eq!((outcome.output, outcome.end.unwrap()), (b"001;5;a;1;0\n".to_vec(), End::Told));
    let outcome = poll("echo a 1 0 5; echo no good >&2; exit 3", LONG, once).wait();
    assert_eq!((outcome.output, outcome.end.unwrap()), (Vec::new(), End::Incomplete));
    assert!(outcome.notes[0].contains("no good") && outcome.notes[0].contains('3'), "{:?}", outcome.notes);
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pid");
    let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let running = poll(&command, Duration::from_millis(200), Options { follow: false, ..options() });
    let outcome = running.wait();
    assert!(outcome.notes[0].contains("gave no answer"), "{:?}", outcome.notes);
    let pid: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let limit = Instant::now() + Duration::from_secs(10);
    let is_alive = || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    while is_alive() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_alive());
    // One that has left its group keeps nobody, either.
    let command = format!("setsid sleep 1000 & echo $! > {}; wait", file.display());
    let outcome = poll(&command, Duration::from_millis(200), Options { follow: false, ..options() }).wait();
    assert!(outcome.notes[0].contains("gave no answer"), "{:?}", outcome.notes);
    let escaped = fs::read_to_string(&file).unwrap();
    std::process::Command::new("kill").args(["-9", escaped.trim()]).status().unwrap();
    let command = "sleep 1000";
    // The end of the input is noticed meanwhile, and the command does not outlive it.
    let running = poll(command, LONG, Options { farewell: Duration::from_millis(50), ..options() });
    running.settle(0);
    assert_eq!(running.finish().end.unwrap(), End::Input);
}
