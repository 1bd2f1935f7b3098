//! Connected agents: what the core decided, put into messages.

use std::collections::{HashMap, HashSet};

use api::agent::{
    Ack, Ask, Assign, AssignedJob, Claim, Cluster, Control, Down, Hello, Object, Question, Recall, Report,
    Stop, ToAgent, ToManager, Up, Verb, Welcome,
};
use classad::ClassAd;
use model::event::Resources;
use model::limits;
use model::report::{Attempt, Happening};
use model::{ClaimId, ClaimKey, JobId, MachineName};
use scheduler::{AgentHello, AgentSlot, Core, Effect, HeldClaim, HeldJob, ReportKind, Session, SlotState};
use tokio::sync::{mpsc, watch};

use crate::objects::{self, CheckpointKey};

/// Clusters that an agent is told about before it may forget the older ones.
const KNOWN_CLUSTERS: usize = 1_024;

/// Words that wait for an agent at most; one that does not read them is better off with a new connection.
const WORDS: usize = 8_192;
/// Bytes of the jobs in one message: with the rest of it less than `MESSAGE_BYTES`, with what a starter gets less than
/// `STARTER_MESSAGE_BYTES`.
const ASSIGN_BYTES: usize = 1 << 20;
/// Parts of objects that wait for an agent at most: it asks for the next when it has read them.
const PIECES: usize = 2;

/// An agent's end of its connection with the manager. Both channels are bounded: who asks without reading waits, and who
/// does not read what the manager has to say is hung up on.
#[derive(Debug)]
pub struct FromManager {
    /// What the core decided.
    pub words: mpsc::Receiver<ToAgent>,
    /// Answers to what the agent asks of the object store.
    pub pieces: mpsc::Receiver<ToAgent>,
}

impl FromManager {
    /// The next; `None` when the session is over.
    pub async fn recv(&mut self) -> Option<ToAgent> {
        tokio::select! {
            biased;
            word = self.words.recv() => word,
            Some(piece) = self.pieces.recv() => Some(piece),
        }
    }
}

/// A session that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) pieces: mpsc::Sender<ToAgent>,
    pub(crate) from: FromManager,
    /// Ends when the manager wants no more of it.
    pub(crate) wanted: watch::Receiver<()>,
}

/// What arrives from an agent.
pub type Incoming = ToManager;

#[derive(Debug)]
struct Open {
    machine: MachineName,
    key: String,
    words: mpsc::Sender<ToAgent>,
    known: HashSet<u32>,
    _wanted: watch::Sender<()>,
}

/// All open sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: HashMap<Session, Open>,
    next: u64,
    checkpoint_key: CheckpointKey,
    deaf: std::sync::Mutex<HashSet<Session>>,
}

impl Sessions {
    pub(crate) fn new(checkpoint_key: CheckpointKey) -> Self {
        Self { checkpoint_key, ..Self::default() }
    }

    pub(crate) fn open(&mut self, machine: MachineName, key: String) -> Opened {
        self.next += 1;
        let session = Session(self.next);
        let (words, from_words) = mpsc::channel(WORDS);
        let (pieces, from_pieces) = mpsc::channel(PIECES);
        let (still, wanted) = watch::channel(());
        let open = Open { machine, key, words, known: HashSet::new(), _wanted: still };
        self.open.insert(session, open);
        Opened { session, pieces, from: FromManager { words: from_words, pieces: from_pieces }, wanted }
    }

    /// The sessions of a machine.
    pub(crate) fn of(&self, machine: &MachineName) -> Vec<Session> {
        self.open.iter().filter(|(_, open)| open.machine == *machine).map(|(session, _)| *session).collect()
    }

    pub(crate) fn key(&self, session: Session) -> Option<&str> {
        self.open.get(&session).map(|open| open.key.as_str())
    }

    /// Sends, or takes the agent for deaf: it will be told everything when it comes back.
    fn send(&self, session: Session, open: &Open, down: Down) {
        if let Err(mpsc::error::TrySendError::Full(_)) = open.words.try_send(ToAgent { down: Some(down) })
            && let Ok(mut deaf) = self.deaf.lock()
        {
            deaf.insert(session);
        }
    }

    /// Sessions whose agents do not read what they are told.
    pub(crate) fn take_deaf(&self) -> HashSet<Session> {
        self.deaf.lock().map(|mut deaf| std::mem::take(&mut *deaf)).unwrap_or_default()
    }

