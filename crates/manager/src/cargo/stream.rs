//! Outputs that land as they come (`stream_output`, `stream_error`) of jobs whose files are moved: each is looked at on its machine as
//! any visitor would (`visits`), and a porter writes what comes to where it belongs. When the job ends its whole output lands as
//! always: what was written until then is only earlier.

use std::sync::Arc;

use api::agent::{Down, ToAgent};
use model::MachineName;
use model::report::Attempt;
use model::visit::{self, Kind, Part, Visit, Want};
use starter::porter::{Stream, Task};
use tokio::sync::mpsc;
use transfer::landing;

use super::porter::Porter;
use super::{Cargo, Shipment};
use crate::agents::AgentSession;
use crate::handle::Handle;
use crate::visits::{FromJob, Visiting, down};

/// Pieces of an output that wait for the file system.
const WAITING: usize = 2;

/// For a porter that writes an output.
enum Word {
    Data(Vec<u8>),
    /// The job has begun its output anew.
    Anew,
}

/// An output of a job's, and where it lands.
struct Output {
    machine: MachineName,
    claim: u64,
    job: Attempt,
    is_error: bool,
    stream: Stream,
    owner: Arc<str>,
}

/// The outputs of a job that are to land as they come, with their places.
fn outputs(shipment: &Shipment, machine: &MachineName, claim: u64, job: Attempt) -> Vec<Output> {
    let names = shipment.plan.stream_names();
    let is_one = names[0] == names[1];
    let protected: Vec<Vec<u8>> =
        shipment.plan.protected.iter().map(|path| path.clone().into_bytes()).collect();
    let each = names.iter().zip(shipment.streams).enumerate();
    each.filter(|(n, (name, is_streamed))| *is_streamed && !name.is_empty() && !(*n == 1 && is_one))
        .filter_map(|(n, (name, _))| {
            let target = landing::place(&shipment.plan, name.as_bytes()).ok()?;
            let (path, made_mode) = (target.path, target.made_mode);
            let stream = Stream { path, made_mode, protected: protected.clone() };
            let (machine, owner) = (machine.clone(), shipment.owner.clone());
            Some(Output { machine, claim, job, is_error: n == 1, stream, owner })
        })
        .collect()
}

impl AgentSession {
    /// A job has started: its outputs are followed, when it wants that and its files were brought to the machine.
    pub(crate) fn begin_streams(&self, claim: u64, job: Attempt) {
        let (cargo, handle, machine) = (self.handle.cargo.clone(), self.handle.clone(), self.machine.clone());
        if !cargo.was_given(&(machine.clone(), claim, job)) {
            return;
        }
        tokio::spawn(async move {
            let Some(shipment) = handle.shipment(&machine, claim, job).await else { return };
            for output in outputs(&shipment, &machine, claim, job) {
                let Ok(place) = cargo.streams.clone().try_acquire_owned() else {
                    tracing::warn!(
                        cluster = job.cluster,
                        proc = job.proc,
                        "too many streamed outputs; this one comes at the end"
                    );
                    return;
                };
                let (cargo, handle) = (cargo.clone(), handle.clone());
                tokio::spawn(async move {
                    follow(&cargo, &handle, output).await;
                    drop(place);
                });
            }
        });
    }
}

async fn follow(cargo: &Arc<Cargo>, handle: &Handle, output: Output) {
    let Some(mut visiting) = handle.visits.begin(&output.machine, &format!("streams of {}", output.owner))
    else {
        return;
    };
    let number = visiting.number;
    let Output { machine, claim, job, is_error, stream, owner } = output;
    let want = Want { error: is_error, follow: true, ..Want::default() };
    let order = Down::Visit(Visit { number, claim, job, want });
    if !matches!(handle.tell_machine(machine.clone(), order).await, Ok(true)) {
        return;
    }
    let (words, mut heard) = mpsc::channel(WAITING);
    let at_it = cargo.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut porter = Porter::start(&owner, at_it.private, &at_it.stuck)?;
        porter.tell(Task::Stream(stream.clone()))?;
        while let Some(word) = heard.blocking_recv() {
            porter.tell(match word {
                Word::Data(data) => Task::Data(data),
                Word::Anew => Task::Stream(stream.clone()),
            })?;
        }
        Ok::<_, super::porter::Failed>(())
    });
    pass_on(handle, &mut visiting, &words).await;
    drop(words);
    let over = Part { number, over: true, ..Part::default() };
    let _ = handle.tell_machine(machine, Down::VisitPart(over)).await;
    if let Ok(Err(why)) = writing.await {
        tracing::warn!(
            cluster = job.cluster,
            proc = job.proc,
            ?why,
            "an output cannot land as it comes; it comes at the end"
        );
    }
}

/// Passes an output on until it is over or nobody writes it any more.
async fn pass_on(handle: &Handle, visiting: &mut Visiting<'_>, words: &mpsc::Sender<Word>) {
    let number = visiting.number;
    let mut to_agent: Option<mpsc::Sender<ToAgent>> = None;
    let mut frames = Vec::new();
    while let Some(word) = visiting.parts.recv().await {
        let data = match word {
            FromJob::Begun(way) => {
                to_agent = Some(way);
                continue;
            }
            FromJob::Room(_) => continue,
            FromJob::Over(_) => return,
            FromJob::Data(data) => data,
        };
        frames.extend_from_slice(&data);
        loop {
            let word = match visit::take(&mut frames) {
                Ok(None) => break,
                Ok(Some((Kind::Output, bytes))) => Word::Data(bytes),
                Ok(Some((Kind::Note, _))) => Word::Anew,
                Ok(Some(_)) | Err(_) => return,
            };
            if words.send(word).await.is_err() {
                return;
            }
        }
        let room = data.len() as u64;
        handle.visits.give_room(number, room);
        let Some(to_agent) = &to_agent else { return };
        if to_agent.send(down(Part { number, room, ..Part::default() })).await.is_err() {
            return;
        }
    }
}
