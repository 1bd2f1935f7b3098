//! A machine of the world: its clocks and disk, the agent's own pure half while its agent lives, its starters, and an owner who comes
//! and goes. What is done around the pure half is what the agent's loop does (`agent::run`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use claims::{Action, Core, Ledger, Owner, Record};
use classad::{ClassAd, Name, Value};
use config::{Loader, Nothing};
use model::agent::{Down, Question, Up};
use model::event::Resources;
use model::starter::{Account, Order, Report, Word};
use model::{Now, WallMs};
use policy::slots::Layout;
use policy::{Attributes, Policy};
use scheduler::Session;

use super::clocks::{Clocks, True};
use super::starter::{Deed, Starter};
use super::truth::Check;
use super::{BEAT_MS, Context, Step};

/// A machine whose owner sits at it now and then.
const DESK: &str = "START = KeyboardIdle > 60\nSUSPEND = KeyboardIdle < 10\nCONTINUE = KeyboardIdle > 30\n\
    PREEMPT = (Activity == \"Suspended\") && (CurrentTime - EnteredCurrentActivity > 45)\n\
    KILL = CurrentTime - EnteredCurrentActivity > 20\nWANT_SUSPEND = True\nWANT_VACATE = True\nRANK = 0\n";

/// A machine that nobody sits at.
const RACK: &str = "START = True\nSUSPEND = False\nCONTINUE = True\nPREEMPT = False\nKILL = False\n\
    WANT_SUSPEND = False\nWANT_VACATE = True\nRANK = TARGET.Owner == \"u1\"\n";

fn read(text: &str, cpus: u32) -> (Policy, Layout) {
    let config = Loader::new(&Nothing, "STARTD").text("world", text).load();
    let config = config.unwrap_or_else(|e| unreachable!("{e}"));
    let total = policy_size(cpus);
    let layout = Layout::of_machine(&config, total).unwrap_or_else(|e| unreachable!("{e}"));
    let policy = Policy::of_machine(&config, &layout).unwrap_or_else(|e| unreachable!("{e}"));
    (policy, layout)
}

fn policy_size(cpus: u32) -> policy::slots::Resources {
    policy::slots::Resources { cpus: cpus.into(), memory_mib: 8_192, disk_kib: 1 << 20, ..Default::default() }
}

static POLICIES: LazyLock<BTreeMap<(bool, u32), (Policy, Layout)>> = LazyLock::new(|| {
    let kinds = [(true, DESK), (false, RACK)];
    kinds
        .into_iter()
        .flat_map(|(desk, text)| (1..=4).map(move |cpus| ((desk, cpus), read(text, cpus))))
        .collect()
});

/// What is on a host's disk.
#[derive(Debug, Clone, Default)]
struct Disk {
    records: BTreeMap<u64, Record>,
    ads: BTreeMap<u64, ClassAd>,
    rests: String,
    /// What dead starters left, and whether they ended well.
    spools: BTreeMap<u64, (Vec<Report>, bool)>,
}

/// An agent's files are not synced: so old are those of which it is certain that they survive a power cut.
const WRITTEN_BACK_MS: u64 = 30_000;

/// The agent's end of a connection.
#[derive(Debug)]
struct Link {
    session: Session,
    heard: True,
}

#[derive(Debug)]
pub(super) struct Host {
    number: usize,
    pub(super) clocks: Clocks,
    pub(super) cpus: u32,
    is_desk: bool,
    /// When somebody last touched it.
    touched: True,
    core: Option<Core>,
    /// The policy's clock: what both clocks showed when the agent began.
    began: Now,
    /// Which agent it is: what was meant for an earlier one is not heard.
    life: u64,
    link: Option<Link>,
    starters: BTreeMap<u64, Starter>,
    disk: Disk,
    /// The disk as it was written back, and when.
    written_back: (Disk, True),
    next_look: True,
}

impl Host {
    pub(super) fn new(number: usize, cpus: u32, is_desk: bool, clocks: Clocks) -> Self {
        Self {
            number,
            clocks,
            cpus,
            is_desk,
            touched: 0,
            core: None,
            began: Now::default(),
            life: 0,
            link: None,
            starters: BTreeMap::new(),
            disk: Disk::default(),
            written_back: (Disk::default(), 0),
            next_look: True::MAX,
        }
    }

