//! One agent's connection from the manager's side: what the writer must hear goes to the writer; parts of objects,
//! answers and traces are dealt with here, so that the writer's queue carries only what changes the books.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::agent::{Answer, Ask, Down, Question, ToAgent, Up};
use scheduler::Session;
use tokio::sync::oneshot;

use crate::handle::{Handle, Unavailable};
use crate::sessions::{AgentLink, Incoming};

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Questions that machines have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    next: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

/// Why a machine gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It is not there.
    #[error("machine {0} is not connected")]
    NotConnected(String),
    /// It took too long.
    #[error("machine {0} did not answer within 10 s")]
    Silent(String),
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// The manager is stopping.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Questions {
    fn ask(&self) -> (u64, oneshot::Receiver<Answer>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, reply) = oneshot::channel();
        if let Ok(mut open) = self.open.lock() {
            open.insert(id, answer);
        }
        (id, reply)
    }

    fn take(&self, id: u64) -> Option<oneshot::Sender<Answer>> {
        self.open.lock().ok()?.remove(&id)
    }
}

impl Handle {
    /// Asks a machine something and waits for its answer.
    pub async fn ask_machine(&self, machine: &str, question: Question) -> Result<String, NoAnswer> {
        let (id, reply) = self.questions.ask();
        let sent = self.tell_machine(machine, Down::Ask(Ask { id, question: Some(question) })).await;
        if !matches!(sent, Ok(true)) {
            self.questions.take(id);
            sent?;
            return Err(NoAnswer::NotConnected(machine.to_owned()));
        }
        match tokio::time::timeout(PATIENCE, reply).await {
            Ok(Ok(answer)) if answer.done => Ok(answer.text),
            Ok(Ok(answer)) => Err(NoAnswer::Refused(answer.text)),
            Ok(Err(_)) | Err(_) => {
                self.questions.take(id);
                Err(NoAnswer::Silent(machine.to_owned()))
            }
        }
    }
}

/// An open session with an agent.
#[derive(Debug)]
pub struct AgentSession {
    pub(crate) session: Session,
    pub(crate) machine: String,
    pub(crate) link: AgentLink,
    pub(crate) handle: Handle,
}

impl AgentSession {
    /// Takes a word from the agent.
    pub async fn hear(&self, message: Incoming) -> Result<(), Unavailable> {
        match message.up {
            Some(Up::Put(piece)) => {
                let (store, machine) = (self.handle.objects.clone(), self.machine.clone());
                let took = tokio::task::spawn_blocking(move || store.put(&machine, &piece)).await;
                self.say(took.map(Down::Took));
            }
            Some(Up::Get(want)) => {
                let store = self.handle.objects.clone();
                let piece = tokio::task::spawn_blocking(move || store.get(&want)).await;
                self.say(piece.map(Down::Piece));
            }
            Some(Up::Answer(answer)) => {
                if let Some(waiting) = self.handle.questions.take(answer.id) {
                    let _ = waiting.send(answer);
                }
            }
            Some(Up::Trace(trace)) => self.handle.traces.take(&self.machine, trace),
            up => return self.handle.hear_agent(self.session, Incoming { up }).await,
        }
        Ok(())
    }

    fn say(&self, down: Result<Down, tokio::task::JoinError>) {
        if let Ok(down) = down {
            // An agent that is gone asks again when it is back.
            let _ = self.link.send(ToAgent { down: Some(down) });
        }
    }

    /// Ends the session.
    pub async fn close(self) {
        self.handle.close_session(self.session).await;
    }
}
