//! The one binary: arguments in, text out, no logic.

#![forbid(unsafe_code)]

/// A line on standard output. `println!` would end the process when nobody reads it any more.
macro_rules! outln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// A line on standard error. One that is closed, or full, is no reason to stop.
macro_rules! errln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod cmd;
mod configuration;
mod embed;
mod files;
mod monitors;
mod numbers;
mod place;
mod table;

use std::process::ExitCode;

use api::rest::{Act, MachineVerb};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::cmd::Failure;

/// A pool scheduler: batch jobs on whatever machines are idle
///
/// `updraft run` runs a whole sweep on this machine without any set-up. `updraft up` starts a pool, `updraft agent` adds
/// a machine to it, `updraft submit` gives it work.
#[derive(Parser)]
#[command(name = "updraft", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    place: place::Place,
    #[command(flatten)]
    log: cmd::log::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many jobs and wait for them, on a private pool if none is running
    Run(cmd::run::Args),
    /// Start a pool on this machine: manager and agent, in the foreground
    Up(cmd::up::Args),
    /// Lend this machine to a pool
    Agent(cmd::agent::Args),
    /// Give jobs to a running pool
    Submit(cmd::submit::Args),
    Fetch(cmd::fetch::Args),
    /// Show what is in the queue
    Queue(cmd::queue::Args),
    /// Show the machines
    Status(cmd::status::Args),
    /// Show or set a machine's condition, who it is lent to and who holds it
    Machine(cmd::machine::Args),
    /// Show the labs, or enable and disable one
    Lab(cmd::lab::Args),
    /// Wait until jobs are over
    Wait(cmd::wait::Args),
    /// Show the end of what a running job has written, and what it goes on to write
    Tail(cmd::tail::Args),
    /// Open a shell, or run a command, where a job runs
    Ssh(cmd::ssh::Args),
    /// Remove jobs
    Rm(cmd::act::Args),
    /// Put jobs on hold
    Hold(cmd::act::Args),
    /// Release held jobs
    Release(cmd::act::Args),
    /// Stop running jobs and put them back into the queue
    Vacate(cmd::act::VacateArgs),
    /// Stop running jobs where they are
    Suspend(cmd::act::MachineArgs),
    /// Let suspended jobs go on
    Continue(cmd::act::MachineArgs),
    /// Ask running jobs for a checkpoint
    Checkpoint(cmd::act::MachineArgs),
    /// Give a running job more time than it declared
    Extend(cmd::act::ExtendArgs),
    /// Give waiting jobs another priority among your own, or another class
    Prio(cmd::act::PrioArgs),
    /// Give back machines that were kept after the run (+ReserveAfter)
    Return(cmd::act::Args),
    Dag(cmd::dag::Args),
    /// Show what happened, and what happens
    Events(cmd::events::Args),
    /// Carry out maintenance windows on a pool that runs elsewhere
    Eventd(cmd::maintenance::EventdArgs),
    /// Show, try and change maintenance windows
    Maintenance(cmd::maintenance::Args),
    /// Say why a job waits, or why a machine does nothing
    Explain(cmd::explain::Args),
    /// Show where the time of the machines went
    Usage(cmd::usage::Args),
    /// Check a pool's journal for damage, or keep what can be read of a damaged one
    Journal(cmd::journal::Args),
    /// Show and set users' priorities
    Userprio(cmd::userprio::Args),
    /// Issue, list and revoke tokens
    Token(cmd::token::Args),
    /// Evaluate, match, print and check ClassAds
    Classad(cmd::classad::Args),
    /// Check, show, expand and compare configurations
    Config(cmd::config::Args),
    /// Have the manager and the machines of a pool read their configuration again
    Reconfig(cmd::reconfig::Args),
    /// Read, follow and check job event logs
    Joblog(cmd::joblog::Args),
    /// Tell every change of every job of another scheduler
    Seg(cmd::seg::Args),
    /// Tell the changes of jobs of another scheduler to whoever registered them
    Monitor(cmd::monitor::Args),
    /// Run jobs that are plain processes, and log their changes for the event generator
    ForkStarter(cmd::fork_starter::Args),
    /// Make links to this program under the names that users of other systems know
    Links(cmd::links::Args),
    /// Play scenarios and traces in virtual time
    Sim(cmd::sim::Args),
    /// Print a completion script for a shell
    Completions(cmd::docs::Completions),
    /// Write man pages into a directory
    Man(cmd::docs::Man),
    #[command(hide = true)]
    Dagman(cmd::dag::JobArgs),
    /// Run the jobs of one claim (agents start this)
    #[command(hide = true)]
    Starter,
    /// Start a starter and see that nothing outlives it (agents start this)
    #[command(hide = true)]
    Keeper,
    /// Remove what starters had to set aside (agents start this)
    #[command(hide = true)]
    Clear(cmd::starter::Clear),
    /// Write the job logs of one user (managers start this)
    #[command(hide = true)]
    Scribe,
    /// Read the inputs and land the results of one user's jobs (managers start this)
    #[command(hide = true)]
    Porter,
}

