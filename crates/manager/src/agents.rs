//! One agent's connection from the manager's side: what the writer must hear goes to the writer; parts of objects,
//! answers and traces are dealt with here, so that the writer's queue carries only what changes the books.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::agent::{Answer, Ask, Down, Found, Piece, Question, Report, ToAgent, Took, Up};
use model::MachineName;
use model::report::{Happening, NotSaved};
use prost::Message as _;
use scheduler::Session;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::cargo;
use crate::handle::{Handle, Unavailable};
use crate::sessions::Incoming;

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one machine has said and the writer has not heard yet holds at most so much; the largest word there is fits.
const UNHEARD_KIB: usize = 32 << 10;

/// How long a machine may take to read what it asked for.
const READING: Duration = Duration::from_secs(30);

/// Questions that machines have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    next: AtomicU64,
    /// With the machine that was asked: no other's answer counts.
    open: Mutex<HashMap<u64, (MachineName, oneshot::Sender<Answer>)>>,
}

/// Why a machine gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It is not there.
    #[error("machine {0} is not connected")]
    NotConnected(MachineName),
    /// It took too long.
    #[error("machine {0} did not answer within 10 s")]
    Silent(MachineName),
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// The manager is stopping.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Questions {
    fn ask(&self, machine: &MachineName) -> (u64, oneshot::Receiver<Answer>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, reply) = oneshot::channel();
        if let Ok(mut open) = self.open.lock() {
            open.insert(id, (machine.clone(), answer));
        }
        (id, reply)
    }

    /// Takes the question of this number that was put to this machine.
    fn take(&self, id: u64, machine: &MachineName) -> Option<oneshot::Sender<Answer>> {
        let mut open = self.open.lock().ok()?;
        if open.get(&id)?.0 != *machine {
            return None;
        }
        open.remove(&id).map(|(_, answer)| answer)
    }
}

impl Handle {
    /// Asks a machine something and waits for its answer.
    pub async fn ask_machine(&self, machine: &MachineName, question: Question) -> Result<String, NoAnswer> {
        let (id, reply) = self.questions.ask(machine);
        let sent = self.tell_machine(machine.clone(), Down::Ask(Ask { id, question: Some(question) })).await;
        if !matches!(sent, Ok(true)) {
            self.questions.take(id, machine);
            sent?;
            return Err(NoAnswer::NotConnected(machine.clone()));
        }
        match tokio::time::timeout(PATIENCE, reply).await {
            Ok(Ok(answer)) if answer.done => Ok(answer.text),
            Ok(Ok(answer)) => Err(NoAnswer::Refused(answer.text)),
            Ok(Err(_)) | Err(_) => {
                self.questions.take(id, machine);
                Err(NoAnswer::Silent(machine.clone()))
            }
        }
    }
}

/// Room for what one machine has said and the writer has not heard yet. Words wait in memory, so that one machine must not fill
/// it with large ones.
#[derive(Debug)]
pub(crate) struct Unheard(Arc<Semaphore>);

impl Default for Unheard {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNHEARD_KIB)))
    }
}

impl Unheard {
    /// Waits until there is room for so many bytes, and keeps it until the result is dropped.
    async fn weigh(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = (bytes / 1024 + 1).min(UNHEARD_KIB);
        // It is never closed.
        self.0.clone().acquire_many_owned(kib as u32).await.ok()
    }
}

/// An open session with an agent.
#[derive(Debug)]
pub struct AgentSession {
    pub(crate) session: Session,
    pub(crate) machine: MachineName,
    pub(crate) pieces: mpsc::Sender<ToAgent>,
    pub(crate) wanted: watch::Receiver<()>,
    pub(crate) handle: Handle,
    /// The object that the machine fetches, when it may.
    pub(crate) fetches: Mutex<String>,
    pub(crate) unheard: Unheard,
}

