//! The manager of the world: the pool's own core, a journal in memory, and a disk that may refuse. What it does around the core is what
//! the manager's writer does (`manager::writer`).

use std::collections::BTreeMap;

use model::agent::{Down, Up, Welcome};
use model::event::{ClockStepped, Kind};
use model::{ClaimKey, Event, MachineName, Now};
use scheduler::{Core, Out, Said, Session, Settings, Told, Turn, understand};

use super::clocks::Clocks;
use super::truth::Check;
use super::{BEAT_MS, Context, Step};

/// An open session.
#[derive(Debug)]
struct Open {
    host: usize,
    told: Told,
}

/// The manager.
#[derive(Debug)]
pub(super) struct Manager {
    /// `None` while it is dead.
    pub(super) core: Option<Core>,
    pub(super) clocks: Clocks,
    settings: Settings,
    journal: Vec<Event>,
    snapshot: Option<(Vec<u8>, usize)>,
    /// The snapshot before, which is still there when the last one was not on disk.
    snapshot_before: Option<(Vec<u8>, usize)>,
    sessions: BTreeMap<Session, Open>,
    next_session: u64,
    /// The disk takes nothing.
    pub(super) refuses: bool,
    /// The power fails while the next batch is written.
    pub(super) fails_in_batch: bool,
    /// The last batch was refused, and nothing is decided until the disk takes writes again.
    degraded: bool,
    keys: u64,
    /// How far its clock was set, as long as the journal does not say so.
    stepped_ms: i64,
}

pub(super) fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

pub(super) fn name(host: usize) -> MachineName {
    format!("host{host}").parse().unwrap_or_else(|_| unreachable!("it is a name"))
}

impl Manager {
    pub(super) fn new(settings: Settings, clocks: Clocks) -> Self {
        Self {
            core: Some(Core::new(settings.clone())),
            clocks,
            settings,
            journal: Vec::new(),
            snapshot: None,
            snapshot_before: None,
            sessions: BTreeMap::new(),
            next_session: 0,
            refuses: false,
            fails_in_batch: false,
            degraded: false,
            keys: 0,
            stepped_ms: 0,
        }
    }

    pub(super) fn now(&self, context: &Context) -> Now {
        self.clocks.now(context.at)
    }