/// The description of the command line.
fn command_line() -> clap::Command {
    cmd::log::add_filter(Cli::command())
}

fn main() -> ExitCode {
    starter::streams::fail_beyond_file_size();
    // The original's name and exit codes: before anything else looks at the arguments.
    let called = cmd::seg::called().or_else(cmd::fork_starter::called).or_else(cmd::dag::called);
    if let Some(code) = called.or_else(cmd::condor::called) {
        return code;
    }
    let matches = command_line().get_matches();
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    cli.log.log = cmd::log::filter_behind(&matches).or(cli.log.log);
    let result = match cli.command {
        // A starter must stay small and single-threaded: nothing else is set up for it.
        Command::Starter => cmd::starter::run(),
        Command::Keeper => cmd::starter::keep(),
        Command::Clear(args) => cmd::starter::clear(&args),
        Command::Scribe => cmd::starter::write_logs(),
        Command::Porter => cmd::starter::carry_files(),
        Command::Classad(args) => return cmd::classad::run(args),
        Command::Config(args) => cmd::config::run(&args, &cli.place),
        Command::Joblog(args) => return cmd::joblog::run(args),
        Command::Seg(args) => return cmd::seg::run(&args, &cli.place),
        Command::Monitor(args) => cmd::monitor::run(&args, &cli.place),
        Command::ForkStarter(args) => return cmd::fork_starter::run(&args),
        Command::Links(args) => cmd::links::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Completions(args) => cmd::docs::completions(&args),
        Command::Man(args) => cmd::docs::man(&args),
        command => cli.log.init().and_then(|()| dispatch(command, &cli.place)),
    };
    match result {
        Ok(code) => code,
        Err(Failure { message, code }) => {
            if !message.is_empty() {
                errln!("updraft: {message}");
            }
            ExitCode::from(code)
        }
    }
}

fn dispatch(command: Command, place: &place::Place) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => cmd::run::run(args, place),
        Command::Up(args) => cmd::up::run(args, place),
        Command::Agent(args) => cmd::agent::run(args, place),
        Command::Submit(args) => cmd::submit::run(args, place),
        Command::Fetch(args) => cmd::fetch::run(&args, place),
        Command::Queue(args) => cmd::queue::run(&args, place),
        Command::Status(args) => cmd::status::run(&args, place),
        Command::Machine(args) => cmd::machine::run(args, place),
        Command::Lab(args) => cmd::lab::run(&args, place),
        Command::Wait(args) => cmd::wait::run(&args, place),
        Command::Tail(args) => cmd::tail::run(args, place),
        Command::Ssh(args) => cmd::ssh::run(args, place),
        Command::Rm(args) => cmd::act::run(args, Act::Remove, place),
        Command::Hold(args) => cmd::act::run(args, Act::Hold, place),
        Command::Release(args) => cmd::act::run(args, Act::Release, place),
        Command::Vacate(args) => cmd::act::vacate(args, place),
        Command::Suspend(args) => {
            cmd::act::run_here_or_there(args, Act::Suspend, MachineVerb::Suspend, place)
        }
        Command::Continue(args) => {
            cmd::act::run_here_or_there(args, Act::Continue, MachineVerb::Continue, place)
        }
        Command::Checkpoint(args) => {
            cmd::act::run_here_or_there(args, Act::Checkpoint, MachineVerb::Checkpoint, place)
        }
        Command::Extend(args) => cmd::act::extend(args, place),
        Command::Prio(args) => cmd::act::prio(args, place),
        Command::Return(args) => cmd::act::run(args, Act::Return, place),
        Command::Dag(args) => cmd::dag::run(&args, place),
        Command::Dagman(args) => cmd::dag::run_job(&args, place),
        Command::Events(args) => cmd::events::run(&args, place),
        Command::Eventd(args) => cmd::maintenance::eventd(&args, place),
        Command::Maintenance(args) => cmd::maintenance::run(&args, place),
        Command::Explain(args) => cmd::explain::run(&args, place),
        Command::Usage(args) => cmd::usage::run(&args, place),
        Command::Journal(args) => cmd::journal::run(&args, place),
        Command::Userprio(args) => cmd::userprio::run(&args, place),
        Command::Token(args) => cmd::token::run(args, place),
        Command::Reconfig(args) => cmd::reconfig::run(&args, place),
        Command::Classad(_)
        | Command::Config(_)
        | Command::Joblog(_)
        | Command::Seg(_)
        | Command::Monitor(_)
        | Command::ForkStarter(_)
        | Command::Links(_)
        | Command::Sim(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Starter
        | Command::Keeper
        | Command::Clear(_)
        | Command::Scribe
        | Command::Porter => Ok(ExitCode::SUCCESS),
    }
}
