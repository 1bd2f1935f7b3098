//! HTCondor's command lines in, HTCondor's texts out, over the client (decision 078).
//!
//! A boundary room: no decision about jobs is made here. Result lines, tables and exit codes are what programs written for HTCondor
//! read, and are the same; usage texts and explanations of errors are our own words, on the same stream with the same exit code.
//!
//! - `options`: single-dash options that may be shortened; `selection`: which jobs, and their ads
//! - `mask`: `-af` and `-format`; `print`: whole ads; `moments`: times and durations
//! - one file for each command, or for each group of them

#![forbid(unsafe_code)]

mod act;
mod analyze;
mod config_val;
mod history;
mod log_begun;
mod mask;
mod moments;
mod options;
mod print;
mod prio;
mod q;
mod selection;
mod status;
mod submit_jobs;
mod tables;
mod userprio;
mod vacate;
mod version;
mod wait;

use std::path::PathBuf;

use ::submit::{Context, Files};
use client::{Client, Endpoint};
use jiff::tz::TimeZone;
use trust::token::Token;

/// Names that are answered here.
pub const NAMES: [&str; 16] = [
    "condor_submit",
    "condor_q",
    "condor_rm",
    "condor_hold",
    "condor_release",
    "condor_suspend",
    "condor_continue",
    "condor_vacate_job",
    "condor_vacate",
    "condor_wait",
    "condor_history",
    "condor_status",
    "condor_userprio",
    "condor_prio",
    "condor_version",
    "condor_config_val",
];

/// Where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a command sees of the world.
pub struct House<'a> {
    /// Where the manager is, or why that is not known.
    pub endpoint: Result<(Endpoint, Option<Token>), String>,
    /// Who submits, from where, when.
    pub context: Result<Context, String>,
    /// Files, as submit descriptions see them.
    pub files: &'a dyn Files,
    /// Where the history of the pool on this machine is, for when nobody answers.
    pub history: Option<PathBuf>,
    /// When the command was called, in Unix seconds.
    pub now: i64,
    /// For times that people read.
    pub zone: TimeZone,
    /// Values of the configuration by their names.
    pub setting: &'a dyn Fn(&str) -> Option<String>,
    /// Prints.
    pub print: &'a dyn Fn(Stream, &str),
}

impl std::fmt::Debug for House<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("House")
    }
}

/// How a command ended: there are only two exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Exit code 0.
    Well,
    /// Exit code 1; everything is said.
    Badly,
}

/// A command that cannot go on: what is said on standard error.
#[derive(Debug)]
struct Refused(String);

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Refused {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<client::Error> for Refused {
    fn from(error: client::Error) -> Self {
        Self(format!("ERROR: {error}\n"))
    }
}

type Done = Result<Ended, Refused>;

impl House<'_> {
    fn say(&self, text: &str) {
        (self.print)(Stream::Out, text);
    }

    fn complain(&self, text: &str) {
        (self.print)(Stream::Err, text);
    }

    async fn connect(&self) -> Result<Client, String> {
        let (endpoint, token) = self.endpoint.as_ref().map_err(Clone::clone)?;
        Client::connect(endpoint, token.as_ref()).await.map_err(|error| error.to_string())
    }

    fn user(&self) -> &str {
        self.context.as_ref().map_or("", |context| &context.owner)
    }

    fn host(&self) -> &str {
        self.context.as_ref().map_or("localhost", |context| &context.uid_domain)
    }

    fn now(&self) -> i64 {
        self.now
    }

    /// `user@domain`, as HTCondor names submitters.
    fn with_domain(&self, user: &str) -> String {
        format!("{user}@{}", self.host())
    }
}

/// Runs the command of this name.
pub async fn run(name: &str, arguments: &[String], house: &House<'_>) -> Ended {
    let done = match name {
        "condor_submit" => submit_jobs::run(arguments, house).await,
        "condor_q" => q::run(arguments, house).await,
        "condor_wait" => wait::run(arguments, house),
        "condor_history" => history::run(arguments, house).await,
        "condor_status" => status::run(arguments, house).await,
        "condor_userprio" => userprio::run(arguments, house).await,
        "condor_prio" => prio::run(arguments, house).await,
        "condor_vacate" => vacate::run(arguments, house).await,
        "condor_config_val" => config_val::run(arguments, house),
        "condor_version" => version::run(arguments, house),
        _ => match act::Verb::of(name) {
            Some(verb) => act::run(verb, arguments, house).await,
            None => Err(format!("{name}: there is no such command here\n").into()),
        },
    };
    done.unwrap_or_else(|Refused(text)| {
        house.complain(&text);
        Ended::Badly
    })
}

#[cfg(test)]
mod tests;
