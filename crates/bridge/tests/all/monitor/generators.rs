//! Generators that cannot be started, that talk nonsense, that do not stop and that run as somebody else.

use std::os::unix::fs::PermissionsExt as _;

use bridge::monitor::StartError;
use bridge::monitor::shell::Generator;

use super::*;

fn refusal(command: Command) -> StartError {
    let start = Instant::now();
    let error = Monitor::start(Settings::new(command), Arc::new(Heard::default())).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(30));
    error
}

#[test]
fn a_first_start_that_fails_is_an_error_of_the_caller() {
    let missing = refusal(Command::new(vec!["/nonexistent/generator".into()], "x"));
    assert!(matches!(missing, StartError::Spawn { .. }));
    assert!(
        missing.to_string().starts_with("cannot start the generator /nonexistent/generator: No such file")
    );
    let place = tempfile::tempdir().unwrap();
    let plain = place.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    assert!(matches!(refusal(Command::new(vec![plain.into()], "x")), StartError::Spawn { .. }));
    let ended = refusal(script("echo Invalid module >&2; exit 1"));
    assert_eq!(ended.to_string(), "the generator sh ended at once (exit status: 1): Invalid module");
    let silent = refusal(script("exit 0"));
    assert_eq!(silent.to_string(), "the generator sh ended at once (exit status: 0)");
    let none = refusal(Command::new(Vec::new(), "x"));
    assert!(none.to_string().contains("no command is set"), "{none}");
}

#[test]
fn nonsense_of_any_length_is_survived_and_counted() {
    let text = "
        printf 'garbage\\n\\000\\000\\n001;x\\n002;5;of another day\\n'
        printf '001;10;1;3;0\\n001;10;1;0;0\\n'
        head -c 50000000 /dev/zero | tr '\\0' 'x'
        printf '\\n001;10;1;2;0\\n'
        head -c 10000000 /dev/zero | tr '\\0' 'e' >&2
        for state in 16 32 64 128; do echo \"001;11;1;$state;0\"; done
        echo '001;12;1;8;5'; cat";
    let (monitor, heard) = start(settings(script(text)));
    monitor.register(b"1", &key("one")).unwrap();
    until("six events", || heard.count() == 6);
    let states: Vec<_> = heard.by_key()["one"].iter().map(|t| t.1).collect();
    assert_eq!(states, [2, 16, 32, 64, 128, 8]);
    assert_eq!(monitor.status().starts, 1);
    monitor.stop();
    assert!(heard.notes().contains("lines that are no events; they are skipped"), "{}", heard.notes());
}

#[test]
fn bad_lines_are_counted_when_they_come_not_when_a_person_is_told() {
    // Cut where a pipe may cut it, so that the second comes when the first was told.
    let (monitor, heard) = start(settings(script(
        "echo garbage; sleep 0.2; echo more; head -c 100000 /dev/zero | tr '\\0' 'x'; echo; echo '001;12;1;8;5'; cat",
    )));
    monitor.register(b"1", &key("one")).unwrap();
    until("an event", || heard.count() == 1);
    assert_eq!(monitor.status().bad_lines, 3);
    monitor.stop();
}

#[test]
fn what_a_generator_could_not_read_is_passed_on_while_it_lives() {
    let place = tempfile::tempdir().unwrap();
    let said = place.path().join("said");
    let text = format!(
        "echo 'log.1 is missing' >&2; printf 'half a' >&2; echo '001;12;1;8;5'; echo ' line' >&2
         for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo \"more $n\" >&2; done; echo > {}; cat",
        said.display()
    );
    let (monitor, heard) = start(settings(script(&text)));
    until("ten lines", || heard.notes().contains("the generator says: more 8") && said.exists());
    let notes = heard.notes();
    assert!(notes.contains("the generator says: log.1 is missing"), "{notes}");
    assert!(notes.contains("the generator says: half a line"), "{notes}");
    monitor.stop();
    let notes = heard.notes();
    assert!(!notes.contains("more 9") && notes.contains("besides on standard error: 4"), "{notes}");
}

