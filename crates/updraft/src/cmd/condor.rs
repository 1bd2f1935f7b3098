//! What runs when the binary is called by one of HTCondor's names: the crate `condor`, with this machine's files and this pool.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use condor::{Ended, House, NAMES, Stream};

use crate::cmd::small_runtime;
use crate::files::{System, context, zone};
use crate::place::Place;

/// Runs the command whose name the binary was called by, if it is one of HTCondor's.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?.to_owned();
    if !NAMES.contains(&name.as_str()) {
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
    Some(run(&name, &arguments))
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
