//! The pool as a DAG job sees it: submits and removals that are repeated until they are answered, and the stream of events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::rest::{Act, ActRequest, EventLine};
use client::{Client, Endpoint, Error};
use dag::Input;
use dag::run::{Exit, JobChange};
use model::event::Kind;
use model::{JobTemplate, Span};
use tokio::sync::mpsc;

/// How long nobody is asked after nobody answered.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks a question until there is an answer.
macro_rules! ask {
    ($pool:expr, $client:ident => $question:expr) => {
        loop {
            let answer = match $pool.client().await {
                Ok($client) => $question.await,
                Err(error) => Err(error),
            };
            if let Some(answer) = $pool.settle(answer).await {
                break answer;
            }
        }
    };
}

/// A connection that is made again when it broke.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    endpoint: Endpoint,
    client: Arc<Mutex<Option<Client>>>,
}

impl Pool {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, client: Arc::default() }
    }

    pub(super) async fn client(&self) -> Result<Client, Error> {
        let known = self.client.lock().ok().and_then(|client| client.clone());
        if let Some(client) = known {
            return Ok(client);
        }
        let client = Client::connect(&self.endpoint, None).await?;
        self.keep(Some(client.clone()));
        Ok(client)
    }

    fn keep(&self, client: Option<Client>) {
        if let Ok(mut place) = self.client.lock() {
            *place = client;
        }
    }

    /// An answer, if it is one that counts; otherwise it is asked again after a pause.
    async fn settle<T>(&self, answer: Result<T, Error>) -> Option<Result<T, Error>> {
        match answer {
            Err(Error::Unreachable { .. } | Error::Broken(_) | Error::Unanswered(_)) => self.keep(None),
            // It is busy, or its disk is full.
            Err(Error::Refused { status, .. }) if status >= 500 || status == 429 => {}
            answer => return Some(answer),
        }
        tokio::time::sleep(PAUSE).await;
        None
    }

    /// Submits under a key: whoever asks twice gets one cluster. `None` when it was submitted before.
    pub(super) async fn submit(&self, template: &JobTemplate, key: &str) -> Result<Option<u32>, String> {
        match ask!(self, client => client.submit(template, key)) {
            Ok(reply) => Ok(Some(reply.cluster)),
            // Of another second, so not the same text; what became of it is in the stream.
            Err(Error::Refused { status: 409, .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Removes clusters; those that are gone do not matter.
    pub(super) async fn remove(&self, clusters: &[u32], reason: &str) {
        let request = ActRequest {
            act: Act::Remove,
            jobs: clusters.iter().map(ToString::to_string).collect(),
            reason: reason.to_owned(),
            seconds: 0,
            priority: None,
            class: None,
        };
        let _ = ask!(self, client => client.act(&request));
    }

    /// True when a cluster is in the queue.
    pub(super) async fn is_active(&self, cluster: u32) -> bool {
        ask!(self, client => client.cluster(cluster, 0)).is_ok_and(|reply| reply.active)
    }

    /// Position of the newest event.
    pub(super) async fn head(&self) -> Result<u64, String> {
        let about = ask!(self, client => client.about());
        about.map(|about| about.position).map_err(|e| e.to_string())
    }

    /// Everything from where a cluster was submitted to the present; also the position behind it.
    pub(super) async fn past(&self, cluster: u32) -> Result<(Vec<EventLine>, u64), String> {
        ask!(self, client => Self::read_past(&client, cluster)).map_err(|e| e.to_string())
    }

    async fn read_past(client: &Client, cluster: u32) -> Result<(Vec<EventLine>, u64), Error> {
        let mut own = client.events(Some(0), Some(cluster), false).await?;
        let from = own.next().await?.map_or(0, |line| line.position);
        let mut events = client.events(Some(from), None, false).await?;
        let mut lines = Vec::new();
        while let Some(line) = events.next().await? {
            lines.push(line);
        }
        let next = lines.last().map_or(from, |line: &EventLine| line.position + 1);
        Ok((lines, next))
    }

    /// Follows the stream for ever, across restarts of the manager.
    pub(super) async fn follow(self, mut from: u64, to: mpsc::Sender<EventLine>) {
        loop {
            let followed = async {
                let client = self.client().await?;
                let mut events = client.events(Some(from), None, true).await?;
                while let Some(line) = events.next().await? {
                    from = line.position + 1;
                    if to.send(line).await.is_err() {
                        return Ok(false);
                    }
                }
                Ok::<_, Error>(true)
            };
            match followed.await {
                Ok(false) => return,
                // The journal was put back, or does not go back so far: what is there is looked at from its beginning.
                Err(Error::Refused { status: 404 | 410, .. }) => from = 0,
                Ok(true) | Err(_) => self.keep(None),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What an event says about jobs: cluster, jobs, and what became of them.
pub(super) fn changes(kind: &Kind) -> Vec<Input> {
    let one = |cluster: u32, proc: u32, change: JobChange| vec![Input::Job { cluster, proc, change }];
    let all = |cluster: u32, procs: &[Span], change: JobChange| {
        let procs = procs.iter().flat_map(|span| span.procs());
        procs.map(|proc| Input::Job { cluster, proc, change }).collect()
    };
    /// HoldReasonCode of a job that was submitted on hold.
    const SUBMITTED_ON_HOLD: u32 = 15;
    match kind {
        Kind::JobStarted(e) => one(e.cluster, e.proc, JobChange::Started),
        Kind::JobsRequeued(e) => all(e.cluster, &e.procs, JobChange::Requeued),
        Kind::JobsHeld(e) => all(e.cluster, &e.procs, JobChange::Held { quiet: e.code == SUBMITTED_ON_HOLD }),
        Kind::JobsReleased(e) => all(e.cluster, &e.procs, JobChange::Released),
        Kind::JobsRemoved(e) => all(e.cluster, &e.procs, JobChange::Removed),
        Kind::JobExited(e) => {
            let exit = match (e.exit.signal, e.exit.code) {
                (Some(signal), _) => Exit::Signal(signal as i32),
                (None, code) => Exit::Code(code.unwrap_or(0) as i32),
            };
            one(e.cluster, e.proc, JobChange::Ended(exit))
        }
        _ => Vec::new(),
    }
}

/// Node jobs of a run that are in the queue, by cluster: how many of each are left.
#[derive(Debug, Default)]
pub(super) struct Live(BTreeMap<u32, u32>);

impl Live {
    pub(super) fn add(&mut self, cluster: u32, procs: u32) {
        self.0.entry(cluster).or_insert(procs);
    }

    pub(super) fn note(&mut self, input: &Input) {
        if let Input::Job { cluster, change: JobChange::Ended(_) | JobChange::Removed, .. } = input
            && let Some(left) = self.0.get_mut(cluster)
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.0.remove(cluster);
            }
        }
    }

    pub(super) fn clusters(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }
}
