//! Completions and man pages, made from the same description as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cmd::Failure;
use crate::command_line;

/// `updraft completions`
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    shell: clap_complete::Shell,
}

/// `updraft man`
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Where to write the pages
    directory: PathBuf,
}

pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line(), "updraft", &mut script);
    crate::cmd::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &Man) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&args.directory)?;
    clap_mangen::generate_to(command_line(), &args.directory)?;
    Ok(ExitCode::SUCCESS)
}
