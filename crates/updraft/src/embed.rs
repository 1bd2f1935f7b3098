//! Manager and agent in one process: `updraft up` and `updraft run`.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use agent::sensors::scripted::Scripted;
use agent::{Connector, Link, OnStop};
use api::agent::ToManager;
use manager::{Handle, Manager};
use tokio::sync::{Notify, mpsc, watch};

use crate::cmd::{Failure, small_runtime, usage};
use crate::configuration;

/// Reads a timeline of sensor values.
pub(crate) fn script(path: Option<&Path>) -> Result<Option<Scripted>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let text =
        std::fs::read_to_string(path).map_err(|e| usage(format!("--sensors {}: {e}", path.display())))?;
    let script = Scripted::parse(&text).map_err(|e| usage(format!("--sensors {}: {e}", path.display())))?;
    Ok(Some(script))
}

/// What the two need to know.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) manager: manager::Options,
    /// How many cores to use; all when `None`; no agent at all with 0.
    pub(crate) cpus: Option<u32>,
    /// Files with the machine's policy; none for one that always runs jobs.
    pub(crate) config: Vec<String>,
    /// Sensor values instead of the machine's own.
    pub(crate) script: Option<Scripted>,
}

/// How long a stop waits for job logs that are behind; the next start goes on with the rest.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// How long a manager that was replaced may take to leave, agent and all: it looks every 2 s, and then stops in order.
const LEAVING: Duration = Duration::from_secs(20);

/// Refuses to begin an empty pool beside the machine of one whose books are gone: its jobs may run, and its numbers are used.
fn check_manager(state: &Path) -> Result<(), Failure> {
    let agent = state.join("agent");
    if manager::has_journal(state) || !agent::was_welcomed(&agent) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} is the machine of a pool, and {} is gone or empty. Is its file system mounted? Put it back from a backup; or, to begin anew \
         with an empty queue and numbers from 1, choose another --state-dir",
        agent.display(),
        state.join("manager").display()
    )))
}

/// A running pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) manager: Manager,
    agent: Option<JoinHandle<Result<(), Failure>>>,
    stop_agent: watch::Sender<Option<OnStop>>,
    reload_agent: Arc<Notify>,
}

/// The manager next door.
struct Local {
    handle: Handle,
    machine: String,
}

impl Connector for Local {
    fn connect(&mut self) -> Pin<Box<dyn Future<Output = Result<Link, String>> + Send + '_>> {
        Box::pin(async move {
            let (up, mut from_agent) = mpsc::channel::<ToManager>(agent::LINK_WORDS);
            let (forward, down) = mpsc::channel(agent::LINK_WORDS);
            let (session, mut from_manager) = self.handle.open_local_session(&self.machine).await?;
            tokio::spawn(async move {
                while let Some(message) = from_manager.recv().await {
                    if forward.send(message).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                loop {
                    let message = tokio::select! {
                        message = from_agent.recv() => message,
                        () = session.ended() => None,
                    };
                    let Some(message) = message else { break };
                    if session.hear(message).await.is_err() {
                        return;
                    }
                }
                session.close().await;
            });
            Ok(Link { up, down })
        })
    }
}

impl Pool {
    pub(crate) async fn start(options: Options) -> Result<Self, Failure> {
        let state = options.manager.state.clone();
        check_manager(&state)?;
        let manager = Manager::start(options.manager).await?;
        let (stop_agent, stopped) = watch::channel(None);
        let reload_agent = Arc::<Notify>::default();
        let agent = if options.cpus == Some(0) {
            None
        } else {
            let mut wanted = agent_options(&state.join("agent"), options.cpus, None, options.config)?;
            wanted.script = options.script;
            wanted.lock_patience = LEAVING;
            wanted.reload = reload_agent.clone();
            let options = wanted;
            let connector = Box::new(Local { handle: manager.handle(), machine: options.machine.clone() });
            // A thread of its own: what starters say goes to the manager without a change of threads.
            let work = move || {
                small_runtime()?.block_on(agent::run(options, connector, stopped)).map_err(Failure::from)
            };
            Some(std::thread::Builder::new().name("agent".into()).spawn(work)?)
        };
        Ok(Self { manager, agent, stop_agent, reload_agent })
    }

    /// Has both halves read their configuration again; each keeps the old one if the new one cannot be used, and says so.
    pub(crate) async fn reload(&self) {
        self.reload_agent.notify_one();
        // What is wrong is in the log.
        if let Ok(told) = self.manager.reload().await {
            for line in told {
                tracing::warn!("{line}");
            }
        }
    }

    /// True when either half has stopped by itself.
    pub(crate) fn has_failed(&self) -> bool {
        self.manager.has_failed() || self.agent.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops the agent, then the manager, which waits so long for job logs that are behind.
    pub(crate) async fn stop(self, on_stop: OnStop, patience: Duration) -> Result<(), Failure> {
        let _ = self.stop_agent.send(Some(on_stop));
        let agent = match self.agent {
            Some(agent) => {
                let ended = tokio::task::spawn_blocking(move || agent.join()).await.ok();
                ended.and_then(Result::ok).ok_or_else(|| Failure::new("the agent stopped badly"))?
            }
            None => Ok(()),
        };
        self.manager.stop(patience).await?;
        agent?;
        Ok(())
    }
}

/// How the agent of this machine runs.
pub(crate) fn agent_options(
    state: &Path,
    cpus: Option<u32>,
    machine: Option<String>,
    config: Vec<String>,
) -> Result<agent::Options, Failure> {
    Ok(agent::Options {
        state: state.to_owned(),
        machine: machine.unwrap_or_else(agent::host_name),
        total: agent::resources(cpus, Path::new("/")),
        program: program()?,
        filesystem_domain: agent::host_name(),
        config: configuration::for_agent(config),
        lock_patience: Duration::ZERO,
        script: None,
        reload: Arc::default(),
    })
}

/// This program, also when its file was replaced meanwhile.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program's own file: {e}")))
}