    pub(crate) fn close(&mut self, session: Session) {
        self.open.remove(&session);
    }

    pub(crate) fn machine(&self, session: Session) -> Option<&MachineName> {
        self.open.get(&session).map(|o| &o.machine)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn say(&self, session: Session, down: Down) {
        if let Some(open) = self.open.get(&session) {
            self.send(session, open, down);
        }
    }

    /// Says something to a machine; false when it is not connected.
    pub(crate) fn tell(&self, machine: &MachineName, down: Down) -> bool {
        // The newest, should an old connection still be around.
        let newest = self.open.iter().filter(|(_, open)| open.machine == *machine).max_by_key(|(s, _)| **s);
        newest.is_some_and(|(_, open)| open.words.try_send(ToAgent { down: Some(down) }).is_ok())
    }

    pub(crate) fn welcome(&self, session: Session, beat_ms: u64, private: bool) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        if let Some(machine) = self.machine(session).map(ToString::to_string) {
            self.say(session, Down::Welcome(Welcome { version, beat_ms, machine, private }));
        }
    }

    /// After the manager had to go back to what is on disk.
    pub(crate) fn ask_all_again(&mut self) {
        for open in self.open.values_mut() {
            open.known.clear();
        }
        for (session, open) in &self.open {
            self.send(*session, open, Down::Again(true));
        }
    }

    /// Carries an effect out.
    pub(crate) fn deliver(&mut self, effect: Effect, core: &Core) {
        match effect {
            Effect::Claim { session, claim, key, slot, owner, resources, lease_ms } => {
                let key = key.0.to_vec();
                self.say(
                    session,
                    Down::Claim(Claim { claim: claim.0, key, slot, owner, resources, lease_ms }),
                );
            }
            Effect::Assign { session, claim, cluster, jobs } => {
                self.assign(session, claim, cluster, &jobs, core)
            }
            Effect::Stop { session, claim, job, attempt, vacate } => {
                let job = Attempt { cluster: job.cluster, proc: job.proc, attempt };
                self.say(session, Down::Stop(Stop { claim: claim.0, job, vacate }));
            }
            Effect::Control { session, claim, what } => {
                let verb = match what {
                    scheduler::Control::Suspend => Verb::Suspend,
                    scheduler::Control::Continue => Verb::Continue,
                    scheduler::Control::Checkpoint => Verb::Checkpoint,
                };
                let control = Control { verb: verb.into(), claim: claim.0, ..Control::default() };
                self.say(session, Down::Ask(Ask { id: 0, question: Some(Question::Control(control)) }));
            }
            Effect::Recall { session, claim, count } => {
                self.say(session, Down::Recall(Recall { claim: claim.0, count }));
            }
            Effect::Drop { session, claim } => self.say(session, Down::Drop(claim.0)),
            Effect::Ack { session, claim, seq } => self.say(session, Down::Ack(Ack { claim: claim.0, seq })),
        }
    }

    fn assign(&mut self, session: Session, claim: ClaimId, cluster: u32, jobs: &[(u32, u32)], core: &Core) {
        // Gone already: removed in the same batch. Then nothing of it may start.
        let Some((template, owner)) = core.template(cluster) else { return };
        let Some(open) = self.open.get_mut(&session) else { return };
        if !open.known.contains(&cluster) {
            let forget_others = open.known.len() >= KNOWN_CLUSTERS;
            if forget_others {
                open.known.clear();
            }
            open.known.insert(cluster);
            let owner = owner.to_string();
            let shared = template.shared.clone();
            let varying = template.varying.iter().map(|v| v.name.clone()).collect();
            let told = Cluster { cluster, owner, shared, varying, forget_others };
            self.say(session, Down::Cluster(told));
        }
        // A machine gets the keys of the jobs that it runs, and of those only that have a use for one.
        let names = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
        let transparent = names.into_iter().any(|n| n.eq_ignore_ascii_case("WantTransparentCheckpoint"));
        let jobs = jobs.iter().map(|&(proc, attempt)| {
            let values = template.varying.iter().map(|v| template.expand(v, cluster, proc)).collect();
            let checkpoint = core.checkpoint(JobId { cluster, proc });
            let checkpoint = checkpoint.map(|c| Object {
                name: c.object.to_string(),
                bytes: c.bytes,
                platform: c.platform.to_string(),
            });
            let checkpoint_key =
                if transparent { self.checkpoint_key.of_job(cluster, proc) } else { Vec::new() };
            AssignedJob { proc, attempt, values, checkpoint, checkpoint_key }
        });
        for jobs in split(jobs.collect()) {
            self.say(session, Down::Assign(Assign { claim: claim.0, cluster, jobs }));
        }
    }
}

