//! Traces in the Standard Workload Format: each job becomes a gang of as many seats as it had processors (one of one processor a
//! plain job), of its user and group, on a pool of as many machines. The pool's own core decides; the trace says how long jobs took.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use classad::ClassAd;
use model::event::{Exit, Kind, Resources};
use model::report::Attempt;
use model::{Event, JobTemplate};
use planner::Time;
use scheduler::{Core, SEATS_MAX, Settings, Submission};
use serde::Serialize;

use crate::drive::{BEGIN_MS, Drive, Story};
use crate::measure::{Measure, Served};
use crate::spread::Spread;

/// Most machines, and most jobs of a trace that are played.
const MACHINES_MAX: usize = 20_000;
const JOBS_MAX: usize = 1_000_000;
/// A pool in which nothing ends for so long stands still.
const STILL_MS: u64 = 90 * 86_400_000;

/// Why a trace cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line is not of the format.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Nobody said how large the pool is.
    #[error("the trace names no MaxProcs or MaxNodes and has no job: how many machines?")]
    Size,
}

/// One job of a trace, times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number in the trace.
    pub number: u64,
    /// When it was submitted.
    pub submit: Time,
    /// How long it took.
    pub run: Time,
    /// Processors.
    pub size: usize,
    /// How long it said it would take.
    pub asked: Option<Time>,
    /// Whose it was; 0 when nobody says.
    pub user: u64,
    /// Of which group; 0 when nobody says.
    pub group: u64,
}

/// A trace.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// In the order of submission.
    pub jobs: Vec<Job>,
    /// From the header, else the largest job.
    pub machines: usize,
    /// Lines that say nothing that can be played: no run time or no processors.
    pub skipped: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct Report {
    /// Machines.
    pub machines: usize,
    /// Jobs that ran.
    pub jobs: u64,
    /// Jobs that are larger than the pool, or than a gang may be.
    pub too_large: u64,
    /// Lines that could not be played.
    pub skipped: u64,
    /// Seconds from the first submit to the last end.
    pub makespan: Time,
    /// Share of machine time that jobs ran.
    pub utilisation: f64,
    /// Mean seconds from submit to start.
    pub wait_mean: f64,
    /// Half waited no longer.
    pub wait_p50: Time,
    /// One in a hundred waited longer.
    pub wait_p99: Time,
    /// Jobs that started before their turn, under a promise.
    pub backfilled: u64,
    /// Processes that never ended: the pool stood still.
    pub unfinished: u64,
    /// How users were served.
    pub users: BTreeMap<String, Served>,
}

impl Trace {
    /// Reads a trace.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut trace = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix(';') {
                if let Some((name, value)) = comment.split_once(':')
                    && matches!(name.trim(), "MaxProcs" | "MaxNodes")
                    && let Ok(size) = value.trim().parse::<usize>()
                {
                    trace.machines = trace.machines.max(size);
                }
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let bad = |what: String| Error::Line { line: index + 1, what };
            let fields: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
            let fields = fields.map_err(|_| bad("a field is no number".to_owned()))?;
            if fields.len() < 9 {
                return Err(bad(format!("{} fields; a job has 18", fields.len())));
            }
            let size = if fields[4] > 0.0 { fields[4] } else { fields[7] };
            if fields[3] < 0.0 || size < 1.0 || fields[1] < 0.0 {
                trace.skipped += 1;
                continue;
            }
            if trace.jobs.len() >= JOBS_MAX {
                return Err(bad(format!("more than {JOBS_MAX} jobs")));
            }
            trace.jobs.push(Job {
                number: fields[0] as u64,
                submit: fields[1] as Time,
                run: fields[3] as Time,
                size: size as usize,
                asked: (fields[8] > 0.0).then_some(fields[8] as Time),
                user: fields.get(11).map_or(0, |n| n.max(0.0) as u64),
                group: fields.get(12).map_or(0, |n| n.max(0.0) as u64),
            });
        }
        trace.jobs.sort_by_key(|j| (j.submit, j.number));
        if trace.machines == 0 {
            trace.machines = trace.jobs.iter().map(|j| j.size).max().ok_or(Error::Size)?;
        }
        trace.machines = trace.machines.min(MACHINES_MAX);
        Ok(trace)
    }

    /// Plays a trace on the pool's own core, under these settings.
    pub fn play(&self, settings: Settings) -> Report {
        let groups: BTreeSet<String> = settings.shares.groups.iter().map(|g| g.name.clone()).collect();
        let mut drive = Drive::new(Core::new(settings), Runs::default(), BEGIN_MS, || 0);
        for number in 0..self.machines {
            let name = format!("m{number:05}");
            let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
            drive.connect(&name, total, machine_ad(&name), None);
        }
        let first = self.jobs.first().map_or(0, |j| j.submit);
        let at_ms = |seconds: Time| BEGIN_MS + 1_000 + (seconds - first) * 1_000;
        for (index, job) in self.jobs.iter().enumerate() {
            drive.call_back(at_ms(job.submit), index as u64);
        }
        let mut too_large = 0;
        let mut left = self.jobs.len();
        let mut until_ms = BEGIN_MS;
        while left > 0 || drive.story.open > 0 {
            // What cannot be played for ever is not: a day without any end is a pool that stands still.
            let ended = drive.story.ended_ms;
            if left == 0 && until_ms > ended.max(at_ms(self.jobs.last().map_or(0, |j| j.submit))) + STILL_MS {
                break;
            }
            until_ms = drive.now.wall_ms + 3_600_000;
            let Some(index) = drive.advance(until_ms) else { continue };
            left -= 1;
            let job = &self.jobs[index as usize];
            if job.size > self.machines || job.size > SEATS_MAX {
                too_large += 1;
                continue;
            }
            drive.story.next = Some(job.run);
            let submission = job.submission(&groups);
            if drive.submit(submission).is_err() {
                drive.story.next = None;
                too_large += 1;
            }
        }
        drive.story.report(self, too_large)
    }
}

