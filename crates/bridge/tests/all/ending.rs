//! How it ends, and what it writes until then.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use bridge::seg::Module;
use bridge::seg::run::{End, Options, Output, run};

use crate::harness::{once, options, reading, start};

const LINES: &str = "001;1700000000;a;2;0\n001;1700000001;a;16;0\n001;1700090000;a;8;3\n";

fn log(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    fs::write(&path, text).unwrap();
    (place, path)
}

fn run_into(path: &Path, options: Options, output: Output) -> End {
    let (input, _writer) = std::io::pipe().unwrap();
    let mut source = Module::Fork.source(path, &reading(1, "UTC"));
    run(source.as_mut(), options, Some(input.into()), output, &mut |_| {}).unwrap()
}

#[test]
fn the_end_of_the_input_ends_it() {
    let (_place, path) = log(LINES);
    let running = start(Module::Fork, &path, &reading(1, "UTC"), options());
    let outcome = running.finish();
    assert_eq!(outcome.end.unwrap(), End::Input);
    // Closed before it began, and everything was told all the same.
    assert_eq!(outcome.output, b"001;1700000000;a;2;0\n001;1700090000;a;8;3\n");
}

#[test]
fn a_closed_output_is_noticed_without_an_event() {
    let (_place, path) = log("");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run_into(&path, options(), Output::Stream(writer.into())), End::Output);
    // And with one.
    let (_place, path) = log(LINES);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run_into(&path, options(), Output::Stream(writer.into())), End::Output);
}

#[test]
fn a_reader_that_stands_still_does_not_keep_it_after_the_input_ended() {
    let many = "001;1700000000;some-job-with-a-name;2;0\n".repeat(20_000);
    let (_place, path) = log(&many);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (input, input_writer) = std::io::pipe().unwrap();
    drop(input_writer);
    let mut source = Module::Fork.source(&path, &reading(1, "UTC"));
    let options = Options { farewell: std::time::Duration::from_millis(10), ..options() };
    run(source.as_mut(), options, Some(input.into()), Output::Stream(writer.into()), &mut |_| {}).unwrap();
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert!(got.len() < many.len());
    // Whole lines only.
    assert!(many.as_bytes().starts_with(&got) && got.ends_with(b"\n"));
}

#[test]
fn day_files_are_by_utc_and_can_be_read_again() {
    let (place, path) = log(LINES);
    let days = place.path().join("days");
    fs::create_dir(&days).unwrap();
    let end = run_into(&path, Options { follow: false, ..options() }, Output::Days(days.clone()));
    assert_eq!(end, End::Told);
    assert_eq!(fs::read(days.join("20231114")).unwrap(), b"001;1700000000;a;2;0\n");
    assert_eq!(fs::read(days.join("20231115")).unwrap(), b"001;1700090000;a;8;3\n");
    let again = once(Module::JobManager, &days, &reading(1_700_000_000, "UTC"));
    assert_eq!(again.output, b"001;1700000000;a;2;0\n001;1700090000;a;8;3\n");
}

#[test]
fn json_and_all_states() {
    let (_place, path) = log(LINES);
    let options = Options { follow: false, json: true, all_states: true, ..options() };
    let outcome = start(Module::Fork, &path, &reading(1, "UTC"), options).finish();
    let text = String::from_utf8(outcome.output).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1]["state"], "suspended");
    assert_eq!((&rows[2]["code"], &rows[2]["time"]), (&3.into(), &1_700_090_000.into()));
}

#[test]
fn grid_engine_reports_and_accounts() {
    let mut account = vec!["x"; 36];
    (account[5], account[10], account[11], account[12], account[35]) = ("7", "1700000300", "0", "4", "0");
    let good = account.join(":");
    (account[11], account[12], account[35]) = ("100", "137", "3");
    let killed = account.join(":");
    let text = format!(
        "# Version: 8\n1700000000:new_job:1700000000:7:-1:NONE:n:o:g:p:d:a:1024\n\
         1700000001:job_log:1700000001:pending:7:-1:NONE::u:h:0:1024:1700000000:n:o:g:p:d:a:new\n\
         1700000100:job_log:1700000100:delivered:7:0:NONE:r:master:h:0:1024:1700000000:n:o:g:p:d:a:m\n\
         1700000300:acct:{good}\n\
         1700000301:job_log:1700000301:deleted:7:0:NONE:T:scheduler:h:0:1024:1700000000:n:o:g:p:d:a:m\n\
         1700000400:job_log:1700000400:deleted:8:-1:NONE:T:alice:h:0:1024:1700000000:n:o:g:p:d:a:m\n\
         {killed}\n"
    );
    let (_place, path) = log(&text);
    let outcome = once(Module::Sge, &path, &reading(1, "UTC"));
    assert_eq!(
        String::from_utf8(outcome.output).unwrap(),
        "001;1700000000;7.0;1;0\n001;1700000100;7.0;2;0\n001;1700000300;7.0;8;4\n001;1700000400;8.0;4;0\n\
         001;1700000300;7.3;4;100\n"
    );
}

#[test]
fn a_sign_of_life_comes_when_it_is_asked_for() {
    let (_place, path) = log(LINES);
    let beat = Some(std::time::Duration::from_millis(5));
    let running = start(Module::Fork, &path, &reading(1, "UTC"), Options { heartbeat: beat, ..options() });
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while running.told().matches(";heartbeat\n").count() < 3 && std::time::Instant::now() < limit {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let text = String::from_utf8(running.finish().output).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // What is there by then is told before it.
    assert_eq!(lines[..2], ["001;1700000000;a;2;0", "001;1700090000;a;8;3"]);
    let beats: Vec<&str> = lines.iter().filter(|line| line.ends_with(";heartbeat")).copied().collect();
    assert!(beats.len() >= 3 && beats.len() == lines.len() - 2, "{text}");
    assert!(beats.iter().all(|line| line.starts_with("000;1") && line.len() == 24), "{text}");
}

#[test]
fn errors_of_the_output_are_called_that() {
    let (place, path) = log(LINES);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (input, _writer) = std::io::pipe().unwrap();
    let mut source = Module::Fork.source(&path, &reading(1, "UTC"));
    let error = run(source.as_mut(), options(), Some(input.into()), Output::Stream(full.into()), &mut |_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("standard output: No space left"), "{error}");
    let (input, _writer) = std::io::pipe().unwrap();
    let mut source = Module::Fork.source(&path, &reading(1, "UTC"));
    let days = Output::Days(place.path().join("none"));
    let error =
        run(source.as_mut(), options(), Some(input.into()), days, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("none/20231114: No such file"), "{error}");
}