/// Jobs in messages that their agent can read: one that is larger than the limit would cost it the connection.
fn split(jobs: Vec<AssignedJob>) -> Vec<Vec<AssignedJob>> {
    use prost::Message as _;
    let (mut messages, mut bytes) = (vec![Vec::new()], 0);
    for job in jobs {
        bytes += job.encoded_len();
        if bytes > ASSIGN_BYTES {
            bytes = job.encoded_len();
            messages.push(Vec::new());
        }
        if let Some(last) = messages.last_mut() {
            last.push(job);
        }
    }
    messages.retain(|jobs| !jobs.is_empty());
    messages
}

/// What an agent said, in the core's words. `None` for what makes no sense.
#[derive(Debug)]
pub(crate) enum Said {
    Hello(Box<AgentHello>),
    Beat(u64),
    Report(scheduler::Report),
    Machine { ads: Vec<(u32, ClassAd)>, slots: Vec<(ClaimId, SlotState)> },
}

pub(crate) fn understand(session: Session, machine: &MachineName, message: ToManager) -> Option<Said> {
    match message.up? {
        Up::Hello(hello) => Some(Said::Hello(Box::new(hello_of(session, machine, hello)))),
        Up::Beat(n) => Some(Said::Beat(n)),
        Up::Report(report) => report_of(report).map(Said::Report),
        Up::Machine(now) => {
            let word = |text: String| model::text::one_line(&text, model::limits::NAME_BYTES);
            let slots = now.slots.into_iter().take(model::limits::SLOTS_PER_AGENT).map(|s| {
                let state = SlotState {
                    state: word(s.state),
                    activity: word(s.activity),
                    since: s.since,
                    image_kib: s.image_kib,
                    rss_kib: s.rss_kib,
                    cpu_us: s.cpu_us,
                    rank: s.rank,
                    transfer: s.transfer.map(|t| (t.left, t.rate)),
                };
                (ClaimId(s.claim), state)
            });
            let slots = slots.collect();
            let first = (!now.ad.is_empty()).then(|| (1, ad_of(&now.ad, machine, 1)));
            let more = now.more.iter().take(model::limits::SLOTS_PER_AGENT).filter(|s| s.number > 1);
            let ads =
                first.into_iter().chain(more.map(|s| (s.number, ad_of(&s.ad, machine, s.number)))).collect();
            Some(Said::Machine { ads, slots })
        }
        // Dealt with before the writer hears of them.
        Up::Trace(_) | Up::Answer(_) | Up::Put(_) | Up::Get(_) => None,
    }
}

fn held(attempt: Attempt) -> HeldJob {
    HeldJob { job: JobId { cluster: attempt.cluster, proc: attempt.proc }, attempt: attempt.attempt }
}

fn hello_of(session: Session, machine: &MachineName, hello: Hello) -> AgentHello {
    let ad = ad_of(&hello.ad, machine, 1);
    let claims = hello.claims.into_iter().filter_map(|claim| {
        let key = ClaimKey(claim.key.try_into().ok()?);
        let jobs = claim.jobs.into_iter().map(held).collect();
        Some(HeldClaim { claim: ClaimId(claim.claim), key, jobs, ending: claim.ending })
    });
    let claims = claims.collect();
    let more = hello.more.iter().take(model::limits::SLOTS_PER_AGENT).filter(|s| s.number > 1);
    let more = more
        .map(|s| AgentSlot {
            number: s.number,
            total: believable(&s.total),
            ad: ad_of(&s.ad, machine, s.number),
        })
        .collect();
    AgentHello { machine: machine.to_string(), session, total: believable(&hello.total), ad, more, claims }
}

/// Sums over many machines must stay what can be counted, whatever one of them says.
fn believable(said: &Resources) -> Resources {
    Resources {
        cpus: said.cpus.min(limits::CORES_PER_MACHINE),
        memory_mib: said.memory_mib.min(limits::MEMORY_MIB_PER_MACHINE),
        disk_kib: said.disk_kib.min(limits::DISK_KIB_PER_MACHINE),
        gpus: said.gpus.min(limits::CORES_PER_MACHINE),
    }
}