#[test]
fn a_generator_that_says_little_before_it_dies_is_quoted_and_tried_again_for_ever() {
    let place = tempfile::tempdir().unwrap();
    let starts = place.path().join("starts");
    let text =
        format!("echo x >> {0}; echo '001;5;1;1;0'; echo the disk is on fire >&2; exit 7", starts.display());
    let (monitor, heard) = start(settings(script(&text)));
    until("a third start", || std::fs::read_to_string(&starts).is_ok_and(|s| s.lines().count() >= 3));
    let status = monitor.status();
    assert!(status.last_error.as_ref().unwrap().contains("exit status: 7"), "{status:?}");
    assert!(status.last_error.unwrap().contains("the disk is on fire"));
    assert!(heard.notes().contains("It is started again"));
    until("backing off", || matches!(monitor.status().generator, Generator::BackingOff { attempts: 3.. }));
    let stop = Instant::now();
    monitor.stop();
    assert!(stop.elapsed() < PATIENCE, "a stop does not wait for the next start");
}

#[test]
fn a_hundred_starts_and_stops_leave_no_process() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().display().to_string();
    for n in 0..100 {
        // Some leave when their input ends; one in ten never does, with a child that does not either.
        let text = if n % 10 == 0 {
            format!(
                "trap '' TERM HUP; echo '001;5;1;1;0'; : {mark}; sh -c 'sleep 1000; : {mark}' & sleep 1000"
            )
        } else {
            format!("echo '001;5;1;1;0'; : {mark}; cat; : {mark}")
        };
        let settings = Settings { patience: Duration::from_millis(50), ..settings(script(&text)) };
        let (monitor, _) = start(settings);
        monitor.stop();
    }
    assert_eq!(processes_with(&mark), Vec::<u32>::new());
}

#[test]
fn a_generator_whose_child_keeps_the_pipe_is_still_seen_to_be_gone() {
    let place = tempfile::tempdir().unwrap();
    let starts = place.path().join("starts");
    let text = format!("echo x >> {}; echo '001;5;1;1;0'; sleep 1000 & exit 0", starts.display());
    let (monitor, _) = start(settings(script(&text)));
    until("another start", || std::fs::read_to_string(&starts).is_ok_and(|s| s.lines().count() >= 2));
    monitor.stop();
}

#[test]
fn a_generator_that_is_silent_for_long_is_not_taken_for_gone() {
    // Longer than the time after which it is looked whether it is still there. It goes on only if its input is still open.
    let text = "echo '001;5;1;1;0'; timeout 2 cat || echo '001;6;1;2;0'; cat";
    let (monitor, heard) = start(settings(script(text)));
    monitor.register(b"1", &key("one")).unwrap();
    until("two events", || heard.count() == 2);
    assert_eq!(monitor.status().starts, 1);
    monitor.stop();
}

#[test]
fn another_user_is_asked_for_by_sudo_without_a_password_and_the_zone_comes_along() {
    let place = tempfile::tempdir().unwrap();
    let (sudo, said) = (place.path().join("sudo"), place.path().join("said"));
    let text = format!("#!/bin/sh\necho \"$1 $2 $3 $4 TZ=$TZ\" > {}\nshift 4\nexec \"$@\"\n", said.display());
    std::fs::write(&sudo, text).unwrap();
    std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = script("echo '001;5;1;1;0'; cat");
    command.user = Some("pbsadmin".to_owned());
    command.sudo = sudo.into();
    let (monitor, _) = start(settings(command));
    until("an event", || monitor.status().counters.read == 1);
    let zone = std::env::var("TZ").unwrap_or_default();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), format!("-n -u pbsadmin -- TZ={zone}\n"));
    monitor.stop();
}
