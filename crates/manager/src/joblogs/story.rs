//! What the journal's events say in job event logs: who is told what, where. Pure: no file is touched here.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use classad::{Expr, Value};
use jiff::tz::TimeZone;
use joblog::event::{Evicted, Execute, Exit, Resource, Run, Terminated, Usage};
use joblog::{Body, Stamp, Writer};
use model::event::{ClaimMade, Exit as Ended, Kind, Resources};
use model::report::MoveStage;
use model::{Event, JobTemplate, Span};

const XML: &str = "UserLogUseXML";
/// Attributes of a template that matter here.
const KEPT: [&str; 12] = [
    "WhenToTransferOutput",
    "SuccessCheckpointExitCode",
    "CheckpointSig",
    "UserLog",
    XML,
    "Iwd",
    "SubmitEventNotes",
    "SubmitEventUserNotes",
    "RequestCpus",
    "RequestMemory",
    "RequestDisk",
    "RequestGPUs",
];
/// Codes of stops that people asked for: hold and removal. Their ends are told as an eviction first, as the original does;
/// what policies decide is told alone.
const BY_HAND: [u32; 2] = [1, 1023];
/// HoldReasonCodes of jobs whose files could not be moved, and of those that could not be executed where their files were moved to.
/// Such a hold is told with what the machine said, and with the end of the run.
const FILES_HELD: [u32; 3] = [12, 13, 33];
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

#[derive(Debug)]
struct Cluster {
    at: u64,
    template: JobTemplate,
    /// The log, when all procs have the same.
    shared: Option<Arc<str>>,
    unfinished: u32,
    /// Whether the log is of the XML form, when that is the same for all procs.
    xml: Option<bool>,
    /// Procs whose process was started, and by which claim.
    running: HashMap<u32, u64>,
    /// Stops of running procs that people asked for: code, subcode, why.
    stops: HashMap<u32, (u32, u32, String)>,
    /// What was moved for procs whose files are moved.
    moved: HashMap<u32, MovedBytes>,
}

