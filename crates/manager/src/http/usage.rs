//! `GET /v1/usage`: where the time of the machines went; sums as JSON, or with rows as JSON lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::rest::ErrorReply;
use api::usage::{Line, Query as Asked, Reply};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use schemars::SchemaGenerator;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use usage::Filter;

use super::Shared;
use super::budgets::{Payer, Turn};
use super::route::{Call, Media, Reply as Answer};
use super::who::Problem;
use crate::bookmarks::Bookmarks;
use crate::usage::{NoAnswer, Question};

/// Text is sent in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;
/// Who takes nothing for so long gets nothing more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sums, or rows as they come.
pub(super) struct UsageAnswer(Response);

impl Answer for UsageAnswer {
    const MEDIA: &'static [Media] = &[
        ("application/json", Some(SchemaGenerator::subschema_for::<Reply>)),
        ("application/x-ndjson", None),
    ];
    async fn respond(self, _: &Shared, _: &Payer) -> Result<Response, Problem> {
        Ok(self.0)
    }
}

/// Users, machines and jobs in it are those that everybody with READ sees in the queue and in the status.
pub(super) async fn answer(call: Call<(), Asked>) -> Result<UsageAnswer, Problem> {
    let machines = call.look(scheduler::Core::machine_sizes).await?;
    // One caller's questions leave room for others', also while their answers are read slowly.
    let turn = call.turn().await;
    let (asked, shared) = (call.query, call.shared);
    // Nothing is known of the future.
    let now_ms = crate::writer::wall_ms();
    let question = Question {
        since_ms: asked.since_ms,
        until_ms: asked.until_ms.map_or(now_ms, |until| until.min(now_ms)),
        filter: Filter {
            lab: asked.lab,
            machine: asked.machine.map(|name| model::machine::fold(&name)),
            user: asked.user,
        },
        rows: asked.rows,
        machines: whole_machines(&machines),
    };
    let bookmarks = shared.handle.bookmarks.clone();
    let Ok(permit) = bookmarks.questions.clone().acquire_owned().await else {
        return Err(crate::Unavailable::Stopping.into());
    };
    let stopped = shared.stopped.clone();
    if asked.rows {
        let (out, body) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || send_rows(&bookmarks, &question, &stopped, &out, (permit, turn)));
        let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        return Ok(UsageAnswer((headers, Body::from_stream(ReceiverStream::new(body))).into_response()));
    }
    add_up(bookmarks, question, stopped, (permit, turn)).await.map(UsageAnswer)
}

/// A divided machine has an entry for each of its slots.
fn whole_machines(places: &[(Arc<str>, Arc<str>, u32)]) -> Vec<(String, String, u32)> {
    let mut machines: std::collections::BTreeMap<String, (String, u32)> = std::collections::BTreeMap::new();
    for (name, lab, cores) in places {
        let machine = machines.entry(name.to_string()).or_default();
        machine.0 = lab.to_string();
        machine.1 += cores;
    }
    machines.into_iter().map(|(name, (lab, cores))| (name, lab, cores)).collect()
}

async fn add_up(
    bookmarks: Arc<Bookmarks>,
    question: Question,
    stopped: watch::Receiver<bool>,
    permits: (OwnedSemaphorePermit, Turn),
) -> Result<Response, Problem> {
    // Dropped when whoever asked has gone.
    let (waits, asker) = mpsc::channel::<()>(1);
    let computed = tokio::task::spawn_blocking(move || {
        let goes_on = || !*stopped.borrow() && !waits.is_closed();
        let reply = bookmarks.answer(&question, &goes_on, &mut |_| {});
        // Rendered here, too: the sums of a large pool are long.
        let reply = reply.map(|reply| ([(header::CACHE_CONTROL, "no-store")], Json(reply)).into_response());
        drop(permits);
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
    permits: (OwnedSemaphorePermit, Turn),
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
    drop(permits);
}
