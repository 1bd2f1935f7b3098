//! What machines and users say, without journal, sockets and threads: a pool for the targets of crates/fuzz. It goes the
//! way of `writer`: words are understood, the core decides, and what it decided becomes messages.

use api::agent::{ToAgent, ToManager};
use model::{ClaimKey, Event, JobTemplate, Now};
use scheduler::{Core, Out, Refusal, Said, Session, Settings, Submission, Turn, understand};

use crate::sessions::{FromManager, Sessions};

/// A pool in memory.
#[derive(Debug)]
pub struct Pool {
    core: Core,
    sessions: Sessions,
    open: Vec<(Session, FromManager)>,
    now: Now,
    keys: u64,
    journal: Vec<Event>,
}

fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

fn settings() -> Settings {
    // The consistency pass looks at everything all the time.
    Settings { sweep_ms: 1, grace_ms: 60_000, periodic_ms: 1_000, lease_ms: 60_000, ..Settings::default() }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            core: Core::new(settings()),
            sessions: Sessions::default(),
            open: Vec::new(),
            now: Now { mono_ms: 1_000, wall_ms: 1_800_000_000_000 },
            keys: 0,
            journal: Vec::new(),
        }
    }
}

impl Pool {
    fn decide<T>(&mut self, input: impl FnOnce(&mut Core, &mut Turn<'_>) -> T) -> T {
        while self.core.keys_left() < 64 {
            self.keys += 1;
            let mut key = [0; 32];
            key[..8].copy_from_slice(&self.keys.to_le_bytes());
            self.core.give_keys([ClaimKey(key)]);
        }
        let mut out = Out::default();
        let result = input(&mut self.core, &mut Turn { now: self.now, digest, out: &mut out });
        self.journal.append(&mut out.events);
        for effect in out.effects {
            self.sessions.deliver(effect, &self.core);
        }
        for deaf in self.sessions.take_deaf() {
            self.close(deaf);
        }
        result
    }

    fn close(&mut self, session: Session) {
        self.sessions.close(session);
        self.core.agent_down(session);
        self.open.retain(|(open, _)| *open != session);
    }

    /// A machine connects; the number of its connection.
    pub fn connect(&mut self, machine: &str) -> u64 {
        let Ok(machine) = machine.parse() else { return 0 };
        let opened = self.sessions.open(machine, "key".to_owned());
        self.open.push((opened.session, opened.from));
        opened.session.0
    }

    /// A connection is cut.
    pub fn cut(&mut self, connection: u64) {
        self.close(Session(connection));
    }

    /// A machine says something; `false` when it is hung up on.
    pub fn hear(&mut self, connection: u64, message: ToManager) -> bool {
        let session = Session(connection);
        let Some(machine) = self.sessions.machine(session).cloned() else { return false };
        match message.up.and_then(|up| understand(session, &machine, up)) {
            None => {}
            Some(Said::Hello(hello, _)) => {
                let others: Vec<Session> =
                    self.sessions.of(&machine).into_iter().filter(|other| *other != session).collect();
                if self.core.runs_more_than(&hello, digest) {
                    self.close(session);
                    return false;
                }
                self.sessions.welcome(session, 1_000, true);
                self.decide(|core, turn| core.agent_up(turn, *hello));
                for other in others {
                    self.close(other);
                }
            }
            Some(Said::Beat(n)) => {
                self.core.agent_heard(self.now, machine.as_str(), session);
                self.sessions.say(session, api::agent::Down::Beat(n));
            }
            Some(Said::Machine { ads, slots }) => {
                self.decide(|core, turn| {
                    core.machine_changed(turn, machine.as_str(), session, ads, slots);
                });
            }
            Some(Said::Report(report)) => {
                let claim = report.claim;
                self.decide(|core, turn| {
                    core.agent_report(turn, machine.as_str(), session, report);
                    core.has_plenty(model::ClaimId(claim))
                });
            }
        }
        true
    }

    /// A user submits.
    pub fn submit(&mut self, owner: &str, template: JobTemplate) -> Result<u32, Refusal> {
        let submission = Submission { owner: owner.to_owned(), template, idempotency_key: String::new() };
        self.decide(|core, turn| core.submit(turn, submission))
    }

    /// A user wants something of jobs.
    pub fn act(&mut self, owner: &str, act: scheduler::Act, which: &scheduler::Which) {
        let actor = scheduler::Actor { user: owner.to_owned(), any_owner: false };
        let _ = self.decide(|core, turn| core.act(turn, &actor, act, which, "why"));
    }

    /// Time passes.
    pub fn wait(&mut self, ms: u64) {
        self.now = Now { mono_ms: self.now.mono_ms + ms, wall_ms: self.now.wall_ms + ms };
        self.decide(Core::tick);
    }

    /// What the manager has to say to a machine.
    pub fn told(&mut self, connection: u64) -> Vec<ToAgent> {
        let mut told = Vec::new();
        if let Some((_, from)) = self.open.iter_mut().find(|(session, _)| session.0 == connection) {
            while let Ok(word) = from.words.try_recv() {
                told.push(word);
            }
        }
        told
    }

    /// People look at everything.
    pub fn look(&mut self) {
        let now = self.now;
        let clusters: Vec<u32> = self.core.clusters().map(|view| view.cluster).collect();
        for cluster in clusters {
            for job in self.core.jobs(cluster, 50) {
                let _ = self.core.explain_job(job.job, now);
            }
        }
        let machines: Vec<String> = self.core.machines().map(|view| view.name.to_string()).collect();
        for machine in machines {
            let _ = self.core.explain_machine(&machine, now);
        }
        let _ = (self.core.totals(), self.core.users(now.wall_ms), self.core.labs());
    }

    /// What is wrong with the books: they are not what the journal or a snapshot gives, or the consistency pass found
    /// something.
    pub fn faults(&mut self) -> Option<String> {
        for _ in 0..3 {
            self.wait(1);
        }
        if self.core.findings().total() > 0 {
            return Some(format!("the consistency pass found {:?}", self.core.findings()));
        }
        let mut replayed = Core::new(settings());
        for event in &self.journal {
            if let Some(kind) = &event.kind {
                replayed.apply(kind, event.time_ms);
            }
        }
        let restored = match Core::restore(settings(), &self.core.snapshot()) {
            Ok(core) => core,
            Err(error) => return Some(error.to_string()),
        };
        let picture = |core: &Core| -> Vec<String> {
            let clusters = core.clusters().map(|view| {
                let mut jobs = core.jobs(view.cluster, 1_000);
                jobs.sort_by_key(|job| job.job);
                format!("{view:?} {:?}", jobs.iter().map(|j| (j.job, j.attempts)).collect::<Vec<_>>())
            });
            clusters.collect()
        };
        let life = picture(&self.core);
        (picture(&replayed) != life || picture(&restored) != life)
            .then(|| "journal, snapshot and life differ".to_owned())
    }
}
