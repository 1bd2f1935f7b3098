//! `updraft run`: many jobs, one command, from submit to summary.

mod cut;
mod echo;
mod follow;
mod hopeless;
mod logs;
mod neighbours;
mod private;
mod record;
mod room;
mod tally;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::Client;
use model::JobTemplate;
use model::event::Exit;
use model::template::PieceKind;

use crate::cmd::submit::outputs::{self, Stream, Streams};
use crate::cmd::submit::{Unnamed, What, templates};
use crate::cmd::{Failure, Interrupts, full_runtime, usage};
use crate::place::Place;
use follow::{Ending, Follower, Machines, Manner};
use record::Record;

/// How long a pool that is up may take to have a machine in contact.
const CONTACT: Duration = Duration::from_secs(5);

/// Run many jobs and wait for them, on a private pool if none is running
///
/// Give a submit file, or a command after -- with {} for the item. What jobs print, unless it goes to a file, is shown in
/// the order of their numbers, all of it. An interrupted run is taken up with --resume; a job that has finished is never
/// run again. The exit code is 0 only when every job succeeded and what they printed could be written. A reader of
/// standard output that goes away (| head) stops nothing: the outputs are then kept in a directory that is named.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Jobs at a time on a private pool [default: one per core]; refused when a pool is up, which decides that itself
    #[arg(short, long, value_name = "N")]
    jobs: Option<u32>,
    /// Take up the newest interrupted run, or the one named
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
    /// No progress, no output of jobs: only failures with the end of their standard error, and the summary
    #[arg(short, long)]
    quiet: bool,
    /// Show the output of jobs as they finish, not in the order of their numbers
    #[arg(long)]
    unordered: bool,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let state = place.state()?;
    let (home, is_anothers) = match manager::check_owner(&state) {
        // Somebody else's pool that serves everybody: what belongs to the run is kept where our own things are.
        Err(_) if place.pool.is_none() && state.join("manager.sock").exists() => (Place::own_state()?, true),
        checked => {
            checked.map_err(manager::Error::from)?;
            (state.clone(), false)
        }
    };
    let runs = home.join("runs");
    if args.jobs == Some(0) {
        return Err(usage("--jobs 0 runs nothing"));
    }
    let found = match &args.resume {
        Some(name) => {
            if args.what.file.is_some() || !args.what.command.is_empty() {
                return Err(usage("--resume takes up an earlier run; leave the submit file or command out"));
            }
            Some(Record::find(&runs, name)?)
        }
        None => None,
    };
    let is_resumed = found.is_some();
    let ready = if is_resumed { Vec::new() } else { prepare(&args, place)? };
    full_runtime()?.block_on(async {
        // A resumed run goes on where it was; a new one uses the user's pool if there is one.
        let was_private = found.as_ref().and_then(Record::is_embedded);
        let client = if was_private == Some(true) { None } else { find_pool(place, &state).await? };
        if was_private == Some(false) && client.is_none() {
            let again = found.as_ref().map(Record::resume_command).unwrap_or_default();
            return Err(Failure::new(format!(
                "the pool that this run was given to does not answer here; start it if it is down (updraft up), and take the run up with: {again}"
            )));
        }
        if client.is_none() && is_anothers {
            // A private run elsewhere would have numbers of its own, and write over what has been there under the same.
            return Err(Failure::new(format!(
                "the pool in {} is another user's and does not answer; try again when it is up, or have a private run with a --state-dir \
                 of your own",
                state.display()
            )));
        }
        if client.is_none() && was_private.is_none() && place.is_at_machines_pool()? {
            errln!(
                "updraft: the machine's pool does not answer; this run is private, in {}, and its clusters are numbered apart from the pool's",
                home.display()
            );
        }
        if client.is_some() && args.jobs.is_some() {
            return Err(usage(
                "-j is for a private pool, and a pool is up, which decides itself how many jobs run at a time: leave -j \
                 out, or have a private pool with another --state-dir",
            ));
        }
        // From here on something may be left that can be taken up, which is to be said.
        let interrupts = Interrupts::listen()?;
        let record = match found {
            Some(record) => record,
            None => new_record(ready, &args, &runs)?,
        };
        match client {
            Some(client) => on_pool(client, record, &args, place, (is_resumed, interrupts)).await,
            None => private::run(record, &args, &home, (is_resumed, interrupts)).await,
        }
    })
}

