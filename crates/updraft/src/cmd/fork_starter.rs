//! `updraft fork-starter`: runs jobs that are plain processes; also what runs when the binary is called through a link named
//! `globus-fork-starter`. Its shims are this binary, too.

use std::ffi::OsStr;
use std::io::BufReader;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bridge::forkstarter::{shim, starter};
use bridge::seg::{run::copy, settings};
use clap::Parser;

/// The name of the original.
pub(crate) const LINK: &str = "globus-fork-starter";
/// How shims are called.
const SHIM: &str = "fork-shim";

/// Run jobs that are plain processes, and log their changes for the event generator
///
/// Requests come on standard input, `100;TAG;attribute=value;...`, replies go to standard output, `101;TAG;UUID:PID,...` or
/// `102;TAG;CODE;REASON`. Ends when standard input has ended and all jobs are over. Jobs go on, and keep their exit codes, if
/// it is killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The log, which must be there [default: log_path of the configuration]
    log: Option<PathBuf>,
    /// Read this file for log_path instead of /etc/globus/globus-fork.conf
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where what is known of running jobs is kept [default: LOG.jobs, or a directory in /var/tmp]
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
}

#[derive(Parser)]
#[command(name = "updraft fork-starter")]
struct Direct {
    #[command(flatten)]
    args: Args,
}

/// Takes the call over if it is for this command, or for a shim.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if Path::new(&program).file_name() == Some(OsStr::new(LINK)) {
        return Some(match Direct::try_parse() {
            Ok(direct) => run(&direct.args),
            Err(error) => {
                let _ = error.print();
                if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
            }
        });
    }
    // Nothing else is set up for a shim: there is one for every job.
    if words.next()? != SHIM {
        return None;
    }
    let (log, records) = (words.next()?, words.next()?);
    let mut input = BufReader::new(std::io::stdin());
    let done = shim::run(Path::new(&log), Path::new(&records), &mut input, &mut std::io::stdout());
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    match attempt(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            errln!("updraft fork-starter: {message}");
            ExitCode::FAILURE
        }
    }
}

fn attempt(args: &Args) -> Result<(), String> {
    let log = log_path(args)?;
    let log = std::path::absolute(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    bridge::files::open_file(std::fs::File::options().append(true), &log).map_err(|e| {
        let hint = if e.kind() == std::io::ErrorKind::NotFound { "; make it, empty, before" } else { "" };
        format!("Unable to write to fork log file {} ({e}){hint}", log.display())
    })?;
    let records = match &args.records {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|e| {
                let why = if dir.exists() { "this is no directory".to_owned() } else { e.to_string() };
                format!("--records {}: {why}", dir.display())
            })?;
            std::path::absolute(dir).map_err(|e| format!("{}: {e}", dir.display()))?
        }
        None => usual_records(&log)?,
    };
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let settings = starter::Settings { log, records, program, arguments: vec![SHIM.into()] };
    let input = copy(&std::io::stdin()).ok_or("standard input is closed")?;
    let mut notes = |text: &str| errln!("updraft fork-starter: {text}");
    starter::run(&settings, input, &mut std::io::stdout(), &mut notes).map_err(|e| e.to_string())
}

fn log_path(args: &Args) -> Result<PathBuf, String> {
    if let Some(path) = &args.log {
        return Ok(path.clone());
    }
    let file = args.config.clone().unwrap_or_else(|| PathBuf::from("/etc/globus/globus-fork.conf"));
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}; name a log", file.display()))?;
    settings::value(&text, "log_path").map(PathBuf::from).ok_or_else(|| {
        format!("{} does not set log_path; add `log_path=PATH` to it, or name a log", file.display())
    })
}

/// Beside the log, whatever link leads to it, for whoever owns that place; a directory of one's own for others, as many users may share a log.
fn usual_records(log: &Path) -> Result<PathBuf, String> {
    let log = &log.canonicalize().map_err(|e| format!("{}: {e}", log.display()))?;
    let own_uid = rustix::process::getuid().as_raw();
    let mut beside = log.as_os_str().to_owned();
    beside.push(".jobs");
    let name = records_name(log);
    let elsewhere = PathBuf::from(format!("/var/tmp/updraft-fork-{own_uid}"));
    for dir in [PathBuf::from(beside), elsewhere.clone(), elsewhere.join(name)] {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        let is_ours = dir.symlink_metadata().is_ok_and(|m| m.is_dir() && m.uid() == own_uid);
        if is_ours && dir != elsewhere {
            return Ok(dir);
        }
        if dir == elsewhere && !is_ours {
            let why = made.err().map_or_else(|| "it is somebody else's".to_owned(), |e| e.to_string());
            return Err(format!("{}: {why}; say where with --records", dir.display()));
        }
    }
    Err(format!("no place for records beside {}; say where with --records", log.display()))
}

/// A name for the records of a log: its own, and a number that tells it from others of that name. Should two logs share one all
/// the same, records say of which they are.
fn records_name(log: &Path) -> String {
    let bytes = log.as_os_str().as_encoded_bytes();
    // FNV: the same in every version of this program.
    let number = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    format!("{number:016x}-{}", name.chars().take(60).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_whose_paths_look_alike_have_records_of_their_own() {
        let names: Vec<_> =
            ["/x/log", "/x_log", "/x/_log", "/x__log"].map(|log| records_name(Path::new(log))).into();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name) && name.len() < 80, "{names:?}");
        }
        assert_eq!(records_name(Path::new("/proc/../no/such")), records_name(Path::new("/proc/../no/such")));
        assert!(records_name(Path::new(&format!("/{}", "ü".repeat(200)))).len() < 200);
    }
}
