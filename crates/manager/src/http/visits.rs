//! `POST /v1/visit/{job}`: into a running job, for its owner and for administrators. Both bodies are streams that live as long as the
//! visit: the first frame of the request says what is wanted (`model::visit::Want` as JSON), everything else is passed on unread.

use std::sync::Arc;
use std::time::Duration;

use api::agent::{Down, ToAgent};
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use model::visit::{self, Part, Visit, WINDOW, Want};
use model::{JobName, MachineName};
use scheduler::{Actor, Refusal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use trust::Action;

use super::Shared;
use super::budgets::Budget;
use super::who::{Caller, Problem};
use crate::visits::{FromJob, Visiting, down};

/// How long the first frame, and a machine's answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes to the person, or why there are no more.
type Out = mpsc::Sender<Result<Bytes, std::io::Error>>;

pub(super) async fn open(
    shared: Arc<Shared>,
    caller: Caller,
    job: String,
    mut body: Body,
) -> Result<Response, Problem> {
    let hold = shared.budgets.take(&caller.payer, Budget::Streams, 1)?;
    let job = match job.parse() {
        Ok(JobName::Job(job)) => job,
        Ok(JobName::Cluster(cluster)) => model::JobId { cluster, proc: 0 },
        Err(_) => return Err(Problem::bad("a visit is to one job: CLUSTER.PROC")),
    };
    let Some((user, _)) = caller.user() else { return Err(Problem::bad("only users visit jobs")) };
    let by = user.to_owned();
    let actor = Actor { user: user.to_owned(), any_owner: caller.may(Action::ActOnAny).is_ok() };
    let late = || Problem::bad("nobody said what is wanted within 10 s");
    let (want, rest) = tokio::time::timeout(PATIENCE, first_frame(&mut body)).await.map_err(|_| late())??;
    let visited = shared.handle.visit(actor, job, want.clone()).await?.map_err(|refusal| {
        let (status, code) = match refusal {
            Refusal::NotYours { .. } => (StatusCode::FORBIDDEN, "forbidden"),
            Refusal::NotRunning(_) => (StatusCode::CONFLICT, "not_running"),
            _ => (StatusCode::NOT_FOUND, "no_such_job"),
        };
        Problem::new(status, code, refusal.to_string())
    })?;
    let machine: MachineName =
        visited.machine.parse().map_err(|_| Problem::bad("its machine has no name"))?;
    let (out, response) = mpsc::channel(1);
    let (begun, answer) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut stopped = shared.stopped.clone();
        let Some(mut visiting) = shared.handle.visits.begin(&machine, &by) else {
            let message = "too many visits to the jobs of this machine: 16 by one person, 64 in all";
            let _ =
                begun.send(Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)));
            return;
        };
        let number = visiting.number;
        let (claim, job) = (visited.claim.0, visited.attempt);
        let order = Down::Visit(Visit { number, claim, job, want });
        let asked = ask(&shared, &machine, &mut visiting, order).await;
        let to_agent = match asked {
            Ok(to_agent) => to_agent,
            Err(problem) => {
                let _ = shared.handle.tell_machine(machine, Down::VisitPart(over(number))).await;
                return drop(begun.send(Err(problem)));
            }
        };
        let _ = begun.send(Ok(()));
        let is_stopping = tokio::select! {
            () = pass_on(&shared, &mut visiting, &to_agent, &out, body, rest) => false,
            _ = stopped.wait_for(|stop| *stop) => true,
        };
        if is_stopping {
            let _ = out.send(Err(std::io::Error::other("the manager is stopping"))).await;
        }
        let _ = tokio::time::timeout(PATIENCE, to_agent.send(down(over(number)))).await;
        drop(hold);
    });
    answer.await.map_err(|_| Problem::bad("the visit could not begin"))??;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(ReceiverStream::new(response))).into_response())
}

fn over(number: u64) -> Part {
    Part { number, over: true, ..Part::default() }
}

