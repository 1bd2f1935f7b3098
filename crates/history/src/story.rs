//! Events in, rows out.

use std::collections::{BTreeMap, HashMap};

use model::Event;
use model::event::{Exit, Kind};
use model::procs::Span;

use crate::row::{Bookmark, ClaimAt, ClusterAt, ClusterRecord, Facts, HeldSpan, JobFacts, Row};

/// Holds of one cluster that are remembered; the oldest are forgotten first.
const HOLDS: usize = 10_000;

/// What an event has to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// A cluster, before any row of it.
    Cluster(ClusterRecord),
    /// Jobs left the queue.
    Row(Row),
    /// No job of this cluster is in the queue any more.
    Over(u32),
}

#[derive(Debug, Default)]
struct Live {
    left: u64,
    holds: Vec<HeldSpan>,
}

/// What must be remembered of jobs that are in the queue.
#[derive(Debug, Default)]
pub struct Story {
    position: u64,
    claims: HashMap<u64, String>,
    clusters: BTreeMap<u32, Live>,
    jobs: HashMap<(u32, u32), Facts>,
}

impl Story {
    /// Goes on after a bookmark.
    pub fn after(bookmark: &Bookmark) -> Self {
        let live = |c: &ClusterAt| (c.cluster, Live { left: c.left, holds: c.holds.clone() });
        Self {
            position: bookmark.position,
            claims: bookmark.claims.iter().map(|c| (c.claim, c.host.clone())).collect(),
            clusters: bookmark.clusters.iter().map(live).collect(),
            jobs: bookmark.jobs.iter().map(|j| ((j.cluster, j.proc), j.facts.clone())).collect(),
        }
    }

    /// Where it stands; `place` says in which segment a cluster is told of, and where.
    pub fn bookmark(&self, place: &dyn Fn(u32) -> (u64, u64)) -> Bookmark {
        let claims = self.claims.iter().map(|(claim, host)| ClaimAt { claim: *claim, host: host.clone() });
        let jobs = self.jobs.iter().map(|((cluster, proc), facts)| JobFacts {
            cluster: *cluster,
            proc: *proc,
            facts: facts.clone(),
        });
        let clusters = self.clusters.iter().map(|(&cluster, live)| {
            let (segment, offset) = place(cluster);
            ClusterAt { cluster, left: live.left, holds: live.holds.clone(), segment, offset }
        });
        Bookmark {
            position: self.position,
            claims: claims.collect(),
            jobs: jobs.collect(),
            clusters: clusters.collect(),
        }
    }

