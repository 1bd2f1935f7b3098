//! What the journal's events say in job event logs: who is told what, where. Pure: no file is touched here.

mod cluster;
mod ending;

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::tz::TimeZone;
use joblog::event::{Evicted, Execute, Run, Terminated};
use joblog::{Body, Stamp, Writer};
use model::event::{ClaimMade, ClusterSubmitted, JobFilesMoved, Kind, Resources};
use model::report::MoveStage;
use model::{Event, Span};

use self::cluster::Cluster;
pub(super) use self::cluster::has_log;
use self::ending::{Ending, how, properties, used};

/// Codes of stops that people asked for: hold and removal. Their ends are told as an eviction first, as the original does;
/// what policies decide is told alone.
const BY_HAND: [u32; 2] = [1, 1023];
/// HoldReasonCode of a job that was submitted on hold, which the original does not tell.
const SUBMITTED_ON_HOLD: u32 = 15;

/// Place of a line: the position of its journal event, and its number among the lines of that event.
pub(super) type Key = (u64, u32);

/// One event for one log.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) key: Key,
    /// Whoever wants to tell this line again must read the journal from here.
    pub(super) base: u64,
    /// Path of the log.
    pub(super) log: Arc<str>,
    pub(super) text: String,
    pub(super) about: About,
}

/// Which job a line is about, and how its log is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    cluster: i32,
    proc: i32,
    time: Stamp,
    is_xml: bool,
}

impl About {
    /// A line of its own about the same job.
    pub(super) fn remark(self, text: String) -> String {
        let Self { cluster, proc, time, is_xml } = self;
        let event = joblog::Event { cluster, proc, subproc: 0, time, body: Body::Generic { text } };
        let writer = Writer::new(TimeZone::system());
        if is_xml { writer.xml(&event) } else { writer.event(&event) }
    }
}

/// Takes the lines behind a key, and says whether it takes more.
struct Ear<'a> {
    after: Key,
    each: &'a mut dyn FnMut(Line) -> ControlFlow<()>,
}

/// Position and time of the journal's event that is told.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: u64,
    time_ms: u64,
}

/// What must be known of the past of one user's jobs to tell their present.
#[derive(Debug)]
pub(super) struct Story {
    writer: Writer,
    host: String,
    owner: Arc<str>,
    /// Unfinished clusters with a log.
    clusters: HashMap<u32, Cluster>,
    claims: HashMap<u64, Claim>,
    /// Where these clusters and claims were begun.
    begun: BTreeSet<u64>,
}

/// What is told of a claim.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) at: u64,
    machine: String,
    slot: String,
    resources: Resources,
}

impl Claim {
    pub(super) fn new(at: u64, made: &ClaimMade) -> Self {
        Self { at, machine: made.machine.clone(), slot: made.slot.clone(), resources: made.resources }
    }
}

impl Story {
    /// The story of a user whose claims are these.
    pub(super) fn new(owner: Arc<str>, host: String, claims: HashMap<u64, Claim>) -> Self {
        let begun = claims.values().map(|claim| claim.at).collect();
        let writer = Writer::new(TimeZone::system());
        Self { writer, host, owner, clusters: HashMap::new(), claims, begun }
    }

    /// Where the journal must be read from to know all that is known now.
    pub(super) fn base(&self) -> Option<u64> {
        self.begun.first().copied()
    }

    /// True when no cluster with a log is unfinished.
    pub(super) fn is_over(&self) -> bool {
        self.clusters.is_empty()
    }

    /// Takes an event in and hands out what it says, in order, from behind the line `after` on. Who takes no more lines gets the
    /// key of the last that was taken: nothing is known of the event then, and it is to be told again.
    pub(super) fn tell(
        &mut self,
        at: u64,
        event: &Event,
        after: Key,
        each: &mut dyn FnMut(Line) -> ControlFlow<()>,
    ) -> Option<Key> {
        let mut last = after;
        let mut one_by_one = |line: Line| {
            last = line.key;
            each(line)
        };
        let kind = event.kind.as_ref()?;
        let moment = Moment { at, time_ms: event.time_ms };
        match self.tell_all(moment, kind, &mut Ear { after, each: &mut one_by_one }) {
            ControlFlow::Continue(()) => None,
            ControlFlow::Break(()) => Some(last),
        }
    }