    /// The two clocks as the agent reads them: the policy's goes on from where the wall clock was when the agent began.
    fn now(&self, at: True) -> Now {
        let now = self.clocks.now(at);
        Now { wall_ms: self.began.wall_ms + now.mono_ms.saturating_sub(self.began.mono_ms), ..now }
    }

    fn readings(&self, at: True) -> Attributes {
        let idle = self.clocks.by_clock(at.saturating_sub(self.touched)) / 1_000;
        vec![(Name::new("KeyboardIdle"), Some(Value::Int(idle as i64)))]
    }

    pub(super) fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// The agent begins: it finds what an earlier one left.
    pub(super) fn start_agent(&mut self, context: &mut Context) -> Check {
        if self.core.is_some() {
            return Ok(());
        }
        self.life += 1;
        self.began = self.clocks.now(context.at);
        let now = self.now(context.at);
        let (policy, layout) = &POLICIES[&(self.is_desk, self.cpus)];
        let host = format!("host{}", self.number);
        let root = account("root", 0);
        let total =
            Resources { cpus: self.cpus, memory_mib: 8_192, disk_kib: 1 << 20, ..Resources::default() };
        let mut owner = Owner::new(now, &host, policy, layout, Vec::new(), self.readings(context.at));
        owner.take_up_rests(now, &self.disk.rests);
        let ledger = Ledger::new("sim", self.clocks.moment(context.at).boot, root, total, Vec::new());
        let settings =
            claims::Settings { max_vacate_ms: 20_000, silence_ms: 60_000, releases: self.number % 3 == 2 };
        let core = self.core.insert(Core::new(now, ledger, owner, settings));
        for (claim, record) in &self.disk.records {
            core.adopt(record.clone());
            if let Some(starter) = self.starters.get_mut(claim) {
                starter.has_agent = true;
                let standing = starter.standing();
                core.adopt_job(now, *claim, &standing, self.disk.ads.get(claim).cloned());
                core.hear_starter(now, *claim, Word::Standing(standing));
            } else {
                let (left, orderly) = self.disk.spools.get(claim).cloned().unwrap_or_default();
                core.starter_gone(now, *claim, left, orderly);
            }
        }
        self.settle(context)?;
        let life = self.life;
        context.push(10, Step::Connect { host: self.number, life });
        context.push(BEAT_MS, Step::Beat { host: self.number, life });
        context.push(claims::ASK_EVERY_MS, Step::AskStarters { host: self.number, life });
        let claims: Vec<u64> = self.starters.keys().copied().collect();
        claims.into_iter().try_for_each(|claim| self.wake_starter(context, claim))
    }

    /// The agent is killed. Its starters live on.
    pub(super) fn kill_agent(&mut self, context: &mut Context) {
        self.core = None;
        if let Some(link) = self.link.take() {
            context.lose_link(self.number, link.session);
        }
        for starter in self.starters.values_mut() {
            starter.has_agent = false;
        }
    }

    /// The whole host goes down.
    pub(super) fn reboot(&mut self, context: &mut Context) {
        self.kill_agent(context);
        for claim in self.starters.keys().copied().collect::<Vec<_>>() {
            self.bury(context, claim, false);
        }
        self.clocks.boot(context.at);
    }

    /// The power fails: what was not written back yet is lost, also that something was removed.
    pub(super) fn lose_power(&mut self, context: &mut Context) {
        self.write_back(context.at);
        self.reboot(context);
        if context.random.percent(50) {
            self.disk = self.written_back.0.clone();
        }
    }

    /// Writes back what has been on disk for long enough.
    fn write_back(&mut self, at: True) {
        if at >= self.written_back.1 + WRITTEN_BACK_MS {
            self.written_back = (self.disk.clone(), at);
        }
    }

    /// A starter is no more, and its job with it.
    fn bury(&mut self, context: &mut Context, claim: u64, orderly: bool) {
        let Some(starter) = self.starters.remove(&claim) else { return };
        let (spool, running) = starter.into_spool();
        if let Some(job) = running {
            context.truth.ended(job);
        }
        self.disk.spools.insert(claim, (spool, orderly));
    }

