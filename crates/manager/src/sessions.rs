//! Connected agents, and the way to each of them.

use std::collections::{HashMap, HashSet};

use api::agent::{Down, ToAgent, ToManager, Welcome};
use model::MachineName;
use scheduler::{Core, Effect, Session, Told};
use tokio::sync::{mpsc, watch};

use crate::objects::CheckpointKey;

/// Words that wait for an agent at most; one that does not read them is better off with a new connection.
const WORDS: usize = 8_192;
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
    told: Told,
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
        let open = Open { machine, key, words, told: Told::default(), _wanted: still };
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
        if let Err(mpsc::error::TrySendError::Full(_)) = open.words.try_send(worded(down))
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
        newest.is_some_and(|(_, open)| open.words.try_send(worded(down)).is_ok())
    }

    pub(crate) fn welcome(&self, session: Session, beat_ms: u64, private: bool) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        if let Some(machine) = self.machine(session).map(ToString::to_string) {
            self.say(session, Down::Welcome(Welcome { version, beat_ms, machine, private }));
        }
    }

    /// After the manager had to go back to what is on disk.
    pub(crate) fn ask_all_again(&mut self) {
        let asked = self.open.iter_mut().map(|(session, open)| (*session, open.told.ask_again()));
        for (session, down) in asked.collect::<Vec<_>>() {
            self.say(session, down);
        }
    }

    /// A hello is the one that was asked for last, and the first to answer that.
    pub(crate) fn is_expected(&mut self, session: Session, again: u64) -> bool {
        self.open.get_mut(&session).is_some_and(|open| open.told.expects(again))
    }

    /// Carries an effect out.
    pub(crate) fn deliver(&mut self, effect: Effect, core: &Core) {
        let Some(open) = self.open.get_mut(&effect.session()) else { return };
        let key = &self.checkpoint_key;
        let (session, words) = open.told.words(effect, core, |job| key.of_job(job.cluster, job.proc));
        for down in words {
            self.say(session, down);
        }
    }
}

/// A word with what goes with it.
fn worded(down: Down) -> ToAgent {
    let is_answer = matches!(down, Down::Welcome(_) | Down::Beat(_));
    ToAgent { down: Some(down), wall_ms: is_answer.then(crate::clock::wall_ms) }
}