    fn tell_all(&mut self, moment: Moment, kind: &Kind, each: &mut Ear<'_>) -> ControlFlow<()> {
        match kind {
            Kind::ClusterSubmitted(e) if *e.owner == *self.owner => self.tell_submitted(moment, e, each)?,
            Kind::ClaimMade(e) if *e.owner == *self.owner => {
                self.claims.insert(e.claim, Claim::new(moment.at, e));
                self.begun.insert(moment.at);
            }
            Kind::ClaimEnded(e) => {
                if let Some(claim) = self.claims.remove(&e.claim) {
                    self.begun.remove(&claim.at);
                }
            }
            Kind::JobStarted(e) => {
                let claim = self.claims.get(&e.claim);
                let machine = claim.map_or("unknown", |c| &c.machine);
                let slot = claim.map(|c| format!("{}@{machine}", c.slot));
                let props = claim.map(|c| properties(c.resources)).unwrap_or_default();
                let body = Body::Execute(Execute { host: format!("<{machine}>"), slot, props });
                self.tell_one(moment, (e.cluster, e.proc, e.claim), body, each)?;
                if let Some(cluster) = self.clusters.get_mut(&e.cluster) {
                    cluster.running.insert(e.proc, e.claim);
                }
            }
            Kind::JobSuspended(e) => {
                let body = Body::Suspended { processes: i64::from(e.processes) };
                self.tell_one(moment, (e.cluster, e.proc, e.claim), body, each)?;
            }
            Kind::JobContinued(e) => {
                self.tell_one(moment, (e.cluster, e.proc, e.claim), Body::Unsuspended, each)?;
            }
            Kind::JobCheckpointed(e) => {
                // What a run has when it must leave comes back like results, where it makes no checkpoints of its own.
                let saves = self.clusters.get(&e.cluster).is_some_and(|c| c.saves_results(e.cluster, e.proc));
                let body = if saves {
                    Body::FileTransfer { kind: 6, delay: None, host: None }
                } else {
                    Body::Checkpointed { run: Run { sent: e.bytes, ..Run::default() } }
                };
                self.tell_one(moment, (e.cluster, e.proc, e.claim), body, each)?;
            }
            Kind::JobFilesMoved(e) => self.tell_files_moved(moment, e, each)?,
            Kind::JobNotSaved(e) => {
                let body = Body::Generic { text: format!("The job was not checkpointed: {}", e.reason) };
                self.tell_one(moment, (e.cluster, e.proc, e.claim), body, each)?;
            }
            Kind::JobVisited(e) => {
                let body = Body::Generic { text: format!("The job was visited by {}: {}", e.by, e.what) };
                self.tell_one(moment, (e.cluster, e.proc, e.claim), body, each)?;
            }
            Kind::JobWarned(e) => {
                let why = if e.reason.is_empty() { String::new() } else { format!(": {}", e.reason) };
                let text = format!("The job has {} seconds left on its machine{why}", e.remaining_s);
                self.tell_one(moment, (e.cluster, e.proc, e.claim), Body::Generic { text }, each)?;
            }
            Kind::StopRequested(e) => {
                let cluster = self.clusters.get_mut(&e.cluster).filter(|_| BY_HAND.contains(&e.code));
                if let Some(cluster) = cluster.filter(|c| c.running.contains_key(&e.proc)) {
                    cluster.stops.insert(e.proc, (e.code, e.subcode, e.reason.clone()));
                }
            }
            ends => self.tell_ends(moment, ends, each)?,
        }
        ControlFlow::Continue(())
    }

    fn tell_submitted(
        &mut self,
        moment: Moment,
        submitted: &ClusterSubmitted,
        each: &mut Ear<'_>,
    ) -> ControlFlow<()> {
        let (at, id) = (moment.at, submitted.cluster);
        let Some(cluster) = Cluster::new(at, &submitted.template) else { return ControlFlow::Continue(()) };
        let mut say = Telling::new(self, &cluster, moment, id, each);
        for proc in 0..submitted.template.procs {
            // A million jobs are told in several parts: what was told is not worked out again.
            let logs = cluster.logs_per_line();
            if (at, (proc + 1).saturating_mul(logs)) <= say.each.after {
                say.key.1 += logs;
                continue;
            }
            let host = format!("<{}>", say.story.host);
            let notes = cluster.text(id, proc, "SubmitEventNotes");
            let user_notes = cluster.text(id, proc, "SubmitEventUserNotes");
            say.line(proc, 0, Body::Submit { host, notes, user_notes })?;
        }
        self.begun.insert(at);
        self.clusters.insert(id, cluster);
        ControlFlow::Continue(())
    }

