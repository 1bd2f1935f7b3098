//! Whose turn it is: fair share, limits, quotas, the throttle, and preemption, through the whole core.

use classad::{ClassAd, Expr};
use model::agent::{Notice, Report};
use model::event::{Exit, Resources};
use model::report::{Attempt, Evicted, Happening, Returned, SeatAnswer, SeatSaid, Started};
use model::{ClaimKey, Class, JobId, JobName, JobTemplate, Now};

use super::said::{exited, report};
use super::{digest, template};
use crate::pool::host_of;
use crate::{
    Act, Actor, AgentHello, Burst, Core, Effect, Group, Limits, Out, Quota, Refusal, Session, Settings,
    Shares, Submission, Turn, Which,
};

/// A core, a clock, and what became of the last input.
pub(super) struct Pool {
    pub(super) core: Core,
    pub(super) now: Now,
    pub(super) out: Out,
    key: u64,
    /// Effects that were answered.
    pub(super) answered: usize,
}

impl Pool {
    pub(super) fn new(settings: Settings) -> Self {
        let now = Now { mono_ms: 1, wall_ms: 1_700_000_000_000 };
        Self { core: Core::new(settings), now, out: Out::default(), key: 0, answered: 0 }
    }

    pub(super) fn keys(&mut self) {
        self.take_seats();
        while self.core.keys_left() < 256 {
            self.key += 1;
            let mut key = [0; 32];
            key[..8].copy_from_slice(&self.key.to_le_bytes());
            self.core.give_keys([ClaimKey(key)]);
        }
    }

