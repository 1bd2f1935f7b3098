//! The loop: one thread owns the books. Inputs become decisions, decisions go to the journal, and only when they are on
//! disk do their effects reach agents and their answers reach people. All that arrived while the disk was busy is
//! decided together and costs one sync. People and agents come by different doors: when all that is pending is reports
//! of claims that have plenty of jobs ahead, nobody waits for the disk, and more reports are let in before it is written.
//!
//! When the journal cannot be written, the books go back to what is on disk, everybody who waits for an answer gets an
//! error, agents keep their leases, and the writer tries until the disk takes writes again.

mod degraded;
mod pending;
mod snapshots;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use journal::Journal;
use model::event::{
    ClockStepped, JournalSalvaged, Kind, MachineJoined, MachineRevoked, ManagerStarted, TokenRevoked,
};
use model::{ClaimId, ClaimKey, Event, MachineName, Now};
use scheduler::{Effect, Said, Session, Turn, understand};
use tokio::sync::mpsc;

use self::pending::Pending;
use crate::bookmarks::Bookmarks;
use crate::books::Books;
use crate::cargo::Cargo;
pub(crate) use crate::clock::wall_ms;
use crate::clock::{Clock, HostClock};
use crate::damage::Damage;
use crate::feed::{Batch, Feed};
use crate::handle::{Answer, FromAgent, Handle, Input, Query, Unavailable};
use crate::metrics::Metrics;
use crate::objects::Store;
use crate::registry::{LOCAL_KEY, Registry, Stranger};
use crate::sessions::{Incoming, Opened, Sessions};
use crate::state::StateDir;
use crate::{Error, Options};

/// Inputs that wait for the writer before senders have to wait too.
const QUEUE: usize = 16_384;
/// Inputs decided together at most.
const TOGETHER: usize = 8_192;
const PROBE: Duration = Duration::from_millis(500);
/// Events that a lost part of a journal may have had beyond what was noted of it: the note is some seconds old.
const UNSEEN: u64 = 200_000;
/// How often a manager that writes nothing looks whether it still leads.
const LOOK_MS: u64 = 2_000;
/// How long people look at the books between two commits.
const LOOKING: Duration = Duration::from_millis(5);

