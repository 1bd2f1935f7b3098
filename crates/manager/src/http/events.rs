//! `GET /v1/events`: the journal as server-sent events, from any position, to the end or for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::rest::EventLine;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use model::Event;
use model::event::{Kind, cluster_of};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use trust::Action;

use super::Shared;
use super::who::{Caller, Problem};

/// A comment so often keeps proxies and clients from giving up on a quiet stream.
const QUIET: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
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

pub(super) async fn stream(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<EventsQuery>,
) -> Result<impl IntoResponse, Problem> {
    caller.may(Action::Look)?;
    let kept = kept(&shared).await?;
    let from = match query.from {
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
    let mut next = from;
    let mut events = shared.handle.feed.subscribe(from, query.follow);
    let mut stopped = shared.stopped.clone();
    let (out, body) = mpsc::channel::<Result<Bytes, Infallible>>(64);
    tokio::spawn(async move {
        loop {
            let arrived = tokio::select! {
                arrived = tokio::time::timeout(QUIET, events.recv()) => arrived,
                _ = stopped.wait_for(|stop| *stop) => return,
            };
            let text = match arrived {
                Err(_) => ": quiet\n\n".to_owned(),
                Ok(None) => return,
                Ok(Some(Err(error))) => {
                    format!("event: error\ndata: {}\n\n", model::text::one_line(&error.to_string(), 500))
                }
                Ok(Some(Ok(batch))) => {
                    let mut text = String::new();
                    for (position, event) in batch.from(next) {
                        let about = event.kind.as_ref().and_then(cluster_of);
                        if query.cluster.is_none() || about == query.cluster {
                            text.push_str(&render(position, event.clone(), &caller));
                        }
                    }
                    next = batch.end();
                    if text.is_empty() {
                        continue;
                    }
                    text
                }
            };
            if out.send(Ok(Bytes::from(text))).await.is_err() {
                return;
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(ReceiverStream::new(body))))
}

/// The positions that the journal has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) oldest: u64,
    pub(super) head: u64,
}

/// Which positions the journal has now.
pub(super) async fn kept(shared: &Shared) -> Result<Kept, Problem> {
    let dir = shared.journal_dir.clone();
    let look = move || {
        let mut reader = journal::Reader::open(&dir)?;
        Ok::<_, journal::Error>(Kept { oldest: reader.oldest()?, head: reader.head()? })
    };
    let looked = tokio::task::spawn_blocking(look).await.map_err(|e| e.to_string());
    looked
        .and_then(|kept| kept.map_err(|e| e.to_string()))
        .map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "journal", why))
}

fn render(position: u64, mut event: Event, caller: &Caller) -> String {
    if let Some(Kind::ClusterSubmitted(submitted)) = &mut event.kind {
        // What people keep in their environment is for them and for administrators.
        if caller.may(Action::ActOnAny).is_err() && caller.0.name() != submitted.owner {
            let secret =
                |name: &str| name.eq_ignore_ascii_case("Environment") || name.eq_ignore_ascii_case("Env");
            submitted.template.shared.retain(|a| !secret(&a.name));
            submitted.template.varying.retain(|v| !secret(&v.name));
            submitted.template.columns.clear();
        }
        // The table of a large cluster is not news.
        let rows: usize = submitted.template.columns.iter().map(model::template::Column::len).sum();
        if rows > 1_000 {
            submitted.template.columns.clear();
            submitted.template.varying.clear();
        }
    }
    let line = EventLine { position, event };
    let json = serde_json::to_string(&line).unwrap_or_else(|_| "{}".into());
    format!("id: {position}\ndata: {json}\n\n")
}
