//! Who submits what on a fleet's day, how long it takes, and what becomes of it.

use std::collections::HashMap;

use classad::ClassAd;
use model::event::{Exit, Kind};
use model::report::Attempt;
use model::{Event, JobTemplate};
use scheduler::Submission;

use crate::drive::Story;
use crate::random::Random;
use crate::spread::Spread;

/// Kinds of jobs, and users.
const KINDS: u64 = 1_000;
const USERS: u64 = 200;
/// Jobs in a cluster, on average, and how many clusters come with one gang.
const CLUSTER: u64 = 50;
const PER_GANG: u64 = 25;
/// Seats of the largest gang.
const SEATS: u64 = 64;

/// A cluster that is or will be submitted.
#[derive(Debug, Clone, Copy)]
struct Planned {
    after_ms: u32,
    procs: u16,
    kind: u16,
    gang: bool,
}

/// A kind of jobs.
#[derive(Debug)]
struct KindOfJob {
    cpus: u32,
    template: JobTemplate,
    ad: ClassAd,
}

/// A cluster that was submitted.
#[derive(Debug)]
struct Open {
    number: u64,
    submitted_ms: u64,
}

/// The work of a day.
#[derive(Debug)]
pub(super) struct Work {
    planned: Vec<Planned>,
    kinds: Vec<KindOfJob>,
    mean_ms: f64,
    seed: u64,
    next: u64,
    open: HashMap<u32, Open>,
    /// Attempts that run, with when they began.
    running: HashMap<(u32, u32), u64>,
    busy_ms: f64,
    pub(super) submitted: u64,
    pub(super) refused: u64,
    pub(super) gangs: u64,
    pub(super) gangs_begun: u64,
    pub(super) starts: u64,
    pub(super) ended: u64,
    pub(super) requeued: u64,
    pub(super) waits: Spread,
    pub(super) gang_waits: Spread,
}

fn kind_of_job(number: u64, random: &mut Random) -> KindOfJob {
    let cpus = [1, 1, 1, 1, 1, 1, 1, 2, 2, 4][random.below(10) as usize];
    let memory = 128 * (1 + random.below(8)) * cpus;
    let owner = format!("user{}", number % USERS);
    let mut template = JobTemplate { procs: 1, per_row: 1, ..JobTemplate::default() };
    template.set("Cmd", "\"/bin/work\"");
    template.set("RequestCpus", cpus.to_string());
    template.set("RequestMemory", memory.to_string());
    template.set("JobUniverse", "5");
    let generation = random.below(3);
    let wants = format!(
        "TARGET.Arch == \"X86_64\" && TARGET.Memory >= RequestMemory && TARGET.Generation >= {generation}"
    );
    template.set("Requirements", wants);
    let mut ad = ClassAd::new();
    ad.set("Owner", owner.as_str());
    ad.set("User", owner.as_str());
    ad.set("JobUniverse", 5);
    ad.set("RequestCpus", cpus as i64);
    ad.set("RequestMemory", memory as i64);
    KindOfJob { cpus: cpus as u32, template, ad }
}

/// When within a day something happens: most in the middle of it.
fn moment(random: &mut Random, span_ms: u64) -> u32 {
    loop {
        let at = random.below(span_ms);
        let phase = at as f64 / span_ms as f64 * std::f64::consts::TAU;
        if (random.below(1_000) as f64) < 1_000.0 * (0.75 - 0.25 * phase.cos()) {
            return at as u32;
        }
    }
}

impl Work {
    /// So many jobs, which together take so many milliseconds of cores.
    pub(super) fn new(random: &mut Random, jobs: u64, span_ms: u64, core_ms: f64) -> Self {
        let kinds: Vec<KindOfJob> = (0..KINDS).map(|number| kind_of_job(number, random)).collect();
        let (mut planned, mut left, mut cores) = (Vec::new(), jobs, 0);
        while left > 0 {
            let gang = random.below(PER_GANG) == 0;
            let most = if gang { SEATS } else { 2 * CLUSTER - 1 };
            let procs = (1 + random.below(most)).min(left);
            left -= procs;
            let kind = random.below(KINDS);
            cores += procs * u64::from(kinds[kind as usize].cpus);
            let after_ms = moment(random, span_ms);
            planned.push(Planned { after_ms, procs: procs as u16, kind: kind as u16, gang });
        }
        planned.sort_unstable_by_key(|p| p.after_ms);
        Self {
            planned,
            kinds,
            mean_ms: core_ms / cores.max(1) as f64,
            seed: random.next_number(),
            next: 0,
            open: HashMap::new(),
            running: HashMap::new(),
            busy_ms: 0.0,
            submitted: 0,
            refused: 0,
            gangs: 0,
            gangs_begun: 0,
            starts: 0,
            ended: 0,
            requeued: 0,
            waits: Spread::default(),
            gang_waits: Spread::default(),
        }
    }