    /// A starter is killed from outside.
    pub(super) fn kill_starter(&mut self, context: &mut Context, nth: u64) -> Check {
        let at = nth.checked_rem(self.starters.len() as u64).unwrap_or(0);
        let Some(&claim) = self.starters.keys().nth(at as usize) else { return Ok(()) };
        self.end_starter(context, claim, false)
    }

    fn end_starter(&mut self, context: &mut Context, claim: u64, orderly: bool) -> Check {
        self.bury(context, claim, orderly);
        let now = self.now(context.at);
        let Some(core) = &mut self.core else { return Ok(()) };
        let (left, _) = self.disk.spools.get(&claim).cloned().unwrap_or_default();
        core.starter_gone(now, claim, left, orderly);
        self.settle(context)
    }

    /// A starter's time has come, unless it has another one by now.
    pub(super) fn call_starter(&mut self, context: &mut Context, claim: u64) -> Check {
        match self.starters.get(&claim) {
            Some(starter) if starter.wake == context.at => self.wake_starter(context, claim),
            _ => Ok(()),
        }
    }

    /// A starter looks what is due.
    pub(super) fn wake_starter(&mut self, context: &mut Context, claim: u64) -> Check {
        let Some(starter) = self.starters.get_mut(&claim) else { return Ok(()) };
        let mut deeds = Vec::new();
        let next = starter.look(context.at, &self.clocks, &mut context.nature, &mut deeds);
        if next < True::MAX && next != starter.wake {
            starter.wake = next;
            context.push_at(next, Step::Starter { host: self.number, claim });
        }
        self.carry_out(context, claim, deeds)
    }

    fn carry_out(&mut self, context: &mut Context, claim: u64, deeds: Vec<Deed>) -> Check {
        for deed in deeds {
            context.note(|| format!("  claim {claim}: {deed:?}"));
            match deed {
                Deed::Began(job) => context.truth.began(context.at, self.number, job)?,
                Deed::Ended(job) => context.truth.ended(job),
                Deed::Say(word) => {
                    if self.starters.get(&claim).is_some_and(|s| s.has_agent) {
                        let (host, life) = (self.number, self.life);
                        context.push_in_order(host, Step::Word { host, life, claim, word: Box::new(word) });
                    }
                }
                Deed::Exits => {
                    // The end of its words comes a moment before the end of its life is noticed.
                    self.bury(context, claim, true);
                    let (host, life) = (self.number, self.life);
                    context.push_in_order(host, Step::Gone { host, life, claim });
                }
            }
        }
        Ok(())
    }

    /// A starter's end is noticed.
    pub(super) fn notice_gone(&mut self, context: &mut Context, life: u64, claim: u64) -> Check {
        let now = self.now(context.at);
        let Some(core) = self.core.as_mut().filter(|_| self.life == life) else { return Ok(()) };
        let (left, orderly) = self.disk.spools.get(&claim).cloned().unwrap_or_default();
        core.starter_gone(now, claim, left, orderly);
        self.settle(context)
    }

    pub(super) fn hear_starter(&mut self, context: &mut Context, life: u64, claim: u64, word: Word) -> Check {
        let now = self.now(context.at);
        let Some(core) = self.core.as_mut().filter(|_| self.life == life) else { return Ok(()) };
        core.hear_starter(now, claim, word);
        self.settle(context)
    }

    /// The machine is in order after a claim.
    pub(super) fn released(
        &mut self,
        context: &mut Context,
        life: u64,
        claim: u64,
        left: Vec<Report>,
        why: &str,
    ) -> Check {
        let now = self.now(context.at);
        let Some(core) = self.core.as_mut().filter(|_| self.life == life) else { return Ok(()) };
        core.released(now, claim, left, why, None);
        self.settle(context)
    }

    /// Somebody sits down at it.
    pub(super) fn touch(&mut self, context: &mut Context) -> Check {
        self.touched = context.at;
        let (now, seen) = (self.now(context.at), self.readings(context.at));
        let Some(core) = &mut self.core else { return Ok(()) };
        core.owner.look(now, seen);
        core.owner.reconsider(now);
        self.settle(context)
    }

