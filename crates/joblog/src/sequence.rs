//! Whether the events of a log make sense together.
//!
//! The rules are those a consumer may rely on; daemons that die write nothing, so some breaches are forgiven unless
//! one asks to be strict.

use std::collections::BTreeMap;

use crate::event::{Body, Event};

/// How much is forgiven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Forgives what real pools do: two starts in a row, an abort after the end, a doubled end, late size updates.
    Lenient,
    /// Forgives nothing.
    Strict,
}

/// Something that should not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Number of the event in the log, from 1.
    pub event: u64,
    /// Which job.
    pub cluster: i32,
    /// Which proc.
    pub proc: i32,
    /// What is wrong.
    pub message: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Job {
    submitted: bool,
    running: bool,
    suspended: bool,
    held: bool,
    ended: bool,
}

/// Watches the events of a log, in order.
#[derive(Debug, Clone)]
pub struct Checker {
    rules: Rules,
    jobs: BTreeMap<(i32, i32), Job>,
    seen: u64,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new(rules: Rules) -> Self {
        Self { rules, jobs: BTreeMap::new(), seen: 0 }
    }

    /// Looks at the next event.
    pub fn event(&mut self, event: &Event) -> Option<Breach> {
        self.seen += 1;
        if event.proc < 0 {
            return None;
        }
        let job = self.jobs.entry((event.cluster, event.proc)).or_default();
        let message = judge(job, &event.body, self.rules == Rules::Strict)?;
        Some(Breach { event: self.seen, cluster: event.cluster, proc: event.proc, message })
    }

    /// Jobs that were submitted and have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = (i32, i32)> {
        self.jobs.iter().filter(|(_, j)| !j.ended).map(|(id, _)| *id)
    }
}

fn judge(job: &mut Job, body: &Body, strict: bool) -> Option<String> {
    let before = *job;
    let mut message = None;
    let mut complain = |text: &str| message = message.take().or_else(|| Some(text.to_owned()));
    match body {
        Body::Submit { .. } => {
            if before.submitted {
                complain("submitted twice");
            }
            job.submitted = true;
        }
        Body::Generic { .. } | Body::AdInformation { .. } | Body::Other { .. } => return None,
        _ if !before.submitted => {
            // Say it once: the log may begin in the middle.
            job.submitted = true;
            complain("an event before the submit event");
        }
        _ => {}
    }
    let after_end = match body {
        Body::PostScriptTerminated { .. } | Body::Submit { .. } => false,
        Body::Aborted { .. } | Body::Terminated(_) | Body::ImageSize { .. } => before.ended && strict,
        _ => before.ended,
    };
    if after_end {
        complain("an event after the job's end");
    }
    match body {
        Body::Execute(_) => {
            if before.held {
                complain("started while held");
            } else if before.running && strict {
                complain("started twice without an end in between");
            }
            job.running = true;
            job.suspended = false;
        }
        Body::Evicted(_) | Body::ShadowException { .. } | Body::ReconnectFailed { .. } => {
            if !before.running && strict {
                complain("a run ended that had not begun");
            }
            job.running = false;
            job.suspended = false;
        }
        Body::Terminated(_) => {
            if !before.running && strict {
                complain("terminated without having run");
            }
            *job = Job { submitted: true, ended: true, ..Job::default() };
        }
        Body::Aborted { .. } => *job = Job { submitted: true, ended: true, ..Job::default() },
        Body::Suspended { .. } => {
            if !before.running || before.suspended {
                complain("suspended while not running");
            }
            job.suspended = true;
        }
        Body::Unsuspended => {
            if !before.suspended {
                complain("unsuspended without having been suspended");
            }
            job.suspended = false;
        }
        Body::Held { .. } => {
            if before.held {
                complain("held twice");
            }
            *job = Job { submitted: true, held: true, ended: before.ended, ..Job::default() };
        }
        Body::Released { .. } => {
            // A job submitted on hold writes no held event.
            if !before.held && strict {
                complain("released without having been held");
            }
            job.held = false;
        }
        _ => {}
    }
    message
}