    pub(super) fn clusters(&self) -> u64 {
        self.planned.len() as u64
    }

    pub(super) fn submitted_after_ms(&self, number: u64) -> u64 {
        u64::from(self.planned[number as usize].after_ms)
    }

    /// This cluster is the next that the journal tells of.
    pub(super) fn begins(&mut self, number: u64) {
        self.next = number;
        let planned = self.planned[number as usize];
        self.submitted += u64::from(planned.procs);
        self.gangs += u64::from(planned.gang);
    }

    pub(super) fn submission(&self, number: u64) -> Submission {
        let planned = self.planned[number as usize];
        let mut template = self.kinds[usize::from(planned.kind)].template.clone();
        (template.procs, template.per_row) = (planned.procs.into(), planned.procs.into());
        // Jobs that are submitted one after another differ in that, too.
        template.set("Args", format!("\"--run {number}\""));
        if planned.gang {
            template.set("Gang", "true");
        }
        if number.is_multiple_of(2) {
            // As people do it: three times as long as the longest takes.
            template.set("AllowedExecuteDuration", ((self.mean_ms * 6.0 / 1e3) as u64).max(60).to_string());
        }
        let owner = format!("user{}", u64::from(planned.kind) % USERS);
        Submission { owner, template, idempotency_key: String::new() }
    }

    /// Milliseconds of cores that jobs had until now.
    pub(super) fn busy_ms(&self, now_ms: u64) -> f64 {
        let running =
            self.running.iter().map(|((cluster, _), began)| (now_ms - began) as f64 * self.cpus_of(*cluster));
        self.busy_ms + running.sum::<f64>()
    }

    fn planned_as(&self, cluster: u32) -> Option<Planned> {
        self.planned.get(self.open.get(&cluster)?.number as usize).copied()
    }

    fn cpus_of(&self, cluster: u32) -> f64 {
        let kind = self.planned_as(cluster).map(|p| usize::from(p.kind));
        kind.map_or(0.0, |kind| f64::from(self.kinds[kind].cpus))
    }

    fn over(&mut self, cluster: u32, proc: u32, at_ms: u64) {
        if let Some(began) = self.running.remove(&(cluster, proc)) {
            self.busy_ms += at_ms.saturating_sub(began) as f64 * self.cpus_of(cluster);
        }
    }
}

impl Story for Work {
    fn run(&mut self, job: Attempt) -> (u64, Exit) {
        let of = u64::from(job.cluster) << 32 | u64::from(job.proc);
        let mut random = Random::new(self.seed ^ of);
        // From a fifth of the mean to twice as long, and that is the mean.
        let part = if random.percent(50) {
            0.2 + 0.6 * random.below(1_000) as f64 / 1e3
        } else {
            1.0 + random.below(1_000) as f64 / 1e3
        };
        let exit = Exit { code: Some(u32::from(random.percent(2))), ..Exit::default() };
        ((self.mean_ms * part) as u64 + 1, exit)
    }

    fn ad(&self, job: Attempt) -> ClassAd {
        let kind = self.planned_as(job.cluster).map(|p| usize::from(p.kind));
        kind.map(|kind| self.kinds[kind].ad.clone()).unwrap_or_default()
    }

    fn leaves_ms(&mut self, job: Attempt) -> u64 {
        Random::new(!self.seed ^ u64::from(job.proc)).below(20_000)
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in events {
            let at_ms = event.time_ms;
            match event.kind {
                Some(Kind::ClusterSubmitted(e)) => {
                    self.open.insert(e.cluster, Open { number: self.next, submitted_ms: at_ms });
                }
                Some(Kind::JobStarted(e)) => {
                    self.starts += 1;
                    self.running.insert((e.cluster, e.proc), at_ms);
                    let gang = self.planned_as(e.cluster).is_some_and(|p| p.gang);
                    if e.attempt == 1 {
                        let wait = at_ms - self.open.get(&e.cluster).map_or(at_ms, |o| o.submitted_ms);
                        if gang { &mut self.gang_waits } else { &mut self.waits }.add(wait);
                    }
                    self.gangs_begun += u64::from(gang && e.proc == 0 && e.attempt == 1);
                }
                Some(Kind::JobExited(e)) => {
                    self.ended += 1;
                    self.over(e.cluster, e.proc, at_ms);
                }
                Some(Kind::JobsRequeued(e)) => {
                    for proc in e.procs.iter().flat_map(|span| span.procs()) {
                        self.requeued += 1;
                        self.over(e.cluster, proc, at_ms);
                    }
                }
                _ => {}
            }
        }
    }
}