impl AgentSession {
    /// Takes a word from the agent.
    pub async fn hear(&self, message: Incoming) -> Result<(), Unavailable> {
        match message.up {
            Some(Up::Put(piece)) => {
                let claim = piece.claim;
                if let Some(refused) = self.refuse_to_store(&piece).await? {
                    return self.say(Ok(Down::Took(Took { claim, ..refused }))).await;
                }
                let (store, machine) = (self.handle.objects.clone(), self.machine.clone());
                let is_last = piece.offset + piece.data.len() as u64 >= piece.bytes;
                if is_last && store.is_elsewhere() {
                    // All of it goes into the bucket now.
                    self.answer_later(move || {
                        Down::Took(Took { claim, ..store.put(machine.as_str(), &piece) })
                    });
                    return Ok(());
                }
                let took = tokio::task::spawn_blocking(move || store.put(machine.as_str(), &piece)).await;
                self.say(took.map(|took| Down::Took(Took { claim, ..took }))).await?;
            }
            Some(Up::Get(want)) => {
                let store = self.handle.objects.clone();
                if !self.may_fetch(&want.object).await? {
                    tracing::warn!(
                        machine = %self.machine,
                        "asked for an object of a job that it does not have"
                    );
                    return self.say(Ok(Down::Piece(cargo::refusal(want)))).await;
                }
                if store.is_elsewhere() {
                    self.answer_later(move || Down::Piece(store.get(&want)));
                    return Ok(());
                }
                let piece = tokio::task::spawn_blocking(move || store.get(&want)).await;
                self.say(piece.map(Down::Piece)).await?;
            }
            Some(Up::Find(find)) => {
                let may = self.may_fetch(&find.object).await?;
                let found = if may {
                    self.find(find).await
                } else {
                    Found { object: find.object, ..Found::default() }
                };
                self.say(Ok(Down::Found(found))).await?;
            }
            Some(Up::Serve(serve)) => self.note_door(serve),
            Some(Up::Want(want)) => self.want(want),
            Some(Up::Land(land)) => self.land(land),
            // What the manager says of a job's files is not for a machine to say.
            Some(Up::Report(Report { happening: Some(happening), .. }))
                if cargo::is_ours_to_say(&happening) =>
            {
                tracing::warn!(machine = %self.machine, "says what only the manager says; not believed");
            }
            Some(Up::Report(report)) if cargo::inputs_are_there(&report).is_some() => {
                if let Some(job) = cargo::inputs_are_there(&report) {
                    self.handle.cargo.release_inputs(&self.machine, report.claim, job);
                }
                return self.pass_on(Some(Up::Report(report))).await;
            }
            Some(Up::Answer(answer)) => {
                if let Some(waiting) = self.handle.questions.take(answer.id, &self.machine) {
                    let _ = waiting.send(answer);
                }
            }
            Some(Up::Visit(part)) => {
                self.handle.visits.hear(&self.machine, self.session, &self.pieces, part);
            }
            Some(Up::Trace(trace)) => self.handle.traces.take(crate::clock::wall_ms(), &self.machine, trace),
            up => {
                if let Some(Up::Report(Report {
                    claim, happening: Some(Happening::Started(started)), ..
                })) = &up
                {
                    self.begin_streams(*claim, started.job);
                }
                let up = match up {
                    Some(Up::Report(report)) => Some(Up::Report(self.doubt_checkpoint(report).await?)),
                    up => up,
                };
                return self.pass_on(up).await;
            }
        }
        Ok(())
    }

    /// For the writer to hear.
    async fn pass_on(&self, up: Option<Up>) -> Result<(), Unavailable> {
        let message = Incoming { up };
        let weight = self.unheard.weigh(message.encoded_len()).await;
        self.handle.hear_agent(self.session, message, weight).await
    }

    /// Waits until the agent has read what it asked for before; one that asks without reading is not waited for.
    async fn say(&self, down: Result<Down, tokio::task::JoinError>) -> Result<(), Unavailable> {
        let Ok(down) = down else { return Ok(()) };
        let sending = self.pieces.send(ToAgent { down: Some(down), wall_ms: None });
        // An agent that is gone asks again when it is back.
        if tokio::time::timeout(READING, sending).await.is_ok() {
            return Ok(());
        }
        tracing::warn!(machine = %self.machine, "does not read what it asked for; its session is closed");
        Err(Unavailable::Stopping)
    }

    /// Answers when that can be done, which may take as long as the network does: the session is heard meanwhile. Who asks for more than
    /// the manager does at a time asks again.
    fn answer_later(&self, work: impl FnOnce() -> Down + Send + 'static) {
        let Some(turn) = self.handle.cargo.take_slow_turn() else { return };
        let pieces = self.pieces.clone();
        tokio::spawn(async move {
            let done = tokio::task::spawn_blocking(work).await;
            drop(turn);
            if let Ok(down) = done {
                let sending = pieces.send(ToAgent { down: Some(down), wall_ms: None });
                let _ = tokio::time::timeout(READING, sending).await;
            }
        });
    }

