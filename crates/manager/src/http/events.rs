//! `GET /v1/events`: the journal as server-sent events, from any position, to the end or for ever.
//!
//! A batch is rendered once for all who may see the same of it. Nobody has more in memory than the batch that is being sent and
//! `STREAM_BACKLOG_BYTES` of text: who reads slowly is read from disk for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::rest::EventLine;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use model::event::{ClusterSubmitted, JobCheckpointed, Kind, cluster_of};
use model::{Event, JobTemplate, limits};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use trust::Action;

use super::Shared;
use super::budgets::{Budget, Payer};
use super::route::{Call, Media, Reply};
use super::who::{Caller, Problem};
use crate::feed::{Batch, Follower, SMALL_CHUNK};

/// A comment so often keeps proxies and clients from giving up on a quiet stream.
const QUIET: Duration = Duration::from_secs(15);
/// Who takes nothing for so long may not come back soon: nothing is kept open for them.
const SLOW: Duration = Duration::from_secs(1);
/// A batch of so many events is rendered on a thread that nobody else waits for.
const MANY: usize = 4 * SMALL_CHUNK;
/// Rows of a table beyond which it is not shown: the table of a large cluster is not news.
const ROWS: usize = 1_000;

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// First position; 1 is the first there ever was, 0 the oldest that is kept. The default is the present.
    from: Option<u64>,
    /// Only events about this cluster.
    cluster: Option<u32>,
    /// Go on after the present.
    #[serde(default = "yes")]
    follow: bool,
}

fn yes() -> bool {
    true
}

/// Events as they come.
pub(super) struct EventStream(Body);

impl Reply for EventStream {
    const MEDIA: &'static [Media] = &[("text/event-stream", None)];
    async fn respond(self, _: &Shared, _: &Payer) -> Result<Response, Problem> {
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        Ok((headers, self.0).into_response())
    }
}

pub(super) async fn stream(call: Call<(), EventsQuery>) -> Result<EventStream, Problem> {
    let hold = call.shared.budgets.take(&call.caller.payer, Budget::Streams, 1)?;
    let kept = kept(&call.shared).await?;
    let from = match call.query.from {
        Some(0) => kept.oldest,
        Some(from) if from < kept.oldest => {
            let gone = journal::Error::Forgotten { asked: from, oldest: kept.oldest };
            return Err(Problem::new(StatusCode::GONE, "forgotten", gone.to_string()));
        }
        Some(from) if from > kept.head + 1 => {
            let message = format!("there is no position {from} yet; the newest is {}", kept.head);
            return Err(Problem::new(StatusCode::NOT_FOUND, "no_such_position", message));
        }
        Some(from) => from,
        None => kept.head + 1,
    };
    let mut stopped = call.shared.stopped.clone();
    let (out, body) = mpsc::channel(1);
    let mut sender = Sender {
        events: call.shared.handle.feed.follow(from, call.query.follow, SMALL_CHUNK),
        next: from,
        cluster: call.query.cluster,
        caller: call.caller,
        out,
    };
    tokio::spawn(async move {
        tokio::select! {
            () = sender.send_all() => {}
            _ = stopped.wait_for(|stop| *stop) => sender.say_goodbye(),
        }
        drop(hold);
    });
    Ok(EventStream(Body::from_stream(ReceiverStream::new(body))))
}

/// What sends one stream.
struct Sender {
    events: Follower,
    next: u64,
    cluster: Option<u32>,
    caller: Caller,
    out: mpsc::Sender<Result<Bytes, Infallible>>,
}

/// Nobody reads any more.
struct Gone;

