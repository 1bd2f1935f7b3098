//! `updraft starter`: what agents start for each claim, by way of `updraft keeper`. Its standard input is its connection to
//! the agent. `updraft clear` removes what starters had to set aside, `updraft scribe` writes one user's job logs, `updraft porter`
//! moves one user's files. None of them has a second thread.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cmd::Failure;

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    ::starter::run(stdin).map_err(|e| Failure::new(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn keep() -> Result<ExitCode, Failure> {
    let ended_well = ::starter::keeper::keep().map_err(|e| Failure::new(e.to_string()))?;
    Ok(if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn write_logs() -> Result<ExitCode, Failure> {
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    ::starter::logbook::serve(stdin.into()).map_err(|e| Failure::new(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn carry_files() -> Result<ExitCode, Failure> {
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    ::starter::porter::serve(stdin.into()).map_err(|e| Failure::new(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// What to clear.
#[derive(Debug, clap::Args)]
pub(crate) struct Clear {
    /// The directory whose directories are removed
    dir: PathBuf,
    /// What one owner's directories may take together, in seconds; the rest is left for the next time
    #[arg(long, default_value_t = ::starter::clear::PATIENCE.as_secs())]
    patience: u64,
}

/// Prints what is left, a line each.
pub(crate) fn clear(args: &Clear) -> Result<ExitCode, Failure> {
    let left = ::starter::clear::clear(&args.dir, std::time::Duration::from_secs(args.patience))
        .map_err(|e| Failure::new(format!("cannot clear {}: {e}", args.dir.display())))?;
    for (path, why) in left {
        println!("{}: {why}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
