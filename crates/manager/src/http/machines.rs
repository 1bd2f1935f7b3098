//! Talking to one machine through its manager: its policy's trace, why it is as it is, its configuration, and orders.

use std::sync::Arc;

use api::agent::{Control, Question, SetMacro, Verb};
use api::rest::{ConfigRequest, ControlRequest, DrainRequest, MachineReply, MachineVerb, TransitionLine};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::event::PoolDrained;
use model::{limits, text};
use serde::Deserialize;
use trust::Action;

use super::Shared;
use super::routes::{Body, body};
use super::who::{Caller, Problem};
use crate::NoAnswer;

/// Bytes of a set of macros.
const CONFIG_BYTES: usize = 64 << 10;

impl From<NoAnswer> for Problem {
    fn from(why: NoAnswer) -> Self {
        let message = why.to_string();
        match why {
            NoAnswer::NotConnected(_) => Self::new(StatusCode::NOT_FOUND, "no_such_machine", message),
            NoAnswer::Silent(_) => Self::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", message),
            NoAnswer::Refused(_) => Self::new(StatusCode::CONFLICT, "refused", message),
            NoAnswer::Unavailable(why) => why.into(),
        }
    }
}

async fn ask(shared: &Shared, machine: &str, question: Question) -> Result<Json<MachineReply>, Problem> {
    let text = shared.handle.ask_machine(machine, question).await?;
    Ok(Json(MachineReply { text }))
}

#[derive(Debug, Deserialize)]
pub(super) struct After {
    #[serde(default)]
    after: u64,
}

/// What the machine's policy did lately.
pub(super) async fn transitions(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    Query(query): Query<After>,
) -> Result<Json<Vec<TransitionLine>>, Problem> {
    caller.may(Action::Look)?;
    Ok(Json(shared.handle.traces.after(&machine, query.after)))
}

/// Has nothing new start for a while, or again.
pub(super) async fn drain(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<DrainRequest>,
) -> Result<StatusCode, Problem> {
    caller.may(Action::ManageMachines)?;
    let DrainRequest { name, until_s, constraint, reason } = body(request)?;
    if name.is_empty() || name != text::one_line(&name, limits::NAME_BYTES) {
        return Err(Problem::bad("a drain needs a name of at most 256 bytes, in one line"));
    }
    if constraint.len() > CONFIG_BYTES {
        return Err(Problem::bad("the constraint is longer than 64 KiB"));
    }
    let reason = text::one_line(&reason, limits::REASON_BYTES);
    let by = caller.0.name().to_owned();
    let until_ms = until_s.saturating_mul(1000);
    let said = PoolDrained { name, until_ms, constraint, by, reason };
    shared.handle.drain(said).await?.map_err(Problem::bad)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which part of which expression keeps the machine as it is.
pub(super) async fn why(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::Look)?;
    ask(&shared, &machine, Question::Why(true)).await
}

/// The machine's configuration, with sources.
pub(super) async fn config(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::Look)?;
    ask(&shared, &machine, Question::Config(true)).await
}

/// Sets or removes policy macros on the machine.
pub(super) async fn configure(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<ConfigRequest>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::ManageMachines)?;
    let ConfigRequest { set, text } = body(request)?;
    if text.len() > CONFIG_BYTES || set.len() > limits::NAME_BYTES {
        return Err(Problem::bad("a set of macros holds at most 64 KiB, its name 256 bytes"));
    }
    let by = caller.0.name().to_owned();
    ask(&shared, &machine, Question::Set(SetMacro { set, text, by })).await
}

/// Has the machine read its configuration again.
pub(super) async fn reconfigure(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::ManageMachines)?;
    ask(&shared, &machine, Question::Reconfigure(true)).await
}

/// Does something with everything that runs on the machine.
pub(super) async fn control(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<ControlRequest>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::ManageMachines)?;
    let request = body(request)?;
    let verb = match request.verb {
        MachineVerb::Vacate => Verb::Vacate,
        MachineVerb::Kill => Verb::Kill,
        MachineVerb::Suspend => Verb::Suspend,
        MachineVerb::Continue => Verb::Continue,
        MachineVerb::Checkpoint => Verb::Checkpoint,
        MachineVerb::Warn => Verb::Warn,
    };
    let reason = text::one_line(&request.reason, limits::REASON_BYTES);
    let (claim, bytes_per_second) = (request.claim.unwrap_or(0), request.bytes_per_second);
    let slot = text::one_line(&request.slot, limits::NAME_BYTES);
    let remaining_s = request.remaining_s;
    let control = Control { verb: verb.into(), claim, reason, bytes_per_second, slot, remaining_s };
    ask(&shared, &machine, Question::Control(control)).await
}