    /// The policy's time may have come.
    pub(super) fn look(&mut self, context: &mut Context, life: u64) -> Check {
        if self.life != life || context.at != self.next_look {
            return Ok(());
        }
        self.next_look = True::MAX;
        let (now, seen) = (self.now(context.at), self.readings(context.at));
        let Some(core) = &mut self.core else { return Ok(()) };
        if core.next_look_ms(now) == 0 {
            core.look(now, seen);
        }
        self.settle(context)
    }

    pub(super) fn ask_starters(&mut self, context: &mut Context, life: u64) -> Check {
        let now = self.now(context.at);
        let Some(core) = self.core.as_mut().filter(|_| self.life == life) else { return Ok(()) };
        core.ask_starters(now);
        context.push(claims::ASK_EVERY_MS, Step::AskStarters { host: self.number, life });
        self.settle(context)
    }

    // The connection.

    pub(super) fn connect(&mut self, context: &mut Context, life: u64, session: Option<Session>) -> Check {
        if self.life != life || self.core.is_none() {
            return Ok(());
        }
        let Some(session) = session else {
            let wait = 500 + context.random.below(3_000);
            context.push(wait, Step::Connect { host: self.number, life });
            return Ok(());
        };
        self.link = Some(Link { session, heard: context.at });
        let now = self.now(context.at);
        if let Some(core) = &mut self.core {
            core.session_opened(now);
        }
        self.settle(context)
    }

    pub(super) fn session(&self) -> Option<Session> {
        self.link.as_ref().map(|link| link.session)
    }

    /// It wants a connection and has none.
    pub(super) fn wants_link(&self, life: u64) -> bool {
        self.life == life && self.core.is_some() && self.link.is_none()
    }

    /// The agent notices that its connection is no more.
    pub(super) fn lose_link(&mut self, context: &mut Context, session: Session) {
        if self.link.as_ref().is_none_or(|link| link.session != session) {
            return;
        }
        self.link = None;
        if let Some(core) = &mut self.core {
            core.session_closed();
            let (wait, life) = (100 + context.random.below(2_000), self.life);
            context.push(wait, Step::Connect { host: self.number, life });
        }
    }

    pub(super) fn beat(&mut self, context: &mut Context, life: u64) -> Check {
        let now = self.now(context.at);
        let Some(core) = self.core.as_mut().filter(|_| self.life == life) else { return Ok(()) };
        context.push(BEAT_MS, Step::Beat { host: self.number, life });
        match &self.link {
            Some(link) if context.at > link.heard + 3 * BEAT_MS + 1_000 => {
                // The manager is silent: connect anew.
                let session = link.session;
                context.close(session);
                self.lose_link(context, session);
                Ok(())
            }
            Some(_) => {
                core.beat(now);
                self.settle(context)
            }
            None => Ok(()),
        }
    }

    /// A word from the manager.
    pub(super) fn hear_manager(
        &mut self,
        context: &mut Context,
        session: Session,
        down: Down,
        wall_ms: Option<u64>,
    ) -> Check {
        let now = self.now(context.at);
        let (Some(link), Some(core)) = (&mut self.link, &mut self.core) else { return Ok(()) };
        if link.session != session {
            return Ok(());
        }
        link.heard = context.at;
        if let Some(theirs) = wall_ms {
            core.hear_clock(now, &down, WallMs(theirs));
        }
        match down {
            Down::Cluster(cluster) => core.ledger.learn(&cluster, Some(account(&cluster.owner, 1_000))),
            Down::Ask(ask) => {
                if let Some(Question::Control(control)) = ask.question {
                    let _ = core.control(now, &control);
                }
            }
            Down::Took(_) | Down::Piece(_) => {}
            down => core.hear_manager(now, down),
        }
        self.settle(context)
    }

