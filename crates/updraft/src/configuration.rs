//! Where this machine's configuration is, and what the machine tells it of itself.

use std::path::PathBuf;

use config::{Config, Diagnostics, Loader, Nothing};
use jiff::tz::TimeZone;

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
         PID = {}\nLOG = {}\n",
        std::process::id(),
        log_directory(&home)
    )
}

/// $(LOG): where daemons keep their logs.
fn log_directory(home: &str) -> String {
    if starter::user::own_uid() == 0 {
        return "/var/log/updraft".to_owned();
    }
    match std::env::var("XDG_STATE_HOME") {
        Ok(state) if !state.is_empty() => format!("{state}/updraft/log"),
        _ => format!("{home}/.local/state/updraft/log"),
    }
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

/// The maintenance windows of a configuration, and what is wrong with some; the others count. Refused when what they share is wrong.
pub(crate) fn windows(files: &[String]) -> Result<(maintenance::Settings, Vec<String>), Diagnostics> {
    let config = load("EVENTD", None, files)?;
    let (settings, findings) = read_windows(&config);
    // Most pools have no windows, and need not be told so.
    if config.text("EVENT_LIST").is_ok_and(|list| list.trim().is_empty()) {
        return Ok((settings, Vec::new()));
    }
    if !settings.unusable.is_empty() {
        return Err(Diagnostics(settings.unusable));
    }
    Ok((settings, findings.iter().map(ToString::to_string).collect()))
}

/// What is wrong with the maintenance windows of a configuration.
pub(crate) fn check_windows(files: &[String]) -> Result<Vec<config::Diagnostic>, Diagnostics> {
    let config = load("EVENTD", None, files)?;
    let (settings, mut findings) = read_windows(&config);
    if let (_, Some(word)) = eventd::Level::read(&settings.debug) {
        let message = format!("EVENTD_DEBUG: {word} means nothing here; D_ALWAYS or D_FULLDEBUG do");
        let finding = config::Diagnostic::warning(message);
        findings.push(match config.origin("EVENTD_DEBUG") {
            Some(config::settings::Origin::Definition(d)) => finding.at(d.span.place(0, d.raw.len().max(1))),
            _ => finding,
        });
    }
    // Without windows nobody uses the rest, and nobody refuses it; but somebody may have meant to.
    if config.text("EVENT_LIST").is_ok_and(|list| list.trim().is_empty()) {
        findings.retain(|finding| finding.message != maintenance::settings::NO_EVENTS);
        findings = findings.iter().map(config::Diagnostic::as_warning).collect();
    }
    Ok(findings)
}

/// The windows that somebody carries out, as told by the manager.
pub(crate) fn reported_windows(text: &str) -> Result<maintenance::Settings, Diagnostics> {
    let config = Loader::new(&Nothing, "EVENTD").text("the running pool", text).load()?;
    Ok(read_windows(&config).0)
}

fn read_windows(config: &Config<'_>) -> (maintenance::Settings, Vec<config::Diagnostic>) {
    maintenance::Settings::load(config, TimeZone::system(), &|name| TimeZone::get(name).ok())
}

/// Where an agent finds its policy.
pub(crate) fn for_agent(files: Vec<String>) -> agent::ConfigSource {
    agent::ConfigSource { host: &System, files, directory: directory(), detected: detected() }
}
