//! Submits a run, follows its events, and shows how it goes.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::rest::{Act, ActRequest};
use classad::Value;
use client::{Client, Events};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{JobId, JobTemplate};

use super::outcome;
use super::record::Record;
use super::tally::{Note, Tally};
use crate::cmd::Failure;

/// Failures that are shown in full; more are only counted.
const SHOWN: u64 = 10;
/// Lines of a failed job's standard error.
const LINES: usize = 5;
/// How much of one job's output is shown at most.
const ECHO_BYTES: u64 = 16 << 20;

/// How following ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// All jobs are over.
    Done { good: bool },
    /// Only held jobs are left.
    Stuck,
    /// The user wants to stop.
    Interrupted(&'static str),
}

pub(crate) struct Follower {
    clusters: Vec<(u32, JobTemplate)>,
    from: u64,
    /// Where outputs are that the user sent nowhere; they are shown.
    captured: Option<PathBuf>,
    unordered: bool,
    /// Jobs that are over and whose output waits for its turn, and whose turn it is: (index of the cluster, proc).
    over: BTreeSet<(usize, u32)>,
    turn: (usize, u32),
    bar: ProgressBar,
    tally: Tally,
    shown: u64,
    started: Instant,
}

impl Follower {
    /// Submits (again, with the same key, if it is a resumed run) and lets jobs go that were held for a mended reason.
    pub(crate) async fn start(
        client: &Client,
        record: &Record,
        from: u64,
        quiet: bool,
        unordered: bool,
    ) -> Result<Self, Failure> {
        let mut clusters = Vec::new();
        let mut total = 0;
        for (i, template) in record.templates()?.into_iter().enumerate() {
            let reply = client.submit(&template, &format!("{}.{i}", record.id())).await?;
            total += u64::from(template.procs);
            let active = client.cluster(reply.cluster, 0).await?;
            if active.counts.held > 0 {
                let reason = "taken up again".to_owned();
                let jobs = vec![reply.cluster.to_string()];
                client.act(&ActRequest { act: Act::Release, jobs, reason, seconds: 0 }).await?;
            }
            clusters.push((reply.cluster, template));
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8));
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} done, {msg}, {elapsed} elapsed, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
        let captured = (!quiet).then(|| record.output());
        let started = Instant::now();
        Ok(Self {
            clusters,
            from,
            captured,
            unordered,
            over: BTreeSet::new(),
            turn: (0, 0),
            bar,
            tally: Tally::of(total),
            shown: 0,
            started,
        })
    }

    /// Follows until all is over, or nothing can move any more. A pool that restarts meanwhile is waited for.
    pub(crate) async fn follow(mut self, client: &Client) -> Result<Ending, Failure> {
        let only = match self.clusters.as_slice() {
            [(cluster, _)] => Some(*cluster),
            _ => None,
        };
        let mut events: Events = client.events(Some(self.from), only, true).await?;
        loop {
            let next = tokio::time::timeout(Duration::from_millis(300), events.next()).await;
            let Ok(next) = next else {
                if self.tally.is_stuck() {
                    return Ok(self.conclude(Ending::Stuck));
                }
                self.show_progress();
                continue;
            };
            let Some(line) = next? else {
                return Err(Failure::new("the pool is gone; take the run up with --resume"));
            };
            if let Some(kind) = &line.event.kind
                && model::event::cluster_of(kind)
                    .is_some_and(|c| self.clusters.iter().any(|(id, _)| *id == c))
            {
                for note in self.tally.take(kind) {
                    self.tell(note)?;
                }
            }
            if self.tally.is_done() {
                let good = self.tally.failed == 0 && self.tally.removed == 0;
                return Ok(self.conclude(Ending::Done { good }));
            }
            self.show_progress();
        }
    }

    fn show_progress(&self) {
        let t = &self.tally;
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let held = if t.held() > 0 { format!(", {} held", t.held()) } else { String::new() };
        self.bar.set_message(format!(
            "{} running, {} failed{held}, {:.0}/s",
            t.running(),
            t.failed,
            t.done() as f64 / seconds
        ));
        self.bar.set_position(t.done());
    }

    fn tell(&mut self, note: Note) -> Result<(), Failure> {
        match note {
            Note::Exited(job, exit) => {
                self.job_over(job)?;
                if !exit.success() {
                    let item = self.words(job);
                    self.complain(job, &format!("job {job} failed: {}{item}", outcome(&exit)));
                }
            }
            Note::Removed(job) => self.job_over(job)?,
            Note::Held(job, reason) => self.complain(job, &format!("job {job} is held: {reason}")),
        }
        Ok(())
    }

    /// A job is over: shows its output, and that of those that waited for it, when its turn has come.
    fn job_over(&mut self, job: JobId) -> Result<(), Failure> {
        let Some(index) = self.clusters.iter().position(|(id, _)| *id == job.cluster) else { return Ok(()) };
        if self.unordered {
            return self.echo_output(job);
        }
        self.over.insert((index, job.proc));
        while self.over.remove(&self.turn) {
            let (index, proc) = self.turn;
            let (cluster, template) = &self.clusters[index];
            let job = JobId { cluster: *cluster, proc };
            self.turn = if proc + 1 < template.procs { (index, proc + 1) } else { (index + 1, 0) };
            self.echo_output(job)?;
        }
        Ok(())
    }

    /// Shows a failure with the end of the job's standard error.
    fn complain(&mut self, job: JobId, message: &str) {
        self.shown += 1;
        if self.shown > SHOWN {
            return;
        }
        // What is echoed need not be said twice.
        let echoed = |path: &PathBuf| self.captured.as_ref().is_some_and(|c| path.starts_with(c));
        let path = self.path(job, "Err").filter(|path| !echoed(path));
        let tail = path.map(|path| last_lines(&path)).unwrap_or_default();
        let lines: String = tail.iter().map(|l| format!("\n    {l}")).collect();
        self.bar.suspend(|| eprintln!("updraft: {message}{lines}"));
    }

    fn attribute(&self, job: JobId, name: &str) -> Option<String> {
        let (_, template) = self.clusters.iter().find(|(id, _)| *id == job.cluster)?;
        let text = template.attribute(job.cluster, job.proc, name)?;
        match classad::Expr::parse(&text).ok().map(|e| classad::ClassAd::new().eval_expr(&e)) {
            Some(Value::Str(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    fn path(&self, job: JobId, name: &str) -> Option<std::path::PathBuf> {
        let file = self.attribute(job, name).filter(|f| !f.is_empty() && f != "/dev/null")?;
        Some(std::path::Path::new(&self.attribute(job, "Iwd").unwrap_or_default()).join(file))
    }

    /// The job's arguments, to tell it from its siblings.
    fn words(&self, job: JobId) -> String {
        let words = self
            .attribute(job, "Arguments")
            .filter(|a| !a.is_empty())
            .or_else(|| self.attribute(job, "Args"));
        words
            .filter(|w| !w.is_empty())
            .map_or_else(String::new, |w| format!(" ({})", model::text::one_line(&w, 60)))
    }

    fn echo_output(&self, job: JobId) -> Result<(), Failure> {
        let Some(captured) = &self.captured else { return Ok(()) };
        for name in ["Out", "Err"] {
            let Some(path) = self.path(job, name).filter(|p| p.starts_with(captured)) else { continue };
            let mut bytes = Vec::new();
            let read = std::fs::File::open(&path).and_then(|f| f.take(ECHO_BYTES).read_to_end(&mut bytes));
            if read.is_err() || bytes.is_empty() {
                continue;
            }
            let written = self.bar.suspend(|| {
                if name == "Err" {
                    std::io::stderr().write_all(&bytes)
                } else {
                    std::io::stdout().write_all(&bytes)
                }
            });
            match written {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn conclude(&mut self, ending: Ending) -> Ending {
        // Behind a held job others may wait to be shown.
        for (index, proc) in std::mem::take(&mut self.over) {
            let _ = self.echo_output(JobId { cluster: self.clusters[index].0, proc });
        }
        self.bar.finish_and_clear();
        let _ = std::io::stdout().flush();
        let t = &self.tally;
        if self.shown > SHOWN {
            eprintln!("updraft: and {} more failures like these", self.shown - SHOWN);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let mut parts = vec![format!("{} succeeded", t.succeeded)];
        for (count, word) in [(t.failed, "failed"), (t.removed, "removed"), (t.held(), "held")] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        eprintln!("updraft: {} jobs: {} in {seconds:.1} s", t.total, parts.join(", "));
        ending
    }
}

/// The last lines of a file, without control characters.
fn last_lines(path: &std::path::Path) -> Vec<String> {
    let Ok(mut file) = std::fs::File::open(path) else { return Vec::new() };
    let len = file.metadata().map_or(0, |m| m.len());
    let _ = file.seek(SeekFrom::Start(len.saturating_sub(8 << 10)));
    let mut bytes = Vec::new();
    if file.take(8 << 10).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|l| model::text::one_line(l, 200)).collect()
}
