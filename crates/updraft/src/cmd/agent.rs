//! `updraft agent`: lend this machine to a pool.

use std::path::PathBuf;
use std::process::ExitCode;

use ::agent::{Membership, OnStop, Remote};
use model::MachineName;
use tokio::sync::watch;
use trust::token::Token;

use crate::cmd::{Failure, Hangup, Hangups, small_runtime, stop_signal, usage};
use crate::configuration;
use crate::embed::{agent_options, script};
use crate::place::Place;

/// Lend this machine to a pool
///
/// The first start needs --join with a token from `updraft token create --role agent` on the manager's machine; later
/// starts find the certificate that it bought in the state directory. As root, jobs run as their owners, and as
/// root only in root's own private pool; as anybody else, only that user's jobs run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Join the pool: @FILE or @- to read TOKEN@HOST:PORT from a file or the standard input; or TOKEN@HOST:PORT itself, which
    /// everybody on this machine can then see
    #[arg(long, value_name = "@FILE", env = "UPDRAFT_JOIN", hide_env_values = true)]
    join: Option<String>,
    /// This machine's name in the pool [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Cores that jobs may use [default: all]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// The machine's policy and other settings; may be repeated. Default: $UPDRAFT_CONFIG, /etc/updraft/updraft.conf
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Sensor values from this timeline instead of the machine's own (docs/sensors.md)
    #[arg(long, value_name = "FILE")]
    sensors: Option<PathBuf>,
    /// Machines with the same word see the same files [default: the host name]
    #[arg(long, value_name = "WORD")]
    filesystem_domain: Option<String>,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let state = place.state()?.join("agent");
    let mut options = agent_options(&state, args.cpus, args.name, configuration::files(&args.config))?;
    options.script = script(args.sensors.as_deref())?;
    if let Some(domain) = args.filesystem_domain {
        options.filesystem_domain = domain;
    }
    if args.cpus == Some(0) {
        return Err(usage("an agent without cores is of no use: --cpus 1 or more"));
    }
    options.machine =
        options.machine.parse::<MachineName>().map_err(|e| usage(format!("--name: {e}")))?.to_string();
    small_runtime()?.block_on(async {
        let membership = match (&args.join, Membership::load(&state)) {
            (_, Some(membership)) => membership,
            (Some(join), None) => {
                let (token, address) = parse_join(join)?;
                ::agent::join(&state, &options.machine, &token, &address).await?
            }
            (None, None) => {
                return Err(usage("this machine belongs to no pool yet; get a token with `updraft token create --role agent` on the manager's machine and use --join TOKEN@HOST:PORT"));
            }
        };
        options.machine.clone_from(&membership.machine);
        outln!("updraft: agent {} of the pool at {}", membership.machine, membership.address);
        let (stop, stopped) = watch::channel(None);
        let reload = options.reload.clone();
        let mut hangups = Hangups::listen()?;
        let work = ::agent::run(options, Box::new(Remote(membership)), stopped);
        let stop_signal = stop_signal();
        tokio::pin!(work, stop_signal);
        let signal = loop {
            tokio::select! {
                result = &mut work => {
                    result?;
                    return Ok(ExitCode::SUCCESS);
                }
                signal = &mut stop_signal => break signal,
                hangup = hangups.heard() => match hangup {
                    Hangup::Reload => reload.notify_one(),
                    Hangup::Stop => break "SIGHUP",
                },
            }
        };
        tracing::info!(signal, "stopping; jobs run on until their leases end, or until the next agent");
        let _ = stop.send(Some(OnStop::Leave));
        work.await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn parse_join(text: &str) -> Result<(Token, String), Failure> {
    let text = match text.strip_prefix('@') {
        Some("-") => {
            std::io::read_to_string(std::io::stdin()).map_err(|e| usage(format!("--join @-: {e}")))?
        }
        Some(file) => std::fs::read_to_string(file).map_err(|e| usage(format!("--join @{file}: {e}")))?,
        None => text.to_owned(),
    };
    let (token, address) =
        text.trim().split_once('@').ok_or_else(|| usage("--join takes TOKEN@HOST:PORT, or @FILE"))?;
    let token = token.parse().map_err(|e| usage(format!("--join: {e}")))?;
    if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(usage(format!("--join: {address:?} is not HOST:PORT")));
    }
    Ok((token, address.to_owned()))
}
