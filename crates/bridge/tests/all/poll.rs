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

#[test]
fn a_generator_that_is_started_again_goes_on_where_the_other_was_killed() {
    let place = tempfile::tempdir().unwrap();
    let (answer, state) = (place.path().join("answer"), place.path().join("state"));
    fs::write(&answer, "a active\nb done 3\nc pending\n").unwrap();
    let ask = Ask {
        command: format!("cat {}", answer.display()),
        interval: Duration::from_millis(20),
        patience: LONG,
    };
    let start = |from: i64| {
        let (ask, state) = (ask.clone(), state.clone());
        let books = Books::new(from, Gone::Ended(bridge::seg::State::Failed));
        start_source(move || Box::new(Poll::start(ask, books).unwrap().remembering(&state, from)), options())
    };
    let wait = |running: &Running, lines: usize| {
        let limit = Instant::now() + Duration::from_secs(30);
        while running.told().lines().count() < lines && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let first = start(1);
    wait(&first, 3);
    let before = String::from_utf8(first.finish().output).unwrap();
    assert_eq!(before.lines().count(), 3, "{before}");
    // One changes and one leaves while nobody looks; whoever asks from the beginning hears all of it as it was.
    fs::write(&answer, "a active\nb done 3\nd active\n").unwrap();
    let second = start(1);
    wait(&second, 5);
    let told = String::from_utf8(second.finish().output).unwrap();
    assert!(told.starts_with(&before), "{told}");
    let rest: Vec<_> = told[before.len()..].lines().map(|line| line.splitn(3, ';').nth(2).unwrap()).collect();
    assert_eq!(rest, ["d;2;0", "c;4;0"]);
    // Whoever has heard it hears nothing.
    let third = start(i64::MAX);
    third.settle(0);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(third.finish().output, b"");
    // A place that cannot be written to is said, and costs only that.
    let ask = Ask { command: "echo a active".to_owned(), ..ask.clone() };
    let unable = place.path().join("no/such");
    let running = start_source(
        move || Box::new(Poll::start(ask, Books::new(1, Gone::Note)).unwrap().remembering(&unable, 1)),
        Options { follow: false, ..options() },
    );
    let outcome = running.wait();
    assert!(outcome.notes.len() == 1 && outcome.notes[0].contains("no/such"), "{:?}", outcome.notes);
    assert_eq!(outcome.end.unwrap(), End::Told);
}
