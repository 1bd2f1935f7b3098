//! Operators' changes (a window more, one less), and the windows that were begun, in two files of the state directory: each
//! replaced as a whole, so that a reader has the old or the new. The first is also written by commands, the second by whoever carries
//! windows out alone, so that neither overwrites the other's.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use maintenance::{Begun, Override};

use crate::Error;

/// Who carries windows out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The manager itself (`updraft up`).
    Manager,
    /// A process of its own (`updraft eventd`).
    Daemon,
}

/// The files.
#[derive(Debug, Clone)]
pub struct Changes {
    path: PathBuf,
    begun: PathBuf,
}

impl Changes {
    /// The files of a state directory. What was begun is each carrier's own: a manager without windows must not take those of an event
    /// daemon with the same directory for forgotten ones.
    pub fn new(state: &Path, carrier: Carrier) -> Self {
        let begun = match carrier {
            Carrier::Manager => "maintenance-begun.json",
            Carrier::Daemon => "maintenance-begun-eventd.json",
        };
        Self { path: state.join("maintenance.json"), begun: state.join(begun) }
    }

    /// What operators changed; nothing while there is no file.
    pub fn read(&self) -> Result<Vec<Override>, Error> {
        read(&self.path, "remove it to be without operators' changes")
    }

    /// Windows that were begun; nothing while there is no file.
    pub fn read_begun(&self) -> Result<Vec<Begun>, Error> {
        read(&self.begun, "remove it; machines stay configured for windows that were removed meanwhile")
    }

    /// Replaces what operators changed; it is on disk when this returns.
    pub fn write(&self, overrides: &[Override]) -> Result<(), Error> {
        write(&self.path, overrides)
    }

    /// Replaces the windows that were begun; they are on disk when this returns.
    pub fn write_begun(&self, begun: &[Begun]) -> Result<(), Error> {
        write(&self.begun, begun)
    }

    /// When operators' changes were last replaced.
    pub fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|m| m.modified()).ok()
    }
}

fn failed(what: &'static str, path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Changes { what, path: path.display().to_string(), why: why.to_string() }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path, way_out: &str) -> Result<Vec<T>, Error> {
    match std::fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(failed("read", path, e)),
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|e| failed("read", path, format!("it is damaged ({e}); {way_out}"))),
    }
}

fn write<T: serde::Serialize>(path: &Path, entries: &[T]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let bytes = serde_json::to_vec_pretty(entries).map_err(|e| failed("write", path, e))?;
    let replace = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    replace().map_err(|e| failed("write", path, e))
}
