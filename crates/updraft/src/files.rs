//! The file system, environment and clock, as submit descriptions see them.

use std::fs;
use std::io::{self, Read as _};

use config::{Host, HostError};
use jiff::tz::TimeZone;
use submit::{Context, Entry, Files};

/// Largest file that a submit description may name as a list of items.
const FILE_BYTES: u64 = 1 << 30;

/// The real thing.
#[derive(Debug)]
pub(crate) struct System;

fn host_error(error: io::Error) -> HostError {
    match error.kind() {
        io::ErrorKind::NotFound => HostError::NotFound,
        _ => HostError::Other(error.to_string()),
    }
}

/// A named pipe, a socket or a device is read when somebody else wants it to be: a pool that reads its settings again would wait for
/// ever. What the shell hands over as an open descriptor is meant for us.
fn waits_for_others(path: &str) -> bool {
    let is_handed_over =
        ["/dev/fd/", "/dev/stdin", "/proc/self/fd/", "/dev/null"].iter().any(|start| path.starts_with(start));
    let is_other = |meta: fs::Metadata| !meta.is_file() && !meta.is_dir();
    !is_handed_over && fs::metadata(path).is_ok_and(is_other)
}

/// Our own settings stay out of jobs: a token in the submitter's environment must not travel with them.
fn is_ours(name: &str) -> bool {
    name.starts_with("UPDRAFT_")
}

impl Host for System {
    fn read(&self, path: &str) -> Result<String, HostError> {
        if waits_for_others(path) {
            return Err(HostError::Other(
                "it is a pipe or a device, which could keep us waiting; name a file".into(),
            ));
        }
        let file = fs::File::open(path).map_err(host_error)?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(host_error)?;
        if read as u64 > FILE_BYTES {
            return Err(HostError::Other(format!("it is larger than {} MiB", FILE_BYTES >> 20)));
        }
        Ok(text)
    }

    fn run(&self, command: &str) -> Result<String, HostError> {
        let out =
            std::process::Command::new("/bin/sh").arg("-c").arg(command).output().map_err(host_error)?;
        if !out.status.success() {
            return Err(HostError::Other(format!("it ended with {}", out.status)));
        }
        String::from_utf8(out.stdout).map_err(|_| HostError::Other("its output is not UTF-8".into()))
    }

    fn env(&self, name: &str) -> Option<String> {
        if is_ours(name) { None } else { std::env::var(name).ok() }
    }

    fn env_names(&self) -> Vec<String> {
        std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| !is_ours(name))
            .collect()
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        Ok(self.entries(directory)?.into_iter().map(|e| e.name).collect())
    }
}

impl Files for System {
    fn entries(&self, directory: &str) -> Result<Vec<Entry>, HostError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory).map_err(host_error)? {
            let entry = entry.map_err(host_error)?;
            // A name that is not UTF-8 cannot be written in a submit description. It is not left out in silence either: where
            // a pattern matches what stands in for it, the submit is refused.
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_directory = fs::metadata(entry.path()).is_ok_and(|m| m.is_dir());
            entries.push(Entry { name, is_directory });
        }
        Ok(entries)
    }

    fn size(&self, path: &str) -> Result<u64, HostError> {
        fs::metadata(path).map(|m| m.len()).map_err(host_error)
    }

    fn is_directory(&self, path: &str) -> bool {
        fs::metadata(path).is_ok_and(|m| m.is_dir())
    }
}

/// The machine's time zone. Read from the one file it is in, where that is how it is set: asking for it by its name walks
/// through the whole directory of zones, which is a good part of the time that a short command takes.
pub(crate) fn zone() -> TimeZone {
    let from_file = || TimeZone::tzif("local", &fs::read("/etc/localtime").ok()?).ok();
    std::env::var_os("TZ").is_none().then(from_file).flatten().unwrap_or_else(TimeZone::system)
}

/// Variables that no job description can hold.
fn unreadable_variables() -> Vec<String> {
    let unreadable =
        std::env::vars_os().filter(|(name, value)| name.to_str().is_none() || value.to_str().is_none());
    unreadable.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
}

/// Who submits, from where, when.
pub(crate) fn context() -> io::Result<Context> {
    let now = jiff::Timestamp::now().to_zoned(zone());
    let host = agent::host_name();
    let directory =
        std::env::current_dir().map_err(|e| io::Error::other(format!("the working directory: {e}")))?;
    let directory = directory.into_os_string().into_string().map_err(|name| {
        let shown = name.to_string_lossy().into_owned();
        io::Error::other(format!(
            "the name of the working directory {shown} is not UTF-8; rename it, or work elsewhere"
        ))
    })?;
    for name in unreadable_variables() {
        errln!("updraft: the environment variable {name} is not UTF-8, so jobs do not get it");
    }
    Ok(Context {
        owner: starter::user::name_of(starter::user::own_uid()),
        cluster: None,
        arch: if cfg!(target_arch = "aarch64") { "AARCH64" } else { "X86_64" }.to_owned(),
        opsys: "LINUX".to_owned(),
        uid_domain: host.clone(),
        filesystem_domain: host,
        directory,
        now: now.timestamp().as_second(),
        utc_offset: now.offset().seconds(),
        version: format!("$UpdraftVersion: {} $", env!("CARGO_PKG_VERSION")),
        platform: format!("$UpdraftPlatform: {}-Linux $", std::env::consts::ARCH),
        seed: u64::from_le_bytes(trust::random()),
    })
}
