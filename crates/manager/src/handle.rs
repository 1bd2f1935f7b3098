//! The way to the writer: what can be asked of it, and the handle by which everything else in the manager asks.
//!
//! People and agents come by two doors, so that the writer can let reports wait without letting people wait. What is done
//! with each input is in `writer`.

use std::sync::{Arc, Mutex, RwLock};

use api::agent::Down;
use model::event::{MachineStanding, PoolDrained, PrioritySet, TokenIssued};
use model::visit::Want;
use model::{JobId, MachineName, Now};
use scheduler::{
    Act, Actor, Core, LabChange, Outcome, Refusal, Session, StandingChange, StandingRefusal, Submission,
    Visited, Which,
};
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use trust::token::Token;

use crate::agents::{AgentSession, Questions, Unheard};
use crate::bookmarks::Bookmarks;
use crate::cargo::Cargo;
use crate::feed::Feed;
use crate::registry::{LOCAL_KEY, NoJoin, Registry, Rejected, Stranger};
use crate::sessions::{FromManager, Incoming, Opened};
use crate::traces::Traces;
use crate::windows::Windows;
use crate::writer::wall_ms;

/// Why nothing can be recorded at the moment.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unavailable {
    /// The journal cannot be written.
    #[error("nothing can be recorded at the moment: {0}")]
    Degraded(String),
    /// The manager is stopping.
    #[error("the manager is stopping")]
    Stopping,
    /// The manager stopped over it.
    #[error(
        "the manager stopped before it could say whether this was recorded, so that is not known: look at the queue when it is up \
         again, before asking once more"
    )]
    Unknown,
}

pub(crate) type Answer<T> = oneshot::Sender<Result<T, Unavailable>>;
pub(crate) type Query = Box<dyn FnOnce(&mut Core, Now) + Send>;

/// What people ask for.
pub(crate) enum Input {
    Submit(Submission, Answer<Result<u32, Refusal>>),
    Act {
        actor: Actor,
        act: Act,
        which: Vec<Which>,
        reason: String,
        answer: Answer<Vec<Result<Outcome, Refusal>>>,
    },
    Visit {
        actor: Actor,
        job: JobId,
        want: Box<Want>,
        answer: Answer<Result<Visited, Refusal>>,
    },
    IssueToken(TokenIssued, Answer<()>),
    SetPriority(PrioritySet, Answer<()>),
    Drain(PoolDrained, Answer<Result<(), String>>),
    SetMachine {
        actor: Actor,
        machine: MachineName,
        change: StandingChange,
        answer: Answer<Result<MachineStanding, StandingRefusal>>,
    },
    SetLab(LabChange, Answer<Result<(), StandingRefusal>>),
    Reconfigure(Box<scheduler::Settings>, Answer<()>),
    RevokeToken {
        id: String,
        by: String,
        answer: Answer<bool>,
    },
    Join {
        token: Token,
        machine: MachineName,
        key: String,
        answer: Answer<Result<(), NoJoin>>,
    },
    RevokeMachine {
        machine: MachineName,
        by: String,
        reason: String,
        answer: Answer<bool>,
    },
    Look(Query),
    OpenSession {
        machine: MachineName,
        key: String,
        answer: oneshot::Sender<Result<Opened, Stranger>>,
    },
    /// A word for a machine; answered whether it is connected.
    Tell(MachineName, Down, oneshot::Sender<bool>),
    Stop(oneshot::Sender<()>),
}

/// What agents say, in the order of each one's connection.
pub(crate) enum FromAgent {
    /// With what it weighs, until it is heard.
    Said(Session, Incoming, Option<OwnedSemaphorePermit>),
    Closed(Session),
}

