//! `updraft starter`: what agents start for each claim. Its standard input is its connection to the agent.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use crate::cmd::Failure;

pub(crate) fn run() -> Result<ExitCode, Failure> {
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    ::starter::run(stdin).map_err(|e| Failure::new(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