    pub(super) fn machine(&mut self, name: &str, cpus: u32, more: &str) {
        self.keys();
        let ad = ClassAd::parse_new(&format!(
            "[Name = \"{name}\"; Cpus = {cpus}; Memory = 4096; Requirements = true; {more}]"
        ))
        .unwrap();
        let total = Resources { cpus, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
        let session = Session(self.key + 1_000 + self.core.pool.numbers() as u64);
        let hello =
            AgentHello { machine: name.into(), session, total, ad, more: Vec::new(), claims: Vec::new() };
        self.core.agent_up(&mut Turn { now: self.now, digest, out: &mut self.out }, hello);
    }

    pub(super) fn submit(&mut self, owner: &str, template: JobTemplate) -> u32 {
        self.try_submit(owner, template).unwrap()
    }

    pub(super) fn try_submit(&mut self, owner: &str, template: JobTemplate) -> Result<u32, Refusal> {
        self.submit_keyed(owner, template, "")
    }

    pub(super) fn submit_keyed(
        &mut self,
        owner: &str,
        template: JobTemplate,
        key: &str,
    ) -> Result<u32, Refusal> {
        self.keys();
        let submission = Submission { owner: owner.into(), template, idempotency_key: key.into() };
        self.core.submit(&mut Turn { now: self.now, digest, out: &mut self.out }, submission)
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.keys();
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
        // Machines send beats meanwhile.
        let sessions: Vec<_> =
            self.core.pool.machines().iter().filter_map(|(n, m)| Some((n.to_string(), m.session?))).collect();
        for (name, session) in sessions {
            self.core.agent_heard(self.now, &name, session);
        }
        self.core.tick(&mut Turn { now: self.now, digest, out: &mut self.out });
    }

    /// Jobs that claims hold, by cluster.
    pub(super) fn live(&self, cluster: u32) -> usize {
        self.core.queue.clusters().get(&cluster).map_or(0, |c| c.live.len())
    }

    /// Ends the first job of a claim that runs jobs of a cluster.
    pub(super) fn end(&mut self, cluster: u32) {
        self.keys();
        let claims = self.core.pool.claims().iter();
        let (id, claim) = claims
            .filter(|(_, c)| c.jobs.first().is_some_and(|j| j.cluster == cluster))
            .min_by_key(|(id, _)| **id)
            .unwrap();
        let (id, job, machine) = (*id, claim.jobs[0], host_of(&claim.machine).to_owned());
        let attempt = self.core.queue.clusters()[&cluster].live[&job.proc].attempt;
        let exit = Exit { code: Some(0), wall_us: 3_600_000_000, ..Exit::default() };
        let held = Attempt::at(job, attempt);
        let kind = exited(held, exit);
        let session = self.core.pool.machines()[&*machine].session.unwrap();
        let report = report(id, 1, kind);
        self.core.agent_report(
            &mut Turn { now: self.now, digest, out: &mut self.out },
            &machine,
            session,
            report,
        );
    }

    /// A job's machine makes it go, and its claim with it.
    pub(super) fn evict(&mut self, cluster: u32, proc: u32) {
        let claim = self.core.queue.clusters()[&cluster].live[&proc].claim;
        let machine = host_of(&self.core.pool.claims()[&claim].machine).to_owned();
        let session = self.core.pool.machines()[&*machine].session.unwrap();
        let reason = || "owner".to_owned();
        self.tell(cluster, proc, |job| {
            Happening::Evicted(Evicted { job, reason: reason(), code: 1011, hold: None })
        });
        let given = self.core.pool.claims().get(&claim).is_some_and(|c| !c.jobs.is_empty());
        assert!(!given, "nothing is given to a claim that its machine ends");
        let gone = report(claim, 2, Happening::Gone(reason()));
        self.core.agent_report(
            &mut Turn { now: self.now, digest, out: &mut self.out },
            &machine,
            session,
            gone,
        );
    }

    /// An administrator gives a cluster another class.
    pub(super) fn set_class(&mut self, cluster: u32, class: Class) {
        self.keys();
        let admin = Actor { user: "root".into(), any_owner: true };
        let act = Act::Reorder { priority: None, class: Some(class) };
        let which = Which::Named(JobName::Cluster(cluster));
        self.core
            .act(&mut Turn { now: self.now, digest, out: &mut self.out }, &admin, act, &which, "")
            .unwrap();
    }

    /// A job's process was started.
    pub(super) fn begin(&mut self, cluster: u32, proc: u32) {
        self.tell(cluster, proc, |job| Happening::Started(Started { job }));
    }

    /// A job's machine gives it back before it started.
    pub(super) fn give_back(&mut self, cluster: u32, proc: u32) {
        self.tell(cluster, proc, |job| Happening::Returned(Returned { jobs: vec![job] }));
    }

    /// The machine of a job says something of it.
    pub(super) fn tell(&mut self, cluster: u32, proc: u32, what: impl FnOnce(Attempt) -> Happening) {
        self.tell_aged(cluster, proc, Some(0), what);
    }

    /// The same of something that was so long ago, or nobody knows how long.
    pub(super) fn tell_aged(
        &mut self,
        cluster: u32,
        proc: u32,
        age_ms: Option<u64>,
        what: impl FnOnce(Attempt) -> Happening,
    ) {
        self.keys();
        let live = self.core.queue.clusters()[&cluster].live[&proc].clone();
        let machine = host_of(&self.core.pool.claims()[&live.claim].machine).to_owned();
        let session = self.core.pool.machines()[&*machine].session.unwrap();
        let kind = what(Attempt { cluster, proc, attempt: live.attempt });
        let report = Report { age_ms, ..report(live.claim, 1, kind) };
        self.core.agent_report(
            &mut Turn { now: self.now, digest, out: &mut self.out },
            &machine,
            session,
            report,
        );
    }

    /// An administrator takes a cluster out of the queue.
    pub(super) fn remove(&mut self, cluster: u32) {
        self.keys();
        let (actor, which) =
            (Actor { user: "root".into(), any_owner: true }, Which::Named(JobName::Cluster(cluster)));
        self.core
            .act(&mut Turn { now: self.now, digest, out: &mut self.out }, &actor, Act::Remove, &which, "")
            .unwrap();
    }

    /// Jobs that are to leave: by the manager's word, or for better ones.
    pub(super) fn stops(&mut self) -> Vec<JobId> {
        self.take_seats();
        let effects = std::mem::take(&mut self.out.effects);
        self.answered = 0;
        let leaving = |e: &Effect| match e {
            Effect::Stop { job, .. } => Some(*job),
            Effect::Better { claim, .. } => self.core.pool.claims().get(claim)?.jobs.first().copied(),
            _ => None,
        };
        let jobs: std::collections::BTreeSet<JobId> = effects.iter().filter_map(leaving).collect();
        jobs.into_iter().collect()
    }

    /// Machines take the seats that they are told of.
    pub(super) fn take_seats(&mut self) {
        while let Some(effect) = self.out.effects.get(self.answered).cloned() {
            self.answered += 1;
            let (claim, answer) = match effect {
                Effect::Claim { claim, notice: Notice::Before, .. } => (claim, SeatAnswer::Matched),
                Effect::Assign { claim, waits: true, .. } => (claim, SeatAnswer::Accepted),
                _ => continue,
            };
            let Some(held) = self.core.pool.claims().get(&claim) else { continue };
            let machine = host_of(&held.machine).to_owned();
            let Some(session) = self.core.pool.machines()[&*machine].session else { continue };
            let said = report(claim, 0, Happening::Seat(SeatSaid::new(answer)));
            self.core.agent_report(
                &mut Turn { now: self.now, digest, out: &mut self.out },
                &machine,
                session,
                said,
            );
        }
    }
}

/// A pool of machines with one core, where claims are everybody's at once.
pub(super) fn of_machines(machines: &[&str]) -> Pool {
    let settings = Settings { claim_worklife_ms: 0, periodic_ms: 1_000, ..Settings::default() };
    let mut pool = Pool::new(settings);
    for name in machines {
        pool.machine(name, 1, "");
    }
    pool
}

pub(super) fn with(procs: u32, attributes: &[(&str, &str)]) -> JobTemplate {
    let mut template = template(procs, 1);
    for (name, expr) in attributes {
        template.set(name, (*expr).to_owned());
    }
    template
}

#[test]
fn two_users_share_what_becomes_free_whoever_came_first() {
    let mut pool = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    let ann = pool.submit("ann", template(100, 1));
    pool.machine("m", 10, "");
    assert_eq!(pool.live(ann), 10, "alone she has everything");
    let bob = pool.submit("bob", template(100, 1));
    for _ in 0..5 {
        pool.wait(1_000);
        pool.end(ann);
    }
    assert_eq!((pool.live(ann), pool.live(bob)), (5, 5), "half each, as room became free");
    for _ in 0..5 {
        pool.wait(1_000);
        pool.end(ann);
        pool.end(bob);
    }
    assert_eq!((pool.live(ann), pool.live(bob)), (5, 5), "and so it stays");
}

#[test]
fn factors_and_nice_users_weigh_in() {
    let mut pool = Pool::new(Settings::default());
    let nice = pool.submit("dan", with(100, &[("NiceUser", "true")]));
    let ann = pool.submit("ann", template(100, 1));
    let bob = pool.submit("bob", template(100, 1));
    let user = pool.core.accounts.user("bob", 0);
    pool.core.accounts.set(user, Some(3_000.0), None, pool.now.wall_ms);
    pool.machine("m", 64, "");
    assert_eq!((pool.live(ann), pool.live(bob), pool.live(nice)), (48, 16, 0));
    assert_eq!(pool.core.users(pool.now.wall_ms)[0].name.as_ref(), "ann");
}

#[test]
fn quotas_and_limits_hold_and_pass_over_jobs_not_users() {
    let groups = vec![Group { name: "lab".into(), quota: Quota::Cores(3.0), surplus: false, users: None }];
    let named = [("matlab".to_owned(), 2.0)].into();
    let settings = Settings {
        shares: Shares { groups, ..Shares::default() },
        limits: Limits { named, ..Limits::default() },
        ..Settings::default()
    };
    let mut pool = Pool::new(settings.clone());
    let lab = pool.submit("ann", with(10, &[("AccountingGroup", "\"lab.ann\"")]));
    let matlab = pool.submit("bob", with(10, &[("ConcurrencyLimits", "\"MATLAB\"")]));
    let plain = pool.submit("bob", template(3, 1));
    pool.machine("m", 20, "");
    assert_eq!((pool.live(lab), pool.live(matlab), pool.live(plain)), (3, 2, 3));
    // A job that ends gives its licence to the next; so it is after a restart.
    pool.wait(10);
    pool.end(matlab);
    assert_eq!(pool.live(matlab), 2);
    let saved = pool.core.snapshot();
    let again = Core::restore(settings, &saved).unwrap();
    assert_eq!(again.snapshot().len(), saved.len());
    let limits: Box<[(Box<str>, f64)]> = Box::new([("matlab".into(), 1.0)]);
    assert_eq!(again.in_use.short_of(&limits), Some(("matlab", 1.0, 2.0)));
}

#[test]
fn starts_come_in_bursts_and_a_claims_next_job_is_not_held_up() {
    let burst = Burst { count: 2, delay_ms: 5_000 };
    let mut pool = Pool::new(Settings { burst, ..Settings::default() });
    let cluster = pool.submit("ann", template(20, 1));
    pool.machine("m", 6, "");
    assert_eq!(pool.live(cluster), 2);
    pool.wait(4_900);
    assert_eq!(pool.live(cluster), 2);
    pool.wait(100);
    assert_eq!(pool.live(cluster), 4);
    pool.end(cluster);
    assert_eq!(pool.live(cluster), 4, "the claim goes on at once");
    assert!(pool.core.next_tick_ms(pool.now) <= 100, "the core asks to be woken");
    pool.wait(5_000);
    assert_eq!(pool.live(cluster), 6);
}

#[test]
fn a_machine_prefers_its_owners_jobs_and_makes_others_go() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 1, "Rank = TARGET.Owner == \"coltrane\"");
    let other = pool.submit("tyner", template(3, 1));
    assert_eq!(pool.live(other), 1);
    pool.stops();
    let same = pool.submit("jones", template(1, 1));
    assert!(pool.stops().is_empty(), "equal rank preempts nobody");
    let owner = pool.submit("coltrane", template(1, 1));
    assert_eq!(pool.stops(), [JobId { cluster: other, proc: 0 }]);
    let again = pool.submit("coltrane", template(1, 1));
    assert!(pool.stops().is_empty(), "one victim for each");
    pool.evict(other, 0);
    assert_eq!((pool.live(other), pool.live(owner), pool.live(again), pool.live(same)), (0, 1, 0, 0));
    assert!(pool.core.queue.clusters()[&other].is_idle(0), "the victim waits again");
}

