//! `updraft sim`: scenarios and traces in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::{Failure, print};

/// Arguments of `updraft sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a scenario and compare it with what it expects
    Run {
        /// The scenario (TOML)
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Write a picture of systems over time
        #[arg(long, value_name = "OUT")]
        svg: Option<PathBuf>,
    },
    /// Play a trace in the Standard Workload Format
    Swf {
        /// The trace
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let said = match &args.command {
        Command::Run { file, json, svg } => ::sim::cli::run(file, *json, svg.as_deref()),
        Command::Swf { file, json } => ::sim::cli::swf(file, *json),
    }
    .map_err(Failure::new)?;
    print(&said.text)?;
    if said.holds { Ok(ExitCode::SUCCESS) } else { Err(Failure::silent(1)) }
}
