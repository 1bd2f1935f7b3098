//! What a journal says about how a pool served its users: waits by user and class, who had how much, what was in use, who was sent
//! away, which promises were kept. The same questions are asked of a journal that a pool wrote and of one that a simulation did.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::event::Kind;
use model::{Class, Event};
use serde::Serialize;

use crate::spread::Spread;

/// A promise that moves by no more than this is not told again, so that a start so much later keeps it.
const NEWS_S: u64 = 60;

/// How some jobs were served.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct Served {
    /// Jobs that began.
    pub began: u64,
    /// Mean seconds from submit to the first begin.
    pub wait_mean_s: f64,
    /// Half waited no longer.
    pub wait_p50_s: f64,
    /// One in a hundred waited longer.
    pub wait_p99_s: f64,
    /// Hours of cores that claims held.
    pub core_hours: f64,
    /// Part of all such hours.
    pub share: f64,
}

/// The answers.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct Answers {
    /// Jobs that were submitted.
    pub jobs: u64,
    /// Jobs that ended by themselves.
    pub ended: u64,
    /// Seconds from the first submit to the last end.
    pub makespan_s: f64,
    /// Part of the machines' cores that claims held, on average over that time.
    pub utilisation: f64,
    /// By user.
    pub users: BTreeMap<String, Served>,
    /// By class.
    pub classes: BTreeMap<String, Served>,
    /// Attempts that had begun and went back to the queue.
    pub preempted: u64,
    /// Gangs that began by the moment that they were last promised, and later than that.
    pub promises_kept: u64,
    /// See `promises_kept`.
    pub promises_late: u64,
    /// Claims that ran under a promise to others.
    pub backfilled: u64,
}

#[derive(Debug, Default)]
struct Group {
    waits: Spread,
    core_ms: f64,
}

impl Group {
    fn answer(&self, all_ms: f64) -> Served {
        let seconds = |ms: u64| ms as f64 / 1e3;
        Served {
            began: self.waits.len(),
            wait_mean_s: self.waits.mean() / 1e3,
            wait_p50_s: seconds(self.waits.percentile(50.0)),
            wait_p99_s: seconds(self.waits.percentile(99.0)),
            core_hours: self.core_ms / 3.6e6,
            share: if all_ms > 0.0 { self.core_ms / all_ms } else { 0.0 },
        }
    }
}

#[derive(Debug)]
struct Cluster {
    user: String,
    class: Class,
    submitted_ms: u64,
    begun: BTreeSet<u32>,
    running: BTreeSet<u32>,
    promise_s: Option<u64>,
    first_ms: Option<u64>,
    backfilled: bool,
}

#[derive(Debug)]
struct Held {
    user: String,
    class: Option<Class>,
    backfills: bool,
    cpus: u32,
    since_ms: u64,
}

/// A journal, as far as it was looked at.
#[derive(Debug, Default)]
pub struct Measure {
    clusters: HashMap<u32, Cluster>,
    claims: HashMap<u64, Held>,
    users: BTreeMap<String, Group>,
    classes: BTreeMap<String, Group>,
    /// Cores that claims took and gave back, in order.
    changes: Vec<(u64, i64)>,
    answers: Answers,
    first_ms: Option<u64>,
    last_ms: u64,
}

impl Measure {
    /// The next event. Clusters that are not known are not counted.
    pub fn note(&mut self, event: &Event) {
        let at_ms = event.time_ms;
        match &event.kind {
            Some(Kind::ClusterSubmitted(e)) => {
                let (user, class) = (e.owner.clone(), Class::default());
                let (begun, running) = (BTreeSet::new(), BTreeSet::new());
                self.clusters.insert(
                    e.cluster,
                    Cluster {
                        user,
                        class,
                        submitted_ms: at_ms,
                        begun,
                        running,
                        promise_s: None,
                        first_ms: None,
                        backfilled: false,
                    },
                );
                self.answers.jobs += u64::from(e.template.procs);
                self.first_ms.get_or_insert(at_ms);
            }
            Some(Kind::ClusterReordered(e)) => {
                let class = e.class.as_deref().and_then(Class::from_name);
                if let Some((cluster, class)) = self.clusters.get_mut(&e.cluster).zip(class) {
                    cluster.class = class;
                }
            }
            Some(Kind::GangPlanned(e)) => {
                if let Some(cluster) = self.clusters.get_mut(&e.cluster).filter(|_| !e.machines.is_empty()) {
                    cluster.promise_s = Some(e.promise_s);
                }
            }
            Some(Kind::ClaimMade(e)) => {
                let (user, cpus, backfills) = (e.owner.clone(), e.resources.cpus, e.backfill);
                self.claims.insert(e.claim, Held { user, class: None, backfills, cpus, since_ms: at_ms });
            }
            Some(Kind::JobsAssigned(e)) => self.note_assigned(at_ms, e.claim, e.cluster),
            Some(Kind::ClaimEnded(e)) => self.end_claim(at_ms, e.claim),
            Some(Kind::JobStarted(e)) => self.note_begin(e.started_ms.min(at_ms), e.cluster, e.proc),
            Some(Kind::JobExited(e)) => {
                if let Some(cluster) = self.clusters.get_mut(&e.cluster) {
                    cluster.running.remove(&e.proc);
                    self.answers.ended += 1;
                    self.last_ms = self.last_ms.max(at_ms);
                }
            }
            Some(Kind::JobsRequeued(e)) => {
                let Some(cluster) = self.clusters.get_mut(&e.cluster) else { return };
                let procs = e.procs.iter().flat_map(|span| span.procs());
                self.answers.preempted += procs.filter(|proc| cluster.running.remove(proc)).count() as u64;
            }
            _ => {}
        }
    }