    /// What is stored is of a job that the machine has, and within what the job's owner may have.
    async fn refuse_to_store(&self, piece: &Piece) -> Result<Option<Took>, Unavailable> {
        let store = &self.handle.objects;
        let object = piece.object.clone();
        // Whoever was let in by an earlier manager is asked about as one who begins, and goes on with what is there.
        if piece.offset > 0 && store.is_admitted(self.machine.as_str(), piece.claim, &piece.object) {
            return Ok(None);
        }
        let (machine, claim) = (self.machine.clone(), model::ClaimId(piece.claim));
        let charge = self.handle.look(move |core| core.charge_checkpoint(machine.as_str(), claim)).await?;
        let (error, never) = match charge {
            None => ("this machine has no such claim".to_owned(), true),
            Some(charge) => match store.admit(self.machine.as_str(), piece, &charged(charge)) {
                Ok(()) => return Ok(None),
                Err(store::NotAdmitted { why, never }) => (why, never),
            },
        };
        tracing::warn!(machine = %self.machine, error, never, "an object is not stored");
        Ok(Some(Took { object, error, never, ..Took::default() }))
    }

    /// A machine is believed that it saved a job if it brought what it says: it could name another's checkpoint, and would
    /// then be given it. What is not believed is recorded as not saved, so that the report is acknowledged and not repeated.
    async fn doubt_checkpoint(&self, mut report: Report) -> Result<Report, Unavailable> {
        let Some(Happening::Checkpointed(told)) = &report.happening else { return Ok(report) };
        let Some(object) = told.object() else { return Ok(report) };
        let (store, machine, claim) = (self.handle.objects.clone(), self.machine.clone(), report.claim);
        let (wanted, attempt) = (object.clone(), told.job);
        let brought =
            tokio::task::spawn_blocking(move || store.was_brought(machine.as_str(), claim, &wanted)).await;
        let error = match brought {
            Ok(Ok(true)) => return Ok(report),
            Ok(Ok(false)) => "this machine did not bring it".to_owned(),
            Ok(Err(e)) => format!("the store cannot tell who brought it: {e}"),
            Err(e) => format!("the store cannot tell who brought it: {e}"),
        };
        let job = model::JobId { cluster: attempt.cluster, proc: attempt.proc };
        let known = object.clone();
        let is_known =
            move |core: &scheduler::Core| core.checkpoint(job).is_some_and(|c| *c.object == *known);
        if self.handle.look(is_known).await? {
            return Ok(report);
        }
        tracing::warn!(machine = %self.machine, %job, object, error, "a reported checkpoint is not believed");
        let reason = format!("its machine reported a checkpoint that does not count: {error}");
        report.happening = Some(Happening::NotSaved(NotSaved { job: attempt, reason, missed: false }));
        self.say(Ok(Down::Took(Took { object, error, never: true, ..Took::default() }))).await?;
        Ok(report)
    }

    /// A checkpoint is for the machine that its job was given to, and for nobody else.
    async fn may_fetch(&self, object: &str) -> Result<bool, Unavailable> {
        if self.fetches.lock().is_ok_and(|known| *known == object && !object.is_empty()) {
            return Ok(true);
        }
        if self.may_fetch_input(object) {
            return Ok(true);
        }
        let (machine, wanted) = (self.machine.clone(), object.to_owned());
        let may = self.handle.look(move |core| core.may_fetch(machine.as_str(), &wanted)).await?;
        if may && let Ok(mut known) = self.fetches.lock() {
            object.clone_into(&mut known);
        }
        Ok(may)
    }

    /// Returns when the manager wants no more of this session.
    pub async fn ended(&self) {
        let mut wanted = self.wanted.clone();
        while wanted.changed().await.is_ok() {}
    }

    /// Ends the session.
    pub async fn close(self) {
        self.handle.visits.end_session(self.session);
        self.handle.close_session(self.session).await;
    }
}

fn charged(scheduler::Charge { owner, used, objects, quota }: scheduler::Charge) -> store::Charge {
    store::Charge { owner, used, objects, quota }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_waits_while_the_writer_has_too_much_of_it_to_hear() {
        let unheard = Unheard::default();
        let large = [unheard.weigh(16 << 20).await, unheard.weigh(15 << 20).await];
        let mut small = Vec::new();
        for _ in 0..100 {
            small.push(unheard.weigh(10).await);
        }
        let soon = Duration::from_millis(30);
        assert!(tokio::time::timeout(soon, unheard.weigh(16 << 20)).await.is_err(), "there is no room");
        drop((large, small));
        assert!(
            unheard.weigh(usize::MAX).await.is_some(),
            "a word larger than all the room waits for all of it"
        );
    }
}
