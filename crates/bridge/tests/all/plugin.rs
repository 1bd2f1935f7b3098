//! The sample module in C: built, loaded and run, where there is a C compiler.

use std::path::Path;
use std::process::Command;

use bridge::seg::plugin::Plugin;
use bridge::seg::run::{End, Output, run};

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