impl Sender {
    async fn send_all(&mut self) {
        loop {
            let arrived = tokio::select! {
                arrived = tokio::time::timeout(QUIET, self.events.next()) => arrived,
                () = self.out.closed() => return,
            };
            let sent = match arrived {
                Err(_) => self.send(Bytes::from_static(b": quiet\n\n")).await,
                Ok(Ok(None)) => return,
                Ok(Ok(Some(batch))) => self.send_batch(&batch).await,
                Ok(Err(error)) => {
                    let why = model::text::one_line(&error.to_string(), 500);
                    let _ = self.send(format!("event: error\ndata: {why}\n\n").into()).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Tells whoever reads along that the stream did not break: there will be more when a manager runs again.
    fn say_goodbye(&self) {
        let next = self.next;
        let text = format!("event: end\ndata: the manager is stopping; go on with from={next}\n\n");
        // Who does not read what was sent before sees the end of the connection only.
        let _ = self.out.try_send(Ok(text.into()));
    }

    async fn send(&mut self, text: Bytes) -> Result<(), Gone> {
        let soon = tokio::time::timeout(SLOW, self.out.reserve()).await;
        let place = if let Ok(place) = soon {
            place
        } else {
            self.events.rest();
            self.out.reserve().await
        };
        place.map_err(|_| Gone)?.send(Ok(text));
        Ok(())
    }

    async fn send_batch(&mut self, batch: &Arc<Batch>) -> Result<(), Gone> {
        let mut text = Vec::new();
        if batch.events.len() >= MANY && batch.lines.get().is_none() && self.cluster.is_none() {
            let batch = batch.clone();
            // A failure shows when the lines are wanted.
            let _ = tokio::task::spawn_blocking(move || lines(&batch).len()).await;
        }
        for (position, event) in batch.from(self.next) {
            let about = event.kind.as_ref().and_then(cluster_of);
            if self.cluster.is_some() && about != self.cluster {
                continue;
            }
            match &event.kind {
                Some(Kind::ClusterSubmitted(submitted)) if self.may_see_all(submitted) => {
                    text.extend_from_slice(&render(position, event, true));
                }
                // For the few events of one cluster not all of a batch is rendered.
                _ if self.cluster.is_some() && batch.lines.get().is_none() => {
                    text.extend_from_slice(&render(position, event, false));
                }
                _ => text.extend_from_slice(&lines(batch)[(position - batch.first) as usize]),
            }
            if text.len() >= limits::STREAM_BACKLOG_BYTES {
                self.send(std::mem::take(&mut text).into()).await?;
            }
        }
        self.next = batch.end();
        if text.is_empty() { Ok(()) } else { self.send(text.into()).await }
    }

    /// What people keep in their environment is for them and for administrators.
    fn may_see_all(&self, submitted: &ClusterSubmitted) -> bool {
        self.caller.principal.name() == submitted.owner || self.caller.may(Action::ActOnAny).is_ok()
    }
}

/// The lines of a batch as everybody may see them.
fn lines(batch: &Batch) -> &[Bytes] {
    batch
        .lines
        .get_or_init(|| batch.from(0).map(|(position, event)| render(position, event, false)).collect())
}

/// The positions that the journal has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) oldest: u64,
    pub(super) head: u64,
}

/// Which positions the journal has now.
pub(super) async fn kept(shared: &Shared) -> Result<Kept, Problem> {
    let (dir, head) = (shared.journal_dir.clone(), shared.handle.feed.head());
    let look = move || {
        let oldest = journal::Reader::open(&dir)?.oldest()?;
        Ok::<_, journal::Error>(Kept { oldest, head })
    };
    let looked = tokio::task::spawn_blocking(look).await.map_err(|e| e.to_string());
    looked
        .and_then(|kept| kept.map_err(|e| e.to_string()))
        .map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "journal", why))
}

fn render(position: u64, event: &Event, with_secrets: bool) -> Bytes {
    let event = match &event.kind {
        Some(Kind::ClusterSubmitted(submitted)) => Event {
            // The template is copied only as far as it is shown.
            kind: Some(Kind::ClusterSubmitted(ClusterSubmitted {
                cluster: submitted.cluster,
                owner: submitted.owner.clone(),
                template: shown_template(&submitted.template, with_secrets),
                // Who knows a key could find out what it was used for, or use it up.
                idempotency_key: if with_secrets { submitted.idempotency_key.clone() } else { String::new() },
            })),
            time_ms: event.time_ms,
        },
        // The store's name for it is of no use but to somebody who wants another's checkpoint.
        Some(Kind::JobCheckpointed(saved)) if !with_secrets => Event {
            kind: Some(Kind::JobCheckpointed(JobCheckpointed { object: String::new(), ..saved.clone() })),
            time_ms: event.time_ms,
        },
        _ => event.clone(),
    };
    let line = EventLine { position, event };
    let json = serde_json::to_string(&line).unwrap_or_else(|_| "{}".into());
    format!("id: {position}\ndata: {json}\n\n").into()
}

fn shown_template(template: &JobTemplate, with_secrets: bool) -> JobTemplate {
    let shown = |name: &str| with_secrets || !model::template::is_secret(name);
    let rows: usize = template.columns.iter().map(model::template::Column::len).sum();
    let few = rows <= ROWS;
    JobTemplate {
        procs: template.procs,
        per_row: template.per_row,
        shared: template.shared.iter().filter(|a| shown(&a.name)).cloned().collect(),
        varying: template.varying.iter().filter(|v| few && shown(&v.name)).cloned().collect(),
        columns: if few && with_secrets { template.columns.clone() } else { Vec::new() },
    }
}
