//! A pool's journal played again under another configuration: the same submits at the same times, jobs that take as long as they
//! did, machines as large as they were seen to be, what people did to their jobs and an administrator to the order.
//!
//! The journal keeps no machine's ad, so that nobody can say which machines would have suited a job: here every machine that is large
//! enough does. What a machine never had in use at once it does not have here either, and clusters from before the time
//! from which is asked are left out, on both sides of the comparison.

use std::collections::{BTreeMap, HashMap, HashSet};

use classad::ClassAd;
use model::event::{Exit, Kind, PrioritySet, Resources};
use model::report::Attempt;
use model::{Class, Event, JobId, JobName, JobTemplate, ProcSet};
use scheduler::{Act, Actor, Core, Settings, Submission, Which};
use serde::Serialize;

use crate::drive::{Drive, Story};
use crate::measure::{Answers, Measure};
use crate::swf::machine_ad;

/// Runs of jobs that nobody saw end.
const UNSEEN_MS: u64 = 60_000;
/// HoldReasonCode of jobs that their user holds.
const BY_USER: u32 = 1;
/// A replay in which nothing ends for so long stands still.
const STILL_MS: u64 = 7 * 86_400_000;

/// What somebody did, and when.
#[derive(Debug, Clone)]
enum Deed {
    Submit { cluster: u32, owner: String, template: Box<JobTemplate> },
    Act { act: Act, cluster: u32, procs: ProcSet },
    Prioritise(PrioritySet),
}

/// A machine as the journal shows it.
#[derive(Debug, Clone, Default)]
struct Seen {
    lab: String,
    /// The most that was in use at once.
    most: Resources,
    now: Resources,
}

/// What a journal says of a pool's work.
#[derive(Debug, Default)]
pub struct Recording {
    since_ms: u64,
    deeds: Vec<(u64, Deed)>,
    machines: BTreeMap<String, Seen>,
    claims: HashMap<u64, (String, Resources)>,
    clusters: HashSet<u32>,
    /// How long jobs ran that ended by themselves.
    runs: HashMap<JobId, (u64, Exit)>,
    measure: Measure,
}

/// Both sides.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Comparison {
    /// Machines, and their cores.
    pub machines: usize,
    /// See `machines`.
    pub cores: u64,
    /// What the pool did.
    pub recorded: Answers,
    /// What it would have done.
    pub replayed: Answers,
    /// Submits that the new configuration refuses.
    pub refused: u64,
    /// Cores in use from each moment on, in milliseconds from the first submit, on both sides.
    #[serde(skip)]
    pub curves: [Vec<(u64, i64)>; 2],
}

fn plus(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus + b.cpus,
        memory_mib: a.memory_mib + b.memory_mib,
        disk_kib: a.disk_kib + b.disk_kib,
        gpus: a.gpus + b.gpus,
    }
}

fn minus(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.saturating_sub(b.cpus),
        memory_mib: a.memory_mib.saturating_sub(b.memory_mib),
        disk_kib: a.disk_kib.saturating_sub(b.disk_kib),
        gpus: a.gpus.saturating_sub(b.gpus),
    }
}

fn larger(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.max(b.cpus),
        memory_mib: a.memory_mib.max(b.memory_mib),
        disk_kib: a.disk_kib.max(b.disk_kib),
        gpus: a.gpus.max(b.gpus),
    }
}

impl Recording {
    /// Nothing yet; only clusters that were submitted from then on (Unix milliseconds) will count.
    pub fn since(since_ms: u64) -> Self {
        Self { since_ms, ..Self::default() }
    }

    /// The next event of the journal.
    pub fn note(&mut self, event: &Event) {
        let at_ms = event.time_ms;
        match &event.kind {
            Some(Kind::ClaimMade(e)) => {
                let seen = self.machines.entry(e.machine.clone()).or_default();
                seen.lab.clone_from(&e.lab);
                seen.now = plus(seen.now, e.resources);
                seen.most = larger(seen.most, seen.now);
                self.claims.insert(e.claim, (e.machine.clone(), e.resources));
            }
            Some(Kind::ClaimEnded(e)) => {
                if let Some((machine, held)) = self.claims.remove(&e.claim)
                    && let Some(seen) = self.machines.get_mut(&machine)
                {
                    seen.now = minus(seen.now, held);
                }
            }
            Some(Kind::ClusterSubmitted(e)) if at_ms >= self.since_ms => {
                self.clusters.insert(e.cluster);
                let (owner, template) = (e.owner.clone(), Box::new(e.template.clone()));
                self.deeds.push((at_ms, Deed::Submit { cluster: e.cluster, owner, template }));
            }
            Some(Kind::JobExited(e)) => {
                let job = JobId { cluster: e.cluster, proc: e.proc };
                self.runs.insert(job, (e.exit.wall_us / 1_000, e.exit));
            }
            Some(Kind::PrioritySet(e)) => self.deeds.push((at_ms, Deed::Prioritise(e.clone()))),
            Some(Kind::ClusterReordered(e)) => {
                let class = e.class.as_deref().and_then(Class::from_name);
                let act = Act::Reorder { priority: e.priority, class };
                self.do_to(at_ms, act, e.cluster, ProcSet::default());
            }
            Some(Kind::JobsHeld(e)) if e.code == BY_USER => {
                self.do_to(at_ms, Act::Hold, e.cluster, e.procs.iter().collect());
            }
            Some(Kind::JobsReleased(e)) => {
                self.do_to(at_ms, Act::Release, e.cluster, e.procs.iter().collect())
            }
            Some(Kind::JobsRemoved(e)) => self.do_to(at_ms, Act::Remove, e.cluster, e.procs.iter().collect()),
            _ => {}
        }
        let submitted = matches!(&event.kind, Some(Kind::ClusterSubmitted(_)));
        if !submitted || at_ms >= self.since_ms {
            self.measure.note(event);
        }
    }

