//! Where and how daemons log.

use clap::{Arg, ArgMatches, Command};
use tracing_subscriber::EnvFilter;

use crate::cmd::{Failure, usage};

/// Logging options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to log on standard error: a level, or filters such as manager=debug,info [default: warn; info for daemons]
    // Not global: behind `wait`, --log is a job event log. `add_filter` adds it behind the other commands.
    #[arg(long, env = "UPDRAFT_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log one JSON object a line
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

/// The filter behind a command; an id that no command has for something else.
const FILTER: &str = "log-filter";

/// Lets `--log` stand behind a command, too, where it means nothing else there.
pub(crate) fn add_filter(command: Command) -> Command {
    command.mut_subcommands(|command| {
        if command.get_arguments().any(|argument| argument.get_long() == Some("log")) {
            return command;
        }
        let filter = Arg::new(FILTER).long("log").value_name("FILTER");
        let filter =
            filter.help("What to log on standard error: a level, or filters such as manager=debug,info");
        add_filter(command.arg(filter))
    })
}

/// The filter that stands behind a command, however deep.
pub(crate) fn filter_behind(matches: &ArgMatches) -> Option<String> {
    let (_, matches) = matches.subcommand()?;
    filter_behind(matches).or_else(|| matches.try_get_one::<String>(FILTER).ok().flatten().cloned())
}

impl Options {
    pub(crate) fn init(&self) -> Result<(), Failure> {
        let daemon = std::env::args_os().any(|a| a == "up" || a == "agent" || a == "eventd");
        let default = if daemon { "info" } else { "warn" };
        let filter = EnvFilter::try_new(self.log.as_deref().unwrap_or(default))
            .map_err(|e| usage(format!("--log: {e}; try --log debug or --log manager=debug,info")))?;
        // A log that nobody reads any more must not end a daemon or a sweep, and its own complaint would.
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .log_internal_errors(false);
        if self.log_json {
            builder.json().init()
        } else {
            builder.init()
        }
        Ok(())
    }
}