impl Job {
    fn submission(&self, groups: &BTreeSet<String>) -> Submission {
        let procs = self.size as u32;
        let mut template = JobTemplate { procs, per_row: procs, ..JobTemplate::default() };
        template.set("Cmd", "\"/bin/trace\"");
        template.set("JobUniverse", "5");
        template.set("Requirements", "true");
        template.set("RequestCpus", "1");
        template.set("RequestMemory", "1");
        template.set("RequestDisk", "1");
        if procs > 1 {
            template.set("Gang", "true");
        }
        if let Some(asked) = self.asked {
            // A job that ran longer than it asked for was let; planning with less would break every promise. One that ends in the
            // second of its limit has passed it.
            template.set("AllowedExecuteDuration", asked.max(self.run.max(1) + 1).to_string());
        }
        let group = format!("g{}", self.group);
        if groups.contains(&group) {
            template.set("AcctGroup", model::text::quote(&group));
        }
        Submission { owner: format!("u{}", self.user), template, idempotency_key: String::new() }
    }
}

/// How long the jobs of a trace take, and all that was recorded.
#[derive(Default)]
struct Runs {
    measure: Measure,
    /// How long the jobs of the cluster take that is submitted next.
    next: Option<Time>,
    /// How long those of each cluster take, in seconds.
    run_s: HashMap<u32, Time>,
    /// Jobs that are not over.
    open: u64,
    ended_ms: u64,
    busy_s: u128,
}

impl Story for Runs {
    fn run(&mut self, job: Attempt) -> (u64, Exit) {
        let run_s = self.run_s.get(&job.cluster).copied().unwrap_or(0);
        (run_s.max(1) * 1_000, Exit { code: Some(0), ..Exit::default() })
    }

    fn ad(&self, _: Attempt) -> ClassAd {
        ClassAd::new()
    }

    fn leaves_ms(&mut self, _: Attempt) -> u64 {
        1
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in &events {
            match &event.kind {
                Some(Kind::ClusterSubmitted(e)) => {
                    self.run_s.insert(e.cluster, self.next.take().unwrap_or(0));
                    self.open += u64::from(e.template.procs);
                }
                Some(Kind::JobExited(e)) => {
                    self.open -= 1;
                    self.ended_ms = event.time_ms;
                    self.busy_s += u128::from(self.run_s.get(&e.cluster).copied().unwrap_or(0));
                }
                _ => {}
            }
            self.measure.note(event);
        }
    }
}

impl Runs {
    fn report(self, trace: &Trace, too_large: u64) -> Report {
        let (busy_s, unfinished, clusters) = (self.busy_s, self.open, self.measure.first_waits_s());
        let backfilled = self.measure.backfilled_clusters();
        let answers = self.measure.answers(trace.machines as u64);
        let mut waits = Spread::default();
        for wait in clusters {
            waits.add(wait);
        }
        let makespan = answers.makespan_s.round() as Time;
        Report {
            machines: trace.machines,
            jobs: waits.len(),
            too_large,
            skipped: trace.skipped,
            makespan,
            utilisation: busy_s as f64 / (makespan.max(1) as f64 * trace.machines as f64),
            wait_mean: waits.mean(),
            wait_p50: waits.percentile(50.0),
            wait_p99: waits.percentile(99.0),
            backfilled,
            unfinished,
            users: answers.users,
        }
    }
}

/// What every machine of a trace says of itself.
pub(crate) fn machine_ad(name: &str) -> ClassAd {
    let mut ad = ClassAd::new();
    ad.set("Name", name);
    ad.set("Machine", name);
    ad.set("Arch", "X86_64");
    ad.set("OpSys", "LINUX");
    ad.set("Requirements", true);
    ad
}

#[cfg(test)]
mod tests {
    use super::Trace;
    use scheduler::Settings;

    const TRACE: &str = "; MaxProcs: 4\n1 0 -1 100 2 -1 -1 2 100 -1 1 1 1 1 1 1 -1 -1\n\
        2 1 -1 100 4 -1 -1 4 100 -1 1 1 1 1 1 1 -1 -1\n3 2 -1 50 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n\
        4 3 -1 -1 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n";

    #[test]
    fn a_short_job_goes_before_a_wide_one_and_delays_nobody() {
        let trace = Trace::read(TRACE).unwrap();
        assert_eq!((trace.jobs.len(), trace.skipped, trace.machines), (3, 1, 4));
        let report = trace.play(Settings::default());
        assert_eq!((report.jobs, report.backfilled, report.makespan, report.unfinished), (3, 1, 200, 0));
        // 0, 99 (the wide one starts at 100) and 0.
        assert!((report.wait_mean - 33.0).abs() < 1e-9, "{report:?}");
        assert_eq!(report, trace.play(Settings::default()));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        assert!(Trace::read("1 2 3").unwrap_err().to_string().starts_with("line 1"));
        assert!(Trace::read("").is_err());
    }
}
