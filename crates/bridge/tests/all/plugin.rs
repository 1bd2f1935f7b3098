//! The sample module in C: built, loaded and run, where there is a C compiler.

use std::path::Path;
use std::process::Command;

use bridge::seg::plugin::Plugin;
use bridge::seg::run::{End, Failure, Options, Output, run};

use crate::harness::options;

#[test]
fn a_module_in_c_is_built_and_run() {
    let place = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = place.path().join("libupdraft_seg_sample.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(root.join("../../include"))
        .arg("-o")
        .arg(&library)
        .arg(root.join("tests/data/sample_module.c"))
        .status();
    let Ok(status) = built else {
        println!("no C compiler here: the sample module is not tried");
        return;
    };
    assert!(status.success());
    let mut plugin = Plugin::load(library.to_str().unwrap(), 1_700_000_000).unwrap();
    let (input, input_writer) = std::io::pipe().unwrap();
    let (output, output_writer) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let lines: Vec<String> =
            std::io::BufRead::lines(std::io::BufReader::new(output)).map_while(Result::ok).take(5).collect();
        drop(input_writer);
        lines
    });
    let end =
        run(&mut plugin, options(), Some(input.into()), Output::Stream(output_writer.into()), &mut |_| {});
    let lines = reader.join().unwrap();
    // The reader hangs up after the fifth line: either end may be noticed first.
    assert!(matches!(end.unwrap(), End::Input | End::Output));
    drop(plugin);
    assert_eq!(
        lines[..4],
        [
            "001;1700000000;%s%n;1;0",
            "001;1700000001;%s%n;2;0",
            "001;1700000002;%s%n;8;7",
            "001;1700000003;by-text;4;-2"
        ]
    );
    assert!(lines[4].ends_with(";now;4;3") && !lines[4].starts_with("001;0;"), "{}", lines[4]);
}

#[test]
fn modules_that_are_none() {
    for name in ["nosuch", "../x/libm.so", "a b", "", "./no.so"] {
        assert!(Plugin::load(name, 0).is_err(), "{name}");
    }
}

/// The odd module with one of its oddities; nothing where there is no C compiler.
fn odd(place: &Path, which: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = place.join(format!("{which}.so"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-function", "-I"])
        .arg(root.join("../../include"))
        .arg(format!("-D{which}"))
        .arg("-o")
        .arg(&library)
        .arg(root.join("tests/data/odd_module.c"))
        .status();
    let Ok(status) = built else {
        println!("no C compiler here: modules are not tried");
        return None;
    };
    assert!(status.success());
    Some(library.to_str().unwrap().to_owned())
}

/// What a module tells, and how it ends; its input ends when it has told so many lines.
fn run_odd(library: &str, lines: usize) -> (Vec<String>, Result<End, Failure>) {
    let mut plugin = Plugin::load(library, 7).unwrap();
    let (input, input_writer) = std::io::pipe().unwrap();
    let (output, output_writer) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut output = std::io::BufRead::lines(std::io::BufReader::new(output));
        let mut told: Vec<String> = output.by_ref().take(lines).map_while(Result::ok).collect();
        drop(input_writer);
        told.extend(output.map_while(Result::ok));
        told
    });
    let options = Options { farewell: std::time::Duration::from_millis(50), ..options() };
    let end =
        run(&mut plugin, options, Some(input.into()), Output::Stream(output_writer.into()), &mut |_| {});
    drop(plugin);
    (reader.join().unwrap(), end)
}

#[test]
fn messages_of_any_kind_pass_and_several_are_all_told_or_none() {
    let place = tempfile::tempdir().unwrap();
    let Some(library) = odd(place.path(), "MESSAGES") else { return };
    let (told, end) = run_odd(&library, 4);
    assert_eq!(told, ["002;8;anything; of mine", "001;9;a;1;0", "001;10;a;8;3", "001;11;refused;8;1"]);
    assert_eq!(end.unwrap(), End::Input);
}

#[test]
fn a_call_before_activation_returns_an_error() {
    let place = tempfile::tempdir().unwrap();
    let Some(library) = odd(place.path(), "EARLY") else { return };
    assert_eq!(run_odd(&library, 1).0, ["001;7;after;8;1"]);
}

#[test]
fn modules_that_lack_something_are_refused_when_they_are_loaded() {
    let place = tempfile::tempdir().unwrap();
    for (which, said) in [
        ("NO_ACTIVATE", "function to activate"),
        ("NO_DEACTIVATE", "function to deactivate"),
        ("NO_NAME", "no name"),
        // The loader's own reason.
        ("UNBOUND", "there_is_no_such_function"),
    ] {
        let Some(library) = odd(place.path(), which) else { return };
        let error = Plugin::load(&library, 7).err().unwrap().to_string();
        assert!(error.contains(said), "{which}: {error}");
    }
    let error = Plugin::load("nosuch", 7).err().unwrap().to_string();
    assert!(error.contains("libupdraft_seg_nosuch.so") && error.contains("No such file"), "{error}");
}

#[test]
fn a_module_that_cannot_start_is_an_error_and_one_that_does_not_come_back_keeps_nobody() {
    let place = tempfile::tempdir().unwrap();
    let Some(library) = odd(place.path(), "REFUSES") else { return };
    let error = run_odd(&library, 1).1.unwrap_err().to_string();
    assert!(error.contains("42"), "{error}");
    let Some(library) = odd(place.path(), "HANGS") else { return };
    assert_eq!(run_odd(&library, 0).1.unwrap(), End::Input);
}
