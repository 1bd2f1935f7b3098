//! Where this machine's configuration is, and what the machine tells it of itself.

use std::path::PathBuf;

use config::{Config, Diagnostics, Loader};

use crate::files::System;

/// Read when no file is named and no variable names one.
const USUAL: [&str; 2] = ["/etc/updraft/updraft.conf", "/etc/condor/condor_config"];

/// What this machine can tell about itself.
pub(crate) fn detected() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let host = agent::host_name();
    let short = host.split('.').next().unwrap_or(&host).to_owned();
    let user = starter::user::name_of(starter::user::own_uid());
    let home = std::env::var("HOME").unwrap_or_default();
    format!(
        "DETECTED_CPUS = {cpus}\nFULL_HOSTNAME = {host}\nHOSTNAME = {short}\nUSERNAME = {user}\nTILDE = {home}\n\
         PID = {}\n",
        std::process::id()
    )
}

/// The files that were named, or those that are usually there.
pub(crate) fn files(named: &[PathBuf]) -> Vec<String> {
    if !named.is_empty() {
        let whole = |f: &PathBuf| std::path::absolute(f).unwrap_or_else(|_| f.clone());
        return named.iter().map(|f| whole(f).to_string_lossy().into_owned()).collect();
    }
    for variable in ["UPDRAFT_CONFIG", "CONDOR_CONFIG"] {
        if let Ok(path) = std::env::var(variable) {
            return vec![path];
        }
    }
    let usual = USUAL.iter().find(|path| std::path::Path::new(path).exists());
    usual.map(|path| vec![(*path).to_owned()]).unwrap_or_default()
}

/// Loads a configuration for one part of the system.
pub(crate) fn load(
    subsystem: &str,
    local_name: Option<&str>,
    files: &[String],
) -> Result<Config<'static>, Diagnostics> {
    let mut loader = Loader::new(&System, subsystem).text("detected", &detected());
    if let Some(name) = local_name {
        loader = loader.local_name(name);
    }
    for file in files {
        loader = loader.file(file);
    }
    loader = loader.directory(&directory());
    let now = jiff::Timestamp::now().as_second();
    loader.seed(u64::from(std::process::id())).now(now).load()
}

fn directory() -> String {
    std::env::current_dir().map_or_else(|_| "/".to_owned(), |d| d.to_string_lossy().into_owned())
}

/// Where an agent finds its policy.
pub(crate) fn for_agent(files: Vec<String>) -> agent::ConfigSource {
    agent::ConfigSource { host: &System, files, directory: directory(), detected: detected() }
}
