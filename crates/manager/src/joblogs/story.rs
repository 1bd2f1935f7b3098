//! What the journal's events say in job event logs: who is told what, where. Pure: no file is touched here.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use classad::Expr;
use joblog::event::{Evicted, Execute, Exit, Run, Terminated, Usage};
use joblog::{Body, Stamp, Writer};
use model::event::{Exit as Ended, Kind};
use model::{Event, JobTemplate, Span};

/// Attributes of a template that matter here.
const KEPT: [&str; 4] = ["UserLog", "Iwd", "SubmitEventNotes", "SubmitEventUserNotes"];

/// Place of a line: the position of its journal event, and its number among the lines of that event.
pub(super) type Key = (u64, u32);

/// A log: whose, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Log {
    pub(super) owner: Arc<str>,
    pub(super) path: Arc<str>,
}

/// One event for one log.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) key: Key,
    /// Whoever wants to tell this line again must read the journal from here.
    pub(super) base: u64,
    pub(super) log: Log,
    pub(super) text: String,
}

/// What must be known of the past to tell the present.
#[derive(Debug)]
pub(super) struct Story {
    writer: Writer,
    host: String,
    /// Unfinished clusters with a log.
    clusters: HashMap<u32, Cluster>,
    claims: HashMap<u64, Claim>,
    /// Where these clusters and claims were begun.
    begun: BTreeSet<u64>,
}

#[derive(Debug)]
struct Cluster {
    at: u64,
    owner: Arc<str>,
    template: JobTemplate,
    /// The log, when all procs have the same.
    shared: Option<Arc<str>>,
    unfinished: u32,
    /// Procs whose process was started, and by which claim.
    running: HashMap<u32, u64>,
}

#[derive(Debug)]
struct Claim {
    at: u64,
    machine: String,
    slot: String,
}

impl Story {
    pub(super) fn new(writer: Writer, host: String) -> Self {
        Self { writer, host, clusters: HashMap::new(), claims: HashMap::new(), begun: BTreeSet::new() }
    }

    /// Where the journal must be read from to know all that is known now.
    pub(super) fn base(&self) -> Option<u64> {
        self.begun.first().copied()
    }

    /// Takes an event in and hands out what it says, in order.
    pub(super) fn tell(&mut self, at: u64, event: &Event, each: &mut dyn FnMut(Line)) {
        let Some(kind) = &event.kind else { return };
        let time_ms = event.time_ms;
        match kind {
            Kind::ClusterSubmitted(e) => {
                let Some(cluster) = Cluster::new(at, &e.owner, &e.template) else { return };
                let note = |proc, name| cluster.text(e.cluster, proc, name);
                let mut say = Telling::new(self, &cluster, at, e.cluster, time_ms, each);
                for proc in 0..e.template.procs {
                    let host = format!("<{}>", say.story.host);
                    let notes = note(proc, "SubmitEventNotes");
                    let user_notes = note(proc, "SubmitEventUserNotes");
                    say.line(proc, 0, Body::Submit { host, notes, user_notes });
                }
                self.begun.insert(at);
                self.clusters.insert(e.cluster, cluster);
            }
            Kind::ClaimMade(e) => {
                let claim = Claim { at, machine: e.machine.clone(), slot: e.slot.clone() };
                self.claims.insert(e.claim, claim);
                self.begun.insert(at);
            }
            Kind::ClaimEnded(e) => {
                if let Some(claim) = self.claims.remove(&e.claim) {
                    self.begun.remove(&claim.at);
                }
            }
            Kind::JobStarted(e) => {
                let Some(mut cluster) = self.clusters.remove(&e.cluster) else { return };
                cluster.running.insert(e.proc, e.claim);
                let claim = self.claims.get(&e.claim);
                let machine = claim.map_or("unknown", |c| &c.machine);
                let slot = claim.map(|c| format!("{}@{machine}", c.slot));
                let body = Body::Execute(Execute { host: format!("<{machine}>"), slot, props: Vec::new() });
                Telling::new(self, &cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body);
                self.clusters.insert(e.cluster, cluster);
            }
            Kind::JobSuspended(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return };
                let body = Body::Suspended { processes: i64::from(e.processes) };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body);
            }
            Kind::JobContinued(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(
                    e.proc,
                    e.claim,
                    Body::Unsuspended,
                );
            }
            Kind::JobCheckpointed(e) => {
                let Some(cluster) = self.clusters.get(&e.cluster) else { return };
                let body = Body::Checkpointed { run: Run { sent: e.bytes, ..Run::default() } };
                Telling::new(self, cluster, at, e.cluster, time_ms, each).line(e.proc, e.claim, body);
            }
            Kind::JobExited(e) => {
                let (exit, run) = (how(&e.exit), used(&e.exit));
                let total = run.clone();
                let body =
                    Body::Terminated(Terminated { exit, core: None, run, total, resources: Vec::new() });
                self.all(at, e.cluster, &[Span { first: e.proc, count: 1 }], time_ms, each, |_| {
                    Some(body.clone())
                });
                self.finish(e.cluster, 1);
            }
            Kind::JobsRequeued(e) => {
                let body = Body::Evicted(Evicted {
                    requeued: e.exit.as_ref().map(how),
                    run: e.exit.as_ref().map(used).unwrap_or_default(),
                    reason: Some(e.reason.clone()),
                    code: e.code as i32,
                    ..Evicted::default()
                });
                // A job that had not started was not evicted from anywhere.
                let say = |started: bool| started.then(|| body.clone());
                self.all(at, e.cluster, &e.procs, time_ms, each, say);
            }
            Kind::JobsHeld(e) => {
                let reason = Some(e.reason.clone());
                let body = Body::Held { reason, code: e.code as i32, subcode: e.subcode as i32 };
                self.all(at, e.cluster, &e.procs, time_ms, each, |_| Some(body.clone()));
            }
            Kind::JobsReleased(e) => {
                let body = Body::Released { reason: Some(e.reason.clone()) };
                self.all(at, e.cluster, &e.procs, time_ms, each, |_| Some(body.clone()));
            }
            Kind::JobsRemoved(e) => {
                let body = Body::Aborted { reason: Some(e.reason.clone()) };
                self.all(at, e.cluster, &e.procs, time_ms, each, |_| Some(body.clone()));
                self.finish(e.cluster, e.procs.iter().map(|s| s.count).sum());
            }
            Kind::ManagerStarted(_)
            | Kind::StopRequested(_)
            | Kind::JobsAssigned(_)
            // Its end has been told.
            | Kind::JobsLeft(_)
            | Kind::TokenIssued(_)
            | Kind::MachineJoined(_)
            | Kind::TokenRevoked(_) => {}
        }
    }

    /// The same for all these procs, none of which runs any more; `say` is told whether it did.
    fn all(
        &mut self,
        at: u64,
        id: u32,
        procs: &[Span],
        time_ms: u64,
        each: &mut dyn FnMut(Line),
        say: impl Fn(bool) -> Option<Body>,
    ) {
        let Some(mut cluster) = self.clusters.remove(&id) else { return };
        let mut running = std::mem::take(&mut cluster.running);
        let mut telling = Telling::new(self, &cluster, at, id, time_ms, each);
        for proc in procs.iter().flat_map(|s| s.procs()) {
            if let Some(body) = say(running.remove(&proc).is_some()) {
                telling.line(proc, 0, body);
            }
        }
        cluster.running = running;
        self.clusters.insert(id, cluster);
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
struct Telling<'a> {
    story: &'a Story,
    cluster: &'a Cluster,
    id: u32,
    key: Key,
    time: Stamp,
    each: &'a mut dyn FnMut(Line),
}