/// Bytes that a job sent and received, in this run and in all of them.
#[derive(Debug, Clone, Copy, Default)]
struct MovedBytes {
    /// The claim of this run.
    claim: u64,
    sent: u64,
    received: u64,
    all_sent: u64,
    all_received: u64,
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
        match self.tell_all(at, event, &mut Ear { after, each: &mut one_by_one }) {
            ControlFlow::Continue(()) => None,
            ControlFlow::Break(()) => Some(last),
        }
    }

    fn tell_all(&mut self, at: u64, event: &Event, each: &mut Ear<'_>) -> ControlFlow<()> {
        let Some(kind) = &event.kind else { return ControlFlow::Continue(()) };
        let time_ms = event.time_ms;
        match kind {
            Kind::ClusterSubmitted(e) if *e.owner == *self.owner => {
                let Some(cluster) = Cluster::new(at, &e.template) else {
                    return ControlFlow::Continue(());
                };
                let note = |proc, name| cluster.text(e.cluster, proc, name);
                let mut say = Telling::new(self, &cluster, at, e.cluster, time_ms, each);
                for proc in 0..e.template.procs {
                    // A million jobs are told in several parts: what was told is not worked out again.
                    if (at, proc + 1) <= say.each.after {
                        say.key.1 += 1;
                        continue;
                    }
                    let host = format!("<{}>", say.story.host);
                    let notes = note(proc, "SubmitEventNotes");
                    let user_notes = note(proc, "SubmitEventUserNotes");
                    say.line(proc, 0, Body::Submit { host, notes, user_notes })?;
                }
                self.begun.insert(at);
                self.clusters.insert(e.cluster, cluster);
            }
            Kind::ClaimMade(e) => {
                if *e.owner == *self.owner {
                    self.claims.insert(e.claim, Claim::new(at, e));
                    self.begun.insert(at);
                }
            }
            Kind::ClaimEnded(e) => {
                if let Some(claim) = self.claims.remove(&e.claim) {
                    self.begun.remove(&claim.at);
                }
            }
            Kind::JobStarted(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let claim = self.claims.get(&e.claim);
                let machine = claim.map_or("unknown", |c| &c.machine);
                let slot = claim.map(|c| format!("{}@{machine}", c.slot));
                let props = claim.map(|c| properties(c.resources)).unwrap_or_default();
                let body = Body::Execute(Execute { host: format!("<{machine}>"), slot, props });
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
                if let Some(cluster) = self.clusters.get_mut(&e.cluster) {
                    cluster.running.insert(e.proc, e.claim);
                }
            }
            Kind::JobSuspended(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let body = Body::Suspended { processes: i64::from(e.processes) };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
            }
            Kind::JobContinued(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(
                    e.proc,
                    e.claim,
                    Body::Unsuspended,
                )?;
            }
            Kind::JobCheckpointed(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                // What a run has when it must leave comes back like results, where it makes no checkpoints of its own.
                let body = if cluster.saves_results(e.cluster, e.proc) {
                    Body::FileTransfer { kind: 6, delay: None, host: None }
                } else {
                    Body::Checkpointed { run: Run { sent: e.bytes, ..Run::default() } }
                };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
            }
            Kind::JobFilesMoved(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let mut telling = Telling::new(self, cluster, at, e.cluster, time_ms, each);
                let stage = MoveStage::try_from(e.stage);
                let kind = match stage {
                    Ok(MoveStage::InputStarted) => Some(2),
                    Ok(MoveStage::InputFinished) => Some(3),
                    Ok(MoveStage::OutputStarted) => Some(5),
                    Ok(MoveStage::OutputFinished) => Some(6),
                    Ok(MoveStage::Noted) | Err(_) => None,
                };
                if let Some(kind) = kind {
                    let machine = self.claims.get(&e.claim).map(|c| format!("<{}>", c.machine));
                    let host = machine.filter(|_| kind == 2);
                    telling.line(e.proc, e.claim, Body::FileTransfer { kind, delay: None, host })?;
                }
                for note in &e.notes {
                    telling.line(e.proc, e.claim, Body::Generic { text: note.clone() })?;
                }
                if let Some(cluster) = self.clusters.get_mut(&e.cluster) {
                    cluster.note_moved(e.proc, e.claim, stage, e.bytes);
                }
            }
            Kind::JobNotSaved(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let body = Body::Generic { text: format!("The job was not checkpointed: {}", e.reason) };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
            }
            Kind::JobVisited(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let body = Body::Generic { text: format!("The job was visited by {}: {}", e.by, e.what) };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
            }
            Kind::JobWarned(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return ControlFlow::Continue(()) };
                let why = if e.reason.is_empty() { String::new() } else { format!(": {}", e.reason) };
                let text = format!("The job has {} seconds left on its machine{why}", e.remaining_s);
                let body = Body::Generic { text };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body)?;
            }
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
                self.all(at, e.cluster, &[Span { first: e.proc, count: 1 }], time_ms, each, say)?;
                self.finish(e.cluster, 1);
            }
            Kind::JobsRequeued(e) => {
                let say = |ended: &Ending<'_>| {
                    // A job that had not started was not evicted from anywhere.
                    if ended.claim.is_none() {
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
                self.all(at, e.cluster, &e.procs, time_ms, each, say)?;
            }
            Kind::JobsHeld(e) => {
                let reason = Some(e.reason.clone());
                let body = Body::Held { reason, code: e.code as i32, subcode: e.subcode as i32 };
                let say = |ended: &Ending<'_>| {
                    let told = (e.code != SUBMITTED_ON_HOLD).then(|| body.clone());
                    let files = ended.files_held(e.code, e.subcode, &e.reason);
                    files.into_iter().chain(ended.eviction()).chain(told).collect()
                };
                self.all_of(at, e.cluster, &e.procs, time_ms, each, true, say)?;
            }
            Kind::JobsReleased(e) => {
                let body = Body::Released { reason: Some(e.reason.clone()) };
                self.all(at, e.cluster, &e.procs, time_ms, each, |_| vec![body.clone()])?;
            }
            Kind::JobsRemoved(e) => {
                let body = Body::Aborted { reason: Some(e.reason.clone()) };
                let say = |ended: &Ending<'_>| ended.eviction().into_iter().chain([body.clone()]).collect();
                self.all(at, e.cluster, &e.procs, time_ms, each, say)?;
                self.finish(e.cluster, e.procs.iter().map(|s| s.count).sum());
            }
            Kind::StopRequested(e) => {
                let cluster = self.clusters.get_mut(&e.cluster).filter(|_| BY_HAND.contains(&e.code));
                if let Some(cluster) = cluster.filter(|c| c.running.contains_key(&e.proc)) {
                    cluster.stops.insert(e.proc, (e.code, e.subcode, e.reason.clone()));
                }
            }
            // Another user's.
            Kind::ClusterSubmitted(_)
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
    fn all(
        &mut self,
        at: u64,
        id: u32,
        procs: &[Span],
        time_ms: u64,
        each: &mut Ear<'_>,
        say: impl Fn(&Ending<'_>) -> Vec<Body>,
    ) -> ControlFlow<()> {
        self.all_of(at, id, procs, time_ms, each, false, say)
    }

    #[allow(clippy::too_many_arguments, reason = "all but one are what `all` has")]
    fn all_of(
        &mut self,
        at: u64,
        id: u32,
        procs: &[Span],
        time_ms: u64,
        each: &mut Ear<'_>,
        // Also of runs that ended before the job's process was started.
        tells_files: bool,
        say: impl Fn(&Ending<'_>) -> Vec<Body>,
    ) -> ControlFlow<()> {
        let Some(cluster) = self.clusters.get(&id) else { return ControlFlow::Continue(()) };
        let mut telling = Telling::new(self, cluster, at, id, time_ms, each);
        for proc in procs.iter().flat_map(|s| s.procs()) {
            let moved = cluster.moved.get(&proc).map(|m| m.claim);
            let claim = cluster.running.get(&proc).copied().or(moved.filter(|_| tells_files));
            let stop = cluster.stops.get(&proc);
            let known = claim.and_then(|c| self.claims.get(&c));
            let ending = Ending { cluster, id, proc, claim: known, stop };
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

/// What a proc was doing when something ended it.
struct Ending<'a> {
    cluster: &'a Cluster,
    id: u32,
    proc: u32,
    /// Where it ran, if it did.
    claim: Option<&'a Claim>,
    stop: Option<&'a (u32, u32, String)>,
}

impl Ending<'_> {
    /// The end of a run that somebody stopped.
    fn eviction(&self) -> Option<Body> {
        let (code, subcode, reason) = self.stop?;
        Some(Body::Evicted(Evicted {
            reason: Some(reason.clone()),
            code: *code as i32,
            subcode: *subcode as i32,
            resources: self.resources(None),
            ..Evicted::default()
        }))
    }

    /// The end of a run whose files could not be moved, as far as it is told apart from the hold.
    fn files_held(&self, code: u32, subcode: u32, reason: &str) -> Vec<Body> {
        let moved = self.cluster.moved.get(&self.proc);
        let was_moved = moved.is_some() && code == 6;
        if !FILES_HELD.contains(&code) && !was_moved {
            return Vec::new();
        }
        // The original gives the other direction's code where the trouble was at the far side.
        let far = match code {
            12 if reason.contains("failure at execution point") => 13,
            13 if reason.contains("failure at execution point") => 12,
            code => code,
        };
        let moved = moved.copied().unwrap_or_default();
        let run = Run { sent: moved.sent, received: moved.received, ..Run::default() };
        let slot = self.claim.map_or_else(|| "unknown".to_owned(), |c| format!("{}@{}", c.slot, c.machine));
        let said = Body::RemoteError {
            daemon: Some("starter".to_owned()),
            host: slot,
            critical: true,
            message: reason.to_owned(),
            code: Some((far as i32, subcode as i32)),
        };
        let evicted = Evicted {
            run,
            reason: Some(reason.to_owned()),
            code: code as i32,
            subcode: subcode as i32,
            resources: self.resources(None),
            ..Evicted::default()
        };
        vec![said, Body::Evicted(evicted)]
    }

    /// The table of resources: what was used, asked for and given.
    fn resources(&self, exit: Option<&Ended>) -> Vec<Resource> {
        let Some(given) = self.claim.map(|c| c.resources) else { return Vec::new() };
        let cores = exit.filter(|e| e.wall_us > 0).map(|e| {
            let cores = (e.user_us + e.sys_us) as f64 / e.wall_us as f64;
            // Two digits at most, none for none.
            format!("{}", (cores * 100.0).round() / 100.0)
        });
        let mib = exit.filter(|e| e.max_rss_kib > 0).map(|e| e.max_rss_kib.div_ceil(1024).to_string());
        let row = |name: &str, usage: Option<String>, allocated: u64| {
            // A request that is an expression was worked out when the claim was made for it.
            let request = self.cluster.number(self.id, self.proc, &format!("Request{name}"));
            Resource {
                name: name.to_owned(),
                usage,
                request: Some(request.unwrap_or(allocated).to_string()),
                allocated: Some(allocated.to_string()),
            }
        };
        let mut rows = vec![row("Cpus", cores, u64::from(given.cpus)), row("Disk", None, given.disk_kib)];
        if given.gpus > 0 {
            rows.push(row("GPUs", None, u64::from(given.gpus)));
        }
        rows.push(row("Memory", mib, given.memory_mib));
        if let Some(exit) = exit {
            let usage = Some((exit.wall_us / 1_000_000).to_string());
            rows.push(Resource { name: "TimeExecute".to_owned(), usage, ..Resource::default() });
        }
        rows
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
    fn new(
        story: &'a Story,
        cluster: &'a Cluster,
        at: u64,
        id: u32,
        time_ms: u64,
        each: &'a mut Ear<'b>,
    ) -> Self {
        Self { story, cluster, id, key: (at, 0), time: stamp(time_ms), each }
    }

    fn line(&mut self, proc: u32, claim: u64, body: Body) -> ControlFlow<()> {
        // Counted whether or not there is a log, so that a line has the same key whenever it is told.
        self.key.1 += 1;
        // What was told before is not written out again.
        if self.key <= self.each.after {
            return ControlFlow::Continue(());
        }
        let Some(log) = self.cluster.log(self.id, proc) else { return ControlFlow::Continue(()) };
        let made = self.story.claims.get(&claim).map_or(u64::MAX, |c| c.at);
        let is_xml = self.cluster.is_xml(self.id, proc);
        let (cluster, proc) = (self.id as i32, proc as i32);
        let event = joblog::Event { cluster, proc, subproc: 0, time: self.time, body };
        (self.each.each)(Line {
            key: self.key,
            base: self.cluster.at.min(made),
            log,
            text: if is_xml { self.story.writer.xml(&event) } else { self.story.writer.event(&event) },
            about: About { cluster, proc, time: self.time, is_xml },
        })
    }
}

impl Cluster {
    fn saves_results(&self, cluster: u32, proc: u32) -> bool {
        let when = self.text(cluster, proc, "WhenToTransferOutput");
        let has =
            |name| self.text(cluster, proc, name).is_some() || self.number(cluster, proc, name).is_some();
        when.as_deref() == Some("ON_EXIT_OR_EVICT")
            && !has("SuccessCheckpointExitCode")
            && !has("CheckpointSig")
    }

    fn note_moved(
        &mut self,
        proc: u32,
        claim: u64,
        stage: Result<MoveStage, prost::UnknownEnumValue>,
        bytes: u64,
    ) {
        let moved = self.moved.entry(proc).or_default();
        moved.claim = claim;
        match stage {
            Ok(MoveStage::InputFinished) => {
                moved.received += bytes;
                moved.all_received += bytes;
            }
            Ok(MoveStage::OutputFinished) => {
                moved.sent += bytes;
                moved.all_sent += bytes;
            }
            _ => {}
        }
    }

    /// `None` when no proc has a log.
    fn new(at: u64, template: &JobTemplate) -> Option<Self> {
        let kept = |name: &str| KEPT.iter().any(|k| k.eq_ignore_ascii_case(name));
        let log = |name: &str| name.eq_ignore_ascii_case("UserLog");
        if !has_log(template) {
            return None;
        }
        let shared = template.shared.iter().filter(|a| kept(&a.name)).cloned().collect();
        let varying: Vec<_> = template.varying.iter().filter(|v| kept(&v.name)).cloned().collect();
        let same = !varying.iter().any(|v| log(&v.name) || v.name.eq_ignore_ascii_case("Iwd"));
        let columns = if varying.is_empty() { Vec::new() } else { template.columns.clone() };
        let template =
            JobTemplate { procs: template.procs, per_row: template.per_row, shared, varying, columns };
        let mut cluster = Self {
            at,
            unfinished: template.procs,
            template,
            shared: None,
            running: HashMap::new(),
            stops: HashMap::new(),
            moved: HashMap::new(),
            xml: None,
        };
        if !cluster.template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(XML)) {
            cluster.xml = Some(cluster.is_xml(0, 0));
        }
        if same {
            cluster.shared = Some(cluster.log(0, 0)?);
        }
        Some(cluster)
    }

    /// The value of an attribute that is no expression.
    fn literal(&self, id: u32, proc: u32, name: &str) -> Option<Value> {
        Expr::parse(&self.template.attribute(id, proc, name)?).ok()?.as_literal().cloned()
    }

    fn is_xml(&self, id: u32, proc: u32) -> bool {
        self.xml.unwrap_or_else(|| self.literal(id, proc, XML).is_some_and(|v| v.is_true()))
    }

    /// The text of a string attribute.
    fn text(&self, id: u32, proc: u32, name: &str) -> Option<String> {
        self.literal(id, proc, name)?.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
    }

    /// The value of an attribute that is a whole number.
    fn number(&self, id: u32, proc: u32, name: &str) -> Option<u64> {
        u64::try_from(self.literal(id, proc, name)?.as_int()?).ok()
    }

    fn log(&self, id: u32, proc: u32) -> Option<Arc<str>> {
        if let Some(shared) = &self.shared {
            return Some(shared.clone());
        }
        // A log that nobody wants is none.
        let log = self.text(id, proc, "UserLog").filter(|log| log != "/dev/null")?;
        if Path::new(&log).is_absolute() {
            return Some(Arc::from(log));
        }
        let path = PathBuf::from(self.text(id, proc, "Iwd")?).join(log);
        path.is_absolute().then(|| Arc::from(path.to_string_lossy()))
    }
}

/// True when jobs of a cluster may have a log.
pub(super) fn has_log(template: &JobTemplate) -> bool {
    let names = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
    names.into_iter().any(|name| name.eq_ignore_ascii_case("UserLog"))
}

fn stamp(time_ms: u64) -> Stamp {
    Stamp { seconds: (time_ms / 1000) as i64, millis: Some((time_ms % 1000) as u16) }
}

/// What the slot has, as the start of a job tells it.
fn properties(given: Resources) -> Vec<(String, String)> {
    let rows = [
        ("Cpus", u64::from(given.cpus)),
        ("Disk", given.disk_kib),
        ("GPUs", u64::from(given.gpus)),
        ("Memory", given.memory_mib),
    ];
    rows.into_iter().map(|(name, amount)| (name.to_owned(), amount.to_string())).collect()
}

fn how(exit: &Ended) -> Exit {
    match exit.signal {
        Some(signal) => Exit::Signal(signal as i32),
        None => Exit::Code(exit.code.unwrap_or(0) as i32),
    }
}

fn used(exit: &Ended) -> Run {
    let remote = Usage { user: exit.user_us / 1_000_000, system: exit.sys_us / 1_000_000 };
    Run { remote, ..Run::default() }
}

#[cfg(test)]
mod tests {
    use model::event::{ClusterSubmitted, JobsRemoved};
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
