//! `updraft up`: manager and agent in the foreground.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::agent::OnStop;
use config::Diagnostics;
use manager::{Reload, Reloaded, Sharing};
use tokio::sync::watch;

use crate::cmd::{Failure, Hangup, Hangups, full_runtime, stop_signal, usage};
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
    let read = Read::of_files(&settings, &files)
        .map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    for told in &read.told {
        errln!("{told}");
    }
    let (windows, carried_out) = watch::channel(read.windows);
    let reload = reloading(settings, files.clone(), windows);
    let options = Options {
        manager: manager::Options {
            state: state.clone(),
            sharing,
            listen: args.listen,
            health: args.health,
            settings: read.settings,
            store: read.store,
            beat_ms: args.beat,
            reload: Some(reload),
        },
        cpus: args.cpus,
        config: files,
        script: script(args.sensors.as_deref())?,
    };
    full_runtime()?.block_on(async {
        let mut hangups = Hangups::listen()?;
        let pool = Pool::start(options).await?;
        if let Err(failure) = numbers.map(drop) {
            pool.stop(OnStop::Leave, PATIENCE).await?;
            return Err(failure);
        }
        let listen =
            pool.manager.listen_address().map_or_else(String::new, |a| format!(", listening on {a}"));
        let health = pool.manager.health_address().map_or_else(String::new, |a| format!(", health on {a}"));
        outln!("updraft: pool {} is up in {}{listen}{health}", pool.manager.pool(), state.display());
        let own = pool.manager.handle();
        tokio::spawn(carry_out(own, eventd::Changes::new(&state, eventd::Carrier::Manager), carried_out));
        let stop_signal = stop_signal();
        tokio::pin!(stop_signal);
        let why = loop {
            tokio::select! {
                signal = &mut stop_signal => break signal,
                () = failed(&pool) => break "failure",
                hangup = hangups.heard() => match hangup {
                    Hangup::Reload => pool.reload().await,
                    Hangup::Stop => break "SIGHUP",
                },
            }
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

/// What the configuration says to the manager.
struct Read {
    settings: scheduler::Settings,
    store: store::Settings,
    windows: maintenance::Settings,
    told: Vec<String>,
}

impl Read {
    fn of_files(base: &scheduler::Settings, files: &[String]) -> Result<Self, Diagnostics> {
        let config = configuration::load("MANAGER", None, files)?;
        let (settings, mut told) = base.clone().configured(&config)?;
        let store = store::Settings::configured(&config)?;
        let (windows, findings) = configuration::windows(files)?;
        told.extend(findings);
        Ok(Self { settings, store, windows, told })
    }
}

/// Reads the files again, on top of what the command line said.
fn reloading(
    base: scheduler::Settings,
    files: Vec<String>,
    windows: watch::Sender<maintenance::Settings>,
) -> Reload {
    Reload(Arc::new(move || {
        let read = Read::of_files(&base, &files).map_err(|e| e.to_string())?;
        let (windows, other) = (windows.clone(), read.windows);
        let then = Box::new(move || drop(windows.send(other)));
        Ok(Reloaded { settings: read.settings, store: read.store, told: read.told, then })
    }))
}

/// Carries maintenance windows out, and others from when they were read again.
async fn carry_out(
    pool: manager::Handle,
    changes: eventd::Changes,
    mut windows: watch::Receiver<maintenance::Settings>,
) {
    let mut had_events = false;
    loop {
        let settings = windows.borrow_and_update().clone();
        // What was begun before is taken back also when no window is left. A file that cannot be read is for the driver to say.
        had_events |=
            !settings.events.is_empty() || changes.read_begun().map_or(true, |begun| !begun.is_empty());
        let own = manager::OwnPool::new(pool.clone());
        tokio::select! {
            driven = eventd::drive(own, settings, changes.clone(), "the manager".to_owned()), if had_events => {
                if let Err(why) = driven {
                    tracing::error!(%why, "maintenance windows are not carried out until the configuration is read again");
                }
                if windows.changed().await.is_err() {
                    return;
                }
            }
            changed = windows.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

async fn failed(pool: &Pool) {
    while !pool.has_failed() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
