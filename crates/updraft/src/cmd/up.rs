//! `updraft up`: manager and agent in the foreground.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::agent::OnStop;
use manager::Sharing;

use crate::cmd::{Failure, full_runtime, stop_signal, usage};
use crate::configuration;
use crate::embed::{Options, PATIENCE, Pool, script};
use crate::numbers::Numbers;
use crate::place::Place;

/// Start a pool on this machine: manager and agent, in the foreground
///
/// Without --shared the pool is private: only you can use it, and jobs run as you. With --shared (needs root to be of
/// use) everybody on this machine can submit, jobs run as their owners, and nobody's jobs run as root.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Let everybody on this machine, and whoever has a token, use the pool
    #[arg(long)]
    shared: bool,
    /// Also listen here (TLS) for agents and remote users, for instance 0.0.0.0:9618
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Serve /healthz, /readyz and /metrics here over plain HTTP, for instance 127.0.0.1:9619
    #[arg(long, value_name = "ADDR:PORT")]
    health: Option<SocketAddr>,
    /// Let --health listen on more than this machine, where whoever can reach it reads it
    #[arg(long, requires = "health")]
    insecure: bool,
    /// Cores of this machine that jobs may use; 0 for a manager without an agent [default: all]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Configuration of pool and machine; may be repeated. Default: $UPDRAFT_CONFIG, /etc/updraft/updraft.conf
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Sensor values from this timeline instead of the machine's own (docs/sensors.md)
    #[arg(long, value_name = "FILE")]
    sensors: Option<PathBuf>,
    /// A machine out of contact for so many seconds has its jobs run elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    lease: u64,
    /// Milliseconds between two signs of life of an agent
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    beat: u64,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    if args.lease * 1000 < args.beat * 3 {
        return Err(usage(
            "--lease must be at least three times --beat, or one late sign of life costs jobs",
        ));
    }
    if let Some(address) = args.health.filter(|a| !a.ip().is_loopback() && !args.insecure) {
        return Err(usage(format!(
            "--health {address} shows health and metrics to whoever can reach it, without asking who they are: use 127.0.0.1, or say --insecure"
        )));
    }
    let state = place.state()?;
    let sharing = if args.shared { Sharing::Shared } else { Sharing::Private };
    let files = configuration::files(&args.config);
    // Held until the manager has its own lock: a private run that begins meanwhile takes no number of ours.
    // What is wrong with the whole directory is for the manager to say.
    let numbers = Numbers::lock(&state);
    let settings = scheduler::Settings {
        lease_ms: args.lease * 1000,
        first_cluster: numbers.as_ref().map_or(1, Numbers::next),
        ..scheduler::Settings::in_zone(jiff::tz::TimeZone::system())
    };
    let settings = configuration::load("MANAGER", None, &files).and_then(|c| settings.configured(&c));
    let (settings, warnings) =
        settings.map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let (windows, findings) = configuration::windows(&files)
        .map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    for finding in findings {
        errln!("{finding}");
    }
    let options = Options {
        manager: manager::Options {
            state: state.clone(),
            sharing,
            listen: args.listen,
            health: args.health,
            settings,
            beat_ms: args.beat,
        },
        cpus: args.cpus,
        config: files,
        script: script(args.sensors.as_deref())?,
    };
    full_runtime()?.block_on(async {
        let pool = Pool::start(options).await?;
        if let Err(failure) = numbers.map(drop) {
            pool.stop(OnStop::Leave, PATIENCE).await?;
            return Err(failure);
        }
        let listen =
            pool.manager.listen_address().map_or_else(String::new, |a| format!(", listening on {a}"));
        let health = pool.manager.health_address().map_or_else(String::new, |a| format!(", health on {a}"));
        outln!("updraft: pool {} is up in {}{listen}{health}", pool.manager.pool(), state.display());
        if !windows.events.is_empty() {
            let own = manager::OwnPool::new(pool.manager.handle());
            let changes = eventd::Changes::new(&state);
            tokio::spawn(async move {
                if let Err(why) = eventd::drive(own, windows, changes, "the manager".to_owned()).await {
                    tracing::error!(%why, "maintenance windows are not carried out any more");
                }
            });
        }
        let why = tokio::select! {
            signal = stop_signal() => signal,
            () = failed(&pool) => "failure",
        };
        tracing::info!(why, "stopping");
        // Running jobs stay: the next start takes them over.
        pool.stop(OnStop::Leave, PATIENCE).await?;
        if let Ok(Some(next)) = manager::next_cluster(&state) {
            Numbers::lock(&state)?.note(next)?;
        }
        if why == "failure" {
            Err(Failure::new("the pool had to stop; see the log"))
        } else {
            Ok(ExitCode::SUCCESS)
        }
    })
}

async fn failed(pool: &Pool) {
    while !pool.has_failed() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
