//! What runs when the binary is called by one of HTCondor's names: the crate `condor`, with this machine's files and this pool.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use condor::{Ended, House, NAMES, Stream};

use crate::cmd::small_runtime;
use crate::files::{System, context, zone};
use crate::place::Place;

/// Names of commands that are our own by another name.
pub(crate) const VISITS: [&str; 2] = ["condor_tail", "condor_ssh_to_job"];

/// Runs the command whose name the binary was called by, if it is one of HTCondor's.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?.to_owned();
    let is_visit = VISITS.contains(&name.as_str());
    if !is_visit && !NAMES.contains(&name.as_str()) {
        return None;
    }
    let mut arguments = Vec::new();
    for word in words {
        match word.into_string() {
            Ok(word) => arguments.push(word),
            Err(word) => {
                errln!("{name}: {} is not UTF-8", word.to_string_lossy());
                return Some(ExitCode::FAILURE);
            }
        }
    }
    Some(if is_visit { visit(&name, &arguments) } else { run(&name, &arguments) })
}

/// `condor_tail` and `condor_ssh_to_job` as our own commands, in whose place this process goes on.
fn visit(name: &str, arguments: &[String]) -> ExitCode {
    let words = if name == VISITS[0] { tail_words(arguments) } else { ssh_words(arguments) };
    let error = match (words, std::env::current_exe()) {
        (Ok(words), Ok(binary)) => std::process::Command::new(binary).args(words).exec().to_string(),
        (Err(why), _) => why,
        (Ok(_), Err(error)) => error.to_string(),
    };
    errln!("{name}: {error}");
    ExitCode::FAILURE
}

fn tail_words(arguments: &[String]) -> Result<Vec<String>, String> {
    let (mut words, mut rest) = (vec!["tail".to_owned()], arguments.iter());
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-f" | "-follow" => words.push("--follow".into()),
            "-stderr" | "-no-stdout" => words.push("--err".into()),
            "-stdout" | "-no-stderr" | "-debug" => {}
            // We count lines; whoever wants at most so many bytes gets the last lines.
            "-maxbytes" | "-name" | "-pool" => drop(rest.next()),
            option if option.starts_with('-') => return Err(format!("{option} is not known here")),
            other => words.push(other.to_owned()),
        }
    }
    if words.len() == 1 { Err("which job?".into()) } else { Ok(words) }
}

fn ssh_words(arguments: &[String]) -> Result<Vec<String>, String> {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-debug" | "-auto-retry" | "-remove-on-interrupt" | "-X" | "-x" => {}
            "-name" | "-pool" | "-ssh" | "-keygen-options" | "-shells" => drop(rest.next()),
            option if option.starts_with('-') => return Err(format!("{option} is not known here")),
            job => {
                let command: Vec<String> = rest.cloned().collect();
                let dashes = (!command.is_empty()).then(|| "--".to_owned());
                return Ok(["ssh".to_owned(), job.to_owned()]
                    .into_iter()
                    .chain(dashes)
                    .chain(command)
                    .collect());
            }
        }
    }
    Err("which job?".into())
}

fn run(name: &str, arguments: &[String]) -> ExitCode {
    let place = Place::from_environment();
    let print = |stream: Stream, text: &str| {
        // Nobody reads any more: nothing is left to say.
        let _ = match stream {
            Stream::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Stream::Err => std::io::stderr().lock().write_all(text.as_bytes()),
        };
    };
    let history = place.pool.is_none().then(|| place.state().ok()).flatten();
    let history = history.map(|state| state.join("manager/history"));
    let house = House {
        endpoint: place.endpoint().map_err(|failure| failure.message),
        context: context().map_err(|error| error.to_string()),
        files: &System,
        history: history.filter(|dir| dir.is_dir()),
        now: jiff::Timestamp::now().as_second(),
        zone: zone(),
        setting: &|name| std::env::var(format!("_CONDOR_{name}")).ok(),
        print: &print,
    };
    let runtime = match small_runtime() {
        Ok(runtime) => runtime,
        Err(failure) => {
            errln!("{name}: {}", failure.message);
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(condor::run(name, arguments, &house)) {
        Ended::Well => ExitCode::SUCCESS,
        Ended::Badly => ExitCode::FAILURE,
    }
}
