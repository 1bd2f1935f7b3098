//! Operators' changes (a window more, one less), in a file of the state directory: replaced as a whole, so that a reader has the
//! old or the new.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use maintenance::Override;

use crate::Error;

/// The file.
#[derive(Debug, Clone)]
pub struct Changes {
    path: PathBuf,
}

impl Changes {
    /// The file of a state directory.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join("maintenance.json") }
    }

    fn failed(&self, what: &'static str, why: impl std::fmt::Display) -> Error {
        Error::Changes { what, path: self.path.display().to_string(), why: why.to_string() }
    }

    /// What operators changed; nothing while there is no file.
    pub fn read(&self) -> Result<Vec<Override>, Error> {
        match std::fs::read(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(self.failed("read", e)),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                self.failed(
                    "read",
                    format!("it is damaged ({e}); remove it to be without operators' changes"),
                )
            }),
        }
    }

    /// Replaces the file; it is on disk when this returns.
    pub fn write(&self, overrides: &[Override]) -> Result<(), Error> {
        let temporary = self.path.with_extension("new");
        let bytes = serde_json::to_vec_pretty(overrides).map_err(|e| self.failed("write", e))?;
        let replace = || {
            if let Some(directory) = self.path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        replace().map_err(|e| self.failed("write", e))
    }

    /// When it was last replaced.
    pub fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|m| m.modified()).ok()
    }
}