    fn do_to(&mut self, at_ms: u64, act: Act, cluster: u32, procs: ProcSet) {
        if self.clusters.contains(&cluster) {
            self.deeds.push((at_ms, Deed::Act { act, cluster, procs }));
        }
    }

    /// Plays it again under these settings.
    pub fn replay(self, settings: Settings) -> Result<Comparison, String> {
        let Some(first_ms) = self.deeds.iter().find(|(_, d)| matches!(d, Deed::Submit { .. })).map(|d| d.0)
        else {
            return Err("the journal has no submit in that time".to_owned());
        };
        let machines: Vec<(String, Seen)> =
            self.machines.into_iter().filter(|(_, seen)| seen.most.cpus > 0).collect();
        let cores: u64 = machines.iter().map(|(_, seen)| u64::from(seen.most.cpus)).sum();
        let known: Vec<u64> = self.runs.values().map(|(ms, _)| *ms).collect();
        let usual_ms = known.iter().sum::<u64>().checked_div(known.len() as u64).unwrap_or(UNSEEN_MS);
        let story = Again { runs: self.runs, usual_ms, ..Again::default() };
        let mut drive = Drive::new(Core::new(settings), story, first_ms.saturating_sub(1_000), || 0);
        for (name, seen) in &machines {
            let mut ad = machine_ad(name);
            ad.set("Memory", seen.most.memory_mib as i64);
            if !seen.lab.is_empty() {
                ad.set("Lab", seen.lab.as_str());
            }
            drive.connect(name, seen.most, ad, None);
        }
        let end_ms = self.deeds.last().map_or(first_ms, |d| d.0);
        for (at, (at_ms, _)) in self.deeds.iter().enumerate() {
            // What an administrator had decided before is so from the beginning.
            drive.call_back((*at_ms).max(drive.now.wall_ms + 1), at as u64);
        }
        let (mut left, mut refused) = (self.deeds.len(), 0);
        while left > 0 || drive.story.open > 0 {
            if left == 0 && drive.now.wall_ms > drive.story.ended_ms.max(end_ms) + STILL_MS {
                break;
            }
            let Some(at) = drive.advance(drive.now.wall_ms + 3_600_000) else { continue };
            left -= 1;
            refused += u64::from(!drive.repeat(&self.deeds[at as usize].1));
        }
        let curves = [self.measure.in_use(), drive.story.measure.in_use()];
        Ok(Comparison {
            machines: machines.len(),
            cores,
            recorded: self.measure.answers(cores),
            replayed: drive.story.measure.answers(cores),
            refused,
            curves,
        })
    }
}

/// The jobs as they were, and what becomes of them now.
#[derive(Debug, Default)]
struct Again {
    runs: HashMap<JobId, (u64, Exit)>,
    usual_ms: u64,
    /// What clusters were called in the recording, and what they are called now.
    was: HashMap<u32, u32>,
    is: HashMap<u32, u32>,
    next: u32,
    open: u64,
    ended_ms: u64,
    measure: Measure,
}

impl Story for Again {
    fn run(&mut self, job: Attempt) -> (u64, Exit) {
        let was = self.was.get(&job.cluster).map(|cluster| JobId { cluster: *cluster, proc: job.proc });
        let usual = (self.usual_ms, Exit { code: Some(0), ..Exit::default() });
        let (ms, exit) = was.and_then(|job| self.runs.get(&job).copied()).unwrap_or(usual);
        (ms.max(1), exit)
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
                    self.was.insert(e.cluster, self.next);
                    self.is.insert(self.next, e.cluster);
                    self.open += u64::from(e.template.procs);
                }
                Some(Kind::JobExited(_)) => {
                    self.open = self.open.saturating_sub(1);
                    self.ended_ms = event.time_ms;
                }
                Some(Kind::JobsRemoved(e)) => {
                    let procs: ProcSet = e.procs.iter().collect();
                    self.open = self.open.saturating_sub(procs.len());
                }
                _ => {}
            }
            self.measure.note(event);
        }
    }
}

/// What a job looks for in a machine is not known any more.
fn undemanding(template: &JobTemplate) -> JobTemplate {
    let mut template = template.clone();
    for name in ["Rank", "Trees"] {
        template.remove(name);
    }
    template.set("Requirements", "true");
    template
}