/// Recovers the books and starts the thread.
pub(crate) fn start(
    state: &StateDir,
    options: &Options,
    metrics: Arc<Metrics>,
) -> Result<(Handle, std::thread::JoinHandle<Result<(), Error>>), Error> {
    let dir = state.manager();
    let (journal, recovery) = Journal::open(&dir)?;
    let mut reader = journal.reader()?;
    let clock = Clock::start();
    let snapshot_at = recovery.snapshot.as_ref().map_or(0, |(position, _)| *position);
    let snapshot_bytes = recovery.snapshot.as_ref().map_or(0, |(_, state)| state.len() as u64);
    let (mut books, position) = Books::recover(&options.settings, recovery.snapshot, &mut reader)?;
    books.core.recovered(clock.now());
    if position == 0 {
        crate::joblogs::begin(&dir)
            .map_err(|source| Error::System { doing: "cannot note how far job logs are written", source })?;
    }
    tracing::info!(position, epoch = recovery.epoch, replayed = position - snapshot_at, "recovered");
    let (people, from_people) = mpsc::channel(QUEUE);
    let (agents, from_agents) = mpsc::channel(QUEUE);
    let objects = Store::open(&dir)
        .map_err(|source| Error::System { doing: "cannot open the store for checkpoints", source })?;
    let damage = Arc::<Damage>::default();
    let handle = Handle {
        people,
        agents,
        bookmarks: Arc::new(Bookmarks::of(&dir, damage.clone())),
        feed: Feed::new(dir, damage.clone(), position),
        registry: Arc::new(RwLock::new(Arc::new(books.registry.clone()))),
        degraded: Arc::new(RwLock::new(None)),
        cargo: Arc::new(Cargo::new(objects.clone(), options.sharing == crate::Sharing::Private)),
        objects,
        traces: Arc::default(),
        questions: Arc::default(),
        windows: Arc::default(),
    };
    let mut writer = Writer {
        books,
        journal,
        reader,
        settings: options.settings.clone(),
        beat_ms: options.beat_ms,
        private: options.sharing == crate::Sharing::Private,
        sessions: Sessions::new(handle.objects.key()),
        pending: Pending::default(),
        handle_registry: handle.registry.clone(),
        handle_degraded: handle.degraded.clone(),
        feed: handle.feed.clone(),
        metrics,
        clock,
        stepped_ms: 0,
        bookmarks: handle.bookmarks.clone(),
        damage,
        snapshot_at,
        snapshot_at_bytes: 0,
        snapshot_bytes,
        last_tick_ms: 0,
        last_look_ms: 0,
        boots: HashMap::new(),
        registry_changed: false,
    };
    if let Some(salvaged) = journal::outcome(&state.manager()) {
        let ((_, last), left_out) = (salvaged.kept, salvaged.left_out_file.display());
        if last < salvaged.head || salvaged.end_unknown || salvaged.put_back {
            tracing::warn!(
                kept = last,
                known = salvaged.head,
                listed = salvaged.left_out,
                "the journal was salvaged: what was recorded behind position {last} is lost, and what still runs of it will be ended; \
                 what could be read of it is listed in {left_out}"
            );
        }
        journal::forget_outcome(&state.manager());
    }
    if let Some(seen) = recovery.put_back {
        let lost = seen.next.saturating_sub(recovery.head + 1);
        tracing::warn!(
            head = recovery.head,
            known = seen.next - 1,
            start = recovery.epoch,
            last_start = seen.epoch,
            "the journal was put back to an earlier day: what came later is lost, and what still runs of it will be ended; \
             numbers of clusters and claims go on far behind it, positions of events are used again"
        );
        let (head, unread) = (seen.next - 1, if seen.ended { lost } else { lost + UNSEEN });
        let note = JournalSalvaged { head, unread, last_cluster: 0, last_claim: 0 };
        let kind = Kind::JournalSalvaged(note);
        writer.books.core.apply(&kind, writer.clock.now().wall_ms);
        writer.record(kind);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let host = HostClock::now().unwrap_or_default();
    let stepped_ms = writer.books.host_clock.as_ref().and_then(|earlier| host.stepped_since(earlier));
    // Set while no manager ran.
    writer.record_step(stepped_ms.unwrap_or(0))?;
    let HostClock { boot, offset_ms } = host;
    let started = ManagerStarted { version, epoch: recovery.epoch, boot, offset_ms };
    writer.record(Kind::ManagerStarted(started));
    writer.commit()?;
    let thread = std::thread::Builder::new()
        .name("writer".into())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime =
                runtime.map_err(|source| Error::System { doing: "cannot start the writer", source })?;
            let result = runtime.block_on(writer.run(from_people, from_agents));
            if let Err(error) = &result {
                tracing::error!(%error, "the writer cannot go on");
            }
            result
        })
        .map_err(|source| Error::System { doing: "cannot start the writer", source })?;
    Ok((handle, thread))
}

/// Which start of which directory an agent speaks from.
#[derive(Debug, Clone, Copy, Default)]
struct Start {
    boot: u64,
    is_new: bool,
}

struct Writer {
    books: Books,
    journal: Journal,
    reader: journal::Reader,
    settings: scheduler::Settings,
    beat_ms: u64,
    private: bool,
    sessions: Sessions,
    pending: Pending,
    handle_registry: Arc<RwLock<Arc<Registry>>>,
    handle_degraded: Arc<RwLock<Option<String>>>,
    feed: Feed,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// How far the clock was set, as long as the journal does not say so.
    stepped_ms: i64,
    bookmarks: Arc<Bookmarks>,
    damage: Arc<Damage>,
    snapshot_at: u64,
    /// What there was to replay after the last attempt at a snapshot: nothing, if it could be written.
    snapshot_at_bytes: u64,
    /// Size of the last snapshot.
    snapshot_bytes: u64,
    last_tick_ms: u64,
    last_look_ms: u64,
    /// The start of the kernel that each machine spoke from last, since this manager was started.
    boots: HashMap<String, u64>,
    registry_changed: bool,
}

