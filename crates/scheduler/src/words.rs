//! What the core and its machines say to each other, in `model`'s words: what they may say is cut to what can be kept, and what the
//! core decided is put into messages.

use std::collections::HashSet;

use classad::ClassAd;
use model::agent::{
    Ack, Ask, Assign, AssignedJob, Better, Claim, Cluster, Control, Down, Hello, Object, Question, Recall,
    Report, Stop, Up, Verb,
};
use model::event::Resources;
use model::report::{Attempt, Happening};
use model::{ClaimId, ClaimKey, JobId, JobTemplate, MachineName, limits};

use crate::{AgentHello, AgentSlot, Core, Effect, HeldClaim, Session, SlotState, view};

/// Clusters that an agent is told about before it may forget the older ones.
const KNOWN_CLUSTERS: usize = 1_024;

/// Bytes of the jobs in one message: with the rest of it less than `MESSAGE_BYTES`, with what a starter gets less than
/// `STARTER_MESSAGE_BYTES`.
const ASSIGN_BYTES: usize = 1 << 20;

/// Names of results in one report.
const MOVED_NAMES: usize = 1_000;
/// Remarks in one report.
const MOVED_NOTES: usize = 200;

/// What a machine was told in a session and need not be told again.
#[derive(Debug, Default)]
pub struct Told {
    clusters: HashSet<u32>,
    /// How often it was asked to say hello again.
    asked: u64,
    /// Which of these was answered.
    answered: Option<u64>,
}

impl Told {
    /// Asks the machine to begin anew: it is told everything again.
    pub fn ask_again(&mut self) -> Down {
        self.clusters.clear();
        self.asked += 1;
        Down::Again(self.asked)
    }

    /// True for the hello that answers what was asked last. One that was under way when the machine was asked again knows nothing of
    /// what came between them, and what it does not list would be taken for lost; so would what was given to the machine between
    /// two that answer the same.
    pub fn expects(&mut self, again: u64) -> bool {
        let expected = again == self.asked && self.answered != Some(again);
        if expected {
            self.answered = Some(again);
        }
        expected
    }

    /// An effect in words, for the session that it is meant for. `key_of` makes what a job's transparent checkpoints are sealed with.
    pub fn words(
        &mut self,
        effect: Effect,
        core: &Core,
        key_of: impl Fn(JobId) -> Vec<u8>,
    ) -> (Session, Vec<Down>) {
        let session = effect.session();
        let word = match effect {
            Effect::Claim { claim, key, slot, owner, resources, lease_ms, notice, instead_of, .. } => {
                let (key, notice) = (key.0.to_vec(), notice.into());
                let instead_of = instead_of.map_or(0, |c| c.0);
                let claim = claim.0;
                Down::Claim(Claim { claim, key, slot, owner, resources, lease_ms, notice, instead_of })
            }
            Effect::Assign { claim, cluster, jobs, waits, .. } => {
                return (session, self.assign(claim, cluster, &jobs, waits, core, key_of));
            }
            Effect::Better { claim, key, job, reason, .. } => {
                return (session, self.better(claim, &key, job, reason, core));
            }
            Effect::Activate { claim, .. } => Down::Activate(claim.0),
            Effect::Keep { claim, .. } => Down::Keep(claim.0),
            Effect::Stop { claim, job, attempt, vacate, .. } => {
                Down::Stop(Stop { claim: claim.0, job: Attempt::at(job, attempt), vacate })
            }
            Effect::Control { claim, what, .. } => {
                let verb = match what {
                    crate::Control::Suspend => Verb::Suspend,
                    crate::Control::Continue => Verb::Continue,
                    crate::Control::Checkpoint => Verb::Checkpoint,
                };
                let control = Control { verb: verb.into(), claim: claim.0, ..Control::default() };
                Down::Ask(Ask { id: 0, question: Some(Question::Control(control)) })
            }
            Effect::Recall { claim, count, .. } => Down::Recall(Recall { claim: claim.0, count }),
            Effect::Drop { claim, .. } => Down::Drop(claim.0),
            Effect::Ack { claim, seq, .. } => Down::Ack(Ack { claim: claim.0, seq }),
        };
        (session, vec![word])
    }