impl<'a> Telling<'a> {
    fn new(
        story: &'a Story,
        cluster: &'a Cluster,
        at: u64,
        id: u32,
        time_ms: u64,
        each: &'a mut dyn FnMut(Line),
    ) -> Self {
        Self { story, cluster, id, key: (at, 0), time: Stamp::at((time_ms / 1000) as i64), each }
    }

    fn line(&mut self, proc: u32, claim: u64, body: Body) {
        // Counted whether or not there is a log, so that a line has the same key whenever it is told.
        self.key.1 += 1;
        let Some(path) = self.cluster.log(self.id, proc) else { return };
        let made = self.story.claims.get(&claim).map_or(u64::MAX, |c| c.at);
        let (cluster, proc) = (self.id as i32, proc as i32);
        let event = joblog::Event { cluster, proc, subproc: 0, time: self.time, body };
        (self.each)(Line {
            key: self.key,
            base: self.cluster.at.min(made),
            log: Log { owner: self.cluster.owner.clone(), path },
            text: self.story.writer.event(&event),
        });
    }
}

impl Cluster {
    /// `None` when no proc has a log.
    fn new(at: u64, owner: &str, template: &JobTemplate) -> Option<Self> {
        let kept = |name: &str| KEPT.iter().any(|k| k.eq_ignore_ascii_case(name));
        let log = |name: &str| name.eq_ignore_ascii_case("UserLog");
        let names = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
        if !names.into_iter().any(|n| log(n)) {
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
            owner: Arc::from(owner),
            unfinished: template.procs,
            template,
            shared: None,
            running: HashMap::new(),
        };
        if same {
            cluster.shared = Some(cluster.log(0, 0)?);
        }
        Some(cluster)
    }

    /// The text of a string attribute.
    fn text(&self, id: u32, proc: u32, name: &str) -> Option<String> {
        let expr = Expr::parse(&self.template.attribute(id, proc, name)?).ok()?;
        expr.as_literal()?.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
    }

    fn log(&self, id: u32, proc: u32) -> Option<Arc<str>> {
        if let Some(shared) = &self.shared {
            return Some(shared.clone());
        }
        let log = self.text(id, proc, "UserLog")?;
        if Path::new(&log).is_absolute() {
            return Some(Arc::from(log));
        }
        let path = PathBuf::from(self.text(id, proc, "Iwd")?).join(log);
        path.is_absolute().then(|| Arc::from(path.to_string_lossy()))
    }
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