    /// Position of the last event that was taken.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Takes the next event.
    pub fn take(&mut self, position: u64, event: &Event, out: &mut Vec<Told>) {
        self.position = position;
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ClusterSubmitted(e) => {
                self.clusters.insert(e.cluster, Live { left: e.template.procs.into(), holds: Vec::new() });
                out.push(Told::Cluster(ClusterRecord {
                    position,
                    cluster: e.cluster,
                    owner: e.owner.clone(),
                    submitted_ms: event.time_ms,
                    template: e.template.clone(),
                }));
            }
            Kind::ClaimMade(e) => {
                self.claims.insert(e.claim, format!("{}@{}", e.slot, e.machine));
            }
            Kind::ClaimEnded(e) => {
                self.claims.remove(&e.claim);
            }
            Kind::JobStarted(e) => {
                let host = self.claims.get(&e.claim).cloned().unwrap_or_default();
                let facts = self.jobs.entry((e.cluster, e.proc)).or_default();
                facts.starts += 1;
                facts.last_started_ms = e.started_ms;
                if facts.starts == 1 {
                    facts.first_started_ms = e.started_ms;
                }
                facts.host = host;
                facts.runs = true;
            }
            Kind::JobsHeld(e) => {
                self.end_attempts(e.cluster, &e.procs, e.exit, event.time_ms);
                self.note_hold(e.cluster, &e.procs, &e.reason, (e.code, e.subcode));
            }
            Kind::JobsRequeued(e) => self.end_attempts(e.cluster, &e.procs, e.exit, event.time_ms),
            Kind::JobExited(e) => {
                let started = self.jobs.contains_key(&(e.cluster, e.proc));
                if !started {
                    let host = self.claims.get(&e.claim).cloned().unwrap_or_default();
                    let (starts, at) = (1, e.started_ms);
                    let facts =
                        Facts { starts, first_started_ms: at, last_started_ms: at, host, ..Facts::default() };
                    self.jobs.insert((e.cluster, e.proc), facts);
                }
                let span = Span { first: e.proc, count: 1 };
                self.end_attempts(e.cluster, &[span], Some(e.exit), event.time_ms);
                if !e.stays {
                    self.leave(position, event.time_ms, e.cluster, &[span], (4, ""), out);
                }
            }
            Kind::JobsLeft(e) => self.leave(position, event.time_ms, e.cluster, &e.procs, (4, ""), out),
            Kind::JobsRemoved(e) => {
                self.end_attempts(e.cluster, &e.procs, None, event.time_ms);
                self.leave(position, event.time_ms, e.cluster, &e.procs, (3, &e.reason), out);
            }
            _ => {}
        }
    }

    fn under_way<'a>(
        jobs: &'a mut HashMap<(u32, u32), Facts>,
        cluster: u32,
        spans: &'a [Span],
    ) -> impl Iterator<Item = &'a mut Facts> + 'a {
        let wanted: u64 = spans.iter().map(|s| u64::from(s.count)).sum();
        let few = wanted <= 1_000;
        let named: Vec<u32> = if few { spans.iter().flat_map(|s| s.procs()).collect() } else { Vec::new() };
        let is_meant = move |id: &(u32, u32)| {
            id.0 == cluster
                && if few { named.contains(&id.1) } else { spans.iter().any(|s| s.procs().contains(&id.1)) }
        };
        jobs.iter_mut().filter(move |(id, _)| is_meant(id)).map(|(_, facts)| facts)
    }

    fn end_attempts(&mut self, cluster: u32, spans: &[Span], exit: Option<Exit>, now_ms: u64) {
        let end = |facts: &mut Facts| {
            if facts.runs || exit.is_some() {
                let since = now_ms.saturating_sub(facts.last_started_ms).saturating_mul(1000);
                facts.wall_us += exit.map_or(since, |exit| exit.wall_us);
                facts.runs = false;
            }
            if exit.is_some() {
                facts.exit = exit;
                facts.exited_ms = now_ms;
            }
        };
        match spans {
            // The common case must not look at every job that is under way.
            [Span { first, count: 1 }] => {
                if let Some(facts) = self.jobs.get_mut(&(cluster, *first)) {
                    end(facts);
                }
            }
            _ => Self::under_way(&mut self.jobs, cluster, spans).for_each(end),
        }
    }

    fn note_hold(&mut self, cluster: u32, spans: &[Span], reason: &str, (code, subcode): (u32, u32)) {
        let Some(live) = self.clusters.get_mut(&cluster) else { return };
        for span in spans {
            let Span { first, count } = *span;
            live.holds.push(HeldSpan { first, count, reason: reason.to_owned(), code, subcode });
        }
        let surplus = live.holds.len().saturating_sub(HOLDS);
        live.holds.drain(..surplus);
    }

    fn leave(
        &mut self,
        position: u64,
        ended_ms: u64,
        cluster: u32,
        spans: &[Span],
        (status, reason): (u32, &str),
        out: &mut Vec<Told>,
    ) {
        let is_bare = self.jobs.is_empty();
        let holds = self.clusters.get(&cluster).map(|live| live.holds.clone()).unwrap_or_default();
        let mut row = |first: u32, count: u32, facts: Facts| {
            let remove_reason = reason.to_owned();
            out.push(Told::Row(Row {
                position,
                cluster,
                first,
                count,
                ended_ms,
                status,
                remove_reason,
                facts,
                cluster_at: 0,
            }));
        };
        let mut gone = 0;
        for span in spans {
            gone += u64::from(span.count);
            if is_bare && holds.is_empty() {
                row(span.first, span.count, Facts::default());
                continue;
            }
            // Neighbours of which the same is to be told are one row.
            let mut run: Option<(u32, u32, Facts)> = None;
            for proc in span.procs() {
                let mut facts = self.jobs.remove(&(cluster, proc)).unwrap_or_default();
                for hold in
                    holds.iter().filter(|h| (h.first..h.first.saturating_add(h.count)).contains(&proc))
                {
                    facts.holds += 1;
                    facts.hold_reason.clone_from(&hold.reason);
                    (facts.hold_code, facts.hold_subcode) = (hold.code, hold.subcode);
                }
                match &mut run {
                    Some((_, count, same)) if *same == facts => *count += 1,
                    other => {
                        if let Some((first, count, facts)) = other.replace((proc, 1, facts)) {
                            row(first, count, facts);
                        }
                    }
                }
            }
            if let Some((first, count, facts)) = run {
                row(first, count, facts);
            }
        }
        if let Some(live) = self.clusters.get_mut(&cluster) {
            live.left = live.left.saturating_sub(gone);
            if live.left == 0 {
                self.clusters.remove(&cluster);
                out.push(Told::Over(cluster));
            }
        }
    }
}
