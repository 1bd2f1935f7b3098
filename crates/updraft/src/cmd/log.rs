//! Where and how daemons log.

use tracing_subscriber::EnvFilter;

use crate::cmd::{Failure, usage};

/// Logging options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to log on standard error: a level, or filters such as manager=debug,info [default: warn; info for daemons]
    // Not global: behind a command, --log is a job event log.
    #[arg(long, env = "UPDRAFT_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log one JSON object a line
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

impl Options {
    pub(crate) fn init(&self) -> Result<(), Failure> {
        let daemon = std::env::args_os().any(|a| a == "up" || a == "agent");
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