    /// Lets the core decide something, and commits what came of it. False when it could not be committed, or nobody is there.
    pub(super) fn decide(
        &mut self,
        context: &mut Context,
        decision: impl FnOnce(&mut Core, &mut Turn<'_>),
    ) -> Result<bool, String> {
        let now = self.now(context);
        let Some(core) = self.core.as_mut().filter(|_| !self.degraded) else { return Ok(false) };
        while core.keys_left() < 64 {
            self.keys += 1;
            let mut key = [0; 32];
            key[..8].copy_from_slice(&self.keys.to_le_bytes());
            core.give_keys([ClaimKey(key)]);
        }
        let mut out = Out::default();
        decision(core, &mut Turn { now, digest, out: &mut out });
        self.commit(context, out)
    }

    /// The batch is on disk, or never happened.
    fn commit(&mut self, context: &mut Context, out: Out) -> Result<bool, String> {
        if self.refuses && !out.events.is_empty() {
            context.outcome.refused += 1;
            self.degraded = true;
            self.recover(context)?;
            return Ok(false);
        }
        for event in &out.events {
            context.note(|| format!("  {:?}", event.kind));
        }
        if self.fails_in_batch && !out.events.is_empty() {
            return self.fail_in_batch(context, out);
        }
        context.truth.note(context.at, &out.events)?;
        let has_events = !out.events.is_empty();
        self.journal.extend(out.events);
        let Some(core) = &self.core else { return Ok(false) };
        for effect in out.effects {
            let session = effect.session();
            let Some(open) = self.sessions.get_mut(&session) else { continue };
            let (host, (_, words)) = (open.host, open.told.words(effect, core, |_| vec![7; 32]));
            for down in words {
                context.send_down(host, session, down, None);
            }
        }
        context.truth.check(core)?;
        // They look at everything, so only where something was decided.
        if has_events { self.check(context).map(|()| true) } else { Ok(true) }
    }

    /// The power fails while a batch is written. It is on disk or it is not; nobody hears of it either way.
    fn fail_in_batch(&mut self, context: &mut Context, out: Out) -> Result<bool, String> {
        self.fails_in_batch = false;
        context.power_fails = true;
        if context.random.percent(50) {
            context.outcome.unheard += 1;
            context.truth.note(context.at, &out.events)?;
            self.journal.extend(out.events);
        }
        // What it has decided beyond the journal is gone with it.
        self.core = None;
        Ok(false)
    }

    /// What must hold of the core when it has decided something; a machine that was lost is in plans until then.
    fn check(&mut self, context: &Context) -> Check {
        let now = self.now(context);
        let broken = self.core.as_mut().map(|core| core.broken(now)).unwrap_or_default();
        match broken.first() {
            None => Ok(()),
            Some(first) => Err(format!("{} invariants of the core are broken: {first}", broken.len())),
        }
    }

    /// The books as they are on disk: from the snapshot and what came after it, which must be what the whole journal gives.
    fn recover(&mut self, context: &Context) -> Check {
        let replay = |mut core: Core, events: &[Event]| {
            for event in events {
                if let Some(kind) = &event.kind {
                    core.apply(kind, event.time_ms);
                }
            }
            core
        };
        let settings = &self.settings;
        let anew = |core: Core, events: &[Event]| {
            let stepped = |e: &Event| matches!(e.kind, Some(Kind::ClockStepped(_)));
            if !events.iter().any(stepped) {
                return Ok(core);
            }
            core.rebuilt(settings.clone()).map_err(|e| e.to_string())
        };
        let whole = anew(replay(Core::new(self.settings.clone()), &self.journal), &self.journal)?;
        let core = match &self.snapshot {
            None => whole,
            Some((bytes, position)) => {
                let saved = Core::restore(self.settings.clone(), bytes).map_err(|e| e.to_string())?;
                let core = anew(replay(saved, &self.journal[*position..]), &self.journal[*position..])?;
                if core.picture() != whole.picture() {
                    return Err(format!(
                        "a snapshot and what came after it are not the journal:\n{}\n{}",
                        core.picture(),
                        whole.picture()
                    ));
                }
                core
            }
        };
        let now = self.now(context);
        let core = self.core.insert(core);
        core.recovered(now);
        Ok(())
    }

    pub(super) fn save(&mut self) {
        if let Some(core) = self.core.as_ref().filter(|_| !self.degraded) {
            self.snapshot_before = self.snapshot.replace((core.snapshot(), self.journal.len()));
        }
    }

    pub(super) fn kill(&mut self, context: &mut Context) {
        self.core = None;
        self.degraded = false;
        for (session, open) in std::mem::take(&mut self.sessions) {
            context.lose_link(open.host, session);
        }
    }

    /// It dies with its host, whose monotonic clock begins anew. The last snapshot may not have been on disk.
    pub(super) fn lose_power(&mut self, context: &mut Context) {
        self.kill(context);
        self.fails_in_batch = false;
        self.clocks.boot(context.at);
        if context.random.percent(50) {
            self.snapshot = self.snapshot_before.take();
        }
    }

    pub(super) fn start(&mut self, context: &mut Context) -> Check {
        self.recover(context)?;
        context.push(1, Step::ManagerTick);
        self.record_step(context)
    }

    /// The disk takes writes again.
    pub(super) fn mend_disk(&mut self, context: &mut Context) -> Check {
        self.refuses = false;
        if !std::mem::take(&mut self.degraded) {
            return self.record_step(context);
        }
        let now = self.now(context);
        if let Some(core) = &mut self.core {
            core.recovered(now);
        }
        for (session, open) in &mut self.sessions {
            let again = open.told.ask_again();
            context.send_down(open.host, *session, again, None);
        }
        self.record_step(context)
    }

    /// Somebody sets its clock.
    pub(super) fn set_clock(&mut self, context: &mut Context, before_ms: i64, wall_ms: i64) -> Check {
        self.clocks.set(wall_ms);
        self.stepped_ms += wall_ms - before_ms;
        self.record_step(context)
    }

    /// The clock was set: that is recorded as soon as it can be, and what follows from dates is made anew.
    fn record_step(&mut self, context: &mut Context) -> Check {
        let now = self.now(context);
        let Some(core) = self.core.as_mut().filter(|_| !self.degraded && !self.refuses) else {
            return Ok(());
        };
        let by_ms = std::mem::take(&mut self.stepped_ms);
        if by_ms == 0 {
            return Ok(());
        }
        let kind = Kind::ClockStepped(ClockStepped { by_ms });
        core.apply(&kind, now.wall_ms);
        self.journal.push(Event { time_ms: now.wall_ms, kind: Some(kind) });
        *core = core.rebuilt(self.settings.clone()).map_err(|e| e.to_string())?;
        core.recovered(now);
        for (session, open) in &mut self.sessions {
            let again = open.told.ask_again();
            context.send_down(open.host, *session, again, None);
        }
        Ok(())
    }

    /// A machine connects; `None` when nobody is there.
    pub(super) fn open(&mut self, host: usize) -> Option<Session> {
        self.core.as_ref()?;
        self.next_session += 1;
        let session = Session(self.next_session);
        self.sessions.insert(session, Open { host, told: Told::default() });
        Some(session)
    }

    pub(super) fn close(&mut self, session: Session) {
        if self.sessions.remove(&session).is_some()
            && let Some(core) = &mut self.core
        {
            core.agent_down(session);
        }
    }

    /// A word from a machine.
    pub(super) fn hear(&mut self, context: &mut Context, session: Session, up: Up) -> Check {
        let Some(host) = self.sessions.get(&session).map(|open| open.host) else { return Ok(()) };
        let wall_ms = Some(self.now(context).wall_ms);
        let welcome = Down::Welcome(Welcome {
            beat_ms: BEAT_MS,
            machine: name(host).to_string(),
            ..Welcome::default()
        });
        if self.degraded {
            // Leases go on; reports will be repeated.
            match up {
                Up::Beat(n) => context.send_down(host, session, Down::Beat(n), wall_ms),
                Up::Hello(_) => context.send_down(host, session, welcome, wall_ms),
                _ => {}
            }
            return Ok(());
        }
        let Some(said) = understand(session, &name(host), up) else { return Ok(()) };
        let machine = name(host);
        match said {
            Said::Hello(hello, again) => {
                if !self.sessions.get_mut(&session).is_some_and(|open| open.told.expects(again)) {
                    return Ok(());
                }
                let Some(core) = &self.core else { return Ok(()) };
                if core.runs_more_than(&hello, digest) {
                    // Somebody with this name does not have the jobs that it runs.
                    context.outcome.turned_away += 1;
                    self.close(session);
                    context.lose_link(host, session);
                    return Ok(());
                }
                context.send_down(host, session, welcome, wall_ms);
                self.decide(context, |core, turn| core.agent_up(turn, *hello))?;
                let others = self.sessions.iter().filter(|(s, open)| open.host == host && **s != session);
                for other in others.map(|(s, _)| *s).collect::<Vec<_>>() {
                    self.close(other);
                }
            }
            Said::Beat(n) => {
                self.decide(context, |core, turn| {
                    core.agent_heard(turn.now, machine.as_str(), session);
                })?;
                context.send_down(host, session, Down::Beat(n), wall_ms);
            }
            Said::Machine { ads, slots } => {
                self.decide(context, |core, turn| {
                    core.machine_changed(turn, machine.as_str(), session, ads, slots);
                })?;
            }
            Said::Report(report) => {
                self.decide(context, |core, turn| {
                    core.agent_report(turn, machine.as_str(), session, report);
                })?;
            }
        }
        Ok(())
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, context: &mut Context) -> Check {
        let decided = self.decide(context, Core::tick)?;
        if decided && context.random.percent(10) {
            self.check(context)?;
        }
        let now = self.now(context);
        if let Some(core) = &self.core {
            let wait = if self.degraded { 1_000 } else { core.next_tick_ms(now).max(1) };
            context.push(wait, Step::ManagerTick);
        }
        Ok(())
    }
}