/// What is wanted, and the bytes that came behind it.
async fn first_frame(body: &mut Body) -> Result<(Want, Vec<u8>), Problem> {
    let mut bytes = Vec::new();
    loop {
        let taken = visit::take(&mut bytes).map_err(|e| Problem::bad(e.to_string()))?;
        if let Some((_, json)) = taken {
            let want: Want = super::route::parse_json(&json)?;
            return match want.fault() {
                Some(fault) => Err(Problem::bad(fault)),
                None => Ok((want, bytes)),
            };
        }
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(_)) | None => return Err(Problem::bad("nobody said what is wanted")),
        }
    }
}

/// Has the machine begin; the way to it.
async fn ask(
    shared: &Shared,
    machine: &MachineName,
    visiting: &mut Visiting<'_>,
    order: Down,
) -> Result<mpsc::Sender<ToAgent>, Problem> {
    let gone = || {
        let message = format!("machine {machine} is not connected at the moment");
        Problem::new(StatusCode::CONFLICT, "not_connected", message)
    };
    if !shared.handle.tell_machine(machine.clone(), order).await? {
        return Err(gone());
    }
    let mut to_agent = None;
    let begun = async {
        loop {
            match visiting.parts.recv().await {
                Some(FromJob::Begun(way)) => to_agent = Some(way),
                Some(FromJob::Over(why)) => {
                    return Err(Problem::new(StatusCode::CONFLICT, "not_visited", why));
                }
                Some(FromJob::Room(_)) => return Ok(()),
                // It begins by saying that there is room.
                Some(FromJob::Data(_)) | None => return Err(gone()),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, begun).await {
        Ok(Ok(())) => to_agent.ok_or_else(gone),
        Ok(Err(problem)) => Err(problem),
        Err(_) => {
            let message = format!("machine {machine} did not answer within 10 s");
            Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "silent", message))
        }
    }
}

/// Passes bytes both ways until either side has enough.
async fn pass_on(
    shared: &Shared,
    visiting: &mut Visiting<'_>,
    to_agent: &mpsc::Sender<ToAgent>,
    out: &Out,
    body: Body,
    rest: Vec<u8>,
) {
    let number = visiting.number;
    let (grant, room) = mpsc::unbounded_channel();
    let to_person = async {
        loop {
            match visiting.parts.recv().await {
                Some(FromJob::Data(data)) => {
                    let bytes = data.len() as u64;
                    if out.send(Ok(data.into())).await.is_err() {
                        return;
                    }
                    shared.handle.visits.give_room(number, bytes);
                    let part = Part { number, room: bytes, ..Part::default() };
                    if to_agent.send(down(part)).await.is_err() {
                        break;
                    }
                }
                Some(FromJob::Room(bytes)) => drop(grant.send(bytes)),
                Some(FromJob::Begun(_)) => {}
                Some(FromJob::Over(_)) => return,
                None => break,
            }
        }
        let _ = out.send(Err(std::io::Error::other("the machine is gone"))).await;
    };
    tokio::select! {
        () = to_person => {}
        () = to_job(number, to_agent, body, rest, room) => {}
        () = out.closed() => {}
    }
}

/// Passes on what a person sends, as far as the machine has room. Ends when the person is gone.
async fn to_job(
    number: u64,
    to_agent: &mpsc::Sender<ToAgent>,
    mut body: Body,
    mut waiting: Vec<u8>,
    mut granted: mpsc::UnboundedReceiver<u64>,
) {
    let mut room = WINDOW;
    loop {
        while !waiting.is_empty() {
            while let Ok(more) = granted.try_recv() {
                room += more;
            }
            if room == 0 {
                let Some(more) = granted.recv().await else { return };
                room += more;
            }
            let most = waiting.len().min(visit::PART_BYTES).min(usize::try_from(room).unwrap_or(usize::MAX));
            let rest = waiting.split_off(most);
            let data = std::mem::replace(&mut waiting, rest);
            room -= data.len() as u64;
            if to_agent.send(down(Part { number, data, ..Part::default() })).await.is_err() {
                return;
            }
        }
        match body.frame().await {
            Some(Ok(frame)) => waiting.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(_)) | None => return,
        }
    }
}