/// What is to run, and can be written where it says.
fn prepare(args: &Args, place: &Place) -> Result<Vec<JobTemplate>, Failure> {
    let templates = templates(&args.what, Unnamed::Left)?;
    outputs::check_streams(&templates, Streams::PassedOn)?;
    if place.pool.is_none() {
        outputs::check_logs(&templates)?;
    }
    Ok(templates)
}

fn new_record(mut templates: Vec<JobTemplate>, args: &Args, runs: &Path) -> Result<Record, Failure> {
    let record = Record::create(runs)?;
    for (i, template) in templates.iter_mut().enumerate() {
        // Standard error is of use when a job fails, also to those who want no output.
        match stream_of(template, "Out", Stream::Out) {
            Some(Stream::Out) if args.quiet => {
                template.set_varying("Out", vec![PieceKind::Text("\"/dev/null\"".to_owned())]);
            }
            Some(stream) => capture(template, i, &record.output(), ("Out", stream)),
            None => {}
        }
        if let Some(stream) = stream_of(template, "Err", Stream::Err) {
            capture(template, i, &record.output(), ("Err", stream));
        }
    }
    match record.save(&templates) {
        Ok(()) => Ok(record),
        Err(failure) => {
            record.remove();
            Err(failure)
        }
    }
}

/// The stream of ours that an output is meant for: the usual one when it goes nowhere; `None` for a file.
fn stream_of(template: &JobTemplate, name: &str, usual: Stream) -> Option<Stream> {
    if template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(name)) {
        return None;
    }
    match outputs::text_of(template, 0, 0, name) {
        Some(path) if path.is_empty() || path == "/dev/null" => Some(usual),
        Some(path) => outputs::stream_named(&path),
        None => template.shared(name).is_none().then_some(usual),
    }
}

/// Has an output kept in a file, to be passed on. Both of a job's outputs for the same stream are one file, in which they stand
/// in the order in which they were written.
fn capture(template: &mut JobTemplate, index: usize, dir: &Path, (name, stream): (&str, Stream)) {
    let quoted = model::text::quote(&format!("{}/{index}-", dir.display()));
    let open = quoted.trim_end_matches('"').to_owned();
    let close = format!(".{}\"", echo::suffix(stream));
    let pieces = vec![PieceKind::Text(open), PieceKind::Proc(true), PieceKind::Text(close)];
    template.set_varying(name, pieces);
}

