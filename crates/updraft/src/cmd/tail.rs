//! `updraft tail`: what a running job writes, wherever it runs.

use std::process::ExitCode;

use client::Visit;
use model::JobName;
use model::visit::{Ended, Kind, Want};

use crate::cmd::{Failure, small_runtime, write_bytes};
use crate::place::Place;

/// Show the end of what a running job has written, and what it goes on to write
///
/// Reads on the machine where the job runs, with the rights of the job's owner. For the job's owner and for administrators.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job: CLUSTER.PROC, or CLUSTER for its first
    #[arg(value_name = "JOB")]
    job: JobName,
    /// A file, seen from the job's working directory [default: its standard output]
    #[arg(value_name = "FILE", conflicts_with = "err")]
    file: Option<String>,
    /// Go on until the job ends
    #[arg(short, long)]
    follow: bool,
    /// Its standard error
    #[arg(long)]
    err: bool,
    /// Begin with so many of the last lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: u64,
    /// Begin at the beginning
    #[arg(long, conflicts_with = "lines")]
    all: bool,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let want = Want {
        shell: None,
        file: args.file.unwrap_or_default(),
        error: args.err,
        follow: args.follow,
        lines: (!args.all).then_some(args.lines),
    };
    let (endpoint, token) = place.endpoint()?;
    small_runtime()?.block_on(async {
        let mut visit = Visit::begin(&endpoint, token.as_ref(), &args.job.to_string(), &want).await?;
        while let Some((kind, bytes)) = visit.next().await? {
            let written = match kind {
                Kind::Output => write_bytes(bytes, false).await,
                Kind::Note => {
                    errln!("updraft: {}", model::text::one_line(&String::from_utf8_lossy(&bytes), 300));
                    Ok(())
                }
                Kind::Ended => {
                    return match Ended::of_bytes(&bytes) {
                        Ok(Ended::Code(0)) => Ok(ExitCode::SUCCESS),
                        Ok(Ended::Failed(why)) => Err(Failure::new(why)),
                        _ => Err(Failure::new("the machine's answer makes no sense")),
                    };
                }
                _ => Ok(()),
            };
            match written {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                written => written?,
            }
        }
        Err(Failure::new(
            "the job's machine was done with it before all was shown; what is missing is where its output goes",
        ))
    })
}
