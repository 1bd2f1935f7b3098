//! Traces in the Standard Workload Format: each job becomes a gang of as many seats as it had processors, on a pool of
//! that many machines. The planner decides; the trace says how long jobs took.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::bits::Bits;
use planner::{Class, Decision, Planner, Rules, SEATS_MAX, Seat, SetId, Standing, System, Time, Want};
use serde::Serialize;

/// Most machines, and most jobs of a trace that are played.
const MACHINES_MAX: usize = 20_000;
const JOBS_MAX: usize = 1_000_000;

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
            });
        }
        trace.jobs.sort_by_key(|j| (j.submit, j.number));
        if trace.machines == 0 {
            trace.machines = trace.jobs.iter().map(|j| j.size).max().ok_or(Error::Size)?;
        }
        trace.machines = trace.machines.min(MACHINES_MAX);
        Ok(trace)
    }

    /// Plays a trace.
    pub fn play(&self) -> Report {
        let mut planner = Planner::new(Rules { quantum: Some(6 * 3600), ..Rules::default() });
        for number in 0..self.machines {
            planner.set_system(number, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        }
        let all = Arc::new((0..self.machines).collect::<Bits>());
        let mut report = Report { machines: self.machines, skipped: self.skipped, ..Report::default() };
        let mut ends: BTreeMap<(Time, usize), Vec<usize>> = BTreeMap::new();
        let mut waits: Vec<Time> = Vec::new();
        let mut busy = 0u128;
        let mut next = 0;
        let first = self.jobs.first().map_or(0, |j| j.submit);
        let mut last = first;
        loop {
            let submit = self.jobs.get(next).map(|j| j.submit);
            let end = ends.first_key_value().map(|((time, _), _)| *time);
            let Some(now) = submit.into_iter().chain(end).min() else { break };
            while let Some(entry) = ends.first_entry().filter(|e| e.key().0 <= now) {
                for number in entry.remove() {
                    planner.set_system(number, System { lab: 0, free: 1, size: 1, hard_end: 0 });
                }
                last = now;
            }
            while let Some(job) = self.jobs.get(next).filter(|j| j.submit <= now) {
                next += 1;
                if job.size > self.machines || job.size > SEATS_MAX {
                    report.too_large += 1;
                    continue;
                }
                // A job that ran longer than it asked for was let; planning with less would break every promise.
                let seat = Seat { viable: all.clone(), prefer: Vec::new() };
                planner.put(
                    Want {
                        id: SetId(next as u64),
                        class: Class::Normal,
                        standing: Standing::Age,
                        ages: true,
                        submitted: job.submit,
                        run: job.asked.unwrap_or(job.run).max(job.run),
                        may_backfill: job.asked.is_some(),
                        seats: vec![seat; job.size],
                        fits: None,
                    },
                    now,
                );
            }
            let mut decisions = planner.pass(now);
            while planner.is_due() {
                decisions.extend(planner.pass(now));
            }
            for decision in decisions {
                let Decision::Start(start) = decision else { continue };
                let index = start.set.0 as usize - 1;
                let job = &self.jobs[index];
                waits.push(now - job.submit);
                busy += u128::from(job.run) * job.size as u128;
                report.jobs += 1;
                report.backfilled += u64::from(!start.crossed.is_empty());
                ends.insert((now + job.run.max(1), index), start.systems);
            }
        }
        waits.sort_unstable();
        let at =
            |percent: usize| waits.get(waits.len() * percent / 100).or(waits.last()).copied().unwrap_or(0);
        report.makespan = last - first;
        report.utilisation = busy as f64 / (report.makespan.max(1) as f64 * self.machines as f64);
        report.wait_mean = waits.iter().map(|w| *w as f64).sum::<f64>() / waits.len().max(1) as f64;
        report.wait_p50 = at(50);
        report.wait_p99 = at(99);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    const TRACE: &str = "; MaxProcs: 4\n1 0 -1 100 2 -1 -1 2 100 -1 1 1 1 1 1 1 -1 -1\n\
        2 1 -1 100 4 -1 -1 4 100 -1 1 1 1 1 1 1 -1 -1\n3 2 -1 50 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n\
        4 3 -1 -1 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n";

    #[test]
    fn a_short_job_goes_before_a_wide_one_and_delays_nobody() {
        let trace = Trace::read(TRACE).unwrap();
        assert_eq!((trace.jobs.len(), trace.skipped, trace.machines), (3, 1, 4));
        let report = trace.play();
        assert_eq!((report.jobs, report.backfilled, report.makespan), (3, 1, 200));
        // 0, 99 (the wide one starts at 100) and 0.
        assert!((report.wait_mean - 33.0).abs() < 1e-9, "{report:?}");
        assert_eq!(report, trace.play());
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        assert!(Trace::read("1 2 3").unwrap_err().to_string().starts_with("line 1"));
        assert!(Trace::read("").is_err());
    }
}
