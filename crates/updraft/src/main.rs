//! The one binary: arguments in, text out, no logic.

mod cmd;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A pool scheduler: batch jobs on whatever machines are idle.
#[derive(Parser)]
#[command(name = "updraft", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Evaluate, match, print and check ClassAds
    Classad(cmd::classad::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Classad(args) => cmd::classad::run(args),
    }
}