/// What a machine says of a slot, under the names that its certificate gives it: a machine that called itself like another
/// would get the jobs that are meant for that one.
fn ad_of(attributes: &[model::template::Attribute], machine: &MachineName, slot: u32) -> ClassAd {
    let mut ad = ClassAd::new();
    for attribute in attributes.iter().take(model::limits::ATTRIBUTES_PER_AD) {
        // A machine's mistake in one attribute must not hide the machine.
        let _ = ad.insert_text(&attribute.name, &attribute.expr);
    }
    ad.insert_str("Machine", machine.as_str());
    ad.insert_str("Name", &format!("slot{slot}@{machine}"));
    ad.insert_int("SlotID", i64::from(slot));
    ad
}

fn report_of(report: Report) -> Option<scheduler::Report> {
    let reason = |text: String| model::text::one_line(&text, model::limits::REASON_BYTES);
    let kind = match report.happening? {
        Happening::Started(e) => ReportKind::Started { job: held(e.job), started_ms: e.started_ms },
        Happening::Exited(e) => {
            ReportKind::Exited { job: held(e.job), exit: e.exit, started_ms: e.started_ms }
        }
        Happening::CannotStart(e) => ReportKind::CannotStart {
            job: held(e.job),
            reason: reason(e.reason),
            code: e.code,
            subcode: e.subcode,
        },
        Happening::Evicted(e) => {
            let hold = e.hold.map(|h| (reason(h.reason), h.subcode));
            ReportKind::Evicted { job: held(e.job), reason: reason(e.reason), code: e.code, hold }
        }
        Happening::Returned(e) => ReportKind::Returned { jobs: e.jobs.into_iter().map(held).collect() },
        Happening::Gone(why) => ReportKind::Gone { reason: reason(why) },
        Happening::Suspended(e) => ReportKind::Suspended { job: held(e.job), processes: e.processes },
        Happening::NotSaved(e) => ReportKind::NotSaved { job: held(e.job), reason: reason(e.reason) },
        Happening::Warned(e) => ReportKind::Warned {
            job: held(e.job),
            remaining_s: e.remaining_s,
            signal: e.signal,
            reason: reason(e.reason),
        },
        Happening::Continued(job) => ReportKind::Continued { job: held(job) },
        Happening::Provisioning(e) => ReportKind::Provisioning { job: held(e.job), installing: e.installing },
        Happening::ProvisionFailed(e) => {
            ReportKind::ProvisionFailed { job: held(e.job), reason: reason(e.reason) }
        }
        Happening::ReleaseFailed(why) => ReportKind::ReleaseFailed { reason: reason(why) },
        Happening::Checkpointed(e) => {
            let (transfer_ms, cap) = (e.transfer_ms, e.cap);
            let object = objects::name(&e.sha256)?;
            let platform = model::text::one_line(&e.platform, 300);
            ReportKind::Checkpointed { job: held(e.job), object, bytes: e.bytes, transfer_ms, cap, platform }
        }
    };
    Some(scheduler::Report { claim: ClaimId(report.claim), seq: report.seq, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_believed_up_to_what_a_machine_can_have() {
        let said = Resources { cpus: u32::MAX, memory_mib: u64::MAX, disk_kib: u64::MAX, gpus: u32::MAX };
        let Resources { cpus, memory_mib, disk_kib, gpus } = believable(&said);
        assert_eq!((cpus, gpus), (1 << 16, 1 << 16));
        assert_eq!((memory_mib, disk_kib), (1 << 30, 1 << 50));
        let usual = Resources { cpus: 64, memory_mib: 512 << 10, disk_kib: 1 << 34, gpus: 8 };
        assert_eq!(believable(&usual), usual);
    }

    #[test]
    fn jobs_that_are_large_together_go_in_messages_that_can_be_read() {
        let job =
            |proc, bytes| AssignedJob { proc, values: vec!["x".repeat(bytes)], ..AssignedJob::default() };
        let sizes = |jobs: Vec<AssignedJob>| split(jobs).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![]), [] as [usize; 0]);
        assert_eq!(sizes((0..256).map(|p| job(p, 10)).collect()), [256]);
        assert_eq!(sizes((0..7).map(|p| job(p, 300_000)).collect()), [3, 3, 1]);
        assert_eq!(sizes(vec![job(0, 2 << 20), job(1, 1)]), [1, 1], "whatever its size, a job goes");
        let order: Vec<u32> =
            split((0..7).map(|p| job(p, 300_000)).collect()).concat().iter().map(|j| j.proc).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
    }
}