    fn assign(
        &mut self,
        claim: ClaimId,
        cluster: u32,
        jobs: &[(u32, u32)],
        waits: bool,
        core: &Core,
        key_of: impl Fn(JobId) -> Vec<u8>,
    ) -> Vec<Down> {
        // Gone already: removed in the same batch. Then nothing of it may start.
        let Some((template, owner)) = core.template(cluster) else { return Vec::new() };
        let mut words = self.cluster(cluster, &template, &owner);
        // A machine gets the keys of the jobs that it runs, and of those only that have a use for one.
        let names = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
        let transparent = names.into_iter().any(|n| n.eq_ignore_ascii_case("WantTransparentCheckpoint"));
        let jobs = jobs.iter().map(|&(proc, attempt)| {
            let values = template.varying.iter().map(|v| template.expand(v, cluster, proc)).collect();
            let job = JobId { cluster, proc };
            let checkpoint = view::checkpoint(&core.books.queue, job).map(|c| Object {
                name: c.object.to_string(),
                bytes: c.bytes,
                platform: c.platform.to_string(),
            });
            let checkpoint_key = if transparent { key_of(job) } else { Vec::new() };
            let checkpoint_missed = view::checkpoint_missed(&core.books.queue, job);
            AssignedJob { proc, attempt, values, checkpoint, checkpoint_key, checkpoint_missed }
        });
        let messages = split(jobs.collect()).into_iter();
        words.extend(messages.map(|jobs| Down::Assign(Assign { claim: claim.0, cluster, jobs, waits })));
        words
    }

    /// A better match, with the job that is preferred.
    fn better(
        &mut self,
        claim: ClaimId,
        key: &ClaimKey,
        job: JobId,
        reason: String,
        core: &Core,
    ) -> Vec<Down> {
        let Some((template, owner)) = core.template(job.cluster) else { return Vec::new() };
        let mut words = self.cluster(job.cluster, &template, &owner);
        let values = template.varying.iter().map(|v| template.expand(v, job.cluster, job.proc)).collect();
        let (instead_of, key) = (claim.0, key.0.to_vec());
        let JobId { cluster, proc } = job;
        words.push(Down::Better(Better { instead_of, key, cluster, proc, values, reason }));
        words
    }