    /// Does whatever the pure half wants done.
    fn settle(&mut self, context: &mut Context) -> Check {
        if context.faults.power > 0 {
            self.write_back(context.at);
        }
        loop {
            let now = self.now(context.at);
            let Some(core) = &mut self.core else { return Ok(()) };
            let actions = core.settle(now);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(context, action)?;
            }
        }
        let now = self.now(context.at);
        let Some(core) = &self.core else { return Ok(()) };
        let word_ms = core.next_word_ms(now).unwrap_or(u64::MAX);
        let wait = core.next_look_ms(now).min(word_ms).clamp(1, 3_600_000);
        let next = self.clocks.after(context.at, wait);
        if next < self.next_look || self.next_look <= context.at {
            self.next_look = next;
            context.push_at(next, Step::Look { host: self.number, life: self.life });
        }
        Ok(())
    }

    fn act(&mut self, context: &mut Context, action: Action) -> Check {
        match action {
            Action::Say(up) => {
                if let Some(link) = &self.link {
                    context.send_up(self.number, link.session, up);
                }
                Ok(())
            }
            Action::Begin { record, lease_ms } => self.begin(context, record, lease_ms),
            Action::Order(claim, order) => self.order(context, claim, order),
            Action::Kill(claim) => self.end_starter(context, claim, false),
            Action::Forget(claim) => {
                self.disk.records.remove(&claim);
                self.disk.ads.remove(&claim);
                self.disk.spools.remove(&claim);
                Ok(())
            }
            Action::Provision { claim, jobs } => {
                let (now, seen) = (self.now(context.at), self.readings(context.at));
                if let Some(core) = &mut self.core {
                    core.offer(now, claim, jobs, |_| seen);
                }
                Ok(())
            }
            Action::Release { claim, left, why } => {
                let (wait, host, life) = (200 + context.random.below(3_000), self.number, self.life);
                context.push(wait, Step::Released { host, life, claim, left, why });
                Ok(())
            }
            Action::SaveAd { claim, ad } => {
                self.disk.ads.insert(claim, ad);
                Ok(())
            }
            Action::SaveRests(rests) => {
                self.disk.rests = rests;
                Ok(())
            }
            Action::Benchmark => {
                let now = self.now(context.at);
                if let Some(core) = &mut self.core {
                    core.benchmarked(now, None);
                }
                Ok(())
            }
            // Jobs of this world make no checkpoints and run where their files are.
            Action::Fetch { .. }
            | Action::Store { .. }
            | Action::Inputs { .. }
            | Action::Land { .. }
            | Action::Warn(_) => Ok(()),
        }
    }

    fn begin(&mut self, context: &mut Context, record: Record, lease_ms: u64) -> Check {
        let claim = record.claim;
        if context.has_fault(context.faults.begin) {
            if let Some(core) = &mut self.core {
                core.cannot_begin(claim);
            }
            let (host, life) = (self.number, self.life);
            context.push(5_000, Step::Gone { host, life, claim });
            return Ok(());
        }
        self.disk.records.insert(claim, record);
        let lease = self.clocks.now(context.at).mono_ms + lease_ms;
        let starter = Starter::new(claim, lease);
        let standing = starter.standing();
        self.starters.insert(claim, starter);
        self.carry_out(context, claim, vec![Deed::Say(Word::Standing(standing))])?;
        self.wake_starter(context, claim)
    }

    fn order(&mut self, context: &mut Context, claim: u64, order: Order) -> Check {
        let Some(starter) = self.starters.get_mut(&claim) else { return Ok(()) };
        let mut deeds = Vec::new();
        starter.obey(context.at, &self.clocks, order, &mut deeds);
        self.carry_out(context, claim, deeds)?;
        self.wake_starter(context, claim)
    }

    /// At the end of the world.
    pub(super) fn holds_nothing(&self) -> Check {
        if self.starters.is_empty() && self.disk.records.is_empty() {
            return Ok(());
        }
        let starters: Vec<&u64> = self.starters.keys().collect();
        let records: Vec<&u64> = self.disk.records.keys().collect();
        Err(format!("host {} still has starters {starters:?} and records {records:?}", self.number))
    }

    /// Something for whoever looks at a world that failed.
    pub(super) fn describe(&self) -> String {
        format!("host {}: up {} link {:?} starters {:?}", self.number, self.is_up(), self.link, self.starters)
    }

    /// A word that may be said twice: what is acknowledged and what repeats itself.
    pub(super) fn may_double(up: &Up) -> bool {
        matches!(up, Up::Report(_) | Up::Beat(_) | Up::Machine(_))
    }
}

fn account(name: &str, uid: u32) -> Account {
    let (home, shell) = ("/".to_owned(), "/bin/sh".to_owned());
    Account { name: name.to_owned(), uid, gid: uid, groups: vec![uid], home, shell }
}