/// The way to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) people: mpsc::Sender<Input>,
    pub(crate) agents: mpsc::Sender<FromAgent>,
    pub(crate) feed: Feed,
    pub(crate) bookmarks: Arc<Bookmarks>,
    pub(crate) registry: Arc<RwLock<Arc<Registry>>>,
    pub(crate) degraded: Arc<RwLock<Option<String>>>,
    pub(crate) objects: Store,
    pub(crate) cargo: Arc<Cargo>,
    pub(crate) traces: Arc<Traces>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) windows: Arc<Windows>,
    pub(crate) visits: Arc<crate::visits::Visits>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Unavailable> {
        let (answer, reply) = oneshot::channel();
        self.people.send(input(answer)).await.map_err(|_| Unavailable::Stopping)?;
        reply.await.map_err(|_| Unavailable::Unknown)
    }

    /// Asks something that records nothing.
    async fn ask_only<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Unavailable> {
        self.ask(input).await.map_err(|why| match why {
            Unavailable::Unknown => Unavailable::Stopping,
            why => why,
        })
    }

    /// Submits; the answer comes when it is on disk.
    pub async fn submit(&self, submission: Submission) -> Result<Result<u32, Refusal>, Unavailable> {
        self.ask(|answer| Input::Submit(submission, answer)).await?
    }

    /// Acts on jobs; the answer comes when it is on disk.
    pub async fn act(
        &self,
        actor: Actor,
        act: Act,
        which: Vec<Which>,
        reason: String,
    ) -> Result<Vec<Result<Outcome, Refusal>>, Unavailable> {
        self.ask(|answer| Input::Act { actor, act, which, reason, answer }).await?
    }

    /// Where a running job is, for somebody who may look into it; what is recorded of that is on disk.
    pub(crate) async fn visit(
        &self,
        actor: Actor,
        job: JobId,
        want: Want,
    ) -> Result<Result<Visited, Refusal>, Unavailable> {
        self.ask(|answer| Input::Visit { actor, job, want: Box::new(want), answer }).await?
    }

    pub(crate) async fn issue_token(&self, issued: TokenIssued) -> Result<(), Unavailable> {
        self.ask(|answer| Input::IssueToken(issued, answer)).await?
    }

    pub(crate) async fn set_priority(&self, set: PrioritySet) -> Result<(), Unavailable> {
        self.ask(|answer| Input::SetPriority(set, answer)).await?
    }

    pub(crate) async fn drain(&self, said: PoolDrained) -> Result<Result<(), String>, Unavailable> {
        self.ask(|answer| Input::Drain(said, answer)).await?
    }

    pub(crate) async fn set_machine(
        &self,
        actor: Actor,
        machine: MachineName,
        change: StandingChange,
    ) -> Result<Result<MachineStanding, StandingRefusal>, Unavailable> {
        self.ask(|answer| Input::SetMachine { actor, machine, change, answer }).await?
    }

    pub(crate) async fn set_lab(
        &self,
        change: LabChange,
    ) -> Result<Result<(), StandingRefusal>, Unavailable> {
        self.ask(|answer| Input::SetLab(change, answer)).await?
    }

    pub(crate) async fn revoke_token(&self, id: String, by: String) -> Result<bool, Unavailable> {
        self.ask(|answer| Input::RevokeToken { id, by, answer }).await?
    }

    pub(crate) async fn join(
        &self,
        token: Token,
        machine: MachineName,
        key: String,
    ) -> Result<Result<(), NoJoin>, Unavailable> {
        self.ask(|answer| Input::Join { token, machine, key, answer }).await?
    }

    /// Goes on with other settings.
    pub(crate) async fn reconfigure(&self, settings: scheduler::Settings) -> Result<(), Unavailable> {
        self.ask(|answer| Input::Reconfigure(Box::new(settings), answer)).await?
    }

    /// Denies a machine; false for the manager's own.
    pub(crate) async fn revoke_machine(
        &self,
        machine: MachineName,
        by: String,
        reason: String,
    ) -> Result<bool, Unavailable> {
        self.ask(|answer| Input::RevokeMachine { machine, by, reason, answer }).await?
    }

    /// Looks at the books as they are on disk.
    pub async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        self.ask_only(|answer| {
            Input::Look(Box::new(move |core, _| {
                let _ = answer.send(question(core));
            }))
        })
        .await
    }

    /// Asks for an explanation, which may teach the match engine something but changes nothing in the books.
    pub(crate) async fn explain<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, Now) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        self.ask_only(|answer| {
            Input::Look(Box::new(move |core, now| {
                let _ = answer.send(question(core, now));
            }))
        })
        .await
    }

    /// Opens the session of the agent in the manager's own process.
    pub async fn open_local_session(&self, machine: &str) -> Result<(AgentSession, FromManager), String> {
        let machine = machine.parse::<MachineName>().map_err(|e| e.to_string())?;
        let opened = self.open_session(machine, LOCAL_KEY.to_owned()).await.map_err(|e| e.to_string())?;
        opened.map_err(|e| e.to_string())
    }

    /// Opens the session of an agent that showed a certificate for this key.
    pub(crate) async fn open_session(
        &self,
        machine: MachineName,
        key: String,
    ) -> Result<Result<(AgentSession, FromManager), Stranger>, Unavailable> {
        let name = machine.clone();
        let opened = self.ask_only(|answer| Input::OpenSession { machine: name, key, answer }).await?;
        Ok(opened.map(|Opened { session, pieces, from, wanted }| {
            let handle = self.clone();
            (
                AgentSession {
                    session,
                    machine,
                    pieces,
                    wanted,
                    handle,
                    fetches: Mutex::default(),
                    unheard: Unheard::default(),
                },
                from,
            )
        }))
    }

    /// May a machine of this name with this key be here?
    pub(crate) fn admit(&self, machine: &MachineName, key: &str) -> Result<(), Stranger> {
        let stranger = || Stranger::OtherKey(machine.clone());
        self.registry.read().map_err(|_| stranger())?.admit(machine, key)
    }

    /// True when a machine of this name with this key is not let through the handshake.
    pub(crate) fn is_denied(&self, machine: &MachineName, key: &str) -> bool {
        self.registry.read().map_or(true, |registry| registry.is_denied(machine, key))
    }

    pub(crate) async fn tell_machine(&self, machine: MachineName, down: Down) -> Result<bool, Unavailable> {
        self.ask(|answer| Input::Tell(machine, down, answer)).await
    }

    /// Passes on what an agent said.
    pub(crate) async fn hear_agent(
        &self,
        session: Session,
        message: Incoming,
        weight: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Unavailable> {
        self.agents.send(FromAgent::Said(session, message, weight)).await.map_err(|_| Unavailable::Stopping)
    }

    pub(crate) async fn close_session(&self, session: Session) {
        let _ = self.agents.send(FromAgent::Closed(session)).await;
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().map(|r| r.clone()).unwrap_or_default()
    }

    pub(crate) fn principal(&self, token: &Token) -> Result<trust::Principal, Rejected> {
        self.registry.read().map_err(|_| Rejected)?.principal(token, wall_ms())
    }

    /// Why nothing can be recorded, when that is so.
    pub fn degraded(&self) -> Option<String> {
        self.degraded.read().ok().and_then(|d| d.clone())
    }

    pub(crate) async fn stop(&self) {
        let _ = self.ask(Input::Stop).await;
    }
}