fn stepped_by(event: &Event) -> Option<i64> {
    match &event.kind {
        Some(Kind::ClockStepped(e)) => Some(e.by_ms),
        _ => None,
    }
}

fn digest(key: &ClaimKey) -> [u8; 32] {
    trust::digest(&key.0)
}

impl Writer {
    async fn run(
        mut self,
        mut people: mpsc::Receiver<Input>,
        mut agents: mpsc::Receiver<FromAgent>,
    ) -> Result<(), Error> {
        let (mut asked, mut reported) = (Vec::new(), Vec::new());
        loop {
            let degraded = self.degraded().is_some();
            let patience = match self.pending.due {
                _ if degraded => PROBE,
                Some(due) => due.saturating_duration_since(Instant::now()),
                None => Duration::from_millis(self.books.core.next_tick_ms(self.clock.now())),
            };
            let lingers = self.pending.due.is_some();
            let over = tokio::select! {
                biased;
                count = people.recv_many(&mut asked, TOGETHER) => count == 0,
                _ = agents.recv_many(&mut reported, TOGETHER), if !lingers => false,
                () = tokio::time::sleep(patience) => false,
            };
            if over {
                return self.finish();
            }
            while reported.len() < TOGETHER
                && let Ok(word) = agents.try_recv()
            {
                reported.push(word);
            }
            if degraded {
                self.try_again();
            }
            self.read_clock()?;
            let mut stop = None;
            for word in reported.drain(..) {
                if self.degraded().is_some() {
                    self.put_off(word);
                } else {
                    self.hear(word);
                }
            }
            for input in asked.drain(..) {
                match input {
                    Input::Stop(done) => stop = Some(done),
                    input if self.degraded().is_some() => self.refuse(input),
                    Input::Reconfigure(settings, answer) => {
                        let _ = answer.send(self.reconfigure(*settings)?);
                    }
                    input => self.take(input),
                }
                if self.pending.is_heavy() {
                    self.commit()?;
                }
            }
            self.look_for_another_leader()?;
            if self.degraded().is_none() {
                self.tick();
                if self.pending.due.is_some_and(|due| due <= Instant::now()) {
                    self.commit()?;
                }
                self.secure_queue()?;
                if self.is_snapshot_due() {
                    self.commit()?;
                    self.snapshot()?;
                }
            }
            if let Some(done) = stop {
                let result = self.finish();
                let _ = done.send(());
                return result;
            }
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.degraded().is_none() {
            self.commit()?;
            self.snapshot()?;
            self.journal.bear_last_witness();
        }
        Ok(())
    }

    /// Dates what follows. That the clock was set goes before it; there is nobody who waits for that.
    fn read_clock(&mut self) -> Result<(), Error> {
        self.stepped_ms += self.clock.read_wall().unwrap_or(0);
        if self.degraded().is_none() && self.stepped_ms != 0 {
            // What was decided by the clock as it was goes before it.
            self.commit()?;
        }
        if self.degraded().is_none() {
            let by_ms = std::mem::take(&mut self.stepped_ms);
            self.record_step(by_ms)?;
        }
        Ok(())
    }

    /// The clock was set: dates of the past move with it, and what follows from them is made anew.
    fn record_step(&mut self, by_ms: i64) -> Result<(), Error> {
        if by_ms == 0 {
            return Ok(());
        }
        tracing::warn!(by_ms, "the clock of this host was set");
        let event = Event {
            time_ms: self.clock.now().wall_ms,
            kind: Some(Kind::ClockStepped(ClockStepped { by_ms })),
        };
        self.books.apply(&event);
        self.pending.out.events.push(event);
        self.commit()?;
        if self.degraded().is_none() {
            self.rebuild()?;
        }
        Ok(())
    }

    /// Goes on with other settings. What was decided with the old ones goes before.
    fn reconfigure(&mut self, settings: scheduler::Settings) -> Result<Result<(), Unavailable>, Error> {
        self.commit()?;
        if let Some(why) = self.degraded() {
            return Ok(Err(Unavailable::Degraded(why)));
        }
        self.settings = settings;
        self.rebuild()?;
        tracing::info!("the settings were read again and are in force");
        Ok(Ok(()))
    }

    /// Makes everything anew that follows from what is on disk; every agent says again what it holds.
    fn rebuild(&mut self) -> Result<(), Error> {
        self.books.rebuild(&self.settings)?;
        self.books.core.recovered(self.clock.now());
        self.sessions.ask_all_again();
        Ok(())
    }

    /// What an agent said.
    fn hear(&mut self, word: FromAgent) {
        let now = self.clock.now();
        self.give_keys();
        match word {
            FromAgent::Said(session, message, _weight) => self.take_word(now, session, message),
            FromAgent::Closed(session) => self.close(session),
        }
        self.resume(now);
    }

    /// The core names claims with keys that it cannot draw itself.
    fn give_keys(&mut self) {
        while self.books.core.keys_left() < 64 {
            self.books.core.give_keys((0..256).map(|_| ClaimKey(trust::random())));
        }
    }

    /// Goes on with what more keys were needed for.
    fn resume(&mut self, now: Now) {
        while self.books.core.is_starved() {
            self.books.core.give_keys((0..1024).map(|_| ClaimKey(trust::random())));
            self.books.core.resume(&mut Turn { now, digest, out: &mut self.pending.out });
            self.pending.hurry();
        }
    }

    /// What a person asks for.
    fn take(&mut self, input: Input) {
        let now = self.clock.now();
        self.give_keys();
        self.pending.hurry();
        let turn = &mut Turn { now, digest, out: &mut self.pending.out };
        match input {
            Input::Submit(submission, answer) => {
                let result = self.books.core.submit(turn, submission);
                self.answer_after(answer, result);
            }
            Input::Act { actor, act, which, reason, answer } => {
                let results =
                    which.iter().map(|w| self.books.core.act(turn, &actor, act, w, &reason)).collect();
                self.answer_after(answer, results);
            }
            Input::IssueToken(issued, answer) => {
                self.record(Kind::TokenIssued(issued));
                self.answer_after(answer, ());
            }
            Input::SetPriority(set, answer) => {
                self.books.core.set_priority(turn, set);
                self.answer_after(answer, ());
            }
            Input::Drain(said, answer) => {
                let done = self.books.core.drain(turn, said);
                self.answer_after(answer, done);
            }
            Input::SetMachine { actor, machine, change, answer } => {
                let result = self.books.core.set_machine(turn, &actor, machine.as_str(), change);
                self.answer_after(answer, result);
            }
            Input::SetLab(change, answer) => {
                let result = self.books.core.set_lab(turn, change);
                self.answer_after(answer, result);
            }
            Input::RevokeToken { id, by, answer } => {
                let known = self.books.registry.contains(&id);
                if known {
                    self.record(Kind::TokenRevoked(TokenRevoked { id, by }));
                }
                self.answer_after(answer, known);
            }
            Input::Join { token, machine, key, answer } => {
                let result = self.books.registry.check_join(&token, &machine, &key, now.wall_ms);
                if result.is_ok() {
                    self.end_sessions(&machine, |other| other != key);
                    let (token, machine) = (token.id.to_string(), machine.to_string());
                    self.record(Kind::MachineJoined(MachineJoined { token, machine, key }));
                }
                self.answer_after(answer, result);
            }
            Input::RevokeMachine { machine, by, reason, answer } => {
                let revocable = !self.books.registry.is_local(&machine);
                if revocable {
                    self.end_sessions(&machine, |_| true);
                    let machine = machine.to_string();
                    self.record(Kind::MachineRevoked(MachineRevoked { machine, by, reason }));
                }
                self.answer_after(answer, revocable);
            }
            Input::Look(query) => self.pending.queries.push_back(query),
            Input::OpenSession { machine, key, answer } => {
                let opened = self.open_session(machine, key);
                let _ = answer.send(opened);
            }
            Input::Tell(machine, down, answer) => {
                let _ = answer.send(self.sessions.tell(&machine, down));
            }
            Input::Stop(_) | Input::Reconfigure(..) => {}
        }
        self.resume(now);
    }

    /// Lets a machine in that may be here; a name without a key is bound to the first that comes with it.
    fn open_session(&mut self, machine: MachineName, key: String) -> Result<Opened, Stranger> {
        if key == LOCAL_KEY && !self.books.registry.is_local(&machine) {
            self.books.registry.add_local(machine.clone());
            self.registry_changed = true;
            self.end_sessions(&machine, |other| other != LOCAL_KEY);
        }
        self.books.registry.admit(&machine, &key)?;
        if self.books.registry.is_unbound(&machine) {
            let joined =
                MachineJoined { token: String::new(), machine: machine.to_string(), key: key.clone() };
            self.record(Kind::MachineJoined(joined));
        }
        Ok(self.sessions.open(machine, key))
    }

    /// Hangs up on the sessions of a machine with such keys. What they hold lives on until its lease runs out.
    fn end_sessions(&mut self, machine: &MachineName, with: impl Fn(&str) -> bool) {
        for session in self.sessions.of(machine) {
            if self.sessions.key(session).is_some_and(&with) {
                self.close(session);
            }
        }
    }

    /// May this session speak for its machine from now on? One that has what the machine is known to run is the machine
    /// itself, which lost its connection or was rebooted: an agent keeps its claims on disk. One that has not is a copy of
    /// its state directory, or has its name by an administrator's consent: until the leases are over, the other's jobs may be
    /// alive, whether or not the other is in contact. The machine in the manager's own process has one state directory only, and is
    /// believed unless that was made anew: somebody removed the old one, and what ran there may run on until its lease is over.
    /// One of another start of the kernel may be a copy on another machine, claims and all, beside its original: it waits, too, as
    /// long as any job may be alive.
    fn may_take_over(&self, session: Session, hello: &scheduler::AgentHello, start: Start) -> bool {
        let is_local = self.sessions.key(session) == Some(LOCAL_KEY) && !start.is_new;
        let boot = start.boot;
        let core = &self.books.core;
        let known = self.boots.get(&hello.machine).copied().unwrap_or(boot);
        let is_same = known == boot || known == 0 || boot == 0;
        is_local
            || (is_same && !core.runs_more_than(hello, digest))
            || (!is_same && !core.runs_anything_on(&hello.machine))
    }

    fn take_word(&mut self, now: Now, session: Session, message: Incoming) {
        let Some(machine) = self.sessions.machine(session).cloned() else { return };
        let start = match &message.up {
            Some(api::agent::Up::Hello(hello)) => Start { boot: hello.boot, is_new: hello.is_new },
            _ => Start::default(),
        };
        let turn = &mut Turn { now, digest, out: &mut self.pending.out };
        match message.up.and_then(|up| understand(session, &machine, up)) {
            None => {}
            Some(Said::Hello(_, again)) if !self.sessions.is_expected(session, again) => {}
            Some(Said::Hello(hello, _)) => {
                tracing::info!(
                    %machine,
                    claims = hello.claims.len(),
                    cpus = hello.total.cpus,
                    "machine connected"
                );
                if !self.may_take_over(session, &hello, start) {
                    tracing::warn!(
                        %machine,
                        "somebody with this machine's name does not have the jobs that it runs, or has another kernel than it: a copy, or the \
                         machine started anew; they are not let in before those jobs have ended or their leases have"
                    );
                    self.close(session);
                    return;
                }
                self.boots.insert(hello.machine.clone(), start.boot);
                self.sessions.welcome(session, self.beat_ms, self.private);
                let turn = &mut Turn { now, digest, out: &mut self.pending.out };
                self.books.core.agent_up(turn, *hello);
                for other in self.sessions.of(&machine) {
                    if other != session {
                        self.close(other);
                    }
                }
            }
            Some(Said::Beat(n)) => {
                self.books.core.agent_heard(now, machine.as_str(), session);
                self.sessions.say(session, api::agent::Down::Beat(n));
            }
            Some(Said::Machine { ads, slots }) => {
                self.books.core.machine_changed(turn, machine.as_str(), session, ads, slots);
            }
            Some(Said::Report(report)) => {
                let (claim, before) = (report.claim, turn.out.effects.len());
                self.books.core.agent_report(turn, machine.as_str(), session, report);
                let only_heard = turn.out.effects[before..].iter().all(|e| matches!(e, Effect::Ack { .. }));
                if only_heard && self.books.core.has_plenty(ClaimId(claim)) {
                    self.pending.linger();
                    return;
                }
            }
        }
        self.pending.hurry();
    }

    fn close(&mut self, session: Session) {
        if let Some(machine) = self.sessions.machine(session) {
            tracing::info!(%machine, "machine disconnected");
        }
        self.sessions.close(session);
        self.books.core.agent_down(session);
    }

    /// A manager that was replaced leaves, also when it has nothing to write: its agents and jobs are the other's.
    fn look_for_another_leader(&mut self) -> Result<(), Error> {
        let now_ms = self.clock.now().mono_ms;
        if now_ms.saturating_sub(self.last_look_ms) < LOOK_MS {
            return Ok(());
        }
        self.last_look_ms = now_ms;
        self.journal.bear_witness();
        match self.journal.check_leadership() {
            Err(error @ (journal::Error::Fenced { .. } | journal::Error::Damaged { .. })) => {
                Err(error.into())
            }
            // A directory that cannot be read is noticed by the next write.
            _ => Ok(()),
        }
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        if now.mono_ms.saturating_sub(self.last_tick_ms) >= self.books.core.next_tick_ms(now) {
            self.last_tick_ms = now.mono_ms;
            self.books.core.tick(&mut Turn { now, digest, out: &mut self.pending.out });
            self.pending.hurry();
        }
    }

    /// Records a fact that is the manager's own.
    fn record(&mut self, kind: Kind) {
        self.books.registry.apply(&kind);
        self.books.read_clock(&kind);
        self.registry_changed = true;
        self.pending.out.events.push(Event { time_ms: self.clock.now().wall_ms, kind: Some(kind) });
    }

    fn answer_after<T: Send + 'static>(&mut self, answer: Answer<T>, value: T) {
        self.pending.after.push(Box::new(move |on_disk| {
            let _ = answer.send(on_disk.map(|()| value));
        }));
    }