    /// One line about a job (cluster, proc, claim), when its cluster has a log.
    fn tell_one(
        &self,
        moment: Moment,
        (id, proc, claim): (u32, u32, u64),
        body: Body,
        each: &mut Ear<'_>,
    ) -> ControlFlow<()> {
        let Some(cluster) = self.clusters.get(&id) else { return ControlFlow::Continue(()) };
        Telling::new(self, cluster, moment, id, each).line(proc, claim, body)
    }

    fn tell_files_moved(
        &mut self,
        moment: Moment,
        moved: &JobFilesMoved,
        each: &mut Ear<'_>,
    ) -> ControlFlow<()> {
        let (id, proc, claim) = (moved.cluster, moved.proc, moved.claim);
        let Some(cluster) = self.clusters.get(&id) else { return ControlFlow::Continue(()) };
        let mut telling = Telling::new(self, cluster, moment, id, each);
        let stage = MoveStage::try_from(moved.stage);
        let kind = match stage {
            Ok(MoveStage::InputStarted) => Some(2),
            Ok(MoveStage::InputFinished) => Some(3),
            Ok(MoveStage::OutputStarted) => Some(5),
            Ok(MoveStage::OutputFinished) => Some(6),
            Ok(MoveStage::Noted) | Err(_) => None,
        };
        if let Some(kind) = kind {
            let machine = self.claims.get(&claim).map(|c| format!("<{}>", c.machine));
            let host = machine.filter(|_| kind == 2);
            telling.line(proc, claim, Body::FileTransfer { kind, delay: None, host })?;
        }
        for note in &moved.notes {
            telling.line(proc, claim, Body::Generic { text: note.clone() })?;
        }
        if let Some(cluster) = self.clusters.get_mut(&id) {
            cluster.note_moved(proc, claim, stage, moved.bytes);
        }
        ControlFlow::Continue(())
    }

