//! Submits a run, follows its events, and shows how it goes.

use std::collections::{BTreeSet, HashSet};
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::submit::args::{self, Form};
use api::explain::Standing;
use api::rest::{Act, ActRequest, DrainRequest};
use client::{Client, Events};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{JobId, JobTemplate};

use super::cut::Cut;
use super::echo::{Clusters, Delivery, Echo, path_in};
use super::hopeless::is_hopeless;
use super::outcome;
use super::record::Record;
use super::room::{self, Change, Room};
use super::tally::{Note, Tally};
use crate::cmd::Failure;
use crate::cmd::explain::words_of_job;
use crate::cmd::submit::outputs::text_of;
use crate::table;

/// Failures that are shown in full; more are only counted.
const SHOWN: u64 = 10;
/// Lines of a failed job's standard error.
const LINES: usize = 5;
/// How long nothing may happen before it is asked why.
const QUIET: Duration = Duration::from_millis(1_500);
/// How long a private run waits for room on the disk of its books: its jobs may well get on, but their ends are not kept.
const NO_ROOM: Duration = Duration::from_secs(60);
/// The drain of a private pool while there is no room, which outlasts the patience above and little more.
const DRAIN: &str = "no room on the disk";
const DRAIN_S: u64 = 90;
/// How long the pool may take to answer that it begins or ends.
const DRAIN_ANSWER: Duration = Duration::from_secs(2);
/// How long after a full disk machines may take to tell that there is room.
const AFTER_FULL_MS: u64 = 30_000;
/// The most that this grows to where others share the pool.
const PATIENCE: Duration = Duration::from_secs(60);

/// How following ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// All jobs are over.
    Done { good: bool, delivery: Delivery },
    /// Only held jobs are left.
    Stuck,
    /// What is left can never start; `begun` when something else did.
    Hopeless { begun: bool },
    /// The run's books could not be written for so long that it gave up.
    NoRoom,
    /// The user wants to stop.
    Interrupted(&'static str),
}

/// What the follower does about jobs that no machine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machines {
    /// There will be no others: it gives up.
    Fixed,
    /// Others may come: it says so and goes on.
    MayCome,
}

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// The position of the first event.
    pub(crate) from: u64,
    pub(crate) quiet: bool,
    pub(crate) unordered: bool,
    pub(crate) machines: Machines,
    pub(crate) is_resumed: bool,
}

