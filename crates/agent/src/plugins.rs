//! Who fetches and sends files by their URLs on this machine: what FILETRANSFER_PLUGINS names, and what is built in.
//!
//! Each program is asked what it can do (`-classad`) when the agent starts, and in the background when the setting changes. What does not answer is left
//! out, with a line in the log; the machine offers the methods of the others.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::starter::Plugin;
use model::text::{one_line, quote};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::run::{Agent, Sign};

/// What is built in, in the setting.
const BUILTIN: &str = "BUILTIN";
/// Where the machine's curl is.
const CURL: [&str; 3] = ["/usr/local/bin/curl", "/usr/bin/curl", "/bin/curl"];
/// Where programs find others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_BYTES: u64 = 64 << 10;
/// Programs that may be named.
const PROGRAMS: usize = 50;

/// What the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// FILETRANSFER_PLUGINS.
    pub(crate) programs: Vec<String>,
    /// MAX_FILE_TRANSFER_PLUGIN_LIFETIME.
    pub(crate) seconds: u64,
}

impl Settings {
    /// Reads a list; an error says what is wrong with it.
    pub(crate) fn new(list: &str, seconds: u64) -> Result<Self, String> {
        let programs: Vec<String> =
            list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let is_good = |p: &String| p.eq_ignore_ascii_case(BUILTIN) || p.starts_with('/');
        if let Some(wrong) = programs.iter().find(|p| !is_good(p)) {
            return Err(format!(
                "FILETRANSFER_PLUGINS names {BUILTIN} and absolute paths of programs, not {wrong}"
            ));
        }
        if programs.len() > PROGRAMS {
            return Err(format!("FILETRANSFER_PLUGINS names more than {PROGRAMS} programs"));
        }
        Ok(Self { programs, seconds })
    }
}

/// Asks all of them at once.
fn find(settings: &Settings) -> Vec<Plugin> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            settings.programs.iter().map(|program| scope.spawn(move || (program, ask(program)))).collect();
        let answered = asked.into_iter().filter_map(|asked| asked.join().ok());
        answered
            .filter_map(|(program, answer)| {
                answer.inspect_err(|why| tracing::warn!(program, why, "a transfer plug-in is left out")).ok()
            })
            .collect()
    })
}

fn ask(program: &str) -> Result<Plugin, String> {
    if program.eq_ignore_ascii_case(BUILTIN) {
        let curl = CURL.iter().find(|p| fs::exists(p).unwrap_or(false));
        let methods: &[&str] = if curl.is_some() { &["file", "http", "https"] } else { &["file"] };
        let methods = methods.iter().map(|m| (*m).to_owned()).collect();
        return Ok(Plugin {
            program: curl.map_or_else(String::new, |p| (*p).to_owned()),
            methods,
            is_builtin: true,
        });
    }
    let said = run(program)?;
    Ok(Plugin { program: program.to_owned(), methods: transfer::plugin::methods(&said)?, is_builtin: false })
}

/// What a program prints about itself.
fn run(program: &str) -> Result<String, String> {
    let fail = |e: std::io::Error| format!("it cannot be executed: {e}");
    let (reader, writer) = std::io::pipe().map_err(fail)?;
    let mut command = Command::new(program);
    command.arg("-classad").env_clear().env("PATH", PATH).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn().map_err(fail)?;
    // Our own copy of the pipe's end goes with it.
    drop(command);
    let reading = std::thread::spawn(move || {
        let mut said = Vec::new();
        reader.take(ANSWER_BYTES).read_to_end(&mut said).map(|_| said)
    });
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(fail)? {
            Some(status) => break Some(status),
            None if began.elapsed() > PATIENCE => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // With whatever it started and left, which would keep the pipe open.
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    let said = reading.join().ok().and_then(Result::ok).unwrap_or_default();
    match status {
        None => Err(format!("it did not say within {} s what it can do (-classad)", PATIENCE.as_secs())),
        Some(status) if !status.success() => Err(format!("{program} -classad ended with {status}")),
        Some(_) => Ok(String::from_utf8_lossy(&said).into_owned()),
    }
}

impl Agent {
    /// Finds out who serves which methods, when that may have changed.
    pub(crate) fn check_plugins(&mut self) {
        let settings = self.rules.plugins.clone();
        if self.plugin_settings.as_ref() == Some(&settings) {
            return;
        }
        let is_first = self.plugin_settings.replace(settings.clone()).is_none();
        // Whoever submits to a pool that has just begun must find its methods.
        if is_first {
            return self.found_plugins(find(&settings));
        }
        let signs = self.signs.clone();
        tokio::task::spawn_blocking(move || {
            let _ = signs.blocking_send(Sign::Plugins(find(&settings)));
        });
    }

    pub(crate) fn found_plugins(&mut self, plugins: Vec<Plugin>) {
        let mut methods: Vec<&str> = plugins.iter().flat_map(|p| &p.methods).map(String::as_str).collect();
        methods.sort_unstable();
        methods.dedup();
        self.core
            .owner
            .set_fixed("HasFileTransferPluginMethods", &quote(&one_line(&methods.join(","), 4_000)));
        self.plugins = plugins;
        self.set_cargo();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn programs_are_asked_and_those_that_fail_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.to_string_lossy().into_owned()
        };
        let good = script(
            "good",
            "[ \"$1\" = -classad ] && echo 'MultipleFileSupport = true' && echo 'SupportedMethods = \"box,HTTP\"'",
        );
        let forks = script(
            "forks",
            "sleep 600 & echo 'MultipleFileSupport = true'; echo 'SupportedMethods = \"fork\"'",
        );
        let single = script("single", "echo 'SupportedMethods = \"old\"'");
        let fails = script("fails", "exit 3");
        let list = format!("builtin, {good},{single}, {fails},/nowhere/plug,{forks}");
        let found = find(&Settings::new(&list, 1).unwrap());
        let methods: Vec<_> = found.iter().skip(1).map(|p| (p.program.as_str(), p.methods.clone())).collect();
        assert_eq!(
            methods,
            [
                (good.as_str(), vec!["box".to_owned(), "http".to_owned()]),
                (forks.as_str(), vec!["fork".to_owned()])
            ]
        );
        assert!(found[0].is_builtin && found[0].methods.contains(&"file".to_owned()));
        assert!(ask(&fails).unwrap_err().contains("exit status: 3"));
        assert!(Settings::new("plug", 1).unwrap_err().contains("absolute"));
    }
}
