//! What a submit description may ask of the outside world, and whom it is submitted for.

use config::{Host, HostError};

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name without the directory.
    pub name: String,
    /// True for a directory.
    pub is_directory: bool,
}

/// Reads files for a submit description. Every path that arrives here is absolute.
pub trait Files: Host {
    /// The entries of a directory, in any order.
    fn entries(&self, directory: &str) -> Result<Vec<Entry>, HostError>;
    /// The size of a file in bytes.
    fn size(&self, path: &str) -> Result<u64, HostError>;
    /// True when a path is a directory.
    fn is_directory(&self, path: &str) -> bool;
}

/// Who submits, from where, when: everything that is not in the text.
#[derive(Debug, Clone)]
pub struct Context {
    /// User name; the manager stamps the authenticated one over it.
    pub owner: String,
    /// The cluster id if it is known already; it seldom is, and then `$(Cluster)` is filled in by the manager.
    pub cluster: Option<u32>,
    /// Architecture of the submitting machine, for instance `X86_64`.
    pub arch: String,
    /// Operating system of the submitting machine, for instance `LINUX`.
    pub opsys: String,
    /// Domain of user names.
    pub uid_domain: String,
    /// Domain within which machines see the same files.
    pub filesystem_domain: String,
    /// The directory that relative names belong to; absolute.
    pub directory: String,
    /// Now, in seconds since 1970.
    pub now: i64,
    /// Offset of local time from UTC in seconds, for `$(Year)`, `$(Month)` and `$(Day)`.
    pub utc_offset: i32,
    /// Text of `CondorVersion`.
    pub version: String,
    /// Text of `CondorPlatform`.
    pub platform: String,
    /// What `$RANDOM_CHOICE` and `$RANDOM_INTEGER` draw from.
    pub seed: u64,
}

impl Context {
    /// A path made absolute; `.` and doubled slashes are left alone, as they do no harm.
    pub(crate) fn absolute(&self, path: &str) -> String {
        join(&self.directory, path)
    }
}

/// A path beneath a directory, unless it is absolute itself.
pub(crate) fn join(directory: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{}", directory.trim_end_matches('/'), path)
    }
}

/// [`Files`] with relative paths made absolute, for the shared reader of the language.
pub(crate) struct Rooted<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) directory: &'a str,
}

impl Host for Rooted<'_> {
    fn read(&self, path: &str) -> Result<String, HostError> {
        self.files.read(&join(self.directory, path))
    }

    fn run(&self, command: &str) -> Result<String, HostError> {
        self.files.run(command)
    }

    fn env(&self, name: &str) -> Option<String> {
        self.files.env(name)
    }

    fn env_names(&self) -> Vec<String> {
        self.files.env_names()
    }
}