    /// What is to be said of a cluster before anything of it.
    fn cluster(&mut self, cluster: u32, template: &JobTemplate, owner: &str) -> Vec<Down> {
        let mut words = Vec::new();
        if !self.clusters.contains(&cluster) {
            let forget_others = self.clusters.len() >= KNOWN_CLUSTERS;
            if forget_others {
                self.clusters.clear();
            }
            self.clusters.insert(cluster);
            let owner = owner.to_owned();
            let shared = template.shared.clone();
            let varying = template.varying.iter().map(|v| v.name.clone()).collect();
            words.push(Down::Cluster(Cluster { cluster, owner, shared, varying, forget_others }));
        }
        words
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
pub enum Said {
    /// Here it is; with the number of the question that it answers.
    Hello(Box<AgentHello>, u64),
    /// It lives.
    Beat(u64),
    /// Something happened to a claim.
    Report(Report),
    /// It has changed.
    Machine {
        /// Ads of its slots, by number.
        ads: Vec<(u32, ClassAd)>,
        /// What its claimed slots do.
        slots: Vec<(ClaimId, SlotState)>,
    },
}

/// Takes what a machine says.
pub fn understand(session: Session, machine: &MachineName, word: Up) -> Option<Said> {
    match word {
        Up::Hello(hello) => {
            let again = hello.again;
            Some(Said::Hello(Box::new(hello_of(session, machine, hello)), again))
        }
        Up::Beat(n) => Some(Said::Beat(n)),
        Up::Report(report) => report_of(report).map(Said::Report),
        Up::Machine(now) => {
            let word = |text: String| model::text::one_line(&text, limits::NAME_BYTES);
            let slots = now.slots.into_iter().take(limits::SLOTS_PER_AGENT).map(|s| {
                let state = SlotState {
                    state: word(s.state),
                    activity: word(s.activity),
                    age_ms: s.age_ms,
                    since_ms: 0,
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
            let more = now.more.iter().take(limits::SLOTS_PER_AGENT).filter(|s| s.number > 1);
            let ads =
                first.into_iter().chain(more.map(|s| (s.number, ad_of(&s.ad, machine, s.number)))).collect();
            Some(Said::Machine { ads, slots })
        }
        // Dealt with before the writer hears of them.
        Up::Trace(_)
        | Up::Answer(_)
        | Up::Put(_)
        | Up::Get(_)
        | Up::Want(_)
        | Up::Land(_)
        | Up::Visit(_)
        | Up::Find(_)
        | Up::Serve(_) => None,
    }
}

fn hello_of(session: Session, machine: &MachineName, hello: Hello) -> AgentHello {
    let ad = ad_of(&hello.ad, machine, 1);
    let claims = hello.claims.into_iter().filter_map(|claim| {
        let stage = claim.stage();
        let key = ClaimKey(claim.key.try_into().ok()?);
        Some(HeldClaim { claim: ClaimId(claim.claim), key, jobs: claim.jobs, ending: claim.ending, stage })
    });
    let claims = claims.collect();
    let more = hello.more.iter().take(limits::SLOTS_PER_AGENT).filter(|s| s.number > 1);
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
    for attribute in attributes.iter().take(limits::ATTRIBUTES_PER_AD) {
        // A machine's mistake in one attribute must not hide the machine.
        let _ = ad.insert_text(&attribute.name, &attribute.expr);
    }
    ad.insert_str("Machine", machine.as_str());
    ad.insert_str("Name", &format!("slot{slot}@{machine}"));
    ad.insert_int("SlotID", i64::from(slot));
    ad
}

/// What a machine reports, in texts that can be kept and shown. `None` for what says nothing.
fn report_of(mut report: Report) -> Option<Report> {
    let tidy = |text: &mut String| *text = model::text::one_line(text, limits::REASON_BYTES);
    match report.happening.as_mut()? {
        Happening::CannotStart(e) => tidy(&mut e.reason),
        Happening::Evicted(e) => {
            tidy(&mut e.reason);
            if let Some(hold) = &mut e.hold {
                tidy(&mut hold.reason);
            }
        }
        Happening::NotSaved(e) => tidy(&mut e.reason),
        Happening::Warned(e) => tidy(&mut e.reason),
        Happening::Moved(e) => {
            e.names.truncate(MOVED_NAMES);
            e.notes.truncate(MOVED_NOTES);
            e.names.iter_mut().chain(&mut e.notes).for_each(tidy);
        }
        Happening::ProvisionFailed(e) => tidy(&mut e.reason),
        Happening::Gone(why) | Happening::ReleaseFailed(why) => tidy(why),
        Happening::Checkpointed(e) => {
            e.object()?;
            e.platform = model::text::one_line(&e.platform, 300);
        }
        Happening::Started(_)
        | Happening::Exited(_)
        | Happening::Returned(_)
        | Happening::Suspended(_)
        | Happening::Continued(_)
        | Happening::Provisioning(_) => {}
        Happening::Seat(e) => tidy(&mut e.reason),
    }
    Some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_hellos_that_cross_a_question_only_the_answer_counts() {
        let mut told = Told::default();
        assert!(matches!(told.ask_again(), Down::Again(1)), "before the first one came");
        assert!(!told.expects(0), "it was under way");
        assert!(told.expects(1) && !told.expects(1), "once");
        assert!(matches!(told.ask_again(), Down::Again(2)));
        assert!(!told.expects(1) && told.expects(2));
        let mut fresh = Told::default();
        assert!(fresh.expects(0) && !fresh.expects(0) && !fresh.expects(7));
    }

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