pub(crate) struct Follower {
    clusters: Clusters,
    manner: Manner,
    /// Where outputs are kept that the user sent nowhere.
    captured: PathBuf,
    /// Passes them on, unless the run is a quiet one.
    echo: Option<Echo>,
    /// Jobs that are over and whose output waits for its turn, and whose turn it is: (index of the cluster, proc).
    over: BTreeSet<(usize, u32)>,
    /// Jobs that were removed.
    removed: HashSet<JobId>,
    turn: (usize, u32),
    bar: ProgressBar,
    tally: Tally,
    shown: u64,
    started: Instant,
    /// When something happened last, after which time it is asked why nothing does, and what was said about it.
    moved: Instant,
    patience: Duration,
    told: Option<String>,
    /// Since when nothing can be recorded.
    no_room: Option<Instant>,
    record: Record,
    room: Room,
    /// Jobs that must run again when there is room.
    cut: Cut,
    /// Clusters of which something is kept there, where nobody else sees that it is cut.
    captured_of: HashSet<u32>,
    /// Only who writes there knows when that disk is full.
    is_unseen: bool,
    looked: Instant,
    /// Since when the disk is full.
    full_since: Option<Instant>,
    /// Nothing new starts on the private pool.
    is_drained: bool,
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl Follower {
    /// Submits (again, with the same key, if it is a resumed run). Of a resumed run those jobs go that were held: the reason
    /// is mended, or the user wants them now.
    pub(crate) async fn start(
        client: &Client,
        record: &Record,
        templates: Vec<JobTemplate>,
        manner: Manner,
    ) -> Result<Self, client::Error> {
        let mut clusters = Vec::new();
        let mut total = 0;
        for (i, template) in templates.into_iter().enumerate() {
            let reply = client.submit(&template, &format!("{}.{i}", record.id())).await?;
            total += u64::from(template.procs);
            if manner.is_resumed && client.cluster(reply.cluster, 0).await?.counts.held > 0 {
                let reason = "taken up again".to_owned();
                let jobs = vec![reply.cluster.to_string()];
                client
                    .act(&ActRequest {
                        act: Act::Release,
                        jobs,
                        reason,
                        seconds: 0,
                        priority: None,
                        class: None,
                    })
                    .await?;
            }
            clusters.push((reply.cluster, template));
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8));
        if manner.quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} done, {msg}, {elapsed} elapsed, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
        let started = Instant::now();
        let captured = record.output();
        let is_captured = |cluster: u32| {
            let path = |name| path_in(&clusters, JobId { cluster, proc: 0 }, name);
            ["Out", "Err"].into_iter().filter_map(path).any(|p| p.starts_with(&captured))
        };
        let is_unseen = room::is_unseen(&captured);
        let captured_of =
            clusters.iter().filter(|_| is_unseen).map(|(id, _)| *id).filter(|id| is_captured(*id)).collect();
        Ok(Self {
            clusters: Arc::new(clusters),
            manner,
            captured,
            captured_of,
            is_unseen,
            echo: None,
            over: BTreeSet::new(),
            removed: HashSet::new(),
            turn: (0, 0),
            bar,
            tally: Tally::of(total),
            shown: 0,
            started,
            moved: started,
            patience: QUIET,
            told: None,
            no_room: None,
            record: record.clone(),
            room: Room::new(wall_ms(), record.no_room()),
            cut: Cut::default(),
            looked: started,
            full_since: None,
            // What was interrupted while the disk was full may have left its drain.
            is_drained: manner.is_resumed,
        })
    }

    /// The clusters that were submitted.
    pub(crate) fn clusters(&self) -> Clusters {
        self.clusters.clone()
    }

    /// Follows until all is over, or nothing can move any more. A pool that restarts meanwhile is waited for.
    pub(crate) async fn follow(mut self, client: &Client) -> Result<Ending, Failure> {
        if !self.manner.quiet {
            let echo = Echo::start(self.clusters.clone(), self.captured.clone(), self.bar.clone())?;
            self.echo = Some(echo);
        }
        let only = match self.clusters.as_slice() {
            [(cluster, _)] => Some(*cluster),
            _ => None,
        };
        let mut events: Events = client.events(Some(self.manner.from), only, true).await?;
        loop {
            let wait = room::INTERVAL.saturating_sub(self.looked.elapsed());
            let next = tokio::time::timeout(wait, events.next()).await;
            if self.looked.elapsed() >= room::INTERVAL
                && let Some(ending) = self.look_for_room(client).await
            {
                return Ok(self.conclude(|_| ending).await);
            }
            let Ok(next) = next else {
                if self.tally.is_stuck()
                    && self.moved.elapsed() >= room::INTERVAL
                    && !self.cut.has_hope(NO_ROOM)
                {
                    return Ok(self.conclude(|_| Ending::Stuck).await);
                }
                if self.moved.elapsed() >= self.patience
                    && let Some(ending) = self.nothing_moves(client).await
                {
                    return Ok(self.conclude(|_| ending).await);
                }
                self.show_progress();
                continue;
            };
            let Some(line) = next? else {
                return Err(Failure::new("the pool is gone"));
            };
            if let Some(kind) = &line.event.kind
                && model::event::cluster_of(kind)
                    .is_some_and(|c| self.clusters.iter().any(|(id, _)| *id == c))
            {
                self.moved = Instant::now();
                for note in self.tally.take(kind) {
                    self.tell(note);
                }
            }
            if self.tally.is_done() {
                let good = self.tally.failed == 0 && self.tally.removed == 0;
                return Ok(self.conclude(|delivery| Ending::Done { good, delivery }).await);
            }
            self.show_progress();
        }
    }

    /// Looks whether there is room on the disk. While there is none, a private pool starts nothing new; an ending when that
    /// takes too long.
    async fn look_for_room(&mut self, client: &Client) -> Option<Ending> {
        self.looked = Instant::now();
        let is_fixed = self.manner.machines == Machines::Fixed;
        let dir = self.captured.display().to_string();
        match self.room.look(wall_ms(), room::is_there(&self.captured, self.room.is_full())) {
            Some(Change::Filled) => {
                self.full_since = Some(self.looked);
                let goes_on = if is_fixed {
                    "no other job starts until there is room; the run waits a minute for it"
                } else {
                    "what jobs print may be cut until there is room"
                };
                self.bar.suspend(|| errln!("updraft: the disk under {dir} is full; {goes_on}"));
            }
            Some(Change::Freed) => {
                self.full_since = None;
                self.bar.suspend(|| errln!("updraft: there is room again under {dir}; the run goes on"));
                self.note_no_room();
            }
            None => {}
        }
        self.run_cut_jobs_again(client).await;
        if is_fixed && self.room.is_full() != self.is_drained {
            self.drain(client, self.room.is_full()).await;
        }
        let since = self.full_since.filter(|_| is_fixed)?;
        (since.elapsed() >= NO_ROOM).then_some(Ending::NoRoom)
    }

    /// Has the private pool start nothing new, or go on. When that cannot be recorded, nothing starts either, and it is tried
    /// again at the next look.
    async fn drain(&mut self, client: &Client, begins: bool) {
        let request = DrainRequest {
            name: DRAIN.to_owned(),
            until_s: if begins { wall_ms() / 1_000 + DRAIN_S } else { 0 },
            constraint: String::new(),
            reason: "the disk of the run is full".to_owned(),
            machine: String::new(),
        };
        if let Ok(Ok(())) = tokio::time::timeout(DRAIN_ANSWER, client.drain(&request)).await {
            self.is_drained = begins;
            self.moved = Instant::now();
        }
    }

    /// Has those jobs run again whose disk was full, when there is room on it.
    async fn run_cut_jobs_again(&mut self, client: &Client) {
        let has_room = |job: JobId| {
            let dirs = ["Out", "Err"].into_iter().filter_map(|name| path_in(&self.clusters, job, name));
            dirs.filter_map(|path| path.parent().map(Path::to_owned)).all(|dir| room::is_there(&dir, true))
        };
        let ready = self.cut.ready(has_room);
        if ready.is_empty() || self.room.is_full() {
            return;
        }
        let request = ActRequest {
            act: Act::Release,
            jobs: ready.iter().map(JobId::to_string).collect(),
            reason: "there is room for its output again".to_owned(),
            seconds: 0,
            priority: None,
            class: None,
        };
        if let Ok(Ok(_)) = tokio::time::timeout(DRAIN_ANSWER, client.act(&request)).await {
            let jobs = table::count(ready.len() as u64, "job");
            self.bar.suspend(|| errln!("updraft: there is room; {jobs} whose output may be cut run again"));
            self.cut.released(&ready);
            self.moved = Instant::now();
        }
    }

    /// Whoever takes the run up should know, too; on a disk that is full this may be impossible.
    fn note_no_room(&self) {
        if !self.room.without().is_empty() {
            let _ = self.record.note_no_room(self.room.without());
        }
    }

    /// Nothing has happened for a while: asks why, and says so once. An ending when nothing ever will.
    async fn nothing_moves(&mut self, client: &Client) -> Option<Ending> {
        self.moved = Instant::now();
        let is_fixed = self.manner.machines == Machines::Fixed;
        if is_fixed && (self.room.is_full() || self.is_drained) {
            // It was said why, and whoever asks the pool hears of the drain only.
            return None;
        }
        if self.room.was_full_since(wall_ms().saturating_sub(AFTER_FULL_MS)) {
            // Machines have not told yet that there is room.
            return None;
        }
        if !is_fixed {
            // A pool with many machines has others to answer, too.
            self.patience = (self.patience * 2).min(PATIENCE);
            if self.tally.running() > 0 {
                return None;
            }
        }
        if let Some(why) = client.about().await.ok().and_then(|status| status.degraded) {
            let since = *self.no_room.get_or_insert_with(Instant::now);
            self.say_once(&format!("nothing can be recorded at the moment, so nothing goes on: {why}"));
            return (is_fixed && since.elapsed() >= NO_ROOM).then_some(Ending::NoRoom);
        }
        self.no_room = None;
        let mut hopeless = None;
        for (cluster, _) in self.clusters.iter() {
            match client.explain_job(&cluster.to_string()).await {
                Ok(job) if is_hopeless(&job) => hopeless = Some(job),
                Ok(job) if matches!(job.standing, Standing::Gone { .. } | Standing::Held { .. }) => {}
                Ok(job) if is_fixed && self.tally.running() == 0 => {
                    // It may start yet, but nobody should have to guess what the run waits for.
                    self.say_once(&words_of_job(&job).join("\n    "));
                    return None;
                }
                _ => return None,
            }
        }
        self.say_once(&words_of_job(&hopeless?).join("\n    "));
        let begun = self.tally.done() > 0;
        (is_fixed && self.tally.running() == 0).then_some(Ending::Hopeless { begun })
    }

    fn say_once(&mut self, words: &str) {
        if self.told.as_deref() != Some(words) {
            self.bar.suspend(|| errln!("updraft: {words}"));
            self.told = Some(words.to_owned());
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

    fn tell(&mut self, note: Note) {
        match note {
            Note::Exited(job, exit, started_ms) => {
                if self.captured_of.contains(&job.cluster) {
                    self.room.job_ended(job, started_ms, started_ms + exit.wall_us / 1_000);
                }
                self.job_over(job);
                if !exit.success() {
                    let item = self.words(job);
                    self.complain(job, &format!("job {job} failed: {}{item}", outcome(&exit)));
                } else if self.manner.quiet {
                    self.forget_error(job);
                }
            }
            Note::Removed(job) => {
                self.removed.insert(job);
                self.job_over(job);
            }
            Note::Again(job, reason) => self.say_again(job, &reason),
            Note::Cut(job, reason) => {
                if self.cut.note(job) {
                    self.complain(job, &format!("job {job} must run again: {reason}"));
                } else {
                    self.complain(job, &format!("job {job} is held: {reason}"));
                }
            }
            Note::Held(job, reason) => self.complain(job, &format!("job {job} is held: {reason}")),
        }
    }

    /// A job that had begun is begun again; the first of these are told one by one.
    fn say_again(&self, job: JobId, reason: &str) {
        if self.tally.again <= SHOWN {
            self.bar.suspend(|| errln!("updraft: job {job} is begun again: {reason}"));
        }
    }

    /// A job is over: its output, and that of those that waited for it, is passed on when its turn has come.
    fn job_over(&mut self, job: JobId) {
        let Some(echo) = &self.echo else { return };
        let Some(index) = self.clusters.iter().position(|(id, _)| *id == job.cluster) else { return };
        if self.manner.unordered {
            echo.add(job, !self.removed.contains(&job));
            return;
        }
        self.over.insert((index, job.proc));
        while self.over.remove(&self.turn) {
            let (index, proc) = self.turn;
            let (cluster, template) = &self.clusters[index];
            self.turn = if proc + 1 < template.procs { (index, proc + 1) } else { (index + 1, 0) };
            let job = JobId { cluster: *cluster, proc };
            echo.add(job, !self.removed.contains(&job));
        }
    }

    /// Nobody will ask what a job of a quiet run said that succeeded, and a million files are a million files.
    fn forget_error(&self, job: JobId) {
        if let Some(path) = path_in(&self.clusters, job, "Err").filter(|p| p.starts_with(&self.captured)) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Shows a failure with the end of the job's standard error.
    fn complain(&mut self, job: JobId, message: &str) {
        self.shown += 1;
        if self.shown > SHOWN {
            return;
        }
        // What is passed on need not be said twice.
        let is_passed_on = |path: &PathBuf| self.echo.is_some() && path.starts_with(&self.captured);
        let path = path_in(&self.clusters, job, "Err").filter(|path| !is_passed_on(path));
        let tail = path.map(|path| last_lines(&path)).unwrap_or_default();
        let lines: String = tail.iter().map(|l| format!("\n    {l}")).collect();
        self.bar.suspend(|| errln!("updraft: {message}{lines}"));
    }

    /// The job's command as one would type it, to tell it from its siblings.
    fn words(&self, job: JobId) -> String {
        let Some((_, template)) = self.clusters.iter().find(|(id, _)| *id == job.cluster) else {
            return String::new();
        };
        let text = |name: &str| text_of(template, job.cluster, job.proc, name).filter(|t| !t.is_empty());
        let new = text("Arguments").and_then(|w| args::split(Form::New, &w).ok());
        let words =
            new.or_else(|| text("Args").and_then(|w| args::split(Form::Old, &w).ok())).unwrap_or_default();
        let program = text("Cmd").map(|path| path.rsplit('/').next().unwrap_or(&path).to_owned());
        let typed: Vec<String> = program.into_iter().chain(words).map(|word| shell_word(&word)).collect();
        format!(" ({})", model::text::one_line(&typed.join(" "), 80))
    }

    async fn conclude(mut self, ending: impl FnOnce(Delivery) -> Ending) -> Ending {
        // Before what was printed is passed on and its room is free again.
        self.room.look(wall_ms(), room::is_there(&self.captured, self.room.is_full()));
        self.note_no_room();
        let mut delivery = Delivery::default();
        if let Some(echo) = self.echo.take() {
            // Behind a held job others may wait to be shown.
            for (index, proc) in std::mem::take(&mut self.over) {
                let job = JobId { cluster: self.clusters[index].0, proc };
                echo.add(job, !self.removed.contains(&job));
            }
            delivery = echo.finish().await;
        }
        self.bar.finish_and_clear();
        if self.room.has_suspects() {
            delivery = Delivery { is_partial: true, has_failed: true };
        }
        if let Some(words) = self.room.words(&self.captured).filter(|_| self.is_unseen) {
            errln!("updraft: {words}");
        }
        let t = &self.tally;
        if self.shown > SHOWN {
            errln!("updraft: and {} more failures like these", self.shown - SHOWN);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let mut parts = vec![format!("{} succeeded", t.succeeded)];
        let waiting = t.total.saturating_sub(t.done() + t.held());
        for (count, word) in
            [(t.failed, "failed"), (t.removed, "removed"), (t.held(), "held"), (waiting, "not started")]
        {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        if t.again > 0 {
            parts.push(format!(
                "begun again {}",
                if t.again == 1 { "once".to_owned() } else { format!("{} times", t.again) }
            ));
        }
        errln!("updraft: {}: {} in {seconds:.1} s", table::count(t.total, "job"), parts.join(", "));
        ending(delivery)
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

/// A word as a shell would want it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
