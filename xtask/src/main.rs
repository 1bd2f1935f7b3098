//! The project's own commands.

mod bench;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bench", "classad"] => print!("{}", bench::classad::run(false)),
        ["bench", "classad", "--quick"] => print!("{}", bench::classad::run(true)),
        _ => {
            eprintln!("usage: cargo xtask bench classad [--quick]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