#[test]
fn priority_preempts_only_under_the_administrators_expression() {
    let expression = "RemoteUserPrio > SubmitterUserPrio * 1.2 && StateTimer > 3600";
    let settings =
        Settings { preemption_requirements: Some(Expr::parse(expression).unwrap()), ..Settings::default() };
    let mut pool = Pool::new(settings);
    pool.machine("m", 2, "");
    let hog = pool.submit("hog", template(5, 1));
    pool.wait(86_400_000);
    pool.stops();
    let ann = pool.submit("ann", template(1, 1));
    assert_eq!(pool.stops().len(), 1, "the hog has held two cores for a day");
    pool.end(hog);
    assert_eq!((pool.live(hog), pool.live(ann)), (1, 1));
    let mut young = Pool::new(pool.core.settings.clone());
    young.machine("m", 2, "");
    young.submit("hog", template(5, 1));
    young.wait(60_000);
    young.stops();
    young.submit("ann", template(1, 1));
    assert!(young.stops().is_empty(), "not within the hour");
}

#[test]
fn a_job_takes_the_machine_it_likes_best() {
    let mut pool = Pool::new(Settings::default());
    for (name, mips) in [("slow", 10), ("fast", 90), ("medium", 50)] {
        pool.machine(name, 1, &format!("Mips = {mips}"));
    }
    for expected in ["fast", "medium", "slow"] {
        let cluster = pool.submit("ann", with(1, &[("Rank", "TARGET.Mips")]));
        let claim = pool.core.queue.clusters()[&cluster].live[&0].claim;
        assert_eq!(&*pool.core.pool.claims()[&claim].machine, expected);
    }
}