/// The user's running pool, if there is one. One that has just been started may take a moment.
async fn find_pool(place: &Place, state: &Path) -> Result<Option<Client>, Failure> {
    if place.pool.is_some() {
        // A wrong token does not get better by waiting.
        place.endpoint()?;
    }
    let began = Instant::now();
    loop {
        let is_ours = place.pool.is_some() || manager::is_in_use(state);
        let why = match try_pool(place).await {
            Ok(Some(client)) => return Ok(Some(client)),
            // Somebody else's pool is not ours to use, and one without machines would never run anything.
            _ if !is_ours => return Ok(None),
            Ok(None) => {
                "it has no machine in contact, so nothing would run; add one with updraft agent".to_owned()
            }
            Err(failure) => failure.message,
        };
        if began.elapsed() >= CONTACT {
            let which = match &place.pool {
                Some(address) => format!("the pool at {address}"),
                None => format!("the pool that is up in {}", state.display()),
            };
            return Err(Failure::new(format!("{which} cannot be used: {why} (or use another --state-dir)")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A pool that answers and has a machine.
async fn try_pool(place: &Place) -> Result<Option<Client>, Failure> {
    let (endpoint, token) = place.endpoint()?;
    let client = Client::connect(&endpoint, token.as_ref()).await?;
    let status = client.status(None, false).await?;
    Ok(status.machines.iter().any(|m| m.connected).then_some(client))
}

/// On a pool that was there before us and stays.
async fn on_pool(
    client: Client,
    record: Record,
    args: &Args,
    place: &Place,
    (is_resumed, mut interrupts): (bool, Interrupts),
) -> Result<ExitCode, Failure> {
    let about = client.about().await?;
    let from = if let Some(position) = record.pool_position() {
        record.check_pool(&about.pool, about.position)?;
        position
    } else {
        record.note_pool(about.position, &about.pool, place)?;
        about.position
    };
    let manner = args.manner(from + 1, Machines::MayCome, is_resumed);
    let templates = record.templates()?;
    let mut unwritten = None;
    let going = async {
        match Follower::start(&client, &record, templates, manner).await {
            Ok(follower) => {
                let clusters = follower.clusters();
                let ending = follower.follow(&client).await;
                // The logs of a pool elsewhere are there, not here.
                if place.pool.is_none() && matches!(ending, Ok(Ending::Done { .. })) {
                    unwritten = logs::wait(&clusters, &record).await.err();
                }
                Ok(ending)
            }
            Err(error) => Err(error),
        }
    };
    let ending = tokio::select! {
        biased;
        signal = interrupts.heard() => Ending::Interrupted(signal),
        followed = going => match followed {
            // The jobs go on, or will when the pool is up again.
            Ok(ending) => ending.map_err(|failure| Failure {
                message: format!("{}; take the run up with: {}", failure.message, record.resume_command()),
                code: failure.code,
            })?,
            Err(error) => return Err(refused(error, record, is_resumed)),
        },
    };
    match unwritten {
        Some(failure) => Err(failure),
        None => conclude(ending, record, false),
    }
}

impl Args {
    fn manner(&self, from: u64, machines: Machines, is_resumed: bool) -> Manner {
        Manner { from, quiet: self.quiet, unordered: self.unordered, machines, is_resumed }
    }
}

/// Nothing of a run that was refused is left to be taken up.
fn refused(error: client::Error, record: Record, is_resumed: bool) -> Failure {
    if matches!(error, client::Error::Refused { .. }) && !is_resumed {
        record.remove();
    }
    Failure::from(error)
}

fn conclude(ending: Ending, record: Record, embedded: bool) -> Result<ExitCode, Failure> {
    match ending {
        Ending::Done { good, delivery } if good && !delivery.is_partial => {
            record.remove();
            Ok(ExitCode::SUCCESS)
        }
        Ending::Done { good, delivery } => {
            errln!(
                "updraft: outputs that went to no file of yours are kept in {}",
                record.output().display()
            );
            record.finish();
            if good && !delivery.has_failed { Ok(ExitCode::SUCCESS) } else { Err(Failure::silent(1)) }
        }
        Ending::NoRoom => {
            let dir = record.dir().display();
            errln!("updraft: {dir} cannot be written; make room, then: {}", record.resume_command());
            Err(Failure::silent(1))
        }
        Ending::Stuck => {
            errln!("updraft: mend what is wrong, then: {}", record.resume_command());
            Err(Failure::silent(1))
        }
        Ending::Hopeless { begun } => {
            errln!(
                "updraft: no job that is left can ever start here, so the run ends; ask for less, or use a pool"
            );
            if begun {
                record.finish();
            } else {
                record.remove();
            }
            Err(Failure::silent(1))
        }
        Ending::Interrupted(signal) => {
            let what =
                if embedded { "Nothing runs any more" } else { "What was submitted goes on in the pool" };
            errln!("\nupdraft: interrupted ({signal}). {what}; take it up with: {}", record.resume_command());
            Err(Failure::silent(130))
        }
    }
}

/// How a process ended, in words.
pub(crate) fn outcome(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(0), _) => "succeeded".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
