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
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
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
    let now_ms = crate::writer::wall_ms();
    let ago = |ms: Option<u64>| ms.map(|ms| now_ms.saturating_sub(ms));
    let since_ms = call.query.since_ms.or(ago(call.query.since_ago_ms));
    // Nothing is known of the future.
    let until_ms = call.query.until_ms.or(ago(call.query.until_ago_ms)).map_or(now_ms, |at| at.min(now_ms));
    if since_ms.is_some_and(|since_ms| since_ms > until_ms) {
        return Err(Problem::bad("the time asked for begins behind its end: there is nothing between"));
    }
    let machines = call.look(scheduler::Core::machine_sizes).await?;
    // One caller's questions leave room for others', also while their answers are read slowly.
    let turn = call.long_turn().await;
    let (asked, shared) = (call.query, call.shared);
    let question = Question {
        since_ms,
        until_ms,
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
    /// Held while the answer is worked out, and not while it waits to be read.
    place: Option<OwnedSemaphorePermit>,
    places: Arc<Semaphore>,
}

impl Sending<'_> {
    fn line(&mut self, line: &Line) {
        self.add(line);
        if self.text.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    fn add(&mut self, line: &Line) {
        self.text.extend(serde_json::to_string(line));
        self.text.push('\n');
    }

    fn flush(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.text));
        if self.gone || piece.is_empty() {
            return;
        }
        match self.out.try_send(Ok(piece)) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => self.gone = true,
            Err(TrySendError::Full(piece)) => {
                self.place = None;
                self.wait_to_send(piece);
                if !self.gone {
                    let place = self.places.clone().acquire_owned();
                    self.place = tokio::runtime::Handle::current().block_on(place).ok();
                }
            }
        }
    }

    fn wait_to_send(&mut self, piece: Result<Bytes, Infallible>) {
        let sent = tokio::time::timeout(PATIENCE, self.out.send(piece));
        self.gone = !matches!(tokio::runtime::Handle::current().block_on(sent), Ok(Ok(())));
    }

    /// Sends the last line, and what is left.
    fn finish(mut self, last: &Line) {
        self.place = None;
        self.add(last);
        if !self.gone {
            let piece = Bytes::from(std::mem::take(&mut self.text));
            self.wait_to_send(Ok(piece));
        }
    }
}

fn send_rows(
    bookmarks: &Bookmarks,
    question: &Question,
    stopped: &watch::Receiver<bool>,
    out: &mpsc::Sender<Result<Bytes, Infallible>>,
    (place, turn): (OwnedSemaphorePermit, Turn),
) {
    let places = bookmarks.questions.clone();
    let sending = std::cell::RefCell::new(Sending {
        out,
        text: String::new(),
        gone: false,
        place: Some(place),
        places,
    });
    let goes_on = || !*stopped.borrow() && !sending.borrow().gone && !out.is_closed();
    let found = bookmarks.answer(question, &goes_on, &mut |row| sending.borrow_mut().line(&Line::Row(row)));
    let last = match found.map_err(problem) {
        Ok(reply) => Line::Usage(Box::new(reply)),
        Err(Problem { code, message, .. }) => Line::Error(ErrorReply { code: code.into(), message }),
    };
    sending.into_inner().finish(&last);
    drop(turn);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_answer_that_nobody_reads_keeps_no_place() {
        let places = Arc::new(Semaphore::new(1));
        let (out, mut body) = mpsc::channel(1);
        let (place, all) = (places.clone().try_acquire_owned().ok(), places.clone());
        let error = |n: u32| Line::Error(ErrorReply { code: n.to_string(), message: String::new() });
        let sent = tokio::task::spawn_blocking(move || {
            let mut sending = Sending { out: &out, text: String::new(), gone: false, place, places: all };
            for n in 0..4 {
                sending.add(&error(n));
                sending.flush();
            }
            assert!(sending.place.is_some() && !sending.gone, "it goes on when it is read");
            sending.finish(&error(4));
        });
        let soon = Duration::from_secs(20);
        let other = tokio::time::timeout(soon, places.acquire()).await.expect("others have their turn");
        // The one who was not read waits for a place like everybody.
        let first = body.recv().await;
        drop(other);
        let mut text = first.unwrap().unwrap().to_vec();
        while let Some(piece) = body.recv().await {
            text.extend_from_slice(&piece.unwrap());
        }
        sent.await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let codes: Vec<_> =
            text.lines().map(|l| l.matches(|c: char| c.is_ascii_digit()).collect::<String>()).collect();
        assert_eq!(codes, ["0", "1", "2", "3", "4"], "all of it arrives, in order: {text}");
        assert_eq!(places.available_permits(), 1);
    }
}