    /// A claim is counted for whose jobs it has, from when it has any.
    fn note_assigned(&mut self, at_ms: u64, claim: u64, cluster: u32) {
        let Some(cluster) = self.clusters.get_mut(&cluster) else { return };
        let Some(held) = self.claims.get_mut(&claim).filter(|held| held.class.is_none()) else { return };
        cluster.backfilled |= held.backfills;
        self.answers.backfilled += u64::from(held.backfills);
        held.class = Some(cluster.class);
        held.user.clone_from(&cluster.user);
        self.changes.push((at_ms, i64::from(held.cpus)));
    }

    fn end_claim(&mut self, at_ms: u64, claim: u64) {
        let Some(held) = self.claims.remove(&claim) else { return };
        let Some(class) = held.class else { return };
        self.changes.push((at_ms, -i64::from(held.cpus)));
        self.last_ms = self.last_ms.max(at_ms);
        let core_ms = at_ms.saturating_sub(held.since_ms) as f64 * f64::from(held.cpus);
        self.users.entry(held.user).or_default().core_ms += core_ms;
        self.classes.entry(class.name().to_owned()).or_default().core_ms += core_ms;
    }

    fn note_begin(&mut self, at_ms: u64, cluster: u32, proc: u32) {
        let Some(cluster) = self.clusters.get_mut(&cluster) else { return };
        cluster.running.insert(proc);
        if !cluster.begun.insert(proc) {
            return;
        }
        cluster.first_ms.get_or_insert(at_ms);
        if let Some(promise_s) = cluster.promise_s.take() {
            let kept = at_ms / 1_000 <= promise_s + NEWS_S;
            *(if kept { &mut self.answers.promises_kept } else { &mut self.answers.promises_late }) += 1;
        }
        let wait = at_ms.saturating_sub(cluster.submitted_ms);
        self.users.entry(cluster.user.clone()).or_default().waits.add(wait);
        self.classes.entry(cluster.class.name().to_owned()).or_default().waits.add(wait);
    }

    /// The answers, when machines have so many cores; what claims still hold is counted until the last end.
    pub fn answers(mut self, cores: u64) -> Answers {
        let open: Vec<u64> = self.claims.keys().copied().collect();
        for claim in open {
            self.end_claim(self.last_ms, claim);
        }
        let all_ms: f64 = self.users.values().map(|g| g.core_ms).sum();
        let span_ms = self.last_ms.saturating_sub(self.first_ms.unwrap_or(self.last_ms));
        let of = |groups: &BTreeMap<String, Group>| {
            groups.iter().map(|(name, group)| (name.clone(), group.answer(all_ms))).collect()
        };
        Answers {
            makespan_s: span_ms as f64 / 1e3,
            utilisation: all_ms / (span_ms.max(1) as f64 * cores.max(1) as f64),
            users: of(&self.users),
            classes: of(&self.classes),
            ..self.answers
        }
    }

    /// Seconds from submit to begin of each cluster that began.
    pub fn first_waits_s(&self) -> Vec<u64> {
        self.clusters
            .values()
            .filter_map(|c| Some(c.first_ms?.saturating_sub(c.submitted_ms) / 1_000))
            .collect()
    }

    /// Clusters of which some job ran under a promise to others.
    pub fn backfilled_clusters(&self) -> u64 {
        self.clusters.values().filter(|c| c.backfilled).count() as u64
    }

    /// How many cores claims held, from each moment on, in milliseconds from the first submit.
    pub fn in_use(&self) -> Vec<(u64, i64)> {
        let first = self.first_ms.unwrap_or(0);
        let mut held = 0;
        let mut steps: Vec<(u64, i64)> = Vec::new();
        for (at_ms, change) in &self.changes {
            held += change;
            let at = at_ms.saturating_sub(first);
            match steps.last_mut() {
                Some(last) if last.0 == at => last.1 = held,
                _ => steps.push((at, held)),
            }
        }
        steps
    }
}
