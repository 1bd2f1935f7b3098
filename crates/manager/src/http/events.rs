//! `GET /v1/events`: the journal as server-sent events, from any position, to the end or for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use model::Event;
use model::event::{Kind, cluster_of};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use trust::Action;

use super::Shared;
use super::who::{Caller, Problem};

/// A comment so often keeps proxies and clients from giving up on a quiet stream.
const QUIET: Duration = Duration::from_secs(15);
/// Text is sent in pieces of about this size; an event is not divided.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait for somebody who does not read.
const PIECES: usize = 1;

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
    let mut events = shared.handle.feed.subscribe_to_all(from, query.follow);
    let mut stopped = shared.stopped.clone();
    let (out, body) = mpsc::channel::<Result<Bytes, Infallible>>(PIECES);
    tokio::spawn(async move {
        loop {
            let arrived = tokio::select! {
                arrived = tokio::time::timeout(QUIET, events.recv()) => arrived,
                _ = stopped.wait_for(|stop| *stop) => return,
            };
            let mut text = Vec::new();
            match arrived {
                Err(_) => text.extend_from_slice(b": quiet\n\n"),
                Ok(None) => return,
                Ok(Some(Err(error))) => {
                    let words = model::text::one_line(&error.to_string(), 500);
                    text = format!("event: error\ndata: {words}\n\n").into_bytes();
                }
                Ok(Some(Ok(batch))) => {
                    for (position, event) in batch.from(next) {
                        let about = event.kind.as_ref().and_then(cluster_of);
                        if query.cluster.is_none() || about == query.cluster {
                            render(position, event, &caller, &mut text);
                        }
                        if text.len() >= PIECE_BYTES && !send(&out, &mut text).await {
                            return;
                        }
                    }
                    next = batch.end();
                }
            }
            if !send(&out, &mut text).await {
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

/// Sends what there is. False when nobody takes it any more.
async fn send(out: &mpsc::Sender<Result<Bytes, Infallible>>, text: &mut Vec<u8>) -> bool {
    // It may wait for long: no more memory than it needs.
    text.shrink_to_fit();
    text.is_empty() || out.send(Ok(Bytes::from(std::mem::take(text)))).await.is_ok()
}

/// An event and its position, as [`api::rest::EventLine`] without owning it.
#[derive(Serialize)]
struct Line<'a> {
    position: u64,
    #[serde(flatten)]
    event: &'a Event,
}

fn render(position: u64, event: &Event, caller: &Caller, text: &mut Vec<u8>) {
    let shown = shorten(event, caller);
    let line = Line { position, event: shown.as_ref().unwrap_or(event) };
    text.extend_from_slice(format!("id: {position}\ndata: ").as_bytes());
    // An event has no value that JSON cannot say, and memory takes what it is given.
    let _ = serde_json::to_writer(&mut *text, &line);
    text.extend_from_slice(b"\n\n");
}

/// The event without what is not for this caller, or too much for anybody; `None` when all of it may be shown.
fn shorten(event: &Event, caller: &Caller) -> Option<Event> {
    let Some(Kind::ClusterSubmitted(submitted)) = &event.kind else { return None };
    // What people keep in their environment is for them and for administrators.
    let is_secret = caller.may(Action::ActOnAny).is_err() && caller.0.name() != submitted.owner;
    // The table of a large cluster is not news.
    let rows: usize = submitted.template.columns.iter().map(model::template::Column::len).sum();
    let is_long = rows > 1_000;
    if !is_secret && !is_long {
        return None;
    }
    let mut event = event.clone();
    if let Some(Kind::ClusterSubmitted(submitted)) = &mut event.kind {
        submitted.template.columns.clear();
        if is_secret {
            let secret =
                |name: &str| name.eq_ignore_ascii_case("Environment") || name.eq_ignore_ascii_case("Env");
            submitted.template.shared.retain(|a| !secret(&a.name));
            submitted.template.varying.retain(|v| !secret(&v.name));
        }
        if is_long {
            submitted.template.varying.clear();
        }
    }
    Some(event)
}