    /// What ends runs or jobs; other kinds of events say nothing here.
    fn tell_ends(&mut self, moment: Moment, kind: &Kind, each: &mut Ear<'_>) -> ControlFlow<()> {
        match kind {
            Kind::JobExited(e) => {
                let (exit, run) = (how(&e.exit), used(&e.exit));
                let say = |ended: &Ending<'_>| {
                    let moved = ended.cluster.moved.get(&ended.proc).copied().unwrap_or_default();
                    let (sent, received) = (moved.sent, moved.received);
                    let total = Run { sent: moved.all_sent, received: moved.all_received, ..run.clone() };
                    let run = Run { sent, received, ..run.clone() };
                    let resources = ended.resources(Some(&e.exit));
                    vec![Body::Terminated(Terminated { exit, core: None, run, total, resources })]
                };
                self.tell_stopped(moment, e.cluster, &[Span { first: e.proc, count: 1 }], each, say)?;
                self.finish(e.cluster, 1);
            }
            Kind::JobsRequeued(e) => {
                let say = |ended: &Ending<'_>| {
                    // A job that had not started was not evicted from anywhere.
                    if !ended.has_started {
                        return Vec::new();
                    }
                    vec![Body::Evicted(Evicted {
                        requeued: e.exit.as_ref().map(how),
                        run: e.exit.as_ref().map(used).unwrap_or_default(),
                        reason: Some(e.reason.clone()),
                        code: e.code as i32,
                        resources: ended.resources(e.exit.as_ref()),
                        ..Evicted::default()
                    })]
                };
                self.tell_stopped(moment, e.cluster, &e.procs, each, say)?;
            }
            Kind::JobsHeld(e) => {
                let reason = Some(e.reason.clone());
                let body = Body::Held { reason, code: e.code as i32, subcode: e.subcode as i32 };
                let say = |ended: &Ending<'_>| {
                    let told = (e.code != SUBMITTED_ON_HOLD).then(|| body.clone());
                    let files = ended.files_held(e.code, e.subcode, &e.reason);
                    files.into_iter().chain(ended.eviction()).chain(told).collect()
                };
                self.tell_stopped(moment, e.cluster, &e.procs, each, say)?;
            }
            Kind::JobsReleased(e) => {
                let body = Body::Released { reason: Some(e.reason.clone()) };
                self.tell_stopped(moment, e.cluster, &e.procs, each, |_| vec![body.clone()])?;
            }
            Kind::JobsRemoved(e) => {
                let body = Body::Aborted { reason: Some(e.reason.clone()) };
                let say = |ended: &Ending<'_>| ended.eviction().into_iter().chain([body.clone()]).collect();
                self.tell_stopped(moment, e.cluster, &e.procs, each, say)?;
                self.finish(e.cluster, e.procs.iter().map(|s| s.count).sum());
            }
            // Another user's.
            Kind::ClusterSubmitted(_)
            | Kind::ClaimMade(_)
            // Told by who asked.
            | Kind::ClaimEnded(_)
            | Kind::JobStarted(_)
            | Kind::JobSuspended(_)
            | Kind::JobContinued(_)
            | Kind::JobCheckpointed(_)
            | Kind::JobFilesMoved(_)
            | Kind::JobNotSaved(_)
            | Kind::JobWarned(_)
            | Kind::JobVisited(_)
            | Kind::StopRequested(_)
            // Nothing to users.
            | Kind::ManagerStarted(_)
            | Kind::ClockStepped(_)
            | Kind::JournalSalvaged(_)
            | Kind::JobsAssigned(_)
            | Kind::PoolDrained(_)
            // Its end has been told.
            | Kind::JobsLeft(_)
            | Kind::TokenIssued(_)
            | Kind::MachineJoined(_)
            | Kind::PrioritySet(_)
            | Kind::MachineStanding(_)
            | Kind::LabSet(_)
            | Kind::GangPlanned(_)
            | Kind::JobProvisioning(_)
            | Kind::JobReserved(_)
            | Kind::JobsExtended(_)
            | Kind::ClusterReordered(_)
            | Kind::MachineRevoked(_)
            | Kind::TokenRevoked(_) => {}
        }
        ControlFlow::Continue(())
    }

    /// The same for all these procs, none of which runs any more; `say` is told what they were doing.
    fn tell_stopped(
        &mut self,
        moment: Moment,
        id: u32,
        procs: &[Span],
        each: &mut Ear<'_>,
        say: impl Fn(&Ending<'_>) -> Vec<Body>,
    ) -> ControlFlow<()> {
        let Some(cluster) = self.clusters.get(&id) else { return ControlFlow::Continue(()) };
        let mut telling = Telling::new(self, cluster, moment, id, each);
        for proc in procs.iter().flat_map(|s| s.procs()) {
            let running = cluster.running.get(&proc).copied();
            // A run whose files could not be moved ended before its process was started.
            let claim = running.or(cluster.moved.get(&proc).map(|m| m.claim));
            let stop = cluster.stops.get(&proc);
            let known = claim.and_then(|c| self.claims.get(&c));
            let has_started = running.is_some() && known.is_some();
            let ending = Ending { cluster, id, proc, claim: known, has_started, stop };
            for body in say(&ending) {
                telling.line(proc, claim.unwrap_or(0), body)?;
            }
        }
        if let Some(cluster) = self.clusters.get_mut(&id) {
            for proc in procs.iter().flat_map(|s| s.procs()) {
                cluster.running.remove(&proc);
                cluster.stops.remove(&proc);
                if let Some(moved) = cluster.moved.get_mut(&proc) {
                    (moved.sent, moved.received) = (0, 0);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, id: u32, count: u32) {
        let Some(cluster) = self.clusters.get_mut(&id) else { return };
        cluster.unfinished = cluster.unfinished.saturating_sub(count);
        if cluster.unfinished == 0 {
            self.begun.remove(&cluster.at);
            self.clusters.remove(&id);
        }
    }
}

/// The lines of one event.
struct Telling<'a, 'b> {
    story: &'a Story,
    cluster: &'a Cluster,
    id: u32,
    key: Key,
    time: Stamp,
    each: &'a mut Ear<'b>,
}

impl<'a, 'b> Telling<'a, 'b> {
    fn new(story: &'a Story, cluster: &'a Cluster, moment: Moment, id: u32, each: &'a mut Ear<'b>) -> Self {
        Self { story, cluster, id, key: (moment.at, 0), time: stamp(moment.time_ms), each }
    }

    fn line(&mut self, proc: u32, claim: u64, body: Body) -> ControlFlow<()> {
        let first = self.key.1;
        // Counted whether or not there is a log, so that a line has the same key whenever it is told.
        self.key.1 += self.cluster.logs_per_line();
        // What was told before is not written out again.
        if self.key <= self.each.after {
            return ControlFlow::Continue(());
        }
        let made = self.story.claims.get(&claim).map_or(u64::MAX, |c| c.at);
        let logs = self.cluster.logs(self.id, proc);
        let (cluster, proc, time) = (self.id as i32, proc as i32, self.time);
        let event = joblog::Event { cluster, proc, subproc: 0, time, body };
        for (number, log) in (first + 1..).zip(logs) {
            let key = (self.key.0, number);
            let Some((log, is_xml)) = log.filter(|_| key > self.each.after) else { continue };
            let writer = &self.story.writer;
            (self.each.each)(Line {
                key,
                base: self.cluster.at.min(made),
                log,
                text: if is_xml { writer.xml(&event) } else { writer.event(&event) },
                about: About { cluster, proc, time, is_xml },
            })?;
        }
        ControlFlow::Continue(())
    }
}

fn stamp(time_ms: u64) -> Stamp {
    Stamp { seconds: (time_ms / 1000) as i64, millis: Some((time_ms % 1000) as u16) }
}

#[cfg(test)]
mod tests {
    use model::JobTemplate;
    use model::event::JobsRemoved;
    use model::template::Attribute;

    use super::*;

    const PROCS: u32 = 10;

    fn event(kind: Kind) -> Event {
        Event { time_ms: 1_000, kind: Some(kind) }
    }

    fn submitted(owner: &str) -> Event {
        let attribute = |name: &str, expr: &str| Attribute { name: name.into(), expr: expr.into() };
        let shared = vec![attribute("UserLog", "\"log\""), attribute("Iwd", "\"/home\"")];
        let template = JobTemplate { procs: PROCS, shared, ..JobTemplate::default() };
        event(Kind::ClusterSubmitted(ClusterSubmitted {
            cluster: 7,
            owner: owner.into(),
            template,
            ..ClusterSubmitted::default()
        }))
    }

    #[test]
    fn a_node_of_a_dag_is_told_in_both_logs_also_in_parts() {
        let mut event = submitted("alice");
        if let Some(Kind::ClusterSubmitted(e)) = &mut event.kind {
            e.template
                .shared
                .push(Attribute { name: "DAGManNodesLog".into(), expr: "\"/dag/nodes\"".into() });
        }
        let mut story = Story::new(Arc::from("alice"), "host".into(), HashMap::new());
        let (mut told, mut after) = (Vec::new(), (0, 0));
        loop {
            let mut left = 3;
            let stopped = story.tell(4, &event, after, &mut |line| {
                told.push((line.key.1, line.log.to_string()));
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let Some(last) = stopped else { break };
            after = last;
        }
        let log = |n: u32| if n % 2 == 1 { "/home/log" } else { "/dag/nodes" };
        let whole: Vec<(u32, String)> = (1..=2 * PROCS).map(|n| (n, log(n).to_owned())).collect();
        assert_eq!(told, whole);
    }

    #[test]
    fn what_is_told_in_parts_is_told_whole_and_with_the_same_keys() {
        let removed = event(Kind::JobsRemoved(JobsRemoved {
            cluster: 7,
            procs: vec![Span { first: 0, count: PROCS }],
            ..JobsRemoved::default()
        }));
        let mut story = Story::new(Arc::from("alice"), "host".into(), HashMap::new());
        for (at, event) in [(3, submitted("bob")), (4, submitted("alice")), (5, removed)] {
            let (mut keys, mut after) = (Vec::new(), (0, 0));
            loop {
                let mut left = 3;
                let stopped = story.tell(at, &event, after, &mut |line| {
                    assert_eq!(&*line.log, "/home/log");
                    keys.push(line.key);
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                let Some(last) = stopped else { break };
                after = last;
            }
            let whole: Vec<Key> = (1..=PROCS).map(|n| (at, n)).filter(|_| at > 3).collect();
            assert_eq!(keys, whole, "bob's jobs are not alice's");
            assert_eq!(story.is_over(), at != 4);
        }
    }
}
