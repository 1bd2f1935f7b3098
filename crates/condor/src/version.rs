//! `condor_version`: whose version it is, in the form that clients take apart.

use crate::options::is;
use crate::{Done, Ended, House};

/// The HTCondor whose commands these are, as far as they go; programs ask for the number.
const SPOKEN: &str = "25.13.2";

/// The two lines that name version and platform.
pub(crate) fn lines() -> String {
    let arch = if cfg!(target_arch = "aarch64") { "AARCH64" } else { "X86_64" };
    format!(
        "$CondorVersion: {SPOKEN} 2026-11-15 Updraft-{} $\n$CondorPlatform: {arch}-Linux $\n",
        env!("CARGO_PKG_VERSION")
    )
}

pub(crate) fn run(arguments: &[String], house: &House<'_>) -> Done {
    if let Some(odd) =
        arguments.iter().find(|a| !is(a, "help", 1) && !is(a, "arch", 1) && !is(a, "verbose", 1))
    {
        return Err(format!("condor_version: {odd} is not known here\n").into());
    }
    house.say(&lines());
    Ok(Ended::Well)
}