impl Drive<Again> {
    /// Somebody does again what he did; false when it is refused.
    fn repeat(&mut self, deed: &Deed) -> bool {
        let admin = Actor { user: "root".to_owned(), any_owner: true };
        match deed {
            Deed::Submit { cluster, owner, template } => {
                self.story.next = *cluster;
                let (owner, template) = (owner.clone(), undemanding(template));
                self.submit(Submission { owner, template, idempotency_key: String::new() }).is_ok()
            }
            Deed::Prioritise(set) => {
                self.set_priority(set.clone());
                true
            }
            Deed::Act { act, cluster, procs } => {
                let Some(&cluster) = self.story.is.get(cluster) else { return true };
                if procs.is_empty() {
                    let _ = self.act(&admin, *act, &Which::Named(JobName::Cluster(cluster)));
                }
                for proc in procs.iter() {
                    let which = Which::Named(JobName::Job(JobId { cluster, proc }));
                    // It may be over by now, which it was not then.
                    let _ = self.act(&admin, *act, &which);
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_MS: u64 = 1_700_000_000_000;

    /// Jobs whose length follows from their numbers, and all that was recorded.
    #[derive(Default)]
    struct First(Vec<Event>);

    impl Story for First {
        fn run(&mut self, job: Attempt) -> (u64, Exit) {
            (
                u64::from(20_000 + job.cluster * 7_000 + job.proc * 300),
                Exit { code: Some(0), ..Exit::default() },
            )
        }

        fn ad(&self, _: Attempt) -> ClassAd {
            ClassAd::new()
        }

        fn note(&mut self, events: Vec<Event>) {
            self.0.extend(events);
        }

        fn leaves_ms(&mut self, _: Attempt) -> u64 {
            1
        }
    }

    /// The journal of a pool of two machines: plain jobs of two users, gangs, a class that is given, a removal.
    fn journal() -> Vec<Event> {
        let mut drive = Drive::new(Core::new(Settings::default()), First::default(), BEGIN_MS, || 0);
        let total = Resources { cpus: 2, memory_mib: 4_096, disk_kib: 1 << 20, gpus: 0 };
        drive.connect("a", total, machine_ad("a"), None);
        drive.connect("b", total, machine_ad("b"), None);
        for number in 0..12 {
            drive.advance(BEGIN_MS + 1_000 + number * 9_000);
            let mut template = JobTemplate { procs: 3, per_row: 3, ..JobTemplate::default() };
            template.set("Cmd", "\"/bin/true\"");
            template.set("Requirements", "TARGET.Arch == \"X86_64\"");
            template.set("RequestMemory", "1");
            if number % 4 == 3 {
                template.set("Gang", "true");
            }
            let owner = ["ann", "bob"][number as usize % 2].to_owned();
            let cluster =
                drive.submit(Submission { owner, template, idempotency_key: String::new() }).unwrap();
            let admin = Actor { user: "root".to_owned(), any_owner: true };
            let which = Which::Named(JobName::Cluster(cluster));
            if number == 7 {
                let act = Act::Reorder { priority: None, class: Some(Class::High) };
                drive.act(&admin, act, &which).unwrap();
            } else if number == 9 {
                drive.act(&admin, Act::Remove, &which).unwrap();
            }
        }
        drive.advance(BEGIN_MS + 3_600_000);
        drive.story.0
    }

    fn recording(since_ms: u64) -> Recording {
        let mut recording = Recording::since(since_ms);
        for event in journal() {
            recording.note(&event);
        }
        recording
    }

    #[test]
    fn the_same_configuration_gives_the_same_answers() {
        let both = recording(0).replay(Settings::default()).unwrap();
        assert_eq!((both.machines, both.cores, both.refused), (2, 4, 0));
        assert_eq!((both.recorded.jobs, both.recorded.ended), (36, 33));
        assert!(both.recorded.promises_kept > 0 && both.recorded.classes["High"].began == 3, "{both:?}");
        assert_eq!(both.recorded, both.replayed);
        assert_eq!(both.curves[0], both.curves[1]);
    }

    #[test]
    fn another_configuration_changes_whose_turn_it_is() {
        let lab = scheduler::Limits { named: HashMap::new(), default: 1.0 };
        let both = recording(0).replay(Settings { limits: lab, ..Settings::default() }).unwrap();
        assert_eq!(both.recorded, both.replayed, "nobody takes of a limit");
        let mut shares = scheduler::Shares::default();
        shares.factor *= 2.0;
        let aging = Settings { reservation_depth: 1, aging_s: Some(10), shares, ..Settings::default() };
        let both = recording(0).replay(aging).unwrap();
        assert_ne!(both.recorded.users, both.replayed.users, "gangs that age go before");
        assert_eq!(both.recorded.ended, both.replayed.ended);
    }

    #[test]
    fn what_was_submitted_before_counts_on_neither_side() {
        let both = recording(BEGIN_MS + 50_000).replay(Settings::default()).unwrap();
        assert_eq!((both.recorded.jobs, both.replayed.jobs), (18, 18));
        assert!(recording(u64::MAX).replay(Settings::default()).is_err());
    }
}
