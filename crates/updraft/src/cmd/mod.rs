//! The sub-commands, one file each.

pub(crate) mod act;
pub(crate) mod agent;
pub(crate) mod classad;
pub(crate) mod condor;
pub(crate) mod config;
pub(crate) mod dag;
pub(crate) mod docs;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod fork_starter;
pub(crate) mod joblog;
pub(crate) mod journal;
pub(crate) mod lab;
pub(crate) mod links;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod maintenance;
pub(crate) mod monitor;
pub(crate) mod queue;
pub(crate) mod reconfig;
pub(crate) mod run;
pub(crate) mod seg;
pub(crate) mod sim;
pub(crate) mod spool;
pub(crate) mod ssh;
pub(crate) mod starter;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tail;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod usage;
pub(crate) mod userprio;
pub(crate) mod wait;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use serde_json::Value;

/// Why a command failed, and its exit code: 2 for usage, 1 for everything else.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// Everything was said already.
    pub(crate) fn silent(code: u8) -> Self {
        Self { message: String::new(), code }
    }
}

/// A mistake in how the command was called.
pub(crate) fn usage(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), code: 2 }
}

macro_rules! failure_from {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        })*
    };
}
failure_from!(client::Error, manager::Error, ::agent::Error, trust::Error, std::io::Error, serde_json::Error);

/// A runtime for a command that only asks and prints.
pub(crate) fn small_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A runtime for a daemon.
pub(crate) fn full_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Prints to standard output; a reader that went away is no error.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes to standard output, or to standard error, on a thread of its own: whoever does not read it keeps nothing else waiting.
pub(crate) async fn write_bytes(bytes: Vec<u8>, to_error: bool) -> std::io::Result<()> {
    let write = move || {
        let all = |out: &mut dyn std::io::Write| out.write_all(&bytes).and_then(|()| out.flush());
        if to_error { all(&mut std::io::stderr().lock()) } else { all(&mut std::io::stdout().lock()) }
    };
    tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other)?
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<ExitCode, Failure> {
    let value: Value = serde_json::to_value(value)?;
    print(&format!("{}\n", serde_json::to_string_pretty(&value)?))
}

/// Resolves when the user or the system wants us to stop: the signal's name.
pub(crate) async fn stop_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    }
}

/// SIGHUP for a daemon: read the configuration again. When it comes because the terminal in which the daemon was started has
/// gone away, it means stop.
pub(crate) struct Hangups {
    signals: tokio::signal::unix::Signal,
    had_terminal: bool,
}

/// What a SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangup {
    Reload,
    Stop,
}

impl Hangups {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
        Ok(Self { signals, had_terminal: std::io::stdin().is_terminal() })
    }

    pub(crate) async fn heard(&mut self) -> Hangup {
        self.signals.recv().await;
        // A terminal that is gone is none any more.
        if self.had_terminal && !std::io::stdin().is_terminal() { Hangup::Stop } else { Hangup::Reload }
    }
}

/// The signals by which a command that somebody waits for is stopped: those of `stop_signal`, a terminal that goes away, and
/// Ctrl-\\. Who had the latter two ignored (`nohup`) wants the command to go on. They are listened to from `listen` on, so one
/// that comes before anybody asks is not lost.
pub(crate) struct Interrupts(Vec<(&'static str, tokio::signal::unix::Signal)>);

impl Interrupts {
    pub(crate) fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut heard =
            vec![("SIGTERM", signal(SignalKind::terminate())?), ("SIGINT", signal(SignalKind::interrupt())?)];
        for (name, kind) in [("SIGHUP", SignalKind::hangup()), ("SIGQUIT", SignalKind::quit())] {
            if !::starter::streams::was_ignored(kind.as_raw_value()) {
                heard.push((name, signal(kind)?));
            }
        }
        Ok(Self(heard))
    }

    /// Resolves when one of them came: its name.
    pub(crate) async fn heard(&mut self) -> &'static str {
        std::future::poll_fn(|context| {
            let mut each = self.0.iter_mut();
            let came =
                each.find_map(|(name, signals)| signals.poll_recv(context).is_ready().then_some(*name));
            came.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

/// Seconds of a span such as `90s`, `30m`, `12h`, `7d`.
pub(crate) fn seconds(text: &str) -> Result<u64, Failure> {
    let bad = || usage(format!("{text:?} is not a time: write 90s, 30m, 12h or 7d"));
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(bad()),
    };
    number.checked_mul(factor).filter(|s| *s > 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(
            [seconds("90").unwrap(), seconds("2m").unwrap(), seconds("7d").unwrap()],
            [90, 120, 604_800]
        );
        for bad in ["", "x", "-1s", "1w", "0s", "99999999999999999999d", "99999999999999999d"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
