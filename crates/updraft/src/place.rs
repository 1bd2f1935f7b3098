//! Which pool a command talks to.

use std::path::{Path, PathBuf};

use client::{Client, Endpoint};
use trust::token::Token;

use crate::cmd::{Failure, usage};

/// The socket of the pool that serves everybody on a machine.
const MACHINES_SOCKET: &str = "/var/lib/updraft/manager.sock";

/// Where state is, and where the manager is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// Where a pool keeps its files [default: /var/lib/updraft for root, else ~/.local/state/updraft]
    #[arg(long, global = true, env = "UPDRAFT_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// A manager elsewhere; a token for it is read from the environment variable UPDRAFT_TOKEN
    #[arg(long, global = true, env = "UPDRAFT_POOL", value_name = "HOST:PORT")]
    pub(crate) pool: Option<String>,
}

impl Place {
    /// As the environment alone says, for commands without options of ours.
    pub(crate) fn from_environment() -> Self {
        let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let pool = value("UPDRAFT_POOL").map(|pool| pool.to_string_lossy().into_owned());
        Self { state_dir: value("UPDRAFT_STATE_DIR").map(PathBuf::from), pool }
    }

    /// The state directory.
    pub(crate) fn state(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = &self.state_dir {
            return std::path::absolute(dir)
                .map_err(|e| usage(format!("--state-dir {}: {e}", dir.display())));
        }
        Self::own_state()
    }

    /// Where a user's things are when nothing else is said.
    pub(crate) fn own_state() -> Result<PathBuf, Failure> {
        if starter::user::own_uid() == 0 {
            return Ok(PathBuf::from("/var/lib/updraft"));
        }
        if let Some(home) = std::env::var_os("XDG_STATE_HOME").filter(|h| !h.is_empty()) {
            return Ok(PathBuf::from(home).join("updraft"));
        }
        match std::env::var_os("HOME").filter(|h| !h.is_empty()) {
            Some(home) => Ok(PathBuf::from(home).join(".local/state/updraft")),
            None => Err(usage("there is no HOME to keep state in; say where with --state-dir")),
        }
    }

    /// Where the manager is, and the token for it.
    pub(crate) fn endpoint(&self) -> Result<(Endpoint, Option<Token>), Failure> {
        let Some(address) = &self.pool else {
            return Ok((Endpoint::Unix(self.socket()?), None));
        };
        let text = std::env::var("UPDRAFT_TOKEN").map_err(|_| {
            usage("a pool elsewhere needs a token: put it into the environment variable UPDRAFT_TOKEN")
        })?;
        let token: Token = text.parse().map_err(|e| usage(format!("UPDRAFT_TOKEN: {e}")))?;
        let ca_fingerprint = token.ca_fingerprint;
        Ok((Endpoint::Tls { address: address.clone(), ca_fingerprint, credentials: None }, Some(token)))
    }

    /// The pool's socket: one's own pool if it is there, else the machine's.
    fn socket(&self) -> Result<PathBuf, Failure> {
        let own = self.state()?.join("manager.sock");
        let shared = PathBuf::from(MACHINES_SOCKET);
        Ok(if self.state_dir.is_none() && !own.exists() && shared.exists() { shared } else { own })
    }

    /// The directory of the pool that commands without `--pool` talk to.
    pub(crate) fn pool_dir(&self) -> Result<PathBuf, Failure> {
        let socket = self.socket()?;
        Ok(socket.parent().map(PathBuf::from).unwrap_or_default())
    }

    /// Is it the machine's pool that is meant, because there is no other?
    pub(crate) fn is_at_machines_pool(&self) -> Result<bool, Failure> {
        let own = self.state()?.join("manager.sock");
        Ok(self.pool.is_none()
            && own != Path::new(MACHINES_SOCKET)
            && self.socket()? == Path::new(MACHINES_SOCKET))
    }

    /// Connects to the running pool.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let (endpoint, token) = self.endpoint()?;
        Client::connect(&endpoint, token.as_ref()).await.map_err(|error| {
            let hint = match (&endpoint, error.is_unreachable()) {
                (Endpoint::Unix(_), true) => "; is a pool running? Start one with: updraft up",
                _ => "",
            };
            Failure::new(format!("{error}{hint}"))
        })
    }
}
