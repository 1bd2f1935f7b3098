//! `GET /v1/usage`: where the time of the machines went; sums as JSON, or with rows as JSON lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::rest::ErrorReply;
use api::usage::{Line, Query as Asked, Reply};
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use trust::Action;
use usage::Filter;

use super::Shared;
use super::who::{Caller, Problem};
use crate::bookmarks::Bookmarks;
use crate::usage::{NoAnswer, Question};

/// Text is sent in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;
/// Who takes nothing for so long gets nothing more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Users, machines and jobs in it are those that everybody with READ sees in the queue and in the status.
pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    caller.may(Action::Look)?;
    let machines = shared.handle.look(|core| {
        let of = |m: scheduler::MachineView| (m.name.to_string(), m.lab.to_string(), m.total.cpus);
        core.machines().map(of).collect::<Vec<_>>()
    });
    // Nothing is known of the future.
    let now_ms = crate::writer::wall_ms();
    let question = Question {
        since_ms: asked.since_ms,
        until_ms: asked.until_ms.map_or(now_ms, |until| until.min(now_ms)),
        filter: Filter { lab: asked.lab, machine: asked.machine, user: asked.user },
        rows: asked.rows,
        machines: whole_machines(machines.await?),
    };
    let bookmarks = shared.handle.bookmarks.clone();
    let Ok(permit) = bookmarks.questions.clone().acquire_owned().await else {
        return Err(crate::Unavailable::Stopping.into());
    };
    let stopped = shared.stopped.clone();
    if asked.rows {
        let (out, body) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || send_rows(&bookmarks, &question, &stopped, &out, permit));
        let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        return Ok((headers, Body::from_stream(ReceiverStream::new(body))).into_response());
    }
    let reply = add_up(bookmarks, question, stopped, permit).await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(reply)).into_response())
}

/// A divided machine has an entry for each of its slots.
fn whole_machines(places: Vec<(String, String, u32)>) -> Vec<(String, String, u32)> {
    let mut machines: std::collections::BTreeMap<String, (String, u32)> = std::collections::BTreeMap::new();
    for (name, lab, cores) in places {
        let machine = machines.entry(name).or_default();
        machine.0 = lab;
        machine.1 += cores;
    }
    machines.into_iter().map(|(name, (lab, cores))| (name, lab, cores)).collect()
}

async fn add_up(
    bookmarks: Arc<Bookmarks>,
    question: Question,
    stopped: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) -> Result<Reply, Problem> {
    // Dropped when whoever asked has gone.
    let (waits, asker) = mpsc::channel::<()>(1);
    let computed = tokio::task::spawn_blocking(move || {
        let goes_on = || !*stopped.borrow() && !waits.is_closed();
        let reply = bookmarks.answer(&question, &goes_on, &mut |_| {});
        drop(permit);
        reply
    });
    let reply = computed.await;
    drop(asker);
    match reply {
        Ok(reply) => reply.map_err(problem),
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            "usage cannot be told; see the log",
        )),
    }
}

fn problem(why: NoAnswer) -> Problem {
    match why {
        NoAnswer::Journal(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "journal", error.to_string())
        }
        NoAnswer::Unwanted => crate::Unavailable::Stopping.into(),
    }
}

/// Text on its way to somebody.
struct Sending<'a> {
    out: &'a mpsc::Sender<Result<Bytes, Infallible>>,
    text: String,
    gone: bool,
}

impl Sending<'_> {
    fn line(&mut self, line: &Line) {
        self.text.extend(serde_json::to_string(line));
        self.text.push('\n');
        if self.text.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.text));
        if self.gone || piece.is_empty() {
            return;
        }
        let sent = tokio::time::timeout(PATIENCE, self.out.send(Ok(piece)));
        self.gone = !matches!(tokio::runtime::Handle::current().block_on(sent), Ok(Ok(())));
    }
}

fn send_rows(
    bookmarks: &Bookmarks,
    question: &Question,
    stopped: &watch::Receiver<bool>,
    out: &mpsc::Sender<Result<Bytes, Infallible>>,
    permit: OwnedSemaphorePermit,
) {
    let sending = std::cell::RefCell::new(Sending { out, text: String::new(), gone: false });
    let goes_on = || !*stopped.borrow() && !sending.borrow().gone && !out.is_closed();
    let found = bookmarks.answer(question, &goes_on, &mut |row| sending.borrow_mut().line(&Line::Row(row)));
    let last = match found.map_err(problem) {
        Ok(reply) => Line::Usage(Box::new(reply)),
        Err(Problem { code, message, .. }) => Line::Error(ErrorReply { code: code.into(), message }),
    };
    let mut sending = sending.into_inner();
    sending.line(&last);
    sending.flush();
    drop(permit);
}