    /// Writes what was decided; then, and only then, lets it take effect.
    fn commit(&mut self) -> Result<(), Error> {
        let Pending { out, after, queries, .. } = std::mem::take(&mut self.pending);
        for warning in &out.warnings {
            tracing::warn!("{warning}");
        }
        if !out.events.is_empty() {
            let started = Instant::now();
            match self.journal.append(&out.events) {
                Ok(first) => {
                    self.metrics.committed(&out.events, started.elapsed().as_secs_f64());
                    self.feed.publish(Batch::new(first, out.events));
                }
                Err(error) if error.may_pass() => {
                    // That the clock was set is no decision: it is still true.
                    self.stepped_ms += out.events.iter().filter_map(stepped_by).sum::<i64>();
                    self.fall_back(&error)?;
                    let told = Unavailable::Degraded(error.to_string());
                    for answer in after {
                        answer(Err(told.clone()));
                    }
                    for query in queries {
                        query(&mut self.books.core, self.clock.now());
                    }
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        if std::mem::take(&mut self.registry_changed)
            && let Ok(mut shared) = self.handle_registry.write()
        {
            *shared = Arc::new(self.books.registry.clone());
        }
        for effect in out.effects {
            self.sessions.deliver(effect, &self.books.core);
        }
        for deaf in self.sessions.take_deaf() {
            self.close(deaf);
        }
        for answer in after {
            answer(Ok(()));
        }
        self.answer_queries(queries);
        Ok(())
    }

    /// Lets people look at the books, for a moment: whoever comes after that waits for the next turn, so that what people ask
    /// keeps nobody's decisions off the disk.
    fn answer_queries(&mut self, mut queries: VecDeque<Query>) {
        let started = Instant::now();
        while let Some(query) = queries.pop_front() {
            query(&mut self.books.core, self.clock.now());
            if started.elapsed() >= LOOKING {
                break;
            }
        }
        if !queries.is_empty() {
            self.pending.queries = queries;
            self.pending.hurry();
        }
    }
}
