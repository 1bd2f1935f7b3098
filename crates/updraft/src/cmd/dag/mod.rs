//! `updraft dag`: workflows in DAGMan files; also what runs when the binary is called through a link named `condor_submit_dag`.
//!
//! `submit` makes a DAG a job of the queue; `job` is what that job executes, `drive` its loop; `status` looks at one from outside.

mod disk;
mod drive;
mod job;
mod logs;
mod node;
mod options;
mod pool;
mod record;
mod scripts;
mod settings;
mod status;
mod submit;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cmd::Failure;
use crate::place::Place;

/// The name of the original.
pub(crate) const LINK: &str = "condor_submit_dag";

/// Run workflows that are written as DAGMan files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a DAG: as a job of the queue that submits the others as their turn comes
    Submit {
        /// The DAG files, and options of condor_submit_dag: -maxjobs N, -maxidle N, -f, -usedagdir, ... (see docs/dag.md)
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILE.dag")]
        words: Vec<String>,
    },
    /// Show how far a DAG is
    Status(status::Args),
    /// Stop a DAG and remove its jobs; its FINAL node still runs, and a rescue file is left
    Rm {
        /// The DAG file
        #[arg(value_name = "FILE.dag")]
        file: String,
    },
}

/// Carry a DAG out (DAG jobs execute this)
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Takes the call over if it is for `condor_submit_dag`.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if Path::new(&program).file_name() != Some(OsStr::new(LINK)) {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let state_dir = std::env::var_os("UPDRAFT_STATE_DIR").filter(|dir| !dir.is_empty()).map(Into::into);
    let pool = std::env::var("UPDRAFT_POOL").ok().filter(|pool| !pool.is_empty());
    Some(submit::run_as_original(&words, &Place { state_dir, pool }))
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Submit { words } => submit::run(words, place),
        Command::Status(args) => status::run(args, place),
        Command::Rm { file } => status::remove(file, place),
    }
}

pub(crate) fn run_job(args: &JobArgs, place: &Place) -> Result<ExitCode, Failure> {
    job::run(&args.words, place)
}

/// Signals by which a DAG job is asked to stop.
struct Stops([Signal; 3]);

impl Stops {
    fn listen() -> std::io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::user_defined1(), SignalKind::interrupt()];
        let [a, b, c] = kinds.map(signal);
        Ok(Self([a?, b?, c?]))
    }

    async fn heard(&mut self) {
        let [a, b, c] = &mut self.0;
        tokio::select! {
            _ = a.recv() => {}
            _ = b.recv() => {}
            _ = c.recv() => {}
        }
    }
}
