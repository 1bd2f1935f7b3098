//! `updraft ssh`: a shell or a command beside a running job.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use client::{Visit, VisitSender};
use model::JobName;
use model::visit::{Ended, Kind, Shell, Want};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::cmd::{Failure, small_runtime, write_bytes};
use crate::place::Place;

/// What is returned when the visit itself fails, so that no command's own code is taken for it.
const FAILED: u8 = 255;
const PART_BYTES: usize = 16 << 10;

/// Open a shell, or run a command, where a job runs
///
/// It has the job's working directory, environment, limits and rights, and ends with the job. The exit code is the command's; 128 and
/// the signal's number when a signal ended it; 255 when it could not be. For the job's owner and for administrators; recorded as an
/// event of the job.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job: CLUSTER.PROC, or CLUSTER for its first
    #[arg(value_name = "JOB")]
    job: JobName,
    /// Have a terminal, also for a command
    #[arg(short = 't', long)]
    tty: bool,
    /// The command and its arguments [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    let at_terminal = std::io::stdin().is_terminal();
    let terminal = args.tty || (args.command.is_empty() && at_terminal && std::io::stdout().is_terminal());
    let (rows, columns) = window();
    let term = std::env::var("TERM").unwrap_or_default();
    let shell = Shell { command: args.command, terminal, rows: rows.into(), columns: columns.into(), term };
    let want = Want { shell: Some(shell), ..Want::default() };
    let failed = |failure: Failure| Failure { code: FAILED, ..failure };
    let (endpoint, token) = place.endpoint()?;
    let visiting = async {
        let visit = Visit::begin(&endpoint, token.as_ref(), &args.job.to_string(), &want).await?;
        let raw = (terminal && at_terminal).then(Raw::enter).flatten();
        let sender = visit.sender();
        feed(sender.clone());
        let shown = tokio::select! {
            shown = show(visit) => shown,
            failed = pass_signals(sender, terminal) => failed,
        };
        drop(raw);
        shown
    };
    small_runtime()?.block_on(visiting).map_err(failed)
}

/// Shows what comes, until it is over.
async fn show(mut visit: Visit) -> Result<ExitCode, Failure> {
    while let Some((kind, bytes)) = visit.next().await? {
        match kind {
            Kind::Output | Kind::Error => write_bytes(bytes, kind == Kind::Error).await?,
            Kind::Ended => {
                return match Ended::of_bytes(&bytes) {
                    Ok(Ended::Code(code)) => Ok(ExitCode::from(code)),
                    Ok(Ended::Signal(signal)) => Ok(ExitCode::from(signal.saturating_add(128))),
                    Ok(Ended::Failed(why)) => Err(Failure::new(why)),
                    Err(e) => Err(Failure::new(e.to_string())),
                };
            }
            _ => {}
        }
    }
    Err(Failure::new("the job has left its machine, and everything beside it has ended"))
}

/// Sends standard input from a thread of its own, which nobody waits for.
fn feed(to: VisitSender) {
    std::thread::spawn(move || {
        let mut chunk = vec![0; PART_BYTES];
        let mut input = std::io::stdin().lock();
        loop {
            let n = match input.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            // Nothing is the end.
            if !to.blocking_send(Kind::Input, &chunk[..n]) || n == 0 {
                // The stream stays open: its end would be ours.
                return;
            }
        }
    });
}

/// Passes on what happens to the terminal, and signals that are meant for the command.
async fn pass_signals(to: VisitSender, terminal: bool) -> Result<ExitCode, Failure> {
    let mut resized = signal(SignalKind::window_change())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        let kind = tokio::select! {
            _ = resized.recv() => {
                let (rows, columns) = window();
                let [a, b] = rows.to_le_bytes();
                let [c, d] = columns.to_le_bytes();
                if terminal {
                    to.send(Kind::Size, &[a, b, c, d]).await;
                }
                continue;
            }
            _ = interrupted.recv() => SignalKind::interrupt(),
            _ = terminated.recv() => SignalKind::terminate(),
        };
        to.send(Kind::Signal, &[kind.as_raw_value() as u8]).await;
    }
}

/// Lines and columns of our own terminal.
fn window() -> (u16, u16) {
    let size = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stdin()));
    size.map_or((24, 80), |size| (size.ws_row.max(1), size.ws_col.max(1)))
}

/// Our terminal without keys of its own, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
